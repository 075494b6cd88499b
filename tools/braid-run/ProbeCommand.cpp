#include "runtime/ThreadPool.h"
#include "runtime/comm/LinkProbe.h"
#include "runtime/comm/ThreadWorld.h"
#include "runtime/train/Rank.h"
#include "tools/braid-run/Commands.h"
#include "tools/common/NumberFlag.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace braid::run {

using namespace braid::runtime;

namespace {

struct Options {
  RankFlags ranks;
  double seconds = 3;
  bool json = false;
};

Status print(const Options &options, const LinkCosts &costs) {
  if (options.json) {
    nlohmann::ordered_json link = {{"bandwidth", costs.bandwidth},
                                   {"latency", costs.latency},
                                   {"processor_per_message", costs.perMessage},
                                   {"processor_per_byte", costs.perByte}};
    fmt::print("{}\n", link.dump());
    return Status::success();
  }
  fmt::print("bandwidth              {:.4g} MB/s each way at once\n", costs.bandwidth * 1e-6);
  fmt::print("latency                {:.4g} us\n", costs.latency * 1e6);
  fmt::print("processor per message  {:.4g} us\n", costs.perMessage * 1e6);
  fmt::print("processor per byte     {:.4g} ns\n", costs.perByte * 1e9);
  return Status::success();
}

Status run(const Options &options) {
  BRAID_ASSIGN(RankOptions ranks, joinRanks(options.ranks));
  auto ranksOf = [](int count) { return MeshInfo{{{"dp", static_cast<uint32_t>(count)}}, {}}; };
  std::chrono::milliseconds time(static_cast<int64_t>(options.seconds * 1000));
  auto probe = [&](CommunicatorGroup &group) -> Status {
    auto work = [&]() -> Status {
      const Rank::Value asked[] = {{"command", "probe"}, {"--seconds", fmt::format("{}", options.seconds)}};
      BRAID_TRY(agreeOn(group.world(), asked, "program")); // as commands with a program do
      BRAID_ASSIGN(LinkCosts costs, probeLink(group.world(), time));
      return group.rank() == 0 ? print(options, costs) : Status::success();
    };
    Status status = Status::success();
    try {
      status = work();
    } catch (const std::bad_alloc &) { // nothing may leave the function of a thread
      status = Status::error(ErrorCode::ioError, "rank {}: out of memory", group.rank());
    }
    if (!status.ok())
      group.abort(status);
    return status;
  };
  if (ranks.processes) {
    BRAID_ASSIGN(std::unique_ptr<CommunicatorGroup> group,
                 ranks.processes->connect(ranksOf(ranks.processes->size()), ranks.timeout));
    return probe(*group);
  }
  BRAID_ASSIGN(std::unique_ptr<ThreadWorld> world,
               ThreadWorld::create(ranksOf(ranks.ranks), {.timeout = ranks.timeout}));
  return runOnRanks(ranks.ranks, [&](int rank) { return probe(world->group(rank)); });
}

} // namespace

Action addProbe(CLI::App &command) {
  auto options = std::make_shared<Options>();
  numberIn(command.add_option("--seconds", options->seconds, "How long it takes, about"), From::least, 0.1, 3600)
      ->capture_default_str()
      ->type_name("SECONDS");
  command.add_flag("--json", options->json, "Print a link of a cluster file (models/clusters)");
  addRankOptions(command, options->ranks, /*computes=*/false);
  return [options] { return run(*options); };
}

} // namespace braid::run
