//===- HuggingFaceNames.h - what a model's parts are called in another library -----------------------------------===//
#ifndef FRONTEND_HUGGINGFACENAMES_H
#define FRONTEND_HUGGINGFACENAMES_H

#include "frontend/HuggingFaceFamilies.h"
#include "frontend/ModelImport.h"

namespace braid::json {

/// Collects the weights of `import` from a description that a config became.
class WeightNames {
public:
  /// Norms of gemma, and of qwen3_next and qwen3_5 all but the gated one, multiply by 1 + weight. Layers of mamba, mamba2 and
  /// nemotron_h have one part, called mixer whatever it is. `beside`: the model reads pictures, too.
  WeightNames(llvm::StringRef family, const Value &description, const WeightLayout &layout)
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
    llvm::StringRef other = ""; ///< another spelling of the name
    int64_t column = 0, columnStep = 0, columns = 1; ///< in every so many columns from that one so many; step 0: all
  };
  void add(llvm::StringRef ours, llvm::StringRef theirs, How how);
  /// What is no tensor there.
  void constant(llvm::StringRef ours, const std::vector<Value> &values) {
    weights.push_back({ours.str(), objectValue({{"values", arrayValue(values)}})});
  }
  void matrix(llvm::StringRef ours, llvm::StringRef theirs) { add(ours, theirs, {.transposed = true}); }
  void vector(llvm::StringRef ours, llvm::StringRef theirs) { add(ours, theirs, {}); }
  void ofLayer(llvm::StringRef ours, llvm::StringRef theirs, How how) {
    // Mixers of zamba2's hybrid layers, and the norms before them, are one deeper.
    bool isDeeper = family == "zamba2";
    std::string other = (body + layer + (isDeeper ? "mamba_decoder." + theirs.str() : how.other.str())).str();
    how.other = how.other.empty() && !isDeeper ? how.other : llvm::StringRef(other);
    add(("layers.{layer}." + place + ours).str(), (body + layer + theirs).str(), how);
  }
  void dense(llvm::StringRef ours, llvm::StringRef theirs, llvm::StringRef other = "");
  void fused(llvm::StringRef ours, llvm::StringRef into, llvm::StringRef outOf, int64_t hidden, bool stacked);
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
  bool isRwkv() const { return family == "rwkv6" || family == "rwkv7"; }
  void rwkv6(const Value &mixer);
  void rwkv7(const Value &mixer);
  void feedForwardOfRwkv();
  void tokenShift(llvm::StringRef of);
  void normsOfRwkv();
  void feedForwardOfXlstm(int64_t hidden);
  void normsOfOlmoHybrid();
  bool isLfm2() const { return family.starts_with("lfm2"); }
  bool isLfm() const { return isLfm2() || family == "lfm3"; }
  /// What attention and its kin call the way back.
  llvm::StringRef outName() const { return isLfm2() ? "out_proj" : family == "bailing_hybrid" ? "dense" : "o_proj"; }
  void mamba(const Value &mixer);
  void experts(const Value &ffn);
  void expertsOfGptOss();
  void injects(std::vector<Field> &equal);

  static bool isTrue(const Value &object, llvm::StringRef key) {
    const Value *v = object.find(key);
    return v && v->boolean;
  }
  static int64_t number(const Value &object, llvm::StringRef key) {
    const Value *v = object.find(key);
    return v ? v->integer : 0;
  }

  llvm::StringRef family;
  const Value &description;
  int64_t normPlus;
  bool onePart, isXlstm, isFla, isFused, beside;
  llvm::StringRef body, layer, attentionName, mambaName;
  std::string place; ///< of a mixer that stands beside others, "mixer2."
  std::vector<Field> weights;
};

} // namespace braid::json

#endif // FRONTEND_HUGGINGFACENAMES_H
