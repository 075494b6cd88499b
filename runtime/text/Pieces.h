// How a tokenizer prepares a text: normalizers rewrite it, pre-tokenizers cut it into the pieces of which each is
// tokenized alone. Both are the lists of steps in tokenizer.json, in their order.
#pragma once

#include "runtime/text/Pattern.h"
#include "runtime/text/Utf8.h"

#include <functional>
#include <optional>
#include <variant>
#include <vector>

namespace braid::runtime {

// A byte as a letter: what can be printed is itself, the others are U+0100 and on (of GPT-2).
std::string_view letterOfByte(unsigned char byte);
// The byte that a letter is.
std::optional<unsigned char> byteOfLetter(char32_t letter);
// Every byte as its letter.
std::string lettersOfBytes(std::string_view bytes);

// ---- Normalizers ----------------------------------------------------------------------------------------------------

struct Replace {
  Pattern pattern;
  std::string content;
};
struct Prepend { // to what is not empty
  std::string text;
};
struct Strip {
  bool left, right;
};
struct BytesToLetters {};
using NormalizerStep = std::variant<NormalForm, Replace, Prepend, Strip, BytesToLetters>;

class Normalizer {
public:
  std::vector<NormalizerStep> steps;

  // `moved`: whether what began the text is gone.
  Expected<std::string> apply(std::string_view text, bool *moved = nullptr) const;
};

// ---- Pre-tokenizers -------------------------------------------------------------------------------------------------

// What becomes of the matches of a pattern: they go, are pieces of their own, or parts of their neighbours; contiguous:
// neighbouring matches are one piece.
enum class Delimiter : uint8_t { removed, isolated, mergedWithPrevious, mergedWithNext, contiguous };

struct Split {
  Pattern pattern;
  Delimiter delimiter;
  bool inverted; // what lies between matches is the delimiter
};
struct PrefixBlank {}; // where there is none
struct Metaspace {
  enum class Prefix : uint8_t { always, first, never };
  std::string replacement; // of ' '
  Prefix prefix; // first: of the piece that begins the text
  bool split; // in front of every replacement
};
using PreTokenizerStep = std::variant<Split, PrefixBlank, BytesToLetters, Metaspace>;

struct TextPiece {
  std::string text;
  int32_t token = -1; // of an added token, which is cut no further
  bool first = false; // begins the whole text
};

class PreTokenizer {
public:
  std::vector<PreTokenizerStep> steps;

  // Visits what becomes of a piece, from left to right, one after the other: a text may have many millions of words.
  // Pieces that become empty are left out.
  Status forEach(TextPiece piece, const std::function<Status(TextPiece &)> &visit) const;
};

} // namespace braid::runtime
