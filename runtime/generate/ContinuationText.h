// What a text shows of the tokens that are drawn, as they come.
#pragma once

#include "runtime/text/Tokenizer.h"

namespace braid::runtime {

// The text of a continuation: what a tokenizer makes of the tokens behind their prompt, or they are its bytes.
class ContinuationText {
public:
  // `special`: also tokens of the format are written.
  explicit ContinuationText(std::shared_ptr<const Tokenizer> tokenizer, bool special = false)
      : tokenizer(std::move(tokenizer)), special(special) {}

  Status begin(std::span<const int32_t> prompt);
  // The bytes that the token adds, also inside of a character.
  Expected<std::string> add(int32_t token);

private:
  std::shared_ptr<const Tokenizer> tokenizer; // null: bytes
  bool special;
  std::optional<TextDecoder> decoder;
};

// Holds back what must not be shown yet: a character that has begun, and what may become one of the texts behind which
// nothing is shown.
class HeldText {
public:
  explicit HeldText(std::vector<std::string> stops = {}) : stops(std::move(stops)) {}

  // What can be shown by now.
  std::string add(std::string_view text);
  // The rest, behind which nothing comes.
  std::string finish() { return std::exchange(held, {}); }
  // One of the stops has come. It is not shown, nor what follows it.
  bool stopped() const { return hasStopped; }

private:
  std::vector<std::string> stops; // not empty ones
  std::string held;
  bool hasStopped = false;
};

} // namespace braid::runtime
