#include "runtime/MachineMemory.h"
#include "runtime/cpu/CpuFeatures.h"
#include "runtime/cuda/CudaDriver.h"
#include "runtime/io/Shape.h"
#include "runtime/io/TensorNames.h"
#include "runtime/schema/Program_generated.h"
#include "runtime/train/Rank.h"
#include "tools/braid-run/Commands.h"
#include "tools/braid-run/ProgramSummary.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <map>
#include <numeric>
#include <ranges>
#include <set>

namespace braid::run {

using namespace braid::runtime;
using Json = nlohmann::ordered_json;

namespace {

struct Options {
  std::string program;
  bool functions = false, kernels = false, all = false, json = false;
};

uint64_t totalBytes(const Program &program) {
  uint64_t total = 0;
  for (const ArenaInfo &arena : program.arenas())
    total += arena.bytes;
  return total;
}

using Stages = std::vector<std::shared_ptr<const Program>>;

Stages stagesOf(const Program &program) {
  Stages stages;
  for (uint32_t stage = 0; stage < program.stages(); ++stage)
    stages.push_back(program.stage(stage));
  return stages;
}

std::vector<uint32_t> ranksOf(const Program &stage) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < stage.mesh().worldSize(); ++rank)
    if (stage.stageOf(rank) == stage.ownStage())
      ranks.push_back(rank);
  return ranks;
}

// Of the rank that needs most: ranks of one stage need alike.
uint64_t mostBytes(const Stages &stages) {
  return std::ranges::max(stages | std::views::transform([](const auto &stage) { return totalBytes(*stage); }));
}

// What a command allocates of it: "train", "evaluate", "generate", "serve", where the program has entries for that.
std::map<std::string, uint64_t> bytesTo(const Program &program) {
  struct Use {
    const char *what;
    EntryFilter keep;
  };
  std::map<std::string, uint64_t> table;
  for (Use use : {Use{"train", trains}, Use{"evaluate", evaluates}, Use{"generate", generates}, Use{"serve", serves}}) {
    if (std::ranges::none_of(program.entries(), [use](const EntryInfo &entry) { return use.keep(entry.name); }))
      continue;
    std::vector<uint64_t> bytes = program.arenaBytes(use.keep);
    table[use.what] = std::accumulate(bytes.begin(), bytes.end(), uint64_t(0));
  }
  return table;
}

std::map<std::string, uint64_t> mostBytesTo(const Stages &stages) {
  std::map<std::string, uint64_t> most;
  for (const auto &stage : stages)
    for (const auto &[what, bytes] : bytesTo(*stage))
      most[what] = std::max(most[what], bytes);
  return most;
}

// What the program needs and this machine lacks: it can be looked at, but not run.
std::vector<std::string> missingFeatures(const Program &program) {
  std::vector<std::string> missing;
  for (const std::string &feature : program.cpuFeatures())
    if (!hasCpuFeature(feature))
      missing.push_back(feature);
  return missing;
}

/// What a block of each kernel takes of a GPU; empty for a CPU.
Json gpuKernelsJson(const Program &program) {
  Json list = Json::array();
  if (program.target() == "cuda")
    for (const auto *kernel : *program.file().kernels())
      list.push_back({{"name", kernel->name()->str()},
                      {"threads", kernel->threads()},
                      {"cluster", kernel->cluster()},
                      {"shared_bytes", kernel->shared_bytes()},
                      {"scratch_bytes", kernel->scratch_bytes()},
                      {"registers", kernel->registers()},
                      {"spill_bytes", kernel->spill_bytes()},
                      {"stack_bytes", kernel->stack_bytes()},
                      {"image_bytes", kernel->image_bytes()}});
  return list;
}

// Older files do not say; no plan is then known to be smaller.
uint64_t lowerBound(const ArenaInfo &arena) { return arena.lowerBound ? arena.lowerBound : arena.bytes; }

/// What the compiler noted about the memory of an entry: planned bytes, and those alive at the worst moment.
struct EntryMemory {
  uint64_t planned, lowerBound;
};
std::optional<EntryMemory> memoryOf(const Program &program, const std::string &entry) {
  std::string key = program.ownKey("memory." + entry);
  auto read = [&](const char *what) { return metadataNumber(program, fmt::format("{}.{}", key, what)); };
  Expected<std::optional<double>> planned = read("planned_bytes"), bound = read("lower_bound_bytes");
  if (!planned.ok() || !bound.ok() || !*planned || !*bound)
    return std::nullopt;
  return EntryMemory{static_cast<uint64_t>(**planned), static_cast<uint64_t>(**bound)};
}

double percentOver(const EntryMemory &memory) {
  double bound = static_cast<double>(memory.lowerBound);
  return bound > 0 ? 100 * (static_cast<double>(memory.planned) / bound - 1) : 0;
}

std::vector<int64_t> fullShape(const TensorInfo &tensor) {
  std::vector<int64_t> shape = tensor.shape;
  if (!tensor.layers.empty())
    shape.insert(shape.begin(), static_cast<int64_t>(tensor.layers.size()));
  return shape;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

Json axesJson(const std::vector<AxisInfo> &axes) {
  Json list = Json::array();
  for (const AxisInfo &axis : axes)
    list.push_back({{"name", axis.name}, {"size", axis.size}});
  return list;
}

Json tensorListJson(const Program &program, const std::vector<uint32_t> &indices) {
  Json list = Json::array();
  for (uint32_t index : indices) {
    const TensorInfo &tensor = program.tensors()[index];
    list.push_back({{"name", tensor.name}, {"dtype", toString(tensor.dtype)}, {"shape", fullShape(tensor)}});
  }
  return list;
}

Json tensorJson(const Program &program, const TensorInfo &tensor) {
  Json json = {
      {"name", tensor.name},     {"role", toString(tensor.role)}, {"dtype", toString(tensor.dtype)},
      {"shape", tensor.shape},   {"layers", tensor.layers},       {"arena", program.arenas()[tensor.arena].name},
      {"offset", tensor.offset}, {"bytes", tensor.bytes}};
  Json shards = Json::array();
  for (const ShardInfo &shard : tensor.shards)
    shards.push_back({{"dim", shard.dim}, {"axis", shard.axis}});
  json["shards"] = std::move(shards);
  if (!tensor.of.empty())
    json["of"] = tensor.of;
  if (!tensor.slot.empty())
    json["slot"] = tensor.slot;
  return json;
}

Json entryJson(const Program &program, const EntryInfo &entry) {
  EntrySummary summary = summarize(program, entry);
  Json communication = Json::array();
  for (const auto &[key, sum] : summary.communication)
    communication.push_back(
        {{"axis", key.first}, {"kind", key.second}, {"count", sum.count}, {"sent_bytes", sum.sentBytes}});
  Json json = {{"name", entry.name},
               {"inputs", tensorListJson(program, entry.inputs)},
               {"outputs", tensorListJson(program, entry.outputs)},
               {"commands", entry.commands},
               {"executed_commands", summary.commands},
               {"flops", summary.flops},
               {"bytes", summary.bytes},
               {"launches", summary.launches},
               {"kernels", summary.kernels},
               {"library_calls", summary.libraryCalls},
               {"other_commands", summary.others},
               {"communication", std::move(communication)}};
  if (std::optional<EntryMemory> memory = memoryOf(program, entry.name))
    json["memory"] = {{"planned_bytes", memory->planned}, {"lower_bound_bytes", memory->lowerBound}};
  return json;
}

// With stages every arena, tensor and entry says which it is of.
void printJson(const Program &program, uint64_t parameters) {
  Json arenas = Json::array(), streams = Json::array(), tensors = Json::array(), entries = Json::array(),
       stages = Json::array();
  Stages views = stagesOf(program);
  for (const auto &view : views) {
    auto add = [&](Json &list, Json item) {
      if (views.size() > 1)
        item["stage"] = view->ownStage();
      list.push_back(std::move(item));
    };
    for (const ArenaInfo &arena : view->arenas())
      if (view->owns(arena))
        add(arenas, {{"name", arena.name}, {"bytes", arena.bytes}, {"lower_bound", lowerBound(arena)}});
    for (const TensorInfo &tensor : view->tensors())
      add(tensors, tensorJson(*view, tensor));
    for (const EntryInfo &entry : view->entries())
      add(entries, entryJson(*view, entry));
    Json own = {{"ranks", ranksOf(*view)}, {"bytes_per_rank", totalBytes(*view)}, {"bytes_to", bytesTo(*view)}};
    if (Expected<std::optional<Activations>> activations = activationsOf(*view); activations.ok() && *activations)
      own["activations"] = {{"kept_bytes", (*activations)->kept},
                            {"all_bytes", (*activations)->all},
                            {"recomputed_percent", (*activations)->percent}};
    add(stages, std::move(own));
  }
  for (const StreamInfo &stream : program.streams())
    streams.push_back({{"name", stream.name}, {"axis", stream.axis}});
  Json metadata = Json::object();
  for (const auto &[key, value] : program.metadata())
    metadata[key] = value;
  Json json = {
      {"name", program.name()},
      {"version", program.version()},
      {"target", program.target()},
      {"arch", program.arch()},
      {"cpu_features", std::vector<std::string>(program.cpuFeatures().begin(), program.cpuFeatures().end())},
      {"missing_cpu_features", missingFeatures(program)},
      {"parameters", parameters},
      {"mesh",
       {{"ranks", program.mesh().worldSize()},
        {"dense", axesJson(program.mesh().dense)},
        {"expert", axesJson(program.mesh().expert)}}},
      {"streams", std::move(streams)},
      {"memory",
       {{"bytes_per_rank", mostBytes(views)}, {"bytes_to", mostBytesTo(views)}, {"arenas", std::move(arenas)}}},
      {"kernels", std::vector<std::string>(program.kernels().begin(), program.kernels().end())},
      {"gpu_kernels", gpuKernelsJson(program)},
      {"code", {{"bytes", program.code().size()}, {"sha256", program.codeHash()}}},
      {"entries", std::move(entries)},
      {"tensors", std::move(tensors)},
      {"metadata", std::move(metadata)}};
  if (views.size() > 1)
    json["stages"] = std::move(stages);
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

// ---- Text -----------------------------------------------------------------------------------------------------------

std::string meshText(const MeshInfo &mesh) {
  auto axes = [](const std::vector<AxisInfo> &list) {
    std::vector<std::string> texts;
    for (const AxisInfo &axis : list)
      texts.push_back(fmt::format("{}={}", axis.name, axis.size));
    return fmt::format("{}", fmt::join(texts, " "));
  };
  std::string text = fmt::format("{} rank{}", mesh.worldSize(), mesh.worldSize() == 1 ? "" : "s");
  if (!mesh.dense.empty())
    text += fmt::format("; {}", axes(mesh.dense));
  if (!mesh.expert.empty())
    text += fmt::format("; experts {}", axes(mesh.expert));
  return text;
}

void printTensors(const Program &program, std::string_view title, const std::vector<uint32_t> &indices) {
  for (uint32_t index : indices) {
    const TensorInfo &tensor = program.tensors()[index];
    fmt::print("    {:<6} {} {} {}\n", std::exchange(title, ""), tensor.name, toString(tensor.dtype),
               formatShape(fullShape(tensor)));
  }
}

void printCounts(std::string_view title, const std::map<std::string, uint64_t> &counts) {
  if (counts.empty())
    return;
  fmt::print("    {}\n", title);
  for (const auto &[name, count] : counts)
    fmt::print("      {:>8} x {}\n", count, name);
}

// Element types of the parameters: "f32".
std::string parameterTypes(const Stages &stages) {
  std::set<std::string_view> types;
  for (const auto &stage : stages)
    for (const TensorInfo &tensor : stage->tensors())
      if (tensor.role == Role::parameter)
        types.insert(toString(tensor.dtype));
  return fmt::format("{}", fmt::join(types, ", "));
}

// "stage 1      ranks 2, 3; layers 4 to 7", above what is said of it; nothing in a program without stages.
void printStage(const Program &stage) {
  if (stage.stages() == 1)
    return;
  std::set<int32_t> layers = layersOf(stage);
  auto span = [](const char *what, const auto &numbers) {
    auto between = static_cast<size_t>(*std::ranges::rbegin(numbers) - *numbers.begin());
    bool together = between + 1 == numbers.size();
    if (numbers.size() < 3 || !together)
      return fmt::format("{}{} {}", what, numbers.size() == 1 ? "" : "s", fmt::join(numbers, ", "));
    return fmt::format("{}s {} to {}", what, *numbers.begin(), *std::ranges::rbegin(numbers));
  };
  fmt::print("{:<13}{}{}\n", fmt::format("stage {}", stage.ownStage()), span("rank", ranksOf(stage)),
             layers.empty() ? "" : "; " + span("layer", layers));
}

void printMemory(const Program &program) {
  fmt::print("memory       {} per rank\n", formatBytes(totalBytes(program)));
  for (const ArenaInfo &arena : program.arenas()) {
    if (!program.owns(arena))
      continue;
    uint64_t bound = lowerBound(arena);
    fmt::print("  {:<12} {:>12}, at least {:>12}", arena.name, formatBytes(arena.bytes), formatBytes(bound));
    if (bound > 0 && arena.bytes > bound)
      fmt::print(" (+{:.1f} %)", 100.0 * static_cast<double>(arena.bytes - bound) / static_cast<double>(bound));
    fmt::print("\n");
  }
}

// Of what a command allocates.
void printNeeded(const Program &program) {
  std::string text;
  for (const auto &[what, bytes] : bytesTo(program))
    text += fmt::format("{}to {} {}", text.empty() ? "" : ", ", what, formatBytes(bytes));
  fmt::print("  of it        {}\n", text);
}

void printActivations(const Program &program) {
  Expected<std::optional<Activations>> activations = activationsOf(program);
  if (activations.ok() && *activations)
    fmt::print("activations  {} of {} per rank kept for the backward, {}% of the layers' forward computed again\n",
               formatBytes((*activations)->kept), formatBytes((*activations)->all), (*activations)->percent);
}

/// The class of every scan, as the compiler found it, and why it is not smaller; layers that are alike say it once.
void printScans(const Program &program) {
  static constexpr std::string_view prefix = "scans.";
  std::set<std::string_view> said;
  for (const auto &[key, value] : program.metadata())
    if (key.starts_with(prefix) && said.insert(value).second)
      fmt::print("{:<13}{}\n", said.size() == 1 ? "scans" : "", value);
}

/// Which layers are cut in how many slices, and by which order; the order of tasks with `whole`.
void printSchedule(const Program &program, bool whole) {
  static constexpr std::string_view prefix = "schedule.";
  bool first = true;
  for (const auto &[key, value] : program.metadata()) {
    if (!key.starts_with(prefix))
      continue;
    if (std::exchange(first, false))
      fmt::print("schedule     pipeline {}, at most {} slices\n", program.metadata("pipeline").value_or("none"),
                 program.metadata("overlap_degree").value_or("1"));
    fmt::print("  {}: {}\n", key.substr(prefix.size()), whole ? value : value.substr(0, value.find(": ")));
  }
}

void printFunctionTable(const Program &program) {
  size_t width = 8;
  for (const EntryInfo &entry : program.entries())
    width = std::max(width, entry.name.size());
  fmt::print("{:<{}}  {:>8} {:>8} {:>8} {:>8} {:>10} {:>10}\n", "functions", width + 1, "commands", "launches",
             "library", "kernels", "MFLOP", "MB");
  for (const EntryInfo &entry : program.entries()) {
    EntrySummary summary = summarize(program, entry);
    uint64_t calls = 0;
    for (const auto &[name, count] : summary.libraryCalls)
      calls += count;
    fmt::print("  @{:<{}} {:>8} {:>8} {:>8} {:>8} {:>10.2f} {:>10.2f}\n", entry.name, width - 1, summary.commands,
               summary.launches, calls, summary.kernels.size(), 1e-6 * static_cast<double>(summary.flops),
               1e-6 * static_cast<double>(summary.bytes));
  }
  auto size = [&](const char *axis) { return program.mesh().size(axis).value_or(1); };
  if (size("ep") * size("etp") > 1)
    fmt::print(
        "             MFLOP and MB of experts: of the most rows that their buffers have room for; braid-plan counts "
        "those of equally many for every expert\n");
}

void printFunctions(const Program &program) {
  for (const EntryInfo &entry : program.entries()) {
    EntrySummary summary = summarize(program, entry);
    fmt::print("\n@{}\n", entry.name);
    printTensors(program, "input", entry.inputs);
    printTensors(program, "output", entry.outputs);
    fmt::print("    {} commands in the file, {} executed; {} launches\n", entry.commands, summary.commands,
               summary.launches);
    if (std::optional<EntryMemory> memory = memoryOf(program, entry.name))
      fmt::print("    {} saved and workspace, at least {} alive at the worst moment ({:.1f}% over)\n",
                 formatBytes(memory->planned), formatBytes(memory->lowerBound), percentOver(*memory));
    printCounts("kernels", summary.kernels);
    printCounts("library calls", summary.libraryCalls);
    printCounts("other commands", summary.others);
    if (!summary.communication.empty())
      fmt::print("    sent by a rank, at most\n");
    for (const auto &[key, sum] : summary.communication)
      fmt::print("      {:>8} x {} over {}: {}\n", sum.count, key.second, key.first, formatBytes(sum.sentBytes));
  }
}

// Every kernel with its launches per call of a function.
void printKernels(const Program &program) {
  std::map<std::string, std::vector<std::string>> uses;
  for (const auto &stage : stagesOf(program))
    for (const EntryInfo &entry : stage->entries())
      for (const auto &[kernel, count] : summarize(*stage, entry).kernels)
        uses[kernel].push_back(fmt::format("{} x @{}{}", count, entry.name,
                                           program.stages() > 1 ? fmt::format(" of stage {}", stage->ownStage()) : ""));
  fmt::print("\nkernels\n");
  for (const std::string &kernel : program.kernels())
    fmt::print("  {:<60} {}\n", kernel, fmt::join(uses[kernel], ", "));
  if (program.target() != "cuda")
    return;
  fmt::print("\nblocks of the kernels; registers, spilled bytes and bytes of local memory are per thread\n  {:<60} "
             "{:>7} {:>9} {:>9} {:>9} {:>7} {:>7}\n",
             "kernel", "threads", "shared", "scratch", "registers", "spills", "local");
  for (const auto *kernel : *program.file().kernels())
    fmt::print("  {:<60} {:>7} {:>9} {:>9} {:>9} {:>7} {:>7}{}\n", kernel->name()->str(), kernel->threads(),
               kernel->shared_bytes(), kernel->scratch_bytes(), kernel->registers(), kernel->spill_bytes(),
               kernel->stack_bytes(),
               kernel->cluster() > 1 ? fmt::format("  in clusters of {}", kernel->cluster()) : "");
}

void printText(const Program &program, uint64_t parameters, const Options &options) {
  fmt::print("program      {}\n", program.name());
  fmt::print("target       {} {}{}\n", program.target(), program.arch(), fmt::join(program.cpuFeatures(), " "));
  if (program.target() == "cuda")
    if (Status status = cuda::Driver::open().status(); !status.ok())
      fmt::print("             cannot run here: {}\n", status.message());
  if (std::vector<std::string> missing = missingFeatures(program); !missing.empty())
    fmt::print("             cannot run here: this machine lacks {}\n", fmt::join(missing, " "));
  if (auto dtype = program.metadata("dtype"))
    fmt::print("dtype        {}\n", *dtype);
  fmt::print("mesh         {}\n", meshText(program.mesh()));
  std::vector<std::string> streams;
  for (const StreamInfo &stream : program.streams())
    streams.push_back(stream.name);
  fmt::print("streams      {}\n", fmt::join(streams, ", "));
  Stages stages = stagesOf(program);
  fmt::print("parameters   {} {}\n", parameters, parameterTypes(stages));
  fmt::print("kernels      {} in {} of code, sha256 {}\n", program.kernels().size(), formatBytes(program.code().size()),
             program.codeHash());
  for (const auto &stage : stages) {
    printStage(*stage);
    printMemory(*stage);
    printNeeded(*stage);
    printActivations(*stage);
  }
  printScans(program);
  printSchedule(program, options.functions || options.all);
  for (const auto &stage : stages) {
    printStage(*stage);
    printFunctionTable(*stage);
    if (options.functions || options.all)
      printFunctions(*stage);
  }
  if (options.kernels || options.all)
    printKernels(program);
  if (!program.metadata().empty())
    fmt::print("metadata\n");
  for (const auto &[key, value] : program.metadata()) {
    if (key.starts_with("schedule.") || (key.starts_with("scans.") && !options.all)) // above, and one for each function
      continue;
    // Long values (the model's JSON) in one line; --json has them whole.
    std::string text = value.substr(0, 100);
    std::replace(text.begin(), text.end(), '\n', ' ');
    fmt::print("  {:<24} {}{}\n", key, text, value.size() > 100 ? " ..." : "");
  }
}

Status run(const Options &options) {
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program));
  BRAID_ASSIGN(uint64_t parameters, countParameters(*program));
  if (options.json)
    printJson(*program, parameters);
  else
    printText(*program, parameters, options);
  return Status::success();
}

} // namespace

Action addInfo(CLI::App &command) {
  auto options = std::make_shared<Options>();
  addProgramOption(command, options->program);
  CLI::Option *functions = command.add_flag("--functions", options->functions,
                                            "Also list inputs, outputs and executed commands of every function");
  CLI::Option *kernels =
      command.add_flag("--kernels", options->kernels, "Also list every kernel and which functions launch it");
  CLI::Option *all = command.add_flag("--all", options->all, "Also list both");
  command.add_flag("--json", options->json, "Print everything as JSON, for programs to read")
      ->excludes(functions)
      ->excludes(kernels)
      ->excludes(all);
  return [options] { return run(*options); };
}

} // namespace braid::run
