//===- PlanMemory.cpp - every tensor value gets an arena, an offset and strides -----------------------------------===//
// Decides only: the functions keep their ops and carry the answer as attributes (`cmd.results` on ops, `cmd.arguments`
// on repeats, `cmd.buffer` and `cmd.tensors` on arguments and results of entries); arenas and tensors are written down
// as a cmd.program. LowerToCommands reads both.
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/Passes.h"
#include "passes/analysis/Buffers.h"
#include "passes/analysis/Packing.h"
#include "passes/analysis/Views.h"
#include "passes/autodiff/Recompute.h"
#include "passes/lower/NamedTensors.h"
#include "passes/lower/PrepareBuffers.h"
#include "passes/lower/TravellingSums.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_PLANMEMORYPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

/// The plan of one entry function.
class EntryPlan {
public:
  /// `inFlight`: of keepTravelling.
  EntryPlan(func::FuncOp entry, const NamedTensors &tensors, bool naive, int64_t inFlight)
      : entry(entry), tensors(tensors), naive(naive), inFlight(inFlight), timeline(entry), buffers(timeline) {}

  LogicalResult run() {
    addNamed();
    Block &body = entry.getBody().front();
    for (BlockArgument argument : body.getArguments()) {
      const NamedTensor &tensor = tensors.argument(entry, argument.getArgNumber());
      buffers.addArgument(argument, named.lookup(tensor.key()), /*kept=*/!written.contains(tensor.key()));
    }
    visit(body);
    keepTravelling(entry, timeline, buffers, inFlight);
    merge();
    place();
    countActivations();
    return annotate();
  }

  struct Arena {
    Packing packing;
    unsigned buffers = 0;
  };
  llvm::MapVector<StringRef, Arena> arenas; ///< saved, workspace
  int64_t lowerBound = 0; ///< most bytes of both alive at one moment
  std::optional<int64_t> activations; ///< bytes that layers keep for their backward; absent: there is none
  unsigned copies = 0, merged = 0;
  int64_t copiedBytes = 0; ///< per run of the entry

private:
  void addNamed() {
    auto add = [&](const NamedTensor &tensor) {
      std::string key = tensor.key();
      if (byKey.try_emplace(key, &tensor).second)
        named[key] = buffers.addNamed(key, tensor.bytes());
    };
    for (unsigned i = 0; i < entry.getNumArguments(); ++i)
      add(tensors.argument(entry, i));
    for (unsigned i = 0; i < entry.getNumResults(); ++i) {
      add(tensors.result(entry, i));
      written.insert(tensors.result(entry, i).key());
    }
  }

  static bool needsBuffer(Value value) {
    if (!isa<RankedTensorType>(value.getType()))
      return false;
    // A zero that is only ever materialized becomes fills.
    return !isZero(value) ||
           llvm::any_of(value.getUsers(), [](Operation *user) { return !isa<cmd::MaterializeOp>(user); });
  }

  void visit(Block &block) {
    for (Operation &op : block) {
      if (auto repeat = dyn_cast<RepeatOp>(op)) {
        visit(repeat);
      } else if (auto copy = dyn_cast<cmd::MaterializeOp>(op)) {
        buffers.addCopy(copy.getResult(), copy.getSource());
        candidates.push_back(copy);
      } else if (auto concat = dyn_cast<ConcatOp>(op)) {
        buffers.add(concat.getResult());
        for (auto [i, source] : llvm::enumerate(concat.getSources()))
          buffers.placeInto(source, concat.getResult(), *concatOffset(concat, i));
      } else if (isa<func::ReturnOp>(op)) {
        for (auto [i, value] : llvm::enumerate(op.getOperands()))
          buffers.placeInto(value, named.lookup(tensors.result(entry, i).key()));
      } else if (!isa<YieldOp>(op)) {
        for (OpResult result : op.getResults())
          if (needsBuffer(result))
            visit(result);
      }
    }
  }

  void visit(OpResult result) {
    if (auto view = viewOf(result))
      return buffers.addView(result, view->source, view->offset);
    Operation *op = result.getOwner();
    if (auto launch = dyn_cast<tile::LaunchOp>(op))
      if (int64_t operand = launch.getInplace()[result.getResultNumber()]; operand >= 0)
        return buffers.addAlias(result, launch.getInputs()[operand]);
    if (auto gemm = dyn_cast<tile::GemmOp>(op); gemm && gemm.getC() && !gemm.getApart())
      return buffers.addAlias(result, gemm.getC());
    if (auto gemm = dyn_cast<tile::GroupedGemmOp>(op); gemm && gemm.getC() && !gemm.getApart())
      return buffers.addAlias(result, gemm.getC());
    if (isZero(result)) { // all zeros of an entry are one buffer
      if (zero)
        return buffers.addView(result, zero, 0);
      zero = result;
    }
    buffers.add(result);
    if (auto await = dyn_cast<CommAwaitOp>(op))
      buffers.reserve(result, timeline.at(await.getFuture().getDefiningOp()));
  }

  void visit(RepeatOp repeat) {
    Block &body = repeat.getBody().front();
    const RepeatScope &scope = *timeline.bodyOf(repeat);
    unsigned carried = repeat.getCarried();
    for (unsigned i = 0; i < carried; ++i)
      buffers.addAlias(body.getArgument(i), repeat.getOperand(i));
    for (unsigned i = carried; i < repeat.getNumOperands(); ++i)
      buffers.addSlot(body.getArgument(i), repeat.getOperand(i), scope);
    visit(body);
    Operation *yield = body.getTerminator();
    for (unsigned i = 0; i < repeat.getNumResults(); ++i) {
      if (i < carried) {
        buffers.placeInto(yield->getOperand(i), repeat.getOperand(i), 0);
        buffers.addAlias(repeat.getResult(i), repeat.getOperand(i));
      } else {
        buffers.addStacked(repeat.getResult(i), yield->getOperand(i), scope);
      }
    }
  }

  /// Bytes a copy would move in one run of the entry.
  int64_t weight(cmd::MaterializeOp copy) const {
    int64_t bytes = extentBytes(copy.getResult());
    for (const RepeatScope *scope = timeline.scopeOf(copy.getOperation()); scope; scope = scope->parent)
      bytes *= scope->count();
    return bytes;
  }

  /// The most expensive copies first: each merge makes later ones harder.
  void merge() {
    llvm::sort(candidates, [&](cmd::MaterializeOp a, cmd::MaterializeOp b) {
      return std::pair(-weight(a), timeline.at(a)) < std::pair(-weight(b), timeline.at(b));
    });
    for (cmd::MaterializeOp copy : candidates) {
      if (!naive && buffers.has(copy.getSource()) && !isZero(copy.getSource()) &&
          buffers.tryMerge(copy.getSource(), copy.getResult())) {
        ++merged;
        continue;
      }
      ++copies;
      copiedBytes += weight(copy);
    }
  }

  void place() {
    std::vector<PackedItem> everything;
    for (StringRef arena : {"saved", "workspace"}) {
      std::vector<PackedItem> items;
      std::vector<unsigned> ids;
      for (auto [id, buffer] : llvm::enumerate(buffers.all()))
        if (!buffer.named() && !buffer.members.empty() && buffer.stacked == (arena == "saved")) {
          items.push_back({buffer.bytes(), naive ? SmallVector<Segment>{{0, timeline.end()}} : buffers.life(buffer)});
          ids.push_back(id);
        }
      llvm::append_range(everything, items);
      arenas[arena] = {pack(items), static_cast<unsigned>(items.size())};
      for (auto [item, id] : llvm::zip(items, ids))
        placed[id] = {arena, item.offset - buffers.all()[id].low};
    }
    lowerBound = mostAlive(everything);
  }

  /// What is there when the last layer's forward ends, and still there when the first backward of a layer begins.
  void countActivations() {
    int64_t forwardEnd = -1, backwardBegin = timeline.end() + 1;
    auto walk = [&](llvm::function_ref<void(bool isBackward, Segment moments)> visit) {
      entry.walk([&](Operation *op) {
        const RepeatScope *scope = RepeatScope::at(timeline.scopeOf(op), 0);
        int64_t at = timeline.at(op);
        if (auto direction = op->getAttrOfType<StringAttr>(kDirectionAttr))
          visit(direction.getValue() == "backward", scope ? Segment{scope->begin, scope->end} : Segment{at, at});
      });
    };
    walk([&](bool isBackward, Segment moments) {
      if (!isBackward)
        forwardEnd = std::max(forwardEnd, moments.end);
    });
    walk([&](bool isBackward, Segment moments) {
      if (isBackward && moments.begin > forwardEnd)
        backwardBegin = std::min(backwardBegin, moments.begin);
    });
    if (backwardBegin > timeline.end())
      return;
    activations = 0;
    for (auto [id, buffer] : llvm::enumerate(buffers.all())) {
      SmallVector<Segment> life = buffers.life(buffer);
      auto lives = [&](int64_t at) { return llvm::any_of(life, [&](Segment part) { return part.meets({at, at}); }); };
      bool isZeros = zero && buffers.location(zero).buffer == id;
      if (!buffer.named() && !isZeros && lives(forwardEnd) && lives(backwardBegin))
        *activations += buffer.bytes();
    }
  }

  cmd::BufferAttr bufferOf(Value value) const {
    MLIRContext *context = value.getContext();
    const BufferPlace &at = buffers.location(value);
    const Buffers::Buffer &buffer = buffers.all()[at.buffer];
    std::string arena;
    int64_t base = 0;
    if (buffer.named()) {
      const NamedTensor &tensor = *byKey.lookup(buffer.name);
      std::tie(arena, base) = std::pair(tensor.arena(), tensor.offset);
    } else {
      auto [name, offset] = placed.lookup(at.buffer);
      std::tie(arena, base) = std::pair(stagedName(name, stageOf(entry)), offset);
    }
    SmallVector<int64_t> strides(at.strides);
    while (!strides.empty() && strides.back() == 0)
      strides.pop_back();
    return cmd::BufferAttr::get(context, FlatSymbolRefAttr::get(context, arena), base + at.offset, extentBytes(value),
                                strides);
  }

  LogicalResult annotate() {
    Builder builder(entry.getContext());
    for (cmd::MaterializeOp copy : candidates) {
      Value source = copy.getSource();
      if (!isContiguous(source) && bufferOf(source) != bufferOf(copy.getResult()))
        return copy.emitOpError("a slice of ")
               << viewRoot(source).getType() << " that is not contiguous would have to be copied";
    }
    auto list = [&](ValueRange values) {
      SmallVector<Attribute> attributes;
      for (Value value : values)
        attributes.push_back(buffers.has(value) ? Attribute(bufferOf(value)) : Attribute(builder.getUnitAttr()));
      return builder.getArrayAttr(attributes);
    };
    entry.walk([&](Operation *op) {
      if (op != entry && llvm::any_of(op->getResults(), [&](Value value) { return buffers.has(value); }))
        op->setAttr("cmd.results", list(op->getResults()));
      if (auto repeat = dyn_cast<RepeatOp>(op))
        op->setAttr("cmd.arguments", list(repeat.getBody().front().getArguments()));
    });
    auto names = [&](const NamedTensor &tensor) {
      SmallVector<Attribute> list;
      for (const std::string &name : tensor.fileNames)
        list.push_back(builder.getStringAttr(stagedName(name, stageOf(entry))));
      return builder.getArrayAttr(list);
    };
    for (BlockArgument argument : entry.getArguments()) {
      entry.setArgAttr(argument.getArgNumber(), "cmd.buffer", bufferOf(argument));
      entry.setArgAttr(argument.getArgNumber(), "cmd.tensors", names(tensors.argument(entry, argument.getArgNumber())));
    }
    for (unsigned i = 0; i < entry.getNumResults(); ++i) {
      entry.setResultAttr(i, "cmd.tensors", names(tensors.result(entry, i)));
      entry.setResultAttr(i, "cmd.buffer", bufferOf(entry.getBody().front().getTerminator()->getOperand(i)));
    }
    return success();
  }

  func::FuncOp entry;
  const NamedTensors &tensors;
  bool naive;
  int64_t inFlight;
  Timeline timeline;
  Buffers buffers;
  llvm::StringMap<unsigned> named;
  llvm::StringMap<const NamedTensor *> byKey;
  llvm::StringSet<> written;
  SmallVector<cmd::MaterializeOp> candidates;
  Value zero;
  llvm::DenseMap<unsigned, std::pair<StringRef, int64_t>> placed; ///< arena, where offset 0 of the buffer lies
};

class PlanMemory : public braid::impl::PlanMemoryPassBase<PlanMemory> {
public:
  using PlanMemoryPassBase::PlanMemoryPassBase;

  void runOnOperation() override {
    if (failed(plan()))
      signalPassFailure();
  }

private:
  LogicalResult plan() {
    ModuleOp module = getOperation();
    // Each stage of a pipeline has memory of its own.
    llvm::MapVector<int64_t, SmallVector<func::FuncOp>> entries;
    for (auto func : module.getOps<func::FuncOp>())
      if (func->hasAttr(attrs::entry))
        entries[stageOf(func).value_or(-1)].push_back(func);
    if (entries.empty())
      return module.emitError("no entry function: a public func.func with the attribute ") << attrs::entry;
    OpBuilder builder(module.getContext());
    builder.setInsertionPointToStart(module.getBody());
    auto program = cmd::ProgramOp::create(builder, module.getLoc());
    builder.createBlock(&program.getBody());
    SymbolTable symbols(module);
    SmallVector<std::pair<std::string, int64_t>> facts;
    std::vector<NamedTensors> tables;
    for (auto &[stage, own] : entries) {
      FailureOr<NamedTensors> tensors = NamedTensors::collect(own);
      llvm::StringMap<Packing> planned;
      std::optional<int64_t> activations;
      if (failed(tensors) || failed(plan(own, *tensors, symbols, planned, activations, facts)))
        return failure();
      writeArenas(program, *tensors, planned, stageOf(own.front()));
      if (activations)
        tellActivations(module, stageOf(own.front()), *activations);
      tables.push_back(std::move(*tensors));
    }
    for (auto [entry, tensors] : llvm::zip_equal(entries, tables))
      writeTensors(program, tensors, stageOf(entry.second.front()));
    for (auto func : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (func.isPrivate() && !func->hasAttr(tile::kKernelAttr))
        func.erase();
    writeFacts(module, facts);
    return success();
  }

  /// The entries of one stage. `activations`: the most that any entry keeps.
  LogicalResult plan(ArrayRef<func::FuncOp> entries, const NamedTensors &tensors, SymbolTable &symbols,
                     llvm::StringMap<Packing> &planned, std::optional<int64_t> &activations,
                     SmallVectorImpl<std::pair<std::string, int64_t>> &facts) {
    for (func::FuncOp entry : entries) {
      if (failed(prepareBuffers(entry, symbols)))
        return failure();
      EntryPlan plan(entry, tensors, naive, inFlight);
      if (failed(plan.run()))
        return failure();
      int64_t bytes = 0;
      for (auto &[name, arena] : plan.arenas)
        bytes += arena.packing.bytes;
      std::string key = "memory." + entry.getSymName().str();
      facts.push_back({key + ".planned_bytes", bytes});
      facts.push_back({key + ".lower_bound_bytes", plan.lowerBound});
      if (plan.activations)
        activations = std::max(activations.value_or(0), *plan.activations);
      for (auto &[name, arena] : plan.arenas) {
        Packing &most = planned[name];
        most.bytes = std::max(most.bytes, arena.packing.bytes);
        most.lowerBound = std::max(most.lowerBound, arena.packing.lowerBound);
        if (explain)
          entry.emitRemark() << "memory of @" << entry.getSymName() << ": " << name << " " << arena.packing.bytes
                             << " bytes in " << arena.buffers << " buffers, lower bound " << arena.packing.lowerBound;
      }
      if (explain)
        entry.emitRemark() << "memory of @" << entry.getSymName() << ": " << plan.merged << " values share a buffer, "
                           << plan.copies << " copies or fills of " << plan.copiedBytes << " bytes remain";
    }
    return success();
  }

  /// What DecideRecompute counted becomes what is planned; chunk states and the like were not there yet.
  static void tellActivations(ModuleOp module, std::optional<int64_t> stage, int64_t planned) {
    auto metadata = module->getAttrOfType<DictionaryAttr>(attrs::metadata);
    auto numberOf = [&](StringRef key) {
      auto text = metadata ? metadata.getAs<StringAttr>(key) : StringAttr();
      int64_t value = 0;
      return text && llvm::to_integer(text.getValue(), value) ? std::optional(value) : std::nullopt;
    };
    std::string keptKey = activationsKey(kKeptBytes, stage), allKey = activationsKey(kAllBytes, stage);
    std::optional<int64_t> kept = numberOf(keptKey), all = numberOf(allKey);
    if (kept && all)
      writeFacts(module, {{keptKey, planned}, {allKey, planned + std::max<int64_t>(*all - *kept, 0)}});
  }

  /// For those who look at the program file: braid-run info.
  static void writeFacts(ModuleOp module, ArrayRef<std::pair<std::string, int64_t>> facts) {
    auto metadata = module->getAttrOfType<DictionaryAttr>(attrs::metadata);
    if (!metadata)
      return;
    NamedAttrList entries(metadata);
    for (auto &[key, bytes] : facts)
      entries.set(key, StringAttr::get(module.getContext(), std::to_string(bytes)));
    module->setAttr(attrs::metadata, entries.getDictionary(module.getContext()));
  }

  static void writeArenas(cmd::ProgramOp program, const NamedTensors &tensors, const llvm::StringMap<Packing> &planned,
                          std::optional<int64_t> stage) {
    OpBuilder builder = OpBuilder::atBlockEnd(&program.getBody().front());
    for (StringRef arena : {"parameters", "optimizer", "gradients", "saved", "workspace", "io", "cache"}) {
      Packing packing = planned.lookup(arena);
      int64_t fixed = tensors.arenaBytes(arena);
      int64_t bytes = fixed ? fixed : packing.bytes, bound = fixed ? fixed : packing.lowerBound;
      if (bytes)
        cmd::ArenaOp::create(builder, program.getLoc(), builder.getStringAttr(stagedName(arena, stage)),
                             builder.getI64IntegerAttr(bytes), builder.getI64IntegerAttr(256),
                             builder.getI64IntegerAttr(bound), stageAttr(builder, stage));
    }
  }

  static IntegerAttr stageAttr(OpBuilder &builder, std::optional<int64_t> stage) {
    return stage ? builder.getI64IntegerAttr(*stage) : IntegerAttr();
  }

  static void writeTensors(cmd::ProgramOp program, const NamedTensors &tensors, std::optional<int64_t> stage) {
    OpBuilder builder = OpBuilder::atBlockEnd(&program.getBody().front());
    MLIRContext *context = program.getContext();
    auto text = [&](StringRef value) { return value.empty() ? StringAttr() : builder.getStringAttr(value); };
    for (const FileTensor &tensor : tensors.fileTensors()) {
      const NamedTensor &first = *tensor.first;
      auto buffer = cmd::BufferAttr::get(context, FlatSymbolRefAttr::get(context, first.arena()), tensor.offset,
                                         tensor.bytes, {});
      cmd::TensorOp::create(builder, first.loc, builder.getStringAttr(stagedName(tensor.name, stage)),
                            cmd::RoleAttr::get(context, first.role), TypeAttr::get(first.type), buffer,
                            tensor.layers.empty() ? DenseI32ArrayAttr() : builder.getDenseI32ArrayAttr(tensor.layers),
                            first.shards, text(tensor.of), first.slot);
    }
  }
};

} // namespace
