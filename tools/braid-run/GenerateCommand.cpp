#include "runtime/ContentHash.h"
#include "runtime/generate/Generator.h"
#include "runtime/generate/Sampler.h"
#include "runtime/train/Rank.h"
#include "tools/braid-run/Commands.h"
#include "tools/common/IntegerFlag.h"
#include "tools/common/NumberFlag.h"

#include <charconv>

namespace braid::run {

using namespace braid::runtime;

namespace {

struct Options {
  std::string program, checkpoint;
  std::optional<std::string> prompt;
  std::string promptTokens; // 1,2,3
  int64_t maxTokens = 0;
  SamplerOptions sampler;
  RankFlags ranks;
};

// The prompt as tokens: bytes of --prompt, or --prompt-tokens.
Expected<std::vector<int32_t>> promptOf(const Options &options, const Program &program) {
  BRAID_TRY(checkDType(program));
  BRAID_ASSIGN(int64_t vocabulary, vocabularyOf(program));
  if (options.prompt) {
    BRAID_ASSIGN(bool bytes, readsBytes(program));
    if (!bytes)
      return Status::error(ErrorCode::unsupported,
                           "{}: its {} tokens are not bytes: give the prompt as --prompt-tokens 1,2,3", program.path(),
                           vocabulary);
    return byteTokens(*options.prompt);
  }
  std::vector<int32_t> tokens;
  for (std::string_view rest = options.promptTokens;;) {
    std::string_view text = rest.substr(0, rest.find(','));
    int32_t token = -1;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (error != std::errc() || end != text.data() + text.size() || token < 0 || token >= vocabulary)
      return Status::error("--prompt-tokens: token {} is '{}', but the vocabulary has 0 to {}", tokens.size(), text,
                           vocabulary - 1);
    tokens.push_back(token);
    if (text.size() == rest.size())
      return tokens;
    rest.remove_prefix(text.size() + 1);
  }
}

// Every rank draws for itself, so all must draw alike.
Status agreeOn(Rank &rank, const Options &options, const std::vector<int32_t> &prompt) {
  auto number = [](auto value) { return fmt::format("{}", value); };
  const SamplerOptions &sampler = options.sampler;
  const Rank::Value asked[] = {{"prompt (hash)", contentHash(std::as_bytes(std::span(prompt))).hex()},
                               {"prompt given as", options.prompt ? "--prompt" : "--prompt-tokens"},
                               {"--max-tokens", number(options.maxTokens)},
                               {"--temperature", number(sampler.temperature)},
                               {"--top-k", number(sampler.topK)},
                               {"--top-p", number(sampler.topP)},
                               {"--seed", number(sampler.seed)}};
  return rank.agree(asked, "generate");
}

Status run(const Options &options) {
  BRAID_ASSIGN(RankOptions ranks, joinRanks(options.ranks));
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program));
  BRAID_ASSIGN(std::vector<int32_t> prompt, promptOf(options, *program));
  return runRanks(program, ranks, [&](Rank &rank) -> Status {
    BRAID_ASSIGN(Generator generator, Generator::bind(rank.session()));
    BRAID_TRY(agreeOn(rank, options, prompt));
    BRAID_TRY(loadModel(rank, options.checkpoint, /*weightsOnly=*/true));
    bool text = options.prompt.has_value();
    size_t written = 0;
    // Every rank draws the same tokens from the same logits; the first one writes them. Bytes as they are, other tokens
    // as numbers: 1,2,3.
    auto write = [&](int32_t token) {
      if (text)
        std::fputc(token, stdout);
      else
        fmt::print("{}{}", written ? "," : "", token);
      ++written;
    };
    auto emit = [&](int32_t token) {
      if (!rank.isFirst())
        return true;
      if (written == 0)
        for (int32_t given : prompt)
          write(given);
      write(token);
      return std::fflush(stdout) == 0;
    };
    size_t choices = text ? 256 : generator.vocabulary();
    BRAID_ASSIGN(GenerateResult result, generate(generator, prompt, options.maxTokens, options.sampler, choices, emit));
    if (!rank.isFirst())
      return Status::success();
    std::fputc('\n', stdout);
    if (std::fflush(stdout) != 0)
      return writeError("standard output", errno);
    auto rate = [](size_t tokens, double seconds) { return static_cast<double>(tokens) / std::max(seconds, 1e-9); };
    fmt::print(stderr, "prompt: {} tokens, {:.0f} tokens/s; generated: {} tokens, {:.1f} tokens/s\n", prompt.size(),
               rate(prompt.size(), result.promptSeconds), result.tokens.size(),
               rate(result.tokens.size(), result.decodeSeconds));
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
  CLI::Option_group *prompt = command.add_option_group("prompt");
  prompt
      ->add_option("--prompt", options->prompt,
                   "Text to continue, at least one byte; it is printed in front of the continuation")
      ->type_name("TEXT");
  prompt
      ->add_option(
          "--prompt-tokens", options->promptTokens,
          "The same as token numbers, for models whose vocabulary is not bytes; all tokens are printed as numbers")
      ->type_name("1,2,3");
  prompt->require_option(1);
  integerIn(command.add_option("--max-tokens", options->maxTokens, "Tokens to generate"), 1, maxTokenCount)->required();
  SamplerOptions &sampler = options->sampler;
  numberIn(command.add_option(
               "--temperature", sampler.temperature,
               "0 takes the most likely token; 1 draws from the model's probabilities; above 1 is more random"),
           From::least, 0, Sampler::maxTemperature)
      ->type_name("T")
      ->capture_default_str();
  integerIn(command.add_option("--top-k", sampler.topK, "Draw only from the K most likely tokens (0: all)"), 0,
            maxTokenCount)
      ->type_name("K")
      ->capture_default_str();
  numberIn(command.add_option("--top-p", sampler.topP,
                              "Draw only from the most likely tokens that together have probability P"),
           From::above, 0, 1)
      ->type_name("P")
      ->capture_default_str();
  integerIn(command.add_option("--seed", sampler.seed, "Seed of the draws: the same seed gives the same text"), 0,
            UINT64_MAX)
      ->capture_default_str();
  addRankOptions(command, options->ranks);
  return [options] { return run(*options); };
}

} // namespace braid::run
