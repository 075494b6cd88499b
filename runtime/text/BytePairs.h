// Byte pair encoding (Sennrich et al. 2016, 1508.07909) as tokenizer.json has it: a piece of text is a row of characters,
// and the pair of neighbours that was learnt first is joined until none is left. As tiktoken has it, tokens say the order.
#pragma once

#include "runtime/Expected.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace braid::runtime {

class BytePairs {
public:
  struct Options {
    std::optional<std::string> unknown; // the token of characters that have none; absent: they are left out
    std::string wordPrefix, wordSuffix; // of characters but the first, of the last
    bool fuseUnknown = false; // one token for neighbours without
    bool bytes = false; // characters without a token are tokens <0x00> to <0xFF>
    bool wholePieces = false; // a piece that is a token is that one, whatever pairs say
  };

  // Tokens and their numbers; pairs in the order in which they are joined. An error: a pair, or what it makes, is no token.
  static Expected<BytePairs> make(std::vector<std::pair<std::string, int32_t>> vocabulary,
                                  const std::vector<std::pair<std::string, std::string>> &merges, Options options);

  // Of tokens alone, by their ranks, which are their numbers: of neighbours that together are a token those whose token is
  // the least are joined first, and a piece that is a token is that one. Bytes are letters (Pieces.h). An error: a byte
  // is no token, two tokens are the same, or one is longer than 1024 bytes.
  static Expected<BytePairs> ofRanks(std::vector<std::pair<std::string, int32_t>> vocabulary);

  // Appends the tokens of a piece, which is valid UTF-8 and not empty. Any number of threads at once.
  void encode(std::string_view piece, std::vector<int32_t> &tokens) const;

  std::optional<int32_t> tokenOf(std::string_view text) const;
  const std::unordered_map<int32_t, std::string> &texts() const { return textOf; }

private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Merge {
    uint32_t rank;
    int32_t token;
  };
  static uint64_t key(int32_t left, int32_t right) { return (uint64_t(uint32_t(left)) << 32) | uint32_t(right); }
  Status setTokens(std::vector<std::pair<std::string, int32_t>> vocabulary);
  std::vector<int32_t> charactersOf(std::string_view piece) const;
  void join(std::vector<int32_t> &symbols) const;

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> tokens;
  std::unordered_map<int32_t, std::string> textOf;
  std::unordered_map<uint64_t, Merge> merges;
  std::vector<int32_t> byteTokens; // of <0x00> to <0xFF>, -1: there is none
  int32_t unknown = -1;
  Options options;
};

} // namespace braid::runtime
