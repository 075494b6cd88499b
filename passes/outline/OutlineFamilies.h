//===- OutlineFamilies.h - one function per family of model ops ---------------------------------------------------===//
// Each takes an op of its family, builds launches before it, and replaces it. Failure has emitted an error.
#ifndef PASSES_OUTLINE_OUTLINEFAMILIES_H
#define PASSES_OUTLINE_OUTLINEFAMILIES_H

#include "passes/outline/OutlineContext.h"

namespace braid {

llvm::LogicalResult outlineRows(llvm::ArrayRef<mlir::Operation *> cluster, OutlineContext &context); // RowsKernels.cpp
llvm::LogicalResult outlineLinear(mlir::Operation *op, OutlineContext &context); // linear, grouped_linear and gradients
llvm::LogicalResult outlineEmbed(mlir::Operation *op, OutlineContext &context); // embed, embed_grad
llvm::LogicalResult outlineLoss(mlir::Operation *op,
                                OutlineContext &context); // (linear_)cross_entropy, sum and gradients
llvm::LogicalResult outlineLinearLoss(LinearCrossEntropyOp op, OutlineContext &context); // LinearLoss.cpp
llvm::LogicalResult outlineLinearLossGrad(LinearCrossEntropyGradOp op, OutlineContext &context);
llvm::LogicalResult outlineLossPart(LinearLossPartOp op, OutlineContext &context);
llvm::LogicalResult outlineLossPartGrad(LinearLossPartGradOp op, OutlineContext &context);
llvm::LogicalResult outlineScores(LinearScoresOp op, OutlineContext &context);
llvm::LogicalResult outlineStructure(mlir::Operation *op,
                                     OutlineContext &context); // documents, slice, concat, constants
llvm::LogicalResult outlineMoe(mlir::Operation *op, OutlineContext &context); // dispatch, permute, combine
llvm::LogicalResult outlineMoePlan(mlir::Operation *op,
                                   OutlineContext &context); // MoePlanKernels.cpp: plan, plan_received
llvm::LogicalResult outlineMoeDrop(mlir::Operation *op, OutlineContext &context); // MoeDropKernels.cpp: drop
llvm::LogicalResult outlineTrain(mlir::Operation *op, OutlineContext &context); // sum_squares, clip_scale, adamw
llvm::LogicalResult outlineInit(mlir::Operation *op, OutlineContext &context); // init
llvm::LogicalResult outlineLsm(mlir::Operation *op,
                               OutlineContext &context); // LsmKernels*.cpp: lsm.chunk_*, lsm.step, ..
llvm::LogicalResult outlineInner(mlir::Operation *op, OutlineContext &context); // InnerKernels.cpp: lsm.inner_*
llvm::LogicalResult outlineAttention(mlir::Operation *op, OutlineContext &context); // AttentionKernels.cpp: attn.*
llvm::LogicalResult outlineAttentionGrad(AttnCausalGradOp op, OutlineContext &context); // AttentionGradKernels.cpp
llvm::LogicalResult outlineHeadLinear(HeadLinearOp op, OutlineContext &context); // HeadLinearKernels.cpp
llvm::LogicalResult outlineHeadLinearGradWeight(HeadLinearGradWeightOp op, OutlineContext &context);
/// ConvKernels.cpp: short_conv and its gradient, with the ops of its cluster.
llvm::LogicalResult outlineConvolution(mlir::Operation *op, llvm::ArrayRef<mlir::Operation *> cluster,
                                       OutlineContext &context);

/// Collectives of a block along a dimension that is not the leading one: kernels pack what they send or receive
/// (CommKernels.cpp).
void packCollectives(mlir::Block &block, OutlineContext &context);

/// op(a) op(b) (+ c), operands read as matrices of that many columns.
struct Product {
  mlir::Value a, b, c;
  int64_t aColumns, bColumns, cColumns;
  bool transposeA = false, transposeB = false;
  bool apart = false; ///< the sum has a buffer of its own, and perhaps a narrower type than c
};
/// The product as a library call (f64: a launch) before `op`.
mlir::Value matrixProduct(mlir::Operation *op, const Product &p, mlir::Type type, OutlineContext &context);
/// What a loss reads of logits beside x and weights: labels of rows, the coordinate of a part of the words (null: all), whether a gradient follows, what bounds logits (0: nothing).
struct LossReads {
  mlir::Value labels, coordinate;
  bool exponentials;
  double softcap;
};
/// What a product says of logits that are in no memory. Of each row and tile of `side` words (the last may be narrower) a reference, which is 0 unless the greatest
/// logit is as far from 0 as kFarLogit, and the sum of exp(x - reference): f32 [tiles, rows], rows rounded up. The label's logit: f32 [rows], nothing where the label is
/// none of these words. If asked for, exp(x - reference): bf16 [rows, words]. With a `softcap` c logits x are bounded, and these exponentials have their slope 1 - (x / c)^2 as a factor.
struct LossTiles {
  mlir::Value references, sums, labelLogits, exponentials;
  int64_t side;
  double softcap;
};
/// The greatest logit of a tile, relative to its reference, is at most this, up or down.
inline constexpr double kFarLogit = 40;
/// Of the product a op(b), where a kernel of a GPU has it in registers (ProductSums.cpp).
std::optional<LossTiles> lossTilesOf(mlir::Operation *op, const Product &p, mlir::RankedTensorType type,
                                     const LossReads &reads, OutlineContext &context);
/// Why a loss of x weight has no such product; empty: it has.
std::string whyNoLossTiles(mlir::Operation *op, mlir::Value x, mlir::Value weight, bool transposed, bool ownProducts);
/// On a GPU (ProductSums.cpp), nothing where that has no such kernel: the sum of a_i op(b_i), a_i [.., k_i], b_i [k_i, n] or transposed, of bf16, as `type`
/// [.., n]; with `offsets` b_i has a matrix for each group of rows.
mlir::Value sumInOneKernel(mlir::Operation *op, mlir::ValueRange as, mlir::ValueRange bs, mlir::Value offsets,
                           bool transposeB, mlir::RankedTensorType type, OutlineContext &context);
/// What a product does with a tile of its results before it stores any (ProductEnds.cpp).
struct ProductEnd {
  std::string name; ///< of the formulas, for that of the kernel
  llvm::SmallVector<mlir::Value> operands; ///< matrices as large as a result, of which formulas read the same tile
  llvm::SmallVector<mlir::Value> numbers; ///< f32, one of each row
  int64_t results; ///< matrices of bf16 that are stored
  int64_t sums; ///< along rows, f32: of each tile of columns those of its own [tiles, rows]
  /// The tiles of results, then sums, from those of the products, rounded to bf16, of the operands, and of the numbers.
  llvm::function_ref<Vars(KernelBuilder &k, llvm::ArrayRef<Var> products, llvm::ArrayRef<Var> operands)> emit;
};
/// The products a op(b_i) of bf16 with such an end, of one or of several that read `a` once (ProductSums.cpp): bf16 [rows, columns of b_i] each. Nothing where no kernel
/// has them all in the registers of its threads.
llvm::SmallVector<mlir::Value> productWithEnd(mlir::Operation *op, mlir::Value a, mlir::ValueRange bs,
                                              mlir::Value offsets, bool transposeB, const ProductEnd &end,
                                              OutlineContext &context);
/// Whether products of one matrix and row-wise ops behind them, which are then in `ended`, have become one launch (ProductEnds.cpp).
llvm::FailureOr<bool> endProducts(mlir::Operation *op, llvm::DenseSet<mlir::Operation *> &ended,
                                  OutlineContext &context);
/// Of the i-th gradient of experts' weights (ProductSums.cpp): the type of the sums of squares of its rows [tiles of columns, groups, m] where a kernel computes them
/// beside it, and both by such a kernel.
mlir::RankedTensorType squaresOfWeights(MoeGroupedLinearGradWeightOp op, unsigned i, const OutlineContext &context);
llvm::SmallVector<mlir::Value> weightsWithSquares(MoeGroupedLinearGradWeightOp op, unsigned i, OutlineContext &context);
/// Sums of squares go the way that gradients go, before any op is outlined (GradientSquares.cpp).
void handSquares(OutlineContext &context);
/// As sumInOneKernel(), a^T b (+ c, in its place) in f32, where its sum is long and its results are few. With `as`, `bs` the sum of a_i^T b_i, shaped as a^T b.
mlir::Value sumInParts(mlir::Operation *op, const Product &p, mlir::RankedTensorType type, OutlineContext &context);
mlir::Value sumInParts(mlir::Operation *op, mlir::ValueRange as, mlir::ValueRange bs, const Product &p,
                       mlir::RankedTensorType type, OutlineContext &context);
/// The longest sum of products of parts (SplitProducts.cpp) that tensor cores add up.
inline constexpr int64_t kMostSplit = 1024;
/// How a product of m x k and k x n with an f32 operand is one of parts of bf16, in words; empty: it is not.
std::string splitChoice(int64_t m, int64_t n, int64_t k, mlir::Type a, mlir::Type b, bool transposeA);
/// The kernel that makes parts.
inline constexpr llvm::StringLiteral kSplitKernel = "split_f32_bf16";
/// That product on a GPU (SplitProducts.cpp), nothing for others.
mlir::Value splitProduct(mlir::Operation *op, const Product &p, mlir::RankedTensorType type, OutlineContext &context);
/// Up to here products are best computed while their weights stream by; the library's GEMM first packs them.
inline constexpr int64_t kFewRows = 4, kFewExpertRows = 16;
/// Whether a product of `rows` rows is one of `most` at most that FewRows.cpp has a kernel for.
bool isOfFewRows(mlir::Value x, mlir::Value weight, int64_t rows, int64_t most, bool gpu);
/// The product of so few rows (FewRows.cpp); nothing for others.
mlir::Value fewRowsProduct(mlir::Operation *op, const Product &p, mlir::RankedTensorType type, OutlineContext &context);
/// The same for rows sorted by expert: y[r] = a[r] weights[expert of r].
mlir::Value fewExpertRows(mlir::Operation *op, mlir::Value a, mlir::Value weights, mlir::Value offsets,
                          mlir::RankedTensorType type, OutlineContext &context);
/// Cross entropy of every row of logits [rows, words] with labels [rows]: lse, loss and live (1 for label >= 0). Of one
/// part of the words (`coordinate`): lse and the label's logit. `rounded`: the logits are products of bf16, so exponentials may be approximate. With a `softcap` c,
/// of logits c tanh(x / c); 0: none.
llvm::SmallVector<mlir::Value> rowLosses(mlir::Operation *op, mlir::Value logits, mlir::Value labels, bool rounded,
                                         OutlineContext &context, mlir::Value coordinate = {}, double softcap = 0);
/// Of every row of logits the greatest, after a `softcap`, and its word, of equal ones the lowest; `coordinate` as above.
llvm::SmallVector<mlir::Value> rowGreatest(mlir::Operation *op, mlir::Value logits, OutlineContext &context,
                                           mlir::Value coordinate, double softcap);
/// The same from what a product says of its tiles.
llvm::SmallVector<mlir::Value> rowLosses(mlir::Operation *op, const LossTiles &tiles, mlir::Value labels,
                                         int64_t vocabulary, OutlineContext &context, mlir::Value coordinate = {});
/// Its gradient [rows, words] of element type `result`, in the place of `logits` if it has their type.
mlir::Value rowGradients(mlir::Operation *op, mlir::Value logits, mlir::Value labels, mlir::Value lse, mlir::Value dsum,
                         mlir::Type result, OutlineContext &context, mlir::Value coordinate = {}, double softcap = 0);
/// The gradient [rows, words] as scales [rows] f32 times what stands in the place of the exponentials.
struct ScaledGradients {
  mlir::Value rows, scales;
};
ScaledGradients scaledGradients(mlir::Operation *op, const LossTiles &tiles, mlir::Value labels, mlir::Value lse,
                                mlir::Value dsum, OutlineContext &context, mlir::Value coordinate = {});
/// scales[n] x[n], x [rows, columns], with elements of `element`.
mlir::Value scaleRows(mlir::Operation *op, mlir::Value x, mlir::Value scales, mlir::Type element,
                      OutlineContext &context);
/// Programs that share rows of which only some are there (KernelBuilder::share): enough for every core of a machine, whatever
/// the share is.
inline constexpr int64_t kSharePrograms = 2048;
/// [programs, shape..] -> [shape..]: adds partial sums in order (behind `addend`, in its place); a launch before `op`.
mlir::Value sumOverRows(mlir::Operation *op, mlir::Value partials, OutlineContext &context, mlir::Value addend = {});
/// Into how many parts a sum over many rows, or elements, is cut at most: a GPU must have enough loads under way.
inline int64_t sumPrograms(const OutlineContext &context) { return context.gpu ? 512 : 64; }
/// The same over rows with sums along them: blocks of up to 168 registers a thread, of which a multiprocessor has three, so that all run at a time on 132 of them.
inline int64_t rowSumPrograms(const OutlineContext &context) { return context.gpu ? 384 : 64; }
/// `sumPrograms` partial sums of the elements (or their squares), each in a fixed order; the number follows from the size.
mlir::Value partialSums(mlir::Operation *op, mlir::Value x, bool squared, mlir::Type sumType, OutlineContext &context);
/// How many labels are >= 0, as [1].
mlir::Value countLabels(mlir::Operation *op, mlir::Value labels, mlir::Type type, OutlineContext &context);
/// Tokens of row b that are not padding, an index; padding stands at the end. documents [B, T].
Var tokensOf(KernelBuilder &k, Var documents, Var b);
/// A tensor of one value.
mlir::Value fillWith(mlir::Operation *op, mlir::RankedTensorType type, double value, OutlineContext &context);
/// The sum of all elements as [1].
mlir::Value sumAll(mlir::Operation *op, mlir::Value x, mlir::Type sumType, OutlineContext &context);

} // namespace braid

#endif // PASSES_OUTLINE_OUTLINEFAMILIES_H
