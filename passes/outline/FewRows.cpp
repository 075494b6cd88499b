//===- FewRows.cpp - products of a few rows, as in decoding: weights stream once through vector registers ---------===//
//
//   y[r, :] = sum_k x[r, k] W[k, :]          W [K, N]: a block of columns per program, kUnroll rows of W at a time
//   y[r, n] = sum_k x[r, k] W[n, k]          W [N, K]: a block of W's rows per program
//   y[r, :] = sum_k x[r, k] W[e(r), k, :]    experts: e(r) is the group of row r
//
// Such a product reads every weight once for two operations: only memory bandwidth counts. A library GEMM first packs
// W, which costs as much as the product several times over. On a GPU such a product is one like others (braid-gemm-kernels), in
// tiles of sixteen rows of which most are empty: programs of it ask for much of the weights at a time, and tensor cores have nothing else to do.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/OutlineFamilies.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {

namespace {

constexpr int64_t kWeightRows = 8, kUnroll = 8;

/// Columns of a program: long pieces of the weight's rows, yet work for two programs.
int64_t columnsOf(int64_t n) { return n <= 64 ? n : std::clamp<int64_t>(n / 128 * 64, 64, 256); }

std::string kernelName(llvm::StringRef what, Value x, Value weight, RankedTensorType result, int64_t k, int64_t n) {
  std::string name = llvm::formatv("{0}_k{1}_n{2}_{3}", what, k, n, typeName(tensorType(x).getElementType()));
  for (Type element : {tensorType(weight).getElementType(), result.getElementType()})
    if (element != tensorType(x).getElementType())
      return name + "_" + typeName(tensorType(weight).getElementType()) + "_" + typeName(result.getElementType());
  return name;
}

/// sum_k x[row, k] w[at.., k, column + lane] for `columns` lanes.
Var columnSums(KernelBuilder &k, Var x, Var row, Var w, ArrayRef<Index> at, Var column, int64_t columns, int64_t depth,
               int64_t width, Type compute) {
  int64_t unroll = divisorUpTo(depth, kUnroll);
  AccessOptions options;
  options.dims = {static_cast<int64_t>(at.size()) + 1};
  if (width % columns)
    options.limit = k.number(width);
  return k.loop(0, depth, unroll, {k.tile({columns}, compute)}, [&](Var i, ArrayRef<Var> now) -> Vars {
    // Two chains: half the latency, and a sum of many terms keeps its digits.
    Vars sums{now[0], k.tile({columns}, compute)};
    for (int64_t j = 0; j < unroll; ++j) {
      SmallVector<Index> place(at);
      place.append({i + static_cast<double>(j), column});
      Var weights = cast(k.load(w, place, {columns}, options), compute);
      Var factor = splat(cast(k.at(x, {row, i + static_cast<double>(j)}), compute), {columns});
      sums[j % 2] = weights.with(math::FmaOp::create(k.builder, weights, factor, sums[j % 2]));
    }
    return {sums[0] + sums[1]};
  })[0];
}

void storeColumns(KernelBuilder &k, Var sums, Var y, Var row, Var column, int64_t width) {
  AccessOptions options;
  options.dims = {1};
  if (width % sums.dim(0))
    options.limit = k.number(width);
  k.store(cast(sums, y.element()), y, {row, column}, options);
}

} // namespace

bool isOfFewRows(Value x, Value weight, int64_t rows, int64_t most, bool gpu) {
  bool isDouble = tensorType(x).getElementType().isF64() || tensorType(weight).getElementType().isF64();
  return rows <= most && (!gpu || isDouble);
}

Value fewRowsProduct(Operation *op, const Product &p, RankedTensorType type, OutlineContext &context) {
  int64_t n = p.cColumns, m = product(type.getShape()) / n, depth = p.aColumns;
  if (p.c || p.transposeA || !isOfFewRows(p.a, p.b, m, kFewRows, context.gpu))
    return {};
  Type xType = tensorType(p.a).getElementType(), wType = tensorType(p.b).getElementType(),
       yType = type.getElementType();
  Type compute = computeType(xType);
  int64_t columns = columnsOf(n), rows = std::min(kWeightRows, n), part = p.transposeB ? rows : columns;
  std::string kernel = context.kernel(
      kernelName(p.transposeB ? "few_rows_t" : "few_rows", p.a, p.b, type, depth, n), {"row", "part"},
      [&](KernelBuilder &k) {
        Var x = k.buffer("x", xType, {kDynamic, depth});
        Var w = k.buffer("w", wType, {p.transposeB ? n : depth, p.transposeB ? depth : n});
        Var y = k.buffer("y", yType, {kDynamic, n}), row = k.program(0),
            first = k.program(1) * static_cast<double>(part);
        if (!p.transposeB)
          return storeColumns(k, columnSums(k, x, row, w, {}, first, columns, depth, n, compute), y, row, first, n);
        AccessOptions options;
        if (n % rows)
          options.limit = k.number(n);
        Var weights = cast(k.load(w, {first, 0}, {rows, depth}, options), compute);
        Var values = cast(k.load(x, {row, 0}, {depth}), compute);
        storeColumns(k, sum(weights * expand(values, 0, rows), 1), y, row, first, n);
      });
  Value x = context.view(op, p.a, {m, depth});
  SmallVector<int64_t> shape = p.transposeB ? SmallVector<int64_t>{n, depth} : SmallVector<int64_t>{depth, n};
  Value w = context.view(op, p.b, shape);
  Value y = context.launch(op, kernel, {m, ceilDiv(n, part)})
                .arg("x", x)
                .arg("w", w)
                .result("y", type.clone({m, n}))
                .run()[0];
  return context.view(op, y, type.getShape());
}

Value fewExpertRows(Operation *op, Value a, Value weights, Value offsets, RankedTensorType type,
                    OutlineContext &context) {
  int64_t n = type.getShape().back(), m = product(type.getShape()) / n, depth = shapeOf(weights)[1];
  if (!isOfFewRows(a, weights, m, kFewExpertRows, context.gpu))
    return {};
  Type xType = tensorType(a).getElementType(), wType = tensorType(weights).getElementType();
  Type compute = computeType(xType);
  int64_t columns = columnsOf(n);
  std::string kernel = context.kernel(
      kernelName("few_rows_experts", a, weights, type, depth, n), {"part", "row"}, [&](KernelBuilder &k) {
        Var x = k.buffer("x", xType, {kDynamic, depth}), w = k.buffer("w", wType, {kDynamic, depth, n});
        Var starts = k.buffer("offsets", k.i32(), {kDynamic}), y = k.buffer("y", type.getElementType(), {kDynamic, n});
        Var column = k.program(0) * static_cast<double>(columns), row = k.program(1), experts = k.size(w, 0);
        // The group of a row is the number of groups that end at or before it.
        Var at = cast(row, k.i32());
        Var expert = k.loop(0, experts, 1, {k.number(0)}, [&](Var e, ArrayRef<Var> now) -> Vars {
          return {select(le(k.at(starts, {e + 1.0}), at), now[0] + 1.0, now[0])};
        })[0];
        k.when(lt(expert, experts), [&] {
          storeColumns(k, columnSums(k, x, row, w, {expert}, column, columns, depth, n, compute), y, row, column, n);
        });
      });
  Value y = context.launch(op, kernel, {ceilDiv(n, columns), m})
                .arg("x", context.view(op, a, {m, depth}))
                .arg("w", weights)
                .arg("offsets", offsets)
                .result("y", type.clone({m, n}))
                .run()[0];
  return context.view(op, y, type.getShape());
}

} // namespace braid
