//===- ExactSearch.cpp - the optimum of small problems ------------------------------------------------------------===//
// Giffler and Thompson: of the tasks that could run now, take the one that would end first; on its stream, one of the
// tasks that could begin before that end is next. Branching over these reaches every active schedule, and one of them
// is optimal. A branch ends where a bound reaches the best makespan, or where the same tasks were scheduled before and
// left every stream and every other task at least as early.
#include "schedule/Preemptive.h"
#include "schedule/Solve.h"

#include <algorithm>
#include <unordered_map>

using namespace braid::schedule;

namespace {

class ExactSearch {
public:
  ExactSearch(const Problem &problem, double upper, int64_t effort)
      : problem(problem), upper(upper), left(effort / std::max<int64_t>(1, problem.tasks.size())),
        topological(topologicalOrder(problem)), tail(tails(problem, topological)), end(problem.tasks.size(), 0),
        free(problem.streams.size(), 0), orders(problem.streams.size()) {}

  bool run() {
    branch(0, 0);
    return left > 0;
  }
  std::optional<Orders> best;

private:
  bool isDone(uint64_t done, int64_t task) const { return done >> task & 1; }

  void branch(uint64_t done, double makespan) {
    if (left-- <= 0)
      return;
    size_t n = problem.tasks.size();
    if (static_cast<size_t>(__builtin_popcountll(done)) == n) {
      if (makespan < upper * (1 - 1e-12)) {
        upper = makespan;
        best = orders;
      }
      return;
    }
    // How early everything else could begin.
    std::vector<double> head(n, 0);
    std::vector<std::vector<Interval>> streams(problem.streams.size());
    double bound = makespan;
    for (int64_t task : topological) {
      if (isDone(done, task))
        continue;
      const Task &t = problem.tasks[task];
      head[task] = free[t.stream];
      for (int64_t before : t.after)
        head[task] =
            std::max(head[task], isDone(done, before) ? end[before] : head[before] + problem.tasks[before].duration);
      bound = std::max(bound, head[task] + t.duration + tail[task]);
      streams[t.stream].push_back({head[task], t.duration, tail[task]});
    }
    for (std::vector<Interval> &stream : streams)
      bound = std::max(bound, preemptiveBound(std::move(stream)));
    if (bound >= upper * (1 - 1e-12) || isDominated(done, makespan, head))
      return;
    int64_t first = -1;
    auto isReady = [&](int64_t task) {
      if (isDone(done, task))
        return false;
      for (int64_t before : problem.tasks[task].after)
        if (!isDone(done, before))
          return false;
      return true;
    };
    std::vector<int64_t> ready;
    for (int64_t task : topological)
      if (isReady(task)) {
        ready.push_back(task);
        if (first < 0 || head[task] + problem.tasks[task].duration < head[first] + problem.tasks[first].duration)
          first = task;
      }
    double firstEnd = head[first] + problem.tasks[first].duration;
    int64_t stream = problem.tasks[first].stream;
    std::erase_if(ready, [&](int64_t task) {
      return task != first && (problem.tasks[task].stream != stream || head[task] >= firstEnd);
    });
    std::sort(ready.begin(), ready.end(),
              [&](int64_t a, int64_t b) { return tail[a] != tail[b] ? tail[a] > tail[b] : a < b; });
    double wasFree = free[stream];
    for (int64_t task : ready) {
      end[task] = free[stream] = head[task] + problem.tasks[task].duration;
      orders[stream].push_back(task);
      branch(done | uint64_t(1) << task, std::max(makespan, end[task]));
      orders[stream].pop_back();
      free[stream] = wasFree;
    }
  }

  /// The makespan so far and the heads of what is left are all that the past still means.
  bool isDominated(uint64_t done, double makespan, std::vector<double> head) {
    head.push_back(makespan);
    std::vector<std::vector<double>> &known = seen[done];
    auto asEarly = [&](const std::vector<double> &a, const std::vector<double> &b) {
      return std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) { return x <= y; });
    };
    for (const std::vector<double> &other : known)
      if (asEarly(other, head))
        return true;
    std::erase_if(known, [&](const std::vector<double> &other) { return asEarly(head, other); });
    known.push_back(std::move(head));
    return false;
  }

  const Problem &problem;
  double upper;
  int64_t left;
  std::vector<int64_t> topological;
  std::vector<double> tail, end, free;
  Orders orders;
  std::unordered_map<uint64_t, std::vector<std::vector<double>>> seen;
};

} // namespace

std::optional<Orders> braid::schedule::exact(const Problem &problem, double upper, int64_t effort, bool *proved) {
  if (proved)
    *proved = false;
  if (problem.tasks.size() > 64)
    return std::nullopt;
  ExactSearch search(problem, upper, effort);
  bool finished = search.run();
  if (proved)
    *proved = finished;
  return search.best;
}
