//===- Stages.h - attention-MoE token pipelining: blocks of A, D, G, M, R, C and their orders ---------------------===//
// schedules.md, sections 1 and 2. Per block and slice: A (sequence mixer) -> D (dispatch) -> [G (all-gather, etp)] ->
// M (experts) -> [R (reduce-scatter, etp)] -> C (combine). A and M compute, D and C are on stream "comm", G and R on
// "etp". A_i follows A_(i-1); D_j every A that shares a token with MoE slice j; a block's A_0 all C of the block before
// it or, across blocks, A_i only the C that cover its tokens. Backward is the transposed graph, every order reversed,
// and weight gradients (WA, WM) fill its gaps.
#ifndef SCHEDULE_STAGES_H
#define SCHEDULE_STAGES_H

#include "schedule/Problem.h"

#include <array>
#include <optional>
#include <string_view>

namespace braid::schedule {

/// none: one slice. moe: the mixer whole, experts sliced (Tutel). aAaM: all mixer slices, then all expert slices.
/// A1M1: mixer and expert slices take turns (FoldMoE's 1A1M). best: the fastest of these and what a search finds.
enum class Pipeline { none, moe, aAaM, A1M1, best };
inline constexpr std::array<std::string_view, 5> pipelineNames = {"none", "moe", "aAaM", "1A1M", "best"};
std::optional<Pipeline> parsePipeline(std::string_view name);

enum class Direction { forward, backward };
inline constexpr std::array<std::string_view, 2> directionNames = {"forward", "backward"};

/// Times of one block, one entry per slice, all in one unit; backward: under the index of the forward slice.
struct BlockTimes {
  std::vector<double> A, D, M, C;
  std::vector<double> G, R; ///< empty: experts are not split (etp = 1)
  /// Backward: weight gradients of mixer and experts, one per slice, or one for all (it waits for every slice); nothing
  /// waits for them. Empty: they are part of A and M.
  std::vector<double> WA, WM;
  std::vector<int64_t> slices, moeSlices; ///< tokens per A, per D; empty: one to one
};

struct Stages {
  Pipeline pipeline = Pipeline::A1M1;
  Direction direction = Direction::forward;
  bool crossBlock = false;
  double computeOverhead = 0, commOverhead = 0; ///< added to every task
  std::vector<BlockTimes> blocks;
};

/// What is wrong, as "blocks[1].C: 3 times, but blocks[1].M has 4"; nothing: planStages takes it.
std::optional<std::string> checkStages(const Stages &stages);

struct Plan {
  Problem problem;
  Schedule schedule;
  double lowerBound = 0;
  bool optimal = false; ///< proved: no order of these slices is faster
  std::string how; ///< which order it is, and why it was taken
};

/// The order that stages.pipeline names, simulated. Only for stages without an error.
Plan planStages(const Stages &stages);

/// The compute order of `slices` mixer and as many expert slices of one block, as pairs of kind ('A', 'M') and slice:
/// what a compiler weaves. Backward: the order in which their gradients run.
struct Turn {
  char kind;
  int64_t slice;
};
std::vector<Turn> computeOrder(Pipeline pipeline, Direction direction, int64_t slices);

} // namespace braid::schedule

#endif // SCHEDULE_STAGES_H
