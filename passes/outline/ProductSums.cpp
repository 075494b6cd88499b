//===- ProductSums.cpp - sums of matrix products that a GPU computes in one kernel --------------------------------===//
//
//   C = sum_i A_i op(B_i)                      the gradient of what several projections, or experts' projections, read: one sum along all k_i
//   r, P = exp(C_t - r), s = sum P                   of logits C = A op(B): of each row and tile t of words what their softmax needs, and in bf16 what its gradient does
//   D = f(A B_1, A B_2, ..)                    what row-wise ops make of products of one matrix, such as silu(A B_1) * (A B_2), beside those products that others read
//   C = sum_p A[p-th part of k]^T B[.. ]       the gradient of a weight: the sum over tokens in parts, added up by a second kernel
//
// A product that adds what another one has left in memory writes and reads f32: of 131,072 rows for experts that is half a gigabyte each way, as much time
// as half the product. Logits are the largest matrix of a step, and no kernel reads them: the product has computed the exponentials of which a gradient is made, which bf16
// holds as well as anything that is rounded to it in the end (its exponents are those of f32). They stand as they are, r = 0, unless the greatest of a tile is far from 0:
// then all of a row have one factor, which LossKernels.cpp leaves to others. The label's logit is an f32 number of its own, so
// that loss and p - 1 are those of f32. Products that row-wise ops read together have columns of each beside each other in a tile: A is read once, and a thread has the same
// columns of all. And a gradient of weights alone has too few tiles for the multiprocessors of a GPU.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/ProductTiles.h"
#include "passes/outline/SoftCap.h"

#include "passes/analysis/Views.h"

#include "llvm/Support/FormatVariadic.h"

#include <numeric>

using namespace mlir;

namespace braid {

namespace {

bool isBf16(Value v) { return tensorType(v).getElementType().isBF16(); }

std::string numbered(StringRef name, size_t i) { return name.str() + std::to_string(i); }

Value withProducts(Value result, int64_t products) {
  auto type = IntegerType::get(result.getContext(), 64);
  result.getDefiningOp()->setAttr(kProductsAttr, IntegerAttr::get(type, products));
  return result;
}

/// x, which has `columns` columns, and zeros behind each row up to `wide` columns.
Value widened(Operation *op, Value x, int64_t columns, int64_t wide, OutlineContext &context) {
  constexpr int64_t block = 64;
  auto type = tensorType(x);
  Type element = type.getElementType();
  int64_t rows = product(type.getShape()) / columns;
  std::string name = llvm::formatv("widen_{0}_{1}_{2}", typeName(element), columns, wide);
  std::string kernel = context.kernel(name, {"row"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", element, {kDynamic, columns}), y = k.buffer("y", element, {kDynamic, wide});
    Var row = k.program(0) * block;
    AccessOptions inside{.limit = k.index("rows")};
    k.store(k.load(x, {row, 0}, {block, columns}, inside), y, {row, 0}, inside);
    k.store(k.tile({block, wide - columns}, element), y, {row, columns}, inside);
  });
  auto launch = context.launch(op, kernel, {ceilDiv(rows, block)}).arg("x", context.view(op, x, {rows, columns}));
  return launch.result("y", type.clone({rows, wide})).index("rows", rows).run()[0];
}

/// C = sum_i A_i op(B_i) as one launch, of logits for a loss one for each width of tiles.
class OneSum {
public:
  OneSum(Operation *op, ValueRange as, ValueRange bs, Value offsets, bool transposeB, RankedTensorType type,
         OutlineContext &context, std::optional<LossReads> loss = {}, const ProductEnd *end = nullptr)
      : op(op), offsets(offsets), transposeB(transposeB), loss(loss), end(end), type(type), context(context) {
    if (end)
      beside.append(std::next(bs.begin()), bs.end());
    for (auto [a, b] : llvm::zip_equal(as, bs.take_front(as.size())))
      terms.push_back({a, b, shapeOf(b).drop_front(offsets ? 1 : 0)[transposeB ? 1 : 0]});
    n = type.getShape().back();
    rows = product(type.getShape()) / n;
    groups = offsets ? shapeOf(bs[0])[0] : 1;
  }

  bool fits() const { return terms.size() > 1 && whyNot().empty(); }

  /// Why there is no such kernel.
  std::string whyNot() const {
    for (const Term &term : terms) {
      if (!isBf16(term.a) || !isBf16(term.b))
        return "operands are not bf16";
      if (n % kGrain != 0 || term.depth == 0 || (term.depth % kGrain != 0 && !widensNarrowTerms(measure())))
        return llvm::formatv("{0} x {1} are no multiples of {2}", term.depth, n, kGrain);
      if (!isContiguous(term.a) || !isContiguous(term.b))
        return "operands are parts of other matrices";
    }
    return {};
  }

  /// Whether formulas can follow in the registers of a kernel whose operands come in boxes. Columns of several products are whole boxes, or wgmma would not take them for those of
  /// one.
  bool fitsEnd() {
    auto isPlain = [](Value v) { return isBf16(v) && isContiguous(v); };
    if (!whyNot().empty() || !llvm::all_of(beside, isPlain) || !llvm::all_of(end->operands, isPlain) ||
        !llvm::all_of(end->numbers, isContiguous))
      return false;
    // Results that have no piece of shared memory each at a time keep what is made of 64 columns in registers (lower/ThreadResultBoxes), which are taken by what
    // is read then.
    constexpr int64_t mostBesideReads = 2;
    if (!end->operands.empty() && end->results > mostBesideReads)
      return false;
    Measures measures = measure();
    int64_t step = measures.sides.k, most = measures.sides.n / together();
    m = measures.m;
    columns = sideOf(n, most);
    bool whole = together() == 1 || (!transposeB && columns == most && columns % kBoxColumns == 0);
    return whole && step == kBoxColumns && terms.front().depth % step == 0 &&
           runsAlone(/*tensorCores=*/true, m, together() * columns) && inBoxes();
  }

  SmallVector<Value> runForEnd() {
    plan();
    SmallVector<Type> types(end->results, type.clone({rows, n}));
    types.append(end->sums, RankedTensorType::get({n / columns, rows}, Float32Type::get(op->getContext())));
    return launch({0, n, columns}, types, {});
  }

  Value run() {
    Sides sides = plan();
    columns = sideOf(n, sides.n);
    return context.view(op, launch({0, n, columns}, {type.clone({rows, n})}, {})[0], type.getShape());
  }

  /// What the softmax of the rows of C needs of each tile of columns. Tiles are those of a product alone; the narrower ones behind are another launch,
  /// which writes its columns in the same place.
  LossTiles runForLoss() {
    SmallVector<Part, 3> parts = partsOf(n, plan().n, /*tensorCores=*/true);
    int64_t tiles = 0;
    for (const Part &part : parts)
      tiles += part.length / part.side;
    auto ofTiles = type.clone({tiles, ceilDiv(rows, m) * m});
    SmallVector<Type> types = {ofTiles, ofTiles, type.clone({rows})};
    if (loss->exponentials)
      types.push_back(RankedTensorType::get({rows, n}, BFloat16Type::get(op->getContext())));
    SmallVector<Value> results;
    firstTile = 0;
    for (const Part &part : parts) {
      columns = part.side;
      results = launch(part, types, results);
      firstTile += part.length / part.side;
    }
    return {results[0],         results[1],   results[2], loss->exponentials ? results[3] : Value(),
            parts.front().side, loss->softcap};
  }

private:
  struct Term {
    Value a, b;
    int64_t depth; ///< k_i
  };
  /// Terms [first, end), one behind the other along k.
  struct Walk {
    size_t first, end;
    int64_t step;
  };
  /// Parameters of the kernel.
  struct Operands {
    Vars a, b, beside, begins, depths; ///< where a term begins in its walk, how long walks are
  };
  /// What is read and written at the end of a tile.
  struct Targets {
    Vars operands, numbers, results, sums;
  };

  static constexpr int64_t kBoxColumns = 64; // of bf16
  /// Products that have columns in a tile.
  int64_t together() const { return 1 + static_cast<int64_t>(beside.size()); }

  /// Of all terms together.
  struct Measures {
    Sides sides;
    int64_t m, depth; ///< rows of a tile; products of a row and a column
  };
  Measures measure() const {
    // As if all groups had equally many rows. A tile has room for twice as many: a program goes on to the rest of its group, which reads the weights again.
    int64_t each = offsets ? std::min(rows, 2 * ceilDiv(rows, groups)) : rows, depth = 0;
    for (const Term &term : terms)
      depth += term.depth;
    Sides sides = sidesFor(/*tensorCores=*/true, each, n * together(), depth, std::min(groups, rows));
    return {sides, guardedSideOf(each, sides.m, offsets && context.warpgroups), depth};
  }

  /// Rows of tiles and steps along k.
  Sides plan() {
    Measures measures = measure();
    Sides sides = measures.sides;
    m = measures.m;
    depth = measures.depth;
    if (widensNarrowTerms(measures))
      for (Term &term : terms)
        if (int64_t to = llvm::alignTo(term.depth, sides.k); to != term.depth)
          term = {widened(op, term.a, term.depth, to, context), widened(op, term.b, term.depth, to, context), to};
    // Those that long steps do not divide come first, in a loop of their own: all others have long ones.
    auto isLong = [&](const Term &term) { return term.depth % sides.k == 0; };
    std::stable_partition(terms.begin(), terms.end(), [&](const Term &term) { return !isLong(term); });
    size_t others = llvm::count_if(terms, [&](const Term &term) { return !isLong(term); });
    for (auto [first, end] : {std::pair<size_t, size_t>(0, others), {others, terms.size()}})
      if (first != end)
        walks.push_back({first, end, stepOf(first, end, sides.k)});
    return sides;
  }

  /// A second loop along k costs a program its turns over tiles, and a narrow term's columns are no box. Where such terms are few beside the others, they take steps as
  /// long, of zeros behind their columns.
  bool widensNarrowTerms(const Measures &all) const {
    constexpr int64_t few = 8; // of the whole sum, the part that is added to it at most
    int64_t wide = 0;
    for (const Term &term : terms)
      wide += term.depth % all.sides.k == 0 ? 0 : llvm::alignTo(term.depth, all.sides.k);
    return !offsets && transposeB && few * wide <= all.depth &&
           runsAlone(/*tensorCores=*/true, all.m, sideOf(n, all.sides.n));
  }

  /// The tiles of these columns. Other columns are those of `before`.
  SmallVector<Value> launch(const Part &part, ArrayRef<Type> types, ArrayRef<Value> before) {
    int64_t tiles = ceilDiv(rows, m), across = part.length / columns;
    int64_t parts = stays()   ? workersFor(context.module, rows, groups, m, across)
                    : offsets ? shareGroups(rows, groups, m, across, alone())
                    : alone() ? shareRows(tiles, across)
                              : tiles;
    int64_t band = bandOf(parts, across);
    team = stays()                            ? teamInGroups(context.module, across)
           : !offsets && alone() && inBoxes() ? teamOf(context.module, band, across)
                                              : ProductTeam::apart;
    std::string kernel = offsets ? groupsKernel() : rowsKernel(!before.empty());
    setTeam(context.module, kernel, team);
    auto launch = stays()   ? context.launch(op, kernel, {parts})
                  : offsets ? context.launch(op, kernel, {across, parts, groups})
                            : context.launch(op, kernel, {band, across, parts / band});
    SmallVector<Value> left;
    for (const Term &term : terms)
      left.push_back(context.view(op, term.a, {rows, term.depth}));
    for (auto [w, walk] : llvm::enumerate(walks)) {
      int64_t begin = 0;
      for (size_t i = walk.first; i < walk.end; begin += terms[i++].depth) {
        launch.arg(numbered("a", i), left[i]).arg(numbered("b", i), terms[i].b);
        if (i > walk.first)
          launch.index(numbered("begin", i), begin);
      }
      launch.index(numbered("k", w), begin);
    }
    for (auto [i, b] : llvm::enumerate(beside))
      launch.arg(numbered("b", i + 1), b);
    if (offsets)
      launch.arg(offsetsName(), offsets);
    else
      launch.index("rows", rows).index("band", band);
    if (stays())
      launch.index(kWorkers, parts).index("across", across);
    else if (offsets || alone())
      launch.index("parts", parts);
    if (!offsets && alone())
      launch.index("tiles", tiles / parts);
    if (loss) {
      launch.arg("labels", context.view(op, loss->labels, {rows}));
      launch.index("first_column", part.first).index("first_tile", firstTile);
      if (loss->coordinate)
        launch.arg("coordinate", loss->coordinate).index("vocabulary", n);
      if (loss->softcap > 0)
        SoftCap::arguments(launch, loss->softcap, Float32Type::get(op->getContext()));
    }
    if (end) {
      for (auto [i, operand] : llvm::enumerate(end->operands))
        launch.arg(numbered("x", i), context.view(op, operand, {rows, n}));
      for (auto [i, numbers] : llvm::enumerate(end->numbers))
        launch.arg(numbered("n", i), context.view(op, numbers, {rows}));
    }
    ArrayRef<StringRef> names = namesOf(loss.has_value());
    for (auto [i, value] : llvm::enumerate(before))
      launch.arg(beforeOf(names[i]), value);
    for (auto [i, result] : llvm::enumerate(types))
      launch.result(end ? resultOf(i) : names[i].str(), result, before.empty() ? "" : beforeOf(names[i]));
    SmallVector<Value> results = launch.run();
    withProducts(results[0], rows * part.length * depth * together());
    return results;
  }

  /// A launch says row-wise ops that read its results where the rows of experts end.
  StringRef offsetsName() const { return end ? StringRef(tile::kRowsEnd) : "offsets"; }

  static ArrayRef<StringRef> namesOf(bool loss) {
    static constexpr StringRef ofSums[] = {"y"}, ofLosses[] = {"references", "sums", "label_logits", "exponentials"};
    return loss ? ArrayRef(ofLosses) : ArrayRef(ofSums);
  }
  /// Of those of an end.
  std::string resultOf(size_t i) const {
    auto results = static_cast<size_t>(end->results);
    return i < results ? numbered("y", i) : numbered("s", i - results);
  }
  static std::string beforeOf(StringRef result) { return result.str() + "_before"; }

  int64_t stepOf(size_t first, size_t end, int64_t most) const {
    int64_t common = 0;
    for (size_t i = first; i < end; ++i)
      common = std::gcd(common, terms[i].depth);
    return sideOf(common, most);
  }

  /// Two loops over k have no registers for the places of a loop over tiles.
  bool alone() const { return runsAlone(/*tensorCores=*/true, m, together() * columns) && walks.size() == 1; }

  /// Whether all operands can be copied in boxes: widths are multiples of those of tiles.
  bool inBoxes() const {
    constexpr int64_t together = 8; // of bf16
    return rows >= m && (transposeB || n % together == 0) &&
           llvm::all_of(terms, [](const Term &term) { return term.depth % together == 0; });
  }

  std::string nameOf(StringRef kind) const {
    std::string name =
        llvm::formatv("gemm_{0}{1}_{2}_{3}_{4}x{5}{6}", end ? "end" : "sum", kind, typeName(type.getElementType()),
                      transposeB ? "nt" : "nn", m, together() > 1 ? std::to_string(together()) + "x" : "", columns);
    for (const Walk &walk : walks)
      name += llvm::formatv("_{0}x{1}", walk.end - walk.first, walk.step);
    if (end)
      name += "_" + end->name;
    return alone() && !inBoxes() ? name + "_by_rows" : name + teamSuffix(team);
  }

  /// Whether programs take the tiles of all groups in turn.
  bool stays() const { return offsets && context.module->hasAttr(kWorkersAttr) && alone() && inBoxes(); }

  Operands declare(KernelBuilder &k) const {
    Operands operands;
    if (alone() && inBoxes())
      k.inBoxes();
    const int64_t any[] = {kDynamic, kDynamic, kDynamic};
    Type bf16 = k.builder.getBF16Type();
    for (auto [w, walk] : llvm::enumerate(walks)) {
      for (size_t i = walk.first; i < walk.end; ++i) {
        operands.a.push_back(k.buffer(numbered("a", i), bf16, Shape(any).take_front(2)));
        operands.b.push_back(k.buffer(numbered("b", i), bf16, offsets ? Shape(any) : Shape(any).take_front(2)));
        operands.begins.push_back(i > walk.first ? k.index(numbered("begin", i)) : Var());
      }
      operands.depths.push_back(k.index(numbered("k", w)));
    }
    for (size_t i = 0; i < beside.size(); ++i)
      operands.beside.push_back(k.buffer(numbered("b", i + 1), bf16, offsets ? Shape(any) : Shape(any).take_front(2)));
    return operands;
  }

  /// The tile of C at this row and column; of A there are rows up to `limit`.
  Var tile(KernelBuilder &k, const Operands &operands, Var group, Var row, Var column, Var limit) const {
    Var sum = k.tile({m, together() * columns}, k.f32());
    for (auto [walk, depth] : llvm::zip_equal(walks, operands.depths))
      sum = k.loop(0, depth, walk.step, {sum}, [&](Var at, ArrayRef<Var> sum) {
        Var a = operands.a[walk.first], b = operands.b[walk.first], begin = at.like(0);
        for (size_t i = walk.first + 1; i < walk.end; ++i) {
          Var further = ge(at, operands.begins[i]);
          a = select(further, operands.a[i], a);
          b = select(further, operands.b[i], b);
          begin = select(further, operands.begins[i], begin);
        }
        Var inside = at - begin;
        SmallVector<Index> place;
        if (group)
          place.push_back(group);
        place.append({transposeB ? column : inside, transposeB ? inside : column});
        const int64_t sizes[] = {transposeB ? columns : walk.step, transposeB ? walk.step : columns};
        Var left = k.load(a, {row, inside}, {m, walk.step}, {.limit = limit});
        Vars right = {k.load(b, place, sizes)};
        for (Var other : operands.beside)
          right.push_back(k.load(other, place, sizes));
        return Vars{dot(left, right.size() > 1 ? concat(right) : right[0], sum[0], {false, transposeB})};
      })[0];
    return sum;
  }

  /// Computes the tile at this row and column, and stores what is made of its sums.
  void finish(KernelBuilder &k, const Operands &operands, const Targets &targets, Var group, Var row, Var column,
              Var limit) const {
    Type element = type.getElementType();
    Vars numbers; // known before there is a sum
    for (Var each : targets.numbers)
      numbers.push_back(k.load(each, {row}, {m}, {.limit = limit}));
    Var sum = tile(k, operands, group, row, column, limit);
    if (!end)
      return k.store(cast(sum, element), targets.results[0], {row, column}, {.limit = limit});
    Vars products, read;
    for (int64_t i = 0; i < together(); ++i)
      products.push_back(cast(together() > 1 ? slice(sum, i * columns, columns) : sum, element));
    for (Var operand : targets.operands)
      read.push_back(k.load(operand, {row, column}, {m, columns}, {.limit = limit}));
    llvm::append_range(read, numbers);
    Var number = targets.sums.empty() ? Var() : column / static_cast<double>(columns);
    // All stores behind all formulas: they are one loop over the elements of the tile.
    Vars made = end->emit(k, products, read);
    for (auto [tile, target] : llvm::zip(made, targets.results))
      k.store(tile, target, {row, column}, {.limit = limit});
    for (auto [tile, target] : llvm::zip_equal(ArrayRef(made).drop_front(targets.results.size()), targets.sums))
      k.store(tile, target, {number, row}, {.limit = limit});
    k.approximate(); // of products of bf16
  }

  Targets declareTargets(KernelBuilder &k) const {
    auto matrix = [&](const std::string &name) { return k.buffer(name, type.getElementType(), {kDynamic, kDynamic}); };
    Targets targets;
    if (!end) {
      targets.results.push_back(matrix("y"));
      return targets;
    }
    for (size_t i = 0; i < end->operands.size(); ++i)
      targets.operands.push_back(matrix(numbered("x", i)));
    for (size_t i = 0; i < end->numbers.size(); ++i)
      targets.numbers.push_back(k.buffer(numbered("n", i), k.f32(), {kDynamic}));
    for (int64_t i = 0; i < end->results; ++i)
      targets.results.push_back(matrix(numbered("y", i)));
    for (int64_t i = 0; i < end->sums; ++i)
      targets.sums.push_back(k.buffer(numbered("s", i), k.f32(), {kDynamic, kDynamic}));
    return targets;
  }

  /// Formulas of row-wise ops round as they do in kernels of their own (RowsKernels.cpp).
  std::string kernelOf(StringRef kind, ArrayRef<StringRef> grid,
                       llvm::function_ref<void(KernelBuilder &k)> body) const {
    std::string name = context.kernel(nameOf(kind), grid, body);
    if (end)
      context.module.lookupSymbol(name)->setAttr(tile::kRoundsEachAttr, context.rewriter.getUnitAttr());
    return name;
  }

  /// `behind`: other columns are there already.
  std::string rowsKernel(bool behind) const {
    if (loss)
      return lossKernel(behind);
    return kernelOf("", {"row", "column", "outer"}, [&](KernelBuilder &k) {
      Operands operands = declare(k);
      Targets targets = declareTargets(k);
      Var rows = k.index("rows");
      Var part = k.program(2) * k.index("band") + k.program(0), column = k.program(1) * columns;
      eachTile(k, part, m, alone(), [&](Var row) { finish(k, operands, targets, {}, row, column, rows); });
    });
  }

  std::string lossKernel(bool behind) const {
    bool part = static_cast<bool>(loss->coordinate);
    bool capped = loss->softcap > 0;
    std::string kind = llvm::formatv("_{0}{1}{2}{3}", loss->exponentials ? "softmax" : "loss", part ? "_part" : "",
                                     SoftCap::suffix(capped), behind ? "_behind" : "");
    return context.kernel(nameOf(kind), {"row", "column", "outer"}, [&](KernelBuilder &k) {
      Operands operands = declare(k);
      SmallVector<Var> results;
      for (bool before : {true, false})
        for (auto [i, name] : llvm::enumerate(namesOf(true).take_front(loss->exponentials ? 4 : 3))) {
          const int64_t any[] = {kDynamic, kDynamic};
          Type element = i == 3 ? Type(k.builder.getBF16Type()) : k.f32();
          if (!before)
            results.push_back(k.buffer(name, element, Shape(any).take_front(i == 2 ? 1 : 2)));
          else if (behind)
            k.buffer(beforeOf(name), element, Shape(any).take_front(i == 2 ? 1 : 2));
        }
      Var labels = k.buffer("labels", k.i32(), {kDynamic}), rows = k.index("rows");
      Var outer = k.program(2) * k.index("band") + k.program(0), number = k.index("first_tile") + k.program(1);
      Var column = k.index("first_column") + k.program(1) * columns, word = cast(column, k.i32());
      SoftCap cap = capped ? SoftCap(k, k.f32(), /*approximate=*/true) : SoftCap();
      if (part)
        word = word + k.at(k.buffer("coordinate", k.i32(), {1}), {0}) * cast(k.index("vocabulary"), k.i32());
      eachTile(k, outer, m, alone(), [&](Var row) {
        // Where the label of a row is in this tile: known before there is a sum.
        Var label = k.load(labels, {row}, {m}, {.limit = rows}) - word;
        Var here = both(ge(label, 0), lt(label, static_cast<double>(columns)));
        Var place = select(here, k.iota({m}, 0) + cast(row, k.i32()), -1);
        Var logits = cap.of(cast(tile(k, operands, {}, row, column, rows), type.getElementType())),
            top = maximum(logits, 1);
        k.store(pick(logits, label), results[2], {0}, {.limit = rows, .rows = place});
        Var reference = top - min(max(top, -kFarLogit), kFarLogit);
        Var exponentials = exp(logits - expand(reference, 1, columns)), total = sum(exponentials, 1);
        if (loss->exponentials)
          k.store(cast(cap.grad(logits, exponentials), k.builder.getBF16Type()), results[3], {row, column},
                  {.limit = rows});
        k.store(reference, results[0], {number, row});
        k.store(total, results[1], {number, row});
      });
      k.approximate(); // of products of bf16
    });
  }

  /// The rows of a group are dealt out to `parts` programs, as they are found on the device.
  std::string groupsKernel() const {
    SmallVector<StringRef, 3> grid = {"column", "part", "group"};
    if (stays())
      grid = {"worker"};
    return kernelOf("_groups", grid, [&](KernelBuilder &k) {
      Operands operands = declare(k);
      Targets targets = declareTargets(k);
      Var starts = k.buffer(offsetsName(), k.i32(), {kDynamic});
      auto compute = [&](Var group, Var row, Var last, Var column) {
        finish(k, operands, targets, group, row, column, last);
      };
      if (stays())
        return eachGroupTile(k, starts, m, columns, team, compute);
      Var column = k.program(0) * columns, part = k.program(1), group = k.program(2);
      auto boundary = [&](Var at) { return cast(k.at(starts, {at}), k.builder.getIndexType()); };
      Var last = boundary(group + 1);
      eachTile(k, boundary(group), last, part, m, alone(),
               [&](Var row) { finish(k, operands, targets, group, row, column, last); });
    });
  }

  Operation *op;
  SmallVector<Term> terms;
  Value offsets;
  bool transposeB;
  std::optional<LossReads> loss;
  const ProductEnd *end;
  SmallVector<Value> beside; ///< with an end: further matrices that A is multiplied by
  RankedTensorType type;
  OutlineContext &context;
  int64_t n, rows, groups, m = 0, columns = 0, depth = 0, firstTile = 0;
  SmallVector<Walk, 2> walks;
  ProductTeam team = ProductTeam::apart;
};

} // namespace

Value sumInOneKernel(Operation *op, ValueRange as, ValueRange bs, Value offsets, bool transposeB, RankedTensorType type,
                     OutlineContext &context) {
  OneSum sum(op, as, bs, offsets, transposeB, type, context);
  return context.gpu && sum.fits() ? sum.run() : Value();
}

SmallVector<Value> productWithEnd(Operation *op, Value a, ValueRange bs, Value offsets, bool transposeB,
                                  const ProductEnd &end, OutlineContext &context) {
  Shape sizes = shapeOf(bs[0]).take_back(2);
  int64_t k = sizes[transposeB ? 1 : 0], n = sizes[transposeB ? 0 : 1];
  auto type = RankedTensorType::get({product(shapeOf(a)) / k, n}, BFloat16Type::get(op->getContext()));
  OneSum products(op, a, bs, offsets, transposeB, type, context, {}, &end);
  return products.fitsEnd() ? products.runForEnd() : SmallVector<Value>();
}

std::optional<LossTiles> lossTilesOf(Operation *op, const Product &p, RankedTensorType type, const LossReads &reads,
                                     OutlineContext &context) {
  OneSum product(op, p.a, p.b, {}, p.transposeB, type, context, reads);
  if (context.ownProducts() && product.whyNot().empty())
    return product.runForLoss();
  return std::nullopt;
}

std::string whyNoLossTiles(Operation *op, Value x, Value weight, bool transposed, bool ownProducts) {
  if (!ownProducts)
    return "products are not kernels of a GPU";
  OutlineContext context(op->getParentOfType<ModuleOp>());
  auto type = RankedTensorType::get({1, shapeOf(weight)[transposed ? 0 : 1]}, Float32Type::get(op->getContext()));
  return OneSum(op, x, weight, {}, transposed, type, context).whyNot();
}

Value sumInParts(Operation *op, const Product &p, RankedTensorType type, OutlineContext &context) {
  return sumInParts(op, p.a, p.b, p, type, context);
}

Value sumInParts(Operation *op, ValueRange as, ValueRange bs, const Product &p, RankedTensorType type,
                 OutlineContext &context) {
  Type element = tensorType(as.front()).getElementType();
  bool tensorCores = element.isBF16();
  int64_t m = p.aColumns, n = p.bColumns, k = product(shapeOf(p.a)) / m;
  bool split = as.size() > 1; // of f32, whose sums are as short as they need be
  int64_t parts = std::max(sumsAlongK(tensorCores, m, n, k), split ? ceilDiv(k, kMostSplit) : 1);
  if (!context.gpu || !p.transposeA || p.transposeB || p.apart || parts < 2 || (p.c && p.c.getType() != type) ||
      tensorType(bs.front()).getElementType() != element || !(tensorCores || element.isF32()) || !isContiguous(p.a) ||
      !isContiguous(p.b))
    return {};
  Sides sides = sidesFor(tensorCores, m, n, ceilDiv(k, parts), parts);
  int64_t rows = sideOf(m, sides.m), columns = sideOf(n, sides.n);
  // Widths that no tile divides are cut by the kernels of whole sums.
  constexpr int64_t narrowest = 8; // columns of a product on tensor cores
  auto fits = [&](int64_t length, int64_t side) {
    return side % kGrain == 0 || (side == length && (!tensorCores || side % narrowest == 0));
  };
  if (!fits(m, rows) || !fits(n, columns))
    return {};
  bool alone = runsAlone(tensorCores, rows, columns);
  ProductTeam team = alone ? teamAcross(context.module, n / columns) : ProductTeam::apart;
  std::string name = llvm::formatv("gemm_parts_{0}_{1}x{2}x{3}{4}{5}", typeName(element), rows, columns, sides.k,
                                   split ? "_sum" + std::to_string(as.size()) : "", teamSuffix(team));
  std::string kernel = context.kernel(name, {"column", "row", "part"}, [&](KernelBuilder &t) {
    Vars a, b;
    for (size_t i = 0; i < as.size(); ++i) {
      a.push_back(t.buffer(split ? numbered("a", i) : "a", element, {kDynamic, kDynamic}));
      b.push_back(t.buffer(split ? numbered("b", i) : "b", element, {kDynamic, kDynamic}));
    }
    Var y = t.buffer("y", t.f32(), {kDynamic, kDynamic, kDynamic}), depth = t.index("k"), length = t.index("length");
    Var column = t.program(0) * columns, part = t.program(2), begin = part * length;
    // A multiple of the step, where there are further tokens. Terms stand one behind the other.
    Var end = split ? length * static_cast<double>(as.size()) : min(begin + length, depth);
    if (alone)
      t.inBoxes(); // whose widths are multiples of the grain
    eachTile(t, t.program(1), rows, alone, [&](Var row) {
      Var from = split ? begin.like(0) : begin, zero = t.tile({rows, columns}, t.f32());
      Vars sum = t.loop(from, end, sides.k, {zero}, [&](Var at, ArrayRef<Var> sum) {
        Var left = a.front(), right = b.front(), first = at.like(0);
        for (size_t i = 1; i < as.size(); ++i) {
          Var term = length * static_cast<double>(i), further = ge(at, term);
          left = select(further, a[i], left);
          right = select(further, b[i], right);
          first = select(further, term, first);
        }
        Var place = split ? begin + (at - first) : at;
        AccessOptions ofLeft{.limit = split ? depth : t.size(left, 0)},
            ofRight{.limit = split ? depth : t.size(right, 0)};
        return Vars{dotTA(t.load(left, {place, row}, {sides.k, rows}, ofLeft),
                          t.load(right, {place, column}, {sides.k, columns}, ofRight), sum[0])};
      });
      t.store(sum[0], y, {part, row, column});
    });
  });
  setTeam(context.module, kernel, team);
  int64_t length = llvm::alignTo(ceilDiv(k, parts), sides.k);
  parts = ceilDiv(k, length);
  int64_t down = m / rows, programs = alone ? shareRows(down, n / columns * parts, /*most=*/2) : down;
  auto launch = context.launch(op, kernel, {n / columns, programs, parts});
  for (auto [i, a, b] : llvm::enumerate(as, bs)) {
    launch.arg(split ? numbered("a", i) : "a", context.view(op, a, {k, m}));
    launch.arg(split ? numbered("b", i) : "b", context.view(op, b, {k, n}));
  }
  launch.index("k", k).index("length", length);
  if (alone)
    launch.index("parts", programs).index("tiles", down / programs);
  int64_t products = m * n * k * static_cast<int64_t>(as.size());
  Value partials = withProducts(launch.result("y", type.clone({parts, m, n})).run()[0], products);
  Value addend = p.c ? context.view(op, p.c, {m, n}) : Value();
  return context.view(op, sumOverRows(op, partials, context, addend), type.getShape());
}

//===- Gradients of experts' weights ------------------------------------------------------------------------------===//

namespace {

/// dw[g] = x_g^T dy_g, m x n.
struct WeightGradient {
  WeightGradient(MoeGroupedLinearGradWeightOp op, unsigned i)
      : m(shapeOf(op.getX()).back()), n(shapeOf(op.getDys()[i]).back()), rows(product(shapeOf(op.getX())) / m),
        groups(shapeOf(op.getOffsets())[0] - 1),
        sides(sidesFor(/*tensorCores=*/true, m, n, ceilDiv(rows, groups), groups)) {
    sides = {sideOf(m, sides.m), sideOf(n, sides.n), guardedSideOf(rows, sides.k)};
  }
  bool alone() const { return runsAlone(/*tensorCores=*/true, sides.m, sides.n); }
  int64_t m, n, rows, groups;
  Sides sides;
};

} // namespace

RankedTensorType squaresOfWeights(MoeGroupedLinearGradWeightOp op, unsigned i, const OutlineContext &context) {
  auto type = tensorType(op.getDws()[i]);
  Value x = op.getX(), dy = op.getDys()[i];
  Type element = type.getElementType();
  if (!context.gpu || !op.getSums().empty() || !(element.isF32() || element.isBF16()) || !isBf16(x) || !isBf16(dy) ||
      shapeOf(x).back() % kGrain != 0 || shapeOf(dy).back() % kGrain != 0 || !isContiguous(x) || !isContiguous(dy))
    return {};
  WeightGradient gradient(op, i);
  return RankedTensorType::get({gradient.n / gradient.sides.n, gradient.groups, gradient.m},
                               Float32Type::get(op.getContext()));
}

SmallVector<Value> weightsWithSquares(MoeGroupedLinearGradWeightOp op, unsigned i, OutlineContext &context) {
  WeightGradient gradient(op, i);
  auto [m, n, depth] = gradient.sides;
  bool alone = gradient.alone(), boxes = alone && gradient.rows >= depth;
  Type element = tensorType(op.getDws()[i]).getElementType();
  ProductTeam team = boxes ? teamAcross(context.module, gradient.n / n) : ProductTeam::apart;
  std::string name = llvm::formatv("gemm_weights_squares_{0}_{1}x{2}x{3}{4}{5}", typeName(element), m, n, depth,
                                   alone && !boxes ? "_by_rows" : "", teamSuffix(team));
  std::string kernel = context.kernel(name, {"column", "row", "group"}, [&](KernelBuilder &k) {
    Type bf16 = k.builder.getBF16Type();
    Var a = k.buffer("a", bf16, {kDynamic, kDynamic}), b = k.buffer("b", bf16, {kDynamic, kDynamic});
    Var y = k.buffer("y", element, {kDynamic, kDynamic, kDynamic});
    Var squares = k.buffer("squares", k.f32(), {kDynamic, kDynamic, kDynamic});
    Var offsets = k.buffer("offsets", k.i32(), {kDynamic});
    if (boxes)
      k.inBoxes();
    eachWeightTile(
        k, gradient.sides, alone, a, b, offsets, [&](Indices) { return k.tile({m, n}, k.f32()); },
        [&](Var left, Var right, Var sum) { return dotTA(left, right, sum); },
        [&](Indices at, Var sum) {
          Var stored = cast(sum, element), kept = cast(stored, k.f32());
          k.store(stored, y, at);
          k.store(braid::sum(kept * kept, 1), squares, {k.program(0), at[0], at[1]});
        });
  });
  setTeam(context.module, kernel, team);
  int64_t down = gradient.m / m, across = gradient.n / n, rows = gradient.rows, groups = gradient.groups;
  int64_t parts = alone ? shareRows(down, across * groups, /*most=*/2) : down;
  Value left = context.view(op, op.getX(), {rows, gradient.m}),
        right = context.view(op, op.getDys()[i], {rows, gradient.n});
  auto launch = context.launch(op, kernel, {across, parts, groups});
  launch.arg("a", left).arg("b", right).arg("offsets", op.getOffsets());
  launch.result("y", op.getDws()[i].getType()).result("squares", squaresOfWeights(op, i, context));
  if (alone)
    launch.index("parts", parts).index("tiles", down / parts);
  SmallVector<Value> results = launch.run();
  withProducts(results[0], rows * gradient.m * gradient.n);
  return results;
}

} // namespace braid
