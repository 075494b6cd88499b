// Texts that wait until all threads have some to encode; their tokens come in the order of the texts.
#pragma once

#include "runtime/text/Tokenizer.h"

#include <functional>

namespace braid::runtime {

class TextBatch {
public:
  // Takes the tokens of a text of so many bytes, which stood at this place.
  using Use = std::function<Status(std::vector<int32_t> &tokens, size_t textBytes, const std::string &place)>;

  // `separator`: each text ends with it, if it does not anyway.
  TextBatch(std::shared_ptr<const Tokenizer> tokenizer, unsigned threads, std::optional<int64_t> separator, Use use)
      : encoders(std::move(tokenizer), threads), separator(separator), use(std::move(use)) {}

  // Errors of other texts too; those of encoding begin with the place of their text.
  Status add(std::string text, std::string place);
  // All that wait are encoded.
  Status finish();

private:
  TextEncoders encoders;
  std::optional<int64_t> separator;
  Use use;
  std::vector<std::string> texts, places;
  size_t bytes = 0; // of texts
};

} // namespace braid::runtime
