//===- ProveSchedule.cpp - streams and events of a command list, proved -------------------------------------------===//
// The list in program order says what must be computed; streams run it at the same time, held together by records and
// waits only. Two commands on different streams that touch the same bytes, one of them writing, must run in the order
// of the list whatever the streams' speed: each such pair is a dependence of a problem that schedule/Verify judges.
// Every iteration of every repeat is walked: what stands behind a repeat reads what its last iterations wrote.
// Nothing here knows how slices were woven or where LowerToCommands put an event.
#include "passes/Passes.h"
#include "passes/lower/CommandAccesses.h"
#include "schedule/Verify.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_PROVESCHEDULEPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

struct Range {
  Attribute arena;
  int64_t begin, end;
  bool written;
  bool conflicts(const Range &other) const {
    return (written || other.written) && arena == other.arena && begin < other.end && other.begin < end;
  }
};

class EntryProof {
public:
  EntryProof(const CommandAccesses &accesses, cmd::ProgramOp program, cmd::EntryOp entry)
      : accesses(accesses), entry(entry) {
    problem.streams = {"compute"};
    for (auto stream : program.getOps<cmd::StreamOp>())
      if (stream.getSymName() != "compute") {
        streams[stream.getSymName()] = static_cast<int64_t>(problem.streams.size());
        problem.streams.push_back(stream.getSymName().str());
      }
    size_t count = problem.streams.size();
    entry.walk([&](cmd::RecordOp record) { records[static_cast<int64_t>(record.getEvent())].push_back(record); });
    schedule.orders.resize(count);
    pending.resize(count);
    seen.assign(count, SmallVector<int64_t>(count, 0));
  }

  LogicalResult run() {
    if (problem.streams.size() == 1)
      return success();
    if (failed(walk(entry.getBody().front())))
      return failure();
    for (const std::string &error : schedule::verifyOrder(problem, schedule))
      return entry.emitOpError() << "has streams that are not held together: " << error;
    return success();
  }

private:
  LogicalResult walk(Block &block) {
    for (Operation &op : block) {
      if (auto repeat = dyn_cast<cmd::RepeatOp>(op)) {
        for (int64_t i = 0; i < static_cast<int64_t>(repeat.getCount()); ++i) {
          iterations.push_back(i);
          LogicalResult done = walk(repeat.getBody().front());
          iterations.pop_back();
          if (failed(done))
            return failure();
        }
        continue;
      }
      int64_t stream = streamOf(op);
      if (isa<cmd::RecordOp>(op)) {
        events[static_cast<int64_t>(cast<cmd::RecordOp>(op).getEvent())] = {
            stream, static_cast<int64_t>(schedule.orders[stream].size()), seen[stream]};
      } else if (auto wait = dyn_cast<cmd::WaitOp>(op)) {
        // The last recording in the order of the list; of a repeat's event, in the first iteration there may be none.
        auto event = events.find(static_cast<int64_t>(wait.getEvent()));
        if (event != events.end())
          learn(stream, event->second);
        else if (!isRecordedLater(wait))
          return wait.emitOpError() << "waits for event " << wait.getEvent()
                                    << ", which nothing in front of it records";
      } else {
        addTask(op, stream);
      }
    }
    return success();
  }

  /// What had run on a stream when an event was recorded, and what that stream knew of the others.
  struct Event {
    int64_t stream, count;
    SmallVector<int64_t> seen;
  };

  void learn(int64_t stream, const Event &event) {
    if (event.stream == stream)
      return; // FIFO says it already
    if (event.count > 0)
      pending[stream].push_back(schedule.orders[event.stream][event.count - 1]);
    for (auto [mine, theirs] : llvm::zip_equal(seen[stream], event.seen))
      mine = std::max(mine, theirs);
    seen[stream][event.stream] = std::max(seen[stream][event.stream], event.count);
  }

  /// By an iteration of a repeat that is around the wait.
  bool isRecordedLater(cmd::WaitOp wait) const {
    auto known = records.find(static_cast<int64_t>(wait.getEvent()));
    return known != records.end() && llvm::any_of(known->second, [&](Operation *record) {
             for (auto repeat = wait->getParentOfType<cmd::RepeatOp>(); repeat;
                  repeat = repeat->getParentOfType<cmd::RepeatOp>())
               if (repeat->isAncestor(record))
                 return true;
             return false;
           });
  }

  void addTask(Operation &op, int64_t stream) {
    auto task = static_cast<int64_t>(problem.tasks.size());
    SmallVector<Range> own;
    for (const Access &access : accesses.of(&op)) {
      int64_t begin = access.buffer.getOffset();
      for (auto [stride, iteration] : llvm::zip(access.buffer.getStrides(), iterations))
        begin += stride * iteration;
      own.push_back({access.buffer.getArena(), begin, begin + access.buffer.getBytes(), access.written});
    }
    std::vector<int64_t> after;
    for (size_t other = 0; other < schedule.orders.size(); ++other) {
      if (static_cast<int64_t>(other) == stream)
        continue;
      // Commands that this stream has waited for need no second look.
      ArrayRef<int64_t> order = schedule.orders[other];
      for (int64_t before : order.drop_front(seen[stream][other]))
        if (llvm::any_of(own, [&](const Range &range) {
              return llvm::any_of(ranges[before], [&](const Range &theirs) { return range.conflicts(theirs); });
            }))
          after.push_back(before);
    }
    problem.tasks.push_back({nameOf(op), stream, 0, std::move(after)});
    schedule.orders[stream].push_back(task);
    schedule.waits.push_back(std::move(pending[stream]));
    pending[stream].clear();
    ranges.push_back(std::move(own));
  }

  int64_t streamOf(Operation &op) const {
    auto stream = op.getAttrOfType<FlatSymbolRefAttr>("stream");
    return stream ? streams.lookup(stream.getValue()) : 0;
  }

  std::string nameOf(Operation &op) const {
    auto name = op.getAttrOfType<StringAttr>("name");
    std::string text = "'" + (name ? name.getValue().str() : op.getName().getStringRef().str()) + "'";
    for (auto [i, iteration] : llvm::enumerate(iterations))
      text += (i == 0 ? " of iteration " : ".") + std::to_string(iteration);
    return text;
  }

  const CommandAccesses &accesses;
  cmd::EntryOp entry;
  llvm::StringMap<int64_t> streams;
  schedule::Problem problem;
  schedule::Schedule schedule;
  std::vector<SmallVector<Range>> ranges; ///< per task
  std::vector<std::vector<int64_t>> pending; ///< per stream: what its next command waits for
  SmallVector<SmallVector<int64_t>> seen; ///< per stream: commands of the others that have surely run
  llvm::DenseMap<int64_t, SmallVector<Operation *>> records; ///< of every event
  llvm::DenseMap<int64_t, Event> events; ///< when they were recorded last
  SmallVector<int64_t> iterations;
};

class ProveSchedulePass : public braid::impl::ProveSchedulePassBase<ProveSchedulePass> {
  void runOnOperation() override {
    CommandAccesses accesses(getOperation());
    for (auto program : getOperation().getOps<cmd::ProgramOp>())
      for (auto entry : program.getOps<cmd::EntryOp>())
        if (failed(EntryProof(accesses, program, entry).run()))
          return signalPassFailure();
  }
};

} // namespace
