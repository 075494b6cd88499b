//===- ConvKernelsTest.cpp - the short convolution and its gradient -----------------------------------------------===//
#include "test/kernels/Compare.h"

#include <climits>

using namespace braid::test;

namespace {

using Type = Tensor::Type;

struct Case {
  std::string name;
  int64_t B = 2, T = 50, D = 16, K = 4;
  std::vector<int64_t> edges = {}; ///< where documents begin; empty: before the row
  int64_t past = 9; ///< tokens of the first document before the row
  int64_t valid = -1; ///< tokens that are not padding
  Type type = Type::f32;
};
void PrintTo(const Case &c, std::ostream *os) { *os << c.name; }

class ConvKernels : public testing::TestWithParam<Case> {};

TEST_P(ConvKernels, MatchesTheSum) {
  const Case &c = GetParam();
  int64_t halo = c.K - 1, L = c.valid >= 0 ? c.valid : c.T;
  Draw draw(c.type);
  Tensor x = draw.tensor({c.B, c.T, c.D}), weight = draw.tensor({c.D, c.K}), tail = draw.tensor({c.B, halo, c.D});
  Tensor dy = draw.tensor({c.B, c.T, c.D}), dNewTail = draw.tensor({c.B, halo, c.D}), documents(Type::i32, {c.B, c.T});
  for (int64_t b = 0; b < c.B; ++b) {
    int64_t begin = -c.past;
    for (int64_t t = 0; t < c.T; ++t) {
      for (int64_t edge : c.edges)
        if (t == edge + (edge ? b : 0))
          begin = t;
      documents.values[b * c.T + t] = t >= L ? INT32_MAX : begin;
    }
  }

  // Inputs by token, -halo .. T - 1.
  Tensor y = x, newTail = tail, dx = x, dWeight = weight, dTail = tail;
  for (Tensor *out : {&y, &newTail, &dx, &dWeight, &dTail})
    out->values.assign(out->values.size(), 0);
  for (int64_t b = 0; b < c.B; ++b)
    for (int64_t d = 0; d < c.D; ++d) {
      auto input = [&](Tensor &rows, Tensor &before, int64_t t) -> double & {
        return t >= 0 ? rows.values[(b * c.T + t) * c.D + d] : before.values[(b * halo + halo + t) * c.D + d];
      };
      for (int64_t t = 0; t < L; ++t)
        for (int64_t j = 0; j < c.K; ++j) {
          int64_t source = t - halo + j, at = (b * c.T + t) * c.D + d;
          if (source < documents.values[b * c.T + t])
            continue;
          y.values[at] += weight.values[d * c.K + j] * input(x, tail, source);
          dWeight.values[d * c.K + j] += dy.values[at] * input(x, tail, source);
          input(dx, dTail, source) += dy.values[at] * weight.values[d * c.K + j];
        }
      for (int64_t i = 0; i < halo; ++i) {
        newTail.values[(b * halo + i) * c.D + d] = input(x, tail, L - halo + i);
        input(dx, dTail, L - halo + i) += dNewTail.values[(b * halo + i) * c.D + d];
      }
    }

  std::string row = x.typeText(), w = weight.typeText(), t = tail.typeText(), i = documents.typeText();
  LaunchRunner runner("func.func @main(%x: " + row + ", %w: " + w + ", %documents: " + i + ", %tail: " + t +
                      ", %dy: " + row + ", %dnew: " + t + ") -> (" + row + ", " + t + ", " + row + ", " + w + ", " + t +
                      ") {\n  %y, %new = braid.short_conv %x, %w, %documents, %tail : (" + row + ", " + w + ", " + i +
                      ", " + t + ") -> (" + row + ", " + t +
                      ")\n  %dx, %dw, %dtail = braid.short_conv_grad %x, %w, %documents, %tail, %dy, %dnew : (" + row +
                      ", " + w + ", " + i + ", " + t + ", " + row + ", " + t + ") -> (" + row + ", " + w + ", " + t +
                      ")\n  return %y, %new, %dx, %dw, %dtail : " + row + ", " + t + ", " + row + ", " + w + ", " + t +
                      "\n}\n");
  ASSERT_EQ(runner.error(), "");
  std::vector<Tensor> out = runner.run({x, weight, documents, tail, dy, dNewTail});
  double limit = c.type == Type::f64 ? 1e-13 : 1e-6;
  expectClose("y", out[0], y.values, limit);
  expectClose("new_tail", out[1], newTail.values, 0);
  expectClose("dx", out[2], dx.values, limit);
  expectClose("dweight", out[3], dWeight.values, limit);
  expectClose("dtail", out[4], dTail.values, limit);
}

INSTANTIATE_TEST_SUITE_P(Cases, ConvKernels,
                         testing::Values(Case{.name = "plain"}, Case{.name = "several_blocks", .T = 100, .D = 80},
                                         Case{.name = "shorter_than_the_taps", .T = 2},
                                         Case{.name = "one_token", .T = 1},
                                         Case{.name = "one_token_padding", .T = 1, .valid = 0},
                                         Case{.name = "documents", .T = 70, .edges = {0, 5, 6, 33}},
                                         Case{.name = "document_begins_in_the_tail", .past = 2},
                                         Case{.name = "padding", .T = 70, .edges = {20}, .valid = 40},
                                         Case{.name = "nearly_all_padding", .valid = 1},
                                         Case{.name = "two_taps", .D = 6, .K = 2},
                                         Case{.name = "f64", .D = 10, .edges = {3}, .type = Type::f64}),
                         [](const auto &info) { return info.param.name; });

} // namespace
