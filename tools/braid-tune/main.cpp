//===- main.cpp - braid-tune: the schedule of a model, searched, measured and written down ------------------------===//
#include "passes/analysis/Mesh.h"
#include "schedule/Slicing.h"
#include "schedule/Stages.h"
#include "tools/braid-tune/Candidate.h"
#include "tools/common/IntegerFlag.h"

#include "compiler/Diagnostics.h"
#include "compiler/OutputFile.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <thread>

using namespace braid;
using namespace braid::tune;

namespace {

struct Options {
  CompileJob job;
  std::string clusterFile, output;
  int64_t steps = 6, rounds = 3, best = 3, threads = 1;
  std::vector<int64_t> degrees = {2, 3, 4, 6, 8}; ///< besides 1
  bool predictOnly = false, again = false;
};

bool fail(const std::string &message) {
  printError(message);
  return false;
}

std::optional<std::string> readText(const std::string &path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!file)
    return fail(path + ": " + file.getError().message()), std::nullopt;
  return (*file)->getBuffer().str();
}

/// What a measurement is good for: this processor, this many of it, ranks of this kind.
std::string machineName() {
  std::ifstream info("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  return fmt::format("{} x {}, ranks as threads", std::thread::hardware_concurrency(), model);
}

/// Ranks as threads of one machine, when no file says better: only the order of predictions matters.
plan::Cluster assumedCluster(int64_t ranks) {
  plan::Cluster cluster;
  cluster.name = "assumed: ranks as threads";
  cluster.ranksPerNode = ranks;
  cluster.device = {"CPU core", 1e11, 2e11, 5e10, 1e10, 4e9, 0.5, 2e-6};
  cluster.node = {2e9, 3e-5};
  return cluster;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

class Tuner {
public:
  explicit Tuner(Options &options) : options(options) {}
  bool run();

private:
  Json machineSchedule() const;
  bool load();
  bool isFresh() const;
  void offer(Candidate candidate);
  bool search();
  bool measureBest(const std::string &folder);
  bool agrees(const Candidate &candidate) const;
  bool write();

  Options &options;
  std::string text;
  std::optional<ModelSpec> spec;
  plan::Cluster cluster;
  int64_t ranks = 1, dp = 1, ep = 1, sp = 1;
  Json identity; ///< what the choice holds for
  std::vector<Candidate> candidates; ///< fastest first, once searched
  size_t chosen = 0;
};

bool Tuner::load() {
  std::optional<std::string> read = readText(options.job.input);
  if (!read)
    return false;
  text = std::move(*read);
  auto report = [](const std::string &message) { fail(message); };
  llvm::FailureOr<ModelSpec> parsed = parseModelSpec(text, options.job.input, report);
  if (failed(parsed))
    return false;
  spec = std::move(*parsed);
  llvm::Expected<Mesh> mesh = Mesh::parse(options.job.options.mesh);
  if (!mesh)
    return fail("--mesh=" + options.job.options.mesh + ": " + llvm::toString(mesh.takeError()));
  ranks = mesh->world();
  dp = mesh->size("dp");
  ep = mesh->size("ep");
  sp = mesh->size("sp");
  std::string clusterText;
  if (options.clusterFile.empty()) {
    cluster = assumedCluster(ranks);
  } else {
    std::optional<std::string> file = readText(options.clusterFile);
    std::optional<plan::Cluster> known = file ? plan::parseCluster(*file, options.clusterFile, report) : std::nullopt;
    if (!known)
      return false;
    if (known->ranks() < ranks)
      return fail(
          fmt::format("{}: has {} ranks (nodes times ranks_per_node), but the mesh has {}; valid: a --mesh of at "
                      "most as many",
                      options.clusterFile, known->ranks(), ranks));
    clusterText = std::move(*file);
    cluster = std::move(*known);
  }
  // The program as it is without any choice; what the compiler makes of it belongs to it.
  std::string description = withoutChoice(text);
  const CompileOptions &o = options.job.options;
  std::string program = fmt::format("{}|{}|{}|{}", description, o.batch.value_or(spec->train.batch),
                                    o.seqLen.value_or(spec->train.seqLen), clusterText);
  identity = {{"machine", options.predictOnly ? cluster.name : machineName()},
              {"mesh", options.job.options.mesh},
              {"program", fmt::format("{:016x}", llvm::xxh3_64bits(program))},
              {"kind", options.predictOnly ? "predicted" : "measured"}};
  return true;
}

/// The model's own `schedule` and, in it, the machine that orders are chosen by: what the compiler needs to make the
/// same program again.
Json Tuner::machineSchedule() const {
  Json schedule = Json::parse(withoutChoice(text)).value("schedule", Json::object());
  const CompileOptions &o = options.job.options;
  const plan::Device &device = cluster.device;
  std::vector<uint32_t> members;
  for (int64_t i = 0; i < ep; ++i)
    members.push_back(static_cast<uint32_t>(i));
  auto seconds = [&](double bytes) {
    return plan::collectiveSeconds(cluster, plan::CollectiveKind::all_to_all, members, bytes);
  };
  schedule["machine"] = {{"flops", device.flops(o.dtype.value_or(spec->dtype)) * device.efficiency},
                         {"bandwidth", device.bandwidth * device.efficiency},
                         {"overhead", device.overhead}};
  schedule["machine"]["link_bandwidth"] = ep > 1 ? 1e9 / (seconds(1e9) - seconds(0)) : 1e10;
  schedule["machine"]["link_latency"] = ep > 1 ? seconds(0) : 0;
  return schedule;
}

/// A choice that was made for this machine, mesh and program is kept.
bool Tuner::isFresh() const {
  Json model = Json::parse(text, nullptr, true, /*ignore_comments=*/true);
  Json tuned = model.value("schedule", Json::object()).value(evidenceKey, Json());
  if (!tuned.is_object())
    return false;
  for (auto &[key, value] : identity.items()) {
    Json before = tuned.value(key, Json());
    if (before == value)
      continue;
    fmt::print("stale: {} was {}, is {}\n", key, before.dump(), value.dump());
    return false;
  }
  fmt::print("up to date: {} of {}, {}\n", model["schedule"].value("pipeline", "none"), identity["machine"].dump(),
             tuned.value("kind", "measured"));
  return true;
}

void Tuner::offer(Candidate candidate) {
  for (const Candidate &known : candidates)
    if (known.toJson() == candidate.toJson())
      return;
  // Of a layer with a capacity, peers' rows are bounded only where tokens are not sliced.
  bool sliced = candidate.pipeline != "none";
  int64_t tokens = options.job.options.batch.value_or(spec->train.batch) *
                   options.job.options.seqLen.value_or(spec->train.seqLen) / dp;
  auto experts = [&](int64_t layer) -> plan::Experts {
    const auto *moe = layer < spec->numLayers ? std::get_if<MoeSpec>(&spec->ffns.at(spec->ffnOf(layer))) : nullptr;
    if (!moe || moe->paddedSlots)
      return {};
    return {moe->topK, moe->numExperts, moe->capacityFactor && !sliced ? tokens : 0};
  };
  std::optional<double> seconds = predict(options.job, candidate, cluster, experts);
  if (!seconds) {
    fmt::print("{:<44} cannot be compiled, see above\n", candidate.text());
    return;
  }
  candidate.predicted = *seconds;
  fmt::print("{:<44} {:>10.3f} ms predicted\n", candidate.text(), 1e3 * *seconds);
  candidates.push_back(std::move(candidate));
}

/// Orders and degrees first; where tokens are cut, chunks and the exchange along sp then with the fastest of them.
bool Tuner::search() {
  offer(Candidate());
  if (candidates.empty())
    return false;
  int64_t tokens = options.job.options.seqLen.value_or(spec->train.seqLen);
  if (ep > 1 && sp == 1)
    for (std::string_view pipeline : schedule::pipelineNames)
      for (int64_t degree : options.degrees)
        if (pipeline != "none" && degree > 1 && degree <= tokens)
          offer({.pipeline = std::string(pipeline), .overlapDegree = degree});
  auto sortAll = [&] {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate &a, const Candidate &b) { return a.predicted < b.predicted; });
  };
  sortAll();
  Candidate fastest = candidates.front();
  if (fastest.overlapDegree > 1)
    for (std::string_view slicing : schedule::slicingNames) {
      Candidate other = fastest;
      other.slicing = slicing;
      offer(other);
    }
  sortAll();
  fastest = candidates.front();
  for (int64_t chunk : {32, 64, 128}) {
    Candidate other = fastest;
    other.chunkSize = chunk;
    if (chunk <= tokens)
      offer(other);
  }
  if (sp > 1)
    for (const char *algorithm : {"ring", "all_gather", "scan"}) {
      Candidate other = fastest;
      other.spAlgorithm = algorithm;
      offer(other);
    }
  sortAll();
  return true;
}

/// Sums in another order differ by rounding; a wrong schedule does not stop there.
bool Tuner::agrees(const Candidate &candidate) const {
  const std::vector<double> &truth = candidates.back().losses;
  if (candidate.losses.size() != truth.size())
    return false;
  for (size_t i = 0; i < truth.size(); ++i)
    if (!(std::abs(candidate.losses[i] / truth[i] - 1) <= (i == 0 ? 1e-5 : 1e-2)))
      return false;
  return true;
}

/// The fastest few and the unsliced program (last), in turns, so that whatever else the machine does meets all of them.
bool Tuner::measureBest(const std::string &folder) {
  Candidate plain;
  for (const Candidate &candidate : candidates)
    if (candidate.pipeline == "none" && !candidate.chunkSize && candidate.spAlgorithm.empty())
      plain = candidate;
  std::vector<Candidate> all = std::move(candidates);
  candidates.clear();
  for (const Candidate &candidate : all)
    if (static_cast<int64_t>(candidates.size()) < options.best && candidate.toJson() != plain.toJson())
      candidates.push_back(candidate);
  candidates.push_back(plain);
  std::vector<std::vector<double>> seconds(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i)
    if (!build(options.job, candidates[i], fmt::format("{}/{}.braid", folder, i)))
      return false;
  for (int64_t round = 0; round < options.rounds; ++round)
    for (size_t i = 0; i < candidates.size(); ++i) {
      Measurement own;
      if (auto error =
              measure(fmt::format("{}/{}.braid", folder, i), options.steps, static_cast<int>(options.threads), own))
        return fail(candidates[i].text() + ": " + *error);
      seconds[i].insert(seconds[i].end(), own.seconds.begin(), own.seconds.end());
      candidates[i].losses = own.losses;
    }
  for (size_t i = 0; i < candidates.size(); ++i)
    candidates[i].measured = median(seconds[i]);
  chosen = candidates.size() - 1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    bool right = agrees(candidates[i]);
    fmt::print("{:<44} {:>10.3f} ms measured, {:.3f} predicted{}\n", candidates[i].text(),
               1e3 * *candidates[i].measured, 1e3 * candidates[i].predicted,
               right ? "" : "; its losses are not those of the unsliced program");
    if (!right)
      return fail(candidates[i].text() + ": its losses differ from those of the unsliced program");
    if (*candidates[i].measured < *candidates[chosen].measured)
      chosen = i;
  }
  return true;
}

bool Tuner::write() {
  Json schedule = machineSchedule();
  const Candidate &best = candidates[chosen];
  Json keys = best.toJson();
  for (auto &[key, value] : keys.items())
    schedule[key] = value;
  Json evidence = Json::array();
  for (const Candidate &candidate : candidates) {
    Json line = candidate.toJson();
    line["predicted_ms"] = 1e3 * candidate.predicted;
    if (candidate.measured)
      line["measured_ms"] = 1e3 * *candidate.measured;
    evidence.push_back(std::move(line));
  }
  Json tuned = identity;
  tuned["evidence"] = std::move(evidence);
  schedule[evidenceKey] = std::move(tuned);
  if (llvm::Error failed = writeOutput(options.output, withSchedule(text, schedule)))
    return fail(llvm::toString(std::move(failed)));
  fmt::print("chosen: {} -> {}\n", best.text(), options.output);
  return true;
}

bool Tuner::run() {
  if (!load())
    return false;
  if (!options.again && isFresh()) {
    llvm::Error failed = writeOutput(options.output, text);
    return failed ? fail(llvm::toString(std::move(failed))) : true;
  }
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("braid-tune-{}", getpid());
  std::filesystem::create_directories(folder, error);
  if (error)
    return fail(folder.string() + ": " + error.message());
  // Candidates begin without what the file has chosen already.
  std::string input = options.job.input, plain = (folder / "model.json").string();
  options.job.input = plain;
  llvm::Error failed = writeOutput(plain, withSchedule(withoutChoice(text), machineSchedule()));
  bool done = failed ? fail(llvm::toString(std::move(failed)))
                     : search() && (options.predictOnly || measureBest(folder.string())) && write();
  options.job.input = input;
  std::filesystem::remove_all(folder, error);
  return done;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  setProgramName("braid-tune"); // of what the compiler says
  CompileOptions &compile = options.job.options;
  CLI::App app(
      "Chooses the schedule of a model: predicts many, measures the best few, writes the choice and its evidence "
      "into the model's `schedule`.",
      "braid-tune");
  app.add_option("model", options.job.input, "a model description")->required()->type_name("MODEL.json");
  app.add_option("-o,--output", options.output, "the description with the choice; may be MODEL.json itself")
      ->required()
      ->type_name("TUNED.json");
  app.add_option("--mesh", compile.mesh, "ranks by axis, as braid-compile")->type_name("AXIS=N,..");
  app.add_option("--cluster", options.clusterFile, "devices and links that predictions are for (models/clusters)")
      ->type_name("C.json");
  integerIn(app.add_option("--batch", compile.batch, "as braid-compile"), 1, maxTokens);
  integerIn(app.add_option("--seq-len", compile.seqLen, "as braid-compile"), 1, maxTokens);
  app.add_option("--cpu", compile.cpu, "as braid-compile")->type_name("CPU");
  integerIn(app.add_option("--steps", options.steps, "training steps of a measurement, the first is not counted (6)"),
            2, 10000);
  integerIn(app.add_option("--rounds", options.rounds, "how often each is measured, in turns (3)"), 1, 1000);
  integerIn(app.add_option("--best", options.best, "how many are measured besides the unsliced program (3)"), 1, 100);
  integerIn(app.add_option("--threads", options.threads, "worker threads of a rank (1)"), 1, 1024);
  app.add_option("--degrees", options.degrees, "overlap degrees to try besides 1 (2,3,4,6,8)")
      ->delimiter(',')
      ->check(CLI::Range(1, 16))
      ->type_name("N,..");
  app.add_flag("--predict-only", options.predictOnly, "choose by prediction, for machines that are not at hand");
  app.add_flag("--again", options.again, "search even where the choice in MODEL.json still holds");
  app.failure_message([](const CLI::App *, const CLI::Error &error) {
    return "braid-tune: error: " + std::string(error.what()) + " (see braid-tune --help)\n";
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return Tuner(options).run() ? 0 : 1;
}
