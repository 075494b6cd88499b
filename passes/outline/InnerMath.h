//===- InnerMath.h - a mini-batch of gradient steps in matrix form (lsm-family.md 5.13, 5.14) ---------------------===//
//
//   U = dL/dz at Z = K B,  W = rate U         every step of a mini-batch is taken at its first weights B
//   O  = be (Q M) + f (Q S) - ((Q K^T) * G) W
//   M' = be_C M + f_C S - (K * G_C)^T W       S' = m_C S - (K * N_C)^T W
//
// How much of step j is in M_i and in S_i (j <= i), and how much of the M and S before the chunk is:
//
//   with decays       N_ij = exp(e_j+1 + .. + e_i), A likewise of g, G = A N: a sum over the paths from S to M is a
//                     product. m = exp(cumsum e), be = exp(cumsum g), f = A m. Every exponent is <= 0.
//   with a read_rate  G_ij = f_i = r_i, N_ij = be_i = m_i = 1; behind a chunk M is changed by the last token of the
//                     mini-batch alone, and S is 0 then.
//
// A chunk is a mini-batch or a part of one. Rows past its end read rate = 0, keys and queries 0 and logarithms 0. Only the
// first chunk of a row may begin inside a mini-batch; all others have B = M and, with a read_rate, S = 0. So chunks are
// written twice, that one (`carries`) with the plane of the initial state that says what B or S is (`inside`), and all
// others without.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_OUTLINE_INNERMATH_H
#define PASSES_OUTLINE_INNERMATH_H

#include "dialects/braid/InnerTraits.h"
#include "passes/outline/OutlineContext.h"

namespace braid {

/// Everything that the code of a kernel depends on.
struct InnerShape {
  InnerTraits traits;
  bool weights; ///< documents begin with weights
  int64_t heads, keys, values;
  int64_t chunk; ///< C: rows of a tile; 1 in the step of decoding
  int64_t miniBatch;
  mlir::Type token, gate, norm, start, state; ///< element types in memory
  mlir::Type compute; ///< f32, or f64 where the state is f64

  std::string kernelName(llvm::StringRef what) const;
};

/// Planes of a state, or their cotangents; s is empty where it is 0, base where it is M.
struct InnerState {
  Var m, s, base;
  Var weights() const { return base ? base : m; } ///< B
  Vars vars() const;
};

/// What a chunk computes with its gates alone; be, f, m are empty where they are 1, 0, 0.
struct InnerWeights {
  Var a, n, g; ///< [C, C]; a is empty without decays
  Var be, f, m; ///< [C]
  Var gEnd, nEnd; ///< [C]: G_C and N_C, what M' and S' have of each step; with a read_rate gEnd is fEnd
  Var beEnd, fEnd, mEnd; ///< scalars: what they have of M and S; with a read_rate none of mEnd
};

/// The cotangents of InnerWeights; empty where there is nothing to add to.
struct InnerWeightGrads {
  Var g, gEnd, nEnd, be, f, beEnd, fEnd, mEnd;
};

/// The parameters of a kernel on tokens, and one chunk of them.
class InnerMath {
public:
  /// Declares q (if `queries`), k, v (if `targets`), the gates and the norm.
  InnerMath(KernelBuilder &k, const InnerShape &shape, bool queries, bool targets, Var h, Var b);
  /// Tokens [lo, hi), the first of them number `phase` of its mini-batch (i32).
  void place(Var lo, Var hi, Var phase);
  void placeChunk(Var chunks, Var n);

  // Buffers, in the order of their declaration.
  Var keyTokens(llvm::StringRef name);
  Var valueTokens(llvm::StringRef name);
  Var insideTokens(llvm::StringRef name); ///< what inner_states computes of every token
  Var gates(llvm::StringRef name) { return k.buffer(name, shape.gate, {{"row"}, {"token"}, {"head", shape.heads}}); }
  Var start(llvm::StringRef name = "weights") { return k.buffer(name, shape.start, {shape.heads, K, V}); }
  Var rowStates(llvm::StringRef name);
  Var chunkStates(llvm::StringRef name);
  void declareEps(); ///< a parameter of kernels with a norm

  // Tiles of the chunk: [C, size] and [C].
  Var tokens(Var buffer, int64_t size);
  Var gate(Var buffer);
  void storeTokens(Var tile, Var buffer);
  void storeGate(Var tile, Var buffer);
  /// Plane `number` of a state; zero unless `exists` (an i1, if given).
  Var plane(Var buffer, llvm::ArrayRef<Index> at, int64_t number, Var exists = {});
  void storePlane(Var tile, Var buffer, llvm::ArrayRef<Index> at, int64_t number);
  int64_t insidePlane() const { return shape.traits.planes() - 1; }
  InnerState load(Var buffer, llvm::ArrayRef<Index> at); ///< all planes of a state
  Vars loadChunk(Var buffer, llvm::ArrayRef<Index> at); ///< M and, with momentum, S
  void store(llvm::ArrayRef<Var> planes, Var buffer, llvm::ArrayRef<Index> at); ///< the first of them
  InnerState fromVars(llvm::ArrayRef<Var> values) const;
  /// The state of a chunk from M and S; `inside`: the third plane, if it has one.
  InnerState chunkState(llvm::ArrayRef<Var> planes, Var inside = {}) const;
  /// The state at the first token: where a document begins, `weights` or zero.
  InnerState begun(Var restart, const InnerState &before, Var weights);

  InnerWeights weigh();
  /// Cotangents of the logarithms or of read_rate, stored in `buffers` (by the name of the gate).
  void storeWeightGrads(const InnerWeights &w, const InnerWeightGrads &d,
                        llvm::function_ref<Var(llvm::StringRef)> buffer);

  /// U [C, V], and what its adjoint needs with a norm.
  struct Residual {
    Var u, normed, inverse, g;
  };
  Residual residual(Var z, Var targets);
  Residual normed(Var z, Var targets); ///< all but U
  /// dz, dy, and of every row what it adds to those of the norm's weight and bias.
  struct ResidualGrad {
    Var dz, dy, dWeight, dBias;
  };
  ResidualGrad residualGrad(const Residual &r, Var targets, Var du);

  Var read(const InnerState &state, const InnerWeights &w, Var queries, Var keys, Var steps); ///< O
  /// M' and, with momentum, S'.
  Vars advance(const InnerState &state, const InnerWeights &w, Var keys, Var steps);
  /// The third plane behind the chunk, where there is one: B', or S' with a read_rate.
  Var advanceInside(const InnerState &state, Var nextM, Var keys, Var steps);

  Var rowsOf(Var column, int64_t size) { return expand(column, 1, size); }

  KernelBuilder &k;
  const InnerShape &shape;
  int64_t C, K, V;
  Var h, b;
  Var q, keys, values, rate, logDecay, logMomentum, readRate, normWeight, normBias, eps; ///< buffers
  Var lo, hi;
  Var complete; ///< the chunk ends its mini-batch
  Var last; ///< row of its last token

private:
  Var between(Var log, Var &fromStart); ///< exp(c_i - c_j) for j <= i, and exp(c_i)
  Var end(Var x) { return row(x, last); }
  Var mean(Var x);
  Var project(const Residual &r, Var x); ///< x less its parts along ones and along the normed row
};

} // namespace braid

#endif // PASSES_OUTLINE_INNERMATH_H
