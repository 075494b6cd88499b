// Checkpoints whose values say where they belong, of programs that are sharded in every way.
#pragma once

#include "runtime/Bf16.h"
#include "runtime/train/Checkpoint.h"

#include <cmath>
#include <gtest/gtest.h>

namespace braid::runtime::test {

enum class Kept {
  f32,
  bf16WithMaster,
  bf16WithLow,
  bf16WithMoments,
  bf16Alone
}; // bf16WithMoments: low, and both moments bf16; bf16Alone: no moments either
inline bool hasMaster(Kept kept) { return kept != Kept::f32 && kept != Kept::bf16Alone; }

// Parameters sharded in every way, over a mesh of dense <dp, tp> and expert <edp, ep> axes, in `pp` stages, which have equal parts
// of the layers; "embed.weight" is of the first and the last. Not meant to run.
std::shared_ptr<const Program> shardedProgram(uint32_t dp, uint32_t tp, uint32_t ep, int64_t width = 12,
                                              std::vector<int32_t> layers = {0, 3}, bool extra = false,
                                              Kept kept = Kept::f32, uint32_t pp = 1);

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
    auto viewOf = [&](const TensorInfo &info) { return rank.session().tensor(info).layer(tensor.layer); };
    TensorView view = viewOf(*tensor.info);
    bool half = tensor.info->dtype == DType::bf16, parts = tensor.info->dtype == DType::i16;
    std::vector<int64_t> index = tensor.offset;
    for (size_t i = 0; i < view.bytes / sizeOf(tensor.info->dtype); ++i) {
      if (parts) {
        int64_t at = 0; // in the weights
        for (size_t d = 0; d < index.size(); ++d)
          at = at * tensor.roundedShape[d] + index[d] - tensor.roundedOffset[d];
        TensorView weights = viewOf(*tensor.rounded), moments = viewOf(*tensor.second);
        uint16_t &high = weights.as<uint16_t>()[at];
        int16_t &low = view.as<int16_t>()[i];
        MasterSigns signs({moments.data, moments.bytes}, sizeOf(moments.info->dtype));
        float wide = joinMaster({high, low, signs[i]});
        f(wide, tensor.name, index);
        MasterParts split = splitMaster(wide);
        high = split.high, low = split.low;
        signs.set(i, split.above);
      } else {
        float value = half ? fromBf16(view.as<uint16_t>()[i]) : view.as<float>()[i];
        bool sign = tensor.signsOfMaster && std::signbit(value);
        value = sign ? -value : value;
        f(value, tensor.name, index);
        value = sign ? -value : value;
        if (half)
          view.as<uint16_t>()[i] = toBf16(value);
        else
          view.as<float>()[i] = value;
      }
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
