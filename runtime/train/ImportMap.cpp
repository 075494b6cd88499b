#include "runtime/train/ImportMap.h"

#include "runtime/io/JsonText.h"
#include "runtime/io/Shape.h"

#include <algorithm>
#include <charconv>

namespace braid::runtime {

namespace {

constexpr std::string_view layerHole = "{layer}", expertHole = "{expert}";

void fillHole(std::string &text, std::string_view hole, int64_t number) {
  if (size_t at = text.find(hole); at != std::string::npos)
    text.replace(at, hole.size(), std::to_string(number));
}

// "*" is any text, also none.
bool matches(std::string_view pattern, std::string_view text) {
  size_t at = 0, next = 0, star = std::string_view::npos, after = 0;
  while (next < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      after = next;
    } else if (at < pattern.size() && pattern[at] == text[next]) {
      ++at, ++next;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      next = ++after;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<ptrdiff_t>(at), pattern.end(), [](char c) { return c == '*'; });
}

// [first, step] or [first, step, count]: what is taken ends within a step.
bool isColumns(const nlohmann::json &list) {
  if (!list.is_array() || list.size() < 2 || list.size() > 3 ||
      !std::ranges::all_of(list, [](const nlohmann::json &number) { return number.is_number_unsigned(); }))
    return false;
  uint64_t first = list[0].get<uint64_t>(), step = list[1].get<uint64_t>(),
           count = list.size() == 3 ? list[2].get<uint64_t>() : 1;
  return step <= uint64_t(1) << 30 && first < step && count >= 1 && count <= step - first;
}

Expected<ImportedTensor> parseTensor(const nlohmann::json &value) {
  ImportedTensor tensor;
  if (value.is_string()) {
    tensor.name = value.get<std::string>();
    return tensor;
  }
  auto wrong = [](std::string_view key, const nlohmann::json &found) {
    return Status::error(ErrorCode::corruptFile, "{} is {}", key, shownValue(found));
  };
  if (!value.is_object())
    return wrong("it", value);
  for (const auto &[key, member] : value.items()) {
    if (key == "name" && member.is_string())
      tensor.name = member.get<std::string>();
    else if (key == "or" && member.is_string())
      tensor.otherName = member.get<std::string>();
    else if (key == "values" && value.size() == 1 && member.is_array() && !member.empty() &&
             std::ranges::all_of(member, &nlohmann::json::is_number))
      tensor.values = member.get<std::vector<float>>();
    else if (key == "transposed" && member.is_boolean())
      tensor.transposed = member.get<bool>();
    else if (key == "stacked" && member.is_boolean())
      tensor.stacked = member.get<bool>();
    else if (key == "columns" && isColumns(member))
      tensor.columns = {member[0].get<int64_t>(), member[1].get<int64_t>(),
                        member.size() == 3 ? member[2].get<int64_t>() : 1};
    else if (key == "plus" && member.is_number())
      tensor.plus = member.get<float>();
    else if (key == "times" && member.is_number() && member.get<float>() != 0)
      tensor.times = member.get<float>();
    else if (key == "groups" && member.is_number_unsigned() && member.get<uint64_t>() - 1 < uint64_t(1) << 30)
      tensor.groups = member.get<int64_t>();
    else if (key == "rows" && member.is_array() && member.size() == 2 && member[0].is_number_unsigned() &&
             member[1].is_number_unsigned() && member[0].get<uint64_t>() < member[1].get<uint64_t>() &&
             member[1].get<uint64_t>() <= uint64_t(1) << 40)
      tensor.rows = {member[0].get<int64_t>(), member[1].get<int64_t>()};
    else
      return wrong(key, member);
  }
  if (tensor.name.empty() && tensor.values.empty())
    return Status::error(ErrorCode::corruptFile, "it has no name");
  if (tensor.stacked && tensor.name.find(expertHole) != std::string::npos)
    return Status::error(ErrorCode::corruptFile, "it is stacked, and its name has {}", expertHole);
  if (tensor.rows && tensor.columns)
    return Status::error(ErrorCode::corruptFile, "it has rows and columns");
  return tensor;
}

} // namespace

bool ImportedTensor::ofExperts() const { return stacked || name.find(expertHole) != std::string::npos; }

std::string fillName(std::string name, std::optional<int64_t> layer, int64_t expert) {
  if (layer)
    fillHole(name, layerHole, *layer);
  fillHole(name, expertHole, expert);
  return name;
}

static Expected<ImportMap> parseMap(const nlohmann::json &json) {
  ImportMap map;
  for (const auto &[key, value] : json.items()) {
    if (key == "weights" && value.is_object()) {
      for (const auto &[name, tensor] : value.items()) {
        auto parsed = parseTensor(tensor);
        BRAID_TRY(parsed.status().withContext(fmt::format("weights['{}']", escaped(name))));
        map.weights.emplace(name, *std::move(parsed));
      }
    } else if (key == "equal" && value.is_object() && std::ranges::all_of(value, &nlohmann::json::is_string)) {
      for (const auto &[one, other] : value.items())
        map.equal.push_back({one, other.get<std::string>()});
    } else if (key == "unread" && value.is_array() && std::ranges::all_of(value, &nlohmann::json::is_string)) {
      for (const nlohmann::json &pattern : value)
        map.unread.push_back(pattern.get<std::string>());
    } else {
      return Status::error(ErrorCode::corruptFile, "{} is {}", escaped(key), shownValue(value));
    }
  }
  return map;
}

Expected<std::optional<ImportMap>> ImportMap::parse(std::string_view description) {
  nlohmann::json json =
      nlohmann::json::parse(description, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  auto found = json.find("import"); // end() of what is no object
  if (found == json.end())
    return std::optional<ImportMap>();
  if (!found->is_object())
    return Status::error(ErrorCode::corruptFile, "import is {}", shownValue(*found));
  auto map = parseMap(*found);
  BRAID_TRY(map.status().withContext("import"));
  return std::optional<ImportMap>(*std::move(map));
}

bool ImportMap::leaves(std::string_view name) const {
  return std::ranges::any_of(unread, [&](const std::string &pattern) { return matches(pattern, name); }) ||
         std::ranges::any_of(equal, [&](const auto &pair) { return pair[0] == name; });
}

std::pair<std::string, std::optional<int64_t>> splitLayer(std::string_view name) {
  constexpr std::string_view prefix = "layers.";
  int64_t layer = 0;
  if (name.starts_with(prefix)) {
    const char *begin = name.data() + prefix.size(), *limit = name.data() + name.size();
    auto [end, error] = std::from_chars(begin, limit, layer);
    if (error == std::errc() && end != begin && end != limit && *end == '.')
      return {fmt::format("{}{}{}", prefix, layerHole, std::string_view(end, limit)), layer};
  }
  return {std::string(name), std::nullopt};
}

Expected<std::vector<int64_t>> importedShape(const ImportedTensor &tensor, const std::vector<int64_t> &shape) {
  std::vector<int64_t> taken = shape;
  if (taken.empty())
    taken.push_back(1);
  if (taken[0] % tensor.groups)
    return Status::error(ErrorCode::corruptFile, "has shape {}, whose {} rows are not {} groups", formatShape(shape),
                         taken[0], tensor.groups);
  int64_t ofGroup = taken[0] / tensor.groups;
  if (tensor.rows) {
    auto [first, last] = *tensor.rows;
    if (last > ofGroup)
      return Status::error(ErrorCode::corruptFile,
                           "has shape {}, so {} rows in each of {} groups, and not rows {} to {}", formatShape(shape),
                           ofGroup, tensor.groups, first, last - 1);
    taken[0] = tensor.groups * (last - first);
  }
  if (tensor.columns) {
    if (taken.back() % tensor.columns->step)
      return Status::error(ErrorCode::corruptFile, "has shape {}, whose {} columns are not {} by {}",
                           formatShape(shape), taken.back(), tensor.columns->step, tensor.columns->step);
    taken.back() = taken.back() / tensor.columns->step * tensor.columns->count;
  }
  if (tensor.transposed)
    std::rotate(taken.begin(), taken.begin() + 1, taken.end());
  return taken;
}

TakenUnits takenUnits(const ImportedTensor &tensor, const std::vector<int64_t> &shape) {
  auto size = [](int64_t n) { return static_cast<size_t>(n); };
  if (tensor.columns) {
    size_t all = 1, step = size(tensor.columns->step), first = size(tensor.columns->first);
    for (int64_t dim : shape)
      all *= size(dim);
    return {all / step, step, first, first + size(tensor.columns->count)};
  }
  size_t groups = size(tensor.groups), units = (shape.empty() ? 1 : size(shape[0])) / groups;
  if (!tensor.rows)
    return {groups, units, 0, units};
  return {groups, units, size((*tensor.rows)[0]), size((*tensor.rows)[1])};
}

bool joins(const std::vector<int64_t> &a, const std::vector<int64_t> &b) {
  // Where dimensions end: the sizes of what stands in front of each end.
  auto ends = [](const std::vector<int64_t> &shape) {
    std::vector<int64_t> ends = {1};
    for (int64_t size : shape)
      if (size != 1)
        ends.push_back(ends.back() * size);
    return ends;
  };
  std::vector<int64_t> first = ends(a), second = ends(b);
  return first.back() == second.back() &&
         (std::ranges::includes(first, second) || std::ranges::includes(second, first));
}

bool turns(const ImportedTensor &tensor, const std::vector<int64_t> &taken, const std::vector<int64_t> &ours) {
  int64_t behind = 1;
  for (size_t d = ours.size(); tensor.transposed && d-- > 1;)
    if ((behind *= ours[d]) == taken.back())
      return true;
  return !tensor.transposed;
}

} // namespace braid::runtime
