//===- Parameters.h - the parameters and caches of a model, as its entry points take them -------------------------===//
#ifndef FRONTEND_PARAMETERS_H
#define FRONTEND_PARAMETERS_H

#include "frontend/LayerPlan.h"
#include "frontend/layers/LayerBuilder.h"

namespace braid {

/// A named tensor of the model; stacked over `layers` where there are several.
struct ModelTensor {
  std::string name; ///< "layers.{}.lsm.wq", "layers.3.lsm.wq" (one layer), "embed.weight"
  Shape shape; ///< with the stacked dimensions
  mlir::FloatType element;
  std::vector<int32_t> layers;
  std::vector<std::string> dims; ///< what its dimensions count (braid.dims), without the stacked ones
  Init init;
  bool decay = true, trained = true;
  double rateScale = 1.0, correctionRate = 0.0; ///< see WeightDecl
  std::string slot = {}; ///< braid.slot, perhaps
  int64_t elements() const;
  /// FNV-1a 64 of each layer's logical name: the key of its random numbers.
  std::vector<int64_t> keys() const;
  mlir::RankedTensorType type() const { return mlir::RankedTensorType::get(shape, element); }
};

/// Shape of something that every layer of a run has, stacked.
Shape stackedShape(const LayerGroup &group, const LayerRun &run, llvm::ArrayRef<int64_t> shape);
/// "layers.{}.<name>", or with the index of the only layer.
ModelTensor layerTensor(const LayerGroup &group, const LayerRun &run, llvm::StringRef prefix, llvm::StringRef name,
                        mlir::RankedTensorType type);

} // namespace braid

#endif // FRONTEND_PARAMETERS_H
