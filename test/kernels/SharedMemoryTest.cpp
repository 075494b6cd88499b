//===- SharedMemoryTest.cpp - pieces of a block's shared memory ---------------------------------------------------===//
#include "passes/lower/ThreadLowering.h"

#include <gtest/gtest.h>

#include <random>

namespace braid::lower {
namespace {

/// The end of the last piece; fails where two that are alive together overlap.
int64_t extentOf(llvm::ArrayRef<Lifetime> pieces, llvm::ArrayRef<int64_t> offsets) {
  int64_t extent = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(offsets[i] % 16, 0);
    extent = std::max(extent, offsets[i] + pieces[i].bytes);
    for (size_t j = 0; j < i; ++j) {
      bool together = pieces[i].begin < pieces[j].end && pieces[j].begin < pieces[i].end;
      EXPECT_FALSE(together && offsets[i] < offsets[j] + pieces[j].bytes && offsets[j] < offsets[i] + pieces[i].bytes)
          << "pieces " << j << " and " << i;
    }
  }
  return extent;
}

TEST(SharedMemory, HolesAreFilled) {
  // A small piece that stays behind a large one that goes, then a larger one: by first fit it would lie behind both.
  Lifetime pieces[] = {{64, 0, 3}, {16, 1, 9}, {96, 4, 8}};
  EXPECT_EQ(extentOf(pieces, pack(pieces)), 112);
}

TEST(SharedMemory, NothingOverlaps) {
  std::mt19937 random(1);
  auto draw = [&](int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random); };
  for (int round = 0; round < 200; ++round) {
    llvm::SmallVector<Lifetime> pieces;
    for (int64_t i = 0, count = draw(1, 40); i < count; ++i) {
      int64_t begin = draw(0, 60);
      pieces.push_back({16 * draw(1, 200), begin, begin + draw(1, 30)});
    }
    int64_t most = 0;
    for (int64_t at = 0; at < 100; ++at) {
      int64_t alive = 0;
      for (const Lifetime &one : pieces)
        alive += one.begin <= at && at < one.end ? one.bytes : 0;
      most = std::max(most, alive);
    }
    int64_t extent = extentOf(pieces, pack(pieces));
    EXPECT_GE(extent, most);
    EXPECT_LE(extent, 2 * most);
  }
}

} // namespace
} // namespace braid::lower
