//===- LossKernels.cpp - cross entropy over any vocabulary, sums in a fixed order ---------------------------------===//
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/SoftCap.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

using namespace mlir;

namespace braid {

static constexpr int64_t kSumBlock = 1024;

/// Rows of logits that one program walks over.
static int64_t rowsOfProgram(const OutlineContext &context) { return context.gpu ? 1 : 8; }
/// Words at a time.
static int64_t wordsOfBlock(const OutlineContext &context) { return context.gpu ? 1024 : 256; }

/// Blocks that one exponential of the maximum so far serves.
static constexpr int64_t kBlocksTogether = 4;

namespace {

/// Parameters of a kernel of losses, and what it writes of a row once its lse is known:
///   loss = lse - x[label]  (0 for label < 0), live
/// With `coordinate` c the row is the words [c size, (c + 1) size) of a vocabulary: target = x[label] or 0 takes the place of loss and live.
/// `ofTiles`: instead of logits there is x[label], where the label is one of the row's words.
class LossRows {
public:
  LossRows(KernelBuilder &k, Type element, bool part, bool ofTiles, bool isCapped = false)
      : k(k), real(computeType(element)), part(part), ofTiles(ofTiles),
        logits(ofTiles ? k.buffer("label_logits", element, {kDynamic})
                       : k.buffer("logits", element, {kDynamic, kDynamic})),
        labels(k.buffer("labels", k.i32(), {kDynamic})), place(part ? k.buffer("coordinate", k.i32(), {1}) : Var()),
        lse(k.buffer("lse", real, {kDynamic})), loss(k.buffer(part ? "target" : "loss", real, {kDynamic})),
        live(part ? Var() : k.buffer("live", real, {kDynamic})),
        cap(isCapped ? SoftCap(k, real, /*approximate=*/false) : SoftCap()), count(k.index("count")),
        size(k.index("vocabulary")) {}

  void put(Var n, Var row) const {
    Var label = k.at(labels, {n});
    if (part) {
      Var words = cast(size, k.i32()), word = label - k.at(place, {0}) * words;
      Var here = both(ge(word, 0), lt(word, words));
      Var target = logit(n, select(here, word, word.like(0)));
      k.put(row, lse, {n});
      k.put(select(here, target, row.like(0)), loss, {n});
      return;
    }
    Var target = logit(n, max(label, 0));
    Var counts = ge(label, 0);
    k.put(row, lse, {n});
    k.put(select(counts, row - target, row.like(0)), loss, {n});
    k.put(select(counts, row.like(1), row.like(0)), live, {n});
  }

  KernelBuilder &k;
  Type real;
  bool part, ofTiles;
  Var logits, labels, place, lse, loss, live;
  SoftCap cap; ///< of logits; tiles know theirs
  Var count, size;

private:
  Var logit(Var n, Var word) const {
    Var x = ofTiles ? k.at(logits, {n}) : k.at(logits, {n, cast(word, k.builder.getIndexType())});
    return cap.of(cast(x, real));
  }
};

/// Rows and tiles at a time of a program that joins what a product says of tiles: enough programs, and 16 bytes of each tile.
constexpr int64_t kRowsOfTiles = 4, kTilesTogether = 256;

/// Of each row r_t and s_t of its tiles:  m = max r_t,  lse = m + log sum s_t exp(r_t - m), lanes apart; exponentials may be approximate as those in s_t.
std::string lossOfTiles(StringRef name, Type element, bool part, OutlineContext &context) {
  return context.kernel((name + "_of_tiles").str(), {"rows"}, [&](KernelBuilder &k) {
    LossRows rows(k, element, part, /*ofTiles=*/true);
    Var references = k.buffer("references", rows.real, {kDynamic, kDynamic}),
        sums = k.buffer("sums", rows.real, {kDynamic, kDynamic});
    Var tiles = k.size(references, 0), first = k.program(0) * kRowsOfTiles;
    const int64_t shape[] = {kTilesTogether, kRowsOfTiles};
    Var lowest = k.tile(shape, rows.real, -3.0e38), lane = k.iota(shape, 0);
    Vars lanes = k.loop(0, tiles, kTilesTogether, {lowest, lowest.like(0)}, [&](Var t, ArrayRef<Var> now) {
      Var x = k.load(references, {t, first}, shape, {.limit = tiles});
      x = select(lt(lane, cast(tiles - t, k.i32())), x, lowest);
      Var s = k.load(sums, {t, first}, shape, {.limit = tiles}), top = max(now[0], x);
      return Vars{top, now[1] * exp(now[0] - top) + s * exp(x - top)};
    });
    Var m = maximum(lanes[0], 0);
    Var lse = m + log(sum(lanes[1] * exp(lanes[0] - expand(m, 0, kTilesTogether)), 0));
    k.loop(first, min(first + kRowsOfTiles, rows.count), 1, [&](Var n) { rows.put(n, row(lse, n - first)); });
    k.approximate();
  });
}

/// Two walks over a row's vocabulary in blocks, lanes apart:
///   m = max x,  lse = m + log sum exp(x - m)
/// A GPU, whose programs run beside each other and have no row in a cache, walks once: s <- s exp(m - m') + sum exp(x - m').
std::string lossOfWords(StringRef name, Type element, bool part, bool rounded, double cap, OutlineContext &context) {
  bool once = context.gpu;
  int64_t programRows = rowsOfProgram(context), width = wordsOfBlock(context);
  std::string full =
      name.str() + (once && rounded && !element.isBF16() ? "_rounded" : "") + SoftCap::suffix(cap > 0).str();
  return context.kernel(full, {"token"}, [&](KernelBuilder &k) {
    LossRows rows(k, element, part, /*ofTiles=*/false, cap > 0);
    Var size = rows.size, first = k.program(0) * programRows;
    Var lowest = k.tile({width}, rows.real, -3.0e38), lane = k.iota({width}, 0);
    k.loop(first, min(first + programRows, rows.count), 1, [&](Var n) {
      auto block = [&](Var v, const SoftCap &cap) {
        Var x = cap.of(cast(k.load(rows.logits, {n, v}, {width}, {.limit = size}), rows.real));
        return select(lt(lane, cast(size - v, k.i32())), x, lowest);
      };
      Var m, total;
      if (once) {
        int64_t step = kBlocksTogether * width;
        Vars lanes = k.loop(0, size, step, {lowest, lowest.like(0)}, [&](Var v, ArrayRef<Var> now) {
          SmallVector<Var> x;
          Var top = now[0];
          for (int64_t i = 0; i < kBlocksTogether; ++i) {
            x.push_back(block(v + i * width, rows.cap));
            top = max(top, x.back());
          }
          Var sum = now[1] * exp(now[0] - top);
          for (Var each : x)
            sum = sum + exp(each - top);
          return Vars{top, sum};
        });
        m = maximum(lanes[0], 0);
        total = sum(lanes[1] * exp(lanes[0] - m), 0);
      } else {
        // The greatest capped logit is the greatest logit's.
        Vars top =
            k.loop(0, size, width, {lowest}, [&](Var v, ArrayRef<Var> m) { return Vars{max(m[0], block(v, {}))}; });
        m = rows.cap.of(maximum(top[0], 0));
        total = sum(k.loop(0, size, width, {lowest.like(0)},
                           [&](Var v, ArrayRef<Var> s) { return Vars{s[0] + exp(block(v, rows.cap) - m)}; })[0],
                    0);
      }
      rows.put(n, m + log(total));
    });
    if (once && rounded)
      k.approximate();
  });
}

} // namespace

/// The kernel's launch, which has its operands.
static SmallVector<Value> runLosses(OutlineContext::Launch launch, Value labels, Type real, int64_t vocabulary,
                                    Value coordinate, double softcap = 0) {
  int64_t count = shapeOf(labels)[0];
  auto perToken = RankedTensorType::get({count}, real);
  launch.arg("labels", labels);
  if (coordinate)
    launch.arg("coordinate", coordinate).result("lse", perToken).result("target", perToken);
  else
    launch.result("lse", perToken).result("loss", perToken).result("live", perToken);
  if (softcap > 0)
    SoftCap::arguments(launch, softcap, real);
  return launch.index("count", count).index("vocabulary", vocabulary).run();
}

static std::string lossName(Type element, Value coordinate) {
  return std::string("cross_entropy_") + (coordinate ? "part_" : "") + typeName(element);
}

SmallVector<Value> rowLosses(Operation *op, Value logits, Value labels, bool rounded, OutlineContext &context,
                             Value coordinate, double softcap) {
  Type element = tensorType(logits).getElementType();
  std::string kernel =
      lossOfWords(lossName(element, coordinate), element, static_cast<bool>(coordinate), rounded, softcap, context);
  auto launch = context.launch(op, kernel, {ceilDiv(shapeOf(logits)[0], rowsOfProgram(context))});
  launch.arg("logits", logits);
  return runLosses(std::move(launch), labels, computeType(element), shapeOf(logits)[1], coordinate, softcap);
}

/// One walk over a row's words, lanes apart; a lane's word is the first of its greatest. Far beyond a bound logits are equal, as for whoever draws.
SmallVector<Value> rowGreatest(Operation *op, Value logits, OutlineContext &context, Value coordinate, double softcap) {
  int64_t count = shapeOf(logits)[0], vocabulary = shapeOf(logits)[1];
  Type element = tensorType(logits).getElementType(), real = computeType(element);
  int64_t rows = rowsOfProgram(context), width = wordsOfBlock(context);
  std::string name = "greatest_word_" + typeName(element) + SoftCap::suffix(softcap > 0).str();
  std::string kernel = context.kernel(name, {"token"}, [&](KernelBuilder &k) {
    Var logits = k.buffer("logits", element, {kDynamic, kDynamic}), place = k.buffer("coordinate", k.i32(), {1});
    Var greatest = k.buffer("greatest", real, {kDynamic}), words = k.buffer("word", k.i32(), {kDynamic});
    SoftCap cap = softcap > 0 ? SoftCap(k, real, /*approximate=*/false) : SoftCap();
    Var count = k.index("count"), size = k.index("vocabulary"), first = k.program(0) * rows;
    Var lowest = k.tile({width}, real, -3.0e38), lane = k.iota({width}, 0);
    k.loop(first, min(first + rows, count), 1, [&](Var n) {
      Vars lanes = k.loop(0, size, width, {lowest, lane}, [&](Var v, ArrayRef<Var> now) {
        Var x = cap.of(cast(k.load(logits, {n, v}, {width}, {.limit = size}), real)), word = lane + cast(v, k.i32());
        Var better = both(lt(now[0], x), lt(word, cast(size, k.i32())));
        return Vars{select(better, x, now[0]), select(better, word, now[1])};
      });
      Var top = maximum(lanes[0], 0);
      Var word = minimum(select(eq(lanes[0], top), lanes[1], lanes[1].like(std::numeric_limits<int32_t>::max())), 0);
      k.put(top, greatest, {n});
      k.put(word + k.at(place, {0}) * cast(size, k.i32()), words, {n});
    });
  });
  auto launch = context.launch(op, kernel, {ceilDiv(count, rows)});
  launch.arg("logits", logits).arg("coordinate", coordinate);
  launch.result("greatest", RankedTensorType::get({count}, real));
  launch.result("word", RankedTensorType::get({count}, context.rewriter.getI32Type()));
  if (softcap > 0)
    SoftCap::arguments(launch, softcap, real);
  return launch.index("count", count).index("vocabulary", vocabulary).run();
}

SmallVector<Value> rowLosses(Operation *op, const LossTiles &tiles, Value labels, int64_t vocabulary,
                             OutlineContext &context, Value coordinate) {
  Type element = tensorType(tiles.sums).getElementType();
  std::string kernel = lossOfTiles(lossName(element, coordinate), element, static_cast<bool>(coordinate), context);
  auto launch = context.launch(op, kernel, {ceilDiv(shapeOf(labels)[0], kRowsOfTiles)});
  launch.arg("label_logits", tiles.labelLogits).arg("references", tiles.references).arg("sums", tiles.sums);
  return runLosses(std::move(launch), labels, element, vocabulary, coordinate);
}

/// dlogits = (exp(l - lse) - [v = label]) (1 - (l / cap)^2) dsum, 0 for label < 0, l = x without a cap; v counts from c size with `coordinate` c
Value rowGradients(Operation *op, Value logits, Value labels, Value lse, Value dsum, Type result,
                   OutlineContext &context, Value coordinate, double softcap) {
  int64_t count = shapeOf(logits)[0], vocabulary = shapeOf(logits)[1];
  Type element = tensorType(logits).getElementType(), real = computeType(element);
  Type scale = tensorType(dsum).getElementType();
  int64_t rows = rowsOfProgram(context), width = wordsOfBlock(context);
  std::string name = std::string("cross_entropy_grad_") + (coordinate ? "part_" : "") + typeName(element) +
                     (result != element ? "_" + typeName(result) : "") + SoftCap::suffix(softcap > 0).str();
  std::string kernel = context.kernel(name, {"token"}, [&](KernelBuilder &k) {
    Var logits = k.buffer("logits", element, {kDynamic, kDynamic}), labels = k.buffer("labels", k.i32(), {kDynamic});
    Var lse = k.buffer("lse", real, {kDynamic}), dsum = k.buffer("dsum", scale, {1});
    Var place = coordinate ? k.buffer("coordinate", k.i32(), {1}) : Var();
    Var dlogits = k.buffer("dlogits", result, {kDynamic, kDynamic});
    SoftCap cap = softcap > 0 ? SoftCap(k, real, /*approximate=*/false) : SoftCap();
    Var count = k.index("count"), size = k.index("vocabulary"), first = k.program(0) * rows;
    Var factor = cast(k.at(dsum, {0}), real), lane = k.iota({width}, 0);
    k.loop(first, min(first + rows, count), 1, [&](Var n) {
      Var label = k.at(labels, {n}), row = k.at(lse, {n}), weight = select(ge(label, 0), factor, factor.like(0));
      if (coordinate)
        label = label - k.at(place, {0}) * cast(size, k.i32());
      k.loop(0, size, width, [&](Var v) {
        Var x = cap.of(cast(k.load(logits, {n, v}, {width}, {.limit = size}), real)), p = exp(x - row);
        Var hit = eq(lane, label - cast(v, k.i32()));
        Var d = cap.grad(x, (p - select(hit, p.like(1), p.like(0))) * weight);
        k.store(cast(d, result), dlogits, {n, v}, {.limit = size, .dims = {1}});
      });
    });
  });
  // The cotangent takes the place of its logits: nothing reads them afterwards where they fit.
  auto launch = context.launch(op, kernel, {ceilDiv(count, rows)});
  launch.arg("logits", logits).arg("labels", labels).arg("lse", lse).arg("dsum", dsum);
  if (coordinate)
    launch.arg("coordinate", coordinate);
  if (softcap > 0)
    SoftCap::arguments(launch, softcap, real);
  return launch.result("dlogits", RankedTensorType::get({count, vocabulary}, result), result == element ? "logits" : "")
      .index("count", count)
      .index("vocabulary", vocabulary)
      .run()[0];
}

/// An lse that an f32 number exp(lse) and bf16 ones of its size stand for, with room for their sums and quotients.
static constexpr double kFarLse = 56;

/// Of P = exp(x - r_t) for word v of tile t, in its place, E with  dlogits = scale E  for each row:
///   ordinary rows, all r_t = 0    scale = dsum exp(-lse)   E = P, at the label exp(x) - exp(lse)
///   all others                    scale = dsum             E = P exp(r_t - lse), at the label exp(x - lse) - 1
/// Of bounded logits x both P and what stands at the label have the slope 1 - (x / c)^2 as a factor, which is at most 1.
/// and scale = 0 for label < 0. Of an ordinary row one element is written and none is read: these are almost all. v counts from c size with `coordinate` c.
///
/// Whatever the logits are, nothing overflows, and nothing is lost that f32 would tell from 0 beside 1. A tile's greatest logit is within kFarLogit of r_t, so
/// P <= e^40, a row's sum is <= e^40 for each word, and exp(r_t - lse) <= e^40 since lse >= r_t - 40. An ordinary row has |lse| <= kFarLse: E and its sums with weights w are
/// <= 2 e^56 |w| = 4e24 |w|, scale is <= e^40 dsum (lse >= -40 with every greatest logit), and >= e^-56 dsum = 5e-25 dsum, so that f32 and bf16 hold scale x with all digits where
/// dsum x >= 3e-14. P below 1e-38 is 0: of a row's sum, >= e^-40, that is 3e-21. Where ranks have parts of the words the row's lse may be beyond kFarLse
/// with all r_t = 0 here; this rank then takes the second way, and has a scale of its own.
ScaledGradients scaledGradients(Operation *op, const LossTiles &tiles, Value labels, Value lse, Value dsum,
                                OutlineContext &context, Value coordinate) {
  auto type = tensorType(tiles.exponentials);
  int64_t count = type.getDimSize(0), vocabulary = type.getDimSize(1), side = tiles.side;
  int64_t together = ceilDiv(wordsOfBlock(context), side), width = together * side;
  double softcap = tiles.softcap;
  Type scale = tensorType(dsum).getElementType(), element = type.getElementType();
  std::string name = std::string("cross_entropy_scales_") + (coordinate ? "part_" : "") + "of_tiles_" +
                     std::to_string(side) + SoftCap::suffix(softcap > 0).str();
  std::string kernel = context.kernel(name, {"rows"}, [&](KernelBuilder &k) {
    Var exponentials = k.buffer("exponentials", element, {kDynamic, kDynamic});
    Var references = k.buffer("references", k.f32(), {kDynamic, kDynamic}),
        labelLogits = k.buffer("label_logits", k.f32(), {kDynamic});
    Var labels = k.buffer("labels", k.i32(), {kDynamic}), lse = k.buffer("lse", k.f32(), {kDynamic});
    Var dsum = k.buffer("dsum", scale, {1}), place = coordinate ? k.buffer("coordinate", k.i32(), {1}) : Var();
    Var dlogits = k.buffer("dlogits", element, {kDynamic, kDynamic}), scales = k.buffer("scales", k.f32(), {kDynamic});
    SoftCap cap = softcap > 0 ? SoftCap(k, k.f32(), /*approximate=*/true) : SoftCap();
    Var count = k.index("count"), size = k.index("vocabulary"), tiles = k.size(references, 0);
    Var first = k.program(0) * kRowsOfTiles, lane = k.iota({width}, 0), factor = cast(k.at(dsum, {0}), k.f32());
    const int64_t shape[] = {kTilesTogether, kRowsOfTiles};
    Var lanes = k.loop(0, tiles, kTilesTogether, {k.tile(shape, k.f32())}, [&](Var t, ArrayRef<Var> furthest) {
      return Vars{max(furthest[0], abs(k.load(references, {t, first}, shape, {.limit = tiles})))};
    })[0];
    Var furthest = maximum(lanes, 0);
    k.loop(first, min(first + kRowsOfTiles, count), 1, [&](Var n) {
      Var label = k.at(labels, {n}), all = k.at(lse, {n});
      Var ordinary = both(le(row(furthest, n - first), 0.0), le(abs(all), kFarLse));
      Var one = select(ordinary, exp(all), 1); // what stands for a probability of 1
      Var logit = k.at(labelLogits, {n}), atLabel = cap.grad(logit, (exp(logit - all) - 1) * one);
      k.put(select(ge(label, 0), factor / one, 0), scales, {n});
      if (coordinate)
        label = label - k.at(place, {0}) * cast(size, k.i32());
      Var here = both(ge(label, 0), lt(label, cast(size, k.i32())));
      k.when(both(ordinary, here),
             [&] { k.put(cast(atLabel, element), dlogits, {n, cast(label, k.builder.getIndexType())}); });
      k.loop(0, select(ordinary, 0, size), width, [&](Var v) {
        Var r = k.load(references, {v / side, n}, {together}, {.limit = tiles, .dims = {0}});
        Var p = cast(k.load(exponentials, {n, v}, {width}, {.limit = size, .dims = {1}}), k.f32());
        Var e = p * reshape(expand(exp(r - all), 1, side), {width});
        Var hit = eq(lane, label - cast(v, k.i32()));
        k.store(cast(select(hit, atLabel, e), element), dlogits, {n, v}, {.limit = size, .dims = {1}});
      });
    });
  });
  auto launch = context.launch(op, kernel, {ceilDiv(count, kRowsOfTiles)});
  launch.arg("exponentials", tiles.exponentials).arg("references", tiles.references);
  launch.arg("label_logits", tiles.labelLogits).arg("labels", labels).arg("lse", lse).arg("dsum", dsum);
  if (coordinate)
    launch.arg("coordinate", coordinate);
  if (softcap > 0)
    SoftCap::arguments(launch, softcap, Float32Type::get(op->getContext()));
  launch.result("dlogits", type, "exponentials").result("scales", RankedTensorType::get({count}, computeType(element)));
  SmallVector<Value> results = launch.index("count", count).index("vocabulary", vocabulary).run();
  return {results[0], results[1]};
}

Value scaleRows(Operation *op, Value x, Value scales, Type element, OutlineContext &context) {
  constexpr int64_t rows = 8, most = 256;
  auto type = tensorType(x);
  Type from = type.getElementType();
  int64_t count = type.getDimSize(0), columns = type.getDimSize(1), width = divisorUpTo(columns, most);
  std::string name = "scale_rows_" + typeName(from) + "_" + typeName(element) + "_" + std::to_string(width);
  std::string kernel = context.kernel(name, {"column", "row"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", from, {kDynamic, kDynamic}), scales = k.buffer("scales", k.f32(), {kDynamic});
    Var y = k.buffer("y", element, {kDynamic, kDynamic}), column = k.program(0) * width, row = k.program(1) * rows;
    AccessOptions inside{.limit = k.index("rows")};
    Var scale = k.load(scales, {row}, {rows}, inside);
    Var scaled = cast(k.load(x, {row, column}, {rows, width}, inside), k.f32()) * expand(scale, 1, width);
    k.store(cast(scaled, element), y, {row, column}, inside);
  });
  auto launch = context.launch(op, kernel, {columns / width, ceilDiv(count, rows)});
  launch.arg("x", x).arg("scales", scales).result("y", RankedTensorType::get({count, columns}, element));
  return launch.index("rows", count).run()[0];
}

Value countLabels(Operation *op, Value labels, Type type, OutlineContext &context) {
  int64_t count = product(shapeOf(labels));
  std::string kernel = context.kernel("count_labels_" + typeName(type), {"all"}, [&](KernelBuilder &k) {
    Var labels = k.buffer("labels", k.i32(), {kDynamic}), result = k.buffer("count", type, {1}), size = k.index("size");
    Var lane = k.iota({kSumBlock}, 0);
    Vars lanes = k.loop(0, size, kSumBlock, {k.tile({kSumBlock}, k.i32())}, [&](Var i, ArrayRef<Var> s) {
      Var live = both(ge(k.load(labels, {i}, {kSumBlock}, {.limit = size}), 0), lt(lane, cast(size - i, k.i32())));
      return Vars{s[0] + cast(live, k.i32())};
    });
    k.put(cast(sum(lanes[0], 0), type), result, {0});
  });
  return context.launch(op, kernel, {1})
      .arg("labels", context.view(op, labels, {count}))
      .result("count", RankedTensorType::get({1}, type))
      .index("size", count)
      .run()[0];
}

namespace {

LogicalResult crossEntropy(CrossEntropyOp op, OutlineContext &context) {
  int64_t vocabulary = shapeOf(op.getLogits()).back(), count = product(shapeOf(op.getLabels()));
  Value logits = context.view(op, op.getLogits(), {count, vocabulary}),
        labels = context.view(op, op.getLabels(), {count});
  SmallVector<Value> rows = rowLosses(op, logits, labels, tensorType(logits).getElementType().isBF16(), context);
  Value total = sumAll(op, rows[1], tensorType(op.getSum()).getElementType(), context);
  Value live = sumAll(op, rows[2], tensorType(op.getCount()).getElementType(), context);
  context.replace(op, {total, live, rows[0]});
  return success();
}

LogicalResult crossEntropyGrad(CrossEntropyGradOp op, OutlineContext &context) {
  int64_t vocabulary = shapeOf(op.getLogits()).back(), count = product(shapeOf(op.getLabels()));
  Value logits = context.view(op, op.getLogits(), {count, vocabulary}),
        labels = context.view(op, op.getLabels(), {count}), lse = context.view(op, op.getLse(), {count});
  context.replace(
      op, rowGradients(op, logits, labels, lse, op.getDsum(), tensorType(op.getDlogits()).getElementType(), context));
  return success();
}

/// dx[i] = dsum
LogicalResult spread(SumGradOp op, OutlineContext &context) {
  auto type = tensorType(op.getDx());
  Type from = tensorType(op.getDsum()).getElementType(), to = type.getElementType();
  int64_t size = product(type.getShape());
  std::string kernel =
      context.kernel("spread_" + typeName(from) + "_" + typeName(to), {"block"}, [&](KernelBuilder &k) {
        Var dsum = k.buffer("dsum", from, {1}), dx = k.buffer("dx", to, {kDynamic}), size = k.index("size");
        k.store(splat(cast(k.at(dsum, {0}), to), {kSumBlock}), dx, {k.program(0) * kSumBlock}, {.limit = size});
      });
  context.replace(op, context.launch(op, kernel, {ceilDiv(size, kSumBlock)})
                          .arg("dsum", op.getDsum())
                          .result("dx", type.clone({size}))
                          .index("size", size)
                          .run());
  return success();
}

} // namespace

Value partialSums(Operation *op, Value x, bool squared, Type sumType, OutlineContext &context) {
  int64_t size = product(shapeOf(x));
  Type element = tensorType(x).getElementType();
  std::string name = std::string(squared ? "sum_squares_" : "sum_") + typeName(element) + "_" + typeName(sumType);
  std::string kernel = context.kernel(name, {"part"}, [&](KernelBuilder &k) {
    // Program p adds its span of blocks lane by lane, then the lanes: the same order for any number of threads.
    Var x = k.buffer("x", element, {kDynamic}), parts = k.buffer("parts", sumType, {kDynamic});
    Var size = k.index("size"), span = k.index("span"), first = k.program(0) * span;
    Vars lanes =
        k.loop(first, min(first + span, size), kSumBlock, {k.tile({kSumBlock}, sumType)}, [&](Var i, ArrayRef<Var> s) {
          Var tile = cast(k.load(x, {i}, {kSumBlock}, {.limit = size}), sumType);
          return Vars{s[0] + (squared ? tile * tile : tile)};
        });
    k.put(sum(lanes[0], 0), parts, {k.program(0)});
  });
  int64_t blocks = std::max<int64_t>(ceilDiv(size, kSumBlock), 1);
  int64_t span = ceilDiv(blocks, sumPrograms(context)) * kSumBlock;
  int64_t programs = std::max<int64_t>(ceilDiv(size, span), 1);
  Value flat = context.view(op, x, {size});
  return context.launch(op, kernel, {programs})
      .arg("x", flat)
      .result("parts", RankedTensorType::get({programs}, sumType))
      .index("size", size)
      .index("span", span)
      .run()[0];
}

Value sumAll(Operation *op, Value x, Type sumType, OutlineContext &context) {
  while (product(shapeOf(x)) > 1 || tensorType(x).getElementType() != sumType) {
    Type wide = tensorType(x).getElementType().isF64() ? tensorType(x).getElementType() : sumType;
    bool last = product(shapeOf(x)) <= kSumBlock;
    x = partialSums(op, x, false, last ? sumType : wide, context);
  }
  return context.view(op, x, {1});
}

LogicalResult outlineLoss(Operation *op, OutlineContext &context) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](CrossEntropyOp loss) { return crossEntropy(loss, context); })
      .Case([&](CrossEntropyGradOp grad) { return crossEntropyGrad(grad, context); })
      .Case([&](LinearCrossEntropyOp loss) { return outlineLinearLoss(loss, context); })
      .Case([&](LinearCrossEntropyGradOp grad) { return outlineLinearLossGrad(grad, context); })
      .Case([&](LinearLossPartOp part) { return outlineLossPart(part, context); })
      .Case([&](LinearLossPartGradOp grad) { return outlineLossPartGrad(grad, context); })
      .Case([&](LinearScoresOp scores) { return outlineScores(scores, context); })
      .Case([&](SumGradOp grad) { return spread(grad, context); })
      .Case([&](SumOp sum) {
        Value total = sumAll(op, sum.getX(), tensorType(sum.getResult()).getElementType(), context);
        context.replace(op, total);
        return success();
      });
}

} // namespace braid
