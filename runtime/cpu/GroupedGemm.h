// GroupedGemm: a prepared `cmd` grouped gemm. The rows of each group are known only when it runs; they are walked in
// blocks of prepared sizes (powers of two, largest first), so nothing is compiled at run time. Which thread takes which
// block follows from the offsets alone.
#pragma once

#include "runtime/ThreadPool.h"
#include "runtime/cpu/Matmul.h"

#include <array>

namespace braid::runtime {

struct GroupedGemmDesc {
  enum class Kind { rows, weight };
  Kind kind;
  int64_t groups, maxRows;
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  bool transposeB, accumulate;
  DType typeA, typeB, typeC;
  std::optional<DType> addend = {}; // of kind rows: its type
};

class GroupedGemm {
public:
  static Expected<GroupedGemm> prepare(const GroupedGemmDesc &desc, MatmulCache &cache);
  // Also checks the offsets: they start at 0 or later, never fall, and end at maxRows or before.
  Status run(ThreadPool &pool, const std::byte *a, const std::byte *b, std::byte *c, const int32_t *offsets,
             const std::byte *addend = nullptr);

private:
  static constexpr int blockSizes = 11; // 1, 2, 4, .. 1024

  // A piece of work. rows: rows [begin, begin + 2^log) of the operands. weight: part `begin` of the rows of the group's
  // C.
  struct Piece {
    int32_t group, log;
    int64_t begin;
    int64_t cost; // weight: rows
    int32_t thread;
  };

  Status checkOffsets(const int32_t *offsets) const;
  void planRows(const int32_t *offsets, int threads);
  void planWeight(const int32_t *offsets, int threads);
  bool runRows(const Piece &piece, int thread, const std::byte *a, const std::byte *b, std::byte *c,
               const std::byte *addend) const;
  bool runWeight(const Piece &piece, int thread, const std::byte *a, const std::byte *b, std::byte *c,
                 const int32_t *offsets) const;

  GroupedGemmDesc desc;
  int largest = -1; // log2 of the largest prepared block
  std::array<const Matmul *, blockSizes> first{}; // C = .. (rows: per desc.accumulate)
  std::array<const Matmul *, blockSizes> more{}; // weight: C += ..
  std::array<const Matmul *, blockSizes> tailFirst{}, tailMore{}; // weight: the last, shorter part of m
  int64_t partLength = 0, partCount = 1; // weight: how m is cut
  std::vector<Piece> pieces; // reserved for the worst case
  std::vector<int64_t> loads; // weight: what each thread has to do
};

} // namespace braid::runtime
