//===- JoinLayers.cpp - neighbouring layers in one function -------------------------------------------------------===//
// Slices can be woven over a block edge where both blocks stand in one function. Rotating repeats would put every edge
// into one; it would also carry futures and half-written stacks from iteration to iteration. Groups of a few layers
// keep repeats as they are and leave one edge in `most` unwoven.
#include "dialects/braid/PassAttributes.h"
#include "dialects/cmd/CmdDialect.h"
#include "passes/Passes.h"
#include "passes/analysis/Tensors.h"
#include "passes/autodiff/Recompute.h"
#include "passes/lower/PrepareBuffers.h"
#include "passes/overlap/LayerTasks.h"
#include "passes/shard/Sequence.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

#include <functional>

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_JOINLAYERSPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

/// Of one layer of a stack.
RankedTensorType partType(Type stack) {
  auto tensor = cast<RankedTensorType>(stack);
  return tensor.clone(tensor.getShape().drop_front());
}

/// Layer `index` of a stack.
Value unstack(OpBuilder &builder, Value stack, int64_t index) {
  auto type = cast<RankedTensorType>(stack.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[0] = 1;
  Value part = SliceOp::create(builder, stack.getLoc(), type.clone(shape), stack, 0, index);
  return ReshapeOp::create(builder, stack.getLoc(), partType(type), part);
}

Value stack(OpBuilder &builder, ArrayRef<Value> parts) {
  SmallVector<Value> rows;
  for (Value part : parts)
    rows.push_back(ReshapeOp::create(builder, part.getLoc(), stackedType(1, part.getType()), part).getResult());
  return ConcatOp::create(builder, parts[0].getLoc(), stackedType(parts.size(), parts[0].getType()), rows, 0);
}

class JoinLayersPass : public braid::impl::JoinLayersPassBase<JoinLayersPass> {
public:
  using JoinLayersPassBase::JoinLayersPassBase;
  void runOnOperation() override {
    if (most < 2) {
      getOperation().emitError() << "layers in one function: " << most.getValue() << "; valid: 2 or more";
      return signalPassFailure();
    }
    SymbolTable table(getOperation());
    symbols = &table;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isPublic() && hasOp(function, isDataExchange))
        exchanging.insert(function.getName());
    SmallVector<func::FuncOp> entries;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(attrs::entry))
        entries.push_back(function);
    for (func::FuncOp entry : entries) {
      SmallVector<RepeatOp> repeats;
      entry.walk([&](RepeatOp repeat) { repeats.push_back(repeat); });
      for (RepeatOp repeat : repeats) // inner ones first
        unroll(repeat);
      SmallVector<Block *> blocks = {&entry.getBody().front()};
      entry.walk([&](RepeatOp repeat) { blocks.push_back(&repeat.getBody().front()); });
      for (Block *block : blocks) {
        sinkExchanges(*block);
        joinCalls(*block);
      }
    }
    for (Operation *layer : unused)
      if (SymbolTable::symbolKnownUseEmpty(layer, getOperation()))
        symbols->erase(layer);
  }

private:
  SymbolTable *symbols = nullptr; ///< while it runs
  llvm::StringSet<> exchanging; ///< layers worth joining

  func::CallOp callOf(Operation &op) const {
    auto call = dyn_cast<func::CallOp>(op);
    return call && exchanging.contains(call.getCallee()) ? call : func::CallOp();
  }

  /// What no run of joined layers goes on over.
  bool separates(Operation &op) const {
    return !callOf(op) &&
           (isa<func::CallOp, RepeatOp>(op) || isa<CollectiveOpInterface>(op) || !isMemoryEffectFree(&op));
  }
  /// Whether the last layer of an iteration and the first of the next would be neighbours.
  bool joinsIterations(Block &body) const {
    auto decides = [&](Operation &op) { return callOf(op) || separates(op); };
    auto operations = body.without_terminator();
    auto first = llvm::find_if(operations, decides);
    auto backwards = llvm::reverse(operations);
    auto last = llvm::find_if(backwards, decides);
    return first != operations.end() && callOf(*first) && callOf(*last);
  }

  /// The body `times` times in a row, the last layer first where the repeat walks backwards; stacks of `times` layers
  /// in, results by layer.
  void writeOut(OpBuilder &builder, RepeatOp repeat, int64_t times, SmallVectorImpl<Value> &carried, ValueRange stacks,
                SmallVectorImpl<SmallVector<Value>> &results) {
    Block &body = repeat.getBody().front();
    int64_t count = repeat.getCarried();
    results.assign(body.getTerminator()->getNumOperands() - count, SmallVector<Value>(times));
    for (int64_t step = 0; step < times; ++step) {
      int64_t layer = repeat.getReverse() ? times - 1 - step : step;
      IRMapping map;
      for (auto [i, value] : llvm::enumerate(carried))
        map.map(body.getArgument(i), value);
      for (auto [i, value] : llvm::enumerate(stacks))
        map.map(body.getArgument(count + i), unstack(builder, value, layer));
      for (Operation &op : body.without_terminator()) {
        builder.clone(op, map)->walk([&](Operation *copy) {
          auto layers = copy->getAttrOfType<DenseI32ArrayAttr>(cmd::kLayersAttr);
          if (!layers)
            return;
          // Every `times`-th iteration is in this place of a group; of a repeat inside, all of its own.
          auto iterations = static_cast<int64_t>(repeat.getCount());
          int64_t inside = layers.size() / iterations;
          SmallVector<int32_t> own;
          for (int64_t i = step; i < iterations; i += times)
            llvm::append_range(own, layers.asArrayRef().slice(i * inside, inside));
          copy->setAttr(cmd::kLayersAttr, builder.getDenseI32ArrayAttr(own));
        });
      }
      for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
        Value now = map.lookupOrDefault(value);
        if (static_cast<int64_t>(i) < count)
          carried[i] = now;
        else
          results[i - count][layer] = now;
      }
    }
  }

  /// Writes out the `left` last layers; the repeat of the others.
  RepeatOp splitOff(RepeatOp repeat, int64_t left) {
    OpBuilder builder(repeat);
    Location loc = repeat.getLoc();
    int64_t carried = repeat.getCarried(), count = repeat.getCount(), kept = count - left;
    auto withCount = [](Type type, int64_t size) {
      SmallVector<int64_t> shape(cast<RankedTensorType>(type).getShape());
      shape[0] = size;
      return cast<RankedTensorType>(type).clone(shape);
    };
    auto part = [&](Value stacked, int64_t begin, int64_t size) -> Value {
      return SliceOp::create(builder, loc, withCount(stacked.getType(), size), stacked, 0, begin);
    };
    SmallVector<Value> values(repeat.getInputs().take_front(carried)), last, first;
    for (Value stacked : repeat.getInputs().drop_front(carried)) {
      first.push_back(part(stacked, 0, kept));
      last.push_back(part(stacked, kept, left));
    }
    // Layers of an op are in the order of execution.
    auto keepLayers = [&](Operation *in, int64_t begin, int64_t size) {
      in->walk([&](func::CallOp call) {
        if (auto all = call->getAttrOfType<DenseI32ArrayAttr>(cmd::kLayersAttr)) {
          int64_t inside = all.size() / count;
          call->setAttr(cmd::kLayersAttr,
                        builder.getDenseI32ArrayAttr(all.asArrayRef().slice(begin * inside, size * inside)));
        }
      });
    };
    auto clone = [&](int64_t size, ValueRange stacks) {
      SmallVector<Value> inputs(values);
      llvm::append_range(inputs, stacks);
      SmallVector<Type> types;
      for (auto [i, type] : llvm::enumerate(repeat.getResultTypes()))
        types.push_back(static_cast<int64_t>(i) < carried ? type : withCount(type, size));
      auto copy = RepeatOp::create(builder, loc, types, inputs, size, carried, repeat.getReverse());
      copy->setDiscardableAttrs(repeat->getDiscardableAttrDictionary());
      IRMapping map;
      repeat.getBody().cloneInto(&copy.getBody(), map);
      values.assign(copy.getResults().begin(), copy.getResults().begin() + carried);
      return copy;
    };
    RepeatOp main, rest;
    if (repeat.getReverse()) {
      rest = clone(left, last);
      main = clone(kept, first);
    } else {
      main = clone(kept, first);
      rest = clone(left, last);
    }
    keepLayers(main, repeat.getReverse() ? left : 0, kept);
    keepLayers(rest, repeat.getReverse() ? 0 : kept, left);
    SmallVector<Value> results(values);
    for (auto [a, b] : llvm::zip_equal(main.getResults().drop_front(carried), rest.getResults().drop_front(carried)))
      results.push_back(ConcatOp::create(builder, loc, withCount(a.getType(), count), ValueRange{a, b}, 0));
    repeat.replaceAllUsesWith(results);
    repeat.erase();
    writeAll(rest);
    return main;
  }

  /// A repeat of a few layers, written out.
  void writeAll(RepeatOp repeat) {
    OpBuilder builder(repeat);
    int64_t carried = repeat.getCarried();
    SmallVector<Value> results(repeat.getInputs().take_front(carried));
    SmallVector<SmallVector<Value>> layers;
    writeOut(builder, repeat, repeat.getCount(), results, repeat.getInputs().drop_front(carried), layers);
    for (ArrayRef<Value> parts : layers)
      results.push_back(stack(builder, parts));
    repeat.replaceAllUsesWith(results);
    repeat.erase();
  }

  void unroll(RepeatOp repeat) {
    if (!joinsIterations(repeat.getBody().front()))
      return;
    auto calls = llvm::count_if(repeat.getBody().front(), [&](Operation &op) { return bool(callOf(op)); });
    int64_t count = repeat.getCount(), carried = repeat.getCarried();
    int64_t largest = std::min<int64_t>(count, most.getValue() / calls), group = largest;
    while (group > 1 && count % group)
      --group;
    if (2 * group <= largest) // groups as large as they may be, and a few layers that are left
      group = count < 2 * largest ? count : largest;
    if (group < 2)
      return;
    repeat.walk([](func::CallOp call) {
      if (Attribute known = layersOfCall(call))
        call->setAttr(cmd::kLayersAttr, known);
    });
    if (int64_t left = count % group) {
      repeat = splitOff(repeat, left);
      count -= left;
    }
    OpBuilder builder(repeat);
    SmallVector<Value> values(repeat.getInputs().take_front(carried)), results;
    ValueRange stacks = repeat.getInputs().drop_front(carried);
    SmallVector<SmallVector<Value>> layers;
    if (group == count)
      return writeAll(repeat);
    // Groups of layers: [count, ..] is [count / group, group, ..].
    int64_t groups = count / group;
    auto grouped = [&](Type type) { return stackedType(groups, stackedType(group, partType(type))); };
    SmallVector<Value> inputs(values);
    for (Value input : stacks)
      inputs.push_back(ReshapeOp::create(builder, input.getLoc(), grouped(input.getType()), input));
    SmallVector<Type> types;
    for (auto [i, type] : llvm::enumerate(repeat.getResultTypes()))
      types.push_back(static_cast<int64_t>(i) < carried ? type : grouped(type));
    auto walk = RepeatOp::create(builder, repeat.getLoc(), types, inputs, groups, carried, repeat.getReverse());
    walk->setDiscardableAttrs(repeat->getDiscardableAttrDictionary());
    Block &to = walk.getBody().emplaceBlock();
    OpBuilder inner = OpBuilder::atBlockEnd(&to);
    values.clear();
    SmallVector<Value> parts;
    for (auto [i, input] : llvm::enumerate(inputs)) {
      bool isCarried = static_cast<int64_t>(i) < carried;
      Type type = isCarried ? input.getType() : partType(input.getType());
      (isCarried ? values : parts).push_back(to.addArgument(type, repeat.getBody().getArgument(i).getLoc()));
    }
    writeOut(inner, repeat, group, values, parts, layers);
    for (ArrayRef<Value> list : layers)
      values.push_back(stack(inner, list));
    YieldOp::create(inner, repeat.getLoc(), values);
    builder.setInsertionPointAfter(walk);
    for (auto [i, result] : llvm::enumerate(walk.getResults()))
      results.push_back(
          static_cast<int64_t>(i) < carried
              ? Value(result)
              : ReshapeOp::create(builder, repeat.getLoc(), repeat.getResultTypes()[i], result).getResult());
    repeat.replaceAllUsesWith(results);
    repeat.erase();
  }

  /// Exchanges between layers of what no layer reads (gradients of weights that several layers have) go behind the last
  /// of them, with what reads them: they separate nothing.
  void sinkExchanges(Block &block) {
    auto backwards = llvm::reverse(block);
    auto found = llvm::find_if(backwards, [&](Operation &op) { return bool(callOf(op)); });
    if (found == backwards.end())
      return;
    Operation *last = &*found;
    DenseSet<Operation *> needed; // by calls, repeats and whatever has effects besides
    for (Operation *op = last; op; op = op->getPrevNode()) {
      bool isExchange = isa<CollectiveOpInterface>(*op);
      if (!needed.contains(op) && !isa<func::CallOp, RepeatOp>(*op) && (isExchange || isMemoryEffectFree(op)))
        continue;
      op->walk([&](Operation *inner) {
        for (Value operand : inner->getOperands())
          if (Operation *def = operand.getDefiningOp(); def && def->getBlock() == &block)
            needed.insert(def);
      });
    }
    llvm::SetVector<Operation *> moves;
    for (Operation &op : block) {
      if (&op == last)
        break;
      bool follows = llvm::any_of(op.getOperands(), [&](Value v) { return moves.contains(v.getDefiningOp()); });
      if (follows || (isa<CollectiveOpInterface>(op) && !needed.contains(&op)))
        moves.insert(&op);
    }
    for (Operation *op : moves) {
      op->moveAfter(last);
      last = op;
    }
  }

  /// Calls that stand one after the other but for views, in groups. Backward runs are divided from their end, so that
  /// forward and gradient of a layer get the same neighbours.
  void joinCalls(Block &block) {
    SmallVector<SmallVector<func::CallOp>> runs(1);
    std::pair<bool, Attribute> before; // direction, and slices where the layer has its own number of them
    for (Operation &op : block) {
      if (func::CallOp call = callOf(op)) {
        auto callee = symbols->lookup<func::FuncOp>(call.getCallee());
        std::pair<bool, Attribute> now(isBackwardLayer(callee), callee->getAttr(attrs::overlapDegree));
        if (!runs.back().empty() && now != before)
          runs.emplace_back();
        before = now;
        runs.back().push_back(call);
      } else if (separates(op)) {
        runs.emplace_back();
      }
    }
    for (ArrayRef<func::CallOp> run : runs) {
      if (run.size() < 2)
        continue;
      bool back = isBackwardLayer(symbols->lookup<func::FuncOp>(func::CallOp(run.front()).getCallee()));
      size_t groups = llvm::divideCeil(run.size(), static_cast<size_t>(most.getValue())), begin = 0;
      for (size_t i = 0; i < groups; ++i) {
        // The first groups of the forward are the larger ones.
        size_t place = back ? groups - 1 - i : i;
        size_t size = run.size() / groups + (place < run.size() % groups ? 1 : 0);
        join(run.slice(begin, size), back);
        begin += size;
      }
    }
  }

  /// The place along an axis that an op of `callee` reads from its argument, as an argument of the function around it.
  DictionaryAttr renumbered(DictionaryAttr place, func::FuncOp callee, const IRMapping &map) {
    auto number = static_cast<unsigned>(place.getAs<IntegerAttr>("coordinate").getInt());
    auto now = cast<BlockArgument>(map.lookup(callee.getArgument(number)));
    NamedAttrList fields(place);
    fields.set("coordinate", Builder(&getContext()).getI64IntegerAttr(now.getArgNumber()));
    return fields.getDictionary(&getContext());
  }

  /// One function with the bodies of all callees, called where the first of them was.
  void join(ArrayRef<func::CallOp> calls, bool backward) {
    if (calls.size() < 2)
      return;
    func::CallOp last = calls.back();
    // What stands between the calls and needs no later one goes in front of them; the rest is views of results.
    SmallVector<Value> operands, results;
    DenseSet<Operation *> inside;
    for (func::CallOp call : calls)
      inside.insert(call);
    SmallVector<Operation *> between;
    for (Operation *op = func::CallOp(calls.front())->getNextNode(); op != last.getOperation(); op = op->getNextNode())
      if (!inside.contains(op))
        between.push_back(op);
    DenseSet<Operation *> moved; // what follows from a call
    for (Operation *op : between)
      if (llvm::any_of(op->getOperands(), [&](Value v) {
            return inside.contains(v.getDefiningOp()) || moved.contains(v.getDefiningOp());
          }))
        moved.insert(op);
      else
        op->moveBefore(calls.front());
    OpBuilder module(symbols->lookup<func::FuncOp>(func::CallOp(calls.front()).getCallee()));
    std::string name = "joined";
    SmallVector<StringRef> names;
    auto pairOf = [&](func::CallOp call) {
      return symbols->lookup(call.getCallee())->getAttrOfType<StringAttr>(kLayerAttr);
    };
    for (func::CallOp call : calls)
      names.push_back(pairOf(call) ? pairOf(call).getValue() : call.getCallee());
    if (backward)
      std::reverse(names.begin(), names.end());
    bool trains = bool(pairOf(calls.front()));
    for (size_t i = 0, n = 0; i < names.size(); i += n) {
      for (n = 1; i + n < names.size() && names[i + n] == names[i];)
        ++n;
      name += "_" + names[i].str() + (n > 1 ? "_x" + std::to_string(n) : "");
    }
    std::string pair = name; // forward and gradient of the same layers
    name += backward ? "_grad" : trains ? "_train" : "";
    auto function = func::FuncOp::create(module, last.getLoc(), name, module.getFunctionType({}, {}));
    function.setPrivate();
    if (trains)
      function->setAttr(kLayerAttr, StringAttr::get(&getContext(), pair));
    attrs::keep(symbols->lookup(func::CallOp(calls.front()).getCallee()), function, {kDirectionAttr});
    if (Attribute degree = symbols->lookup(func::CallOp(calls.front()).getCallee())->getAttr(attrs::overlapDegree))
      function->setAttr(attrs::overlapDegree, degree);
    function->remove();
    Block *body = function.addEntryBlock();
    OpBuilder inner = OpBuilder::atBlockEnd(body);
    DenseMap<Value, Value> known; // of the caller -> in the function
    std::function<Value(Value)> mapped = [&](Value value) -> Value {
      if (Value here = known.lookup(value))
        return here;
      Operation *def = value.getDefiningOp();
      if (def && moved.contains(def)) { // a view between the calls
        IRMapping map;
        for (Value operand : def->getOperands())
          map.map(operand, mapped(operand));
        Operation *copy = inner.clone(*def, map);
        for (auto [old, now] : llvm::zip(def->getResults(), copy->getResults()))
          known[old] = now;
        return known[value];
      }
      operands.push_back(value);
      return known[value] = body->addArgument(value.getType(), value.getLoc());
    };
    SmallVector<Value> returned;
    for (func::CallOp call : calls) {
      auto callee = symbols->lookup<func::FuncOp>(call.getCallee());
      Block &from = callee.getBody().front();
      Location caller = call.getLoc();
      if (Attribute layers = layersOfCall(call))
        caller = FusedLoc::get({caller}, layers, &getContext());
      IRMapping map;
      for (auto [argument, operand] : llvm::zip_equal(from.getArguments(), call.getOperands()))
        map.map(argument, mapped(operand));
      for (Operation &op : from.without_terminator()) {
        Operation *copy = inner.clone(op, map);
        copy->setLoc(CallSiteLoc::get(op.getLoc(), caller));
        if (auto place = op.getAttrOfType<DictionaryAttr>(kSequenceAttr)) // among the arguments of all callees
          copy->setAttr(kSequenceAttr, renumbered(place, callee, map));
      }
      for (auto [result, value] : llvm::zip_equal(call.getResults(), from.getTerminator()->getOperands()))
        known[result] = map.lookup(value);
    }
    for (func::CallOp call : calls)
      for (Value result : call.getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !inside.contains(user); })) {
          results.push_back(result);
          returned.push_back(known.lookup(result));
        }
    func::ReturnOp::create(inner, last.getLoc(), returned);
    function.setFunctionType(module.getFunctionType(body->getArgumentTypes(), ValueRange(returned).getTypes()));
    symbols->insert(function, module.getInsertionPoint());
    OpBuilder builder(calls.front());
    auto call = func::CallOp::create(builder, UnknownLoc::get(&getContext()), function, operands);
    for (auto [old, now] : llvm::zip_equal(results, call.getResults()))
      old.replaceAllUsesWith(now);
    for (func::CallOp old : llvm::reverse(calls)) {
      auto callee = symbols->lookup<func::FuncOp>(old.getCallee());
      old.erase();
      unused.insert(callee);
    }
  }

  llvm::SetVector<Operation *> unused; ///< layers that nobody calls any more
};

} // namespace
