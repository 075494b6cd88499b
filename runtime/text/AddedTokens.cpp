#include "runtime/text/AddedTokens.h"

#include "runtime/io/JsonText.h"

#include <algorithm>

namespace braid::runtime {

namespace {

bool endsWithWord(std::string_view text) {
  return !text.empty() && isOfWord(firstCharacter(text.substr(lastCharacterBegin(text))));
}

bool beginsWithWord(std::string_view text) { return !text.empty() && isOfWord(firstCharacter(text)); }

// Where the blanks at the end of a text begin, and where those at its beginning end.
size_t blanksAtEnd(std::string_view text) {
  while (!text.empty() && isBlank(firstCharacter(text.substr(lastCharacterBegin(text)))))
    text = text.substr(0, lastCharacterBegin(text));
  return text.size();
}

size_t blanksAtBegin(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && isBlank(firstCharacter(text.substr(end))))
    end += firstCharacterBytes(text.substr(end));
  return end;
}

} // namespace

void AddedTokens::Needles::add(std::string_view text, size_t token) {
  uint32_t node = 0;
  for (char byte : text) {
    auto [found, fresh] =
        next.try_emplace(uint64_t(node) << 8 | static_cast<unsigned char>(byte), static_cast<uint32_t>(nodes.size()));
    if (fresh)
      nodes.emplace_back();
    node = found->second;
  }
  if (!nodes[node].token) // of equal ones the first
    nodes[node].token = token;
}

std::pair<size_t, size_t> AddedTokens::Needles::longest(std::string_view text) const {
  std::pair<size_t, size_t> result = {0, 0};
  uint32_t node = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    auto found = next.find(uint64_t(node) << 8 | static_cast<unsigned char>(text[at]));
    if (found == next.end())
      break;
    node = found->second;
    if (nodes[node].token)
      result = {*nodes[node].token, at + 1};
  }
  return result;
}

Expected<AddedTokens> AddedTokens::make(std::vector<AddedToken> tokens, const Normalizer &normalizer) {
  AddedTokens result;
  result.tokens = std::move(tokens);
  std::unordered_set<std::string> known;
  for (size_t i = 0; i < result.tokens.size(); ++i) {
    const AddedToken &token = result.tokens[i];
    result.ofNumber.emplace(token.token, i);
    if (token.content.empty() || !known.insert(token.content).second)
      continue;
    std::string text = token.content;
    if (token.normalized) {
      BRAID_ASSIGN(text, normalizer.apply(text));
    }
    if (!text.empty())
      (token.normalized ? result.normal : result.raw).add(text, i);
  }
  return result;
}

void AddedTokens::cut(const Needles &needles, TextPiece piece, std::vector<TextPiece> &out) const {
  std::string_view text = piece.text;
  size_t last = 0; // up to here all is in pieces
  auto addText = [&](size_t begin, size_t end) {
    if (end > begin)
      out.push_back({std::string(text.substr(begin, end - begin)), -1, piece.first && begin == 0});
  };
  for (size_t at = 0; at < text.size();) {
    auto [index, bytes] = needles.longest(text.substr(at));
    if (bytes == 0) {
      ++at;
      continue;
    }
    const AddedToken &token = tokens[index];
    size_t begin = at, end = at + bytes;
    at = end;
    if (token.singleWord && (endsWithWord(text.substr(0, begin)) || beginsWithWord(text.substr(end))))
      continue;
    // As Hugging Face's tokenizers does: blanks that a token has taken are not taken by the next, but are found where
    // they are a token of their own.
    if (token.leftStrip)
      begin = std::max(blanksAtEnd(text.substr(0, begin)), last);
    if (token.rightStrip)
      end += blanksAtBegin(text.substr(end));
    addText(last, begin);
    out.push_back({token.content, token.token, false});
    last = end;
  }
  addText(last, text.size());
}

Expected<std::vector<TextPiece>> AddedTokens::cut(std::string_view text, const Normalizer &normalizer) const {
  std::vector<TextPiece> pieces, result;
  cut(raw, {std::string(text), -1, true}, pieces);
  for (TextPiece &piece : pieces) {
    if (piece.token >= 0) {
      result.push_back(std::move(piece));
      continue;
    }
    bool moved = false;
    BRAID_ASSIGN(piece.text, normalizer.apply(piece.text, &moved));
    piece.first &= !moved;
    cut(normal, std::move(piece), result);
  }
  return result;
}

const AddedToken *AddedTokens::find(int32_t token) const {
  auto found = ofNumber.find(token);
  return found == ofNumber.end() ? nullptr : &tokens[found->second];
}

std::optional<int32_t> AddedTokens::tokenOf(std::string_view content) const {
  for (const AddedToken &token : tokens)
    if (token.content == content)
      return token.token;
  return std::nullopt;
}

} // namespace braid::runtime
