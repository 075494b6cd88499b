// Reads tokenizer.json, the files of tiktoken, and the World vocabulary.
#pragma once

#include "runtime/text/Tokenizer.h"

#include <nlohmann/json.hpp>

namespace braid::runtime {

// Numbers of tokens are below it.
inline constexpr int64_t mostTokens = int64_t(1) << 24;

// An object of the file, and where it stands there ("pre_tokenizer.pretokenizers[1]").
class TokenizerFields {
public:
  static Expected<TokenizerFields> of(const nlohmann::json &value, std::string at);

  const std::string &at() const { return place; }
  std::string at(std::string_view key) const;
  // Absent, or null.
  bool lacks(const char *key) const;
  Expected<std::string> text(const char *key) const;
  Expected<std::string> textOr(const char *key, std::string_view otherwise) const;
  Expected<bool> flagOr(const char *key, bool otherwise) const;
  // From 0 on, below 2^24.
  Expected<int64_t> number(const char *key) const;
  Expected<int64_t> numberOr(const char *key, int64_t otherwise) const;
  Expected<const nlohmann::json *> list(const char *key) const;
  Expected<TokenizerFields> object(const char *key) const;
  const nlohmann::json &value() const { return *json; }
  // "pre_tokenizer.type: 'Lowercase' is not read; read are A, B"
  Status unread(const char *key, std::string_view value, std::string_view read) const;
  Status wrong(const char *key, std::string_view wanted) const;

private:
  TokenizerFields(const nlohmann::json &value, std::string at) : json(&value), place(std::move(at)) {}

  const nlohmann::json *json;
  std::string place;
};

Expected<Normalizer> readNormalizer(const TokenizerFields &top);
Expected<PreTokenizer> readPreTokenizer(const TokenizerFields &top);
Expected<Decoder> readDecoder(const TokenizerFields &top);
Expected<BytePairs> readBytePairs(const TokenizerFields &top);
// Content and flags; the number is left alone.
Expected<AddedToken> readAddedToken(const TokenizerFields &fields);

class TokenizerReader {
public:
  using Result = Expected<std::shared_ptr<const Tokenizer>>;
  static Result readJson(std::string_view text, const std::string &path);
  static Result readRanks(std::string_view ranks, std::string_view config, const std::string &path);
  static Result readWorld(std::string_view text, const std::string &path);

private:
  // A tokenizer that has all of its parts.
  static Result whole(std::shared_ptr<Tokenizer> tokenizer);
};

} // namespace braid::runtime
