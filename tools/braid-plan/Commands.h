//===- Commands.h - the subcommands of braid-plan -----------------------------------------------------------------===//
// Each adds its options to a command line and returns what runs when it was chosen: 0, or 1 after a message.
#ifndef TOOLS_BRAIDPLAN_COMMANDS_H
#define TOOLS_BRAIDPLAN_COMMANDS_H

#include "compiler/CompileOptions.h"
#include "compiler/OutputFile.h"
#include "schedule/Problem.h"

#include "llvm/ADT/Twine.h"

#include <CLI/CLI.hpp>
#include <functional>

namespace braid::plan {

using Action = std::function<int()>;

/// braid-plan itself, without a subcommand.
Action addModel(CLI::App &app);
Action addMeshes(CLI::App &command);
Action addSchedule(CLI::App &command);
Action addSlices(CLI::App &command);

/// Flags of `compile`, as braid-compile has them; what only one mesh has (`ofOneMesh`) is the mesh and its stages' layers.
std::vector<CLI::Option *> addDescription(CLI::App &app, CompileOptions &compile, bool ofOneMesh);

/// "braid-plan: error: <message>" on standard error; 1.
int fail(const llvm::Twine &message);

/// Pictures that a schedule can be written as.
struct Pictures {
  std::string svg, trace; ///< paths; empty: none
  void addOptions(CLI::App &command);
  /// Before anything is planned: 0, or 1 after a message, where a picture would stand in the place of one of `inputs` or of
  /// the other picture, or could not be written.
  int check(llvm::ArrayRef<NamedFile> inputs) const;
  /// 0, or 1 after a message. `unitSeconds`: of the problem's times; `unit`: its name, empty: any. `ranks`: how many do it, 0:
  /// not known.
  int write(const schedule::Problem &problem, const schedule::Schedule &schedule, const std::string &title,
            double unitSeconds, const std::string &unit = "", int64_t ranks = 0) const;
};

} // namespace braid::plan

#endif // TOOLS_BRAIDPLAN_COMMANDS_H
