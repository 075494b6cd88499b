//===- JoinLaunches.cpp - launches of one kind of op that do not depend on each other start together --------------===//
// AdamW has a launch per tensor, a projection one per weight: each alone pays for starting the threads and leaves them
// idle at its end, and small ones have work for one thread only.
#include "dialects/cmd/CmdDialect.h"
#include "passes/Passes.h"
#include "passes/lower/CommandAccesses.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_JOINLAUNCHESPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

class JoinLaunches : public braid::impl::JoinLaunchesPassBase<JoinLaunches> {
public:
  using JoinLaunchesPassBase::JoinLaunchesPassBase;

  void runOnOperation() override {
    accesses.emplace(getOperation());
    for (auto program : getOperation().getOps<cmd::ProgramOp>())
      for (auto entry : program.getOps<cmd::EntryOp>())
        join(entry.getBody().front());
  }

private:
  void join(Block &block) {
    SmallVector<Access> group;
    StringRef kind; // of the group's launches; empty: there is none
    for (Operation &op : block) {
      if (auto repeat = dyn_cast<cmd::RepeatOp>(op)) {
        counts.push_back(repeat.getCount());
        join(repeat.getBody().front());
        counts.pop_back();
      }
      auto launch = dyn_cast<cmd::LaunchOp>(op);
      auto work = op.getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr);
      if (!launch || !work) {
        kind = {};
        continue;
      }
      SmallVector<Access> own = accesses->of(launch);
      bool joins = work.getOp() == kind && llvm::none_of(own, [&](const Access &access) {
                     return llvm::any_of(group, [&](const Access &other) {
                       return (access.written || other.written) && overlap(access.buffer, other.buffer);
                     });
                   });
      if (joins)
        launch->setAttr(cmd::kJoinedAttr, UnitAttr::get(&getContext()));
      else
        group.clear();
      llvm::append_range(group, own);
      kind = work.getOp();
    }
  }

  /// The bytes that a buffer stands for: in one iteration where both move alike, else in any.
  bool overlap(cmd::BufferAttr a, cmd::BufferAttr b) const {
    if (a.getArena() != b.getArena() || a.getBytes() == 0 || b.getBytes() == 0)
      return false;
    auto [aLow, aHigh] = reach(a);
    auto [bLow, bHigh] = reach(b);
    if (a.getStrides() == b.getStrides()) {
      aLow = a.getOffset(), aHigh = aLow + a.getBytes();
      bLow = b.getOffset(), bHigh = bLow + b.getBytes();
    }
    return aLow < bHigh && bLow < aHigh;
  }

  std::pair<int64_t, int64_t> reach(cmd::BufferAttr buffer) const {
    int64_t low = buffer.getOffset(), high = low + buffer.getBytes();
    for (auto [stride, count] : llvm::zip(buffer.getStrides(), counts))
      (stride < 0 ? low : high) += stride * std::max<int64_t>(count - 1, 0);
    return {low, high};
  }

  std::optional<CommandAccesses> accesses;
  SmallVector<int64_t> counts; ///< of the repeats around the block
};

} // namespace
