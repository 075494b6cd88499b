//===- LowerToCommands.cpp - planned entry functions -> command lists ---------------------------------------------===//
// Nothing is decided here: PlanMemory said where values lie, the order of ops is the order of commands. Two values that
// should be one buffer and are not become a copy.
#include "passes/lower/CommandLowering.h"

#include "passes/Passes.h"
#include "passes/analysis/Timeline.h"
#include "passes/analysis/Views.h"
#include "passes/lower/KernelSignature.h"
#include "passes/lower/PrepareBuffers.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_LOWERTOCOMMANDSPASS
#include "passes/Passes.h.inc"
} // namespace braid

//===- Names ------------------------------------------------------------------------------------------------------===//

/// "layers.*.lsm scan" from the locations of a call and of the op in the callee, outermost first.
static void collectNames(Location loc, SmallVectorImpl<StringRef> &names) {
  if (auto named = dyn_cast<NameLoc>(loc))
    names.push_back(named.getName());
  else if (auto call = dyn_cast<CallSiteLoc>(loc)) {
    collectNames(call.getCaller(), names);
    collectNames(call.getCallee(), names);
  } else if (auto fused = dyn_cast<FusedLoc>(loc)) {
    if (!fused.getLocations().empty())
      collectNames(fused.getLocations().front(), names);
  }
}

StringAttr CommandLowering::nameOf(Operation *op, StringRef fallback) const {
  SmallVector<StringRef> names;
  collectNames(op->getLoc(), names);
  if (auto label = op->getAttrOfType<StringAttr>("label"))
    names.push_back(label.getValue());
  else if (!fallback.empty())
    names.push_back(fallback);
  return names.empty() ? StringAttr() : StringAttr::get(op->getContext(), llvm::join(names, " "));
}

//===- Launches ---------------------------------------------------------------------------------------------------===//

/// A tensor as the kernel's buffer parameter sees it: what is static in the parameter's type must be so.
static LogicalResult checkParameter(Operation *op, StringRef name, MemRefType type, Value value) {
  auto tensor = cast<RankedTensorType>(value.getType());
  if (type.getRank() != tensor.getRank())
    return op->emitOpError("'") << name << "': the kernel's parameter has rank " << type.getRank()
                                << " but the tensor is " << tensor;
  if (type.getElementType() != tensor.getElementType())
    return op->emitOpError("'") << name << "': the kernel's parameter holds " << type.getElementType()
                                << " but the tensor is " << tensor;
  SmallVector<int64_t> strides, actual = elementStrides(value);
  int64_t offset;
  if (failed(type.getStridesAndOffset(strides, offset)))
    return op->emitOpError("'") << name << "': the kernel's parameter " << type << " has no strides";
  for (int64_t i = 0; i < type.getRank(); ++i) {
    if (!type.isDynamicDim(i) && type.getDimSize(i) != tensor.getDimSize(i))
      return op->emitOpError("'") << name << "': dimension " << i << " of the kernel's parameter is "
                                  << type.getDimSize(i) << " but the tensor is " << tensor;
    // A dynamic stride of an identity layout follows from the sizes.
    bool fromLayout = !type.getLayout().isIdentity();
    if (tensor.getDimSize(i) != 1 && fromLayout && !ShapedType::isDynamic(strides[i]) && strides[i] != actual[i])
      return op->emitOpError("'") << name << "': stride " << i << " of the kernel's parameter is " << strides[i]
                                  << " but the tensor's is " << actual[i];
  }
  if (type.getLayout().isIdentity() && !isContiguous(value))
    return op->emitOpError("'") << name
                                << "': the kernel wants rows one after the other, but the tensor is a slice with gaps";
  return success();
}

LogicalResult CommandLowering::lower(tile::LaunchOp launch) {
  auto kernel = symbols.lookup<func::FuncOp>(launch.getKernel());
  if (!kernel || !kernel->hasAttr(tile::kKernelAttr))
    return launch.emitOpError("@") << launch.getKernel() << " is no kernel of this module";
  noteInPlace(launch, kernel);
  llvm::StringMap<Value> tensors;
  for (auto [name, value] : llvm::zip(launch.getArgNames().getAsRange<StringAttr>(), launch.getInputs()))
    tensors[name.getValue()] = value;
  for (auto [name, value] : llvm::zip(launch.getResultNames().getAsRange<StringAttr>(), launch.getOutputs()))
    tensors[name.getValue()] = value;

  SmallVector<NamedAttribute> args;
  llvm::StringSet<> used;
  for (const KernelSlot &slot : KernelSignature::of(kernel).slots) {
    auto name = kernel.getArgAttrOfType<StringAttr>(slot.argument, tile::kNameAttr);
    used.insert(name.getValue());
    Attribute attribute;
    if (auto memref = dyn_cast<MemRefType>(kernel.getArgumentTypes()[slot.argument])) {
      auto tensor = tensors.find(name.getValue());
      if (tensor == tensors.end())
        return launch.emitOpError("gives no tensor to parameter '")
               << name.getValue() << "' of @" << launch.getKernel();
      Value value = tensor->second;
      switch (slot.part) {
      case SlotPart::data:
        if (failed(checkParameter(launch, name.getValue(), memref, value)))
          return failure();
        attribute = bufferOf(value);
        break;
      case SlotPart::size:
        attribute = builder.getI64IntegerAttr(cast<RankedTensorType>(value.getType()).getDimSize(slot.dimension));
        break;
      case SlotPart::stride: attribute = builder.getI64IntegerAttr(elementStrides(value)[slot.dimension]); break;
      }
    } else {
      attribute = launch.getScalars().get(name.getValue());
      if (!attribute)
        return launch.emitOpError("gives no value to parameter '") << name.getValue() << "' of @" << launch.getKernel();
      if ((slot.kind == SlotKind::i64) != isa<IntegerAttr>(attribute) || !isa<IntegerAttr, FloatAttr>(attribute))
        return launch.emitOpError("parameter '")
               << name.getValue() << "' of @" << launch.getKernel() << " is "
               << (slot.kind == SlotKind::i64 ? "an integer" : "a float") << " but gets " << attribute;
      // Rounded to a narrower type on the way it would be another number.
      Type type = kernel.getArgumentTypes()[slot.argument];
      if (auto number = dyn_cast<FloatAttr>(attribute); number && number.getType() != type)
        return launch.emitOpError("parameter '")
               << name.getValue() << "' of @" << launch.getKernel() << " is " << type << " but gets " << attribute;
      if (auto integer = dyn_cast<IntegerAttr>(attribute))
        attribute = builder.getI64IntegerAttr(integer.getInt());
    }
    args.push_back(builder.getNamedAttr(slot.name, attribute));
  }
  for (auto &given : tensors)
    if (!used.contains(given.first()))
      return launch.emitOpError("@") << launch.getKernel() << " has no parameter '" << given.first() << "'";
  for (NamedAttribute given : launch.getScalars())
    if (!used.contains(given.getName().getValue()))
      return launch.emitOpError("@") << launch.getKernel() << " has no parameter '" << given.getName().getValue()
                                     << "'";

  SmallVector<int64_t> grid(launch.getGrid());
  grid.resize(3, 1);
  cmd::LaunchOp::create(builder, launch.getLoc(), launch.getKernelAttr(), builder.getDenseI64ArrayAttr(grid),
                        builder.getDictionaryAttr(args), FlatSymbolRefAttr(), nameOf(launch, launch.getKernel()));
  return success();
}

//===- Collectives ------------------------------------------------------------------------------------------------===//

static cmd::CollectiveKind kindOf(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::all_reduce: return cmd::CollectiveKind::all_reduce;
  case CollectiveKind::all_gather: return cmd::CollectiveKind::all_gather;
  case CollectiveKind::reduce_scatter: return cmd::CollectiveKind::reduce_scatter;
  case CollectiveKind::all_to_all: return cmd::CollectiveKind::all_to_all;
  case CollectiveKind::shift: return cmd::CollectiveKind::shift;
  }
  llvm_unreachable("collective");
}

void CommandLowering::follow(Location loc, FlatSymbolRefAttr stream) {
  cmd::RecordOp::create(builder, loc, events, FlatSymbolRefAttr(), StringAttr());
  cmd::WaitOp::create(builder, loc, events++, stream, StringAttr());
}

int64_t CommandLowering::end(Location loc, FlatSymbolRefAttr stream) {
  cmd::RecordOp::create(builder, loc, events, stream, StringAttr());
  return events++;
}

int64_t CommandLowering::collective(Operation *op, CollectiveKind kind, StringAttr axis, ValueRange inputs,
                                    Value result) {
  streams.axes.insert(axis);
  auto stream = FlatSymbolRefAttr::get(axis);
  Location loc = op->getLoc();
  follow(loc, stream);
  // One way between two stages: of what is not there, nothing at the other's place.
  Value x = inputs.empty() ? result : inputs[0];
  auto nothing = [](cmd::BufferAttr at) {
    return cmd::BufferAttr::get(at.getContext(), at.getArena(), at.getOffset(), 0, at.getStrides());
  };
  cmd::BufferAttr sent = inputs.empty() ? nothing(bufferOf(x)) : bufferOf(x),
                  received = result ? bufferOf(result) : nothing(bufferOf(x));
  auto type = cast<RankedTensorType>(x.getType());
  int64_t block = 0, row = 0, counts = 0;
  bool counted = inputs.size() == 3;
  if (kind == CollectiveKind::all_to_all) {
    auto peers = op->getAttrOfType<IntegerAttr>("peers");
    int64_t ranks = peers ? peers.getInt() : 1;
    block = cmd::tensorBytes(type) / ranks;
    if (counted) {
      row = type.getDimSize(type.getRank() - 1) * cmd::elementBytes(type.getElementType());
      counts = cast<RankedTensorType>(inputs[1].getType()).getNumElements() / ranks;
    }
  }
  auto distance = op->getAttrOfType<IntegerAttr>("distance");
  auto unit = [&](StringRef name) { return op->getAttrOfType<UnitAttr>(name); };
  cmd::CollectiveOp::create(
      builder, loc, cmd::CollectiveKindAttr::get(op->getContext(), kindOf(kind)), axis, sent, received,
      TypeAttr::get(type.getElementType()), builder.getI64IntegerAttr(block), builder.getI64IntegerAttr(row),
      counted ? bufferOf(inputs[1]) : cmd::BufferAttr(), counted ? bufferOf(inputs[2]) : cmd::BufferAttr(),
      builder.getI64IntegerAttr(counts), unit("cyclic"), unit("reverse"),
      builder.getI64IntegerAttr(distance ? distance.getInt() : 1), stream, nameOf(op, stringifyCollectiveKind(kind)));
  return end(loc, stream);
}

LogicalResult CommandLowering::checkCollective(Operation *op, ValueRange inputs, Value result) {
  SmallVector<Value, 2> ends(inputs.take_front(1));
  if (result)
    ends.push_back(result);
  for (Value value : ends)
    if (!isContiguous(value))
      return op->emitOpError("cannot send a slice with gaps: ") << value.getType();
  if (auto dim = op->getAttrOfType<IntegerAttr>("dim"))
    for (Value value : ends)
      if (!isLeading(cast<RankedTensorType>(value.getType()), dim.getInt()))
        return op->emitOpError("along dimension ")
               << dim.getInt() << " of " << value.getType() << ": its parts do not lie one after the other";
  return success();
}

LogicalResult CommandLowering::lower(CommStartOp start) {
  CommAwaitOp await = awaitOf(start);
  Value result = await.getNumResults() ? await.getResult(0) : Value();
  if (failed(checkCollective(start, start.getInputs(), result)))
    return failure();
  ends[start] = collective(start, start.getKind(), start.getAxisAttr(), start.getInputs(), result);
  return success();
}

LogicalResult CommandLowering::lower(CollectiveOpInterface op) {
  Value result = op->getResult(0);
  if (failed(checkCollective(op, op->getOperands(), result)))
    return failure();
  int64_t end = collective(op, op.getKind(), op.getAxisAttr(), op->getOperands(), result);
  cmd::WaitOp::create(builder, op.getLoc(), end, FlatSymbolRefAttr(), StringAttr());
  return success();
}

LogicalResult CommandLowering::lower(CommAwaitOp await) {
  cmd::WaitOp::create(builder, await.getLoc(), ends.lookup(await.getFuture().getDefiningOp()), FlatSymbolRefAttr(),
                      StringAttr());
  return success();
}

//===- Structure --------------------------------------------------------------------------------------------------===//

void CommandLowering::lower(cmd::MaterializeOp copy) {
  cmd::BufferAttr target = bufferOf(copy.getResult());
  if (isZero(copy.getSource()))
    cmd::FillOp::create(builder, copy.getLoc(), target, builder.getI64IntegerAttr(0), FlatSymbolRefAttr(),
                        nameOf(copy, ""));
  else if (bufferOf(copy.getSource()) != target)
    cmd::CopyOp::create(builder, copy.getLoc(), bufferOf(copy.getSource()), target, FlatSymbolRefAttr(),
                        nameOf(copy, ""));
}

LogicalResult CommandLowering::lower(RepeatOp repeat) {
  auto command = cmd::RepeatOp::create(builder, repeat.getLoc(), builder.getI64IntegerAttr(repeat.getCount()),
                                       FlatSymbolRefAttr(), nameOf(repeat, ""));
  OpBuilder::InsertionGuard guard(builder);
  builder.createBlock(&command.getBody());
  return lower(repeat.getBody().front());
}

LogicalResult CommandLowering::lower(Operation &op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case<tile::LaunchOp, tile::GemmOp, tile::GroupedGemmOp, RepeatOp, CommStartOp, CommAwaitOp,
            CollectiveOpInterface>([&](auto op) { return lower(op); })
      .Case([&](cmd::MaterializeOp copy) { return lower(copy), success(); })
      .Case([&](arith::ConstantOp zero) {
        // The first is the largest; the others are its beginning.
        if (zero->hasAttr("cmd.results") && !std::exchange(zeroFilled, true))
          cmd::FillOp::create(builder, zero.getLoc(), bufferOf(zero.getResult()), builder.getI64IntegerAttr(0),
                              FlatSymbolRefAttr(), builder.getStringAttr("zeros"));
        return success();
      })
      .Case<ReshapeOp, SliceOp, ConcatOp, YieldOp, func::ReturnOp>([](auto) { return success(); })
      .Default([](Operation *op) { return op->emitOpError("has no command"); });
}

/// The commands that an op became know its layer and its micro-batch; what it must do at least is shared evenly, they are equal pieces.
static void describe(Operation &op, ArrayRef<Operation *> commands) {
  if (commands.empty())
    return;
  auto work = op.getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr);
  IntegerAttr microBatch = microBatchOfLocation(op.getLoc());
  int64_t flops = work ? work.getFlops() : 0, bytes = work ? work.getBytes() : 0, fixed = work ? work.getFixed() : 0;
  int64_t left = commands.size();
  for (Operation *command : commands) {
    if (Attribute layers = op.getAttr(cmd::kLayersAttr))
      command->setAttr(cmd::kLayersAttr, layers);
    if (microBatch)
      command->setAttr(cmd::kMicroBatchAttr, microBatch);
    if (work)
      command->setAttr(cmd::kWorkAttr, cmd::WorkAttr::get(op.getContext(), work.getOp(), flops / left, bytes / left,
                                                          work.getChoice(), work.getRows(), fixed / left));
    flops -= flops / left;
    fixed -= fixed / left;
    bytes -= bytes / left--;
  }
}

LogicalResult CommandLowering::lower(Block &block) {
  for (Operation &op : block) {
    bool beside = runsBeside(&op);
    auto stream = beside ? FlatSymbolRefAttr::get(op.getContext(), kBesideStream) : FlatSymbolRefAttr();
    if (beside)
      follow(op.getLoc(), stream);
    Block *commands = builder.getInsertionBlock();
    Operation *before = commands->empty() ? nullptr : &commands->back();
    if (failed(lower(op)))
      return failure();
    SmallVector<Operation *> made;
    for (Operation *command = before              ? before->getNextNode()
                              : commands->empty() ? nullptr
                                                  : &commands->front();
         command; command = command->getNextNode())
      if (!isa<cmd::RepeatOp, cmd::RecordOp, cmd::WaitOp>(command))
        made.push_back(command);
    describe(op, made);
    if (!beside)
      continue;
    streams.beside = true;
    for (Operation *command : made)
      command->setAttr("stream", stream);
    cmd::WaitOp::create(builder, op.getLoc(), end(op.getLoc(), stream), FlatSymbolRefAttr(), StringAttr());
  }
  return success();
}

LogicalResult CommandLowering::run(cmd::ProgramOp program) {
  auto names = [&](unsigned count, auto get) -> FailureOr<ArrayAttr> {
    llvm::SetVector<Attribute> list; // stacks with one name are one tensor of the file
    for (unsigned i = 0; i < count; ++i) {
      ArrayAttr tensors = get(i);
      if (!tensors)
        return entry.emitOpError("has no planned buffers; run braid-plan-memory first"), failure();
      list.insert_range(tensors);
    }
    return builder.getArrayAttr(list.getArrayRef());
  };
  auto inputs =
      names(entry.getNumArguments(), [&](unsigned i) { return entry.getArgAttrOfType<ArrayAttr>(i, "cmd.tensors"); });
  auto outputs =
      names(entry.getNumResults(), [&](unsigned i) { return entry.getResultAttrOfType<ArrayAttr>(i, "cmd.tensors"); });
  if (failed(inputs) || failed(outputs))
    return failure();
  builder.setInsertionPointToEnd(&program.getBody().front());
  auto command = cmd::EntryOp::create(builder, entry.getLoc(), entry.getSymNameAttr(), *inputs, *outputs,
                                      builder.getI64IntegerAttr(0), entry->getAttrOfType<IntegerAttr>(attrs::stage));
  builder.createBlock(&command.getBody());
  if (failed(lower(entry.getBody().front())))
    return failure();
  command.setEvents(events);
  return success();
}

namespace {
class LowerToCommands : public braid::impl::LowerToCommandsPassBase<LowerToCommands> {
public:
  using LowerToCommandsPassBase::LowerToCommandsPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto programs = llvm::to_vector(module.getOps<cmd::ProgramOp>());
    if (programs.size() != 1) {
      module.emitError("has ") << programs.size() << " cmd.program, needs one; run braid-plan-memory first";
      return signalPassFailure();
    }
    cmd::ProgramOp program = programs.front();
    SymbolTable symbols(module);
    OtherStreams streams;
    SmallVector<func::FuncOp> entries;
    for (auto func : module.getOps<func::FuncOp>())
      if (func->hasAttr(attrs::entry))
        entries.push_back(func);
    for (func::FuncOp entry : entries)
      if (failed(CommandLowering(entry, symbols, streams).run(program)))
        return signalPassFailure();
    OpBuilder builder(program.getContext());
    builder.setInsertionPointToStart(&program.getBody().front());
    for (Operation &op : program.getBody().front())
      if (isa<cmd::ArenaOp>(op))
        builder.setInsertionPointAfter(&op);
    cmd::StreamOp::create(builder, program.getLoc(), builder.getStringAttr("compute"), StringAttr());
    for (StringAttr axis : streams.axes)
      cmd::StreamOp::create(builder, program.getLoc(), axis, axis);
    if (streams.beside)
      cmd::StreamOp::create(builder, program.getLoc(), builder.getStringAttr(kBesideStream), StringAttr());
    for (func::FuncOp entry : entries)
      entry.erase();
    llvm::StringSet<> launched;
    program.walk([&](cmd::LaunchOp launch) { launched.insert(launch.getKernel()); });
    for (auto kernel : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (kernel->hasAttr(tile::kKernelAttr) && !launched.contains(kernel.getSymName()))
        kernel.erase();
  }
};
} // namespace
