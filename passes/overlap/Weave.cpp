//===- Weave.cpp - slices in pipeline order, collectives as futures -----------------------------------------------===//
// A sliced layer is a set of tasks (level, slice): level = how many expert exchanges lie before an op. Forward: 0 mixer
// and gate (A), 1 experts (M), 2 combine. Backward: 0 combine's gradient, 1 experts (M), 2 gate and mixer (A). Work
// that no exchange waits for (shared expert) fills the combine exchange; weight gradients fill what is left.
#include "passes/Passes.h"
#include "passes/overlap/SliceLayer.h"
#include "schedule/Stages.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_WEAVEPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

bool isDataExchange(Operation *op) {
  auto exchange = dyn_cast<CommAllToAllOp>(op);
  return exchange && exchange.getSendCounts();
}

struct Task {
  int64_t level, slice;
};

/// The pipeline's compute order of one block (schedule/Stages), and the combines that follow it: in the transposed
/// graph they come first, and mixer and combine change places.
SmallVector<Task> taskOrder(StringRef pipeline, bool backward, int64_t d) {
  SmallVector<Task> order;
  auto direction = backward ? schedule::Direction::backward : schedule::Direction::forward;
  for (schedule::Turn turn : schedule::computeOrder(*schedule::parsePipeline(pipeline.str()), direction, d))
    order.push_back({turn.kind == 'M' ? 1 : backward ? 2 : 0, turn.slice});
  SmallVector<Task> combines;
  for (int64_t i = 0; i < d; ++i)
    combines.push_back(backward ? Task{0, d - 1 - i} : Task{2, i});
  order.insert(backward ? order.begin() : order.end(), combines.begin(), combines.end());
  return order;
}

class Weaver {
public:
  explicit Weaver(func::FuncOp layer) : body(layer.getBody().front()) {}

  void run(DictionaryAttr schedule) {
    classify();
    bool backward = schedule.getAs<StringAttr>("direction").getValue() == "backward";
    int64_t d = schedule.getAs<DenseI64ArrayAttr>("token_slices").size() - 1;
    SmallVector<Task> order = taskOrder(schedule.getAs<StringAttr>("pipeline").getValue(), backward, d);
    SmallVector<Operation *> original;
    for (Operation &op : body.without_terminator())
      original.push_back(&op);
    auto emitIf = [&](auto &&wanted) {
      for (Operation *op : original)
        if (wanted(op))
          emit(op);
    };
    for (auto [i, task] : llvm::enumerate(order)) {
      // Forward: what no exchange needs goes between the last experts and the first combine. Backward: right after all
      // combine gradients have started.
      bool fill =
          backward ? task.level == 1 && i > 0 && order[i - 1].level == 0 : task.level == 2 && order[i - 1].level != 2;
      if (fill)
        emitIf([&](Operation *op) { return info[op].independent && !op->hasAttr(kFillerAttr); });
      // Weight gradients whose operands exist go in front of the last mixer slice, under its exchange.
      if (backward && i + 1 == order.size())
        emitIf([&](Operation *op) { return op->hasAttr(kFillerAttr) && ready(op); });
      emitIf([&](Operation *op) {
        const Info &o = info[op];
        return o.level == task.level && o.slice == task.slice && !o.independent && !op->hasAttr(kFillerAttr);
      });
    }
    emitIf([](Operation *) { return true; });
    for (Operation &op : body) {
      op.removeAttr(kSliceAttr);
      op.removeAttr(kFillerAttr);
      op.removeAttr(kSectionAttr);
    }
  }

private:
  struct Info {
    int64_t level = 0, slice = -1;
    bool independent = false; ///< level 0 and no exchange reads it
  };

  void classify() {
    DenseSet<Operation *> beforeExchange;
    for (Operation &op : body.without_terminator()) {
      Info &o = info[&op];
      if (auto slice = op.getAttrOfType<IntegerAttr>(kSliceAttr))
        o.slice = slice.getInt();
      for (Value operand : op.getOperands())
        if (Operation *def = operand.getDefiningOp())
          o.level = std::max(o.level, info[def].level + (isDataExchange(def) ? 1 : 0));
    }
    for (Operation &op : llvm::reverse(body.without_terminator())) {
      bool needed = isDataExchange(&op);
      for (Operation *user : op.getUsers())
        needed |= beforeExchange.contains(user);
      if (needed)
        beforeExchange.insert(&op);
    }
    for (Operation &op : body.without_terminator())
      info[&op].independent = info[&op].level == 0 && !beforeExchange.contains(&op);
  }

  bool ready(Operation *op) {
    return llvm::all_of(op->getOperands(),
                        [&](Value v) { return !v.getDefiningOp() || done.contains(v.getDefiningOp()); });
  }

  void emit(Operation *op) {
    if (!done.insert(op).second)
      return;
    for (Value operand : op->getOperands())
      if (Operation *def = operand.getDefiningOp(); def && def->getBlock() == &body && !done.contains(def))
        emit(def);
    op->moveBefore(body.getTerminator());
  }

  Block &body;
  DenseMap<Operation *, Info> info;
  DenseSet<Operation *> done;
};

/// Every collective starts where it stands and is awaited in front of its first reader.
void splitCollectives(Block &block) {
  SmallVector<Operation *> collectives;
  for (Operation &op : block)
    if (isa<CollectiveOpInterface>(op))
      collectives.push_back(&op);
  for (Operation *op : collectives) {
    OpBuilder builder(op);
    Type type = op->getResult(0).getType();
    auto future = FutureType::get(op->getContext(), {type});
    auto collective = cast<CollectiveOpInterface>(op);
    NamedAttrList attributes;
    for (NamedAttribute attribute : op->getAttrs())
      if (llvm::is_contained(CommStartOp::getAttributeNames(), attribute.getName().getValue()))
        attributes.append(attribute);
    attributes.set("kind", CollectiveKindAttr::get(op->getContext(), collective.getKind()));
    auto start = CommStartOp::create(builder, op->getLoc(), TypeRange{future}, op->getOperands(), attributes);
    Operation *first = nullptr;
    for (Operation *user : op->getUsers()) {
      Operation *here = block.findAncestorOpInBlock(*user);
      if (!first || here->isBeforeInBlock(first))
        first = here;
    }
    builder.setInsertionPoint(first ? first : block.getTerminator());
    auto await = CommAwaitOp::create(builder, op->getLoc(), TypeRange{type}, start);
    op->getResult(0).replaceAllUsesWith(await.getResult(0));
    op->erase();
  }
}

/// Counts travel while rows are packed: what needs no count, and stands between their await and the next collective,
/// goes in front of the await. The order of tasks is the pipeline's, so exchanges of rows are left where they are.
void overlapCounts(Block &block) {
  SmallVector<CommAwaitOp> awaits(block.getOps<CommAwaitOp>());
  for (CommAwaitOp await : awaits) {
    auto start = await.getFuture().getDefiningOp<CommStartOp>();
    if (!start || start.getKind() != CollectiveKind::all_to_all || start.getInputs().size() > 1)
      continue;
    DenseSet<Operation *> waiting = {await};
    for (Operation &op : llvm::make_early_inc_range(llvm::make_range(std::next(await->getIterator()), block.end()))) {
      if (isa<CommStartOp, CommAwaitOp>(op) || op.hasTrait<OpTrait::IsTerminator>() || op.getNumRegions())
        break;
      if (llvm::any_of(op.getOperands(), [&](Value v) { return waiting.contains(v.getDefiningOp()); }))
        waiting.insert(&op);
      else
        op.moveBefore(await);
    }
  }
}

/// Weight gradients wait for nobody and nobody waits for them: those that stand in front of an exchange of tokens along
/// sp (states of scans, keys and values) are computed while it is under way.
void fillExchanges(Block &block) {
  SmallVector<Operation *> waiting; // weight gradients since the last such exchange
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (isa<LinearGradWeightOp, MoeGroupedLinearGradWeightOp>(op)) {
      waiting.push_back(&op);
      continue;
    }
    auto await = dyn_cast<CommAwaitOp>(op);
    auto start = await ? await.getFuture().getDefiningOp<CommStartOp>() : CommStartOp();
    if (!start || start.getAxis() != "sp" || start->getBlock() != &block)
      continue;
    for (Operation *gradient : waiting) {
      auto late = [&](Operation *user) { return await->isBeforeInBlock(block.findAncestorOpInBlock(*user)); };
      if (gradient->isBeforeInBlock(start) && llvm::all_of(gradient->getUsers(), late))
        gradient->moveBefore(await);
    }
    waiting.clear();
  }
}

class WeavePass : public braid::impl::WeavePassBase<WeavePass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (failed(checkSchedule(function)))
        return signalPassFailure();
      if (auto schedule = function->getAttrOfType<DictionaryAttr>(attrs::schedule)) {
        Weaver(function).run(schedule);
        function->removeAttr(attrs::schedule);
      }
      function.walk([](Block *block) {
        splitCollectives(*block);
        overlapCounts(*block);
        fillExchanges(*block);
      });
    }
  }
};

} // namespace
