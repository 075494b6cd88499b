//===- ConvKernels.cpp - short_conv and its gradient become launches ----------------------------------------------===//
//
//   y_t = sum_j w_j x_{t - s}, s = K - 1 - j, over the taps with t - s >= documents[t]; x_{-i} is row K - 1 - i of
//   `tail`. L = number of tokens that are not padding; new_tail = the K - 1 inputs before token L.
//
//   dx_u    = sum_j w_j dy_{u + s} [u >= documents[u + s]] + dnew_tail_{u - L + K - 1},  u >= -(K - 1); u < 0 gives
//   dtail dw_j    = sum over b, then t, of dy_t x_{t - s} [t - s >= documents[t]]
//
// Programs own (token rows, feature columns, batch); the first token rows also see the tail. dweight: a program per
// block of features walks all tokens, so its sum has one order. Rows whose taps all lie in one document and in the row
// of the batch, most of them, are plain sums of products: nothing is compared per element.
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
  int64_t weightColumns() const { return divisorUpTo(features, features >= 256 ? 64 : 16); }
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

/// dx and dtail: program (rows, columns, batch).
void writeGradInputs(KernelBuilder &k, const ConvShape &shape) {
  Conv conv(k, shape);
  Var weight = k.buffer("weight", shape.weight, {shape.features, shape.taps}), documents = conv.documents();
  Var dy = conv.tokens("dy"), dNewTail = conv.tail("dnew_tail"), dx = conv.tokens("dx"), dTail = conv.tail("dtail");
  int64_t R = shape.rows(), F = shape.columns(), halo = shape.halo();
  Var u0 = k.program(0) * static_cast<double>(R), column = k.program(1) * static_cast<double>(F), b = k.program(2);
  Vars w = conv.weights(weight, column, F);
  // Cotangent of the inputs [first, first + count); first may be negative.
  auto cotangent = [&](Var first, int64_t count) {
    Var out;
    for (int64_t j = 0; j < shape.taps; ++j) {
      Var target = first + static_cast<double>(halo - j);
      Var d = conv.load(dy, b, target, column, count, F), document = conv.documentRows(documents, b, target, count);
      Var term = conv.inDocument(d, document, first) * expand(w[j], 0, count);
      out = out ? out + term : term;
    }
    if (halo == 0)
      return out;
    Var inTail = first + static_cast<double>(halo) - tokensOf(k, documents, b);
    return out + conv.loadTail(dNewTail, b, inTail, column, count, F);
  };
  // One document that goes on for another halo: no cotangent comes through the new tail either.
  Var plain = conv.inOneDocument(documents, b, u0, u0 + static_cast<double>(R + halo - 1));
  auto sums = [&] {
    Var out;
    for (int64_t j = 0; j < shape.taps; ++j) {
      Var term = conv.inner(dy, b, u0 + static_cast<double>(halo - j), column, R, F) * expand(w[j], 0, R);
      out = out ? out + term : term;
    }
    k.store(cast(out, shape.token), dx, {b, u0, column});
    return Vars();
  };
  k.when(plain, sums, [&] {
    k.store(cast(cotangent(u0, R), shape.token), dx, {b, u0, column}, {.limit = k.size(dx, 1)});
    return Vars();
  });
  if (halo == 0)
    return;
  k.when(eq(u0, 0.0), [&] { k.store(cast(cotangent(k.number(-halo), halo), shape.tail), dTail, {b, 0, column}); });
}

/// dweight: program (columns).
void writeGradWeight(KernelBuilder &k, const ConvShape &shape, Type result) {
  Conv conv(k, shape);
  Var x = conv.tokens("x"), documents = conv.documents(), tail = conv.tail("tail"), dy = conv.tokens("dy");
  Var dWeight = k.buffer("dweight", result, {shape.features, shape.taps});
  int64_t R = shape.rows(), F = shape.weightColumns(), halo = shape.halo();
  Var column = k.program(0) * static_cast<double>(F), tokens = k.size(x, 1);
  Vars sums(shape.taps, k.tile({F}, shape.compute));
  auto add = [&](Var b, Var t0, llvm::ArrayRef<Var> now, bool withTail) {
    Var d = conv.load(dy, b, t0, column, R, F), document = conv.documentRows(documents, b, t0, R);
    Vars taps; // all of them before they are added: one loop over the rows
    for (int64_t j = 0; j < shape.taps; ++j) {
      int64_t shift = halo - j;
      Var source = conv.inputs(x, tail, b, t0, shift, column, R, F, withTail);
      taps.push_back(sum(conv.inDocument(source, document, t0 - static_cast<double>(shift)) * d, 0));
    }
    for (int64_t j = 0; j < shape.taps; ++j)
      taps[j] = now[j] + taps[j];
    return taps;
  };
  sums = k.loop(0, k.size(x, 0), 1, sums, [&](Var b, llvm::ArrayRef<Var> now) -> Vars {
    Vars first = add(b, k.number(0), now, /*withTail=*/true);
    return k.loop(R, tokens, R, first, [&](Var t0, llvm::ArrayRef<Var> inner) {
      Var plain = conv.inOneDocument(documents, b, t0 - static_cast<double>(halo), t0 + static_cast<double>(R - 1));
      return k.when(
          plain,
          [&] {
            Var d = conv.inner(dy, b, t0, column, R, F);
            Vars taps;
            for (int64_t j = 0; j < shape.taps; ++j)
              taps.push_back(sum(conv.inner(x, b, t0 - static_cast<double>(halo - j), column, R, F) * d, 0));
            for (int64_t j = 0; j < shape.taps; ++j)
              taps[j] = inner[j] + taps[j];
            return taps;
          },
          [&] { return add(b, t0, inner, /*withTail=*/false); });
    });
  });
  Vars columns;
  for (Var s : sums)
    columns.push_back(reshape(s, {F, 1}));
  k.store(cast(concat(columns), result), dWeight, {column, 0});
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
  Type result = tensorType(op.getDweight()).getElementType();
  std::string inputs = context.kernel(shape.kernelName("short_conv_grad_x"), {"rows", "columns", "batch"},
                                      [&](KernelBuilder &k) { writeGradInputs(k, shape); });
  auto first = context.launch(op, inputs, {ceilDiv(x[1], shape.rows()), shape.features / shape.columns(), x[0]});
  first.arg("weight", op.getWeight())
      .arg("documents", op.getDocuments())
      .arg("dy", dy)
      .arg("dnew_tail", op.getDnewTail());
  auto dInputs = first.result("dx", channelsType(op.getDx(), in)).result("dtail", op.getDtail().getType()).run();
  std::string weights = context.kernel(shape.kernelName("short_conv_grad_weight"), {"columns"},
                                       [&](KernelBuilder &k) { writeGradWeight(k, shape, result); });
  auto second = context.launch(op, weights, {shape.features / shape.weightColumns()});
  second.arg("x", in).arg("documents", op.getDocuments()).arg("tail", op.getTail()).arg("dy", dy);
  Value dWeight = second.result("dweight", op.getDweight().getType()).run()[0];
  context.replace(op, {dInputs[0], dWeight, dInputs[1]});
  return success();
}

} // namespace

LogicalResult outlineConvolution(Operation *op, OutlineContext &context) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](ShortConvOp conv) { return outlineForward(conv, context); })
      .Case([&](ShortConvGradOp grad) { return outlineGrad(grad, context); });
}

} // namespace braid
