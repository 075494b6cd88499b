// Gemm: a prepared `cmd` gemm. The work is cut into (batch, part of m or n) pieces when it is prepared, so the result
// depends on the number of threads at most, never on timing.
#pragma once

#include "runtime/ThreadPool.h"
#include "runtime/cpu/Matmul.h"

namespace braid::runtime {

struct GemmDesc {
  MatmulShape shape;
  int64_t batch = 1;
  int64_t batchStrideA = 0, batchStrideB = 0, batchStrideC = 0, batchStrideAddend = 0; // elements
  bool operator==(const GemmDesc &) const = default;
};

class Gemm {
public:
  static Expected<Gemm> prepare(const GemmDesc &desc, MatmulCache &cache);
  Status run(ThreadPool &pool, const std::byte *a, const std::byte *b, std::byte *c,
             const std::byte *addend = nullptr) const;

private:
  // One primitive and where its piece starts, in bytes from the matrices.
  struct Part {
    const Matmul *matmul;
    int64_t a, b, c, addend;
  };

  GemmDesc desc;
  std::vector<Part> parts;
  int64_t strideA = 0, strideB = 0, strideC = 0, strideAddend = 0; // bytes per batch
  bool zeroFill = false;                         // k == 0
};

} // namespace braid::runtime
