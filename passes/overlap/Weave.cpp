//===- Weave.cpp - slices in pipeline order, collectives as futures -----------------------------------------------===//
// The order of tasks is the schedule's (DecideSchedule, schedule/Stages), task by task; which ops a task has,
// LayerTasks says. An op is emitted after what it reads: what belongs to no task of its own (gates, combines, shared
// experts) comes where the first task needs it, or where nothing else could be done.
#include "passes/Passes.h"
#include "passes/analysis/Tensors.h"
#include "passes/overlap/LayerTasks.h"
#include "passes/overlap/SliceLayer.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_WEAVEPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

/// A task as a schedule names it: "A0.1" is the mixer of block 0, slice 1.
struct NamedTask {
  TaskKind kind = TaskKind::rest;
  int64_t block = 0, slice = 0;
};

std::optional<NamedTask> parseTask(StringRef name) {
  static constexpr std::pair<StringLiteral, TaskKind> kinds[] = {
      {"WA", TaskKind::WA}, {"WM", TaskKind::WM}, {"A", TaskKind::A}, {"D", TaskKind::D},
      {"G", TaskKind::G},   {"M", TaskKind::M},   {"R", TaskKind::R}, {"C", TaskKind::C}};
  for (auto [letters, kind] : kinds) {
    StringRef rest = name;
    NamedTask task{kind, 0, 0};
    if (rest.consume_front(letters) && !rest.consumeInteger(10, task.block) && rest.consume_front(".") &&
        !rest.consumeInteger(10, task.slice) && rest.empty())
      return task;
  }
  return std::nullopt;
}

/// Commands and traces say which task of its block an op belongs to, "A.1": behind the name of its layer, which may be one
/// of several in the function (JoinLayers).
Location inTask(Location loc, Location task) {
  if (auto inlined = dyn_cast<CallSiteLoc>(loc))
    return CallSiteLoc::get(inTask(inlined.getCallee(), task), inlined.getCaller());
  return CallSiteLoc::get(loc, task);
}

/// Where several layers are one function, the call of the one that reads a value of the caller (a slice of it, say).
std::optional<Location> callOfReader(Operation *op) {
  for (Operation *user : op->getUsers()) {
    if (auto inlined = dyn_cast<CallSiteLoc>(user->getLoc()))
      return inlined.getCaller();
    if (std::optional<Location> call = callOfReader(user))
      return call;
  }
  return std::nullopt;
}

/// Of a schedule without an order: that of its pipeline where every task takes the same time.
std::vector<std::string> orderOf(DictionaryAttr schedule, int64_t blocks, bool backward, bool sharesRows) {
  SliceBounds bounds(schedule);
  auto lengths = [](ArrayRef<int64_t> ends) {
    std::vector<int64_t> slices;
    for (size_t i = 1; i < ends.size(); ++i)
      slices.push_back(ends[i] - ends[i - 1]);
    return slices;
  };
  std::vector<BlockSeconds> seconds(blocks);
  for (BlockSeconds &block : seconds)
    block.A.fixed = block.D.fixed = block.M.fixed = block.C.fixed = 1, block.G.fixed = block.R.fixed = sharesRows;
  schedule::Stages stages = stagesOf(seconds, backward, std::nullopt, lengths(bounds.mixer), lengths(bounds.experts));
  for (schedule::BlockTimes &block : stages.blocks)
    block.WA.clear(), block.WM.clear();
  stages.pipeline = *schedule::parsePipeline(schedule.getAs<StringAttr>("pipeline").getValue().str());
  stages.keepSlices = true;
  return schedule::programOrder(schedule::planStages(stages));
}

class Weaver {
public:
  Weaver(func::FuncOp layer, DictionaryAttr schedule)
      : layer(layer), schedule(schedule), body(layer.getBody().front()),
        backward(schedule.getAs<StringAttr>("direction").getValue() == "backward"), places(layer, backward) {
    for (Operation &op : body.without_terminator()) {
      original.push_back(&op);
      joined |= isa<CallSiteLoc>(op.getLoc());
      if (!isDataExchange(&op) && llvm::any_of(op.getOperands(), [&](Value v) {
            Operation *def = v.getDefiningOp();
            return def && places.of(def).level == places.of(&op).level &&
                   (isCountExchange(def) || behindCounts.contains(def));
          }))
        behindCounts.insert(&op);
    }
  }

  LogicalResult run() {
    std::vector<std::string> order;
    if (auto names = schedule.getAs<ArrayAttr>("order"))
      for (Attribute name : names)
        order.push_back(isa<StringAttr>(name) ? cast<StringAttr>(name).getValue().str() : "");
    else
      order = orderOf(schedule, places.blocks(), backward, hasOp(layer, isRowSharing));
    DenseSet<int64_t> filled; // blocks whose shared experts have been offered a place
    SmallVector<NamedTask> tasks;
    SmallVector<Location> labels;
    for (const std::string &name : order) {
      std::optional<NamedTask> task = parseTask(name);
      if (!task || task->block >= places.blocks())
        return layer.emitOpError() << "has a schedule with task \"" << name
                                   << "\"; valid: A, D, G, M, R, C, WA or WM, block (0 to " << places.blocks() - 1
                                   << "), a dot and a slice, as in \"A0.1\"";
      tasks.push_back(*task);
      std::string label = name.substr(0, name.find_first_of("0123456789")) + "." + std::to_string(task->slice);
      labels.push_back(NameLoc::get(StringAttr::get(layer.getContext(), label)));
    }
    bool fillersNamed =
        llvm::any_of(tasks, [](const NamedTask &t) { return t.kind == TaskKind::WA || t.kind == TaskKind::WM; });
    for (auto [i, task] : llvm::enumerate(tasks)) {
      // Backward: when the exchanges that begin a block are under way, what none of them waits for.
      if (backward && task.kind == TaskKind::M && filled.insert(task.block).second)
        emitIf([&](Operation *op) {
          const TaskPlace &place = places.of(op);
          return place.independent && place.level <= 2 * (places.blocks() - 1 - task.block) && !isWeightGradient(op) &&
                 ready(op);
        });
      // Weight gradients that the schedule does not name go in front of the last mixer slice, under its exchange.
      if (backward && !fillersNamed && i + 1 == tasks.size())
        emitIf([&](Operation *op) { return isWeightGradient(op) && ready(op); });
      current = labels[i];
      emitIf([&](Operation *op) { return isOf(op, task); });
      current.reset();
      emitIf([&](Operation *op) { return isReduction(op); });
    }
    // Forward: what no exchange needs goes between the last experts and the first combine.
    emitIf([&](Operation *op) { return places.of(op).independent && !isWeightGradient(op); });
    emitIf([](Operation *) { return true; });
    for (Operation &op : body)
      for (StringRef name : {kSliceAttr, kFillerAttr, kSectionAttr, kRowsAttr})
        op.removeAttr(name);
    return success();
  }

private:
  /// Gates and packing belong to no task: they come with the exchange that needs them. So does what reads the counts of
  /// other ranks: with the experts, for an exchange of counts stands in line behind exchanges of rows. What ranks of etp
  /// tell each other of counts goes in front of their rows, or it would stand in line behind those of the next slice.
  bool isOf(Operation *op, const NamedTask &task) const {
    const TaskPlace &place = places.of(op);
    auto slice = op->getAttrOfType<IntegerAttr>(kSliceAttr);
    if (task.kind == TaskKind::G && place.block == task.block && isCountGather(op))
      return slice && slice.getInt() == task.slice;
    if (place.kind != task.kind || place.block != task.block || place.independent)
      return false;
    if (task.kind == TaskKind::A && behindCounts.contains(op))
      return false;
    bool ofRows = op->hasAttr(kRowsAttr);
    if (task.kind == TaskKind::A && ofRows && !sameGrids())
      return false;
    if (!slice) // views and sums come with whoever reads them, but for a mixer that is not cut
      return (task.kind == TaskKind::A || task.kind == TaskKind::WA) && wholeMixer();
    return slice.getInt() == task.slice;
  }
  bool wholeMixer() const { return schedule.getAs<DenseI64ArrayAttr>("token_slices").size() == 2; }
  bool sameGrids() const { return !schedule.get("moe_slices"); }

  /// A sum over ranks of something whose last piece exists: the earlier it begins, the more it hides behind.
  bool isReduction(Operation *op) const {
    auto collective = dyn_cast<CollectiveOpInterface>(op);
    if (!collective || op->hasAttr(kSliceAttr) ||
        (collective.getKind() != CollectiveKind::all_reduce && collective.getKind() != CollectiveKind::reduce_scatter))
      return false;
    return llvm::all_of(op->getOperands(), [&](Value v) { return exists(v.getDefiningOp()); });
  }
  /// Has been emitted, or is a sum of what has been.
  bool exists(Operation *def) const {
    return !def || done.contains(def) ||
           (isa<AddOp>(def) && llvm::all_of(def->getOperands(), [&](Value v) { return exists(v.getDefiningOp()); }));
  }

  bool ready(Operation *op) const {
    return llvm::all_of(op->getOperands(),
                        [&](Value v) { return !v.getDefiningOp() || done.contains(v.getDefiningOp()); });
  }

  void emitIf(llvm::function_ref<bool(Operation *)> wanted) {
    for (Operation *op : original)
      if (!done.contains(op) && wanted(op))
        emit(op);
  }

  /// What waits for fewer exchanges comes first.
  void emit(Operation *op) {
    if (!done.insert(op).second)
      return;
    SmallVector<Operation *> before;
    for (Value operand : op->getOperands())
      if (Operation *def = operand.getDefiningOp(); def && def->getBlock() == &body && !done.contains(def))
        before.push_back(def);
    llvm::stable_sort(before, [&](Operation *a, Operation *b) { return places.of(a).level < places.of(b).level; });
    for (Operation *def : before)
      emit(def);
    op->moveBefore(body.getTerminator());
    if (!current)
      return;
    // Who reads it is not emitted yet, and says no task yet.
    if (joined && !isa<CallSiteLoc>(op->getLoc()))
      if (std::optional<Location> call = callOfReader(op))
        op->setLoc(CallSiteLoc::get(op->getLoc(), *call));
    op->setLoc(inTask(op->getLoc(), *current));
  }

  func::FuncOp layer;
  DictionaryAttr schedule;
  Block &body;
  bool backward;
  LayerTasks places;
  SmallVector<Operation *> original;
  DenseSet<Operation *> behindCounts; ///< what waits for the counts of other ranks, up to the exchange of rows
  DenseSet<Operation *> done;
  bool joined = false; ///< its ops say which of its layers they come from
  std::optional<Location> current; ///< the task whose ops are emitted
};

/// What a view of a section of a concat shows, if that is one of its operands.
Value sectionOf(Value view) {
  auto slice = view.getDefiningOp<SliceOp>();
  auto concat = slice ? slice.getSource().getDefiningOp<ConcatOp>() : ConcatOp();
  if (!concat || concat.getDim() != slice.getDim())
    return {};
  int64_t begin = 0;
  for (Value section : concat.getOperands()) {
    if (begin == static_cast<int64_t>(slice.getBegin()) && section.getType() == slice.getType())
      return section;
    begin += typeOf(section).getDimSize(slice.getDim());
  }
  return {};
}

/// Where rows are exchanged, the counts come from where they arrived, not from where the plan is kept: the exchange
/// follows that of the counts on its stream, and compute waits for neither.
void readCountsAtTheirSource(func::FuncOp function) {
  function.walk([](CommAllToAllOp exchange) {
    for (OpOperand &counts : llvm::drop_begin(exchange->getOpOperands())) {
      Value view = counts.get();
      auto reshape = view.getDefiningOp<ReshapeOp>();
      Value section = sectionOf(reshape ? reshape.getSource() : view);
      if (!section)
        continue;
      if (auto inner = section.getDefiningOp<ReshapeOp>(); inner && inner.getSource().getType() == view.getType())
        section = inner.getSource();
      OpBuilder builder(exchange);
      if (reshape && section.getType() != view.getType()) {
        auto copy = ReshapeOp::create(builder, reshape.getLoc(), view.getType(), section);
        copy->setAttrs(reshape->getAttrs());
        section = copy;
      }
      counts.set(section);
    }
  });
}

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

/// Weight gradients wait for nobody, and only those of the next slice wait for them: those that stand in front of an exchange of tokens along
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
    Operation *place = await;
    for (Operation *gradient : llvm::reverse(waiting)) { // those of slices add up: each is read by the next
      auto late = [&](Operation *user) { return !block.findAncestorOpInBlock(*user)->isBeforeInBlock(place); };
      if (gradient->isBeforeInBlock(start) && llvm::all_of(gradient->getUsers(), late)) {
        gradient->moveBefore(place);
        place = gradient;
      }
    }
    waiting.clear();
  }
}

/// What an exchange of tokens along sp does not send, and nobody reads before it has come, is computed while it is under
/// way: the queries of a scan whose states travel. Only what stands next to it: tasks of a schedule stay in their order.
/// What stands under an exchange is left to it by those of the same label behind it (the steps of a ring), and weight
/// gradients by all.
void sinkUnderExchanges(Block &block) {
  SmallVector<Operation *> near; // since the last exchange along another axis
  DenseMap<Operation *, llvm::SmallDenseSet<Attribute, 2>> above; // labels of exchanges that it stands under
  for (Operation &op : llvm::make_early_inc_range(block)) {
    auto await = dyn_cast<CommAwaitOp>(op);
    auto start = await ? await.getFuture().getDefiningOp<CommStartOp>() : dyn_cast<CommStartOp>(op);
    if (start && start.getAxis() != "sp") {
      near.clear();
      continue;
    }
    if (await && start && start->getBlock() == &block) {
      Attribute label = start.getLabelAttr();
      SmallVector<Operation *> moved;
      for (Operation *candidate : llvm::reverse(near)) {
        if (!candidate->isBeforeInBlock(start)) {
          above[candidate].insert(label);
          continue;
        }
        bool late = llvm::all_of(candidate->getUsers(), [&](Operation *user) {
          return llvm::is_contained(moved, user) || await->isBeforeInBlock(block.findAncestorOpInBlock(*user));
        });
        if (!late || !above[candidate].insert(label).second)
          continue;
        candidate->moveBefore(moved.empty() ? await.getOperation() : moved.back());
        moved.push_back(candidate);
      }
      // In the order of the block, as what follows expects.
      llvm::erase_if(near, [&](Operation *candidate) { return llvm::is_contained(moved, candidate); });
      llvm::append_range(near, llvm::reverse(moved));
    }
    bool stays = isa<CommStartOp, LinearGradWeightOp, MoeGroupedLinearGradWeightOp>(op);
    if (op.getNumRegions() == 0 && !op.use_empty() && !stays)
      near.push_back(&op);
  }
}

class WeavePass : public braid::impl::WeavePassBase<WeavePass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (failed(checkSchedule(function)))
        return signalPassFailure();
      readCountsAtTheirSource(function);
      if (auto schedule = function->getAttrOfType<DictionaryAttr>(attrs::schedule)) {
        if (failed(Weaver(function, schedule).run()))
          return signalPassFailure();
        function->removeAttr(attrs::schedule);
      }
      function.walk([](Block *block) {
        splitCollectives(*block);
        overlapCounts(*block);
        fillExchanges(*block);
        sinkUnderExchanges(*block);
      });
    }
  }
};

} // namespace
