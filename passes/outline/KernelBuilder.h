//===- KernelBuilder.h - writing a tile kernel like its equation --------------------------------------------------===//
//
//   KernelBuilder k(module, "scale_add", {"row"});
//   Var x = k.buffer("x", f32, {kDynamic, 64}), y = k.buffer("y", f32, {kDynamic, 64}), rows = k.index("rows");
//   Var first = k.program(0) * 16;
//   Var tile = k.load(x, {first, 0}, {16, 64}, {.limit = rows});
//   k.store(exp(tile * 2.0) + 1.0, y, {first, 0}, {.limit = rows});
//   k.finish();
//
// A Var is a tile, a scalar, an index or a buffer. Arithmetic takes two Vars of one element type; a scalar operand is
// broadcast to the other's shape, a number becomes a constant of the other's type. Nothing broadcasts tile to tile:
// expand() says along which axis.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_OUTLINE_KERNELBUILDER_H
#define PASSES_OUTLINE_KERNELBUILDER_H

#include "dialects/braid/TileEmitter.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace braid {

inline constexpr int64_t kDynamic = mlir::ShapedType::kDynamic;
using Shape = llvm::ArrayRef<int64_t>;

/// A dimension of a buffer with the name by which people know it (tile.axes).
struct Axis {
  llvm::StringRef name;
  int64_t size = kDynamic;
};
using Axes = llvm::ArrayRef<Axis>;

/// A value of the kernel under construction, with operators.
class Var {
public:
  Var() = default;
  Var(mlir::ImplicitLocOpBuilder *builder, mlir::Value value) : builder(builder), value(value) {}
  operator mlir::Value() const { return value; }
  explicit operator bool() const { return static_cast<bool>(value); }
  mlir::ImplicitLocOpBuilder &b() const { return *builder; }
  mlir::Type type() const { return value.getType(); }
  mlir::Type element() const { return mlir::getElementTypeOrSelf(value.getType()); }
  bool isTile() const { return mlir::isa<mlir::VectorType>(value.getType()); }
  Shape shape() const { return mlir::cast<mlir::ShapedType>(value.getType()).getShape(); }
  int64_t dim(unsigned i) const { return shape()[i]; }
  int64_t rank() const { return isTile() ? static_cast<int64_t>(shape().size()) : 0; }
  Var with(mlir::Value other) const { return Var(builder, other); }
  /// A constant of this value's type (a splat for tiles).
  Var like(double number) const;

private:
  mlir::ImplicitLocOpBuilder *builder = nullptr;
  mlir::Value value;
};
using Vars = llvm::SmallVector<Var>;

// ---- elementwise (float, integer or index; integers are signed) -----------------------------------------------------
Var operator+(Var a, Var b);
Var operator-(Var a, Var b);
Var operator*(Var a, Var b);
Var operator/(Var a, Var b); ///< integers: towards zero
Var operator%(Var a, Var b); ///< integers only, sign of a
Var operator-(Var a);
Var min(Var a, Var b);
Var max(Var a, Var b);
#define BRAID_VAR_NUMBER(name)                                                                                         \
  inline Var name(Var a, double b) { return name(a, a.like(b)); }                                                      \
  inline Var name(double a, Var b) { return name(b.like(a), b); }
BRAID_VAR_NUMBER(operator+)
BRAID_VAR_NUMBER(operator-)
BRAID_VAR_NUMBER(operator*)
BRAID_VAR_NUMBER(operator/)
BRAID_VAR_NUMBER(operator%)
BRAID_VAR_NUMBER(min)
BRAID_VAR_NUMBER(max)
// Comparisons give i1 (tile or scalar); they are named because == of values means identity.
Var lt(Var a, Var b);
Var le(Var a, Var b);
Var eq(Var a, Var b);
Var ne(Var a, Var b);
Var gt(Var a, Var b);
Var ge(Var a, Var b);
BRAID_VAR_NUMBER(lt)
BRAID_VAR_NUMBER(le)
BRAID_VAR_NUMBER(eq)
BRAID_VAR_NUMBER(ne)
BRAID_VAR_NUMBER(gt)
BRAID_VAR_NUMBER(ge)
#undef BRAID_VAR_NUMBER
Var both(Var a, Var b); ///< bitwise and
Var either(Var a, Var b); ///< bitwise or
Var exclusive(Var a, Var b); ///< bitwise exclusive or
Var shiftLeft(Var a, int64_t bits);
Var shiftRight(Var a, int64_t bits); ///< fills with zeros
/// condition ? a : b; a scalar condition chooses whole tiles, a scalar a or b is broadcast to the condition's shape.
Var select(Var condition, Var a, Var b);
inline Var select(Var condition, Var a, double b) { return select(condition, a, a.like(b)); }
inline Var select(Var condition, double a, Var b) { return select(condition, b.like(a), b); }
/// Another element type: float <-> float, integer -> float, float -> integer (towards zero), index <-> integer.
Var cast(Var x, mlir::Type element);
/// The same bits as another element type of as many.
Var bitcast(Var x, mlir::Type element);
Var exp(Var x);
Var exp2(Var x);
Var log(Var x);
Var log1p(Var x);
Var sqrt(Var x);
Var rsqrt(Var x);
Var abs(Var x);
Var sin(Var x);
Var cos(Var x);
Var tanh(Var x);
Var sigmoid(Var x);

// ---- tiles ----------------------------------------------------------------------------------------------------------
/// op(a) op(b) (+ acc) with accumulation in f32 (f64 for f64).
struct DotOptions {
  bool transposeA = false, transposeB = false;
};
Var dot(Var a, Var b, Var acc = {}, DotOptions options = {});
inline Var dotTA(Var a, Var b, Var acc = {}) { return dot(a, b, acc, {true, false}); } ///< a^T b
inline Var dotTB(Var a, Var b, Var acc = {}) { return dot(a, b, acc, {false, true}); } ///< a b^T
Var solve(Var a, Var b, bool transpose = false); ///< (I + strictlower(a))^-1 b
Var cumsum(Var x, int64_t axis = 0, bool reverse = false);
Var sum(Var x, int64_t axis); ///< the axis disappears; rank 1 gives a scalar
Var maximum(Var x, int64_t axis);
Var minimum(Var x, int64_t axis);
Var expand(Var x, int64_t axis, int64_t size); ///< inserts `axis` and repeats along it; a scalar becomes a rank-1 tile
Var splat(Var scalar, Shape shape);
Var transpose(Var x);
Var mask(Var x, tile::Keep keep);
Var diagonal(Var x); ///< of a square tile
Var pick(Var x, Var columns); ///< element columns[i] of row i, 0 where there is none; columns i32
Var rows(Var x, Var offset, int64_t count); ///< rows [offset, offset + count)
Var row(Var x, Var offset); ///< one row, one rank less
Var insertRows(Var value, Var target, Var offset);
Var slice(Var x, int64_t offset, int64_t size); ///< of the last dimension
Var concat(llvm::ArrayRef<Var> xs); ///< along the last dimension
Var reshape(Var x, Shape shape);

// ---- the kernel -----------------------------------------------------------------------------------------------------

/// An index operand: a Var or a number.
struct Index {
  Index(Var var) : var(var) {}
  template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Index(T number) : number(static_cast<int64_t>(number)) {}
  Var var;
  int64_t number = 0;
};
using Indices = llvm::ArrayRef<Index>;

/// How a tile meets a buffer. `dims` empty: the last dimensions of the buffer, as many as the tile has.
struct AccessOptions {
  Var limit = {}; ///< rows at or past it read 0 and are not written
  Var rows = {}; ///< i32 tile of row numbers: gather, scatter; negative reads 0 and is not written
  llvm::SmallVector<int64_t, 4> dims = {}; ///< buffer dimension of each tile dimension, ascending
};

class KernelBuilder {
public:
  /// Creates `func.func @name` at the end of the module. `grid` names one to three axes, x (fastest) first.
  KernelBuilder(mlir::ModuleOp module, llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> grid);

  // Parameters, in the order of the calls. Dimensions may be kDynamic. `strided`: outer strides are parameters too
  // (a view of a larger tensor); otherwise the buffer is dense.
  Var buffer(llvm::StringRef name, mlir::Type element, Shape shape, bool strided = false);
  Var buffer(llvm::StringRef name, mlir::Type element, Axes axes);
  Var index(llvm::StringRef name);
  Var scalar(llvm::StringRef name, mlir::Type type);

  Var program(unsigned axis);
  /// Size of a buffer's dimension (an index; constant when static).
  Var size(Var buffer, unsigned dim);

  Var number(int64_t value); ///< an index constant
  Var constant(mlir::Type scalarType, double value);
  Var integer(mlir::Type scalarType, uint64_t bits); ///< every bit kept (a double keeps 53)
  Var tile(Shape shape, mlir::Type element, double value = 0); ///< a splat tile
  Var iota(Shape shape, int64_t axis); ///< i32

  Var load(Var buffer, Indices at, Shape tile, const AccessOptions &options = {});
  void store(Var tile, Var buffer, Indices at, const AccessOptions &options = {});
  Var at(Var buffer, Indices at); ///< one element
  void put(Var scalar, Var buffer, Indices at); ///< one element
  Var value(Index index);

  /// for (i = lo; i < hi; i += step) with carried values. `meanWalk`: tile::kMeanWalkAttr.
  Vars loop(Index lo, Index hi, Index step, llvm::ArrayRef<Var> carried,
            llvm::function_ref<Vars(Var i, llvm::ArrayRef<Var> carried)> body, int64_t meanWalk = 0);
  void loop(Index lo, Index hi, Index step, llvm::function_ref<void(Var i)> body, int64_t meanWalk = 0);
  /// The last of the offsets in a parameter tile::kRowsEnd, an index.
  Var rowsEnd();
  /// The kernel of rows [0, limit) that only a buffer's content knows: `blockRows` at a time, as many for each of `programs`
  /// (an index parameter), in order. `body` must not write rows at or past the limit.
  void share(Var limit, int64_t blockRows, llvm::function_ref<void(Var first)> body);
  void when(Var condition, llvm::function_ref<void()> then);
  Vars when(Var condition, llvm::function_ref<Vars()> then, llvm::function_ref<Vars()> otherwise);

  /// (I + strictlower(a))^-1 - I, for kernels that multiply by nothing but it: invertTriangles() takes it for what it makes of a.
  Var inverted(Var a);
  /// Triangular systems so far become products: each triangle L is inverted once, where it is made, and (I + L)^-1 b is
  /// b + ((I + L)^-1 - I) b. For kernels of GPUs, whose matrix units have no substitution.
  void invertTriangles();
  /// Products so far read their operands rounded to bf16; sums stay as they are, exponentials of tiles may be
  /// approximate (`afn`). For kernels on bf16 tokens.
  void roundProducts();
  /// At every launch the operands of products, and results, are as large as their tiles at least, and they and all of their rows begin on 16 bytes.
  void inBoxes() { func->setAttr(tile::kBoxesAttr, builder.getUnitAttr()); }
  /// Exponentials and quotients so far, of f32 tiles, may be approximate. For what is rounded to bf16 in the end.
  void approximate();
  /// The same where bf16, and what loops have added up beside it, is all that the kernel stores.
  void approximateRounded();

  mlir::Type f32() { return builder.getF32Type(); }
  mlir::Type f64() { return builder.getF64Type(); }
  mlir::Type i1() { return builder.getI1Type(); }
  mlir::Type i32() { return builder.getI32Type(); }
  mlir::Type i64() { return builder.getI64Type(); }
  Var wrap(mlir::Value v) { return Var(&builder, v); }

  /// Closes the function. No call may follow.
  mlir::func::FuncOp finish();
  mlir::func::FuncOp function() { return func; }

  mlir::ImplicitLocOpBuilder builder;

private:
  Var parameter(llvm::StringRef name, mlir::Type type);
  llvm::SmallVector<int64_t, 4> dimsOf(Var buffer, int64_t tileRank, const AccessOptions &options);

  mlir::func::FuncOp func;
  llvm::DenseMap<mlir::Value, mlir::Value> inverses; ///< of triangles: inverted()
  llvm::SmallVector<mlir::Attribute> names;
  llvm::SmallVector<std::pair<unsigned, mlir::ArrayAttr>> axes; ///< of the buffers that have them
  llvm::SmallVector<mlir::Value> programs;
};

/// The type a kernel computes in: f64 for f64, otherwise f32.
mlir::Type computeType(mlir::Type element);

} // namespace braid

#endif // PASSES_OUTLINE_KERNELBUILDER_H
