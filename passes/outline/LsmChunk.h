//===- LsmChunk.h - what the chunk kernels of all transition classes share ----------------------------------------===//
//
//   M_t = Theta_t M_{t-1} + k_t^T v_t, o_t = q_t M_t over one chunk of C tokens, rows of a tile (lsm-family.md section
//   4): c_i = g_1 + .. + g_i (inclusive, restarted at every chunk);  exp(c): from the in-state to row i; exp(c_C - c):
//   from row i to the out-state;  exp(c_i - c_j), j <= i: from row j to row i.  Every exponent is <= 0, but for the
//   factors of scores of mild chunks (LsmScores.cpp).
//
// A class is described by LsmShape; ChunkMath turns the description into tiles. Sums of scalar log decays are kept in
// f64 and only differences are rounded: after a decay of -500 the following ones would otherwise lose four digits.
// Decays of vectors (DecayTable: V, D, R) are not subtracted either, where they are strong: each exponent is a sum of
// its own, from a row forwards or backwards to the row that it refers to. In a chunk of mild ones all are differences
// of the same sums, of at most 32.
//
// Class D reads with a_t the state before token t. That is row t - 1 of the state, so a moved up by one row makes its
// scores, decays and cotangents those of a second query: `up` and `down` are all that class D adds to the tiles of V.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_OUTLINE_LSMCHUNK_H
#define PASSES_OUTLINE_LSMCHUNK_H

#include "dialects/braid/ScanTraits.h"
#include "passes/analysis/DecayRange.h"
#include "passes/outline/OutlineContext.h"

namespace braid {

/// Row tiles of the scores under strong vector decays, where nothing else was chosen (attrs::scoreRows).
inline constexpr int64_t kScoreRows = 16;

/// Class E: elements of states that a chunk's gradient keeps: 64 KiB of f32.
inline constexpr int64_t kKeptElements = 16384;

/// Of values in a tile, where nothing else was chosen.
inline constexpr int64_t kMostColumns = 64;
/// Of values, where all columns are one tile (LsmShape::wholeRows).
inline constexpr int64_t kMostWholeRow = 128;
/// Channels of a tile where pairs of strong decays have many.
inline constexpr int64_t kStrongColumns = 32;
/// Elements of such a tile that the threads of a GPU's block have in registers, and its columns in their warps (lower/ThreadColumns.cpp).
inline constexpr int64_t kMostWholeTile = 8192, kWholeColumns = 64;

/// The transition class and everything else the code of an LSM kernel depends on.
struct LsmShape {
  LsmClass classId;
  int64_t heads, keys, values;
  int64_t chunk = 0; ///< C; 0 in kernels that see no tokens
  mlir::Type token, gate, beta, state; ///< element types in memory
  mlir::Type compute; ///< f32, or f64 where the state is f64
  bool mild = false; ///< vector decays: known to be mild in every chunk (passes/analysis/DecayRange.h)
  int64_t mostColumns = kMostColumns; ///< of values in a tile
  int64_t mostKeys = 0; ///< of keys in a tile of a walk over states; 0: all
  int64_t segments = 1; ///< of a row's chunks, walked side by side
  bool product = false; ///< class E: the log decay of an element is a product (decaysByProduct)
  mlir::Type multiplied = {}; ///< dense transitions and in-states in memory, where it is not the states'
  int64_t scoreRows = kScoreRows; ///< vector decays: rows of the score tiles of strong ones, an even divisor of C
  bool wholeRows = false; ///< a chunk's gradient, factors of H, GH, VH and D: all value columns in one tile
  /// Of those, a delta rule's gradient that reads what the scan has written: dV has a kernel of its own.
  bool split = false;
  bool boxes = false; ///< a walk's tiles may come in boxes
  bool factored = false; ///< a kernel for chunks whose dense transitions are factors

  ScanTraits traits() const { return ScanTraits(classId); }
  mlir::Type multipliedType() const { return multiplied ? multiplied : state; }
  bool decays() const { return traits().decay; }
  bool constantDecay() const { return classId == LsmClass::S0; }
  bool vectorDecay() const { return traits().vectorDecay; }
  bool elementDecay() const { return traits().elementDecay; }
  bool valueDecay() const { return traits().valueDecay; }
  bool lowRank() const { return traits().lowRank; }
  bool delta() const { return traits().beta; } ///< writes beta (v - k M)
  int64_t writtenRows() const { return traits().writtenRows(chunk); } ///< of factors
  bool decayGradient() const { return traits().trainsDecay(); }
  /// The log decay whose exponential is as small as rounding.
  double silentLogDecay() const { return compute.isF64() ? -36.0 : token.isBF16() ? -10.0 : -17.0; }
  /// Value columns per tile: states of 256 x 256 do not fit a cache.
  int64_t valueBlock() const { return divisorUpTo(values, mostColumns); }
  int64_t valueBlocks() const { return values / valueBlock(); }
  int64_t keyBlock() const { return mostKeys ? divisorUpTo(keys, mostKeys) : keys; }
  /// lsm_<what>_<class>_<dimensions>_<types>
  std::string kernelName(llvm::StringRef what) const;
  llvm::StringRef className() const;
};

/// Rows or columns of a K x K transition in a kernel at a time: of wide keys it fits no stack.
inline constexpr int64_t kDenseRows = 128;

/// Log decays of numbers that are added up in f32 are this at least: its exponential is 0 as well. So a sum of 128 tokens stays above -16384, where f32 has steps of
/// 2^-10: at worst an exponent is off by a thousandth, a quarter of a rounding to bf16.
inline constexpr double kSilentLogDecay = -128;

/// exp of sums of log decays, at most 1. A comparison, not a minimum: NaN passes it, in one instruction.
inline Var decayFactor(Var exponent) { return exp(select(gt(exponent, 0.0), 0.0, exponent)); }

/// Log decays of a vector of channels over a chunk, [C, width] each.
struct DecayTable {
  std::function<Var()> g, gNext; ///< load those of row i, and of the row after it, where they are called
  Var c; ///< cumulative
  // Of a table that scores are made with: exp(c); exp(c_C - c); exp(-c), instead of that, where decays are mild; c_C; and
  // whether every channel decays by less than exp(-32) over the chunk and none grows (empty where that is settled).
  Var start{}, end{}, inverse{}, last{}, mild{};
  // Of a centred table, where decays are mild: exp(r), r = c_C / 2; start is exp(c - r) then, and inverse exp(r - c).
  Var entering{};
  int64_t scoreRows = kScoreRows;
  bool centred = false; ///< half of a span is as far as an exponent goes, so what is mild may span twice as much
  double mostSpan = -kMildLogDecay; ///< of what is mild
  double silent = 0; ///< LsmShape::silentLogDecay()

  /// Computes them but for `end`: fromStart, toEnd and pairScores share one exponential. `known`: decays are mild.
  void prepareScores(KernelBuilder &k, bool known);
  /// Computes `end`, unless mildness is settled.
  void prepareEnd(KernelBuilder &k);
  /// The table where decays are mild, and where they are strong.
  DecayTable ofMild(KernelBuilder &k) const;
  DecayTable ofStrong() const;
  Var fromStart(Var x) const; ///< x * exp(c)
  Var toEnd(Var x) const; ///< x * exp(c_C - c)
  /// What scores are the product of: exp(c) and exp(-c), or exp(c - r) and exp(r - c). Of mild decays.
  Var leftOfScores(Var x) const { return x * start; }
  Var rightOfScores(Var x) const { return x * inverse; }
  /// [C, width] of the state's rows as they meet leftOfScores and rightOfScores.
  Var atEntry(Var x) const;
  Var total() const; ///< c_C, [width]
  /// What each log decay gets, from the difference of sums that it is. Below `silent` what is left of that is rounding, which a gate exp(-exp(y)) would multiply
  /// by its own slope, as large as the log decay: there it is 0, as it is but for exp(g).
  Var cotangent(Var difference) const { return select(lt(g(), silent), 0.0, difference); }
};

/// Of every left l and right r, all [C, width]: s[l][r]_ij = sum_d l_id r_jd exp(c_id - c_jd) for j <= i, else 0. And,
/// for the lower triangle of each given ds[l][r]: dLeft[l]_i = sum_rj ds_ij r_j exp(c_i - c_j) and dRight[r]_j = sum_li
/// ds_ij l_i exp(c_i - c_j). An empty left has neither scores nor a part in dRight: what remains is dLeft, rows that are
/// sums of decayed rights. `states`: [C, width] for every left, of which dLeft gets exp(c_i) times row i, too. `scores`:
/// s is wanted. `shares`: so are the shares, what log decays get, without the diagonal, where no decay acts.
struct PairScores {
  llvm::SmallVector<Vars> s;
  Vars dLeft, dRight;
  Vars leftShare, rightShare; ///< l dLeft and r dRight, of the strictly lower triangle
};
PairScores pairScores(KernelBuilder &k, const DecayTable &decay, llvm::ArrayRef<Var> lefts, llvm::ArrayRef<Var> rights,
                      llvm::ArrayRef<Vars> ds = {}, bool scores = true, llvm::ArrayRef<Var> states = {},
                      bool shares = true);
/// The same under strong decays, without what states and the diagonal add to dLeft and dRight, and without shares.
PairScores strongPairs(KernelBuilder &k, const DecayTable &decay, llvm::ArrayRef<Var> lefts, llvm::ArrayRef<Var> rights,
                       llvm::ArrayRef<Vars> ds, bool scores = true);

/// Row i of x in row i - 1 of the result (the last is 0), and the other way (the first is 0). x [C, ..].
Var up(KernelBuilder &k, Var x);
Var down(KernelBuilder &k, Var x);

/// What `of` gives is another one each time, for whoever joins equal operations: nothing is kept from one to the next.
Var anew(Var of, int64_t time);
/// A tile as it lies in memory, of what widens it.
Var asLoaded(Var widened);
/// A tile widened again, and one loaded again, at each time.
inline Var widenedAnew(Var widened, int64_t time) { return anew(cast(asLoaded(widened), widened.element()), time); }
inline Var loadedAnew(Var widened, int64_t time) {
  anew(asLoaded(widened), time);
  return widenedAnew(widened, time);
}

/// The tiles of one chunk: program (chunk n, head h, batch b), tokens [lo, hi). Rows past hi read k = v = 0, g = 0,
/// beta = 0, so they neither write the state nor decay it.
class ChunkMath {
public:
  ChunkMath(KernelBuilder &k, const LsmShape &shape, Var chunks);

  /// [C, size] of q, k, v or a cotangent [B, T, H, features] from column `first`, in the compute type.
  Var tokens(Var buffer, Index first, int64_t size) { return tokensFrom(lo, buffer, first, size); }
  /// a of class D as a query: row i holds token i + 1.
  Var nextKeysOf(Var buffer) { return tokensFrom(lo + 1.0, buffer, 0, shape.keys); }
  Var keysOf(Var buffer) { return tokens(buffer, 0, shape.keys); }
  /// [C] of [B, T, H].
  Var gate(Var buffer);
  /// [K, size] of a per-chunk state [B, n, H, K, V].
  Var state(Var buffer, Index first, int64_t size);
  /// [C, size] of what a scan by factors has written [B, n, H, C, V].
  Var written(Var buffer, Index first, int64_t size);
  void storeTokens(Var tile, Var buffer, Index first);
  void storeGate(Var tile, Var buffer);
  void storeState(Var tile, Var buffer, Index first);

  /// Reads the log decays; the decay functions below need it. Does nothing for classes without decay. `scores`: those
  /// of pairs of tokens are made with them.
  void loadDecay(Var logDecay, bool scores);
  /// Log decays [B, T, H, channels] of `size` channels.
  DecayTable decayTable(Var logDecay, Index first, int64_t size, bool scores);
  const DecayTable &keyDecay() const { return vector; }
  /// Reads the log decays of value columns (R); valueDecay needs it.
  void loadValueDecay(Var valueDecay);
  /// Runs `body`, which stores: for decays per channel once where they are mild, those of value columns too, and once where
  /// they are strong, so that what it computes of them need not be the same for both. With all value columns in one tile, if the shape says so.
  void eitherWay(llvm::function_ref<void()> body);
  /// Whether this is the body of eitherWay for strong decays.
  bool isStrong() const { return way == Way::strong; }
  /// The decays of a block of value columns, for the body of eitherWay.
  DecayTable valueDecay(Index first);
  Var fromStart(Var x); ///< x * exp(c), x [C, K]
  Var toEnd(Var x); ///< x * exp(c_C - c)
  /// exp(c_C) as [K] (vector decays), a scalar (S0, S, GH) or nothing (I, H).
  Var acrossChunk();
  /// c_C: [K] (vector decays) or a scalar.
  Var total();

  /// S_ij = sum_d q_id k_jd exp(c_id - c_jd) for j <= i, else 0.
  Var scores(Var q, Var k);
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
  Var tokensFrom(Var token, Var buffer, Index first, int64_t size);
  /// Whether eitherWay() has two ways: solves are not written twice.
  bool hasTwoWays() const { return shape.vectorDecay() && !shape.lowRank(); }
  /// `body` with all value columns in one tile, if the shape says so.
  void withWholeRows(llvm::function_ref<void()> body);

  /// What eitherWay() has settled for the body that it runs.
  enum class Way : uint8_t { open, mild, strong };
  DecayTable settled(const DecayTable &table) const;

  Way way = Way::open;
  Var c; ///< scalar decays: cumulative, [C] in f64
  DecayTable vector; ///< vector decays of the keys
  Var valueDecayIn,
      valuesMild; ///< R: log decays of value columns, whether those of all blocks are mild (empty: settled)
  std::optional<DecayTable> onlyValues; ///< of the one block, if there is one
  Var weight; ///< exp(c_i - c_j) as [C, C], scalar decays
};

/// Runs `body` if the chunk has tokens; otherwise writes zeros to the rows of `outputs` (token buffers of the given
/// widths; 0: a gate [B, T, H]; the gate of class E by its rank) that the empty rows of the table stand for: the
/// padding tokens.
void forChunk(ChunkMath &math, llvm::ArrayRef<std::pair<Var, int64_t>> outputs, llvm::function_ref<void()> body);

} // namespace braid

#endif // PASSES_OUTLINE_LSMCHUNK_H
