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
  int64_t rows;           ///< R: first dimension of every token tile
  mlir::Value tokenIndex; ///< i32 tile [R]: index t of each row within its batch row (positions)

  static llvm::ArrayRef<int64_t> shape(mlir::Value v) { return mlir::cast<mlir::VectorType>(v.getType()).getShape(); }
  static mlir::VectorType type(mlir::Value v) { return mlir::cast<mlir::VectorType>(v.getType()); }
  mlir::Value splat(mlir::VectorType type, double value);
  mlir::Value like(mlir::Value v, double value) { return splat(type(v), value); }
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value sub(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, mlir::Value b);
  mlir::Value div(mlir::Value a, mlir::Value b);
  mlir::Value neg(mlir::Value a);
  mlir::Value exp(mlir::Value a);
  mlir::Value rsqrt(mlir::Value a);
  mlir::Value sigmoid(mlir::Value a);
  mlir::Value softplus(mlir::Value a); ///< max(x, 0) + log1p(exp(-|x|))
  mlir::Value activation(mlir::Value x, llvm::StringRef kind);
  mlir::Value sumLast(mlir::Value x);                     ///< drops the last dimension
  mlir::Value maxLast(mlir::Value x);
  mlir::Value expandLast(mlir::Value x, int64_t size);    ///< adds a last dimension
  mlir::Value broadcastTo(mlir::Value x, mlir::VectorType type); ///< trailing alignment (whole tiles to token tiles)
  mlir::Value reshape(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  mlir::Value cast(mlir::Value x, mlir::Type element);    ///< float <-> float, int -> float
};

} // namespace braid

#endif // DIALECTS_BRAID_TILEEMITTER_H
