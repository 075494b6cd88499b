// Parts of descriptions: what is read of them, and the sentences that wrong ones get.
#include "test/frontend/ModelSpecTexts.h"
#include <cmath>

using namespace braid;
using namespace braid::texts;

TEST(ModelSpec, LatentAttention) {
  const std::string attention = R"({"kind": "attention", "heads": 8, "kv_heads": 2, "head_dim": 8})";
  auto mla = [&](const std::string &more) {
    return edited(attention,
                  R"({"kind": "mla", "heads": 8, "kv_rank": 24, "head_dim": 16, "rope_dim": 10)" + more + "}");
  };
  Parsed parsed = parse(mla(""));
  ASSERT_TRUE(parsed.ok);
  const auto &usual = std::get<MlaSpec>(parsed.spec.mixers.at('N'));
  EXPECT_EQ(usual.qRank, 0);
  EXPECT_EQ(usual.kvRank, 24);
  EXPECT_EQ(usual.valueDim, 16);
  EXPECT_EQ(usual.rope->dim(usual.ropeDim), 10);
  EXPECT_EQ(usual.scale, 0);
  EXPECT_EQ(usual.normEps, 1e-6);
  parsed = parse(mla(R"(, "q_rank": 40, "value_dim": 12, "rope": null, "scale": 0.5, "norm_eps": 1e-5,
    "residual": {"beta": 2})"));
  ASSERT_TRUE(parsed.ok);
  const auto &own = std::get<MlaSpec>(parsed.spec.mixers.at('N'));
  EXPECT_EQ(own.qRank, 40);
  EXPECT_EQ(own.valueDim, 12);
  EXPECT_FALSE(own.rope);
  EXPECT_EQ(own.scale, 0.5);
  EXPECT_EQ(own.normEps, 1e-5);
  EXPECT_EQ(own.residual->beta, 2);
  EXPECT_TRUE(parse(edited(attention, R"({"kind": "mla", "heads": 8, "kv_rank": 24, "head_dim": 16, "rope_dim": 1,
    "rope": null})"))
                  .ok);
  const std::pair<const char *, const char *> cases[] = {
      {R"("heads": 8, "head_dim": 16, "rope_dim": 10)",
       "mixers.N.kv_rank: is missing; valid: an integer from 1 to 4096"},
      {R"("heads": 8, "head_dim": 16, "kv_rank": 24)",
       "mixers.N.rope_dim: is missing; valid: an integer from 1 to 4096"},
      {R"("heads": 8, "head_dim": 16, "kv_rank": 24, "rope_dim": 0)",
       "mixers.N.rope_dim: 0 is out of range; valid: 1 to 4096"},
      {R"("heads": 8, "head_dim": 16, "kv_rank": 24, "rope_dim": 9)",
       "mixers.N.rope_dim: 9 features are not pairs, which rope turns; valid: an even number"},
      {R"("heads": 8, "head_dim": 16, "kv_rank": 24, "rope_dim": 8, "rope": {"fraction": 0.6})",
       "mixers.N.rope.fraction: 0.6 of rope_dim 8 turns 5 features; valid: a fraction that turns an even number, at "
       "least 2"},
      {R"("heads": 64, "head_dim": 16, "kv_rank": 4096, "rope_dim": 8)",
       "mixers.N.heads: 64 times kv_rank 4096 exceeds 131072 features of a token; valid: at most 32"},
      {R"("heads": 64, "head_dim": 16, "kv_rank": 24, "rope_dim": 8, "value_dim": 4000)",
       "mixers.N.heads: 64 times value_dim 4000 exceeds 131072 features of a token; valid: at most 32"},
      {R"("heads": 8, "head_dim": 16, "kv_rank": 24, "rope_dim": 8, "q_rank": -1)",
       "mixers.N.q_rank: -1 is out of range; valid: 0 to 131072"},
      {R"("heads": 8, "head_dim": 16, "kv_rank": 24, "rope_dim": 8, "kv_heads": 2)",
       "mixers.N.kv_heads: unknown key; valid: kind, residual, norm_placement, input_multiplier, heads, q_rank, "
       "kv_rank, head_dim, "
       "rope_dim, value_dim, "
       "rope, scale, norm_eps, output_gate, output_gate_per"},
  };
  for (auto [keys, message] : cases) {
    parsed = parse(edited(attention, std::string(R"({"kind": "mla", )") + keys + "}"));
    ASSERT_EQ(parsed.errors.size(), 1u) << keys;
    EXPECT_EQ(parsed.errors[0], std::string("m.json:6: ") + message);
  }
}

TEST(ModelSpec, BlocksAndInitialValues) {
  std::string text =
      edited(R"("name": "base")", R"("norm_placement": "sandwich", "residual": {"alpha": "deepnorm", "beta": 0.5},
      "embedding_multiplier": 12, "logits_multiplier": 0.25, "init": {"kind": "xavier_uniform", "gain": 2, "base_width": 16})");
  text.replace(
      text.find(R"("kv_heads": 2)"), 13,
      R"("residual": {"beta": 2}, "output_gate": "sigmoid", "output_gate_per": "head", "scale": 0.125, "window": 100)");
  Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.ok);
  const ModelSpec &spec = parsed.spec;
  EXPECT_EQ(spec.normPlacement, NormPlacement::sandwich);
  EXPECT_DOUBLE_EQ(spec.residual.alpha, std::pow(8.0, 0.25));
  EXPECT_EQ(spec.residual.beta, 0.5);
  EXPECT_EQ(spec.embeddingMultiplier, 12);
  EXPECT_EQ(spec.logitsMultiplier, 0.25);
  EXPECT_EQ(spec.init.gain, 2);
  EXPECT_FALSE(spec.init.scaleOutput); // the default of the Xavier kinds
  EXPECT_EQ(spec.widthRatio(), 4);
  const auto &attention = std::get<AttentionSpec>(spec.mixers.at('N'));
  EXPECT_EQ(attention.outputGate, "sigmoid");
  EXPECT_EQ(attention.outputGatePer, "head");
  EXPECT_EQ(attention.scale, 0.125);
  EXPECT_DOUBLE_EQ(attention.residual->alpha, spec.residual.alpha); // of the model
  EXPECT_EQ(attention.residual->beta, 2);
  EXPECT_FALSE(std::get<LsmSpec>(spec.mixers.at('L')).residual);
  EXPECT_EQ(spec.cacheRows(attention.window), 355); // the window and a prefill of 256
  EXPECT_EQ(spec.cacheRows(0), 1024);
  EXPECT_EQ(spec.cacheRows(1000), 1024); // a ring as long as the context is none
}

TEST(ModelSpec, WhatLayersShare) {
  // Ranks are those of decays unless they are said.
  Parsed parsed = parse(edited(R"("kind": "gla", "heads": 4, "head_dim": 16)",
                               R"("kind": "rwkv7", "heads": 4, "head_dim": 16, "gate_rank": 12, "rate_rank": 5)"));
  ASSERT_TRUE(parsed.ok);
  const auto &rwkv = std::get<LsmSpec>(parsed.spec.mixers.at('L'));
  EXPECT_EQ(rwkv.rateRank, 5);
  EXPECT_EQ(rwkv.valueRank, 12);
  EXPECT_EQ(rwkv.outputGateRank, 12);
  EXPECT_TRUE(rwkv.valueMix);
  EXPECT_TRUE(parsed.spec.norm.bias);
  EXPECT_FALSE(parsed.spec.norm.hasBias()); // of RMS norms there is none
  parsed = parse(edited(R"("kind": "dense")", R"("kind": "dense", "token_shift": true)"));
  ASSERT_TRUE(parsed.ok);
  EXPECT_TRUE(std::get<DenseSpec>(parsed.spec.ffns.at('D')).tokenShift);
  EXPECT_FALSE(std::get<DenseSpec>(parsed.spec.ffns.at('D')).outputGate);
  parsed = parse(edited(R"("kind": "dense")", R"("kind": "dense", "output_gate": "sigmoid")"));
  ASSERT_TRUE(parsed.ok);
  EXPECT_EQ(std::get<DenseSpec>(parsed.spec.ffns.at('D')).outputGate, "sigmoid");
  // Bounds that layers learn together.
  auto bounded = [](const char *other) {
    return R"({"vocab_size": 256, "d_model": 64, "num_layers": 2, "layer_pattern": "HG", "mixers": {
"H": {"kind": "hgrn2", "heads": 4, "head_dim": 16, "lower_bounds": "learned"},
"G": {"kind": "hgrn2", )" +
           std::string(other) + "}}}";
  };
  EXPECT_TRUE(parse(bounded(R"("heads": 4, "head_dim": 16, "value_dim": 8, "lower_bounds": "learned")")).ok);
  EXPECT_TRUE(parse(bounded(R"("heads": 2, "head_dim": 16, "lower_bounds": null)")).ok);
  parsed = parse(bounded(R"("heads": 2, "head_dim": 16, "lower_bounds": "learned")"));
  ASSERT_EQ(parsed.errors.size(), 1u);
  EXPECT_EQ(
      parsed.errors[0],
      "m.json:2: mixers.H.lower_bounds: learned of 4 heads of 16 features, not 2 of 16 as in mixers.G, but layers "
      "share one table of bounds; valid: as many");
}

TEST(ModelSpec, LayersOfOnePart) {
  auto model = [](const std::string &keys, const std::string &more = "") {
    return R"({"vocab_size": 256, "d_model": 64, "num_layers": 6, "residual": {"alpha": "deepnorm"}, )" + keys +
           R"(, "mixers": {"L": {"kind": "gla", "heads": 4, "head_dim": 16, "residual": {"beta": 2}}})" + more + "}";
  };
  const std::string dense = R"(, "ffns": {"D": {"kind": "dense", "hidden": 8, "residual": {"alpha": 3}}})";
  for (const std::string &none : {"", R"(, "ffns": {})", R"(, "ffns": {}, "ffn_pattern": "-")"}) {
    Parsed parsed = parse(model(R"("layer_pattern": "L")", none));
    ASSERT_TRUE(parsed.ok) << none;
    EXPECT_EQ(parsed.spec.ffnOf(5), noPart);
    EXPECT_EQ(parsed.spec.findFfn(noPart), nullptr);
    EXPECT_EQ(parsed.spec.residualSums(), 6);
    EXPECT_DOUBLE_EQ(parsed.spec.residual.alpha, std::pow(6.0, 0.25));
  }
  Parsed parsed = parse(model(R"("layer_pattern": "L-L", "ffn_pattern": "-DD")", dense));
  ASSERT_TRUE(parsed.ok);
  EXPECT_EQ(parsed.spec.residualSums(), 8);
  const ResidualScale &gla = *std::get<LsmSpec>(*parsed.spec.findMixer('L')).residual;
  EXPECT_DOUBLE_EQ(gla.alpha, std::pow(8.0, 0.25)); // of the model
  EXPECT_EQ(gla.beta, 2);
  EXPECT_EQ(std::get<DenseSpec>(*parsed.spec.findFfn('D')).residual->alpha, 3);
  parsed = parse(model(R"("layer_pattern": "L", "ffn_pattern": "D")"));
  ASSERT_EQ(parsed.errors.size(), 1u);
  EXPECT_EQ(parsed.errors[0], "m.json:1: ffn_pattern: 'D' is not in ffns; valid: - for none");
}

// 13 tokens, 2 of 8 experts (moe-family 3.1), and the bounds.
TEST(ModelSpec, SlotsOfExperts) {
  MoeSpec moe;
  moe.numExperts = 8;
  moe.topK = 2;
  moe.capacityFactor = 1.0;
  for (auto [rule, slots] : {std::pair("megatron", 4), {"switch", 1}, {"tutel", 4}, {"megablocks", 3}}) {
    moe.capacityRule = rule;
    EXPECT_EQ(expertCapacity(moe, 13), slots) << rule;
  }
  // Slots that half of the experts share: all 26 assignments of 13 tokens may be to four experts.
  moe.capacityRule = "megatron";
  moe.devices = 2;
  EXPECT_EQ(expertCapacity(moe, 13), 13);
  moe.capacityFactor = 1e6;
  EXPECT_EQ(expertCapacity(moe, 13), 26);
  moe.devices = 0;
  EXPECT_EQ(expertCapacity(moe, 13), 13); // a token chooses an expert once
  moe.capacityFactor = 1e-6;
  EXPECT_EQ(expertCapacity(moe, 13), 1);
}

TEST(ModelSpec, Injects) {
  auto model = [](const std::string &pattern, const std::string &inject, const std::string &more = "",
                  const std::string &mixers = "L") {
    return R"({"vocab_size": 64, "d_model": 32, "num_layers": 3, )" + more + "\n\"layer_pattern\": \"" + mixers +
           R"(", "mixers": {"L": {"kind": "gla", "heads": 2, "head_dim": 8}},
"ffns": {"D": {"kind": "dense", "hidden": 8}}, "inject_pattern": ")" +
           pattern + "\",\n\"injects\": {" + inject + "}}";
  };
  const std::string block = R"("A": {"attention": {"heads": 4, "head_dim": 16}})";
  Parsed parsed = parse(model("-A", R"("A": {"attention": {"heads": 4, "kv_heads": 2, "head_dim": 16, "window": 5},
    "attention_adapter_rank": 3, "ffn": {"hidden": 24, "activation": "geglu"}, "ffn_adapter_rank": 2})"));
  ASSERT_TRUE(parsed.ok) << parsed.errors[0];
  EXPECT_EQ(parsed.spec.injectOf(2), noPart);
  EXPECT_EQ(parsed.spec.injectOf(1), 'A');
  EXPECT_EQ(parsed.spec.findInject(noPart), nullptr);
  const InjectSpec &inject = *parsed.spec.findInject('A');
  EXPECT_EQ(inject.attention.window, 5);
  EXPECT_EQ(inject.attentionAdapterRank, 3);
  EXPECT_EQ(inject.ffn->hidden, 24);
  EXPECT_EQ(inject.ffnAdapterRank, 2);
  EXPECT_EQ(parsed.spec.residualSums(), 6); // a block adds to what is read alone
  parsed = parse(model("A", block));
  ASSERT_TRUE(parsed.ok) << parsed.errors[0];
  EXPECT_FALSE(parsed.spec.findInject('A')->ffn);
  parsed = parse(model("-", ""));
  EXPECT_TRUE(parsed.ok);
  const std::pair<std::string, const char *> cases[] = {
      {model("-B", block), "3: inject_pattern: 'B' is not in injects; valid: A, or - for none"},
      {model("-", block), "4: injects.A: no layer uses it: inject_pattern is \"-\""},
      {model("---A", block), "4: injects.A: no layer uses it: num_layers 3 takes \"---\" of inject_pattern \"---A\"; "
                             "valid: num_layers of at least 4, or no such part"},
      {model("A", block, "", "LL-"), "3: inject_pattern: layer 2 has 'A' (\"A\") but no mixer to read what it gives "
                                     "(layer_pattern \"LL-\"); valid: letters where layers have mixers, - for none"},
      {model("A", block, R"("residual": {"from": "normed"},)"),
       "1: residual.from: \"normed\" would let what injects.A gives pass by the mixers, which only read it; valid: "
       "\"input\", or no injects"},
      {model("A", R"("A": {"ffn": {"hidden": 8}})"),
       "4: injects.A.attention: is missing; valid: an object such as {\"heads\": 8, \"head_dim\": 64}"},
      {model("A", R"("A": {"attention": {"heads": 4, "kv_heads": 3, "head_dim": 16}})"),
       "4: injects.A.attention.kv_heads: 3 does not divide heads 4; valid: 1, 2, 4"},
      {model("A", R"("A": {"attention": {"heads": 4, "head_dim": 16}, "ffn_adapter_rank": 2})"),
       "4: injects.A.ffn_adapter_rank: has no feed-forward to be of; valid: together with ffn, or 0"},
      {model("A", R"("A": {"attention": {"heads": 4, "head_dim": 15}})"),
       "4: injects.A.attention.head_dim: 15 features are not pairs, which rope turns; valid: an even number"},
      {model("A", R"("A": {"attention": {"heads": 4, "head_dim": 16}, "adapter_rank": 2})"),
       "4: injects.A.adapter_rank: unknown key; did you mean ffn_adapter_rank?"},
      {model("", block), "3: inject_pattern: is empty; valid: letters of injects: A, or - for none"},
  };
  for (const auto &[text, message] : cases) {
    parsed = parse(text);
    ASSERT_EQ(parsed.errors.size(), 1u) << text;
    EXPECT_EQ(parsed.errors[0], std::string("m.json:") + message);
  }
}

TEST(ModelSpec, MixersSideBySide) {
  auto model = [](const std::string &pattern, const std::string &more = "", const std::string &first = "",
                  const std::string &second = "") {
    return R"({"vocab_size": 64, "d_model": 32, "num_layers": 3, )" + more + R"("layer_pattern": ")" + pattern +
           "\",\n\"mixers\": {\"N\": {\"kind\": \"attention\", \"heads\": 2, \"head_dim\": 8" + first +
           "},\n\"M\": {\"kind\": \"mamba2\", \"heads\": 2, \"head_dim\": 8" + second +
           "}}, \"ffns\": {\"D\": {\"kind\": \"dense\", \"hidden\": 8}}}";
  };
  Parsed parsed = parse(model("(NM)-M", "", R"(, "residual": {"beta": 0.5}, "input_multiplier": 2)"));
  ASSERT_TRUE(parsed.ok) << parsed.errors[0];
  EXPECT_EQ(parsed.spec.mixersOf(0), "NM");
  EXPECT_EQ(parsed.spec.mixersOf(1), "-");
  EXPECT_EQ(parsed.spec.mixersOf(5), "M");
  EXPECT_EQ(parsed.spec.residualSums(), 5);
  EXPECT_EQ(std::get<AttentionSpec>(parsed.spec.mixers.at('N')).inputMultiplier, 2);
  parsed = parse(model("(NM)", "", "", R"(, "min_step": 0.1, "max_step": 0.2, "norm_first": true,
    "projection_bias": true, "output_bias": true, "projection_multipliers": {"g": 0.5, "dt": 3})"));
  ASSERT_TRUE(parsed.ok) << parsed.errors[0];
  const auto &mamba = std::get<LsmSpec>(parsed.spec.mixers.at('M'));
  EXPECT_TRUE(mamba.normFirst && mamba.projectionBias && mamba.outputBias);
  EXPECT_EQ(mamba.projectionMultipliers.g * mamba.projectionMultipliers.dt * mamba.projectionMultipliers.q, 1.5);
  EXPECT_EQ(mamba.minStep + mamba.maxStep, 0.1 + 0.2);

  const std::string at = "m.json:1: layer_pattern: ", alpha = R"(, "residual": {"alpha": 2})",
                    beta = R"(, "residual": {"beta": 2})";
  const std::pair<std::string, std::string> cases[] = {
      {model("(NM"), at + "\"(NM\" has '(' without ')' behind it"},
      {model("NM)"), at + "\"NM)\" has ')' without '(' before it"},
      {model("((NM))"), at + "\"((NM))\" has '(' within parentheses; valid: letters there"},
      {model("(N-M)"),
       at + "\"(N-M)\" has '-' within parentheses, where mixers stand side by side; valid: letters there"},
      {model("M(N)"),
       at + "\"M(N)\" has 'N' alone within parentheses; valid: two or more mixers that stand side by side"},
      {model("MN()"),
       at + "\"MN()\" has nothing within parentheses; valid: two or more mixers that stand side by side"},
      {model("(NMN)"), at + "\"(NMN)\" has 'N' 2 times in one layer, \"(NMN)\"; valid: each letter once (equal mixers "
                            "have letters of their own)"},
      {model("(NX)"), at + "'X' is not in mixers; valid: M, N, or - for none"},
      {model("NNN(NM)"), "m.json:3: mixers.M: no layer uses it: num_layers 3 takes \"NNN\" of layer_pattern "
                         "\"NNN(NM)\"; valid: num_layers of at least 4, or no such part"},
      {model("(NM)", "", alpha), "m.json:3: mixers.M.residual.alpha: 1 is not 2 as of mixers.N, beside which it stands "
                                 "(\"(NM)\"): what passes by them is one; valid: equal numbers"},
      {model("(NM)", "", "", R"(, "residual": {"alpha": "deepnorm"})"),
       "m.json:3: mixers.M.residual.alpha: \"deepnorm\" of one of \"(NM)\" alone: what passes by them is one; valid: "
       "equal alphas"},
      {model("(NM)", R"("norm_placement": "sandwich", )", "", beta),
       "m.json:3: mixers.M.residual.beta: 2 is not 1 as of mixers.N, beside which it stands (\"(NM)\"): a norm is of "
       "their sum with norm_placement \"sandwich\"; valid: equal numbers"},
      {model("(NM)", "", R"(, "norm_placement": "output")"),
       "m.json:3: mixers.M.norm_placement: \"pre\" is not \"output\" as of mixers.N, beside which it stands (\"(NM)\") "
       "with the same norm; valid: equal placements"},
      {model("NM", R"("norm_placement": "post", )", R"(, "norm_placement": "output")"),
       "m.json:2: mixers.N.norm_placement: \"output\" in a model whose norm_placement \"post\" is of what passes by "
       "all "
       "parts, and leaves no norm behind the last; valid: no norm_placement here, or another of the model"},
      {model("NM", R"("residual": {"from": "normed"}, )", R"(, "norm_placement": "output")"),
       "m.json:2: mixers.N.norm_placement: \"output\" has no norm before the part, which residual.from \"normed\" "
       "would "
       "let pass by; valid: \"pre\", \"sandwich\", or residual.from \"input\""},
      {model("(NM)", "", R"(, "input_multiplier": 0)"),
       "m.json:2: mixers.N.input_multiplier: 0 is out of range; valid: above 0 to 1e+06"},
      {model("(NM)", "", R"(, "projection_bias": true)"),
       "m.json:2: mixers.N.projection_bias: unknown key; valid: kind, residual, norm_placement, input_multiplier, "
       "heads, kv_heads, "
       "head_dim, rope, qkv_bias, output_bias, sinks, softcap, qk_norm, qk_norm_over, window, scale, output_gate, "
       "output_gate_per"},
      {model("(NM)", "", "", R"(, "output_norm": false, "norm_first": true)"),
       "m.json:3: mixers.M.norm_first: changes nothing without a norm and a gate; valid: together with output_norm and "
       "output_gate"},
      {model("(NM)", "", "", R"(, "output_gate": null, "projection_multipliers": {"g": 2})"),
       "m.json:3: mixers.M.projection_multipliers.g: has no gate to be of; valid: together with output_gate, one of "
       "silu, sigmoid, tanh, relu, gelu, gelu_tanh"},
      {model("(NM)", "", "", R"(, "min_step": 0.5, "max_step": 0.5)"),
       "m.json:3: mixers.M.max_step: 0.5 is not above min_step 0.5; valid: a number above it"},
      {edited(R"("kind": "dense")", R"("kind": "dense", "activation": "relu2", "gate_multiplier": 2)"),
       "m.json:10: ffns.D.gate_multiplier: has no gate to be of with activation \"relu2\"; valid: with swiglu, geglu, "
       "geglu_tanh, reglu, swiglu_clamp"},
  };
  for (const auto &[text, message] : cases) {
    Parsed wrong = parse(text);
    ASSERT_EQ(wrong.errors.size(), 1U) << text;
    EXPECT_EQ(wrong.errors[0], message);
  }
}
