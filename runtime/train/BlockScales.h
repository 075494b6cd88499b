// Weights of other software with fewer bits than their numbers have. The files say which tensors these are by their types,
// config.json beside them how: quantization_config (ImportedConfig.h).
#pragma once

#include "runtime/Expected.h"
#include "runtime/io/Safetensors.h"

#include <span>
#include <vector>

namespace braid::runtime {

// "quant_method": "fp8" (DeepSeek-V3, section 3.3): the elements of a matrix NAME are E4M3, and every block of so many rows
// and columns is multiplied by an element of the matrix NAME_scale_inv; blocks at its ends may be smaller.
// "mxfp4" (gpt-oss; OCP microscaling formats 1.0): NAME is kept as NAME_blocks [.., R, G, 16], two E2M1 in a byte, and NAME_scales
// [.., R, G], E8M0, each of 32 elements of a row; what it stands for is [.., 32 G, R].
struct BlockScales {
  static constexpr std::string_view suffix = "_scale_inv", ofBlocks = "_blocks", ofScales = "_scales";
  static constexpr int64_t ofMxfp4 = 32;
  int64_t rows = 0, columns = 0; // 0: the config says nothing of blocks
  bool isMxfp4 = false;

  // An error says how `scales` do not fit a tensor of this shape, of experts one after the other in front of rows.
  Status check(const SafetensorsEntry &scales, const std::vector<int64_t> &shape) const;
  // What two such tensors stand for, and their scales; an error says how they do not fit.
  struct Matrix {
    SafetensorsEntry elements, scales;
  };
  static Expected<Matrix> join(const SafetensorsEntry &blocks, const SafetensorsEntry &scales);
  // f32 [.., R, C], the elements without their scales; `scales` f32.
  void apply(const std::vector<int64_t> &shape, std::span<const std::byte> scales, std::span<std::byte> elements) const;
};

} // namespace braid::runtime
