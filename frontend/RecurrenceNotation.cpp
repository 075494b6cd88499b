//===- RecurrenceNotation.cpp - the notations of papers -----------------------------------------------------------===//
// Vectors are rows or columns, and the state is keys by values or values by keys. What an equation means is one thing
// (lsm-family.md 2.1: rows, keys by values), so other notations are written in that one before anything else looks:
//
//   rows, keys by values       k^T v     q M       (I - b k^T k) M
//   columns, keys by values    k v^T     M^T q     (I - b k k^T) M      also q^T M
//   columns, values by keys    v k^T     M q       M (I - b k k^T)
//   rows, values by keys       v^T k     q M^T     M (I - b k^T k)
#include "frontend/RecurrenceNotation.h"
#include "frontend/RecurrenceFunctions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;
using Kind = Term::Kind;

namespace {

/// What a term is; `plain`: a number, or a vector that is not transposed.
enum class Shape { plain, transposed, vector, matrix };

bool isState(StringRef name) { return name == "M" || name == "M_prev"; }

class Rewriting {
public:
  Rewriting(Recurrence &r, bool columns, bool turned, ErrorFn error)
      : r(r), columns(columns), turned(turned), errorFn(error) {}
  bool state(Term &term) { return (spread(term), matrix(term)); }
  bool output(Term &term) {
    key = "output";
    return (spread(term), vector(term));
  }
  bool normaliser(Term &term);

  Shape shapeOf(const Term &term) const;
  /// The one that does.
  const Term *writesColumns(const Term &term) const;
  std::string columnWriter; ///< in the state, where that is why equations are read as ones of columns

private:
  bool isNumber(const Term &t) const { return t.kind == Kind::number || ownPer(r, t) == Per::head; }
  Shape joined(Shape left, const Term &right) const;
  void spread(Term &term) const;
  Term turn(Term term) const;
  Term takeVector(std::vector<Term> &from) const;
  bool matrix(Term &term);
  bool chainOf(Term &product);
  bool vector(Term &term);
  bool read(Term &product);
  bool readNormaliser(Term &product);
  bool fail(size_t column, StringRef message) {
    errorFn(key, formatv("column {0}: {1}", column, message).str());
    return false;
  }

  Recurrence &r;
  bool columns, turned;
  ErrorFn errorFn;
  std::string key = "state";
};

} // namespace

static bool isTransposedState(const Term &t) { return t.kind == Kind::transpose && isState(t.name); }

/// x of x^T; a complex row stays what it is.
static Term untransposed(const Term &t) {
  if (t.name.empty())
    return t.args.front();
  if (!t.args.empty())
    return t;
  return {.kind = Kind::name, .name = t.name, .column = t.column};
}

static Term productOf(std::vector<Term> factors, size_t column) {
  if (factors.size() == 1)
    return std::move(factors.front());
  return {.kind = Kind::product, .args = std::move(factors), .column = column};
}

//===- Shapes -----------------------------------------------------------------------------------------------------===//

/// What stands on the left, times one factor more.
Shape Rewriting::joined(Shape left, const Term &term) const {
  Shape right = shapeOf(term);
  bool number = right == Shape::plain && isNumber(term);
  if (number)
    return left;
  if (columns) {
    if (right == Shape::transposed)
      return left == Shape::transposed ? Shape::transposed : Shape::matrix; // a column, times a row
    if (right == Shape::matrix)
      return left == Shape::transposed ? left : Shape::matrix;
    // inner(k, u) is a number, k^T u the row k^T times numbers
    return left == Shape::matrix ? Shape::vector : left == Shape::transposed ? left : std::max(left, right);
  }
  if (left == Shape::transposed)
    return right == Shape::transposed ? left : Shape::matrix;
  if (right == Shape::transposed)
    return left == Shape::matrix ? right : Shape::plain;
  if (right == Shape::matrix)
    return left == Shape::matrix ? left : Shape::vector;
  return std::max(left, right);
}

Shape Rewriting::shapeOf(const Term &term) const {
  switch (term.kind) {
  case Kind::number: return Shape::plain;
  case Kind::name: return isState(term.name) || term.name == "I" ? Shape::matrix : Shape::plain;
  case Kind::transpose: return isState(term.name) ? Shape::matrix : Shape::transposed;
  case Kind::call: return term.name == "diag" || term.name == "full" ? Shape::matrix : Shape::plain;
  case Kind::power:
  case Kind::quotient:
  case Kind::negate: return shapeOf(term.args.front());
  case Kind::sum: {
    Shape all = Shape::plain;
    for (const Term &arg : term.args)
      all = std::max(all, shapeOf(arg));
    return all;
  }
  case Kind::product: {
    size_t first = 0; // numbers before it change nothing
    Shape all = shapeOf(term.args.front());
    while (first + 1 < term.args.size() && all == Shape::plain && isNumber(term.args[first]))
      all = shapeOf(term.args[++first]);
    for (const Term &arg : llvm::drop_begin(term.args, first + 1))
      all = joined(all, arg);
    return all;
  }
  }
  llvm_unreachable("all kinds are above");
}

/// A column times a row, k v^T or k (v^T - k^T M): in an equation of rows something stands behind every ^T.
const Term *Rewriting::writesColumns(const Term &term) const {
  auto isRow = [&](const Term &arg) {
    auto isOne = [](const Term &part) {
      return part.kind == Kind::transpose || (part.kind == Kind::negate && part.args.front().kind == Kind::transpose);
    };
    return isOne(arg) || (arg.kind == Kind::sum && llvm::any_of(arg.args, isOne));
  };
  if (term.kind == Kind::product)
    for (size_t i = 1; i < term.args.size(); ++i)
      if (isRow(term.args[i]) && !isTransposedState(term.args[i]) &&
          (i + 1 == term.args.size() || shapeOf(term.args[i + 1]) == Shape::matrix))
        return &term.args[i];
  for (const Term &arg : term.args)
    if (const Term *found = writesColumns(arg))
      return found;
  return nullptr;
}

//===- Transposes -------------------------------------------------------------------------------------------------===//

Term Rewriting::turn(Term term) const {
  switch (term.kind) {
  case Kind::number: return term;
  case Kind::name:
    return term.name == "I" || isNumber(term) ? term
                                              : Term{.kind = Kind::transpose, .name = term.name, .column = term.column};
  case Kind::transpose: return untransposed(term);
  case Kind::sum:
  case Kind::negate:
    for (Term &arg : term.args)
      arg = turn(std::move(arg));
    return term;
  case Kind::quotient: term.args.front() = turn(std::move(term.args.front())); return term;
  case Kind::product:
    if (llvm::any_of(term.args, [&](const Term &arg) { return shapeOf(arg) != Shape::plain; })) {
      for (Term &arg : term.args)
        arg = turn(std::move(arg));
      std::reverse(term.args.begin(), term.args.end());
      return term;
    }
    break;
  case Kind::call:
    if (term.name == "diag" || term.name == "full")
      return term;
    break;
  case Kind::power: break;
  }
  return transposeOf(std::move(term), r.hasImaginary());
}

/// (v - M k)^T is v^T - k^T M^T; a row that is made of rows stays one.
void Rewriting::spread(Term &term) const {
  for (Term &arg : term.args)
    spread(arg);
  if (term.kind == Kind::transpose && term.name.empty() && shapeOf(term.args.front()) != Shape::plain)
    term = turn(std::move(term.args.front()));
}

//===- Products ---------------------------------------------------------------------------------------------------===//

/// Of factors that multiply each other the vector: one that is known to be, or the last that is not known to be a
/// number; the others are left.
Term Rewriting::takeVector(std::vector<Term> &from) const {
  size_t at = from.size() - 1;
  while (at > 0 && isNumber(from[at]))
    --at;
  at = isNumber(from[at]) ? from.size() - 1 : at;
  for (auto [i, factor] : llvm::enumerate(from))
    if (shapeOf(factor) == Shape::vector)
      at = i;
  Term taken = std::move(from[at]);
  from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
  return taken;
}

bool Rewriting::matrix(Term &term) {
  switch (term.kind) {
  case Kind::number:
  case Kind::name: return true;
  case Kind::transpose:
    return fail(term.column, isTransposedState(term) ? term.name + "^T in its own equation; valid: " + term.name
                             : columns               ? "a row alone; valid: a column times a row"
                                                     : "a column alone; valid: a column times a row");
  case Kind::call:
    if (term.name == "grad" && !term.args.empty())
      for (Term &arg : term.args.front().args)
        if (!vector(arg))
          return false;
    return true;
  case Kind::product: return chainOf(term);
  case Kind::quotient:
  case Kind::power: return matrix(term.args.front());
  case Kind::sum:
  case Kind::negate: return llvm::all_of(term.args, [&](Term &arg) { return matrix(arg); });
  }
  llvm_unreachable("all kinds are above");
}

/// Numbers, then operators and what is written, in the order of the other notation.
bool Rewriting::chainOf(Term &product) {
  std::vector<Term> numbers, run;
  std::vector<std::vector<Term>> chain;
  std::optional<Term> open; // rows: x^T, and what it multiplies follows
  auto flush = [&] {
    numbers.insert(numbers.end(), std::make_move_iterator(run.begin()), std::make_move_iterator(run.end()));
    run.clear();
  };
  auto outer = [&](Term left, Term right) { // left times right^T, both as they are when not transposed
    if (turned)
      std::swap(left, right);
    if (!vector(left) || !vector(right))
      return false;
    chain.push_back({transposeOf(std::move(left), r.hasImaginary()), std::move(right)});
    return true;
  };
  auto close = [&](size_t column) {
    if (!open)
      return true;
    if (run.empty())
      return fail(column, "nothing stands behind " + textOf(*open) + " to multiply with; valid: v^T k");
    Term right = takeVector(run);
    Term left = *std::exchange(open, std::nullopt);
    return outer(left.kind == Kind::transpose ? untransposed(left) : std::move(left), std::move(right));
  };
  for (Term &arg : product.args) {
    Shape shape = shapeOf(arg);
    if (shape == Shape::transposed) {
      if (columns && run.empty())
        return fail(arg.column, "nothing stands before " + textOf(arg) +
                                    " to multiply with; valid: a column times a "
                                    "row, as in k v^T");
      if (!close(arg.column))
        return false;
      if (columns) {
        Term left = takeVector(run);
        if (!outer(std::move(left), arg.kind == Kind::transpose ? untransposed(arg) : std::move(arg)))
          return false;
      } else {
        open = std::move(arg);
      }
      flush();
    } else if (shape == Shape::matrix) {
      if (!close(arg.column))
        return false;
      flush();
      if (!matrix(arg))
        return false;
      chain.push_back({std::move(arg)});
    } else {
      if (arg.kind == Kind::call && !matrix(arg))
        return false;
      run.push_back(std::move(arg));
    }
  }
  if (!close(product.column))
    return false;
  flush();
  if (turned)
    std::reverse(chain.begin(), chain.end());
  for (std::vector<Term> &factors : chain)
    numbers.insert(numbers.end(), std::make_move_iterator(factors.begin()), std::make_move_iterator(factors.end()));
  product = productOf(std::move(numbers), product.column);
  return true;
}

/// A vector, in whatever form, as a row: q^T M, M^T q.
bool Rewriting::vector(Term &term) {
  if (term.kind == Kind::transpose && !isTransposedState(term)) {
    term = untransposed(term);
    return term.kind == Kind::transpose || vector(term);
  }
  if (term.kind == Kind::product) {
    auto isNormaliser = [](const Term &arg) {
      return (arg.kind == Kind::name || arg.kind == Kind::transpose) && arg.name == "z";
    };
    if (llvm::any_of(term.args, isNormaliser))
      return readNormaliser(term);
    if (llvm::any_of(term.args, [&](const Term &arg) { return shapeOf(arg) == Shape::matrix; }))
      return read(term);
  }
  return llvm::all_of(term.args, [&](Term &arg) { return vector(arg); });
}

bool Rewriting::read(Term &product) {
  std::vector<Term> before, chain, behind;
  for (Term &arg : product.args)
    (shapeOf(arg) == Shape::matrix ? chain : chain.empty() ? before : behind).push_back(std::move(arg));
  auto isTransposed = [&](const Term &t) { return shapeOf(t) == Shape::transposed; };
  bool first = columns ? llvm::any_of(before, isTransposed) : !llvm::any_of(behind, isTransposed);
  std::vector<Term> &side = first ? before : behind;
  if (side.empty())
    return fail(product.column,
                columns
                    ? "the state writes columns" + columnWriter +
                          ", and none stands behind M here; valid: M q, M^T q, q^T M, or a state of rows such as k^T v"
                    : std::string("no row stands before M; valid: q M^T"));
  // The one that is transposed, or that stands next to M.
  auto at = llvm::find_if(side, isTransposed);
  if (at == side.end()) {
    auto next = llvm::find_if(side, [&](const Term &t) { return !isNumber(t); });
    for (auto it = next; first && it != side.end(); ++it)
      next = isNumber(*it) ? next : it;
    at = next == side.end() ? std::prev(next) : next;
  }
  Term query = shapeOf(*at) == Shape::transposed && at->kind == Kind::transpose ? untransposed(*at) : std::move(*at);
  side.erase(at);
  bool needs = first == turned; // M^T
  for (Term &factor : chain) {
    bool isM = factor.kind == Kind::name && isState(factor.name);
    if ((isM && needs) || (isTransposedState(factor) && !needs))
      return fail(factor.column, formatv("{0}{1} is read here, but {0}{2} by the rest of the equations; valid: that",
                                         factor.name, isM ? "" : "^T", isM ? "^T" : "")
                                     .str());
    if (isTransposedState(factor))
      factor = {.kind = Kind::name, .name = factor.name, .column = factor.column};
    else if (!isM && factor.kind != Kind::call && needs)
      return fail(factor.column, textOf(factor) + " between " + textOf(query) + " and M^T; valid: diag(..)");
    else if (!isM && factor.kind != Kind::call && !matrix(factor))
      return false;
  }
  if (!first)
    std::reverse(chain.begin(), chain.end());
  if (!vector(query))
    return false;
  for (auto *factors : {&before, &behind})
    for (Term &factor : *factors)
      if (!vector(factor))
        return false;
  std::vector<Term> all = std::move(before);
  all.push_back(std::move(query));
  llvm::append_range(all, chain);
  llvm::append_range(all, behind);
  product = productOf(std::move(all), product.column);
  return true;
}

/// z^T q, q^T z, z q.
bool Rewriting::readNormaliser(Term &product) {
  auto z = llvm::find_if(product.args, [](const Term &arg) { return arg.name == "z"; });
  Term state{.kind = Kind::name, .name = "z", .column = z->column};
  product.args.erase(z);
  if (product.args.empty())
    return fail(state.column, "z is read by a vector; valid: z^T q");
  for (Term &arg : product.args)
    if (!vector(arg))
      return false;
  Term query = takeVector(product.args);
  product.args.push_back(std::move(query));
  product.args.push_back(std::move(state));
  return true;
}

/// z = z + k, where the key is k^T.
bool Rewriting::normaliser(Term &term) {
  spread(term);
  bool carries = mentions(term, "z");
  if (term.kind == Kind::negate || (carries && term.kind == Kind::sum))
    return llvm::all_of(term.args, [&](Term &arg) { return normaliser(arg); });
  if (term.kind == Kind::quotient)
    return normaliser(term.args.front());
  if (carries && term.kind == Kind::product) // exp(g) (z + k)
    return llvm::all_of(term.args, [&](Term &arg) { return !mentions(arg, "z") || normaliser(arg); });
  if (carries || shapeOf(term) == Shape::transposed || term.kind == Kind::transpose)
    return true;
  std::vector<Term> factors = term.kind == Kind::product ? std::move(term.args) : std::vector{term};
  Term key = takeVector(factors);
  factors.push_back(transposeOf(std::move(key), r.hasImaginary()));
  term = productOf(std::move(factors), term.column);
  return true;
}

//===- Notations --------------------------------------------------------------------------------------------------===//

static bool mentionsTransposed(const Term &term) {
  return isTransposedState(term) || llvm::any_of(term.args, mentionsTransposed);
}

static bool isEitherState(const Term &t) {
  return (t.kind == Kind::name || t.kind == Kind::transpose) && isState(t.name);
}

/// Of the products that read M, whether one satisfies `holds`, of the product and where in it M stands.
static bool anyRead(const Term &term, llvm::function_ref<bool(const Term &product, size_t at)> holds) {
  if (term.kind == Kind::product)
    for (auto [i, arg] : llvm::enumerate(term.args))
      if (isEitherState(arg) && holds(term, i))
        return true;
  return llvm::any_of(term.args, [&](const Term &arg) { return anyRead(arg, holds); });
}

/// Rows: q diag(u) k^T is the number inner(q u, k). Columns: k^T diag(u) q.
static bool innerProducts(Term &term, bool columns, ErrorFn error) {
  auto isIdentity = [](const Term &arg) { return arg.kind == Kind::name && arg.name == "I"; };
  if (term.kind == Kind::sum && llvm::any_of(term.args, isIdentity)) // it acts on M
    return true;
  if (!llvm::all_of(term.args, [&](Term &arg) { return innerProducts(arg, columns, error); }))
    return false;
  auto reads = [](const Term &arg) { return isEitherState(arg) || arg.name == "z"; };
  if (term.kind != Kind::product || llvm::any_of(term.args, reads))
    return true;
  auto isDiagonal = [](const Term &t) { return t.kind == Kind::call && t.name == "diag" && t.args.size() == 1; };
  for (size_t at = 0; at < term.args.size(); ++at) {
    if (term.args[at].kind != Kind::transpose)
      continue;
    size_t other = at; // the row beside it
    auto step = [&] { return columns ? ++other < term.args.size() : other-- > 0; };
    bool found = step();
    while (found && isDiagonal(term.args[other]))
      found = step();
    if (!found) {
      error("output", formatv("column {0}: {1} has no row beside it to make a number with; valid: inner(q, k), also "
                              "inner(q u, k) v",
                              term.args[at].column, textOf(term.args[at]))
                          .str());
      return false;
    }
    auto [first, last] = std::minmax(at, other);
    Term row{.kind = Kind::product, .column = term.args[other].column};
    row.args.push_back(term.args[other]);
    for (size_t i = first + 1; i < last; ++i)
      row.args.push_back(term.args[i].args.front());
    Term inner{.kind = Kind::call, .name = "inner", .column = term.args[first].column};
    inner.args = {productOf(std::move(row.args), row.column), untransposed(term.args[at])};
    auto begin = term.args.begin();
    term.args.erase(begin + static_cast<std::ptrdiff_t>(first) + 1, begin + static_cast<std::ptrdiff_t>(last) + 1);
    term.args[first] = std::move(inner);
    at = first;
  }
  if (term.args.size() == 1) {
    Term only = std::move(term.args.front());
    term = std::move(only);
  }
  return true;
}

bool recurrence::toRows(Recurrence &r, std::vector<Statement> &statements, Term &output, ErrorFn error) {
  if (llvm::none_of(statements, [](const Statement &s) { return s.left == "M"; }))
    return true;
  Rewriting rows(r, /*columns=*/false, /*turned=*/false, error);
  bool byRow = anyRead(
      output, [](const Term &product, size_t at) { return at > 0 && product.args[at - 1].kind == Kind::transpose; });
  bool first = anyRead(output, [](const Term &product, size_t at) { return at == 0 && product.args.size() > 1; });
  std::string writer;
  for (const Statement &s : statements)
    if (const Term *found = s.left != "z" && writer.empty() ? rows.writesColumns(s.right) : nullptr)
      writer = formatv(" ({0} at its column {1})", shownNames(textOf(*found)), found->column);
  bool columns = byRow || first || !writer.empty();
  bool transposed = mentionsTransposed(output);
  bool turned = columns ? transposed == byRow : transposed;
  if (!innerProducts(output, columns, error))
    return false;
  if (!columns && !turned)
    return true;
  r.notation = columns ? turned ? "columns, values by keys: v k^T is k^T v" : "columns: k v^T is k^T v"
                       : "values by keys: v^T k is k^T v";
  auto noted = [&](StringRef key, const std::string &message) {
    error(key, message + " (read as " + r.notation + ")");
  };
  Rewriting rewriting(r, columns, turned, noted);
  rewriting.columnWriter = writer;
  for (Statement &s : statements)
    if (s.left != "M_0" && !(s.left == "z" ? rewriting.normaliser(s.right) : rewriting.state(s.right)))
      return false;
  return rewriting.output(output);
}
