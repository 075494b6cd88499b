//===- PipelineStages.cpp - micro-batches through the stages of a pipeline ----------------------------------------===//
// One forward, one backward (1F1B; Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters", 2.2.1): with P
// stages, micro-batch m goes forward through stage s at tick 2 m + s and back at tick 2 m + 2 P - 1 - s, so a stage has at
// most P - s of them under way. Ticks are an order, not a clock: a stage goes on as soon as it has what it needs. Behind
// tick t a stage exchanges with the one behind it where t - s is even, with the one before it where it is odd: what one of
// them has put out forward and the other backward travel at one time. All ranks so agree on one order of their exchanges,
// in which none waits for a later one, whatever queue they stand in.
// ZB-H1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", 2.2) sends a cotangent on before gradients of weights are computed
// (SplitBackward): stage s does so for micro-batch m behind the cotangent of m + s, so that the stages before it wait for fewer of them.
// Where all stages have words of the head (Yeung et al. 2024, "Balancing Pipeline Parallelism with Vocabulary Parallelism"), what it reads of
// micro-batch m goes from the last stage to all behind its tick a = 2 m + P - 1. Behind a + 1 each computes what all need of its logits, behind
// a + 3 their gradients, and what comes of them is awaited behind a + 4: the last stage goes back kHeadDelay turns later than it would, and exchanges
// of all stages travel meanwhile. Forward and backward are no clock: as the latter takes twice as long, a stage comes to a tick later than the one
// behind it, by a third of one, so stage s has its part of the head (P - s) / 3 ticks earlier. All stages still have one order of exchanges: between
// two neighbours of which one is a tick earlier nothing is exchanged at the tick that lies before the head on one of them and behind it on the other.
#include "mlir/IR/IRMapping.h"
#include "passes/Passes.h"
#include "passes/analysis/Mesh.h"
#include "passes/analysis/Tensors.h"
#include "passes/analysis/Timeline.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_PIPELINESTAGESPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

/// Which stage of how many an entry is.
struct StagePlace {
  int64_t stage = 0, stages = 1;
};

StringRef textOf(DictionaryAttr attributes, StringRef name) {
  auto text = attributes ? attributes.getAs<StringAttr>(name) : StringAttr();
  return text ? text.getValue() : StringRef();
}

/// Beside its location an op says whose it is (microBatchOfLocation): an attribute would keep equal ops of two from being one.
Location ofMicroBatch(Location loc, int64_t m) {
  return FusedLoc::get({loc}, Builder(loc.getContext()).getI32IntegerAttr(m), loc.getContext());
}

/// Begins to exchange with a stage: `mine` goes there, a value of type `theirs` comes back; either may be absent. `m`: which micro-batch
/// it is that comes, or goes.
CommStartOp startExchange(OpBuilder &builder, StringRef name, StagePlace at, int64_t other, Value mine, Type theirs,
                          std::optional<int64_t> m) {
  MLIRContext *context = builder.getContext();
  Location loc = NameLoc::get(builder.getStringAttr(name));
  if (m)
    loc = ofMicroBatch(loc, *m);
  NamedAttrList attributes;
  attributes.set("kind", CollectiveKindAttr::get(context, CollectiveKind::shift));
  attributes.set("axis", builder.getStringAttr(stagePair(std::min(at.stage, other), std::max(at.stage, other))));
  attributes.set("label", builder.getStringAttr(name));
  bool first = at.stage < other;
  if (mine && theirs)
    attributes.set("cyclic", builder.getUnitAttr());
  else if (first == !mine) // from the second of the two to the first
    attributes.set("reverse", builder.getUnitAttr());
  SmallVector<Type> results;
  if (theirs)
    results.push_back(theirs);
  SmallVector<Value> inputs;
  if (mine)
    inputs.push_back(mine);
  return CommStartOp::create(builder, loc, TypeRange{FutureType::get(context, results)}, inputs, attributes.getAttrs());
}

Value await(OpBuilder &builder, CommStartOp start) {
  ArrayRef<Type> types = start.getFuture().getType().getResults();
  auto await = CommAwaitOp::create(builder, start.getLoc(), types, start);
  return types.empty() ? Value() : await.getResult(0);
}

/// `name`: the same on all stages, who compare it.
Value sumOverStages(OpBuilder &builder, StringRef name, Value value, StagePlace at) {
  if (at.stages == 1)
    return value;
  auto loc = NameLoc::get(builder.getStringAttr(name));
  auto start = CommStartOp::create(
      builder, loc, TypeRange{FutureType::get(builder.getContext(), {value.getType()})}, value,
      {builder.getNamedAttr("kind", CollectiveKindAttr::get(builder.getContext(), CollectiveKind::all_reduce)),
       builder.getNamedAttr("axis", builder.getStringAttr("pp"))});
  return await(builder, start);
}

//===- A step -----------------------------------------------------------------------------------------------------===//

/// One entry of a micro-batch becomes that of all of them.
class StageEntry {
public:
  StageEntry(func::FuncOp function, StagePlace at, int64_t parts, bool defers)
      : function(function), at(at), parts(parts), defers(defers), body(function.getBody().front()),
        builder(function.getContext()) {}

  LogicalResult run() {
    if (failed(read()))
      return failure();
    divide();
    build();
    return success();
  }

private:
  enum class Kind {
    shared, ///< the same for all micro-batches: weights, coordinates
    rows, ///< this one's rows of a batch
    number, ///< this one's of several numbers
    sum, ///< added to by each, in place
    stageInput,
    cotangent,
    broadcast, ///< what the head reads
  };
  struct Argument {
    Kind kind;
    Value whole; ///< in the new body
  };
  /// A value that goes from one stage to the next, and its cotangent, which comes back.
  struct Boundary {
    std::string name;
    std::optional<unsigned> input, output; ///< argument that comes, result that goes on
    std::optional<unsigned> cotangentInput, cotangentOutput; ///< of the output; of the input
  };

  Boundary &boundary(StringRef name) {
    name.consume_back(".cotangent");
    for (Boundary &known : boundaries)
      if (known.name == name)
        return known;
    return boundaries.emplace_back(Boundary{name.str(), {}, {}, {}, {}});
  }

  LogicalResult read() {
    for (BlockArgument argument : body.getArguments()) {
      unsigned i = argument.getArgNumber();
      DictionaryAttr attributes = function.getArgAttrDict(i);
      StringRef role = textOf(attributes, attrs::role), name = textOf(attributes, attrs::name);
      Kind kind = Kind::shared;
      auto dims = attributes ? attributes.getAs<ArrayAttr>(attrs::dims) : ArrayAttr();
      if (role == kStageInput)
        kind = Kind::stageInput, boundary(name).input = i;
      else if (role == kStageCotangent)
        kind = Kind::cotangent, boundary(name).cotangentInput = i;
      else if (role == kStageBroadcast)
        kind = Kind::broadcast, headInput = i, headName = name;
      else if (role == "gradient")
        kind = Kind::sum;
      else if (role == "input" && dims && !dims.empty() && dims[0] == builder.getStringAttr("batch"))
        kind = Kind::rows;
      else if (role == "input" && name == "aux_scale")
        kind = Kind::number;
      arguments.push_back({kind, {}});
    }
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      DictionaryAttr attributes = function.getResultAttrDict(i);
      StringRef role = textOf(attributes, attrs::role), name = textOf(attributes, attrs::name);
      if (role == kStageOutput)
        boundary(name).output = i;
      else if (role == kStageCotangent)
        boundary(name).cotangentOutput = i;
      else if (role == kStageBroadcast)
        headOutput = i, headName = name;
      else if (role == "output" || (role == "gradient" && function.getResultAttr(i, attrs::alias)))
        continue;
      else
        return function.emitOpError()
               << "has a result '" << name << "' of role \"" << role
               << "\", which micro-batches cannot share; valid: outputs, which are added up, and "
                  "gradients in the place of those that it is given";
    }
    bool isLast = at.stage + 1 == at.stages;
    if (isLast ? headInput.has_value() : headOutput.has_value())
      return function.emitOpError() << "is stage " << at.stage << " of " << at.stages << " (axis pp) and "
                                    << (isLast ? "gets" : "sends") << " what the last one sends to all others";
    for (const Boundary &known : boundaries) {
      // What goes one way and what comes back are one exchange.
      auto differ = [&](std::optional<unsigned> argument, std::optional<unsigned> result) {
        return argument && result && function.getArgumentTypes()[*argument] != function.getResultTypes()[*result];
      };
      if (differ(known.cotangentInput, known.output) || differ(known.input, known.cotangentOutput))
        return function.emitOpError() << "has a '" << known.name << "' whose cotangent is of another type";
      if (bool(known.input) == (at.stage == 0) || bool(known.output) == (at.stage + 1 == at.stages))
        return function.emitOpError() << "is stage " << at.stage << " of " << at.stages << " (axis pp), but its '"
                                      << known.name << "' "
                                      << (known.input ? known.output
                                                            ? "comes from a stage before it and goes to one behind it"
                                                            : "comes from a stage before it and goes to none"
                                                      : "comes from no stage before it");
    }
    return success();
  }

  /// What a micro-batch has to do, in the order in which a stage does it.
  enum class Work {
    ahead, ///< what the next stage waits for
    logits, ///< of this stage's words, and what all stages need of them
    head, ///< the rest of the head, which reads that of all
    gathered, ///< waits for the sum over stages of what it hands back
    back, ///< what the one before waits for; without a cotangent that it waits for, all the rest
    weights, ///< the rest
  };

  void divide() {
    bool sends = false;
    for (const Boundary &known : boundaries) {
      backward |= known.cotangentInput || known.cotangentOutput;
      sends |= known.cotangentOutput.has_value();
      mark(known.output, Work::ahead);
    }
    mark(headOutput, Work::ahead);
    if (headInput || headOutput)
      divideHead(headInput ? Value(body.getArgument(*headInput)) : body.getTerminator()->getOperand(*headOutput));
    defers &= sends;
    if (!defers)
      return;
    for (const Boundary &known : boundaries)
      mark(known.cotangentOutput, Work::back);
  }

  /// What reads this, up to the sum over stages of its cotangent, and what that needs.
  void divideHead(Value input) {
    DenseMap<Value, Work> reads = {{input, Work::logits}};
    for (Operation &op : body.without_terminator()) {
      std::optional<Work> kind;
      op.walk([&](Operation *inner) {
        for (Value operand : inner->getOperands())
          if (auto it = reads.find(operand); it != reads.end())
            kind = std::max(kind.value_or(Work::logits), it->second);
      });
      if (!kind)
        continue;
      // What is awaited first is of all stages' logits, what is awaited of their gradients goes back to layers.
      if (auto await = dyn_cast<CommAwaitOp>(op))
        kind = isCotangent(await) ? Work::gathered : Work::head;
      work[&op] = *kind;
      if (*kind != Work::gathered)
        for (Value result : op.getResults())
          reads[result] = *kind;
      op.walk([&](Operation *inner) {
        for (Value operand : inner->getOperands())
          mark(operand, *kind);
      });
    }
  }

  static bool isCotangent(CommAwaitOp await) {
    auto start = await.getFuture().getDefiningOp<CommStartOp>();
    auto grad = start && !start.getInputs().empty() ? start.getInputs()[0].getDefiningOp<LinearLossPartGradOp>()
                                                    : LinearLossPartGradOp();
    return grad && start.getInputs()[0] == grad.getDx();
  }

  /// What this result needs and nothing before it did.
  void mark(std::optional<unsigned> result, Work kind) {
    if (result)
      mark(body.getTerminator()->getOperand(*result), kind);
  }
  void mark(Value value, Work kind) {
    SmallVector<Value> open = {value};
    while (!open.empty()) {
      Operation *op = open.pop_back_val().getDefiningOp();
      if (!op || !work.try_emplace(op, kind).second)
        continue;
      op->walk([&](Operation *inner) {
        for (Value operand : inner->getOperands())
          if (Operation *def = operand.getDefiningOp(); def && def->getBlock() == &body)
            open.push_back(operand);
      });
    }
  }

  Work workOf(Operation *op) const {
    auto it = work.find(op);
    return it != work.end() ? it->second : defers ? Work::weights : Work::back;
  }

  //===- Building -------------------------------------------------------------------------------------------------===//

  void build() {
    Block *whole = new Block;
    SmallVector<DictionaryAttr> argumentAttrs;
    SmallVector<int64_t> newNumber(arguments.size(), -1);
    for (auto [i, argument] : llvm::enumerate(arguments)) {
      if (argument.kind == Kind::stageInput || argument.kind == Kind::cotangent || argument.kind == Kind::broadcast)
        continue;
      auto type = cast<RankedTensorType>(body.getArgument(i).getType());
      if (argument.kind == Kind::rows || argument.kind == Kind::number)
        type = withDim(type, 0, type.getDimSize(0) * parts);
      newNumber[i] = whole->getNumArguments();
      argument.whole = whole->addArgument(type, body.getArgument(i).getLoc());
      argumentAttrs.push_back(function.getArgAttrDict(i));
    }
    function.getBody().push_back(whole);
    builder.setInsertionPointToStart(whole);

    for (int64_t m = 0; m < parts; ++m)
      maps.push_back(begin(m));
    // Behind as many cotangents as there are stages before this one.
    int64_t late = defers ? at.stage : 0, weighted = 0;
    int64_t last = backward ? 2 * (parts + at.stages + delay()) - 3 : 2 * (parts - 1 + delay()) + at.stages - 1;
    for (int64_t tick = 0; tick <= last; ++tick) {
      for (auto [start, place] : std::exchange(coming, {}))
        maps[place.first].map(body.getArgument(place.second), await(builder, start));
      bool ahead = (tick - at.stage) % 2 == 0;
      std::optional<int64_t> part = ahead ? forwardAt(tick, at.stage) : backwardAt(tick, at.stage);
      if (part && !backward)
        emit(*part, {Work::ahead, Work::back});
      else if (part)
        emit(*part, ahead ? Work::ahead : Work::back);
      for (CommStartOp start : std::exchange(going, {}))
        (void)await(builder, start);
      exchange(tick, part, ahead);
      if (headInput || headOutput)
        goThroughHead(tick);
      if (defers && !ahead && part && *part >= late)
        emit(weighted++, Work::weights);
    }
    // What the last exchanges have sent.
    for (CommStartOp start : std::exchange(going, {}))
      (void)await(builder, start);
    while (defers && weighted < parts)
      emit(weighted++, Work::weights);

    SmallVector<Value> results;
    SmallVector<DictionaryAttr> resultAttrs;
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      DictionaryAttr attributes = function.getResultAttrDict(i);
      StringRef role = textOf(attributes, attrs::role);
      if (role == kStageOutput || role == kStageCotangent || role == kStageBroadcast)
        continue;
      NamedAttrList list(attributes);
      auto alias = attributes.getAs<IntegerAttr>(attrs::alias);
      if (alias)
        list.set(attrs::alias, builder.getI64IntegerAttr(newNumber[alias.getInt()]));
      results.push_back(alias ? arguments[alias.getInt()].whole : output(i));
      resultAttrs.push_back(list.getDictionary(function.getContext()));
    }
    func::ReturnOp::create(builder, function.getLoc(), results);
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body))) {
      op.dropAllUses();
      op.erase();
    }
    body.erase();
    function.setFunctionType(builder.getFunctionType(whole->getArgumentTypes(), ValueRange(results).getTypes()));
    function.setAllArgAttrs(argumentAttrs);
    function.setAllResultAttrs(resultAttrs);
  }

  IRMapping begin(int64_t m) {
    IRMapping map;
    for (auto [i, argument] : llvm::enumerate(arguments)) {
      BlockArgument old = body.getArgument(i);
      if (argument.kind == Kind::shared)
        map.map(old, argument.whole);
      if (argument.kind != Kind::rows && argument.kind != Kind::number)
        continue;
      auto type = cast<RankedTensorType>(old.getType());
      map.map(
          old,
          parts == 1
              ? argument.whole
              : SliceOp::create(builder, old.getLoc(), type, argument.whole, 0, m * type.getDimSize(0)).getResult());
    }
    return map;
  }

  std::optional<int64_t> partOf(int64_t doubled) const {
    return doubled >= 0 && doubled % 2 == 0 && doubled / 2 < parts ? std::optional(doubled / 2) : std::nullopt;
  }
  std::optional<int64_t> forwardAt(int64_t tick, int64_t stage) const { return partOf(tick - stage); }
  std::optional<int64_t> backwardAt(int64_t tick, int64_t stage) const {
    return backward ? partOf(tick + 1 + stage - 2 * (at.stages + delay())) : std::nullopt;
  }
  int64_t delay() const { return headInput || headOutput ? kHeadDelay : 0; }

  void emit(int64_t m, ArrayRef<Work> kinds) {
    IRMapping &map = maps[m];
    for (auto [i, argument] : llvm::enumerate(arguments))
      if (argument.kind == Kind::sum)
        map.map(body.getArgument(i), argument.whole);
    for (Operation &op : body.without_terminator())
      if (llvm::is_contained(kinds, workOf(&op)))
        builder.clone(op, map)->walk([&](Operation *copy) {
          copy->setLoc(ofMicroBatch(copy->getLoc(), m));
          for (Region &region : copy->getRegions())
            for (BlockArgument argument : region.getArguments())
              argument.setLoc(ofMicroBatch(argument.getLoc(), m));
        });
    // What is added to is what the next micro-batch adds to.
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      Value value = body.getTerminator()->getOperand(i);
      auto alias = function.getResultAttrOfType<IntegerAttr>(i, attrs::alias);
      if (alias && value.getDefiningOp() && llvm::is_contained(kinds, workOf(value.getDefiningOp())))
        arguments[alias.getInt()].whole = map.lookup(value);
    }
  }

  Value of(int64_t m, unsigned result) { return maps[m].lookup(body.getTerminator()->getOperand(result)); }

  /// Behind a tick: with the stage behind this one after a forward, else with the one before it.
  void exchange(int64_t tick, std::optional<int64_t> own, bool ahead) {
    int64_t other = ahead ? at.stage + 1 : at.stage - 1;
    if (other < 0 || other == at.stages)
      return;
    std::optional<int64_t> theirs = ahead ? backwardAt(tick, other) : forwardAt(tick, other);
    for (const Boundary &value : boundaries) {
      std::optional<unsigned> sent = ahead ? value.output : value.cotangentOutput,
                              received = ahead ? value.cotangentInput : value.input;
      Value mine = own && sent ? of(*own, *sent) : Value();
      Type type = theirs && received ? body.getArgument(*received).getType() : Type();
      if (!mine && !type)
        continue;
      CommStartOp start = startExchange(builder, value.name, at, other, mine, type, type ? theirs : own);
      if (type)
        coming.push_back({start, {*theirs, *received}});
      else
        going.push_back(start);
    }
  }

  /// Behind a tick: what the head has to do that all stages have words of.
  void goThroughHead(int64_t tick) {
    int64_t early = (at.stages - at.stage) / 3;
    auto behind = [&](int64_t ticks) { return partOf(tick + early - ticks - (at.stages - 1)); };
    for (CommStartOp start : std::exchange(sent, {}))
      (void)await(builder, start);
    if (std::optional<int64_t> m = behind(0); m && headInput)
      comes = startExchange(builder, headName, at, at.stages - 1, Value(), body.getArgument(*headInput).getType(), m);
    else if (m)
      for (int64_t other = 0; other + 1 < at.stages; ++other)
        sent.push_back(startExchange(builder, headName, at, other, of(*m, *headOutput), Type(), m));
    // What the last stage will wait for, before what a later micro-batch begins.
    std::optional<int64_t> begun = behind(1);
    if (begun && headInput)
      maps[*begun].map(body.getArgument(*headInput), await(builder, comes));
    if (std::optional<int64_t> m = behind(3))
      emit(*m, Work::head);
    if (begun)
      emit(*begun, Work::logits);
    if (std::optional<int64_t> m = behind(4))
      emit(*m, Work::gathered);
  }

  /// A result of the host: the sum over micro-batches and stages. Where each is a sum over ranks, there is one of all.
  Value output(unsigned i) {
    Value one = body.getTerminator()->getOperand(i);
    SmallVector<CommStartOp> sums; // the last first
    for (auto end = one.getDefiningOp<CommAwaitOp>(); end && end->hasOneUse(); end = one.getDefiningOp<CommAwaitOp>()) {
      auto start = end.getFuture().getDefiningOp<CommStartOp>();
      if (start.getKind() != CollectiveKind::all_reduce || start->getBlock() != &body || !start->hasOneUse())
        break;
      sums.push_back(start);
      one = start.getInputs()[0];
    }
    Location loc = body.getTerminator()->getOperand(i).getLoc();
    Value sum;
    for (IRMapping &map : maps)
      sum = sum ? addTo(sum, map.lookup(one), loc) : map.lookup(one);
    for (CommStartOp over : llvm::reverse(sums)) {
      IRMapping map;
      map.map(over.getInputs()[0], sum);
      sum = await(builder, cast<CommStartOp>(builder.clone(*over, map)));
    }
    // Those of the micro-batches are read by nobody.
    for (CommStartOp over : sums)
      for (IRMapping &map : maps)
        if (Operation *start = map.lookup(over.getFuture()).getDefiningOp()) {
          start->getResult(0).user_begin()->erase();
          start->erase();
        }
    return sumOverStages(builder, textOf(function.getResultAttrDict(i), attrs::name), sum, at);
  }

  /// The sum as soon as there is this part of it: no kernel reads those of all micro-batches, and none lives to the end.
  static Value addTo(Value sum, Value part, Location loc) {
    Operation *before = sum.getDefiningOp(), *own = part.getDefiningOp();
    OpBuilder builder(part.getContext());
    builder.setInsertionPointAfterValue(before && (!own || !before->isBeforeInBlock(own)) ? sum : part);
    return AddOp::create(builder, loc, sum.getType(), ValueRange{sum, part});
  }

  func::FuncOp function;
  StagePlace at;
  int64_t parts;
  bool defers; ///< gradients of weights, where the backward was split
  Block &body;
  OpBuilder builder;
  std::vector<Argument> arguments;
  SmallVector<Boundary> boundaries;
  std::optional<unsigned> headInput, headOutput; ///< argument of another stage than the last, result of that
  StringRef headName;
  DenseMap<Operation *, Work> work; ///< of those that another stage waits for
  bool backward = false;
  std::vector<IRMapping> maps; ///< of each micro-batch
  std::vector<std::pair<CommStartOp, std::pair<int64_t, unsigned>>>
      coming; ///< awaited in front of the next tick, for an argument of a micro-batch
  SmallVector<CommStartOp> going; ///< awaited behind it
  SmallVector<CommStartOp> sent; ///< to the head of other stages, awaited behind it
  CommStartOp comes; ///< from the last stage, for the head
};

//===- The update -------------------------------------------------------------------------------------------------===//

/// Names of parameters, with their layers, and the stages that have them whole.
using Owners = llvm::MapVector<std::pair<Attribute, Attribute>, SmallVector<int64_t, 2>>;

/// What is updated, of which a rank may update a part; none: it is no argument.
BlockArgument parameterOf(AdamwOp update) {
  Value parameter = update.getParameter();
  while (auto part = parameter.getDefiningOp<ShardOp>())
    parameter = part->getOperand(0);
  return dyn_cast<BlockArgument>(parameter);
}

std::pair<Attribute, Attribute> nameOf(func::FuncOp function, BlockArgument parameter) {
  if (!parameter)
    return {};
  unsigned i = parameter.getArgNumber();
  return {function.getArgAttr(i, attrs::name), function.getArgAttr(i, attrs::layers)};
}

/// Whether each stage has its own part of it.
bool isAcrossStages(func::FuncOp function, BlockArgument parameter) {
  auto shards = parameter ? function.getArgAttrOfType<ArrayAttr>(parameter.getArgNumber(), attrs::shards) : ArrayAttr();
  return shards && llvm::any_of(shards.getAsRange<ArrayAttr>(), [](ArrayAttr shard) {
           return llvm::is_contained(llvm::split(cast<StringAttr>(shard[1]).getValue(), '*'), "pp");
         });
}

/// A weight that several stages have (a table that embeds tokens and is the head, a block of layers on them) has one
/// gradient, the sum of all: the same bits on each, in the order of stages. Every two of them exchange theirs; all stages
/// have such weights in one order, and go through the others in that of stages, so that none waits in a circle.
void shareGradient(AdamwOp update, StagePlace at, ArrayRef<int64_t> owners) {
  bool first = at.stage == owners[0];
  Value own = update.getGradient();
  OpBuilder builder(update.getContext());
  builder.setInsertionPointAfterValue(own);
  SmallVector<Value> all;
  for (int64_t owner : owners)
    all.push_back(owner == at.stage
                      ? own
                      : await(builder, startExchange(builder, "stage.gradient", at, owner, own, own.getType(), {})));
  auto sum = AddOp::create(builder, own.getLoc(), own.getType(), all);
  // The norm counts it once.
  own.replaceUsesWithIf(
      sum, [&](OpOperand &use) { return use.getOwner() == update || (first && isa<SumSquaresOp>(use.getOwner())); });
  if (first)
    return;
  for (Operation *user : llvm::make_early_inc_range(own.getUsers())) {
    auto squares = dyn_cast<SumSquaresOp>(user);
    if (!squares)
      continue;
    for (unsigned i = squares->getNumOperands(); i-- > 0;)
      if (squares->getOperand(i) == own)
        squares->eraseOperand(i);
    if (squares->getNumOperands())
      continue;
    builder.setInsertionPoint(squares);
    Type type = squares.getResult().getType();
    squares.getResult().replaceAllUsesWith(
        arith::ConstantOp::create(builder, squares.getLoc(), cast<TypedAttr>(builder.getZeroAttr(type))));
    squares.erase();
  }
}

/// The norm is that of all stages' gradients.
void joinUpdate(func::FuncOp function, StagePlace at, const Owners &owners) {
  Block &body = function.getBody().front();
  OpBuilder builder(function.getContext());
  for (AdamwOp update : llvm::to_vector(body.getOps<AdamwOp>()))
    if (const auto *known = owners.find(nameOf(function, parameterOf(update)));
        known != owners.end() && known->second.size() > 1)
      shareGradient(update, at, known->second);
  for (ClipScaleOp clip : body.getOps<ClipScaleOp>()) {
    builder.setInsertionPoint(clip);
    clip->setOperand(0, sumOverStages(builder, "grad_norm", clip->getOperand(0), at));
  }
}

class PipelineStagesPass : public braid::impl::PipelineStagesPassBase<PipelineStagesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    int64_t stages = std::max<int64_t>(Mesh::of(module).size("pp"), 1);
    Owners owners;
    for (auto function : module.getOps<func::FuncOp>())
      if (std::optional<int64_t> stage = stageOf(function))
        for (AdamwOp update : function.getBody().front().getOps<AdamwOp>())
          if (BlockArgument parameter = parameterOf(update); !isAcrossStages(function, parameter))
            owners[nameOf(function, parameter)].push_back(*stage);
    for (auto function : module.getOps<func::FuncOp>()) {
      std::optional<int64_t> stage = stageOf(function);
      // What trains without stages would do the same on all ranks of pp.
      bool trains = function->hasAttr(attrs::entry) && !function.getBody().front().getOps<AdamwOp>().empty();
      if (stage ? stages == 1 || *stage >= stages : stages > 1 && trains) {
        function.emitOpError() << (stage ? "is of stage " + std::to_string(*stage) : "trains, is of no stage")
                               << ", but pp is " << stages
                               << " in the mesh (--mesh); valid: stages 0 to pp - 1 where pp is 2 or more, as a model "
                                  "description gets them that is compiled for such a mesh";
        return signalPassFailure();
      }
      StagePlace at{stage.value_or(0), stages};
      if (auto parts = function->getAttrOfType<IntegerAttr>(attrs::microBatches)) {
        bool zeroBubble = isZeroBubble(function);
        function->removeAttr(attrs::microBatches);
        function->removeAttr(attrs::stageOrder);
        if (failed(StageEntry(function, at, parts.getInt(), zeroBubble).run()))
          return signalPassFailure();
      } else if (stage) {
        joinUpdate(function, at, owners);
      }
    }
  }
};

} // namespace
