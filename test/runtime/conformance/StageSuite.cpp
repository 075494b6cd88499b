// Sessions of several pipeline stages together, whatever their ranks are.
#include "test/runtime/conformance/CommunicatorBackend.h"
#include "test/runtime/conformance/StagedProgram.h"

#include <algorithm>

using namespace braid::runtime;
using namespace braid::runtime::test;

TEST(StagesTogether, PassValuesOn) {
  for (int ranks : communicatorBackend().worldSizes())
    for (int stages : {ranks, ranks / 2}) {
      if (stages < 2)
        continue;
      int dp = ranks / stages;
      if (dp * stages != ranks)
        continue;
      auto program = Staged(stages, static_cast<uint32_t>(dp)).parse();
      ASSERT_TRUE(program) << program.message();
      auto body = [&](CommunicatorGroup &group) -> Status {
        SessionOptions options;
        options.threads = 1;
        options.rank = group.rank();
        options.worldSize = group.worldSize();
        options.comm = &group;
        BRAID_ASSIGN(auto session, Session::create(*program, options));
        auto stage = static_cast<uint32_t>(group.rank() / dp);
        EXPECT_EQ(session->program().ownStage(), stage);
        for (int run = 0; run < 3; ++run) {
          float begin = static_cast<float>(100 * (group.rank() % dp) + 10 * run);
          std::ranges::fill(values<float>(*session, "layers.{}.w"), static_cast<float>(stage + 1));
          if (stage == 0)
            std::ranges::fill(values<float>(*session, "x"), begin);
          runEntry(*session);
          // The first has the end, the others what they passed on.
          uint32_t added = stage == 0 ? static_cast<uint32_t>(stages) : stage + 1;
          EXPECT_EQ(values<float>(*session, "y")[3], begin + static_cast<float>(added * (added + 1) / 2))
              << "rank " << group.rank() << " of " << stages << " stages";
        }
        // Who failed would leave the others waiting at the end.
        return group.world().allReduce(nullptr, nullptr, 0, DType::i32, "end");
      };
      Status status = communicatorBackend().run((*program)->mesh(), std::chrono::minutes(1), body);
      EXPECT_TRUE(status.ok()) << status.message();
    }
}
