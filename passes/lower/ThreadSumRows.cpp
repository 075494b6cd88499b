//===- ThreadSumRows.cpp - what is reduced along the rows of sums in registers ------------------------------------===//
//
//   C = sum_k A B;   r_i = f(max_j C_ij);   P_ij = exp(C_ij - r_i);   s_i = sum_j P_ij;   t_i = C_i,l(i)      (a projection on words, and what its softmax needs)
//
// A sum of products (ThreadProducts.cpp) that one store takes from registers may be read by such formulas too: of each row that a thread has elements of,
// it reduces its own, in four chains of which none waits for another; then the four lanes do that share a row. Where warps share a row, each leaves its
// part in shared memory, and all add up the parts in the same order. What is reduced is the number that is stored, unless the store rounds it. What is made of
// such numbers, row by row (r), every lane of the row makes by itself.
//
// Where all read a formula of the sum alone (C' = c tanh(C / c)), its numbers take the place of the sum's, behind the loop.
// The store may take a formula in the place of the sum (P, or P (1 - (C' / c)^2)): it is kept in the sum's registers, and computed once, with what is reduced last. Of a row one element may be
// picked (t), by a number that is known before the sum is: its thread looks for it among its own, and threads that do not have it look at none.
//
//   y, z = f(C, X, n), g(C, X, n);   s_i = sum_j h(C, X, n)_ij        (formulas at the end of a sum, of tiles X in memory and of numbers n of rows)
//
// What several stores take of a sum is made of each element once, with what they read. So what is added up of such formulas is added up there, by the thread that has the
// element, and stored with them; numbers of rows wait in a register each.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/LowerKernels.h"
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

static constexpr size_t kChains = 4;

/// What a store rounds.
static Value unrounded(Value v) {
  auto round = v.getDefiningOp<arith::TruncFOp>();
  return round ? round.getIn() : v;
}

/// Numbers of rows that need nothing but memory that stays as it is: the tiles that they are computed from.
bool ThreadLowering::isKnownBefore(Value v, Operation *reader, llvm::SetVector<Value> &from) const {
  Operation *op = v.getDefiningOp();
  if (!isTile(v) || from.contains(v) || isa_and_nonnull<arith::ConstantOp, tile::IotaOp>(op))
    return true;
  if (!op || op->getBlock() != reader->getBlock() || !op->isBeforeInBlock(reader) || tileType(v).getRank() != 1)
    return false;
  auto load = dyn_cast<tile::LoadOp>(op);
  bool known = load ? !load.getRows() && plan.staysInMemory(v) : keepsPlaces(op) || isa<vector::BroadcastOp>(op);
  if (!known || !llvm::all_of(op->getOperands(), [&](Value operand) { return isKnownBefore(operand, reader, from); }))
    return false;
  from.insert(v);
  return true;
}

/// What is reduced of sums and stored is at hand where it is stored; numbers of rows are, before there are sums.
void ThreadLowering::planSums() {
  llvm::SetVector<Value> atHand;
  kernel.walk([&](scf::ForOp loop) {
    if (loop.getNumResults() != 1 || loop.getBody()->getOps<tile::DotOp>().empty())
      return;
    SumReads reads, end;
    if (!collectReads(loop.getResult(0), reads, /*planned=*/false)) {
      // Whoever adds up makes each element with those that store.
      if (collectEnd(loop.getResult(0), end, /*planned=*/false) && !end.ends.empty())
        atHand.insert(end.formulas.begin(), end.formulas.end());
      return;
    }
    // What is made of each element beside what is reduced of it is made then.
    if (reads.made)
      atHand.insert(reads.formulas.begin(), reads.formulas.end());
    atHand.insert(reads.ofBase.begin(), reads.ofBase.end());
    atHand.insert(reads.known.begin(), reads.known.end());
    atHand.insert(reads.madeOfRows.begin(), reads.madeOfRows.end());
  });
  plan.forget(atHand.getArrayRef());
}

/// What is reduced first, if it is a formula of the sum that all who read the sum read in its place.
void ThreadLowering::findBase(Value sum, SumReads &reads) const {
  Operation *first = nullptr;
  llvm::SetVector<Value> seen;
  SmallVector<Value> work = {sum};
  while (!work.empty()) {
    Value v = work.pop_back_val();
    for (Operation *user : v.getUsers())
      if (auto reduce = dyn_cast<tile::ReduceOp>(user)) {
        if (user->getBlock() == sum.getParentBlock() && (!first || user->isBeforeInBlock(first)))
          first = user;
      } else if (keepsPlaces(user) && user->getNumResults() == 1 && seen.insert(user->getResult(0))) {
        work.push_back(user->getResult(0));
      }
  }
  Value base = first ? cast<tile::ReduceOp>(first).getSource() : sum;
  if (base == sum || !getElementTypeOrSelf(base).isF32() || !getElementTypeOrSelf(sum).isF32())
    return;
  llvm::SetVector<Value> cone;
  cone.insert(base);
  for (size_t i = 0; i < cone.size(); ++i)
    for (Value operand : cone[i].getDefiningOp()->getOperands()) {
      Operation *op = operand.getDefiningOp();
      if (operand == sum || !isTile(operand) || isa_and_nonnull<arith::ConstantOp, vector::BroadcastOp>(op))
        continue;
      if (!op || !keepsPlaces(op) || op->getNumResults() != 1)
        return;
      cone.insert(operand);
    }
  auto isInside = [&](Operation *user) { return user->getNumResults() == 1 && cone.contains(user->getResult(0)); };
  for (Value v : llvm::concat<const Value>(llvm::ArrayRef(sum), cone))
    if (v != base && !llvm::all_of(v.getUsers(), isInside))
      return;
  reads.base = base;
  reads.ofBase = std::move(cone);
}

/// Whether a formula of this tile and of numbers that were reduced before `makes` is.
static bool isMadeOf(Value made, Value origin, tile::ReduceOp makes) {
  llvm::SetVector<Value> seen;
  seen.insert(made);
  for (size_t i = 0; i < seen.size(); ++i) {
    Value v = seen[i];
    Operation *op = v.getDefiningOp();
    if (v == origin || !isTile(v) || isa_and_nonnull<arith::ConstantOp, vector::BroadcastOp>(op))
      continue;
    if (auto expand = dyn_cast_or_null<tile::ExpandOp>(op)) {
      Operation *rows = expand.getSource().getDefiningOp();
      if (!rows || rows == makes || rows->getBlock() != makes->getBlock() || !rows->isBeforeInBlock(makes))
        return false;
      continue;
    }
    if (!op || !keepsPlaces(op))
      return false;
    seen.insert(op->operand_begin(), op->operand_end());
  }
  return true;
}

/// `planned`: what is kept in shared memory is decided.
bool ThreadLowering::collectReads(Value sum, SumReads &reads, bool planned) const {
  findBase(sum, reads);
  SmallVector<Value> work = {sum};
  SmallVector<tile::ReduceOp> reduced;
  reads.formulas.insert(sum);
  Operation *first = nullptr; // that reduces
  while (!work.empty()) {
    Value v = work.pop_back_val();
    bool isRow = tileType(v).getRank() == 1;
    for (Operation *user : v.getUsers()) {
      if (user->getBlock() != sum.getParentBlock())
        return false;
      if (auto store = dyn_cast<tile::StoreOp>(user)) {
        bool wanted =
            isRow ? store.getValue() == v : reads.stores.empty() && plan.group(store).size() == 1 && !store.getRows();
        if (!wanted)
          return false;
        if (!isRow)
          reads.stores.push_back(store);
        else if (store.getRows())
          reads.numbers.insert(store.getRows());
        continue;
      }
      if (user->getNumResults() != 1)
        return false;
      Value result = user->getResult(0);
      auto reduce = dyn_cast<tile::ReduceOp>(user);
      auto expand = dyn_cast<tile::ExpandOp>(user);
      bool isFormula = isRow ? expand && expand.getAxis() == 1 : keepsPlaces(user);
      if (reduce && !isRow && reduce.getAxis() == 1) {
        if (!reads.rows.insert(result))
          continue;
        work.push_back(result);
        reduced.push_back(reduce);
        first = !first || user->isBeforeInBlock(first) ? user : first;
        if (std::optional<Pick> pick = pickBy(reduce))
          reads.numbers.insert(pick->columns);
      } else if (isRow && keepsPlaces(user) && getElementTypeOrSelf(result).isF32() &&
                 tileType(result).getShape() == tileType(v).getShape()) {
        if (llvm::is_contained(reads.madeOfRows, result))
          continue;
        work.push_back(result);
        reads.madeOfRows.push_back(result);
      } else if (isFormula && tileType(result).getShape() == tileType(sum).getShape()) {
        if (reads.formulas.insert(result))
          work.push_back(result);
      } else {
        return false;
      }
    }
  }
  // What is stored is the sum, or what was reduced of it, rounded or not.
  tile::StoreOp store = reads.stores.empty() ? tile::StoreOp() : reads.stores.front();
  Value origin = reads.base ? reads.base : sum;
  if (Value made = store ? unrounded(store.getValue()) : origin; made != origin) {
    auto makes = llvm::max_element(reduced, [](tile::ReduceOp a, tile::ReduceOp b) { return a->isBeforeInBlock(b); });
    if (makes == reduced.end() || !(*makes)->isBeforeInBlock(store) || !getElementTypeOrSelf(made).isF32() ||
        !isMadeOf(made, origin, *makes))
      return false;
    reads.made = made;
    reads.makes = *makes;
  }
  for (Value numbers : reads.numbers)
    if (!first || !isKnownBefore(numbers, first, reads.known))
      return false;
  llvm::sort(reads.madeOfRows, [](Value a, Value b) { return a.getDefiningOp()->isBeforeInBlock(b.getDefiningOp()); });
  for (Value made : reads.madeOfRows)
    for (Value operand : made.getDefiningOp()->getOperands())
      if (!operand.getDefiningOp<arith::ConstantOp>() && !reads.rows.contains(operand) &&
          !llvm::is_contained(reads.madeOfRows, operand))
        return false;
  reads.formulas.insert(reads.known.begin(), reads.known.end());
  return (store || !reads.rows.empty()) &&
         (!planned || llvm::none_of(llvm::concat<const Value>(reads.formulas, reads.madeOfRows),
                                    [&](Value v) { return v != sum && plan.isKept(v); }));
}

/// Behind the loop.
void ThreadLowering::keepSums(const Product &p, Value result, SmallVector<Value> sums, const SumReads &reads) {
  auto held = std::make_shared<const LoopSums>(LoopSums{p, result, std::move(sums), reads});
  loopSums[result] = held;
  if (!reads.base)
    return;
  SmallVector<Value> made;
  {
    Phase phase(*this);
    size_t number = 0;
    eachSum(p, [&](Value row, const Strip &strip) {
      enterSum(*held, number++);
      made.push_back(widened(eval(reads.base, {row}, strip)));
    });
    leaveSums(*held);
  }
  loopSums.erase(result);
  loopSums[reads.base] = std::make_shared<const LoopSums>(LoopSums{p, reads.base, std::move(made), reads});
}

/// A group of stores takes formulas of the sum, or of slices of it that are as wide, and of tiles in memory, each element at its place, and of numbers of rows.
/// `planned`: what is kept in shared memory is decided.
bool ThreadLowering::collectEnd(Value sum, SumReads &reads, bool planned) const {
  Block *block = sum.getParentBlock();
  for (Operation *user : sum.getUsers())
    if (auto slice = dyn_cast<tile::SliceOp>(user))
      reads.parts.push_back({slice.getResult(), static_cast<int64_t>(slice.getOffset())});
  if (reads.parts.empty())
    reads.parts.push_back({sum, 0});
  else if (!llvm::all_of(sum.getUsers(), [](Operation *user) { return isa<tile::SliceOp>(user); }))
    return false;
  llvm::sort(reads.parts, [](auto &x, auto &y) { return x.second < y.second; });
  VectorType type = tileType(reads.parts.front().first);
  constexpr int64_t blockColumns = 8; // a thread has the same columns of each
  // Down to the stores: all who read the sum are among what these are computed from.
  SmallVector<Value> work;
  for (auto [part, first] : reads.parts) {
    if (tileType(part).getShape() != type.getShape() || first % blockColumns != 0)
      return false;
    work.push_back(part);
    reads.formulas.insert(part);
  }
  tile::StoreOp last;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    for (Operation *user : v.getUsers()) {
      if (user->getBlock() != block)
        return false;
      if (auto store = dyn_cast<tile::StoreOp>(user)) {
        last = !last || last->isBeforeInBlock(store) ? store : last;
        continue;
      }
      if (auto reduce = dyn_cast<tile::ReduceOp>(user)) {
        if (reduce.getKind() != tile::ReduceKind::add || reduce.getAxis() != 1 ||
            !getElementTypeOrSelf(reduce.getResult()).isF32() || !reduce->hasOneUse())
          return false;
        reads.ends.push_back(reduce);
        continue;
      }
      if (!keepsPlaces(user) || user->getNumResults() != 1 ||
          tileType(user->getResult(0)).getShape() != type.getShape() || (planned && plan.isKept(user->getResult(0))))
        return false;
      if (reads.formulas.insert(user->getResult(0)))
        work.push_back(user->getResult(0));
    }
  }
  if (!last || plan.group(last).empty())
    return false;
  reads.stores.assign(plan.group(last).begin(), plan.group(last).end());
  // Sums of rows are stored with the group, where it is known by then where.
  for (tile::ReduceOp reduce : reads.ends) {
    auto store = dyn_cast<tile::StoreOp>(*reduce->user_begin());
    auto isThere = [&](Value v) {
      Operation *maker = v.getDefiningOp();
      return isTile(v) || !maker || maker->getBlock() != block || maker->isBeforeInBlock(last);
    };
    if (!store || store->getBlock() != block || store.getRows() || !reduce->isBeforeInBlock(last) ||
        !last->isBeforeInBlock(store) || !llvm::all_of(store->getOperands(), isThere) ||
        !plan.breaks(reduce.getSource(), /*definition=*/true).empty())
      return false;
    work.push_back(reduce.getSource());
  }
  // And up from them.
  llvm::SetVector<Value> seen;
  for (tile::StoreOp store : reads.stores) {
    if (store.getRows() || tileType(store.getValue()).getShape() != type.getShape() ||
        !plan.breaks(store.getValue(), /*definition=*/true).empty())
      return false;
    work.push_back(store.getValue());
  }
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (!isTile(v) || !seen.insert(v))
      continue;
    Operation *op = v.getDefiningOp();
    if (llvm::any_of(reads.parts, [&](auto &part) { return part.first == v; }) ||
        isa_and_nonnull<arith::ConstantOp>(op))
      continue;
    if (auto expand = dyn_cast_or_null<tile::ExpandOp>(op); expand && expand.getAxis() == 1) {
      if (!isKnownBefore(expand.getSource(), last, reads.known))
        return false;
      reads.numbers.insert(expand.getSource());
      continue;
    }
    auto load = dyn_cast_or_null<tile::LoadOp>(op);
    if (load ? load.getRows() || !plan.staysInMemory(v) : !op || !keepsPlaces(op))
      return false;
    if (!load)
      work.append(op->operand_begin(), op->operand_end());
  }
  // Of all formulas, one group of stores is computed.
  auto stored = [&](Operation *user) {
    return isa<tile::StoreOp>(user)    ? llvm::is_contained(reads.stores, user)
           : isa<tile::ReduceOp>(user) ? llvm::is_contained(reads.ends, user)
                                       : user->getNumResults() == 1 && seen.contains(user->getResult(0));
  };
  if (!llvm::all_of(reads.formulas, [&](Value v) { return llvm::all_of(v.getUsers(), stored); }))
    return false;
  reads.formulas.insert(seen.begin(), seen.end());
  reads.formulas.insert(reads.known.begin(), reads.known.end());
  for (tile::ReduceOp reduce : reads.ends)
    reads.rows.insert(reduce.getResult());
  return heldIn(reads.formulas.getArrayRef()).empty();
}

std::optional<ThreadLowering::SumReads> ThreadLowering::readsOf(Value sum, const Product &p) const {
  SumReads reads, end;
  auto isRead = [](Value formula) { return formula.getDefiningOp<tile::LoadOp>() != nullptr; };
  if (tile::StoreOp store = plan.storeOf(sum)) {
    // What one store's formulas read of memory may come in boxes, as that of several (ThreadEndReads.cpp).
    if (kernel->hasAttr(tile::kBoxesAttr) && collectEnd(sum, end) && llvm::any_of(end.formulas, isRead))
      return end;
    reads.stores.push_back(store);
    return heldIn({store.getValue()}).empty() ? std::optional(reads) : std::nullopt;
  }
  if (collectReads(sum, reads, /*planned=*/true))
    return reads;
  if (!collectEnd(sum, end) || ((end.parts.size() > 1 || !end.ends.empty()) && p.across > 1))
    return std::nullopt;
  return end;
}

/// Which of the warps that share a row this one is.
Value ThreadLowering::besideOf(const Product &p) { return remainder(p.wgmma ? divide(warp, 4) : placeOf(p), p.across); }

/// At the element numbered `at` of a thread's sums, in this row of them: what is at hand of formulas and of rows.
void ThreadLowering::enterSum(const LoopSums &held, size_t at) {
  size_t inRow = rowOfSum(at, blocksOf(held.product));
  for (const auto &[tile, sums] : loopSums)
    if (sums->product.dot == held.product.dot)
      registers[tile] = sums->sums[at];
  for (Value rows : llvm::concat<const Value>(held.reads.rows, held.reads.madeOfRows, held.reads.numbers))
    if (auto it = sumRows.find(rows); it != sumRows.end())
      registers[rows] = it->second->rows[inRow];
  startStrip();
}

void ThreadLowering::leaveSums(const LoopSums &held) {
  startStrip();
  for (const auto &[tile, sums] : loopSums)
    registers.erase(tile);
  for (Value rows : llvm::concat<const Value>(held.reads.rows, held.reads.madeOfRows, held.reads.numbers))
    registers.erase(rows);
}

/// What is made of the rows that are at hand by now, and of no others.
void ThreadLowering::makeRows(const std::shared_ptr<const LoopSums> &held) {
  for (Value made : held->reads.madeOfRows) {
    SmallVector<Value> operands;
    for (Value operand : made.getDefiningOp()->getOperands())
      if (!operand.getDefiningOp<arith::ConstantOp>())
        operands.push_back(operand);
    if (sumRows.count(made) || !llvm::all_of(operands, [&](Value operand) { return sumRows.count(operand); }))
      continue;
    SmallVector<Value> rows(sumRows.lookup(operands.front())->rows.size());
    for (auto [i, row] : llvm::enumerate(rows)) {
      startStrip();
      for (Value operand : operands)
        registers[operand] = sumRows.lookup(operand)->rows[i];
      row = eval(made, {}, {constant(0), 0, held->product.m, 0, 1});
    }
    startStrip();
    for (Value operand : operands)
      registers.erase(operand);
    sumRows[made] = std::make_shared<const SumRows>(SumRows{held, std::move(rows)});
  }
}

/// What is known of rows before sums are looked at: asked for first, so that it arrives meanwhile.
void ThreadLowering::readNumbers(const std::shared_ptr<const LoopSums> &held) {
  const Product &p = held->product;
  if (llvm::all_of(held->reads.numbers, [&](Value numbers) { return sumRows.count(numbers); }))
    return;
  for (Value tile : held->reads.known)
    if (auto load = tile.getDefiningOp<tile::LoadOp>())
      accesses[load] = access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
  Phase phase(*this);
  SmallVector<SmallVector<Value>> found(held->reads.numbers.size());
  size_t number = 0;
  eachSum(p, [&](Value row, const Strip &) {
    if (rowOfSum(number++, blocksOf(p)) != found.front().size())
      return;
    startStrip();
    for (auto [numbers, rows] : llvm::zip_equal(held->reads.numbers, found))
      rows.push_back(eval(numbers, {}, {row, 0, p.m, 0, 1}));
  });
  startStrip();
  for (auto [numbers, rows] : llvm::zip_equal(held->reads.numbers, found))
    sumRows[numbers] = std::make_shared<const SumRows>(SumRows{held, std::move(rows)});
}

/// Of each row its element in the column numbered there, 0 in threads that do not have it.
SmallVector<Value> ThreadLowering::pickSums(const LoopSums &held, Value columns, Value x) {
  const Product &p = held.product;
  int64_t blocks = blocksOf(p);
  SmallVector<Value> firsts(2 * p.rows), found;
  SmallVector<SmallVector<std::pair<Value, Strip>>> places(2 * p.rows);
  size_t number = 0;
  eachSum(p, [&](Value row, const Strip &strip) { places[rowOfSum(number++, blocks)].push_back({row, strip}); });
  Type i32 = b.getI32Type();
  for (auto [inRow, places] : llvm::enumerate(places)) {
    auto asNumber = [&](int64_t n) { return arith::ConstantOp::create(b, loc, b.getIntegerAttr(i32, n)); };
    Value first = arith::IndexCastOp::create(b, loc, i32, places.front().second.column);
    Value away = arith::SubIOp::create(b, loc, sumRows.lookup(columns)->rows[inRow], first);
    // Two of every eight columns, in so many blocks.
    Value rest = arith::AndIOp::create(b, loc, away, asNumber(7));
    Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, away, asNumber(8 * blocks));
    Value own = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, rest, asNumber(2));
    Type element = storageType(elementOf(x));
    auto branch = scf::IfOp::create(b, loc, element, arith::AndIOp::create(b, loc, inside, own), true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(branch.elseBlock());
    scf::YieldOp::create(b, loc, ValueRange{zero(element)});
    b.setInsertionPointToEnd(branch.thenBlock());
    Value picked;
    for (auto [i, place] : llvm::enumerate(places)) {
      auto inColumns = static_cast<int64_t>(i);
      enterSum(held, static_cast<size_t>(inRow / 2 * 4 * blocks + inColumns / 2 * 4 + inRow % 2 * 2 + inColumns % 2));
      Value value = widened(eval(x, {place.first}, place.second));
      Value here =
          arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, away, asNumber(inColumns / 2 * 8 + inColumns % 2));
      picked = picked ? arith::SelectOp::create(b, loc, here, value, picked).getResult() : value;
    }
    leaveSums(held);
    scf::YieldOp::create(b, loc, ValueRange{picked});
    found.push_back(branch.getResult(0));
  }
  return found;
}

/// Of each row that this thread has elements of. `kept`: what is reduced, element by element, if it is asked for.
SmallVector<Value> ThreadLowering::reduceSums(const LoopSums &held, tile::ReduceOp op, SmallVectorImpl<Value> *kept) {
  const Product &p = held.product;
  Type element = elementOf(op.getResult()), stored = storageType(element);
  SmallVector<SmallVector<Value, kChains>> chains(2 * p.rows, SmallVector<Value, kChains>(kChains));
  SmallVector<Value> places(2 * p.rows), totals;
  std::optional<Pick> pick = pickBy(op);
  if (pick && sumRows.count(pick->columns)) {
    Phase phase(*this);
    size_t number = 0;
    eachSum(p, [&](Value row, const Strip &) { places[rowOfSum(number++, blocksOf(p))] = row; });
    for (Value picked : pickSums(held, pick->columns, pick->x))
      totals.push_back(allLanes(op.getKind(), picked, 4));
  } else {
    Phase phase(*this);
    size_t number = 0;
    eachSum(p, [&](Value row, const Strip &strip) {
      size_t at = number++, inRow = rowOfSum(at, blocksOf(p));
      places[inRow] = row;
      enterSum(held, at);
      Value value = widened(eval(op.getSource(), {row}, strip));
      if (kept)
        kept->push_back(held.reads.made == op.getSource() ? value
                                                          : addUpNow(widened(eval(held.reads.made, {row}, strip))));
      Value &chain = chains[inRow][(at / 4 % 2) * 2 + at % 2];
      chain = chain ? combine(op.getKind(), chain, value) : value;
    });
    leaveSums(held);
    for (SmallVector<Value, kChains> &row : chains) {
      llvm::erase_if(row, [](Value chain) { return !chain; }); // of a narrow tile
      for (; row.size() > 1; row.resize(row.size() / 2))
        for (size_t i = 0; i < row.size() / 2; ++i)
          row[i] = combine(op.getKind(), row[2 * i], row[2 * i + 1]);
      totals.push_back(allLanes(op.getKind(), row.front(), 4));
    }
  }
  if (p.across > 1) {
    auto type = VectorType::get({p.across, p.m}, stored);
    View parts = viewOf(allocate(type), type);
    auto placeOfRow = [&](Value row) { return Strip{row, 0, p.m, 0, 1}; };
    {
      Phase phase(*this);
      onlyIf(less(remainder(lane, 4), 1), [&] {
        for (auto [row, total] : llvm::zip(places, totals))
          writeView(parts, {besideOf(p)}, placeOfRow(row), total, false);
      });
    }
    {
      Phase phase(*this);
      for (auto [row, total] : llvm::zip(places, totals))
        for (int64_t i = 0; i < p.across; ++i) {
          Value part = readView(parts, stored, {constant(i)}, placeOfRow(row));
          total = i ? combine(op.getKind(), total, part) : part;
        }
    }
    giveBack(parts.buffer);
  }
  if (element != stored)
    for (Value &total : totals)
      total = arith::TruncFOp::create(b, loc, element, total);
  return totals;
}

/// By one of the lanes that have a row.
void ThreadLowering::storeSumRows(tile::StoreOp store, const SumRows &rows) {
  const Product &p = rows.held->product;
  accesses[store] = access(store.getTarget(), store.getIndices(), store.getDims(), store.getLimit());
  std::shared_ptr<const SumRows> numbers = store.getRows() ? sumRows.lookup(store.getRows()) : nullptr;
  Phase phase(*this);
  Value first = less(remainder(lane, 4), 1);
  if (p.across > 1)
    first = arith::AndIOp::create(b, loc, first, less(besideOf(p), 1));
  onlyIf(first, [&] {
    size_t number = 0, written = 0;
    eachSum(p, [&](Value row, const Strip &) {
      size_t at = number++, inRow = rowOfSum(at, blocksOf(p));
      if (inRow != written)
        return;
      ++written;
      startStrip();
      if (numbers)
        registers[store.getRows()] = numbers->rows[inRow];
      writeArgument(store, {}, {row, 0, p.m, 0, 1}, rows.rows[inRow]);
    });
  });
  startStrip();
  if (numbers)
    registers.erase(store.getRows());
}

/// A number as far as it has come. Without this the compiler makes it where it is read, and keeps all that it is made of till then.
Value ThreadLowering::addUpNow(Value sum) {
  return LLVM::InlineAsmOp::create(b, loc, TypeRange{sum.getType()}, ValueRange{sum}, kForget, "=f,f",
                                   /*has_side_effects=*/true, /*is_align_stack=*/false,
                                   LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr())
      .getResult(0);
}

/// One element, or two neighbours, of the sums from number `at` on.
void ThreadLowering::addToEnds(const LoopSums &held, EndSums &sums, size_t at, ArrayRef<Value> lead,
                               const Strip &strip) {
  size_t half = at / 2 % 2;
  sums.totals.resize(held.reads.ends.size());
  for (auto [op, totals] : llvm::zip_equal(held.reads.ends, sums.totals)) {
    tile::ReduceOp reduce = op;
    Value value = eval(reduce.getSource(), lead, strip);
    if (strip.width)
      value = combine(reduce.getKind(), vector::ExtractOp::create(b, loc, value, 0),
                      vector::ExtractOp::create(b, loc, value, 1));
    totals[half] = totals[half] ? combine(reduce.getKind(), totals[half], value) : value;
    totals[half] = addUpNow(totals[half]);
  }
}

/// What the four lanes of a row have added up of block number `r` of 64 rows of a warpgroup, by one of them. Where that goes is computed here, from
/// numbers that are at hand anyway: formulas before it need the registers.
void ThreadLowering::storeEnds(const LoopSums &held, const EndSums &sums, int64_t r) {
  if (sums.totals.empty())
    return;
  std::array<Value, 2> numbers = {lane, warp};
  IRMapping here = scalars;
  lane = forget(lane), warp = forget(warp);
  SmallVector<Value> places; // of a thread's rows
  eachSum(held.product, [&](Value row, const Strip &) { places.push_back(row); });
  auto inBlock = static_cast<size_t>(blocksOf(held.product) * 4);
  for (auto [op, totals] : llvm::zip_equal(held.reads.ends, sums.totals)) {
    tile::ReduceOp reduce = op;
    auto store = cast<tile::StoreOp>(*reduce->user_begin());
    for (Value index : store.getIndices())
      if (Operation *maker = index.getDefiningOp(); maker && maker->getBlock() == store->getBlock())
        lowerScalars({maker});
    accesses[store] = access(store.getTarget(), store.getIndices(), store.getDims(), store.getLimit());
    SmallVector<Value, 2> rows;
    for (Value total : totals)
      rows.push_back(allLanes(reduce.getKind(), total, 4));
    onlyIf(less(remainder(lane, 4), 1), [&] {
      for (auto [half, total] : llvm::enumerate(rows)) {
        startStrip();
        writeArgument(store, {}, {places[static_cast<size_t>(r) * inBlock + half * 2], 0, held.product.m, 0, 1}, total);
      }
    });
    startStrip();
  }
  scalars = here;
  lane = numbers[0], warp = numbers[1];
}

/// Element by element, of one block of rows or of all, as their formulas are stored so.
void ThreadLowering::storeEnds(const LoopSums &held, std::optional<int64_t> block) {
  const Product &p = held.product;
  if (held.reads.ends.empty())
    return;
  auto inBlock = static_cast<size_t>(blocksOf(p) * 4), inPart = static_cast<size_t>(held.width() * 4 / 8);
  for (int64_t r = block.value_or(0); r < (block ? *block + 1 : p.rows); ++r) {
    EndSums sums;
    size_t number = 0;
    eachSum(p, [&](Value row, const Strip &strip) {
      size_t at = number++;
      if (at / inBlock != static_cast<size_t>(r) || at % inBlock >= inPart)
        return;
      takeSums(held, at, /*inPairs=*/false);
      startStrip();
      addToEnds(held, sums, at, {row}, strip);
    });
    startStrip();
    storeEnds(held, sums, r);
  }
}

bool ThreadLowering::lowerSumRows(Operation *op) {
  // What was stored with formulas at an end.
  auto isEnd = [&](Value rows) {
    auto reduce = rows.getDefiningOp<tile::ReduceOp>();
    return reduce &&
           llvm::any_of(loopSums, [&](auto &each) { return llvm::is_contained(each.second->reads.ends, reduce); });
  };
  auto stored = dyn_cast<tile::StoreOp>(op);
  if (Value rows = stored                     ? stored.getValue()
                   : op->getNumResults() == 1 ? op->getResult(0)
                                              : Value();
      rows && isEnd(rows)) {
    if (stored) {
      releaseOperands(rows.getDefiningOp());
      releaseOperands(op);
    }
    return true;
  }
  if (auto reduce = dyn_cast<tile::ReduceOp>(op)) {
    auto it = llvm::find_if(loopSums, [&](auto &each) { return each.second->reads.rows.contains(reduce.getResult()); });
    if (it == loopSums.end())
      return false;
    std::shared_ptr<const LoopSums> held = it->second;
    readNumbers(held);
    SmallVector<Value> kept;
    bool makes = held->reads.made && reduce == held->reads.makes && !loopSums.count(held->reads.made);
    SmallVector<Value> rows = reduceSums(*held, reduce, makes ? &kept : nullptr);
    if (makes) {
      // The store finds these in the place of the sums.
      loopSums[held->reads.made] =
          std::make_shared<const LoopSums>(LoopSums{held->product, held->reads.made, std::move(kept), held->reads});
      auto others = std::make_shared<LoopSums>(*held);
      others->reads.stores.clear();
      loopSums[held->result] = others;
    }
    sumRows[reduce.getResult()] = std::make_shared<const SumRows>(SumRows{held, std::move(rows)});
    makeRows(held);
  } else if (auto store = dyn_cast<tile::StoreOp>(op)) {
    auto it = sumRows.find(store.getValue());
    if (it == sumRows.end())
      return false;
    storeSumRows(store, *it->second);
  } else {
    return false;
  }
  releaseOperands(op);
  return true;
}
