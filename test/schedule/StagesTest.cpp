// Orders of attention-MoE blocks: closed forms of schedules.md section 2, orders by name, barriers, directions, rules.
#include "schedule/Verify.h"
#include "test/schedule/Cases.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace braid::schedule;
using namespace braid::schedule::test;

namespace {

struct Term {
  double a, x, m, y;
};

/// The table of schedules.md: the longest of these is the makespan.
double closedForm(Pipeline pipeline, double n, Term t) {
  std::vector<Term> terms;
  if (pipeline == Pipeline::aAaM)
    terms = {{1, 1, 1, n}, {1, 1, n, 1}, {1, n, 0, n}, {1, n, 1, 1},
             {n, 0, 1, n}, {n, 0, n, 1}, {n, 1, 0, n}, {n, 1, 1, 1}};
  else if (n == 1)
    terms = {{1, 1, 1, 1}};
  else
    terms = {{1, n, 0, n},     {n, 1, n - 1, 1},     {2, n - 1, 0, n},     {n, 1, n - 2, 2},
             {1, n, 1, n - 1}, {n - 1, 2, n - 1, 1}, {1, n - 1, 2, n - 1}, {n - 1, 1, n, 1},
             {1, n - 1, 1, n}, {n, 0, n, 1},         {2, n - 2, 1, n},     {n, 0, n - 1, 2}};
  double longest = 0;
  for (Term c : terms)
    longest = std::max(longest, c.a * t.a + c.x * t.x + c.m * t.m + c.y * t.y);
  return longest;
}

std::string names(const Plan &plan, size_t stream) {
  std::string text;
  for (int64_t task : plan.schedule.orders[stream])
    text += (text.empty() ? "" : " ") + plan.problem.tasks[task].name;
  return text;
}

TEST(Stages, MakespansAreTheClosedForms) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> time(0, 9);
  for (int64_t n = 1; n <= 9; ++n)
    for (int round = 0; round < 200; ++round) {
      Term t{double(time(random)), double(time(random)), double(time(random)), double(time(random))};
      for (Pipeline pipeline : {Pipeline::A1M1, Pipeline::aAaM})
        for (Direction direction : {Direction::forward, Direction::backward}) {
          Plan plan = planStages(stagesOf(pipeline, {uniformBlock(n, t.a, t.x, t.m, t.y)}, false, direction));
          ASSERT_EQ(makespan(plan), closedForm(pipeline, n, t))
              << n << " slices of " << t.a << ' ' << t.x << ' ' << t.m << ' ' << t.y;
        }
      Plan none = planStages(stagesOf(Pipeline::none, {uniformBlock(n, t.a, t.x, t.m, t.y)}));
      ASSERT_EQ(makespan(none), n * (t.a + t.x + t.m + t.y));
    }
}

TEST(Stages, NamedOrders) {
  std::vector<BlockTimes> blocks = {uniformBlock(4, 1, 1, 1, 1)};
  Plan turns = planStages(stagesOf(Pipeline::A1M1, blocks));
  EXPECT_EQ(names(turns, 0), "A0.0 A0.1 M0.0 A0.2 M0.1 A0.3 M0.2 M0.3");
  EXPECT_EQ(names(turns, 1), "D0.0 D0.1 C0.0 D0.2 C0.1 D0.3 C0.2 C0.3");
  Plan all = planStages(stagesOf(Pipeline::aAaM, blocks));
  EXPECT_EQ(names(all, 0), "A0.0 A0.1 A0.2 A0.3 M0.0 M0.1 M0.2 M0.3");
  EXPECT_EQ(names(all, 1), "D0.0 D0.1 D0.2 D0.3 C0.0 C0.1 C0.2 C0.3");
  Plan moe = planStages(stagesOf(Pipeline::moe, blocks));
  EXPECT_EQ(names(moe, 0), "A0.0 M0.0 M0.1 M0.2 M0.3");
  EXPECT_EQ(moe.problem.tasks[0].duration, 4);
  Plan none = planStages(stagesOf(Pipeline::none, blocks));
  EXPECT_EQ(names(none, 0), "A0.0 M0.0");
  EXPECT_EQ(names(none, 1), "D0.0 C0.0");
}

TEST(Stages, BackwardReversesEveryStream) {
  Plan plan = planStages(
      stagesOf(Pipeline::A1M1, {uniformBlock(3, 1, 1, 1, 1), uniformBlock(3, 1, 1, 1, 1)}, false, Direction::backward));
  EXPECT_EQ(names(plan, 0), "M1.2 M1.1 A1.2 M1.0 A1.1 A1.0 M0.2 M0.1 A0.2 M0.0 A0.1 A0.0");
  EXPECT_EQ(names(plan, 1), "C1.2 C1.1 D1.2 C1.0 D1.1 D1.0 C0.2 C0.1 D0.2 C0.0 D0.1 D0.0");
}

TEST(Stages, CrossBlockContinuesTheTurns) {
  std::vector<BlockTimes> blocks(2, uniformBlock(3, 1, 1, 1, 1));
  Plan plan = planStages(stagesOf(Pipeline::A1M1, blocks, /*crossBlock=*/true));
  EXPECT_EQ(names(plan, 0), "A0.0 A0.1 M0.0 A0.2 M0.1 A1.0 M0.2 A1.1 M1.0 A1.2 M1.1 M1.2");
  EXPECT_EQ(names(plan, 1), "D0.0 D0.1 C0.0 D0.2 C0.1 D1.0 C0.2 D1.1 C1.0 D1.2 C1.1 C1.2");
  // One slice: the mixer needs the combine of the only slice before it, so there is no turn to take.
  Plan one = planStages(stagesOf(Pipeline::A1M1, std::vector<BlockTimes>(2, uniformBlock(1, 1, 1, 1, 1)), true));
  EXPECT_EQ(names(one, 0), "A0.0 M0.0 A1.0 M1.0");
  EXPECT_EQ(makespan(one), 8);
}

TEST(Stages, CrossBlockIsFasterFromThreeSlicesOnAndSlowerAtTwo) {
  // schedules.md section 3, with as much communication as computation.
  auto span = [](int64_t slices, bool crossBlock) {
    std::vector<BlockTimes> blocks(8, uniformBlock(slices, 1, 1, 1, 1));
    return makespan(planStages(stagesOf(Pipeline::A1M1, blocks, crossBlock)));
  };
  EXPECT_GT(span(2, true), span(2, false));
  for (int64_t slices : {3, 4, 8})
    EXPECT_LT(span(slices, true), span(slices, false)) << slices;
}

TEST(Stages, TokenBufferDecouplesTheGrids) {
  BlockTimes block = uniformBlock(2, 1, 1, 1, 1);
  block.A = {1, 1, 1};
  block.slices = {2, 2, 4};
  block.moeSlices = {3, 5};
  Plan plan = planStages(stagesOf(Pipeline::A1M1, {block}));
  EXPECT_EQ(names(plan, 0), "A0.0 A0.1 A0.2 M0.0 M0.1");
  const Task &first = plan.problem.tasks[3];
  ASSERT_EQ(first.name, "D0.0");
  EXPECT_EQ(first.after, (std::vector<int64_t>{0, 1})) << "tokens 0 to 3 come from the first two mixer slices";
}

TEST(Stages, SplitExpertsHaveTheirOwnStream) {
  BlockTimes block = uniformBlock(3, 1, 1, 1, 1);
  block.G = {1, 1, 1};
  block.R = {1, 1, 1};
  Plan plan = planStages(stagesOf(Pipeline::A1M1, {block}));
  EXPECT_EQ(names(plan, 2), "G0.0 G0.1 R0.0 G0.2 R0.1 R0.2");
}

TEST(Stages, WeightGradientsFillGapsOfTheBackward) {
  auto plan = [](Pipeline pipeline, bool apart, size_t count = 4) {
    BlockTimes block = uniformBlock(4, apart ? 2 : 4, 3, apart ? 2 : 4, 3);
    if (apart)
      block.WA = block.WM = std::vector<double>(count, 8.0 / double(count));
    return planStages(stagesOf(pipeline, {block, block}, false, Direction::backward));
  };
  double whole = makespan(plan(Pipeline::A1M1, false));
  for (size_t count : {4, 1}) {
    Plan turns = plan(Pipeline::A1M1, true, count), best = plan(Pipeline::best, true, count);
    if (count == 4) // one long task for all slices waits for the last of them and rarely fits a gap
      EXPECT_LT(makespan(turns), whole);
    EXPECT_LE(makespan(best), makespan(turns)) << count << " per block";
    for (const Plan &p : {turns, best}) {
      EXPECT_EQ(verify(p.problem, p.schedule), std::vector<std::string>());
      EXPECT_EQ(measure(p.problem, p.schedule).computeBusy, 64);
    }
  }
  // One for all slices waits for all of them, and no order of the others has moved.
  Plan one = plan(Pipeline::A1M1, true, 1);
  for (const Task &task : one.problem.tasks)
    if (task.name == "WM1.0")
      EXPECT_EQ(task.after.size(), 4u);
  std::string order = names(one, 0);
  EXPECT_LT(order.find("M1.3"), order.find("M1.2"));
  EXPECT_LT(order.find("M1.0"), order.find("WM1.0"));
}

TEST(Stages, OverheadIsPaidPerTask) {
  Stages stages = stagesOf(Pipeline::none, {uniformBlock(4, 1, 1, 1, 1)});
  stages.computeOverhead = 0.5;
  stages.commOverhead = 0.25;
  EXPECT_EQ(makespan(planStages(stages)), 16 + 2 * 0.5 + 2 * 0.25);
  // So much of it that only the whole batch is fast.
  stages.computeOverhead = 10;
  stages.pipeline = Pipeline::best;
  Plan best = planStages(stages);
  EXPECT_EQ(best.how, "none");
  EXPECT_EQ(makespan(best), 16 + 2 * 10 + 2 * 0.25);
}

TEST(Stages, MeasuresOfAHandMadeSchedule) {
  // compute 0-4, 9-11; comm 4-6, 5.. on etp: exposed are 4-9 without a gap counted twice.
  Problem problem;
  problem.streams = {"compute", "comm", "etp"};
  problem.tasks = {
      {"A0.0", 0, 4, {}}, {"D0.0", 1, 2, {0}}, {"G0.0", 2, 4, {0}}, {"M0.0", 0, 2, {1, 2}}, {"D0.1", 1, 1, {3}}};
  Schedule schedule = *simulate(problem, {{0, 3}, {1, 4}, {2}});
  Measures measures = measure(problem, schedule);
  EXPECT_EQ(measures.makespan, 11);
  EXPECT_EQ(measures.computeBusy, 6);
  EXPECT_EQ(measures.exposedComm, 5);
  EXPECT_DOUBLE_EQ(measures.bubble, 1 - 6.0 / 11);
  EXPECT_EQ(schedule.waits[3], (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(schedule.waits[0].empty());
}

TEST(Stages, LoadsSlowDownWhatIsComputedBesideThem) {
  // Exchanges that take a quarter and a half of the processor, both at once and one alone.
  Problem problem;
  problem.streams = {"compute", "comm", "etp"};
  problem.tasks = {{"A0.0", 0, 4, {}},        {"D0.0", 1, 4, {0}, 0.25}, {"G0.0", 2, 3, {0}, 0.5}, {"A0.1", 0, 3, {0}},
                   {"C0.0", 1, 2, {1}, 0.25}, {"M0.0", 0, 1, {4}},       {"D0.1", 1, 2, {5}, 0.25}};
  Schedule schedule = *simulate(problem, {{0, 3, 5}, {1, 4, 6}, {2}});
  // 3 time units at a quarter of the speed, then 3 at three quarters.
  EXPECT_EQ(schedule.start[3], 4);
  EXPECT_DOUBLE_EQ(schedule.end[3], 10);
  EXPECT_EQ(schedule.end[4], 10); // what travels takes its time whatever is computed
  EXPECT_DOUBLE_EQ(schedule.end[5], 11);
  EXPECT_DOUBLE_EQ(schedule.end[6], 13);
  Measures measures = measure(problem, schedule);
  EXPECT_DOUBLE_EQ(measures.computeBusy, 11);
  EXPECT_DOUBLE_EQ(measures.exposedComm, 2);
  EXPECT_EQ(verify(problem, schedule), std::vector<std::string>());
  // Nothing may take longer, or shorter, than loads explain.
  for (size_t task = 0; task < problem.tasks.size(); ++task)
    for (double factor : {0.9, 1.1}) {
      Schedule wrong = schedule;
      double moved = (factor - 1) * (schedule.end[task] - schedule.start[task]), from = schedule.end[task];
      for (size_t other = 0; other < problem.tasks.size(); ++other) {
        wrong.start[other] += schedule.start[other] >= from ? moved : 0;
        wrong.end[other] += schedule.end[other] >= from ? moved : 0;
      }
      EXPECT_NE(verify(problem, wrong), std::vector<std::string>()) << problem.tasks[task].name << " times " << factor;
    }
  // Alone, loads share the processor as well: 1.5 of it take twice 0.75 as long. Nothing of them is lost beside compute.
  problem.tasks = {{"D0.0", 1, 3, {}, 0.75}, {"G0.0", 2, 3, {}, 0.75}};
  schedule = *simulate(problem, {{}, {0}, {1}});
  EXPECT_DOUBLE_EQ(schedule.end[0], 4.5);
  EXPECT_DOUBLE_EQ(schedule.end[1], 4.5);
  EXPECT_EQ(verify(problem, schedule), std::vector<std::string>());
  problem.tasks.push_back({"A0.0", 0, 1, {}});
  schedule = *simulate(problem, {{2}, {0}, {1}});
  EXPECT_NEAR(schedule.end[0], 4.5 / 0.95, 1e-12);
  EXPECT_NEAR(schedule.end[2], 5.5, 1e-12); // 4.5 of messages and 1 of its own
  EXPECT_EQ(verify(problem, schedule), std::vector<std::string>());
}

TEST(Stages, EachOfSeveralProcessorsHasItsOwnLoadsAndMeasures) {
  // Both exchange from 4 on, which takes half of the first one's time while it computes 2 more, and none of the second's.
  Problem problem;
  problem.streams = {"0 compute", "0 comm", "1 compute", "1 comm"};
  problem.hosts = {0, 0, 2, 2};
  problem.tasks = {{"A0.0", 0, 4, {}},          {"A1.0", 2, 1, {}}, {"D0.0", 1, 4, {0, 1}, 0.5},
                   {"D1.0", 3, 4, {0, 1}, 0.0}, {"A0.1", 0, 2, {}}, {"A1.1", 2, 5, {}}};
  Schedule schedule = *simulate(problem, {{0, 4}, {2}, {1, 5}, {3}});
  EXPECT_EQ(schedule.start[2], 4);
  EXPECT_EQ(schedule.start[3], 4);
  EXPECT_DOUBLE_EQ(schedule.end[4], 8);
  EXPECT_DOUBLE_EQ(schedule.end[5], 6);
  EXPECT_EQ(verify(problem, schedule), std::vector<std::string>());
  EXPECT_DOUBLE_EQ(measureOn(problem, schedule, 0).computeBusy, 8);
  EXPECT_DOUBLE_EQ(measureOn(problem, schedule, 2).computeBusy, 6);
  EXPECT_DOUBLE_EQ(measureOn(problem, schedule, 2).exposedComm, 2);
  Measures mean = measure(problem, schedule);
  EXPECT_EQ(mean.makespan, 8);
  EXPECT_DOUBLE_EQ(mean.computeBusy, 7);
  EXPECT_DOUBLE_EQ(mean.exposedComm, 1);
  EXPECT_DOUBLE_EQ(mean.bubble, 1.0 / 8);
}

TEST(Stages, TheGainOverNoneIsAtMostTwoMinusOneOverTwoDegrees) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> time(0, 12);
  for (int64_t d = 1; d <= 6; ++d)
    for (int round = 0; round < 50; ++round) {
      double a = time(random), x = time(random), m = time(random);
      double none = makespan(planStages(stagesOf(Pipeline::none, {uniformBlock(d, a, x, m, x)})));
      double best = makespan(planStages(stagesOf(Pipeline::best, {uniformBlock(d, a, x, m, x)})));
      EXPECT_LE(none, best * (2 - 1 / (2.0 * double(d))) + 1e-9) << d << ": " << a << ' ' << x << ' ' << m;
    }
}

TEST(Stages, EightyLayersOfSixteenSlicesTakeSeconds) {
  std::vector<BlockTimes> blocks(80, uniformBlock(16, 1, 0.9, 1.1, 0.9));
  for (bool crossBlock : {false, true}) {
    Plan plan = planStages(stagesOf(Pipeline::best, blocks, crossBlock));
    EXPECT_EQ(verify(plan.problem, plan.schedule), std::vector<std::string>());
    EXPECT_LE(makespan(plan), makespan(planStages(stagesOf(Pipeline::A1M1, blocks, crossBlock))));
  }
}

TEST(Stages, ProgramOrderIsOneList) {
  auto text = [](Pipeline pipeline, Direction direction, int64_t slices, size_t blocks = 1) {
    Stages stages = stagesOf(pipeline, std::vector<BlockTimes>(blocks, uniformBlock(slices, 1, 1, 1, 1)));
    stages.direction = direction;
    std::string line;
    for (const std::string &task : programOrder(planStages(stages)))
      line += task + " ";
    return line;
  };
  // An exchange starts as soon as what it sends is there.
  EXPECT_EQ(text(Pipeline::A1M1, Direction::forward, 3),
            "A0.0 D0.0 A0.1 D0.1 M0.0 C0.0 A0.2 D0.2 M0.1 C0.1 M0.2 C0.2 ");
  EXPECT_EQ(text(Pipeline::A1M1, Direction::backward, 3),
            "C0.2 C0.1 M0.2 D0.2 C0.0 M0.1 D0.1 A0.2 M0.0 D0.0 A0.1 A0.0 ");
  EXPECT_EQ(text(Pipeline::aAaM, Direction::forward, 2), "A0.0 D0.0 A0.1 D0.1 M0.0 C0.0 M0.1 C0.1 ");
  EXPECT_EQ(text(Pipeline::none, Direction::forward, 5), "A0.0 D0.0 M0.0 C0.0 ");
  // Over the edge of a block: its first mixer before the experts of the block before have all run.
  EXPECT_EQ(text(Pipeline::crossBlock, Direction::forward, 3, 2),
            "A0.0 D0.0 A0.1 D0.1 M0.0 C0.0 A0.2 D0.2 M0.1 C0.1 A1.0 D1.0 M0.2 C0.2 A1.1 D1.1 M1.0 C1.0 A1.2 D1.2 M1.1 "
            "C1.1 M1.2 C1.2 ");
}

TEST(Stages, WeightGradientsLeftForTheEndComeBeforeTheLastMixer) {
  BlockTimes block = uniformBlock(2, 1, 0.01, 1, 0.01); // no gaps to fill
  block.WA = block.WM = {1, 1};
  std::vector<std::string> order =
      programOrder(planStages(stagesOf(Pipeline::A1M1, {block}, false, Direction::backward)));
  // The slices of a block add to one sum, the last one first.
  EXPECT_LT(std::find(order.begin(), order.end(), "WM0.1"), std::find(order.begin(), order.end(), "WM0.0"));
  std::vector<std::string> end(order.end() - 5, order.end());
  std::sort(end.begin(), end.begin() + 3);
  EXPECT_EQ(end, std::vector<std::string>({"WA0.1", "WM0.0", "WM0.1", "A0.0", "WA0.0"}));
}

TEST(Stages, CrossBlockIsTheTurnsGoingOn) {
  std::vector<BlockTimes> blocks(3, uniformBlock(4, 1, 2, 3, 1));
  Plan named = planStages(stagesOf(Pipeline::crossBlock, blocks)),
       turns = planStages(stagesOf(Pipeline::A1M1, blocks, true));
  EXPECT_EQ(named.schedule.orders, turns.schedule.orders);
  EXPECT_EQ(makespan(named), makespan(turns));
}

TEST(Stages, BestCanKeepItsSlices) {
  // Commands so expensive that one slice is the fastest.
  Stages stages = stagesOf(Pipeline::best, {uniformBlock(4, 1, 1, 1, 1)});
  stages.computeOverhead = stages.commOverhead = 100;
  EXPECT_EQ(planStages(stages).how, "none");
  stages.keepSlices = true;
  EXPECT_EQ(planStages(stages).problem.tasks.size(), 16u);
}

TEST(Stages, RulesNamePathsAndNumbers) {
  auto error = [](auto &&change) {
    Stages stages = stagesOf(Pipeline::A1M1, std::vector<BlockTimes>(2, uniformBlock(3, 1, 1, 1, 1)), true);
    change(stages);
    return checkStages(stages).value_or("");
  };
  EXPECT_EQ(error([](Stages &) {}), "");
  EXPECT_EQ(error([](Stages &s) { s.blocks.clear(); }), "blocks: empty; valid: one block or more");
  EXPECT_EQ(error([](Stages &s) { s.blocks[1].C.pop_back(); }), "blocks[1].C: 2 times, but blocks[1].D has 3");
  EXPECT_EQ(error([](Stages &s) { s.blocks[0].M.clear(); }), "blocks[0].M: no times; valid: one per slice");
  EXPECT_EQ(error([](Stages &s) { s.blocks[0].A[2] = -1; }), "blocks[0].A[2]: -1 is no time; valid: 0 or more");
  EXPECT_EQ(error([](Stages &s) { s.commOverhead = -2; }), "overhead.comm: -2 is no time; valid: 0 or more");
  EXPECT_EQ(error([](Stages &s) { s.blocks[0].G = {1}; }), "blocks[0].G: 1 times, but blocks[0].D has 3");
  EXPECT_EQ(error([](Stages &s) { s.blocks[0].WA = {1}; }),
            "blocks[0].WA: weight gradients, but direction is forward; valid: backward");
  EXPECT_EQ(error([](Stages &s) { s.direction = Direction::backward, s.blocks[0].WM = {1, 2}; }),
            "blocks[0].WM: 2 times, but blocks[0].M has 3; valid: as many, or 1");
  EXPECT_EQ(error([](Stages &s) { s.direction = Direction::backward, s.blocks[0].WM = {-1}; }),
            "blocks[0].WM[0]: -1 is no time; valid: 0 or more");
  EXPECT_EQ(error([](Stages &s) { s.blocks[0].slices = {1, 2}; }),
            "blocks[0].slices: 2 slices, but blocks[0].A has 3 times");
  EXPECT_EQ(error([](Stages &s) { s.blocks[0].slices = {1, 0, 2}; }),
            "blocks[0].slices[1]: 0 tokens; valid: 1 or more");
  EXPECT_EQ(error([](Stages &s) { s.blocks[0].slices = {1, 2, 3}, s.blocks[0].moeSlices = {2, 2, 3}; }),
            "blocks[0].moe_slices: 7 tokens, but blocks[0].slices has 6");
  EXPECT_EQ(
      error([](Stages &s) { s.blocks[1].A = {1, 1}; }),
      "blocks[1].slices: absent, but blocks[1].A has 2 slices and blocks[1].D has 3; valid: one to one, or both grids");
  EXPECT_EQ(error([](Stages &s) { s.blocks[0].slices = {1, 2, 3}, s.blocks[1].slices = {2, 2, 3}; }),
            "blocks[1].slices: 7 tokens, but blocks[0].moe_slices has 6");
  EXPECT_EQ(error([](Stages &s) { s.blocks[1] = uniformBlock(2, 1, 1, 1, 1); }),
            "blocks[1].A: 2 slices, but blocks[0].D has 3, and cross_block needs to know which share tokens; valid: as "
            "many, or slices and moe_slices in both");
}

} // namespace
