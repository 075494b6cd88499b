#include "runtime/ContentHash.h"
#include "runtime/generate/ContinuationText.h"
#include "runtime/generate/Generator.h"
#include "runtime/generate/Sampler.h"
#include "runtime/io/File.h"
#include "runtime/io/JsonText.h"
#include "runtime/io/Words.h"
#include "runtime/train/Rank.h"
#include "tools/braid-run/Prompts.h"
#include "tools/common/IntegerFlag.h"
#include "tools/common/NumberFlag.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>

namespace braid::run {

using namespace braid::runtime;

namespace {

using Json = nlohmann::json;

struct Options {
  std::string program, checkpoint, tokenizer;
  PromptFlags prompts;
  int64_t maxTokens = 0;
  std::optional<std::string> separator;
  SamplerOptions sampler;
  const CLI::Option *temperatureFlag = nullptr, *topKFlag = nullptr, *topPFlag = nullptr, *minPFlag = nullptr,
                    *seedFlag = nullptr, *tokenizerFlag = nullptr;
  RankFlags ranks;
};

using Tokens = std::vector<int32_t>;

Status checkPrompts(const Generator &generator, const Prompts &prompts, const Options &options) {
  for (size_t i = 0; i < prompts.tokens.size(); ++i)
    if (Status status = checkPrompt(generator, prompts.tokens[i], options.maxTokens); !status.ok())
      return prompts.lines.empty()
                 ? status
                 : status.withContext(fmt::format("{}:{}", *options.prompts.prompts, prompts.lines[i]));
  return Status::success();
}

// Every rank draws for itself, so all must draw alike.
Status agreeOn(Rank &rank, const Options &options, const std::vector<Tokens> &prompts, const Tokens &ends) {
  auto number = [](auto value) { return fmt::format("{}", value); };
  const SamplerOptions &sampler = options.sampler;
  std::vector<std::string> bias;
  for (auto [token, amount] : sampler.penalties.bias)
    bias.push_back(fmt::format("{}:{}", token, amount));
  std::string all;
  for (const Tokens &prompt : prompts)
    all += fmt::format("{};", fmt::join(prompt, ","));
  const Rank::Value asked[] = {{"prompt (hash)", contentHash(std::as_bytes(std::span(all))).hex()},
                               {"prompt given as", options.prompts.prompt    ? "--prompt"
                                                   : options.prompts.chat    ? "--chat"
                                                   : options.prompts.prompts ? "--prompts"
                                                                             : "--prompt-tokens"},
                               {"--max-tokens", number(options.maxTokens)},
                               {"--separator", ends.empty() ? "none" : fmt::format("{}", fmt::join(ends, ","))},
                               {"--temperature", number(sampler.temperature)},
                               {"--top-k", number(sampler.topK)},
                               {"--top-p", number(sampler.topP)},
                               {"--min-p", number(sampler.minP)},
                               {"--repetition-penalty", number(sampler.penalties.repetition)},
                               {"--presence-penalty", number(sampler.penalties.presence)},
                               {"--frequency-penalty", number(sampler.penalties.frequency)},
                               {"--logit-bias", bias.empty() ? "none" : fmt::format("{}", fmt::join(bias, ","))},
                               {"--seed", number(sampler.seed)}};
  return rank.agree(asked, "generate");
}

// Writes texts as they come: of a single prompt the prompt (not of a chat) and each token, as text, or as numbers
// (1,2,3); of a file of prompts a line of JSON for each, in their order.
class Writer {
public:
  Writer(const Prompts &given, size_t maxTokens, Tokenizer tokenizer)
      : prompts(given.tokens), texts(given.texts), maxTokens(maxTokens), lines(!given.lines.empty()), text(given.text),
        chats(given.chats), continuation(std::move(tokenizer)), made(prompts.size()), complete(prompts.size()) {}

  // `last`: nothing follows it.
  bool add(size_t prompt, int32_t token, bool last) {
    made[prompt].push_back(token);
    complete[prompt] = last || made[prompt].size() == maxTokens;
    if (failed || !status.ok())
      return false;
    status = lines ? writeLines() : write(token);
    return status.ok() && flush();
  }

  Status finish() {
    BRAID_TRY(status);
    if (!lines)
      std::fputc('\n', stdout);
    return flush() ? Status::success() : writeError("standard output", failed);
  }

private:
  // The first error stays: what comes behind it says less.
  bool flush() {
    if (!failed && std::fflush(stdout) != 0)
      failed = errno;
    return failed == 0;
  }
  // Those that are complete, up to the first that is not.
  Status writeLines() {
    for (; done < made.size() && complete[done]; ++done) {
      Json line = {{"prompt", prompts[done]}, {"tokens", made[done]}};
      if (text) {
        std::string all;
        BRAID_TRY(continuation.begin(prompts[done]));
        for (int32_t token : made[done]) {
          BRAID_ASSIGN(std::string added, continuation.add(token));
          all += added;
        }
        line["prompt"] = texts[done];
        line["text"] = all;
      }
      fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    return Status::success();
  }
  Status write(int32_t token) {
    bool first = made[0].size() == 1;
    if (!text) {
      if (first)
        fmt::print("{},", fmt::join(prompts[0], ","));
      fmt::print("{}{}", first ? "" : ",", token);
      return Status::success();
    }
    if (first) {
      BRAID_TRY(continuation.begin(prompts[0]));
      if (!chats)
        std::fwrite(texts[0].data(), 1, texts[0].size(), stdout);
    }
    BRAID_ASSIGN(std::string added, continuation.add(token));
    std::fwrite(added.data(), 1, added.size(), stdout);
    return Status::success();
  }

  const std::vector<Tokens> &prompts;
  const std::vector<std::string> &texts; // of prompts
  size_t maxTokens, done = 0;
  int failed = 0; // errno
  Status status = Status::success();
  bool lines, text, chats;
  ContinuationText continuation;
  std::vector<Tokens> made;
  std::vector<bool> complete;
};

// Who asks for draws from the likely tokens and forgets the temperature gets the likeliest, always the same text; who
// asks for the likeliest of all gets it at any temperature.
void warnIdleDraws(const Options &options, size_t choices, const RankOptions &ranks) {
  const SamplerOptions &sampler = options.sampler;
  bool none = sampler.temperature == 0, one = !none && sampler.topK == 1;
  const char *why = none ? "with --temperature=0, the default, nothing is drawn: the most likely token is taken"
                         : "with --top-k=1 the most likely token is taken";
  for (auto [flag, idle] : {std::pair(options.topKFlag, none && sampler.topK != 0),
                            {options.topPFlag, (none || one) && sampler.topP != 1},
                            {options.minPFlag, (none || one) && sampler.minP != 0},
                            {options.seedFlag, (none || one) && sampler.seed != 0},
                            {options.temperatureFlag, one}})
    if (idle)
      warnIdle(flag, ranks, why);
  if (!none && !one && sampler.topK >= static_cast<int64_t>(choices))
    warnIdle(options.topKFlag, ranks, fmt::format("there are {} tokens to draw from", choices));
}

Status run(const Options &options) {
  BRAID_ASSIGN(RankOptions ranks, joinRanks(options.ranks));
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program, generates));
  BRAID_TRY(checkGenerates(*program));
  warnIdleRankFlags(*program, options.ranks, ranks);
  BRAID_ASSIGN(Texts texts, textsOf(*program, options.tokenizer, options.checkpoint));
  const Tokenizer &tokenizer = texts.tokenizer;
  BRAID_TRY(checkDType(*program));
  BRAID_ASSIGN(int64_t vocabulary, vocabularyOf(*program));
  BRAID_ASSIGN(Prompts prompts, readPrompts(options.prompts, program.get(), vocabulary, texts));
  BRAID_ASSIGN(Tokens ends, endsOf(options.separator, texts, options.checkpoint, prompts.endOfAnswer));
  if (!prompts.text && !options.separator)
    warnIdle(options.tokenizerFlag, ranks, "the prompts are tokens");
  if (!prompts.chats)
    for (const CLI::Option *flag : {options.prompts.chatTemplateFlag, options.prompts.kwargsFlag})
      warnIdle(flag, ranks, "no prompt is a chat");
  return runRanks(program, ranks, [&](Rank &rank) -> Status {
    BRAID_ASSIGN(Generator generator, Generator::bind(rank.session()));
    size_t choices = generator.vocabulary();
    if (prompts.text) // what has no text is not chosen
      choices = std::min<size_t>(choices, tokenizer ? static_cast<size_t>(tokenizer->vocabulary()) : 256);
    if (rank.isFirst())
      warnIdleDraws(options, choices, ranks);
    BRAID_TRY(agreeOn(rank, options, prompts.tokens, ends));
    BRAID_TRY(checkPrompts(generator, prompts, options));
    BRAID_TRY(loadModel(rank, options.checkpoint, Restored::weights));
    // Every rank draws the same tokens from the same logits; the first one writes them.
    Writer writer(prompts, static_cast<size_t>(options.maxTokens), tokenizer);
    auto emit = [&](size_t prompt, int32_t token) {
      bool last = std::find(ends.begin(), ends.end(), token) != ends.end();
      if (rank.isFirst() && !writer.add(prompt, token, last))
        return AfterToken::endAll;
      return last ? AfterToken::endText : AfterToken::goOn;
    };
    if (options.separator && ends[0] >= static_cast<int64_t>(choices))
      return Status::error("--separator={}: must be a token from 0 to {}", *options.separator, choices - 1);
    BRAID_ASSIGN(GenerateResult result,
                 generate(generator, prompts.tokens, options.maxTokens, options.sampler, choices, emit));
    if (!rank.isFirst())
      return Status::success();
    BRAID_TRY(writer.finish());
    auto rate = [](size_t tokens, double seconds) { return static_cast<double>(tokens) / std::max(seconds, 1e-9); };
    fmt::print(stderr, "prompt: {}, {:.0f} tokens/s; generated: {}, {:.1f} tokens/s\n",
               counted(result.promptTokens, "token"), rate(result.promptTokens, result.promptSeconds),
               counted(result.generatedTokens, "token"), rate(result.generatedTokens, result.decodeSeconds));
    return Status::success();
  });
}

} // namespace

// Penalties and biases change the most likely token, too.
static void addPenaltyOptions(CLI::App &command, PenaltyOptions &penalties) {
  constexpr double most = PenaltyOptions::maxAmount, mostBias = PenaltyOptions::maxBias;
  auto add = [&](const char *flag, double &value, From from, double least, double greatest, const char *what) {
    numberIn(command.add_option(flag, value, what), from, least, greatest)->type_name("R")->capture_default_str();
  };
  add("--repetition-penalty", penalties.repetition, From::least, PenaltyOptions::minRepetition,
      PenaltyOptions::maxRepetition,
      "Divide logits above 0 by R, multiply others, of tokens that stand in the prompt or were drawn");
  add("--presence-penalty", penalties.presence, From::least, -most, most,
      "Subtract R from the logits of tokens that were drawn");
  add("--frequency-penalty", penalties.frequency, From::least, -most, most,
      "Subtract R times the number of times that a token was drawn from its logit");
  command
      .add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [&penalties, mostBias](const std::vector<std::string> &all) {
            for (const std::string &one : all) {
              size_t colon = one.find(':');
              int32_t token = -1;
              double bias = NAN;
              auto reads = [](std::string_view text, auto &value) {
                auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
                return error == std::errc() && end == text.data() + text.size();
              };
              std::string_view text = one;
              if (colon == text.npos || !reads(text.substr(0, colon), token) || token < 0 ||
                  !reads(text.substr(colon + 1), bias) || !(std::abs(bias) <= mostBias))
                throw CLI::ValidationError("--logit-bias", fmt::format("'{}': must be a token's number and what is "
                                                                       "added to its logit, {} to {}, as in 13:-100",
                                                                       escaped(one), -mostBias, mostBias));
              penalties.bias.emplace_back(token, bias);
            }
          },
          "Add numbers to the logits of tokens: 13:-100,198:2.5")
      ->delimiter(',')
      ->type_name("TOKEN:B,..");
}

Action addGenerate(CLI::App &command) {
  auto options = std::make_shared<Options>();
  addProgramOption(command, options->program);
  addCheckpointOption(command, options->checkpoint);
  options->tokenizerFlag = addTokenizerOption(command, options->tokenizer);
  CLI::Option_group *prompt = command.add_option_group("prompt");
  PromptFlags &flags = options->prompts;
  prompt
      ->add_option("--prompt", flags.prompt,
                   "Text to continue, at least one token; it is printed in front of the continuation")
      ->type_name("TEXT");
  prompt
      ->add_option(
          "--prompt-tokens", flags.promptTokens,
          "The same as token numbers, for models whose vocabulary is not bytes; all tokens are printed as numbers")
      ->type_name("1,2,3");
  addChatOptions(
      command, *prompt, flags,
      "As many at a time as the program was compiled for (decode_batch); prompt i (from 0) draws with --seed plus i "
      "and "
      "does not depend on the others but for rounding. All are texts and chats, or all are numbers; empty lines are "
      "skipped. A line of JSON each is printed, in their order: prompt, text (of texts), tokens");
  prompt->require_option(1);
  integerIn(command.add_option("--max-tokens", options->maxTokens, "Tokens to generate"), 1, maxTokenCount)->required();
  addSeparatorOption(
      command, options->separator,
      "A text ends behind this token, which is its last one, as of documents in training (default: none; of weights "
      "of transformers the eos_token_id of generation_config.json or config.json beside them; else of chats the "
      "eos_token of tokenizer_config.json)");
  SamplerOptions &sampler = options->sampler;
  options->temperatureFlag =
      numberIn(
          command.add_option("--temperature", sampler.temperature,
                             "0 takes the most likely token; 1 draws from the model's probabilities; above 1 is more "
                             "random"),
          From::least, 0, Sampler::maxTemperature)
          ->type_name("T")
          ->capture_default_str();
  options->topKFlag = integerIn(command.add_option("--top-k", sampler.topK,
                                                   "Draw only from the K most likely tokens (0: all), with a "
                                                   "--temperature"),
                                0, maxTokenCount)
                          ->type_name("K")
                          ->capture_default_str();
  options->topPFlag = numberIn(command.add_option("--top-p", sampler.topP,
                                                  "Draw only from the most likely tokens that together have "
                                                  "probability P"),
                               From::above, 0, 1)
                          ->type_name("P")
                          ->capture_default_str();
  options->minPFlag = numberIn(command.add_option("--min-p", sampler.minP,
                                                  "Draw only from tokens that are at least P times as likely as the "
                                                  "most likely one, with a --temperature"),
                               From::least, 0, 1)
                          ->type_name("P")
                          ->capture_default_str();
  addPenaltyOptions(command, sampler.penalties);
  options->seedFlag = integerIn(command.add_option("--seed", sampler.seed,
                                                   "Seed of the draws, with a --temperature: the same seed gives the "
                                                   "same text"),
                                0, UINT64_MAX)
                          ->capture_default_str();
  addRankOptions(command, options->ranks);
  return [options] { return run(*options); };
}

} // namespace braid::run
