//===- Rwkv.cpp - RWKV-6 (class V) and RWKV-7 (class D) -----------------------------------------------------------===//
// Every projection sees a mixture of its token and the one before, x_i = x + (x_before - x) m_i.
//   rwkv6   M_t = diag(exp(-exp w_t)) M_{t-1} + k_t^T v_t      o_t = r_t (M_{t-1} + diag(u) k_t^T v_t)
//           m_i = mu_i + tanh((x + (x_before - x) mu_x) mix_i_a) mix_i_b for r, k, v, w, g
//   rwkv7   M_t = (diag(w_t) + b_t^T a_t) M_{t-1} + k~_t^T v_t      o_t = r_t M_t      log w = -e^(-1/2) sigmoid(..)
//           a = -kk, b = kk alpha, kk = k k_k of length 1, k~ = k (1 + (alpha - 1) k_a); m_i = mu_i
// Reading before the write is reading after it with k, v and the decay of the token before: M_{t-1} is the state of a
// scan that is one token late.
//   rwkv7   v = v_own + (v_first - v_own) sigmoid(x_v value_a value_b + v0), v_first that of the first such layer; the
//           published one does not mix there: v_first is v_own, and the weights of the mixture change nothing.
//           value_mix false: without them, and v_own is what layers behind it mix with
#include "frontend/layers/LsmParts.h"
#include <cmath>

using namespace mlir;
using namespace braid;

namespace {
/// x and the difference to the token before.
struct TokenMix {
  TokenMix(LayerBuilder &b, Value x) : b(b), x(x) {
    difference = b.add("difference", {shifted(b, "x", x), b.scale("minus_x", x, -1.0)});
  }
  Value weightedBy(StringRef name) {
    Value mu = b.weight(("lsm.mu_" + name).str(), {b.spec.dModel}, Init::constant(0.5));
    return b.weighted("mix_" + name.str(), difference, mu);
  }
  Value fixed(StringRef name) { return b.add("x_" + name.str(), {x, weightedBy(name)}); }

  LayerBuilder &b;
  Value x, difference;
};

Value project(LayerBuilder &b, StringRef name, Value x, const Dim &heads, int64_t width) {
  MatrixRole role = name == "v" ? MatrixRole::value : MatrixRole::query;
  return b.linear(name, x, b.matrix(("lsm.w" + name).str(), b.embed(), flattened({heads, width}), role),
                  {heads.size, width});
}
} // namespace

/// The first layer that keeps values, and of its mixers the first that does.
static std::pair<int64_t, char> firstKeeper(const ModelSpec &spec) {
  for (auto [layer, letters] : llvm::enumerate(spec.mixersOfLayers()))
    for (char letter : letters)
      if (const MixerSpec *mixer = spec.findMixer(letter); mixer && firstValueWidth(*mixer) != 0)
        return {static_cast<int64_t>(layer), letter};
  llvm_unreachable("asked by a layer that does");
}

/// Whether that one says by itself that it is the first.
static bool isFirstKnown(const ModelSpec &spec) {
  const auto *lsm = std::get_if<LsmSpec>(spec.findMixer(firstKeeper(spec).second));
  return lsm && !lsm->valueMix;
}

/// Which layer is the first that keeps values: an untrained entry of the weights, 1 or 0 for all heads, so that layers
/// share a function.
static Value isFirst(LayerBuilder &b, const LsmSpec &spec) {
  auto [layer, letter] = firstKeeper(b.spec);
  // Of mixers side by side the first; this one may stand behind it, or only in later layers.
  int64_t first = letter == b.mixer.letter ? layer : -1;
  Init init{
      "values", 0,
      0,        0,
      {},       [first, H = spec.heads](int64_t layer) {
              return std::vector<double>(H, layer == first ? 1.0 : 0.0); }};
  return b.weight("lsm.is_first", {headsOf(spec, spec.heads)}, std::move(init), /*decay=*/false, /*trained=*/false);
}

static void setFirstValues(LayerBuilder &b, const LsmSpec &spec, Value values) {
  b.setFirstValue(b.reshape("v_first", values, {b.entry.batch, b.entry.tokens, spec.heads * spec.valueDim}));
}

Value braid::firstValues(LayerBuilder &b, const LsmSpec &spec, Value own) {
  int64_t H = spec.heads, V = spec.valueDim;
  Value before = b.reshape("v_first", b.firstValue(b.tokens({H * V})), {b.entry.batch, b.entry.tokens, H, V});
  if (isFirstKnown(b.spec))
    return before;
  Value first = b.add("v_first", {before, b.weighted("v_first", minus(b, "v_first", own, before), isFirst(b, spec))});
  setFirstValues(b, spec, first);
  return first;
}

/// v_own mixed with the values of the first layer, or v_own, which takes their place.
static Value mixedValues(LayerBuilder &b, const LsmSpec &spec, Value x, Value own) {
  int64_t V = spec.valueDim;
  Dim H = headsOf(spec, spec.heads);
  if (!spec.valueMix) {
    (void)b.firstValue(b.tokens({spec.heads * V}));
    setFirstValues(b, spec, own);
    return own;
  }
  Value share = lowRank(b, "value", x, spec.valueRank, {H, V});
  share = b.bias("value", share, b.weight("lsm.v0", {H, V}, Init::constant(1.0)));
  share = b.narrow("value", b.activation("value", share, "sigmoid"));
  Value first = firstValues(b, spec, own);
  return b.add("v", {own, b.mul("v", minus(b, "v", first, own), share)});
}

Value braid::buildRwkv6(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t K = spec.headDim, V = spec.valueDim;
  Dim H = headsOf(spec, spec.heads);
  TokenMix mix(b, x);
  Value base = mix.fixed("x");
  auto mixed = [&](StringRef name) {
    Value m = b.narrow("mix_" + name.str(), lowRank(b, "mix_" + name.str(), base, spec.mixRank, {b.embed()}, "tanh"));
    return b.add("x_" + name.str(), {mix.fixed(name), b.mul("mix_" + name.str(), mix.difference, m)});
  };
  Value q = project(b, "q", mixed("q"), H, K), k = project(b, "k", mixed("k"), H, K);
  Value v = project(b, "v", mixed("v"), H, V), g = project(b, "g", mixed("g"), H, V);
  Value w = lowRank(b, "decay", mixed("w"), spec.gateRank, {H, K}, "tanh");
  w = b.bias("w", w, b.weight("lsm.w0", {H, K}, Init::uniform(-6.0, -1.0)));
  // A decay below exp(-exp(7)) is 0; its logarithm must not be infinite, which a shift would multiply by 0.
  Value logDecay = b.scale("log_decay", b.activation("decay", w, "bounded_exp"), -1.0);
  ScanInputs in;
  in.q = q;
  in.k = shifted(b, "k", k);
  in.v = shifted(b, "v", v);
  in.logDecay = shifted(b, "decay", logDecay);
  Value o = scan(b, spec, LsmClass::V, in);
  Value own = inner(b, "own", b.weighted("bonus", q, b.weight("lsm.u", {H, K}, Init::uniform(0.0, 1.0))), k);
  // The bonus is a part of what is read: times the scale of q.
  o = b.add("o", {o, b.scaled("own", b.mul("own", v, own), spec.scale)});
  o = b.mul("o_gated", groupNorm(b, spec, o), b.activation("g", g, "silu"));
  return projectOutput(b, spec, o);
}

Value braid::buildRwkv7(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t K = spec.headDim, V = spec.valueDim;
  Dim H = headsOf(spec, spec.heads);
  TokenMix mix(b, x);
  Value q = project(b, "q", mix.fixed("q"), H, K), k = project(b, "k", mix.fixed("k"), H, K);
  Value xv = mix.fixed("v"), own = project(b, "v", xv, H, V);
  Value v = mixedValues(b, spec, xv, own);
  auto perKey = [&](StringRef name, Init init) { return b.weight(("lsm." + name).str(), {H, K}, std::move(init)); };
  Value w = lowRank(b, "decay", mix.fixed("w"), spec.gateRank, {H, K}, "tanh");
  w = b.bias("w", w, perKey("w0", Init::uniform(-6.0, 1.0)));
  Value rate = lowRank(b, "rate", mix.fixed("a"), spec.rateRank, {H, K});
  rate = b.bias("rate", rate, perKey("a0", Init::constant(0.0)));
  Value alpha = b.narrow("alpha", b.activation("alpha", rate, "sigmoid"));
  Value gate = b.narrow("g", lowRank(b, "gate", mix.fixed("g"), spec.outputGateRank, {H, V}, "sigmoid"));
  // By default as divided by max(length, 1e-12).
  Value removed = b.weighted("kk", k, perKey("k_k", Init::constant(0.85)));
  removed = b.l2Norm("kk", removed, spec.l2Eps);
  Value added = b.weighted("k_a", k, perKey("k_a", Init::constant(1.0)));
  ScanInputs in;
  in.q = q;
  in.k = b.add("k", {k, b.mul("k_a", added, alpha), b.scale("k_a", added, -1.0)});
  in.v = v;
  in.logDecay = b.scale("log_decay", b.activation("decay", w, "sigmoid"), -std::exp(-0.5));
  in.a = b.scale("a", removed, -1.0);
  in.b = b.mul("b", removed, alpha);
  Value o = groupNorm(b, spec, scan(b, spec, LsmClass::D, in));
  Value bonus = inner(b, "own", b.weighted("bonus", q, perKey("r_k", Init::constant(0.0))), in.k);
  o = b.mul("o_gated", b.add("o", {o, b.mul("own", v, bonus)}), gate);
  return projectOutput(b, spec, o);
}
