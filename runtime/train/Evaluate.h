// Mean cross-entropy of a model on some documents: every token but the first of a document is predicted once, from the
// tokens before it in its row (runtime/data/PackedRows.h).
#pragma once

#include "runtime/data/PackedRows.h"
#include "runtime/train/Rank.h"

namespace braid::runtime {

struct EvalResult {
  double nats = 0;     // per predicted token
  uint64_t tokens = 0; // predicted
  double seconds = 0;
  // Where experts have a capacity: assignments of tokens to experts in all layers, and those that found no slot.
  uint64_t assignments = 0, dropped = 0;
  double bits() const;
};

// Uses entry `eval_step`. bind() looks everything up once; evaluate() is collective.
class Evaluator {
public:
  static Expected<Evaluator> bind(Rank &rank);
  Expected<EvalResult> evaluate(const Corpus &corpus) const;

private:
  explicit Evaluator(Rank &rank) : rank(&rank) {}

  Rank *rank;
  BatchBinding batch;
  TensorView lossSum, validTokens;
  std::optional<TensorView> expertCounts, expertDropped;
};

} // namespace braid::runtime
