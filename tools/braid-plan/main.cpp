//===- main.cpp - braid-plan: what a schedule, a slicing or a model on a cluster will do, before anything runs ----===//
#include "compiler/Diagnostics.h"
#include "compiler/OutputFile.h"
#include "schedule/Draw.h"
#include "tools/braid-plan/Commands.h"
#include "tools/common/WordFlag.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>
#include <cstdio>
#include <iostream>

using namespace braid;

int plan::fail(const llvm::Twine &message) {
  std::fflush(stdout);
  llvm::errs() << "braid-plan: error: " << message << '\n';
  return 1;
}

std::optional<std::string> plan::readFile(const std::string &path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file) {
    fail("cannot read " + path + ": " + file.getError().message());
    return std::nullopt;
  }
  return (*file)->getBuffer().str();
}

void plan::Pictures::addOptions(CLI::App &command) {
  command.add_option("--svg", svg, "also draw the schedule into this file")->type_name("F.svg");
  command.add_option("--trace", trace, "also write it for chrome://tracing")->type_name("F.json");
}

int plan::Pictures::write(const schedule::Problem &problem, const schedule::Schedule &schedule,
                          const std::string &title, double unitSeconds) const {
  auto put = [](const std::string &path, const std::string &text) {
    llvm::Error failed = path.empty() ? llvm::Error::success() : writeOutput(path, text);
    return failed ? fail(llvm::toString(std::move(failed))) : 0;
  };
  if (int code = put(svg, drawSvg(problem, schedule, title)))
    return code;
  return put(trace, drawTrace(problem, schedule, unitSeconds));
}

int main(int argc, char **argv) {
  if (std::error_code error = llvm::sys::Process::FixupStandardFileDescriptors()) {
    std::cerr << "braid-plan: error: standard files: " << error.message() << '\n';
    return 1;
  }
  setProgramName("braid-plan"); // of what the compiler says
  std::signal(SIGXFSZ, SIG_IGN); // a file over the limit of its size is an error of write() that names the file
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app(
      "Says what a model will need and take on a cluster, what a schedule or a slicing will do, before anything "
      "runs.",
      "braid-plan");
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(36);
  app.failure_message([](const CLI::App *, const CLI::Error &error) {
    return "braid-plan: error: " + std::string(error.what()) + " (see braid-plan --help)\n";
  });
  std::vector<std::pair<CLI::App *, plan::Action>> actions;
  auto add = [&](const char *name, const char *help, plan::Action (*options)(CLI::App &)) {
    CLI::App *command = app.add_subcommand(name, help);
    actions.emplace_back(command, options(*command));
  };
  plan::Action model = plan::addModel(app);
  add("schedule", "Order, makespan and exposed communication of stages whose times are given", plan::addSchedule);
  add("slices", "Where a sequence is cut", plan::addSlices);
  if (std::string message = checkEmptyFlags(argc, argv); !message.empty()) {
    plan::fail(message);
    return 2;
  }
  int code = 0;
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty())
      code = model();
    for (auto &[command, action] : actions)
      if (command->parsed())
        code = action();
  } catch (const CLI::ParseError &error) {
    code = app.exit(error) == 0 ? 0 : 2;
  } catch (const std::system_error &) { // of fmt::print
    code = 1;
  }
  if (std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout.flush())
    return code;
  std::cerr << "braid-plan: error: cannot write standard output\n";
  return 1;
}
