// The tripwire of training: a step whose loss or gradient norm is not finite changes no parameter, and is then repeated
// under a watch that says which command made the first such value.
#pragma once

#include "runtime/RunWatcher.h"
#include "runtime/train/Rank.h"

namespace braid::runtime {

// Ends a run before its update when a watched value is not finite. The same on every rank: the values are.
class UpdateGuard final : public RunWatcher {
public:
  // `earlier`: the loss of the batches of the same update that ran before.
  UpdateGuard(const double &earlier, TensorView loss, TensorView gradNorm)
      : earlier(earlier), loss(loss), gradNorm(gradNorm) {}

  bool beforeUpdate() override;
  // Of the last run: it ended before the update.
  bool tripped() const { return ended; }
  void reset() { ended = false; }
  // From now on every run ends there; tripped() still says whether a value was not finite.
  void endAlways() { always = true; }

private:
  const double &earlier;
  TensorView loss, gradNorm;
  bool ended = false, always = false;
};

// Looks at what every command of stream 0 writes, and ends every run before its update. What a kernel writes, and of
// which type, stands in the program.
class FiniteSearch final : public RunWatcher {
public:
  explicit FiniteSearch(Session &session) : session(session) {}

  // Zeroes the arenas that hold nothing between runs, so that old values are not taken for new ones.
  void clearScratch();
  bool beforeUpdate() override { return false; }
  bool everyCommand() const override { return true; }
  void before(const WatchedCommand &watched) override;
  void after(const WatchedCommand &watched) override;

  // A sentence about the first NaN (infinity, when there is no NaN) in the order of execution, and an infinity before it;
  // empty: none was written. `order` is its place: the number of commands before it; `at`, the nanosecond when it was seen, says
  // which of two came first in lists that are not the same: values go from one stage of a pipeline to another.
  struct Found {
    std::string text;
    uint64_t order = UINT64_MAX, at = UINT64_MAX;
  };
  Found found() const;

private:
  struct Written {
    std::string name; // of the kernel's argument; empty: the result of a library call
    DType type;
    std::span<std::byte> bytes;
    std::vector<std::byte> old;
  };
  void collect(const WatchedCommand &watched);
  std::string describe(const WatchedCommand &watched, const Written &written, size_t element, double value) const;

  Session &session;
  std::vector<Written> outputs; // of the command that runs
  uint64_t executed = 0;
  Found firstNan, firstInfinity;
};

} // namespace braid::runtime
