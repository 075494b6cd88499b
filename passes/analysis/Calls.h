//===- Calls.h - functions and who calls them ---------------------------------------------------------------------===//
#ifndef PASSES_ANALYSIS_CALLS_H
#define PASSES_ANALYSIS_CALLS_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// Success when every func.call names a function with a body in this module and none calls itself, directly or through
/// others: what passes that walk into callees rely on.
mlir::LogicalResult checkCalls(mlir::ModuleOp module);

} // namespace braid

#endif // PASSES_ANALYSIS_CALLS_H
