//===- Phases.h - the named points of a compilation ---------------------------------------------------------------===//
#ifndef PASSES_PHASES_H
#define PASSES_PHASES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace braid {

/// In order. What is true when each ends: VerifyPhase.cpp.
enum class Phase { model, train, sharded, scheduled, chunked, kernels, commands };

std::optional<Phase> parsePhase(llvm::StringRef name);
llvm::StringRef phaseName(Phase phase);
llvm::ArrayRef<Phase> allPhases();
/// "model, train, .."
std::string phaseNames();

} // namespace braid

#endif // PASSES_PHASES_H
