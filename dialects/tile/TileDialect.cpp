//===- TileDialect.cpp - the tile dialect: registration, kernel attributes, folders ------------------------------===//
#include "dialects/tile/TileDialect.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace braid::tile;

#include "dialects/tile/TileDialect.cpp.inc"
#include "dialects/tile/TileEnums.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/tile/TileOps.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/tile/TileLaunchOps.cpp.inc"

void TileDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/tile/TileOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/tile/TileLaunchOps.cpp.inc"
      >();
}

/// A kernel: one to three grid names, every argument named once and of a type that crosses the ABI.
static LogicalResult verifyKernel(func::FuncOp func) {
  auto grid = func->getAttrOfType<ArrayAttr>(kGridAttr);
  if (!grid)
    return func.emitOpError("is a tile.kernel without tile.grid");
  if (func.isExternal())
    return func.emitOpError("is a tile.kernel without a body");
  if (grid.size() < 1 || grid.size() > 3)
    return func.emitOpError("tile.grid must have 1 to 3 names, has ") << grid.size();
  for (Attribute name : grid)
    if (!isa<StringAttr>(name))
      return func.emitOpError("tile.grid must hold strings, has ") << name;
  if (func.getFunctionType().getNumResults() != 0)
    return func.emitOpError("a kernel has no results, has ") << func.getFunctionType().getNumResults();
  llvm::StringSet<> names;
  for (auto [i, type] : llvm::enumerate(func.getArgumentTypes())) {
    auto name = func.getArgAttrOfType<StringAttr>(i, kNameAttr);
    if (!name)
      return func.emitOpError("argument ") << i << " has no tile.name";
    if (!names.insert(name.getValue()).second)
      return func.emitOpError("argument name '") << name.getValue() << "' is used twice";
    auto memref = dyn_cast<MemRefType>(type);
    if (Attribute attr = func.getArgAttr(i, kAxesAttr)) {
      auto axes = dyn_cast<ArrayAttr>(attr);
      if (!axes || !llvm::all_of(axes, llvm::IsaPred<StringAttr>))
        return func.emitOpError("argument '") << name.getValue() << "': tile.axes must hold strings, is " << attr;
      int64_t dimensions = memref ? memref.getRank() : 0;
      if (static_cast<int64_t>(axes.size()) != dimensions)
        return func.emitOpError("argument '")
               << name.getValue() << "' has " << axes.size() << " axes but " << dimensions << " dimensions";
    }
    if (memref) {
      SmallVector<int64_t> strides;
      int64_t offset;
      if (failed(memref.getStridesAndOffset(strides, offset)) || offset != 0)
        return func.emitOpError("argument '") << name.getValue() << "' needs a strided layout of offset 0: " << type;
      if (!strides.empty() && strides.back() != 1)
        return func.emitOpError("argument '")
               << name.getValue() << "' needs a contiguous innermost dimension: " << type;
    } else if (!type.isIndex() && !type.isF32() && !type.isF64()) {
      return func.emitOpError("argument '") << name.getValue() << "' must be a memref, index, f32 or f64, is " << type;
    }
  }
  return success();
}

/// Pairs of names of the kernel's buffers.
static LogicalResult verifyInPlace(Operation *op, Attribute attr) {
  auto func = dyn_cast<func::FuncOp>(op);
  if (!func || !func->hasAttr(kKernelAttr))
    return op->emitOpError("tile.in_place belongs on a tile.kernel");
  auto isBuffer = [&](Attribute name) {
    for (auto [i, type] : llvm::enumerate(func.getArgumentTypes()))
      if (isa<MemRefType>(type) && func.getArgAttr(i, kNameAttr) == name)
        return isa<StringAttr>(name);
    return false;
  };
  auto isPair = [&](Attribute entry) {
    auto pair = dyn_cast<ArrayAttr>(entry);
    return pair && pair.size() == 2 && llvm::all_of(pair, isBuffer);
  };
  auto pairs = dyn_cast<ArrayAttr>(attr);
  if (!pairs || !llvm::all_of(pairs, isPair))
    return func.emitOpError("tile.in_place must hold pairs of names of the kernel's buffers, is ") << attr;
  return success();
}

static LogicalResult verifyMeanWalk(Operation *op, Attribute attr) {
  if (!isa<scf::ForOp>(op))
    return op->emitOpError("tile.mean_walk belongs on an scf.for");
  if (auto walk = dyn_cast<IntegerAttr>(attr); !walk || !walk.getType().isInteger(64) || walk.getInt() < 1)
    return op->emitOpError("tile.mean_walk must be an i64 of at least 1, is ") << attr;
  return success();
}

LogicalResult TileDialect::verifyOperationAttribute(Operation *op, NamedAttribute attr) {
  if (attr.getName() == kMeanWalkAttr)
    return verifyMeanWalk(op, attr.getValue());
  if (attr.getName() == kInPlaceAttr)
    return verifyInPlace(op, attr.getValue());
  if (attr.getName() != kKernelAttr)
    return success();
  if (auto func = dyn_cast<func::FuncOp>(op))
    return verifyKernel(func);
  return op->emitOpError("tile.kernel belongs on a func.func");
}

//===- Folders ----------------------------------------------------------------------------------------------------===//

OpFoldResult TransposeOp::fold(FoldAdaptor) {
  if (auto inner = getSource().getDefiningOp<TransposeOp>())
    return inner.getSource();
  return {};
}

OpFoldResult SliceOp::fold(FoldAdaptor) { return getSource().getType() == getType() ? getSource() : Value(); }

OpFoldResult ConcatOp::fold(FoldAdaptor) { return getSources().size() == 1 ? getSources().front() : Value(); }

OpFoldResult RowsOp::fold(FoldAdaptor) { return getSource().getType() == getType() ? getSource() : Value(); }
