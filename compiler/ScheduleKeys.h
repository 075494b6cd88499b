//===- ScheduleKeys.h - keys of `schedule` that wait for their phase ----------------------------------------------===//
// A module that has not been ordered yet carries what its description says about order and chunks, as attributes of the
// module: `braid.pipeline`, `braid.overlap_degree` (of layers that do not say their own), `braid.slicing`,
// `braid.chunk_size`. A compilation that stops early and goes on later so ends where one that never stopped does. The
// phase that reads a key takes it away; what a key's default says is not written.
#ifndef COMPILER_SCHEDULEKEYS_H
#define COMPILER_SCHEDULEKEYS_H

#include "frontend/ModelSpec.h"
#include "passes/Phases.h"

#include "mlir/IR/BuiltinOps.h"

namespace braid {

/// The keys above, defaults where the module has none; failure after a message about an attribute of another type.
/// Which words and numbers are valid is said by the pass that reads them.
llvm::FailureOr<ScheduleSpec> scheduleKeysOf(mlir::ModuleOp module);
void setScheduleKeys(mlir::ModuleOp module, const ScheduleSpec &keys);
/// The phase has been reached: keys that it reads, or one before it, are gone.
void dropScheduleKeys(mlir::ModuleOp module, Phase reached);

} // namespace braid

#endif // COMPILER_SCHEDULEKEYS_H
