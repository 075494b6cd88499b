// Arenas between guard pages, and MemoryCheck, which sees what a command writes that is not its to write.
#include "runtime/Arenas.h"
#include "test/runtime/TestProgram.h"

#include <cmath>

namespace braid::runtime::test {
namespace {

Status runChecked(const TestProgram &p, bool check) {
  auto program = p.parse();
  EXPECT_TRUE(program) << program.message();
  SessionOptions options;
  options.threads = 1;
  options.checkMemory = check;
  BRAID_ASSIGN(std::unique_ptr<Session> session, Session::create(*program, options));
  BRAID_ASSIGN(EntryId entry, session->entry("main"));
  return session->run(entry);
}

TestProgram addsTo(uint64_t arenaBytes, uint64_t programs) {
  TestProgram p;
  p.addKernels();
  p.arena("io", arenaBytes);
  p.entry("main", list(command(fill(buffer(0, 0, 256), 0)),
                       command(launch(addScaled, {programs, 1, 1}, arg("scale", 1.0), arg("x", buffer(0, 0, 128)),
                                      arg("y", buffer(0, 128, 128)), arg("out", buffer(0, 256, 128))),
                               "layer_0 add")));
  return p;
}

TEST(MemoryCheck, WhatACommandMayWriteIsFine) {
  EXPECT_TRUE(runChecked(addsTo(4096, 32), true).ok());
  EXPECT_TRUE(runChecked(addsTo(384, 32), true).ok());
}

TEST(MemoryCheck, AKernelThatLeavesItsBufferIsNamed) {
  TestProgram inside = addsTo(4096, 33), behind = addsTo(384, 33);
  // What stands behind the buffer must differ for the write to show: 0 + 0 is written over NaNs.
  for (TestProgram *p : {&inside, &behind})
    EXPECT_TRUE(runChecked(*p, false).ok());
  EXPECT_EQ(runChecked(inside, true).message(),
            "rank 0: entry 'main' command 1 'layer_0 add': wrote byte 384 of arena 'io' (4096 bytes), which is not its "
            "to write; in this arena it writes 'out' 256 to 384");
  EXPECT_EQ(runChecked(behind, true).message(),
            "rank 0: entry 'main' command 1 'layer_0 add': wrote byte 384 of arena 'io' (384 bytes), which is not its "
            "to write; in this arena it writes 'out' 256 to 384");
}

TEST(MemoryCheck, ScratchBeginsAsNaNs) {
  TestProgram p;
  p.arena("io", 256);
  p.arena("workspace", 256);
  p.tensor("out", schema::DType::f32, {4}, 0, 0, schema::Role::output);
  p.entry("main", list(command(copy(buffer(1, 0, 16), buffer(0, 0, 16)))));
  auto program = p.parse();
  ASSERT_TRUE(program) << program.message();
  SessionOptions options;
  options.checkMemory = true;
  auto session = Session::create(*program, options);
  ASSERT_TRUE(session) << session.message();
  runEntry(**session);
  for (float value : values<float>(**session, "out"))
    EXPECT_TRUE(std::isnan(value));
}

TEST(Arenas, AddressesThatTheHostHasNotAreNoLackOfMemory) {
  ArenaInfo arena{"workspace", uint64_t(1) << 60, 256};
  Arenas arenas;
  EXPECT_EQ(arenas.reserve(std::span(&arena, 1)).message(),
            "the host has no addresses for arena 'workspace' of 1152921504606846976 bytes: Cannot allocate memory");
}

TEST(Arenas, StandBetweenPagesThatNobodyMayTouch) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  TestProgram p;
  p.arena("small", 100);
  p.arena("large", (size_t(4) << 20) + 8);
  p.entry("main", {});
  auto session = p.session();
  ASSERT_TRUE(session);
  for (auto [arena, bytes] : {std::pair<uint32_t, size_t>{0, 100}, {1, (size_t(4) << 20) + 8}}) {
    volatile std::byte *base = session->arena(arena);
    base[0] = std::byte(1);
    base[bytes - 1] = std::byte(1);
    EXPECT_DEATH(base[-1] = std::byte(1), "");
    EXPECT_DEATH(base[bytes + 4096] = std::byte(1), "");
  }
}

} // namespace
} // namespace braid::runtime::test
