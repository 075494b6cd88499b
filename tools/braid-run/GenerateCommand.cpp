#include "runtime/ContentHash.h"
#include "runtime/generate/Generator.h"
#include "runtime/generate/Sampler.h"
#include "runtime/io/File.h"
#include "runtime/io/JsonText.h"
#include "runtime/io/Words.h"
#include "runtime/train/ImportedConfig.h"
#include "runtime/train/Rank.h"
#include "runtime/train/TensorSource.h"
#include "tools/braid-run/Commands.h"
#include "tools/common/IntegerFlag.h"
#include "tools/common/NumberFlag.h"

#include <charconv>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace braid::run {

using namespace braid::runtime;

namespace {

using Json = nlohmann::json;

struct Options {
  std::string program, checkpoint, tokenizer;
  std::optional<std::string> prompt;
  std::string promptTokens; // 1,2,3
  std::optional<std::string> prompts; // a file
  int64_t maxTokens = 0;
  std::optional<std::string> separator;
  SamplerOptions sampler;
  const CLI::Option *temperatureFlag = nullptr, *topKFlag = nullptr, *topPFlag = nullptr, *seedFlag = nullptr,
                    *tokenizerFlag = nullptr;
  RankFlags ranks;
};

using Tokens = std::vector<int32_t>;

struct Prompts {
  std::vector<Tokens> tokens;
  std::vector<std::string> texts; // where they were given as texts; then so are continuations
  std::vector<size_t> lines; // of the file, from 1, for each
  bool text = false;
};

// What turns the texts of a program into tokens: a tokenizer, or they are bytes.
class PromptReader {
public:
  PromptReader(const Program &program, int64_t vocabulary, const Texts &texts)
      : program(program), vocabulary(vocabulary), texts(texts) {
    if (texts.tokenizer)
      encoder.emplace(texts.tokenizer);
  }

  // `instead`: how tokens are given.
  Expected<Tokens> tokensOf(std::string_view text, std::string_view instead) {
    BRAID_TRY(texts.unread);
    if (!encoder) {
      BRAID_ASSIGN(bool bytes, readsBytes(program));
      if (!bytes)
        return Status::error(ErrorCode::unsupported,
                             "{}: its {} tokens are not bytes: give their --tokenizer, or the prompt as {}",
                             program.path(), vocabulary, instead);
      return byteTokens(text);
    }
    BRAID_ASSIGN(Tokens tokens, encoder->encode(text));
    for (int32_t token : tokens)
      if (token >= vocabulary)
        return Status::error("the tokenizer {} makes token {} of the prompt, but the vocabulary of {} has 0 to {}",
                             texts.tokenizer->path(), token, program.path(), vocabulary - 1);
    return tokens;
  }

  const Program &program;
  const int64_t vocabulary;

private:
  const Texts &texts;
  std::optional<TextEncoder> encoder;
};

// 1,2,3
Expected<Tokens> tokensOfList(std::string_view list, int64_t vocabulary) {
  Tokens tokens;
  for (std::string_view rest = list;;) {
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

// A line of --prompts: "text" or [1, 2, 3].
Expected<Tokens> tokensOfLine(std::string_view line, PromptReader &reader, std::optional<std::string> &text) {
  int64_t vocabulary = reader.vocabulary;
  Json value;
  try {
    value = Json::parse(line);
  } catch (const Json::exception &error) {
    const auto *place = dynamic_cast<const Json::parse_error *>(&error);
    return Status::error("is no JSON{}: {}; valid: a text in quotation marks, or token numbers as [1, 2, 3]",
                         place ? fmt::format(", at character {}", place->byte) : "", jsonReason(error));
  }
  if (value.is_string()) {
    text = value.get<std::string>();
    return reader.tokensOf(*text, "[1, 2, 3]");
  }
  if (!value.is_array())
    return Status::error("is {}, no prompt; valid: a text in quotation marks, or token numbers as [1, 2, 3]",
                         value.is_object() ? "an object" : shownValue(value));
  Tokens tokens;
  for (const Json &token : value) {
    if (!token.is_number_integer())
      return Status::error("token {} is {}, but the vocabulary has the whole numbers 0 to {}", tokens.size(),
                           shownValue(token), vocabulary - 1);
    if (token < 0 || token >= vocabulary)
      return Status::error("token {} is {}, but the vocabulary has 0 to {}", tokens.size(), shownValue(token),
                           vocabulary - 1);
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

Expected<Prompts> promptsOfFile(const std::string &path, PromptReader &reader) {
  if (path.empty())
    return Status::error("--prompts: the name of the file is empty");
  BRAID_ASSIGN(std::string file, readTextFile(path));
  Prompts prompts;
  size_t number = 0;
  for (std::string_view rest = file; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) // as in data: an empty line holds nothing
      continue;
    std::optional<std::string> text;
    Expected<Tokens> tokens = tokensOfLine(line, reader, text);
    if (!tokens)
      return tokens.status().withContext(fmt::format("{}:{}", path, number));
    if (!prompts.tokens.empty() && text.has_value() != prompts.text)
      return Status::error("{}:{}: the prompt is {}, but those before it are {}; valid: all of one kind", path, number,
                           text ? "a text" : "token numbers", prompts.text ? "texts" : "token numbers");
    prompts.text = text.has_value();
    if (text)
      prompts.texts.push_back(*std::move(text));
    prompts.tokens.push_back(std::move(*tokens));
    prompts.lines.push_back(number);
  }
  if (prompts.tokens.empty())
    return Status::error("{}: holds no prompt: a line each, \"text\" or [1, 2, 3]", path);
  return prompts;
}

Expected<Prompts> promptsOf(const Options &options, const Program &program, const Texts &texts) {
  BRAID_TRY(checkDType(program));
  BRAID_ASSIGN(int64_t vocabulary, vocabularyOf(program));
  PromptReader reader(program, vocabulary, texts);
  if (options.prompts)
    return promptsOfFile(*options.prompts, reader);
  Prompts prompts;
  prompts.text = options.prompt.has_value();
  if (options.prompt) {
    Expected<Tokens> tokens = reader.tokensOf(*options.prompt, "--prompt-tokens 1,2,3");
    if (!tokens)
      return tokens.status().withContext("--prompt");
    prompts.tokens.push_back(*std::move(tokens));
    prompts.texts.push_back(*options.prompt);
  } else {
    BRAID_ASSIGN(Tokens tokens, tokensOfList(options.promptTokens, vocabulary));
    prompts.tokens.push_back(std::move(tokens));
  }
  return prompts;
}

Status checkPrompts(const Generator &generator, const Prompts &prompts, const Options &options) {
  for (size_t i = 0; i < prompts.tokens.size(); ++i)
    if (Status status = checkPrompt(generator, prompts.tokens[i], options.maxTokens); !status.ok())
      return prompts.lines.empty() ? status
                                   : status.withContext(fmt::format("{}:{}", *options.prompts, prompts.lines[i]));
  return Status::success();
}

// Every rank draws for itself, so all must draw alike.
Status agreeOn(Rank &rank, const Options &options, const std::vector<Tokens> &prompts, const Tokens &ends) {
  auto number = [](auto value) { return fmt::format("{}", value); };
  const SamplerOptions &sampler = options.sampler;
  std::string all;
  for (const Tokens &prompt : prompts)
    all += fmt::format("{};", fmt::join(prompt, ","));
  const Rank::Value asked[] = {{"prompt (hash)", contentHash(std::as_bytes(std::span(all))).hex()},
                               {"prompt given as", options.prompt     ? "--prompt"
                                                   : !options.prompts ? "--prompt-tokens"
                                                                      : "--prompts"},
                               {"--max-tokens", number(options.maxTokens)},
                               {"--separator", ends.empty() ? "none" : fmt::format("{}", fmt::join(ends, ","))},
                               {"--temperature", number(sampler.temperature)},
                               {"--top-k", number(sampler.topK)},
                               {"--top-p", number(sampler.topP)},
                               {"--seed", number(sampler.seed)}};
  return rank.agree(asked, "generate");
}

// The text of continuations: bytes as they are, or what a tokenizer makes of the tokens behind their prompt.
class ContinuationText {
public:
  explicit ContinuationText(Tokenizer tokenizer) : tokenizer(std::move(tokenizer)) {}

  Status begin(const Tokens &prompt) {
    if (!tokenizer)
      return Status::success();
    decoder.emplace(tokenizer, /*special=*/false);
    for (int32_t token : prompt)
      BRAID_TRY(decoder->add(token).status());
    return Status::success();
  }
  Expected<std::string> add(int32_t token) {
    return decoder ? decoder->add(token) : Expected<std::string>(std::string(1, static_cast<char>(token)));
  }

private:
  Tokenizer tokenizer;
  std::optional<TextDecoder> decoder;
};

// Writes texts as they come: of a single prompt the prompt and each token, as text, or as numbers (1,2,3); of a file of
// prompts a line of JSON for each, in their order.
class Writer {
public:
  Writer(const Prompts &given, size_t maxTokens, Tokenizer tokenizer)
      : prompts(given.tokens), texts(given.texts), maxTokens(maxTokens), lines(!given.lines.empty()), text(given.text),
        continuation(std::move(tokenizer)), made(prompts.size()), complete(prompts.size()) {}

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
  bool lines, text;
  ContinuationText continuation;
  std::vector<Tokens> made;
  std::vector<bool> complete;
};

// Behind which tokens a text ends: --separator, or what lies beside weights that other software wrote.
Expected<Tokens> endsOf(const Options &options, const Texts &texts) {
  BRAID_ASSIGN(std::optional<int64_t> separator, separatorOf(options.separator, texts));
  if (separator)
    return Tokens{static_cast<int32_t>(*separator)};
  Expected<std::string> directory = resolveCheckpoint(options.checkpoint);
  return directory && isImported(*directory) ? endTokensOf(*directory) : Tokens();
}

// Who asks for draws from the likely tokens and forgets the temperature gets the likeliest, always the same text; who
// asks for the likeliest of all gets it at any temperature.
void warnIdleDraws(const Options &options, size_t choices, const RankOptions &ranks) {
  const SamplerOptions &sampler = options.sampler;
  bool none = sampler.temperature == 0, one = !none && sampler.topK == 1;
  const char *why = none ? "with --temperature=0, the default, nothing is drawn: the most likely token is taken"
                         : "with --top-k=1 the most likely token is taken";
  for (auto [flag, idle] : {std::pair(options.topKFlag, none && sampler.topK != 0),
                            {options.topPFlag, (none || one) && sampler.topP != 1},
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
  BRAID_ASSIGN(Tokens ends, endsOf(options, texts));
  BRAID_ASSIGN(Prompts prompts, promptsOf(options, *program, texts));
  if (!prompts.text && !options.separator)
    warnIdle(options.tokenizerFlag, ranks, "the prompts are tokens");
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

Action addGenerate(CLI::App &command) {
  auto options = std::make_shared<Options>();
  addProgramOption(command, options->program);
  addCheckpointOption(command, options->checkpoint);
  options->tokenizerFlag = addTokenizerOption(command, options->tokenizer);
  CLI::Option_group *prompt = command.add_option_group("prompt");
  prompt
      ->add_option("--prompt", options->prompt,
                   "Text to continue, at least one token; it is printed in front of the continuation")
      ->type_name("TEXT");
  prompt
      ->add_option(
          "--prompt-tokens", options->promptTokens,
          "The same as token numbers, for models whose vocabulary is not bytes; all tokens are printed as numbers")
      ->type_name("1,2,3");
  prompt
      ->add_option(
          "--prompts", options->prompts,
          "Many of them: a line of JSON each, \"text\" or [1, 2, 3]. As many at a time as the program was compiled "
          "for (decode_batch); prompt i (from 0) draws with --seed plus i and does not depend on the others but for "
          "rounding. "
          "All are texts or all are numbers; empty lines are skipped. A line of JSON each "
          "is printed, in their order: prompt, text (of texts), tokens")
      ->type_name("FILE");
  prompt->require_option(1);
  integerIn(command.add_option("--max-tokens", options->maxTokens, "Tokens to generate"), 1, maxTokenCount)->required();
  addSeparatorOption(
      command, options->separator,
      "A text ends behind this token, which is its last one, as of documents in training (default: none; of weights "
      "of transformers the eos_token_id of generation_config.json or config.json beside them)");
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
  options->seedFlag = integerIn(command.add_option("--seed", sampler.seed,
                                                   "Seed of the draws, with a --temperature: the same seed gives the "
                                                   "same text"),
                                0, UINT64_MAX)
                          ->capture_default_str();
  addRankOptions(command, options->ranks);
  return [options] { return run(*options); };
}

} // namespace braid::run
