//===- OutlineContext.h - what every family of kernels uses to outline an op --------------------------------------===//
// A kernel is one function per name, whatever number of layers launches it; a launch names the tensors it gives to each
// parameter. Sizes that differ between launches (rows, chunks) are read from the buffers (`?` in the parameter's
// shape); those in the name are constants of the code.
#ifndef PASSES_OUTLINE_OUTLINECONTEXT_H
#define PASSES_OUTLINE_OUTLINECONTEXT_H

#include "dialects/braid/BraidDialect.h"
#include "mlir/IR/PatternMatch.h"
#include "passes/outline/KernelBuilder.h"

namespace braid {

/// The kernels of a module and the launches that replace model ops.
///
///   auto kernel = context.kernel("lsm_chunk_output_v_c64_k32_v32", {"chunk", "head", "batch"}, [&](KernelBuilder &k)
///   {..}); auto results = context.launch(op, kernel, {chunks, heads, batch}).arg("q", q).result("o",
///   type).scalar("scale", 0.1).run();
/// How many numbers a launch multiplies; FLOPs of its op are not those of launches without it.
inline constexpr llvm::StringLiteral kProductsAttr = "products";

class OutlineContext {
public:
  explicit OutlineContext(mlir::ModuleOp module) : module(module), rewriter(module.getContext()) {}

  /// The kernel called `name`; `body` writes it when it does not exist yet (finish() is called for it). The name says
  /// what it computes and everything its code depends on (feature sizes, element type), never row counts or depth.
  std::string kernel(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> grid,
                     llvm::function_ref<void(KernelBuilder &)> body);

  class Launch {
  public:
    Launch(OutlineContext &context, mlir::Operation *op, std::string kernel, llvm::ArrayRef<int64_t> grid)
        : context(context), op(op), kernel(std::move(kernel)), grid(grid) {}
    Launch &arg(llvm::StringRef name, mlir::Value value);
    /// A result in a buffer of its own, or, with `inplaceOf`, in the buffer of that argument. Kernels take the
    /// argument and the result as two parameters, which then hold the same address.
    Launch &result(llvm::StringRef name, mlir::Type type, llvm::StringRef inplaceOf = {});
    Launch &index(llvm::StringRef name, int64_t value);
    Launch &scalar(llvm::StringRef name, double value, mlir::Type type); ///< f32 or f64
    /// Creates tile.launch before the op; one value per result().
    llvm::SmallVector<mlir::Value> run();

  private:
    OutlineContext &context;
    mlir::Operation *op;
    std::string kernel;
    llvm::SmallVector<int64_t, 3> grid;
    llvm::SmallVector<std::string> argNames, resultNames;
    llvm::SmallVector<mlir::Value> args;
    llvm::SmallVector<mlir::Type> resultTypes;
    llvm::SmallVector<int64_t> inplace;
    llvm::SmallVector<mlir::NamedAttribute> scalars;
  };
  /// At most three extents, x first. Creation happens in run().
  Launch launch(mlir::Operation *op, std::string kernel, llvm::ArrayRef<int64_t> grid) {
    rewriter.setInsertionPoint(op);
    return Launch(*this, op, std::move(kernel), grid);
  }

  /// `value` seen as another shape with the same elements (a braid.reshape, or the value itself), before `op`.
  mlir::Value view(mlir::Operation *op, mlir::Value value, Shape shape);
  /// [B, T, features..] as [B * T, features..].
  mlir::Value rowsView(mlir::Operation *op, mlir::Value value);
  /// Replaces `op`: result i by values[i], seen under the result's own shape.
  void replace(mlir::Operation *op, mlir::ValueRange values);

  mlir::ModuleOp module;
  mlir::IRRewriter rewriter;
  bool gpu = false; ///< hundreds of programs run at a time, not a few
  bool warpgroups = false; ///< a GPU multiplies by them what boxes bring: sums of a tile are in registers of threads
  bool boxes = false; ///< a GPU's tiles may be copied past its threads, to be multiplied by warpgroups
  /// Products are calls of cuBLASLt where it has them; it adds only what has the type of its result.
  bool cublaslt = false;
  bool beside = false; ///< what makes gradients of weights is marked cmd.beside
  bool f32Parts = true; ///< products of f32 matrices may be products of their parts in bf16 (SplitProducts.cpp)
  /// Of gradients whose product adds up the squares of their rows (GradientSquares.cpp): the sums, or what stands for them until that product is outlined.
  llvm::DenseMap<mlir::Value, mlir::Value> squares;
  /// Of f32 matrices: the bf16 matrices that they are the sum of (SplitProducts.cpp).
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> parts;
  /// Whether every product is a kernel of ours.
  bool ownProducts() const { return gpu && !cublaslt; }
};

inline mlir::RankedTensorType tensorType(mlir::Value v) { return mlir::cast<mlir::RankedTensorType>(v.getType()); }
inline Shape shapeOf(mlir::Value v) { return tensorType(v).getShape(); }
int64_t product(Shape shape);
inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// "f32", "bf16", "i32": for kernel names.
std::string typeName(mlir::Type element);
/// The largest divisor of n that is at most `bound`.
int64_t divisorUpTo(int64_t n, int64_t bound);

} // namespace braid

#endif // PASSES_OUTLINE_OUTLINECONTEXT_H
