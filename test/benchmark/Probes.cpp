#include "test/benchmark/Probes.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

namespace braid::benchmark {

using namespace braid::runtime;

namespace {

constexpr double leastSeconds = 0.03; // of one probe
constexpr int leastRuns = 7, mostRuns = 400;

template <class F> Rate measure(F &&work) {
  using Clock = std::chrono::steady_clock;
  work();
  std::vector<double> times;
  double total = 0;
  while (static_cast<int>(times.size()) < leastRuns ||
         (total < leastSeconds && static_cast<int>(times.size()) < mostRuns)) {
    auto start = Clock::now();
    work();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total += times.back();
  }
  return {median(times), *std::min_element(times.begin(), times.end())};
}

// Aligned as arenas are; small values, so that accumulating products stay finite.
struct Matrix {
  std::byte *data = nullptr;
  Matrix(int64_t elements, DType type) {
    size_t bytes = (static_cast<size_t>(std::max<int64_t>(elements, 1)) * sizeOf(type) + 255) / 256 * 256;
    data = static_cast<std::byte *>(std::aligned_alloc(256, bytes));
    std::memset(data, 0, bytes);
    if (type == DType::f32)
      std::fill_n(reinterpret_cast<float *>(data), elements, 1e-3f);
    else if (type == DType::f64)
      std::fill_n(reinterpret_cast<double *>(data), elements, 1e-3);
  }
  Matrix(const Matrix &) = delete;
  ~Matrix() { std::free(data); }
};

Expected<Rate> probe(const Product &product, Gemm &gemm, GroupedGemm &grouped, ThreadPool &pool) {
  Status status = Status::success();
  auto keep = [&](Status result) {
    if (!result.ok())
      status = result;
  };
  Rate rate;
  if (product.gemm) {
    const GemmDesc &desc = *product.gemm;
    const MatmulShape &shape = desc.shape;
    Matrix a((shape.transposeA ? shape.k : shape.m) * shape.lda + (desc.batch - 1) * desc.batchStrideA, shape.typeA);
    Matrix b((shape.transposeB ? shape.n : shape.k) * shape.ldb + (desc.batch - 1) * desc.batchStrideB, shape.typeB);
    Matrix c(shape.m * shape.ldc + (desc.batch - 1) * desc.batchStrideC, shape.typeC);
    Matrix addend(shape.addend ? shape.m * shape.ldc + (desc.batch - 1) * desc.batchStrideAddend : 0,
                  shape.addend.value_or(shape.typeC));
    rate = measure([&] { keep(gemm.run(pool, a.data, b.data, c.data, shape.addend ? addend.data : nullptr)); });
  } else {
    const GroupedGemmDesc &desc = *product.grouped;
    bool rows = desc.kind == GroupedGemmDesc::Kind::rows;
    Matrix a(desc.maxRows * desc.lda, desc.typeA);
    Matrix b(rows ? desc.groups * (desc.transposeB ? desc.n : desc.k) * desc.ldb : desc.maxRows * desc.ldb, desc.typeB);
    Matrix c(rows ? desc.maxRows * desc.ldc : desc.groups * desc.m * desc.ldc, desc.typeC);
    std::vector<int32_t> offsets;
    for (int64_t group = 0; group <= desc.groups; ++group)
      offsets.push_back(static_cast<int32_t>(desc.maxRows * group / desc.groups));
    Matrix addend(desc.addend ? desc.maxRows * desc.ldc : 0, desc.addend.value_or(desc.typeC));
    rate = measure(
        [&] { keep(grouped.run(pool, a.data, b.data, c.data, offsets.data(), desc.addend ? addend.data : nullptr)); });
  }
  BRAID_TRY(status);
  return rate;
}

} // namespace

std::string Product::text() const {
  std::string text;
  auto flag = [&](bool is, const char *word) {
    if (is)
      text += word;
  };
  if (gemm) {
    const MatmulShape &s = gemm->shape;
    text = fmt::format("gemm {} x {} x {}", s.m, s.n, s.k);
    if (gemm->batch != 1)
      text += fmt::format(", {} times", gemm->batch);
    flag(s.transposeA, " a^T");
    flag(s.transposeB, " b^T");
    flag(s.accumulate, " +=");
    flag(s.addend.has_value(), " + c");
    flag(s.lda != (s.transposeA ? s.m : s.k) || s.ldb != (s.transposeB ? s.k : s.n) || s.ldc != s.n, " strided");
    if (s.typeA != DType::f32)
      text += fmt::format(" {}", toString(s.typeA));
  } else if (grouped) {
    const GroupedGemmDesc &s = *grouped;
    bool rows = s.kind == GroupedGemmDesc::Kind::rows;
    text = rows ? fmt::format("grouped {} rows x {} x {}, {} groups", s.maxRows, s.n, s.k, s.groups)
                : fmt::format("grouped weight {} x {} x {} rows, {} groups", s.m, s.n, s.maxRows, s.groups);
    flag(s.transposeB, " b^T");
    flag(s.accumulate, " +=");
    flag(s.addend.has_value(), " + c");
    if (s.typeA != DType::f32)
      text += fmt::format(" {}", toString(s.typeA));
  }
  return text;
}

double Product::flops() const {
  auto product = [](int64_t a, int64_t b, int64_t c) {
    return 2.0 * static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
  };
  if (gemm)
    return product(gemm->shape.m, gemm->shape.n, gemm->shape.k) * static_cast<double>(gemm->batch);
  if (grouped && grouped->kind == GroupedGemmDesc::Kind::rows)
    return product(grouped->maxRows, grouped->n, grouped->k);
  if (grouped)
    return product(grouped->m, grouped->n, grouped->maxRows);
  return 0;
}

Expected<std::vector<Rate>> probeProducts(const std::vector<Product> &products, ThreadPool &pool) {
  BRAID_ASSIGN(std::unique_ptr<MatmulCache> cache, MatmulCache::create(pool.size()));
  std::vector<Gemm> gemms(products.size());
  std::vector<GroupedGemm> groupedGemms(products.size());
  for (size_t i = 0; i < products.size(); ++i) {
    if (products[i].gemm) {
      BRAID_ASSIGN(gemms[i], Gemm::prepare(*products[i].gemm, *cache));
    } else {
      BRAID_ASSIGN(groupedGemms[i], GroupedGemm::prepare(*products[i].grouped, *cache));
    }
  }
  BRAID_TRY(cache->finish());
  std::vector<Rate> rates;
  for (size_t i = 0; i < products.size(); ++i) {
    Expected<Rate> rate = probe(products[i], gemms[i], groupedGemms[i], pool);
    if (!rate)
      return rate.status().withContext(products[i].text());
    rates.push_back(*rate);
  }
  return rates;
}

Rate probeCopy(size_t bytes, ThreadPool &pool) {
  auto count = static_cast<int64_t>(bytes / 4);
  Matrix source(count, DType::f32), target(count, DType::f32);
  return measure([&] {
    pool.parallelFor(0, count, 1024, [&](int64_t begin, int64_t end, int) {
      std::memcpy(target.data + begin * 4, source.data + begin * 4, static_cast<size_t>(end - begin) * 4);
    });
  });
}

Rate probeRead(size_t bytes, ThreadPool &pool) {
  auto count = static_cast<int64_t>(bytes / 64) * 16;
  Matrix source(count, DType::f32);
  const auto *values = reinterpret_cast<const uint32_t *>(source.data);
  std::atomic<uint32_t> sum{0}; // so that nothing is left out
  return measure([&] {
    pool.parallelFor(0, count, 1024, [&](int64_t begin, int64_t end, int) {
      uint32_t lanes[16] = {};
      for (int64_t i = begin; i + 16 <= end; i += 16)
        for (int64_t lane = 0; lane < 16; ++lane)
          lanes[lane] ^= values[i + lane];
      for (uint32_t lane : lanes)
        sum.fetch_xor(lane, std::memory_order_relaxed);
    });
  });
}

Rate probeForkJoin(ThreadPool &pool) {
  return measure([&] { pool.parallelFor(0, pool.size(), 1, [](int64_t, int64_t, int) {}); });
}

} // namespace braid::benchmark
