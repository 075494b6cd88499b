//===- RowsKernels.cpp - one kernel per cluster of row-wise ops and their gradients -------------------------------===//
//
//   program p: for its rows, R at a time:  load token tiles, emit every op, store what is used outside
//   a cotangent of a whole operand: summed over the program's rows into partials[p], a second launch adds the partials
//   in order; the number of programs follows from the shape alone, so the sum is the same on every machine.
//
// Which ops share a kernel depends on what stands near them, so on the order of slices; what they compute does not: every
// product and sum is rounded for itself (no fma of two ops, nor of one, which would have to know its neighbours), and
// rows are summed in blocks that follow from the op that sums.
//
// When every op is elementwise on one shape, elements are rows without features and any shape is one long vector.
//
// Rows that experts were sent end where their offsets say; programs share those, what stands behind is not touched.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/analysis/ExpertRows.h"
#include "passes/autodiff/TileGradient.h"
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/RowsCluster.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace braid {
namespace {

/// Elements of a row-block that should stay near the core together: half of a 32 KiB L1 in f32.
constexpr int64_t kBlockElements = 4096;
constexpr int64_t kFlatRows = 1024, kMaxRows = 32;

/// Rows of `elements` features each.
int64_t rowsOfBlock(int64_t elements) {
  return std::clamp<int64_t>(llvm::bit_floor<uint64_t>(kBlockElements / std::max<int64_t>(elements, 1) + 1), 1,
                             kMaxRows);
}

struct Input {
  Value value;
  bool whole;
  std::string name;
};
struct Output {
  OpResult result;
  bool piece;
  std::string name;
};

class RowsKernel {
public:
  RowsKernel(ArrayRef<Operation *> cluster, OutlineContext &context) : cluster(cluster), context(context) { collect(); }
  LogicalResult run();

private:
  void collect();
  std::string key();
  LogicalResult write(KernelBuilder &k);
  LogicalResult emitBlock(KernelBuilder &k, Var first, Var limit, MutableArrayRef<Var> sums);
  void leaveOutPadding(KernelBuilder &k, Operation *before, Var first, Var limit);
  SmallVector<int64_t> features(Value v) {
    Shape shape = shapeOf(v);
    return flat ? SmallVector<int64_t>() : SmallVector<int64_t>(shape.drop_front(std::min<size_t>(2, shape.size())));
  }
  SmallVector<int64_t> bufferShape(Value v) {
    SmallVector<int64_t> shape = features(v);
    shape.insert(shape.begin(), kDynamic);
    return shape;
  }
  SmallVector<int64_t> tileShape(Value v) {
    SmallVector<int64_t> shape = features(v);
    shape.insert(shape.begin(), rows);
    return shape;
  }
  Value view(Value v) {
    SmallVector<int64_t> shape = features(v);
    shape.insert(shape.begin(), product(shapeOf(v)) / product(shape));
    return context.view(cluster.back(), v, shape);
  }

  ArrayRef<Operation *> cluster;
  OutlineContext &context;
  bool flat = false, positions = false, sums = false;
  int64_t rows = 1, totalRows = 1, tokens = 1;
  Value ends; // offsets of experts, of each of whose rows the kernel has `rowsOfEach`
  int64_t rowsOfEach = 1;
  SmallVector<Input> inputs;
  SmallVector<Output> outputs;
  // While the kernel is written:
  llvm::DenseMap<Value, Var> buffers, wholes;
  SmallVector<Var> outputBuffers;
  Var tokensVar;
};

bool usesPositions(Operation *op) {
  auto grad = dyn_cast<RowsGradOp>(op);
  StringRef name = grad ? grad.getOp() : op->getName().getStringRef();
  return name == RopeOp::getOperationName() || name == PositionRateOp::getOperationName() ||
         name == PositionAngleOp::getOperationName();
}

void RowsKernel::collect() {
  llvm::SmallPtrSet<Operation *, 8> members(cluster.begin(), cluster.end());
  ArrayRef<int64_t> first = shapeOf(cluster.front()->getOperand(0));
  flat = llvm::all_of(cluster, [&](Operation *op) { return isElementwise(op) && shapeOf(op->getOperand(0)) == first; });
  llvm::DenseSet<std::pair<Value, unsigned>> seen;
  int64_t elements = 0, counts[2] = {0, 0};
  for (Operation *op : cluster) {
    positions |= usesPositions(op);
    for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
      bool whole = rowsOperandKind(op, i) != TokenKind::token;
      if (!whole)
        elements += product(features(operand));
      if (operand.getDefiningOp() && members.contains(operand.getDefiningOp()))
        continue;
      if (seen.insert({operand, whole ? 1u : 0u}).second)
        inputs.push_back({operand, whole, (whole ? "w" : "x") + std::to_string(counts[whole]++)});
    }
  }
  for (Operation *op : cluster)
    for (OpResult result : op->getResults()) {
      bool piece = rowsResultKind(op, result.getResultNumber()) == TokenKind::piece;
      if (!piece)
        elements += product(features(result));
      sums |= piece;
      if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !members.contains(user); }))
        outputs.push_back({result, piece, (piece ? "sum" : "y") + std::to_string(outputs.size())});
    }
  rows = flat ? kFlatRows : rowsOfBlock(elements);
  for (Operation *op : cluster)
    if (int64_t summed = rowsOfSum(op))
      rows = summed; // FuseRows: the same for all
  ArrayRef<int64_t> dims = flat ? first : rowDims(cluster.front());
  totalRows = product(dims);
  tokens = dims.size() > 1 ? dims[1] : 1;
  for (Input &input : inputs)
    if (!ends && !input.whole && !sums && dims.size() > 1)
      ends = expertOffsets(input.value);
  if (ends)
    rowsOfEach = totalRows / (dims[0] * dims[1]);
}

/// Everything the code depends on.
std::string RowsKernel::key() {
  std::string text =
      rowsText(cluster, llvm::map_to_vector(outputs, [](Output &output) -> Value { return output.result; }),
               [&](Value v) { return features(v); });
  text += (flat ? "flat" : "rows") + std::to_string(rows);
  if (ends)
    text += tile::kRowsEnd.str() + std::to_string(rowsOfEach);
  return "rows_" + rowsName(cluster, text);
}

FailureOr<SmallVector<Value>> emitGradient(RowsGradOp op, TileEmitter &e, ValueRange tiles) {
  // The op itself, detached, emits the forward on these very tiles.
  SmallVector<Type> types(op.getCotangents().getTypes());
  OperationState state(op.getLoc(), op.getOp());
  state.addOperands(op.getInputs());
  state.addTypes(types);
  state.addAttributes(op.getOpAttributes().getValue());
  Operation *forward = Operation::create(state);
  auto iface = cast<RowsOpInterface>(forward);
  ValueRange inputTiles = tiles.take_front(op.getInputs().size()), dys = tiles.drop_front(op.getInputs().size());
  Block *block = e.builder.getInsertionBlock();
  auto point = e.builder.getInsertionPoint();
  Operation *before = point == block->begin() ? nullptr : &*std::prev(point);
  SmallVector<Value> results;
  iface.emitTile(e, inputTiles, results);
  forward->destroy();
  SmallVector<Operation *> emitted;
  for (auto it = before ? std::next(before->getIterator()) : block->begin(); it != e.builder.getInsertionPoint(); ++it)
    emitted.push_back(&*it);
  SmallVector<Value> wanted = llvm::map_to_vector(op.getWanted(), [&](int64_t i) { return inputTiles[i]; });
  auto cotangents = emitTileGradient(e.builder, op.getLoc(), emitted, results, dys, wanted);
  if (failed(cotangents))
    return failure();
  // Equal operands share one tile, whose cotangent is that of both: it goes to the first.
  for (auto [i, cotangent, tile] : llvm::enumerate(*cotangents, wanted))
    if (!cotangent || llvm::is_contained(ArrayRef(wanted).take_front(i), tile))
      cotangent = e.like(tile, 0);
  return cotangents;
}

/// Rows past the limit read zeros, of which a division makes NaN, also where the cotangent is 0: sums over rows that follow
/// `before` leave them out.
void RowsKernel::leaveOutPadding(KernelBuilder &k, Operation *before, Var first, Var limit) {
  Block *block = k.builder.getInsertionBlock();
  auto end = k.builder.getInsertionPoint();
  if (llvm::none_of(llvm::make_range(block->begin(), end),
                    [](Operation &op) { return isa<arith::DivFOp, math::LogOp, math::RsqrtOp>(op); }))
    return;
  SmallVector<tile::ReduceOp> sums;
  for (auto it = before ? std::next(before->getIterator()) : block->begin(); it != end; ++it) {
    auto reduce = dyn_cast<tile::ReduceOp>(*it);
    if (reduce && reduce.getAxis() == 0 && cast<VectorType>(reduce.getSource().getType()).getDimSize(0) == rows)
      sums.push_back(reduce);
  }
  OpBuilder::InsertionGuard guard(k.builder);
  for (tile::ReduceOp reduce : sums) {
    k.builder.setInsertionPoint(reduce);
    auto shape = cast<VectorType>(reduce.getSource().getType()).getShape();
    Var counts = lt(k.iota(Shape(shape), 0), splat(cast(limit - first, k.i32()), Shape(shape)));
    Value counted = select(counts, k.wrap(reduce.getSource()), 0.0);
    reduce.getSourceMutable().assign(counted);
  }
}

/// One block of rows. `sums`: running sums of the piece outputs, updated.
LogicalResult RowsKernel::emitBlock(KernelBuilder &k, Var first, Var limit, MutableArrayRef<Var> running) {
  Var tokenIndex;
  if (positions)
    tokenIndex = (k.iota({rows}, 0) + cast(first % tokensVar, k.i32())) % cast(tokensVar, k.i32());
  TileEmitter e(k.builder, k.builder.getLoc(), rows, tokenIndex);
  llvm::DenseMap<Value, Value> tiles;
  for (Input &input : inputs) {
    if (input.whole)
      continue;
    SmallVector<Index> at = {first};
    at.append(features(input.value).size(), Index(0));
    tiles[input.value] = k.load(buffers[input.value], at, tileShape(input.value), {.limit = limit});
  }
  size_t nextSum = 0, nextOutput = 0;
  Block *block = k.builder.getInsertionBlock();
  for (Operation *op : cluster) {
    auto point = k.builder.getInsertionPoint();
    Operation *before = point == block->begin() ? nullptr : &*std::prev(point);
    SmallVector<Value> operands;
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      operands.push_back(rowsOperandKind(op, i) == TokenKind::token ? tiles.lookup(operand)
                                                                    : Value(wholes.lookup(operand)));
    FailureOr<SmallVector<Value>> results = emitRowsOp(op, e, operands);
    if (failed(results))
      return failure();
    if (isa<RowsGradOp>(op) && llvm::any_of(op->getResults(), [&](OpResult r) {
          return rowsResultKind(op, r.getResultNumber()) == TokenKind::piece;
        }))
      leaveOutPadding(k, before, first, limit);
    for (auto [result, tile] : llvm::zip_equal(op->getResults(), *results)) {
      Type element = tensorType(result).getElementType();
      bool piece = rowsResultKind(op, result.getResultNumber()) == TokenKind::piece;
      Value rounded = isa<FloatType>(element) ? e.cast(tile, element) : tile;
      if (!piece)
        tiles[result] = rounded;
      if (nextOutput == outputs.size() || outputs[nextOutput].result != result)
        continue;
      Var buffer = outputBuffers[nextOutput++];
      if (piece) {
        running[nextSum] = running[nextSum] + k.wrap(rounded);
        ++nextSum;
        continue;
      }
      SmallVector<Index> at = {first};
      at.append(features(result).size(), Index(0));
      k.store(k.wrap(rounded), buffer, at, {.limit = limit});
    }
  }
  return success();
}

/// A sum over rows that is added up over heads, or features, too, is so once behind the loop: until then each element of a row adds to its own, and
/// a GPU's threads need not meet. Zeros to begin with have no order.
static void addHeadsLater(KernelBuilder &k, Vars &totals) {
  auto loop = Value(totals.front()).getDefiningOp<scf::ForOp>();
  OpBuilder b(loop);
  auto sumOf = [&](Value v) {
    auto sum = v.getDefiningOp<tile::ReduceOp>();
    return sum && sum.getKind() == tile::ReduceKind::add && sum->getBlock() == loop.getBody() ? sum : nullptr;
  };
  for (auto [i, yielded] : llvm::enumerate(loop.getYieldedValues())) {
    auto total = yielded.getDefiningOp<arith::AddFOp>();
    BlockArgument carried = loop.getRegionIterArg(i);
    if (!total || total.getLhs() != carried || !carried.hasOneUse() || !total->hasOneUse() ||
        !matchPattern(loop.getInitArgs()[i], m_AnyZeroFloat()))
      continue;
    tile::ReduceOp heads = sumOf(total.getRhs()), rows = heads ? sumOf(heads.getSource()) : nullptr;
    if (!rows || rows.getAxis() != 0 || !heads->hasOneUse())
      continue;
    Value each = rows.getResult();
    Type type = each.getType();
    b.setInsertionPoint(loop);
    Value zero = arith::ConstantOp::create(b, loop.getLoc(), b.getZeroAttr(type));
    loop.getInitArgsMutable()[i].assign(zero);
    carried.setType(type);
    total.getRhsMutable().assign(each);
    total.getResult().setType(type);
    OpResult result = loop->getResult(i);
    result.setType(type);
    totals[i] = k.wrap(tile::ReduceOp::create(k.builder, heads.getLoc(), heads.getResult().getType(), result,
                                              heads.getAxis(), heads.getKind()));
    heads.erase();
  }
}

LogicalResult RowsKernel::write(KernelBuilder &k) {
  for (Input &input : inputs) {
    Type element = tensorType(input.value).getElementType();
    if (!input.whole) {
      buffers[input.value] = k.buffer(input.name, element, bufferShape(input.value));
      continue;
    }
    Shape shape = shapeOf(input.value);
    Var buffer = k.buffer(input.name, element, shape);
    Var tile = k.load(buffer, SmallVector<Index>(shape.size(), Index(0)), shape);
    // Widened here, so that sums over rows are not rounded to the operand's type on the way.
    wholes[input.value] = isa<FloatType>(element) ? cast(tile, computeType(element)) : tile;
  }
  for (Output &output : outputs) {
    SmallVector<int64_t> shape(shapeOf(output.result));
    shape.insert(shape.begin(), kDynamic);
    outputBuffers.push_back(k.buffer(output.name, tensorType(output.result).getElementType(),
                                     output.piece ? shape : bufferShape(output.result)));
  }
  Var limit = k.index("rows");
  if (positions)
    tokensVar = k.index("tokens");
  if (ends) {
    LogicalResult status = success();
    limit = min(limit, k.rowsEnd() * rowsOfEach);
    k.share(limit, rows, [&](Var first) { status = emitBlock(k, first, limit, {}); });
    return status;
  }
  if (!sums)
    return emitBlock(k, k.program(0) * rows, limit, {});

  // span: rows of a program, a multiple of R.
  Var span = k.index("span"), first = k.program(0) * span;
  Vars zeros;
  for (Output &output : outputs)
    if (output.piece)
      zeros.push_back(k.tile(shapeOf(output.result), tensorType(output.result).getElementType()));
  LogicalResult status = success();
  Vars totals = k.loop(first, min(first + span, limit), rows, zeros, [&](Var row, ArrayRef<Var> carried) {
    Vars running(carried);
    status = emitBlock(k, row, limit, running);
    return running;
  });
  if (failed(status))
    return failure();
  if (context.gpu)
    addHeadsLater(k, totals);
  size_t next = 0;
  for (auto [output, buffer] : llvm::zip_equal(outputs, outputBuffers)) {
    if (!output.piece)
      continue;
    SmallVector<Index> at = {k.program(0)};
    at.append(shapeOf(output.result).size(), Index(0));
    k.store(totals[next++], buffer, at);
  }
  return success();
}

LogicalResult RowsKernel::run() {
  Operation *last = cluster.back();
  if (outputs.empty()) { // nobody reads it
    for (Operation *op : llvm::reverse(cluster))
      context.rewriter.eraseOp(op);
    return success();
  }
  LogicalResult status = success();
  std::string kernel = context.kernel(key(), {"rows"}, [&](KernelBuilder &k) { status = write(k); });
  context.module.lookupSymbol(kernel)->setAttr(tile::kRoundsEachAttr, context.rewriter.getUnitAttr());
  if (failed(status))
    return failure();
  int64_t blocks = ceilDiv(totalRows, rows);
  int64_t programs = sums   ? std::min(blocks, rowSumPrograms(context))
                     : ends ? std::min(blocks, kSharePrograms)
                            : blocks;
  int64_t span = ceilDiv(blocks, programs) * rows;
  if (sums)
    programs = ceilDiv(totalRows, span);

  SmallVector<Value> views = llvm::map_to_vector(inputs, [&](Input &i) { return i.whole ? i.value : view(i.value); });
  auto launch = context.launch(last, kernel, {programs});
  for (auto [input, value] : llvm::zip_equal(inputs, views))
    launch.arg(input.name, value);
  for (Output &output : outputs) {
    SmallVector<int64_t> shape = output.piece ? SmallVector<int64_t>(shapeOf(output.result)) : features(output.result);
    shape.insert(shape.begin(), output.piece ? programs : totalRows);
    launch.result(output.name, tensorType(output.result).clone(shape));
  }
  launch.index("rows", totalRows);
  if (positions)
    launch.index("tokens", tokens);
  if (sums)
    launch.index("span", span);
  if (ends)
    launch.arg(tile::kRowsEnd, ends).index("programs", programs);
  SmallVector<Value> results = launch.run();
  for (auto [output, value] : llvm::zip_equal(outputs, results)) {
    if (output.piece)
      value = sumOverRows(last, value, context);
    context.rewriter.replaceAllUsesWith(output.result, context.view(last, value, shapeOf(output.result)));
  }
  for (Operation *op : llvm::reverse(cluster))
    context.rewriter.eraseOp(op);
  return success();
}

} // namespace

FailureOr<SmallVector<Value>> emitRowsOp(Operation *op, TileEmitter &e, ValueRange tiles) {
  if (auto grad = dyn_cast<RowsGradOp>(op))
    return emitGradient(grad, e, tiles);
  SmallVector<Value> results;
  cast<RowsOpInterface>(op).emitTile(e, tiles, results);
  return results;
}

LogicalResult emitRowsOps(ArrayRef<Operation *> ops, TileEmitter &e, llvm::DenseMap<Value, Value> &known) {
  for (Operation *op : ops) {
    SmallVector<Value> inputs = llvm::map_to_vector(op->getOperands(), [&](Value v) { return known.lookup(v); });
    FailureOr<SmallVector<Value>> results = emitRowsOp(op, e, inputs);
    if (failed(results))
      return failure();
    for (auto [result, tile] : llvm::zip_equal(op->getResults(), *results))
      known[result] = e.cast(tile, tensorType(result).getElementType());
  }
  return success();
}

std::string rowsText(ArrayRef<Operation *> cluster, ArrayRef<Value> stored,
                     llvm::function_ref<SmallVector<int64_t>(Value)> features) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::DenseMap<Value, int64_t> number;
  auto describe = [&](Value v, bool whole) {
    auto [it, isNew] = number.try_emplace(v, number.size());
    os << '%' << it->second;
    if (!isNew)
      return;
    os << ':';
    llvm::interleave(whole ? SmallVector<int64_t>(shapeOf(v)) : features(v), os, "x");
    os << tensorType(v).getElementType();
  };
  for (Operation *op : cluster) {
    os << op->getName() << '(';
    for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
      bool whole = rowsOperandKind(op, i) != TokenKind::token;
      os << (whole ? 'w' : 'x');
      describe(operand, whole);
    }
    os << ')';
    for (OpResult result : op->getResults())
      describe(result, rowsResultKind(op, result.getResultNumber()) == TokenKind::piece);
    SmallVector<NamedAttribute> attributes(op->getAttrDictionary().getValue());
    llvm::erase_if(attributes, [](NamedAttribute a) { return a.getName() == kClusterAttr; });
    os << DictionaryAttr::get(op->getContext(), attributes) << ';';
  }
  for (Value value : stored)
    os << '%' << number.lookup(value);
  return text;
}

std::string rowsName(ArrayRef<Operation *> cluster, StringRef text) {
  constexpr size_t most = 4;
  std::string name;
  for (Operation *op : cluster.take_front(most)) {
    auto grad = dyn_cast<RowsGradOp>(op);
    StringRef part = grad ? grad.getOp() : op->getName().getStringRef();
    part.consume_front("braid.");
    part.consume_front("moe.");
    name += part.str() + (grad ? "_grad_" : "_");
  }
  if (cluster.size() > most)
    name += "and_" + std::to_string(cluster.size() - most) + "_";
  return name + llvm::utohexstr(llvm::xxh3_64bits(text) & 0xffffffff, /*LowerCase=*/true);
}

int64_t rowsOfSum(Operation *op) {
  bool sums = false;
  int64_t widest = 1;
  auto see = [&](Value v, TokenKind kind) {
    Shape shape = shapeOf(v);
    if (kind == TokenKind::token)
      widest = std::max(widest, product(shape.drop_front(std::min<size_t>(2, shape.size()))));
  };
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    see(operand, rowsOperandKind(op, i));
  for (OpResult result : op->getResults()) {
    see(result, rowsResultKind(op, result.getResultNumber()));
    sums |= rowsResultKind(op, result.getResultNumber()) == TokenKind::piece;
  }
  constexpr int64_t values = 4; // of such a row, that are alive at a time
  return sums ? rowsOfBlock(values * widest) : 0;
}

/// Parts and columns that a program adds up at a time. Where columns alone give too few programs, one behind the other would wait for each of many parts: then many
/// at a time of few columns, whose sums are added up at the end.
static std::pair<int64_t, int64_t> tileOfParts(int64_t parts, int64_t columns, bool gpu) {
  constexpr int64_t width = 256, narrow = 32, elements = 1024, many = 32, programs = 128;
  if (!gpu || parts < many || ceilDiv(columns, width) >= programs)
    return {1, width};
  int64_t side = divisorUpTo(columns, narrow);
  return {std::min(llvm::bit_floor<uint64_t>(parts), llvm::bit_floor<uint64_t>(elements / side)), side};
}

Value sumOverRows(Operation *op, Value partials, OutlineContext &context, Value addend) {
  int64_t programs = shapeOf(partials)[0], size = product(shapeOf(partials).drop_front());
  SmallVector<int64_t> shape(shapeOf(partials).drop_front());
  if (programs == 1 && !addend)
    return context.view(op, partials, shape);
  auto [together, width] = tileOfParts(programs, size, context.gpu);
  // Elsewhere parts p, p + s, p + 2 s, .. first: s times as many columns of few parts.
  constexpr int64_t mostParts = 64;
  int64_t few = together == 1 && programs > mostParts ? divisorUpTo(programs, mostParts / 2) : 1;
  if (few > 1) {
    SmallVector<int64_t> stacked = {few, programs / few};
    llvm::append_range(stacked, shape);
    return sumOverRows(op, sumOverRows(op, context.view(op, partials, stacked), context), context, addend);
  }
  Type element = tensorType(partials).getElementType();
  std::string name = "sum_rows_" + typeName(element) + (addend ? "_add" : "");
  if (together > 1)
    name += "_" + std::to_string(together) + "x" + std::to_string(width);
  std::string kernel = context.kernel(name, {"column"}, [&, together = together, width = width](KernelBuilder &k) {
    // y[c] = (a[c] +) sum over p of x[p, c]
    Var x = k.buffer("x", element, {kDynamic, kDynamic}), a = addend ? k.buffer("a", element, {kDynamic}) : Var();
    Var y = k.buffer("y", element, {kDynamic});
    Var count = k.index("count"), size = k.index("size"), first = k.program(0) * width;
    auto before = [&] { return a ? k.load(a, {first}, {width}, {.limit = size}) : Var(); };
    if (together == 1) { // p ascending
      Vars total = k.loop(0, count, 1, {a ? before() : k.tile({width}, element)}, [&](Var p, ArrayRef<Var> sum) {
        return Vars{sum[0] + k.load(x, {p, first}, {width}, {.limit = size})};
      });
      return k.store(total[0], y, {first}, {.limit = size});
    }
    Vars sums = k.loop(0, count, together, {k.tile({together, width}, element)}, [&](Var p, ArrayRef<Var> sum) {
      return Vars{sum[0] + k.load(x, {p, first}, {together, width}, {.limit = count})};
    });
    Var total = sum(sums[0], 0);
    k.store(a ? before() + total : total, y, {first}, {.limit = size});
  });
  Value flat = context.view(op, partials, {programs, size});
  if (addend)
    addend = context.view(op, addend, {size});
  auto launch = context.launch(op, kernel, {ceilDiv(size, width)});
  launch.arg("x", flat);
  if (addend)
    launch.arg("a", addend);
  launch.result("y", RankedTensorType::get({size}, element), addend ? "a" : "");
  Value sum = launch.index("count", programs).index("size", size).run()[0];
  return context.view(op, sum, shape);
}

LogicalResult outlineRows(ArrayRef<Operation *> cluster, OutlineContext &context) {
  return RowsKernel(cluster, context).run();
}

} // namespace braid
