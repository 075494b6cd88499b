//===- KernelBuilder.cpp - parameters, memory and control flow of a tile kernel; arithmetic is in Var.cpp ---------===//
#include "passes/outline/KernelBuilder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace braid {

Type computeType(Type element) { return element.isF64() ? element : Float32Type::get(element.getContext()); }

KernelBuilder::KernelBuilder(ModuleOp module, StringRef name, ArrayRef<StringRef> grid)
    : builder(UnknownLoc::get(module.getContext()), module.getContext()) {
  builder.setInsertionPointToEnd(module.getBody());
  func = func::FuncOp::create(builder, name, builder.getFunctionType({}, {}));
  func->setAttr(tile::kKernelAttr, builder.getUnitAttr());
  func->setAttr(tile::kGridAttr, builder.getStrArrayAttr(grid));
  builder.setInsertionPointToStart(func.addEntryBlock());
  SmallVector<Type> indices(grid.size(), builder.getIndexType());
  auto program = tile::ProgramOp::create(builder, indices);
  programs.assign(program.getIds().begin(), program.getIds().end());
}

Var KernelBuilder::parameter(StringRef name, Type type) {
  names.push_back(builder.getStringAttr(name));
  return wrap(func.getBody().front().addArgument(type, builder.getLoc()));
}

Var KernelBuilder::buffer(StringRef name, Type element, Shape shape, bool strided) {
  MemRefLayoutAttrInterface layout;
  if (strided) {
    SmallVector<int64_t> strides(shape.size(), kDynamic);
    if (!strides.empty())
      strides.back() = 1;
    layout = StridedLayoutAttr::get(builder.getContext(), 0, strides);
  }
  return parameter(name, MemRefType::get(shape, element, layout));
}

Var KernelBuilder::buffer(StringRef name, Type element, Axes list) {
  SmallVector<int64_t> shape;
  SmallVector<StringRef> axisNames;
  for (const Axis &axis : list) {
    shape.push_back(axis.size);
    axisNames.push_back(axis.name);
  }
  axes.emplace_back(names.size(), builder.getStrArrayAttr(axisNames));
  return buffer(name, element, shape);
}

Var KernelBuilder::index(StringRef name) { return parameter(name, builder.getIndexType()); }
Var KernelBuilder::scalar(StringRef name, Type type) { return parameter(name, type); }
Var KernelBuilder::program(unsigned axis) { return wrap(programs[axis]); }

Var KernelBuilder::size(Var buffer, unsigned dim) {
  auto type = cast<MemRefType>(buffer.type());
  if (!type.isDynamicDim(dim))
    return number(type.getDimSize(dim));
  return wrap(memref::DimOp::create(builder, buffer, static_cast<int64_t>(dim)));
}

Var KernelBuilder::number(int64_t value) { return wrap(arith::ConstantIndexOp::create(builder, value)); }

Var KernelBuilder::constant(Type scalarType, double value) {
  if (isa<FloatType>(scalarType))
    return wrap(arith::ConstantOp::create(builder, builder.getFloatAttr(scalarType, value)));
  return wrap(arith::ConstantOp::create(builder, builder.getIntegerAttr(scalarType, static_cast<int64_t>(value))));
}

Var KernelBuilder::integer(Type scalarType, uint64_t bits) {
  APInt value(scalarType.getIntOrFloatBitWidth(), bits, /*isSigned=*/false, /*implicitTrunc=*/true);
  return wrap(arith::ConstantOp::create(builder, builder.getIntegerAttr(scalarType, value)));
}

Var KernelBuilder::tile(Shape shape, Type element, double value) {
  auto type = VectorType::get(shape, element);
  Attribute scalar = isa<FloatType>(element) ? Attribute(builder.getFloatAttr(element, value))
                                             : Attribute(builder.getIntegerAttr(element, static_cast<int64_t>(value)));
  return wrap(arith::ConstantOp::create(builder, type, DenseElementsAttr::get(type, scalar)));
}

Var KernelBuilder::iota(Shape shape, int64_t axis) {
  return wrap(tile::IotaOp::create(builder, VectorType::get(shape, i32()), axis));
}

Var KernelBuilder::value(Index index) { return index.var ? index.var : number(index.number); }

static SmallVector<Value> values(KernelBuilder &k, Indices at) {
  return llvm::map_to_vector(at, [&](const Index &i) -> Value { return k.value(i); });
}

SmallVector<int64_t, 4> KernelBuilder::dimsOf(Var buffer, int64_t tileRank, const AccessOptions &options) {
  if (!options.dims.empty())
    return options.dims;
  int64_t rank = cast<MemRefType>(buffer.type()).getRank();
  SmallVector<int64_t, 4> dims;
  for (int64_t i = rank - tileRank; i < rank; ++i)
    dims.push_back(i);
  return dims;
}

Var KernelBuilder::load(Var buffer, Indices at, Shape tile, const AccessOptions &options) {
  auto type = VectorType::get(tile, buffer.element());
  return wrap(tile::LoadOp::create(builder, type, buffer, values(*this, at), options.limit, options.rows,
                                   builder.getDenseI64ArrayAttr(dimsOf(buffer, type.getRank(), options))));
}

void KernelBuilder::store(Var tile, Var buffer, Indices at, const AccessOptions &options) {
  tile::StoreOp::create(builder, tile, buffer, values(*this, at), options.limit, options.rows,
                        builder.getDenseI64ArrayAttr(dimsOf(buffer, tile.rank(), options)));
}

Var KernelBuilder::at(Var buffer, Indices at) {
  return wrap(memref::LoadOp::create(builder, buffer, values(*this, at)));
}

void KernelBuilder::put(Var scalar, Var buffer, Indices at) {
  memref::StoreOp::create(builder, scalar, buffer, values(*this, at));
}

static SmallVector<Value> unwrap(ArrayRef<Var> vars) {
  return llvm::map_to_vector(vars, [](Var v) -> Value { return v; });
}

Vars KernelBuilder::loop(Index lo, Index hi, Index step, ArrayRef<Var> carried,
                         llvm::function_ref<Vars(Var, ArrayRef<Var>)> body, int64_t meanWalk) {
  auto loop = scf::ForOp::create(builder, value(lo), value(hi), value(step), unwrap(carried));
  if (meanWalk)
    loop->setAttr(tile::kMeanWalkAttr, builder.getI64IntegerAttr(meanWalk));
  OpBuilder::InsertionGuard guard(builder);
  Block *block = loop.getBody();
  if (carried.empty())
    block->getTerminator()->erase();
  builder.setInsertionPointToEnd(block);
  Vars inside = llvm::map_to_vector(loop.getRegionIterArgs(), [&](BlockArgument a) { return wrap(a); });
  Vars next = body(wrap(loop.getInductionVar()), inside);
  scf::YieldOp::create(builder, unwrap(next));
  return llvm::map_to_vector(loop.getResults(), [&](OpResult r) { return wrap(r); });
}

void KernelBuilder::loop(Index lo, Index hi, Index step, llvm::function_ref<void(Var)> body, int64_t meanWalk) {
  auto inside = [&](Var i, ArrayRef<Var>) {
    body(i);
    return Vars();
  };
  loop(lo, hi, step, {}, inside, meanWalk);
}

Var KernelBuilder::rowsEnd() {
  Var offsets = buffer(tile::kRowsEnd, i32(), {kDynamic});
  return cast(at(offsets, {size(offsets, 0) - 1}), builder.getIndexType());
}

void KernelBuilder::share(Var limit, int64_t blockRows, llvm::function_ref<void(Var)> body) {
  Var programs = index("programs"), blocks = (limit + (blockRows - 1)) / number(blockRows);
  Var first = program(0) * blocks / programs, last = (program(0) + 1) * blocks / programs;
  loop(first * blockRows, last * blockRows, blockRows, body);
}

void KernelBuilder::when(Var condition, llvm::function_ref<void()> then) {
  auto op = scf::IfOp::create(builder, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op.thenBlock()->getTerminator());
  then();
}

Vars KernelBuilder::when(Var condition, llvm::function_ref<Vars()> then, llvm::function_ref<Vars()> otherwise) {
  // The result types are known only after the first branch: build both branches, then the op around them.
  SmallVector<Type> types;
  Region thenRegion, elseRegion;
  for (auto [region, branch] : {std::pair(&thenRegion, &then), std::pair(&elseRegion, &otherwise)}) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&region->emplaceBlock());
    Vars results = (*branch)();
    scf::YieldOp::create(builder, unwrap(results));
    types = llvm::map_to_vector(results, [](Var v) { return v.type(); });
  }
  auto op = scf::IfOp::create(builder, types, condition, /*addThenBlock=*/false, /*addElseBlock=*/false);
  op.getThenRegion().takeBody(thenRegion);
  op.getElseRegion().takeBody(elseRegion);
  return llvm::map_to_vector(op.getResults(), [&](OpResult r) { return wrap(r); });
}

Var KernelBuilder::inverted(Var a) {
  Value &inverse = inverses[a]; // -(I + L)^-1 L
  if (!inverse)
    inverse = solve(a, -mask(a, tile::Keep::strict_lower));
  return wrap(inverse);
}

void KernelBuilder::invertTriangles() {
  OpBuilder::InsertionGuard guard(builder);
  SmallVector<tile::SolveOp> solves;
  func.walk([&](tile::SolveOp solve) {
    if (solve.getResult() != inverses.lookup(solve.getA()))
      solves.push_back(solve);
  });
  for (tile::SolveOp solve : solves) {
    builder.setInsertionPointAfterValue(solve.getA());
    Var inverse = inverted(wrap(solve.getA()));
    builder.setInsertionPoint(solve);
    Var product = dot(inverse, wrap(solve.getB()), wrap(solve.getB()), {.transposeA = solve.getTranspose()});
    solve.replaceAllUsesWith(static_cast<Value>(product));
    solve.erase();
  }
}

void KernelBuilder::roundProducts() {
  OpBuilder::InsertionGuard guard(builder);
  Type bf16 = builder.getBF16Type();
  DenseMap<Value, Value> rounded; // each once, where it is made: not in every iteration of a loop that multiplies by it
  func.walk([&](tile::DotOp dot) {
    for (OpOperand *operand : {&dot.getAMutable(), &dot.getBMutable()}) {
      Value tile = operand->get();
      auto type = cast<VectorType>(tile.getType());
      if (!type.getElementType().isF32())
        continue;
      Value &known = rounded[tile];
      if (!known) {
        auto widened = tile.getDefiningOp<arith::ExtFOp>();
        builder.setInsertionPointAfterValue(tile);
        known = widened && getElementTypeOrSelf(widened.getIn()).isBF16()
                    ? widened.getIn()
                    : arith::TruncFOp::create(builder, type.clone(bf16), tile).getResult();
      }
      operand->set(known);
    }
  });
  // Tiles of exponentials, and of their reciprocals, are multiplied too: eight digits of them are not needed.
  func.walk([](Operation *op) {
    auto type = op->getNumResults() == 1 ? dyn_cast<VectorType>(op->getResult(0).getType()) : nullptr;
    if (type && type.getRank() == 2 && type.getElementType().isF32() &&
        isa<math::ExpOp, math::Exp2Op, arith::DivFOp>(op))
      op->setAttr("fastmath", arith::FastMathFlagsAttr::get(op->getContext(), arith::FastMathFlags::afn));
  });
}

void KernelBuilder::approximate() {
  func.walk([](Operation *op) {
    auto type = op->getNumResults() == 1 ? dyn_cast<VectorType>(op->getResult(0).getType()) : nullptr;
    if (type && type.getElementType().isF32() && isa<math::ExpOp, math::Exp2Op, arith::DivFOp>(op))
      op->setAttr("fastmath", arith::FastMathFlagsAttr::get(op->getContext(), arith::FastMathFlags::afn));
  });
}

/// Whether a loop has added the tile up: sums of many terms are no more exact than these.
static bool isAddedUp(Value tile) {
  while (auto reduce = tile.getDefiningOp<tile::ReduceOp>())
    tile = reduce.getSource();
  auto loop = tile.getDefiningOp<scf::ForOp>();
  if (!loop)
    return false;
  unsigned number = cast<OpResult>(tile).getResultNumber();
  auto sum = loop.getYieldedValues()[number].getDefiningOp<arith::AddFOp>();
  return sum && llvm::is_contained(sum->getOperands(), loop.getRegionIterArg(number));
}

void KernelBuilder::approximateRounded() {
  bool rounded = true, any = false;
  func.walk([&](Operation *op) {
    if (auto store = dyn_cast<tile::StoreOp>(op)) {
      bool isRounded = cast<VectorType>(store.getValue().getType()).getElementType().isBF16();
      rounded &= isRounded || isAddedUp(store.getValue());
      any |= isRounded;
    }
    rounded &= !isa<memref::StoreOp>(op);
  });
  if (rounded && any)
    approximate();
}

func::FuncOp KernelBuilder::finish() {
  builder.setInsertionPointToEnd(&func.getBody().front());
  func::ReturnOp::create(builder);
  Block &block = func.getBody().front();
  func.setFunctionType(builder.getFunctionType(block.getArgumentTypes(), {}));
  for (auto [i, name] : llvm::enumerate(names))
    func.setArgAttr(i, tile::kNameAttr, name);
  for (auto &[i, list] : axes)
    func.setArgAttr(i, tile::kAxesAttr, list);
  return func;
}

} // namespace braid
