//===- ModelSpec.h - a model description as plain structs ---------------------------------------------------------===//
// Members are the keys of the JSON file, in camelBack; models/README.md says what each one means. Readers of other
// formats fill the same structs; checkModelSpec holds the rules between keys for all of them.
#ifndef FRONTEND_MODELSPEC_H
#define FRONTEND_MODELSPEC_H

#include "runtime/schema/LayerPattern.h"
#include "runtime/schema/Limits.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/LogicalResult.h"
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace braid {

/// Rows and tokens of a batch, tokens of a row, documents, keys: the same for descriptions and flags. What the runtime
/// must agree with stands in runtime/schema/Limits.h.
inline constexpr int64_t maxTokens = int64_t(1) << 24, maxDecodeBatch = 4096;
/// Features of a token: d_model, and all heads of a mixer together.
inline constexpr int64_t maxWidth = 1 << 17;
/// Features between the products of a feed-forward.
inline constexpr int64_t maxHidden = 1 << 19;
/// head_dim of feature maps whose features are products.
inline constexpr int64_t maxProductDim = 64;
/// Heads of a mixer.
inline constexpr int64_t maxHeads = 1 << 12;
/// Tokens of a mini-batch of inner steps.
inline constexpr int64_t maxMiniBatch = 128;
/// Bounds of a cap c of c tanh(y / c).
inline constexpr double leastCap = 1e-3, mostCap = 1e6;

enum class NormKind { rms, layer };
enum class NormPlacement { pre, post, sandwich, output };
llvm::StringRef nameOf(NormPlacement placement);
enum class LsmKind {
  bla,
  based,
  rebased,
  retnet,
  lightning,
  mamba2,
  gla,
  hgrn2,
  gateloop,
  rwkv6,
  dfw,
  gfw,
  mamba,
  deltanet,
  gated_deltanet,
  kda,
  rwkv7,
  mlstm,
  rglru,
  s4d,
  ttt,
  titans,
  titans_ln
};

struct NormSpec {
  NormKind kind = NormKind::rms;
  double eps = 1e-6;
  bool bias = true; ///< layer: behind its weight
  bool hasBias() const { return kind == NormKind::layer && bias; }
};

/// How rotations become slower for contexts longer than those that a model has been trained with.
struct RopeScaling {
  /// linear: all of them; llama3: those with few turns in the original context; yarn: the same by a ramp over pairs;
  /// proportional: all that turn, and the last pairs do not
  std::string kind = "linear";
  double factor = 1.0; ///< a rotation becomes so much slower at most
  int64_t originalContextLen = 0; ///< llama3, yarn
  double lowFreqFactor = 1.0; ///< llama3: up to so many turns in it a rotation becomes slower by the whole factor,
  double highFreqFactor = 4.0; ///< from so many on it stays
  double share = 1.0; ///< proportional: of the pairs the first so many turn
  double betaSlow = 1.0, betaFast = 32.0; ///< yarn: the same
  bool truncate = true; ///< yarn: the ramp begins and ends at whole pairs
  double attentionFactor = 0.0; ///< yarn: of what turns; 0: attentionFactorOf(factor)

  /// 0.1 mscale ln(factor) + 1.
  static double attentionFactorOf(double factor, double mscale = 1.0);
  /// Factors of the frequencies theta^(-2i/dim), pair by pair.
  std::vector<double> factors(double theta, int64_t dim) const;
};

struct RopeSpec {
  double theta = 10000.0;
  double fraction = 1.0; ///< share of the head that turns; fraction * head_dim is even
  std::string layout = "half"; ///< half, interleaved
  std::optional<RopeScaling> scaling;
  int64_t dim(int64_t headDim) const;
};

/// alpha times what passes by, beta times what a mixer or feed-forward adds.
struct ResidualScale {
  double alpha = 1.0, beta = 1.0;
  bool deepnorm = false; ///< alpha follows from the number of residual sums
};

struct AttentionSpec {
  int64_t heads = 0, kvHeads = 0, headDim = 0;
  std::optional<RopeSpec> rope = RopeSpec{};
  bool qkvBias = false, outputBias = false;
  bool sinks = false; ///< of each head a score that no key has
  double softcap = 0.0; ///< c: scores are c tanh(s / c); 0: as they are
  bool qkNorm = false;
  std::string qkNormOver = "head"; ///< head, heads: features that one norm is over
  int64_t window = 0; ///< keys a query sees; 0: all
  double scale = 0.0; ///< of the scores; 0: 1 / sqrt(head_dim)
  std::optional<std::string> outputGate; ///< activation of the gate on o
  std::string outputGatePer = "feature"; ///< feature, head
  double inputMultiplier = 1.0; ///< of what it reads, as of every mixer
  std::optional<ResidualScale> residual;
  std::optional<NormPlacement> normPlacement; ///< of the part's norms, as of every part; none: the model's
};

/// Multi-head latent attention: keys and values are made of a latent of few features, which is all that caches keep.
struct MlaSpec {
  int64_t heads = 0;
  int64_t qRank = 0; ///< features of the latent that queries are made of; 0: they are made of the input
  int64_t kvRank = 0; ///< features of the latent that keys and values are made of
  int64_t headDim = 0; ///< features of q and k that every head has of its own
  int64_t ropeDim = 0; ///< features of k that all heads share, and those of q that meet them
  int64_t valueDim = 0;
  std::optional<RopeSpec> rope = RopeSpec{}; ///< of the shared features
  double scale = 0.0; ///< of the scores; 0: 1 / sqrt(head_dim + rope_dim)
  double normEps = 1e-6; ///< of the norms of both latents
  std::optional<std::string> outputGate; ///< activation of the gate on o
  std::string outputGatePer = "feature"; ///< feature, head
  double inputMultiplier = 1.0;
  std::optional<ResidualScale> residual;
  std::optional<NormPlacement> normPlacement;
};

struct ConvSpec {
  int64_t kernel = 4;
  bool bias = false;
  std::optional<std::string> activation = "silu"; ///< hgrn2: silu, or none
  bool decays = false; ///< hgrn2: also of what decays and keys are made of
};

/// A gated short convolution, with no state but the last tokens: C * conv(B * x).
struct ShortConvSpec {
  int64_t width = 0; ///< channels; 0: d_model
  ConvSpec conv{.kernel = 3};
  bool projectionBias = false, outputBias = false;
  double inputMultiplier = 1.0;
  std::optional<ResidualScale> residual;
  std::optional<NormPlacement> normPlacement;
};

/// Factors of what a Mamba-2 mixer projects its input to: x wq, x wk, x wv, x wg, x wdt.
struct ProjectionMultipliers {
  double q = 1.0, k = 1.0, v = 1.0, g = 1.0, dt = 1.0;
};

/// A linear sequence model: the keys of all instances. Which ones an instance has, and their defaults: ModelTables.cpp.
struct LsmSpec {
  LsmKind kind = LsmKind::gla;
  int64_t heads = 0; ///< heads of the state
  int64_t keyHeads = 0; ///< heads of q and k (heads / key_heads state heads share them)
  int64_t kvHeads = 0; ///< heads of k, v and the decay (heads / kv_heads query heads share them)
  int64_t headDim = 0, valueDim = 0;
  std::optional<ConvSpec> conv;
  std::optional<RopeSpec> rope;
  std::string featureMap = "identity"; ///< of q and k
  std::string slopes = "minimax"; ///< constant decays of lightning: minimax, transnormer
  int64_t gateRank = 16; ///< rank of the projections of decays and rates; kda: 0 for a whole one
  int64_t rateRank = 0, valueRank = 0; ///< rwkv7: of those of rates, and of the share of the first layer's values
  bool valueMix = true; ///< rwkv7: else v is the layer's own, and what layers behind it mix with
  double l2Eps = 1e-24; ///< rwkv7: added to the squared length of what is divided by it
  double lowerBound = 0.0; ///< kda: log_decay = lower_bound sigmoid(..); 0: no bound, softplus
  std::optional<std::string> lowerBounds = "layers"; ///< hgrn2: of decays: layers, learned; none: 0
  int64_t mixRank = 32; ///< rank of what decides how much of the token before a projection sees
  double gateSoftcap = 15.0; ///< mlstm: c of the gates' c tanh(y / c)
  double gateDivisor = 16.0; ///< log_decay = logsigmoid(f) / gate_divisor
  bool allowNegEigval = false; ///< beta in (0, 2)
  int64_t miniBatch = 16; ///< tokens whose inner gradients are taken at the same weights
  bool bcdtNorm = false; ///< a norm of what steps are made of, of k and of q
  bool bcdtNormWeights = true; ///< with weights
  double innerRate = 1.0; ///< the inner learning rate where its gate is open
  bool momentum = true; ///< inner steps carry a momentum
  double scale = 0.0; ///< of q; 0: 1 / sqrt(head_dim)
  bool outputNorm = true;
  std::optional<std::string> outputGate; ///< activation of the gate
  int64_t outputGateRank = 0; ///< the gate is a projection through so many features; 0: of the input
  bool outputGateBias = false; ///< behind the gate's projection
  double normEps = 1e-5;
  std::array<double, 2> decayRange{1.0, 16.0}; ///< initial exp(A_log)
  std::array<double, 2> stepRange{0.001, 0.1}; ///< initial softplus(dt_bias)
  bool normFirst = false; ///< mamba2, recurrences: norm(o) act(gate), else norm(o act(gate))
  ProjectionMultipliers projectionMultipliers; ///< mamba2
  double minStep = 0.0, maxStep = 0.0; ///< mamba2: steps are between these; 0: no bound
  bool projectionBias = false, outputBias = false; ///< mamba2, rglru: of what the input is projected to, of the output
  double inputMultiplier = 1.0;
  std::optional<ResidualScale> residual;
  std::optional<NormPlacement> normPlacement;
};

namespace recurrence {
struct Recurrence;
} // namespace recurrence

/// A recurrence that the file states (frontend/Recurrence.h); sizes, convolution and output path are those of LsmSpec.
struct RecurrenceSpec : LsmSpec {
  RecurrenceSpec() { normFirst = true; }
  std::shared_ptr<const recurrence::Recurrence> recurrence; ///< analysed
  std::optional<std::string> outputGlu; ///< (o wo) act(o wg)
  std::optional<int64_t> normGroups; ///< the norm is over each of so many groups of all heads' features; none: per head
};

using MixerSpec = std::variant<AttentionSpec, MlaSpec, ShortConvSpec, LsmSpec, RecurrenceSpec>;

/// The values that layers of this mixer mix with those of the first such layer: rwkv7, first(..) of a recurrence. All
/// of a model have one width; 0: none.
int64_t firstValueWidth(const MixerSpec &mixer);

struct DenseSpec {
  int64_t hidden = 0;
  std::string activation = "swiglu";
  bool bias = false;
  bool tokenShift = false; ///< it reads a mixture of its token and the one before
  std::optional<std::string> outputGate; ///< activation of a gate on what it gives, by a product with x of its own
  double gateMultiplier = 1.0; ///< of what the gate's activation reads
  std::optional<ResidualScale> residual;
  std::optional<NormPlacement> normPlacement;
};

struct RouterSpec {
  std::string score = "softmax"; ///< of an expert, from its logit: softmax over all experts, sigmoid
  bool normalize = true; ///< the scores of the chosen experts are divided by their sum
  double scale = 1.0; ///< of the weights, at last
  bool bias = false; ///< of the logits
  bool correction = false; ///< a number for each expert is added to its score where experts are chosen, nowhere else
  double correctionRate = 0.001; ///< by which every update moves it towards equal loads; 0: it stays
  int64_t groups = 1, keptGroups = 1; ///< groups of neighbouring experts; those that a token's experts may be of
  std::string groupScore = "max"; ///< of a group: its largest score, or top2: the sum of the two largest
  int64_t groupTop() const { return groupScore == "top2" ? 2 : 1; }
  double balanceLoss = 0.01, zLoss = 0.001;
  bool addsLoss() const { return balanceLoss != 0 || zLoss != 0; }
};

struct MoeSpec {
  int64_t numExperts = 0, topK = 0, expertHidden = 0, sharedHidden = 0; ///< shared_hidden 0: no shared expert
  bool sharedGate = false; ///< the shared expert's output times sigmoid(x gate)
  int64_t latentDim = 0; ///< experts work on so many features that a projection makes of the input; 0: on the input
  std::string activation = "swiglu";
  bool bias = false; ///< of the experts' products
  RouterSpec router;
  std::optional<double> capacityFactor; ///< none: dropless
  std::string capacityRule = "megatron"; ///< megatron, switch, megablocks, tutel
  std::string dropPolicy = "token"; ///< token, slot, score, bpr, random, device
  int64_t devices = 0; ///< with policy device: so many groups of neighbouring experts share slots
  double protect = 0; ///< with policy device: share of the documents of which nothing is dropped
  bool paddedSlots = false; ///< every expert gets all its slots as rows
  bool renormalize = false; ///< weights of what is left sum to what they did
  std::optional<ResidualScale> residual;
  std::optional<NormPlacement> normPlacement;
  bool draws() const { return capacityFactor && (dropPolicy == "random" || protect > 0); }
};

/// Slots of an expert (policy device: of a device) for each row of `tokens` tokens; capacity_factor is set.
int64_t expertCapacity(const MoeSpec &spec, int64_t tokens);

using FfnSpec = std::variant<DenseSpec, MoeSpec>;

/// A block whose weights several layers share: attention over the layer's input beside the embedding, then a
/// feed-forward. A layer adds what it gives, times a matrix of its own, to what its mixers' norm reads.
struct InjectSpec {
  AttentionSpec attention;
  std::optional<DenseSpec> ffn;
  /// Features of the products of low rank that every layer adds to those of the block; 0: none.
  int64_t attentionAdapterRank = 0, ffnAdapterRank = 0;
};

/// What passes by a mixer or feed-forward, and the factors of the parts that do not say their own.
struct ResidualSpec : ResidualScale {
  std::string from = "input"; ///< input: x; normed: norm(x)
};

struct InitSpec {
  /// scaled: standard deviation 1 / sqrt(inputs); normal: std; xavier_*: from inputs + outputs; deepnorm: xavier_normal
  /// with gain (4 sums)^-1/4 on values, outputs and feed-forwards; sums: ModelSpec::residualSums()
  std::string kind = "scaled";
  double std = 0.02; ///< of embeddings and head, and of all matrices with kind normal
  double gain = 1.0; ///< xavier_*
  bool scaleOutput = true; ///< projections back to the residual stream: divided by sqrt(sums)
  int64_t baseWidth = 0; ///< mu-parametrisation relative to a model of this d_model; 0: none
};

struct TrainSpec {
  int64_t batch = 8, seqLen = 256;
  int64_t accumulationSteps = 1; ///< batches whose gradients make one update
  int64_t microBatches =
      0; ///< parts of a batch's rows that go through the stages one after the other; 0: the mesh decides
  double learningRate = 1e-3, minLearningRate = 1e-4;
  int64_t warmupSteps = 100, steps = 1000;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weightDecay = 0.1, clipNorm = 1.0;
  int64_t seed = 0;
  std::string gradientDtype = "f32"; ///< of weights that are bf16: f32, bf16
  std::string momentDtype = "f32"; ///< both of AdamW's, of weights that are bf16: f32, bf16
};

/// Of one rank, per second and in seconds: what orders of tasks are chosen by.
struct MachineSpec {
  double flops = 0, bandwidth = 0; ///< of matrix products, of its memory
  double overhead = 0; ///< of every command
  double linkBandwidth = 0, linkLatency = 0; ///< bytes of an all-to-all's buffer, of one all-to-all
};

/// How the program spends time and memory; none of it changes what is computed.
struct ScheduleSpec {
  bool recomputeAll = false;
  std::vector<int64_t> recompute; ///< layers whose activations are computed again in the backward
  std::optional<int64_t> activationBudget; ///< bytes per rank of activations kept for the backward
  std::optional<double>
      expertRoom; ///< rows of a rank's experts that each other rank has room for, in even shares; none: all there may be
  std::string spAlgorithm = "auto"; ///< how states of scans travel along sp: auto, ring, all_gather, scan
  std::string pipeline = "none"; ///< of layers whose experts exchange rows: a name of schedule/Stages.h
  int64_t overlapDegree = 1; ///< token slices of such a layer
  std::map<int64_t, int64_t> overlapDegrees; ///< of layers that have another number of slices
  std::string slicing = "uniform"; ///< a name of schedule/Slicing.h
  int64_t chunkSize = 0; ///< tokens per chunk of a scan; 0: the compiler chooses
  std::optional<MachineSpec> machine; ///< absent: the compiler assumes one
  std::vector<int64_t>
      stageLayers; ///< layers of each stage of a pipeline (mesh axis pp); none: shared out by what they will take
  std::string stageOrder = "1F1B"; ///< of micro-batches on a stage: 1F1B or ZB-H1
  std::string headStages = "auto"; ///< that have words of the head: auto, last or all
  int64_t stages = 1; ///< of the mesh; no key
  int64_t wordRanks = 1; ///< of the mesh, that have different words where all stages have some: pp tp; no key

  bool recomputes(int64_t layer) const { return recomputeAll || llvm::is_contained(recompute, layer); }
  /// Whether any layer is cut.
  bool slices() const {
    return overlapDegree > 1 || llvm::any_of(overlapDegrees, [](auto &entry) { return entry.second > 1; });
  }
};

/// What a pattern has in the place of a letter where a layer has no such part.
inline constexpr char noPart = '-';

/// What `import` says of a weight.
struct ImportedWeight {
  std::string name; ///< as it spells ours: layers.{layer}.attn.wq
  bool ofExperts = false; ///< each expert has a tensor of its own
  bool stacked = false; ///< all experts are one tensor
  bool isConstant = false; ///< no tensor: these numbers
};

struct ModelSpec {
  std::string name = "model";
  int64_t vocabSize = 0, dModel = 0, numLayers = 0, maxDocuments = 1, contextLen = 1024;
  int64_t decodeBatch = 1; ///< sequences that generation continues at a time
  bool tieEmbeddings = false;
  NormSpec norm;
  NormPlacement normPlacement = NormPlacement::pre;
  bool embeddingNorm = false; ///< the first layer reads a norm of the embedding
  ResidualSpec residual;
  double embeddingMultiplier = 1.0, logitsMultiplier = 1.0;
  double logitsSoftcap = 0.0; ///< c: logits are c tanh(y / c); 0: as they are
  std::string dtype = "f32"; ///< f32, bf16, f64: what floatTypesOf makes of it
  /// Letters, repeated over the layers; noPart: none. Mixers in parentheses stand side by side in one layer.
  std::string layerPattern, ffnPattern, injectPattern;
  std::map<char, MixerSpec> mixers;
  std::map<char, FfnSpec> ffns;
  std::map<char, InjectSpec> injects;
  InitSpec init;
  TrainSpec train;
  ScheduleSpec schedule;
  std::optional<std::vector<ImportedWeight>> imported; ///< weights that `import` names
  std::vector<std::string> warnings; ///< what it says that hardly anybody means
  std::string source; ///< the text it was read from, kept in the program file
  std::string config; ///< of another library: what its keys say (runtime/train/ImportedConfig.h); kept there too
  std::string defaults; ///< what keys of it say that are left out, {"mixers.N.window":0,..}; kept there too

  /// d_model relative to init.base_width (1 without one).
  double widthRatio() const {
    return init.baseWidth ? static_cast<double>(dModel) / static_cast<double>(init.baseWidth) : 1.0;
  }
  /// Lengths of the prefill entries, ascending; at most context_len tokens.
  std::vector<int64_t> prefillBuckets() const;
  /// Rows of the caches of an attention with this window: all of a context, or a ring that holds what the window and
  /// the longest prefill need.
  int64_t cacheRows(int64_t window) const;
  /// Letters of the mixers that read the input of a layer, one behind the other; noPart: none. Of every layer, of one.
  std::vector<std::string> mixersOfLayers() const;
  std::string mixersOf(int64_t layer) const;
  char ffnOf(int64_t layer) const { return ffnPattern.empty() ? noPart : ffnPattern[layer % ffnPattern.size()]; }
  char injectOf(int64_t layer) const {
    return injectPattern.empty() ? noPart : injectPattern[layer % injectPattern.size()];
  }
  /// The part of a letter; null for noPart.
  const MixerSpec *findMixer(char letter) const;
  const FfnSpec *findFfn(char letter) const;
  const InjectSpec *findInject(char letter) const;
  /// Mixers and feed-forwards of all layers: each adds to the residual stream once, mixers side by side together.
  int64_t residualSums() const;
  /// The factors of a part: its own, or the model's.
  template <typename Parts> ResidualScale residualOf(const Parts &parts) const {
    return std::visit([&](auto &part) { return part.residual.value_or(residual); }, parts);
  }
  /// Where the norms of a part stand: where it says, or the model.
  template <typename Parts> NormPlacement placementOf(const Parts &parts) const {
    return std::visit([&](auto &part) { return part.normPlacement.value_or(normPlacement); }, parts);
  }
};

/// Gated activations multiply act(x w1) by x w3. `base` is the activation itself: silu for swiglu. Clamped ones have ends, a slope and a one (swiglu_clamp).
struct Activation {
  llvm::StringRef name, base;
  bool gated, clamped = false;
};
llvm::ArrayRef<Activation> ffnActivations();
const Activation &ffnActivation(llvm::StringRef name);

/// Which keys an instance has, and what they are when the file does not say.
struct LsmTraits {
  LsmKind kind;
  llvm::StringRef name;
  std::vector<llvm::StringRef> keys; ///< beyond heads, head_dim, value_dim, scale, norm_eps
  int64_t valueFactor; ///< value_dim = value_factor * head_dim
  LsmSpec defaults;
  bool has(llvm::StringRef key) const { return llvm::is_contained(keys, key); }
};
const LsmTraits &lsmTraits(LsmKind kind);
llvm::ArrayRef<LsmTraits> lsmInstances();

/// The shortest text that reads back as the same number.
std::string numberText(double value);

/// Text of a stranger for a message: whole UTF-8 letters, what a terminal does not show as \XX, ".." after `most`
/// letters.
std::string shownText(llvm::StringRef text, size_t most);

/// Takes one finished message; an error is reported once for each call.
using DiagnosticFn = llvm::function_ref<void(const std::string &message)>;

/// A flag that takes the place of the key at `path`, whether the file has it or not. Messages about the key name the
/// flag: "--batch: 0 is out of range; valid: 1 to 16777216".
struct KeyOverride {
  llvm::StringRef flag, path; ///< "--batch", "train.batch"
  std::variant<int64_t, double, std::string> value;
};

/// The rules between keys ("mixers.N.kv_heads" and what is wrong there).
using KeyErrorFn = llvm::function_ref<void(const std::string &path, const std::string &message)>;

/// Reads a model description (JSON with comments). Messages read "tiny.json:12: mixers.N.kv_heads: 3 does not divide
/// heads 8; valid: 1, 2, 4, 8". All errors are reported, none ends the process, whatever the text holds. `complete` adds what
/// no key says (stages) before the rules between keys are looked at, and may have rules of its own.
llvm::FailureOr<ModelSpec> parseModelSpec(llvm::StringRef text, llvm::StringRef filename, DiagnosticFn error,
                                          llvm::ArrayRef<KeyOverride> overrides = {},
                                          llvm::function_ref<void(ModelSpec &spec, KeyErrorFn error)> complete = {});

/// "none", "all", or layers such as "0,4-7": what `schedule.recompute` says. The message of a failure says what would
/// be valid; layers are compared with the model by checkModelSpec.
llvm::LogicalResult parseRecompute(llvm::StringRef text, ScheduleSpec &schedule, std::string &message);
/// Layers and their numbers of slices, such as "0-1:2,3:1": what `schedule.overlap_degrees` says; "": none. As above.
llvm::LogicalResult parseOverlapDegrees(llvm::StringRef text, ScheduleSpec &schedule, std::string &message);
/// "7,9,8": layers of each stage.
llvm::LogicalResult parseStageLayers(llvm::StringRef text, ScheduleSpec &schedule, std::string &message);

/// What the file calls the key at a path: num_attention_heads where it is a config of transformers.
using KeyNameFn = llvm::function_ref<std::string(const std::string &path)>;
/// The last key of the path.
std::string keyName(const std::string &path);
llvm::LogicalResult checkModelSpec(const ModelSpec &spec, KeyErrorFn error, KeyNameFn name = keyName);
/// What a valid description says that hardly anybody means.
void checkModelWarnings(const ModelSpec &spec, KeyErrorFn warn, KeyNameFn name);

} // namespace braid

#endif // FRONTEND_MODELSPEC_H
