//===- ProveMemoryPlan.cpp - a memory plan, proved by walking through it ------------------------------------------===//
// Executes a planned entry function on tags instead of numbers, all iterations included: whatever an op reads must be
// what the program wrote for it, results must not lie on operands, named tensors must hold their results at the end,
// values stay inside of their buffers and those inside of their arenas. Nothing here knows how the plan was made.
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/Passes.h"
#include "passes/analysis/Timeline.h"
#include "passes/analysis/Views.h"
#include "passes/lower/PlannedBuffers.h"

#include <map>

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_PROVEMEMORYPLANPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

/// `bytes` bytes of what `tag` wrote, from byte `offset` of it on. Tag 0 is zero everywhere.
struct Piece {
  int64_t tag, offset, bytes;
  bool operator==(const Piece &other) const {
    return tag == other.tag && offset == other.offset && bytes == other.bytes;
  }
};
using Content = SmallVector<Piece, 1>;

void append(Content &content, Piece piece) {
  if (piece.bytes == 0)
    return;
  if (piece.tag == 0)
    piece.offset = 0;
  if (!content.empty()) {
    Piece &last = content.back();
    if (last.tag == piece.tag && (piece.tag == 0 || last.offset + last.bytes == piece.offset)) {
      last.bytes += piece.bytes;
      return;
    }
  }
  content.push_back(piece);
}

Content part(const Content &content, int64_t offset, int64_t bytes) {
  Content result;
  for (Piece piece : content) {
    int64_t begin = std::max<int64_t>(offset, 0), end = std::min(offset + bytes, piece.bytes);
    if (begin < end)
      append(result, {piece.tag, piece.offset + begin, end - begin});
    offset -= piece.bytes;
  }
  return result;
}

/// The bytes of one arena.
class Shadow {
public:
  void write(int64_t at, const Content &content) {
    int64_t end = at;
    for (Piece piece : content)
      end += piece.bytes;
    cutAt(at);
    cutAt(end);
    pieces.erase(pieces.lower_bound(at), pieces.lower_bound(end));
    for (Piece piece : content) {
      pieces[at] = piece;
      at += piece.bytes;
    }
  }

  Content read(int64_t at, int64_t bytes) const {
    Content content;
    auto it = pieces.upper_bound(at);
    if (it != pieces.begin())
      --it;
    int64_t end = at + bytes;
    for (; it != pieces.end() && it->first < end; ++it) {
      int64_t begin = std::max(at, it->first), stop = std::min(end, it->first + it->second.bytes);
      if (begin >= stop)
        continue;
      if (begin > at)
        append(content, {-1, at, begin - at}); // never written
      append(content, {it->second.tag, it->second.offset + begin - it->first, stop - begin});
      at = stop;
    }
    if (at < end)
      append(content, {-1, at, end - at});
    return content;
  }

private:
  void cutAt(int64_t at) {
    auto it = pieces.upper_bound(at);
    if (it == pieces.begin())
      return;
    --it;
    int64_t inside = at - it->first;
    if (inside <= 0 || inside >= it->second.bytes)
      return;
    Piece rest{it->second.tag, it->second.tag == 0 ? 0 : it->second.offset + inside, it->second.bytes - inside};
    it->second.bytes = inside;
    pieces[at] = rest;
  }

  std::map<int64_t, Piece> pieces;
};

/// Where a value lies in this iteration, as runs of bytes without gaps.
struct Runs {
  StringRef arena;
  int64_t base;
  SmallVector<int64_t, 1> offsets; ///< from base
  int64_t bytes; ///< of each run

  bool overlaps(const Runs &other) const {
    if (arena != other.arena || offsets.empty() || other.offsets.empty())
      return false;
    for (int64_t a : offsets)
      for (int64_t b : other.offsets)
        if (base + a < other.base + b + other.bytes && other.base + b < base + a + bytes)
          return true;
    return false;
  }
};

/// Arenas and named tensors of the module, where it has a table of them.
struct Tables {
  llvm::StringMap<int64_t> arenas; ///< bytes
  llvm::StringMap<cmd::BufferAttr> tensors;

  explicit Tables(ModuleOp module) {
    module.walk([&](cmd::ArenaOp arena) { arenas[arena.getSymName()] = static_cast<int64_t>(arena.getBytes()); });
    module.walk([&](cmd::TensorOp tensor) { tensors[tensor.getName()] = tensor.getBuffer(); });
  }
};

class Prover {
public:
  Prover(func::FuncOp entry, const Tables &tables) : entry(entry), tables(tables) {}

  LogicalResult run() {
    Block &body = entry.getBody().front();
    for (BlockArgument argument : body.getArguments()) {
      unsigned i = argument.getArgNumber();
      if (failed(
              checkNames("argument", i, plannedBuffer(argument), entry.getArgAttrOfType<ArrayAttr>(i, "cmd.tensors"))))
        return failure();
      if (failed(create(entry, argument)))
        return failure();
    }
    for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
      auto buffer = entry.getResultAttrOfType<cmd::BufferAttr>(i, "cmd.buffer");
      if (plannedBuffer(value) != buffer)
        return entry.emitOpError("memory plan: result ")
               << i << " is said to be at " << buffer << " but lies at " << plannedBuffer(value);
      if (failed(checkNames("result", i, buffer, entry.getResultAttrOfType<ArrayAttr>(i, "cmd.tensors"))))
        return failure();
    }
    if (failed(walk(body)))
      return failure();
    // What the entry does not return it must leave alone.
    Operation *end = body.getTerminator();
    llvm::DenseSet<Attribute> written;
    for (unsigned i = 0; i < entry.getNumResults(); ++i)
      written.insert(entry.getResultAttr(i, "cmd.buffer"));
    for (BlockArgument argument : body.getArguments())
      if (!written.contains(entry.getArgAttr(argument.getArgNumber(), "cmd.buffer")) &&
          failed(check(end, argument, "is not kept")))
        return failure();
    return success();
  }

private:
  /// An argument or result of the entry is where the file's tensors of these names are: in one of them, or all of them.
  LogicalResult checkNames(StringRef what, unsigned i, cmd::BufferAttr buffer, ArrayAttr names) {
    int64_t begin = INT64_MAX, end = 0, bytes = 0;
    for (auto name : (names ? names : ArrayAttr::get(entry.getContext(), {})).getAsRange<StringAttr>()) {
      cmd::BufferAttr tensor = tables.tensors.lookup(name);
      if (!tensor || tensor.getArena() != buffer.getArena())
        return entry.emitOpError("memory plan: ")
               << what << ' ' << i << " is at " << buffer << " but there is no tensor " << name << " in that arena";
      begin = std::min(begin, tensor.getOffset());
      end = std::max(end, tensor.getOffset() + tensor.getBytes());
      bytes += tensor.getBytes();
    }
    if (!names || names.empty())
      return success();
    bool inside = begin <= buffer.getOffset() && buffer.getOffset() + buffer.getBytes() <= end;
    if (inside && (names.size() == 1 ? bytes >= buffer.getBytes() : bytes == buffer.getBytes()))
      return success();
    return entry.emitOpError("memory plan: ")
           << what << ' ' << i << " is at " << buffer << " but " << names[0]
           << (names.size() > 1 ? " and the other layers are at bytes " : " is at bytes ") << begin << " to " << end;
  }

  /// A value does not leave its buffer, nor that its arena, and is aligned to its elements.
  LogicalResult checkPlace(Operation *user, Value value) {
    cmd::BufferAttr buffer = plannedBuffer(value);
    Runs runs = runsOf(value);
    if (runs.offsets.empty())
      return success();
    auto error = [&]() { return user->emitOpError("memory plan: ") << value.getType() << " at " << buffer; };
    int64_t extent = *llvm::max_element(runs.offsets) + runs.bytes;
    int64_t element = cmd::elementBytes(cast<RankedTensorType>(value.getType()).getElementType());
    if (extent > buffer.getBytes())
      return error() << " needs " << extent << " bytes";
    if (runs.base % element)
      return error() << " begins at byte " << runs.base << ", no multiple of its elements' " << element;
    auto arena = tables.arenas.find(runs.arena);
    int64_t size = arena == tables.arenas.end() ? INT64_MAX : arena->second;
    if (runs.base < 0 || runs.base > size - extent)
      return error() << " holds bytes " << runs.base << " to " << runs.base + extent << " of an arena of " << size;
    return success();
  }

  Runs runsOf(Value value) const {
    cmd::BufferAttr buffer = plannedBuffer(value);
    int64_t base = buffer.getOffset();
    for (auto [stride, iteration] : llvm::zip(buffer.getStrides(), iterations))
      base += stride * iteration;
    auto type = cast<RankedTensorType>(value.getType());
    Runs runs{buffer.getArena().getValue(), base, {0}, cmd::elementBytes(type.getElementType())};
    SmallVector<int64_t> strides = elementStrides(value);
    int64_t element = runs.bytes;
    for (int64_t i = type.getRank() - 1; i >= 0; --i) {
      int64_t size = type.getDimSize(i), stride = strides[i] * element;
      if (size == 1)
        continue;
      if (runs.offsets.size() == 1 && stride == runs.bytes) {
        runs.bytes *= size;
        continue;
      }
      SmallVector<int64_t, 1> all;
      for (int64_t j = 0; j < size; ++j)
        for (int64_t offset : runs.offsets)
          all.push_back(offset + j * stride);
      runs.offsets = all;
    }
    if (runs.bytes == 0)
      runs.offsets.clear();
    return runs;
  }

  void write(Value value, const Content &content) {
    Runs runs = runsOf(value);
    int64_t done = 0;
    for (int64_t offset : runs.offsets) {
      memory[runs.arena].write(runs.base + offset, part(content, done, runs.bytes));
      done += runs.bytes;
    }
    contents[value] = content;
  }

  /// New bytes for a value.
  LogicalResult create(Operation *op, Value value) {
    if (failed(checkPlace(op, value)))
      return failure();
    tags.push_back(value);
    Content content;
    append(content, {static_cast<int64_t>(tags.size()), 0, cmd::tensorBytes(cast<RankedTensorType>(value.getType()))});
    write(value, content);
    return success();
  }

  LogicalResult check(Operation *user, Value value, StringRef what) {
    if (failed(checkPlace(user, value)))
      return failure();
    Runs runs = runsOf(value);
    Content found;
    for (int64_t offset : runs.offsets)
      for (Piece piece : memory[runs.arena].read(runs.base + offset, runs.bytes))
        append(found, piece);
    if (found == contents.lookup(value))
      return success();
    InFlightDiagnostic error = user->emitOpError("memory plan: ")
                               << value.getType() << " at " << plannedBuffer(value) << ' ' << what;
    auto wanted = [&](Piece piece) {
      return llvm::any_of(contents.lookup(value), [&](Piece other) { return other.tag == piece.tag; });
    };
    auto stranger = llvm::find_if_not(found, wanted);
    if (stranger == found.end())
      return error;
    if (stranger->tag < 0)
      error.attachNote(value.getLoc()) << "it was never written";
    else if (stranger->tag > 0)
      error.attachNote(tags[stranger->tag - 1].getLoc())
          << "overwritten by " << tags[stranger->tag - 1].getType() << " from here";
    return error;
  }

  bool planned(Value value) const { return static_cast<bool>(plannedBuffer(value)); }

  LogicalResult walk(Block &block) {
    for (Operation &op : block)
      if (failed(execute(op)))
        return failure();
    return success();
  }

  LogicalResult execute(Operation &op) {
    if (auto repeat = dyn_cast<RepeatOp>(op))
      return execute(repeat);
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      Content zeros;
      append(zeros, {0, 0, extentBytes(constant)});
      contents[constant] = zeros;
      if (!planned(constant))
        return success();
      if (failed(checkPlace(constant, constant)))
        return failure();
      write(constant, zeros);
      return success();
    }
    if (auto view = op.getNumResults() == 1 ? viewOf(op.getResult(0)) : std::nullopt) {
      contents[op.getResult(0)] = viewContent(op.getResult(0), view->source);
      return success();
    }
    if (auto copy = dyn_cast<cmd::MaterializeOp>(op)) {
      Content content = contents.lookup(copy.getSource());
      if (isZero(copy.getSource()) || plannedBuffer(copy.getSource()) != plannedBuffer(copy.getResult())) {
        if (!isZero(copy.getSource()) && failed(check(copy, copy.getSource(), "is copied but was overwritten")))
          return failure();
        if (failed(checkPlace(copy, copy.getResult())))
          return failure();
        write(copy.getResult(), content);
      } else {
        contents[copy.getResult()] = content;
      }
      return success();
    }
    if (auto concat = dyn_cast<ConcatOp>(op)) {
      Content content;
      for (Value source : concat.getSources())
        for (Piece piece : contents.lookup(source))
          append(content, piece);
      contents[concat.getResult()] = content;
      return check(concat, concat.getResult(), "does not hold its sources");
    }
    if (auto await = dyn_cast<CommAwaitOp>(op)) {
      auto start = await.getFuture().getDefiningOp<CommStartOp>();
      for (Value input : start.getInputs())
        if (failed(check(await, input, "was overwritten while it was sent")))
          return failure();
      for (Value result : await.getResults()) {
        if (failed(check(await, result, "was overwritten while it was received")))
          return failure();
        if (failed(create(await, result)))
          return failure();
      }
      return success();
    }
    for (Value operand : op.getOperands())
      if (isa<RankedTensorType>(operand.getType()) && failed(check(&op, operand, "is read but was overwritten")))
        return failure();
    if (auto start = dyn_cast<CommStartOp>(op)) {
      for (Value result : awaitOf(start).getResults())
        if (failed(create(start, result))) // from now on somebody else writes here
          return failure();
      return success();
    }
    if (isa<func::ReturnOp, YieldOp>(op))
      return success();
    if (failed(checkApart(op)))
      return failure();
    for (Value result : op.getResults())
      if (failed(create(&op, result)))
        return failure();
    return success();
  }

  /// An op may write only where it does not read, but for what it updates in place.
  LogicalResult checkApart(Operation &op) {
    SmallVector<Runs> reads, writes;
    for (Value operand : op.getOperands())
      reads.push_back(runsOf(operand));
    for (auto [i, result] : llvm::enumerate(op.getResults())) {
      Runs runs = runsOf(result);
      int64_t inplace = -1;
      if (auto launch = dyn_cast<tile::LaunchOp>(op))
        inplace = launch.getInplace()[i];
      if (auto gemm = dyn_cast<tile::GemmOp>(op))
        inplace = gemm.getC() && !gemm.getApart() ? 2 : -1;
      if (auto gemm = dyn_cast<tile::GroupedGemmOp>(op))
        inplace = gemm.getC() && !gemm.getApart() ? 3 : -1;
      for (auto [j, other] : llvm::enumerate(reads)) {
        bool same = static_cast<int64_t>(j) == inplace;
        if (same && plannedBuffer(op.getOperand(j)) != plannedBuffer(result))
          return op.emitOpError("memory plan: result ")
                 << i << " is not in the buffer of operand " << j << ", which it updates";
        if (!same && runs.overlaps(other))
          return op.emitOpError("memory plan: result ") << i << " lies on operand " << j;
      }
      for (auto [j, other] : llvm::enumerate(writes))
        if (runs.overlaps(other))
          return op.emitOpError("memory plan: result ") << i << " lies on result " << j;
      writes.push_back(runs);
    }
    return success();
  }

  Content viewContent(Value view, Value source) {
    const Content content = contents.lookup(source);
    auto slice = view.getDefiningOp<SliceOp>();
    if (!slice)
      return content;
    // Rows of the source before, in and after the slice.
    auto whole = cast<RankedTensorType>(source.getType()), type = cast<RankedTensorType>(view.getType());
    int64_t inner = cmd::elementBytes(whole.getElementType()), outer = 1, dim = slice.getDim();
    for (int64_t size : whole.getShape().drop_front(dim + 1))
      inner *= size;
    for (int64_t size : whole.getShape().take_front(dim))
      outer *= size;
    Content result;
    for (int64_t i = 0; i < outer; ++i)
      for (Piece piece : part(content, (i * whole.getDimSize(dim) + static_cast<int64_t>(slice.getBegin())) * inner,
                              type.getDimSize(dim) * inner))
        append(result, piece);
    return result;
  }

  LogicalResult execute(RepeatOp repeat) {
    Block &body = repeat.getBody().front();
    unsigned carried = repeat.getCarried();
    int64_t count = repeat.getCount();
    for (Value operand : repeat.getOperands())
      if (failed(check(repeat, operand, "enters the repeat but was overwritten")))
        return failure();
    SmallVector<Content> carry, stacked(repeat.getNumResults());
    for (Value operand : repeat.getOperands().take_front(carried))
      carry.push_back(contents.lookup(operand));
    SmallVector<SmallVector<Content>> slots(repeat.getNumResults(), SmallVector<Content>(count));
    Operation *yield = body.getTerminator();
    for (int64_t iteration = 0; iteration < count; ++iteration) {
      int64_t slot = repeat.getReverse() ? count - 1 - iteration : iteration;
      iterations.push_back(iteration);
      for (BlockArgument argument : body.getArguments()) {
        unsigned i = argument.getArgNumber();
        int64_t bytes = cmd::tensorBytes(cast<RankedTensorType>(argument.getType()));
        contents[argument] = i < carried ? carry[i] : part(contents.lookup(repeat.getOperand(i)), slot * bytes, bytes);
      }
      if (failed(walk(body)))
        return failure();
      for (auto [i, value] : llvm::enumerate(yield->getOperands()))
        (i < carried ? carry[i] : slots[i][slot]) = contents.lookup(value);
      iterations.pop_back();
    }
    for (auto [i, result] : llvm::enumerate(repeat.getResults())) {
      Content content;
      if (i < carried)
        content = carry[i];
      else
        for (const Content &slot : slots[i])
          for (Piece piece : slot)
            append(content, piece);
      contents[result] = content;
      if (failed(check(repeat, result, "leaves the repeat incomplete")))
        return failure();
    }
    return success();
  }

  func::FuncOp entry;
  const Tables &tables;
  std::map<StringRef, Shadow> memory;
  llvm::DenseMap<Value, Content> contents; ///< what a value should hold, in this iteration
  std::vector<Value> tags;
  SmallVector<int64_t> iterations;
};

class ProveMemoryPlan : public braid::impl::ProveMemoryPlanPassBase<ProveMemoryPlan> {
public:
  using ProveMemoryPlanPassBase::ProveMemoryPlanPassBase;

  void runOnOperation() override {
    Tables tables(getOperation());
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (func->hasAttr(attrs::entry) && failed(Prover(func, tables).run()))
        return signalPassFailure();
  }
};

} // namespace
