//===- MoeKernels.cpp - plans of integers, rows by gathering (moe-family 6) --------------------------------------===//
// Every kernel gathers: row r of a result is written by one program, sums run in slot order, nothing is atomic.
#include "passes/outline/OutlineFamilies.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace braid {
namespace {

Var toIndex(KernelBuilder &k, Var x) { return cast(x, k.builder.getIndexType()); }

/// buffer[0, size) = value
void fill(KernelBuilder &k, Var buffer, Var size, double value) {
  constexpr int64_t width = 64;
  k.loop(0, size, width,
         [&](Var i) { k.store(k.tile({width}, buffer.element(), value), buffer, {i}, {.limit = size}); });
}

/// A stable counting sort of the assignments by expert, one program:
///   counts[e], offsets = exclusive sums, packed place of an assignment = offsets[e] + earlier assignments of e
/// and the packed place inside the experts of its peer moves to the peer's block of rows. Padding and dropped
/// assignments (id -1) are passed over. With expert_rows > 0 experts stand that far apart instead of packed.
LogicalResult plan(MoePlanOp op, OutlineContext &context) {
  int64_t tokens = product(shapeOf(op.getDocuments())), slots = shapeOf(op.getIds()).back();
  int64_t assignments = tokens * slots, experts = op.getNumExperts(), peers = op.getPeers();
  int64_t rows = shapeOf(op.getPerm())[0], peerRows = peers > 1 ? static_cast<int64_t>(op.getPeerRows()) : rows;
  std::string kernel = context.kernel("moe_plan", {"all"}, [&](KernelBuilder &k) {
    Var ids = k.buffer("ids", k.i32(), {kDynamic}), perm = k.buffer("perm", k.i32(), {kDynamic});
    Var inverse = k.buffer("inverse", k.i32(), {kDynamic}), counts = k.buffer("counts", k.i32(), {kDynamic});
    Var offsets = k.buffer("offsets", k.i32(), {kDynamic}), overflow = k.buffer("overflow", k.i32(), {1});
    Var exchange = k.buffer("exchange", k.i32(), {1}), cursor = k.buffer("cursor", k.i32(), {kDynamic});
    Var documents = k.buffer("documents", k.i32(), {kDynamic});
    Var tokens = k.index("tokens"), slots = k.index("slots"), experts = k.index("experts"), rows = k.index("rows");
    Var local = k.index("local_experts"), peerRows = k.index("peer_rows"), zero = k.constant(k.i32(), 0);
    Var expertRows = k.index("expert_rows");
    fill(k, counts, experts, 0);
    fill(k, perm, rows, -1);
    auto isPadding = [&](Var n) { return eq(k.at(documents, {n}), INT32_MAX); };
    // A token of padding has no assignments to walk over.
    auto end = [&](Var n) { return select(isPadding(n), n * slots, n * slots + slots); };
    k.loop(0, tokens, 1, [&](Var n) {
      k.loop(n * slots, end(n), 1, [&](Var a) {
        Var id = k.at(ids, {a});
        k.when(ge(id, 0), [&] {
          Var e = toIndex(k, id);
          k.put(k.at(counts, {e}) + 1, counts, {e});
        });
      });
    });
    Vars total = k.loop(0, experts, 1, {zero}, [&](Var e, ArrayRef<Var> sum) {
      k.put(sum[0], offsets, {e});
      k.put(sum[0], cursor, {e});
      return Vars{sum[0] + select(gt(expertRows, 0), cast(expertRows, k.i32()), k.at(counts, {e}))};
    });
    k.put(total[0], offsets, {experts});
    Vars beyond = k.loop(0, tokens, 1, {zero}, [&](Var n, ArrayRef<Var> before) {
      k.loop(end(n), n * slots + slots, 1, [&](Var a) { k.put(zero.like(-1), inverse, {a}); });
      return k.loop(n * slots, end(n), 1, {before[0]}, [&](Var a, ArrayRef<Var> count) {
        Var id = k.at(ids, {a}), live = ge(id, 0), one = zero.like(1);
        Var e = toIndex(k, max(id, 0)), packed = k.at(cursor, {e}), peer = e / local;
        k.put(packed + select(live, one, zero), cursor, {e});
        Var inside = toIndex(k, packed - k.at(offsets, {peer * local})), row = peer * peerRows + inside;
        Var fits = both(live, both(lt(inside, peerRows), lt(packed, k.at(offsets, {e + 1}))));
        k.put(select(fits, cast(row, k.i32()), zero.like(-1)), inverse, {a});
        k.when(fits, [&] { k.put(cast(a, k.i32()), perm, {row}); });
        return Vars{count[0] + select(fits, zero, select(live, one, zero))};
      });
    });
    k.put(beyond[0], overflow, {0});
    k.put(zero, exchange, {0});
  });
  auto i32 = IntegerType::get(op.getContext(), 32);
  Value ids = context.view(op, op.getIds(), {assignments}), documents = context.view(op, op.getDocuments(), {tokens});
  auto results = context.launch(op, kernel, {1})
                     .arg("ids", ids)
                     .arg("documents", documents)
                     .result("perm", op.getPerm().getType())
                     .result("inverse", RankedTensorType::get({assignments}, i32))
                     .result("counts", op.getCounts().getType())
                     .result("offsets", op.getOffsets().getType())
                     .result("overflow", op.getOverflow().getType())
                     .result("exchange", op.getExchange().getType())
                     .result("cursor", RankedTensorType::get({experts}, i32))
                     .index("tokens", tokens)
                     .index("slots", slots)
                     .index("experts", experts)
                     .index("rows", rows)
                     .index("local_experts", experts / peers)
                     .index("peer_rows", peerRows)
                     .index("expert_rows", op.getExpertRows().value_or(0))
                     .run();
  results.pop_back();
  context.replace(op, results);
  return success();
}

/// Received rows stand by (source, local expert); sorted rows by (local expert, source).
LogicalResult planReceived(MoePlanReceivedOp op, OutlineContext &context) {
  int64_t peers = shapeOf(op.getCounts())[0], local = shapeOf(op.getCounts())[1], peerRows = op.getPeerRows();
  std::string kernel = context.kernel("moe_plan_received", {"all"}, [&](KernelBuilder &k) {
    Var counts = k.buffer("counts", k.i32(), {kDynamic, kDynamic}), perm = k.buffer("perm", k.i32(), {kDynamic});
    Var inverse = k.buffer("inverse", k.i32(), {kDynamic}), offsets = k.buffer("offsets", k.i32(), {kDynamic});
    Var peers = k.index("peers"), local = k.index("local_experts"), peerRows = k.index("peer_rows");
    fill(k, perm, peers * peerRows, -1);
    fill(k, inverse, peers * peerRows, -1);
    Vars total = k.loop(0, local, 1, {k.number(0)}, [&](Var e, ArrayRef<Var> sorted) {
      k.put(cast(sorted[0], k.i32()), offsets, {e});
      return k.loop(0, peers, 1, {sorted[0]}, [&](Var p, ArrayRef<Var> row) {
        Vars before = k.loop(0, e, 1, {k.number(0)},
                             [&](Var i, ArrayRef<Var> sum) { return Vars{sum[0] + toIndex(k, k.at(counts, {p, i}))}; });
        // Rows that did not fit the block have not travelled.
        Var count = max(min(toIndex(k, k.at(counts, {p, e})), peerRows - before[0]), 0);
        Var first = p * peerRows + before[0];
        k.loop(0, count, 1, [&](Var i) {
          k.put(cast(first + i, k.i32()), perm, {row[0] + i});
          k.put(cast(row[0] + i, k.i32()), inverse, {first + i});
        });
        return Vars{row[0] + count};
      });
    });
    k.put(cast(total[0], k.i32()), offsets, {local});
  });
  context.replace(op, context.launch(op, kernel, {1})
                          .arg("counts", op.getCounts())
                          .result("perm", op.getPerm().getType())
                          .result("inverse", op.getInverse().getType())
                          .result("offsets", op.getOffsets().getType())
                          .index("peers", peers)
                          .index("local_experts", local)
                          .index("peer_rows", peerRows)
                          .run());
  return success();
}

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

/// y_n = sum_j weights[n, j] rows[inverse[n, j]], j ascending
LogicalResult combine(MoeCombineOp op, OutlineContext &context) {
  Type element = tensorType(op.getRows()).getElementType(), real = computeType(element),
       result = tensorType(op.getY()).getElementType();
  int64_t width = shapeOf(op.getRows()).back(), slots = shapeOf(op.getInverse()).back(),
          tokens = rowCount(op.getInverse());
  int64_t block = rowsPerProgram(width);
  bool weighted = static_cast<bool>(op.getWeights());
  std::string name = std::string(weighted ? "moe_combine" : "moe_sum") + "_k" + std::to_string(slots) + "_d" +
                     std::to_string(width) + "_" + typeName(element);
  std::string kernel = context.kernel(name, {"token"}, [&](KernelBuilder &k) {
    Var rows = k.buffer("rows", element, {kDynamic, width}), inverse = k.buffer("inverse", k.i32(), {kDynamic, slots});
    Var weights =
        weighted ? k.buffer("weights", tensorType(op.getWeights()).getElementType(), {kDynamic, slots}) : Var();
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
    k.store(cast(sum, result), y, {first, 0}, {.limit = tokens});
  });
  Value rows = context.view(op, op.getRows(), {rowCount(op.getRows()), width});
  Value inverse = context.view(op, op.getInverse(), {tokens, slots});
  Value weights = weighted ? context.view(op, op.getWeights(), {tokens, slots}) : Value();
  auto launch = context.launch(op, kernel, {ceilDiv(tokens, block)});
  launch.arg("rows", rows).arg("inverse", inverse);
  if (weighted)
    launch.arg("weights", weights);
  Value y = launch.result("y", RankedTensorType::get({tokens, width}, result)).index("tokens", tokens).run()[0];
  context.replace(op, {y, op.getRows()});
  return success();
}

/// drows[r] = weights[perm r] dy[perm r / k];  dweights[n, j] = <returned[inverse n j], dy_n>
LogicalResult combineGrad(MoeCombineGradOp op, OutlineContext &context) {
  Type element = tensorType(op.getReturned()).getElementType(), real = computeType(element);
  Type cotangent = tensorType(op.getDy()).getElementType(), weightType = tensorType(op.getWeights()).getElementType();
  int64_t width = shapeOf(op.getDy()).back(), slots = shapeOf(op.getInverse()).back(),
          tokens = rowCount(op.getInverse());
  int64_t rows = rowCount(op.getReturned()), block = rowsPerProgram(width);
  std::string suffix = "_k" + std::to_string(slots) + "_d" + std::to_string(width) + "_" + typeName(element);
  std::string rowsKernel = context.kernel("moe_combine_grad_rows" + suffix, {"row"}, [&](KernelBuilder &k) {
    Var dy = k.buffer("dy", cotangent, {kDynamic, width}), perm = k.buffer("perm", k.i32(), {kDynamic});
    Var weights = k.buffer("weights", weightType, {kDynamic}), drows = k.buffer("drows", element, {kDynamic, width});
    Var rows = k.index("rows"), first = k.program(0) * block;
    Var assignment = k.load(perm, {first}, {block}, {.limit = rows});
    Var weight = cast(k.load(weights, {0}, {block}, {.rows = assignment}), real);
    Var source = tokenOf(assignment, k.number(slots));
    Var d = cast(k.load(dy, {0, 0}, {block, width}, {.rows = source}), real) * expand(weight, 1, width);
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
  Value dy = context.view(op, op.getDy(), {tokens, width}), perm = context.view(op, op.getPerm(), {rows});
  Value weights = context.view(op, op.getWeights(), {tokens * slots});
  Value returned = context.view(op, op.getReturned(), {rows, width}),
        inverse = context.view(op, op.getInverse(), {tokens, slots});
  Value drows = context.launch(op, rowsKernel, {ceilDiv(rows, block)})
                    .arg("dy", dy)
                    .arg("perm", perm)
                    .arg("weights", weights)
                    .result("drows", tensorType(op.getDrows()).clone({rows, width}))
                    .index("rows", rows)
                    .run()[0];
  Value dweights = context.launch(op, weightsKernel, {ceilDiv(tokens, block)})
                       .arg("dy", dy)
                       .arg("returned", returned)
                       .arg("inverse", inverse)
                       .result("dweights", tensorType(op.getDweights()).clone({tokens, slots}))
                       .index("tokens", tokens)
                       .run()[0];
  context.replace(op, {drows, dweights});
  return success();
}

} // namespace

LogicalResult outlineMoe(Operation *op, OutlineContext &context) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](MoePlanOp moe) { return plan(moe, context); })
      .Case([&](MoePlanReceivedOp moe) { return planReceived(moe, context); })
      .Case([&](MoeDispatchOp moe) {
        return gather(moe, moe.getX(), moe.getPerm(), shapeOf(moe.getInverse()).back(), context);
      })
      .Case([&](MoePermuteOp moe) { return gather(moe, moe.getX(), moe.getPerm(), 1, context); })
      .Case([&](MoeCombineOp moe) { return combine(moe, context); })
      .Case([&](MoeCombineGradOp moe) { return combineGrad(moe, context); });
}

} // namespace braid
