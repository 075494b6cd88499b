//===- Evidence.h - what a choice of a schedule holds for ---------------------------------------------------------===//
#ifndef TOOLS_BRAIDTUNE_EVIDENCE_H
#define TOOLS_BRAIDTUNE_EVIDENCE_H

#include "compiler/CompileOptions.h"
#include "tools/braid-tune/ModelText.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace braid::tune {

/// What equal texts have in common: 16 hexadecimal digits.
std::string hashOf(llvm::StringRef text);

/// What a measurement is good for: this processor, this many of it.
std::string machineName();

/// What `schedule.tuned` says and is otherwise now, "mesh was "dp=2,ep=2", is """: of the keys of `identity`, and the choice
/// itself and the machine's rates beside it, which somebody may have changed. Empty: the evidence holds as far as that goes, or there is none.
std::vector<std::string> changesSince(const Json &schedule, const Json &identity);

/// The same of `degrees` (--degrees) that `schedule.tuned` does not say were tried; empty: all were.
std::string untriedDegrees(const Json &schedule, llvm::ArrayRef<int64_t> degrees);

/// Of a model description and what it is compiled for: a warning where its schedule was tuned for something else, naming
/// all that has changed of mesh, batch, sequence length, description (by flags in the place of its keys, too), choice, rates
/// that orders were chosen by and, for what was measured and is compiled
/// for this machine, or predicted for `cluster` (its name), machine; else empty. Flags that take the place of what
/// was chosen take that of the evidence, too. What the unsliced program hashes to only braid-tune asks.
std::string staleWarning(const std::string &path, const CompileOptions &options, const std::string &cluster = "");

} // namespace braid::tune

#endif // TOOLS_BRAIDTUNE_EVIDENCE_H
