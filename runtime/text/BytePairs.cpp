#include "runtime/text/BytePairs.h"

#include "runtime/io/JsonText.h"
#include "runtime/text/Pieces.h"

#include <queue>

namespace braid::runtime {

Status BytePairs::setTokens(std::vector<std::pair<std::string, int32_t>> vocabulary) {
  tokens.reserve(vocabulary.size());
  for (auto &[text, token] : vocabulary) {
    auto [other, fresh] = textOf.emplace(token, text);
    if (!fresh)
      return Status::error(ErrorCode::corruptFile, "'{}' and '{}' both have number {}", escaped(other->second),
                           escaped(text), token);
    auto [known, first] = tokens.emplace(std::move(text), token);
    if (!first)
      return Status::error(ErrorCode::corruptFile, "'{}' has the numbers {} and {}", escaped(known->first),
                           known->second, token);
  }
  return Status::success();
}

Expected<BytePairs> BytePairs::make(std::vector<std::pair<std::string, int32_t>> vocabulary,
                                    const std::vector<std::pair<std::string, std::string>> &merges, Options options) {
  BytePairs result;
  BRAID_TRY(result.setTokens(std::move(vocabulary)).withContext("vocab"));
  if (options.unknown) {
    std::optional<int32_t> token = result.tokenOf(*options.unknown);
    if (!token)
      return Status::error(ErrorCode::corruptFile, "unk_token: '{}' is not in vocab", escaped(*options.unknown));
    result.unknown = *token;
  }
  if (options.bytes)
    for (int byte = 0; byte < 256; ++byte)
      result.byteTokens.push_back(result.tokenOf(fmt::format("<0x{:02X}>", byte)).value_or(-1));
  result.merges.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto &[left, right] = merges[rank];
    std::string_view behind = right;
    if (behind.size() < options.wordPrefix.size())
      return Status::error(ErrorCode::corruptFile, "merges[{}]: '{}' is shorter than continuing_subword_prefix '{}'",
                           rank, escaped(right), escaped(options.wordPrefix));
    behind.remove_prefix(options.wordPrefix.size());
    std::string both = left + std::string(behind);
    std::optional<int32_t> a = result.tokenOf(left), b = result.tokenOf(right), c = result.tokenOf(both);
    if (!a || !b || !c)
      return Status::error(ErrorCode::corruptFile, "merges[{}]: '{}' is not in vocab", rank,
                           escaped(!a   ? left
                                   : !b ? right
                                        : both));
    result.merges[key(*a, *b)] = {static_cast<uint32_t>(rank), *c};
  }
  result.options = std::move(options);
  return result;
}

Expected<BytePairs> BytePairs::ofRanks(std::vector<std::pair<std::string, int32_t>> vocabulary) {
  BytePairs result;
  BRAID_TRY(result.setTokens(std::move(vocabulary)));
  for (int byte = 0; byte < 256; ++byte)
    if (!result.tokenOf(letterOfByte(static_cast<unsigned char>(byte))))
      return Status::error(ErrorCode::corruptFile, "the byte 0x{:02x} is no token", byte);
  constexpr size_t mostLetters = 1024;
  for (const auto &[text, token] : result.tokens)
    if (text.size() > mostLetters)
      return Status::error(ErrorCode::unsupported, "token {} has {} letters of bytes; valid: at most {}", token,
                           text.size(), mostLetters);
  for (const auto &[text, token] : result.tokens)
    for (size_t at = firstCharacterBytes(text); at < text.size();
         at += firstCharacterBytes(std::string_view(text).substr(at))) {
      std::optional<int32_t> a = result.tokenOf(std::string_view(text).substr(0, at)),
                             b = result.tokenOf(std::string_view(text).substr(at));
      if (a && b)
        result.merges[key(*a, *b)] = {static_cast<uint32_t>(token), token};
    }
  result.options.wholePieces = true;
  return result;
}

std::optional<int32_t> BytePairs::tokenOf(std::string_view text) const {
  auto found = tokens.find(text);
  return found == tokens.end() ? std::nullopt : std::optional(found->second);
}

// As Hugging Face's tokenizers does: of characters without a token one is pending until the next that has one of its own
// follows, and tokens of bytes are written before it.
std::vector<int32_t> BytePairs::charactersOf(std::string_view piece) const {
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  bool pending = false;
  std::string decorated;
  for (size_t at = 0; at < piece.size();) {
    std::string_view character = piece.substr(at, firstCharacterBytes(piece.substr(at)));
    bool first = at == 0, last = at + character.size() == piece.size();
    at += character.size();
    if ((!first && !options.wordPrefix.empty()) || (last && !options.wordSuffix.empty())) {
      decorated.assign(first ? "" : options.wordPrefix).append(character).append(last ? options.wordSuffix : "");
      character = decorated;
    }
    if (auto found = tokens.find(character); found != tokens.end()) {
      if (pending)
        symbols.push_back(unknown);
      pending = false;
      symbols.push_back(found->second);
      continue;
    }
    if (options.bytes) {
      size_t before = symbols.size();
      bool all = true;
      for (char byte : character) {
        int32_t token = byteTokens[static_cast<unsigned char>(byte)];
        all &= token >= 0;
        symbols.push_back(token);
      }
      if (all)
        continue;
      symbols.resize(before);
    }
    if (unknown >= 0) {
      if (pending && !options.fuseUnknown)
        symbols.push_back(unknown);
      pending = true;
    }
  }
  if (pending)
    symbols.push_back(unknown);
  return symbols;
}

// A list of symbols, and the pairs that can be joined, the first learnt and of these the leftmost first. A pair that has
// changed since it was found is recognized by what it would make.
void BytePairs::join(std::vector<int32_t> &symbols) const {
  struct Pair {
    uint32_t rank, at;
    int32_t token;
    bool operator<(const Pair &other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  constexpr uint32_t none = UINT32_MAX;
  auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(count), before(count);
  std::vector<Pair> found;
  auto mergeAt = [&](uint32_t left) -> const Merge * {
    auto merge = next[left] == none ? merges.end() : merges.find(key(symbols[left], symbols[next[left]]));
    return merge == merges.end() ? nullptr : &merge->second;
  };
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : none;
    before[i] = i > 0 ? i - 1 : none;
  }
  for (uint32_t i = 0; i < count; ++i)
    if (const Merge *merge = mergeAt(i))
      found.push_back({merge->rank, i, merge->token});
  std::priority_queue<Pair> queue(std::less<Pair>(), std::move(found));
  constexpr int32_t gone = -1;
  while (!queue.empty()) {
    Pair top = queue.top();
    queue.pop();
    if (symbols[top.at] == gone)
      continue;
    const Merge *merge = mergeAt(top.at);
    if (!merge || merge->token != top.token)
      continue;
    uint32_t right = next[top.at];
    symbols[top.at] = top.token;
    symbols[right] = gone;
    next[top.at] = next[right];
    if (next[right] != none)
      before[next[right]] = top.at;
    for (uint32_t left : {before[top.at], top.at})
      if (left != none)
        if (const Merge *other = mergeAt(left))
          queue.push({other->rank, left, other->token});
  }
  std::erase(symbols, gone);
}

void BytePairs::encode(std::string_view piece, std::vector<int32_t> &result) const {
  if (options.wholePieces) {
    if (std::optional<int32_t> token = tokenOf(piece)) {
      result.push_back(*token);
      return;
    }
  }
  std::vector<int32_t> symbols = charactersOf(piece);
  if (symbols.size() > 1)
    join(symbols);
  result.insert(result.end(), symbols.begin(), symbols.end());
}

} // namespace braid::runtime
