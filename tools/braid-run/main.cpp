// braid-run: trains, evaluates, generates from, serves, calls and describes compiled programs (.braid). Contains no compiler.
#include "runtime/ThreadPool.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/ModelDifference.h"
#include "tools/braid-run/Commands.h"
#include "tools/common/IntegerFlag.h"
#include "tools/common/NumberFlag.h"
#include "tools/common/StandardStreams.h"
#include "tools/common/Version.h"
#include "tools/common/WordFlag.h"

#include <csignal>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <thread>

namespace braid::run {

void addProgramOption(CLI::App &command, std::string &path) {
  command.add_option("program", path, "Program file that braid-compile wrote")->required()->type_name("P.braid");
}

void addCheckpointOption(CLI::App &command, std::string &path) {
  command
      .add_option("--checkpoint", path,
                  "Checkpoint, directory of checkpoints (its newest), or directory with weights of transformers")
      ->required()
      ->type_name("DIR");
}

CLI::Option *addThreadsOption(CLI::App &command, int &threads) {
  using runtime::ThreadPool;
  return integerIn(
      command.add_option("--threads", threads, "Threads per rank (default: all cores, divided by the ranks)"), 1,
      ThreadPool::maxThreads);
}

// 0, or 1 with the error on standard error.
static int report(const runtime::Status &status) {
  if (status.ok())
    return 0;
  std::fflush(stdout);
  std::string line = fmt::format("braid-run: error: {}\n", status.message());
  std::fwrite(line.data(), 1, line.size(), stderr);
  return 1;
}

void addRankOptions(CLI::App &command, RankFlags &flags, bool computes) {
  flags.command = command.get_name();
  if (computes)
    flags.threadsFlag = addThreadsOption(command, flags.threads);
  integerIn(command.add_option("--ranks", flags.ranks,
                               "Ranks to run as threads of this process: as many as the program's mesh has (default: "
                               "1; under mpirun or srun every process is a rank)"),
            1, runtime::maxThreadRanks);
  flags.launcherFlag =
      oneOf(command.add_option("--launcher", flags.launcher,
                               "What ranks are: threads of this process, or processes over mpi (auto: processes when "
                               "mpirun or srun started several)"),
            {"auto", "threads", "mpi"})
          ->capture_default_str()
          ->type_name("NAME");
  flags.timeoutFlag = numberIn(command.add_option("--timeout", flags.timeout,
                                                  "Seconds after which a rank that does not come to a collective is "
                                                  "lost, and the run ends"),
                               From::least, 0.1, 1e6)
                          ->capture_default_str()
                          ->type_name("SECONDS");
}

// Of this process, from joinRanks to the end; a static, because an error on the way ends the peers too.
static std::unique_ptr<runtime::Processes> processes;

runtime::Expected<runtime::RankOptions> joinRanks(const RankFlags &flags) {
  using namespace runtime;
  RankOptions options;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(flags.timeout * 1000));
  options.stuck = [](const Status &status) {
    report(status);
    std::_Exit(1);
  };
  BRAID_ASSIGN(processes, joinProcesses(*parseLauncher(flags.launcher), {options.timeout, options.stuck}));
  if (processes && flags.ranks)
    return Status::error(
        "--ranks={} asks for threads of one process, but {} started {} processes, each of them a rank: "
        "leave --ranks away, or give --launcher=threads",
        *flags.ranks, processes->startedBy(), processes->size());
  options.ranks = flags.ranks.value_or(1);
  options.threads = flags.threads;
  options.processes = processes.get();
  options.command = flags.command;
  return options;
}

void warnIdle(const CLI::Option *flag, const runtime::RankOptions &ranks, const std::string &why) {
  if (flag && flag->count() > 0 && ranks.speaks())
    fmt::print(stderr, "braid-run: warning: {}={} changes nothing: {}\n", flag->get_name(), flag->results().back(),
               why);
}

void warnIdleRankFlags(const runtime::Program &program, const RankFlags &flags, const runtime::RankOptions &ranks) {
  if (program.target() == "cuda")
    warnIdle(flags.threadsFlag, ranks, program.path() + " computes on a GPU, and nothing beside it");
  if (program.mesh().worldSize() == 1 && flags.launcher == "mpi")
    warnIdle(flags.launcherFlag, ranks, program.path() + " is of one rank, which is this process");
  if (program.mesh().worldSize() == 1 && flags.timeout != RankFlags().timeout)
    warnIdle(flags.timeoutFlag, ranks, program.path() + " is of one rank, which waits for no other");
}

// The end of a process that is one of several. One of them says what is wrong: the first, or, when that does not, the
// one that knows it.
static void endProcesses(const runtime::Status &status) {
  if (!processes)
    return;
  if (status.ok()) {
    processes->finish();
    return;
  }
  if (processes->rank() != 0)
    std::this_thread::sleep_for(std::chrono::seconds(5)); // the first one ends this process before that
  report(status);
  processes->abortAll(1);
}

void addDataOptions(CLI::App &command, DataFlags &flags, CLI::Option_group *input) {
  CLI::App &group = input ? static_cast<CLI::App &>(*input) : command;
  group.add_option("--data", flags.paths, "Files, or directories of files; every file ends a document")
      ->required(!input)
      ->type_name("PATH");
  oneOf(command.add_option("--format", flags.format,
                           "How files are read: text (bytes), jsonl (one object per line), u16, u32 (raw tokens, "
                           "little endian), npy (default: by their ending .jsonl, .npy, .u16, .u32; others are text)"),
        {"text", "jsonl", "u16", "u32", "npy"})
      ->type_name("NAME");
  command
      .add_option("--field", flags.field,
                  "Field of JSON Lines: a string, or an array of tokens (default: text; of tokenize --decode: tokens)")
      ->type_name("NAME");
  addSeparatorOption(command, flags.separator, "This token ends a document, of which it is the last one");
}

void addDataUses(FileUses &uses, const std::string &flag, const std::vector<std::string> &paths) {
  for (const std::string &path : paths)
    uses.readsAll(flag, path);
  if (auto files = runtime::listDataFiles(paths)) // else reading them says what is wrong
    for (const std::string &file : *files)
      uses.reads(flag, file);
}

runtime::Expected<runtime::Corpus> readData(const runtime::Program &program, const DataFlags &flags,
                                            const std::vector<std::string> &paths, const Texts &texts) {
  using namespace runtime;
  DataOptions options;
  options.field = flags.field;
  options.format = parseDataFormat(flags.format);
  BRAID_TRY(checkDType(program));
  BRAID_ASSIGN(int64_t vocabulary, vocabularyOf(program));
  BRAID_ASSIGN(options.bytes, readsBytes(program));
  BRAID_ASSIGN(options.separator, separatorOf(flags.separator, texts));
  options.tokenizer = texts.tokenizer;
  options.unreadTexts = texts.unread;
  options.threads = std::max(std::thread::hardware_concurrency(), 1u);
  return readCorpus(paths, vocabulary, options);
}

runtime::Status loadModel(runtime::Rank &rank, const std::string &checkpoint, runtime::Restored what) {
  using namespace runtime;
  BRAID_TRY(loadCheckpoint(rank, checkpoint, what).status());
  if (!rank.isFirst())
    return Status::success();
  BRAID_ASSIGN(std::string remark, remarkOtherModel(rank.program(), checkpoint));
  if (!remark.empty())
    fmt::print(stderr, "braid-run: remark: {}\n", remark);
  return Status::success();
}

// What was printed must have arrived: on a full disk, or when nobody reads a pipe any more, its end is missing.
static runtime::Status flushOutput() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return runtime::writeError("standard output", errno ? errno : EIO); // 0: an earlier one, its reason is gone
  return runtime::Status::success();
}

static runtime::Status runAction(const Action &action) {
  using runtime::ErrorCode, runtime::Status;
  try {
    BRAID_TRY(action());
  } catch (const std::system_error &error) { // of fmt::print
    return runtime::writeError("standard output", error.code().value());
  } catch (const std::bad_alloc &) {
    return Status::error(ErrorCode::ioError, "out of memory");
  }
  return flushOutput();
}

} // namespace braid::run

int main(int argc, char **argv) {
  using namespace braid::run;
  if (!braid::holdStandardStreams())
    return 1; // there may be nowhere to say why
  CLI::App app("Runs programs that braid-compile wrote.", "braid-run");
  app.require_subcommand(1);
  app.set_version_flag("--version", braid::versionText("braid-run"), "Print the version and the commit, and exit");
  app.failure_message([](const CLI::App *command, const CLI::Error &error) {
    const CLI::App *chosen = command;
    for (const CLI::App *sub : command->get_subcommands())
      chosen = sub;
    std::string name = chosen == command ? "" : chosen->get_name() + " ", message = braid::wordsOf(error);
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
      {"serve", "Answer requests over HTTP with texts of a trained model", addServe},
      {"tokenize", "Turn texts into tokens, or tokens into texts", addTokenize},
      {"call", "Call one function with NumPy files", addCall},
      {"export", "Write the weights of a checkpoint for other software", addExport},
      {"info", "Describe a program: functions, memory, kernels, mesh", addInfo},
      {"probe", "Measure what the link between ranks costs, for the cluster file of a plan", addProbe},
  };
  std::vector<std::pair<CLI::App *, Action>> actions;
  for (const Command &command : commands) {
    CLI::App *sub = app.add_subcommand(command.name, command.description);
    actions.emplace_back(sub, command.add(*sub));
    // A script whose variable is not set must not lose its checkpoints.
    for (CLI::Option *option : sub->get_options())
      if (option->get_items_expected_max() > 0 && option->get_name() != "--prompt")
        option->check(CLI::Validator([](std::string &value) { return value.empty() ? "is empty" : ""; }, ""));
  }
  // A file over the limit of its size, or a pipe that nobody reads any more, is an error of write() that names it, and
  // no signal that ends a training before it could save.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  if (std::string message = braid::checkEmptyFlags(argc, argv); !message.empty()) {
    fmt::print(stderr, "braid-run: error: {}\n", message);
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    // By the same way as all other output, which knows why a write failed, however long a text is.
    std::ostringstream help;
    if (app.exit(error, help, std::cerr) != 0)
      return 2;
    return report(runAction([&] {
      fmt::print("{}", help.str());
      return braid::runtime::Status::success();
    }));
  }
  for (auto &[command, action] : actions) {
    if (!command->parsed())
      continue;
    braid::runtime::Status status = runAction(action);
    endProcesses(status);
    if (int code = report(status))
      return code;
  }
  return statusOfStop();
}
