// One wrong description per rule, with the sentence it must get; and texts that are not descriptions at all.
#include "test/frontend/ModelSpecTexts.h"
#include <random>

using namespace braid;
using namespace braid::texts;

TEST(ModelSpec, ReadsKeysAndDefaults) {
  Parsed parsed = parse(base);
  ASSERT_TRUE(parsed.ok);
  const ModelSpec &spec = parsed.spec;
  EXPECT_EQ(spec.name, "base");
  EXPECT_EQ(spec.mixersOf(2), "L");
  EXPECT_EQ(spec.ffnOf(3), 'D');
  EXPECT_EQ(spec.contextLen, 1024);
  EXPECT_EQ(spec.source, base);
  const auto &gla = std::get<LsmSpec>(spec.mixers.at('L'));
  EXPECT_EQ(gla.kind, LsmKind::gla);
  EXPECT_EQ(gla.valueDim, 32); // twice the key dimension unless said otherwise
  EXPECT_EQ(gla.outputGate, "silu");
  EXPECT_FALSE(gla.conv);
  const auto &attention = std::get<AttentionSpec>(spec.mixers.at('N'));
  EXPECT_EQ(attention.kvHeads, 2);
  EXPECT_EQ(attention.rope->dim(8), 8);
  EXPECT_TRUE(std::get<MoeSpec>(spec.ffns.at('M')).router.normalize);
  EXPECT_DOUBLE_EQ(spec.train.minLearningRate, 1e-4);
}

TEST(ModelSpec, NonDefaultValues) {
  Parsed parsed = parse(edited(
      R"({"kind": "gla", "heads": 4, "head_dim": 16})",
      R"({"kind": "gated_deltanet", "heads": 4, "key_heads": 2, "head_dim": 16, "value_dim": 8, "conv": null, "rope": {"theta": 5,
          "fraction": 0.5, "layout": "interleaved"}, "allow_neg_eigval": true, "decay_range": [1, 2], "step_range": [0.5, 1],
          "scale": 0.25, "output_norm": false, "output_gate": null})"));
  ASSERT_TRUE(parsed.ok);
  const auto &lsm = std::get<LsmSpec>(parsed.spec.mixers.at('L'));
  EXPECT_EQ(lsm.keyHeads, 2);
  EXPECT_EQ(lsm.valueDim, 8);
  EXPECT_FALSE(lsm.conv);
  EXPECT_EQ(lsm.rope->dim(16), 8);
  EXPECT_TRUE(lsm.allowNegEigval);
  EXPECT_EQ(lsm.decayRange[1], 2);
  EXPECT_EQ(lsm.stepRange[0], 0.5);
  EXPECT_EQ(lsm.scale, 0.25);
  EXPECT_FALSE(lsm.outputNorm);
  EXPECT_FALSE(lsm.outputGate);
}

TEST(ModelSpec, IntegersMayBeWrittenAsNumbers) {
  for (const char *text : {"4.8e1", "48.0", "480e-1"})
    EXPECT_EQ(parse(edited(R"("d_model": 64)", std::string(R"("d_model": )") + text)).spec.dModel, 48) << text;
}

TEST(ModelSpec, MinusZeroIsZero) {
  Parsed parsed = parse(edited(R"("batch": 2)", R"("batch": 2, "clip_norm": -0.0)"));
  ASSERT_TRUE(parsed.ok);
  EXPECT_EQ(parsed.spec.train.clipNorm, 0);
  EXPECT_FALSE(std::signbit(parsed.spec.train.clipNorm));
}

TEST(ModelSpec, ValidKeysAreListedOnce) {
  Parsed parsed = parse(edited(R"("name": "base")", R"("quantisation": 4)"));
  ASSERT_EQ(parsed.errors.size(), 1u);
  const std::string &message = parsed.errors.front();
  for (const char *key : {" layer_pattern,", " ffn_pattern,", " vocab_size,"}) {
    size_t first = message.find(key);
    EXPECT_NE(first, std::string::npos) << message;
    EXPECT_EQ(first, message.rfind(key)) << message;
  }
}

TEST(ModelSpec, OnlyValidKeysAreSuggested) {
  // heads is there; kv_heads has a message of its own.
  for (std::string key : {"head", "kv_headz"}) {
    std::string more = "\"" + key + R"j(": 2, "inputs": {"q": "linear(x)", "k": "linear(x)", "v": "linear(x)"},
      "state": "M = M + k^T v", "output": "o = q M")j";
    Parsed parsed = parse(edited(R"("kind": "gla", "heads": 4)", R"("kind": "recurrence", "heads": 4, )" + more));
    ASSERT_EQ(parsed.errors.size(), 1u) << key;
    EXPECT_EQ(parsed.errors[0].find("did you mean"), std::string::npos) << parsed.errors[0];
    EXPECT_NE(parsed.errors[0].find("unknown key; valid: kind,"), std::string::npos) << parsed.errors[0];
    EXPECT_EQ(parsed.errors[0].find("kv_heads,"), std::string::npos) << parsed.errors[0];
  }
}

TEST(ModelSpec, EveryRuleHasItsSentence) {
  struct Case {
    std::string from, to, message;
  };
  const std::string kinds =
      "attention, mla, short_conv, bla, based, rebased, retnet, lightning, mamba2, gla, hgrn2, "
      "gateloop, rwkv6, dfw, gfw, "
      "mamba, deltanet, gated_deltanet, kda, rwkv7, mlstm, rglru, s4d, ttt, titans, titans_ln, recurrence";
  const Case cases[] = {
      // ---- single keys
      {R"("vocab_size": 256, )", "", "m.json:1: vocab_size: is missing; valid: an integer from 2 to 16777216"},
      {R"("vocab_size": 256)", R"("vocab_size": "256")",
       "m.json:3: vocab_size: \"256\" is not an integer; valid: 2 to 16777216"},
      {R"("vocab_size": 256)", R"("vocab_size": 1)", "m.json:3: vocab_size: 1 is out of range; valid: 2 to 16777216"},
      {R"("d_model": 64)", R"("d_model": 1.5)", "m.json:3: d_model: 1.5 is not an integer; valid: 1 to 131072"},
      {R"("d_model": 64)", R"("d_model": 9000000000000000000)",
       "m.json:3: d_model: 9000000000000000000 is out of range; valid: 1 to 131072"},
      {R"("d_model": 64)", R"("d_model": 4.85e1)", "m.json:3: d_model: 48.5 is not an integer; valid: 1 to 131072"},
      {R"("d_model": 64)", R"("d_model": 1e18)", "m.json:3: d_model: 1e18 is out of range; valid: 1 to 131072"},
      {R"("name": "base")", R"("name": 7)", "m.json:3: name: 7 is not a string"},
      {R"("name": "base")", R"("nam": "base")", "m.json:3: nam: unknown key; did you mean name?"},
      {R"("name": "base")", R"("schedule": {"degree": 2})",
       "m.json:3: schedule.degree: unknown key; valid: recompute, activation_budget, expert_room, sp_algorithm, "
       "pipeline, "
       "overlap_degree, overlap_degrees, stage_layers, stage_order, head_stages, slicing, chunk_size, machine, tuned"},
      {R"("name": "base")", R"("schedule": {"stage_layers": "2,-1"})",
       "m.json:3: schedule.stage_layers: \"-1\" is not a number of layers; valid: one of 0 to 1024 for each stage, as "
       "in "
       "7,9,8"},
      {R"("batch": 2)", R"("batch": 8, "micro_batches": 3)",
       "m.json:12: train.micro_batches: 3 parts do not divide the 8 rows of train.batch; valid: a divisor of 8"},
      {R"("batch": 2)", R"("batch": 2, "micro_batches": 2, "gradient_dtype": "bf16")",
       "m.json:12: train.gradient_dtype: bf16 loses what 2 micro_batches add up; valid: f32, or micro_batches 1"},
      {R"("name": "base")", R"("schedule": {"overlap_degree": 2})",
       "m.json:3: schedule.overlap_degree: 2 slices with pipeline \"none\"; valid: 1 with \"none\", 2 to 16 with "
       "another"},
      {R"("name": "base")", R"("schedule": {"pipeline": "1A1M"})",
       "m.json:3: schedule.overlap_degree: 1 slices with pipeline \"1A1M\"; valid: 1 with \"none\", 2 to 16 with "
       "another"},
      {R"("name": "base")", R"("schedule": {"pipeline": "1A1M", "overlap_degrees": "0-1:2,7:3"})",
       "m.json:3: schedule.overlap_degrees: there is no layer 7 of 4; valid: layers 0 to 3"},
      {R"("name": "base")", R"("schedule": {"overlap_degrees": "0-1:2"})",
       "m.json:3: schedule.overlap_degrees: slices with pipeline \"none\", which orders none; valid: with another "
       "pipeline"},
      {R"("name": "base")", R"("schedule": {"pipeline": "1A1M", "overlap_degrees": "0-1:2,1:3"})",
       "m.json:3: schedule.overlap_degrees: layer 1 has 2 slices and 3; valid: every layer once"},
      {R"("name": "base")", R"("schedule": {"pipeline": "1A1M", "overlap_degrees": "0:17"})",
       "m.json:3: schedule.overlap_degrees: \"0:17\" is not a layer, or a range of layers, and its slices; valid: such "
       "as 0-1:2,3:1, with 1 to 16 slices"},
      {R"("name": "base")", R"("schedule": {"pipeline": "2A"})",
       "m.json:3: schedule.pipeline: \"2A\" is not known; valid: none, moe, aAaM, 1A1M, cross-block, best"},
      {R"("name": "base")", R"("schedule": {"chunk_size": 20})",
       "m.json:3: schedule.chunk_size: 20 is not a multiple of 16; valid: 16, 32, .. 128"},
      {R"("name": "base")",
       R"("schedule": {"machine": {"flops": 1e9, "bandwidth": 1e9, "overhead": 0, "link_bandwidth": 1e9}})",
       "m.json:3: schedule.machine.link_latency: is missing; valid: a number, per second or in seconds"},
      {R"("name": "base")", R"("schedule": {"tuned": 1})", "m.json:3: schedule.tuned: 1 is not an object"},
      {R"("name": "base")", R"("schedule": {"tuned": {}})",
       "m.json:3: schedule.tuned.kind: is missing; valid: measured, predicted"},
      {R"("name": "base")", R"("schedule": {"tuned": {"kind": "guess"}})",
       "m.json:3: schedule.tuned.kind: \"guess\" is not known; valid: measured, predicted"},
      {R"("name": "base")", R"("schedule": {"tuned": {"kind": "measured", "cpu": 7}})",
       "m.json:3: schedule.tuned.cpu: 7 is not a string"},
      {R"("name": "base")", R"("schedule": {"tuned": {"kind": "measured", "bach": 2}})",
       "m.json:3: schedule.tuned.bach: unknown key; did you mean batch?"},
      {R"("name": "base")", R"("schedule": {"tuned": {"kind": "measured", "evidence": "junk"}})",
       "m.json:3: schedule.tuned.evidence: \"junk\" is not a list; valid: an object for every candidate"},
      {R"("name": "base")", R"("schedule": {"tuned": {"kind": "measured", "evidence": [{},
        {"measured_ms": -3}]}})",
       "m.json:4: schedule.tuned.evidence[1].measured_ms: -3 is out of range; valid: 0 to 1e+12"},
      {R"("name": "base")", R"("schedule": {"recompute": "0,2-4"})",
       "m.json:3: schedule.recompute: there is no layer 4 of 4; valid: none, all, or layers 0 to 3"},
      {R"("name": "base")", R"("schedule": {"recompute": "0,3-2"})",
       "m.json:3: schedule.recompute: \"3-2\" is neither a layer nor a range of layers; valid: none, all, or layers "
       "such "
       "as 0,4-7"},
      {R"("name": "base")", R"("schedule": {"sp_algorithm": "tree"})",
       "m.json:3: schedule.sp_algorithm: \"tree\" is not known; valid: auto, ring, all_gather, scan"},
      {R"("name": "base")", R"("schedule": {"activation_budget": -1})",
       "m.json:3: schedule.activation_budget: -1 is out of range; valid: 0 to 9223372036854775807"},
      {R"("name": "base")", R"("schedule": {"recompute": "all", "activation_budget": 5})",
       "m.json:3: schedule.activation_budget: 5 bytes leave nothing to choose with recompute \"all\"; valid: recompute "
       "\"none\" or some layers"},
      {R"("name": "base")", R"("norm": {"kind": "batch"})",
       "m.json:3: norm.kind: \"batch\" is not known; valid: rms, layer"},
      {R"("name": "base")", R"("norm": {"eps": 0})", "m.json:3: norm.eps: 0 is out of range; valid: above 0 to 1"},
      {R"("name": "base")", R"("norm_placement": "both")",
       "m.json:3: norm_placement: \"both\" is not known; valid: pre, post, sandwich, output"},
      {R"("kv_heads": 2)", R"("norm_placement": "post")",
       "m.json:6: mixers.N.norm_placement: \"post\" is not known; valid: pre, sandwich, output"},
      {R"("kv_heads": 2)", R"("rope": {"scaling": {"kind": "proportional"}})",
       "m.json:6: mixers.N.rope.scaling.share: is missing; valid: a number"},
      {R"("name": "base")", R"("residual": {"alpha": 0})",
       "m.json:3: residual.alpha: 0 is out of range; valid: above 0 to 1e+06"},
      {R"("name": "base")", R"("residual": {"alpha": "deep"})",
       "m.json:3: residual.alpha: \"deep\" is not a number or \"deepnorm\"; valid: above 0 to 1e+06, or \"deepnorm\""},
      {R"("name": "base")", R"("residual": {"beta": -1})",
       "m.json:3: residual.beta: -1 is out of range; valid: above 0 to 1e+06"},
      {R"("name": "base")", R"("residual": {"from": "output"})",
       "m.json:3: residual.from: \"output\" is not known; valid: input, normed"},
      {R"("name": "base")", R"("norm_placement": "post", "residual": {"from": "normed"})",
       "m.json:3: residual.from: \"normed\" has no norm before the part with norm_placement \"post\"; valid: "
       "\"input\", or "
       "norm_placement \"pre\" or \"sandwich\""},
      {R"("name": "base")", R"("norm_placement": "output", "residual": {"from": "normed"})",
       "m.json:3: residual.from: \"normed\" has no norm before the part with norm_placement \"output\"; valid: "
       "\"input\", or "
       "norm_placement \"pre\" or \"sandwich\""},
      {R"("name": "base")", R"("norm": {"bias": false})",
       "m.json:3: norm.bias: changes nothing with kind \"rms\"; valid: with layer"},
      {R"("name": "base")", R"("embedding_norm": 1)", "m.json:3: embedding_norm: 1 is not true or false"},
      {R"("name": "base")", R"("embedding_multiplier": 0)",
       "m.json:3: embedding_multiplier: 0 is out of range; valid: above 0 to 1e+06"},
      {R"("name": "base")", R"("logits_softcap": 0)",
       "m.json:3: logits_softcap: 0 is out of range; valid: 0.001 to 1e+06"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "attention", "heads": 4, "softcap": -1)",
       "m.json:5: mixers.L.softcap: -1 is out of range; valid: 0.001 to 1e+06"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "mlstm", "heads": 4, "gate_softcap": 41)",
       "m.json:5: mixers.L.gate_softcap: 41 is out of range; valid: 0.001 to 40"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "mamba", "heads": 4, "bcdt_norm_weights": true)",
       "m.json:5: mixers.L.bcdt_norm_weights: changes nothing without such norms; valid: together with bcdt_norm true"},
      {R"("name": "base")", R"("logits_multiplier": "1")",
       "m.json:3: logits_multiplier: \"1\" is not a number; valid: above 0 to 1e+06"},
      // As Python writes them; not in texts and comments.
      {R"("name": "base")", R"("name": "Infinity \" NaN" /* NaN */, "logits_multiplier": -Infinity)",
       "m.json:3: logits_multiplier: \"-Infinity\" is not a number; valid: above 0 to 1e+06"},
      {R"("d_model": 64)", R"("d_model": NaN)", "m.json:3: d_model: \"NaN\" is not an integer; valid: 1 to 131072"},
      // Digits that a double loses.
      {R"("name": "base")", R"("norm": {"eps": 1e-400})",
       "m.json:3: norm.eps: 1e-400 becomes 0 in f32, whose normal numbers begin at 1.1754943508222875e-38; valid: "
       "1.1754943508222875e-38 to 1"},
      {R"("batch": 2)", R"("clip_norm": 1e-400)",
       "m.json:12: train.clip_norm: 1e-400 becomes 0 in f32, whose normal numbers begin at 1.1754943508222875e-38; "
       "valid: 0, or 1.1754943508222875e-38 to 1e+09"},
      {R"("d_model": 64)", R"("d_model": -1e-400)", "m.json:3: d_model: -1e-400 is out of range; valid: 1 to 131072"},
      {R"("name": "base")", R"("init": {"gain": 2})",
       "m.json:3: init.gain: changes nothing with kind \"scaled\"; valid: with xavier_uniform, xavier_normal"},
      {R"("name": "base")", R"("init": {"kind": "deepnorm", "scale_output": true})",
       "m.json:3: init.scale_output: true with kind \"deepnorm\", whose gain 0.42044820762685725 of 8 residual sums "
       "takes its place; valid: false"},
      {R"("name": "base")", R"("init": {"base_width": 0})",
       "m.json:3: init.base_width: 0 is out of range; valid: 1 to 131072"},
      {R"("name": "base")", R"("dtype": "f16")", "m.json:3: dtype: \"f16\" is not known; valid: f32, bf16, f64"},
      {R"("name": "base")", R"("dtype": 32)", "m.json:3: dtype: 32 is not a string; valid: f32, bf16, f64"},
      {R"("name": "base")", R"("name": "")", "m.json:3: name: \"\" is empty; valid: 1 to 100 printable letters"},
      {R"("name": "base")", R"("name": "a\u001b[31mb\n")",
       "m.json:3: name: \"a\\1B[31mb\\0A\" has letters that cannot be printed; valid: 1 to 100 printable letters"},
      {R"("name": "base")", "\"name\": \"" + std::string(101, 'x') + '"',
       "m.json:3: name: \"" + std::string(40, 'x') + "..\" has 101 letters; valid: 1 to 100 printable letters"},
      // ---- numbers that f32 does not hold
      {R"("name": "base")", R"("norm": {"eps": 1e-300})",
       "m.json:3: norm.eps: 1e-300 becomes 0 in f32, whose normal numbers begin at 1.1754943508222875e-38; valid: "
       "1.1754943508222875e-38 to 1"},
      {R"("name": "base")", R"("residual": {"alpha": 1e-39})",
       "m.json:3: residual.alpha: 1e-39 becomes 1.0000002153053333e-39 in f32, whose normal numbers begin at "
       "1.1754943508222875e-38; valid: 1.1754943508222875e-38 to 1e+06"},
      {R"("batch": 2)", R"("weight_decay": 1e-60)",
       "m.json:12: train.weight_decay: 1e-60 becomes 0 in f32, whose normal numbers begin at 1.1754943508222875e-38; "
       "valid: 0, or 1.1754943508222875e-38 to 1000"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "mamba2", "heads": 4, "step_range": [1e-50, 1])",
       "m.json:5: mixers.L.step_range: 1e-50 becomes 0 in f32, whose normal numbers begin at 1.1754943508222875e-38; "
       "valid: 1.1754943508222875e-38 to 1e+06"},
      {R"("name": "base")", R"("logits_multiplier": 2e-38, "init": {"base_width": 16})",
       "m.json:3: logits_multiplier: 2e-38 divided by d_model / init.base_width 4 becomes 4.999999675228202e-39 in "
       "f32; "
       "valid: at least 4.70197740328915e-38"},
      {R"("name": "base")", R"("tie_embeddings": 1)", "m.json:3: tie_embeddings: 1 is not true or false"},
      {R"("name": "base")", R"("init": [])", "m.json:3: init: a list is not an object"},
      {R"("name": "base")", R"("init": {"kind": "zero"})",
       "m.json:3: init.kind: \"zero\" is not known; valid: scaled, normal, xavier_uniform, xavier_normal, deepnorm"},
      {R"("batch": 2)", R"("learning_rate": "fast")",
       "m.json:12: train.learning_rate: \"fast\" is not a number; valid: 1e-12 to 100"},
      {R"("batch": 2)", R"("learning_rate": 0)",
       "m.json:12: train.learning_rate: 0 is out of range; valid: 1e-12 to 100"},
      {R"("batch": 2)", R"("learning_rate": 500)",
       "m.json:12: train.learning_rate: 500 is out of range; valid: 1e-12 to 100"},
      {R"("batch": 2)", R"("seed": -1)", "m.json:12: train.seed: -1 is out of range; valid: 0 to 9007199254740992"},
      {R"("batch": 2)", R"("gradient_dtype": "f64")",
       "m.json:12: train.gradient_dtype: \"f64\" is not known; valid: f32, bf16"},
      {R"("batch": 2)", R"("gradient_dtype": "bf16")",
       "m.json:12: train.gradient_dtype: \"bf16\" with dtype \"f32\": only gradients of bf16 weights can be; valid: "
       "\"f32\""},
      {R"("batch": 2)", R"("moment_dtype": "f16")",
       "m.json:12: train.moment_dtype: \"f16\" is not known; valid: f32, bf16"},
      {R"("batch": 2)", R"("moment_dtype": "bf16")",
       "m.json:12: train.moment_dtype: \"bf16\" with dtype \"f32\": only moments of bf16 weights can be; valid: "
       "\"f32\""},
      {R"("batch": 2)", R"("beta1": 1)", "m.json:12: train.beta1: 1 is out of range; valid: 0 to 0.999999"},
      // ---- parts and patterns
      {R"("layer_pattern": "LN", )", "",
       "m.json:1: layer_pattern: is missing; valid: letters of mixers, such as \"LLLN\""},
      {R"("layer_pattern": "LN")", R"("layer_pattern": "LXN")",
       "m.json:3: layer_pattern: 'X' is not in mixers; valid: L, N, or - for none"},
      {R"("layer_pattern": "LN")", R"("layer_pattern": "")",
       "m.json:3: layer_pattern: is empty; valid: letters of mixers: L, N, or - for none"},
      {R"("layer_pattern": "LN")", R"("layer_pattern": "L")",
       "m.json:6: mixers.N: no layer uses it: layer_pattern is \"L\""},
      {R"("num_layers": 4)", R"("num_layers": 1)",
       "m.json:6: mixers.N: no layer uses it: num_layers 1 takes \"L\" of layer_pattern \"LN\"; valid: num_layers of "
       "at "
       "least 2, or no such part"},
      {R"("layer_pattern": "LN")", R"("layer_pattern": "LñN")",
       "m.json:3: layer_pattern: 'ñ' is not in mixers; valid: L, N, or - for none"},
      {R"(, "ffn_pattern": "MD")", "",
       "m.json:1: ffn_pattern: is missing; valid: letters of ffns, such as \"DMMM\" (only a single one needs no "
       "pattern)"},
      {R"("ffn_pattern": "MD")", R"("ffn_pattern": "MDE")",
       "m.json:3: ffn_pattern: 'E' is not in ffns; valid: D, M, or - for none"},
      {R"("layer_pattern": "LN", "ffn_pattern": "MD")", R"("layer_pattern": "LN-", "ffn_pattern": "MD-D")",
       "m.json:3: layer_pattern: layer 2 has neither a mixer (\"LN-\") nor a feed-forward (ffn_pattern \"MD-D\"); "
       "valid: "
       "a letter in one of the two for every layer"},
      {R"("ffn_pattern": "MD")", R"("ffn_pattern": "M-")",
       "m.json:10: ffns.D: no layer uses it: ffn_pattern is \"M-\""},
      {R"("L": {"kind")", R"("-": {"kind")",
       "m.json:5: mixers.-: is not one letter; valid: a name of one letter, as the pattern uses it"},
      {R"("N": {"kind")", R"("attn": {"kind")",
       "m.json:6: mixers.attn: is not one letter; valid: a name of one letter, as the pattern uses it"},
      {R"({"kind": "gla", "heads": 4, "head_dim": 16})", "3", "m.json:5: mixers.L: 3 is not an object"},
      {R"("kind": "gla")", R"("kind": "glaa")", "m.json:5: mixers.L.kind: \"glaa\" is not known; valid: " + kinds},
      {R"("kind": "gla", )", "", "m.json:5: mixers.L.kind: is missing; valid: " + kinds},
      {R"("kind": "dense")", R"("kind": "sparse")",
       "m.json:10: ffns.D.kind: \"sparse\" is not known; valid: dense, moe"},
      // ---- mixers
      {R"("kv_heads": 2)", R"("kv_heads": 3)",
       "m.json:6: mixers.N.kv_heads: 3 does not divide heads 8; valid: 1, 2, 4, 8"},
      {R"("kv_heads": 2)", R"("kv_head": 2)", "m.json:6: mixers.N.kv_head: unknown key; did you mean kv_heads?"},
      {R"("kv_heads": 2)", R"("conv": {"kernel": 4})",
       "m.json:6: mixers.N.conv: unknown key; valid: kind, residual, norm_placement, input_multiplier, heads, "
       "kv_heads, head_dim, "
       "rope, qkv_bias, output_bias, sinks, softcap, qk_norm, qk_norm_over, "
       "window, scale, output_gate, output_gate_per"},
      {R"("kv_heads": 2)", R"("qk_norm_over": "heads")",
       "m.json:6: mixers.N.qk_norm_over: changes nothing without a norm; valid: together with qk_norm true"},
      {R"("kv_heads": 2)", R"("qk_norm": true, "qk_norm_over": "rows")",
       "m.json:6: mixers.N.qk_norm_over: \"rows\" is not known; valid: head, heads"},
      {R"("kv_heads": 2)", R"("output_gate_per": "head")",
       "m.json:6: mixers.N.output_gate_per: has no gate to shape; valid: together with output_gate, one of silu, "
       "sigmoid, "
       "tanh, relu, gelu, gelu_tanh"},
      {R"("kv_heads": 2)", R"("output_gate": "silu", "output_gate_per": "token")",
       "m.json:6: mixers.N.output_gate_per: \"token\" is not known; valid: feature, head"},
      {R"("kv_heads": 2)", R"("scale": 0)", "m.json:6: mixers.N.scale: 0 is out of range; valid: above 0 to 1e+06"},
      {R"("kv_heads": 2)", R"("residual": {"from": "normed"})",
       "m.json:6: mixers.N.residual.from: unknown key; valid: alpha, beta"},
      {R"("kv_heads": 2)", R"("rope": {"fraction": 0.1})",
       "m.json:6: mixers.N.rope.fraction: 0.1 of head_dim 8 turns 1 features; valid: a fraction that turns an even "
       "number, "
       "at least 2"},
      {R"("heads": 8, "kv_heads": 2, "head_dim": 8)", R"("heads": 8, "head_dim": 7)",
       "m.json:6: mixers.N.head_dim: 7 features are not pairs, which rope turns; valid: an even number"},
      {R"("kv_heads": 2)", R"("rope": {"layout": "both"})",
       "m.json:6: mixers.N.rope.layout: \"both\" is not known; valid: half, interleaved"},
      {R"("kv_heads": 2)", R"("rope": 1)", "m.json:6: mixers.N.rope: 1 is not an object or null"},
      {R"("kv_heads": 2)", R"("rope": {"scaling": {"kind": "dynamic"}})",
       "m.json:6: mixers.N.rope.scaling.kind: \"dynamic\" is not known; valid: linear, llama3, yarn, proportional"},
      {R"("kv_heads": 2)", R"("rope": {"scaling": {"kind": "linear"}})",
       "m.json:6: mixers.N.rope.scaling.factor: is missing; valid: a number"},
      {R"("kv_heads": 2)", R"("rope": {"scaling": {"kind": "linear", "factor": 0.5}})",
       "m.json:6: mixers.N.rope.scaling.factor: 0.5 is out of range; valid: 1 to 1e+06"},
      {R"("kv_heads": 2)", R"("rope": {"scaling": {"kind": "linear", "factor": 2, "beta_fast": 3}})",
       "m.json:6: mixers.N.rope.scaling.beta_fast: unknown key; valid: kind, factor"},
      {R"("kv_heads": 2)",
       R"("rope": {"scaling": {"kind": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4, "original_context_len": 64}})",
       "m.json:6: mixers.N.rope.scaling.low_freq_factor: 4 is not below high_freq_factor 4; valid: a number below it"},
      {R"("kv_heads": 2)",
       R"("rope": {"scaling": {"kind": "yarn", "factor": 8, "beta_slow": 33, "original_context_len": 64}})",
       "m.json:6: mixers.N.rope.scaling.beta_slow: 33 exceeds beta_fast 32; valid: a number up to it"},
      {R"("kv_heads": 2)",
       R"("rope": {"theta": 1, "scaling": {"kind": "yarn", "factor": 8, "original_context_len": 64}})",
       "m.json:6: mixers.N.rope.theta: 1 turns all pairs alike, between which \"yarn\" has no ramp; valid: above 1"},
      {R"("heads": 4)", R"("heads": 4, "kv_heads": 3)",
       "m.json:5: mixers.L.kv_heads: 3 does not divide heads 4; valid: 1, 2, 4"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "mamba", "heads": 1, "value_dim": 8200)",
       "m.json:5: mixers.L.value_dim: 8200 times head_dim 16 exceeds 131072 features of a token; valid: at most 8192"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "mamba2", "heads": 4, "bcdt_norm": true)",
       "m.json:5: mixers.L.bcdt_norm: unknown key; valid: kind, residual, norm_placement, input_multiplier, heads, "
       "key_heads, "
       "head_dim, "
       "value_dim, conv, rope, decay_range, step_range, scale, output_norm, output_gate, norm_eps, "
       "projection_multipliers, projection_bias, output_bias, min_step, max_step, norm_first"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "mamba", "heads": 4, "norm_eps": 1e-3)",
       "m.json:5: mixers.L.norm_eps: changes nothing without a norm; valid: together with output_norm true or "
       "bcdt_norm true"},
      {R"("heads": 4)", R"("heads": 4, "output_norm": false, "norm_eps": 1e-3)",
       "m.json:5: mixers.L.norm_eps: changes nothing without a norm; valid: together with output_norm true"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "s4d", "heads": 4, "norm_eps": 1e-3)",
       "m.json:5: mixers.L.norm_eps: unknown key; valid: kind, residual, norm_placement, input_multiplier, heads, "
       "head_dim, value_dim, "
       "step_range, "
       "scale"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "mamba2", "heads": 6, "key_heads": 4)",
       "m.json:5: mixers.L.key_heads: 4 does not divide heads 6; valid: 1, 2, 3, 6"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "mamba2", "heads": 6, "decay_range": [2, 1])",
       "m.json:5: mixers.L.decay_range: [2, 1] is no range; valid: 0 < low < high <= 1e6"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "mamba2", "heads": 6, "step_range": 3)",
       "m.json:5: mixers.L.step_range: 3 is not a list of two numbers [low, high]; valid: 0 < low < high <= 1e6"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "bla", "heads": 4, "feature_map": "cosine")",
       "m.json:5: mixers.L.feature_map: \"cosine\" is not known; valid: identity, elu1, relu, relu2, silu, exp, "
       "softmax"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "gla", "heads": 4, "output_gate": "swish")",
       "m.json:5: mixers.L.output_gate: \"swish\" is not known; valid: silu, sigmoid, tanh, relu, gelu, gelu_tanh, "
       "null"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "gla", "heads": 4, "output_gate": true)",
       "m.json:5: mixers.L.output_gate: true is not a string or null; valid: silu, sigmoid, tanh, relu, gelu, "
       "gelu_tanh, null"},
      {R"("kind": "gla", )", R"("kind": 2, )", "m.json:5: mixers.L.kind: 2 is not a string; valid: " + kinds},
      {R"("kind": "gla", "heads": 4)", R"("kind": "gla", "heads": 4, "conv": {"kernel": 1})",
       "m.json:5: mixers.L.conv.kernel: 1 is out of range; valid: 2 to 16"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "lightning", "heads": 4, "slopes": "alibi")",
       "m.json:5: mixers.L.slopes: \"alibi\" is not known; valid: minimax, transnormer"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)", R"("kind": "based", "heads": 4, "head_dim": 65)",
       "m.json:5: mixers.L.head_dim: 65 gives 2145 products of features; valid: 1 to 64"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)",
       R"("kind": "mamba", "heads": 4, "head_dim": 16, "value_dim": 4096)",
       "m.json:5: mixers.L.heads: 4 times head_dim times value_dim 65536 exceeds 131072 features of a token; valid: at "
       "most 2"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)", R"("kind": "rwkv6", "heads": 4, "head_dim": 16, "rope": {})",
       "m.json:5: mixers.L.rope: unknown key; valid: kind, residual, norm_placement, input_multiplier, heads, "
       "head_dim, value_dim, "
       "gate_rank, mix_rank, scale, norm_eps"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)", R"("kind": "ttt", "heads": 4, "head_dim": 16, "value_dim": 8)",
       "m.json:5: mixers.L.value_dim: 8 is not head_dim 16, but the inner model predicts v - k; valid: 16"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)",
       R"("kind": "titans", "heads": 4, "head_dim": 16, "mini_batch": 0)",
       "m.json:5: mixers.L.mini_batch: 0 is out of range; valid: 1 to 128"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)",
       R"("kind": "kda", "heads": 4, "head_dim": 16, "output_gate_rank": 16, "output_gate": null)",
       "m.json:5: mixers.L.output_gate_rank: has no gate to be of; valid: together with output_gate, one of silu, "
       "sigmoid, tanh, relu, gelu, gelu_tanh"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)",
       R"("kind": "gla", "heads": 4, "head_dim": 16, "output_gate_rank": 16)",
       "m.json:5: mixers.L.output_gate_rank: unknown key; did you mean output_gate?"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)",
       R"("kind": "rwkv7", "heads": 4, "head_dim": 16, "value_mix": false, "value_rank": 8)",
       "m.json:5: mixers.L.value_rank: changes nothing where values are not mixed; valid: together with value_mix "
       "true"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)", R"("kind": "rwkv7", "heads": 4, "head_dim": 16, "rate_rank": 0)",
       "m.json:5: mixers.L.rate_rank: 0 is out of range; valid: 1 to 131072"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)",
       R"("kind": "rwkv7", "heads": 4, "head_dim": 16, "output_gate_rank": 0)",
       "m.json:5: mixers.L.output_gate_rank: 0 is out of range; valid: 1 to 131072"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)", R"("kind": "rwkv7", "heads": 4, "head_dim": 16, "l2_eps": 0)",
       "m.json:5: mixers.L.l2_eps: 0 is out of range; valid: above 0 to 1"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)",
       R"("kind": "gla", "heads": 4, "head_dim": 16, "value_mix": false)",
       "m.json:5: mixers.L.value_mix: unknown key; did you mean value_dim?"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "gla", "heads": 4, "conv": {"activation": null})",
       "m.json:5: mixers.L.conv.activation: unknown key; valid: kernel, bias"},
      {R"("kind": "gla", "heads": 4)", R"("kind": "hgrn2", "heads": 4, "conv": {"activation": "relu"})",
       "m.json:5: mixers.L.conv.activation: \"relu\" is not known; valid: silu, null"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)",
       R"("kind": "hgrn2", "heads": 4, "head_dim": 16, "lower_bounds": "trained")",
       "m.json:5: mixers.L.lower_bounds: \"trained\" is not known; valid: layers, learned, null"},
      {R"("heads": 8, "kv_heads": 2, "head_dim": 8)", R"("heads": 4096, "head_dim": 64)",
       "m.json:6: mixers.N.heads: 4096 times head_dim 64 exceeds 131072 features of a token; valid: at most 2048"},
      {R"("kind": "gla", "heads": 4, "head_dim": 16)", R"("kind": "gla", "heads": 128, "head_dim": 1024)",
       "m.json:5: mixers.L.heads: 128 times value_dim 2048 exceeds 131072 features of a token; valid: at most 64"},
      // ---- feed-forward
      {R"("top_k": 2)", R"("top_k": 9)", "m.json:9: ffns.M.top_k: 9 exceeds num_experts 8; valid: 1 to 8"},
      {R"("top_k": 2)", R"("top_k": "2")", "m.json:9: ffns.M.top_k: \"2\" is not an integer; valid: 1 to 8"},
      {R"("top_k": 2)", R"("top_k": 0)", "m.json:9: ffns.M.top_k: 0 is out of range; valid: 1 to 8"},
      {R"("top_k": 2)", R"("top_k": 1, "router": {"balance_loss": 0, "z_loss": 0})",
       "m.json:9: ffns.M.router.normalize: true with top_k 1 makes every weight 1, so the router never learns; valid: "
       "false, or a balance_loss or z_loss above 0"},
      {R"("top_k": 2)", R"("top_k": 2, "router": {"score": "tanh"})",
       "m.json:9: ffns.M.router.score: \"tanh\" is not known; valid: softmax, sigmoid"},
      {R"("top_k": 2)", R"("top_k": 2, "router": {"scale": 0})",
       "m.json:9: ffns.M.router.scale: 0 is out of range; valid: above 0 to 1e+06"},
      {R"("top_k": 2)", R"("top_k": 2, "router": {"correction_rate": 0.01})",
       "m.json:9: ffns.M.router.correction_rate: changes nothing without a correction; valid: together with correction "
       "true"},
      {R"("top_k": 2)", R"("top_k": 2, "router": {"kept_groups": 2})",
       "m.json:9: ffns.M.router.kept_groups: changes nothing where all experts are one group; valid: together with "
       "groups above 1"},
      {R"("top_k": 2)", R"("top_k": 2, "router": {"group_score": "top2"})",
       "m.json:9: ffns.M.router.group_score: changes nothing where all experts are one group; valid: together with "
       "groups above 1"},
      {R"("top_k": 2)", R"("top_k": 2, "router": {"groups": 3})",
       "m.json:9: ffns.M.router.groups: 3 does not divide num_experts 8; valid: 1, 2, 4, 8"},
      {R"("top_k": 2)", R"("top_k": 2, "router": {"groups": 4, "kept_groups": 5})",
       "m.json:9: ffns.M.router.kept_groups: 5 exceeds groups 4; valid: 1 to 4"},
      {R"("top_k": 2)", R"("top_k": 3, "router": {"groups": 4, "kept_groups": 1})",
       "m.json:9: ffns.M.top_k: 3 exceeds the 2 experts of 1 groups (kept_groups); valid: 1 to 2"},
      {R"("top_k": 2)", R"("top_k": 2, "router": {"groups": 8, "kept_groups": 4, "group_score": "top2"})",
       "m.json:9: ffns.M.router.groups: 8 leaves one expert to a group, but \"top2\" adds up the scores of two; valid: "
       "fewer groups"},
      {R"("top_k": 2)", R"("top_k": 2, "router": {"groups": "4", "kept_groups": 2})",
       "m.json:9: ffns.M.router.groups: \"4\" is not an integer; valid: 1 to 4096"},
      {R"("top_k": 2)", R"("top_k": 2, "router": {"correction": 1, "correction_rate": 0.1})",
       "m.json:9: ffns.M.router.correction: 1 is not true or false"},
      {R"("top_k": 2)", R"("top_k": 2, "latent_dim": -1)",
       "m.json:9: ffns.M.latent_dim: -1 is out of range; valid: 0 to 524288"},
      {R"("top_k": 2)", R"("top_k": 2, "shared_gate": true)",
       "m.json:9: ffns.M.shared_gate: true without a shared expert; valid: together with a shared_hidden above 0"},
      {R"("top_k": 2)", R"("top_k": 2, "capacity_factor": 0)",
       "m.json:9: ffns.M.capacity_factor: 0 is out of range; valid: above 0 to 1e+06"},
      {R"("top_k": 2)", R"("top_k": 2, "drop_policy": "token")",
       "m.json:9: ffns.M.drop_policy: changes nothing without capacity_factor; valid: together with a capacity_factor "
       "above 0"},
      {R"("top_k": 2)", R"("top_k": 2, "capacity_factor": 1, "drop_policy": "last")",
       "m.json:9: ffns.M.drop_policy: \"last\" is not known; valid: token, slot, score, bpr, random, device"},
      {R"("top_k": 2)", R"("top_k": 2, "capacity_factor": 1, "devices": 2)",
       "m.json:9: ffns.M.devices: changes nothing without drop_policy \"device\"; valid: together with it"},
      {R"("top_k": 2)", R"("top_k": 2, "capacity_factor": 1, "drop_policy": "random", "protect": 0.1)",
       "m.json:9: ffns.M.protect: changes nothing without drop_policy \"device\"; valid: together with it"},
      {R"("top_k": 2)", R"("top_k": 2, "capacity_factor": 1, "drop_policy": "device", "devices": 3)",
       "m.json:9: ffns.M.devices: 3 does not divide num_experts 8; valid: 1, 2, 4, 8"},
      {R"("top_k": 2)",
       R"("top_k": 2, "capacity_factor": 1, "drop_policy": "device", "devices": 2, "padded_slots": true)",
       "m.json:9: ffns.M.padded_slots: true gives every expert slots of its own, which drop_policy \"device\" hands to "
       "groups of experts; valid: false"},
      {R"("top_k": 2)", R"("top_k": 2, "capacity_factor": 1, "drop_policy": "device", "devices": 2, "protect": 2)",
       "m.json:9: ffns.M.protect: 2 is out of range; valid: 0 to 1"},
      {R"("top_k": 2)", R"("top_k": 2, "renormalize": true)",
       "m.json:9: ffns.M.renormalize: changes nothing without capacity_factor; valid: together with a capacity_factor "
       "above 0"},
      {R"("top_k": 2)", R"("top_k": 2, "capacity_factor": 1, "capacity_rule": "half")",
       "m.json:9: ffns.M.capacity_rule: \"half\" is not known; valid: megatron, switch, megablocks, tutel"},
      {R"({"kind": "dense", "hidden": 128})", R"({"kind": "moe", "num_experts": 4, "top_k": 1, "expert_hidden": 8})",
       "m.json:9: ffns.M.num_experts: 8 differs from 4 of ffns.D; valid: 4 (the counts of all layers form one table)"},
      {R"("hidden": 128)", R"("hidden": 128, "activation": "swish")",
       "m.json:10: ffns.D.activation: \"swish\" is not known; valid: swiglu, geglu, geglu_tanh, reglu, silu, gelu, "
       "gelu_tanh, "
       "relu, "
       "relu2, swiglu_clamp"},
      // ---- training
      {R"("batch": 2, "seq_len": 32)", R"("batch": 16777216, "seq_len": 65536)",
       "m.json:12: train.batch: 16777216 times seq_len 65536 times top_k 2 exceeds 2147483647 rows; valid: at most "
       "16383"},
      {R"("batch": 2, "seq_len": 32)", R"("learning_rate": 1e-3, "min_learning_rate": 0.01)",
       "m.json:12: train.min_learning_rate: 0.01 exceeds learning_rate 0.001; valid: 0 to 0.001"},
      {R"("batch": 2, "seq_len": 32)", R"("steps": 10, "warmup_steps": 20)",
       "m.json:12: train.warmup_steps: 20 exceeds steps 10; valid: 0 to 10"},
      {R"("name": "base")", R"("max_documents": 64)",
       "m.json:12: train.seq_len: 32 is less than max_documents 64; valid: 64 or more, or a max_documents of at most "
       "32"},
  };
  for (const Case &c : cases) {
    SCOPED_TRACE(c.to);
    Parsed parsed = parse(edited(c.from, c.to));
    ASSERT_FALSE(parsed.errors.empty());
    EXPECT_EQ(parsed.errors.front(), c.message);
  }
}

// A flag takes the place of a key, whether the file has it or not, and of its value only: what else is said of the key
// is said of the flag.
TEST(ModelSpec, Overrides) {
  std::vector<std::string> errors;
  auto parse = [&](const std::string &text, std::vector<KeyOverride> overrides) {
    errors.clear();
    return parseModelSpec(text, "m.json", [&](const std::string &message) { errors.push_back(message); }, overrides);
  };
  auto spec = parse(base, {{"--batch", "train.batch", int64_t(7)},
                           {"--dtype", "dtype", "f64"},
                           {"--recompute", "schedule.recompute", "1-2"}});
  ASSERT_TRUE(succeeded(spec));
  EXPECT_EQ(spec->train.batch, 7);
  EXPECT_EQ(spec->train.seqLen, 32);
  EXPECT_EQ(spec->dtype, "f64");
  EXPECT_EQ(spec->schedule.recompute, std::vector<int64_t>({1, 2}));
  EXPECT_EQ(spec->source, base);
  // What the file says in its place is not looked at.
  EXPECT_TRUE(succeeded(parse(edited(R"("batch": 2)", R"("batch": "all")"), {{"--batch", "train.batch", int64_t(7)}})));
  EXPECT_TRUE(
      succeeded(parse(edited(R"("name": "base")", R"("norm": {"eps": 1e-300})"), {{"--dtype", "dtype", "f64"}})));

  (void)parse(base, {{"--recompute", "schedule.recompute", "4"}});
  EXPECT_EQ(errors,
            std::vector<std::string>({"--recompute: there is no layer 4 of 4; valid: none, all, or layers 0 to 3"}));
  (void)parse(base, {{"--gradient-dtype", "train.gradient_dtype", "bf16"}});
  EXPECT_EQ(errors, std::vector<std::string>({"--gradient-dtype: \"bf16\" with dtype \"f32\": only gradients of bf16 "
                                              "weights can be; valid: \"f32\""}));
  (void)parse(edited(R"({"batch": 2, "seq_len": 32})", "3"), {{"--batch", "train.batch", int64_t(7)}});
  EXPECT_EQ(errors, std::vector<std::string>({"m.json:12: train: 3 is not an object"}));
}

TEST(ModelSpec, AllErrorsAtOnce) {
  std::string text = edited(R"("kv_heads": 2)", R"("kv_heads": 3)");
  text.replace(text.find("\"top_k\": 2"), 10, "\"top_k\": 9");
  Parsed parsed = parse(text);
  EXPECT_EQ(parsed.errors.size(), 2u);
}

TEST(ModelSpec, TextThatIsNoDescription) {
  struct Case {
    std::string text, message;
  };
  std::string manyKeys = "{";
  for (int i = 0; i < 1200; ++i)
    manyKeys += (i ? "," : "") + std::string("\"k") + std::to_string(i) + "\": 0";
  const Case cases[] = {
      {"", "m.json:1: syntax error"},
      {"[]", "m.json:1: the file holds a list; valid: one object"},
      {"3", "m.json:1: the file holds 3; valid: one object"},
      {"{\n\"name\": }", "m.json:2: syntax error"},
      {"{\n\"name\": \"a\",\n\"name\": \"b\"}", "m.json:3: key \"name\" appears twice in one object"},
      {std::string("{}\n\0 {\"d_model\": 64}", 20), "m.json:2: holds a NUL byte; valid: JSON as UTF-8 text"},
      {"{\"d_model\": 1e999}", "m.json:1: d_model: 1e999 is too large for a number; valid: at most 1e308"},
      {"{\"mixers\": {\"L\": {\"decay_range\": [1,\n-1e400]}}}",
       "m.json:2: mixers.L.decay_range[1]: -1e400 is too large for a number; valid: at most 1e308"},
      {"{\"vocab_size\": 99999999999999999999}",
       "m.json:1: vocab_size: 99999999999999999999 is out of range; valid: 2 to 16777216"},
      {"{\"vocab_size\": 18446744073709551615}",
       "m.json:1: vocab_size: 18446744073709551615 is out of range; valid: 2 to 16777216"},
      {"{\"vocab_size\": 9223372036854775808}",
       "m.json:1: vocab_size: 9223372036854775808 is out of range; valid: 2 to 16777216"},
      {"{\"vocab_size\": -9223372036854775809}",
       "m.json:1: vocab_size: -9223372036854775809 is out of range; valid: 2 to 16777216"},
      {"{\"vocab_size\": 9007199254740993.0}",
       "m.json:1: vocab_size: 9007199254740993.0 is out of range; valid: 2 to 16777216"},
      {"{} {}", "m.json:1: syntax error"},
      {"{\"name\": \"\xff\"}", "m.json:1: syntax error while parsing value - invalid string: ill-formed UTF-8 byte; "
                               "last read: '\"\\FF'"},
      {"{\"name\": \"a\xc3\"}", "m.json:1: syntax error while parsing value - invalid string: ill-formed UTF-8 byte; "
                                "last read: '\"a\\C3\"'"},
      {std::string("{\"a\": \0}", 8), "m.json:1: holds a NUL byte"},
      {std::string(100000, '['), "m.json:1: nesting is deeper than 32"},
      {manyKeys + "}", "m.json:1: an object has more than 1000 keys"},
      {"{ /* never closed", "m.json:1: syntax error"},
  };
  for (const Case &c : cases) {
    SCOPED_TRACE(c.text.substr(0, 40));
    Parsed parsed = parse(c.text);
    ASSERT_FALSE(parsed.errors.empty());
    EXPECT_EQ(parsed.errors.front().substr(0, c.message.size()), c.message);
  }
}

// Wrong input ends in messages, never in a crash: random edits of a valid text.
TEST(ModelSpec, RandomEdits) {
  std::mt19937 random(1);
  auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::string pieces[] = {"{",      "}",        "[",        "]",     ",",       ":",     "\"",  "null",
                                "true",   "-1",       "1e99",     "\\u00", "1000000", "\"L\"", "/*",  "//",
                                "\xc3",   "0",        "NaN",      "-",     "{}",      "[[[[",  "3.5", "\n",
                                "\"\":1", "\"conv\"", "\"kind\"", "moe",   "gla",     "9"};
  int valid = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = base;
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      size_t at = below(text.size());
      switch (below(4)) {
      case 0: text.erase(at, 1 + below(12)); break;
      case 1: text.insert(at, pieces[below(std::size(pieces))]); break;
      case 2: text[at] = static_cast<char>(random()); break;
      default: text.insert(at, text.substr(below(text.size()), below(40)));
      }
      if (text.empty())
        text = "{";
    }
    valid += parse(text).ok;
  }
  EXPECT_GT(valid, 100); // names, comments and numbers that may change
}
