//===- BlockGradient.h - reverse mode over one block of model ops -------------------------------------------------===//
// A block is the body of an entry function, of a repeat, or of a layer function. Its gradient lives in the same block
// (entry), in the body of a second repeat that walks the layers the other way, or in a function `@f_grad`.
#ifndef PASSES_AUTODIFF_BLOCKGRADIENT_H
#define PASSES_AUTODIFF_BLOCKGRADIENT_H

#include "dialects/braid/GradientContext.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

namespace braid {

/// Which values can carry a gradient: floats that depend on a trained parameter.
class Activity {
public:
  explicit Activity(mlir::SymbolTable &symbols) : symbols(symbols) {}
  bool isActive(mlir::Value v) const { return active.contains(v); }
  /// Marks a value and says whether it was new. Integers are never active.
  bool mark(mlir::Value v);
  /// Propagates through a block whose arguments are marked already.
  void analyze(mlir::Block &block);

private:
  bool visit(mlir::Operation &op);
  mlir::SymbolTable &symbols;
  llvm::DenseSet<mlir::Value> active;
};

/// Gradient of a layer function for one choice of cotangents and wanted arguments: the forward that also returns what
/// the backward needs, and the backward.
struct FunctionGradient {
  mlir::func::FuncOp forward, backward;
  llvm::SmallVector<unsigned> neededArguments; ///< arguments of the forward that the backward takes first
  unsigned numSaved = 0; ///< extra results of the forward, taken next
  llvm::SmallVector<unsigned> cotangentResults; ///< results whose cotangents the backward takes last
  llvm::SmallVector<unsigned> wantedArguments; ///< arguments whose cotangents it returns
};

/// Shared by all blocks of a module.
struct GradientState {
  mlir::ModuleOp module;
  mlir::SymbolTable &symbols;
  llvm::StringMap<FunctionGradient> functions; ///< by name and masks
  /// Forward ops that were rebuilt with more results. They stay allocated until the end: maps are keyed by their
  /// values, and a new op at the same address would be taken for an old one.
  llvm::SmallVector<mlir::Operation *> retired;
  bool bf16Gradients = false; ///< gradients of bf16 weights are bf16

  void retire(mlir::Operation *op) {
    op->remove();
    op->dropAllReferences();
    retired.push_back(op);
  }
  ~GradientState() {
    for (mlir::Operation *op : retired)
      op->destroy();
  }
};

class BlockGradient : public GradientContext {
public:
  /// `insertion` is where the backward grows; `outer` resolves values defined outside of the block.
  BlockGradient(GradientState &state, Activity &activity, mlir::Block &block, mlir::OpBuilder insertion,
                BlockGradient *outer)
      : state(state), activity(activity), block(block), backward(insertion), outer(outer) {}

  mlir::OpBuilder &builder() override { return backward; }
  mlir::Value saved(mlir::Value forward) override;
  mlir::Value cotangent(mlir::Value forward) override;
  mlir::Value cotangentOrZero(mlir::Value forward) override;
  bool wanted(mlir::Value forward) override { return activity.isActive(forward); }
  void add(mlir::Value forward, mlir::Value cotangent) override;
  mlir::Type gradientElement(mlir::Type weight) override;

  /// Walks the block backwards; cotangents of its results must have been added.
  llvm::LogicalResult run();

  /// The value that stands for `v` now (forward ops are rebuilt with more results while the backward grows).
  mlir::Value replaced(mlir::Value v) const;

protected:
  void replaceForward(mlir::Operation *op, mlir::ValueRange with);
  /// How a value of this block reaches the backward: as it is (entry), or through the block's surroundings.
  virtual mlir::Value importValue(mlir::Value forward) { return forward; }
  virtual bool ownsValue(mlir::Value forward) { return true; }

  llvm::LogicalResult differentiateRepeat(RepeatOp repeat);
  llvm::LogicalResult differentiateCall(mlir::func::CallOp call);
  llvm::FailureOr<FunctionGradient *> functionGradient(mlir::func::CallOp call);

  GradientState &state;
  Activity &activity;
  mlir::Block &block;
  mlir::OpBuilder backward;
  BlockGradient *outer;
  llvm::DenseMap<mlir::Value, mlir::Value> imported, replacements;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> cotangents;
};

} // namespace braid

#endif // PASSES_AUTODIFF_BLOCKGRADIENT_H
