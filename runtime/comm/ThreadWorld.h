// ThreadWorld: N ranks as threads of one process. The reference for collective semantics, and what `--ranks=N` uses.
// Sums run in rank order on every rank, so all of them get the same bits, every time. A rank that does not come within
// the timeout, or brings another operation than its peers, ends the world: every rank's call returns an error that
// names the collective, the axis and the rank, and so does every later one.
#pragma once

#include "runtime/Communicator.h"

#include <chrono>

namespace braid::runtime {

struct ThreadWorldOptions {
  // How long a rank waits for its peers in one collective before it gives up.
  std::chrono::milliseconds timeout{60000};
};

class ThreadWorld {
public:
  static Expected<std::unique_ptr<ThreadWorld>> create(const MeshInfo &mesh, ThreadWorldOptions options = {});
  ~ThreadWorld();

  int size() const;
  // Used by one rank's threads only; lives as long as the world.
  CommunicatorGroup &group(int rank);

private:
  struct Impl;
  explicit ThreadWorld(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace braid::runtime
