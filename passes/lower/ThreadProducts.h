//===- ThreadProducts.h - a sum of tensor-core products: its tiles in shared memory, who computes what -------------===//
// Private to ThreadProducts.cpp (products), ThreadPipeline.cpp (copies, the loop), ThreadBulkCopies.cpp, and to those whose rows multiply panels.
#ifndef PASSES_LOWER_THREADPRODUCTS_H
#define PASSES_LOWER_THREADPRODUCTS_H

#include "passes/lower/ThreadLowering.h"

namespace braid::lower {

/// Of tiles that lie in rows, a warp's.
inline constexpr int64_t kOwnRows = 16;

inline constexpr int64_t kBlockColumns = 64, kRowBytes = 128, kChunk = 8,
                         kChunkBytes = 16; // of a panel; a chunk: elements
inline constexpr int64_t kPatternBytes = 1024; // eight rows
inline constexpr int64_t kGroupRows = 64; // of wgmma
inline constexpr int64_t kBarrierBytes = 8; // of one in shared memory
inline constexpr int64_t kCluster = 2; // blocks that share an operand
inline constexpr int64_t kGroupWarps = 4;
inline constexpr int64_t kManySums = 128; ///< of a thread: with a fifth more values, its registers are taken
inline constexpr int64_t kNarrowRows = 16; // of a product that waits for memory, not for tensor cores

/// A tile in a stage.
struct Panel {
  int64_t rows, columns, offset; // in the stage
  bool alongK; ///< the columns run along k
  int64_t blockBytes() const { return rows * kRowBytes; }
  int64_t bytes() const { return llvm::divideCeil(columns, kBlockColumns) * blockBytes(); }
};

/// A tile as rows multiply it, a panel of its own.
inline Panel panelOf(VectorType type) { return {type.getDimSize(0), type.getDimSize(1), 0, false}; }

/// Where one lies, and whether its columns run along k of this product.
struct ThreadLowering::PanelAt {
  View view;
  Panel panel;
  bool alongK;
};

/// Who computes what of the sum: a warpgroup `rows` blocks of 64 x `columns`, a warp `rows` x `columns` blocks of 16 x 8;
/// `across` of them lie beside each other. Where there are fewer blocks than warps, `deep` of them share k, and their sums are added up at the end, in order.
struct ThreadLowering::Product {
  tile::LoadOp a;
  SmallVector<tile::LoadOp, 2>
      bs; ///< whose columns lie beside each other: of several, each fills whole blocks of the panel
  tile::DotOp dot;
  int64_t m, n, k;
  int64_t rows = 0, columns = 0, across = 0, deep = 1;
  bool wgmma = false;
  Panel left, right;
  int64_t stages = 0, stageBytes = 0;

  SmallVector<tile::LoadOp, 3> loads() const {
    SmallVector<tile::LoadOp, 3> all = {a};
    all.append(bs);
    return all;
  }
  /// Registers of a thread.
  int64_t sums() const { return wgmma ? rows * columns / 2 : rows * columns * 4; }
  /// Whether the sum can be dealt out so.
  bool dealToGroups(int64_t threads);
  bool dealToWarps(int64_t threads);
};

/// The ring of a sum, and what is copied to it.
struct ThreadLowering::Pipeline {
  Product p;
  scf::ForOp sum;
  scf::ForOp tiles; ///< the loop around it whose next sum is copied early; null: none
  scf::ForOp groups; ///< the loop around that one, of nothing else but scalars; null: none
  SmallVector<Operation *> places; ///< scalars of `tiles` that say where, and which tile is next, in order
  Buffer *buffer = nullptr;
  View ring;
  int64_t ahead = 0; ///< steps
  Value lo, count; ///< of the loop over k; steps
  int64_t step = 0;
  Value aheadTiles, aheadSteps; ///< `ahead` from the first step of a tile
  Value alignedA, alignedB; ///< whether 16 bytes are copied at a time; null: each copy asks
  // Of bulk copies (ThreadBulkCopies.cpp).
  Buffer *barriers = nullptr; ///< of each stage: that it is full, then that it is empty; then `cut`; null: threads copy
  bool cuts = false; ///< rows along k may end before those of their buffer
  std::optional<bool> sharedRight; ///< of a cluster whose blocks have an operand in common: whether it is the right one
  bool staggered = false; ///< the second warpgroup begins a tile some steps behind the first one
  std::shared_ptr<const ResultBoxes> results; ///< how sums are stored; null: by threads
  SmallVector<Value> numbers; ///< of the thread, its lane and its warp, while they are counted anew
  scf::IfOp roles; ///< the warp that copies, and all others
  /// Of `groups`: the stage that the warps which multiply read next, and `stages` more for parity 1, as i32; null: it follows from the tile.
  Value turn;
  // Of formulas behind the sum (ThreadEndReads.cpp).
  SmallVector<tile::LoadOp> reads; ///< what comes through the ring behind the steps of the sum
  SmallVector<BoxColumns> parts; ///< of their columns, each a step
  Value behind; ///< the turn of the ring behind the sum of this tile
  bool inBulk() const { return barriers != nullptr; }
};

/// What formulas read of some columns, in a stage of the ring.
struct ThreadLowering::EndPart {
  BoxColumns columns;
  Value turn; ///< the stage, and `stages` more for parity 1
  Value place = {}, begin = {}; ///< bytes to this lane's row in a box; the stage's memory
};

/// What is copied next: a step of the sum, with `tiles` the sum of the tile at `tile`, to `stage`.
struct ThreadLowering::CopyPlace {
  Value tile, step, stage;
};

/// Whether sums are constants that a first product need not read.
bool areZeros(ValueRange sums);
/// Whether rows of a panel that run along k may end before those of the buffer: boxes are zero past the end of a buffer only.
bool endsEarly(tile::LoadOp load, const Panel &panel);
/// Whether what is limited so may end before the buffer does along this dimension.
bool endsBefore(Value limit, Value buffer, int64_t dimension);
/// Barriers in shared memory, as i64, and bulk copies: inline assembly that says what it is (kBulkAttr). Of a ring of stages first those that say that one is full.
void emitBulk(OpBuilder &b, Location loc, StringRef kind, StringRef text, StringRef constraints, ValueRange operands);
Value barrierOf(OpBuilder &b, Location loc, Value barriers, int64_t stages, bool empty, Value stage);
/// `toFill` arrivals make a stage full, `toLeave` make it empty; 0: no barrier says so.
void beginPhases(OpBuilder &b, Location loc, Value barriers, int64_t stages, int64_t toFill, int64_t toLeave);
/// Waits for the phases of this parity.
void awaitPhase(OpBuilder &b, Location loc, Value barrier, Value parity);
void arriveAt(OpBuilder &b, Location loc, Value barrier);
/// An arrival, and so many bytes to come.
void expectBytes(OpBuilder &b, Location loc, Value barrier, int64_t bytes);

struct ThreadLowering::SumReads {
  SmallVector<tile::StoreOp, 1> stores; ///< of one group; none: only the next loop, or rows
  /// What formulas read: the sum, or slices of it that are as wide as what is stored, by their first columns.
  SmallVector<std::pair<Value, int64_t>, 2> parts;
  llvm::SetVector<Value> formulas,
      rows; ///< tiles as large as the sum, or a part, itself among them, and `known`; what is reduced of them
  /// The formula of the sum alone that all others read in its place, computed once behind the loop; null: they read the sum. And what it is made by.
  Value base;
  llvm::SetVector<Value> ofBase;
  Value made; ///< the formula that is stored in the place of the sum, or its base; null: that is
  tile::ReduceOp makes; ///< computes it, element by element, beside what is reduced
  SmallVector<Value> madeOfRows; ///< row by row of what is reduced, each behind what it is made of
  llvm::SetVector<Value> numbers,
      known; ///< of rows: which column is picked, where it is stored, what formulas read; what they are computed from
  SmallVector<tile::ReduceOp, 1> ends; ///< what is added up of formulas where these are stored
};

/// The row of a sum in the order of eachSum(), numbered in this thread: two halves of each block of rows.
inline size_t rowOfSum(size_t sum, int64_t blocks) {
  size_t inRows = static_cast<size_t>(blocks) * 4;
  return sum / inRows * 2 + sum / 2 % 2;
}

/// Of each of the `ends` what a thread has added up of its rows in one block: two halves.
struct ThreadLowering::EndSums {
  SmallVector<std::array<Value, 2>, 1> totals;
};

/// Sums of a warp that go to memory in boxes of 16 rows (ThreadResultBoxes.cpp).
struct ThreadLowering::ResultBoxes {
  SmallVector<tile::StoreOp, 1> stores;
  Buffer *memory = nullptr; ///< `count` pieces for each warp
  int64_t count = 0;
  bool adds = false; ///< to what is there, which the sum then does not begin with
  bool ends = false; ///< rows may end before those of the buffer: a box would write the next group's
};

struct ThreadLowering::LoopSums {
  Product product;
  Value result;
  SmallVector<Value> sums; ///< of this thread, in the order of eachSum(); or words of two, rounded
  SumReads reads;
  /// Columns that are stored: of the first part.
  int64_t width() const {
    return reads.parts.empty() ? product.n : tileType(reads.parts.front().first).getShape().back();
  }
};

struct ThreadLowering::SumRows {
  std::shared_ptr<const LoopSums> held;
  SmallVector<Value> rows; ///< of this thread: two halves of each block of rows
};

} // namespace braid::lower

#endif // PASSES_LOWER_THREADPRODUCTS_H
