//===- InitKernels.cpp - initial values from a counter-based generator -------------------------------------------===//
//
//   bits(seed, key, i) = mix(mix(seed + c) ^ key + i * c),  mix: the finaliser of splitmix64 (Steele, Lea, Flood 2014)
//
// i is the index of the element in the logical tensor, so a shard computes exactly its part. The upper 48 bits give two
// uniforms of 24 bits, which f32 holds exactly; a normal variable is Box and Muller's first.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/outline/CounterRandom.h"
#include "passes/outline/MasterParts.h"
#include "passes/outline/OutlineFamilies.h"
#include "llvm/Support/xxhash.h"
#include <cmath>

using namespace mlir;

namespace braid {
namespace {

constexpr int64_t kBlock = 256;

/// Bits of z from `shift` on, as a number in [0, 1).
Var uniform(KernelBuilder &k, Var z, int64_t shift) {
  return cast(uniformInteger(k, z, shift), k.f32()) * std::exp2(-kUniformBits);
}

/// A value of the distribution with parameters a and b (below) from 64 random bits.
Var sample(KernelBuilder &k, StringRef distribution, Var bits, Var a, Var b) {
  if (distribution == "constant")
    return splat(a, {kBlock});
  Var u = uniform(k, bits, 40);
  if (distribution == "normal") { // a sqrt(-2 log u) cos(2 pi u'); u > 0
    Var radius = sqrt(log(u + std::exp2(-25)) * -2.0);
    Var angle = (uniform(k, bits, 16) - 0.5) * 6.2831853071795864769;
    return radius * cos(angle) * a;
  }
  Var x = u * (b - a) + a;
  if (distribution == "uniform")
    return x;
  if (distribution == "log_uniform")
    return log(x);
  // softplus_inverse: y with softplus(y) = d, d log-uniform; a and b are logarithms. y = d + log(1 - exp(-d)).
  Var d = exp(x);
  return d + log(-d.with(math::ExpM1Op::create(k.builder, -d)));
}

/// What `op` stores of f32 values: they themselves, or a part of such masters, the bf16 parameter or what stands beside it.
Var stored(KernelBuilder &k, InitOp op, Var values) {
  Type element = tensorType(op.getResult()).getElementType();
  if (!op.getPart() && !element.isBF16())
    return cast(values, element);
  MasterParts parts = splitMaster(k, values);
  return !op.getPart() ? parts.high : *op.getPart() == "low" ? parts.low : cast(bitcast(parts.sign, k.f32()), element);
}

/// In the names of kernels.
std::string partName(InitOp op) {
  return typeName(tensorType(op.getResult()).getElementType()) + (op.getPart() ? "_" + op.getPart()->str() : "");
}

/// One layer: contiguous blocks, of which the logical layer may have more. Cut i is between `rows` local rows of it and
/// those of the cuts before it: the row x of [rows 0, rows 1, ..] is (.. ((x_0 n_0 + c_0) rows_1 + x_1) n_1 + c_1 ..)
/// of the logical layer, with n_i parts and the rank's place c_i.
struct Layer {
  int64_t outer, block;
  int64_t key;
  SmallVector<int64_t> rows;
};

Value initLayer(InitOp op, Layer layer, OutlineContext &context) {
  Type element = tensorType(op.getResult()).getElementType(), seedType = tensorType(op.getSeed()).getElementType();
  size_t cuts = op.getCoordinates().size();
  std::string distribution = op.getDistribution().str();
  std::string name =
      "init_" + distribution + "_" + partName(op) + (cuts ? "_shard" : "") + (cuts > 1 ? std::to_string(cuts) : "");
  auto nth = [&](StringRef name, size_t i) { return (name + (i ? Twine(i + 1) : Twine(""))).str(); };
  std::string kernel = context.kernel(name, {"block", "row"}, [&](KernelBuilder &k) {
    Var seed = k.buffer("seed", seedType, {1});
    Vars coordinates, counts, sizes;
    for (size_t i = 0; i < cuts; ++i)
      coordinates.push_back(k.buffer(nth("coordinate", i), k.i32(), {1}));
    Var y = k.buffer("y", element, {kDynamic, kDynamic}), key = k.index("key"), block = k.index("block");
    for (size_t i = 0; i < cuts; ++i) {
      counts.push_back(k.index(nth("count", i)));
      if (i > 0)
        sizes.push_back(k.index(nth("rows", i)));
    }
    Var a = k.scalar("a", k.f32()), b = k.scalar("b", k.f32());
    Var first = k.program(0) * kBlock, row = k.program(1), part = row;
    if (cuts) {
      // The row's digits, the last first: what is left of it, then every cut from the outside in.
      SmallVector<Var> digits(cuts);
      Var left = row;
      for (size_t i = cuts; --i > 0;) {
        digits[i] = left % sizes[i - 1];
        left = left / sizes[i - 1];
      }
      digits[0] = left;
      for (size_t i = 0; i < cuts; ++i) {
        Var place = cast(k.at(coordinates[i], {0}), k.builder.getIndexType());
        part = (i ? part * sizes[i - 1] + digits[i] : digits[0]) * counts[i] + place;
      }
    }
    Var stream = exclusive(mixSeed(k, cast(k.at(seed, {0}), k.i64())), cast(key, k.i64()));
    Var index = cast(k.iota({kBlock}, 0), k.i64()) + cast(part * block + first, k.i64());
    Var bits = streamBits(k, stream, index);
    k.store(stored(k, op, sample(k, distribution, bits, a, b)), y, {row, first}, {.limit = block});
  });
  double low = op.getLow().convertToDouble(), high = op.getHigh().convertToDouble();
  if (distribution == "normal")
    low = op.getScale().convertToDouble();
  if (distribution == "softplus_inverse") {
    low = std::log(low);
    high = std::log(high);
  }
  auto f32 = Float32Type::get(op.getContext());
  auto launch = context.launch(op, kernel, {ceilDiv(layer.block, kBlock), layer.outer});
  launch.arg("seed", op.getSeed());
  for (auto [i, coordinate] : llvm::enumerate(op.getCoordinates()))
    launch.arg(nth("coordinate", i), coordinate);
  launch.result("y", RankedTensorType::get({layer.outer, layer.block}, element))
      .index("key", layer.key)
      .index("block", layer.block);
  for (size_t i = 0; i < cuts; ++i) {
    launch.index(nth("count", i), (*op.getShardCounts())[i]);
    if (i > 0)
      launch.index(nth("rows", i), layer.rows[i]);
  }
  return launch.scalar("a", low, f32).scalar("b", high, f32).run()[0];
}

/// A table as rows of `numbers`, each `run` times; equal rows are one.
struct Table {
  SmallVector<double> numbers;
  int64_t run = 1;
};
Table compressed(ArrayRef<double> values) {
  Table table{SmallVector<double>(values), 1};
  auto size = [&] { return static_cast<int64_t>(table.numbers.size()); };
  for (int64_t period = 1; period < size(); ++period)
    if (size() % period == 0 && ArrayRef(table.numbers).drop_back(period) == ArrayRef(table.numbers).drop_front(period))
      table.numbers.truncate(period);
  auto runs = [&](int64_t run) {
    for (int64_t i = 0; i < size(); ++i)
      if (table.numbers[i] != table.numbers[i - i % run])
        return false;
    return true;
  };
  for (int64_t run = size(); run > 1; --run)
    if (size() % run == 0 && runs(run)) {
      SmallVector<double> each;
      for (int64_t i = 0; i < size(); i += run)
        each.push_back(table.numbers[i]);
      table = {each, run};
    }
  return table;
}

/// The table, repeated: y[r, i, :] = numbers[i]
Value initTable(InitOp op, OutlineContext &context) {
  Table table = compressed(*op.getValues());
  auto type = tensorType(op.getResult());
  int64_t width = table.numbers.size(), rows = product(type.getShape()) / (width * table.run);
  StringRef bytes(reinterpret_cast<const char *>(table.numbers.data()), width * sizeof(double));
  std::string name = "init_values_" + partName(op) + "_" + (table.run > 1 ? std::to_string(table.run) + "x_" : "") +
                     llvm::utohexstr(llvm::xxh3_64bits(bytes) & 0xffffffff, /*LowerCase=*/true);
  std::string kernel = context.kernel(name, {"row"}, [&](KernelBuilder &k) {
    Var y = k.buffer("y", type.getElementType(), {kDynamic, width, table.run});
    for (auto [i, value] : llvm::enumerate(table.numbers)) {
      Type element = type.getElementType().isF64() ? type.getElementType() : k.f32();
      k.store(stored(k, op, k.tile({table.run}, element, value)), y, {k.program(0), i, 0});
    }
  });
  return context.launch(op, kernel, {rows}).result("y", type.clone({rows, width, table.run})).run()[0];
}

} // namespace

LogicalResult outlineInit(Operation *op, OutlineContext &context) {
  auto init = cast<InitOp>(op);
  auto type = tensorType(init.getResult());
  if (init.getDistribution() == "constant" && !init.getPart()) {
    context.replace(op, fillWith(op, type, init.getLow().convertToDouble(), context));
    return success();
  }
  if (init.getDistribution() == "values") {
    context.replace(op, initTable(init, context));
    return success();
  }
  ArrayRef<int64_t> keys = init.getKeys();
  int64_t layers = keys.size();
  Shape shape = type.getShape();
  // Leading dimensions that count layers, then the logical tensor.
  for (int64_t left = init.getStacked() ? layers : 1; left > 1 && !shape.empty(); shape = shape.drop_front())
    left /= shape.front();
  if (init.getStacked() && layers == 1)
    shape = shape.drop_front();
  int64_t size = product(type.getShape()) / layers;
  ArrayRef<int64_t> dims = init.getShardDims().value_or(ArrayRef<int64_t>());
  int64_t block = dims.empty() ? size : product(shape.drop_front(dims.back()));
  SmallVector<int64_t> rows;
  for (size_t i = 0, begin = 0; i < dims.size(); begin = dims[i++])
    rows.push_back(product(shape.slice(begin, dims[i] - begin)));
  SmallVector<Value> parts;
  for (int64_t key : keys)
    parts.push_back(context.view(op, initLayer(init, {size / block, block, key, rows}, context), {1, size}));
  Value all = parts.front();
  if (layers > 1) {
    context.rewriter.setInsertionPoint(op);
    all = ConcatOp::create(context.rewriter, op->getLoc(), type.clone({layers, size}), parts, 0);
  }
  context.replace(op, all);
  return success();
}

} // namespace braid
