#include "runtime/text/Pieces.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace braid::runtime {

namespace {

struct Letters {
  Letters() {
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      bool printed = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      char32_t letter = printed ? byte : next++;
      appendCharacter(ofByte[byte], letter);
      bytes.emplace(letter, static_cast<unsigned char>(byte));
    }
  }
  std::array<std::string, 256> ofByte;
  std::unordered_map<char32_t, unsigned char> bytes;
};

const Letters &letters() {
  static const Letters table;
  return table;
}

// A part of a text, and whether it is a delimiter.
struct Part {
  size_t begin, end;
  bool matches;
};

Expected<std::vector<Part>> partsOf(const Split &split, std::string_view text) {
  std::vector<Part> parts;
  size_t last = 0;
  BRAID_TRY(split.pattern.forEachMatch(text, [&](size_t begin, size_t end) {
    if (begin > last)
      parts.push_back({last, begin, split.inverted});
    parts.push_back({begin, end, !split.inverted});
    last = end;
  }));
  if (last < text.size())
    parts.push_back({last, text.size(), split.inverted});
  return parts;
}

// Parts of the text that become pieces.
std::vector<Part> joined(std::vector<Part> parts, Delimiter delimiter) {
  std::vector<Part> result;
  bool before = false; // whether the part before is a delimiter
  switch (delimiter) {
  case Delimiter::isolated: return parts;
  case Delimiter::removed: std::erase_if(parts, [](const Part &part) { return part.matches; }); return parts;
  case Delimiter::contiguous:
    for (const Part &part : parts) {
      if (part.matches == before && !result.empty())
        result.back().end = part.end;
      else
        result.push_back(part);
      before = part.matches;
    }
    return result;
  case Delimiter::mergedWithPrevious:
    for (const Part &part : parts) {
      if (part.matches && !before && !result.empty())
        result.back().end = part.end;
      else
        result.push_back(part);
      before = part.matches;
    }
    return result;
  case Delimiter::mergedWithNext:
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (part->matches && !before && !result.empty())
        result.back().begin = part->begin;
      else
        result.push_back(*part);
      before = part->matches;
    }
    std::reverse(result.begin(), result.end());
    return result;
  }
  return parts;
}

Status apply(const Split &split, TextPiece &piece, std::vector<TextPiece> &out) {
  BRAID_ASSIGN(std::vector<Part> parts, partsOf(split, piece.text));
  for (const Part &part : joined(std::move(parts), split.delimiter))
    if (part.end > part.begin)
      out.push_back({piece.text.substr(part.begin, part.end - part.begin), -1, piece.first && part.begin == 0});
  return Status::success();
}

Status apply(PrefixBlank, TextPiece &piece, std::vector<TextPiece> &out) {
  if (!piece.text.starts_with(' '))
    piece.text.insert(0, 1, ' ');
  out.push_back(std::move(piece));
  return Status::success();
}

Status apply(BytesToLetters, TextPiece &piece, std::vector<TextPiece> &out) {
  piece.text = lettersOfBytes(piece.text);
  out.push_back(std::move(piece));
  return Status::success();
}

Status apply(const Metaspace &step, TextPiece &piece, std::vector<TextPiece> &out) {
  std::string text;
  for (char c : piece.text)
    if (c == ' ')
      text += step.replacement;
    else
      text += c;
  bool prefix = step.prefix == Metaspace::Prefix::always || (step.prefix == Metaspace::Prefix::first && piece.first);
  if (prefix && !text.starts_with(step.replacement))
    text.insert(0, step.replacement);
  if (!step.split) {
    out.push_back({std::move(text), -1, piece.first});
    return Status::success();
  }
  // Replacements side by side are pieces of their own, but the last, which begins what follows it.
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find(
        step.replacement,
        begin + (text.compare(begin, step.replacement.size(), step.replacement) == 0 ? step.replacement.size() : 0));
    end = std::min(end, text.size());
    out.push_back({text.substr(begin, end - begin), -1, piece.first && begin == 0});
    begin = end;
  }
  return Status::success();
}

Expected<std::string> apply(NormalForm form, std::string text) { return normalized(text, form); }

Expected<std::string> apply(const Replace &step, std::string text) {
  std::string result;
  size_t last = 0;
  BRAID_TRY(step.pattern.forEachMatch(text, [&](size_t begin, size_t end) {
    result.append(text, last, begin - last).append(step.content);
    last = end;
  }));
  return result.append(text, last);
}

Expected<std::string> apply(const Prepend &step, std::string text) { return text.empty() ? text : step.text + text; }

Expected<std::string> apply(const Strip &step, std::string text) {
  std::string_view rest = text;
  while (step.left && !rest.empty() && isBlank(firstCharacter(rest)))
    rest.remove_prefix(firstCharacterBytes(rest));
  while (step.right && !rest.empty() && isBlank(firstCharacter(rest.substr(lastCharacterBegin(rest)))))
    rest = rest.substr(0, lastCharacterBegin(rest));
  return std::string(rest);
}

Expected<std::string> apply(BytesToLetters, std::string text) { return lettersOfBytes(text); }

} // namespace

std::string_view letterOfByte(unsigned char byte) { return letters().ofByte[byte]; }

std::optional<unsigned char> byteOfLetter(char32_t letter) {
  auto found = letters().bytes.find(letter);
  return found == letters().bytes.end() ? std::nullopt : std::optional(found->second);
}

std::string lettersOfBytes(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size() + bytes.size() / 4);
  for (char byte : bytes)
    result += letterOfByte(static_cast<unsigned char>(byte));
  return result;
}

Expected<std::string> Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const NormalizerStep &step : steps) {
    BRAID_ASSIGN(result, std::visit([&](const auto &step) { return runtime::apply(step, std::move(result)); }, step));
  }
  return result;
}

Expected<std::vector<TextPiece>> PreTokenizer::apply(std::vector<TextPiece> pieces) const {
  for (const PreTokenizerStep &step : steps) {
    std::vector<TextPiece> next;
    next.reserve(pieces.size());
    for (TextPiece &piece : pieces) {
      if (piece.token >= 0)
        next.push_back(std::move(piece));
      else if (!piece.text.empty())
        BRAID_TRY(std::visit([&](const auto &step) { return runtime::apply(step, piece, next); }, step));
    }
    pieces = std::move(next);
  }
  return pieces;
}

} // namespace braid::runtime
