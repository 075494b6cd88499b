// A template as tokens, with Jinja's control of blanks: lines that hold only a block leave nothing (trim_blocks and
// lstrip_blocks, as transformers sets them), '-' takes the blanks on its side, '+' leaves them.
#pragma once

#include "runtime/Expected.h"

#include <string>
#include <string_view>
#include <vector>

namespace braid::runtime::jinja {

struct Token {
  enum class Kind : uint8_t { data, beginPrint, endPrint, beginBlock, endBlock, name, text, integer, real, sign, end };
  Kind kind = Kind::end;
  std::string text; // of text: without quotes and escapes
  int line = 1;
};

// "5: the comment that begins here has no end"
Expected<std::vector<Token>> tokensOf(std::string_view source);

} // namespace braid::runtime::jinja
