// Solvers against the optimum of all orders, and against each other.
#include "schedule/Solve.h"
#include "schedule/Verify.h"
#include "test/schedule/Cases.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>

using namespace braid::schedule;
using namespace braid::schedule::test;

namespace {

/// The least makespan of all orders: every linear extension, each task as early as it can. Knows nothing of the
/// solvers.
class AllOrders {
public:
  explicit AllOrders(const Problem &problem)
      : problem(problem), done(problem.tasks.size(), false), end(problem.tasks.size(), 0),
        free(problem.streams.size(), 0) {
    extend(0, 0);
  }
  double least = std::numeric_limits<double>::infinity();

private:
  void extend(size_t count, double makespan) {
    if (makespan >= least)
      return;
    if (count == problem.tasks.size()) {
      least = makespan;
      return;
    }
    for (size_t task = 0; task < problem.tasks.size(); ++task) {
      const Task &t = problem.tasks[task];
      if (done[task] || !std::all_of(t.after.begin(), t.after.end(), [&](int64_t before) { return done[before]; }))
        continue;
      double wasFree = free[t.stream], start = wasFree;
      for (int64_t before : t.after)
        start = std::max(start, end[before]);
      done[task] = true;
      end[task] = free[t.stream] = start + t.duration;
      extend(count + 1, std::max(makespan, end[task]));
      free[t.stream] = wasFree;
      done[task] = false;
    }
  }
  const Problem &problem;
  std::vector<bool> done;
  std::vector<double> end, free;
};

std::vector<Direction> bothDirections() { return {Direction::forward, Direction::backward}; }

TEST(Solve, ExactSearchFindsTheOptimumOfAllOrders) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    Stages stages = stagesOf(Pipeline::A1M1, {randomBlock(random, 1 + round % 3, 1 + random() % 2, 8)}, false,
                             round % 2 ? Direction::backward : Direction::forward);
    if (round % 5 == 0) { // two blocks of two slices, sliced over the edge
      stages.blocks = {randomBlock(random, 1, 2, 8), randomBlock(random, 2, 1, 8)};
      stages.crossBlock = true;
    }
    Problem problem = planStages(stages).problem;
    double least = AllOrders(problem).least;
    bool proved = false;
    std::optional<Orders> found = exact(problem, std::numeric_limits<double>::infinity(), 100'000'000, &proved);
    ASSERT_TRUE(found && proved) << "round " << round;
    EXPECT_DOUBLE_EQ(makespanOf(problem, *found), least) << "round " << round;
    EXPECT_LE(lowerBound(problem), least + 1e-9) << "round " << round;
  }
}

TEST(Solve, BestIsTheOptimumOnSmallCasesAndNeverWorseThanTheNamedOrders) {
  std::mt19937 random(5);
  int proved = 0, rounds = 0;
  double worst = 1;
  for (int round = 0; round < 40; ++round)
    for (Direction direction : bothDirections()) {
      bool crossBlock = round % 2;
      std::vector<BlockTimes> blocks = {randomBlock(random, 1 + random() % 4, 1 + random() % 4, 24)};
      if (crossBlock)
        blocks.push_back(randomBlock(random, 1 + random() % 3, 1 + random() % 3, 24));
      Stages stages = stagesOf(Pipeline::best, blocks, crossBlock, direction);
      Plan best = planStages(stages);
      EXPECT_EQ(verify(best.problem, best.schedule), std::vector<std::string>());
      for (Pipeline other : {Pipeline::none, Pipeline::moe, Pipeline::aAaM, Pipeline::A1M1}) {
        Stages named = stages;
        named.pipeline = other;
        EXPECT_LE(makespan(best), makespan(planStages(named)) * (1 + 1e-9)) << "round " << round;
        named.crossBlock = false;
        EXPECT_LE(makespan(best), makespan(planStages(named)) * (1 + 1e-9)) << "round " << round << " with a barrier";
      }
      // The optimum of the sliced problem, searched without the help of any heuristic.
      Stages sliced = stages;
      sliced.pipeline = Pipeline::A1M1;
      Problem problem = planStages(sliced).problem;
      bool isProved = false;
      std::optional<Orders> optimum = exact(problem, std::numeric_limits<double>::infinity(), 200'000'000, &isProved);
      ++rounds;
      if (!isProved)
        continue;
      ++proved;
      double ratio = makespan(best) / makespanOf(problem, *optimum);
      worst = std::max(worst, ratio);
      EXPECT_LE(ratio, 1.01) << "round " << round;
      if (best.optimal)
        EXPECT_LE(ratio, 1 + 1e-9) << "round " << round << ": " << best.how;
    }
  EXPECT_GT(proved, rounds * 3 / 4);
  RecordProperty("optimum_known", proved);
  RecordProperty("worst_ratio", std::to_string(worst));
}

TEST(Solve, SearchImprovesWithoutExactSearch) {
  // Too many tasks for exact search: the local search must not lose, and must gain where turns are wrong.
  std::mt19937 random(23);
  int gained = 0;
  for (int round = 0; round < 8; ++round) {
    std::vector<BlockTimes> blocks = {randomBlock(random, 10, 6, 60), randomBlock(random, 6, 10, 60)};
    Stages stages = stagesOf(Pipeline::A1M1, blocks, /*crossBlock=*/true);
    double turns = makespan(planStages(stages));
    stages.pipeline = Pipeline::best;
    Plan best = planStages(stages);
    ASSERT_GT(best.problem.tasks.size(), 40u);
    EXPECT_LE(makespan(best), turns);
    EXPECT_GE(makespan(best), best.lowerBound - 1e-9);
    gained += makespan(best) < turns;
  }
  EXPECT_GT(gained, 0);
}

TEST(Solve, WeightGradientsFillGaps) {
  // Backward of one block of two slices, with weight gradients W as tasks that nothing waits for.
  Problem problem;
  problem.streams = {"compute", "comm"};
  auto add = [&](std::string name, int64_t stream, double duration, std::vector<int64_t> after) {
    problem.tasks.push_back({std::move(name), stream, duration, std::move(after)});
    return static_cast<int64_t>(problem.tasks.size()) - 1;
  };
  std::vector<int64_t> combine, experts, dispatch;
  for (int64_t i : {1, 0}) {
    std::string slice = std::to_string(i);
    combine.push_back(add("C" + slice, 1, 4, {}));
    experts.push_back(add("M" + slice, 0, 2, {combine.back()}));
    dispatch.push_back(add("D" + slice, 1, 4, {experts.back()}));
  }
  int64_t weights = add("W", 0, 4, {experts[0], experts[1]});
  int64_t last = add("A1", 0, 1, {dispatch[0]});
  add("A0", 0, 1, {dispatch[1], last});
  // At the end they wait for nobody and everybody waits for them; under the exchanges they are free.
  Orders atTheEnd = {{experts[0], experts[1], last, static_cast<int64_t>(problem.tasks.size()) - 1, weights},
                     {combine[0], combine[1], dispatch[0], dispatch[1]}};
  Solution best = search(problem, {{"at the end", atTheEnd}});
  EXPECT_EQ(makespanOf(problem, atTheEnd), 21);
  EXPECT_EQ(best.makespan, 17);
  EXPECT_TRUE(best.optimal);
}

TEST(Solve, OrdersAgainstTheGraphAreRefused) {
  Problem problem;
  problem.streams = {"compute", "comm"};
  problem.tasks = {{"A0.0", 0, 1, {}}, {"D0.0", 1, 1, {0}}, {"M0.0", 0, 1, {1}}};
  std::vector<int64_t> cycle;
  EXPECT_FALSE(simulate(problem, {{2, 0}, {1}}, &cycle));
  std::sort(cycle.begin(), cycle.end());
  EXPECT_EQ(cycle, (std::vector<int64_t>{0, 1, 2}));
}

} // namespace
