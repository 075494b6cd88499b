//===- Machine.h - how fast a rank computes and sends ------------------------------------------------------------===//
// What schedules are chosen by where times are needed before anything runs. Only choices depend on it, never a result.
#ifndef PASSES_ANALYSIS_MACHINE_H
#define PASSES_ANALYSIS_MACHINE_H

#include "mlir/IR/BuiltinOps.h"

namespace braid {

/// Per second and in seconds. The defaults are those of an accelerator, with messages of 10 us and 10 GB/s.
struct Machine {
  double flops = 1e12; ///< of matrix products
  double bandwidth = 1e11; ///< bytes of its memory
  double overhead = 2e-6; ///< of every command
  double linkBandwidth = 1e10; ///< bytes of a message, or of an all-to-all's buffer
  double linkLatency = 1e-5; ///< of one of them

  /// The module's attribute braid.machine, or the defaults.
  static Machine of(mlir::ModuleOp module);
  mlir::DictionaryAttr toAttr(mlir::MLIRContext *context) const;
};

} // namespace braid

#endif // PASSES_ANALYSIS_MACHINE_H
