#include "runtime/train/ElementPlace.h"

#include "runtime/CommandBuffers.h"
#include "runtime/schema/LayerPattern.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace braid::runtime {

namespace {

// A buffer argument of a launch with named dimensions.
struct NamedBuffer {
  std::vector<std::string_view> axes;
  std::vector<int64_t> sizes, strides; // in elements
  std::span<const std::byte> bytes;

  int64_t axis(std::string_view name) const {
    auto at = std::find(axes.begin(), axes.end(), name);
    return at == axes.end() ? -1 : at - axes.begin();
  }
  // Of an element counted in memory; nothing where no coordinates lead there.
  std::optional<std::vector<int64_t>> coordinates(uint64_t element) const {
    std::vector<size_t> outermost(axes.size());
    std::iota(outermost.begin(), outermost.end(), size_t(0));
    std::stable_sort(outermost.begin(), outermost.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
    std::vector<int64_t> at(axes.size());
    auto left = static_cast<int64_t>(element);
    for (size_t i : outermost) {
      if (strides[i] <= 0)
        return std::nullopt;
      at[i] = left / strides[i];
      left %= strides[i];
      if (at[i] >= sizes[i])
        return std::nullopt;
    }
    return left == 0 ? std::optional(at) : std::nullopt;
  }
};

std::optional<int64_t> integerArgument(const schema::Launch &launch, const std::string &name) {
  for (const auto *arg : *launch.args())
    if (arg->name()->string_view() == name)
      if (const auto *value = arg->value_as_I64Value())
        return value->value();
  return std::nullopt;
}

std::optional<NamedBuffer> namedBuffer(Session &session, const WatchedCommand &watched, const schema::Launch &launch,
                                       const schema::Param &param) {
  if (!param.axes() || !param.sizes() || !launch.args())
    return std::nullopt;
  NamedBuffer named;
  std::string name = param.name()->str();
  for (uint32_t i = 0; i < param.axes()->size(); ++i) {
    int64_t size = param.sizes()->Get(i);
    if (size < 0)
      size = integerArgument(launch, fmt::format("{}.dim{}", name, i)).value_or(0);
    named.axes.push_back(param.axes()->Get(i)->string_view());
    named.sizes.push_back(size);
  }
  named.strides.assign(named.sizes.size(), 1);
  for (size_t i = named.sizes.size(); i-- > 0;) {
    if (i + 1 < named.sizes.size())
      named.strides[i] = named.strides[i + 1] * named.sizes[i + 1];
    if (auto stride = integerArgument(launch, fmt::format("{}.stride{}", name, i)))
      named.strides[i] = *stride;
  }
  for (const auto *arg : *launch.args())
    if (const auto *value = arg->value_as_BufferValue(); value && arg->name()->string_view() == name) {
      const schema::Buffer &buffer = *value->buffer();
      named.bytes = {session.arena(buffer.arena()) + offsetAt(buffer, watched.iterations), buffer.bytes()};
      return named;
    }
  return std::nullopt;
}

// The chunk that holds a token of a row, from the table [row, chunk, (first token, behind the last, ..)].
std::optional<int64_t> chunkOf(const NamedBuffer &table, int64_t row, int64_t token) {
  if (table.axes != std::vector<std::string_view>{"row", "chunk", "token"} || row < 0 || row >= table.sizes[0] ||
      table.sizes[2] < 2)
    return std::nullopt;
  for (int64_t chunk = 0; chunk < table.sizes[1]; ++chunk) {
    std::array<int32_t, 2> bounds;
    auto begin = static_cast<uint64_t>(row * table.strides[0] + chunk * table.strides[1]) * sizeof(int32_t);
    if (begin + sizeof(bounds) > table.bytes.size())
      return std::nullopt;
    std::memcpy(bounds.data(), table.bytes.data() + begin, sizeof(bounds));
    if (bounds[0] <= token && token < bounds[1])
      return chunk;
  }
  return std::nullopt;
}

} // namespace

std::string elementPlace(Session &session, const WatchedCommand &watched, std::string_view argument, uint64_t element) {
  const auto *launch = watched.command.body_as_Launch();
  if (!launch)
    return "";
  const auto *params = session.program().file().kernels()->Get(launch->kernel())->params();
  std::optional<NamedBuffer> written, table;
  for (const auto *param : *params) {
    auto named = namedBuffer(session, watched, *launch, *param);
    if (named && param->name()->string_view() == argument)
      written = std::move(named);
    else if (named && param->name()->string_view() == "chunks")
      table = std::move(named);
  }
  auto at = written ? written->coordinates(element) : std::nullopt;
  if (!at)
    return "";
  int64_t row = written->axis("row");
  std::string text;
  for (size_t i = 0; i < at->size(); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", written->axes[i], (*at)[i]);
    if (table && row >= 0 && written->axes[i] == "token")
      if (auto chunk = chunkOf(*table, (*at)[static_cast<size_t>(row)], (*at)[i]))
        text += fmt::format(" of chunk {}", *chunk);
  }
  return text;
}

std::string mixerKind(const Program &program, int64_t layer) {
  auto description = program.metadata("model_json");
  if (!description || layer < 0)
    return "";
  auto json = nlohmann::json::parse(*description, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  auto text = [](const nlohmann::json &value) { return value.is_string() ? value.get<std::string>() : std::string(); };
  if (!json.is_object())
    return "";
  std::string pattern = text(json.value("layer_pattern", nlohmann::json()));
  if (pattern.empty())
    return "";
  std::vector<std::string> layers = layersOfPattern(pattern);
  auto mixers = json.value("mixers", nlohmann::json());
  std::string kinds;
  for (char c : layers[static_cast<size_t>(layer) % layers.size()]) {
    std::string letter(1, c);
    if (!mixers.is_object() || !mixers.contains(letter) || !mixers[letter].is_object())
      return "";
    kinds += (kinds.empty() ? "" : " and ") + text(mixers[letter].value("kind", nlohmann::json()));
  }
  return kinds;
}

} // namespace braid::runtime
