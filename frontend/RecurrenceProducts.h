//===- RecurrenceProducts.h - an equation of a recurrence as a sum of products ------------------------------------===//
// Multiplied out an equation has no parentheses; each of its products is numbers per head, operators, and the state or
// what is written (lsm-family.md 2.1).
#ifndef FRONTEND_RECURRENCEPRODUCTS_H
#define FRONTEND_RECURRENCEPRODUCTS_H

#include "frontend/Recurrence.h"

namespace braid::recurrence {

/// One factor of a product.
struct Factor {
  enum class Kind { name, transposed, exp, diag, full, state } kind;
  std::string name; ///< exp, diag, full: of the log decay
  size_t column;
  std::string phase{}; ///< diag(exp(name + i phase)), (name + i phase)^T
  bool bare = false; ///< diag(name), full(name): of the decay itself
};

/// a^T b: a number for each pair of features.
struct Outer {
  std::string left, right;
  bool operator==(const Outer &) const = default;
};

/// A product sorted: what multiplies, in which order it acts on the state, what is written.
struct Sorted {
  bool negative = false, hasState = false;
  std::vector<std::string> numbers; ///< per head, sorted
  std::vector<std::string> scalarDecays, diagonals, fulls; ///< names in exp(..), diag(exp(..)), full(exp(..))
  std::vector<std::string> valueDiagonals; ///< in diag(exp(..)) right of M
  std::string phase, imaginary; ///< of a diagonal, of what is written
  std::vector<Outer> outers;
  std::vector<std::string> leftDiagonals; ///< of the diagonals those left of k^T k, with which they do not commute
  std::string row; ///< of an output: the row before M, or the row itself
  size_t column = 0;
};

/// How many decays multiply it.
size_t decays(const Sorted &product);
bool sameProduct(const Sorted &a, const Sorted &b);

/// The right side of the equation of `carried`: M, or z, which sums keys, a state whose values are 1. Decays that stand
/// as they are become exp of their logarithms.
bool multiplyOut(Recurrence &recurrence, const Term &right, llvm::StringRef carried, std::vector<Sorted> &out,
                 ErrorFn error);

} // namespace braid::recurrence

#endif // FRONTEND_RECURRENCEPRODUCTS_H
