#include "test/benchmark/Decode.h"

#include "runtime/generate/Generator.h"
#include "runtime/io/TensorNames.h"
#include "runtime/train/Rank.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace braid::benchmark {

using namespace braid::runtime;

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The same tokens to every sequence.
Status feedAll(Generator &generator, std::span<const int32_t> tokens) {
  std::vector<Generator::Piece> pieces;
  for (size_t i = 0; i < generator.sequences(); ++i)
    pieces.push_back({i, tokens});
  return generator.feed(pieces);
}

Expected<Json> measurePrefills(Generator &generator) {
  Json prefills = Json::array();
  for (int64_t length : generator.buckets()) {
    if (length == 1)
      continue;
    std::vector<int32_t> prompt(static_cast<size_t>(length));
    for (size_t i = 0; i < prompt.size(); ++i)
      prompt[i] = static_cast<int32_t>(32 + i * 7 % 64);
    std::vector<double> times;
    for (int i = 0; i < 12; ++i) {
      generator.reset();
      auto start = Clock::now();
      BRAID_TRY(feedAll(generator, prompt));
      if (i >= 2)
        times.push_back(since(start));
    }
    prefills.push_back(
        {{"tokens", length},
         {"ms", milliseconds(times)},
         {"tokens_per_s", static_cast<double>(generator.sequences()) * static_cast<double>(length) / median(times)}});
  }
  return prefills;
}

// Decode at any position: what lies in the caches before it was never computed (it is zero, or old), which changes no
// time.
struct DecodeEntry {
  EntryId entry;
  std::span<int32_t> tokens, cuSeqlens;
  std::span<float> logits;

  static Expected<DecodeEntry> bind(Session &session, const std::string &name) {
    DecodeEntry decode;
    BRAID_ASSIGN(const EntryInfo *entry, findEntry(session.program(), name));
    BRAID_ASSIGN(const TensorInfo *tokens, entryInput(session.program(), *entry, "tokens"));
    BRAID_ASSIGN(const TensorInfo *documents, entryInput(session.program(), *entry, "cu_seqlens"));
    BRAID_ASSIGN(const TensorInfo *logits, entryOutput(session.program(), *entry, "logits"));
    BRAID_ASSIGN(decode.entry, session.entry(name));
    decode.tokens = session.tensor(*tokens).as<int32_t>();
    decode.cuSeqlens = session.tensor(*documents).as<int32_t>();
    decode.logits = session.tensor(*logits).as<float>();
    return decode;
  }

  Status run(Session &session, int32_t token, int64_t position) {
    std::ranges::fill(tokens, token);
    for (size_t i = 0; i < cuSeqlens.size(); i += 2) {
      cuSeqlens[i] = static_cast<int32_t>(-position);
      cuSeqlens[i + 1] = 1;
    }
    BRAID_TRY(session.run(entry));
    if (!std::isfinite(logits[0]))
      return Status::error("decode gives logits that are not finite at position {}", position);
    return Status::success();
  }
};

std::string decodeName(const Generator &generator) { return fmt::format("decode_{}", generator.sequences()); }

// Time and memory of a token behind long sequences. The state of a linear model does not grow: it reads all the tokens.
// A model with a key/value cache is put at the position instead, since its prefill takes time squared.
Expected<Json> measurePositions(const DecodeOptions &options, Session &session, Generator &generator) {
  Json list = Json::array();
  std::vector<int32_t> text(static_cast<size_t>(generator.buckets().front()));
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<int32_t>(32 + i * 7 % 64);
  BRAID_ASSIGN(DecodeEntry decode, DecodeEntry::bind(session, decodeName(generator)));
  generator.reset();
  constexpr int64_t decoded = 64, warm = 8;
  bool jumps = false; // some cache has a row for every position
  for (const TensorInfo &tensor : session.program().tensors())
    for (int64_t extent : tensor.shape)
      jumps |= tensor.role == Role::cache && extent == generator.contextLength();
  for (int64_t position : {1 << 10, 1 << 13, 1 << 15, 1 << 17}) {
    if (position > options.positions || position + decoded + warm > generator.contextLength())
      break;
    while (!jumps && generator.length() < position) {
      auto count = std::min<size_t>(text.size(), static_cast<size_t>(position - generator.length()));
      BRAID_TRY(feedAll(generator, std::span(text).first(count)));
    }
    std::vector<double> times;
    for (int64_t i = 0; i < decoded + warm; ++i) {
      int32_t token = static_cast<int32_t>(32 + i * 5 % 64);
      auto start = Clock::now();
      if (jumps)
        BRAID_TRY(decode.run(session, token, position + i));
      else
        BRAID_TRY(feedAll(generator, std::span(&token, 1)));
      if (i >= warm)
        times.push_back(since(start));
    }
    list.push_back({{"position", position},
                    {"tokens_read", !jumps},
                    {"ms", milliseconds(times)},
                    {"resident_bytes", memoryStatus("VmRSS")},
                    {"arena_bytes", session.arenaBytes()}});
  }
  return list;
}

// Reading as many bytes as the entry's weights: all of them, and those that one token needs. Whether they stay in the
// last-level cache from token to token decides which of the two bounds decoding.
Json describeWeights(Session &session, const EntryProfile &profile) {
  uint64_t all = 0;
  for (const TensorInfo &tensor : session.program().tensors())
    if (tensor.role == Role::parameter)
      all += tensor.bytes;
  double token = 0;
  for (const ExecutedCommand &command : profile.commands)
    token += command.bytes;
  auto rate = [&](double bytes) { return bytes / probeRead(static_cast<size_t>(bytes), session.pool()).median; };
  uint64_t cache = lastLevelCacheBytes();
  return {{"bytes", all},
          {"token_bytes", token},
          {"last_level_cache_bytes", cache},
          {"fit", all <= cache},
          {"read_rate", rate(static_cast<double>(all))},
          {"token_read_rate", rate(token)}};
}

} // namespace

Expected<Json> measureGeneration(const DecodeOptions &options, Session &session, const Describe &describe) {
  if (!std::ranges::any_of(session.program().entries(), [](auto &entry) { return entry.name.starts_with("decode_"); }))
    return Json();
  BRAID_ASSIGN(Generator generator, Generator::bind(session));
  BRAID_ASSIGN(Json prefills, measurePrefills(generator));
  // Decode behind a short prompt; the context bounds how far.
  generator.reset();
  int64_t count = std::min<int64_t>(options.decoded, generator.contextLength() - 8);
  std::vector<double> times;
  int32_t token = 40;
  for (int64_t i = 0; i < count; ++i) {
    auto start = Clock::now();
    BRAID_TRY(feedAll(generator, std::span(&token, 1)));
    if (i >= 4)
      times.push_back(since(start));
    std::span<const float> logits = generator.logits(0);
    token = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (!std::isfinite(logits[static_cast<size_t>(token)]))
      return Status::error("decode gives logits that are not finite at position {}", i);
  }
  double fastest = *std::min_element(times.begin(), times.end());
  BRAID_ASSIGN(EntryProfile profile, profileEntry(session, decodeName(generator), 8,
                                                  [&] { return feedAll(generator, std::span(&token, 1)); }));
  Json weights = describeWeights(session, profile);
  double byteRate = weights[weights["fit"].get<bool>() ? "token_read_rate" : "read_rate"];
  BRAID_ASSIGN(Json described, describe(profile, median(times), fastest, byteRate));
  BRAID_ASSIGN(Json positions, measurePositions(options, session, generator));
  auto sequences = static_cast<double>(generator.sequences());
  return Json{{"sequences", generator.sequences()},
              {"prefill", prefills},
              {"decode_ms", milliseconds(times)},
              {"decode_tokens_per_s", sequences / median(times)},
              {"weights", weights},
              {"positions", positions},
              {"profile", described}};
}

} // namespace braid::benchmark
