//===- TileElements.cpp - one element of each row, as a sum over the row ------------------------------------------===//
//
//   diagonal x = sum_j lower(x)_ij - strict_lower(x)_ij          pick x[columns] = sum_j (j = columns_i ? x_ij : 0)
//
// So whatever adds up rows has these, in its loops and registers. Where a thread has elements of a row in registers it need not add zeros: the sum says what it
// stands for, and the lowering to threads takes the element from the lane that has it (ThreadRowSums.cpp), or looks for it (ThreadSumRows.cpp).
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/TileLowering.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// At the sum: the op that it stands for.
static constexpr StringLiteral kStandsForAttr = "lower.stands_for";

static bool standsFor(tile::ReduceOp sum, StringRef op) {
  auto known = sum->getAttrOfType<StringAttr>(kStandsForAttr);
  return known && known == op;
}

static void replaceBySum(OpBuilder &b, Operation *op, Value terms) {
  auto sum =
      tile::ReduceOp::create(b, op->getLoc(), op->getResult(0).getType(), terms, /*axis=*/1, tile::ReduceKind::add);
  sum->setAttr(kStandsForAttr, b.getStringAttr(op->getName().getStringRef()));
  op->replaceAllUsesWith(sum);
  op->erase();
}

static void expand(tile::DiagonalOp op) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Value x = op.getSource(), whole = tile::MaskOp::create(b, loc, x.getType(), x, tile::Keep::lower),
        strict = tile::MaskOp::create(b, loc, x.getType(), x, tile::Keep::strict_lower);
  replaceBySum(b, op, arith::SubFOp::create(b, loc, whole, strict));
}

static void expand(tile::PickOp op) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  VectorType type = tileType(op.getSource()), places = type.clone(b.getI32Type());
  Value column = tile::IotaOp::create(b, loc, places, 1);
  Value columns = tile::ExpandOp::create(b, loc, places, op.getColumns(), 1);
  Value hit = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, column, columns);
  Value zero = arith::ConstantOp::create(b, loc, type, b.getZeroAttr(type));
  replaceBySum(b, op, arith::SelectOp::create(b, loc, hit, op.getSource(), zero));
}

void lower::expandElements(func::FuncOp kernel) {
  SmallVector<Operation *> ops;
  kernel.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : ops)
    if (auto diagonal = dyn_cast<tile::DiagonalOp>(op))
      expand(diagonal);
    else if (auto pick = dyn_cast<tile::PickOp>(op))
      expand(pick);
}

Value lower::diagonalBy(tile::ReduceOp sum) {
  if (!standsFor(sum, tile::DiagonalOp::getOperationName()))
    return {};
  auto difference = cast<arith::SubFOp>(sum.getSource().getDefiningOp());
  return cast<tile::MaskOp>(difference.getLhs().getDefiningOp()).getSource();
}

std::optional<lower::Pick> lower::pickBy(tile::ReduceOp sum) {
  if (!standsFor(sum, tile::PickOp::getOperationName()))
    return std::nullopt;
  auto select = cast<arith::SelectOp>(sum.getSource().getDefiningOp());
  auto hit = cast<arith::CmpIOp>(select.getCondition().getDefiningOp());
  return Pick{cast<tile::ExpandOp>(hit.getRhs().getDefiningOp()).getSource(), select.getTrueValue()};
}
