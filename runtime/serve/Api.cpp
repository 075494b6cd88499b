#include "runtime/serve/Api.h"

#include "runtime/io/JsonText.h"
#include "runtime/io/Words.h"
#include "runtime/text/Utf8.h"

#include <algorithm>
#include <ctime>
#include <random>

namespace braid::runtime {

using Json = nlohmann::ordered_json;
using Milliseconds = std::chrono::milliseconds;

// Bytes that are no text are shown as such.
static std::string dump(const Json &json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

static uint64_t randomNumber() {
  std::random_device device;
  return uint64_t(device()) << 32 | device();
}

// ---- What came ------------------------------------------------------------------------------------------------------

ApiAnswer::~ApiAnswer() {
  for (const Choice &choice : choices)
    choice.asked->cancel();
}

// A part of a character has a name of its own, too.
static std::string nameOf(std::string_view text) {
  if (!firstInvalidUtf8(text))
    return std::string(text);
  std::string name = "bytes:";
  for (char c : text)
    name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

// A token as if it had been drawn. What cannot follow has the number that OpenAI's API has for it: JSON has no infinity.
Expected<Json> ApiAnswer::named(const Choice &choice, const LikelyToken &token) {
  constexpr float never = -9999;
  ContinuationText names = choice.names;
  std::string name;
  bool hasText = model.hasText && token.token < model.textVocabulary();
  if (hasText) {
    BRAID_ASSIGN(name, names.add(token.token));
  }
  Json bytes = Json::array();
  for (char c : name)
    bytes.push_back(static_cast<unsigned char>(c));
  Json json = {{"token", hasText ? nameOf(name) : fmt::format("token_id:{}", token.token)},
               {"logprob", std::max(token.logProbability, never)},
               {"bytes", bytes}};
  if (request.returnsTokens)
    json["token_id"] = token.token;
  return json;
}

Expected<Json> ApiAnswer::likelihood(const Choice &choice, const AskedText::Token &token) {
  BRAID_ASSIGN(Json json, named(choice, token.drawn));
  json["top_logprobs"] = Json::array();
  for (const LikelyToken &likely : token.likeliest) {
    BRAID_ASSIGN(Json one, named(choice, likely));
    json["top_logprobs"].push_back(std::move(one));
  }
  return json;
}

// The first token follows nothing: nobody says how likely it is.
Status ApiAnswer::addPrompt(Choice &choice, std::span<const TokenScore> scores) {
  choice.hasPrompt = true;
  const std::vector<int32_t> &prompt = prompts[static_cast<size_t>(&choice - choices.data()) / request.count];
  for (size_t i = 0; i < prompt.size(); ++i) {
    AskedText::Token token{{prompt[i], i == 0 ? 0 : scores[i - 1].logProbability}, {}};
    if (i > 0 && request.likeliest > 0)
      token.likeliest.push_back({scores[i - 1].likeliest, scores[i - 1].likeliestLogProbability});
    BRAID_ASSIGN(Json likely, likelihood(choice, token));
    if (i == 0)
      likely["logprob"] = likely["top_logprobs"] = nullptr;
    choice.likely.push_back(std::move(likely));
    if (model.hasText)
      BRAID_TRY(choice.names.add(prompt[i]).status());
  }
  return Status::success();
}

Status ApiAnswer::add(Choice &choice, const AskedText::Token &token) {
  int32_t drawn = token.drawn.token;
  const std::vector<int32_t> &ends = request.isChat ? model.chatEnds : model.textEnds;
  bool isEnd = !request.ignoresEnds && std::ranges::find(ends, drawn) != ends.end();
  ++choice.drawn;
  choice.tokens.push_back(drawn);
  if (request.likeliest >= 0) {
    BRAID_ASSIGN(Json likely, likelihood(choice, token));
    choice.likely.push_back(std::move(likely));
    if (model.hasText)
      BRAID_TRY(choice.names.add(drawn).status());
  }
  if (!model.hasText || isEnd)
    return Status::success();
  BRAID_ASSIGN(std::string text, choice.continuation.add(drawn));
  choice.text += choice.held.add(text);
  if (choice.held.stopped()) {
    choice.finish = "stop";
    choice.asked->cancel();
  }
  return Status::success();
}

Status ApiAnswer::collect(Choice &choice, Milliseconds patience, AskedText::For what) {
  AskedText::News news = choice.asked->next(patience, what);
  choice.reused = news.reusedTokens;
  // Scores come by themselves; of a prompt of one token there are none.
  bool isRead = !news.scores.empty() || !news.tokens.empty() || news.end == AskedText::End::token ||
                news.end == AskedText::End::length;
  if (request.scoresPrompt() && isRead && !choice.hasPrompt)
    BRAID_TRY(addPrompt(choice, news.scores));
  for (const AskedText::Token &token : news.tokens) {
    BRAID_TRY(add(choice, token));
    if (choice.finish) // what was drawn meanwhile is nobody's
      return Status::success();
  }
  switch (news.end) {
  case AskedText::End::none: return Status::success();
  case AskedText::End::token: choice.finish = "stop"; break;
  case AskedText::End::length: choice.finish = "length"; break;
  case AskedText::End::cancelled: return Status::error(ErrorCode::internal, "the text was given up");
  case AskedText::End::failed: return news.status;
  }
  choice.text += choice.held.finish();
  return Status::success();
}

Status ApiAnswer::wait() {
  Choice &first = choices.front();
  while (!first.finish && first.drawn == 0)
    BRAID_TRY(collect(first, Milliseconds(1000), AskedText::For::tokens));
  return Status::success();
}

// ---- What is said ---------------------------------------------------------------------------------------------------

Json ApiAnswer::envelope(const char *object) const {
  return {{"id", id}, {"object", object}, {"created", created}, {"model", model.name}};
}

// Takes what was collected. Completions have lists side by side, chats a list of objects.
Json ApiAnswer::likelihoods(Choice &choice) {
  if (request.likeliest < 0)
    return nullptr;
  Json all = std::exchange(choice.likely, Json::array());
  if (request.isChat)
    return {{"content", all}};
  Json names = Json::array(), numbers = Json::array(), likeliest = Json::array(), offsets = Json::array();
  for (const Json &one : all) {
    names.push_back(one["token"]);
    numbers.push_back(one["logprob"]);
    Json top = one["top_logprobs"].is_null() ? Json() : Json::object();
    for (const Json &likely : one["top_logprobs"])
      top.emplace(likely["token"].get<std::string>(), Json(likely["logprob"])); // of equal names the likeliest
    likeliest.push_back(std::move(top));
    offsets.push_back(choice.shownCharacters);
    choice.shownCharacters += static_cast<size_t>(
        std::ranges::count_if(one["bytes"], [](const Json &byte) { return (byte.get<int>() & 0xC0) != 0x80; }));
  }
  return {{"tokens", names}, {"token_logprobs", numbers}, {"top_logprobs", likeliest}, {"text_offset", offsets}};
}

// Of a choice what was collected since the last part of it, or all.
Json ApiAnswer::choiceOf(size_t index, bool isPart) {
  Choice &choice = choices[index];
  Json json = {{"index", index}};
  std::string text = std::exchange(choice.text, {});
  if (!request.isChat) {
    json["text"] = text;
  } else {
    Json message = Json::object();
    if (choice.isFirst)
      message["role"] = "assistant";
    if (!isPart || choice.isFirst || !text.empty())
      message["content"] = text;
    json[isPart ? "delta" : "message"] = std::move(message);
  }
  choice.isFirst = false;
  json["logprobs"] = likelihoods(choice);
  std::vector<int32_t> tokens = std::exchange(choice.tokens, {});
  if (request.returnsTokens || !model.hasText)
    json["token_ids"] = tokens;
  json["finish_reason"] = choice.finish ? Json(choice.finish) : Json();
  return json;
}

Json ApiAnswer::usage() const {
  size_t read = 0, drawn = 0, reused = 0;
  for (const std::vector<int32_t> &prompt : prompts)
    read += prompt.size();
  for (size_t i = 0; i < choices.size(); ++i) {
    drawn += choices[i].drawn;
    reused += i % request.count == 0 ? choices[i].reused : 0; // as of tokens, of each prompt once
  }
  return {{"prompt_tokens", read},
          {"completion_tokens", drawn},
          {"total_tokens", read + drawn},
          {"prompt_tokens_details", {{"cached_tokens", reused}}}};
}

Expected<bool> ApiAnswer::next(std::string &body) {
  // All of them are drawn in the same rounds: whoever waits for one has what came of the others. A stop ends a text when it
  // is seen.
  auto what = request.streams ? AskedText::For::tokens : AskedText::For::end;
  Milliseconds patience(request.streams ? 100 : request.stops.empty() ? 200 : 20);
  bool ended = true;
  for (Choice &choice : choices)
    if (!choice.finish) {
      BRAID_TRY(collect(choice, patience, what));
      ended &= choice.finish != nullptr;
      patience = Milliseconds(0);
    }
  if (request.streams) {
    const char *object = request.isChat ? "chat.completion.chunk" : "text_completion";
    auto event = [&](const Json &json) { body += "data: " + dump(json) + "\n\n"; };
    for (size_t i = 0; i < choices.size(); ++i) {
      Choice &choice = choices[i];
      bool hasNews = !choice.text.empty() || !choice.likely.empty() || choice.finish ||
                     (!choice.tokens.empty() && (request.returnsTokens || !model.hasText));
      if (choice.isSent || !hasNews)
        continue;
      choice.isSent = choice.finish != nullptr;
      Json json = envelope(object);
      json["choices"] = Json::array({choiceOf(i, /*isPart=*/true)});
      event(json);
    }
    if (ended && request.includesUsage) {
      Json json = envelope(object);
      json["choices"] = Json::array();
      json["usage"] = usage();
      event(json);
    }
    if (ended)
      body += "data: [DONE]\n\n";
  } else if (ended) {
    Json json = envelope(request.isChat ? "chat.completion" : "text_completion");
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices.size(); ++i)
      json["choices"].push_back(choiceOf(i, /*isPart=*/false));
    json["usage"] = usage();
    body += dump(json);
  }
  return !ended;
}

// ---- Requests -------------------------------------------------------------------------------------------------------

Api::Api(ApiModel model, TextService &service)
    : model(std::move(model)), service(service), created(std::time(nullptr)),
      run(fmt::format("{:08x}", static_cast<uint32_t>(randomNumber()))) {}

Status Api::checkName(std::string_view name) const {
  return name == model.name
             ? Status::success()
             : Status::error(ErrorCode::notFound, "model: there is no '{}'; valid: {}", escaped(name), model.name);
}

// What echo shows of a prompt.
Expected<std::string> Api::echoOf(const Json &prompt, std::span<const int32_t> tokens) const {
  return prompt.is_string() ? Expected<std::string>(prompt.get<std::string>()) : textOf(tokens, /*special=*/true);
}

Expected<std::unique_ptr<ApiAnswer>> Api::answer(Expected<ApiRequest> read) {
  BRAID_TRY(read.status());
  if (read->model)
    BRAID_TRY(checkName(*read->model));
  if (!model.hasText && !read->stops.empty())
    return Status::error("stop: the model's tokens have no text");
  if (size_t texts = read->prompts.size() * read->count; texts > service.most())
    return Status::error("{} are asked for; valid: at most {} (--max-texts)", counted(texts, "text"), service.most());
  std::unique_ptr<ApiAnswer> answer(new ApiAnswer(*std::move(read), model));
  const ApiRequest &request = answer->request;
  answer->id = fmt::format("{}-{}-{}", request.isChat ? "chatcmpl" : "cmpl", run, asked++);
  answer->created = std::time(nullptr);
  SamplerOptions draws = model.draws;
  draws.temperature = request.temperature.value_or(draws.temperature);
  draws.topP = request.topP.value_or(draws.topP);
  draws.topK = request.topK.value_or(draws.topK);
  draws.minP = request.minP.value_or(draws.minP);
  PenaltyOptions &penalties = draws.penalties;
  penalties.repetition = request.repetitionPenalty.value_or(penalties.repetition);
  penalties.presence = request.presencePenalty.value_or(penalties.presence);
  penalties.frequency = request.frequencyPenalty.value_or(penalties.frequency);
  penalties.bias = request.logitBias;
  uint64_t seed = request.seed ? *request.seed : randomNumber();
  for (const Json &prompt : request.prompts) {
    BRAID_ASSIGN(std::vector<int32_t> tokens, model.tokensOf(prompt, /*addsSpecial=*/true));
    int64_t left = model.contextLength - static_cast<int64_t>(tokens.size()) + 1; // the last one is not read
    TextRequest asks;
    int64_t most = request.isChat ? std::clamp<int64_t>(left, 1, model.maxTokens) : 16; // OpenAI's
    asks.text = {tokens, request.maxTokens.value_or(most), draws, request.scoresPrompt()};
    if (!request.ignoresEnds)
      asks.ends = request.isChat ? model.chatEnds : model.textEnds;
    asks.likeliest = request.likeliest;
    ContinuationText continuation(model.tokenizer), names(model.tokenizer, /*special=*/true);
    BRAID_TRY(continuation.begin(tokens));
    if (request.likeliest >= 0)
      BRAID_TRY(names.begin(request.scoresPrompt() ? std::span<const int32_t>() : tokens));
    std::string echoed;
    if (request.echoes && model.hasText) {
      BRAID_ASSIGN(echoed, echoOf(prompt, tokens));
    }
    for (size_t i = 0; i < request.count; ++i) {
      asks.text.sampler.seed = seed + answer->choices.size();
      BRAID_ASSIGN(std::shared_ptr<AskedText> text, service.ask(asks));
      answer->choices.push_back({std::move(text), continuation, names, HeldText(request.stops), echoed});
    }
    answer->prompts.push_back(std::move(tokens));
  }
  return answer;
}

Json Api::described() const {
  Json one = {{"id", model.name}, {"object", "model"}, {"created", created}, {"owned_by", "braid"}};
  if (model.contextLength < INT32_MAX)
    one["max_model_len"] = model.contextLength;
  return one;
}

std::string Api::models() const { return dump({{"object", "list"}, {"data", Json::array({described()})}}); }

Expected<std::string> Api::modelNamed(std::string_view name) const {
  BRAID_TRY(checkName(name));
  return dump(described());
}

// ---- Tokens ---------------------------------------------------------------------------------------------------------

Expected<std::string> Api::tokenize(std::string_view body) const {
  BRAID_ASSIGN(TokenizeRequest request, readTokenize(body));
  if (request.model)
    BRAID_TRY(checkName(*request.model));
  BRAID_ASSIGN(std::vector<int32_t> tokens, model.tokensOf(request.prompt, request.addsSpecial));
  Json json = {{"count", tokens.size()}, {"tokens", tokens}, {"token_strs", nullptr}};
  if (model.contextLength < INT32_MAX)
    json["max_model_len"] = model.contextLength;
  return dump(json);
}

// `special`: also of tokens of the format.
Expected<std::string> Api::textOf(std::span<const int32_t> tokens, bool special) const {
  ContinuationText text(model.tokenizer, special);
  BRAID_TRY(text.begin({}));
  std::string all;
  for (int32_t token : tokens) {
    BRAID_ASSIGN(std::string added, text.add(token));
    all += added;
  }
  return all;
}

Expected<std::string> Api::detokenize(std::string_view body) const {
  BRAID_ASSIGN(DetokenizeRequest request, readDetokenize(body));
  if (request.model)
    BRAID_TRY(checkName(*request.model));
  if (!model.hasText)
    return Status::error("tokens: the model's tokens have no text");
  int64_t vocabulary = model.textVocabulary();
  for (size_t i = 0; i < request.tokens.size(); ++i)
    if (request.tokens[i] < 0 || request.tokens[i] >= vocabulary)
      return Status::error("tokens: number {} is {}; valid: 0 to {}", i, request.tokens[i], vocabulary - 1);
  std::vector<int32_t> tokens(request.tokens.begin(), request.tokens.end());
  BRAID_ASSIGN(std::string text, textOf(tokens, /*special=*/true));
  return dump({{"prompt", text}});
}

// As tokenizer_config.json names them, those that are known here.
Expected<std::string> Api::tokenizerInfo() const {
  if (!model.hasText)
    return Status::error(ErrorCode::notFound, "the model's tokens have no text");
  auto nameOf = [&](std::initializer_list<std::span<const int32_t>> from) -> Expected<Json> {
    for (std::span<const int32_t> tokens : from)
      if (!tokens.empty()) {
        BRAID_ASSIGN(std::string text, textOf(tokens.first(1), /*special=*/true));
        return Json(text);
      }
    return Json();
  };
  Json json = {{"tokenizer_class", model.tokenizer ? "tokenizer" : "bytes"}};
  BRAID_ASSIGN(json["eos_token"], nameOf({model.textEnds, model.chatEnds}));
  BRAID_ASSIGN(json["bos_token"],
               nameOf({model.tokenizer ? std::span(model.tokenizer->prefix()) : std::span<const int32_t>()}));
  json["pad_token"] = nullptr;
  json["vocab_size"] = model.textVocabulary();
  if (model.contextLength < INT32_MAX)
    json["model_max_length"] = model.contextLength;
  return dump(json);
}

std::string Api::metrics() const {
  TextService::Counts counts = service.counts();
  std::string text;
  auto add = [&](const char *name, const char *type, const char *help, auto value) {
    text += fmt::format("# HELP braid_{0} {1}\n# TYPE braid_{0} {2}\nbraid_{0} {3}\n", name, help, type, value);
  };
  add("texts_running", "gauge", "Texts that are being written.", counts.running);
  add("texts_waiting", "gauge", "Texts that wait for a sequence.", counts.waiting);
  add("texts_total", "counter", "Texts that have ended.", counts.texts);
  add("prompt_tokens_total", "counter", "Tokens of prompts that were read.", counts.tokens.promptTokens);
  add("prompt_tokens_reused_total", "counter", "Tokens of prompts that a sequence had read before.",
      counts.tokens.reusedTokens);
  add("states_kept", "gauge", "States from which prompts can go on.", counts.tokens.states);
  add("states_bytes", "gauge", "Memory of these states.", counts.tokens.stateBytes);
  add("generated_tokens_total", "counter", "Tokens that were drawn.", counts.tokens.drawnTokens);
  add("prompt_seconds_total", "counter", "Time of rounds that read of prompts.", counts.tokens.promptSeconds);
  add("decode_seconds_total", "counter", "Time of all other rounds.", counts.tokens.decodeSeconds);
  return text;
}

int Api::httpStatus(const Status &status) {
  switch (status.code()) {
  case ErrorCode::invalidArgument:
  case ErrorCode::unsupported:
  case ErrorCode::corruptFile: return 400;
  case ErrorCode::notFound: return 404;
  case ErrorCode::overflow: return 503;
  default: return 500;
  }
}

std::string Api::errorBody(const Status &status) {
  int code = httpStatus(status);
  const char *type = code < 500 ? "invalid_request_error" : code == 503 ? "overloaded_error" : "server_error";
  return dump({{"error", {{"message", status.message()}, {"type", type}, {"param", nullptr}, {"code", nullptr}}}});
}

} // namespace braid::runtime
