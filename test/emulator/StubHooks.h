//===- StubHooks.h - what libraries beside the driver's stub ask of it --------------------------------------------===//
#ifndef TEST_EMULATOR_STUBHOOKS_H
#define TEST_EMULATOR_STUBHOOKS_H

#include "runtime/cuda/CudaDriver.h"

#include <cstdint>
#include <functional>

/// What cuTensorMapEncodeTiled of the stub writes: what it was given, innermost dimension first.
struct StubTensorMap {
  static constexpr uint64_t theMark = 0x70614d726f736e54; ///< "TnsorMap"
  uint64_t mark = theMark;
  uint64_t address = 0;
  uint32_t type = 0;
  uint32_t rank = 0;
  uint64_t sizes[5] = {};
  uint64_t strides[4] = {};
  uint32_t box[5] = {};
  uint32_t unused[3] = {};
};
static_assert(sizeof(StubTensorMap) == sizeof(braid::runtime::cuda::TensorMap));

extern "C" {
/// Onto the stream, or into the graph that is recorded; there it waits for `ready`, unless that is null, then runs. `line` of the log, if
/// any.
void braidStubPut(braid::runtime::cuda::Stream stream, std::function<void()> run, const char *line,
                  std::function<bool()> ready);
/// Ends the process where the bytes are not of one allocation of the stream's device.
void braidStubCheck(const void *bytes, size_t size, const char *call, braid::runtime::cuda::Stream stream);
}

#endif // TEST_EMULATOR_STUBHOOKS_H
