#include "runtime/cpu/WidenedMatmul.h"

#include "runtime/Bf16.h"

#include <algorithm>
#include <cstring>

namespace braid::runtime {
namespace {

int part(bool tailM, bool tailN, bool tailK, bool adds) { return tailM * 8 + tailN * 4 + tailK * 2 + adds; }

const std::byte *at(const void *base, DType type, int64_t index) {
  return static_cast<const std::byte *>(base) + index * static_cast<int64_t>(sizeOf(type));
}

// A block of a stored matrix, dense and f32.
void widen(DType type, const std::byte *from, int64_t leading, int64_t rows, int64_t columns, float *to) {
  for (int64_t row = 0; row < rows; ++row, to += columns, from += leading * static_cast<int64_t>(sizeOf(type))) {
    if (type == DType::f32) {
      std::memcpy(to, from, columns * sizeof(float));
      continue;
    }
    auto *source = reinterpret_cast<const uint16_t *>(from);
    for (int64_t i = 0; i < columns; ++i)
      to[i] = fromBf16(source[i]);
  }
}

void narrow(DType type, const float *from, int64_t leading, int64_t rows, int64_t columns, std::byte *to) {
  for (int64_t row = 0; row < rows; ++row, from += columns, to += leading * static_cast<int64_t>(sizeOf(type))) {
    if (type == DType::f32) {
      std::memcpy(to, from, columns * sizeof(float));
      continue;
    }
    auto *target = reinterpret_cast<uint16_t *>(to);
    for (int64_t i = 0; i < columns; ++i)
      target[i] = toBf16(from[i]);
  }
}

} // namespace

Expected<std::unique_ptr<WidenedMatmul>> WidenedMatmul::create(const MatmulShape &shape, MatmulCache &cache,
                                                               const std::vector<void *> &scratch) {
  std::unique_ptr<WidenedMatmul> matmul(new WidenedMatmul(shape, scratch));
  auto sizes = [](int64_t extent, int64_t block) {
    int64_t tail = extent % block;
    return std::array<int64_t, 2>{extent >= block ? block : 0, tail};
  };
  auto ms = sizes(shape.m, rows), ns = sizes(shape.n, columns), ks = sizes(shape.k, inner);
  for (bool tailM : {false, true})
    for (bool tailN : {false, true})
      for (bool tailK : {false, true})
        for (bool adds : {false, true}) {
          int64_t m = ms[tailM], n = ns[tailN], k = ks[tailK];
          if (m == 0 || n == 0 || k == 0)
            continue;
          MatmulShape product{m,
                              n,
                              k,
                              shape.transposeA ? m : k,
                              shape.transposeB ? k : n,
                              n,
                              shape.transposeA,
                              shape.transposeB,
                              adds,
                              DType::f32,
                              DType::f32,
                              DType::f32};
          BRAID_ASSIGN(matmul->products[part(tailM, tailN, tailK, adds)], cache.get(product));
        }
  return matmul;
}

bool WidenedMatmul::run(int thread, const void *a, const void *b, void *c, const void *addend) const {
  auto *blockA = static_cast<float *>(scratch[thread]), *blockB = blockA + rows * inner,
       *blockC = blockB + inner * columns;
  const MatmulShape &s = shape;
  bool ok = true;
  for (int64_t i = 0; i < s.m; i += rows) {
    int64_t m = std::min(rows, s.m - i);
    for (int64_t j = 0; j < s.n; j += columns) {
      int64_t n = std::min(columns, s.n - j);
      auto *result = const_cast<std::byte *>(at(c, s.typeC, i * s.ldc + j));
      if (s.accumulate)
        widen(s.typeC, result, s.ldc, m, n, blockC);
      else if (s.addend)
        widen(*s.addend, at(addend, *s.addend, i * s.ldc + j), s.ldc, m, n, blockC);
      for (int64_t l = 0; l < s.k; l += inner) {
        int64_t k = std::min(inner, s.k - l);
        if (s.transposeA)
          widen(s.typeA, at(a, s.typeA, l * s.lda + i), s.lda, k, m, blockA);
        else
          widen(s.typeA, at(a, s.typeA, i * s.lda + l), s.lda, m, k, blockA);
        if (s.transposeB)
          widen(s.typeB, at(b, s.typeB, j * s.ldb + l), s.ldb, n, k, blockB);
        else
          widen(s.typeB, at(b, s.typeB, l * s.ldb + j), s.ldb, k, n, blockB);
        const Matmul *product = products[part(m < rows, n < columns, k < inner, s.accumulate || s.addend || l > 0)];
        ok &= product->run(thread, blockA, blockB, blockC);
      }
      narrow(s.typeC, blockC, s.ldc, m, n, result);
    }
  }
  return ok;
}

} // namespace braid::runtime
