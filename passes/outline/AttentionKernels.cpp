//===- AttentionKernels.cpp - attn.causal, attn.merge, attn.append become launches ---------------------------------===//
#include "passes/outline/AttentionTiles.h"
#include "passes/outline/OutlineFamilies.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace braid {

namespace {

//===- Forward ----------------------------------------------------------------------------------------------------===//

/// Program (block of query rows, head, batch). On a GPU in the order of attention's longest rows first.
void writeForward(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  Attention::Inputs in = a.inputs();
  Var q = in.q.own, documents = in.documents;
  Var o = a.outputs("o"), lse = a.rowNumbers("lse"), scale = k.scalar("scale", shape.compute);
  a.loadCap();
  Var sinks = a.sinks();
  a.loadPrefix(q);
  int64_t R = shape.ownRows(), C = shape.attendedKeys();
  Var t0 = a.firstQuery(q), h = k.program(1), b = k.program(2);
  Var tokens = k.size(q, 1), g = h / static_cast<double>(shape.perGroup());
  Var keyCount = shape.cache ? k.size(in.k.own, 1) : a.keyCount;
  Attention::Features queries = a.loadRows(in.q, b, t0, h, R, tokens);
  auto seen = a.rowIntervals(documents, b, t0, R);
  auto [lo, end] = a.range(seen);
  Var hi = shape.ring ? end : min(end, keyCount), diagonal;
  auto before = seen;
  if (!shape.cache) {
    diagonal = t0 + a.prefix;
    hi = shape.earlier ? min(diagonal, keyCount) : shape.wide ? hi : diagonal;
    before = a.before(seen, hi);
  }
  auto common = a.common(documents, b, t0, R);
  if (common.last)
    common.last = min(common.last, cast(hi, k.i32()) - 1.0);
  a.scaleLate(scale);
  queries = a.scaled(queries, scale); // what has to be read has been asked for
  Vars state = a.attendNothing(R, a.sinkOf(sinks, h, R));
  if (shape.wide) {
    // Values come one tile behind their keys: nothing is multiplied with those of the first, and no key of the last is attended.
    auto each = static_cast<double>(C);
    state.push_back(k.tile({C, R}, shape.compute));
    state = k.loop(lo, select(lt(lo, hi), hi + each, hi), C, state, [&](Var s0, llvm::ArrayRef<Var> now) {
      Attention::Features ks{a.passingRows(in.k.own, b, s0, g, C, hi),
                             in.k.shared ? a.passingRows(in.k.shared, b, s0, k.number(0), C, hi) : Var()};
      Var vs = a.passingRows(in.values, b, max(s0 - each, lo), g, C, hi);
      return a.attendTileLater(queries, ks, vs, before, common, s0, now);
    });
  } else {
    state = k.loop(lo, hi, C, state, [&](Var s0, llvm::ArrayRef<Var> now) {
      Attention::Keys keys = a.loadKeys(in, b, s0, g, C, hi);
      return a.attendTile(queries, keys, before, common, s0, /*diagonal=*/false, now);
    });
  }
  if (!shape.cache && !shape.earlier && !shape.wide) {
    Attention::Keys keys = a.keyRows(in, b, diagonal, g, R, keyCount);
    state = a.attendTile(queries, keys, seen, {}, diagonal, /*diagonal=*/true, state);
  }
  auto [out, sums] = a.attended(state);
  a.storeRows(out, o, b, t0, h);
  k.store(cast(sums, lse.element()), lse, {b, h, t0}, {.limit = tokens, .dims = {2}});
}

/// One token: the rows are the heads of a group, so that every key is read once (or as many of them as decodeHeads() says). Program (rows, batch), or with
/// several parts (rows, batch, part): m, l and O' of a part of the keys each (Flash-Decoding, Dao et al. 2023).
void writeDecode(KernelBuilder &k, const AttentionShape &shape, int64_t parts) {
  Attention a(k, shape);
  Attention::Inputs in = a.inputs();
  Var o, lse, scale;
  if (parts == 1) {
    o = a.outputs("o");
    lse = a.rowNumbers("lse");
  } else {
    o = a.partOutputs("o");
    lse = a.partNumbers("m_l");
  }
  scale = k.scalar("scale", shape.compute);
  a.loadCap();
  Var sinks = a.sinks();
  a.loadPrefix(in.q.own);
  int64_t rows = shape.decodeHeads(), perGroup = shape.perGroup() / rows;
  Var g = k.program(0), b = k.program(1), h = g * static_cast<double>(rows);
  if (perGroup > 1)
    g = g / static_cast<double>(perGroup);
  auto ofHeads = [&](Var buffer) {
    return cast(k.load(buffer, {b, 0, h, 0}, {rows, buffer.dim(3)}), shape.compute) * scale;
  };
  Attention::Features queries{ofHeads(in.q.own), in.q.shared ? ofHeads(in.q.shared) : Var()};
  auto one = a.interval(k.at(in.documents, {b, 0}), k.constant(k.i32(), 0));
  Attention::Interval seen{splat(one.first, {rows}), splat(one.last, {rows})};
  if (parts > 1) {
    Var part = k.program(2);
    Vars made = a.attendPart(queries, seen, in, b, g, shape.decodeKeys(), {}, part, parts);
    for (int64_t i = 0; i < 2; ++i)
      k.store(made[i], lse, {part, k.number(i), b, h}, {.dims = {3}});
    return k.store(made[2], o, {part, b, h, 0}, {.dims = {2, 3}});
  }
  Var ofRows = sinks ? k.load(sinks, {h}, {rows}) : Var();
  auto [out, sums] = a.attend(queries, seen, in, b, g, shape.decodeKeys(), ofRows);
  k.store(cast(out, o.element()), o, {b, 0, h, 0});
  k.store(cast(sums, lse.element()), lse, {b, h, 0}, {.dims = {1}});
}

/// o and lse from m, l and O' of the parts, added up in their order. Program (head, batch).
void writeDecodeMerge(KernelBuilder &k, const AttentionShape &shape, int64_t parts) {
  Attention a(k, shape);
  Var o = a.partOutputs("o_part"), numbers = a.partNumbers("m_l");
  Var out = a.outputs("o"), lse = a.rowNumbers("lse"), sinks = a.sinks(), h = k.program(0), b = k.program(1);
  auto of = [&](int64_t i) { return k.load(numbers, {0, k.number(i), b, h}, {parts}, {.dims = {0}}); };
  Var m = of(0), l = of(1), highest = maximum(m, 0), sink = sinks ? k.at(sinks, {h}) : Var();
  if (sink)
    highest = max(highest, sink);
  Var weight = exp(m - splat(highest, {parts}));
  // A part without keys has l = 0 and O' = 0, whatever its weight.
  Var total = sum(l * weight, 0),
      made = sum(k.load(o, {0, b, h, 0}, {parts, shape.values}, {.dims = {0, 3}}) * expand(weight, 1, shape.values), 0);
  if (sink)
    total = total + exp(sink - highest);
  Var empty = le(total, 0.0);
  total = select(empty, 1.0, total);
  k.store(cast(made / splat(total, {shape.values}), out.element()), out, {b, 0, h, 0}, {.dims = {3}});
  k.put(cast(select(empty, 0.0, highest + log(total)), lse.element()), lse, {b, h, 0});
}

//===- sinks ------------------------------------------------------------------------------------------------------===//

/// Program (head, batch, part of the tokens): what these give to dsinks, in blocks, one after the other.
void writeSinkGrad(KernelBuilder &k, const AttentionShape &shape, Type cotangent) {
  Attention a(k, shape);
  Var sinks = a.sinks(), o = a.outputs("o"), lse = a.rowNumbers("lse"),
      d_o = a.tokens("d_o", shape.heads, shape.values, cotangent),
      parts = k.buffer("parts", shape.compute, {kDynamic, kDynamic, shape.heads}), span = k.index("span");
  int64_t R = shape.tileRows();
  Var h = k.program(0), b = k.program(1), part = k.program(2), tokens = k.size(o, 1), first = part * span,
      sink = splat(k.at(sinks, {h}), {R});
  Vars all =
      k.loop(first, min(first + span, tokens), R, {k.tile({R}, shape.compute)}, [&](Var t0, ArrayRef<Var> now) -> Vars {
        // No lse is below the sink; that of rows behind the tokens reads 0.
        Var ofRows = k.load(lse, {b, h, t0}, {R}, {.limit = tokens, .dims = {2}}), share = exp(min(sink - ofRows, 0.0));
        Var delta = sum(a.loadRows(o, b, t0, h, R, tokens) * a.loadRows(d_o, b, t0, h, R, tokens), 1);
        return {now[0] - share * delta};
      });
  k.put(sum(all[0], 0), parts, {part, b, h});
}

//===- merge ------------------------------------------------------------------------------------------------------===//

/// Program (block of query rows, head, batch).
void writeMerge(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  Var o = a.outputs("o"), lse = a.rowNumbers("lse"), block = a.outputs("o_block"), lseBlock = a.rowNumbers("lse_block");
  Var both = a.outputs("o_both"), lseBoth = a.rowNumbers("lse_both");
  int64_t R = shape.tileRows();
  Var t0 = k.program(0) * static_cast<double>(R), h = k.program(1), b = k.program(2), tokens = k.size(o, 1);
  auto numbers = [&](Var buffer) { return k.load(buffer, {b, h, t0}, {R}, {.limit = tokens, .dims = {2}}); };
  Var one = numbers(lse), two = numbers(lseBlock), highest = max(one, two);
  Var weight = exp(one - highest), weightBlock = exp(two - highest), total = weight + weightBlock;
  Var sum = a.loadRows(o, b, t0, h, R, tokens) * expand(weight / total, 1, shape.values) +
            a.loadRows(block, b, t0, h, R, tokens) * expand(weightBlock / total, 1, shape.values);
  a.storeRows(sum, both, b, t0, h);
  k.store(highest + log(total), lseBoth, {b, h, t0}, {.limit = tokens, .dims = {2}});
}

//===- append -----------------------------------------------------------------------------------------------------===//

/// Program (token, batch): row t - documents[t] of the cache, modulo its rows in a ring.
void writeAppend(KernelBuilder &k, Type element, int64_t groups, int64_t size, bool ring) {
  k.buffer("cache", element, {kDynamic, kDynamic, groups, size});
  Var x = k.buffer("x", element, {kDynamic, kDynamic, groups, size}),
      documents = k.buffer("documents", k.i32(), {kDynamic, kDynamic});
  Var result = k.buffer("result", element, {kDynamic, kDynamic, groups, size});
  Var t = k.program(0), b = k.program(1);
  Var position = cast(t, k.i32()) - k.at(documents, {b, t}), rows = cast(k.size(result, 1), k.i32());
  // Padding tokens have a negative position.
  Var row = ring ? position % rows : position;
  k.when(both(ge(position, 0.0), lt(row, rows)), [&] {
    k.store(k.load(x, {b, t, 0, 0}, {groups, size}), result, {b, cast(row, k.builder.getIndexType()), 0, 0});
  });
}

//===- Launches ---------------------------------------------------------------------------------------------------===//

/// How many programs share the keys of a token and group: enough for two on each of a GPU's multiprocessors, none of them
/// with less than some blocks of a full cache.
int64_t decodeParts(int64_t programs, int64_t rows) {
  int64_t most = std::min<int64_t>(32, rows / (4 * kDecodeKeys)), parts = 1;
  while (parts * 2 <= most && parts * programs < 256)
    parts *= 2;
  return parts;
}

LogicalResult outlineCausal(AttnCausalOp op, OutlineContext &context) {
  int64_t batch = shapeOf(op.getQ())[0], tokens = shapeOf(op.getQ())[1];
  AttentionShape shape = attentionShape(op, context, op.getCache(), op.getRing(), tokens, &AttentionShape::heads);
  bool decode = tokens == 1;
  int64_t programs = shape.heads / shape.decodeHeads(); // of a token
  int64_t parts = decode && shape.cache && context.gpu ? decodeParts(programs * batch, shapeOf(op.getK())[1]) : 1;
  bool sinks = shape.sinks;
  shape.sinks &= parts == 1; // else what merges the parts adds them
  auto writeToken = [&](KernelBuilder &k) {
    writeDecode(k, shape, parts);
    // Many heads read the same latent keys: as many products as tensor cores are there for.
    if (context.gpu && shape.latent)
      shape.round(k);
  };
  std::string kernel =
      parts > 1 ? context.kernel(shape.kernelName("decode") + "_parts" + std::to_string(parts),
                                 {"group", "batch", "part"}, writeToken)
      : decode  ? context.kernel(shape.kernelName("decode"), {"group", "batch"}, writeToken)
                : context.kernel(shape.kernelName("causal"), {"rows", "head", "batch"}, [&](KernelBuilder &k) {
                   writeForward(k, shape);
                   if (shape.wide)
                     k.inBoxes();
                   shape.round(k);
                  });
  llvm::SmallVector<int64_t, 3> grid{programs, batch};
  if (parts > 1)
    grid.push_back(parts);
  if (!decode)
    grid = {ceilDiv(tokens, shape.ownRows()), shape.heads, batch};
  auto launch = context.launch(op, kernel, grid);
  attentionArguments(launch, op, shape);
  if (shape.sinks)
    launch.arg("sinks", op.getSinks());
  if (op.getCoordinate())
    launch.arg("coordinate", op.getCoordinate());
  if (parts == 1)
    launch.result("o", op.getO().getType()).result("lse", op.getLse().getType());
  else
    launch.result("o", RankedTensorType::get({parts, batch, shape.heads, shape.values}, shape.compute))
        .result("m_l", RankedTensorType::get({parts, 2, batch, shape.heads}, shape.compute));
  scoreArguments(launch, op, shape);
  if (!shape.cache)
    launch.index("keys", op.keyCount()).index("prefix", shape.prefix);
  auto made = launch.run();
  if (parts > 1) {
    AttentionShape all{shape.heads, shape.groups, shape.values, shape.values, shape.token, shape.compute};
    all.sinks = sinks;
    std::string merge = context.kernel(all.kernelName("decode_merge") + "_parts" + std::to_string(parts),
                                       {"head", "batch"}, [&](KernelBuilder &k) { writeDecodeMerge(k, all, parts); });
    auto whole = context.launch(op, merge, {shape.heads, batch});
    whole.arg("o_part", made[0]).arg("m_l", made[1]);
    if (sinks)
      whole.arg("sinks", op.getSinks());
    made = whole.result("o", op.getO().getType()).result("lse", op.getLse().getType()).run();
  }
  context.replace(op, made);
  return success();
}

LogicalResult outlineSinkGrad(AttnSinkGradOp op, OutlineContext &context) {
  Shape o = shapeOf(op.getO());
  Type token = tensorType(op.getO()).getElementType(), cotangent = tensorType(op.getDO()).getElementType();
  AttentionShape shape{o[2], o[2], o[3], o[3], token, computeType(token)};
  shape.gpu = context.gpu;
  shape.sinks = true;
  // As many programs as run at a time, each with whole blocks.
  int64_t R = shape.tileRows(), blocks = ceilDiv(o[1], R),
          programs = std::clamp<int64_t>(sumPrograms(context) / (o[2] * o[0]), 1, blocks),
          span = ceilDiv(blocks, programs) * R, count = ceilDiv(o[1], span);
  std::string kernel =
      context.kernel(shape.kernelName("sink_grad") + "_" + typeName(cotangent), {"head", "batch", "part"},
                     [&](KernelBuilder &k) { writeSinkGrad(k, shape, cotangent); });
  auto launch = context.launch(op, kernel, {o[2], o[0], count});
  launch.arg("sinks", op.getSinks()).arg("o", op.getO()).arg("lse", op.getLse()).arg("d_o", op.getDO());
  Value parts = launch.result("parts", RankedTensorType::get({count, o[0], o[2]}, shape.compute))
                    .index("span", span)
                    .run()
                    .front();
  Value sum = sumOverRows(op, context.view(op, parts, {count * o[0], o[2]}), context);
  CastOp rounded;
  if (sum.getType() != op.getDsinks().getType()) {
    rounded = CastOp::create(context.rewriter, op.getLoc(), op.getDsinks().getType(), sum);
    sum = rounded;
  }
  context.replace(op, sum);
  return rounded ? outlineRows(rounded.getOperation(), context) : success();
}

LogicalResult outlineMerge(AttnMergeOp op, OutlineContext &context) {
  Shape o = shapeOf(op.getO());
  Type token = tensorType(op.getO()).getElementType();
  AttentionShape shape{o[2], o[2], o[3], o[3], token, computeType(token)};
  shape.gpu = context.gpu;
  std::string kernel = context.kernel(shape.kernelName("merge"), {"rows", "head", "batch"},
                                      [&](KernelBuilder &k) { writeMerge(k, shape); });
  auto launch = context.launch(op, kernel, {ceilDiv(o[1], shape.tileRows()), o[2], o[0]});
  launch.arg("o", op.getO()).arg("lse", op.getLse());
  launch.arg("o_block", op.getOBlock()).arg("lse_block", op.getLseBlock());
  launch.result("o_both", op.getO().getType(), "o").result("lse_both", op.getLse().getType(), "lse");
  context.replace(op, launch.run());
  return success();
}

LogicalResult outlineAppend(AttnAppendOp op, OutlineContext &context) {
  Shape x = shapeOf(op.getX());
  Type element = tensorType(op.getX()).getElementType();
  std::string kernel = context.kernel(
      llvm::formatv("attn_append_g{0}_d{1}_{2}{3}", x[2], x[3], typeName(element), op.getRing() ? "_ring" : "").str(),
      {"token", "batch"}, [&](KernelBuilder &k) { writeAppend(k, element, x[2], x[3], op.getRing()); });
  auto launch = context.launch(op, kernel, {x[1], x[0]});
  launch.arg("cache", op.getCache()).arg("x", op.getX()).arg("documents", op.getDocuments());
  context.replace(op, launch.result("result", op.getResult().getType(), "cache").run());
  return success();
}

} // namespace

LogicalResult outlineAttention(Operation *op, OutlineContext &context) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](AttnCausalOp causal) { return outlineCausal(causal, context); })
      .Case([&](AttnCausalGradOp grad) { return outlineAttentionGrad(grad, context); })
      .Case([&](AttnSinkGradOp grad) { return outlineSinkGrad(grad, context); })
      .Case([&](AttnMergeOp merge) { return outlineMerge(merge, context); })
      .Case([&](AttnAppendOp append) { return outlineAppend(append, context); });
}

} // namespace braid
