//===- TravellingSums.cpp - collectives whose results nobody needs yet --------------------------------------------===//
#include "passes/lower/TravellingSums.h"

#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/analysis/Views.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace braid;

namespace {

/// A collective that somebody could wait for later than its await stands.
struct Travel {
  Value sent;
  int64_t bytes, start, awaited;
  int64_t read; ///< the first moment at which its result is needed
  int64_t written; ///< the first moment at which the buffer it sends from is written
  bool stacked; ///< results of all iterations are read behind the repeat
};

class Keeper {
public:
  Keeper(const Timeline &timeline, Buffers &buffers) : timeline(timeline), buffers(buffers) {}

  void collect(Block &block) {
    SmallVector<Travel> travels;
    for (Operation &op : block) {
      if (auto repeat = dyn_cast<RepeatOp>(op))
        collect(repeat.getBody().front());
      if (auto start = dyn_cast<CommStartOp>(op))
        if (std::optional<Travel> travel = travelOf(start)) {
          ofLayer[op.getAttr(cmd::kLayersAttr)] += travel->bytes;
          travels.push_back(*travel);
        }
    }
    if (!travels.empty())
      blocks.push_back({&block, std::move(travels)});
  }

  void keep(int64_t most) {
    if (most < 0)
      for (auto &[layer, bytes] : ofLayer)
        most = std::max(most, bytes);
    for (auto &[block, travels] : blocks)
      for (size_t i = 0; i < travels.size(); ++i)
        keep(*block, travels, i, most);
  }

private:
  std::optional<Travel> travelOf(CommStartOp start) const {
    CommAwaitOp await = awaitOf(start);
    if (start.getInputs().size() != 1 || !await || await->getBlock() != start->getBlock() || await.getNumResults() != 1)
      return std::nullopt;
    Value sent = start.getInputs()[0];
    bool stacked = false;
    Travel travel{sent,
                  extentBytes(sent),
                  timeline.at(start),
                  timeline.at(await),
                  firstRead(await.getResult(0), stacked),
                  firstWrite(sent),
                  false};
    travel.stacked = stacked;
    return travel.read > travel.awaited + 1 ? std::optional(travel) : std::nullopt;
  }

  /// Views and copies to a place of their own are read when their readers read them; what a repeat stacks, behind it.
  int64_t firstRead(Value value, bool &stacked) const {
    int64_t first = timeline.end();
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (auto yield = dyn_cast<YieldOp>(user)) {
        auto repeat = cast<RepeatOp>(yield->getParentOp());
        if (use.getOperandNumber() < repeat.getCarried())
          first = std::min(first, timeline.at(user));
        else
          stacked = true, first = std::min(first, firstRead(repeat.getResult(use.getOperandNumber()), stacked));
      } else if (isa<ReshapeOp, SliceOp, ConcatOp, cmd::MaterializeOp>(user)) {
        first = std::min(first, firstRead(user->getResult(0), stacked));
      } else if (!isa<func::ReturnOp>(user)) {
        first = std::min(first, timeline.at(value.getParentBlock()->findAncestorOpInBlock(*user)));
      }
    }
    return first;
  }

  int64_t firstWrite(Value value) const {
    value = viewRoot(value);
    Value before;
    Operation *op = value.getDefiningOp();
    if (auto gemm = dyn_cast_or_null<tile::GemmOp>(op))
      before = gemm.getApart() ? Value() : gemm.getC();
    else if (auto grouped = dyn_cast_or_null<tile::GroupedGemmOp>(op))
      before = grouped.getApart() ? Value() : grouped.getC();
    else if (auto copy = dyn_cast_or_null<cmd::MaterializeOp>(op))
      before = copy.getSource();
    else if (auto launch = dyn_cast_or_null<tile::LaunchOp>(op))
      if (int64_t operand = launch.getInplace()[cast<OpResult>(value).getResultNumber()]; operand >= 0)
        before = launch.getInputs()[operand];
    return before && !isZero(before) ? firstWrite(before) : timeline.defined(value);
  }

  void keep(Block &block, ArrayRef<Travel> travels, size_t i, int64_t most) {
    const Travel &travel = travels[i];
    // Of those that start later, the first for which there is no room.
    int64_t bytes = travel.bytes;
    auto full = [&](const Travel &other) { return (bytes += other.bytes) > most; };
    if (bytes > most || !buffers.has(travel.sent))
      return;
    int64_t until = travel.read;
    auto next = llvm::find_if(travels.drop_front(i + 1), full);
    if (next != travels.end())
      until = std::min(until, next->start);
    auto repeat = dyn_cast<RepeatOp>(block.getParentOp());
    const RepeatScope *scope = repeat ? timeline.bodyOf(repeat) : nullptr;
    buffers.keep(travel.sent, {travel.awaited, scope ? std::min(until, scope->end) : until});
    if (!scope || !travel.stacked || until <= scope->end)
      return;
    // The next iteration writes the same bytes again.
    until = travel.written - 1;
    next = llvm::find_if(travels.take_front(i), full);
    if (next != travels.begin() + static_cast<ptrdiff_t>(i))
      until = std::min(until, next->start);
    if (until >= scope->first)
      buffers.keep(travel.sent, {scope->first, until});
    buffers.keep(travel.sent, {scope->end, travel.read});
  }

  const Timeline &timeline;
  Buffers &buffers;
  llvm::MapVector<Attribute, int64_t> ofLayer; ///< bytes
  SmallVector<std::pair<Block *, SmallVector<Travel>>> blocks;
};

} // namespace

void braid::keepTravelling(func::FuncOp entry, const Timeline &timeline, Buffers &buffers, int64_t bytes) {
  Keeper keeper(timeline, buffers);
  keeper.collect(entry.getBody().front());
  keeper.keep(bytes);
}
