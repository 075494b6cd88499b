//===- DecideSchedule.cpp - which layers are sliced, how, and in which order their tasks run ----------------------===//
#include "passes/Passes.h"
#include "passes/analysis/Mesh.h"
#include "passes/shard/Sequence.h"
#include "schedule/Slicing.h"
#include "llvm/ADT/StringExtras.h"

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

template <typename Test> bool hasOp(func::FuncOp layer, Test &&test) {
  return layer.walk([&](Operation *op) { return test(op) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}
/// Every slice is divided along an axis, so all layers are cut, and alike: there is one layout of a row.
bool isDivided(Operation *op) { return op->hasAttr(kSequenceAttr); }

/// Tokens of a layer: those of its first token argument.
int64_t tokensOf(func::FuncOp layer) {
  for (Type type : layer.getArgumentTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type);
        tensor && tensor.getRank() >= 2 && tensor.getElementType().isInteger(32))
      return tensor.getDimSize(1); // documents [B, T]
  return 0;
}

/// What the tokens of a layer cost: those of softmax attention over all keys before them more and more, others the
/// same. Read from the heads, which forward and gradient have in common.
std::optional<schedule::AttentionCost> attentionCostOf(func::FuncOp layer) {
  std::optional<schedule::AttentionCost> cost;
  layer.walk([&](Operation *op) {
    Value q;
    if (auto attention = dyn_cast<AttnCausalOp>(op); attention && !attention.getWindow())
      q = attention.getQ();
    else if (auto grad = dyn_cast<AttnCausalGradOp>(op); grad && !grad.getWindow())
      q = grad.getQ();
    if (!q)
      return WalkResult::advance();
    auto type = cast<RankedTensorType>(q.getType()); // [B, T, H, D]
    cost = {type.getDimSize(2) * type.getDimSize(3), type.getDimSize(2)};
    return WalkResult::interrupt();
  });
  return cost;
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
    static constexpr StringLiteral slicings[] = {"uniform", "time_uniform", "balanced"};
    if (!llvm::is_contained(slicings, slicing)) {
      getOperation().emitError() << "slicing \"" << slicing
                                 << "\" is not known; valid: uniform, time_uniform, balanced";
      return signalPassFailure();
    }
    for (auto layer : getOperation().getOps<func::FuncOp>())
      dividesSlices |= hasOp(layer, isDivided);
    for (auto layer : getOperation().getOps<func::FuncOp>())
      if (!layer.isPublic() && failed(decide(layer)))
        return signalPassFailure();
    if (pipeline != "none" && overlapDegree > 1 && scheduled == 0)
      getOperation().emitWarning() << "no layer exchanges expert rows between ranks: pipeline " << pipeline
                                   << " has nothing to overlap (--mesh=dp=N,ep=N gives it something)";
  }

private:
  int64_t scheduled = 0;
  bool dividesSlices = false; ///< ranks share the slices of some layers

  std::vector<int64_t> slicesOf(func::FuncOp layer, int64_t tokens) const {
    std::optional<schedule::AttentionCost> cost = attentionCostOf(layer);
    if (cost && slicing == "time_uniform")
      return schedule::timeUniformSlices(tokens, overlapDegree, *cost);
    if (cost && slicing == "balanced")
      return schedule::balancedSlices(tokens, overlapDegree, *cost, schedule::defaultAlignment(tokens, overlapDegree));
    return schedule::uniformSlices(tokens, overlapDegree);
  }

  /// Who fills a batch reads from the program file where slices end.
  LogicalResult layOut(func::FuncOp layer, ArrayRef<int64_t> bounds) {
    Builder b(&getContext());
    SmallVector<std::string> ends;
    for (int64_t end : bounds.drop_front().drop_back())
      ends.push_back(std::to_string(end * Mesh::of(getOperation()).size("sp")));
    auto text = b.getStringAttr(llvm::join(ends, ","));
    NamedAttrList metadata(getOperation()->getAttrOfType<DictionaryAttr>(attrs::metadata));
    if (Attribute known = metadata.get("sequence_slices"); known && known != text)
      return layer.emitOpError() << "is cut behind tokens " << text << " but another layer behind " << known;
    metadata.set("sequence_slices", text);
    getOperation()->setAttr(attrs::metadata, metadata.getDictionary(&getContext()));
    return success();
  }

  LogicalResult decide(func::FuncOp layer) {
    bool divided = hasOp(layer, isDivided);
    if (!(divided || hasOp(layer, isDataExchange)) || overlapDegree == 1 || pipeline == "none")
      return success();
    if (int64_t sp = Mesh::of(getOperation()).size("sp"); sp > 1 && !divided) {
      if (dividesSlices)
        return success(); // a prompt's
      return layer.emitOpError() << "has rows that sp = " << sp
                                 << " ranks share and that were divided whole; valid: no slices, or --pipeline and "
                                    "--overlap-degree when --mesh divides the rows";
    }
    if (divided && slicing != "uniform")
      return layer.emitOpError()
             << "has tokens on several ranks (sp, --mesh), whose layout all layers share: slicing \"" << slicing
             << "\" cuts each layer by its cost; valid: \"uniform\"";
    int64_t tokens = tokensOf(layer), degree = overlapDegree;
    if (tokens < degree)
      return layer.emitOpError() << "has " << tokens << " tokens in a row, too few for overlap degree " << degree
                                 << " (--overlap-degree)"
                                 << "; valid: 1 to " << tokens;
    bool backward =
        hasOp(layer, [](Operation *op) { return isa<MoeCombineGradOp, LsmScanGradOp, AttnCausalGradOp>(op); });
    SmallVector<int64_t> bounds = {0};
    for (int64_t slice : slicesOf(layer, tokens))
      bounds.push_back(bounds.back() + slice);
    ++scheduled;
    Builder b(&getContext());
    if (divided)
      if (LogicalResult same = layOut(layer, bounds); failed(same))
        return same;
    layer->setAttr(attrs::schedule,
                   b.getDictionaryAttr({b.getNamedAttr("pipeline", b.getStringAttr(pipeline)),
                                        b.getNamedAttr("direction", b.getStringAttr(backward ? "backward" : "forward")),
                                        b.getNamedAttr("token_slices", b.getDenseI64ArrayAttr(bounds))}));
    return success();
  }
};

} // namespace
