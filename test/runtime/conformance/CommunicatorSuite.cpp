// What every communicator must do, whatever its ranks are: each collective on each type, sizes from nothing to many
// messages, sums in rank order to the last bit, products of axes, several axes at once, and errors that name the
// collective, the rank and the peer and leave nobody waiting.
#include "test/runtime/conformance/CommunicatorBackend.h"

#include "runtime/Bf16.h"
#include "runtime/comm/LinkProbe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <thread>

using namespace braid::runtime;
using braid::runtime::test::communicatorBackend;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds patient(60000);

template <class T> const std::byte *in(const std::vector<T> &v) {
  return reinterpret_cast<const std::byte *>(v.data());
}
template <class T> std::byte *out(std::vector<T> &v) { return reinterpret_cast<std::byte *>(v.data()); }

MeshInfo line(int ranks) { return {{{"dp", static_cast<uint32_t>(ranks)}}, {}}; }

using OnAxis = std::function<Status(Communicator &)>;

// `body` on the dp of a mesh of each size that the backend has.
void onLines(const OnAxis &body) {
  for (int ranks : communicatorBackend().worldSizes()) {
    Status status = communicatorBackend().run(line(ranks), patient, [&](CommunicatorGroup &group) -> Status {
      EXPECT_EQ(group.worldSize(), ranks);
      BRAID_ASSIGN(Communicator * dp, group.axis("dp"));
      EXPECT_EQ(dp->size(), ranks);
      EXPECT_EQ(dp->rank(), group.rank());
      return body(*dp);
    });
    EXPECT_TRUE(status.ok()) << ranks << " ranks: " << status.message();
  }
}

// The data of a rank: numbers whose sum depends on the order they are added in.
template <class T> std::vector<T> dataOf(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(977 * rank + 1));
  std::vector<T> data(count);
  for (T &value : data) {
    double x = (random() / 2147483648.0 - 1) * (1 << random() % 20);
    if constexpr (std::is_same_v<T, uint16_t>)
      value = toBf16(static_cast<float>(x));
    else
      value = static_cast<T>(x * 1000);
  }
  return data;
}

// The sum over the ranks of elements [begin, begin + count) of dataOf(rank, total), in rank order.
template <class T> std::vector<T> sumOf(int ranks, size_t total, size_t begin, size_t count) {
  using Sum = std::conditional_t<std::is_same_v<T, uint16_t>, float, T>;
  auto widen = [](T value) -> Sum {
    if constexpr (std::is_same_v<T, uint16_t>)
      return fromBf16(value);
    else
      return value;
  };
  std::vector<Sum> sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<T> data = dataOf<T>(rank, total);
    for (size_t i = 0; i < count; ++i)
      sum[i] = rank == 0 ? widen(data[begin + i]) : sum[i] + widen(data[begin + i]);
  }
  std::vector<T> result(count);
  for (size_t i = 0; i < count; ++i)
    if constexpr (std::is_same_v<T, uint16_t>)
      result[i] = toBf16(sum[i]);
    else
      result[i] = sum[i];
  return result;
}

// `got` is elements [begin, begin + count) of the sum over the ranks of dataOf(rank, total): bit by bit, or, where the
// communicator adds in an order of its own, within what every addition may round.
template <class T> bool isSum(const std::vector<T> &got, int ranks, size_t total, size_t begin) {
  std::vector<T> expected = sumOf<T>(ranks, total, begin, got.size());
  if (std::is_integral_v<T> && !std::is_same_v<T, uint16_t>)
    return got == expected;
  if (communicatorBackend().sumsInRankOrder())
    return got == expected;
  auto wide = [](T value) -> double {
    if constexpr (std::is_same_v<T, uint16_t>)
      return fromBf16(value);
    else
      return static_cast<double>(value);
  };
  double unit = std::is_same_v<T, uint16_t> ? 0x1p-8 : static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
  std::vector<double> size(got.size());
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<T> data = dataOf<T>(rank, total);
    for (size_t i = 0; i < got.size(); ++i)
      size[i] += std::abs(wide(data[begin + i]));
  }
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(wide(got[i]) - wide(expected[i])) <= 2 * ranks * unit * size[i]))
      return false;
  return true;
}

// Sizes around what a message and a chunk hold, and none at all.
constexpr size_t counts[] = {0, 1, 3, 1000, 4099, 70001};

template <class T> Status checkSums(Communicator &dp, DType type) {
  for (size_t count : counts)
    for (bool inPlace : {false, true}) {
      auto ranks = static_cast<size_t>(dp.size()), self = static_cast<size_t>(dp.rank());
      std::vector<T> send = dataOf<T>(dp.rank(), count), recv(count);
      std::vector<T> &result = inPlace ? send : recv;
      BRAID_TRY(dp.allReduce(in(send), out(result), count * sizeof(T), type, "sum"));
      EXPECT_TRUE(isSum(result, dp.size(), count, 0)) << toString(type) << " x " << count;
      if (!inPlace) { // and again
        std::vector<T> again(count);
        BRAID_TRY(dp.allReduce(in(send), out(again), count * sizeof(T), type, "sum"));
        EXPECT_EQ(again, result) << toString(type) << " x " << count;
      }

      std::vector<T> blocks = dataOf<T>(dp.rank(), count * ranks), mine(count);
      std::byte *target = inPlace ? out(blocks) + self * count * sizeof(T) : out(mine);
      BRAID_TRY(dp.reduceScatter(in(blocks), target, count * sizeof(T), type, "scatter"));
      if (inPlace)
        std::copy_n(blocks.begin() + static_cast<ptrdiff_t>(self * count), count, mine.begin());
      EXPECT_TRUE(isSum(mine, dp.size(), count * ranks, self * count)) << toString(type) << " x " << count;
    }
  return Status::success();
}

// Numbers that a cluster file takes, on every rank; how large they are is the machine's affair.
TEST(Communicators, LinksHaveCosts) {
  onLines([](Communicator &dp) -> Status {
    auto costs = probeLink(dp, milliseconds(100));
    if (dp.size() == 1) {
      EXPECT_NE(costs.status().message().find("there is no link to probe"), std::string::npos);
      return Status::success();
    }
    BRAID_TRY(costs.status());
    EXPECT_GT(costs->bandwidth, 0);
    EXPECT_GT(costs->latency, 0);
    EXPECT_GT(costs->perMessage, 0);
    EXPECT_GE(costs->perByte, 0);
    for (double cost : {costs->bandwidth, costs->latency, costs->perMessage, costs->perByte})
      EXPECT_TRUE(std::isfinite(cost));
    return Status::success();
  });
}

} // namespace

TEST(Communicators, SumsOfEveryTypeInRankOrder) {
  onLines([](Communicator &dp) -> Status {
    BRAID_TRY(checkSums<float>(dp, DType::f32));
    BRAID_TRY(checkSums<uint16_t>(dp, DType::bf16));
    BRAID_TRY(checkSums<double>(dp, DType::f64));
    BRAID_TRY(checkSums<int32_t>(dp, DType::i32));
    return checkSums<int64_t>(dp, DType::i64);
  });
}

static bool canHave(int ranks) { return std::ranges::max(communicatorBackend().worldSizes()) >= ranks; }

TEST(Communicators, FloatSumsFollowTheRankOrder) {
  if (!communicatorBackend().sumsInRankOrder())
    GTEST_SKIP() << "sums have the order of the library";
  if (!canHave(3))
    GTEST_SKIP() << "two numbers have one order; this needs 3 ranks";
  onLines([](Communicator &dp) -> Status {
    if (dp.size() < 3)
      return Status::success();
    const float parts[] = {1e8f, -1e8f, 1.0f};
    std::vector<float> send = {dp.rank() < 3 ? parts[dp.rank()] : 0.0f}, recv(1);
    BRAID_TRY(dp.allReduce(in(send), out(recv), 4, DType::f32, "sum"));
    EXPECT_EQ(recv[0], 1.0f); // (1e8 - 1e8) + 1; any other order loses the 1
    return Status::success();
  });
}

TEST(Communicators, Bf16IsSummedInF32AndRoundedOnce) {
  if (!communicatorBackend().sumsInRankOrder())
    GTEST_SKIP() << "sums are rounded as the library does";
  if (!canHave(4))
    GTEST_SKIP() << "three halves are what shows; this needs 4 ranks";
  onLines([](Communicator &dp) -> Status {
    if (dp.size() != 4)
      return Status::success();
    // 256 + 3 * 0.5 in bf16 steps of 2: rounding after each addition would stay at 256.
    std::vector<uint16_t> send = {uint16_t(dp.rank() == 0 ? 0x4380 : 0x3f00)}, recv(1);
    BRAID_TRY(dp.allReduce(in(send), out(recv), 2, DType::bf16, "sum"));
    EXPECT_EQ(recv[0], 0x4381); // 258
    return Status::success();
  });
}

TEST(Communicators, GathersInRankOrder) {
  onLines([](Communicator &dp) -> Status {
    for (size_t count : counts)
      for (bool inPlace : {false, true}) {
        std::vector<int32_t> own = dataOf<int32_t>(dp.rank(), count), all(count * dp.size(), -1), expected;
        for (int rank = 0; rank < dp.size(); ++rank) {
          std::vector<int32_t> part = dataOf<int32_t>(rank, count);
          expected.insert(expected.end(), part.begin(), part.end());
        }
        std::byte *place = out(all) + static_cast<size_t>(dp.rank()) * count * 4;
        if (inPlace)
          std::copy(own.begin(), own.end(), all.begin() + static_cast<ptrdiff_t>(dp.rank() * count));
        BRAID_TRY(dp.allGather(inPlace ? place : in(own), out(all), count * 4, "gather"));
        EXPECT_EQ(all, expected) << count;
      }
    return Status::success();
  });
}

TEST(Communicators, ShiftsToBothSides) {
  onLines([](Communicator &dp) -> Status {
    for (size_t count : counts)
      for (bool cyclic : {false, true})
        for (bool reverse : {false, true})
          for (int distance : {1, 2, 3, 9}) {
            std::vector<float> mine = dataOf<float>(dp.rank(), count), got(count, 77.0f), zeros(count);
            BRAID_TRY(dp.shift({in(mine), out(got), count * 4, cyclic, reverse, distance}, "state"));
            int from = dp.rank() + (reverse ? distance : -distance);
            if (cyclic)
              from = (from + 9 * dp.size()) % dp.size();
            bool none = from < 0 || from >= dp.size();
            EXPECT_EQ(got, none ? zeros : dataOf<float>(from, count)) << count << " by " << distance;
          }
    return Status::success();
  });
}

TEST(Communicators, ExchangesBlocksAndCountedRows) {
  onLines([](Communicator &dp) -> Status {
    int me = dp.rank(), ranks = dp.size(), block = 2048; // values of a block
    std::vector<int32_t> send(static_cast<size_t>(ranks) * block), whole(send.size()), recv(send.size(), -1);
    for (int i = 0; i < ranks * block; ++i)
      send[i] = me * 100000 + i;
    Communicator::AllToAll args;
    args.send = in(send);
    args.recv = out(whole);
    args.blockBytes = static_cast<uint64_t>(block) * 4;
    BRAID_TRY(dp.allToAll(args, "blocks"));
    for (int i = 0; i < ranks * block; ++i)
      EXPECT_EQ(whole[i], i / block * 100000 + me * block + i % block);

    // Rank r sends 100 (r + p) rows of 2 values to peer p, counted in two parts; rank 0 sends nothing to itself.
    std::vector<int32_t> sendCounts, recvCounts;
    for (int peer = 0; peer < ranks; ++peer) {
      sendCounts.insert(sendCounts.end(), {100 * me, 100 * peer});
      recvCounts.insert(recvCounts.end(), {100 * peer, 100 * me});
    }
    args.recv = out(recv);
    args.rowBytes = 8;
    args.sendCounts = sendCounts.data();
    args.recvCounts = recvCounts.data();
    args.countsPerPeer = 2;
    BRAID_TRY(dp.allToAll(args, "rows"));
    for (int peer = 0; peer < ranks; ++peer)
      for (int i = 0; i < block; ++i)
        EXPECT_EQ(recv[peer * block + i], i < 200 * (me + peer) ? peer * 100000 + me * block + i : -1);
    return Status::success();
  });
}

TEST(Communicators, BadCountsAreNamed) {
  struct Case {
    int32_t sent, expected;
    uint64_t blockBytes;
    const char *sentence;
  };
  constexpr Case cases[] = {
      {3, 4, 64, "expects 4 rows of 4 bytes but 3 rows of 4 bytes come"},
      {3, 3, 8,
       "3 rows of 4 bytes exceed the block of 8 bytes, which has room for 2; valid: a program with more room for rows "
       "of experts (an --expert-room 1.50 times as large, or more, or none)"},
      {-2, -2, 64, "expects -2 rows of 4 bytes but -2 rows of 4 bytes come"},
  };
  for (int ranks : communicatorBackend().worldSizes())
    for (const Case &c : cases) {
      if (ranks < 2)
        continue;
      Status status = communicatorBackend().run(line(ranks), patient, [&](CommunicatorGroup &group) -> Status {
        BRAID_ASSIGN(Communicator * dp, group.axis("dp"));
        std::vector<int32_t> data(64), result(64), sent(ranks, 0), expected(ranks, 0);
        // Of the rows from rank 0 to rank 1 only.
        if (dp->rank() == 0)
          sent[1] = c.sent;
        if (dp->rank() == 1)
          expected[0] = c.expected;
        Status status = dp->allToAll({in(data), out(result), c.blockBytes, 4, sent.data(), expected.data(), 1}, "rows");
        if (dp->rank() == 1)
          EXPECT_EQ(status.message(),
                    std::string("all_to_all 'rows' on axis dp: rank 1 from peer rank 0: ") + c.sentence);
        return Status::success();
      });
      EXPECT_TRUE(status.ok()) << status.message();
    }
}

TEST(Communicators, AxesOfBothViewsAndTheirProducts) {
  MeshInfo mesh;
  mesh.dense = {{"dp", 2}, {"sp", 2}, {"tp", 1}};
  mesh.expert = {{"edp", 1}, {"ep", 4}};
  for (int ranks : communicatorBackend().worldSizes()) {
    if (ranks != 4)
      continue;
    Status status = communicatorBackend().run(mesh, patient, [&](CommunicatorGroup &group) -> Status {
      int rank = group.rank();
      const std::pair<const char *, std::vector<int32_t>> axes[] = {
          {"dp", {rank % 2, rank % 2 + 2}},
          {"sp", {rank / 2 * 2, rank / 2 * 2 + 1}},
          {"tp", {rank}},
          {"edp", {rank}},
          {"ep", {0, 1, 2, 3}},
          {"dp*sp", {0, 1, 2, 3}},
          {"sp*tp", {rank / 2 * 2, rank / 2 * 2 + 1}},
          {"edp*ep", {0, 1, 2, 3}},
      };
      for (const auto &[axis, members] : axes) {
        BRAID_ASSIGN(Communicator * communicator, group.axis(axis));
        EXPECT_EQ(communicator->axis(), axis);
        std::vector<int32_t> mine = {rank}, all(communicator->size());
        BRAID_TRY(communicator->allGather(in(mine), out(all), 4, axis));
        EXPECT_EQ(all, members) << axis;
        EXPECT_EQ(members[communicator->rank()], rank) << axis;
        BRAID_ASSIGN(Communicator * again, group.axis(axis));
        EXPECT_EQ(again, communicator);
      }
      EXPECT_EQ(group.axis("pp").message(), "the mesh has no axis 'pp'");
      EXPECT_EQ(group.axis("dp*ep").message(), "the mesh has no axis 'dp*ep'");
      EXPECT_EQ(group.world().size(), 4);
      return Status::success();
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

// Ranks of different stages are on different pairs: those that they are not on they are asked for all the same.
TEST(Communicators, PairsOfStages) {
  for (int ranks : communicatorBackend().worldSizes()) {
    if (ranks != 4)
      continue;
    MeshInfo mesh;
    mesh.dense = {{"pp", 4}};
    Status status = communicatorBackend().run(mesh, patient, [&](CommunicatorGroup &group) -> Status {
      int rank = group.rank();
      const std::vector<std::array<int, 2>> pairs = {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {2, 1}};
      std::vector<Communicator *> own;
      for (auto [first, second] : pairs) {
        BRAID_ASSIGN(Communicator * pair, group.axis(fmt::format("pp[{},{}]", first, second)));
        EXPECT_EQ(pair != nullptr, rank == first || rank == second);
        if (pair) {
          EXPECT_EQ(pair->size(), 2);
          EXPECT_EQ(pair->rank(), rank == second);
        }
        own.push_back(pair);
      }
      // Behind axes that this rank is not on: what it sends on this one is known as of this one.
      BRAID_ASSIGN(Communicator * all, group.axis("pp"));
      EXPECT_EQ(all->size(), 4);
      std::vector<int32_t> mine = {rank + 10}, got = {-1};
      for (size_t i = 0; i < pairs.size(); ++i) {
        Communicator *pair = own[i];
        if (!pair)
          continue;
        for (bool reverse : {false, true})
          for (bool cyclic : {false, true}) {
            BRAID_TRY(pair->shift({in(mine), out(got), 4, cyclic, reverse}, "shift"));
            bool receives = cyclic || pair->rank() == (reverse ? 0 : 1);
            EXPECT_EQ(got[0], receives ? pairs[i][static_cast<size_t>(1 - pair->rank())] + 10 : 0);
          }
        BRAID_TRY(pair->allReduce(in(mine), out(got), 4, DType::i32, "sum"));
        EXPECT_EQ(got[0], 20 + pairs[i][0] + pairs[i][1]);
      }
      BRAID_TRY(all->allReduce(in(mine), out(got), 4, DType::i32, "total"));
      EXPECT_EQ(got[0], 46);
      EXPECT_EQ(group.axis("pp[0,4]").message(), "the mesh has no axis 'pp[0,4]'");
      return Status::success();
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

// Each axis has a thread of its own, as in a session, and none waits for another's turn.
TEST(Communicators, SeveralAxesAtOnce) {
  MeshInfo mesh;
  mesh.dense = {{"dp", 2}, {"sp", 2}};
  mesh.expert = {{"ep", 4}};
  for (int ranks : communicatorBackend().worldSizes()) {
    if (ranks != 4)
      continue;
    Status status = communicatorBackend().run(mesh, patient, [&](CommunicatorGroup &group) -> Status {
      std::vector<Communicator *> axes;
      for (const char *name : {"dp", "sp", "dp*sp", "ep"}) {
        BRAID_ASSIGN(Communicator * axis, group.axis(name));
        axes.push_back(axis);
      }
      std::vector<Status> statuses(axes.size(), Status::success());
      auto work = [&](size_t i) -> Status {
        Communicator &axis = *axes[i];
        for (int round = 0; round < 40; ++round) {
          size_t count = static_cast<size_t>(round) * (i + 1) * 37;
          std::vector<int32_t> values(count, axis.rank() + round), sum(count);
          BRAID_TRY(axis.allReduce(in(values), out(sum), count * 4, DType::i32, "sum"));
          int32_t expected = axis.size() * round + axis.size() * (axis.size() - 1) / 2;
          EXPECT_EQ(std::count(sum.begin(), sum.end(), expected), static_cast<ptrdiff_t>(count));
          std::vector<int32_t> all(count * axis.size());
          BRAID_TRY(axis.allGather(in(values), out(all), count * 4, "gather"));
          for (int rank = 0; rank < axis.size() && count; ++rank)
            EXPECT_EQ(all[rank * count], rank + round);
        }
        return Status::success();
      };
      std::vector<std::thread> threads;
      // Some start late, others on another rank.
      for (size_t i = 0; i < axes.size(); ++i)
        threads.emplace_back([&, i] {
          std::this_thread::sleep_for(milliseconds((i * 7 + static_cast<size_t>(group.rank()) * 5) % 11));
          statuses[i] = work(i);
        });
      for (std::thread &thread : threads)
        thread.join();
      for (const Status &status : statuses)
        BRAID_TRY(status);
      return Status::success();
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Communicators, ManySmallOperationsOfAllKinds) {
  onLines([](Communicator &dp) -> Status {
    int64_t value = 1, ranks = dp.size();
    for (int i = 0; i < 200; ++i) {
      int64_t sum = 0;
      auto bytes = [](int64_t &v) { return reinterpret_cast<std::byte *>(&v); };
      BRAID_TRY(dp.allReduce(bytes(value), bytes(sum), 8, DType::i64, "count"));
      EXPECT_EQ(sum, value * ranks);
      value = sum % 1000003;
      int64_t mine = value + dp.rank(), before = -1;
      BRAID_TRY(dp.shift({bytes(mine), bytes(before), 8, i % 2 == 0, false}, "next"));
      int64_t previous = (dp.rank() + ranks - 1) % ranks;
      EXPECT_EQ(before, dp.rank() == 0 && i % 2 ? 0 : value + previous);
      std::vector<int64_t> all(static_cast<size_t>(ranks));
      BRAID_TRY(dp.allGather(bytes(mine), out(all), 8, "all"));
      EXPECT_EQ(all.back(), value + ranks - 1);
    }
    return Status::success();
  });
}

// What is counted is what the algorithm sends, on every backend; headers and packets apart.
TEST(Communicators, CountWhatTheySend) {
  onLines([](Communicator &dp) -> Status {
    int me = dp.rank(), ranks = dp.size();
    std::vector<float> data(8000), all(static_cast<size_t>(8000) * ranks);
    uint64_t before = dp.sentBytes();
    auto sent = [&] {
      uint64_t now = dp.sentBytes(), difference = now - before;
      before = now;
      return difference;
    };
    auto peers = static_cast<uint64_t>(ranks - 1);
    BRAID_TRY(dp.allReduce(in(data), out(data), 8192, DType::f32, "small"));
    EXPECT_EQ(sent(), peers * 8192);
    // 7001 numbers: stripes of 7001 / ranks, the last ones longer.
    auto own = static_cast<uint64_t>(7001 * (me + 1) / ranks - 7001 * me / ranks);
    BRAID_TRY(dp.allReduce(in(data), out(data), 28004, DType::f32, "large"));
    EXPECT_EQ(sent(), 28004 - 4 * own + peers * 4 * own);
    BRAID_TRY(dp.allGather(in(data), out(all), 28004, "gather"));
    EXPECT_EQ(sent(), peers * 28004);
    BRAID_TRY(dp.reduceScatter(in(all), out(data), 28004, DType::f32, "scatter"));
    EXPECT_EQ(sent(), peers * 28004);
    BRAID_TRY(dp.shift({in(data), out(all), 28004, false, false, 2}, "shift"));
    EXPECT_EQ(sent(), me + 2 < ranks ? 28004u : 0u);
    BRAID_TRY(dp.shift({in(data), out(all), 28004, true, true, 1}, "around"));
    EXPECT_EQ(sent(), ranks > 1 ? 28004u : 0u);
    Communicator::AllToAll args;
    args.send = in(all);
    std::vector<float> received(all.size());
    args.recv = out(received);
    args.blockBytes = 4000;
    BRAID_TRY(dp.allToAll(args, "blocks"));
    EXPECT_EQ(sent(), peers * 4000);
    std::vector<int32_t> sendCounts, recvCounts;
    uint64_t rows = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      sendCounts.push_back(10 * me + peer);
      recvCounts.push_back(10 * peer + me);
      rows += peer == me ? 0 : static_cast<uint64_t>(10 * me + peer);
    }
    args.rowBytes = 8;
    args.sendCounts = sendCounts.data();
    args.recvCounts = recvCounts.data();
    BRAID_TRY(dp.allToAll(args, "rows"));
    EXPECT_EQ(sent(), 8 * rows);
    return Status::success();
  });
}

// ---- Errors ---------------------------------------------------------------------------------------------------------

TEST(Communicators, RanksThatDisagreeAreNamed) {
  for (int ranks : communicatorBackend().worldSizes()) {
    if (ranks != 2)
      continue;
    Status status = communicatorBackend().run(line(ranks), patient, [&](CommunicatorGroup &group) -> Status {
      BRAID_ASSIGN(Communicator * dp, group.axis("dp"));
      std::vector<float> data(8), result(16);
      Status status = dp->rank() == 0 ? dp->allReduce(in(data), out(data), 32, DType::f32, "a")
                                      : dp->allGather(in(data), out(result), 16, "b");
      std::string sentence = "ranks disagree on axis dp: rank 0 calls all_reduce 'a' of 32 bytes f32, rank 1 calls "
                             "all_gather 'b' of 16 bytes u8";
      EXPECT_TRUE(status.message().ends_with(sentence)) << status.message();
      return Status::success();
    });
    EXPECT_TRUE(status.ok()) << status.message();
    // The same shape of another collective: one that stops and one that goes on, say.
    status = communicatorBackend().run(line(ranks), patient, [&](CommunicatorGroup &group) -> Status {
      BRAID_ASSIGN(Communicator * dp, group.axis("dp"));
      std::vector<float> data(8);
      Status status = dp->allReduce(in(data), out(data), 32, DType::f32, dp->rank() == 0 ? "stop" : "go");
      std::string sentence = "rank 0 calls all_reduce 'stop' of 32 bytes f32, rank 1 calls all_reduce 'go' of 32 bytes "
                             "f32";
      EXPECT_TRUE(status.message().ends_with(sentence)) << status.message();
      return Status::success();
    });
    EXPECT_TRUE(status.ok()) << status.message();
    status = communicatorBackend().run(line(ranks), patient, [&](CommunicatorGroup &group) -> Status {
      BRAID_ASSIGN(Communicator * dp, group.axis("dp"));
      std::vector<float> data(8), result(8);
      Status status = dp->shift({in(data), out(result), 32, true, dp->rank() == 1}, "s");
      std::string sentence = "rank 0 calls cyclic shift 's' of 32 bytes u8, rank 1 calls cyclic reverse shift 's' of "
                             "32 bytes u8";
      EXPECT_TRUE(status.message().ends_with(sentence)) << status.message();
      return Status::success();
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Communicators, ARankThatFailsEndsTheWaitingOfAll) {
  for (int ranks : communicatorBackend().worldSizes()) {
    if (ranks < 2)
      continue;
    Status status = communicatorBackend().run(line(ranks), patient, [&](CommunicatorGroup &group) -> Status {
      BRAID_ASSIGN(Communicator * dp, group.axis("dp"));
      std::vector<float> data(1000), all(1000 * ranks);
      if (group.rank() == ranks - 1) {
        std::this_thread::sleep_for(milliseconds(50));
        group.abort(Status::error("the disk is full"));
      }
      std::string last = std::to_string(ranks - 1), self = std::to_string(group.rank());
      Status first = dp->allGather(in(data), out(all), 4000, "weights");
      EXPECT_EQ(first.code(), ErrorCode::aborted);
      EXPECT_EQ(first.message(), "all_gather 'weights' on axis dp: rank " + self + " stopped because rank " + last +
                                     " failed: the disk is full");
      // And so does everything after it, on every axis.
      Status later = group.world().allReduce(in(data), out(data), 4, DType::f32, "end");
      EXPECT_EQ(later.code(), ErrorCode::aborted);
      EXPECT_EQ(later.message(), "all_reduce 'end' on axis world: rank " + self + " stopped because rank " + last +
                                     " failed: the disk is full");
      return Status::success();
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

// In every kind of collective. A shift waits for one rank only; the others learn of it in what they call next.
TEST(Communicators, ARankThatDoesNotComeIsNamed) {
  int ranks = communicatorBackend().worldSizes().back(); // once each: it takes its time
  if (ranks < 3)
    GTEST_SKIP() << "needs three ranks";
  std::vector<float> data(4), blocks(static_cast<size_t>(4 * ranks)), all(blocks.size());
  auto call = [&](CollectiveKind kind, Communicator &dp) {
    std::vector<float> send = blocks, recv = all;
    switch (kind) {
    case CollectiveKind::allReduce: return dp.allReduce(in(send), out(recv), 16, DType::f32, "lost");
    case CollectiveKind::allGather: return dp.allGather(in(send), out(recv), 16, "lost");
    case CollectiveKind::reduceScatter: return dp.reduceScatter(in(send), out(recv), 16, DType::f32, "lost");
    case CollectiveKind::shift: return dp.shift({in(send), out(recv), 16, true, false, 1}, "lost");
    case CollectiveKind::allToAll: break;
    }
    Communicator::AllToAll args;
    args.send = in(send);
    args.recv = out(recv);
    args.blockBytes = 16;
    return dp.allToAll(args, "lost");
  };
  struct Case {
    CollectiveKind kind;
    std::string name;
  };
  for (const Case &c : {Case{CollectiveKind::allReduce, "all_reduce"}, Case{CollectiveKind::allGather, "all_gather"},
                        Case{CollectiveKind::reduceScatter, "reduce_scatter"}, Case{CollectiveKind::shift, "shift"},
                        Case{CollectiveKind::allToAll, "all_to_all"}}) {
    milliseconds timeout(1500); // the ranks that come do so within it, also on a busy machine
    Status status = communicatorBackend().run(line(ranks), timeout, [&](CommunicatorGroup &group) -> Status {
      BRAID_ASSIGN(Communicator * dp, group.axis("dp"));
      int lost = ranks - 1;
      if (group.rank() == lost)
        std::this_thread::sleep_for(timeout + milliseconds(1000));
      Status status = call(c.kind, *dp);
      // Whoever waits longest names the lost rank; the others stop because of it, and the lost one is told at once.
      std::string self = std::to_string(group.rank()), name = std::to_string(lost),
                  waited = " waited 1500 ms for peer rank " + name + ", which did not come";
      bool waits = c.kind != CollectiveKind::shift || group.rank() == 0;
      if (!waits && status.ok() && group.rank() != lost) {
        std::this_thread::sleep_for(timeout + milliseconds(500));
        status = dp->allReduce(in(data), out(data), 16, DType::f32, "end");
        EXPECT_EQ(status.code(), ErrorCode::aborted);
        EXPECT_TRUE(status.message().starts_with("all_reduce 'end' on axis dp: rank " + self)) << status.message();
      } else {
        EXPECT_TRUE(status.message().starts_with(c.name + " 'lost' on axis dp: rank " + self)) << status.message();
      }
      EXPECT_TRUE(status.message().ends_with(waited)) << c.name << ": " << status.message();
      bool first = status.message() == c.name + " 'lost' on axis dp: rank " + self + waited;
      EXPECT_EQ(status.code(), first ? ErrorCode::deadlineExceeded : ErrorCode::aborted);
      if (group.rank() == lost)
        EXPECT_FALSE(first);
      return Status::success();
    });
    EXPECT_TRUE(status.ok()) << c.name << ": " << status.message();
  }
}

// On a mesh of two axes: its peer on one of them waits first, the others for it or on the other axis; all learn the same.
TEST(Communicators, ARankThatDoesNotComeEndsEveryAxis) {
  if (!std::ranges::count(communicatorBackend().worldSizes(), 4))
    GTEST_SKIP() << "needs four ranks";
  MeshInfo mesh{{{"dp", 2}, {"sp", 2}}, {}};
  milliseconds timeout(3000);
  Status status = communicatorBackend().run(mesh, timeout, [&](CommunicatorGroup &group) -> Status {
    BRAID_ASSIGN(Communicator * dp, group.axis("dp"));
    BRAID_ASSIGN(Communicator * sp, group.axis("sp"));
    std::vector<float> data(4), sum(4);
    BRAID_TRY(group.world().allReduce(nullptr, nullptr, 0, DType::i32, "begin"));
    if (group.rank() == 3)
      std::this_thread::sleep_for(timeout + milliseconds(1500));
    Status status = sp->allReduce(in(data), out(sum), 16, DType::f32, "states");
    const std::string cause =
        "all_reduce 'states' on axis sp: rank 2 waited 3000 ms for peer rank 3, which did not come";
    if (group.rank() < 2) {
      BRAID_TRY(status); // the other row of the mesh
      std::this_thread::sleep_for(timeout / 2);
      status = dp->allReduce(in(data), out(sum), 16, DType::f32, "gradients");
      EXPECT_TRUE(
          status.message().starts_with(fmt::format("all_reduce 'gradients' on axis dp: rank {}", group.rank())) &&
          status.message().ends_with(cause))
          << status.message();
    } else if (group.rank() == 2) {
      EXPECT_EQ(status.message(), cause);
    } else {
      EXPECT_TRUE(status.message().ends_with(cause)) << status.message();
    }
    EXPECT_EQ(status.code(), group.rank() == 2 ? ErrorCode::deadlineExceeded : ErrorCode::aborted);
    return Status::success();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}
