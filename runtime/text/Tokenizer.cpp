#include "runtime/text/Tokenizer.h"

#include "runtime/text/Utf8.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>

namespace braid::runtime {

namespace {

// What an encoder remembers: most words of a text are among these.
constexpr size_t mostKnown = size_t(1) << 16, longestKnown = 64;

} // namespace

ContentHash Tokenizer::hash() const {
  if (sourceFiles.size() == 1)
    return sourceFiles[0].hash;
  std::string all;
  for (const Source &source : sourceFiles)
    all += source.name + source.hash.hex();
  return contentHash(std::as_bytes(std::span(all)));
}

std::optional<int32_t> Tokenizer::tokenOf(std::string_view content) const {
  std::optional<int32_t> token = added.tokenOf(content);
  return token ? token : std::visit([&](const auto &tokens) { return tokens.tokenOf(content); }, model);
}

const std::unordered_map<int32_t, std::string> &Tokenizer::texts() const {
  return std::visit([](const auto &tokens) -> const auto & { return tokens.texts(); }, model);
}

Expected<std::vector<int32_t>> TextEncoder::encode(std::string_view text, bool whole) {
  if (std::optional<size_t> invalid = firstInvalidUtf8(text))
    return Status::error(ErrorCode::corruptFile, "byte {} (0x{:02x}) is no UTF-8, which a tokenizer reads", *invalid,
                         static_cast<unsigned char>(text[*invalid]));
  BRAID_ASSIGN(std::vector<TextPiece> pieces, tokenizer->added.cut(text, tokenizer->normalizer));
  std::vector<int32_t> tokens;
  if (whole)
    tokens = tokenizer->prefixTokens;
  auto add = [&](TextPiece &piece) {
    if (auto found = known.find(piece.text); found != known.end()) {
      tokens.insert(tokens.end(), found->second.begin(), found->second.end());
    } else {
      size_t begin = tokens.size();
      std::visit([&](const auto &model) { model.encode(piece.text, tokens); }, tokenizer->model);
      if (piece.text.size() <= longestKnown && known.size() < mostKnown)
        known.emplace(std::move(piece.text),
                      std::vector<int32_t>(tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.end()));
    }
    return Status::success();
  };
  for (TextPiece &piece : pieces) {
    if (piece.token >= 0)
      tokens.push_back(piece.token);
    else
      BRAID_TRY(tokenizer->preTokenizer.forEach(std::move(piece), add));
  }
  if (whole)
    tokens.insert(tokens.end(), tokenizer->suffixTokens.begin(), tokenizer->suffixTokens.end());
  return tokens;
}

Expected<std::string> TextDecoder::add(int32_t token) {
  if (const AddedToken *added = tokenizer->added.find(token)) {
    if (added->special && !special)
      return std::string();
    return decoder.add(added->content);
  }
  auto text = tokenizer->texts().find(token);
  return text == tokenizer->texts().end() ? Expected<std::string>(std::string()) : decoder.add(text->second);
}

TextEncoders::TextEncoders(std::shared_ptr<const Tokenizer> tokenizer, unsigned threads)
    : encoders(std::max(threads, 1u), TextEncoder(tokenizer)) {}

Expected<std::vector<std::vector<int32_t>>> TextEncoders::encode(std::span<const std::string> texts, size_t &failed) {
  std::vector<std::vector<int32_t>> result(texts.size());
  std::vector<Status> statuses(texts.size(), Status::success());
  std::atomic<size_t> next = 0;
  auto encodeOne = [&](TextEncoder &encoder, size_t i) -> Status {
    try {
      BRAID_ASSIGN(result[i], encoder.encode(texts[i]));
      return Status::success();
    } catch (const std::bad_alloc &) {
      return Status::error(ErrorCode::ioError, "the {} bytes of the text and their tokens do not fit in memory",
                           texts[i].size());
    }
  };
  auto work = [&](TextEncoder &encoder) {
    for (size_t i = next++; i < texts.size(); i = next++)
      statuses[i] = encodeOne(encoder, i);
  };
  std::vector<std::thread> workers;
  for (size_t i = 1; i < std::min(encoders.size(), texts.size()); ++i)
    workers.emplace_back([&, i] { work(encoders[i]); });
  work(encoders[0]);
  for (std::thread &worker : workers)
    worker.join();
  for (failed = 0; failed < statuses.size(); ++failed)
    BRAID_TRY(statuses[failed]);
  return result;
}

} // namespace braid::runtime
