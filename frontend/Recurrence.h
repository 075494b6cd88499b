//===- Recurrence.h - a recurrence in the notation of its paper ---------------------------------------------------===//
// "state": "M = diag(exp(g)) M + k^T v", "output": "o = q M", and how q, k, v and the gates come from the layer's
// input: "g": "log_sigmoid(low_rank(x, 16)) / 16". The text is parsed, multiplied out and matched with the transition
// classes of braid.lsm.scan; what fits none is refused at the term that does not (models/README.md has the whole
// language).
//
//   state    M = sum of products; one M in each product that carries the state, one k^T v that writes
//            [; z = the same without v], the normaliser; or M = M - r grad(l2(k M - v)) [; S = ..] [; M_0 = w]
//   output   o = expression with one q M: o = q M + d v, o = layer_norm(q M, w, b) silu(g), o = (q M) / (q z)
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
struct LsmSpec;
struct ModelSpec;

namespace recurrence {

/// What a value has for one token: one number of each head, head_dim of them, value_dim of them, one for each element
/// of the state, for each of its rows where those are more than head_dim, for each value feature of all heads, or
/// d_model of them. `place`: of a parameter, one for each token of a mini-batch.
enum class Per { head, key, value, element, row, all, model, place };
llvm::StringRef nameOf(Per per);

/// Of the state, the model and the mini-batches of gradient steps.
struct Sizes {
  int64_t heads = 1, headDim = 1, valueDim = 1, layers = 1, dModel = 1, miniBatch = 1;
};

/// A parsed text. Columns count from 1 and name the place in messages.
struct Term {
  enum class Kind { number, name, transpose, power, call, product, quotient, sum, negate };
  Kind kind = Kind::number;
  double number = 0; ///< and of a power, 2 to 4
  std::string name{}; ///< of a name or a call
  std::vector<Term> args{}; ///< of a transpose: the imaginary part, if it has one; without a name, what is transposed
  std::map<std::string, std::string> options{}; ///< of a call: heads=2, per=head
  size_t column = 0;
};
/// Numbers of texts are 0 or of such a size.
inline constexpr double leastNumber = 1e-30, mostNumber = 1e30;
/// A number that keeps a quotient from dividing by 0: above 0, at most 1.
inline bool keepsFromZero(const Term &term) {
  return term.kind == Term::Kind::number && term.number > 0 && term.number <= 1;
}

/// A weight that inputs name: one number for each thing its place has (Per), equal for all tokens.
struct Parameter {
  std::string distribution =
      "constant"; ///< of braid.init: constant, normal, uniform, log_uniform, softplus_inverse, values
  double scale = 0, low = 0, high = 0;
  std::vector<double> values; ///< of an untrained parameter per head: its numbers
  std::string formulaText; ///< "" or what gives the numbers of every head, feature and layer
  std::optional<Term> formula; ///< that text, parsed
  bool trained = true, shared = false; ///< shared: all heads have one
  std::optional<Per> per; ///< as the file says, or as its place says
  int64_t heads = 0; ///< of what it is added to or multiplies
  bool perLayer() const; ///< whether its formula names the layer
};

/// One of `inputs`: how a symbol comes from x.
struct Definition {
  std::string name;
  Term term;
  std::optional<Per> per{}; ///< what its uses need
  std::optional<Per> own{}; ///< what the term says without them
  std::optional<Per> projected{}; ///< what its linear or low_rank gives
  int64_t heads = 0; ///< those of the state, or fewer that they share
  bool constant = false; ///< of parameters and numbers alone: the same for all tokens
  bool wide = false; ///< computed in the wide type: numbers per head, and what the log decay comes from
  std::string place{}; ///< of one that no text has: the key below the mixer that it comes from
  std::string decay{}; ///< what the state is multiplied by as it stands; `term` is the logarithm of it
  std::string whole{}; ///< the input that texts mean by this one's name, where `term` is only what that is computed of
  /// Where messages look for it.
  std::string key() const { return !place.empty() ? place : name == "o" ? "output" : "inputs." + name; }
};

/// Which symbol stands in which place of braid.lsm.scan, for one update of the state.
struct Update {
  LsmClass classId{};
  std::string key, value, logDecay,
      beta; ///< value "": of several updates one that writes nothing; beta "1": that number
  bool decaysPerHead = false; ///< classes D and R without one decay per key feature: one per head, or none
  std::string valueDecay; ///< class R: right of M
  std::string lowRankA, lowRankB; ///< class D: + b^T a M
  bool elementwise = false; ///< class E: the log decay is one number per element
  std::vector<std::string> writeFactors; ///< numbers per head that multiply v
};

/// The update of a recurrence is the last of a token.
struct Recurrence : Update {
  std::string state, output; ///< as the file says
  bool gated = false, normed = true; ///< the mixer has an output gate, an output norm
  std::vector<Definition> inputs; ///< in the order of the file
  std::vector<std::pair<std::string, Parameter>> parameters; ///< in the order of the file

  // What the equations say (analyze): the class, and which symbol stands in which place of braid.lsm.scan.
  std::vector<Update> earlier; ///< updates that a token makes before the last, in their order
  std::string notation; ///< of another one than rows and keys by values: how it was read
  std::string reason; ///< for a remark: "M = exp(g) M + k^T v: one decay per head and token"
  std::string query; ///< "1": a row of ones
  std::vector<std::string> rowFactors; ///< numbers per head that are parts of rows made of the equation
  std::vector<std::string> skipFactors; ///< o = q M + factors times skipValue
  std::string skipValue;
  std::string keyImaginary; ///< the key is key + i keyImaginary
  std::string phase; ///< class V: the decay is exp(logDecay + i phase), and o the real part
  bool normalised = false; ///< o = (q M) / (q z)
  bool readsSums = false; ///< .. or another expression of q M and q z, "z" in the definition "o"
  bool readsBefore = false; ///< o reads M as the token before left it
  bool expressed = false; ///< the last definition, "o", is the output; in it "M" stands for q M

  // Gradient steps, the places of braid.lsm.inner_step: value is what k M should be.
  bool inner = false;
  std::string rate, placeRate, momentum, normWeight, normBias, start;
  std::optional<double> normEps; ///< as the equation says; otherwise norm_eps

  std::string rowFunction; ///< what makes rows of keys: taylor, square, with_one; "": a row for each key feature
  std::vector<std::string> bounds; ///< parameters that are the least value of a gate
  bool turnsKeys = false, turnsValues = false; ///< rope(..) of either
  bool keepsFirst = false; ///< first(v): values of the first layer that has some

  std::map<std::string, size_t> stateColumns, outputColumns; ///< where an equation first names what it names

  Definition *definition(llvm::StringRef name);
  const Definition *definition(llvm::StringRef name) const;
  Parameter *parameter(llvm::StringRef name);
  const Parameter *parameter(llvm::StringRef name) const;
  /// "exp(g)", or what stands where g is the logarithm of it.
  std::string decayText(llvm::StringRef log) const;
  /// Whether it is q, k, v or another row that stands in the equations.
  bool standsInRow(llvm::StringRef name) const;
  /// All of a token, in their order.
  std::vector<const Update *> updates() const;
  /// The least class that all updates have.
  LsmClass scanClass() const;
  /// What each input and parameter has: "per head: g; per key: q, k".
  std::string widths() const;
  /// "S", or "GM" of gradient steps.
  std::string className() const;
  /// Whether an input or the output calls the function.
  bool calls(llvm::StringRef function) const;
  /// What stands for one weight: a parameter, an input of parameters alone.
  bool isConstant(llvm::StringRef name) const;
  /// Such a one that nothing trains: numbers, `values`, and what is computed of them.
  bool isFixed(llvm::StringRef name) const;
  /// Whether i is the imaginary unit: nothing else has its name.
  bool hasImaginary() const { return !definition("i") && !parameter("i"); }
  /// Rows of the state.
  int64_t rows(int64_t headDim) const;
};

/// Takes a key below the mixer ("state", "inputs.g") and a message.
using ErrorFn = llvm::function_ref<void(llvm::StringRef key, const std::string &message)>;

/// Whether the function is called, or the name stands, somewhere in the term.
bool calls(const Term &term, llvm::StringRef function);
bool mentions(const Term &term, llvm::StringRef name);
/// Where it stands first; null: nowhere.
const Term *nameIn(const Term &term, llvm::StringRef name);

/// `left = right` of a text that has several, separated by ";".
struct Statement {
  std::string left;
  Term right;
  size_t column;
};

/// One text as a term; `equation`: "left = right", of which the right side is returned and `left` must be the left one.
/// Nothing in the text crashes, or takes more than time and memory in its length.
std::optional<Term> parseTerm(llvm::StringRef text, llvm::StringRef key, ErrorFn error);
/// `imaginary`: whether (k + i l)^T is a complex row.
std::optional<Term> parseEquation(llvm::StringRef text, llvm::StringRef left, llvm::StringRef key, ErrorFn error,
                                  bool imaginary = true);
std::optional<std::vector<Statement>> parseStatements(llvm::StringRef text, llvm::StringRef key, ErrorFn error,
                                                      bool imaginary = true);
/// row^T, also of a complex row k + i l.
Term transposeOf(Term row, bool imaginary);

/// Of a mixer in a model; `model`: d_model and the number of layers.
Sizes sizesOf(const ModelSpec &model, const LsmSpec &mixer);

/// Multiplies `state` and `output` out and finds class and places; then gives every input and parameter its shape.
llvm::LogicalResult analyze(Recurrence &recurrence, const Sizes &sizes, ErrorFn error);
/// That a state's right side is linear in it; that inputs read neither the state nor what only formulas have.
bool checkLinear(const Term &right, ErrorFn error);
bool checkInputs(const Recurrence &recurrence, ErrorFn error);
/// What inputs say of themselves: Definition::constant and own.
void describeInputs(Recurrence &recurrence);
/// Sums, products and quotients of numbers alone become numbers.
void foldNumbers(Term &term);
/// A term as it may be written.
std::string textOf(const Term &term);
/// An input for what a text computes where a name belongs, called as it is written; `place`: Definition::place.
std::string inputOf(Recurrence &recurrence, Term term, llvm::StringRef place);
/// The name of the logarithm of what multiplies M as it is; nothing where none is known.
/// Of an input a = sigmoid(y) that is log_sigmoid(y); a itself becomes y, and what reads it reads "a (whole)".
std::optional<std::string> takeLog(Recurrence &recurrence, llvm::StringRef name);
/// That logarithm, once taken.
const Definition *takenLog(const Recurrence &recurrence, llvm::StringRef name);
/// The name of exp(g), an input that is made where there is none.
std::string expOf(Recurrence &recurrence, llvm::StringRef log);
/// Names of what is made here as a text would say it.
std::string shownNames(std::string text);
/// What a text means by a name, and puts it where a term has the name.
std::string wholeOf(const Recurrence &recurrence, llvm::StringRef name);
void readWhole(const Recurrence &recurrence, Term &term);
/// What may multiply M as it is.
inline constexpr llvm::StringLiteral knownLogs =
    "what is known to be from 0 to 1, such as sigmoid(..), 1 - sigmoid(..) / 2, exp(..) of what is not positive, "
    "numbers up to 1, products of these";
/// A state that gradient steps change: `statements` of `state`, one of which calls grad.
llvm::LogicalResult analyzeInner(Recurrence &recurrence, const std::vector<Statement> &statements, ErrorFn error);
/// The right side of the output: finds its read of M, and makes it the definition "o" where it is more than q M + d v.
llvm::LogicalResult analyzeOutput(Recurrence &recurrence, Term output, ErrorFn error);
/// Of names that multiply each other takes the row: the last that is not known to be one number, or one per head.
std::string takeRow(const Recurrence &recurrence, std::vector<std::string> &names);
/// What inputs may call, and how: used by analyze.
llvm::LogicalResult inferShapes(Recurrence &recurrence, const Sizes &sizes, ErrorFn error);
/// Log decays are not positive, least values of gates within [0, 1), as far as either is known: used by inferShapes.
llvm::LogicalResult checkValues(Recurrence &recurrence, const Sizes &sizes, ErrorFn error);
/// No two weights or states have one name.
llvm::LogicalResult checkNames(const Recurrence &recurrence, ErrorFn error);
/// The numbers of a parameter with a formula in one layer, those of the last dimensions that it tells apart (braid.init
/// repeats them); its names and functions are checked before.
std::vector<double> evaluate(const Parameter &parameter, const Recurrence &recurrence, const Sizes &sizes,
                             int64_t layer);
/// What the formulas of a mixer may give together, in all layers.
inline constexpr int64_t mostFormulaNumbers = 1 << 18;
/// Names, functions and numbers of a formula; `key`: of the parameter. Takes its numbers from the budget.
llvm::LogicalResult checkFormula(const Parameter &parameter, const Recurrence &recurrence, const Sizes &sizes,
                                 llvm::StringRef key, int64_t &budget, ErrorFn error);

} // namespace recurrence
} // namespace braid

#endif // FRONTEND_RECURRENCE_H
