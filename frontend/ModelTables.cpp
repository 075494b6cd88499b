//===- ModelTables.cpp - the instances and activations a description can name -------------------------------------===//
#include "frontend/ModelSpec.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/Unicode.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <charconv>
#include <cmath>

using namespace braid;

llvm::ArrayRef<Activation> braid::ffnActivations() {
  static constexpr Activation table[] = {
      {"swiglu", "silu", true},          {"geglu", "gelu", true},
      {"geglu_tanh", "gelu_tanh", true}, {"reglu", "relu", true},
      {"silu", "silu", false},           {"gelu", "gelu", false},
      {"gelu_tanh", "gelu_tanh", false}, {"relu", "relu", false},
      {"relu2", "relu2", false},         {"swiglu_clamp", "sigmoid", true, /*clamped=*/true}};
  return table;
}

const Activation &braid::ffnActivation(llvm::StringRef name) {
  return *llvm::find_if(ffnActivations(), [&](const Activation &a) { return a.name == name; });
}

int64_t RopeSpec::dim(int64_t headDim) const { return std::llround(fraction * static_cast<double>(headDim)); }

std::vector<int64_t> ModelSpec::prefillBuckets() const {
  std::vector<int64_t> buckets;
  for (int64_t bucket : {32, 64, 128, 256})
    if (bucket <= contextLen)
      buckets.push_back(bucket);
  return buckets;
}

int64_t ModelSpec::cacheRows(int64_t window) const {
  if (window == 0)
    return contextLen;
  std::vector<int64_t> buckets = prefillBuckets();
  return std::min(contextLen, window + (buckets.empty() ? 1 : buckets.back()) - 1);
}

// moe-family 3.1. Rounding is part of the model: the rules differ for small numbers.
int64_t braid::expertCapacity(const MoeSpec &spec, int64_t tokens) {
  int64_t holders = spec.devices ? spec.devices : spec.numExperts, each = spec.numExperts / holders;
  double factor = *spec.capacityFactor, all = static_cast<double>(tokens), experts = static_cast<double>(holders);
  double chosen = static_cast<double>(tokens * spec.topK), slots = 0;
  if (spec.capacityRule == "megatron")
    slots = std::ceil(factor * chosen / experts);
  else if (spec.capacityRule == "switch")
    slots = std::floor(factor * all / experts);
  else if (spec.capacityRule == "megablocks")
    slots = std::floor(factor * chosen / experts);
  else
    slots = static_cast<double>(spec.topK) * std::floor(factor * std::ceil(all / experts));
  // More than one slot for every token and expert it can choose there is never used.
  return static_cast<int64_t>(std::clamp(slots, 1.0, all * static_cast<double>(std::min(spec.topK, each))));
}

// Defaults follow the public implementations of each instance.
static std::vector<LsmTraits> makeInstances() {
  using Keys = std::vector<llvm::StringRef>;
  std::vector<LsmTraits> table;
  auto add = [&](LsmKind kind, llvm::StringRef name, Keys keys, int64_t valueFactor = 1) -> LsmSpec & {
    // RWKV has a group norm, and a gate of its own; S4D has an activation and a gate on what it projects.
    if (kind == LsmKind::rglru)
      keys.push_back("output_gate");
    else if (kind != LsmKind::rwkv6 && kind != LsmKind::rwkv7 && kind != LsmKind::s4d)
      keys.insert(keys.end(), {"output_norm", "output_gate"});
    LsmTraits &traits = table.emplace_back(LsmTraits{kind, name, std::move(keys), valueFactor, {}});
    traits.defaults.kind = kind;
    return traits.defaults;
  };
  using enum LsmKind;
  add(bla, "bla", {"conv", "rope", "kv_heads", "feature_map"}).featureMap = "elu1";
  for (auto [kind, name] : {std::pair(based, "based"), {rebased, "rebased"}}) {
    LsmSpec &spec = add(kind, name, {"conv", "rope"});
    spec.scale = 1.0; // the feature map divides
    spec.outputNorm = false;
  }
  {
    LsmSpec &spec = add(retnet, "retnet", {"conv", "rope", "kv_heads"}, 2);
    spec.rope = RopeSpec{};
    spec.outputGate = "silu";
  }
  {
    LsmSpec &spec = add(lightning, "lightning", {"conv", "rope", "slopes"});
    spec.scale = 1.0;
    spec.outputGate = "sigmoid";
  }
  {
    LsmSpec &spec = add(mamba2, "mamba2", {"conv", "rope", "key_heads", "decay_range", "step_range"});
    spec.conv = ConvSpec{4, true};
    spec.outputGate = "silu";
    spec.scale = 1.0;
  }
  add(gla, "gla", {"conv", "rope", "kv_heads", "gate_rank", "gate_divisor"}, 2).outputGate = "silu";
  add(hgrn2, "hgrn2", {"conv", "rope", "lower_bounds"});
  add(gateloop, "gateloop", {"conv", "rope"}).scale = 1.0;
  {
    LsmSpec &spec = add(rwkv6, "rwkv6", {"gate_rank", "mix_rank"});
    spec.scale = 1.0;
    spec.gateRank = 64;
    spec.normEps = 64e-5;
  }
  for (auto [kind, name] : {std::pair(dfw, "dfw"), {gfw, "gfw"}})
    add(kind, name, {"conv", "rope"}).scale = 1.0;
  {
    LsmSpec &spec = add(mamba, "mamba", {"conv", "key_heads", "gate_rank", "bcdt_norm", "decay_range", "step_range"});
    spec.conv = ConvSpec{4, true};
    spec.scale = 1.0;
    spec.outputNorm = false;
    spec.outputGate = "silu";
    spec.decayRange = {1.0, 0.0}; // to the number of states
  }
  add(deltanet, "deltanet", {"conv", "rope", "allow_neg_eigval"}).conv = ConvSpec{};
  {
    LsmSpec &spec = add(gated_deltanet, "gated_deltanet",
                        {"conv", "rope", "key_heads", "allow_neg_eigval", "decay_range", "step_range"}, 2);
    spec.conv = ConvSpec{};
    spec.outputGate = "silu";
    // The public initialisation draws A from (0, 16); 0 itself has no logarithm.
    spec.decayRange = {1e-3, 16.0};
  }
  {
    LsmSpec &spec = add(kda, "kda",
                        {"conv", "rope", "allow_neg_eigval", "gate_rank", "output_gate_rank", "output_gate_bias",
                         "decay_range", "step_range"});
    spec.conv = ConvSpec{};
    spec.outputGate = "sigmoid";
  }
  {
    LsmSpec &spec =
        add(rwkv7, "rwkv7", {"gate_rank", "rate_rank", "value_rank", "output_gate_rank", "value_mix", "l2_eps"});
    spec.scale = 1.0;
    spec.gateRank = 64;
    spec.normEps = 64e-5;
  }
  {
    LsmSpec &spec = add(mlstm, "mlstm", {"conv", "rope", "gate_softcap"});
    spec.outputGate = "sigmoid";
    spec.normEps = 1e-6;
  }
  {
    LsmSpec &spec = add(rglru, "rglru", {"conv", "step_range"});
    spec.conv = ConvSpec{4, true};
    spec.scale = 1.0;
    spec.outputNorm = false;
    spec.outputGate = "gelu_tanh";
    spec.headDim = 1;
  }
  add(s4d, "s4d", {"step_range"}).scale = 1.0;
  {
    LsmSpec &spec = add(ttt, "ttt", {"conv", "rope", "mini_batch", "inner_rate"});
    spec.conv = ConvSpec{4, true};
    spec.rope = RopeSpec{};
    spec.scale = 1.0;
    spec.outputGate = "gelu";
  }
  for (auto [kind, name] : {std::pair(titans, "titans"), {titans_ln, "titans_ln"}}) {
    LsmSpec &spec = add(kind, name, {"conv", "rope", "mini_batch", "inner_rate", "momentum"});
    spec.conv = ConvSpec{};
    spec.scale = 1.0;
    spec.innerRate = 0.1;
  }
  return table;
}

llvm::ArrayRef<LsmTraits> braid::lsmInstances() {
  static const std::vector<LsmTraits> table = makeInstances();
  return table;
}

const LsmTraits &braid::lsmTraits(LsmKind kind) {
  return *llvm::find_if(lsmInstances(), [&](const LsmTraits &t) { return t.kind == kind; });
}

/// "4" or "4-7"; nothing where it is neither.
static std::optional<std::pair<int64_t, int64_t>> parseLayers(llvm::StringRef text) {
  auto [first, last] = text.split('-');
  int64_t begin = 0, end = 0;
  bool single = !text.contains('-');
  if (first.getAsInteger(10, begin) || (single ? (end = begin, false) : last.getAsInteger(10, end)) || begin < 0 ||
      end < begin || end >= (1 << 20))
    return std::nullopt;
  return std::pair(begin, end);
}

llvm::LogicalResult braid::parseRecompute(llvm::StringRef text, ScheduleSpec &schedule, std::string &message) {
  schedule.recomputeAll = text == "all";
  schedule.recompute.clear();
  if (text == "none" || text == "all")
    return llvm::success();
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',');
  for (llvm::StringRef part : parts) {
    auto layers = parseLayers(part);
    if (!layers) {
      message =
          "\"" + part.str() + "\" is neither a layer nor a range of layers; valid: none, all, or layers such as 0,4-7";
      return llvm::failure();
    }
    for (int64_t layer = layers->first; layer <= layers->second; ++layer)
      if (!llvm::is_contained(schedule.recompute, layer))
        schedule.recompute.push_back(layer);
  }
  return llvm::success();
}

llvm::LogicalResult braid::parseOverlapDegrees(llvm::StringRef text, ScheduleSpec &schedule, std::string &message) {
  schedule.overlapDegrees.clear();
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/!text.empty());
  for (llvm::StringRef part : parts) {
    auto [range, number] = part.split(':');
    auto layers = parseLayers(range);
    int64_t degree = 0;
    if (!layers || number.getAsInteger(10, degree) || degree < 1 || degree > 16) {
      message =
          "\"" + part.str() +
          "\" is not a layer, or a range of layers, and its slices; valid: such as 0-1:2,3:1, with 1 to 16 slices";
      return llvm::failure();
    }
    for (int64_t layer = layers->first; layer <= layers->second; ++layer)
      if (auto [known, isNew] = schedule.overlapDegrees.try_emplace(layer, degree); !isNew && known->second != degree) {
        message =
            llvm::formatv("layer {0} has {1} slices and {2}; valid: every layer once", layer, known->second, degree);
        return llvm::failure();
      }
  }
  return llvm::success();
}

llvm::LogicalResult braid::parseStageLayers(llvm::StringRef text, ScheduleSpec &schedule, std::string &message) {
  schedule.stageLayers.clear();
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/!text.empty());
  for (llvm::StringRef part : parts) {
    int64_t layers = 0;
    if (part.getAsInteger(10, layers) || layers < 0 || layers > 1024) {
      message =
          llvm::formatv("\"{0}\" is not a number of layers; valid: one of 0 to 1024 for each stage, as in 7,9,8", part);
      return llvm::failure();
    }
    schedule.stageLayers.push_back(layers);
  }
  return llvm::success();
}

std::string braid::shownText(llvm::StringRef text, size_t most) {
  std::string out;
  llvm::raw_string_ostream os(out);
  for (size_t letters = 0; !text.empty(); ++letters) {
    if (letters == most)
      return out + "..";
    const auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.data()), *at = begin;
    llvm::UTF32 letter = 0;
    bool valid =
        llvm::convertUTF8Sequence(&at, begin + text.size(), &letter, llvm::strictConversion) == llvm::conversionOK;
    size_t bytes = valid ? at - begin : 1;
    if (valid && llvm::sys::unicode::isPrintable(static_cast<int>(letter)))
      os << text.take_front(bytes);
    else
      for (char byte : text.take_front(bytes))
        os << '\\' << llvm::toHex(llvm::StringRef(&byte, 1));
    text = text.drop_front(bytes);
  }
  return out;
}

std::string braid::numberText(double value) {
  if (std::isnan(value)) // some have a sign
    return "nan";
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}
