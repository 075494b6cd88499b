// Ranks as threads: collectives, streams and events, and what happens when a rank fails, disagrees or does not come.
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

template <class T> const std::byte *in(const std::vector<T> &v) {
  return reinterpret_cast<const std::byte *>(v.data());
}
template <class T> std::byte *out(std::vector<T> &v) { return reinterpret_cast<std::byte *>(v.data()); }

// Runs `body(communicator of dp)` on every rank; fails the test on an error.
void onRanks(int ranks, const std::function<Status(Communicator &)> &body) {
  auto world = makeWorld(line(static_cast<uint32_t>(ranks)));
  Status status = runOnRanks(ranks, [&](int rank) -> Status {
    BRAID_ASSIGN(Communicator * dp, world->group(rank).axis("dp"));
    return body(*dp);
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

template <class T> T element(int rank, size_t i) { return static_cast<T>((rank + 1) * 3 + static_cast<int>(i % 50)); }

template <class T> void checkSums(DType type) {
  for (int ranks : {1, 2, 3, 4})
    for (size_t count : {0, 1, 2, 5, 1000, 4099})
      onRanks(ranks, [&](Communicator &dp) {
        for (bool inPlace : {false, true}) {
          std::vector<T> send(count), recv(count);
          for (size_t i = 0; i < count; ++i)
            send[i] = element<T>(dp.rank(), i);
          std::vector<T> &result = inPlace ? send : recv;
          BRAID_TRY(dp.allReduce(in(send), out(result), count * sizeof(T), type, "sum"));
          for (size_t i = 0; i < count; ++i) {
            T expected = 0;
            for (int rank = 0; rank < ranks; ++rank)
              expected += element<T>(rank, i);
            EXPECT_EQ(result[i], expected);
          }
        }
        std::vector<T> blocks(count * ranks), mine(count);
        for (size_t i = 0; i < blocks.size(); ++i)
          blocks[i] = element<T>(dp.rank(), i);
        BRAID_TRY(dp.reduceScatter(in(blocks), out(mine), count * sizeof(T), type, "scatter"));
        for (size_t i = 0; i < count; ++i) {
          T expected = 0;
          for (int rank = 0; rank < ranks; ++rank)
            expected += element<T>(rank, dp.rank() * count + i);
          EXPECT_EQ(mine[i], expected);
        }
        return Status::success();
      });
}

} // namespace

TEST(Collective, SumsOfEveryType) {
  checkSums<float>(DType::f32);
  checkSums<double>(DType::f64);
  checkSums<int32_t>(DType::i32);
  checkSums<int64_t>(DType::i64);
}

TEST(Collective, Bf16IsSummedInF32AndRoundedOnce) {
  onRanks(4, [](Communicator &dp) {
    // 256 + 3 * 0.5 in bf16 steps of 2: rounding after each addition would stay at 256.
    std::vector<uint16_t> send = {uint16_t(dp.rank() == 0 ? 0x4380 : 0x3f00)}, recv(1);
    BRAID_TRY(dp.allReduce(in(send), out(recv), 2, DType::bf16, "sum"));
    EXPECT_EQ(recv[0], 0x4381); // 258
    return Status::success();
  });
}

TEST(Collective, FloatSumsFollowTheRankOrder) {
  onRanks(3, [](Communicator &dp) {
    const float parts[] = {1e8f, -1e8f, 1.0f};
    std::vector<float> send = {parts[dp.rank()]}, recv(1);
    BRAID_TRY(dp.allReduce(in(send), out(recv), 4, DType::f32, "sum"));
    EXPECT_EQ(recv[0], 1.0f); // (1e8 - 1e8) + 1; any other order loses the 1
    return Status::success();
  });
}

TEST(Collective, GatherAlsoInPlace) {
  onRanks(3, [](Communicator &dp) {
    for (bool inPlace : {false, true}) {
      std::vector<int32_t> own = {dp.rank() * 10, dp.rank() * 10 + 1}, all(6, -1);
      if (inPlace)
        std::copy(own.begin(), own.end(), all.begin() + dp.rank() * 2);
      BRAID_TRY(dp.allGather(inPlace ? in(all) + dp.rank() * 8 : in(own), out(all), 8, "gather"));
      EXPECT_EQ(all, (std::vector<int32_t>{0, 1, 10, 11, 20, 21}));
    }
    return Status::success();
  });
}

TEST(Collective, ReduceScatterInPlace) {
  onRanks(2, [](Communicator &dp) {
    std::vector<float> blocks = {1, 2, 3, 4};
    BRAID_TRY(dp.reduceScatter(in(blocks), out(blocks) + dp.rank() * 8, 8, DType::f32, "scatter"));
    EXPECT_EQ(blocks[dp.rank() * 2], dp.rank() ? 6 : 2);
    EXPECT_EQ(blocks[dp.rank() * 2 + 1], dp.rank() ? 8 : 4);
    return Status::success();
  });
}

TEST(Collective, ShiftToBothSides) {
  for (int ranks : {1, 2, 4})
    onRanks(ranks, [&](Communicator &dp) {
      for (bool cyclic : {false, true})
        for (bool reverse : {false, true}) {
          std::vector<int32_t> mine = {dp.rank() + 1, -dp.rank()}, got = {77, 77};
          BRAID_TRY(dp.shift({in(mine), out(got), 8, cyclic, reverse}, "state"));
          int from = dp.rank() + (reverse ? 1 : -1);
          if (cyclic)
            from = (from + ranks) % ranks;
          bool none = from < 0 || from >= ranks;
          EXPECT_EQ(got, none ? (std::vector<int32_t>{0, 0}) : (std::vector<int32_t>{from + 1, -from}));
          BRAID_TRY(dp.shift({nullptr, nullptr, 0, cyclic, reverse}, "nothing"));
        }
      return Status::success();
    });
}

TEST(Collective, AllToAllWholeBlocksAndCountedRows) {
  onRanks(3, [](Communicator &dp) {
    int me = dp.rank();
    // Blocks of 4 rows of 2 values; rank r sends r + p rows to peer p, counted in two parts.
    std::vector<int32_t> send(24), recv(24, -1), whole(24);
    for (int i = 0; i < 24; ++i)
      send[i] = me * 100 + i;
    Communicator::AllToAll args;
    args.send = in(send);
    args.recv = out(whole);
    args.blockBytes = 32;
    BRAID_TRY(dp.allToAll(args, "blocks"));
    for (int i = 0; i < 24; ++i)
      EXPECT_EQ(whole[i], i / 8 * 100 + me * 8 + i % 8);

    std::vector<int32_t> sendCounts, recvCounts;
    for (int peer = 0; peer < 3; ++peer) {
      sendCounts.insert(sendCounts.end(), {me, peer});
      recvCounts.insert(recvCounts.end(), {peer, me});
    }
    args.recv = out(recv);
    args.rowBytes = 8;
    args.sendCounts = sendCounts.data();
    args.recvCounts = recvCounts.data();
    args.countsPerPeer = 2;
    BRAID_TRY(dp.allToAll(args, "rows"));
    for (int peer = 0; peer < 3; ++peer)
      for (int i = 0; i < 8; ++i)
        EXPECT_EQ(recv[peer * 8 + i], i < 2 * (me + peer) ? peer * 100 + me * 8 + i : -1);
    return Status::success();
  });
}

TEST(Collective, AllToAllNamesBothCounts) {
  auto world = makeWorld(line(2));
  auto run = [&](int32_t sent, int32_t expected, uint64_t blockBytes) {
    Status statuses[2] = {Status::success(), Status::success()};
    EXPECT_TRUE(runOnRanks(2, [&](int rank) -> Status {
                  BRAID_ASSIGN(Communicator * dp, world->group(rank).axis("dp"));
                  std::vector<int32_t> data(64), result(64);
                  int32_t sendCounts[] = {sent, sent}, recvCounts[] = {sent, sent};
                  if (rank == 1)
                    recvCounts[0] = expected;
                  statuses[rank] =
                      dp->allToAll({in(data), out(result), blockBytes, 4, sendCounts, recvCounts, 1}, "dispatch");
                  return Status::success();
                }).ok());
    return statuses[1].message();
  };
  EXPECT_EQ(run(3, 4, 64), "all_to_all 'dispatch' on axis dp: rank 1 from peer rank 0: expects 4 rows of 4 bytes but 3 "
                           "rows of 4 bytes come");
  EXPECT_EQ(run(3, 3, 8),
            "all_to_all 'dispatch' on axis dp: rank 1 from peer rank 0: 3 rows of 4 bytes exceed the block "
            "of 8 bytes");
  EXPECT_EQ(run(-2, -2, 64),
            "all_to_all 'dispatch' on axis dp: rank 1 from peer rank 0: expects -2 rows of 4 bytes but "
            "-2 rows of 4 bytes come");
  EXPECT_EQ(run(2, 2, 64), "");
}

TEST(Collective, AxesOfBothViews) {
  MeshInfo mesh;
  mesh.dense = {{"dp", 2}, {"sp", 2}};
  mesh.expert = {{"edp", 1}, {"ep", 4}};
  auto world = makeWorld(mesh);
  Status status = runOnRanks(4, [&](int rank) -> Status {
    const std::pair<const char *, std::vector<int32_t>> axes[] = {
        {"dp", {rank % 2, rank % 2 + 2}},
        {"sp", {rank / 2 * 2, rank / 2 * 2 + 1}},
        {"edp", {rank}},
        {"ep", {0, 1, 2, 3}},
        {"dp*sp", {0, 1, 2, 3}},
    };
    for (const auto &[axis, members] : axes) {
      BRAID_ASSIGN(Communicator * communicator, world->group(rank).axis(axis));
      EXPECT_EQ(communicator->axis(), axis);
      std::vector<int32_t> mine = {rank}, all(communicator->size());
      BRAID_TRY(communicator->allGather(in(mine), out(all), 4, axis));
      EXPECT_EQ(all, members) << axis;
    }
    EXPECT_EQ(world->group(rank).axis("tp").message(), "the mesh has no axis 'tp'");
    EXPECT_EQ(world->group(rank).world().size(), 4);
    return Status::success();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Collective, AMissingRankIsNamedAndNobodyKeepsWaiting) {
  auto world = makeWorld(line(3), milliseconds(2000)); // both ranks that come do so within it, also on a busy machine
  std::vector<float> data(3 * 4);
  Status statuses[3] = {Status::success(), Status::success(), Status::success()};
  ASSERT_TRUE(runOnRanks(3, [&](int rank) -> Status {
                if (rank == 2)
                  return Status::success(); // lost
                BRAID_ASSIGN(Communicator * dp, world->group(rank).axis("dp"));
                statuses[rank] =
                    dp->allReduce(in(data) + rank * 16, out(data) + rank * 16, 16, DType::f32, "gradients");
                return Status::success();
              }).ok());
  // Whoever waits longest names the missing rank; the other one stops because of it.
  int first = statuses[0].code() == ErrorCode::deadlineExceeded ? 0 : 1;
  auto name = [](int rank) { return "rank " + std::to_string(rank); };
  EXPECT_EQ(statuses[first].code(), ErrorCode::deadlineExceeded);
  EXPECT_EQ(statuses[first].message(), "all_reduce 'gradients' on axis dp: " + name(first) +
                                           " waited 2000 ms for peer rank 2, which did not come");
  EXPECT_EQ(statuses[1 - first].code(), ErrorCode::aborted);
  EXPECT_EQ(statuses[1 - first].message(),
            "all_reduce 'gradients' on axis dp: " + name(1 - first) + " stopped because " + statuses[first].message());
  // The lost rank comes back: it is told at once.
  auto dp = *world->group(2).axis("dp");
  EXPECT_EQ(dp->allReduce(in(data), out(data), 16, DType::f32, "late").code(), ErrorCode::aborted);
}

TEST(Collective, DisagreeingRanksAreNamed) {
  auto world = makeWorld(line(2));
  Status status = runOnRanks(2, [&](int rank) -> Status {
    BRAID_ASSIGN(Communicator * dp, world->group(rank).axis("dp"));
    std::vector<float> data(8), result(16);
    if (rank == 0)
      return dp->allReduce(in(data), out(data), 32, DType::f32, "a");
    return dp->allGather(in(data), out(result), 16, "b");
  });
  EXPECT_EQ(status.message(), "ranks disagree on axis dp: rank 0 calls all_reduce 'a' of 32 bytes f32, rank 1 calls "
                              "all_gather 'b' of 16 bytes u8");
}

TEST(Collective, ManySmallOperations) {
  onRanks(4, [](Communicator &dp) {
    int64_t value = 1;
    for (int i = 0; i < 300; ++i) {
      int64_t sum = 0;
      BRAID_TRY(dp.allReduce(reinterpret_cast<std::byte *>(&value), reinterpret_cast<std::byte *>(&sum), 8, DType::i64,
                             "count"));
      EXPECT_EQ(sum, value * 4);
      value = sum % 1000003;
    }
    return Status::success();
  });
}

namespace {

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
