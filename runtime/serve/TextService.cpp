#include "runtime/serve/TextService.h"

#include "runtime/io/Words.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace braid::runtime {

using Json = nlohmann::json;

// ---- A text ---------------------------------------------------------------------------------------------------------

AskedText::News AskedText::next(std::chrono::milliseconds patience, For what) {
  std::unique_lock lock(mutex);
  waitsFor = what;
  changed.wait_for(lock, patience,
                   [&] { return (what == For::tokens && !news.tokens.empty()) || news.end != End::none; });
  News now = news;
  news.scores.clear();
  news.tokens.clear();
  return now;
}

void AskedText::add(Token token) {
  bool isAwaited = false;
  {
    std::lock_guard lock(mutex);
    news.tokens.push_back(std::move(token));
    isAwaited = waitsFor == For::tokens;
  }
  if (isAwaited)
    changed.notify_one();
}

void AskedText::add(std::span<const TokenScore> scores) {
  std::lock_guard lock(mutex);
  news.scores.assign(scores.begin(), scores.end());
}

void AskedText::finish(End end, Status status) {
  {
    std::lock_guard lock(mutex);
    news.end = end;
    news.status = std::move(status);
  }
  changed.notify_one();
}

void AskedText::reuses(size_t tokens) {
  std::lock_guard lock(mutex);
  news.reusedTokens = tokens;
}

// ---- What is asked --------------------------------------------------------------------------------------------------

TextService::TextService(Rank &rank, Generator &generator, const Options &options)
    : rank(rank), generator(generator), options(options), batch(generator, {.readsBeside = true,
                                                                            .reuses = options.reuses,
                                                                            .stateBytes = options.stateBytes,
                                                                            .choices = options.choices}) {
  this->options.choices = std::min(options.choices, generator.vocabulary());
  batch.onRead([this](uint64_t id, std::span<const TokenScore> scores) { read(id, scores); });
}

Expected<std::shared_ptr<AskedText>> TextService::ask(TextRequest request) {
  BRAID_TRY(checkPrompt(generator, request.text.prompt, request.text.maxTokens));
  if (request.text.scoresPrompt)
    BRAID_TRY(generator.checkScores());
  if (request.text.maxTokens < (request.text.scoresPrompt ? 0 : 1))
    return Status::error("the number of tokens to generate is {}; valid: 1 and more", request.text.maxTokens);
  BRAID_TRY(Sampler::create(request.text.sampler, generator.vocabulary(), options.choices).status());
  auto text = std::make_shared<AskedText>();
  {
    std::lock_guard lock(mutex);
    BRAID_TRY(failure);
    if (stopping)
      return Status::error(ErrorCode::overflow, "no text is begun any more: the server is being stopped");
    if (size_t there = waiting.size() + seen.running; there >= options.most)
      return Status::error(ErrorCode::overflow, "{} in the making, and no more than {} may be",
                           there == 1 ? "1 text is" : fmt::format("{} texts are", there), options.most);
    waiting.push_back({std::move(request), text});
  }
  changed.notify_one();
  return text;
}

void TextService::stop() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  changed.notify_one();
}

TextService::Counts TextService::counts() {
  std::lock_guard lock(mutex);
  Counts now = seen;
  now.waiting = waiting.size();
  return now;
}

// ---- Rounds ---------------------------------------------------------------------------------------------------------

// A call for prompts takes as long for one as for all sequences, and other texts wait for it: texts that come one by one
// wait for each other until a quarter of the sequences is free, but not for longer than some rounds.
static constexpr size_t mostWaitedRounds = 16;

TextService::Round TextService::nextRound() {
  Round round;
  std::unique_lock lock(mutex);
  auto isDue = [&] { return !running.empty() || !waiting.empty() || stopping; };
  if (rank.worldSize() == 1)
    changed.wait(lock, isDue);
  else
    changed.wait_for(lock, options.pulse, isDue);
  for (const auto &[id, asked] : running)
    if (asked.text->isCancelled)
      round.ends.push_back(id);
  std::erase_if(waiting, [&](const Asked &asked) {
    if (!asked.text->isCancelled)
      return false;
    ++seen.texts;
    asked.text->finish(AskedText::End::cancelled);
    return true;
  });
  size_t room = batch.room() + round.ends.size();
  bool enough = 4 * room >= batch.sequences() || waitedRounds >= mostWaitedRounds;
  waitedRounds = enough || room == 0 || waiting.empty() ? 0 : waitedRounds + 1;
  for (; enough && room > 0 && !waiting.empty(); --room) {
    round.begins.emplace_back(begun++, std::move(waiting.front()));
    waiting.pop_front();
  }
  seen.running = running.size() + round.begins.size(); // until those that end are counted as such
  round.last = stopping && seen.running == 0 && waiting.empty();
  return round;
}

// What the other ranks hear: of texts what they compute by.
static Json toJson(const TextRequest &request) {
  const SamplerOptions &sampler = request.text.sampler;
  const PenaltyOptions &penalties = sampler.penalties;
  return {request.text.prompt, request.text.maxTokens, request.ends,       sampler.temperature,
          sampler.topK,        sampler.topP,           sampler.seed,       request.text.scoresPrompt,
          sampler.minP,        penalties.repetition,   penalties.presence, penalties.frequency,
          penalties.bias};
}

static TextRequest requestOf(const Json &json) {
  TextRequest request;
  SamplerOptions &sampler = request.text.sampler;
  json.at(0).get_to(request.text.prompt);
  json.at(1).get_to(request.text.maxTokens);
  json.at(2).get_to(request.ends);
  json.at(3).get_to(sampler.temperature);
  json.at(4).get_to(sampler.topK);
  json.at(5).get_to(sampler.topP);
  json.at(6).get_to(sampler.seed);
  json.at(7).get_to(request.text.scoresPrompt);
  json.at(8).get_to(sampler.minP);
  json.at(9).get_to(sampler.penalties.repetition);
  json.at(10).get_to(sampler.penalties.presence);
  json.at(11).get_to(sampler.penalties.frequency);
  json.at(12).get_to(sampler.penalties.bias);
  return request;
}

Expected<TextService::Round> TextService::agreed() {
  Round round;
  if (rank.isFirst())
    round = nextRound();
  if (rank.worldSize() == 1)
    return round;
  std::string told;
  if (rank.isFirst() && (!round.begins.empty() || !round.ends.empty() || round.last)) {
    Json begins = Json::array();
    for (const auto &[id, asked] : round.begins)
      begins.push_back({id, toJson(asked.request)});
    Json::to_cbor({{"begins", begins}, {"ends", round.ends}, {"last", round.last}}, told);
  }
  BRAID_ASSIGN(told, rank.fromFirst(std::move(told), "texts that begin and end"));
  if (rank.isFirst() || told.empty())
    return round;
  Json json = Json::from_cbor(told);
  for (const Json &begin : json["begins"])
    round.begins.emplace_back(begin[0].get<uint64_t>(), Asked{requestOf(begin[1]), nullptr});
  json["ends"].get_to(round.ends);
  round.last = json["last"];
  return round;
}

void TextService::begin(uint64_t id, Asked asked) {
  Expected<size_t> reused = batch.begin(id, asked.request.text);
  if (asked.text && reused)
    asked.text->reuses(*reused);
  running.emplace(id, std::move(asked));
  {
    std::lock_guard lock(mutex);
    seen.running = std::max(seen.running, running.size()); // more may be about to begin
  }
  if (!reused)
    end(id, AskedText::End::failed, reused.status());
}

void TextService::end(uint64_t id, AskedText::End end, Status status) {
  std::shared_ptr<AskedText> text = running.extract(id).mapped().text;
  {
    std::lock_guard lock(mutex);
    seen.running = running.size();
    ++seen.texts;
  }
  if (text) // who waits for it finds it counted
    text->finish(end, std::move(status));
}

static AskedText::Token withLikeliest(int32_t token, std::span<const float> logits, int64_t count) {
  float highest = *std::ranges::max_element(logits);
  double sum = 0;
  for (float logit : logits)
    sum += std::exp(static_cast<double>(logit) - highest);
  double all = highest + std::log(sum);
  auto likely = [&](int32_t which) {
    return LikelyToken{which, static_cast<float>(logits[static_cast<size_t>(which)] - all)};
  };
  AskedText::Token result{likely(token), {}};
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto end = order.begin() + std::min(count, static_cast<int64_t>(order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
    float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  std::transform(order.begin(), end, std::back_inserter(result.likeliest), likely);
  return result;
}

void TextService::read(uint64_t id, std::span<const TokenScore> scores) {
  Asked &asked = running.at(id);
  const TextRequest &request = asked.request;
  auto bad = std::ranges::find_if(scores, [](const TokenScore &s) { return std::isnan(s.logProbability); });
  if (bad != scores.end()) {
    batch.end(id);
    end(id, AskedText::End::failed,
        Status::error(
            "the log-probability of token {} of the prompt is not a number: the model's logits are not finite",
            bad - scores.begin() + 1));
    return;
  }
  if (asked.text && request.text.scoresPrompt)
    asked.text->add(scores);
  if (request.text.maxTokens == 0)
    end(id, AskedText::End::length);
}

AfterToken TextService::take(uint64_t id, const Expected<int32_t> &token, std::span<const float> logits) {
  Asked &asked = running.at(id);
  if (!token) {
    end(id, AskedText::End::failed, token.status());
    return AfterToken::endText;
  }
  const TextRequest &request = asked.request;
  if (asked.text)
    asked.text->add(request.likeliest < 0 ? AskedText::Token{{*token, 0}, {}}
                                          : withLikeliest(*token, logits, request.likeliest));
  bool ends = std::ranges::find(request.ends, *token) != request.ends.end();
  if (ends || ++asked.drawn == request.text.maxTokens) {
    end(id, ends ? AskedText::End::token : AskedText::End::length);
    return AfterToken::endText;
  }
  return AfterToken::goOn;
}

Status TextService::serve() {
  for (;;) {
    BRAID_ASSIGN(Round round, agreed());
    if (round.last)
      return Status::success();
    for (uint64_t id : round.ends) {
      batch.end(id);
      end(id, AskedText::End::cancelled);
    }
    for (auto &[id, asked] : round.begins)
      begin(id, std::move(asked));
    BRAID_TRY(batch
                  .step([&](uint64_t id, const Expected<int32_t> &token, std::span<const float> logits) {
                    return take(id, token, logits);
                  })
                  .status());
    std::lock_guard lock(mutex);
    seen.tokens = batch.counts();
  }
}

Status TextService::run() {
  Status status = serve();
  Status said = status.ok() ? Status::error(ErrorCode::overflow, "the server has stopped") : status;
  while (!running.empty())
    end(running.begin()->first, AskedText::End::failed, said);
  std::lock_guard lock(mutex);
  seen.running = 0;
  failure = said;
  for (const Asked &asked : waiting)
    asked.text->finish(AskedText::End::failed, said);
  waiting.clear();
  return status;
}

} // namespace braid::runtime
