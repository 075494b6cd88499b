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
struct BlockScales {
  static constexpr std::string_view suffix = "_scale_inv";
  int64_t rows = 0, columns = 0; // 0: the config says nothing of blocks

  // An error says how `scales` do not fit a tensor of this shape, of experts one after the other in front of rows.
  Status check(const SafetensorsEntry &scales, const std::vector<int64_t> &shape) const;
  // f32 [.., R, C], the elements without their scales; `scales` f32.
  void apply(const std::vector<int64_t> &shape, std::span<const std::byte> scales, std::span<std::byte> elements) const;
};

} // namespace braid::runtime
