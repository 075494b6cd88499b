//===- Sequence.h - ops that cross tokens, when the tokens of a row are divided along `sp` ------------------------===//
//
// Rank r of the axis holds tokens [r T, (r + 1) T) of every row (or of every token slice of it). What an op needs from
// the tokens before them travels: states as segments (lsm-family 2.3), keys and values, or the last rows of a
// convolution's input. Ops are built from their logical form and local operands; gradients have their own exchange.
//
//   scan, ring        M = shift(P M + X), one hop per rank, P never sent: (ranks - 1) X, as many hops
//   scan, all_gather  gather (P, X), every rank folds what is before it: (ranks - 1) (P + X), once
//   scan, scan        neighbours at distance 1, 1, 2, 4, .. compose their segments: log2(ranks) (P + X), as many hops
//   inner step        the same where its states compose; through a norm only the ring, rank after rank
//   attention         gather K and V; a window that ends earlier takes the ranks it reaches only; ring: block by block
//   convolution       the last taps - 1 rows of the previous rank
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_SHARD_SEQUENCE_H
#define PASSES_SHARD_SEQUENCE_H

#include "dialects/braid/BraidDialect.h"
#include "dialects/braid/PassAttributes.h"
#include "passes/analysis/Machine.h"

namespace braid {

/// {axis, coordinate, algorithm}: an op of a layer whose tokens are cut into slices first and divided along the axis
/// then, slice by slice (slice-major layout). coordinate: number of the layer's argument that holds the rank's place.
/// algorithm: how a row that turns out to be one slice is exchanged (absent: automatic). Written by ApplySharding,
/// renumbered by JoinLayers, consumed by ExpandSlices.
inline constexpr llvm::StringLiteral kSequenceAttr = attrs::sequence;
enum class SpAlgorithm { automatic, ring, allGather, scan };
struct SequencePlace {
  std::string axis;
  int64_t ranks; ///< of the axis
  mlir::BlockArgument coordinate;
  SpAlgorithm algorithm;
};
/// What kSequenceAttr of an op says. Fails with an error on the op where its function has no such argument [1] i32 or the
/// mesh no such axis.
llvm::FailureOr<SequencePlace> sequencePlace(mlir::Operation *op);
/// Of every op of a module that carries it.
llvm::LogicalResult checkSequencePlaces(mlir::ModuleOp module);

/// "auto", "ring", "all_gather", "scan".
std::optional<SpAlgorithm> parseSpAlgorithm(llvm::StringRef word);
llvm::StringRef spAlgorithmName(SpAlgorithm algorithm);

/// What the ranks of the axis send and compute for one scan, and what that takes on a machine. Sizes are those of one rank.
struct SpCost {
  int64_t bytes = 0; ///< sent by the rank that sends most
  int64_t hops = 0; ///< messages that wait for each other
  double seconds = 0;
};
/// p, x: types of a segment [1, B, H, ..]. `algorithm` is not automatic.
SpCost spCost(SpAlgorithm algorithm, int64_t ranks, mlir::RankedTensorType p, mlir::RankedTensorType x,
              const Machine &machine);
/// The cheapest of the three; in a draw the first of ring, all_gather, scan.
SpAlgorithm cheapest(int64_t ranks, mlir::RankedTensorType p, mlir::RankedTensorType x, const Machine &machine);

/// Seconds that ranks exchange for an op that carries kSequenceAttr if its tokens are cut into slices: `fixed` for each
/// slice, `tokens` for all of them together. Walks that they wait for are counted, too.
struct SliceExchange {
  double fixed = 0, tokens = 0;
};
SliceExchange sliceExchange(mlir::Operation *op, const Machine &machine);

/// What holds for a module before anything is sharded: how fast its ranks are, which states enter ops as zeros whoever calls, and which that
/// leave them are read by anybody. In training both are at their border of the row, and nothing needs to travel for
/// them.
class SequenceFacts {
public:
  explicit SequenceFacts(mlir::ModuleOp module);
  bool isZero(mlir::Value operand) const { return zeros.contains(operand); }
  bool isRead(mlir::Value result) const { return !result.use_empty() && !unread.contains(result); }

  const Machine machine;

private:
  llvm::DenseSet<mlir::Value> zeros, unread;
};

/// Collectives that bring a function what it has received before (of the same values, over the same axis) are taken out.
void mergeExchanges(mlir::ModuleOp module);

/// Whether keys and values that are `made` of a `latent`, [B, T, ..] each, are exchanged as this is: sending is slower than multiplying. `parts`: ranks that
/// their heads are yet to be divided among.
bool latentsTravel(mlir::Value latent, mlir::ValueRange made, int64_t parts, int64_t ranks, const Machine &machine);
/// Gathers such latents in the place of keys and values, scatters their cotangents in the place of theirs.
void gatherLatents(mlir::ModuleOp module);

/// The exchanges of all ops that carry kSequenceAttr, whose tokens are those of a slice by now.
llvm::LogicalResult exchangeSlices(mlir::ModuleOp module);

/// Lowers the ops of one function. Every method takes a logical op and its local operands, in the op's order (the token
/// dimension is already T), and returns one local value per result. States that nobody reads are this rank's own.
class SequenceSharder {
public:
  /// `coordinate`: [1] i32, this rank's place along `axis`.
  SequenceSharder(mlir::OpBuilder &builder, const SequenceFacts &facts, llvm::StringRef axis, int64_t ranks,
                  mlir::Value coordinate, SpAlgorithm algorithm)
      : builder(builder), facts(facts), axis(axis), ranks(ranks), coordinate(coordinate), algorithm(algorithm) {}

  /// Whether the op is lowered here.
  static bool handles(mlir::Operation *op);
  /// Fails with an error on the op where it cannot be divided.
  llvm::FailureOr<llvm::SmallVector<mlir::Value>> lower(mlir::Operation *op, mlir::ValueRange operands);

private:
  using Results = llvm::FailureOr<llvm::SmallVector<mlir::Value>>;
  struct Segment {
    mlir::Value p, x; ///< [1, B, H, ..]
  };
  /// The state (adjoint: the cotangent) [B, H, K, V] at this rank's border, and the one behind the last rank.
  struct Border {
    mlir::Value mine, last;
  };
  struct Borders {
    Border before, behind;
  };

  /// Rows [B, halo, D] in front of this rank's, and those behind which the next slice begins.
  struct Halo {
    mlir::Value mine, last;
  };

  // SequenceScan.cpp
  Results scan(LsmScanOp op, mlir::ValueRange operands);
  Results scanGrad(LsmScanGradOp op, mlir::ValueRange operands);
  template <typename Scan> Segment segment(Scan op, mlir::ValueRange operands);
  template <typename Scan> Segment elementSegment(Scan op, mlir::ValueRange operands);
  mlir::Value segmentGrad(LsmScanGradOp op, mlir::ValueRange operands, mlir::RankedTensorType x);
  llvm::SmallVector<mlir::Value> scanGradOf(LsmScanGradOp op, mlir::ValueRange operands, mlir::Value initial,
                                            mlir::Value dfinal);
  SpAlgorithm choose(const Segment &own, bool zeroCarry, bool readsLast) const;
  mlir::Value ring(mlir::Location loc, Segment own, bool adjoint);
  mlir::Value logSteps(mlir::Location loc, Segment own, bool adjoint);
  Borders exchange(mlir::Location loc, const Segment &own, mlir::Value carry, mlir::Value dx, mlir::Value dnext,
                   SpAlgorithm chosen);
  // SequenceInner.cpp
  Results innerStep(LsmInnerStepOp op, mlir::ValueRange operands);
  Results innerStepGrad(LsmInnerStepGradOp op, mlir::ValueRange operands);
  template <typename Op> llvm::FailureOr<SpAlgorithm> chooseInner(Op op, mlir::ValueRange operands, bool carried) const;
  template <typename Op> Segment innerSegment(Op op, mlir::ValueRange operands);
  mlir::Value pass(mlir::Location loc, mlir::Value carry, bool zero, bool adjoint,
                   llvm::function_ref<mlir::Value(mlir::Value)> walk);
  mlir::Value ofRank(mlir::Location loc, mlir::Value x, int64_t rank, llvm::StringRef label);
  // SequenceTokens.cpp
  Results documents(DocumentsOp op, mlir::ValueRange operands);
  Results drop(MoeDropOp op, mlir::ValueRange operands);
  Results convolution(ShortConvOp op, mlir::ValueRange operands);
  llvm::SmallVector<mlir::Value> continuedConvolution(ShortConvOp op, mlir::ValueRange operands);
  Halo haloOf(mlir::Location loc, mlir::Value x, mlir::Value tail);
  Results convolutionGrad(ShortConvGradOp op, mlir::ValueRange operands);
  Results attention(AttnCausalOp op, mlir::ValueRange operands);
  Results attentionGrad(AttnCausalGradOp op, mlir::ValueRange operands);
  Results append(AttnAppendOp op, mlir::ValueRange operands);

  mlir::Value withEarlier(mlir::Location loc, mlir::Value x, int64_t before, llvm::StringRef label);
  mlir::Value gather(mlir::Location loc, mlir::Value x, int64_t dim, llvm::StringRef label);
  mlir::Value reduceScatter(mlir::Location loc, mlir::Value x, int64_t dim, llvm::StringRef label);
  mlir::Value shift(mlir::Location loc, mlir::Value x, int64_t distance, bool reverse, llvm::StringRef label);

  mlir::OpBuilder &builder;
  const SequenceFacts &facts;
  std::string axis;
  int64_t ranks;
  mlir::Value coordinate;
  SpAlgorithm algorithm;
};

} // namespace braid

#endif // PASSES_SHARD_SEQUENCE_H
