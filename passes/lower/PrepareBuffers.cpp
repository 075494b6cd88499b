//===- PrepareBuffers.cpp - an entry function made ready for the memory plan --------------------------------------===//
#include "passes/lower/PrepareBuffers.h"

#include "dialects/braid/PassAttributes.h"
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/analysis/Timeline.h"
#include "passes/analysis/Views.h"
#include "passes/autodiff/Recompute.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace braid;

//===- Calls ------------------------------------------------------------------------------------------------------===//

/// The layers whose weights a value holds: in entries an argument says it (braid.layers, or a name with a number), in
/// the body of a repeat it is a part of what the repeat stacks. In the order of execution; empty: not of layers.
static SmallVector<int32_t> layersOf(Value value) {
  value = viewRoot(value);
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return {};
  Operation *parent = argument.getOwner()->getParentOp();
  if (auto repeat = dyn_cast<RepeatOp>(parent)) {
    if (argument.getArgNumber() < repeat.getCarried())
      return {};
    SmallVector<int32_t> layers = layersOf(repeat.getInputs()[argument.getArgNumber()]);
    size_t count = repeat.getCount(), outer = 1;
    for (Operation *op = repeat; auto around = dyn_cast_or_null<RepeatOp>(op->getParentOp()); op = around)
      outer *= around.getCount();
    if (layers.empty() || layers.size() % (outer * count))
      return {};
    size_t inner = layers.size() / outer, step = inner / count;
    if (repeat.getReverse()) // every outer iteration walks its part backwards
      for (size_t begin = 0; begin < layers.size(); begin += inner) {
        SmallVector<int32_t> part(layers.begin() + begin, layers.begin() + begin + inner);
        for (size_t i = 0; i < count; ++i)
          std::copy_n(part.begin() + (count - 1 - i) * step, step, layers.begin() + begin + i * step);
      }
    return layers;
  }
  auto entry = dyn_cast<func::FuncOp>(parent);
  if (!entry)
    return {};
  if (auto layers = entry.getArgAttrOfType<DenseI32ArrayAttr>(argument.getArgNumber(), attrs::layers))
    return SmallVector<int32_t>(layers.asArrayRef());
  auto name = entry.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attrs::name);
  StringRef rest = name ? name.getValue() : StringRef();
  int32_t layer = 0;
  if (rest.consume_front("layers.") && !rest.consumeInteger(10, layer) && rest.starts_with("."))
    return {layer};
  return {};
}

Attribute braid::layersOfCall(func::CallOp call) {
  if (Attribute known = call->getAttr(cmd::kLayersAttr))
    return known; // of a call inside a layer function, or of one that was written out
  int64_t iterations = 1;
  for (Operation *op = call; auto repeat = dyn_cast_or_null<RepeatOp>(op->getParentOp()); op = repeat)
    iterations *= repeat.getCount();
  for (Value operand : call.getOperands())
    if (SmallVector<int32_t> layers = layersOf(operand); static_cast<int64_t>(layers.size()) == iterations)
      return DenseI32ArrayAttr::get(call.getContext(), layers);
  return {};
}

Attribute braid::layersOfLocation(Location loc) {
  if (auto call = dyn_cast<CallSiteLoc>(loc)) {
    Attribute inner = layersOfLocation(call.getCallee());
    return inner ? inner : layersOfLocation(call.getCaller());
  }
  auto fused = dyn_cast<FusedLoc>(loc);
  if (!fused)
    return {};
  if (auto layers = dyn_cast_or_null<DenseI32ArrayAttr>(fused.getMetadata()))
    return layers;
  bool wraps = isa_and_nonnull<IntegerAttr>(fused.getMetadata()); // a micro-batch
  return wraps ? layersOfLocation(fused.getLocations().front()) : Attribute();
}

IntegerAttr braid::microBatchOfLocation(Location loc) {
  IntegerAttr found;
  bool several = false;
  loc->walk([&](Location part) {
    auto fused = dyn_cast<FusedLoc>(part);
    auto number = fused ? dyn_cast_or_null<IntegerAttr>(fused.getMetadata()) : IntegerAttr();
    several |= found && number && number != found;
    found = number ? number : found;
    return WalkResult::advance();
  });
  return several ? IntegerAttr() : found;
}

namespace {
class Inliner {
public:
  explicit Inliner(SymbolTable &symbols) : symbols(symbols) {}

  LogicalResult run(ArrayRef<Operation *> ops) {
    for (Operation *op : ops) {
      if (auto repeat = dyn_cast<RepeatOp>(op))
        if (failed(run(callers(repeat.getBody().front()))))
          return failure();
      if (auto call = dyn_cast<func::CallOp>(op))
        if (failed(expand(call)))
          return failure();
    }
    return success();
  }

  static SmallVector<Operation *> callers(Block &block) {
    SmallVector<Operation *> ops;
    for (Operation &op : block)
      if (isa<func::CallOp, RepeatOp>(op))
        ops.push_back(&op);
    return ops;
  }

private:
  LogicalResult expand(func::CallOp call) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (!callee || callee.isExternal())
      return call.emitOpError("@") << call.getCallee() << " has no body in this module";
    if (llvm::is_contained(open, callee))
      return call.emitOpError("@") << call.getCallee() << " calls itself";
    IRMapping mapping;
    mapping.map(callee.getArguments(), call.getOperands());
    OpBuilder builder(call);
    Attribute layers = layersOfCall(call);
    SmallVector<Operation *> copies;
    Block &body = callee.getBody().front();
    for (Operation &op : body.without_terminator()) {
      copies.push_back(builder.clone(op, mapping));
      copies.back()->setLoc(CallSiteLoc::get(op.getLoc(), call.getLoc()));
      Attribute own = layersOfLocation(op.getLoc()); // of one of several layers in the callee
      attrs::keep(callee, copies.back(), {kDirectionAttr});
      if ((own || layers) && !copies.back()->hasAttr(cmd::kLayersAttr))
        copies.back()->setAttr(cmd::kLayersAttr, own ? own : layers);
    }
    for (auto [result, value] : llvm::zip(call.getResults(), body.getTerminator()->getOperands()))
      result.replaceAllUsesWith(mapping.lookupOrDefault(value));
    call.erase();
    open.push_back(callee);
    LogicalResult inner = run(copies);
    open.pop_back();
    return inner;
  }

  SymbolTable &symbols;
  SmallVector<func::FuncOp> open;
};
} // namespace

//===- Repeats ----------------------------------------------------------------------------------------------------===//

/// Stacked results that nobody reads, or that stack what another one stacks, would cost memory and copies: they go.
/// Returns the repeat without them.
static RepeatOp tidyResults(RepeatOp repeat) {
  Operation *yield = repeat.getBody().front().getTerminator();
  unsigned carried = repeat.getCarried();
  llvm::DenseMap<Value, unsigned> first;
  SmallVector<unsigned> keep;
  for (unsigned i = 0; i < repeat.getNumResults(); ++i) {
    if (i >= carried) {
      if (repeat.getResult(i).use_empty())
        continue;
      auto [at, fresh] = first.try_emplace(yield->getOperand(i), i);
      if (!fresh) {
        repeat.getResult(i).replaceAllUsesWith(repeat.getResult(at->second));
        continue;
      }
    }
    keep.push_back(i);
  }
  if (keep.size() == repeat.getNumResults())
    return repeat;
  SmallVector<Type> types;
  SmallVector<Value> yielded;
  for (unsigned i : keep) {
    types.push_back(repeat.getResult(i).getType());
    yielded.push_back(yield->getOperand(i));
  }
  yield->setOperands(yielded);
  OpBuilder builder(repeat);
  auto tidy = RepeatOp::create(builder, repeat.getLoc(), types, repeat.getOperands(), repeat->getAttrs());
  tidy.getBody().takeBody(repeat.getBody());
  for (auto [i, result] : llvm::zip(keep, tidy.getResults()))
    repeat.getResult(i).replaceAllUsesWith(result);
  repeat.erase();
  return tidy;
}

static void eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

static void tidyRepeats(Block &block) {
  // Uses outside decide what a repeat keeps, so inner repeats come after the ones around them, later ones before
  // earlier.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (auto repeat = dyn_cast<RepeatOp>(op)) {
      Block &body = tidyResults(repeat).getBody().front();
      tidyRepeats(body);
      eraseDead(body);
    }
}

/// A carried value that is also stacked (the input of a layer, kept for the backward) is stacked first thing and read
/// there: the carried buffer is free for the next value at once.
static void stackEarly(RepeatOp repeat) {
  Block &body = repeat.getBody().front();
  unsigned carried = repeat.getCarried();
  for (OpOperand &operand : body.getTerminator()->getOpOperands().drop_front(carried)) {
    auto argument = dyn_cast<BlockArgument>(operand.get());
    if (!argument || argument.getOwner() != &body || argument.getArgNumber() >= carried)
      continue;
    if (body.getTerminator()->getOperand(argument.getArgNumber()) == argument)
      continue; // never changes
    OpBuilder builder = OpBuilder::atBlockBegin(&body);
    auto copy = cmd::MaterializeOp::create(builder, argument.getLoc(), argument.getType(), argument);
    argument.replaceAllUsesExcept(copy.getResult(), copy);
  }
}

//===- Places where a value must lie in a certain buffer ----------------------------------------------------------===//

static Value materialize(OpBuilder &builder, Location loc, Value value) {
  return cmd::MaterializeOp::create(builder, loc, value.getType(), value);
}

static void materializeOperand(OpOperand &operand) {
  OpBuilder builder(operand.getOwner());
  operand.set(materialize(builder, operand.getOwner()->getLoc(), operand.get()));
}

/// The operands of a terminator that go into fixed buffers are written one after the other. One that shows a block
/// argument might be overwritten before it is read: it is saved first.
static void materializeAll(Operation *terminator, unsigned begin, unsigned end) {
  OpBuilder builder(terminator);
  for (unsigned i = begin; i < end; ++i) {
    OpOperand &operand = terminator->getOpOperand(i);
    auto argument = dyn_cast<BlockArgument>(viewRoot(operand.get()));
    bool stays = argument && operand.get() == argument && argument.getArgNumber() == i && isa<YieldOp>(terminator);
    if (argument && argument.getOwner() == terminator->getBlock() && !stays)
      operand.set(materialize(builder, terminator->getLoc(), operand.get()));
  }
  for (unsigned i = begin; i < end; ++i)
    materializeOperand(terminator->getOpOperand(i));
}

static LogicalResult prepare(Operation &op) {
  for (Value result : op.getResults()) {
    auto type = dyn_cast<RankedTensorType>(result.getType());
    if (type && (!type.hasStaticShape() || !type.getElementType().isIntOrFloat()))
      return op.emitOpError("needs a static shape and integers or floats to have a buffer, is ") << type;
  }
  if (auto launch = dyn_cast<tile::LaunchOp>(op)) {
    llvm::SmallDenseSet<int64_t> updated;
    for (int64_t operand : launch.getInplace())
      if (operand >= 0) {
        if (!updated.insert(operand).second)
          return launch.emitOpError("two results share the buffer of operand ") << operand;
        materializeOperand(launch->getOpOperand(operand));
      }
    return success();
  }
  if (auto gemm = dyn_cast<tile::GemmOp>(op)) {
    if (gemm.getC() && !gemm.getApart())
      materializeOperand(gemm.getCMutable()[0]);
    return success();
  }
  if (auto gemm = dyn_cast<tile::GroupedGemmOp>(op)) {
    if (gemm.getC() && !gemm.getApart())
      materializeOperand(gemm.getCMutable()[0]);
    return success();
  }
  if (auto concat = dyn_cast<ConcatOp>(op)) {
    if (!concatOffset(concat, 0))
      return concat.emitOpError("along dimension ")
             << concat.getDim() << " of " << concat.getType()
             << " does not put its sources one after the other; it must be a kernel";
    for (OpOperand &source : concat->getOpOperands())
      materializeOperand(source);
    return success();
  }
  if (auto repeat = dyn_cast<RepeatOp>(op)) {
    for (OpOperand &operand : repeat->getOpOperands().take_front(repeat.getCarried()))
      materializeOperand(operand);
    return success();
  }
  if (auto yield = dyn_cast<YieldOp>(op)) {
    unsigned carried = cast<RepeatOp>(yield->getParentOp()).getCarried();
    for (OpOperand &operand : yield->getOpOperands().drop_front(carried)) {
      auto early = operand.get().getDefiningOp<cmd::MaterializeOp>(); // of stackEarly: made for this slot
      if (!early || early->getBlock() != yield->getBlock())
        materializeOperand(operand);
    }
    materializeAll(yield, 0, carried);
    return success();
  }
  if (isa<func::ReturnOp>(op)) {
    materializeAll(&op, 0, op.getNumOperands());
    return success();
  }
  if (auto start = dyn_cast<CommStartOp>(op)) {
    CommAwaitOp await = awaitOf(start);
    if (!await)
      return start.emitOpError("its future must be awaited exactly once, by a braid.comm.await");
    if (await->getBlock() != start->getBlock())
      return start.emitOpError("is awaited in another block").attachNote(await.getLoc()) << "awaited here";
    return success();
  }
  if (isa<arith::ConstantOp>(op)) {
    if (!isa<RankedTensorType>(op.getResult(0).getType()) || !isZero(op.getResult(0)))
      return op.emitOpError("is not a tensor of zeros; other values must come from a kernel");
    return success();
  }
  if (isa<cmd::MaterializeOp>(op))
    return success();
  if (isa<ReshapeOp, SliceOp, CommAwaitOp, CollectiveOpInterface>(op)) {
    auto reshape = dyn_cast<ReshapeOp>(op);
    if (reshape && !isContiguous(reshape.getSource()))
      return reshape.emitOpError("of a slice that is not contiguous");
    return success();
  }
  return op.emitOpError("is not allowed in phase kernels");
}

/// Zeros that a kernel reads stand at the entry's start, the largest first: all of them share its buffer.
static void hoistZeros(func::FuncOp entry) {
  SmallVector<std::tuple<int64_t, unsigned, arith::ConstantOp>> zeros;
  entry.walk([&](arith::ConstantOp constant) {
    if (isZero(constant))
      zeros.push_back({-extentBytes(constant), zeros.size(), constant});
  });
  llvm::sort(zeros, [](const auto &a, const auto &b) {
    return std::pair(std::get<0>(a), std::get<1>(a)) < std::pair(std::get<0>(b), std::get<1>(b));
  });
  Block &front = entry.getBody().front();
  DenseMap<Attribute, arith::ConstantOp> known;
  Operation *last = nullptr;
  for (auto [bytes, number, zero] : zeros) {
    auto [at, fresh] = known.try_emplace(zero.getValue(), zero);
    if (!fresh) {
      zero.replaceAllUsesWith(at->second.getResult());
      zero.erase();
      continue;
    }
    last ? zero->moveAfter(last) : zero->moveBefore(&front, front.begin());
    zero->removeAttr(cmd::kLayersAttr); // it stands before all layers now
    last = zero;
  }
}

LogicalResult braid::prepareBuffers(func::FuncOp entry, SymbolTable &symbols) {
  if (!entry.getBody().hasOneBlock())
    return entry.emitOpError("has ") << entry.getBody().getBlocks().size() << " blocks, an entry has one";
  if (failed(Inliner(symbols).run(Inliner::callers(entry.getBody().front()))))
    return failure();
  tidyRepeats(entry.getBody().front());
  entry.walk([](RepeatOp repeat) { stackEarly(repeat); });
  hoistZeros(entry);
  SmallVector<Operation *> ops;
  entry.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op != entry)
      ops.push_back(op);
  });
  for (Operation *op : ops)
    if (failed(prepare(*op)))
      return failure();
  return success();
}
