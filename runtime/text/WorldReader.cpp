// Reads rwkv_vocab_*.txt, the World vocabulary: lines of a token's number, its text as Python's repr() writes
// it ('..', or b'..' of bytes that are no text by themselves), and how many bytes that is.
#include "runtime/io/JsonText.h"
#include "runtime/text/TokenizerReader.h"
#include "runtime/text/Utf8.h"

#include <charconv>

namespace braid::runtime {

namespace {

// Ends a document; in no file.
constexpr std::string_view endOfText = "<|rwkv_tokenizer_end_of_text|>";

template <typename Number> bool readNumber(std::string_view text, Number &number, int base = 10) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// What stands for a character behind a backslash, which it takes from the front of `rest`. Of bytes a number is a byte.
bool readEscape(std::string_view &rest, bool isBytes, std::string &out) {
  constexpr std::pair<char, char> plain[] = {{'\\', '\\'}, {'\'', '\''}, {'"', '"'},
                                             {'n', '\n'},  {'r', '\r'},  {'t', '\t'}};
  if (rest.empty())
    return false;
  char kind = rest[0];
  rest.remove_prefix(1);
  for (auto [letter, character] : plain)
    if (kind == letter) {
      out += character;
      return true;
    }
  size_t digits = kind == 'x' ? 2 : isBytes ? 0 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
  uint32_t number = 0;
  if (!digits || !readNumber(rest.substr(0, digits), number, 16) || rest.size() < digits)
    return false;
  rest.remove_prefix(digits);
  constexpr uint32_t last = 0x10ffff, firstSurrogate = 0xd800, lastSurrogate = 0xdfff;
  if (isBytes)
    out += static_cast<char>(number);
  else if (number > last || (number >= firstSurrogate && number <= lastSurrogate))
    return false;
  else
    appendCharacter(out, number);
  return true;
}

// '..' or "..", of bytes behind a b, as repr() writes it.
std::optional<std::string> readLiteral(std::string_view literal) {
  bool isBytes = literal.starts_with('b');
  literal.remove_prefix(isBytes ? 1 : 0);
  if (literal.size() < 2 || (literal[0] != '\'' && literal[0] != '"') || literal.back() != literal[0])
    return std::nullopt;
  std::string_view rest = literal.substr(1, literal.size() - 2);
  std::string bytes;
  while (!rest.empty()) {
    char c = rest[0];
    rest.remove_prefix(1);
    if (c == literal[0] || (isBytes && static_cast<unsigned char>(c) > 0x7e))
      return std::nullopt;
    if (c != '\\')
      bytes += c;
    else if (!readEscape(rest, isBytes, bytes))
      return std::nullopt;
  }
  return bytes;
}

Expected<LongestTokens> readLines(std::string_view text) {
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (line.empty())
      continue;
    size_t first = line.find(' '), last = line.rfind(' ');
    int32_t token = 0;
    size_t count = 0;
    std::optional<std::string> bytes;
    if (first < last && readNumber(line.substr(0, first), token) && readNumber(line.substr(last + 1), count))
      bytes = readLiteral(line.substr(first + 1, last - first - 1));
    if (!bytes || bytes->empty() || token < 1 || token >= mostTokens)
      return Status::error(ErrorCode::corruptFile,
                           "line {}: is '{}'; valid: a number from 1 to {}, a text or bytes as Python writes them, and "
                           "how many bytes they are",
                           number, escaped(line.substr(0, 64)), mostTokens - 1);
    if (bytes->size() != count)
      return Status::error(ErrorCode::corruptFile, "line {}: '{}' has {} bytes, and not {}", number,
                           escaped(bytes->substr(0, 64)), bytes->size(), count);
    vocabulary.emplace_back(*std::move(bytes), token);
  }
  return LongestTokens::make(std::move(vocabulary));
}

} // namespace

TokenizerReader::Result TokenizerReader::readWorld(std::string_view text, const std::string &path) {
  auto result = std::make_shared<Tokenizer>();
  result->sourceFiles = {{std::string(Tokenizer::files[2]), path, contentHash(std::as_bytes(std::span(text)))}};
  BRAID_ASSIGN(result->model, readLines(text));
  AddedToken end;
  end.token = 0, end.content = endOfText, end.special = true;
  BRAID_ASSIGN(result->added, AddedTokens::make({std::move(end)}, result->normalizer));
  return whole(std::move(result));
}

} // namespace braid::runtime
