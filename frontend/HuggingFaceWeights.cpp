//===- HuggingFaceWeights.cpp - what transformers calls the weights of its models ---------------------------------===//
// From the description that a config became: its parts say which weights there are.
#include "frontend/HuggingFaceNames.h"
#include "frontend/ModelSpec.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// Products of a dense feed-forward with a gate.
static constexpr std::pair<StringRef, StringRef> denseParts[] = {
    {"1", "gate_proj"}, {"3", "up_proj"}, {"2", "down_proj"}};

void WeightNames::add(StringRef ours, StringRef theirs, How how) {
  if (llvm::any_of(weights, [&](const Field &field) { return field.name == ours; }))
    return; // another part of the same kind
  std::vector<Field> fields = {{"name", stringValue(theirs)}};
  if (!how.other.empty())
    fields.push_back({"or", stringValue(how.other)});
  if (how.groups > 1)
    fields.push_back({"groups", numberValue(how.groups)});
  if (how.last)
    fields.push_back({"rows", arrayValue({numberValue(how.first), numberValue(how.last)})});
  if (how.transposed)
    fields.push_back({"transposed", boolValue(true)});
  if (how.stacked)
    fields.push_back({"stacked", boolValue(true)});
  if (how.columnStep) {
    std::vector<Value> columns = {numberValue(how.column), numberValue(how.columnStep)};
    if (how.columns > 1)
      columns.push_back(numberValue(how.columns));
    fields.push_back({"columns", arrayValue(std::move(columns))});
  }
  if (how.times != 1)
    fields.push_back({"times", numberValue(how.times)});
  if (how.plus)
    fields.push_back({"plus", numberValue(how.plus)});
  weights.push_back({ours.str(), fields.size() == 1 ? stringValue(theirs) : objectValue(std::move(fields))});
}

void WeightNames::dense(StringRef ours, StringRef theirs, StringRef other) {
  for (auto [part, projection] : denseParts) {
    std::string matrix = ("." + projection + ".weight").str(), otherName = other.empty() ? "" : other.str() + matrix;
    ofLayer((ours + ".w" + part).str(), theirs.str() + matrix, {.transposed = true, .other = otherName});
  }
}

/// The gate's rows and those of what it opens are one matrix.
void WeightNames::fused(StringRef ours, StringRef into, StringRef outOf, int64_t hidden, bool stacked) {
  if (hidden < 1 || hidden > INT32_MAX)
    return; // the reader of descriptions says so
  auto part = [&](StringRef name, StringRef matrix, int64_t first, int64_t last) {
    ofLayer((ours + "." + name).str(), matrix, {.transposed = true, .first = first, .last = last, .stacked = stacked});
  };
  part("w1", into, 0, hidden);
  part("w3", into, hidden, 2 * hidden);
  part("w2", outOf, 0, 0);
}

void WeightNames::feedForwardOfXlstm(int64_t hidden) {
  if (isFused)
    return fused("ffn", "ffn.proj_up_gate_z.weight", "ffn.proj_down.weight", hidden, /*stacked=*/false);
  for (auto [part, theirs] :
       {std::pair<StringRef, StringRef>{"1", "proj_up_gate"}, {"3", "proj_up"}, {"2", "proj_down"}})
    ofLayer(("ffn.w" + part).str(), ("ffn." + theirs + ".weight").str(), {.transposed = true});
}

/// One name is that of a norm before a feed-forward, or of what attention gives; transformers writes others than were
/// published, and reads both.
void WeightNames::normsOfOlmoHybrid() {
  StringRef pattern = description.find("layer_pattern")->string;
  for (int64_t layer = 0, layers = std::min<int64_t>(number(description, "num_layers"), 1024); layer < layers;
       ++layer) {
    std::string own = "layers." + std::to_string(layer) + ".", theirs = body.str() + own;
    auto norm = [&](StringRef ours, StringRef name, StringRef other) {
      std::string spelled = other.empty() ? "" : theirs + other.str() + ".weight";
      add(own + ours.str() + ".weight", theirs + name.str() + ".weight", {.other = spelled});
    };
    bool isAttention = pattern[static_cast<size_t>(layer) % pattern.size()] == 'N';
    norm("norm1", isAttention ? "post_attention_layernorm" : "attention_layer_norm",
         isAttention ? "feedforward_layer_norm" : "input_layernorm");
    norm("norm2", isAttention ? "post_feedforward_layernorm" : "feedforward_layer_norm",
         isAttention ? "" : "post_attention_layernorm");
  }
}

/// Biases of all norms, and that of the embedding, which is the first layer's.
void WeightNames::normsOfRwkv() {
  bool hasBias = isTrue(*description.find("norm"), "bias");
  if (hasBias) {
    ofLayer("norm1.bias", "attn_norm.bias", {});
    ofLayer("norm2.bias", "ffn_norm.bias", {});
    vector("final_norm.bias", (body + "norm.bias").str());
  }
  for (StringRef part : {"weight", "bias"})
    if (isTrue(description, "embedding_norm") && (hasBias || part == "weight"))
      vector(("embed_norm." + part).str(), (body + "layers.0.pre_norm." + part).str());
}

/// All experts are one tensor, not transposed; columns of gates and of what they open take turns.
void WeightNames::expertsOfGptOss() {
  ofLayer("moe.router", "mlp.router.weight", {.transposed = true});
  ofLayer("moe.router_bias", "mlp.router.bias", {});
  for (auto [part, column] : {std::pair<StringRef, int64_t>{"1", 0}, {"3", 1}}) {
    ofLayer(("moe.w" + part).str(), "mlp.experts.gate_up_proj", {.stacked = true, .column = column, .columnStep = 2});
    ofLayer(("moe.b" + part).str(), "mlp.experts.gate_up_proj_bias",
            {.stacked = true, .column = column, .columnStep = 2});
  }
  ofLayer("moe.w2", "mlp.experts.down_proj", {.stacked = true});
  ofLayer("moe.b2", "mlp.experts.down_proj_bias", {.stacked = true});
}

void WeightNames::experts(const Value &ffn) {
  if (family == "gpt_oss")
    return expertsOfGptOss();
  if (family.starts_with("granitemoe")) {
    ofLayer("moe.router", "block_sparse_moe.router.layer.weight", {.transposed = true});
    fused("moe", "block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight",
          number(ffn, "expert_hidden"),
          /*stacked=*/true);
    return fused("shared", "shared_mlp.input_linear.weight", "shared_mlp.output_linear.weight",
                 number(ffn, "shared_hidden"),
                 /*stacked=*/false); // where there is one
  }
  if (family == "nemotron_h") {
    ofLayer("moe.router", "mixer.gate.weight", {.transposed = true});
    ofLayer("moe.correction", "mixer.gate.e_score_correction_bias", {});
    for (auto [part, projection] : {std::pair<StringRef, StringRef>{"w1", "up_proj"}, {"w2", "down_proj"}}) {
      ofLayer(("moe." + part).str(), ("mixer.experts.{expert}." + projection + ".weight").str(), {.transposed = true});
      ofLayer(("shared." + part).str(), ("mixer.shared_experts." + projection + ".weight").str(), {.transposed = true});
    }
    if (ffn.find("latent_dim")) {
      ofLayer("moe.latent_in", "mixer.fc1_latent_proj.weight", {.transposed = true});
      ofLayer("moe.latent_out", "mixer.fc2_latent_proj.weight", {.transposed = true});
    }
    return;
  }
  if (isLfm()) {
    ofLayer("moe.router", "feed_forward.gate.weight", {.transposed = true});
    if (isTrue(*ffn.find("router"), "correction"))
      ofLayer("moe.correction", "feed_forward.expert_bias", {});
    for (StringRef name : {"w1", "w3", "w2"})
      ofLayer(("moe." + name).str(), ("feed_forward.experts.{expert}." + name + ".weight").str(), {.transposed = true});
    return;
  }
  if (family == "lara_mini") {
    ofLayer("moe.router", "mlp.gate.weight", {.transposed = true});
    fused("moe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", number(ffn, "expert_hidden"), /*stacked=*/true);
    return dense("shared", "mlp.shared_expert");
  }
  bool isKimi = family == "kimi_linear", isBailing = family == "bailing_hybrid";
  StringRef block = isKimi ? "block_sparse_moe" : "mlp";
  if (family == "jamba") {
    ofLayer("moe.router", "feed_forward.router.weight", {.transposed = true});
    return dense("moe", "feed_forward.experts.{expert}");
  }
  if (family == "minimax_m2")
    ofLayer("moe.correction", "block_sparse_moe.e_score_correction_bias", {});
  if (family == "mixtral" || family.starts_with("minimax") || isKimi) {
    ofLayer("moe.router", "block_sparse_moe.gate.weight", {.transposed = true});
    for (StringRef name : {"w1", "w3", "w2"})
      ofLayer(("moe." + name).str(), ("block_sparse_moe.experts.{expert}." + name + ".weight").str(),
              {.transposed = true});
  } else {
    ofLayer("moe.router", "mlp.gate.weight", {.transposed = true});
    dense("moe", "mlp.experts.{expert}");
  }
  bool isErnie = family == "ernie4_5_moe";
  if (isTrue(*ffn.find("router"), "correction"))
    ofLayer("moe.correction",
            (block + (isErnie ? ".moe_statics." : ".gate.") + (isBailing ? "expert_bias" : "e_score_correction_bias"))
                .str(),
            {});
  if (!number(ffn, "shared_hidden"))
    return;
  if (isErnie || family == "glm4_moe" || family == "dots1" || family.starts_with("deepseek") ||
      family.starts_with("kimi") || isBailing)
    return dense("shared", (block + ".shared_experts").str());
  dense("shared", "mlp.shared_expert");
  if (isTrue(ffn, "shared_gate"))
    ofLayer("shared.gate", "mlp.shared_expert_gate.weight", {});
}

/// A block is stored where it is used first, and may be there again; the products of low rank that a layer adds to it are
/// in it, too, by the number of the layer among those with blocks.
void WeightNames::injects(std::vector<Field> &equal) {
  const Value *pattern = description.find("inject_pattern");
  if (!pattern)
    return;
  struct Use {
    int64_t layer, number;
  };
  llvm::MapVector<char, std::vector<Use>> uses;
  int64_t count = 0;
  for (int64_t layer = 0, layers = std::min<int64_t>(number(description, "num_layers"), 1024); layer < layers; ++layer)
    if (char letter = pattern->string[static_cast<size_t>(layer) % pattern->string.size()]; letter != noPart)
      uses[letter].push_back({layer, count++});
  auto layerOf = [&](int64_t layer) { return "layers." + std::to_string(layer) + "."; };
  add("layers.{layer}.inject.wi", (body + "layers.{layer}.linear.weight").str(), {.transposed = true});
  for (const Field &inject : description.find("injects")->fields) {
    const std::vector<Use> &own = uses[inject.name[0]];
    std::vector<std::string> stored;
    auto tensor = [&](const std::string &ours, const std::string &theirs, How how = {}) {
      add(ours, body.str() + layerOf(own[0].layer) + "shared_transformer." + theirs, how);
      if (!llvm::is_contained(stored, theirs))
        stored.push_back(theirs);
    };
    std::string block = "injects." + inject.name + ".";
    tensor(block + "norm1.weight", "input_layernorm.weight");
    tensor(block + "norm2.weight", "pre_ff_layernorm.weight");
    for (std::string part : {"q", "k", "v", "o"})
      tensor(block + "attn.w" + part, "self_attn." + part + "_proj.weight", {.transposed = true});
    const Value &ffn = *inject.value.find("ffn");
    int64_t hidden = number(ffn, "hidden");
    if (hidden < 1 || hidden > INT32_MAX)
      return; // the reader of descriptions says so
    auto gateAndUp = [&](const std::string &ours, StringRef one, StringRef three, const std::string &theirs,
                         bool isMatrix) {
      tensor(ours + one.str(), theirs, {.transposed = isMatrix, .first = 0, .last = hidden});
      tensor(ours + three.str(), theirs, {.transposed = isMatrix, .first = hidden, .last = 2 * hidden});
    };
    gateAndUp(block + "ffn.", "w1", "w3", "feed_forward.gate_up_proj.weight", true);
    tensor(block + "ffn.w2", "feed_forward.down_proj.weight", {.transposed = true});
    if (isTrue(ffn, "bias")) {
      gateAndUp(block + "ffn.", "b1", "b3", "feed_forward.gate_up_proj.bias", false);
      tensor(block + "ffn.b2", "feed_forward.down_proj.bias");
    }
    for (auto [layer, place] : own) {
      std::string mine = layerOf(layer) + "inject.", at = "_adapter_list." + std::to_string(place);
      tensor(mine + "ffn.a", "feed_forward.gate_up_proj" + at + ".0.weight", {.transposed = true});
      gateAndUp(mine + "ffn.", "w1_b", "w3_b", "feed_forward.gate_up_proj" + at + ".1.weight", true);
      for (std::string part : {"q", "k", "v"})
        if (inject.value.find("attention_adapter_rank")) {
          tensor(mine + "attn.w" + part + "_a", "self_attn.linear_" + part + at + ".0.weight", {.transposed = true});
          tensor(mine + "attn.w" + part + "_b", "self_attn.linear_" + part + at + ".1.weight", {.transposed = true});
        }
    }
    for (const Use &again : llvm::ArrayRef(own).drop_front())
      for (const std::string &name : stored)
        equal.push_back({body.str() + layerOf(again.layer) + "shared_transformer." + name,
                         stringValue(body.str() + layerOf(own[0].layer) + "shared_transformer." + name)});
  }
}

Value WeightNames::run() {
  std::string embedding = (body + (onePart || isXlstm || isFla  ? "embeddings.weight"
                                   : family == "bailing_hybrid" ? "word_embeddings.weight"
                                                                : "embed_tokens.weight"))
                              .str();
  vector("embed.weight", embedding);
  bool hasMixers = !description.find("mixers")->fields.empty(), hasFfns = !description.find("ffns")->fields.empty();
  const Value *placement = description.find("norm_placement");
  bool isSandwich = placement && placement->string == "sandwich", isOutput = placement && placement->string == "output",
       isGlm4 = family == "glm4", namesFeedForward = family == "bamba" || family == "jamba" || family == "falcon_h1";
  StringRef behind = "post_attention_layernorm.weight"; // attention: olmo2's and its kin's are of what it gives
  if (family == "olmo_hybrid")
    normsOfOlmoHybrid();
  else if (hasMixers)
    ofLayer("norm1.weight",
            onePart       ? "norm.weight"
            : isXlstm     ? "norm_mlstm.weight"
            : isGriffin() ? "temporal_pre_norm.weight"
            : isFla       ? "attn_norm.weight"
            : isOutput    ? behind
            : isLfm()     ? "operator_norm.weight"
                          : "input_layernorm.weight",
            {.plus = normPlus});
  if (hasFfns && family != "olmo_hybrid")
    ofLayer("norm2.weight",
            onePart                 ? "norm.weight"
            : isXlstm               ? "norm_ffn.weight"
            : isGriffin()           ? "channel_pre_norm.weight"
            : isRwkv()              ? "ffn_norm.weight"
            : isFla                 ? "mlp_norm.weight"
            : isLfm()               ? "ffn_norm.weight"
            : namesFeedForward      ? "pre_ff_layernorm.weight"
            : isSandwich && !isGlm4 ? "pre_feedforward_layernorm.weight"
            : isOutput              ? "post_feedforward_layernorm.weight"
                                    : behind,
            {.plus = normPlus});
  if (isSandwich && isLfm()) {
    ofLayer("norm1_post.weight", "post_operator_norm.weight", {});
    ofLayer("norm2_post.weight", "post_ffn_norm.weight", {});
  } else if (isSandwich) {
    ofLayer("norm1_post.weight", isGlm4 ? "post_self_attn_layernorm.weight" : behind, {.plus = normPlus});
    ofLayer("norm2_post.weight", isGlm4 ? "post_mlp_layernorm.weight" : "post_feedforward_layernorm.weight",
            {.plus = normPlus});
  }
  StringRef sideBySide = description.find("layer_pattern")->string; // "(NM)", or no parentheses
  for (const Field &mixer : description.find("mixers")->fields) {
    StringRef kind = mixer.value.find("kind")->string;
    place = sideBySide.starts_with("(") ? "mixer" + std::to_string(sideBySide.find(mixer.name)) + "." : "";
    if (kind == "attention")
      attention(mixer.value);
    else if (isRwkv())
      kind == "rwkv6" ? rwkv6(mixer.value) : rwkv7(mixer.value);
    else if (isFla)
      linearOfFla(mixer.value);
    else if (kind == "mla")
      latentAttention(mixer.value);
    else if (kind == "lightning")
      lightning(mixer.value);
    else if (kind == "kda")
      kimiDelta(mixer.value);
    else if (kind == "short_conv")
      shortConv(mixer.value);
    else if (kind == "mlstm")
      mlstm(mixer.value);
    else if (kind == "rglru")
      rglru();
    else
      kind == "gated_deltanet" ? gatedDelta(mixer.value) : mamba(mixer.value);
  }
  place.clear();
  for (const Field &ffn : description.find("ffns")->fields) {
    if (ffn.value.find("kind")->string == "moe") {
      experts(ffn.value);
    } else if (onePart) {
      ofLayer("ffn.w1", "mixer.up_proj.weight", {.transposed = true});
      ofLayer("ffn.w2", "mixer.down_proj.weight", {.transposed = true});
    } else if (isRwkv()) {
      feedForwardOfRwkv();
    } else if (isXlstm) {
      feedForwardOfXlstm(number(ffn.value, "hidden"));
    } else if (isLfm()) {
      for (StringRef name : {"w1", "w3", "w2"})
        ofLayer(("ffn." + name).str(), ("feed_forward." + name + ".weight").str(), {.transposed = true});
    } else if (family == "granitemoehybrid") {
      fused("ffn", "shared_mlp.input_linear.weight", "shared_mlp.output_linear.weight", number(ffn.value, "hidden"),
            /*stacked=*/false);
    } else if (family == "glm4" || family == "phi3") {
      fused("ffn", "mlp.gate_up_proj.weight", "mlp.down_proj.weight", number(ffn.value, "hidden"), /*stacked=*/false);
    } else if (family == "kimi_linear") { // the second as transformers writes them, which calls layers with experts so
      dense("ffn", "mlp", "block_sparse_moe");
    } else {
      StringRef theirs = namesFeedForward ? "feed_forward" : isGriffin() ? "mlp_block" : "mlp";
      dense("ffn", theirs);
      if (isTrue(ffn.value, "bias"))
        for (auto [part, projection] : denseParts)
          ofLayer(("ffn.b" + part).str(), (theirs + "." + projection + ".bias").str(), {});
    }
  }
  add("final_norm.weight",
      (body + (onePart                                  ? "norm_f.weight"
               : isXlstm                                ? "out_norm.weight"
               : isLfm()                                ? "embedding_norm.weight"
               : namesFeedForward || family == "zamba2" ? "final_layernorm.weight"
               : isGriffin()                            ? "final_norm.weight"
                                                        : "norm.weight"))
          .str(),
      {.plus = normPlus});
  if (isRwkv())
    normsOfRwkv();
  // Constants that some versions keep beside the weights, and a copy of a head that is the embedding.
  std::vector<Value> unread = {stringValue("*.rotary_emb.inv_freq")};
  if (family == "glm4_moe" || family == "deepseek_v3" || family == "kimi_k2" ||
      family == "bailing_hybrid") // the same, as a layer behind the last
    unread.push_back(stringValue(llvm::formatv("model.layers.{0}.*", number(description, "num_layers")).str()));
  if (family.starts_with("qwen3_next") || family.starts_with("qwen3_5") || family == "nemotron_h")
    unread.push_back(stringValue("mtp.*")); // heads that predict further tokens
  if (family == "ernie4_5_moe")
    unread.push_back(stringValue("model.mtp_*")); // the same
  if (beside)
    unread.push_back(stringValue("model.visual.*"));
  if (family == "hgrn2") // of layers that may all be attention
    unread.push_back(stringValue("model.lower_bounds"));
  if (family == "minimax") // powers of its decays
    for (StringRef name : {"*.query_decay", "*.key_decay", "*.diagonal_decay"})
      unread.push_back(stringValue(name));
  std::vector<Field> equal;
  injects(equal);
  if (isTrue(description, "tie_embeddings"))
    equal.push_back({"lm_head.weight", stringValue(embedding)});
  else
    matrix("head.weight", "lm_head.weight");
  return objectValue({{"weights", objectValue(std::move(weights))},
                      {"equal", objectValue(std::move(equal))},
                      {"unread", arrayValue(std::move(unread))}});
}

Value json::importOfHuggingFace(StringRef family, const Value &description, const WeightLayout &layout) {
  return WeightNames(family, description, layout).run();
}
