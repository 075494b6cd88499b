//===- DecideSchedule.cpp - which layers are sliced, how, and in which order their tasks run ----------------------===//
#include "passes/Passes.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_DECIDESCHEDULEPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

bool isDataExchange(Operation *op) {
  auto exchange = dyn_cast<CommAllToAllOp>(op);
  return exchange && exchange.getSendCounts();
}

/// Tokens of a layer: those of its first token argument.
int64_t tokensOf(func::FuncOp layer) {
  for (Type type : layer.getArgumentTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type);
        tensor && tensor.getRank() >= 2 && tensor.getElementType().isInteger(32))
      return tensor.getDimSize(1); // documents [B, T]
  return 0;
}

class DecideSchedulePass : public braid::impl::DecideSchedulePassBase<DecideSchedulePass> {
public:
  using DecideSchedulePassBase::DecideSchedulePassBase;
  void runOnOperation() override {
    static constexpr StringLiteral kinds[] = {"none", "aAaM", "1A1M"};
    if (!llvm::is_contained(kinds, pipeline)) {
      getOperation().emitError() << "pipeline \"" << pipeline << "\" is not known; valid: none, aAaM, 1A1M";
      return signalPassFailure();
    }
    if (overlapDegree < 1 || overlapDegree > 16) {
      getOperation().emitError() << "overlap degree is " << overlapDegree.getValue() << "; valid: 1 to 16";
      return signalPassFailure();
    }
    for (auto layer : getOperation().getOps<func::FuncOp>())
      if (!layer.isPublic() && failed(decide(layer)))
        return signalPassFailure();
    if (pipeline != "none" && overlapDegree > 1 && scheduled == 0)
      getOperation().emitWarning() << "no layer exchanges expert rows between ranks: pipeline " << pipeline
                                   << " has nothing to overlap (--mesh=dp=N,ep=N gives it something)";
  }

private:
  int64_t scheduled = 0;

  LogicalResult decide(func::FuncOp layer) {
    bool exchanges =
        layer.walk([](Operation *op) { return isDataExchange(op) ? WalkResult::interrupt() : WalkResult::advance(); })
            .wasInterrupted();
    if (!exchanges || overlapDegree == 1 || pipeline == "none")
      return success();
    int64_t tokens = tokensOf(layer), degree = overlapDegree;
    if (tokens < degree)
      return layer.emitOpError() << "has " << tokens << " tokens in a row, too few for overlap degree " << degree
                                 << " (--overlap-degree)"
                                 << "; valid: 1 to " << tokens;
    bool backward = layer
                        .walk([](Operation *op) {
                          return isa<MoeCombineGradOp>(op) ? WalkResult::interrupt() : WalkResult::advance();
                        })
                        .wasInterrupted();
    SmallVector<int64_t> bounds;
    for (int64_t i = 0; i <= degree; ++i)
      bounds.push_back(tokens * i / degree);
    ++scheduled;
    Builder b(&getContext());
    layer->setAttr(attrs::schedule,
                   b.getDictionaryAttr({b.getNamedAttr("pipeline", b.getStringAttr(pipeline)),
                                        b.getNamedAttr("direction", b.getStringAttr(backward ? "backward" : "forward")),
                                        b.getNamedAttr("token_slices", b.getDenseI64ArrayAttr(bounds))}));
    return success();
  }
};

} // namespace
