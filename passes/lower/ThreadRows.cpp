//===- ThreadRows.cpp - kernels whose warps own rows of what they accumulate, in registers ------------------------===//
//
// Attention multiplies, reduces the rows of the product, multiplies again and adds up, tile after tile (FlashAttention-2).
// Where a loop carries such sums, each warp owns 16 of their rows over the whole kernel: products, formulas of them, what
// is reduced along their rows and what loops carry stay in its registers, and a product is the left operand of the next
// one without passing through memory; so do the results of a branch between formulas (a mask that most tiles do not need). A tile may have its rows along its second dimension ("turned"): its product is
// computed the other way round. Rows that stay where others pass by wgmma reads from shared memory, where they lie in panels as it wants them: no registers hold them. Where what loops carry is turned (the states of a scan, whose columns do not meet), all products are, and what was
// computed is their right operand, which is the left one of the product that is computed.
//
// A loop that adds products to a state may make what it multiplies of running sums: log decays of the tokens of a chunk, in the channels that a warp
// has of the state. Such a tile is turned, so a sum along tokens is one along the rows of a warp, and the product takes the tile from registers.
//
// What an iteration computes of memory alone, as scores of tokens, may be the right operand of a product of the state's: all warps need all of its rows, so
// each hands its own on in shared memory (handOn). A transposed tile is in the same registers, turned.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// Elements of carried tiles that a thread has.
static constexpr int64_t kMostCarried = 160;
/// Registers of a multiprocessor, and the most that a thread can name.
static constexpr int64_t kRegisters = 65536, kMostRegisters = 255;
/// What a thread needs beside the sums and operands of an iteration's products: places and bounds, numbers of its rows, terms of a formula. Where fewer are left the number
/// of its warp has none. Assembled for sm_90a (attention in boxes, heads of 128, 96 and 64, 8 x 2048 tokens; of 255 registers): the gradient of keys and values of 128 has 31
/// left, and spills 32 bytes with that number, none without; that of 96 has 63 and takes 229 to 251 registers with it, 246 to 248 without; attention over 128 has 95 and spills 36
/// bytes without it; all others take 15 to 36 registers fewer with it. test/pipeline/cuda.test fails where one of them spills.
static constexpr int64_t kBesideProducts = 48;

int64_t lower::carriedInRows(scf::ForOp loop) {
  int64_t elements = 0;
  for (Value argument : loop.getRegionIterArgs())
    if (VectorType type = tileType(argument); type && type.getRank() == 2)
      elements += type.getDimSize(1) / 2;
  return elements;
}

bool lower::isRunningSum(Operation *op) {
  auto sum = dyn_cast<tile::CumsumOp>(op);
  return sum && sum.getAxis() == 0 && tileType(sum.getResult()).getRank() == 2 &&
         tileType(sum.getResult()).getElementType().isF32() && isa<scf::ForOp>(sum->getParentOp());
}

//===- What lies in rows ------------------------------------------------------------------------------------------===//

namespace {

/// A transposed tile, rounded or not.
bool isTransposed(Value v) {
  if (auto rounded = v.getDefiningOp<arith::TruncFOp>())
    v = rounded.getIn();
  return v.getDefiningOp<tile::TransposeOp>() != nullptr;
}

/// A tile that a loop carries, inside of it or behind.
bool isCarried(Value v) {
  VectorType type = tileType(v);
  Operation *loop = v.getDefiningOp() ? v.getDefiningOp() : v.getParentBlock()->getParentOp();
  return type && type.getRank() == 2 && isa<scf::ForOp>(loop);
}

/// Finds the values of a kernel that lie in the rows of warps: all that depends on products and on what loops carry.
class RowSearch {
public:
  RowSearch(func::FuncOp kernel, int64_t rows, bool turned) : kernel(kernel), rows(rows), allTurned(turned) {}
  std::optional<DenseMap<Value, bool>> run();

private:
  bool depends(Value v);
  bool require(Value v, bool turned);
  bool requireOperand(Value v, bool turned);
  bool requireUse(Value v, OpOperand &use);
  bool requireCarried(scf::ForOp loop, unsigned i, bool turned);
  bool requireBranch(scf::IfOp branch, unsigned i, bool turned);
  bool requireDot(tile::DotOp dot, bool turned);
  bool isHandedOn(Value v);
  bool meetsRows(Value v);

  func::FuncOp kernel;
  int64_t rows;
  bool allTurned; ///< what loops carry is turned
  DenseMap<Value, bool> found; ///< whether it is turned
  DenseMap<Value, bool> dependent;
};

bool RowSearch::depends(Value v) {
  VectorType type = tileType(v);
  if (!type)
    return false;
  Operation *op = v.getDefiningOp();
  if (!op)
    return isa<scf::ForOp>(v.getParentBlock()->getParentOp());
  if (auto it = dependent.find(v); it != dependent.end())
    return it->second;
  auto dot = dyn_cast<tile::DotOp>(op);
  bool result = isa<scf::ForOp, scf::IfOp>(op) || (dot && onTensorCores(dot)) || (!allTurned && isRunningSum(op)) ||
                llvm::any_of(op->getOperands(), [&](Value u) { return depends(u); });
  return dependent[v] = result;
}

bool RowSearch::requireCarried(scf::ForOp loop, unsigned i, bool turned) {
  Value argument = loop.getRegionIterArg(i), result = loop.getResult(i);
  for (Value v : {argument, result})
    if (!found.try_emplace(v, turned).second && found[v] != turned)
      return false;
  return requireOperand(loop.getInitArgs()[i], turned) && requireOperand(loop.getYieldedValues()[i], turned);
}

/// Both branches give registers.
bool RowSearch::requireBranch(scf::IfOp branch, unsigned i, bool turned) {
  if (branch.getElseRegion().empty())
    return false;
  return requireOperand(branch.thenYield().getOperand(i), turned) &&
         requireOperand(branch.elseYield().getOperand(i), turned);
}

/// Rounded rows of products that wait for nothing a loop carries.
bool RowSearch::isHandedOn(Value v) {
  if (allTurned || !v.getDefiningOp<arith::TruncFOp>() || !isa<scf::ForOp>(v.getDefiningOp()->getParentOp()))
    return false;
  DenseSet<Value> seen;
  SmallVector<Value> work = {v};
  while (!work.empty()) {
    Value next = work.pop_back_val();
    if (!isTile(next) || next.getParentBlock() != v.getParentBlock() || !seen.insert(next).second)
      continue;
    Operation *made = next.getDefiningOp();
    if (!made || made->getNumRegions() != 0)
      return false;
    llvm::append_range(work, made->getOperands());
  }
  return true;
}

/// Rows that are handed on to be a right operand may be a left one beside: in shared memory they lie for both.
bool RowSearch::meetsRows(Value v) {
  return isHandedOn(v) && llvm::any_of(v.getUsers(), [&](Operation *user) {
           auto dot = dyn_cast<tile::DotOp>(user);
           return dot && dot.getB() == v && dot.getA() != v && dot.getAcc() != v;
         });
}

bool RowSearch::requireDot(tile::DotOp dot, bool turned) {
  if (allTurned) {
    if (!turned || !readsShared(dot) || depends(dot.getA()) ||
        (depends(dot.getB()) && !require(dot.getB(), !dot.getTransposeB())))
      return false;
    return requireOperand(dot.getAcc(), turned);
  }
  if (!readsShared(dot) || (turned && depends(dot.getA())))
    return false;
  if (depends(dot.getB()) && (turned || !isHandedOn(dot.getB()) || !require(dot.getB(), false)))
    return false;
  if (depends(dot.getA()) && !require(dot.getA(), !meetsRows(dot.getA()) && dot.getTransposeA()))
    return false;
  return requireOperand(dot.getAcc(), turned);
}

bool RowSearch::require(Value v, bool turned) {
  VectorType type = tileType(v);
  if (!type || type.getRank() > 2 || type.getDimSize(turned ? 1 : 0) != rows)
    return false;
  if (type.getRank() == 2 && type.getDimSize(turned ? 0 : 1) % 16 != 0)
    return false;
  auto [it, isNew] = found.try_emplace(v, turned);
  if (!isNew)
    return it->second == turned;
  Operation *op = v.getDefiningOp();
  if (!op) {
    auto loop = dyn_cast<scf::ForOp>(v.getParentBlock()->getParentOp());
    return loop && requireCarried(loop, cast<BlockArgument>(v).getArgNumber() - 1, turned);
  }
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return requireCarried(loop, cast<OpResult>(v).getResultNumber(), turned);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return requireBranch(branch, cast<OpResult>(v).getResultNumber(), turned);
  if (auto dot = dyn_cast<tile::DotOp>(op))
    return requireDot(dot, turned);
  if (auto reduce = dyn_cast<tile::ReduceOp>(op))
    return tileType(reduce.getSource()).getRank() == 2 && require(reduce.getSource(), reduce.getAxis() == 0);
  if (auto sum = dyn_cast<tile::CumsumOp>(op))
    return !allTurned && turned && isRunningSum(sum) && requireOperand(sum.getSource(), turned);
  if (auto taken = dyn_cast<tile::RowsOp>(op))
    return !allTurned && isKnownRow(taken) && require(taken.getSource(), /*turned=*/true);
  if (auto transpose = dyn_cast<tile::TransposeOp>(op))
    return !allTurned && require(transpose.getSource(), !turned);
  return keepsPlaces(op) &&
         llvm::all_of(op->getOperands(), [&](Value u) { return !isTile(u) || requireOperand(u, turned); });
}

/// What does not depend on registers is evaluated where it is read; masks, which several formulas read, are at hand too.
bool RowSearch::requireOperand(Value v, bool turned) {
  Operation *op = v.getDefiningOp();
  // A vector of rows that is one of columns to this tile (liesAcross).
  if (auto expand = dyn_cast_or_null<tile::ExpandOp>(op))
    return !depends(v) ||
           (tileType(v).getRank() == 2 && ((expand.getAxis() == 0) == turned || (!turned && !allTurned)) &&
            require(expand.getSource(), false));
  if (depends(v))
    return require(v, turned);
  bool here = op && keepsPlaces(op) && tileType(v).getRank() == 2 && isa<scf::ForOp>(op->getParentOp());
  return !here || require(v, turned);
}

bool RowSearch::requireUse(Value v, OpOperand &use) {
  Operation *user = use.getOwner();
  bool turned = found[v];
  auto dot = dyn_cast<tile::DotOp>(user);
  if (dot && v != dot.getAcc() && dot.getA() != dot.getB() && (v == dot.getB() ? isHandedOn(v) : meetsRows(v)))
    return require(dot.getResult(), false);
  if (dot && allTurned && v != dot.getAcc())
    return v == dot.getB() && v != dot.getA() && dot.getTransposeB() != turned && require(dot.getResult(), true);
  if (dot)
    return v == dot.getAcc()
               ? require(dot.getResult(), turned)
               : v == dot.getA() && v != dot.getB() && dot.getTransposeA() == turned && require(dot.getResult(), false);
  if (auto reduce = dyn_cast<tile::ReduceOp>(user))
    return isTile(reduce.getResult()) ? (reduce.getAxis() == 0) == turned && require(reduce.getResult(), false)
                                      : !allTurned; // a number of all rows
  if (isa<tile::CumsumOp>(user))
    return require(user->getResult(0), turned);
  if (auto taken = dyn_cast<tile::RowsOp>(user))
    return turned && isTile(taken.getResult()) && require(taken.getResult(), false);
  if (auto expand = dyn_cast<tile::ExpandOp>(user)) {
    return tileType(expand.getResult()).getRank() == 2 && llvm::all_of(expand->getUsers(), [&](Operation *reader) {
             bool isRow = keepsPlaces(reader) || isa<tile::DotOp>(reader);
             // Of columns, if what it meets says so, which a loop carries.
             bool across = !allTurned && expand.getAxis() == 0 && isRow &&
                           llvm::any_of(reader->getOperands(), [](Value other) { return isCarried(other); });
             return across || (isRow && require(reader->getResult(0), expand.getAxis() == 0));
           });
  }
  if (auto loop = dyn_cast<scf::ForOp>(user)) {
    unsigned i = use.getOperandNumber() - loop.getNumControlOperands();
    return require(loop.getResult(i), turned);
  }
  if (isa<scf::YieldOp>(user))
    return isa<scf::ForOp, scf::IfOp>(user->getParentOp()) &&
           require(user->getParentOp()->getResult(use.getOperandNumber()), turned);
  if (isa<tile::TransposeOp>(user))
    return !allTurned && require(user->getResult(0), !turned);
  if (auto store = dyn_cast<tile::StoreOp>(user))
    return !store.getRows() && (turned == allTurned || isTransposed(v));
  return keepsPlaces(user) && require(user->getResult(0), turned);
}

std::optional<DenseMap<Value, bool>> RowSearch::run() {
  SmallVector<scf::ForOp> loops;
  bool others = false; // control flow that is not looked into
  kernel.walk([&](Operation *op) {
    if (auto loop = dyn_cast<scf::ForOp>(op))
      loops.push_back(loop);
    else if (auto branch = dyn_cast<scf::IfOp>(op)) // of formulas
      others |= branch.getNumResults() == 0 || !llvm::all_of(branch->getRegions(), [](Region &region) {
                  return llvm::all_of(region.getOps(), [](Operation &inside) {
                    auto load = dyn_cast<tile::LoadOp>(inside); // of numbers that masks depend on
                    return isa<arith::ArithDialect, memref::MemRefDialect>(inside.getDialect()) ||
                           (load && !load.getRows() && tileType(load.getResult()).getRank() == 1) ||
                           isa<scf::YieldOp, tile::IotaOp, tile::ExpandOp, vector::BroadcastOp>(inside);
                  });
                });
    else
      others |= op->getNumRegions() != 0 && op != kernel;
  });
  if (others)
    return {};
  // A tile that has as many columns says by its products which of both are rows.
  for (bool square : {false, true})
    for (scf::ForOp loop : loops)
      for (Value result : loop.getResults()) {
        VectorType type = tileType(result);
        bool columns = type && type.getRank() == 2 && type.getDimSize(1) == rows;
        bool isSquare = columns && type.getDimSize(0) == rows;
        if (!type || isSquare != square || (isSquare && found.count(result)))
          continue;
        if (!require(result, allTurned || (columns && !isSquare)))
          return {};
      }
  for (size_t before = 0; before != found.size();) {
    before = found.size();
    SmallVector<Value> values(llvm::make_first_range(found));
    for (Value v : values)
      for (OpOperand &use : v.getUses())
        if (!requireUse(v, use))
          return {};
  }
  return found;
}

} // namespace

void ThreadLowering::planRows() {
  // The first tile that a loop carries and a product adds to.
  int64_t carried = 0, owned = 0, columns = 0; // at a time; rows of the tile, and its columns
  kernel.walk([&](scf::ForOp loop) {
    for (auto [argument, yielded] : llvm::zip(loop.getRegionIterArgs(), loop.getYieldedValues())) {
      VectorType type = tileType(argument);
      auto adds = [&](tile::DotOp dot) { return dot && onTensorCores(dot) && owned == 0; };
      bool isSum = type && adds(yielded.getDefiningOp<tile::DotOp>());
      for (Operation *user : argument.getUsers()) {
        auto dot = dyn_cast<tile::DotOp>(user);
        isSum |= adds(dot) && dot.getAcc() == argument;
      }
      if (isSum) {
        owned = type.getDimSize(0);
        columns = type.getDimSize(1);
      }
    }
    carried = std::max(carried, carriedInRows(loop));
  });
  // Without a product of what the loop has computed, memory is all that there is to wait for (ThreadProducts.cpp).
  bool chained = false, chainedRight = false;
  kernel.walk([&](tile::DotOp dot) {
    chained |= dot->getParentOp() != kernel && dot.getA().getDefiningOp<arith::TruncFOp>();
    chainedRight |= dot->getParentOp() != kernel && dot.getB().getDefiningOp<arith::TruncFOp>();
  });
  auto search = [&](int64_t rows, bool turned) -> std::optional<DenseMap<Value, bool>> {
    if (rows % kOwnRows != 0 || rows < 2 * kOwnRows || rows > 8 * kOwnRows)
      return {};
    return RowSearch(kernel, rows, turned).run();
  };
  std::optional<DenseMap<Value, bool>> found;
  if (chained && carried <= kMostCarried)
    found = search(owned, /*turned=*/false);
  bool turned = !found && chainedRight && owned / 2 <= kMostCarried;
  if (turned) {
    found = search(columns, /*turned=*/true);
    owned = columns;
  }
  // Stores that are written together are all from registers, or none is.
  bool mixed = false;
  kernel.walk([&](tile::StoreOp store) {
    ArrayRef<tile::StoreOp> group = plan.group(store);
    auto isHere = [&](tile::StoreOp one) { return found && found->count(one.getValue()); };
    mixed |= llvm::any_of(group, isHere) && !llvm::all_of(group, isHere);
  });
  if (!found || mixed)
    return;
  inRows = std::move(*found);
  threads = owned / kOwnRows * kWarp;
  if (!turned)
    planPanels();
  // A vector that is repeated along rows or columns is read by every lane: from shared memory.
  SmallVector<Value> repeated;
  kernel.walk([&](tile::ExpandOp expand) {
    if (expand.getSource().getDefiningOp<tile::LoadOp>() && tileType(expand.getSource()).getRank() == 1)
      repeated.push_back(expand.getSource());
  });
  // Where one block has a multiprocessor, nobody else computes while its first tiles come: they are asked for together, not row by row.
  if (!panels.empty() && kernel->hasAttr(tile::kBoxesAttr))
    for (auto load : kernel.getOps<tile::LoadOp>()) {
      VectorType type = tileType(load.getResult());
      if (type.getRank() == 2 && type.getElementType().isBF16() && !load.getRows() && !panels.count(load.getResult()))
        repeated.push_back(load.getResult());
    }
  SmallVector<Value> elsewhere = llvm::to_vector(llvm::make_first_range(inRows));
  llvm::append_range(elsewhere, panels);
  // What formulas read of it they read of memory, unless they ask for all of it together.
  for (tile::LoadOp load : readTwice)
    if (!llvm::is_contained(repeated, load.getResult()))
      elsewhere.push_back(load.getResult());
  // What only a branch reads is computed there: few take it.
  kernel.walk([&](scf::IfOp branch) {
    branch.walk([&](Operation *inside) { llvm::append_range(elsewhere, inside->getResults()); });
  });
  plan.drop(elsewhere, repeated);
}

/// The operand that all warps read, of a product in rows.
static Value rightOf(tile::DotOp dot, bool turned) { return turned ? dot.getA() : dot.getB(); }

/// Whether all warps multiply these rows of warps.
bool ThreadLowering::isHandedOn(Value right) const {
  auto it = inRows.find(right);
  return it != inRows.end() && !it->second && right.getDefiningOp<arith::TruncFOp>() && meetsRows(right);
}
bool ThreadLowering::meetsRows(Value right) const {
  return llvm::any_of(right.getUsers(), [&](Operation *user) {
    auto dot = dyn_cast<tile::DotOp>(user);
    auto it = dot ? inRows.find(dot.getResult()) : inRows.end();
    return it != inRows.end() && rightOf(dot, it->second) == right;
  });
}

/// Loads that only rows multiply, where warpgroups do: 64 rows a group.
void ThreadLowering::planPanels() {
  if (!limits.wgmma || threads % (4 * kWarp) != 0)
    return;
  kernel.walk([&](tile::LoadOp load) {
    VectorType type = tileType(load.getResult());
    if (load.getRows() || type.getRank() != 2 || !type.getElementType().isBF16() || type.getDimSize(0) % 16 != 0 ||
        type.getDimSize(1) % 16 != 0 || type.getDimSize(0) > 256 || type.getDimSize(1) > 256 ||
        load.getDims().back() + 1 != load.getSource().getType().getRank() ||
        load.getSource().getType().getStridesAndOffset().first.back() != 1 || load->use_empty())
      return;
    bool isLeft = false, isRight = false, others = false;
    bool all = llvm::all_of(load->getUsers(), [&](Operation *user) {
      auto dot = dyn_cast<tile::DotOp>(user);
      if (!dot)
        return others = true;
      auto it = inRows.find(dot.getResult());
      if (it == inRows.end() || dot.getA() == dot.getB() || load.getResult() == dot.getAcc())
        return false;
      // Rows that stay from one block to the next, or what they meet in their own; which others may be beside that.
      bool right = load.getResult() == rightOf(dot, it->second), here = dot->getBlock() == load->getBlock();
      (right ? isRight : isLeft) = true;
      return right == here || (here && meetsRows(load.getResult()));
    });
    // Rows that formulas read too are read of memory twice: a panel is only for products.
    bool twice = others && isLeft && !isRight && load->getParentOp() == kernel;
    if (all && (isLeft || isRight) && (!others || twice))
      panels.insert(load.getResult());
    if (twice)
      readTwice.insert(load);
  });
  kernel.walk([&](tile::DotOp dot) {
    if (auto it = inRows.find(dot.getResult()); it != inRows.end() && isHandedOn(rightOf(dot, it->second)))
      panels.insert(rightOf(dot, it->second));
  });
  // A left operand is read by ldmatrix where the right one is not wgmma's.
  for (size_t before = 0; before != panels.size();) {
    before = panels.size();
    kernel.walk([&](tile::DotOp dot) {
      auto it = inRows.find(dot.getResult());
      if (it == inRows.end())
        return;
      auto [left, right] = it->second ? std::pair(dot.getB(), dot.getA()) : std::pair(dot.getA(), dot.getB());
      if (panels.count(left) && !panels.count(right))
        panels.erase(left);
    });
  }
  // Sums that go from one loop to the next inside of another (heads that share keys) are more than wgmma leaves registers for.
  bool nested = llvm::any_of(panels, [&](Value load) {
    Operation *loop = load.getParentBlock()->getParentOp();
    return loop != kernel && loop->getParentOp() != kernel;
  });
  if (nested)
    panels.clear();
  patterned |= !panels.empty();
  readTwice.remove_if([&](tile::LoadOp load) { return !panels.erase(load.getResult()); });
}

/// Loads that products and formulas read become two, of which products read the first one: what stays lies together.
void ThreadLowering::splitLoads() {
  for (tile::LoadOp load : readTwice) {
    auto other = cast<tile::LoadOp>(OpBuilder(load).clone(*load));
    load.getResult().replaceUsesWithIf(other.getResult(),
                                       [](OpOperand &use) { return isa<tile::DotOp>(use.getOwner()); });
    panels.insert(other.getResult());
  }
}

/// The kernel as it was.
void ThreadLowering::joinLoads() {
  for (tile::LoadOp load : readTwice) {
    auto other = cast<tile::LoadOp>(load->getPrevNode());
    other.getResult().replaceAllUsesWith(load.getResult());
    other->erase();
  }
}

void ThreadLowering::awaitCopies(int64_t underWay) {
  NVVM::CpAsyncWaitGroupOp::create(b, loc, underWay);
  if (!panels.empty())
    orderForAsync();
}

/// What threads have written is ordered before what wgmma, or a box that is stored, reads behind the next barrier.
void ThreadLowering::orderForAsync() {
  NVVM::FenceProxyOp::create(b, loc, NVVM::ProxyKindAttr::get(b.getContext(), NVVM::ProxyKind::async_shared),
                             NVVM::SharedSpaceAttr::get(b.getContext(), NVVM::SharedSpace::shared_cta));
}

//===- Elements in registers --------------------------------------------------------------------------------------===//

/// body(row, column, half, number) of the elements of `columns` columns that this lane has.
void ThreadLowering::eachOwned(int64_t columns,
                               function_ref<void(Value row, Value column, int64_t half, size_t element)> body) {
  Value quad = add(divide(lane, 4), mul(warp, constant(kOwnRows))), pair = mul(remainder(lane, 4), constant(2));
  Value rowsOf[2] = {quad, add(quad, 8)};
  size_t element = 0;
  for (int64_t c = 0; c < columns; c += 8) {
    Value columnsOf[2] = {add(pair, c), add(pair, c + 1)}; // what depends on columns alone is evaluated once
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t i = 0; i < 2; ++i)
        body(rowsOf[half], columnsOf[i], half, element++);
  }
}

void ThreadLowering::eachOwned(VectorType type, bool turned, OwnedBody body) {
  bool isVector = type.getRank() == 1;
  if (inColumns.empty())
    return eachOwned(isVector ? 8 : type.getDimSize(turned ? 0 : 1), body);
  eachHeld(columnsOf(type), {}, /*pairs=*/false, [&](Value row, const Strip &strip, size_t element) {
    body(row, strip.column, static_cast<int64_t>(element / 2 % 2), element);
  });
}

/// The values in registers that a formula reads.
SmallVector<Value> ThreadLowering::ownedLeaves(ValueRange formulas) const {
  SmallVector<Value> leaves, work(formulas);
  DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (!isTile(v) || views.count(v) || !seen.insert(v).second)
      continue;
    if (owned.count(v))
      leaves.push_back(v);
    else if (Operation *op = v.getDefiningOp())
      llvm::append_range(work, op->getOperands());
  }
  return leaves;
}

/// The elements of a formula, which the rows of this lane have.
SmallVector<Value> ThreadLowering::ownedOf(Value v, bool turned) {
  settle(v);
  if (auto it = owned.find(v); it != owned.end())
    return it->second;
  VectorType type = tileType(v);
  Operation *op = v.getDefiningOp();
  bool isVector = type.getRank() == 1;
  SmallVector<Value> leaves = ownedLeaves(op && liesInRegisters(v) ? ValueRange(op->getOperands()) : ValueRange(v)),
                     values;
  llvm::for_each(leaves, [&](Value leaf) { settle(leaf, leaves); });
  startStrip();
  auto one = [&](Value row, Value column, int64_t half, size_t element) {
    if (isVector && element % 4 % 2 != 0)
      return;
    for (Value leaf : leaves)
      registers[leaf] = owned[leaf][tileType(leaf).getRank() == 1 ? half : element];
    SmallVector<Value, 1> lead;
    Strip strip{row, 0, type.getShape().back(), 0, 1};
    if (!isVector) {
      lead.push_back(turned ? column : row);
      strip.column = turned ? row : column;
    }
    values.push_back(op && liesInRegisters(v) ? evalOp(op, v, lead, strip) : eval(v, lead, strip));
  };
  eachOwned(type, turned, one);
  startStrip();
  for (Value leaf : leaves)
    registers.erase(leaf);
  return values;
}

/// Two neighbours at a time, rounded to bf16 if they are not, in a register.
SmallVector<Value> ThreadLowering::pairsOf(Value v, bool turned) {
  auto rounded = owned.count(v) ? nullptr : v.getDefiningOp<arith::TruncFOp>();
  SmallVector<Value> elements = ownedOf(rounded ? rounded.getIn() : v, turned), pairs;
  for (size_t i = 0; i < elements.size(); i += 2) {
    auto pairType = VectorType::get({2}, elements[i].getType());
    Value pair = vector::FromElementsOp::create(b, loc, pairType, ArrayRef<Value>(elements).slice(i, 2));
    if (!elementOf(pair).isBF16())
      pair = arith::TruncFOp::create(b, loc, VectorType::get({2}, b.getBF16Type()), pair);
    pair = vector::BitCastOp::create(b, loc, VectorType::get({1}, b.getI32Type()), pair);
    pairs.push_back(vector::ExtractOp::create(b, loc, pair, 0));
  }
  return pairs;
}

//===- The walk ---------------------------------------------------------------------------------------------------===//

/// A loop that carries only what lies in registers, and scalars.
LogicalResult ThreadLowering::lowerRowLoop(scf::ForOp op) {
  SmallVector<Value> inits;
  SmallVector<size_t> counts;
  {
    Phase phase(*this);
    for (auto [init, argument] : llvm::zip(op.getInitArgs(), op.getRegionIterArgs())) {
      SmallVector<Value> values =
          isTile(init) ? ownedOf(init, inRows.lookup(argument)) : SmallVector<Value>{scalars.lookup(init)};
      counts.push_back(values.size());
      llvm::append_range(inits, values);
    }
  }
  for (Value init : op.getInitArgs())
    release(init, op->getBlock());
  // Boxes lie at such places that 32 bits are enough.
  if (!panels.empty() && kernel->hasAttr(tile::kBoxesAttr) && op->getParentOp() == kernel) {
    int64_t taken = kBesideProducts; // registers: sums, and what was computed to be multiplied, two elements in each
    for (auto dot : op.getBody()->getOps<tile::DotOp>()) {
      taken += tileType(dot.getResult()).getNumElements() / threads;
      for (Value operand : {dot.getA(), dot.getB()})
        if (inRows.count(operand) && !panels.count(operand))
          taken += tileType(operand).getNumElements() / threads / 2;
    }
    if (taken <= std::min(kRegisters / threads, kMostRegisters))
      warp = alike(warp);
    for (Value bound : {op.getLowerBound(), op.getUpperBound()})
      scalars.map(bound, alike(scalars.lookup(bound)));
  }
  beforeLoop(op);
  auto isPinned = [](Buffer *buffer) { return buffer->pins > 0; };
  SmallVector<Buffer *> pinned = llvm::to_vector(llvm::make_filter_range(live, isPinned));
  auto loop = scf::ForOp::create(b, loc, scalars.lookup(op.getLowerBound()), scalars.lookup(op.getUpperBound()),
                                 scalars.lookup(op.getStep()), inits);
  loop->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  scalars.map(op.getInductionVar(), loop.getInductionVar());
  auto bind = [&](ValueRange values, ValueRange from) {
    for (auto [v, count] : llvm::zip(values, counts)) {
      if (isTile(v))
        owned[v] = SmallVector<Value>(from.take_front(count));
      else
        scalars.map(v, from.front());
      from = from.drop_front(count);
    }
  };
  bind(op.getRegionIterArgs(), loop.getRegionIterArgs());
  for (Value argument : op.getRegionIterArgs())
    usesLeft[argument] = std::distance(argument.use_begin(), argument.use_end());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(loop.getBody());
    beginLoop();
    enterIteration(op, loop.getInductionVar());
    if (failed(lowerBlock(*op.getBody())))
      return failure();
    SmallVector<Value> yields;
    {
      Phase phase(*this);
      for (auto [yielded, argument] : llvm::zip(op.getYieldedValues(), op.getRegionIterArgs()))
        llvm::append_range(yields, isTile(yielded) ? ownedOf(yielded, inRows.lookup(argument))
                                                   : SmallVector<Value>{scalars.lookup(yielded)});
    }
    Block *outer = std::exchange(current, op.getBody());
    for (Value yielded : op.getYieldedValues())
      release(yielded, op.getBody());
    current = outer;
    leaveIteration(op);
    endIteration();
    scf::YieldOp::create(b, loc, yields);
  }
  endLoop();
  // What its iterations handed on.
  for (Buffer *buffer : llvm::to_vector(llvm::make_filter_range(live, isPinned)))
    if (!llvm::is_contained(pinned, buffer)) {
      --buffer->pins;
      giveBack(buffer);
    }
  afterLoop(op);
  bind(op.getResults(), loop.getResults());
  return success(!failedOnce);
}

/// A branch between formulas.
LogicalResult ThreadLowering::lowerRowBranch(scf::IfOp op) {
  SmallVector<Type> types;
  SmallVector<size_t> counts;
  for (Value result : op.getResults()) {
    size_t count = 1;
    if (VectorType type = tileType(result))
      count = type.getRank() == 1 ? 2 : static_cast<size_t>(type.getDimSize(inRows.lookup(result) ? 0 : 1)) / 2;
    counts.push_back(count);
    types.append(count, isTile(result) ? elementOf(result) : result.getType());
  }
  settleReads(op.getThenRegion());
  settleReads(op.getElseRegion());
  auto branch = scf::IfOp::create(b, loc, types, scalars.lookup(op.getCondition()), /*withElseRegion=*/true);
  for (auto [from, to] : {std::pair(&op.getThenRegion(), &branch.getThenRegion()),
                          std::pair(&op.getElseRegion(), &branch.getElseRegion())}) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(&to->front());
    Block &body = from->front();
    beginBranch();
    if (failed(lowerBlock(body)))
      return failure();
    SmallVector<Value> yields;
    {
      Phase phase(*this);
      for (auto [result, yielded] : llvm::zip(op.getResults(), body.getTerminator()->getOperands()))
        llvm::append_range(yields, isTile(yielded) ? ownedOf(yielded, inRows.lookup(result))
                                                   : SmallVector<Value>{scalars.lookup(yielded)});
    }
    Block *outer = std::exchange(current, &body);
    for (Value yielded : body.getTerminator()->getOperands())
      release(yielded, &body);
    current = outer;
    endBranch();
    scf::YieldOp::create(b, loc, yields);
  }
  ValueRange made = branch.getResults();
  for (auto [result, count] : llvm::zip(op.getResults(), counts)) {
    if (isTile(result))
      owned[result] = SmallVector<Value>(made.take_front(count));
    else
      scalars.map(result, made.front());
    made = made.drop_front(count);
  }
  return success(!failedOnce);
}

/// By products, and by the stores beside them, or by a store alone: two at a time.
static bool roundedWhereRead(Operation *op) {
  return isa<arith::TruncFOp>(op) && tileType(op->getResult(0)).getRank() == 2 &&
         (op->hasOneUse() || llvm::any_of(op->getUsers(), [](Operation *user) { return isa<tile::DotOp>(user); })) &&
         llvm::all_of(op->getUsers(), [](Operation *user) { return isa<tile::DotOp, tile::StoreOp>(user); });
}

bool ThreadLowering::lowerInRegisters(Operation *op) {
  if (auto it = fetched.find(op); it != fetched.end()) {
    auto load = cast<tile::LoadOp>(op);
    accesses[op] = access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
    if (isHeldInRows(load.getResult()))
      holdInRows(load.getResult(), it->second);
    else
      own(load.getResult(), it->second);
    return true;
  }
  if (auto store = dyn_cast<tile::StoreOp>(op); store && storeOuterSum(store))
    return true;
  if (lowerSumRows(op))
    return true;
  if (inRows.empty())
    return lowerInColumns(op);
  if (auto load = dyn_cast<tile::LoadOp>(op); load && panels.count(load.getResult())) {
    accesses[op] = access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
    // What rows meet in this block is copied where the first of them is computed.
    if (!meetsRows(load.getResult())) {
      View view = panelView(allocatePanel(tileType(load.getResult())));
      fillPanel(view, load);
      own(load.getResult(), view);
    }
    return true;
  }
  if (auto store = dyn_cast<tile::StoreOp>(op)) {
    if (!inRows.count(store.getValue()))
      return false;
    storeOwned(store);
    releaseOperands(op);
    return true;
  }
  if (auto slice = dyn_cast<tile::SliceOp>(op);
      slice && slice.getSource().getDefiningOp<tile::LoadOp>() && isHeldInRows(slice.getResult())) {
    auto from = views.find(slice.getSource());
    if (from == views.end() || !isShared(from->second))
      return false;
    holdInRows(slice.getResult(), from->second, static_cast<int64_t>(slice.getOffset()));
    releaseOperands(op);
    return true;
  }
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    if (llvm::none_of(branch.getResults(), [&](Value v) { return inRows.count(v); }))
      return false;
    if (failed(lowerRowBranch(branch)))
      failedOnce = true;
    return true;
  }
  if (auto reduce = dyn_cast<tile::ReduceOp>(op);
      reduce && !isTile(reduce.getResult()) && inRows.count(reduce.getSource()) && !views.count(reduce.getSource()))
    own(reduce.getSource(), handOnVector(reduce.getSource()));
  if (op->getNumResults() != 1 || !inRows.count(op->getResult(0)) || isa<scf::ForOp>(op))
    return false;
  Value result = op->getResult(0);
  bool turned = inRows.lookup(result);
  if (auto dot = dyn_cast<tile::DotOp>(op)) {
    owned[result] = multiplyOwned(dot, turned);
  } else if (auto transpose = dyn_cast<tile::TransposeOp>(op)) {
    owned[result] = ownedOf(transpose.getSource(), !turned);
  } else if (auto reduce = dyn_cast<tile::ReduceOp>(op)) {
    Phase phase(*this);
    owned[result] = reduceOwned(reduce);
  } else if (auto sum = dyn_cast<tile::CumsumOp>(op)) {
    Phase phase(*this);
    owned[result] = addUpOwned(sum);
  } else if (auto taken = dyn_cast<tile::RowsOp>(op)) {
    Phase phase(*this);
    owned[result] = takeOwned(taken);
  } else if (liesAcross(result)) {
    own(result, handOnVector(result));
  } else if (isHandedOn(result)) { // here, not where all warps would wait for it
    SmallVector<Buffer *> taken;
    own(result, handOn(result, taken));
    ++taken.front()->pins; // products of it may be under way until the iteration ends
  } else if (!roundedWhereRead(op)) {
    Phase phase(*this);
    owned[result] = ownedOf(result, turned);
  } else {
    return true;
  }
  releaseOperands(op);
  return true;
}
