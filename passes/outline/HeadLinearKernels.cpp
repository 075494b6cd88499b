//===- HeadLinearKernels.cpp - head_linear becomes a launch --------------------------------------------------------===//
//
//   y_h = x_h w_h, w_h the E columns of head h in w [R, H E]; or x_h w_h^T
//
// Programs own (rows and columns of y_h, head, batch). Where every row of the batch has one token, rows are those of the batch.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/OutlineFamilies.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {

LogicalResult outlineHeadLinear(HeadLinearOp op, OutlineContext &context) {
  Shape x = shapeOf(op.getX()), w = shapeOf(op.getWeight());
  int64_t batch = x[0], tokens = x[1], heads = x[2], in = x[3], out = shapeOf(op.getY())[3];
  bool transposed = op.getTransposed(), byBatch = tokens == 1;
  Type token = tensorType(op.getX()).getElementType(), weight = tensorType(op.getWeight()).getElementType(),
       compute = computeType(token);
  int64_t rows = byBatch ? (batch <= 16 ? 16 : 64) : 64, columns = divisorUpTo(out, 64), inner = divisorUpTo(in, 64);
  std::string name = llvm::formatv("head_linear_h{0}_k{1}_n{2}_r{3}_{4}", heads, in, out, rows, typeName(token));
  if (weight != token)
    name += "_w" + typeName(weight);
  name += std::string(transposed ? "_tb" : "") + (byBatch ? "_batch" : "");
  std::string kernel = context.kernel(name, {"rows", "head", "batch"}, [&](KernelBuilder &k) {
    Var xs = k.buffer("x", token, {{"row"}, {"token"}, {"head", heads}, {"feature", in}});
    Var ws = k.buffer("weight", weight, {{"in", w[0]}, {"out", w[1]}});
    Var y = k.buffer("y", token, {{"row"}, {"token"}, {"head", heads}, {"feature", out}});
    Var h = k.program(1), b = k.program(2), count = k.size(xs, byBatch ? 0 : 1);
    auto parts = static_cast<double>(out / columns);
    Var block = k.program(0) / parts, column = (k.program(0) - block * parts) * static_cast<double>(columns),
        row = block * static_cast<double>(rows);
    llvm::SmallVector<int64_t, 4> dims{byBatch ? 0 : 1, 3};
    auto at = [&](Var feature) -> llvm::SmallVector<Index> {
      return byBatch ? llvm::SmallVector<Index>{row, 0, h, feature} : llvm::SmallVector<Index>{b, row, h, feature};
    };
    Var first = h * static_cast<double>(transposed ? in : out); // column of w at which the head's begin
    Var sum = k.loop(0, in, inner, {k.tile({rows, columns}, compute)}, [&](Var i, llvm::ArrayRef<Var> now) -> Vars {
      Var left = cast(k.load(xs, at(i), {rows, inner}, {.limit = count, .dims = dims}), compute);
      Var right = transposed ? k.load(ws, {column, first + i}, {columns, inner})
                             : k.load(ws, {i, first + column}, {inner, columns});
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

} // namespace braid
