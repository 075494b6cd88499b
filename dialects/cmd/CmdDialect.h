//===- CmdDialect.h - the command dialect: see CmdDialect.td ------------------------------------------------------===//
#ifndef DIALECTS_CMD_CMDDIALECT_H
#define DIALECTS_CMD_CMDDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/cmd/CmdDialect.h.inc"
#include "dialects/cmd/CmdEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/cmd/CmdAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/cmd/CmdOps.h.inc"

namespace braid::cmd {
/// Attributes of ops on their way to commands, and of commands.
///   cmd.work    #cmd.work: FLOPs and bytes of the op, and why it is done like this
///   cmd.layers  array<i32>: the absolute layer in every iteration of the enclosing repeats, in the order of execution
///   cmd.micro_batch  i32: which of the parts of a batch that go through the stages it is for
///   cmd.joined  unit, on a launch: it may run at the same time as the launches right before it, up to the first
///   without
inline constexpr llvm::StringLiteral kWorkAttr = "cmd.work", kLayersAttr = "cmd.layers", kJoinedAttr = "cmd.joined",
                                     kMicroBatchAttr = "cmd.micro_batch";
/// Of an op whose results the step needs late: its commands may run on a stream beside compute.
inline constexpr llvm::StringLiteral kBesideAttr = "cmd.beside";

/// Bytes of an element as it lies in a buffer (i1 and i8: 1).
int64_t elementBytes(mlir::Type element);
/// Bytes of a tensor of static shape, row-major.
int64_t tensorBytes(mlir::RankedTensorType type);
} // namespace braid::cmd

#endif // DIALECTS_CMD_CMDDIALECT_H
