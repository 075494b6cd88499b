//===- ExpandSlices.cpp - the schedule's token slices become ops --------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/analysis/Mesh.h"
#include "passes/analysis/Tensors.h"
#include "passes/overlap/SliceLayer.h"
#include "passes/shard/FunctionRewriter.h"
#include "passes/shard/Sequence.h"
#include "runtime/schema/SequenceLayout.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_EXPANDSLICESPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

class Expander : public FunctionRewriter {
public:
  explicit Expander(ModuleOp module) : FunctionRewriter(module), packed(module) {}

protected:
  LogicalResult rewriteOp(Operation &op, IRMapping &map, OpBuilder &builder) override {
    Operation *copy = builder.clone(op, map);
    // Types may have changed: those of rebuilt layers flow through a few ops of the entry, sums and stacks.
    if (isa<AddOp>(copy))
      copy->getResult(0).setType(copy->getOperand(0).getType());
    else if (isa<ReshapeOp, SliceOp, ConcatOp>(copy) && copy->getOperand(0).getType() != op.getOperand(0).getType())
      copy->getResult(0).setType(restacked(op, copy->getOperand(0)));
    return success();
  }

  LogicalResult rewriteLayer(func::FuncOp from, Block &to, IRMapping &map) override {
    auto schedule = from->getAttrOfType<DictionaryAttr>(attrs::schedule);
    if (!schedule)
      return FunctionRewriter::rewriteLayer(from, to, map);
    return SliceLayer(from, to, SliceBounds(schedule)).run(packed);
  }

  /// A sliced layer reads document starts relative to each slice: computed once, where the row's are.
  Value callOperand(func::FuncOp callee, BlockArgument, Value mapped) override {
    auto schedule = callee->getAttrOfType<DictionaryAttr>(attrs::schedule);
    auto documents = mapped.getDefiningOp<DocumentsOp>();
    ArrayRef<int64_t> bounds =
        schedule ? schedule.getAs<DenseI64ArrayAttr>("token_slices").asArrayRef() : ArrayRef<int64_t>();
    if (bounds.size() <= 2 || !documents)
      return mapped;
    Value &known = relative[{documents, schedule.get("token_slices")}];
    if (known)
      return known;
    OpBuilder builder(documents);
    builder.setInsertionPointAfter(documents);
    auto type = cast<RankedTensorType>(documents.getType());
    int64_t ranks = documents.getCoordinate() ? Mesh::of(module).size("sp") : 1; // that share a slice
    auto layout = runtime::SequenceLayout::ofLocalEnds(bounds.drop_front().vec(), ranks);
    SmallVector<Value> parts;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      auto [begin, local, count] = layout.stripe(i, 0); // the op adds the rank's place
      parts.push_back(DocumentsOp::create(
          builder, documents.getLoc(), RankedTensorType::get({type.getDimSize(0), count}, type.getElementType()),
          documents.getCuSeqlens(), documents.getCoordinate(), documents.getBegin() + begin));
    }
    return known = ConcatOp::create(builder, documents.getLoc(), type, parts, 1);
  }

private:
  /// Stacking works on leading dimensions; those behind them are what they are now.
  static RankedTensorType restacked(Operation &op, Value operand) {
    RankedTensorType from = typeOf(op.getOperand(0)), to = typeOf(op.getResult(0)), now = typeOf(operand);
    SmallVector<int64_t> shape(to.getShape());
    for (int64_t i = 1; i <= std::min(from.getRank(), to.getRank()); ++i) {
      if (from.getDimSize(from.getRank() - i) != to.getDimSize(to.getRank() - i))
        break;
      shape[to.getRank() - i] = now.getDimSize(now.getRank() - i);
    }
    return to.clone(shape);
  }

  DenseMap<std::pair<Operation *, Attribute>, Value> relative;
  PackedSlices packed;
};

class ExpandSlicesPass : public braid::impl::ExpandSlicesPassBase<ExpandSlicesPass> {
  void runOnOperation() override {
    if (failed(checkSequencePlaces(getOperation())))
      return signalPassFailure();
    bool any = false;
    for (auto layer : getOperation().getOps<func::FuncOp>()) {
      if (failed(checkSchedule(layer)))
        return signalPassFailure();
      any |= layer->hasAttr(attrs::schedule);
    }
    if (any && failed(expand()))
      return signalPassFailure();
    // Rows that were to be cut and are better whole have their exchanges to be built, too.
    if (failed(exchangeSlices(getOperation())))
      return signalPassFailure();
    gatherLatents(getOperation());
    mergeExchanges(getOperation());
  }

  LogicalResult expand() {
    Expander expander(getOperation());
    SmallVector<func::FuncOp> entries(getOperation().getOps<func::FuncOp>());
    for (func::FuncOp entry : entries)
      if (entry->hasAttr(attrs::entry) && failed(expander.rewriteEntry(entry, entry.getArgumentTypes())))
        return failure();
    expander.finish();
    return success();
  }
};

} // namespace
