// Mean cross-entropy of a model on a text, over consecutive windows: every byte but the first is predicted once, from
// the bytes before it in its window.
#pragma once

#include "runtime/train/Rank.h"

namespace braid::runtime {

struct EvalResult {
  double nats = 0;     // per predicted byte
  uint64_t bytes = 0;  // predicted
  double seconds = 0;
  double bits() const;
};

// Uses entry `eval_step`. bind() looks everything up once; evaluate() is collective.
class Evaluator {
public:
  static Expected<Evaluator> bind(Rank &rank);
  Expected<EvalResult> evaluate(std::span<const uint8_t> text) const;

private:
  explicit Evaluator(Rank &rank) : rank(&rank) {}

  Rank *rank;
  BatchBinding batch;
  TensorView lossSum, validTokens;
};

} // namespace braid::runtime
