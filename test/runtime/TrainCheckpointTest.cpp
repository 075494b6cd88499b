#include "test/runtime/TrainFixture.h"
#include "test/runtime/conformance/ShardedProgram.h"

#include "runtime/Bf16.h"
#include "runtime/io/Safetensors.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/ImportedConfig.h"

#include <nlohmann/json.hpp>
#include <unistd.h>

namespace braid::runtime::test {
namespace {

// The files of an f32 program and of a bf16 program with masters hold the same; each reads the other's, on any mesh.
TEST(TrainCheckpoint, Bf16AndF32ReadEachOther) {
  struct Mesh {
    uint32_t dp, tp, ep, pp = 1;
  };
  auto program = [](Mesh mesh, Kept kept) {
    return shardedProgram(mesh.dp, mesh.tp, mesh.ep, 12, {0, 3}, false, kept, mesh.pp);
  };
  const Kept all[] = {Kept::f32, Kept::bf16WithMaster, Kept::bf16WithLow, Kept::bf16WithMoments, Kept::bf16Alone};
  for (Mesh from : {Mesh{1, 1, 1}, {2, 2, 4}, {2, 1, 2, 2}})
    for (Mesh to : {Mesh{1, 1, 1}, {2, 2, 2}, {1, 2, 2, 2}})
      for (Kept writer : all)
        for (Kept reader : all) {
          TemporaryDirectory directory;
          onRanks(program(from, writer), [&](Rank &rank) { return saveFilled(rank, directory.str(), 7); });
          bool weightsOnly = writer == Kept::bf16Alone;
          onRanks(program(to, reader), [&](Rank &rank) -> Status {
            BRAID_TRY(loadCheckpoint(rank, directory.str(), weightsOnly ? Restored::weights : Restored::all).status());
            int64_t wrong = 0, moments = 0;
            forEach(rank, [&](float &value, const std::string &name, const std::vector<int64_t> &index) {
              bool moment = name.ends_with(".first") || name.ends_with(".second");
              moments += moment;
              // Not filled: only the weights are.
              bool master = hasMaster(reader) && weightsOnly;
              float exact = valueAt(name, index), rounded = fromBf16(toBf16(exact));
              bool half = writer == Kept::bf16Alone || reader == Kept::bf16Alone ||
                          (moment && (writer == Kept::bf16WithMoments || reader == Kept::bf16WithMoments));
              if (!master && !(moment && weightsOnly))
                wrong += value != (half ? rounded : exact);
            });
            EXPECT_EQ(wrong, 0) << static_cast<int>(writer) << " read by " << static_cast<int>(reader);
            EXPECT_EQ(moments > 0, reader != Kept::bf16Alone);
            // The weights themselves, whatever stands for them in the files.
            if (hasMaster(reader))
              forEach(
                  rank,
                  [&](float &value, const std::string &name, const std::vector<int64_t> &index) {
                    bool moment = name.ends_with(".first") || name.ends_with(".second");
                    wrong += !moment && value != fromBf16(toBf16(valueAt(name, index)));
                  },
                  Of::weights);
            EXPECT_EQ(wrong, 0) << "weights are masters, rounded";
            return Status::success();
          });
        }
}

// Every f32 is its bf16 and 16 bits, but for the sign of another number where it is half way above an even one.
TEST(TrainCheckpoint, MastersInPartsLoseNothing) {
  auto expect = [](uint32_t bits) {
    float value = std::bit_cast<float>(bits);
    MasterParts parts = splitMaster(value);
    float joined = joinMaster(parts);
    if (std::isnan(value))
      return std::isnan(joined) && std::isnan(fromBf16(parts.high));
    bool half = (bits & 0xffff) == 0x8000 && (bits >> 16) % 2 == 0;
    return std::bit_cast<uint32_t>(joined) == bits && parts.high == toBf16(value) && parts.above == half;
  };
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    for (uint32_t lower : {0u, 1u, 2u, 0x7fffu, 0x8000u, 0x8001u, 0xc000u, 0xfffeu, 0xffffu})
      ASSERT_TRUE(expect(upper << 16 | lower)) << upper << ", " << lower;
  for (uint32_t upper : {0u, 0x8000u, 0x007fu, 0x3f80u, 0x3fffu, 0xbf7fu, 0x7f7fu, 0xff7fu, 0x7f80u})
    for (uint32_t lower = 0; lower < 0x10000; ++lower)
      ASSERT_TRUE(expect(upper << 16 | lower)) << upper << ", " << lower;
  EXPECT_EQ(splitMaster(0x1.01p0f).high, 0x3f80);
  EXPECT_EQ(splitMaster(0x1.01p0f).low, splitMaster(0x1.ffp-1f).low) << "16 bits do not tell them apart";
}

// The upper bit of every element, and nothing else of it.
TEST(TrainCheckpoint, SignsOfMastersAreThoseOfMoments) {
  std::vector<float> wide = {1.5f, 0.0f, 3e-39f, 2.0f};
  std::vector<uint16_t> halves = {0x3fc0, 0, 1, 0x4000};
  auto check = [](auto &values, auto mask) {
    const auto before = values;
    MasterSigns signs(std::as_writable_bytes(std::span(values)), sizeof(values[0]));
    ASSERT_EQ(signs.size(), values.size());
    for (size_t at : {1u, 2u})
      signs.set(at, true);
    for (size_t at = 0; at < values.size(); ++at) {
      bool marked = at == 1 || at == 2;
      EXPECT_EQ(signs[at], marked) << at;
      EXPECT_EQ(std::bit_cast<decltype(mask)>(values[at]),
                std::bit_cast<decltype(mask)>(before[at]) | (marked ? mask : 0))
          << at;
      signs.set(at, false);
    }
    EXPECT_EQ(values, before);
  };
  check(wide, uint32_t(0x80000000));
  check(halves, uint16_t(0x8000));
}

TEST(TrainCheckpoint, FilesOfMastersInPartsAreThoseOfMasters) {
  TemporaryDirectory whole, parts;
  onRanks(shardedProgram(2, 2, 4, 12, {0, 3}, false, Kept::bf16WithMaster),
          [&](Rank &rank) { return saveFilled(rank, whole.str(), 7); });
  std::atomic<int64_t> signs = 0;
  onRanks(shardedProgram(2, 2, 4, 12, {0, 3}, false, Kept::bf16WithLow), [&](Rank &rank) {
    Status saved = saveFilled(rank, parts.str(), 7);
    for (const TensorInfo &tensor : rank.program().tensors())
      if (tensor.slot == "second")
        for (float value : rank.session().tensor(tensor).as<float>())
          signs += std::signbit(value);
    return saved;
  });
  EXPECT_GT(signs, 0) << "no master is half way above an even parameter";
  for (int rank = 1; rank <= 4; ++rank)
    for (const char *stem : {"model", "optimizer"}) {
      std::string file = fmt::format("/step-00000007/{}-{:05}-of-00004.safetensors", stem, rank);
      EXPECT_EQ(readText(whole.str() + file), readText(parts.str() + file)) << file;
    }
}

// Of a tensor that two stages hold there is one piece, and it is that of the first.
TEST(TrainCheckpoint, AStageWritesWhatNoneBeforeItHas) {
  TemporaryDirectory directory;
  onRanks(shardedProgram(2, 1, 2, 12, {0, 3}, false, Kept::f32, 2), [&](Rank &rank) -> Status {
    EXPECT_EQ(rank.program().ownStage(), static_cast<uint32_t>(rank.index()) / 2);
    return saveFilled(rank, directory.str(), 7);
  });
  std::string step = directory / "step-00000007";
  auto json = nlohmann::json::parse(readText(step + "/index.json"));
  std::map<std::string, std::vector<int>> writers; // by the name of a tensor
  for (const auto &[name, tensor] : json["tensors"].items())
    for (const auto &piece : tensor["pieces"])
      writers[name].push_back(piece["file"].get<std::string>().at(std::string("model-0000").size()) - '0');
  for (const char *name : {"embed.weight", "layers.0.wq", "layers.0.shared"})
    EXPECT_EQ(writers[name], std::vector<int>{1}) << name;
  for (const char *name : {"scale", "layers.3.wq"})
    EXPECT_EQ(writers[name], std::vector<int>{3}) << name;
  EXPECT_EQ(writers["layers.3.experts"], (std::vector<int>{3, 4}));
  EXPECT_EQ(json["tensors"]["embed.weight.second"]["pieces"].size(), 1u);
  EXPECT_EQ(json["tensors"].size(), 27u) << "as without stages";
  // What a tied tensor holds in a later stage is read from there.
  onRanks(shardedProgram(1, 1, 1, 12, {0, 3}, false, Kept::f32, 2), [&](Rank &rank) -> Status {
    BRAID_TRY(loadCheckpoint(rank, directory.str(), Restored::all).status());
    EXPECT_EQ(values<float>(rank.session(), "embed.weight")[7], valueAt("embed.weight", {0, 7}));
    EXPECT_EQ(values<float>(rank.session(), "embed.weight/second")[7], valueAt("embed.weight.second", {0, 7}));
    return Status::success();
  });
}

// Names are those of the model: what another stage has is not missing, and not too much.
TEST(TrainCheckpoint, StagesTogetherHaveTheModelsTensors) {
  TemporaryDirectory more, less;
  onRanks(shardedProgram(1, 1, 1, 12, {0, 3}, /*extra=*/true),
          [&](Rank &rank) { return saveFilled(rank, more.str(), 1); });
  onRanks(shardedProgram(1, 1, 1), [&](Rank &rank) { return saveFilled(rank, less.str(), 1); });
  auto staged = [](bool extra) { return shardedProgram(1, 1, 1, 12, {0, 3}, extra, Kept::f32, 2); };
  onRanks(staged(false), [&](Rank &rank) -> Status {
    EXPECT_NE(loadCheckpoint(rank, more.str(), Restored::all)
                  .message()
                  .find("holds tensor 'extra' (and 2 more), which program"),
              std::string::npos);
    return Status::success();
  });
  onRanks(staged(true), [&](Rank &rank) -> Status { // also of the stage that would not have it
    EXPECT_NE(
        loadCheckpoint(rank, less.str(), Restored::all).message().find("lacks tensor 'extra' (and 2 more) of program"),
        std::string::npos);
    return Status::success();
  });
}

TEST(TrainCheckpoint, FilesAreWhatOthersExpect) {
  TemporaryDirectory directory;
  onRanks(shardedProgram(1, 1, 1), [&](Rank &rank) { return saveFilled(rank, directory.str(), 123); });
  std::string step = directory / "step-00000123";
  EXPECT_EQ(readText(directory / "latest"), "step-00000123\n");
  auto weights = SafetensorsFile::open(step + "/model.safetensors");
  auto moments = SafetensorsFile::open(step + "/optimizer.safetensors");
  ASSERT_TRUE(weights && moments);
  EXPECT_EQ(weights->entries().size(), 9u);
  EXPECT_EQ(moments->entries().size(), 18u);
  ASSERT_TRUE(weights->find("layers.3.wq"));
  EXPECT_EQ(weights->find("layers.3.wq")->shape, (std::vector<int64_t>{12, 6}));
  EXPECT_TRUE(moments->find("layers.3.wq.second"));
  auto json = nlohmann::json::parse(readText(step + "/index.json"));
  EXPECT_EQ(json["tensors"]["layers.0.experts"]["shape"], (std::vector<int>{4, 3, 12}));
  EXPECT_EQ(json["step"], 123);
}

TEST(TrainCheckpoint, WeightsAloneNeedNoMoments) {
  TemporaryDirectory directory;
  auto program = shardedProgram(1, 1, 1);
  onRanks(program, [&](Rank &rank) { return saveFilled(rank, directory.str(), 1); });
  std::filesystem::remove(directory / "step-00000001/optimizer.safetensors");
  onRanks(program, [&](Rank &rank) -> Status {
    BRAID_TRY(loadCheckpoint(rank, directory / "step-00000001", Restored::weights).status());
    EXPECT_EQ(values<float>(rank.session(), "scale")[0], valueAt("scale", {}));
    EXPECT_EQ(values<float>(rank.session(), "scale/first")[0], 0);
    auto all = loadCheckpoint(rank, directory.str(), Restored::all);
    EXPECT_NE(all.message().find("optimizer.safetensors: cannot open"), std::string::npos) << all.message();
    return Status::success();
  });
}

TEST(TrainCheckpoint, KeepsTheNewest) {
  TemporaryDirectory directory;
  onRanks(shardedProgram(1, 1, 1), [&](Rank &rank) -> Status {
    // What a killed run leaves behind.
    std::filesystem::create_directories(directory / ".tmp-step-00000009");
    writeText(directory / ".tmp-step-00000009/model.safetensors", "half");
    for (uint64_t step : {10, 20, 30, 40})
      BRAID_TRY(saveFilled(rank, directory.str(), step, /*keep=*/2));
    EXPECT_EQ(*listCheckpoints(directory.str()), (std::vector<uint64_t>{30, 40}));
    BRAID_TRY(saveFilled(rank, directory.str(), 40, 2)); // over itself
    EXPECT_EQ(*listDirectory(directory.str()), (std::vector<std::string>{"latest", "step-00000030", "step-00000040"}));
    return Status::success();
  });
  EXPECT_EQ(*resolveCheckpoint(directory.str()), directory / "step-00000040");
  EXPECT_EQ(*resolveCheckpoint(directory / "step-00000030"), directory / "step-00000030");
  EXPECT_EQ(listCheckpoints(directory / "none")->size(), 0u);
  EXPECT_NE(resolveCheckpoint(directory / "none").message().find("holds no checkpoint (there is no such directory)"),
            std::string::npos);
  EXPECT_NE(resolveCheckpoint(directory / "latest").message().find("latest: is a file; valid: a checkpoint, which is"),
            std::string::npos);
  std::filesystem::remove(directory / "latest"); // killed before it was written
  EXPECT_EQ(*resolveCheckpoint(directory.str()), directory / "step-00000040");
  writeText(directory / "latest", "../elsewhere");
  EXPECT_NE(
      resolveCheckpoint(directory.str()).message().find("holds '../elsewhere', which is not the name of a checkpoint"),
      std::string::npos);
  writeText(directory / "latest", "step-00000077\n");
  EXPECT_NE(resolveCheckpoint(directory.str()).message().find("has no index.json"), std::string::npos);
}

std::string loadError(const std::shared_ptr<const Program> &program, const std::string &directory) {
  std::string message;
  onRanks(program, [&](Rank &rank) -> Status {
    auto loaded = loadCheckpoint(rank, directory, Restored::all);
    EXPECT_FALSE(loaded);
    message = loaded ? "" : loaded.message();
    return Status::success();
  });
  return message;
}

TEST(TrainCheckpoint, NamesWhatDoesNotFit) {
  TemporaryDirectory directory;
  onRanks(shardedProgram(1, 1, 1), [&](Rank &rank) { return saveFilled(rank, directory.str(), 1); });
  auto expect = [&](const std::shared_ptr<const Program> &program, std::string_view part) {
    std::string message = loadError(program, directory.str());
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(shardedProgram(1, 1, 1, 24),
         "tensor 'embed.weight' has shape [5, 12] in the checkpoint but [5, 24] in the program");
  expect(shardedProgram(1, 1, 1, 12, {0, 3}, true), "lacks tensor 'extra' (and 2 more) of program");
  expect(shardedProgram(1, 1, 1, 12, {0}), "holds tensor 'layers.3.experts' (and 8 more), which program");
}

TEST(TrainCheckpoint, BrokenFilesAreErrors) {
  TemporaryDirectory directory;
  auto program = shardedProgram(1, 1, 1);
  onRanks(program, [&](Rank &rank) { return saveFilled(rank, directory.str(), 1); });
  std::string indexPath = directory / "step-00000001/index.json",
              weights = directory / "step-00000001/model.safetensors";
  const std::string index = readText(indexPath), file = readText(weights);

  auto breakIndex = [&](const std::string &from, const std::string &to, std::string_view part) {
    std::string changed = index;
    size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    changed.resize(changed.rfind(",\n \"content_hash\""));
    writeText(indexPath, CheckpointIndex::seal(changed + "\n}\n")); // below a hash that fits
    std::string message = loadError(program, directory.str());
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("step-00000001"), std::string::npos) << message;
  };
  breakIndex("\"braid-checkpoint\"", "\"other\"", "format is 'other', not 'braid-checkpoint'");
  breakIndex("\"version\": 3", "\"version\": 9", "version 9, but this build reads version 3");
  breakIndex("\"step\": 1", "\"step\": -1", "step: must be a non-negative integer");
  breakIndex("\"step\": 1", "\"stop\": 1", "step: must be a non-negative integer");
  breakIndex("\"dtype\":\"f32\"", "\"dtype\":\"f16\"", "tensors['embed.weight'].dtype: must be one of f32");
  breakIndex("\"dtype\":\"f32\"", "\"dtype\":\"i32\"", "tensor 'embed.weight' is i32 in the checkpoint but f32 in");
  breakIndex("\"role\":\"parameter\"", "\"role\":\"input\"", "tensors['embed.weight'].role: must be 'parameter' or");
  breakIndex("\"role\":\"parameter\"", "\"role\":\"moment\"",
             "is saved as a moment, but is a parameter of the program");
  breakIndex("\"offset\":[0,0]", "\"offset\":[1,0]",
             "offset [1, 0] and shape [5, 12] leave the tensor's shape [5, 12]");
  breakIndex("\"offset\":[0,0]", "\"offset\":[0]",
             "offset [0] and shape [5, 12] do not have the tensor's 2 dimensions");
  breakIndex("\"shape\":[5,12],\"pieces\"", "\"shape\":[6,12],\"pieces\"",
             "its pieces hold 60 elements, but the shape [6, 12] has 72");
  breakIndex("\"file\":\"model", "\"file\":\"../model", "'../model.safetensors' is not the plain name of a file");
  breakIndex("\"file\":\"model", "\"file\":\"optimizer", "optimizer.safetensors: lacks tensor 'embed.weight'");
  breakIndex("\"pieces\":[{", "\"pieces\":[7,{", "pieces: must be an array of objects");
  breakIndex("\"tensors\"", "\"tensor\"", "tensors: must be an object");
  breakIndex("\"files\"", "\"file\"", "files: must be an object");
  breakIndex("\"bytes\":", "\"size\":", "files['model.safetensors'].bytes: must be a non-negative integer");
  breakIndex("\"hash\":\"", "\"hash\":\"x", "files['model.safetensors'].hash: must be 32 hexadecimal digits");
  breakIndex("\"model.safetensors\": {", "\"m.safetensors\": {",
             "tensors['embed.weight']: its file 'model.safetensors' is not among the files");
  for (size_t length = 0; length < index.size(); length += 97) {
    writeText(indexPath, std::string_view(index).substr(0, length));
    EXPECT_NE(loadError(program, directory.str()), "") << length;
  }
  writeText(indexPath, index);
  for (size_t length = 0; length < file.size(); length += 311) {
    writeText(weights, std::string_view(file).substr(0, length));
    EXPECT_NE(loadError(program, directory.str()), "") << length;
  }
  // A flipped bit anywhere, also where the structure stays whole.
  auto flip = [&](const std::string &path, const std::string &good, size_t at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1 << at % 8);
    writeText(path, bad);
    std::string message = loadError(program, directory.str());
    writeText(path, good);
    return message;
  };
  writeText(weights, file);
  EXPECT_NE(flip(weights, file, file.size() - 5).find("model.safetensors: is damaged: its content hash is "),
            std::string::npos);
  std::string later = index; // a plausible lie
  later.replace(later.find("\"step\": 1"), 9, "\"step\": 3");
  writeText(indexPath, later);
  EXPECT_NE(loadError(program, directory.str()).find("is damaged or was changed: its content hash is "),
            std::string::npos);
  writeText(indexPath, index);
  for (size_t at = 0; at < index.size(); at += 61)
    EXPECT_NE(flip(indexPath, index, at), "") << at;
  for (size_t at = 0; at < file.size(); at += 203)
    EXPECT_NE(flip(weights, file, at), "") << at;
  writeText(weights, file + "x");
  EXPECT_NE(loadError(program, directory.str())
                .find(fmt::format("has {} bytes, but index.json says {}", file.size() + 1, file.size())),
            std::string::npos);
  writeText(weights, file);
  onRanks(program, [&](Rank &rank) { return loadCheckpoint(rank, directory.str(), Restored::all).status(); });
}

TEST(TrainCheckpoint, ADamagedOneNamesAnEarlierOne) {
  TemporaryDirectory directory;
  auto program = shardedProgram(1, 1, 1);
  onRanks(program, [&](Rank &rank) -> Status {
    BRAID_TRY(saveFilled(rank, directory.str(), 1));
    return saveFilled(rank, directory.str(), 2);
  });
  std::string weights = directory / "step-00000002/model.safetensors", file = readText(weights);
  writeText(weights, std::string_view(file).substr(0, file.size() / 2));
  std::string message = loadError(program, directory.str());
  EXPECT_NE(message.find(fmt::format(
                "; complete earlier checkpoints in {}: 1; go on from one with train --resume-step=1", directory.str())),
            std::string::npos)
      << message;
  // What the message says to do works.
  std::filesystem::rename(directory / "step-00000002", directory / "away");
  std::filesystem::remove(directory / "latest");
  onRanks(program, [&](Rank &rank) -> Status {
    BRAID_ASSIGN(CheckpointState state, loadCheckpoint(rank, directory.str(), Restored::all));
    EXPECT_EQ(state.step, 1u);
    return Status::success();
  });
}

TEST(TrainCheckpoint, OneWriterAtATime) {
  TemporaryDirectory directory;
  auto first = DirectoryLock::acquire(directory.str());
  ASSERT_TRUE(first) << first.message();
  auto second = DirectoryLock::acquire(directory.str());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.message(), fmt::format("{}: another training run (process {}) writes its checkpoints there",
                                          directory.str(), getpid()));
  {
    DirectoryLock moved = *std::move(first);
    EXPECT_FALSE(DirectoryLock::acquire(directory.str()));
  }
  EXPECT_TRUE(DirectoryLock::acquire(directory.str())); // the file is still there, its holder is not
  EXPECT_NE(DirectoryLock::acquire(directory / "none").message().find("none/.lock: No such file"), std::string::npos);
}

TEST(TrainCheckpoint, OverlappingPiecesAreAnError) {
  auto piece = [](int64_t offset, int64_t extent) { return CheckpointPiece{"model.safetensors", {offset}, {extent}}; };
  auto parse = [&](std::vector<CheckpointPiece> pieces) {
    CheckpointIndex index;
    index.files["model.safetensors"] = {};
    index.tensors["x"] = {Role::parameter, DType::f32, {4}, std::move(pieces)};
    return CheckpointIndex::parse(index.toJson(), "index.json");
  };
  EXPECT_TRUE(parse({piece(0, 2), piece(2, 2)}));
  EXPECT_EQ(parse({piece(0, 2), piece(1, 2)}).message(), "index.json: tensors['x']: pieces[0] and pieces[1] overlap");
  EXPECT_NE(parse({piece(0, 2), piece(3, 1)}).message().find("hold 3 elements, but the shape [4] has 4"),
            std::string::npos);
}

TEST(TrainCheckpoint, AConfigBesideWeightsSaysWhatTheProgramsSaid) {
  TemporaryDirectory directory;
  auto check = [&](const std::string &compiled, const std::string &beside) {
    BigramOptions options;
    options.metadata = {{"model_config", compiled}};
    writeText(directory / "config.json", beside);
    std::string message = checkConfig(*parseProgram(bigramProgram(options)), directory.str()).message();
    return message.substr(0, message.find(", but program"));
  };
  const std::string config = directory / "config.json: ",
                    theta = R"([{"keys": ["rope.theta", "theta"], "value": 10000, "absent": 500}])";
  EXPECT_EQ(check(theta, R"({"model_type": "m", "theta": 1e4})"), "");
  EXPECT_EQ(check(theta, R"({"model_type": "m", "theta": 5, "rope": {"theta": 10000}})"), ""); // the first counts
  EXPECT_EQ(check(theta, R"({"model_type": "m", "theta": 10000, "rope": {"theta": null}})"), "");
  EXPECT_EQ(check(theta, R"({"model_type": "m", "theta": 10000, "rope": [1]})"), "");
  EXPECT_EQ(check(theta, R"({"theta": 5})"), ""); // of whatever it is
  EXPECT_EQ(check(theta, R"({"model_type": "m", "theta": 5})"), config + "theta is 5");
  EXPECT_EQ(check(theta, R"({"model_type": "m", "theta": 10000, "rope": {"theta": 5}})"), config + "rope.theta is 5");
  EXPECT_EQ(check(theta, R"({"model_type": "m"})"), config + "rope.theta is left out, which says 500");
  const std::string window = R"([{"keys": ["window"], "value": null, "absent": 64, "null": null}])";
  EXPECT_EQ(check(window, R"({"model_type": "m", "window": null})"), "");
  EXPECT_EQ(check(window, R"({"model_type": "m"})"), config + "window is left out, which says 64");
  EXPECT_EQ(check(window, R"({"model_type": "m", "window": 64})"), config + "window is 64");
  // As transformers writes it, and as older versions did.
  const std::string limit =
      R"([{"keys": ["limit"], "value": [0, "Infinity"], "absent": [0, {"__float__": "Infinity"}]}])";
  for (const char *same : {"[0.0, Infinity]", R"([0, {"__float__": "Infinity"}])"})
    EXPECT_EQ(check(limit, std::string(R"({"model_type": "m", "limit": )") + same + "}"), "") << same;
  EXPECT_EQ(check(limit, R"({"model_type": "m"})"), "");
  EXPECT_EQ(check(limit, R"({"model_type": "m", "limit": [0.0, 0.05]})"), config + "limit is [0.0,0.05]");
  // What is too long to be shown is by its first difference, where it has the same items.
  const std::string attn = R"({"heads": 4, "layers": [1, 5], "window": 12, "note": ")" + std::string(70, 'x') + R"("})",
                    list = R"([{"keys": ["attn"], "value": [)" + attn + R"(], "absent": null}])";
  auto beside = [&](const std::string &from, const std::string &to) {
    std::string other = attn;
    other.replace(other.find(from), from.size(), to);
    return check(list, R"({"model_type": "m", "attn": [)" + other + "]}");
  };
  EXPECT_EQ(beside("12", "13"), config + "attn[0].window is 13");
  EXPECT_EQ(beside("[1, 5]", "[1, 6]"), config + "attn[0].layers[1] is 6");
  EXPECT_EQ(beside("[1, 5]", "[1]"), config + "attn[0].layers is [1]");
  EXPECT_EQ(beside("heads", "parts"), config + R"(attn[0] is {"layers":[1,5],"note":")" + std::string(56, 'x') + "..");
  EXPECT_EQ(check(list, R"({"model_type": "m", "attn": 5})"), config + "attn is 5");
  EXPECT_EQ(check(list, R"({"model_type": "m"})"), config + "attn is left out, which says null");
  // What no compiler wrote is no crash.
  for (const char *damaged : {"", "{}", "[1]", R"([{"keys": []}])", R"([{"keys": ["a"], "value": 1}])",
                              R"([{"keys": [1], "value": 1, "absent": 1}])"})
    EXPECT_NE(check(damaged, R"({"model_type": "m"})").find("metadata 'model_config' is no list of keys and values"),
              std::string::npos)
        << damaged;
  EXPECT_NE(check(theta, "{").find("config.json: is not JSON"), std::string::npos);
}

} // namespace
} // namespace braid::runtime::test
