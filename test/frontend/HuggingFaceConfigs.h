// Configs of transformers as tests give them, what becomes of one, and how many parameters it says.
#ifndef TEST_FRONTEND_HUGGINGFACECONFIGS_H
#define TEST_FRONTEND_HUGGINGFACECONFIGS_H

#include "frontend/ModelSpec.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include <gtest/gtest.h>

namespace braid {

struct Parsed {
  std::optional<ModelSpec> spec;
  std::vector<std::string> errors;
};

inline Parsed parse(const std::string &text, llvm::ArrayRef<KeyOverride> overrides = {}) {
  Parsed parsed;
  auto spec = parseModelSpec(
      text, "config.json", [&](const std::string &message) { parsed.errors.push_back(message); }, overrides);
  if (succeeded(spec))
    parsed.spec = *spec;
  EXPECT_EQ(parsed.spec.has_value(), parsed.errors.empty());
  return parsed;
}

/// {"model_type": <family>, <more>}
inline std::string config(const std::string &family, const std::string &more = "") {
  return "{\"model_type\": \"" + family + "\"" + (more.empty() ? "" : ",\n" + more) + "}";
}

inline void expectDescription(const std::string &text, const std::string &description) {
  Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.spec) << (parsed.errors.empty() ? "" : parsed.errors[0]);
  auto is = llvm::json::parse(parsed.spec->source), should = llvm::json::parse(description);
  ASSERT_TRUE(bool(is)) << llvm::toString(is.takeError());
  ASSERT_TRUE(bool(should)) << llvm::toString(should.takeError());
  is->getAsObject()->erase("import"); // below
  EXPECT_TRUE(*is == *should) << parsed.spec->source;
  EXPECT_TRUE(parse(parsed.spec->source).spec); // the description is one
}

inline void expectError(const std::string &text, const std::string &message) {
  Parsed parsed = parse(text);
  ASSERT_EQ(parsed.errors.size(), 1U) << text;
  EXPECT_EQ(parsed.errors[0], message);
}

/// Weights of a mixer.
inline int64_t parametersOf(const ModelSpec &spec, const MixerSpec &mixer) {
  int64_t total = 0;
  if (const auto *a = std::get_if<AttentionSpec>(&mixer)) {
    bool isOfHeads = a->outputGatePer == "head";
    total += spec.dModel * a->headDim * ((a->outputGate && !isOfHeads ? 3 : 2) * a->heads + 2 * a->kvHeads) +
             (a->outputGate && isOfHeads ? spec.dModel * a->heads : 0) +
             (a->qkNorm ? a->headDim * (a->qkNormOver == "heads" ? a->heads + a->kvHeads : 2) : 0) +
             (a->qkvBias ? a->headDim * (a->heads + 2 * a->kvHeads) : 0) + (a->outputBias ? spec.dModel : 0) +
             (a->sinks ? a->heads : 0);
  } else if (const auto *m = std::get_if<MlaSpec>(&mixer)) {
    int64_t queries = m->heads * (m->headDim + m->ropeDim);
    total += m->qRank ? m->qRank * (spec.dModel + queries + 1) : spec.dModel * queries;
    total += spec.dModel * (m->kvRank + m->ropeDim + m->heads * m->valueDim) +
             m->kvRank * (m->heads * (m->headDim + m->valueDim) + 1) +
             (m->outputGate ? spec.dModel * m->heads * (m->outputGatePer == "head" ? 1 : m->valueDim) : 0);
  } else if (const auto *c = std::get_if<ShortConvSpec>(&mixer)) {
    total += c->width * (4 * spec.dModel + c->conv.kernel + (c->conv.bias ? 1 : 0) + (c->projectionBias ? 3 : 0)) +
             (c->outputBias ? spec.dModel : 0);
  } else if (const auto *l = std::get_if<LsmSpec>(&mixer)) {
    int64_t keys = l->keyHeads * l->headDim, values = l->heads * l->valueDim;
    int64_t taps = l->conv ? l->conv->kernel + (l->conv->bias ? 1 : 0) : 0;
    if (l->kind == LsmKind::lightning)
      total += values * (5 * spec.dModel + 1);
    else if (l->kind ==
             LsmKind::mamba) // also a rate for every state of a channel; steps and keys are made of its channels
      total += values * (3 * spec.dModel + taps + 2 * (l->gateRank + keys) + 2 + l->headDim) +
               (l->bcdtNorm && l->bcdtNormWeights ? l->gateRank + 2 * l->headDim : 0);
    else if (l->kind == LsmKind::mamba2)
      total += spec.dModel * (2 * keys + 3 * values + l->heads) + taps * (2 * keys + values) + 3 * l->heads +
               (l->outputNorm ? values : 0);
    else if (l->kind == LsmKind::kda)
      total += spec.dModel * (2 * keys + 2 * values + (l->gateRank ? l->gateRank : keys) +
                              (l->outputGateRank ? l->outputGateRank : values) + l->heads) +
               l->gateRank * keys + l->outputGateRank * values + taps * (2 * keys + values) + l->heads + keys +
               l->valueDim + (l->outputGateBias ? values : 0);
    else if (l->kind == LsmKind::gla || l->kind == LsmKind::retnet || l->kind == LsmKind::deltanet) {
      int64_t ownKeys = l->kvHeads * l->headDim, ownValues = l->kvHeads * l->valueDim;
      total += spec.dModel * (keys + ownKeys + ownValues + (l->outputGate ? 2 : 1) * values) +
               taps * (keys + ownKeys + ownValues) + l->valueDim;
      if (l->kind == LsmKind::gla)
        total += l->gateRank * (spec.dModel + ownKeys) + ownKeys;
      if (l->kind == LsmKind::deltanet)
        total += spec.dModel * l->heads;
    } else if (l->kind == LsmKind::rglru)
      total += values * (3 * spec.dModel + 2 * l->valueDim + 3 + taps + (l->projectionBias ? 2 : 0)) +
               (l->outputBias ? spec.dModel : 0);
    else if (l->kind == LsmKind::hgrn2) // and once for all layers, bounds
      total += 2 * spec.dModel * (keys + values) + values;
    else if (l->kind == LsmKind::rwkv6)
      total += spec.dModel * (2 * keys + 3 * values) + (6 + 10 * l->mixRank) * spec.dModel +
               l->gateRank * (spec.dModel + keys) + 2 * (keys + values);
    else if (l->kind == LsmKind::rwkv7)
      total += 2 * spec.dModel * (keys + values) + 6 * spec.dModel + 5 * keys + 2 * values +
               (l->gateRank + l->rateRank) * (spec.dModel + keys) + l->outputGateRank * (spec.dModel + values) +
               (l->valueMix ? l->valueRank * (spec.dModel + values) + values : 0);
    else if (l->kind == LsmKind::mlstm)
      total += spec.dModel * (2 * keys + 3 * values + 2 * l->heads) + 2 * l->heads + values;
    else // the gated delta rule
      total += spec.dModel * (2 * keys + 3 * values + 2 * l->heads) + taps * (2 * keys + values) + 2 * l->heads +
               l->valueDim;
  }
  return total;
}

/// Weights of a block that layers share; of a layer that uses it.
inline std::pair<int64_t, int64_t> parametersOf(const ModelSpec &spec, const InjectSpec &inject) {
  int64_t D = spec.dModel, F = inject.ffn->hidden, few = inject.ffnAdapterRank;
  int64_t queries = inject.attention.headDim * inject.attention.heads,
          all = queries + 2 * inject.attention.headDim * inject.attention.kvHeads;
  return {3 * D + 2 * D * all + queries * D + 3 * D * F,
          D * D + few * (D + 2 * F) + inject.attentionAdapterRank * (6 * D + all)};
}

inline int64_t parameters(const ModelSpec &spec) {
  int64_t norm = spec.dModel * (spec.norm.hasBias() ? 2 : 1);
  int64_t total = spec.vocabSize * spec.dModel * (spec.tieEmbeddings ? 1 : 2) + norm * (spec.embeddingNorm ? 2 : 1);
  for (const auto &[letter, mixer] : spec.mixers)
    if (const auto *l = std::get_if<LsmSpec>(&mixer); l && l->kind == LsmKind::hgrn2 && l->lowerBounds == "learned")
      total += l->heads * l->headDim * spec.numLayers;
  for (const auto &[letter, inject] : spec.injects)
    total += parametersOf(spec, inject).first;
  for (int64_t layer = 0; layer < spec.numLayers; ++layer) {
    if (const InjectSpec *inject = spec.findInject(spec.injectOf(layer)))
      total += parametersOf(spec, *inject).second;
    std::string mixers = spec.mixersOf(layer);
    bool mixes = mixers.front() != noPart;
    const FfnSpec *ffn = spec.findFfn(spec.ffnOf(layer));
    total += ((mixes ? 1 : 0) + (ffn ? 1 : 0)) * (spec.normPlacement == NormPlacement::sandwich ? 2 : 1) * norm;
    for (char letter : mixers)
      total += mixes ? parametersOf(spec, *spec.findMixer(letter)) : 0;
    if (const auto *dense = std::get_if<DenseSpec>(ffn))
      total += (ffnActivation(dense->activation).gated ? 3 : 2) * spec.dModel * dense->hidden +
               (dense->bias ? 2 * dense->hidden + spec.dModel : 0) + (dense->tokenShift ? spec.dModel : 0) +
               (dense->outputGate ? spec.dModel * (spec.dModel + dense->tokenShift) : 0);
    else if (const auto *moe = std::get_if<MoeSpec>(ffn)) {
      int64_t matrices = moe->activation == "relu2" ? 2 : 3, width = moe->latentDim ? moe->latentDim : spec.dModel;
      total += moe->numExperts * (spec.dModel + matrices * width * moe->expertHidden + moe->router.correction +
                                  moe->router.bias + (moe->bias ? (matrices - 1) * moe->expertHidden + width : 0)) +
               spec.dModel * (matrices * moe->sharedHidden + 2 * moe->latentDim + moe->sharedGate);
    }
  }
  return total;
}

/// What `import` says of a weight, as JSON.
inline std::string imported(const Parsed &parsed, llvm::StringRef name) {
  auto source = llvm::json::parse(parsed.spec->source);
  EXPECT_TRUE(bool(source));
  const llvm::json::Value *value = source->getAsObject()->getObject("import")->getObject("weights")->get(name);
  return value ? llvm::formatv("{0}", *value).str() : "none";
}

} // namespace braid

#endif // TEST_FRONTEND_HUGGINGFACECONFIGS_H
