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
/// A1M1: mixer and expert slices take turns (FoldMoE's 1A1M). crossBlock: the same turns go on over block edges. best:
/// the fastest of these and what a search finds.
enum class Pipeline { none, moe, aAaM, A1M1, crossBlock, best };
inline constexpr std::array<std::string_view, 6> pipelineNames = {"none", "moe", "aAaM", "1A1M", "cross-block", "best"};
std::optional<Pipeline> parsePipeline(std::string_view name);

/// Orders of micro-batches on a stage of a pipeline of ranks (braid.stage_order; passes/README.md).
inline constexpr std::array<std::string_view, 2> stageOrderNames = {"1F1B", "ZB-H1"};

/// Stages of a pipeline of ranks that have the head: the last whole, all a part of its words each, or whichever takes less.
inline constexpr std::array<std::string_view, 3> headStagesNames = {"auto", "last", "all"};

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
  bool crossBlock = false; ///< orders may go on over block edges; pipeline crossBlock says it, too
  bool keepSlices = false; ///< best: only orders of these slices, none that merges them
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

/// One list of all tasks, by name: the order of compute, every communication as early as its own order and what it
/// waits for allow. What a compiler writes down in program order.
std::vector<std::string> programOrder(const Plan &plan);

} // namespace braid::schedule

#endif // SCHEDULE_STAGES_H
