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
      {"swiglu", "silu", true}, {"geglu", "gelu", true},           {"reglu", "relu", true}, {"silu", "silu", false},
      {"gelu", "gelu", false},  {"gelu_tanh", "gelu_tanh", false}, {"relu", "relu", false}, {"relu2", "relu2", false}};
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
  auto lsm = [](LsmKind kind, std::optional<ConvSpec> conv, std::optional<std::string> gate) {
    LsmSpec spec;
    spec.kind = kind;
    spec.conv = conv;
    spec.outputGate = std::move(gate);
    return spec;
  };
  using enum LsmKind;
  std::vector<LsmTraits> table = {
      // kind, name, key_heads, kv_heads, feature_map, gate_rank, allow_neg_eigval, decay_range; value_dim / head_dim
      {bla, "bla", false, true, true, false, false, false, 1, lsm(bla, {}, {})},
      {retnet, "retnet", false, true, false, false, false, false, 2, lsm(retnet, {}, "silu")},
      {mamba2, "mamba2", true, false, false, false, false, true, 1, lsm(mamba2, ConvSpec{4, true}, "silu")},
      {gla, "gla", false, true, false, true, false, false, 2, lsm(gla, {}, "silu")},
      {deltanet, "deltanet", false, false, false, false, true, false, 1, lsm(deltanet, ConvSpec{}, {})},
      {gated_deltanet, "gated_deltanet", true, false, false, false, true, true, 2,
       lsm(gated_deltanet, ConvSpec{}, "silu")}};
  table[0].defaults.featureMap = "elu1";
  table[1].defaults.rope = RopeSpec{};
  table[2].defaults.scale = 1.0;
  // The public initialisation draws A from (0, 16); 0 itself has no logarithm.
  table[5].defaults.decayRange = {1e-3, 16.0};
  return table;
}

llvm::ArrayRef<LsmTraits> braid::lsmInstances() {
  static const std::vector<LsmTraits> table = makeInstances();
  return table;
}

const LsmTraits &braid::lsmTraits(LsmKind kind) {
  return *llvm::find_if(lsmInstances(), [&](const LsmTraits &t) { return t.kind == kind; });
}

llvm::LogicalResult braid::parseRecompute(llvm::StringRef text, ScheduleSpec &schedule, std::string &message) {
  schedule.recomputeAll = text == "all";
  schedule.recompute.clear();
  if (text == "none" || text == "all")
    return llvm::success();
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',');
  for (llvm::StringRef part : parts) {
    auto [first, last] = part.split('-');
    int64_t begin = 0, end = 0;
    bool single = !part.contains('-');
    if (first.getAsInteger(10, begin) || (single ? (end = begin, false) : last.getAsInteger(10, end)) || begin < 0 ||
        end < begin || end >= (1 << 20)) {
      message =
          "\"" + part.str() + "\" is neither a layer nor a range of layers; valid: none, all, or layers such as 0,4-7";
      return llvm::failure();
    }
    for (int64_t layer = begin; layer <= end; ++layer)
      if (!llvm::is_contained(schedule.recompute, layer))
        schedule.recompute.push_back(layer);
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
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}
