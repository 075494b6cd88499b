//===- StateWalk.cpp - a walk over chunks or two kernels: bytes, programs, iterations ------------------------------===//
#include "passes/analysis/StateWalk.h"

#include "dialects/braid/PassAttributes.h"
#include "dialects/braid/ScanTraits.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace braid;

// Of a Hopper GPU. Which of two ways is faster depends on their ratios alone.
static constexpr double kMultiprocessors = 132;
static constexpr double kMemoryBytes = 3.2e6; ///< a microsecond, of tensors that stream by
static constexpr double kCacheBytes = 40e3; ///< a microsecond, to one multiprocessor
static constexpr double kLaunch = 4; ///< a kernel more, in microseconds
/// An iteration of a walk waits for its copies, a barrier, running sums and products; longer chunks have more of the latter.
static constexpr double kIteration = 0.4, kToken = 0.008;
/// What a segment in front of a program's own left, read and added.
static constexpr double kFold = 1;
/// An iteration of a scan over sums waits for them alone.
static constexpr double kScanIteration = 0.25;

/// Bytes of a token's keys and gates, for so many keys.
static double bytesOfKeys(const ScanSizes &sizes, double keys) {
  return ScanTraits(sizes.classId).vectorDecay ? 6 * keys : 2 * keys + 4;
}
static double chunksOf(const ScanSizes &sizes) {
  return static_cast<double>(llvm::divideCeil(sizes.tokens, sizes.chunk));
}

std::optional<WalkBlocks> braid::walkBlocks(const ScanSizes &sizes, Operation *op) {
  constexpr int64_t mostValues = 128, leastValues = 16, mostTokens = 128, products = 16, mostSegments = 16;
  if (sizes.keys % 32 != 0 || sizes.values % leastValues != 0 || sizes.chunk > mostTokens ||
      sizes.chunk % products != 0)
    return std::nullopt;
  // Four warps are a group of wgmma, and what they have of a chunk fits shared memory several times.
  int64_t keys = sizes.keys % 64 == 0 ? 64 : 32;
  auto tokens = static_cast<double>(sizes.chunk), heads = static_cast<double>(sizes.rows * sizes.heads);
  auto allKeys = static_cast<double>(sizes.keys), allValues = static_cast<double>(sizes.values);
  std::optional<WalkBlocks> best;
  auto given = op->getAttrOfType<IntegerAttr>(attrs::walkSegments);
  int64_t fewest = given ? std::max<int64_t>(given.getInt(), 1) : 1, most = given ? fewest : mostSegments;
  for (int64_t segments = fewest; segments <= most; segments *= 2)
    for (int64_t values = mostValues; values >= leastValues; values /= 2) {
      if (sizes.values % values != 0)
        continue;
      int64_t perHead = sizes.keys / keys * (sizes.values / values), walks = segments > 1 ? 2 : 1;
      auto programs = heads * static_cast<double>(perHead * segments), K = static_cast<double>(keys),
           V = static_cast<double>(values), twice = static_cast<double>(walks), cuts = static_cast<double>(segments);
      double bytes = tokens * (bytesOfKeys(sizes, K) + 2 * V) + 2 * K * V;
      double latency = (kIteration + kToken * tokens) * std::ceil(programs / (2 * kMultiprocessors));
      double transfer = bytes * std::max(programs, kMultiprocessors) / (kMultiprocessors * kCacheBytes);
      double iterations = twice * std::ceil(chunksOf(sizes) / cuts);
      // Memory gives and takes everything once a walk, whatever the blocks are.
      double all = heads * chunksOf(sizes) *
                   (twice * tokens * (bytesOfKeys(sizes, allKeys) + 2 * allValues) + 2 * allKeys * allValues);
      double time =
          twice * kLaunch + (cuts - 1) * kFold + std::max(iterations * std::max(latency, transfer), all / kMemoryBytes);
      if (!best || time < best->microseconds)
        best = {keys, values, perHead, segments, time};
    }
  return best;
}

double braid::separateStates(const ScanSizes &sizes) {
  auto K = static_cast<double>(sizes.keys), V = static_cast<double>(sizes.values),
       tokens = static_cast<double>(sizes.chunk);
  // The sums are written and read in f32, in-states written in bf16.
  double bytes = tokens * (bytesOfKeys(sizes, K) + 2 * V) + 10 * K * V, chunks = chunksOf(sizes);
  return 2 * kLaunch +
         chunks * std::max(kScanIteration, static_cast<double>(sizes.rows * sizes.heads) * bytes / kMemoryBytes);
}

bool braid::walksStates(const ScanSizes &sizes, Type gate, Operation *op) {
  if ((sizes.classId != LsmClass::S && sizes.classId != LsmClass::V) || !gate.isF32() || sizes.tokens <= sizes.chunk)
    return false; // a row of one chunk has nothing to walk over
  std::optional<WalkBlocks> blocks = walkBlocks(sizes, op);
  return blocks && (op->hasAttr(attrs::walkSegments) || blocks->microseconds < separateStates(sizes));
}
