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
// Row-wise ops that alone read y (analysis/ConvEnds) are made of it before it is stored. A gradient's kernel makes y again, of the inputs that it reads
// anyway, and dy of the cotangent that comes first. Both are rounded where they would have been stored, so numbers are the same.
// A norm of the channels of each head is added up by the lanes that have them, in another order than where it stands alone.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/analysis/ConvEnds.h"
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/RowsCluster.h"

#include "dialects/braid/TileEmitter.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {

namespace {

/// Tokens that a thread of a GPU walks along at least.
constexpr int64_t kLeastSpan = 16;

struct ConvShape {
  int64_t features, taps;
  Type token, weight, tail, compute;
  int64_t halo() const { return taps - 1; }
  int64_t rows() const { return std::max<int64_t>(32, halo()); } ///< only the first rows may reach the tail
  /// Whole heads, where these are added up.
  int64_t columns(int64_t head = 1) const {
    return head * divisorUpTo(features / head, std::max<int64_t>(64 / head, 1));
  }
  /// Where a thread of a GPU has columns of its own.
  int64_t walkColumns() const {
    int64_t each = convChannelsEach(features, taps);
    return each > 1 ? kConvThreads * each : divisorUpTo(features, kConvThreads);
  }
  std::string kernelName(llvm::StringRef what) const {
    std::string name = llvm::formatv("{0}_d{1}_k{2}_{3}", what, features, taps, typeName(token));
    if (weight != token)
      name += "_w" + typeName(weight);
    return tail != token ? name + "_t" + typeName(tail) : name;
  }
};

/// Row-wise ops beside a convolution, `to` of them from its y and, in a gradient, from the cotangent that comes first.
struct End {
  SmallVector<Operation *> ops;
  Value y, cotangent, to;
  SmallVector<Value> wholes = {}; ///< what they read of features
  SmallVector<RowsGradOp> sums = {};
  int64_t head = 1; ///< features that a norm adds up; 1: all of it is element by element

  void collect() {
    llvm::SetVector<Value> found;
    for (Operation *op : ops)
      for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
        if (rowsOperandKind(op, i) != TokenKind::token)
          found.insert(operand);
        else if (operand != y && !llvm::is_contained(ops, operand.getDefiningOp()))
          cotangent = operand;
      }
    wholes = found.takeVector();
    for (Operation *op : ops) {
      auto grad = dyn_cast<RowsGradOp>(op);
      if (isa<L2NormOp>(op) || (grad && grad.getOp() == L2NormOp::getOperationName()))
        head = shapeOf(y).back();
    }
  }
  std::string name() const {
    std::string text =
        rowsText(ops, to, [&](Value) { return head > 1 ? SmallVector<int64_t>{head} : SmallVector<int64_t>(); });
    return "_" + rowsName(ops, text) + (sums.empty() ? "" : "_sum");
  }
};

struct Conv {
  Conv(KernelBuilder &k, const ConvShape &shape, const End *end = nullptr) : k(k), shape(shape), end(end) {
    if (end)
      for (size_t i = 0; i < end->wholes.size(); ++i)
        wholes.push_back(
            k.buffer("w" + std::to_string(i), tensorType(end->wholes[i]).getElementType(), {shape.features}));
  }

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
  /// Of a token that exists: nothing is compared, and what several taps ask of one token is read once.
  Var documentRow(Var documents, Var b, Var t) { return k.load(documents, {b, t}, {1}); }
  /// Weights of the taps: K tiles [columns]; with them what formulas behind read of features.
  Vars weights(Var weight, Var column, int64_t columns) {
    Var all = transpose(cast(k.load(weight, {column, 0}, {columns, shape.taps}), shape.compute));
    Vars out;
    for (int64_t j = 0; j < shape.taps; ++j)
      out.push_back(row(all, k.number(j)));
    for (Var whole : wholes) {
      Var tile = cast(k.load(whole, {column}, {columns}), shape.compute);
      wholeTiles.push_back(end->head > 1 ? reshape(tile, {columns / end->head, end->head}) : tile);
    }
    return out;
  }
  /// Positions [L - (K - 1), L): row i of the new tail is row L + i of the old one, or x_{L - (K - 1) + i}.
  void keepTail(Var x, Var documents, Var tail, Var newTail, Var b, Var column, int64_t columns) {
    Var length = tokensOf(k, documents, b);
    Var last =
        k.load(x, {b, length - static_cast<double>(shape.halo()), column}, {shape.halo(), columns}, {.limit = length});
    Var kept = loadTail(tail, b, length, column, shape.halo(), columns);
    k.store(cast(cast(last, shape.compute) + kept, shape.tail), newTail, {b, 0, column});
  }
  /// What the ops behind the sum of taps make of it, and, in a gradient, of a cotangent: rounded as it would be stored. Without any the sum, or the cotangent.
  Var ended(Var y, Var cotangent = {}) {
    if (!end)
      return cotangent ? cotangent : y;
    llvm::DenseMap<Value, Value> known;
    int64_t rows = y.dim(0), columns = y.dim(1);
    auto asStored = [&](Var v) {
      v = cast(v, shape.token);
      return end->head > 1 ? reshape(v, {rows, columns / end->head, end->head}) : v;
    };
    known[end->y] = asStored(y);
    if (cotangent)
      known[end->cotangent] = asStored(cotangent);
    for (auto [whole, tile] : llvm::zip_equal(end->wholes, wholeTiles))
      known[whole] = tile;
    TileEmitter e(k.builder, k.builder.getLoc(), rows, {});
    emitted &= succeeded(emitRowsOps(end->ops, e, known));
    if (!emitted)
      return y;
    Var made = cast(k.wrap(known.lookup(end->to)), shape.compute);
    return end->head > 1 ? reshape(made, {rows, columns}) : made;
  }
  /// Inputs of tokens first - 1, first - 2, .., as far as taps reach.
  Vars window(Var x, Var tail, Var b, Var first, Var column, int64_t columns) {
    Vars before;
    for (int64_t s = 1; s <= shape.halo(); ++s) {
      Var at = first - static_cast<double>(s);
      Var row = min(max(at + static_cast<double>(shape.halo()), 0.0), shape.halo() - 1.0);
      before.push_back(select(ge(at, 0.0), inner(x, b, min(max(at, 0.0), k.size(x, 1) - 1.0), column, 1, columns),
                              inner(tail, b, row, column, 1, columns)));
    }
    return before;
  }
  /// The sums of taps of `count` tokens from t on, from the inputs of t, t - 1, .. `padded`: whether one may be padding; else its own input is in its document.
  Var taps(ArrayRef<Var> inputs, ArrayRef<Var> w, Var document, Var t, int64_t count, bool padded = true) {
    Var out;
    for (int64_t s = shape.halo(); s >= 0; --s) {
      Var input = s > 0 || padded ? inDocument(inputs[s], document, t - static_cast<double>(s)) : inputs[s];
      Var term = input * expand(w[shape.halo() - s], 0, count);
      out = out ? out + term : term;
    }
    return out;
  }
  KernelBuilder &k;
  const ConvShape &shape;
  const End *end;
  Vars wholes = {}, wholeTiles = {};
  bool emitted = true;
};

/// Program (rows, columns, batch).
bool writeForward(KernelBuilder &k, const ConvShape &shape, const End *end) {
  Conv conv(k, shape, end);
  Var x = conv.tokens("x"), weight = k.buffer("weight", shape.weight, {shape.features, shape.taps});
  Var documents = conv.documents(), tail = conv.tail("tail"), y = conv.tokens("y"), newTail = conv.tail("new_tail");
  int64_t R = shape.rows(), F = shape.columns(end ? end->head : 1), halo = shape.halo();
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
    k.store(cast(conv.ended(out), shape.token), y, {b, t0, column}, {.limit = k.size(y, 1)});
  };
  k.when(gt(t0, 0.0), [&] {
    Var plain = conv.inOneDocument(documents, b, t0 - static_cast<double>(halo), t0 + static_cast<double>(R - 1));
    auto sums = [&] {
      Var out;
      for (int64_t j = 0; j < shape.taps; ++j) {
        Var term = conv.inner(x, b, t0 - static_cast<double>(halo - j), column, R, F) * expand(w[j], 0, R);
        out = out ? out + term : term;
      }
      k.store(cast(conv.ended(out), shape.token), y, {b, t0, column});
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
    conv.keepTail(x, documents, tail, newTail, b, column, F);
  });
  return conv.emitted;
}

/// The same where each thread goes along the tokens with columns of its own (ConvGrad::writeWalk): program (columns, batch, part of the tokens); the new
/// tail is the last part.
bool writeForwardWalk(KernelBuilder &k, const ConvShape &shape, const End *end) {
  Conv conv(k, shape, end);
  Var x = conv.tokens("x"), weight = k.buffer("weight", shape.weight, {shape.features, shape.taps});
  Var documents = conv.documents(), tail = conv.tail("tail"), y = conv.tokens("y"), newTail = conv.tail("new_tail");
  Var span = k.index("span");
  int64_t F = shape.walkColumns();
  Var column = k.program(0) * static_cast<double>(F), b = k.program(1), first = k.program(2) * span;
  Var tokens = k.size(x, 1), last = min(first + span, tokens);
  Vars w = conv.weights(weight, column, F);
  k.when(ge(first, tokens), [&] { conv.keepTail(x, documents, tail, newTail, b, column, F); });
  k.loop(first, last, 1, conv.window(x, tail, b, first, column, F), [&](Var t, ArrayRef<Var> now) {
    Vars inputs = {conv.inner(x, b, t, column, 1, F)};
    llvm::append_range(inputs, now);
    Var out = conv.taps(inputs, w, conv.documentRow(documents, b, t), t, 1);
    k.store(cast(conv.ended(out), shape.token), y, {b, t, column});
    inputs.pop_back();
    return inputs;
  });
  return conv.emitted;
}

/// dx, dtail and sums for dweight: program (columns, batch, part of the tokens). The tail is the last part.
class ConvGrad : public Conv {
public:
  ConvGrad(KernelBuilder &k, const ConvShape &shape, int64_t columns, const End *end)
      : Conv(k, shape, end), F(columns) {
    x = tokens("x"), weight = k.buffer("weight", shape.weight, {shape.features, shape.taps});
    starts = documents(), before = tail("tail"), dy = tokens("dy");
    dNewTail = tail("dnew_tail"), dx = tokens("dx"), dTail = tail("dtail");
    parts = k.buffer("parts", shape.compute, {kDynamic, kDynamic, shape.features, shape.taps});
    if (sumsUp())
      biasParts = k.buffer("bias_parts", shape.compute, {kDynamic, kDynamic, shape.features});
    Var span = k.index("span");
    column = k.program(0) * static_cast<double>(F), b = k.program(1), part = k.program(2);
    w = weights(weight, column, F);
    all = k.size(x, 1), length = tokensOf(k, starts, b), first = part * span, last = min(first + span, all);
  }
  void write(bool walks) {
    if (halo > 0)
      k.when(ge(first, all), [&] { walks ? writeTailWalk() : writeTail(); });
    k.when(lt(first, all), [&] { walks ? writeWalk() : writeBlocks(); });
  }

private:
  enum class At { oneDocument, inside, end };
  enum class Walked { inside, end, tail };
  bool sumsUp() const { return end && !end->sums.empty(); }
  Var rowsOfEnd(Var to, int64_t count);
  Vars targets(Var u, int64_t count, At at);
  Var cotangent(ArrayRef<Var> ds, Var u, int64_t count, At at);
  void storeSums(ArrayRef<Var> sums);
  void writeTail();
  void writeBlocks();
  /// Where y is made again.
  int64_t walkedInputs() const { return end ? halo : 0; }
  Var tokenRow(Var buffer, Var t) { return inner(buffer, b, t, column, 1, F); }
  Vars made(Var t, ArrayRef<Var> now, bool atEnd);
  Vars walk(Var from, Var to, ArrayRef<Var> carried, Walked where);
  Vars walkBegin(Var from);
  void storeWalked(ArrayRef<Var> carried);
  void writeTailWalk();
  void writeWalk();

  int64_t F, halo = shape.halo();
  Var x, weight, starts, before, dy, dNewTail, dx, dTail, parts, biasParts;
  Var column, b, part, all, length, first, last;
  Vars w;
};

/// dy of tokens that may be none.
Var ConvGrad::rowsOfEnd(Var to, int64_t count) {
  Var rows = load(dy, b, to, column, count, F);
  if (!end)
    return rows;
  Vars sources;
  for (int64_t s = 0; s <= halo; ++s)
    sources.push_back(inputs(x, before, b, to, s, column, count, F, /*withTail=*/true));
  return ended(taps(sources, w, documentRows(starts, b, to, count), to, count), rows);
}

/// dy of those that tap j takes the inputs [u, u + count) to; u may be negative.
Vars ConvGrad::targets(Var u, int64_t count, At at) {
  Vars ds;
  for (int64_t j = 0; j < shape.taps; ++j) {
    Var to = u + static_cast<double>(halo - j);
    Var d = at == At::end ? rowsOfEnd(to, count) : inner(dy, b, to, column, count, F);
    ds.push_back(at == At::oneDocument ? d : inDocument(d, documentRows(starts, b, to, count), u));
  }
  return ds;
}

Var ConvGrad::cotangent(ArrayRef<Var> ds, Var u, int64_t count, At at) {
  Var out;
  for (auto [d, tap] : llvm::zip_equal(ds, w)) {
    Var term = d * expand(tap, 0, count);
    out = out ? out + term : term;
  }
  if (halo == 0 || at != At::end)
    return out;
  return out + loadTail(dNewTail, b, u + static_cast<double>(halo) - length, column, count, F);
}

void ConvGrad::storeSums(ArrayRef<Var> sums) {
  Vars columns;
  for (Var s : sums)
    columns.push_back(reshape(s, {F, 1}));
  k.store(concat(columns), parts, {part, b, column, 0});
}

void ConvGrad::writeTail() {
  Vars ds = targets(k.number(-halo), halo, At::end);
  k.store(cast(cotangent(ds, k.number(-halo), halo, At::end), shape.tail), dTail, {b, 0, column});
  Var source = loadTail(before, b, k.number(0), column, halo, F);
  storeSums(llvm::map_to_vector(ds, [&](Var d) { return sum(d * source, 0); }));
  if (sumsUp())
    k.store(k.tile({F}, shape.compute), biasParts, {part, b, column});
}

/// Rows that dy, or the new tail, may end with come behind the others of a part.
void ConvGrad::writeBlocks() {
  int64_t R = shape.rows();
  Var whole = max(min(last, length - static_cast<double>(halo)) - first, 0.0) / static_cast<double>(R);
  Var end = first + whole * static_cast<double>(R);
  auto block = [&](Var u, ArrayRef<Var> now, At at) {
    k.store(cast(cotangent(targets(u, R, at), u, R, at), shape.token), dx, {b, u, column},
            {.limit = at == At::end ? all : Var()});
    // Read again: the caches have it, while tiles for both formulas would be written.
    Vars sums = targets(u, R, at); // all of them before they are added: one loop over the rows
    Var source = at == At::end ? load(x, b, u, column, R, F) : inner(x, b, u, column, R, F);
    for (Var &d : sums)
      d = sum(d * source, 0);
    for (auto [total, before] : llvm::zip_equal(sums, now))
      total = before + total;
    return sums;
  };
  Vars sums(shape.taps, k.tile({F}, shape.compute));
  sums = k.loop(first, end, R, sums, [&](Var u, ArrayRef<Var> now) {
    Var plain = inOneDocument(starts, b, u, u + static_cast<double>(R + halo - 1));
    return k.when(plain, [&] { return block(u, now, At::oneDocument); }, [&] { return block(u, now, At::inside); });
  });
  storeSums(k.loop(end, last, R, sums, [&](Var u, ArrayRef<Var> now) { return block(u, now, At::end); }));
}

/// Inputs of tokens t - 1, t - 2, .. where y is made again, then dy of t - 1, .., t - halo: one dy more, that of t, and the inputs behind it.
Vars ConvGrad::made(Var t, ArrayRef<Var> now, bool atEnd) {
  Var at = atEnd ? min(t, all - 1.0) : t, cotangent = tokenRow(dy, at);
  Vars next;
  if (end) {
    next = {tokenRow(x, at)};
    llvm::append_range(next, now.take_front(halo));
    cotangent = ended(taps(next, w, documentRow(starts, b, at), t, 1, /*padded=*/atEnd), cotangent);
    next.truncate(halo);
  }
  next.push_back(atEnd ? select(lt(t, all), cotangent, 0.0) : cotangent);
  llvm::append_range(next, now.slice(walkedInputs(), halo));
  return next;
}

/// Tokens [from, to) of x, or the rows of the tail: tokens that many before the first one. Carried: as `made` has it, then sums of taps and of a bias.
Vars ConvGrad::walk(Var from, Var to, ArrayRef<Var> carried, Walked where) {
  bool atEnd = where != Walked::inside, ofTail = where == Walked::tail;
  int64_t inputs = walkedInputs();
  return k.loop(
      from, to, 1, carried,
      [&](Var at, ArrayRef<Var> now) {
        Var u = ofTail ? at - static_cast<double>(halo) : at, t = ofTail ? at : u + static_cast<double>(halo), out;
        Vars next = made(t, now, atEnd), sums;
        if (halo > 0 && atEnd) {
          Var late = t - length;
          out = select(ge(late, 0.0), tokenRow(dNewTail, max(late, 0.0)), 0.0);
        }
        Var source = end && halo > 0 ? now[halo - 1] : tokenRow(ofTail ? before : x, at), own = next.back();
        for (int64_t j = 0; j < shape.taps; ++j) {
          Var to = u + static_cast<double>(halo - j), known = ofTail ? max(to, 0.0) : to;
          Var d = next[inputs + j];
          if (j < halo)
            d = inDocument(d, documentRow(starts, b, atEnd ? min(known, all - 1.0) : known), u);
          Var term = d * expand(w[j], 0, 1);
          out = out ? out + term : term;
          sums.push_back(now[inputs + halo + j] + d * source);
        }
        k.store(cast(out, ofTail ? shape.tail : shape.token), ofTail ? dTail : dx, {b, at, column});
        next.pop_back();
        llvm::append_range(next, sums);
        if (sumsUp())
          next.push_back(now.back() + own);
        return next;
      },
      atEnd ? halo : 0);
}

/// Inputs before `from`, where y is made again; no dy is known.
Vars ConvGrad::walkBegin(Var from) {
  Vars carried;
  if (end)
    carried = window(x, before, b, from, column, F);
  carried.append(halo, k.tile({1, F}, shape.compute));
  return carried;
}

void ConvGrad::storeWalked(ArrayRef<Var> carried) {
  Vars sums(carried.drop_front(walkedInputs() + halo));
  if (sumsUp())
    k.store(reshape(sums.pop_back_val(), {F}), biasParts, {part, b, column});
  storeSums(llvm::map_to_vector(sums, [&](Var s) { return reshape(s, {F}); }));
}

/// What the first tokens' taps have of the tail. Of as many tokens before the first one no dy is, so each has one more than the one before.
void ConvGrad::writeTailWalk() {
  Vars carried = walkBegin(k.number(0));
  carried.append(shape.taps + (sumsUp() ? 1 : 0), k.tile({1, F}, shape.compute));
  storeWalked(walk(k.number(0), k.number(halo), carried, Walked::tail));
}

/// A thread of a GPU goes along the tokens with columns of its own: what it has read of dy serves all taps. Nothing is read past the end of a buffer,
/// so its rows are vectors wherever they begin on one. dy of a token is made, or read, where the input `halo` tokens before it is at hand.
void ConvGrad::writeWalk() {
  Var stop = max(min(last, length), first), middle = max(min(last, length - static_cast<double>(halo)), first);
  Vars carried = walkBegin(first);
  auto before = [&](Var t, ArrayRef<Var> now) {
    Vars next = made(t, now, /*atEnd=*/true);
    next.pop_back();
    return next;
  };
  if (halo > 0)
    carried = k.loop(first, first + static_cast<double>(halo), 1, carried, before, /*meanWalk=*/halo);
  carried.append(shape.taps + (sumsUp() ? 1 : 0), k.tile({1, F}, shape.compute));
  carried = walk(middle, stop, walk(first, middle, carried, Walked::inside), Walked::end);
  if (sumsUp()) // padding has no inputs
    carried.back() = k.loop(stop, last, 1, {carried.back()}, [&](Var u, ArrayRef<Var> now) {
      return Vars{now[0] + ended(k.tile({1, F}, shape.compute), tokenRow(dy, u))};
    })[0];
  k.loop(stop, last, 1, [&](Var u) { k.store(k.tile({1, F}, shape.token), dx, {b, u, column}); }); // padding
  storeWalked(carried);
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

/// Of kernels that walk along the tokens: tokens of a part, as many programs as run at a time where parts are not much shorter than what they read
/// before them; and the parts, with the tail.
struct Parts {
  Parts(const ConvShape &shape, int64_t columns, int64_t rows, Shape x, int64_t most) {
    int64_t blocks = ceilDiv(x[1], rows);
    int64_t programs = std::clamp<int64_t>(most / (shape.features / columns * x[0]), 1, blocks);
    span = ceilDiv(blocks, programs) * rows;
    count = ceilDiv(x[1], span) + (shape.halo() > 0 ? 1 : 0);
  }
  int64_t span, count;
};

void giveWholes(Operation *op, const End *end, OutlineContext::Launch &launch, OutlineContext &context) {
  if (end)
    for (auto [i, whole] : llvm::enumerate(end->wholes))
      launch.arg("w" + std::to_string(i), context.view(op, whole, {product(shapeOf(whole))}));
}

void eraseAll(ArrayRef<Operation *> ops, OutlineContext &context) {
  for (Operation *op : llvm::reverse(ops))
    context.rewriter.eraseOp(op);
}

LogicalResult outlineForward(ShortConvOp op, const End *end, OutlineContext &context) {
  ConvShape shape = shapeOfOp(op.getX(), op.getWeight(), op.getTail());
  Value in = channels(context, op, op.getX());
  Shape x = shapeOf(in);
  // Few tokens have more programs in blocks of few columns, and wait less.
  constexpr int64_t enough = 128;
  int64_t columns = shape.features / shape.walkColumns();
  bool walks = context.gpu && columns * x[0] * ceilDiv(x[1], kLeastSpan) >= enough, emitted = true;
  Parts parts(shape, shape.walkColumns(), kLeastSpan, x, sumPrograms(context));
  SmallVector<StringRef> axes = {"rows", "columns", "batch"};
  SmallVector<int64_t> grid = {ceilDiv(x[1], shape.rows()), shape.features / shape.columns(end ? end->head : 1), x[0]};
  if (walks) {
    axes = {"columns", "batch", "part"};
    grid = {columns, x[0], parts.count};
  }
  std::string name = shape.kernelName(walks ? "short_conv_walk" : "short_conv") + (end ? end->name() : "");
  std::string kernel = context.kernel(name, axes, [&](KernelBuilder &k) {
    emitted = walks ? writeForwardWalk(k, shape, end) : writeForward(k, shape, end);
  });
  auto launch = context.launch(op, kernel, grid);
  launch.arg("x", in).arg("weight", op.getWeight()).arg("documents", op.getDocuments()).arg("tail", op.getTail());
  giveWholes(op, end, launch, context);
  launch.result("y", channelsType(op.getY(), in)).result("new_tail", op.getNewTail().getType());
  if (walks)
    launch.index("span", parts.span);
  SmallVector<Value> results = launch.run();
  if (end) {
    context.rewriter.replaceAllUsesWith(end->to, context.view(op, results[0], shapeOf(end->to)));
    eraseAll(end->ops, context);
  }
  context.replace(op, results);
  return success(emitted);
}

LogicalResult outlineGrad(ShortConvGradOp op, const End *end, OutlineContext &context) {
  ConvShape shape = shapeOfOp(op.getX(), op.getWeight(), op.getTail());
  Value in = channels(context, op, op.getX()), dy = channels(context, op, end ? end->cotangent : op.getDy());
  Shape x = shapeOf(in);
  bool walks = context.gpu, emitted = true;
  int64_t columns = walks ? shape.walkColumns() : shape.columns();
  Parts parts(shape, columns, walks ? kLeastSpan : shape.rows(), x, rowSumPrograms(context));
  std::string name = shape.kernelName("short_conv_grad") + (end ? end->name() : "");
  std::string kernel = context.kernel(name, {"columns", "batch", "part"}, [&](KernelBuilder &k) {
    ConvGrad grad(k, shape, columns, end);
    grad.write(walks);
    if (end && shape.token.isBF16())
      k.approximate(); // what it makes of them is rounded
    emitted = grad.emitted;
  });
  auto launch = context.launch(op, kernel, {shape.features / columns, x[0], parts.count});
  giveWholes(op, end, launch, context);
  launch.arg("x", in).arg("weight", op.getWeight()).arg("documents", op.getDocuments()).arg("tail", op.getTail());
  launch.arg("dy", dy).arg("dnew_tail", op.getDnewTail());
  launch.result("dx", channelsType(op.getDx(), in)).result("dtail", op.getDtail().getType());
  launch.result("parts", RankedTensorType::get({parts.count, x[0], shape.features, shape.taps}, shape.compute));
  if (end && !end->sums.empty())
    launch.result("bias_parts", RankedTensorType::get({parts.count, x[0], shape.features}, shape.compute));
  SmallVector<Value> results = launch.index("span", parts.span).run();
  Value each = context.view(op, results[2], {parts.count * x[0], shape.features, shape.taps});
  Value dWeight = sumOverRows(op, each, context);
  CastOp rounded;
  if (dWeight.getType() != op.getDweight().getType()) {
    rounded = CastOp::create(context.rewriter, op.getLoc(), op.getDweight().getType(), dWeight);
    dWeight = rounded;
  }
  SmallVector<Operation *> gone;
  if (end && !end->sums.empty()) {
    Value biases = sumOverRows(op, context.view(op, results[3], {parts.count * x[0], shape.features}), context);
    for (RowsGradOp sum : end->sums) {
      context.rewriter.replaceAllUsesWith(sum->getResult(0), context.view(op, biases, shapeOf(sum->getResult(0))));
      gone.push_back(sum);
    }
  }
  context.replace(op, {results[0], dWeight, results[1]});
  eraseAll(gone, context);
  if (end)
    eraseAll(end->ops, context);
  if (!emitted)
    return failure();
  return rounded ? outlineRows(rounded.getOperation(), context) : success();
}

} // namespace

LogicalResult outlineConvolution(Operation *op, ArrayRef<Operation *> cluster, OutlineContext &context) {
  auto grad = dyn_cast<ShortConvGradOp>(op);
  if (cluster.empty())
    return grad ? outlineGrad(grad, nullptr, context) : outlineForward(cast<ShortConvOp>(op), nullptr, context);
  End end;
  for (Operation *member : cluster) {
    auto sum = dyn_cast<RowsGradOp>(member);
    if (sum && sum.getOp() == BiasOp::getOperationName())
      end.sums.push_back(sum);
    else
      end.ops.push_back(member);
  }
  if (!grad) {
    end.y = cast<ShortConvOp>(op).getY(), end.to = end.ops.back()->getResult(0);
    end.collect();
    return outlineForward(cast<ShortConvOp>(op), &end, context);
  }
  auto conv = llvm::find_if(op->getOperand(0).getUsers(), [&](Operation *user) {
    return isa<ShortConvOp>(user) && user->getBlock() == op->getBlock() &&
           user->getOperands() == op->getOperands().take_front(4);
  });
  auto again = cast<ShortConvOp>(*conv);
  end.y = again.getY(), end.to = grad.getDy();
  end.collect();
  return outlineGrad(grad, &end, context);
}

} // namespace braid
