//===- ThreadSumRows.cpp - what is reduced along the rows of sums in registers ------------------------------------===//
//
//   C = sum_k A B;   m_i = max_j C_ij;   s_i = sum_j exp(C_ij - m_i)                 (a projection on words, and what its softmax needs)
//
// A sum of products (ThreadProducts.cpp) that one store takes from registers may be read by such formulas too: of each row that a thread has elements of,
// it reduces its own, in four chains of which none waits for another; then the four lanes do that share a row. Where warps share a row, each leaves its
// part in shared memory, and all add up the parts in the same order. What is reduced is the number that is stored, unless the store rounds it.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadProducts.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

static constexpr size_t kChains = 4;

std::optional<ThreadLowering::SumReads> ThreadLowering::readsOf(Value sum) const {
  SumReads reads;
  reads.store = plan.storeOf(sum);
  if (reads.store)
    return heldIn({reads.store.getValue()}).empty() ? std::optional(reads) : std::nullopt;
  SmallVector<Value> work = {sum};
  reads.formulas.insert(sum);
  while (!work.empty()) {
    Value v = work.pop_back_val();
    bool isRow = tileType(v).getRank() == 1;
    for (Operation *user : v.getUsers()) {
      if (user->getBlock() != sum.getParentBlock())
        return std::nullopt;
      if (auto store = dyn_cast<tile::StoreOp>(user)) {
        bool wanted = isRow || (v == sum && !reads.store && plan.group(store).size() == 1);
        if (!wanted || store.getRows())
          return std::nullopt;
        if (!isRow)
          reads.store = store;
        continue;
      }
      if (user->getNumResults() != 1)
        return std::nullopt;
      Value result = user->getResult(0);
      auto reduce = dyn_cast<tile::ReduceOp>(user);
      auto expand = dyn_cast<tile::ExpandOp>(user);
      bool isFormula = isRow ? expand && expand.getAxis() == 1 : keepsPlaces(user);
      if (reduce && !isRow && reduce.getAxis() == 1) {
        if (reads.rows.insert(result))
          work.push_back(result);
      } else if (isFormula && !plan.isKept(result) && tileType(result).getShape() == tileType(sum).getShape()) {
        if (reads.formulas.insert(result))
          work.push_back(result);
      } else {
        return std::nullopt;
      }
    }
  }
  return reads.store ? std::optional(reads) : std::nullopt;
}

/// The row of a sum in the order of eachSum(), numbered in this thread: two halves of each block of rows.
static size_t rowOfSum(size_t sum, int64_t blocks) {
  size_t inRows = static_cast<size_t>(blocks) * 4;
  return sum / inRows * 2 + sum / 2 % 2;
}

/// Which of the warps that share a row this one is.
Value ThreadLowering::besideOf(const Product &p) { return remainder(p.wgmma ? divide(warp, 4) : placeOf(p), p.across); }

/// Of each row that this thread has elements of.
SmallVector<Value> ThreadLowering::reduceSums(const LoopSums &held, tile::ReduceOp op) {
  const Product &p = held.product;
  Type element = elementOf(op.getResult()), stored = storageType(element);
  SmallVector<SmallVector<Value, kChains>> chains(2 * p.rows, SmallVector<Value, kChains>(kChains));
  SmallVector<Value> places(2 * p.rows), totals;
  {
    Phase phase(*this);
    size_t number = 0;
    eachSum(p, [&](Value row, const Strip &strip) {
      size_t at = number++, inRow = rowOfSum(at, blocksOf(p));
      places[inRow] = row;
      registers[held.result] = held.sums[at];
      for (Value rows : held.reads.rows)
        if (auto it = sumRows.find(rows); it != sumRows.end())
          registers[rows] = it->second->rows[inRow];
      startStrip();
      Value value = widened(eval(op.getSource(), {row}, strip));
      Value &chain = chains[inRow][(at / 4 % 2) * 2 + at % 2];
      chain = chain ? combine(op.getKind(), chain, value) : value;
    });
    startStrip();
    registers.erase(held.result);
    for (Value rows : held.reads.rows)
      registers.erase(rows);
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
      writeArgument(store, {}, {row, 0, p.m, 0, 1}, rows.rows[inRow]);
    });
  });
}

bool ThreadLowering::lowerSumRows(Operation *op) {
  if (auto reduce = dyn_cast<tile::ReduceOp>(op)) {
    auto it = llvm::find_if(loopSums, [&](auto &each) { return each.second->reads.rows.contains(reduce.getResult()); });
    if (it == loopSums.end())
      return false;
    std::shared_ptr<const LoopSums> held = it->second;
    SmallVector<Value> rows = reduceSums(*held, reduce);
    sumRows[reduce.getResult()] = std::make_shared<const SumRows>(SumRows{held, std::move(rows)});
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
