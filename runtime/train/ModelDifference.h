// Tensors of equal names and shapes do not make equal models: a window, a gate's temperature or an activation changes
// what the same weights compute. Programs and checkpoints carry the description they come from; this compares two.
#pragma once

#include "runtime/Program.h"

#include <set>

namespace braid::runtime {

struct ModelDifference {
  std::string words;    // "mixers.N.window: 64 there, not given here; .."; empty: there is none
  bool certain = false; // of some key it is known what both say; else what one of them gives may be the default
  std::set<std::string> ofRun; // compareTraining: keys that a run decides and that differ, or may: "train.seed"
};

// Where two descriptions (JSON with comments) say otherwise, in keys that change what given weights compute; nowhere
// if one of them is no description. `train`, `schedule`, `init`, names, letters of layers, types and lengths do not
// count. `defaults`: what keys of `here` say that are left out, as the frontend has read it (metadata model_defaults); of
// other objects than there are in both it says nothing.
ModelDifference compareModels(std::string_view there, std::string_view here, std::string_view defaults = "");

// The same of `train` alone: what is compiled into an update (decay, clipping, the optimizer's constants, types) in words, and which keys differ
// that a run decides for itself.
ModelDifference compareTraining(std::string_view there, std::string_view here, std::string_view defaults = "");

// A sentence about a checkpoint whose description differs from the program's; empty: it does not. Reads index.json
// alone.
Expected<std::string> remarkOtherModel(const Program &program, const std::string &checkpoint);

} // namespace braid::runtime
