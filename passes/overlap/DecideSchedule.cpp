//===- DecideSchedule.cpp - which layers are sliced, how, and in which order their tasks run ----------------------===//
#include "passes/Passes.h"
#include "passes/analysis/Mesh.h"
#include "passes/autodiff/Recompute.h"
#include "passes/overlap/LayerTasks.h"
#include "passes/overlap/SliceLayer.h"
#include "passes/shard/Sequence.h"
#include "runtime/schema/SequenceLayout.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"

#include <limits>

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

/// Every slice is divided along an axis, so the mixers of all layers are cut alike: there is one layout of a row.
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
  int64_t tokens = 0, degree = 1, calls = 1;
  std::optional<schedule::AttentionCost> cost;
  bool exchanges = true; ///< expert rows
};

/// Bounds and, per direction, the order of the tasks.
struct Decision {
  Slices mixers, experts;
  std::vector<schedule::Plan> plans;
  double makespan = 0;
};

/// How often a layer runs in all entries together.
int64_t callsOf(func::FuncOp layer) {
  int64_t calls = 0;
  layer->getParentOfType<ModuleOp>().walk([&](func::CallOp call) {
    if (call.getCallee() != layer.getName())
      return;
    int64_t times = 1;
    for (Operation *op = call; auto repeat = dyn_cast_or_null<RepeatOp>(op->getParentOp()); op = repeat)
      times *= static_cast<int64_t>(repeat.getCount());
    calls += times;
  });
  return std::max<int64_t>(calls, 1);
}

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
    for (func::FuncOp function : candidates) {
      bool divided = hasOp(function, isDivided);
      if (int64_t sp = Mesh::of(getOperation()).size("sp"); sp > 1 && !divided) {
        if (!divides) {
          function.emitOpError() << "has rows that sp = " << sp
                                 << " ranks share and that were divided whole; valid: no slices, or --pipeline and "
                                    "--overlap-degree when --mesh divides the rows";
          return failure();
        }
        if (!function->hasAttr(kLayerAttr))
          continue; // a prompt's; in a layer that is trained, experts alone cross no tokens
      }
      int64_t degree = degrees.contains(function) ? degrees.at(function) : overlapDegree.getValue();
      if (degree == 1 && !divided)
        leaveWhole(function, degree);
      else if (failed(addTo(layers, function, degree)))
        return failure();
    }
    SmallVector<const Layer *> together; // all that ranks share
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
      if (divides)
        together.push_back(&layer);
      else if (failed(decide(&layer, cut)))
        return failure();
    }
    if (!together.empty() && failed(decide(together, cut)))
      return failure();
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

  /// Who fills a batch reads from the program file where slices end.
  void layOut(ArrayRef<int64_t> slices) {
    Builder b(&getContext());
    std::vector<int64_t> ends;
    for (int64_t slice : slices)
      ends.push_back((ends.empty() ? 0 : ends.back()) + slice);
    auto layout = runtime::SequenceLayout::ofLocalEnds(ends, Mesh::of(getOperation()).size("sp"));
    auto entries = getOperation()->getAttrOfType<DictionaryAttr>(attrs::metadata);
    NamedAttrList metadata(entries ? entries : b.getDictionaryAttr({}));
    metadata.set(runtime::SequenceLayout::metadataKey, b.getStringAttr(layout.text()));
    getOperation()->setAttr(attrs::metadata, metadata.getDictionary(&getContext()));
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
    layer.calls = callsOf(function);
    layer.exchanges = hasOp(function, isDataExchange);
    layer.directions.push_back({function, backward, secondsOf(function, backward, machine)});
    return success();
  }

  Slices slicesOf(const Layer &layer, int64_t degree, schedule::Slicing cut) const {
    int64_t tokens = layer.tokens, align = schedule::defaultAlignment(tokens, degree);
    if (layer.cost && cut == schedule::Slicing::time_uniform)
      return schedule::timeUniformSlices(tokens, degree, *layer.cost);
    if (layer.cost && cut == schedule::Slicing::balanced)
      return schedule::balancedSlices(tokens, degree, *layer.cost, align);
    if (layer.cost && cut == schedule::Slicing::simulated) {
      const BlockSeconds &block = layer.directions.front().seconds.front();
      // Its exchanges have one stream: what ranks of etp share is taken to follow on it.
      schedule::LayerTimes times{*layer.cost,   block.A.of(1) + block.attention.of(1), block.D.of(1) + block.G.of(1),
                                 block.M.of(1), block.R.of(1) + block.C.of(1),         machine.linkLatency};
      return schedule::simulatedSlices(tokens, degree, times, align);
    }
    return schedule::uniformSlices(tokens, degree);
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

  /// Bounds that the mixers of layers that are cut alike may have: of the layers whose tokens differ in cost, each would
  /// choose its own. Whole first, for of equals the first is taken.
  std::vector<Slices> candidatesOf(ArrayRef<const Layer *> layers, schedule::Slicing cut) const {
    int64_t degree = 1;
    for (const Layer *layer : layers)
      degree = std::max(degree, layer->degree);
    std::vector<Slices> candidates;
    if (wanted == schedule::Pipeline::best || wanted == schedule::Pipeline::moe)
      candidates.push_back({layers.front()->tokens});
    if (wanted == schedule::Pipeline::moe)
      return candidates;
    bool costsDiffer = llvm::any_of(layers, [](const Layer *layer) { return layer->cost.has_value(); });
    for (const Layer *layer : layers)
      if (layer->cost || !costsDiffer || cut == schedule::Slicing::simulated)
        if (Slices slices = slicesOf(*layer, degree, cut); !llvm::is_contained(candidates, slices))
          candidates.push_back(std::move(slices));
    return candidates;
  }

  /// The fastest way of a layer whose mixer is cut so.
  Decision decisionOf(const Layer &layer, const Slices &mixers, schedule::Slicing cut, bool alone) const {
    bool best = wanted == schedule::Pipeline::best, cutMixer = mixers.size() > 1;
    bool cutExperts = cutMixer || best || wanted == schedule::Pipeline::moe; // `simulated` may find one slice fastest
    Slices whole = {layer.tokens}, experts = whole;
    auto most = std::min<int64_t>(layer.degree, cutMixer ? mixers.size() : layer.tokens);
    // Experts cost the same for every token; `simulated` chose one grid for both.
    if (!layer.exchanges || (cut == schedule::Slicing::simulated && cutMixer && most == std::ssize(mixers)))
      experts = mixers;
    else if (cutExperts)
      experts = schedule::uniformSlices(layer.tokens, most);
    auto planned = [&](const Slices &experts) {
      return plan(layer, mixers, experts, cutMixer || experts.size() > 1 ? wanted : schedule::Pipeline::none);
    };
    if (!best || experts == whole || !layer.exchanges || (cutMixer && alone))
      return planned(experts);
    // Mixers that all layers cut alike, and experts that are faster whole.
    Decision unsliced = planned(whole), sliced = planned(experts);
    return sliced.makespan < unsliced.makespan * (1 - 1e-12) ? sliced : unsliced;
  }

  /// Layers whose mixers are cut alike, in the fastest way for all of them together; forward and backward of each must
  /// be cut alike, so the sum of both decides.
  LogicalResult decide(ArrayRef<const Layer *> layers, schedule::Slicing cut) {
    func::FuncOp first = layers.front()->directions.front().function;
    for (const Layer *layer : layers) {
      func::FuncOp function = layer->directions.front().function;
      if (layer->tokens < layer->degree)
        return function.emitOpError() << "has " << layer->tokens << " tokens in a row, too few for overlap degree "
                                      << layer->degree << " (--overlap-degree)"
                                      << "; valid: 1 to " << layer->tokens;
      if (layer->tokens != layers.front()->tokens) {
        InFlightDiagnostic error = function.emitOpError()
                                   << "has " << layer->tokens << " tokens in a row but another layer "
                                   << layers.front()->tokens
                                   << ": ranks that share the tokens of a row (sp, --mesh) cut all mixers alike";
        error.attachNote(first.getLoc()) << "the other layer";
        return error;
      }
    }
    std::vector<Decision> chosen;
    double least = std::numeric_limits<double>::infinity();
    for (const Slices &mixers : candidatesOf(layers, cut)) {
      std::vector<Decision> decisions;
      double sum = 0;
      for (const Layer *layer : layers) {
        decisions.push_back(decisionOf(*layer, mixers, cut, layers.size() == 1));
        sum += decisions.back().makespan * static_cast<double>(layer->calls);
      }
      if (sum < least * (1 - 1e-12)) {
        least = sum;
        chosen = std::move(decisions);
      }
    }
    bool divides =
        llvm::any_of(layers, [](const Layer *layer) { return hasOp(layer->directions.front().function, isDivided); });
    if (divides && chosen.front().mixers.size() > 1)
      layOut(chosen.front().mixers);
    for (auto [layer, decision] : llvm::zip_equal(layers, chosen))
      if (decision.mixers.size() > 1 || decision.experts.size() > 1)
        write(*layer, decision);
      else
        for (const Layer::Direction &direction : layer->directions)
          leaveWhole(direction.function, layer->degree);
    return success();
  }

  void leaveWhole(func::FuncOp function, int64_t degree) {
    function->setAttr(kWholeAttr, StringAttr::get(&getContext(), degree == 1 ? "its overlap degree is 1"
                                                                             : "no order of slices is faster"));
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
