// ThreadWorld: N ranks as threads of one process. The reference for collective semantics, and what `--ranks=N` uses.
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
