// Reads tiktoken.model: lines of a token's bytes in base64 and its number. How texts are cut stands in the Python code of a
// class that tokenizer_config.json names, with the tokens that are added; here the classes are known by name.
#include "runtime/io/JsonText.h"
#include "runtime/text/TokenizerReader.h"

#include <charconv>
#include <filesystem>
#include <map>

namespace braid::runtime {

namespace {

using Vocabulary = std::vector<std::pair<std::string, int32_t>>;

// A class of tokenizers: what cuts texts, in the language of Rust's regular expressions, which means here what Oniguruma's
// does, and how many numbers behind those of the ranks are tokens, too.
struct RanksClass {
  std::string_view name, pattern;
  int64_t reserved;
};
constexpr RanksClass classes[] = {
    // Kimi K2, Kimi Linear: runs of Han characters are pieces of their own.
    {"tokenization_kimi.TikTokenTokenizer",
     R"([\p{Han}]+)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     258}};

std::optional<int> valueOf(char digit) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t at = digits.find(digit);
  return at == std::string_view::npos ? std::nullopt : std::optional(static_cast<int>(at));
}

// The bytes of a text in base64 (RFC 4648) with its padding.
std::optional<std::string> bytesOf(std::string_view base64) {
  size_t padding = base64.ends_with("==") ? 2 : base64.ends_with('=') ? 1 : 0;
  if (base64.empty() || base64.size() % 4 != 0)
    return std::nullopt;
  base64.remove_suffix(padding);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char digit : base64) {
    std::optional<int> value = valueOf(digit);
    if (!value)
      return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(*value)) & 0xffffff;
    count += 6;
    if (count >= 8)
      bytes += static_cast<char>(bits >> (count -= 8));
  }
  return bytes;
}

Expected<Vocabulary> readVocabulary(std::string_view text) {
  Vocabulary vocabulary;
  size_t number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (line.empty())
      continue;
    size_t blank = line.find(' ');
    std::string_view rank = blank == std::string_view::npos ? "" : line.substr(blank + 1);
    std::optional<std::string> bytes = bytesOf(line.substr(0, blank));
    int32_t token = -1;
    auto [end, error] = std::from_chars(rank.data(), rank.data() + rank.size(), token);
    if (!bytes || error != std::errc() || end != rank.data() + rank.size() || token < 0 || token >= mostTokens)
      return Status::error(ErrorCode::corruptFile, "line {}: is '{}'; valid: a token in base64 and its number, 0 to {}",
                           number, escaped(line.substr(0, 64)), mostTokens - 1);
    vocabulary.emplace_back(lettersOfBytes(*bytes), token);
  }
  return vocabulary;
}

// What transformers loads: "tokenization_kimi.TikTokenTokenizer", also as "somebody/model--tokenization_kimi..".
Expected<const RanksClass *> classOf(const TokenizerFields &top) {
  std::string name, at = "auto_map.AutoTokenizer";
  if (!top.lacks("auto_map")) {
    BRAID_ASSIGN(TokenizerFields map, top.object("auto_map"));
    if (map.lacks("AutoTokenizer") || !map.value()["AutoTokenizer"].is_array()) {
      BRAID_ASSIGN(name, map.text("AutoTokenizer"));
    } else if (const nlohmann::json &names = map.value()["AutoTokenizer"]; !names.empty() && names[0].is_string()) {
      name = names[0].get<std::string>();
    }
  } else {
    at = "tokenizer_class";
    BRAID_ASSIGN(name, top.text("tokenizer_class"));
  }
  if (size_t repository = name.rfind("--"); repository != std::string::npos)
    name.erase(0, repository + 2);
  for (const RanksClass &known : classes)
    if (name == known.name)
      return &known;
  return Status::error(ErrorCode::unsupported,
                       "{}: how '{}' cuts texts stands in its Python code, and is not known; valid: {}", at,
                       escaped(name), classes[0].name);
}

Expected<std::vector<AddedToken>> readAdded(const TokenizerFields &top, int64_t first, int64_t reserved) {
  std::map<int64_t, AddedToken> tokens;
  if (!top.lacks("added_tokens_decoder")) {
    BRAID_ASSIGN(TokenizerFields added, top.object("added_tokens_decoder"));
    for (const auto &[key, value] : added.value().items()) {
      BRAID_ASSIGN(TokenizerFields fields, TokenizerFields::of(value, added.at(key)));
      int64_t number = -1;
      auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
      if (error != std::errc() || end != key.data() + key.size() || number < first || number >= first + reserved)
        return Status::error(ErrorCode::corruptFile, "{}: valid: a number from {}, behind the ranks, to {}",
                             fields.at(), first, first + reserved - 1);
      BRAID_ASSIGN(AddedToken token, readAddedToken(fields));
      if (token.singleWord || token.leftStrip || token.rightStrip) // which the class's own encode() does not look at
        return Status::error(ErrorCode::unsupported, "{}: single_word, lstrip or rstrip is true; valid: false",
                             fields.at());
      tokens[number] = std::move(token);
    }
  }
  std::vector<AddedToken> result;
  for (int64_t number = first; number < first + reserved; ++number)
    if (auto [token, fresh] = tokens.try_emplace(number); fresh)
      token->second.content = fmt::format("<|reserved_token_{}|>", number);
  std::map<std::string_view, int64_t> known;
  for (const auto &[number, token] : tokens)
    if (auto [other, fresh] = known.emplace(token.content, number); !fresh)
      return Status::error(ErrorCode::corruptFile, "added_tokens_decoder: '{}' has the numbers {} and {}",
                           escaped(token.content), other->second, number);
  for (auto &[number, token] : tokens) {
    token.token = static_cast<int32_t>(number);
    result.push_back(std::move(token));
  }
  return result;
}

} // namespace

TokenizerReader::Result TokenizerReader::readRanks(std::string_view ranks, std::string_view config,
                                                   const std::string &path) {
  std::string beside = std::filesystem::path(path).replace_filename(Tokenizer::ranksConfig);
  auto result = std::make_shared<Tokenizer>();
  auto read = [&](std::string_view name, const std::string &file, std::string_view text) {
    result->sourceFiles.push_back({std::string(name), file, contentHash(std::as_bytes(std::span(text)))});
  };
  read(Tokenizer::files[1], path, ranks);
  read(Tokenizer::ranksConfig, beside, config);
  int64_t first = 0;
  auto readModel = [&]() -> Status {
    BRAID_ASSIGN(Vocabulary vocabulary, readVocabulary(ranks));
    for (const auto &[text, token] : vocabulary)
      first = std::max<int64_t>(first, int64_t(token) + 1);
    if (auto count = static_cast<int64_t>(vocabulary.size()); first > count)
      return Status::error(ErrorCode::corruptFile, "has {} tokens, but the number {}; valid: 0 to {}", count, first - 1,
                           count - 1);
    BRAID_ASSIGN(result->model, BytePairs::ofRanks(std::move(vocabulary)));
    return Status::success();
  };
  auto readConfig = [&]() -> Status {
    BRAID_ASSIGN(nlohmann::json json, parseJsonObject(config));
    BRAID_ASSIGN(TokenizerFields top, TokenizerFields::of(json, ""));
    BRAID_ASSIGN(const RanksClass *known, classOf(top));
    BRAID_ASSIGN(std::vector<AddedToken> added, readAdded(top, first, known->reserved));
    BRAID_ASSIGN(result->added, AddedTokens::make(std::move(added), result->normalizer));
    BRAID_ASSIGN(Pattern pattern, Pattern::compile(known->pattern));
    result->preTokenizer.steps = {Split{std::move(pattern), Delimiter::isolated, false}, BytesToLetters()};
    result->decoder.steps = {LettersToBytes()};
    return Status::success();
  };
  BRAID_TRY(readModel().withContext(path));
  BRAID_TRY(readConfig().withContext(beside));
  return whole(std::move(result));
}

} // namespace braid::runtime
