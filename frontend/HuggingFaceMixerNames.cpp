//===- HuggingFaceMixerNames.cpp - what transformers calls the weights of its mixers -----------------------------===//
#include "frontend/HuggingFaceNames.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

void WeightNames::attention(const Value &mixer) {
  if (family == "phi3") { // first all rows of q, then those of k and of v
    int64_t width = number(mixer, "head_dim"), first = 0;
    for (auto [name, key] : {std::pair<StringRef, StringRef>{"q", "heads"}, {"k", "kv_heads"}, {"v", "kv_heads"}}) {
      int64_t heads = number(mixer, key), last = first;
      if (heads < 1 || width < 1 || llvm::MulOverflow(heads, width, last) || last > INT32_MAX)
        return; // the reader of descriptions says so
      last += first;
      ofLayer(("attn.w" + name).str(), "self_attn.qkv_proj.weight", {.transposed = true, .first = first, .last = last});
      first = last;
    }
    return ofLayer("attn.wo", "self_attn.o_proj.weight", {.transposed = true});
  }
  if (family == "lfm3" && mixer.find("output_gate"))
    ofLayer("attn.wg", "self_attn.gate_proj.weight", {.transposed = true});
  // Of each head first the rows of q, then those of its gate.
  if (family != "lfm3" && mixer.find("output_gate")) {
    int64_t heads = number(mixer, "heads"), width = number(mixer, "head_dim");
    if (heads < 1 || width < 1)
      return; // the reader of descriptions says so
    ofLayer("attn.wq", "self_attn.q_proj.weight", {.transposed = true, .groups = heads, .first = 0, .last = width});
    ofLayer("attn.wg", "self_attn.q_proj.weight",
            {.transposed = true, .groups = heads, .first = width, .last = 2 * width});
  } else {
    ofLayer("attn.wq", (attentionName + "q_proj.weight").str(), {.transposed = true});
  }
  for (StringRef name : {"k", "v"})
    ofLayer(("attn.w" + name).str(), (attentionName + name + "_proj.weight").str(), {.transposed = true});
  ofLayer("attn.wo", (attentionName + outName() + ".weight").str(), {.transposed = true});
  if (isTrue(mixer, "qkv_bias"))
    for (StringRef name : {"q", "k", "v"})
      ofLayer(("attn.b" + name).str(), (attentionName + name + "_proj.bias").str(), {});
  if (isTrue(mixer, "output_bias"))
    ofLayer("attn.bo", (attentionName + "o_proj.bias").str(), {});
  if (isTrue(mixer, "sinks"))
    ofLayer("attn.sinks", "self_attn.sinks", {});
  if (isTrue(mixer, "qk_norm"))
    for (StringRef name : {"q", "k"})
      ofLayer(("attn." + name + "_norm.weight").str(),
              ("self_attn." + name + (isLfm2() ? "_layernorm.weight" : "_norm.weight")).str(), {.plus = normPlus});
}

/// qwen3_next: rows of one matrix per key head: q, k, v of its value heads, their gates; of another the write strengths
/// and decays of its value heads. qwen3_5: one matrix for all q, all k, all v, others for the rest. One convolution over
/// all q, all k, all v.
void WeightNames::gatedDelta(const Value &mixer) {
  int64_t values = number(mixer, "heads"), keys = number(mixer, "key_heads"), K = number(mixer, "head_dim"),
          V = number(mixer, "value_dim");
  if (keys < 1 || values < keys || K < 1 || V < 1)
    return; // the reader of descriptions says so
  if (family == "olmo_hybrid") {
    for (StringRef name : {"q", "k", "v", "g", "b", "a", "o"})
      ofLayer(("lsm.w" + name).str(), ("linear_attn." + name + "_proj.weight").str(), {.transposed = true});
    for (StringRef name : {"q", "k", "v"})
      ofLayer(("lsm.conv_" + name + ".weight").str(), ("linear_attn." + name + "_conv1d.weight").str(), {});
    ofLayer("lsm.a_log", "linear_attn.A_log", {});
    ofLayer("lsm.dt_bias", "linear_attn.dt_bias", {});
    return ofLayer("lsm.norm.weight", "linear_attn.o_norm.weight", {});
  }
  int64_t shared = values / keys;
  auto rows = [&](StringRef ours, StringRef theirs, int64_t groups, int64_t first, int64_t count, bool transposed) {
    ofLayer(("lsm." + ours).str(), ("linear_attn." + theirs + ".weight").str(),
            {.transposed = transposed, .groups = groups, .first = first, .last = first + count});
  };
  bool isLara = family == "lara_mini"; // all are rows of one matrix
  if (isLara) {
    int64_t first = 0;
    for (auto [name, count] : {std::pair<StringRef, int64_t>{"wq", keys * K},
                               {"wk", keys * K},
                               {"wv", values * V},
                               {"wg", values * V},
                               {"wb", values},
                               {"wa", values}}) {
      rows(name, "in_proj", 1, first, count, true);
      first += count;
    }
  } else if (family.starts_with("qwen3_5")) {
    rows("wq", "in_proj_qkv", 1, 0, keys * K, true);
    rows("wk", "in_proj_qkv", 1, keys * K, keys * K, true);
    rows("wv", "in_proj_qkv", 1, 2 * keys * K, values * V, true);
    for (auto [ours, theirs] : {std::pair<StringRef, StringRef>{"g", "z"}, {"b", "b"}, {"a", "a"}})
      ofLayer(("lsm.w" + ours).str(), ("linear_attn.in_proj_" + theirs + ".weight").str(), {.transposed = true});
  } else {
    rows("wq", "in_proj_qkvz", keys, 0, K, true);
    rows("wk", "in_proj_qkvz", keys, K, K, true);
    rows("wv", "in_proj_qkvz", keys, 2 * K, shared * V, true);
    rows("wg", "in_proj_qkvz", keys, 2 * K + shared * V, shared * V, true);
    rows("wb", "in_proj_ba", keys, 0, shared, true);
    rows("wa", "in_proj_ba", keys, shared, shared, true);
  }
  rows("conv_q.weight", "conv1d", 1, 0, keys * K, false);
  rows("conv_k.weight", "conv1d", 1, keys * K, keys * K, false);
  rows("conv_v.weight", "conv1d", 1, 2 * keys * K, values * V, false);
  ofLayer("lsm.a_log", "linear_attn.A_log", {});
  ofLayer("lsm.dt_bias", "linear_attn.dt_bias", {});
  ofLayer("lsm.norm.weight", isLara ? "linear_attn.out_norm.weight" : "linear_attn.norm.weight", {});
  ofLayer("lsm.wo", "linear_attn.out_proj.weight", {.transposed = true});
}

/// Of each head the rows of q, k and v.
void WeightNames::lightning(const Value &mixer) {
  int64_t heads = number(mixer, "heads"), width = number(mixer, "head_dim");
  if (heads < 1 || width < 1)
    return; // the reader of descriptions says so
  static constexpr StringRef parts[] = {"lsm.wq", "lsm.wk", "lsm.wv"};
  for (auto [i, name] : llvm::enumerate(parts)) {
    int64_t first = static_cast<int64_t>(i) * width;
    ofLayer(name, "self_attn.qkv_proj.weight",
            {.transposed = true, .groups = heads, .first = first, .last = first + width});
  }
  ofLayer("lsm.log_decay", "self_attn.slope_rate", {.times = -1});
  ofLayer("lsm.wg", "self_attn.output_gate.weight", {.transposed = true});
  ofLayer("lsm.norm.weight", "self_attn.norm.weight", {});
  ofLayer("lsm.wo", "self_attn.out_proj.weight", {.transposed = true});
}

/// Rows of matrices: of the latent that keys and values are made of, and the key that heads share; of each head its key
/// and its value; of each head its own query, and the one for the shared key.
void WeightNames::latentAttention(const Value &mixer) {
  int64_t heads = number(mixer, "heads"), latent = number(mixer, "kv_rank"), own = number(mixer, "head_dim"),
          shared = number(mixer, "rope_dim"), values = number(mixer, "value_dim");
  if (heads < 1 || latent < 1 || own < 1 || shared < 1 || values < 1)
    return; // the reader of descriptions says so
  auto rows = [&](StringRef ours, StringRef theirs, int64_t groups, int64_t first, int64_t count) {
    ofLayer(("attn." + ours).str(), (attentionName + theirs + ".weight").str(),
            {.transposed = true, .groups = groups, .first = first, .last = first + count});
  };
  bool hasRank = number(mixer, "q_rank") > 0;
  StringRef queries = hasRank ? "q_b_proj" : "q_proj";
  if (hasRank) {
    ofLayer("attn.wq_down", (attentionName + "q_a_proj.weight").str(), {.transposed = true});
    ofLayer("attn.q_norm.weight", (attentionName + "q_a_layernorm.weight").str(), {});
  }
  rows("wq", queries, heads, 0, own);
  rows("wq_rope", queries, heads, own, shared);
  rows("wkv_down", "kv_a_proj_with_mqa", 1, 0, latent);
  rows("wk_rope", "kv_a_proj_with_mqa", 1, latent, shared);
  ofLayer("attn.kv_norm.weight", (attentionName + "kv_a_layernorm.weight").str(), {});
  rows("wk", "kv_b_proj", heads, 0, own);
  rows("wv", "kv_b_proj", heads, own, values);
  if (mixer.find("output_gate"))
    ofLayer("attn.wg", (attentionName + "g_proj.weight").str(), {.transposed = true});
  ofLayer("attn.wo", (attentionName + outName() + ".weight").str(), {.transposed = true});
}

/// Decays and gates of low rank, or whole.
void WeightNames::kimiDelta(const Value &mixer) {
  auto projection = [&](StringRef ours, StringRef theirs) {
    ofLayer(("lsm.w" + ours).str(), (attentionName + theirs + ".weight").str(), {.transposed = true});
  };
  for (StringRef name : {"q", "k", "v", "b"})
    projection(name, (name + "_proj").str());
  for (auto [name, key] : {std::pair<StringRef, StringRef>{"f", "gate_rank"}, {"g", "output_gate_rank"}}) {
    bool isNarrow = number(mixer, key) > 0;
    if (!isNarrow)
      projection(name, (name + "_proj").str());
    for (auto [part, letter] : {std::pair<StringRef, StringRef>{"1", "_a"}, {"2", "_b"}})
      if (isNarrow)
        projection((name + part).str(), (name + letter + "_proj").str());
  }
  projection("o", outName());
  for (StringRef name : {"q", "k", "v"})
    ofLayer(("lsm.conv_" + name + ".weight").str(), (attentionName + name + "_conv1d.weight").str(), {});
  ofLayer("lsm.a_log", (attentionName + "A_log").str(), {});
  ofLayer("lsm.dt_bias", (attentionName + "dt_bias").str(), {});
  ofLayer("lsm.norm.weight", (attentionName + "o_norm.weight").str(), {});
}

/// Rows of one matrix for what is multiplied before the convolution, behind it, and what is convolved.
void WeightNames::shortConv(const Value &mixer) {
  int64_t width = number(description, "d_model"), first = 0;
  if (width < 1 || width > INT32_MAX)
    return; // the reader of descriptions says so
  for (StringRef name : {"b", "c", "z"}) {
    ofLayer(("lsm.w" + name).str(), "conv.in_proj.weight", {.transposed = true, .first = first, .last = first + width});
    if (isTrue(mixer, "projection_bias"))
      ofLayer(("lsm.b" + name).str(), "conv.in_proj.bias", {.first = first, .last = first + width});
    first += width;
  }
  ofLayer("lsm.conv_z.weight", "conv.conv.weight", {});
  ofLayer("lsm.wo", "conv.out_proj.weight", {.transposed = true});
  if (isTrue(mixer, "output_bias")) {
    ofLayer("lsm.conv_z.bias", "conv.conv.bias", {});
    ofLayer("lsm.bo", "conv.out_proj.bias", {});
  }
}

/// A matrix for each projection, or rows of one for q, k, v and the output's gate, and of one for the gates of the memory.
void WeightNames::mlstm(const Value &mixer) {
  int64_t heads = number(mixer, "heads"), keys = number(mixer, "head_dim"), values = number(mixer, "value_dim");
  if (heads < 1 || keys < 1 || values < 1)
    return; // the reader of descriptions says so
  int64_t first = 0, gate = 0;
  auto of = [&](StringRef ours, StringRef theirs, How how) { ofLayer(ours, ("mlstm_layer." + theirs).str(), how); };
  for (auto [name, theirs, width] : {std::tuple<StringRef, StringRef, int64_t>{"q", "q", heads * keys},
                                     {"k", "k", heads * keys},
                                     {"v", "v", heads * values},
                                     {"g", "ogate_preact", heads * values}}) {
    if (isFused)
      of(("lsm.w" + name).str(), "qkv_opreact.weight", {.transposed = true, .first = first, .last = first + width});
    else
      of(("lsm.w" + name).str(), (theirs + ".weight").str(), {.transposed = true});
    first += width;
  }
  for (StringRef name : {"i", "f"}) {
    std::string own = (name + "gate_preact").str();
    StringRef theirs = isFused ? "ifgate_preact" : StringRef(own);
    int64_t last = isFused ? gate + heads : 0;
    of(("lsm.w" + name).str(), (theirs + ".weight").str(), {.transposed = true, .first = gate, .last = last});
    of(("lsm.b" + name).str(), (theirs + ".bias").str(), {.first = gate, .last = last});
    gate = last;
  }
  of("lsm.norm.weight", "multihead_norm.weight", {});
  of("lsm.wo", "out_proj.weight", {.transposed = true});
}

/// Each gate's block of every head is a matrix that is not transposed.
void WeightNames::rglru() {
  auto of = [&](StringRef ours, StringRef theirs, bool transposed = false) {
    ofLayer(("lsm." + ours).str(), ("temporal_block." + theirs).str(), {.transposed = transposed});
  };
  for (auto [name, theirs] :
       {std::pair<StringRef, StringRef>{"v", "linear_x"}, {"g", "linear_y"}, {"o", "linear_out"}}) {
    of(("w" + name).str(), (theirs + ".weight").str(), true);
    of(("b" + name).str(), (theirs + ".bias").str());
  }
  for (auto [name, theirs] : {std::pair<StringRef, StringRef>{"r", "recurrent_gate"}, {"i", "input_gate"}}) {
    of(("w" + name).str(), ("rg_lru." + theirs + "_weight").str());
    of(("b" + name).str(), ("rg_lru." + theirs + "_bias").str());
  }
  of("a", "rg_lru.recurrent_param");
  of("conv_v.weight", "conv_1d.weight");
  of("conv_v.bias", "conv_1d.bias");
}

/// Each projection is a matrix. Those of low rank are numbered, and their second may have a bias.
void WeightNames::linearOfFla(const Value &mixer) {
  auto of = [&](StringRef ours, StringRef theirs, How how = {}) { ofLayer(ours, (attentionName + theirs).str(), how); };
  auto projection = [&](StringRef ours, StringRef theirs) {
    of(("lsm.w" + ours).str(), (theirs + ".weight").str(), {.transposed = true});
  };
  auto narrow = [&](StringRef ours, StringRef theirs) {
    for (auto [part, number] : {std::pair<StringRef, StringRef>{"1", ".0"}, {"2", ".1"}})
      projection((ours + part).str(), (theirs + number).str());
  };
  StringRef kind = mixer.find("kind")->string;
  bool isKda = kind == "kda", isGated = kind == "gated_deltanet", isDelta = isKda || isGated || kind == "deltanet";
  const Value *gate = mixer.find("output_gate"), *conv = mixer.find("conv");
  bool hasGate = !gate || gate->kind != Kind::null;
  if (kind == "hgrn2") {
    for (auto [name, theirs] : {std::pair<StringRef, StringRef>{"q", "q"}, {"k", "f"}, {"v", "i"}, {"o", "o"}}) {
      projection(name, (theirs + "_proj").str());
      if (conv && name != "o")
        of(("lsm.conv_" + name + ".weight").str(), (theirs + "_conv1d.weight").str());
    }
    if (mixer.find("lower_bounds")->kind != Kind::null)
      matrix("lsm.lower_bounds", (body + "lower_bounds").str());
    return of("lsm.norm.weight", "g_norm.weight");
  }
  for (StringRef name : {"q", "k", "v", "o"})
    projection(name, (name + "_proj").str());
  for (StringRef name : {"q", "k", "v"})
    if (conv)
      of(("lsm.conv_" + name + ".weight").str(), (name + "_conv1d.weight").str());
  if (hasGate && !isKda)
    projection("g", "g_proj");
  if (isDelta)
    projection("b", "b_proj");
  if (isGated)
    projection("a", "a_proj");
  if (kind == "gla") {
    narrow("f", "gk_proj");
    of("lsm.bf", "gk_proj.1.bias");
  }
  if (isKda) {
    narrow("f", "f_proj");
    narrow("g", "g_proj");
    of("lsm.bg", "g_proj.1.bias");
  }
  if (kind == "retnet") {
    std::vector<Value> decays;
    for (int64_t h = 0, heads = std::min<int64_t>(number(mixer, "heads"), maxHeads); h < heads; ++h)
      decays.push_back(numberValue(std::log1p(-std::exp2(-5.0 - static_cast<double>(h)))));
    constant("layers.{layer}.lsm.log_decay", decays);
  }
  if (isKda || isGated)
    for (auto [ours, theirs] : {std::pair<StringRef, StringRef>{"a_log", "A_log"}, {"dt_bias", "dt_bias"}})
      of(("lsm." + ours).str(), theirs);
  if (isDelta)
    of("lsm.norm.weight", "o_norm.weight");
  else if (hasGate) // with fuse_norm, or without
    of("lsm.norm.weight", "g_norm_swish_gate.weight", {.other = "attn.g_norm.weight"});
  else
    of("lsm.norm.weight", "g_norm.weight");
}

/// The token before is read by taps, which the library has none of.
void WeightNames::tokenShift(StringRef of) {
  constant(("layers.{layer}." + of + ".taps").str(), {numberValue(1.0), numberValue(0.0)});
}

/// Five mixtures of tokens: rows of one matrix lead to all of their features, columns of another back.
void WeightNames::rwkv6(const Value &mixer) {
  auto of = [&](StringRef ours, StringRef theirs, How how = {}) {
    ofLayer(("lsm." + ours).str(), (attentionName + theirs).str(), how);
  };
  for (StringRef shifted : {"x", "k", "v", "decay"})
    tokenShift(("lsm.shift_" + shifted).str());
  int64_t rank = number(mixer, "mix_rank"), first = 0, row = 0;
  if (rank < 1 || rank > INT32_MAX)
    return; // the reader of descriptions says so
  of("mu_x", "x_proj.0.mu");
  for (StringRef name : {"q", "w", "k", "v", "g"}) {
    of(("mu_" + name).str(), "x_bias", {.first = row, .last = row + 1});
    of(("mix_" + name + "_a").str(), "x_proj.0.linear.weight",
       {.transposed = true, .first = first, .last = first + rank});
    of(("mix_" + name + "_b").str(), "x_proj.2.weight",
       {.transposed = true, .column = first, .columnStep = 5 * rank, .columns = rank});
    first += rank, ++row;
  }
  for (auto [name, theirs] : {std::pair<StringRef, StringRef>{"q", "r"}, {"k", "k"}, {"v", "v"}, {"g", "g"}})
    of(("w" + name).str(), (theirs + "_proj.linear.weight").str(), {.transposed = true});
  of("decay_a", "w_proj.linear.lora.0.weight", {.transposed = true});
  of("decay_b", "w_proj.linear.lora.2.weight", {.transposed = true});
  of("w0", "w_proj.linear.lora.2.bias");
  of("u", "bonus");
  of("wo", "o_proj.weight", {.transposed = true});
  for (StringRef part : {"weight", "bias"})
    of(("norm." + part).str(), ("g_norm." + part).str());
}

void WeightNames::feedForwardOfRwkv() {
  bool is6 = family == "rwkv6";
  tokenShift("ffn.shift_x");
  ofLayer("ffn.mu", is6 ? "ffn.key.mu" : "ffn.x_k", {});
  ofLayer("ffn.w1", is6 ? "ffn.key.linear.weight" : "ffn.key.weight", {.transposed = true});
  ofLayer("ffn.w2", "ffn.value.weight", {.transposed = true});
  if (is6) {
    ofLayer("ffn.mu_g", "ffn.receptance.mu", {});
    ofLayer("ffn.wg", "ffn.receptance.linear.weight", {.transposed = true});
  }
}

/// Shares of the token before, and products of low rank, the second of which may have a bias.
void WeightNames::rwkv7(const Value &mixer) {
  auto of = [&](StringRef ours, StringRef theirs, bool transposed = false) {
    ofLayer(("lsm." + ours).str(), (attentionName + theirs).str(), {.transposed = transposed});
  };
  tokenShift("lsm.shift_x");
  for (auto [name, theirs] : {std::pair<StringRef, StringRef>{"q", "r"}, {"k", "k"}, {"v", "v"}, {"o", "o"}})
    of(("w" + name).str(), (theirs + "_proj.weight").str(), true);
  for (auto [name, theirs] :
       {std::pair<StringRef, StringRef>{"q", "r"}, {"k", "k"}, {"v", "v"}, {"w", "w"}, {"a", "a"}, {"g", "g"}})
    of(("mu_" + name).str(), ("x_" + theirs).str());
  bool mixes = mixer.find("value_mix") == nullptr;
  for (auto [name, theirs, bias] : {std::tuple<StringRef, StringRef, StringRef>{"decay", "w", "w0"},
                                    {"rate", "a", "a0"},
                                    {"value", "v", "v0"},
                                    {"gate", "g", ""}}) {
    if (name == "value" && !mixes)
      continue;
    std::string lora = (theirs + "_lora.lora.").str();
    of((name + "_a").str(), lora + "0.weight", true);
    of((name + "_b").str(), lora + "2.weight", true);
    if (!bias.empty())
      of(bias, lora + "2.bias");
  }
  for (StringRef name : {"k_k", "k_a", "r_k"})
    of(name, name);
  for (StringRef part : {"weight", "bias"})
    of(("norm." + part).str(), ("g_norm." + part).str());
}

/// Mamba-2: rows of one matrix for the gate, v, k, q and the steps, and one convolution over v, k and q. Mamba: one for u
/// and its gate, and of u another for the steps, k and q.
void WeightNames::mamba(const Value &mixer) {
  int64_t H = number(mixer, "heads"), K = number(mixer, "head_dim"), V = number(mixer, "value_dim");
  bool first = mixer.find("kind")->string == "mamba";
  int64_t inner = H * V, keys = first ? K : number(mixer, "key_heads") * K;
  if (H < 1 || V < 1 || keys < 1)
    return; // the reader of descriptions says so
  auto rows = [&](StringRef ours, StringRef theirs, int64_t begin, int64_t count, bool transposed) {
    ofLayer(("lsm." + ours).str(), (mambaName + theirs).str(),
            {.transposed = transposed, .first = begin, .last = begin + count});
  };
  auto of = [&](StringRef ours, StringRef theirs, How how) { ofLayer(ours, (mambaName + theirs).str(), how); };
  const Value *conv = mixer.find("conv");
  auto convolution = [&](StringRef name, int64_t begin, int64_t count) {
    rows(("conv_" + name + ".weight").str(), "conv1d.weight", begin, count, false);
    if (isTrue(*conv, "bias"))
      rows(("conv_" + name + ".bias").str(), "conv1d.bias", begin, count, false);
  };
  convolution("v", 0, inner);
  if (first) {
    int64_t rank = number(mixer, "gate_rank");
    rows("wv", "in_proj.weight", 0, inner, true);
    rows("wg", "in_proj.weight", inner, inner, true);
    rows("wdt_a", "x_proj.weight", 0, rank, true);
    rows("wk", "x_proj.weight", rank, keys, true);
    rows("wq", "x_proj.weight", rank + keys, keys, true);
    of("lsm.wdt_b", "dt_proj.weight", {.transposed = true});
    of("lsm.dt_bias", "dt_proj.bias", {});
    of("lsm.a_log", "A_log", {.transposed = true});
    if (isTrue(mixer, "bcdt_norm") && !mixer.find("bcdt_norm_weights"))
      for (auto [ours, theirs] : {std::pair<StringRef, StringRef>{"dt", "dt"}, {"k", "b"}, {"q", "c"}})
        of(("lsm." + ours + "_norm.weight").str(), (theirs + "_layernorm.weight").str(), {});
  } else {
    convolution("k", inner, keys);
    convolution("q", inner + keys, keys);
    struct {
      StringRef name;
      int64_t begin, count;
    } segments[] = {{"g", 0, inner},
                    {"v", inner, inner},
                    {"k", 2 * inner, keys},
                    {"q", 2 * inner + keys, keys},
                    {"dt", 2 * (inner + keys), H}};
    for (auto [name, begin, count] : segments) {
      rows(("w" + name).str(), "in_proj.weight", begin, count, true);
      if (isTrue(mixer, "projection_bias"))
        rows(("b" + name).str(), "in_proj.bias", begin, count, false);
    }
    of("lsm.dt_bias", "dt_bias", {});
    of("lsm.a_log", "A_log", {});
    if (!mixer.find("output_norm") || isTrue(mixer, "output_norm"))
      of("lsm.norm.weight", "norm.weight", {});
    if (isTrue(mixer, "output_bias"))
      of("lsm.bo", "out_proj.bias", {});
  }
  of("lsm.d", "D", {});
  of("lsm.wo", "out_proj.weight", {.transposed = true});
}
