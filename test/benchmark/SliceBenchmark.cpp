// braid-slice-benchmark: training steps of one rank of a mesh by itself, its collectives replaced by copies. Run for programs
// that differ in their slices it says what slicing costs where nothing is waited for (test/experiments/slicing.py).
#include "runtime/Trace.h"
#include "runtime/io/TensorNames.h"
#include "test/benchmark/CopiedRanks.h"
#include "test/benchmark/Machine.h"
#include "test/benchmark/Training.h"
#include "tools/common/Version.h"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cmath>
#include <map>
#include <mutex>

namespace braid::benchmark {
namespace {

using namespace braid::runtime;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string program;
  int steps = 10, threads = 0;
};

// Seconds of a step's commands by what the model asks for; of copies and waits, for which it asks nothing, by kind.
class SecondsOfOps : public TraceSink {
public:
  void command(const TraceEvent &event) override {
    const std::lock_guard lock(mutex);
    step[*event.op ? event.op : event.kind] += 1e-9 * static_cast<double>(event.endNs - event.beginNs);
  }
  void endStep() {
    const std::lock_guard lock(mutex);
    for (auto &[op, seconds] : step)
      steps[op].push_back(seconds);
    step.clear();
  }
  Json medians() const {
    Json result = Json::object();
    for (const auto &[op, seconds] : steps)
      result[op] = median(seconds);
    return result;
  }

private:
  std::mutex mutex; // streams report from threads of their own
  std::map<std::string, double> step;
  std::map<std::string, std::vector<double>> steps;
};

Expected<Json> measure(const Options &options, Rank &rank) {
  Session &session = rank.session();
  BRAID_TRY(initialize(rank, 1));
  BRAID_ASSIGN(Training training, Training::bind(session));
  std::vector<double> seconds, losses;
  SecondsOfOps ops;
  CpuClock begin = CpuClock::now();
  for (int step = 1; step <= options.steps + 2; ++step) { // the first two touch memory
    if (step > 2)
      session.setTrace(&ops);
    auto start = Clock::now();
    BRAID_ASSIGN(float loss, training.run(session, step));
    if (step > 2)
      seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    ops.endStep();
    if (!std::isfinite(loss))
      return Status::error("the loss of step {} is {}", step, loss);
    losses.push_back(loss);
  }
  session.setTrace(nullptr);
  BRAID_ASSIGN(const EntryInfo *entry, findEntry(session.program(), "train_step"));
  return Json{{"seconds", seconds},
              {"ops", ops.medians()},
              {"losses", losses},
              {"commands", entry->commands},
              {"tokens", training.batch.batch * training.batch.seqLen},
              {"ranks", session.worldSize()},
              {"interference", interference(begin, CpuClock::now())}};
}

Status run(const Options &options) {
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program));
  std::unique_ptr<Processes> peers = copiedRanks(static_cast<int>(program->mesh().worldSize()));
  RankOptions ranks;
  ranks.threads = options.threads;
  ranks.processes = peers.get();
  return runRanks(program, ranks, [&](Rank &rank) -> Status {
    BRAID_ASSIGN(Json report, measure(options, rank));
    printReport(std::move(report), rank.session().threads());
    return Status::success();
  });
}

} // namespace
} // namespace braid::benchmark

int main(int argc, char **argv) {
  using namespace braid::benchmark;
  CLI::App app(
      "Times training steps of one rank of a program's mesh. Nothing is sent: what the others would send is copied\n"
      "from what this rank has, so the numbers it computes belong to no training. Prints JSON.",
      "braid-slice-benchmark");
  Options options;
  app.add_option("program", options.program, "compiled for any mesh")->type_name("P.braid")->required();
  app.add_option("--steps", options.steps, "measured steps")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--threads", options.threads, "worker threads (default: all cores)")->type_name("N");
  app.set_version_flag("--version", braid::versionText("braid-slice-benchmark"));
  CLI11_PARSE(app, argc, argv);
  if (Status status = run(options); !status.ok()) {
    fmt::print(stderr, "braid-slice-benchmark: {}\n", status.message());
    return 1;
  }
  return 0;
}
