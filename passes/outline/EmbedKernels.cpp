//===- EmbedKernels.cpp - the token table and its gradient --------------------------------------------------------===//
#include "passes/outline/OutlineFamilies.h"

using namespace mlir;

namespace braid {

/// y[n, :] = table[tokens[n], :]
static LogicalResult outlineGather(EmbedOp op, OutlineContext &context) {
  auto table = tensorType(op.getTable());
  int64_t width = shapeOf(op.getTable())[1], count = product(shapeOf(op.getTokens()));
  int64_t rows = std::clamp<int64_t>(2048 / width, 1, 16);
  Type element = table.getElementType();
  std::string kernel =
      context.kernel("embed_d" + std::to_string(width) + "_" + typeName(element), {"token"}, [&](KernelBuilder &k) {
        Var tokens = k.buffer("tokens", k.i32(), {kDynamic}), table = k.buffer("table", element, {kDynamic, width});
        Var y = k.buffer("y", element, {kDynamic, width}), count = k.index("count"), size = k.index("vocabulary");
        Var first = k.program(0) * rows;
        Var ids = k.load(tokens, {first}, {rows}, {.limit = count});
        k.store(k.load(table, {0, 0}, {rows, width}, {.limit = size, .rows = ids}), y, {first, 0}, {.limit = count});
      });
  Value tokens = context.view(op, op.getTokens(), {count});
  context.replace(op, context.launch(op, kernel, {ceilDiv(count, rows)})
                          .arg("tokens", tokens)
                          .arg("table", op.getTable())
                          .result("y", RankedTensorType::get({count, width}, element))
                          .index("count", count)
                          .index("vocabulary", shapeOf(op.getTable())[0])
                          .run());
  return success();
}

/// dtable[v, columns] = sum of dy[n, columns] over the tokens n with tokens[n] = v, n ascending. One program owns some
/// columns of all rows, on a GPU of some blocks of rows, and walks all tokens: no two programs write the same element, and the order is that of the
/// tokens.
static LogicalResult outlineScatter(EmbedGradOp op, OutlineContext &context) {
  auto type = tensorType(op.getDtable());
  int64_t vocabulary = type.getDimSize(0), width = type.getDimSize(1), count = product(shapeOf(op.getTokens()));
  constexpr int64_t rows = 16;
  int64_t columns = divisorUpTo(width, context.gpu ? 256 : 64);
  int64_t owners = context.gpu ? std::clamp<int64_t>(ceilDiv(vocabulary, rows), 1, 128) : 1;
  Type element = tensorType(op.getDy()).getElementType(), sum = type.getElementType();
  std::string name = "embed_grad_d" + std::to_string(width) + "_" + typeName(element);
  if (owners > 1)
    name += "_owners" + std::to_string(owners);
  std::string kernel = context.kernel(name, {"column", "owner"}, [&](KernelBuilder &k) {
    Var tokens = k.buffer("tokens", k.i32(), {kDynamic}), dy = k.buffer("dy", element, {kDynamic, width});
    Var dtable = k.buffer("dtable", sum, {kDynamic, width}), count = k.index("count"), size = k.index("vocabulary");
    Var column = k.program(0) * columns, owner = k.program(1);
    k.loop(owner * rows, size, owners * rows,
           [&](Var v) { k.store(k.tile({rows, columns}, sum), dtable, {v, column}, {.limit = size}); });
    k.loop(0, count, 1, [&](Var n) {
      Var id = cast(k.at(tokens, {n}), k.builder.getIndexType()), mine = both(ge(id, 0), lt(id, size));
      if (owners > 1)
        mine = both(mine, eq(id / rows % owners, owner));
      k.when(mine, [&] {
        Var total = k.load(dtable, {id, column}, {columns}) + cast(k.load(dy, {n, column}, {columns}), sum);
        k.store(total, dtable, {id, column});
      });
    });
  });
  Value tokens = context.view(op, op.getTokens(), {count}), dy = context.rowsView(op, op.getDy());
  context.replace(op, context.launch(op, kernel, {width / columns, owners})
                          .arg("tokens", tokens)
                          .arg("dy", dy)
                          .result("dtable", type)
                          .index("count", count)
                          .index("vocabulary", vocabulary)
                          .run());
  return success();
}

LogicalResult outlineEmbed(Operation *op, OutlineContext &context) {
  if (auto embed = dyn_cast<EmbedOp>(op))
    return outlineGather(embed, context);
  return outlineScatter(cast<EmbedGradOp>(op), context);
}

} // namespace braid
