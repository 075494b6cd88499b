// What the conformance suite of communicators runs on. Every test program that holds the suite has one backend.
#pragma once

#include "runtime/Communicator.h"

#include <chrono>
#include <functional>

namespace braid::runtime::test {

class CommunicatorBackend {
public:
  virtual ~CommunicatorBackend() = default;

  // Which of the processes that run the suite this is.
  virtual int process() const = 0;
  // How many ranks it can have.
  virtual std::vector<int> worldSizes() const = 0;
  // Else sums agree within the rounding of their additions only, and are the same bits every time.
  virtual bool sumsInRankOrder() const { return true; }
  // Runs `body` on every rank of the mesh that this process has, with a fresh group; the first error of those ranks.
  virtual Status run(const MeshInfo &mesh, std::chrono::milliseconds timeout,
                     const std::function<Status(CommunicatorGroup &)> &body) = 0;
};

CommunicatorBackend &communicatorBackend();

} // namespace braid::runtime::test
