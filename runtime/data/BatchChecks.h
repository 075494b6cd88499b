// What tokens, labels and document borders of a batch may be. Kernels take them as they are: a token is an index into
// the embedding, an entry of cu_seqlens an index into a row.
#pragma once

#include "runtime/Expected.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace braid::runtime {

// Indices [.., columns] from `least` to `vocabulary` - 1; tokens have least 0, labels -1 (not counted). `name` stands
// in errors.
Status checkTokenValues(std::string_view name, std::span<const int32_t> values, int64_t columns, int64_t least,
                        int64_t vocabulary);

// cu_seqlens [rows, entries], rows of `tokens` tokens (absent: unknown), sequences of `context` tokens at most (entries
// with caches). In a row:
//   entries do not descend; the last is the number of tokens that are no padding, unused ones repeat it
//   the largest entry <= 0 is where the first token's document began: 0, or -n after n tokens in earlier calls
Status checkCuSeqlens(std::span<const int32_t> values, int64_t entries, std::optional<int64_t> tokens,
                      std::optional<int64_t> context);

} // namespace braid::runtime
