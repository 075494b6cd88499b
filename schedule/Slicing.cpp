//===- Slicing.cpp - where a sequence is cut ----------------------------------------------------------------------===//
#include "schedule/Slicing.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace braid::schedule;

std::optional<Slicing> braid::schedule::parseSlicing(std::string_view name) {
  auto found = std::find(slicingNames.begin(), slicingNames.end(), name);
  if (found == slicingNames.end())
    return std::nullopt;
  return static_cast<Slicing>(found - slicingNames.begin());
}

/// 1 + .. + n.
static double triangle(int64_t n) { return 0.5 * static_cast<double>(n) * static_cast<double>(n + 1); }

double AttentionCost::of(int64_t begin, int64_t end) const {
  return perPair() * (triangle(end) - triangle(begin)) + perToken() * static_cast<double>(end - begin);
}

std::vector<int64_t> braid::schedule::uniformSlices(int64_t length, int64_t degree) {
  std::vector<int64_t> slices;
  for (int64_t i = 0; i < degree; ++i)
    slices.push_back(length * (i + 1) / degree - length * i / degree);
  return slices;
}

std::vector<int64_t> braid::schedule::timeUniformSlices(int64_t length, int64_t degree, AttentionCost cost) {
  // FLOPs(l, c) = pair l c + token l; times `degree`, so that the target is an integer.
  using Wide = __int128;
  Wide pair = cost.ranks * (4 * Wide(cost.dModel) + 3 * Wide(cost.heads)), token = 8 * Wide(cost.dModel) * cost.dModel;
  Wide target = pair * (Wide(length) * (length + 1) / 2) + token * length;
  auto flops = [&](int64_t start, int64_t end) {
    return degree * (pair * (end - start) * end + token * (end - start));
  };
  int64_t share = (length + degree - 1) / degree;
  std::vector<int64_t> slices = {share};
  for (int64_t start = share, n = 1; start < length; ++n) {
    int64_t end = std::min(length, std::max(start + 1, (n + 1) * share));
    if (length - end >= degree - n) {
      // FLOPs grow with the end: the first end that reaches the target, or the one before it.
      int64_t low = end, high = length;
      while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (flops(start, middle) < target)
          low = middle + 1;
        else
          high = middle;
      }
      auto distance = [&](int64_t at) {
        Wide difference = flops(start, at) - target;
        return difference < 0 ? -difference : difference;
      };
      end = low > end && distance(low - 1) <= distance(low) ? low - 1 : low;
    }
    slices.push_back(end - start);
    start = end;
  }
  return slices;
}

std::vector<int64_t> braid::schedule::balancedSlices(int64_t length, int64_t degree, AttentionCost cost,
                                                     int64_t align) {
  std::vector<int64_t> slices;
  int64_t cells = (length + align - 1) / align;
  for (int64_t start = 0, left = std::min(degree, cells); left > 0; --left) {
    int64_t end = length;
    if (left > 1) {
      double target = cost.of(start, length) / static_cast<double>(left);
      // One cell at least for this slice and for each one behind it.
      int64_t least = start + align, most = (cells - (left - 1)) * align;
      auto distance = [&](int64_t at) { return std::abs(cost.of(start, at) - target); };
      end = least;
      while (end + align <= most && distance(end + align) < distance(end))
        end += align;
    }
    slices.push_back(end - start);
    start = end;
  }
  return slices;
}

int64_t braid::schedule::defaultAlignment(int64_t length, int64_t degree) {
  int64_t align = 64;
  while (align > 1 && length < 4 * align * degree)
    align /= 2;
  return align;
}

//===- Simulated --------------------------------------------------------------------------------------------------===//

namespace {

/// 1A1M after the mixer of some slice: when compute and communication are free, when its dispatch has ended.
struct Moment {
  double compute, comm, dispatched;
  int64_t begin; ///< of the slice, as a place in the grid
  int64_t from; ///< index of the moment before it
  bool leads(const Moment &other) const {
    return compute <= other.compute && comm <= other.comm && dispatched <= other.dispatched;
  }
};

class Search {
public:
  Search(int64_t length, const LayerTimes &times, std::vector<int64_t> places)
      : length(length), times(times), places(std::move(places)) {}

  std::vector<int64_t> run(int64_t degree) {
    auto last = static_cast<int64_t>(places.size()) - 1;
    double best = std::numeric_limits<double>::infinity();
    std::vector<int64_t> slices;
    // Moments of the current number of slices by where the last one ends; all of them, for the way back.
    std::vector<std::vector<int64_t>> now(last + 1);
    for (int64_t end = 1; end <= last; ++end) {
      double a = mixer(0, end), d = a + tokens(times.dispatch, 0, end);
      now[end] = {add({a, d, d, 0, -1})};
    }
    for (int64_t count = 1;; ++count) {
      for (int64_t index : now[last])
        if (double span = finish(index); span < best * (1 - 1e-12)) {
          best = span;
          slices = wayTo(index, last);
        }
      if (count == degree)
        return slices;
      std::vector<std::vector<int64_t>> next(last + 1);
      for (int64_t begin = count; begin < last; ++begin)
        for (int64_t end = begin + 1; end <= last; ++end)
          for (int64_t index : now[begin])
            keep(next[end], extend(index, begin, end));
      now = std::move(next);
    }
  }

private:
  double mixer(int64_t begin, int64_t end) const {
    return times.overhead + times.mixer * times.cost.of(places[begin], places[end]) / times.cost.of(0, length);
  }
  double tokens(double whole, int64_t begin, int64_t end) const {
    return times.overhead + whole * static_cast<double>(places[end] - places[begin]) / static_cast<double>(length);
  }

  /// A of [begin, end), then M of the slice before it; D of the one, then C of the other.
  Moment extend(int64_t index, int64_t begin, int64_t end) const {
    const Moment &was = moments[index];
    double mixed = was.compute + mixer(begin, end);
    double dispatched = std::max(was.comm, mixed) + tokens(times.dispatch, begin, end);
    double experts = std::max(mixed, was.dispatched) + tokens(times.experts, was.begin, begin);
    double combined = std::max(dispatched, experts) + tokens(times.combine, was.begin, begin);
    return {experts, combined, dispatched, begin, index};
  }
  double finish(int64_t index) const {
    const Moment &at = moments[index];
    auto last = static_cast<int64_t>(places.size()) - 1;
    double experts = std::max(at.compute, at.dispatched) + tokens(times.experts, at.begin, last);
    return std::max(at.comm, experts) + tokens(times.combine, at.begin, last);
  }

  int64_t add(const Moment &moment) {
    moments.push_back(moment);
    return static_cast<int64_t>(moments.size()) - 1;
  }
  /// Only moments that begin at the same place are compared: the slice under way counts too.
  void keep(std::vector<int64_t> &list, const Moment &moment) {
    for (int64_t other : list)
      if (moments[other].begin == moment.begin && moments[other].leads(moment))
        return;
    std::erase_if(list,
                  [&](int64_t other) { return moments[other].begin == moment.begin && moment.leads(moments[other]); });
    list.push_back(add(moment));
  }

  std::vector<int64_t> wayTo(int64_t index, int64_t end) const {
    std::vector<int64_t> slices;
    for (; index >= 0; index = moments[index].from) {
      slices.push_back(places[end] - places[moments[index].begin]);
      end = moments[index].begin;
    }
    std::reverse(slices.begin(), slices.end());
    return slices;
  }

  int64_t length;
  const LayerTimes &times;
  std::vector<int64_t> places; ///< tokens before each place of the grid, from 0 to length
  std::vector<Moment> moments;
};

} // namespace

std::vector<int64_t> braid::schedule::simulatedSlices(int64_t length, int64_t degree, const LayerTimes &times,
                                                      int64_t align, int64_t cells) {
  int64_t units = (length + align - 1) / align;
  int64_t count = std::max(std::min(units, cells), std::min(units, degree));
  std::vector<int64_t> places = {0};
  for (int64_t i = 1; i <= count; ++i)
    places.push_back(std::min(length, units * i / count * align));
  return Search(length, times, std::move(places)).run(degree);
}
