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

using VisitPart = std::function<Status(const Part &)>;

Status forEachPart(const Split &split, std::string_view text, const VisitPart &visit) {
  size_t last = 0;
  BRAID_TRY(split.pattern.forEachMatch(text, [&](size_t begin, size_t end) -> Status {
    if (begin > last)
      BRAID_TRY(visit({last, begin, split.inverted}));
    last = end;
    return visit({begin, end, !split.inverted});
  }));
  return last < text.size() ? visit({last, text.size(), split.inverted}) : Status::success();
}

// Parts that become pieces with their neighbours.
std::vector<Part> joined(const std::vector<Part> &parts, Delimiter delimiter) {
  std::vector<Part> result;
  bool before = false; // whether the part before is a delimiter
  if (delimiter == Delimiter::mergedWithNext) {
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
  bool contiguous = delimiter == Delimiter::contiguous;
  for (const Part &part : parts) {
    if (!result.empty() && (contiguous ? part.matches == before : part.matches && !before))
      result.back().end = part.end;
    else
      result.push_back(part);
    before = part.matches;
  }
  return result;
}

using Visit = std::function<Status(TextPiece)>;

Status apply(const Split &split, TextPiece &piece, const Visit &visit) {
  auto cut = [&](const Part &part) {
    return part.end == part.begin
               ? Status::success()
               : visit({piece.text.substr(part.begin, part.end - part.begin), -1, piece.first && part.begin == 0});
  };
  if (split.delimiter == Delimiter::isolated)
    return forEachPart(split, piece.text, cut);
  if (split.delimiter == Delimiter::removed)
    return forEachPart(split, piece.text,
                       [&](const Part &part) { return part.matches ? Status::success() : cut(part); });
  std::vector<Part> parts;
  BRAID_TRY(forEachPart(split, piece.text, [&](const Part &part) {
    parts.push_back(part);
    return Status::success();
  }));
  for (const Part &part : joined(parts, split.delimiter))
    BRAID_TRY(cut(part));
  return Status::success();
}

Status apply(PrefixBlank, TextPiece &piece, const Visit &visit) {
  if (!piece.text.starts_with(' '))
    piece.text.insert(0, 1, ' ');
  return visit(std::move(piece));
}

Status apply(BytesToLetters, TextPiece &piece, const Visit &visit) {
  piece.text = lettersOfBytes(piece.text);
  return visit(std::move(piece));
}

Status apply(const Metaspace &step, TextPiece &piece, const Visit &visit) {
  std::string text;
  for (char c : piece.text)
    if (c == ' ')
      text += step.replacement;
    else
      text += c;
  bool prefix = step.prefix == Metaspace::Prefix::always || (step.prefix == Metaspace::Prefix::first && piece.first);
  if (prefix && !text.starts_with(step.replacement))
    text.insert(0, step.replacement);
  if (!step.split)
    return visit({std::move(text), -1, piece.first});
  // Replacements side by side are pieces of their own, but the last, which begins what follows it.
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find(
        step.replacement,
        begin + (text.compare(begin, step.replacement.size(), step.replacement) == 0 ? step.replacement.size() : 0));
    end = std::min(end, text.size());
    BRAID_TRY(visit({text.substr(begin, end - begin), -1, piece.first && begin == 0}));
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
    return Status::success();
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

// Whether a step takes away what a text, which is not empty, begins with.
Expected<bool> takesBegin(const Strip &step, std::string_view text) {
  return step.left && isBlank(firstCharacter(text));
}
Expected<bool> takesBegin(const Replace &step, std::string_view text) {
  bool takes = false;
  if (step.content.empty())
    BRAID_TRY(step.pattern.forEachMatch(text, [&](size_t begin, size_t end) {
      takes |= begin == 0 && end > 0;
      return Status::success();
    }));
  return takes;
}
template <class Step> Expected<bool> takesBegin(const Step &, std::string_view) { return false; }

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

Expected<std::string> Normalizer::apply(std::string_view text, bool *moved) const {
  std::string result(text);
  for (const NormalizerStep &step : steps) {
    if (moved && !result.empty()) {
      BRAID_ASSIGN(bool gone, std::visit([&](const auto &step) { return takesBegin(step, result); }, step));
      *moved |= gone;
    }
    BRAID_ASSIGN(result, std::visit([&](const auto &step) { return runtime::apply(step, std::move(result)); }, step));
  }
  return result;
}

Status PreTokenizer::forEach(TextPiece piece, const std::function<Status(TextPiece &)> &visit) const {
  // What a step makes goes through the steps behind it before the step goes on.
  std::function<Status(TextPiece, size_t)> walk = [&](TextPiece part, size_t step) -> Status {
    if (part.text.empty())
      return Status::success();
    if (step == steps.size())
      return visit(part);
    Visit next = [&](TextPiece made) { return walk(std::move(made), step + 1); };
    return std::visit([&](const auto &apply) { return runtime::apply(apply, part, next); }, steps[step]);
  };
  return walk(std::move(piece), 0);
}

} // namespace braid::runtime
