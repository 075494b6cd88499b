// The conformance suite on processes: mpirun -n N braid-mpi-tests. Every process runs all tests, in the same order; a
// failure on any of them is told there and makes the status of all.
#include "test/runtime/conformance/CommunicatorBackend.h"

#include "runtime/comm/MpiWorld.h"

#include <cstdio>
#include <gtest/gtest.h>

namespace braid::runtime::test {
namespace {

class MpiBackend : public CommunicatorBackend {
public:
  std::unique_ptr<Processes> processes;

  int process() const override { return processes->rank(); }
  std::vector<int> worldSizes() const override { return {processes->size()}; }

  Status run(const MeshInfo &mesh, std::chrono::milliseconds timeout,
             const std::function<Status(CommunicatorGroup &)> &body) override {
    // Short messages and chunks, so that what is tested travels in many, and the longest in as many as there may be.
    MpiOptions options{timeout, /*messageBytes=*/1000, /*chunkBytes=*/4096};
    BRAID_ASSIGN(std::unique_ptr<CommunicatorGroup> group, connectMpi(mesh, options));
    return body(*group);
  }
};

MpiBackend &backend() {
  static MpiBackend backend;
  return backend;
}

} // namespace

CommunicatorBackend &communicatorBackend() { return backend(); }

} // namespace braid::runtime::test

int main(int argc, char **argv) {
  using namespace braid::runtime;
  auto processes = startMpi("mpirun");
  if (!processes) {
    std::fprintf(stderr, "%s\n", processes.message().c_str());
    return 1;
  }
  test::backend().processes = *std::move(processes);
  testing::InitGoogleTest(&argc, argv);
  if (test::backend().processes->rank() != 0)
    GTEST_FLAG_SET(brief, true); // only failures
  int code = RUN_ALL_TESTS();
  std::fflush(nullptr);
  if (code)
    test::backend().processes->abortAll(code);
  test::backend().processes->finish();
  return 0;
}
