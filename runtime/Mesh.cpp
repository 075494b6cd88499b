// MeshInfo: which ranks share an axis. Ranks are numbered slowest to fastest axis; a product "dp*sp" numbers its
// members in the same order. A pair "pp[i,j]" is two coordinates on pp, in the order in which they stand.
#include "runtime/Program.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace braid::runtime {
namespace {

struct Digit {
  uint32_t size, stride;
};

// The axes of `name` (split at '*') in `view`, slowest first; nothing when one of them is missing.
std::optional<std::vector<Digit>> digits(const std::vector<AxisInfo> &view, std::string_view name) {
  std::vector<std::string_view> wanted;
  for (size_t begin = 0; begin <= name.size();) {
    size_t end = std::min(name.find('*', begin), name.size());
    wanted.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<Digit> result;
  size_t found = 0;
  uint32_t stride = 1;
  for (size_t i = view.size(); i-- > 0;) {
    if (std::find(wanted.begin(), wanted.end(), view[i].name) != wanted.end()) {
      result.insert(result.begin(), {view[i].size, stride});
      ++found;
    }
    stride *= view[i].size;
  }
  if (found != wanted.size())
    return std::nullopt;
  return result;
}

std::optional<std::vector<Digit>> digits(const MeshInfo &mesh, std::string_view name) {
  if (auto result = digits(mesh.dense, name))
    return result;
  return digits(mesh.expert, name);
}

struct Pair {
  Digit axis;
  std::array<uint32_t, 2> ends;

  uint32_t at(uint32_t rank) const { return rank / axis.stride % axis.size; }
  std::optional<uint32_t> coordinate(uint32_t rank) const {
    auto found = std::find(ends.begin(), ends.end(), at(rank));
    return found == ends.end() ? std::nullopt : std::optional(static_cast<uint32_t>(found - ends.begin()));
  }
};

// Of the one spelling that a pair has.
std::optional<Pair> pairOf(const MeshInfo &mesh, std::string_view name) {
  size_t open = name.find('[');
  if (open == std::string_view::npos || name.substr(0, open) != stageAxis)
    return std::nullopt;
  auto axis = digits(mesh, stageAxis);
  if (!axis)
    return std::nullopt;
  Pair pair{axis->front(), {}};
  const char *at = name.data() + open + 1, *end = name.data() + name.size();
  for (uint32_t &number : pair.ends) {
    auto parsed = std::from_chars(at, end, number);
    if (parsed.ec != std::errc() || number >= pair.axis.size)
      return std::nullopt;
    at = parsed.ptr == end ? end : parsed.ptr + 1;
  }
  if (pair.ends[0] == pair.ends[1] || name.substr(open) != fmt::format("[{},{}]", pair.ends[0], pair.ends[1]))
    return std::nullopt;
  return pair;
}

} // namespace

uint32_t MeshInfo::worldSize() const {
  uint32_t size = 1;
  for (const AxisInfo &axis : dense)
    size *= axis.size;
  return size;
}

std::optional<uint32_t> MeshInfo::size(std::string_view axis) const {
  if (auto pair = pairOf(*this, axis))
    return 2;
  auto axes = digits(*this, axis);
  if (!axes)
    return std::nullopt;
  uint32_t size = 1;
  for (Digit digit : *axes)
    size *= digit.size;
  return size;
}

std::optional<uint32_t> MeshInfo::coordinate(uint32_t rank, std::string_view axis) const {
  if (auto pair = pairOf(*this, axis))
    return pair->coordinate(rank);
  auto axes = digits(*this, axis);
  if (!axes)
    return std::nullopt;
  uint32_t coordinate = 0;
  for (Digit digit : *axes)
    coordinate = coordinate * digit.size + rank / digit.stride % digit.size;
  return coordinate;
}

std::optional<std::vector<uint32_t>> MeshInfo::members(uint32_t rank, std::string_view axis) const {
  if (auto pair = pairOf(*this, axis)) {
    if (!pair->coordinate(rank))
      return std::nullopt;
    uint32_t base = rank - pair->at(rank) * pair->axis.stride;
    return std::vector<uint32_t>{base + pair->ends[0] * pair->axis.stride, base + pair->ends[1] * pair->axis.stride};
  }
  auto axes = digits(*this, axis);
  if (!axes)
    return std::nullopt;
  std::vector<uint32_t> ranks = {rank};
  for (Digit digit : *axes)
    ranks.front() -= rank / digit.stride % digit.size * digit.stride;
  for (Digit digit : *axes) {
    std::vector<uint32_t> next;
    for (uint32_t base : ranks)
      for (uint32_t i = 0; i < digit.size; ++i)
        next.push_back(base + i * digit.stride);
    ranks = std::move(next);
  }
  return ranks;
}

} // namespace braid::runtime
