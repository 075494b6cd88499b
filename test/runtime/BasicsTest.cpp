#include "runtime/ContentHash.h"
#include "runtime/Program.h"
#include "runtime/Sha256.h"
#include "runtime/ThreadPool.h"
#include "runtime/cpu/CpuFeatures.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <numeric>
#include <thread>
#include <unistd.h>

using namespace braid::runtime;

TEST(Status, CarriesCategoryAndContext) {
  Status status = Status::error(ErrorCode::notFound, "no tensor '{}'", "q").withContext("p.braid");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), ErrorCode::notFound);
  EXPECT_EQ(status.message(), "p.braid: no tensor 'q'");
  EXPECT_TRUE(Status::success().withContext("x").ok());
}

static Expected<std::unique_ptr<int>> positive(int value) {
  if (value <= 0)
    return Status::error("{} is not positive", value);
  return std::make_unique<int>(value);
}

static Expected<int> twice(int value) {
  BRAID_ASSIGN(auto pointer, positive(value));
  return *pointer * 2;
}

TEST(Expected, PassesValuesAndErrorsOn) {
  EXPECT_EQ(*twice(4), 8);
  EXPECT_EQ(twice(-1).message(), "-1 is not positive");
}

TEST(Sha256, KnownDigests) {
  auto digest = [](const std::string &text) { return sha256(std::as_bytes(std::span(text))); };
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameByTheProcessorsInstructions) {
  std::string text;
  for (int length = 0; length < 600; ++length, text += static_cast<char>(length * 37)) {
    auto bytes = std::as_bytes(std::span(text));
    EXPECT_EQ(sha256(bytes), sha256(bytes, /*portable=*/true)) << length;
  }
}

TEST(ContentHash, KnownHashes) {
  auto hash = [](const std::string &text) { return contentHash(std::as_bytes(std::span(text))).hex(); };
  EXPECT_EQ(hash(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash("abc"), "06b05ab6733a618578af5f94892f3950");
  // In pieces of any size it is the same.
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += static_cast<char>(i * 7);
  for (size_t piece : {1, 63, 1024, 5000}) {
    ContentHasher hasher;
    for (size_t at = 0; at < text.size(); at += piece)
      hasher.add(std::as_bytes(std::span(text).subspan(at, std::min(piece, text.size() - at))));
    EXPECT_EQ(hasher.hash().hex(), hash(text)) << piece;
  }
}

TEST(DType, SizesAndNamesOfAll) {
  const size_t sizes[] = {4, 2, 8, 4, 8, 1};
  const char *names[] = {"f32", "bf16", "f64", "i32", "i64", "u8"};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(sizeOf(static_cast<DType>(i)), sizes[i]);
    EXPECT_EQ(toString(static_cast<DType>(i)), names[i]);
  }
}

TEST(Mesh, MembersAndCoordinatesOfBothViews) {
  MeshInfo mesh;
  mesh.dense = {{"dp", 2}, {"sp", 2}, {"tp", 2}};
  mesh.expert = {{"edp", 2}, {"ep", 4}};
  EXPECT_EQ(mesh.worldSize(), 8u);
  EXPECT_EQ(*mesh.size("ep"), 4u);
  EXPECT_EQ(*mesh.size("dp*sp"), 4u);
  EXPECT_FALSE(mesh.size("dp*ep"));
  EXPECT_FALSE(mesh.size("pp"));
  EXPECT_EQ(*mesh.members(5, "tp"), (std::vector<uint32_t>{4, 5}));
  EXPECT_EQ(*mesh.members(5, "sp"), (std::vector<uint32_t>{5, 7}));
  EXPECT_EQ(*mesh.members(5, "dp"), (std::vector<uint32_t>{1, 5}));
  EXPECT_EQ(*mesh.members(5, "ep"), (std::vector<uint32_t>{4, 5, 6, 7}));
  EXPECT_EQ(*mesh.members(5, "dp*sp"), (std::vector<uint32_t>{1, 3, 5, 7}));
  EXPECT_EQ(*mesh.coordinate(5, "dp"), 1u);
  EXPECT_EQ(*mesh.coordinate(5, "sp"), 0u);
  EXPECT_EQ(*mesh.coordinate(5, "dp*sp"), 2u);
  for (uint32_t rank = 0; rank < 8; ++rank)
    for (const char *axis : {"dp", "sp", "tp", "edp", "ep", "dp*sp", "dp*tp"})
      EXPECT_EQ((*mesh.members(rank, axis))[*mesh.coordinate(rank, axis)], rank) << axis;
}

TEST(Mesh, PairsOfPipelineStages) {
  MeshInfo mesh;
  mesh.dense = {{"pp", 3}, {"dp", 2}, {"tp", 2}};
  mesh.expert = {{"pp", 3}, {"ep", 4}};
  EXPECT_EQ(*mesh.size("pp[0,1]"), 2u);
  EXPECT_EQ(*mesh.members(2, "pp[0,1]"), (std::vector<uint32_t>{2, 6}));
  EXPECT_EQ(*mesh.members(6, "pp[0,1]"), (std::vector<uint32_t>{2, 6}));
  EXPECT_EQ(*mesh.members(11, "pp[2,0]"), (std::vector<uint32_t>{11, 3}));
  EXPECT_EQ(*mesh.coordinate(11, "pp[2,0]"), 0u);
  EXPECT_EQ(*mesh.coordinate(3, "pp[2,0]"), 1u);
  EXPECT_FALSE(mesh.members(4, "pp[2,0]"));
  EXPECT_FALSE(mesh.coordinate(4, "pp[2,0]"));
  // One spelling, of two stages that are there.
  for (const char *axis :
       {"pp[0,3]", "pp[1,1]", "pp[0]", "pp[0,1", "pp[00,1]", "pp[0, 1]", "pp[0,1]x", "pp[0,1,2]", "pp[-1,0]", "dp[0,1]",
        "pp*dp[0,1]", "pp[]", "pp[,]", "pp[", "[0,1]", "pp[0,1]*dp", "pp[4294967296,1]"})
    for (uint32_t rank : {0u, 11u}) {
      EXPECT_FALSE(mesh.size(axis)) << axis;
      EXPECT_FALSE(mesh.coordinate(rank, axis)) << axis;
      EXPECT_FALSE(mesh.members(rank, axis)) << axis;
    }
}

TEST(CpuFeatures, NamesMissingAndUnknownOnes) {
  EXPECT_TRUE(checkCpuFeatures({}).ok());
  std::vector<std::string> names = {"quantum"};
  EXPECT_NE(checkCpuFeatures(names).message().find("does not know: quantum"), std::string::npos);
#if defined(__x86_64__)
  EXPECT_TRUE(hasCpuFeature("sse2"));
#endif
}

TEST(ThreadPool, CoversEveryRangeOnceAndCutsTheSame) {
  for (int threads : {1, 2, 3, 5}) {
    auto pool = ThreadPool::create(threads);
    ASSERT_TRUE(pool) << pool.message();
    for (int64_t count : {0, 1, 2, 7, 64, 1000})
      for (int64_t grain : {1, 3, 64}) {
        std::vector<int> owner(count, -1), again(count, -1), times(count, 0);
        for (auto *owners : {&owner, &again})
          (*pool)->parallelFor(0, count, grain, [&](int64_t begin, int64_t end, int thread) {
            EXPECT_EQ(begin % grain, 0);
            for (int64_t i = begin; i < end; ++i) {
              (*owners)[i] = thread;
              ++times[i];
            }
          });
        EXPECT_EQ(owner, again);
        EXPECT_EQ(times, std::vector<int>(count, 2));
      }
  }
}

TEST(ThreadPool, ManySmallLoops) {
  auto pool = ThreadPool::create(3);
  ASSERT_TRUE(pool);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 3000; ++round)
    (*pool)->parallelFor(0, 9, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
  EXPECT_EQ(sum, 9 * 3000);
}

namespace {

std::atomic<int> held{0};
std::atomic<bool> release{false};

void holdThread(int) {
  held = 1;
  while (!release)
    usleep(100);
  held = 2;
}

// Of a thread of this process: 'S' sleeps, 'R' runs.
char stateOf(pid_t thread) {
  std::ifstream stat(fmt::format("/proc/self/task/{}/stat", thread));
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  size_t name = text.rfind(')'); // of the command, which may hold anything
  return name + 2 < text.size() ? text[name + 2] : '?';
}

} // namespace

TEST(ThreadPool, AThreadThatDoesNotComeDelaysNobody) {
  auto pool = ThreadPool::create(2);
  ASSERT_TRUE(pool) << pool.message();
  pthread_t caller = pthread_self(), worker = caller;
  std::atomic<pid_t> workerId{0};
  auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  // Both parts wait for each other, so the second thread has one.
  std::atomic<int> begun{0};
  (*pool)->parallelFor(0, 2, 1, [&](int64_t, int64_t, int) {
    if (!pthread_equal(pthread_self(), caller)) {
      worker = pthread_self();
      workerId = gettid();
    }
    ++begun;
    while (begun < 2 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
  });
  ASSERT_EQ(begun, 2);

  // It is held where it sleeps, so not with the pool's mutex.
  while (stateOf(workerId) != 'S' && std::chrono::steady_clock::now() < deadline)
    usleep(1000);
  struct sigaction action = {}, before = {};
  action.sa_handler = holdThread;
  ASSERT_EQ(sigaction(SIGUSR2, &action, &before), 0);
  ASSERT_EQ(pthread_kill(worker, SIGUSR2), 0);
  while (held == 0 && std::chrono::steady_clock::now() < deadline)
    usleep(100);
  ASSERT_EQ(held, 1);
  std::vector<int> times(100);
  for (int round = 0; round < 3; ++round)
    (*pool)->parallelFor(0, 100, 1, [&](int64_t begin, int64_t end, int) {
      EXPECT_TRUE(pthread_equal(pthread_self(), caller));
      for (int64_t i = begin; i < end; ++i)
        ++times[i];
    });
  EXPECT_EQ(times, std::vector<int>(100, 3));
  release = true;
  while (held != 2 && std::chrono::steady_clock::now() < deadline)
    usleep(100);
  sigaction(SIGUSR2, &before, nullptr);
}

TEST(RunOnRanks, ReportsTheCauseNotTheEcho) {
  Status status = runOnRanks(3, [](int rank) {
    if (rank == 2)
      return Status::error(ErrorCode::overflow, "rank 2 overflowed");
    return Status::error(ErrorCode::aborted, "rank {} stopped because of rank 2", rank);
  });
  EXPECT_EQ(status.message(), "rank 2 overflowed");
  EXPECT_TRUE(runOnRanks(4, [](int) { return Status::success(); }).ok());
  EXPECT_FALSE(runOnRanks(0, [](int) { return Status::success(); }).ok());
}
