// Shapes: how they read in messages, and products that cannot overflow unnoticed (sizes in files are not to be
// trusted).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace braid::runtime {

// "[2, 3]"; "[]" for a scalar.
std::string formatShape(std::span<const int64_t> shape);
// Number of elements; nothing when a dimension is negative or the product exceeds 2^62.
std::optional<int64_t> elementCount(std::span<const int64_t> shape);

} // namespace braid::runtime
