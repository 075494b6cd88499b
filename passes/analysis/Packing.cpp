//===- Packing.cpp - offsets for buffers that live at different times ---------------------------------------------===//
// Greedy by size with best fit is within a few percent of the lower bound on such programs (Pisarchyk and Lee 2020);
// trying some orders costs nothing and helps where long thin and short fat buffers mix. Where one fat buffer still ends
// up on top, moving it to the front of the order finds what greedy misses, and where that leaves much a search by
// chance, with the same numbers every time, among the fat ones first: within a percent on most models, within 6% on all. The search is counted in
// neighbours looked at, so that large programs end in seconds and every run ends alike.
#include "passes/analysis/Packing.h"

#include "llvm/ADT/Sequence.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

using namespace braid;
using llvm::ArrayRef;
using llvm::MutableArrayRef;

/// Neighbours looked at before the search for a better order ends.
static constexpr int64_t kEffort = 30'000'000;
/// Of them, those of the search by chance where orders by size and life leave a twentieth or more.
static constexpr int64_t kSearchEffort = 20'000'000;

static bool meet(ArrayRef<Segment> a, ArrayRef<Segment> b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].meets(b[j]))
      return true;
    a[i].end < b[j].end ? ++i : ++j;
  }
  return false;
}

static int64_t duration(const PackedItem &item) {
  int64_t sum = 0;
  for (Segment segment : item.life)
    sum += segment.end - segment.begin + 1;
  return sum;
}

/// Items of fewer bytes than this part of the bound fit in somewhere: the others decide.
static constexpr int64_t kThin = 256;

/// Places the items in this order, each in the smallest gap that holds it, around those that have an offset. Returns the bytes used; more than `most` as soon as that is
/// known, and places no more.
static int64_t place(ArrayRef<PackedItem> items, ArrayRef<unsigned> order,
                     ArrayRef<llvm::SmallVector<unsigned>> neighbours, int64_t align,
                     llvm::SmallVectorImpl<int64_t> &offsets, int64_t most = INT64_MAX) {
  int64_t total = 0;
  for (auto [item, offset] : llvm::zip(items, offsets))
    if (offset >= 0)
      total = std::max<int64_t>(total, offset + llvm::alignTo(item.bytes, align));
  for (unsigned id : order) {
    int64_t bytes = llvm::alignTo(items[id].bytes, align);
    llvm::SmallVector<std::pair<int64_t, int64_t>> taken;
    for (unsigned other : neighbours[id])
      if (offsets[other] >= 0)
        taken.push_back({offsets[other], offsets[other] + llvm::alignTo(items[other].bytes, align)});
    llvm::sort(taken);
    int64_t best = -1, bestGap = 0, free = 0;
    for (auto [begin, end] : taken) {
      if (begin - free >= bytes && (best < 0 || begin - free < bestGap)) {
        best = free;
        bestGap = begin - free;
      }
      free = std::max(free, end);
    }
    offsets[id] = best < 0 ? free : best;
    total = std::max(total, offsets[id] + bytes);
    if (total > most)
      break;
  }
  return total;
}

/// The moment at which most bytes are alive, and how many.
static std::pair<int64_t, int64_t> findPeak(ArrayRef<PackedItem> items, int64_t align) {
  std::map<int64_t, int64_t> changes; // moment -> bytes that begin (positive) or have ended (negative)
  for (const PackedItem &item : items)
    for (Segment segment : item.life) {
      changes[segment.begin] += llvm::alignTo(item.bytes, align);
      changes[segment.end + 1] -= llvm::alignTo(item.bytes, align);
    }
  int64_t alive = 0;
  std::pair<int64_t, int64_t> peak{0, 0};
  for (auto [moment, change] : changes)
    if (alive += change; alive > peak.second)
      peak = {moment, alive};
  return peak;
}

int64_t braid::mostAlive(ArrayRef<PackedItem> items, int64_t align) { return findPeak(items, align).second; }

Packing braid::pack(MutableArrayRef<PackedItem> items, int64_t align) {
  Packing result;
  auto [peak, lowerBound] = findPeak(items, align);
  result.lowerBound = lowerBound;
  llvm::SmallVector<llvm::SmallVector<unsigned>> neighbours(items.size());
  int64_t edges = 0, effort = 0;
  for (unsigned i = 0; i < items.size(); ++i)
    for (unsigned j = 0; j < i; ++j)
      if (meet(items[i].life, items[j].life)) {
        neighbours[i].push_back(j);
        neighbours[j].push_back(i);
        edges += 2;
      }

  using Key = std::pair<int64_t, int64_t>;
  auto bySize = [](const PackedItem &item) { return Key(-item.bytes, -duration(item)); };
  auto byArea = [](const PackedItem &item) { return Key(-item.bytes * duration(item), -item.bytes); };
  auto byDuration = [](const PackedItem &item) { return Key(-duration(item), -item.bytes); };
  auto byBegin = [](const PackedItem &item) {
    return Key(item.life.empty() ? 0 : item.life.front().begin, -item.bytes);
  };
  // What is alive at the worst moment fills the bound without a gap, then the others go around it.
  auto byPeak = [peak](const PackedItem &item) {
    bool there = llvm::any_of(item.life, [&](Segment s) { return s.begin <= peak && peak <= s.end; });
    return Key(there ? -duration(item) : 1, -item.bytes);
  };
  if (items.empty())
    return result;
  llvm::SmallVector<int64_t> offsets;
  llvm::SmallVector<unsigned> best; // the order that result comes from
  auto tryOrder = [&](ArrayRef<unsigned> order) {
    offsets.assign(items.size(), -1);
    int64_t bytes = place(items, order, neighbours, align, offsets);
    effort += edges;
    if (items[0].offset >= 0 && bytes >= result.bytes)
      return;
    result.bytes = bytes;
    best.assign(order.begin(), order.end());
    for (auto [item, offset] : llvm::zip(items, offsets))
      item.offset = offset;
  };
  auto good = [&] { return items[0].offset >= 0 && result.bytes <= result.lowerBound + result.lowerBound / 100; };
  auto attempt = [&](auto key) {
    if (items[0].offset >= 0 && result.bytes == result.lowerBound)
      return; // nothing is smaller
    llvm::SmallVector<unsigned> order(items.size());
    std::iota(order.begin(), order.end(), 0);
    llvm::sort(order,
               [&](unsigned a, unsigned b) { return std::pair(key(items[a]), a) < std::pair(key(items[b]), b); });
    tryOrder(order);
    // The item that stands on top had to wait too long: it is placed first the next time.
    for (int round = 0; round < 32 && !good() && effort < kEffort; ++round) {
      auto top = std::max_element(order.begin(), order.end(), [&](unsigned a, unsigned b) {
        return offsets[a] + items[a].bytes < offsets[b] + items[b].bytes;
      });
      if (top == order.begin())
        break;
      std::rotate(order.begin(), top, std::next(top));
      tryOrder(order);
    }
  };
  attempt(bySize);
  attempt(byArea);
  attempt(byDuration);
  attempt(byBegin);
  attempt(byPeak);

  auto far = [&] { return result.bytes > result.lowerBound + result.lowerBound / 20; };
  // Far from the bound: the few fat items by themselves, among which as much effort finds more, then the others around them.
  llvm::SmallVector<unsigned> fat, thin;
  for (unsigned id : llvm::seq<unsigned>(0, items.size()))
    (items[id].bytes >= result.lowerBound / kThin ? fat : thin).push_back(id);
  if (far() && !fat.empty() && !thin.empty()) {
    llvm::SmallVector<PackedItem> few;
    for (unsigned id : fat)
      few.push_back({items[id].bytes, items[id].life, -1});
    pack(few, align);
    offsets.assign(items.size(), -1);
    for (auto [id, item] : llvm::zip(fat, few))
      offsets[id] = item.offset;
    llvm::stable_sort(thin, [&](unsigned a, unsigned b) { return bySize(items[a]) < bySize(items[b]); });
    if (int64_t bytes = place(items, thin, neighbours, align, offsets); bytes < result.bytes) {
      result.bytes = bytes;
      for (auto [item, offset] : llvm::zip(items, offsets))
        item.offset = offset;
    }
  }

  // Still far from the bound: from the best order on, something that stands above the bound goes somewhere earlier, and
  // stays there unless that is worse.
  std::minstd_rand random(1);
  auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int64_t limit = std::min(kEffort, effort + kSearchEffort);
  while (far() && effort < limit) {
    llvm::SmallVector<size_t> high; // places in the order
    for (size_t at = 1; at < best.size(); ++at)
      if (items[best[at]].offset + items[best[at]].bytes > result.lowerBound)
        high.push_back(at);
    if (high.empty())
      break;
    llvm::SmallVector<unsigned> order = best;
    size_t from = high[below(high.size())], to = below(from);
    std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
    offsets.assign(items.size(), -1);
    for (unsigned id : ArrayRef(order).take_front(to)) // as in the order that it comes from
      offsets[id] = items[id].offset;
    int64_t bytes = place(items, ArrayRef(order).drop_front(to), neighbours, align, offsets, result.bytes);
    effort += edges;
    if (bytes > result.bytes)
      continue;
    result.bytes = bytes;
    best = order;
    for (auto [item, offset] : llvm::zip(items, offsets))
      item.offset = offset;
  }
  return result;
}
