//===- HeadLinearKernels.cpp - head_linear becomes a launch --------------------------------------------------------===//
//
//   y_h = x_h w_h, w_h the E columns of head h in w [R, H E], or w[h] of [H, R, E]; or x_h w_h^T
//   dw_h = x_h^T dy_h, of tokens in parts that are added up in their order
//
// Programs own (rows and columns of y_h, head, batch). Where every row of the batch has one token, rows are those of the batch. Of dw_h programs own
// (rows and columns of dw_h, head, part of the tokens).
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/OutlineFamilies.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {

LogicalResult outlineHeadLinear(HeadLinearOp op, OutlineContext &context) {
  Shape x = shapeOf(op.getX()), w = shapeOf(op.getWeight());
  int64_t batch = x[0], tokens = x[1], heads = x[2], in = x[3], out = shapeOf(op.getY())[3];
  bool transposed = op.getTransposed(), byBatch = tokens == 1, isBlocks = w.size() == 3;
  Type token = tensorType(op.getX()).getElementType(), weight = tensorType(op.getWeight()).getElementType(),
       compute = computeType(token);
  int64_t rows = byBatch ? (batch <= 16 ? 16 : 64) : 64, columns = divisorUpTo(out, 64), inner = divisorUpTo(in, 64);
  std::string name = llvm::formatv("head_linear_h{0}_k{1}_n{2}_r{3}_{4}", heads, in, out, rows, typeName(token));
  if (weight != token)
    name += "_w" + typeName(weight);
  name += std::string(isBlocks ? "_blocks" : "") + (transposed ? "_tb" : "") + (byBatch ? "_batch" : "");
  std::string kernel = context.kernel(name, {"rows", "head", "batch"}, [&](KernelBuilder &k) {
    Var xs = k.buffer("x", token, {{"row"}, {"token"}, {"head", heads}, {"feature", in}});
    Var ws = isBlocks ? k.buffer("weight", weight, {{"head", w[0]}, {"in", w[1]}, {"out", w[2]}})
                      : k.buffer("weight", weight, {{"in", w[0]}, {"out", w[1]}});
    Var y = k.buffer("y", token, {{"row"}, {"token"}, {"head", heads}, {"feature", out}});
    Var h = k.program(1), b = k.program(2), count = k.size(xs, byBatch ? 0 : 1);
    auto parts = static_cast<double>(out / columns);
    Var number = k.program(0) / parts, column = (k.program(0) - number * parts) * static_cast<double>(columns),
        row = number * static_cast<double>(rows);
    llvm::SmallVector<int64_t, 4> dims{byBatch ? 0 : 1, 3};
    auto at = [&](Var feature) -> llvm::SmallVector<Index> {
      return byBatch ? llvm::SmallVector<Index>{row, 0, h, feature} : llvm::SmallVector<Index>{b, row, h, feature};
    };
    Var first = h * static_cast<double>(transposed ? in : out); // column of w at which the head's begin
    auto block = [&](Var row, Var column, llvm::ArrayRef<int64_t> shape) {
      return isBlocks ? k.load(ws, {h, row, column}, Shape(shape), {.dims = {1, 2}})
                      : k.load(ws, {row, first + column}, Shape(shape));
    };
    Var sum = k.loop(0, in, inner, {k.tile({rows, columns}, compute)}, [&](Var i, llvm::ArrayRef<Var> now) -> Vars {
      Var left = cast(k.load(xs, at(i), {rows, inner}, {.limit = count, .dims = dims}), compute);
      Var right = transposed ? block(column, i, {columns, inner}) : block(i, column, {inner, columns});
      return {dot(left, cast(right, compute), now[0], {false, transposed})};
    })[0];
    k.store(cast(sum, token), y, at(column), {.limit = count, .dims = dims});
    if (token.isBF16())
      k.roundProducts();
  });
  int64_t blocks = ceilDiv(byBatch ? batch : tokens, rows) * (out / columns);
  auto launch = context.launch(op, kernel, {blocks, heads, byBatch ? 1 : batch});
  launch.arg("x", op.getX()).arg("weight", op.getWeight());
  context.replace(op, launch.result("y", op.getY().getType()).run());
  return success();
}

LogicalResult outlineHeadLinearGradWeight(HeadLinearGradWeightOp op, OutlineContext &context) {
  constexpr int64_t side = 64, rows = 64, most = 1024; // tokens at a time, and of a part
  Shape x = shapeOf(op.getX()), dw = shapeOf(op.getDweight());
  int64_t batch = x[0], tokens = x[1], heads = x[2], in = dw[1], out = dw[2];
  Type token = tensorType(op.getX()).getElementType(), cotangent = tensorType(op.getDy()).getElementType(),
       sum = tensorType(op.getDweight()).getElementType(), compute = computeType(token);
  int64_t height = divisorUpTo(in, side), width = divisorUpTo(out, side), parts = ceilDiv(tokens, most),
          span = llvm::alignTo(ceilDiv(tokens, parts), rows);
  std::string name = llvm::formatv("head_linear_grad_weight_h{0}_k{1}_n{2}_{3}", heads, in, out, typeName(token));
  if (cotangent != token)
    name += "_" + typeName(cotangent);
  std::string kernel = context.kernel(name, {"block", "head", "part"}, [&](KernelBuilder &k) {
    Var xs = k.buffer("x", token, {{"row"}, {"token"}, {"head", heads}, {"feature", in}});
    Var dys = k.buffer("dy", cotangent, {{"row"}, {"token"}, {"head", heads}, {"feature", out}});
    Var y = k.buffer("parts", compute, {kDynamic, heads, in, out});
    Var each = k.index("span"), perRow = k.index("parts_of_row");
    auto across = static_cast<double>(out / width);
    Var down = k.program(0) / across, h = k.program(1), part = k.program(2);
    Var i = down * static_cast<double>(height), j = (k.program(0) - down * across) * static_cast<double>(width);
    Var b = part / perRow, first = (part - b * perRow) * each, end = min(first + each, k.size(xs, 1));
    Var total =
        k.loop(first, end, rows, {k.tile({height, width}, compute)}, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
          auto load = [&](Var buffer, Var feature, int64_t features) {
            return cast(k.load(buffer, {b, t, h, feature}, {rows, features}, {.limit = end, .dims = {1, 3}}), compute);
          };
          return {dotTA(load(xs, i, height), load(dys, j, width), now[0])};
        })[0];
    k.store(total, y, {part, h, i, j}, {.dims = {2, 3}});
    if (token.isBF16())
      k.roundProducts();
  });
  auto launch = context.launch(op, kernel, {in / height * (out / width), heads, parts * batch});
  launch.arg("x", op.getX()).arg("dy", op.getDy());
  Value made = launch.result("parts", RankedTensorType::get({parts * batch, heads, in, out}, compute))
                   .index("span", span)
                   .index("parts_of_row", parts)
                   .run()
                   .front();
  Value dweight =
      parts * batch > 1 ? sumOverRows(op, context.view(op, made, {parts * batch, heads * in * out}), context) : made;
  dweight = context.view(op, dweight, {heads, in, out});
  if (compute != sum)
    return op.emitOpError() << "sums " << compute << " but its result holds " << sum;
  context.replace(op, dweight);
  return success();
}

} // namespace braid
