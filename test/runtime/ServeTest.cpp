#include "test/runtime/ServeFixture.h"

#include "runtime/serve/Api.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/train/ImportedConfig.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace braid::runtime::test {
namespace {

using Json = nlohmann::ordered_json;
using namespace std::chrono_literals;

// ---- Service --------------------------------------------------------------------------------------------------------

// Takes a text to its end.
std::pair<Tokens, AskedText::End> take(AskedText &text) {
  Tokens tokens;
  for (;;) {
    AskedText::News news = text.next(100ms);
    for (const AskedText::Token &token : news.tokens)
      tokens.push_back(token.drawn.token);
    if (news.end != AskedText::End::none) {
      EXPECT_EQ(news.status.ok(), news.end != AskedText::End::failed);
      return {tokens, news.end};
    }
  }
}

TextRequest requestFor(Tokens prompt, int64_t count, uint64_t seed) {
  return {{std::move(prompt), count, {.temperature = 1, .seed = seed}}, {}, -1};
}

class ServeRanks : public testing::TestWithParam<uint32_t> {};

// Many ask at once, of few sequences; all ranks draw what a text has alone.
TEST_P(ServeRanks, EveryTextIsTheOneItIsAlone) {
  constexpr size_t askers = 12;
  // Every other one of likely tokens, and away from those that it has.
  auto drawsOf = [](size_t i) {
    SamplerOptions draws{.temperature = 1, .seed = i};
    if (i % 2) {
      draws.minP = 0.05;
      draws.penalties = {1.3, 0.5, 0.25, {{static_cast<int32_t>(7 * i), 3}, {255, -2}}};
    }
    return draws;
  };
  std::vector<Tokens> prompts, wanted, made(askers);
  for (size_t i = 0; i < askers; ++i) {
    prompts.push_back(someTokens(1 + i * 5 % 23, i));
    wanted.push_back(alone(prompts[i], 3 + static_cast<int64_t>(i), drawsOf(i)));
    EXPECT_EQ(wanted[i] == alone(prompts[i], 3 + static_cast<int64_t>(i), {.temperature = 1, .seed = i}), i % 2 == 0)
        << i;
  }
  // Of all tokens 255 is drawn in few texts; those end behind it.
  withRank(
      3,
      [&](Rank &rank, Generator &generator) {
        TextService service(rank, generator, {.pulse = 5ms});
        if (!rank.isFirst()) {
          EXPECT_TRUE(service.run().ok());
          return;
        }
        std::thread asks([&] {
          std::vector<std::thread> threads;
          for (size_t i = 0; i < askers; ++i)
            threads.emplace_back([&, i] {
              TextRequest request = requestFor(prompts[i], 3 + static_cast<int64_t>(i), i);
              request.text.sampler = drawsOf(i);
              auto text = service.ask(request);
              ASSERT_TRUE(text) << text.message();
              auto [tokens, end] = take(**text);
              made[i] = tokens;
              EXPECT_EQ(end, AskedText::End::length);
            });
          for (std::thread &thread : threads)
            thread.join();
          EXPECT_EQ(service.counts().running, 0u);
          EXPECT_EQ(service.counts().texts, askers);
          std::this_thread::sleep_for(30ms); // others hear of the first also when nothing is asked
          TextRequest ends = requestFor(prompts[4], 7, 4);
          ends.ends = {wanted[4][2]};
          auto text = service.ask(ends);
          auto [tokens, end] = take(**text);
          EXPECT_EQ(end, AskedText::End::token);
          EXPECT_EQ(tokens, Tokens(wanted[4].begin(), std::next(std::ranges::find(wanted[4], wanted[4][2]))));
          service.stop();
        });
        EXPECT_TRUE(service.run().ok());
        asks.join();
        EXPECT_EQ(service.ask(requestFor(prompts[0], 1, 0)).message(), "the server has stopped");
      },
      {}, GetParam());
  for (size_t i = 0; i < askers; ++i)
    EXPECT_EQ(made[i], wanted[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Ranks, ServeRanks, testing::Values(1, 3));

TEST(Serve, WhatIsNotWantedEnds) {
  withRank(1, [](Rank &rank, Generator &generator) {
    TextService service(rank, generator, {.most = 3});
    std::thread asks([&] {
      auto running = *service.ask(requestFor({1}, INT32_MAX / 2, 0)), waiting = *service.ask(requestFor({2}, 5, 0)),
           next = *service.ask(requestFor({3}, 5, 0));
      while (running->next(100ms).tokens.empty()) {
      }
      EXPECT_EQ(service.ask(requestFor({4}, 5, 0)).message(), "3 texts are in the making, and no more than 3 may be");
      waiting->cancel();
      EXPECT_EQ(take(*waiting).second, AskedText::End::cancelled);
      running->cancel();
      EXPECT_EQ(take(*running).second, AskedText::End::cancelled);
      EXPECT_EQ(take(*next), std::pair(alone({3}, 5, {.temperature = 1}), AskedText::End::length));
      service.stop();
      EXPECT_FALSE(service.ask(requestFor({4}, 5, 0))); // stopped, or about to
    });
    EXPECT_TRUE(service.run().ok());
    asks.join();
  });
}

TEST(Serve, NonsenseIsRefusedBeforeItWaits) {
  withRank(
      1,
      [](Rank &rank, Generator &generator) {
        TextService service(rank, generator, {});
        auto message = [&](TextRequest request) { return service.ask(std::move(request)).message(); };
        EXPECT_EQ(message(requestFor({}, 1, 0)),
                  "the prompt is empty: the model continues a text and needs at least one token of it");
        EXPECT_EQ(message(requestFor({256}, 1, 0)), "token 0 of the prompt is 256, but the vocabulary has 0 to 255");
        EXPECT_EQ(message(requestFor({1}, 0, 0)), "the number of tokens to generate is 0; valid: 1 and more");
        EXPECT_EQ(message(requestFor(someTokens(10), 4, 0)),
                  "a prompt of 10 tokens and 4 more need a context of 13, but the program was compiled for 12; valid: "
                  "less of both, or a program with a greater context_len");
        EXPECT_EQ(service.counts().waiting, 0u);
      },
      {{"context_len", "12"}});
}

// Log-probabilities are those of all tokens together, at temperature 1.
TEST(Serve, LogProbabilities) {
  withRank(1, [](Rank &rank, Generator &generator) {
    TextService service(rank, generator, {});
    std::thread asks([&] {
      TextRequest request = requestFor({1, 2}, 4, 3);
      request.text.sampler.temperature = 0;
      request.likeliest = 256;
      auto text = *service.ask(request);
      size_t seen = 0;
      for (AskedText::End end = AskedText::End::none; end == AskedText::End::none;) {
        AskedText::News news = text->next(100ms);
        end = news.end;
        for (const AskedText::Token &token : news.tokens) {
          ++seen;
          ASSERT_EQ(token.likeliest.size(), 256u);
          double sum = 0;
          for (size_t i = 0; i < 256; ++i) {
            sum += std::exp(token.likeliest[i].logProbability);
            if (i > 0)
              EXPECT_LE(token.likeliest[i].logProbability, token.likeliest[i - 1].logProbability);
          }
          EXPECT_NEAR(sum, 1, 1e-5);
          EXPECT_EQ(token.drawn.token, token.likeliest[0].token);
          EXPECT_EQ(token.drawn.logProbability, token.likeliest[0].logProbability);
        }
      }
      EXPECT_EQ(seen, 4u);
      service.stop();
    });
    EXPECT_TRUE(service.run().ok());
    asks.join();
  });
}

// ---- Answers --------------------------------------------------------------------------------------------------------

std::string bodyOf(Expected<std::unique_ptr<ApiAnswer>> answer) {
  EXPECT_TRUE(answer) << answer.message();
  std::string body;
  for (;;) {
    Expected<bool> goesOn = (*answer)->next(body);
    EXPECT_TRUE(goesOn) << goesOn.message();
    if (!goesOn || !*goesOn)
      return body;
  }
}

TEST(Api, AnswersWholeAndInParts) {
  Tokens prompt = byteTokens("ab");
  Tokens wanted[] = {alone(prompt, 9, {.temperature = 1, .seed = 5}), alone(prompt, 9, {.temperature = 1, .seed = 6})};
  auto textOf = [](const Tokens &tokens) {
    std::string text(tokens.begin(), tokens.end());
    return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
  };
  withRank(2, [&](Rank &rank, Generator &generator) {
    TextService service(rank, generator, {.most = 5, .reuses = false});
    ApiModel model;
    model.name = "bigram";
    model.tokensOf = [](const Json &prompt, bool) -> Expected<Tokens> {
      if (prompt.is_object())
        return Status::error("there are no chats");
      return prompt.is_string() ? byteTokens(prompt.get<std::string>()) : prompt.get<Tokens>();
    };
    Api api(model, service);
    std::thread asks([&] {
      Json whole = Json::parse(bodyOf(api.completion(
          R"({"model": "bigram", "prompt": "ab", "max_tokens": 9, "seed": 5, "n": 2, "return_token_ids": true})")));
      EXPECT_EQ(whole["object"], "text_completion");
      ASSERT_EQ(whole["choices"].size(), 2u);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(whole["choices"][i]["index"], i);
        EXPECT_EQ(whole["choices"][i]["text"], textOf(wanted[i]));
        EXPECT_EQ(whole["choices"][i]["token_ids"], wanted[i]);
        EXPECT_EQ(whole["choices"][i]["finish_reason"], "length");
        EXPECT_TRUE(whole["choices"][i]["logprobs"].is_null());
      }
      EXPECT_EQ(whole["usage"].dump(), R"({"prompt_tokens":2,"completion_tokens":18,"total_tokens":20,)"
                                       R"("prompt_tokens_details":{"cached_tokens":0}})");
      // The same in parts, with a list of bytes.
      std::string parts = bodyOf(api.completion(R"({"prompt": [97, 98], "max_tokens": 9, "seed": 5, "stream": true,
        "return_token_ids": true, "logprobs": 2, "stream_options": {"include_usage": true}})"));
      Tokens streamed;
      std::string text, finish;
      size_t likely = 0;
      for (std::string_view rest = parts; !rest.empty();) {
        std::string_view event = rest.substr(0, rest.find("\n\n"));
        rest.remove_prefix(event.size() + 2);
        ASSERT_TRUE(event.starts_with("data: "));
        if (event == "data: [DONE]") {
          EXPECT_TRUE(rest.empty());
          break;
        }
        Json json = Json::parse(event.substr(6));
        if (json["choices"].empty()) {
          EXPECT_EQ(json["usage"]["completion_tokens"], 9);
          continue;
        }
        const Json &choice = json["choices"][0];
        text += choice["text"].get<std::string>();
        for (const Json &token : choice["token_ids"])
          streamed.push_back(token.get<int32_t>());
        likely += choice["logprobs"]["tokens"].size();
        EXPECT_EQ(choice["logprobs"]["top_logprobs"].size(), choice["logprobs"]["token_logprobs"].size());
        if (choice["finish_reason"].is_string())
          finish = choice["finish_reason"];
      }
      EXPECT_EQ(streamed, wanted[0]);
      EXPECT_EQ(text, textOf(wanted[0]));
      EXPECT_EQ(likely, 9u);
      EXPECT_EQ(finish, "length");
      // A stop, and a prompt that comes back.
      std::string letters(wanted[0].begin(), wanted[0].end());
      Json stopped = Json::parse(bodyOf(api.completion(
          Json({{"prompt", {97, 98}}, {"max_tokens", 9}, {"seed", 5}, {"echo", true}, {"ignore_eos", true}}).dump())));
      EXPECT_EQ(stopped["choices"][0]["text"], textOf(byteTokens("ab" + letters)));
      EXPECT_EQ(api.completion(R"({"prompt": "a", "model": "b"})").message(), "model: there is no 'b'; valid: bigram");
      EXPECT_EQ(api.chatCompletion(R"({"messages": [{"role": "user", "content": "a"}]})").message(),
                "there are no chats");
      EXPECT_EQ(Json::parse(api.models())["data"][0]["id"], "bigram");
      EXPECT_EQ(Json::parse(*api.modelNamed("bigram"))["object"], "model");
      EXPECT_EQ(api.modelNamed("b\n").message(), "model: there is no 'b\\n'; valid: bigram");
      EXPECT_EQ(api.completion(R"({"prompt": ["a", "b"], "n": 3})").message(),
                "6 texts are asked for; valid: at most 5 (--max-texts)");
      EXPECT_NE(api.metrics().find("\nbraid_texts_total 4\n"), std::string::npos) << api.metrics();
      // Who drops an answer does not want it.
      {
        auto dropped = api.completion(R"({"prompt": "a", "max_tokens": 1000000})");
      }
      while (service.counts().texts < 5)
        std::this_thread::sleep_for(1ms);
      service.stop();
    });
    EXPECT_TRUE(service.run().ok());
    asks.join();
  });
}

// Behind token 7 logits are not finite, and 5 is followed by 7: a text fails once it has begun, or its prompt when it is
// scored; others go on.
// The bytes of an answer; the connection ends behind it.
std::string answerOf(int port, const std::string &body) {
  int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(client, reinterpret_cast<const sockaddr *>(&address), sizeof(address)), 0);
  std::string request =
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body);
  EXPECT_EQ(write(client, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char bytes[4096];
  for (ssize_t count; (count = read(client, bytes, sizeof(bytes))) > 0;)
    answer.append(bytes, static_cast<size_t>(count));
  close(client);
  return answer;
}

// Whenever the last of its texts ends, an answer is written to its end before the server stops.
TEST(HttpServer, StopsBehindWhatItAnswers) {
  for (int round = 0; round < 40; ++round)
    withRank(3, [&](Rank &rank, Generator &generator) {
      TextService service(rank, generator, {.most = 9, .reuses = false});
      ApiModel model;
      model.name = "bigram";
      model.tokensOf = [](const Json &prompt, bool) -> Expected<Tokens> {
        return byteTokens(prompt.get<std::string>());
      };
      Api api(model, service);
      auto server = HttpServer::listen("127.0.0.1", 0);
      ASSERT_TRUE(server) << server.message();
      (*server)->start(api, 4);
      std::string answer;
      std::atomic<bool> isAnswered = false;
      std::thread asks([&] {
        std::string stream = round % 2 ? "true" : "false";
        answer = answerOf((*server)->port(), R"({"prompt": "ab", "max_tokens": 30, "n": 9, "stream": )" + stream + "}");
        isAnswered = true;
      });
      std::thread stops([&] {
        for (TextService::Counts asked; asked.running + asked.waiting + asked.texts < 9 && !isAnswered;
             asked = service.counts())
          std::this_thread::sleep_for(1ms);
        service.stop();
      });
      EXPECT_TRUE(service.run().ok());
      (*server)->stop();
      asks.join();
      stops.join();
      EXPECT_TRUE(answer.ends_with("\r\n0\r\n\r\n")) << round << answer;
      size_t ends = 0;
      for (size_t at = answer.find("\"length\""); at != answer.npos; at = answer.find("\"length\"", at + 1))
        ++ends;
      EXPECT_EQ(ends, 9u) << round;
    });
}

TEST(Serve, WhatIsNotFiniteEndsItsText) {
  withRank(3, [](Rank &rank, Generator &generator) {
    const Program &program = rank.program();
    std::span<float> weight = rank.session().tensor(*program.findTensor("embed.weight")).as<float>();
    std::ranges::fill(weight.subspan(7 * 256, 256), std::nanf(""));
    weight[5 * 256 + 7] = 100;
    TextService service(rank, generator, {.stateBytes = size_t(1) << 20});
    ApiModel model;
    model.name = "m";
    model.tokensOf = [](const Json &prompt, bool) -> Expected<Tokens> { return prompt.get<Tokens>(); };
    Api api(model, service);
    std::thread asks([&] {
      auto asked = [&](Tokens prompt, bool scored) {
        TextRequest request = requestFor(std::move(prompt), 4, 0);
        request.text.sampler.temperature = 0;
        request.text.scoresPrompt = scored;
        return *service.ask(request);
      };
      auto failing = asked({1, 5}, false), scored = asked({7, 1, 2}, true), other = asked({1, 2}, true);
      auto endOf = [](AskedText &text) {
        size_t tokens = 0;
        for (;;) {
          AskedText::News news = text.next(100ms);
          tokens += news.tokens.size();
          if (news.end != AskedText::End::none)
            return std::tuple(tokens, news.end, news.status.message());
        }
      };
      auto [drawn, end, why] = endOf(*failing);
      EXPECT_EQ(drawn, 1u);
      EXPECT_EQ(end, AskedText::End::failed);
      EXPECT_NE(why.find("logit"), std::string::npos) << why;
      auto [unread, failed, reason] = endOf(*scored);
      EXPECT_EQ(unread, 0u);
      EXPECT_EQ(failed, AskedText::End::failed);
      EXPECT_EQ(reason,
                "the log-probability of token 1 of the prompt is not a number: the model's logits are not finite");
      EXPECT_EQ(std::get<1>(endOf(*other)), AskedText::End::length);
      // With the head of an answer, or behind it: whichever comes first.
      auto answer = api.completion(R"({"prompt": [1, 5], "temperature": 0, "stream": true})");
      ASSERT_TRUE(answer) << answer.message();
      Status status = (*answer)->wait();
      std::string body;
      while (status.ok()) {
        Expected<bool> goesOn = (*answer)->next(body);
        ASSERT_TRUE(!goesOn || *goesOn) << body;
        status = goesOn.status();
      }
      EXPECT_NE(status.message().find("logit"), std::string::npos) << status.message();
      service.stop();
    });
    EXPECT_TRUE(service.run().ok());
    asks.join();
  });
}

TEST(Api, DrawsAsTheMakersOfWeightsSay) {
  TemporaryDirectory directory;
  std::string path = directory / "generation_config.json";
  auto message = [&](std::string_view json) {
    writeText(path, json);
    auto draws = drawsOf(directory.str());
    return draws ? "none" : draws.message().substr(path.size());
  };
  EXPECT_FALSE(drawsOf(directory.str())->temperature); // no such file
  EXPECT_EQ(message(R"({"do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05,
    "min_p": null, "eos_token_id": 3})"),
            "none");
  auto draws = drawsOf(directory.str());
  EXPECT_EQ(draws->temperature, 0.7);
  EXPECT_EQ(draws->topK, 20);
  EXPECT_EQ(draws->topP, 0.8);
  EXPECT_EQ(draws->repetitionPenalty, 1.05);
  EXPECT_FALSE(draws->minP);
  EXPECT_TRUE(draws->others.empty());
  EXPECT_EQ(message(R"({"min_p": 0.1, "no_repeat_ngram_size": 3})"), "none");
  EXPECT_EQ(drawsOf(directory.str())->minP, 0.1);
  EXPECT_EQ(drawsOf(directory.str())->others, std::vector<std::string>{"no_repeat_ngram_size"});
  EXPECT_EQ(message(R"({"repetition_penalty": 0})"), ": repetition_penalty is 0; valid: 0.001 to 1000");
  EXPECT_EQ(message(R"({"do_sample": false, "temperature": "x", "repetition_penalty": 1.2})"), "none");
  EXPECT_EQ(drawsOf(directory.str())->repetitionPenalty, 1.2);
  EXPECT_FALSE(drawsOf(directory.str())->temperature);
  EXPECT_EQ(message(R"({"top_p": 0})"), ": top_p is 0; valid: above 0, up to 1");
  EXPECT_EQ(message(R"({"top_k": 1.5})"), ": top_k is 1.5; valid: a whole number, 0 and more");
  EXPECT_EQ(message(R"({"temperature": true})"), ": temperature is true; valid: 0 and more");

  Tokens greedy = alone(byteTokens("ab"), 6, {});
  withRank(1, [&](Rank &rank, Generator &generator) {
    TextService service(rank, generator, {});
    ApiModel model;
    model.draws = {.temperature = 0};
    model.tokensOf = [](const Json &prompt, bool) -> Expected<Tokens> { return byteTokens(prompt.get<std::string>()); };
    Api api(model, service);
    std::thread asks([&] {
      auto tokens = [&](const char *more) {
        return Json::parse(bodyOf(api.completion(fmt::format(
            R"({{"prompt": "ab", "max_tokens": 6, "return_token_ids": true{}}})", more))))["choices"][0]["token_ids"];
      };
      EXPECT_EQ(tokens(""), greedy);
      EXPECT_EQ(tokens(R"(, "temperature": 1, "top_k": 1)"), greedy);
      EXPECT_EQ(tokens(R"(, "temperature": 1, "seed": 2)"), alone(byteTokens("ab"), 6, {.temperature = 1, .seed = 2}));
      service.stop();
    });
    EXPECT_TRUE(service.run().ok());
    asks.join();
  });
}

TEST(Api, StatusesOfErrors) {
  EXPECT_EQ(Api::httpStatus(Status::error("a")), 400);
  EXPECT_EQ(Api::httpStatus(Status::error(ErrorCode::notFound, "a")), 404);
  EXPECT_EQ(Api::httpStatus(Status::error(ErrorCode::overflow, "a")), 503);
  EXPECT_EQ(Api::httpStatus(Status::error(ErrorCode::internal, "a")), 500);
  EXPECT_EQ(Api::errorBody(Status::error("a \"b\"")),
            R"({"error":{"message":"a \"b\"","type":"invalid_request_error","param":null,"code":null}})");
}

} // namespace
} // namespace braid::runtime::test
