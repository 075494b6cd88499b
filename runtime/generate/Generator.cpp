#include "runtime/generate/Generator.h"

#include "runtime/generate/Sampler.h"
#include "runtime/io/Shape.h"
#include "runtime/io/TensorNames.h"
#include "runtime/train/Rank.h"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace braid::runtime {

Status Generator::addBucket(const EntryInfo &entry, int64_t length) {
  const Program &program = session->program();
  BRAID_ASSIGN(const TensorInfo *tokens, entryInput(program, entry, "tokens"));
  BRAID_ASSIGN(const TensorInfo *documents, entryInput(program, entry, "cu_seqlens"));
  BRAID_ASSIGN(const TensorInfo *logits, entryOutput(program, entry, "logits"));
  BRAID_TRY(checkTensor(entry, *tokens, DType::i32, 2));
  BRAID_TRY(checkTensor(entry, *documents, DType::i32, 2));
  BRAID_TRY(checkTensor(entry, *logits, DType::f32, 2));
  auto wrong = [&](const TensorInfo &tensor, std::string_view wanted) {
    return Status::error(ErrorCode::unsupported, "entry @{}: '{}' has shape {}, but generation needs {}", entry.name,
                         tensor.name, formatShape(tensor.shape), wanted);
  };
  if (tokens->shape != std::vector<int64_t>{1, length})
    return wrong(*tokens, fmt::format("[1, {}]", length));
  if (documents->shape != std::vector<int64_t>{1, 2})
    return wrong(*documents, "[1, 2]");
  if (logits->shape[0] != 1 || (!table.empty() && logits->shape[1] != static_cast<int64_t>(vocabularySize)))
    return wrong(*logits, table.empty() ? "[1, vocabulary]" : fmt::format("[1, {}]", vocabularySize));
  vocabularySize = static_cast<size_t>(logits->shape[1]);
  BRAID_ASSIGN(EntryId id, session->entry(entry.name));
  table.push_back({length, id, session->tensor(*tokens).as<int32_t>(), session->tensor(*documents).as<int32_t>(),
                   session->tensor(*logits).as<float>()});
  return Status::success();
}

Expected<Generator> Generator::bind(Session &session) {
  const Program &program = session.program();
  Generator generator(session);
  BRAID_ASSIGN(const EntryInfo *decode, findEntry(program, "decode_1"));
  BRAID_TRY(generator.addBucket(*decode, 1));
  constexpr std::string_view prefix = "prefill_";
  for (const EntryInfo &entry : program.entries()) {
    if (!entry.name.starts_with(prefix))
      continue;
    const char *begin = entry.name.data() + prefix.size(), *end = entry.name.data() + entry.name.size();
    int64_t length = 0;
    auto [stop, error] = std::from_chars(begin, end, length);
    if (error == std::errc() && stop == end && length > 1) // other names are not buckets
      BRAID_TRY(generator.addBucket(entry, length));
  }
  std::sort(generator.table.begin(), generator.table.end(), [](auto &a, auto &b) { return a.length > b.length; });
  BRAID_ASSIGN(std::optional<double> limit, metadataNumber(program, "context_len"));
  if (limit)
    generator.contextLimit = static_cast<int64_t>(std::clamp(*limit, 0.0, static_cast<double>(INT32_MAX)));
  generator.reset();
  return generator;
}

void Generator::reset() {
  session->clear(Role::cache);
  position = 0;
}

std::vector<int64_t> Generator::buckets() const {
  std::vector<int64_t> lengths;
  for (const Bucket &bucket : table)
    lengths.push_back(bucket.length);
  return lengths;
}

Expected<std::span<const float>> Generator::feed(std::span<const int32_t> tokens) {
  int64_t count = static_cast<int64_t>(tokens.size());
  if (count == 0)
    return Status::error("a sequence needs at least one token before there are logits");
  if (position + count > contextLimit)
    return Status::error("the sequence would have {} tokens, but the program was compiled for a context of {}",
                         position + count, contextLimit);
  std::span<const float> logits;
  while (!tokens.empty()) {
    const Bucket &bucket = *std::find_if(table.begin(), table.end(), [&](const Bucket &candidate) {
      return candidate.length <= static_cast<int64_t>(tokens.size()); // decode_1 always fits
    });
    std::copy_n(tokens.begin(), bucket.length, bucket.tokens.begin());
    bucket.cuSeqlens[0] = static_cast<int32_t>(-position);
    bucket.cuSeqlens[1] = static_cast<int32_t>(bucket.length);
    BRAID_TRY(session->run(bucket.entry).withContext(fmt::format("position {}", position)));
    position += bucket.length;
    logits = bucket.logits;
    tokens = tokens.subspan(static_cast<size_t>(bucket.length));
  }
  return logits;
}

std::vector<int32_t> byteTokens(std::string_view text) {
  std::vector<int32_t> tokens;
  for (char c : text)
    tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

Expected<GenerateResult> generate(Generator &generator, std::span<const int32_t> prompt, int64_t maxTokens,
                                  const SamplerOptions &options, size_t choices,
                                  const std::function<bool(int32_t)> &emit) {
  using Clock = std::chrono::steady_clock;
  auto since = [](Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); };
  if (prompt.empty())
    return Status::error("the prompt is empty: the model continues a text and needs at least one token of it");
  if (maxTokens < 0)
    return Status::error("the number of tokens to generate must not be negative: {}", maxTokens);
  for (size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || static_cast<size_t>(prompt[i]) >= generator.vocabulary())
      return Status::error("token {} of the prompt is {}, but the vocabulary has 0 to {}", i, prompt[i],
                           generator.vocabulary() - 1);
  // The last token is sampled but not fed.
  int64_t needed = static_cast<int64_t>(prompt.size()) + std::max<int64_t>(maxTokens - 1, 0);
  if (generator.length() + needed > generator.contextLength())
    return Status::error("a prompt of {} tokens and {} more need a context of {}, but the program was compiled for {}",
                         prompt.size(), maxTokens, generator.length() + needed, generator.contextLength());
  BRAID_ASSIGN(Sampler sampler, Sampler::create(options, generator.vocabulary(), choices));

  GenerateResult result;
  Clock::time_point start = Clock::now();
  BRAID_ASSIGN(std::span<const float> logits, generator.feed(prompt));
  result.promptSeconds = since(start);
  start = Clock::now();
  for (int64_t i = 0; i < maxTokens; ++i) {
    BRAID_ASSIGN(int32_t token, sampler.sample(logits, static_cast<uint64_t>(i)));
    result.tokens.push_back(token);
    if (!emit(token))
      break;
    if (i + 1 < maxTokens) {
      BRAID_ASSIGN(logits, generator.feed(std::span(&token, 1)));
    }
  }
  result.decodeSeconds = since(start);
  return result;
}

} // namespace braid::runtime
