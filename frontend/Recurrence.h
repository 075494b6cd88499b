//===- Recurrence.h - a recurrence in the notation of its paper ---------------------------------------------------===//
// "state": "M = diag(exp(g)) M + k^T v", "output": "o = q M", and how q, k, v and the gates come from the layer's
// input: "g": "log_sigmoid(low_rank(x, 16)) / 16". The text is parsed, multiplied out and matched with the transition
// classes of braid.lsm.scan; what fits none is refused at the term that does not (models/README.md has the whole
// language).
//
//   state    M = sum of products; one M in each product that carries the state, one k^T v that writes
//   output   o = q M [+ d v]
//   inputs   name: expression of x, of parameters and of inputs before it, feature by feature
#ifndef FRONTEND_RECURRENCE_H
#define FRONTEND_RECURRENCE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/LogicalResult.h"
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace braid {

enum class LsmClass : uint32_t;

namespace recurrence {

/// What a value has for one token: one number of each head, head_dim of them, value_dim of them, or one for each
/// element of the state.
enum class Per { head, key, value, element };
llvm::StringRef nameOf(Per per);

/// A parsed text. Columns count from 1 and name the place in messages.
struct Term {
  enum class Kind { number, name, transpose, call, product, quotient, sum, negate };
  Kind kind = Kind::number;
  double number = 0;
  std::string name{}; ///< of a name or a call
  std::vector<Term> args{};
  std::map<std::string, std::string> options{}; ///< of a call: heads=2, per=head
  size_t column = 0;
};

/// A weight that inputs name: one number for each thing its place has (Per), equal for all tokens.
struct Parameter {
  std::string distribution =
      "constant"; ///< of braid.init: constant, normal, uniform, log_uniform, softplus_inverse, values
  double low = 0, high = 0;
  std::vector<double> values; ///< of an untrained parameter per head: its numbers
  std::optional<Per> per; ///< as the file says, or as its place says
  int64_t heads = 0; ///< of what it is added to or multiplies
  bool trained() const { return distribution != "values"; }
};

/// One of `inputs`: how a symbol comes from x.
struct Definition {
  std::string name;
  Term term;
  std::optional<Per> per{}; ///< what its uses need
  std::optional<Per> own{}; ///< what the term says without them
  int64_t heads = 0; ///< those of the state, or fewer that they share
  bool wide = false; ///< computed in the wide type: numbers per head, and what the log decay comes from
};

struct Recurrence {
  std::string state, output; ///< as the file says
  bool gated = false; ///< the mixer has an output gate
  std::vector<Definition> inputs; ///< in the order of the file
  std::vector<std::pair<std::string, Parameter>> parameters; ///< in the order of the file

  // What the equations say (analyze): the class, and which symbol stands in which place of braid.lsm.scan.
  LsmClass classId{};
  std::string reason; ///< for a remark: "M = exp(g) M + k^T v: one decay per head and token"
  std::string query, key, value, logDecay, beta;
  std::string valueDecay; ///< class R: right of M
  std::string lowRankA, lowRankB; ///< class D: + b^T a M
  bool elementwise = false; ///< class E: the log decay is one number per element
  std::vector<std::string> writeFactors; ///< numbers per head that multiply v
  std::vector<std::string> skipFactors; ///< o = q M + factors times skipValue
  std::string skipValue;

  std::map<std::string, size_t> stateColumns, outputColumns; ///< where an equation first names what it names

  Definition *definition(llvm::StringRef name);
  const Definition *definition(llvm::StringRef name) const;
  Parameter *parameter(llvm::StringRef name);
  const Parameter *parameter(llvm::StringRef name) const;
};

/// Takes a key below the mixer ("state", "inputs.g") and a message.
using ErrorFn = llvm::function_ref<void(llvm::StringRef key, const std::string &message)>;

/// One text as a term; `equation`: "left = right", of which the right side is returned and `left` must be the left one.
/// Nothing in the text crashes, or takes more than time and memory in its length.
std::optional<Term> parseTerm(llvm::StringRef text, llvm::StringRef key, ErrorFn error);
std::optional<Term> parseEquation(llvm::StringRef text, llvm::StringRef left, llvm::StringRef key, ErrorFn error);

/// Multiplies `state` and `output` out and finds class and places; then gives every input and parameter its shape.
/// `heads` of the state.
llvm::LogicalResult analyze(Recurrence &recurrence, int64_t heads, ErrorFn error);
/// What inputs may call, and how: used by analyze.
llvm::LogicalResult inferShapes(Recurrence &recurrence, int64_t heads, ErrorFn error);

} // namespace recurrence
} // namespace braid

#endif // FRONTEND_RECURRENCE_H
