//===- Verify.cpp - the proof of a schedule -----------------------------------------------------------------------===//
#include "schedule/Verify.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

using namespace braid::schedule;

namespace {

class Verifier {
public:
  Verifier(const Problem &problem, const Schedule &schedule, bool timed)
      : problem(problem), schedule(schedule), timed(timed) {}

  std::vector<std::string> run() {
    // Each step reads what the one before it has shown to be in range.
    if (checkShape() && checkPlaces() && checkWaits() && orderEverything()) {
      checkDependences();
      checkBuffers();
      if (timed)
        checkTimes();
    }
    return std::move(errors);
  }

private:
  template <typename... Args> bool fail(fmt::format_string<Args...> text, Args &&...args) {
    errors.push_back(fmt::format(text, std::forward<Args>(args)...));
    return false;
  }
  const std::string &name(int64_t task) const { return problem.tasks[task].name; }
  int64_t count() const { return static_cast<int64_t>(problem.tasks.size()); }
  bool isTask(int64_t task) const { return task >= 0 && task < count(); }

  bool checkShape() {
    auto size = [&](const char *what, size_t have, size_t want) {
      return have == want || fail("{} {}, but the problem has {}", have, what, want);
    };
    return size("stream orders", schedule.orders.size(), problem.streams.size()) &&
           size("tasks with events", schedule.waits.size(), problem.tasks.size()) &&
           (!timed || (size("start times", schedule.start.size(), problem.tasks.size()) &&
                       size("end times", schedule.end.size(), problem.tasks.size())));
  }

  bool checkPlaces() {
    place.assign(count(), -1);
    for (size_t stream = 0; stream < schedule.orders.size(); ++stream)
      for (size_t i = 0; i < schedule.orders[stream].size(); ++i) {
        int64_t task = schedule.orders[stream][i];
        if (!isTask(task))
          fail("stream {} runs task {}; there are {}", problem.streams[stream], task, count());
        else if (problem.tasks[task].stream != static_cast<int64_t>(stream))
          fail("{} runs on stream {} but belongs to {}", name(task), problem.streams[stream],
               problem.streams[problem.tasks[task].stream]);
        else if (place[task] >= 0)
          fail("{} runs twice on stream {}: at places {} and {}", name(task), problem.streams[stream], place[task], i);
        else
          place[task] = static_cast<int64_t>(i);
      }
    for (int64_t task = 0; task < count(); ++task)
      if (place[task] < 0)
        fail("{} is missing on stream {}", name(task), problem.streams[problem.tasks[task].stream]);
    return errors.empty();
  }

  bool checkWaits() {
    for (int64_t task = 0; task < count(); ++task)
      for (int64_t event : schedule.waits[task])
        if (!isTask(event))
          fail("{} waits for task {}; there are {}", name(task), event, count());
    return errors.empty();
  }

  /// What streams and events force: past[task][s] tasks of stream s have ended before the task begins.
  bool orderEverything() {
    past.assign(count(), std::vector<int64_t>(problem.streams.size(), 0));
    std::vector<int64_t> next(problem.streams.size(), 0);
    for (int64_t done = 0; done < count();) {
      int64_t before = done;
      for (size_t s = 0; s < schedule.orders.size(); ++s)
        while (next[s] < static_cast<int64_t>(schedule.orders[s].size())) {
          int64_t task = schedule.orders[s][next[s]];
          auto hasRun = [&](int64_t event) { return place[event] < next[problem.tasks[event].stream]; };
          if (!std::all_of(schedule.waits[task].begin(), schedule.waits[task].end(), hasRun))
            break;
          if (next[s] > 0)
            learn(task, schedule.orders[s][next[s] - 1]);
          for (int64_t event : schedule.waits[task])
            learn(task, event);
          ++next[s];
          ++done;
        }
      if (done == before)
        return fail("deadlock: {}", circle(next));
    }
    return true;
  }

  void learn(int64_t task, int64_t event) {
    for (size_t s = 0; s < past[task].size(); ++s)
      past[task][s] = std::max(past[task][s], past[event][s]);
    int64_t &own = past[task][problem.tasks[event].stream];
    own = std::max(own, place[event] + 1);
  }

  /// "M0.0 waits for D0.0, behind C0.0 on stream comm, which waits for M0.0".
  std::string circle(const std::vector<int64_t> &next) const {
    auto head = [&](int64_t stream) { return schedule.orders[stream][next[stream]]; };
    auto blocker = [&](int64_t task) {
      for (int64_t event : schedule.waits[task])
        if (place[event] >= next[problem.tasks[event].stream])
          return event;
      return int64_t(-1);
    };
    int64_t stream = 0;
    while (next[stream] >= static_cast<int64_t>(schedule.orders[stream].size()))
      ++stream;
    for (size_t i = 0; i < schedule.orders.size(); ++i) // now on the circle itself
      stream = problem.tasks[blocker(head(stream))].stream;
    std::string text;
    int64_t first = stream;
    do {
      int64_t task = head(stream), event = blocker(task);
      text += fmt::format("{}{} waits for {}", text.empty() ? "" : ", ", name(task), name(event));
      stream = problem.tasks[event].stream;
      if (head(stream) != event)
        text += fmt::format(" behind {} on stream {}", name(head(stream)), problem.streams[stream]);
    } while (stream != first);
    return text;
  }

  bool endsBefore(int64_t before, int64_t after) const {
    return past[after][problem.tasks[before].stream] > place[before];
  }

  void checkDependences() {
    for (int64_t task = 0; task < count(); ++task)
      for (int64_t before : problem.tasks[task].after)
        if (!endsBefore(before, task))
          fail("{} needs {}, but nothing makes it wait: {} is number {} of stream {}, of which {} are sure to have "
               "ended",
               name(task), name(before), name(before), place[before] + 1, problem.streams[problem.tasks[before].stream],
               past[task][problem.tasks[before].stream]);
  }

  void checkBuffers() {
    for (const Buffer &buffer : problem.buffers)
      for (int64_t reader : buffer.readers)
        if (!endsBefore(buffer.writer, reader))
          fail("buffer {} is read by {} before {} has surely written it", buffer.name, name(reader),
               name(buffer.writer));
    // Two values in the same bytes: all that touches the one comes before the other is written.
    std::vector<size_t> byBegin(problem.buffers.size());
    std::iota(byBegin.begin(), byBegin.end(), size_t(0));
    std::sort(byBegin.begin(), byBegin.end(),
              [&](size_t a, size_t b) { return problem.buffers[a].begin < problem.buffers[b].begin; });
    for (size_t i = 0; i < byBegin.size(); ++i)
      for (size_t j = i + 1; j < byBegin.size(); ++j) {
        const Buffer &a = problem.buffers[byBegin[i]], &b = problem.buffers[byBegin[j]];
        if (b.begin >= a.begin + a.bytes)
          break;
        if (b.bytes > 0 && !diesBefore(a, b) && !diesBefore(b, a))
          fail("buffers {} and {} share bytes {} to {}, and {} may overwrite what is still needed", a.name, b.name,
               b.begin, std::min(a.begin + a.bytes, b.begin + b.bytes), name(b.writer));
      }
  }
  bool diesBefore(const Buffer &a, const Buffer &b) const {
    return endsBefore(a.writer, b.writer) && std::all_of(a.readers.begin(), a.readers.end(),
                                                         [&](int64_t reader) { return endsBefore(reader, b.writer); });
  }

  void checkTimes() {
    double makespan = 0;
    for (int64_t task = 0; task < count(); ++task)
      makespan = std::max(makespan, schedule.end[task]);
    double slack = 1e-9 * std::max(makespan, 1e-300);
    bool loads = std::any_of(problem.tasks.begin(), problem.tasks.end(), [](const Task &t) { return t.load > 0; });
    for (int64_t task = 0; task < count(); ++task) {
      double start = schedule.start[task], end = schedule.end[task];
      if (!(start >= -slack)) // also a NaN
        fail("{} starts at {}; valid: 0 or later", name(task), start);
      double beyond = end - start - problem.tasks[task].duration;
      bool mayTakeLonger = loads && (problem.computes(problem.tasks[task].stream) || problem.tasks[task].load > 0);
      if (!(beyond >= -slack && (mayTakeLonger || beyond <= slack)))
        fail("{} takes {} from {} to {}, but its duration is {}", name(task), end - start, start, end,
             problem.tasks[task].duration);
      auto follows = [&](int64_t before, const char *why) {
        if (start < schedule.end[before] - slack)
          fail("{} starts at {}, but {} {} ends at {}", name(task), start, why, name(before), schedule.end[before]);
      };
      if (place[task] > 0)
        follows(schedule.orders[problem.tasks[task].stream][place[task] - 1], "in its stream");
      for (int64_t before : problem.tasks[task].after)
        follows(before, "what it needs");
    }
    if (loads && errors.empty())
      checkLoads(makespan);
    if (double bound = lowerBound(problem); makespan < bound * (1 - 1e-9))
      fail("the makespan is {}, below the lower bound {}", makespan, bound);
  }

  /// Where loads slow tasks down: what each has done between its start and its end is its duration.
  void checkLoads(double makespan) {
    std::vector<std::pair<double, int64_t>> changes; // time and task, which begins or, as ~task, ends
    for (int64_t task = 0; task < count(); ++task)
      if (schedule.end[task] > schedule.start[task]) {
        changes.push_back({schedule.start[task], task});
        changes.push_back({schedule.end[task], ~task});
      }
    std::sort(changes.begin(), changes.end());
    std::vector<double> work(count(), 0);
    std::vector<int64_t> running(problem.streams.size(), -1);
    for (size_t i = 0; i < changes.size(); ++i) {
      double passed = i == 0 ? 0 : changes[i].first - changes[i - 1].first;
      std::vector<double> speeds = speedsOf(problem, running);
      for (size_t s = 0; s < running.size(); ++s)
        if (running[s] >= 0)
          work[running[s]] += passed * speeds[s];
      int64_t change = changes[i].second, task = change < 0 ? ~change : change;
      int64_t &own = running[problem.tasks[task].stream];
      own = change >= 0 ? task : own == task ? -1 : own; // the next one may have begun in the same moment
    }
    for (int64_t task = 0; task < count(); ++task)
      if (double duration = problem.tasks[task].duration; std::abs(work[task] - duration) > 1e-7 * makespan)
        fail("{} does {} from {} to {} beside what loads the processor, but its duration is {}", name(task), work[task],
             schedule.start[task], schedule.end[task], duration);
  }

  const Problem &problem;
  const Schedule &schedule;
  bool timed;
  std::vector<int64_t> place;
  std::vector<std::vector<int64_t>> past;
  std::vector<std::string> errors;
};

} // namespace

std::vector<std::string> braid::schedule::verify(const Problem &problem, const Schedule &schedule) {
  return Verifier(problem, schedule, /*timed=*/true).run();
}

std::vector<std::string> braid::schedule::verifyOrder(const Problem &problem, const Schedule &schedule) {
  return Verifier(problem, schedule, /*timed=*/false).run();
}

std::vector<std::string> braid::schedule::verifyRanks(std::span<const Problem> problems,
                                                      std::span<const Schedule> schedules) {
  std::vector<std::string> errors;
  if (problems.size() != schedules.size())
    return {fmt::format("{} ranks have a schedule, but {} have a problem", schedules.size(), problems.size())};
  if (problems.empty())
    return errors;
  // The same collectives in the same order.
  for (size_t rank = 0; rank < problems.size(); ++rank) {
    const Orders &mine = schedules[rank].orders, &first = schedules[0].orders;
    if (mine.size() != first.size()) {
      errors.push_back(
          fmt::format("rank {} has {} streams, but rank 0 has {}", rank, mine.size(), schedules[0].orders.size()));
      continue;
    }
    for (size_t s = 1; s < mine.size(); ++s) {
      auto name = [&](size_t of, size_t i) -> std::string {
        const std::vector<int64_t> &order = schedules[of].orders[s];
        return i < order.size() ? problems[of].tasks[order[i]].name : "nothing";
      };
      for (size_t i = 0; i < std::max(mine[s].size(), first[s].size()); ++i)
        if (name(rank, i) != name(0, i)) {
          errors.push_back(fmt::format("collective {} of communicator {} is {} on rank {} but {} on rank 0", i,
                                       problems[rank].streams[s], name(rank, i), rank, name(0, i)));
          break;
        }
    }
  }
  if (!errors.empty())
    return errors;
  // All ranks together: a collective runs when every rank has come to it.
  size_t streams = schedules[0].orders.size();
  std::vector<std::vector<int64_t>> next(problems.size(), std::vector<int64_t>(streams, 0));
  std::vector<std::vector<bool>> done;
  for (const Problem &problem : problems)
    done.emplace_back(problem.tasks.size(), false);
  auto headOf = [&](size_t rank, size_t s) {
    const std::vector<int64_t> &order = schedules[rank].orders[s];
    return next[rank][s] < static_cast<int64_t>(order.size()) ? order[next[rank][s]] : -1;
  };
  auto isReady = [&](size_t rank, size_t s) {
    int64_t task = headOf(rank, s);
    if (task < 0)
      return false;
    const std::vector<int64_t> &waits = schedules[rank].waits[task];
    return std::all_of(waits.begin(), waits.end(), [&](int64_t event) { return done[rank][event]; });
  };
  auto everyRankIsReady = [&](size_t s) {
    for (size_t rank = 0; rank < problems.size(); ++rank)
      if (!isReady(rank, s))
        return false;
    return true;
  };
  auto advance = [&](size_t rank, size_t s) {
    done[rank][headOf(rank, s)] = true;
    ++next[rank][s];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < problems.size(); ++rank)
      for (; isReady(rank, 0); moved = true)
        advance(rank, 0);
    for (size_t s = 1; s < streams; ++s)
      while (everyRankIsReady(s)) {
        for (size_t rank = 0; rank < problems.size(); ++rank)
          advance(rank, s);
        moved = true;
      }
  }
  for (size_t rank = 0; rank < problems.size(); ++rank)
    for (size_t s = 0; s < streams; ++s)
      if (int64_t task = headOf(rank, s); task >= 0)
        errors.push_back(fmt::format("deadlock between ranks: {} of stream {} on rank {} never runs",
                                     problems[rank].tasks[task].name, problems[rank].streams[s], rank));
  return errors;
}
