#include "runtime/train/TensorBox.h"

#include "runtime/Bf16.h"

#include <algorithm>
#include <cstring>

namespace braid::runtime {

void copyShared(const Box &source, const std::byte *from, const Box &target, std::byte *to, size_t elementBytes) {
  size_t rank = source.shape.size();
  std::vector<int64_t> begin(rank), extent(rank), position(rank, 0);
  for (size_t d = 0; d < rank; ++d) {
    begin[d] = std::max(source.offset[d], target.offset[d]);
    extent[d] = std::min(source.offset[d] + source.shape[d], target.offset[d] + target.shape[d]) - begin[d];
    if (extent[d] <= 0)
      return;
  }
  auto address = [&](const Box &box) {
    int64_t index = 0;
    for (size_t d = 0; d < rank; ++d)
      index = index * box.shape[d] + begin[d] + position[d] - box.offset[d];
    return static_cast<size_t>(index) * elementBytes;
  };
  size_t rowBytes = (rank == 0 ? 1 : static_cast<size_t>(extent[rank - 1])) * elementBytes;
  while (true) {
    std::memcpy(to + address(target), from + address(source), rowBytes);
    size_t d = rank < 2 ? 0 : rank - 1; // the last dimension is the row
    while (d > 0 && ++position[d - 1] == extent[d - 1])
      position[--d] = 0;
    if (d == 0)
      return;
  }
}

bool sharesAny(const Box &a, const Box &b) {
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (a.offset[d] >= b.offset[d] + b.shape[d] || b.offset[d] >= a.offset[d] + a.shape[d])
      return false;
  return true;
}

// By squares that stay in a cache.
template <typename Element> static void transpose(const Element *from, Element *to, size_t rows, size_t columns) {
  constexpr size_t side = 64;
  for (size_t row = 0; row < rows; row += side)
    for (size_t column = 0; column < columns; column += side)
      for (size_t j = column; j < std::min(column + side, columns); ++j)
        for (size_t i = row; i < std::min(row + side, rows); ++i)
          to[j * rows + i] = from[i * columns + j];
}

void transpose(std::span<const std::byte> from, std::byte *to, size_t rows, size_t columns, size_t elementBytes) {
  switch (elementBytes) {
  case 2:
    return transpose(reinterpret_cast<const uint16_t *>(from.data()), reinterpret_cast<uint16_t *>(to), rows, columns);
  case 4:
    return transpose(reinterpret_cast<const uint32_t *>(from.data()), reinterpret_cast<uint32_t *>(to), rows, columns);
  default:
    return transpose(reinterpret_cast<const uint64_t *>(from.data()), reinterpret_cast<uint64_t *>(to), rows, columns);
  }
}

bool converts(DType from, DType to) {
  return from == to || (from == DType::f32 && to == DType::bf16) || (from == DType::bf16 && to == DType::f32);
}

template <typename From, typename To, typename Apply>
static void apply(std::span<const std::byte> source, std::byte *target, Apply &&apply) {
  const auto *in = reinterpret_cast<const From *>(source.data());
  std::transform(in, in + source.size() / sizeof(From), reinterpret_cast<To *>(target), apply);
}

void convert(DType from, std::span<const std::byte> source, DType to, std::byte *target, Linear change) {
  bool fromHalf = from == DType::bf16, toHalf = to == DType::bf16;
  if (from == to && change == Linear())
    std::memcpy(target, source.data(), source.size());
  else if (from == DType::f64)
    apply<double, double>(source, target, change);
  else if (fromHalf && toHalf)
    apply<uint16_t, uint16_t>(source, target, [=](uint16_t value) { return toBf16(change(fromBf16(value))); });
  else if (fromHalf)
    apply<uint16_t, float>(source, target, [=](uint16_t value) { return change(fromBf16(value)); });
  else if (toHalf)
    apply<float, uint16_t>(source, target, [=](float value) { return toBf16(change(value)); });
  else
    apply<float, float>(source, target, change);
}

} // namespace braid::runtime
