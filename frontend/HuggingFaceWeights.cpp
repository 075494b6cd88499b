//===- HuggingFaceWeights.cpp - what transformers calls the weights of its models ---------------------------------===//
// From the description that a config became: its parts say which weights there are.
#include "frontend/HuggingFaceFamilies.h"
#include "frontend/ModelImport.h"
#include "frontend/ModelSpec.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// Products of a dense feed-forward with a gate.
static constexpr std::pair<StringRef, StringRef> denseParts[] = {
    {"1", "gate_proj"}, {"3", "up_proj"}, {"2", "down_proj"}};

namespace {

class Names {
public:
  /// Norms of gemma, and of qwen3_next and qwen3_5 all but the gated one, multiply by 1 + weight. Layers of mamba, mamba2 and
  /// nemotron_h have one part, called mixer whatever it is. `beside`: the model reads pictures, too.
  Names(StringRef family, const Value &description, const WeightLayout &layout)
      : family(family), description(description),
        normPlus(family.starts_with("qwen3_next") || family.starts_with("qwen3_5") || family.starts_with("gemma") ||
                 isGriffin()),
        onePart(family == "mamba" || family == "falcon_mamba" || family == "mamba2" || family == "nemotron_h"),
        isXlstm(family == "xlstm"), isFla(isOfFla(family)), isFused(layout.fused), beside(layout.readsPictures),
        body(onePart || isXlstm ? "backbone."
             : beside           ? "model.language_model."
                                : "model."),
        layer(isXlstm ? "blocks.{layer}." : "layers.{layer}."),
        attentionName(onePart                      ? "mixer."
                      : family == "bailing_hybrid" ? "attention."
                      : isGriffin()                ? "temporal_block."
                      : isFla                      ? "attn."
                                                   : "self_attn."),
        mambaName(onePart ? "mixer." : "mamba.") {}
  Value run();

private:
  struct How {
    bool transposed = false;
    int64_t groups = 1, first = 0, last = 0; ///< last 0: all rows
    int64_t plus = 0, times = 1;
    bool stacked = false;
    StringRef other = ""; ///< another spelling of the name
    int64_t column = -1; ///< of pairs of columns this one
  };
  void add(StringRef ours, StringRef theirs, How how);
  /// What is no tensor there.
  void constant(StringRef ours, const std::vector<Value> &values) {
    weights.push_back({ours.str(), objectValue({{"values", arrayValue(values)}})});
  }
  void matrix(StringRef ours, StringRef theirs) { add(ours, theirs, {.transposed = true}); }
  void vector(StringRef ours, StringRef theirs) { add(ours, theirs, {}); }
  void ofLayer(StringRef ours, StringRef theirs, How how) {
    // Mixers of zamba2's hybrid layers, and the norms before them, are one deeper.
    bool isDeeper = family == "zamba2";
    std::string other = (body + layer + (isDeeper ? "mamba_decoder." + theirs.str() : how.other.str())).str();
    how.other = how.other.empty() && !isDeeper ? how.other : StringRef(other);
    add(("layers.{layer}." + place + ours).str(), (body + layer + theirs).str(), how);
  }
  void dense(StringRef ours, StringRef theirs, StringRef other = "");
  void fused(StringRef ours, StringRef into, StringRef outOf, int64_t hidden, bool stacked);
  void attention(const Value &mixer);
  void gatedDelta(const Value &mixer);
  void lightning(const Value &mixer);
  void latentAttention(const Value &mixer);
  void kimiDelta(const Value &mixer);
  void shortConv(const Value &mixer);
  void mlstm(const Value &mixer);
  void rglru();
  bool isGriffin() const { return family == "recurrent_gemma"; }
  void linearOfFla(const Value &mixer);
  void feedForwardOfXlstm(int64_t hidden);
  void normsOfOlmoHybrid();
  bool isLfm2() const { return family.starts_with("lfm2"); }
  bool isLfm() const { return isLfm2() || family == "lfm3"; }
  /// What attention and its kin call the way back.
  StringRef outName() const { return isLfm2() ? "out_proj" : family == "bailing_hybrid" ? "dense" : "o_proj"; }
  void mamba(const Value &mixer);
  void experts(const Value &ffn);
  void expertsOfGptOss();
  void injects(std::vector<Field> &equal);

  static bool isTrue(const Value &object, StringRef key) {
    const Value *v = object.find(key);
    return v && v->boolean;
  }
  static int64_t number(const Value &object, StringRef key) {
    const Value *v = object.find(key);
    return v ? v->integer : 0;
  }

  StringRef family;
  const Value &description;
  int64_t normPlus;
  bool onePart, isXlstm, isFla, isFused, beside;
  StringRef body, layer, attentionName, mambaName;
  std::string place; ///< of a mixer that stands beside others, "mixer2."
  std::vector<Field> weights;
};

} // namespace

void Names::add(StringRef ours, StringRef theirs, How how) {
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
  if (how.column >= 0)
    fields.push_back({"columns", arrayValue({numberValue(how.column), numberValue(int64_t(2))})});
  if (how.times != 1)
    fields.push_back({"times", numberValue(how.times)});
  if (how.plus)
    fields.push_back({"plus", numberValue(how.plus)});
  weights.push_back({ours.str(), fields.size() == 1 ? stringValue(theirs) : objectValue(std::move(fields))});
}

void Names::dense(StringRef ours, StringRef theirs, StringRef other) {
  for (auto [part, projection] : denseParts) {
    std::string matrix = ("." + projection + ".weight").str(), otherName = other.empty() ? "" : other.str() + matrix;
    ofLayer((ours + ".w" + part).str(), theirs.str() + matrix, {.transposed = true, .other = otherName});
  }
}

/// The gate's rows and those of what it opens are one matrix.
void Names::fused(StringRef ours, StringRef into, StringRef outOf, int64_t hidden, bool stacked) {
  if (hidden < 1)
    return; // the reader of descriptions says so
  auto part = [&](StringRef name, StringRef matrix, int64_t first, int64_t last) {
    ofLayer((ours + "." + name).str(), (matrix + ".weight").str(),
            {.transposed = true, .first = first, .last = last, .stacked = stacked});
  };
  part("w1", into, 0, hidden);
  part("w3", into, hidden, 2 * hidden);
  part("w2", outOf, 0, 0);
}

void Names::attention(const Value &mixer) {
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
void Names::gatedDelta(const Value &mixer) {
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
  if (family.starts_with("qwen3_5")) {
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
  ofLayer("lsm.norm.weight", "linear_attn.norm.weight", {});
  ofLayer("lsm.wo", "linear_attn.out_proj.weight", {.transposed = true});
}

/// Of each head the rows of q, k and v.
void Names::lightning(const Value &mixer) {
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
void Names::latentAttention(const Value &mixer) {
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
void Names::kimiDelta(const Value &mixer) {
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
void Names::shortConv(const Value &mixer) {
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
void Names::mlstm(const Value &mixer) {
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
void Names::rglru() {
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
void Names::linearOfFla(const Value &mixer) {
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

void Names::feedForwardOfXlstm(int64_t hidden) {
  if (isFused)
    return fused("ffn", "ffn.proj_up_gate_z", "ffn.proj_down", hidden, /*stacked=*/false);
  for (auto [part, theirs] :
       {std::pair<StringRef, StringRef>{"1", "proj_up_gate"}, {"3", "proj_up"}, {"2", "proj_down"}})
    ofLayer(("ffn.w" + part).str(), ("ffn." + theirs + ".weight").str(), {.transposed = true});
}

/// One name is that of a norm before a feed-forward, or of what attention gives; transformers writes others than were
/// published, and reads both.
void Names::normsOfOlmoHybrid() {
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

/// Mamba-2: rows of one matrix for the gate, v, k, q and the steps, and one convolution over v, k and q. Mamba: one for u
/// and its gate, and of u another for the steps, k and q.
void Names::mamba(const Value &mixer) {
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

/// All experts are one tensor, not transposed; columns of gates and of what they open take turns.
void Names::expertsOfGptOss() {
  ofLayer("moe.router", "mlp.router.weight", {.transposed = true});
  ofLayer("moe.router_bias", "mlp.router.bias", {});
  for (auto [part, column] : {std::pair<StringRef, int64_t>{"1", 0}, {"3", 1}}) {
    ofLayer(("moe.w" + part).str(), "mlp.experts.gate_up_proj", {.stacked = true, .column = column});
    ofLayer(("moe.b" + part).str(), "mlp.experts.gate_up_proj_bias", {.stacked = true, .column = column});
  }
  ofLayer("moe.w2", "mlp.experts.down_proj", {.stacked = true});
  ofLayer("moe.b2", "mlp.experts.down_proj_bias", {.stacked = true});
}

void Names::experts(const Value &ffn) {
  if (family == "gpt_oss")
    return expertsOfGptOss();
  if (family.starts_with("granitemoe")) {
    ofLayer("moe.router", "block_sparse_moe.router.layer.weight", {.transposed = true});
    fused("moe", "block_sparse_moe.input_linear", "block_sparse_moe.output_linear", number(ffn, "expert_hidden"),
          /*stacked=*/true);
    return fused("shared", "shared_mlp.input_linear", "shared_mlp.output_linear", number(ffn, "shared_hidden"),
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
void Names::injects(std::vector<Field> &equal) {
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

Value Names::run() {
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
    } else if (isXlstm) {
      feedForwardOfXlstm(number(ffn.value, "hidden"));
    } else if (isLfm()) {
      for (StringRef name : {"w1", "w3", "w2"})
        ofLayer(("ffn." + name).str(), ("feed_forward." + name + ".weight").str(), {.transposed = true});
    } else if (family == "granitemoehybrid") {
      fused("ffn", "shared_mlp.input_linear", "shared_mlp.output_linear", number(ffn.value, "hidden"),
            /*stacked=*/false);
    } else if (family == "glm4" || family == "phi3") {
      fused("ffn", "mlp.gate_up_proj", "mlp.down_proj", number(ffn.value, "hidden"), /*stacked=*/false);
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
  return Names(family, description, layout).run();
}
