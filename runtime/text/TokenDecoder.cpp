#include "runtime/text/TokenDecoder.h"

#include <charconv>

namespace braid::runtime {

namespace {

// A token whose letters are not all those of bytes is the text that it is.
std::string bytesOfLetters(const std::string &token) {
  std::string bytes;
  for (std::string_view rest = token; !rest.empty(); rest.remove_prefix(firstCharacterBytes(rest))) {
    std::optional<unsigned char> byte = byteOfLetter(firstCharacter(rest));
    if (!byte)
      return token;
    bytes += static_cast<char>(*byte);
  }
  return bytes;
}

std::string byteOfToken(const std::string &token) {
  unsigned byte = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>' ||
      std::from_chars(token.data() + 3, token.data() + 5, byte, 16).ptr != token.data() + 5)
    return token;
  return std::string(1, static_cast<char>(byte));
}

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result;
  while (true) {
    size_t found = what.empty() ? std::string_view::npos : text.find(what);
    result += text.substr(0, found);
    if (found == std::string_view::npos)
      return result;
    result += by;
    text.remove_prefix(found + what.size());
  }
}

} // namespace

Expected<std::string> TokenDecoder::add(std::string_view token) {
  std::string text(token), before = owesBlank ? " " : "";
  owesBlank = decoder.blanks;
  bool fused = false;
  size_t strips = 0;
  for (const DecoderStep &step : decoder.steps) {
    if (std::holds_alternative<LettersToBytes>(step)) {
      text = bytesOfLetters(text);
    } else if (const auto *replace = std::get_if<ReplaceInToken>(&step)) {
      std::string result;
      size_t last = 0;
      BRAID_TRY(replace->pattern.forEachMatch(text, [&](size_t begin, size_t end) {
        result.append(text, last, begin - last).append(replace->content);
        last = end;
        return Status::success();
      }));
      text = result.append(text, last);
    } else if (std::holds_alternative<BytesOfTokens>(step)) {
      text = byteOfToken(text);
    } else if (std::holds_alternative<Fuse>(step)) {
      fused = true;
    } else if (const auto *strip = std::get_if<StripBegin>(&step)) {
      size_t taken = 0;
      if (fused) {
        if (strips == stripped.size())
          stripped.push_back(0);
        taken = stripped[strips];
      }
      while (taken < strip->most && text.starts_with(strip->content)) {
        text.erase(0, strip->content.size());
        ++taken;
      }
      if (fused) // what begins with something else has nothing to take any more
        stripped[strips++] = text.empty() ? taken : strip->most;
    } else if (const auto *metaspace = std::get_if<MetaspaceToBlank>(&step)) {
      text = replaced(text, metaspace->replacement, first && metaspace->dropFirst ? "" : " ");
    } else if (const auto *word = std::get_if<WordEnd>(&step)) {
      bool ends = text.ends_with(word->suffix);
      if (ends)
        text.resize(text.size() - word->suffix.size());
      text = replaced(text, word->suffix, " ");
      owesBlank |= ends;
    }
  }
  first = false;
  return before + text;
}

} // namespace braid::runtime
