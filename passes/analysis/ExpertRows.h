//===- ExpertRows.h - how many of a buffer's rows experts were sent -----------------------------------------------===//
// A rank's buffer has a row for everything that all ranks of ep could send to its experts, ep times what they send on
// average. Rows that came stand sorted in front; how many is known only while running. What stands behind them is
// nobody's: products of experts leave it alone, so whatever is computed of it is lost, too.
#ifndef PASSES_ANALYSIS_EXPERTROWS_H
#define PASSES_ANALYSIS_EXPERTROWS_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// Offsets [experts + 1] i32 of a value [1, rows, ..] that a product of experts made, in either phase, or a launch that
/// reads them as tile::kRowsEnd: the last says where its rows end. Null: every row counts, or it is not known here.
mlir::Value expertOffsets(mlir::Value rows);

/// The same of all values of a block of model ops: what is made row by row of such rows ends where they end.
class ExpertRows {
public:
  explicit ExpertRows(mlir::Block &block);

  bool contains(mlir::Value value) const { return values.contains(value); }
  /// Whether an op works on such rows.
  bool reads(mlir::Operation *op) const {
    return llvm::any_of(op->getOperands(), [&](mlir::Value value) { return contains(value); });
  }

private:
  llvm::DenseSet<mlir::Value> values;
};

} // namespace braid

#endif // PASSES_ANALYSIS_EXPERTROWS_H
