//===- HuggingFace.h - a config.json of Hugging Face's transformers as a model description ------------------------===//
#ifndef FRONTEND_HUGGINGFACE_H
#define FRONTEND_HUGGINGFACE_H

#include "frontend/Json.h"

namespace braid::json {

/// Whether the object is such a config, not a description.
bool isHuggingFace(const Value &root);
struct HuggingFaceModel {
  Value description; ///< says the same; its values know the line and the key of the config
  Value compared; ///< what a config beside weights must say, too (runtime/train/ImportedConfig.h)
};
/// Nothing: reported. `dtypeGiven`: a flag takes the place of its dtype, which then may be float16, too.
std::optional<HuggingFaceModel> translateHuggingFace(const Value &config, bool dtypeGiven, Errors &errors);
/// The value as JSON.
std::string textOf(const Value &value);

} // namespace braid::json

#endif // FRONTEND_HUGGINGFACE_H
