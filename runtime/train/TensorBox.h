// Parts of tensors on their way between files and ranks: boxes, and the types of their elements.
#pragma once

#include "runtime/Program.h"

#include <span>

namespace braid::runtime {

// Elements [offset, offset + shape) of a tensor in every dimension, row-major where they lie.
struct Box {
  std::span<const int64_t> offset, shape;
};

// Copies the elements that two boxes of one tensor share, row by row.
void copyShared(const Box &source, const std::byte *from, const Box &target, std::byte *to, size_t elementBytes);
bool sharesAny(const Box &a, const Box &b);

// Columns of a matrix [rows, columns] become rows.
void transpose(std::span<const std::byte> from, std::byte *to, size_t rows, size_t columns, size_t elementBytes);

// f32 and bf16 stand for each other: programs of both kinds read each other's checkpoints.
bool converts(DType from, DType to);
// What becomes of every number: x times + plus.
struct Linear {
  float times = 1, plus = 0;
  bool operator==(const Linear &) const = default;
  template <typename T> T operator()(T x) const { return x * static_cast<T>(times) + static_cast<T>(plus); }
};
// `from` and `to` convert; `change` comes before rounding.
void convert(DType from, std::span<const std::byte> source, DType to, std::byte *target, Linear change = {});

} // namespace braid::runtime
