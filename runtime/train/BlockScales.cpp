#include "runtime/train/BlockScales.h"

#include "runtime/io/Shape.h"
#include "runtime/train/TensorBox.h"

#include <cstring>

namespace braid::runtime {

static int64_t blocksOf(int64_t size, int64_t block) { return (size + block - 1) / block; }

Status BlockScales::check(const SafetensorsEntry &scales, const std::vector<int64_t> &shape) const {
  if (shape.size() < 2)
    return Status::error(ErrorCode::corruptFile, "is F8_E4M3 and has shape {}; valid: a matrix", formatShape(shape));
  std::vector<int64_t> wanted = shape;
  wanted[wanted.size() - 2] = blocksOf(wanted[wanted.size() - 2], rows);
  wanted.back() = blocksOf(wanted.back(), columns);
  if (scales.shape != wanted)
    return Status::error(ErrorCode::corruptFile,
                         "is F8_E4M3 {}, which blocks of [{}, {}] make {}, but the scales of its blocks are {}",
                         formatShape(shape), rows, columns, formatShape(wanted), formatShape(scales.shape));
  if (!converts(scales.dtype, DType::f32) || scales.packed == SafetensorsEntry::Packed::e4m3)
    return Status::error(ErrorCode::corruptFile,
                         "is F8_E4M3, but the scales of its blocks are {}; valid: F32, BF16, F16, "
                         "F8_E8M0",
                         safetensorsName(scales));
  return Status::success();
}

Expected<BlockScales::Matrix> BlockScales::join(const SafetensorsEntry &blocks, const SafetensorsEntry &scales) {
  std::vector<int64_t> outer(blocks.shape.begin(), blocks.shape.end() - (blocks.shape.empty() ? 0 : 1));
  if (blocks.dtype != DType::u8 || scales.dtype != DType::u8 || outer.size() < 2 ||
      blocks.shape.back() != ofMxfp4 / 2 || outer != scales.shape)
    return Status::error(
        ErrorCode::corruptFile,
        "blocks are {} {}, and their scales {} {}; valid: U8 [.., rows, groups, {}] and U8 [.., rows, groups]",
        safetensorsName(blocks), formatShape(blocks.shape), safetensorsName(scales), formatShape(scales.shape),
        ofMxfp4 / 2);
  Matrix matrix{blocks, scales};
  SafetensorsEntry &elements = matrix.elements;
  elements.shape = outer;
  elements.shape.back() *= ofMxfp4;
  std::swap(elements.shape.back(), elements.shape[elements.shape.size() - 2]);
  for (auto [entry, packed] :
       {std::pair(&elements, SafetensorsEntry::Packed::e2m1), {&matrix.scales, SafetensorsEntry::Packed::e8m0}}) {
    entry->dtype = DType::f32;
    entry->packed = packed;
    entry->bytes *= entry->shrinks();
  }
  return matrix;
}

void BlockScales::apply(const std::vector<int64_t> &shape, std::span<const std::byte> scales,
                        std::span<std::byte> elements) const {
  int64_t ofMatrix = shape[shape.size() - 2], width = shape.back(), perRow = blocksOf(width, columns);
  int64_t all = width ? static_cast<int64_t>(elements.size() / sizeof(float)) / width : 0;
  std::vector<float> ofRow(static_cast<size_t>(width));
  for (int64_t row = 0; row < all; ++row) {
    int64_t inMatrix = row % ofMatrix;
    if (inMatrix % rows == 0) { // the next row of blocks
      int64_t first = (row / ofMatrix * blocksOf(ofMatrix, rows) + inMatrix / rows) * perRow;
      for (int64_t column = 0; column < width; ++column)
        std::memcpy(&ofRow[static_cast<size_t>(column)],
                    scales.data() + static_cast<size_t>(first + column / columns) * sizeof(float), sizeof(float));
    }
    std::byte *at = elements.data() + static_cast<size_t>(row * width) * sizeof(float);
    for (float scale : ofRow) {
      float value;
      std::memcpy(&value, at, sizeof(float));
      value *= scale;
      std::memcpy(at, &value, sizeof(float));
      at += sizeof(float);
    }
  }
}

} // namespace braid::runtime
