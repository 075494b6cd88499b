//===- LinearKernels.cpp - projections and experts: library GEMMs, and tile kernels where the library has none ----===//
// A few rows go to FewRows.cpp, sums that a GPU computes in one kernel to ProductSums.cpp. f32 and bf16 go to tile.gemm and tile.grouped_gemm. f64 (exact gradient tests) has no
// library: blocks of tile.dot.
#include "passes/outline/OutlineFamilies.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace braid {
namespace {

constexpr int64_t kRows = 16, kColumns = 32, kInner = 32;

int64_t rowsOf(Value v, int64_t columns) { return product(shapeOf(v)) / columns; }

Value gemmF64(Operation *op, const Product &p, RankedTensorType type, OutlineContext &context) {
  int64_t n = p.cColumns, m = product(type.getShape()) / n;
  int64_t k = p.transposeA ? rowsOf(p.a, p.aColumns) : p.aColumns;
  int64_t columns = divisorUpTo(n, kColumns);
  auto f64 = Float64Type::get(op->getContext());
  std::string name = "gemm_f64_n" + std::to_string(n) +
                     (p.transposeA ? "_m" + std::to_string(m) : "_k" + std::to_string(k)) +
                     (p.transposeA ? "_ta" : "") + (p.transposeB ? "_tb" : "") + (p.c ? "_add" : "");
  int64_t rows = p.transposeA ? divisorUpTo(m, kColumns) : kRows,
          inner = p.transposeA ? kInner : divisorUpTo(k, kInner);
  std::string kernel = context.kernel(name, {"column", "row"}, [&](KernelBuilder &b) {
    Var x = b.buffer("a", f64, {kDynamic, p.aColumns});
    Var y = b.buffer("b", f64, {p.transposeA ? kDynamic : (p.transposeB ? n : k), p.bColumns});
    Var c = p.c ? b.buffer("c", f64, {kDynamic, n}) : Var();
    Var z = b.buffer("y", f64, {kDynamic, n}), m = b.index("m"), k = b.index("k");
    Var row = b.program(1) * rows, column = b.program(0) * columns;
    Var start = c ? b.load(c, {row, column}, {rows, columns}, {.limit = m}) : b.tile({rows, columns}, f64);
    Vars sum = b.loop(0, k, inner, {start}, [&](Var i, ArrayRef<Var> acc) {
      Var left = p.transposeA ? b.load(x, {i, row}, {inner, rows}, {.limit = k})
                              : b.load(x, {row, i}, {rows, inner}, {.limit = m});
      Var right = p.transposeB ? b.load(y, {column, i}, {columns, inner})
                               : b.load(y, {i, column}, {inner, columns}, {.limit = k});
      return Vars{dot(left, right, acc[0], {p.transposeA, p.transposeB})};
    });
    b.store(sum[0], z, {row, column}, {.limit = m});
  });
  auto matrix = [&](Value v, int64_t columns) { return context.view(op, v, {rowsOf(v, columns), columns}); };
  Value a = matrix(p.a, p.aColumns), b = matrix(p.b, p.bColumns), c = p.c ? matrix(p.c, n) : Value();
  auto launch = context.launch(op, kernel, {n / columns, ceilDiv(m, rows)});
  launch.arg("a", a).arg("b", b);
  if (c)
    launch.arg("c", c);
  launch.result("y", type.clone({m, n}), c && !p.apart ? "c" : "").index("m", m).index("k", k);
  return context.view(op, launch.run()[0], type.getShape());
}

LogicalResult outlineLinearOp(LinearOp op, OutlineContext &context) {
  SmallVector<Value> results;
  for (auto [weight, result] : llvm::zip_equal(op.getWeights(), op.getResults())) {
    bool transposed = op.getTransposed();
    int64_t in = shapeOf(weight)[transposed ? 1 : 0], out = shapeOf(weight)[transposed ? 0 : 1];
    results.push_back(matrixProduct(op, {op.getX(), weight, {}, in, transposed ? in : out, out, false, transposed},
                                    result.getType(), context));
  }
  context.rewriter.replaceOp(op, results);
  return success();
}

LogicalResult outlineLinearAdd(LinearAddOp op, OutlineContext &context) {
  bool transposed = op.getTransposed();
  int64_t in = shapeOf(op.getWeight())[transposed ? 1 : 0], out = shapeOf(op.getWeight())[transposed ? 0 : 1];
  Product p{op.getX(), op.getWeight(), op.getAddend(), in, transposed ? in : out, out, false, transposed, true};
  context.rewriter.replaceOp(op, matrixProduct(op, p, op.getType(), context));
  return success();
}

/// Products that are added up stay in f32 until the sum is complete.
RankedTensorType sumType(Value result, size_t products) {
  auto type = tensorType(result);
  return products > 1 && type.getElementType().isBF16() ? type.clone(Float32Type::get(type.getContext())) : type;
}

/// x, rounded to the type's elements.
Value roundTo(Operation *op, Value x, Type type, OutlineContext &context) {
  if (x.getType() == type)
    return x;
  constexpr int64_t block = 1024, blocks = 8;
  auto wanted = cast<RankedTensorType>(type);
  Type from = tensorType(x).getElementType(), to = wanted.getElementType();
  int64_t size = product(wanted.getShape());
  std::string kernel = context.kernel("round_" + typeName(from) + "_" + typeName(to), {"block"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", from, {kDynamic}), y = k.buffer("y", to, {kDynamic}), size = k.index("size");
    Var first = k.program(0) * (block * blocks);
    k.loop(first, min(first + block * blocks, size), block,
           [&](Var i) { k.store(cast(k.load(x, {i}, {block}, {.limit = size}), to), y, {i}, {.limit = size}); });
  });
  Value flat = context.view(op, x, {size});
  auto launch = context.launch(op, kernel, {ceilDiv(size, block * blocks)});
  launch.arg("x", flat).result("y", RankedTensorType::get({size}, to)).index("size", size);
  return context.view(op, launch.run()[0], wanted.getShape());
}

/// The sum of `products`, each of which adds what is there before it. What is kept in a wider type until it is complete is rounded by the
/// last.
Value sumOfProducts(size_t products, Value result, bool roundInProducts,
                    llvm::function_ref<Value(size_t i, Value sum, bool apart, Type type)> make) {
  Type type = sumType(result, products);
  bool rounds = roundInProducts && type != result.getType();
  Value sum;
  for (size_t i = 0; i < products; ++i) {
    bool last = rounds && i + 1 == products;
    sum = make(i, sum, last, last ? result.getType() : type);
  }
  return sum;
}

LogicalResult outlineGradData(LinearGradDataOp op, OutlineContext &context) {
  bool transposed = op.getTransposed();
  if (context.ownProducts())
    if (Value sum =
            sumInOneKernel(op, op.getDys(), op.getWeights(), {}, !transposed, tensorType(op.getDx()), context)) {
      context.rewriter.replaceOp(op, sum);
      return success();
    }
  Value dx =
      sumOfProducts(op.getDys().size(), op.getDx(), !context.cublaslt, [&](size_t i, Value sum, bool apart, Type type) {
        Value weight = op.getWeights()[i];
        int64_t in = shapeOf(weight)[transposed ? 1 : 0], out = shapeOf(weight)[transposed ? 0 : 1];
        Product p{op.getDys()[i], weight, sum, out, transposed ? in : out, in, false, !transposed, apart};
        return matrixProduct(op, p, type, context);
      });
  context.rewriter.replaceOp(op, roundTo(op, dx, op.getDx().getType(), context));
  return success();
}

LogicalResult outlineGradWeight(LinearGradWeightOp op, OutlineContext &context) {
  SmallVector<Value> results;
  for (auto [i, dy, dw] : llvm::enumerate(op.getDys(), op.getDws())) {
    bool transposed = op.getTransposed();
    Value sum = op.getSums().empty() ? Value() : op.getSums()[i];
    int64_t in = shapeOf(dw)[transposed ? 1 : 0], out = shapeOf(dw)[transposed ? 0 : 1];
    Product p = transposed ? Product{dy, op.getX(), sum, out, in, in, true, false}
                           : Product{op.getX(), dy, sum, in, out, out, true, false};
    Value product = matrixProduct(op, p, sum ? sum.getType() : dw.getType(), context);
    results.push_back(roundTo(op, product, dw.getType(), context));
  }
  context.rewriter.replaceOp(op, results);
  return success();
}

//===- Experts ----------------------------------------------------------------------------------------------------===//

/// y[r] = a[r] op(b[g]) (+ c) for the rows of group g, or (weight) y[g] = a_g^T b_g.
Value groupedF64(Operation *op, Value a, Value b, Value offsets, Value c, bool weight, bool transposeB,
                 RankedTensorType type, OutlineContext &context) {
  auto f64 = Float64Type::get(op->getContext());
  int64_t groups = shapeOf(offsets)[0] - 1, n = type.getShape().back(), k = shapeOf(a)[2];
  int64_t columns = divisorUpTo(n, kColumns), inner = divisorUpTo(k, kInner);
  std::string name = std::string(weight ? "grouped_gemm_weight_f64" : "grouped_gemm_f64") + "_n" + std::to_string(n) +
                     "_k" + std::to_string(k) + (transposeB ? "_tb" : "") + (c ? "_add" : "");
  std::string kernel = context.kernel(name, {"column", weight ? "row" : "unused", "group"}, [&](KernelBuilder &t) {
    Var x = t.buffer("a", f64, {kDynamic, k}),
        y = weight ? t.buffer("b", f64, {kDynamic, n})
                   : t.buffer("b", f64, {kDynamic, transposeB ? n : k, transposeB ? k : n});
    Var starts = t.buffer("offsets", t.i32(), {kDynamic});
    Var add = !c ? Var() : weight ? t.buffer("c", f64, {kDynamic, k, n}) : t.buffer("c", f64, {kDynamic, n});
    Var z = weight ? t.buffer("y", f64, {kDynamic, k, n}) : t.buffer("y", f64, {kDynamic, n});
    Var g = t.program(2), column = t.program(0) * columns;
    Var lo = cast(t.at(starts, {g}), t.builder.getIndexType()),
        hi = cast(t.at(starts, {g + 1}), t.builder.getIndexType());
    if (weight) {
      Var row = t.program(1) * inner;
      Var start = add ? t.load(add, {g, row, column}, {inner, columns}) : t.tile({inner, columns}, f64);
      Vars sum = t.loop(lo, hi, kRows, {start}, [&](Var r, ArrayRef<Var> acc) {
        return Vars{dotTA(t.load(x, {r, row}, {kRows, inner}, {.limit = hi}),
                          t.load(y, {r, column}, {kRows, columns}, {.limit = hi}), acc[0])};
      });
      return t.store(sum[0], z, {g, row, column});
    }
    t.loop(lo, hi, kRows, [&](Var r) {
      Var start = add ? t.load(add, {r, column}, {kRows, columns}, {.limit = hi}) : t.tile({kRows, columns}, f64);
      Vars sum = t.loop(0, k, inner, {start}, [&](Var i, ArrayRef<Var> acc) {
        Var left = t.load(x, {r, i}, {kRows, inner}, {.limit = hi});
        Var right =
            transposeB ? t.load(y, {g, column, i}, {columns, inner}) : t.load(y, {g, i, column}, {inner, columns});
        return Vars{dot(left, right, acc[0], {false, transposeB})};
      });
      t.store(sum[0], z, {r, column}, {.limit = hi});
    });
  });
  auto matrix = [&](Value v) {
    return context.view(op, v, {product(shapeOf(v)) / shapeOf(v).back(), shapeOf(v).back()});
  };
  Value left = matrix(a), right = weight ? matrix(b) : b;
  SmallVector<int64_t> shape(type.getShape());
  if (!weight)
    shape.erase(shape.begin());
  if (c)
    c = context.view(op, c, shape);
  auto launch = context.launch(op, kernel, {n / columns, weight ? k / inner : 1, groups});
  launch.arg("a", left).arg("b", right).arg("offsets", offsets);
  if (c)
    launch.arg("c", c);
  return context.view(op, launch.result("y", type.clone(shape), c ? "c" : "").run()[0], type.getShape());
}

Value grouped(Operation *op, Value a, Value b, Value offsets, Value c, bool weight, bool transposeB, Type type,
              OutlineContext &context, bool apart = false) {
  auto tensor = cast<RankedTensorType>(type);
  if (!c && !weight && !transposeB)
    if (Value few = fewExpertRows(op, a, b, offsets, tensor, context))
      return few;
  if (tensor.getElementType().isF64())
    return groupedF64(op, a, b, offsets, c, weight, transposeB, tensor, context);
  context.rewriter.setInsertionPoint(op);
  return tile::GroupedGemmOp::create(context.rewriter, op->getLoc(), type, a, b, offsets, c, weight, transposeB, apart);
}

} // namespace

Value matrixProduct(Operation *op, const Product &p, Type type, OutlineContext &context) {
  auto tensor = cast<RankedTensorType>(type);
  if (Value few = fewRowsProduct(op, p, tensor, context))
    return few;
  if (tensor.getElementType().isF64())
    return gemmF64(op, p, tensor, context);
  if (Value sum = splitProduct(op, p, tensor, context))
    return sum;
  if (context.ownProducts())
    if (Value sum = sumInParts(op, p, tensor.clone(Float32Type::get(tensor.getContext())), context))
      return roundTo(op, sum, tensor, context);
  context.rewriter.setInsertionPoint(op);
  return tile::GemmOp::create(context.rewriter, op->getLoc(), type, p.a, p.b, p.c, p.aColumns, p.bColumns, p.cColumns,
                              p.transposeA, p.transposeB, p.apart);
}

LogicalResult outlineLinear(Operation *op, OutlineContext &context) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](LinearOp linear) { return outlineLinearOp(linear, context); })
      .Case([&](LinearAddOp linear) { return outlineLinearAdd(linear, context); })
      .Case([&](LinearGradDataOp grad) { return outlineGradData(grad, context); })
      .Case([&](LinearGradWeightOp grad) { return outlineGradWeight(grad, context); })
      .Case([&](MoeGroupedLinearOp linear) {
        SmallVector<Value> results;
        for (auto [weight, result] : llvm::zip_equal(linear.getWeights(), linear.getResults()))
          results.push_back(
              grouped(op, linear.getX(), weight, linear.getOffsets(), {}, false, false, result.getType(), context));
        context.rewriter.replaceOp(op, results);
        return success();
      })
      .Case([&](MoeGroupedLinearGradDataOp grad) {
        if (Value sum = sumInOneKernel(op, grad.getDys(), grad.getWeights(), grad.getOffsets(), /*transposeB=*/true,
                                       tensorType(grad.getDx()), context)) {
          context.rewriter.replaceOp(op, sum);
          return success();
        }
        Value dx =
            sumOfProducts(grad.getDys().size(), grad.getDx(), true, [&](size_t i, Value sum, bool apart, Type type) {
              return grouped(op, grad.getDys()[i], grad.getWeights()[i], grad.getOffsets(), sum, false, true, type,
                             context, apart);
            });
        context.rewriter.replaceOp(op, roundTo(op, dx, grad.getDx().getType(), context));
        return success();
      })
      .Case([&](MoeGroupedLinearGradWeightOp grad) {
        SmallVector<Value> results;
        for (auto [i, dy, dw] : llvm::enumerate(grad.getDys(), grad.getDws())) {
          if (Value squares = context.squares.lookup(dw)) {
            SmallVector<Value> both = weightsWithSquares(grad, i, context);
            results.push_back(both[0]);
            context.rewriter.replaceAllUsesWith(squares, both[1]);
            context.squares.erase(dw);
            context.squares[both[0]] = both[1];
            continue;
          }
          // The CPU's library walks a group's rows in blocks: several products.
          Value sum = grad.getSums().empty() ? Value() : grad.getSums()[i];
          Type type = sum ? sum.getType() : sumType(dw, context.gpu ? 1 : 2);
          Value product = grouped(op, grad.getX(), dy, grad.getOffsets(), sum, true, false, type, context);
          results.push_back(roundTo(op, product, dw.getType(), context));
        }
        context.rewriter.replaceOp(op, results);
        return success();
      });
}

} // namespace braid
