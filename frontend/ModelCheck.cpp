//===- ModelCheck.cpp - the rules between keys of a model description ---------------------------------------------===//
#include "frontend/ModelSpec.h"
#include "frontend/Recurrence.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <limits>
#include <numeric>

using namespace braid;
using llvm::formatv;
using llvm::StringRef;

namespace {

class Checker {
public:
  Checker(const ModelSpec &spec, KeyErrorFn error, KeyNameFn name) : spec(spec), error(error), name(name) {}
  llvm::LogicalResult run();

private:
  void report(const std::string &path, const std::string &message) {
    error(path, message);
    ok = false;
  }
  void pattern(StringRef key, StringRef pattern, StringRef parts, const std::vector<char> &letters);
  bool sideBySide(StringRef pattern);
  void sharedResidual(StringRef letters);
  void placement(const std::string &path, std::optional<NormPlacement> own);
  void divides(const std::string &path, StringRef key, int64_t value, StringRef ofKey, int64_t of);
  void features(const std::string &path, int64_t heads, StringRef ofKey, int64_t width);
  void rope(const std::string &path, const std::optional<RopeSpec> &rope, int64_t headDim,
            StringRef width = "head_dim");
  void mixer(const std::string &path, const AttentionSpec &spec);
  void mixer(const std::string &path, const MlaSpec &spec);
  void mixer(const std::string &, const ShortConvSpec &) {}
  void productDim(const std::string &path, int64_t headDim);
  void mixer(const std::string &path, const LsmSpec &spec);
  void mixer(const std::string &path, const RecurrenceSpec &spec);
  void ffn(const std::string &path, const MoeSpec &moe);
  void injects();
  void blocks();
  void train();
  void schedule();

  const ModelSpec &spec;
  KeyErrorFn error;
  KeyNameFn name;
  bool ok = true;
};

} // namespace

static std::string divisors(int64_t n) {
  std::vector<std::string> list;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0)
      list.push_back(std::to_string(d));
  return llvm::join(list, ", ");
}

/// The whole first letter, not only its first byte.
static std::string firstLetter(StringRef text) {
  size_t bytes = std::clamp<size_t>(llvm::getNumBytesForUTF8(static_cast<llvm::UTF8>(text.front())), 1, text.size());
  return shownText(text.take_front(bytes), 1);
}

void Checker::divides(const std::string &path, StringRef key, int64_t value, StringRef ofKey, int64_t of) {
  if (of % value == 0)
    return;
  report(path + "." + key.str(),
         formatv("{0} does not divide {1} {2}; valid: {3}", value, name((path + "." + ofKey).str()), of, divisors(of))
             .str());
}

/// All heads of a token together are rows of one kernel, as its d_model features are.
void Checker::features(const std::string &path, int64_t heads, StringRef ofKey, int64_t width) {
  if (heads * width > maxWidth)
    report(path + ".heads", formatv("{0} times {1} {2} exceeds {3} features of a token; valid: at most {4}", heads,
                                    name((path + "." + ofKey).str()), width, maxWidth, maxWidth / width)
                                .str());
}

void Checker::rope(const std::string &path, const std::optional<RopeSpec> &rope, int64_t headDim, StringRef width) {
  if (!rope)
    return;
  int64_t dim = rope->dim(headDim);
  bool isWhole = rope->fraction == 1; // nobody asked for a part
  if ((dim < 2 || dim % 2) && isWhole)
    report((path + "." + width).str(),
           formatv("{0} features are not pairs, which rope turns; valid: an even number", headDim).str());
  else if (dim < 2 || dim % 2)
    report(path + ".rope.fraction",
           formatv("{0} of {1} {2} turns {3} features; valid: a fraction that turns an even number, at least 2",
                   numberText(rope->fraction), name((path + "." + width).str()), headDim, dim)
               .str());
  if (!rope->scaling)
    return;
  const RopeScaling &scaling = *rope->scaling;
  if (scaling.kind == "llama3" && scaling.lowFreqFactor >= scaling.highFreqFactor)
    report(path + ".rope.scaling.low_freq_factor",
           formatv("{0} is not below {1} {2}; valid: a number below it", numberText(scaling.lowFreqFactor),
                   name(path + ".rope.scaling.high_freq_factor"), numberText(scaling.highFreqFactor))
               .str());
  if (scaling.kind == "yarn" && scaling.betaSlow > scaling.betaFast)
    report(path + ".rope.scaling.beta_slow",
           formatv("{0} exceeds {1} {2}; valid: a number up to it", numberText(scaling.betaSlow),
                   name(path + ".rope.scaling.beta_fast"), numberText(scaling.betaFast))
               .str());
  if (scaling.kind == "yarn" && rope->theta == 1)
    report(path + ".rope.theta", "1 turns all pairs alike, between which \"yarn\" has no ramp; valid: above 1");
}

void Checker::mixer(const std::string &path, const AttentionSpec &attention) {
  divides(path, "kv_heads", attention.kvHeads, "heads", attention.heads);
  features(path, attention.heads, "head_dim", attention.headDim);
  rope(path, attention.rope, attention.headDim);
}

void Checker::mixer(const std::string &path, const MlaSpec &mla) {
  // With a cache every head has a query, and an output, of the latent's width.
  std::pair<StringRef, int64_t> widest{"kv_rank", mla.kvRank};
  for (auto [key, width] :
       {std::pair<StringRef, int64_t>{"head_dim", mla.headDim}, {"rope_dim", mla.ropeDim}, {"value_dim", mla.valueDim}})
    if (width > widest.second)
      widest = {key, width};
  features(path, mla.heads, widest.first, widest.second);
  rope(path, mla.rope, mla.ropeDim, "rope_dim");
}

void Checker::productDim(const std::string &path, int64_t headDim) {
  if (headDim > maxProductDim)
    report(path + ".head_dim", formatv("{0} gives {1} products of features; valid: 1 to {2}", headDim,
                                       headDim * (headDim + 1) / 2, maxProductDim)
                                   .str());
}

void Checker::mixer(const std::string &path, const LsmSpec &lsm) {
  divides(path, "key_heads", lsm.keyHeads, "heads", lsm.heads);
  divides(path, "kv_heads", lsm.kvHeads, "heads", lsm.heads);
  bool wideValues = lsm.valueDim > lsm.headDim;
  features(path, lsm.heads, wideValues ? "value_dim" : "head_dim", wideValues ? lsm.valueDim : lsm.headDim);
  bool isElementwise = lsm.kind == LsmKind::gfw || lsm.kind == LsmKind::mamba || lsm.kind == LsmKind::s4d;
  if (isElementwise && lsm.headDim * lsm.valueDim > maxWidth) // of one head
    report(path + ".value_dim",
           formatv("{0} times {1} {2} exceeds {3} features of a token; valid: at most {4}", lsm.valueDim,
                   name(path + ".head_dim"), lsm.headDim, maxWidth, maxWidth / lsm.headDim)
               .str());
  else if (isElementwise) // a gate for every element
    features(path, lsm.heads, "head_dim times value_dim", lsm.headDim * lsm.valueDim);
  if (lsm.kind == LsmKind::s4d && lsm.heads * lsm.valueDim != spec.dModel)
    report(path + ".value_dim",
           formatv("{0} of {1} heads are {2} channels, but its input has d_model {3}; valid: heads "
                   "times value_dim is d_model",
                   lsm.valueDim, lsm.heads, lsm.heads * lsm.valueDim, spec.dModel)
               .str());
  if (lsm.maxStep > 0 && lsm.maxStep <= lsm.minStep)
    report(path + ".max_step", formatv("{0} is not above {1} {2}; valid: a number above it", numberText(lsm.maxStep),
                                       name(path + ".min_step"), numberText(lsm.minStep))
                                   .str());
  if (lsm.kind == LsmKind::based || lsm.kind == LsmKind::rebased)
    productDim(path, lsm.headDim);
  if ((lsm.kind == LsmKind::ttt || lsm.kind == LsmKind::titans_ln) && lsm.valueDim != lsm.headDim)
    report(path + ".value_dim",
           formatv("{0} is not head_dim {1}, but the inner model predicts v - k; valid: {1}", lsm.valueDim, lsm.headDim)
               .str());
  rope(path, lsm.rope, lsm.headDim);
}

void Checker::mixer(const std::string &path, const RecurrenceSpec &spec) {
  mixer(path, static_cast<const LsmSpec &>(spec));
  if (spec.recurrence && spec.recurrence->elementwise)
    features(path, spec.heads, "head_dim times value_dim", spec.headDim * spec.valueDim);
  if (spec.recurrence && (spec.recurrence->rowFunction == "taylor" || spec.recurrence->rowFunction == "square"))
    productDim(path, spec.headDim);
  // rope(..) needs no key of its own: then it turns all features.
  if (spec.recurrence && !spec.rope) {
    if (spec.recurrence->turnsKeys)
      rope(path, RopeSpec{}, spec.headDim);
    if (spec.recurrence->turnsValues)
      rope(path, RopeSpec{}, spec.valueDim, "value_dim");
  }
  if (spec.recurrence && spec.rope && spec.recurrence->turnsValues)
    rope(path, spec.rope, spec.valueDim, "value_dim");
  if (spec.normGroups)
    divides(path, "norm_groups", *spec.normGroups, "heads times value_dim", spec.heads * spec.valueDim);
}

void Checker::ffn(const std::string &path, const MoeSpec &moe) {
  if (moe.topK > moe.numExperts)
    return report(
        path + ".top_k",
        formatv("{0} exceeds {1} {2}; valid: 1 to {2}", moe.topK, name(path + ".num_experts"), moe.numExperts).str());
  const RouterSpec &router = moe.router;
  if (router.groups > 1) {
    int64_t size = moe.numExperts / router.groups;
    if (moe.numExperts % router.groups)
      return divides(path, "router.groups", router.groups, "num_experts", moe.numExperts);
    if (router.keptGroups > router.groups)
      return report(path + ".router.kept_groups", formatv("{0} exceeds {1} {2}; valid: 1 to {2}", router.keptGroups,
                                                          name(path + ".router.groups"), router.groups)
                                                      .str());
    if (moe.topK > router.keptGroups * size)
      return report(path + ".top_k",
                    formatv("{0} exceeds the {1} experts of {2} groups ({3}); valid: 1 to {1}", moe.topK,
                            router.keptGroups * size, router.keptGroups, name(path + ".router.kept_groups"))
                        .str());
    if (router.groupTop() > size)
      report(path + ".router.groups",
             formatv("{0} leaves one expert to a group, but \"{1}\" adds up the scores of two; "
                     "valid: fewer groups",
                     router.groups, router.groupScore)
                 .str());
  }
  // Who has weights from elsewhere computes what they were made for.
  if (!spec.imported && moe.topK == 1 && moe.router.normalize && !moe.router.addsLoss())
    report(path + ".router.normalize",
           "true with top_k 1 makes every weight 1, so the router never learns; valid: false, or a "
           "balance_loss or z_loss above 0");
  if (moe.dropPolicy == "device") {
    divides(path, "devices", moe.devices, "num_experts", moe.numExperts);
    if (moe.paddedSlots)
      report(path + ".padded_slots", "true gives every expert slots of its own, which drop_policy \"device\" hands to "
                                     "groups of experts; valid: false");
  } else if (moe.capacityFactor && moe.paddedSlots) {
    int64_t slots = expertCapacity(moe, spec.train.seqLen), rows = INT32_MAX / spec.train.batch / moe.numExperts;
    if (slots > rows)
      report(path + ".padded_slots",
             formatv("{0} slots of {1} experts in {2} rows of the batch exceed {3} expert rows; valid: a smaller "
                     "capacity_factor {4} or batch",
                     slots, moe.numExperts, spec.train.batch, INT32_MAX, numberText(*moe.capacityFactor))
                 .str());
  }
  int64_t slots = INT32_MAX / moe.topK;
  if (spec.train.batch * spec.train.seqLen > slots)
    report("train.batch",
           formatv("{0} times seq_len {1} times {2} {3} exceeds {4} rows; valid: at most {5}", spec.train.batch,
                   spec.train.seqLen, name(path + ".top_k"), moe.topK, INT32_MAX, slots / spec.train.seqLen)
               .str());
  std::vector<int64_t> buckets = spec.prefillBuckets();
  if (int64_t longest = buckets.empty() ? 1 : buckets.back(); spec.decodeBatch * longest > slots)
    report("decode_batch",
           formatv("{0} times {1} tokens of a prefill times {2} {3} exceeds {4} rows; valid: at most {5}",
                   spec.decodeBatch, longest, name(path + ".top_k"), moe.topK, INT32_MAX, slots / longest)
               .str());
}

void Checker::pattern(StringRef key, StringRef pattern, StringRef parts, const std::vector<char> &letters) {
  auto list = [&] {
    std::string names;
    for (char c : letters)
      names += std::string(1, c) + ", ";
    return names + (letters.empty() ? "" : "or ") + noPart + " for none";
  };
  if (pattern.empty())
    return report(key.str(), ("is empty; valid: letters of " + parts + ": " + list()).str());
  if (pattern.size() > 1024)
    return report(key.str(), formatv("has {0} letters; valid: at most 1024", pattern.size()).str());
  bool isOfMixers = parts == "mixers";
  for (size_t i = 0; i < pattern.size(); ++i)
    if (pattern[i] != noPart && !llvm::is_contained(letters, pattern[i]) &&
        !(isOfMixers && StringRef("()").contains(pattern[i])))
      return report(key.str(),
                    formatv("'{0}' is not in {1}; valid: {2}", firstLetter(pattern.substr(i)), parts, list()).str());
  if (isOfMixers && !sideBySide(pattern))
    return;
  // A pattern longer than the model is cut: what is behind its end is unused like what no letter names.
  std::vector<std::string> layers = layersOfPattern(pattern);
  auto taken = std::min<size_t>(layers.size(), static_cast<size_t>(spec.numLayers));
  auto firstOf = [&](char c) {
    return llvm::find_if(layers, [&](StringRef each) { return each.contains(c); }) - layers.begin();
  };
  size_t length = 0;
  for (StringRef each : llvm::ArrayRef(layers).take_front(taken))
    length += each.size() + (each.size() > 1 ? 2 : 0);
  for (char c : letters) {
    auto at = static_cast<size_t>(firstOf(c));
    if (at < taken)
      continue;
    std::string path = formatv("{0}.{1}", parts, StringRef(&c, 1)).str();
    if (at < layers.size())
      report(path, formatv("no layer uses it: num_layers {0} takes \"{1}\" of {2} \"{3}\"; valid: num_layers of at "
                           "least {4}, or no such part",
                           spec.numLayers, pattern.take_front(length), key, pattern, at + 1)
                       .str());
    else
      report(path, formatv("no layer uses it: {0} is \"{1}\"", key, pattern).str());
  }
}

/// Whether parentheses are around two or more mixers each, of which none stands twice.
bool Checker::sideBySide(StringRef pattern) {
  auto wrong = [&](const std::string &message) {
    report("layer_pattern", "\"" + pattern.str() + "\" " + message);
    return false;
  };
  bool isOpen = false;
  for (char c : pattern) {
    if ((c == '(') == isOpen && (c == '(' || c == ')'))
      return wrong(c == '(' ? "has '(' within parentheses; valid: letters there" : "has ')' without '(' before it");
    if (c == '(' || c == ')')
      isOpen = !isOpen;
    else if (isOpen && c == noPart)
      return wrong("has '-' within parentheses, where mixers stand side by side; valid: letters there");
  }
  if (isOpen)
    return wrong("has '(' without ')' behind it");
  StringRef rest = pattern;
  while (rest.contains('(')) {
    auto [group, after] = rest.split('(').second.split(')');
    rest = after;
    if (group.size() < 2)
      return wrong(formatv("has {0} within parentheses; valid: two or more mixers that stand side by side",
                           group.empty() ? "nothing" : "'" + group.str() + "' alone")
                       .str());
    for (char c : group)
      if (group.count(c) > 1)
        return wrong(formatv("has '{0}' {1} times in one layer, \"({2})\"; valid: each letter once (equal mixers have "
                             "letters of their own)",
                             StringRef(&c, 1), group.count(c), group)
                         .str());
    sharedResidual(group);
  }
  return true;
}

/// What passes by mixers side by side has one factor, and so has their sum where a norm is of it.
void Checker::sharedResidual(StringRef letters) {
  const MixerSpec *first = spec.findMixer(letters.front());
  NormPlacement placement = spec.placementOf(*first);
  bool isNormed = placement == NormPlacement::sandwich || placement == NormPlacement::output;
  ResidualScale shared = spec.residualOf(*first);
  for (char letter : letters.drop_front()) {
    ResidualScale own = spec.residualOf(*spec.findMixer(letter));
    if (NormPlacement ownPlacement = spec.placementOf(*spec.findMixer(letter)); ownPlacement != placement)
      report(formatv("mixers.{0}.norm_placement", StringRef(&letter, 1)).str(),
             formatv("\"{0}\" is not \"{1}\" as of mixers.{2}, beside which it stands (\"({3})\") with the same norm; "
                     "valid: equal placements",
                     nameOf(ownPlacement), nameOf(placement), letters.take_front(1), letters)
                 .str());
    auto differs = [&](StringRef key, double ours, double theirs, const std::string &why) {
      if (ours != theirs)
        report(formatv("mixers.{0}.residual.{1}", StringRef(&letter, 1), key).str(),
               formatv("{0} is not {1} as of mixers.{2}, beside which it stands (\"({3})\"): {4}; valid: equal numbers",
                       numberText(ours), numberText(theirs), letters.take_front(1), letters, why)
                   .str());
    };
    if (own.deepnorm != shared.deepnorm)
      report(formatv("mixers.{0}.residual.alpha", StringRef(&letter, 1)).str(),
             formatv("\"deepnorm\" of one of \"({0})\" alone: what passes by them is one; valid: equal alphas", letters)
                 .str());
    else
      differs("alpha", own.alpha, shared.alpha, "what passes by them is one");
    if (isNormed)
      differs("beta", own.beta, shared.beta,
              formatv("a norm is of their sum with norm_placement \"{0}\"", nameOf(placement)).str());
  }
}

void Checker::train() {
  const TrainSpec &t = spec.train;
  if (t.batch * t.seqLen > INT32_MAX)
    report("train.batch", formatv("{0} times seq_len {1} exceeds {2} tokens; valid: at most {3}", t.batch, t.seqLen,
                                  INT32_MAX, INT32_MAX / t.seqLen)
                              .str());
  if (spec.maxDocuments > t.seqLen)
    report("train.seq_len", formatv("{0} is less than max_documents {1}; valid: {1} or more, or a max_documents of at "
                                    "most {0}",
                                    t.seqLen, spec.maxDocuments)
                                .str());
  if (spec.decodeBatch * spec.contextLen > INT32_MAX)
    report("decode_batch", formatv("{0} times {1} {2} exceeds {3} tokens; valid: at most {4}", spec.decodeBatch,
                                   name("context_len"), spec.contextLen, INT32_MAX, INT32_MAX / spec.contextLen)
                               .str());
  if (t.minLearningRate > t.learningRate)
    report("train.min_learning_rate", formatv("{0} exceeds learning_rate {1}; valid: 0 to {1}",
                                              numberText(t.minLearningRate), numberText(t.learningRate))
                                          .str());
  if (t.gradientDtype == "bf16" && t.accumulationSteps > 1)
    report("train.gradient_dtype",
           formatv("bf16 loses what {0} accumulation_steps add up; valid: f32, or accumulation_steps 1",
                   t.accumulationSteps)
               .str());
  if (t.gradientDtype == "bf16" && t.microBatches > 1)
    report("train.gradient_dtype",
           formatv("bf16 loses what {0} micro_batches add up; valid: f32, or micro_batches 1", t.microBatches).str());
  if (t.microBatches > 1 && t.batch % t.microBatches)
    report(
        "train.micro_batches",
        formatv("{0} parts do not divide the {1} rows of train.batch; valid: a divisor of {1}", t.microBatches, t.batch)
            .str());
  auto ofRounded = [&](StringRef key, StringRef value, StringRef what) {
    if (value == "bf16" && spec.dtype != "bf16")
      report(("train." + key).str(),
             formatv("\"bf16\" with dtype \"{0}\": only {1} of bf16 weights can be; valid: \"f32\"", spec.dtype, what)
                 .str());
  };
  ofRounded("gradient_dtype", t.gradientDtype, "gradients");
  ofRounded("moment_dtype", t.momentDtype, "moments");
  if (t.warmupSteps > t.steps)
    report("train.warmup_steps", formatv("{0} exceeds steps {1}; valid: 0 to {1}", t.warmupSteps, t.steps).str());
}

/// Of a part that says its own.
void Checker::placement(const std::string &path, std::optional<NormPlacement> own) {
  if (!own)
    return;
  if (spec.normPlacement == NormPlacement::post)
    report(
        path + ".norm_placement",
        formatv("\"{0}\" in a model whose norm_placement \"post\" is of what passes by all parts, and leaves no norm "
                "behind the last; valid: no norm_placement here, or another of the model",
                nameOf(*own))
            .str());
  else if (*own == NormPlacement::output && spec.residual.from == "normed")
    report(path + ".norm_placement", "\"output\" has no norm before the part, which residual.from \"normed\" would let "
                                     "pass by; valid: \"pre\", \"sandwich\", or residual.from \"input\"");
}

void Checker::blocks() {
  for (auto &[letter, mixer] : spec.mixers)
    placement(formatv("mixers.{0}", StringRef(&letter, 1)).str(),
              std::visit([](auto &part) { return part.normPlacement; }, mixer));
  for (auto &[letter, ffn] : spec.ffns)
    placement(formatv("ffns.{0}", StringRef(&letter, 1)).str(),
              std::visit([](auto &part) { return part.normPlacement; }, ffn));
  bool isOnly = spec.normPlacement == NormPlacement::post || spec.normPlacement == NormPlacement::output;
  if (isOnly && spec.residual.from == "normed")
    report("residual.from", formatv("\"normed\" has no norm before the part with norm_placement \"{0}\"; valid: "
                                    "\"input\", or norm_placement \"pre\" or \"sandwich\"",
                                    nameOf(spec.normPlacement))
                                .str());
  // Single numbers have been looked at where they were read; this quotient is one more constant of the program.
  double ratio = spec.widthRatio(),
         smallest = spec.dtype == "f64" ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  if (double quotient = spec.logitsMultiplier / ratio; quotient < smallest)
    report("logits_multiplier",
           formatv("{0} divided by d_model / init.base_width {1} becomes {2} in {3}; valid: at least {4}",
                   numberText(spec.logitsMultiplier), numberText(ratio),
                   numberText(spec.dtype == "f64" ? quotient : static_cast<float>(quotient)),
                   spec.dtype == "f64" ? "f64" : "f32", numberText(smallest * ratio))
               .str());
  if (spec.init.kind == "deepnorm" && spec.init.scaleOutput)
    report("init.scale_output",
           formatv("true with kind \"deepnorm\", whose gain {0} of {1} residual sums takes its place; valid: false",
                   numberText(std::pow(4.0 * static_cast<double>(spec.residualSums()), -0.25)), spec.residualSums())
               .str());
}

void Checker::schedule() {
  const ScheduleSpec &s = spec.schedule;
  for (int64_t layer : s.recompute)
    if (layer >= spec.numLayers)
      return report("schedule.recompute", formatv("there is no layer {0} of {1}; valid: none, all, or layers 0 to {2}",
                                                  layer, spec.numLayers, spec.numLayers - 1)
                                              .str());
  for (auto [layer, degree] : s.overlapDegrees)
    if (layer >= spec.numLayers)
      return report("schedule.overlap_degrees", formatv("there is no layer {0} of {1}; valid: layers 0 to {2}", layer,
                                                        spec.numLayers, spec.numLayers - 1)
                                                    .str());
  bool headAlone = !s.stageLayers.empty() && s.stageLayers.back() == 0;
  if (int64_t most = std::min(spec.numLayers + headAlone, maxStages); s.stages > most)
    return report("num_layers",
                  formatv("{0} layers cannot be shared out among {1} stages (pp={1} in --mesh); valid: pp of at most "
                          "{2}{3}",
                          spec.numLayers, s.stages, most,
                          headAlone ? "" : ", or one more whose stage_layers say that the last has none")
                      .str());
  // Without stages nothing is shared out: a description may say how it would be.
  if (int64_t sum = std::accumulate(s.stageLayers.begin(), s.stageLayers.end(), int64_t(0));
      s.stages > 1 && !s.stageLayers.empty() &&
      (static_cast<int64_t>(s.stageLayers.size()) != s.stages || sum != spec.numLayers))
    return report(
        "schedule.stage_layers",
        formatv("{0} numbers with the sum {1}; valid: one for each of {2} stages (pp={2} in --mesh), with the sum "
                "{3}, num_layers",
                s.stageLayers.size(), sum, s.stages, spec.numLayers)
            .str());
  // Whoever has the head has enough; any other stage would only hand on.
  if (s.stages > 1 && !s.stageLayers.empty())
    if (auto empty = llvm::find(llvm::drop_end(s.stageLayers), 0); empty != s.stageLayers.end() - 1)
      return report("schedule.stage_layers",
                    formatv("stage {0} has no layers; valid: 1 or more, but for the last, which has the head",
                            empty - s.stageLayers.begin())
                        .str());
  if (s.stages > 1 && s.headStages == "all" && spec.tieEmbeddings)
    return report(
        "schedule.head_stages",
        "\"all\" with tie_embeddings, whose table embeds tokens, too, on the first stage, which needs all words; "
        "valid: auto, last, or tie_embeddings false");
  if (s.stages > 1 && s.headStages == "all" && spec.vocabSize % s.wordRanks)
    return report("schedule.head_stages",
                  formatv("\"all\", but pp tp = {0} ranks (--mesh) do not divide the {1} words of vocab_size; valid: "
                          "auto, last, or a multiple of {0} words",
                          s.wordRanks, spec.vocabSize)
                      .str());
  if (s.pipeline == "none" && s.overlapDegree == 1 && s.slices())
    report("schedule.overlap_degrees",
           "slices with pipeline \"none\", which orders none; valid: with another pipeline");
  else if ((s.pipeline == "none") == s.slices())
    report("schedule.overlap_degree",
           formatv("{0} slices with pipeline \"{1}\"; valid: 1 with \"none\", 2 to 16 with another", s.overlapDegree,
                   s.pipeline)
               .str());
  if (s.chunkSize % 16)
    report("schedule.chunk_size", formatv("{0} is not a multiple of 16; valid: 16, 32, .. 128", s.chunkSize).str());
  if (s.recomputeAll && s.activationBudget)
    report("schedule.activation_budget",
           formatv("{0} bytes leave nothing to choose with recompute \"all\"; valid: recompute \"none\" or some layers",
                   *s.activationBudget)
               .str());
}

/// Blocks that layers share: what they give goes into what a mixer reads in front of its norm.
void Checker::injects() {
  std::vector<char> letters;
  for (auto &[letter, inject] : spec.injects)
    letters.push_back(letter);
  if (letters.empty() && spec.injectPattern.empty())
    return;
  pattern("inject_pattern", spec.injectPattern, "injects", letters);
  for (auto [layer, own] : llvm::enumerate(ok ? spec.mixersOfLayers() : std::vector<std::string>()))
    if (char inject = spec.injectOf(static_cast<int64_t>(layer)); ok && inject != noPart && own.front() == noPart)
      report("inject_pattern",
             formatv("layer {0} has '{1}' (\"{2}\") but no mixer to read what it gives ({3} \"{4}\"); "
                     "valid: letters where layers have mixers, - for none",
                     layer, StringRef(&inject, 1), spec.injectPattern, name("layer_pattern"), spec.layerPattern)
                 .str());
  if (spec.residual.from == "normed" && !letters.empty())
    report("residual.from",
           formatv("\"normed\" would let what injects.{0} gives pass by the mixers, which only read it; "
                   "valid: \"input\", or no injects",
                   StringRef(letters.data(), 1))
               .str());
  if (2 * spec.dModel > maxWidth && !letters.empty())
    report("d_model", formatv("{0} features twice, of a layer's input and of the embedding as injects.{1} reads them, "
                              "exceed {2}; valid: at most {3}",
                              spec.dModel, StringRef(letters.data(), 1), maxWidth, maxWidth / 2)
                          .str());
  for (auto &[letter, inject] : spec.injects)
    mixer(std::string("injects.") + letter + ".attention", inject.attention);
}

llvm::LogicalResult Checker::run() {
  std::vector<char> mixers, ffns;
  for (auto &[letter, mixer] : spec.mixers)
    mixers.push_back(letter);
  for (auto &[letter, ffn] : spec.ffns)
    ffns.push_back(letter);
  pattern("layer_pattern", spec.layerPattern, "mixers", mixers);
  pattern("ffn_pattern", spec.ffnPattern, "ffns", ffns);
  for (auto [layer, own] : llvm::enumerate(ok ? spec.mixersOfLayers() : std::vector<std::string>()))
    if (ok && own.front() == noPart && spec.ffnOf(static_cast<int64_t>(layer)) == noPart)
      report("layer_pattern",
             formatv("layer {0} has neither a mixer (\"{1}\") nor a feed-forward (ffn_pattern \"{2}\"); "
                     "valid: a letter in one of the two for every layer",
                     layer, spec.layerPattern, spec.ffnPattern)
                 .str());
  for (auto &[letter, m] : spec.mixers)
    std::visit([&, path = std::string("mixers.") + letter](auto &part) { mixer(path, part); }, m);

  std::pair<char, int64_t> firstValues{0, 0};
  for (auto &[letter, m] : spec.mixers) {
    int64_t own = firstValueWidth(m);
    if (own && !firstValues.second)
      firstValues = {letter, own};
    if (own && own != firstValues.second)
      report(std::string("mixers.") + letter + ".heads",
             formatv("times value_dim is {0}, not {1} as in mixers.{2}, but all layers of rwkv7, and recurrences that "
                     "call first(..), mix their values with those of the first; valid: equal products",
                     own, firstValues.second, StringRef(&firstValues.first, 1))
                 .str());
  }
  std::pair<char, const LsmSpec *> bounded{0, nullptr};
  for (auto &[letter, m] : spec.mixers) {
    const auto *lsm = std::get_if<LsmSpec>(&m);
    if (!lsm || lsm->kind != LsmKind::hgrn2 || lsm->lowerBounds != "learned")
      continue;
    if (!bounded.second)
      bounded = {letter, lsm};
    else if (lsm->heads != bounded.second->heads || lsm->headDim != bounded.second->headDim)
      report(std::string("mixers.") + letter + ".lower_bounds",
             formatv(
                 "learned of {0} heads of {1} features, not {2} of {3} as in mixers.{4}, but layers share one table "
                 "of bounds; valid: as many",
                 lsm->heads, lsm->headDim, bounded.second->heads, bounded.second->headDim, StringRef(&bounded.first, 1))
                 .str());
  }
  std::pair<char, const MoeSpec *> first{0, nullptr};
  for (auto &[letter, f] : spec.ffns) {
    auto *moe = std::get_if<MoeSpec>(&f);
    if (!moe)
      continue;
    std::string path = std::string("ffns.") + letter;
    ffn(path, *moe);
    if (!first.second)
      first = {letter, moe};
    else if (moe->numExperts != first.second->numExperts)
      report(path + ".num_experts",
             formatv("{0} differs from {1} of ffns.{2}; valid: {1} (the counts of all layers form one table)",
                     moe->numExperts, first.second->numExperts, StringRef(&first.first, 1))
                 .str());
  }
  injects();
  blocks();
  train();
  schedule();
  return llvm::success(ok);
}

std::vector<std::string> ModelSpec::mixersOfLayers() const {
  std::vector<std::string> round = layersOfPattern(layerPattern), layers;
  for (size_t layer = 0; layer < static_cast<size_t>(numLayers); ++layer)
    layers.push_back(round.empty() ? std::string(1, noPart) : round[layer % round.size()]);
  return layers;
}

std::string ModelSpec::mixersOf(int64_t layer) const {
  std::vector<std::string> round = layersOfPattern(layerPattern);
  return round.empty() ? std::string(1, noPart) : round[static_cast<size_t>(layer) % round.size()];
}

const MixerSpec *ModelSpec::findMixer(char letter) const {
  auto found = mixers.find(letter);
  return found == mixers.end() ? nullptr : &found->second;
}

const FfnSpec *ModelSpec::findFfn(char letter) const {
  auto found = ffns.find(letter);
  return found == ffns.end() ? nullptr : &found->second;
}

const InjectSpec *ModelSpec::findInject(char letter) const {
  auto found = injects.find(letter);
  return found == injects.end() ? nullptr : &found->second;
}

int64_t ModelSpec::residualSums() const {
  int64_t sums = 0;
  for (auto [layer, mixers] : llvm::enumerate(mixersOfLayers()))
    sums += (mixers.front() != noPart) + (ffnOf(static_cast<int64_t>(layer)) != noPart);
  return sums;
}

int64_t braid::firstValueWidth(const MixerSpec &mixer) {
  const auto *stated = std::get_if<RecurrenceSpec>(&mixer);
  const LsmSpec *lsm = stated ? stated : std::get_if<LsmSpec>(&mixer);
  bool keeps = stated ? stated->recurrence && stated->recurrence->keepsFirst : lsm && lsm->kind == LsmKind::rwkv7;
  return keeps ? lsm->heads * lsm->valueDim : 0;
}

void braid::checkModelWarnings(const ModelSpec &spec, KeyErrorFn warn, KeyNameFn name) {
  for (const auto &[letter, ffn] : spec.ffns)
    if (const auto *moe = std::get_if<MoeSpec>(&ffn); moe && moe->topK == 1 && moe->router.normalize) {
      std::string path = std::string("ffns.") + letter;
      warn(path + ".router.normalize",
           formatv("true with {0} 1 makes every weight 1: the router learns {1}", name(path + ".top_k"),
                   moe->router.addsLoss() ? "from balance_loss and z_loss alone, nothing from the model's loss; with "
                                            "false the weight is the expert's score"
                                          : "nothing in training")
               .str());
    }
}

std::string braid::keyName(const std::string &path) { return path.substr(path.rfind('.') + 1); }

llvm::LogicalResult braid::checkModelSpec(const ModelSpec &spec, KeyErrorFn error, KeyNameFn name) {
  return Checker(spec, error, name).run();
}
