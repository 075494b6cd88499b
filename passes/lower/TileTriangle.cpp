//===- TileTriangle.cpp - which triangle of a square tile holds something, and which one is read ------------------===//
//
// Scores of causal chunks are 0 above the diagonal. A dot skips what is 0 in its left operand, and what nobody reads of
// its result: between a third and a half of its work. A tile that is multiplied with a 0 counts as 0 there, whatever
// it holds.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/TileLowering.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

static bool isSquare(Value v) {
  VectorType type = tileType(v);
  return type && type.getRank() == 2 && type.getDimSize(0) == type.getDimSize(1);
}

static Triangles kept(tile::Keep keep) {
  switch (keep) {
  case tile::Keep::lower:
  case tile::Keep::strict_lower: return {false, true};
  case tile::Keep::upper:
  case tile::Keep::strict_upper: return {true, false};
  }
  llvm_unreachable("unknown mask");
}

static bool isZeros(Value tile) { return matchPattern(tile, m_AnyZeroFloat()); }

/// Rows that go into a square tile at row `first`: whether they are 0 above its diagonal.
static bool endsAtDiagonal(Value rows, int64_t first) {
  auto concat = rows.getDefiningOp<tile::ConcatOp>();
  int64_t column = 0;
  for (Value part : concat ? SmallVector<Value>(concat.getSources()) : SmallVector<Value>{rows}) {
    int64_t end = column + tileType(part).getShape().back();
    bool diagonal = column == first && isSquare(part) && !triangleOf(part).above;
    if (end > first + 1 && !diagonal && !isZeros(part))
      return false;
    column = end;
  }
  return true;
}

/// What several formulas read is looked at once.
static Triangles triangleOf(Value tile, DenseMap<Value, Triangles> &known) {
  Operation *op = tile.getDefiningOp();
  if (!op || !isSquare(tile))
    return {};
  if (auto it = known.find(tile); it != known.end())
    return it->second;
  auto of = [&](Value source) { return triangleOf(source, known); };
  auto find = [&]() -> Triangles {
    if (auto mask = dyn_cast<tile::MaskOp>(op))
      return kept(mask.getKeep()) & of(mask.getSource());
    if (auto product = dyn_cast<arith::MulFOp>(op))
      return of(product.getLhs()) & of(product.getRhs());
    if (isa<arith::AddFOp, arith::SubFOp>(op))
      return of(op->getOperand(0)) | of(op->getOperand(1));
    if (isa<arith::NegFOp, arith::ExtFOp, arith::TruncFOp>(op))
      return of(op->getOperand(0));
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      unsigned i = cast<OpResult>(tile).getResultNumber();
      return of(branch.thenYield().getOperand(i)) | of(branch.elseYield().getOperand(i));
    }
    if (auto transpose = dyn_cast<tile::TransposeOp>(op)) {
      Triangles source = of(transpose.getSource());
      return {source.below, source.above};
    }
    if (auto insert = dyn_cast<tile::InsertRowsOp>(op)) {
      std::optional<int64_t> first = getConstantIntValue(insert.getOffset());
      bool rows = tileType(insert.getValue()).getRank() == 2;
      return {!first || !rows || of(insert.getTarget()).above || !endsAtDiagonal(insert.getValue(), *first), true};
    }
    if (isZeros(tile))
      return {false, false};
    return {};
  };
  return known[tile] = find();
}

Triangles lower::triangleOf(Value tile) {
  DenseMap<Value, Triangles> known;
  return ::triangleOf(tile, known);
}

static Triangles readOf(Value tile, DenseSet<Value> &seen) {
  Triangles all{false, false};
  if (!seen.insert(tile).second)
    return all; // what a loop hands round is read where else it goes
  for (OpOperand &use : tile.getUses()) {
    Operation *user = use.getOwner();
    auto through = [&](Value result) { return readOf(result, seen); };
    if (auto mask = dyn_cast<tile::MaskOp>(user))
      all = all | (kept(mask.getKeep()) & through(mask.getResult()));
    else if (isa<arith::MulFOp>(user))
      all = all | (triangleOf(user->getOperand(1 - use.getOperandNumber())) & through(user->getResult(0)));
    else if (isa<arith::AddFOp, arith::SubFOp, arith::NegFOp, arith::ExtFOp, arith::TruncFOp>(user))
      all = all | through(user->getResult(0));
    else if (auto dot = dyn_cast<tile::DotOp>(user); dot && dot.getA() != tile && dot.getB() != tile)
      all = all | through(dot.getResult());
    else if (auto loop = dyn_cast<scf::ForOp>(user)) {
      unsigned i = use.getOperandNumber() - loop.getNumControlOperands();
      all = all | through(loop.getRegionIterArg(i)) | through(loop.getResult(i));
    } else if (auto loop = dyn_cast<scf::ForOp>(user->getParentOp()); loop && isa<scf::YieldOp>(user))
      all = all | through(loop.getRegionIterArg(use.getOperandNumber())) |
            through(loop.getResult(use.getOperandNumber()));
    else
      return {};
  }
  return all;
}

Triangles lower::triangleRead(Value tile) {
  DenseSet<Value> seen;
  return isSquare(tile) ? readOf(tile, seen) : Triangles();
}
