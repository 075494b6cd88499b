//===- FunctionBuilder.h - what layers and entry points have in common while they are built -----------------------===//
// A function of a model: its types, its names and the few ops that both kinds of functions contain. Every op carries
// the name of what it computes as its location ("q", "log_decay").
#ifndef FRONTEND_FUNCTIONBUILDER_H
#define FRONTEND_FUNCTIONBUILDER_H

#include "dialects/braid/BraidDialect.h"
#include "frontend/ModelSpec.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

namespace braid {

using Shape = llvm::SmallVector<int64_t, 4>;

/// The two element types of a model (the same but for bf16).
struct FloatTypes {
  mlir::FloatType element; ///< matrices and activations: bf16, f32 or f64
  mlir::FloatType wide; ///< states, decays and other gates, router, losses, vectors: f32 or f64
};
FloatTypes floatTypesOf(const ModelSpec &spec, mlir::MLIRContext *context);

class FunctionBuilder {
public:
  mlir::RankedTensorType tensor(Shape shape) const { return mlir::RankedTensorType::get(shape, types.element); }
  mlir::RankedTensorType wide(Shape shape) const { return mlir::RankedTensorType::get(shape, types.wide); }
  mlir::RankedTensorType integers(Shape shape) const {
    return mlir::RankedTensorType::get(shape, mlir::IntegerType::get(builder.getContext(), 32));
  }
  const FloatTypes &elementTypes() const { return types; }
  mlir::Location loc(llvm::StringRef name) const;

  // ---- ops; `name` is what the result is called
  mlir::Value scale(llvm::StringRef name, mlir::Value x, double value);
  mlir::Value offset(llvm::StringRef name, mlir::Value x, double value);
  /// x times a factor; x itself when that is 1.
  mlir::Value scaled(llvm::StringRef name, mlir::Value x, double factor);
  /// cap tanh(x / cap); x itself when that is 0.
  mlir::Value softcapped(llvm::StringRef name, mlir::Value x, double cap);
  mlir::Value rmsNorm(llvm::StringRef name, mlir::Value x, mlir::Value weight, double eps, int64_t groups = 1);
  /// The model's norm over d_model; `bias` is null where it has none.
  mlir::Value norm(llvm::StringRef name, mlir::Value x, mlir::Value weight, mlir::Value bias);

  const ModelSpec &spec;
  mlir::OpBuilder builder;

protected:
  /// An empty function at the end of the module; ops go into its block.
  FunctionBuilder(const ModelSpec &spec, mlir::ModuleOp module, llvm::StringRef name);
  /// Returns `results`; the function's type is that of its block and of them.
  void close(mlir::ValueRange results);

  mlir::func::FuncOp function;
  mlir::Block *block;
  FloatTypes types;
};

} // namespace braid

#endif // FRONTEND_FUNCTIONBUILDER_H
