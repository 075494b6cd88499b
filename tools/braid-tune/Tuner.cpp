//===- Tuner.cpp - the search for the schedule of a model ---------------------------------------------------------===//
#include "tools/braid-tune/Tuner.h"

#include "compiler/Diagnostics.h"
#include "compiler/OutputFile.h"
#include "runtime/Program.h"
#include "schedule/Slicing.h"
#include "schedule/Stages.h"
#include "tools/braid-tune/Evidence.h"
#include "tools/common/InputFile.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/StringSaver.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <thread>

using namespace braid;
using namespace braid::tune;
using runtime::Program;

static bool fail(const std::string &message) {
  std::fflush(stdout);
  printError(message);
  return false;
}

/// False after a message.
static bool isDone(llvm::Error error) { return error ? fail(llvm::toString(std::move(error))) : true; }

static void report(const std::string &message) { fail(message); }

/// Ranks as threads of one machine, when no file says better: only the order of predictions matters.
static plan::Cluster assumedCluster(int64_t ranks) {
  plan::Cluster cluster;
  cluster.name = "assumed: ranks as threads";
  cluster.ranksPerNode = ranks;
  double noLimit = std::numeric_limits<double>::infinity(); // of memory; who measures sees what does not fit
  plan::Device &device = cluster.device;
  device.name = "CPU core";
  device.f32Flops = 1e11, device.bf16Flops = 2e11, device.f64Flops = 5e10;
  device.bandwidth = 1e10;
  device.memory = noLimit;
  device.efficiency = 0.5;
  device.overhead = 2e-6;
  cluster.node = {2e9, 3e-5};
  return cluster;
}

/// The machine that a model file names: all ranks in one node, with links on which a message takes what the machine says,
/// and an all-to-all of `ranks` of them what it says of its buffer.
static plan::Cluster clusterOf(const MachineSpec &machine, int64_t world, int64_t ranks) {
  plan::Cluster cluster = assumedCluster(world);
  cluster.name = "schedule.machine of the model";
  plan::Device &device = cluster.device;
  device.f32Flops = device.bf16Flops = device.f64Flops = machine.flops;
  device.bandwidth = machine.bandwidth;
  device.efficiency = 1;
  device.overhead = machine.overhead;
  cluster.node = {machine.linkBandwidth, machine.linkLatency};
  if (ranks > 1) {
    auto size = static_cast<double>(ranks);
    cluster.exchanges = {machine.linkBandwidth * (size - 1) / size, machine.linkLatency / std::ceil(std::log2(size))};
  }
  return cluster;
}

//===- What is asked ----------------------------------------------------------------------------------------------===//

bool Tuner::load() {
  std::optional<std::string> read = readFile(options.job.input);
  if (!read)
    return false;
  text = std::move(*read);
  llvm::FailureOr<ModelSpec> parsed = readModel(options.job.options, text, options.job.input);
  if (failed(parsed))
    return false;
  spec = std::move(*parsed);
  llvm::Expected<Mesh> asked = Mesh::parse(options.job.options.mesh);
  if (!asked)
    return fail("--mesh=" + options.job.options.mesh + ": " + llvm::toString(asked.takeError()));
  mesh = std::move(*asked);
  bool cuts = llvm::any_of(options.degrees, [](int64_t degree) { return degree > 1; });
  if (!options.job.options.givenAs("--degrees").empty() && cuts && mesh.size("ep") == 1)
    return fail(
        "--degrees says in how many slices to try layers whose expert rows travel, and ep is 1 in --mesh; valid: "
        "with ep=2 or more in --mesh");
  return loadCluster();
}

/// Whether the input is a config of transformers to which nobody has added a key of ours.
bool Tuner::isOthers() const {
  Json model = Json::parse(text, nullptr, true, /*ignore_comments=*/true);
  return !model.contains("mixers") && !model.contains("schedule") && !model.contains("train");
}

bool Tuner::loadCluster() {
  Json model = Json::parse(text, nullptr, true, /*ignore_comments=*/true);
  keepsMachine = !machineOf(model.value("schedule", Json::object())).is_null();
  cluster =
      keepsMachine ? clusterOf(*spec->schedule.machine, mesh.world(), mesh.size("ep")) : assumedCluster(mesh.world());
  if (options.clusterFile.empty())
    return true;
  std::optional<plan::Cluster> known = plan::readCluster(options.clusterFile);
  if (!known)
    return false;
  if (known->ranks() < mesh.world())
    return fail(
        fmt::format("{}: has {} ranks (nodes times ranks_per_node), but --mesh={} has {}; valid: a --mesh of at "
                    "most as many",
                    options.clusterFile, known->ranks(), options.job.options.mesh, mesh.world()));
  cluster = std::move(*known);
  // What is measured here runs here.
  if (options.predictOnly)
    plan::chooseTarget(options.job.options, options.job.options.given, cluster.device);
  else
    cluster.device.runOnProcessor();
  return true;
}

/// The model's own `schedule` and, in it, the machine that orders are chosen by: what the compiler needs to make the
/// same program again.
Json Tuner::machineSchedule() const {
  Json schedule = Json::parse(withoutChoice(text)).value("schedule", Json::object());
  if (keepsMachine)
    return schedule;
  Machine machine = plan::machineOf(cluster, mesh, spec->dtype);
  schedule["machine"] = {{"flops", machine.flops},
                         {"bandwidth", machine.bandwidth},
                         {"overhead", machine.overhead},
                         {"link_bandwidth", machine.linkBandwidth},
                         {"link_latency", machine.linkLatency}};
  return schedule;
}

bool Tuner::makePlain() {
  std::string model = folder + "/model.json", program = folder + "/plain.braid";
  if (!isDone(writeOutput(model, withSchedule(withoutChoice(text), machineSchedule()))))
    return false;
  options.job.input = model;
  if (options.predictOnly) {
    CompileJob job = options.job;
    job.options = Candidate().apply(job.options);
    std::optional<std::vector<uint8_t>> bytes = compileTables(job);
    options.job.isRepeated = true;
    if (bytes)
      plainHash = hashOf({reinterpret_cast<const char *>(bytes->data()), bytes->size()});
    return bytes.has_value();
  }
  if (!build(options.job, Candidate(), program))
    return false;
  options.job.isRepeated = true;
  auto loaded = Program::load(program);
  if (!loaded.ok())
    return fail(loaded.status().message());
  plainHash = (*loaded)->fileHash().hex();
  return true;
}

/// The choice holds as long as all of this does. The program is what the compiler makes of model and flags, its own
/// version included, before anything is chosen.
void Tuner::identify() {
  const CompileOptions &o = options.job.options;
  identity = {{"kind", options.predictOnly ? "predicted" : "measured"},
              {"machine", options.predictOnly ? cluster.name : machineName()},
              {"mesh", o.mesh},
              {"batch", o.batch.value_or(spec->train.batch)},
              {"seq_len", o.seqLen.value_or(spec->train.seqLen)},
              {"description", hashOf(withoutChoice(text))},
              {"program", plainHash}};
  if (!cluster.text.empty())
    identity["cluster"] = cluster.name + ", " + hashOf(cluster.text);
  if (options.predictOnly)
    return;
  identity["ranks"] = options.launch.empty() ? "threads of one process" : llvm::json::fixUTF8(options.launch);
  identity["threads"] = options.threads;
  identity["cpu"] = o.cpu;
}

std::vector<int64_t> Tuner::possibleDegrees() const {
  int64_t tokens = options.job.options.seqLen.value_or(spec->train.seqLen) / mesh.size("sp");
  std::vector<int64_t> possible;
  llvm::copy_if(options.degrees, std::back_inserter(possible), [&](int64_t degree) { return degree <= tokens; });
  return possible;
}

/// A choice that was made for this machine, mesh and program is kept; else all that changed is said.
bool Tuner::isFresh() const {
  Json model = Json::parse(text, nullptr, true, /*ignore_comments=*/true);
  Json schedule = model.value("schedule", Json::object());
  Json tuned = schedule.value(evidenceKey, Json());
  if (!tuned.is_object())
    return false;
  Json asked = identity;
  for (const char *key : {"cluster", "ranks", "threads", "cpu"}) // which only some kinds have
    if (!asked.contains(key) && tuned.contains(key))
      asked[key] = Json();
  std::vector<std::string> changes = changesSince(schedule, asked);
  if (!options.job.options.givenAs("--degrees").empty())
    if (std::string untried = untriedDegrees(schedule, possibleDegrees()); !untried.empty())
      changes.push_back(std::move(untried));
  for (const std::string &change : changes)
    fmt::print(out, "stale: {}\n", change);
  bool fresh = changes.empty();
  if (fresh)
    fmt::print(out, "up to date: {} for {}, {}\n", schedule.value("pipeline", "none"), identity["machine"].dump(),
               identity["kind"].get<std::string>());
  return fresh;
}

//===- Predictions ------------------------------------------------------------------------------------------------===//

Candidate Tuner::plain() const {
  Candidate plain;
  if (mesh.size("pp") > 1)
    plain.stageOrder = schedule::stageOrderNames.front();
  return plain;
}

std::optional<double> Tuner::offer(Candidate candidate) {
  auto fitting = [](const Candidate &known) {
    return known.dropped.empty() ? std::optional(known.predicted) : std::nullopt;
  };
  for (const Candidate &known : candidates)
    if (known.toJson() == candidate.toJson())
      return fitting(known);
  if (!predict(options.job, candidate, cluster)) {
    std::fflush(stderr);
    fmt::print(out, "{:<44} cannot be compiled, see above\n", candidate.text());
    return std::nullopt;
  }
  for (const Candidate &known : candidates)
    if (known.tasks == candidate.tasks) {
      fmt::print(out, "{:<44} the same tasks as {}\n", candidate.text(), known.text());
      return fitting(known);
    }
  fmt::print(out, "{:<44} {:>10.3f} ms predicted{}{}\n", candidate.text(), 1e3 * candidate.predicted,
             candidate.dropped.empty() ? "" : "; ", candidate.dropped);
  candidates.push_back(std::move(candidate));
  return fitting(candidates.back());
}

/// "0-2:3,5:1": of the layers that are not cut in `most` slices.
static std::string degreesText(const std::vector<int64_t> &degrees, int64_t most) {
  std::string text;
  for (size_t first = 0, end = 0; first < degrees.size(); first = end) {
    while (end < degrees.size() && degrees[end] == degrees[first])
      ++end;
    if (degrees[first] == most)
      continue;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (end > first + 1)
      text += fmt::format("-{}", end - 1);
    text += fmt::format(":{}", degrees[first]);
  }
  return text;
}

void Tuner::searchLayers() {
  const Candidate start = candidates.front();
  std::map<std::pair<std::string, char>, std::vector<int64_t>> kinds; // layers with experts, by mixers and experts
  for (int64_t layer = 0; layer < spec->numLayers; ++layer)
    if (const FfnSpec *ffn = spec->findFfn(spec->ffnOf(layer)); ffn && std::holds_alternative<MoeSpec>(*ffn))
      kinds[{spec->mixersOf(layer), spec->ffnOf(layer)}].push_back(layer);
  if (kinds.size() < 2)
    return;
  std::vector<int64_t> tried = possibleDegrees(), chosenDegrees(spec->numLayers, start.overlapDegree);
  tried.push_back(1);
  double least = start.predicted;
  for (const auto &[kind, layers] : kinds) {
    std::vector<int64_t> best = chosenDegrees;
    for (int64_t degree : tried) {
      std::vector<int64_t> own = chosenDegrees;
      for (int64_t layer : layers)
        own[layer] = degree;
      Candidate candidate = start;
      candidate.overlapDegrees = degreesText(own, start.overlapDegree);
      if (std::optional<double> predicted = offer(candidate); predicted && *predicted < least)
        least = *predicted, best = own;
    }
    chosenDegrees = best;
  }
}

/// Orders and degrees first; where tokens are cut, chunks and the exchange along sp then with the fastest of them. What
/// does not fit is the start of nothing.
bool Tuner::search() {
  if (options.clusterFile.empty())
    fmt::print(out, "predicted with {} (--cluster=FILE for others)\n",
               keepsMachine ? "the model's schedule.machine" : "assumed rates of CPU cores");
  auto sortAll = [&] {
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate &a, const Candidate &b) {
      return std::pair(!a.dropped.empty(), a.predicted) < std::pair(!b.dropped.empty(), b.predicted);
    });
  };
  auto offerStageOrders = [&](Candidate other) {
    for (std::string_view order : schedule::stageOrderNames) {
      other.stageOrder = order;
      if (mesh.size("pp") > 1)
        offer(other);
    }
  };
  offer(plain());
  if (candidates.empty())
    return false;
  offerStageOrders(plain());
  sortAll();
  const std::string stageOrder = candidates.front().stageOrder;
  int64_t sp = mesh.size("sp"), tokens = options.job.options.seqLen.value_or(spec->train.seqLen) / sp;
  if (mesh.size("ep") > 1)
    for (std::string_view pipeline : schedule::pipelineNames)
      for (int64_t degree : possibleDegrees())
        if (pipeline != "none" && degree > 1) {
          Candidate sliced;
          sliced.pipeline = pipeline;
          sliced.overlapDegree = degree;
          sliced.stageOrder = stageOrder;
          offer(std::move(sliced));
        }
  sortAll();
  if (candidates.front().overlapDegree > 1) {
    searchLayers();
    sortAll();
  }
  Candidate fastest = candidates.front();
  if (fastest.overlapDegree > 1)
    for (std::string_view slicing : schedule::slicingNames) {
      Candidate other = fastest;
      other.slicing = slicing;
      offer(other);
    }
  sortAll();
  fastest = candidates.front();
  for (int64_t chunk : {16, 32, 64, 128}) {
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
  offerStageOrders(candidates.front());
  sortAll();
  if (const Candidate &best = candidates.front(); !best.dropped.empty())
    return fail(best.text() + ": " + best.dropped +
                ", and no other candidate fits; valid: a --mesh in which one does (braid-plan says what needs most)");
  return true;
}

//===- Measurements -----------------------------------------------------------------------------------------------===//

/// The fastest few and the unsliced program (last), in turns, so that whatever else the machine does meets all of them.
/// What does not fit stands before the unsliced program, as evidence.
bool Tuner::measureBest() {
  auto plain = llvm::find_if(candidates, [](const Candidate &candidate) { return candidate.isPlain(); });
  if (!plain->dropped.empty())
    return fail("the unsliced program: " + plain->dropped);
  std::rotate(plain, plain + 1, candidates.end());
  auto end = std::find_if(candidates.begin(), candidates.end() - 1, [](auto &other) { return !other.dropped.empty(); });
  if (end - candidates.begin() > options.best)
    candidates.erase(candidates.begin() + options.best, end);
  auto fileOf = [&](size_t i) {
    return folder + (i + 1 == candidates.size() ? "/plain" : "/" + std::to_string(i)) + ".braid";
  };
  if (auto error = runner.writeData(spec->vocabSize))
    return fail(*error);
  for (size_t i = 0; i + 1 < candidates.size(); ++i)
    if (candidates[i].dropped.empty() && !build(options.job, candidates[i], fileOf(i)))
      candidates[i].dropped = "it cannot be compiled";
  for (int64_t round = 0; round < options.rounds; ++round)
    for (auto [i, candidate] : llvm::enumerate(candidates)) {
      if (!candidate.dropped.empty())
        continue;
      Measurement before = candidate.measured;
      auto error = measure(runner, fileOf(i), candidate.measured);
      if (!error && round > 0)
        error = repetition(before, candidate.measured);
      if (error && candidate.isPlain())
        return fail("the unsliced program: " + *error);
      if (error)
        candidate.dropped = "it cannot be run: " + *error;
    }
  judge(toleranceOf(spec->dtype, identity["batch"].get<int64_t>() * identity["seq_len"].get<int64_t>()));
  return true;
}

/// Who computes something else is out; of the others the fastest is chosen if it beats the unsliced program by more
/// than what chance does.
void Tuner::judge(const Tolerance &tolerance) {
  checked = {{"loss_tolerance", tolerance.loss}, {"gradient_norm_tolerance", tolerance.gradient}};
  const Measurement &plain = candidates.back().measured;
  chosen = candidates.size() - 1;
  for (auto [i, candidate] : llvm::enumerate(candidates)) {
    const Measurement &own = candidate.measured;
    if (candidate.dropped.empty())
      if (std::string why = disagreement(own, plain, tolerance); !why.empty())
        candidate.dropped = why;
    if (!candidate.dropped.empty()) {
      fmt::print(out, "{:<44} dropped: {}\n", candidate.text(), candidate.dropped);
      continue;
    }
    fmt::print(out, "{:<44} {:>10.3f} ms measured{}, {:.3f} predicted\n", candidate.text(), 1e3 * own.median(),
               std::isfinite(own.spread()) ? fmt::format(" +- {:.3f}", 1e3 * own.spread()) : "",
               1e3 * candidate.predicted);
    bool faster = own.median() + own.spread() < plain.median() - plain.spread();
    if (faster && own.median() < candidates[chosen].measured.median())
      chosen = i;
  }
  fmt::print(out,
             "checked: the first gradient norm within {:.1e}, the loss of step n within n times {:.1e} of the unsliced "
             "program's, {} steps ({})\n",
             tolerance.gradient, tolerance.loss, plain.losses.size(), spec->dtype);
  if (candidates.size() > 1 && chosen + 1 == candidates.size())
    fmt::print(out, "the unsliced program stays: {}\n",
               std::isfinite(plain.spread()) ? "none is faster by more than the spread of both"
                                             : "fewer than 4 timed steps do not show a spread (--steps, --rounds)");
}

//===- The choice -------------------------------------------------------------------------------------------------===//

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
    if (!candidate.dropped.empty()) {
      line["dropped"] = candidate.dropped;
    } else if (!candidate.measured.seconds.empty()) {
      line["measured_ms"] = 1e3 * candidate.measured.median();
      if (double spread = candidate.measured.spread(); std::isfinite(spread))
        line["spread_ms"] = 1e3 * spread;
    }
    evidence.push_back(std::move(line));
  }
  Json tuned = identity;
  tuned[chosenKey] = choiceOf(schedule);
  tuned[ratesKey] = schedule["machine"];
  if (keepsMachine)
    tuned[ownMachineKey] = true;
  if (mesh.size("ep") > 1)
    tuned[degreesKey] = fmt::format("{}", fmt::join(possibleDegrees(), ","));
  if (!checked.is_null())
    tuned["checked"] = checked;
  tuned["evidence"] = std::move(evidence);
  schedule[evidenceKey] = std::move(tuned);
  std::string written = withSchedule(text, schedule);
  // It may take the place of the only copy.
  if (!holdsSchedule(written, text, schedule) || failed(parseModelSpec(written, options.output, report)))
    return fail(options.output + ": what would be written is not " + options.job.input +
                " with another `schedule`; nothing was written");
  if (!isDone(writeOutput(options.output, written)))
    return false;
  fmt::print(out, "chosen by {}: {} -> {}\n", options.predictOnly ? "prediction" : "measurement", best.text(),
             options.output);
  return true;
}

bool Tuner::run() {
  if (!load())
    return false;
  std::string input = options.job.input;
  std::vector<NamedFile> inputs, outputs = {{"-o " + options.output, options.output, FileKind::description}};
  if (!options.clusterFile.empty())
    inputs.push_back({"--cluster " + options.clusterFile, options.clusterFile});
  if (isOthers()) // a description of ours may be replaced by itself with a choice
    inputs.push_back({"the input " + input + ", which other software wrote", input});
  if (!isDone(checkOutputs(inputs, outputs)))
    return false;
  if (!isDone(checkWritable(options.output)))
    return false;
  if (!options.predictOnly) {
    if (options.braidRun.empty())
      return fail("braid-run, which measures, is neither beside braid-tune nor in PATH; valid: with --predict-only");
    llvm::BumpPtrAllocator memory;
    llvm::StringSaver saver(memory);
    llvm::SmallVector<const char *> words;
    llvm::cl::TokenizeGNUCommandLine(options.launch, saver, words);
    runner.braidRun = options.braidRun;
    if (words.empty() && !options.launch.empty())
      return fail("--launch=\"" + options.launch + "\" names no command; valid: such as \"mpirun -n 2\"");
    runner.launcher.assign(words.begin(), words.end());
    runner.ranks = mesh.world();
    runner.threads = options.threads;
    runner.steps = options.steps;
  }
  llvm::SmallString<128> made;
  if (std::error_code error = llvm::sys::fs::createUniqueDirectory("braid-tune", made))
    return fail("cannot make a folder for programs: " + error.message());
  folder = made.str().str();
  llvm::scope_exit clean([&] { llvm::sys::fs::remove_directories(folder); });
  runner.folder = folder;
  if (options.job.options.kernelCache.empty()) // programs of one model share most of their kernels
    options.job.options.kernelCache = folder + "/kernels";
  if (!makePlain())
    return false;
  identify();
  if (!options.again && isFresh())
    return isDone(writeOutput(options.output, text));
  bool done = search() && (options.predictOnly || measureBest());
  options.job.input = input;
  return done && write();
}
