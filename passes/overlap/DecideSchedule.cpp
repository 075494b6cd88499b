//===- DecideSchedule.cpp - which layers are sliced, how, and in which order their tasks run ----------------------===//
#include "passes/Passes.h"
#include "passes/analysis/Mesh.h"
#include "passes/autodiff/Recompute.h"
#include "passes/overlap/LayerTasks.h"
#include "passes/shard/Sequence.h"
#include "runtime/schema/SequenceLayout.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_DECIDESCHEDULEPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

using Slices = std::vector<int64_t>;

template <size_t N> std::string joined(const std::array<std::string_view, N> &names) {
  std::string text;
  for (std::string_view name : names)
    text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

/// Every slice is divided along an axis, so all layers are cut, and alike: there is one layout of a row.
bool isDivided(Operation *op) { return op->hasAttr(kSequenceAttr); }

/// Tokens of a layer: those of its first token argument.
int64_t tokensOf(func::FuncOp layer) {
  for (Type type : layer.getArgumentTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type);
        tensor && tensor.getRank() >= 2 && tensor.getElementType().isInteger(32))
      return tensor.getDimSize(1); // documents [B, T]
  return 0;
}

/// Functions of the same layers, forward and backward: what one saves in slices the other reads so.
struct Layer {
  struct Direction {
    func::FuncOp function;
    bool backward;
    std::vector<BlockSeconds> seconds;
  };
  SmallVector<Direction> directions;
  int64_t tokens = 0, degree = 1;
  std::optional<schedule::AttentionCost> cost;
};

/// Bounds and, per direction, the order of the tasks.
struct Decision {
  Slices mixers, experts;
  std::vector<schedule::Plan> plans;
  double makespan = 0;
};

class DecideSchedulePass : public braid::impl::DecideSchedulePassBase<DecideSchedulePass> {
public:
  using DecideSchedulePassBase::DecideSchedulePassBase;
  void runOnOperation() override {
    std::optional<schedule::Pipeline> named = schedule::parsePipeline(pipeline);
    if (!named)
      return wrong() << "pipeline \"" << pipeline << "\" is not known; valid: " << joined(schedule::pipelineNames),
             signalPassFailure();
    std::optional<schedule::Slicing> cut = schedule::parseSlicing(slicing);
    if (!cut)
      return wrong() << "slicing \"" << slicing << "\" is not known; valid: " << joined(schedule::slicingNames),
             signalPassFailure();
    if (overlapDegree < 1 || overlapDegree > 16)
      return wrong() << "overlap degree is " << overlapDegree.getValue() << "; valid: 1 to 16", signalPassFailure();
    describe(1);
    if (failed(takeDegrees()))
      return signalPassFailure();
    if (named != schedule::Pipeline::none && (overlapDegree > 1 || !degrees.empty()) && failed(decideAll(*named, *cut)))
      return signalPassFailure();
    for (auto function : getOperation().getOps<func::FuncOp>())
      function->removeAttr(kLayerAttr);
  }

private:
  LogicalResult decideAll(schedule::Pipeline named, schedule::Slicing cut) {
    wanted = named;
    machine = Machine::of(getOperation());
    llvm::MapVector<StringRef, Layer> layers;
    SmallVector<func::FuncOp> candidates;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isPublic() && (hasOp(function, isDivided) || hasOp(function, isDataExchange)))
        candidates.push_back(function);
    bool divides = llvm::any_of(candidates, [](func::FuncOp layer) { return hasOp(layer, isDivided); });
    int64_t dividedDegree = 0;
    for (func::FuncOp function : candidates) {
      bool divided = hasOp(function, isDivided);
      if (int64_t sp = Mesh::of(getOperation()).size("sp"); sp > 1 && !divided) {
        if (divides)
          continue; // a prompt's
        function.emitOpError() << "has rows that sp = " << sp
                               << " ranks share and that were divided whole; valid: no slices, or --pipeline and "
                                  "--overlap-degree when --mesh divides the rows";
        return failure();
      }
      if (divided && failed(checkDivided(function)))
        return failure();
      int64_t degree = degrees.contains(function) ? degrees.at(function) : overlapDegree.getValue();
      if (int64_t known = divided ? std::exchange(dividedDegree, degree) : degree; known && known != degree) {
        function.emitOpError() << "has " << degree << " token slices but another layer " << known
                               << ": ranks that share the tokens of a row (sp, --mesh) cut all layers alike; valid: no "
                                  "schedule.overlap_degrees";
        return failure();
      }
      if (degree > 1 && failed(addTo(layers, function, degree)))
        return failure();
    }
    for (auto &[name, layer] : layers) {
      auto forward = llvm::find_if(layer.directions, [](const Layer::Direction &d) { return !d.backward; });
      if (forward == layer.directions.end() && layer.directions.front().function->hasAttr(kLayerAttr)) {
        layer.directions.front().function.emitOpError()
            << "is the gradient of a layer whose forward is not there to be cut alike (" << kLayerAttr << " = \""
            << name << "\")";
        return failure();
      }
      if (forward != layer.directions.end()) // slices are chosen by its times
        std::rotate(layer.directions.begin(), forward, std::next(forward));
      if (failed(decide(layer, cut)))
        return failure();
    }
    describe(mostSlices);
    auto alone = [](auto &entry) { return entry.second.directions.front().seconds.size() < 2; };
    if (wanted == schedule::Pipeline::crossBlock && !layers.empty() && llvm::all_of(layers, alone))
      getOperation().emitWarning() << "no two layers with experts are neighbours that can stand in one function: "
                                      "pipeline cross-block weaves over no edge and is 1A1M";
    if (candidates.empty())
      getOperation().emitWarning() << "no layer exchanges expert rows between ranks: pipeline " << pipeline
                                   << " has nothing to overlap (--mesh=dp=N,ep=N gives it something)";
    return success();
  }

  schedule::Pipeline wanted = schedule::Pipeline::none;
  Machine machine;
  int64_t mostSlices = 1; ///< of a layer
  DenseMap<Operation *, int64_t> degrees; ///< of layers with their own number of slices

  LogicalResult takeDegrees() {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      Attribute own = function->getAttr(attrs::overlapDegree);
      if (!own)
        continue;
      auto number = dyn_cast<IntegerAttr>(own);
      if (!number || number.getInt() < 1 || number.getInt() > 16)
        return function.emitOpError() << "has " << attrs::overlapDegree << " = " << own << "; valid: 1 to 16";
      degrees[function] = number.getInt();
      function->removeAttr(attrs::overlapDegree);
    }
    return success();
  }

  /// The program says what became of it: the pipeline, and the slices of the layer that has most.
  void describe(int64_t slices) {
    auto metadata = getOperation()->getAttrOfType<DictionaryAttr>(attrs::metadata);
    if (!metadata)
      return;
    Builder builder(&getContext());
    NamedAttrList entries(metadata);
    entries.set("overlap_degree", builder.getStringAttr(std::to_string(slices)));
    entries.set("pipeline", builder.getStringAttr(slices > 1 ? pipeline.getValue() : "none"));
    getOperation()->setAttr(attrs::metadata, entries.getDictionary(&getContext()));
  }

  InFlightDiagnostic wrong() { return getOperation().emitError(); }

  /// What a row that ranks share does not allow.
  LogicalResult checkDivided(func::FuncOp layer) {
    if (slicing != "uniform")
      return layer.emitOpError()
             << "has tokens on several ranks (sp, --mesh), whose layout all layers share: slicing \"" << slicing
             << "\" cuts each layer by its cost; valid: \"uniform\"";
    if (wanted != schedule::Pipeline::aAaM && wanted != schedule::Pipeline::A1M1)
      return layer.emitOpError() << "has tokens on several ranks (sp, --mesh), every slice divided: pipeline \""
                                 << pipeline << "\" has layers that are not cut or stand together; valid: \"aAaM\", "
                                 << "\"1A1M\"";
    return success();
  }

  /// Who fills a batch reads from the program file where slices end.
  LogicalResult layOut(func::FuncOp layer, ArrayRef<int64_t> slices) {
    Builder b(&getContext());
    std::vector<int64_t> ends;
    for (int64_t slice : slices)
      ends.push_back((ends.empty() ? 0 : ends.back()) + slice);
    auto layout = runtime::SequenceLayout::ofLocalEnds(ends, Mesh::of(getOperation()).size("sp"));
    StringRef key = runtime::SequenceLayout::metadataKey;
    auto text = b.getStringAttr(layout.text());
    auto entries = getOperation()->getAttrOfType<DictionaryAttr>(attrs::metadata);
    NamedAttrList metadata(entries ? entries : b.getDictionaryAttr({}));
    if (Attribute known = metadata.get(key); known && known != text)
      return layer.emitOpError() << "is cut behind tokens " << text << " but another layer behind " << known;
    metadata.set(key, text);
    getOperation()->setAttr(attrs::metadata, metadata.getDictionary(&getContext()));
    return success();
  }

  /// Forward and gradient of a layer say so (kLayerAttr); what is not differentiated is by itself.
  LogicalResult addTo(llvm::MapVector<StringRef, Layer> &layers, func::FuncOp function, int64_t degree) {
    auto pair = function->getAttrOfType<StringAttr>(kLayerAttr);
    // A pair is named after the function that was differentiated, which may be there, too.
    auto alone = StringAttr::get(&getContext(), "@" + function.getName());
    Layer &layer = layers[(pair ? pair : alone).getValue()];
    bool backward = isBackwardLayer(function);
    if (int64_t tokens = tokensOf(function); !layer.directions.empty() && layer.tokens != tokens) {
      InFlightDiagnostic error = function.emitOpError()
                                 << "has " << tokens << " tokens in a row but another version of its layer "
                                 << layer.tokens;
      error.attachNote(layer.directions.front().function->getLoc()) << "the other version";
      return error;
    }
    layer.tokens = tokensOf(function);
    layer.degree = degree;
    layer.cost = attentionCostOf(function);
    layer.directions.push_back({function, backward, secondsOf(function, backward, machine)});
    return success();
  }

  Slices slicesOf(const Layer &layer, schedule::Slicing cut) const {
    int64_t tokens = layer.tokens, align = schedule::defaultAlignment(tokens, layer.degree);
    if (layer.cost && cut == schedule::Slicing::time_uniform)
      return schedule::timeUniformSlices(tokens, layer.degree, *layer.cost);
    if (layer.cost && cut == schedule::Slicing::balanced)
      return schedule::balancedSlices(tokens, layer.degree, *layer.cost, align);
    if (layer.cost && cut == schedule::Slicing::simulated) {
      const BlockSeconds &block = layer.directions.front().seconds.front();
      // Its exchanges have one stream: what ranks of etp share is taken to follow on it.
      schedule::LayerTimes times{*layer.cost,   block.A.of(1) + block.attention.of(1), block.D.of(1) + block.G.of(1),
                                 block.M.of(1), block.R.of(1) + block.C.of(1),         machine.linkLatency};
      return schedule::simulatedSlices(tokens, layer.degree, times, align);
    }
    return schedule::uniformSlices(tokens, layer.degree);
  }

  Decision plan(const Layer &layer, Slices mixers, Slices experts, schedule::Pipeline order) const {
    Decision decision{std::move(mixers), std::move(experts), {}, 0};
    for (const Layer::Direction &direction : layer.directions) {
      schedule::Stages stages =
          stagesOf(direction.seconds, direction.backward, layer.cost, decision.mixers, decision.experts);
      stages.pipeline = order;
      stages.keepSlices = true;
      stages.crossBlock = order == schedule::Pipeline::best || order == schedule::Pipeline::crossBlock;
      decision.plans.push_back(schedule::planStages(stages));
      const schedule::Plan &plan = decision.plans.back();
      decision.makespan += schedule::measure(plan.problem, plan.schedule).makespan;
    }
    return decision;
  }

  LogicalResult decide(const Layer &layer, schedule::Slicing cut) {
    func::FuncOp first = layer.directions.front().function;
    int64_t tokens = layer.tokens, degree = layer.degree;
    if (tokens < degree)
      return first.emitOpError() << "has " << tokens << " tokens in a row, too few for overlap degree " << degree
                                 << " (--overlap-degree)"
                                 << "; valid: 1 to " << tokens;
    Slices whole = {tokens}, uniform = schedule::uniformSlices(tokens, degree);
    if (wanted == schedule::Pipeline::moe)
      return write(layer, plan(layer, whole, uniform, wanted)), success();
    Slices mixers = slicesOf(layer, cut);
    // Experts cost the same for every token; `simulated` chose one grid for both.
    Slices experts = cut == schedule::Slicing::simulated ? mixers : schedule::uniformSlices(tokens, mixers.size());
    if (hasOp(first, isDivided) && failed(layOut(first, mixers)))
      return failure();
    if (wanted != schedule::Pipeline::best && mixers.size() > 1) // `simulated` may find that one slice is fastest
      write(layer, plan(layer, mixers, experts, wanted));
    if (wanted != schedule::Pipeline::best)
      return success();
    // Forward and backward of a layer must be cut alike, so the sum of both decides how.
    Decision best = plan(layer, whole, whole, schedule::Pipeline::none);
    for (Decision other : {plan(layer, whole, uniform, schedule::Pipeline::best),
                           plan(layer, mixers, experts, schedule::Pipeline::best)})
      if (other.makespan < best.makespan * (1 - 1e-12))
        best = std::move(other);
    if (best.experts.size() > 1)
      write(layer, best);
    return success();
  }

  void write(const Layer &layer, const Decision &decision) {
    mostSlices = std::max<int64_t>(mostSlices, decision.experts.size());
    Builder b(&getContext());
    auto boundsAttr = [&](const Slices &slices) {
      SmallVector<int64_t> bounds = {0};
      for (int64_t slice : slices)
        bounds.push_back(bounds.back() + slice);
      return b.getDenseI64ArrayAttr(bounds);
    };
    for (auto [direction, plan] : llvm::zip_equal(layer.directions, decision.plans)) {
      std::vector<std::string> order = schedule::programOrder(plan);
      SmallVector<StringRef> names(order.begin(), order.end());
      SmallVector<NamedAttribute> list = {
          b.getNamedAttr("direction", b.getStringAttr(direction.backward ? "backward" : "forward")),
          b.getNamedAttr("pipeline", b.getStringAttr(pipeline)),
          b.getNamedAttr("token_slices", boundsAttr(decision.mixers)),
          b.getNamedAttr("order", b.getStrArrayAttr(names))};
      if (wanted == schedule::Pipeline::best)
        list.push_back(b.getNamedAttr("how", b.getStringAttr(plan.how)));
      if (decision.experts != decision.mixers)
        list.push_back(b.getNamedAttr("moe_slices", boundsAttr(decision.experts)));
      func::FuncOp(direction.function)->setAttr(attrs::schedule, b.getDictionaryAttr(list));
    }
  }
};

} // namespace
