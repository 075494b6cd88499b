//===- RowsKernelsTest.cpp - row-wise ops and the gradients derived from them, in f64 against finite differences --===//
#include "test/kernels/LaunchRunner.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace braid::test;

namespace {

struct Operand {
  std::vector<int64_t> shape;
  bool integer = false;
  double low = -2, high = 2;
};

struct Case {
  const char *name;
  std::string op, attributes; // "eps = 1.0e-6 : f64"
  std::vector<Operand> operands;
  std::vector<int64_t> result;
};

void PrintTo(const Case &c, std::ostream *os) { *os << c.name; }

std::string list(const std::vector<std::string> &parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i)
    text += (i ? ", " : "") + parts[i];
  return text;
}

/// @main(operands.., dy) -> y and the cotangent of every float operand.
std::string module(const Case &c) {
  std::vector<std::string> names, types, arguments, wanted, results, resultTypes;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const Operand &o = c.operands[i];
    names.push_back("%a" + std::to_string(i));
    types.push_back(Tensor(o.integer ? Tensor::Type::i32 : Tensor::Type::f64, o.shape).typeText());
    arguments.push_back(names.back() + ": " + types.back());
    if (o.integer)
      continue;
    results.push_back("%d#" + std::to_string(wanted.size()));
    wanted.push_back(std::to_string(i));
    resultTypes.push_back(types.back());
  }
  std::string y = Tensor(Tensor::Type::f64, c.result).typeText(), n = std::to_string(names.size());
  return "func.func @main(" + list(arguments) + ", %dy: " + y + ") -> (" + y + ", " + list(resultTypes) + ") {\n" +
         "  %y = \"" + c.op + "\"(" + list(names) + ")" + (c.attributes.empty() ? "" : " <{" + c.attributes + "}>") +
         " : (" + list(types) + ") -> " + y + "\n" + "  %d:" + std::to_string(wanted.size()) +
         " = \"braid.rows_grad\"(" + list(names) + ", %dy) <{op = \"" + c.op + "\", op_attributes = {" + c.attributes +
         "}, wanted = array<i64: " + list(wanted) + ">, operandSegmentSizes = array<i32: " + n + ", 1>}> : (" +
         list(types) + ", " + y + ") -> (" + list(resultTypes) + ")\n  return %y, " + list(results) + " : " + y + ", " +
         list(resultTypes) + "\n}\n";
}

double dot(const Tensor &a, const Tensor &b) {
  double sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i)
    sum += a.values[i] * b.values[i];
  return sum;
}

class Rows : public testing::TestWithParam<Case> {};

TEST_P(Rows, GradientIsThatOfFiniteDifferences) {
  const Case &c = GetParam();
  LaunchRunner runner(module(c));
  ASSERT_EQ(runner.error(), "") << module(c);
  std::mt19937 random(17);
  auto draw = [&](const std::vector<int64_t> &shape, double low, double high, bool integer = false) {
    Tensor t(integer ? Tensor::Type::i32 : Tensor::Type::f64, shape);
    for (double &x : t.values)
      x = integer ? static_cast<double>(std::uniform_int_distribution<int>(low, high)(random))
                  : std::uniform_real_distribution<double>(low, high)(random);
    return t;
  };
  std::vector<Tensor> inputs;
  for (const Operand &o : c.operands)
    inputs.push_back(draw(o.shape, o.low, o.high, o.integer));
  inputs.push_back(draw(c.result, -1, 1));
  const Tensor &dy = inputs.back();
  std::vector<Tensor> base = runner.run(inputs);
  size_t gradient = 1;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    if (c.operands[i].integer)
      continue;
    Tensor direction = draw(c.operands[i].shape, -1, 1);
    constexpr double step = 1e-5;
    auto along = [&](double h) {
      std::vector<Tensor> moved = inputs;
      for (size_t j = 0; j < direction.values.size(); ++j)
        moved[i].values[j] += h * direction.values[j];
      return dot(runner.run(moved)[0], dy);
    };
    double expected = (along(step) - along(-step)) / (2 * step), found = dot(base[gradient++], direction);
    EXPECT_NEAR(found, expected, 1e-7 * std::max(1.0, std::abs(expected))) << "operand " << i;
  }
}

std::string activation(const char *kind) { return std::string("kind = \"") + kind + "\""; }
using Sizes = std::vector<int64_t>;
const Sizes X = {2, 21, 3, 8}, Flat = {2, 21, 24}, Heads = {2, 21, 3};
Operand integers(Sizes shape, int low, int high) {
  return {shape, true, static_cast<double>(low), static_cast<double>(high)};
}

const Case cases[] = {
    {"add", "braid.add", "", {{X}, {X}, {X}}, X},
    {"mul", "braid.mul", "", {{X}, {X}}, X},
    {"mul_heads", "braid.mul", "", {{X}, {Heads}}, X},
    {"scale", "braid.scale", "value = -0.37 : f64", {{X}}, X},
    {"bias", "braid.bias", "", {{X}, {{3, 8}}}, X},
    {"weighted_heads", "braid.weighted", "per_head", {{X}, {{3}}}, X},
    {"weighted_last", "braid.weighted", "", {{X}, {{8}}}, X},
    {"silu", "braid.activation", activation("silu"), {{X}}, X},
    {"sigmoid", "braid.activation", activation("sigmoid"), {{X}}, X},
    {"tanh", "braid.activation", activation("tanh"), {{X}}, X},
    {"relu2", "braid.activation", activation("relu2"), {{X}}, X},
    {"gelu", "braid.activation", activation("gelu"), {{X}}, X},
    {"gelu_tanh", "braid.activation", activation("gelu_tanh"), {{X}}, X},
    {"softplus", "braid.activation", activation("softplus"), {{X}}, X},
    {"elu1", "braid.activation", activation("elu1"), {{X}}, X},
    {"exp", "braid.activation", activation("exp"), {{X}}, X},
    {"reciprocal", "braid.activation", activation("reciprocal"), {{X, false, 0.5, 2}}, X},
    {"log", "braid.activation", activation("log"), {{X, false, 0.5, 2}}, X},
    {"sqrt", "braid.activation", activation("sqrt"), {{X, false, 0.5, 2}}, X},
    {"scalar", "braid.activation", activation("reciprocal"), {{{1}, false, 0.5, 2}}, {1}},
    {"softmax", "braid.softmax", "", {{X}}, X},
    {"log_sigmoid", "braid.log_sigmoid", "divide = 16.0 : f64", {{X}}, X},
    {"log_decay", "braid.log_decay", "", {{Heads}, {{3}}, {{3}}}, Heads},
    {"rms_norm", "braid.rms_norm", "eps = 1.0e-6 : f64", {{Flat}, {{24}}}, Flat},
    {"rms_norm_heads", "braid.rms_norm", "eps = 1.0e-6 : f64", {{X}, {{8}}}, X},
    {"rms_norm_groups", "braid.rms_norm", "eps = 1.0e-6 : f64, groups = 2 : i64", {{Flat}, {{24}}}, Flat},
    {"layer_norm", "braid.layer_norm", "eps = 1.0e-5 : f64", {{Flat}, {{24}}, {{24}}}, Flat},
    {"l2_norm", "braid.l2_norm", "eps = 1.0e-6 : f64", {{X}}, X},
    {"gated_norm", "braid.gated_norm", "eps = 1.0e-5 : f64, activation = \"silu\"", {{X}, {X}, {{8}}}, X},
    {"gated_norm_after",
     "braid.gated_norm",
     "eps = 1.0e-5 : f64, activation = \"silu\", norm_first = false, groups = 2 : i64",
     {{Flat}, {Flat}, {{24}}},
     Flat},
    {"rope_half",
     "braid.rope",
     "theta = 1.0e4 : f64, dim = 8 : i64, layout = \"half\"",
     {{X}, integers({2, 21}, -30, 0)},
     X},
    {"rope_interleaved_part",
     "braid.rope",
     "theta = 1.0e4 : f64, dim = 4 : i64, layout = \"interleaved\"",
     {{X}, integers({2, 21}, -30, 0)},
     X},
    {"repeat_heads", "braid.repeat_heads", "", {{X}}, {2, 21, 6, 8}},
    {"route_weights_all",
     "braid.moe.route_weights",
     "normalize = false",
     {{{2, 21, 8}}, integers({2, 21, 3}, 0, 7)},
     {2, 21, 3}},
    {"route_weights_chosen",
     "braid.moe.route_weights",
     "normalize = true",
     {{{2, 21, 8}}, integers({2, 21, 3}, 0, 7)},
     {2, 21, 3}},
    {"route_weights_sigmoid",
     "braid.moe.route_weights",
     "normalize = false, score = \"sigmoid\"",
     {{{2, 21, 8}}, integers({2, 21, 3}, 0, 7)},
     {2, 21, 3}},
    {"route_weights_sigmoid_shares",
     "braid.moe.route_weights",
     "normalize = true, score = \"sigmoid\"",
     {{{2, 21, 8}}, integers({2, 21, 3}, 0, 7)},
     {2, 21, 3}},
    {"renormalize", "braid.moe.renormalize", "", {{{2, 21, 3}}, integers({2, 21, 3}, -1, 7)}, {2, 21, 3}},
    {"router_loss",
     "braid.moe.router_loss",
     "top_k = 2 : i64, balance = 1.0 : f64, z = 0.5 : f64",
     {{{2, 21, 8}}, integers({8}, 0, 20), integers({2, 21}, INT32_MAX - 1, INT32_MAX)},
     {2, 21}},
    {"router_loss_sigmoid",
     "braid.moe.router_loss",
     "top_k = 2 : i64, balance = 1.0 : f64, z = 0.5 : f64, score = \"sigmoid\"",
     {{{2, 21, 8}}, integers({8}, 0, 20), integers({2, 21}, INT32_MAX - 1, INT32_MAX)},
     {2, 21}},
};

INSTANTIATE_TEST_SUITE_P(Ops, Rows, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(RowsKernels, CotangentsStayFiniteFarOut) {
  // Where exp overflows in one formula and underflows in the other.
  for (const char *kind : {"silu", "sigmoid", "softplus", "gelu", "gelu_tanh", "tanh", "elu1"}) {
    LaunchRunner runner(module({"", "braid.activation", activation(kind), {{{1, 4, 1}}}, {1, 4, 1}}));
    ASSERT_EQ(runner.error(), "");
    auto out = runner.run({Tensor(Tensor::Type::f64, {1, 4, 1}, {-2000, -100, 100, 2000}),
                           Tensor(Tensor::Type::f64, {1, 4, 1}, {1, 1, 1, 1})});
    for (double d : out[1].values)
      EXPECT_TRUE(std::isfinite(d) && std::abs(d) < 1.2) << kind;
  }
}

} // namespace
