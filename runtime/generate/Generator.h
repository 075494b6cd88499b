// Runs a sequence through the entries prefill_<N> and decode_1 of a program. A prompt of any length is cut in the
// largest buckets that fit, the rest goes token by token; caches carry the state from one call to the next.
#pragma once

#include "runtime/Session.h"

#include <functional>

namespace braid::runtime {

class Generator {
public:
  static Expected<Generator> bind(Session &session);

  // Forgets the sequence.
  void reset();
  // Appends tokens; the logits are those after the last one, valid until the next call.
  Expected<std::span<const float>> feed(std::span<const int32_t> tokens);

  size_t vocabulary() const { return vocabularySize; }
  // Tokens of the current sequence.
  int64_t length() const { return position; }
  // The most tokens a sequence may have.
  int64_t contextLength() const { return contextLimit; }
  // Lengths of the buckets, longest first; 1 is decode.
  std::vector<int64_t> buckets() const;

private:
  explicit Generator(Session &session) : session(&session) {}
  struct Bucket {
    int64_t length;
    EntryId entry;
    std::span<int32_t> tokens, cuSeqlens;
    std::span<const float> logits;
  };
  Status addBucket(const EntryInfo &entry, int64_t length);

  Session *session;
  std::vector<Bucket> table;
  size_t vocabularySize = 0;
  int64_t contextLimit = INT32_MAX; // what cu_seqlens can count
  int64_t position = 0;
};

struct GenerateResult {
  std::vector<int32_t> tokens;
  double promptSeconds = 0, decodeSeconds = 0;
};

struct SamplerOptions;

// Feeds the prompt and samples `maxTokens` more, all below `choices`; `emit` sees each as it comes and ends the
// generation by returning false.
Expected<GenerateResult> generate(Generator &generator, std::span<const int32_t> prompt, int64_t maxTokens,
                                  const SamplerOptions &options, size_t choices,
                                  const std::function<bool(int32_t)> &emit);
// The bytes of a text as tokens.
std::vector<int32_t> byteTokens(std::string_view text);

} // namespace braid::runtime
