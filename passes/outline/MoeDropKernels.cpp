//===- MoeDropKernels.cpp - who gets the slots of an expert (moe-family 3) ----------------------------------------===//
// One program per row of the batch, integers and comparisons only. The orders "token" and "slot" are prefix counts: an
// assignment's place is the number of earlier ones of its expert. The orders "score" and "bpr" sort by weight: the
// assignments are listed by expert, and an assignment's place is the number of those of its list that stand before it;
// lists no longer than the free slots are not ranked.
#include "passes/outline/OutlineFamilies.h"

using namespace mlir;

namespace braid {
namespace {

Var toIndex(KernelBuilder &k, Var x) { return cast(x, k.builder.getIndexType()); }

/// What the kernels share: one row of the batch, its assignments a = n slots + j.
struct DropRow {
  explicit DropRow(KernelBuilder &k)
      : k(k), ids(table("ids")), documents(table("documents")), taken(table("taken")), kept(table("kept")),
        newTaken(table("new_taken")), load(table("load")), dropped(table("dropped")), tokens(k.index("tokens")),
        slots(k.index("slots")), experts(k.index("experts")), capacity(k.index("capacity")), b(k.program(0)) {}

  Var table(llvm::StringRef name) { return k.buffer(name, k.i32(), {kDynamic, kDynamic}); }
  Var number(double value) { return k.constant(k.i32(), value); }
  void add(Var buffer, Var e, Var value) { k.put(k.at(buffer, {b, e}) + value, buffer, {b, e}); }

  void clear() {
    k.loop(0, experts, 1, [&](Var e) {
      k.put(k.at(taken, {b, e}), newTaken, {b, e});
      k.put(number(0), load, {b, e});
      k.put(number(0), dropped, {b, e});
    });
  }
  /// The assignment's expert counts it, and keeps it or not.
  void settle(Var a, Var id, Var fits) {
    Var e = toIndex(k, id);
    k.put(select(fits, id, number(-1)), kept, {b, a});
    add(newTaken, e, select(fits, number(1), number(0)));
    add(dropped, e, select(fits, number(0), number(1)));
  }
  /// Calls `visit(a, id)` for assignment (n, j), and drops it where n is padding.
  void at(Var n, Var j, llvm::function_ref<void(Var a, Var id)> visit) {
    Var a = n * slots + j, document = k.at(documents, {b, n});
    k.when(eq(document, static_cast<double>(INT32_MAX)), [&] { k.put(number(-1), kept, {b, a}); });
    k.when(ne(document, static_cast<double>(INT32_MAX)), [&] { visit(a, k.at(ids, {b, a})); });
  }
  /// All assignments, tokens first or slots first.
  void each(bool slotsFirst, llvm::function_ref<void(Var n, Var j)> visit) {
    k.loop(0, slotsFirst ? slots : tokens, 1, [&](Var outer) {
      k.loop(0, slotsFirst ? tokens : slots, 1,
             [&](Var inner) { slotsFirst ? visit(inner, outer) : visit(outer, inner); });
    });
  }

  KernelBuilder &k;
  Var ids, documents, taken, kept, newTaken, load, dropped, tokens, slots, experts, capacity, b;
};

/// Orders (n, j) and (j, n).
void writeCounted(KernelBuilder &k, bool slotsFirst) {
  DropRow row(k);
  row.clear();
  Var capacity = cast(row.capacity, k.i32());
  row.each(slotsFirst, [&](Var n, Var j) {
    row.at(n, j, [&](Var a, Var id) {
      Var e = toIndex(k, id);
      row.add(row.load, e, row.number(1));
      row.settle(a, id, lt(k.at(row.newTaken, {row.b, e}), capacity));
    });
  });
}

/// Orders (-w, n, j) and, with `batch`, (j, -max_j w, n). NaN stands behind every number.
void writeRanked(KernelBuilder &k, Type weightType, bool batch) {
  constexpr int64_t width = 64;
  DropRow row(k);
  Var weights = k.buffer("weights", weightType, {kDynamic, kDynamic}),
      keys = k.buffer("keys", weightType, {kDynamic, kDynamic});
  Var order = row.table("order"), slotOf = row.table("slot_of"), start = row.table("start"),
      cursor = row.table("cursor");
  Var b = row.b, lowest = k.constant(weightType, -1.0); // weights are at least 0
  row.clear();
  row.each(false,
           [&](Var n, Var j) { row.at(n, j, [&](Var, Var id) { row.add(row.load, toIndex(k, id), row.number(1)); }); });
  Vars total = k.loop(0, row.experts, 1, {row.number(0)}, [&](Var e, ArrayRef<Var> sum) {
    k.put(sum[0], start, {b, e});
    k.put(sum[0], cursor, {b, e});
    return Vars{sum[0] + k.at(row.load, {b, e})};
  });
  k.put(total[0], start, {b, row.experts});
  // The list of an expert stands in the order of ties.
  auto number = [&](Var w) { return select(eq(w, w), w, lowest); };
  row.each(batch, [&](Var n, Var j) {
    row.at(n, j, [&](Var a, Var id) {
      Var e = toIndex(k, id), place = k.at(cursor, {b, e}), at = toIndex(k, place);
      Var key = batch ? k.loop(0, row.slots, 1, {lowest},
                               [&](Var other, ArrayRef<Var> most) {
                                 return Vars{max(most[0], number(k.at(weights, {b, n * row.slots + other})))};
                               })[0]
                      : number(k.at(weights, {b, a}));
      k.put(place + 1.0, cursor, {b, e});
      k.put(cast(a, k.i32()), order, {b, at});
      k.put(key, keys, {b, at});
      k.put(batch ? cast(j, k.i32()) : row.number(0), slotOf, {b, at});
    });
  });
  k.loop(0, row.experts, 1, [&](Var e) {
    Var first = toIndex(k, k.at(start, {b, e})), end = toIndex(k, k.at(start, {b, e + 1.0}));
    Var free = max(row.capacity - toIndex(k, k.at(row.taken, {b, e})), 0.0);
    Var rankEnd = select(le(end - first, free), first, end); // all fit
    k.loop(first, end, 1, [&](Var i) {
      Var key = k.at(keys, {b, i}), slot = k.at(slotOf, {b, i});
      Var rank = k.loop(first, rankEnd, width, {row.number(0)}, [&](Var at, ArrayRef<Var> count) {
        AccessOptions inList{.limit = end, .dims = {1}};
        // One row of a table: the tile's dimension is the table's second.
        Var others = k.load(keys, {b, at}, {width}, inList), slots = k.load(slotOf, {b, at}, {width}, inList);
        Var position = k.iota({width}, 0) + cast(at, k.i32()), mine = cast(i, k.i32());
        Var before = either(gt(others, splat(key, {width})),
                            both(eq(others, splat(key, {width})), lt(position, splat(mine, {width}))));
        Var here = splat(slot, {width});
        before = either(lt(slots, here), both(eq(slots, here), before));
        before = both(before, lt(position, splat(cast(end, k.i32()), {width})));
        Var one = k.tile({width}, k.i32(), 1);
        return Vars{count[0] + sum(select(before, one, one.like(0)), 0)};
      })[0];
      row.settle(toIndex(k, k.at(order, {b, i})), cast(e, k.i32()), lt(rank, cast(free, k.i32())));
    });
  });
}

} // namespace

LogicalResult outlineMoeDrop(Operation *operation, OutlineContext &context) {
  auto op = cast<MoeDropOp>(operation);
  Shape ids = shapeOf(op.getIds());
  int64_t batch = ids[0], tokens = ids[1], slots = ids[2], experts = shapeOf(op.getLoad())[0];
  bool ranked = static_cast<bool>(op.getWeights());
  Type weightType = ranked ? tensorType(op.getWeights()).getElementType() : Type();
  std::string name = "moe_drop_" + op.getPolicy().str() + (ranked ? "_" + typeName(weightType) : "");
  std::string kernel = context.kernel(name, {"row"}, [&](KernelBuilder &k) {
    if (ranked)
      writeRanked(k, weightType, op.getPolicy() == "bpr");
    else
      writeCounted(k, op.getPolicy() == "slot");
  });
  auto table = [&](int64_t columns) {
    return RankedTensorType::get({batch, columns}, IntegerType::get(op.getContext(), 32));
  };
  Value rows = context.view(op, op.getIds(), {batch, tokens * slots});
  auto launch = context.launch(op, kernel, {batch});
  launch.arg("ids", rows).arg("documents", op.getDocuments()).arg("taken", op.getTaken());
  if (ranked) {
    Value weights = context.view(op, op.getWeights(), {batch, tokens * slots});
    launch.arg("weights", weights);
  }
  launch.result("kept", table(tokens * slots)).result("new_taken", op.getNewTaken().getType());
  launch.result("load", table(experts)).result("dropped", table(experts));
  if (ranked) {
    launch.result("keys", RankedTensorType::get({batch, tokens * slots}, weightType));
    launch.result("order", table(tokens * slots)).result("slot_of", table(tokens * slots));
    launch.result("start", table(experts + 1)).result("cursor", table(experts));
  }
  auto results = launch.index("tokens", tokens)
                     .index("slots", slots)
                     .index("experts", experts)
                     .index("capacity", op.getCapacity())
                     .run();
  Value load = sumOverRows(op, results[2], context), dropped = sumOverRows(op, results[3], context);
  context.replace(op, {results[0], load, dropped, results[1]});
  return success();
}

} // namespace braid
