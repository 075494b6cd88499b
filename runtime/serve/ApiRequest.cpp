#include "runtime/serve/ApiRequest.h"

#include "runtime/io/JsonText.h"
#include "runtime/io/Words.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace braid::runtime {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t mostDepth = 100;

Expected<Json> parseBody(std::string_view body) {
  if (jsonDepth(body) > mostDepth)
    return Status::error("the body is nested deeper than {} levels", mostDepth);
  try {
    Json json = Json::parse(body);
    if (!json.is_object())
      return Status::error("the body is {}; valid: a JSON object", shownValue(json));
    return json;
  } catch (const Json::exception &error) {
    const auto *place = dynamic_cast<const Json::parse_error *>(&error);
    return Status::error("the body is no JSON{}: {}", place ? fmt::format(", at byte {}", place->byte) : "",
                         jsonReason(error));
  }
}

// The members of a body. Each that is known is asked for once; the first error stays.
class Members {
public:
  explicit Members(Json json) : json(std::move(json)) {}

  // Null where it is not there.
  const Json *find(const char *key) {
    known.emplace_back(key);
    auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
  void fail(const char *key, const Json &value, std::string_view valid) {
    if (status.ok())
      status = Status::error("{}: is {}; valid: {}", key, shownValue(value), valid);
  }

  void read(const char *key, bool &value) {
    if (const Json *member = find(key)) {
      if (member->is_boolean())
        value = member->get<bool>();
      else
        fail(key, *member, "true or false");
    }
  }
  // Numbers like 5.0 are whole.
  std::optional<int64_t> integer(const char *key, int64_t least, int64_t most) {
    const Json *member = find(key);
    if (!member)
      return std::nullopt;
    double number = member->is_number() ? member->get<double>() : NAN;
    if (!(number == std::floor(number)) || number < static_cast<double>(least) || number > static_cast<double>(most)) {
      fail(key, *member, fmt::format("a whole number from {} to {}", least, most));
      return std::nullopt;
    }
    return member->is_number_float() ? static_cast<int64_t>(number) : member->get<int64_t>();
  }
  void number(const char *key, double least, double most, bool above, std::optional<double> &value) {
    if (const Json *member = find(key)) {
      double number = member->is_number() ? member->get<double>() : NAN;
      if (number > least ? number <= most : number == least && !above)
        value = number;
      else
        fail(key, *member, fmt::format("a number {} {}, up to {}", above ? "above" : "from", least, most));
    }
  }
  void string(const char *key, std::optional<std::string> &value) {
    if (const Json *member = find(key)) {
      if (member->is_string())
        value = member->get<std::string>();
      else
        fail(key, *member, "a text");
    }
  }
  // What would change a text, but for the value that says: it does not.
  template <typename Is> void nothing(const char *key, Is &&isNothing, std::string_view valid) {
    if (const Json *member = find(key); member && !isNothing(*member))
      fail(key, *member, valid);
  }
  // What changes no text.
  void ignore(std::initializer_list<const char *> keys) { known.insert(known.end(), keys.begin(), keys.end()); }

  // Of what is left unread, the first.
  Status finish() {
    BRAID_TRY(status);
    for (const auto &[key, member] : json.items())
      if (std::ranges::find(known, key) == known.end() && !member.is_null())
        return Status::error("{}: is not known here; known are {}", escaped(key), fmt::join(known, ", "));
    return Status::success();
  }

  Status status = Status::success();

private:
  Json json;
  std::vector<std::string> known;
};

void readStops(Members &members, ApiRequest &request) {
  const Json *stop = members.find("stop");
  if (!stop)
    return;
  Json all = stop->is_array() ? *stop : Json::array({*stop});
  for (const Json &text : all)
    if (!text.is_string() || text.get_ref<const std::string &>().empty() ||
        text.get_ref<const std::string &>().size() > ApiRequest::mostStopBytes)
      return members.fail("stop", text, fmt::format("texts of 1 to {} bytes", ApiRequest::mostStopBytes));
    else
      request.stops.push_back(text.get<std::string>());
  if (request.stops.size() > ApiRequest::mostStops)
    members.fail("stop", request.stops.size(), fmt::format("at most {} texts", ApiRequest::mostStops));
}

// {"50256": -100}: numbers of tokens, and what is added to their logits.
void readBias(Members &members, ApiRequest &request) {
  constexpr double most = PenaltyOptions::maxBias;
  const Json *all = members.find("logit_bias");
  if (!all)
    return;
  if (!all->is_object())
    return members.fail("logit_bias", *all, "an object, {\"token number\": bias}");
  for (const auto &[key, bias] : all->items()) {
    int32_t token = -1;
    auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0)
      return members.fail("logit_bias", Json(key), "numbers of tokens, as texts, with what is added to each");
    if (!bias.is_number() || !(std::abs(bias.get<double>()) <= most))
      return members.fail("logit_bias", bias, fmt::format("numbers from {} to {}", -most, most));
    request.logitBias.emplace_back(token, bias.get<double>());
  }
}

// What both kinds of requests have.
void readCommon(Members &members, ApiRequest &request) {
  members.string("model", request.model);
  members.number("temperature", 0, Sampler::maxTemperature, /*above=*/false, request.temperature);
  members.number("top_p", 0, 1, /*above=*/true, request.topP);
  if (auto topK = members.integer("top_k", -1, INT32_MAX)) // -1: all, as other servers have it
    request.topK = std::max<int64_t>(*topK, 0);
  if (auto seed = members.integer("seed", INT64_MIN, INT64_MAX))
    request.seed = static_cast<uint64_t>(*seed);
  if (auto count = members.integer("n", 1, ApiRequest::mostTexts))
    request.count = static_cast<size_t>(*count);
  readStops(members, request);
  members.read("stream", request.streams);
  if (const Json *streamOptions = members.find("stream_options")) {
    if (streamOptions->is_object()) {
      Members options(*streamOptions);
      options.read("include_usage", request.includesUsage);
      options.ignore({"include_obfuscation", "continuous_usage_stats"});
      if (Status status = options.finish(); !status.ok() && members.status.ok())
        members.status = status.withContext("stream_options");
    } else {
      members.fail("stream_options", *streamOptions, "an object");
    }
  }
  members.read("ignore_eos", request.ignoresEnds);
  members.read("return_token_ids", request.returnsTokens);
  constexpr double most = PenaltyOptions::maxAmount;
  members.number("min_p", 0, 1, /*above=*/false, request.minP);
  members.number("repetition_penalty", PenaltyOptions::minRepetition, PenaltyOptions::maxRepetition, /*above=*/false,
                 request.repetitionPenalty);
  members.number("presence_penalty", -most, most, /*above=*/false, request.presencePenalty);
  members.number("frequency_penalty", -most, most, /*above=*/false, request.frequencyPenalty);
  readBias(members, request);
  members.nothing(
      "response_format",
      [](const Json &value) { return value.is_object() && value.size() == 1 && value.value("type", Json()) == "text"; },
      "{\"type\": \"text\"}, the only one there is");
  members.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"});
}

bool isTokens(const Json &value) {
  return value.is_array() && !value.empty() &&
         std::ranges::all_of(value, [](const Json &token) { return token.is_number_integer(); });
}

void readPrompts(Members &members, ApiRequest &request) {
  const Json *prompt = members.find("prompt");
  constexpr std::string_view valid = "a text, token numbers, or a list of either";
  if (!prompt) {
    if (members.status.ok())
      members.status = Status::error("prompt: is missing; valid: {}", valid);
    return;
  }
  if (prompt->is_string() || isTokens(*prompt)) {
    request.prompts.push_back(*prompt);
    return;
  }
  if (!prompt->is_array() || prompt->empty())
    return members.fail("prompt", *prompt, valid);
  for (const Json &one : *prompt)
    if (one.is_string() || isTokens(one))
      request.prompts.push_back(one);
    else
      return members.fail("prompt", one, valid);
}

// Texts in parts are one text; what a function was called with is a value, as templates have it.
Status normalize(Json &messages) {
  for (size_t i = 0; messages.is_array() && i < messages.size(); ++i) { // else chatOf says so
    if (!messages[i].is_object())
      continue;
    if (auto content = messages[i].find("content"); content != messages[i].end() && content->is_array()) {
      std::string all;
      for (size_t j = 0; j < content->size(); ++j) {
        const Json &part = (*content)[j];
        bool isText = part.is_object() && part.value("type", Json("text")) == "text" && part.contains("text") &&
                      part["text"].is_string();
        if (!isText)
          return Status::error("messages[{}].content[{}]: is no text, and nothing else is read; valid: {{\"type\": "
                               "\"text\", \"text\": \"..\"}}",
                               i, j);
        all += (j ? "\n" : "") + part["text"].get<std::string>();
      }
      *content = all;
    }
    auto calls = messages[i].find("tool_calls");
    if (calls == messages[i].end() || !calls->is_array())
      continue;
    for (Json &call : *calls) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
        continue;
      auto arguments = call["function"].find("arguments");
      if (arguments == call["function"].end() || !arguments->is_string())
        continue;
      const std::string text = arguments->get<std::string>();
      Json value = jsonDepth(text) > mostDepth ? Json(Json::value_t::discarded)
                                               : Json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!value.is_discarded())
        *arguments = std::move(value);
    }
  }
  return Status::success();
}

Status readChat(Members &members, ApiRequest &request) {
  const Json *messages = members.find("messages");
  if (!messages)
    return Status::error("messages: is missing; valid: a list of messages");
  Json chat = {{"messages", *messages}};
  BRAID_TRY(normalize(chat["messages"]));
  for (const char *key : {"tools", "documents", "chat_template_kwargs"})
    if (const Json *member = members.find(key))
      chat[key] = *member;
  request.prompts.push_back(std::move(chat));
  return Status::success();
}

} // namespace

Expected<ApiRequest> readCompletion(std::string_view body) {
  BRAID_ASSIGN(Json json, parseBody(body));
  Members members(std::move(json));
  ApiRequest request;
  readPrompts(members, request);
  readCommon(members, request);
  request.maxTokens = members.integer("max_tokens", 0, INT32_MAX);
  members.read("echo", request.echoes);
  if (auto likeliest = members.integer("logprobs", 0, ApiRequest::mostLikeliest))
    request.likeliest = *likeliest;
  if (auto best = members.integer("best_of", 1, ApiRequest::mostTexts);
      best && static_cast<size_t>(*best) != request.count)
    members.fail("best_of", *best, fmt::format("{}, which is n", request.count));
  members.nothing("suffix", [](const Json &value) { return value == ""; }, "null, the only one there is");
  BRAID_TRY(members.finish());
  if (request.scoresPrompt() && request.likeliest > 1)
    return Status::error(
        "logprobs: of a prompt's tokens, which echo asks for, there is the likeliest beside them, and {} "
        "are asked for; valid: 0 and 1",
        request.likeliest);
  if (request.maxTokens == 0 && !request.scoresPrompt())
    return Status::error("max_tokens: is 0, which is for echo with logprobs; valid: 1 and more");
  if (size_t texts = request.prompts.size() * request.count; texts > ApiRequest::mostTexts)
    return Status::error("{} of {} each are {}; valid: at most {}", counted(request.prompts.size(), "prompt"),
                         counted(request.count, "text"), texts, ApiRequest::mostTexts);
  return request;
}

Expected<TokenizeRequest> readTokenize(std::string_view body) {
  BRAID_ASSIGN(Json json, parseBody(body));
  Members members(std::move(json));
  TokenizeRequest request;
  members.string("model", request.model);
  if (members.find("messages")) {
    ApiRequest chat;
    BRAID_TRY(readChat(members, chat));
    request.prompt = std::move(chat.prompts.front());
    members.nothing(
        "add_generation_prompt", [](const Json &value) { return value == true; }, "true, the only one there is");
  } else {
    std::optional<std::string> text;
    members.string("prompt", text);
    if (!text && members.status.ok())
      members.status = Status::error("prompt: is missing; valid: a text, or messages");
    request.prompt = text.value_or("");
    members.read("add_special_tokens", request.addsSpecial);
  }
  members.nothing(
      "return_token_strs", [](const Json &value) { return value == false; }, "false, the only one there is");
  BRAID_TRY(members.finish());
  return request;
}

Expected<DetokenizeRequest> readDetokenize(std::string_view body) {
  BRAID_ASSIGN(Json json, parseBody(body));
  Members members(std::move(json));
  DetokenizeRequest request;
  members.string("model", request.model);
  const Json *tokens = members.find("tokens");
  if (tokens && !tokens->is_array())
    members.fail("tokens", *tokens, "token numbers");
  for (size_t i = 0; tokens && tokens->is_array() && i < tokens->size(); ++i)
    if (const Json &token = (*tokens)[i]; token.is_number_integer())
      request.tokens.push_back(token.get<int64_t>());
    else
      members.fail(fmt::format("tokens: number {}", i).c_str(), token, "token numbers");
  if (!tokens && members.status.ok())
    members.status = Status::error("tokens: is missing; valid: token numbers");
  BRAID_TRY(members.finish());
  return request;
}

Expected<ApiRequest> readChatCompletion(std::string_view body) {
  BRAID_ASSIGN(Json json, parseBody(body));
  Members members(std::move(json));
  ApiRequest request;
  request.isChat = true;
  BRAID_TRY(readChat(members, request));
  readCommon(members, request);
  request.maxTokens = members.integer("max_tokens", 1, INT32_MAX);
  if (auto most = members.integer("max_completion_tokens", 1, INT32_MAX)) {
    if (request.maxTokens.value_or(*most) != *most)
      members.fail("max_completion_tokens", *most, fmt::format("{}, as max_tokens says", *request.maxTokens));
    request.maxTokens = most;
  }
  bool wanted = false;
  members.read("logprobs", wanted);
  std::optional<int64_t> likeliest = members.integer("top_logprobs", 0, ApiRequest::mostLikeliest);
  if (likeliest && !wanted)
    members.fail("top_logprobs", *likeliest, "null, or logprobs true");
  request.likeliest = wanted ? likeliest.value_or(0) : -1;
  members.nothing(
      "tool_choice", [](const Json &value) { return value == "none" || value == "auto"; },
      "\"auto\" or \"none\": what is called is up to the model");
  members.nothing(
      "add_generation_prompt", [](const Json &value) { return value == true; }, "true, the only one there is");
  members.ignore({"parallel_tool_calls"});
  BRAID_TRY(members.finish());
  return request;
}

} // namespace braid::runtime
