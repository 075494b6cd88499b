// The conformance suite on ranks whose data NCCL moves, and what NCCL is asked for. A stub stands in for its library and
// CUDA's driver (fixture/NcclStub.cpp); the ranks are threads.
#include "test/runtime/conformance/CommunicatorBackend.h"
#include "test/runtime/fixture/NcclStub.h"

#include "runtime/ThreadPool.h"
#include "runtime/comm/NcclWorld.h"
#include "runtime/comm/ThreadWorld.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <gtest/gtest.h>

namespace braid::runtime::test {
namespace {

using std::chrono::milliseconds;

NcclOptions onStub(milliseconds timeout) { return {timeout, 0, BRAID_TEST_NCCL}; }

class NcclBackend : public CommunicatorBackend {
public:
  int process() const override { return 0; }
  std::vector<int> worldSizes() const override { return {1, 2, 3, 4}; }
  bool sumsInRankOrder() const override { return false; }

  Status run(const MeshInfo &mesh, milliseconds timeout,
             const std::function<Status(CommunicatorGroup &)> &body) override {
    return run(mesh, timeout, timeout, body);
  }
  // `transfer`: how long one may take that all ranks have begun.
  static Status run(const MeshInfo &mesh, milliseconds timeout, milliseconds transfer,
                    const std::function<Status(CommunicatorGroup &)> &body) {
    BRAID_ASSIGN(std::unique_ptr<ThreadWorld> world, ThreadWorld::create(mesh, {.timeout = timeout}));
    return runOnRanks(world->size(), [&](int rank) -> Status {
      BRAID_ASSIGN(std::unique_ptr<CommunicatorGroup> group, connectNccl(mesh, world->group(rank), onStub(transfer)));
      return body(*group);
    });
  }
};

const std::byte *in(const std::vector<float> &v) { return reinterpret_cast<const std::byte *>(v.data()); }
std::byte *out(std::vector<float> &v) { return reinterpret_cast<std::byte *>(v.data()); }

Status onTwoRanks(milliseconds transfer, const std::function<Status(Communicator &)> &body) {
  MeshInfo mesh{{{"dp", 2}}, {}};
  return NcclBackend::run(mesh, std::chrono::seconds(60), transfer, [&](CommunicatorGroup &group) -> Status {
    BRAID_ASSIGN(Communicator * dp, group.axis("dp"));
    return body(*dp);
  });
}

// What two ranks ask NCCL for, sorted.
std::string callsOf(const std::function<Status(Communicator &)> &body) {
  ncclStubCalls();
  Status status = onTwoRanks(std::chrono::seconds(60), body);
  EXPECT_TRUE(status.ok()) << status.message();
  std::string calls = ncclStubCalls(), sorted;
  std::vector<std::string> lines;
  for (size_t at = 0, end; (end = calls.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(calls.substr(at, end - at));
  std::sort(lines.begin(), lines.end());
  for (const std::string &line : lines)
    sorted += line + "\n";
  return sorted;
}

std::string failureOf(const NcclOptions &options) {
  MeshInfo mesh{{{"dp", 1}}, {}};
  auto world = ThreadWorld::create(mesh, {});
  auto group = connectNccl(mesh, (*world)->group(0), options);
  return group ? "it connects" : group.message();
}

} // namespace

CommunicatorBackend &communicatorBackend() {
  static NcclBackend backend;
  return backend;
}

// Elements and type of sums (ncclFloat32 is 7), bytes (ncclUint8 is 1) of everything else.
TEST(Nccl, IsAskedForWhatTheCollectiveIs) {
  std::vector<float> ranks[2] = {std::vector<float>(8), std::vector<float>(8)}, results[2] = {ranks[0], ranks[1]};
  auto send = [&](Communicator &dp) { return in(ranks[dp.rank()]); };
  auto recv = [&](Communicator &dp) { return out(results[dp.rank()]); };
  EXPECT_EQ(callsOf([&](Communicator &dp) { return dp.allReduce(send(dp), recv(dp), 20, DType::f32, "sum"); }),
            "all_reduce 5 7 rank 0\nall_reduce 5 7 rank 1\n");
  EXPECT_EQ(callsOf([&](Communicator &dp) { return dp.reduceScatter(send(dp), recv(dp), 16, DType::f32, "part"); }),
            "reduce_scatter 4 7 rank 0\nreduce_scatter 4 7 rank 1\n");
  EXPECT_EQ(callsOf([&](Communicator &dp) { return dp.allGather(send(dp), recv(dp), 16, "all"); }),
            "all_gather 16 1 rank 0\nall_gather 16 1 rank 1\n");
}

TEST(Nccl, SendsToPeersOnly) {
  std::vector<float> ranks[2] = {std::vector<float>(8), std::vector<float>(8)}, results[2] = {ranks[0], ranks[1]};
  auto shifted = [&](bool cyclic, bool reverse) {
    return callsOf([&](Communicator &dp) {
      return dp.shift({in(ranks[dp.rank()]), out(results[dp.rank()]), 12, cyclic, reverse}, "state");
    });
  };
  EXPECT_EQ(shifted(false, false), "recv 12 1 rank 1 from 0\nsend 12 1 rank 0 to 1\n");
  EXPECT_EQ(shifted(false, true), "recv 12 1 rank 0 from 1\nsend 12 1 rank 1 to 0\n");
  EXPECT_EQ(shifted(true, false), "recv 12 1 rank 0 from 1\nrecv 12 1 rank 1 from 0\n"
                                  "send 12 1 rank 0 to 1\nsend 12 1 rank 1 to 0\n");
  // Rows that are there: three from rank 0 to rank 1, one back; what stays on a rank asks nobody.
  int32_t sent[2][2] = {{2, 3}, {1, 0}}, come[2][2] = {{2, 1}, {3, 0}};
  EXPECT_EQ(callsOf([&](Communicator &dp) {
              int me = dp.rank();
              return dp.allToAll({in(ranks[me]), out(results[me]), 16, 4, sent[me], come[me], 1}, "rows");
            }),
            "recv 12 1 rank 1 from 0\nrecv 4 1 rank 0 from 1\nsend 12 1 rank 0 to 1\nsend 4 1 rank 1 to 0\n");
}

// A transfer that never ends, or fails, is given up by its communicator's abort: destroying it would wait.
TEST(Nccl, TransfersThatFailEndTheRun) {
  std::vector<float> ranks[2] = {std::vector<float>(8), std::vector<float>(8)};
  auto failing = [&](StubFault fault, const std::string &sentence) {
    std::atomic<int> named = 0;
    std::barrier joined(2);
    Status status = onTwoRanks(milliseconds(2000), [&](Communicator &dp) -> Status {
      joined.arrive_and_wait();
      ncclStubFault(fault);
      std::vector<float> &data = ranks[dp.rank()];
      Status status = dp.allReduce(in(data), out(data), 32, DType::f32, "sum");
      EXPECT_TRUE(status.message().find(sentence) != std::string::npos) << status.message();
      EXPECT_TRUE(status.message().starts_with(fmt::format("all_reduce 'sum' on axis dp: rank {}", dp.rank())));
      // And whatever comes after.
      Status later = dp.allGather(in(data), out(data), 4, "later");
      named += later.code() == ErrorCode::aborted && later.message().find(sentence) != std::string::npos;
      return Status::success();
    });
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(named, 2);
    ncclStubFault(StubFault::none);
    EXPECT_EQ(ncclStubContexts(), 0);
  };
  failing(StubFault::hang, "waited 2000 ms for ranks 0, 1, all of which had come");
  failing(StubFault::error, "NCCL: error 6 (remote process exited)");
}

// One rank fails when all have met: it says why, and the other, whose transfer never ends, stops because of it and not when
// its time is over.
TEST(Nccl, ARankThatCannotBeginEndsTheWaitingOfAll) {
  std::vector<float> ranks[2] = {std::vector<float>(8), std::vector<float>(8)};
  std::barrier joined(2);
  const std::string cause = "all_reduce 'sum' on axis dp: rank 1: ncclAllReduce: error 2 (unhandled system error)";
  Status first = onTwoRanks(std::chrono::minutes(10), [&](Communicator &dp) -> Status {
    joined.arrive_and_wait();
    ncclStubFault(StubFault::oneRank);
    std::vector<float> &data = ranks[dp.rank()];
    Status status = dp.allReduce(in(data), out(data), 32, DType::f32, "sum");
    if (dp.rank() == 0) {
      EXPECT_EQ(status.code(), ErrorCode::aborted);
      EXPECT_EQ(status.message(), "all_reduce 'sum' on axis dp: rank 0 stopped because rank 1 failed: " + cause);
    }
    return status;
  });
  EXPECT_EQ(first.message(), cause);
  ncclStubFault(StubFault::none);
  EXPECT_EQ(ncclStubContexts(), 0);
}

TEST(Nccl, WhatIsNotThereIsNamed) {
  NcclOptions stub = onStub(std::chrono::seconds(1)), other = stub;
  other.library = "libnccl-of-nobody.so.2";
  EXPECT_TRUE(failureOf(other).starts_with("GPUs as ranks need libnccl-of-nobody.so.2, which cannot be opened: "))
      << failureOf(other);
  other.library = "libc.so.6";
  EXPECT_EQ(failureOf(other), "GPUs as ranks need ncclGetUniqueId, which libc.so.6 lacks");
  other = stub;
  other.device = 3;
  EXPECT_EQ(failureOf(other), "rank 0 has GPU 3, but this machine has 1 (the first is 0)");
  EXPECT_EQ(failureOf(stub), "it connects");
  EXPECT_EQ(ncclStubContexts(), 0);
}

} // namespace braid::runtime::test
