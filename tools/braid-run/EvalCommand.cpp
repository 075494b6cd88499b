#include "runtime/io/Words.h"
#include "runtime/train/Evaluate.h"
#include "tools/braid-run/Commands.h"

namespace braid::run {

using namespace braid::runtime;

namespace {

struct Options {
  std::string program, checkpoint, tokenizer;
  DataFlags data;
  RankFlags ranks;
  const CLI::Option *tokenizerFlag = nullptr;
};

Status run(const Options &options) {
  BRAID_ASSIGN(RankOptions ranks, joinRanks(options.ranks));
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program, evaluates));
  warnIdleRankFlags(*program, options.ranks, ranks);
  FileUses uses; // of a command that writes nothing but what it prints
  addDataUses(uses, "--data", options.data.paths);
  uses.readsCheckpoints("--checkpoint", options.checkpoint);
  BRAID_TRY(uses.check());
  BRAID_ASSIGN(Texts texts, textsOf(*program, options.tokenizer, options.checkpoint));
  BRAID_ASSIGN(Corpus corpus, readData(*program, options.data, options.data.paths, texts));
  if (!corpus.isEncoded() && !options.data.separator)
    warnIdle(options.tokenizerFlag, ranks, "the data is tokens");
  EvalResult result;
  BRAID_TRY(runRanks(program, ranks, [&](Rank &rank) -> Status {
    BRAID_ASSIGN(Evaluator evaluator, Evaluator::bind(rank));
    BRAID_TRY(loadModel(rank, options.checkpoint, Restored::weights));
    const Rank::Value read[] = {{"--tokenizer (hash)", texts.tokenizer ? texts.tokenizer->hash().hex() : "none"},
                                {"--data (hash)", fmt::format("{:016x}", corpus.hash())}};
    BRAID_TRY(rank.agree(read, "data"));
    BRAID_ASSIGN(EvalResult own, evaluator.evaluate(corpus));
    if (rank.isFirst())
      result = own;
    return Status::success();
  }));
  if (!ranks.speaks())
    return Status::success();
  fmt::print("held-out loss  {:>8.4f} nats/{} {:>8.4f} bits/{}  over {} in {:.1f} s\n", shown(result.nats),
             corpus.unit(), shown(result.bits()), corpus.unit(), counted(result.tokens, corpus.unit()), result.seconds);
  if (corpus.textBytes() > 0)
    fmt::print("of the text    {:>8.4f} nats/byte {:>8.4f} bits/byte  over {}, {:.2f} a token\n",
               shown(result.nats * static_cast<double>(result.tokens) / static_cast<double>(corpus.textBytes())),
               shown(result.bits() * static_cast<double>(result.tokens) / static_cast<double>(corpus.textBytes())),
               counted(corpus.textBytes(), "byte"),
               static_cast<double>(corpus.textBytes()) / static_cast<double>(std::max<uint64_t>(result.tokens, 1)));
  if (result.assignments > 0)
    fmt::print("experts        {:>8.2f} % of {} assignments found no slot\n",
               100.0 * static_cast<double>(result.dropped) / static_cast<double>(result.assignments),
               result.assignments);
  return Status::success();
}

} // namespace

Action addEval(CLI::App &command) {
  auto options = std::make_shared<Options>();
  addProgramOption(command, options->program);
  addCheckpointOption(command, options->checkpoint);
  addDataOptions(command, options->data);
  options->tokenizerFlag = addTokenizerOption(command, options->tokenizer);
  addRankOptions(command, options->ranks);
  return [options] { return run(*options); };
}

} // namespace braid::run
