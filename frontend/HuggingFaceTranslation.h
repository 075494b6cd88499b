//===- HuggingFaceTranslation.h - a config of transformers on its way to a description ----------------------------===//
#ifndef FRONTEND_HUGGINGFACETRANSLATION_H
#define FRONTEND_HUGGINGFACETRANSLATION_H

#include "frontend/HuggingFace.h"
#include "frontend/HuggingFaceFamilies.h"
#include "frontend/HuggingFaceKeys.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

namespace braid::json {

inline bool isEqual(const Value &a, const Value &b) {
  return a.isNumber() && b.isNumber() ? a.number == b.number
                                      : a.kind == b.kind && a.boolean == b.boolean && a.string == b.string;
}

/// "an olmo2 config".
inline std::string configOf(llvm::StringRef family) {
  return (llvm::StringRef("aeioux").contains(family.front()) ? "an " : "a ") + family.str() + " config";
}

/// The shortest pattern that this one repeats.
std::string shortest(llvm::StringRef pattern);
/// Of parts named by letters those that the pattern uses: a description has no other.
std::vector<Field> usedBy(llvm::StringRef pattern, std::vector<Field> parts);

/// What layer_types calls a layer without attention, by the letter of its mixer: C is a convolution.
inline llvm::StringRef typeName(char linear) { return linear == 'C' ? "conv" : "linear_attention"; }

/// What gpt_oss takes for rope_parameters where a config has none, and whether an object says the same.
Value usualRopeOfGptOss();
/// The same of lfm3, for layers without a window.
Value usualRopeOfLfm3();
bool isUsualRopeOfGptOss(const Value &rope);

/// A config on its way to a description: HuggingFaceMamba.cpp has the families with Mamba and Mamba-2 mixers,
/// HuggingFaceLatent.cpp those with latent attention, HuggingFaceFalcon.cpp the one with mixers side by side,
/// HuggingFaceZamba.cpp the one whose layers share blocks, HuggingFaceHybrids.cpp LFM2, LFM3, OLMo Hybrid and Lara, HuggingFaceXlstm.cpp xLSTM, HuggingFaceGriffin.cpp Recurrent Gemma, HuggingFaceFla.cpp those of flash-linear-attention, HuggingFaceRwkv.cpp its RWKV-6 and RWKV-7, HuggingFaceGptOss.cpp gpt-oss, HuggingFaceErnie.cpp ERNIE 4.5, HuggingFaceMixers.cpp further mixers,
/// HuggingFaceRotations.cpp what turns, HuggingFace.cpp the others and what all share.
class Translation {
public:
  /// `prefix`: where `config` stands in its file, "text_config." or nothing.
  Translation(const Value &config, const Family &family, bool dtypeGiven, Errors &errors, llvm::StringRef prefix = "")
      : config(config), family(family), dtypeGiven(dtypeGiven), prefix(prefix), errors{errors, prefix} {}
  std::optional<HuggingFaceModel> run();

private:
  const Value *take(llvm::StringRef key) {
    known.push_back(key);
    return config.find(key);
  }
  /// The same, where null says as much as nothing.
  const Value *takeOptional(llvm::StringRef key) {
    const Value *v = take(key);
    return v && v->kind != Kind::null ? v : nullptr;
  }
  /// A value of the config under its own key and line; of one that follows from another the line of that.
  Value named(Value value, llvm::StringRef key, int64_t line = 0) {
    value.origin = (prefix + key).str();
    if (!value.line)
      value.line = line ? line : config.line;
    return value;
  }
  Value get(llvm::StringRef key, Value otherwise, bool nullable = false) {
    const Value *v = nullable ? takeOptional(key) : take(key);
    compare({key.str()}, v ? *v : otherwise, otherwise);
    return named(v ? *v : std::move(otherwise), key);
  }
  bool flag(llvm::StringRef key, bool usual) {
    Value value = get(key, boolValue(usual));
    if (value.kind != Kind::boolean)
      errors.report(key, describe(value) + " is not true or false");
    return value.boolean;
  }
  /// The first of the keys that is there has this value, or one of `same`; `absent` is what it says to leave all out,
  /// `null` what null says where that is not the same.
  void compare(llvm::ArrayRef<std::string> keys, const Value &value, const Value &absent, const Value *null = nullptr,
               llvm::ArrayRef<Value> same = {}) {
    if (llvm::is_contained(notCompared, keys.front()) || !seen.insert(keys.front()).second)
      return;
    std::vector<Value> names;
    for (const std::string &key : keys) // one that holds for all of a larger model stands beside its parts
      names.push_back(stringValue(key == "tie_word_embeddings" ? key : (prefix + key).str()));
    std::vector<Field> fields = {{"keys", arrayValue(std::move(names))}, {"value", value}, {"absent", absent}};
    if (null)
      fields.push_back({"null", *null});
    if (!same.empty())
      fields.push_back({"same", arrayValue(same.vec())});
    compared.push_back(objectValue(std::move(fields)));
  }
  /// A key that two versions of transformers spell differently.
  Value either(llvm::StringRef one, llvm::StringRef two, Value otherwise) {
    const Value *a = takeOptional(one), *b = takeOptional(two);
    if (a && b && !isEqual(*a, *b))
      errors.report(two, describe(*b) + " is not " + one.str() + " " + describe(*a) + "; valid: one of the two keys");
    compare({one.str(), two.str()}, a ? *a : b ? *b : otherwise, otherwise);
    return named(a ? *a : b ? *b : std::move(otherwise), a ? one : b ? two : one);
  }
  /// `same`: other names of it.
  void only(llvm::StringRef key, const Value &valid, bool nullable = false, const std::vector<Value> &same = {}) {
    const Value *v = take(key);
    compare({key.str()}, valid, valid, /*null=*/nullptr, same);
    auto isSame = [&](const Value &other) { return isEqual(*v, other); };
    if (v && !isSame(valid) && !llvm::any_of(same, isSame) && !(nullable && v->kind == Kind::null))
      errors.report(key, describe(*v) + " of " + configOf(family.name) + " is not computed; valid: " + describe(valid) +
                             (nullable ? ", null" : ""));
  }
  Value object(std::vector<Field> fields) {
    Value v;
    v.kind = Kind::object, v.line = config.line;
    for (Field &field : fields)
      if (!field.value.line)
        field.value.line = config.line;
    v.fields = std::move(fields);
    return v;
  }
  bool integerIn(const Value &v, int64_t most) {
    return v.kind == Kind::integer && v.integer >= 1 && v.integer <= most;
  }
  /// `layers`: of full_attention or sliding_attention, where each has rotations of its own.
  Value rope(const Value &headDim, llvm::StringRef layers = "");
  Value turnedShare(const Value &headDim);
  Value ropeScaling(const Value &rope, llvm::StringRef key, llvm::StringRef type, llvm::StringRef layers);
  Value attention();
  bool turns();
  Value gatedDeltanet(int64_t heads, int64_t keyHeads);
  Value lightning(const Value &attention);
  Field residual(llvm::StringRef alpha, llvm::StringRef beta);
  Value mamba();
  bool isMamba() const { return family.name == "mamba" || family.name == "falcon_mamba"; }
  Value mambaOfHybrid();
  Value mambaOfJamba();
  std::vector<Field> mambaChannels(Value states, llvm::StringRef rankKey, Value width);
  Value stepRange(Value low, Value high);
  std::string everySoMany(llvm::StringRef period, llvm::StringRef offset, int64_t usualPeriod, int64_t usualOffset,
                          const Value &layers, char one, char other);
  std::string blocks(Value &layers);
  void layersOfOnePart(Value &layers, Value &mixers, Value &ffns, std::string &mixerPattern, std::string &ffnPattern);
  void fixedKeysOfOnePart();
  void fixedKeysOfMamba();
  void stepLimit();
  void layersOfMamba(const Value &layers, Value &mixers, std::string &pattern);
  Value graniteFeedForward(std::string &pattern);
  void graniteMultipliers(std::vector<Field> &fields);
  std::vector<Value> multipliers(llvm::StringRef key, size_t count);
  void stepBounds(std::vector<Field> &fields);
  Value mambaOfFalcon();
  void layersOfFalcon(Value &mixers, std::string &pattern);
  Value feedForwardOfFalcon(std::string &pattern);
  void fixedKeysOfFalcon();
  void multipliersOfFalcon(std::vector<Field> &fields);
  Value mambaOfZamba(const Value &bias);
  std::string hybridLayers(const Value &layers);
  Value sharedAttention();
  Value sharedFfn(const Value &bias);
  void layersOfZamba(const Value &layers, Value &mixers, std::vector<Field> &shared);
  void fixedKeysOfZamba();
  std::string typesOf(llvm::StringRef key, const Value &types, const Value &layers, char linear);
  std::string attentionEvery(llvm::StringRef key, const Value *given, int64_t usual, const Value *types,
                             const Value &layers);
  std::vector<int64_t> layersIn(llvm::StringRef key, const Value &layers);
  bool onlyFullAttention();
  Value typesIn(llvm::StringRef pattern, const Value &layers, char linear);
  std::string turningLayers(const Value &layers);
  void mixers(const Value &layers, Value &mixers, std::string &pattern);
  Value dtype();
  void fixedKeys();
  void balanceLoss();
  Value alwaysNormalizes();
  /// `router`: keys of it beside `normalize` and the losses, of which there are none.
  std::vector<Field> moe(Value experts, Value topK, Value expertHidden, Value normalize,
                         std::vector<Field> router = {});
  std::vector<Field> correctedRouter(llvm::StringRef score = "sigmoid");
  std::vector<Field> correctedExperts();
  Value sharedExperts(llvm::StringRef key, Value count, const Value &width);
  void expertGroups(std::vector<Field> &router, Value groups, Value kept, llvm::StringRef score);
  bool isDeepseekV3() const { return family.name == "deepseek_v3" || family.name == "kimi_k2"; }
  Value latentAttention();
  bool isKimi() const { return family.name == "kimi_linear"; }
  bool isBailing() const { return family.name == "bailing_hybrid"; }
  Value kimiDelta(const Value &layers, std::string &pattern);
  Value bailingDelta(const Value &layers, std::string &pattern);
  std::string listedLayers(const Value &lists, const Value &layers);
  void layersOfLatent(const Value &layers, Value &mixers, std::string &pattern);
  void sparseLayers(const Value &layers, std::string &pattern);
  std::vector<Field> greedyExperts();
  void fixedKeysOfLatent();
  void fixedKeysOfMiniMaxM2();
  Value feedForwardsOfErnie(const Value &layers, std::string &pattern);
  void fixedKeysOfErnie();
  void fixedKeysOfDots1();
  void fixedKeysOfPhi3();
  bool isGemma2() const { return family.name == "gemma2"; }
  void fixedKeysOfGemma();
  bool isLfm3() const { return family.name == "lfm3"; }
  std::string typesAmong(llvm::ArrayRef<std::pair<llvm::StringRef, char>> names,
                         llvm::function_ref<char(int64_t layer)> usualOf, const Value &layers);
  std::string typesOfLfm2(const Value &layers);
  std::string typesOfLfm3(const Value &layers);
  void layersOfLfm(const Value &layers, Value &mixers, std::string &pattern);
  Value feedForwardsOfLfm(const Value &layers, std::string &pattern);
  Value tiedOfLfm();
  void fixedKeysOfLfm();
  void layersOfLara(const Value &layers, Value &mixers, std::string &pattern);
  Value expertsOfLara(std::string &pattern);
  void layersOfOlmoHybrid(const Value &layers, Value &mixers, std::string &pattern);
  Value feedForwardsOfOlmoHybrid(llvm::StringRef layerPattern, std::string &pattern);
  std::string blockTypesOfGriffin(const Value &layers);
  void layersOfGriffin(const Value &layers, Value &mixers, std::string &pattern);
  Value feedForwardOfGriffin(std::string &pattern);
  Value embeddingFactorOfGriffin();
  void fixedKeysOfGriffin();
  double widthFactor(llvm::StringRef key, double usual);
  Value headWidth(llvm::StringRef key, double usual, const Value &heads);
  void layersOfXlstm(Value &mixers, std::string &pattern);
  Value feedForwardOfXlstm(std::string &pattern);
  void fixedKeysOfXlstm();
  Value smallInit();
  Value timesWidth(llvm::StringRef key, double usual, const Value &width, llvm::StringRef of);
  Value shareOfHead(Value all, const Value &heads, llvm::StringRef key);
  void headsOfFla(std::vector<Field> &fields, double expandK, double expandV);
  Value headsOr(llvm::StringRef key, const Value &otherwise);
  std::vector<Field> gatedOfFla(double expandK, double expandV);
  void deltaOfFla(std::vector<Field> &fields);
  Value gateOfFla(bool usual);
  Value linearOfFla();
  Value attentionOfFla(const Value &spec, llvm::StringRef at);
  void compareAttention(const Value &given);
  void layersOfFla(const Value &layers, Value &mixers, std::string &pattern);
  Value feedForwardOfFla(std::string &pattern);
  bool isRwkv6() const { return family.name == "rwkv6"; }
  bool isRwkv() const { return isRwkv6() || family.name == "rwkv7"; }
  Value linearOfRwkv6();
  std::pair<Value, Value> headsByWidth(llvm::StringRef key);
  Value valuesOfRwkv(const Value &layers, const Value &heads, int64_t before);
  Value rankOfRwkv(llvm::StringRef key, int64_t usual, double factor);
  void layersOfRwkv(const Value &layers, Value &mixers, std::string &pattern);
  Value feedForwardOfRwkv(std::string &pattern);
  void fixedKeysOfRwkv();
  void fixedKeysOfFla();
  void addSoftcap(std::vector<Field> &fields, llvm::StringRef ours, llvm::StringRef key, const Value &usual);
  std::string windowedLayers(const Value &layers);
  void addWindow(Value &mixer, llvm::StringRef pattern, int64_t usual);
  void layersOfGptOss(const Value &layers, Value &mixers, std::string &pattern);
  Value expertsOfGptOss(std::string &pattern);
  void fixedKeysOfGptOss();
  void quantization();
  void layersWithWindows(const Value &layers, Value &mixers, std::string &pattern);
  void turnByTypes(Value &all, Value &local, bool hasWindows);
  void feedForwards(const Value &layers, Value &ffns, std::string &pattern);

  const Value &config;
  const Family &family;
  bool dtypeGiven;
  llvm::StringRef prefix;
  struct {
    Errors &all;
    llvm::StringRef prefix;
    void report(llvm::StringRef path, const std::string &message) {
      all.report(path.starts_with(prefix) ? path : (prefix + path).str(), message);
    }
    int64_t number() const { return all.number(); }
  } errors;
  std::vector<llvm::StringRef> known;
  llvm::StringSet<> seen; ///< first keys of `compared`
  std::vector<Value> compared;
  Value hidden;
  bool fusesWeights = false;
};

} // namespace braid::json

#endif // FRONTEND_HUGGINGFACETRANSLATION_H
