#include "runtime/text/Utf8.h"

#include <algorithm>
#include <array>
#include <utf8proc.h>
#include <vector>

namespace braid::runtime {

namespace {

bool isAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Negative: no UTF-8.
utf8proc_ssize_t read(std::string_view text, utf8proc_int32_t &character) {
  return utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t *>(text.data()),
                          static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size(), 4)), &character);
}

} // namespace

std::optional<size_t> firstInvalidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t character;
    utf8proc_ssize_t bytes = read(text.substr(at), character);
    if (bytes <= 0)
      return at;
    at += static_cast<size_t>(bytes);
  }
  return std::nullopt;
}

size_t firstCharacterBytes(std::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80)
    ++bytes;
  return bytes;
}

size_t lastCharacterBegin(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80)
    --at;
  return at;
}

char32_t firstCharacter(std::string_view text) {
  utf8proc_int32_t character = 0;
  read(text, character);
  return static_cast<char32_t>(character);
}

void appendCharacter(std::string &text, char32_t character) {
  std::array<utf8proc_uint8_t, 4> bytes;
  utf8proc_ssize_t count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes.data());
  text.append(reinterpret_cast<const char *>(bytes.data()), static_cast<size_t>(count));
}

bool isBlank(char32_t character) {
  return (character >= 0x09 && character <= 0x0d) || character == 0x20 || character == 0x85 || character == 0xa0 ||
         character == 0x1680 || (character >= 0x2000 && character <= 0x200a) || character == 0x2028 ||
         character == 0x2029 || character == 0x202f || character == 0x205f || character == 0x3000;
}

bool isOfWord(char32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_PC: return true;
  // Letters in circles and squares are alphabetic, too, and two format characters join words.
  default:
    return (character >= 0x24b6 && character <= 0x24e9) || (character >= 0x1f130 && character <= 0x1f149) ||
           (character >= 0x1f150 && character <= 0x1f169) || (character >= 0x1f170 && character <= 0x1f189) ||
           character == 0x200c || character == 0x200d;
  }
}

bool isPythonSpace(char32_t character) { return isBlank(character) || (character >= 0x1c && character <= 0x1f); }

bool isPrintable(char32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
  case UTF8PROC_CATEGORY_CN:
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CS:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_ZL:
  case UTF8PROC_CATEGORY_ZP: return false;
  case UTF8PROC_CATEGORY_ZS: return character == ' ';
  default: return true;
  }
}

// What becomes several letters in upper case are those whose case folding is several, each of them in upper case.
static void appendUpper(std::string &out, char32_t character) {
  auto letter = static_cast<utf8proc_int32_t>(character);
  std::array<utf8proc_int32_t, 8> folded;
  utf8proc_ssize_t count = utf8proc_decompose_char(letter, folded.data(), folded.size(), UTF8PROC_CASEFOLD, nullptr);
  bool several = count > 1 && count <= static_cast<utf8proc_ssize_t>(folded.size());
  if (!several || character == 0x130 || character == 0x1e9e) // both are in upper case
    return appendCharacter(out, static_cast<char32_t>(utf8proc_toupper(letter)));
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    appendCharacter(out, static_cast<char32_t>(utf8proc_toupper(folded[static_cast<size_t>(i)])));
}

static bool isCased(char32_t character) {
  auto letter = static_cast<utf8proc_int32_t>(character);
  utf8proc_category_t category = utf8proc_category(letter);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT ||
         utf8proc_toupper(letter) != letter || utf8proc_tolower(letter) != letter;
}

std::string upperCase(std::string_view text) {
  std::string result;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(firstCharacterBytes(rest)))
    appendUpper(result, firstCharacter(rest));
  return result;
}

// `cased`: whether the character before it is a letter with a case.
static void appendLower(std::string &out, std::string_view rest, bool cased) {
  char32_t character = firstCharacter(rest);
  std::string_view behind = rest.substr(firstCharacterBytes(rest));
  if (character == 0x130) // i with the dot above it that it had
    out += "i\u0307";
  else if (character == 0x3a3 && cased && (behind.empty() || !isCased(firstCharacter(behind))))
    appendCharacter(out, 0x3c2);
  else
    appendCharacter(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
}

std::string lowerCase(std::string_view text) {
  std::string result;
  bool cased = false;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(firstCharacterBytes(rest))) {
    appendLower(result, rest, cased);
    cased = isCased(firstCharacter(rest));
  }
  return result;
}

std::string titleCase(std::string_view text) {
  std::string result;
  bool cased = false;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(firstCharacterBytes(rest))) {
    char32_t character = firstCharacter(rest);
    if (cased)
      appendLower(result, rest, cased);
    else if (utf8proc_int32_t title = utf8proc_totitle(static_cast<utf8proc_int32_t>(character)); character != 0xdf)
      appendCharacter(result, static_cast<char32_t>(title));
    else
      result += "Ss";
    cased = isCased(character);
  }
  return result;
}

// utf8proc orders the marks of a letter by exchanging neighbours, whose time is the square of their number: a text may
// be nothing but marks. Only that is done here.
Expected<std::string> normalized(std::string_view text, NormalForm form) {
  if (isAscii(text)) // is its own in every form
    return std::string(text);
  bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd,
       composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  auto decompose = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  auto rankOf = [](utf8proc_int32_t character) { return utf8proc_get_property(character)->combining_class; };
  std::vector<std::pair<uint64_t, utf8proc_int32_t>> order; // of equal rank as they came
  auto orderFrom = [&](size_t begin) {
    if (characters.size() - begin < 2)
      return;
    order.clear();
    for (size_t i = begin; i < characters.size(); ++i)
      order.emplace_back(static_cast<uint64_t>(rankOf(characters[i])) << 48 | (i - begin), characters[i]);
    std::sort(order.begin(), order.end());
    for (size_t i = begin; i < characters.size(); ++i)
      characters[i] = order[i - begin].second;
  };
  size_t marks = 0; // where those at the end begin
  for (std::string_view rest = text; !rest.empty();) {
    utf8proc_int32_t character = 0;
    rest.remove_prefix(static_cast<size_t>(read(rest, character)));
    std::array<utf8proc_int32_t, 64> parts;
    utf8proc_ssize_t count = utf8proc_decompose_char(character, parts.data(), parts.size(), decompose, nullptr);
    if (count < 0 || static_cast<size_t>(count) > parts.size())
      return Status::error(ErrorCode::internal, "U+{:04X} has no normal form", static_cast<uint32_t>(character));
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      bool mark = rankOf(parts[static_cast<size_t>(i)]) != 0;
      if (!mark)
        orderFrom(marks);
      characters.push_back(parts[static_cast<size_t>(i)]);
      if (!mark)
        marks = characters.size();
    }
  }
  orderFrom(marks);
  auto compose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : 0));
  utf8proc_ssize_t length =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), compose);
  if (length < 0)
    return Status::error(ErrorCode::internal, "a text of {} bytes has no normal form: {}", text.size(),
                         utf8proc_errmsg(length));
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    appendCharacter(result, static_cast<char32_t>(characters[static_cast<size_t>(i)]));
  return result;
}

} // namespace braid::runtime
