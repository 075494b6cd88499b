// A rank that waits for messages is there when they come, whichever way they come.
#include "runtime/comm/MpiArrivals.h"
#include "runtime/comm/MpiWorld.h"
#include "test/runtime/conformance/CommunicatorBackend.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <thread>

using namespace braid::runtime;

// Sums to which one rank always comes late. How many of them no socket announced to this rank, and how many it waited for
// at sockets all the same, is printed: whether messages come through sockets is known to who started it.
TEST(MpiArrivals, SumsOfRanksThatComeLate) {
  constexpr uint64_t sums = 200;
  uint64_t before = MpiArrivals::unannounced(), misledBefore = MpiArrivals::misled();
  auto size = static_cast<uint32_t>(test::communicatorBackend().worldSizes().front());
  auto group = connectMpi({{{"dp", size}}, {}}, MpiOptions{});
  ASSERT_TRUE(group.ok()) << group.message();
  Communicator &world = (*group)->world();
  for (uint64_t i = 0; i < sums; ++i) {
    if (world.rank() == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    float value = 1;
    auto *bytes = reinterpret_cast<std::byte *>(&value);
    Status status = world.allReduce(bytes, bytes, sizeof(value), DType::f32, "late");
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(value, static_cast<float>(size));
  }
  uint64_t unannounced = MpiArrivals::unannounced() - before;
  uint64_t misled = MpiArrivals::misled() - misledBefore;
  std::printf("sockets misled %s\n", misled < sums / 4 ? "seldom" : fmt::format("{} times", misled).c_str());
  std::printf("announced were %s\n",
              unannounced < sums / 10 ? "nearly all" : fmt::format("all but {}", unannounced).c_str());
}
