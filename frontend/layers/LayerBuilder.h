//===- LayerBuilder.h - one layer as one function -----------------------------------------------------------------===//
// A layer is a private function of one layer's weights and states:
//   (x, documents, [router_loss], [first_value], [draw_keys], [embedding], states.., weights..)
//     -> (y, [router_loss], [first_value], [draw_keys], new states.., [expert_counts], [expert_dropped])
// Weights and states appear where the layer's code first names them; the same code serves training, prefill and decode.
#ifndef FRONTEND_LAYERS_LAYERBUILDER_H
#define FRONTEND_LAYERS_LAYERBUILDER_H

#include "frontend/FunctionBuilder.h"
#include <functional>

namespace braid {

/// Initial values of a weight: the attributes of braid.init.
struct Init {
  std::string distribution;
  double scale = 0, low = 0, high = 0;
  std::vector<double> values;
  std::function<std::vector<double>(int64_t layer)> ofLayer = {}; ///< `values` where layers differ
  static Init normal(double std) { return {"normal", std, 0, 0, {}}; }
  static Init constant(double value) { return {"constant", 0, value, 0, {}}; }
  static Init uniform(double low, double high) { return {"uniform", 0, low, high, {}}; }
};

/// What a matrix does, as far as initial values ask: `value` and `output` write what the residual stream receives.
/// `narrow`: its inputs do not grow with d_model. `router`: initialised as query, and not rounded in bf16 models.
enum class MatrixRole { query, value, output, narrow, router };

/// A dimension of a tensor and what it counts, whatever the mesh (braid.dims): "embed", "experts", or "heads*16", heads
/// of 16 elements each. Without a name every rank has all of it.
struct Dim {
  int64_t size;
  std::string name;
  Dim(int64_t size, std::string name = {}) : size(size), name(std::move(name)) {}
};
using Dims = llvm::SmallVector<Dim, 4>;
Shape sizesOf(llvm::ArrayRef<Dim> dims);
std::vector<std::string> namesOf(llvm::ArrayRef<Dim> dims);
/// All of these as one dimension; the first one names it.
Dim flattened(llvm::ArrayRef<Dim> dims);

/// What is computed of a weight of the model for so many layers, [layers, ..].
using DerivedFn = std::function<mlir::Value(FunctionBuilder &b, mlir::Value whole, llvm::ArrayRef<int32_t> layers)>;

struct WeightDecl {
  std::string name; ///< "lsm.wq"
  Shape shape;
  std::vector<std::string> dims;
  mlir::FloatType element;
  Init init;
  bool decay = true, trained = true;
  double rateScale = 1.0; ///< learning rate relative to the step's
  double correctionRate = 0.0; ///< of what updates change by the load of the layer's experts (braid.moe.correct)
  bool shared = false; ///< the model's, by this name: other layers read it, too
  DerivedFn derived = {}; ///< not the model's weight itself, but what this makes of it
  Shape derivedShape = {}; ///< of one layer

  /// Whether layers in a repeat have one each.
  bool ofLayer() const { return !shared || derived; }
};

struct StateDecl {
  std::string name; ///< "lsm.state"
  mlir::RankedTensorType type;
  std::vector<std::string> dims;
  bool byPosition = false; ///< dimension 1 has a row for each position, round and round where there are fewer
};

/// draw_keys of so many rows of the batch: sample, seed and layer of each (braid.moe.drop).
mlir::RankedTensorType drawKeysType(mlir::Builder builder, int64_t batch);

/// A built layer function and the parts of its signature.
struct Layer {
  mlir::func::FuncOp function;
  std::vector<WeightDecl> weights;
  std::vector<StateDecl> states;
  bool routerLoss = false; ///< takes and returns the router loss per token [B, T]
  mlir::RankedTensorType firstValue; ///< takes and returns the values of the first layer that has some: first_value
  bool draws = false; ///< takes and returns draw_keys [B, 3]
  bool embedding = false; ///< takes what the first layer reads [B, T, d_model]
  int64_t numExperts = 0; ///< returns expert counts [num_experts] when not 0
  bool drops = false; ///< returns expert_dropped [num_experts] as well

  /// How many weights layers in a repeat have one each of.
  size_t ownWeights() const { return llvm::count_if(weights, std::mem_fn(&WeightDecl::ofLayer)); }
};

/// The shape and kind of an entry point, as a layer sees it.
struct EntryShape {
  int64_t batch, tokens;
  bool cached; ///< keys and values come from caches; nothing is trained
};

class LayerBuilder : public FunctionBuilder {
public:
  LayerBuilder(const ModelSpec &spec, mlir::ModuleOp module, EntryShape entry, llvm::StringRef name);

  EntryShape entry;

  /// The mixer that is being built: names of weights and states of one that stands beside others begin with its place,
  /// "mixer2.lsm.wq". Weights of a block that layers share have names of the model instead, "injects.A.attn.wq".
  struct MixerPlace {
    char letter = 0;
    std::string prefix;
    std::string shared = {};
  };
  MixerPlace mixer;

  mlir::Value x() const { return block->getArgument(0); }
  mlir::Value documents() const { return block->getArgument(1); }
  /// The function with what was declared, returning y.
  Layer finish(mlir::Value y);

  // ---- weights and states
  /// A vector, a table, a convolution: read by kernels, so wide.
  mlir::Value weight(llvm::StringRef name, llvm::ArrayRef<Dim> shape, Init init, bool decay = false,
                     bool trained = true, double correctionRate = 0.0);
  /// What is computed, with such a shape for every layer, of a weight of the model, which other layers name, too.
  mlir::Value derivedWeight(llvm::StringRef name, llvm::ArrayRef<Dim> shape, Init init, Shape ofLayer,
                            DerivedFn derived);
  /// A matrix [in, out] of what stands there, initialised by its role; with `experts` one for each: [experts, in, out].
  /// Matrix products read it: of the model's element type, but for the router.
  mlir::Value matrix(llvm::StringRef name, const Dim &in, const Dim &out, MatrixRole role = MatrixRole::query,
                     int64_t experts = 0);
  /// A matrix [in, out] for each head: [heads, in, out], as head_linear reads them.
  mlir::Value headMatrices(llvm::StringRef name, const Dim &heads, int64_t in, int64_t out);
  /// A matrix [in, 1] as the vector that dot() reads, wide.
  mlir::Value column(llvm::StringRef name, const Dim &in);
  /// What the layer keeps from one call to the next, as it comes in; setState says how it goes out.
  mlir::Value state(llvm::StringRef name, mlir::FloatType element, llvm::ArrayRef<Dim> shape, bool byPosition = false);
  void setState(llvm::StringRef name, mlir::Value value);

  // ---- ops; `name` is what the result is called
  struct Projection {
    std::string name;
    mlir::Value weight;
    Shape features; ///< trailing dimensions of the result
    bool wide = false; ///< the result is not rounded to the model's element type
  };
  llvm::SmallVector<mlir::Value> linear(mlir::Value x, llvm::ArrayRef<Projection> projections);
  mlir::Value linear(llvm::StringRef name, mlir::Value x, mlir::Value weight, Shape features, bool wide = false);
  /// x with elements of the wide type.
  mlir::Value widen(llvm::StringRef name, mlir::Value x);
  /// x with elements of the model's type.
  mlir::Value narrow(llvm::StringRef name, mlir::Value x);
  mlir::Value add(llvm::StringRef name, mlir::ValueRange sources);
  mlir::Value mul(llvm::StringRef name, mlir::Value a, mlir::Value b);
  mlir::Value bias(llvm::StringRef name, mlir::Value x, mlir::Value bias);
  /// x times a weight over its features, or over the first of them: x [B, T, H, K] times [H].
  mlir::Value weighted(llvm::StringRef name, mlir::Value x, mlir::Value weight);
  /// Sums of x times a weight over the last dimension, wide.
  mlir::Value dot(llvm::StringRef name, mlir::Value x, mlir::Value weight);
  mlir::Value activation(llvm::StringRef name, mlir::Value x, llvm::StringRef kind);
  mlir::Value wideActivation(llvm::StringRef name, mlir::Value x, llvm::StringRef kind);
  mlir::Value softmax(llvm::StringRef name, mlir::Value x);
  mlir::Value l2Norm(llvm::StringRef name, mlir::Value x, double eps = 1e-6);
  /// The model's norm over d_model; weights `weights`.weight (and .bias).
  mlir::Value modelNorm(llvm::StringRef name, mlir::Value x, llvm::StringRef weights);
  /// `period`: positions modulo that many tokens.
  mlir::Value rope(llvm::StringRef name, mlir::Value x, const RopeSpec &rope, int64_t period = 0);
  mlir::Value repeatHeads(llvm::StringRef name, mlir::Value x, int64_t heads);
  /// x of the token before, 0 at a document's first; `key` names its state and its taps.
  mlir::Value tokenBefore(llvm::StringRef name, mlir::Value x, llvm::StringRef key);
  mlir::Value reshape(llvm::StringRef name, mlir::Value x, Shape shape);

  // ---- types
  /// d_model, as a dimension of a weight.
  Dim embed() const { return {spec.dModel, "embed"}; }
  /// [B, T, features...]
  mlir::RankedTensorType tokens(Shape features) const;
  mlir::RankedTensorType wideTokens(Shape features) const;

  /// Set by a mixture of experts: assignments of each expert, and, where it has a capacity, those without a slot.
  mlir::Value expertCounts, expertDropped;
  mlir::Value routerLoss() const { return loss; }
  /// What the first layer of the model reads.
  mlir::Value embedding();
  void addRouterLoss(mlir::Value perToken);
  /// What layers of one kind hand on from the first of them (RWKV-7), and what the next one reads instead. Zeros before
  /// the first.
  mlir::Value firstValue(mlir::RankedTensorType type);
  void setFirstValue(mlir::Value value) { first = value; }
  /// What a layer that draws reads (braid.moe.drop), and what the next one reads instead.
  mlir::Value drawKeys();
  void setDrawKeys(mlir::Value value) { draws = value; }

private:
  mlir::Value castTo(llvm::StringRef name, mlir::Value x, mlir::FloatType element);
  unsigned statesBegin() const; ///< number of the first state among the arguments
  mlir::Value loss, first, draws, embedded;
  void declare(llvm::StringRef name, llvm::ArrayRef<Dim> shape, mlir::FloatType element, Init init, bool decay,
               bool trained = true, double rateScale = 1.0, double correctionRate = 0.0);
  std::string placed(llvm::StringRef name) const { return mixer.prefix + name.str(); }
  std::string weightName(llvm::StringRef name) const {
    return mixer.shared.empty() ? placed(name) : mixer.shared + name.str();
  }
  std::vector<WeightDecl> weights;
  std::vector<StateDecl> states;
  std::vector<mlir::Value> newStates;
};

// ---- the layers: each takes the normed input [B, T, d_model] and returns what is added to the residual stream
/// What is added to the product of x and the weight of this name, y, with such features behind its tokens.
using Adapter = llvm::function_ref<mlir::Value(llvm::StringRef name, mlir::Value y, llvm::ArrayRef<Dim> features)>;
/// x may be of another width. `adapt`: what becomes of its products for q, k and v.
mlir::Value buildAttention(LayerBuilder &b, mlir::Value x, const AttentionSpec &spec, Adapter adapt = {});
/// What opens the output of attention, per feature of a head or per head: x wg.
LayerBuilder::Projection outputGate(LayerBuilder &b, const Dim &in, const Dim &heads, int64_t width,
                                    llvm::StringRef per);
mlir::Value buildMla(LayerBuilder &b, mlir::Value x, const MlaSpec &spec);
mlir::Value buildShortConv(LayerBuilder &b, mlir::Value x, const ShortConvSpec &spec);
mlir::Value buildLsm(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildRecurrence(LayerBuilder &b, mlir::Value x, const RecurrenceSpec &spec);
/// `gate` [B, T]: a factor of each token's output, but for b2. `adapt`: what becomes of its products with w1 and w3.
mlir::Value buildDense(LayerBuilder &b, mlir::Value x, const DenseSpec &spec, llvm::StringRef prefix,
                       mlir::Value gate = {}, Adapter adapt = {});
mlir::Value buildExperts(LayerBuilder &b, mlir::Value x, const MoeSpec &spec);
/// What a layer with the input x adds to what its mixers' norm reads, by a block that it shares with others.
mlir::Value buildInject(LayerBuilder &b, mlir::Value x, const InjectSpec &spec, char letter);

/// What a function is marked with, for passes to read.
struct LayerMarks {
  bool recompute = false; ///< its backward computes the activations again
  int64_t overlapDegree = 0; ///< token slices; 0: as many as the compilation asks for
};
/// norm, mixers side by side, norm, feed-forward, with the residual stream around them; a letter may be noPart.
struct LayerLetters {
  llvm::StringRef mixers;
  char ffn, inject;
};
Layer buildLayer(const ModelSpec &spec, mlir::ModuleOp module, EntryShape entry, LayerLetters letters,
                 LayerMarks marks);

} // namespace braid

#endif // FRONTEND_LAYERS_LAYERBUILDER_H
