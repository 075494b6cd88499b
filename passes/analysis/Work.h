//===- Work.h - what a model op must do at least ------------------------------------------------------------------===//
// Counted from the op and the shapes of its values: the floor under any kernel that does the op's work. Kernels are
// never asked; a kernel that computes something twice has the same floor as one that does not.
#ifndef PASSES_ANALYSIS_WORK_H
#define PASSES_ANALYSIS_WORK_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

struct Work {
  int64_t flops = 0; ///< of the op's formula; a multiplication and an addition are two, a function such as exp is one
  int64_t bytes = 0; ///< operands read once, results written once
  int64_t rows =
      0; ///< of one op, of experts, as many as buffers have room for; 0: it is no op of such rows, or one of rows in general
  int64_t fixed = 0; ///< with `rows`: the bytes of what are not such rows
};

/// `maxDocuments`: rows of a chunk table beyond the chunks of one document; they are empty and cost nothing.
int64_t flopsOf(mlir::Operation *op, int64_t maxDocuments);

/// Ops that become one kernel: values between them never leave it. One op is the common case.
Work workOf(llvm::ArrayRef<mlir::Operation *> unit, int64_t maxDocuments);

/// "add + rms_norm", "lsm.chunk_output", "rms_norm_grad".
std::string workName(llvm::ArrayRef<mlir::Operation *> unit);

} // namespace braid

#endif // PASSES_ANALYSIS_WORK_H
