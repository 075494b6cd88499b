//===- LsmKernels.h - the kernel writers behind outlineLsm --------------------------------------------------------===//
// Each writes the body of one kernel for one LsmShape; parameters carry the operand names of the op.
#ifndef PASSES_OUTLINE_LSMKERNELS_H
#define PASSES_OUTLINE_LSMKERNELS_H

#include "passes/outline/LsmChunk.h"

namespace braid {

// LsmScanKernels.cpp
void writeChunkTable(KernelBuilder &k, int64_t chunkSize, bool aligned, bool gpu);
inline Var chunkTable(KernelBuilder &k) { return k.buffer("chunks", k.i32(), {{"row"}, {"chunk"}, {"token", 4}}); }
void writeStateScan(KernelBuilder &k, const LsmShape &shape);
void writeStateScanGrad(KernelBuilder &k, const LsmShape &shape);
void writeStep(KernelBuilder &k, const LsmShape &shape);
// LsmSegmentKernels.cpp
void writeSegmentState(KernelBuilder &k, const LsmShape &shape);
void writeSegmentStateGrad(KernelBuilder &k, const LsmShape &shape);
void writeSegmentTransition(KernelBuilder &k, const LsmShape &shape);
void writeFold(KernelBuilder &k, const LsmShape &shape);
void writeFoldGrad(KernelBuilder &k, const LsmShape &shape);
void writeCompose(KernelBuilder &k, const LsmShape &shape);
void writeComposeGrad(KernelBuilder &k, const LsmShape &shape);
void writeComposeTransition(KernelBuilder &k, const LsmShape &shape);
void writeComposeTransitionGrad(KernelBuilder &k, const LsmShape &shape);
// LsmChunkKernels.cpp
void writeChunkState(KernelBuilder &k, const LsmShape &shape);
void writeChunkOutput(KernelBuilder &k, const LsmShape &shape);
void writeFactoredChunkOutput(KernelBuilder &k, const LsmShape &shape);
void writeChunkOutputGradState(KernelBuilder &k, const LsmShape &shape);
// LsmFactorKernels.cpp: H, GH, VH, D
void writeChunkFactors(KernelBuilder &k, const LsmShape &shape);
void writeChunkInverse(KernelBuilder &k, const LsmShape &shape); // H, GH
void writeChunkWalkFactors(KernelBuilder &k, const LsmShape &shape); // VH
void writeChunkOutputFactors(KernelBuilder &k, const LsmShape &shape);
void writeFactorScan(KernelBuilder &k, const LsmShape &shape);
void writeFactorScanGrad(KernelBuilder &k, const LsmShape &shape);
// LsmWalkKernels.cpp: S, V; what segments leave, of I and S0 too
void writeStateWalk(KernelBuilder &k, const LsmShape &shape);
void writeStateWalkGrad(KernelBuilder &k, const LsmShape &shape);
void writeStateWalkEnds(KernelBuilder &k, const LsmShape &shape);
void writeStateWalkGradEnds(KernelBuilder &k, const LsmShape &shape);
// LsmOutputKernels.cpp: I, S0, S, V, H, GH; by factors VH
void writeOutputWalk(KernelBuilder &k, const LsmShape &shape);
// LsmGradKernels.cpp: I, S0, S, H, GH
void writeChunkGrad(KernelBuilder &k, const LsmShape &shape);
void writeChunkGradValues(KernelBuilder &k, const LsmShape &shape); // H, GH, VH
// LsmVectorKernels.cpp: V, VH, D, R
void writeVectorChunkGrad(KernelBuilder &k, const LsmShape &shape);
// LsmElementKernels.cpp: E
void writeElementChunkState(KernelBuilder &k, const LsmShape &shape);
void writeElementChunkOutput(KernelBuilder &k, const LsmShape &shape);
void writeElementChunkOutputGradState(KernelBuilder &k, const LsmShape &shape);
void writeElementChunkGrad(KernelBuilder &k, const LsmShape &shape);

/// Parameters by operand name; absent ones stay empty.
struct LsmBuffers {
  LsmBuffers(KernelBuilder &k, const LsmShape &shape) : k(k), shape(shape) {}
  Var keys(llvm::StringRef name) { return tokens(name, shape.token, {{"key", shape.keys}}); }
  Var values(llvm::StringRef name) { return tokens(name, shape.token, {{"value", shape.values}}); }
  Var logDecay(llvm::StringRef name = "log_decay") {
    if (!shape.decays())
      return {};
    if (shape.constantDecay())
      return k.buffer(name, shape.gate, Axes(Axis{"head", shape.heads}));
    if (shape.product)
      return k.buffer(name, shape.gate, {{"head", shape.heads}, {"key", shape.keys}, {"value", shape.values}});
    llvm::SmallVector<Axis> features;
    if (shape.vectorDecay())
      features.push_back({"key", shape.keys});
    if (shape.elementDecay())
      features.push_back({"value", shape.values});
    return tokens(name, shape.gate, features);
  }
  /// What each chunk adds to a sum over all: [B, n, H, K, V].
  Var sumsOfChunks(llvm::StringRef name) {
    return k.buffer(name, shape.compute,
                    {{"row"}, {"chunk"}, {"head", shape.heads}, {"key", shape.keys}, {"value", shape.values}});
  }
  Var beta(llvm::StringRef name = "beta") { return shape.delta() ? tokens(name, shape.beta, {}) : Var(); }
  Var lowRank(llvm::StringRef name) { return shape.lowRank() ? keys(name) : Var(); }
  Var valueDecay(llvm::StringRef name = "value_decay") {
    return shape.valueDecay() || shape.product ? tokens(name, shape.gate, {{"value", shape.values}}) : Var();
  }
  Var chunks() { return chunkTable(k); }
  Var states(llvm::StringRef name) { return states(name, "row", "chunk", shape.state); }
  /// Those that products read, where a scan writes them.
  Var multipliedStates(llvm::StringRef name) { return states(name, "row", "chunk", shape.multipliedType()); }
  /// Of segments [s, B, H, ..].
  Var segments(llvm::StringRef name) { return states(name, "segment", "row", shape.state); }
  Var rowState(llvm::StringRef name) {
    return k.buffer(name, shape.state, {{"row"}, {"head", shape.heads}, {"key", shape.keys}, {"value", shape.values}});
  }
  /// P of every chunk; empty for class I.
  Var transition() {
    if (shape.classId == LsmClass::I)
      return {};
    llvm::SmallVector<Axis> axes{{"row"}, {"chunk"}, {"head", shape.heads}};
    mlir::Type type = shape.traits().dense ? shape.multipliedType() : shape.state;
    for (int64_t size : shape.traits().transition(shape.keys, shape.values, type.isBF16()))
      axes.push_back({"feature", size});
    return k.buffer("p", type, axes);
  }
  /// Of chunks [B, n, H, rows, width].
  Var factor(llvm::StringRef name, int64_t rows, llvm::StringRef feature, int64_t width) {
    return k.buffer(name, shape.multipliedType(),
                    {{"row"}, {"chunk"}, {"head", shape.heads}, {"token", rows}, {feature, width}});
  }
  /// c, exp(c) and exp(c_C - c) of every chunk [B, n, H, 3 C], where T is.
  Var sums() {
    return shape.delta() && shape.decays()
               ? k.buffer("sums", shape.compute,
                          {{"row"}, {"chunk"}, {"head", shape.heads}, {"token", 3 * shape.chunk}})
               : Var();
  }
  /// T of every chunk [B, n, H, C, C].
  Var inverse() { return shape.delta() ? factor("inverse", shape.chunk, "token", shape.chunk) : Var(); }
  /// What a walk multiplies a state by, or adds to it by, of every chunk [B, n, H, C, K]: by `name`.
  Var rowsOfChunks(llvm::StringRef name) { return factor(name, shape.chunk, "key", shape.keys); }
  /// Scores of what is left of V in every chunk [B, n, H, C, C].
  Var scoresOfChunks() { return factor("scores", shape.chunk, "token", shape.chunk); }
  /// exp(c_C) of every chunk.
  Var decayOfChunks() {
    if (!shape.decays())
      return {};
    llvm::SmallVector<Axis> axes{{"row"}, {"chunk"}, {"head", shape.heads}};
    if (shape.vectorDecay())
      axes.append({{"token", 1}, {"key", shape.keys}});
    return k.buffer("decay", shape.state, axes);
  }
  /// What every key channel of a segment decays by, or 0 where a document begins.
  Var factorsOfKeys(llvm::StringRef name) {
    return k.buffer(name, shape.state, {{"segment"}, {"row"}, {"head", shape.heads}, {"key", shape.keys}});
  }
  /// Factors of segments [s, B, H, ..].
  Var factors(llvm::StringRef name) {
    llvm::SmallVector<Axis> axes{{"segment"}, {"row"}, {"head", shape.heads}};
    axes.append(shape.traits().dense ? 2 : shape.vectorDecay() ? 1 : 0, {"key", shape.keys});
    return k.buffer(name, shape.state, axes);
  }

  KernelBuilder &k;
  const LsmShape &shape;

private:
  Var states(llvm::StringRef name, llvm::StringRef first, llvm::StringRef second, mlir::Type type) {
    return k.buffer(name, type,
                    {{first}, {second}, {"head", shape.heads}, {"key", shape.keys}, {"value", shape.values}});
  }
  Var tokens(llvm::StringRef name, mlir::Type element, Axes features) {
    llvm::SmallVector<Axis> axes{{"row"}, {"token"}, {"head", shape.heads}};
    axes.append(features.begin(), features.end());
    return k.buffer(name, element, axes);
  }
};

/// A delta rule in a chunk: U = (I + A)^-1 R of the rows R = V - exp(c) K M. Whose beta is:
///   rows   A_ij = beta_i k_i k_j^T exp(c_i - c_j), and R's rows are times beta
///   keys   A_ij = k_i (beta_j k_j)^T exp(c_i - c_j): that of those that write, so U is divided by it and dU is dV
struct DeltaTiles {
  /// Of VH always the keys', which are decayed for products of their own; and theirs in all that scans by factors read and write.
  enum class Beta : uint8_t { rows, keys };
  /// Where decays of scores are loaded. With `queries`, whose scores share the exponentials of the keys'.
  DeltaTiles(ChunkMath &math, Var betaIn, Var keys, Var queries = {}, Beta of = Beta::rows);
  /// Rows of R, or of cotangents of U's.
  Var times(Var rows) const { return beta ? rows * expand(beta, 1, rows.dim(1)) : rows; }

  Var writing; ///< the keys that write
  Var scores; ///< of the queries with these, j <= i
  Var a; ///< solve() reads its strictly lower triangle

private:
  Var beta; ///< of the rows, if it is theirs
};
/// Scores of queries with the keys that write, times beta.
Var scoresOfWriting(ChunkMath &math, Var betaIn, Var queries, Var keys);

/// Class D in a chunk (lsm-family 4.5): what all its kernels need.
struct LowRankTiles {
  /// With `queries`, whose scores share the exponentials of a's.
  LowRankTiles(ChunkMath &math, Var aIn, Var bIn, Var keys, Var queries = {});
  /// Z, row i: a_i M_{i-1}.
  Var read(Var values, Var state);
  /// Columns [first, first + size) of A exp(c^).
  static Var before(ChunkMath &math, Var aIn, Var decayIn, Index first, int64_t size);

  Var aNext; ///< a as a query: row i holds token i + 1
  Var b, aBefore; ///< b, and A exp(c^)
  Var qk, qb; ///< A_qk and A_qb
  Var ak, minusAb; ///< A_ak and -A_ab, whose strictly lower triangle solve() reads
};

/// One block of value columns of the states of one head, and the transitions that act on it: of chunks [B, n, H, ..],
/// where P is a log decay, or of segments [s, B, H, ..], where it is a factor (class I: of chunks none). Programs
/// (block of value columns, head, batch).
struct TransitionKernel {
  enum class Of { chunks, segments };
  TransitionKernel(KernelBuilder &k, const LsmShape &shape, Of of, Var p);

  Var load(Var states, Var n); ///< [K, VB] of chunk or segment n
  Var loadRow(Var states); ///< of a state [B, H, K, V]
  void store(Var tile, Var states, Var n);
  void storeRow(Var tile, Var states);
  /// P_n state + x, or P_n^T state + x. Where P_n of a segment is 0, a document began: nothing of the state is left,
  /// though it be infinite.
  Var apply(Var n, Var state, Var x, bool transposed);
  Var factor(Var n); ///< P_n of the classes without a dense one: [K] (V) or a scalar
  llvm::SmallVector<Index, 5> at(Var n, llvm::ArrayRef<Index> rest) const {
    llvm::SmallVector<Index, 5> all =
        of == Of::chunks ? llvm::SmallVector<Index, 5>{b, n, h} : llvm::SmallVector<Index, 5>{n, b, h};
    all.append(rest.begin(), rest.end());
    return all;
  }

  KernelBuilder &k;
  const LsmShape &shape;
  Of of;
  Var p, h, b;
  int64_t K, VB;
  Var first;

private:
  Var applyDense(Var n, Var state, Var x, bool transposed);
};

/// The rows of a chunk table that a walk over chunks reads.
struct ChunkRows {
  KernelBuilder &k;
  Var chunks, b;
  Var used(); ///< chunks with tokens: the first rows of the table
  Var unlessRestart(Var n, Var state); ///< `state`, or zero where chunk n begins a document
  /// Chunks [from, to) in the order of a walk over the `used` ones, first to last or the other way.
  struct Range {
    Var used, from, to;
    bool backwards;
    int64_t parts = 1; ///< of each chunk, one iteration each; not backwards
  };
  /// Those of one of `segments` equal parts.
  Range segment(Var used, Var number, int64_t segments, bool backwards = false);
  /// What the body of a walk gets: a chunk, whether a document begins there (or backwards, as `restarts`), what the walk carries, the chunk's number, and which part of it
  /// it is, where it has several.
  struct Step {
    Var n, restarts, number;
    llvm::ArrayRef<Var> now;
    Var part{};
  };
  /// Carries states, the first `states` of `begin`, and what else there is over chunks, and the states from zero where a document begins between two: what they are
  /// behind them. `number`, if there is one, of a chunk, 0 or more, and whether it begins a document, are asked for by the iteration before.
  Vars walk(const Range &range, Vars begin, llvm::function_ref<Var(Var n)> number,
            llvm::function_ref<Vars(const Step &)> body, size_t states = 1);
};

} // namespace braid

#endif // PASSES_OUTLINE_LSMKERNELS_H
