#include "runtime/ContentHash.h"
#include "runtime/Trace.h"
#include "runtime/data/BatchChecks.h"
#include "runtime/io/File.h"
#include "runtime/io/JsonText.h"
#include "runtime/io/Npy.h"
#include "runtime/io/Shape.h"
#include "runtime/io/TensorNames.h"
#include "runtime/train/TensorSource.h"
#include "tools/braid-run/Commands.h"
#include "tools/common/IntegerFlag.h"

#include <chrono>
#include <limits>
#include <map>
#include <set>

namespace braid::run {

using namespace braid::runtime;

namespace {

constexpr uint64_t maxRounds = 1000000;
constexpr uint64_t fewestRounds = 3; // whatever time they take: a median of fewer says little

struct Options {
  std::string program, function, calls, checkpoint;
  std::vector<std::string> inputs, outputs;
  std::optional<uint64_t> seed;
  RankFlags ranks;
};

// NAME=FILE, with {rank} in FILE replaced for each rank.
struct Binding {
  std::vector<std::optional<TensorRef>> tensors; // by stage: a layer is of one, and the ranks of others leave it alone
  std::string name, file;

  std::string fileOf(int rank) const {
    std::string path = file;
    for (size_t at; (at = path.find("{rank}")) != std::string::npos;)
      path.replace(at, 6, std::to_string(rank));
    return path;
  }
};

// A function with its files, by the command line or by a line of --calls.
struct Call {
  std::string function;
  std::vector<Binding> inputs, outputs;
  uint64_t rounds = 0, launchRounds = 0; // timed behind the first: runs, and runs whose kernels are waited for
  double seconds = std::numeric_limits<double>::infinity(); // after which no round of a kind begins, but the fewest
  std::string line; // FILE:LINE in --calls; empty: the call of the command line
};

Expected<std::vector<Binding>> parseBindings(const Program &program, const std::string &function,
                                             const std::vector<std::string> &texts, std::string_view flag) {
  std::vector<Binding> bindings;
  for (const std::string &text : texts) {
    size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return Status::error("{} {}: must be NAME=FILE.npy", flag, text);
    Binding binding;
    binding.name = text.substr(0, equals);
    binding.file = text.substr(equals + 1);
    Status missing = Status::success(); // from the first stage
    for (uint32_t stage = 0; stage < program.stages(); ++stage) {
      auto view = program.stage(stage);
      Expected<TensorRef> tensor = findTensor(*view, view->findEntry(function), binding.name);
      if (!tensor && missing.ok())
        missing = tensor.status();
      binding.tensors.push_back(tensor ? std::optional(*tensor) : std::nullopt);
    }
    if (std::ranges::none_of(binding.tensors, [](const auto &tensor) { return tensor.has_value(); }))
      return missing;
    for (const Binding &other : bindings)
      if (other.name == binding.name)
        return Status::error("{} {} is given twice: {} and {}", flag, binding.name, other.file, binding.file);
    bindings.push_back(std::move(binding));
  }
  return bindings;
}

// Seconds of the kernels of a run, each waited for: what the copies of inputs and outputs around them take is not in it.
class LaunchClock : public TraceSink {
public:
  void command(const TraceEvent &event) override {
    if (std::string_view(event.kind) != "launch")
      return;
    double taken = static_cast<double>(event.endNs - event.beginNs) * 1e-9;
    seconds += taken;
    byName[event.command] += taken;
  }
  double seconds = 0;
  std::map<std::string, double> byName; // of a round
};

struct Timings {
  std::vector<double> runs, launches; // seconds of each round
  std::map<std::string, std::vector<double>> byName; // of the launches of one name
};

// What runs on every rank of a stage.
class Caller {
public:
  Caller(const Call &call, const Program &program, const Options &options)
      : call(call), stage(program.ownStage()), entry(*program.findEntry(call.function)), options(options),
        inputs(call.inputs), outputs(call.outputs) {}

  // Parameters, before the first of the calls.
  Status begin(Rank &rank, const std::vector<Call> &calls) const {
    std::string functions;
    for (const Call &call : calls)
      functions += fmt::format(
          "{}{}{}", functions.empty() ? "" : ", ", call.function,
          call.rounds || call.launchRounds ? fmt::format(" x {}", 1 + call.rounds + call.launchRounds) : "");
    // Ranks compare what fits a line; a list may be longer.
    const Rank::Value asked[] = {{options.calls.empty() ? "function" : "--calls", functions},
                                 {"--calls (hash)", contentHash(std::as_bytes(std::span(functions))).hex()},
                                 {"--seed", options.seed ? fmt::format("{}", *options.seed) : "not given"},
                                 {"--checkpoint", options.checkpoint.empty() ? "not given" : "given"}};
    BRAID_TRY(rank.agree(asked, "call"));
    if (options.seed && !seedsItself())
      BRAID_TRY(initialize(rank, *options.seed));
    if (!options.checkpoint.empty())
      BRAID_TRY(
          loadModel(rank, options.checkpoint, isImported(options.checkpoint) ? Restored::masters : Restored::all));
    return Status::success();
  }

  Expected<Timings> run(Rank &rank) const {
    Session &session = rank.session();
    for (const Binding &input : inputs)
      if (const auto &tensor = input.tensors[stage])
        BRAID_TRY(set(rank, input, *tensor));
    if (seedsItself()) {
      BRAID_TRY(initialize(rank, *options.seed));
    } else {
      BRAID_ASSIGN(EntryId id, session.entry(entry.name));
      BRAID_TRY(session.run(id));
    }
    for (const Binding &output : outputs) {
      const auto &tensor = output.tensors[stage];
      if (!tensor)
        continue;
      TensorView view = tensor->view(session);
      BRAID_TRY(session.toHost(view));
      BRAID_TRY(writeNpy(output.fileOf(rank.index()), tensor->info->dtype, tensor->shape(), {view.data, view.bytes}));
    }
    Timings timings;
    BRAID_TRY(timeRounds(session, call.rounds, nullptr, timings));
    LaunchClock launches;
    session.setTrace(&launches);
    Status timed = timeRounds(session, call.launchRounds, &launches, timings);
    session.setTrace(nullptr);
    BRAID_TRY(std::move(timed));
    return timings;
  }

  // Every input must come from somewhere: zeros nobody asked for would look like a result.
  Status checkInputs(const Program &program) const {
    std::set<const TensorInfo *> given;
    for (const Binding &input : inputs) {
      if (!input.tensors[stage])
        continue;
      const TensorInfo *tensor = input.tensors[stage]->info;
      if (auto axis = tensor->coordinateAxis())
        return Status::error("--input {}: every rank knows its coordinate on '{}' itself", input.name, *axis);
      given.insert(tensor);
    }
    for (uint32_t index : entry.inputs) {
      const TensorInfo &tensor = program.tensors()[index];
      if (given.count(&tensor) && seedsItself())
        return Status::error("--seed={} sets the inputs of @{}: leave --input {} away, or --seed", *options.seed,
                             entry.name, tensor.name);
      if (tensor.role == Role::input && !given.count(&tensor) && !tensor.coordinateAxis() && !seedsItself())
        return Status::error("input '{}' ({} {}) of @{} is not given: add {}", tensor.name, toString(tensor.dtype),
                             formatShape(tensor.shape), entry.name,
                             options.calls.empty() ? fmt::format("--input {}=FILE.npy", tensor.name)
                                                   : fmt::format("\"{}\": \"FILE.npy\" to its inputs", tensor.name));
    }
    return Status::success();
  }

private:
  // --seed of a call of @init is its input.
  bool seedsItself() const { return options.seed && entry.name == "init"; }

  Status timeRounds(Session &session, uint64_t rounds, LaunchClock *launches, Timings &timings) const {
    using Clock = std::chrono::steady_clock;
    BRAID_ASSIGN(EntryId id, session.entry(entry.name));
    Clock::time_point begin = Clock::now();
    auto passed = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
    for (uint64_t round = 0; round < rounds && (round < fewestRounds || passed(begin) < call.seconds); ++round) {
      if (launches)
        *launches = {};
      Clock::time_point start = Clock::now();
      BRAID_TRY(session.run(id));
      if (!launches) {
        timings.runs.push_back(passed(start));
        continue;
      }
      timings.launches.push_back(launches->seconds);
      for (const auto &[name, seconds] : launches->byName)
        timings.byName[name].push_back(seconds);
    }
    return Status::success();
  }

  // Inputs that kernels use as indices. Programs that are no language models have no vocabulary.
  Status checkValues(const Program &program, const TensorInfo &tensor, std::span<const int32_t> values) const {
    std::string_view name = tensor.lastComponent();
    int64_t columns = tensor.shape.back();
    if (name == "tokens" || name == "labels") {
      if (!program.metadata("vocab_size"))
        return Status::success();
      BRAID_ASSIGN(int64_t vocabulary, vocabularyOf(program));
      return checkTokenValues(name, values, columns, name == "labels" ? -1 : 0, vocabulary);
    }
    std::optional<int64_t> tokens, context;
    // A prompt is given whole, of the rows of a batch a rank along sp holds a part.
    bool isPrompt = serves(entry.name);
    int64_t ranks = isPrompt ? 1 : program.mesh().size("sp").value_or(1);
    for (uint32_t index : entry.inputs)
      if (const TensorInfo &other = program.tensors()[index];
          other.lastComponent() == "tokens" && other.shape.size() == 2)
        tokens = other.shape[1] * ranks;
    if (isPrompt) {
      BRAID_ASSIGN(std::optional<double> length, metadataNumber(program, "context_len"));
      if (length)
        context = static_cast<int64_t>(*length);
    }
    return checkCuSeqlens(values, columns, tokens, context);
  }

  Status set(Rank &rank, const Binding &input, const TensorRef &target) const {
    std::string path = input.fileOf(rank.index());
    BRAID_ASSIGN(NpyFile file, NpyFile::open(path));
    const TensorInfo &tensor = *target.info;
    if (file.dtype() != tensor.dtype || file.shape() != target.shape())
      return Status::error("{}: holds {} {}, but '{}' is {} {}", path, toString(file.dtype()),
                           formatShape(file.shape()), input.name, toString(tensor.dtype), formatShape(target.shape()));
    TensorView view = target.view(rank.session());
    BRAID_TRY(file.read({view.data, view.bytes}));
    BRAID_TRY(rank.session().toDevice(view));
    std::string_view name = tensor.lastComponent();
    if (tensor.role == Role::input && tensor.dtype == DType::i32 && tensor.shape.size() == 2 &&
        (name == "tokens" || name == "labels" || name == "cu_seqlens"))
      return checkValues(rank.program(), tensor, view.as<int32_t>()).withContext(path);
    return Status::success();
  }

  const Call &call;
  uint32_t stage;
  const EntryInfo &entry;
  const Options &options;
  const std::vector<Binding> &inputs, &outputs;
};

// No file may stand for two things; nothing is created before that is known.
Status checkFiles(const Options &options, int ranks, const std::vector<Call> &calls) {
  FileUses uses;
  uses.reads("the program", options.program);
  if (!options.checkpoint.empty())
    uses.readsCheckpoints("--checkpoint", options.checkpoint);
  if (!options.calls.empty())
    uses.reads("--calls", options.calls);
  for (int rank = 0; rank < ranks; ++rank)
    for (const Call &call : calls) {
      for (const Binding &input : call.inputs)
        uses.reads("--input " + input.name, input.fileOf(rank));
      for (const Binding &output : call.outputs)
        uses.writes("--output " + output.name, output.fileOf(rank), FileUses::Kind::array);
    }
  return uses.check();
}

Expected<Call> makeCall(const Program &program, std::string_view function, const std::vector<std::string> &inputs,
                        const std::vector<std::string> &outputs, int ranks) {
  if (function.starts_with('@'))
    function.remove_prefix(1);
  Call call;
  call.function = function;
  BRAID_TRY(findEntry(program, function).status()); // of one stage: all have the same
  BRAID_ASSIGN(call.inputs, parseBindings(program, call.function, inputs, "--input"));
  BRAID_ASSIGN(call.outputs, parseBindings(program, call.function, outputs, "--output"));
  for (const Binding &output : call.outputs)
    if (ranks > 1 && output.file.find("{rank}") == std::string::npos)
      return Status::error("--output {}={}: {} ranks would write the same file; put {{rank}} in its name", output.name,
                           output.file, ranks);
  return call;
}

// {"function": "f", "inputs": {"x": "x.npy"}, "outputs": {"y": "y.npy"}, "rounds": 20, "launch_rounds": 5, "seconds": 2}
Expected<Call> parseCall(const Program &program, std::string_view text, int ranks) {
  BRAID_ASSIGN(nlohmann::json object, parseJsonObject(text));
  std::string function;
  std::vector<std::string> files[2];
  std::optional<uint64_t> rounds, launchRounds;
  std::optional<double> seconds;
  for (const auto &[key, value] : object.items()) {
    if (key == "function" && value.is_string()) {
      function = value.get<std::string>();
    } else if ((key == "rounds" || key == "launch_rounds") && value.is_number_unsigned() &&
               value.get<uint64_t>() <= maxRounds) {
      (key == "rounds" ? rounds : launchRounds) = value.get<uint64_t>();
    } else if (key == "seconds" && value.is_number() && value.get<double>() > 0) {
      seconds = value.get<double>();
    } else if ((key == "inputs" || key == "outputs") && value.is_object()) {
      for (const auto &[name, file] : value.items()) {
        if (!file.is_string())
          return Status::error("{}.{} must be a file's name", key, name);
        files[key == "outputs"].push_back(name + "=" + file.get<std::string>());
      }
    } else {
      return Status::error("{}: {}; valid: function (a name), inputs and outputs (objects of files by name), rounds "
                           "and launch_rounds (0 to {}), seconds (above 0)",
                           key, shownValue(value), maxRounds);
    }
  }
  if (function.empty())
    return Status::error("the key 'function' is missing");
  BRAID_ASSIGN(Call call, makeCall(program, function, files[0], files[1], ranks));
  call.rounds = rounds.value_or(0);
  call.launchRounds = launchRounds.value_or(call.rounds);
  if (seconds && ranks > 1)
    return Status::error("seconds: {} ranks would each begin as many rounds as they have time for; valid: of one rank",
                         ranks);
  call.seconds = seconds.value_or(call.seconds);
  return call;
}

Expected<std::vector<Call>> readCalls(const Program &program, const std::string &path, int ranks) {
  BRAID_ASSIGN(std::string text, readTextFile(path));
  std::vector<Call> calls;
  size_t number = 0;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    ++number;
    if (text.find_first_not_of(" \t\r", begin) >= end)
      continue;
    Expected<Call> call = parseCall(program, std::string_view(text).substr(begin, end - begin), ranks);
    std::string line = fmt::format("{}:{}", path, number);
    BRAID_TRY(call.status().withContext(line));
    call->line = std::move(line);
    calls.push_back(std::move(*call));
  }
  if (calls.empty())
    return Status::error("{}: holds no call", path);
  return calls;
}

Status run(const Options &options) {
  BRAID_ASSIGN(RankOptions ranks, joinRanks(options.ranks));
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program));
  warnIdleRankFlags(*program, options.ranks, ranks);
  int all = ranks.processes ? ranks.processes->size() : ranks.ranks;
  std::vector<Call> calls;
  if (options.calls.empty()) {
    BRAID_ASSIGN(Call call, makeCall(*program, options.function, options.inputs, options.outputs, all));
    calls.push_back(std::move(call));
  } else {
    BRAID_ASSIGN(calls, readCalls(*program, options.calls, all));
  }
  BRAID_TRY(checkFiles(options, all, calls));
  for (const Call &call : calls)
    for (uint32_t stage = 0; stage < program->stages(); ++stage)
      if (Status inputs = Caller(call, *program->stage(stage), options).checkInputs(*program->stage(stage));
          !inputs.ok())
        return call.line.empty() ? inputs : inputs.withContext(call.line);
  return runRanks(program, ranks, [&](Rank &rank) -> Status {
    BRAID_TRY(Caller(calls.front(), rank.program(), options).begin(rank, calls));
    for (const Call &call : calls) {
      BRAID_ASSIGN(Timings timings, Caller(call, rank.program(), options).run(rank));
      if (options.calls.empty() || !rank.isFirst())
        continue;
      fmt::print("{}\n", nlohmann::json{{"function", call.function},
                                        {"seconds", timings.runs},
                                        {"launch_seconds", timings.launches},
                                        {"seconds_by_launch", timings.byName}}
                             .dump());
      std::fflush(stdout); // whoever reads knows what is done when the next one ends the process
    }
    return Status::success();
  });
}

} // namespace

Action addCall(CLI::App &command) {
  auto options = std::make_shared<Options>();
  addProgramOption(command, options->program);
  CLI::Option *function = command.add_option("function", options->function,
                                             "Function to call (braid-run info lists them); or --calls instead");
  function->type_name("@FUNCTION");
  CLI::Option *input = command
                           .add_option("--input", options->inputs,
                                       "Set a tensor from a NumPy file before the call: an input, or any parameter, "
                                       "moment or cache. layers.3.x is "
                                       "one layer, layers.{}.x those that the program stacks (info --functions). bf16 "
                                       "tensors are files of their "
                                       "bits as uint16")
                           ->type_name("NAME=F.npy");
  CLI::Option *output = command
                            .add_option("--output", options->outputs,
                                        "Write a tensor to a NumPy file after the call; names as for --input")
                            ->type_name("NAME=F.npy");
  command
      .add_option(
          "--calls", options->calls,
          "Instead of FUNCTION: a file of calls, one JSON object per line with function, inputs, outputs (files "
          "by name), rounds: so many more runs are timed (a GPU's with the copies of inputs and outputs), "
          "launch_rounds "
          "(as many as rounds if not given): and so many with every kernel waited for, and seconds: after these no "
          "further round of a kind begins, but the first three. Prints a line of JSON when a call is done")
      ->excludes(function)
      ->excludes(input)
      ->excludes(output)
      ->type_name("F.jsonl");
  CLI::Option *checkpoint = command
                                .add_option("--checkpoint", options->checkpoint,
                                            "First load parameters and moments from this checkpoint, or parameters "
                                            "from a directory with weights of transformers")
                                ->type_name("DIR");
  integerIn(command.add_option("--seed", options->seed,
                               "First run @init with this seed (without it parameters start as zeros); @init itself "
                               "takes it as its input"),
            0, UINT64_MAX)
      ->excludes(checkpoint);
  addRankOptions(command, options->ranks);
  command.footer(
      "With --ranks, {rank} in a file name is replaced by the rank. Of a program with pipeline stages ranks read and "
      "write the tensors that their stage has.");
  command.final_callback([options] {
    if (options->function.empty() && options->calls.empty())
      throw CLI::RequiredError("function");
  });
  return [options] { return run(*options); };
}

} // namespace braid::run
