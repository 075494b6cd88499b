//===- StagesFile.h - stage times as a file -----------------------------------------------------------------------===//
#ifndef TOOLS_BRAIDPLAN_STAGESFILE_H
#define TOOLS_BRAIDPLAN_STAGESFILE_H

#include "frontend/ModelSpec.h"
#include "schedule/Stages.h"

namespace braid::plan {

/// schedules.md section 6: {"schedule", "direction", "cross_block", "overhead", "blocks"}. Messages name file, line,
/// path and both numbers.
std::optional<schedule::Stages> parseStages(llvm::StringRef text, llvm::StringRef filename, DiagnosticFn error);

} // namespace braid::plan

#endif // TOOLS_BRAIDPLAN_STAGESFILE_H
