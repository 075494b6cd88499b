//===- MoePlanKernels.cpp - where the rows of experts stand (moe-family 6) ----------------------------------------===//
// Integers only, in the order of assignments whatever runs first: programs count their own assignments, sums over the
// programs before them say where each one's rows begin, and then every program places its own. Nothing is atomic.
#include "passes/outline/OutlineFamilies.h"

using namespace mlir;

namespace braid {
namespace {

/// Elements that are written at a time.
constexpr int64_t kFill = 256;
/// Assignments that are compared with each other, how many a program has at least, and how many programs there are at
/// most. They are placed without being compared, more at a time. So many of them one program plans alone, fewer at a time.
constexpr int64_t kLanes = 32, kLeastSpan = 256, kMostPrograms = 256, kPlaced = 256, kFew = 128, kFewLanes = 16;
/// Experts whose assignments a program adds up, so many programs' counts at a time.
constexpr int64_t kColumns = 32, kCounts = 64;
/// So many experts are divided at a time, and where there are no more the program that adds up divides too.
constexpr int64_t kExperts = 64;

/// buffer[from, to) = value
void fill(KernelBuilder &k, Var buffer, Var from, Var to, double value, int64_t width = kFill) {
  Var tile = k.tile({width}, buffer.element(), value);
  k.loop(from, to, width, [&](Var i) { k.store(tile, buffer, {i}, {.limit = to}); });
}

Var list(KernelBuilder &k, llvm::StringRef name) { return k.buffer(name, k.i32(), {kDynamic}); }
Var toI32(KernelBuilder &k, Var x) { return cast(x, k.i32()); }

/// What the steps of a plan have in common. An assignment is n slots + j.
struct Plan {
  Plan(KernelBuilder &k, int64_t lanes)
      : k(k), lanes(lanes), lane(k.iota({lanes}, 0)), none(k.tile({lanes}, k.i32(), -1)) {}

  /// Calls `body(a, inside)` for blocks of the program's assignments from a on; `inside`: which there are.
  void blocks(llvm::function_ref<void(Var a, Var inside)> body) {
    k.loop(first, end, lanes, [&](Var a) { body(a, lt(lane, toI32(k, end - a))); });
  }
  /// Rows of table [program, columns].
  Var inTable(Var ids) { return ids + toI32(k, k.program(0) * columns); }

  Var load(Var buffer, Var a) { return k.load(buffer, {a}, {lanes}, {.limit = end}); }
  void store(Var tile, Var buffer, Var a) { k.store(tile, buffer, {a}, {.limit = end}); }
  Var gather(Var buffer, Var rows) { return k.load(buffer, {0}, {lanes}, {.rows = rows}); }

  KernelBuilder &k;
  int64_t lanes;
  Var lane, none;
  Var ids = list(k, "ids"), assignments = k.index("assignments");
  Var span = k.index("span"), columns = k.index("columns"); ///< assignments of a program, columns of its table
  Var first = k.program(0) * span, end = min(first + span, assignments);
};

/// table[program, e] = the program's assignments of expert e; ranks[a] = how many of them stand before a, -1 for what
/// gets no row.
void count(Plan &plan, int64_t slots, Var experts, Var documents, Var ranks, Var table) {
  KernelBuilder &k = plan.k;
  Var start = k.program(0) * plan.columns;
  fill(k, table, start, start + plan.columns, 0, kColumns);
  // Two counts in one number: the lanes of the same expert, and in the lower bits those of them before this one.
  constexpr int64_t bits = 8;
  static_assert(kLanes < 1 << bits);
  SmallVector<int64_t> pairs(2, plan.lanes);
  Var each = toI32(k, lt(k.iota(pairs, 0), k.iota(pairs, 1))) + static_cast<double>(1 << bits);
  plan.blocks([&](Var a, Var inside) {
    Var token = select(inside, (plan.lane + toI32(k, a)) / static_cast<double>(slots), plan.none);
    Var routed = both(inside, ne(plan.gather(documents, token), static_cast<double>(INT32_MAX)));
    // Whatever the router has written: places in the table follow from it.
    Var id = plan.load(plan.ids, a), known = both(ge(id, 0), lt(id, splat(toI32(k, experts), {plan.lanes})));
    Var live = both(routed, known), expert = select(live, id, plan.none);
    Var equal = eq(expand(expert, 1, plan.lanes), expand(expert, 0, plan.lanes));
    Var counts = sum(select(equal, each, each.like(0)), 0), all = shiftRight(counts, bits);
    Var earlier = counts - shiftLeft(all, bits), place = select(live, plan.inTable(expert), plan.none);
    Var rank = plan.gather(table, place) + earlier;
    plan.store(select(live, rank, plan.none), ranks, a);
    // The last of an expert knows how many there are.
    k.store(rank + 1, table, {0}, {.rows = select(eq(all - earlier, 1), place, plan.none)});
  });
}

/// starts[p, e] = sum of table[q, e] over the programs q < p, counts[e] = sum over all; so many experts a program.
void addUp(KernelBuilder &k, int64_t columns, Var counts) {
  Var table = k.buffer("table", k.i32(), {kDynamic, kDynamic}),
      starts = k.buffer("starts", k.i32(), {kDynamic, kDynamic});
  Var e = k.program(0) * columns, programs = k.size(table, 0);
  Vars total = k.loop(0, programs, kCounts, {k.tile({columns}, k.i32())}, [&](Var p, ArrayRef<Var> before) {
    Var own = k.load(table, {p, e}, {kCounts, columns}, {.limit = programs}), after = cumsum(own, 0);
    k.store(after - own + expand(before[0], 0, kCounts), starts, {p, e}, {.limit = programs});
    return Vars{before[0] + row(after, k.number(kCounts - 1))};
  });
  k.store(total[0], counts, {e}, {.limit = k.size(counts, 0)});
}

/// offsets = exclusive sums of what experts take: their counts, or expert_rows. Of the rows of a peer's experts, which
/// begin at row peer * peer_rows, first[e] is the first of expert e, and room[e] of its assignments have a row. Of a rank
/// without peers no offset is beyond its rows, whatever experts are said to take: who reads rows up to one does not look.
void divide(KernelBuilder &k, Var counts, Var first, Var room, bool peers) {
  Var offsets = list(k, "offsets");
  Var overflow = k.buffer("overflow", k.i32(), {1}), exchange = k.buffer("exchange", k.i32(), {1});
  Var experts = k.index("experts"), peerRows = toI32(k, k.index("peer_rows")), expertRows = k.index("expert_rows");
  Var local = peers ? toI32(k, k.index("local_experts")) : Var();
  Var lane = k.iota({kExperts}, 0), none = k.tile({kExperts}, k.i32()), zero = k.constant(k.i32(), 0);
  auto taken = [&](Var e, Var count) {
    Var width = select(gt(expertRows, 0), splat(toI32(k, expertRows), {kExperts}), count);
    return select(lt(lane, toI32(k, experts - e)), width, none);
  };
  auto withinRows = [&](Var offset) { return peers ? offset : max(min(offset, peerRows), 0); };
  Vars total = k.loop(0, experts, kExperts, {zero}, [&](Var e, ArrayRef<Var> before) {
    Var width = taken(e, k.load(counts, {e}, {kExperts}, {.limit = experts}));
    k.store(withinRows(cumsum(width, 0) - width + before[0]), offsets, {e}, {.limit = experts});
    return Vars{before[0] + sum(width, 0)};
  });
  k.put(withinRows(total[0]), offsets, {experts});
  Vars beyond = k.loop(0, experts, kExperts, {zero}, [&](Var e, ArrayRef<Var> before) {
    Var count = k.load(counts, {e}, {kExperts}, {.limit = experts}), width = taken(e, count);
    Var inside = k.load(offsets, {e}, {kExperts}, {.limit = experts}), start = inside;
    if (peers) {
      Var peer = (lane + toI32(k, e)) / local;
      inside = inside - k.load(offsets, {0}, {kExperts}, {.limit = experts, .rows = peer * local});
      start = peer * peerRows + inside;
    }
    Var fits = min(count, max(min(width, peerRows - inside), 0));
    k.store(start, first, {e}, {.limit = experts});
    k.store(fits, room, {e}, {.limit = experts});
    return Vars{before[0] + sum(count - fits, 0)};
  });
  k.put(beyond[0], overflow, {0});
  k.put(zero, exchange, {0});
}

/// inverse[a] = the row of assignment a, perm[row] = a. `starts` of the programs before this one, null: there are none.
void place(Plan &plan, Var ranks, Var starts, Var first, Var room, Var inverse, Var perm) {
  KernelBuilder &k = plan.k;
  plan.blocks([&](Var a, Var inside) {
    Var id = plan.load(plan.ids, a), rank = plan.load(ranks, a);
    Var live = both(inside, ge(rank, 0)), expert = select(live, id, plan.none);
    if (starts)
      rank = rank + plan.gather(starts, select(live, plan.inTable(id), plan.none));
    Var fits = both(live, lt(rank, plan.gather(room, expert)));
    Var row = select(fits, rank + plan.gather(first, expert), plan.none);
    plan.store(row, inverse, a);
    k.store(plan.lane + toI32(k, a), perm, {0}, {.rows = row});
  });
}

/// A stable counting sort of the assignments by expert:
///   counts[e], offsets = exclusive sums, packed place of an assignment = offsets[e] + earlier assignments of e
/// and the packed place inside the experts of its peer moves to the peer's block of rows. Padding and dropped
/// assignments (id -1) are passed over. With expert_rows > 0 experts stand that far apart instead of packed.
/// Many assignments: count, addUp, divide and place are a launch each, addUp and divide one where one program adds up all experts; few: one program does it all.
LogicalResult plan(MoePlanOp op, OutlineContext &context) {
  int64_t tokens = product(shapeOf(op.getDocuments())), slots = shapeOf(op.getIds()).back();
  int64_t assignments = tokens * slots, experts = op.getNumExperts(), peers = op.getPeers();
  int64_t rows = shapeOf(op.getPerm())[0], peerRows = peers > 1 ? static_cast<int64_t>(op.getPeerRows()) : rows;
  // Slices of what other ranks get share the kernels of the whole, however short they are.
  bool few = peers == 1 && assignments <= kFew;
  int64_t span = std::max(kLeastSpan, ceilDiv(ceilDiv(assignments, kMostPrograms), kLanes) * kLanes);
  int64_t programs = ceilDiv(assignments, span), columns = few ? experts : ceilDiv(experts, kColumns) * kColumns;
  std::string perSlots = "_k" + std::to_string(slots), perPeers = peers > 1 ? "_peers" : "";

  Value ids = context.view(op, op.getIds(), {assignments}), documents = context.view(op, op.getDocuments(), {tokens});
  auto table = [&](Shape shape) { return RankedTensorType::get(shape, IntegerType::get(op.getContext(), 32)); };
  using Launch = OutlineContext::Launch;
  auto spans = [&](Launch launch) {
    launch.arg("ids", ids).index("assignments", assignments).index("span", span).index("columns", columns);
    return launch;
  };
  auto divided = [&](Launch &launch) {
    launch.result("first", table({experts})).result("room", table({experts}));
    launch.result("offsets", op.getOffsets().getType());
    launch.result("overflow", op.getOverflow().getType()).result("exchange", op.getExchange().getType());
    launch.index("experts", experts).index("peer_rows", peerRows).index("expert_rows", op.getExpertRows().value_or(0));
    if (peers > 1)
      launch.index("local_experts", experts / peers);
  };

  if (few) {
    std::string kernel = context.kernel("moe_plan" + perSlots, {"all"}, [&](KernelBuilder &k) {
      Plan plan(k, kFewLanes);
      Var documents = list(k, "documents"), ranks = list(k, "ranks"), counts = list(k, "counts");
      Var first = list(k, "first"), room = list(k, "room"), perm = list(k, "perm"), inverse = list(k, "inverse");
      fill(k, perm, k.number(0), k.size(perm, 0), -1, kFewLanes);
      count(plan, slots, plan.columns, documents, ranks, counts);
      divide(k, counts, first, room, /*peers=*/false);
      place(plan, ranks, {}, first, room, inverse, perm);
    });
    Launch launch = spans(context.launch(op, kernel, {1}));
    launch.arg("documents", documents).result("perm", op.getPerm().getType());
    launch.result("inverse", table({assignments})).result("counts", op.getCounts().getType());
    launch.result("ranks", table({assignments}));
    divided(launch);
    SmallVector<Value> all = launch.run();
    context.replace(op, {all[0], all[1], all[2], all[6], all[7], all[8]});
    return success();
  }

  std::string counting = context.kernel("moe_plan_count" + perSlots, {"span"}, [&](KernelBuilder &k) {
    Plan plan(k, kLanes);
    Var documents = list(k, "documents"), ranks = list(k, "ranks"), table = list(k, "table"), perm = list(k, "perm");
    Var share = k.index("share"), from = k.program(0) * share;
    fill(k, perm, from, min(from + share, k.size(perm, 0)), -1);
    count(plan, slots, k.index("experts"), documents, ranks, table);
  });
  bool together = experts <= kExperts;
  auto add = [&](bool divides) {
    std::string name = divides ? "moe_plan_add_divide_e" + std::to_string(columns) + perPeers : "moe_plan_add";
    return context.kernel(name, {"experts"}, [&](KernelBuilder &k) {
      Var counts = list(k, "counts");
      addUp(k, divides ? columns : kColumns, counts);
      if (divides)
        divide(k, counts, list(k, "first"), list(k, "room"), peers > 1);
    });
  };
  std::string placing = context.kernel("moe_plan_place", {"span"}, [&](KernelBuilder &k) {
    Plan plan(k, kPlaced);
    Var ranks = list(k, "ranks"), starts = list(k, "starts"), first = list(k, "first"), room = list(k, "room");
    list(k, "empty_perm"); // perm, full of -1
    place(plan, ranks, starts, first, room, list(k, "inverse"), list(k, "perm"));
  });
  auto counted = spans(context.launch(op, counting, {programs}))
                     .arg("documents", documents)
                     .result("ranks", table({assignments}))
                     .result("table", table({programs * columns}))
                     .result("perm", op.getPerm().getType())
                     .index("share", ceilDiv(rows, programs))
                     .index("experts", experts)
                     .run();
  Value ranks = counted[0], perm = counted[2];
  Launch adding = context.launch(op, add(together), {together ? 1 : columns / kColumns});
  adding.arg("table", context.view(op, counted[1], {programs, columns})).result("starts", table({programs, columns}));
  adding.result("counts", op.getCounts().getType());
  if (together)
    divided(adding);
  SmallVector<Value> added = adding.run(), offsets(llvm::drop_begin(added, 2));
  Value starts = added[0], counts = added[1];
  if (!together) {
    std::string dividing = context.kernel("moe_plan_divide" + perPeers, {"all"}, [&](KernelBuilder &k) {
      divide(k, list(k, "counts"), list(k, "first"), list(k, "room"), peers > 1);
    });
    Launch divide = context.launch(op, dividing, {1});
    divided(divide.arg("counts", counts));
    offsets = divide.run();
  }
  auto placed = spans(context.launch(op, placing, {programs}))
                    .arg("ranks", ranks)
                    .arg("starts", context.view(op, starts, {programs * columns}))
                    .arg("first", offsets[0])
                    .arg("room", offsets[1])
                    .arg("empty_perm", perm)
                    .result("inverse", ranks.getType(), "ranks")
                    .result("perm", perm.getType(), "empty_perm")
                    .run();
  context.replace(op, {placed[1], placed[0], counts, offsets[2], offsets[3], offsets[4]});
  return success();
}

/// Of a received block, ends[p, e] = the rows of peer p's experts up to e; rows that did not fit the block have not
/// travelled. And empty plans.
void endReceived(KernelBuilder &k) {
  Var counts = k.buffer("counts", k.i32(), {kDynamic, kDynamic}),
      ends = k.buffer("ends", k.i32(), {kDynamic, kDynamic});
  Var perm = list(k, "perm"), inverse = list(k, "inverse"), share = k.index("share"), p = k.program(0);
  Var from = p * share, to = min(from + share, k.size(perm, 0));
  fill(k, perm, from, to, -1);
  fill(k, inverse, from, to, -1);
  Var local = k.size(counts, 1), most = toI32(k, k.index("peer_rows")), end = k.size(counts, 0);
  k.when(lt(p, end), [&] {
    k.loop(0, local, kExperts, {k.constant(k.i32(), 0)}, [&](Var e, ArrayRef<Var> before) {
      Var count = k.load(counts, {p, e}, {kExperts}, {.limit = local});
      Var sums = cumsum(count, 0) + before[0];
      k.store(min(sums, most), ends, {p, e}, {.limit = local, .dims = {1}});
      return Vars{before[0] + sum(count, 0)};
    });
  });
}

/// The rows that peer p sent to expert e: behind all of the experts before e, and those of the peers before p.
void placeReceived(KernelBuilder &k) {
  constexpr int64_t peersAtOnce = 32;
  Var ends = k.buffer("ends", k.i32(), {kDynamic, kDynamic});
  list(k, "empty_perm"), list(k, "empty_inverse"); // perm and inverse, full of -1
  Var perm = list(k, "perm"), inverse = list(k, "inverse"), offsets = list(k, "offsets");
  Var peerRows = k.index("peer_rows"), p = k.program(0), e = k.program(1), peers = k.size(ends, 0);
  Var lane = k.iota({peersAtOnce}, 0), nothing = lane.like(0), zero = k.constant(k.i32(), 0);
  // Of the experts before e; of the peers before p, of e, too.
  auto column = [&](Var q, Var expert, Var peers) {
    return k.load(ends, {q, expert}, {peersAtOnce}, {.limit = peers, .dims = {0}});
  };
  Var hasBefore = gt(e, 0), previous = max(e - 1, 0);
  Vars sums = k.loop(0, peers, peersAtOnce, {zero, zero}, [&](Var q, ArrayRef<Var> before) {
    Var less = select(hasBefore, column(q, previous, peers), nothing), all = column(q, e, peers);
    Var earlier = lt(lane, toI32(k, p - q));
    return Vars{before[0] + sum(select(earlier, all, less), 0), before[1] + sum(all, 0)};
  });
  Var begin = select(hasBefore, k.at(ends, {p, previous}), zero), count = k.at(ends, {p, e}) - begin;
  Var row = cast(sums[0], k.builder.getIndexType()), from = p * peerRows + cast(begin, k.builder.getIndexType());
  Var numbers = k.iota({kFill}, 0), last = cast(count, k.builder.getIndexType());
  k.loop(0, last, kFill, [&](Var i) {
    k.store(numbers + toI32(k, from + i), perm, {row + i}, {.limit = row + last});
    k.store(numbers + toI32(k, row + i), inverse, {from + i}, {.limit = from + last});
  });
  k.when(eq(p, 0), [&] {
    k.put(sums[0], offsets, {e});
    k.when(eq(e, k.size(ends, 1) - 1), [&] { k.put(sums[1], offsets, {e + 1}); });
  });
}

/// Received rows stand by (source, local expert); sorted rows by (local expert, source).
LogicalResult planReceived(MoePlanReceivedOp op, OutlineContext &context) {
  int64_t peers = shapeOf(op.getCounts())[0], local = shapeOf(op.getCounts())[1], peerRows = op.getPeerRows();
  int64_t rows = peers * peerRows, programs = std::max(peers, std::min(ceilDiv(rows, 4 * kFill), kMostPrograms));
  std::string ending = context.kernel("moe_plan_received_ends", {"part"}, endReceived);
  std::string placing = context.kernel("moe_plan_received_place", {"peer", "expert"}, placeReceived);
  auto ends = context.launch(op, ending, {programs})
                  .arg("counts", op.getCounts())
                  .result("ends", op.getCounts().getType())
                  .result("perm", op.getPerm().getType())
                  .result("inverse", op.getInverse().getType())
                  .index("share", ceilDiv(rows, programs))
                  .index("peer_rows", peerRows)
                  .run();
  context.replace(op, context.launch(op, placing, {peers, local})
                          .arg("ends", ends[0])
                          .arg("empty_perm", ends[1])
                          .arg("empty_inverse", ends[2])
                          .result("perm", op.getPerm().getType(), "empty_perm")
                          .result("inverse", op.getInverse().getType(), "empty_inverse")
                          .result("offsets", op.getOffsets().getType())
                          .index("peer_rows", peerRows)
                          .run());
  return success();
}

} // namespace

LogicalResult outlineMoePlan(Operation *op, OutlineContext &context) {
  if (auto received = dyn_cast<MoePlanReceivedOp>(op))
    return planReceived(received, context);
  return plan(cast<MoePlanOp>(op), context);
}

} // namespace braid
