//===- PrepareBuffers.h - an entry function made ready for the memory plan ----------------------------------------===//
#ifndef PASSES_LOWER_PREPAREBUFFERS_H
#define PASSES_LOWER_PREPAREBUFFERS_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// Layer functions become part of their callers (a body under a repeat stays one body), and a cmd.materialize stands
/// wherever a value must lie in a certain buffer: what is updated in place, carried, stacked, joined or returned.
mlir::LogicalResult prepareBuffers(mlir::func::FuncOp entry, mlir::SymbolTable &symbols);

} // namespace braid

#endif // PASSES_LOWER_PREPAREBUFFERS_H
