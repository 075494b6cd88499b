//===- TokenKinds.cpp - how every model op meets tokens -----------------------------------------------------------===//
// One row per op; slicing and sharding read nothing else. See Braid_TokenOpInterface.
#include "dialects/braid/InnerTraits.h"
#include "dialects/braid/ScanTraits.h"

using namespace mlir;
using namespace braid;

#define TOKEN_KINDS(OP, OPERAND, RESULT)                                                                               \
  TokenKind OP::operandKind(unsigned i) { return OPERAND; }                                                            \
  TokenKind OP::resultKind(unsigned i) { return RESULT; }
static constexpr TokenKind token = TokenKind::token, carried = TokenKind::state, whole = TokenKind::whole,
                           rows = TokenKind::rows, piece = TokenKind::piece;

// Row-wise ops: token operands, except those that hold for all rows.
TOKEN_KINDS(AddOp, token, token)
TOKEN_KINDS(MulOp, token, token)
TOKEN_KINDS(ScaleOp, token, token)
TOKEN_KINDS(OffsetOp, token, token)
TOKEN_KINDS(ClampOp, token, token)
TOKEN_KINDS(BiasOp, i == 0 ? token : whole, token)
TOKEN_KINDS(WeightedOp, i == 0 ? token : whole, token)
TOKEN_KINDS(ActivationOp, token, token)
TOKEN_KINDS(SoftmaxOp, token, token)
TOKEN_KINDS(LogSumExpOp, token, token)
TOKEN_KINDS(TokenLossOp, token, token)
TOKEN_KINDS(GreatestOp, token, token)
TOKEN_KINDS(GreatestWordOp, token, token)
TOKEN_KINDS(LogSigmoidOp, token, token)
TOKEN_KINDS(LogDecayOp, i == 0 ? token : whole, token)
TOKEN_KINDS(FeatureMapOp, token, token)
TOKEN_KINDS(AppendOneOp, token, token)
TOKEN_KINDS(DivideByLastOp, token, token)
TOKEN_KINDS(DropLastOp, token, token)
TOKEN_KINDS(TakeLastOp, token, token)
TOKEN_KINDS(InnerOp, token, token)
TOKEN_KINDS(DotOp, i == 0 ? token : whole, token)
TOKEN_KINDS(BoundedGateOp, i == 0 ? token : whole, token)
TOKEN_KINDS(ElementDecayOp, i == 0 ? token : whole, token)
TOKEN_KINDS(RmsNormOp, i == 0 ? token : whole, token)
TOKEN_KINDS(LayerNormOp, i == 0 ? token : whole, token)
TOKEN_KINDS(L2NormOp, token, token)
TOKEN_KINDS(GatedNormOp, i < 2 ? token : whole, token)
TOKEN_KINDS(RopeOp, token, token)
TOKEN_KINDS(PositionRateOp, i == 0 ? token : whole, token)
TOKEN_KINDS(PositionAngleOp, i == 0 ? token : whole, token)
TOKEN_KINDS(EveryTokenOp, i == 0 ? token : whole, token)
TOKEN_KINDS(RepeatHeadsOp, token, token)
TOKEN_KINDS(CastOp, token, token)
TOKEN_KINDS(MoeRouteOp, token, token)
TOKEN_KINDS(MoeRouteWeightsOp, token, token)
TOKEN_KINDS(MoeRouterLossOp, i == 1 ? whole : token, token)
TOKEN_KINDS(MoeRenormalizeOp, token, token)
TOKEN_KINDS(MoeCorrectOp, token, token)

/// Kinds of the operands of a row-wise op by name, without an instance at hand (rows_grad knows only the name).
TokenKind braid::rowsOperandKind(StringRef op, unsigned i) {
  if (op == "braid.gated_norm")
    return i < 2 ? token : whole;
  if (op == "braid.moe.router_loss")
    return i == 1 ? whole : token;
  static constexpr StringLiteral withWhole[] = {
      "braid.bias",         "braid.weighted",      "braid.log_decay",     "braid.rms_norm",       "braid.layer_norm",
      "braid.bounded_gate", "braid.element_decay", "braid.position_rate", "braid.position_angle", "braid.every_token",
      "braid.dot"};
  return i > 0 && llvm::is_contained(withWhole, op) ? whole : token;
}

TokenKind RowsGradOp::operandKind(unsigned i) { return i < getInputs().size() ? rowsOperandKind(getOp(), i) : token; }
TokenKind RowsGradOp::resultKind(unsigned i) {
  return rowsOperandKind(getOp(), getWanted()[i]) == whole ? piece : token;
}

TOKEN_KINDS(ReshapeOp, token, token)
TOKEN_KINDS(StackOp, token, token)
TOKEN_KINDS(PickOp, token, token)
TOKEN_KINDS(LinearOp, i == 0 ? token : whole, token)
TOKEN_KINDS(LinearAddOp, i == 1 ? whole : token, token)
TOKEN_KINDS(HeadLinearOp, i == 1 ? whole : token, token)
TOKEN_KINDS(HeadLinearGradWeightOp, token, piece)
TOKEN_KINDS(LinearGradDataOp, i < getDys().size() ? token : whole, token)
TOKEN_KINDS(LinearGradWeightOp, i <= getDys().size() ? token : piece, piece)
TOKEN_KINDS(EmbedOp, i == 0 ? token : whole, token)
TOKEN_KINDS(EmbedGradOp, i < 2 ? token : piece, piece)
TOKEN_KINDS(CrossEntropyOp, token, i < 2 ? piece : token)
TOKEN_KINDS(CrossEntropyGradOp, i < 3 ? token : whole, token)
TOKEN_KINDS(LinearCrossEntropyOp, i == 1 ? whole : token, piece)
TOKEN_KINDS(LinearCrossEntropyGradOp, i == 4 ? piece : i == 1 || i == 3 ? whole : token, i == 0 ? token : piece)
// x, weight, labels, coordinate, [lse, dsum]
TOKEN_KINDS(LinearLossPartOp, i == 1 || i == 3 ? whole : token, token)
TOKEN_KINDS(LinearScoresOp, i == 1 || i == 3 ? whole : token, token)
TOKEN_KINDS(LinearLossPartGradOp, i == 6 ? piece : i == 1 || i == 3 || i == 5 ? whole : token, i == 0 ? token : piece)
TOKEN_KINDS(LocalIdsOp, i == 0 ? token : whole, token)
TOKEN_KINDS(SumOp, token, piece)
TOKEN_KINDS(SumGradOp, whole, token)

// x, weight, documents, tail -> y, new tail
TOKEN_KINDS(ShortConvOp, (i == 1 ? whole : i == 3 ? carried : token), i == 0 ? token : carried)
int ShortConvOp::carryOf(unsigned result) { return result == 1 ? 3 : -1; }
// x, weight, documents, tail, dy, dnew_tail -> dx, dweight, dtail: dtail is the dnew_tail of the slice before
TOKEN_KINDS(ShortConvGradOp,
            (i == 1             ? whole
             : i == 3 || i == 5 ? carried
                                : token),
            (i == 0   ? token
             : i == 1 ? piece
                      : carried))
int ShortConvGradOp::carryOf(unsigned result) { return result == 2 ? 5 : -1; }
bool ShortConvGradOp::carryReversed() { return true; }

template <typename Op> static TokenKind scanOperandKind(Op op, unsigned i) {
  Value value = op->getOperand(i);
  if (value == op.getInitialState())
    return carried;
  if constexpr (std::is_same_v<Op, LsmScanGradOp>)
    if (value == op.getDfinalState())
      return carried;
  return value == op.getLogDecay() && isWholeDecay(op) ? whole : token;
}
TokenKind LsmScanOp::operandKind(unsigned i) { return scanOperandKind(*this, i); }
TokenKind LsmScanOp::resultKind(unsigned i) { return i == 0 ? token : carried; }
int LsmScanOp::carryOf(unsigned result) {
  return result == 1 ? static_cast<int>(getInitialStateMutable().getOperandNumber()) : -1;
}
bool LsmScanOp::carryReversed() { return false; }
TokenKind LsmStepOp::operandKind(unsigned i) { return scanOperandKind(*this, i); }
TokenKind LsmStepOp::resultKind(unsigned i) { return i == 0 ? token : carried; }
int LsmStepOp::carryOf(unsigned result) {
  return result == 1 ? static_cast<int>(getInitialStateMutable().getOperandNumber()) : -1;
}
bool LsmStepOp::carryReversed() { return false; }
TokenKind LsmScanGradOp::operandKind(unsigned i) { return scanOperandKind(*this, i); }
TokenKind LsmScanGradOp::resultKind(unsigned i) {
  if (i + 1 == getNumResults())
    return carried;
  return i == 3 && decaysByProduct(*this) ? piece : token; // dlog_decay is the first of dgates
}
int LsmScanGradOp::carryOf(unsigned result) {
  return result + 1 == getNumResults() ? static_cast<int>(getDfinalStateMutable().getOperandNumber()) : -1;
}
bool LsmScanGradOp::carryReversed() { return true; }

// q, k, v and gates are tokens; norm and weights hold for all of them.
template <typename Op> static TokenKind innerOperandKind(Op op, unsigned i) {
  Value value = op->getOperand(i);
  if (value == op.getInitialState())
    return carried;
  if constexpr (std::is_same_v<Op, LsmInnerStepGradOp>)
    if (value == op.getDfinalState())
      return carried;
  return value == op.getNormWeight() || value == op.getNormBias() || value == op.getWeights() ? whole : token;
}
TokenKind LsmInnerStepOp::operandKind(unsigned i) { return innerOperandKind(*this, i); }
TokenKind LsmInnerStepOp::resultKind(unsigned i) { return i == 0 ? token : carried; }
int LsmInnerStepOp::carryOf(unsigned result) {
  return result == 1 ? static_cast<int>(getInitialStateMutable().getOperandNumber()) : -1;
}
bool LsmInnerStepOp::carryReversed() { return false; }
TokenKind LsmInnerStepGradOp::operandKind(unsigned i) { return innerOperandKind(*this, i); }
TokenKind LsmInnerStepGradOp::resultKind(unsigned i) {
  if (i + 1 == getNumResults())
    return carried;
  if (i < 3)
    return token;
  return innerOthers(*this)[i - 3].whole ? piece : token;
}
int LsmInnerStepGradOp::carryOf(unsigned result) {
  return result + 1 == getNumResults() ? static_cast<int>(getDfinalStateMutable().getOperandNumber()) : -1;
}
bool LsmInnerStepGradOp::carryReversed() { return true; }

TOKEN_KINDS(AttnCausalOp, getOperand(i) == getCoordinate() || getOperand(i) == getSinks() ? whole : token, token)
TOKEN_KINDS(AttnCausalGradOp, getOperand(i) == getCoordinate() ? whole : token, token)
TOKEN_KINDS(AttnSinkGradOp, i == 0 ? whole : token, piece)

// What a plan says of its rows is cut with them: perm, offsets and exchange are `rows`; counts are sums over tokens.
TOKEN_KINDS(MoePlanOp, token, (i == 1 ? token : i == 2 || i == 4 ? piece : rows))
// draw_keys belong to rows of the batch; what draws is never sliced.
TOKEN_KINDS(MoeDropOp, (getOperand(i) == getTaken() || getOperand(i) == getDrawKeys() ? carried : token),
            (i == 0   ? token
             : i >= 3 ? carried
                      : piece))
int MoeDropOp::carryOf(unsigned result) {
  return result == 3 ? static_cast<int>(getTakenMutable().getOperandNumber()) : -1;
}
TOKEN_KINDS(MoePlanReceivedOp, rows, rows)
TOKEN_KINDS(MoeDispatchOp, (getOperand(i) == getX() || getOperand(i) == getInverse() ? token : rows), rows)
TOKEN_KINDS(MoePermuteOp, rows, rows)
TOKEN_KINDS(MoeCombineOp, (getOperand(i) == getInverse() || getOperand(i) == getWeights() ? token : rows),
            i == 0 ? token : rows)
TOKEN_KINDS(MoeCombineGradOp, (i == 0 || i == 2 || i == 4 ? token : rows), i == 0 ? rows : token)
TOKEN_KINDS(MoeRowWeightsOp, i == 1 ? rows : token, rows)
TOKEN_KINDS(MoeRowWeightsGradOp, i == 0 ? rows : token, token)
TOKEN_KINDS(MoeGroupedLinearOp, i < 2 ? rows : whole, rows)
TOKEN_KINDS(MoeGroupedLinearGradDataOp, i <= getDys().size() ? rows : whole, rows)
TOKEN_KINDS(MoeGroupedLinearGradWeightOp, i < 2 + getDys().size() ? rows : piece, piece)
TOKEN_KINDS(MoeGroupBiasOp, i < 2 ? rows : whole, rows)
TOKEN_KINDS(MoeGroupBiasGradOp, rows, piece)
