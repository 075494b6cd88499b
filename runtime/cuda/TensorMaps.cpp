#include "runtime/cuda/TensorMaps.h"

#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace braid::runtime::cuda {
namespace {

constexpr size_t mostRank = 5;
constexpr int64_t alignment = 16;
constexpr int64_t mostSize = int64_t(1) << 32;
constexpr int64_t mostStride = (int64_t(1) << 40) - alignment; // in bytes

int64_t valueOf(int64_t entry, std::span<const int64_t> slots) {
  return entry >= 0 ? entry : slots[gridSlots + static_cast<size_t>(-1 - entry)];
}

} // namespace

Expected<TensorMaps> TensorMaps::create(const Driver &driver, const schema::Kernel &kernel, Function function) {
  TensorMaps result;
  if (!kernel.maps() || kernel.maps()->size() == 0)
    return result;
  result.kernel = kernel.name()->str();
  if (!driver.cuTensorMapEncodeTiled || !driver.cuFuncGetParamInfo) {
    int version = 0;
    BRAID_TRY(driver.check(driver.cuDriverGetVersion(&version), "cuDriverGetVersion"));
    return Status::error(ErrorCode::unsupported,
                         "kernel @{} has {} tensor maps, but the driver is too old for them: it is for CUDA {} and "
                         "lacks cuTensorMapEncodeTiled or cuFuncGetParamInfo; valid: a driver for CUDA 12.4 or later",
                         result.kernel, kernel.maps()->size(), versionText(version));
  }
  size_t bytes = 0;
  BRAID_TRY(driver.check(driver.cuFuncGetParamInfo(function, 0, &result.offset, &bytes), "cuFuncGetParamInfo"));
  result.slotCount = gridSlots + kernel.params()->size() + 1; // and the scratch's
  for (const auto *map : *kernel.maps()) {
    const schema::Param &param = *kernel.params()->Get(map->param());
    bool isF32 = param.type() == schema::DType::f32;
    Map &made = result.maps.emplace_back(Map{param.name()->str(),
                                             gridSlots + map->param(),
                                             isF32 ? TensorMapType::f32 : TensorMapType::bf16,
                                             isF32 ? 4 : 2,
                                             map->strides() == nullptr,
                                             {}});
    for (uint32_t i = map->sizes()->size(); i-- > 0;)
      made.dimensions.push_back({map->sizes()->Get(i), made.rowMajor ? 1 : map->strides()->Get(i), map->box()->Get(i)});
  }
  return result;
}

Status TensorMaps::write(const Driver &driver, std::span<const int64_t> slots, std::byte *block) const {
  assert(slots.size() == slotCount && "slots of another kernel");
  std::memset(block, 0, offset);
  block += offset;
  std::memcpy(block, slots.data(), slots.size_bytes());
  std::memset(block + slots.size_bytes(), 0, mapsBegin() - slots.size_bytes());
  std::byte *to = block + mapsBegin();
  for (const Map &map : maps) {
    auto made = encode(driver, map, slots);
    if (!made)
      return made.status().withContext(fmt::format("kernel @{}: tensor map of '{}'", kernel, map.name));
    std::memcpy(to, &*made, sizeof(TensorMap));
    to += sizeof(TensorMap);
  }
  return Status::success();
}

Expected<TensorMap> TensorMaps::encode(const Driver &driver, const Map &map, std::span<const int64_t> slots) {
  auto rank = static_cast<unsigned>(map.dimensions.size());
  uint64_t sizes[mostRank] = {}, strides[mostRank] = {};
  unsigned box[mostRank] = {}, steps[mostRank] = {};
  bool isEmpty = false;
  for (unsigned i = 0; i < rank; ++i) {
    int64_t size = valueOf(map.dimensions[i].size, slots);
    if (size < 0 || size > mostSize)
      return Status::error("dimension {} of {} has size {}; bulk copies take at most {}", rank - 1 - i, rank, size,
                           mostSize);
    isEmpty |= size == 0;
    sizes[i] = static_cast<uint64_t>(size);
    box[i] = map.dimensions[i].box;
    steps[i] = 1;
  }
  // Of a buffer without elements nothing is read, and what is said of it need not make sense; a map has no size 0.
  auto address = static_cast<uint64_t>(slots[map.slot]);
  for (unsigned i = 0; i < rank && !isEmpty; ++i) // the driver takes it, and the copy never ends
    if (sizes[i] < box[i])
      return Status::error("dimension {} of {} has size {}, less than the {} of a box", rank - 1 - i, rank, sizes[i],
                           box[i]);
  if (isEmpty) {
    std::fill_n(sizes, rank, 1);
    address -= address % alignment;
  }
  if (address % alignment)
    return Status::error("it begins at address {:#x}, {} bytes behind a multiple of {}, on which buffers of bulk "
                         "copies begin",
                         address, address % alignment, alignment);
  int64_t contained = 1; // elements, where they stand row-major
  int64_t inside = static_cast<int64_t>(sizes[0]) * map.elementBytes; // from the first element of a dimension's part to
  // its last; more than a stride can be is as much
  for (unsigned i = 1; i < rank; ++i) {
    if (map.rowMajor && contained <= mostStride / static_cast<int64_t>(sizes[i - 1]))
      contained *= static_cast<int64_t>(sizes[i - 1]);
    int64_t stride = (inside + alignment - 1) / alignment * alignment; // of size 1 any will do
    if (sizes[i] > 1) {
      int64_t elements = map.rowMajor ? contained : valueOf(map.dimensions[i].stride, slots);
      if (elements <= 0 || elements > mostStride / map.elementBytes || elements * map.elementBytes % alignment)
        return Status::error("dimension {} of {} has a stride of {} elements of {} bytes; bulk copies take multiples "
                             "of {} bytes, from {} to {}",
                             rank - 1 - i, rank, elements, map.elementBytes, alignment, alignment, mostStride);
      stride = elements * map.elementBytes;
    }
    strides[i - 1] = static_cast<uint64_t>(stride);
    auto size = static_cast<int64_t>(sizes[i]);
    inside = size > mostStride / stride ? mostStride : std::max(inside, size * stride);
  }
  int64_t row = int64_t(box[0]) * map.elementBytes; // of a program that was checked
  int swizzle = row == 128 ? swizzle128Bytes : row == 64 ? swizzle64Bytes : swizzle32Bytes;
  TensorMap result;
  BRAID_TRY(driver.check(driver.cuTensorMapEncodeTiled(&result, map.type, rank, reinterpret_cast<void *>(address),
                                                       sizes, strides, box, steps, interleaveNone, swizzle,
                                                       promotion256Bytes, fillZeros),
                         "cuTensorMapEncodeTiled"));
  return result;
}

} // namespace braid::runtime::cuda
