//===- ModelCommand.cpp - braid-plan MODEL.json|P.braid: memory, step time and communication on a cluster ---------===//
#include "compiler/Driver.h"
#include "frontend/ModelSpec.h"
#include "passes/analysis/Mesh.h"
#include "runtime/MachineMemory.h"
#include "runtime/io/TensorNames.h"
#include "runtime/train/Rank.h"
#include "schedule/Draw.h"
#include "tools/braid-plan/Commands.h"
#include "tools/braid-plan/Forecast.h"
#include "tools/braid-tune/Evidence.h"
#include "tools/common/GivenFlags.h"
#include "tools/common/InputFile.h"
#include "tools/common/WordFlag.h"

#include "llvm/Support/FileSystem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <numeric>
#include <set>

using namespace braid;
using plan::numberOf;
using runtime::Program;
using Json = nlohmann::ordered_json;

namespace {

struct Options {
  CompileJob job;
  std::string cluster, entry;
  bool json = false;
  plan::Pictures pictures;
  std::vector<CLI::Option *> ofDescription; ///< a program has been compiled with them already
};

void report(const std::string &message) { plan::fail(message); }

/// Without --mesh all ranks of the cluster: batches over all of them, experts over as many as divide them.
void chooseMesh(CompileOptions &options, const ModelSpec &spec, const plan::Cluster &cluster) {
  int64_t ranks = cluster.ranks(), ep = 1;
  for (const auto &[letter, ffn] : spec.ffns)
    if (const auto *moe = std::get_if<MoeSpec>(&ffn))
      ep = std::gcd(ranks, moe->numExperts);
  options.mesh = fmt::format("dp={},ep={}", ranks, ep);
  if (!options.batch && spec.train.batch % ranks != 0)
    options.batch = (spec.train.batch / ranks + 1) * ranks;
}

/// A program that the cluster's devices do not run is planned all the same: how fast they would be says something of others like them.
void warnOfDevices(const Options &options, const plan::Cluster &cluster, llvm::StringRef target, llvm::StringRef arch) {
  const std::string &device = cluster.device.arch;
  if (target == "cuda" && arch != device)
    llvm::errs() << "braid-plan: warning: " << options.job.input << " is planned as a program for GPUs (" << arch
                 << "), and " << options.cluster << " has "
                 << (device.empty() ? "devices without an arch" : "devices of arch " + device)
                 << ": rates are theirs\n";
}

std::shared_ptr<const Program> load(Options &options, std::optional<plan::Cluster> &cluster) {
  const std::string &input = options.job.input;
  if (llvm::sys::fs::is_directory(input)) { // which of its files was meant, the message says
    (void)readFile(input);
    return nullptr;
  }
  if (!llvm::StringRef(input).ends_with(".json")) {
    for (const CLI::Option *option : options.ofDescription)
      if (option->count() > 0) {
        plan::fail(option->get_name() + " changes what a description is compiled to, but " + input +
                   " is a program; valid: a MODEL.json, or the program as it is");
        return nullptr;
      }
    auto program = Program::load(input);
    if (program.ok()) {
      options.job.options.target = (*program)->target();
      options.job.options.arch = (*program)->arch();
      if (cluster && (*program)->target() != "cuda")
        cluster->device.runOnProcessor();
      return *program;
    }
    plan::fail(program.status().message());
    return nullptr;
  }
  CompileOptions &compile = options.job.options;
  plan::Device none;
  plan::chooseTarget(compile, compile.given, cluster ? cluster->device : none);
  if (cluster) {
    bool choose = compile.mesh.empty() && cluster->ranks() > 1;
    if (choose && cluster->ranks() > maxAxisSize) {
      plan::fail(options.cluster + " has " + llvm::Twine(cluster->ranks()) +
                 " ranks (nodes times ranks_per_node), more than one axis may have (" + llvm::Twine(maxAxisSize) +
                 "); valid: with --mesh");
      return nullptr;
    }
    std::optional<std::string> text = readFile(input);
    if (!text)
      return nullptr;
    std::vector<KeyOverride> overrides;
    if (compile.dtype)
      overrides.push_back({"--dtype", "dtype", *compile.dtype});
    llvm::FailureOr<ModelSpec> spec = parseModelSpec(*text, input, report, overrides);
    if (failed(spec))
      return nullptr;
    if (choose)
      chooseMesh(compile, *spec, *cluster);
    // Orders are chosen by what they will run on; a mesh that is wrong is the compiler's to refuse.
    llvm::Expected<Mesh> mesh = Mesh::parse(compile.mesh);
    if (mesh && mesh->world() <= cluster->ranks())
      compile.machine = plan::machineOf(*cluster, *mesh, compile.dtype.value_or(spec->dtype));
    else if (!mesh)
      llvm::consumeError(mesh.takeError());
  }
  if (cluster)
    compile.secondsOf = [&](const std::vector<uint8_t> &file, const Machine &) {
      return plan::secondsOn(file, *cluster);
    };
  std::optional<std::vector<uint8_t>> bytes = compileTables(options.job);
  if (!bytes)
    return nullptr;
  return plan::programOf(*bytes, input);
}

/// Bytes of a rank of a stage that runs the entry (to train: no caches; to generate: no moments), and why they do not fit.
struct Memory {
  Memory(const Program &program, const std::string &entry) : program(program), entry(entry) {
    std::vector<uint64_t> needed = program.arenaBytes(runtime::keptWith(entry));
    for (size_t i = 0; i < needed.size(); ++i) {
      total += needed[i];
      if (needed[i] > 0)
        arenas.push_back({program.arenas()[i].name, needed[i]});
    }
    std::stable_sort(arenas.begin(), arenas.end(), [](auto &a, auto &b) { return a.bytes > b.bytes; });
  }

  /// What would make the largest arena smaller, of what has not been done yet.
  std::string advice(const CompileOptions &asked) const {
    const std::string &name = arenas.front().name;
    auto size = [&](const char *axis) { return program.mesh().size(axis).value_or(1); };
    std::string fewer = size("dp") < program.mesh().worldSize() ? "a smaller --seq-len or a larger dp"
                                                                : "a smaller --seq-len or more ranks";
    double parts = std::max(numberOf(program, "train.micro_batches"), 1.0), rows = rowsOfBatch();
    if (rows > 1)
      fewer = "a smaller --batch, " + fewer;
    if (size("pp") > 1 && rows > parts)
      fewer = fmt::format("more --micro-batches than {:.0f}, {}", parts, fewer);
    // A budget that is met keeps no more than it allows; one that is not has everything computed again.
    bool hasRoomForAll = size("ep") > 1 && numberOf(program, "schedule.expert_room", 0) == 0;
    if (name == "saved" && (asked.recompute == "all" || asked.activationBudget))
      return fmt::format("what layers begin with and, with experts on ep = {} ranks, room for rows that these may "
                         "send: {}{}, a smaller ep, or a "
                         "capacity_factor in the model",
                         size("ep"), hasRoomForAll ? "an --expert-room, as 2, " : "", fewer);
    if (name == "saved")
      return fmt::format("activations kept for the backward: {}--recompute=all or an --activation-budget, {}",
                         hasRoomForAll ? "an --expert-room, as 2, " : "", fewer);
    if (name == "parameters" || name == "optimizer" || name == "gradients") {
      uint32_t world = program.mesh().worldSize(), sharers = world / size("pp");
      // Of what generates there are no stages, and none is without a layer.
      bool mayCut = !runtime::serves(entry) && layers().size() > 1;
      std::string larger = mayCut ? "pp" : "";
      if (size("ep") * size("etp") < sharers)
        larger += mayCut ? ", ep, etp or tp" : "ep, etp or tp";
      return fmt::format(
          "weights: layers are divided by pp = {}, experts by ep = {} and etp = {}, heads and widths by tp = {}, "
          "optimizer states by {}; {}more ranks{}",
          size("pp"), size("ep"), size("etp"), size("tp"),
          size("pp") > 1 ? fmt::format("the ranks of a stage, {}", sharers) : fmt::format("all {} ranks", world),
          larger.empty() ? "" : "a larger " + larger + ", or ",
          name == "gradients" && parts == 1          ? ", or --gradient-dtype=bf16"
          : name == "optimizer" && hasWiderMoments() ? ", or --moment-dtype=bf16"
                                                     : "");
    }
    return "values of one layer and rows that travel: " + fewer;
  }

  /// Moments in f32 of parameters in bf16.
  bool hasWiderMoments() const {
    return std::ranges::any_of(program.tensors(), [&](const runtime::TensorInfo &tensor) {
      const runtime::TensorInfo *second =
          tensor.dtype == runtime::DType::bf16 ? program.momentOf(tensor, "second") : nullptr;
      return second && second->dtype == runtime::DType::f32;
    });
  }

  /// Nothing: the entry does not train, or the program does not say.
  std::optional<runtime::Activations> activations() const {
    if (runtime::keptWith(entry) != runtime::trains)
      return std::nullopt;
    auto own = runtime::activationsOf(program);
    return own.ok() ? *own : std::nullopt;
  }

  /// Optimizer states that the ranks with the same parameter could share, and do not: of how many bytes, and why.
  std::optional<std::string> wholeStates() const {
    auto size = [&](const char *axis) { return program.mesh().size(axis).value_or(1); };
    uint64_t bytes = 0, all = 0;
    std::vector<std::string> names;
    for (const runtime::TensorInfo &tensor : program.tensors()) {
      if (tensor.role != runtime::Role::moment)
        continue;
      auto cutBy = [&](const char *axis) {
        return std::any_of(tensor.shards.begin(), tensor.shards.end(),
                           [&](const runtime::ShardInfo &shard) { return shard.axis.find(axis) != std::string::npos; });
      };
      int64_t sharers = cutBy("ep") ? size("edp") : size("dp") * size("sp");
      all += tensor.bytes;
      if (sharers == 1 || cutBy("dp") || cutBy("sp"))
        continue;
      bytes += tensor.bytes;
      if (std::find(names.begin(), names.end(), tensor.of) == names.end())
        names.push_back(tensor.of);
    }
    if (bytes * 50 < all || names.empty()) // biases and norms
      return std::nullopt;
    return fmt::format(
        "of the optimizer's states {} of {} are whole on every rank: dp = {} and sp = {} divide no dimension of {}{}",
        runtime::formatBytes(bytes), runtime::formatBytes(all), size("dp"), size("sp"), names.front(),
        names.size() == 1 ? "" : fmt::format(" and {} others", names.size() - 1));
  }

  /// Of the batch on a rank; infinite where it is not known.
  double rowsOfBatch() const {
    auto first = program.stage(0);
    for (const char *name : {"train_step", "accumulate_step"})
      if (auto step = first->findEntry(name))
        if (auto tokens = runtime::entryInput(*first, *step, "tokens"); tokens.ok() && !(*tokens)->shape.empty())
          return static_cast<double>((*tokens)->shape[0]);
    return std::numeric_limits<double>::infinity();
  }

  std::set<int32_t> layers() const { return runtime::layersOf(program); }

  const Program &program;
  std::string entry;
  uint64_t total = 0;
  struct Arena {
    std::string name;
    uint64_t bytes;
  };
  std::vector<Arena> arenas; ///< largest first
};

/// What is planned. Of stages `memory` is that of the one that needs most: which fits if it does.
struct Plan {
  const Program &program;
  const std::vector<Memory> &stages;
  const Memory &memory;
  const CompileOptions &asked;
  const std::vector<std::string> &entries; ///< of the step
  double tokens; ///< of the step, of all ranks
  const plan::Cluster *cluster; ///< null: none
  const plan::Forecast *forecast; ///< null: without a cluster
  const plan::Step *step; ///< null: the entries are no default ones, or a step has no more than they

  bool hasUpdate() const { return entries.front() == "train_step" || entries.back() == "update_step"; }
};

Json toJson(const runtime::Activations &activations) {
  return {
      {"kept_bytes", activations.kept}, {"all_bytes", activations.all}, {"recomputed_percent", activations.percent}};
}

/// Of a pipeline, what each rank along pp has to do.
Json stagesOf(const Plan &plan) {
  Json stages = Json::array();
  for (const auto &[index, memory] : llvm::enumerate(plan.stages)) {
    Json stage = {{"stage", index}, {"layers", memory.layers()}, {"bytes_per_rank", memory.total}};
    if (std::optional<runtime::Activations> activations = memory.activations())
      stage["activations"] = toJson(*activations);
    if (plan.forecast) {
      stage["compute_busy"] = plan.forecast->stages[index].measures.computeBusy;
      stage["flops"] = plan.forecast->stages[index].flops;
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

Json toJson(const Plan &plan) {
  const auto &[program, stages, memory, asked, entries, tokens, cluster, forecast, step] = plan;
  const std::string &entry = entries.front();
  Json arenas = Json::array();
  for (const Memory::Arena &arena : memory.arenas)
    arenas.push_back({{"name", arena.name}, {"bytes", arena.bytes}});
  Json json = {{"model", program.name()},
               {"parameters", static_cast<int64_t>(numberOf(program, "parameter_count"))},
               {"ranks", program.mesh().worldSize()},
               {"target", asked.target},
               {"memory", {{"bytes_per_rank", memory.total}, {"arenas", std::move(arenas)}}}};
  if (asked.target == "cuda")
    json["arch"] = asked.arch;
  if (stages.size() > 1) {
    json["memory"]["stage"] = memory.program.ownStage();
    json["stages"] = stagesOf(plan);
    json["head_stages"] = program.metadata("schedule.head_stages").value_or("last");
  }
  if (std::optional<runtime::Activations> activations = memory.activations())
    json["memory"]["activations"] = toJson(*activations);
  for (const auto *view : {&program.mesh().dense, &program.mesh().expert})
    for (const runtime::AxisInfo &axis : *view)
      json["mesh"][axis.name] = axis.size;
  if (!cluster)
    return json;
  bool fits = static_cast<double>(memory.total) <= cluster->device.memory;
  json["cluster"] = cluster->name;
  json["memory"]["device_bytes"] = cluster->device.memory;
  json["memory"]["fits"] = fits;
  if (!fits)
    json["memory"]["reason"] = {{"largest", memory.arenas.front().name}, {"advice", memory.advice(asked)}};
  if (asked.machine)
    json["machine"] = {{"flops", asked.machine->flops},
                       {"bandwidth", asked.machine->bandwidth},
                       {"overhead", asked.machine->overhead},
                       {"link_bandwidth", asked.machine->linkBandwidth},
                       {"link_latency", asked.machine->linkLatency}};
  Json axes = Json::array();
  for (const plan::Forecast::Axis &axis : forecast->axes)
    axes.push_back({{"axis", axis.name},
                    {"collectives", axis.collectives},
                    {"bytes", axis.bytes},
                    {"time", axis.seconds},
                    {"processor", axis.processor}});
  json["step"] = {{"entry", entry},
                  {"update", plan.hasUpdate()},
                  {"time", forecast->measures.makespan},
                  {"compute_busy", forecast->measures.computeBusy},
                  {"exposed_comm", forecast->measures.exposedComm},
                  {"bubble", forecast->measures.bubble},
                  {"tokens", tokens},
                  {"flops", forecast->flops},
                  {"most_flops", forecast->mostFlops},
                  {"bytes", forecast->bytes},
                  {"commands", forecast->commands},
                  {"balanced_routing_assumed", forecast->balanced},
                  {"empty_caches_assumed", forecast->emptyCaches},
                  {"communication", std::move(axes)}};
  if (step)
    json["whole_step"] = {{"batches", step->batches},
                          {"tokens", step->tokens},
                          {"time", step->measures.makespan},
                          {"compute_busy", step->measures.computeBusy},
                          {"exposed_comm", step->measures.exposedComm},
                          {"bubble", step->measures.bubble}};
  return json;
}

/// Of a training step: ": batch 8 of 2048 tokens", as asked or rounded up to the ranks.
std::string batchText(const Program &program, double tokens) {
  double batch = numberOf(program, "batch"), length = numberOf(program, "seq_len");
  return batch * length == tokens ? fmt::format(": batch {:.0f} of {:.0f} tokens", batch, length) : "";
}

std::string seconds(double value) {
  return value < 1e-3 ? fmt::format("{:.3g} us", 1e6 * value)
         : value < 1  ? fmt::format("{:.3g} ms", 1e3 * value)
                      : fmt::format("{:.3g} s", value);
}

/// "0-3 (4)", "5 (1)"; "none".
std::string layersText(const std::set<int32_t> &layers) {
  if (layers.empty())
    return "none";
  std::string text = std::to_string(*layers.begin());
  if (layers.size() > 1)
    text += "-" + std::to_string(*layers.rbegin()); // a stage's follow each other
  return fmt::format("{} ({})", text, layers.size());
}

/// A line for each, and which one the others wait for.
void printStages(const Plan &plan) {
  double most = 0, sum = 0;
  size_t longest = 0;
  for (const auto &[index, memory] : llvm::enumerate(plan.stages)) {
    fmt::print("  {:<12} {:>12} per rank, layers {}", fmt::format("stage {}", index),
               runtime::formatBytes(memory.total), layersText(memory.layers()));
    if (std::optional<runtime::Activations> activations = memory.activations(); activations && !memory.layers().empty())
      fmt::print(" that keep {} of {} of activations and compute {} % of their forward again",
                 runtime::formatBytes(activations->kept), runtime::formatBytes(activations->all), activations->percent);
    if (plan.forecast) {
      const schedule::Measures &own = plan.forecast->stages[index].measures;
      fmt::print(", compute busy {} ({:.1f} %)", seconds(own.computeBusy),
                 own.makespan > 0 ? 100 * own.computeBusy / own.makespan : 0);
      sum += own.computeBusy;
      if (own.computeBusy > most)
        most = own.computeBusy, longest = index;
    }
    fmt::print("\n");
  }
  const runtime::Program &program = plan.program;
  if (program.metadata("schedule.head_stages") == "all")
    fmt::print("  head         words on all stages\n");
  // It has no more layers than others, but the whole head, and could have a part of it.
  size_t layers = 0;
  for (const auto &stage : plan.stages)
    layers += stage.layers().size();
  bool divides = longest + 1 == plan.stages.size() &&
                 plan.stages[longest].layers().size() * plan.stages.size() <= layers &&
                 program.metadata("schedule.head_stages") == "last" &&
                 llvm::any_of(program.stage(longest)->tensors(),
                              [](const auto &tensor) { return tensor.name == "head.weight"; }) &&
                 static_cast<uint64_t>(numberOf(program, "vocab_size")) %
                         (plan.stages.size() * program.mesh().size("tp").value_or(1)) ==
                     0;
  if (double mean = sum / static_cast<double>(plan.stages.size()); most > 1.1 * mean)
    fmt::print("  stage {} computes {:.2f} times as long as the mean: {}\n", longest, most / mean,
               divides ? "--head-stages=all divides the words of its head among all stages"
               : plan.stages[longest].layers().size() > 1
                   ? "--stage-layers shares layers out otherwise"
                   : "it has no layers to give away, fewer stages (pp) leave others less idle");
  // Of what trains, stages that wait have something else to do.
  bool trains = plan.entries.front() == "accumulate_step", ordered = program.metadata("schedule.stage_order") == "1F1B";
  if (plan.forecast && trains && ordered && plan.forecast->measures.bubble > 0.1)
    fmt::print(
        "  stages wait for each other {:.0f} % of the time: --stage-order=ZB-H1 has gradients of weights computed "
        "meanwhile{}\n",
        100 * plan.forecast->measures.bubble,
        numberOf(program, "train.micro_batches") < 4.0 * static_cast<double>(plan.stages.size())
            ? ", and more --micro-batches leave less to wait for"
            : "");
}

void printText(const Plan &plan) {
  const auto &[program, stages, memory, asked, entries, tokens, cluster, forecast, step] = plan;
  const std::string &entry = entries.front();
  double parameters = numberOf(program, "parameter_count");
  fmt::print("model          {}, {:.4g} {} parameters\n", program.name(), parameters / (parameters < 1e9 ? 1e6 : 1e9),
             parameters < 1e9 ? "million" : "billion");
  std::string mesh;
  for (const auto *view : {&program.mesh().dense, &program.mesh().expert})
    for (const runtime::AxisInfo &axis : *view)
      if (axis.size > 1 && (view == &program.mesh().dense || axis.name != runtime::stageAxis)) // both views have it
        mesh += fmt::format("{}{}={}", mesh.empty() ? "" : " ", axis.name, axis.size);
  fmt::print("mesh           {} rank{}{}{}\n", program.mesh().worldSize(), program.mesh().worldSize() == 1 ? "" : "s",
             mesh.empty() ? "" : ": ", mesh);
  fmt::print("program        for {}\n", asked.target == "cuda" ? "GPUs, " + asked.arch : "CPUs");
  fmt::print("memory         {} per rank{}", runtime::formatBytes(memory.total),
             stages.size() == 1 ? "" : fmt::format(" of stage {}, which needs most", memory.program.ownStage()));
  if (cluster) {
    double share = static_cast<double>(memory.total) / cluster->device.memory;
    std::string room = runtime::formatBytes(static_cast<uint64_t>(cluster->device.memory));
    if (share <= 1)
      fmt::print(": {:.0f} % of the {} of {}", 100 * share, room, cluster->device.name);
    else
      fmt::print(": does not fit, {} more than the {} of {}",
                 runtime::formatBytes(memory.total - static_cast<uint64_t>(cluster->device.memory)), room,
                 cluster->device.name);
  }
  fmt::print("\n");
  for (const Memory::Arena &arena : memory.arenas)
    fmt::print("  {:<12} {:>12}\n", arena.name, runtime::formatBytes(arena.bytes));
  if (std::optional<runtime::Activations> activations = memory.activations())
    fmt::print("  layers keep {} of {} of activations for their backward, {} % of their forward is computed again\n",
               runtime::formatBytes(activations->kept), runtime::formatBytes(activations->all), activations->percent);
  if (std::optional<std::string> states = memory.wholeStates())
    fmt::print("  {}\n", *states);
  if (cluster && static_cast<double>(memory.total) > cluster->device.memory)
    fmt::print("  most of it is {}\n", memory.advice(asked));
  if (stages.size() > 1 && !cluster)
    printStages(plan);
  if (!cluster) {
    fmt::print("times          need devices and links: --cluster models/clusters/8x-h200.json\n");
    return;
  }
  const schedule::Measures &measures = forecast->measures;
  fmt::print("cluster        {}: {} node{} of {} {}\n", cluster->name, cluster->nodes, cluster->nodes == 1 ? "" : "s",
             cluster->ranksPerNode, cluster->device.name);
  fmt::print("{:<14} {} predicted{}", entry, seconds(measures.makespan),
             entries.size() == 1 ? "" : " with " + entries.back());
  if (tokens > 0 && measures.makespan > 0)
    fmt::print(", {:.4g} tokens/s of all ranks ({:.0f} a step{}), {:.1f} % of the device's FLOPs",
               tokens / measures.makespan, tokens, batchText(program, tokens),
               100 * forecast->flops / measures.makespan /
                   cluster->device.flops(program.metadata("dtype").value_or("f32")));
  if (step)
    fmt::print("\n{} batches and the update_step: {}, {:.4g} tokens/s", step->batches, seconds(step->measures.makespan),
               step->tokens / step->measures.makespan);
  fmt::print("\n  compute busy {:>12}\n  exposed comm {:>12}\n  bubble       {:>10.1f} %\n",
             seconds(measures.computeBusy), seconds(measures.exposedComm), 100 * measures.bubble);
  for (const plan::Forecast::Axis &axis : forecast->axes)
    fmt::print("  {:<12} {:>12} in {} collectives, {} sent per rank\n", "on " + axis.name, seconds(axis.seconds),
               axis.collectives, runtime::formatBytes(static_cast<uint64_t>(axis.bytes)));
  if (stages.size() > 1)
    printStages(plan);
  if (forecast->balanced)
    fmt::print("  routing is taken to give every expert as many rows: {:.4g} FLOPs of a rank, of {:.4g} with the most "
               "rows that "
               "buffers have room for (braid-run info)\n",
               forecast->flops, forecast->mostFlops);
  if (forecast->emptyCaches)
    fmt::print(
        "  caches are taken to be empty: keys and values of up to context_len = {:.0f} tokens before, which attention "
        "reads too, count neither as FLOPs nor as bytes\n",
        numberOf(program, "context_len"));
  if (asked.machine && program.metadata("pipeline").value_or("none") != "none")
    fmt::print("  orders are those that are best on this cluster, or on the model's schedule.machine; braid-compile "
               "knows the cluster by that key (braid-tune)\n");
  fmt::print("\n{}", schedule::drawText(forecast->problem, forecast->schedule, 100));
}

int run(Options options) {
  const std::string &input = options.job.input;
  std::optional<plan::Cluster> cluster;
  if (!options.cluster.empty()) {
    if (!(cluster = plan::readCluster(options.cluster)))
      return 1;
  }
  for (auto [flag, value] :
       {std::tuple("--svg", &options.pictures.svg), std::tuple("--trace", &options.pictures.trace)})
    if (!cluster && !value->empty())
      return plan::fail(llvm::Twine(flag) + " " + *value +
                        " draws times, which need devices and links; valid: " + "with --cluster (models/clusters)");
  if (cluster)
    if (int code = options.pictures.check(
            {NamedFile{"the input " + input, input}, NamedFile{"--cluster " + options.cluster, options.cluster}}))
      return code;
  CompileOptions asked = options.job.options;
  std::shared_ptr<const Program> program = load(options, cluster);
  if (!program)
    return 1;
  const CompileOptions &planned = options.job.options;
  if (cluster)
    warnOfDevices(options, *cluster, planned.target, planned.arch);
  asked.mesh = planned.mesh; // chosen, where it was not asked for
  asked.batch = planned.batch;
  if (std::string warning = tune::staleWarning(input, asked, cluster ? cluster->name : ""); !warning.empty())
    llvm::errs() << "braid-plan: warning: " << warning << '\n';
  if (cluster && program->mesh().worldSize() > cluster->ranks())
    return plan::fail(input + ": its mesh has " + llvm::Twine(program->mesh().worldSize()) + " ranks, but " +
                      options.cluster + " has " + llvm::Twine(cluster->ranks()) +
                      " (nodes times ranks_per_node); valid: a --mesh of at most as many");
  std::vector<std::string> entries = {options.entry};
  if (options.entry.empty())
    entries = plan::defaultEntries(*program);
  if (entries.empty() || !program->findEntry(entries.front()))
    return plan::fail(input + ": no entry @" + (entries.empty() ? "" : entries.front()) +
                      "; it has: " + runtime::entryNames(*program));
  std::vector<Memory> stages;
  for (uint32_t stage = 0; stage < program->stages(); ++stage)
    stages.emplace_back(*program->stage(stage), entries.front());
  std::optional<plan::Forecast> forecast;
  if (cluster) {
    forecast = plan::forecast(*program, entries, *cluster);
    if (!forecast)
      return 1;
    // Ranks of stages do not all do the same, as whoever reads a trace of ranks may take them to.
    if (int code = options.pictures.write(forecast->problem, forecast->schedule,
                                          fmt::format("{}, {}", program->name(), fmt::join(entries, " and ")), 1, "s",
                                          stages.size() == 1 ? program->mesh().worldSize() : 0))
      return code;
  }
  std::optional<plan::Step> step;
  if (forecast && options.entry.empty() && !(step = plan::stepOf(*program, entries, *forecast, *cluster)))
    return 1;
  Plan plan = {*program,
               stages,
               *llvm::max_element(stages, [](const Memory &a, const Memory &b) { return a.total < b.total; }),
               options.job.options,
               entries,
               plan::tokensOf(*program, *program->findEntry(entries.front())),
               cluster ? &*cluster : nullptr,
               forecast ? &*forecast : nullptr,
               step && step->batches > 1 ? &*step : nullptr};
  if (options.json)
    fmt::print("{}\n", toJson(plan).dump(1));
  else
    printText(plan);
  return 0;
}

} // namespace

plan::Action plan::addModel(CLI::App &app) {
  auto options = std::make_shared<Options>();
  CompileOptions &compile = options->job.options;
  app.add_option("model", options->job.input, "a model description, or a program")->type_name("MODEL.json|P.braid");
  notEmpty(app.add_option("--cluster", options->cluster, "devices and links (models/clusters)"))->type_name("C.json");
  app.add_option("--entry", options->entry,
                 "the function that is timed, and that memory is for: prefill and decode need no moments, training no "
                 "caches (default train_step, or accumulate_step and the update_step behind it)")
      ->type_name("NAME");
  options->ofDescription = addDescription(app, compile, /*ofOneMesh=*/true);
  app.add_flag("--json", options->json, "print everything as JSON, for programs to read");
  options->pictures.addOptions(app);
  return [options, &app] {
    options->job.options.given = givenFlags(app);
    if (options->job.input.empty())
      return fail("a model, a program or a subcommand is missing; there are meshes, schedule, slices") + 1;
    return run(*options);
  };
}
