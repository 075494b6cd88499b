//===- LocalBytes.h - what the values of layers will take on a rank ------------------------------------------------===//
#ifndef PASSES_SHARD_LOCALBYTES_H
#define PASSES_SHARD_LOCALBYTES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/analysis/Mesh.h"

namespace braid {

/// Bytes on one rank of the arguments and results of ops of all layer functions that `entry` calls, by logical value:
/// where several layers put one in different places, the most. Rows of experts that come from other ranks have the size
/// of the buffers that hold them, which is that of the most rows there may be. What ApplySharding does is done to a copy
/// of the module; empty where that fails, which ApplySharding then reports. `sliced` as there.
llvm::DenseMap<mlir::Value, int64_t> localBytes(mlir::func::FuncOp entry, const Mesh &mesh, bool sliced);

} // namespace braid

#endif // PASSES_SHARD_LOCALBYTES_H
