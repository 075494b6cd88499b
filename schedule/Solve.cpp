//===- Solve.cpp - list order and tabu search, and the two together with exact search -----------------------------===//
#include "schedule/Solve.h"

#include <algorithm>
#include <limits>
#include <map>

using namespace braid::schedule;

Orders braid::schedule::listOrder(const Problem &problem) {
  size_t n = problem.tasks.size();
  std::vector<double> tail = tails(problem, topologicalOrder(problem)), head(n, 0), free(problem.streams.size(), 0);
  std::vector<std::vector<int64_t>> users(n);
  std::vector<size_t> missing(n);
  std::vector<int64_t> ready;
  for (size_t task = 0; task < n; ++task) {
    missing[task] = problem.tasks[task].after.size();
    if (missing[task] == 0)
      ready.push_back(static_cast<int64_t>(task));
    for (int64_t before : problem.tasks[task].after)
      users[before].push_back(static_cast<int64_t>(task));
  }
  auto start = [&](int64_t task) { return std::max(head[task], free[problem.tasks[task].stream]); };
  Orders orders(problem.streams.size());
  while (!ready.empty()) {
    auto first = std::min_element(ready.begin(), ready.end(), [&](int64_t a, int64_t b) {
      return start(a) != start(b) ? start(a) < start(b) : tail[a] != tail[b] ? tail[a] > tail[b] : a < b;
    });
    int64_t task = *first, stream = problem.tasks[task].stream;
    ready.erase(first);
    orders[stream].push_back(task);
    free[stream] = start(task) + problem.tasks[task].duration;
    for (int64_t user : users[task]) {
      head[user] = std::max(head[user], free[stream]);
      if (--missing[user] == 0)
        ready.push_back(user);
    }
  }
  return orders;
}

/// Fillers go into gaps that are as long as `share` of their time.
static Orders fillGaps(const Problem &problem, const Orders &orders, const std::vector<int64_t> &fillers,
                       double share) {
  Orders filled(orders.size());
  std::vector<double> end(problem.tasks.size(), -1), free(orders.size(), 0);
  std::vector<size_t> next(orders.size(), 0);
  std::vector<bool> isFiller(problem.tasks.size(), false);
  for (int64_t task : fillers)
    isFiller[task] = true;
  auto startOf = [&](int64_t task) { // or infinity, while something it needs has not run
    double start = free[problem.tasks[task].stream];
    for (int64_t before : problem.tasks[task].after)
      start = end[before] < 0 ? std::numeric_limits<double>::infinity() : std::max(start, end[before]);
    return start;
  };
  auto run = [&](int64_t task) {
    int64_t stream = problem.tasks[task].stream;
    end[task] = free[stream] = startOf(task) + problem.tasks[task].duration;
    filled[stream].push_back(task);
  };
  auto isLeft = [&](int64_t task) { return end[task] < 0; };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < orders.size(); ++s) {
      while (next[s] < orders[s].size() && isFiller[orders[s][next[s]]])
        ++next[s];
      if (next[s] == orders[s].size())
        continue;
      double start = startOf(orders[s][next[s]]);
      if (start == std::numeric_limits<double>::infinity())
        continue;
      // When the next task begins is known: the gap in front of it too.
      int64_t chosen = -1;
      for (int64_t task : fillers) {
        double duration = problem.tasks[task].duration, begin = startOf(task);
        if (isLeft(task) && problem.tasks[task].stream == static_cast<int64_t>(s) && begin < start &&
            begin + share * duration <= start && (chosen < 0 || duration > problem.tasks[chosen].duration))
          chosen = task;
      }
      run(chosen >= 0 ? chosen : orders[s][next[s]++]);
      moved = true;
    }
  }
  for (auto task = fillers.rbegin(); task != fillers.rend(); ++task) // as they wait for each other
    if (isLeft(*task))
      filled[problem.tasks[*task].stream].push_back(*task);
  return filled;
}

Orders braid::schedule::fillGaps(const Problem &problem, const Orders &orders, const std::vector<int64_t> &fillers) {
  if (fillers.empty())
    return orders;
  Orders best;
  double least = std::numeric_limits<double>::infinity();
  for (double share : {1.0, 0.5, 0.0}) {
    Orders filled = ::fillGaps(problem, orders, fillers, share);
    double span = makespanOf(problem, filled);
    if (span < least) {
      least = span;
      best = std::move(filled);
    }
  }
  return best;
}

namespace {

/// Simulates many orders of one problem without allocating.
class Evaluator {
public:
  Evaluator(const Problem &problem, const Orders &orders)
      : end(problem.tasks.size()), problem(problem), orders(orders), place(problem.tasks.size()),
        missing(problem.tasks.size()), users(problem.tasks.size()) {
    for (size_t task = 0; task < problem.tasks.size(); ++task)
      for (int64_t before : problem.tasks[task].after)
        users[before].push_back(static_cast<int64_t>(task));
    queue.reserve(problem.tasks.size());
    for (const std::vector<int64_t> &order : orders)
      for (size_t i = 0; i < order.size(); ++i)
        place[order[i]] = static_cast<int64_t>(i);
  }

  double makespan() {
    queue.clear();
    for (size_t task = 0; task < missing.size(); ++task) {
      missing[task] = static_cast<int64_t>(problem.tasks[task].after.size()) + (place[task] > 0 ? 1 : 0);
      if (missing[task] == 0)
        queue.push_back(static_cast<int64_t>(task));
    }
    double latest = 0;
    for (size_t i = 0; i < queue.size(); ++i) {
      int64_t task = queue[i], previous = before(task);
      double start = previous < 0 ? 0 : end[previous];
      for (int64_t other : problem.tasks[task].after)
        start = std::max(start, end[other]);
      end[task] = start + problem.tasks[task].duration;
      if (end[task] >= latest) {
        latest = end[task];
        last = task;
      }
      auto settle = [&](int64_t user) {
        if (--missing[user] == 0)
          queue.push_back(user);
      };
      for (int64_t user : users[task])
        settle(user);
      const std::vector<int64_t> &order = orders[problem.tasks[task].stream];
      if (place[task] + 1 < static_cast<int64_t>(order.size()))
        settle(order[place[task] + 1]);
    }
    return queue.size() < missing.size() ? std::numeric_limits<double>::infinity() : latest;
  }

  /// Pairs that follow each other in a stream on one longest path, as (stream, place of the first).
  std::vector<std::pair<int64_t, int64_t>> criticalPairs() const {
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (int64_t task = last; task >= 0;) {
      double start = end[task] - problem.tasks[task].duration, slack = 1e-12 * end[last];
      int64_t previous = before(task), next = -1;
      for (int64_t other : problem.tasks[task].after)
        if (end[other] >= start - slack)
          next = other;
      if (previous >= 0 && end[previous] >= start - slack) {
        if (previous != next)
          pairs.push_back({problem.tasks[task].stream, place[previous]});
        next = previous;
      }
      task = start <= slack ? -1 : next;
    }
    return pairs;
  }

  void swap(int64_t stream, int64_t first) {
    std::vector<int64_t> &order = orders[stream];
    std::swap(order[first], order[first + 1]);
    std::swap(place[order[first]], place[order[first + 1]]);
  }
  const Orders &current() const { return orders; }

private:
  int64_t before(int64_t task) const {
    return place[task] == 0 ? -1 : orders[problem.tasks[task].stream][place[task] - 1];
  }

  std::vector<double> end;
  int64_t last = -1;
  const Problem &problem;
  Orders orders;
  std::vector<int64_t> place, missing, queue;
  std::vector<std::vector<int64_t>> users;
};

} // namespace

Orders braid::schedule::improve(const Problem &problem, const Orders &orders, int64_t effort) {
  Evaluator evaluator(problem, orders);
  double now = evaluator.makespan(), best = now, bound = lowerBound(problem);
  Orders bestOrders = orders;
  auto left = effort / std::max<int64_t>(1, static_cast<int64_t>(problem.tasks.size()));
  std::map<std::pair<int64_t, int64_t>, int64_t> forbidden; // (first, second) may not stand so again before this round
  int64_t stale = 0;
  for (int64_t round = 0; left > 0 && stale < 60 && best > bound * (1 + 1e-9); ++round) {
    std::vector<std::pair<int64_t, int64_t>> pairs = evaluator.criticalPairs();
    double chosenSpan = std::numeric_limits<double>::infinity();
    std::optional<std::pair<int64_t, int64_t>> chosen;
    for (auto [stream, first] : pairs) {
      if (left-- <= 0)
        break;
      const std::vector<int64_t> &order = evaluator.current()[stream];
      auto key = std::pair(order[first + 1], order[first]);
      evaluator.swap(stream, first);
      double span = evaluator.makespan();
      evaluator.swap(stream, first);
      auto known = forbidden.find(key);
      bool allowed = known == forbidden.end() || known->second <= round || span < best * (1 - 1e-12);
      if (allowed && span < chosenSpan) {
        chosenSpan = span;
        chosen = {stream, first};
      }
    }
    if (!chosen)
      break;
    const std::vector<int64_t> &order = evaluator.current()[chosen->first];
    forbidden[{order[chosen->second], order[chosen->second + 1]}] = round + 8 + round % 5;
    evaluator.swap(chosen->first, chosen->second);
    now = evaluator.makespan();
    ++stale;
    if (now < best * (1 - 1e-12)) {
      best = now;
      bestOrders = evaluator.current();
      stale = 0;
    }
  }
  return bestOrders;
}

Solution braid::schedule::search(const Problem &problem, const std::vector<NamedOrders> &candidates) {
  const int64_t effort = 20'000'000; // simulated tasks; about a tenth of a second
  double bound = lowerBound(problem);
  Solution best;
  best.makespan = std::numeric_limits<double>::infinity();
  auto offer = [&](const Orders &orders, double makespan, const std::string &how) {
    if (makespan < best.makespan * (1 - 1e-12))
      best = {orders, makespan, false, how};
  };
  std::vector<NamedOrders> all = candidates;
  all.push_back({"list order", listOrder(problem)});
  std::vector<double> makespans;
  for (const NamedOrders &candidate : all) {
    makespans.push_back(makespanOf(problem, candidate.orders));
    offer(candidate.orders, makespans.back(), candidate.name);
  }
  auto isBound = [&] { return best.makespan <= bound * (1 + 1e-9); };
  for (size_t i = 0; i < all.size() && !isBound(); ++i)
    if (makespans[i] < std::numeric_limits<double>::infinity()) {
      Orders improved = improve(problem, all[i].orders, effort / static_cast<int64_t>(all.size()));
      offer(improved, makespanOf(problem, improved), all[i].name + ", improved");
    }
  best.optimal = isBound();
  if (!best.optimal && problem.tasks.size() <= 64)
    if (auto found = exact(problem, best.makespan, effort / 4, &best.optimal)) // it remembers what it has seen
      best = {*found, makespanOf(problem, *found), best.optimal, "exact search"};
  return best;
}
