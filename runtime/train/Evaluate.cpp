#include "runtime/train/Evaluate.h"

#include "runtime/io/TensorNames.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

namespace braid::runtime {

double EvalResult::bits() const { return nats / std::numbers::ln2; }

Expected<Evaluator> Evaluator::bind(Rank &rank) {
  Session &session = rank.session();
  BRAID_ASSIGN(const EntryInfo *entry, findEntry(session.program(), "eval_step"));
  Evaluator evaluator(rank);
  BRAID_ASSIGN(evaluator.batch, BatchBinding::bind(session, *entry));
  BRAID_ASSIGN(evaluator.lossSum, scalarOutput(session, *entry, "loss_sum", DType::f32));
  BRAID_ASSIGN(evaluator.validTokens, scalarOutput(session, *entry, "valid_tokens", DType::f32));
  auto table = [&](const char *name, std::optional<TensorView> &view) -> Status {
    if (const TensorInfo *tensor = findByLastComponent(session.program(), entry->outputs, name)) {
      BRAID_TRY(checkTensor(*entry, *tensor, DType::i32, 2));
      view = session.tensor(*tensor);
    }
    return Status::success();
  };
  BRAID_TRY(table("expert_counts", evaluator.expertCounts));
  BRAID_TRY(table("expert_dropped", evaluator.expertDropped));
  return evaluator;
}

Expected<EvalResult> Evaluator::evaluate(const Corpus &corpus) const {
  BRAID_TRY(checkTokens(rank->program(), corpus));
  auto start = std::chrono::steady_clock::now();
  Expected<PackedRows> packed = PackedRows::pack(corpus, batch.seqLen, batch.documentStride - 1);
  if (!packed)
    return packed.status().withContext("held-out data");
  const PackedRows &rows = *packed;
  uint64_t globalBatch = static_cast<uint64_t>(batch.batch * rank->dpSize());
  double sum = 0;
  EvalResult result;
  auto total = [](const std::optional<TensorView> &table) {
    uint64_t all = 0;
    if (table)
      for (int32_t count : table->as<int32_t>())
        all += static_cast<uint64_t>(count);
    return all;
  };
  for (uint64_t first = 0; first < rows.size(); first += globalBatch) {
    for (int64_t i = 0; i < batch.batch; ++i) {
      uint64_t row = SampleOrder::sample(first, rank->dpCoordinate(), batch.batch, i);
      BRAID_TRY(batch.fillRow(i, [&](auto tokens, auto labels, auto documents) {
        if (row < rows.size())
          return rows.fill(corpus, row, tokens, labels, documents);
        PackedRows::fillPadding(tokens, labels, documents);
        return Status::success();
      }));
      batch.setDraw(i, row, /*seed=*/0); // the same in every evaluation
    }
    BRAID_TRY(rank->session().run(batch.entry));
    uint64_t expected = 0;
    for (uint64_t row = first; row < std::min(first + globalBatch, rows.size()); ++row)
      expected += rows.labels(row);
    float counted = validTokens.as<float>()[0];
    if (counted != static_cast<float>(expected))
      return Status::error(ErrorCode::internal, "eval_step counted {} labels in the batch at row {}, but {} were given",
                           counted, first, expected);
    double loss = lossSum.as<float>()[0];
    if (!std::isfinite(loss))
      return Status::error(ErrorCode::invalidArgument, "the loss is {} in the batch at row {}", loss, first);
    sum += loss;
    result.assignments += total(expertCounts);
    result.dropped += total(expertDropped);
  }
  result.tokens = rows.labels();
  result.nats = sum / static_cast<double>(result.tokens);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

} // namespace braid::runtime
