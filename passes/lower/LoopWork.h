//===- LoopWork.h - how long a kernel takes, counted from the loops that it became --------------------------------===//
// Choices between ways to write a kernel are made on what each becomes: every operation of the lowered kernel, times
// the trips of the loops around it. No formula per kernel exists, so a kernel that changes is counted as it is.
#ifndef PASSES_LOWER_LOOPWORK_H
#define PASSES_LOWER_LOOPWORK_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>

namespace braid {

/// Of an scf.if: its condition nearly always holds.
inline constexpr llvm::StringLiteral kLikelyAttr = "braid.likely";

/// Cycles per operation of one thread. What a block of code computes, loads and stores is done at the same time: it
/// takes as long as the longest of the three.
struct IssueRates {
  double compute, load, store;
  double carried; ///< at least this for an iteration that waits for the one before
  double barrier;
  bool lanesInTurn = false; ///< an operation on a vector is one for each lane; vectors are read and written as one

  /// One core of a CPU, whole vectors: two units compute, two load, one stores; a sum is there after four cycles.
  static IssueRates core() { return {0.5, 0.5, 1, 4, 0}; }
  /// A block of `threads` on a multiprocessor that issues 128 of them a cycle, and 32 of those that access memory.
  static IssueRates block(int64_t threads) {
    double each = static_cast<double>(std::max<int64_t>(threads, 32)); // a warp issues as a whole
    return {each / 128, each / 32, each / 32, 0, 30, true};
  }
};

/// Cycles of one program of a kernel's grid. `lowered`: by lowerTilesToLoops or lowerTilesToThreads; a loop whose bounds
/// are not known here walks `unknownTrips` by its steps, or as far as its tile.mean_walk says, where part of a trip is one now
/// and then; a branch goes where its condition holds or, with `otherwise`, to its other side if anything is done there and the
/// condition is not likely to hold.
double programCycles(mlir::func::FuncOp lowered, const IssueRates &rates, double unknownTrips, bool otherwise = false);

} // namespace braid

#endif // PASSES_LOWER_LOOPWORK_H
