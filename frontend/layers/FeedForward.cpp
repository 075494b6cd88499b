//===- FeedForward.cpp - dense feed-forward and mixture of experts ------------------------------------------------===//
// Dense: act(x w1) [* x w3] w2 [* act(x wg)], x of a token or, with a token shift, x + (x_before - x) mu, which the gate has a mu of its own for. Experts: f32 router, [correction, groups], top-k, [capacity], rows sorted by expert,
// grouped linears, weighted sum. Capacity belongs to training and evaluation: generation routes token by token and drops
// nothing.
#include "frontend/layers/LayerBuilder.h"

using namespace mlir;
using namespace braid;

/// act(gate) [up]; clamped as experts of gpt-oss are: g = min(gate, limit), g sigmoid(alpha g) (clamp(up, -limit, limit) + 1).
static Value hiddenOf(LayerBuilder &b, const Activation &act, Value gate, Value up) {
  constexpr double limit = 7.0, alpha = 1.702;
  if (!act.clamped) {
    Value h = b.activation("hidden", gate, act.base);
    return act.gated ? b.mul("hidden", h, up) : h;
  }
  auto clamped = [&](StringRef name, Value x, FloatAttr low) -> Value {
    return ClampOp::create(b.builder, b.loc(name), x.getType(), x, low, b.builder.getF64FloatAttr(limit));
  };
  gate = clamped("gate", gate, {});
  up = clamped("up", up, b.builder.getF64FloatAttr(-limit));
  up = OffsetOp::create(b.builder, b.loc("up"), up.getType(), up, b.builder.getF64FloatAttr(1.0));
  Value share = b.activation("hidden", b.scaled("gate_scaled", gate, alpha), act.base);
  return b.mul("hidden", b.mul("hidden", gate, share), up);
}

Value braid::buildDense(LayerBuilder &b, Value x, const DenseSpec &spec, StringRef prefix, Value gate, Adapter adapt) {
  const Activation &act = ffnActivation(spec.activation);
  int64_t F = spec.hidden;
  Dim model = b.embed(), wide(F, "hidden");
  auto name = [&](StringRef part) { return (prefix + "." + part).str(); };
  Value ofGate = x; // what the gate on the output reads
  if (spec.tokenShift) {
    Value before = b.tokenBefore("x", x, name("shift_x")), own = x;
    Value difference = b.add("difference", {before, b.scale("minus_x", x, -1.0)});
    auto mixed = [&](StringRef label, StringRef mu) -> Value {
      Value share = b.weight(name(mu), {model}, Init::constant(0.5));
      return b.add(label, {own, b.weighted("mix", difference, share)});
    };
    x = mixed("x_mixed", "mu");
    if (spec.outputGate)
      ofGate = mixed("x_gate", "mu_g");
  }
  SmallVector<LayerBuilder::Projection> projections = {
      {"gate", b.matrix(name("w1"), model, wide, MatrixRole::value), {F}}};
  if (act.gated)
    projections.push_back({"up", b.matrix(name("w3"), model, wide, MatrixRole::value), {F}});
  auto hidden = b.linear(x, projections);
  if (adapt) {
    hidden[0] = adapt("w1", hidden[0], {wide});
    if (act.gated)
      hidden[1] = adapt("w3", hidden[1], {wide});
  }
  auto biased = [&](StringRef label, StringRef part, Value value, const Dim &width) {
    if (!spec.bias)
      return value;
    return b.bias(label, value, b.weight(name(part), {width}, Init::constant(0.0)));
  };
  Value opened = b.scaled("gate", biased("gate", "b1", hidden[0], wide), spec.gateMultiplier),
        h = hiddenOf(b, act, opened, act.gated ? biased("up", "b3", hidden[1], wide) : Value());
  // gate (h w2) = (gate h) w2: in front of the product it is one more factor of a pass over h, and where w2 is cut along
  // its inputs the product stays a plain sum over ranks.
  if (gate)
    h = b.mul("hidden", h, gate);
  Value y = b.linear("ffn_out", h, b.matrix(name("w2"), wide, model, MatrixRole::output), {model.size});
  y = biased("ffn_out", "b2", y, model);
  if (!spec.outputGate)
    return y;
  Value opens = b.linear("output_gate", ofGate, b.matrix(name("wg"), model, model, MatrixRole::query), {model.size});
  return b.mul("ffn_gated", y, b.activation("output_gate", opens, *spec.outputGate));
}

namespace {
struct Choice {
  Value ids, weights; ///< [B, T, top_k]
};
} // namespace

static Choice chooseExperts(LayerBuilder &b, Value logits, const MoeSpec &spec) {
  OpBuilder &builder = b.builder;
  auto number = [&](int64_t value) { return builder.getI64IntegerAttr(value); };
  const RouterSpec &router = spec.router;
  bool limited = router.keptGroups < router.groups;
  Value keys = logits; // in the order of the scores, which are needed where they are added to something
  if (router.correction || (limited && router.groupTop() > 1))
    keys = router.score == "sigmoid" ? b.activation("router_scores", logits, "sigmoid")
                                     : b.softmax("router_scores", logits);
  if (router.correction)
    keys = b.bias("router_keys", keys,
                  b.weight("moe.correction", {spec.numExperts}, Init::constant(0.0), /*decay=*/false,
                           /*trained=*/false, router.correctionRate));
  Value ids = MoeRouteOp::create(builder, b.loc("expert_ids"), b.integers({b.entry.batch, b.entry.tokens, spec.topK}),
                                 keys, number(spec.topK), number(limited ? router.groups : 1),
                                 number(limited ? router.keptGroups : 1), number(limited ? router.groupTop() : 1));
  Value weights = MoeRouteWeightsOp::create(builder, b.loc("expert_weights"), b.wideTokens({spec.topK}), logits, ids,
                                            builder.getBoolAttr(router.normalize), builder.getStringAttr(router.score));
  return {ids, b.scaled("expert_weights", weights, router.scale)};
}

Value braid::buildExperts(LayerBuilder &b, Value x, const MoeSpec &spec) {
  OpBuilder &builder = b.builder;
  const Activation &act = ffnActivation(spec.activation);
  int64_t M = spec.latentDim ? spec.latentDim : b.spec.dModel, F = spec.expertHidden, E = spec.numExperts,
          K = spec.topK;
  int64_t B = b.entry.batch, T = b.entry.tokens, R = B * T * K;

  Dim model = b.embed(), wide(F, "expert_hidden");
  Value router = b.matrix("moe.router", model, E, MatrixRole::router);
  Value logits = b.linear("router_logits", b.widen("router_input", x), router, {E}, /*wide=*/true);
  if (spec.router.bias)
    logits = b.bias("router_logits", logits, b.weight("moe.router_bias", {E}, Init::constant(0.0)));
  auto topK = builder.getI64IntegerAttr(K);
  auto [ids, weights] = chooseExperts(b, logits, spec);
  // Capacity counts rows of the batch: the same whatever ranks and slices the tokens are on.
  bool bounded = spec.capacityFactor && !b.entry.cached;
  Value routed = ids;
  IntegerAttr expertRows;
  if (bounded) {
    int64_t capacity = expertCapacity(spec, T), devices = spec.devices ? spec.devices : E;
    bool weighted = spec.dropPolicy == "score" || spec.dropPolicy == "bpr" || spec.dropPolicy == "device";
    auto used = b.integers({B, devices});
    Value none = arith::ConstantOp::create(builder, b.loc("none"), cast<TypedAttr>(builder.getZeroAttr(used)));
    Value keys = spec.draws() ? b.drawKeys() : Value();
    auto drop = MoeDropOp::create(builder, b.loc("kept_ids"), ids.getType(), b.integers({E}), b.integers({E}), used,
                                  keys ? keys.getType() : Type(), ids, weighted ? weights : Value(), b.documents(),
                                  none, keys, builder.getI64IntegerAttr(capacity),
                                  builder.getStringAttr(spec.dropPolicy), builder.getI64IntegerAttr(E / devices),
                                  builder.getF64FloatAttr(spec.protect), builder.getI64IntegerAttr(0));
    routed = drop.getKept();
    if (keys)
      b.setDrawKeys(drop.getNewDrawKeys());
    if (spec.renormalize)
      weights = MoeRenormalizeOp::create(builder, b.loc("kept_weights"), weights.getType(), weights, routed);
    b.expertCounts = drop.getLoad();
    b.expertDropped = drop.getDropped();
    if (spec.paddedSlots) {
      expertRows = builder.getI64IntegerAttr(B * capacity);
      R = E * B * capacity;
    }
  }
  auto plan = MoePlanOp::create(builder, b.loc("plan"), b.integers({R}), b.integers({B, T, K}), b.integers({E}),
                                b.integers({E + 1}), b.integers({1}), b.integers({1}), routed, b.documents(),
                                builder.getI64IntegerAttr(E), builder.getI64IntegerAttr(1),
                                builder.getI64IntegerAttr(0), expertRows);
  Value exchange = plan.getExchange();
  // Experts of a latent width: what travels is narrower, what every token sees is not.
  Dim expertModel = spec.latentDim ? Dim(M) : model;
  Value input = spec.latentDim ? b.linear("expert_input", x, b.matrix("moe.latent_in", model, expertModel), {M}) : x;
  Value rows = MoeDispatchOp::create(builder, b.loc("rows"), b.tensor({1, R, M}), input, plan.getPerm(),
                                     plan.getInverse(), exchange);

  auto grouped = [&](StringRef name, Value x, ArrayRef<Value> matrices, int64_t out) {
    SmallVector<Type> types(matrices.size(), b.tensor({1, R, out}));
    auto op = MoeGroupedLinearOp::create(builder, b.loc(name), types, x, plan.getOffsets(), matrices);
    return SmallVector<Value>(op.getResults());
  };
  auto biased = [&](StringRef label, StringRef part, Value value, const Dim &width) -> Value {
    if (!spec.bias)
      return value;
    Value bias = b.weight(("moe." + part).str(), {Dim(E, "experts"), width}, Init::constant(0.0));
    return MoeGroupBiasOp::create(builder, b.loc(label), value.getType(), value, plan.getOffsets(), bias, Value());
  };
  SmallVector<Value> in = {b.matrix("moe.w1", expertModel, wide, MatrixRole::value, E)};
  if (act.gated)
    in.push_back(b.matrix("moe.w3", expertModel, wide, MatrixRole::value, E));
  auto hidden = grouped(act.gated ? "gate_up" : "gate", rows, in, F);
  Value gate = biased("gate", "b1", hidden[0], wide),
        h = hiddenOf(b, act, gate, act.gated ? biased("up", "b3", hidden[1], wide) : Value());
  MatrixRole last = spec.latentDim ? MatrixRole::value : MatrixRole::output;
  Value out = grouped("expert_out", h, {b.matrix("moe.w2", wide, expertModel, last, E)}, M).front();
  out = biased("expert_out", "b2", out, expertModel);
  Value y = MoeCombineOp::create(builder, b.loc("routed"), b.tokens({M}), out.getType(), out, weights, plan.getPerm(),
                                 plan.getInverse(), exchange)
                .getY();
  if (spec.latentDim)
    y = b.linear("routed", y, b.matrix("moe.latent_out", expertModel, model, MatrixRole::output), {b.spec.dModel});
  if (spec.sharedHidden) {
    DenseSpec shared;
    shared.hidden = spec.sharedHidden;
    shared.activation = spec.activation;
    Value gate;
    if (spec.sharedGate)
      gate = b.activation("shared_gate", b.dot("shared_gate", x, b.column("shared.gate", model)), "sigmoid");
    y = b.add("ffn_out", {y, buildDense(b, x, shared, "shared", gate)});
  }

  if (b.entry.cached)
    return y;
  if (!bounded)
    b.expertCounts = plan.getCounts();
  if (spec.router.balanceLoss == 0 && spec.router.zLoss == 0)
    return y;
  b.addRouterLoss(MoeRouterLossOp::create(builder, b.loc("router_loss"), b.wideTokens({}), logits, b.expertCounts,
                                          b.documents(), topK, builder.getF64FloatAttr(spec.router.balanceLoss),
                                          builder.getF64FloatAttr(spec.router.zLoss),
                                          builder.getStringAttr(spec.router.score)));
  return y;
}
