#include "test/runtime/conformance/ShardedProgram.h"

#include "test/runtime/TestProgram.h"

namespace braid::runtime::test {

std::shared_ptr<const Program> shardedProgram(uint32_t dp, uint32_t tp, uint32_t ep, int64_t width,
                                              std::vector<int32_t> layers, bool extra, Kept kept, uint32_t pp) {
  TestProgram program;
  bool meshed = pp * dp * tp > 1;
  if (meshed) {
    if (pp > 1)
      program.axis("pp", pp);
    program.axis("dp", dp);
    program.axis("tp", tp);
    if (pp > 1)
      program.axis("pp", pp, true);
    program.axis("edp", dp * tp / ep, true);
    program.axis("ep", ep, true);
  }
  uint32_t stage = 0;
  uint64_t offset = 0;
  // Every rank has a part of what all have the whole parameter of.
  auto share = [&](schema::TensorT &tensor) {
    tensor.shape[0] /= dp * tp;
    tensor.bytes /= dp * tp;
    tensor.shards.push_back(std::make_unique<schema::ShardT>());
    tensor.shards.back()->axis = "dp*tp";
  };
  auto add = [&](const std::string &name, std::vector<int64_t> shape, std::vector<int32_t> stacked,
                 std::vector<std::pair<uint32_t, std::string>> shards, bool sharedMoments = false) {
    std::vector<std::string> slots = {"", "first", "second", kept == Kept::bf16WithMaster ? "master" : "low"};
    slots.resize(kept == Kept::f32 ? 3 : kept == Kept::bf16Alone ? 1 : 4);
    for (const std::string &slot : slots) {
      schema::DType dtype = slot.empty() && kept != Kept::f32                ? schema::DType::bf16
                            : slot == "low"                                  ? schema::DType::i16
                            : !slot.empty() && kept == Kept::bf16WithMoments ? schema::DType::bf16
                                                                             : schema::DType::f32;
      schema::TensorT &tensor = program.tensor(slot.empty() ? name : name + "/" + slot, dtype, shape, stage, offset,
                                               slot.empty() ? schema::Role::parameter : schema::Role::moment, stacked);
      if (!slot.empty() && sharedMoments && meshed)
        share(tensor);
      if (!slot.empty()) {
        tensor.of = name;
        tensor.slot = slot;
      }
      for (auto [dim, axis] : shards) {
        if (!meshed)
          continue;
        tensor.shards.push_back(std::make_unique<schema::ShardT>());
        tensor.shards.back()->dim = dim;
        tensor.shards.back()->axis = axis;
      }
      offset += (tensor.bytes + 63) / 64 * 64;
    }
  };
  for (; stage < pp; ++stage) {
    uint32_t arena = program.arena("parameters", 1 << 16);
    offset = 0;
    auto part = [&](uint32_t at) { return layers.begin() + static_cast<ptrdiff_t>(layers.size() * at / pp); };
    std::vector<int32_t> own(part(stage), part(stage + 1));
    bool first = stage == 0, last = stage + 1 == pp;
    if (first || last)
      add("embed.weight", {5, width}, {}, {});
    add("layers.{}.wq", {width, 6 / tp}, own, {{1, "tp"}});
    add("layers.{}.experts", {4 / ep, 3, width / (dp * tp / ep)}, own, {{0, "ep"}, {2, "edp"}});
    if (first)
      add("flat", {24 / (dp * tp)}, {}, {{0, "dp*tp"}});
    if (last)
      add("scale", {}, {}, {});
    add("layers.{}.shared", {8, 3}, own, {}, /*sharedMoments=*/true);
    if (extra && last)
      add("extra", {1}, {}, {});
    schema::EntryT &entry = program.entry("main", {});
    if (pp > 1)
      program.arenas[arena]->stage = entry.stage = static_cast<int32_t>(stage);
  }
  auto parsed = Program::parse(program.bytes(), "sharded.braid");
  EXPECT_TRUE(parsed) << parsed.message();
  return parsed ? *parsed : nullptr;
}

float valueAt(const std::string &name, const std::vector<int64_t> &index) {
  uint32_t hash = 17;
  for (char c : name)
    hash = hash * 31 + static_cast<uint32_t>(c);
  float value = static_cast<float>(hash % 1000);
  for (int64_t i : index)
    value = value * 16 + static_cast<float>(i);
  return value;
}

static void fillTensors(Rank &rank) {
  forEach(rank, [](float &value, const std::string &name, const std::vector<int64_t> &index) {
    value = valueAt(name, index);
  });
}

Status saveFilled(Rank &rank, const std::string &directory, uint64_t step, int keep) {
  fillTensors(rank);
  CheckpointState state;
  state.step = step;
  state.dataPosition = 8 * step;
  state.seed = 0xfedcba9876543210;
  state.corpusHash = UINT64_MAX;
  state.learningRate = 0.1;
  return saveCheckpoint(rank, directory, state, keep);
}

} // namespace braid::runtime::test
