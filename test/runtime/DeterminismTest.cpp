// The bit promises of runtime/README.md: every library path gives the same bits for the same inputs and number of
// threads, whatever the timing. Values are not round numbers, so that another order of a sum would show.
#include "runtime/cpu/Gemm.h"
#include "runtime/cpu/GroupedGemm.h"

#include <gtest/gtest.h>

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
  Machine(int threads, bool widenBf16) {
    useOneOpenMpThread();
    pool = *ThreadPool::create(threads);
    cache = *MatmulCache::create(threads, widenBf16);
  }
};

// Operand and result types, and how bf16 is multiplied: by oneDNN where it can, or widened in blocks (WidenedMatmul),
// as on CPUs for which it cannot.
struct Kind {
  DType in, out;
  bool widen;
};
constexpr Kind kinds[] = {{DType::f32, DType::f32, false},
                          {DType::bf16, DType::f32, false},
                          {DType::bf16, DType::bf16, false},
                          {DType::bf16, DType::f32, true},
                          {DType::bf16, DType::bf16, true}};

// run(machine, c) again and again, on two sets of primitives and threads; c starts as `before` every time.
template <class Desc, class Library, class F>
void expectSameBits(const Desc &desc, int threads, bool widen, const std::vector<std::byte> &before,
                    const std::string &where, F &&run) {
  std::vector<std::byte> first;
  for (int made = 0; made < 2; ++made) {
    Machine machine(threads, widen);
    auto gemm = Library::prepare(desc, *machine.cache);
    ASSERT_TRUE(gemm) << gemm.message();
    ASSERT_TRUE(machine.cache->finish().ok());
    for (int i = 0; i < repetitions; ++i) {
      std::vector<std::byte> c = before;
      Status status = run(*gemm, *machine.pool, c.data());
      ASSERT_TRUE(status.ok()) << status.message();
      if (first.empty())
        first = c;
      ASSERT_TRUE(c == first) << where << ", " << threads << " threads, repetition " << i;
    }
  }
  EXPECT_NE(first, before) << where << ": nothing was written";
}

TEST(Determinism, Gemm) {
  const int64_t shapes[][3] = {{257, 65, 70}, {48, 1000, 70}, {64, 128, 1024}, {1, 70, 33}};
  for (auto [in, out, widen] : kinds)
    for (auto [m, n, k] : shapes)
      for (int flags = 0; flags < 8; ++flags)
        for (int threads : {1, 2, 5}) {
          bool tA = flags & 1, tB = flags & 2, accumulate = flags & 4;
          if (accumulate && (threads == 1 || tA != tB))
            continue; // the sums are the same, only what they start from differs
          GemmDesc desc;
          desc.shape = {m, n, k, tA ? m : k, tB ? k : n, n, tA, tB, accumulate, in, in, out};
          auto a = randomValues(in, m * k, 1), b = randomValues(in, k * n, 2), c = randomValues(out, m * n, 5);
          expectSameBits<GemmDesc, Gemm>(
              desc, threads, widen, c,
              fmt::format("gemm {} x {} x {} accumulate {} {} -> {} widened {}", m, n, k, accumulate, toString(in),
                          toString(out), widen),
              [&](Gemm &gemm, ThreadPool &pool, std::byte *c) { return gemm.run(pool, a.data(), b.data(), c); });
        }
}

TEST(Determinism, GroupedGemm) {
  constexpr int64_t groups = 5, rows = 700, m = 72, n = 40, k = 24;
  const std::vector<int32_t> offsets = {0, 7, 7, 300, 513, 700};
  for (auto [in, out, widen] : kinds)
    for (bool byRows : {true, false})
      for (bool transposeB : {false, true})
        for (bool accumulate : {false, true})
          for (int threads : {1, 2, 5}) {
            if (!byRows && transposeB)
              continue; // a weight's B is rows
            GroupedGemmDesc desc = {byRows ? GroupedGemmDesc::Kind::rows : GroupedGemmDesc::Kind::weight,
                                    groups,
                                    rows,
                                    m,
                                    n,
                                    k,
                                    byRows ? k : m,
                                    byRows && transposeB ? k : n,
                                    n,
                                    transposeB,
                                    accumulate,
                                    in,
                                    in,
                                    out};
            auto a = randomValues(in, rows * (byRows ? k : m), 3);
            auto b = randomValues(in, byRows ? groups * k * n : rows * n, 4);
            auto c = randomValues(out, byRows ? rows * n : groups * m * n, 5);
            expectSameBits<GroupedGemmDesc, GroupedGemm>(desc, threads, widen, c,
                                                         fmt::format("{} accumulate {} {} -> {} widened {}",
                                                                     byRows ? "rows" : "weight", accumulate,
                                                                     toString(in), toString(out), widen),
                                                         [&](GroupedGemm &gemm, ThreadPool &pool, std::byte *c) {
                                                           return gemm.run(pool, a.data(), b.data(), c, offsets.data());
                                                         });
          }
}

} // namespace
} // namespace braid::runtime
