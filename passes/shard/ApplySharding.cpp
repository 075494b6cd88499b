//===- ApplySharding.cpp - logical tensors -> local tensors and collectives ---------------------------------------===//
// Entries: where arguments and results are follows from the logical names of their dimensions (braid.dims); what is in
// between follows from that (Sharder.h).
#include "mlir/IR/Matchers.h"
#include "passes/Passes.h"
#include "passes/analysis/Calls.h"
#include "passes/analysis/Tensors.h"
#include "passes/shard/Sharder.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_APPLYSHARDINGPASS
#include "passes/Passes.h.inc"
} // namespace braid

//===- Arguments and results --------------------------------------------------------------------------------------===//

namespace {
/// Attributes of an argument or result of an entry.
struct Described {
  mutable func::FuncOp entry;
  bool isResult;
  unsigned i;

  template <typename T> T get(StringRef name) const {
    return isResult ? entry.getResultAttrOfType<T>(i, name) : entry.getArgAttrOfType<T>(i, name);
  }
  RankedTensorType type() const {
    return cast<RankedTensorType>(isResult ? entry.getResultTypes()[i] : entry.getArgumentTypes()[i]);
  }
  StringRef text(StringRef name) const {
    auto value = get<StringAttr>(name);
    return value ? value.getValue() : StringRef();
  }
  StringRef role() const { return text(attrs::role); }
  /// Number of leading dimensions that count layers: their product is the number of layers.
  int64_t stackedDims() const {
    auto layers = get<DenseI32ArrayAttr>(attrs::layers);
    if (!layers)
      return 0;
    int64_t dim = 0, product = 1;
    while (dim < type().getRank() && product < layers.size())
      product *= type().getDimSize(dim++);
    return layers.size() == 1 ? 1 : dim;
  }
  /// "layers.3.moe.w1": of several layers, which are one argument, the first.
  std::string shownName() const {
    std::string text = this->text(attrs::name).str();
    if (text.empty())
      text = "#" + std::to_string(i);
    auto layers = get<DenseI32ArrayAttr>(attrs::layers);
    if (size_t at = text.find("{}"); at != std::string::npos && layers && !layers.empty())
      text.replace(at, 2, std::to_string(layers[0]));
    return "\"" + text + "\"";
  }
  /// The logical names of its dimensions: its own, or those of the parameter that it belongs to.
  ArrayAttr dims() const {
    if (auto own = get<ArrayAttr>(attrs::dims))
      return own;
    StringRef of = text(attrs::of);
    if (of.empty())
      return {};
    for (bool result : {false, true})
      for (unsigned n = 0, e = result ? entry.getNumResults() : entry.getNumArguments(); n < e; ++n) {
        Described other{entry, result, n};
        if (other.text(attrs::name) == of && other.get<Attribute>(attrs::layers) == get<Attribute>(attrs::layers))
          if (auto dims = other.get<ArrayAttr>(attrs::dims))
            return dims;
      }
    return {};
  }
};

/// What such a dimension counts.
StringRef unitsOf(StringRef name) {
  return name == "batch" ? "rows" : name == "sequence" ? "tokens" : name.ends_with("vocab") ? "words" : name;
}

/// What a name of a dimension is called where a user can change it.
StringRef keyOf(StringRef name) {
  static constexpr std::pair<StringLiteral, StringLiteral> table[] = {{"batch", "train.batch, --batch"},
                                                                      {"sequence", "train.seq_len, --seq-len"},
                                                                      {"vocab", "vocab_size"},
                                                                      {"stage_vocab", "vocab_size"},
                                                                      {"heads", "mixers: heads"},
                                                                      {"kv_heads", "mixers: kv_heads, key_heads"},
                                                                      {"hidden", "ffns: hidden"},
                                                                      {"experts", "ffns: num_experts"},
                                                                      {"expert_hidden", "ffns: expert_hidden"}};
  for (auto [dim, key] : table)
    if (dim == name)
      return key;
  return name;
}
} // namespace

FailureOr<Placement> Sharder::argumentPlacement(func::FuncOp entry, bool isResult, unsigned i) {
  Described value{entry, isResult, i};
  RankedTensorType type = value.type();
  Placement placement = Placement::whole(type.getRank());
  SmallVector<std::string> names(value.stackedDims(), "layers");
  if (ArrayAttr dims = value.dims())
    for (auto name : dims.getAsRange<StringAttr>())
      names.push_back(name.str());
  else if (value.role() == "input" && type.getRank() >= 2)
    names.push_back("batch"); // inputs with a batch in front are rows of it; scalars are [1] and the same on all ranks
  for (int64_t dim = 0, e = std::min<int64_t>(names.size(), type.getRank()); dim < e; ++dim) {
    DimName known = DimName::parse(names[dim]);
    Axes axes = axesOfDim(mesh, known.name);
    int64_t count = parts(axes), units = type.getDimSize(dim) / known.unit;
    if (known.name == "kv_heads" && units == 1)
      continue; // every rank's heads read it
    if (units % count) {
      // Of a weight, which a description says by its key, the function that initializes it is of no interest.
      bool isWeight = isResult && !value.text(attrs::name).empty(), isWritten = isa<FileLineColLoc>(entry.getLoc());
      InFlightDiagnostic error =
          isWeight ? emitError(isWritten ? entry.getLoc() : UnknownLoc::get(entry.getContext())) : entry.emitOpError();
      return error << (isWeight   ? "weight "
                       : isResult ? "result "
                                  : "argument ")
                   << value.shownName() << " has " << units << " " << unitsOf(known.name) << " (" << keyOf(known.name)
                   << "), which " << productName(axes) << " = " << count
                   << " ranks (--mesh) do not divide; valid: a divisor of " << units << ", or a multiple of " << count
                   << " " << unitsOf(known.name) << (known.name == "kv_heads" ? ", or 1 that every rank keeps" : "");
    }
    placement.dims[dim] = axes;
  }
  if (value.role() == "moment")
    cutState(placement, type, value.stackedDims(), gradientSums(value.dims()));
  return placement;
}

ArrayAttr Sharder::shardsAttr(const Placement &placement, int64_t stackedDims) {
  Builder b(module.getContext());
  SmallVector<Attribute> list;
  for (auto [dim, axes] : llvm::enumerate(placement.dims)) {
    SmallVector<Axes> runs = productsOf(axes);
    for (const Axes &run : llvm::reverse(runs)) // the outermost first
      list.push_back(b.getArrayAttr(
          {b.getI64IntegerAttr(static_cast<int64_t>(dim) - stackedDims), b.getStringAttr(productName(run))}));
  }
  return list.empty() ? ArrayAttr() : b.getArrayAttr(list);
}

//===- Entries ----------------------------------------------------------------------------------------------------===//

/// Where the optimizer wants each gradient, and what it is made of.
void Sharder::collectWanted(func::FuncOp entry) {
  std::vector<std::pair<Value, Placement>> open;
  for (auto update : entry.getBody().front().getOps<AdamwOp>())
    if (auto parameter = dyn_cast<BlockArgument>(update.getParameter()))
      open.push_back({update.getGradient(), placementOf(parameter)});
  for (auto [i, value] : llvm::enumerate(entry.getBody().front().getTerminator()->getOperands()))
    if (Described{entry, true, static_cast<unsigned>(i)}.role() == "gradient")
      if (auto placement = argumentPlacement(entry, true, i); succeeded(placement))
        open.push_back({value, *placement});
  while (!open.empty()) {
    auto [value, placement] = open.back();
    open.pop_back();
    wanted.try_emplace(value, placement);
    if (Operation *def = value.getDefiningOp(); isa_and_nonnull<CastOp, AddOp>(def))
      for (Value source : def->getOperands())
        open.push_back({source, placement});
  }
}

/// Whether an entry continues one sequence rather than read rows of a batch.
static bool generates(func::FuncOp entry) {
  return llvm::any_of(llvm::seq(entry.getNumArguments()),
                      [&](unsigned i) { return Described{entry, false, i}.role() == "cache"; });
}

/// A prompt is divided where its tokens can be, a decoded token never.
static bool dividesPrompt(func::FuncOp entry, int64_t ranks) {
  auto documents = entry.getBody().front().getOps<DocumentsOp>();
  int64_t tokens = documents.empty() ? 1 : typeOf((*documents.begin()).getResult()).getDimSize(1);
  return tokens > 1 && tokens % ranks == 0;
}

LogicalResult Sharder::shardEntry(func::FuncOp entry) {
  sharesTokens = !generates(entry) || dividesPrompt(entry, mesh.size("sp"));
  slicesRows = sliced && mesh.size("sp") > 1 && !generates(entry);
  SmallVector<Type> types;
  std::vector<Placement> arguments;
  placements.clear(); // of values that are gone
  for (BlockArgument argument : entry.getArguments()) {
    unsigned i = argument.getArgNumber();
    FailureOr<Placement> placement = argumentPlacement(entry, false, i);
    if (failed(placement))
      return failure();
    RankedTensorType type = typeOf(argument);
    for (auto [dim, axes] : llvm::enumerate(placement->dims))
      type = withDim(type, dim, type.getDimSize(dim) / parts(axes));
    Described value{entry, false, i};
    // Accumulated so far: this rank's part of the sum. Loads are few, and a loss may need their sum over ranks in every step.
    if (value.role() == "gradient" && !value.get<FloatAttr>(attrs::correctionRate))
      placement->pending = gradientSums(value.dims());
    if (value.role() != "input" && !value.role().empty())
      if (ArrayAttr shards = shardsAttr(*placement, value.stackedDims()))
        entry.setArgAttr(i, attrs::shards, shards);
    types.push_back(type);
    arguments.push_back(*placement);
    place(argument, *placement);
  }
  wanted.clear();
  reduced.clear();
  conversions.clear();
  entryArguments = arguments;
  collectWanted(entry);
  collectReduced(entry);
  return rewriteEntry(entry, types);
}

Axes Sharder::gradientSums(ArrayAttr dims) const {
  bool expert = dims && llvm::any_of(dims.getAsRange<StringAttr>(),
                                     [](StringAttr dim) { return DimName::parse(dim.getValue()).name == "experts"; });
  return expert ? expertAxes() : tokenAxes();
}

LogicalResult Sharder::beforeReturn(func::FuncOp entry, IRMapping &map, OpBuilder &builder) {
  for (auto [i, value] : llvm::enumerate(entry.getBody().front().getTerminator()->getOperands())) {
    Described result{entry, true, static_cast<unsigned>(i)};
    Placement to = placementOf(map.lookup(value));
    StringRef role = result.role();
    auto alias = result.get<IntegerAttr>(attrs::alias);
    if (role == kStageOutput || role == kStageCotangent ||
        role == kStageBroadcast) { // where the other stage expects it
      FailureOr<Placement> there = argumentPlacement(entry, true, i);
      if (failed(there))
        return failure();
      to = *there;
    } else if (alias) {
      to = entryArguments[alias.getInt()];
    } else {
      to.pending.clear();
      if (role != "gradient") // what the host reads: rows of the batch apart, all else whole
        for (Axes &axes : to.dims)
          llvm::erase_if(axes, [&](StringRef axis) { return generates(entry) || (axis != "dp" && axis != "sp"); });
    }
    OpBuilder::InsertionGuard guard(builder);
    if (auto update = map.lookup(value).getDefiningOp<AdamwOp>())
      builder.setInsertionPointAfter(update);
    Value local = convert(builder, entry, map.lookup(value), to);
    if (!local)
      return failure();
    map.map(value, local);
    if (role == "parameter" || role == "moment" || role == "gradient")
      if (ArrayAttr shards = shardsAttr(to, result.stackedDims()))
        entry.setResultAttr(i, attrs::shards, shards);
  }
  // Parameters that are gathered travel while those that are not are updated.
  Block &body = *builder.getInsertionBlock();
  for (AdamwOp update : llvm::to_vector(body.getOps<AdamwOp>()))
    if (update.getNewParameter().use_empty())
      update->moveBefore(&body, body.end());
  return success();
}

/// A shard of an initial value is computed, not cut: the generator is keyed by the logical index.
LogicalResult Sharder::shardInit(func::FuncOp entry) {
  Block &body = entry.getBody().front();
  OpBuilder b(entry.getContext());
  entryArguments.clear();
  beginFunction(body, {});
  for (OpOperand &returned : body.getTerminator()->getOpOperands()) {
    unsigned i = returned.getOperandNumber();
    Described result{entry, true, i};
    FailureOr<Placement> placement = argumentPlacement(entry, true, i);
    if (failed(placement))
      return failure();
    if (placement->isWhole())
      continue;
    auto init = returned.get().getDefiningOp<InitOp>();
    if (!init)
      return entry.emitOpError() << "result " << result.shownName()
                                 << " is cut over ranks (--mesh), but its value is no braid.init, whose parts a rank "
                                    "can compute by itself";
    if (!init.getResult().hasOneUse()) { // other results have it whole, or cut elsewhere
      b.setInsertionPointAfter(init);
      init = cast<InitOp>(b.clone(*init));
      returned.set(init.getResult());
    }
    RankedTensorType type = typeOf(init.getResult());
    SmallVector<Value> coordinates;
    SmallVector<int64_t> dims, counts;
    Value value = init.getResult();
    for (auto [dim, axes] : llvm::enumerate(placement->dims)) {
      type = withDim(type, dim, type.getDimSize(dim) / parts(axes));
      SmallVector<Axes> runs = productsOf(axes);
      for (const Axes &run : llvm::reverse(runs)) {
        coordinates.push_back(coordinate(run));
        dims.push_back(static_cast<int64_t>(dim) - result.stackedDims());
        counts.push_back(parts(run));
      }
    }
    if (init.getDistribution() == "values") { // a table: its part
      b.setInsertionPointAfter(init);
      for (auto [coordinate, dim, count] : llvm::zip_equal(coordinates, dims, counts)) {
        int64_t at = dim + result.stackedDims();
        RankedTensorType part = withDim(typeOf(value), at, typeOf(value).getDimSize(at) / count);
        value = ShardOp::create(b, init.getLoc(), part, value, coordinate, at, count);
      }
      returned.set(value);
    } else {
      init.getResult().setType(type);
      init.getCoordinatesMutable().assign(coordinates);
      init.setShardDims(dims);
      init.setShardCounts(counts);
    }
    entry.setResultAttr(i, attrs::shards, shardsAttr(*placement, result.stackedDims()));
  }
  entry.setFunctionType(b.getFunctionType(body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
  endFunction(entry);
  return success();
}

//===- The pass ---------------------------------------------------------------------------------------------------===//

namespace {
class ApplyShardingPass : public braid::impl::ApplyShardingPassBase<ApplyShardingPass> {
public:
  using ApplyShardingPassBase::ApplyShardingPassBase;
  void runOnOperation() override {
    llvm::Expected<Mesh> mesh = Mesh::parse(meshText);
    if (!mesh) {
      getOperation().emitError("mesh: ") << llvm::toString(mesh.takeError());
      return signalPassFailure();
    }
    if (failed(checkCalls(getOperation())))
      return signalPassFailure();
    getOperation()->setAttr(attrs::mesh, mesh->toAttr(&getContext()));
    SpAlgorithm algorithm = SpAlgorithm::automatic;
    if (auto word = getOperation()->getAttrOfType<StringAttr>(attrs::spAlgorithm)) {
      std::optional<SpAlgorithm> known = parseSpAlgorithm(word.getValue());
      if (!known) {
        getOperation().emitError() << attrs::spAlgorithm << " is " << word << "; valid: auto, ring, all_gather, scan";
        return signalPassFailure();
      }
      algorithm = *known;
      getOperation()->removeAttr(attrs::spAlgorithm);
    }
    if (mesh->world() == 1) {
      getOperation()->removeAttr(attrs::expertRoom);
      return;
    }
    SmallVector<func::FuncOp> entries(getOperation().getOps<func::FuncOp>());
    llvm::erase_if(entries, [](func::FuncOp f) { return !f->hasAttr(attrs::entry); });
    Sharder sharder(getOperation(), *mesh, sliced, algorithm);
    for (func::FuncOp entry : entries)
      if (failed(unstagedName(entry.getName(), stageOf(entry)) == "init" ? sharder.shardInit(entry)
                                                                         : sharder.shardEntry(entry)))
        return signalPassFailure();
    sharder.finish();
    getOperation()->removeAttr(attrs::expertRoom);
    gatherLatents(getOperation());
    mergeExchanges(getOperation());
  }
};
} // namespace
