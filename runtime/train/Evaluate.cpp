#include "runtime/train/Evaluate.h"

#include "runtime/io/TensorNames.h"
#include "runtime/train/Corpus.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

namespace braid::runtime {

double EvalResult::bits() const { return nats / std::numbers::ln2; }

Expected<Evaluator> Evaluator::bind(Rank &rank) {
  Session &session = rank.session();
  BRAID_TRY(checkByteTokens(session.program()));
  BRAID_ASSIGN(const EntryInfo *entry, findEntry(session.program(), "eval_step"));
  Evaluator evaluator(rank);
  BRAID_ASSIGN(evaluator.batch, BatchBinding::bind(session, *entry));
  BRAID_ASSIGN(evaluator.lossSum, scalarOutput(session, *entry, "loss_sum", DType::f32));
  BRAID_ASSIGN(evaluator.validTokens, scalarOutput(session, *entry, "valid_tokens", DType::f32));
  return evaluator;
}

Expected<EvalResult> Evaluator::evaluate(std::span<const uint8_t> text) const {
  if (text.size() < 2)
    return Status::error("the held-out text has {} bytes, but at least 2 are needed", text.size());
  auto start = std::chrono::steady_clock::now();
  size_t seqLen = static_cast<size_t>(batch.seqLen);
  uint64_t windows = (text.size() - 1 + seqLen - 1) / seqLen;
  uint64_t globalBatch = static_cast<uint64_t>(batch.batch * rank->dpSize());
  uint64_t firstRow = static_cast<uint64_t>(batch.batch * rank->dpCoordinate());
  double sum = 0;
  for (uint64_t window = 0; window < windows; window += globalBatch) {
    for (int64_t row = 0; row < batch.batch; ++row) {
      // Past the end of the text a row is all padding: labels -1.
      uint64_t begin = (window + firstRow + static_cast<uint64_t>(row)) * seqLen;
      fillRow(text, begin, batch.tokenRow(row), batch.labelRow(row));
      fillDocuments(batch.documentRow(row), batch.seqLen);
    }
    BRAID_TRY(rank->session().run(batch.entry));
    uint64_t expected = std::min<uint64_t>((window + globalBatch) * seqLen, text.size() - 1) - window * seqLen;
    float counted = validTokens.as<float>()[0];
    if (counted != static_cast<float>(expected))
      return Status::error(ErrorCode::internal,
                           "eval_step counted {} labels in the batch at byte {}, but {} were given", counted,
                           window * seqLen, expected);
    double loss = lossSum.as<float>()[0];
    if (!std::isfinite(loss))
      return Status::error(ErrorCode::invalidArgument, "the loss is {} in the batch at byte {}", loss, window * seqLen);
    sum += loss;
  }
  EvalResult result;
  result.bytes = text.size() - 1;
  result.nats = sum / static_cast<double>(result.bytes);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

} // namespace braid::runtime
