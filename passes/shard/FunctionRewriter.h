//===- FunctionRewriter.h - rebuild functions with other tensor types ---------------------------------------------===//
// Sharding and slicing change the shapes of values that run through entry functions, repeats and layer functions. This
// walks them in program order, hands every model op to the subclass, carries new types through repeats and calls, and
// makes one layer function per distinct list of argument types.
#ifndef PASSES_SHARD_FUNCTIONREWRITER_H
#define PASSES_SHARD_FUNCTIONREWRITER_H

#include "dialects/braid/BraidDialect.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

namespace braid {

class FunctionRewriter {
public:
  explicit FunctionRewriter(mlir::ModuleOp module) : module(module), symbols(module) {}
  virtual ~FunctionRewriter() = default;

  /// Replaces an entry function in place; private functions that nobody calls any more are erased by finish().
  llvm::LogicalResult rewriteEntry(mlir::func::FuncOp entry, mlir::TypeRange argumentTypes);
  void finish();

protected:
  /// Rebuild one op (never repeat, call or a terminator) with the mapped operands; map its results.
  virtual llvm::LogicalResult rewriteOp(mlir::Operation &op, mlir::IRMapping &map, mlir::OpBuilder &builder) = 0;
  /// Rebuild the body of a layer function; the default walks it op by op.
  virtual llvm::LogicalResult rewriteLayer(mlir::func::FuncOp from, mlir::Block &to, mlir::IRMapping &map);
  /// What a rebuilt layer is called with instead of the mapped operand.
  virtual mlir::Value callOperand(mlir::func::FuncOp callee, mlir::Value old, mlir::Value mapped) { return mapped; }
  /// Before the terminator of an entry function is rebuilt.
  virtual llvm::LogicalResult beforeReturn(mlir::func::FuncOp from, mlir::IRMapping &map, mlir::OpBuilder &builder) {
    return llvm::success();
  }

  llvm::LogicalResult rewriteBlock(mlir::Block &from, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteRepeat(RepeatOp repeat, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteCall(mlir::func::CallOp call, mlir::IRMapping &map, mlir::OpBuilder &builder);

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::func::FuncOp>> layers; ///< old layer -> rebuilt ones
};

} // namespace braid

#endif // PASSES_SHARD_FUNCTIONREWRITER_H
