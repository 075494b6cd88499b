//===- LsmKernelsTest.cpp - every transition class against the recurrence -----------------------------------------===//
// Forward and all cotangents of lsm.scan through its kernels, against LsmReference.h on the same rounded inputs. The
// limits are those of lsm-family.md 8.1: relative L2 per tensor, and three times that for the largest element.
#include "test/kernels/Compare.h"
#include "test/kernels/LsmReference.h"

using namespace braid::test;

namespace {

using Type = Tensor::Type;

/// One row of the table of cases.
struct Case {
  std::string name, kind;
  int64_t B = 1, T = 40, H = 2, K = 16, V = 16, chunk = 16;
  double decay = -0.3; ///< mean log decay; a tenth of the tokens has `extreme`
  double extreme = 0;
  bool late = false; ///< every fourth channel decays by `extreme` from the middle of the row on, nothing else does
  std::vector<int64_t> edges = {}; ///< where documents begin; empty: one that began before the row
  int64_t valid = -1; ///< tokens that are not padding
  bool equalKeys = false; ///< the same unit key everywhere, beta = 1
  Type type = Type::f32;
};
void PrintTo(const Case &c, std::ostream *os) { *os << c.name; }

Scan scanOf(const Case &c) {
  Scan x{c.kind, c.B, c.T, c.H, c.K, c.V, rounded(1 / std::sqrt(c.K), c.type), {}, {}, {}, {}, {}, {}, {}, {}, {}};
  Draw random(c.type);
  auto fill = [&](Numbers &out, int64_t count, auto draw) {
    for (int64_t i = 0; i < count; ++i)
      out.push_back(rounded(draw(), c.type));
  };
  auto draw = [&] { return random.normal(); };
  int64_t tokens = c.B * c.T * c.H;
  fill(x.q, tokens * c.K, draw), fill(x.k, tokens * c.K, draw), fill(x.v, tokens * c.V, draw);
  if (x.delta()) // unit keys
    for (int64_t i = 0; i < tokens; ++i) {
      double norm = 0;
      for (int64_t d = 0; d < c.K; ++d)
        norm += x.k[i * c.K + d] * x.k[i * c.K + d];
      for (int64_t d = 0; d < c.K; ++d)
        x.k[i * c.K + d] = c.equalKeys ? (d == 0) : rounded(x.k[i * c.K + d] / std::sqrt(norm), c.type);
    }
  auto decay = [&] { return c.extreme != 0 && random.uniform() < 0.1 ? c.extreme : 2 * c.decay * random.uniform(); };
  if (x.decays())
    fill(x.g, c.kind == "S0" ? c.H : tokens * x.decayWidth(), decay);
  if (c.late)
    for (int64_t i = 0, width = x.decayWidth(); i < tokens * width; ++i) {
      int64_t t = i / (c.H * width) % c.T;
      x.g[i] = rounded(2 * t >= c.T && i % width % 4 == 0 ? c.extreme : 0.1 * c.decay * random.uniform(), c.type);
    }
  if (x.delta())
    fill(x.beta, tokens, [&] { return c.equalKeys ? 1.0 : random.uniform(); });
  fill(x.initial, c.B * c.H * c.K * c.V, draw), fill(x.dO, tokens * c.V, draw);
  fill(x.dFinal, c.B * c.H * c.K * c.V, draw);
  for (int64_t b = 0; b < c.B; ++b) {
    int32_t begin = -5; // continues the initial state
    for (int64_t t = 0; t < c.T; ++t) {
      // Rows differ: the edges of row b are shifted by b.
      for (int64_t edge : c.edges)
        if (t == edge + (edge ? b : 0))
          begin = static_cast<int32_t>(t);
      x.documents.push_back(c.valid >= 0 && t >= c.valid ? INT32_MAX : begin);
    }
  }
  return x;
}

/// A module whose @main computes o, final and every cotangent.
std::string moduleOf(const Scan &x, const Case &c, std::vector<Tensor> &inputs) {
  auto tensor = [&](std::vector<int64_t> shape, const Numbers &values) {
    return Tensor(c.type, std::move(shape), values);
  };
  std::vector<std::pair<std::string, Tensor>> args{{"q", tensor({c.B, c.T, c.H, c.K}, x.q)},
                                                   {"k", tensor({c.B, c.T, c.H, c.K}, x.k)},
                                                   {"v", tensor({c.B, c.T, c.H, c.V}, x.v)}};
  if (x.decays())
    args.push_back({"g", tensor(c.kind == "S0"  ? std::vector<int64_t>{c.H}
                                : c.kind == "V" ? std::vector<int64_t>{c.B, c.T, c.H, c.K}
                                                : std::vector<int64_t>{c.B, c.T, c.H},
                                x.g)});
  if (x.delta())
    args.push_back({"beta", tensor({c.B, c.T, c.H}, x.beta)});
  args.push_back({"initial", tensor({c.B, c.H, c.K, c.V}, x.initial)});
  args.push_back({"documents", Tensor(Type::i32, {c.B, c.T}, Numbers(x.documents.begin(), x.documents.end()))});
  size_t forward = args.size();
  args.push_back({"do", tensor({c.B, c.T, c.H, c.V}, x.dO)});
  args.push_back({"dfinal", tensor({c.B, c.H, c.K, c.V}, x.dFinal)});

  std::string parameters, names, types, forwardNames, forwardTypes;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string comma = i ? ", " : "";
    parameters += comma + "%" + args[i].first + ": " + args[i].second.typeText();
    names += comma + "%" + args[i].first;
    types += comma + args[i].second.typeText();
    if (i + 1 == forward)
      forwardNames = names, forwardTypes = types;
    inputs.push_back(args[i].second);
  }
  std::string o = args[2].second.typeText(), state = args[forward - 2].second.typeText(), q = args[0].second.typeText();
  std::vector<std::string> gates;
  if (x.decays() && c.kind != "S0")
    gates.push_back(args[3].second.typeText());
  if (x.delta())
    gates.push_back(args[x.decays() ? 4 : 3].second.typeText());
  std::string gradTypes = q + ", " + q + ", " + o;
  for (auto &gate : gates)
    gradTypes += ", " + gate;
  gradTypes += ", " + state;
  const char *kinds[] = {"I", "S0", "S", "V", "H", "GH"};
  int64_t kind = 0;
  while (c.kind != kinds[kind])
    ++kind;
  char attributes[256], segments[64];
  std::snprintf(segments, sizeof segments, "1, 1, 1, %d, %d, 0, 0, 0, 1, 1", x.decays(), x.delta());
  std::snprintf(attributes, sizeof attributes, "chunk_size = %ld : i64, class_id = %ld : i32, scale = %.17g : f64",
                long(c.chunk), long(kind), x.scale);
  size_t results = 4 + gates.size();
  std::string text = "module attributes {braid.max_documents = " + std::to_string(c.edges.size() + 2) + " : i64} {\n";
  text += "func.func @main(" + parameters + ") -> (" + o + ", " + state + ", " + gradTypes + ") {\n";
  text += "  %o, %final = \"braid.lsm.scan\"(" + forwardNames + ") <{" + attributes +
          ", operandSegmentSizes = array<i32: " + segments + ">}> : (" + forwardTypes + ") -> (" + o + ", " + state +
          ")\n";
  text += "  %d:" + std::to_string(results) + " = \"braid.lsm.scan_grad\"(" + names + ") <{" + attributes +
          ", operandSegmentSizes = array<i32: " + segments + ", 1, 1>}> : (" + types + ") -> (" + gradTypes + ")\n";
  text += "  return %o, %final";
  for (size_t i = 0; i < results; ++i)
    text += ", %d#" + std::to_string(i);
  return text + " : " + o + ", " + state + ", " + gradTypes + "\n}\n}\n";
}

double norm(const Numbers &a, const Numbers &b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i] * a[i] * b[i];
  return std::sqrt(sum);
}

class LsmKernels : public testing::TestWithParam<Case> {};

TEST_P(LsmKernels, MatchesTheRecurrence) {
  const Case &c = GetParam();
  Scan x = scanOf(c);
  std::vector<Tensor> inputs;
  LaunchRunner runner(moduleOf(x, c, inputs));
  ASSERT_EQ(runner.error(), "");
  std::vector<Tensor> out = runner.run(inputs);
  ScanResults wanted = referenceScan(x);
  bool plainScalar = c.kind == "I" || c.kind == "S0" || c.kind == "S";
  double forward = c.type == Type::f64 ? 1e-10 : 2e-6, gradient = c.type == Type::f64 ? 1e-10
                                                                  : plainScalar       ? 5e-6
                                                                                      : 1e-5;
  expectClose("o", out[0], wanted.o, forward);
  expectClose("final", out[1], wanted.final, forward);
  expectClose("dq", out[2], wanted.dq, gradient);
  expectClose("dk", out[3], wanted.dk, gradient);
  expectClose("dv", out[4], wanted.dv, gradient);
  size_t next = 5;
  if (x.decays() && c.kind != "S0") // small next to q * dq where the decay is strong
    expectClose("dlog_decay", out[next++], wanted.dg, gradient, 1e-2 * norm(x.q, wanted.dq));
  if (x.delta())
    expectClose("dbeta", out[next++], wanted.dbeta, gradient);
  expectClose("dinitial", out[next], wanted.dInitial, gradient);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (std::string kind : {"I", "S0", "S", "V", "H", "GH"}) {
    auto add = [&](Case c) {
      c.name = kind + "_" + c.name, c.kind = kind;
      all.push_back(c);
    };
    add({.name = "whole_chunks", .kind = "", .B = 2, .T = 64, .chunk = 32});
    add({.name = "odd_length", .kind = "", .B = 2, .T = 83, .K = 24, .V = 32, .chunk = 32});
    add({.name = "shorter_than_a_chunk", .kind = "", .T = 5, .chunk = 64});
    add({.name = "documents", .kind = "", .B = 2, .T = 100, .chunk = 32, .edges = {0, 7, 8, 50, 96}});
    add({.name = "documents_and_padding", .kind = "", .B = 2, .T = 100, .chunk = 16, .edges = {20, 55}, .valid = 61});
    add({.name = "f64", .kind = "", .T = 37, .H = 1, .chunk = 16, .edges = {0, 20}, .type = Type::f64});
    add({.name = "long_chunk", .kind = "", .T = 128, .H = 1, .K = 64, .V = 64, .chunk = 64});
    add({.name = "wide", .kind = "", .T = 40, .H = 1, .K = 128, .V = 256, .chunk = 32});
    add({.name = "one_token", .kind = "", .B = 3, .T = 1, .V = 128});
    add({.name = "one_token_begins", .kind = "", .T = 1, .edges = {0}});
    add({.name = "one_token_padding", .kind = "", .T = 1, .valid = 0});
    if (kind != "I" && kind != "H") {
      add({.name = "extreme_decay", .kind = "", .T = 70, .chunk = 64, .extreme = -500});
      add({.name = "strong_decay", .kind = "", .T = 70, .chunk = 64, .decay = -250});
      add({.name = "weak_decay", .kind = "", .T = 70, .chunk = 64, .decay = -1e-4});
    }
    // Chunks of 32: the first is mild, the second has mild rows before strong ones, the third is strong.
    if (kind == "V")
      add({.name = "mild_then_strong_decay", .kind = "", .T = 96, .chunk = 32, .extreme = -3, .late = true});
    if (kind == "H" || kind == "GH") {
      add({.name = "equal_keys", .kind = "", .T = 128, .chunk = 64, .decay = -1e-3, .equalKeys = true});
      // Transitions in blocks: two of 96 rows.
      add({.name = "wider_keys", .kind = "", .T = 40, .H = 1, .K = 192, .V = 8, .chunk = 16, .edges = {0, 23}});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Classes, LsmKernels, testing::ValuesIn(cases()),
                         [](const auto &info) { return info.param.name; });

} // namespace
