//===- RecurrenceFunctions.h - what inputs of a recurrence may call, and what they say of themselves --------------===//
#ifndef FRONTEND_RECURRENCEFUNCTIONS_H
#define FRONTEND_RECURRENCEFUNCTIONS_H

#include "dialects/braid/Interval.h"
#include "frontend/Recurrence.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace braid::recurrence {

struct Function {
  llvm::StringRef name;
  size_t least, most; ///< arguments
  enum class Kind {
    source, ///< a product of all features of one thing
    feature, ///< of each number
    vector, ///< of all numbers of a head
    before, ///< of the token before
    first, ///< of another layer
    norm, ///< with parameters
    decay,
    rows, ///< head_dim numbers to the rows of the state
    inner, ///< two times a head's numbers to one
    join, ///< all heads as one
    split, ///< and x as all heads
    place ///< of the place in a mini-batch
  } kind;
};

/// None of another name.
const Function *functionOf(llvm::StringRef name);
/// "linear, low_rank, .."
std::string functionNames();
/// linear and low_rank: a matrix product rounds what it reads.
bool isSource(const Term &term);
/// Whether one of them stands somewhere in the term.
bool callsSource(const Term &term);

std::optional<Per> perOf(llvm::StringRef name);
/// What a term says of itself: per=head somewhere inside, a symbol whose place is known; of inputs only those above
/// `before` are.
std::optional<Per> ownPer(const Recurrence &r, const Term &term, const Definition *before = nullptr);
/// Whether the value differs between tokens: it is not of numbers and parameters alone.
bool dependsOnToken(const Recurrence &r, const Term &term);

/// What inputs and parameters lie between, as far as functions and numbers say it; what is trained may be anything.
class Ranges {
public:
  /// Formulas give numbers once `sizes` are known; before, they are taken to be from 0 to 1.
  explicit Ranges(const Recurrence &r, const Sizes *sizes = nullptr);
  Interval of(llvm::StringRef name) const;
  /// Of a term of the recurrence, which stays where it is.
  Interval of(const Term &term) const;

private:
  Interval computed(const Term &term) const;
  Interval ofSum(const Term &sum) const;
  Interval ofFactors(const Term &term) const;
  Interval ofCall(const Term &call) const;
  const Term &meaning(const Term &term) const;
  const Term *complemented(const Term &term) const;
  std::optional<Interval> between(const Term &one, const Term &other) const;

  const Recurrence &r;
  llvm::StringMap<Interval> known;
  mutable llvm::DenseMap<const Term *, Interval> seen; ///< a part that several things look at is looked at once
};

/// What clamp(y, 0, 1), max(y, 0) and min(y, 1) keep y between; nothing of other calls.
std::optional<Interval> clampOf(const Term &call);

/// Numbers that are known become one; what all tokens share gets an input of its own where it is more than a name, so
/// that it is computed once: "linear(x) - exp(u)" is linear(x) + h with h = -exp(u), and a division by h a product with
/// 1 / h. A message about such an input names the one it stood in (Definition::place).
void liftConstants(Recurrence &r);

} // namespace braid::recurrence

#endif // FRONTEND_RECURRENCEFUNCTIONS_H
