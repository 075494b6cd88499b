#include "runtime/io/TensorNames.h"

#include <fmt/ranges.h>

#include <charconv>

namespace braid::runtime {

namespace {

std::vector<std::string_view> namesOf(const Program &program, std::span<const uint32_t> list) {
  std::vector<std::string_view> names;
  for (uint32_t index : list)
    names.push_back(program.tensors()[index].name);
  return names;
}

Expected<const TensorInfo *> findIn(const Program &program, const EntryInfo &entry, std::span<const uint32_t> list,
                                    std::string_view name, std::string_view what) {
  if (const TensorInfo *tensor = findByLastComponent(program, list, name))
    return tensor;
  return Status::error(ErrorCode::notFound, "entry @{} has no {} '{}'; it has: {}", entry.name, what, name,
                       fmt::join(namesOf(program, list), ", "));
}

} // namespace

std::vector<int64_t> TensorRef::shape() const {
  std::vector<int64_t> result = info->shape;
  if (!layer && !info->layers.empty())
    result.insert(result.begin(), static_cast<int64_t>(info->layers.size()));
  return result;
}

TensorView TensorRef::view(Session &session) const {
  TensorView whole = session.tensor(*info);
  return layer ? whole.layer(*layer) : whole;
}

const TensorInfo *findByLastComponent(const Program &program, std::span<const uint32_t> list, std::string_view name) {
  const TensorInfo *byComponent = nullptr;
  for (uint32_t index : list) {
    const TensorInfo &tensor = program.tensors()[index];
    if (tensor.name == name)
      return &tensor;
    size_t slash = tensor.name.rfind('/');
    if (!byComponent && slash != std::string::npos && std::string_view(tensor.name).substr(slash + 1) == name)
      byComponent = &tensor;
  }
  return byComponent;
}

Expected<const TensorInfo *> entryInput(const Program &program, const EntryInfo &entry, std::string_view name) {
  return findIn(program, entry, entry.inputs, name, "input");
}

Expected<const TensorInfo *> entryOutput(const Program &program, const EntryInfo &entry, std::string_view name) {
  return findIn(program, entry, entry.outputs, name, "output");
}

Status checkTensor(const EntryInfo &entry, const TensorInfo &tensor, DType dtype, size_t rank) {
  if (tensor.dtype != dtype)
    return Status::error(ErrorCode::unsupported, "entry @{}: '{}' is {}, but the host needs {}", entry.name,
                         tensor.name, toString(tensor.dtype), toString(dtype));
  if (tensor.shape.size() != rank || !tensor.layers.empty())
    return Status::error(ErrorCode::unsupported, "entry @{}: '{}' has {} dimensions, but the host needs {}", entry.name,
                         tensor.name, tensor.shape.size() + !tensor.layers.empty(), rank);
  return Status::success();
}

Expected<TensorRef> findTensor(const Program &program, const EntryInfo *entry, std::string_view name) {
  if (entry) {
    for (std::span<const uint32_t> list : {std::span(entry->inputs), std::span(entry->outputs)})
      if (const TensorInfo *tensor = findByLastComponent(program, list, name))
        return TensorRef{tensor, std::nullopt};
  }
  if (const TensorInfo *tensor = program.findTensor(name))
    return TensorRef{tensor, std::nullopt};
  const TensorInfo *stacked = nullptr;
  for (const TensorInfo &tensor : program.tensors()) {
    for (size_t i = 0; i < tensor.layers.size(); ++i)
      if (tensor.layerName(i) == name)
        return TensorRef{&tensor, i};
    size_t hole = tensor.name.find("{}");
    if (!tensor.layers.empty() && hole != std::string::npos && name.starts_with(tensor.name.substr(0, hole)) &&
        name.ends_with(tensor.name.substr(hole + 2)))
      stacked = &tensor;
  }
  if (stacked)
    return Status::error(ErrorCode::notFound, "there is no tensor '{}'; '{}' has layers {}", name, stacked->name,
                         fmt::join(stacked->layers, ", "));
  if (entry)
    return Status::error(
        ErrorCode::notFound,
        "there is no tensor '{}'; entry @{} has inputs: {}; outputs: {} (braid-run info lists the others)", name,
        entry->name, fmt::join(namesOf(program, entry->inputs), ", "),
        fmt::join(namesOf(program, entry->outputs), ", "));
  return Status::error(ErrorCode::notFound, "there is no tensor '{}' (braid-run info lists the names)", name);
}

std::set<int32_t> layersOf(const Program &program) {
  constexpr std::string_view prefix = "layers.";
  std::set<int32_t> layers;
  for (const TensorInfo &tensor : program.tensors())
    for (size_t i = 0; i < tensor.layerCount() && tensor.role == Role::parameter; ++i) {
      std::string name = tensor.layerName(i);
      int32_t layer = 0;
      if (name.starts_with(prefix) &&
          std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer).ec == std::errc())
        layers.insert(layer);
    }
  return layers;
}

std::string entryNames(const Program &program) {
  std::vector<std::string_view> names;
  for (const EntryInfo &entry : program.entries())
    names.push_back(entry.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Expected<const EntryInfo *> findEntry(const Program &program, std::string_view name) {
  if (const EntryInfo *entry = program.findEntry(name))
    return entry;
  return Status::error(ErrorCode::notFound, "{}: no entry @{}; it has: {}", program.path(), name, entryNames(program));
}

} // namespace braid::runtime
