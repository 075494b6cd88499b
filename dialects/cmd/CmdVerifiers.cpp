//===- CmdVerifiers.cpp - what must hold before a program is written ----------------------------------------------===//
// An op checks its own attributes; the program checks what needs the tables: names, arenas, and that no buffer leaves
// its arena in any iteration of the repeats around it. The rules are those of runtime/ProgramChecks.cpp.
#include "dialects/cmd/CmdDialect.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace braid::cmd;

LogicalResult BufferAttr::verify(function_ref<InFlightDiagnostic()> emitError, FlatSymbolRefAttr arena, int64_t offset,
                                 int64_t bytes, ArrayRef<int64_t>) {
  assert(arena && "the parser and every builder give an arena");
  if (offset < 0 || bytes < 0)
    return emitError() << "buffer of @" << arena.getValue() << ": offset " << offset << " and bytes " << bytes
                       << " must not be negative";
  return success();
}

LogicalResult WorkAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef op, int64_t flops, int64_t bytes,
                               StringRef, int64_t rows, int64_t fixed) {
  if (op.empty())
    return emitError() << "work needs the name of an op";
  if (fixed < 0 || fixed > bytes)
    return emitError() << "work of " << op << ": " << fixed << " bytes that follow no rows, of " << bytes
                       << "; valid: 0 to all of them";
  if (flops < 0 || bytes < 0 || rows < 0)
    return emitError() << "work of " << op << ": " << flops << " FLOPs, " << bytes << " bytes and " << rows
                       << " rows must not be negative";
  return success();
}

//===- Ops by themselves ------------------------------------------------------------------------------------------===//

LogicalResult ArenaOp::verify() {
  if (static_cast<int64_t>(getBytes()) < 0)
    return emitOpError("bytes ") << static_cast<int64_t>(getBytes()) << " is negative";
  if (!llvm::isPowerOf2_64(getAlign()))
    return emitOpError("align ") << getAlign() << " is not a power of two";
  if (getLowerBound() && *getLowerBound() > getBytes())
    return emitOpError("lower_bound ") << *getLowerBound() << " exceeds bytes " << getBytes();
  return success();
}

LogicalResult TensorOp::verify() {
  auto type = cast<RankedTensorType>(getType());
  if (!type.hasStaticShape())
    return emitOpError("'") << getName() << "' has the dynamic shape " << type;
  int64_t layers = getLayers() ? getLayers()->size() : 1;
  int64_t needed = tensorBytes(type) * layers;
  if (needed != getBuffer().getBytes())
    return emitOpError("'") << getName() << "' needs " << needed << " bytes but its buffer has "
                            << getBuffer().getBytes();
  bool braces = getName().contains("{}");
  if (braces != (getLayers() && !getLayers()->empty()))
    return emitOpError("'") << getName() << "' has " << (getLayers() ? getLayers()->size() : 0)
                            << " layers, so its name must " << (braces ? "not " : "") << "hold {}";
  if (getRole() == Role::moment && (!getSlot() || !llvm::is_contained({"first", "second", "low"}, *getSlot())))
    return emitOpError("moment '") << getName() << "' needs slot \"first\", \"second\" or \"low\", has \""
                                   << getSlot().value_or("") << '"';
  if (getRole() == Role::moment && !getOf())
    return emitOpError("moment '") << getName() << "' does not say of which parameter";
  for (Attribute shard : getShards() ? getShards()->getValue() : ArrayRef<Attribute>()) {
    auto pair = dyn_cast<ArrayAttr>(shard);
    if (!pair || pair.size() != 2 || !isa<IntegerAttr>(pair[0]) || !isa<StringAttr>(pair[1]))
      return emitOpError("'") << getName() << "': a shard is [dimension, axis], not " << shard;
    int64_t dim = cast<IntegerAttr>(pair[0]).getInt();
    if (dim < 0 || dim >= type.getRank())
      return emitOpError("'") << getName() << "': shard of dimension " << dim << " of " << type.getRank();
  }
  return success();
}

LogicalResult LaunchOp::verify() {
  if (getGrid().size() != 3)
    return emitOpError("a grid has 3 extents, not ") << getGrid().size();
  for (int64_t extent : getGrid())
    if (extent < 0)
      return emitOpError("grid extent ") << extent << " is negative";
  for (NamedAttribute arg : getArgs())
    if (!isa<BufferAttr, IntegerAttr, FloatAttr>(arg.getValue()))
      return emitOpError("argument '") << arg.getName().getValue() << "' must be a buffer, an integer or a float, is "
                                       << arg.getValue();
  return success();
}

/// `rows` x `columns` with a leading dimension, `batch` times: inside the buffer?
static LogicalResult checkMatrix(Operation *op, StringRef name, BufferAttr buffer, Type type, int64_t rows,
                                 int64_t columns, int64_t leading, int64_t batch = 1, int64_t batchStride = 0) {
  if (leading < columns)
    return op->emitOpError("ld") << name << " is " << leading << " but a row of '" << name << "' has " << columns
                                 << " elements";
  if (rows == 0 || columns == 0 || batch == 0)
    return success();
  int64_t needed = ((rows - 1) * leading + columns + (batch - 1) * batchStride) * elementBytes(type);
  if (needed > buffer.getBytes())
    return op->emitOpError("'") << name << "' (" << rows << " x " << columns << ", ld " << leading << ", batch "
                                << batch << ") needs " << needed << " bytes but its buffer has " << buffer.getBytes();
  return success();
}

/// What a product adds has the shape and the leading dimension of C, another buffer, and no type that C does not round to.
template <typename Op> static LogicalResult checkAddend(Op op, int64_t rows, int64_t batch, int64_t batchStride) {
  if (op.getAddend().has_value() != op.getTypeAddend().has_value())
    return op.emitOpError("has only one of addend and type_addend");
  if (!op.getAddend())
    return success();
  if (op.getAccumulate())
    return op.emitOpError("adds an addend and accumulates; valid: one of them");
  Type type = *op.getTypeAddend();
  if (type != op.getTypeC() && !type.isF32())
    return op.emitOpError("'addend' is ") << type << " but C is " << op.getTypeC() << "; valid: that type or f32";
  if (op.getK() < 1)
    return op.emitOpError("k is ") << static_cast<int64_t>(op.getK())
                                   << " but a product with an addend needs at least 1";
  return checkMatrix(op, "addend", *op.getAddend(), type, rows, op.getN(), op.getLdc(), batch, batchStride);
}

LogicalResult GemmOp::verify() {
  for (auto [name, value] :
       {std::pair<StringRef, int64_t>("m", getM()), {"n", getN()}, {"k", getK()}, {"batch", getBatch()}})
    if (value < 0)
      return emitOpError(name) << " is " << value;
  auto stored = [](bool transposed, int64_t rows, int64_t columns) {
    return transposed ? std::pair(columns, rows) : std::pair(rows, columns);
  };
  auto [aRows, aColumns] = stored(getTransposeA(), getM(), getK());
  auto [bRows, bColumns] = stored(getTransposeB(), getK(), getN());
  if (failed(checkMatrix(*this, "a", getA(), getTypeA(), aRows, aColumns, getLda(), getBatch(), getBatchStrideA())) ||
      failed(checkMatrix(*this, "b", getB(), getTypeB(), bRows, bColumns, getLdb(), getBatch(), getBatchStrideB())) ||
      failed(checkMatrix(*this, "c", getC(), getTypeC(), getM(), getN(), getLdc(), getBatch(), getBatchStrideC())))
    return failure();
  if (getBatch() > 1 && getBatchStrideC() < getN())
    return emitOpError("batch_stride_c is ")
           << getBatchStrideC() << ", so the " << getBatch() << " results of " << getN() << " columns overlap";
  return checkAddend(*this, getM(), getBatch(), getBatchStrideAddend());
}

LogicalResult GroupedGemmOp::verify() {
  bool rows = getKind() == GroupedKind::rows;
  if (static_cast<int64_t>(getGroups()) < 1)
    return emitOpError("groups is ") << static_cast<int64_t>(getGroups()) << ", needs at least 1";
  if (getOffsets().getBytes() < static_cast<int64_t>(getGroups() + 1) * 4)
    return emitOpError("'offsets' of ") << getGroups() << " groups needs " << (getGroups() + 1) * 4
                                        << " bytes but its buffer has " << getOffsets().getBytes();
  if (!rows && getTransposeB())
    return emitOpError("transpose_b has no meaning for kind weight");
  if (!rows && getAddend())
    return emitOpError("an addend has no meaning for kind weight");
  if (rows && failed(checkAddend(*this, getMaxRows(), 1, 0)))
    return failure();
  if (failed(checkMatrix(*this, "a", getA(), getTypeA(), getMaxRows(), rows ? getK() : getM(), getLda())))
    return failure();
  auto grouped = [&](StringRef name, BufferAttr buffer, Type type, int64_t r, int64_t c, int64_t leading) {
    return checkMatrix(*this, name, buffer, type, r, c, leading, getGroups(), r * leading);
  };
  if (rows) {
    auto [r, c] = getTransposeB() ? std::pair(getN(), getK()) : std::pair(getK(), getN());
    if (failed(grouped("b", getB(), getTypeB(), r, c, getLdb())))
      return failure();
    return checkMatrix(*this, "c", getC(), getTypeC(), getMaxRows(), getN(), getLdc());
  }
  if (failed(checkMatrix(*this, "b", getB(), getTypeB(), getMaxRows(), getN(), getLdb())))
    return failure();
  return grouped("c", getC(), getTypeC(), getM(), getN(), getLdc());
}

LogicalResult CollectiveOp::verify() {
  if (getSendCounts().has_value() != getRecvCounts().has_value())
    return emitOpError("has only one of send_counts and recv_counts");
  if (getSendCounts() && getKind() != CollectiveKind::all_to_all)
    return emitOpError("counts belong to all_to_all, not to ") << stringifyCollectiveKind(getKind());
  if (getKind() == CollectiveKind::all_to_all && getBlockBytes() == 0)
    return emitOpError("all_to_all needs block_bytes");
  if (getSendCounts() && (getRowBytes() == 0 || getCountsPerPeer() == 0))
    return emitOpError("all_to_all with counts needs row_bytes (")
           << getRowBytes() << ") and counts_per_peer (" << getCountsPerPeer() << ")";
  if (getDistance() < 1)
    return emitOpError("distance is ") << static_cast<int64_t>(getDistance()) << " but must be at least 1";
  if ((getCyclic() || getReverse() || getDistance() != 1) && getKind() != CollectiveKind::shift)
    return emitOpError("cyclic, reverse and distance belong to shift, not to ") << stringifyCollectiveKind(getKind());
  int64_t send = getSend().getBytes(), recv = getRecv().getBytes();
  bool fits = true;
  switch (getKind()) {
  case CollectiveKind::all_reduce: fits = send == recv; break;
  case CollectiveKind::shift: // between two stages one way may be all
    fits = send == recv || (!getCyclic() && getAxis().starts_with("pp[") && (send == 0 || recv == 0));
    break;
  case CollectiveKind::all_gather: fits = send ? recv % send == 0 : recv == 0; break;
  case CollectiveKind::reduce_scatter: fits = recv ? send % recv == 0 : send == 0; break;
  case CollectiveKind::all_to_all: break;
  }
  if (!fits)
    return emitOpError() << stringifyCollectiveKind(getKind()) << " of " << send << " bytes into " << recv;
  return success();
}

LogicalResult CopyOp::verify() {
  if (getSource().getBytes() != getTarget().getBytes())
    return emitOpError("of ") << getSource().getBytes() << " bytes to " << getTarget().getBytes() << " bytes";
  return success();
}

LogicalResult FillOp::verify() {
  if (getValue() > 255)
    return emitOpError("value ") << getValue() << " is no byte";
  return success();
}

LogicalResult RepeatOp::verify() {
  if (static_cast<int64_t>(getCount()) < 0)
    return emitOpError("count ") << static_cast<int64_t>(getCount()) << " is negative";
  return success();
}

//===- The program ------------------------------------------------------------------------------------------------===//

namespace {
class ProgramChecker {
public:
  explicit ProgramChecker(ProgramOp program) : program(program) {}

  LogicalResult run() {
    bool first = true;
    for (Operation &op : program.getBody().front()) {
      if (!isa<ArenaOp, TensorOp, StreamOp, EntryOp>(op))
        return op.emitOpError("cannot stand in a cmd.program");
      if (auto arena = dyn_cast<ArenaOp>(op))
        arenas.try_emplace(arena.getSymName(), arena);
      if (auto stream = dyn_cast<StreamOp>(op)) {
        if (first && stream.getAxis())
          return stream.emitOpError("is the first stream, so it computes and has no axis");
        if (stream.getAxis())
          ofAxes.insert(stream.getSymName());
        else if (!first)
          beside.insert(stream.getSymName());
        first = false;
        streams.insert(stream.getSymName());
      }
    }
    for (auto tensor : program.getOps<TensorOp>()) {
      if (failed(checkBuffer(tensor, "buffer", tensor.getBuffer())))
        return failure();
      auto [at, fresh] = tensors.try_emplace(tensor.getName(), tensor);
      if (!fresh)
        return (tensor.emitOpError("'") << tensor.getName() << "' is declared twice").attachNote(at->second.getLoc())
               << "declared here";
    }
    for (auto entry : program.getOps<EntryOp>()) {
      for (auto [what, list] : {std::pair("input", entry.getInputs()), {"output", entry.getOutputs()}})
        for (auto name : list.getAsRange<StringAttr>())
          if (!tensors.contains(name.getValue()))
            return entry.emitOpError(what) << " '" << name.getValue() << "' is no tensor of the program";
      events = entry.getEvents();
      recorded.clear();
      waits.clear();
      if (failed(checkList(entry.getBody().front())))
        return failure();
      for (WaitOp wait : waits)
        if (!recorded.contains(wait.getEvent()))
          return wait.emitOpError("event ") << wait.getEvent() << " is never recorded";
    }
    return success();
  }

private:
  LogicalResult checkList(Block &block) {
    for (Operation &op : block) {
      if (!isa<LaunchOp, GemmOp, GroupedGemmOp, CollectiveOp, CopyOp, FillOp, RecordOp, WaitOp, RepeatOp>(op))
        return op.emitOpError("is no command");
      if (failed(checkCommand(op)))
        return failure();
    }
    return success();
  }

  LogicalResult checkCommand(Operation &op) {
    if (auto stream = op.getAttrOfType<FlatSymbolRefAttr>("stream")) {
      if (!streams.contains(stream.getValue()))
        return op.emitOpError("stream @") << stream.getValue() << " is no stream of the program";
      if (isa<LaunchOp, GemmOp, GroupedGemmOp>(op) && ofAxes.contains(stream.getValue()))
        return op.emitOpError("computes, so it cannot be on stream @") << stream.getValue();
      if (isa<CollectiveOp>(op) && beside.contains(stream.getValue()))
        return op.emitOpError("communicates, so it cannot be on stream @")
               << stream.getValue() << ", which has no axis";
    }
    if (auto record = dyn_cast<RecordOp>(op)) {
      recorded.insert(record.getEvent());
      if (failed(checkEvent(op, record.getEvent())))
        return failure();
    }
    if (auto wait = dyn_cast<WaitOp>(op)) {
      waits.push_back(wait);
      if (failed(checkEvent(op, wait.getEvent())))
        return failure();
    }
    for (NamedAttribute attr : op.getAttrDictionary()) {
      if (auto buffer = dyn_cast<BufferAttr>(attr.getValue()))
        if (failed(checkBuffer(&op, attr.getName().getValue(), buffer)))
          return failure();
      if (auto args = dyn_cast<DictionaryAttr>(attr.getValue()))
        for (NamedAttribute arg : args)
          if (auto buffer = dyn_cast<BufferAttr>(arg.getValue()))
            if (failed(checkBuffer(&op, arg.getName().getValue(), buffer)))
              return failure();
    }
    auto repeat = dyn_cast<RepeatOp>(op);
    if (!repeat)
      return success();
    counts.push_back(repeat.getCount());
    LogicalResult result = checkList(repeat.getBody().front());
    counts.pop_back();
    return result;
  }

  LogicalResult checkEvent(Operation &op, int64_t event) {
    if (event < 0 || event >= events)
      return op.emitOpError("event ") << event << " of " << events;
    return success();
  }

  LogicalResult checkBuffer(Operation *op, StringRef name, BufferAttr buffer) {
    auto arena = arenas.find(buffer.getArena().getValue());
    if (arena == arenas.end())
      return op->emitOpError("'") << name << "': @" << buffer.getArena().getValue() << " is no arena of the program";
    if (buffer.getStrides().size() > counts.size())
      return op->emitOpError("'") << name << "' has " << buffer.getStrides().size() << " strides but stands in "
                                  << counts.size() << " repeats";
    int64_t low = buffer.getOffset(), high = buffer.getOffset();
    for (auto [stride, count] : llvm::zip(buffer.getStrides(), counts))
      (stride < 0 ? low : high) += stride * std::max<int64_t>(count - 1, 0);
    auto outside = [&](InFlightDiagnostic diagnostic) {
      diagnostic.attachNote(arena->second.getLoc()) << "declared here";
      return diagnostic;
    };
    if (low < 0)
      return outside(op->emitOpError("'")
                     << name << "' reaches " << -low << " bytes before arena @" << buffer.getArena().getValue());
    if (high + buffer.getBytes() > static_cast<int64_t>(arena->second.getBytes()))
      return outside(op->emitOpError("'")
                     << name << "' reaches byte " << high + buffer.getBytes() << " of arena @"
                     << buffer.getArena().getValue() << ", which has " << arena->second.getBytes());
    return success();
  }

  ProgramOp program;
  llvm::StringMap<ArenaOp> arenas;
  llvm::StringMap<TensorOp> tensors;
  llvm::StringSet<> streams, ofAxes, beside;
  int64_t events = 0;
  llvm::DenseSet<int64_t> recorded;
  SmallVector<WaitOp> waits;
  SmallVector<int64_t> counts; // of the repeats around the current command
};
} // namespace

LogicalResult ProgramOp::verifyRegions() { return ProgramChecker(*this).run(); }
