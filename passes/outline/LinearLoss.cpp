//===- LinearLoss.cpp - cross entropy of a projection, whose logits exist a block of rows at a time
//----------------===//
//
//   forward   for every block:  L = X W;  loss = lse(L) - L[label]
//   backward  for every block:  L = X W;  loss as above;  D = (softmax(L) - onehot) dsum;  dX = D W^T;  dW += X^T D
//
// A block is a repeat over the rows of X, which stay where they are; D takes the place of L. All logits together would
// take tokens x vocabulary, the largest tensor of most models.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/OutlineFamilies.h"

using namespace mlir;

namespace braid {

namespace {

// Products of fewer rows lose speed; more logits than these would leave the cache between the steps of a block.
constexpr int64_t kLeastRows = 128, kLogitBytes = 1 << 20;

/// `count` blocks of `size` rows, then one of `rest`.
struct Blocks {
  int64_t size, count, rest;
};

Blocks blocksOf(int64_t rows, int64_t rowBytes) {
  int64_t most = std::max(kLeastRows, kLogitBytes / rowBytes);
  if (rows <= most)
    return {rows, 1, 0};
  int64_t size = llvm::alignTo(ceilDiv(rows, ceilDiv(rows, most)), 16);
  return {size, rows / size, rows % size};
}

/// One walk over the blocks. `carried` is handed from one to the next; what else `body` returns is stacked.
class Walk {
public:
  using Body = llvm::function_ref<SmallVector<Value>(Operation *at, Value x, Value labels, Value carried)>;

  Walk(Operation *op, Value x, Value labels, int64_t vocabulary, OutlineContext &context)
      : op(op), context(context), b(context.rewriter), rows(product(shapeOf(labels))), width(shapeOf(x).back()),
        blocks(blocksOf(rows, vocabulary * 4)), x(context.view(op, x, {rows, width})),
        labels(context.view(op, labels, {rows})) {}

  /// The carried value after the last block (none without a type), then per-row results, joined. The first block gets
  /// nothing or a zero to add to.
  SmallVector<Value> run(RankedTensorType carriedType, Body body) {
    SmallVector<Value> out;
    bool carries = static_cast<bool>(carriedType);
    if (blocks.count == 1) {
      out = body(op, part(x, 0, blocks.size), part(labels, 0, blocks.size), {});
    } else {
      Value carried;
      if (carries) {
        b.setInsertionPoint(op);
        carried = arith::ConstantOp::create(b, op->getLoc(), carriedType, b.getZeroAttr(carriedType));
      }
      Value stackedX = context.view(op, part(x, 0, blocks.count * blocks.size), {blocks.count, blocks.size, width});
      Value stackedLabels = context.view(op, part(labels, 0, blocks.count * blocks.size), {blocks.count, blocks.size});
      out = repeat(carried, stackedX, stackedLabels, body);
    }
    if (!blocks.rest)
      return out;
    int64_t first = blocks.count * blocks.size;
    SmallVector<Value> last =
        body(op, part(x, first, blocks.rest), part(labels, first, blocks.rest), carries ? out.front() : Value());
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = carries && i == 0 ? last[i] : join(out[i], last[i]);
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

  Value join(Value first, Value last) {
    SmallVector<int64_t> shape(shapeOf(first));
    shape[0] = rows;
    b.setInsertionPoint(op);
    return ConcatOp::create(b, op->getLoc(), tensorType(first).clone(shape), ValueRange{first, last}, 0);
  }

  SmallVector<Value> repeat(Value carried, Value stackedX, Value stackedLabels, Body body) {
    Location loc = op->getLoc();
    SmallVector<Value> inputs, arguments;
    if (carried)
      inputs.push_back(carried);
    inputs.append({stackedX, stackedLabels});
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
        body(yield, arguments.end()[-2], arguments.back(), carried ? arguments.front() : Value());
    yield->setOperands(yielded);
    SmallVector<Type> types;
    for (auto [i, value] : llvm::enumerate(yielded)) {
      SmallVector<int64_t> shape(shapeOf(value));
      if (!carried || i > 0)
        shape.insert(shape.begin(), blocks.count);
      types.push_back(tensorType(value).clone(shape));
    }
    b.setInsertionPoint(op);
    auto loop = RepeatOp::create(b, loc, types, inputs, blocks.count, carried ? 1 : 0, /*reverse=*/false);
    loop.getBody().takeBody(region);
    SmallVector<Value> results;
    for (auto [i, value] : llvm::enumerate(loop.getResults())) {
      SmallVector<int64_t> shape(shapeOf(value));
      if (!carried || i > 0) {
        shape.erase(shape.begin());
        shape[0] *= blocks.count;
      }
      results.push_back(context.view(op, value, shape));
    }
    return results;
  }

  Operation *op;
  OutlineContext &context;
  IRRewriter &b;
  int64_t rows, width;
  Blocks blocks;
  Value x, labels;
};

/// One logit per row of x and word; [M, V], or [V, M] if transposed.
struct Head {
  Value weight;
  bool transposed;
  int64_t width() const { return shapeOf(weight)[transposed ? 1 : 0]; }
  int64_t vocabulary() const { return shapeOf(weight)[transposed ? 0 : 1]; }

  Value logits(Operation *at, Value x, OutlineContext &context) const {
    int64_t m = width(), v = vocabulary();
    auto type = RankedTensorType::get({shapeOf(x)[0], v}, computeType(tensorType(x).getElementType()));
    return matrixProduct(at, {x, weight, {}, m, transposed ? m : v, v, false, transposed}, type, context);
  }
};

} // namespace

LogicalResult outlineLinearLoss(LinearCrossEntropyOp op, OutlineContext &context) {
  Head head{op.getWeight(), op.getTransposed()};
  Value sum = op.getSum(), count = countLabels(op, op.getLabels(), tensorType(op.getCount()).getElementType(), context);
  if (!sum.use_empty()) {
    SmallVector<Value> losses = Walk(op, op.getX(), op.getLabels(), head.vocabulary(), context)
                                    .run({}, [&](Operation *at, Value x, Value labels, Value) -> SmallVector<Value> {
                                      return {rowLosses(at, head.logits(at, x, context), labels, context)[1]};
                                    });
    context.rewriter.replaceAllUsesWith(sum, sumAll(op, losses[0], tensorType(sum).getElementType(), context));
  }
  context.rewriter.replaceAllUsesWith(op.getCount(), count);
  context.rewriter.eraseOp(op);
  return success();
}

LogicalResult outlineLinearLossGrad(LinearCrossEntropyGradOp op, OutlineContext &context) {
  Head head{op.getWeight(), op.getTransposed()};
  int64_t m = head.width(), v = head.vocabulary();
  Type element = tensorType(op.getX()).getElementType();
  RankedTensorType piece = tensorType(op.getDweight());
  auto body = [&](Operation *at, Value x, Value labels, Value dweight) -> SmallVector<Value> {
    Value logits = head.logits(at, x, context);
    SmallVector<Value> rows = rowLosses(at, logits, labels, context);
    Value d = rowGradients(at, logits, labels, rows[0], op.getDsum(), element, context);
    Product weights =
        head.transposed ? Product{d, x, dweight, v, m, m, true, false} : Product{x, d, dweight, m, v, v, true, false};
    Value sum = matrixProduct(at, weights, piece, context);
    Value dx = matrixProduct(at, {d, head.weight, {}, v, head.transposed ? m : v, m, false, !head.transposed},
                             x.getType(), context);
    return {sum, dx, rows[1]};
  };
  SmallVector<Value> out = Walk(op, op.getX(), op.getLabels(), v, context).run(piece, body);
  Value sum = sumAll(op, out[2], tensorType(op.getSum()).getElementType(), context);
  context.replace(op, {out[1], out[0], sum});
  return success();
}

} // namespace braid
