#include "runtime/serve/ApiRequest.h"

#include <gtest/gtest.h>

namespace braid::runtime::test {
namespace {

using Json = nlohmann::ordered_json;

TEST(ApiRequest, Completion) {
  auto request = readCompletion(R"({"model": "m", "prompt": ["a", [1, 2]], "max_tokens": 7, "temperature": 0.5,
    "top_p": 0.9, "top_k": -1, "seed": -1, "n": 2, "stop": "x", "stream": true, "stream_options": {"include_usage": true},
    "echo": true, "ignore_eos": true, "presence_penalty": 0.5, "frequency_penalty": -1, "repetition_penalty": 1.1,
    "min_p": 0.05, "logit_bias": {"7": -100, "12": 1.5}, "user": "u", "suffix": null, "best_of": 2,
    "return_token_ids": true})");
  ASSERT_TRUE(request) << request.message();
  EXPECT_EQ(*request->model, "m");
  EXPECT_EQ(request->prompts, (std::vector<Json>{"a", {1, 2}}));
  EXPECT_EQ(request->maxTokens, 7);
  EXPECT_EQ(request->temperature, 0.5);
  EXPECT_EQ(request->topP, 0.9);
  EXPECT_EQ(request->topK, 0);
  EXPECT_EQ(request->minP, 0.05);
  EXPECT_EQ(request->repetitionPenalty, 1.1);
  EXPECT_EQ(request->presencePenalty, 0.5);
  EXPECT_EQ(request->frequencyPenalty, -1);
  EXPECT_EQ(request->logitBias, (std::vector<std::pair<int32_t, double>>{{7, -100}, {12, 1.5}}));
  EXPECT_EQ(request->seed, UINT64_MAX);
  EXPECT_EQ(request->count, 2u);
  EXPECT_EQ(request->stops, std::vector<std::string>{"x"});
  EXPECT_TRUE(request->streams && request->includesUsage && request->echoes && request->ignoresEnds &&
              request->returnsTokens && !request->isChat);
  EXPECT_EQ(readCompletion(R"({"prompt": [1, 2]})")->prompts.size(), 1u);
  EXPECT_EQ(readCompletion(R"({"prompt": "a", "max_tokens": 5.0})")->maxTokens, 5);
  EXPECT_FALSE(readCompletion(R"({"prompt": "a", "temperature": null})")->temperature);
}

TEST(ApiRequest, Chat) {
  auto request = readChatCompletion(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
    {"type": "text", "text": "b"}]}, {"role": "assistant", "content": null, "tool_calls": [{"function":
    {"name": "f", "arguments": "{\"y\": 1, \"x\": [2]}"}}]}], "tools": [{"z": 1}], "max_completion_tokens": 3,
    "logprobs": true, "top_logprobs": 4, "tool_choice": "auto", "stop": ["a", "b"],
    "chat_template_kwargs": {"enable_thinking": false}})");
  ASSERT_TRUE(request) << request.message();
  EXPECT_TRUE(request->isChat);
  EXPECT_EQ(request->prompts[0]["messages"][0]["content"], "a\nb");
  EXPECT_EQ(request->prompts[0]["messages"][1]["tool_calls"][0]["function"]["arguments"].dump(), R"({"y":1,"x":[2]})");
  EXPECT_EQ(request->prompts[0]["tools"].dump(), R"([{"z":1}])");
  EXPECT_EQ(request->maxTokens, 3);
  EXPECT_EQ(request->likeliest, 4);
}

TEST(ApiRequest, WhatIsWrongIsNamed) {
  for (auto [body, message] : std::initializer_list<std::pair<const char *, const char *>>{
           {"", "the body is no JSON, at byte 1: "},
           {"[1]", "the body is a list; valid: a JSON object"},
           {R"({"prompt": "a",})", "the body is no JSON, at byte 16: "},
           {"{}", "prompt: is missing; valid: a text, token numbers, or a list of either"},
           {R"({"prompt": 3})", "prompt: is 3; valid: a text, token numbers, or a list of either"},
           {R"({"prompt": []})", "prompt: is an empty list; valid: "},
           {R"({"prompt": ["a", [1, "b"]]})", "prompt: is a list; valid: "},
           {R"({"prompt": "a", "max_tokens": 0})", "max_tokens: is 0, which is for echo with logprobs; valid: 1 and"},
           {R"({"prompt": "a", "max_tokens": -1})", "max_tokens: is -1; valid: a whole number from 0 to 2147483647"},
           {R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens: is 1.5; valid: a whole number from 0 to"},
           {R"({"prompt": "a", "max_tokens": true})", "max_tokens: is true; valid: a whole number"},
           {R"({"prompt": "a", "temperature": -1})", "temperature: is -1; valid: a number from 0, up to 1000000"},
           {R"({"prompt": "a", "temperature": "1"})", "temperature: is \"1\"; valid: a number"},
           {R"({"prompt": "a", "top_p": 0})", "top_p: is 0; valid: a number above 0, up to 1"},
           {R"({"prompt": "a", "n": 129})", "n: is 129; valid: a whole number from 1 to 128"},
           {R"({"prompt": ["a", "b"], "n": 65})", "2 prompts of 65 texts each are 130; valid: at most 128"},
           {R"({"prompt": "a", "stop": ""})", "stop: is \"\"; valid: texts of 1 to 1024 bytes"},
           {R"({"prompt": "a", "stop": [1]})", "stop: is 1; valid: texts"},
           {R"({"prompt": "a", "stream": 1})", "stream: is 1; valid: true or false"},
           {R"({"prompt": "a", "stream_options": {"x": 1}})", "stream_options: x: is not known here; known are incl"},
           {R"({"prompt": "a", "presence_penalty": 2.5})",
            "presence_penalty: is 2.5; valid: a number from -2, up to 2"},
           {R"({"prompt": "a", "frequency_penalty": "x"})",
            "frequency_penalty: is \"x\"; valid: a number from -2, up to 2"},
           {R"({"prompt": "a", "repetition_penalty": 0})",
            "repetition_penalty: is 0; valid: a number from 0.001, up to 1000"},
           {R"({"prompt": "a", "min_p": 2})", "min_p: is 2; valid: a number from 0, up to 1"},
           {R"({"prompt": "a", "logit_bias": [1]})",
            "logit_bias: is a list; valid: an object, {\"token number\": bias}"},
           {R"({"prompt": "a", "logit_bias": {"the": 1}})",
            "logit_bias: is \"the\"; valid: numbers of tokens, as texts"},
           {R"({"prompt": "a", "logit_bias": {"-1": 1}})", "logit_bias: is \"-1\"; valid: numbers of tokens, as texts"},
           {R"({"prompt": "a", "logit_bias": {"1": 101}})", "logit_bias: is 101; valid: numbers from -100 to 100"},
           {R"({"prompt": "a", "logit_bias": {"1": null}})", "logit_bias: is null; valid: numbers from -100 to 100"},
           {R"({"prompt": "a", "response_format": {"type": "json_object"}})", "response_format: is an object; valid: "},
           {R"({"prompt": "a", "best_of": 3})", "best_of: is 3; valid: 1, which is n"},
           {R"({"prompt": "a", "logprobs": 21})", "logprobs: is 21; valid: a whole number from 0 to 20"},
           {R"({"prompt": "a", "logprobs": 2, "echo": true})", "logprobs: of a prompt's tokens, which echo asks for, "},
           {R"({"prompt": "a", "temprature": 1})", "temprature: is not known here; known are prompt, model, "},
       }) {
    auto read = readCompletion(body);
    ASSERT_FALSE(read) << body;
    EXPECT_TRUE(std::string_view(read.message()).starts_with(message)) << read.message();
  }
  for (auto [body, message] : std::initializer_list<std::pair<const char *, const char *>>{
           {"{}", "messages: is missing; valid: a list of messages"},
           {R"({"messages": [{"content": [{"type": "image_url"}]}]})", "messages[0].content[0]: is no text, and "},
           {R"({"messages": null})", "messages: is missing; valid: a list of messages"},
           {R"({"messages": [], "prompt": "a"})", "prompt: is not known here; known are messages, "},
           {R"({"messages": [], "top_logprobs": 1})", "top_logprobs: is 1; valid: null, or logprobs true"},
           {R"({"messages": [], "tool_choice": "required"})", "tool_choice: is \"required\"; valid: "},
           {R"({"messages": [], "max_tokens": 2, "max_completion_tokens": 3})",
            "max_completion_tokens: is 3; valid: 2"},
       }) {
    auto read = readChatCompletion(body);
    ASSERT_FALSE(read) << body;
    EXPECT_TRUE(std::string_view(read.message()).starts_with(message)) << read.message();
  }
  // What is no number of a double is shown in part.
  auto large = readCompletion(R"({"prompt": "a", "min_p": 1)" + std::string(100000, '0') + "}");
  ASSERT_FALSE(large);
  EXPECT_TRUE(std::string_view(large.message()).starts_with("the body is no JSON: number overflow parsing '1000"));
  EXPECT_LT(large.message().size(), 300u);
  std::string deep = R"({"prompt": )" + std::string(200, '[') + std::string(200, ']') + "}";
  EXPECT_EQ(readCompletion(deep).message(), "the body is nested deeper than 100 levels");
}

} // namespace
} // namespace braid::runtime::test
