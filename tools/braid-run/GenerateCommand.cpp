#include "runtime/generate/Generator.h"
#include "runtime/generate/Sampler.h"
#include "runtime/train/Checkpoint.h"
#include "tools/braid-run/Commands.h"

namespace braid::run {

using namespace braid::runtime;

namespace {

struct Options {
  std::string program, checkpoint, prompt;
  int64_t maxTokens = 0;
  SamplerOptions sampler;
  RankOptions ranks;
};

Status run(const Options &options) {
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program));
  return runRanks(program, options.ranks, [&](Rank &rank) -> Status {
    BRAID_TRY(checkByteTokens(rank.program()));
    BRAID_ASSIGN(Generator generator, Generator::bind(rank.session()));
    BRAID_TRY(loadCheckpoint(rank, options.checkpoint, /*weightsOnly=*/true).status());
    bool begun = false;
    auto emit = [&](std::string_view text) {
      if (!std::exchange(begun, true))
        std::fwrite(options.prompt.data(), 1, options.prompt.size(), stdout);
      std::fwrite(text.data(), 1, text.size(), stdout);
      return std::fflush(stdout) == 0;
    };
    BRAID_ASSIGN(GenerateResult result,
                 generateText(generator, options.prompt, options.maxTokens, options.sampler, emit));
    std::fputc('\n', stdout);
    if (std::fflush(stdout) != 0)
      return Status::error(ErrorCode::ioError, "cannot write the text to standard output");
    auto rate = [](size_t tokens, double seconds) { return static_cast<double>(tokens) / std::max(seconds, 1e-9); };
    fmt::print(stderr, "prompt: {} tokens, {:.0f} tokens/s; generated: {} tokens, {:.1f} tokens/s\n",
               options.prompt.size(), rate(options.prompt.size(), result.promptSeconds), result.text.size(),
               rate(result.text.size(), result.decodeSeconds));
    return Status::success();
  });
}

} // namespace

Action addGenerate(CLI::App &command) {
  auto options = std::make_shared<Options>();
  addProgramOption(command, options->program);
  command.add_option("--checkpoint", options->checkpoint, "Checkpoint, or directory of checkpoints (its newest)")
      ->required()
      ->type_name("DIR");
  command.add_option("--prompt", options->prompt, "Text to continue; it is printed in front of the continuation")
      ->required()
      ->type_name("TEXT");
  positive(command.add_option("--max-tokens", options->maxTokens, "Tokens (bytes) to generate"))->required();
  SamplerOptions &sampler = options->sampler;
  command
      .add_option("--temperature", sampler.temperature,
                  "0 takes the most likely token; 1 draws from the model's probabilities; above 1 is more random")
      ->type_name("T")
      ->capture_default_str();
  command.add_option("--top-k", sampler.topK, "Draw only from the K most likely tokens (0: all)")
      ->capture_default_str();
  command.add_option("--top-p", sampler.topP, "Draw only from the most likely tokens that together have probability P")
      ->type_name("P")
      ->capture_default_str();
  command.add_option("--seed", sampler.seed, "Seed of the draws: the same seed gives the same text")
      ->type_name("N")
      ->capture_default_str();
  addThreadsOption(command, options->ranks.threads);
  return [options] { return run(*options); };
}

} // namespace braid::run
