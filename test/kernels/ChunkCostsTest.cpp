//===- ChunkCostsTest.cpp - which of the compared chunk sizes is chosen -------------------------------------------===//
#include "passes/chunk/ChunkCosts.h"

#include <gtest/gtest.h>

#include <limits>

using namespace braid;

namespace {

constexpr double none = std::numeric_limits<double>::infinity();

struct Size {
  int64_t tokens;
  double cost;
  bool noKernels = false;
};

/// The chosen size, and how many costs were asked for.
std::pair<int64_t, size_t> chosen(const std::vector<Size> &all) {
  std::vector<int64_t> sizes;
  for (const Size &size : all)
    sizes.push_back(size.tokens);
  auto of = [&](int64_t tokens) {
    return *llvm::find_if(all, [&](const Size &size) { return size.tokens == tokens; });
  };
  size_t asked = 0;
  size_t at = cheapestSize(
      sizes, [&](int64_t tokens) { return ++asked, of(tokens).cost; },
      [&](int64_t tokens) { return of(tokens).noKernels; });
  return {sizes[at], asked};
}

using Chosen = std::pair<int64_t, size_t>;

TEST(ChunkCosts, CheapestSize) {
  EXPECT_EQ(chosen({{16, 5}, {32, 4}, {64, 3}, {128, 2}}), Chosen(128, 4));
  EXPECT_EQ(chosen({{16, 5}, {32, 4}, {64, 4}, {128, 2}}), Chosen(32, 3)); // costs that rise or stay end it
  EXPECT_EQ(chosen({{16, 500}, {32, 400}, {64, 397}, {128, 200}}), Chosen(32, 3)); // what hardly falls, too
  EXPECT_EQ(chosen({{16, 500}, {32, 400}, {64, 395}, {128, 500}}), Chosen(64, 4));
  EXPECT_EQ(chosen({{16, 5}, {32, 4}, {64, none}, {128, 2}}), Chosen(32, 3)); // what does not fit, too
  EXPECT_EQ(chosen({{16, none}, {32, 4}}), Chosen(16, 1));
}

TEST(ChunkCosts, SizesWithoutKernelsArePassedOver) {
  EXPECT_EQ(chosen({{16, 5}, {32, none, true}, {64, 3}, {128, 4}}), Chosen(64, 4));
  EXPECT_EQ(chosen({{16, 5}, {32, none, true}, {64, 6}, {128, 4}}),
            Chosen(16, 3)); // compared with the last that has a cost
  EXPECT_EQ(chosen({{16, none, true}, {32, none, true}, {64, 3}}), Chosen(64, 3));
  EXPECT_EQ(chosen({{16, none, true}, {32, none, true}}), Chosen(16, 2));
}

} // namespace
