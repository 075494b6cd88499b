// The verifier against schedules that were broken on purpose: every mutation must be found, and what is right must
// pass.
#include "schedule/Verify.h"
#include "test/schedule/Cases.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <numeric>

using namespace braid::schedule;
using namespace braid::schedule::test;

namespace {

/// A plan with buffers: what every task writes is read by those that need it, and bytes are used again as soon as the
/// streams allow.
struct Proved {
  Problem problem;
  Schedule schedule;
};

/// Whether `before` has ended when `after` begins, by streams and events alone; slow, and not the verifier's way.
bool forced(const Schedule &schedule, const Problem &problem, int64_t before, int64_t after) {
  std::vector<int64_t> todo = {after};
  std::vector<bool> seen(problem.tasks.size(), false);
  while (!todo.empty()) {
    int64_t task = todo.back();
    todo.pop_back();
    std::vector<int64_t> direct = schedule.waits[task];
    const std::vector<int64_t> &order = schedule.orders[problem.tasks[task].stream];
    auto at = std::find(order.begin(), order.end(), task);
    if (at != order.begin())
      direct.push_back(*std::prev(at));
    for (int64_t event : direct) {
      if (event == before)
        return true;
      if (!seen[event]) {
        seen[event] = true;
        todo.push_back(event);
      }
    }
  }
  return false;
}

Proved makeProved(std::mt19937 &random) {
  std::vector<BlockTimes> blocks = {randomBlock(random, 2 + random() % 3, 2 + random() % 3, 24),
                                    randomBlock(random, 2 + random() % 3, 2 + random() % 3, 24)};
  static constexpr Pipeline pipelines[] = {Pipeline::A1M1, Pipeline::aAaM, Pipeline::best};
  Plan plan = planStages(
      stagesOf(pipelines[random() % 3], blocks, random() % 2, random() % 2 ? Direction::backward : Direction::forward));
  Proved result{std::move(plan.problem), std::move(plan.schedule)};
  std::vector<std::vector<int64_t>> readers(result.problem.tasks.size());
  for (size_t task = 0; task < readers.size(); ++task)
    for (int64_t before : result.problem.tasks[task].after)
      readers[before].push_back(static_cast<int64_t>(task));
  for (size_t task = 0; task < readers.size(); ++task) {
    Buffer buffer{"of " + result.problem.tasks[task].name, static_cast<int64_t>(task), readers[task], 0, 64};
    auto dies = [&](const Buffer &a, const Buffer &b) {
      return forced(result.schedule, result.problem, a.writer, b.writer) &&
             std::all_of(a.readers.begin(), a.readers.end(),
                         [&](int64_t r) { return forced(result.schedule, result.problem, r, b.writer); });
    };
    auto fits = [&] {
      return std::all_of(result.problem.buffers.begin(), result.problem.buffers.end(), [&](const Buffer &other) {
        return other.begin != buffer.begin || dies(other, buffer) || dies(buffer, other);
      });
    };
    while (!fits())
      buffer.begin += 64;
    result.problem.buffers.push_back(std::move(buffer));
  }
  return result;
}

/// Breaks a schedule; false where it found no place to. What it leaves is wrong by construction.
using Mutation = std::function<bool(Proved &, std::mt19937 &)>;

int64_t anyTask(const Proved &p, std::mt19937 &random) {
  return static_cast<int64_t>(random() % p.problem.tasks.size());
}

/// Times as they follow from streams and events, so that only these can tell.
void retime(Proved &p) {
  Problem loose = p.problem;
  for (size_t task = 0; task < loose.tasks.size(); ++task)
    loose.tasks[task].after = p.schedule.waits[task];
  if (std::optional<Schedule> timed = simulate(loose, p.schedule.orders)) {
    p.schedule.start = timed->start;
    p.schedule.end = timed->end;
  }
}

std::map<std::string, Mutation> mutations() {
  std::map<std::string, Mutation> all;
  all["event dropped"] = [](Proved &p, std::mt19937 &random) {
    int64_t task = anyTask(p, random);
    std::vector<int64_t> &waits = p.schedule.waits[task];
    if (waits.empty())
      return false;
    int64_t event = waits[random() % waits.size()];
    std::erase(waits, event);
    if (forced(p.schedule, p.problem, event, task))
      return false; // another way says the same
    retime(p);
    return true;
  };
  all["event of an earlier task"] = [](Proved &p, std::mt19937 &random) {
    int64_t task = anyTask(p, random);
    for (int64_t &event : p.schedule.waits[task]) {
      const std::vector<int64_t> &order = p.schedule.orders[p.problem.tasks[event].stream];
      auto at = std::find(order.begin(), order.end(), event);
      if (at == order.begin())
        continue;
      int64_t needed = event;
      event = *std::prev(at);
      if (forced(p.schedule, p.problem, needed, task))
        return false;
      retime(p);
      return true;
    }
    return false;
  };
  all["dependent tasks of a stream change places"] = [](Proved &p, std::mt19937 &random) {
    std::vector<int64_t> &order = p.schedule.orders[random() % p.schedule.orders.size()];
    if (order.size() < 2)
      return false;
    size_t i = random() % (order.size() - 1);
    if (std::find(p.problem.tasks[order[i + 1]].after.begin(), p.problem.tasks[order[i + 1]].after.end(), order[i]) ==
        p.problem.tasks[order[i + 1]].after.end())
      return false;
    std::swap(order[i], order[i + 1]);
    retime(p);
    return true;
  };
  all["exchanges change places against their events"] = [](Proved &p, std::mt19937 &random) {
    // The later exchange waits for computation that waits for the earlier one.
    std::vector<int64_t> &order = p.schedule.orders[1];
    if (order.size() < 2)
      return false;
    size_t i = random() % order.size(), j = random() % order.size();
    if (i >= j)
      return false;
    bool through = false;
    for (int64_t event : p.schedule.waits[order[j]])
      through |= forced(p.schedule, p.problem, order[i], event);
    if (!through)
      return false;
    std::swap(order[i], order[j]);
    return true;
  };
  all["task missing"] = [](Proved &p, std::mt19937 &random) {
    int64_t task = anyTask(p, random);
    std::erase(p.schedule.orders[p.problem.tasks[task].stream], task);
    return true;
  };
  all["task twice"] = [](Proved &p, std::mt19937 &random) {
    int64_t task = anyTask(p, random);
    std::vector<int64_t> &order = p.schedule.orders[p.problem.tasks[task].stream];
    order.insert(order.begin() + static_cast<int64_t>(random() % order.size()), task);
    return true;
  };
  all["task on another stream"] = [](Proved &p, std::mt19937 &random) {
    int64_t task = anyTask(p, random), stream = p.problem.tasks[task].stream;
    std::erase(p.schedule.orders[stream], task);
    p.schedule.orders[(stream + 1) % 3].push_back(task);
    return true;
  };
  all["task that does not exist"] = [](Proved &p, std::mt19937 &random) {
    p.schedule.orders[random() % 3].push_back(random() % 2 ? -1 : static_cast<int64_t>(p.problem.tasks.size()));
    return true;
  };
  all["stream missing"] = [](Proved &p, std::mt19937 &) {
    p.schedule.orders.pop_back();
    return true;
  };
  all["starts early"] = [](Proved &p, std::mt19937 &random) {
    int64_t task = anyTask(p, random);
    if (p.schedule.start[task] == 0)
      return false;
    const std::vector<int64_t> &order = p.schedule.orders[p.problem.tasks[task].stream];
    auto at = std::find(order.begin(), order.end(), task);
    bool tight = at != order.begin() && p.schedule.end[*std::prev(at)] == p.schedule.start[task];
    for (int64_t before : p.problem.tasks[task].after)
      tight |= p.schedule.end[before] == p.schedule.start[task];
    p.schedule.start[task] -= 0.5;
    p.schedule.end[task] -= 0.5;
    return tight;
  };
  all["shorter than its duration"] = [](Proved &p, std::mt19937 &random) {
    p.schedule.end[anyTask(p, random)] -= 0.25;
    return true;
  };
  all["not a number"] = [](Proved &p, std::mt19937 &random) {
    p.schedule.start[anyTask(p, random)] = std::nan("");
    return true;
  };
  all["read before written"] = [](Proved &p, std::mt19937 &random) {
    Buffer &buffer = p.problem.buffers[random() % p.problem.buffers.size()];
    int64_t reader = anyTask(p, random);
    if (reader == buffer.writer || forced(p.schedule, p.problem, buffer.writer, reader))
      return false;
    buffer.readers.push_back(reader);
    return true;
  };
  all["bytes used again too early"] = [](Proved &p, std::mt19937 &random) {
    size_t i = random() % p.problem.buffers.size(), j = random() % p.problem.buffers.size();
    Buffer &a = p.problem.buffers[i], &b = p.problem.buffers[j];
    auto dies = [&](const Buffer &first, const Buffer &second) {
      bool all = forced(p.schedule, p.problem, first.writer, second.writer);
      for (int64_t reader : first.readers)
        all &= forced(p.schedule, p.problem, reader, second.writer);
      return all;
    };
    if (i == j || dies(a, b) || dies(b, a))
      return false;
    b.begin = a.begin + 63; // one byte is enough
    return true;
  };
  return all;
}

TEST(Verify, FindsEveryMutation) {
  std::map<std::string, Mutation> all = mutations();
  std::mt19937 random(2025);
  int total = 0;
  for (const auto &[name, mutate] : all) {
    int made = 0;
    for (int attempt = 0; attempt < 4000 && made < 25; ++attempt) {
      Proved proved = makeProved(random);
      ASSERT_EQ(verify(proved.problem, proved.schedule), std::vector<std::string>());
      if (!mutate(proved, random))
        continue;
      ++made;
      EXPECT_FALSE(verify(proved.problem, proved.schedule).empty()) << name << ", attempt " << attempt;
    }
    EXPECT_EQ(made, 25) << name;
    total += made;
  }
  RecordProperty("mutations", total);
  EXPECT_GE(total, 300);
}

TEST(Verify, Messages) {
  Problem problem;
  problem.streams = {"compute", "comm"};
  problem.tasks = {{"A0.0", 0, 1, {}}, {"D0.0", 1, 1, {0}}, {"M0.0", 0, 1, {1}}, {"C0.0", 1, 1, {2}}};
  Schedule right = *simulate(problem, {{0, 2}, {1, 3}});
  auto messages = [&](auto &&change) {
    Schedule broken = right;
    change(broken);
    return verify(problem, broken);
  };
  using Strings = std::vector<std::string>;
  EXPECT_EQ(messages([](Schedule &) {}), Strings());
  EXPECT_EQ(
      messages([](Schedule &s) { s.waits[2].clear(); }),
      Strings{"M0.0 needs D0.0, but nothing makes it wait: D0.0 is number 1 of stream comm, of which 0 are sure to "
              "have ended"});
  EXPECT_EQ(messages([](Schedule &s) { std::swap(s.orders[1][0], s.orders[1][1]); }),
            Strings{"deadlock: M0.0 waits for D0.0 behind C0.0 on stream comm, C0.0 waits for M0.0"});
  EXPECT_EQ(messages([](Schedule &s) { s.start[3] = 2.5, s.end[3] = 3.5; }),
            (Strings{"C0.0 starts at 2.5, but what it needs M0.0 ends at 3",
                     "the makespan is 3.5, below the lower bound 4"}));
  EXPECT_EQ(messages([](Schedule &s) { s.orders[1].pop_back(); }), Strings{"C0.0 is missing on stream comm"});
}

/// The same program on every rank.
struct Ranks {
  std::vector<Problem> problems;
  std::vector<Schedule> schedules;
  std::vector<std::string> verify() const { return verifyRanks(problems, schedules); }
};

Ranks makeRanks(std::mt19937 &random, size_t count) {
  Proved proved = makeProved(random);
  return {std::vector<Problem>(count, proved.problem), std::vector<Schedule>(count, proved.schedule)};
}

TEST(Verify, RanksRunTheSameCollectivesInTheSameOrder) {
  std::mt19937 random(99);
  for (int round = 0; round < 60; ++round) {
    Ranks ranks = makeRanks(random, 2 + random() % 3);
    ASSERT_EQ(ranks.verify(), std::vector<std::string>());
    size_t rank = 1 + random() % (ranks.problems.size() - 1);
    std::vector<int64_t> &order = ranks.schedules[rank].orders[1];
    switch (round % 3) {
    case 0: std::swap(order[random() % (order.size() / 2)], order[order.size() / 2]); break;
    case 1: order.pop_back(); break;
    case 2: ranks.problems[rank].tasks[order[random() % order.size()]].name += "x"; break;
    }
    EXPECT_FALSE(ranks.verify().empty()) << "round " << round;
  }
}

TEST(Verify, CommunicatorsThatAreEnteredCrosswiseAreADeadlock) {
  // Each rank alone is right; together rank 0 holds ep and waits for etp, rank 1 the other way round.
  auto rank = [](bool epFirst) {
    Problem problem;
    problem.streams = {"compute", "ep", "etp"};
    problem.tasks = {{"D0.0", 1, 1, {}}, {"G0.0", 2, 1, {}}};
    problem.tasks[epFirst ? 1 : 0].after = {epFirst ? 0 : 1};
    return problem;
  };
  std::vector<Problem> problems = {rank(true), rank(false)};
  std::vector<Schedule> schedules;
  for (const Problem &problem : problems) {
    schedules.push_back(*simulate(problem, {{}, {0}, {1}}));
    EXPECT_EQ(verify(problem, schedules.back()), std::vector<std::string>());
  }
  std::vector<std::string> errors = verifyRanks(problems, schedules);
  ASSERT_EQ(errors.size(), 4u);
  EXPECT_EQ(errors[0], "deadlock between ranks: D0.0 of stream ep on rank 0 never runs");
}

} // namespace
