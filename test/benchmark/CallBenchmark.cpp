// braid-call-benchmark: how long the functions of one program take on given inputs, against their floors. Whoever
// calls it has compared what they compute (tools/dev/benchmark-classes). All functions take turns, round after round, so that what
// disturbs the machine for a while disturbs all of them.
#include "runtime/io/Npy.h"
#include "runtime/io/TensorNames.h"
#include "runtime/train/Rank.h"
#include "test/benchmark/EntryProfile.h"
#include "tools/common/Version.h"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstring>

namespace braid::benchmark {
namespace {

using namespace braid::runtime;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string program, inputs;
  int rounds = 10, threads = 0;
};

// An entry whose inputs are kept, as they share memory with those of other entries.
struct Call {
  std::string name;
  EntryId id;
  std::vector<std::pair<TensorView, std::vector<std::byte>>> inputs;
  EntryCommands commands;
  std::vector<double> seconds;

  void restore() const {
    for (const auto &[view, bytes] : inputs)
      std::memcpy(view.data, bytes.data(), bytes.size());
  }
};

// Inputs are DIR/FUNCTION/NAME.npy; entries without a directory are left alone.
Expected<Call> prepare(const Options &options, Session &session, const EntryInfo &entry) {
  Call call;
  call.name = entry.name;
  BRAID_ASSIGN(call.id, session.entry(entry.name));
  BRAID_ASSIGN(call.commands, executedCommands(session.program(), entry.name));
  for (uint32_t index : entry.inputs) {
    const TensorInfo &tensor = session.program().tensors()[index];
    std::string path = fmt::format("{}/{}/{}.npy", options.inputs, entry.name, tensor.lastComponent());
    BRAID_ASSIGN(NpyFile file, NpyFile::open(path));
    TensorView view = session.tensor(tensor);
    if (file.dtype() != tensor.dtype || file.bytes() != view.bytes)
      return Status::error("{}: holds {} bytes of {}, but '{}' of @{} are {} of {}", path, file.bytes(),
                           toString(file.dtype()), tensor.name, entry.name, view.bytes, toString(tensor.dtype));
    std::vector<std::byte> bytes(view.bytes);
    BRAID_TRY(file.read(bytes));
    call.inputs.emplace_back(view, std::move(bytes));
  }
  return call;
}

Expected<Json> measure(const Options &options, Session &session) {
  std::vector<Call> calls;
  for (const EntryInfo &entry : session.program().entries()) {
    BRAID_ASSIGN(Call call, prepare(options, session, entry));
    calls.push_back(std::move(call));
  }
  CpuClock begin = CpuClock::now();
  for (int round = -1; round < options.rounds; ++round) // the first touches memory
    for (Call &call : calls) {
      call.restore();
      auto start = Clock::now();
      BRAID_TRY(session.run(call.id));
      if (round >= 0)
        call.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  Json report = {{"interference", interference(begin, CpuClock::now())}, {"functions", Json::array()}};
  // What a large product and a copy reach on these threads; a copy as large as what each function touches.
  Product large;
  large.gemm.emplace();
  large.gemm->shape = {1024, 1024, 1024, 1024, 1024, 1024, false, false, false, DType::f32, DType::f32, DType::f32};
  BRAID_ASSIGN(std::vector<Rate> product, probeProducts({large}, session.pool()));
  Rates rates{large.flops() / product[0].median, 0};
  report["flop_rate"] = rates.flopRate;
  for (Call &call : calls) {
    auto copied = static_cast<size_t>(std::max(call.commands.footprint / 2, double(1 << 16)));
    rates.byteRate = 2 * static_cast<double>(copied) / probeCopy(copied, session.pool()).median;
    double floor = 0, flops = 0, bytes = 0;
    for (const ExecutedCommand &command : call.commands.list) {
      floor += rates.floor(command);
      flops += command.flops;
      bytes += command.bytes;
    }
    report["functions"].push_back({{"name", call.name},
                                   {"ms", 1e3 * median(call.seconds)},
                                   {"fastest_ms", 1e3 * *std::ranges::min_element(call.seconds)},
                                   {"flops", flops},
                                   {"bytes", bytes},
                                   {"byte_rate", rates.byteRate},
                                   {"floor_ms", 1e3 * floor}});
  }
  return report;
}

Status run(const Options &options) {
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program));
  RankOptions ranks;
  ranks.threads = options.threads;
  return runRanks(program, ranks, [&](Rank &rank) -> Status {
    BRAID_ASSIGN(Json report, measure(options, rank.session()));
    printReport(std::move(report), rank.session().threads());
    return Status::success();
  });
}

} // namespace
} // namespace braid::benchmark

int main(int argc, char **argv) {
  using namespace braid::benchmark;
  CLI::App app("Times every function of a program on given inputs and sets it against its floor. Prints JSON.",
               "braid-call-benchmark");
  Options options;
  app.add_option("program", options.program, "program file")->required()->type_name("P.braid");
  app.add_option("--inputs", options.inputs, "inputs of every function: DIR/FUNCTION/NAME.npy")
      ->required()
      ->type_name("DIR");
  app.add_option("--rounds", options.rounds, "measured calls of each function")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--threads", options.threads, "worker threads (default: all cores)")->type_name("N");
  app.set_version_flag("--version", braid::versionText("braid-call-benchmark"));
  CLI11_PARSE(app, argc, argv);
  Status status = run(options);
  if (!status.ok())
    fmt::print(stderr, "braid-call-benchmark: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
