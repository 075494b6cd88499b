// Gemm and GroupedGemm against loops in f64.
#include "runtime/cpu/Gemm.h"
#include "runtime/cpu/GroupedGemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace braid::runtime;

namespace {

// A matrix in its stored type with canaries between rows, readable as f32.
struct Storage {
  DType type;
  std::vector<std::byte> bytes;

  Storage(DType type, size_t elements) : type(type), bytes(elements * sizeOf(type)) {}
  size_t size() const { return bytes.size() / sizeOf(type); }
  float get(size_t i) const {
    if (type == DType::f32) {
      float value;
      std::memcpy(&value, &bytes[i * 4], 4);
      return value;
    }
    uint16_t half;
    std::memcpy(&half, &bytes[i * 2], 2);
    uint32_t bits = uint32_t(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  // bf16 by truncation: test values are short enough
  void set(size_t i, float value) {
    if (type == DType::f32) {
      std::memcpy(&bytes[i * 4], &value, 4);
      return;
    }
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    auto half = static_cast<uint16_t>(bits >> 16);
    std::memcpy(&bytes[i * 2], &half, 2);
  }
  void randomize(std::mt19937 &random) {
    // Multiples of 1/8 in [-1, 1]: exact in bf16, and sums of products of up to 2^15 terms exact in f32.
    for (size_t i = 0; i < size(); ++i)
      set(i, static_cast<float>(static_cast<int>(random() % 17) - 8) / 8);
  }
};

struct Machine {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<MatmulCache> cache;
  explicit Machine(int threads, bool widenBf16 = false) {
    useOneOpenMpThread();
    pool = *ThreadPool::create(threads);
    cache = *MatmulCache::create(threads, widenBf16);
  }
};

// bf16 results are rounded once more.
void expectClose(float expected, float actual, DType type, const std::string &where) {
  float tolerance = type == DType::bf16 ? std::abs(expected) / 128 : 0;
  ASSERT_NEAR(expected, actual, tolerance) << where;
}

void checkGemm(const GemmDesc &desc, int threads, bool widenBf16 = false) {
  const MatmulShape &s = desc.shape;
  std::string where = fmt::format("m {} n {} k {} lda {} ldb {} ldc {} tA {} tB {} acc {} batch {} threads {} {}->{}",
                                  s.m, s.n, s.k, s.lda, s.ldb, s.ldc, s.transposeA, s.transposeB, s.accumulate,
                                  desc.batch, threads, toString(s.typeA), toString(s.typeC));
  std::mt19937 random(1);
  auto extent = [&](int64_t rows, int64_t leading, int64_t stride) {
    return static_cast<size_t>(rows * leading + (desc.batch - 1) * stride);
  };
  Storage a(s.typeA, extent(s.transposeA ? s.k : s.m, s.lda, desc.batchStrideA));
  Storage b(s.typeB, extent(s.transposeB ? s.n : s.k, s.ldb, desc.batchStrideB));
  Storage c(s.typeC, extent(s.m, s.ldc, desc.batchStrideC));
  Storage addend(s.addend.value_or(s.typeC), s.addend ? extent(s.m, s.ldc, desc.batchStrideAddend) : 0);
  for (Storage *each : {&a, &b, &c, &addend})
    each->randomize(random);
  Storage before = c;

  Machine machine(threads, widenBf16);
  auto gemm = Gemm::prepare(desc, *machine.cache);
  ASSERT_TRUE(gemm) << gemm.message();
  ASSERT_TRUE(machine.cache->finish().ok());
  Status status = gemm->run(*machine.pool, a.bytes.data(), b.bytes.data(), c.bytes.data(), addend.bytes.data());
  ASSERT_TRUE(status.ok()) << status.message();

  std::vector<char> written(c.size(), 0);
  for (int64_t batch = 0; batch < desc.batch; ++batch)
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        int64_t at = batch * desc.batchStrideC + i * s.ldc + j;
        double sum = s.accumulate ? before.get(at)
                     : s.addend   ? addend.get(batch * desc.batchStrideAddend + i * s.ldc + j)
                                  : 0;
        for (int64_t l = 0; l < s.k; ++l)
          sum += double(a.get(batch * desc.batchStrideA + (s.transposeA ? l * s.lda + i : i * s.lda + l))) *
                 b.get(batch * desc.batchStrideB + (s.transposeB ? j * s.ldb + l : l * s.ldb + j));
        written[at] = 1;
        expectClose(static_cast<float>(sum), c.get(at), s.typeC, where + fmt::format(" at {},{},{}", batch, i, j));
        if (testing::Test::HasFatalFailure())
          return;
      }
  for (size_t i = 0; i < c.size(); ++i)
    if (!written[i])
      ASSERT_EQ(before.get(i), c.get(i)) << where << ": wrote between rows at " << i;
}

GemmDesc dense(int64_t m, int64_t n, int64_t k, bool tA, bool tB, bool accumulate, DType in, DType out, int64_t pad) {
  GemmDesc desc;
  desc.shape = {m, n, k, (tA ? m : k) + pad, (tB ? k : n) + pad, n + pad, tA, tB, accumulate, in, in, out};
  return desc;
}

} // namespace

TEST(Gemm, ShapesTransposesAccumulation) {
  const int64_t shapes[][3] = {{1, 1, 1},     {1, 70, 33},   {5, 3, 2},   {64, 64, 64},
                               {33, 17, 129}, {200, 40, 31}, {16, 300, 8}};
  for (auto [m, n, k] : shapes)
    for (int flags = 0; flags < 8; ++flags)
      for (int64_t pad : {0, 5})
        for (int threads : {1, 3})
          checkGemm(dense(m, n, k, flags & 1, flags & 2, flags & 4, DType::f32, DType::f32, pad), threads);
}

TEST(Gemm, Bf16Inputs) {
  const int64_t shapes[][3] = {{1, 64, 32}, {64, 64, 64}, {33, 17, 130}, {100, 96, 48}};
  for (auto [m, n, k] : shapes)
    for (int flags = 0; flags < 8; ++flags)
      for (DType out : {DType::f32, DType::bf16})
        checkGemm(dense(m, n, k, flags & 1, flags & 2, flags & 4, DType::bf16, out, flags & 1 ? 8 : 0), 2);
}

// What a CPU without bf16 in oneDNN does, on any CPU. Larger than one block in every direction, and tails.
TEST(Gemm, Bf16WidenedInBlocks) {
  const int64_t shapes[][3] = {{1, 64, 32}, {33, 17, 130}, {128, 256, 512}, {150, 300, 1030}};
  for (auto [m, n, k] : shapes)
    for (int flags = 0; flags < 8; ++flags)
      for (DType out : {DType::f32, DType::bf16})
        checkGemm(dense(m, n, k, flags & 1, flags & 2, flags & 4, DType::bf16, out, flags & 1 ? 8 : 0), 2, true);
}

TEST(Gemm, BatchesInterleaved) {
  // As attention heads lie: [tokens, heads, width], so that a batch stride is shorter than a row.
  for (int threads : {1, 2, 3})
    for (int64_t heads : {1, 2, 3, 12}) {
      GemmDesc desc;
      desc.shape = {40,    24,   16,    heads * 16, heads * 16, heads * 24,
                    false, true, false, DType::f32, DType::f32, DType::f32};
      desc.batch = heads;
      desc.batchStrideA = 16, desc.batchStrideB = 16, desc.batchStrideC = 24;
      checkGemm(desc, threads);
    }
}

// C = A B + another matrix, whole rows of it and rows with something between, in pieces, at batch strides of its own.
TEST(Gemm, Addends) {
  auto check = [](GemmDesc desc, DType addend, int threads, bool widen = false) {
    desc.shape.addend = addend;
    checkGemm(desc, threads, widen);
  };
  for (int flags = 0; flags < 4; ++flags)
    for (int64_t pad : {0, 5}) {
      check(dense(33, 17, 129, flags & 1, flags & 2, false, DType::f32, DType::f32, pad), DType::f32, 2);
      for (DType addend : {DType::f32, DType::bf16})
        for (bool widen : {false, true})
          check(dense(33, 17, 130, flags & 1, flags & 2, false, DType::bf16, DType::bf16, pad), addend, 2, widen);
    }
  check(dense(150, 300, 600, false, true, false, DType::bf16, DType::bf16, 0), DType::f32, 2, true); // several blocks
  check(dense(257, 65, 70, false, false, false, DType::f32, DType::f32, 0), DType::f32, 3); // cut over m
  check(dense(48, 1000, 70, false, true, false, DType::bf16, DType::bf16, 3), DType::f32, 4); // over n
  GemmDesc batches = dense(40, 24, 16, false, false, false, DType::bf16, DType::bf16, 2);
  batches.batch = 3;
  batches.batchStrideA = 40 * 18, batches.batchStrideC = 2 * 40 * 26, batches.batchStrideAddend = 3 * 40 * 26;
  check(batches, DType::f32, 2);
}

TEST(Gemm, WorkLargeEnoughToBeCut) {
  checkGemm(dense(257, 65, 70, false, false, true, DType::f32, DType::f32, 0), 3); // over m
  checkGemm(dense(48, 1000, 70, false, true, false, DType::f32, DType::f32, 3), 4); // over n
}

TEST(Gemm, EmptyExtents) {
  checkGemm(dense(4, 6, 0, false, false, false, DType::f32, DType::f32, 2), 1); // zeros
  checkGemm(dense(4, 6, 0, false, false, true, DType::f32, DType::f32, 2), 1);  // unchanged
  checkGemm(dense(0, 6, 3, false, false, false, DType::f32, DType::f32, 0), 1);
}

TEST(Gemm, RefusesTypesWithoutMatmul) {
  Machine machine(1);
  auto gemm = Gemm::prepare(dense(4, 4, 4, false, false, false, DType::f64, DType::f64, 0), *machine.cache);
  ASSERT_FALSE(gemm);
  EXPECT_EQ(gemm.status().code(), ErrorCode::unsupported);
  EXPECT_EQ(gemm.message(), "no matmul of f64 x f64 -> f64 (4 x 4 x 4) in oneDNN: unimplemented");
}

TEST(Gemm, EqualShapesShareAPrimitive) {
  Machine machine(1);
  GemmDesc desc = dense(32, 32, 32, false, false, false, DType::f32, DType::f32, 0);
  ASSERT_TRUE(Gemm::prepare(desc, *machine.cache));
  ASSERT_TRUE(Gemm::prepare(desc, *machine.cache));
  EXPECT_EQ(machine.cache->size(), 1u);
}

namespace {

void checkGrouped(GroupedGemmDesc desc, const std::vector<int32_t> &offsets, int threads, bool widenBf16 = false) {
  bool rows = desc.kind == GroupedGemmDesc::Kind::rows;
  std::string where = fmt::format("{} groups {} m {} n {} k {} tB {} acc {} threads {}", rows ? "rows" : "weight",
                                  desc.groups, desc.m, desc.n, desc.k, desc.transposeB, desc.accumulate, threads);
  std::mt19937 random(2);
  int64_t bGroup = rows ? (desc.transposeB ? desc.n : desc.k) * desc.ldb : 0;
  int64_t cGroup = rows ? 0 : desc.m * desc.ldc;
  Storage a(desc.typeA, desc.maxRows * desc.lda);
  Storage b(desc.typeB, rows ? desc.groups * bGroup : desc.maxRows * desc.ldb);
  Storage c(desc.typeC, rows ? desc.maxRows * desc.ldc : desc.groups * cGroup);
  Storage addend(desc.addend.value_or(desc.typeC), desc.addend ? desc.maxRows * desc.ldc : 0);
  for (Storage *each : {&a, &b, &c, &addend})
    each->randomize(random);
  Storage before = c;

  Machine machine(threads, widenBf16);
  auto gemm = GroupedGemm::prepare(desc, *machine.cache);
  ASSERT_TRUE(gemm) << gemm.message();
  ASSERT_TRUE(machine.cache->finish().ok());
  Status status =
      gemm->run(*machine.pool, a.bytes.data(), b.bytes.data(), c.bytes.data(), offsets.data(), addend.bytes.data());
  ASSERT_TRUE(status.ok()) << status.message();

  Storage expected = before;
  for (int64_t group = 0; group < desc.groups; ++group) {
    int64_t begin = offsets[group], end = offsets[group + 1];
    if (rows) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t j = 0; j < desc.n; ++j) {
          double sum = desc.accumulate ? before.get(row * desc.ldc + j)
                       : desc.addend   ? addend.get(row * desc.ldc + j)
                                       : 0;
          for (int64_t l = 0; l < desc.k; ++l)
            sum += double(a.get(row * desc.lda + l)) *
                   b.get(group * bGroup + (desc.transposeB ? j * desc.ldb + l : l * desc.ldb + j));
          expected.set(row * desc.ldc + j, static_cast<float>(sum));
        }
      continue;
    }
    for (int64_t i = 0; i < desc.m; ++i)
      for (int64_t j = 0; j < desc.n; ++j) {
        double sum = desc.accumulate ? before.get(group * cGroup + i * desc.ldc + j) : 0;
        for (int64_t row = begin; row < end; ++row)
          sum += double(a.get(row * desc.lda + i)) * b.get(row * desc.ldb + j);
        expected.set(group * cGroup + i * desc.ldc + j, static_cast<float>(sum));
      }
  }
  for (size_t i = 0; i < c.size(); ++i) // what is set here is truncated, what the library writes is rounded
    expectClose(expected.get(i), c.get(i), desc.typeC, where + fmt::format(" at {}", i));
}

GroupedGemmDesc grouped(GroupedGemmDesc::Kind kind, int64_t groups, int64_t maxRows, bool transposeB, bool accumulate,
                        DType in, int64_t pad) {
  int64_t m = 72, n = 40, k = 24;
  bool rows = kind == GroupedGemmDesc::Kind::rows;
  return {kind,    groups,     maxRows,    m,  n,  k,         (rows ? k : m) + pad, (rows && transposeB ? k : n) + pad,
          n + pad, transposeB, accumulate, in, in, DType::f32};
}

const std::vector<std::vector<int32_t>> offsetCases = {
    {0, 0, 0, 0, 0},         // nothing at all
    {0, 7, 7, 100, 300},     // an empty group
    {0, 300, 300, 300, 300}, // everything in one
    {5, 6, 8, 12, 299},      // a start past zero
};

} // namespace

TEST(GroupedGemm, Rows) {
  for (const auto &offsets : offsetCases)
    for (int flags = 0; flags < 4; ++flags)
      for (int threads : {1, 3})
        checkGrouped(grouped(GroupedGemmDesc::Kind::rows, 4, 300, flags & 1, flags & 2, DType::f32, flags * 3), offsets,
                     threads);
  checkGrouped(grouped(GroupedGemmDesc::Kind::rows, 4, 300, true, false, DType::bf16, 0), offsetCases[1], 2);
  checkGrouped(grouped(GroupedGemmDesc::Kind::rows, 2, 5000, false, false, DType::f32, 0), {0, 2333, 4999}, 2);
}

TEST(GroupedGemm, Addends) {
  for (const auto &offsets : offsetCases)
    for (DType type : {DType::f32, DType::bf16})
      for (bool widen : {false, true}) {
        GroupedGemmDesc desc = grouped(GroupedGemmDesc::Kind::rows, 4, 300, true, false, type, 0);
        desc.typeC = type;
        desc.addend = DType::f32;
        checkGrouped(desc, offsets, 3, widen);
      }
}

TEST(GroupedGemm, Weight) {
  for (const auto &offsets : offsetCases)
    for (bool accumulate : {false, true})
      for (int threads : {1, 3})
        checkGrouped(grouped(GroupedGemmDesc::Kind::weight, 4, 300, false, accumulate, DType::f32, threads), offsets,
                     threads);
  checkGrouped(grouped(GroupedGemmDesc::Kind::weight, 4, 300, false, false, DType::bf16, 0), offsetCases[1], 2);
  checkGrouped(grouped(GroupedGemmDesc::Kind::weight, 2, 5000, false, false, DType::f32, 0), {0, 2333, 4999}, 2);
}

TEST(GroupedGemm, Bf16WidenedInBlocks) {
  checkGrouped(grouped(GroupedGemmDesc::Kind::rows, 4, 300, true, true, DType::bf16, 0), offsetCases[1], 2, true);
  checkGrouped(grouped(GroupedGemmDesc::Kind::weight, 4, 300, false, false, DType::bf16, 0), offsetCases[1], 2, true);
}

TEST(GroupedGemm, RefusesBadOffsets) {
  Machine machine(1);
  auto gemm =
      GroupedGemm::prepare(grouped(GroupedGemmDesc::Kind::rows, 2, 16, false, false, DType::f32, 0), *machine.cache);
  ASSERT_TRUE(gemm);
  ASSERT_TRUE(machine.cache->finish().ok());
  auto run = [&](std::vector<int32_t> offsets) {
    return gemm->run(*machine.pool, nullptr, nullptr, nullptr, offsets.data()).message();
  };
  EXPECT_EQ(run({-1, 3, 4}), "offsets[0] is -1, less than 0");
  EXPECT_EQ(run({0, 5, 4}), "offsets fall from 5 to 4 at group 1 of 2");
  EXPECT_EQ(run({0, 5, 17}), "offsets end at row 17 but max_rows is 16");
}
