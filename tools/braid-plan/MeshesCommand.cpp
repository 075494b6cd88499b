//===- MeshesCommand.cpp - braid-plan meshes: the meshes of a cluster, each planned -------------------------------===//
#include "compiler/Diagnostics.h"
#include "compiler/Driver.h"
#include "compiler/Flags.h"
#include "frontend/ModelSpec.h"
#include "passes/analysis/Mesh.h"
#include "runtime/MachineMemory.h"
#include "runtime/io/TensorNames.h"
#include "tools/braid-plan/Commands.h"
#include "tools/braid-plan/Forecast.h"
#include "tools/common/InputFile.h"
#include "tools/common/IntegerFlag.h"

#include "llvm/Support/ThreadPool.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <unistd.h>

using namespace braid;
using Json = nlohmann::ordered_json;

namespace {

struct Options {
  CompileJob job;
  std::string cluster;
  std::vector<std::string> axes = {"dp", "tp", "pp", "ep"};
  int64_t ranks = 0, best = 10;
  int64_t threads = 0; ///< that plan at a time; 0: all cores
  std::vector<std::string>
      given; ///< flags of the description, "--batch=32", and the target that follows from the cluster
  bool expertRoom = false; ///< the model says one
  bool mayRecompute = false; ///< nobody says what activations are kept
  int64_t searchedBatch =
      0; ///< rows of a step that stages may have in so many micro-batches as is fastest; 0: somebody says how many
  bool json = false;
};

/// What a mesh does with the step, or why there is none.
struct Planned {
  std::string mesh;
  std::string refused; ///< a message; empty: it is planned
  std::string flags; ///< all that braid-compile makes it with
  bool fits = false;
  uint64_t memory = 0; ///< bytes of the rank that needs most
  int64_t microBatches = 1;
  double tokens = 0; ///< of a step
  schedule::Measures measures; ///< of a step, with its update
  double tokensPerSecond() const { return measures.makespan > 0 ? tokens / measures.makespan : 0; }
  /// The fastest that fit, then what does not by what it needs, then what is refused.
  std::tuple<bool, bool, double> order() const {
    return {!refused.empty(), !fits, !refused.empty() ? 0.0 : fits ? measures.makespan : static_cast<double>(memory)};
  }
};

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> list;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0)
      list.push_back(d);
  return list;
}

/// Every mesh of so many ranks that the sizes of the model do not rule out at once, as --mesh has it.
std::vector<std::string> meshesOf(const Options &options, const ModelSpec &spec, const plan::Cluster &cluster) {
  auto has = [&](const char *axis) { return llvm::is_contained(options.axes, axis); };
  auto sizes = [&](const char *axis, int64_t ranks) { return has(axis) ? divisors(ranks) : std::vector<int64_t>{1}; };
  int64_t experts = 0; // 0: there are none
  for (const auto &[letter, ffn] : spec.ffns)
    if (const auto *moe = std::get_if<MoeSpec>(&ffn))
      experts = std::gcd(experts, moe->numExperts);
  std::vector<std::string> meshes;
  for (int64_t pp : sizes("pp", options.ranks))
    for (int64_t sp : sizes("sp", options.ranks / pp))
      for (int64_t tp : sizes("tp", options.ranks / pp / sp)) {
        int64_t dp = options.ranks / pp / sp / tp;
        // The last stage may be the head alone. What tp sends with every product stays in a node.
        if (pp > spec.numLayers + 1 || tp > cluster.ranksPerNode || (dp > 1 && !has("dp")) ||
            spec.train.batch % dp != 0 || spec.train.seqLen % sp != 0)
          continue;
        for (int64_t ep : experts ? sizes("ep", dp * sp * tp) : std::vector<int64_t>{1}) {
          if (experts % ep != 0)
            continue;
          std::string mesh;
          for (auto [axis, size] : {std::pair("pp", pp), {"dp", dp}, {"sp", sp}, {"tp", tp}, {"ep", ep}})
            if (size > 1)
              mesh += fmt::format("{}{}={}", mesh.empty() ? "" : ",", axis, size);
          meshes.push_back(mesh.empty() ? "dp=1" : mesh);
        }
      }
  return meshes;
}

/// What was asked for holds for a mesh where it can: orders of stages for those that have some, rooms for experts on several ranks.
/// `microBatches` 0: as many as braid-compile takes, or was asked for.
Planned planOne(const Options &options, const std::string &mesh, const std::string &dtype, const plan::Cluster &cluster,
                bool recomputes, int64_t microBatches) {
  Planned planned;
  planned.mesh = mesh;
  CompileJob job = options.job;
  CompileOptions &compile = job.options;
  compile.mesh = mesh;
  compile.remarks = false; // one of many
  compile.oneThread = true;
  if (microBatches > 0)
    compile.microBatches = microBatches;
  if (recomputes)
    compile.recompute = "all";
  Mesh ranks = llvm::cantFail(Mesh::parse(mesh));
  planned.flags = "--mesh=" + mesh + (recomputes ? " --recompute=all" : "");
  std::vector<std::string> given = options.given;
  auto drop = [&](const char *axis, llvm::StringRef flag, auto &value) {
    if (ranks.size(axis) > 1)
      return;
    value = {};
    llvm::erase_if(given, [&](llvm::StringRef word) { return word.starts_with(flag); });
  };
  drop("pp", "--stage-order=", compile.stageOrder);
  drop("pp", "--head-stages=", compile.headStages);
  drop("ep", "--expert-room=", compile.expertRoom);
  drop("sp", "--sp-algorithm=", compile.spAlgorithm);
  compile.machine = plan::machineOf(cluster, ranks, dtype);
  compile.secondsOf = [&](const std::vector<uint8_t> &file, const Machine &) { return plan::secondsOn(file, cluster); };
  KeptMessages messages;
  auto refuse = [&](const std::string &why) {
    planned.refused = why.empty() ? "it cannot be planned" : why;
    return planned;
  };
  std::optional<std::vector<uint8_t>> bytes = compileTables(job);
  if (!bytes)
    return refuse(messages.firstError());
  std::shared_ptr<const runtime::Program> program = plan::programOf(*bytes, job.input);
  if (!program)
    return refuse(messages.firstError());
  std::vector<std::string> entries = plan::defaultEntries(*program);
  std::optional<plan::Forecast> forecast = plan::forecast(*program, entries, cluster);
  if (!forecast)
    return refuse(messages.firstError());
  std::optional<plan::Step> step = plan::stepOf(*program, entries, *forecast, cluster);
  if (!step)
    return refuse(messages.firstError());
  planned.measures = step->measures;
  planned.tokens = step->tokens;
  for (const plan::Forecast::Stage &stage : forecast->stages)
    planned.memory = std::max(planned.memory, stage.memory);
  planned.fits = static_cast<double>(planned.memory) <= cluster.device.memory;
  planned.microBatches = static_cast<int64_t>(plan::numberOf(*program, "train.micro_batches", 1));
  if (!options.job.options.microBatches && (planned.microBatches > 1 || program->stages() > 1))
    planned.flags += fmt::format(" --micro-batches={}", planned.microBatches);
  // How this cluster has layers and head shared out: another machine that compiles them may do otherwise.
  if (program->stages() > 1) {
    std::vector<size_t> layers;
    for (uint32_t stage = 0; stage < program->stages(); ++stage)
      layers.push_back(runtime::layersOf(*program->stage(stage)).size());
    planned.flags += fmt::format(" --stage-layers={} --head-stages={}", fmt::join(layers, ","),
                                 program->metadata("schedule.head_stages").value_or("auto"));
    llvm::erase_if(given, [](llvm::StringRef word) { return word.starts_with("--head-stages="); });
  }
  for (const std::string &flag : given)
    planned.flags += " " + flag;
  return planned;
}

/// What does not fit is planned once more with all layers recomputed.
Planned planThatFits(const Options &options, const std::string &mesh, const std::string &dtype,
                     const plan::Cluster &cluster, int64_t microBatches) {
  Planned planned = planOne(options, mesh, dtype, cluster, /*recomputes=*/false, microBatches);
  if (!planned.refused.empty() || planned.fits || !options.mayRecompute)
    return planned;
  Planned again = planOne(options, mesh, dtype, cluster, /*recomputes=*/true, microBatches);
  return again.refused.empty() && again.memory < planned.memory ? again : planned;
}

/// `best` with more micro-batches, whose stages wait less for each other, as long as each number is better than the one before, or else with fewer,
/// whose kernels have more rows.
Planned withBestMicroBatches(const Options &options, Planned best, const std::string &dtype,
                             const plan::Cluster &cluster) {
  std::string mesh = best.mesh;
  std::vector<int64_t> numbers = divisors(options.searchedBatch / llvm::cantFail(Mesh::parse(mesh)).size("dp"));
  llvm::erase_if(numbers, [](int64_t number) { return number > maxMicroBatches; });
  auto tries = [&](auto begin, auto end) {
    bool better = false;
    for (auto at = begin; at != end; ++at, better = true) {
      Planned other = planThatFits(options, mesh, dtype, cluster, *at);
      if (other.order() >= best.order())
        break;
      best = std::move(other);
    }
    return better;
  };
  auto first = llvm::find(numbers, best.microBatches);
  if (first != numbers.end() && !tries(std::next(first), numbers.end()))
    tries(std::make_reverse_iterator(first), numbers.rend());
  return best;
}

/// Calls `body` with 0 to `count` - 1, several at a time; says now and then on standard error how many are done.
void eachInThreads(const Options &options, size_t count, const char *what, llvm::function_ref<void(size_t)> body) {
  size_t done = 0;
  std::mutex mutex;
  std::condition_variable changed;
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(static_cast<unsigned>(options.threads)));
  for (size_t i = 0; i < count; ++i)
    pool.async([&, i] {
      body(i);
      std::lock_guard lock(mutex);
      ++done;
      changed.notify_one();
    });
  bool tells = isatty(STDERR_FILENO) == 1;
  constexpr auto silence = std::chrono::seconds(20); // at most, where nobody watches a line
  auto said = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex);
  while (done < count) {
    if (tells) {
      fmt::print(stderr, "\r{} of {} {}", done, count, what);
    } else if (std::chrono::steady_clock::now() - said > silence) {
      fmt::print(stderr, "braid-plan: {} of {} {}\n", done, count, what);
      said = std::chrono::steady_clock::now();
    }
    changed.wait_for(lock, silence);
  }
  lock.unlock();
  pool.wait();
  if (tells)
    fmt::print(stderr, "\r{:50}\r", "");
}

/// All of them, the best first. Micro-batches are searched where that may make a mesh one of the best.
std::vector<Planned> planAll(const Options &options, const std::vector<std::string> &meshes, const std::string &dtype,
                             const plan::Cluster &cluster) {
  constexpr double mostGain = 2; // of other micro-batches, where a command costs less than what it computes
  std::vector<Planned> all(meshes.size());
  eachInThreads(options, meshes.size(), "meshes",
                [&](size_t i) { all[i] = planThatFits(options, meshes[i], dtype, cluster, /*microBatches=*/0); });
  auto sort = [&] { llvm::stable_sort(all, [](const Planned &a, const Planned &b) { return a.order() < b.order(); }); };
  sort();
  if (options.searchedBatch == 0)
    return all;
  std::vector<Planned *> searched;
  for (Planned &planned : all)
    if (planned.refused.empty() && llvm::cantFail(Mesh::parse(planned.mesh)).size("pp") > 1 &&
        (!all[0].fits || (planned.fits && planned.measures.makespan <= mostGain * all[0].measures.makespan)))
      searched.push_back(&planned);
  eachInThreads(options, searched.size(), "meshes in other micro-batches",
                [&](size_t i) { *searched[i] = withBestMicroBatches(options, *searched[i], dtype, cluster); });
  sort();
  return all;
}

Json toJson(const Planned &planned) {
  Json json = {{"mesh", planned.mesh}};
  if (!planned.refused.empty()) {
    json["refused"] = planned.refused;
    return json;
  }
  json["flags"] = planned.flags;
  json["fits"] = planned.fits;
  json["bytes_per_rank"] = planned.memory;
  json["time"] = planned.measures.makespan;
  json["tokens_per_second"] = planned.tokensPerSecond();
  json["compute_busy"] = planned.measures.computeBusy;
  json["exposed_comm"] = planned.measures.exposedComm;
  json["bubble"] = planned.measures.bubble;
  return json;
}

void print(const Options &options, const plan::Cluster &cluster, const std::vector<Planned> &all) {
  auto count = [&](auto &&is) { return llvm::count_if(all, is); };
  auto refused = [](const Planned &p) { return !p.refused.empty(); };
  auto fits = [](const Planned &p) { return p.refused.empty() && p.fits; };
  int64_t fit = count(fits), refusals = count(refused), planned = static_cast<int64_t>(all.size()) - refusals;
  fmt::print("cluster        {}, {} rank{}: {} mesh{}, {} fit{} in the {} of {}\n", cluster.name, options.ranks,
             options.ranks == 1 ? "" : "s", all.size(), all.size() == 1 ? "" : "es", fit, fit == 1 ? "s" : "",
             runtime::formatBytes(static_cast<uint64_t>(cluster.device.memory)), cluster.device.name);
  if (fit > 0)
    fmt::print("\n{:>10} {:>12} {:>12} {:>8} {:>10}   {}\n", "step", "tokens/s", "memory", "bubble", "exposed",
               "flags");
  int64_t shown = 0;
  for (const Planned &p : all)
    if (fits(p) && shown++ < options.best)
      fmt::print("{:>8.4g} s {:>12.4g} {:>12} {:>6.1f} % {:>8.3g} s   {}\n", p.measures.makespan, p.tokensPerSecond(),
                 runtime::formatBytes(p.memory), 100 * p.measures.bubble, p.measures.exposedComm, p.flags);
  if (shown > options.best)
    fmt::print("{} left out (--best)\n",
               shown - options.best == 1 ? "1 slower one is" : fmt::format("{} slower ones are", shown - options.best));
  if (fit > 0)
    fmt::print("\n");
  auto nearest = llvm::find_if(all, [&](const Planned &p) { return p.refused.empty() && !p.fits; });
  if (nearest != all.end())
    fmt::print("{} {} not fit: {} comes nearest and needs {} per rank\n", planned - fit,
               planned - fit == 1 ? "does" : "do", nearest->flags, runtime::formatBytes(nearest->memory));
  // Of two ranks twice an even share is all.
  bool roomForAll = llvm::any_of(all, [](const Planned &p) {
    return p.refused.empty() && !p.fits && llvm::cantFail(Mesh::parse(p.mesh)).size("ep") > 2;
  });
  if (roomForAll && !options.job.options.expertRoom && !options.expertRoom)
    fmt::print("experts on several ranks have room for all rows that there may be: --expert-room=2 plans for twice an "
               "even share\n");
  if (auto first = llvm::find_if(all, refused); first != all.end())
    fmt::print("{} refused{}: --mesh={}: {}\n", refusals == 1 ? "1 is" : fmt::format("{} are", refusals),
               refusals == 1 ? "" : ", the first", first->mesh, first->refused);
}

int run(Options options) {
  std::optional<std::string> model;
  std::optional<plan::Cluster> cluster = plan::readCluster(options.cluster);
  if (!cluster)
    return 1;
  if (options.ranks == 0)
    options.ranks = cluster->ranks();
  if (options.ranks > cluster->ranks())
    return plan::fail(fmt::format("--ranks={}: {} has {} ranks (nodes times ranks_per_node); valid: at most as many",
                                  options.ranks, options.cluster, cluster->ranks()));
  if (options.ranks > maxAxisSize)
    return plan::fail(
        fmt::format("{} ranks are more than one axis may have ({}); valid: with --ranks", options.ranks, maxAxisSize));
  if (!llvm::StringRef(options.job.input).ends_with(".json"))
    return plan::fail(options.job.input +
                      " is no model description; valid: a MODEL.json, which is compiled for each mesh");
  if (!(model = readFile(options.job.input)))
    return 1;
  plan::chooseTarget(options.job.options, options.given, cluster->device);
  CompileOptions asked = options.job.options;
  asked.tablesOnly = true;
  if (!checkTarget(asked))
    return 1;
  // braid-compile has other defaults.
  const CompileOptions &chosen = options.job.options, defaults;
  for (const auto &[flag, value, otherwise] :
       {std::tuple("--target=", chosen.target, defaults.target), std::tuple("--arch=", chosen.arch, defaults.arch)})
    if (value != otherwise &&
        llvm::none_of(options.given, [&](llvm::StringRef word) { return word.starts_with(flag); }))
      options.given.push_back(flag + value);
  // What is wrong whatever the mesh is said once.
  CompileOptions alone = options.job.options;
  alone.mesh.clear();
  alone.stageOrder.reset();
  alone.headStages.reset();
  alone.expertRoom.reset();
  alone.spAlgorithm.reset();
  llvm::FailureOr<ModelSpec> spec = readModel(alone, *model, options.job.input);
  if (failed(spec))
    return 1;
  std::vector<std::string> meshes = meshesOf(options, *spec, *cluster);
  if (meshes.empty())
    return plan::fail(fmt::format(
        "{} ranks: they cannot be divided among {}; valid: dp that divides train.batch {}, pp of at most {}, the "
        "layers and the head, tp of at most {}, the ranks of a node, sp that divides train.seq_len {}, and together "
        "as many as there are ranks; ep divides the experts of those that dp, tp and sp have",
        options.ranks, fmt::join(options.axes, ", "), spec->train.batch, spec->numLayers + 1, cluster->ranksPerNode,
        spec->train.seqLen));
  const ScheduleSpec &schedule = spec->schedule;
  options.expertRoom = schedule.expertRoom.has_value();
  options.mayRecompute = !options.job.options.recompute && !schedule.recomputeAll && schedule.recompute.empty() &&
                         !schedule.activationBudget;
  options.searchedBatch = spec->train.microBatches == 0 ? spec->train.batch : 0;
  std::vector<Planned> all = planAll(options, meshes, spec->dtype, *cluster);
  if (options.json) {
    Json list = Json::array();
    for (const Planned &planned : all)
      list.push_back(toJson(planned));
    fmt::print("{}\n", Json{{"model", spec->name},
                            {"cluster", cluster->name},
                            {"ranks", options.ranks},
                            {"device_bytes", cluster->device.memory},
                            {"meshes", std::move(list)}}
                           .dump(1));
  } else {
    print(options, *cluster, all);
  }
  if (llvm::none_of(all, [](const Planned &planned) { return planned.refused.empty(); }))
    return plan::fail("no mesh can be planned");
  return 0;
}

} // namespace

plan::Action plan::addMeshes(CLI::App &command) {
  auto options = std::make_shared<Options>();
  CompileOptions &compile = options->job.options;
  command.add_option("model", options->job.input, "a model description")->type_name("MODEL.json")->required();
  command.add_option("--cluster", options->cluster, "devices and links (models/clusters)")
      ->type_name("C.json")
      ->required();
  integerIn(command.add_option("--ranks", options->ranks, "so many of the cluster's ranks (default: all)"), 1,
            maxAxisSize);
  command
      .add_option("--axes", options->axes, "axes that may divide them, of dp, tp, pp, ep and sp (default: all but sp)")
      ->delimiter(',')
      ->check(CLI::IsMember({"dp", "tp", "pp", "ep", "sp"}))
      ->type_name("AXIS,..");
  integerIn(command.add_option("--best", options->best, "meshes that are printed (default 10)"), 1, 1 << 20);
  integerIn(command.add_option("--threads", options->threads, "meshes that are planned at a time (default: all cores)"),
            1, 1024);
  std::vector<CLI::Option *> ofDescription = addDescription(command, compile, /*ofOneMesh=*/false);
  command.add_flag("--json", options->json, "print all of them as JSON, for programs to read");
  return [options, ofDescription] {
    for (const CLI::Option *option : ofDescription)
      if (option->count() > 0)
        options->given.push_back(option->get_name() + "=" + option->results().back());
    return run(*options);
  };
}
