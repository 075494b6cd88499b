// MpiWorld: ranks as processes over MPI. Everything is sent and received without blocking and looked at whenever
// something may have come (MpiArrivals), so a rank that is lost or hangs ends the work of all with an error that names
// the collective, the rank and its peer. Sums run in rank order: the same bits as ranks that are threads. Only built where MPI was found.
#pragma once

#include "runtime/comm/Processes.h"

namespace braid::runtime {

struct MpiOptions {
  std::chrono::milliseconds timeout{60000};
  // A longer message travels in parts, up to 256 of them: one beyond the library's eager limit (Open MPI, TCP: 64 KiB) is
  // announced first, and the answer waits behind what travels the other way, which halves the rate of both.
  uint64_t messageBytes = uint64_t(48) << 10;
  uint64_t chunkBytes = uint64_t(1) << 20; // of a sum: parts of this size are summed while the next ones travel
};

// MPI_Init. `startedBy`: the launcher, for errors.
Expected<std::unique_ptr<Processes>> startMpi(std::string startedBy);

// Collective: a group with communicators of its own; for tests, which choose the sizes of messages.
Expected<std::unique_ptr<CommunicatorGroup>> connectMpi(const MeshInfo &mesh, const MpiOptions &options);

// Name and version of the MPI library.
std::string mpiLibrary();

} // namespace braid::runtime
