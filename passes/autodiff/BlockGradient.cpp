//===- BlockGradient.cpp - reverse mode over blocks, repeats and layer functions ----------------------------------===//
#include "passes/autodiff/BlockGradient.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "passes/analysis/Tensors.h"
#include "passes/autodiff/Recompute.h"
#include "passes/outline/RowsCluster.h"

using namespace mlir;
using namespace braid;

//===- Activity ---------------------------------------------------------------------------------------------------===//

bool Activity::mark(Value v) {
  auto type = dyn_cast<RankedTensorType>(v.getType());
  return type && isa<FloatType>(type.getElementType()) && active.insert(v).second;
}

bool Activity::visit(Operation &op) {
  bool changed = false;
  if (auto repeat = dyn_cast<RepeatOp>(op)) {
    Block &body = repeat.getBody().front();
    auto yield = cast<YieldOp>(body.getTerminator());
    for (auto [input, argument] : llvm::zip_equal(repeat.getInputs(), body.getArguments()))
      if (isActive(input))
        changed |= mark(argument);
    analyze(body);
    for (auto [i, value, result] : llvm::enumerate(yield.getValues(), repeat.getResults()))
      if (isActive(value)) {
        changed |= mark(result);
        if (i < repeat.getCarried() && mark(body.getArgument(i)))
          changed = true;
      }
    return changed;
  }
  if (auto call = dyn_cast<func::CallOp>(op)) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    Activity inner(symbols);
    for (auto [operand, argument] : llvm::zip_equal(call.getOperands(), callee.getArguments()))
      if (isActive(operand))
        inner.mark(argument);
    inner.analyze(callee.getBody().front());
    Operation *terminator = callee.getBody().front().getTerminator();
    for (auto [value, result] : llvm::zip_equal(terminator->getOperands(), call.getResults()))
      if (inner.isActive(value))
        changed |= mark(result);
    return changed;
  }
  // Integers (routes, plans, counts) end the path; a number made of trained values by an op that has no gradient does
  // not, so that a loss that needs it is refused instead of losing a part of its gradient.
  if (llvm::any_of(op.getOperands(), [&](Value v) { return isActive(v); }))
    for (Value result : op.getResults())
      if (isa<DifferentiableOpInterface>(op) || isa<FloatType>(getElementTypeOrSelf(result.getType())))
        changed |= mark(result);
  return changed;
}

void Activity::analyze(Block &block) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation &op : block)
      changed |= visit(op);
  }
}

//===- Names ------------------------------------------------------------------------------------------------------===//

/// What belongs to the backward of `norm1` is called `norm1.grad`.
static Location gradientLoc(Location forward) {
  auto named = dyn_cast<NameLoc>(forward);
  if (!named || named.getName().getValue().ends_with(".grad"))
    return forward;
  return NameLoc::get(StringAttr::get(forward.getContext(), named.getName().getValue() + ".grad"), named.getChildLoc());
}

//===- Cotangents -------------------------------------------------------------------------------------------------===//

void BlockGradient::add(Value forward, Value cotangent) {
  if (!activity.isActive(forward))
    return;
  SmallVector<Value> &parts = cotangents[forward];
  // What several layers read (a block that they share, the embedding) has a sum that grows in place, the last use first:
  // parts of all would be in memory together, and kernels follow their number. What is rounded is so once, at the end,
  // and what came from outside stays as it is.
  bool isRounded = getElementTypeOrSelf(cotangent.getType()).getIntOrFloatBitWidth() < 32,
       grows = !outer && parts.size() == 1 && !isa<BlockArgument>(parts[0]);
  if (isRounded || !grows) {
    parts.push_back(cotangent);
    return;
  }
  auto sum =
      AddOp::create(backward, gradientLoc(forward.getLoc()), cotangent.getType(), ValueRange{parts[0], cotangent});
  sum->setAttr(kInPlaceAttr, backward.getUnitAttr());
  parts.assign({sum});
}

Type BlockGradient::gradientElement(Type weight) {
  if (weight.isF64() || (weight.isBF16() && state.bf16Gradients))
    return weight;
  return Float32Type::get(weight.getContext());
}

/// Contributions arrive last use first; they are summed in order of use in the forward, once (phases-by-example D8).
Value BlockGradient::cotangent(Value forward) {
  auto it = cotangents.find(forward);
  if (it == cotangents.end())
    return {};
  SmallVector<Value> &parts = it->second;
  if (parts.size() > 1) {
    SmallVector<Value> ordered(llvm::reverse(parts));
    Value sum = AddOp::create(backward, gradientLoc(forward.getLoc()), parts[0].getType(), ordered);
    parts.assign({sum});
  }
  return parts[0];
}

static Value zeroLike(OpBuilder &builder, Location loc, Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return arith::ConstantOp::create(builder, loc, cast<TypedAttr>(builder.getZeroAttr(tensor)));
}

Value BlockGradient::cotangentOrZero(Value forward) {
  if (Value value = cotangent(forward))
    return value;
  return zeroLike(backward, gradientLoc(forward.getLoc()), forward.getType());
}

static bool isWidening(CastOp cast) {
  Type from = getElementTypeOrSelf(cast.getX().getType()), to = getElementTypeOrSelf(cast.getType());
  return isa<FloatType>(from) && isa<FloatType>(to) && from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth();
}

Value BlockGradient::saved(Value forward) {
  if (Value known = imported.lookup(forward))
    return known;
  Value value;
  Operation *def = forward.getDefiningOp();
  if (def && def->hasTrait<OpTrait::ConstantLike>()) {
    value = backward.clone(*def)->getResult(0);
  } else if (auto reshape = dyn_cast_or_null<ReshapeOp>(def); reshape && ownsValue(forward) && outer) {
    // A view is rebuilt, not saved beside its source.
    value = ReshapeOp::create(backward, reshape.getLoc(), reshape.getType(), saved(reshape.getSource()));
  } else if (auto cast = dyn_cast_or_null<CastOp>(def); cast && isWidening(cast) && ownsValue(forward) && outer) {
    // So is an exact copy in a wider type.
    value = CastOp::create(backward, cast.getLoc(), cast.getType(), saved(cast.getX()));
  } else if (!ownsValue(forward)) {
    value = outer->saved(forward);
  } else {
    value = importValue(forward);
  }
  imported[forward] = value;
  return value;
}

LogicalResult BlockGradient::run() {
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    bool needed = llvm::any_of(op->getResults(), [&](Value v) { return cotangents.contains(v); });
    if (!needed)
      continue;
    if (auto repeat = dyn_cast<RepeatOp>(op)) {
      if (failed(differentiateRepeat(repeat)))
        return failure();
    } else if (auto call = dyn_cast<func::CallOp>(op)) {
      if (failed(differentiateCall(call)))
        return failure();
    } else if (auto differentiable = dyn_cast<DifferentiableOpInterface>(op)) {
      Block &target = *backward.getInsertionBlock();
      Operation *last = target.empty() ? nullptr : &target.back();
      if (failed(differentiable.buildGradient(*this)))
        return failure();
      for (Operation &built : llvm::make_range(last ? std::next(last->getIterator()) : target.begin(), target.end()))
        if (built.getLoc() == op->getLoc())
          built.setLoc(gradientLoc(op->getLoc()));
    } else {
      return op->emitOpError() << "is needed by the loss but has no gradient";
    }
  }
  return success();
}

/// A block that has no parent yet cannot tell its context.
static OpBuilder atEnd(Block *block, MLIRContext *context) {
  OpBuilder builder(context);
  builder.setInsertionPointToEnd(block);
  return builder;
}

//===- Repeat -----------------------------------------------------------------------------------------------------===//

namespace {
/// The body of a repeat: values of it reach the backward stacked.
class BodyGradient : public BlockGradient {
public:
  BodyGradient(GradientState &state, Activity &activity, RepeatOp repeat, Block &target, BlockGradient *outer)
      : BlockGradient(state, activity, repeat.getBody().front(), atEnd(&target, repeat.getContext()), outer),
        repeat(repeat), target(target) {}

  RepeatOp repeat;
  Block &target;
  SmallVector<Value> extraYields; ///< values of the body, one more stacked result of the forward each
  SmallVector<Value> stackedInputs; ///< operands of the backward: known now, or null = the next extra yield

protected:
  bool ownsValue(Value forward) override { return repeat.getBody().isAncestor(forward.getParentRegion()); }
  Value importValue(Value forward) override {
    Value argument = target.addArgument(forward.getType(), forward.getLoc());
    auto parameter = dyn_cast<BlockArgument>(forward);
    if (parameter && parameter.getArgNumber() >= repeat.getCarried()) {
      stackedInputs.push_back(outer->saved(repeat.getInputs()[parameter.getArgNumber()]));
    } else {
      stackedInputs.push_back({});
      extraYields.push_back(forward);
    }
    return argument;
  }
};
} // namespace

LogicalResult BlockGradient::differentiateRepeat(RepeatOp repeat) {
  Location loc = repeat.getLoc();
  Block &body = repeat.getBody().front();
  int64_t count = repeat.getCount(), carried = repeat.getCarried();
  auto yield = cast<YieldOp>(body.getTerminator());
  WalkResult captures = repeat.walk([&](Operation *op) {
    for (Value operand : op->getOperands())
      if (!repeat.getBody().isAncestor(operand.getParentRegion()) && op != repeat && wanted(operand)) {
        InFlightDiagnostic diagnostic = op->emitOpError() << "uses a trained value from outside of its repeat";
        diagnostic.attachNote(operand.getLoc()) << "pass it as a stacked input";
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  if (captures.wasInterrupted())
    return failure();

  // The backward body: cotangents of the active carried values, cotangents of stacked results, then saved values.
  Region region;
  Block &target = region.emplaceBlock();
  BodyGradient inner(state, activity, repeat, target, this);
  SmallVector<Value> inputs;
  SmallVector<int64_t> activeCarried;
  for (int64_t i = 0; i < carried; ++i) {
    if (!wanted(body.getArgument(i)) && !wanted(yield.getValues()[i]))
      continue;
    activeCarried.push_back(i);
    inputs.push_back(cotangentOrZero(repeat.getResult(i)));
    Value value = yield.getValues()[i];
    inner.add(value, target.addArgument(value.getType(), gradientLoc(value.getLoc())));
  }
  for (int64_t i = carried, e = repeat.getNumResults(); i < e; ++i)
    if (Value d = cotangent(repeat.getResult(i))) {
      inputs.push_back(d);
      Value value = yield.getValues()[i];
      inner.add(value, target.addArgument(value.getType(), gradientLoc(value.getLoc())));
    }
  if (failed(inner.run()))
    return failure();

  SmallVector<Value> yields;
  SmallVector<Type> types;
  for (int64_t i : activeCarried) {
    Value d = inner.cotangentOrZero(body.getArgument(i));
    yields.push_back(d);
    types.push_back(d.getType());
  }
  SmallVector<Value> wantedInputs;
  for (int64_t i = carried, e = body.getNumArguments(); i < e; ++i)
    if (Value d = inner.cotangent(body.getArgument(i))) {
      wantedInputs.push_back(repeat.getInputs()[i]);
      yields.push_back(d);
      types.push_back(stackedType(count, d.getType()));
    }
  YieldOp::create(inner.builder(), loc, yields);

  // The forward, with what the backward needs as additional stacked results. Inner layers may have replaced ops of the
  // body (calls with more results): extraYields are uses, kept up to date through the new yield.
  RepeatOp forward = repeat;
  if (!inner.extraYields.empty()) {
    OpBuilder builder(repeat);
    SmallVector<Value> all(yield.getValues());
    SmallVector<Type> resultTypes(repeat.getResultTypes());
    for (Value old : inner.extraYields) {
      Value extra = inner.replaced(old);
      all.push_back(extra);
      resultTypes.push_back(stackedType(count, extra.getType()));
    }
    forward = RepeatOp::create(builder, loc, resultTypes, repeat.getInputs(), repeat.getCount(), repeat.getCarried(),
                               repeat.getReverse());
    forward->setDiscardableAttrs(repeat->getDiscardableAttrDictionary());
    forward.getBody().takeBody(repeat.getBody());
    yield->setOperands(all);
    replaceForward(repeat, forward->getResults().take_front(repeat.getNumResults()));
    state.retire(repeat);
  }
  unsigned next = forward.getNumResults() - inner.extraYields.size();
  for (Value stacked : inner.stackedInputs)
    inputs.push_back(stacked ? stacked : saved(forward.getResult(next++)));
  auto grad =
      RepeatOp::create(backward, gradientLoc(loc), types, inputs, count, activeCarried.size(), !forward.getReverse());
  grad.getBody().takeBody(region);
  for (auto [n, i] : llvm::enumerate(activeCarried))
    add(forward.getInputs()[i], grad.getResult(n));
  for (auto [n, input] : llvm::enumerate(wantedInputs))
    add(input, grad.getResult(activeCarried.size() + n));
  return success();
}

//===- Layer functions --------------------------------------------------------------------------------------------===//

namespace {
/// A layer function: arguments that the backward needs come from the caller, other values as extra results.
class LayerGradient : public BlockGradient {
public:
  LayerGradient(GradientState &state, Activity &activity, func::FuncOp forward, Block &target)
      : BlockGradient(state, activity, forward.getBody().front(), atEnd(&target, forward.getContext()), nullptr),
        target(target) {
    outer = this; // a layer has no surroundings; views may still be rebuilt
    // Gradient ops copy the attributes of their forward: the marks must not be among them.
    for (Operation &op : block)
      if (op.removeAttr(kRecomputeAttr))
        marked.insert(&op);
  }
  Block &target;
  llvm::DenseSet<Operation *> marked; ///< forward ops that are executed again
  SmallVector<Value> needed; ///< forward values behind the target's arguments; null: made again instead

  /// Executes marked forward ops again, in front of the backward. `first`: the target's argument of needed[0].
  void remakeMarked(unsigned first);

protected:
  Value importValue(Value forward) override {
    needed.push_back(forward);
    return target.addArgument(forward.getType(), forward.getLoc());
  }
};
} // namespace

void LayerGradient::remakeMarked(unsigned first) {
  DenseMap<Value, Value> made; // forward value -> its twin in the backward
  for (auto [n, value] : llvm::enumerate(needed))
    made[value] = target.getArgument(first + n);
  auto isMarked = [&](Value value) { return marked.contains(value.getDefiningOp()); };
  SmallVector<unsigned> replacedArguments;
  for (auto [n, value] : llvm::enumerate(needed))
    if (isMarked(value)) {
      made.erase(value);
      replacedArguments.push_back(n);
    }
  OpBuilder front(backward.getContext());
  front.setInsertionPointToStart(&target);
  SmallVector<Operation *> copies;
  // Forward order: operands come before their users, and only what is asked for is copied.
  llvm::DenseSet<Operation *> asked;
  SmallVector<Value> open;
  for (unsigned n : replacedArguments)
    open.push_back(needed[n]);
  while (!open.empty()) {
    Value value = open.pop_back_val();
    Operation *op = value.getDefiningOp();
    bool copied = op && (op->hasTrait<OpTrait::ConstantLike>() || isMarked(value));
    if (copied) {
      if (asked.insert(op).second)
        llvm::append_range(open, op->getOperands());
    } else if (!made.contains(value)) {
      made[value] = importValue(value);
    }
  }
  for (Operation &op : block) {
    if (!asked.contains(&op))
      continue;
    IRMapping map;
    for (Value operand : op.getOperands())
      map.map(operand, made.lookup(operand));
    Operation *copy = front.clone(op, map);
    copies.push_back(copy);
    for (auto [from, to] : llvm::zip_equal(op.getResults(), copy->getResults()))
      made[from] = to;
  }
  for (unsigned n : replacedArguments) {
    target.getArgument(first + n).replaceAllUsesWith(made.lookup(needed[n]));
    needed[n] = {};
  }
  // As late as possible: what only the mixer's backward reads is not alive during the feed-forward's.
  for (Operation *copy : llvm::reverse(copies)) {
    Operation *user = nullptr;
    for (Operation *candidate : copy->getUsers())
      if (!user || candidate->isBeforeInBlock(user))
        user = candidate;
    if (user)
      copy->moveBefore(user);
  }
}

/// Results of a call that carry cotangents, and arguments whose cotangents somebody wants.
FailureOr<SmallVector<Value>> braid::readByGradient(func::CallOp call, Activity &activity, SymbolTable &symbols) {
  auto layer = symbols.lookup<func::FuncOp>(call.getCallee());
  Block &body = layer.getBody().front();
  if (llvm::any_of(body, [](Operation &op) { return isa<func::CallOp, RepeatOp>(op); }))
    return SmallVector<Value>();
  GradientState state{layer->getParentOfType<ModuleOp>(), symbols, {}, {}};
  Activity inner(symbols);
  for (auto [operand, argument] : llvm::zip_equal(call.getOperands(), body.getArguments()))
    if (activity.isActive(operand))
      inner.mark(argument);
  inner.analyze(body);
  Region region;
  Block &target = region.emplaceBlock();
  LayerGradient gradient(state, inner, layer, target);
  for (auto [result, value] : llvm::zip_equal(call.getResults(), body.getTerminator()->getOperands()))
    if (activity.isActive(result) && !result.use_empty())
      gradient.add(value, target.addArgument(value.getType(), value.getLoc()));
  if (failed(gradient.run()))
    return failure();
  return std::move(gradient.needed);
}

FailureOr<FunctionGradient *> BlockGradient::functionGradient(func::CallOp call) {
  auto callee = state.symbols.lookup<func::FuncOp>(call.getCallee());
  SmallVector<unsigned> cotangentResults, wantedArguments;
  std::string key = call.getCallee().str() + "/";
  for (auto [i, result] : llvm::enumerate(call.getResults()))
    if (cotangents.contains(result)) {
      cotangentResults.push_back(i);
      key += std::to_string(i) + ",";
    }
  key += "/";
  for (auto [i, operand] : llvm::enumerate(call.getOperands()))
    if (wanted(operand)) {
      wantedArguments.push_back(i);
      key += std::to_string(i) + ",";
    }
  auto [it, isNew] = state.functions.try_emplace(key);
  FunctionGradient &gradient = it->second;
  if (!isNew)
    return &gradient;

  gradient.cotangentResults = cotangentResults;
  gradient.forward = callee.clone();
  gradient.forward.setName((callee.getName() + "_train").str());
  OpBuilder atCallee(callee);
  state.symbols.insert(gradient.forward, std::next(callee->getIterator()));
  Block &body = gradient.forward.getBody().front();
  Activity inner(state.symbols);
  for (unsigned i : wantedArguments)
    inner.mark(body.getArgument(i));
  inner.analyze(body);

  Region region;
  Block &target = region.emplaceBlock();
  LayerGradient layer(state, inner, gradient.forward, target);
  // Cotangents first while building; the final order is needed values, then cotangents.
  Operation *terminator = body.getTerminator();
  for (unsigned i : cotangentResults) {
    Value result = terminator->getOperand(i);
    layer.add(result, target.addArgument(result.getType(), gradientLoc(result.getLoc())));
  }
  if (failed(layer.run()))
    return failure();

  SmallVector<Value> results;
  for (unsigned i : wantedArguments)
    if (Value d = layer.cotangent(body.getArgument(i))) {
      gradient.wantedArguments.push_back(i);
      results.push_back(d);
    }
  func::ReturnOp::create(layer.builder(), callee.getLoc(), results);
  unsigned first = cotangentResults.size();
  layer.remakeMarked(first);

  // Split what is needed into arguments of the forward and values inside it.
  SmallVector<unsigned> order;
  SmallVector<Value> extra;
  for (auto [n, value] : llvm::enumerate(layer.needed))
    if (auto argument = dyn_cast_or_null<BlockArgument>(value)) {
      gradient.neededArguments.push_back(argument.getArgNumber());
      order.push_back(first + n);
    }
  for (auto [n, value] : llvm::enumerate(layer.needed))
    if (value && !isa<BlockArgument>(value)) {
      extra.push_back(layer.replaced(value));
      order.push_back(first + n);
    }
  gradient.numSaved = extra.size();
  for (unsigned i = 0; i < first; ++i)
    order.push_back(i);

  SmallVector<Value> returns(terminator->getOperands());
  llvm::append_range(returns, extra);
  terminator->setOperands(returns);
  gradient.forward.setFunctionType(atCallee.getFunctionType(body.getArgumentTypes(), ValueRange(returns).getTypes()));

  // Reorder the block's arguments: new ones behind, then the old ones go.
  unsigned old = target.getNumArguments();
  for (unsigned i : order) {
    BlockArgument argument = target.getArgument(i);
    argument.replaceAllUsesWith(target.addArgument(argument.getType(), argument.getLoc()));
  }
  target.eraseArguments(0, old);
  gradient.backward = func::FuncOp::create(
      atCallee, callee.getLoc(), (callee.getName() + "_grad").str(),
      atCallee.getFunctionType(target.getArgumentTypes(), target.getTerminator()->getOperandTypes()));
  gradient.backward.setPrivate();
  StringRef unique = gradient.forward.getName().drop_front((callee.getName() + "_train").str().size());
  StringAttr pair = atCallee.getStringAttr(callee.getName() + unique);
  gradient.forward->setAttr(kLayerAttr, pair);
  gradient.backward->setAttr(kLayerAttr, pair);
  gradient.forward->setAttr(kDirectionAttr, StringAttr::get(pair.getContext(), "forward"));
  gradient.backward->setAttr(kDirectionAttr, StringAttr::get(pair.getContext(), "backward"));
  if (Attribute degree = callee->getAttr(attrs::overlapDegree)) // cut as the forward is
    gradient.backward->setAttr(attrs::overlapDegree, degree);
  gradient.backward.getBody().takeBody(region);
  gradient.backward->remove();
  state.symbols.insert(gradient.backward, std::next(gradient.forward->getIterator()));
  return &gradient;
}

LogicalResult BlockGradient::differentiateCall(func::CallOp call) {
  FailureOr<FunctionGradient *> found = functionGradient(call);
  if (failed(found))
    return failure();
  FunctionGradient &gradient = **found;
  SmallVector<Value> seeds;
  for (unsigned i : gradient.cotangentResults)
    seeds.push_back(cotangent(call.getResult(i)));

  OpBuilder builder(call);
  auto forward = func::CallOp::create(builder, call.getLoc(), gradient.forward, call.getOperands());
  unsigned results = call.getNumResults();
  replaceForward(call, forward.getResults().take_front(results));
  state.retire(call);

  SmallVector<Value> operands;
  for (unsigned i : gradient.neededArguments)
    operands.push_back(saved(forward.getOperand(i)));
  for (unsigned i = 0; i < gradient.numSaved; ++i)
    operands.push_back(saved(forward.getResult(results + i)));
  llvm::append_range(operands, seeds);
  auto grad = func::CallOp::create(backward, gradientLoc(forward.getLoc()), gradient.backward, operands);
  for (auto [i, d] : llvm::zip_equal(gradient.wantedArguments, grad.getResults()))
    add(forward.getOperand(i), d);
  return success();
}

//===- Replaced forward ops ---------------------------------------------------------------------------------------===//

/// Later bookkeeping may still name the old results.
void BlockGradient::replaceForward(Operation *op, ValueRange with) {
  for (auto [from, to] : llvm::zip_equal(op->getResults(), with)) {
    replacements[from] = to;
    if (activity.isActive(from))
      activity.mark(to);
    if (Value known = imported.lookup(from))
      imported[to] = known;
  }
  op->replaceAllUsesWith(with);
}

Value BlockGradient::replaced(Value v) const {
  while (Value next = replacements.lookup(v))
    v = next;
  return v;
}
