#include "runtime/io/Safetensors.h"

#include "runtime/F16.h"
#include "runtime/F8.h"
#include "runtime/io/JsonText.h"
#include "runtime/io/Shape.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

namespace braid::runtime {

namespace {

using Json = nlohmann::json;

// The reference implementation refuses larger headers too.
constexpr uint64_t maxHeaderBytes = 100'000'000;

constexpr std::array<DType, 7> dtypes = {DType::f32, DType::bf16, DType::f64, DType::i32,
                                         DType::i64, DType::u8,   DType::i16};

using Packed = SafetensorsEntry::Packed;
constexpr std::pair<Packed, std::string_view> packedNames[] = {
    {Packed::f16, "F16"}, {Packed::e4m3, "F8_E4M3"}, {Packed::e8m0, "F8_E8M0"}, {Packed::e2m1, "MXFP4"}};

// The type that elements of this name are read as, and how they are packed.
std::optional<std::pair<DType, Packed>> typeOfName(std::string_view name) {
  for (auto [packed, known] : packedNames)
    if (known == name && packed != Packed::e2m1)
      return std::pair(DType::f32, packed);
  for (DType dtype : dtypes)
    if (safetensorsName(dtype) == name)
      return std::pair(dtype, Packed::no);
  return std::nullopt;
}

// Numbers at the end of `target`, narrower than f32, become f32 that fill it.
template <typename Narrow, typename Widen> void widen(std::span<std::byte> target, Widen widen) {
  size_t count = target.size() / sizeof(float);
  const std::byte *narrow = target.data() + target.size() - count * sizeof(Narrow);
  // Each ends in front of what has not been read yet.
  for (size_t i = 0; i < count; ++i) {
    Narrow value;
    std::memcpy(&value, narrow + i * sizeof(Narrow), sizeof(Narrow));
    float wide = widen(value);
    std::memcpy(target.data() + i * sizeof(float), &wide, sizeof(float));
  }
}

// The same of two numbers in a byte.
void widenPairs(std::span<std::byte> target) {
  size_t count = target.size() / (2 * sizeof(float));
  const std::byte *narrow = target.data() + target.size() - count;
  for (size_t i = 0; i < count; ++i) {
    auto pair = std::to_integer<uint8_t>(narrow[i]);
    const float wide[] = {fromE2M1(pair), fromE2M1(pair >> 4)};
    std::memcpy(target.data() + i * sizeof(wide), wide, sizeof(wide));
  }
}

} // namespace

std::string_view safetensorsName(DType dtype) {
  switch (dtype) {
  case DType::f32: return "F32";
  case DType::bf16: return "BF16";
  case DType::f64: return "F64";
  case DType::i32: return "I32";
  case DType::i64: return "I64";
  case DType::u8: return "U8";
  case DType::i16: return "I16";
  }
  return "";
}

std::string_view safetensorsName(const SafetensorsEntry &entry) {
  for (auto [packed, name] : packedNames)
    if (packed == entry.packed)
      return name;
  return safetensorsName(entry.dtype);
}

// ---- Reading --------------------------------------------------------------------------------------------------------

Expected<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  BRAID_ASSIGN(InputFile input, InputFile::open(path));
  SafetensorsFile file(std::move(input));
  BRAID_TRY(file.readHeader().withContext(path));
  return file;
}

// What Git LFS leaves in the place of a file that it did not fetch: a few lines of text.
static Status checkNoPointer(const InputFile &file) {
  constexpr std::string_view begin = "version https://git-lfs.github.com/spec/";
  std::string text(begin.size(), '\0');
  if (file.size() < begin.size())
    return Status::success();
  BRAID_TRY(file.read(0, std::as_writable_bytes(std::span(text))));
  if (text != begin)
    return Status::success();
  return Status::error(ErrorCode::corruptFile,
                       "is a Git LFS pointer of {} bytes in the place of a safetensors file; "
                       "valid: the file itself, which 'git lfs pull' in its directory fetches",
                       file.size());
}

Status SafetensorsFile::readHeader() {
  BRAID_TRY(checkNoPointer(file));
  std::array<std::byte, 8> lengthBytes;
  if (file.size() < lengthBytes.size())
    return Status::error(ErrorCode::corruptFile, "not a safetensors file: {} bytes, the header length alone takes 8",
                         file.size());
  BRAID_TRY(file.read(0, lengthBytes));
  uint64_t headerBytes = 0;
  for (size_t i = 0; i < 8; ++i)
    headerBytes |= std::to_integer<uint64_t>(lengthBytes[i]) << (8 * i);
  if (headerBytes > maxHeaderBytes || headerBytes > file.size() - 8)
    return Status::error(ErrorCode::corruptFile,
                         "the safetensors header claims {} bytes, but the file has {} after it starts", headerBytes,
                         file.size() - 8);
  std::string text(headerBytes, '\0');
  BRAID_TRY(file.read(8, std::as_writable_bytes(std::span(text))));
  Expected<Json> parsed = parseJsonObject(text);
  if (!parsed)
    return parsed.status().withContext("the safetensors header");
  const Json &header = *parsed;

  uint64_t dataBegin = 8 + headerBytes, dataBytes = file.size() - dataBegin;
  std::vector<std::pair<uint64_t, std::string_view>> order; // begin -> name, to find holes and overlaps
  for (const auto &item : header.items()) {
    const std::string &name = item.key();
    const Json &value = item.value();
    auto broken = [&](std::string_view why) {
      return Status::error(ErrorCode::corruptFile, "tensor '{}' in the safetensors header: {}", name, why);
    };
    if (!value.is_object())
      return broken("not a JSON object");
    if (name == "__metadata__") {
      for (const auto &pair : value.items()) {
        if (!pair.value().is_string())
          return broken("a value of the metadata is not a string");
        metadataTable[pair.key()] = pair.value().get<std::string>();
      }
      continue;
    }
    SafetensorsEntry entry;
    for (const char *key : {"dtype", "shape", "data_offsets"})
      if (!value.contains(key))
        return broken(fmt::format("no {}", key));
    if (!value["dtype"].is_string())
      return broken(fmt::format("dtype is {}; valid: \"F32\", \"BF16\", ..", shownValue(value["dtype"])));
    std::string dtype = value["dtype"].get<std::string>();
    auto known = typeOfName(dtype);
    if (!known)
      return Status::error(ErrorCode::unsupported,
                           "tensor '{}': dtype {} is not supported; valid: F32, BF16, F16, F64, F8_E4M3, F8_E8M0, I32, "
                           "I64, U8, I16",
                           name, dtype);
    std::tie(entry.dtype, entry.packed) = *known;
    if (!value["shape"].is_array())
      return broken(fmt::format("shape is {}; valid: a list of dimensions", shownValue(value["shape"])));
    for (const Json &extent : value["shape"]) {
      if (!extent.is_number_unsigned() || extent.get<uint64_t>() > uint64_t(1) << 62)
        return broken("a dimension is not a non-negative integer");
      entry.shape.push_back(extent.get<int64_t>());
    }
    std::optional<int64_t> count = elementCount(entry.shape);
    if (!count)
      return broken(fmt::format("shape {} is too large", formatShape(entry.shape)));
    const Json &offsets = value["data_offsets"];
    auto wrongOffsets = [&](const std::string &what) {
      return broken(fmt::format("data_offsets {}; valid: [begin, end], in bytes of the data", what));
    };
    if (!offsets.is_array())
      return wrongOffsets("is " + shownValue(offsets));
    if (offsets.size() != 2)
      return wrongOffsets(fmt::format("has {} numbers", offsets.size()));
    for (const Json &offset : offsets)
      if (!offset.is_number_unsigned())
        return wrongOffsets(fmt::format("holds {}, which is no place in a file", shownValue(offset)));
    uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
    if (begin > end || end > dataBytes)
      return broken(fmt::format("data_offsets [{}, {}] leave the {} bytes of data in the file (is it truncated?)",
                                begin, end, dataBytes));
    uint64_t elementBytes = sizeOf(entry.dtype) / entry.shrinks();
    if ((end - begin) % elementBytes != 0 || (end - begin) / elementBytes != static_cast<uint64_t>(*count))
      return broken(fmt::format("{} {} does not take the {} bytes of its data_offsets", dtype, formatShape(entry.shape),
                                end - begin));
    entry.offset = dataBegin + begin;
    entry.bytes = static_cast<uint64_t>(*count) * sizeOf(entry.dtype);
    auto position = table.emplace(name, entry).first;
    if (entry.bytes > 0)
      order.push_back({begin, position->first});
  }

  std::sort(order.begin(), order.end());
  uint64_t expected = 0;
  for (auto [begin, name] : order) {
    if (begin != expected)
      return Status::error(ErrorCode::corruptFile,
                           "tensor '{}' starts at byte {} of the data, but the one before ends at {}", name, begin,
                           expected);
    expected = begin + table.find(name)->second.bytesInFile();
  }
  if (expected != dataBytes)
    return Status::error(ErrorCode::corruptFile,
                         "the safetensors header describes {} bytes of data, but the file has {}", expected, dataBytes);
  return Status::success();
}

const SafetensorsEntry *SafetensorsFile::find(std::string_view name) const {
  auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

Status SafetensorsFile::read(const SafetensorsEntry &entry, std::span<std::byte> target) const {
  if (target.size() != entry.bytes)
    return Status::error(ErrorCode::internal, "{}: a tensor of {} bytes was asked into {} bytes", path(), entry.bytes,
                         target.size());
  return read(entry, 0, target);
}

Status SafetensorsFile::read(const SafetensorsEntry &entry, uint64_t first, std::span<std::byte> target) const {
  if (first > entry.bytes || target.size() > entry.bytes - first)
    return Status::error(ErrorCode::internal, "{}: bytes {} to {} of a tensor of {} were asked for", path(), first,
                         first + target.size(), entry.bytes);
  uint64_t shrinks = entry.shrinks();
  BRAID_TRY(file.read(entry.offset + first / shrinks, target.last(target.size() / shrinks)));
  switch (entry.packed) {
  case Packed::no: break;
  case Packed::f16: widen<uint16_t>(target, fromF16); break;
  case Packed::e4m3: widen<uint8_t>(target, fromE4M3); break;
  case Packed::e8m0: widen<uint8_t>(target, fromE8M0); break;
  case Packed::e2m1: widenPairs(target); break;
  }
  return Status::success();
}

// ---- Writing --------------------------------------------------------------------------------------------------------

void SafetensorsWriter::setMetadata(std::string key, std::string value) { metadata[std::move(key)] = std::move(value); }

Status SafetensorsWriter::add(std::string name, DType dtype, std::vector<int64_t> shape,
                              std::span<const std::byte> data) {
  std::optional<int64_t> count = elementCount(shape);
  if (!count || static_cast<uint64_t>(*count) * sizeOf(dtype) != data.size())
    return Status::error(ErrorCode::internal, "tensor '{}': {} {} does not take {} bytes", name, toString(dtype),
                         formatShape(shape), data.size());
  return add(std::move(name), Tensor{dtype, std::move(shape), data, nullptr, data.size()});
}

Status SafetensorsWriter::addMade(std::string name, DType dtype, std::vector<int64_t> shape, Make make) {
  std::optional<int64_t> count = elementCount(shape);
  if (!count)
    return Status::error(ErrorCode::internal, "tensor '{}': {} is not the shape of a tensor", name, formatShape(shape));
  return add(std::move(name),
             Tensor{dtype, std::move(shape), {}, std::move(make), static_cast<size_t>(*count) * sizeOf(dtype)});
}

Status SafetensorsWriter::add(std::string name, Tensor tensor) {
  auto [position, fresh] = tensors.emplace(std::move(name), std::move(tensor));
  if (!fresh)
    return Status::error(ErrorCode::internal, "tensor '{}' is written twice", position->first);
  return Status::success();
}

Expected<FileContent> SafetensorsWriter::write(const std::string &path) const {
  std::vector<const std::pair<const std::string, Tensor> *> order;
  for (const auto &tensor : tensors)
    order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](auto *a, auto *b) {
    size_t first = sizeOf(a->second.dtype), second = sizeOf(b->second.dtype);
    return first != second ? first > second : a->first < b->first;
  });

  Json header = Json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (auto *tensor : order) {
    uint64_t end = offset + tensor->second.bytes;
    header[tensor->first] = {{"dtype", safetensorsName(tensor->second.dtype)},
                             {"shape", tensor->second.shape},
                             {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  std::string length;
  for (size_t i = 0; i < 8; ++i)
    length.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xff));

  BRAID_ASSIGN(OutputFile file, OutputFile::create(path));
  FileContent content;
  ContentHasher hasher;
  auto write = [&](std::span<const std::byte> bytes) {
    content.bytes += bytes.size();
    hasher.add(bytes);
    return file.write(bytes);
  };
  length += text;
  BRAID_TRY(write(std::as_bytes(std::span(length))));
  std::vector<std::byte> made;
  for (auto *tensor : order) {
    std::span<const std::byte> data = tensor->second.data;
    if (tensor->second.make) {
      made.resize(tensor->second.bytes);
      tensor->second.make(made);
      data = made;
    }
    BRAID_TRY(write(data));
  }
  BRAID_TRY(file.sync());
  BRAID_TRY(file.close());
  content.hash = hasher.hash();
  return content;
}

} // namespace braid::runtime
