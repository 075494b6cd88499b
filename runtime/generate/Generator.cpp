#include "runtime/generate/Generator.h"

#include "runtime/generate/Continuations.h"
#include "runtime/generate/Sampler.h"
#include "runtime/io/Shape.h"
#include "runtime/io/TensorNames.h"
#include "runtime/io/Words.h"
#include "runtime/train/Rank.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace braid::runtime {

static Status wrongShape(const EntryInfo &entry, const TensorInfo &tensor, std::string_view wanted) {
  return Status::error(ErrorCode::unsupported, "entry @{}: '{}' has shape {}, but generation needs {}", entry.name,
                       tensor.name, formatShape(tensor.shape), wanted);
}

static Status checkNumbers(const EntryInfo &entry, const TensorInfo &tensor, DType type, std::vector<int64_t> shape) {
  BRAID_TRY(checkTensor(entry, tensor, type, 2));
  return tensor.shape == shape ? Status::success() : wrongShape(entry, tensor, formatShape(shape));
}

// What all entries read.
Expected<Generator::Bucket> Generator::bucketOf(const EntryInfo &entry, int64_t length) {
  const Program &program = session->program();
  auto batch = static_cast<int64_t>(rows.size());
  BRAID_ASSIGN(const TensorInfo *tokens, entryInput(program, entry, "tokens"));
  BRAID_ASSIGN(const TensorInfo *documents, entryInput(program, entry, "cu_seqlens"));
  BRAID_TRY(checkNumbers(entry, *tokens, DType::i32, {batch, length}));
  BRAID_TRY(checkNumbers(entry, *documents, DType::i32, {batch, 2}));
  Bucket bucket{.length = length};
  BRAID_ASSIGN(bucket.entry, session->entry(entry.name));
  bucket.tokens = session->tensor(*tokens).as<int32_t>();
  bucket.cuSeqlens = session->tensor(*documents).as<int32_t>();
  return bucket;
}

Status Generator::addBucket(const EntryInfo &entry, int64_t length) {
  BRAID_ASSIGN(Bucket bucket, bucketOf(entry, length));
  BRAID_ASSIGN(const TensorInfo *logits, entryOutput(session->program(), entry, "logits"));
  BRAID_TRY(checkTensor(entry, *logits, DType::f32, 2));
  auto batch = static_cast<int64_t>(rows.size());
  if (logits->shape[0] != batch || (!table.empty() && logits->shape[1] != static_cast<int64_t>(vocabularySize)))
    return wrongShape(entry, *logits,
                      table.empty() ? fmt::format("[{}, vocabulary]", batch)
                                    : fmt::format("[{}, {}]", batch, vocabularySize));
  vocabularySize = static_cast<size_t>(logits->shape[1]);
  bucket.logits = session->tensor(*logits).as<float>();
  table.push_back(bucket);
  return Status::success();
}

Status Generator::addScoreBucket(const EntryInfo &entry, int64_t length) {
  BRAID_ASSIGN(Bucket bucket, bucketOf(entry, length));
  const Program &program = session->program();
  std::vector<int64_t> shape = {static_cast<int64_t>(rows.size()), length};
  BRAID_ASSIGN(const TensorInfo *labels, entryInput(program, entry, "labels"));
  BRAID_ASSIGN(const TensorInfo *losses, entryOutput(program, entry, "losses"));
  BRAID_ASSIGN(const TensorInfo *likeliest, entryOutput(program, entry, "likeliest"));
  BRAID_ASSIGN(const TensorInfo *likeliestLosses, entryOutput(program, entry, "likeliest_losses"));
  BRAID_TRY(checkNumbers(entry, *labels, DType::i32, shape));
  BRAID_TRY(checkNumbers(entry, *losses, DType::f32, shape));
  BRAID_TRY(checkNumbers(entry, *likeliest, DType::i32, shape));
  BRAID_TRY(checkNumbers(entry, *likeliestLosses, DType::f32, shape));
  bucket.labels = session->tensor(*labels).as<int32_t>();
  bucket.losses = session->tensor(*losses).as<float>();
  bucket.likeliest = session->tensor(*likeliest).as<int32_t>();
  bucket.likeliestLosses = session->tensor(*likeliestLosses).as<float>();
  scoreTable.push_back(bucket);
  return Status::success();
}

// The N of an entry <prefix><N>; 0 for other names.
static int64_t numberBehind(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix))
    return 0;
  const char *begin = name.data() + prefix.size(), *end = name.data() + name.size();
  int64_t number = 0;
  auto [stop, error] = std::from_chars(begin, end, number);
  return error == std::errc() && stop == end ? number : 0;
}

Status checkGenerates(const Program &program) {
  if (uint32_t stages = program.mesh().size(stageAxis).value_or(1);
      stages > 1 &&
      std::ranges::none_of(program.entries(), [](const EntryInfo &entry) { return generates(entry.name); }))
    return Status::error(
        ErrorCode::unsupported,
        "{}: was compiled for pp={}, and texts are generated without a pipeline; valid: the same model "
        "compiled with pp=1, which reads the same checkpoints",
        program.path(), stages);
  return Status::success();
}

Expected<Generator> Generator::bind(Session &session) {
  const Program &program = session.program();
  BRAID_TRY(checkGenerates(program));
  Generator generator(session);
  const EntryInfo *decode = nullptr;
  for (const EntryInfo &entry : program.entries())
    if (int64_t batch = numberBehind(entry.name, "decode_"); batch > static_cast<int64_t>(generator.rows.size())) {
      decode = &entry;
      BRAID_ASSIGN(const TensorInfo *tokens, entryInput(program, entry, "tokens"));
      BRAID_TRY(checkTensor(entry, *tokens, DType::i32, 2));
      if (tokens->shape[0] != batch)
        return Status::error(ErrorCode::unsupported, "entry @{}: '{}' has shape {}, but generation needs [{}, 1]",
                             entry.name, tokens->name, formatShape(tokens->shape), batch);
      generator.rows.resize(static_cast<size_t>(batch));
    }
  if (!decode) {
    BRAID_ASSIGN(decode, findEntry(program, "decode_1"));
  }
  BRAID_TRY(generator.addBucket(*decode, 1));
  for (const EntryInfo &entry : program.entries())
    if (int64_t length = numberBehind(entry.name, "prefill_"); length > 1) // other names are not buckets
      BRAID_TRY(generator.addBucket(entry, length));
  for (const EntryInfo &entry : program.entries())
    if (int64_t length = numberBehind(entry.name, "score_"); length > 0 && entry.kept)
      BRAID_TRY(generator.addScoreBucket(entry, length));
  for (std::vector<Bucket> *table : {&generator.table, &generator.scoreTable})
    std::ranges::sort(*table, std::ranges::greater(), &Bucket::length);
  // On a CPU a bucket of 32 takes as long as 7 to 20 single tokens (test/benchmark/results). On a GPU both read the same
  // weights, so one is expected to take about as long as the other; not measured.
  if (generator.table.size() > 1) {
    auto shortest = static_cast<size_t>(generator.table[generator.table.size() - 2].length);
    generator.paddedFrom = session.onGpu() ? 2 : (3 * shortest + 3) / 4;
  }
  BRAID_ASSIGN(std::optional<double> limit, metadataNumber(program, "context_len"));
  if (limit)
    generator.contextLimit = static_cast<int64_t>(std::clamp(*limit, 0.0, static_cast<double>(INT32_MAX)));
  generator.addCaches();
  generator.reset();
  return generator;
}

void Generator::addCaches() {
  auto batch = static_cast<int64_t>(rows.size());
  for (const TensorInfo &tensor : session->program().tensors()) {
    if (tensor.role != Role::cache || !session->program().holds(tensor))
      continue;
    TensorView view = session->tensor(tensor);
    for (size_t layer = 0; layer < tensor.layerCount(); ++layer)
      caches.push_back(view.layer(layer));
    areBySequences &= !tensor.shape.empty() && tensor.shape[0] == batch;
  }
}

// What a sequence of so many tokens has of a cache.
size_t Generator::cacheRowBytes(const TensorView &cache, int64_t tokens) const {
  size_t bytes = cache.bytes / rows.size();
  if (cache.info->slot != "positions")
    return bytes;
  int64_t positions = cache.info->shape[1];
  return bytes / static_cast<size_t>(positions) * static_cast<size_t>(std::min(tokens, positions));
}

size_t Generator::stateBytes(int64_t tokens) const {
  size_t bytes = 0;
  for (const TensorView &cache : caches)
    bytes += areBySequences ? cacheRowBytes(cache, tokens) : 0;
  return bytes;
}

Status Generator::eachCacheRow(size_t sequence, int64_t tokens,
                               const std::function<Status(const TensorView &row)> &use) {
  for (const TensorView &cache : caches)
    BRAID_TRY(use({cache.info, cache.data + sequence * (cache.bytes / rows.size()), cacheRowBytes(cache, tokens)}));
  return Status::success();
}

Expected<Generator::State> Generator::save(size_t sequence) {
  State state{rows[sequence].position, {}};
  state.bytes.reserve(stateBytes(state.position));
  BRAID_TRY(eachCacheRow(sequence, state.position, [&](const TensorView &row) -> Status {
    BRAID_TRY(session->toHost(row));
    state.bytes.insert(state.bytes.end(), row.data, row.data + row.bytes);
    return Status::success();
  }));
  return state;
}

Status Generator::restore(size_t sequence, const State &state) {
  const std::byte *from = state.bytes.data();
  BRAID_TRY(eachCacheRow(sequence, state.position, [&](const TensorView &row) {
    std::copy_n(from, row.bytes, row.data);
    from += row.bytes;
    return session->toDevice(row);
  }));
  rows[sequence] = Row();
  rows[sequence].position = state.position;
  return Status::success();
}

// Caches stay as they are: a sequence that begins reads nothing of them, and large ones take seconds to clear.
void Generator::reset() {
  for (Row &row : rows)
    row = Row();
}

std::vector<int64_t> Generator::buckets() const {
  std::vector<int64_t> lengths;
  for (const Bucket &bucket : table)
    lengths.push_back(bucket.length);
  return lengths;
}

const Generator::Bucket &Generator::bucketFor(size_t tokens, bool areScored) const {
  if (areScored) { // the shortest one that is full to three quarters, or the longest that is full
    const Bucket *best = &scoreTable.back();
    for (const Bucket &bucket : scoreTable)
      if (auto length = static_cast<size_t>(bucket.length); 4 * tokens > 3 * length) {
        best = &bucket;
        break;
      }
    return *best;
  }
  auto fits = std::find_if(table.begin(), table.end(), [&](const Bucket &bucket) {
    return bucket.length <= static_cast<int64_t>(tokens); // decode always fits
  });
  bool padded = fits == std::prev(table.end()) && fits != table.begin() && tokens >= paddedFrom;
  return padded ? *std::prev(fits) : *fits;
}

Status Generator::checkScores() const {
  return scoreTable.empty()
             ? Status::error(ErrorCode::unsupported,
                             "{}: has no entry score_<N>, which says how likely the tokens of a prompt are; valid: a "
                             "program that is compiled again, with a context_len of 32 and more",
                             session->program().path())
             : Status::success();
}

size_t Generator::callLength(size_t tokens, bool areScored) const {
  return std::min(tokens, static_cast<size_t>(bucketFor(tokens, areScored).length));
}

Status Generator::check(std::span<const Piece> pieces) const {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece &piece = pieces[i];
    if (piece.sequence >= rows.size())
      return Status::error("there is no sequence {}: the program continues {} at a time", piece.sequence, rows.size());
    for (const Piece &other : pieces.first(i))
      if (other.sequence == piece.sequence)
        return Status::error("sequence {} is given twice", piece.sequence);
    if (piece.tokens.empty())
      return Status::error("a sequence needs at least one token before there are logits");
    if (!piece.labels.empty() && piece.labels.size() != piece.tokens.size())
      return Status::error("sequence {}: there are {} of {}", piece.sequence, counted(piece.labels.size(), "label"),
                           counted(piece.tokens.size(), "token"));
    if (!piece.labels.empty())
      BRAID_TRY(checkScores());
    int64_t length = rows[piece.sequence].position + static_cast<int64_t>(piece.tokens.size());
    if (length > contextLimit)
      return Status::error("the sequence would have {}, but the program was compiled for a context of {}",
                           counted(length, "token"), contextLimit);
  }
  return Status::success();
}

Status Generator::feed(std::span<const Piece> pieces) {
  BRAID_TRY(check(pieces));
  for (const Piece &piece : pieces) {
    Row &row = rows[piece.sequence];
    row.rest = piece.tokens;
    row.labels = piece.labels;
    row.scores.clear();
  }
  for (;;) {
    // The longest bucket that any of them fills, for all that fill it.
    const Bucket *bucket = nullptr;
    for (const Row &row : rows)
      if (!row.rest.empty())
        if (const Bucket &fits = bucketFor(row); !bucket || fits.length > bucket->length)
          bucket = &fits;
    if (!bucket)
      return Status::success();
    if (Status status = advance(*bucket); !status.ok()) {
      for (Row &row : rows)
        row.rest = {};
      return status;
    }
  }
}

// One call, for all sequences whose bucket this is.
Status Generator::advance(const Bucket &bucket) {
  auto length = static_cast<size_t>(bucket.length);
  auto takes = [&](const Row &row) { return !row.rest.empty() && &bucketFor(row) == &bucket; };
  auto countOf = [&](const Row &row) { return takes(row) ? std::min(length, row.rest.size()) : 0; };
  bool scored = !bucket.labels.empty();
  int64_t furthest = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    Row &row = rows[i];
    size_t count = countOf(row);
    bucket.cuSeqlens[2 * i] = static_cast<int32_t>(-row.position);
    bucket.cuSeqlens[2 * i + 1] = static_cast<int32_t>(count);
    if (!takes(row))
      continue;
    std::copy_n(row.rest.begin(), count, bucket.tokens.subspan(i * length).begin());
    if (scored)
      std::copy_n(row.labels.begin(), count, bucket.labels.subspan(i * length).begin());
    furthest = std::max(furthest, row.position);
  }
  if (Status status = session->run(bucket.entry); !status.ok())
    return status.withContext(fmt::format("position {}", furthest));
  bool more = std::any_of(rows.begin(), rows.end(), [&](const Row &row) { return row.rest.size() > countOf(row); });
  for (size_t i = 0; i < rows.size(); ++i) {
    Row &row = rows[i];
    if (!takes(row))
      continue;
    size_t count = countOf(row);
    row.position += static_cast<int64_t>(count);
    row.rest = row.rest.subspan(count);
    if (scored) {
      row.labels = row.labels.subspan(count);
      for (size_t t = i * length; t < i * length + count; ++t) {
        // What is the likeliest itself is not less likely by a rounding.
        bool isLikeliest = bucket.labels[t] == bucket.likeliest[t];
        float likeliestLoss = isLikeliest ? bucket.losses[t] : bucket.likeliestLosses[t];
        row.scores.push_back({-bucket.losses[t], bucket.likeliest[t], -likeliestLoss});
      }
      continue;
    }
    row.logits = bucket.logits.subspan(i * vocabularySize, vocabularySize);
    if (row.rest.empty() && more) { // the next call may write over them
      row.kept.assign(row.logits.begin(), row.logits.end());
      row.logits = row.kept;
    }
  }
  return Status::success();
}

Expected<std::span<const float>> Generator::feed(std::span<const int32_t> tokens) {
  Piece piece{0, tokens};
  BRAID_TRY(feed(std::span(&piece, 1)));
  return logits(0);
}

static Status checkPrompts(const Generator &generator, std::span<const std::vector<int32_t>> prompts,
                           int64_t maxTokens) {
  if (maxTokens < 0)
    return Status::error("the number of tokens to generate must not be negative: {}", maxTokens);
  for (size_t n = 0; n < prompts.size(); ++n)
    if (Status status = checkPrompt(generator, prompts[n], maxTokens); !status.ok())
      return prompts.size() == 1 ? status : status.withContext(fmt::format("prompt {}", n));
  return Status::success();
}

Status checkPrompt(const Generator &generator, std::span<const int32_t> prompt, int64_t maxTokens) {
  if (prompt.empty())
    return Status::error("the prompt is empty: the model continues a text and needs at least one token of it");
  for (size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || static_cast<size_t>(prompt[i]) >= generator.vocabulary())
      return Status::error("token {} of the prompt is {}, but the vocabulary has 0 to {}", i, prompt[i],
                           generator.vocabulary() - 1);
  // The last token is sampled but not fed.
  int64_t needed = static_cast<int64_t>(prompt.size()) + std::max<int64_t>(maxTokens - 1, 0);
  if (needed > generator.contextLength())
    return Status::error("a prompt of {} and {} more need a context of {}, but the program was compiled for {}; valid: "
                         "less of both, or a program with a greater context_len",
                         counted(prompt.size(), "token"), maxTokens, needed, generator.contextLength());
  return Status::success();
}

Expected<GenerateResult> generate(Generator &generator, std::span<const std::vector<int32_t>> prompts,
                                  int64_t maxTokens, const SamplerOptions &options, size_t choices,
                                  const std::function<AfterToken(size_t, int32_t)> &emit) {
  BRAID_TRY(checkPrompts(generator, prompts, maxTokens));
  BRAID_TRY(Sampler::create(options, generator.vocabulary(), choices).status());
  Continuations batch(generator, {.choices = choices});
  GenerateResult result;
  result.tokens.resize(prompts.size());
  Status status = Status::success();
  auto add = [&](uint64_t prompt, const Expected<int32_t> &token, std::span<const float>) {
    if (!token) {
      status = prompts.size() == 1 ? token.status() : token.status().withContext(fmt::format("prompt {}", prompt));
      return AfterToken::endAll;
    }
    result.tokens[prompt].push_back(*token);
    return emit(prompt, *token);
  };
  for (size_t next = 0;;) {
    // A call for prompts takes as long for one as for all rows: they wait for each other until a quarter is free.
    bool enough = 4 * batch.room() >= batch.sequences();
    for (; enough && next < prompts.size() && batch.room() > 0; ++next) {
      SamplerOptions own = options;
      own.seed += next;
      BRAID_TRY(batch.begin(next, {prompts[next], maxTokens, own}).status());
    }
    if (batch.empty())
      break;
    BRAID_ASSIGN(bool goesOn, batch.step(add));
    BRAID_TRY(status);
    if (!goesOn)
      break;
  }
  result.promptTokens = batch.counts().promptTokens;
  result.generatedTokens = batch.counts().drawnTokens;
  result.promptSeconds = batch.counts().promptSeconds;
  result.decodeSeconds = batch.counts().decodeSeconds;
  return result;
}

std::vector<int32_t> byteTokens(std::string_view text) {
  std::vector<int32_t> tokens;
  for (char c : text)
    tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

} // namespace braid::runtime
