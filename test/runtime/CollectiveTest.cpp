// Sessions on ranks as threads: streams and events, and what happens when a rank fails. Collectives: conformance/.
#include "test/runtime/TestProgram.h"

#include "runtime/Communicator.h"
#include "runtime/ThreadPool.h"
#include "runtime/Trace.h"
#include "runtime/comm/ThreadWorld.h"

#include <mutex>
#include <set>
#include <thread>

using namespace braid::runtime;
using namespace braid::runtime::test;
namespace schema = braid::schema;
using std::chrono::milliseconds;

namespace {

MeshInfo line(uint32_t ranks) { return {{{"dp", ranks}}, {}}; }

std::unique_ptr<ThreadWorld> makeWorld(const MeshInfo &mesh, milliseconds timeout = milliseconds(20000)) {
  ThreadWorldOptions options;
  options.timeout = timeout;
  auto world = ThreadWorld::create(mesh, options);
  EXPECT_TRUE(world) << world.message();
  return *std::move(world);
}

// A session per rank; body(session, rank) runs on the rank's thread.
Status withSessions(const TestProgram &p, ThreadWorld &world, const std::function<Status(Session &, int)> &body) {
  auto program = p.parse();
  if (!program)
    return program.status();
  return runOnRanks(world.size(), [&](int rank) -> Status {
    SessionOptions options;
    options.threads = 1;
    options.rank = rank;
    options.worldSize = world.size();
    options.comm = &world.group(rank);
    BRAID_ASSIGN(auto session, Session::create(*program, options));
    return body(*session, rank);
  });
}

TestProgram base(uint32_t ranks) {
  TestProgram p;
  p.addKernels();
  p.axis("dp", ranks);
  p.stream("dp", "dp");
  p.arena("io", 4096);
  return p;
}

} // namespace

TEST(Stream, CollectivesOverlapCompute) {
  // Compute waits inside a kernel for the value that only the collective in the background delivers: without overlap
  // the kernel gives up after ten seconds and returns 0.
  TestProgram p = base(2);
  p.tensor("mine", schema::DType::f32, {1}, 0, 0);
  p.tensor("sum", schema::DType::f32, {1}, 0, 64);
  p.tensor("seen", schema::DType::f32, {1}, 0, 128);
  p.entry(
      "main",
      list(command(fill(buffer(0, 64, 4), 0)), command(recordEvent(0)), command(waitEvent(0), "", 1),
           command(collective(schema::CollectiveKind::all_reduce, "dp", buffer(0, 0, 4), buffer(0, 64, 4)), "sum", 1),
           command(recordEvent(1), "", 1),
           command(launch(waitFor, {1, 1, 1}, arg("flag", buffer(0, 64, 4)), arg("out", buffer(0, 128, 4)))),
           command(waitEvent(1))),
      2);
  auto world = makeWorld(line(2));
  Status status = withSessions(p, *world, [&](Session &session, int rank) {
    values<float>(session, "mine")[0] = static_cast<float>(rank + 1);
    runEntry(session);
    EXPECT_EQ(values<float>(session, "seen")[0], 3.0f);
    return Status::success();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Stream, EventsOrderStreamsInEveryIteration) {
  // total = 10 * total + (sum over ranks of step value), the sum on the stream, the rest on compute; the all_reduce of
  // iteration i + 1 may not overtake the append of iteration i, which reads its buffer.
  constexpr int steps = 6;
  TestProgram p = base(3);
  p.tensor("in", schema::DType::f64, {steps}, 0, 0);
  p.tensor("total", schema::DType::f64, {1}, 0, 512);
  auto body =
      list(command(waitEvent(1), "", 1), // the append of the iteration before; nothing in the first
           command(collective(schema::CollectiveKind::all_reduce, "dp", buffer(0, 0, 8, {8}), buffer(0, 640, 8),
                              schema::DType::f64),
                   "sum", 1),
           command(recordEvent(0), "", 1), command(waitEvent(0)),
           command(launch(append, {1, 1, 1}, arg("source", buffer(0, 640, 8)), arg("target", buffer(0, 512, 8)))),
           command(recordEvent(1)));
  p.entry("main", list(command(fill(buffer(0, 512, 8), 0)), command(repeat(steps, std::move(body)))), 2);
  auto world = makeWorld(line(3));
  Status status = withSessions(p, *world, [&](Session &session, int rank) {
    for (int i = 0; i < steps; ++i)
      values<double>(session, "in")[i] = rank == 0 ? i + 1 : 0;
    for (int run = 0; run < 20; ++run) {
      runEntry(session);
      EXPECT_EQ(values<double>(session, "total")[0], 123456);
    }
    return Status::success();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Stream, CollectivesOnComputeKeepTheFifoOfTheirAxis) {
  // More commands than the FIFO holds, on both streams in turn.
  TestProgram p = base(2);
  p.tensor("x", schema::DType::f64, {2}, 0, 0);
  auto sum = [&](uint32_t stream, uint64_t offset) {
    return command(collective(schema::CollectiveKind::all_reduce, "dp", buffer(0, offset, 8), buffer(0, offset, 8),
                              schema::DType::f64),
                   "sum", stream);
  };
  p.entry("main",
          list(command(repeat(1000, list(sum(1, 0)))), sum(0, 8), command(repeat(10, list(sum(1, 0), sum(0, 8))))));
  auto world = makeWorld(line(2));
  Status status = withSessions(p, *world, [&](Session &session, int) {
    values<double>(session, "x")[1] = 1;
    runEntry(session);
    EXPECT_EQ(values<double>(session, "x")[1], 2048);
    return Status::success();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Stream, AFailedRankStopsTheOthers) {
  // Rank 1 finds bad offsets while the others wait for it in a collective.
  TestProgram p = base(3);
  p.tensor("offsets", schema::DType::i32, {2}, 0, 0);
  schema::GroupedGemmT grouped;
  grouped.groups = 1, grouped.max_rows = 4, grouped.n = 4, grouped.k = 4;
  grouped.lda = grouped.ldb = grouped.ldc = 4;
  grouped.a = buffer(0, 1024, 64);
  grouped.b = buffer(0, 1024, 64);
  grouped.c = buffer(0, 2048, 64);
  grouped.offsets = buffer(0, 0, 8);
  p.entry("main",
          list(command(std::move(grouped), "experts"),
               command(collective(schema::CollectiveKind::all_reduce, "dp", buffer(0, 1024, 64), buffer(0, 1024, 64)),
                       "sum", 1),
               command(recordEvent(0), "", 1), command(waitEvent(0)),
               command(fill(buffer(0, 3000, 8), 1), "never reached")),
          1);
  auto world = makeWorld(line(3));
  Status statuses[3] = {Status::success(), Status::success(), Status::success()};
  Status all = withSessions(p, *world, [&](Session &session, int rank) {
    values<int32_t>(session, "offsets")[1] = rank == 1 ? 5 : 4;
    statuses[rank] = session.run(*session.entry("main"));
    return statuses[rank];
  });
  std::string cause = "rank 1: entry 'main' command 0 'experts': offsets end at row 5 but max_rows is 4";
  EXPECT_EQ(all.message(), cause);
  EXPECT_EQ(statuses[1].message(), cause);
  EXPECT_EQ(statuses[0].message(), "rank 0: entry 'main' command 1 'sum': all_reduce 'sum' on axis dp: rank 0 stopped "
                                   "because rank 1 failed: " +
                                       cause);
  EXPECT_EQ(statuses[2].code(), ErrorCode::aborted);
}

TEST(Stream, TraceSeesBothStreams) {
  struct Sink : TraceSink {
    std::mutex mutex;
    std::set<std::string> seen;
    void command(const TraceEvent &event) override {
      std::lock_guard lock(mutex);
      seen.insert(fmt::format("{} {} {}", event.stream, event.kind, event.command));
    }
  };
  TestProgram p = base(2);
  p.entry("main",
          list(command(collective(schema::CollectiveKind::all_gather, "dp", buffer(0, 0, 8), buffer(0, 64, 16)),
                       "gather", 1),
               command(recordEvent(0), "", 1), command(waitEvent(0)), command(fill(buffer(0, 0, 8), 1), "clear")),
          1);
  auto world = makeWorld(line(2));
  Status status = withSessions(p, *world, [&](Session &session, int) {
    Sink sink;
    session.setTrace(&sink);
    runEntry(session);
    EXPECT_EQ(sink.seen, (std::set<std::string>{"1 collective gather", "0 wait Wait", "0 fill clear"}));
    return Status::success();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}
