#include "runtime/io/Words.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/train/ImportedConfig.h"
#include "runtime/train/TensorSource.h"
#include "tools/braid-run/Prompts.h"
#include "tools/common/IntegerFlag.h"

#include <fmt/ranges.h>

#include <thread>

namespace braid::run {

using namespace braid::runtime;

namespace {

struct Options {
  std::string program, checkpoint, tokenizer, host = "127.0.0.1", name;
  int port = 8000;
  int64_t maxTokens = 4096, maxTexts = 256, stateMemory = 1024; // of states: MiB
  bool noReuse = false;
  std::optional<std::string> separator;
  PromptFlags prompts;
  RankFlags ranks;
};

// A few readers for the threads of all requests: one long prompt holds up no others.
class SharedReaders {
public:
  static constexpr size_t count = 4;
  // Without a template there are no chats, and who asks for one hears why.
  SharedReaders(const Options &options, const Program &program, int64_t vocabulary, const Texts &texts)
      : templates(Status::success()) {
    for (size_t i = 0; i < count; ++i) {
      free.push_back(std::make_unique<PromptReader>(options.prompts, &program, vocabulary, texts));
      templates = free.back()->loadTemplate();
    }
  }

  const PromptReader &one() const { return *free.front(); } // before there are requests

  Expected<std::vector<int32_t>> tokensOf(const nlohmann::ordered_json &prompt, bool addsSpecial) {
    Borrowed borrowed(*this);
    borrowed.reader->now = std::time(nullptr);
    std::optional<std::string> text;
    return borrowed.reader->tokensOf(prompt, text, addsSpecial);
  }

  Status templates; // why there is none

private:
  // Comes back whatever becomes of the prompt.
  struct Borrowed {
    explicit Borrowed(SharedReaders &from) : from(from) {
      std::unique_lock lock(from.mutex);
      from.freed.wait(lock, [&] { return !from.free.empty(); });
      reader = std::move(from.free.back());
      from.free.pop_back();
    }
    ~Borrowed() {
      {
        std::lock_guard lock(from.mutex);
        from.free.push_back(std::move(reader));
      }
      from.freed.notify_one();
    }
    SharedReaders &from;
    std::unique_ptr<PromptReader> reader;
  };

  std::mutex mutex;
  std::condition_variable freed;
  std::vector<std::unique_ptr<PromptReader>> free;
};

// Without a tokenizer tokens are bytes, or they have no text.
Expected<bool> haveText(const Program &program, const Texts &texts) {
  if (texts.tokenizer)
    return true;
  BRAID_ASSIGN(bool bytes, readsBytes(program));
  return bytes && texts.unread.ok();
}

Expected<ApiModel> modelOf(const Options &options, const Program &program, const Texts &texts,
                           const PromptReader &reader, bool speaks) {
  ApiModel model;
  model.name = options.name.empty() ? program.name() : options.name;
  model.tokenizer = texts.tokenizer;
  model.maxTokens = options.maxTokens;
  BRAID_ASSIGN(model.hasText, haveText(program, texts));
  if (Expected<std::string> directory = resolveCheckpoint(options.checkpoint); directory && isImported(*directory)) {
    BRAID_ASSIGN(ImportedDraws draws, drawsOf(*directory));
    model.draws.temperature = draws.temperature.value_or(model.draws.temperature);
    model.draws.topP = draws.topP.value_or(model.draws.topP);
    model.draws.topK = draws.topK.value_or(model.draws.topK);
    model.draws.minP = draws.minP.value_or(model.draws.minP);
    model.draws.penalties.repetition = draws.repetitionPenalty.value_or(model.draws.penalties.repetition);
    if (!draws.others.empty() && speaks)
      fmt::print(stderr, "braid-run: remark: generation_config.json says {}, which nothing here follows\n",
                 fmt::join(draws.others, ", "));
  }
  BRAID_ASSIGN(model.textEnds, endsOf(options.separator, texts, options.checkpoint, std::nullopt));
  BRAID_ASSIGN(model.chatEnds, endsOf(options.separator, texts, options.checkpoint, reader.endOfAnswer()));
  return model;
}

// Requests end by themselves; the first signal says that none begin any more.
class StopWatch {
public:
  explicit StopWatch(TextService &service)
      : thread([this, &service] {
          std::atomic<bool> &isAsked = stopOnSignals();
          while (!isDone && !isAsked)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
          service.stop();
        }) {}
  ~StopWatch() {
    isDone = true;
    thread.join();
  }

private:
  std::atomic<bool> isDone = false;
  std::thread thread;
};

Status run(const Options &options) {
  BRAID_ASSIGN(RankOptions ranks, joinRanks(options.ranks));
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program, serves));
  BRAID_TRY(checkGenerates(*program));
  warnIdleRankFlags(*program, options.ranks, ranks);
  BRAID_ASSIGN(Texts texts, textsOf(*program, options.tokenizer, options.checkpoint));
  BRAID_TRY(checkDType(*program));
  BRAID_ASSIGN(int64_t vocabulary, vocabularyOf(*program));
  SharedReaders readers(options, *program, vocabulary, texts);
  if (!options.prompts.chatTemplate.empty() || options.prompts.kwargs)
    BRAID_TRY(readers.templates);
  BRAID_ASSIGN(ApiModel model, modelOf(options, *program, texts, readers.one(), ranks.speaks()));
  model.tokensOf = [&](const nlohmann::ordered_json &prompt, bool addsSpecial) {
    return readers.tokensOf(prompt, addsSpecial);
  };
  std::unique_ptr<HttpServer> server; // of the first rank
  if (ranks.speaks()) {
    BRAID_ASSIGN(server, HttpServer::listen(options.host, options.port));
  }
  stopOnSignals(); // also on ranks that only hear of it from the first
  return runRanks(program, ranks, [&](Rank &rank) -> Status {
    BRAID_ASSIGN(Generator generator, Generator::bind(rank.session()));
    TextService::Options limits;
    limits.most = static_cast<size_t>(options.maxTexts);
    limits.reuses = !options.noReuse;
    limits.stateBytes = static_cast<size_t>(options.stateMemory) << 20;
    limits.pulse = std::min(limits.pulse, ranks.timeout / 4);
    if (model.hasText) // what has no text is not drawn
      limits.choices = static_cast<size_t>(model.textVocabulary());
    if (size_t choices = std::min(limits.choices, generator.vocabulary());
        options.separator && model.textEnds[0] >= static_cast<int64_t>(choices))
      return Status::error("--separator={}: must be a token from 0 to {}", *options.separator, choices - 1);
    const Rank::Value asked[] = {{"--no-prefix-reuse", options.noReuse ? "given" : "not given"},
                                 {"--state-memory", fmt::format("{}", options.stateMemory)},
                                 {"--tokenizer (hash)", texts.tokenizer ? texts.tokenizer->hash().hex() : "none"}};
    BRAID_TRY(rank.agree(asked, "serve"));
    BRAID_TRY(loadModel(rank, options.checkpoint, Restored::weights));
    TextService service(rank, generator, limits);
    if (!rank.isFirst())
      return service.run();
    ApiModel served = model;
    served.contextLength = generator.contextLength();
    Api api(served, service);
    // Who connects now is answered in a moment; nothing fails any more once there are threads that answer.
    fmt::print("{} on http://{}:{}/v1: {} at a time{}\n", served.name, options.host, server->port(),
               counted(generator.sequences(), "text"),
               served.contextLength < INT32_MAX ? fmt::format(", each of {}", counted(served.contextLength, "token"))
                                                : "");
    std::fflush(stdout);
    StopWatch watch(service);
    server->start(api, limits.most + 16); // some who ask how it goes
    Status status = service.run();
    server->stop();
    return status;
  });
}

} // namespace

Action addServe(CLI::App &command) {
  auto options = std::make_shared<Options>();
  addProgramOption(command, options->program);
  addCheckpointOption(command, options->checkpoint);
  command
      .add_option("--host", options->host,
                  "Address to listen on; 0.0.0.0 is every one of the machine, and whoever reaches it may ask")
      ->type_name("ADDRESS")
      ->capture_default_str();
  integerIn(command.add_option("--port", options->port, "Port to listen on (0: any that is free)"), 0, 65535)
      ->capture_default_str();
  command.add_option("--model-name", options->name, "Name of the model in requests (default: the program's)")
      ->type_name("NAME");
  integerIn(command.add_option("--max-tokens", options->maxTokens,
                               "Tokens of a chat's answer, at most, where the request does not say"),
            1, maxTokenCount)
      ->capture_default_str();
  integerIn(command.add_option("--max-texts", options->maxTexts,
                               "Texts that are being written or wait, at most; more are refused (503)"),
            1, 4096)
      ->capture_default_str();
  command.add_flag("--no-prefix-reuse", options->noReuse,
                   "Read every prompt from its beginning, also where it goes on from a text that a sequence still "
                   "holds: an answer then has the same bits whatever was asked before");
  integerIn(command.add_option("--state-memory", options->stateMemory,
                               "MiB of memory in which states of prompts are kept, from which others go on that begin "
                               "alike, at most 1024 states; first those go of which no prompt made use (0: only what "
                               "sequences hold)"),
            0, int64_t(1) << 24)
      ->type_name("MIB")
      ->capture_default_str();
  addTokenizerOption(command, options->tokenizer);
  addTemplateOptions(command, options->prompts);
  addSeparatorOption(command, options->separator,
                     "A text ends behind this token (default: none; of weights of transformers the eos_token_id of "
                     "generation_config.json or config.json beside them; else of chats the eos_token of "
                     "tokenizer_config.json)");
  addRankOptions(command, options->ranks);
  return [options] { return run(*options); };
}

} // namespace braid::run
