//===- ThreadPipeline.cpp - the loop over a sum of products: copies to a ring of stages, some steps ahead ---------===//
//
// Copies of step i + ahead start in step i, into the stage that the step before has left. Where a loop over tiles has nothing but such a sum and the store of
// it, the ring outlives the sum: the last steps of a tile copy the first of the next one, which need not wait for memory, and the sums are
// stored meanwhile. On Hopper a warp of its own may start the copies of such a loop: ThreadBulkCopies.cpp.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// `panel`: bytes from the ring's beginning to it.
void ThreadLowering::copyPanel(tile::LoadOp load, const Access &at, Value aligned, const View &ring, Value panel) {
  const View &source = arguments[load.getSource()];
  auto type = cast<VectorType>(load.getType());
  int64_t rows = type.getDimSize(0), chunks = type.getDimSize(1) / kChunk;
  auto place = [&](Value row, Value chunk) -> Value {
    Value turned = arith::XOrIOp::create(b, loc, remainder(chunk, 8), remainder(row, 8));
    return add(add(panel, mul(divide(chunk, 8), constant(rows * kRowBytes))),
               add(mul(row, constant(kRowBytes)), mul(turned, constant(kChunkBytes))));
  };
  auto there = [&](Value row, Value chunk) {
    return add(at.offset, add(mul(row, at.strides.front()), mul(chunk, constant(kChunk))));
  };
  auto branch = scf::IfOp::create(b, loc, aligned, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  Value to = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, ring.memref);
  auto inRing = [&](Value row, Value chunk) { return add(to, place(row, chunk)); };
  copyRows(load, at, {inRing, /*period=*/8, kRowBytes});
  // Rows that do not begin on 16 bytes pass through registers, an element at a time.
  b.setInsertionPoint(branch.elseBlock()->getTerminator());
  eachThread(rows * chunks * kChunk, [&](Value i) {
    Value element = remainder(i, kChunk), chunk = remainder(divide(i, kChunk), chunks),
          row = divide(i, kChunk * chunks);
    auto read = [&]() -> Value {
      return memref::LoadOp::create(b, loc, source.memref, ValueRange{add(there(row, chunk), element)});
    };
    Value value;
    if (at.limit) {
      auto inside = scf::IfOp::create(b, loc, TypeRange{b.getBF16Type()}, inBounds(add(at.row, row), at.limit),
                                      /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(&inside.getThenRegion().front());
      scf::YieldOp::create(b, loc, read());
      b.setInsertionPointToEnd(&inside.getElseRegion().front());
      scf::YieldOp::create(b, loc, zero(b.getBF16Type()));
      value = inside.getResult(0);
    } else {
      value = read();
    }
    memref::StoreOp::create(b, loc, value, ring.memref, ValueRange{add(divide(place(row, chunk), 2), element)});
  });
}

static bool isChosen(tile::LoadOp load) { return load.getSource().getDefiningOp<arith::SelectOp>(); }

void ThreadLowering::lowerScalars(ArrayRef<Operation *> ops) {
  for (Operation *op : ops)
    if (failed(lowerScalar(op)))
      failedOnce = true;
}

/// What `body` asks of scalars is so at this place: in a step of a tile.
void ThreadLowering::atPlace(const Pipeline &pipe, const CopyPlace &place, function_ref<void()> body) {
  IRMapping here = scalars;
  if (pipe.tiles) {
    scf::ForOp tiles = pipe.tiles;
    scalars.map(tiles.getInductionVar(), place.tile);
    lowerScalars(pipe.places);
  }
  scf::ForOp sum = pipe.sum;
  scalars.map(sum.getInductionVar(), add(pipe.lo, mul(place.step, constant(pipe.step))));
  for (Operation &inside : sum.getBody()->without_terminator())
    if (!isa<tile::LoadOp, tile::ConcatOp, tile::DotOp>(inside))
      lowerScalars({&inside});
  body();
  scalars = here;
}

/// The tiles of A and B in a step.
std::pair<ThreadLowering::Access, ThreadLowering::Access> ThreadLowering::placesOf(const Pipeline &pipe,
                                                                                   const CopyPlace &place) {
  std::pair<Access, Access> result;
  atPlace(pipe, place, [&] {
    auto of = [&](tile::LoadOp load) {
      return access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
    };
    result = {of(pipe.p.a), of(pipe.p.bs.front())};
  });
  return result;
}

Value ThreadLowering::nextStage(const Product &p, Value stage) {
  Value further = add(stage, 1);
  Value wraps = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, further, constant(p.stages));
  return arith::SelectOp::create(b, loc, wraps, constant(0), further);
}

/// Starts the copies of one step, if there is one, as a group of their own; returns the step behind it.
ThreadLowering::CopyPlace ThreadLowering::copyStep(const Pipeline &pipe, const CopyPlace &place) {
  const Product &p = pipe.p;
  scf::ForOp tiles = pipe.tiles;
  Value there = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, place.step, pipe.count);
  if (tiles) {
    Value hi = scalars.lookup(tiles.getUpperBound());
    there =
        arith::AndIOp::create(b, loc, there, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, place.tile, hi));
  }
  onlyIf(there, [&] {
    auto [a, second] = placesOf(pipe, place);
    Value start = mul(place.stage, constant(p.stageBytes));
    copyPanel(p.a, a, pipe.alignedA ? pipe.alignedA : rowsAligned(p.a, a), pipe.ring, add(start, p.left.offset));
    tile::LoadOp right = p.bs.front();
    copyPanel(right, second, pipe.alignedB ? pipe.alignedB : rowsAligned(right, second), pipe.ring,
              add(start, p.right.offset));
  });
  NVVM::CpAsyncCommitGroupOp::create(b, loc);
  CopyPlace next{place.tile, add(place.step, 1), nextStage(p, place.stage)};
  if (tiles) {
    Value wraps = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, next.step, pipe.count);
    next.step = arith::SelectOp::create(b, loc, wraps, constant(0), next.step);
    next.tile =
        arith::SelectOp::create(b, loc, wraps, add(place.tile, *getConstantIntValue(tiles.getStep())), place.tile);
  }
  return next;
}

/// The ring of a sum, of which nothing is copied yet: inside of a phase.
std::shared_ptr<ThreadLowering::Pipeline> ThreadLowering::beginSum(const Product &p, scf::ForOp sum, scf::ForOp tiles) {
  auto pipe = std::make_shared<Pipeline>();
  pipe->p = p;
  pipe->sum = sum;
  pipe->tiles = tiles;
  pipe->buffer = allocate(b.getBF16Type(), p.stages * p.stageBytes / 2, kPatternBytes);
  patterned |= p.wgmma;
  pipe->ring = {pipe->buffer->memref, {constant(1)}, pipe->buffer};
  // Products by wgmma of the step before still read their stage when this one's copies start.
  pipe->ahead = p.stages - (p.wgmma ? 2 : 1);
  // Constants may stand inside of `tiles`.
  auto known = [&](Value v) {
    std::optional<int64_t> number = getConstantIntValue(v);
    return number ? constant(*number) : scalars.lookup(v);
  };
  Value hi = known(sum.getUpperBound());
  pipe->lo = known(sum.getLowerBound());
  pipe->step = *getConstantIntValue(sum.getStep());
  Value span = arith::MaxSIOp::create(b, loc, arith::SubIOp::create(b, loc, hi, pipe->lo), constant(0));
  pipe->count = divide(add(span, pipe->step - 1), pipe->step);
  touched(pipe->ring, true);
  touched(pipe->ring, false);
  for (tile::LoadOp load : p.loads())
    eachArgument(load.getSource(), [&](Value argument) { touched(arguments[argument], false); });
  return pipe;
}

/// What the sums of a loop over tiles read, where copies for one may start before the one before it is stored: no results but stores of
/// sums, and of what is reduced of them, from registers to memory that nobody reads here, and as many steps in every tile.
/// `groups`: a loop around that one, which may share out what it reads of memory: only bulk copies go on from one of its iterations to the next.
bool ThreadLowering::beginTiles(scf::ForOp op, scf::ForOp groups) {
  scf::ForOp sum;
  SmallVector<tile::StoreOp> stores;
  for (Operation &inside : op.getBody()->without_terminator()) {
    if (auto loop = dyn_cast<scf::ForOp>(inside); loop && !sum)
      sum = loop;
    else if (auto store = dyn_cast<tile::StoreOp>(inside))
      stores.push_back(store);
    else if (inside.getNumRegions() != 0 || isa<memref::StoreOp>(inside))
      return false;
  }
  std::optional<Product> p = sum ? productOf(sum) : std::nullopt;
  if (!p || p->deep != 1 || p->m <= kNarrowRows) // of few rows there is one tile
    return false;
  if (groups ? !p->wgmma || !kernel->hasAttr(tile::kBoxesAttr)
             : op.getNumResults() != 0 || !getConstantIntValue(op.getStep()))
    return false;
  std::optional<SumReads> reads = readsOf(sum.getResult(0), *p);
  if (!reads)
    return false;
  SmallVector<Value> outside = {sum.getLowerBound(), sum.getUpperBound()}, numbers;
  for (Operation &inside : sum.getBody()->without_terminator()) {
    auto load = dyn_cast<tile::LoadOp>(inside);
    if (load) {
      bool written = false;
      eachArgument(load.getSource(), [&](Value argument) {
        for (tile::StoreOp store : stores)
          written |= mayShare(argument, store.getTarget());
      });
      if (written)
        return false;
    }
    if (!isa<tile::DotOp, tile::ConcatOp>(inside))
      for (Value operand : inside.getOperands())
        if (!isTile(operand) && !isa<MemRefType>(operand.getType()))
          numbers.push_back(operand);
  }
  llvm::SetVector<Operation *> places;
  for (Value number : numbers)
    if (number.getParentBlock() != sum.getBody() &&
        !collectPlaces(number, op, places, /*tables=*/false, groups != nullptr))
      return false;
  for (Value next : op.getBody()->getTerminator()->getOperands())
    if (isTile(next) || !collectPlaces(next, op, places, /*tables=*/false, groups != nullptr))
      return false;
  auto isInside = [&](Value v) {
    return v.getParentBlock() == op.getBody() || (groups && v.getParentBlock() == groups.getBody());
  };
  if (llvm::any_of(outside, [&](Value v) { return isInside(v) && !getConstantIntValue(v); }))
    return false;
  Phase phase(*this);
  std::shared_ptr<Pipeline> pipe = beginSum(*p, sum, op);
  pipe->groups = groups;
  ++pipe->buffer->pins;
  pipe->places = places.takeVector();
  llvm::sort(pipe->places, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  pipelines[groups ? groups : op] = pipelines[sum] = pipe;
  if (copiesInBulk(*pipe, *reads)) {
    phase.end();
    beginBulkCopies(*pipe, *reads);
    return true;
  }
  if (groups) {
    endTiles(groups);
    return false;
  }
  // Of no steps there is nothing to copy.
  Value some = arith::MaxSIOp::create(b, loc, pipe->count, constant(1));
  some = arith::IndexCastOp::create(b, loc, b.getI32Type(), some); // 32 bits are divided soon
  Value all = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(pipe->ahead)));
  auto asIndex = [&](Value v) -> Value { return arith::IndexCastOp::create(b, loc, b.getIndexType(), v); };
  pipe->aheadTiles = asIndex(arith::DivUIOp::create(b, loc, all, some));
  pipe->aheadSteps = asIndex(arith::RemUIOp::create(b, loc, all, some));
  CopyPlace place{scalars.lookup(op.getLowerBound()), constant(0), constant(0)};
  for (int64_t i = 0; i < pipe->ahead; ++i)
    place = copyStep(*pipe, place);
  return true;
}

bool ThreadLowering::beginTiles(scf::ForOp op) {
  std::shared_ptr<Pipeline> around = pipelines.lookup(op->getParentOp());
  if (around && around->tiles == op)
    return true;
  if (threads < kWarp || llvm::any_of(op.getResults(), isTile))
    return false;
  scf::ForOp inner;
  for (Operation &inside : op.getBody()->without_terminator())
    if (auto loop = dyn_cast<scf::ForOp>(inside); loop && !inner && !loop.getBody()->getOps<scf::ForOp>().empty())
      inner = loop;
    else if (inside.getNumRegions() != 0 || llvm::any_of(inside.getOperands(), isTile) ||
             llvm::any_of(inside.getResults(), isTile) || isa<memref::StoreOp>(inside))
      return beginTiles(op, /*groups=*/{});
  if (!inner)
    return beginTiles(op, /*groups=*/{});
  return llvm::none_of(inner.getResults(), isTile) && beginTiles(inner, op);
}

void ThreadLowering::endTiles(scf::ForOp op) {
  std::shared_ptr<Pipeline> pipe = pipelines.lookup(op);
  if (!pipe)
    return;
  if (pipe->inBulk())
    endBulkCopies(*pipe);
  else if (pipe->aheadTiles)
    NVVM::CpAsyncWaitGroupOp::create(b, loc, 0);
  --pipe->buffer->pins;
  giveBack(pipe->buffer);
  pipelines.erase(pipe->sum);
  pipelines.erase(op);
}

/// Whether what comes next is a loop that adds products to the sums of this one, dealt out alike.
bool ThreadLowering::goesOn(scf::ForOp op, const Product &p) {
  Value sum = op.getResult(0);
  auto next = sum.hasOneUse() ? dyn_cast<scf::ForOp>(*sum.user_begin()) : scf::ForOp();
  if (!next || next->getBlock() != op->getBlock() || p.deep > 1)
    return false;
  for (Operation *between = op->getNextNode(); between != next; between = between->getNextNode())
    if (between->getNumRegions() != 0 || llvm::any_of(between->getOperands(), isTile) ||
        llvm::any_of(between->getResults(), isTile))
      return false;
  std::optional<Product> q = productOf(next);
  return q && std::tie(q->m, q->n, q->rows, q->columns, q->across, q->deep, q->wgmma) ==
                  std::tie(p.m, p.n, p.rows, p.columns, p.across, p.deep, p.wgmma);
}

/// Until the tile is stored. What follows from a thread's number, as where its sums go, is then computed in each tile, after the products, in place of being
/// kept in registers beside them: the ring's turn is far below 65536, but no compiler knows.
void ThreadLowering::countThreadsAnew(Pipeline &pipe) {
  pipe.numbers = {thread, lane, warp};
  Value none = arith::ShRUIOp::create(b, loc, pipe.turn, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(16)));
  thread = add(thread, arith::IndexCastUIOp::create(b, loc, b.getIndexType(), none));
  lane = remainder(thread, kWarp);
  warp = alike(divide(thread, kWarp));
}

/// What is known of the rows of a tile is asked for before its products, or all warps would wait for it behind them.
void ThreadLowering::readEndNumbers(const Pipeline &pipe) {
  scf::ForOp sum = pipe.sum;
  std::optional<SumReads> end = readsOf(sum.getResult(0), pipe.p);
  auto isThere = [&](Value v) { return v.getDefiningOp()->isBeforeInBlock(sum); };
  if (!end || end->parts.empty() || end->numbers.empty() || !llvm::all_of(end->known, isThere))
    return;
  readNumbers(std::make_shared<const LoopSums>(LoopSums{pipe.p, sum.getResult(0), {}, *end}));
}

/// Behind the steps of a sum formulas read what comes by the ring, too. `before`: steps of the tiles before this one, where the turn of the ring is not carried.
void ThreadLowering::passSum(Pipeline &pipe, Value before) {
  int64_t turns = 2 * pipe.p.stages;
  if (!pipe.turn) {
    pipe.behind = remainder(add(before, pipe.count), turns);
    return;
  }
  pipe.behind = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), pipe.turn);
  // No remainder, of which compilers would know how large it is (countThreadsAnew).
  Value next = add(pipe.behind, static_cast<int64_t>(pipe.parts.size()) % turns);
  next = arith::SelectOp::create(b, loc, less(next, turns), next, arith::SubIOp::create(b, loc, next, constant(turns)));
  pipe.turn = arith::IndexCastUIOp::create(b, loc, b.getI32Type(), next);
}

bool ThreadLowering::lowerProduct(scf::ForOp op) {
  std::shared_ptr<Pipeline> pipe = pipelines.lookup(op);
  bool begun = pipe != nullptr;
  std::optional<Product> found = begun ? pipe->p : productOf(op);
  if (!found)
    return false;
  const Product &p = *found;
  if (p.bs.size() > 1 && !(begun && pipe->inBulk()))
    fail(op, "multiplies matrices beside each other, which only boxes bring");
  Value init = op.getInitArgs().front();
  SmallVector<Value> sums;
  bool forgetThreads = false;
  if (pipe && pipe->inBulk())
    readEndNumbers(*pipe);
  {
    Phase phase(*this);
    CopyPlace place;
    Value first = constant(0), parity, before; // the stage, and of how often it was filled before; steps
    if (begun && pipe->turn) {
      Value turn = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), pipe->turn);
      first = remainder(turn, p.stages);
      parity = divide(turn, p.stages);
    } else if (begun) {
      scf::ForOp tiles = pipe->tiles;
      int64_t step = *getConstantIntValue(tiles.getStep());
      Value tile = scalars.lookup(tiles.getInductionVar());
      Value number = divide(arith::SubIOp::create(b, loc, tile, scalars.lookup(tiles.getLowerBound())), step);
      before = mul(number, add(pipe->count, static_cast<int64_t>(pipe->parts.size())));
      first = remainder(before, p.stages);
      parity = remainder(divide(before, p.stages), 2);
      if (!pipe->inBulk())
        place = {add(tile, mul(pipe->aheadTiles, constant(step))), pipe->aheadSteps,
                 remainder(add(first, pipe->ahead), p.stages)};
    } else {
      pipe = beginSum(p, op, {});
    }
    startStrip();
    Value isFirst = p.deep > 1 ? less(partOf(p), 1) : Value();
    if (auto before = loopSums.lookup(init))
      sums = before->sums;
    else
      eachSum(p, [&](Value row, const Strip &strip) {
        bool none = pipe->results && pipe->results->adds;
        Value start = none ? zero(b.getF32Type()) : eval(init, {row}, strip);
        if (isFirst)
          start = arith::SelectOp::create(b, loc, isFirst, start, zero(start.getType()));
        sums.push_back(start);
      });
    startStrip();
    if (!begun) {
      place = {Value(), constant(0), constant(0)};
      auto [a, second] = placesOf(*pipe, place);
      if (!isChosen(p.a))
        pipe->alignedA = rowsAligned(p.a, a);
      if (!isChosen(p.bs.front()))
        pipe->alignedB = rowsAligned(p.bs.front(), second);
      for (int64_t i = 0; i < pipe->ahead; ++i)
        place = copyStep(*pipe, place);
    }
    Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, pipe->ring.memref);
    // The stage that is read, where the next copy is from and where it goes, sums.
    SmallVector<Value> carried = {first, place.step, place.stage};
    if (begun)
      carried.push_back(place.tile);
    // Of 32 bits, as registers are.
    auto narrow = [&](Value v) -> Value { return arith::IndexCastUIOp::create(b, loc, b.getI32Type(), v); };
    auto wide = [&](Value v) -> Value { return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v); };
    if (pipe->inBulk())
      carried = {narrow(first), narrow(parity)};
    size_t others = carried.size();
    llvm::append_range(carried, sums);
    auto panels = [&](Value stage) -> std::pair<Value, Value> {
      Value start = add(base, mul(stage, constant(p.stageBytes)));
      return {add(start, p.left.offset), add(start, p.right.offset)};
    };
    // As wgmma counts (unitsOf), in 32 bits.
    auto units = [&](int64_t bytes) -> Value {
      return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(bytes / 16)));
    };
    auto described = [&](Value stage) -> std::pair<Value, Value> {
      Value before = arith::MulIOp::create(b, loc, narrow(stage), units(p.stageBytes));
      Value start = arith::AddIOp::create(b, loc, unitsOf(base), before);
      return {arith::AddIOp::create(b, loc, start, units(p.left.offset)),
              arith::AddIOp::create(b, loc, start, units(p.right.offset))};
    };
    // Zeros need no registers to be cleared where the first step's products write their sums.
    bool apart = pipe->inBulk() && areZeros(sums);
    // Behind the last step of a tile its own products are awaited, and its stage is left.
    auto inBulk = [&](Value step, ValueRange now) {
      SmallVector<Value> reads(now);
      reads[0] = wide(now[0]), reads[1] = wide(now[1]);
      if (apart && !step && pipe->staggered)
        followGroup(*pipe, reads[0], reads[1]);
      SmallVector<Value> next = multiplyInBulk(*pipe, reads, described(reads[0]));
      Value further = apart ? Value() : arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, step, constant(0));
      if (step)
        onlyIf(further, [&] { leaveStage(*pipe, reads[0]); });
      next[0] = narrow(next[0]), next[1] = narrow(next[1]);
      return next;
    };
    auto iteration = [&](Value step, ValueRange now) -> SmallVector<Value> {
      if (pipe->inBulk())
        return inBulk(step, now);
      NVVM::CpAsyncWaitGroupOp::create(b, loc, pipe->ahead - 1);
      if (p.wgmma)
        NVVM::FenceProxyOp::create(b, loc, NVVM::ProxyKindAttr::get(b.getContext(), NVVM::ProxyKind::async_shared),
                                   NVVM::SharedSpaceAttr::get(b.getContext(), NVVM::SharedSpace::shared_cta));
      gpu::BarrierOp::create(b, loc);
      auto [left, right] = p.wgmma ? described(now[0]) : panels(now[0]);
      SmallVector<Value> products;
      if (p.wgmma)
        products = multiplyByGroups(p, left, right, now.drop_front(others));
      CopyPlace next = copyStep(*pipe, {begun ? now[3] : Value(), now[1], now[2]});
      if (p.wgmma)
        NVVM::WgmmaWaitGroupSyncOp::create(b, loc, 1);
      else
        products = multiplyByWarps(p, left, right, now.drop_front(others));
      SmallVector<Value> yielded = {nextStage(p, now[0]), next.step, next.stage};
      if (begun)
        yielded.push_back(next.tile);
      llvm::append_range(yielded, products);
      return yielded;
    };
    auto loop = [&] {
      if (apart)
        carried = inBulk(/*step=*/{}, carried);
      carried = repeat(constant(apart ? 1 : 0), pipe->count, constant(1), carried, iteration);
      sums.assign(carried.begin() + others, carried.end());
    };
    if (p.wgmma) {
      // Sums that no product has written must not meet those that products still write: they would wait for each other.
      SmallVector<Value> kept(sums);
      if (pipe->turn)
        kept.push_back(pipe->turn);
      auto branch = scf::IfOp::create(b, loc, TypeRange(ValueRange(kept)),
                                      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, pipe->count, constant(0)),
                                      /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(&branch.getElseRegion().front());
      // A block of its own, or the zeros of sums without products would be written in front of the branch, for all tiles.
      NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
      scf::YieldOp::create(b, loc, kept);
      b.setInsertionPointToEnd(&branch.getThenRegion().front());
      loop();
      kept = awaitProducts(sums);
      if (pipe->inBulk())
        leaveStage(*pipe, wide(carried.front()));
      if (pipe->turn) {
        kept.push_back(narrow(add(wide(carried[0]), mul(wide(carried[1]), constant(p.stages)))));
        pipe->turn = branch.getResults().back();
      }
      scf::YieldOp::create(b, loc, kept);
      sums.assign(branch.result_begin(), branch.result_begin() + sums.size());
      bool several = pipe->results && pipe->results->stores.size() > 1; // which would have places each
      forgetThreads = pipe->turn && (p.sums() >= kManySums || several);
    } else {
      loop();
    }
    if (!begun)
      NVVM::CpAsyncWaitGroupOp::create(b, loc, 0);
    if (!pipe->reads.empty())
      passSum(*pipe, before);
    if (forgetThreads)
      countThreadsAnew(*pipe);
  }
  release(init, op->getBlock());
  if (!begun)
    giveBack(pipe->buffer);
  // Sums that are stored next, or that the next loop goes on with, need not pass through shared memory.
  std::optional<SumReads> reads = p.deep == 1 ? readsOf(op.getResult(0), p) : std::nullopt;
  if (reads || goesOn(op, p)) {
    keepSums(p, op.getResult(0), std::move(sums), reads.value_or(SumReads()));
    return true;
  }
  // The parts of k, one below the other: what they add up to takes the place of the first.
  Type element = tileType(op.getResult(0)).getElementType();
  auto type = VectorType::get({p.deep * p.m, p.n}, element);
  View result = viewOf(allocate(type), type);
  {
    Phase phase(*this);
    size_t at = 0;
    Value first = p.deep > 1 ? mul(partOf(p), constant(p.m)) : constant(0);
    eachSum(p, [&](Value row, const Strip &strip) { writeView(result, {add(row, first)}, strip, sums[at++], false); });
  }
  if (p.deep > 1) {
    Phase phase(*this);
    eachThread(p.m * p.n, [&](Value i) {
      Strip strip{remainder(i, p.n), 0, p.n, 0, 1};
      Value row = divide(i, p.n), sum = readView(result, element, {row}, strip);
      for (int64_t part = 1; part < p.deep; ++part)
        sum = arith::AddFOp::create(b, loc, sum, readView(result, element, {add(row, part * p.m)}, strip));
      writeView(result, {row}, strip, sum, false);
    });
  }
  own(op.getResult(0), result);
  if (op.getResult(0).use_empty()) {
    usesLeft[op.getResult(0)] = 1;
    useDone(op.getResult(0));
  }
  return true;
}
