//===- AddIntoGradients.cpp - gradients of weights that are made on top of the sums of earlier batches -------------===//
//
//   dw = x^T dy;   s = sum + dw        ->        s = sum + x^T dy
//
// A gradient of weights that is written, read again and added to a sum costs four times its bytes beside the products; on top of the sum it costs two. Of
// few tokens for each weight, which is what micro-batches and many experts are, these bytes are what a backward waits for. A table of words costs no
// more than the rows of the words that there are, where its gradient alone is a table.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "llvm/ADT/TypeSwitch.h"

#include "passes/Passes.h"
#include "passes/analysis/Tensors.h"
#include "passes/outline/RowsCluster.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_ADDINTOGRADIENTSPASS
#include "passes/Passes.h.inc"

namespace {

/// What is added to results of an op, by their numbers.
using Sums = std::map<unsigned, Value>;

/// What this result is made on top of, perhaps nothing; none: no op that could add made it.
std::optional<Value> sumBehind(OpResult gradient) {
  return TypeSwitch<Operation *, std::optional<Value>>(gradient.getOwner())
      .Case<LinearGradWeightOp, MoeGroupedLinearGradWeightOp>(
          [&](auto grad) { return grad.getSums().empty() ? Value() : grad.getSums()[gradient.getResultNumber()]; })
      .Case([](EmbedGradOp grad) { return grad.getTableSum(); })
      .Case<LinearCrossEntropyGradOp, LinearLossPartGradOp>([&](auto grad) {
        return gradient == grad.getDweight() ? std::optional<Value>(grad.getWeightSum()) : std::nullopt;
      })
      .Default(std::nullopt);
}

/// The result of the same block that a gradient began as, on top of nothing: slices add one product to the other. Null: none that can add.
OpResult beginOf(Value gradient) {
  Block *block = gradient.getParentBlock();
  auto result = dyn_cast<OpResult>(gradient);
  while (result && result.hasOneUse() && result.getParentBlock() == block) {
    std::optional<Value> sum = sumBehind(result);
    if (!sum || !*sum)
      return sum ? result : OpResult();
    result = dyn_cast<OpResult>(*sum);
  }
  return {};
}

/// The same op with these sums, of the results that have one; the others are an op of their own.
template <typename Op>
void addProducts(Op op, const Sums &sums, llvm::function_ref<Op(OpBuilder &, TypeRange, ValueRange, ValueRange)> make) {
  OpBuilder builder(op);
  for (bool added : {true, false}) {
    SmallVector<unsigned> numbers;
    SmallVector<Type> types;
    SmallVector<Value> dys, before;
    for (OpResult result : op->getResults())
      if (auto sum = sums.find(result.getResultNumber()); (sum != sums.end()) == added) {
        numbers.push_back(result.getResultNumber());
        types.push_back(result.getType());
        dys.push_back(op.getDys()[result.getResultNumber()]);
        if (added)
          before.push_back(sum->second);
      }
    if (numbers.empty())
      continue;
    Op part = make(builder, types, dys, before);
    part->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    for (auto [i, number] : llvm::enumerate(numbers))
      op->getResult(number).replaceAllUsesWith(part->getResult(i));
  }
  op->erase();
}

void addTo(Operation *op, const Sums &sums) {
  TypeSwitch<Operation *>(op)
      .Case([&](LinearGradWeightOp grad) {
        addProducts<LinearGradWeightOp>(grad, sums,
                                        [&](OpBuilder &b, TypeRange types, ValueRange dys, ValueRange before) {
                                          return LinearGradWeightOp::create(b, grad.getLoc(), types, grad.getX(), dys,
                                                                            before, grad.getTransposedAttr());
                                        });
      })
      .Case([&](MoeGroupedLinearGradWeightOp grad) {
        addProducts<MoeGroupedLinearGradWeightOp>(
            grad, sums, [&](OpBuilder &b, TypeRange types, ValueRange dys, ValueRange before) {
              return MoeGroupedLinearGradWeightOp::create(b, grad.getLoc(), types, grad.getX(), grad.getOffsets(), dys,
                                                          before);
            });
      })
      .Case([&](EmbedGradOp grad) { grad.getTableSumMutable().assign(sums.begin()->second); })
      .Case<LinearCrossEntropyGradOp, LinearLossPartGradOp>(
          [&](auto grad) { grad.getWeightSumMutable().assign(sums.begin()->second); });
}

/// A gradient that an addition in place adds to a sum, with views of it between the two.
struct LateSum {
  AddOp add;
  OpResult gradient;
};

class Adder {
public:
  explicit Adder(ModuleOp module) : symbols(module) {}

  void visit(Block &block) {
    for (AddOp add : llvm::to_vector(block.getOps<AddOp>()))
      joinTable(add);
    llvm::MapVector<Operation *, SmallVector<LateSum>> sums;
    for (AddOp add : block.getOps<AddOp>())
      if (OpResult gradient = gradientOf(add))
        if (auto call = dyn_cast<func::CallOp>(gradient.getOwner()))
          sums[call].push_back({add, gradient});
        else if (OpResult begin = beginOf(gradient); fits(begin, add) && isThere(add->getOperand(0), begin.getOwner()))
          sums[begin.getOwner()].push_back({add, begin});
    for (auto &[op, late] : sums) {
      if (auto call = dyn_cast<func::CallOp>(op))
        addInCall(call, late);
      else
        addInBlock(op, late);
    }
    for (RepeatOp repeat : llvm::to_vector(block.getOps<RepeatOp>()))
      visit(repeat.getBody().front());
  }

  void eraseUnused() {
    for (Operation *function : replaced)
      if (SymbolTable::symbolKnownUseEmpty(function, symbols.getOp()))
        symbols.erase(function);
  }

private:
  /// A table of words that is the head, too, has two gradients: that of the words is made on top of the other.
  static void joinTable(AddOp add) {
    if (add->getNumOperands() != 2 || add->hasAttr(kInPlaceAttr))
      return;
    for (unsigned i : {0, 1})
      if (auto words = add->getOperand(i).getDefiningOp<EmbedGradOp>()) {
        Value other = add->getOperand(1 - i);
        if (words.getTableSum() || !words->hasOneUse() || words->getBlock() != add->getBlock() ||
            other.getType() != words.getType() || !isThere(other, words))
          continue;
        words.getTableSumMutable().assign(other);
        add->getResult(0).replaceAllUsesWith(words.getDtable());
        add->erase();
        return;
      }
  }

  /// What this addition in place adds, where nobody else reads it.
  static OpResult gradientOf(AddOp add) {
    if (!add->hasAttr(kInPlaceAttr) || add->getNumOperands() != 2)
      return {};
    Value part = add->getOperand(1);
    while (part.hasOneUse()) {
      auto view = part.getDefiningOp<ReshapeOp>();
      if (!view) {
        auto result = dyn_cast<OpResult>(part);
        return result && result.getOwner()->getBlock() == add->getBlock() ? result : OpResult();
      }
      part = view.getSource();
    }
    return {};
  }

  /// A product would round its parts into a sum of bf16, which slices begin in f32.
  static bool fits(OpResult begin, AddOp add) {
    if (!begin || add->getOperand(0).getType() != add->getOperand(1).getType())
      return false;
    RankedTensorType type = typeOf(begin), sum = typeOf(add->getOperand(0));
    return type.getElementType() == sum.getElementType() && type.getNumElements() == sum.getNumElements() &&
           !type.getElementType().isBF16();
  }

  /// Whether this value is known in front of an op, and nobody but the addition reads it.
  static bool isThere(Value sum, Operation *op) {
    Operation *def = sum.getDefiningOp();
    return sum.hasOneUse() && (!def || (def->getBlock() == op->getBlock() && def->isBeforeInBlock(op)));
  }

  /// The sum in the shape of the gradient.
  static Value asGradient(Value sum, Type type, Operation *op) {
    OpBuilder builder(op);
    return sum.getType() == type ? sum : ReshapeOp::create(builder, sum.getLoc(), type, sum).getResult();
  }

  /// What was added is the sum now.
  static void drop(AddOp add) {
    add->getResult(0).replaceAllUsesWith(add->getOperand(1));
    add->erase();
  }

  static void addInBlock(Operation *op, ArrayRef<LateSum> late) {
    Sums sums;
    for (LateSum sum : late)
      sums[sum.gradient.getResultNumber()] = asGradient(sum.add->getOperand(0), sum.gradient.getType(), op);
    for (LateSum sum : late)
      drop(sum.add);
    addTo(op, sums);
  }

  void addInCall(func::CallOp call, ArrayRef<LateSum> late) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (!callee || callee.isExternal() || !callee.isPrivate())
      return;
    Operation *end = callee.getBody().front().getTerminator();
    std::map<unsigned, AddOp> added;
    for (LateSum sum : late)
      if (unsigned number = sum.gradient.getResultNumber();
          fits(beginOf(end->getOperand(number)), sum.add) && isThere(sum.add->getOperand(0), call))
        added[number] = sum.add;
    if (added.empty())
      return;
    SmallVector<unsigned> numbers;
    SmallVector<Value> operands(call.getOperands());
    for (auto [number, add] : added) {
      numbers.push_back(number);
      operands.push_back(asGradient(add->getOperand(0), call.getResult(number).getType(), call));
    }
    OpBuilder builder(call);
    auto next = func::CallOp::create(builder, call.getLoc(), adding(callee, numbers), operands);
    next->setDiscardableAttrs(call->getDiscardableAttrDictionary());
    for (auto [number, add] : added)
      drop(add);
    call->replaceAllUsesWith(next);
    call->erase();
    replaced.insert(callee);
  }

  /// The function that makes these results on top of sums, its last arguments.
  func::FuncOp adding(func::FuncOp whole, ArrayRef<unsigned> numbers) {
    auto [place, fresh] = known.try_emplace({whole, numbers.vec()});
    if (!fresh)
      return place->second;
    func::FuncOp function = whole.clone();
    function.setName((whole.getName() + "_sums").str());
    symbols.insert(function, std::next(Block::iterator(whole)));
    Block &body = function.getBody().front();
    llvm::MapVector<Operation *, Sums> sums;
    for (unsigned number : numbers) {
      OpResult begin = beginOf(body.getTerminator()->getOperand(number));
      (void)function.insertArgument(function.getNumArguments(), begin.getType(), {}, begin.getLoc());
      sums[begin.getOwner()][begin.getResultNumber()] = body.getArguments().back();
    }
    for (auto &[op, of] : sums)
      addTo(op, of);
    return place->second = function;
  }

  SymbolTable symbols;
  std::map<std::pair<Operation *, std::vector<unsigned>>, func::FuncOp> known;
  llvm::SetVector<Operation *> replaced; ///< functions that were called
};

struct AddIntoGradientsPass : impl::AddIntoGradientsPassBase<AddIntoGradientsPass> {
  void runOnOperation() override {
    Adder adder(getOperation());
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>()))
      if (!function.isExternal() && !function.isPrivate())
        adder.visit(function.getBody().front());
    adder.eraseUnused();
  }
};

} // namespace
} // namespace braid
