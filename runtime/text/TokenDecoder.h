// Tokens back to text, as they come: the list of steps that tokenizer.json calls its decoder.
#pragma once

#include "runtime/text/Pieces.h"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace braid::runtime {

// A step sees the text of one token; behind `Fuse` it sees one text of all of them.
struct LettersToBytes {};
struct ReplaceInToken {
  Pattern pattern;
  std::string content;
};
struct BytesOfTokens {}; // <0xE4> is the byte
struct Fuse {};
struct StripBegin { // up to so many of `content` in front
  std::string content;
  size_t most;
};
struct MetaspaceToBlank {
  std::string replacement;
  bool dropFirst; // the first token has none
};
struct WordEnd { // of words, behind which a blank stands
  std::string suffix;
};
using DecoderStep =
    std::variant<LettersToBytes, ReplaceInToken, BytesOfTokens, Fuse, StripBegin, MetaspaceToBlank, WordEnd>;

struct Decoder {
  std::vector<DecoderStep> steps;
  bool blanks = false; // none is given: blanks between tokens
};

// Of one text. What add() returns are bytes, for a token may end inside of a character.
class TokenDecoder {
public:
  explicit TokenDecoder(const Decoder &decoder) : decoder(decoder) {}

  Expected<std::string> add(std::string_view token);

private:
  const Decoder &decoder;
  bool first = true;
  bool owesBlank = false;         // before the next token
  std::vector<size_t> stripped;   // of each StripBegin behind Fuse: how many were taken
};

} // namespace braid::runtime
