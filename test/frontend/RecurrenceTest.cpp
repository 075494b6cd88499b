// Recurrences in their own notation: what class a text has, and which term is refused, with the place and what would be
// valid.
#include "frontend/Recurrence.h"
#include "dialects/braid/BraidDialect.h"
#include "frontend/ModelSpec.h"
#include <gtest/gtest.h>
#include <random>
#include <regex>

using namespace braid;
using namespace braid::recurrence;

namespace {

struct Text {
  std::string state = "M = exp(g) M + k^T v", output = "o = q M", inputs{}, parameters{}, more{};
};

std::string description(const Text &text) {
  std::string inputs = text.inputs.empty() ? R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)",
      "g": "log_sigmoid(linear(x))")j"
                                           : text.inputs;
  return R"j({"vocab_size": 256, "d_model": 64, "num_layers": 1, "layer_pattern": "R", "ffns": {"D": {"kind": "dense", "hidden": 64}},
    "mixers": {"R": {"kind": "recurrence", "heads": 4, "head_dim": 8, "value_dim": 16, "state": ")j" +
         text.state + R"j(", "output": ")j" + text.output + R"j(", "inputs": {)j" + inputs + "}" +
         (text.parameters.empty() ? "" : R"j(, "parameters": {)j" + text.parameters + "}") + text.more + "}}}";
}

std::vector<std::string> errorsOf(const std::string &text) {
  std::vector<std::string> errors;
  auto spec = parseModelSpec(text, "m", [&](const std::string &message) { errors.push_back(message); });
  EXPECT_EQ(succeeded(spec), errors.empty());
  return errors;
}

std::shared_ptr<const Recurrence> read(const Text &text) {
  std::string all;
  auto spec = parseModelSpec(description(text), "m", [&](const std::string &message) { all += message + "\n"; });
  EXPECT_TRUE(succeeded(spec)) << all;
  return succeeded(spec) ? std::get<RecurrenceSpec>(spec->mixers.at('R')).recurrence : nullptr;
}

const std::string delta =
    R"j("q": "linear(x)", "k": "l2_norm(linear(x))", "v": "linear(x)", "b": "sigmoid(linear(x))")j";
const std::string gatedDelta = delta + R"j(, "g": "log_sigmoid(linear(x))")j";
const std::string plain = R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)")j";
const std::string twoGates = plain + R"j(, "g": "log_sigmoid(linear(x))", "h": "log_sigmoid(linear(x))")j";
const std::string steps = R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)", "r": "sigmoid(linear(x))")j";
const std::string step = "M = M - r grad(l2(k M - v))";
const std::string lowRank = plain + R"j(, "g": "log_sigmoid(linear(x))", "c": "linear(x)", "h": "-c")j";

/// Of q, k, v and what else the equation names.
std::string inputsOf(const char *state) {
  const std::pair<const char *, const char *> definitions[] = {{"b", "sigmoid(linear(x))"},
                                                               {"s", "sigmoid(linear(x))"},
                                                               {"g", "log_sigmoid(linear(x))"},
                                                               {"h", "log_sigmoid(linear(x))"},
                                                               {"c", "linear(x)"},
                                                               {"p", "linear(x)"},
                                                               {"u", "linear(x)"}};
  std::string inputs = plain;
  for (auto [name, text] : definitions)
    if (std::regex_search(state, std::regex(std::string("\\b") + name + "\\b")))
      inputs += std::string(", \"") + name + "\": \"" + text + "\"";
  return inputs;
}

} // namespace

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

// What acts on M by two rows is class D, with all that multiplies in the rows; a remark says why it is no delta rule.
TEST(Recurrence, TransitionsOfTwoRows) {
  struct Case {
    const char *state, *left, *right, *why;
  } cases[] = {
      {"M = (diag(exp(g)) + b k^T k) M + k^T v", "b k", "k", ""},
      {"M = M + 0.1 p^T c M + k^T v", "0.1 p", "c", ""},
      {"M = (diag(exp(g)) - p^T c) M + k^T v", "-p", "c", "p^T c has two"},
      {"M = M - b k^T k M + k^T v", "-(b k)", "k", "here [b] and no number"},
      {"M = M - p^T b p M + b k^T v", "-(b p)", "p", "here p^T p and k^T v"},
      {"M = exp(g) M - p^T c diag(exp(h)) 0.9 M + k^T v", "-(0.9 p)", "c h (exp)", "p^T c has two"},
      {"M = exp(g) M - b k^T k M + b k^T v", "-(b k)", "k", "here M and exp(g) M"},
      {"M = diag(exp(g)) M - b k^T k M + b k^T v", "-(b k)", "k", "here M and diag(exp(g)) M"},
      {"M = exp(g) M - p^T c exp(g) M + k^T v", "-(g (exp) p)", "c", "p^T c has two"},
      {"M = diag(exp(g)) (I - b k^T k) M + b k^T v", "-(b k g (exp))", "k", "diag(exp(g)) here comes after"},
      {"M = diag(exp(g)) M - p^T c diag(exp(g)) M + k^T v", "-p", "c g (exp)", "p^T c has two"},
  };
  for (const Case &c : cases) {
    auto r = read({.state = c.state, .inputs = inputsOf(c.state)});
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
    auto r = read({.state = c.state, .inputs = inputsOf(c.state)});
    ASSERT_TRUE(r) << c.state;
    EXPECT_EQ(r->key + " | " + r->value + " | " + llvm::join(r->writeFactors, " "),
              std::string(c.key) + " | " + c.value + " | " + c.factors)
        << c.state;
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
  EXPECT_TRUE(normal->normalised && !normal->expressed);
  auto before = read({.output = "o = q M_prev + v inner(u q, k)", .parameters = R"j("u": 1)j"});
  ASSERT_TRUE(before);
  EXPECT_TRUE(before->readsBefore && before->expressed);
  EXPECT_EQ(before->query, "q");
  EXPECT_EQ(before->parameter("u")->per, Per::key);
  auto turned = read({.state = "M = diag(exp(g + i h)) M + k^T v", .inputs = twoGates});
  ASSERT_TRUE(turned);
  EXPECT_EQ(turned->className() + turned->logDecay + turned->phase, "Vgh");
  EXPECT_TRUE(turned->definition("h")->wide);

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

TEST(Recurrence, RefusesTheTermThatDoesNotFit) {
  struct Case {
    Text text;
    const char *message;
  } cases[] = {
      {{.state = ""}, "mixers.R.state: is empty; valid: an equation such as \"M = exp(g) M + k^T v\""},
      {{.output = " "}, "mixers.R.output: is empty; valid: an equation such as \"o = q M\""},
      {{.state = "M = M"}, "state: column 1: nothing is written; valid: + k^T v"},
      {{.state = "N = M"}, "state: column 1: 'N' is no state; valid: an equation \"M = ..\""},
      {{.state = "M = k^T v"}, "state: column 1: no product carries the state"},
      {{.state = "M = exp(g) M + k^T v + q^T u",
        .inputs = plain + R"j(, "g": "-softplus(linear(x))", "u": "linear(x)")j"},
       "column 24: writes q^T u beside k^T v: a state of this family takes in one row times one row; valid: products "
       "with one key, or one value"},
      {{.state = "M = exp(g) M + k^5 v"},
       "'5 v' at column 18; valid: T: the transpose, as in k^T v; 2, 3 or 4: a power of each number"},
      {{.state = "M = exp(g) M + M + k^T v"}, "column 16: a second multiple of M"},
      {{.state = "M = g M + k^T v", .inputs = plain + R"j(, "g": "linear(x)")j"},
       "column 5: 'g' multiplies M, and its logarithm is not known; valid: exp(g) of a log decay g, or an input"},
      {{.state = "M = g M + k^T v"}, "column 5: 'g' multiplies M, and its logarithm is not known"},
      {{.state = "M = g M + k^T v", .inputs = plain, .parameters = R"j("g": 0.5)j"},
       "'g' multiplies M, and its logarithm"},
      {{.state = "M = g M + k^T v", .inputs = plain + R"j(, "g": "exp(linear(x))")j"},
       "inputs.g: that g is never above 1 cannot be shown, but what multiplies M must not be"},
      {{.state = "M = a M + k^T v", .inputs = plain + R"j(, "y": "linear(x)", "a": "exp(y) sigmoid(y)")j"},
       "inputs.a: that a is never above 1 cannot be shown"},
      {{.state = "M = exp(-g) M + k^T v"}, "state: is never below 1, but what multiplies M must not be above 1"},
      {{.state = "M = 1.5 M + k^T v", .inputs = plain}, "state: is never below 1, but what multiplies M"},
      {{.state = "M = sigmoid(M) M + k^T v"}, "column 5: 'sigmoid(' is no function of a state"},
      {{.state = "M = sigmoid(linear(x)) M + k^T v", .inputs = plain},
       "state: column 13: linear in the state; valid: an input of its own"},
      {{.state = "M = (M + k^T v) / M", .inputs = plain}, "column 19: a division by the state"},
      {{.state = "M = M + (k M)^T v", .inputs = plain},
       "column 10: M before ^T: a state of this family is not transposed"},
      {{.state = "M = -M + k^T v"}, "the state changes its sign"},
      {{.state = "M = exp(g) diag(exp(g)) M + k^T v"}, "column 5: decays of two kinds; valid: one"},
      {{.state = "M = exp(h) M + k^T v"}, "column 9: 'h' is not defined"},
      {{.state = "M = full(exp(g)) M diag(exp(h)) + k^T v",
        .inputs = plain + R"j(, "g": "log_sigmoid(linear(x))", "h": "log_sigmoid(linear(x))")j"},
       "column 5: two decays of value features"},
      {{.state = "M = M full(exp(g)) + k^T v"}, "column 7: what stands right of M"},
      {{.state = "M = diag(exp(g)) M diag(exp(g)) + k^T v"},
       "column 14: 'g' is one number per value here, but per key elsewhere in it"},
      {{.state = "M = (full(exp(g)) + k^T k) M + k^T v"},
       "column 21: b^T a M is added to a state with a decay per value"},
      {{.state = "M = (I - b k^T k) full(exp(g)) M + b k^T v", .inputs = gatedDelta}, "with a decay per value feature"},
      {{.inputs = R"j("q": "linear(x)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j",
        .parameters = R"j("k": {"value": 1, "per": "head"})j"},
       "state: column 16: 'k' has one number per head, but per key is needed here; valid: what has one per key; such"},
      {{.state = "M = full(exp(c)) M + k^T v", .inputs = plain, .parameters = R"j("c": {"values": [1, 2, 3, 4]})j"},
       "state: column 14: 'c' has one number per head, but per element is needed here"},
      {{.state = "M = full(exp(g)) M + k^T v", .inputs = plain + R"j(, "g": "log_sigmoid(linear(x, heads=2))")j"},
       "heads=2 of one number per element of the state"},
      {{.state = "M = full(exp(g)) M + k^T v", .inputs = plain + R"j(, "g": "l2_norm(linear(x))")j"},
       "l2_norm is of features of a head"},
      {{.state = "M = exp(g) M + k^T"}, "nothing stands behind k^T to multiply with"},
      {{.state = "M = tanh(M) + k^T v"}, "column 5: 'tanh(' is no function of a state"},
      {{.state = "M = diag(g) M + k^T v"}, "column 5: 'g' multiplies M, and its logarithm is not known"},
      {{.state = "M = exp(g) M - M + k^T v"}, "column 16: a second multiple of M; valid: one, such as a M"},
      {{.state = "M = M - b k^T k M + k^T v b", .inputs = delta}, "'b' is one number per head here, but per value"},
      {{.state = "M = M + full(exp(g)) k^T v"}, "column 9: decays per element of k^T v"},
      {{.state = "M = exp(g) M - b k^T k full(exp(h)) M + b k^T v",
        .inputs = gatedDelta + R"j(, "h": "-exp(linear(x))")j"},
       "what is added to M is b^T a M"},
      {{.state = "M = exp(g) M + k^T v)"}, "state: ')' at column 21; valid: +, -, *, / or the end"},
      {{.state = "M = exp(g M + k^T v"}, "at column 20; valid: ',' or ')'"},
      {{.state = "M = M + k^T v; M = M + k^T v", .inputs = plain}, "state: column 16: a second equation of M"},
      {{.state = "z = z + k^T", .inputs = plain}, "state: column 1: valid: an equation \"M = ..\""},
      {{.state = "M = M + k^T v; z = z + q^T", .output = "o = (q M) / (q z)", .inputs = plain},
       "state: column 24: M has no such product, or not as often; valid: the equation of M, with z for M and k^T for "
       "k^T v"},
      {{.state = "M = exp(g) M + k^T v; z = z + k^T", .output = "o = (q M) / (q z)"},
       "column 27: M has no such product"},
      {{.state = "M = M + k^T v; z = z + z", .output = "o = (q M) / (q z)", .inputs = plain},
       "M has no such product, or not as often"},
      {{.state = "M = M + k^T v; z = k^T + k^T", .output = "o = (q M) / (q z)", .inputs = plain},
       "M has no such product, or not as often"},
      {{.state = "M = exp(g) M + k^T v; z = k^T", .output = "o = (q M) / (q z)"}, "has 1 products, but M has 2"},
      {{.state = "M = M + k^T v; z = z + k^T", .inputs = plain},
       "output: column 7: 'M' stands outside of (q M) / (q z); valid: that"},
      {{.state = "M = M + k^T v; z = z + k^T", .output = "o = (q M) / (k z)", .inputs = plain},
       "output: column 14: M and z are read by one row"},
      {{.state = "M = diag(exp(g + i h)) M diag(exp(h)) + k^T v", .inputs = twoGates},
       "column 5: a decay with a phase goes with k^T v alone"},
      {{.state = "M = exp(g + i h) M + k^T v", .inputs = twoGates}, "column 5: a decay is exp(g), or diag(exp(g))"},
      {{.state = step + " - r grad(l2(k M - v))", .inputs = steps}, "state: column 31: a second gradient step"},
      {{.state = "S = exp(r) S - r grad(l2(k M - v)); M = M + S + S", .inputs = steps}, "a second S"},
      {{.state = "M = M - r grad(l2(k M - v)) grad(l2(k M - v))", .inputs = steps}, "a second grad(..) in one product"},
      {{.state = "M = M + r grad(l2(k M - v))", .inputs = steps}, "column 9: a step along the gradient"},
      {{.state = "M = M - r grad(k M - v)", .inputs = steps}, "column 11: the only loss here is l2(y) = |y|^2 / 2"},
      {{.state = "M = M - r grad(l2(tanh(k M) - v))", .inputs = steps}, "column 19: what is predicted is k M"},
      {{.state = "M = diag(exp(r)) M - r grad(l2(k M - v))", .inputs = steps},
       "column 5: what gradient steps change decays by one exp(a)"},
      {{.inputs =
            R"j("q": "linear(x)", "k": "conv(linear(x))", "v": "linear(x)", "g": "log_sigmoid(linear(x) + conv_k.bias)")j",
        .parameters = R"j("conv_k.bias": 1)j"},
       "parameters.conv_k.bias: its weight lsm.conv_k.bias has the name of one of inputs.k"},
      {{.state = "M = M + S; S = S", .inputs = steps}, "column 1: no gradient step"},
      {{.state = "M = M M - r grad(l2(k M - v))", .inputs = steps}, "column 7: 'M' a second time in a product"},
      {{.inputs = plain + R"j(, "y": "linear(w)", "g": "log_sigmoid(linear(x) + y)")j",
        .parameters = R"j("w": {"value": 0, "per": "key"})j"},
       "inputs.y: column 1: linear of parameters alone"},
      // Read in two places: what helps is said.
      {{.state = "M = exp(-b) M + k^T v",
        .output = "o = silu(q M) + tanh(b)",
        .inputs = plain + R"j(, "b": "softplus(linear(x))")j"},
       "two names, or per=head in its linear, where it multiplies what has more"},
      {{.state = "M = M + b k^T v", .output = "o = q M + v b", .inputs = plain, .parameters = R"j("b": 1)j"},
       "two names, or \"per\": \"head\", where it multiplies what has more"},
      {{.state = "M = M + k^T v", .output = "o = silu(q M) k", .inputs = plain},
       "'k' is one number per value here, but per key in state, column 9; valid: two names"},
      {{.inputs = R"j("q": "shift(w)", "k": "linear(x)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j",
        .parameters = R"j("w": 0)j"},
       "inputs.q: column 1: shift of parameters alone; valid: functions of each number, softmax, l2_norm"},
      {{.inputs =
            R"j("q": "rope(linear(x))", "k": "linear(x)", "v": "rope(linear(x))", "g": "log_sigmoid(linear(x))")j",
        .more = R"j(, "rope": {"fraction": 0.3125})j"},
       "rope.fraction: 0.3125 of head_dim 8 turns 3 features"},
      {{.more = R"j(, "output_glu": "silu")j"}, "output_glu: takes o as it is, but output_norm is true"},
      {{.state = step + "; M_0 = q", .inputs = steps}, "'q' is an input; valid in this place: a parameter"},
      {{.state = step + "; S = exp(r) S", .inputs = steps}, "momentum S is what M adds, and what the step changes"},
      {{.state = step, .output = "o = q M_prev", .inputs = steps},
       "output: column 7: M_prev of a state with gradient steps"},
      {{.state = step, .inputs = steps, .more = R"j(, "mini_batch": 0)j"},
       "mini_batch: 0 is out of range; valid: 1 to 128"},
      {{.more = R"j(, "mini_batch": 8)j"}, "mini_batch: changes nothing without a gradient step"},
      {{.output = "o = q M + k M silu(v)"}, "output: column 11: a second read of M"},
      {{.output = "o = silu(v)"}, "output: column 1: M is not read"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(split(x))")j"},
       "split makes values, but one number per head is needed here"},
      {{.more = R"j(, "output_gate": "silu", "output_glu": "silu")j"}, "output_glu: a gate beside output_gate"},
      {{.output = "o = (q M) M silu(v)"}, "output: column 6: M is read by a row"},
      {{.output = "o = linear(x) M"}, "output: column 5: linear in the output; valid: an input of its own"},
      {{.state = "M = M + k^T v",
        .inputs = R"j("q": "exp(u)", "k": "sin(u)", "v": "cos(w)")j",
        .parameters = R"j("u": {"value": 1, "per": "key"}, "w": {"value": 1, "per": "value"})j"},
       "state: column 1: nothing in it comes from x"},
      {{.state = "M = exp(g) M^T + k^T v"}, "column 12: M^T: a state of this family is not transposed; valid: M"},
      {{.state = "M = exp(g) M + k^T v; M_0 = w"}, "column 23: M_0 of a state without gradient steps"},
      {{.state = "M =\u00a0M + k^T v"}, "at column 4"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(conv(linear(x)))")j", .more = R"j(, "conv": null)j"},
       "conv: is null, but an input calls conv(..)"},
      {{.more = R"j(, "output_norm": false, "norm_eps": 1e-3)j"}, "norm_eps: changes nothing without a norm"},
      {{.output = "o = silu(q M) + y"}, "output: column 17: 'y' is not defined"},
      {{.output = "o = q M + x"},
       "output: column 11: x has all features of d_model; valid: an input such as linear(x)"},
      {{.state = "M = x M + k^T v"}, "state: column 5: x stands in inputs only"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(inner(q, v))")j"},
       "inputs.g: column 22: 'v' is one number per key here, but per value in state, column 20; valid: two"},
      {{.inputs = R"j("q": "taylor(linear(x))", "k": "linear(x)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j"},
       "output: column 5: 'q' has one number per row, but key 'k' per key; valid: the same function of both"},
      {{.inputs =
            R"j("q": "taylor(linear(x))", "k": "square(linear(x))", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j"},
       "taylor here, but square elsewhere"},
      {{.state = "M = diag(exp(g)) M + k^T v",
        .inputs =
            R"j("q": "with_one(linear(x))", "k": "with_one(linear(x))", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j"},
       "state: column 14: a decay per key feature of a state whose rows are products"},
      {{.inputs = plain + R"j(, "y": "shift(x) - x", "g": "log_sigmoid(y)")j"},
       "inputs.y: column 7: x has all features of d_model"},
      {{.inputs = plain + R"j(, "y": "shift(x) - x", "z1": "shift(x)", "g": "log_sigmoid(linear(x))")j"},
       "inputs.z1: nothing uses it"},
      {{.inputs =
            R"j("a": "shift(x) + x", "b": "x - shift(x)", "q": "linear(a)", "k": "linear(b)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j"},
       "inputs.b: its weight lsm.shift_x has the name of one of inputs.a"},
      {{.inputs = plain + R"j(, "g": "position_rate(t)")j", .parameters = R"j("t": 0)j"},
       "position_rate is of a mini-batch; valid: in front of grad(..)"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(x), l)")j", .parameters = R"j("l": 0)j"},
       "parameters.l: is trained, but the least value of a gate is not"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(x), l)")j", .parameters = R"j("l": {"values": "head / 2"})j"},
       "parameters.l: values[2] of layer 0 is 1; valid for the least value of a gate: from 0, below 1"},
      {{.inputs = plain, .parameters = R"j("g": {"values": "key - 1"})j"},
       "parameters.g: column 1: 'key' is no number of one for each head; valid: layer, layers, pi, head, heads"},
      {{.inputs = plain, .parameters = R"j("g": {"values": "cosh(head)"})j"},
       "parameters.g: column 1: 'cosh(' is no function of one number; valid: exp, exp2"},
      {{.inputs = plain, .parameters = R"j("g": {"values": "-1 / head"})j"},
       "parameters.g: number 0 of layer 0 is -inf; valid: -1e6 to 1e6"},
      {{.inputs = plain, .parameters = R"j("g": {"values": "1 +"})j"}, "parameters.g.values: the end at column 4"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(b.c)")j"}, "inputs.g: column 13: 'b.c' is not defined"},
      {{.inputs = plain + R"j(, "g.h": "linear(x)")j"}, "inputs.g.h: is no name"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(l2_norm(linear(x), 0))")j"}, "l2_norm needs several features"},
      {{.output = "o = layer_norm(q M, w, b, 2) v", .parameters = R"j("w": 1, "b": 0)j"},
       "output: column 27: valid as what keeps layer_norm from dividing by 0"},
      {{.state = "M = M - r grad(l2(layer_norm(k M, w, b, 0) - v))",
        .inputs = steps,
        .parameters = R"j("w": 1, "b": 0)j"},
       "state: column 41: valid as what keeps layer_norm from dividing by 0"},
      {{.inputs = plain + R"j(, "g": "linear(x)")j"}, "inputs.g: that it is never positive cannot be shown"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(x)) p")j", .parameters = R"j("p": 1)j"},
       "inputs.g: that it is never positive cannot be shown"},
      {{.state = "M = diag(exp(g)) M diag(exp(h)) + k^T v",
        .inputs = plain + R"j(, "g": "log_sigmoid(linear(x))", "h": "tanh(linear(x))")j"},
       "inputs.h: that it is never positive cannot be shown"},
      {{.output = "o = M"}, "output: column 5: 'M' stands alone; valid: q M"},
      {{.output = "o = v"}, "output: column 1: M is not read"},
      {{.output = "o = q M + k"},
       "output: column 11: 'k' is one number per value here, but per key in state, column 16"},
      {{.state = "M = exp(v) M + k^T v"},
       "state: column 9: 'v' is one number per head here, but per value elsewhere in it"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(y)")j"}, "inputs.g: column 13: 'y' is not defined"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(h)", "h": "linear(x)")j"},
       "inputs.g: 'h' comes later in inputs; valid: names before this one"},
      {{.state = "M = full(exp(g)) M + k^T v", .output = "o = q M_prev"},
       "M_prev of a state with one decay per element"},
      {{.state = "M = (diag(exp(g)) + k^T h) M + k^T v", .output = "o = q M_prev", .inputs = lowRank},
       "output: 'k' stands in two places of the state"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(x)")j"}, "inputs.g: column 13: x has all features of d_model"},
      {{.inputs = plain + R"j(, "g": "softmax(linear(x))")j"}, "softmax needs several features of a head"},
      {{.inputs = plain + R"j(, "g": "bump(linear(x))")j"},
       "inputs.g: column 1: 'bump(' is no function; valid: linear"},
      {{.inputs = plain + R"j(, "g": "linear(x) + linear(x)")j"},
       "column 13: a second linear or low_rank of one input"},
      {{.inputs = plain + R"j(, "g": "linear(x) / 0")j"}, "column 13: a division by 0"},
      {{.inputs = plain + R"j(, "g": "1.2.3 linear(x)")j"}, "'.3 linea..' at column 4; valid: a number with one point"},
      {{.inputs = plain + R"j(, "g": "-1e20 * 1e20 * softplus(linear(x))")j"},
       "inputs.g: column 2: its numbers make 1e+40; valid: 0, or 1e-30 to 1e30"},
      {{.inputs = plain + R"j(, "g": "-log_sigmoid(linear(x)) / 2")j"},
       "inputs.g: is never negative, but a log decay must not be positive"},
      {{.inputs = plain + R"j(, "f": "sigmoid(linear(x))", "g": "f * f")j"}, "inputs.g: is never negative"},
      {{.inputs = plain + R"j(, "f": "linear(x)", "g": "f f / 2")j"}, "inputs.g: is never negative"},
      {{.inputs = plain + R"j(, "g": "tanh(softplus(linear(x)))")j"}, "inputs.g: is never negative"},
      {{.inputs = plain, .parameters = R"j("g": {"values": [-1, 1e6, 0, 0]})j"},
       "parameters.g: values[1] is 1e+06; valid for a log decay: at most 0"},
      {{.inputs = plain + R"j(, "g": "linear(x, heads=3)")j"}, "heads=3 does not divide heads 4"},
      {{.inputs = plain + R"j(, "g": "linear(x, per=key)")j"},
       "inputs.g: column 1: per=key, but one number per head is needed in state, column 9; valid: per=head"},
      {{.inputs = plain + R"j(, "g": "low_rank(x, 0.5)")j"}, "valid as the rank: a whole number"},
      {{.inputs = plain + R"j(, "g": "3")j"}, "inputs.g: is never negative"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(x)) 1e20 1e20")j"},
       "inputs.g: column 1: its numbers make 1e+40; valid: 0, or 1e-30 to 1e30"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(x) + (1e30 + 1e30))")j"},
       "inputs.g: column 26: its numbers make one out of range"},
      // The state is in no input.
      {{.inputs = R"j("q": "linear(x)", "k": "linear(x)", "v": "M", "g": "log_sigmoid(linear(x))")j"},
       "inputs.v: column 1: M is the state, which stands in state and output only"},
      {{.inputs = plain + R"j(, "g": "-softplus(inner(M, v))")j"}, "inputs.g: column 17: M is the state"},
      {{.inputs = R"j("q": "linear(x)", "k": "rope(M)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j"},
       "inputs.k: column 6: M is the state"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(M))")j"}, "inputs.g: column 20: M is the state"},
      // A number per head where features are needed.
      {{.state = "M = diag(exp(g)) M + k^T v",
        .inputs = plain + R"j(, "s": "linear(x, per=head)", "g": "-softplus(s)")j"},
       "state: column 14: 'g' has one number per head, but per key is needed here"},
      {{.output = "o = b + q M", .inputs = plain + R"j(, "g": "log_sigmoid(linear(x))", "b": "linear(x, per=head)")j"},
       "output: column 5: 'b' has one number per head, but per value is needed here"},
      {{.output = "o = q M + linear(x)"}, "output: column 11: linear in the output; valid: an input of its own"},
      {{.inputs = plain + R"j(, "M": "linear(x)")j"}, "inputs.M: is a name of its own meaning"},
      {{.inputs = plain + R"j(, "g": 3)j"}, "inputs.g: 3 is not a string"},
      {{.parameters = R"j("b": 1)j"}, "parameters.b: nothing uses it"},
      {{.parameters = R"j("g": 1)j"}, "parameters.g: is a name in inputs too"},
      {{.inputs = plain, .parameters = R"j("g": 1)j"}, "is trained, and nothing keeps"},
      {{.inputs = plain, .parameters = R"j("g": {"values": [-1, -2]})j"},
       "parameters.g: has 2 values for one number per head of 4 heads"},
      {{.parameters = R"j("b": {})j"}, "parameters.b: says not once what its initial values are"},
      {{.inputs =
            R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)", "k1": "low_rank(x, 2)", "g": "log_sigmoid(k1)")j",
        .more = R"j(, "conv": {"kernel": 4})j"},
       "conv: changes nothing: no input calls conv(..)"},
      {{.inputs = R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j",
        .more = R"j(, "output_gate": "silu")j"},
       "inputs.g: its weight lsm.wg has the name of one of the output gate"},
      {{.more = R"j(, "norm_first": false)j"}, "norm_first: changes nothing without output_gate"},
      {{.more = R"j(, "norm_groups": 7)j"}, "norm_groups: 7 does not divide heads times value_dim 64"},
  };
  for (const Case &c : cases) {
    std::vector<std::string> errors = errorsOf(description(c.text));
    ASSERT_FALSE(errors.empty()) << c.message;
    EXPECT_NE(errors.front().find(c.message), std::string::npos) << c.message << "\n" << errors.front();
  }
}

TEST(Recurrence, NoTextIsTooMuch) {
  std::string deep(1000, '('), wide = "M = ", squares = "M = M";
  for (int i = 0; i < 200; ++i)
    wide += "M+";
  for (int i = 0; i < 60; ++i)
    squares += " (M + M)";
  for (const std::string &state : {"M = " + deep, wide + "M", squares, std::string(2000, 'M'), std::string("M = k^")})
    EXPECT_FALSE(errorsOf(description({.state = state})).empty());
  // Each input twice the one before: as a tree 2^40 parts.
  std::string inputs = R"j("a0": "linear(x)")j", last = "a0";
  for (int i = 1; i < 40; ++i) {
    std::string name = "a" + std::to_string(i);
    inputs += ", \"" + name + "\": \"" + last + " * " + last + "\"";
    last = name;
  }
  EXPECT_TRUE(errorsOf(description({.inputs = R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)", )j" + inputs +
                                              R"j(, "g": "log_sigmoid()j" + last + ")\""}))
                  .empty());
}

TEST(Recurrence, RandomTextsNeverCrash) {
  std::mt19937 random(7);
  const std::vector<std::string> parts = {"M",
                                          "k^T",
                                          "v",
                                          "k",
                                          "q",
                                          "exp(g)",
                                          "diag(exp(g))",
                                          "(",
                                          ")",
                                          "+",
                                          "-",
                                          "*",
                                          "/",
                                          "I",
                                          "b",
                                          " ",
                                          "2",
                                          "x",
                                          "linear(x)",
                                          "^T",
                                          ",",
                                          "=",
                                          "log_sigmoid(",
                                          ";",
                                          "z",
                                          "S",
                                          "M_0",
                                          "M_prev",
                                          "i",
                                          "grad(",
                                          "l2(k M - v)",
                                          "shift(",
                                          "taylor(",
                                          "join(",
                                          "inner(q, k)",
                                          "layer_norm(",
                                          "first("};
  size_t valid = 0;
  for (int i = 0; i < 20000; ++i) {
    auto text = [&](std::string start) {
      for (size_t n = random() % 12; n > 0; --n)
        start += parts[random() % parts.size()];
      return start;
    };
    Text t{.state = text("M = exp(g) M + k^T v"), .output = text("o = q M")};
    if (random() % 2)
      t.inputs = plain + R"j(, "g": ")j" + text("linear(x)") + "\"";
    valid += errorsOf(description(t)).empty();
  }
  EXPECT_GT(valid, 50u);
}
