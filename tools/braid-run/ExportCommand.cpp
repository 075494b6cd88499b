#include "runtime/io/Words.h"
#include "runtime/train/ExportedWeights.h"
#include "runtime/train/ModelDifference.h"
#include "runtime/train/TensorSource.h"
#include "tools/braid-run/Commands.h"

#include <fmt/ranges.h>

namespace braid::run {

using namespace braid::runtime;

namespace {

struct Options {
  std::string program, checkpoint, like, output;
};

// The files that are copied are those of --like.
Status remarkOtherTokenizer(const std::string &checkpoint, const std::string &like) {
  if (isImported(checkpoint)) // of no training of ours
    return Status::success();
  BRAID_ASSIGN(CheckpointIndex index, readIndex(checkpoint));
  std::vector<std::string_view> names(std::begin(CheckpointIndex::tokenizerFiles),
                                      std::end(CheckpointIndex::tokenizerFiles));
  names.push_back(CheckpointIndex::templateFile);
  for (std::string_view name : names) {
    auto ours = index.files.find(name);
    std::string theirs = fmt::format("{}/{}", like, name);
    if (ours == index.files.end() || !pathExists(theirs))
      continue;
    BRAID_ASSIGN(FileContent content, fileContent(theirs));
    if (content.hash != ours->second.hash)
      fmt::print(stderr, "braid-run: remark: {} is copied, but {} was trained with another, which it holds\n", theirs,
                 checkpoint);
  }
  return Status::success();
}

Status run(const Options &options) {
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program));
  FileUses uses;
  uses.reads("the program", options.program);
  uses.readsCheckpoints("--checkpoint", options.checkpoint);
  uses.readsCheckpoints("--like", options.like);
  uses.writes("--output", options.output, FileUses::Kind::any);
  BRAID_TRY(uses.check());
  BRAID_ASSIGN(Exported exported,
               exportWeights(*program, options.checkpoint, options.like, options.output, &stopOnSignals()));
  BRAID_ASSIGN(std::string remark, remarkOtherModel(*program, exported.checkpoint));
  if (!remark.empty())
    fmt::print(stderr, "braid-run: remark: {}\n", remark);
  BRAID_TRY(remarkOtherTokenizer(exported.checkpoint, options.like));
  if (!exported.notFinite.empty())
    fmt::print(stderr, "braid-run: warning: {} {} numbers that are not finite; the first is '{}'\n",
               counted(exported.notFinite.size(), "weight"), exported.notFinite.size() == 1 ? "holds" : "hold",
               exported.notFinite[0]);
  fmt::print("weights        {} in {}, {} of them from {}\n", counted(exported.tensors, "tensor"),
             counted(exported.files, "file"), exported.filled, exported.checkpoint);
  if (!exported.copied.empty())
    fmt::print("copied         {}\n", fmt::join(exported.copied, ", "));
  if (!exported.kept.empty())
    fmt::print("copied         {} from {}\n", fmt::join(exported.kept, ", "), exported.checkpoint);
  if (!exported.left.empty())
    fmt::print("not copied     {}\n", fmt::join(exported.left, ", "));
  fmt::print("export         {}\n", options.output);
  return Status::success();
}

} // namespace

Action addExport(CLI::App &command) {
  auto options = std::make_shared<Options>();
  addProgramOption(command, options->program);
  addCheckpointOption(command, options->checkpoint);
  command
      .add_option("--like", options->like,
                  "Directory as transformers saved it for this model: its files, names, types and shapes are those of "
                  "the output, its config and tokenizer are copied")
      ->required()
      ->type_name("DIR");
  command.add_option("--output", options->output, "Directory to write: none is there yet, or an empty one")
      ->required()
      ->type_name("DIR");
  return [options] { return run(*options); };
}

} // namespace braid::run
