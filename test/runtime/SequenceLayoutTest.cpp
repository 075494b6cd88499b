#include "runtime/schema/SequenceLayout.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

using namespace braid::runtime;

static std::vector<int64_t> tokensOf(const SequenceLayout &layout, int64_t rank) {
  std::vector<int64_t> tokens(static_cast<size_t>(layout.localLength()), -1);
  layout.stripes(rank, [&](int64_t begin, int64_t local, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      tokens.at(static_cast<size_t>(local + i)) = begin + i;
  });
  return tokens;
}

TEST(SequenceLayout, ARowInOnePieceIsContiguousStripes) {
  SequenceLayout layout{12, 3, {}};
  EXPECT_EQ(tokensOf(layout, 0), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(tokensOf(layout, 2), (std::vector<int64_t>{8, 9, 10, 11}));
  EXPECT_EQ(tokensOf(SequenceLayout{3, 1, {}}, 0), (std::vector<int64_t>{0, 1, 2}));
}

// Every slice is divided: what a rank holds of slice i depends on slices <= i of all ranks only.
TEST(SequenceLayout, EverySliceIsDivided) {
  SequenceLayout layout{12, 2, {4, 10}};
  EXPECT_EQ(tokensOf(layout, 0), (std::vector<int64_t>{0, 1, 4, 5, 6, 10}));
  EXPECT_EQ(tokensOf(layout, 1), (std::vector<int64_t>{2, 3, 7, 8, 9, 11}));
}

// What the compiler writes is what the loader reads.
TEST(SequenceLayout, TheTextOfALayoutIsThatLayout) {
  for (int64_t ranks : {1, 2, 3}) {
    SequenceLayout layout = SequenceLayout::ofLocalEnds({2, 5, 6}, ranks);
    EXPECT_EQ(layout.length, 6 * ranks);
    EXPECT_EQ(layout.text(), std::to_string(2 * ranks) + "," + std::to_string(5 * ranks));
    std::optional<SequenceLayout> read = SequenceLayout::parse(layout.text(), layout.length, ranks);
    ASSERT_TRUE(read);
    for (int64_t rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(tokensOf(*read, rank), tokensOf(layout, rank));
  }
  EXPECT_EQ(SequenceLayout::ofLocalEnds({8}, 2).text(), "");
  EXPECT_TRUE(SequenceLayout::parse("", 16, 2));
}

TEST(SequenceLayout, OtherTextsAreNone) {
  for (const char *text : {"4,", ",4", "4,4", "6,4", "5", "16", "0", "-2", "4;6", "four", "99999999999999999999"})
    EXPECT_FALSE(SequenceLayout::parse(text, 16, 2)) << text;
}
