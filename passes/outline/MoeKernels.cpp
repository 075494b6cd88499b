//===- MoeKernels.cpp - rows of experts by gathering (moe-family 6) -----------------------------------------------===//
// Row r of a result is written by one program, sums run in slot order, nothing is atomic. On a CPU every kernel gathers; on a GPU the programs of tokens
// also write rows (TokenRows).
#include "dialects/braid/PassAttributes.h"
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/Units.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace braid {
namespace {

int64_t rowsPerProgram(int64_t width) { return std::clamp<int64_t>(2048 / width, 1, 16); }
int64_t rowCount(Value v) { return product(shapeOf(v).drop_back()); }

/// Source row of a gathered row: perm / k, -1 stays -1.
Var tokenOf(Var perm, Var slots) { return select(lt(perm, 0), -1, perm / cast(slots, perm.element())); }

/// The offsets that end the rows which a product of experts reads from `rows`, if it is one and they are there already.
Value readersOffsets(Operation *op, Value rows) {
  for (Operation *user : rows.getUsers()) {
    auto product = dyn_cast<MoeGroupedLinearOp>(user);
    auto gradient = dyn_cast<MoeGroupedLinearGradDataOp>(user);
    Value offsets = product && product.getX() == rows                         ? product.getOffsets()
                    : gradient && llvm::is_contained(gradient.getDys(), rows) ? gradient.getOffsets()
                                                                              : Value();
    Operation *maker = offsets ? offsets.getDefiningOp() : nullptr;
    if (offsets && (!maker || maker->getBlock() != op->getBlock() || maker->isBeforeInBlock(op)))
      return offsets;
  }
  return {};
}

/// Rows of a result that tokens write, slot by slot: each has one token, or none and is 0. For a GPU, whose cache does not hold what so many programs
/// read of tokens in the order of experts: so a token is read once.
class TokenRows {
public:
  /// Where a token and its rows lie in the registers of threads (lower/ThreadRowWalks.cpp); others would pass through shared memory, slot by slot.
  static bool fit(int64_t width, int64_t slots) {
    constexpr int64_t mostSlots = 8, neighbours = 8, mostWidth = 4096; // each slot is written out
    return slots <= mostSlots && width % neighbours == 0 && llvm::isPowerOf2_64(width) && width <= mostWidth;
  }
  TokenRows(KernelBuilder &k, int64_t slots, int64_t block)
      : first(k.program(0) * block), k(k), slots(slots), block(block) {
    inverse = k.buffer("inverse", k.i32(), {kDynamic, slots});
    perm = k.buffer("perm", k.i32(), {kDynamic});
    tokens = k.index("tokens"), rows = k.index("rows");
  }
  /// The arguments that these parameters need.
  static OutlineContext::Launch launch(Operation *op, const std::string &kernel, Value perm, Value inverse,
                                       int64_t block, OutlineContext &context) {
    int64_t rows = product(shapeOf(perm)), tokens = rowCount(inverse), slots = shapeOf(inverse).back();
    Value order = context.view(op, perm, {rows}), places = context.view(op, inverse, {tokens, slots});
    auto launch = context.launch(op, kernel, {ceilDiv(std::max(tokens, ceilDiv(rows, slots)), block)});
    launch.arg("perm", order).arg("inverse", places).index("tokens", tokens).index("rows", rows);
    return launch;
  }

  /// The numbers of the tokens' rows; -1: none.
  Var rowsOf(Index slot) {
    Var row = k.load(inverse, {first, slot}, {block}, {.limit = tokens, .dims = {0}});
    return select(lt(number(first), cast(tokens, k.i32())), row, row.like(-1));
  }
  /// The program's share of the rows before `end` that have no token.
  void clear(Var y, int64_t width, Var end) {
    Var zero = k.tile({block, width}, y.element());
    for (int64_t j = 0; j < slots; ++j) {
      Var at = first * slots + j * block, token = k.load(perm, {at}, {block}, {.limit = rows}), row = number(at);
      k.store(zero, y, {0, 0}, {.rows = select(both(lt(token, 0), lt(row, cast(end, k.i32()))), row, row.like(-1))});
    }
  }
  Var first, tokens, rows;

private:
  Var number(Var from) { return k.iota({block}, 0) + cast(from, k.i32()); }

  KernelBuilder &k;
  int64_t slots, block;
  Var inverse, perm;
};

/// The same as gather(), token by token.
LogicalResult dispatchTokens(MoeDispatchOp op, OutlineContext &context) {
  Type element = tensorType(op.getX()).getElementType();
  int64_t width = shapeOf(op.getX()).back(), slots = shapeOf(op.getInverse()).back(), block = rowsPerProgram(width);
  Value ends = readersOffsets(op, op.getRows());
  std::string name = std::string(ends ? "moe_dispatch_sent_k" : "moe_dispatch_k") + std::to_string(slots) + "_d" +
                     std::to_string(width) + "_" + typeName(element);
  std::string kernel = context.kernel(name, {"token"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", element, {kDynamic, width}), y = k.buffer("y", element, {kDynamic, width});
    TokenRows rows(k, slots, block);
    Var token = k.load(x, {rows.first, 0}, {block, width}, {.limit = rows.tokens});
    for (int64_t j = 0; j < slots; ++j)
      k.store(token, y, {0, 0}, {.rows = rows.rowsOf(j)});
    rows.clear(y, width, ends ? min(rows.rows, k.rowsEnd()) : rows.rows);
  });
  Value x = context.view(op, op.getX(), {rowCount(op.getX()), width});
  auto launch = TokenRows::launch(op, kernel, op.getPerm(), op.getInverse(), block, context);
  launch.arg("x", x).result("y", tensorType(op.getRows()).clone({product(shapeOf(op.getPerm())), width}));
  if (ends)
    launch.arg(tile::kRowsEnd, ends);
  context.replace(op, launch.run());
  return success();
}

/// y[r] = x[perm[r] / k], 0 where perm[r] < 0; of rows that only experts read those that they were sent.
LogicalResult gather(Operation *op, Value x, Value perm, int64_t slots, OutlineContext &context) {
  Value result = op->getResult(0);
  Type element = tensorType(x).getElementType();
  int64_t width = shapeOf(x).back(), rows = product(shapeOf(perm)), block = rowsPerProgram(width);
  Value ends = readersOffsets(op, result);
  int64_t blocks = ceilDiv(rows, block), programs = ends ? std::min(blocks, kSharePrograms) : blocks;
  std::string name =
      std::string(ends ? "moe_gather_sent_d" : "moe_gather_d") + std::to_string(width) + "_" + typeName(element);
  std::string kernel = context.kernel(name, {"row"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", element, {kDynamic, width}), perm = k.buffer("perm", k.i32(), {kDynamic});
    Var y = k.buffer("y", element, {kDynamic, width}), rows = k.index("rows"), slots = k.index("slots");
    auto copy = [&](Var first) {
      Var source = tokenOf(k.load(perm, {first}, {block}, {.limit = rows}), slots);
      k.store(k.load(x, {0, 0}, {block, width}, {.rows = source}), y, {first, 0}, {.limit = rows});
    };
    if (!ends)
      return copy(k.program(0) * block);
    rows = min(rows, k.rowsEnd());
    k.share(rows, block, copy);
  });
  Value source = context.view(op, x, {rowCount(x), width}), order = context.view(op, perm, {rows});
  auto launch = context.launch(op, kernel, {programs});
  launch.arg("x", source).arg("perm", order).result("y", tensorType(result).clone({rows, width}));
  launch.index("rows", rows).index("slots", slots);
  if (ends)
    launch.arg(tile::kRowsEnd, ends).index("programs", programs);
  context.replace(op, launch.run());
  return success();
}

/// Runs `body` for every slot j of a token in ascending order: written one after the other where they are few, so that
/// their loads and sums meet, else as a loop.
Vars forSlots(KernelBuilder &k, int64_t slots, Vars carried, llvm::function_ref<Vars(Index, ArrayRef<Var>)> body) {
  constexpr int64_t mostUnrolled = 8;
  if (slots > mostUnrolled)
    return k.loop(0, slots, 1, carried, body);
  for (int64_t j = 0; j < slots; ++j)
    carried = body(j, carried);
  return carried;
}

/// y_n = sum_j weights[n, j] rows[inverse[n, j]], j ascending (+ what is added to it and nothing else, as the residual of a layer is)
LogicalResult combine(MoeCombineOp op, OutlineContext &context) {
  Type element = tensorType(op.getRows()).getElementType(), real = computeType(element),
       result = tensorType(op.getY()).getElementType();
  int64_t width = shapeOf(op.getRows()).back(), slots = shapeOf(op.getInverse()).back(),
          tokens = rowCount(op.getInverse());
  int64_t block = rowsPerProgram(width);
  bool weighted = static_cast<bool>(op.getWeights());
  AddOp add = addBehind(op, context);
  Value addend = add ? add.getSources()[add.getSources()[0] == op.getY() ? 1 : 0] : Value();
  std::string name = std::string(weighted ? "moe_combine" : "moe_sum") + (add ? "_add" : "") + "_k" +
                     std::to_string(slots) + "_d" + std::to_string(width) + "_" + typeName(element);
  std::string kernel = context.kernel(name, {"token"}, [&](KernelBuilder &k) {
    Var rows = k.buffer("rows", element, {kDynamic, width}), inverse = k.buffer("inverse", k.i32(), {kDynamic, slots});
    Var weights =
        weighted ? k.buffer("weights", tensorType(op.getWeights()).getElementType(), {kDynamic, slots}) : Var();
    Var other = addend ? k.buffer("addend", result, {kDynamic, width}) : Var();
    Var y = k.buffer("y", result, {kDynamic, width}), tokens = k.index("tokens"), first = k.program(0) * block;
    Var sum = forSlots(k, slots, {k.tile({block, width}, real)}, [&](Index j, ArrayRef<Var> now) -> Vars {
      Var source = k.load(inverse, {first, j}, {block}, {.limit = tokens, .dims = {0}});
      Var row = cast(k.load(rows, {0, 0}, {block, width}, {.rows = source}), real);
      if (weighted) {
        Var weight = k.load(weights, {first, j}, {block}, {.limit = tokens, .dims = {0}});
        row = row * expand(cast(weight, real), 1, width);
      }
      return {now[0] + row};
    })[0];
    if (addend)
      sum = sum + cast(k.load(other, {first, 0}, {block, width}, {.limit = tokens}), real);
    k.store(cast(sum, result), y, {first, 0}, {.limit = tokens});
  });
  Value rows = context.view(op, op.getRows(), {rowCount(op.getRows()), width});
  Value inverse = context.view(op, op.getInverse(), {tokens, slots});
  Value weights = weighted ? context.view(op, op.getWeights(), {tokens, slots}) : Value();
  auto launch = context.launch(op, kernel, {ceilDiv(tokens, block)});
  launch.arg("rows", rows).arg("inverse", inverse);
  if (weighted)
    launch.arg("weights", weights);
  if (addend)
    launch.arg("addend", context.view(op, addend, {tokens, width}));
  Value y = launch.result("y", RankedTensorType::get({tokens, width}, result)).index("tokens", tokens).run()[0];
  if (add)
    context.rewriter.replaceAllUsesWith(add->getResult(0), context.view(op, y, shapeOf(op.getY())));
  context.replace(op, {y, op.getRows()});
  return success();
}

/// y[i] = x[from[i]], 0 where from[i] < 0: numbers of rows, and of assignments.
LogicalResult gatherNumbers(Operation *op, Value x, Value from, OutlineContext &context) {
  constexpr int64_t block = 1024;
  Type element = tensorType(x).getElementType();
  int64_t count = product(shapeOf(from));
  std::string kernel = context.kernel("moe_gather_numbers_" + typeName(element), {"block"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", element, {kDynamic}), from = k.buffer("from", k.i32(), {kDynamic});
    Var y = k.buffer("y", element, {kDynamic}), count = k.index("count"), first = k.program(0) * block;
    Var source = k.load(from, {first}, {block}, {.limit = count});
    k.store(k.load(x, {0}, {block}, {.rows = source}), y, {first}, {.limit = count});
  });
  auto launch = context.launch(op, kernel, {ceilDiv(count, block)});
  launch.arg("x", context.view(op, x, {product(shapeOf(x))})).arg("from", context.view(op, from, {count}));
  launch.result("y", tensorType(op->getResult(0)).clone({count})).index("count", count);
  context.replace(op, launch.run());
  return success();
}

/// drows[r] = weights[perm r] dy[perm r / k];  dweights[n, j] = <returned[inverse n j], dy_n>
LogicalResult combineGrad(MoeCombineGradOp op, OutlineContext &context) {
  Type element = tensorType(op.getReturned()).getElementType(), real = computeType(element);
  Type cotangent = tensorType(op.getDy()).getElementType(), weightType = tensorType(op.getWeights()).getElementType();
  int64_t width = shapeOf(op.getDy()).back(), slots = shapeOf(op.getInverse()).back(),
          tokens = rowCount(op.getInverse());
  // Rows of an assignment have nothing to add up: a GPU's threads ask for several of them at a time.
  int64_t rows = rowCount(op.getReturned()), block = rowsPerProgram(width),
          rowsBlock = context.gpu ? rowsPerProgram(std::max<int64_t>(width / 2, 1)) : block;
  std::string suffix = "_k" + std::to_string(slots) + "_d" + std::to_string(width) + "_" + typeName(element);
  Value dy = context.view(op, op.getDy(), {tokens, width});
  Value returned = context.view(op, op.getReturned(), {rows, width});
  auto ofRows = tensorType(op.getDrows()).clone({rows, width}),
       ofTokens = tensorType(op.getDweights()).clone({tokens, slots});
  if (context.gpu && TokenRows::fit(width, slots)) {
    // A token's rows are all asked for at once: with those of another, threads had registers for two blocks of a multiprocessor, not four.
    block = rowsPerProgram(2 * width);
    std::string kernel = context.kernel("moe_combine_grad" + suffix, {"token"}, [&](KernelBuilder &k) {
      Var dy = k.buffer("dy", cotangent, {kDynamic, width}),
          returned = k.buffer("returned", element, {kDynamic, width});
      Var weights = k.buffer("weights", weightType, {kDynamic, slots}),
          drows = k.buffer("drows", element, {kDynamic, width});
      Var dweights = k.buffer("dweights", weightType, {kDynamic, slots});
      TokenRows rows(k, slots, block);
      Var d = cast(k.load(dy, {rows.first, 0}, {block, width}, {.limit = rows.tokens}), real);
      for (int64_t j = 0; j < slots; ++j) {
        AccessOptions ofSlot{.limit = rows.tokens, .dims = {0}};
        Var source = rows.rowsOf(j), row = cast(k.load(returned, {0, 0}, {block, width}, {.rows = source}), real);
        Var weight = cast(k.load(weights, {rows.first, j}, {block}, ofSlot), real);
        k.store(cast(sum(row * d, 1), weightType), dweights, {rows.first, j}, ofSlot);
        k.store(cast(d * expand(weight, 1, width), element), drows, {0, 0}, {.rows = source});
      }
      rows.clear(drows, width, rows.rows);
    });
    Value weights = context.view(op, op.getWeights(), {tokens, slots});
    auto launch = TokenRows::launch(op, kernel, op.getPerm(), op.getInverse(), block, context);
    launch.arg("dy", dy).arg("returned", returned).arg("weights", weights);
    context.replace(op, launch.result("drows", ofRows).result("dweights", ofTokens).run());
    return success();
  }
  std::string rowsKernel = context.kernel("moe_combine_grad_rows" + suffix, {"row"}, [&](KernelBuilder &k) {
    Var dy = k.buffer("dy", cotangent, {kDynamic, width}), perm = k.buffer("perm", k.i32(), {kDynamic});
    Var weights = k.buffer("weights", weightType, {kDynamic}), drows = k.buffer("drows", element, {kDynamic, width});
    Var rows = k.index("rows"), first = k.program(0) * rowsBlock;
    Var assignment = k.load(perm, {first}, {rowsBlock}, {.limit = rows});
    Var weight = cast(k.load(weights, {0}, {rowsBlock}, {.rows = assignment}), real);
    Var source = tokenOf(assignment, k.number(slots));
    Var d = cast(k.load(dy, {0, 0}, {rowsBlock, width}, {.rows = source}), real) * expand(weight, 1, width);
    k.store(cast(d, element), drows, {first, 0}, {.limit = rows});
  });
  std::string weightsKernel = context.kernel("moe_combine_grad_weights" + suffix, {"token"}, [&](KernelBuilder &k) {
    Var dy = k.buffer("dy", cotangent, {kDynamic, width}), returned = k.buffer("returned", element, {kDynamic, width});
    Var inverse = k.buffer("inverse", k.i32(), {kDynamic, slots}),
        dweights = k.buffer("dweights", weightType, {kDynamic, slots});
    Var tokens = k.index("tokens"), first = k.program(0) * block;
    Var d = cast(k.load(dy, {first, 0}, {block, width}, {.limit = tokens}), real);
    forSlots(k, slots, {}, [&](Index j, ArrayRef<Var>) -> Vars {
      Var source = k.load(inverse, {first, j}, {block}, {.limit = tokens, .dims = {0}});
      Var row = cast(k.load(returned, {0, 0}, {block, width}, {.rows = source}), real);
      k.store(cast(sum(row * d, 1), weightType), dweights, {first, j}, {.limit = tokens, .dims = {0}});
      return {};
    });
  });
  Value perm = context.view(op, op.getPerm(), {rows}), inverse = context.view(op, op.getInverse(), {tokens, slots});
  Value weights = context.view(op, op.getWeights(), {tokens * slots});
  Value drows = context.launch(op, rowsKernel, {ceilDiv(rows, rowsBlock)})
                    .arg("dy", dy)
                    .arg("perm", perm)
                    .arg("weights", weights)
                    .result("drows", ofRows)
                    .index("rows", rows)
                    .run()[0];
  Value dweights = context.launch(op, weightsKernel, {ceilDiv(tokens, block)})
                       .arg("dy", dy)
                       .arg("returned", returned)
                       .arg("inverse", inverse)
                       .result("dweights", ofTokens)
                       .index("tokens", tokens)
                       .run()[0];
  context.replace(op, {drows, dweights});
  return success();
}

/// Columns of a program over the rows of one expert: on a GPU there are few experts, and more of its multiprocessors.
int64_t expertColumns(int64_t width, bool gpu) {
  constexpr int64_t most = 128, least = 16;
  int64_t columns = gpu ? divisorUpTo(width, most) : width;
  return columns < least ? width : columns;
}
/// The rows of program(0)'s expert: [first, end).
std::pair<Var, Var> expertRows(KernelBuilder &k, StringRef offsetsName) {
  Var offsets = k.buffer(offsetsName, k.i32(), {kDynamic}), e = k.program(0);
  auto at = [&](Var i) { return cast(k.at(offsets, {i}), k.builder.getIndexType()); };
  return {at(e), at(e + 1.0)};
}

/// y[r] = x[r] + bias[g], in place. Program (expert, columns).
LogicalResult groupBias(MoeGroupBiasOp op, OutlineContext &context) {
  Type element = tensorType(op.getX()).getElementType(), biasType = tensorType(op.getBias()).getElementType(),
       real = computeType(element);
  int64_t experts = shapeOf(op.getBias())[0], width = shapeOf(op.getBias())[1], rows = rowCount(op.getX());
  int64_t columns = expertColumns(width, context.gpu), block = rowsPerProgram(columns);
  bool isSum = static_cast<bool>(op.getCoordinate());
  std::string name = std::string(isSum ? "moe_group_bias_sum_d" : "moe_group_bias_d") + std::to_string(width) + "_" +
                     typeName(element) + "_" + typeName(biasType);
  std::string kernel = context.kernel(name, {"expert", "columns"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", element, {kDynamic, width}), bias = k.buffer("bias", biasType, {kDynamic, width}),
        y = k.buffer("y", element, {kDynamic, width});
    auto [first, end] = expertRows(k, tile::kRowsEnd);
    Var column = k.program(1) * static_cast<double>(columns);
    Var own = cast(k.load(bias, {k.program(0), column}, {columns}), real);
    if (isSum)
      own = select(eq(k.at(k.buffer("coordinate", k.i32(), {1}), {0}), 0.0), own, 0.0);
    k.loop(first, end, block, [&, end = end](Var row) {
      Var tile = cast(k.load(x, {row, column}, {block, columns}, {.limit = end}), real);
      k.store(cast(tile + expand(own, 0, block), element), y, {row, column}, {.limit = end});
    });
  });
  auto launch = context.launch(op, kernel, {experts, width / columns});
  launch.arg("x", context.view(op, op.getX(), {rows, width})).arg("bias", op.getBias());
  launch.arg(tile::kRowsEnd, op.getOffsets());
  if (isSum)
    launch.arg("coordinate", op.getCoordinate());
  context.replace(op, launch.result("y", tensorType(op.getX()).clone({rows, width}), "x").run());
  return success();
}

/// dbias[g] = sum of dy[r] over the rows of group g, in their order: what ends behind the last of them is not these sums, whose
/// readers must not take the offsets for theirs (ExpertRows). Program (expert, columns).
LogicalResult groupBiasGrad(MoeGroupBiasGradOp op, OutlineContext &context) {
  Type element = tensorType(op.getDy()).getElementType(), piece = tensorType(op.getDbias()).getElementType(),
       real = computeType(element);
  int64_t experts = shapeOf(op.getDbias())[0], width = shapeOf(op.getDbias())[1], rows = rowCount(op.getDy());
  int64_t columns = expertColumns(width, context.gpu), block = rowsPerProgram(columns);
  std::string name = "moe_group_bias_grad_d" + std::to_string(width) + "_" + typeName(element) + "_" + typeName(piece);
  std::string kernel = context.kernel(name, {"expert", "columns"}, [&](KernelBuilder &k) {
    Var dy = k.buffer("dy", element, {kDynamic, width}), dbias = k.buffer("dbias", piece, {kDynamic, width});
    auto [first, end] = expertRows(k, "offsets");
    Var column = k.program(1) * static_cast<double>(columns);
    Vars all = k.loop(first, end, block, {k.tile({columns}, real)}, [&, end = end](Var row, ArrayRef<Var> now) -> Vars {
      return {now[0] + sum(cast(k.load(dy, {row, column}, {block, columns}, {.limit = end}), real), 0)};
    });
    k.store(cast(all[0], piece), dbias, {k.program(0), column});
  });
  auto launch = context.launch(op, kernel, {experts, width / columns});
  launch.arg("dy", context.view(op, op.getDy(), {rows, width})).arg("offsets", op.getOffsets());
  context.replace(op, launch.result("dbias", op.getDbias().getType()).run());
  return success();
}

} // namespace

AddOp addBehind(MoeCombineOp op, const OutlineContext &context) {
  auto add = op.getY().hasOneUse() ? dyn_cast<AddOp>(*op.getY().user_begin()) : AddOp();
  if (!context.gpu || !add || add->getBlock() != op->getBlock() || add->hasAttr(kClusterAttr) || !isRowsOp(add) ||
      add->hasAttr(attrs::partialSum) || add.getSources().size() != 2)
    return {};
  Value other = add.getSources()[add.getSources()[0] == op.getY() ? 1 : 0];
  Operation *made = other.getDefiningOp();
  bool there = !made || made->getBlock() != op->getBlock() || made->isBeforeInBlock(op);
  return there && other.getType() == op.getY().getType() && add->getResult(0).getType() == other.getType() ? add
                                                                                                           : AddOp();
}

LogicalResult outlineMoe(Operation *op, OutlineContext &context) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](MoeDispatchOp moe) {
        if (context.gpu && TokenRows::fit(shapeOf(moe.getX()).back(), shapeOf(moe.getInverse()).back()))
          return dispatchTokens(moe, context);
        return gather(moe, moe.getX(), moe.getPerm(), shapeOf(moe.getInverse()).back(), context);
      })
      .Case([&](MoePermuteOp moe) { return gather(moe, moe.getX(), moe.getPerm(), 1, context); })
      .Case([&](MoeCombineOp moe) { return combine(moe, context); })
      .Case([&](MoeRowWeightsOp moe) { return gatherNumbers(moe, moe.getWeights(), moe.getPerm(), context); })
      .Case([&](MoeRowWeightsGradOp moe) { return gatherNumbers(moe, moe.getDrows(), moe.getInverse(), context); })
      .Case([&](MoeCombineGradOp moe) { return combineGrad(moe, context); })
      .Case([&](MoeGroupBiasOp moe) { return groupBias(moe, context); })
      .Case([&](MoeGroupBiasGradOp moe) { return groupBiasGrad(moe, context); });
}

} // namespace braid
