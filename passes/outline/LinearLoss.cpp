//===- LinearLoss.cpp - cross entropy of a projection, whose logits exist a block of rows at a time ---------------===//
//
//   forward   for every block:  L = X W;  loss = lse(L) - L[label]
//   backward  for every block:  L = X W;  loss as above;  D = (softmax(L) - onehot) dsum;  dX = D W^T;  dW += X^T D
//
// A block is a repeat over the rows of X, which stay where they are; D takes the place of L. All logits together would
// take tokens x vocabulary, the largest tensor of most models. Where a product on a GPU says of its tiles what a loss needs (ProductSums.cpp), a forward has none
// in memory, and a backward their exponentials in bf16, E, which are D but for a factor of each row and the label's element:  dX = s (E W^T);  dW += (s X)^T E.
// E is not rounded again, as D was of it; s X is.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/OutlineFamilies.h"

using namespace mlir;

namespace braid {

namespace {

// Products of fewer rows lose speed; more logits than these would leave the cache between the steps of a block. A GPU reads and writes all of dW for
// each block, and wants enough tiles of dX for all of its multiprocessors: with four times as many rows as features its logits take as much memory as
// four of dW, with eight times as many exponentials of half the bytes do, and what a product says of tiles of 256 words takes a 64th of that. Scores have no dW.
constexpr int64_t kLeastRows = 128, kLogitBytes = 1 << 20;
enum RowsPerFeature : int64_t { ofScores = 1, ofLogits = 4, ofExponentials = 8, ofTiles = 64 };

/// `count` blocks of `size` rows, then one of `rest`.
struct Blocks {
  int64_t size, count, rest;
};

Blocks blocksOf(int64_t rows, int64_t rowBytes, int64_t gpuRows, const OutlineContext &context) {
  int64_t most = std::max({kLeastRows, kLogitBytes / rowBytes, context.gpu ? gpuRows : 0});
  if (rows <= most)
    return {rows, 1, 0};
  int64_t size = llvm::alignTo(ceilDiv(rows, ceilDiv(rows, most)), 16);
  return {size, rows / size, rows % size};
}

/// One walk over the blocks. `carried` is handed from one to the next; what else `body` returns is stacked.
class Walk {
public:
  /// `perRow`: x, labels and what else there is of every row.
  using Body = llvm::function_ref<SmallVector<Value>(Operation *at, ArrayRef<Value> perRow, Value carried)>;

  Walk(Operation *op, Value x, ArrayRef<Value> perToken, int64_t vocabulary, RowsPerFeature most,
       OutlineContext &context)
      : op(op), context(context), b(context.rewriter), rows(product(shapeOf(perToken[0]))),
        blocks(blocksOf(rows, vocabulary * 4, most * shapeOf(x).back(), context)) {
    perRow.push_back(context.view(op, x, {rows, shapeOf(x).back()}));
    for (Value v : perToken)
      perRow.push_back(context.view(op, v, {rows}));
  }

  /// The carried value after the last block (none without a type), then per-row results, joined. The first block gets
  /// `carried`, or nothing, or a zero to add to.
  SmallVector<Value> run(RankedTensorType carriedType, Body body, Value carried = {}) {
    // A GPU has few: the first is written out, so that it need not add to zeros which somebody wrote.
    constexpr int64_t few = 8;
    bool carries = static_cast<bool>(carriedType);
    int64_t apart = context.gpu && carries && !carried && blocks.count > 1 && blocks.count <= few ? 1 : 0, first = 0;
    SmallVector<SmallVector<Value>> pieces; // of rows, per-row results
    auto add = [&](SmallVector<Value> out, int64_t size) {
      if (carries)
        carried = out.front();
      pieces.emplace_back(ArrayRef(out).drop_front(carries ? 1 : 0));
      first += size;
    };
    for (auto [count, size] :
         {std::pair(apart, blocks.size), {blocks.count - apart, blocks.size}, {int64_t(1), blocks.rest}}) {
      if (count == 0 || size == 0)
        continue;
      if (count > 1 && carries && !carried) {
        b.setInsertionPoint(op);
        carried = arith::ConstantOp::create(b, op->getLoc(), carriedType, b.getZeroAttr(carriedType));
      }
      SmallVector<Value> some = parts(first, count * size);
      if (count == 1) {
        add(body(op, some, carried), size);
        continue;
      }
      for (Value &v : some) {
        SmallVector<int64_t> shape(shapeOf(v));
        shape[0] = size;
        shape.insert(shape.begin(), count);
        v = context.view(op, v, shape);
      }
      add(repeat(carried, some, count, body), count * size);
    }
    SmallVector<Value> out;
    if (carries)
      out.push_back(carried);
    for (size_t i = 0; i < pieces.front().size(); ++i)
      out.push_back(join(llvm::map_to_vector(pieces, [&](ArrayRef<Value> piece) { return piece[i]; })));
    return out;
  }

private:
  Value part(Value v, int64_t first, int64_t size) {
    SmallVector<int64_t> shape(shapeOf(v));
    if (size == shape[0])
      return v;
    shape[0] = size;
    b.setInsertionPoint(op);
    return SliceOp::create(b, op->getLoc(), tensorType(v).clone(shape), v, 0, first);
  }

  SmallVector<Value> parts(int64_t first, int64_t size) {
    return llvm::map_to_vector(perRow, [&](Value v) { return part(v, first, size); });
  }

  Value join(ArrayRef<Value> values) {
    if (values.size() == 1)
      return values[0];
    SmallVector<int64_t> shape(shapeOf(values[0]));
    shape[0] = rows;
    b.setInsertionPoint(op);
    return ConcatOp::create(b, op->getLoc(), tensorType(values[0]).clone(shape), values, 0);
  }

  SmallVector<Value> repeat(Value carried, ArrayRef<Value> stacked, int64_t count, Body body) {
    Location loc = op->getLoc();
    SmallVector<Value> inputs, arguments;
    if (carried)
      inputs.push_back(carried);
    llvm::append_range(inputs, stacked);
    Region region;
    Block *block = &region.emplaceBlock();
    for (Value input : inputs) {
      RankedTensorType type = tensorType(input);
      bool whole = input == carried;
      arguments.push_back(block->addArgument(
          whole ? type : RankedTensorType::get(type.getShape().drop_front(), type.getElementType()), loc));
    }
    b.setInsertionPointToEnd(block);
    auto yield = YieldOp::create(b, loc, ValueRange());
    SmallVector<Value> yielded =
        body(yield, ArrayRef<Value>(arguments).take_back(stacked.size()), carried ? arguments.front() : Value());
    yield->setOperands(yielded);
    SmallVector<Type> types;
    for (auto [i, value] : llvm::enumerate(yielded)) {
      SmallVector<int64_t> shape(shapeOf(value));
      if (!carried || i > 0)
        shape.insert(shape.begin(), count);
      types.push_back(tensorType(value).clone(shape));
    }
    b.setInsertionPoint(op);
    auto loop = RepeatOp::create(b, loc, types, inputs, count, carried ? 1 : 0, /*reverse=*/false);
    loop.getBody().takeBody(region);
    SmallVector<Value> results;
    for (auto [i, value] : llvm::enumerate(loop.getResults())) {
      SmallVector<int64_t> shape(shapeOf(value));
      if (!carried || i > 0) {
        shape.erase(shape.begin());
        shape[0] *= count;
      }
      results.push_back(context.view(op, value, shape));
    }
    return results;
  }

  Operation *op;
  OutlineContext &context;
  IRRewriter &b;
  int64_t rows;
  Blocks blocks;
  SmallVector<Value> perRow;
};

/// One logit per row of x and word; [M, V], or [V, M] if transposed.
struct Head {
  Value weight;
  bool transposed;
  FloatAttr cap; ///< of logits, perhaps
  double softcap() const { return cap ? cap.getValueAsDouble() : 0; }
  int64_t width() const { return shapeOf(weight)[transposed ? 1 : 0]; }
  int64_t vocabulary() const { return shapeOf(weight)[transposed ? 0 : 1]; }

  Product product(Value x) const {
    int64_t m = width(), v = vocabulary();
    return {x, weight, {}, m, transposed ? m : v, v, false, transposed};
  }
  RankedTensorType type(Value x) const {
    return RankedTensorType::get({shapeOf(x)[0], vocabulary()}, computeType(tensorType(x).getElementType()));
  }
  Value logits(Operation *at, Value x, OutlineContext &context) const {
    return matrixProduct(at, product(x), type(x), context);
  }
  /// Of x as a whole: whether its product says what a loss needs.
  bool saysTiles(Operation *op, Value x, const OutlineContext &context) const {
    return whyNoLossTiles(op, x, weight, transposed, context.ownProducts()).empty();
  }
  /// `exponentials`: a gradient follows.
  std::optional<LossTiles> tiles(Operation *at, Value x, Value labels, Value coordinate, bool exponentials,
                                 OutlineContext &context) const {
    return lossTilesOf(at, product(x), type(x), {labels, coordinate, exponentials, softcap()}, context);
  }
  /// rowLosses() of a block; no logits.
  SmallVector<Value> losses(Operation *at, ArrayRef<Value> perRow, OutlineContext &context,
                            Value coordinate = {}) const {
    if (std::optional<LossTiles> said = tiles(at, perRow[0], perRow[1], coordinate, false, context))
      return rowLosses(at, *said, perRow[1], vocabulary(), context, coordinate);
    return rowLosses(at, logits(at, perRow[0], context), perRow[1], rounded(), context, coordinate, softcap());
  }
  bool rounded() const { return tensorType(weight).getElementType().isBF16(); }
};

} // namespace

LogicalResult outlineLinearLoss(LinearCrossEntropyOp op, OutlineContext &context) {
  Head head{op.getWeight(), op.getTransposed(), op.getSoftcapAttr()};
  Value sum = op.getSum(), count = countLabels(op, op.getLabels(), tensorType(op.getCount()).getElementType(), context);
  if (!sum.use_empty()) {
    auto body = [&](Operation *at, ArrayRef<Value> perRow, Value) -> SmallVector<Value> {
      return {head.losses(at, perRow, context)[1]};
    };
    RowsPerFeature most = head.saysTiles(op, op.getX(), context) ? ofTiles : ofLogits;
    SmallVector<Value> losses = Walk(op, op.getX(), {op.getLabels()}, head.vocabulary(), most, context).run({}, body);
    context.rewriter.replaceAllUsesWith(sum, sumAll(op, losses[0], tensorType(sum).getElementType(), context));
  }
  context.rewriter.replaceAllUsesWith(op.getCount(), count);
  context.rewriter.eraseOp(op);
  return success();
}

/// What a block of rows gives to the gradients once its lse is known: dweight so far, and dx. d without scales is all of its rows.
static SmallVector<Value> blockGradients(Operation *at, const Head &head, Value x, ScaledGradients d, Value dweight,
                                         RankedTensorType piece, OutlineContext &context) {
  int64_t m = head.width(), v = head.vocabulary();
  RankedTensorType type = tensorType(x), sumType = type;
  if (d.scales) {
    sumType = type.clone(Float32Type::get(type.getContext())); // rounded when it is scaled
    x = scaleRows(at, x, d.scales, type.getElementType(), context);
  }
  Product weights = head.transposed ? Product{d.rows, x, dweight, v, m, m, true, false}
                                    : Product{x, d.rows, dweight, m, v, v, true, false};
  Value sum = matrixProduct(at, weights, piece, context);
  Value dx = matrixProduct(at, {d.rows, head.weight, {}, v, head.transposed ? m : v, m, false, !head.transposed},
                           sumType, context);
  return {sum, d.scales ? scaleRows(at, dx, d.scales, type.getElementType(), context) : dx};
}

LogicalResult outlineLinearLossGrad(LinearCrossEntropyGradOp op, OutlineContext &context) {
  Head head{op.getWeight(), op.getTransposed(), op.getSoftcapAttr()};
  Type element = tensorType(op.getX()).getElementType();
  RankedTensorType piece = tensorType(op.getDweight());
  auto body = [&](Operation *at, ArrayRef<Value> perRow, Value dweight) {
    Value x = perRow[0], labels = perRow[1];
    ScaledGradients d;
    SmallVector<Value> rows;
    if (std::optional<LossTiles> tiles = head.tiles(at, x, labels, {}, true, context)) {
      rows = rowLosses(at, *tiles, labels, head.vocabulary(), context);
      d = scaledGradients(at, *tiles, labels, rows[0], op.getDsum(), context);
    } else {
      Value logits = head.logits(at, x, context);
      rows = rowLosses(at, logits, labels, head.rounded(), context, {}, head.softcap());
      d.rows = rowGradients(at, logits, labels, rows[0], op.getDsum(), element, context, {}, head.softcap());
    }
    SmallVector<Value> out = blockGradients(at, head, x, d, dweight, piece, context);
    out.push_back(rows[1]);
    return out;
  };
  RowsPerFeature most = head.saysTiles(op, op.getX(), context) ? ofExponentials : ofLogits;
  SmallVector<Value> out =
      Walk(op, op.getX(), {op.getLabels()}, head.vocabulary(), most, context).run(piece, body, op.getWeightSum());
  Value sum = sumAll(op, out[2], tensorType(op.getSum()).getElementType(), context);
  context.replace(op, {out[1], out[0], sum});
  return success();
}

LogicalResult outlineLossPart(LinearLossPartOp op, OutlineContext &context) {
  Head head{op.getWeight(), op.getTransposed(), op.getSoftcapAttr()};
  auto body = [&](Operation *at, ArrayRef<Value> perRow, Value) {
    return head.losses(at, perRow, context, op.getCoordinate());
  };
  RowsPerFeature most = head.saysTiles(op, op.getX(), context) ? ofTiles : ofLogits;
  context.replace(op, Walk(op, op.getX(), {op.getLabels()}, head.vocabulary(), most, context).run({}, body));
  return success();
}

LogicalResult outlineScores(LinearScoresOp op, OutlineContext &context) {
  Head head{op.getWeight(), op.getTransposed(), op.getSoftcapAttr()};
  auto body = [&](Operation *at, ArrayRef<Value> perRow, Value) {
    Value logits = head.logits(at, perRow[0], context), place = op.getCoordinate();
    SmallVector<Value> out = rowLosses(at, logits, perRow[1], head.rounded(), context, place, head.softcap());
    llvm::append_range(out, rowGreatest(at, logits, context, place, head.softcap()));
    return out;
  };
  context.replace(op, Walk(op, op.getX(), {op.getLabels()}, head.vocabulary(), ofScores, context).run({}, body));
  return success();
}

LogicalResult outlineLossPartGrad(LinearLossPartGradOp op, OutlineContext &context) {
  Head head{op.getWeight(), op.getTransposed(), op.getSoftcapAttr()};
  Type element = tensorType(op.getX()).getElementType();
  RankedTensorType piece = tensorType(op.getDweight());
  auto body = [&](Operation *at, ArrayRef<Value> perRow, Value dweight) {
    Value x = perRow[0], labels = perRow[1], lse = perRow[2], place = op.getCoordinate();
    ScaledGradients d;
    if (std::optional<LossTiles> tiles = head.tiles(at, x, labels, place, true, context))
      d = scaledGradients(at, *tiles, labels, lse, op.getDsum(), context, place);
    else
      d.rows = rowGradients(at, head.logits(at, x, context), labels, lse, op.getDsum(), element, context, place,
                            head.softcap());
    return blockGradients(at, head, x, d, dweight, piece, context);
  };
  RowsPerFeature most = head.saysTiles(op, op.getX(), context) ? ofExponentials : ofLogits;
  SmallVector<Value> out = Walk(op, op.getX(), {op.getLabels(), op.getLse()}, head.vocabulary(), most, context)
                               .run(piece, body, op.getWeightSum());
  context.replace(op, {out[1], out[0]});
  return success();
}

} // namespace braid
