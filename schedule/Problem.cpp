//===- Problem.cpp - simulation, measures and lower bounds --------------------------------------------------------===//
#include "schedule/Problem.h"
#include "schedule/Preemptive.h"

#include <algorithm>
#include <limits>

using namespace braid::schedule;

namespace {

/// Places in the streams, and who waits for whom: dependences and FIFO neighbours.
class Graph {
public:
  Graph(const Problem &problem, const Orders &orders)
      : problem(problem), position(problem.tasks.size(), -1), previous(problem.tasks.size(), -1) {
    for (const std::vector<int64_t> &order : orders)
      for (size_t i = 0; i < order.size(); ++i) {
        position[order[i]] = static_cast<int64_t>(i);
        previous[order[i]] = i == 0 ? -1 : order[i - 1];
      }
  }

  /// Tasks in an order in which each follows all it waits for; the rest of them in a cycle.
  std::vector<int64_t> sorted() const {
    size_t n = problem.tasks.size();
    std::vector<int64_t> missing(n, 0), first(n + 1, 0), users;
    auto forEach = [&](auto &&edge) {
      for (size_t task = 0; task < n; ++task) {
        for (int64_t before : problem.tasks[task].after)
          edge(before, task);
        if (previous[task] >= 0)
          edge(previous[task], task);
      }
    };
    forEach([&](int64_t before, size_t task) { ++first[before + 1], ++missing[task]; });
    for (size_t i = 0; i < n; ++i)
      first[i + 1] += first[i];
    users.resize(first[n]);
    std::vector<int64_t> next(first.begin(), first.end() - 1);
    forEach([&](int64_t before, size_t task) { users[next[before]++] = static_cast<int64_t>(task); });
    std::vector<int64_t> order;
    order.reserve(n);
    for (size_t task = 0; task < n; ++task)
      if (missing[task] == 0)
        order.push_back(static_cast<int64_t>(task));
    for (size_t i = 0; i < order.size(); ++i)
      for (int64_t u = first[order[i]]; u < first[order[i] + 1]; ++u)
        if (--missing[users[u]] == 0)
          order.push_back(users[u]);
    return order;
  }

  const Problem &problem;
  std::vector<int64_t> position, previous;
};

} // namespace

static std::vector<int64_t> findCycle(const Graph &graph, const std::vector<int64_t> &sorted) {
  size_t n = graph.problem.tasks.size();
  std::vector<bool> done(n, false);
  for (int64_t task : sorted)
    done[task] = true;
  auto blocker = [&](int64_t task) {
    for (int64_t before : graph.problem.tasks[task].after)
      if (!done[before])
        return before;
    return graph.previous[task]; // never done here: the task itself is not
  };
  std::vector<int64_t> seen(n, -1), path;
  int64_t task = 0;
  while (done[task])
    ++task;
  for (; seen[task] < 0; task = blocker(task)) {
    seen[task] = static_cast<int64_t>(path.size());
    path.push_back(task);
  }
  return {path.begin() + seen[task], path.end()};
}

std::vector<double> braid::schedule::speedsOf(const Problem &problem, const std::vector<int64_t> &running) {
  constexpr double mostLoad = 0.95; // beside something that is computed
  std::vector<double> speeds(running.size(), 1), loads(running.size(), 0); // loads: by host
  for (size_t s = 0; s < running.size(); ++s)
    if (running[s] >= 0)
      loads[problem.hostOf(static_cast<int64_t>(s))] += problem.tasks[running[s]].load;
  for (size_t s = 0; s < running.size(); ++s) {
    auto stream = static_cast<int64_t>(s);
    int64_t host = problem.hostOf(stream);
    double load = loads[host], most = running[host] >= 0 ? mostLoad : 1;
    if (problem.computes(stream))
      speeds[s] = 1 - std::min(load, most);
    else if (load > most && running[s] >= 0 && problem.tasks[running[s]].load > 0)
      speeds[s] = most / load; // messages that ask for more of the processor than there is
  }
  return speeds;
}

/// Start and end where tasks load a compute stream: every stream goes on with its task until the first of them ends.
static void timeLoaded(const Problem &problem, Schedule &schedule) {
  size_t streams = schedule.orders.size(), left = problem.tasks.size();
  std::vector<bool> done(problem.tasks.size(), false);
  std::vector<size_t> next(streams, 0);
  std::vector<int64_t> running(streams, -1);
  std::vector<double> rest(streams, 0); // of the running task, at full speed
  auto isReady = [&](int64_t task) {
    const std::vector<int64_t> &after = problem.tasks[task].after;
    return std::all_of(after.begin(), after.end(), [&](int64_t before) { return done[before]; });
  };
  double now = 0;
  while (left > 0) {
    double step = std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < streams; ++s)
      if (running[s] < 0 && next[s] < schedule.orders[s].size() && isReady(schedule.orders[s][next[s]])) {
        running[s] = schedule.orders[s][next[s]++];
        rest[s] = problem.tasks[running[s]].duration;
        schedule.start[running[s]] = now;
      }
    std::vector<double> speeds = speedsOf(problem, running);
    for (size_t s = 0; s < streams; ++s)
      if (running[s] >= 0)
        step = std::min(step, rest[s] / speeds[s]);
    now += step;
    for (size_t s = 0; s < streams; ++s) {
      if (running[s] < 0)
        continue;
      bool ends = rest[s] / speeds[s] <= step;
      rest[s] -= step * speeds[s];
      if (!ends)
        continue;
      schedule.end[running[s]] = now;
      done[running[s]] = true;
      running[s] = -1;
      --left;
    }
  }
}

std::optional<Schedule> braid::schedule::simulate(const Problem &problem, const Orders &orders,
                                                  std::vector<int64_t> *cycle) {
  Graph graph(problem, orders);
  std::vector<int64_t> sorted = graph.sorted();
  size_t n = problem.tasks.size();
  if (sorted.size() < n) {
    if (cycle)
      *cycle = findCycle(graph, sorted);
    return std::nullopt;
  }
  Schedule schedule;
  schedule.orders = orders;
  schedule.waits.resize(n);
  schedule.start.resize(n);
  schedule.end.resize(n);
  // known[task][stream]: how many tasks of that stream have surely ended when the task has.
  std::vector<std::vector<int64_t>> known(n, std::vector<int64_t>(problem.streams.size(), 0));
  for (int64_t task : sorted) {
    int64_t stream = problem.tasks[task].stream;
    double start = 0;
    auto learn = [&](int64_t before) {
      start = std::max(start, schedule.end[before]);
      for (size_t s = 0; s < known[task].size(); ++s)
        known[task][s] = std::max(known[task][s], known[before][s]);
    };
    if (graph.previous[task] >= 0)
      learn(graph.previous[task]);
    // The latest of a stream first: its event covers the ones before it.
    std::vector<int64_t> after = problem.tasks[task].after;
    std::sort(after.begin(), after.end(), [&](int64_t a, int64_t b) { return graph.position[a] > graph.position[b]; });
    for (int64_t before : after)
      if (known[task][problem.tasks[before].stream] <= graph.position[before]) {
        learn(before);
        if (problem.tasks[before].stream != stream)
          schedule.waits[task].push_back(before);
      }
    known[task][stream] = graph.position[task] + 1;
    schedule.start[task] = start;
    schedule.end[task] = start + problem.tasks[task].duration;
  }
  if (std::any_of(problem.tasks.begin(), problem.tasks.end(), [](const Task &task) { return task.load > 0; }))
    timeLoaded(problem, schedule);
  return schedule;
}

double braid::schedule::makespanOf(const Problem &problem, const Orders &orders) {
  Graph graph(problem, orders);
  std::vector<int64_t> sorted = graph.sorted();
  if (sorted.size() < problem.tasks.size())
    return std::numeric_limits<double>::infinity();
  std::vector<double> end(problem.tasks.size(), 0);
  double makespan = 0;
  for (int64_t task : sorted) {
    double start = graph.previous[task] < 0 ? 0 : end[graph.previous[task]];
    for (int64_t before : problem.tasks[task].after)
      start = std::max(start, end[before]);
    end[task] = start + problem.tasks[task].duration;
    makespan = std::max(makespan, end[task]);
  }
  return makespan;
}

Measures braid::schedule::measureOn(const Problem &problem, const Schedule &schedule, int64_t host) {
  Measures result;
  std::vector<std::pair<double, double>> compute, comm;
  for (size_t task = 0; task < problem.tasks.size(); ++task) {
    double start = schedule.start[task], end = schedule.end[task];
    int64_t stream = problem.tasks[task].stream;
    result.makespan = std::max(result.makespan, end);
    if (end > start && problem.hostOf(stream) == host)
      (stream == host ? compute : comm).push_back({start, end});
  }
  auto merge = [](std::vector<std::pair<double, double>> &spans) {
    std::sort(spans.begin(), spans.end());
    std::vector<std::pair<double, double>> merged;
    for (auto [start, end] : spans)
      if (merged.empty() || start > merged.back().second)
        merged.push_back({start, end});
      else
        merged.back().second = std::max(merged.back().second, end);
    spans = std::move(merged);
  };
  merge(compute);
  merge(comm);
  for (auto [start, end] : compute)
    result.computeBusy += end - start;
  size_t c = 0;
  for (auto [start, end] : comm) {
    result.exposedComm += end - start;
    while (c < compute.size() && compute[c].second <= start)
      ++c;
    for (size_t k = c; k < compute.size() && compute[k].first < end; ++k)
      result.exposedComm -= std::min(end, compute[k].second) - std::max(start, compute[k].first);
  }
  result.bubble = result.makespan > 0 ? 1 - result.computeBusy / result.makespan : 0;
  return result;
}

Measures braid::schedule::measure(const Problem &problem, const Schedule &schedule) {
  Measures mean;
  double hosts = 0;
  for (int64_t stream = 0; stream < static_cast<int64_t>(problem.streams.size()); ++stream)
    if (problem.computes(stream)) {
      Measures own = measureOn(problem, schedule, stream);
      mean.makespan = own.makespan;
      mean.computeBusy += own.computeBusy;
      mean.exposedComm += own.exposedComm;
      ++hosts;
    }
  if (hosts > 1) {
    mean.computeBusy /= hosts;
    mean.exposedComm /= hosts;
  }
  mean.bubble = mean.makespan > 0 ? 1 - mean.computeBusy / mean.makespan : 0;
  return mean;
}

std::vector<int64_t> braid::schedule::topologicalOrder(const Problem &problem) { return Graph(problem, {}).sorted(); }

std::vector<double> braid::schedule::tails(const Problem &problem, const std::vector<int64_t> &topological) {
  std::vector<double> tail(problem.tasks.size(), 0);
  for (auto it = topological.rbegin(); it != topological.rend(); ++it)
    for (int64_t before : problem.tasks[*it].after)
      tail[before] = std::max(tail[before], tail[*it] + problem.tasks[*it].duration);
  return tail;
}

//===- Lower bounds -----------------------------------------------------------------------------------------------===//

double braid::schedule::preemptiveBound(std::vector<Interval> tasks) {
  // Jackson's preemptive rule: of the tasks that could run, the one with the longest tail. Its latest end is the least
  // of all orders, preempted or not.
  std::sort(tasks.begin(), tasks.end(), [](const Interval &a, const Interval &b) { return a.head < b.head; });
  auto shorterTail = [](const Interval &a, const Interval &b) { return a.tail < b.tail; };
  std::vector<Interval> ready;
  double now = 0, bound = 0;
  for (size_t next = 0; next < tasks.size() || !ready.empty();) {
    if (ready.empty())
      now = std::max(now, tasks[next].head);
    for (; next < tasks.size() && tasks[next].head <= now; ++next) {
      ready.push_back(tasks[next]);
      std::push_heap(ready.begin(), ready.end(), shorterTail);
    }
    std::pop_heap(ready.begin(), ready.end(), shorterTail);
    Interval task = ready.back();
    ready.pop_back();
    double until = now + task.duration;
    if (next < tasks.size() && tasks[next].head < until) {
      task.duration = until - tasks[next].head;
      now = tasks[next].head;
      ready.push_back(task);
      std::push_heap(ready.begin(), ready.end(), shorterTail);
    } else {
      now = until;
      bound = std::max(bound, until + task.tail);
    }
  }
  return bound;
}

/// Tasks that are before or behind every other task.
static std::vector<bool> findCuts(const Problem &problem, const std::vector<int64_t> &topological) {
  size_t n = problem.tasks.size(), words = (n + 63) / 64;
  std::vector<uint64_t> ancestors(n * words, 0);
  std::vector<int64_t> above(n, 0), below(n, 0);
  for (int64_t task : topological) {
    uint64_t *own = &ancestors[task * words];
    for (int64_t before : problem.tasks[task].after) {
      for (size_t w = 0; w < words; ++w)
        own[w] |= ancestors[before * words + w];
      own[before / 64] |= uint64_t(1) << (before % 64);
    }
    for (size_t w = 0; w < words; ++w)
      for (uint64_t bits = own[w]; bits; bits &= bits - 1) {
        ++above[task];
        ++below[w * 64 + __builtin_ctzll(bits)];
      }
  }
  std::vector<bool> cuts(n);
  for (size_t task = 0; task < n; ++task)
    cuts[task] = above[task] + below[task] + 1 == static_cast<int64_t>(n);
  return cuts;
}

double braid::schedule::lowerBound(const Problem &problem) {
  std::vector<int64_t> topological = topologicalOrder(problem);
  std::vector<bool> cuts = findCuts(problem, topological);
  // Every task between two cuts lies wholly between them in time.
  size_t n = problem.tasks.size();
  std::vector<int64_t> part(n, 0); // number of cuts above a task
  std::vector<double> head(n, 0), tail(n, 0);
  double bound = 0;
  int64_t parts = 1;
  for (int64_t task : topological) {
    for (int64_t before : problem.tasks[task].after)
      part[task] = std::max(part[task], part[before] + (cuts[before] ? 1 : 0));
    for (int64_t before : problem.tasks[task].after)
      if (part[before] == part[task] && !cuts[before])
        head[task] = std::max(head[task], head[before] + problem.tasks[before].duration);
    if (cuts[task])
      bound += problem.tasks[task].duration;
    parts = std::max(parts, part[task] + 1);
  }
  for (auto it = topological.rbegin(); it != topological.rend(); ++it)
    for (int64_t before : problem.tasks[*it].after)
      if (part[before] == part[*it] && !cuts[before] && !cuts[*it])
        tail[before] = std::max(tail[before], tail[*it] + problem.tasks[*it].duration);
  std::vector<std::vector<Interval>> machines(parts * problem.streams.size());
  std::vector<double> bounds(parts, 0);
  for (size_t task = 0; task < n; ++task)
    if (!cuts[task]) {
      Interval interval{head[task], problem.tasks[task].duration, tail[task]};
      bounds[part[task]] = std::max(bounds[part[task]], interval.head + interval.duration + interval.tail);
      machines[part[task] * problem.streams.size() + problem.tasks[task].stream].push_back(interval);
    }
  for (size_t m = 0; m < machines.size(); ++m) {
    double &own = bounds[m / problem.streams.size()];
    own = std::max(own, preemptiveBound(std::move(machines[m])));
  }
  for (double own : bounds)
    bound += own;
  return bound;
}
