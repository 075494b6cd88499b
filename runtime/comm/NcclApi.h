// NcclApi: the functions of NCCL that NcclWorld calls, found in its library at run time. Neither library nor header is
// needed to build or to start; types and numbers are those of its binary interface (test/runtime/nccl/HeaderTest.cpp
// compares them with nccl.h where it is).
#pragma once

#include "runtime/cuda/CudaDriver.h"

#include <string>

namespace braid::runtime::nccl {

using Result = int;
constexpr Result success = 0, invalidArgument = 4, inProgress = 7;
using cuda::Stream;
using Comm = struct CommTag *;
struct UniqueId {
  char bytes[128];
};
using Type = int;
constexpr Type typeU8 = 1, typeI32 = 2, typeI64 = 4, typeF32 = 7, typeF64 = 8, typeBf16 = 9;
using Reduction = int;
constexpr Reduction sum = 0;
// As of 2.14, which later versions know by `size` and `version`; what they have added keeps its default.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0; // calls return at once; commGetAsyncError says when they are done
};

// X(member, name in the library, result, parameters)
#define BRAID_NCCL_FUNCTIONS(X)                                                                                        \
  X(getUniqueId, "ncclGetUniqueId", Result, (UniqueId * id))                                                           \
  X(commInitRank, "ncclCommInitRankConfig", Result, (Comm * comm, int ranks, UniqueId id, int rank, Config *config))   \
  X(commDestroy, "ncclCommDestroy", Result, (Comm comm))                                                               \
  X(commAbort, "ncclCommAbort", Result, (Comm comm))                                                                   \
  X(commGetAsyncError, "ncclCommGetAsyncError", Result, (Comm comm, Result * error))                                   \
  X(errorText, "ncclGetErrorString", const char *, (Result code))                                                      \
  X(allReduce, "ncclAllReduce", Result,                                                                                \
    (const void *send, void *recv, size_t count, Type type, Reduction op, Comm comm, Stream stream))                   \
  X(allGather, "ncclAllGather", Result,                                                                                \
    (const void *send, void *recv, size_t count, Type type, Comm comm, Stream stream))                                 \
  X(reduceScatter, "ncclReduceScatter", Result,                                                                        \
    (const void *send, void *recv, size_t count, Type type, Reduction op, Comm comm, Stream stream))                   \
  X(send, "ncclSend", Result, (const void *send, size_t count, Type type, int peer, Comm comm, Stream stream))         \
  X(recv, "ncclRecv", Result, (void *recv, size_t count, Type type, int peer, Comm comm, Stream stream))               \
  X(groupStart, "ncclGroupStart", Result, ())                                                                          \
  X(groupEnd, "ncclGroupEnd", Result, ())

#define BRAID_DECLARE(member, name, result, parameters) result(*member) parameters = nullptr;
struct Library {
  BRAID_NCCL_FUNCTIONS(BRAID_DECLARE)

  Status check(const char *call, Result code) const;
};
#undef BRAID_DECLARE

// Errors name the library or the function of it that is not there. It stays open: what it began may still run.
Expected<Library> openLibrary(const std::string &library);

} // namespace braid::runtime::nccl
