// Programs with pipeline stages: what the view of each stage shows, and which files are refused. What ranks of several stages
// do together: conformance/.
#include "test/runtime/conformance/StagedProgram.h"

#include "runtime/comm/ThreadWorld.h"
#include "runtime/schema/ProgramTrailer.h"

#include <functional>
#include <random>

using namespace braid::runtime;
using namespace braid::runtime::test;
namespace schema = braid::schema;

TEST(Stages, AViewShowsItsStageOnly) {
  auto loaded = Staged().parse();
  ASSERT_TRUE(loaded) << loaded.message();
  std::shared_ptr<const Program> first = *loaded;
  EXPECT_EQ(first->stages(), 3u);
  EXPECT_EQ(first->ownStage(), 0u);
  EXPECT_EQ(first->mesh().worldSize(), 6u);
  std::shared_ptr<const Program> last = first->stage(2);
  *loaded = nullptr;
  first = nullptr; // a view keeps the file
  EXPECT_EQ(last->ownStage(), 2u);
  EXPECT_EQ(last->stage(1)->fileHash(), last->fileHash());
  ASSERT_EQ(last->tensors().size(), 3u);
  ASSERT_EQ(last->entries().size(), 1u);
  const EntryInfo &entry = last->entries()[0];
  EXPECT_EQ(entry.index, 2u);
  EXPECT_EQ(entry.inputs, std::vector<uint32_t>{0});
  EXPECT_EQ(entry.outputs, std::vector<uint32_t>{1});
  EXPECT_EQ(last->findTensor("y")->offset, 192u);
  EXPECT_EQ(last->findTensor("layers.{}.w")->layers, (std::vector<int32_t>{4, 5}));
  ASSERT_EQ(last->arenas().size(), 6u);
  EXPECT_EQ(last->arenas()[0].bytes, 0u);
  EXPECT_EQ(last->arenas()[4].bytes, 1024u);
  EXPECT_EQ(last->arenaBytes([](std::string_view) { return true; }), (std::vector<uint64_t>{0, 0, 0, 0, 528, 32}));
  for (uint32_t rank = 0; rank < 6; ++rank)
    EXPECT_EQ(last->ofRank(rank)->ownStage(), rank / 2);
  EXPECT_EQ(last->firstRank(1), 2u);
  EXPECT_TRUE(last->isOn("pp[1,2]") && last->isOn("pp[2,0]") && last->isOn("dp") && last->isOn("pp"));
  EXPECT_FALSE(last->isOn("pp[0,1]"));
}

TEST(Stages, WhatIsLeftOutIsLeftOutOfEveryStage) {
  Staged staged;
  for (int s = 0; s < 3; ++s) {
    schema::EntryT &eval =
        staged.entry("eval_step", list(command(fill(buffer(2 * static_cast<uint32_t>(s), 0, 8), 0))));
    eval.stage = s;
  }
  auto loaded = Program::parse(staged.bytes(), "test.braid", evaluates);
  ASSERT_TRUE(loaded) << loaded.message();
  for (uint32_t s = 0; s < 3; ++s) {
    std::shared_ptr<const Program> view = (*loaded)->stage(s);
    EXPECT_FALSE(view->findEntry("main")->kept);
    EXPECT_TRUE(view->findEntry("eval_step")->kept);
    for (uint32_t arena = 0; arena < 6; ++arena)
      EXPECT_EQ(view->arenas()[arena].bytes, arena / 2 != s ? 0u : arena % 2 ? 32u : 8u);
  }
}

TEST(Stages, ARankIsNotOnAPairOfOthers) {
  TestProgram p; // without stages nobody knows that but the session
  p.axis("pp", 3);
  p.arena("io", 256);
  p.entry("main",
          list(command(collective(schema::CollectiveKind::shift, "pp[0,1]", buffer(0, 0, 4), buffer(0, 4, 4)))));
  auto program = p.parse();
  ASSERT_TRUE(program) << program.message();
  auto world = ThreadWorld::create((*program)->mesh());
  ASSERT_TRUE(world) << world.message();
  for (int rank = 0; rank < 3; ++rank) {
    SessionOptions options;
    options.rank = rank;
    options.worldSize = 3;
    options.comm = &(*world)->group(rank);
    Status status = Session::create(*program, options).status();
    EXPECT_EQ(status.ok(), rank < 2);
    if (rank == 2)
      EXPECT_EQ(status.message(), "entry 'main' command 0: rank 2 is not on axis 'pp[0,1]'");
  }
}

// A ring for GPUs, in which each stage sends before it receives, but one.
static void passOnGpus(Staged &p, uint32_t receiveFirst) {
  p.kernels.clear();
  p.target = "cuda", p.arch = "sm_80";
  for (uint32_t s = 0; s < 3; ++s) {
    auto call = [&](schema::CollectiveKind kind, const std::string &axis, const char *name) {
      auto made = collective(kind, axis, buffer(2 * s, 0, 4), buffer(2 * s, 4, 4));
      made.name = name;
      return command(std::move(made));
    };
    auto on = [&](uint32_t from) {
      return call(schema::CollectiveKind::shift, Staged::pair(static_cast<int>(from), 3), "on");
    };
    uint32_t own = s, before = (s + 2) % 3;
    p.entries[s]->commands = list(call(schema::CollectiveKind::all_reduce, "pp", "begin"),
                                  on(s == receiveFirst ? before : own), on(s == receiveFirst ? own : before));
  }
}

TEST(Stages, MayPassOnInARingWhereOneReceivesFirst) {
  for (uint32_t stage = 0; stage < 3; ++stage) {
    Staged staged;
    passOnGpus(staged, stage);
    EXPECT_TRUE(staged.parse()) << staged.parse().message();
  }
}

TEST(Stages, RefusesEveryBrokenRule) {
  struct Case {
    const char *sentence;
    std::function<void(Staged &)> damage;
  };
  const Case cases[] = {
      {"arena 'io': stage -2; valid: 0 and more, or -1 for none", [](Staged &p) { p.arenas[2]->stage = -2; }},
      {"arena 'io' has a stage, but arena 'parameters' has none", [](Staged &p) { p.arenas[3]->stage = -1; }},
      {"arena 'io' has a stage, but entry 'main' has none", [](Staged &p) { p.entries[2]->stage = -1; }},
      {"arenas of 3 stages, the last of them 2, but the mesh has 2 ranks along pp; valid: stages 0 to 1",
       [](Staged &p) { p.mesh->dense[0]->size = p.mesh->expert[0]->size = 2; }},
      {"arenas of 3 stages, the last of them 3, but the mesh has 3 ranks along pp; valid: stages 0 to 2",
       [](Staged &p) { p.arenas[4]->stage = p.arenas[5]->stage = 3; }},
      {"arenas of 3 stages, the last of them 2, but the mesh has 1 ranks along pp",
       [](Staged &p) { p.mesh->dense[0]->name = p.mesh->expert[0]->name = "qp"; }},
      {"arenas of 0 stages, the last of them -1, but the mesh has 3 ranks along pp",
       [](Staged &p) { p.arenas.clear(), p.tensors.clear(); }},
      {"entry 'main': stage 3; valid: 0 to 2", [](Staged &p) { p.entry("main", {}).stage = 3; }},
      {"entry 'main': stage 0 has it, but stage 1 has not; every stage has the same entries",
       [](Staged &p) { p.entries[1]->stage = 2; }},
      {"entry 'main': stage 0 has it, but stage 2 has not", [](Staged &p) { p.entries.pop_back(); }},
      {"stage 1: entry 'main' is declared twice", [](Staged &p) { p.entry("main", {}).stage = 1; }},
      {"stage 1: arena 'io' is declared twice", [](Staged &p) { p.arenas[3]->name = "io"; }},
      {"stage 2: tensor 'x' is declared twice", [](Staged &p) { p.tensors[7]->name = "x"; }},
      {"tensor 'y': arena 6 of 6", [](Staged &p) { p.tensors[7]->arena = 6; }},
      {"entry 'main': input tensor 9 of 9", [](Staged &p) { p.entries[1]->inputs = {9}; }},
      {"entry 'main' of stage 1: its input 'x' lies in arena 'io' of stage 2",
       [](Staged &p) { p.entries[1]->inputs = {6}; }},
      {"entry 'main' of stage 1: its output 'layers.{}.w' lies in arena 'parameters' of stage 0",
       [](Staged &p) { p.entries[1]->outputs = {2}; }},
      {"stage 1: entry 'main' command 1: buffer 'target': arena 4 'io' is of stage 2, but the entry of stage 1",
       [](Staged &p) {
         p.entries[1]->commands = list(command(fill(buffer(2, 0, 4), 0)), command(fill(buffer(4, 0, 4), 0)));
       }},
      {"stage 1: entry 'main' command 0: a collective of axis 'pp[2,0]', which has no rank of stage 1",
       [](Staged &p) {
         p.entries[1]->commands =
             list(command(collective(schema::CollectiveKind::shift, "pp[2,0]", buffer(2, 0, 4), buffer(2, 4, 4))));
       }},
      {"stage 0: entry 'main' command 0: stream 3 is of axis 'pp[1,2]', which has no rank of stage 0",
       [](Staged &p) { p.entries[0]->commands = list(command(recordEvent(0), "", 3)); }},
      {"the mesh has no axis 'pp[0,3]'", [](Staged &p) { p.streams[2]->axis = "pp[0,3]"; }},
      {"mesh dense: 'p[p' cannot be an axis name", [](Staged &p) { p.mesh->dense[1]->name = "p[p"; }},
      {"tensor 'layers.{}.w' of stage 1 is a part of one that lies across stages, but stage 2 has no such part; valid: "
       "all stages have one, or a tensor is of one stage alone",
       [](Staged &p) {
         p.tensors[5]->shards.push_back(std::make_unique<schema::ShardT>());
         p.tensors[5]->shards[0]->axis = "pp";
       }},
      {"stage 1: tensor 'coordinate.pp[1,2]': 'pp[1,2]' is a pair of stages; valid: an axis that every rank is on",
       [](Staged &p) { p.tensor("coordinate.pp[1,2]", schema::DType::i32, {1}, 2, 0); }},
      {"entry 'main': stage 0 calls 1 collectives on axis 'pp[0,1]', but stage 1 calls 0",
       [](Staged &p) { p.entries[1]->commands.clear(); }},
      {"entry 'main': collective 0: ranks disagree on axis pp[0,1]: rank 0 calls shift '' of 16 bytes f32, rank 2 "
       "calls reverse "
       "shift '' of 16 bytes f32",
       [](Staged &p) { p.entries[1]->commands[0]->body.AsCollective()->reverse = true; }},
      {"entry 'main': collective 1: ranks disagree on axis pp: rank 0 calls all_reduce 'a' of 4 bytes f32, rank 4 "
       "calls all_reduce "
       "'b' of 4 bytes f32",
       [](Staged &p) {
         for (uint32_t s = 0; s < 3; ++s) {
           auto sum = [&](const char *name) {
             auto made = collective(schema::CollectiveKind::all_reduce, "pp", buffer(2 * s, 0, 4), buffer(2 * s, 0, 4));
             made.name = name;
             return command(std::move(made));
           };
           p.entries[s]->commands = list(command(repeat(1, list(sum("a")))), sum(s == 2 ? "b" : "a"));
         }
       }},
      {"entry 'main': stages wait for each other: stage 0 in shift 'on' on axis pp[0,1] (its number 1), stage 1 in "
       "shift 'on' on axis "
       "pp[1,2] (its number 1), stage 2 in shift 'on' on axis pp[2,0] (its number 1); valid: on GPUs,",
       [](Staged &p) { passOnGpus(p, 3); }},
      {"parameter 'v' is f32 [4] in stage 0, but f32 [2] in stage 2; valid: one tensor in both",
       [](Staged &p) {
         p.tensor("v", schema::DType::f32, {4}, 1, 512, schema::Role::parameter);
         p.tensor("v", schema::DType::f32, {2}, 5, 512, schema::Role::parameter);
       }},
      {"stage 2: tensor 'm' belongs to 'v', which does not exist", // stage 0 has one
       [](Staged &p) {
         p.tensor("v", schema::DType::f32, {4}, 1, 512, schema::Role::parameter);
         auto &moment = p.tensor("m", schema::DType::f32, {4}, 5, 512, schema::Role::moment);
         moment.of = "v", moment.slot = "first";
       }},
  };
  for (const Case &broken : cases) {
    Staged staged;
    broken.damage(staged);
    auto loaded = staged.parse();
    EXPECT_FALSE(loaded) << "accepted, expected: " << broken.sentence;
    EXPECT_NE(loaded.message().find(broken.sentence), std::string::npos)
        << "expected: " << broken.sentence << "\n     got: " << loaded.message();
  }
}

// Flipped bytes below a hash that fits are refused or harmless; the sanitizers see the rest.
TEST(Stages, SurviveRandomDamage) {
  Staged staged(2, 1);
  staged.code->bytes.resize(16);
  staged.code->sha256 = sha256(std::as_bytes(std::span(staged.code->bytes)));
  std::vector<std::byte> good = staged.bytes();
  ASSERT_TRUE(Program::parse(good, "f"));
  good.resize(good.size() - schema::ProgramTrailer::bytes);
  std::mt19937 random(5);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bad = good;
    for (unsigned flips = 1 + random() % 4; flips-- > 0;)
      bad[random() % bad.size()] = static_cast<std::byte>(random() % 4 ? random() % 4 : random() % 2 * 255);
    Program::seal(bad);
    accepted += Program::parse(std::move(bad), "f").ok();
  }
  EXPECT_LT(accepted, 20000);
}
