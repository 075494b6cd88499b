//===- PrepareBuffers.h - an entry function made ready for the memory plan ----------------------------------------===//
// Errors name the op: no static shape, a call of a function without a body or of itself, two results in one operand's
// buffer, parts of a concat that would not lie one after the other, a future awaited in another block. Every copy that
// the plan will need is an op afterwards.
#ifndef PASSES_LOWER_PREPAREBUFFERS_H
#define PASSES_LOWER_PREPAREBUFFERS_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// Layer functions become part of their callers (a body under a repeat stays one body), and a cmd.materialize stands
/// wherever a value must lie in a certain buffer: what is updated in place, carried, stacked, joined or returned. What comes
/// from a layer's forward or backward says so (kDirectionAttr).
mlir::LogicalResult prepareBuffers(mlir::func::FuncOp entry, mlir::SymbolTable &symbols);

/// The layers that a call computes, one per iteration of the repeats around it, in their order, from the first weight
/// that says it (DenseI32ArrayAttr); null where none does.
mlir::Attribute layersOfCall(mlir::func::CallOp call);
/// Those of the call that an op comes from, of a function that joins layers: JoinLayers writes them beside its location.
mlir::Attribute layersOfLocation(mlir::Location loc);
/// The micro-batch (i32) that an op was written for: PipelineStages says it beside its location. Null: of none, or of several.
mlir::IntegerAttr microBatchOfLocation(mlir::Location loc);

} // namespace braid

#endif // PASSES_LOWER_PREPAREBUFFERS_H
