//===- ConvKernels.cpp - short_conv and its gradient become launches ----------------------------------------------===//
//
//   y_t = sum_j w_j x_{t - s}, s = K - 1 - j, over the taps with t - s >= documents[t]; x_{-i} is row K - 1 - i of
//   `tail`. L = number of tokens that are not padding; new_tail = the K - 1 inputs before token L.
//
//   dx_u    = sum_j w_j dy_{u + s} [u >= documents[u + s]] + dnew_tail_{u - L + K - 1},  u >= -(K - 1); u < 0 gives
//             dtail
//   dw_j    = sum over b, u of x_u dy_{u + s} [u >= documents[u + s]]
//
// Programs own (token rows, feature columns, batch); the first token rows also see the tail. Rows whose taps all lie in one document and in the row
// of the batch, most of them, are plain sums of products: nothing is compared per element. dx and dweight read the same of dy: one kernel reads it
// once, and x, and has the sums of parts of the tokens, which are added up in their order.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/OutlineFamilies.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {

namespace {

struct ConvShape {
  int64_t features, taps;
  Type token, weight, tail, compute;
  int64_t halo() const { return taps - 1; }
  int64_t rows() const { return std::max<int64_t>(32, halo()); } ///< only the first rows may reach the tail
  int64_t columns() const { return divisorUpTo(features, 64); }
  /// Of a block of the gradient. Threads of a GPU hold a sum for each of their columns and taps: 8 columns, 4 taps, 32 sums.
  int64_t gradRows(bool gpu) const {
    int64_t elements = 1024 * 4 / std::max<int64_t>(llvm::PowerOf2Ceil(taps), 4);
    return gpu ? std::clamp<int64_t>(llvm::bit_floor<uint64_t>(elements / columns()), 1, 32) : rows();
  }
  std::string kernelName(llvm::StringRef what) const {
    std::string name = llvm::formatv("{0}_d{1}_k{2}_{3}", what, features, taps, typeName(token));
    if (weight != token)
      name += "_w" + typeName(weight);
    return tail != token ? name + "_t" + typeName(tail) : name;
  }
};

class Conv {
public:
  Conv(KernelBuilder &k, const ConvShape &shape) : k(k), shape(shape) {}

  Var tokens(llvm::StringRef name) {
    return k.buffer(name, shape.token, {{"row"}, {"token"}, {"feature", shape.features}});
  }
  Var tail(llvm::StringRef name) { return k.buffer(name, shape.tail, {kDynamic, shape.halo(), shape.features}); }
  Var documents() { return k.buffer("documents", k.i32(), {kDynamic, kDynamic}); }

  /// Rows [first, first + count) of a token buffer; rows outside of [0, T) are 0.
  Var load(Var buffer, Var b, Var first, Var column, int64_t count, int64_t columns) {
    return cast(k.load(buffer, {b, first, column}, {count, columns}, {.limit = k.size(buffer, 1)}), shape.compute);
  }
  /// Rows [first, ..) of a tail buffer; rows outside of [0, K - 1) are 0.
  Var loadTail(Var buffer, Var b, Var first, Var column, int64_t count, int64_t columns) {
    return cast(k.load(buffer, {b, first, column}, {count, columns}, {.limit = k.number(shape.halo())}), shape.compute);
  }
  /// Inputs at tokens [first - shift, ..), from x and, where `withTail`, from the tail.
  Var inputs(Var x, Var tail, Var b, Var first, int64_t shift, Var column, int64_t count, int64_t columns,
             bool withTail) {
    Var at = first - static_cast<double>(shift);
    Var rows = load(x, b, at, column, count, columns);
    if (!withTail || shift == 0 || shape.halo() == 0)
      return rows;
    return rows + loadTail(tail, b, at + static_cast<double>(shape.halo()), column, count, columns);
  }
  /// x where the tap of row i, at token source + i, belongs to the document; `document`: i32 per row. 0 elsewhere.
  Var inDocument(Var x, Var document, Var source) {
    Var token = k.iota({x.dim(0)}, 0) + cast(source, k.i32());
    return select(expand(ge(token, document), 1, x.dim(1)), x, 0.0);
  }
  /// Whether the taps [first - halo, last] of tokens up to `last` belong to one document: starts ascend, and padding
  /// has the largest. `last` may be past the end; then they do not.
  Var inOneDocument(Var documents, Var b, Var first, Var last) {
    Var tokens = k.size(documents, 1), start = k.at(documents, {b, min(last, tokens - 1.0)});
    return both(lt(last, tokens), le(cast(start, k.builder.getIndexType()), first));
  }
  /// The rows of a buffer where all of them exist.
  Var inner(Var buffer, Var b, Var first, Var column, int64_t count, int64_t columns) {
    return cast(k.load(buffer, {b, first, column}, {count, columns}), shape.compute);
  }
  Var documentRows(Var documents, Var b, Var first, int64_t count) {
    return k.load(documents, {b, first}, {count}, {.limit = k.size(documents, 1)});
  }
  /// Weights of the taps: K tiles [columns].
  Vars weights(Var weight, Var column, int64_t columns) {
    Var all = transpose(cast(k.load(weight, {column, 0}, {columns, shape.taps}), shape.compute));
    Vars out;
    for (int64_t j = 0; j < shape.taps; ++j)
      out.push_back(row(all, k.number(j)));
    return out;
  }
  KernelBuilder &k;
  const ConvShape &shape;
};

/// Program (rows, columns, batch).
void writeForward(KernelBuilder &k, const ConvShape &shape) {
  Conv conv(k, shape);
  Var x = conv.tokens("x"), weight = k.buffer("weight", shape.weight, {shape.features, shape.taps});
  Var documents = conv.documents(), tail = conv.tail("tail"), y = conv.tokens("y"), newTail = conv.tail("new_tail");
  int64_t R = shape.rows(), F = shape.columns(), halo = shape.halo();
  Var t0 = k.program(0) * static_cast<double>(R), column = k.program(1) * static_cast<double>(F), b = k.program(2);
  Vars w = conv.weights(weight, column, F);
  Var document = conv.documentRows(documents, b, t0, R);
  auto write = [&](bool withTail) {
    Var out;
    for (int64_t j = 0; j < shape.taps; ++j) {
      int64_t shift = halo - j;
      Var source = conv.inputs(x, tail, b, t0, shift, column, R, F, withTail);
      Var term = conv.inDocument(source, document, t0 - static_cast<double>(shift)) * expand(w[j], 0, R);
      out = out ? out + term : term;
    }
    k.store(cast(out, shape.token), y, {b, t0, column}, {.limit = k.size(y, 1)});
  };
  k.when(gt(t0, 0.0), [&] {
    Var plain = conv.inOneDocument(documents, b, t0 - static_cast<double>(halo), t0 + static_cast<double>(R - 1));
    auto sums = [&] {
      Var out;
      for (int64_t j = 0; j < shape.taps; ++j) {
        Var term = conv.inner(x, b, t0 - static_cast<double>(halo - j), column, R, F) * expand(w[j], 0, R);
        out = out ? out + term : term;
      }
      k.store(cast(out, shape.token), y, {b, t0, column});
      return Vars();
    };
    k.when(plain, sums, [&] {
      write(false);
      return Vars();
    });
  });
  k.when(eq(t0, 0.0), [&] {
    write(true);
    if (halo == 0)
      return;
    // Positions [L - (K - 1), L): row i of the new tail is row L + i of the old one, or x_{L - (K - 1) + i}.
    Var length = tokensOf(k, documents, b);
    Var last = k.load(x, {b, length - static_cast<double>(halo), column}, {halo, F}, {.limit = length});
    Var kept = conv.loadTail(tail, b, length, column, halo, F);
    k.store(cast(cast(last, shape.compute) + kept, shape.tail), newTail, {b, 0, column});
  });
}

/// dx, dtail and sums for dweight: program (columns, batch, part of the tokens). The tail is the last part. Rows that dy, or the new tail, may end
/// with come behind the others of a part.
void writeGrad(KernelBuilder &k, const ConvShape &shape, bool gpu) {
  Conv conv(k, shape);
  Var x = conv.tokens("x"), weight = k.buffer("weight", shape.weight, {shape.features, shape.taps});
  Var documents = conv.documents(), tail = conv.tail("tail"), dy = conv.tokens("dy");
  Var dNewTail = conv.tail("dnew_tail"), dx = conv.tokens("dx"), dTail = conv.tail("dtail");
  Var parts = k.buffer("parts", shape.compute, {kDynamic, kDynamic, shape.features, shape.taps});
  Var span = k.index("span");
  int64_t F = shape.columns(), R = shape.gradRows(gpu), halo = shape.halo();
  Var column = k.program(0) * static_cast<double>(F), b = k.program(1), part = k.program(2);
  Vars w = conv.weights(weight, column, F);
  Var tokens = k.size(x, 1), length = tokensOf(k, documents, b), first = part * span;
  enum class At { oneDocument, inside, end };
  // dy of those that tap j takes the inputs [u, u + count) to; u may be negative.
  auto targets = [&](Var u, int64_t count, At at) {
    Vars ds;
    for (int64_t j = 0; j < shape.taps; ++j) {
      Var to = u + static_cast<double>(halo - j);
      Var d = at == At::end ? conv.load(dy, b, to, column, count, F) : conv.inner(dy, b, to, column, count, F);
      if (at != At::oneDocument)
        d = conv.inDocument(d, conv.documentRows(documents, b, to, count), u);
      ds.push_back(d);
    }
    return ds;
  };
  auto cotangent = [&](ArrayRef<Var> ds, Var u, int64_t count, At at) {
    Var out;
    for (auto [d, tap] : llvm::zip_equal(ds, w)) {
      Var term = d * expand(tap, 0, count);
      out = out ? out + term : term;
    }
    if (halo == 0 || at != At::end)
      return out;
    return out + conv.loadTail(dNewTail, b, u + static_cast<double>(halo) - length, column, count, F);
  };
  auto storeSums = [&](ArrayRef<Var> sums) {
    Vars columns;
    for (Var s : sums)
      columns.push_back(reshape(s, {F, 1}));
    k.store(concat(columns), parts, {part, b, column, 0});
  };
  if (halo > 0)
    k.when(ge(first, tokens), [&] {
      Vars ds = targets(k.number(-halo), halo, At::end);
      k.store(cast(cotangent(ds, k.number(-halo), halo, At::end), shape.tail), dTail, {b, 0, column});
      Var source = conv.loadTail(tail, b, k.number(0), column, halo, F);
      storeSums(llvm::map_to_vector(ds, [&](Var d) { return sum(d * source, 0); }));
    });
  k.when(lt(first, tokens), [&] {
    Var last = min(first + span, tokens);
    Var whole = max(min(last, length - static_cast<double>(halo)) - first, 0.0) / static_cast<double>(R);
    Var end = first + whole * static_cast<double>(R);
    auto block = [&](Var u, ArrayRef<Var> now, int64_t count, At at) {
      Vars ds = targets(u, count, at);
      Var out = cast(cotangent(ds, u, count, at), shape.token);
      k.store(out, dx, {b, u, column}, {.limit = at == At::end ? tokens : Var()});
      // A CPU reads again what its caches have, or tiles for both formulas would be written; each thread of a GPU adds up elements of its own.
      if (!gpu)
        ds = targets(u, count, at);
      Var source = at == At::end ? conv.load(x, b, u, column, count, F) : conv.inner(x, b, u, column, count, F);
      Vars sums; // all of them before they are added: one loop over the rows
      for (Var d : ds)
        sums.push_back(gpu ? d * source : sum(d * source, 0));
      for (auto [total, before] : llvm::zip_equal(sums, now))
        total = before + total;
      return sums;
    };
    auto zeros = [&](int64_t count) {
      return Vars(shape.taps, gpu ? k.tile({count, F}, shape.compute) : k.tile({F}, shape.compute));
    };
    Vars sums = k.loop(first, end, R, zeros(R), [&](Var u, ArrayRef<Var> now) {
      if (gpu)
        return block(u, now, R, At::inside);
      Var plain = conv.inOneDocument(documents, b, u, u + static_cast<double>(R + halo - 1));
      return k.when(
          plain, [&] { return block(u, now, R, At::oneDocument); }, [&] { return block(u, now, R, At::inside); });
    });
    // Few rows at a time, or they would take the most registers. Behind the tokens nothing comes to padding.
    int64_t few = gpu ? std::max<int64_t>(R / 4, 1) : R;
    Var blocks = (max(min(last, length) - end, 0.0) + static_cast<double>(few - 1)) / static_cast<double>(few);
    Var padding = end + blocks * static_cast<double>(few);
    Vars behind = k.loop(end, padding, few, gpu ? zeros(few) : sums,
                         [&](Var u, ArrayRef<Var> now) { return block(u, now, few, At::end); });
    k.loop(padding, last, R,
           [&](Var u) { k.store(k.tile({R, F}, shape.token), dx, {b, u, column}, {.limit = tokens}); });
    for (auto [total, more] : llvm::zip_equal(sums, behind))
      total = gpu ? sum(total, 0) + sum(more, 0) : more;
    storeSums(sums);
  });
}

/// Features may come as heads ([B, T, H, K]); the kernels see channels [B, T, D].
Value channels(OutlineContext &context, Operation *op, Value v) {
  return context.view(op, v, {shapeOf(v)[0], shapeOf(v)[1], product(shapeOf(v)) / (shapeOf(v)[0] * shapeOf(v)[1])});
}
RankedTensorType channelsType(Value v, Value like) {
  return RankedTensorType::get(shapeOf(like), tensorType(v).getElementType());
}

ConvShape shapeOfOp(Value x, Value weight, Value tail) {
  Type token = tensorType(x).getElementType();
  return {shapeOf(weight)[0],
          shapeOf(weight)[1],
          token,
          tensorType(weight).getElementType(),
          tensorType(tail).getElementType(),
          computeType(token)};
}

LogicalResult outlineForward(ShortConvOp op, OutlineContext &context) {
  ConvShape shape = shapeOfOp(op.getX(), op.getWeight(), op.getTail());
  Value in = channels(context, op, op.getX());
  Shape x = shapeOf(in);
  std::string kernel = context.kernel(shape.kernelName("short_conv"), {"rows", "columns", "batch"},
                                      [&](KernelBuilder &k) { writeForward(k, shape); });
  auto launch = context.launch(op, kernel, {ceilDiv(x[1], shape.rows()), shape.features / shape.columns(), x[0]});
  launch.arg("x", in).arg("weight", op.getWeight()).arg("documents", op.getDocuments()).arg("tail", op.getTail());
  context.replace(op,
                  launch.result("y", channelsType(op.getY(), in)).result("new_tail", op.getNewTail().getType()).run());
  return success();
}

LogicalResult outlineGrad(ShortConvGradOp op, OutlineContext &context) {
  ConvShape shape = shapeOfOp(op.getX(), op.getWeight(), op.getTail());
  Value in = channels(context, op, op.getX()), dy = channels(context, op, op.getDy());
  Shape x = shapeOf(in);
  int64_t rows = shape.gradRows(context.gpu), blocks = ceilDiv(x[1], rows), columns = shape.features / shape.columns();
  int64_t programs = std::clamp<int64_t>(rowSumPrograms(context) / (columns * x[0]), 1, blocks);
  int64_t span = ceilDiv(blocks, programs) * rows, parts = ceilDiv(x[1], span) + (shape.halo() > 0 ? 1 : 0);
  std::string kernel = context.kernel(shape.kernelName("short_conv_grad"), {"columns", "batch", "part"},
                                      [&](KernelBuilder &k) { writeGrad(k, shape, context.gpu); });
  auto launch = context.launch(op, kernel, {columns, x[0], parts});
  launch.arg("x", in).arg("weight", op.getWeight()).arg("documents", op.getDocuments()).arg("tail", op.getTail());
  launch.arg("dy", dy).arg("dnew_tail", op.getDnewTail());
  launch.result("dx", channelsType(op.getDx(), in)).result("dtail", op.getDtail().getType());
  launch.result("parts", RankedTensorType::get({parts, x[0], shape.features, shape.taps}, shape.compute));
  SmallVector<Value> results = launch.index("span", span).run();
  Value each = context.view(op, results[2], {parts * x[0], shape.features, shape.taps});
  Value dWeight = sumOverRows(op, each, context);
  CastOp rounded;
  if (dWeight.getType() != op.getDweight().getType()) {
    rounded = CastOp::create(context.rewriter, op.getLoc(), op.getDweight().getType(), dWeight);
    dWeight = rounded;
  }
  context.replace(op, {results[0], dWeight, results[1]});
  return rounded ? outlineRows(rounded.getOperation(), context) : success();
}

} // namespace

LogicalResult outlineConvolution(Operation *op, OutlineContext &context) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](ShortConvOp conv) { return outlineForward(conv, context); })
      .Case([&](ShortConvGradOp grad) { return outlineGrad(grad, context); });
}

} // namespace braid
