#include "runtime/generate/ContinuationText.h"

#include <algorithm>

namespace braid::runtime {

Status ContinuationText::begin(std::span<const int32_t> prompt) {
  if (!tokenizer)
    return Status::success();
  decoder.emplace(tokenizer, special);
  for (int32_t token : prompt)
    BRAID_TRY(decoder->add(token).status());
  return Status::success();
}

Expected<std::string> ContinuationText::add(int32_t token) {
  return decoder ? decoder->add(token) : Expected<std::string>(std::string(1, static_cast<char>(token)));
}

// How many bytes at the end begin a character that is longer.
static size_t unfinishedBytes(std::string_view text) {
  for (size_t count = 1; count <= std::min<size_t>(3, text.size()); ++count) {
    auto byte = static_cast<unsigned char>(text[text.size() - count]);
    if ((byte & 0xC0) == 0x80)
      continue; // inside of a character
    size_t length = byte >= 0xF8 ? 1 : byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > count ? count : 0;
  }
  return 0;
}

// How many bytes at the end begin `stop`.
static size_t begunBytes(std::string_view text, std::string_view stop) {
  size_t count = std::min(text.size(), stop.size() - 1);
  while (count > 0 && !stop.starts_with(text.substr(text.size() - count)))
    --count;
  return count;
}

std::string HeldText::add(std::string_view text) {
  if (hasStopped)
    return {};
  held += text;
  size_t end = std::string::npos, keep = unfinishedBytes(held);
  for (const std::string &stop : stops) {
    end = std::min(end, held.find(stop));
    keep = std::max(keep, begunBytes(held, stop));
  }
  hasStopped = end != std::string::npos;
  std::string shown = held.substr(0, hasStopped ? end : held.size() - keep);
  held = hasStopped ? std::string() : held.substr(shown.size());
  return shown;
}

} // namespace braid::runtime
