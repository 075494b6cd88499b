#include "runtime/data/BatchChecks.h"

namespace braid::runtime {

Status checkTokenValues(std::string_view name, std::span<const int32_t> values, int64_t columns, int64_t least,
                        int64_t vocabulary) {
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] < least || values[i] >= vocabulary)
      return Status::error("{}[{}, {}] is {}, but the vocabulary has 0 to {}{}", name,
                           static_cast<int64_t>(i) / columns, static_cast<int64_t>(i) % columns, values[i],
                           vocabulary - 1, least < 0 ? " (-1: not counted)" : "");
  return Status::success();
}

Status checkCuSeqlens(std::span<const int32_t> values, int64_t entries, std::optional<int64_t> tokens,
                      std::optional<int64_t> context) {
  size_t width = static_cast<size_t>(entries);
  for (size_t row = 0; (row + 1) * width <= values.size(); ++row) {
    std::span<const int32_t> cu = values.subspan(row * width, width);
    if (cu.front() > 0)
      return Status::error("cu_seqlens[{}, 0] is {}: the first entry must be 0, or -n where the row continues a "
                           "document after n tokens",
                           row, cu.front());
    for (size_t i = 1; i < width; ++i)
      if (cu[i] < cu[i - 1])
        return Status::error("cu_seqlens[{}, {}] is {}, below the entry {} before it: entries must not descend", row, i,
                             cu[i], cu[i - 1]);
    if (cu.back() < 0)
      return Status::error("cu_seqlens[{}, {}] is {}: the last entry is the row's number of tokens and must not be "
                           "negative",
                           row, width - 1, cu.back());
    if (tokens && cu.back() > *tokens)
      return Status::error("cu_seqlens[{}, {}] is {}, but a row has {} tokens", row, width - 1, cu.back(), *tokens);
    if (context && int64_t(cu.back()) - cu.front() > *context)
      return Status::error("cu_seqlens[{}] is {} to {}: a sequence of {} tokens, but the program was compiled for a "
                           "context of {}",
                           row, cu.front(), cu.back(), int64_t(cu.back()) - cu.front(), *context);
  }
  return Status::success();
}

} // namespace braid::runtime
