#include "test/benchmark/Training.h"

#include "runtime/io/TensorNames.h"
#include "runtime/train/Random.h"

#include <algorithm>

namespace braid::benchmark {

using namespace braid::runtime;

static constexpr float learningRateOfSteps = 1e-3f;

void fillBatch(BatchBinding &batch) {
  std::vector<uint8_t> text(static_cast<size_t>(batch.batch * batch.seqLen + 1));
  uint32_t previous = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    uint64_t bits = randomBits(7, RandomStream::sampling, i);
    uint32_t fresh = static_cast<uint32_t>((bits % 64) * ((bits >> 8) % 64) / 64);
    previous = (bits >> 32) % 2 ? fresh : (previous * 5 + 3) % 64;
    text[i] = static_cast<uint8_t>(previous + 32);
  }
  for (int64_t row = 0; row < batch.batch; ++row) {
    auto first = text.begin() + row * batch.seqLen;
    (void)batch.fillRow(row, [&](auto tokens, auto labels, auto documents) {
      std::copy_n(first, batch.seqLen, tokens.begin());
      std::copy_n(first + 1, batch.seqLen, labels.begin());
      std::ranges::fill(documents, static_cast<int32_t>(batch.seqLen));
      documents[0] = 0;
      return Status::success();
    });
    batch.setDraw(row, static_cast<uint64_t>(row), 0);
  }
}

Expected<Training> Training::bind(Session &session) {
  Training training;
  BRAID_ASSIGN(const EntryInfo *entry, findEntry(session.program(), "train_step"));
  BRAID_ASSIGN(training.batch, BatchBinding::bind(session, *entry));
  BRAID_ASSIGN(training.learningRate, scalarInput(session, *entry, "learning_rate", DType::f32));
  BRAID_ASSIGN(training.step, scalarInput(session, *entry, "step", DType::i32));
  BRAID_ASSIGN(training.loss, scalarOutput(session, *entry, "loss", DType::f32));
  return training;
}

// The io arena is shared by entries, so inputs are written before every run, as the training loop does.
Expected<float> Training::run(Session &session, int32_t number) {
  fillBatch(batch);
  learningRate.as<float>()[0] = learningRateOfSteps;
  step.as<int32_t>()[0] = number;
  BRAID_TRY(session.run(batch.entry));
  return loss.as<float>()[0];
}

} // namespace braid::benchmark
