#include "runtime/Session.h"

#include "runtime/CommandBuffers.h"
#include "runtime/MemoryCheck.h"
#include "runtime/Stream.h"
#include "runtime/Trace.h"
#include "runtime/comm/ThreadWorld.h"
#include "runtime/cpu/CpuFeatures.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/io/Words.h"
#include "runtime/schema/Program_generated.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

namespace braid::runtime {
namespace {

// Recordings are counted: a wait is for the last recording before it in the order of the command list, so it means the
// same in every iteration of a repeat. `issued` belongs to the thread that walks the list.
struct Event {
  std::atomic<uint64_t> completed{0};
  uint64_t issued = 0;
};

void moveSlots(LaunchCommand &launch, const Iterations &at) {
  for (const LaunchCommand::MovingSlot &moving : launch.moving)
    launch.slots[moving.slot] = reinterpret_cast<int64_t>(moving.buffer.at(at));
}

int64_t nowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

const char *kindName(Command::Kind kind) {
  switch (kind) {
  case Command::Kind::launch: return "launch";
  case Command::Kind::gemm: return "gemm";
  case Command::Kind::groupedGemm: return "grouped_gemm";
  case Command::Kind::collective: return "collective";
  case Command::Kind::copy: return "copy";
  case Command::Kind::fill: return "fill";
  case Command::Kind::record: return "record";
  case Command::Kind::wait: return "wait";
  case Command::Kind::repeat: return "repeat";
  }
  return "unknown";
}

// What so many ranks of the program need. Which those are, where it has more, nobody knows: of each stage as many.
uint64_t bytesOf(const Program &program, int ranks) {
  unsigned __int128 all = 0;
  for (uint32_t stage = 0; stage < program.stages(); ++stage)
    for (const ArenaInfo &arena : program.stage(stage)->arenas())
      all += arena.bytes;
  all = all * static_cast<unsigned>(ranks) / program.stages();
  return static_cast<uint64_t>(std::min<unsigned __int128>(all, UINT64_MAX));
}

} // namespace

// Members are destroyed in reverse order: streams and pool first, while what their threads use still lives.
struct Session::Impl {
  std::shared_ptr<const Program> program;
  SessionOptions options;
  std::unique_ptr<ThreadWorld> ownWorld; // when the caller gave no communicators
  CommunicatorGroup *group = nullptr;
  Arenas arenas;
  std::unique_ptr<CudaDevice> gpu; // null: the CPU executes the program
  Status gpuFailure = Status::success(); // of a call between two runs
  KernelLibrary kernels;
  std::unique_ptr<MatmulCache> matmuls;
  Commands commands;
  struct Coordinate {
    std::byte *at;
    int32_t value;
  };
  std::vector<std::vector<Coordinate>> coordinates; // by entry
  std::vector<Event> events;
  std::mutex eventMutex;
  std::condition_variable eventChanged;

  TraceSink *trace = nullptr;
  RunWatcher *watcher = nullptr;
  std::unique_ptr<MemoryCheck> memoryCheck;
  bool checking = false; // the memory of this run
  const NextInputs *nextInputs = nullptr; // of this run, until they are filled
  bool capturing = false; // the walk is recorded, not executed
  bool collectivesInTurn = false; // on a GPU: those of several axes follow each other
  bool updating = false, ended = false; // of this run, as the watcher was told and as it answered
  const char *entryName = "";
  uint32_t entryIndex = 0;
  Iterations iterations{};
  uint32_t depth = 0;

  std::atomic<bool> failed{false};
  std::mutex failureMutex;
  Status failure = Status::success();

  std::unique_ptr<ThreadPool> pool;
  std::vector<std::unique_ptr<Stream>>
      streams; // [0] is null: the calling thread; so are those of axes that this rank is not on

  Status create();
  Status createGpu();
  Status capture();
  Status replay(uint32_t entry);
  Status fillNext();
  Status lostOnGpu(Status status);
  Status run(uint32_t entry, const NextInputs *next);
  Status move(const TensorView &view, Status (CudaDevice::*how)(uint32_t, uint64_t, uint64_t));
  void clear(uint32_t arena, uint64_t offset, uint64_t bytes);
  bool everyCommand() const { return checking || (watcher && watcher->everyCommand()); }
  void walk(uint32_t begin, uint32_t end);
  void issue(const Command &command);
  void execute(const StreamItem &item);
  void executeOnGpu(const StreamItem &item);
  Status finishOnGpu();
  Status perform(const StreamItem &item);
  Status performOnGpu(const StreamItem &item);
  Status launchJoinedOnGpu(const StreamItem &item);
  void fetch(const StreamItem &item, const WatchedCommand &watched);
  Status performLaunch(LaunchCommand &launch, const Iterations &at);
  Status performJoined(const JoinedLaunches &joined, const Iterations &at);
  Status performCollective(const CollectiveCommand &collective, const Iterations &at);
  Status queueCollective(const CollectiveCommand &collective, uint32_t stream, const Iterations &at);
  void traced(const StreamItem &item, int64_t begin, uint64_t sentBefore);
  uint64_t sentOnAxisOf(const StreamItem &item) const;
  void recordEvent(const StreamItem &item);
  void waitEvent(const StreamItem &item);
  void fail(const StreamItem &item, const Status &status);
};

Status Session::Impl::create() {
  uint32_t world = program->mesh().worldSize();
  if (!program->target().empty() && program->target() != "cpu" && program->target() != "cuda")
    return Status::error(ErrorCode::unsupported, "{}: target '{}', but sessions execute programs for cpu and cuda",
                         program->path(), program->target());
  if (Status status = checkCpuFeatures(program->cpuFeatures()); !status.ok())
    return status.withContext(program->path());
  if (options.worldSize < 1 || static_cast<uint32_t>(options.worldSize) != world)
    return Status::error("{}: the program's mesh has {} but the session is given {}", program->path(),
                         counted(world, "rank"), options.worldSize);
  if (options.rank < 0 || options.rank >= options.worldSize)
    return Status::error("{}: rank {} of {}", program->path(), options.rank, options.worldSize);
  program = program->ofRank(static_cast<uint32_t>(options.rank));
  group = options.comm;
  if (!group) {
    if (world != 1)
      return Status::error("{}: {} ranks need communicators (SessionOptions::comm)", program->path(), world);
    BRAID_ASSIGN(ownWorld, ThreadWorld::create(program->mesh()));
    group = &ownWorld->group(0);
  }
  if (group->rank() != options.rank || group->worldSize() != options.worldSize)
    return Status::error("{}: rank {} of {} is given the communicators of rank {} of {}", program->path(), options.rank,
                         options.worldSize, group->rank(), group->worldSize());

  int threads = options.threads;
  if (threads <= 0)
    threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / options.worldSize, 1,
                         ThreadPool::maxThreads);
  CommandTarget target;
  std::vector<std::byte *> bases;
  if (program->target() == "cuda") {
    BRAID_TRY(createGpu().withContext(fmt::format("{}: target cuda ({})", program->path(), program->arch())));
    target.gpu = gpu.get();
    threads = 1; // the host has nothing to compute
  } else {
    int sharing = options.onThisMachine ? options.onThisMachine : options.worldSize;
    BRAID_TRY(arenas.allocate(program->arenas(), sharing, bytesOf(*program, sharing)).withContext(program->path()));
    if (!program->code().empty()) {
      BRAID_ASSIGN(kernels, KernelLibrary::load(program->code(), program->file().code()->name()->str()));
    }
    useOneOpenMpThread(); // primitives remember the number of threads they were made for
    BRAID_ASSIGN(matmuls, MatmulCache::create(threads));
    target.kernels = &kernels;
    target.matmuls = matmuls.get();
  }
  for (uint32_t i = 0; i < program->arenas().size(); ++i)
    bases.push_back(gpu ? gpu->base(i) : arenas.base(i));
  target.arenas = bases;
  BRAID_TRY(prepareCommands(*program, target, *group, commands));
  if (gpu)
    BRAID_TRY(capture().withContext(fmt::format("{}: target cuda ({})", program->path(), program->arch())));
  if (matmuls)
    BRAID_TRY(matmuls->finish());

  for (const EntryInfo &entry : program->entries()) {
    auto &list = coordinates.emplace_back();
    if (!entry.kept)
      continue;
    for (uint32_t input : entry.inputs) {
      const TensorInfo &tensor = program->tensors()[input];
      if (auto axis = tensor.coordinateAxis())
        list.push_back({arenas.base(tensor.arena) + tensor.offset,
                        static_cast<int32_t>(*program->mesh().coordinate(static_cast<uint32_t>(options.rank), *axis))});
    }
  }
  uint32_t mostEvents = 0;
  for (const PreparedEntry &entry : commands.entries)
    mostEvents = std::max(mostEvents, entry.events);
  events = std::vector<Event>(mostEvents);
  BRAID_ASSIGN(pool, ThreadPool::create(threads));
  if (gpu)
    return Status::success(); // which has streams of its own
  if (options.checkMemory && world == 1)
    memoryCheck = std::make_unique<MemoryCheck>(*program, arenas);
  streams.resize(1);
  for (size_t i = 1; i < program->streams().size(); ++i) {
    if (!program->streams()[i].axis.empty() && !program->isOn(program->streams()[i].axis)) {
      streams.emplace_back(); // nothing comes
      continue;
    }
    auto execute = [](void *context, const StreamItem &item) { static_cast<Impl *>(context)->execute(item); };
    BRAID_ASSIGN(auto stream, Stream::create(execute, this));
    streams.push_back(std::move(stream));
  }
  return Status::success();
}

Status Session::Impl::createGpu() {
  CudaDevice::Options how{options.device};
  if (options.worldSize > 1)
    how = {options.device, [this] { return group->health(); }, options.timeout};
  BRAID_TRY(arenas.reserve(program->arenas()));
  BRAID_ASSIGN(gpu, CudaDevice::create(*program, arenas, how));
  return Status::success();
}

// What a run puts on the streams of a GPU is the same every time, but where the host has to know how much is sent.
Status Session::Impl::capture() {
  for (const CollectiveCommand &collective : commands.collectives)
    collectivesInTurn |= collective.communicator != commands.collectives.front().communicator;
  for (uint32_t entry = 0; entry < commands.entries.size(); ++entry) {
    if (!program->entries()[entry].kept)
      continue;
    auto list =
        std::span(commands.list)
            .subspan(commands.entries[entry].begin, commands.entries[entry].end - commands.entries[entry].begin);
    if (std::ranges::any_of(list, [&](const Command &command) {
          return command.kind == Command::Kind::collective && commands.collectives[command.index].sendCounts.base;
        }))
      continue;
    entryName = program->entries()[entry].name.c_str();
    entryIndex = entry;
    updating = false;
    capturing = true;
    Status status = gpu->capture(entry, [&] {
      walk(commands.entries[entry].begin, commands.entries[entry].end);
      return failure;
    });
    capturing = false;
    BRAID_TRY(status.withContext(fmt::format("entry '{}'", entryName)));
  }
  return Status::success();
}

Status Session::Impl::replay(uint32_t entry) {
  for (size_t part = 0; part < gpu->parts(entry); ++part) {
    if (part > 0 && watcher) {
      BRAID_TRY(gpu->synchronize());
      if (!watcher->beforeUpdate())
        return Status::success();
    }
    BRAID_TRY(gpu->replay(entry, part));
    BRAID_TRY(fillNext());
  }
  return gpu->synchronize();
}

// While the GPU works.
Status Session::Impl::fillNext() {
  const NextInputs *next = std::exchange(nextInputs, nullptr);
  if (!next)
    return Status::success();
  BRAID_TRY(gpu->inputsTaken());
  return next->fill() ? gpu->stage(entryIndex, next->tensors) : Status::success();
}

// Of what belongs to no command: an error ends the other ranks, too, and what their GPUs wait for.
Status Session::Impl::lostOnGpu(Status status) {
  if (status.ok())
    return status;
  status = status.withContext(fmt::format("entry '{}'", entryName));
  if (options.worldSize > 1) {
    status = status.withContext(fmt::format("rank {}", options.rank));
    group->abort(status);
  }
  return status;
}

Status Session::Impl::run(uint32_t entry, const NextInputs *next) {
  BRAID_TRY(std::exchange(gpuFailure, Status::success()));
  if (gpu && !(next && next->filled))
    gpu->dropStaged(entry);
  nextInputs = gpu && !trace && !everyCommand() ? next : nullptr;
  if (!gpu)
    useOneOpenMpThread();
  const PreparedEntry &prepared = commands.entries[entry];
  for (uint32_t i = 0; i < prepared.events; ++i) {
    events[i].issued = 0;
    events[i].completed.store(0, std::memory_order_relaxed);
  }
  for (const Coordinate &coordinate : coordinates[entry])
    std::memcpy(coordinate.at, &coordinate.value, sizeof(coordinate.value));
  failed.store(false, std::memory_order_relaxed);
  failure = Status::success();
  updating = ended = false;
  entryName = program->entries()[entry].name.c_str();
  entryIndex = entry;
  depth = 0;
  if (gpu && gpu->captured(entry) && !trace && !everyCommand())
    return lostOnGpu(replay(entry));
  if (gpu)
    BRAID_TRY(lostOnGpu(gpu->begin(entry)));
  if (gpu && trace) // the first launch does not wait for the inputs
    BRAID_TRY(lostOnGpu(gpu->synchronize()));
  checking = memoryCheck && memoryCheck->begin(entry);
  walk(prepared.begin, prepared.end);
  for (size_t i = 1; i < streams.size(); ++i)
    if (streams[i])
      streams[i]->drain();
  if (gpu)
    if (Status status = failed ? Status::success() : lostOnGpu(finishOnGpu()); !status.ok())
      return status;
  std::lock_guard lock(failureMutex);
  return failure;
}

void Session::Impl::walk(uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; ++i) {
    const Command &command = commands.list[i];
    if (command.kind == Command::Kind::repeat) {
      for (int64_t iteration = 0; iteration < command.count; ++iteration) {
        iterations[depth] = iteration;
        ++depth;
        walk(i + 1, command.end);
        --depth;
        if (ended || failed.load(std::memory_order_relaxed))
          return;
      }
      i = command.end - 1;
      continue;
    }
    if (failed.load(std::memory_order_relaxed))
      return;
    if ((watcher || capturing) && command.updates && !updating) {
      updating = true;
      // The one place of a run where the host waits for a GPU, and only with a watcher: it looks at outputs.
      if (gpu)
        if (Status status = capturing ? gpu->part(entryIndex) : finishOnGpu(); !status.ok())
          return fail({&command, 0, depth, iterations}, status);
      ended = !capturing && !watcher->beforeUpdate();
    }
    if (ended)
      return;
    // A trace has the times of a GPU's launches one by one.
    if (command.joined > 1 && !everyCommand() && !(gpu && trace)) {
      StreamItem item{&command, 0, depth, iterations};
      if (!gpu)
        execute(item);
      else if (Status status = launchJoinedOnGpu(item); !status.ok())
        return fail(item, status);
      i += command.joined - 1;
      continue;
    }
    issue(command);
  }
}

// Executes a compute command; hands any other to its stream.
void Session::Impl::issue(const Command &command) {
  StreamItem item{&command, 0, depth, iterations};
  if (gpu && !everyCommand())
    return executeOnGpu(item);
  if (command.kind == Command::Kind::record)
    item.ticket = ++events[command.index].issued;
  else if (command.kind == Command::Kind::wait)
    item.ticket = events[command.index].issued;
  if (command.stream != 0 && gpu)
    return executeOnGpu(item);
  if (command.stream != 0) {
    streams[command.stream]->push(item);
    return;
  }
  if (command.kind == Command::Kind::collective)
    if (uint32_t fifo = commands.collectives[command.index].fifo) {
      // Collectives of an axis keep their order, so this one waits its turn behind those already in flight.
      streams[fifo]->push(item);
      streams[fifo]->drain();
      return;
    }
  if (!everyCommand()) {
    execute(item);
    return;
  }
  WatchedCommand watched{*command.source, std::span(item.iterations).first(item.depth), command.where,
                         command.layerAt(item.iterations, item.depth)};
  RunWatcher *seeing = watcher && watcher->everyCommand() ? watcher : nullptr;
  if (gpu)
    fetch(item, watched);
  if (seeing)
    seeing->before(watched);
  gpu ? executeOnGpu(item) : execute(item);
  if (gpu)
    fetch(item, watched);
  if (seeing)
    seeing->after(watched);
  if (checking && !failed.load(std::memory_order_relaxed))
    if (Status status = memoryCheck->after(watched); !status.ok())
      fail(item, status);
}

void Session::Impl::execute(const StreamItem &item) {
  // Events are completed and waited for even after a failure, so that no thread is left waiting.
  if (item.command->kind == Command::Kind::record) {
    recordEvent(item);
    return;
  }
  int64_t begin = trace ? nowNs() : 0;
  uint64_t sentBefore = trace ? sentOnAxisOf(item) : 0;
  if (item.command->kind == Command::Kind::wait) {
    waitEvent(item);
  } else {
    if (failed.load(std::memory_order_relaxed))
      return;
    if (Status status = perform(item); !status.ok())
      fail(item, status);
  }
  if (trace)
    traced(item, begin, sentBefore);
}

// Bytes that the communicator of a collective has sent so far; of other commands 0.
uint64_t Session::Impl::sentOnAxisOf(const StreamItem &item) const {
  return item.command->kind == Command::Kind::collective
             ? commands.collectives[item.command->index].communicator->sentBytes()
             : 0;
}

void Session::Impl::traced(const StreamItem &item, int64_t begin, uint64_t sentBefore) {
  trace->command({entryName, item.command->name, kindName(item.command->kind), item.command->stream, begin, nowNs(),
                  std::span(item.iterations).first(item.depth), item.command->op,
                  item.command->layerAt(item.iterations, item.depth), item.command->microBatch,
                  sentOnAxisOf(item) - sentBefore});
}

// What a watcher may look at: the bytes that the command reads and writes.
void Session::Impl::fetch(const StreamItem &item, const WatchedCommand &watched) {
  forEachBuffer(*program, watched.command, [&](const schema::Buffer &buffer, const char *, DType) {
    if (failed.load(std::memory_order_relaxed))
      return;
    Status status = gpu->toHost(buffer.arena(), offsetAt(buffer, watched.iterations), buffer.bytes());
    if (!status.ok())
      fail(item, status);
  });
}

// Puts a command on its stream. A trace has the times of commands that were waited for one by one.
void Session::Impl::executeOnGpu(const StreamItem &item) {
  if (failed.load(std::memory_order_relaxed))
    return;
  int64_t begin = trace ? nowNs() : 0;
  uint64_t sentBefore = trace ? sentOnAxisOf(item) : 0;
  Status status = performOnGpu(item);
  if (trace && status.ok())
    status = gpu->synchronize();
  if (!status.ok())
    return fail(item, status);
  if (trace)
    traced(item, begin, sentBefore);
}

Status Session::Impl::launchJoinedOnGpu(const StreamItem &item) {
  const JoinedLaunches &joined = commands.joined[item.command->start];
  BRAID_TRY(gpu->beginJoined(joined.count));
  for (uint32_t i = 0; i < joined.count; ++i) {
    LaunchCommand &launch = commands.launches[joined.first + i];
    moveSlots(launch, item.iterations);
    BRAID_TRY(gpu->launchJoined(i, launch.kernel, launch.slots, launch.programs));
  }
  return gpu->endJoined(joined.count);
}

// The outputs are what the host sees.
Status Session::Impl::finishOnGpu() {
  BRAID_TRY(gpu->end(entryIndex));
  BRAID_TRY(fillNext());
  return gpu->synchronize();
}

Status Session::Impl::performOnGpu(const StreamItem &item) {
  const Iterations &at = item.iterations;
  uint32_t index = item.command->index, stream = item.command->stream;
  switch (item.command->kind) {
  case Command::Kind::launch: {
    LaunchCommand &launch = commands.launches[index];
    moveSlots(launch, at);
    return gpu->launch(stream, launch.kernel, launch.slots, launch.programs);
  }
  case Command::Kind::copy: {
    const CopyCommand &command = commands.copies[index];
    return gpu->copy(stream, command.target.at(at), command.source.at(at), command.target.bytes);
  }
  case Command::Kind::fill: {
    const FillCommand &command = commands.fills[index];
    return gpu->fill(stream, command.target.at(at), command.value, command.target.bytes);
  }
  case Command::Kind::gemm: {
    const GemmCommand &command = commands.gemms[index];
    return gpu->gemm(stream, command.product, command.a.at(at), command.b.at(at), command.c.at(at),
                     command.addend ? command.addend->at(at) : nullptr);
  }
  case Command::Kind::collective: return queueCollective(commands.collectives[index], stream, at);
  case Command::Kind::record: return gpu->record(stream, index);
  case Command::Kind::wait: return gpu->wait(stream, index);
  case Command::Kind::groupedGemm:
  case Command::Kind::repeat: break;
  }
  return Status::error(ErrorCode::internal, "a {} on a GPU", kindName(item.command->kind));
}

// Collectives of an axis keep their order, so one of the compute stream is executed on the axis's.
Status Session::Impl::queueCollective(const CollectiveCommand &collective, uint32_t stream, const Iterations &at) {
  uint32_t queue = stream ? stream : collective.fifo;
  BRAID_TRY(gpu->beginCollective(stream, queue, collectivesInTurn));
  BRAID_TRY(collective.communicator->queueOn(gpu->stream(queue)));
  BRAID_TRY(performCollective(collective, at));
  return gpu->endCollective(stream, queue, collectivesInTurn);
}

Status Session::Impl::perform(const StreamItem &item) {
  const Iterations &at = item.iterations;
  uint32_t index = item.command->index;
  switch (item.command->kind) {
  case Command::Kind::launch:
    if (item.command->joined > 1 && !everyCommand())
      return performJoined(commands.joined[item.command->start], at);
    return performLaunch(commands.launches[index], at);
  case Command::Kind::gemm: {
    const GemmCommand &command = commands.gemms[index];
    return command.gemm.run(*pool, command.a.at(at), command.b.at(at), command.c.at(at),
                            command.addend ? command.addend->at(at) : nullptr);
  }
  case Command::Kind::groupedGemm: {
    GroupedGemmCommand &command = commands.groupedGemms[index];
    return command.gemm.run(*pool, command.a.at(at), command.b.at(at), command.c.at(at),
                            reinterpret_cast<const int32_t *>(command.offsets.at(at)),
                            command.addend ? command.addend->at(at) : nullptr);
  }
  case Command::Kind::collective: return performCollective(commands.collectives[index], at);
  case Command::Kind::copy: {
    const CopyCommand &command = commands.copies[index];
    std::memmove(command.target.at(at), command.source.at(at), command.target.bytes);
    return Status::success();
  }
  case Command::Kind::fill: {
    const FillCommand &command = commands.fills[index];
    std::memset(command.target.at(at), command.value, command.target.bytes);
    return Status::success();
  }
  case Command::Kind::record:
  case Command::Kind::wait:
  case Command::Kind::repeat: break;
  }
  return Status::success();
}

Status Session::Impl::performJoined(const JoinedLaunches &joined, const Iterations &at) {
  for (uint32_t i = 0; i < joined.count; ++i)
    moveSlots(commands.launches[joined.first + i], at);
  pool->parallelFor(0, static_cast<int64_t>(joined.pieces.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t thread = begin; thread < end; ++thread)
      for (const JoinedLaunches::Piece &piece : joined.pieces[static_cast<size_t>(thread)]) {
        LaunchCommand &launch = commands.launches[piece.launch];
        launch.function(launch.slots.data(), piece.begin, piece.end);
      }
  });
  return Status::success();
}

Status Session::Impl::performLaunch(LaunchCommand &launch, const Iterations &at) {
  moveSlots(launch, at);
  pool->parallelFor(0, launch.programs, 1,
                    [&](int64_t begin, int64_t end, int) { launch.function(launch.slots.data(), begin, end); });
  return Status::success();
}

Status Session::Impl::performCollective(const CollectiveCommand &collective, const Iterations &at) {
  Communicator &communicator = *collective.communicator;
  const std::byte *send = collective.send.at(at);
  std::byte *recv = collective.recv.at(at);
  switch (collective.kind) {
  case CollectiveKind::allReduce:
    return communicator.allReduce(send, recv, collective.send.bytes, collective.dtype, collective.name);
  case CollectiveKind::allGather: return communicator.allGather(send, recv, collective.send.bytes, collective.name);
  case CollectiveKind::reduceScatter:
    return communicator.reduceScatter(send, recv, collective.recv.bytes, collective.dtype, collective.name);
  case CollectiveKind::shift:
    return communicator.shift({collective.send.bytes ? send : nullptr, collective.recv.bytes ? recv : nullptr,
                               std::max(collective.send.bytes, collective.recv.bytes), collective.cyclic,
                               collective.reverse, collective.distance},
                              collective.name);
  case CollectiveKind::allToAll: break;
  }
  Communicator::AllToAll args;
  args.send = send;
  args.recv = recv;
  args.blockBytes = collective.blockBytes;
  args.rowBytes = collective.rowBytes;
  if (collective.sendCounts.base) {
    args.sendCounts = reinterpret_cast<const int32_t *>(collective.sendCounts.at(at));
    args.recvCounts = reinterpret_cast<const int32_t *>(collective.recvCounts.at(at));
    args.countsPerPeer = collective.countsPerPeer;
  }
  return communicator.allToAll(args, collective.name);
}

void Session::Impl::recordEvent(const StreamItem &item) {
  {
    std::lock_guard lock(eventMutex);
    events[item.command->index].completed.store(item.ticket, std::memory_order_release);
  }
  eventChanged.notify_all();
}

void Session::Impl::waitEvent(const StreamItem &item) {
  const Event &event = events[item.command->index];
  if (event.completed.load(std::memory_order_acquire) >= item.ticket)
    return;
  std::unique_lock lock(eventMutex);
  eventChanged.wait(lock, [&] { return event.completed.load(std::memory_order_acquire) >= item.ticket; });
}

// Keeps the first error that is not merely an echo of another rank's, and tells the other ranks.
void Session::Impl::fail(const StreamItem &item, const Status &status) {
  Status full = status.withContext(fmt::format("rank {}: {}", options.rank, item.command->where));
  {
    std::lock_guard lock(failureMutex);
    if (failure.ok() || (failure.code() == ErrorCode::aborted && full.code() != ErrorCode::aborted))
      failure = full;
    failed.store(true, std::memory_order_relaxed);
  }
  if (options.worldSize > 1)
    group->abort(full);
}

Status Session::Impl::move(const TensorView &view, Status (CudaDevice::*how)(uint32_t, uint64_t, uint64_t)) {
  if (!gpu)
    return Status::success();
  auto offset = static_cast<uint64_t>(view.data - arenas.base(view.info->arena));
  return (gpu.get()->*how)(view.info->arena, offset, view.bytes).withContext(view.info->name);
}

void Session::Impl::clear(uint32_t arena, uint64_t offset, uint64_t bytes) {
  if (!gpu)
    std::memset(arenas.base(arena) + offset, 0, bytes);
  else if (Status status = gpu->clear(arena, offset, bytes); !status.ok() && gpuFailure.ok())
    gpuFailure = status;
}

Session::Session(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Session::~Session() = default;

Expected<std::unique_ptr<Session>> Session::create(std::shared_ptr<const Program> program, SessionOptions options) try {
  auto impl = std::make_unique<Impl>();
  impl->program = std::move(program);
  impl->options = options;
  BRAID_TRY(impl->create());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
} catch (const std::bad_alloc &) {
  return Status::error(ErrorCode::ioError, "cannot create a session: out of memory");
} catch (const std::exception &error) {
  return Status::error(ErrorCode::internal, "cannot create a session: {}", error.what());
}

const Program &Session::program() const { return *impl->program; }
int Session::rank() const { return impl->options.rank; }
int Session::worldSize() const { return impl->options.worldSize; }
int Session::threads() const { return impl->pool->size(); }
uint64_t Session::arenaBytes() const { return impl->arenas.bytes(); }
bool Session::onGpu() const { return impl->gpu != nullptr; }
ThreadPool &Session::pool() { return *impl->pool; }
void Session::setTrace(TraceSink *sink) { impl->trace = sink; }
void Session::setWatcher(RunWatcher *watcher) { impl->watcher = watcher; }
std::byte *Session::arena(uint32_t index) { return impl->arenas.base(index); }

Expected<EntryId> Session::entry(std::string_view name) const {
  const EntryInfo *info = impl->program->findEntry(name);
  if (!info)
    return Status::error(ErrorCode::notFound, "{}: no entry '{}'", impl->program->path(), name);
  if (!info->kept)
    return Status::error(ErrorCode::internal, "{}: entry '{}' was left out when the program was loaded",
                         impl->program->path(), name);
  return EntryId{static_cast<uint32_t>(info - impl->program->entries().data())};
}

Status Session::run(EntryId entry) {
  if (entry.index >= impl->commands.entries.size())
    return Status::error("entry id {} of {}", entry.index, impl->commands.entries.size());
  return impl->run(entry.index, nullptr);
}

Status Session::run(EntryId entry, const NextInputs &next) {
  if (entry.index >= impl->commands.entries.size())
    return Status::error("entry id {} of {}", entry.index, impl->commands.entries.size());
  return impl->run(entry.index, &next);
}

Status Session::toHost(const TensorView &view) { return impl->move(view, &CudaDevice::toHost); }
Status Session::toDevice(const TensorView &view) { return impl->move(view, &CudaDevice::toDevice); }

Expected<TensorView> Session::tensor(std::string_view name) {
  const TensorInfo *info = impl->program->findTensor(name);
  if (!info)
    return Status::error(ErrorCode::notFound, "{}: no tensor '{}'", impl->program->path(), name);
  return tensor(*info);
}

TensorView Session::tensor(const TensorInfo &info) {
  assert(impl->program->holds(info) && "no entry that is kept needs the tensor");
  return {&info, impl->arenas.base(info.arena) + info.offset, info.bytes};
}

void Session::clear(Role role) {
  for (const TensorInfo &info : impl->program->tensors())
    if (info.role == role && impl->program->holds(info))
      impl->clear(info.arena, info.offset, info.bytes);
}

void Session::clearArena(uint32_t index) { impl->clear(index, 0, impl->program->arenas()[index].bytes); }

} // namespace braid::runtime
