//===- GradientSquares.cpp - squares of gradients, added up by the products that make them ------------------------===//
//
//   dw[g] = x_g^T dy_g,   s[t, g, i] = sum_j dw[g, i, j]^2   (j: the columns of tile t)
//
// The norm of all gradients reads each of them once more: of a mixture of experts all weights, 8.5 GB of the 9.7 that `linear-moe-a0.3b-2b` has. A product has
// its sums in registers when it stores them. So where braid.sum_squares reads a gradient of experts' weights just as its product made it, stacked by repeats and handed
// on by calls, but neither added to nor reduced over ranks, the sums of squares of its rows take the same way, and only they are added up.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/cmd/CmdDialect.h"
#include "passes/outline/OutlineFamilies.h"

using namespace mlir;

namespace braid {
namespace {

class SquaresHandler {
public:
  explicit SquaresHandler(OutlineContext &context) : context(context), b(context.rewriter) {}

  void run(SumSquaresOp op) {
    for (unsigned i = 0; i < op.getXs().size(); ++i)
      if (comesFromProduct(op.getXs()[i])) {
        Value squares = hand(op.getXs()[i]);
        context.squares[op.getXs()[i]] = squares;
        countLess(op, tensorType(op.getXs()[i]), tensorType(squares));
      }
  }

private:
  /// It adds up `squares` and reads no `x`.
  static void countLess(SumSquaresOp op, RankedTensorType x, RankedTensorType squares) {
    auto work = op->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr);
    if (!work)
      return;
    int64_t flops = work.getFlops() - 2 * x.getNumElements() + squares.getNumElements();
    int64_t bytes = work.getBytes() - cmd::tensorBytes(x) + cmd::tensorBytes(squares);
    op->setAttr(cmd::kWorkAttr, cmd::WorkAttr::get(op.getContext(), work.getOp(), flops, bytes, work.getChoice(),
                                                   work.getRows(), work.getFixed()));
  }

  /// What a repeat, or a function, yields as its result of this number.
  static Value yielded(RepeatOp repeat, unsigned number) {
    return repeat.getBody().front().getTerminator()->getOperand(number);
  }
  func::FuncOp calleeOf(func::CallOp call) { return context.module.lookupSymbol<func::FuncOp>(call.getCallee()); }
  static Value returned(func::FuncOp function, unsigned number) {
    return function.front().getTerminator()->getOperand(number);
  }

  bool comesFromProduct(Value x) {
    auto result = dyn_cast<OpResult>(x);
    if (!result)
      return false;
    Operation *op = result.getOwner();
    unsigned number = result.getResultNumber();
    if (auto view = dyn_cast<ReshapeOp>(op))
      return comesFromProduct(view.getSource());
    if (auto repeat = dyn_cast<RepeatOp>(op))
      return number >= repeat.getCarried() && comesFromProduct(yielded(repeat, number));
    if (auto call = dyn_cast<func::CallOp>(op)) {
      func::FuncOp callee = calleeOf(call);
      return callee && callee.isPrivate() && !callee.isExternal() && comesFromProduct(returned(callee, number));
    }
    auto grad = dyn_cast<MoeGroupedLinearGradWeightOp>(op);
    return grad && squaresOfWeights(grad, number, context);
  }

  /// The sums of squares of `x`, beside it: what outlining the product will replace stands for them there.
  Value hand(Value x) {
    Operation *op = x.getDefiningOp();
    unsigned number = cast<OpResult>(x).getResultNumber();
    if (auto view = dyn_cast<ReshapeOp>(op))
      return hand(view.getSource());
    if (auto repeat = dyn_cast<RepeatOp>(op))
      return handOut(repeat, hand(yielded(repeat, number)));
    if (auto call = dyn_cast<func::CallOp>(op))
      return handOut(call, number);
    Value &squares = context.squares[x];
    if (!squares) {
      RankedTensorType type = squaresOfWeights(cast<MoeGroupedLinearGradWeightOp>(op), number, context);
      b.setInsertionPoint(op);
      squares = arith::ConstantOp::create(b, op->getLoc(), type, b.getZeroAttr(type));
    }
    return squares;
  }

  Value handOut(RepeatOp repeat, Value each) {
    Operation *yield = repeat.getBody().front().getTerminator();
    yield->insertOperands(yield->getNumOperands(), each);
    SmallVector<int64_t> shape(shapeOf(each));
    shape.insert(shape.begin(), repeat.getCount());
    SmallVector<Type> types(repeat.getResultTypes());
    types.push_back(tensorType(each).clone(shape));
    b.setInsertionPoint(repeat);
    auto next = RepeatOp::create(b, repeat.getLoc(), types, repeat.getInputs(), repeat.getCount(), repeat.getCarried(),
                                 repeat.getReverse());
    next->setDiscardableAttrs(repeat->getDiscardableAttrDictionary());
    next.getBody().takeBody(repeat.getBody());
    return replace(repeat, next);
  }

  /// Every call of the function gets one more result.
  Value handOut(func::CallOp call, unsigned number) {
    func::FuncOp callee = calleeOf(call);
    auto [known, isNew] = handed.try_emplace({callee, number}, callee.getNumResults());
    unsigned at = known->second;
    if (!isNew)
      return call.getResult(at);
    Value squares = hand(returned(callee, number));
    Operation *end = callee.front().getTerminator();
    at = handed[{callee, number}] = callee.getNumResults(); // it may have got others meanwhile
    end->insertOperands(at, squares);
    (void)callee.insertResult(at, squares.getType(), {});
    SmallVector<func::CallOp> calls;
    context.module.walk([&](func::CallOp other) {
      if (other.getCallee() == callee.getName())
        calls.push_back(other);
    });
    Value result;
    for (func::CallOp other : calls) {
      b.setInsertionPoint(other);
      auto next = func::CallOp::create(b, other.getLoc(), callee, other.getOperands());
      next->setDiscardableAttrs(other->getDiscardableAttrDictionary());
      Value last = replace(other, next);
      if (other == call)
        result = last;
    }
    return result;
  }

  /// `next` has one more result, which is returned.
  Value replace(Operation *op, Operation *next) {
    for (auto [before, after] : llvm::zip(op->getResults(), next->getResults())) {
      if (auto it = context.squares.find(before); it != context.squares.end()) {
        Value squares = it->second;
        context.squares.erase(it);
        context.squares[after] = squares;
      }
      for (auto &[of, squares] : context.squares)
        if (squares == before)
          squares = after;
      before.replaceAllUsesWith(after);
    }
    op->erase();
    return next->getResults().back();
  }

  OutlineContext &context;
  IRRewriter &b;
  DenseMap<std::pair<Operation *, unsigned>, unsigned> handed; ///< the result with the squares, by function and result
};

} // namespace

void handSquares(OutlineContext &context) {
  if (!context.gpu)
    return;
  SmallVector<SumSquaresOp> sums;
  context.module.walk([&](SumSquaresOp op) { sums.push_back(op); });
  SquaresHandler handler(context);
  for (SumSquaresOp op : sums)
    handler.run(op);
}

} // namespace braid
