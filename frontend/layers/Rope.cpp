//===- Rope.cpp - rotary positions, and their frequencies for longer contexts -------------------------------------===//
// Frequencies theta^(-2i/dim) times a factor for each pair: 1 where a rotation stays, 1 / factor where it is slowed down
// all the way. linear: Chen et al. 2023; llama3: Llama 3.1; yarn: Peng et al. 2023; proportional: 0 for pairs that do not turn.
#include "frontend/layers/LayerBuilder.h"
#include <algorithm>
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace braid;

double RopeScaling::attentionFactorOf(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * std::log(factor) + 1.0 : 1.0;
}

std::vector<double> RopeScaling::factors(double theta, int64_t dim) const {
  double context = static_cast<double>(originalContextLen), low = 0, high = 0;
  if (kind == "yarn") {
    // The pair, not a whole one, that turns so often in the original context.
    auto pairOf = [&](double turns) {
      return static_cast<double>(dim) * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    low = pairOf(betaFast), high = pairOf(betaSlow);
    if (truncate)
      low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, static_cast<double>(dim - 1));
    if (low == high)
      high += 0.001;
  }
  std::vector<double> result;
  for (int64_t i = 0; i < dim / 2; ++i) {
    double stays = 0; // 1: all of it, 0: divided by factor
    if (kind == "llama3") {
      double turns = context * RopeOp::frequency(theta, dim, i) / (2 * std::numbers::pi);
      stays = std::clamp((turns - lowFreqFactor) / (highFreqFactor - lowFreqFactor), 0.0, 1.0);
    } else if (kind == "yarn") {
      stays = 1 - std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    }
    bool isStill = kind == "proportional" && i >= static_cast<int64_t>(share * static_cast<double>(dim)) / 2;
    result.push_back(isStill ? 0.0 : stays + (1 - stays) / factor);
  }
  return result;
}

Value LayerBuilder::rope(StringRef name, Value x, const RopeSpec &rope, int64_t period) {
  int64_t dim = rope.dim(cast<RankedTensorType>(x.getType()).getShape().back());
  DenseF64ArrayAttr factors;
  FloatAttr scale;
  if (const std::optional<RopeScaling> &scaling = rope.scaling) {
    factors = builder.getDenseF64ArrayAttr(scaling->factors(rope.theta, dim));
    double attention = scaling->attentionFactor > 0 ? scaling->attentionFactor
                       : scaling->kind == "yarn"    ? RopeScaling::attentionFactorOf(scaling->factor)
                                                    : 1.0;
    if (attention != 1)
      scale = builder.getF64FloatAttr(attention);
  }
  return RopeOp::create(builder, loc(name), x.getType(), x, documents(), builder.getF64FloatAttr(rope.theta),
                        builder.getI64IntegerAttr(dim), builder.getStringAttr(rope.layout),
                        period ? builder.getI64IntegerAttr(period) : IntegerAttr(), factors, scale);
}
