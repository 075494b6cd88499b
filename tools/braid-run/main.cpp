// braid-run: trains, evaluates, generates from, calls and describes compiled programs (.braid). Contains no compiler.
#include "runtime/ThreadPool.h"
#include "tools/braid-run/Commands.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>

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
  using runtime::ThreadPool;
  auto inRange = [](const std::string &text) {
    unsigned long long value = std::strtoull(text.c_str(), nullptr, 10); // the largest one when it is too large
    return value <= ThreadPool::maxThreads ? std::string()
                                           : fmt::format("{} threads; valid: 1 to {}", text, ThreadPool::maxThreads);
  };
  positive(command.add_option("--threads", threads, "Threads per rank (default: all cores, divided by the ranks)"))
      ->check(CLI::Validator(inRange, ""));
}

void addRanksOption(CLI::App &command, int &ranks) {
  positive(command.add_option("--ranks", ranks,
                              "Ranks to run as threads of this process: as many as the program's mesh has"))
      ->capture_default_str();
}

void addDataOptions(CLI::App &command, DataFlags &flags) {
  command.add_option("--data", flags.paths, "Files, or directories of files; every file ends a document")
      ->required()
      ->type_name("PATH");
  command
      .add_option(
          "--format", flags.format,
          "How files are read: text (bytes), jsonl (one object per line), u16, u32 (raw tokens, little endian), npy "
          "(default: by their ending .jsonl, .npy, .u16, .u32; others are text)")
      ->type_name("NAME");
  command.add_option("--field", flags.field, "Field of JSON Lines: a string, or an array of tokens (default: text)")
      ->type_name("NAME");
  command.add_option("--separator", flags.separator, "This token ends a document, of which it is the last one")
      ->type_name("TOKEN");
}

runtime::Expected<runtime::Corpus> readData(const runtime::Program &program, const DataFlags &flags,
                                            const std::vector<std::string> &paths) {
  using namespace runtime;
  DataOptions options;
  options.field = flags.field;
  options.separator = flags.separator;
  if (!flags.format.empty()) {
    options.format = parseDataFormat(flags.format);
    if (!options.format)
      return Status::error("--format={}: valid: text, jsonl, u16, u32, npy", flags.format);
  }
  BRAID_TRY(checkDType(program));
  BRAID_ASSIGN(int64_t vocabulary, vocabularyOf(program));
  BRAID_ASSIGN(options.bytes, readsBytes(program));
  return readCorpus(paths, vocabulary, options);
}

// What a command printed must have arrived: on a full disk its end is missing.
static runtime::Status runAction(const Action &action) {
  using runtime::ErrorCode, runtime::Status;
  try {
    BRAID_TRY(action());
  } catch (const std::system_error &error) { // of fmt::print
    return Status::error(ErrorCode::ioError, "cannot write: {}", error.code().message());
  } catch (const std::bad_alloc &) {
    return Status::error(ErrorCode::ioError, "out of memory");
  }
  if (std::fflush(stdout) != 0)
    return Status::error(ErrorCode::ioError, "standard output: cannot write: {}", std::strerror(errno));
  if (std::ferror(stdout))
    return Status::error(ErrorCode::ioError, "standard output: cannot write all of it");
  return Status::success();
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
      {"train", "Train a model on text or tokens", addTrain},
      {"eval", "Measure the loss of a trained model on text or tokens", addEval},
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
  std::signal(SIGXFSZ, SIG_IGN); // a file over the limit of its size is an error of write() that names the file
  for (auto &[command, action] : actions) {
    if (!command->parsed())
      continue;
    braid::runtime::Status status = braid::run::runAction(action);
    if (!status.ok()) {
      std::fflush(stdout);
      fmt::print(stderr, "braid-run: error: {}\n", status.message());
      return 1;
    }
  }
  return 0;
}
