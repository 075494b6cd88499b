//===- Mesh.h - named axes of the ranks ---------------------------------------------------------------------------===//
// Dense view pp, dp, sp, tp and expert view pp, edp, ep, etp of the same ranks, slowest to fastest:
// dp sp tp pp = edp ep etp pp = world. edp follows from the others; where it is set, it must be what follows.
#ifndef PASSES_ANALYSIS_MESH_H
#define PASSES_ANALYSIS_MESH_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

namespace braid {

inline constexpr int64_t maxAxisSize = 4096; ///< of an axis that is asked for (--mesh)

struct Mesh {
  struct Axis {
    std::string name;
    int64_t size;
  };
  llvm::SmallVector<Axis> dense, expert;

  /// Ranks of an axis, or of a product of axes of one view ("dp*sp"), or of a pair of stages ("pp[0,1]"). An axis that is
  /// not named has one.
  int64_t size(llvm::StringRef axis) const;
  /// Whether a view names the axis, or all axes of the product, or has both stages of the pair.
  bool has(llvm::StringRef axis) const;
  int64_t world() const;
  /// Whether rows of experts travel between ranks: to those of other experts, or to the parts of one.
  bool exchangesExpertRows() const { return size("ep") > 1 || (size("etp") > 1 && size("etp") != size("tp")); }
  /// "dp=2,ep=2"; axes that are not named have size 1, but etp: that of tp where the ranks allow it. The error says
  /// which product does not fit.
  static llvm::Expected<Mesh> parse(llvm::StringRef text);
  /// Module attribute braid.mesh: {dense = [{axis, size}..], expert = [..]}; absent: one rank.
  static Mesh of(mlir::ModuleOp module);
  mlir::DictionaryAttr toAttr(mlir::MLIRContext *context) const;
};

} // namespace braid

#endif // PASSES_ANALYSIS_MESH_H
