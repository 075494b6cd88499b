//===- ModelImport.h - what other software calls the weights of a model -------------------------------------------===//
#ifndef FRONTEND_MODELIMPORT_H
#define FRONTEND_MODELIMPORT_H

#include "frontend/Json.h"
#include "frontend/Parameters.h"

namespace braid {

/// Reads the object `import`: our names of weights with theirs. The runtime reads it again when it is needed
/// (runtime/train/ImportMap.h); whether these are the model's weights is known when it is built.
void readImport(const json::Value &object, ModelSpec &spec, json::Errors &errors);

/// Every parameter of a model with an `import` has a name there, and every name there is a parameter's.
llvm::LogicalResult checkImport(const ModelSpec &spec, llvm::ArrayRef<ModelTensor> parameters, DiagnosticFn error);

namespace json {
/// Pictures: a model that reads them, too, keeps their weights beside. Fused: projections of xLSTM are rows of one matrix.
struct WeightLayout {
  bool readsPictures = false, fused = false;
};
/// The `import` of a description that a config.json of this family became.
Value importOfHuggingFace(llvm::StringRef family, const Value &description, const WeightLayout &layout);
} // namespace json

} // namespace braid

#endif // FRONTEND_MODELIMPORT_H
