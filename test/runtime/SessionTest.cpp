// Launches, repeats, gemms, copies and fills of one rank.
#include "test/runtime/TestProgram.h"

#include "runtime/RunWatcher.h"
#include "runtime/Trace.h"

#include "runtime/ThreadPool.h"

#include <set>

using namespace braid::runtime;
using namespace braid::runtime::test;
namespace schema = braid::schema;

TEST(Session, LaunchPassesArgumentsByNameAndKind) {
  TestProgram p;
  p.addKernels();
  p.arena("io", 4096);
  p.tensor("x", schema::DType::f32, {32}, 0, 0);
  p.tensor("y", schema::DType::f32, {32}, 0, 128);
  p.tensor("out", schema::DType::f32, {32}, 0, 256);
  p.tensor("grid", schema::DType::f64, {24}, 0, 512);
  // Arguments come in another order than parameters.
  p.entry("main", list(command(launch(addScaled, {32, 1, 1}, arg("scale", 0.5), arg("out", buffer(0, 256, 128)),
                                      arg("y", buffer(0, 128, 128)), arg("x", buffer(0, 0, 128)))),
                       command(launch(coordinates, {2, 3, 4}, arg("gain", 0.25), arg("base", int64_t(-7)),
                                      arg("out", buffer(0, 512, 192))))));
  for (int threads : {1, 2, 5}) {
    auto session = p.session(threads);
    ASSERT_TRUE(session);
    EXPECT_EQ(session->threads(), threads);
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(values<float>(*session, "out")[i], 0.0f);
      values<float>(*session, "x")[i] = static_cast<float>(i);
      values<float>(*session, "y")[i] = 100;
    }
    runEntry(*session);
    for (int i = 0; i < 32; ++i)
      EXPECT_EQ(values<float>(*session, "out")[i], static_cast<float>(i) + 50);
    for (int z = 0, i = 0; z < 4; ++z)
      for (int y = 0; y < 3; ++y)
        for (int x = 0; x < 2; ++x, ++i)
          EXPECT_EQ(values<double>(*session, "grid")[i], -7 + 0.25 * (x + 10 * y + 100 * z));
  }
}

TEST(Session, RangesCoverTheGridOnce) {
  for (uint64_t programs : {1, 2, 3, 7, 1000}) {
    TestProgram p;
    p.addKernels();
    p.arena("io", 16384);
    p.tensor("begin", schema::DType::i64, {1000}, 0, 0);
    p.tensor("counts", schema::DType::i64, {1000}, 0, 8000);
    p.entry("main", list(command(launch(ranges, {programs, 1, 1}, arg("out", buffer(0, 0, 8000)),
                                        arg("counts", buffer(0, 8000, 8000))))));
    auto session = p.session(3);
    ASSERT_TRUE(session);
    runEntry(*session);
    std::set<int64_t> begins;
    for (uint64_t i = 0; i < 1000; ++i) {
      EXPECT_EQ(values<int64_t>(*session, "counts")[i], i < programs ? 1 : 0);
      if (i < programs)
        begins.insert(values<int64_t>(*session, "begin")[i]);
    }
    EXPECT_EQ(begins.size(), std::min<uint64_t>(programs, 3));
  }
}

namespace {

// Counts what a watcher of every command, and a trace, are told.
struct Counter : RunWatcher, TraceSink {
  explicit Counter(bool every) : every(every) {}
  bool everyCommand() const override { return every; }
  void before(const WatchedCommand &) override { ++watched; }
  void command(const TraceEvent &) override { ++traced; }
  bool every;
  int watched = 0, traced = 0;
};

} // namespace

// Joined launches of 1, 700, 3, 2 and 200 programs, in a repeat that moves their buffers: every program once, in one
// start.
TEST(Session, JoinedLaunchesCoverTheirGridsOnce) {
  const std::vector<uint64_t> grids = {1, 700, 3, 2, 200};
  constexpr uint64_t most = 700, rounds = 2;
  TestProgram p;
  p.checkMemory = false;
  p.addKernels();
  uint64_t bytes = most * 8, all = grids.size() * rounds * bytes;
  p.arena("io", 2 * all);
  p.tensor("begin", schema::DType::i64, {static_cast<int64_t>(all / 8)}, 0, 0);
  p.tensor("counts", schema::DType::i64, {static_cast<int64_t>(all / 8)}, 0, all);
  std::vector<CommandPtr> commands;
  for (uint64_t i = 0; i < grids.size(); ++i) {
    auto stride = static_cast<int64_t>(grids.size() * bytes);
    commands.push_back(command(launch(ranges, {grids[i], 1, 1}, arg("out", buffer(0, i * bytes, bytes, {stride})),
                                      arg("counts", buffer(0, all + i * bytes, bytes, {stride})))));
    commands.back()->joined = i > 0;
  }
  p.entry("main", list(command(repeat(rounds, std::move(commands)))));
  for (int threads : {1, 2, 5})
    for (bool every : {false, true}) {
      auto session = p.session(threads);
      ASSERT_TRUE(session);
      Counter counter(every);
      session->setWatcher(&counter);
      session->setTrace(&counter);
      runEntry(*session);
      for (uint64_t i = 0; i < all / 8; ++i)
        EXPECT_EQ(values<int64_t>(*session, "counts")[i], i % most < grids[i / most % grids.size()] ? 1 : 0) << i;
      EXPECT_EQ(counter.traced, int(every ? grids.size() * rounds : rounds));
      EXPECT_EQ(counter.watched, int(every ? grids.size() * rounds : 0));
      session->setWatcher(nullptr);
      session->setTrace(nullptr);
    }
}

TEST(Session, KernelsHaveLargeStacks) {
  TestProgram p;
  p.addKernels();
  p.arena("io", 256);
  p.tensor("out", schema::DType::i64, {4}, 0, 0);
  p.entry("main", list(command(launch(deepStack, {4, 1, 1}, arg("out", buffer(0, 0, 32))))));
  Status status = runOnRanks(1, [&](int) {
    auto session = p.session(2);
    runEntry(*session);
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(values<int64_t>(*session, "out")[i], i);
    return Status::success();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Session, RepeatsAddStridesAlsoNegativeOnes) {
  // target = 10 * target + source over i < 3, j < 2: source walks forward over i and backward over j.
  TestProgram p;
  p.addKernels();
  p.arena("io", 1024);
  p.tensor("source", schema::DType::f64, {3, 2}, 0, 0);
  p.tensor("target", schema::DType::f64, {1}, 0, 64);
  p.tensor("rows", schema::DType::f64, {3}, 0, 128);
  p.tensor("reversed", schema::DType::u8, {8}, 0, 256);
  p.tensor("letters", schema::DType::u8, {8}, 0, 264);
  auto inner = list(
      command(launch(append, {1, 1, 1}, arg("source", buffer(0, 8, 8, {16, -8})), arg("target", buffer(0, 64, 8)))));
  auto outer = list(command(repeat(2, std::move(inner))), command(copy(buffer(0, 64, 8), buffer(0, 128, 8, {8}))));
  p.entry("main", list(command(fill(buffer(0, 64, 8), 0)), command(repeat(3, std::move(outer))),
                       command(repeat(0, list(command(fill(buffer(0, 0, 1024), 255))))),
                       command(repeat(8, list(command(copy(buffer(0, 264, 1, {1}), buffer(0, 263, 1, {-1}))))))));
  auto session = p.session();
  ASSERT_TRUE(session);
  for (int i = 0; i < 6; ++i)
    values<double>(*session, "source")[i] = i + 1;
  std::memcpy(session->tensor("letters")->data, "abcdefgh", 8);
  for (int round = 0; round < 2; ++round)
    runEntry(*session);
  EXPECT_EQ(values<double>(*session, "target")[0], 214365);
  EXPECT_EQ(values<double>(*session, "rows")[0], 21);
  EXPECT_EQ(values<double>(*session, "rows")[1], 2143);
  EXPECT_EQ(values<double>(*session, "rows")[2], 214365);
  EXPECT_EQ(std::memcmp(session->tensor("reversed")->data, "hgfedcba", 8), 0);
}

namespace {

// y[l] = x w[l] for stacked weights: a gemm inside a repeat, then the experts by offsets.
TestProgram gemmProgram() {
  TestProgram p;
  p.arena("parameters", 65536);
  p.arena("io", 65536);
  p.tensor("layers.{}.w", schema::DType::f32, {24, 40}, 0, 0, schema::Role::parameter, {0, 1, 2});
  p.tensor("x", schema::DType::f32, {48, 24}, 1, 0);
  p.tensor("y", schema::DType::f32, {3, 48, 40}, 1, 8192, schema::Role::output);
  p.tensor("offsets", schema::DType::i32, {4}, 1, 60000);
  p.tensor("experts", schema::DType::f32, {48, 40}, 1, 36864, schema::Role::output);
  schema::GemmT gemm;
  gemm.m = 48, gemm.n = 40, gemm.k = 24;
  gemm.lda = 24, gemm.ldb = 40, gemm.ldc = 40;
  gemm.a = buffer(1, 0, 48 * 24 * 4);
  gemm.b = buffer(0, 0, 24 * 40 * 4, {24 * 40 * 4});
  gemm.c = buffer(1, 8192, 48 * 40 * 4, {48 * 40 * 4});
  schema::GroupedGemmT grouped;
  grouped.groups = 3, grouped.max_rows = 48, grouped.n = 40, grouped.k = 24;
  grouped.lda = 24, grouped.ldb = 40, grouped.ldc = 40;
  grouped.a = buffer(1, 0, 48 * 24 * 4);
  grouped.b = buffer(0, 0, 3 * 24 * 40 * 4);
  grouped.c = buffer(1, 36864, 48 * 40 * 4);
  grouped.offsets = buffer(1, 60000, 16);
  p.entry("main", list(command(repeat(3, list(command(std::move(gemm), "layers.*.project")))),
                       command(std::move(grouped), "experts")));
  return p;
}

void fillInputs(Session &session) {
  auto w = session.tensor("layers.{}.w")->as<float>();
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = static_cast<float>(i * 7919 % 101) / 100;
  auto x = values<float>(session, "x");
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i * 104729 % 97) / 100;
  const int32_t offsets[] = {0, 10, 10, 48};
  std::memcpy(session.tensor("offsets")->data, offsets, 16);
}

} // namespace

TEST(Session, GemmsInRepeatsAndExperts) {
  TestProgram p = gemmProgram();
  for (int threads : {1, 2}) {
    auto session = p.session(threads);
    ASSERT_TRUE(session);
    fillInputs(*session);
    runEntry(*session);
    auto x = values<float>(*session, "x"), y = values<float>(*session, "y"),
         experts = values<float>(*session, "experts");
    for (int l = 0; l < 3; ++l) {
      auto w = session->tensor("layers.{}.w")->layer(l).as<float>();
      for (int i = 0; i < 48; ++i)
        for (int j = 0; j < 40; ++j) {
          float sum = 0;
          for (int k = 0; k < 24; ++k)
            sum += x[i * 24 + k] * w[k * 40 + j];
          ASSERT_NEAR(y[(l * 48 + i) * 40 + j], sum, 1e-4);
          if (l == (i < 10 ? 0 : 2))
            ASSERT_NEAR(experts[i * 40 + j], sum, 1e-4);
        }
    }
  }
}

TEST(Session, TwoRunsGiveTheSameBits) {
  TestProgram p = gemmProgram();
  std::vector<std::byte> results[4];
  for (int i = 0; i < 4; ++i) {
    auto session = p.session(i < 2 ? 2 : 3);
    fillInputs(*session);
    runEntry(*session);
    for (const char *name : {"y", "experts"}) {
      auto view = *session->tensor(name);
      results[i].insert(results[i].end(), view.data, view.data + view.bytes);
    }
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[2], results[3]);
}

TEST(Session, RunErrorNamesRankEntryAndCommand) {
  TestProgram p = gemmProgram();
  auto session = p.session();
  fillInputs(*session);
  session->tensor("offsets")->as<int32_t>()[3] = 49;
  auto run = [&] { return session->run(*session->entry("main")); };
  Status status = run();
  EXPECT_EQ(status.code(), ErrorCode::overflow);
  EXPECT_EQ(status.message(), "rank 0: entry 'main' command 1 'experts': offsets end at row 49 but max_rows is 48");
  session->tensor("offsets")->as<int32_t>()[3] = 48;
  EXPECT_TRUE(run().ok());
}

TEST(Session, CreateErrors) {
  auto message = [](const TestProgram &p, SessionOptions options) {
    auto program = p.parse();
    EXPECT_TRUE(program) << program.message();
    auto session = Session::create(*program, options);
    return session ? std::string("created") : session.message();
  };
  TestProgram p;
  p.target = "abacus";
  EXPECT_EQ(message(p, {}), "test.braid: target 'abacus', but sessions execute programs for cpu and cuda");
  p.target = "cpu";
  SessionOptions two;
  two.worldSize = 2;
  EXPECT_EQ(message(p, two), "test.braid: the program's mesh has 1 rank but the session is given 2");
  p.axis("dp", 2);
  EXPECT_EQ(message(p, two), "test.braid: 2 ranks need communicators (SessionOptions::comm)");

  TestProgram quantum;
  quantum.cpu_features = {"quantum"};
  EXPECT_EQ(message(quantum, {}), "test.braid: the program needs CPU features this runtime does not know: quantum");

  TestProgram missing;
  missing.addKernels();
  missing.kernels[0]->name = "no_such_symbol";
  EXPECT_EQ(message(missing, {}), "kernel 'no_such_symbol' is not in the program's code");

  TestProgram garbage;
  garbage.addKernels();
  garbage.code->bytes.assign(64, 1);
  garbage.code->sha256 = sha256(std::as_bytes(std::span(garbage.code->bytes)));
  EXPECT_NE(message(garbage, {}).find("code 'kernels.so' cannot be loaded: "), std::string::npos);

  TestProgram doubles;
  doubles.arena("io", 4096);
  schema::GemmT gemm;
  gemm.m = gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = 2;
  gemm.a = buffer(0, 0, 32);
  gemm.b = buffer(0, 0, 32);
  gemm.c = buffer(0, 64, 32);
  gemm.type_a = gemm.type_b = gemm.type_c = schema::DType::f64;
  doubles.entry("main", list(command(std::move(gemm), "wide")));
  EXPECT_EQ(message(doubles, {}), "entry 'main' command 0 'wide': no matmul of f64 x f64 -> f64 (2 x 2 x 2) in oneDNN: "
                                  "unimplemented");
}

TEST(Session, NamesThatDoNotExist) {
  TestProgram p = gemmProgram();
  auto session = p.session();
  EXPECT_EQ(session->entry("step").message(), "test.braid: no entry 'step'");
  EXPECT_EQ(session->tensor("step").message(), "test.braid: no tensor 'step'");
  EXPECT_FALSE(session->run(EntryId{}).ok());
}

TEST(Session, ClearZeroesOneRole) {
  TestProgram p = gemmProgram();
  auto session = p.session();
  fillInputs(*session);
  runEntry(*session);
  session->clear(Role::output);
  for (float value : values<float>(*session, "y"))
    ASSERT_EQ(value, 0.0f);
  EXPECT_NE(values<float>(*session, "x")[1], 0.0f);
}

TEST(Session, TraceSeesEveryCommand) {
  struct Sink : TraceSink {
    std::vector<std::string> seen;
    int64_t last = 0;
    void command(const TraceEvent &event) override {
      std::string text = fmt::format("{} {} {} {}", event.entry, event.kind, event.command, event.stream);
      for (int64_t i : event.iterations)
        text += fmt::format(" [{}]", i);
      seen.push_back(text);
      EXPECT_LE(last, event.beginNs);
      EXPECT_LE(event.beginNs, event.endNs);
      last = event.endNs;
    }
  } sink;
  TestProgram p = gemmProgram();
  auto session = p.session();
  fillInputs(*session);
  session->setTrace(&sink);
  runEntry(*session);
  session->setTrace(nullptr);
  runEntry(*session);
  EXPECT_EQ(sink.seen, (std::vector<std::string>{"main gemm layers.*.project 0 [0]", "main gemm layers.*.project 0 [1]",
                                                 "main gemm layers.*.project 0 [2]", "main grouped_gemm experts 0"}));
}

TEST(Session, TwoProgramsKeepTheirOwnKernels) {
  // The second library may get the descriptor number of a closed first one; it must not get its kernels.
  for (int round = 0; round < 3; ++round) {
    TestProgram p;
    p.addKernels();
    p.arena("io", 256);
    p.tensor("grid", schema::DType::f64, {1}, 0, 0);
    p.entry("main", list(command(launch(coordinates, {1, 1, 1}, arg("gain", 1.0), arg("base", int64_t(round)),
                                        arg("out", buffer(0, 0, 8))))));
    auto one = p.session(), two = p.session();
    runEntry(*one);
    one.reset();
    runEntry(*two);
    EXPECT_EQ(values<double>(*two, "grid")[0], round);
  }
}
