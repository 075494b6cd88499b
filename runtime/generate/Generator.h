// Runs sequences through the entries prefill_<N>, score_<N> and decode_<B> of a program, B at a time. A prompt of any
// length is cut in the largest buckets that fit, the rest goes token by token or, where that takes longer, into the smallest
// bucket, padded; caches carry the state from one call to the next. How a sequence is cut follows from it alone, and a call
// leaves the caches of a sequence without tokens as they are: what is computed for a sequence does not depend on the others,
// but for the rounding of library products, where the order of a sum may depend on the row's place, and an expert's on how
// many rows it has.
#pragma once

#include "runtime/Session.h"

#include <functional>

namespace braid::runtime {

// An error where a program has pipeline stages, and so no entries that generate.
Status checkGenerates(const Program &program);

// ln softmax of a token that is known to follow, and of the token that was likeliest there.
struct TokenScore {
  float logProbability;
  int32_t likeliest; // of equally likely ones the lowest
  float likeliestLogProbability;
};

class Generator {
public:
  static Expected<Generator> bind(Session &session);

  // Sequences that are continued at a time.
  size_t sequences() const { return rows.size(); }
  // Forgets all sequences, or one.
  void reset();
  void reset(size_t sequence) { rows[sequence].position = 0; }

  struct Piece {
    size_t sequence; // each at most once
    std::span<const int32_t> tokens; // at least one
    // What follows each of them, in the vocabulary, whose scores are wanted in the place of logits. Or nothing.
    std::span<const int32_t> labels = {};
  };
  // Appends tokens to sequences. Errors (no such sequence, a context that is full) come before anything is run.
  Status feed(std::span<const Piece> pieces);
  // Of each label of a sequence of the last feed(), until the next one.
  std::span<const TokenScore> scores(size_t sequence) const { return rows[sequence].scores; }
  // An error where the session has no entries for them.
  Status checkScores() const;
  // The logits after the last token of a sequence of the last feed(), until the next one.
  std::span<const float> logits(size_t sequence) const { return rows[sequence].logits; }
  // Appends tokens to sequence 0: its logits.
  Expected<std::span<const float>> feed(std::span<const int32_t> tokens);

  // What a sequence has read, as its caches have it: its row of each, of attention's as much as was read.
  struct State {
    int64_t position = 0;
    std::vector<std::byte> bytes;
  };
  // Of so many tokens. 0: there is a cache that is not by sequences, so nothing can be saved.
  size_t stateBytes(int64_t tokens) const;
  Expected<State> save(size_t sequence);
  Status restore(size_t sequence, const State &state);

  size_t vocabulary() const { return vocabularySize; }
  // Tokens of a sequence.
  int64_t length(size_t sequence = 0) const { return rows[sequence].position; }
  // The most tokens a sequence may have.
  int64_t contextLength() const { return contextLimit; }
  // The threads of its session, idle between calls of feed().
  ThreadPool &pool() const { return session->pool(); }
  // Lengths of the buckets, longest first; 1 is decode.
  std::vector<int64_t> buckets() const;
  // Of so many tokens of one sequence, with labels or without, how many the first call takes. Fed call by call they are cut
  // as they are at once.
  size_t callLength(size_t tokens, bool areScored = false) const;

private:
  explicit Generator(Session &session) : session(&session) {}
  struct Bucket {
    int64_t length;
    EntryId entry;
    std::span<int32_t> tokens, cuSeqlens;
    std::span<const float> logits;
    // Of one that scores, in the place of logits.
    std::span<int32_t> labels;
    std::span<const float> losses, likeliestLosses;
    std::span<const int32_t> likeliest;
  };
  struct Row {
    int64_t position = 0;
    std::span<const int32_t> rest, labels; // of the piece that is being fed
    std::span<const float> logits;
    std::vector<float> kept; // of a piece that ended before others did
    std::vector<TokenScore> scores;
  };
  Expected<Bucket> bucketOf(const EntryInfo &entry, int64_t length);
  Status addBucket(const EntryInfo &entry, int64_t length);
  Status addScoreBucket(const EntryInfo &entry, int64_t length);
  void addCaches();
  size_t cacheRowBytes(const TensorView &cache, int64_t tokens) const;
  Status eachCacheRow(size_t sequence, int64_t tokens, const std::function<Status(const TensorView &row)> &use);
  const Bucket &bucketFor(size_t tokens, bool areScored) const;
  const Bucket &bucketFor(const Row &row) const { return bucketFor(row.rest.size(), !row.labels.empty()); }
  Status advance(const Bucket &bucket);
  Status check(std::span<const Piece> pieces) const;

  Session *session;
  std::vector<Bucket> table, scoreTable; // longest first
  std::vector<Row> rows;
  std::vector<TensorView> caches; // a layer each
  bool areBySequences = true; // all of them
  size_t vocabularySize = 0;
  size_t paddedFrom = SIZE_MAX; // so many tokens go into a bucket that they do not fill
  int64_t contextLimit = INT32_MAX; // what cu_seqlens can count
};

struct GenerateResult {
  std::vector<std::vector<int32_t>> tokens; // of each prompt, those that were generated
  size_t promptTokens = 0, generatedTokens = 0;
  double promptSeconds = 0, decodeSeconds = 0;
};

struct SamplerOptions;

// Whether a prompt can be continued by `maxTokens` tokens: it has some, all in the vocabulary, and the context is long
// enough.
Status checkPrompt(const Generator &generator, std::span<const int32_t> prompt, int64_t maxTokens);
// What follows a token.
enum class AfterToken { goOn, endText, endAll };
// Feeds prompts and samples up to `maxTokens` more for each, all below `choices`; as many at a time as the generator has
// sequences, whose next ones begin when a quarter of them has ended. Prompt i (from 0) draws with the seed of `options`
// plus i: its text is, up to rounding, the one that it has alone with that seed. `emit` sees each token as it comes, with
// the number of its prompt; after `endAll` nothing more is fed or drawn.
Expected<GenerateResult> generate(Generator &generator, std::span<const std::vector<int32_t>> prompts,
                                  int64_t maxTokens, const SamplerOptions &options, size_t choices,
                                  const std::function<AfterToken(size_t prompt, int32_t token)> &emit);
// The bytes of a text as tokens.
std::vector<int32_t> byteTokens(std::string_view text);

} // namespace braid::runtime
