//===- Forecast.cpp - what an entry of a program will do on a cluster ---------------------------------------------===//
#include "tools/braid-plan/Forecast.h"

#include "compiler/Diagnostics.h"
#include "frontend/ModelSpec.h"
#include "runtime/comm/Collectives.h"
#include "runtime/io/ChromeTrace.h"
#include "runtime/io/TensorNames.h"
#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <map>

using namespace braid;
using namespace braid::plan;
using runtime::Program;

namespace {

using CommandList = flatbuffers::Vector<flatbuffers::Offset<schema::Command>>;

double bytesOf(const schema::Buffer *buffer) { return buffer ? static_cast<double>(buffer->bytes()) : 0; }

/// Of a layer: the experts that a token chooses, all of them, and, where a capacity bounds the rows of a peer, the
/// tokens of this rank. A layer without experts, or one that fills all its rows, has none.
struct Experts {
  int64_t topK = 0, count = 0;
  double cappedTokens = 0;
  double kept = 1; ///< the share of chosen rows that find a slot when every expert is chosen as often
};

/// What the entry's input of tokens holds on one rank.
double rankTokens(const Program &program, const runtime::EntryInfo &entry) {
  auto tokens = runtime::entryInput(program, entry, "tokens");
  if (!tokens.ok())
    return 0;
  double count = 1;
  for (int64_t size : (*tokens)->shape)
    count *= static_cast<double>(size);
  return count;
}

/// By the description that the program was compiled from; empty: there is none.
std::vector<Experts> expertsOf(const Program &program, const std::string &entry) {
  auto text = program.metadata("model_json");
  auto ignore = [](const std::string &) {};
  if (!text)
    return {};
  llvm::FailureOr<ModelSpec> model = parseModelSpec({text->data(), text->size()}, program.path(), ignore);
  if (failed(model))
    return {};
  // Peers' rows are bounded only where tokens are not sliced.
  bool sliced = program.metadata("pipeline").value_or("none") != "none";
  double tokens = rankTokens(program, *program.findEntry(entry));
  std::vector<Experts> experts(model->numLayers);
  for (auto [layer, own] : llvm::enumerate(experts))
    if (const auto *moe = std::get_if<MoeSpec>(model->findFfn(model->ffnOf(layer))); moe && !moe->paddedSlots)
      // Buffers of slices have room for every row: a capacity bounds what is in them.
      own = {moe->topK, moe->numExperts, moe->capacityFactor && !sliced ? tokens : 0,
             std::min(moe->capacityFactor.value_or(1), 1.0)};
  return experts;
}

class Forecaster {
public:
  Forecaster(const Program &program, const Cluster &cluster) : program(program), cluster(cluster) {
    rate = cluster.device.flops(program.metadata("dtype").value_or("f32")) * cluster.device.efficiency;
    bandwidth = cluster.device.bandwidth * cluster.device.efficiency;
    cacheBandwidth = cluster.device.cacheBandwidth * cluster.device.efficiency;
    for (const runtime::StreamInfo &stream : program.streams())
      result.problem.streams.push_back(runtime::rowName(stream));
    orders.resize(program.streams().size());
    pending.resize(program.streams().size());
    open.resize(program.streams().size(), -1);
  }

  Forecast run(const schema::Entry &entry) {
    experts = expertsOf(program, entry.name()->str());
    result.emptyCaches = readsKeyCaches(entry.name()->str());
    walk(*entry.commands());
    std::optional<schedule::Schedule> timed = schedule::simulate(result.problem, orders);
    result.schedule = std::move(*timed); // a list that a stream walks in order has no circle
    result.measures = schedule::measure(result.problem, result.schedule);
    for (auto &[name, axis] : axes)
      result.axes.push_back(axis);
    return std::move(result);
  }

private:
  /// How many keys a cache holds is known only while running, so the compiler counts none of them (passes/analysis/Work).
  bool readsKeyCaches(const std::string &entry) const {
    auto info = program.findEntry(entry);
    return info && llvm::any_of(info->inputs, [&](uint32_t index) {
             const runtime::TensorInfo &tensor = program.tensors()[index];
             llvm::StringRef name = tensor.name;
             return tensor.role == runtime::Role::cache &&
                    (name.ends_with(".attn.k") || name.ends_with(".attn.latent"));
           });
  }

  void walk(const CommandList &list) {
    for (const schema::Command *command : list) {
      if (const schema::Repeat *repeat = command->body_as_Repeat()) {
        for (int64_t i = 0; i < repeat->count(); ++i) {
          iterations.push_back({i, repeat->count()});
          walk(*repeat->commands());
          iterations.pop_back();
        }
        continue;
      }
      add(*command);
    }
  }

  void add(const schema::Command &command) {
    // What computes beside stream 0 has the same processors: it is taken to be done in its turn.
    int64_t stream = program.streams()[command.stream()].axis.empty() ? 0 : command.stream();
    if (const schema::Record *record = command.body_as_Record()) {
      events[record->event()] = {stream, orders[stream].empty() ? -1 : orders[stream].back()};
      open[stream] = -1;
      return;
    }
    if (const schema::Wait *wait = command.body_as_Wait()) {
      // Of its own stream the FIFO says it already.
      auto event = events.find(wait->event());
      if (event != events.end() && event->second.second >= 0 && event->second.first != stream)
        pending[stream].push_back(event->second.second);
      open[stream] = -1;
      return;
    }
    ++result.commands;
    if (const schema::Collective *collective = command.body_as_Collective()) {
      auto [duration, processor] = seconds(command, *collective);
      runtime::CommandLabel label = runtime::labelOf(nameOf(command), layerOf(command));
      int64_t task = addTask(command, duration, label.name, label.task);
      result.problem.tasks[task].load = duration > 0 ? processor / duration : 0;
      open[stream] = -1;
      return;
    }
    double duration = seconds(command);
    std::string name = partOf(command);
    // Launches that run at once are one event of a trace.
    if (int64_t last = open[stream]; last >= 0 && (command.joined() || result.problem.tasks[last].name == name))
      result.problem.tasks[last].duration += duration;
    else
      open[stream] = addTask(command, duration, name);
  }

  static std::string_view nameOf(const schema::Command &command) {
    return command.name() ? command.name()->string_view() : "command";
  }

  /// What a command computes for: the task of its schedule, its layer and direction, or what it is called itself.
  std::string partOf(const schema::Command &command) const {
    int64_t layer = layerOf(command);
    runtime::CommandLabel label = runtime::labelOf(nameOf(command), layer);
    if (!label.task.empty())
      return label.task;
    if (layer < 0)
      return label.name;
    return "layers." + std::to_string(layer) + (llvm::StringRef(label.function).ends_with(".grad") ? ".grad" : "");
  }

  int64_t addTask(const schema::Command &command, double duration, std::string name, std::string label = "") {
    auto task = static_cast<int64_t>(result.problem.tasks.size());
    int64_t stream = command.stream();
    result.problem.tasks.push_back(
        {std::move(name), stream, duration, std::move(pending[stream]), /*load=*/0, std::move(label)});
    pending[stream].clear();
    orders[stream].push_back(task);
    return task;
  }

  /// The absolute layer of the iteration at hand, or -1.
  int64_t layerOf(const schema::Command &command) const {
    if (!command.layers() || command.layers()->size() == 0)
      return -1;
    int64_t index = 0;
    for (auto [iteration, count] : iterations)
      index = index * count + iteration;
    return command.layers()->Get(static_cast<flatbuffers::uoffset_t>(index % command.layers()->size()));
  }

  double seconds(const schema::Command &command) {
    double flops = 0, bytes = 0;
    if (const schema::Work *work = command.work()) {
      flops = static_cast<double>(work->flops());
      result.mostFlops += flops;
      bytes = static_cast<double>(work->bytes());
      // Buffers hold the rows of the worst routing; only those are computed that there are.
      const schema::GroupedGemm *grouped = command.body_as_GroupedGemm();
      if (uint64_t rows = grouped ? static_cast<uint64_t>(grouped->max_rows()) : work->rows()) {
        // Ranks of etp have each other's rows, but for those that are ranks of tp and have the same ones.
        int64_t etp = program.mesh().size("etp").value_or(1),
                sharers = etp == program.mesh().size("tp").value_or(1) ? 1 : etp;
        double live = liveRows(command, static_cast<double>(rows) / static_cast<double>(sharers));
        flops *= live;
        bytes *= grouped ? 1 : live; // a product reads all weights
        result.balanced = true;
      }
    } else if (const schema::Copy *copy = command.body_as_Copy()) {
      bytes = bytesOf(copy->source()) + bytesOf(copy->target());
    } else if (const schema::Fill *fill = command.body_as_Fill()) {
      bytes = bytesOf(fill->target());
    }
    result.flops += flops;
    result.bytes += bytes;
    double own = command.joined() ? 0 : cluster.device.overhead;
    bool cached = cluster.device.cache > 0 && bytes <= cluster.device.cache;
    return own + std::max(flops / rate, bytes / (cached ? cacheBandwidth : bandwidth));
  }

  /// The share of `rows`, which buffers have room for, that are there when every expert gets as many.
  double liveRows(const schema::Command &command, double rows) const {
    int64_t layer = layerOf(command), peers = program.mesh().size("ep").value_or(1);
    if (peers == 1 || layer < 0 || static_cast<size_t>(layer) >= experts.size() || experts[layer].topK == 0)
      return 1;
    const Experts &own = experts[layer];
    double chosen = own.kept * static_cast<double>(own.topK);
    if (own.cappedTokens > 0)
      return std::min(1.0, chosen * own.cappedTokens / std::max(rows, 1.0));
    // A peer's buffer takes what every token may send to it.
    return std::min(1.0, chosen / static_cast<double>(peers * std::min(own.topK, own.count / peers)));
  }

  /// Of the collective, which takes at least what its messages take of the rank's own processor, and of that.
  std::pair<double, double> seconds(const schema::Command &command, const schema::Collective &collective) {
    std::string name = collective.axis()->str();
    std::vector<uint32_t> members = program.mesh().members(0, name).value_or(std::vector<uint32_t>{0});
    double bytes =
        std::max(bytesOf(collective.send()), bytesOf(collective.recv())); // the whole, of which a rank has a part
    runtime::CollectiveCall call = runtime::callOf(collective);
    double live = 1;
    if (call.kind == CollectiveKind::allToAll) {
      bytes = static_cast<double>(call.bytes * members.size());
      if (collective.send_counts()) {
        live = liveRows(command, bytes / std::max<double>(1, static_cast<double>(collective.row_bytes())));
        result.balanced = true;
      }
    }
    double processor = processorSeconds(cluster, call.kind, members, live * bytes);
    double duration = std::max(collectiveSeconds(cluster, call.kind, members, live * bytes), processor);
    Forecast::Axis &axis = axes[name];
    axis.name = name;
    ++axis.collectives;
    // A rank's on average: at the row's end nobody is there to send to.
    uint64_t sent = 0;
    auto size = static_cast<int>(members.size());
    for (int rank = 0; rank < size; ++rank)
      sent += runtime::sentBytes(call, rank, size);
    axis.bytes += live * static_cast<double>(sent) / size;
    axis.seconds += duration;
    axis.processor += processor;
    return {duration, processor};
  }

  const Program &program;
  const Cluster &cluster;
  std::vector<Experts> experts; ///< by absolute layer; empty: not known
  double rate = 1, bandwidth = 1, cacheBandwidth = 1;
  Forecast result;
  schedule::Orders orders;
  std::vector<std::pair<int64_t, int64_t>> iterations; ///< (index, count) of the repeats around a command
  std::map<uint32_t, std::pair<int64_t, int64_t>> events; ///< stream and task of the last record
  std::vector<std::vector<int64_t>> pending; ///< per stream what its next task waits for
  std::vector<int64_t> open; ///< per stream the task that the next command joins, or -1
  std::map<std::string, Forecast::Axis> axes;
};

} // namespace

Forecast plan::forecast(const Program &program, const std::string &entry, const Cluster &cluster) {
  auto info = program.findEntry(entry);
  return info ? Forecaster(program, cluster).run(*program.file().entries()->Get(info->index)) : Forecast{};
}

double plan::tokensOf(const Program &program, const runtime::EntryInfo &entry) {
  // Rows of a batch are divided by dp, their tokens by sp; what is generated is on all ranks.
  bool batch = llvm::is_contained({"train_step", "accumulate_step", "eval_step"}, llvm::StringRef(entry.name));
  double ranks = 1;
  for (const char *axis : {"dp", "sp"})
    ranks *= batch ? program.mesh().size(axis).value_or(1) : 1;
  return ranks * rankTokens(program, entry);
}

std::string plan::defaultEntry(const runtime::Program &program) {
  for (const char *name : {"train_step", "accumulate_step", "eval_step"})
    if (program.findEntry(name))
      return name;
  return program.entries().empty() ? "" : program.entries().front().name;
}

static std::shared_ptr<const runtime::Program> parsed(const std::vector<uint8_t> &file) {
  auto *begin = reinterpret_cast<const std::byte *>(file.data());
  auto program = runtime::Program::parse({begin, begin + file.size()}, "program");
  if (program.ok())
    return *program;
  printError(program.status().message());
  return nullptr;
}

static std::optional<double> secondsOf(const runtime::Program &program, const plan::Cluster &cluster) {
  std::string entry = plan::defaultEntry(program);
  return entry.empty() ? 0 : plan::forecast(program, entry, cluster).measures.makespan;
}

std::optional<double> plan::secondsOn(const std::vector<uint8_t> &file, const Cluster &cluster) {
  std::shared_ptr<const runtime::Program> program = parsed(file);
  return program ? secondsOf(*program, cluster) : std::nullopt;
}

std::optional<double> plan::secondsOnMachine(const std::vector<uint8_t> &file, const Machine &machine) {
  std::shared_ptr<const runtime::Program> program = parsed(file);
  return program ? secondsOf(*program, clusterOf(machine, program->mesh().worldSize())) : std::nullopt;
}
