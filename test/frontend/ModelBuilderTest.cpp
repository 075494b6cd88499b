// What every built module has, whatever the model; the IR itself is shown by the lit tests beside this file.
#include "frontend/ModelBuilder.h"
#include "dialects/braid/BraidDialect.h"
#include "frontend/LayerPlan.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include <gtest/gtest.h>
#include <set>

using namespace mlir;
using namespace braid;

namespace {

void fail(const std::string &message) { ADD_FAILURE() << message; }

struct Built {
  MLIRContext context;
  ModelSpec spec;
  OwningOpRef<ModuleOp> module;

  explicit Built(const std::string &text, llvm::StringRef name = "m.json") {
    auto parsed = parseModelSpec(text, name, fail);
    if (failed(parsed))
      return;
    spec = *parsed;
    auto built = buildModel(&context, spec, fail);
    if (succeeded(built))
      module = std::move(*built);
  }
  func::FuncOp entry(llvm::StringRef name) { return module->lookupSymbol<func::FuncOp>(name); }
  int64_t functions() {
    return std::distance(module->getOps<func::FuncOp>().begin(), module->getOps<func::FuncOp>().end());
  }
};

std::string model(llvm::StringRef pattern, int64_t layers, llvm::StringRef more = "") {
  return R"({"vocab_size": 256, "d_model": 16, "num_layers": )" + std::to_string(layers) + R"(, "layer_pattern": ")" +
         pattern.str() + R"(", "mixers": {"L": {"kind": "gla", "heads": 2, "head_dim": 4},
         "N": {"kind": "attention", "heads": 2, "head_dim": 8}}, "ffns": {"D": {"kind": "dense", "hidden": 32}},
         "train": {"batch": 2, "seq_len": 16})" +
         more.str() + "}";
}

StringRef stringAttr(Attribute attribute) { return cast<StringAttr>(attribute).getValue(); }

std::vector<std::string> files() {
  std::vector<std::string> names;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator it("models", error), end; it != end && !error; it.increment(error))
    if (StringRef(it->path()).ends_with(".json"))
      names.push_back(it->path());
  llvm::sort(names);
  return names;
}

} // namespace

TEST(ModelBuilder, EveryModelFile) {
  ASSERT_GE(files().size(), 5u) << "run from the root of the repository";
  for (const std::string &file : files()) {
    SCOPED_TRACE(file);
    auto buffer = llvm::MemoryBuffer::getFile(file);
    ASSERT_TRUE(static_cast<bool>(buffer));
    Built built((*buffer)->getBuffer().str(), file);
    ASSERT_TRUE(built.module);

    // The parameters of every entry point are those of init, in the same order, with the same names and shapes.
    auto init = built.entry("init"), train = built.entry("train_step");
    std::set<std::string> logical;
    int64_t elements = 0;
    for (unsigned i = 0; i < init.getNumResults(); ++i) {
      // Behind the parameters of a bf16 model stands what rounding takes from them.
      if (built.spec.dtype == "bf16" && stringAttr(init.getResultAttr(i, attrs::role)) == "moment") {
        EXPECT_TRUE(init.getResultAttr(i, attrs::of));
        continue;
      }
      EXPECT_EQ(stringAttr(init.getResultAttr(i, attrs::role)), "parameter");
      StringRef name = stringAttr(init.getResultAttr(i, attrs::name));
      elements += cast<RankedTensorType>(init.getResultTypes()[i]).getNumElements();
      auto layers = init.getResultAttrOfType<DenseI32ArrayAttr>(i, attrs::layers);
      auto [before, after] = name.split("{}");
      EXPECT_EQ(static_cast<bool>(layers), name.contains("{}"));
      SmallVector<std::string> names = {name.str()};
      if (layers) {
        names.clear();
        for (int32_t layer : layers.asArrayRef())
          names.push_back((before + Twine(layer) + after).str());
      }
      for (const std::string &one : names)
        EXPECT_TRUE(logical.insert(one).second) << one;
      for (StringRef other : {"train_step", "eval_step", "prefill_32", "decode_1"}) {
        auto entry = built.entry(other);
        ASSERT_TRUE(entry) << other.str();
        EXPECT_EQ(entry.getArgumentTypes()[i], init.getResultTypes()[i]);
        EXPECT_EQ(entry.getArgAttrDict(i), init.getResultAttrDict(i));
      }
    }
    auto metadata = (*built.module)->getAttrOfType<DictionaryAttr>(attrs::metadata);
    EXPECT_EQ(stringAttr(metadata.get("parameter_count")), std::to_string(elements));
    EXPECT_EQ(stringAttr(metadata.get("model_name")), built.spec.name);
    EXPECT_TRUE(train->hasAttr(attrs::entry) && train->hasAttr("braid.train"));

    // Every cache of decode_1 is written back to its own argument.
    auto decode = built.entry("decode_1");
    unsigned caches = 0;
    for (unsigned i = 0; i < decode.getNumResults(); ++i) {
      if (stringAttr(decode.getResultAttr(i, attrs::role)) != "cache")
        continue;
      ++caches;
      auto alias = decode.getResultAttrOfType<IntegerAttr>(i, attrs::alias);
      ASSERT_TRUE(alias);
      EXPECT_EQ(decode.getArgAttr(alias.getInt(), attrs::name), decode.getResultAttr(i, attrs::name));
      EXPECT_EQ(decode.getArgumentTypes()[alias.getInt()], decode.getResultTypes()[i]);
    }
    EXPECT_GT(caches, 0u);

    // The text form reads back as the same module.
    std::string text, again;
    llvm::raw_string_ostream(text) << *built.module;
    auto reread = parseSourceString<ModuleOp>(text, &built.context);
    ASSERT_TRUE(reread);
    llvm::raw_string_ostream(again) << *reread;
    EXPECT_EQ(text, again);
  }
}

TEST(ModelBuilder, SizeDoesNotFollowDepth) {
  Built shallow(model("LLLN", 8)), deep(model("LLLN", 80));
  ASSERT_TRUE(shallow.module && deep.module);
  EXPECT_EQ(shallow.functions(), deep.functions());
  auto count = [](Built &b) {
    int64_t ops = 0;
    b.module->walk([&](Operation *) { ++ops; });
    return ops;
  };
  EXPECT_EQ(count(shallow), count(deep));
}

TEST(ModelBuilder, BucketsFitTheContext) {
  Built built(model("LN", 2, R"(, "context_len": 100)"));
  ASSERT_TRUE(built.module);
  EXPECT_TRUE(built.entry("prefill_64"));
  EXPECT_FALSE(built.entry("prefill_128"));
}

// The largest value of every dimension: sizes stay within 64 bits.
TEST(ModelBuilder, ExtremeDimensions) {
  Built built(
      R"({"vocab_size": 16777216, "d_model": 131072, "num_layers": 1024, "layer_pattern": "LN", "ffn_pattern": "ED",
    "context_len": 16777216, "mixers": {"L": {"kind": "gated_deltanet", "heads": 32, "head_dim": 4096, "value_dim": 4096},
    "N": {"kind": "attention", "heads": 4096, "head_dim": 32}}, "ffns": {"D": {"kind": "dense", "hidden": 524288},
    "E": {"kind": "moe", "num_experts": 4096, "top_k": 1, "expert_hidden": 524288}},
    "train": {"batch": 127, "seq_len": 16777216}})");
  EXPECT_TRUE(built.module);
}

TEST(ModelBuilder, TiedEmbeddingsPostNormAndLayerNorm) {
  Built built(model("LN", 2, R"(, "tie_embeddings": true, "norm_placement": "post", "norm": {"kind": "layer"})"));
  ASSERT_TRUE(built.module);
  auto init = built.entry("init");
  std::set<std::string> names;
  for (unsigned i = 0; i < init.getNumResults(); ++i)
    names.insert(stringAttr(init.getResultAttr(i, attrs::name)).str());
  EXPECT_TRUE(names.count("embed.weight") && names.count("layers.0.norm1.bias"));
  EXPECT_FALSE(names.count("head.weight") || names.count("final_norm.weight"));
}

TEST(LayerPlan, Periods) {
  auto plan = [](llvm::StringRef pattern, int64_t layers, llvm::StringRef recompute = "none") {
    ModelSpec spec;
    std::string message;
    EXPECT_TRUE(succeeded(parseRecompute(recompute, spec.schedule, message))) << message;
    spec.layerPattern = pattern.str();
    spec.ffnPattern = "D";
    spec.numLayers = layers;
    std::string text;
    for (const LayerGroup &group : planLayers(spec, 0, layers)) {
      text += std::to_string(group.rounds) + "{";
      for (const LayerRun &run : group.runs)
        text += " " + std::to_string(run.count) + run.mixers + (run.recompute ? "*" : "");
      text += " } ";
    }
    return text;
  };
  EXPECT_EQ(plan("L", 12), "1{ 12L } ");
  EXPECT_EQ(plan("LLLN", 4), "1{ 3L 1N } ");
  EXPECT_EQ(plan("LLLN", 8), "2{ 3L 1N } ");
  EXPECT_EQ(plan("LLLN", 10), "2{ 3L 1N } 1{ 2L } ");
  EXPECT_EQ(plan("LN", 80), "40{ 1L 1N } ");
  EXPECT_EQ(plan("NLLNLLNLLN", 10), "3{ 1N 2L } 1{ 1N } ");
  EXPECT_EQ(plan("DDLDLDLDL", 9), "1{ 1D } 4{ 1D 1L } ");
  EXPECT_EQ(plan("NNLLLLLL", 8), "1{ 2N 6L } ");
  EXPECT_EQ(plan("LLLN", 80, "all"), "20{ 3L* 1N* } ");
  EXPECT_EQ(plan("LLLN", 80, "0-39"), "10{ 3L* 1N* } 10{ 3L 1N } ");
  EXPECT_EQ(plan("LN", 6, "1,3,5"), "3{ 1L 1N* } ");
  EXPECT_EQ(plan("(LN)", 6), "1{ 6LN } "); // side by side
  EXPECT_EQ(plan("L(LN)(NL)L(LN)", 10), "2{ 1L 1LN 1NL 1L 1LN } ");

  ModelSpec spec;
  spec.layerPattern = "LLLN";
  spec.ffnPattern = "D";
  spec.numLayers = 8;
  auto groups = planLayers(spec, 0, 8);
  EXPECT_EQ(groups[0].runs[0].layers, (std::vector<int32_t>{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(groups[0].runs[1].layers, (std::vector<int32_t>{3, 7}));
  // Of a stage: what repeats in it, by the numbers of the model.
  groups = planLayers(spec, 3, 8);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].runs[0].layers, (std::vector<int32_t>{3}));
  EXPECT_EQ(groups[0].runs[1].layers, (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ(groups[0].runs[2].layers, (std::vector<int32_t>{7}));
}

TEST(LayerPlan, Stages) {
  using Begins = std::vector<int64_t>;
  std::vector<double> equal(8, 1.0);
  EXPECT_EQ(shareOut(equal, 0, 2), (Begins{0, 4, 8}));
  EXPECT_EQ(shareOut(equal, 0, 8), (Begins{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(shareOut(equal, 2, 2), (Begins{0, 5, 8})); // the head is as dear as two layers
  EXPECT_EQ(shareOut(equal, 100, 4)[3], 8); // none beside a head that is dearer than all
  EXPECT_EQ(shareOut(equal, 2, 5), (Begins{0, 2, 4, 6, 8, 8}));
  EXPECT_EQ(shareOut({5, 1, 1, 1, 5}, 0, 3), (Begins{0, 1, 4, 5}));
  // Of equally dear ones the most even: 3, 3, 2 and not 3, 2, 3 or 2, 3, 3 by chance of a search.
  auto begins = shareOut(equal, 0, 3);
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < begins.size(); ++i)
    sizes.push_back(begins[i] - begins[i - 1]);
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<int64_t>{2, 3, 3}));
}
