//===- Stages.cpp - the graph of attention-MoE blocks and its named orders ----------------------------------------===//
#include "schedule/Stages.h"
#include "schedule/Solve.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

using namespace braid::schedule;

std::optional<Pipeline> braid::schedule::parsePipeline(std::string_view name) {
  auto found = std::find(pipelineNames.begin(), pipelineNames.end(), name);
  if (found == pipelineNames.end())
    return std::nullopt;
  return static_cast<Pipeline>(found - pipelineNames.begin());
}

//===- Which slices share a token ---------------------------------------------------------------------------------===//

namespace {

/// Slices of two grids over the same tokens; one to one where both have as many and a grid is not given.
class Overlap {
public:
  Overlap(size_t firstCount, std::vector<int64_t> first, size_t secondCount, std::vector<int64_t> second)
      : oneToOne(first.empty() || second.empty()), everyPair(oneToOne && (firstCount == 1 || secondCount == 1)) {
    if (!oneToOne) {
      std::partial_sum(first.begin(), first.end(), std::back_inserter(firstEnd));
      std::partial_sum(second.begin(), second.end(), std::back_inserter(secondEnd));
    }
  }
  bool operator()(int64_t i, int64_t j) const {
    if (oneToOne)
      return everyPair || i == j;
    auto begin = [](const std::vector<int64_t> &ends, int64_t k) { return k == 0 ? 0 : ends[k - 1]; };
    return begin(firstEnd, i) < secondEnd[j] && begin(secondEnd, j) < firstEnd[i];
  }

private:
  bool oneToOne, everyPair;
  std::vector<int64_t> firstEnd, secondEnd;
};

std::vector<int64_t> moeGrid(const BlockTimes &block) {
  return block.moeSlices.empty() && block.A.size() == block.D.size() ? block.slices : block.moeSlices;
}
std::vector<int64_t> mixerGrid(const BlockTimes &block) {
  return block.slices.empty() && block.A.size() == block.D.size() ? block.moeSlices : block.slices;
}
int64_t sum(const std::vector<int64_t> &values) { return std::accumulate(values.begin(), values.end(), int64_t(0)); }
double sum(const std::vector<double> &values) { return std::accumulate(values.begin(), values.end(), 0.0); }

} // namespace

//===- Rules ------------------------------------------------------------------------------------------------------===//

/// Sums of such times, and products of two counts of them, stay finite.
constexpr double mostTime = 1e300;

static bool isTime(double value) { return value >= 0 && !std::isinf(value); }
static std::string notATime(const std::string &path, double value) {
  return fmt::format("{}: {} is no time; valid: 0 or more", path, value);
}

static std::optional<std::string> checkBlock(const BlockTimes &block, Direction direction, const std::string &path) {
  struct List {
    const char *name;
    const std::vector<double> &times;
    bool optional;
  };
  for (const List &list : {List{"A", block.A, false},
                           {"D", block.D, false},
                           {"G", block.G, true},
                           {"M", block.M, false},
                           {"R", block.R, true},
                           {"C", block.C, false}}) {
    if (list.times.empty() && !list.optional)
      return fmt::format("{}.{}: no times; valid: one per slice", path, list.name);
    for (size_t i = 0; i < list.times.size(); ++i)
      if (!isTime(list.times[i]))
        return notATime(fmt::format("{}.{}[{}]", path, list.name, i), list.times[i]);
    bool isMixer = list.name[0] == 'A';
    if (!isMixer && !list.times.empty() && list.times.size() != block.D.size())
      return fmt::format("{}.{}: {} times, but {}.D has {}", path, list.name, list.times.size(), path, block.D.size());
  }
  for (const auto &[name, times, of, count] :
       {std::tuple("WA", &block.WA, "A", block.A.size()), {"WM", &block.WM, "M", block.M.size()}}) {
    if (!times->empty() && direction == Direction::forward)
      return fmt::format("{}.{}: weight gradients, but direction is forward; valid: backward", path, name);
    if (times->size() > 1 && times->size() != count)
      return fmt::format("{}.{}: {} times, but {}.{} has {}; valid: as many, or 1", path, name, times->size(), path, of,
                         count);
    for (size_t i = 0; i < times->size(); ++i)
      if (!isTime((*times)[i]))
        return notATime(fmt::format("{}.{}[{}]", path, name, i), (*times)[i]);
  }
  auto checkGrid = [&](const char *name, const std::vector<int64_t> &grid, const char *of,
                       size_t count) -> std::optional<std::string> {
    if (!grid.empty() && grid.size() != count)
      return fmt::format("{}.{}: {} slices, but {}.{} has {} times", path, name, grid.size(), path, of, count);
    for (size_t i = 0; i < grid.size(); ++i)
      if (grid[i] < 1)
        return fmt::format("{}.{}[{}]: {} tokens; valid: 1 or more", path, name, i, grid[i]);
    return std::nullopt;
  };
  if (auto error = checkGrid("slices", block.slices, "A", block.A.size()))
    return error;
  if (auto error = checkGrid("moe_slices", block.moeSlices, "D", block.D.size()))
    return error;
  std::vector<int64_t> mixer = mixerGrid(block), moe = moeGrid(block);
  if (block.A.size() != block.D.size() && block.A.size() != 1 && block.D.size() != 1 && (mixer.empty() || moe.empty()))
    return fmt::format("{}.{}: absent, but {}.A has {} slices and {}.D has {}; valid: one to one, or both grids", path,
                       mixer.empty() ? "slices" : "moe_slices", path, block.A.size(), path, block.D.size());
  if (!mixer.empty() && !moe.empty() && sum(mixer) != sum(moe))
    return fmt::format("{}.moe_slices: {} tokens, but {}.slices has {}", path, sum(moe), path, sum(mixer));
  return std::nullopt;
}

std::optional<std::string> braid::schedule::checkStages(const Stages &stages) {
  if (stages.blocks.empty())
    return "blocks: empty; valid: one block or more";
  for (auto [name, overhead] :
       {std::pair("overhead.compute", stages.computeOverhead), {"overhead.comm", stages.commOverhead}})
    if (!isTime(overhead))
      return notATime(name, overhead);
  for (size_t b = 0; b < stages.blocks.size(); ++b) {
    const BlockTimes &block = stages.blocks[b];
    std::string path = fmt::format("blocks[{}]", b);
    if (auto error = checkBlock(block, stages.direction, path))
      return error;
    if (b == 0 || (!stages.crossBlock && stages.pipeline != Pipeline::crossBlock))
      continue;
    const BlockTimes &before = stages.blocks[b - 1];
    std::string pathBefore = fmt::format("blocks[{}]", b - 1);
    std::vector<int64_t> moe = moeGrid(before), mixer = mixerGrid(block);
    bool known = !moe.empty() && !mixer.empty();
    if (known && sum(moe) != sum(mixer))
      return fmt::format("{}.slices: {} tokens, but {}.moe_slices has {}", path, sum(mixer), pathBefore, sum(moe));
    if (!known && before.D.size() != block.A.size() && before.D.size() != 1 && block.A.size() != 1)
      return fmt::format(
          "{}.A: {} slices, but {}.D has {}, and cross_block needs to know which share tokens; valid: as "
          "many, or slices and moe_slices in both",
          path, block.A.size(), pathBefore, before.D.size());
  }
  double total = 0; // of all streams: no order ends later
  for (const BlockTimes &block : stages.blocks)
    for (auto [times, overhead] : {std::pair(&block.A, stages.computeOverhead),
                                   {&block.M, stages.computeOverhead},
                                   {&block.WA, stages.computeOverhead},
                                   {&block.WM, stages.computeOverhead},
                                   {&block.D, stages.commOverhead},
                                   {&block.C, stages.commOverhead},
                                   {&block.G, stages.commOverhead},
                                   {&block.R, stages.commOverhead}})
      for (double time : *times)
        total += time + overhead;
  if (!(total <= mostTime))
    return fmt::format("blocks: all times together are {:.3g}; valid: at most {:g}, in a larger unit", total, mostTime);
  return std::nullopt;
}

//===- Graph ------------------------------------------------------------------------------------------------------===//

namespace {

/// What a block does unsliced.
enum class Merge { nothing, mixer, all };

BlockTimes merged(const BlockTimes &block, Merge merge) {
  BlockTimes result = block;
  if (merge == Merge::nothing)
    return result;
  result.slices = mixerGrid(block);
  result.moeSlices = moeGrid(block);
  auto join = [](auto &list) {
    if (!list.empty())
      list = {sum(list)};
  };
  join(result.A);
  join(result.WA);
  join(result.slices);
  if (merge == Merge::all)
    for (std::vector<double> *list : {&result.D, &result.G, &result.M, &result.WM, &result.R, &result.C})
      join(*list);
  if (merge == Merge::all)
    join(result.moeSlices);
  return result;
}

/// The forward graph of the blocks, and what orders ask about it.
class Weave {
public:
  Weave(const Stages &stages, std::vector<BlockTimes> blockTimes) : stages(stages), blocks(std::move(blockTimes)) {
    problem.streams = {"compute", "comm", "etp"};
    for (size_t b = 0; b < blocks.size(); ++b)
      addBlock(b);
  }

  /// All mixer slices of a block, then all its expert slices.
  Orders oneAfterTheOther() const {
    Orders orders(3);
    for (size_t b = 0; b < blocks.size(); ++b) {
      for (int64_t task : ids[b].A)
        orders[0].push_back(task);
      for (int64_t task : ids[b].M)
        orders[0].push_back(task);
      for (const std::vector<int64_t> *list : {&ids[b].D, &ids[b].C})
        orders[1].insert(orders[1].end(), list->begin(), list->end());
      for (const std::vector<int64_t> *list : {&ids[b].G, &ids[b].R})
        orders[2].insert(orders[2].end(), list->begin(), list->end());
    }
    return orders;
  }

  /// Before the experts of a slice, the mixer slices that the next one needs, over block edges too, unless these wait
  /// for the slice itself. Communication takes the same turns.
  Orders inTurns() const {
    Orders orders(3);
    size_t mixer = 0, lastD = 0;
    for (size_t k = 0; k < turns.size(); ++k) {
      auto pushMixers = [&](size_t until, bool onlyFree) {
        while (mixer < until && (!onlyFree || mixers[mixer].waitsFor < static_cast<int64_t>(k)))
          orders[0].push_back(mixers[mixer++].task);
      };
      auto pushDispatch = [&](size_t turn) {
        if (lastD > turn)
          return;
        orders[1].push_back(turns[turn].D);
        if (turns[turn].G >= 0)
          orders[2].push_back(turns[turn].G);
        ++lastD;
      };
      pushMixers(turns[k].mixers, /*onlyFree=*/false);
      pushDispatch(k);
      if (k + 1 < turns.size()) {
        pushMixers(turns[k + 1].mixers, /*onlyFree=*/true);
        if (mixer >= turns[k + 1].mixers)
          pushDispatch(k + 1);
      }
      orders[0].push_back(turns[k].M);
      if (turns[k].R >= 0)
        orders[2].push_back(turns[k].R);
      orders[1].push_back(turns[k].C);
    }
    return orders;
  }

  Problem problem;
  std::vector<int64_t> fillers; ///< weight gradients

private:
  struct Ids {
    std::vector<int64_t> A, D, G, M, R, C;
  };
  struct Mixer {
    int64_t task, waitsFor; ///< the last turn whose combine it needs, -1 for none
  };
  struct Turn {
    int64_t D, G, M, R, C;
    size_t mixers; ///< how many mixer slices, of all blocks, it needs
  };

  std::vector<int64_t> addTasks(std::string_view kind, size_t b, const std::vector<double> &times, int64_t stream) {
    std::vector<int64_t> list;
    double overhead = stream == 0 ? stages.computeOverhead : stages.commOverhead;
    for (size_t i = 0; i < times.size(); ++i) {
      list.push_back(static_cast<int64_t>(problem.tasks.size()));
      problem.tasks.push_back({fmt::format("{}{}.{}", kind, b, i), stream, times[i] + overhead, {}});
    }
    return list;
  }

  void addBlock(size_t b) {
    const BlockTimes &block = blocks[b];
    Ids own;
    own.A = addTasks("A", b, block.A, 0);
    own.D = addTasks("D", b, block.D, 1);
    own.G = addTasks("G", b, block.G, 2);
    own.M = addTasks("M", b, block.M, 0);
    own.R = addTasks("R", b, block.R, 2);
    own.C = addTasks("C", b, block.C, 1);
    auto need = [&](int64_t task, int64_t before) { problem.tasks[task].after.push_back(before); };
    // This graph is the forward one: what a weight gradient waits for in the transposed one waits for it here.
    auto addFillers = [&](std::string_view kind, const std::vector<double> &times, const std::vector<int64_t> &of) {
      std::vector<int64_t> list = addTasks(kind, b, times, 0);
      for (size_t i = 0; i < of.size() && !list.empty(); ++i)
        need(of[i], list.size() == 1 ? list[0] : list[i]);
      // Slices add to one sum, the last one first.
      for (size_t i = 1; i < list.size(); ++i)
        need(list[i], list[i - 1]);
      fillers.insert(fillers.end(), list.begin(), list.end());
    };
    addFillers("WA", block.WA, own.A);
    addFillers("WM", block.WM, own.M);
    Overlap shares(own.A.size(), mixerGrid(block), own.D.size(), moeGrid(block));
    size_t mixersBefore = mixers.size();
    for (size_t i = 0; i < own.A.size(); ++i) {
      int64_t waitsFor = -1;
      if (i > 0)
        need(own.A[i], own.A[i - 1]);
      if (b > 0) {
        const Ids &last = ids.back();
        Overlap covers(last.C.size(), moeGrid(blocks[b - 1]), own.A.size(), mixerGrid(block));
        for (size_t j = 0; j < last.C.size(); ++j)
          if (stages.crossBlock ? covers(j, i) : i == 0) {
            need(own.A[i], last.C[j]);
            waitsFor = static_cast<int64_t>(turns.size() - last.C.size() + j);
          }
      }
      mixers.push_back({own.A[i], waitsFor});
    }
    for (size_t j = 0; j < own.D.size(); ++j) {
      Turn turn{own.D[j], own.G.empty() ? -1 : own.G[j], own.M[j], own.R.empty() ? -1 : own.R[j], own.C[j], 0};
      for (size_t i = 0; i < own.A.size(); ++i)
        if (shares(i, j)) {
          need(turn.D, own.A[i]);
          turn.mixers = mixersBefore + i + 1;
        }
      int64_t last = turn.D;
      for (int64_t task : {turn.G, turn.M, turn.R, turn.C})
        if (task >= 0) {
          need(task, last);
          last = task;
        }
      turns.push_back(turn);
    }
    ids.push_back(std::move(own));
  }

  const Stages &stages;
  std::vector<BlockTimes> blocks;
  std::vector<Ids> ids;
  std::vector<Mixer> mixers;
  std::vector<Turn> turns;
};

/// The transposed graph.
Problem transposed(Problem problem) {
  std::vector<std::vector<int64_t>> after(problem.tasks.size());
  for (size_t task = 0; task < problem.tasks.size(); ++task)
    for (int64_t before : problem.tasks[task].after)
      after[before].push_back(static_cast<int64_t>(task));
  for (size_t task = 0; task < problem.tasks.size(); ++task)
    problem.tasks[task].after = std::move(after[task]);
  return problem;
}

struct Candidate {
  Problem problem;
  Solution solution;
  std::string how;
};

/// A problem of these blocks with its named orders, in the direction of the stages.
struct Directed {
  Directed(const Stages &stages, std::vector<BlockTimes> blocks) {
    Weave weave(stages, std::move(blocks));
    inTurns = weave.inTurns();
    oneAfterTheOther = weave.oneAfterTheOther();
    problem = std::move(weave.problem);
    if (stages.direction == Direction::forward)
      return;
    problem = transposed(std::move(problem));
    for (Orders *orders : {&inTurns, &oneAfterTheOther}) {
      for (std::vector<int64_t> &order : *orders)
        std::reverse(order.begin(), order.end());
      *orders = fillGaps(problem, *orders, weave.fillers);
    }
  }
  Problem problem;
  Orders inTurns, oneAfterTheOther;
};

} // namespace

//===- Plans ------------------------------------------------------------------------------------------------------===//

static std::vector<BlockTimes> mergeAll(const std::vector<BlockTimes> &blocks, Merge merge) {
  std::vector<BlockTimes> result;
  for (const BlockTimes &block : blocks)
    result.push_back(merged(block, merge));
  return result;
}

static Plan finish(Problem problem, const Orders &orders, std::string how) {
  Plan plan;
  plan.schedule = *simulate(problem, orders);
  plan.lowerBound = lowerBound(problem);
  plan.optimal = measure(problem, plan.schedule).makespan <= plan.lowerBound * (1 + 1e-9);
  plan.problem = std::move(problem);
  plan.how = std::move(how);
  return plan;
}

/// Unsliced, with the mixer whole, and sliced: the fastest of the named orders and of what a search makes of them.
static Candidate solve(const Stages &stages, const std::vector<BlockTimes> &blocks) {
  std::optional<Candidate> best;
  auto offer = [&](Candidate candidate) {
    // What is not sliced must win by more than rounding: slices can do the same, and more.
    if (!best || candidate.solution.makespan < best->solution.makespan * (1 - 1e-12))
      best = std::move(candidate);
  };
  Directed sliced(stages, blocks);
  std::vector<NamedOrders> named = {{"1A1M", sliced.inTurns}, {"aAaM", sliced.oneAfterTheOther}};
  if (stages.crossBlock && blocks.size() > 1) {
    // The orders with a barrier are orders of this problem too.
    Stages barrier = stages;
    barrier.crossBlock = false;
    Directed other(barrier, blocks);
    named.push_back({"1A1M with a barrier at block edges", std::move(other.inTurns)});
  }
  Solution solution = search(sliced.problem, named);
  std::string how = solution.how;
  offer({std::move(sliced.problem), std::move(solution), std::move(how)});
  if (stages.keepSlices)
    return std::move(*best);
  for (auto [merge, name] : {std::pair(Merge::mixer, "moe"), {Merge::all, "none"}}) {
    Directed whole(stages, mergeAll(blocks, merge));
    Solution named{whole.oneAfterTheOther, makespanOf(whole.problem, whole.oneAfterTheOther), false, name};
    offer({std::move(whole.problem), std::move(named), name});
  }
  return std::move(*best);
}

static Plan planBest(const Stages &stages) {
  bool fills = std::any_of(stages.blocks.begin(), stages.blocks.end(),
                           [](const BlockTimes &b) { return !b.WA.empty() || !b.WM.empty(); });
  if (stages.crossBlock || fills || stages.blocks.size() == 1) {
    Candidate best = solve(stages, stages.blocks);
    Plan plan = finish(std::move(best.problem), best.solution.orders, best.how);
    plan.optimal |= best.solution.optimal;
    return plan;
  }
  // A barrier at every block edge, which weight gradients would cross: blocks one by one, each as it is fastest. Then
  // all of them as one problem.
  std::vector<Candidate> best;
  for (const BlockTimes &block : stages.blocks) {
    auto same = [&](const BlockTimes &other) {
      auto all = [](const BlockTimes &b) { return std::tie(b.A, b.D, b.G, b.M, b.R, b.C, b.slices, b.moeSlices); };
      return all(block) == all(other);
    };
    auto known = std::find_if(stages.blocks.begin(), stages.blocks.end(), same);
    size_t index = known - stages.blocks.begin();
    if (index < best.size())
      best.push_back(best[index]);
    else
      best.push_back(solve(stages, {block}));
  }
  std::vector<BlockTimes> blocks;
  std::string how;
  bool optimal = true;
  for (size_t b = 0; b < best.size(); ++b) {
    Merge merge = best[b].how == "none" ? Merge::all : best[b].how == "moe" ? Merge::mixer : Merge::nothing;
    blocks.push_back(merged(stages.blocks[b], merge));
    how += (b ? "; " : "") + fmt::format("block {}: {}", b, best[b].how);
    optimal &= best[b].solution.optimal;
  }
  Directed whole(stages, blocks);
  Orders orders(whole.problem.streams.size());
  int64_t first = 0;
  std::vector<int64_t> offsets;
  for (const Candidate &block : best) {
    offsets.push_back(first);
    first += static_cast<int64_t>(block.problem.tasks.size());
  }
  for (size_t i = 0; i < best.size(); ++i) {
    size_t b = stages.direction == Direction::forward ? i : best.size() - 1 - i;
    for (size_t s = 0; s < orders.size(); ++s)
      for (int64_t task : best[b].solution.orders[s])
        orders[s].push_back(offsets[b] + task);
  }
  Plan plan = finish(std::move(whole.problem), orders, std::move(how));
  plan.optimal |= optimal;
  return plan;
}

Plan braid::schedule::planStages(const Stages &stages) {
  switch (stages.pipeline) {
  case Pipeline::crossBlock: {
    Stages across = stages;
    across.crossBlock = true;
    Directed directed(across, across.blocks);
    return finish(std::move(directed.problem), directed.inTurns, "cross-block");
  }
  case Pipeline::none: {
    Directed directed(stages, mergeAll(stages.blocks, Merge::all));
    return finish(std::move(directed.problem), directed.oneAfterTheOther, "none");
  }
  case Pipeline::moe: {
    Directed directed(stages, mergeAll(stages.blocks, Merge::mixer));
    return finish(std::move(directed.problem), directed.oneAfterTheOther, "moe");
  }
  case Pipeline::aAaM: {
    Directed directed(stages, stages.blocks);
    return finish(std::move(directed.problem), directed.oneAfterTheOther, "aAaM");
  }
  case Pipeline::A1M1: {
    Directed directed(stages, stages.blocks);
    return finish(std::move(directed.problem), directed.inTurns, "1A1M");
  }
  case Pipeline::best: return planBest(stages);
  }
  return {};
}

std::vector<std::string> braid::schedule::programOrder(const Plan &plan) {
  const Problem &problem = plan.problem;
  const Orders &orders = plan.schedule.orders;
  std::vector<std::string> order;
  std::vector<bool> done(problem.tasks.size());
  std::vector<size_t> next(orders.size(), 0);
  auto advance = [&](size_t stream) {
    int64_t task = orders[stream][next[stream]++];
    done[task] = true;
    order.push_back(problem.tasks[task].name);
  };
  auto ready = [&](int64_t task) {
    const std::vector<int64_t> &after = problem.tasks[task].after;
    return std::all_of(after.begin(), after.end(), [&](int64_t before) { return done[before]; });
  };
  auto startExchanges = [&] {
    for (bool any = true; any;) {
      any = false;
      for (size_t stream = 1; stream < orders.size(); ++stream) {
        while (next[stream] < orders[stream].size() && ready(orders[stream][next[stream]])) {
          advance(stream);
          any = true;
        }
      }
    }
  };
  // Weight gradients that were left for the end go in front of the last task that waits: never later, and earlier if its
  // exchange takes longer than was thought.
  auto fills = [&](int64_t task) { return problem.tasks[task].name[0] == 'W'; };
  auto last = std::find_if_not(orders[0].rbegin(), orders[0].rend(), fills).base() - orders[0].begin() - 1;
  startExchanges();
  while (next[0] < orders[0].size()) {
    if (static_cast<int64_t>(next[0]) == last)
      for (size_t i = next[0] + 1; i < orders[0].size(); ++i)
        if (int64_t task = orders[0][i]; ready(task)) {
          done[task] = true;
          order.push_back(problem.tasks[task].name);
        }
    if (done[orders[0][next[0]]])
      ++next[0];
    else
      advance(0);
    startExchanges();
  }
  return order;
}
