// braid-run: trains, evaluates, generates from, calls and describes compiled programs (.braid). Contains no compiler.
#include "tools/braid-run/Commands.h"

#include <cstdio>

namespace braid::run {

CLI::Option *positive(CLI::Option *option) {
  // CLI11's own check answers with the whole range of a double.
  auto isPositive = [](const std::string &text) {
    bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    bool good = digits && text.find_first_not_of('0') != std::string::npos;
    return good ? std::string() : "must be a whole number above 0, not " + text;
  };
  return option->check(CLI::Validator(isPositive, ""))->type_name("N");
}

void addProgramOption(CLI::App &command, std::string &path) {
  command.add_option("program", path, "Program file that braid-compile wrote")->required()->type_name("P.braid");
}

void addThreadsOption(CLI::App &command, int &threads) {
  positive(command.add_option("--threads", threads, "Threads per rank (default: all cores, divided by the ranks)"));
}

void addRanksOption(CLI::App &command, int &ranks) {
  positive(command.add_option("--ranks", ranks,
                              "Ranks to run as threads of this process: as many as the program's mesh has"))
      ->capture_default_str();
}

void addDataOption(CLI::App &command, std::vector<std::string> &paths) {
  command.add_option("--data", paths, "Text files, read one after the other as bytes")->required()->type_name("FILE");
}

} // namespace braid::run

int main(int argc, char **argv) {
  using namespace braid::run;
  CLI::App app("Runs programs that braid-compile wrote.", "braid-run");
  app.require_subcommand(1);
  app.failure_message([](const CLI::App *command, const CLI::Error &error) {
    const CLI::App *chosen = command;
    for (const CLI::App *sub : command->get_subcommands())
      chosen = sub;
    std::string name = chosen == command ? "" : chosen->get_name() + " ", message = error.what();
    if (chosen == command && dynamic_cast<const CLI::RequiredError *>(&error)) {
      std::vector<std::string> unknown = command->remaining();
      message = unknown.empty() ? "a subcommand is missing; there are"
                                : "there is no subcommand '" + unknown[0] + "'; there are";
      std::string_view separator = " ";
      for (const CLI::App *sub : command->get_subcommands([](const CLI::App *) { return true; })) {
        message.append(separator).append(sub->get_name());
        separator = ", ";
      }
    }
    return "braid-run: error: " + message + " (see braid-run " + name + "--help)\n";
  });

  struct Command {
    const char *name, *description;
    Action (*add)(CLI::App &);
  };
  constexpr Command commands[] = {
      {"train", "Train a model on text", addTrain},
      {"eval", "Measure the loss of a trained model on text", addEval},
      {"generate", "Continue a text with a trained model", addGenerate},
      {"call", "Call one function with NumPy files", addCall},
      {"info", "Describe a program: functions, memory, kernels, mesh", addInfo},
  };
  std::vector<std::pair<CLI::App *, Action>> actions;
  for (const Command &command : commands) {
    CLI::App *sub = app.add_subcommand(command.name, command.description);
    actions.emplace_back(sub, command.add(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (auto &[command, action] : actions) {
    if (!command->parsed())
      continue;
    if (braid::runtime::Status status = action(); !status.ok()) {
      std::fflush(stdout);
      fmt::print(stderr, "braid-run: error: {}\n", status.message());
      return 1;
    }
  }
  return 0;
}
