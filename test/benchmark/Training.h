// Training: steps of a program on one synthetic batch, again and again. What benchmarks time.
#pragma once

#include "runtime/train/Rank.h"

namespace braid::benchmark {

// One batch of synthetic text: 64 symbols, the low ones more often, each leaning on the one before.
void fillBatch(runtime::BatchBinding &batch);

// The inputs and the loss of entry train_step; the learning rate is 1e-3.
struct Training {
  runtime::BatchBinding batch;
  runtime::TensorView learningRate, step, loss;

  static runtime::Expected<Training> bind(runtime::Session &session);
  // Step `number`, from 1. Returns its loss.
  runtime::Expected<float> run(runtime::Session &session, int32_t number);
};

} // namespace braid::benchmark
