//===- Flags.h - what flags need to change anything ---------------------------------------------------------------===//
// A flag that would change nothing is a mistake, not a wish. What the command line shows by itself is an error. What depends on the model is a
// warning, for one command line may serve many: "--chunk-size=32 changes nothing: no scan is left to be cut in chunks". A flag that says what
// would be the case without it needs nothing.
#ifndef COMPILER_FLAGS_H
#define COMPILER_FLAGS_H

#include "compiler/CompileOptions.h"

#include "mlir/IR/BuiltinOps.h"

namespace braid {

/// False after an error: flags that are not for the target.
bool checkTarget(const CompileOptions &options);
/// False after an error: flags that no phase on the way reads, or that contradict each other.
bool checkFlags(const CompileOptions &options, Phase from, Phase to);
/// Warns of flags whose ops are not there when the passes of `phase` begin, which would read them. Flags are those of CompileOptions::given.
void warnOfIdleFlags(mlir::ModuleOp module, Phase phase, const CompileOptions &options);
/// The same of --products, of the kernels that there are behind phase commands.
void warnOfIdleProducts(mlir::ModuleOp module, const CompileOptions &options);

} // namespace braid

#endif // COMPILER_FLAGS_H
