//===- TileLowering.h - one kernel on its way from tiles to loops (private to TileToLoops) ------------------------===//
//
// A tile is either lazy (computed per strip inside the loop of whoever consumes it) or kept in a stack buffer; loads of
// whole vectors that nothing writes meanwhile (states) are read where they stand, without a copy. TilePlan decides
// which, before anything is emitted; TileEvaluate computes one strip of a lazy tile; TileLoops and TileMatrix write
// tiles into buffers; TileToLoops walks the kernel, owns control flow and the buffers' lifetimes.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_LOWER_TILELOWERING_H
#define PASSES_LOWER_TILELOWERING_H

#include "dialects/tile/TileDialect.h"
#include "passes/lower/KernelSignature.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/MathExtras.h"
#include <deque>

namespace braid::lower {
using namespace mlir;

inline VectorType tileType(Value v) { return dyn_cast<VectorType>(v.getType()); }
inline bool isTile(Value v) { return isa<VectorType>(v.getType()); }
/// Type in which a stack buffer holds elements: bf16 as f32 (exact both ways), i1 as bytes.
Type storageType(Type element);
/// Elements from one row of a stack buffer to the next: full strips of any type may be written.
inline int64_t paddedLength(int64_t length) {
  return length <= 16 ? static_cast<int64_t>(llvm::PowerOf2Ceil(length))
                      : static_cast<int64_t>(llvm::alignTo(length, 16));
}

/// The two halves of a square tile, the diagonal in neither: where it may differ from 0, or where it is read.
struct Triangles {
  bool above = true, below = true;
  Triangles operator&(Triangles other) const { return {above && other.above, below && other.below}; }
  Triangles operator|(Triangles other) const { return {above || other.above, below || other.below}; }
};
/// What a reduction over nothing gives.
TypedAttr reductionStart(tile::ReduceKind kind, Type element, Builder &b);
/// Before a kernel is walked: dots read transposed operands as they are, dead tiles disappear. `bf16Dots`: operands of
/// bf16 are multiplied as such.
/// `turn`: what a loop reads transposed is turned once, before it.
void prepareTiles(func::FuncOp kernel, bool bf16Dots, bool turn);

// TileElements.cpp
/// An element of each row of x, as PickOp has it.
struct Pick {
  Value columns, x;
};
/// Writes what takes one element of each row as a sum that says what it stands for.
void expandElements(func::FuncOp kernel);
/// The tile whose diagonal, or the elements that, a sum stands for; none where it stands for itself.
Value diagonalBy(tile::ReduceOp sum);
std::optional<Pick> pickBy(tile::ReduceOp sum);

// TileTriangle.cpp; other tiles are full.
Triangles triangleOf(Value tile);
Triangles triangleRead(Value tile);

/// body(buffer) for each argument that `buffer` may be (arith.select).
void eachArgument(Value buffer, function_ref<void(Value argument)> body);

/// What is made again so that less need be kept: nothing; what formulas read of memory, widened and scaled too; what
/// products read of it. What else was computed is not: the formulas of a gradient, each inserted
/// into the next, have no end.
enum class Thrift : uint8_t { none, formulas, loads };

/// The `vectorBytes` of a GPU's thread.
inline constexpr int64_t kThreadBytes = 4;

/// Which tiles are kept in buffers, and which stores share one loop.
class TilePlan {
public:
  TilePlan(func::FuncOp kernel, int64_t vectorBytes, Thrift thrift = Thrift::none);
  bool isKept(Value tile) const { return kept.contains(tile); }
  /// The stores that are emitted together, at the last one; empty for a store that is not the last of its group.
  ArrayRef<tile::StoreOp> group(tile::StoreOp store) const;
  /// The same for reductions along the rows of tiles of one shape.
  ArrayRef<tile::ReduceOp> group(tile::ReduceOp reduce) const;
  /// Of whichever of its members.
  ArrayRef<tile::ReduceOp> groupOf(tile::ReduceOp reduce) const { return group(cast<tile::ReduceOp>(leader(reduce))); }
  static bool isAlongRows(tile::ReduceOp reduce);
  /// The one store that reads `v`, through a formula that is evaluated where it stores, or null.
  tile::StoreOp storeOf(Value v) const;
  /// Columns of the last dimension at which a lazy tile changes its formula (concat, merged dimensions).
  /// `definition`: of the formula that fills the buffer of a kept tile.
  SmallVector<int64_t> breaks(Value tile, bool definition = false) const {
    Breaks known;
    return breaks(tile, definition, known);
  }
  int64_t width(Type element) const;
  static bool isSimpleCast(vector::ShapeCastOp op);
  /// A GPU: products that one formula reads, each element at its own place, are made where that formula is written
  /// (ThreadFragments.cpp).
  void hold(func::FuncOp kernel, int64_t threads);
  bool isHeld(Value tile) const { return held.contains(tile); }
  bool holdsAny() const { return !held.empty(); }
  /// Tiles that are in no buffer, whose stores are nobody else's, and others that are in one (ThreadRows.cpp).
  void drop(ArrayRef<Value> tiles, ArrayRef<Value> others);
  /// Tiles that are in no buffer: who reads them computes them, and their stores are stored as ever.
  void forget(ArrayRef<Value> tiles);
  /// Tiles that are computed where they stand, and those of them that are also kept (ThreadColumns.cpp).
  void compute(ArrayRef<Value> tiles, ArrayRef<Value> alsoKept);
  /// Whether nothing writes what a load reads before the last that reads its tile.
  bool staysInMemory(Value load) const { return unwritten.contains(load); }

private:
  /// What several formulas read is looked at once: a chain of x * sigmoid(x) has 2^n ways down.
  using Breaks = DenseMap<Value, SmallVector<int64_t>>;
  SmallVector<int64_t> breaks(Value tile, bool definition, Breaks &known) const;
  bool mustKeep(Operation *op) const;
  bool neverKept(Value tile) const;
  void forceOperands(Operation *op);
  void formGroups(Block &block);
  void groupReductions(Block &block);
  int64_t cost(Value tile, DenseMap<Value, int64_t> &known) const;
  /// Of what a dot may begin with as it is computed.
  int64_t shortFormula() const { return vectorBytes == kThreadBytes ? 6 : 4; }
  std::pair<Value, Operation *> sinkOf(Value v) const;
  void leaveGroups(llvm::function_ref<bool(Value)> leaves);
  Operation *leader(Operation *op) const;
  using Sinks = DenseMap<Operation *, int64_t>;
  Sinks sinksOf(Value v, const DenseMap<Value, Sinks> &evaluations) const;
  bool written(tile::LoadOp load, const Sinks &sinks) const;
  void settleLoads(func::FuncOp kernel);

  int64_t vectorBytes;
  Thrift thrift;
  DenseSet<Value> kept, held, computed, unwritten;
  DenseMap<Operation *, SmallVector<tile::StoreOp>> groups;
  DenseMap<Operation *, SmallVector<tile::ReduceOp>> reductions;
  DenseMap<Operation *, Operation *> leaders;
};

/// Which rows of tiles each dot asks for, while it multiplies, on behalf of the iteration behind its own (TileFetch.cpp).
class FetchPlan {
public:
  FetchPlan() = default;
  explicit FetchPlan(func::FuncOp kernel);
  struct Fetch {
    tile::LoadOp load;
    int64_t first, rows;
  };
  bool empty() const { return shares.empty(); }
  ArrayRef<Fetch> of(tile::DotOp dot) const {
    auto it = shares.find(dot);
    return it == shares.end() ? ArrayRef<Fetch>() : ArrayRef<Fetch>(it->second);
  }

private:
  using Row = std::pair<tile::LoadOp, int64_t>;
  void share(Block &block, ArrayRef<Row> rows);
  DenseMap<Operation *, SmallVector<Fetch>> shares;
};

/// A stack buffer, or on a GPU a piece of a block's shared memory. Several values may own it one after the other; a loop
/// pins the buffers it carries.
struct Buffer {
  Value memref; ///< memref<N x storage>
  int64_t capacity; ///< in elements
  int owners = 0, pins = 0;
  int64_t offset = 0, bytes = 0; ///< in shared memory
};

/// Strided elements of a flat memory: a stack buffer seen as a tile, a buffer argument, or a tile where it stands in one.
struct View {
  Value memref;
  SmallVector<Value> strides; ///< in elements
  Buffer *buffer = nullptr; ///< null: an argument or a constant
  Value first = {}; ///< element that the tile begins with; null: 0
};

/// Columns of the tile being evaluated: lanes [column, column + width). width 0: the one element at `column`.
struct Strip {
  Value column;
  int64_t lo, hi; ///< all columns of this piece of code lie in [lo, hi)
  int64_t width;
  int64_t valid; ///< live lanes; what the others hold does not matter
};

/// A loop over the elements of a tile: what its body evaluates at each and writes.
struct Elements {
  ArrayRef<int64_t> shape;
  int64_t width; ///< of a strip, on a CPU
  ArrayRef<int64_t> cuts; ///< of the last dimension: no strip lies across one
  SmallVector<Value> tiles{}; ///< evaluated in the columns of the strip
  ArrayRef<tile::StoreOp> stores{}; ///< written there
  bool alone = false; ///< the columns mean something else to the body, which takes one at a time on a GPU
};

/// Lowers for one CPU thread; ThreadLowering overrides what a block of GPU threads does otherwise.
class TileLowering {
public:
  TileLowering(func::FuncOp kernel, int64_t vectorBytes, bool bf16Dots, Thrift thrift = Thrift::none);
  virtual ~TileLowering() = default;
  /// Replaces the kernel by an llvm.func-compatible func.func of the same name. Emits an error and fails on what it
  /// cannot do.
  virtual LogicalResult run();

protected:
  // TileToLoops.cpp: the function, control flow, lifetimes
  virtual void buildEntry();
  /// Reads the slots behind `args` and maps the kernel's arguments.
  void bindArguments(Value args);
  /// Maps the coordinates of the program with this number.
  void bindProgram(Value args, Value number, IRMapping &to);
  Value slot(Value args, unsigned number, Type type);
  LogicalResult lowerBlock(Block &block);
  LogicalResult lowerOp(Operation *op);
  LogicalResult lowerFor(scf::ForOp op);
  /// Whether the operation has been lowered to registers of threads.
  virtual bool lowerInRegisters(Operation *op) { return false; }
  /// Whether a tile that is not kept has been computed, so that it needs its operands no longer.
  virtual bool isAtHand(Value v) const { return false; }
  /// Lowers the loop in a way of its own, if it has one.
  virtual bool lowerLoop(scf::ForOp op) { return false; }
  LogicalResult lowerIf(scf::IfOp op);
  virtual LogicalResult lowerScalar(Operation *op);
  View chosen(arith::SelectOp op);
  /// Around the control flow of a kernel: what the code before, inside and behind it may rely on.
  virtual void beforeLoop(scf::ForOp) {} ///< its bounds are known
  /// Scalars that change in the loop besides those that the kernel knows of: where they are kept.
  virtual SmallVector<Value *> carriedBeside(scf::ForOp) { return {}; }
  virtual void enterIteration(scf::ForOp, Value /*at*/) {} ///< behind beginLoop()
  virtual void leaveIteration(scf::ForOp) {} ///< before endIteration()
  virtual void afterLoop(scf::ForOp) {}
  virtual void beginLoop() {}
  virtual void endIteration() {}
  virtual void endLoop() {}
  virtual void beginBranch() {}
  virtual void endBranch() {}
  void assignAll(ArrayRef<Value> values, ArrayRef<View> targets, ArrayRef<VectorType> types);
  void release(Value v, Block *user);
  void releaseOperands(Operation *op);
  void useDone(Value v);
  void drainDeferred(Block *block);
  virtual Buffer *allocate(VectorType type);
  virtual void giveBack(Buffer *buffer);
  virtual Type storage(Type element) { return storageType(element); }
  /// Elements from one row of a buffer to the next.
  virtual int64_t rowLength(VectorType type) { return paddedLength(type.getShape().back()); }
  View viewOf(Buffer *buffer, VectorType type);
  void own(Value v, View view);
  bool dies(Value v, int64_t usesHere);
  /// A place for the result `v`: the buffer of the loop that yields it if that is free (or read only through `through`,
  /// element by element), else a new buffer.
  View destination(Value v, Value through = {});
  int64_t readsThrough(Value target, Value root, bool &elementwise, DenseMap<Value, int64_t> &known);
  /// Whether evaluating `root` reads `buffer`; `onlyIdentity` becomes false when it reads other elements than it
  /// computes.
  bool reads(Value root, Buffer *buffer, bool &onlyIdentity) {
    DenseMap<std::pair<Value, unsigned>, bool> known;
    return reads(root, buffer, false, onlyIdentity, known);
  }
  bool reads(Value root, Buffer *buffer, bool moved, bool &onlyIdentity,
             DenseMap<std::pair<Value, unsigned>, bool> &known);

  struct Access;

  // TileLoops.cpp: loops
  using Body = function_ref<void(ArrayRef<Value> lead, const Strip &strip)>;
  void forEachRow(ArrayRef<int64_t> shape, function_ref<Value(Value row)> guard,
                  function_ref<void(ArrayRef<Value>)> body);
  void forEachStrip(int64_t length, int64_t width, ArrayRef<int64_t> breaks, function_ref<void(const Strip &)> body);
  /// The limit of a long tile of rank 1 that is walked in strips of `width`: what is stored there has it, or the first load
  /// that `tiles` are computed from. Loads and stores of strips that end before it need no masks.
  const Access *limitOf(const Elements &elements);
  void forEachStripTo(const Access &end, const Elements &elements, function_ref<void(const Strip &)> body);
  /// Runs `body` for every strip of a tile, in the order of its elements or on many threads at once: no call may depend on
  /// another.
  virtual void overElements(const Elements &elements, function_ref<Value(Value row)> guard, Body body);
  virtual void fill(View target, VectorType type, Value value);
  void storeGroup(ArrayRef<tile::StoreOp> stores);
  LogicalResult keep(Value v);
  virtual void reduceLast(tile::ReduceOp op);
  /// `whole` in strips of `width`; as it is where that is no part of it.
  virtual SmallVector<Strip> split(const Strip &whole, int64_t width);
  void reduceRows(ArrayRef<tile::ReduceOp> ops);
  void cumsumRows(tile::CumsumOp op);
  virtual void cumsumLast(tile::CumsumOp op);
  bool readsSameRows(Value value, tile::InsertRowsOp op, int64_t &count);
  void insertRows(tile::InsertRowsOp op);
  void reshape(vector::ShapeCastOp op);
  void keepConstant(arith::ConstantOp op);
  Value combine(tile::ReduceKind kind, Value a, Value b);
  Value horizontal(tile::ReduceKind kind, Value vector);
  /// Runs `body` `count` times with carried values; no loop when count is 1.
  SmallVector<Value> repeat(int64_t begin, int64_t end, int64_t step, ValueRange carried,
                            function_ref<SmallVector<Value>(Value, ValueRange)> body);
  /// `of`: the loop of the kernel that this one is, whose attributes it gets.
  SmallVector<Value> repeat(Value begin, Value end, Value step, ValueRange carried,
                            function_ref<SmallVector<Value>(Value, ValueRange)> body, scf::ForOp of = {});

  // TileFetch.cpp
  /// Rows [first, first + rows) of a tile that the next iteration loads, with `line` elements in a line of a cache.
  struct Ahead {
    Value condition; ///< none: always
    Value memref, offset, stride;
    int64_t first, rows, columns, line;
  };
  /// What `v` will be in the next iteration of `loop` (null: in the next program), for code where `at` is lowered.
  Value ahead(Value v, scf::ForOp loop, Operation *at, IRMapping &known);
  Value isLast(scf::ForOp loop); ///< the current iteration
  SmallVector<Ahead> tilesAhead(tile::DotOp dot);
  /// The part of `tiles` that goes with rows [row, row + rows) of `all`.
  void fetch(ArrayRef<Ahead> tiles, Value row, int64_t rows, int64_t all);

  // TileMatrix.cpp
  virtual void dot(tile::DotOp op);
  bool takesPairs(tile::DotOp op);
  View pairsInRows(Value v, SmallVectorImpl<Buffer *> &temporary);
  View pairsOfRows(Value v, SmallVectorImpl<Buffer *> &temporary);
  Value multiplyPairs(Value a, Value b, Value sum);
  virtual void solve(tile::SolveOp op);
  virtual void transpose(tile::TransposeOp op);
  void transposeSquare(MutableArrayRef<Value> v, Type stored);
  void transposeInto(View source, View target, int64_t rows, int64_t columns, Type element);
  /// The tile as rows in a buffer; `temporary` when the caller must give it back.
  View packed(Value v, SmallVectorImpl<Buffer *> &temporary);
  /// The tile where it is loaded from, if whole vectors of its rows can be read there; else nothing.
  virtual View inMemory(tile::LoadOp load);

  // TileEvaluate.cpp
  Value eval(Value v, ArrayRef<Value> lead, const Strip &strip);
  /// What eval() answers there until the strip ends.
  void remember(Value v, ArrayRef<Value> lead, const Strip &strip, Value value) {
    cache[keyOf(v, lead, strip)] = value;
  }
  static std::vector<void *> keyOf(Value v, ArrayRef<Value> lead, const Strip &strip);
  Value evalOp(Operation *op, Value v, ArrayRef<Value> lead, const Strip &strip);
  Value evalLoad(tile::LoadOp op, ArrayRef<Value> lead, const Strip &strip);
  Value evalShapeCast(vector::ShapeCastOp op, ArrayRef<Value> lead, const Strip &strip);
  Value evalMask(tile::MaskOp op, ArrayRef<Value> lead, const Strip &strip);
  /// `view` is read or written by the code that is emitted next.
  virtual void touched(const View &view, bool written) {}
  /// Bytes on which vectors of `width` elements of the tile begin; nothing: on an element.
  virtual llvm::MaybeAlign alignmentIn(const View &view, int64_t width) { return {}; }
  Value readView(const View &view, Type element, ArrayRef<Value> lead, const Strip &strip, bool widen = false);
  void writeView(const View &view, ArrayRef<Value> lead, const Strip &strip, Value value, bool exact);
  void writeArgument(tile::StoreOp op, ArrayRef<Value> lead, const Strip &strip, Value value);
  void scatter(tile::StoreOp op, const Strip &strip, Value value);
  /// Row `row` of a tile of row numbers, an index.
  Value rowNumber(Value rows, Value row);
  /// Whether a scatter writes the row that goes to this number.
  Value isWritten(tile::StoreOp op, Value number);
  Value laneMask(const Strip &strip);
  Value rowMask(Value row, Value limit, int64_t width, bool countsUp);
  Value inBounds(Value row, Value limit);
  void startStrip() { cache.clear(); }

  // Small helpers on index values; constants live in the entry block and fold.
  Value constant(int64_t value);
  Value add(Value a, Value b);
  Value add(Value a, int64_t b) { return b == 0 ? a : add(a, constant(b)); }
  Value mul(Value a, Value b);
  Value divide(Value a, int64_t b);
  Value remainder(Value a, int64_t b);
  Value zero(Type type);
  Value splat(Value scalar, int64_t width);
  Value lanes(int64_t width, Type element);
  Value number(Type element, double value);
  Value numberOf(Type type, double value);
  Value offsetIn(const View &view, ArrayRef<Value> lead, Value column);
  Type typed(Type element, int64_t width) { return width ? Type(VectorType::get({width}, element)) : element; }
  Type elementOf(Value v) { return getElementTypeOrSelf(v.getType()); }
  int64_t widthFor(VectorType type) {
    return std::min<int64_t>(plan.width(type.getElementType()), llvm::PowerOf2Ceil(type.getShape().back()));
  }
  InFlightDiagnostic fail(Operation *op, const Twine &message) {
    failedOnce = true;
    return op->emitOpError(message);
  }

  struct Access { ///< of one load or store: the parts that do not depend on the tile element
    Value offset, row, limit;
    bool countsUp = false; ///< `row` is no negative number, whatever the grid is
    SmallVector<Value> strides; ///< per tile dimension
  };
  /// Whether a guard says so of this row of the tile, or of the strip that begins at this column.
  bool isInBounds(const Access &at, Value row);
  Access access(Value buffer, ValueRange indices, ArrayRef<int64_t> dims, Value limit);

  func::FuncOp kernel, lowered;
  int64_t vectorBytes;
  bool bf16Dots;
  TilePlan plan;
  FetchPlan fetches; ///< empty where programs do not follow each other on one thread
  OpBuilder b;
  Location loc;
  Operation *entryEnd = nullptr; ///< allocations and constants go before it
  IRMapping scalars;
  IRMapping nextProgram; ///< coordinates of the program behind this one, or of this one if it is the last
  DenseMap<Value, View> arguments; ///< buffer arguments
  DenseMap<Value, SmallVector<Value>> sizes;
  DenseMap<Value, View> views; ///< kept tiles
  DenseMap<Value, int64_t> usesLeft;
  DenseMap<Operation *, Access> accesses;
  DenseMap<Block *, SmallVector<Value>> deferred;
  DenseMap<Operation *, SmallVector<View>> loopViews; ///< carried buffers, by loop
  std::deque<Buffer> buffers;
  SmallVector<Buffer *> freeBuffers;
  std::map<int64_t, Value> constants;
  /// Evaluated strips of the loop body being emitted: (tile, indices..., width) -> value.
  std::map<std::vector<void *>, Value> cache;
  /// (limit, (base row, tile row)): known in bounds. Of a tile of rank 1 with the column of a strip, all of which is.
  SmallVector<std::pair<Value, std::pair<Value, Value>>> guards;
  /// Loads and stores whose tile is known to lie within its limit, and the bytes on which each vector begins.
  DenseMap<Operation *, llvm::Align> trusted;
  DenseMap<Value, Value> registers; ///< strips that are at hand, of tiles that are in no memory
  Block *current = nullptr; ///< block of the kernel being walked
  bool failedOnce = false;
  SmallVector<Operation *> tables; ///< globals with the elements of constant tiles
};

} // namespace braid::lower

#endif // PASSES_LOWER_TILELOWERING_H
