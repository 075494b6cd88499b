//===- Packing.h - offsets for buffers that live at different times -----------------------------------------------===//
// Dynamic storage allocation: each item has bytes and a life, a set of moments; offsets must keep items apart that
// share a moment. The least arena is NP-hard to find, and no arena is smaller than the most bytes alive at one moment:
// greedy placements in five orders, each repaired by placing the topmost item earlier, until one is within a hundredth
// of that bound, and a short search from the best where it is a twentieth or more above.
#ifndef PASSES_ANALYSIS_PACKING_H
#define PASSES_ANALYSIS_PACKING_H

#include "passes/analysis/Timeline.h"

namespace braid {

struct PackedItem {
  int64_t bytes;
  llvm::SmallVector<Segment> life; ///< disjoint, ascending
  int64_t offset = -1; ///< the answer
};

struct Packing {
  int64_t bytes = 0; ///< of the arena
  int64_t lowerBound = 0; ///< most bytes alive at one moment
};

/// Most bytes alive at one moment, each item rounded up to `align`: no placement needs less.
int64_t mostAlive(llvm::ArrayRef<PackedItem> items, int64_t align = 64);

/// Gives every item an offset (a multiple of `align`) such that items alive at one moment do not overlap. Greedy best
/// fit in several orders; the smallest result stays.
Packing pack(llvm::MutableArrayRef<PackedItem> items, int64_t align = 64);

} // namespace braid

#endif // PASSES_ANALYSIS_PACKING_H
