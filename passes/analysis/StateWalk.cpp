//===- StateWalk.cpp - walks over chunks or kernels of all at once: bytes, programs, iterations ---------------------===//
#include "passes/analysis/StateWalk.h"

#include "passes/analysis/DecayRange.h"

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

/// Outputs of chunks move less than memory could: their programs load, wait, multiply and store.
static constexpr double kOutputBytes = 2e6;
/// An iteration that makes outputs: FLOPs of a multiprocessor in a microsecond, with the formulas beside products; of a program alone two barriers and
/// products that wait for each other.
static constexpr double kFlops = 4.5e6, kOutputIteration = 0.4, kOutputToken = 0.01;
/// Of a delta rule: what is left of values, the product by T, and U's decays wait for each other too.
static constexpr double kDeltaIteration = 0.2, kDeltaToken = 0.004;
/// An iteration of a scan by factors, by mma of the rows of two warps: 0.25 to 0.27 ms for 129 chunks of 64 tokens.
static constexpr double kFactorIteration = 0.4, kFactorToken = 0.025;
/// And, a key channel, running sums, exponentials and what is handed on of queries and keys that decay by channels.
static constexpr double kOutputChannel = 0.013;

/// Bytes of a token's keys and gates, for so many keys.
static double bytesOfKeys(const ScanSizes &sizes, double keys) {
  return ScanTraits(sizes.classId).vectorDecay ? 6 * keys : 2 * keys + 4;
}
static double chunksOf(const ScanSizes &sizes) {
  return static_cast<double>(llvm::divideCeil(sizes.tokens, sizes.chunk));
}

static constexpr int64_t kMostSegments = 16;
/// Of segments, those to be compared: as many as `op` says, if it does.
static std::pair<int64_t, int64_t> segmentsOf(Operation *op) {
  if (auto given = op->getAttrOfType<IntegerAttr>(attrs::walkSegments))
    return {std::max<int64_t>(given.getInt(), 1), std::max<int64_t>(given.getInt(), 1)};
  return {1, kMostSegments};
}

/// The best of so many segments.
static std::optional<WalkBlocks> walkBlocks(const ScanSizes &sizes, int64_t fewest, int64_t most) {
  constexpr int64_t mostValues = 128, leastValues = 16, mostTokens = 128, products = 16;
  if (sizes.keys % 32 != 0 || sizes.values % leastValues != 0 || sizes.chunk > mostTokens ||
      sizes.chunk % products != 0)
    return std::nullopt;
  // Four warps are a group of wgmma, and what they have of a chunk fits shared memory several times.
  int64_t keys = sizes.keys % 64 == 0 ? 64 : 32;
  auto tokens = static_cast<double>(sizes.chunk), heads = static_cast<double>(sizes.rows * sizes.heads);
  auto allKeys = static_cast<double>(sizes.keys), allValues = static_cast<double>(sizes.values);
  std::optional<WalkBlocks> best;
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

std::optional<WalkBlocks> braid::walkBlocks(const ScanSizes &sizes, Operation *op) {
  auto [fewest, most] = segmentsOf(op);
  return ::walkBlocks(sizes, fewest, most);
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

/// Values of a group of four warps, which multiply from shared memory.
static constexpr int64_t kGroupValues = 64;
/// Between products of a delta rule three more tiles of tokens by values are in registers.
static constexpr int64_t kMostDeltaTokens = 64;

std::optional<OutputBlocks> braid::outputBlocksOf(const ScanSizes &sizes, Operation *op) {
  // Warps have 16 tokens and 16 values each; a thread has registers for so many keys, a block room for the chunks of two iterations.
  constexpr int64_t leastTokens = 32, mostTokens = 128, mostKeys = 128, products = 16, roomBytes = 216 * 1024;
  // Decays of the tokens that a thread has, and of those that they meet, are more than what is left beside scores, outputs and states of 128 (284 bytes spilled).
  constexpr int64_t mostGatedTokens = 64;
  bool gated = ScanTraits(sizes.classId).decay && sizes.classId != LsmClass::S0;
  bool delta = ScanTraits(sizes.classId).beta;
  // Under decays of channels blocks of these lie in the rows of warps, too, and queries and keys in shared memory once more, decayed. Factors are made before.
  bool factors = ScanTraits(sizes.classId).walksByFactors(),
       channels = ScanTraits(sizes.classId).vectorDecay && !factors;
  int64_t tiles = (factors ? 3 : 2) * sizes.keys + (delta ? 2 : 1) * sizes.chunk,
          chunkBytes = sizes.chunk * (2 * tiles + 4 * (channels ? sizes.keys : 1)),
          madeBytes = factors ? 0 : 2 * sizes.chunk * (sizes.chunk + (channels ? 2 * sizes.keys : 0));
  int64_t blockBytes = 2 * chunkBytes + madeBytes;
  if (blockBytes > roomBytes || sizes.chunk < leastTokens ||
      sizes.chunk > (delta   ? kMostDeltaTokens
                     : gated ? mostGatedTokens
                             : mostTokens) ||
      !llvm::isPowerOf2_64(static_cast<uint64_t>(sizes.chunk)) || sizes.values % sizes.chunk != 0 ||
      sizes.keys % (channels ? sizes.chunk : products) != 0 || sizes.keys > mostKeys)
    return std::nullopt;
  auto C = static_cast<double>(sizes.chunk), K = static_cast<double>(sizes.keys),
       heads = static_cast<double>(sizes.rows * sizes.heads), allValues = static_cast<double>(sizes.values);
  // Beside queries.
  double keyBytes = factors ? 4 * K + 4 * K / C : gated ? bytesOfKeys(sizes, K) : 2 * K;
  std::optional<OutputBlocks> best;
  auto [fewest, most] = segmentsOf(op);
  if (delta) // what a segment does to a state is a matrix
    fewest = most = 1;
  for (int64_t segments = fewest; segments <= most; segments *= 2) {
    int64_t perHead = sizes.values / sizes.chunk;
    auto cuts = static_cast<double>(segments);
    double programs = heads * static_cast<double>(perHead) * cuts, chunks = chunksOf(sizes);
    double flops = 2 * C * (2 * K * C + C * K + C * C), bytes = C * (keyBytes + 2 * K + 4 * C);
    double alone = kOutputIteration + kOutputToken * C + (channels ? kOutputChannel * K : 0);
    if (delta) {
      flops += factors ? 0 : 2 * C * C * (K + C); // keys' product stands for that of scores
      bytes += 2 * C * C;
    }
    if (delta && !factors)
      alone += kDeltaIteration + kDeltaToken * C;
    // Two warps, as a scan by factors has, of twice as many products as its.
    if (factors && sizes.chunk < kGroupValues)
      alone = kFactorIteration + kFactorToken * C;
    double together = (channels || factors) && 2 * blockBytes > roomBytes ? 1 : 2;
    double rounds = std::ceil(programs / (together * kMultiprocessors));
    double busy = std::max(programs / kMultiprocessors, 1.0);
    double each = std::max({alone * rounds, busy * flops / kFlops, busy * bytes / kCacheBytes});
    double all = heads * chunks * C * (keyBytes + 2 * K + 4 * allValues + (delta ? 2 * C : 0));
    double time = kLaunch + std::max(std::ceil(chunks / cuts) * each, all / kMemoryBytes);
    std::optional<WalkBlocks> ends;
    if (segments > 1) { // the walk for what they leave reads keys and values
      if (ends = ::walkBlocks(sizes, segments, segments); !ends)
        continue;
      double blocks = static_cast<double>(ends->perHead) * heads * (cuts - 1);
      double endsEach = (kIteration + kToken * C) * std::ceil(blocks / (2 * kMultiprocessors));
      time += kLaunch + cuts * kFold +
              std::max(std::ceil(chunks / cuts) * endsEach,
                       (1 - 1 / cuts) * heads * chunks * C * (keyBytes + 2 * allValues) / kMemoryBytes);
    }
    if (!best || time < best->microseconds)
      best = {sizes.chunk, perHead, segments, time, ends};
  }
  return best;
}

/// The best with chunks of at most `sizes.chunk` tokens.
static std::optional<OutputBlocks> outputBlocks(const ScanSizes &sizes, Operation *op, bool wgmma) {
  // Under decays of channels a thread has 241 to 255 registers where groups of four warps multiply from shared memory. Fragments of right operands are up to 28 more (S:
  // 222, 250): of class V 36 to 2300 bytes would be spilled.
  bool factors = ScanTraits(sizes.classId).walksByFactors(),
       channels = ScanTraits(sizes.classId).vectorDecay && !factors;
  if (channels && !wgmma)
    return std::nullopt;
  std::optional<OutputBlocks> best;
  ScanSizes now = sizes;
  // What was chosen for the tiles of other kernels is no bound; what was given is. Longer chunks decay further: where nothing proves that they are mild, some are not, and
  // the way of strong decays takes seven times as long (KDA as it is initialised on an H200, chunks of 64: 1.5 ms a layer, of mild decays 0.23).
  if (factors && op->hasAttr(attrs::chunkCosts) && provesMildDecay(op, kMostDeltaTokens, -kMostSpanOfBf16))
    now.chunk = std::max(now.chunk, kMostDeltaTokens);
  while (now.chunk >= now.tokens)
    now.chunk /= 2;
  for (int64_t least = channels ? 64 : 16; now.chunk >= least; now.chunk /= 2)
    if (std::optional<OutputBlocks> blocks = outputBlocksOf(now, op);
        blocks && (!best || blocks->microseconds < best->microseconds))
      best = blocks;
  return best;
}

/// Microseconds of lsm.chunk_inverse, or of lsm.chunk_walk_factors.
static double inverses(const ScanSizes &sizes, int64_t chunk) {
  auto K = static_cast<double>(sizes.keys), C = static_cast<double>(chunk);
  double bytes = bytesOfKeys(sizes, K) + 4 + 2 * C;
  if (ScanTraits(sizes.classId).walksByFactors())
    bytes += 2 * K + 6 * K + 4 * K / C;
  return kLaunch + static_cast<double>(sizes.rows * sizes.tokens * sizes.heads) * bytes / kOutputBytes;
}

/// Microseconds of factors, the scan by them, and outputs.
static double separateFactors(const ScanSizes &sizes) {
  auto K = static_cast<double>(sizes.keys), V = static_cast<double>(sizes.values),
       tokens = static_cast<double>(sizes.chunk), heads = static_cast<double>(sizes.rows * sizes.heads);
  double made = 4 * K + 2 * V, read = bytesOfKeys(sizes, K); // of a token, beside values
  double bytes = tokens * (2 * read + 4 + 2 * V + made + 2 * K + 4 * V) + 2 * K * V;
  double iteration = kFactorIteration + kFactorToken * tokens;
  double scan = std::max(iteration, heads * (tokens * (made + 2 * V) + 2 * K * V) / kMemoryBytes);
  return 3 * kLaunch + chunksOf(sizes) * (scan + heads * bytes / kOutputBytes);
}

std::optional<OutputBlocks> braid::walksOutputs(const ScanSizes &sizes, Type gate, Operation *op, bool wgmma) {
  ScanTraits traits(sizes.classId);
  if (traits.lowRank || traits.valueDecay || traits.elementDecay || (gate && !gate.isF32()) ||
      sizes.tokens <= sizes.chunk)
    return std::nullopt;
  std::optional<OutputBlocks> blocks = outputBlocks(sizes, op, wgmma);
  if (!blocks || op->hasAttr(attrs::walkSegments))
    return blocks;
  if (traits.beta)
    return blocks->microseconds + inverses(sizes, blocks->tokens) < separateFactors(sizes) ? blocks : std::nullopt;
  double states = separateStates(sizes);
  if (walksStates(sizes, gate, op))
    states = std::min(states, walkBlocks(sizes, op)->microseconds);
  auto K = static_cast<double>(sizes.keys), V = static_cast<double>(sizes.values),
       tokens = static_cast<double>(sizes.chunk);
  double bytes = tokens * (bytesOfKeys(sizes, K) + 2 * K + 4 * V) + 2 * K * V;
  double outputs = kLaunch + static_cast<double>(sizes.rows * sizes.heads) * chunksOf(sizes) * bytes / kOutputBytes;
  return blocks->microseconds < states + outputs ? blocks : std::nullopt;
}
