//===- FfnReader.cpp - JSON to the feed-forwards of a ModelSpec ---------------------------------------------------===//
#include "frontend/ModelReader.h"
#include "llvm/Support/FormatVariadic.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

// Far above any model; every product of dimensions stays within 64 bits.
static constexpr int64_t maxExperts = 1 << 12;

static std::vector<StringRef> activationNames() {
  std::vector<StringRef> names;
  for (const Activation &a : ffnActivations())
    names.push_back(a.name);
  return names;
}

/// capacity_factor, and what it gives a meaning to.
static void readCapacity(Reader &r, MoeSpec &spec) {
  double factor = 0; // none
  r.number("capacity_factor", factor, 0.0, 1e6, /*leastAllowed=*/false);
  if (r.has("capacity_factor"))
    spec.capacityFactor = factor;
  r.choice("capacity_rule", spec.capacityRule, {"megatron", "switch", "megablocks", "tutel"});
  r.choice("drop_policy", spec.dropPolicy, {"token", "slot", "score", "bpr", "random", "device"});
  r.boolean("padded_slots", spec.paddedSlots);
  r.boolean("renormalize", spec.renormalize);
  for (StringRef key : {"capacity_rule", "drop_policy", "padded_slots", "renormalize"})
    if (!spec.capacityFactor && r.has(key))
      r.error(key, "changes nothing without capacity_factor; valid: together with a capacity_factor above 0");
  if (spec.dropPolicy == "device") {
    r.requireInteger("devices", spec.devices, 1, maxExperts);
    r.number("protect", spec.protect, 0.0, 1.0);
    return;
  }
  for (StringRef key : {"devices", "protect"}) {
    if (r.has(key))
      r.error(key, "changes nothing without drop_policy \"device\"; valid: together with it");
    r.take(key);
  }
}

static void readRouter(Reader &parent, Errors &errors, RouterSpec &router) {
  Reader r(objectOrEmpty(parent, "router", errors), parent.pathOf("router"), errors);
  r.choice("score", router.score, {"softmax", "sigmoid"});
  r.boolean("bias", router.bias);
  r.boolean("normalize", router.normalize);
  r.number("scale", router.scale, 0.0, 1e6, /*leastAllowed=*/false);
  int64_t before = errors.number();
  r.boolean("correction", router.correction);
  bool isRead = errors.number() == before;
  r.number("correction_rate", router.correctionRate, 0.0, 1.0);
  if (r.has("correction_rate") && !router.correction && isRead)
    r.error("correction_rate", "changes nothing without a correction; valid: together with correction true");
  before = errors.number();
  r.integer("groups", router.groups, 1, maxExperts);
  isRead = errors.number() == before;
  router.keptGroups = router.groups;
  r.integer("kept_groups", router.keptGroups, 1, maxExperts);
  r.choice("group_score", router.groupScore, {"max", "top2"});
  for (StringRef key : {"kept_groups", "group_score"})
    if (r.has(key) && router.groups == 1 && isRead)
      r.error(key, "changes nothing where all experts are one group; valid: together with groups above 1");
  r.number("balance_loss", router.balanceLoss, 0.0, 1e3);
  r.number("z_loss", router.zLoss, 0.0, 1e3);
}

DenseSpec braid::readDense(Reader &r) {
  DenseSpec spec;
  r.requireInteger("hidden", spec.hidden, 1, maxHidden);
  r.choice("activation", spec.activation, activationNames());
  r.boolean("bias", spec.bias);
  r.number("gate_multiplier", spec.gateMultiplier, 0.0, 1e6, /*leastAllowed=*/false);
  if (r.has("gate_multiplier") && !ffnActivation(spec.activation).gated) {
    std::vector<StringRef> gated;
    for (const Activation &each : ffnActivations())
      if (each.gated)
        gated.push_back(each.name);
    r.error("gate_multiplier",
            "has no gate to be of with activation \"" + spec.activation + "\"; valid: with " + json::join(gated));
  }
  return spec;
}

std::optional<InjectSpec> braid::readInject(const Value &object, const std::string &path, Errors &errors,
                                            const ModelSpec &) {
  Reader r(object, path, errors);
  InjectSpec spec;
  if (!r.has("attention"))
    r.error("attention", "is missing; valid: an object such as {\"heads\": 8, \"head_dim\": 64}");
  if (const Value *attention = r.objectAt("attention")) {
    Reader a(*attention, r.pathOf("attention"), errors);
    spec.attention = readAttention(a, errors);
  }
  if (const Value *ffn = r.objectAt("ffn", /*nullable=*/true)) {
    Reader f(*ffn, r.pathOf("ffn"), errors);
    spec.ffn = readDense(f);
  }
  r.integer("attention_adapter_rank", spec.attentionAdapterRank, 0, maxWidth);
  int64_t before = errors.number();
  r.integer("ffn_adapter_rank", spec.ffnAdapterRank, 0, maxWidth);
  if (spec.ffnAdapterRank && !spec.ffn && errors.number() == before)
    r.error("ffn_adapter_rank", "has no feed-forward to be of; valid: together with ffn, or 0");
  return spec;
}

std::optional<FfnSpec> braid::readFfn(const Value &object, const std::string &path, Errors &errors,
                                      const ModelSpec &model) {
  Reader r(object, path, errors);
  const std::string *kind = r.requireChoice("kind", {"dense", "moe"});
  if (!kind) {
    r.ignoreRest();
    return std::nullopt;
  }
  if (*kind == "dense") {
    DenseSpec spec = readDense(r);
    r.boolean("token_shift", spec.tokenShift);
    r.choice("output_gate", spec.outputGate, outputGates);
    spec.residual = readResidual(r, errors, model);
    spec.normPlacement = readPlacement(r, model);
    return spec;
  }
  MoeSpec spec;
  r.requireInteger("num_experts", spec.numExperts, 1, maxExperts);
  spec.topK = 1;
  const Value *topK = r.take("top_k");
  int64_t experts = spec.numExperts > 0 ? spec.numExperts : maxExperts;
  bool isMore = topK && topK->kind == Kind::integer && topK->integer > experts; // checkModelSpec says so
  r.requireInteger("top_k", spec.topK, 1, isMore ? INT64_MAX : experts);
  r.requireInteger("expert_hidden", spec.expertHidden, 1, maxHidden);
  int64_t before = errors.number();
  r.integer("shared_hidden", spec.sharedHidden, 0, maxHidden);
  r.boolean("shared_gate", spec.sharedGate);
  if (spec.sharedGate && !spec.sharedHidden && errors.number() == before)
    r.error("shared_gate", "true without a shared expert; valid: together with a shared_hidden above 0");
  r.integer("latent_dim", spec.latentDim, 0, maxHidden);
  r.choice("activation", spec.activation, activationNames());
  r.boolean("bias", spec.bias);
  readRouter(r, errors, spec.router);
  readCapacity(r, spec);
  spec.residual = readResidual(r, errors, model);
  spec.normPlacement = readPlacement(r, model);
  return spec;
}
