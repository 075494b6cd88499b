//===- ModelBuilder.h - ModelSpec to a module in phase `model` ----------------------------------------------------===//
#ifndef FRONTEND_MODELBUILDER_H
#define FRONTEND_MODELBUILDER_H

#include "frontend/ModelSpec.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace braid {

/// Seconds of a micro-batch, forward and backward, by which layers are shared out among the stages of a pipeline.
struct StageCosts {
  std::function<double(mlir::func::FuncOp layer)> layer = [](mlir::func::FuncOp) { return 1.0; };
  /// Of one of `parts` stages that have words of it.
  std::function<double(int64_t tokens, int64_t features, int64_t words, int64_t parts)> head =
      [](int64_t, int64_t, int64_t, int64_t) { return 0.0; };
  /// What a stage exchanges with others, with what the head needs where `parts` stages have words of it.
  std::function<double(int64_t tokens, int64_t features, int64_t parts)> exchanges = [](int64_t, int64_t, int64_t) {
    return 0.0;
  };
};

/// Entry points init, train_step (forward only; Differentiate adds the rest; accumulate_step where several make one
/// update), eval_step, prefill_{32,64,128,256}, score_ of the same lengths and decode_{decode_batch}, and one private function per distinct layer and shape. The
/// module is verified. Errors name keys of the description.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> buildModel(mlir::MLIRContext *context, const ModelSpec &spec,
                                                              DiagnosticFn error, const StageCosts &costs = {});

} // namespace braid

#endif // FRONTEND_MODELBUILDER_H
