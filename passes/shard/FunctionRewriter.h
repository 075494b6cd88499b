//===- FunctionRewriter.h - rebuild functions with other tensor types ---------------------------------------------===//
// Sharding and slicing change the shapes of values that run through entry functions, repeats and layer functions. This
// walks them in program order, hands every model op to the subclass, carries new types through repeats and calls, and
// makes one layer function per distinct list of argument types (and whatever else `signature` tells apart).
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
  virtual mlir::Value callOperand(mlir::func::FuncOp callee, mlir::BlockArgument argument, mlir::Value mapped) {
    return mapped;
  }
  /// Before the terminator of an entry function is rebuilt.
  virtual llvm::LogicalResult beforeReturn(mlir::func::FuncOp from, mlir::IRMapping &map, mlir::OpBuilder &builder) {
    return llvm::success();
  }

  /// What tells callers of a layer apart besides the types of its operands.
  virtual std::string signature(mlir::ValueRange operands) { return {}; }
  /// The body of an entry or a layer, with its arguments, before and behind its ops; `operands`: what a layer's first
  /// caller hands it.
  virtual void beginFunction(mlir::Block &body, mlir::ValueRange operands) {}
  virtual void endFunction(mlir::func::FuncOp function) {}
  /// A call of a rebuilt layer: operands behind those of the logical call; then what is known of its results.
  virtual void extraOperands(mlir::func::FuncOp target, llvm::SmallVectorImpl<mlir::Value> &operands) {}
  virtual void called(mlir::func::FuncOp target, mlir::func::CallOp call) {}
  /// The body of a repeat with its new arguments.
  virtual void beginBody(mlir::Block &body, mlir::ValueRange inputs, int64_t carried) {}
  /// The new value of a carried yield, made like the body's argument where that is possible in the body.
  virtual mlir::Value carriedYield(mlir::OpBuilder &builder, mlir::Value value, mlir::Value argument) { return value; }
  /// Another input for a carried value that comes out like `yielded`; null when it fits. The body is then built again.
  virtual mlir::Value adaptInput(mlir::OpBuilder &builder, mlir::Value input, mlir::Value yielded) { return {}; }
  virtual void repeated(RepeatOp rebuilt) {}

  llvm::LogicalResult rewriteBlock(mlir::Block &from, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteRepeat(RepeatOp repeat, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteCall(mlir::func::CallOp call, mlir::IRMapping &map, mlir::OpBuilder &builder);

  struct Rebuilt {
    mlir::func::FuncOp function;
    std::string signature;
  };
  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  llvm::MapVector<mlir::Operation *, llvm::SmallVector<Rebuilt>> layers; ///< old layer -> rebuilt ones

private:
  /// Bodies that were built for inputs that did not fit. Kept to the end: their values stand in maps.
  std::vector<std::unique_ptr<mlir::Region>> discarded;
};

} // namespace braid

#endif // PASSES_SHARD_FUNCTIONREWRITER_H
