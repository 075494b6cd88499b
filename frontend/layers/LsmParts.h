//===- LsmParts.h - what the instances of linear sequence models share --------------------------------------------===//
// Every instance is: projections of x, perhaps short convolutions, gates, one braid.lsm.scan of its transition class, a
// norm and a gate on the output, and the projection back. An instance file says only what is its own.
#ifndef FRONTEND_LAYERS_LSMPARTS_H
#define FRONTEND_LAYERS_LSMPARTS_H

#include "frontend/layers/LayerBuilder.h"

namespace braid {

/// All projections of one input: one braid.linear, results by name.
class Projections {
public:
  explicit Projections(LayerBuilder &b) : b(b) {}
  /// Declares weight lsm.w<name> [d_model, product of features].
  void add(llvm::StringRef name, llvm::ArrayRef<Dim> features, bool wide = false);
  void add(llvm::StringRef name, llvm::ArrayRef<Dim> features, bool wide, MatrixRole role);
  /// Declares lsm.w<name>1 [d_model, rank]; `lowRank` is the way back, through lsm.w<name>2 [rank, product of
  /// features].
  void addLowRank(llvm::StringRef name, int64_t rank) { add((name + "1").str(), {rank}); }
  mlir::Value lowRank(llvm::StringRef name, llvm::ArrayRef<Dim> features, bool wide = true,
                      std::optional<llvm::StringRef> act = std::nullopt) const;
  bool empty() const { return projections.empty(); }
  void run(mlir::Value x);
  mlir::Value operator[](llvm::StringRef name) const;
  /// What is projected becomes something else for those who ask later.
  void replace(llvm::StringRef name, mlir::Value value);

private:
  LayerBuilder &b;
  std::vector<LayerBuilder::Projection> projections;
  llvm::SmallVector<mlir::Value> values;
};

/// So many heads, as a dimension: those of the state, or the fewer of keys and values.
Dim headsOf(const LsmSpec &spec, int64_t count);

struct ScanInputs {
  mlir::Value q = {}, k = {}, v = {}, logDecay = {}, beta = {}; ///< fewer heads than the state: repeated
  mlir::Value a = {}, b = {}, valueDecay = {};
};

/// Projections q, k, v, and g where the output is gated.
void addQkvg(Projections &p, const LsmSpec &spec, int64_t queryHeads, int64_t keyHeads, int64_t valueHeads);
/// The convolution alone. Weight and state lsm.conv_<name>.
mlir::Value convolve(LayerBuilder &b, const ConvSpec &spec, llvm::StringRef name, mlir::Value x,
                     llvm::StringRef heads = {});
/// silu(conv(x)) where the description has a convolution, else x.
mlir::Value shortConv(LayerBuilder &b, const LsmSpec &spec, llvm::StringRef name, mlir::Value x);
/// x of the token before, 0 at the first of a document. State lsm.shift_<name>.
mlir::Value shifted(LayerBuilder &b, llvm::StringRef name, mlir::Value x);
/// act(x <name>_a) <name>_b, rank `rank` between: [B, T, features..], wide. `within`: what happens to what is between.
mlir::Value lowRank(LayerBuilder &b, llvm::StringRef name, mlir::Value x, int64_t rank, const Dims &features,
                    std::optional<llvm::StringRef> act = std::nullopt,
                    llvm::function_ref<mlir::Value(mlir::Value)> within = nullptr);
/// x - y
mlir::Value minus(LayerBuilder &b, llvm::StringRef name, mlir::Value x, mlir::Value y);
/// sum of a b over the last dimension.
mlir::Value inner(LayerBuilder &b, llvm::StringRef name, mlir::Value x, mlir::Value y);
/// The heads of x [B, T, H, V] as one dimension.
mlir::Value joinHeads(LayerBuilder &b, llvm::StringRef name, mlir::Value x);
/// feature_map of q or k.
mlir::Value featureMap(LayerBuilder &b, const LsmSpec &spec, llvm::StringRef name, mlir::Value x);
/// Rotary positions where the description has them, else x.
mlir::Value rotate(LayerBuilder &b, const LsmSpec &spec, llvm::StringRef name, mlir::Value x);
/// beta = sigmoid(raw), twice that with allow_neg_eigval.
mlir::Value writeStrength(LayerBuilder &b, const LsmSpec &spec, mlir::Value raw);
/// q, k and v of such projections, through their convolutions.
ScanInputs convolved(LayerBuilder &b, const LsmSpec &spec, const Projections &p);
/// Of a delta rule: q and k of length 1, v, and beta from projection b.
ScanInputs deltaInputs(LayerBuilder &b, const LsmSpec &spec, const Projections &p);
/// lsm.a_log [H, ..], exp of it initially in decay_range.
mlir::Value decayRate(LayerBuilder &b, const LsmSpec &spec, Shape perHead = {});
/// lsm.dt_bias [H, ..], softplus of it initially in step_range.
mlir::Value stepBias(LayerBuilder &b, const LsmSpec &spec, Shape perHead = {});
/// One constant log decay per head, which layers may differ in: an untrained entry of the weights, so that layers share
/// one function and files can differ.
mlir::Value constantDecay(LayerBuilder &b, const LsmSpec &spec,
                          std::function<std::vector<double>(int64_t layer)> ofLayer);
/// o of the scan over a state [H, K, V] of k and v, of the type of v.
mlir::Value scan(LayerBuilder &b, const LsmSpec &spec, LsmClass kind, ScanInputs in,
                 llvm::StringRef stateName = "lsm.state");
/// The same of a token that updates its state several times, by all of one class, and reads it behind the last.
mlir::Value scan(LayerBuilder &b, const LsmSpec &spec, LsmClass kind, mlir::Value q, llvm::ArrayRef<ScanInputs> updates,
                 llvm::StringRef stateName = "lsm.state");
/// A weight [H] or [H, K] at every token, wide.
mlir::Value everyToken(LayerBuilder &b, llvm::StringRef name, mlir::Value weight);
/// The sum of phases [B, T, H, K], wide, of a document up to each token, as an angle of at most a turn and a bit.
mlir::Value summedPhases(LayerBuilder &b, const LsmSpec &spec, mlir::Value phase);
/// Two scans of class V over a state that decays by exp(log_decay) and has turned by `angle` [B, T, H, K], wide: the
/// real part of what q reads. States lsm.state and lsm.state_sin.
mlir::Value turningScan(LayerBuilder &b, const LsmSpec &spec, const ScanInputs &in, mlir::Value angle);
/// The same for a turn that all tokens share: weights [H, K].
struct SharedTurn {
  mlir::Value phase; ///< of one token
  mlir::Value re, im; ///< the key; no im: in.k is a real one of every token
};
/// in.q may be absent: ones. States lsm.state and lsm.state_im.
mlir::Value sharedTurnScan(LayerBuilder &b, const LsmSpec &spec, ScanInputs in, const SharedTurn &shared);

/// Operands of braid.lsm.inner_step; what stands behind `rate` may be absent.
struct InnerInputs {
  mlir::Value q, k, target, rate;
  mlir::Value logDecay = {}, logMomentum = {}, readRate = {}, normWeight = {}, normBias = {}, start = {};
  double normEps = 1e-6; ///< that of the published TTT and Titans layers
};
/// o of steps of mini_batch tokens, of the type of the target; state lsm.state.
mlir::Value innerStep(LayerBuilder &b, const LsmSpec &spec, const InnerInputs &in);
/// Values [B, T, H, V] of the first layer that keeps some (firstValueWidth): `own` in that layer.
mlir::Value firstValues(LayerBuilder &b, const LsmSpec &spec, mlir::Value own);

/// One number in the place of a value of this type.
mlir::Value filled(LayerBuilder &b, llvm::StringRef name, mlir::RankedTensorType type, double number);
/// Values v [B, T, H, V] and the column of ones in which keys are summed, behind as many of zeros as make wide states ones that kernels have tiles for: 257 columns are no
/// multiple of anything (a GPU walks over them one at a time; a CPU took 5 times as long as for 256), 320 are five tiles of 64. A CPU gains nothing at other widths that were
/// tried (128: 129 columns took 0.8 of the time of 192; 512: 0.94).
mlir::Value appendOne(LayerBuilder &b, mlir::Value v);
/// The columns of zeros of such values.
int64_t zerosBeside(int64_t values);
/// What was read of them, [B, T, H, V]: divided by what keys have been summed to plus eps, or by its size if that is at least `least`.
mlir::Value divideByLast(LayerBuilder &b, mlir::Value o, int64_t values, double eps, std::optional<double> least = {});

/// The norm of an output: before its gate or after it, over each of `groups` equal parts of the last dimension.
struct OutputNorm {
  bool beforeGate = true;
  int64_t groups = 1;
};
/// norm(o) act(gate) wo, or norm(o act(gate)) wo; with o [B, T, H, V] the norm is per head. No gate: norm(o) wo.
mlir::Value gatedOutput(LayerBuilder &b, const LsmSpec &spec, mlir::Value o, mlir::Value gate, OutputNorm norm = {});
/// Layer norm per head with weights lsm.norm.weight and .bias [H, V].
mlir::Value groupNorm(LayerBuilder &b, const LsmSpec &spec, mlir::Value o);
/// (o wo) act(o wg), o [B, T, n]
mlir::Value gluOutput(LayerBuilder &b, mlir::Value o, llvm::StringRef act);
/// o wo
mlir::Value projectOutput(LayerBuilder &b, const LsmSpec &spec, mlir::Value o);

mlir::Value buildBased(LayerBuilder &b, mlir::Value x, const LsmSpec &spec); // and rebased
mlir::Value buildBla(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildRetnet(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildMamba2(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildGla(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildDeltanet(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildFastWeights(LayerBuilder &b, mlir::Value x, const LsmSpec &spec); // dfw, gfw
mlir::Value buildGateloop(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildHgrn2(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildKda(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildLightning(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildMamba(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildMlstm(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildRglru(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildRwkv6(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildRwkv7(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildS4d(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildTitans(LayerBuilder &b, mlir::Value x, const LsmSpec &spec); // and titans_ln
mlir::Value buildTtt(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);
mlir::Value buildGatedDeltanet(LayerBuilder &b, mlir::Value x, const LsmSpec &spec);

} // namespace braid

#endif // FRONTEND_LAYERS_LSMPARTS_H
