//===- ThreadLowering.h - one kernel for the threads of a block (private to TileToThreads) -------------------------===//
//
// A program of the grid is a block of threads. Elements of a tile are dealt out to the threads, in the order of memory;
// a kept tile lies in the block's shared memory. What is emitted between two barriers is a phase: inside of it no thread
// reads what another one writes. The lowering knows what every phase reads and writes and puts a barrier where two
// phases would meet in the same bytes, nowhere else. Scalars of a kernel are the same in every thread.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_LOWER_THREADLOWERING_H
#define PASSES_LOWER_THREADLOWERING_H

#include "passes/lower/LowerKernels.h"
#include "passes/lower/TileLowering.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace braid::lower {

inline constexpr int64_t kWarp = 32;
/// Copies of 16 bytes that a thread is given one by one, without a loop.
inline constexpr int64_t kMostCopies = 32;
/// Where programs add up, blocks of up to so many threads share the registers of a multiprocessor: its grid is made for so many, and all are under way then.
inline constexpr int64_t kSumThreads = 128, kSumBlocks = 3;

/// Bytes of an element in memory.
inline int64_t bytesOf(Type stored) {
  return stored.isIndex() ? 8 : llvm::divideCeil(stored.getIntOrFloatBitWidth(), 8);
}

struct Panel;

/// Threads of a block that `kernel` is worth: one where it has no tiles.
int64_t chooseThreads(func::FuncOp kernel);
/// Of a kernel whose one product is a sum that ThreadOuter.cpp deals out; 0: there is none.
int64_t threadsOfOuterSum(func::FuncOp kernel);

/// Whether the shapes and types of a product are those of the tensor cores.
bool onTensorCores(tile::DotOp op);
/// And whether its operands are in shared memory, as theirs must be: no table of constants.
bool readsShared(tile::DotOp dot);
/// Elements of a thread, of the tiles that a loop of rows in registers carries.
int64_t carriedInRows(scf::ForOp loop);
/// Bytes of a number that threads copy one by one.
inline constexpr int64_t kNumberBytes = 4;
/// Whether the loop carries tiles in the rows of warps, and adds up what it multiplies along the others (ThreadRows.cpp).
bool isRunningSum(Operation *op);
/// A row of a tile, at a place that is known.
bool isKnownRow(tile::RowsOp op);
/// Whether each element of the result depends on the same element of every operand, or on its place.
inline bool keepsPlaces(Operation *op) { return OpTrait::hasElementwiseMappableTraits(op) || isa<tile::MaskOp>(op); }

/// A piece of shared memory over the walk through a kernel: from one event (a piece is taken or given back) to another.
struct Lifetime {
  int64_t bytes, begin, end;
};
/// An offset for each, a multiple of 16, so that none alive together overlap: the largest first, each where it fits first.
SmallVector<int64_t> pack(ArrayRef<Lifetime> lifetimes);

class ThreadLowering : public TileLowering {
public:
  /// `threads`: of a block. `ahead`: loops may copy what the next iteration reads. `scratched`: tiles that do not fit into shared memory lie in scratch. `planned`: offsets for the pieces of shared
  /// memory, in the order in which they are taken.
  ThreadLowering(func::FuncOp kernel, const BlockLimits &limits, int64_t threads, Thrift thrift, bool ahead,
                 bool scratched, ArrayRef<int64_t> planned = {});
  LogicalResult run() override;
  /// What the walk took of shared memory.
  ArrayRef<Lifetime> taken() const { return lifetimes; }
  /// Whether it failed for want of shared memory, which another plan may do without: there was no error then, and the
  /// kernel is as it was.
  bool copiesAhead() const { return copied; }
  /// Whether warps have columns of tiles, which need little but registers (ThreadColumns.cpp).
  bool liesInColumns() const { return !inColumns.empty(); }
  bool doesNotFit() const { return sharedBytes > limits.sharedBytes && !failedOnce; }

protected:
  void buildEntry() override;
  LogicalResult lowerScalar(Operation *op) override;
  bool lowerLoop(scf::ForOp op) override {
    if (llvm::any_of(op.getResults(), [&](Value v) { return inRows.count(v); }))
      return succeeded(lowerRowLoop(op)) || failedOnce;
    if (rowWalk)
      return lowerRowWalk();
    return lowerProduct(op) || lowerOuterSum(op) || lowerWalk(op);
  }
  bool lowerInRegisters(Operation *op) override;
  bool isAtHand(Value v) const override {
    return owned.count(v) || loopSums.count(v) || sumRows.count(v) || outerSums.count(v);
  }
  Buffer *allocate(VectorType type) override;
  void giveBack(Buffer *buffer) override;
  Type storage(Type element) override;
  int64_t rowLength(VectorType type) override;
  void overElements(const Elements &elements, function_ref<Value(Value row)> guard, Body body) override;
  SmallVector<Strip> split(const Strip &whole, int64_t) override { return {whole}; }
  llvm::MaybeAlign alignmentIn(const View &view, int64_t width) override;
  void fill(View target, VectorType type, Value value) override;
  void reduceLast(tile::ReduceOp op) override;
  void cumsumLast(tile::CumsumOp op) override;
  View inMemory(tile::LoadOp) override { return {}; } ///< matrix units read shared memory
  void dot(tile::DotOp op) override;
  void solve(tile::SolveOp op) override;
  void invert(tile::SolveOp op);
  void transpose(tile::TransposeOp op) override;
  void touched(const View &view, bool written) override;
  void beforeLoop(scf::ForOp op) override;
  SmallVector<Value *> carriedBeside(scf::ForOp op) override;
  void enterIteration(scf::ForOp op, Value at) override;
  void leaveIteration(scf::ForOp op) override;
  void afterLoop(scf::ForOp op) override;
  void beginLoop() override;
  void endIteration() override;
  void endLoop() override;
  void beginBranch() override;
  void endBranch() override;

private:
  /// Bytes that a phase touches: of shared memory, or everything in buffers of one element type (arguments may be the
  /// same buffer).
  struct Bytes {
    Type element;
    int64_t lo, hi;
    bool meets(const Bytes &other) const { return element == other.element && lo < other.hi && other.lo < hi; }
  };
  struct Accesses {
    SmallVector<Bytes> reads, writes;
    void append(const Accesses &other);
  };
  class Phase {
  public:
    explicit Phase(ThreadLowering &lowering);
    ~Phase() { end(); }
    void end(); ///< before it goes out of scope

  private:
    ThreadLowering &lowering;
    bool outermost;
  };

  /// Of a kernel whose tiles do not fit: a piece of global memory for each block that runs.
  Value scratchMemory();
  bool isShared(const View &view) const;
  /// Waits for the copies that this thread has started.
  void finishCopies();
  /// Where shared memory has so many bytes free.
  int64_t freeOffset(int64_t bytes, int64_t alignment) const;
  Buffer *allocate(Type stored, int64_t elements, int64_t alignment);
  /// Elements, with those between its rows, of a tile in shared memory.
  int64_t lengthOf(VectorType type) { return type.getNumElements() / type.getShape().back() * rowLength(type); }
  /// The elements of a tile in memory, 16 bytes at a time and without waiting for them.
  void startCopy(tile::LoadOp load, const View &target);
  /// Where 16 bytes of a tile's row go, in shared memory: `period` rows further they go `rowBytes` further for each row.
  struct Places {
    function_ref<Value(Value row, Value chunk)> at;
    int64_t period, rowBytes;
  };
  /// The rows of a tile in memory, without waiting for them; zeros where there is no such row. Neighbouring threads copy neighbouring bytes. The
  /// chunks of a thread lie one below the other: what their addresses differ by is the same in every thread, and next to nothing to compute.
  void copyRows(tile::LoadOp load, const Access &at, const Places &places);
  /// Whether all rows of a tile in memory begin on 16 bytes: the same in every thread.
  Value rowsAligned(tile::LoadOp load, const Access &at);
  Value pointer(Value address, unsigned space);
  /// body(i) for 0 <= i < count, one thread for each.
  void eachThread(int64_t count, function_ref<void(Value)> body);
  /// body(i) on groups of `lanes` neighbouring threads; all threads arrive, `inside` (null: always true) says whether
  /// this group's i is one of its own. If not, it is another group's too: nobody may write what both read.
  void eachGroup(int64_t count, int64_t lanes, function_ref<void(Value i, Value inside)> body);
  void onlyIf(Value condition, function_ref<void()> body);
  SmallVector<Value> coordinates(Value linear, ArrayRef<int64_t> shape);
  Value shuffle(Value value, int64_t distance, gpu::ShuffleMode mode);
  Value allLanes(tile::ReduceKind kind, Value value, int64_t lanes);

  // ThreadStrips.cpp
  /// Neighbouring elements of which one thread has several: what it reads and writes of memory then is up to 16 bytes at a
  /// time, all of it under way at once.
  struct Vectors {
    int64_t width = 0; ///< 0: a thread has one element at a time
    llvm::SetVector<Operation *> accesses; ///< the loads and stores of global memory that are vectors
  };
  class VectorCheck;
  Vectors vectorsOf(ArrayRef<Value> tiles, ArrayRef<tile::StoreOp> stores, function_ref<bool(int64_t width)> fits);
  Vectors vectorsOf(ArrayRef<Value> tiles, ArrayRef<tile::StoreOp> stores, int64_t width);
  /// Whether all vectors of these loads and stores begin on their bytes and (`allRows`) all of their tiles are within the limits: the
  /// same in every thread; null: known without looking.
  Value isTrusted(ArrayRef<Operation *> ops, int64_t width, bool allRows = true);
  /// `body` where accesses are trusted, and where they are not.
  SmallVector<Value> onTrust(const Vectors &vectors, Value condition, TypeRange results,
                             function_ref<SmallVector<Value>(bool trusted)> body);
  /// Elements of the last dimension, combined: in every `step` vectors, or elements, the one numbered `first`.
  Value reduceEvery(tile::ReduceOp op, ArrayRef<Value> lead, Value first, int64_t step, Type sum, int64_t width);
  Value reduceEvery(tile::ReduceOp op, ArrayRef<Value> lead, Value first, int64_t step, Type sum);
  Value widened(Value value);
  Value less(Value x, int64_t y);
  Value least(Value x, int64_t y);

  // ThreadFragments.cpp
  /// How the warps of a block share an m x n product: each has rows x columns blocks of 16 x 8 at a time, the first at
  /// [row, column]. Of each block a lane has two neighbours in two rows.
  struct Fragments {
    int64_t rows = 1, columns = 1, width;
    Value row = {}, column = {};
  };
  using HeldOperands = DenseMap<Operation *, std::pair<View, View>>;
  using HeldSums = SmallVector<std::pair<Value, SmallVector<Value>>>;
  void eachFragment(VectorType type, function_ref<void(const Fragments &at)> body);
  void eachHeld(const Fragments &at, const HeldSums &sums, bool pairs,
                function_ref<void(Value row, const Strip &strip, size_t element)> body);
  SmallVector<tile::DotOp> heldIn(ArrayRef<Value> tiles) const;
  void packHeld(ArrayRef<tile::DotOp> products, HeldOperands &operands, SmallVectorImpl<Buffer *> &temporary);
  HeldSums sumsOf(ArrayRef<tile::DotOp> products, const HeldOperands &operands, const Fragments &at);
  SmallVector<Value> beginOf(tile::DotOp op, const HeldOperands &operands, const Fragments &at);
  SmallVector<Value> sumsOf(tile::DotOp op, const HeldOperands &operands, const Fragments &at);
  SmallVector<Value> sumsOf(tile::DotOp op, const HeldOperands &operands, const Fragments &at, ValueRange begin);
  void overFragments(const Elements &elements, ArrayRef<tile::DotOp> products, function_ref<Value(Value row)> guard,
                     Body body);
  SmallVector<Value> loadMatrices(const View &view, Value row, Value column, int64_t count, bool turned);
  SmallVector<Value> loadMatrices(Value address, int64_t count, bool turned);
  SmallVector<Value> multiplyFragments(ValueRange a, ValueRange b, ValueRange sums);
  void multiply(tile::DotOp op, const View &left, const View &right, const View &target);

  // ThreadWalks.cpp
  struct Walk;
  std::optional<Walk> walkOf(scf::ForOp op);
  bool mayShare(Value x, Value y);
  /// Behind a loop whose body was not walked op by op: its operands are released, its results lie there.
  void leaveLoop(scf::ForOp op, ArrayRef<View> results);
  bool lowerWalk(scf::ForOp op);

  // ThreadRowWalks.cpp
  struct RowWalk;
  std::optional<RowWalk> rowWalkOf(Block &body, scf::ForOp loop);
  void planRowWalk();
  /// Where a thread's elements are: of a vector, and of a row by vector.
  struct RowPlace {
    SmallVector<Value> lead;
    Strip strip;
  };
  struct RowState;
  using RowPlaces = SmallVector<RowPlace>;
  RowPlaces rowOf(const RowState &state, Value number);
  static std::pair<ArrayRef<Value>, Strip> runOf(const RowState &state, const RowPlace &place);
  void placeRows(RowState &state, Value number);
  void readShared(RowState &state);
  SmallVector<Value> loadRows(ArrayRef<RowPlaces> rows, ArrayRef<tile::LoadOp> loads);
  void addUpRows(RowState &state, size_t round, ArrayRef<RowPlaces> rows, Value stage, function_ref<void()> meanwhile);
  void storeRows(RowState &state, ArrayRef<RowPlaces> rows, bool ofSums);
  SmallVector<Value> computeRows(RowState &state, ArrayRef<RowPlaces> rows, ArrayRef<Value> loaded, Value stage,
                                 function_ref<void()> meanwhile);
  SmallVector<Value> computeEachRow(RowState &state, Value stage);
  SmallVector<Value> addPairs(ValueRange carried, ValueRange sums);
  SmallVector<Value> walkWhole(RowState &state, Value lo, Value end, ArrayRef<Value> carried);
  SmallVector<Value> walkRows(RowState &state);
  void walkOnce(RowState &state);
  void addGroups(const View &result, const View &source, VectorType type, int64_t groups);
  bool lowerRowWalk();

  // ThreadColumns.cpp
  void planColumns();
  Fragments columnsOf(VectorType type);
  SmallVector<Value> fetchColumns(tile::LoadOp op);
  SmallVector<Value> loadColumns(tile::LoadOp op);
  SmallVector<Value> roundColumns(arith::TruncFOp op);
  SmallVector<Value> multiplyColumns(tile::DotOp op);
  SmallVector<Value> addUpColumns(tile::CumsumOp op);
  SmallVector<Value> moveColumns(tile::InsertRowsOp op);
  void reduceColumns(tile::ReduceOp op);
  void reduceAcross(tile::ReduceOp op);
  void takeRow(tile::RowsOp op);
  void keepColumns(Value v, ArrayRef<Value> elements);
  void makeColumns(Operation *reader);
  void computeColumns(Operation *op);
  bool lowerInColumns(Operation *op);
  Value laneOf(Value value, Value from);
  Value alike(Value v);

  // ThreadRows.cpp
  void planRows();
  using OwnedBody = function_ref<void(Value row, Value column, int64_t half, size_t element)>;
  void eachOwned(int64_t columns, OwnedBody body);
  /// The same in the columns of a warp, where tiles lie so.
  void eachOwned(VectorType type, bool turned, OwnedBody body);
  bool liesInRegisters(Value v) const { return inRows.count(v) || inColumns.contains(v); }
  SmallVector<Value> ownedLeaves(ValueRange formulas) const;
  SmallVector<Value> ownedOf(Value v, bool turned);
  SmallVector<Value> pairsOf(Value v, bool turned);
  SmallVector<Value> reduceOwned(tile::ReduceOp op);
  SmallVector<Value> addUpOwned(tile::CumsumOp op);
  SmallVector<Value> addUpAlike(Value vector, bool reverse);
  SmallVector<Value> takeDiagonal(Value tile);
  SmallVector<Value> takeOwned(tile::RowsOp op);
  void settle(Value v, ArrayRef<Value> beside = {});
  void settleAll();
  void settleReads(Region &region);
  void fetchOperands(tile::DotOp op);
  void planPanels();
  void splitLoads();
  void joinLoads();
  Buffer *allocatePanel(VectorType type);
  View panelView(Buffer *buffer) const;
  void fillPanel(const View &view, tile::LoadOp load);
  void awaitCopies(int64_t underWay = 0);
  void orderForAsync();
  bool isHandedOn(Value right) const;
  bool meetsRows(Value right) const;
  bool isHeldInRows(Value tile) const;
  void holdInRows(Value tile, const View &view, int64_t column = 0);
  bool liesAcross(Value vector) const;
  View handOn(Value tile, SmallVectorImpl<Buffer *> &temporary);
  View handOnVector(Value vector);
  struct PanelAt;
  SmallVector<Value> multiplyPanels(const PanelAt &left, ArrayRef<SmallVector<Value>> held, const PanelAt &right,
                                    int64_t depth, SmallVector<Value> sums);
  bool areReadEarly(Value left, Operation *loop) const;
  SmallVector<Value> multiplyOwned(tile::DotOp op, bool turned);
  void storeTurned(tile::StoreOp store, const Vectors &vectors, ArrayRef<Value> elements);
  void storeFours(tile::StoreOp store);
  void storeOwned(tile::StoreOp store);
  LogicalResult lowerRowLoop(scf::ForOp op);
  LogicalResult lowerRowBranch(scf::IfOp op);

  // ThreadAhead.cpp
  struct Ahead;
  std::shared_ptr<const Ahead> loadsAhead(scf::ForOp op);
  View stageOf(const Ahead &ahead, size_t i, Value stage);
  void fetchAhead(const Ahead &ahead, Value at, Value stage);
  void awaitAhead(const Ahead &ahead, Value at, Value number);
  void finishAhead(const Ahead &ahead);
  void fetchBeside();
  bool staysUntilEnd(tile::DotOp dot, Value right) const;
  static bool collectPlaces(Value v, scf::ForOp loop, llvm::SetVector<Operation *> &places, bool tables = false,
                            bool carried = false);

  // ThreadRowBoxes.cpp
  struct RowBoxes;
  std::shared_ptr<RowBoxes> boxesOf(scf::ForOp op);
  bool beginBoxes(scf::ForOp op);
  void copyBoxes(const RowBoxes &boxes, Value at, Value number);
  void copyNumbers(tile::LoadOp load, Value target, Value first, int64_t together);
  void enterBoxes(RowBoxes &boxes, Value at);
  void leaveBoxes(const RowBoxes &boxes);
  void endBoxes(RowBoxes &boxes);

  // ThreadProducts.cpp
  struct Product;
  /// The sums of a product that those who read them take from registers.
  struct LoopSums;
  int64_t blocksOf(const Product &p) const;
  Value roundPair(Value low, Value high);
  std::optional<LoopSums> roundAll(const LoopSums &held);
  void takeSums(const LoopSums &held, size_t at, bool inPairs);
  void storeBlocks(const LoopSums &held, tile::StoreOp store);
  void overSums(const Elements &elements, const LoopSums &held, function_ref<Value(Value row)> guard, Body body);
  std::optional<Product> productOf(scf::ForOp op);
  Value unitsOf(Value address);
  Value describePanel(Value units, int64_t blockBytes, int64_t further = 0);
  SmallVector<Value> multiplyByGroups(const Product &p, Value left, Value right, ValueRange sums);
  Value partOf(const Product &p);
  Value placeOf(const Product &p);
  SmallVector<Value> multiplyByWarps(const Product &p, Value left, Value right, ValueRange sums);
  void eachSum(const Product &p, function_ref<void(Value row, const Strip &strip)> body);
  /// `others`: groups behind that of these sums that may go on.
  SmallVector<Value> awaitProducts(ValueRange sums, int64_t others = 0);
  Value structOfSums(ValueRange sums, bool begun);
  SmallVector<Value> begunSums(ValueRange sums);
  SmallVector<Value> sumsOfStruct(Value whole);
  Value multiplyByGroup(Value left, bool leftAlongK, Value right, bool rightAlongK, Value sums);
  SmallVector<Value> multiplyRowsByGroup(ValueRange left, Value right, bool rightAlongK, ValueRange sums);

  // ThreadSumRows.cpp
  /// Who reads a sum that may stay in registers: a store, of it or of what is made of it, and what is reduced along its rows.
  struct SumReads;
  struct SumRows;
  void planSums();
  bool isKnownBefore(Value v, Operation *reader, llvm::SetVector<Value> &from) const;
  void findBase(Value sum, SumReads &reads) const;
  bool collectReads(Value sum, SumReads &reads, bool planned) const;
  void keepSums(const Product &p, Value result, SmallVector<Value> sums, const SumReads &reads);
  bool collectEnd(Value sum, SumReads &reads, bool planned = true) const;
  std::optional<SumReads> readsOf(Value sum, const Product &p) const;
  Value besideOf(const Product &p);
  void enterSum(const LoopSums &held, size_t at);
  void leaveSums(const LoopSums &held);
  void readNumbers(const std::shared_ptr<const LoopSums> &held);
  void makeRows(const std::shared_ptr<const LoopSums> &held);
  SmallVector<Value> pickSums(const LoopSums &held, Value columns, Value x);
  SmallVector<Value> reduceSums(const LoopSums &held, tile::ReduceOp op, SmallVectorImpl<Value> *kept);
  void storeSumRows(tile::StoreOp store, const SumRows &rows);
  struct EndSums;
  Value addUpNow(Value sum);
  void addToEnds(const LoopSums &held, EndSums &sums, size_t at, ArrayRef<Value> lead, const Strip &strip);
  void storeEnds(const LoopSums &held, const EndSums &sums, int64_t r);
  void storeEnds(const LoopSums &held, std::optional<int64_t> block);
  bool lowerSumRows(Operation *op);

  // ThreadOuter.cpp
  class OuterSum;
  bool lowerOuterSum(scf::ForOp op);
  bool storeOuterSum(tile::StoreOp store);

  // ThreadPipeline.cpp
  struct Pipeline;
  struct CopyPlace;
  void copyPanel(tile::LoadOp load, const Access &at, Value aligned, const View &ring, Value panel);
  std::pair<Access, Access> placesOf(const Pipeline &pipe, const CopyPlace &place);
  Value nextStage(const Product &p, Value stage);
  CopyPlace copyStep(const Pipeline &pipe, const CopyPlace &place);
  void lowerScalars(ArrayRef<Operation *> ops);
  void atPlace(const Pipeline &pipe, const CopyPlace &place, function_ref<void()> body);
  std::shared_ptr<Pipeline> beginSum(const Product &p, scf::ForOp sum, scf::ForOp tiles);
  bool beginTiles(scf::ForOp op);
  bool beginTiles(scf::ForOp tiles, scf::ForOp groups);
  void endTiles(scf::ForOp op);
  bool goesOn(scf::ForOp op, const Product &p);
  void countThreadsAnew(Pipeline &pipe);
  void readEndNumbers(const Pipeline &pipe);
  void passSum(Pipeline &pipe, Value before);
  bool lowerProduct(scf::ForOp op);

  // ThreadBulkCopies.cpp
  bool copiesInBulk(const Pipeline &pipe, const SumReads &reads);
  static bool isBox(tile::LoadOp load, const Panel &panel);
  void beginBulkCopies(Pipeline &pipe, const SumReads &reads);
  void endBulkCopies(Pipeline &pipe);
  Value fullBarrier(const Pipeline &pipe, Value stage);
  Value emptyBarrier(const Pipeline &pipe, Value stage);
  Value cutBarrier(const Pipeline &pipe);
  Value passedBarrier(const Pipeline &pipe, Value stage);
  void tellPassed(const Pipeline &pipe, Value stage);
  void followGroup(const Pipeline &pipe, Value stage, Value parity);
  void copyInBulk(const Pipeline &pipe);
  SmallVector<Value> walkAlike(scf::ForOp loop, ValueRange ring,
                               function_ref<SmallVector<Value>(Value, ValueRange)> body);
  SmallVector<Value> copyTiles(const Pipeline &pipe, ValueRange ring);
  void copyStepInBulk(const Pipeline &pipe, const CopyPlace &place, Value parity, Value barrier, bool together);
  Value copyStepAndCut(const Pipeline &pipe, const CopyPlace &place, Value parity, Value cutParity);
  /// By `together` threads, of which this is the one numbered `first`: the rows from `live` on of a panel at so many bytes of the ring.
  void clearRows(const Panel &panel, Value live, const View &ring, Value first, int64_t together, Value offset = {});
  void copyPanelInBulk(tile::LoadOp load, const Panel &panel, Value target, Value barrier, bool together = false);
  void copyBox(tile::LoadOp load, int64_t rows, int64_t columns, int64_t further, Value target, Value barrier,
               Value below = {});
  Value rankInCluster();
  void prefetchBox(tile::LoadOp load, int64_t rows, int64_t columns, int64_t further);
  std::string boxPlace(tile::LoadOp load, int64_t rows, int64_t columns, int64_t further,
                       SmallVectorImpl<Value> &operands, size_t map, Value below = {});
  SmallVector<Value> nextFilled(const Product &p, Value stage, Value parity);
  /// Of boxes of rows x columns along these dimensions of the buffer.
  Value mapAddress(Value source, ArrayRef<int64_t> dims, int64_t rows, int64_t columns);
  void leaveStage(const Pipeline &pipe, Value behind);
  void tellEmpty(const Pipeline &pipe, Value stage);
  SmallVector<Value> multiplyInBulk(const Pipeline &pipe, ValueRange now, std::pair<Value, Value> panels);

  // ThreadResultBoxes.cpp
  struct ResultBoxes;
  std::shared_ptr<const ResultBoxes> resultBoxesOf(const Pipeline &pipe, const SumReads &reads);
  bool addsToResult(const Product &p, scf::ForOp sum, tile::StoreOp store);
  /// Of a sum, or of what was made of it, whose results leave in boxes; null: by threads.
  std::shared_ptr<Pipeline> boxedPipeline(const LoopSums &held) const;
  void storeInBoxes(const Pipeline &pipe, const LoopSums &held, function_ref<void(int64_t r)> byRows);
  struct Staging;
  /// Columns of a warp that are a box: rows of 128, 64 or 32 bytes.
  struct BoxColumns {
    int64_t first, count, rowBytes;
  };
  static SmallVector<BoxColumns> boxesAcross(int64_t columns, int64_t elementBytes);
  struct Part;
  SmallVector<SmallVector<Value>> makePart(const Part &part, const LoopSums &held, int64_t firstBlock, int64_t blocks,
                                           ArrayRef<std::pair<Value, Value>> places, EndSums &ends);
  Value placeInPiece(const ResultBoxes &boxes, const BoxColumns &columns);
  Value forget(Value place);
  void stagePart(const Staging &staging, int64_t firstBlock, ArrayRef<Value> pairs);
  void leaveParts(ArrayRef<Staging> stagings, Value firstRow, Value firstColumn, Value whole);
  void sendPart(const Staging &staging, Value firstRow, Value firstColumn);
  void storePart(const Staging &staging, Value firstRow, Value firstColumn);
  void endResultBoxes(const ResultBoxes &boxes);
  void awaitBoxes(int64_t underWay);
  void awaitPiece(int64_t underWay);
  void storeMatrices(Value address, ArrayRef<Value> registers);

  // ThreadEndReads.cpp
  void planEndReads(Pipeline &pipe, const SumReads &reads);
  void prefetchEndReads(const Pipeline &pipe, const CopyPlace &place);
  SmallVector<Value> copyEndReads(const Pipeline &pipe, Value tile, ValueRange ring);
  struct EndPart;
  EndPart beginEndPart(const Pipeline &pipe, size_t number);
  SmallVector<SmallVector<Value>> readEndPart(const Pipeline &pipe, const EndPart &part, int64_t block);
  void leaveEndPart(const Pipeline &pipe, const EndPart &part);
  void passEndReads(const Pipeline &pipe);

  const BlockLimits limits;
  const bool mayCopyAhead, scratched;
  int64_t threads;
  Value thread, lane, warp, shared, scratch;
  ArrayRef<int64_t> planned;
  std::shared_ptr<RowWalk> rowWalk; ///< of the one loop of a kernel, or of a kernel without one
  DenseMap<Value, bool> inRows; ///< what lies in the rows of warps; whether its rows are its second dimension
  DenseSet<Value> inColumns,
      madeLate; ///< what lies in the columns of warps; of that, what is made where it is first read
  DenseMap<Operation *, SmallVector<Value>>
      asked; ///< words of loads in columns that are on their way to where they are first read
  llvm::SetVector<tile::LoadOp> readTwice; ///< by formulas, and as a panel by products
  DenseSet<Value>
      panels; ///< loads that rows multiply by wgmma, and rows they hand on: they lie in shared memory as it reads them
  DenseMap<Value, std::shared_ptr<const LoopSums>> loopSums; ///< by the loop's result
  DenseMap<Value, std::shared_ptr<const SumRows>> sumRows; ///< by what is reduced of them
  DenseMap<Value, std::shared_ptr<const OuterSum>>
      outerSums; ///< by the loop's result: their store takes them from registers
  DenseMap<Operation *, std::shared_ptr<const Ahead>> aheads; ///< by the loop
  DenseMap<Operation *, std::shared_ptr<RowBoxes>> rowBoxes; ///< by the loop
  DenseMap<Operation *, std::shared_ptr<Pipeline>> pipelines; ///< that loops over tiles have begun, by the loop over k
  DenseMap<Operation *, View> fetched; ///< what loads of this iteration read, by copies of the one before
  DenseMap<Value, SmallVector<Value>> owned; ///< the elements of a lane: c (of 8 columns), two halves, two neighbours
  std::pair<Block *, std::function<void()>>
      toFetch; ///< copies of the next iterations that this one starts beside its first products; none: null
  llvm::MapVector<Value, int64_t> inFlight; ///< products whose sums are not awaited yet, by their group's number
  int64_t groups = 0, awaited = 0; ///< of products so far, and how many of them are done
  SmallVector<Lifetime> lifetimes;
  DenseMap<const Buffer *, size_t> lifetimeOf;
  int64_t events = 0;
  SmallVector<Buffer *> live; ///< by offset; what does not fit lies behind the end of shared memory
  int64_t sharedBytes = 0, scratchBytes = 0; ///< the most alive at a time
  std::map<std::tuple<int64_t, int64_t, void *>, Value> sharedViews;
  Accesses pending, phase; ///< since the last barrier; of the phase being emitted
  bool inPhase = false;
  gpu::BarrierOp marker;
  struct Saved {
    Accesses before;
    bool written, copying;
  };
  std::vector<Saved> loops, branches;
  bool writes = false; ///< since the innermost loop began
  bool started = false; ///< a copy, by the phase being emitted
  bool grouped = false; ///< copies that are started are a group with those behind them
  bool copying = false; ///< asynchronous copies may be under way
  bool oneByOne = false; ///< no vectors: they would not be trusted here
  bool copied = false; ///< a loop copies ahead
  SmallVector<TensorMap> maps; ///< of bulk copies
  int64_t copiers = 0; ///< threads behind all others, which start them
  int64_t cluster = 1; ///< blocks that run at a time and share an operand
  bool patterned = false; ///< shared memory begins, and ends, on a pattern of 1024 bytes
};

} // namespace braid::lower

#endif // PASSES_LOWER_THREADLOWERING_H
