// What threads of a block touch of shared memory without a barrier between them, on the emulator inside of the driver's stub: some bytes of what another one touched
// together with others, in either order, and what is allowed.
#include "test/runtime/EmulatedCalls.h"

#include <gtest/gtest.h>

#ifdef BRAID_TEST_CUDA_STUBS

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace braid::runtime::test {
namespace {

constexpr const char *raceMessage = "no barrier between two threads that touch the same byte of shared memory";

struct Access {
  int64_t thread, step, offset;
  int32_t bytes;
  bool writes;
};
constexpr bool read = false, written = true;

// Two warps, whose threads do what they have to of a step in their order; then comes a barrier, or each warp meets.
struct Accesses {
  std::vector<Access> all;
  bool meets = false;
  int64_t blocks = 1, ofBlock = -1; // all
  int64_t sharedBytes = 64;

  void run() {
    theCase = this;
    runBlocks([](void *) { theCase->thread(); }, blocks, /*threads=*/64, sharedBytes);
  }

private:
  void thread() {
    auto place = reinterpret_cast<int64_t>(emulated<void *()>("shared")());
    int64_t self = emulated<int64_t()>("thread")(), block = emulated<int64_t()>("block")();
    for (int64_t step = 0; step < 3; ++step) {
      for (const Access &one : all)
        if (one.thread == self && one.step == step && (ofBlock < 0 || ofBlock == block))
          emulated<void(int64_t, int32_t, int32_t)>("touch")(place + one.offset, one.bytes, one.writes);
      emulated<void()>(meets ? "meet" : "barrier")();
    }
  }

  static inline Accesses *theCase = nullptr;
};

// The first 9 KB of shared memory, written by copies of 128 threads, are operands of a wgmma.
struct CopiedOperands {
  bool fences = true;

  void run() {
    theCase = this;
    runBlocks([](void *) { theCase->thread(); }, /*blocks=*/1, /*threads=*/128, /*sharedBytes=*/9216);
  }

private:
  void thread() {
    auto place = reinterpret_cast<int64_t>(emulated<void *()>("shared")());
    auto copy = emulated<void(int64_t, int64_t, int32_t, int32_t)>("copy");
    for (int64_t at = emulated<int64_t()>("thread")() * 16; at < 9216; at += 128 * 16)
      copy(place + at, /*source=*/0, 16, /*live=*/0);
    emulated<void()>("copies_commit")();
    emulated<void(int32_t)>("copies_wait")(0);
    if (fences)
      emulated<void()>("fence_async")();
    emulated<void()>("barrier")();
    // K-major, eight rows of 128 bytes from one to the next: 64 rows, behind them eight.
    auto descriptor = [](int64_t at) { return (at & 0x3ffff) >> 4 | int64_t(1024 >> 4) << 32 | int64_t(1) << 62; };
    float sums[4] = {};
    emulated<void(int64_t, int64_t, int32_t, int32_t, int32_t, void *)>("wgmma")(
        descriptor(place), descriptor(place + 8192), 8, 0, 0, sums);
    emulated<void()>("wgmma_commit")();
    emulated<void(int32_t)>("wgmma_wait")(0);
    emulated<void(int32_t, float *)>("wgmma_sums")(4, sums);
    for (float sum : sums)
      EXPECT_EQ(sum, 0);
  }

  static inline CopiedOperands *theCase = nullptr;
};

// Thread 0 copies 16 bytes, at any time until it waits behind a barrier; another warp reads the last two of them.
struct ReadCopy {
  bool waitsBefore = true;

  void run() {
    theCase = this;
    runBlocks([](void *) { theCase->thread(); }, /*blocks=*/1, /*threads=*/64, /*sharedBytes=*/64);
  }

private:
  void thread() {
    auto place = reinterpret_cast<int64_t>(emulated<void *()>("shared")());
    int64_t self = emulated<int64_t()>("thread")();
    auto barrier = emulated<void()>("barrier");
    auto await = emulated<void(int32_t)>("copies_wait");
    if (self == 0) {
      emulated<void(int64_t, int64_t, int32_t, int32_t)>("copy")(place, /*source=*/0, 16, /*live=*/0);
      emulated<void()>("copies_commit")();
      if (waitsBefore)
        await(0);
    }
    barrier();
    if (self == 40)
      emulated<void(int64_t, int32_t, int32_t)>("touch")(place + 14, 2, read);
    barrier();
    if (self == 0)
      await(0);
  }

  static inline ReadCopy *theCase = nullptr;
};

} // namespace

TEST(EmulatedTouchesDeathTest, SomeBytesOfWhatAnotherThreadTouched) {
  for (auto [first, second] : {std::pair(written, read), std::pair(read, written), std::pair(written, written)})
    for (auto [offset, bytes] : {std::pair(0, 2), std::pair(6, 2), std::pair(14, 2), std::pair(4, 4), std::pair(8, 8),
                                 std::pair(0, 16), std::pair(9, 1)}) {
      Accesses wholeFirst{{{0, 0, 16, 16, first}, {40, 0, 16 + offset, bytes, second}}};
      EXPECT_DEATH(wholeFirst.run(), raceMessage) << offset << ", " << bytes;
      Accesses wholeSecond{{{0, 0, 16 + offset, bytes, first}, {40, 0, 16, 16, second}}};
      EXPECT_DEATH(wholeSecond.run(), raceMessage) << offset << ", " << bytes;
    }
}

// What a thread touched whole is known in parts when others have touched some of it.
TEST(EmulatedTouchesDeathTest, TheRestOfWhatAnotherThreadTouchedInParts) {
  std::vector<Access> parts = {
      {0, 0, 0, 16, written}, {0, 1, 0, 16, read}, {40, 2, 4, 2, written}, {41, 2, 0, 4, read}};
  Accesses{parts}.run();
  for (auto [offset, writes] :
       {std::pair(4, read), std::pair(4, written), std::pair(0, written), std::pair(2, written)}) {
    Accesses more{parts};
    more.all.push_back({50, 2, offset, 2, writes});
    EXPECT_DEATH(more.run(), raceMessage) << offset;
  }
  Accesses beside{parts};
  beside.all.push_back({50, 2, 6, 10, written});
  beside.run();
}

TEST(EmulatedTouchesDeathTest, WhatOthersReadToo) {
  Accesses both{{{0, 0, 0, 16, read}, {40, 0, 0, 4, read}, {40, 0, 0, 4, written}}};
  EXPECT_DEATH(both.run(), raceMessage);
  // Thread 0 goes on when its warp has met, which the other one has nothing to do with.
  Accesses later{{{0, 0, 0, 16, read}, {40, 0, 0, 16, read}, {0, 1, 8, 2, written}}, /*meets=*/true};
  EXPECT_DEATH(later.run(), raceMessage);
  Accesses reading{{{0, 0, 0, 16, read}, {40, 0, 0, 4, read}, {0, 1, 0, 2, read}, {3, 1, 4, 8, read}}, /*meets=*/true};
  reading.run();
}

TEST(EmulatedTouchesDeathTest, ThreadsOfAWarpMeet) {
  for (auto [first, second] : {std::pair(written, read), std::pair(read, written), std::pair(written, written)}) {
    Accesses apart{{{0, 0, 0, 16, first}, {1, 1, 2, 2, second}}, /*meets=*/true};
    apart.run();
    Accesses together{{{0, 0, 0, 16, first}, {1, 0, 2, 2, second}}, /*meets=*/true};
    EXPECT_DEATH(together.run(), raceMessage);
    Accesses ofTwoWarps{{{0, 0, 0, 16, first}, {40, 1, 2, 2, second}}, /*meets=*/true};
    EXPECT_DEATH(ofTwoWarps.run(), raceMessage);
  }
}

TEST(EmulatedTouches, BehindABarrierOrOfOneThread) {
  Accesses{{{0, 0, 0, 16, written},
            {0, 0, 2, 2, read},
            {40, 1, 2, 2, written},
            {40, 1, 0, 16, read},
            {0, 2, 0, 16, written},
            {41, 2, 16, 16, written}}}
      .run();
}

// Of each byte, where one is touched alone.
TEST(EmulatedTouchesDeathTest, NeighbouringBytes) {
  Accesses apart{{{0, 0, 0, 1, written}, {40, 0, 1, 1, written}, {41, 0, 2, 2, written}}};
  apart.run();
  apart.all.push_back({50, 0, 0, 2, read});
  EXPECT_DEATH(apart.run(), raceMessage);
}

// What is known of units of 16 bytes stays known where they are divided, and elsewhere they stay whole; nothing is mistaken for what lies far away.
TEST(EmulatedTouchesDeathTest, OfEveryPartOfSharedMemory) {
  constexpr int64_t bytes = 5000; // the last of its parts is no whole one
  for (int64_t place : {int64_t(0), int64_t(1008), int64_t(1024), int64_t(2048 + 512), bytes - 24})
    for (int32_t first : {1, 2, 16})
      for (int32_t second : {1, 4, 16}) {
        Accesses apart;
        apart.sharedBytes = bytes;
        for (int64_t other : {int64_t(0), int64_t(1008), int64_t(1024), int64_t(2048 + 512), bytes - 24})
          if (other != place)
            apart.all.push_back({40, 0, other, first, written});
        apart.all.push_back({0, 0, place, first, written});
        apart.all.push_back({0, 0, place, second, read});
        apart.run();
        Accesses together = apart;
        together.all.push_back({40, 0, place + std::min(first, second) - 1, 1, written});
        EXPECT_DEATH(together.run(), raceMessage) << place << ", " << first << ", " << second;
      }
}

// Several words at once of what some have read in this step and others wrote before.
TEST(EmulatedTouchesDeathTest, WordsOfAChunk) {
  std::vector<Access> words = {{1, 0, 0, 4, written}, {2, 0, 4, 4, written}, {3, 0, 8, 4, read}, {40, 1, 4, 4, read}};
  Accesses reads{words};
  for (int64_t thread : {0, 1, 40, 63})
    reads.all.push_back({thread, 1, 0, 16, read});
  reads.run();
  for (auto [place, size] : {std::pair(0, 16), std::pair(4, 4), std::pair(4, 8), std::pair(6, 2)}) {
    Accesses writes{words};
    writes.all.push_back({41, 1, place, size, written});
    EXPECT_DEATH(writes.run(), raceMessage) << place << ", " << size;
    Accesses one = reads;
    one.all.push_back({63, 1, place, size, written});
    EXPECT_DEATH(one.run(), raceMessage) << place << ", " << size;
  }
  // Thread 0 reads first, another one too; its warp has met when it writes, and nothing says so of the other's.
  Accesses later{{{5, 0, 32, 4, read}, {0, 0, 0, 16, read}, {40, 0, 0, 16, read}, {0, 1, 0, 16, written}},
                 /*meets=*/true};
  EXPECT_DEATH(later.run(), raceMessage);
  Accesses beside{words};
  beside.all.push_back({41, 1, 8, 8, written});
  beside.all.push_back({42, 2, 0, 16, written});
  beside.run();
}

TEST(EmulatedTouchesDeathTest, BlocksDoNotKnowOfEachOther) {
  std::vector<Access> race = {{0, 1, 0, 16, written}, {40, 1, 2, 2, read}};
  Accesses second{race, /*meets=*/false, /*blocks=*/3, /*ofBlock=*/1};
  EXPECT_DEATH(second.run(), raceMessage);
  Accesses{{{63, 0, 0, 16, written}, {0, 1, 0, 16, written}, {40, 2, 0, 4, written}}, /*meets=*/false, /*blocks=*/3}
      .run();
}

TEST(EmulatedTouchesDeathTest, CopiesWriteUntilTheyAreWaitedFor) {
  ReadCopy late;
  late.run();
  late.waitsBefore = false;
  EXPECT_DEATH(late.run(), raceMessage);
}

TEST(EmulatedTouchesDeathTest, AWgmmaReadsCopiesBehindAFence) {
  CopiedOperands operands;
  operands.run();
  operands.fences = false;
  EXPECT_DEATH(operands.run(), "a wgmma reads what a copy of a thread wrote without a fence of the async proxy");
}

} // namespace braid::runtime::test

#endif
