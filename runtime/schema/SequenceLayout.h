// Which tokens of a row the ranks along `sp` hold. Every token slice of the row is divided into one stripe per rank, in
// rank order, so that slice i depends on slices <= i on all ranks and causal work is balanced; a row that is not sliced
// is one slice. The compiler numbers tokens by it and writes it into the program file, the loader fills batches by it:
// both ask here, so there is nothing that could differ.
#pragma once

#include <cassert>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid::runtime {

struct SequenceLayout {
  // Metadata of a program whose rows are sliced: text() of its layout.
  static constexpr std::string_view metadataKey = "sequence_slices";

  int64_t length = 0; // tokens of a row, on all ranks
  int64_t ranks = 1; // along sp
  std::vector<int64_t> slices; // 0 < .. < length: where slices end, without the last; multiples of `ranks`

  // Of slices that end, on every rank, behind these of its own tokens; the last is all of them.
  static SequenceLayout ofLocalEnds(const std::vector<int64_t> &ends, int64_t ranks) {
    SequenceLayout layout{ends.back() * ranks, ranks, {}};
    for (std::size_t i = 0; i + 1 < ends.size(); ++i)
      layout.slices.push_back(ends[i] * ranks);
    return layout;
  }

  // Nothing where the text is not the ends of slices of such a row.
  static std::optional<SequenceLayout> parse(std::string_view text, int64_t length, int64_t ranks) {
    SequenceLayout layout{length, ranks, {}};
    const char *at = text.data(), *stop = text.data() + text.size();
    while (at != stop) {
      int64_t end = 0;
      auto [next, error] = std::from_chars(at, stop, end);
      bool separated = next == stop || (*next == ',' && next + 1 != stop);
      if (error != std::errc() || !separated || end <= layout.sliceBegin(layout.slices.size()) || end >= length ||
          end % ranks != 0)
        return std::nullopt;
      layout.slices.push_back(end);
      at = next == stop ? stop : next + 1;
    }
    return layout;
  }

  // Where slices end, without the last: "4,10".
  std::string text() const {
    std::string list;
    for (int64_t end : slices)
      list += (list.empty() ? "" : ",") + std::to_string(end);
    return list;
  }

  int64_t localLength() const { return length / ranks; }
  // The first token of a slice in the row.
  int64_t sliceBegin(std::size_t slice) const { return slice == 0 ? 0 : slices[slice - 1]; }

  // Tokens [begin, begin + count) of the row are tokens [local, local + count) of a rank.
  struct Stripe {
    int64_t begin, local, count;
  };
  Stripe stripe(std::size_t slice, int64_t rank) const {
    assert(rank >= 0 && rank < ranks && slice <= slices.size() && length % ranks == 0);
    int64_t begin = sliceBegin(slice), end = slice < slices.size() ? slices[slice] : length;
    assert((end - begin) % ranks == 0);
    return {begin + rank * ((end - begin) / ranks), begin / ranks, (end - begin) / ranks};
  }

  // Calls f(begin, local, count) for every stripe of a rank.
  template <typename F> void stripes(int64_t rank, F &&f) const {
    for (std::size_t i = 0; i <= slices.size(); ++i) {
      Stripe own = stripe(i, rank);
      f(own.begin, own.local, own.count);
    }
  }
};

} // namespace braid::runtime
