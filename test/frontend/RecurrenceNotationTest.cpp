// The notations of papers: columns, and states of values by keys, are what they are in rows and keys by values.
#include "dialects/braid/BraidDialect.h"
#include "test/frontend/RecurrenceTexts.h"
#include "llvm/ADT/StringExtras.h"

using namespace braid;
using namespace braid::recurrence;

namespace {

/// All that the equations say.
std::string placesOf(const Text &text) {
  Text whole = text;
  whole.inputs = inputsOf(text.state + " " + text.output);
  auto r = read(whole);
  if (!r)
    return "";
  std::string all = r->className();
  for (const std::string &name :
       {r->query, r->key, r->value, r->logDecay, r->beta, r->valueDecay, r->lowRankA, r->lowRankB, r->skipValue,
        r->keyImaginary, r->phase, r->rate, r->momentum, r->normWeight, r->start})
    all += " | " + name;
  for (const auto *names : {&r->writeFactors, &r->rowFactors, &r->skipFactors})
    all += " | " + llvm::join(*names, ",");
  all += r->normalised ? " normalised" : "";
  all += r->readsBefore ? " before" : "";
  if (r->expressed)
    all += " o = " + textOf(r->inputs.back().term);
  return all;
}

} // namespace

TEST(RecurrenceNotation, OneMeaning) {
  struct Case {
    Text rows;
    std::vector<Text> others;
  } cases[] = {
      {{.state = "M = M + k^T v", .output = "o = q M"},
       {{.state = "M = M + k v^T", .output = "o = M^T q"},
        {.state = "M = M + k v^T", .output = "o = q^T M"},
        {.state = "M = M + v k^T", .output = "o = M q"},
        {.state = "M = M + v k^T", .output = "o = q^T M^T"},
        {.state = "M = M + v^T k", .output = "o = q M^T"}}},
      // Gated delta rules: with parentheses, short, multiplied out.
      {{.state = "M = exp(g) (I - b k^T k) M + b k^T v", .output = "o = q M + 0.5 v"},
       {{.state = "M = exp(g) (I - b k k^T) M + b k v^T", .output = "o = M^T q + 0.5 v"},
        {.state = "M = M exp(g) (I - b k k^T) + b v k^T", .output = "o = M q + 0.5 v"},
        {.state = "M = exp(g) M - b exp(g) M k k^T + v k^T b", .output = "o = M q + 0.5 v"},
        {.state = "M = exp(g) M (I - b k^T k) + b v^T k", .output = "o = q M^T + 0.5 v"}}},
      {{.state = "M = M + b k^T (v - k M)", .output = "o = q M"},
       {{.state = "M = M + b (v - M k) k^T", .output = "o = M q"},
        {.state = "M = M + b k (v - M^T k)^T", .output = "o = M^T q"},
        {.state = "M = M + b k (v^T - k^T M)", .output = "o = q^T M"},
        {.state = "M = M + b (v - k M^T)^T k", .output = "o = q M^T"},
        {.state = "M = M + (v - M k) k^T b", .output = "o = M q"}}},
      {{.state = "M = diag(a) M + b k^T (v - k diag(a) M)", .output = "o = q M"},
       {{.state = "M = diag(a) M + b k (v - M^T diag(a) k)^T", .output = "o = M^T q"},
        {.state = "M = M diag(a) + b (v - M diag(a) k) k^T", .output = "o = M q"}}},
      // A decay per feature of either, and both.
      {{.state = "M = diag(exp(g)) M diag(exp(h)) + k^T v", .output = "o = q M"},
       {{.state = "M = diag(exp(g)) M diag(exp(h)) + k v^T", .output = "o = M^T q"},
        {.state = "M = diag(exp(h)) M diag(exp(g)) + v k^T", .output = "o = M q"}}},
      {{.state = "M = (diag(a) - (p u)^T p) M + k^T v", .output = "o = q M"},
       {{.state = "M = M (diag(a) - p^T (p u)) + v^T k", .output = "o = q M^T"},
        {.state = "M = M (diag(a) - p (p u)^T) + v k^T", .output = "o = M q"}}},
      // Rows of sums, numbers anywhere, several writes.
      {{.state = "M = a M + s b (k - p)^T (v + u)", .output = "o = (q + p) M silu(u)"},
       {{.state = "M = a M + (k - p) s (v + u)^T b", .output = "o = M^T (q + p) silu(u)"},
        {.state = "M = M a + b (v + u) s (k - p)^T", .output = "o = M (q + p) silu(u)"}}},
      {{.state = "M = M + k^T v - s p^T v", .output = "o = 1 M"},
       {{.state = "M = M + k v^T - s p v^T", .output = "o = M^T 1"},
        {.state = "M = M + v k^T - v p^T s", .output = "o = M 1"}}},
      // Normalised, of the token before, gradient steps, turning.
      {{.state = "M = exp(g) M + s k^T v; z = exp(g) z + s k^T", .output = "o = (q M) / (q z)"},
       {{.state = "M = exp(g) M + s k v^T; z = exp(g) z + s k", .output = "o = (M^T q) / (z^T q)"},
        {.state = "M = exp(g) M + v k^T s; z = z exp(g) + k s", .output = "o = (M q) / (z^T q)"},
        {.state = "M = exp(g) M + s v^T k; z = z exp(g) + s k", .output = "o = (q M^T) / (q z^T)"},
        {.state = "M = exp(g) M + s v k^T; z = exp(g) z + s k^T", .output = "o = (M q) / (z q)"}}},
      {{.state = "M = exp(g) (M + (1 - a)^T v); z = exp(g) (z + (1 - a)^T)", .output = "o = (q M) / (q z)"},
       {{.state = "M = exp(g) (M + (1 - a) v^T); z = exp(g) (z + (1 - a))", .output = "o = (M^T q) / (q^T z)"}}},
      {{.state = "M = exp(g) M + a k^T (v - k exp(g) M)", .output = "o = q M"},
       {{.state = "M = exp(g) M + a k (v^T - k^T exp(g) M)", .output = "o = q^T M"}}},
      {{.state = "M = exp(g) M + k^T v", .output = "o = q M_prev + v inner(u q, k)"},
       {{.state = "M = exp(g) M + v k^T", .output = "o = M_prev q + v inner(u q, k)"},
        {.state = "M = exp(g) M + k v^T", .output = "o = M_prev^T q + v inner(u q, k)"}}},
      {{.state = "M = M - s grad(l2(k M - v))", .output = "o = q M"},
       {{.state = "M = M - s grad(l2(M k - v))", .output = "o = M q"},
        {.state = "M = M - s grad(l2(M^T k - v))", .output = "o = M^T q"}}},
      {{.state = "M = diag(exp(g + i h)) M + k^T v", .output = "o = q M"},
       {{.state = "M = diag(exp(g + i h)) M + k v^T", .output = "o = M^T q"},
        {.state = "M = M diag(exp(g + i h)) + v k^T", .output = "o = M q"}}},
  };
  for (const Case &c : cases) {
    std::string expected = placesOf(c.rows);
    ASSERT_NE(expected, "") << c.rows.state;
    for (const Text &other : c.others)
      EXPECT_EQ(placesOf(other), expected) << c.rows.state << "\n" << other.state << "\n" << other.output;
  }
}

TEST(RecurrenceNotation, SaysHowItRead) {
  EXPECT_EQ(read({.state = "M = M + k^T v", .inputs = plain})->notation, "");
  EXPECT_EQ(read({.state = "M = M + k v^T", .output = "o = M^T q", .inputs = plain})->notation,
            "columns: k v^T is k^T v");
  EXPECT_EQ(read({.state = "M = M + v k^T", .output = "o = M q", .inputs = plain})->notation,
            "columns, values by keys: v k^T is k^T v");
  EXPECT_EQ(read({.state = "M = M + v^T k", .output = "o = q M^T", .inputs = plain})->notation,
            "values by keys: v^T k is k^T v");
  struct Case {
    const char *state, *output, *message;
  } cases[] = {
      {"M = M + k^T v", "o = M q", "state: column 9: nothing stands before k^T to multiply with"},
      {"M = M + v k^T", "o = q M",
       "output: column 5: the state writes columns (k^T at its column 11), and none stands behind M here; valid: M q"},
      {"M = (I - b k k^T) M + b k^T v", "o = q M", "output: column 5: the state writes columns (k^T at its column 14)"},
      {"M = M^T + v k^T", "o = M q",
       "state: column 5: M^T in its own equation; valid: M (read as columns, values by keys"},
      {"M = M + (v - M^T k) k^T", "o = M q", "state: column 14: M^T is read here, but M by the rest of the equations"},
      {"M = M + (v - M k) v^T", "o = M^T q", "state: column 14: M is read here, but M^T by the rest"},
      {"M = M + v^T", "o = q M^T", "state: column 9: a column alone"},
      {"M = M + v^T M k", "o = q M^T", "nothing stands behind v^T to multiply with"},
      {"M = M + k^T", "o = M^T q", "state: column 9: a row alone; valid: a column times a row"},
      {"M = M + k v^T", "o = M^T (I - k k^T) q", "output: column 10: I - k k^T between q and M^T; valid: diag(..)"},
      {"M = M + v k^T; z = z + v", "o = (M q) / (z^T q)", "M has no such product, or not as often"},
      {"M = M + v k^T", "o = (M q) / z^T", "output: "},
  };
  for (const Case &c : cases) {
    std::vector<std::string> errors = errorsOf(description({.state = c.state, .output = c.output, .inputs = plain}));
    ASSERT_FALSE(errors.empty()) << c.state;
    EXPECT_NE(errors.front().find(c.message), std::string::npos) << c.state << "\n" << errors.front();
  }
}
