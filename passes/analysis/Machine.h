//===- Machine.h - how fast a rank computes and sends ------------------------------------------------------------===//
// What schedules are chosen by where times are needed before anything runs. Only choices depend on it, never a result.
#ifndef PASSES_ANALYSIS_MACHINE_H
#define PASSES_ANALYSIS_MACHINE_H

#include "mlir/IR/BuiltinOps.h"

namespace braid {

/// Per second and in seconds. The defaults are those of a slow accelerator, with messages of 10 us and 10 GB/s.
struct Machine {
  double flops = 1e12; ///< of matrix products
  double bandwidth = 1e11; ///< bytes of its memory
  double overhead = 2e-6; ///< of every command
  double linkBandwidth = 1e10; ///< bytes of a message, or of an all-to-all's buffer
  double linkLatency = 1e-5; ///< of one of them

  /// One GPU of a node: 0.6 of the dense rate and 0.85 of the bandwidth in the data sheet of an H200 (else A100, 80 GB) of the SXM form, its NVLink; shares and overhead are
  /// those that plans of an H200 are made with (models/clusters/devices/h200.json), and assumed of the other. Products of f32 are three of bf16, or none of them: a quarter of their rate.
  static Machine ofGpu(bool hopper, bool bf16);
  /// The module's attribute braid.machine, or the defaults.
  static Machine of(mlir::ModuleOp module);
  mlir::DictionaryAttr toAttr(mlir::MLIRContext *context) const;
};

/// What the units of a GPU do a second, for choices between its kernels: what kernels of this compiler reach on an H100 or H200. Their data sheets say 67e12 and 989e12
/// FLOPs (H100 and H200 SXM, dense) and 3.35e12 and 4.8e12 bytes; a product of 8192^3 beside other work reached 544e12 (test/benchmark/results/README.md).
struct GpuRates {
  double fma = 50e12; ///< FLOPs of f32 on FMA units
  double tensor = 500e12; ///< FLOPs of bf16 products on tensor cores
  double bandwidth = 3.5e12; ///< bytes of a kernel that copies
  double launch = 4e-6; ///< seconds of a kernel that does nothing
};

} // namespace braid

#endif // PASSES_ANALYSIS_MACHINE_H
