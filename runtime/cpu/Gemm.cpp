#include "runtime/cpu/Gemm.h"

#include <algorithm>
#include <atomic>

namespace braid::runtime {
namespace {

// Cuts are multiples of this: whole tiles of every vector width oneDNN uses.
constexpr int64_t cutGrain = 32;
// Below this many multiplications waking another thread costs more than it saves.
constexpr int64_t smallWork = int64_t(1) << 18;

int64_t cutLength(int64_t extent, int64_t parts) {
  int64_t length = (extent + parts - 1) / parts;
  return (length + cutGrain - 1) / cutGrain * cutGrain;
}

} // namespace

Expected<Gemm> Gemm::prepare(const GemmDesc &desc, MatmulCache &cache) {
  Gemm gemm;
  gemm.desc = desc;
  const MatmulShape &shape = desc.shape;
  auto sizeA = static_cast<int64_t>(sizeOf(shape.typeA)), sizeB = static_cast<int64_t>(sizeOf(shape.typeB)),
       sizeC = static_cast<int64_t>(sizeOf(shape.typeC)),
       sizeAddend = shape.addend ? static_cast<int64_t>(sizeOf(*shape.addend)) : 0;
  gemm.strideA = desc.batchStrideA * sizeA;
  gemm.strideB = desc.batchStrideB * sizeB;
  gemm.strideC = desc.batchStrideC * sizeC;
  gemm.strideAddend = desc.batchStrideAddend * sizeAddend;
  if (shape.m == 0 || shape.n == 0 || desc.batch == 0)
    return gemm;
  if (shape.k == 0) {
    gemm.zeroFill = !shape.accumulate;
    return gemm;
  }

  // One part per batch element when these alone keep all threads busy evenly; else m is cut, or n where m is short.
  int64_t wanted = cache.threads();
  bool small = shape.m * shape.n <= smallWork / std::max<int64_t>(shape.k, 1) / std::max<int64_t>(desc.batch, 1);
  if (small || desc.batch % wanted == 0 || desc.batch >= 4 * wanted)
    wanted = 1;
  bool cutM = shape.m >= shape.n || shape.m >= 4 * cutGrain * wanted;
  BRAID_ASSIGN(bool whole, cache.fastWhileWhole(shape));
  if (whole) {
    // Rows of A and C stay whole only where m is cut and A is not transposed.
    cutM = true;
    if (shape.transposeA || shape.m < 2 * cutGrain)
      wanted = 1;
  }
  int64_t extent = cutM ? shape.m : shape.n;
  int64_t length = wanted == 1 ? extent : cutLength(extent, wanted);
  for (int64_t begin = 0; begin < extent; begin += length) {
    MatmulShape part = shape;
    (cutM ? part.m : part.n) = std::min(length, extent - begin);
    BRAID_ASSIGN(const Matmul *matmul, cache.get(part));
    int64_t a = 0, b = 0, c = 0; // c: elements
    if (cutM) {
      a = begin * (shape.transposeA ? 1 : shape.lda) * sizeA;
      c = begin * shape.ldc;
    } else {
      b = begin * (shape.transposeB ? shape.ldb : 1) * sizeB;
      c = begin;
    }
    gemm.parts.push_back({matmul, a, b, c * sizeC, c * sizeAddend});
  }
  return gemm;
}

Status Gemm::run(ThreadPool &pool, const std::byte *a, const std::byte *b, std::byte *c,
                 const std::byte *addend) const {
  if (zeroFill) {
    for (int64_t batch = 0; batch < desc.batch; ++batch)
      for (int64_t row = 0; row < desc.shape.m; ++row) {
        auto size = static_cast<int64_t>(sizeOf(desc.shape.typeC));
        std::byte *begin = c + batch * strideC + row * desc.shape.ldc * size;
        std::fill_n(begin, desc.shape.n * size, std::byte{0});
      }
    return Status::success();
  }
  auto count = static_cast<int64_t>(parts.size());
  std::atomic<bool> failed{false};
  // Without cuts and with one batch element everything stays on the calling thread.
  pool.parallelFor(0, desc.batch * count, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t batch = i / count;
      const Part &part = parts[i % count];
      if (!part.matmul->run(thread, a + batch * strideA + part.a, b + batch * strideB + part.b,
                            c + batch * strideC + part.c,
                            addend ? addend + batch * strideAddend + part.addend : nullptr))
        failed.store(true, std::memory_order_relaxed);
    }
  });
  if (failed.load(std::memory_order_relaxed))
    return Status::error(ErrorCode::internal, "oneDNN failed to execute a matmul it had prepared");
  return Status::success();
}

} // namespace braid::runtime
