// The bit promises of runtime/README.md: every library path gives the same bits for the same inputs and number of
// threads, whatever the timing. Values are not round numbers, so that another order of a sum would show.
#include "runtime/cpu/Gemm.h"
#include "runtime/cpu/GroupedGemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

namespace braid::runtime {
namespace {

constexpr int repetitions = 6;

std::vector<std::byte> randomValues(DType type, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes(count * sizeOf(type));
  for (size_t i = 0; i < count; ++i) {
    auto bits = std::bit_cast<uint32_t>(normal(random));
    if (type == DType::f32)
      std::memcpy(&bytes[4 * i], &bits, 4);
    else if (uint16_t half = static_cast<uint16_t>(bits >> 16); true)
      std::memcpy(&bytes[2 * i], &half, 2);
  }
  return bytes;
}

struct Machine {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<MatmulCache> cache;
  explicit Machine(int threads) {
    useOneOpenMpThread();
    pool = *ThreadPool::create(threads);
    cache = *MatmulCache::create(threads);
  }
};

// run(machine, c) again and again, on two sets of primitives and threads.
template <class Desc, class Library, class F>
void expectSameBits(const Desc &desc, int threads, size_t resultBytes, const std::string &where, F &&run) {
  std::vector<std::byte> first;
  for (int made = 0; made < 2; ++made) {
    Machine machine(threads);
    auto gemm = Library::prepare(desc, *machine.cache);
    ASSERT_TRUE(gemm) << gemm.message();
    ASSERT_TRUE(machine.cache->finish().ok());
    for (int i = 0; i < repetitions; ++i) {
      std::vector<std::byte> c(resultBytes);
      Status status = run(*gemm, *machine.pool, c.data());
      ASSERT_TRUE(status.ok()) << status.message();
      if (first.empty())
        first = c;
      ASSERT_TRUE(c == first) << where << ", " << threads << " threads, repetition " << i;
    }
  }
  EXPECT_TRUE(std::any_of(first.begin(), first.end(), [](std::byte byte) { return byte != std::byte(); })) << where;
}

TEST(Determinism, Gemm) {
  const int64_t shapes[][3] = {{257, 65, 70}, {48, 1000, 70}, {64, 128, 1024}, {1, 70, 33}};
  for (DType type : {DType::f32, DType::bf16})
    for (auto [m, n, k] : shapes)
      for (int flags = 0; flags < 4; ++flags)
        for (int threads : {1, 2, 5}) {
          bool tA = flags & 1, tB = flags & 2;
          GemmDesc desc;
          desc.shape = {m, n, k, tA ? m : k, tB ? k : n, n, tA, tB, false, type, type, DType::f32};
          auto a = randomValues(type, m * k, 1), b = randomValues(type, k * n, 2);
          expectSameBits<GemmDesc, Gemm>(
              desc, threads, m * n * 4, fmt::format("gemm {} x {} x {}", m, n, k),
              [&](Gemm &gemm, ThreadPool &pool, std::byte *c) { return gemm.run(pool, a.data(), b.data(), c); });
        }
}

TEST(Determinism, GroupedGemm) {
  constexpr int64_t groups = 5, rows = 700, m = 72, n = 40, k = 24;
  const std::vector<int32_t> offsets = {0, 7, 7, 300, 513, 700};
  for (DType type : {DType::f32, DType::bf16})
    for (auto kind : {GroupedGemmDesc::Kind::rows, GroupedGemmDesc::Kind::weight})
      for (bool transposeB : {false, true})
        for (int threads : {1, 2, 5}) {
          bool byRows = kind == GroupedGemmDesc::Kind::rows;
          if (!byRows && transposeB)
            continue; // a weight's B is rows
          GroupedGemmDesc desc = {
              kind, groups,     rows,  m,    n,    k,         byRows ? k : m, byRows && transposeB ? k : n,
              n,    transposeB, false, type, type, DType::f32};
          auto a = randomValues(type, rows * (byRows ? k : m), 3);
          auto b = randomValues(type, byRows ? groups * k * n : rows * n, 4);
          size_t bytes = static_cast<size_t>(byRows ? rows * n : groups * m * n) * 4;
          expectSameBits<GroupedGemmDesc, GroupedGemm>(desc, threads, bytes, byRows ? "rows" : "weight",
                                                       [&](GroupedGemm &gemm, ThreadPool &pool, std::byte *c) {
                                                         return gemm.run(pool, a.data(), b.data(), c, offsets.data());
                                                       });
        }
}

} // namespace
} // namespace braid::runtime
