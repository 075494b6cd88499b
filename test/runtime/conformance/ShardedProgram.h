// Checkpoints whose values say where they belong, of programs that are sharded in every way.
#pragma once

#include "runtime/Bf16.h"
#include "runtime/train/Checkpoint.h"

#include <gtest/gtest.h>

namespace braid::runtime::test {

enum class Kept { f32, bf16WithMaster, bf16Alone }; // bf16Alone: no moments either

// Parameters sharded in every way, over a mesh of dense <dp, tp> and expert <edp, ep> axes. Not meant to run.
std::shared_ptr<const Program> shardedProgram(uint32_t dp, uint32_t tp, uint32_t ep, int64_t width = 12,
                                              std::vector<int32_t> layers = {0, 3}, bool extra = false,
                                              Kept kept = Kept::f32);

// The value of one element, from its logical name and global index.
float valueAt(const std::string &name, const std::vector<int64_t> &index);

enum class Of { masters, weights }; // where both are: which of them

// Calls f(element, name, global index) for each element this rank holds.
template <class F> void forEach(Rank &rank, F &&f, Of of = Of::masters) {
  auto tensors = logicalTensors(rank.program(), static_cast<uint32_t>(rank.index()), true);
  ASSERT_TRUE(tensors) << tensors.message();
  for (LogicalTensor &tensor : *tensors) {
    if (tensor.rounded && of == Of::weights) {
      tensor.info = tensor.rounded;
      tensor.offset = tensor.roundedOffset;
      tensor.localShape = tensor.roundedShape;
    }
    TensorView view = rank.session().tensor(*tensor.info).layer(tensor.layer);
    bool half = tensor.info->dtype == DType::bf16;
    std::vector<int64_t> index = tensor.offset;
    for (size_t i = 0; i < view.bytes / sizeOf(tensor.info->dtype); ++i) {
      float wide = half ? fromBf16(view.as<uint16_t>()[i]) : 0;
      f(half ? wide : view.as<float>()[i], tensor.name, index);
      if (half)
        view.as<uint16_t>()[i] = toBf16(wide);
      for (size_t d = index.size(); d-- > 0;) {
        if (++index[d] < tensor.offset[d] + tensor.localShape[d])
          break;
        index[d] = tensor.offset[d];
      }
    }
  }
}

// Fills all tensors with valueAt and saves them as `step`.
Status saveFilled(Rank &rank, const std::string &directory, uint64_t step, int keep = 3);

} // namespace braid::runtime::test
