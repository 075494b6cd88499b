#include "runtime/cpu/GroupedGemm.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <tuple>

namespace braid::runtime {
namespace {

constexpr int64_t leastPartOfM = 64;
// Rows left of a cut are a multiple of this: whole tiles of every vector width oneDNN uses.
constexpr int64_t cutGrain = 32;
// Below this many multiplications waking another thread costs more than it saves.
constexpr int64_t smallWork = int64_t(1) << 18;

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
    BRAID_ASSIGN(bool whole,
                 cache.fastWhileWhole({desc.m, desc.n, std::clamp<int64_t>(desc.maxRows, 1, 256), desc.lda, desc.ldb,
                                       desc.ldc, true, false, desc.accumulate, desc.typeA, desc.typeB, desc.typeC}));
    if (whole)
      wanted = 1;
    wanted = std::clamp<int64_t>(desc.m / leastPartOfM, 1, wanted);
    gemm.partLength = std::min(desc.m, ((desc.m + wanted - 1) / wanted + 15) / 16 * 16);
    gemm.partCount = (desc.m + gemm.partLength - 1) / gemm.partLength;
  }
  for (int log = 0; log <= gemm.largest; ++log) {
    int64_t size = int64_t(1) << log;
    if (rows) {
      BRAID_ASSIGN(gemm.first[log],
                   cache.get({size, desc.n, desc.k, desc.lda, desc.ldb, desc.ldc, false, desc.transposeB,
                              desc.accumulate, desc.typeA, desc.typeB, desc.typeC, desc.addend}));
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
  // r rows of a group have r / 2^largest whole blocks and at most `largest` smaller ones, on each side of a cut.
  if (rows && gemm.largest >= 0)
    gemm.pieces.reserve((desc.maxRows >> gemm.largest) + (desc.groups + cache.threads()) * (gemm.largest + 1));
  else
    gemm.pieces.reserve(desc.groups * gemm.partCount);
  gemm.loads.reserve(cache.threads());
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

// Every thread takes as many rows as any other, one after the other. A cut inside a group leaves whole tiles on its
// left.
void GroupedGemm::planRows(const int32_t *offsets, int threads) {
  int64_t first = offsets[0], total = offsets[desc.groups] - first;
  if (total * desc.n <= smallWork / desc.k)
    threads = 1;
  int thread = 0;
  for (int64_t group = 0; group < desc.groups; ++group) {
    int64_t start = offsets[group], end = offsets[group + 1];
    for (int64_t row = start; row < end;) {
      int64_t stop = end;
      if (thread + 1 < threads) {
        int64_t share = first + total * (thread + 1) / threads;
        int64_t cut = start + (std::max(share - start, int64_t(0)) + cutGrain / 2) / cutGrain * cutGrain;
        if (cut <= row) {
          ++thread;
          continue;
        }
        stop = std::min(end, cut);
      }
      while (row < stop) {
        int log = std::min(largest, floorLog2(stop - row));
        pieces.push_back({static_cast<int32_t>(group), log, row, 0, thread});
        row += int64_t(1) << log;
      }
    }
  }
}

// The largest pieces first, each to the thread that has least to do: groups are uneven.
void GroupedGemm::planWeight(const int32_t *offsets, int threads) {
  for (int64_t group = 0; group < desc.groups; ++group)
    for (int64_t part = 0; part < partCount; ++part)
      pieces.push_back({static_cast<int32_t>(group), 0, part, offsets[group + 1] - offsets[group] + 16, 0});
  std::sort(pieces.begin(), pieces.end(), [](const Piece &a, const Piece &b) {
    return std::tuple(-a.cost, a.group, a.begin) < std::tuple(-b.cost, b.group, b.begin);
  });
  loads.assign(static_cast<size_t>(threads), 0);
  for (Piece &piece : pieces) {
    auto least = std::min_element(loads.begin(), loads.end());
    piece.thread = static_cast<int32_t>(least - loads.begin());
    *least += piece.cost;
  }
}

bool GroupedGemm::runRows(const Piece &piece, int thread, const std::byte *a, const std::byte *b, std::byte *c,
                          const std::byte *addend) const {
  int64_t groupElements = (desc.transposeB ? desc.n : desc.k) * desc.ldb;
  return first[piece.log]->run(thread, a + piece.begin * desc.lda * sizeOf(desc.typeA),
                               b + piece.group * groupElements * sizeOf(desc.typeB),
                               c + piece.begin * desc.ldc * sizeOf(desc.typeC),
                               addend ? addend + piece.begin * desc.ldc * sizeOf(*desc.addend) : nullptr);
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

Status GroupedGemm::run(ThreadPool &pool, const std::byte *a, const std::byte *b, std::byte *c, const int32_t *offsets,
                        const std::byte *addend) {
  BRAID_TRY(checkOffsets(offsets));
  pieces.clear();
  bool rows = desc.kind == GroupedGemmDesc::Kind::rows;
  if (rows)
    planRows(offsets, pool.size());
  else
    planWeight(offsets, pool.size());

  std::atomic<bool> failed{false};
  int64_t shares = pieces.empty() ? 0 : 1;
  for (const Piece &piece : pieces)
    shares = std::max<int64_t>(shares, piece.thread + 1);
  pool.parallelFor(0, shares, 1, [&](int64_t firstShare, int64_t lastShare, int thread) {
    for (const Piece &piece : pieces)
      if (piece.thread >= firstShare && piece.thread < lastShare)
        if (!(rows ? runRows(piece, thread, a, b, c, addend) : runWeight(piece, thread, a, b, c, offsets)))
          failed.store(true, std::memory_order_relaxed);
  });
  if (failed.load(std::memory_order_relaxed))
    return Status::error(ErrorCode::internal, "oneDNN failed to execute a matmul it had prepared");
  return Status::success();
}

} // namespace braid::runtime
