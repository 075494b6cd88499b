// Recurrences in their own notation: what class a text has, and what stands in which place of it.
#include "dialects/braid/BraidDialect.h"
#include "test/frontend/RecurrenceTexts.h"

using namespace braid;
using namespace braid::recurrence;

TEST(Recurrence, ClassesAndPlaces) {
  struct Case {
    Text text;
    LsmClass classId;
    const char *logDecay, *beta;
  } cases[] = {
      {{.state = "M = M + k^T v", .inputs = plain}, LsmClass::I, "", ""},
      {{.state = "M = k^T v + I M", .inputs = plain}, LsmClass::I, "", ""},
      {{}, LsmClass::S, "g", ""},
      {{.state = "M = (exp(g)) (M) + (k^T) v"}, LsmClass::S, "g", ""},
      {{.state = "M = M exp(g) + k^T v"}, LsmClass::S, "g", ""},
      {{.state = "M = exp(c) M + k^T v",
        .inputs = plain,
        .parameters = R"j("c": {"values": [-0.1, -0.2, -0.3, -0.4]})j"},
       LsmClass::S0,
       "c",
       ""},
      // Computed of what nothing trains; of what is trained.
      {{.state = "M = 0.9 M + k^T v", .inputs = plain}, LsmClass::S0, "0.9 (log)", ""},
      {{.state = "M = exp(c) M + k^T v",
        .inputs = plain + R"j(, "c": "-exp(s) / 2")j",
        .parameters = R"j("s": {"values": [-0.1, -0.2, -0.3, -0.4]})j"},
       LsmClass::S0,
       "c",
       ""},
      {{.state = "M = 0.9 exp(c) M + k^T v",
        .inputs = plain + R"j(, "c": "-exp(s) / 2")j",
        .parameters = R"j("s": 0)j"},
       LsmClass::S,
       "0.9 (log) + c (log)",
       ""},
      {{.state = "M = diag(exp(g)) M + k^T v"}, LsmClass::V, "g", ""},
      {{.state = "M = M + b k^T (v - k M)", .inputs = delta}, LsmClass::H, "", "b"},
      {{.state = "M = M + k^T b (v - k M)", .inputs = delta}, LsmClass::H, "", "b"},
      {{.state = "M = (I - b k^T k) M + b k^T v", .inputs = delta}, LsmClass::H, "", "b"},
      {{.state = "M = (I - b k^T k) exp(g) M + b k^T v", .inputs = gatedDelta}, LsmClass::GH, "g", "b"},
      {{.state = "M = exp(g) M + b k^T (v - k exp(g) M)", .inputs = gatedDelta}, LsmClass::GH, "g", "b"},
      {{.state = "M = exp(g) (I - k^T b k) M + k^T b v", .inputs = gatedDelta}, LsmClass::GH, "g", "b"},
      {{.state = "M = (I - b k^T k) diag(exp(g)) M + b k^T v", .inputs = gatedDelta}, LsmClass::VH, "g", "b"},
      {{.state = "M = diag(exp(g)) M + b k^T (v - k diag(exp(g)) M)", .inputs = gatedDelta}, LsmClass::VH, "g", "b"},
      {{.state = "M = full(exp(g)) M + k^T v"}, LsmClass::E, "g", ""},
      {{.state = "M = diag(exp(g)) M diag(exp(h)) + k^T v", .inputs = twoGates}, LsmClass::R, "g", ""},
      {{.state = "M = (diag(exp(g)) + h^T c) M + k^T v", .inputs = lowRank}, LsmClass::D, "g", ""},
      {{.state = "M = diag(exp(g)) M + k^T v + h^T c M", .inputs = lowRank}, LsmClass::D, "g", ""},
      // Without one decay per key feature; the same for all tokens; a rate of 1, or of several numbers.
      {{.state = "M = (exp(g) + h^T c) M + k^T v", .inputs = lowRank}, LsmClass::D, "g", ""},
      {{.state = "M = (I + k^T c) M + k^T v", .inputs = plain + R"j(, "c": "linear(x)")j"}, LsmClass::D, "", ""},
      {{.state = "M = exp(g) M diag(exp(h)) + k^T v", .inputs = twoGates}, LsmClass::R, "g", ""},
      {{.state = "M = M diag(exp(h)) + k^T v", .inputs = plain + R"j(, "h": "log_sigmoid(linear(x))")j"},
       LsmClass::R,
       "",
       ""},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(u)")j", .parameters = R"j("u": 1)j"}, LsmClass::S, "g", ""},
      {{.state = "M = exp(c) M + b k^T (v - k exp(c) M)",
        .inputs = delta,
        .parameters = R"j("c": {"values": "-1 / (1 + head)"})j"},
       LsmClass::GH,
       "c",
       "b"},
      {{.state = "M = M + k^T (v - k M)", .inputs = plain}, LsmClass::H, "", "1"},
      {{.state = "M = M + b k^T u (v - k M)", .inputs = delta, .parameters = R"j("u": 0.5)j"}, LsmClass::H, "", "b u"},
  };
  for (const Case &c : cases) {
    auto r = read(c.text);
    ASSERT_TRUE(r) << c.text.state;
    EXPECT_EQ(r->classId, c.classId) << c.text.state;
    EXPECT_EQ(r->logDecay, c.logDecay) << c.text.state;
    EXPECT_EQ(r->beta, c.beta) << c.text.state;
    EXPECT_EQ(r->query + r->key + r->value, "qkv") << c.text.state;
  }
}

TEST(Recurrence, DecaysAndRowsAsTheyStand) {
  const std::string a = plain + R"j(, "a": "sigmoid(linear(x))")j", c = R"j(, "c": "1 - sigmoid(linear(x))")j",
                    p = R"j("q": "linear(x)", "v": "linear(x)", "p": "exp(-exp(linear(x))) / 2")j";
  struct Case {
    const char *state;
    std::string inputs;
    LsmClass classId;
    const char *logDecay, *key, *beta;
  } cases[] = {{"M = a M + k^T v", a, LsmClass::S, "a", "k", ""},
               {"M = diag(p) M + (1 - p)^T v", p, LsmClass::V, "p", "1 - p", ""},
               {"M = full(a) M + k^T v", a, LsmClass::E, "a", "k", ""},
               {"M = diag(a) M diag(c) + k^T v", a + c, LsmClass::R, "a", "k", ""},
               {"M = c (I - a k^T k) M + a k^T v", a + c, LsmClass::GH, "c", "k", "a"},
               {"M = 0.5 M + k^T v / 2", plain, LsmClass::S0, "0.5", "k", ""},
               {"M = M + k^T (v - silu(v)) 3", plain, LsmClass::I, "", "k", ""},
               {"M = 0.9 M + 0.1 k^T v", plain, LsmClass::S0, "0.9", "k", ""},
               {"M = a / 2 * (M + k^T v)", a, LsmClass::S, "0.5 a", "k", ""},
               {"M = diag(a) diag(c) M + k^T v", a + c, LsmClass::V, "a c", "k", ""},
               {"M = exp(-softplus(y)) M - (2 k)^T v", plain + R"j(, "y": "linear(x)")j", LsmClass::S,
                "exp(-softplus(y))", "2 k", ""},
               {"M = M - 0.5 k^T (k M - v)", plain, LsmClass::H, "", "k", "0.5"},
               {"M = (1 - a) M + a k^T v", a, LsmClass::S, "1 - a", "k", ""},
               {"M = d M + d k^T v", a + R"j(, "d": "0.9 a")j", LsmClass::S, "d", "k", ""},
               {"M = a M + a k^T (v - k a M)", a, LsmClass::GH, "a", "k", "a (whole)"}};
  for (const Case &c : cases) {
    auto r = read({.state = c.state, .inputs = c.inputs});
    ASSERT_TRUE(r) << c.state;
    EXPECT_EQ(r->classId, c.classId) << c.state;
    EXPECT_EQ(r->logDecay.empty() ? "" : r->decayText(r->logDecay), c.logDecay) << c.state;
    EXPECT_EQ(r->key, c.key) << c.state;
    EXPECT_EQ(r->beta, c.beta) << c.state;
    if (const Definition *d = r->definition(r->logDecay))
      EXPECT_TRUE(!d->decay.empty() && d->wide) << c.state;
  }
}

TEST(Recurrence, WhatIsMadeHasANameOfItsOwn) {
  const std::string inputs = plain + R"j(, "g": "log_sigmoid(linear(x))", "h": "log_sigmoid(linear(x))")j";
  auto r = read({.state = "M = exp(g) exp(h) (I - g h k^T k) M + g h k^T v", .inputs = inputs});
  ASSERT_TRUE(r);
  EXPECT_EQ(r->definition(r->logDecay)->term.kind, recurrence::Term::Kind::sum);
  EXPECT_EQ(r->definition(r->beta)->term.kind, recurrence::Term::Kind::product);
  r = read({.state = "M = M + (1 - a) b (1 - a b) k^T (v - k M)",
            .inputs = plain + R"j(, "a": "sigmoid(linear(x))", "b": "sigmoid(linear(x))")j"});
  ASSERT_TRUE(r);
  EXPECT_EQ(r->beta, "(1 - a) (1 - a b) b");
  EXPECT_EQ(recurrence::textOf(r->definition("1 - a b")->term), "1 - a b");
}

// A delta rule multiplies what lies along k by 1 - b |k|^2.
TEST(Recurrence, SaysWhatKeepsADeltaRuleFromGrowing) {
  auto reason = [&](const char *k, const char *b) {
    auto r = read(
        {.state = "M =\\n\\tM + b k^T (v - k M)",
         .inputs = std::string(R"j("q": "linear(x)", "k": ")j") + k + R"j(", "v": "linear(x)", "b": ")j" + b + "\""});
    return r ? r->reason : "";
  };
  std::string rule = "the delta rule, b k^T (v - k M)",
              until = rule + ", which keeps the state from growing only where ";
  EXPECT_EQ(reason("l2_norm(linear(x))", "sigmoid(linear(x))"), rule);
  EXPECT_EQ(reason("l2_norm(linear(x))", "2 sigmoid(linear(x))"), rule);
  EXPECT_EQ(reason("4 linear(x)", "sigmoid(linear(x))"), until + "b |k|^2 lies between 0 and 2");
  for (const char *rate : {"3 sigmoid(linear(x))", "linear(x)", "-sigmoid(linear(x))"})
    EXPECT_EQ(reason("l2_norm(linear(x))", rate), until + "b |k|^2 lies between 0 and 2") << rate;
}

// What acts on M by two rows is class D, with all that multiplies in the rows; a remark says why it is no delta rule.
TEST(Recurrence, TransitionsOfTwoRows) {
  struct Case {
    const char *state, *left, *right, *why;
  } cases[] = {
      {"M = (diag(exp(g)) + b k^T k) M + k^T v", "b k", "k", ""},
      {"M = M + 0.1 p^T c M + k^T v", "0.1 p", "c", ""},
      {"M = (diag(exp(g)) - p^T c) M + k^T v", "-p", "c", "p^T c has two"},
      {"M = M - b k^T k M + k^T v", "-(b k)", "k",
       "with the rate that it writes with, here b of k^T k and none of k^T v"},
      {"M = M - p^T b p M + b k^T v", "-(b p)", "p", "here p^T p and k^T v"},
      {"M = exp(g) M - p^T c diag(exp(h)) 0.9 M + k^T v", "-(0.9 p)", "c h (exp)", "p^T c has two"},
      {"M = exp(g) M - b k^T k M + b k^T v", "-(b k)", "k", "here M and exp(g) M"},
      {"M = diag(exp(g)) M - b k^T k M + b k^T v", "-(b k)", "k", "here M and diag(exp(g)) M"},
      {"M = exp(g) M - p^T c exp(g) M + k^T v", "-(g (exp) p)", "c", "p^T c has two"},
      {"M = diag(exp(g)) (I - b k^T k) M + b k^T v", "-(b k g (exp))", "k", "diag(exp(g)) here comes after"},
      {"M = diag(exp(g)) M - p^T c diag(exp(g)) M + k^T v", "-p", "c g (exp)", "p^T c has two"},
  };
  for (const Case &c : cases) {
    auto r = read({.state = c.state, .inputs = inputsOf(std::string(c.state) + " o = q M")});
    ASSERT_TRUE(r) << c.state;
    EXPECT_EQ(r->classId, LsmClass::D) << c.state;
    EXPECT_EQ(r->lowRankB, c.left) << c.state;
    EXPECT_EQ(r->lowRankA, c.right) << c.state;
    EXPECT_NE(r->reason.find(c.why), std::string::npos) << r->reason;
    if (const Definition *b = r->definition("b"))
      EXPECT_EQ(b->per, Per::head) << c.state;
  }
  auto r = read({.state = "M = diag(exp(g)) (M + k^T v)"});
  ASSERT_TRUE(r);
  EXPECT_EQ(r->key + " | " + r->value, "k g (exp) | v");
}

// A decay and a turn in whatever order: name or expression, per head or per key feature, with or without a decay.
TEST(Recurrence, DecaysThatTurn) {
  struct Case {
    const char *transition, *decay, *phase;
    bool perHead; ///< the decay
  } cases[] = {
      {"diag(exp(g + i p))", "exp(g)", "p", false},
      {"diag(exp(i p + g))", "exp(g)", "p", false},
      {"diag(exp(g + p i))", "exp(g)", "p", false},
      {"diag(exp(g - i p))", "exp(g)", "-p", false},
      {"diag(exp(g + 2 i p))", "exp(g)", "2 p", false},
      {"diag(exp(g / 2 + i p))", "exp(g / 2)", "p", false},
      {"diag(exp((g + i p) / 2))", "exp(g / 2)", "p / 2", false},
      {"diag(exp(g + i p - i q))", "exp(g)", "p - q", false},
      {"diag(exp(-exp(c) + i p))", "exp(-exp(c))", "p", false},
      {"diag(exp(i p))", "", "p", true},
      {"diag(exp(i))", "", "1 (phase)", true},
      {"diag(a exp(i p))", "a", "p", false},
      {"diag(exp(g) exp(i p) / 2)", "exp(g) / 2", "p", false},
      {"diag(a) diag(exp(i p))", "a", "p", false},
      {"a diag(exp(i p))", "a", "p", true},
      {"exp(g + i p)", "exp(g)", "p 1 (key)", true},
      {"exp(i p)", "", "p 1 (key)", true},
      {"a exp(i p)", "a", "p 1 (key)", true},
      {"diag(a) exp(i p)", "a", "p 1 (key)", false},
  };
  for (const Case &c : cases) {
    std::string state = std::string("M = ") + c.transition + " M + k^T v";
    auto r = read({.state = state, .inputs = inputsOf(state + " o = q M")});
    ASSERT_TRUE(r) << state;
    EXPECT_EQ(r->className(), "V") << state;
    EXPECT_EQ(r->logDecay.empty() ? "" : r->decayText(r->logDecay), c.decay) << state;
    EXPECT_EQ(r->phase, c.phase) << state;
    EXPECT_EQ(r->decaysPerHead, c.perHead) << state;
    EXPECT_EQ(*r->definition(r->phase)->per, Per::key) << state;
  }
  auto behind = read({.state = "M = M exp(g + i h) + k^T v", .inputs = twoGates});
  ASSERT_TRUE(behind);
  EXPECT_EQ(behind->phase, "h 1 (key)");
  // The decay of an LRU as printed, trained.
  auto lru = read({.state = "M = diag(exp(-exp(nu) + i theta)) M + k^T v",
                   .inputs = plain,
                   .parameters = R"j("nu": {"uniform": [-4, -1]}, "theta": {"uniform": [0, 3]})j"});
  ASSERT_TRUE(lru);
  EXPECT_EQ(lru->phase + " " + lru->logDecay, "theta exp(-exp(nu))");
}

// M - a M is (1 - a) M.
TEST(Recurrence, MultiplesOfTheStateAddUp) {
  struct Case {
    const char *state;
    LsmClass classId;
    const char *decay;
  } cases[] = {
      {"M = M + a (k^T v - M)", LsmClass::S, "1 - a"},
      {"M = M - a M + a k^T v", LsmClass::S, "1 - a"},
      {"M = M - s (M - k^T v)", LsmClass::S, "1 - s"},
      {"M = a M + (1 - a) M + k^T v", LsmClass::I, ""},
      {"M = M / 2 + 0.5 M + k^T v", LsmClass::I, ""},
      {"M = 0.5 M + 0.25 M + k^T v", LsmClass::S0, "0.75"},
      {"M = a (M - s M) + k^T v", LsmClass::S, "(1 - s) a"},
      {"M = M - diag(a) M + a^T v", LsmClass::V, "1 - a"},
      {"M = M - M diag(a) + k^T v", LsmClass::R, ""},
      {"M = M - full(a) M + k^T v", LsmClass::E, "1 - a"},
      {"M = M - a M + b k^T (v - k (1 - a) M)", LsmClass::GH, "1 - a"},
  };
  for (const Case &c : cases) {
    auto r = read({.state = c.state, .inputs = inputsOf(std::string(c.state) + " o = q M")});
    ASSERT_TRUE(r) << c.state;
    EXPECT_EQ(r->classId, c.classId) << c.state;
    EXPECT_EQ(r->logDecay.empty() ? "" : r->decayText(r->logDecay), c.decay) << c.state;
  }
  auto normal = read({.state = "M = M + a (k^T v - M); z = z + a (k^T - z)",
                      .output = "o = (q M) / (q z)",
                      .inputs = inputsOf("a k v q")});
  EXPECT_TRUE(normal && normal->normalised);
}

// q diag(u) k^T is inner(q u, k).
TEST(Recurrence, NumbersOfTwoRowsInTheOutput) {
  const std::pair<Text, const char *> cases[] = {
      {{.state = "M = M + k^T v", .output = "o = q M_prev + q diag(u) k^T v"}, "M + inner(q u, k) v"},
      {{.state = "M = M + k^T v", .output = "o = q M / (1 + q k^T)"}, "M / (1 + inner(q, k))"},
      {{.state = "M = M + v k^T", .output = "o = M_prev q + v k^T diag(u) q"}, "M + v inner(q u, k)"},
      {{.state = "M = M + k v^T", .output = "o = M^T q / (1 + q^T k)"}, "M / (1 + inner(k, q))"},
  };
  for (const auto &[text, output] : cases) {
    Text whole = text;
    whole.inputs = inputsOf(text.state + " " + text.output);
    auto r = read(whole);
    ASSERT_TRUE(r) << text.output;
    EXPECT_EQ(textOf(r->inputs.back().term), output) << text.output;
  }
}

// A row is what stands between ^T and what ends it, a power and a parenthesis are one thing, and writes add up.
TEST(Recurrence, PowersAndSeveralWrites) {
  struct Case {
    const char *state, *key, *value, *factors;
  } cases[] = {
      {"M = s^2 M + k^T v", "k", "v", ""},
      {"M = 0.9 M + b^2 k^3^T (u v)^2", "k^3", "(u v)^2", "b^2"},
      {"M = 0.9 M + (1 - s^2) k^T v", "k", "v", "1 - s^2"},
      {"M = 0.9 M + k^T v - c k^T u", "k", "v - c u", ""},
      {"M = 0.9 M + b k^T v + b k^T u", "k", "v + u", "b"},
      {"M = 0.9 M + b k^T v - c p^T v", "b k - c p", "v", ""},
      {"M = 0.9 M + k^T (v - u) + k^T (b v)", "k", "(v - u) + b v", ""},
  };
  for (const Case &c : cases) {
    auto r = read({.state = c.state, .inputs = inputsOf(std::string(c.state) + " o = q M")});
    ASSERT_TRUE(r) << c.state;
    EXPECT_EQ(r->key + " | " + r->value + " | " + llvm::join(r->writeFactors, " "),
              std::string(c.key) + " | " + c.value + " | " + c.factors)
        << c.state;
  }
}

TEST(Recurrence, SeveralUpdates) {
  struct Case {
    const char *state;
    LsmClass classId;
    std::vector<const char *> updates; ///< class, key, value and log decay of each
  };
  const Case cases[] = {
      {"M = M + k^T v; M = M + p^T u", LsmClass::I, {"I k v ", "I p u "}},
      {"M = 0.9 M + k^T v; M = M + p^T u", LsmClass::S, {"S0 k v 0.9", "I p u "}},
      {"M = diag(a) M + k^T v; M = s M + p^T u", LsmClass::V, {"V k v a", "S p u s"}},
      // What only decays is part of its neighbour.
      {"M = s M; M = M + k^T v", LsmClass::S, {"S k v s"}},
      {"M = M + k^T v; M = s M", LsmClass::S, {"S k v s"}},
      {"M = s M; M = M; M = M + k^T v; M = M + p^T u", LsmClass::S, {"S k v s", "I p u "}},
      {"M = s M; M = M + s k^T (v - k M); M = M + p^T (u - p M)", LsmClass::GH, {"GH k v s", "H p u "}},
      {"M = diag(a) M; M = M + s k^T (v - k M); M = M + p^T (u - p M)", LsmClass::VH, {"VH k v a", "H p u "}},
      // What only erases writes nothing.
      {"M = (I - s k^T k) M; M = M + p^T (u - p M)", LsmClass::H, {"H k  ", "H p u "}},
      {"M = (I - s k^T k) M; M = M + p^T u", LsmClass::D, {"H k  ", "I p u "}},
      // A product of transitions: the right one first.
      {"M = (I - s k^T k) (I - s p^T p) M + s k^T v", LsmClass::H, {"H p  ", "H k v "}},
      {"M = s (I - s k^T k) (I - s p^T p) M + s k^T v", LsmClass::GH, {"H p  ", "GH k v s"}},
      {"M = (I - s k^T k) s (I - c^T p) M + s k^T v", LsmClass::D, {"D c  ", "GH k v s"}},
      {"M = (I - k^T k) (I - p^T p) (I - c^T c) M + u^T v", LsmClass::D, {"H c  ", "H p  ", "D u v "}},
      {"M = M - c^T k M; M = M + p^T u", LsmClass::D, {"D c  ", "I p u "}},
      {"M = diag(a) M + c^T k M + k^T v; M = M + s p^T (u - p M)", LsmClass::D, {"D k v a", "H p u "}},
  };
  for (const Case &c : cases) {
    auto r = read({.state = c.state, .inputs = inputsOf(std::string(c.state) + " o = q M")});
    ASSERT_TRUE(r) << c.state;
    EXPECT_EQ(r->scanClass(), c.classId) << c.state << ": " << r->reason;
    ASSERT_EQ(r->updates().size(), c.updates.size()) << c.state;
    for (auto [update, wanted] : llvm::zip_equal(r->updates(), c.updates)) {
      std::string log = update->logDecay.empty() ? "" : r->decayText(update->logDecay);
      EXPECT_EQ(stringifyLsmClass(update->classId).str() + " " + update->key + " " + update->value + " " + log, wanted)
          << c.state;
    }
  }
}

TEST(Recurrence, MoreThanOneState) {
  auto normal = read({.state = "M = exp(g) M + s k^T v; z = s k^T + exp(g) z",
                      .output = "o = (q M) / (q z)",
                      .inputs = plain + R"j(, "g": "log_sigmoid(linear(x))", "s": "sigmoid(linear(x))")j"});
  ASSERT_TRUE(normal);
  EXPECT_EQ(normal->classId, LsmClass::S);
  for (const char *output :
       {"o = 2 (q M) / (q z)", "o = (2 q M) / (q z) / 4", "o = silu(v (q M) / (q z))", "o = v q M / (q z)"}) {
    auto more = read({.state = "M = exp(g) M + k^T v; z = exp(g) z + k^T", .output = output});
    ASSERT_TRUE(more) << output;
    EXPECT_TRUE(more->normalised && more->expressed && more->query == "q") << output;
  }
  EXPECT_TRUE(normal->normalised && !normal->expressed && !normal->readsSums);
  // mLSTM, and what else reads q z as a number.
  for (const char *output :
       {"o = (q M) / max(abs(q z), 1)", "o = ((q + k) M) (1 - sigmoid((q + k) z))", "o = q M / (1 + (q z)^2)"}) {
    auto more = read({.state = "M = exp(g) M + k^T v; z = exp(g) z + k^T", .output = output});
    ASSERT_TRUE(more) << output;
    EXPECT_TRUE(more->normalised && more->expressed && more->readsSums) << output;
    EXPECT_TRUE(mentions(more->inputs.back().term, "M") && mentions(more->inputs.back().term, "z")) << output;
  }
  auto before = read({.output = "o = q M_prev + v inner(u q, k)", .parameters = R"j("u": 1)j"});
  ASSERT_TRUE(before);
  EXPECT_TRUE(before->readsBefore && before->expressed);
  EXPECT_EQ(before->query, "q");
  EXPECT_EQ(before->parameter("u")->per, Per::key);
  auto turned = read({.state = "M = diag(exp(g + i h)) M + k^T v", .inputs = twoGates});
  ASSERT_TRUE(turned);
  EXPECT_EQ(turned->className() + turned->logDecay + turned->phase, "Vgh");
  EXPECT_TRUE(turned->definition("h")->wide);

  // i is a gate where something has that name.
  auto gate = read({.state = "M = exp(g) M + i k^T v; z = exp(g) z + i k^T",
                    .output = "o = (q M) / max(abs(q z), 1)",
                    .inputs = plain + R"j(, "g": "log_sigmoid(linear(x))", "i": "exp(linear(x))")j"});
  ASSERT_TRUE(gate);
  EXPECT_EQ(gate->writeFactors, std::vector<std::string>{"i"});
  auto row = read({.state = "M = diag(exp(g + i p)) M + (k + i p)^T v",
                   .inputs = twoGates + R"j(, "p": "-softplus(h)", "i": "sigmoid(h)")j"});
  ASSERT_TRUE(row);
  EXPECT_EQ(row->className() + row->phase + row->keyImaginary, "V");
  EXPECT_EQ(row->key, "k + i p");

  auto places = [&](const std::string &state, const std::string &inputs = "", const std::string &parameters = "") {
    auto r = read({.state = state, .inputs = steps + inputs, .parameters = parameters});
    EXPECT_TRUE(r && r->inner) << state;
    return r ? r->className() + " " + r->key + r->value + r->rate + r->logDecay + r->momentum + r->placeRate + r->start
             : "";
  };
  EXPECT_EQ(places(step), "G1 kvr");
  EXPECT_EQ(places("M = exp(a) M - r grad(l2(k M - v)); M_0 = w", R"j(, "a": "log_sigmoid(linear(x))")j",
                   R"j("w": {"normal": 0.02})j"),
            "G1 kvraw");
  EXPECT_EQ(places("S = exp(e) S - r grad(l2(k M - v)); M = M + S", R"j(, "e": "log_sigmoid(linear(x))")j"), "GM kvre");
  EXPECT_EQ(places("M = M - p r grad(l2(k M - v))", R"j(, "p": "position_rate(t)")j", R"j("t": 0)j"), "GM kvrp");
  EXPECT_EQ(places("M = M - r grad(l2(layer_norm(k M, w, b) - v))", "", R"j("w": 1, "b": 0)j"), "N kvr");
  EXPECT_EQ(places("M = M - r grad(l2(v - k M))"), "G1 kvr");
  EXPECT_EQ(places("M = M - r grad(l2(v - layer_norm(k M, w, b)))", "", R"j("w": 1, "b": 0)j"), "N kvr");
}

TEST(Recurrence, ShapesOfFunctions) {
  auto r = read({.state = "M = diag(exp(g)) M + k^T v",
                 .output = "o = layer_norm(join(q M), c, b) silu(join(gate))",
                 .inputs = R"j("y": "x + m (shift(x) - x)", "q": "linear(y)", "u": "conv(linear(x))", "k": "linear(u)",
                     "s": "sigmoid(linear(y, per=value))", "v": "u + (first(u) - u) s", "f": "low_rank(y, 3, tanh)",
                     "g": "log_sigmoid(f, l)", "gate": "low_rank(x, 2, silu)")j",
                 .parameters = R"j("m": 0.5, "c": 1, "b": 0, "l": {"values": "(head + layer) / (heads + layers)"})j"});
  ASSERT_TRUE(r);
  for (auto [name, per] : {std::pair("y", Per::model),
                           {"q", Per::key},
                           {"u", Per::value},
                           {"s", Per::value},
                           {"f", Per::key},
                           {"gate", Per::value},
                           {"o", Per::all}})
    EXPECT_EQ(r->definition(name)->per, per) << name;
  EXPECT_EQ(r->parameter("m")->per, Per::model);
  EXPECT_EQ(r->parameter("c")->per, Per::all);
  EXPECT_EQ(r->parameter("l")->per, Per::head);
  EXPECT_TRUE(r->keepsFirst);
  auto whole = read({.output = "o = x + join(q M)"}); // 4 heads of 16 are 64
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->definition("o")->per, Per::all);
  EXPECT_TRUE(r->definition("f")->wide && r->definition("g")->wide); // what the log decay comes from
  EXPECT_FALSE(r->definition("y")->wide); // a matrix product rounds what it reads
}

TEST(Recurrence, InputsOfParametersAlone) {
  const std::string shared =
                        R"j("dt": "exp(s)", "g": "-exp(r) dt", "p": "f dt", "k": "sin(p) - 2 g", "v": "linear(x)")j",
                    weights = R"j("s": {"value": 0, "per": "head"}, "r": 0, "f": {"initial": "pi key"})j";
  auto r = read({.state = "M = diag(exp(g + i p)) M + (k + i p)^T v",
                 .output = "o = 1 M",
                 .inputs = shared,
                 .parameters = weights});
  ASSERT_TRUE(r);
  EXPECT_EQ(r->query + r->key + r->keyImaginary + r->logDecay + r->phase, "1kpgp");
  for (const char *name : {"dt", "g", "p", "k"})
    EXPECT_TRUE(r->definition(name)->constant && r->definition(name)->wide) << name;
  EXPECT_FALSE(r->definition("v")->constant);
  EXPECT_EQ(r->definition("dt")->per, Per::head);
  EXPECT_EQ(r->parameter("r")->per, Per::key);
  auto numbers = read({.inputs = plain + R"j(, "s": "1 / 4 softplus(linear(x))", "g": "-1 / 2 s / (-8) (-1)")j"});
  ASSERT_TRUE(numbers);
  EXPECT_EQ(numbers->definition("s")->term.args.front().number, 0.25);
  // Elsewhere such an input is what a parameter is.
  auto weight = read({.inputs = plain + R"j(, "c": "exp(w)", "g": "-c softplus(linear(x) + c)")j",
                      .parameters = R"j("w": {"value": 0, "per": "head"})j"});
  ASSERT_TRUE(weight);
  EXPECT_TRUE(weight->definition("c")->constant && !weight->definition("g")->constant);
  const std::string one = R"j("r": 0)j", own = R"j("g": {"value": -1, "per": "head"})j";
  const Text cases[] = {
      {.state = "M = diag(exp(g)) M + p^T v", .output = "o = 1 M", .inputs = shared, .parameters = weights},
      {.state = "M = exp(g) M + (k + i q)^T v"},
      {.state = "M = diag(exp(g + i c)) M + (k + i q)^T v",
       .inputs = plain + R"j(, "g": "log_sigmoid(linear(x))", "c": "exp(r)")j",
       .parameters = one},
      {.state = "M = exp(g) M + (k + i q + q)^T v"},
      {.inputs = plain, .parameters = own},
      {.inputs = plain + R"j(, "y": "linear(x, heads=2) + u")j",
       .parameters = R"j("u": {"value": 1, "per": "head"}, "g": {"values": [-1, -1, -1, -1]})j"},
      {.state = "M = exp(g) M + u k^T v",
       .inputs =
           R"j("q": "linear(x)", "k": "linear(x)", "g": "log_sigmoid(linear(x))", "y": "linear(x, heads=2)", "v": "u y")j",
       .parameters = R"j("u": {"value": 1, "per": "head"})j"}};
  const char *messages[] = {"inputs.k: nothing uses it",
                            "state: column 17: a complex key on a state that does not turn",
                            "a complex key is the same for all tokens, as its phase is",
                            "a row before ^T, or (k + i l)",
                            "parameters.g: is trained, and nothing keeps a log decay from becoming positive",
                            "inputs.y: nothing uses it",
                            "state: column 16: 'u' has 2 heads elsewhere, but 4 here; valid: two parameters"};
  for (auto [text, message] : llvm::zip_equal(cases, messages)) {
    std::vector<std::string> errors = errorsOf(description(text));
    ASSERT_FALSE(errors.empty()) << message;
    EXPECT_NE(errors.front().find(message), std::string::npos) << message << "\n" << errors.front();
  }
}

TEST(Recurrence, FormulasOfPlaces) {
  auto numbers = [](const char *formula, const char *name, int64_t layer) {
    auto r = read({.state = "M = full(exp(g)) M + k^T v",
                   .output = "o = q M + d v",
                   .inputs = plain + R"j(, "u": "softplus(linear(x))", "g": "log_decay(u, a)")j",
                   .parameters = std::string(R"j("a": {"initial": ")j") + formula + R"j("}, "d": {"values": ")j" +
                                 formula + R"j(", "per": "head"})j"});
    return r ? evaluate(*r->parameter(name), *r, {4, 8, 16, 3, 64, 1}, layer) : std::vector<double>();
  };
  using Numbers = std::vector<double>;
  EXPECT_EQ(numbers("-layer (1 - 0.5) / layers", "d", 2), Numbers(4, -1.0 / 3));
  EXPECT_EQ(numbers("-layer (1 - 0.5) / layers", "a", 2).size(), 4u * 8 * 16);
  EXPECT_EQ(numbers("exp2(3) - sqrt(4)", "a", 0), Numbers(8 * 16, 6.0));
  auto r = read({.state = "M = full(exp(g)) M + k^T v",
                 .inputs = plain + R"j(, "u": "softplus(linear(x))", "g": "log_decay(u, a)")j",
                 .parameters = R"j("a": {"initial": "key / keys + value"})j"});
  ASSERT_TRUE(r);
  Numbers all = evaluate(*r->parameter("a"), *r, {4, 8, 16, 3, 64, 1}, 0);
  ASSERT_EQ(all.size(), 8u * 16); // the same for all heads
  EXPECT_EQ(all[5 * 16 + 3], 5.0 / 8 + 3);
}

TEST(Recurrence, GatesHaveTheShapeOfTheirClass) {
  auto perOf = [](const std::shared_ptr<const Recurrence> &r, const char *name) { return *r->definition(name)->per; };
  auto element = read({.state = "M = full(exp(g)) M + k^T v",
                       .inputs = plain + R"j(, "g": "log_sigmoid(linear(x) + f)")j",
                       .parameters = R"j("f": 2)j"});
  ASSERT_TRUE(element);
  EXPECT_EQ(perOf(element, "g"), Per::element);
  EXPECT_EQ(element->parameter("f")->per, Per::element);
  auto both = read({.state = "M = diag(exp(g)) M diag(exp(h)) + k^T v", .inputs = twoGates});
  ASSERT_TRUE(both);
  EXPECT_EQ(perOf(both, "g"), Per::key);
  EXPECT_EQ(perOf(both, "h"), Per::value);
  EXPECT_TRUE(both->definition("h")->wide);
  auto low = read({.state = "M = (diag(exp(g)) + h^T c) M + k^T v", .inputs = lowRank});
  ASSERT_TRUE(low);
  EXPECT_EQ(low->lowRankB + low->lowRankA, "hc");
  EXPECT_EQ(perOf(low, "h"), Per::key);
  EXPECT_FALSE(low->definition("c")->wide); // rows, as k is
}

TEST(Recurrence, SaysWhatIsNotKnownOfDecays) {
  auto unknown = read({.state = "M = full(exp(g)) M + k^T v", .inputs = plain + R"j(, "g": "linear(x)")j"}),
       known = read({});
  ASSERT_TRUE(unknown && known);
  auto fixed = read(
      {.inputs = plain + R"j(, "g": "-s softplus(linear(x))")j", .parameters = R"j("s": {"values": "head / 2"})j"});
  EXPECT_TRUE(fixed); // numbers that nobody trains keep their sign
  auto element = read({.state = "M = full(exp(g)) M + k^T v",
                       .inputs = plain + R"j(, "g": "log_decay(v, a)")j",
                       .parameters = R"j("a": 0)j"});
  ASSERT_TRUE(element); // -exp(a) v, and v is anything
  EXPECT_NE(element->reason.find("cannot be shown"), std::string::npos) << element->reason;
  EXPECT_NE(unknown->reason.find("That g is never positive cannot be shown"), std::string::npos) << unknown->reason;
  EXPECT_EQ(known->reason.find("cannot be shown"), std::string::npos) << known->reason;
}

// A decay that stands as it is: what functions and numbers keep from 0 to 1 has a logarithm, taken or written.
TEST(Recurrence, DecaysThatRangesKnow) {
  const std::string y = R"j(, "y": "linear(x)")j", unit = y + R"j(, "n": "l2_norm(y)")j",
                    least = y + R"j(, "l": "sigmoid(s)")j", two = y + R"j(, "w": "linear(x)")j";
  const std::pair<const char *, std::string> decays[] = {{"l + (1 - l) sigmoid(y)", least},
                                                         {"1 - (1 - l) (1 - sigmoid(y))", least},
                                                         {"sigmoid(y) sigmoid(w) + tanh(w)^2 (1 - sigmoid(y))", two},
                                                         {"exp(-relu(y) w w)", two},
                                                         {"1 - sigmoid(y) n^2", unit},
                                                         {"0.3 + 0.7 sigmoid(y)", y},
                                                         {"1 - sigmoid(y) / 2", y},
                                                         {"(1 + tanh(y)) / 2", y},
                                                         {"sqrt(1 - sigmoid(y)^2)", y},
                                                         {"clamp(y, 0.1, 1)", y},
                                                         {"min(abs(y), 0.9)", y},
                                                         {"max(sigmoid(y), 0.5)", y},
                                                         {"cos(y)^2", y},
                                                         {"1 / (1 + softplus(y))", y},
                                                         {"1 - relu(tanh(y))", y},
                                                         {"softmax(y)", y}};
  for (const auto &[decay, inputs] : decays)
    for (const char *text : {"\"f\": \"%\"", "\"g\": \"log(%)\""}) {
      bool stands = text[1] == 'f';
      std::string last = text;
      last.replace(last.find('%'), 1, decay);
      auto r = read({.state = stands ? "M = diag(f) M + k^T v" : "M = diag(exp(g)) M + k^T v",
                     .inputs = plain + inputs + ", " + last,
                     .parameters = inputs == least ? R"j("s": 0)j" : ""});
      ASSERT_TRUE(r) << decay;
      EXPECT_EQ(r->className() + " " + r->decayText(r->logDecay), stands ? "V f" : "V exp(g)") << decay;
    }
  auto r = read({.state = "M = gamma M + k^T v",
                 .inputs = plain,
                 .parameters = R"j("gamma": {"values": "1 - exp2(-5 - head)"})j"});
  ASSERT_TRUE(r);
  EXPECT_EQ(r->classId, LsmClass::S0);
  EXPECT_EQ(r->logDecay, "gamma (log)");
  EXPECT_NE(r->reason.find("the same for all tokens: gamma"), std::string::npos) << r->reason;
}

TEST(Recurrence, SaysWhatItMadeByTheNamesOfTheText) {
  auto r = read({.state = "M = diag(exp(g)) (I - b k^T k) M + b k^T v", .inputs = gatedDelta});
  ASSERT_TRUE(r);
  EXPECT_NE(r->reason.find("minus (b k exp(g))^T k, which nothing keeps"), std::string::npos) << r->reason;
  EXPECT_EQ(r->widths(), "per head: b; per key: q, k, g; per value: v");
  r = read({.state = "M = a M - a k^T k M + k^T v", .inputs = plain + R"j(, "a": "sigmoid(linear(x))")j"});
  ASSERT_TRUE(r);
  EXPECT_EQ(r->reason.find("whole"), std::string::npos) << r->reason;
  EXPECT_EQ(shownNames("[a (whole) 0.9 (log)] -(b k g (exp))"), "[a 0.9] -(b k exp(g))");
}

TEST(Recurrence, ShapesFollowFromTheEquation) {
  auto r =
      read({.state = "M = diag(exp(g)) M + s k^T v",
            .output = "o = q M + d u",
            .inputs = R"j("u": "silu(linear(x, heads=2))", "v": "u / 2", "q": "linear(x)", "k": "softmax(linear(x))",
                     "f": "low_rank(x, 4) + bf", "g": "log_sigmoid(f) / 16", "s": "sigmoid(linear(x))")j",
            .parameters = R"j("bf": 0.5, "d": {"value": 1, "per": "head"})j"});
  ASSERT_TRUE(r);
  auto expect = [&](const char *name, Per per, int64_t heads, bool wide) {
    const Definition *d = r->definition(name);
    EXPECT_EQ(d->per, per) << name;
    EXPECT_EQ(d->heads, heads) << name;
    EXPECT_EQ(d->wide, wide) << name;
  };
  expect("u", Per::value, 2, false);
  expect("v", Per::value, 2, false);
  expect("k", Per::key, 4, false);
  expect("f", Per::key, 4, true); // what the log decay comes from is not rounded
  expect("g", Per::key, 4, true);
  expect("s", Per::head, 4, true);
  EXPECT_EQ(r->parameter("bf")->per, Per::key);
  EXPECT_EQ(r->parameter("d")->per, Per::head);
  EXPECT_EQ(r->writeFactors, std::vector<std::string>{"s"});
  EXPECT_EQ(r->skipValue, "u");
}
