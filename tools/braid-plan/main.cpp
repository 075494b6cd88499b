//===- main.cpp - braid-plan: what a schedule, a slicing or a model on a cluster will do, before anything runs ----===//
#include "schedule/Draw.h"
#include "tools/braid-plan/Commands.h"
#include "tools/common/ToolMain.h"

#include "llvm/ADT/STLExtras.h"

using namespace braid;

int plan::fail(const llvm::Twine &message) {
  std::fflush(stdout);
  printError(message);
  return 1;
}

void plan::Pictures::addOptions(CLI::App &command) {
  command.add_option("--svg", svg, "also draw the schedule into this file")->type_name("F.svg");
  command.add_option("--trace", trace, "also write it for chrome://tracing")->type_name("F.json");
}

int plan::Pictures::check(llvm::ArrayRef<NamedFile> inputs) const {
  std::vector<NamedFile> outputs = {{"the plan", "-"}};
  for (auto [flag, path, kind] : {std::tuple("--svg", &svg, FileKind::picture), {"--trace", &trace, FileKind::trace}})
    if (!path->empty())
      outputs.push_back({std::string(flag) + " " + *path, *path, kind});
  if (llvm::Error same = checkOutputs(inputs, outputs))
    return fail(llvm::toString(std::move(same)));
  for (const NamedFile &output : llvm::drop_begin(outputs))
    if (llvm::Error failed = checkWritable(output.path))
      return fail(llvm::toString(std::move(failed)));
  return 0;
}

int plan::Pictures::write(const schedule::Problem &problem, const schedule::Schedule &schedule,
                          const std::string &title, double unitSeconds, const std::string &unit, int64_t ranks) const {
  auto put = [](const std::string &path, const std::string &text) {
    llvm::Error failed = path.empty() ? llvm::Error::success() : writeOutput(path, text);
    return failed ? fail(llvm::toString(std::move(failed))) : 0;
  };
  if (int code = put(svg, drawSvg(problem, schedule, title, unit)))
    return code;
  return put(trace, drawTrace(problem, schedule, unitSeconds, ranks));
}

int main(int argc, char **argv) {
  if (int code = beginTool("braid-plan"))
    return code;
  CLI::App app(
      "Says what a model will need and take on a cluster, what a schedule or a slicing will do, before anything "
      "runs.",
      "braid-plan");
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(36);
  std::vector<std::pair<CLI::App *, plan::Action>> actions;
  auto add = [&](const char *name, const char *help, plan::Action (*options)(CLI::App &)) {
    CLI::App *command = app.add_subcommand(name, help);
    actions.emplace_back(command, options(*command));
  };
  plan::Action model = plan::addModel(app);
  add("meshes", "Which meshes a model fits on a cluster, the fastest first", plan::addMeshes);
  add("schedule", "Order, makespan and exposed communication of stages whose times are given", plan::addSchedule);
  add("slices", "Where a sequence is cut", plan::addSlices);
  return runTool(app, argc, argv, [&] {
    for (auto &[command, action] : actions) {
      if (!command->parsed())
        continue;
      for (const CLI::Option *option : app.get_options())
        if (option->count() > 0)
          return plan::fail(option->get_name() + " in front of " + command->get_name() +
                            " belongs to a plan of a model; valid: behind it, if braid-plan " + command->get_name() +
                            " --help has it") +
                 1;
      return action();
    }
    return model();
  });
}
