//===- MoeDropKernels.cpp - who gets the slots of an expert (moe-family 3) ----------------------------------------===//
// One program per row of the batch, integers and comparisons only. The orders "token" and "slot" are prefix counts: an
// assignment's place is the number of earlier ones of its expert. The other orders sort by weight or draw: the
// assignments are listed by bucket (experts that share slots), and an assignment's place is the number of those of its
// list that stand before it; lists no longer than the free slots are not ranked.
#include "passes/outline/CounterRandom.h"
#include "passes/outline/OutlineFamilies.h"
#include <cmath>

using namespace mlir;

namespace braid {
namespace {

Var toIndex(KernelBuilder &k, Var x) { return cast(x, k.builder.getIndexType()); }

/// What the kernels share: one row of the batch, its assignments a = n slots + j.
struct DropRow {
  DropRow(KernelBuilder &k, bool bucketed)
      : k(k), ids(table("ids")), documents(table("documents")), taken(table("taken")), kept(table("kept")),
        newTaken(table("new_taken")), load(table("load")), dropped(table("dropped")), tokens(k.index("tokens")),
        slots(k.index("slots")), experts(k.index("experts")), capacity(k.index("capacity")), b(k.program(0)) {
    if (bucketed)
      bucket = k.index("bucket");
    buckets = bucketed ? experts / bucket : experts;
  }

  Var table(llvm::StringRef name) { return k.buffer(name, k.i32(), {kDynamic, kDynamic}); }
  Var number(double value) { return k.constant(k.i32(), value); }
  void add(Var buffer, Var e, Var value) { k.put(k.at(buffer, {b, e}) + value, buffer, {b, e}); }

  Var bucketOf(Var e) const { return bucket ? e / bucket : e; }

  void clear() {
    k.loop(0, buckets, 1, [&](Var e) { k.put(k.at(taken, {b, e}), newTaken, {b, e}); });
    k.loop(0, experts, 1, [&](Var e) {
      k.put(number(0), load, {b, e});
      k.put(number(0), dropped, {b, e});
    });
  }
  /// The assignment's expert counts it, and keeps it or not.
  void settle(Var a, Var id, Var fits) {
    Var e = toIndex(k, id);
    k.put(select(fits, id, number(-1)), kept, {b, a});
    add(newTaken, bucketOf(e), select(fits, number(1), number(0)));
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
  Var bucket, buckets; ///< experts that share slots (null: none do), and how many such groups there are
};

/// What a row of the batch draws (the op's description), and the keys of the next op that draws.
struct Draws {
  explicit Draws(KernelBuilder &k) : k(k), keys(table("draw_keys")), newKeys(table("new_draw_keys")) {}

  Var table(llvm::StringRef name) { return k.buffer(name, k.i64(), {kDynamic, 3}); }
  Var one() { return k.integer(k.i64(), 1); }
  void start(Var b) {
    Var sample = k.at(keys, {b, 0}), seed = k.at(keys, {b, 1});
    layer = k.at(keys, {b, 2});
    row = mix(k, exclusive(mixSeed(k, seed), sample));
    stream = mix(k, exclusive(row, layer + one()));
    k.put(sample, newKeys, {b, 0});
    k.put(seed, newKeys, {b, 1});
    k.put(layer + one(), newKeys, {b, 2});
  }
  Var token(Var n) { return upper(stream, n); }
  Var document(Var first) { return upper(mix(k, row), first); }
  Var upper(Var of, Var index) { return uniformInteger(k, streamBits(k, of, cast(index, k.i64())), 64 - kUniformBits); }

  KernelBuilder &k;
  Var keys, newKeys, layer, row, stream;
};

/// Orders (n, j) and (j, n).
void writeCounted(KernelBuilder &k, bool slotsFirst) {
  DropRow row(k, /*bucketed=*/false);
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

/// The orders that sort a list: by class, then by key, larger first, then as listed.
struct Ranking {
  bool slotsFirst; ///< listed (j, n) and classed by j; else listed (n, j) in one class
  bool drawn; ///< keys are drawn; else weights: an assignment's own or, with slotsFirst, its token's largest
  bool bucketed; ///< neighbouring experts share slots
  bool protects; ///< class 0: tokens of documents that keep everything
  bool striped; ///< documents count from the first token of every stripe
};

/// NaN stands behind every number.
void writeRanked(KernelBuilder &k, Type keyType, Ranking ranking) {
  constexpr int64_t width = 64;
  DropRow row(k, ranking.bucketed);
  Var weights = ranking.drawn ? Var() : k.buffer("weights", keyType, {kDynamic, kDynamic}),
      keys = k.buffer("keys", keyType, {kDynamic, kDynamic});
  Var order = row.table("order"), classOf = row.table("class_of"), start = row.table("start"),
      cursor = row.table("cursor");
  Var b = row.b, lowest = k.constant(keyType, -1.0); // weights are at least 0
  std::optional<Draws> draws;
  Var protect, stripe;
  if (ranking.drawn || ranking.protects)
    draws.emplace(k);
  if (ranking.protects)
    protect = cast(k.index("protect"), k.i32());
  if (ranking.striped)
    stripe = k.index("stripe");
  row.clear();
  k.loop(0, row.buckets, 1, [&](Var e) { k.put(row.number(0), cursor, {b, e}); });
  row.each(false, [&](Var n, Var j) {
    row.at(n, j, [&](Var, Var id) {
      Var e = toIndex(k, id);
      row.add(row.load, e, row.number(1));
      row.add(cursor, row.bucketOf(e), row.number(1));
    });
  });
  Vars total = k.loop(0, row.buckets, 1, {row.number(0)}, [&](Var e, ArrayRef<Var> sum) {
    Vars next = {sum[0] + k.at(cursor, {b, e})};
    k.put(sum[0], start, {b, e});
    k.put(sum[0], cursor, {b, e});
    return next;
  });
  k.put(total[0], start, {b, row.buckets});
  if (draws)
    draws->start(b);
  auto number = [&](Var w) { return select(eq(w, w), w, lowest); };
  auto keyOf = [&](Var n, Var a) {
    if (ranking.drawn)
      return cast(-draws->token(n), keyType);
    if (!ranking.slotsFirst)
      return number(k.at(weights, {b, a}));
    return k.loop(0, row.slots, 1, {lowest}, [&](Var other, ArrayRef<Var> most) {
      return Vars{max(most[0], number(k.at(weights, {b, n * row.slots + other})))};
    })[0];
  };
  auto classFor = [&](Var n, Var j) {
    if (ranking.protects) {
      Var first = k.at(row.documents, {b, n});
      if (ranking.striped)
        first = first + cast(n / stripe * stripe, k.i32());
      return select(lt(draws->document(first), protect), row.number(0), row.number(1));
    }
    return ranking.slotsFirst ? cast(j, k.i32()) : row.number(0);
  };
  // A list stands in the order of ties.
  row.each(ranking.slotsFirst, [&](Var n, Var j) {
    row.at(n, j, [&](Var a, Var id) {
      Var e = row.bucketOf(toIndex(k, id)), place = k.at(cursor, {b, e}), at = toIndex(k, place);
      k.put(place + 1.0, cursor, {b, e});
      k.put(cast(a, k.i32()), order, {b, at});
      k.put(keyOf(n, a), keys, {b, at});
      k.put(classFor(n, j), classOf, {b, at});
    });
  });
  k.loop(0, row.buckets, 1, [&](Var e) {
    Var first = toIndex(k, k.at(start, {b, e})), end = toIndex(k, k.at(start, {b, e + 1.0}));
    Var free = max(row.capacity - toIndex(k, k.at(row.taken, {b, e})), 0.0);
    Var rankEnd = select(le(end - first, free), first, end); // all fit
    k.loop(first, end, 1, [&](Var i) {
      Var key = k.at(keys, {b, i}), own = k.at(classOf, {b, i});
      Var rank = k.loop(first, rankEnd, width, {row.number(0)}, [&](Var at, ArrayRef<Var> count) {
        AccessOptions inList{.limit = end, .dims = {1}};
        // One row of a table: the tile's dimension is the table's second.
        Var others = k.load(keys, {b, at}, {width}, inList), classes = k.load(classOf, {b, at}, {width}, inList);
        Var position = k.iota({width}, 0) + cast(at, k.i32()), mine = cast(i, k.i32());
        Var before = either(gt(others, splat(key, {width})),
                            both(eq(others, splat(key, {width})), lt(position, splat(mine, {width}))));
        Var here = splat(own, {width});
        before = either(lt(classes, here), both(eq(classes, here), before));
        before = both(before, lt(position, splat(cast(end, k.i32()), {width})));
        Var one = k.tile({width}, k.i32(), 1);
        return Vars{count[0] + sum(select(before, one, one.like(0)), 0)};
      })[0];
      Var a = toIndex(k, k.at(order, {b, i})), fits = lt(rank, cast(free, k.i32()));
      if (ranking.protects)
        fits = either(fits, eq(own, 0.0));
      row.settle(a, row.bucket ? k.at(row.ids, {b, a}) : cast(e, k.i32()), fits);
    });
  });
}

} // namespace

LogicalResult outlineMoeDrop(Operation *operation, OutlineContext &context) {
  auto op = cast<MoeDropOp>(operation);
  Shape ids = shapeOf(op.getIds());
  int64_t batch = ids[0], tokens = ids[1], slots = ids[2], experts = shapeOf(op.getLoad())[0];
  int64_t buckets = shapeOf(op.getTaken())[1];
  bool weighted = static_cast<bool>(op.getWeights()), drawn = op.getPolicy() == "random", ranked = weighted || drawn;
  double protect = op.getProtect().convertToDouble();
  Ranking ranking = {drawn || op.getPolicy() == "bpr", drawn, op.getPolicy() == "device", protect > 0,
                     protect > 0 && op.getStripe() > 0};
  // What is drawn has no more bits than an f32 holds.
  Type keyType = weighted ? tensorType(op.getWeights()).getElementType() : Float32Type::get(op.getContext());
  std::string name = "moe_drop_" + op.getPolicy().str() + (weighted ? "_" + typeName(keyType) : "") +
                     (ranking.protects ? "_protected" : "") + (ranking.striped ? "_striped" : "");
  std::string kernel = context.kernel(name, {"row"}, [&](KernelBuilder &k) {
    if (ranked)
      writeRanked(k, keyType, ranking);
    else
      writeCounted(k, op.getPolicy() == "slot");
  });
  auto table = [&](int64_t columns) {
    return RankedTensorType::get({batch, columns}, IntegerType::get(op.getContext(), 32));
  };
  Value rows = context.view(op, op.getIds(), {batch, tokens * slots});
  auto launch = context.launch(op, kernel, {batch});
  launch.arg("ids", rows).arg("documents", op.getDocuments()).arg("taken", op.getTaken());
  if (weighted)
    launch.arg("weights", context.view(op, op.getWeights(), {batch, tokens * slots}));
  if (op.draws())
    launch.arg("draw_keys", op.getDrawKeys());
  launch.result("kept", table(tokens * slots)).result("new_taken", op.getNewTaken().getType());
  launch.result("load", table(experts)).result("dropped", table(experts));
  if (op.draws())
    launch.result("new_draw_keys", op.getNewDrawKeys().getType());
  if (ranked) {
    launch.result("keys", RankedTensorType::get({batch, tokens * slots}, keyType));
    launch.result("order", table(tokens * slots)).result("class_of", table(tokens * slots));
    launch.result("start", table(buckets + 1)).result("cursor", table(buckets));
  }
  launch.index("tokens", tokens).index("slots", slots).index("experts", experts).index("capacity", op.getCapacity());
  if (ranking.bucketed)
    launch.index("bucket", op.getBucket());
  if (ranking.protects) // so many of the numbers that can be drawn are below it
    launch.index("protect", static_cast<int64_t>(std::ceil(std::ldexp(protect, kUniformBits))));
  if (ranking.striped)
    launch.index("stripe", op.getStripe());
  auto results = launch.run();
  Value load = sumOverRows(op, results[2], context), dropped = sumOverRows(op, results[3], context);
  SmallVector<Value> values = {results[0], load, dropped, results[1]};
  if (op.draws())
    values.push_back(results[4]);
  context.replace(op, values);
  return success();
}

} // namespace braid
