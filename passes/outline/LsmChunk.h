//===- LsmChunk.h - what the chunk kernels of all transition classes share ----------------------------------------===//
//
//   M_t = Theta_t M_{t-1} + k_t^T v_t, o_t = q_t M_t over one chunk of C tokens, rows of a tile (lsm-family.md section
//   4): c_i = g_1 + .. + g_i (inclusive, restarted at every chunk);  exp(c): from the in-state to row i; exp(c_C - c):
//   from row i to the out-state;  exp(c_i - c_j), j <= i: from row j to row i.  Every exponent is <= 0.
//
// A class is described by LsmShape; ChunkMath turns the description into tiles. Sums of scalar log decays are kept in
// f64 and only differences are rounded: after a decay of -500 the following ones would otherwise lose four digits.
// Class V never subtracts: each exponent is a sum of its own, from a row forwards or backwards to the row that it
// refers to.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_OUTLINE_LSMCHUNK_H
#define PASSES_OUTLINE_LSMCHUNK_H

#include "passes/outline/OutlineContext.h"

namespace braid {

/// The transition class and everything else the code of an LSM kernel depends on.
struct LsmShape {
  LsmClass classId;
  int64_t heads, keys, values;
  int64_t chunk = 0; ///< C; 0 in kernels that see no tokens
  mlir::Type token, gate, beta, state; ///< element types in memory
  mlir::Type compute; ///< f32, or f64 where the state is f64

  bool decays() const { return classId != LsmClass::I && classId != LsmClass::H; }
  bool constantDecay() const { return classId == LsmClass::S0; }
  bool vectorDecay() const { return classId == LsmClass::V; }
  bool delta() const { return classId == LsmClass::H || classId == LsmClass::GH; } ///< writes beta (v - k M)
  bool decayGradient() const { return decays() && !constantDecay(); }
  /// Value columns per tile: states of 256 x 256 do not fit a cache.
  int64_t valueBlock() const { return divisorUpTo(values, 64); }
  int64_t valueBlocks() const { return values / valueBlock(); }
  /// lsm_<what>_<class>_<dimensions>_<types>
  std::string kernelName(llvm::StringRef what) const;
  llvm::StringRef className() const;
};

/// Rows or columns of a K x K transition in a kernel at a time: of wide keys it fits no stack.
inline constexpr int64_t kDenseRows = 128;
/// Row tiles of the scores of class V.
inline constexpr int64_t kScoreRows = 16;

/// The tiles of one chunk: program (chunk n, head h, batch b), tokens [lo, hi). Rows past hi read k = v = 0, g = 0,
/// beta = 0, so they neither write the state nor decay it.
class ChunkMath {
public:
  ChunkMath(KernelBuilder &k, const LsmShape &shape, Var chunks);

  /// [C, size] of q, k, v or a cotangent [B, T, H, features] from column `first`, in the compute type.
  Var tokens(Var buffer, Index first, int64_t size);
  Var keysOf(Var buffer) { return tokens(buffer, 0, shape.keys); }
  /// [C] of [B, T, H].
  Var gate(Var buffer);
  /// [K, size] of a per-chunk state [B, n, H, K, V].
  Var state(Var buffer, Index first, int64_t size);
  void storeTokens(Var tile, Var buffer, Index first);
  void storeGate(Var tile, Var buffer);
  void storeState(Var tile, Var buffer, Index first);

  /// Reads the log decays; the decay functions below need it. Does nothing for classes without decay.
  void loadDecay(Var logDecay);
  Var fromStart(Var x); ///< x * exp(c), x [C, K]
  Var toEnd(Var x); ///< x * exp(c_C - c)
  /// exp(c_C) as [K] (class V), a scalar (S0, S, GH) or nothing (I, H).
  Var acrossChunk();
  /// c_C: [K] (V) or a scalar.
  Var total();

  /// S_ij = sum_d q_id k_jd exp(c_id - c_jd) for j <= i, else 0.
  Var scores(Var q, Var k);
  struct Scores {
    Var s, dq, dk;
  };
  /// The scores and, for the strictly lower triangle of dS, dq_i = sum_j dS_ij k_j exp(c_i - c_j) and
  /// dk_j = sum_i dS_ij q_i exp(c_i - c_j). The diagonal, where no decay acts, is the caller's.
  Scores scoresAndGradients(Var q, Var k, Var ds);
  /// x * exp(c_i - c_j) below and on the diagonal, 0 above (scalar decays; the mask alone for I and H).
  Var decayed(Var x);

  /// Runs `body` for every block of value columns. No loop when there is one block.
  Vars valueLoop(llvm::ArrayRef<Var> carried, llvm::function_ref<Vars(Index first, llvm::ArrayRef<Var> carried)> body);
  /// As above for bodies that only store.
  void valueLoop(llvm::function_ref<void(Index first)> body);

  KernelBuilder &k;
  const LsmShape &shape;
  Var n, h, b; ///< program coordinates
  Var lo, hi; ///< tokens of the chunk
  int64_t C, K, VB;

private:
  Var exponential(Var difference); ///< exp of a difference of cumulative decays, clamped at 0
  Var zeros(Shape tile) { return k.tile(tile, shape.compute); }
  Scores vectorScores(Var q, Var k, Var ds);
  Scores nearScores(Var q, Var k, Var ds);
  Var toLast(Var first, int64_t count);

  Var c; ///< cumulative log decay: [C] in f64, or [C, K]
  Var g, gNext; ///< class V: the log decay of row i and of the row after it, [C, K]
  Var weight; ///< exp(c_i - c_j) as [C, C], scalar decays
};

/// Runs `body` if the chunk has tokens; otherwise writes zeros to the rows of `outputs` (token buffers of the given
/// widths; 0: a gate [B, T, H]) that the empty rows of the table stand for: the padding tokens.
void forChunk(ChunkMath &math, llvm::ArrayRef<std::pair<Var, int64_t>> outputs, llvm::function_ref<void()> body);

} // namespace braid

#endif // PASSES_OUTLINE_LSMCHUNK_H
