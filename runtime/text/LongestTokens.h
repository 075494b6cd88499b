// Tokens without an order of joining: from where a text stands, always the longest one that it goes on with, as
// BlinkDL's "World" tokenizer has it.
#pragma once

#include "runtime/Expected.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace braid::runtime {

class LongestTokens {
public:
  // The bytes of tokens and their numbers. An error: a byte is no token, or two tokens have one text or one number.
  static Expected<LongestTokens> make(std::vector<std::pair<std::string, int32_t>> vocabulary);

  // Appends the tokens of a text. Any number of threads at once.
  void encode(std::string_view text, std::vector<int32_t> &tokens) const;

  std::optional<int32_t> tokenOf(std::string_view text) const;
  const std::unordered_map<int32_t, std::string> &texts() const { return textOf; }

private:
  std::vector<std::pair<std::string, int32_t>> sorted; // by their bytes
  std::array<size_t, 257> beginOf = {}; // the first of those that begin with a byte
  std::unordered_map<int32_t, std::string> textOf;
};

} // namespace braid::runtime
