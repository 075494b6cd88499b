// Runs sequences through the entries prefill_<N> and decode_<B> of a program, B at a time. A prompt of any length is cut
// in the largest buckets that fit, the rest goes token by token or, where that takes longer, into the smallest bucket,
// padded; caches carry the state from one call to the next. How a sequence is cut follows from it alone, and a call leaves
// the caches of a sequence without tokens as they are: what is computed for a sequence does not depend on the others, but
// for the rounding of library products, where the order of a sum may depend on the row's place, and an expert's on how
// many rows it has.
#pragma once

#include "runtime/Session.h"

#include <functional>

namespace braid::runtime {

// An error where a program has pipeline stages, and so no entries that generate.
Status checkGenerates(const Program &program);

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
  };
  // Appends tokens to sequences. Errors (no such sequence, a context that is full) come before anything is run.
  Status feed(std::span<const Piece> pieces);
  // The logits after the last token of a sequence of the last feed(), until the next one.
  std::span<const float> logits(size_t sequence) const { return rows[sequence].logits; }
  // Appends tokens to sequence 0: its logits.
  Expected<std::span<const float>> feed(std::span<const int32_t> tokens);

  // What a sequence has read, as its caches have it: its row of each, attention's as long as the context.
  struct State {
    int64_t position = 0;
    std::vector<std::byte> bytes;
  };
  // 0: there is a cache that is not by sequences, so nothing can be saved.
  size_t stateBytes() const { return rowBytes; }
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
  // Of so many tokens of one sequence, how many the first call takes. Fed call by call they are cut as they are at once.
  size_t callLength(size_t tokens) const;

private:
  explicit Generator(Session &session) : session(&session) {}
  struct Bucket {
    int64_t length;
    EntryId entry;
    std::span<int32_t> tokens, cuSeqlens;
    std::span<const float> logits;
  };
  struct Row {
    int64_t position = 0;
    std::span<const int32_t> rest; // of the piece that is being fed
    std::span<const float> logits;
    std::vector<float> kept; // of a piece that ended before others did
  };
  Status addBucket(const EntryInfo &entry, int64_t length);
  void addCaches();
  Status eachCacheRow(size_t sequence, const std::function<Status(const TensorView &row)> &use);
  const Bucket &bucketFor(size_t tokens) const;
  Status check(std::span<const Piece> pieces) const;

  Session *session;
  std::vector<Bucket> table;
  std::vector<Row> rows;
  std::vector<TensorView> caches; // a layer each
  size_t rowBytes = 0; // of all of them
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
