// What a request asks for: the bodies of POST /v1/completions and /v1/chat/completions, in the form in which OpenAI's API has
// them. What changes a text and is not read here is refused by name; what is null says nothing.
#pragma once

#include "runtime/Expected.h"
#include "runtime/generate/Sampler.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace braid::runtime {

struct ApiRequest {
  bool isChat = false;
  std::optional<std::string> model;
  // Each a text, a list of token numbers or, of a chat, an object with messages (template/ChatTemplate.h, chatOf).
  std::vector<nlohmann::ordered_json> prompts;
  size_t count = 1; // texts of each prompt
  std::optional<int64_t> maxTokens;
  // How tokens are drawn, as far as it says.
  std::optional<double> temperature, topP, minP, repetitionPenalty, presencePenalty, frequencyPenalty;
  std::optional<int64_t> topK;
  std::vector<std::pair<int32_t, double>> logitBias; // of tokens
  std::optional<uint64_t> seed;
  std::vector<std::string> stops; // a text ends before one of these
  int64_t likeliest = -1; // log-probabilities of so many tokens beside the drawn one; -1: none at all
  bool streams = false, includesUsage = false;
  bool echoes = false; // a text begins with its prompt
  bool ignoresEnds = false; // tokens that end a text do not
  bool returnsTokens = false; // numbers beside the text
  // Log-probabilities of the prompt's tokens, too.
  bool scoresPrompt() const { return echoes && likeliest >= 0; }

  static constexpr size_t mostTexts = 128, mostStops = 16, mostStopBytes = 1024;
  static constexpr int64_t mostLikeliest = 20;
};

Expected<ApiRequest> readCompletion(std::string_view body);
Expected<ApiRequest> readChatCompletion(std::string_view body);

// The bodies of POST /tokenize and /detokenize, in the form in which vLLM has them.
struct TokenizeRequest {
  std::optional<std::string> model;
  nlohmann::ordered_json prompt; // as one of ApiRequest's
  bool addsSpecial = true; // what is put around a text
};
struct DetokenizeRequest {
  std::optional<std::string> model;
  std::vector<int64_t> tokens;
};

Expected<TokenizeRequest> readTokenize(std::string_view body);
Expected<DetokenizeRequest> readDetokenize(std::string_view body);

} // namespace braid::runtime
