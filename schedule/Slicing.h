//===- Slicing.h - where a sequence is cut ------------------------------------------------------------------------===//
// schedules.md section 4. Slices are given as token counts, first to last; they add up to the length.
#ifndef SCHEDULE_SLICING_H
#define SCHEDULE_SLICING_H

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braid::schedule {

/// uniform: equal tokens. time_uniform: equal time by FoldMoE's Algorithm 1, as published. balanced: equal time of what
/// causal attention really costs. simulated: the least makespan of 1A1M.
enum class Slicing { uniform, time_uniform, balanced, simulated };
inline constexpr std::array<std::string_view, 4> slicingNames = {"uniform", "time_uniform", "balanced", "simulated"};
std::optional<Slicing> parseSlicing(std::string_view name);

/// FLOPs of a softmax attention layer: l tokens of context c, themselves included, cost (4 H + 3 h) l c + 8 H^2 l
/// (H = d_model, h heads).
struct AttentionCost {
  int64_t dModel = 0, heads = 0;
  int64_t ranks = 1; ///< that share every slice: a token counted here has as many more for its context
  double perPair() const {
    return (4.0 * static_cast<double>(dModel) + 3.0 * static_cast<double>(heads)) * static_cast<double>(ranks);
  }
  double perToken() const { return 8.0 * static_cast<double>(dModel) * static_cast<double>(dModel); }
  /// Tokens [begin, end), each with the tokens before it and itself as context: a triangle.
  double of(int64_t begin, int64_t end) const;
};

/// Slice i holds tokens [length i / degree, length (i + 1) / degree). 1 <= degree <= length.
std::vector<int64_t> uniformSlices(int64_t length, int64_t degree);

/// Exact arithmetic; fewer than `degree` slices where rounding up leaves no tokens for the last ones. length, d_model
/// at most 2^24, 2^17.
std::vector<int64_t> timeUniformSlices(int64_t length, int64_t degree, AttentionCost cost);

/// Every slice as near as possible to (cost of what remains) / (slices left), cut at multiples of `align` tokens. Fewer
/// slices where align leaves too few places to cut.
std::vector<int64_t> balancedSlices(int64_t length, int64_t degree, AttentionCost cost, int64_t align);

/// Times of a whole layer, unsliced, in one unit: mixers by the cost of their tokens, the rest by their number.
struct LayerTimes {
  AttentionCost cost;
  double mixer = 1, dispatch = 1, experts = 1, combine = 1;
  double overhead = 0; ///< of every task
};

/// At most `degree` slices, cut on a grid of `cells` places (or one every `align` tokens, where these are fewer): the
/// least makespan of 1A1M with one expert slice for every mixer slice, by dynamic programming over the grid.
std::vector<int64_t> simulatedSlices(int64_t length, int64_t degree, const LayerTimes &times, int64_t align,
                                     int64_t cells = 64);

/// A multiple of 16, at most 64, of which every slice holds several: what slices are aligned to if nobody says.
int64_t defaultAlignment(int64_t length, int64_t degree);

} // namespace braid::schedule

#endif // SCHEDULE_SLICING_H
