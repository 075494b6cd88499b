// Answers requests in the form in which OpenAI's API has them: texts of a TextService as JSON, whole or as they come.
#pragma once

#include "runtime/generate/ContinuationText.h"
#include "runtime/serve/ApiRequest.h"
#include "runtime/serve/TextService.h"

namespace braid::runtime {

// What is asked.
struct ApiModel {
  std::string name;
  bool hasText = true; // tokens are bytes or have a tokenizer; otherwise they are numbers
  std::shared_ptr<const Tokenizer> tokenizer; // null: bytes
  SamplerOptions draws{.temperature = 1}; // where the request does not say
  // Tokens from here on have no text, where others have.
  int64_t textVocabulary() const { return tokenizer ? tokenizer->vocabulary() : 256; }
  int64_t maxTokens = 4096; // of a chat's answer, where the request does not say
  int64_t contextLength = INT32_MAX;
  std::vector<int32_t> textEnds, chatEnds; // what is behind one of these is not the text's
  // Bytes of a request, at most.
  size_t mostBodyBytes() const {
    constexpr size_t least = size_t(1) << 20, most = size_t(64) << 20, perToken = 256;
    return std::min(least + perToken * static_cast<size_t>(contextLength), most);
  }
  // The tokens of a prompt (ApiRequest::prompts), of a text with what is put around one or without. From any thread.
  std::function<Expected<std::vector<int32_t>>(const nlohmann::ordered_json &prompt, bool addsSpecial)> tokensOf;
};

// A request that is being answered. Whoever drops it does not want what is left.
class ApiAnswer {
public:
  ~ApiAnswer();
  bool streams() const { return request.streams; }
  const char *contentType() const { return streams() ? "text/event-stream" : "application/json"; }
  // Waits for what comes first: an error that there are no texts.
  Status wait();
  // Adds what has come to `body`, waiting for it a moment. False: it is complete.
  Expected<bool> next(std::string &body);

private:
  friend class Api;
  using Json = nlohmann::ordered_json;
  struct Choice {
    std::shared_ptr<AskedText> asked;
    ContinuationText continuation, names; // `names`: of tokens in log-probabilities, also those without text
    HeldText held;
    std::string text = {}; // whole, or what was not sent yet
    std::vector<int32_t> tokens = {}; // likewise
    Json likely = Json::array(); // likewise
    size_t drawn = 0, reused = 0, shownCharacters = 0;
    const char *finish = nullptr; // why it ended
    bool isSent = false, isFirst = true, hasPrompt = false; // `hasPrompt`: its log-probabilities
  };
  ApiAnswer(ApiRequest request, const ApiModel &model) : request(std::move(request)), model(model) {}
  Status collect(Choice &choice, std::chrono::milliseconds patience, AskedText::For what);
  Status add(Choice &choice, const AskedText::Token &token);
  Status addPrompt(Choice &choice, std::span<const TokenScore> scores);
  Expected<Json> named(const Choice &choice, const LikelyToken &token);
  Expected<Json> likelihood(const Choice &choice, const AskedText::Token &token);
  Json envelope(const char *object) const;
  Json choiceOf(size_t index, bool isPart);
  Json likelihoods(Choice &choice);
  Json usage() const;

  ApiRequest request;
  const ApiModel &model;
  std::string id;
  int64_t created = 0;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<Choice> choices; // those of a prompt are neighbours
};

class Api {
public:
  Api(ApiModel model, TextService &service);

  Expected<std::unique_ptr<ApiAnswer>> completion(std::string_view body) { return answer(readCompletion(body)); }
  Expected<std::unique_ptr<ApiAnswer>> chatCompletion(std::string_view body) {
    return answer(readChatCompletion(body));
  }
  std::string models() const;
  Expected<std::string> modelNamed(std::string_view name) const;
  // What turns texts into tokens and back, in the form in which vLLM has it: lm-evaluation-harness asks for that.
  Expected<std::string> tokenize(std::string_view body) const;
  Expected<std::string> detokenize(std::string_view body) const;
  Expected<std::string> tokenizerInfo() const;
  size_t mostBodyBytes() const { return model.mostBodyBytes(); }
  std::string metrics() const; // in Prometheus's text format
  // The body and HTTP status that say what is wrong.
  static std::string errorBody(const Status &status);
  static int httpStatus(const Status &status);

private:
  Expected<std::unique_ptr<ApiAnswer>> answer(Expected<ApiRequest> request);

  nlohmann::ordered_json described() const;
  Status checkName(std::string_view name) const;
  Expected<std::string> echoOf(const nlohmann::ordered_json &prompt, std::span<const int32_t> tokens) const;
  Expected<std::string> textOf(std::span<const int32_t> tokens, bool special) const;

  ApiModel model;
  TextService &service;
  int64_t created;
  std::string run; // makes ids of this run
  std::atomic<uint64_t> asked = 0;
};

} // namespace braid::runtime
