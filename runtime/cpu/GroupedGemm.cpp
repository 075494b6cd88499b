#include "runtime/cpu/GroupedGemm.h"

#include <algorithm>
#include <atomic>
#include <bit>

namespace braid::runtime {
namespace {

// Shorter blocks repeat the packing of B too often.
constexpr int64_t leastLargestBlock = 128;
constexpr int64_t leastPartOfM = 64;

int floorLog2(int64_t value) { return std::bit_width(static_cast<uint64_t>(value)) - 1; }

} // namespace

Expected<GroupedGemm> GroupedGemm::prepare(const GroupedGemmDesc &desc, MatmulCache &cache) {
  GroupedGemm gemm;
  gemm.desc = desc;
  if (desc.maxRows > 0)
    gemm.largest = std::min(blockSizes - 1, floorLog2(desc.maxRows));
  bool rows = desc.kind == GroupedGemmDesc::Kind::rows;

  if (!rows) {
    // Groups alone rarely balance: aim at four pieces per thread by cutting m.
    int64_t threads = cache.threads();
    int64_t wanted = threads == 1 ? 1 : (4 * threads + desc.groups - 1) / desc.groups;
    MatmulShape whole{desc.m, desc.n, 1,     desc.lda,   desc.ldb,   desc.ldc,
                      true,   false,  false, desc.typeA, desc.typeB, desc.typeC};
    if (whole.fastWhileWhole(cache.threads()))
      wanted = 1;
    wanted = std::clamp<int64_t>(desc.m / leastPartOfM, 1, wanted);
    gemm.partLength = std::min(desc.m, ((desc.m + wanted - 1) / wanted + 15) / 16 * 16);
    gemm.partCount = (desc.m + gemm.partLength - 1) / gemm.partLength;
  }
  for (int log = 0; log <= gemm.largest; ++log) {
    int64_t size = int64_t(1) << log;
    if (rows) {
      BRAID_ASSIGN(gemm.first[log], cache.get({size, desc.n, desc.k, desc.lda, desc.ldb, desc.ldc, false,
                                               desc.transposeB, desc.accumulate, desc.typeA, desc.typeB, desc.typeC}));
      continue;
    }
    // Blocks of rows are the k dimension here; only the first of a group may overwrite C.
    auto get = [&](int64_t m, bool accumulate) {
      return cache.get(
          {m, desc.n, size, desc.lda, desc.ldb, desc.ldc, true, false, accumulate, desc.typeA, desc.typeB, desc.typeC});
    };
    int64_t tail = desc.m - (gemm.partCount - 1) * gemm.partLength;
    BRAID_ASSIGN(gemm.first[log], get(gemm.partLength, desc.accumulate));
    BRAID_ASSIGN(gemm.more[log], get(gemm.partLength, true));
    BRAID_ASSIGN(gemm.tailFirst[log], get(tail, desc.accumulate));
    BRAID_ASSIGN(gemm.tailMore[log], get(tail, true));
  }
  // A group of r rows has r / 2^largest whole blocks and at most `largest` smaller ones; planRows may choose blocks as
  // small as leastLargestBlock.
  if (rows && gemm.largest >= 0)
    gemm.pieces.reserve(desc.maxRows / std::min<int64_t>(leastLargestBlock, int64_t(1) << gemm.largest) +
                        desc.groups * (gemm.largest + 1));
  else
    gemm.pieces.reserve(desc.groups * gemm.partCount);
  return gemm;
}

Status GroupedGemm::checkOffsets(const int32_t *offsets) const {
  if (offsets[0] < 0)
    return Status::error(ErrorCode::invalidArgument, "offsets[0] is {}, less than 0", offsets[0]);
  for (int64_t group = 0; group < desc.groups; ++group)
    if (offsets[group + 1] < offsets[group])
      return Status::error(ErrorCode::invalidArgument, "offsets fall from {} to {} at group {} of {}", offsets[group],
                           offsets[group + 1], group, desc.groups);
  if (offsets[desc.groups] > desc.maxRows)
    return Status::error(ErrorCode::overflow, "offsets end at row {} but max_rows is {}", offsets[desc.groups],
                         desc.maxRows);
  return Status::success();
}

void GroupedGemm::planRows(const int32_t *offsets, int threads) {
  // Blocks small enough that all threads get some, large enough that packing B does not dominate.
  int64_t total = offsets[desc.groups] - offsets[0];
  int limit = std::min(largest, floorLog2(std::max(leastLargestBlock, total / threads)));
  for (int64_t group = 0; group < desc.groups; ++group)
    for (int64_t row = offsets[group], end = offsets[group + 1]; row < end;) {
      int log = std::min(limit, floorLog2(end - row));
      pieces.push_back({static_cast<int32_t>(group), log, row, totalWeight});
      row += int64_t(1) << log;
      totalWeight += (int64_t(1) << log) + 16;
    }
}

void GroupedGemm::planWeight(const int32_t *offsets) {
  for (int64_t group = 0; group < desc.groups; ++group)
    for (int64_t part = 0; part < partCount; ++part) {
      pieces.push_back({static_cast<int32_t>(group), 0, part, totalWeight});
      totalWeight += offsets[group + 1] - offsets[group] + 16;
    }
}

bool GroupedGemm::runRows(const Piece &piece, int thread, const std::byte *a, const std::byte *b, std::byte *c) const {
  int64_t groupElements = (desc.transposeB ? desc.n : desc.k) * desc.ldb;
  return first[piece.log]->run(thread, a + piece.begin * desc.lda * sizeOf(desc.typeA),
                               b + piece.group * groupElements * sizeOf(desc.typeB),
                               c + piece.begin * desc.ldc * sizeOf(desc.typeC));
}

bool GroupedGemm::runWeight(const Piece &piece, int thread, const std::byte *a, const std::byte *b, std::byte *c,
                            const int32_t *offsets) const {
  int64_t firstM = piece.begin * partLength;
  bool tail = piece.begin == partCount - 1;
  a += firstM * sizeOf(desc.typeA);
  c += (piece.group * desc.m + firstM) * desc.ldc * sizeOf(desc.typeC);
  int64_t row = offsets[piece.group], end = offsets[piece.group + 1];
  if (row == end && !desc.accumulate) {
    int64_t count = tail ? desc.m - firstM : partLength;
    for (int64_t i = 0; i < count; ++i)
      std::fill_n(c + i * desc.ldc * sizeOf(desc.typeC), desc.n * sizeOf(desc.typeC), std::byte{0});
  }
  bool ok = true, begun = false;
  while (row < end) {
    int log = std::min(largest, floorLog2(end - row));
    const Matmul *matmul = begun ? (tail ? tailMore : more)[log] : (tail ? tailFirst : first)[log];
    ok &= matmul->run(thread, a + row * desc.lda * sizeOf(desc.typeA), b + row * desc.ldb * sizeOf(desc.typeB), c);
    begun = true;
    row += int64_t(1) << log;
  }
  return ok;
}

Status GroupedGemm::run(ThreadPool &pool, const std::byte *a, const std::byte *b, std::byte *c,
                        const int32_t *offsets) {
  BRAID_TRY(checkOffsets(offsets));
  pieces.clear();
  totalWeight = 0;
  bool rows = desc.kind == GroupedGemmDesc::Kind::rows;
  if (rows)
    planRows(offsets, pool.size());
  else
    planWeight(offsets);

  // Thread t takes the pieces whose accumulated cost starts in its share: contiguous, balanced, the same every time.
  std::atomic<bool> failed{false};
  int64_t shares = pool.size();
  pool.parallelFor(0, shares, 1, [&](int64_t firstShare, int64_t lastShare, int thread) {
    auto starts = [&](int64_t share) {
      int64_t cost = totalWeight * share / shares;
      return std::lower_bound(pieces.begin(), pieces.end(), cost,
                              [](const Piece &piece, int64_t value) { return piece.weight < value; });
    };
    for (auto piece = starts(firstShare); piece != starts(lastShare); ++piece)
      if (!(rows ? runRows(*piece, thread, a, b, c) : runWeight(*piece, thread, a, b, c, offsets)))
        failed.store(true, std::memory_order_relaxed);
  });
  if (failed.load(std::memory_order_relaxed))
    return Status::error(ErrorCode::internal, "oneDNN failed to execute a matmul it had prepared");
  return Status::success();
}

} // namespace braid::runtime
