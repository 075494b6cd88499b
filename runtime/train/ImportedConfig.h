// The config.json beside weights that other software wrote. Against the one that a program was compiled from: weights
// that were made with another base of rotations, window or norm are numbers for another function. And how its files keep weights.
#pragma once

#include "runtime/Program.h"
#include "runtime/train/BlockScales.h"

namespace braid::runtime {

// An error that names the first key of <directory>/config.json that says otherwise than metadata "model_config" of the
// program, and both values. Nothing is compared where one of them is not there, or the file has no model_type.
//
// model_config: [{"keys": ["rope_theta", "rope_parameters.rope_theta"], "value": 1e6, "absent": 1e4}, ..]: of these keys
// the first that is there must have the value; `absent` is what it says to leave all out. Null is left out, but with a
// member "null", which is what it then stands for.
Status checkConfig(const Program &program, const std::string &directory);

// Its quantization_config; none where there is no such key or file. An error says what of it is not read.
Expected<BlockScales> blockScalesOf(const std::string &directory);

// The tokens behind which a text of such a model ends: eos_token_id of its generation_config.json, else of its
// config.json; none where neither says any.
Expected<std::vector<int32_t>> endTokensOf(const std::string &directory);

// How its makers draw from it, as generation_config.json says; where do_sample is false there, its repetition penalty alone, as
// in transformers.
struct ImportedDraws {
  std::optional<double> temperature, topP, minP, repetitionPenalty;
  std::optional<int64_t> topK; // 0: all
  std::vector<std::string> others; // what it says besides that changes what is drawn
};
Expected<ImportedDraws> drawsOf(const std::string &directory);

} // namespace braid::runtime
