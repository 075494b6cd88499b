//===- EmulatedCalls.h - what kernels call of the emulator inside of the driver's stub ----------------------------===//
#ifndef TEST_RUNTIME_EMULATEDCALLS_H
#define TEST_RUNTIME_EMULATEDCALLS_H

#ifdef BRAID_TEST_CUDA_STUBS

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include <dlfcn.h>

namespace braid::runtime::test {

template <typename Function> Function *emulated(const char *name) {
  static void *stub = dlopen(BRAID_TEST_CUDA_STUBS "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  auto *found = reinterpret_cast<Function *>(dlsym(stub, (std::string("braid_emulate_") + name).c_str()));
  EXPECT_NE(found, nullptr) << name;
  return found;
}

inline void runBlocks(void (*thread)(void *), int64_t blocks, int64_t threads, int64_t sharedBytes,
                      int64_t cluster = 1) {
  emulated<void(void (*)(void *), void *, int64_t, int64_t, int64_t, int64_t, int64_t)>("blocks")(
      thread, nullptr, 0, blocks, threads, sharedBytes, cluster);
}

} // namespace braid::runtime::test

#endif

#endif // TEST_RUNTIME_EMULATEDCALLS_H
