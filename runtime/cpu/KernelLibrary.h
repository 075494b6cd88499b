// KernelLibrary: the shared object of a program, loaded from memory. The file never touches a disk; its descriptor
// stays open as long as the library, because the loader recognises libraries by path and a reused descriptor number
// would give a program the kernels of another.
#pragma once

#include "runtime/Expected.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace braid::runtime {

// args[0..2]: grid extents; then one slot per parameter. Executes programs [begin, end), numbered x fastest.
using KernelFunction = void (*)(const int64_t *args, int64_t begin, int64_t end);

class KernelLibrary {
public:
  KernelLibrary() = default;
  KernelLibrary(KernelLibrary &&other) noexcept { *this = std::move(other); }
  KernelLibrary &operator=(KernelLibrary &&other) noexcept {
    std::swap(handle, other.handle);
    std::swap(descriptor, other.descriptor);
    return *this;
  }
  ~KernelLibrary();

  static Expected<KernelLibrary> load(std::span<const std::byte> sharedObject, const std::string &name);
  Expected<KernelFunction> resolve(const std::string &symbol) const;

private:
  void *handle = nullptr;
  int descriptor = -1;
};

} // namespace braid::runtime
