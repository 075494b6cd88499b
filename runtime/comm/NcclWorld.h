// NcclWorld: ranks with a GPU each. NCCL moves the data. Calls come in two forms. On a stream of the caller (Communicator::queueOn, what
// sessions do) they are begun and not waited for: the ranks execute one list of commands, so nobody asks who calls what, and who waits
// for the streams asks health(). Otherwise they block: the ranks' host communicators (threads or MPI) say who calls
// what before anything travels, so a rank that is lost or calls something else is named as everywhere, and nobody waits
// inside NCCL for a rank that does not come; on a mesh of several axes one collective at a time uses a GPU then, in an order
// that is the same on all ranks they share. Buffers of collectives are device memory; world() is the host's, for hosts.
// Sums are NCCL's: the same bits every time, but in an order that it chooses, and bf16 is rounded after every addition.
#pragma once

#include "runtime/Communicator.h"

#include <chrono>

namespace braid::runtime {

struct NcclOptions {
  std::chrono::milliseconds timeout{60000}; // of a transfer that all ranks have begun
  int device = 0; // of this rank: its number on this machine
  std::string library = "libnccl.so.2";
};

// Collective over the ranks of `host`, which must outlive the group. Errors: a library or a function of it that is not
// there, no such device, what the driver or NCCL says.
Expected<std::unique_ptr<CommunicatorGroup>> connectNccl(const MeshInfo &mesh, CommunicatorGroup &host,
                                                         const NcclOptions &options);

} // namespace braid::runtime
