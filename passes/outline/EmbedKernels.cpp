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

/// dtable[v, columns] = (table_sum[v, columns] +) sum of dy[n, columns] over the tokens n with tokens[n] = v, n ascending. One program owns some
/// columns of every so many blocks of rows and looks at all tokens: no two programs write the same element, and the order
/// is that of the tokens. Blocks are dealt out in turn, for words that occur often stand together.
static LogicalResult outlineScatter(EmbedGradOp op, OutlineContext &context) {
  auto type = tensorType(op.getDtable());
  int64_t vocabulary = type.getDimSize(0), width = type.getDimSize(1), count = product(shapeOf(op.getTokens()));
  // A program looks at a block of tokens in less time than it takes to add up one; on a GPU it waits for each block and for each token that it adds,
  // so blocks are as long as it has threads, and programs as many as run at a time.
  constexpr int64_t rows = 16, fewest = 64;
  int64_t block = context.gpu ? 256 : fewest, mostOwners = context.gpu ? 192 : 128, columns = divisorUpTo(width, 256);
  int64_t owners = std::clamp<int64_t>(std::min(count / fewest, ceilDiv(vocabulary, rows)), 1, mostOwners);
  Type element = tensorType(op.getDy()).getElementType(), sumType = type.getElementType();
  bool added = static_cast<bool>(op.getTableSum());
  std::string name = "embed_grad_d" + std::to_string(width) + "_" + typeName(element) + (added ? "_add" : "");
  std::string kernel = context.kernel(name, {"column", "owner"}, [&](KernelBuilder &k) {
    Var tokens = k.buffer("tokens", k.i32(), {kDynamic}), dy = k.buffer("dy", element, {kDynamic, width});
    Var dtable = k.buffer("dtable", sumType, {kDynamic, width}), count = k.index("count"), size = k.index("vocabulary");
    // The place of dtable, where it is added to.
    Var before = added ? k.buffer("table_sum", sumType, {kDynamic, width}) : dtable;
    Var owners = k.index("owners"), column = k.program(0) * columns, owner = k.program(1);
    Var lane = k.iota({block}, 0), nowhere = lane.like(block);
    if (!added)
      k.loop(owner * rows, size, owners * rows,
             [&](Var v) { k.store(k.tile({rows, columns}, sumType), dtable, {v, column}, {.limit = size}); });
    k.loop(0, count, block, [&](Var n) {
      Var id = k.load(tokens, {n}, {block}, {.limit = count}), inside = lt(lane, cast(count - n, k.i32()));
      Var word = both(ge(id, 0), lt(id, splat(cast(size, k.i32()), {block})));
      Var owned = eq(id / rows % splat(cast(owners, k.i32()), {block}), splat(cast(owner, k.i32()), {block}));
      Var places = select(both(inside, both(word, owned)), lane, nowhere);
      Var found = sum(cast(lt(places, nowhere), k.i32()), 0);
      k.loop(0, cast(found, k.builder.getIndexType()), 1, {k.constant(k.i32(), -1)}, [&](Var, ArrayRef<Var> last) {
        Var place = minimum(select(gt(places, last[0]), places, nowhere), 0);
        Var token = n + cast(place, k.builder.getIndexType());
        Var row = cast(k.at(tokens, {token}), k.builder.getIndexType());
        Var total = k.load(before, {row, column}, {columns}) + cast(k.load(dy, {token, column}, {columns}), sumType);
        k.store(total, dtable, {row, column});
        return Vars{place};
      });
    });
  });
  Value tokens = context.view(op, op.getTokens(), {count}), dy = context.rowsView(op, op.getDy());
  auto launch = context.launch(op, kernel, {width / columns, owners});
  launch.arg("tokens", tokens).arg("dy", dy);
  if (added)
    launch.arg("table_sum", op.getTableSum());
  context.replace(op, launch.result("dtable", type, added ? "table_sum" : "")
                          .index("count", count)
                          .index("vocabulary", vocabulary)
                          .index("owners", owners)
                          .run());
  return success();
}

LogicalResult outlineEmbed(Operation *op, OutlineContext &context) {
  if (auto embed = dyn_cast<EmbedOp>(op))
    return outlineGather(embed, context);
  return outlineScatter(cast<EmbedGradOp>(op), context);
}

} // namespace braid
