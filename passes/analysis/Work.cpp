//===- Work.cpp - FLOPs and bytes of model ops from their shapes --------------------------------------------------===//
#include "passes/analysis/Work.h"

#include "dialects/braid/InnerTraits.h"
#include "dialects/braid/ScanTraits.h"
#include "passes/analysis/StateWalk.h"
#include "passes/analysis/Views.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace braid;

static ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }
static int64_t elements(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }
static int64_t bytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return type.getNumElements() * llvm::divideCeil(type.getElementTypeBitWidth(), 8);
}
static int64_t elements(ValueRange values) {
  int64_t sum = 0;
  for (Value value : values)
    sum += elements(value);
  return sum;
}

//===- Scans ------------------------------------------------------------------------------------------------------===//

namespace {
/// Matrix products of one token and head, in FLOPs: a chunk of C tokens has C (C + 1) / 2 pairs j <= i and C (C - 1) /
/// 2 pairs j < i, so a token has (C + 1) / 2 and (C - 1) / 2 of them; a pair costs 2 K or 2 V.
struct ChunkCosts {
  int64_t C, K, V;
  int64_t lowerK() const { return (C + 1) * K; }
  int64_t lowerV() const { return (C + 1) * V; }
  int64_t strictK() const { return (C - 1) * K; }
  int64_t strictV() const { return (C - 1) * V; } // also: forward or backward substitution on V columns
  int64_t state() const { return 2 * K * V; }
};
} // namespace

static bool isDelta(LsmClass id) { return ScanTraits(id).beta; }
static bool isLowRank(LsmClass id) { return ScanTraits(id).lowRank; }
static bool isElement(LsmClass id) { return ScanTraits(id).elementDecay; }

/// Of q or k [B, T, H, K] and v [B, T, H, V] (or their gradients) in chunks.
template <typename Op> static int64_t inChunks(Op op, Value keys, Value values, auto &&perToken) {
  ArrayRef<int64_t> shape = shapeOf(keys);
  ChunkCosts costs{std::min<int64_t>(op.getChunkSize(), shape[1]), shape[3], shapeOf(values)[3]};
  return shape[0] * shape[1] * shape[2] * perToken(costs);
}

/// Inner steps: `perToken` gets the costs in a mini-batch, and 1 where an S goes on from one to the next.
template <typename Op> static int64_t inMiniBatches(Op op, auto &&perToken) {
  ArrayRef<int64_t> shape = shapeOf(op.getK());
  Value values;
  if constexpr (requires { op.getV(); })
    values = op.getV();
  else
    values = op.getResiduals();
  ChunkCosts costs{std::min<int64_t>(op.getMiniBatch(), shape[1]), shape[3], shapeOf(values)[3]};
  return shape[0] * shape[1] * shape[2] * perToken(costs, InnerTraits(op).momentum);
}

/// x or dm [B, n, H, K, V]: M <- P M + X for the chunks that hold tokens.
static int64_t stateScan(LsmClass id, Value states, int64_t maxDocuments) {
  ArrayRef<int64_t> s = shapeOf(states);
  int64_t chunks = std::max<int64_t>(s[1] - maxDocuments, 1), K = s[3], V = s[4];
  int64_t each = ScanTraits(id).dense ? (2 * K + 1) * K * V : id == LsmClass::I ? K * V : 2 * K * V;
  return s[0] * chunks * s[2] * each;
}

/// Of the tokens of a row: in segments it needs two.
static int64_t walksOf(LsmStateWalkOp walk) {
  auto blocks = walkBlocks(ScanSizes::of(walk, static_cast<int64_t>(walk.getChunkSize())), walk);
  return blocks && blocks->segments > 1 ? 2 : 1;
}

static int64_t walksOf(LsmOutputWalkOp walk) {
  auto blocks = outputBlocksOf(ScanSizes::of(walk, static_cast<int64_t>(walk.getChunkSize())), walk);
  return blocks && blocks->segments > 1 ? 2 : 1;
}

/// dm or m [B, n, H, K, V] of a scan by factors: `read` rows times the state, and times `write` rows the sums.
static int64_t factorScan(Value states, Value read, int64_t write, int64_t maxDocuments) {
  ArrayRef<int64_t> s = shapeOf(states);
  int64_t chunks = std::max<int64_t>(s[1] - maxDocuments, 1), rows = shapeOf(read)[3] + write;
  return s[0] * chunks * s[2] * (2 * rows + 1) * s[3] * s[4];
}

/// P m + x for states or transitions of segments; a dense P is [.., K, K].
static int64_t applied(Value p, Value x) {
  ArrayRef<int64_t> factor = shapeOf(p);
  return elements(x) * (factor.size() == 5 ? 2 * factor[3] + 1 : 2);
}

static int64_t scanFlops(Operation *op, int64_t maxDocuments) {
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([](LsmChunkStateOp s) {
        return inChunks(s, s.getK(), s.getV(), [&](ChunkCosts c) {
          // K^T V; delta: A = K K^T, (I + A)^-1 applied to V and K, K^T W.
          int64_t delta = 2 * c.strictK() + c.strictV() + 2 * c.K * c.K;
          // Low rank: A_ak, A_ab, A_ak V, (I - A_ab)^-1 applied to that and to A, B^T of both.
          int64_t low = 3 * c.strictK() + 2 * c.strictV() + c.state() + 2 * c.K * c.K;
          if (isElement(s.getClassId()))
            return 2 * c.state();
          return c.state() + (isDelta(s.getClassId()) ? delta : isLowRank(s.getClassId()) ? low : 0);
        });
      })
      .Case([](LsmChunkFactorsOp s) {
        return inChunks(s, s.getK(), s.getV(), [&](ChunkCosts c) {
          // delta: A = K K^T, (I + A)^-1 applied to V and K. Low rank: A_ak, A_ab, A_ak V, (I - A_ab)^-1 applied to that and to A.
          return isDelta(s.getClassId()) ? 2 * c.strictK() + c.strictV() : 3 * c.strictK() + 2 * c.strictV();
        });
      })
      .Case([](LsmChunkInverseOp s) {
        // A = K K^T, and a triangular system with C right sides.
        return inChunks(s, s.getK(), s.getK(), [](ChunkCosts c) { return c.strictK() + c.C * c.C / 3; });
      })
      .Case([](LsmChunkWalkFactorsOp s) {
        // A, Q K^T, (I + A)^-T applied to the keys that write, and scores times the inverse.
        return inChunks(s, s.getK(), s.getK(),
                        [](ChunkCosts c) { return 2 * c.strictK() + c.lowerK() + c.C * c.C / 3; });
      })
      .Case([](LsmFactorWalkOp s) {
        // K M, Q M, what a chunk adds to the state and decays it by, and scores times what is left of V.
        ScanSizes sizes = ScanSizes::of(s);
        ChunkCosts c{std::min(sizes.chunk, sizes.tokens), sizes.keys, sizes.values};
        return sizes.rows * sizes.tokens * sizes.heads * (3 * c.state() + c.lowerV() + 2 * c.K * c.V / c.C);
      })
      .Case([](LsmChunkOutputOp o) {
        return inChunks(o, o.getQ(), o.getV(), [&](ChunkCosts c) {
          if (o.getWritten()) // Q K^T, S U, Q M; low rank: Q B^T, A_qb Z
            return c.state() + (isLowRank(o.getClassId()) ? 2 : 1) * (c.lowerK() + c.lowerV());
          // Q K^T, S V, Q M; delta: A, K M, substitution.
          int64_t delta = c.strictK() + c.state() + c.strictV();
          // Low rank: Q B^T, A_ak, A_ab, A_ak V, A M, substitution, A_qb Z.
          int64_t low = c.lowerK() + 2 * c.strictK() + 2 * c.strictV() + c.state() + c.lowerV();
          if (isElement(o.getClassId()))
            return c.state() + 3 * c.K * c.V;
          return c.lowerK() + c.lowerV() + c.state() +
                 (isDelta(o.getClassId())     ? delta
                  : isLowRank(o.getClassId()) ? low
                                              : 0);
        });
      })
      .Case([](LsmChunkOutputGradStateOp g) {
        return inChunks(g, g.getQ(), g.getV(), [&](ChunkCosts c) {
          // Q^T dO; delta: Q K^T, S^T dO, A, substitution, K^T dR.
          int64_t delta = c.lowerK() + c.lowerV() + c.strictK() + c.strictV() + c.state();
          // Low rank: Q B^T, its transpose times dO, A_ab, substitution, A^T dH. Elements: an outer product and a
          // decay.
          if (isElement(g.getClassId()))
            return 4 * c.K * c.V;
          return c.state() + (isDelta(g.getClassId()) || isLowRank(g.getClassId()) ? delta : 0);
        });
      })
      .Case([](LsmChunkOutputFactorsOp g) {
        // Q K^T, or Q B^T; times what reads.
        return inChunks(g, g.getQ(), g.getV(), [&](ChunkCosts c) { return 2 * c.lowerK(); });
      })
      .Case([](LsmChunkGradOp g) {
        return inChunks(g, g.getQ(), g.getV(), [&](ChunkCosts c) {
          // S = Q K^T, dS = dO V^T, dV = S^T dO + K dX, dQ = dS K + dO M^T, dK = dS^T Q + V dX^T; delta: A, R from K M
          // and a substitution, dR from one, dA = dR R^T, K and K^T with dA, dR M^T.
          int64_t delta = 3 * c.strictK() + 3 * c.strictV() + 2 * c.state();
          // Low rank: all of it once more for b, and for a but its scores with the values; two substitutions; Z, dZ.
          int64_t low = 3 * c.lowerK() + 6 * c.strictK() + 2 * c.lowerV() + 6 * c.strictV() + 4 * c.state();
          // Decays of value channels: O once more, from inside the chunk and from its state; their gradient is of O dO.
          int64_t both = c.strictV() + c.state();
          if (isElement(g.getClassId()))
            return 14 * c.K * c.V;
          return 3 * c.lowerK() + 2 * c.lowerV() + 3 * c.state() +
                 (isDelta(g.getClassId())                 ? delta
                  : isLowRank(g.getClassId())             ? low
                  : ScanTraits(g.getClassId()).valueDecay ? both
                                                          : 0);
        });
      })
      .Case([&](LsmStateScanOp s) { return stateScan(s.getClassId(), s.getX(), maxDocuments); })
      .Case([&](LsmStateScanGradOp s) { return stateScan(s.getClassId(), s.getDm(), maxDocuments); })
      .Case([&](LsmStateWalkOp s) {
        int64_t products = inChunks(s, s.getK(), s.getV(), [](ChunkCosts c) { return c.state(); });
        return walksOf(s) * products + stateScan(s.getClassId(), s.getM(), maxDocuments);
      })
      .Case([&](LsmOutputWalkOp s) {
        // Q K^T, S V, Q M, and what a chunk adds to the state and decays it by; delta: K M, T times what is left.
        return inChunks(s, s.getQ(), s.getV(), [&](ChunkCosts c) {
          int64_t delta = s.getInverse() ? c.state() + c.lowerV() : 0;
          return c.lowerK() + c.lowerV() + (1 + walksOf(s)) * c.state() + 2 * c.K * c.V / c.C + delta;
        });
      })
      .Case(
          [&](LsmFactorScanOp s) { return factorScan(s.getM(), s.getRead(), shapeOf(s.getWrite())[3], maxDocuments); })
      .Case([&](LsmFactorScanGradOp s) {
        return factorScan(s.getDx(), s.getRead(), 2 * shapeOf(s.getRead())[3], maxDocuments);
      })
      .Case([&](LsmSegmentScanOp s) {
        int64_t states = stateScan(s.getClassId(), s.getX(), maxDocuments);
        ArrayRef<int64_t> x = shapeOf(s.getX());
        return s.getTransition() && ScanTraits(s.getClassId()).dense ? states + states / x[4] * x[3] : states;
      })
      .Case([](LsmFoldOp f) { return applied(f.getP(), f.getX()); })
      .Case([](LsmFoldGradOp f) { return applied(f.getP(), f.getDx()); })
      .Case([](LsmComposeOp c) {
        return applied(c.getP(), c.getX()) + (c.getTransition() ? applied(c.getP(), c.getTransition()) : 0);
      })
      .Case([](LsmStepOp s) {
        // M <- Theta M + k^T v, o = q M; delta: k M; low rank: b^T (a M).
        ScanTraits traits(s.getClassId());
        int64_t each = 4 + (traits.decay || traits.beta) + traits.valueDecay +
                       (traits.beta      ? 2
                        : traits.lowRank ? 4
                                         : 0);
        return shapeOf(s.getQ())[1] * elements(s.getInitialState()) * each;
      })
      .Case([](LsmInnerStatesOp s) {
        // K B, K^T W for M and for S.
        return inMiniBatches(s, [](ChunkCosts c, int64_t s) { return (2 + s) * c.state(); });
      })
      .Case([](LsmInnerOutputOp o) {
        // Q M, Q S; Q K^T and its product with the steps.
        return inMiniBatches(o, [](ChunkCosts c, int64_t s) { return (1 + s) * c.state() + c.lowerK() + c.lowerV(); });
      })
      .Case([](LsmInnerGradOp g) {
        // K dM, dO M^T, W dM^T, Q^T dO, dZ B^T, K^T dZ, four more with S; Q K^T, dO W^T, dW, dQ, dK inside.
        return inMiniBatches(
            g, [](ChunkCosts c, int64_t s) { return (6 + 4 * s) * c.state() + 3 * c.lowerK() + 2 * c.lowerV(); });
      })
      .Case([](LsmInnerStepOp s) {
        // One token by itself; a row of them, as inner_states and inner_output will do it.
        bool one = shapeOf(s.getK())[1] == 1, reads = InnerTraits(s).readRate;
        return inMiniBatches(s, [&](ChunkCosts c, int64_t s) {
          return one ? (3 + 2 * (s || reads)) * c.state() : (3 + 2 * s) * c.state() + c.lowerK() + c.lowerV();
        });
      })
      .Case([](LsmInnerStepGradOp g) {
        // Not cut in mini-batches yet: inner_states and inner_grad.
        return inMiniBatches(
            g, [](ChunkCosts c, int64_t s) { return (8 + 5 * s) * c.state() + 3 * c.lowerK() + 2 * c.lowerV(); });
      })
      .Default([](Operation *) { return int64_t(0); });
}

//===- Attention --------------------------------------------------------------------------------------------------===//

/// Keys that the queries of one head and row see. How many a cache holds is known only while running: only the keys
/// that the call itself brings are counted.
static int64_t pairs(int64_t tokens, int64_t prefix, int64_t window) {
  int64_t sum = 0;
  for (int64_t t = 0; t < tokens; ++t)
    sum += window ? std::min(window, prefix + t + 1) : prefix + t + 1;
  return sum;
}

/// Keys before the first query: with a coordinate along sp, those of the rank in the middle.
template <typename Op> static int64_t prefixOf(Op op) {
  return op.getCoordinate() ? op.getPrefix() + (op.keyCount() - op.getPrefix() - shapeOf(op.getQ())[1]) / 2
                            : op.getPrefix();
}

template <typename Op> static bool isSharedKey(Op op, Value value) {
  return !op.getShared().empty() && value == op.getShared()[1];
}

/// 2 D per pair and matrix product q k^T, 2 V of p v; the gradient has three of the first kind, two of the second. A block of a ring is seen by every query.
template <typename Op> static int64_t attention(Op op, int64_t ofKeys, int64_t ofValues, int64_t prefix) {
  ArrayRef<int64_t> q = shapeOf(op.getQ());
  int64_t keys = op.keyCount();
  bool earlier = keys <= static_cast<int64_t>(op.getPrefix());
  int64_t met = earlier ? q[1] * (op.getWindow() ? std::min<int64_t>(op.getWindow(), keys) : keys)
                        : pairs(q[1], prefix, op.getWindow());
  int64_t features = q[3] + (op.getShared().empty() ? 0 : shapeOf(op.getShared()[0])[3]);
  return q[0] * q[2] * met * 2 * (features * ofKeys + shapeOf(op.getV())[3] * ofValues);
}

//===- Row-wise ops -----------------------------------------------------------------------------------------------===//

/// Arithmetic of a row-wise op per element of its widest value.
static int64_t rowsFlops(StringRef op) {
  return llvm::StringSwitch<int64_t>(op)
      .Cases({"braid.add", "braid.mul", "braid.scale", "braid.bias", "braid.weighted"}, 1)
      .Cases({"braid.activation", "braid.softmax", "braid.rms_norm", "braid.log_decay", "braid.moe.router_loss"}, 4)
      .Cases({"braid.log_sigmoid", "braid.layer_norm"}, 6)
      .Cases({"braid.l2_norm", "braid.rope", "braid.moe.renormalize"}, 3)
      .Case("braid.gated_norm", 8)
      .Cases({"braid.moe.route", "braid.moe.route_weights", "braid.dot"}, 2)
      .Default(0);
}

static int64_t widest(Operation *op) {
  int64_t most = 0;
  for (Value value : llvm::concat<Value>(llvm::to_vector(op->getOperands()), llvm::to_vector<4>(op->getResults())))
    most = std::max(most, elements(value));
  return most;
}

//===- All ops ----------------------------------------------------------------------------------------------------===//

/// x times weights [.., in, out]: 2 in out per row.
static int64_t products(int64_t rows, ValueRange weights, int64_t groups = 1) {
  return 2 * rows * (elements(weights) / groups);
}

int64_t braid::flopsOf(Operation *op, int64_t maxDocuments) {
  auto rowsOf = [](Value x) { return shapeOf(x)[0] * shapeOf(x)[1]; };
  auto logits = [&](Value x, Value head) { return rowsOf(x) * (elements(head) / shapeOf(x)[2]); };
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([&](LinearOp l) { return products(rowsOf(l.getX()), l.getWeights()); })
      .Case([&](LinearAddOp l) { return products(rowsOf(l.getX()), l.getWeight()) + elements(l.getY()); })
      .Case([&](HeadLinearOp l) { return products(rowsOf(l.getX()), l.getWeight()); })
      .Case([&](HeadLinearGradWeightOp l) { return products(rowsOf(l.getX()), l.getDweight()); })
      .Case([&](LinearGradDataOp l) { return products(rowsOf(l.getDx()), l.getWeights()); })
      .Case([&](LinearGradWeightOp l) { return products(rowsOf(l.getX()), l.getDws()); })
      .Case([&](MoeGroupedLinearOp l) {
        return products(rowsOf(l.getX()), l.getWeights(), shapeOf(l.getOffsets())[0] - 1);
      })
      .Case([&](MoeGroupedLinearGradDataOp l) {
        return products(rowsOf(l.getDx()), l.getWeights(), shapeOf(l.getOffsets())[0] - 1);
      })
      .Case([&](MoeGroupedLinearGradWeightOp l) {
        return products(rowsOf(l.getX()), l.getDws(), shapeOf(l.getOffsets())[0] - 1);
      })
      .Case([](AttnCausalOp a) { return a.getPast() ? 0 : attention(a, 1, 1, a.getCache() ? 0 : prefixOf(a)); })
      .Case([](AttnCausalGradOp a) { return attention(a, 3, 2, prefixOf(a)); })
      .Case([](AttnSinkGradOp s) { return 2 * elements(s.getO()); })
      .Case([](AttnMergeOp m) { return 3 * elements(m.getO()); })
      .Case([](ShortConvOp c) { return 2 * elements(c.getX()) * shapeOf(c.getWeight())[1]; })
      .Case([](ShortConvGradOp c) { return 4 * elements(c.getX()) * shapeOf(c.getWeight())[1]; })
      .Case(
          [](MoeCombineOp c) { return elements(c.getY()) * (c.getWeights() ? 2 : 1) * shapeOf(c.getInverse()).back(); })
      .Case([](MoeCombineGradOp c) { return 3 * elements(c.getDrows()); })
      .Case([](CrossEntropyOp c) { return 4 * elements(c.getLogits()); })
      .Case([](CrossEntropyGradOp c) { return 4 * elements(c.getLogits()); })
      .Case([&](LinearCrossEntropyOp c) { // without its sum it counts labels
        return c.getSum().use_empty() ? elements(c.getLabels())
                                      : (2 * shapeOf(c.getX())[2] + 4) * logits(c.getX(), c.getWeight());
      })
      .Case(
          [&](LinearCrossEntropyGradOp c) { return (6 * shapeOf(c.getX())[2] + 8) * logits(c.getX(), c.getWeight()); })
      .Case([&](LinearLossPartOp p) { return (2 * shapeOf(p.getX())[2] + 4) * logits(p.getX(), p.getWeight()); })
      .Case([&](LinearScoresOp s) { return (2 * shapeOf(s.getX())[2] + 6) * logits(s.getX(), s.getWeight()); })
      .Case([&](LinearLossPartGradOp p) { return (6 * shapeOf(p.getX())[2] + 4) * logits(p.getX(), p.getWeight()); })
      .Case([](EmbedGradOp e) { return elements(e.getDy()); })
      .Case([](SumOp s) { return elements(s.getX()); })
      .Case([](SumSquaresOp s) { return 2 * elements(s.getXs()); })
      .Case([](AdamwOp a) { return 14 * elements(a.getParameter()); })
      // Every cotangent meets the derivative of what it came from, which is about the forward again.
      .Case([](RowsGradOp g) { return 3 * rowsFlops(g.getOp()) * widest(g); })
      .Case([](AddOp a) { return elements(a->getResult(0)) * (int64_t(a.getSources().size()) - 1); })
      .Default([&](Operation *op) {
        return isa<RowsOpInterface>(op) ? rowsFlops(op->getName().getStringRef()) * widest(op)
                                        : scanFlops(op, maxDocuments);
      });
}

/// Values with one part per chunk: states and transitions.
static bool holdsChunks(Operation *op, Value value) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](LsmChunkStateOp s) { return value == s.getX() || value == s.getP(); })
      .Case([&](LsmStateScanOp s) { return value == s.getX() || value == s.getP() || value == s.getM(); })
      .Case([&](LsmStateWalkOp s) { return value == s.getM(); })
      .Case([&](LsmSegmentScanOp s) { return value == s.getX() || value == s.getP(); })
      .Case([&](LsmStateScanGradOp s) { return value == s.getDm() || value == s.getP() || value == s.getDx(); })
      .Case([&](LsmChunkFactorsOp s) { return llvm::is_contained(s->getResults(), value); })
      .Case([&](LsmChunkWalkFactorsOp s) { return llvm::is_contained(s->getResults(), value); })
      .Case([&](LsmFactorWalkOp s) {
        return llvm::is_contained({s.getQueries(), s.getKeys(), s.getWrite(), s.getScores(), s.getDecay()}, value);
      })
      .Case([&](LsmChunkInverseOp s) { return value == s.getInverse() || value == s.getSums(); })
      .Case([&](LsmOutputWalkOp s) { return value && (value == s.getInverse() || value == s.getSums()); })
      .Case([&](LsmFactorScanOp s) {
        return llvm::is_contained({s.getU(), s.getWrite(), s.getRead(), s.getDecay(), s.getM(), s.getWritten()}, value);
      })
      .Case([&](LsmFactorScanGradOp s) {
        return llvm::is_contained({s.getG(), s.getD(), s.getWrite(), s.getRead(), s.getDecay(), s.getDx()}, value);
      })
      .Case([&](LsmChunkOutputFactorsOp g) { return value == g.getRead() || value == g.getG() || value == g.getD(); })
      .Case([&](LsmChunkOutputOp o) { return value == o.getM() || value == o.getWritten(); })
      .Case([&](LsmChunkOutputGradStateOp g) { return value == g.getDm(); })
      .Case([&](LsmChunkGradOp g) { return value == g.getM() || value == g.getDx(); })
      .Case<LsmInnerStatesOp, LsmInnerOutputOp, LsmInnerGradOp>([&](auto inner) { return value == inner.getStates(); })
      .Default([](Operation *) { return false; });
}

/// Bytes of an operand or a result that the op needs, where that is not all of them.
static int64_t neededBytes(Operation *op, Value value, bool isResult, int64_t maxDocuments) {
  int64_t all = bytesOf(value);
  // States of chunks without tokens are neither written nor read.
  if (holdsChunks(op, value)) {
    int64_t chunks = shapeOf(value)[1];
    return all / chunks * std::max<int64_t>(chunks - maxDocuments, 1);
  }
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([&](LsmStateWalkOp s) {
        return llvm::is_contained({s.getK(), s.getV(), s.getLogDecay()}, value) ? walksOf(s) * all : all;
      })
      .Case([&](LsmOutputWalkOp s) {
        bool twice = llvm::is_contained({s.getK(), s.getV(), s.getLogDecay()}, value);
        return twice && !isResult ? walksOf(s) * all : all;
      })
      // Rows of the table that tokens name, at most one each.
      .Case([&](EmbedOp e) { return value == e.getTable() ? std::min(all, bytesOf(e.getResult())) : all; })
      // What others gave to the table stays where it is, but for such rows.
      .Case([&](EmbedGradOp e) {
        bool ofTable = e.getTableSum() && (isResult || value == e.getTableSum());
        return ofTable ? std::min(all, elements(e.getDy()) * (all / elements(value))) : all;
      })
      .Case([&](LastTokenOp l) { return value == l.getX() ? bytesOf(l.getResult()) : all; })
      // The cache stays where it is; rows of x go in.
      .Case([&](AttnAppendOp a) { return isResult                ? bytesOf(a.getX())
                                         : value == a.getCache() ? 0
                                                                 : all; })
      // Of a cache only the rows that this call brought: how many there are is known only while running.
      .Case([&](AttnCausalOp a) {
        bool ofKeys = !isResult && (value == a.getK() || value == a.getV() || isSharedKey(a, value));
        int64_t rows = a.getPast()    ? 0
                       : a.getCache() ? std::min(shapeOf(a.getK())[1], shapeOf(a.getQ())[1])
                                      : a.keyCount();
        return ofKeys ? all / shapeOf(value)[1] * rows : all;
      })
      .Case([&](AttnCausalGradOp a) {
        bool ofKeys = isResult ? value != a.getDq() && (a.getDshared().empty() || value != a.getDshared()[0])
                               : value == a.getK() || value == a.getV() || isSharedKey(a, value) ||
                                     llvm::is_contained(a.getSums(), value);
        return ofKeys ? all / shapeOf(value)[1] * a.keyCount() : all;
      })
      // What is there stays where it is.
      .Case([&](InsertOp i) { return isResult               ? bytesOf(i.getX())
                                     : value == i.getInto() ? 0
                                                            : all; })
      // Experts that no row goes to are not read.
      .Case<MoeGroupedLinearOp, MoeGroupedLinearGradDataOp>([&](auto linear) {
        bool weight = !isResult && llvm::is_contained(linear.getWeights(), value);
        Value rows = linear->getOperand(0);
        return weight ? all / shapeOf(value)[0] * std::min(shapeOf(value)[0], shapeOf(rows)[1]) : all;
      })
      .Case([&](LinearCrossEntropyOp c) {
        return c.getSum().use_empty() && (value == c.getX() || value == c.getWeight() || value == c.getSum()) ? 0 : all;
      })
      // `returned` is the operand itself, `exchange` stands for what ranks need.
      .Case([&](MoeCombineOp c) { return value == c.getReturned() || value == c.getExchange() ? 0 : all; })
      .Default([&](Operation *) { return all; });
}

/// What an op of experts' rows does for those that there are, and for all else.
static void divideRows(Operation *op, Work &work, int64_t maxDocuments) {
  auto tokens = dyn_cast<TokenOpInterface>(op);
  if (!tokens || isa<RowsOpInterface>(op))
    return;
  auto see = [&](Value value, TokenKind kind, bool isResult) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type || (!isResult && isZero(value)))
      return;
    if (kind == TokenKind::rows && type.getRank() >= 3)
      work.rows = std::max(work.rows, type.getDimSize(0) * type.getDimSize(1));
    else
      work.fixed += neededBytes(op, value, isResult, maxDocuments);
  };
  llvm::SmallDenseSet<Value> read;
  for (OpOperand &operand : op->getOpOperands())
    if (read.insert(operand.get()).second)
      see(operand.get(), tokens.operandKind(operand.getOperandNumber()), false);
  for (OpResult result : op->getResults())
    see(result, tokens.resultKind(result.getResultNumber()), true);
  if (work.rows == 0)
    work.fixed = 0;
  work.fixed = std::min(work.fixed, work.bytes);
}

Work braid::workOf(ArrayRef<Operation *> unit, int64_t maxDocuments) {
  Work work;
  llvm::SmallPtrSet<Operation *, 16> members(unit.begin(), unit.end());
  llvm::SmallDenseSet<Value> read;
  for (Operation *op : unit) {
    work.flops += flopsOf(op, maxDocuments);
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()) && !members.contains(operand.getDefiningOp()) && !isZero(operand) &&
          read.insert(operand).second)
        work.bytes += neededBytes(op, operand, /*isResult=*/false, maxDocuments);
    for (Value result : op->getResults())
      if (isa<RankedTensorType>(result.getType()) &&
          (unit.size() == 1 ||
           llvm::any_of(result.getUsers(), [&](Operation *user) { return !members.contains(user); })))
        work.bytes += neededBytes(op, result, /*isResult=*/true, maxDocuments);
  }
  if (unit.size() == 1)
    divideRows(unit.front(), work, maxDocuments);
  return work;
}

std::string braid::workName(ArrayRef<Operation *> unit) {
  std::string name;
  for (Operation *op : unit) {
    StringRef own = op->getName().stripDialect();
    std::string text = own.str();
    if (auto grad = dyn_cast<RowsGradOp>(op))
      text = grad.getOp().drop_front(StringRef("braid.").size()).str() + "_grad";
    name += (name.empty() ? "" : " + ") + text;
  }
  return name;
}
