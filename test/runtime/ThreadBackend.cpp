// The conformance suite on ranks that are threads of this process.
#include "test/runtime/conformance/CommunicatorBackend.h"

#include "runtime/ThreadPool.h"
#include "runtime/comm/ThreadWorld.h"

namespace braid::runtime::test {
namespace {

class ThreadBackend : public CommunicatorBackend {
public:
  int process() const override { return 0; }
  std::vector<int> worldSizes() const override { return {1, 2, 3, 4}; }

  Status run(const MeshInfo &mesh, std::chrono::milliseconds timeout,
             const std::function<Status(CommunicatorGroup &)> &body) override {
    BRAID_ASSIGN(std::unique_ptr<ThreadWorld> world, ThreadWorld::create(mesh, {.timeout = timeout}));
    return runOnRanks(world->size(), [&](int rank) { return body(world->group(rank)); });
  }
};

} // namespace

CommunicatorBackend &communicatorBackend() {
  static ThreadBackend backend;
  return backend;
}

} // namespace braid::runtime::test
