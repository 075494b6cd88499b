// CudaDriver: NVIDIA's driver, opened when a program for GPUs is run and never linked, so that one braid-run works on machines
// with and without it. Names, numbers and signatures are those of NVIDIA's driver API; nothing of its headers is needed
// to build.
#pragma once

#include "runtime/Expected.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace braid::runtime::cuda {

using Device = int;
using Context = CUctx_st *;
using Module = CUmod_st *;
using Function = CUfunc_st *;
using Stream = CUstream_st *;
using Event = CUevent_st *;
using Graph = CUgraph_st *;
using GraphExec = CUgraphExec_st *;
using Address = unsigned long long; // of device memory
struct Uuid { // of a device, on all machines
  char bytes[16];
};

constexpr int success = 0;
constexpr int outOfMemory = 2;
constexpr int noDevice = 100;
constexpr int notReady = 600;

enum class DeviceAttribute : int {
  multiprocessors = 16,
  capabilityMajor = 75,
  capabilityMinor = 76,
  sharedBytesOptIn = 97, // of a block, when its kernel asks for more than 48 KiB
};
enum class FunctionAttribute : int { dynamicSharedBytes = 8 };
constexpr unsigned streamNonBlocking = 1;
constexpr unsigned long long graphNodePriorities = 8; // each kernel has that of the stream it was captured from
constexpr unsigned eventDisableTiming = 2;
constexpr int captureThreadLocal = 1;
// How bulk copies see a buffer, as the device reads it: a part of a kernel's parameters.
struct alignas(128) TensorMap { // as the toolkit has it since CUDA 13.0; the device reads it from any 64 bytes on
  uint64_t words[16];
};
enum class TensorMapType : int { f32 = 7, bf16 = 9 };
constexpr int interleaveNone = 0;
constexpr int swizzle32Bytes = 1, swizzle64Bytes = 2, swizzle128Bytes = 3;
constexpr int promotion256Bytes = 3; // what a miss of the L2 cache fetches at least
constexpr int fillZeros = 0; // of elements outside of the buffer
// Of cuLaunchKernel's `extra`: the parameters as one block of memory.
inline void *const launchParamEnd = nullptr;
inline void *const launchParamBuffer = reinterpret_cast<void *>(uintptr_t(1));
inline void *const launchParamBufferSize = reinterpret_cast<void *>(uintptr_t(2));
// Of cuLaunchKernelEx.
enum class LaunchAttributeId : int { programmaticStreamSerialization = 6 };
struct LaunchAttribute {
  LaunchAttributeId id;
  char padding[4];
  union Value {
    char bytes[64];
    int allowed; // of a launch: to begin before the one before it has ended
  } value;
};
struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, dynamicSharedBytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};

// Every function that is used, by its name there and its signature; results are 0 or an error's number.
#define BRAID_CUDA_FUNCTIONS(X)                                                                                        \
  X(cuInit, (unsigned flags))                                                                                          \
  X(cuDriverGetVersion, (int *version))                                                                                \
  X(cuGetErrorName, (int error, const char **text))                                                                    \
  X(cuGetErrorString, (int error, const char **text))                                                                  \
  X(cuDeviceGetCount, (int *count))                                                                                    \
  X(cuDeviceGet, (Device * device, int ordinal))                                                                       \
  X(cuDeviceGetName, (char *name, int length, Device device))                                                          \
  X(cuDeviceGetUuid_v2, (Uuid * uuid, Device device))                                                                  \
  X(cuDeviceGetAttribute, (int *value, DeviceAttribute attribute, Device device))                                      \
  X(cuDevicePrimaryCtxRetain, (Context * context, Device device))                                                      \
  X(cuDevicePrimaryCtxRelease_v2, (Device device))                                                                     \
  X(cuCtxSetCurrent, (Context context))                                                                                \
  X(cuModuleLoadData, (Module * module, const void *image))                                                            \
  X(cuModuleUnload, (Module module))                                                                                   \
  X(cuModuleGetFunction, (Function * function, Module module, const char *name))                                       \
  X(cuFuncSetAttribute, (Function function, FunctionAttribute attribute, int value))                                   \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                                       \
    (int *blocks, Function function, int threads, size_t dynamicSharedBytes))                                          \
  X(cuMemGetInfo_v2, (size_t *available, size_t *total))                                                               \
  X(cuMemAlloc_v2, (Address * address, size_t bytes))                                                                  \
  X(cuMemFree_v2, (Address address))                                                                                   \
  X(cuMemHostRegister_v2, (void *address, size_t bytes, unsigned flags))                                               \
  X(cuMemHostUnregister, (void *address))                                                                              \
  X(cuMemcpyHtoDAsync_v2, (Address target, const void *source, size_t bytes, Stream stream))                           \
  X(cuMemcpyDtoHAsync_v2, (void *target, Address source, size_t bytes, Stream stream))                                 \
  X(cuMemcpyDtoDAsync_v2, (Address target, Address source, size_t bytes, Stream stream))                               \
  X(cuMemsetD8Async, (Address target, unsigned char value, size_t bytes, Stream stream))                               \
  X(cuCtxGetStreamPriorityRange, (int *least, int *greatest))                                                          \
  X(cuStreamCreate, (Stream * stream, unsigned flags))                                                                 \
  X(cuStreamCreateWithPriority, (Stream * stream, unsigned flags, int priority))                                       \
  X(cuStreamDestroy_v2, (Stream stream))                                                                               \
  X(cuStreamQuery, (Stream stream))                                                                                    \
  X(cuStreamSynchronize, (Stream stream))                                                                              \
  X(cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))                                                   \
  X(cuStreamBeginCapture_v2, (Stream stream, int mode))                                                                \
  X(cuStreamEndCapture, (Stream stream, Graph * graph))                                                                \
  X(cuGraphInstantiateWithFlags, (GraphExec * executable, Graph graph, unsigned long long flags))                      \
  X(cuGraphLaunch, (GraphExec executable, Stream stream))                                                              \
  X(cuGraphExecDestroy, (GraphExec executable))                                                                        \
  X(cuGraphDestroy, (Graph graph))                                                                                     \
  X(cuEventCreate, (Event * event, unsigned flags))                                                                    \
  X(cuEventDestroy_v2, (Event event))                                                                                  \
  X(cuEventRecord, (Event event, Stream stream))                                                                       \
  X(cuLaunchKernel,                                                                                                    \
    (Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,              \
     unsigned blockZ, unsigned dynamicSharedBytes, Stream stream, void **parameters, void **extra))

// Those that drivers older than CUDA 12.4 lack, where they are null: programs that do without run there.
#define BRAID_CUDA_NEWER_FUNCTIONS(X)                                                                                  \
  X(cuLaunchKernelEx, (const LaunchConfig *config, Function function, void **parameters, void **extra))                \
  X(cuFuncGetParamInfo, (Function function, size_t number, size_t *offset, size_t *bytes))                             \
  X(cuTensorMapEncodeTiled, (TensorMap * map, TensorMapType type, unsigned rank, void *address, const uint64_t *sizes, \
                             const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,      \
                             int swizzle, int promotion, int fill))

struct Driver {
#define BRAID_CUDA_MEMBER(name, parameters) int(*name) parameters = nullptr;
  BRAID_CUDA_FUNCTIONS(BRAID_CUDA_MEMBER)
  BRAID_CUDA_NEWER_FUNCTIONS(BRAID_CUDA_MEMBER)
#undef BRAID_CUDA_MEMBER

  // Opened and started once in a process, and never closed. An error says what is missing: the driver (libcuda.so.1), a
  // function that an older one lacks, a device; with the driver's own error.
  static Expected<const Driver *> open();

  // Success, or an error with the name of the call and what the driver says.
  Status check(int result, const char *call) const;

  // Until the stream is empty: true; false after `timeout`. Meanwhile `alive` is asked whether there is anything to wait
  // for, every few looks; its error ends the waiting.
  Expected<bool> waitFor(Stream stream, std::chrono::milliseconds timeout, const std::function<Status()> &alive) const;
};

// What the driver supports: 13000 is CUDA 13.0.
inline std::string versionText(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

} // namespace braid::runtime::cuda
