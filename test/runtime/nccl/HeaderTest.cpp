// runtime/comm/NcclApi.h states the interface of NCCL once more: here it is compared with its header.
#if BRAID_TEST_NCCL_HEADER
#include "runtime/comm/NcclApi.h"
#include "test/runtime/fixture/Alike.h"

#include <cstddef>
#include <nccl.h>
#include <type_traits>

namespace ours = braid::runtime::nccl;

static_assert(ours::success == ncclSuccess && ours::invalidArgument == ncclInvalidArgument &&
              ours::inProgress == ncclInProgress && ours::sum == ncclSum);
static_assert(ours::typeU8 == ncclUint8 && ours::typeI32 == ncclInt32 && ours::typeI64 == ncclInt64 &&
              ours::typeF32 == ncclFloat32 && ours::typeF64 == ncclFloat64 && ours::typeBf16 == ncclBfloat16);
static_assert(sizeof(ours::UniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(ours::Config, size) == offsetof(ncclConfig_t, size) &&
              offsetof(ours::Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(ours::Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(ours::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(ours::Config().version == NCCL_VERSION(2, 14, 0) && sizeof(ours::Config) <= sizeof(ncclConfig_t));

#define NCCL(member, function)                                                                                         \
  static_assert(braid::runtime::test::Alike<decltype(ours::Library::member), decltype(&function)>::value, #function)
NCCL(getUniqueId, ncclGetUniqueId);
NCCL(commInitRank, ncclCommInitRankConfig);
NCCL(commDestroy, ncclCommDestroy);
NCCL(commAbort, ncclCommAbort);
NCCL(commGetAsyncError, ncclCommGetAsyncError);
NCCL(errorText, ncclGetErrorString);
NCCL(allReduce, ncclAllReduce);
NCCL(allGather, ncclAllGather);
NCCL(reduceScatter, ncclReduceScatter);
NCCL(send, ncclSend);
NCCL(recv, ncclRecv);
NCCL(groupStart, ncclGroupStart);
NCCL(groupEnd, ncclGroupEnd);
#endif
