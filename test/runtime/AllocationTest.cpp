// run() allocates nothing: every allocation of the process is counted here, operator new and malloc alike. Compiled
// training steps: test/kernels/CompiledStepTest.cpp.
#include "test/runtime/AllocationCounter.h"
#include "test/runtime/TestProgram.h"

#include "runtime/Communicator.h"
#include "runtime/ThreadPool.h"
#include "runtime/comm/ThreadWorld.h"

using namespace braid::runtime;
using namespace braid::runtime::test;
namespace schema = braid::schema;

namespace {

int64_t allocationsOf(Session &session, const char *entry, int steps) {
  EntryId id = *session.entry(entry);
  EXPECT_TRUE(session.run(id).ok()); // first touches of thread-local state
  int64_t before = allocations();
  bool ok = true;
  for (int i = 0; i < steps; ++i)
    ok &= session.run(id).ok();
  EXPECT_TRUE(ok);
  return allocations() - before;
}

} // namespace

TEST(Allocation, NoneInTenStepsOfOurOwnCommands) {
  if (!countsAllocations())
    GTEST_SKIP() << whyNoAllocationsAreCounted;
  TestProgram p;
  p.addKernels();
  p.axis("dp", 1);
  p.stream("dp", "dp");
  p.arena("io", 4096);
  auto body =
      list(command(launch(addScaled, {64, 1, 1}, arg("x", buffer(0, 0, 256, {256})), arg("y", buffer(0, 0, 256)),
                          arg("out", buffer(0, 2048, 256)), arg("scale", 0.5)),
                   "a command with a long name that does not fit into a short string"),
           command(recordEvent(0)), command(waitEvent(0), "", 1),
           command(collective(schema::CollectiveKind::all_reduce, "dp", buffer(0, 2048, 256), buffer(0, 3072, 256)),
                   "sum", 1),
           command(recordEvent(1), "", 1), command(waitEvent(1)),
           command(copy(buffer(0, 3072, 256), buffer(0, 2048, 256))), command(fill(buffer(0, 0, 256), 0)));
  p.entry("main", list(command(repeat(4, std::move(body)))), 2);
  for (int threads : {1, 3}) {
    auto session = p.session(threads);
    ASSERT_TRUE(session);
    EXPECT_EQ(allocationsOf(*session, "main", 10), 0) << threads << " threads";
  }
}

// oneDNN keeps its arguments of an execution in a hash map: small blocks, freed again, which are not ours to avoid. Its
// code for CPUs without AVX-512 is generated inside the first execution, so steps are counted behind that one.
TEST(Allocation, NoneAroundMatmuls) {
  if (!countsAllocations())
    GTEST_SKIP() << whyNoAllocationsAreCounted;
  TestProgram p;
  p.arena("io", 1 << 16);
  schema::GemmT gemm;
  gemm.m = gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = 48;
  gemm.a = buffer(0, 0, 48 * 48 * 4);
  gemm.b = buffer(0, 0, 48 * 48 * 4);
  gemm.c = buffer(0, 1 << 15, 48 * 48 * 4);
  p.entry("main", list(command(repeat(5, list(command(std::move(gemm)))))));
  auto session = p.session();
  ASSERT_TRUE(session);
  EXPECT_EQ(allocationsOf(*session, "main", 1), 0);
  int64_t before = libraryAllocations();
  EXPECT_EQ(allocationsOf(*session, "main", 10), 0);
  double perMatmul = static_cast<double>(libraryAllocations() - before) / 55;
  EXPECT_LE(perMatmul, 12);
  printf("oneDNN allocations per matmul: %g\n", perMatmul);
}
