//===- TileEmitter.h - how row-wise ops speak tiles ---------------------------------------------------------------===//
// A row-wise op emits itself once, on tiles of R rows; kernels, fusion and gradients follow. Emit only differentiable
// tile IR (arith and math on floats, tile.reduce add, tile.expand, tile.slice/concat, shape_cast, broadcast, select on
// integer conditions); integer results (routing) carry no gradient.
#ifndef DIALECTS_BRAID_TILEEMITTER_H
#define DIALECTS_BRAID_TILEEMITTER_H

#include "dialects/tile/TileDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace braid {

class TileEmitter {
public:
  TileEmitter(mlir::OpBuilder &builder, mlir::Location loc, int64_t rows, mlir::Value tokenIndex)
      : builder(builder), loc(loc), rows(rows), tokenIndex(tokenIndex) {}

  mlir::OpBuilder &builder;
  mlir::Location loc;
  int64_t rows; ///< R: first dimension of every token tile
  mlir::Value tokenIndex; ///< i32 tile [R]: index t of each row within its batch row (positions)

  static llvm::ArrayRef<int64_t> shape(mlir::Value v) { return mlir::cast<mlir::VectorType>(v.getType()).getShape(); }
  static mlir::VectorType type(mlir::Value v) { return mlir::cast<mlir::VectorType>(v.getType()); }
  mlir::Value splat(mlir::VectorType type, double value);
  mlir::Value like(mlir::Value v, double value) { return splat(type(v), value); }
  // Elementwise, floats of one type.
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value sub(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, mlir::Value b);
  mlir::Value div(mlir::Value a, mlir::Value b);
  mlir::Value neg(mlir::Value a);
  mlir::Value exp(mlir::Value a);
  mlir::Value log(mlir::Value a);
  mlir::Value rsqrt(mlir::Value a);
  mlir::Value maximum(mlir::Value a, mlir::Value b); ///< where equal, the gradient goes to a
  mlir::Value minimum(mlir::Value a, mlir::Value b); ///< where equal, the gradient goes to b
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b);
  mlir::Value positive(mlir::Value x); ///< i1: x > 0
  mlir::Value sigmoid(mlir::Value x);
  mlir::Value softplus(mlir::Value x); ///< max(x, 0) + log1p(exp(-|x|))
  mlir::Value logSigmoid(mlir::Value x); ///< min(x, 0) - log1p(exp(-|x|))
  mlir::Value activation(mlir::Value x, llvm::StringRef kind);
  // Shapes.
  mlir::Value sumLast(mlir::Value x); ///< drops the last dimension
  mlir::Value maxLast(mlir::Value x); ///< no gradient flows through: only for shifts that cancel
  mlir::Value minLast(mlir::Value x);
  mlir::Value expandLast(mlir::Value x, int64_t size); ///< adds a last dimension
  mlir::Value expandAt(mlir::Value x, int64_t axis, int64_t size);
  mlir::Value broadcastTo(mlir::Value x, mlir::VectorType type); ///< trailing alignment (whole tiles to token tiles)
  mlir::Value reshape(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  mlir::Value slice(mlir::Value x, int64_t offset, int64_t size); ///< of the last dimension
  mlir::Value concat(mlir::ValueRange xs); ///< along the last dimension
  mlir::Value cast(mlir::Value x, mlir::Type element); ///< float <-> float, int -> float
  mlir::Value wide(mlir::Value x); ///< the type to compute in: f64 stays, others f32

private:
  mlir::Value tail(mlir::Value x); ///< log1p(exp(-|x|))
};

} // namespace braid

#endif // DIALECTS_BRAID_TILEEMITTER_H
