//===- StubHooks.h - what libraries beside the driver's stub ask of it --------------------------------------------===//
#ifndef TEST_EMULATOR_STUBHOOKS_H
#define TEST_EMULATOR_STUBHOOKS_H

#include "runtime/cuda/CudaDriver.h"

#include <functional>

extern "C" {
/// Onto the stream, or into the graph that is recorded; there it waits for `ready`, unless that is null, then runs. `line` of the log, if
/// any.
void braidStubPut(braid::runtime::cuda::Stream stream, std::function<void()> run, const char *line,
                  std::function<bool()> ready);
/// Ends the process where the bytes are not of one allocation of the stream's device.
void braidStubCheck(const void *bytes, size_t size, const char *call, braid::runtime::cuda::Stream stream);
}

#endif // TEST_EMULATOR_STUBHOOKS_H
