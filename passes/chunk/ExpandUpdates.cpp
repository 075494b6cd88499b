//===- ExpandUpdates.cpp - several updates per token become several places of a row -------------------------------===//
// Everything before this pass cuts tokens: ranks, slices, documents, the gradient. A token is a place for each of its
// updates from here on, so that one set of kernels serves all.
#include "dialects/braid/ScanTraits.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_EXPANDUPDATESPASS
#include "passes/Passes.h.inc"
} // namespace braid

using namespace braid;

namespace {

RankedTensorType typeOf(Value v) { return cast<RankedTensorType>(v.getType()); }

class Places {
public:
  Places(Operation *op, int64_t updates) : builder(op), loc(op->getLoc()), updates(updates) {}

  /// [B, T, n, ..] -> [B, n T, ..]
  RankedTensorType flat(RankedTensorType type) const {
    SmallVector<int64_t> shape(type.getShape());
    shape[1] *= shape[kUpdatesDim];
    shape.erase(shape.begin() + kUpdatesDim);
    return type.clone(shape);
  }
  Value flat(Value v) { return viewed(v, flat(typeOf(v))); }
  /// n [B, T, ..] -> [B, T, n, ..]
  Value stacked(ArrayRef<Value> sources) {
    SmallVector<int64_t> shape(typeOf(sources.front()).getShape());
    shape.insert(shape.begin() + kUpdatesDim, 1);
    SmallVector<Value> parts;
    for (Value source : sources)
      parts.push_back(viewed(source, typeOf(source).clone(shape)));
    shape[kUpdatesDim] = sources.size();
    return ConcatOp::create(builder, loc, typeOf(sources.front()).clone(shape), parts, kUpdatesDim);
  }
  /// [B, T, n, ..] -> [B, T, ..]
  Value picked(Value v, int64_t index) {
    SmallVector<int64_t> shape(typeOf(v).getShape());
    shape[kUpdatesDim] = 1;
    Value part = SliceOp::create(builder, loc, typeOf(v).clone(shape), v, kUpdatesDim, index);
    shape.erase(shape.begin() + kUpdatesDim);
    return viewed(part, typeOf(v).clone(shape));
  }
  /// The same at every place of a token, or only at the last and 0 at the others.
  Value atEvery(Value v) { return flat(stacked(SmallVector<Value>(updates, v))); }
  Value atLast(Value v) {
    Attribute zero = builder.getZeroAttr(typeOf(v).getElementType());
    Value none = arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(typeOf(v), zero));
    SmallVector<Value> all(updates, none);
    all.back() = v;
    return flat(stacked(all));
  }
  /// [B, n T, ..] -> [B, T, ..]: the last place of every token.
  Value lastOf(Value v) {
    SmallVector<int64_t> shape(typeOf(v).getShape());
    shape[1] /= updates;
    shape.insert(shape.begin() + kUpdatesDim, updates);
    return picked(viewed(v, typeOf(v).clone(shape)), updates - 1);
  }
  Value viewed(Value v, RankedTensorType type) {
    return v.getType() == type ? v : Value(ReshapeOp::create(builder, loc, type, v));
  }
  Value scaled(Value documents, int64_t begin = 0) {
    return ScaleDocumentsOp::create(builder, loc, documents.getType(), documents, updates, begin);
  }

  OpBuilder builder;
  Location loc;
  int64_t updates;
};

/// Operands of the scan over places; `op` has them all for each token.
template <typename Op> SmallVector<Value> operandsOf(Op op, Places &places) {
  SmallVector<Value> operands;
  for (OpOperand &operand : op->getOpOperands()) {
    Value v = operand.get();
    unsigned number = operand.getOperandNumber();
    auto is = [&](OpOperand &other) { return other.getOperandNumber() == number; };
    if (is(op.getDocumentsMutable())) {
      operands.push_back(places.atEvery(places.scaled(v)));
      continue;
    }
    if constexpr (requires { op.getQMutable(); })
      if (is(op.getQMutable())) {
        operands.push_back(places.atEvery(v));
        continue;
      }
    if constexpr (requires { op.getDOMutable(); })
      if (is(op.getDOMutable())) {
        operands.push_back(places.atLast(v));
        continue;
      }
    bool state = false;
    if constexpr (requires { op.getInitialStateMutable(); })
      state |= is(op.getInitialStateMutable());
    if constexpr (requires { op.getDfinalStateMutable(); })
      state |= is(op.getDfinalStateMutable());
    bool whole = v == op.getLogDecay() && isWholeDecay(op);
    operands.push_back(state || whole ? v : places.flat(v));
  }
  return operands;
}

template <typename Op> Op withOperands(Op op, Places &places, TypeRange types) {
  SmallVector<Value> operands = operandsOf(op, places);
  OperationState state(op.getLoc(), op->getName(), operands, types, op->getAttrs());
  state.propertiesAttr = op->getPropertiesAsAttribute();
  return cast<Op>(places.builder.create(state));
}

/// o or dq, of which only the last place of a token counts, as it is for all places.
RankedTensorType everyPlace(Value ofToken, int64_t updates) {
  SmallVector<int64_t> shape(typeOf(ofToken).getShape());
  shape[1] *= updates;
  return typeOf(ofToken).clone(shape);
}

/// Decoding: one place after the other, each a scan of one.
void expandToken(LsmScanOp op, Places &places) {
  Value state = op.getInitialState(), o;
  for (int64_t i = 0; i < places.updates; ++i) {
    auto at = [&](Value v) { return !v || (v == op.getLogDecay() && isWholeDecay(op)) ? v : places.picked(v, i); };
    auto scan = LsmScanOp::create(places.builder, places.loc, op.getO().getType(), state.getType(), op.getQ(),
                                  at(op.getK()), at(op.getV()), at(op.getLogDecay()), at(op.getBeta()), at(op.getA()),
                                  at(op.getB()), at(op.getValueDecay()), state, places.scaled(op.getDocuments(), i),
                                  op.getClassIdAttr(), op.getScaleAttr(), op.getChunkSizeAttr());
    scan->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    o = scan.getO();
    state = scan.getFinalState();
  }
  op.replaceAllUsesWith(ValueRange{o, state});
}

void expand(LsmScanOp op, Places &places) {
  if (typeOf(op.getQ()).getDimSize(1) == 1)
    return expandToken(op, places);
  Type o = everyPlace(op.getO(), places.updates);
  auto scan = withOperands(op, places, {o, op.getFinalState().getType()});
  op.replaceAllUsesWith(ValueRange{places.lastOf(scan.getO()), scan.getFinalState()});
}

void expand(LsmScanGradOp op, Places &places) {
  auto gates = trainedGates(op);
  SmallVector<Type> types{everyPlace(op.getDq(), places.updates)};
  auto isSum = [&](size_t gate) { return gates[gate].second == op.getLogDecay() && isWholeDecay(op); };
  types.append({places.flat(typeOf(op.getDk())), places.flat(typeOf(op.getDv()))});
  for (auto [i, dgate] : llvm::enumerate(op.getDgates()))
    types.push_back(isSum(i) ? dgate.getType() : places.flat(typeOf(dgate)));
  types.push_back(op.getDinitialState().getType());
  auto grad = withOperands(op, places, types);
  SmallVector<Value> results{places.lastOf(grad.getDq())};
  for (auto [now, was] : llvm::zip_equal(grad->getResults().drop_front(), op->getResults().drop_front()))
    results.push_back(places.viewed(now, typeOf(was)));
  op.replaceAllUsesWith(results);
}

template <typename Segment> void expandSegment(Segment op, Places &places) {
  op->replaceAllUsesWith(withOperands(op, places, op->getResultTypes()).getOperation());
}
void expand(LsmSegmentOp op, Places &places) { expandSegment(op, places); }
void expand(LsmSegmentGradOp op, Places &places) { expandSegment(op, places); }

struct ExpandUpdatesPass : public braid::impl::ExpandUpdatesPassBase<ExpandUpdatesPass> {
  using ExpandUpdatesPassBase::ExpandUpdatesPassBase;

  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<LsmScanOp, LsmScanGradOp, LsmSegmentOp, LsmSegmentGradOp, StackOp, PickOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops)
      llvm::TypeSwitch<Operation *>(op)
          .Case<LsmScanOp, LsmScanGradOp, LsmSegmentOp, LsmSegmentGradOp>([](auto scan) {
            if (!hasUpdates(scan.getK()))
              return;
            Places places(scan, typeOf(scan.getK()).getDimSize(kUpdatesDim));
            expand(scan, places);
            scan.erase();
          })
          .Case([](StackOp stack) {
            Places places(stack, stack.getSources().size());
            stack.replaceAllUsesWith(places.stacked(SmallVector<Value>(stack.getSources())));
            stack.erase();
          })
          .Case([](PickOp pick) {
            Places places(pick, typeOf(pick.getSource()).getDimSize(kUpdatesDim));
            pick.replaceAllUsesWith(places.picked(pick.getSource(), pick.getIndex()));
            pick.erase();
          });
  }
};

} // namespace
