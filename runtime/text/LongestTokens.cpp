#include "runtime/text/LongestTokens.h"

#include "runtime/io/JsonText.h"

#include <algorithm>

namespace braid::runtime {

static size_t byteOf(char c) { return static_cast<unsigned char>(c); }

Expected<LongestTokens> LongestTokens::make(std::vector<std::pair<std::string, int32_t>> vocabulary) {
  LongestTokens result;
  result.sorted = std::move(vocabulary);
  std::ranges::sort(result.sorted);
  for (size_t i = 0; i < result.sorted.size(); ++i) {
    const auto &[text, token] = result.sorted[i];
    if (i > 0 && text == result.sorted[i - 1].first)
      return Status::error(ErrorCode::corruptFile, "'{}' has the numbers {} and {}", escaped(text),
                           result.sorted[i - 1].second, token);
    if (auto [other, fresh] = result.textOf.emplace(token, text); !fresh)
      return Status::error(ErrorCode::corruptFile, "'{}' and '{}' both have number {}", escaped(other->second),
                           escaped(text), token);
    if (!text.empty())
      ++result.beginOf[byteOf(text[0]) + 1];
  }
  result.beginOf[0] = !result.sorted.empty() && result.sorted[0].first.empty() ? 1 : 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    size_t begin = result.beginOf[byte];
    result.beginOf[byte + 1] += begin;
    // In order a byte by itself stands in front of all that begin with it.
    if (begin == result.beginOf[byte + 1] || result.sorted[begin].first.size() != 1)
      return Status::error(ErrorCode::corruptFile, "the byte 0x{:02x} is no token", byte);
  }
  return result;
}

void LongestTokens::encode(std::string_view text, std::vector<int32_t> &tokens) const {
  for (size_t at = 0; at < text.size();) {
    // Those that begin as the text goes on are neighbours, the one that is no longer than that in front.
    auto begin = sorted.begin() + static_cast<std::ptrdiff_t>(beginOf[byteOf(text[at])]),
         end = sorted.begin() + static_cast<std::ptrdiff_t>(beginOf[byteOf(text[at]) + 1]), longest = begin;
    for (size_t size = 1; begin != end; ++size) {
      if (begin->first.size() == size)
        longest = begin++;
      if (at + size == text.size())
        break;
      size_t next = byteOf(text[at + size]);
      begin = std::partition_point(begin, end, [&](const auto &token) { return byteOf(token.first[size]) < next; });
      end = std::partition_point(begin, end, [&](const auto &token) { return byteOf(token.first[size]) == next; });
    }
    tokens.push_back(longest->second);
    at += longest->first.size();
  }
}

std::optional<int32_t> LongestTokens::tokenOf(std::string_view text) const {
  auto found =
      std::ranges::lower_bound(sorted, text, {}, [](const auto &token) { return std::string_view(token.first); });
  return found == sorted.end() || found->first != text ? std::nullopt : std::optional(found->second);
}

} // namespace braid::runtime
