//===- DelayWaits.cpp - other streams are waited for where their bytes are needed ---------------------------------===//
// An await stands where a function or a body of a repeat ends at the latest, though often nobody needs the bytes yet: the
// sums of gradients are read by the optimizer. Bytes say how long the compute stream may go on: to the first command that
// touches what the collective touches, one of them writing. In a repeat that may be in the next iteration; then the last
// iteration is waited for behind the repeat. PlanMemory keeps the buffers of such collectives apart. A collective on another
// stream (rows that ranks of etp gather when they have come over ep) waits by itself: its stream does, and compute goes on.
// All this is as true of what computes beside compute.
#include "passes/Passes.h"
#include "passes/lower/CommandAccesses.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_DELAYWAITSPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

class WaitSinker {
public:
  explicit WaitSinker(const CommandAccesses &accesses) : accesses(accesses) {}

  void run(Block &block) {
    for (cmd::RepeatOp repeat : llvm::to_vector(block.getOps<cmd::RepeatOp>())) {
      counts.push_back(static_cast<int64_t>(repeat.getCount()));
      run(repeat.getBody().front());
      counts.pop_back();
    }
    llvm::DenseMap<int64_t, Travelling> ends; // by the event of its end
    for (auto record : block.getOps<cmd::RecordOp>())
      if (record.getStreamAttr())
        if (Travelling what = endedBy(record); what.first)
          ends[static_cast<int64_t>(record.getEvent())] = what;
    for (cmd::WaitOp wait : llvm::to_vector(block.getOps<cmd::WaitOp>()))
      if (auto what = ends.find(static_cast<int64_t>(wait.getEvent())); what != ends.end() && !wait.getStreamAttr())
        sink(wait, what->second);
  }

private:
  /// What commands under way on another stream touch.
  struct Travelling {
    FlatSymbolRefAttr stream;
    SmallVector<Access> bytes;
    Operation *first = nullptr; ///< of these commands; null: they are those of a repeat's last iteration
  };

  /// The commands between the wait that let their stream begin and the record.
  Travelling endedBy(cmd::RecordOp record) const {
    Travelling what{record.getStreamAttr(), {}};
    for (Operation *op = record->getPrevNode();
         op && streamOf(op) == what.stream && !isa<cmd::RecordOp, cmd::WaitOp>(op); op = op->getPrevNode()) {
      llvm::append_range(what.bytes, accesses.of(op));
      what.first = op;
    }
    return what;
  }

  static FlatSymbolRefAttr streamOf(Operation *op) { return op->getAttrOfType<FlatSymbolRefAttr>("stream"); }

  void sink(cmd::WaitOp wait, const Travelling &what) {
    Block &block = *wait->getBlock();
    llvm::SmallDenseSet<Attribute> waiting; // streams that have been told
    Block::iterator begin = std::next(wait->getIterator());
    while (Operation *first = firstConflict(what, begin, block.end(), false)) {
      FlatSymbolRefAttr other = streamOf(first);
      if (!other) {
        wait->moveBefore(first);
        return;
      }
      OpBuilder builder(first);
      if (waiting.insert(other).second)
        cmd::WaitOp::create(builder, wait.getLoc(), wait.getEvent(), other, StringAttr());
      begin = std::next(first->getIterator());
    }
    auto repeat = dyn_cast<cmd::RepeatOp>(block.getParentOp());
    if (!repeat || !what.first) {
      wait->moveBefore(&block, block.end());
      return;
    }
    // The next iteration sends from the same bytes, so there it is waited for at the latest.
    Operation *own = placeBefore(what.first);
    Operation *first = firstConflict(what, block.begin(), own->getIterator(), true);
    OpBuilder builder(repeat->getContext());
    builder.setInsertionPointAfter(repeat);
    auto last = cast<cmd::WaitOp>(builder.clone(*wait));
    wait->moveBefore(first ? placeBefore(first) : own);
    Travelling behind{what.stream, what.bytes};
    for (Access &access : behind.bytes)
      access.buffer = lastIteration(access.buffer);
    counts.pop_back();
    sink(last, behind);
    counts.push_back(static_cast<int64_t>(repeat.getCount()));
  }

  /// The first command of [begin, end) that must not run before they have ended; of this iteration or the next.
  Operation *firstConflict(const Travelling &what, Block::iterator begin, Block::iterator end, bool next) {
    for (Operation &op : llvm::make_range(begin, end)) {
      if (streamOf(&op) == what.stream)
        continue; // FIFO says it already
      WalkResult met = op.walk([&](Operation *command) {
        return meets(command, what, next) ? WalkResult::interrupt() : WalkResult::advance();
      });
      if (met.wasInterrupted())
        return &op;
    }
    return nullptr;
  }

  bool meets(Operation *command, const Travelling &what, bool next) const {
    SmallVector<int64_t> inner; // counts of the repeats around the command, from those of the block on
    for (Operation *parent = command->getParentOp(); isa<cmd::RepeatOp>(parent); parent = parent->getParentOp())
      inner.insert(inner.begin(), static_cast<int64_t>(cast<cmd::RepeatOp>(parent).getCount()));
    for (const Access &access : accesses.of(command))
      for (const Access &other : what.bytes)
        if ((access.written || other.written) && overlap(other.buffer, access.buffer, inner, next))
          return true;
    return false;
  }

  /// Whether some iteration of `b`, in the repeats of these counts, touches bytes of the same iteration of `a` (`next`: of
  /// the one before) in the repeats that are around both.
  bool overlap(cmd::BufferAttr a, cmd::BufferAttr b, ArrayRef<int64_t> inner, bool next) const {
    if (a.getArena() != b.getArena())
      return false;
    int64_t low = b.getOffset() - a.getOffset(), high = low; // from a's beginning to b's
    for (size_t depth = 0; depth < inner.size(); ++depth) {
      auto stride = [&](cmd::BufferAttr buffer) {
        return depth < buffer.getStrides().size() ? buffer.getStrides()[depth] : 0;
      };
      bool both = depth < counts.size(), moves = next && depth + 1 == counts.size();
      int64_t step = stride(b) - (both ? stride(a) : 0), steps = inner[depth] - 1 - (moves ? 1 : 0);
      (step < 0 ? low : high) += step * std::max<int64_t>(steps, 0);
      if (moves)
        low += stride(b), high += stride(b);
    }
    return low < a.getBytes() && high > -b.getBytes();
  }

  /// Of the last iteration of the innermost repeat.
  cmd::BufferAttr lastIteration(cmd::BufferAttr buffer) const {
    SmallVector<int64_t> strides(buffer.getStrides());
    int64_t offset = buffer.getOffset();
    if (strides.size() >= counts.size()) {
      offset += strides[counts.size() - 1] * std::max<int64_t>(counts.back() - 1, 0);
      strides.truncate(counts.size() - 1);
    }
    return cmd::BufferAttr::get(buffer.getContext(), buffer.getArena(), offset, buffer.getBytes(), strides);
  }

  /// Another stream goes on when compute says so: what compute must know it must know before that.
  static Operation *placeBefore(Operation *op) {
    FlatSymbolRefAttr stream = streamOf(op);
    if (!stream)
      return op;
    while (Operation *before = op->getPrevNode()) {
      bool own = streamOf(before) == stream, record = isa<cmd::RecordOp>(before);
      if (record ? static_cast<bool>(streamOf(before))
                 : !own) // the end of what the stream did before, or anything else
        break;
      op = before;
    }
    return op;
  }

  const CommandAccesses &accesses;
  SmallVector<int64_t> counts; ///< of the repeats around the block
};

class DelayWaitsPass : public braid::impl::DelayWaitsPassBase<DelayWaitsPass> {
  void runOnOperation() override {
    CommandAccesses accesses(getOperation());
    for (auto program : getOperation().getOps<cmd::ProgramOp>())
      for (auto entry : program.getOps<cmd::EntryOp>())
        WaitSinker(accesses).run(entry.getBody().front());
  }
};

} // namespace
