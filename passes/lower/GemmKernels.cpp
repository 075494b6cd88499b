//===- GemmKernels.cpp - matrix products as launches of tile kernels ----------------------------------------------===//
// The reference of every library's product, and what a GPU runs where none is asked for: a program of the grid makes one tile of C, its
// products over k in steps of a tile. Sizes, leading dimensions and batches are arguments; what the code depends on is in
// the kernel's name: element types, which operand lies transposed, whether C is added to, and the tile. Rows past a limit read 0
// and are not written; columns have no limit. So a width that tiles do not divide (a vocabulary of 50257) is cut: whole tiles, a narrower
// one that the tensor cores still take, and what is left, each a launch of its own. Along k the rest is a step behind the loop.
#include "dialects/cmd/CmdDialect.h"
#include "passes/Passes.h"
#include "passes/lower/KernelSignature.h"
#include "passes/outline/OutlineContext.h"
#include "passes/outline/ProductTiles.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_GEMMKERNELSPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

constexpr int64_t kMostBehind = 128; // columns of a tile that is added to behind the loop

struct Tile {
  int64_t m, n, k;
  bool transposeA = false, transposeB = false, accumulate = false;
  Type a, b, c;
  Type addend = {}; ///< of another matrix that is added; null: none
  SmallVector<int64_t, 2> rest = {}; ///< of k, behind the steps of the loop
  /// Whether operands can be copied in boxes, and whether C can.
  bool boxes = false, resultBoxes = false;
  ProductTeam team = ProductTeam::apart;

  std::string name(StringRef kind) const {
    auto letter = [](bool transposed) { return transposed ? "t" : "n"; };
    std::string text =
        llvm::formatv("{0}_{1}_{2}_{3}_{4}{5}{6}_{7}x{8}x{9}", kind, typeName(a), typeName(b), typeName(c),
                      letter(transposeA), letter(transposeB), accumulate ? "_add" : "", m, n, k);
    if (addend)
      text += "_plus_" + typeName(addend);
    for (int64_t step : rest)
      text += "_" + std::to_string(step);
    if (inBoxes() && !resultBoxes)
      text += "_results";
    if (runsAlone() && !(boxes && resultBoxes))
      text += "_by_rows";
    return text + teamSuffix(team);
  }
  /// Of a kernel whose name says so where they are not.
  bool inBoxes() const { return boxes && runsAlone(); }
  /// Whether the matrices of this product are as large as their tiles at least.
  bool fits(int64_t ofM, int64_t ofN, int64_t ofK) const { return m <= ofM && n <= ofN && k <= ofK; }
  bool runsAlone() const { return braid::runsAlone(a.isBF16() && b.isBF16(), m, n); }
  /// The matrix that the sum begins with: C, another, or none.
  Var begin(KernelBuilder &k, Var target, Shape sizes) const {
    return accumulate ? target : addend ? k.buffer("addend", addend, sizes, /*strided=*/true) : Var();
  }
  /// The first value of the sum.
  Var start(KernelBuilder &k, Var begin, Indices at, const AccessOptions &options) const {
    Type sum = computeType(c);
    return begin ? cast(k.load(begin, at, {m, n}, options), sum) : k.tile({m, n}, sum);
  }
  Var multiply(Var left, Var right, Var sum) const {
    if (left.element() != right.element()) {
      left = cast(left, sum.element());
      right = cast(right, sum.element());
    }
    return dot(left, right, sum, {transposeA, transposeB});
  }
};

class GemmKernels : public braid::impl::GemmKernelsPassBase<GemmKernels> {
public:
  using GemmKernelsPassBase::GemmKernelsPassBase;

  void runOnOperation() override {
    SmallVector<Operation *> products;
    getOperation().walk([&](Operation *op) {
      if (isa<cmd::GroupedGemmOp>(op))
        products.push_back(op);
      else if (auto gemm = dyn_cast<cmd::GemmOp>(op); gemm && !(library && ofLibrary(gemm)))
        products.push_back(op);
    });
    for (Operation *op : products) {
      if (auto gemm = dyn_cast<cmd::GemmOp>(op)) {
        // A^T has m along its columns.
        int64_t m = gemm.getM();
        Sides sides = sidesFor(onTensorCores(gemm), m, gemm.getN(), gemm.getK(), gemm.getBatch());
        // What is added behind the loop passes through shared memory, which holds two of these.
        if (onTensorCores(gemm) && depthOf(gemm, sides.k).size() > 1)
          sides.n = std::min(sides.n, kMostBehind);
        SmallVector<Part, 3> rows = {{0, m, guardedSideOf(m, sides.m)}};
        if (gemm.getTransposeA())
          rows = partsOf(m, sides.m, onTensorCores(gemm));
        for (const Part &row : rows)
          for (const Part &column : partsOf(gemm.getN(), sides.n, onTensorCores(gemm)))
            describe(lower(gemm, row, column, sides.k), op, row.length * column.length, m * gemm.getN());
      } else {
        auto grouped = cast<cmd::GroupedGemmOp>(op);
        describe(grouped.getKind() == cmd::GroupedKind::weight ? lowerWeight(grouped) : lowerRows(grouped), op, 1, 1);
      }
      op->erase();
    }
  }

private:
  /// The arguments of a launch, by the names of a kernel's slots.
  class Arguments {
  public:
    explicit Arguments(MLIRContext *context) : builder(context) {}
    void index(const Twine &name, int64_t value) { list.append(name.str(), builder.getI64IntegerAttr(value)); }
    /// A strided buffer; the last stride is 1.
    void buffer(StringRef name, cmd::BufferAttr at, Shape sizes, Shape strides) {
      list.append(name, at);
      for (auto [d, size] : llvm::enumerate(sizes))
        index(name + ".dim" + Twine(d), size);
      for (auto [d, stride] : llvm::enumerate(strides))
        index(name + ".stride" + Twine(d), stride);
    }
    NamedAttrList list;

  private:
    Builder builder;
  };

  /// `tiles` below each other, which so many programs share.
  static void shareTiles(Arguments &arguments, const Tile &tile, int64_t parts, int64_t tiles) {
    if (!tile.runsAlone())
      return;
    arguments.index("parts", parts);
    arguments.index("tiles", tiles / parts);
  }

  template <typename Op>
  cmd::LaunchOp launch(Op op, const Tile &tile, const std::string &kernel, Shape grid, const Arguments &arguments) {
    OpBuilder b(op);
    auto function = getOperation().lookupSymbol<func::FuncOp>(kernel);
    // C shares no byte with A and B, and what is added is C itself or another matrix.
    function->setAttr(tile::kInPlaceAttr, b.getArrayAttr({}));
    if (tile.inBoxes())
      function->setAttr(tile::kBoxesAttr, b.getUnitAttr());
    setTeam(getOperation(), kernel, tile.team);
    if (tile.inBoxes() && !tile.resultBoxes)
      function->setAttr(tile::kResultsByRowsAttr, b.getUnitAttr());
    return cmd::LaunchOp::create(b, op.getLoc(), FlatSymbolRefAttr::get(op.getContext(), kernel),
                                 b.getDenseI64ArrayAttr(grid), arguments.list.getDictionary(op.getContext()),
                                 op.getStreamAttr(), op.getNameAttr());
  }

  /// cuBLASLt multiplies operands of one type, which is that of C or narrower, and adds what is of C's type.
  static bool ofLibrary(cmd::GemmOp op) {
    Type a = op.getTypeA(), c = op.getTypeC();
    return op.getTypeAddend().value_or(c) == c && a == op.getTypeB() && (a.isBF16() || a.isF32()) &&
           (c == a || (a.isBF16() && c.isF32()));
  }

  template <typename Op> static bool onTensorCores(Op op) { return op.getTypeA().isBF16() && op.getTypeB().isBF16(); }

  /// What the product was said to be: its share of the work is `part` of `whole`.
  static void describe(cmd::LaunchOp launch, Operation *op, int64_t part, int64_t whole) {
    launch->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    auto work = op->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr);
    if (!work || part == whole)
      return;
    double share = static_cast<double>(part) / static_cast<double>(whole);
    auto of = [&](int64_t number) { return std::llround(share * static_cast<double>(number)); };
    launch->setAttr(cmd::kWorkAttr, cmd::WorkAttr::get(op->getContext(), work.getOp(), of(work.getFlops()),
                                                       of(work.getBytes()), work.getChoice(), work.getRows(),
                                                       std::min(of(work.getFixed()), of(work.getBytes()))));
  }

  /// The bytes from `first` elements on.
  static cmd::BufferAttr from(cmd::BufferAttr at, int64_t first, Type element) {
    int64_t skipped = first * (element.getIntOrFloatBitWidth() / 8);
    return cmd::BufferAttr::get(at.getContext(), at.getArena(), at.getOffset() + skipped, at.getBytes() - skipped,
                                at.getStrides());
  }

  /// Whether a matrix with these strides in elements begins on 16 bytes at every place, and all of its rows do. 0 is not a stride.
  static bool isAligned(cmd::BufferAttr at, Shape strides, Type type) {
    constexpr int64_t bytes = 16;
    int64_t element = type.getIntOrFloatBitWidth() / 8;
    return at.getOffset() % bytes == 0 && llvm::all_of(at.getStrides(), [](int64_t s) { return s % bytes == 0; }) &&
           llvm::all_of(strides, [=](int64_t s) { return s > 0 && s * element % bytes == 0; });
  }

  template <typename Op> static Tile tileOf(Op op, int64_t m, int64_t n, int64_t k, bool transposeA) {
    Type addend = op.getTypeAddend().value_or(Type());
    return {
        m,     n, k, transposeA, op.getTransposeB(), op.getAccumulate(), op.getTypeA(), op.getTypeB(), op.getTypeC(),
        addend};
  }

  /// The steps along k: guarded where it runs along the rows of both operands.
  static SmallVector<Part, 3> depthOf(cmd::GemmOp op, int64_t most) {
    int64_t k = op.getK();
    if (op.getTransposeA() && !op.getTransposeB())
      return {{0, k, guardedSideOf(k, most)}};
    return partsOf(std::max<int64_t>(k, 1), most, onTensorCores(op));
  }

  /// The part of C at these rows and columns.
  cmd::LaunchOp lower(cmd::GemmOp op, Part rows, Part columns, int64_t mostDepth) {
    int64_t m = rows.length, n = columns.length, k = op.getK(), batch = op.getBatch();
    Tile tile = tileOf(op, rows.side, columns.side, 0, op.getTransposeA());
    SmallVector<Part, 3> depths = depthOf(op, mostDepth);
    tile.k = depths.front().side;
    int64_t steps = std::min(depths.front().length, k);
    for (const Part &part : ArrayRef(depths).drop_front())
      tile.rest.push_back(part.side);
    int64_t rowsOfB = tile.transposeB ? op.getLdb() : 1, rowsOfA = tile.transposeA ? 1 : op.getLda();
    auto isAlignedFrom = [&](cmd::BufferAttr at, int64_t first, Type type, int64_t leading, int64_t stride) {
      return isAligned(from(at, first, type), batch == 1 ? Shape(leading) : Shape({leading, stride}), type);
    };
    tile.boxes = tile.fits(m, n, k) &&
                 isAlignedFrom(op.getA(), rows.first * rowsOfA, tile.a, op.getLda(), op.getBatchStrideA()) &&
                 isAlignedFrom(op.getB(), columns.first * rowsOfB, tile.b, op.getLdb(), op.getBatchStrideB());
    tile.resultBoxes =
        isAlignedFrom(op.getC(), rows.first * op.getLdc() + columns.first, tile.c, op.getLdc(), op.getBatchStrideC());
    // What the outermost programs are: bands of rows, or matrices of a batch.
    int64_t down = ceilDiv(m, tile.m), across = n / tile.n;
    int64_t parts = tile.runsAlone() ? shareRows(down, across * batch) : down;
    int64_t band = batch == 1 ? bandOf(parts, across) : parts;
    if (tile.inBoxes())
      tile.team = teamOf(getOperation(), band, across);
    OutlineContext context(getOperation());
    std::string kernel = context.kernel(tile.name("gemm"), {"row", "column", "outer"}, [&](KernelBuilder &k) {
      const int64_t any[] = {kDynamic, kDynamic, kDynamic};
      Var a = k.buffer("a", tile.a, any, /*strided=*/true), b = k.buffer("b", tile.b, any, /*strided=*/true);
      Var c = k.buffer("c", tile.c, any, /*strided=*/true), begin = tile.begin(k, c, any), depth = k.index("k");
      Var outer = k.program(2), part = outer * k.index("band") + k.program(0), column = k.program(1) * tile.n;
      Var batch = outer * k.index("batches");
      AccessOptions inside{.limit = k.size(c, 1)};
      auto step = [&](Var row, Var at, int64_t length, Var sum) {
        Var left = tile.transposeA ? k.load(a, {batch, at, row}, {length, tile.m}, {.limit = k.size(a, 1)})
                                   : k.load(a, {batch, row, at}, {tile.m, length}, {.limit = k.size(a, 1)});
        Var right = tile.transposeB ? k.load(b, {batch, column, at}, {tile.n, length})
                                    : k.load(b, {batch, at, column}, {length, tile.n}, {.limit = k.size(b, 1)});
        return tile.multiply(left, right, sum);
      };
      eachTile(k, part, tile.m, tile.runsAlone(), [&](Var row) {
        Var sum = k.loop(0, depth, tile.k, {tile.start(k, begin, {batch, row, column}, inside)},
                         [&](Var at, ArrayRef<Var> sum) { return Vars{step(row, at, tile.k, sum[0])}; })[0];
        Var rest = depth;
        for (int64_t length : tile.rest) {
          sum = step(row, rest, length, sum);
          rest = rest + length;
        }
        k.store(cast(sum, tile.c), c, {batch, row, column}, inside);
      });
    });
    Arguments arguments(&getContext());
    auto matrix = [&](StringRef name, cmd::BufferAttr at, int64_t rows, int64_t columns, bool transposed,
                      int64_t leading, int64_t stride) {
      if (transposed)
        std::swap(rows, columns);
      arguments.buffer(name, at, {batch, rows, columns}, {stride, leading});
    };
    matrix("a", from(op.getA(), rows.first * rowsOfA, tile.a), m, k, tile.transposeA, op.getLda(),
           op.getBatchStrideA());
    matrix("b", from(op.getB(), columns.first * rowsOfB, tile.b), k, n, tile.transposeB, op.getLdb(),
           op.getBatchStrideB());
    matrix("c", from(op.getC(), rows.first * op.getLdc() + columns.first, tile.c), m, n, false, op.getLdc(),
           op.getBatchStrideC());
    if (tile.addend)
      matrix("addend", from(*op.getAddend(), rows.first * op.getLdc() + columns.first, tile.addend), m, n, false,
             op.getLdc(), op.getBatchStrideAddend());
    arguments.index("k", steps);
    arguments.index("band", batch == 1 ? band : 0);
    arguments.index("batches", batch == 1 ? 0 : 1);
    shareTiles(arguments, tile, parts, down);
    return launch(op, tile, kernel, {band, across, batch == 1 ? parts / band : batch}, arguments);
  }

  static Var boundary(KernelBuilder &k, Var offsets, Var group) {
    return cast(k.at(offsets, {group}), k.builder.getIndexType());
  }

  /// The group that begins with the row, and where it ends; `row` itself where none does.
  static std::pair<Var, Var> groupFrom(KernelBuilder &k, Var offsets, Var row) {
    constexpr int64_t lanes = 64; // offsets that are compared at a time
    Var groups = k.size(offsets, 0) - 1, lane = k.iota({lanes}, 0), place = cast(row, k.i32());
    Vars passed = k.loop(0, groups, lanes, {k.constant(k.i32(), 0)}, [&](Var at, ArrayRef<Var> before) {
      Var ends = k.load(offsets, {at + 1}, {lanes}, {.limit = groups + 1});
      Var counted = both(lt(lane, cast(groups - at, k.i32())), le(ends, splat(place, {lanes})));
      return Vars{before[0] + sum(cast(counted, k.i32()), 0)};
    });
    // Behind the last row of all groups: the last group, which ends there or before.
    Var group = min(cast(passed[0], k.builder.getIndexType()), groups - 1);
    Var end = boundary(k, offsets, group + 1);
    return {group, select(eq(boundary(k, offsets, group), row), end, row)};
  }

  /// C[r, :] = A[r, :] op(B[g]): the rows of a group are dealt out to `parts` programs, as they are found on the device. Where there are fewer rows than
  /// groups, a program takes the group that begins with its row, if one does: most groups have none, and as many programs as groups would do nothing
  /// but start, several times on every multiprocessor.
  cmd::LaunchOp lowerRows(cmd::GroupedGemmOp op) {
    int64_t n = op.getN(), k = op.getK(), groups = op.getGroups(), rows = op.getMaxRows();
    // As if all groups had equally many. A tile has room for twice as many: a program goes on to the rest of its group, which reads the weights again.
    int64_t each = std::min(rows, 2 * ceilDiv(rows, std::max<int64_t>(groups, 1)));
    Sides sides = sidesFor(onTensorCores(op), each, n, k, std::min(groups, rows));
    // No box is larger than its matrix.
    int64_t side = guardedSideOf(each, sides.m, warpgroups && rows >= sides.m);
    Tile tile = tileOf(op, side, sideOf(n, sides.n), sideOf(k, sides.k), false);
    tile.boxes =
        tile.fits(rows, n, k) && isAligned(op.getA(), op.getLda(), tile.a) && isAligned(op.getB(), op.getLdb(), tile.b);
    tile.resultBoxes = isAligned(op.getC(), op.getLdc(), tile.c);
    int64_t across = n / tile.n;
    int64_t workers = tile.inBoxes() ? workersFor(getOperation(), rows, groups, tile.m, across) : 0;
    bool byRow = !workers && rows < groups;
    SmallVector<StringRef, 3> grid = {"column", "part", byRow ? "row" : "group"};
    if (workers) {
      grid = {"worker"};
      tile.team = teamInGroups(getOperation(), across);
    }
    OutlineContext context(getOperation());
    std::string name = tile.name(byRow ? "gemm_groups_by_row" : "gemm_groups");
    std::string kernel = context.kernel(name, grid, [&](KernelBuilder &k) {
      Var a = k.buffer("a", tile.a, {kDynamic, kDynamic}, /*strided=*/true);
      Var b = k.buffer("b", tile.b, {kDynamic, kDynamic, kDynamic}, /*strided=*/true);
      Var c = k.buffer("c", tile.c, {kDynamic, kDynamic}, /*strided=*/true);
      Var begin = tile.begin(k, c, {kDynamic, kDynamic});
      Var offsets = k.buffer("offsets", k.i32(), {kDynamic});
      Var depth = k.size(a, 1);
      auto compute = [&](Var group, Var row, Var end, Var column) {
        AccessOptions inside{.limit = end};
        Var sum =
            k.loop(0, depth, tile.k, {tile.start(k, begin, {row, column}, inside)}, [&](Var at, ArrayRef<Var> sum) {
              Var left = k.load(a, {row, at}, {tile.m, tile.k}, inside);
              Var right = tile.transposeB ? k.load(b, {group, column, at}, {tile.n, tile.k})
                                          : k.load(b, {group, at, column}, {tile.k, tile.n});
              return Vars{tile.multiply(left, right, sum[0])};
            })[0];
        k.store(cast(sum, tile.c), c, {row, column}, inside);
      };
      if (workers)
        return eachGroupTile(k, offsets, tile.m, tile.n, tile.team, compute);
      Var column = k.program(0) * tile.n, part = k.program(1);
      if (byRow) {
        Var first = k.program(2);
        auto [group, end] = groupFrom(k, offsets, first);
        return k.loop(first, end, tile.m, [&, group = group, end = end](Var row) { compute(group, row, end, column); });
      }
      Var group = k.program(2), end = boundary(k, offsets, group + 1);
      eachTile(k, boundary(k, offsets, group), end, part, tile.m, tile.runsAlone(),
               [&](Var row) { compute(group, row, end, column); });
    });
    int64_t parts = shareGroups(rows, groups, tile.m, across, tile.runsAlone());
    int64_t height = tile.transposeB ? n : k, lda = op.getLda(), ldb = op.getLdb(), ldc = op.getLdc();
    Arguments arguments(&getContext());
    arguments.buffer("a", op.getA(), {rows, k}, {lda});
    arguments.buffer("b", op.getB(), {groups, height, tile.transposeB ? k : n}, {height * ldb, ldb});
    arguments.buffer("c", op.getC(), {rows, n}, {ldc});
    if (tile.addend)
      arguments.buffer("addend", *op.getAddend(), {rows, n}, {ldc});
    arguments.buffer("offsets", op.getOffsets(), {groups + 1}, {});
    if (byRow)
      return launch(op, tile, kernel, {across, 1, rows}, arguments);
    if (!workers) {
      arguments.index("parts", parts);
      return launch(op, tile, kernel, {across, parts, groups}, arguments);
    }
    arguments.index(kWorkers, workers);
    arguments.index("across", across);
    return launch(op, tile, kernel, {workers, 1, 1}, arguments);
  }

  /// C[g] = A_g^T B_g; a group without rows gives 0.
  cmd::LaunchOp lowerWeight(cmd::GroupedGemmOp op) {
    int64_t m = op.getM(), n = op.getN(), groups = op.getGroups(), rows = op.getMaxRows();
    Sides sides = sidesFor(onTensorCores(op), m, n, ceilDiv(rows, std::max<int64_t>(groups, 1)), groups);
    Tile tile{sideOf(m, sides.m),
              sideOf(n, sides.n),
              guardedSideOf(rows, sides.k),
              true,
              false,
              op.getAccumulate(),
              op.getTypeA(),
              op.getTypeB(),
              op.getTypeC()};
    tile.boxes =
        tile.fits(m, n, rows) && isAligned(op.getA(), op.getLda(), tile.a) && isAligned(op.getB(), op.getLdb(), tile.b);
    tile.resultBoxes = isAligned(op.getC(), op.getLdc(), tile.c);
    if (tile.inBoxes())
      tile.team = teamAcross(getOperation(), n / tile.n);
    OutlineContext context(getOperation());
    std::string kernel = context.kernel(tile.name("gemm_weights"), {"column", "row", "group"}, [&](KernelBuilder &k) {
      Var a = k.buffer("a", tile.a, {kDynamic, kDynamic}, /*strided=*/true);
      Var b = k.buffer("b", tile.b, {kDynamic, kDynamic}, /*strided=*/true);
      Var c = k.buffer("c", tile.c, {kDynamic, kDynamic, kDynamic}, /*strided=*/true);
      Var offsets = k.buffer("offsets", k.i32(), {kDynamic});
      Var begin = tile.begin(k, c, {});
      eachWeightTile(
          k, {tile.m, tile.n, tile.k}, tile.runsAlone(), a, b, offsets,
          [&](Indices at) { return tile.start(k, begin, at, {}); },
          [&](Var left, Var right, Var sum) { return tile.multiply(left, right, sum); },
          [&](Indices at, Var sum) { k.store(cast(sum, tile.c), c, at); });
    });
    int64_t lda = op.getLda(), ldb = op.getLdb(), ldc = op.getLdc();
    Arguments arguments(&getContext());
    arguments.buffer("a", op.getA(), {rows, m}, {lda});
    arguments.buffer("b", op.getB(), {rows, n}, {ldb});
    arguments.buffer("c", op.getC(), {groups, m, n}, {m * ldc, ldc});
    arguments.buffer("offsets", op.getOffsets(), {groups + 1}, {});
    int64_t down = m / tile.m, parts = tile.runsAlone() ? shareRows(down, n / tile.n * groups, /*most=*/2) : down;
    shareTiles(arguments, tile, parts, down);
    return launch(op, tile, kernel, {n / tile.n, parts, groups}, arguments);
  }
};

} // namespace
