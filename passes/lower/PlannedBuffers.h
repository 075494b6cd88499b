//===- PlannedBuffers.h - the attributes that carry a memory plan -------------------------------------------------===//
// cmd.results on an op and cmd.arguments on a repeat: one #cmd.buffer per value (unit where a value needs none);
// cmd.buffer on arguments of an entry; cmd.tensors on arguments and results: what the program file calls them.
#ifndef PASSES_LOWER_PLANNEDBUFFERS_H
#define PASSES_LOWER_PLANNEDBUFFERS_H

#include "dialects/cmd/CmdDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace braid {

/// Where a value lies, or null.
inline cmd::BufferAttr plannedBuffer(mlir::Value value) {
  mlir::ArrayAttr list;
  unsigned number;
  if (auto argument = mlir::dyn_cast<mlir::BlockArgument>(value)) {
    mlir::Operation *owner = argument.getOwner()->getParentOp();
    number = argument.getArgNumber();
    if (auto function = mlir::dyn_cast<mlir::func::FuncOp>(owner))
      return function.getArgAttrOfType<cmd::BufferAttr>(number, "cmd.buffer");
    list = owner->getAttrOfType<mlir::ArrayAttr>("cmd.arguments");
  } else {
    auto result = mlir::cast<mlir::OpResult>(value);
    number = result.getResultNumber();
    list = result.getOwner()->getAttrOfType<mlir::ArrayAttr>("cmd.results");
  }
  return list ? mlir::dyn_cast<cmd::BufferAttr>(list[number]) : cmd::BufferAttr();
}

} // namespace braid

#endif // PASSES_LOWER_PLANNEDBUFFERS_H
