//===- S4d.cpp - a diagonal state space that does not change with time (class V, twice) ---------------------------===//
//   M_t[h, n] = exp(dt_h A[h, n]) M_{t-1}[h, n] + Cbar[h, n] u_t[h]      y_t[h] = 2 Re sum_n M_t[h, n] + d_h u_t[h]
//   A = -exp(log_a) + i a_im, dt = exp(log_dt), Cbar = C (exp(dt A) - 1) / A;  out = (gelu(y) wo) * sigmoid(gelu(y) wg)
// Every channel h of u = x is a head with one value: its state decays by exp(-dt exp(log_a)) and turns by dt a_im at
// every token, so with the angle f of the token's position the turn is in q and k (as in Gateloop.cpp), and the complex
// state is two real ones of one decay:
//   y_t = 2 Re(e^(i f_t) N_t), N_t = decay N_{t-1} + Cbar e^(-i f_t) u_t
// head_dim is the number of states of a channel (pairs of conjugates), heads times value_dim that of channels, d_model.
#include "frontend/layers/LsmParts.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace braid;

namespace {
/// What is computed from weights alone: ops on values of one row, [1, 1, channels, states].
struct Discretised {
  Value logDecay, phase, re, im; ///< of exp(dt A), and Cbar: [channels, states]
};

Discretised discretise(LayerBuilder &b, const LsmSpec &spec, int64_t channels) {
  int64_t states = spec.headDim;
  std::vector<double> turns;
  for (int64_t h = 0; h < channels; ++h)
    for (int64_t n = 0; n < states; ++n)
      turns.push_back(std::numbers::pi * static_cast<double>(n));
  auto row = [&](StringRef name, Init init) {
    Value w = b.weight(("lsm." + name).str(), {channels, states}, std::move(init));
    return b.reshape(name, w, {1, 1, channels, states});
  };
  auto minus = [&](StringRef name, Value x) { return b.scale(name, x, -1.0); };
  Value logDt =
      b.weight("lsm.log_dt", {channels}, Init::uniform(std::log(spec.stepRange[0]), std::log(spec.stepRange[1])));
  Value dt = b.activation("dt", b.reshape("log_dt", logDt, {1, 1, channels}), "exp");
  Value re = b.activation("a_re", row("log_a", Init::constant(std::log(0.5))), "exp");
  Value im = row("a_im", {"values", 0, 0, 0, std::move(turns)});
  Value x = minus("decay", b.mul("decay", re, dt)), y = b.mul("phase", im, dt);
  // exp(x + i y) - 1 = expm1(x) cos y - 2 sin^2(y / 2) + i e^x sin y, expm1(x) = tanh(x / 2) (1 + e^x): steps are
  // short.
  Value e = b.activation("e", x, "exp"), t = b.activation("t", b.scale("t", x, 0.5), "tanh");
  Value half = b.activation("half", b.scale("half", y, 0.5), "sin");
  Value gone = b.mul("gone", b.add("gone", {t, b.mul("gone", t, e)}), b.activation("cos", y, "cos"));
  Value nr = b.add("nr", {gone, b.scale("nr", b.mul("nr", half, half), -2.0)});
  Value ni = b.mul("ni", e, b.activation("sin", y, "sin"));
  // divided by A = -re + i im
  Value square = b.add("square", {b.mul("square", re, re), b.mul("square", im, im)});
  Value inverse = b.activation("inverse", square, "reciprocal");
  Value dr = b.mul("dr", b.add("dr", {b.mul("dr", ni, im), minus("dr", b.mul("dr", nr, re))}), inverse);
  Value di = b.mul("di", minus("di", b.add("di", {b.mul("di", nr, im), b.mul("di", ni, re)})), inverse);
  Value cr = row("c_re", Init::normal(std::sqrt(0.5))), ci = row("c_im", Init::normal(std::sqrt(0.5)));
  Value br = b.add("b_re", {b.mul("b_re", cr, dr), minus("b_re", b.mul("b_re", ci, di))});
  Value bi = b.add("b_im", {b.mul("b_im", cr, di), b.mul("b_im", ci, dr)});
  auto whole = [&](StringRef name, Value v) { return b.reshape(name, v, {channels, states}); };
  return {whole("decay", x), whole("phase", y), whole("b_re", br), whole("b_im", bi)};
}
} // namespace

Value braid::sharedTurnScan(LayerBuilder &b, const LsmSpec &spec, ScanInputs in, const SharedTurn &shared) {
  Value angle = PositionAngleOp::create(b.builder, b.loc("angle"), b.wideTokens({spec.heads, spec.headDim}),
                                        b.documents(), shared.phase);
  Value cosine = b.activation("cos", angle, "cos");
  if (!shared.im)
    return turningScan(b, spec, in, angle);
  Value sine = b.activation("sin", angle, "sin");
  auto part = [&](Value turn, Value k, StringRef state) {
    Value q = in.q ? b.mul("q", b.repeatHeads("q", in.q, spec.heads), turn) : b.narrow("q", turn);
    return scan(b, spec, LsmClass::V, {q, b.narrow("k", k), in.v, in.logDecay}, state);
  };
  Value kRe = b.add("k_re", {b.weighted("k_re", cosine, shared.re), b.weighted("k_re", sine, shared.im)});
  Value kIm = minus(b, "k_im", b.weighted("k_im", cosine, shared.im), b.weighted("k_im", sine, shared.re));
  return b.add("o", {part(cosine, kRe, "lsm.state"), part(b.scale("minus_sin", sine, -1.0), kIm, "lsm.state_im")});
}

Value braid::buildS4d(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t channels = spec.heads * spec.valueDim, B = b.entry.batch, T = b.entry.tokens;
  Discretised d = discretise(b, spec, channels);
  ScanInputs in;
  in.v = b.reshape("u", x, {B, T, channels, 1});
  LsmSpec perChannel = spec;
  perChannel.heads = channels;
  perChannel.scale = 2.0 * spec.scale;
  in.logDecay = everyToken(b, "log_decay", d.logDecay);
  Value o = sharedTurnScan(b, perChannel, in, {d.phase, d.re, d.im});
  Value skip = b.weighted("skip", x, b.weight("lsm.d", {channels}, Init::normal(1.0)));
  Value y = b.activation("y", b.add("y", {b.reshape("o", o, {B, T, channels}), skip}), "gelu");
  return gluOutput(b, y, "sigmoid");
}
