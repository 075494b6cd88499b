// The commands of braid-run. Each adds its options to the command line and returns what runs when it was chosen.
#pragma once

#include "runtime/Program.h"
#include "runtime/data/ReadCorpus.h"
#include "runtime/text/Tokenizer.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/Rank.h"
#include "tools/braid-run/FileUses.h"

#include <CLI/CLI.hpp>

#include <atomic>
#include <functional>
#include <map>

namespace braid::run {

using Action = std::function<runtime::Status()>;

Action addTrain(CLI::App &command);
Action addEval(CLI::App &command);
Action addGenerate(CLI::App &command);
Action addServe(CLI::App &command);
Action addTokenize(CLI::App &command);
Action addCall(CLI::App &command);
Action addExport(CLI::App &command);
Action addInfo(CLI::App &command);
Action addProbe(CLI::App &command);

// From now on the first signal that asks the process to end makes this true: what runs saves or clears up, and ends. A second
// one ends the process at once.
std::atomic<bool> &stopOnSignals();
// What was to be done is not all done, because of such a signal; the status of the process that then has no error.
void endAsStopped();
int statusOfStop();

constexpr uint64_t maxTokenCount = INT32_MAX; // programs count tokens in i32, as they do steps (maxTrainSteps)

// Options several commands share.
void addProgramOption(CLI::App &command, std::string &path);
void addCheckpointOption(CLI::App &command, std::string &path);
CLI::Option *addThreadsOption(CLI::App &command, int &threads);

// --ranks, --threads, --launcher, --timeout: how many ranks there are, and what they are.
struct RankFlags {
  std::optional<int> ranks;
  int threads = 0;
  std::string launcher = "auto";
  double timeout = 600; // seconds
  std::string command; // braid-run's
  const CLI::Option *threadsFlag = nullptr, *launcherFlag = nullptr, *timeoutFlag = nullptr;
};
// `computes`: --threads too.
void addRankOptions(CLI::App &command, RankFlags &flags, bool computes = true);
// Joins the processes that a launcher started, if it did.
runtime::Expected<runtime::RankOptions> joinRanks(const RankFlags &flags);

// "braid-run: warning: --top-k=5 changes nothing: <why>", by one of the ranks, if the flag was given.
void warnIdle(const CLI::Option *flag, const runtime::RankOptions &ranks, const std::string &why);
// Of those of addRankOptions, which one command line may have for programs of all kinds.
void warnIdleRankFlags(const runtime::Program &program, const RankFlags &flags, const runtime::RankOptions &ranks);

// --data and how its files are read.
struct DataFlags {
  std::vector<std::string> paths;
  std::string format; // empty: by the files' endings
  std::optional<std::string> field;
  std::optional<std::string> separator;
};
// `input`: what has other inputs too, of which one is needed.
void addDataOptions(CLI::App &command, DataFlags &flags, CLI::Option_group *input = nullptr);
// Which files those are.
void addDataUses(FileUses &uses, const std::string &flag, const std::vector<std::string> &paths);
using Tokenizer = std::shared_ptr<const runtime::Tokenizer>; // null: none
// --tokenizer
CLI::Option *addTokenizerOption(CLI::App &command, std::string &path);
// What reads the texts of a command.
struct Texts {
  Tokenizer tokenizer;
  std::string directory = "."; // where it lies, or the weights do; there are chat templates
  runtime::Status missing = runtime::Status::success(); // why the weights are not there
  runtime::Status unread = runtime::Status::success(); // why what lies beside the weights does not; tokens need none
};
// In which its file lies.
std::string directoryOf(const runtime::Tokenizer &tokenizer);
// Its file and those beside it that say how chats are read, by their names in checkpoints: what they hold.
runtime::Expected<std::map<std::string, std::string>> filesOf(const runtime::Tokenizer &tokenizer);
// `path`, or, where that is empty, what lies beside the weights in `checkpoint` (empty: nowhere): of a training that had
// it, and of other software's where the program's tokens are not bytes.
runtime::Expected<Texts> textsOf(const runtime::Program &program, const std::string &path,
                                 const std::string &checkpoint);
// --separator: a number, or the text of a token.
CLI::Option *addSeparatorOption(CLI::App &command, std::optional<std::string> &separator, const std::string &help);
runtime::Expected<std::optional<int64_t>> separatorOf(const std::optional<std::string> &text, const Texts &texts);

// The files of `paths`, read for the program as the flags say; texts by the tokenizer, if there is one.
runtime::Expected<runtime::Corpus> readData(const runtime::Program &program, const DataFlags &flags,
                                            const std::vector<std::string> &paths, const Texts &texts);

// Collective: loadCheckpoint, with a remark where the checkpoint comes from a model that computes something else.
runtime::Status loadModel(runtime::Rank &rank, const std::string &checkpoint, runtime::Restored what);

} // namespace braid::run
