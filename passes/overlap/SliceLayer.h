//===- SliceLayer.h - one layer function, cut along its tokens ----------------------------------------------------===//
// A layer of B x T tokens with bounds 0 = b_0 < .. < b_n = T (tokens of a row) becomes n copies of what touches tokens,
// [B, b_i .. b_(i+1), ..]; TokenKind (BraidInterfaces.td) says of every operand and result whether it is tokens, expert
// rows, a state or whole. What reads plans and expert rows may have other bounds than the mixer (a token buffer); one
// mixer slice leaves the mixer as it is. Not cut, so an error: drop policies other than "token", padded experts, peers'
// buffers too small for all slices, slices shorter than a convolution's tail.
#ifndef PASSES_OVERLAP_SLICELAYER_H
#define PASSES_OVERLAP_SLICELAYER_H

#include "dialects/braid/BraidDialect.h"
#include "mlir/IR/IRMapping.h"
#include "passes/overlap/PackedSlices.h"

namespace braid {

inline constexpr llvm::StringLiteral kSliceAttr = "braid.slice", kFillerAttr = "braid.filler",
                                     kSectionAttr = "braid.section", kRowsAttr = "braid.rows",
                                     kLessRoomAttr = "braid.less_room";
/// Why a layer that could be sliced was not: from DecideSchedule to DescribeSchedule.
inline constexpr llvm::StringLiteral kWholeAttr = "braid.whole";

/// The schedule of a layer (written by DecideSchedule, or by hand) says a direction, a pipeline, ascending slice bounds
/// from 0 (of the mixer, and if they differ of the experts), and may name all tasks in order; an error otherwise.
/// Layers without a schedule are right.
llvm::LogicalResult checkSchedule(mlir::func::FuncOp layer);

/// Bounds of mixer and expert slices of a schedule that has been checked.
struct SliceBounds {
  explicit SliceBounds(mlir::DictionaryAttr schedule);
  llvm::SmallVector<int64_t> mixer, experts;
};

/// Rebuilds the body of a layer with every op that touches tokens once per slice. Token and row values become lists of
/// parts; states chain from slice to slice; sums over tokens are added up; packed values cross the function's border.
class SliceLayer {
public:
  SliceLayer(mlir::func::FuncOp from, mlir::Block &to, const SliceBounds &bounds)
      : from(from), to(to), grids{bounds.mixer, bounds.experts}, builder(from.getContext()) {
    builder.setInsertionPointToEnd(&to);
  }
  llvm::LogicalResult run(const PackedSlices &packed);

  /// The dimension along which the mixer's slices of an argument of a layer with a schedule are cut; absent: they are not.
  static std::optional<int64_t> tokenDim(mlir::func::FuncOp layer, mlir::BlockArgument argument);

private:
  /// Whose slices: those of the mixer, or those of plans and expert rows.
  enum Grid { mixer, experts };
  struct Cut {
    TokenKind kind = TokenKind::whole;
    int64_t dim = 1; ///< along which parts stand one after the other
    llvm::SmallVector<mlir::Value> parts; ///< empty: not cut
    mlir::Value merged; ///< the whole value, when somebody asked for it
    Grid grid = mixer;
  };
  int64_t count(Grid grid) const { return grids[grid].size() - 1; }
  int64_t tokens() const { return grids[mixer].back(); }
  int64_t lengthOf(Grid grid, int64_t slice) const { return grids[grid][slice + 1] - grids[grid][slice]; }
  /// The slice's share of what is `size` long for all tokens of a row: a multiple of their number.
  int64_t share(int64_t size, Grid grid, int64_t slice) const {
    return count(grid) == 1 ? size : size / tokens() * lengthOf(grid, slice);
  }
  bool isOfRows(mlir::Operation &op) const;
  Grid gridOf(mlir::Operation &op) const;
  /// How an argument is seen by the ops that use it.
  Cut argumentCut(mlir::BlockArgument argument);
  bool isCut(mlir::Value v) const {
    auto it = cuts.find(v);
    return it != cuts.end() && !it->second.parts.empty();
  }
  mlir::Value part(mlir::Value v, Grid grid, int64_t slice, TokenKind wanted);
  mlir::Value tokenRange(const Cut &cut, int64_t begin, int64_t end);
  mlir::Value whole(mlir::Value v);
  mlir::RankedTensorType partType(mlir::Operation &op, unsigned result, mlir::ValueRange operands, Grid grid,
                                  int64_t slice);
  mlir::Operation *clone(mlir::Operation &op, llvm::ArrayRef<mlir::Value> operands, Grid grid, int64_t slice);
  void cloneWhole(mlir::Operation &op);
  mlir::Value sum(llvm::ArrayRef<mlir::Value> parts);
  void sliceWeightGradient(mlir::Operation &op, Grid grid);
  llvm::LogicalResult sliceOp(mlir::Operation &op);
  llvm::LogicalResult sliceAttention(AttnCausalOp op);
  llvm::LogicalResult sliceAttentionGrad(AttnCausalGradOp op);
  llvm::SmallVector<mlir::Value> incomingStates(mlir::Operation &op);
  /// The ranks that share every slice of what the op reads (kSequenceAttr); one without a coordinate where there are
  /// none.
  struct Ranks {
    std::string axis;
    int64_t count = 1;
    mlir::Value coordinate;
  };
  Ranks ranksOf(mlir::Operation &op);
  mlir::Value ofAllRanks(const Ranks &ranks, mlir::Value x, llvm::StringRef label);
  mlir::Value ofThisRank(const Ranks &ranks, mlir::Value sum, llvm::StringRef label);
  mlir::Value concat(mlir::ValueRange parts, int64_t dim);
  llvm::SmallVector<mlir::Value> growing(llvm::ArrayRef<mlir::Value> parts);
  template <typename Attention>
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> growingKeys(Attention op, const Ranks &ranks);
  mlir::IntegerAttr keysAttr(mlir::Value keys, int64_t count);
  mlir::Value range(mlir::Value v, int64_t dim, int64_t begin, int64_t size);
  mlir::Value reshape(mlir::Value v, llvm::ArrayRef<int64_t> shape);
  /// What stands slice after slice (PackedSlices), taken apart and put together: views, no copies.
  Cut unpack(mlir::Value v, int64_t dim);
  mlir::Value pack(mlir::Value v, int64_t dim);

  mlir::func::FuncOp from;
  mlir::Block &to;
  llvm::SmallVector<int64_t> grids[2]; ///< bounds
  mlir::OpBuilder builder;
  mlir::IRMapping map; ///< values that are not cut
  llvm::DenseMap<mlir::Value, Cut> cuts;
};

} // namespace braid

#endif // PASSES_OVERLAP_SLICELAYER_H
