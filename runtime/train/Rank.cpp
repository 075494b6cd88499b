#include "runtime/train/Rank.h"

#include "runtime/ThreadPool.h"
#include "runtime/comm/NcclWorld.h"
#include "runtime/comm/ThreadWorld.h"
#include "runtime/cpu/Matmul.h"
#include "runtime/cuda/CudaDriver.h"
#include "runtime/io/Shape.h"
#include "runtime/io/TensorNames.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

namespace braid::runtime {

// ---- Ranks ----------------------------------------------------------------------------------------------------------

int64_t Rank::dpSize() const { return program().mesh().size("dp").value_or(1); }

int64_t Rank::dpCoordinate() const {
  return program().mesh().coordinate(static_cast<uint32_t>(index()), "dp").value_or(0);
}

Expected<bool> Rank::any(bool flag, const char *name) {
  if (!comm || worldSize() == 1)
    return flag;
  int32_t value = flag;
  auto *bytes = reinterpret_cast<std::byte *>(&value);
  BRAID_TRY(comm->world().allReduce(bytes, bytes, sizeof(value), DType::i32, name));
  return value != 0;
}

Status Rank::gather(std::span<const std::byte> own, std::span<std::byte> all, const char *name) {
  assert(all.size() == own.size() * static_cast<size_t>(worldSize()));
  if (comm && worldSize() > 1)
    return comm->world().allGather(own.data(), all.data(), own.size(), name);
  std::copy(own.begin(), own.end(), all.begin());
  return Status::success();
}

Expected<std::string> Rank::fromFirst(std::string bytes, const char *name) {
  if (worldSize() == 1)
    return bytes;
  auto size = static_cast<uint64_t>(bytes.size());
  std::vector<uint64_t> sizes(static_cast<size_t>(worldSize()));
  BRAID_TRY(gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)), name));
  if (sizes[0] == 0)
    return std::string();
  bytes.resize(sizes[0]); // ranks bring equally many
  std::string all(sizes[0] * sizes.size(), '\0');
  BRAID_TRY(gather(std::as_bytes(std::span(bytes)), std::as_writable_bytes(std::span(all)), name));
  all.resize(sizes[0]);
  return all;
}

Status agreeOn(Communicator &world, std::span<const Rank::Value> values, const char *name) {
  using Text = std::array<char, 64>;
  std::vector<Text> own(values.size()), all(values.size() * static_cast<size_t>(world.size()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i].text.copy(own[i].data(), own[i].size() - 1);
  std::span<const std::byte> bytes = std::as_bytes(std::span(own));
  BRAID_TRY(world.allGather(bytes.data(), reinterpret_cast<std::byte *>(all.data()), bytes.size(), name));
  for (size_t i = 0; i < all.size(); ++i) {
    const Text &first = all[i % values.size()];
    if (all[i] != first)
      return Status::error("{}: {} on rank {}, but {} on rank 0; all ranks of a run need the same",
                           values[i % values.size()].what, all[i].data(), i / values.size(), first.data());
  }
  return Status::success();
}

Status Rank::agree(std::span<const Value> values, const char *name) {
  return comm && worldSize() > 1 ? agreeOn(comm->world(), values, name) : Status::success();
}

namespace {

// Watches over ranks that are threads: after one has failed the others end soon, or `stuck` is called.
class RankWatch {
public:
  explicit RankWatch(const RankOptions &options) : options(options), left(options.ranks) {
    if (options.stuck && options.ranks > 1)
      watcher = std::thread([this] { watch(); });
  }
  ~RankWatch() {
    if (watcher.joinable())
      watcher.join();
  }
  void ended(const Status &status) {
    {
      std::lock_guard lock(mutex);
      --left;
      // A rank that stopped because of another one says less than that other one.
      if (!status.ok() && (failure.ok() || failure.code() == ErrorCode::aborted))
        failure = status;
    }
    changed.notify_all();
  }

private:
  static constexpr std::chrono::seconds grace{2};

  void watch() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return left == 0 || !failure.ok(); });
    if (!changed.wait_for(lock, options.timeout + grace, [&] { return left == 0; }))
      options.stuck(failure);
  }

  const RankOptions &options;
  std::mutex mutex;
  std::condition_variable changed;
  int left;
  Status failure = Status::success();
  std::thread watcher; // last: it uses the others
};

// "dp=2, ep=2": the axes that have more than one rank, without edp, which follows from the others.
std::string describeMesh(const MeshInfo &mesh) {
  std::string text;
  for (const auto *view : {&mesh.dense, &mesh.expert})
    for (const AxisInfo &axis : *view)
      if (axis.size > 1 && axis.name != "edp" && text.find(axis.name + "=") == std::string::npos)
        text += fmt::format("{}{}={}", text.empty() ? "" : ", ", axis.name, axis.size);
  return text.empty() ? text : " (" + text + ")";
}

Status checkRanks(const Program &program, const RankOptions &options) {
  uint32_t needed = program.mesh().worldSize();
  std::string mesh = fmt::format("{} was compiled for a mesh of {} rank{}{}", program.path(), needed,
                                 needed == 1 ? "" : "s", describeMesh(program.mesh()));
  if (Processes *processes = options.processes) {
    if (static_cast<uint32_t>(processes->size()) != needed)
      return Status::error(
          "{}, but {} started {} processes: start {} (mpirun -n {}, srun --mpi=pmix -n {}), or ranks as "
          "threads of one process (--ranks={})",
          mesh, processes->startedBy(), processes->size(), needed, needed, needed, needed);
    return Status::success();
  }
  if (options.ranks < 1 || static_cast<uint32_t>(options.ranks) != needed)
    return Status::error("{}, but {} were asked for: run it with --ranks={}{}", mesh, options.ranks, needed,
                         needed == 1 ? "" : fmt::format(", or as processes with mpirun -n {}", needed));
  return Status::success();
}

bool needsDevices(const Program &program) { return program.target() == "cuda" && program.mesh().worldSize() > 1; }

Expected<int> deviceCount() {
  BRAID_ASSIGN(const cuda::Driver *driver, cuda::Driver::open());
  int devices = 0;
  BRAID_TRY(driver->check(driver->cuDeviceGetCount(&devices), "cuDeviceGetCount"));
  return devices;
}

Status tooFewDevices(int ranksHere, int devices) {
  return Status::error(ErrorCode::unsupported,
                       "{} ranks on this machine need {} GPUs, one each, but the driver shows {} "
                       "(CUDA_VISIBLE_DEVICES chooses them); valid: a mesh of at most {}, or ranks on more machines",
                       ranksHere, ranksHere, devices, devices);
}

// Ranks that are threads have a GPU each: before anything is made for them.
Status checkDevices(const Program &program, int ranks) {
  if (!needsDevices(program))
    return Status::success();
  auto check = [&]() -> Status {
    BRAID_ASSIGN(int devices, deviceCount());
    return devices < ranks ? tooFewDevices(ranks, devices) : Status::success();
  };
  return check().withContext(fmt::format("{}: target cuda ({})", program.path(), program.arch()));
}

// Collective. The GPU of a process: by its number on this machine among those that it is shown; a launcher may show each process one of its own.
// No two have the same.
Expected<int> deviceOf(const Processes &processes, Communicator &world) {
  BRAID_ASSIGN(const cuda::Driver *driver, cuda::Driver::open());
  BRAID_ASSIGN(int devices, deviceCount());
  int ordinal = processes.rankOnThisMachine() % devices;
  cuda::Device device = 0;
  BRAID_TRY(driver->check(driver->cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  cuda::Uuid own = {};
  BRAID_TRY(driver->check(driver->cuDeviceGetUuid_v2(&own, device), "cuDeviceGetUuid"));
  std::vector<cuda::Uuid> all(static_cast<size_t>(world.size()));
  BRAID_TRY(world.allGather(reinterpret_cast<const std::byte *>(&own), reinterpret_cast<std::byte *>(all.data()),
                            sizeof(own), "GPUs of the ranks"));
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (std::memcmp(&all[i], &all[j], sizeof(own)) == 0)
        return tooFewDevices(processes.onThisMachine(), devices)
            .withContext(fmt::format("ranks {} and {} have the same GPU", j, i));
  return ordinal;
}

// One rank: its session, and the function on it. `options.comm`, the hosts, is told when they fail; between GPUs NCCL
// moves the data.
Status runRank(std::shared_ptr<const Program> program, SessionOptions options,
               const std::function<Status(Rank &)> &body) {
  std::unique_ptr<CommunicatorGroup> gpus;
  if (program->target() == "cuda" && options.worldSize > 1) {
    auto connected = connectNccl(program->mesh(), *options.comm, {options.timeout, options.device});
    if (!connected) {
      Status status = connected.status().withContext(fmt::format("rank {}", options.rank));
      options.comm->abort(status);
      return status;
    }
    gpus = *std::move(connected);
    options.comm = gpus.get();
  }
  auto work = [&]() -> Status {
    BRAID_ASSIGN(std::unique_ptr<Session> session, Session::create(program, options));
    Rank rank(*session, options.comm);
    return body(rank);
  };
  Status status = Status::success();
  try {
    status = work();
  } catch (const std::bad_alloc &) {
    status = Status::error(ErrorCode::ioError, "rank {}: out of memory", options.rank);
  } catch (const std::exception &error) { // nothing may leave the function of a thread
    status = Status::error(ErrorCode::internal, "rank {}: {}", options.rank, error.what());
  }
  if (!status.ok() && options.comm)
    options.comm->abort(status);
  return status;
}

// Ranks of tp and etp compute what they have in common (norms, routers, their updates) each for itself, to the same bits:
// with equal numbers of threads and instructions, which decide where products are cut and how they are summed.
bool computesAlike(const MeshInfo &mesh) { return mesh.size("tp").value_or(1) > 1 || mesh.size("etp").value_or(1) > 1; }

// What is compared must not depend on what is not compared yet: the program first, then what its mesh asks for.
Expected<int> agreeOnProcesses(Communicator &world, const Program &program, const RankOptions &options, int cores) {
  const Rank::Value same[] = {{"command", options.command}, {"program file (content hash)", program.fileHash().hex()}};
  BRAID_TRY(agreeOn(world, same, "program"));
  int threads = options.threads ? options.threads : std::min(cores, ThreadPool::maxThreads);
  if (!computesAlike(program.mesh()))
    return threads;
  const Rank::Value alike[] = {{"--threads", options.threads ? fmt::format("{}", options.threads) : "not given"},
                               {"instructions of matrix products (CPU, ONEDNN_MAX_CPU_ISA)", matmulInstructions()}};
  BRAID_TRY(agreeOn(world, alike, "threads"));
  // Where cores differ: as many as the rank with the fewest has.
  std::vector<int> all(static_cast<size_t>(world.size()));
  BRAID_TRY(world.allGather(reinterpret_cast<const std::byte *>(&threads), reinterpret_cast<std::byte *>(all.data()),
                            sizeof(threads), "number of threads"));
  return std::ranges::min(all);
}

Status runProcess(std::shared_ptr<const Program> program, const RankOptions &options,
                  const std::function<Status(Rank &)> &body) {
  Processes &processes = *options.processes;
  BRAID_ASSIGN(std::unique_ptr<CommunicatorGroup> group, processes.connect(program->mesh(), options.timeout));
  SessionOptions session;
  BRAID_ASSIGN(session.threads, agreeOnProcesses(group->world(), *program, options, processes.cores()));
  session.rank = processes.rank();
  session.worldSize = processes.size();
  session.onThisMachine = processes.onThisMachine();
  if (needsDevices(*program)) {
    auto device = deviceOf(processes, group->world());
    if (!device)
      return device.status().withContext(fmt::format("{}: target cuda ({})", program->path(), program->arch()));
    session.device = *device;
  }
  session.timeout = options.timeout;
  session.comm = group.get();
  BRAID_TRY(runRank(program, session, body));
  // A process that ended would look lost to those that still work.
  return group->world().allReduce(nullptr, nullptr, 0, DType::i32, "end");
}

} // namespace

Status runRanks(std::shared_ptr<const Program> program, const RankOptions &options,
                const std::function<Status(Rank &)> &body) {
  BRAID_TRY(checkRanks(*program, options));
  if (options.processes)
    return runProcess(std::move(program), options, body);
  BRAID_TRY(checkDevices(*program, options.ranks));
  std::unique_ptr<ThreadWorld> world;
  if (options.ranks > 1) {
    BRAID_ASSIGN(world, ThreadWorld::create(program->mesh(), {.timeout = options.timeout}));
  }
  RankWatch watch(options);
  return runOnRanks(options.ranks, [&](int index) -> Status {
    SessionOptions session;
    session.threads = options.threads;
    session.rank = session.device = index;
    session.worldSize = options.ranks;
    session.timeout = options.timeout;
    session.comm = world ? &world->group(index) : nullptr;
    Status status = runRank(program, session, body);
    watch.ended(status);
    return status;
  });
}

// ---- Entry points ---------------------------------------------------------------------------------------------------

namespace {

Expected<TensorView> scalar(Session &session, const EntryInfo &entry, const TensorInfo &tensor, DType dtype) {
  BRAID_TRY(checkTensor(entry, tensor, dtype, 1));
  if (tensor.shape[0] != 1)
    return Status::error(ErrorCode::unsupported, "entry @{}: '{}' has {} elements, but the host needs 1", entry.name,
                         tensor.name, tensor.shape[0]);
  return session.tensor(tensor);
}

} // namespace

Expected<TensorView> scalarInput(Session &session, const EntryInfo &entry, std::string_view name, DType dtype) {
  BRAID_ASSIGN(const TensorInfo *tensor, entryInput(session.program(), entry, name));
  return scalar(session, entry, *tensor, dtype);
}

Expected<TensorView> scalarOutput(Session &session, const EntryInfo &entry, std::string_view name, DType dtype) {
  BRAID_ASSIGN(const TensorInfo *tensor, entryOutput(session.program(), entry, name));
  return scalar(session, entry, *tensor, dtype);
}

Status initialize(Rank &rank, uint64_t seed) {
  Session &session = rank.session();
  const Program &program = session.program();
  BRAID_ASSIGN(const EntryInfo *entry, findEntry(program, "init"));
  BRAID_ASSIGN(TensorView seedView, scalarInput(session, *entry, "seed", DType::i64));
  seedView.as<int64_t>()[0] = static_cast<int64_t>(seed);
  BRAID_ASSIGN(EntryId id, session.entry("init"));
  // Entry init writes the masters of bf16 parameters, which are moments too.
  session.clear(Role::moment);
  return session.run(id);
}

constexpr int64_t drawKeysPerRow = 3; // sample, seed, layer

// Where the token slices of a row end that ranks along sp share: the program says it.
static Expected<SequenceLayout> layoutOf(const Program &program, int64_t localLength) {
  int64_t ranks = program.mesh().size("sp").value_or(1), length = localLength * ranks;
  std::string_view text = program.metadata(SequenceLayout::metadataKey).value_or("");
  std::optional<SequenceLayout> layout = SequenceLayout::parse(text, length, ranks);
  if (!layout)
    return Status::error(
        ErrorCode::corruptFile,
        "{}: metadata '{}' is '{}'; valid: ascending multiples of sp = {} below the {} tokens of a row, "
        "separated by commas",
        program.path(), SequenceLayout::metadataKey, text, ranks, length);
  return *std::move(layout);
}

Expected<BatchBinding> BatchBinding::bind(Session &session, const EntryInfo &entry) {
  const Program &program = session.program();
  BatchBinding binding;
  BRAID_ASSIGN(const TensorInfo *tokens, entryInput(program, entry, "tokens"));
  BRAID_ASSIGN(const TensorInfo *labels, entryInput(program, entry, "labels"));
  BRAID_ASSIGN(const TensorInfo *documents, entryInput(program, entry, "cu_seqlens"));
  for (const TensorInfo *tensor : {tokens, labels, documents})
    BRAID_TRY(checkTensor(entry, *tensor, DType::i32, 2));
  if (labels->shape != tokens->shape)
    return Status::error(ErrorCode::unsupported, "entry @{}: tokens have shape {} but labels {}", entry.name,
                         formatShape(tokens->shape), formatShape(labels->shape));
  if (documents->shape[0] != tokens->shape[0] || documents->shape[1] < 2)
    return Status::error(ErrorCode::unsupported,
                         "entry @{}: tokens have shape {}, so cu_seqlens must be [{}, 2 or more], not {}", entry.name,
                         formatShape(tokens->shape), tokens->shape[0], formatShape(documents->shape));
  if (tokens->shape[0] < 1 || tokens->shape[1] < 1)
    return Status::error(ErrorCode::unsupported, "entry @{}: tokens have the empty shape {}", entry.name,
                         formatShape(tokens->shape));
  binding.batch = tokens->shape[0];
  const MeshInfo &mesh = program.mesh();
  BRAID_ASSIGN(binding.layout, layoutOf(program, tokens->shape[1]));
  binding.seqLen = binding.layout.length;
  binding.spCoordinate = mesh.coordinate(static_cast<uint32_t>(session.rank()), "sp").value_or(0);
  if (binding.layout.ranks > 1) {
    binding.rowTokens.resize(binding.seqLen);
    binding.rowLabels.resize(binding.seqLen);
  }
  binding.documentStride = documents->shape[1];
  binding.tokens = session.tensor(*tokens).as<int32_t>();
  binding.labels = session.tensor(*labels).as<int32_t>();
  binding.cuSeqlens = session.tensor(*documents).as<int32_t>();
  binding.inputs = {tokens, labels, documents};
  if (const TensorInfo *keys = findByLastComponent(program, entry.inputs, "draw_keys")) {
    BRAID_TRY(checkTensor(entry, *keys, DType::i64, 2));
    if (keys->shape[0] != binding.batch || keys->shape[1] != drawKeysPerRow)
      return Status::error(ErrorCode::unsupported, "entry @{}: draw_keys have shape {}, not [{}, {}]", entry.name,
                           formatShape(keys->shape), binding.batch, drawKeysPerRow);
    binding.drawKeys = session.tensor(*keys).as<int64_t>();
    binding.inputs.push_back(keys);
  }
  BRAID_ASSIGN(binding.entry, session.entry(entry.name));
  return binding;
}

void BatchBinding::keepPart(int64_t row) const {
  int64_t local = layout.localLength();
  layout.stripes(spCoordinate, [&](int64_t begin, int64_t at, int64_t count) {
    std::copy_n(rowTokens.begin() + begin, count, tokens.begin() + row * local + at);
    std::copy_n(rowLabels.begin() + begin, count, labels.begin() + row * local + at);
  });
}

void BatchBinding::setDraw(int64_t row, uint64_t sample, uint64_t seed) const {
  if (drawKeys.empty())
    return;
  std::span<int64_t> keys = drawKeys.subspan(row * drawKeysPerRow, drawKeysPerRow);
  keys[0] = static_cast<int64_t>(sample);
  keys[1] = static_cast<int64_t>(seed);
  keys[2] = 0; // the first layer that draws
}

// ---- Metadata -------------------------------------------------------------------------------------------------------

Expected<std::optional<double>> metadataNumber(const Program &program, std::string_view key) {
  std::optional<std::string_view> text = program.metadata(key);
  if (!text)
    return std::optional<double>();
  std::string copy(*text);
  char *end = nullptr;
  double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || *end != '\0' || !std::isfinite(value))
    return Status::error(ErrorCode::corruptFile, "{}: metadata '{}' is '{}', which is not a number", program.path(),
                         key, copy);
  return std::optional<double>(value);
}

Expected<std::optional<Activations>> activationsOf(const Program &program) {
  auto read = [&](const char *what) {
    return metadataNumber(program, fmt::format("{}.{}", program.ownKey("activations"), what));
  };
  BRAID_ASSIGN(std::optional<double> kept, read("kept_bytes"));
  BRAID_ASSIGN(std::optional<double> all, read("all_bytes"));
  BRAID_ASSIGN(std::optional<double> percent, read("recomputed_percent"));
  if (!kept || !all || !percent)
    return std::optional<Activations>();
  return std::optional(
      Activations{static_cast<uint64_t>(*kept), static_cast<uint64_t>(*all), static_cast<int64_t>(*percent)});
}

Status checkDType(const Program &program) {
  for (const TensorInfo &tensor : program.tensors())
    if (tensor.role == Role::parameter && tensor.dtype == DType::f64)
      return Status::error(ErrorCode::unsupported,
                           "{}: '{}' is f64 (dtype of the model), but training, evaluation and generation take f32 "
                           "and bf16 programs; 'braid-run call' takes any",
                           program.path(), tensor.name);
  return Status::success();
}

Expected<int64_t> vocabularyOf(const Program &program) {
  BRAID_ASSIGN(std::optional<double> vocabulary, metadataNumber(program, "vocab_size"));
  if (vocabulary && !(*vocabulary >= 1 && *vocabulary <= INT32_MAX))
    return Status::error(ErrorCode::corruptFile, "{}: metadata 'vocab_size' is {}; valid: 1 to {}", program.path(),
                         *vocabulary, INT32_MAX);
  return static_cast<int64_t>(vocabulary.value_or(256));
}

Expected<bool> readsBytes(const Program &program) {
  BRAID_ASSIGN(int64_t vocabulary, vocabularyOf(program));
  return vocabulary >= 256 && program.metadata("tokenizer").value_or("bytes") == "bytes";
}

Status checkTokens(const Program &program, const Corpus &corpus) {
  BRAID_ASSIGN(int64_t vocabulary, vocabularyOf(program));
  BRAID_ASSIGN(bool bytes, readsBytes(program));
  if (corpus.isText() && !bytes)
    return Status::error(
        ErrorCode::unsupported,
        "{}: its tokenizer is '{}' and its vocabulary has {} entries, but the data is text, which needs "
        "the tokenizer 'bytes' and 256 entries",
        program.path(), program.metadata("tokenizer").value_or("bytes"), vocabulary);
  if (!corpus.isText() && corpus.vocabulary() > vocabulary)
    return Status::error("{}: its vocabulary has {} entries, but the data was read for {}", program.path(), vocabulary,
                         corpus.vocabulary());
  return Status::success();
}

} // namespace braid::runtime
