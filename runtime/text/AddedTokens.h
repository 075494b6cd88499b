// Tokens beside those of the model: a text is cut where they stand before anything else happens to it.
#pragma once

#include "runtime/text/Pieces.h"

#include <unordered_map>
#include <unordered_set>

namespace braid::runtime {

struct AddedToken {
  int32_t token = -1;
  std::string content;
  bool singleWord = false;                      // not beside what \w means
  bool leftStrip = false, rightStrip = false;   // takes the blanks on that side with it
  bool normalized = false;                      // is looked for behind the normalizer
  bool special = false;                         // of the format, not of the text
};

class AddedTokens {
public:
  static Expected<AddedTokens> make(std::vector<AddedToken> tokens, const Normalizer &normalizer);

  // The pieces of a text: added tokens, and normalized text between them.
  Expected<std::vector<TextPiece>> cut(std::string_view text, const Normalizer &normalizer) const;

  const AddedToken *find(int32_t token) const;
  std::optional<int32_t> tokenOf(std::string_view content) const;
  const std::vector<AddedToken> &all() const { return tokens; }

private:
  // What is looked for in one pass, byte by byte.
  class Needles {
  public:
    void add(std::string_view text, size_t token);
    // The longest that the text begins with: its token, and how long it is; 0: none.
    std::pair<size_t, size_t> longest(std::string_view text) const;

  private:
    struct Node {
      std::optional<size_t> token; // that ends here
    };
    std::vector<Node> nodes = {{}};
    std::unordered_map<uint64_t, uint32_t> next; // of a node and a byte
  };

  void cut(const Needles &needles, TextPiece piece, std::vector<TextPiece> &out) const;

  std::vector<AddedToken> tokens;
  std::unordered_map<int32_t, size_t> ofNumber;
  Needles raw, normal;
};

} // namespace braid::runtime
