// Texts for whoever asks, from any thread, while the ranks of a program go round: those that wait get a sequence as soon as
// there is room, and each token goes to who asked for it. The first rank is asked; before each round it tells the others
// which texts begin and which end, and all of them compute the same.
#pragma once

#include "runtime/generate/Continuations.h"
#include "runtime/train/Rank.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

namespace braid::runtime {

struct TextRequest {
  Continuations::Text text; // which scores its prompt, or draws a token at least
  std::vector<int32_t> ends; // a text ends behind one of these
  // Log-probabilities: of the drawn token and of so many of the likeliest; -1: of none.
  int64_t likeliest = -1;
};

// ln softmax of a token's logit at temperature 1, among all of the model's, also those that are never drawn.
struct LikelyToken {
  int32_t token;
  float logProbability;
};

// A text that was asked for. What comes is taken by one thread.
class AskedText {
public:
  enum class End : uint8_t { none, token, length, cancelled, failed }; // behind one of `ends`; with maxTokens

  struct Token {
    LikelyToken drawn; // without log-probabilities 0
    std::vector<LikelyToken> likeliest; // the likeliest first
  };
  struct News {
    std::vector<TokenScore> scores; // of the prompt, where they are wanted: all at once, before the first token
    std::vector<Token> tokens; // since the last
    End end = End::none; // nothing follows
    Status status = Status::success(); // why it failed
    size_t reusedTokens = 0; // of its prompt
  };
  // Waits for tokens or the end, or for the end alone, no longer than `patience`. Who waits for the end is not woken by
  // tokens, which takes time from who computes the next ones.
  enum class For : uint8_t { tokens, end };
  News next(std::chrono::milliseconds patience, For what = For::tokens);
  // Nobody wants it any more: it ends before the next round.
  void cancel() { isCancelled = true; }

private:
  friend class TextService;
  void add(Token token);
  void add(std::span<const TokenScore> scores);
  void finish(End end, Status status = Status::success());
  void reuses(size_t tokens);

  std::mutex mutex;
  std::condition_variable changed;
  News news;
  For waitsFor = For::tokens;
  std::atomic<bool> isCancelled = false;
};

class TextService {
public:
  struct Options {
    size_t most = 256; // texts that go on or wait; more are refused
    bool reuses = true; // ContinuationOptions
    size_t stateBytes = 0; // the same
    size_t choices = SIZE_MAX;
    std::chrono::milliseconds pulse{1000}; // other ranks hear of the first as often, also when there is nothing to do
  };
  // `generator` computes for run() alone.
  TextService(Rank &rank, Generator &generator, const Options &options);

  // Errors: a prompt that cannot be continued so far (invalidArgument), too many texts, or none are taken any more
  // (overflow).
  Expected<std::shared_ptr<AskedText>> ask(TextRequest request);
  // Collective: serves until stop() and the last text has ended, or a rank fails; then all texts have.
  Status run();
  // No text is taken any more. From any thread, of the first rank.
  void stop();

  size_t most() const { return options.most; }

  struct Counts {
    size_t running = 0, waiting = 0;
    uint64_t texts = 0; // that have ended
    Continuations::Counts tokens;
  };
  Counts counts();

private:
  struct Asked {
    TextRequest request;
    std::shared_ptr<AskedText> text; // of the first rank
    int64_t drawn = 0;
  };
  // What a round begins with.
  struct Round {
    std::vector<std::pair<uint64_t, Asked>> begins;
    std::vector<uint64_t> ends;
    bool last = false; // there is nothing to do any more
  };
  Status serve();
  Round nextRound();
  Expected<Round> agreed();
  void begin(uint64_t id, Asked asked);
  void read(uint64_t id, std::span<const TokenScore> scores);
  AfterToken take(uint64_t id, const Expected<int32_t> &token, std::span<const float> logits);
  void end(uint64_t id, AskedText::End end, Status status = Status::success());

  Rank &rank;
  Generator &generator;
  Options options;
  // Of the thread that runs.
  Continuations batch;
  std::map<uint64_t, Asked> running;
  uint64_t begun = 0;
  size_t waitedRounds = 0; // of the first text that waits

  std::mutex mutex; // of what follows
  std::condition_variable changed; // a text waits, or none is taken any more
  std::deque<Asked> waiting;
  bool stopping = false;
  Status failure = Status::success(); // of run()
  Counts seen; // but for `waiting`
};

} // namespace braid::runtime
