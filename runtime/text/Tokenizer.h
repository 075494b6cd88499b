// Text to tokens and back, as Hugging Face's tokenizer.json says: added tokens, normalizers, pre-tokenizers, byte pair
// encoding, the tokens put around a text, and the decoder; or as tiktoken.model does, with tokenizer_config.json beside it;
// or as the World vocabulary does.
// What such a file may say and this does not read is refused by name, with what is read: no text is ever cut otherwise than
// its model was trained with.
#pragma once

#include "runtime/io/File.h"
#include "runtime/text/AddedTokens.h"
#include "runtime/text/BytePairs.h"
#include "runtime/text/LongestTokens.h"
#include "runtime/text/TokenDecoder.h"

#include <memory>
#include <span>
#include <variant>

namespace braid::runtime {

class Tokenizer {
public:
  // The names that they have in a directory, the first that is there counts (those of CheckpointIndex).
  static constexpr std::string_view files[] = {"tokenizer.json", "tiktoken.model", "rwkv_vocab_v20230424.txt"};
  // What lies beside the second.
  static constexpr std::string_view ranksConfig = "tokenizer_config.json";
  static std::optional<std::string> fileIn(const std::string &directory) {
    for (std::string_view name : files)
      if (std::string path = fmt::format("{}/{}", directory, name); pathExists(path))
        return path;
    return std::nullopt;
  }

  // Such a file (or one whose name ends with .tiktoken, or is rwkv_vocab*.txt, or that begins as those do), or a directory with one.
  static Expected<std::shared_ptr<const Tokenizer>> load(const std::string &path);
  // The text of a tokenizer.json; `path` is for errors.
  static Expected<std::shared_ptr<const Tokenizer>> parse(std::string_view json, const std::string &path);
  // Those of a tiktoken.model and of the tokenizer_config.json beside it.
  static Expected<std::shared_ptr<const Tokenizer>> parseRanks(std::string_view ranks, std::string_view config,
                                                               const std::string &path);
  // That of a rwkv_vocab_v20230424.txt.
  static Expected<std::shared_ptr<const Tokenizer>> parseWorld(std::string_view vocabulary, const std::string &path);

  // A file that says how texts are read.
  struct Source {
    std::string name, path; // in a directory of its own; where it was read
    ContentHash hash; // of its text
  };
  const std::string &path() const { return sourceFiles[0].path; }
  const std::vector<Source> &sources() const { return sourceFiles; }
  // Of the texts of all of them.
  ContentHash hash() const;
  // One more than the greatest token.
  int64_t vocabulary() const { return vocabularySize; }
  // The token that has exactly this text, added ones first.
  std::optional<int32_t> tokenOf(std::string_view content) const;
  // The tokens put before and behind a text.
  const std::vector<int32_t> &prefix() const { return prefixTokens; }
  const std::vector<int32_t> &suffix() const { return suffixTokens; }

private:
  friend class TextEncoder;
  friend class TextDecoder;
  friend class TokenizerReader;

  std::vector<Source> sourceFiles;
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer preTokenizer;
  // The text of every token but added ones.
  const std::unordered_map<int32_t, std::string> &texts() const;

  std::variant<BytePairs, LongestTokens> model;
  Decoder decoder;
  std::vector<int32_t> prefixTokens, suffixTokens;
  int64_t vocabularySize = 0;
};

// Of one thread. Remembers the tokens of pieces that it has seen.
class TextEncoder {
public:
  explicit TextEncoder(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer(std::move(tokenizer)) {}

  // An error names the byte that is no UTF-8. `whole`: with what is put around a text.
  Expected<std::vector<int32_t>> encode(std::string_view text, bool whole = true);

private:
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unordered_map<std::string, std::vector<int32_t>> known;
};

// Of one text, token by token.
class TextDecoder {
public:
  // `special`: also tokens of the format are written.
  TextDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool special)
      : tokenizer(std::move(tokenizer)), special(special), decoder(this->tokenizer->decoder) {}

  // The bytes that the token adds; numbers without a token add none.
  Expected<std::string> add(int32_t token);

private:
  std::shared_ptr<const Tokenizer> tokenizer;
  [[maybe_unused]] bool special;
  TokenDecoder decoder;
};

// Encodes texts side by side on several threads.
class TextEncoders {
public:
  TextEncoders(std::shared_ptr<const Tokenizer> tokenizer, unsigned threads);

  // The tokens of each. An error is that of the first text that has one, whose number is `failed`.
  Expected<std::vector<std::vector<int32_t>>> encode(std::span<const std::string> texts, size_t &failed);

private:
  std::vector<TextEncoder> encoders; // one a thread
};

} // namespace braid::runtime
