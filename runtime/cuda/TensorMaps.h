// TensorMaps: how a kernel's bulk copies see its buffers (schema: TensorMap), as parameters of its launches. These are the slots of
// the launch, zeros up to the next multiple of 128 bytes, and 128 bytes for each map, made by the driver of addresses, sizes
// and strides in the slots.
//
// Zeros come first, too, where the device aligns the parameter.
// What the program file says of maps is read once: a launch reads nothing of the file and allocates nothing.
#pragma once

#include "runtime/cuda/CudaDriver.h"

#include <span>
#include <string>
#include <vector>

namespace braid::schema {
struct Kernel;
}

namespace braid::runtime::cuda {

inline constexpr size_t gridSlots = 3; // before the parameters'

class TensorMaps {
public:
  // Of a program that has been checked, and its kernel on the device. An error: the kernel has maps, and the driver is older than they are.
  static Expected<TensorMaps> create(const Driver &driver, const schema::Kernel &kernel, Function function);

  bool empty() const { return maps.empty(); }
  // Of the parameters of a launch.
  size_t blockBytes() const { return offset + mapsBegin() + maps.size() * sizeof(TensorMap); }
  // Them, to `block` of so many bytes. An error names kernel, parameter and number: an address or a stride that is no multiple of
  // 16 bytes, a size or a stride that is out of range. A buffer without elements is no error, and its map nothing to copy by.
  Status write(const Driver &driver, std::span<const int64_t> slots, std::byte *block) const;

private:
  struct Dimension {
    int64_t size, stride; // negative: of a parameter, as in the file
    unsigned box;
  };
  struct Map {
    std::string name; // of the pointer
    size_t slot;
    TensorMapType type;
    int64_t elementBytes;
    bool rowMajor; // strides follow from sizes
    std::vector<Dimension> dimensions; // innermost first
  };
  static Expected<TensorMap> encode(const Driver &driver, const Map &map, std::span<const int64_t> slots);
  size_t mapsBegin() const { return (slotCount * sizeof(int64_t) + 127) / 128 * 128; }

  std::string kernel;
  size_t slotCount = 0;
  size_t offset =
      0; // of the parameter, which is aligned as maps are: where the memory of parameters begins depends on the GPU
  std::vector<Map> maps;
};

} // namespace braid::runtime::cuda
