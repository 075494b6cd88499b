// braid-benchmark: what whole models reach on this machine. Compiles each with the braid-compile beside it, checks that
// it trains (losses finite and falling, two runs equal in every bit), and only then reports times.
#include "runtime/data/Corpus.h"
#include "runtime/train/Rank.h"
#include "test/benchmark/Decode.h"
#include "test/benchmark/EntryProfile.h"
#include "test/benchmark/Report.h"
#include "test/benchmark/Training.h"
#include "tools/common/Version.h"

#include <CLI/CLI.hpp>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace braid::benchmark {
namespace {

using namespace braid::runtime;
using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> models;
  std::string json, commit;
  int threads = 0, compiles = 3, steps = 60, traced = 20;
  DecodeOptions decode;
  std::string directory; // of this program, and of braid-compile
};

constexpr int gateSteps = 20;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// ---- Compile time ---------------------------------------------------------------------------------------------------

// Lines "  <phase>  <number> ms" that --explain ends with.
Json phaseTimes(const std::string &explanation) {
  Json phases = Json::object();
  size_t begin = explanation.rfind("\ncompile time\n");
  if (begin == std::string::npos)
    return phases;
  std::istringstream in(explanation.substr(begin + 14));
  std::string phase, unit;
  for (double time = 0; in >> phase >> time >> unit && unit == "ms";)
    phases[phase] = time;
  return phases;
}

// "MODEL.json@bf16" is MODEL.json with --dtype=bf16.
std::vector<std::string> compileCommand(const Options &options, const std::string &model, const std::string &program) {
  size_t at = model.rfind('@');
  std::vector<std::string> command = {options.directory + "/braid-compile", model.substr(0, at), "-o", program,
                                      "--explain"};
  if (at != std::string::npos)
    command.push_back("--dtype=" + model.substr(at + 1));
  return command;
}

Expected<Json> compileModel(const Options &options, const std::string &model, const std::string &program) {
  std::vector<double> wall, cpu;
  std::map<std::string, std::vector<double>> phases;
  std::vector<std::string> order;
  uint64_t peak = 0;
  for (int i = 0; i < options.compiles; ++i) {
    BRAID_ASSIGN(ChildResult child, runChild(compileCommand(options, model, program), program + ".txt"));
    wall.push_back(child.wall);
    cpu.push_back(child.cpu);
    peak = std::max(peak, child.peakBytes);
    Json explained = phaseTimes(child.output);
    for (auto &[phase, time] : explained.items()) {
      if (phases[phase].empty())
        order.push_back(phase);
      phases[phase].push_back(time.get<double>());
    }
  }
  Json medians = Json::object();
  for (const std::string &phase : order)
    medians[phase] = median(phases[phase]);
  return Json{{"wall_ms", milliseconds(wall)},
              {"cpu_ms", milliseconds(cpu)},
              {"phase_ms", medians},
              {"peak_resident_bytes", peak},
              {"program_bytes", std::filesystem::file_size(program)}};
}

// ---- Training -------------------------------------------------------------------------------------------------------

struct Bits {
  std::vector<float> losses;
  uint64_t parameters = 0xcbf29ce484222325; // FNV-1a
};

Expected<Bits> gateRun(Rank &rank, Training &training) {
  Session &session = rank.session();
  BRAID_TRY(initialize(rank, 1));
  Bits bits;
  for (int32_t step = 1; step <= gateSteps; ++step) {
    BRAID_ASSIGN(float loss, training.run(session, step));
    bits.losses.push_back(loss);
  }
  for (const TensorInfo &tensor : session.program().tensors())
    if (tensor.role == Role::parameter) {
      TensorView view = session.tensor(tensor);
      for (size_t i = 0; i < view.bytes; ++i)
        bits.parameters = (bits.parameters ^ static_cast<uint8_t>(view.data[i])) * 0x100000001b3;
    }
  return bits;
}

Status checkGate(const Bits &first, const Bits &second) {
  for (size_t i = 0; i < first.losses.size(); ++i) {
    if (!std::isfinite(first.losses[i]))
      return Status::error("the loss of step {} is {}", i + 1, first.losses[i]);
    if (std::bit_cast<uint32_t>(first.losses[i]) != std::bit_cast<uint32_t>(second.losses[i]))
      return Status::error("two runs differ: the loss of step {} is {} and {}", i + 1, first.losses[i],
                           second.losses[i]);
  }
  if (first.parameters != second.parameters)
    return Status::error("two runs differ in the parameters after {} steps", first.losses.size());
  if (!(first.losses.back() < 0.95f * first.losses.front()))
    return Status::error("the loss does not fall on a repeated batch: {} at step 1, {} at step {}",
                         first.losses.front(), first.losses.back(), first.losses.size());
  return Status::success();
}

// The probes of one entry, what share of their rate it reaches, and its time against its floor. The GEMM rate of floors
// is that of the products of the training step, each alone, weighted by FLOPs (`flopRate`; 0: of this entry's); the
// byte rate (`byteRate`) is 0 for that of a copy of as many bytes as the entry touches, so that caches serve the copy
// as they serve the entry.
Expected<Json> describeProfile(const EntryProfile &profile, Session &session, double medianSeconds,
                               double fastestSeconds, double flopRate, double byteRate) {
  std::vector<Product> distinct = profile.distinctProducts();
  BRAID_ASSIGN(std::vector<Rate> alone, probeProducts(distinct, session.pool()));
  Json products = profile.products(distinct, alone);
  double flops = profile.productFlops(), aloneSeconds = 0, aloneFastest = 0, inCommands = 0, fastestCommands = 0;
  for (const Json &product : products) {
    aloneSeconds += 1e-3 * product["calls"].get<double>() * product["alone_ms"].get<double>();
    aloneFastest += 1e-3 * product["calls"].get<double>() * product["alone_fastest_ms"].get<double>();
  }
  for (size_t i = 0; i < profile.commands.size(); ++i) {
    inCommands += profile.medianSeconds(i);
    fastestCommands += profile.fastestSeconds(i);
  }
  Rates rates{flopRate > 0 ? flopRate : flops / std::max(aloneSeconds, 1e-12), byteRate};
  if (flops == 0 && flopRate == 0)
    return Status::error("the program calls no library product, so there is no GEMM rate");
  auto copied = static_cast<size_t>(std::max(profile.footprint / 2, double(1 << 16)));
  if (byteRate == 0)
    rates.byteRate = 2 * static_cast<double>(copied) / probeCopy(copied, session.pool()).median;
  double floor = profile.floorSeconds(rates), allFlops = 0, allBytes = 0;
  for (const ExecutedCommand &command : profile.commands) {
    allFlops += command.flops;
    allBytes += command.bytes;
  }
  Json floors = {{"flops", allFlops},
                 {"bytes", allBytes},
                 {"flop_rate", rates.flopRate},
                 {"byte_rate", rates.byteRate},
                 {"footprint_bytes", profile.footprint},
                 {"floor_ms", 1e3 * floor},
                 {"byte_floor_ms", 1e3 * allBytes / rates.byteRate},
                 {"of_floor", floor / medianSeconds},
                 {"of_floor_fastest", floor / fastestSeconds}};
  Json gemm = {{"flops", flops},
               {"probe_gflops", 1e-9 * flops / std::max(aloneSeconds, 1e-12)},
               {"probe_fastest_gflops", 1e-9 * flops / std::max(aloneFastest, 1e-12)},
               {"achieved_gflops", 1e-9 * flops / medianSeconds},
               {"share_of_probe", aloneSeconds / medianSeconds},
               {"share_of_probe_fastest", aloneFastest / fastestSeconds},
               {"shapes", products}};
  return Json{{"commands", profile.commands.size()},
              {"traced_ms", 1e3 * inCommands},
              {"traced_fastest_ms", 1e3 * fastestCommands},
              {"floors", floors},
              {"gemm", gemm},
              {"by_op", profile.byOp(rates)},
              {"by_family", profile.byFamily(rates)},
              {"by_work", profile.byWork(rates)}};
}

Expected<Json> measureTraining(const Options &options, Session &session, Training &training) {
  int32_t number = gateSteps;
  auto step = [&]() -> Status { return training.run(session, ++number).status(); };
  for (int i = 0; i < 3; ++i)
    BRAID_TRY(step());
  std::vector<double> times;
  CpuClock begin = CpuClock::now();
  for (int i = 0; i < options.steps; ++i) {
    auto start = Clock::now();
    BRAID_TRY(step());
    times.push_back(since(start));
  }
  CpuClock end = CpuClock::now();
  double tokens = static_cast<double>(training.batch.batch * training.batch.seqLen);
  Json result = {{"batch", training.batch.batch},
                 {"seq_len", training.batch.seqLen},
                 {"step_ms", milliseconds(times)},
                 {"cpu_ms_per_step", 1e3 * (end.own - begin.own) / options.steps},
                 {"tokens_per_s", tokens / median(times)},
                 {"tokens_per_s_fastest", tokens / *std::min_element(times.begin(), times.end())},
                 {"interference", interference(begin, end)}};
  BRAID_ASSIGN(EntryProfile profile, profileEntry(session, "train_step", options.traced, step));
  BRAID_ASSIGN(result["profile"],
               describeProfile(profile, session, median(times), *std::min_element(times.begin(), times.end()), 0, 0));
  return result;
}

// ---- Other entries --------------------------------------------------------------------------------------------------

Expected<Json> measureEvaluation(const Options &options, Session &session) {
  const EntryInfo *entry = session.program().findEntry("eval_step");
  if (!entry)
    return Json();
  BRAID_ASSIGN(BatchBinding batch, BatchBinding::bind(session, *entry));
  std::vector<double> times;
  for (int i = 0; i < options.steps / 2 + 2; ++i) {
    fillBatch(batch);
    auto start = Clock::now();
    BRAID_TRY(session.run(batch.entry));
    if (i >= 2)
      times.push_back(since(start));
  }
  return Json{{"step_ms", milliseconds(times)},
              {"tokens_per_s", static_cast<double>(batch.batch * batch.seqLen) / median(times)}};
}

Json measureMachine(Session &session) {
  ThreadPool &pool = session.pool();
  Json copies = Json::array();
  for (size_t bytes : {size_t(1) << 20, size_t(128) << 20}) {
    Rate rate = probeCopy(bytes, pool);
    copies.push_back({{"bytes", bytes},
                      {"gbytes_per_s", 2e-9 * static_cast<double>(bytes) / rate.median},
                      {"fastest_gbytes_per_s", 2e-9 * static_cast<double>(bytes) / rate.fastest}});
  }
  Rate start = probeForkJoin(pool);
  Json result = {{"copy", copies},
                 {"fork_join_us", {{"median", 1e6 * start.median}, {"fastest", 1e6 * start.fastest}}}};
  Product large;
  large.gemm.emplace();
  large.gemm->shape = {1024, 1024, 1024, 1024, 1024, 1024, false, false, false, DType::f32, DType::f32, DType::f32};
  if (Expected<std::vector<Rate>> rates = probeProducts({large}, pool))
    result["large_gemm"] = {{"shape", large.text()},
                            {"gflops", 1e-9 * large.flops() / (*rates)[0].median},
                            {"fastest_gflops", 1e-9 * large.flops() / (*rates)[0].fastest}};
  return result;
}

// ---- A model --------------------------------------------------------------------------------------------------------

Json plannedMemory(const Program &program) {
  Json arenas = Json::object();
  uint64_t total = 0;
  for (const ArenaInfo &arena : program.arenas()) {
    arenas[arena.name] = arena.bytes;
    total += arena.bytes;
  }
  return {{"planned_bytes", total}, {"arenas", arenas}};
}

Expected<Json> measureModel(const Options &options, const std::string &model, const std::string &file) {
  fmt::print(stderr, "{}: compile\n", model);
  Json result = {{"model", model}};
  BRAID_ASSIGN(result["compile"], compileModel(options, model, file));
  auto start = Clock::now();
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(file));
  result["load_ms"] = 1e3 * since(start);
  RankOptions ranks;
  ranks.threads = options.threads;

  fmt::print(stderr, "{}: gate\n", model);
  Bits first;
  BRAID_TRY(runRanks(program, ranks, [&](Rank &rank) -> Status {
    BRAID_ASSIGN(Training training, Training::bind(rank.session()));
    BRAID_ASSIGN(first, gateRun(rank, training));
    return Status::success();
  }));
  Json memory = plannedMemory(*program);
  memory["resident_before_session_bytes"] = memoryStatus("VmRSS");
  resetPeakMemory();
  start = Clock::now();
  BRAID_TRY(runRanks(program, ranks, [&](Rank &rank) -> Status {
    Session &session = rank.session();
    result["session_ms"] = 1e3 * since(start);
    result["threads"] = session.threads();
    memory["resident_after_create_bytes"] = memoryStatus("VmRSS");
    BRAID_ASSIGN(Training training, Training::bind(session));
    BRAID_ASSIGN(Bits second, gateRun(rank, training));
    memory["resident_after_steps_bytes"] = memoryStatus("VmRSS");
    memory["peak_resident_bytes"] = memoryStatus("VmHWM");
    result["memory"] = memory;
    BRAID_TRY(checkGate(first, second).withContext("gate"));
    result["gate"] = {{"steps", gateSteps},
                      {"first_loss", first.losses.front()},
                      {"last_loss", first.losses.back()},
                      {"two_runs_equal_bits", true}};
    fmt::print(stderr, "{}: train_step\n", model);
    BRAID_ASSIGN(result["train"], measureTraining(options, session, training));
    fmt::print(stderr, "{}: other entries and probes\n", model);
    BRAID_ASSIGN(result["eval"], measureEvaluation(options, session));
    double flopRate = result["train"]["profile"]["floors"]["flop_rate"];
    BRAID_ASSIGN(result["generate"],
                 measureGeneration(options.decode, session,
                                   [&](const EntryProfile &profile, double medianSeconds, double fastest, double rate) {
                                     return describeProfile(profile, session, medianSeconds, fastest, flopRate, rate);
                                   }));
    result["probes"] = measureMachine(session);
    return Status::success();
  }));
  return result;
}

Status run(const Options &options) {
  std::string pattern = (std::filesystem::temp_directory_path() / "braid-benchmark-XXXXXX").string();
  if (!mkdtemp(pattern.data()))
    return Status::error(ErrorCode::ioError, "cannot make a directory like {}", pattern);
  struct Remover {
    std::string path;
    ~Remover() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } remover{pattern};

  Json report = {{"machine", describeMachine()}, {"commit", options.commit}, {"models", Json::array()}};
  Status failure = Status::success();
  for (const std::string &model : options.models) {
    Expected<Json> result = measureModel(options, model, pattern + "/model.braid");
    if (result) {
      report["models"].push_back(*result);
      continue;
    }
    // No times of a model that fails.
    report["models"].push_back({{"model", model}, {"error", result.message()}});
    failure = result.status().withContext(model);
    fmt::print(stderr, "braid-benchmark: {}\n", failure.message());
  }
  fmt::print("{}", toMarkdown(report));
  if (!options.json.empty() && !(std::ofstream(options.json) << report.dump(1) << "\n"))
    return writeError(options.json, errno);
  return failure;
}

} // namespace
} // namespace braid::benchmark

int main(int argc, char **argv) {
  using namespace braid::benchmark;
  CLI::App app(
      "Compiles models, checks that they train, and measures them: time per step and per kernel, the share of\n"
      "the GEMM rate, generation, compile time, memory. Prints Markdown.",
      "braid-benchmark");
  Options options;
  std::error_code ignored;
  options.directory = std::filesystem::canonical("/proc/self/exe", ignored).parent_path().string();
  options.models = {"models/tiny-hybrid.json"};
  options.commit = braid::commitText();
  app.add_option("models", options.models, "model descriptions; MODEL.json@bf16: with --dtype=bf16")
      ->type_name("MODEL.json")
      ->capture_default_str();
  app.add_option("--json", options.json, "also write everything that was measured to this file")->type_name("FILE");
  app.add_option("--commit", options.commit, "what the report calls the state of the sources")
      ->capture_default_str()
      ->type_name("TEXT");
  app.add_option("--threads", options.threads, "worker threads (default: all cores)")->type_name("N");
  app.add_option("--compiles", options.compiles, "how often each model is compiled")
      ->check(CLI::Range(1, 100))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--steps", options.steps, "measured training steps")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--traced-steps", options.traced, "training steps with a time for every command")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--positions", options.decode.positions,
                 "decode is measured behind 1024, 8192, 32768 and 131072 tokens, up to so many")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str()
      ->type_name("N");
  app.set_version_flag("--version", braid::versionText("braid-benchmark"));
  CLI11_PARSE(app, argc, argv);
  Status status = run(options);
  return status.ok() ? 0 : 1;
}
