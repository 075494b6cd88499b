//===- RecurrenceProducts.h - an equation of a recurrence as a sum of products ------------------------------------===//
// Multiplied out an equation has no parentheses; each of its products is numbers per head, operators, and the state or
// what is written (lsm-family.md 2.1).
#ifndef FRONTEND_RECURRENCEPRODUCTS_H
#define FRONTEND_RECURRENCEPRODUCTS_H

#include "frontend/Recurrence.h"

namespace braid::recurrence {

/// One factor of a product.
struct Factor {
  enum class Kind { name, transposed, exp, diag, full, turn, turns, state } kind;
  std::string name; ///< exp, diag, full: of the log decay; turn: p of exp(i p), turns: of diag(exp(i p))
  size_t column;
  std::string imaginary{}; ///< (name + i imaginary)^T
  bool bare = false; ///< diag(name), full(name): of the decay itself
};

/// A product without parentheses, in the order of the text.
struct Product {
  bool negative = false;
  std::vector<Factor> factors{};
  size_t column = 0;
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
  std::string phase, imaginary; ///< of what multiplies, of what is written
  bool phasePerHead = false;
  std::vector<Outer> outers;
  std::vector<std::string> leftDiagonals; ///< of the diagonals those left of k^T k, with which they do not commute
  std::string row; ///< of an output: the row before M, or the row itself
  size_t column = 0;
};

/// real + i imaginary, or real exp(i imaginary); what is not there is 0, or 1.
struct Complex {
  std::optional<Term> real, imaginary;
};
/// Nothing where a term with i is not linear in it; `problem`: that term.
std::optional<Complex> complexOf(const Term &term, const Term *&problem);
/// Of exp(g + i p), and such a one times what has no i.
std::optional<Complex> polarOf(const Term &term, const Term *&problem);

/// Several multiples of M become one: M - a M is (1 - a) M.
void collectMultiples(Recurrence &recurrence, std::vector<Product> &products);
/// (I - b k^T k) (I - c p^T p) M + .. as M = (I - c p^T p) M; M = (I - b k^T k) M + ..; other equations as they are.
std::vector<Term> transitionsOf(const Term &state);

/// How many decays multiply it.
size_t decays(const Sorted &product);
bool sameProduct(const Sorted &a, const Sorted &b);

/// The right side of the equation of `carried`: M, or z, which sums keys, a state whose values are 1. Decays that stand
/// as they are become exp of their logarithms.
bool multiplyOut(Recurrence &recurrence, const Term &right, llvm::StringRef carried, std::vector<Sorted> &out,
                 ErrorFn error);

} // namespace braid::recurrence

#endif // FRONTEND_RECURRENCEPRODUCTS_H
