//===- RecurrenceOutput.cpp - what is read of the state of a recurrence -------------------------------------------===//
//   o = q M + d v                           the skip beside the scan
//   o = expression in which q M stands once, such as layer_norm(q M, w, b) silu(g): the definition "o"
#include "frontend/Recurrence.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;

namespace {

bool isName(const Term &term, StringRef name = {}) {
  return term.kind == Term::Kind::name && (name.empty() || term.name == name);
}

class Reads {
public:
  Reads(Recurrence &r, ErrorFn error) : r(r), errorFn(error) {}
  bool run(Term &output);

private:
  bool walk(Term &term);
  bool read(const Term &query, const Term &state);
  bool fail(size_t column, StringRef message) {
    errorFn("output", formatv("column {0}: {1}", column, message).str());
    return false;
  }
  static constexpr StringRef states[] = {"M", "M_prev", "z", "S"};
  static bool isState(const Term &term) { return isName(term, "M") || isName(term, "M_prev"); }
  static bool reads(const Term &term, StringRef state) {
    return term.kind == Term::Kind::product && term.args.size() == 2 && isName(term.args[1], state);
  }
  /// q M where a product is that, ends in it, or has it as a factor.
  static Term *readOf(Term &above) {
    if (reads(above, "M"))
      return &above;
    if (above.kind != Term::Kind::product)
      return nullptr;
    if (size_t n = above.args.size(); n > 2 && isName(above.args[n - 1], "M")) {
      Term whole{.kind = Term::Kind::product, .column = above.args[n - 2].column};
      whole.args = {std::move(above.args[n - 2]), std::move(above.args[n - 1])};
      above.args.resize(n - 2);
      above.args.push_back(std::move(whole));
    }
    auto found = llvm::find_if(above.args, [](const Term &arg) { return reads(arg, "M"); });
    return found == above.args.end() ? nullptr : &*found;
  }
  std::string valid() const {
    return r.normalised ? "valid: (q M) / (q z), or q M and q z as factors of their own"
                        : "valid: q M, with a name q in inputs, or 1 M";
  }
  /// (q M) / (q z) and not another expression of the two.
  static bool divides(const Term &term) {
    return (term.kind == Term::Kind::quotient && reads(term.args[1], "z")) || llvm::any_of(term.args, divides);
  }
  bool readSum(const Term &query);
  /// M_l, which nothing defines.
  const Term *otherState(const Term &term) const {
    if (isName(term) && StringRef(term.name).starts_with("M_") && !r.definition(term.name) && !r.parameter(term.name))
      return &term;
    for (const Term &arg : term.args)
      if (const Term *found = otherState(arg))
        return found;
    return nullptr;
  }

  Recurrence &r;
  ErrorFn errorFn;
  std::optional<Term> row, sumRow; ///< what M and z are read by
};

bool Reads::readSum(const Term &query) {
  if (sumRow && textOf(*sumRow) != textOf(query))
    return fail(query.column, "a second row that reads z; valid: one, that of M");
  sumRow = query;
  return true;
}

bool Reads::read(const Term &query, const Term &state) {
  bool ones = query.kind == Term::Kind::number && query.number == 1 && !r.normalised;
  bool divided = r.normalised && !r.readsSums;
  bool other = !isName(query) && (divided || llvm::any_of(states, [&](StringRef s) { return mentions(query, s); }));
  if (other || (isName(query) && !r.definition(query.name) && !r.parameter(query.name)))
    return fail(query.column, "M is read by a row; " + valid());
  row = query;
  if (!r.query.empty())
    return fail(query.column, "a second read of M; valid: one, such as q M");
  r.query = ones ? "1" : isName(query) ? query.name : wholeOf(r, inputOf(r, query, "output"));
  r.outputColumns.try_emplace(r.query, query.column);
  r.readsBefore = state.name == "M_prev";
  if (r.readsBefore && (r.inner || r.normalised || !r.earlier.empty()))
    return fail(state.column, "M_prev of a state with " +
                                  std::string(r.inner        ? "gradient steps"
                                              : r.normalised ? "a normaliser"
                                                             : "several updates of a token") +
                                  "; valid: M");
  return true;
}

/// Puts the name M where a read stands.
bool Reads::walk(Term &term) {
  if (r.normalised && !r.readsSums && term.kind == Term::Kind::quotient && reads(term.args[1], "z")) {
    Term *above = readOf(term.args[0]), &below = term.args[1].args[0];
    if (!above)
      return fail(term.args[0].column, "q z divides what q M reads; " + valid());
    if (above->args[0].name != below.name || !isName(below))
      return fail(below.column, "M and z are read by one row, a name in inputs; " + valid());
    if (!read(above->args[0], above->args[1]))
      return false;
    // Found: what is around it has no other read.
    size_t column = above->column;
    *above = {.kind = Term::Kind::number, .number = 1, .column = column};
    term.args.erase(term.args.begin() + 1);
    if (!llvm::all_of(term.args, [&](Term &arg) { return walk(arg); }))
      return false;
    *above = {.kind = Term::Kind::name, .name = "M", .column = column};
    if (term.args.size() == 1) {
      Term only = std::move(term.args.front());
      term = std::move(only);
    }
    return true;
  }
  if (term.kind == Term::Kind::product && (!r.normalised || r.readsSums)) {
    for (size_t i = 1; i < term.args.size(); ++i) {
      bool sum = r.readsSums && isName(term.args[i], "z");
      if (!isState(term.args[i]) && !sum)
        continue;
      if (sum ? !readSum(term.args[i - 1]) : !read(term.args[i - 1], term.args[i]))
        return false;
      term.args[i - 1] = {.kind = Term::Kind::name, .name = sum ? "z" : "M", .column = term.args[i - 1].column};
      term.args.erase(term.args.begin() + static_cast<std::ptrdiff_t>(i));
      for (size_t j = 0; j < term.args.size(); ++j)
        if (j + 1 != i && !walk(term.args[j]))
          return false;
      if (term.args.size() == 1) {
        Term only = std::move(term.args.front());
        term = std::move(only);
      }
      return true;
    }
  }
  if (isName(term, "z") && !r.normalised)
    return fail(term.column,
                "z has no equation; valid: z = .. in state behind a ;, the equation of M with z for M and k^T "
                "for k^T v");
  if (isState(term) || isName(term, "z"))
    return fail(term.column, "'" + term.name +
                                 (r.normalised && !r.readsSums
                                      ? "' stands outside of (q M) / (q z); valid: that, with other factors and "
                                        "divisors before or behind it"
                                      : "' stands alone; " + valid()));
  return llvm::all_of(term.args, [&](Term &arg) { return walk(arg); });
}

bool Reads::run(Term &output) {
  r.readsSums = r.normalised && !divides(output);
  if (!walk(output))
    return false;
  if (const Term *other = r.query.empty() ? otherState(output) : nullptr)
    return fail(other->column,
                "'" + other->name + "' is no state: there is one M, which is linear in what it was; " + valid());
  if (r.query.empty())
    return fail(1, "M is not read; " + valid());
  if (r.readsSums && !sumRow)
    return fail(1, "z is not read; " + valid());
  if (r.readsSums && textOf(*row) != textOf(*sumRow))
    return fail(sumRow->column,
                "z is read by " + textOf(*sumRow) + ", but M by " + textOf(*row) + "; valid: one row for both");
  return true;
}

} // namespace

/// q M, or q M + d v: products of names. All else is an expression with a read in it.
static bool readPlain(Recurrence &r, const Term &output) {
  std::vector<const Term *> parts;
  if (output.kind == Term::Kind::sum)
    for (const Term &part : output.args)
      parts.push_back(&part);
  else
    parts.push_back(&output);
  const Term *read = nullptr, *skip = nullptr;
  for (const Term *part : parts)
    (mentions(*part, "M") ? read : skip) = part;
  auto valid = [&](const Term &name) { return isName(name) && (r.definition(name.name) || r.parameter(name.name)); };
  bool reads = read && read->kind == Term::Kind::product && read->args.size() == 2 && valid(read->args[0]) &&
               isName(read->args[1], "M");
  bool skips = !skip || valid(*skip) || (skip->kind == Term::Kind::product && llvm::all_of(skip->args, valid));
  if (!reads || !skips || parts.size() != (skip ? 2 : 1))
    return false;
  std::vector<std::string> names;
  auto note = [&](const Term &name) {
    r.outputColumns.try_emplace(name.name, name.column);
    return name.name;
  };
  r.query = note(read->args[0]);
  if (skip && isName(*skip))
    names.push_back(note(*skip));
  else if (skip)
    llvm::append_range(names, llvm::map_range(skip->args, note));
  r.skipValue = takeRow(r, names);
  llvm::sort(names);
  r.skipFactors = std::move(names);
  return true;
}

llvm::LogicalResult recurrence::analyzeOutput(Recurrence &r, Term output, ErrorFn error) {
  readWhole(r, output);
  if (!r.normalised && !r.inner && readPlain(r, output))
    return llvm::success();
  if (!Reads(r, error).run(output))
    return llvm::failure();
  r.expressed = !isName(output, "M");
  if (r.expressed)
    r.inputs.push_back({"o", std::move(output)});
  return llvm::success();
}
