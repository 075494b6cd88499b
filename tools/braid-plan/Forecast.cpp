//===- Forecast.cpp - what an entry of a program will do on a cluster ---------------------------------------------===//
#include "tools/braid-plan/Forecast.h"

#include "compiler/Diagnostics.h"
#include "frontend/ModelSpec.h"
#include "runtime/comm/Collectives.h"
#include "runtime/io/ChromeTrace.h"
#include "runtime/io/TensorNames.h"
#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>

using namespace braid;
using namespace braid::plan;
using runtime::Program;

double plan::numberOf(const Program &program, std::string_view key, double otherwise) {
  auto text = program.metadata(key);
  return text ? std::strtod(std::string(*text).c_str(), nullptr) : otherwise;
}

namespace {

using CommandList = flatbuffers::Vector<flatbuffers::Offset<schema::Command>>;

double bytesOf(const schema::Buffer *buffer) { return buffer ? static_cast<double>(buffer->bytes()) : 0; }

/// Of a layer: the experts that a token chooses, all of them, and, where a capacity bounds the rows of a peer, the
/// tokens of this rank. A layer without experts, or one that fills all its rows, has none.
struct Experts {
  int64_t topK = 0, count = 0;
  double cappedTokens = 0;
  double kept = 1; ///< the share of chosen rows that find a slot when every expert is chosen as often
  double batchRows = 1, room = 0; ///< of a rank; room for a peer's rows, in even shares (0: for all)
};

/// Whether the entry takes a batch, of which ranks along dp have rows.
bool isOfBatches(llvm::StringRef entry) {
  return llvm::is_contained({"train_step", "accumulate_step", "eval_step"}, entry);
}

/// What the entry's input of tokens holds on one rank: rows of the batch, and tokens of each.
std::pair<double, double> rankTokens(const Program &program, const runtime::EntryInfo &entry) {
  auto tokens = runtime::entryInput(program, entry, "tokens");
  if (!tokens.ok() || (*tokens)->shape.size() != 2)
    return {0, 0};
  return {static_cast<double>((*tokens)->shape[0]), static_cast<double>((*tokens)->shape[1])};
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
  // Those of a pass through the layers.
  auto [rows, length] = rankTokens(program, *program.findEntry(entry));
  if (isOfBatches(entry))
    rows /= numberOf(program, "train.micro_batches", 1);
  double room = numberOf(program, "schedule.expert_room", 0);
  std::vector<Experts> experts(model->numLayers);
  for (auto [layer, own] : llvm::enumerate(experts))
    if (const auto *moe = std::get_if<MoeSpec>(model->findFfn(model->ffnOf(layer))); moe && !moe->paddedSlots)
      // Buffers of slices have room for every row: a capacity bounds what is in them.
      own = {moe->topK,
             moe->numExperts,
             moe->capacityFactor && !sliced ? rows * length : 0,
             std::min(moe->capacityFactor.value_or(1), 1.0),
             rows,
             room};
  return experts;
}

/// What one rank of a stage does.
class StageForecast {
public:
  /// Adds to the forecast and to the orders of its streams; its measures are of this stage alone.
  StageForecast(const Program &program, const Cluster &cluster, Forecast &result, schedule::Orders &orders)
      : program(program), cluster(cluster), result(result), orders(orders) {
    dtype = program.metadata("dtype").value_or("f32");
    schedule::Problem &problem = result.problem;
    host = static_cast<int64_t>(problem.streams.size());
    for (const runtime::StreamInfo &stream : program.streams()) {
      bool isOwn = stream.axis.empty() || program.isOn(stream.axis);
      // What computes beside the first has the same processors: it is taken to be done in its turn.
      bool isFirst = rows.empty();
      rows.push_back(isFirst || !stream.axis.empty() ? static_cast<int64_t>(problem.streams.size()) : host);
      if (!isOwn || rows.back() != static_cast<int64_t>(problem.streams.size()))
        continue;
      problem.streams.push_back(program.stages() == 1 ? runtime::rowName(stream)
                                                      : "stage " + std::to_string(program.ownStage()) + " " +
                                                            (stream.axis.empty() ? stream.name : stream.axis));
      problem.hosts.push_back(host);
    }
    orders.resize(problem.streams.size());
    pending.resize(problem.streams.size());
    open.resize(problem.streams.size(), -1);
  }

  /// A rank begins an entry when it has done what is before it.
  void run(const std::string &entry) {
    const runtime::EntryInfo &info = *program.findEntry(entry);
    experts = expertsOf(*program.stage(0), entry); // where tokens come in
    result.emptyCaches |= readsKeyCaches(info);
    events.clear();
    for (size_t row = host; row < orders.size(); ++row) {
      open[row] = -1;
      for (size_t other = host; other < orders.size(); ++other)
        if (other != row && !orders[other].empty())
          pending[row].push_back(orders[other].back());
    }
    walk(*program.file().entries()->Get(info.index)->commands());
  }

  /// Bytes of a rank that runs the entry.
  uint64_t memory(const std::string &entry) const {
    std::vector<uint64_t> arenas = program.arenaBytes(runtime::keptWith(entry));
    return std::accumulate(arenas.begin(), arenas.end(), uint64_t(0));
  }

  int64_t host; ///< the row where it computes
  double flops = 0, bytes = 0, mostFlops = 0;
  int64_t commands = 0;
  std::map<std::string, Forecast::Axis> axes;
  std::map<std::string, std::vector<int64_t>> shared; ///< by axis the tasks that other stages have, too

private:
  /// How many keys a cache holds is known only while running, so the compiler counts none of them (passes/analysis/Work).
  bool readsKeyCaches(const runtime::EntryInfo &entry) const {
    return llvm::any_of(entry.inputs, [&](uint32_t index) {
      const runtime::TensorInfo &tensor = program.tensors()[index];
      llvm::StringRef name = tensor.name;
      return tensor.role == runtime::Role::cache && (name.ends_with(".attn.k") || name.ends_with(".attn.latent"));
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
    int64_t stream = rows[command.stream()];
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
    ++commands;
    if (const schema::Collective *collective = command.body_as_Collective()) {
      auto [duration, processor] = seconds(command, *collective);
      runtime::CommandLabel label = runtime::labelOf(nameOf(command), layerOf(command));
      int64_t task = addTask(command, stream, duration, label.name, label.task);
      result.problem.tasks[task].load = duration > 0 ? processor / duration : 0;
      if (std::string axis = collective->axis()->str(); isShared(axis))
        shared[axis].push_back(task);
      open[stream] = -1;
      return;
    }
    double duration = seconds(command);
    std::string name = partOf(command);
    auto goesOn = [&](const schedule::Task &task) {
      return task.name == name && task.microBatch == command.micro_batch();
    };
    // Launches that run at once are one event of a trace.
    if (int64_t last = open[stream]; last >= 0 && (command.joined() || goesOn(result.problem.tasks[last])))
      result.problem.tasks[last].duration += duration;
    else
      open[stream] = addTask(command, stream, duration, name);
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

  int64_t addTask(const schema::Command &command, int64_t stream, double duration, std::string name,
                  std::string label = "") {
    auto task = static_cast<int64_t>(result.problem.tasks.size());
    result.problem.tasks.push_back({std::move(name), stream, duration, std::move(pending[stream]), /*load=*/0,
                                    std::move(label), command.micro_batch()});
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
      mostFlops += flops;
      bytes = static_cast<double>(work->bytes());
      // Buffers hold the rows of the worst routing; only those are computed that there are.
      if (uint64_t rows = work->rows()) {
        // Ranks of etp have each other's rows, but for those that are ranks of tp and have the same ones.
        int64_t etp = program.mesh().size("etp").value_or(1),
                sharers = etp == program.mesh().size("tp").value_or(1) ? 1 : etp;
        double live = liveRows(command, static_cast<double>(rows) / static_cast<double>(sharers));
        flops *= live;
        double fixed = std::min(static_cast<double>(work->fixed_bytes()), bytes);
        bytes =
            readShare(command, work->op()->string_view(), static_cast<double>(rows)) * fixed + live * (bytes - fixed);
        result.balanced = true;
      }
    } else if (const schema::Copy *copy = command.body_as_Copy()) {
      bytes = bytesOf(copy->source()) + bytesOf(copy->target());
    } else if (const schema::Fill *fill = command.body_as_Fill()) {
      bytes = bytesOf(fill->target());
    }
    this->flops += flops;
    this->bytes += bytes;
    std::string_view kernel;
    double blocks = 0;
    if (const schema::Launch *launch = command.body_as_Launch()) {
      kernel = program.kernels()[launch->kernel()];
      blocks = 1;
      for (uint64_t extent : *launch->grid())
        blocks *= static_cast<double>(extent);
    }
    return (command.joined() ? 0 : cluster.device.overhead) +
           cluster.device.seconds(dtype, flops, bytes, kernel, blocks);
  }

  /// Of the experts whose weights a product of so many rows may read at most, those that it reads if every choice is as likely: of many rows all.
  double readShare(const schema::Command &command, llvm::StringRef op, double rows) const {
    int64_t layer = layerOf(command);
    bool reads = op == "moe.grouped_linear" || op == "moe.grouped_linear_grad_data";
    if (!reads || program.mesh().size("ep").value_or(1) > 1 || layer < 0 ||
        static_cast<size_t>(layer) >= experts.size() || experts[layer].topK == 0)
      return 1;
    auto count = static_cast<double>(experts[layer].count), chosen = static_cast<double>(experts[layer].topK);
    return count * (1 - std::pow(1 - chosen / count, rows / chosen)) / std::min(count, rows);
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
    // A peer's buffer takes what every token may send to it, or has room for so many of the tokens that stand side by
    // side in the rows of the batch (passes/shard/Experts).
    auto ranks = static_cast<double>(peers);
    double most = own.batchRows * static_cast<double>(std::min(own.topK, own.count / peers));
    if (own.room > 0)
      most = std::min(most, std::ceil(own.room * own.batchRows * static_cast<double>(own.topK) / ranks));
    return std::min(1.0, chosen * own.batchRows / std::max(ranks * most, 1e-9));
  }

  /// Of the collective, which takes at least what its messages take of the rank's own processor, and of that.
  std::pair<double, double> seconds(const schema::Command &command, const schema::Collective &collective) {
    std::string name = collective.axis()->str();
    std::vector<uint32_t> members = membersOf(name);
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
    // A rank's of this stage on average: at the row's end nobody is there to send to.
    uint64_t sent = 0;
    double own = 0;
    auto size = static_cast<int>(members.size());
    for (int rank = 0; rank < size; ++rank)
      if (program.stageOf(members[rank]) == program.ownStage()) {
        sent += runtime::sentBytes(call, rank, size);
        ++own;
      }
    axis.bytes += live * static_cast<double>(sent) / own;
    axis.seconds += duration;
    axis.processor += processor;
    return {duration, processor};
  }

  /// The ranks of an axis with the first one of the stage.
  std::vector<uint32_t> membersOf(const std::string &axis) const {
    uint32_t first = program.firstRank(program.ownStage());
    return program.mesh().members(first, axis).value_or(std::vector<uint32_t>{first});
  }

  bool isShared(const std::string &axis) const {
    return llvm::any_of(membersOf(axis), [&](uint32_t rank) { return program.stageOf(rank) != program.ownStage(); });
  }

  const Program &program;
  const Cluster &cluster;
  Forecast &result;
  schedule::Orders &orders;
  std::vector<int64_t> rows; ///< of each stream of the program
  std::vector<Experts> experts; ///< by absolute layer; empty: not known
  std::string dtype;
  std::vector<std::pair<int64_t, int64_t>> iterations; ///< (index, count) of the repeats around a command
  std::map<uint32_t, std::pair<int64_t, int64_t>> events; ///< row and task of the last record
  std::vector<std::vector<int64_t>> pending; ///< per row what its next task waits for
  std::vector<int64_t> open; ///< per row the task that the next command joins, or -1
};

using Stages = std::deque<StageForecast>;

/// All tasks of a collective begin when each of them could: the k-th on an axis in one stage is the k-th in the others.
void meet(schedule::Problem &problem, const schedule::Orders &orders, const Stages &stages) {
  std::vector<int64_t> previous(problem.tasks.size(), -1);
  for (const std::vector<int64_t> &order : orders)
    for (size_t i = 1; i < order.size(); ++i)
      previous[order[i]] = order[i - 1];
  std::map<std::pair<std::string, size_t>, std::vector<int64_t>> together; // by axis and number
  for (const StageForecast &stage : stages)
    for (const auto &[axis, tasks] : stage.shared)
      for (auto [k, task] : llvm::enumerate(tasks))
        together[{axis, k}].push_back(task);
  for (const auto &[call, tasks] : together) {
    std::vector<int64_t> before;
    for (int64_t task : tasks) {
      llvm::append_range(before, problem.tasks[task].after);
      if (previous[task] >= 0)
        before.push_back(previous[task]);
    }
    for (int64_t task : tasks)
      problem.tasks[task].after = before;
  }
}

/// What the stages have counted, each of one of its ranks, of entries of which `entry` is the first.
void sumUp(Forecast &result, const Stages &stages, const std::string &entry) {
  auto count = static_cast<double>(stages.size());
  std::map<std::string, Forecast::Axis> axes;
  for (const StageForecast &stage : stages) {
    result.stages.push_back(
        {schedule::measureOn(result.problem, result.schedule, stage.host), stage.flops, stage.memory(entry)});
    result.flops += stage.flops / count;
    result.bytes += stage.bytes / count;
    result.mostFlops += stage.mostFlops / count;
    result.commands = std::max(result.commands, stage.commands);
    for (const auto &[name, own] : stage.axes) {
      Forecast::Axis &axis = axes[name];
      axis.name = name;
      axis.collectives = std::max(axis.collectives, own.collectives);
      axis.bytes += own.bytes / count;
      axis.seconds = std::max(axis.seconds, own.seconds);
      axis.processor = std::max(axis.processor, own.processor);
    }
  }
  for (auto &[name, axis] : axes)
    result.axes.push_back(axis);
}

} // namespace

std::optional<Forecast> plan::forecast(const Program &program, const std::vector<std::string> &entries,
                                       const Cluster &cluster) {
  Forecast result;
  schedule::Orders orders;
  Stages stages;
  for (uint32_t stage = 0; stage < program.stages(); ++stage) {
    StageForecast &own = stages.emplace_back(*program.stage(stage), cluster, result, orders);
    for (const std::string &entry : entries)
      own.run(entry);
  }
  meet(result.problem, orders, stages);
  // A list that a stream walks in order has no circle; those of several may.
  std::vector<int64_t> circle;
  std::optional<schedule::Schedule> timed = schedule::simulate(result.problem, orders, &circle);
  if (!timed) {
    std::string names;
    for (int64_t task : circle)
      names += (names.empty() ? "" : ", ") + result.problem.tasks[task].name + " (" +
               result.problem.streams[result.problem.tasks[task].stream] + ")";
    printError(program.path() + ": stages wait for each other, each task for the next: " + names);
    return std::nullopt;
  }
  result.schedule = std::move(*timed);
  result.measures = schedule::measure(result.problem, result.schedule);
  sumUp(result, stages, entries.front());
  return result;
}

double plan::tokensOf(const Program &program, const runtime::EntryInfo &entry) {
  // Rows of a batch are divided by dp, their tokens by sp; what is generated is on all ranks.
  double ranks = 1;
  for (const char *axis : {"dp", "sp"})
    ranks *= isOfBatches(entry.name) ? program.mesh().size(axis).value_or(1) : 1;
  auto [rows, length] = rankTokens(program, entry);
  return ranks * rows * length;
}

std::vector<std::string> plan::defaultEntries(const runtime::Program &program) {
  for (const char *name : {"train_step", "accumulate_step", "eval_step"}) {
    if (!program.findEntry(name))
      continue;
    bool isStep = llvm::StringRef(name) == "accumulate_step" && program.findEntry("update_step") &&
                  program.metadata("train.accumulation_steps") == "1";
    return isStep ? std::vector<std::string>{name, "update_step"} : std::vector<std::string>{name};
  }
  if (program.entries().empty())
    return {};
  return {program.entries().front().name};
}

/// Two entries one after the other, the first so often.
static schedule::Measures inTurn(const schedule::Measures &first, int64_t times, const schedule::Measures &second) {
  auto of = [&](double each, double once) { return static_cast<double>(times) * each + once; };
  schedule::Measures sum = second;
  sum.makespan = of(first.makespan, second.makespan);
  sum.computeBusy = of(first.computeBusy, second.computeBusy);
  sum.exposedComm = of(first.exposedComm, second.exposedComm);
  double idle = of(first.bubble * first.makespan, second.bubble * second.makespan);
  sum.bubble = sum.makespan > 0 ? idle / sum.makespan : 0;
  return sum;
}

std::optional<plan::Step> plan::stepOf(const runtime::Program &program, const std::vector<std::string> &entries,
                                       const Forecast &forecast, const Cluster &cluster) {
  Step step{1, tokensOf(program, *program.findEntry(entries.front())), forecast.measures};
  if (entries.back() != "accumulate_step" || !program.findEntry("update_step"))
    return step;
  std::optional<Forecast> update = plan::forecast(program, {"update_step"}, cluster);
  if (!update)
    return std::nullopt;
  step.batches = std::max<int64_t>(std::llround(numberOf(program, "train.accumulation_steps", 1)), 1);
  step.tokens *= static_cast<double>(step.batches);
  step.measures = inTurn(forecast.measures, step.batches, update->measures);
  return step;
}

std::shared_ptr<const runtime::Program> plan::programOf(const std::vector<uint8_t> &file, const std::string &name) {
  auto *begin = reinterpret_cast<const std::byte *>(file.data());
  auto program = runtime::Program::parse({begin, begin + file.size()}, name);
  if (program.ok())
    return *program;
  printError(program.status().message());
  return nullptr;
}

static std::optional<double> secondsOf(const runtime::Program &program, const plan::Cluster &cluster) {
  std::vector<std::string> entries = plan::defaultEntries(program);
  if (entries.empty())
    return 0;
  std::optional<plan::Forecast> forecast = plan::forecast(program, entries, cluster);
  return forecast ? std::optional(forecast->measures.makespan) : std::nullopt;
}

std::optional<double> plan::secondsOn(const std::vector<uint8_t> &file, const Cluster &cluster) {
  std::shared_ptr<const runtime::Program> program = programOf(file, "program");
  return program ? secondsOf(*program, cluster) : std::nullopt;
}

std::optional<double> plan::secondsOnMachine(const std::vector<uint8_t> &file, const Machine &machine) {
  std::shared_ptr<const runtime::Program> program = programOf(file, "program");
  return program ? secondsOf(*program, clusterOf(machine, program->mesh().worldSize())) : std::nullopt;
}
