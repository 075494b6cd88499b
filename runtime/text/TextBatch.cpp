#include "runtime/text/TextBatch.h"

#include <utility>

namespace braid::runtime {

namespace {

constexpr size_t mostBytes = size_t(1) << 23;

} // namespace

Status TextBatch::add(std::string text, std::string place) {
  bytes += text.size();
  texts.push_back(std::move(text));
  places.push_back(std::move(place));
  return bytes < mostBytes ? Status::success() : finish();
}

Status TextBatch::finish() {
  std::vector<std::string> waiting = std::exchange(texts, {}), of = std::exchange(places, {});
  bytes = 0;
  size_t failed = 0;
  auto encoded = encoders.encode(waiting, failed);
  if (!encoded)
    return encoded.status().withContext(of[failed]);
  for (size_t i = 0; i < waiting.size(); ++i) {
    std::vector<int32_t> tokens = std::move((*encoded)[i]);
    if (separator && (tokens.empty() || tokens.back() != *separator))
      tokens.push_back(static_cast<int32_t>(*separator));
    BRAID_TRY(use(tokens, waiting[i].size(), of[i]));
  }
  return Status::success();
}

} // namespace braid::runtime
