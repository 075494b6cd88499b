//===- ModelReader.h - what the readers of a description's parts share --------------------------------------------===//
#ifndef FRONTEND_MODELREADER_H
#define FRONTEND_MODELREADER_H

#include "frontend/Json.h"
#include "frontend/ModelSpec.h"

namespace braid {

/// The object at `key`, where one that is left out says what an empty one does; noted as the default.
const json::Value &objectOrEmpty(json::Reader &parent, llvm::StringRef key, json::Errors &errors);
/// The factors of one part, over those of the model.
std::optional<ResidualScale> readResidual(json::Reader &r, json::Errors &errors, const ModelSpec &model);
/// Where the norms of a part stand, if it says so: not "post", which is of what passes by all parts.
std::optional<NormPlacement> readPlacement(json::Reader &r, const ModelSpec &model);
/// One of `mixers`; none: reported.
std::optional<MixerSpec> readMixer(const json::Value &object, const std::string &path, json::Errors &errors,
                                   const ModelSpec &model);
/// One of `ffns`; none: reported.
std::optional<FfnSpec> readFfn(const json::Value &object, const std::string &path, json::Errors &errors,
                               const ModelSpec &model);

/// Activations of a gate on what a mixer or a feed-forward gives.
inline constexpr llvm::StringRef outputGates[] = {"silu", "sigmoid", "tanh", "relu", "gelu", "gelu_tanh"};

/// Keys of attention, and of a dense feed-forward, but for the factors of what passes by them.
AttentionSpec readAttention(json::Reader &r, json::Errors &errors);
DenseSpec readDense(json::Reader &r);
/// One of `injects`.
std::optional<InjectSpec> readInject(const json::Value &object, const std::string &path, json::Errors &errors,
                                     const ModelSpec &model);

} // namespace braid

#endif // FRONTEND_MODELREADER_H
