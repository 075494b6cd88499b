//===- Gateloop.cpp - a complex decay per key channel (class V, twice) --------------------------------------------===//
//   M_t = diag(sigmoid(x wa) exp(i x wp)) M_{t-1} + k_t^T v_t      o = Re(q M)
// A product of phases is the phase of their sum, f_t = p_1 + .. + p_t:
//   q_t . k_s cos(f_t - f_s) = (q_t cos f_t) . (k_s cos f_s) + (q_t sin f_t) . (k_s sin f_s)
// So the complex state is two real ones of one decay, and f is a scan of class I, head by head like the others. Phases
// are relative: f begins at 0 with every document.
//   f grows with the row, and its rounding with it. So it is counted in turns, of which each token's nearest whole ones
// do nothing, and in two sums: of multiples of 1/256 turn, exact in f32 over 65536 turns, of which whole ones do nothing
// either, and of what is left of every phase, at most 1/512 turn a token.
#include "frontend/layers/LsmParts.h"
#include <numbers>

using namespace mlir;
using namespace braid;

Value braid::everyToken(LayerBuilder &b, StringRef name, Value weight) {
  Shape features(cast<RankedTensorType>(weight.getType()).getShape());
  return EveryTokenOp::create(b.builder, b.loc(name), b.wideTokens(features), b.documents(), weight);
}

Value braid::summedPhases(LayerBuilder &b, const LsmSpec &spec, Value phase) {
  int64_t H = spec.heads;
  RankedTensorType one = b.wideTokens({H, 1});
  Value ones = arith::ConstantOp::create(
      b.builder, b.loc("ones"), DenseElementsAttr::get(one, b.builder.getFloatAttr(one.getElementType(), 1.0)));
  LsmSpec sum = spec;
  sum.rope.reset();
  sum.scale = 1.0;
  Value turns = b.activation("turns", b.scale("turns", phase, 0.5 * std::numbers::inv_pi), "fraction");
  Value fine = b.scale("fine", b.activation("fine", b.scale("fine", turns, 256.0), "fraction"), 1.0 / 256.0);
  Value coarse = b.add("coarse", {turns, b.scale("fine", fine, -1.0)});
  Value whole = scan(b, sum, LsmClass::I, {ones, ones, coarse}, "lsm.phase");
  Value rest = scan(b, sum, LsmClass::I, {ones, ones, fine}, "lsm.phase_rest");
  Value angle = b.add("phase", {b.activation("phase", whole, "fraction"), rest});
  return b.scale("phase", angle, 2.0 * std::numbers::pi);
}

Value braid::turningScan(LayerBuilder &b, const LsmSpec &spec, const ScanInputs &in, Value angle) {
  int64_t H = spec.heads;
  Value q = b.repeatHeads("q", in.q, H), k = b.repeatHeads("k", in.k, H);
  auto part = [&](StringRef function, StringRef state) {
    Value turn = b.activation(function, angle, function);
    return scan(b, spec, LsmClass::V, {b.mul("q", q, turn), b.mul("k", k, turn), in.v, in.logDecay}, state);
  };
  return b.add("o", {part("cos", "lsm.state"), part("sin", "lsm.state_sin")});
}

Value braid::buildGateloop(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads, K = spec.headDim;
  Projections p(b);
  addQkvg(p, spec, H, H, H);
  p.add("a", {headsOf(spec, H), K}, /*wide=*/true);
  p.add("p", {headsOf(spec, H), K}, /*wide=*/true);
  p.run(x);
  // Positions come before the phases: a scan would turn what they have scaled.
  ScanInputs in = convolved(b, spec, p);
  in.q = rotate(b, spec, "q", in.q);
  in.k = rotate(b, spec, "k", in.k);
  in.logDecay =
      LogSigmoidOp::create(b.builder, b.loc("log_decay"), p["a"].getType(), p["a"], b.builder.getF64FloatAttr(1.0));
  LsmSpec turned = spec;
  turned.rope.reset();
  return gatedOutput(b, spec, turningScan(b, turned, in, summedPhases(b, turned, p["p"])), p["g"]);
}
