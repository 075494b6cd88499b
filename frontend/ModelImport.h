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
/// The `import` of a description that a config.json of this family became; `beside`: as the part for text of a model that
/// reads pictures, too.
Value importOfHuggingFace(llvm::StringRef family, const Value &description, bool beside);
} // namespace json

} // namespace braid

#endif // FRONTEND_MODELIMPORT_H
