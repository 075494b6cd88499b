// WidenedMatmul: a matmul with bf16 operands on a CPU for which oneDNN has none: blocks are widened to f32 in scratch
// memory, multiplied there by f32 primitives, and rounded once when the whole inner dimension is summed.
#pragma once

#include "runtime/cpu/Matmul.h"

#include <array>

namespace braid::runtime {

class WidenedMatmul {
public:
  // Blocks of 128 x 256 x 512: 0.9 MB of scratch per thread, and a widened element is used 128 times or more.
  static constexpr int64_t rows = 128, columns = 256, inner = 512;
  static constexpr size_t scratchBytes = (rows * inner + inner * columns + rows * columns) * sizeof(float);

  // The f32 primitives come from `cache`, the scratch memory is `scratch[thread]` when it runs.
  static Expected<std::unique_ptr<WidenedMatmul>> create(const MatmulShape &shape, MatmulCache &cache,
                                                         const std::vector<void *> &scratch);
  bool run(int thread, const void *a, const void *b, void *c, const void *addend) const;

private:
  WidenedMatmul(const MatmulShape &shape, const std::vector<void *> &scratch) : shape(shape), scratch(scratch) {}

  MatmulShape shape;
  const std::vector<void *> &scratch;
  // [m is the tail][n is the tail][k is the tail][adds to c]
  std::array<const Matmul *, 16> products{};
};

} // namespace braid::runtime
