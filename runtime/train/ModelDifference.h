// Tensors of equal names and shapes do not make equal models: a window, a gate's temperature or an activation changes
// what the same weights compute. Programs and checkpoints carry the description they come from; this compares two.
#pragma once

#include "runtime/Program.h"

namespace braid::runtime {

// Where two descriptions (JSON with comments) say otherwise, in keys that change what given weights compute:
// "mixers.N.window is 64 there, not given here; and 2 more". Empty: nowhere, or one of them is no description. `train`,
// `schedule`, `init`, names, types and lengths do not count.
std::string describeModelDifference(std::string_view there, std::string_view here);

// A sentence about a checkpoint whose description differs from the program's; empty: it does not. Reads index.json
// alone.
Expected<std::string> remarkOtherModel(const Program &program, const std::string &checkpoint);

} // namespace braid::runtime
