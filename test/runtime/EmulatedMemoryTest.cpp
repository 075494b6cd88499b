// What the memory of a device of the driver's stub begins as: NaN for all that runs, but for an allocation that is cleared first.
#include "test/runtime/EmulatedCalls.h"

#include <gtest/gtest.h>

#ifdef BRAID_TEST_CUDA_STUBS

#include <algorithm>
#include <cstdint>
#include <vector>

namespace braid::runtime::test {
namespace {

template <typename Function> Function *ofDriver(const char *name) {
  static void *stub = dlopen(BRAID_TEST_CUDA_STUBS "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  auto *found = reinterpret_cast<Function *>(dlsym(stub, name));
  EXPECT_NE(found, nullptr) << name;
  return found;
}

// An allocation of more pages than one, which ends inside of one.
struct Memory {
  static constexpr size_t bytes = 3 * 4096 + 1000;
  uint64_t address = 0;

  Memory() { EXPECT_EQ(ofDriver<int(uint64_t *, size_t)>("cuMemAlloc_v2")(&address, bytes), 0); }
  Memory(const Memory &) = delete;
  ~Memory() { EXPECT_EQ(ofDriver<int(uint64_t)>("cuMemFree_v2")(address), 0); }

  void set(unsigned char value, size_t first = 0, size_t count = bytes) const {
    auto *call = ofDriver<int(uint64_t, unsigned char, size_t, void *)>("cuMemsetD8Async");
    EXPECT_EQ(call(address + first, value, count, nullptr), 0);
  }
  /// Whether bytes [first, first + count) are all `value`.
  bool is(int value, size_t first = 0, size_t count = bytes) const {
    std::vector<unsigned char> found(count, 0x55);
    auto *copy = ofDriver<int(void *, uint64_t, size_t, void *)>("cuMemcpyDtoHAsync_v2");
    EXPECT_EQ(copy(found.data(), address + first, count, nullptr), 0);
    EXPECT_EQ(ofDriver<int(void *)>("cuStreamSynchronize")(nullptr), 0);
    return std::ranges::all_of(found, [&](unsigned char byte) { return byte == value; });
  }
};

constexpr int nan = 0xff;

} // namespace

TEST(EmulatedMemory, BeginsAsNaN) {
  Memory memory;
  EXPECT_TRUE(memory.is(nan));
}

TEST(EmulatedMemory, IsClearedAsAWhole) {
  Memory memory, other;
  memory.set(0);
  EXPECT_TRUE(memory.is(0));
  EXPECT_TRUE(other.is(nan));
  memory.set(7);
  EXPECT_TRUE(memory.is(7));
  memory.set(0);
  EXPECT_TRUE(memory.is(0));
}

TEST(EmulatedMemory, IsNaNWhereItIsNotCleared) {
  Memory memory;
  memory.set(0, 0, 4096);
  EXPECT_TRUE(memory.is(0, 0, 4096));
  EXPECT_TRUE(memory.is(nan, 4096, Memory::bytes - 4096));
  Memory end;
  end.set(0, 1, Memory::bytes - 1);
  EXPECT_TRUE(end.is(nan, 0, 1));
  EXPECT_TRUE(end.is(0, 1, Memory::bytes - 1));
}

TEST(EmulatedMemory, OfWhatRanBeforeItIsCleared) {
  Memory memory;
  memory.set(1, 5000, 1);
  memory.set(0);
  EXPECT_TRUE(memory.is(0));
  Memory set;
  set.set(3);
  EXPECT_TRUE(set.is(3));
}

} // namespace braid::runtime::test

#endif
