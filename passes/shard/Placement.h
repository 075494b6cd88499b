//===- Placement.h - where the elements of a value are, as an algebra ---------------------------------------------===//
//
//   logical value  --placement-->  local value        2x256x64 on [dp][sp][tp]  ->  2/dp x 256/sp x 64/tp
//
// A placement says for every dimension which axes of the mesh cut it (slowest first: [tp, dp] is cut by tp, each piece
// by dp) and over which axes the value is a pending sum. No axis occurs twice. From one placement to another lead:
//
//   pending over a    -> complete          all_reduce a
//   pending over a    -> cut by a          reduce_scatter a
//   cut by a          -> whole             all_gather a
//   whole             -> cut by a          shard (no communication)
//
// ShardingRules.h (dialect) says for every op which dimensions are the same index; Sharder.h puts operands where that
// rule needs them and knows from it where the results are. Logical names of dimensions come to axes in one table
// (axesOfDim). THE PLUG FOR SEQUENCES: an index of kind `sequence` that is cut (by sp) does not go through the generic
// rewriting: Sharder::rewriteSequence gets the op with its local operands and must map its results. Token values have
// [dp] on dimension 0 and [sp] on dimension 1 from the entry's inputs on; document starts are made by braid.documents,
// which is a sequence op itself.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_SHARD_PLACEMENT_H
#define PASSES_SHARD_PLACEMENT_H

#include "mlir/IR/BuiltinTypes.h"
#include "passes/analysis/Mesh.h"

namespace braid {

/// Names of axes with static storage ("dp"), slowest first.
using Axes = llvm::SmallVector<llvm::StringRef, 2>;

struct Placement {
  llvm::SmallVector<Axes, 4> dims; ///< as many as the value has
  Axes pending; ///< in the order of the mesh

  static Placement whole(int64_t rank) {
    Placement p;
    p.dims.resize(rank);
    return p;
  }
  bool operator==(const Placement &) const = default;
  bool isWhole() const;
  /// All axes that cut a dimension.
  Axes cuts() const;
  /// "[dp][][tp] pending sp": for messages, and to tell apart callers of one function.
  std::string text() const;
  /// The same without the first dimension, or with a whole one in front: what a repeat stacks.
  Placement dropFront() const;
  Placement stacked() const;
};

/// Number of parts that these axes make.
int64_t partsOf(const Mesh &mesh, llvm::ArrayRef<llvm::StringRef> axes);
/// In the order of the mesh, dense axes before those of experts.
Axes inMeshOrder(llvm::ArrayRef<llvm::StringRef> axes);
/// The axes that collectives can name at once, from the innermost: "tp", "dp*sp". Each is a run in mesh order of one
/// view.
llvm::SmallVector<Axes> productsOf(llvm::ArrayRef<llvm::StringRef> axes);
std::string productName(llvm::ArrayRef<llvm::StringRef> axes);

/// A dimension's logical name in braid.dims: "heads*16" is heads of 16 elements.
struct DimName {
  llvm::StringRef name;
  int64_t unit = 1;
  static DimName parse(llvm::StringRef text);
};
/// The axes that a dimension of this name is cut by; axes of size 1 are left out.
Axes axesOfDim(const Mesh &mesh, llvm::StringRef name);

} // namespace braid

#endif // PASSES_SHARD_PLACEMENT_H
