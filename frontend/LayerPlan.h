//===- LayerPlan.h - which layers are equal and how they repeat ---------------------------------------------------===//
// LLLNLLLN becomes one group of two rounds: { 3 x L, 1 x N }. Layers of one run share a function; their weights are
// stacked [rounds, count, ...] (dimensions of 1 left out), so the program does not grow with depth. A layer with a block
// that it shares is a run of its own: the block's weights are no stack.
#ifndef FRONTEND_LAYERPLAN_H
#define FRONTEND_LAYERPLAN_H

#include "frontend/ModelSpec.h"

namespace braid {

struct LayerRun {
  std::string mixers; ///< letters: more than one stand side by side
  char ffn;
  char inject; ///< the block that it shares with other layers
  bool recompute; ///< the backward computes the layer's activations again
  int64_t overlapDegree; ///< token slices of the layer; 0: as many as the model's
  int64_t count;
  std::vector<int32_t> layers; ///< absolute indices, row-major over [rounds, count]
};

struct LayerGroup {
  int64_t rounds;
  std::vector<LayerRun> runs;
};

/// The plan of layers [begin, end) with the fewest runs: layers before, a repeated period, the same again for the layers
/// after.
std::vector<LayerGroup> planLayers(const ModelSpec &spec, int64_t begin, int64_t end);

/// The layers with which each stage of a pipeline begins, and the number of all: `costs` of layers one behind the other so
/// shared out that the dearest stage is as cheap as can be. `last` is what the last stage does beside its layers; it may have none.
std::vector<int64_t> shareOut(const std::vector<double> &costs, double last, int64_t stages);
/// What a step of so many micro-batches costs on these stages: one goes through all of them, others follow as fast as the dearest stage and its
/// exchanges with others let them. Each stage has `each` to do beside its layers.
double stepCost(const std::vector<double> &costs, double last, double each, double exchanges,
                const std::vector<int64_t> &begins, int64_t microBatches);

} // namespace braid

#endif // FRONTEND_LAYERPLAN_H
