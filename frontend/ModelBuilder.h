//===- ModelBuilder.h - ModelSpec to a module in phase `model` ----------------------------------------------------===//
#ifndef FRONTEND_MODELBUILDER_H
#define FRONTEND_MODELBUILDER_H

#include "frontend/ModelSpec.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace braid {

/// Entry points init, train_step (forward only; Differentiate adds the rest; accumulate_step where several make one
/// update), eval_step, prefill_{32,64,128,256} and decode_{decode_batch}, and one private function per distinct layer and shape. The
/// module is verified. Errors name keys of the description.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> buildModel(mlir::MLIRContext *context, const ModelSpec &spec,
                                                              DiagnosticFn error);

} // namespace braid

#endif // FRONTEND_MODELBUILDER_H
