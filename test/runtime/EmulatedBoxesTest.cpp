// Boxes that kernels store from shared memory, or send to all blocks of a cluster, on the emulator inside of the driver's stub: what arrives, and what
// a GPU would do wrong at times.
#include "test/runtime/EmulatedCalls.h"

#include <gtest/gtest.h>

#ifdef BRAID_TEST_CUDA_STUBS

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace braid::runtime::test {
namespace {

// A block of one warp stores two boxes of 16 rows of 32 f32 from the same shared memory, to a buffer of 24 rows, or adds them.
struct TwoBoxes {
  bool fences = true, meets = true, awaitsRead = true, awaitsEnd = true, adds = false;
  std::vector<float> buffer = std::vector<float>(32 * 32, 1); // with 8 rows behind it

  static float valueOf(int64_t row, int64_t column) { return static_cast<float>(row * 100 + column); }

  void run() {
    theCase = this;
    runBlocks([](void *) { theCase->thread(); }, /*blocks=*/1, /*threads=*/32, /*sharedBytes=*/2048);
  }

private:
  void thread() {
    auto *shared = static_cast<char *>(emulated<void *()>("shared")());
    auto place = reinterpret_cast<int64_t>(shared);
    auto meet = emulated<void()>("meet");
    int64_t lane = emulated<int64_t()>("thread")();
    for (int64_t box = 0; box < 2; ++box) {
      if (box && awaitsRead) {
        if (lane == 0)
          emulated<void(int32_t)>("bulk_read")(0);
        meet();
      }
      int64_t row = lane / 2;
      for (int64_t chunk = lane % 2 * 4; chunk < lane % 2 * 4 + 4; ++chunk) {
        float four[4];
        for (int64_t i = 0; i < 4; ++i)
          four[i] = valueOf(box * 16 + row, chunk * 4 + i);
        int64_t offset = row * 128 + (chunk ^ row % 8) * 16;
        emulated<void(int64_t, int32_t, int32_t)>("touch")(place + offset, 16, 1);
        std::memcpy(shared + offset, four, sizeof(four));
      }
      if (fences)
        emulated<void()>("fence_async")();
      if (meets)
        meet();
      if (lane != 0)
        continue;
      // The grid and the buffer; one map of it, and where the box goes, innermost first.
      int64_t slots[] = {1, 1, 1, reinterpret_cast<int64_t>(buffer.data())};
      int64_t told[] = {1, 0, 2, 24, 32, 0, 0, 0, 32, 1, 0, 0, 0, 16, 32, 0, 0, 0, 0, box * 16};
      emulated<void(int64_t, int64_t, const int64_t *, const int64_t *)>(adds ? "bulk_add_f32" : "bulk_store_f32")(
          place, 0, slots, told);
      emulated<void()>("bulk_commit")();
    }
    if (lane == 0 && awaitsEnd)
      emulated<void(int32_t)>("bulk_read")(0);
  }

  static inline TwoBoxes *theCase = nullptr;
};

// Two blocks of a warp read the same 16 rows of 64 bf16 in each of some steps, of which each sends eight to both.
struct TwoBlocks {
  static constexpr int64_t steps = 5, rows = 16, rowBytes = 128, boxBytes = rows * rowBytes;
  bool meetAtEnd = true, atOneBarrier = true;
  std::vector<uint16_t> buffer = std::vector<uint16_t>(steps * rows * rowBytes / 2);
  std::vector<uint64_t> sums[2] = {std::vector<uint64_t>(steps * rows), std::vector<uint64_t>(steps *rows)};

  void run() {
    for (size_t i = 0; i < buffer.size(); ++i)
      buffer[i] = static_cast<uint16_t>(i * 7 % 8191);
    theCase = this;
    runBlocks([](void *) { theCase->thread(); }, /*blocks=*/2, /*threads=*/32, /*sharedBytes=*/4096, /*cluster=*/2);
  }

private:
  void thread() {
    auto *shared = static_cast<char *>(emulated<void *()>("shared")());
    auto place = reinterpret_cast<int64_t>(shared);
    auto meet = emulated<void()>("meet");
    int64_t lane = emulated<int64_t()>("thread")(), rank = emulated<int64_t()>("block")();
    const int64_t full = place + boxBytes, empty = full + 8;
    if (lane == 0)
      for (auto [barrier, arrivals] : {std::pair(full, 1), std::pair(empty, 2)})
        emulated<void(int64_t, int32_t)>("bulk_begin")(barrier, arrivals);
    emulated<void()>(rank == 1 && !atOneBarrier ? "barrier" : "bulk_cluster")();
    auto await = emulated<void(int64_t, int32_t)>("bulk_await");
    for (int64_t step = 0; step < steps; ++step) {
      auto parity = static_cast<int32_t>(step % 2);
      if (lane == 0) {
        await(empty, 1 - parity);
        emulated<void(int64_t, int32_t)>("bulk_expect")(full, boxBytes);
        int64_t slots[] = {1, 1, 1, reinterpret_cast<int64_t>(buffer.data())};
        int64_t told[] = {1, 0, 2, steps * rows,          64, 0, 0, 0, 64, 1, 0, 0, 0, 8, 64, 0,
                          0, 0, 0, step * rows + rank * 8};
        emulated<void(int64_t, int64_t, int64_t, const int64_t *, const int64_t *)>("bulk_multicast")(
            place + rank * boxBytes / 2, full, 0, slots, told);
      }
      meet();
      await(full, parity);
      meet();
      for (int64_t chunk = 0; chunk < 8 && lane < rows; ++chunk)
        for (int64_t i = 0; i < 8; ++i) {
          uint16_t value;
          std::memcpy(&value, shared + lane * rowBytes + (chunk ^ lane % 8) * 16 + i * 2, sizeof(value));
          sums[rank][static_cast<size_t>(step * rows + lane)] += value * static_cast<uint64_t>(chunk * 8 + i + 1);
        }
      meet();
      if (lane < 2)
        emulated<void(int64_t, int32_t)>("bulk_arrive_in")(empty, static_cast<int32_t>(lane));
    }
    if (meetAtEnd)
      emulated<void()>("bulk_cluster")();
  }

  static inline TwoBlocks *theCase = nullptr;
};

void expectStored(const TwoBoxes &boxes) {
  for (int64_t row = 0; row < 32; ++row)
    for (int64_t column = 0; column < 32; ++column) {
      float value = TwoBoxes::valueOf(row, column) + (boxes.adds ? 1.0f : 0.0f);
      ASSERT_EQ(boxes.buffer[static_cast<size_t>(row * 32 + column)], row < 24 ? value : 1.0f) << row << ", " << column;
    }
}

} // namespace

TEST(EmulatedBoxes, AreStoredUpToTheEndOfTheirBuffer) {
  TwoBoxes boxes;
  boxes.run();
  expectStored(boxes);
}

TEST(EmulatedBoxes, AreAdded) {
  TwoBoxes boxes;
  boxes.adds = true;
  boxes.run();
  expectStored(boxes);
}

TEST(EmulatedBoxesDeathTest, WhatAGpuWouldDoWrongAtTimesEndsTheProcess) {
  struct {
    bool TwoBoxes::*forgotten;
    const char *message;
  } cases[] = {{&TwoBoxes::fences, "without a fence of the async proxy"},
               {&TwoBoxes::meets, "a byte was not written|did not meet this one since"},
               {&TwoBoxes::awaitsRead, "overwritten before the box was read|did not meet this one since"},
               {&TwoBoxes::awaitsEnd, "not waited for before a thread ends"}};
  for (auto &one : cases) {
    TwoBoxes boxes;
    boxes.*one.forgotten = false;
    EXPECT_DEATH(boxes.run(), one.message);
  }
}

TEST(EmulatedBoxes, OfAClusterComeToAllOfItsBlocks) {
  TwoBlocks blocks;
  blocks.run();
  for (size_t row = 0; row < blocks.sums[0].size(); ++row) {
    uint64_t sum = 0;
    for (size_t column = 0; column < 64; ++column)
      sum += blocks.buffer[row * 64 + column] * (column + 1);
    EXPECT_EQ(blocks.sums[0][row], sum) << row;
    EXPECT_EQ(blocks.sums[1][row], sum) << row;
  }
}

TEST(EmulatedBoxesDeathTest, BlocksOfAClusterWaitForEachOther) {
  TwoBlocks early;
  early.meetAtEnd = false;
  EXPECT_DEATH(early.run(), "shared memory of a block of the cluster that has ended");
  TwoBlocks apart;
  apart.atOneBarrier = false;
  // The block that meets itself alone goes on, and waits for what the other does not send.
  EXPECT_DEATH(apart.run(), "a phase of a barrier in shared memory that never ends");
}

} // namespace braid::runtime::test

#endif
