//===- AttentionKernelsTest.cpp - softmax attention, its gradient, and the cache ----------------------------------===//
// Against softmax over the visible keys in float64, and its adjoint: documents, grouped heads, window, prefix, cache.
#include "test/kernels/Compare.h"

#include <climits>

using namespace braid::test;

namespace {

using Type = Tensor::Type;

struct Case {
  std::string name;
  int64_t B = 1, T = 50, H = 2, G = 2, D = 16, window = 0, prefix = 0;
  std::vector<int64_t> edges = {}; ///< where documents begin; empty: before the row
  int64_t valid = -1; ///< tokens that are not padding
  int64_t cache = 0; ///< rows of the cache; 0: no cache
  int64_t past = 0; ///< tokens of the document before the row
  Type type = Type::f32;
};
void PrintTo(const Case &c, std::ostream *os) { *os << c.name; }

struct Inputs {
  Tensor q, k, v, documents, dO;
  double scale;
};

Inputs inputsOf(const Case &c) {
  Draw draw(c.type);
  int64_t keys = c.cache ? c.cache : c.prefix + c.T;
  Inputs in{draw.tensor({c.B, c.T, c.H, c.D}), draw.tensor({c.B, keys, c.G, c.D}), draw.tensor({c.B, keys, c.G, c.D}),
            Tensor(Type::i32, {c.B, c.T}),     draw.tensor({c.B, c.T, c.H, c.D}),  rounded(1 / std::sqrt(c.D), c.type)};
  for (int64_t b = 0; b < c.B; ++b) {
    int64_t begin = -(c.cache || c.prefix ? c.past + (c.cache ? b : 0) : 3);
    for (int64_t t = 0; t < c.T; ++t) {
      for (int64_t edge : c.edges)
        if (t == edge + (edge ? b : 0))
          begin = t;
      in.documents.values[b * c.T + t] = c.valid >= 0 && t >= c.valid ? INT32_MAX : begin;
    }
  }
  return in;
}

struct Results {
  Numbers o, lse, dq, dk, dv;
};

Results reference(const Case &c, const Inputs &in) {
  int64_t S = in.k.shape[1];
  Results out{Numbers(in.q.values.size()), Numbers(c.B * c.H * c.T), Numbers(in.q.values.size()),
              Numbers(in.k.values.size()), Numbers(in.k.values.size())};
  for (int64_t b = 0; b < c.B; ++b)
    for (int64_t h = 0; h < c.H; ++h)
      for (int64_t t = 0; t < c.T; ++t) {
        int64_t document = static_cast<int64_t>(in.documents.values[b * c.T + t]);
        if (document == INT32_MAX)
          continue;
        int64_t last = c.cache ? t - document : t + c.prefix,
                first = c.cache ? 0 : std::max<int64_t>(0, document + c.prefix);
        if (c.window)
          first = std::max(first, last - c.window + 1);
        int64_t row = ((b * c.T + t) * c.H + h) * c.D;
        auto key = [&](int64_t s) { return ((b * S + s) * c.G + h * c.G / c.H) * c.D; };
        Numbers p(S, 0);
        double total = 0, highest = -1e300;
        for (int64_t s = first; s <= last; ++s) {
          for (int64_t d = 0; d < c.D; ++d)
            p[s] += in.scale * in.q.values[row + d] * in.k.values[key(s) + d];
          highest = std::max(highest, p[s]);
        }
        for (int64_t s = first; s <= last; ++s)
          total += p[s] = std::exp(p[s] - highest);
        double delta = 0;
        for (int64_t s = first; s <= last; ++s)
          for (int64_t d = 0; d < c.D; ++d)
            out.o[row + d] += p[s] / total * in.v.values[key(s) + d];
        out.lse[(b * c.H + h) * c.T + t] = highest + std::log(total);
        for (int64_t d = 0; d < c.D; ++d)
          delta += out.o[row + d] * in.dO.values[row + d];
        for (int64_t s = first; s <= last; ++s) {
          double dp = 0;
          for (int64_t d = 0; d < c.D; ++d)
            dp += in.dO.values[row + d] * in.v.values[key(s) + d];
          double ds = p[s] / total * (dp - delta) * in.scale;
          for (int64_t d = 0; d < c.D; ++d) {
            out.dv[key(s) + d] += p[s] / total * in.dO.values[row + d];
            out.dq[row + d] += ds * in.k.values[key(s) + d];
            out.dk[key(s) + d] += ds * in.q.values[row + d];
          }
        }
      }
  return out;
}

class AttentionKernels : public testing::TestWithParam<Case> {};

TEST_P(AttentionKernels, MatchesSoftmax) {
  const Case &c = GetParam();
  Inputs in = inputsOf(c);
  std::string q = in.q.typeText(), k = in.k.typeText(), documents = in.documents.typeText();
  std::string lse = Tensor(c.type, {c.B, c.H, c.T}).typeText();
  char attributes[160];
  std::snprintf(attributes, sizeof attributes, "scale = %.17g : f64, window = %ld : i64, prefix = %ld : i64", in.scale,
                long(c.window), long(c.prefix));
  std::string types = q + ", " + k + ", " + k + ", " + documents;
  std::string text = "func.func @main(%q: " + q + ", %k: " + k + ", %v: " + k + ", %documents: " + documents +
                     ", %do: " + q + ") -> (" + q + ", " + lse;
  if (!c.cache)
    text += ", " + q + ", " + k + ", " + k;
  text += ") {\n  %o, %lse = braid.attn.causal %q, %k, %v, %documents {" + std::string(attributes) +
          (c.cache ? ", cache" : "") + "} : (" + types + ") -> (" + q + ", " + lse + ")\n";
  if (c.cache)
    text += "  return %o, %lse : " + q + ", " + lse + "\n}\n";
  else
    text += "  %dq, %dk, %dv = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %do {" +
            std::string(attributes) + "} : (" + types + ", " + q + ", " + lse + ", " + q + ") -> (" + q + ", " + k +
            ", " + k + ")\n  return %o, %lse, %dq, %dk, %dv : " + q + ", " + lse + ", " + q + ", " + k + ", " + k +
            "\n}\n";
  LaunchRunner runner(text);
  ASSERT_EQ(runner.error(), "");
  std::vector<Tensor> out = runner.run({in.q, in.k, in.v, in.documents, in.dO});
  Results wanted = reference(c, in);
  double forward = c.type == Type::f64 ? 1e-12 : 2e-6, gradient = c.type == Type::f64 ? 1e-12 : 5e-6;
  expectClose("o", out[0], wanted.o, forward);
  expectClose("lse", out[1], wanted.lse, forward);
  if (c.cache)
    return;
  expectClose("dq", out[2], wanted.dq, gradient);
  expectClose("dk", out[3], wanted.dk, gradient);
  expectClose("dv", out[4], wanted.dv, gradient);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionKernels,
    testing::Values(Case{.name = "plain", .B = 2, .T = 64}, Case{.name = "odd_length", .T = 77, .D = 24},
                    Case{.name = "grouped", .B = 2, .T = 50, .H = 6, .G = 2},
                    Case{.name = "one_key_head", .T = 33, .H = 4, .G = 1, .D = 32},
                    Case{.name = "documents", .B = 2, .T = 100, .edges = {0, 7, 8, 70}},
                    Case{.name = "documents_and_padding", .B = 2, .T = 100, .edges = {20, 40}, .valid = 61},
                    Case{.name = "all_padding", .T = 40, .edges = {0}, .valid = 0},
                    Case{.name = "window", .T = 130, .window = 20},
                    Case{.name = "window_and_documents", .B = 2, .T = 90, .window = 9, .edges = {0, 30}},
                    Case{.name = "prefix", .T = 40, .prefix = 37, .past = 37},
                    Case{.name = "prefix_begins_late", .T = 70, .H = 4, .prefix = 64, .edges = {30}, .past = 20},
                    Case{.name = "prefix_and_window", .T = 64, .window = 40, .prefix = 64, .past = 64},
                    Case{.name = "f64",
                         .B = 2,
                         .T = 45,
                         .H = 4,
                         .G = 2,
                         .window = 30,
                         .edges = {0, 11},
                         .valid = 40,
                         .type = Type::f64},
                    Case{.name = "large_head", .T = 40, .H = 1, .G = 1, .D = 128},
                    Case{.name = "several_tiles", .T = 200, .D = 24, .edges = {70, 150}, .valid = 190},
                    Case{.name = "prefix_of_several_tiles", .T = 90, .H = 4, .prefix = 150, .past = 150},
                    Case{.name = "small_tiles", .T = 70, .H = 1, .G = 1, .D = 144},
                    Case{.name = "cache_prefill", .B = 2, .T = 40, .edges = {0}, .cache = 64},
                    Case{.name = "cache_continued", .B = 2, .T = 24, .H = 4, .cache = 128, .past = 70},
                    Case{.name = "cache_prefill_padding", .T = 40, .edges = {0}, .valid = 17, .cache = 40},
                    Case{.name = "decode", .B = 3, .T = 1, .H = 6, .G = 2, .cache = 200, .past = 150},
                    Case{.name = "decode_first", .T = 1, .edges = {0}, .cache = 64},
                    Case{.name = "decode_window", .B = 2, .T = 1, .H = 4, .window = 33, .cache = 100, .past = 90}),
    [](const auto &info) { return info.param.name; });

TEST(AttentionAppend, WritesTheRowsOfItsDocument) {
  Draw draw(Type::f32);
  Tensor cache = draw.tensor({2, 10, 2, 8}), x = draw.tensor({2, 4, 2, 8}),
         documents(Type::i32, {2, 4}, {-3, -3, -3, INT32_MAX, 0, 0, 0, 0});
  LaunchRunner runner(
      "func.func @main(%cache: " + cache.typeText() + ", %x: " + x.typeText() + ", %documents: tensor<2x4xi32>) -> " +
      cache.typeText() + " {\n  %r = braid.attn.append %cache, %x, %documents : (" + cache.typeText() + ", " +
      x.typeText() + ", tensor<2x4xi32>) -> " + cache.typeText() + "\n  return %r : " + cache.typeText() + "\n}\n");
  ASSERT_EQ(runner.error(), "");
  Numbers wanted = cache.values;
  for (int64_t i = 0; i < 3 * 16; ++i)
    wanted[3 * 16 + i] = x.values[i];
  for (int64_t i = 0; i < 4 * 16; ++i)
    wanted[10 * 16 + i] = x.values[4 * 16 + i];
  EXPECT_EQ(runner.run({cache, x, documents})[0].values, wanted);
}

} // namespace
