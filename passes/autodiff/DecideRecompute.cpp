//===- DecideRecompute.cpp - what the backward makes again instead of keeping -------------------------------------===//
// Layers marked as a whole keep their inputs, their routes and what other ranks sent. In all layers what costs nothing to
// make again is marked. With a byte budget more ops are, in all calls of a layer function at once, those first that free
// most bytes for their time.
#include "dialects/cmd/CmdDialect.h"
#include "passes/Passes.h"
#include "passes/analysis/ConvEnds.h"
#include "passes/autodiff/BlockGradient.h"
#include "passes/autodiff/Recompute.h"
#include "passes/shard/LocalBytes.h"
#include "passes/shard/Sequence.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <map>

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_DECIDERECOMPUTEPASS
#include "passes/Passes.h.inc"
} // namespace braid

bool braid::canRecompute(Operation *op, Travels travels) {
  if (isa<MoeRouteOp, MoeDropOp, MoePlanOp, func::CallOp, RepeatOp>(op) || op->hasTrait<OpTrait::IsTerminator>())
    return false;
  return !(travels.rows && isa<MoeDispatchOp, MoeCombineOp>(op)) && !(travels.keys && isa<AttnCausalOp>(op));
}

/// Time of one execution, in multiply-adds of a matrix product. Row-wise ops wait for memory: 64 per element.
static double timeOf(Operation *op) {
  double elements = 0, weights = 0;
  for (Value value : op->getOperands())
    elements += static_cast<double>(cast<RankedTensorType>(value.getType()).getNumElements());
  for (Value value : op->getResults())
    elements += static_cast<double>(cast<RankedTensorType>(value.getType()).getNumElements());
  double time = 64 * elements;
  auto shapeOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getShape(); };
  auto product = [&](Value x, ValueRange matrices, bool perExpert) {
    for (Value matrix : matrices)
      weights += static_cast<double>(cast<RankedTensorType>(matrix.getType()).getNumElements()) /
                 static_cast<double>(perExpert ? shapeOf(matrix)[0] : 1);
    auto shape = shapeOf(x);
    time += weights * static_cast<double>(shape[0] * shape[1]);
  };
  if (auto linear = dyn_cast<LinearOp>(op))
    product(linear.getX(), linear.getWeights(), false);
  else if (auto grouped = dyn_cast<MoeGroupedLinearOp>(op))
    product(grouped.getX(), grouped.getWeights(), true);
  else if (auto attention = dyn_cast<AttnCausalOp>(op)) {
    auto q = shapeOf(attention.getQ());
    double keys = static_cast<double>(q[1]) / 2;
    if (attention.getWindow() > 0)
      keys = std::min(keys, static_cast<double>(attention.getWindow()));
    time += 2 * keys * static_cast<double>(q[0] * q[1] * q[2] * q[3]);
  } else if (auto scan = dyn_cast<LsmScanOp>(op)) {
    int64_t values = cast<RankedTensorType>(scan.getV().getType()).getNumElements();
    time += 4 * static_cast<double>(values * shapeOf(scan.getQ()).back());
  } else if (auto step = dyn_cast<LsmInnerStepOp>(op)) {
    auto v = shapeOf(step.getV());
    time += 8 * static_cast<double>(v[0] * v[1] * v[2] * v[3] * shapeOf(step.getQ()).back());
  }
  return time;
}

/// Each element of the result follows from elements at its place and from weights.
static bool isPointwise(Operation *op) {
  return isa<AddOp, MulOp, ScaleOp, OffsetOp, ClampOp, BiasOp, WeightedOp, ActivationOp, LogSigmoidOp, LogDecayOp>(op);
}

namespace {

/// By logical value, on one rank; where none is known a rank has the whole.
using Bytes = llvm::DenseMap<Value, int64_t>;

int64_t bytesOf(Value value, const Bytes &local) {
  auto known = local.find(value);
  return known != local.end() ? known->second : cmd::tensorBytes(cast<RankedTensorType>(value.getType()));
}

/// A layer function, what its backward reads, and which of its ops are executed again.
struct LayerChoice {
  const Bytes *local = nullptr;
  func::FuncOp layer;
  int64_t calls = 0; ///< in one step
  SmallVector<Value> read;
  BitVector freeArguments; ///< held for other reasons: weights, constants, integers of the whole batch
  llvm::DenseSet<Operation *> again, beside; ///< `beside`: those that cost nothing
  llvm::DenseSet<Operation *> ends; ///< of convolutions that are made again: what others read of them is kept

  /// What must be kept, and the time of what is executed again, when `again` and `more` are marked.
  struct Outcome {
    int64_t bytes = 0;
    double time = 0;
    llvm::SetVector<Value> kept;
    llvm::SetVector<Operation *> executed;
  };
  Outcome outcome(const llvm::DenseSet<Operation *> &more = {}) const {
    Outcome result;
    SmallVector<Value> open(read);
    llvm::DenseSet<Value> seen;
    while (!open.empty()) {
      Value value = open.pop_back_val();
      if (!seen.insert(value).second)
        continue;
      Operation *op = value.getDefiningOp();
      if (op && op->hasTrait<OpTrait::ConstantLike>())
        continue;
      if (op && (isa<ReshapeOp>(op) || again.contains(op) || more.contains(op))) {
        if (result.executed.insert(op)) {
          if (!isa<ReshapeOp>(op) && !beside.contains(op))
            result.time += timeOf(op) * static_cast<double>(calls);
          llvm::append_range(open, op->getOperands());
        }
        continue;
      }
      result.kept.insert(value);
      auto argument = dyn_cast<BlockArgument>(value);
      if (!argument || !freeArguments.test(argument.getArgNumber()))
        result.bytes += bytesOf(value, *local) * calls;
    }
    return result;
  }

  /// `op` and whatever is neither kept nor executed again on the way to it.
  llvm::DenseSet<Operation *> with(Operation *op, const llvm::SetVector<Value> &kept, Travels travels) const {
    llvm::DenseSet<Operation *> more;
    SmallVector<Operation *> open = {op};
    while (!open.empty()) {
      Operation *next = open.pop_back_val();
      if (again.contains(next) || !more.insert(next).second)
        continue;
      for (Value operand : next->getOperands())
        if (Operation *def = operand.getDefiningOp();
            def && !kept.contains(operand) && !def->hasTrait<OpTrait::ConstantLike>() && canRecompute(def, travels))
          open.push_back(def);
    }
    return more;
  }
};

class DecideRecomputePass : public braid::impl::DecideRecomputePassBase<DecideRecomputePass> {
public:
  using DecideRecomputePassBase::DecideRecomputePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    most.clear();
    for (auto function : module.getOps<func::FuncOp>())
      if (function->hasAttr("braid.train") && failed(decide(function)))
        return signalPassFailure();
    for (auto function : module.getOps<func::FuncOp>())
      function->removeAttr(kRecomputeAttr);
  }

private:
  using Layers = llvm::MapVector<Operation *, LayerChoice>;

  LogicalResult collect(Block &block, int64_t times, Activity &activity, SymbolTable &symbols, Layers &layers);
  void makeBeside(LayerChoice &choice);
  void makeConvolutionsAgain(LayerChoice &choice);
  void makeKeysAgain(LayerChoice &choice, int64_t ranks, int64_t parts);
  void meetBudget(Layers &layers, int64_t budget);
  LogicalResult decide(func::FuncOp function);
  Travels travels() const { return {exchanges, sequence}; }

  Bytes local; ///< of the entry at hand
  std::map<std::optional<int64_t>, int64_t> most; ///< by stage, bytes that an entry keeps; of several the most is told
  void report(func::FuncOp function, const Layers &layers, int64_t waiting);

  static int64_t keptBytes(const Layers &layers) {
    int64_t sum = 0;
    for (auto &[op, choice] : layers)
      sum += choice.outcome().bytes;
    return sum;
  }
  /// Of the same without any choice, also those that an earlier entry has made for layers of both.
  static int64_t bareBytes(const Layers &layers) {
    int64_t sum = 0;
    for (auto &[op, choice] : layers) {
      LayerChoice bare = choice;
      bare.again.clear();
      sum += bare.outcome().bytes;
    }
    return sum;
  }
};

/// Bytes that exist anyway: parameters (a repeat's stacked inputs are slots of them), constants, integers of the batch.
bool isFree(Value operand) {
  if (!isa<FloatType>(cast<RankedTensorType>(operand.getType()).getElementType()))
    return true;
  if (Operation *def = operand.getDefiningOp())
    return def->hasTrait<OpTrait::ConstantLike>();
  auto argument = cast<BlockArgument>(operand);
  auto repeat = dyn_cast<RepeatOp>(argument.getOwner()->getParentOp());
  return !repeat ||
         (argument.getArgNumber() >= repeat.getCarried() && isFree(repeat.getInputs()[argument.getArgNumber()]));
}

} // namespace

LogicalResult DecideRecomputePass::collect(Block &block, int64_t times, Activity &activity, SymbolTable &symbols,
                                           Layers &layers) {
  for (Operation &op : block) {
    if (auto repeat = dyn_cast<RepeatOp>(op))
      if (failed(collect(repeat.getBody().front(), times * static_cast<int64_t>(repeat.getCount()), activity, symbols,
                         layers)))
        return failure();
    auto call = dyn_cast<func::CallOp>(op);
    if (!call || llvm::none_of(call.getResults(), [&](Value v) { return activity.isActive(v); }))
      continue;
    auto layer = symbols.lookup<func::FuncOp>(call.getCallee());
    auto [at, isNew] = layers.try_emplace(layer);
    LayerChoice &choice = at->second;
    choice.calls += times;
    if (isNew) {
      choice.layer = layer;
      choice.local = &local;
      for (Operation &marked : layer.getBody().front()) // by hand
        if (marked.hasAttr(kRecomputeAttr))
          choice.again.insert(&marked);
      choice.freeArguments.resize(layer.getNumArguments(), true);
      FailureOr<SmallVector<Value>> read = readByGradient(call, activity, symbols);
      if (failed(read))
        return failure();
      choice.read = std::move(*read);
    }
    for (auto [i, operand] : llvm::enumerate(call.getOperands()))
      if (!isFree(operand))
        choice.freeArguments.reset(i);
  }
  return success();
}

/// Pointwise results that only row-wise ops read, of operands that are kept anyway: the forward then writes nothing of
/// them, since its kernel goes on with them in registers, and a kernel of the backward, which has the rows at hand, makes
/// them where it reads them now. Bytes are saved in memory, and twice on the way there.
void DecideRecomputePass::makeBeside(LayerChoice &choice) {
  for (Operation &op : choice.layer.getBody().front()) {
    if (!isPointwise(&op) || choice.again.contains(&op) || choice.ends.contains(&op))
      continue;
    LayerChoice::Outcome now = choice.outcome();
    auto isThere = [&](Value value) {
      Operation *def = value.getDefiningOp();
      return now.kept.contains(value) ||
             (def && (def->hasTrait<OpTrait::ConstantLike>() || choice.beside.contains(def))) ||
             (isa<BlockArgument>(value) && choice.freeArguments.test(cast<BlockArgument>(value).getArgNumber()));
    };
    if (now.kept.contains(op.getResult(0)) && llvm::all_of(op.getOperands(), isThere) &&
        llvm::all_of(op.getUsers(), [](Operation *user) { return isa<RowsOpInterface>(user); })) {
      choice.again.insert(&op);
      choice.beside.insert(&op);
    }
  }
}

/// Where the gradient's kernel of a convolution makes the sum again, and what is made of it (analysis/ConvEnds): of all of them the last is kept at most, for others.
void DecideRecomputePass::makeConvolutionsAgain(LayerChoice &choice) {
  for (auto conv : choice.layer.getBody().front().getOps<ShortConvOp>()) {
    auto weight = cast<RankedTensorType>(conv.getWeight().getType());
    int64_t channelBytes = cmd::tensorBytes(weight) / weight.getDimSize(0);
    SmallVector<Operation *> end = convEnd(conv, {}, bytesOf(conv.getWeight(), *choice.local) / channelBytes);
    if (end.empty() || choice.again.contains(conv))
      continue;
    choice.ends.insert(end.pop_back_val());
    end.push_back(conv);
    choice.again.insert(end.begin(), end.end());
    choice.beside.insert(end.begin(), end.end());
  }
}

/// Keys and values that ranks along sp make of gathered latents (shard/GatherLatents) are made so for the gradient, too, and not kept.
void DecideRecomputePass::makeKeysAgain(LayerChoice &choice, int64_t ranks, int64_t parts) {
  Machine machine = Machine::of(getOperation());
  for (auto linear : choice.layer.getBody().front().getOps<LinearOp>()) {
    bool keys = llvm::all_of(linear->getUses(), [](OpOperand &use) {
      auto attention = dyn_cast<AttnCausalOp>(use.getOwner());
      return attention && !attention.getWindow() && (use == attention.getKMutable() || use == attention.getVMutable());
    });
    if (keys && latentsTravel(linear.getX(), linear.getResults(), parts, ranks, machine))
      choice.again.insert(linear);
  }
}

/// As far as that is possible: what is kept in the end is reported.
void DecideRecomputePass::meetBudget(Layers &layers, int64_t budget) {
  int64_t total = keptBytes(layers);
  while (total > budget) {
    LayerChoice *best = nullptr;
    llvm::DenseSet<Operation *> bestOps;
    double bestRatio = 0;
    int64_t bestBytes = 0;
    for (auto &[op, choice] : layers) {
      LayerChoice::Outcome now = choice.outcome();
      llvm::SetVector<Operation *> candidates;
      for (Value value : now.kept)
        if (Operation *def = value.getDefiningOp(); def && canRecompute(def, travels()))
          candidates.insert(def);
      for (Operation *candidate : candidates) {
        llvm::DenseSet<Operation *> more = choice.with(candidate, now.kept, travels());
        LayerChoice::Outcome then = choice.outcome(more);
        int64_t freed = now.bytes - then.bytes;
        double ratio = static_cast<double>(freed) / std::max(then.time - now.time, 1.0);
        if (freed > 0 && ratio > bestRatio)
          best = &choice, bestOps = std::move(more), bestRatio = ratio, bestBytes = freed;
      }
    }
    if (!best)
      return;
    best->again.insert(bestOps.begin(), bestOps.end());
    total -= bestBytes;
  }
}

LogicalResult DecideRecomputePass::decide(func::FuncOp function) {
  SymbolTable symbols(getOperation());
  Activity activity(symbols);
  for (BlockArgument argument : function.getArguments()) {
    unsigned i = argument.getArgNumber();
    auto role = function.getArgAttrOfType<StringAttr>(i, attrs::role);
    auto trained = function.getArgAttrOfType<BoolAttr>(i, attrs::trained);
    if (role &&
        ((role.getValue() == "parameter" && (!trained || trained.getValue())) || role.getValue() == kStageInput))
      activity.mark(argument);
  }
  activity.analyze(function.getBody().front());
  local.clear();
  llvm::StringMap<int64_t> axes;
  if (llvm::Expected<Mesh> ranks = Mesh::parse(mesh); !ranks)
    return function.emitError("mesh: ") << llvm::toString(ranks.takeError());
  else if (ranks->world() > 1) {
    local = localBytes(function, *ranks, sliced);
    for (StringRef axis : {"sp", "tp", "pp"})
      axes[axis] = ranks->size(axis);
  }
  // Of a stage, activations of several micro-batches are kept at a time (overlap/PipelineStages).
  int64_t underWay = 1, waits = 0;
  if (std::optional<int64_t> stage = stageOf(function))
    if (auto parts = function->getAttrOfType<IntegerAttr>(attrs::microBatches)) {
      underWay = std::clamp<int64_t>(axes["pp"] - *stage + (dividesHead(function) ? kHeadDelay : 0), 1, parts.getInt());
      // Of ZB-H1 a stage has as many without gradients of weights as there are stages before it.
      if (isZeroBubble(function))
        waits = std::min(*stage, parts.getInt() - underWay);
    }
  auto algorithm = getOperation()->getAttrOfType<StringAttr>(attrs::spAlgorithm);
  bool gathers = sequence && !(algorithm && algorithm.getValue() == spAlgorithmName(SpAlgorithm::ring));
  Layers layers;
  if (failed(collect(function.getBody().front(), underWay, activity, symbols, layers)))
    return failure();
  // What a gradient of weights reads, which waits for its turn: taken as all that is kept of a micro-batch without choices.
  int64_t waiting = bareBytes(layers) / underWay * waits;

  for (auto &[op, choice] : layers)
    if (op->hasAttr(kRecomputeAttr))
      for (Operation &inner : choice.layer.getBody().front())
        if (canRecompute(&inner, travels()) && !inner.hasTrait<OpTrait::ConstantLike>())
          choice.again.insert(&inner);
  for (auto &[op, choice] : layers) {
    if (convolutions)
      makeConvolutionsAgain(choice);
    if (gathers)
      makeKeysAgain(choice, axes["sp"], axes["tp"]);
    makeBeside(choice);
  }
  auto settings = function->getAttrOfType<DictionaryAttr>("braid.train");
  if (auto budget = settings.getAs<IntegerAttr>("activation_budget")) {
    meetBudget(layers, budget.getInt() - waiting);
    NamedAttrList rest(settings);
    rest.erase("activation_budget");
    function->setAttr("braid.train", rest.getDictionary(&getContext()));
  }
  report(function, layers, waiting);
  for (auto &[op, choice] : layers)
    for (Operation *executed : choice.outcome().executed)
      executed->setAttr(kRecomputeAttr, UnitAttr::get(&getContext()));
  return success();
}

/// The program file says what the decision costs and saves; braid-run info prints it.
void DecideRecomputePass::report(func::FuncOp function, const Layers &layers, int64_t waiting) {
  int64_t kept = keptBytes(layers) + waiting, withoutMarks = bareBytes(layers) + waiting;
  double time = 0, all = 0;
  for (auto &[op, choice] : layers) {
    time += choice.outcome().time;
    for (Operation &inner : func::FuncOp(choice.layer).getBody().front())
      if (!inner.hasTrait<OpTrait::IsTerminator>() && !isa<ReshapeOp>(inner))
        all += timeOf(&inner) * static_cast<double>(choice.calls);
  }
  int64_t percent = all > 0 ? std::llround(100 * time / all) : 0;
  if (explain)
    function.emitRemark() << "activations of @" << function.getSymName() << ": " << kept << " of " << withoutMarks
                          << " bytes kept for the backward, " << percent
                          << "% of the layers' forward is executed again";
  auto metadata = getOperation()->getAttrOfType<DictionaryAttr>(attrs::metadata);
  std::optional<int64_t> stage = stageOf(function);
  int64_t &before = most.try_emplace(stage, -1).first->second;
  if (!metadata || kept < before)
    return;
  before = kept;
  Builder builder(&getContext());
  NamedAttrList entries(metadata);
  auto tell = [&](StringRef what, int64_t value) {
    entries.set(activationsKey(what, stage), builder.getStringAttr(std::to_string(value)));
  };
  tell(kKeptBytes, kept);
  tell(kAllBytes, withoutMarks);
  tell("recomputed_percent", percent);
  getOperation()->setAttr(attrs::metadata, entries.getDictionary(&getContext()));
}
