#include "runtime/comm/NcclWorld.h"

#include "runtime/comm/Collectives.h"
#include "runtime/comm/NcclApi.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

namespace braid::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// What the communicators of one rank share.
struct Gpu {
  const cuda::Driver *driver = nullptr;
  nccl::Library library;
  NcclOptions options;
  cuda::Device device = 0;
  cuda::Context context = nullptr;
  std::atomic<bool> dead{false}; // a transfer failed: what is under way never ends
  bool hasSeveralAxes = false;   // whose collectives would run side by side
  std::timed_mutex turn;         // held by the collective that uses the GPU, where there are several

  Status open(const NcclOptions &with, int rank) {
    options = with;
    BRAID_ASSIGN(library, nccl::openLibrary(options.library));
    auto opened = cuda::Driver::open();
    if (!opened)
      return opened.status().withContext("GPUs as ranks need a GPU");
    driver = *opened;
    int devices = 0;
    BRAID_TRY(driver->check(driver->cuDeviceGetCount(&devices), "cuDeviceGetCount"));
    if (options.device < 0 || options.device >= devices)
      return Status::error(ErrorCode::unsupported, "rank {} has GPU {}, but this machine has {} (the first is 0)", rank,
                           options.device, devices);
    BRAID_TRY(driver->check(driver->cuDeviceGet(&device, options.device), "cuDeviceGet"));
    return driver->check(driver->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  }

  // Of the thread that calls.
  Status use() const { return driver->check(driver->cuCtxSetCurrent(context), "cuCtxSetCurrent"); }

  ~Gpu() {
    if (context)
      driver->cuDevicePrimaryCtxRelease_v2(device);
  }
};

nccl::Type typeOf(DType type) {
  switch (type) {
  case DType::f32: return nccl::typeF32;
  case DType::bf16: return nccl::typeBf16;
  case DType::f64: return nccl::typeF64;
  case DType::i32: return nccl::typeI32;
  case DType::i64: return nccl::typeI64;
  case DType::u8: return nccl::typeU8;
  case DType::i16: break; // NCCL has none; sums of it are refused when a program is loaded
  }
  return nccl::typeU8;
}

cuda::Address address(const void *pointer) { return reinterpret_cast<cuda::Address>(pointer); }

class NcclCommunicator : public Communicator {
public:
  NcclCommunicator(Gpu &gpu, Communicator &host, CommunicatorGroup &hosts, std::vector<uint32_t> members)
      : gpu(gpu), library(gpu.library), host(host), hosts(hosts), members(std::move(members)) {}

  // The ranks of the axis learn the first one's id; then all of them join.
  Status open() {
    std::vector<nccl::UniqueId> ids(members.size());
    nccl::UniqueId own = {};
    if (rank() == 0)
      BRAID_TRY(library.check("ncclGetUniqueId", library.getUniqueId(&own)));
    BRAID_TRY(host.allGather(reinterpret_cast<const std::byte *>(&own), reinterpret_cast<std::byte *>(ids.data()),
                             sizeof(own), "NCCL's unique id"));
    BRAID_TRY(gpu.use());
    BRAID_TRY(gpu.driver->check(gpu.driver->cuStreamCreate(&stream, cuda::streamNonBlocking), "cuStreamCreate"));
    // Whoever fails up to here does not join, and the others must not wait for it inside NCCL.
    BRAID_TRY(host.meet({CollectiveKind::allGather, "joining NCCL's communicator", sizeof(own), DType::u8}));
    nccl::Config config;
    Status status = begun("ncclCommInitRankConfig", library.commInitRank(&comm, size(), ids[0], rank(), &config));
    if (!status.ok())
      gpu.dead = true;
    return status;
  }

  ~NcclCommunicator() override {
    if (!gpu.use().ok())
      return;
    // Destroying waits for what is under way, which the ranks of a dead group do not go on with.
    if (comm)
      gpu.dead ? library.commAbort(comm) : library.commDestroy(comm);
    if (stream)
      gpu.driver->cuStreamDestroy_v2(stream);
    if (counts)
      gpu.driver->cuMemHostUnregister(counts.get());
  }

  Status queueOn(CUstream_st *to) override {
    queue = to;
    return Status::success();
  }

  // What is on the streams of a session ends, there and on the ranks that take part in it.
  void giveUpQueued() {
    if (queue && comm && gpu.use().ok())
      library.commAbort(std::exchange(comm, nullptr));
  }

  // Of what is on streams of a session.
  Status asyncError() const {
    nccl::Result failed = nccl::success;
    if (!comm || !queue)
      return Status::success();
    BRAID_TRY(library.check("ncclCommGetAsyncError", library.commGetAsyncError(comm, &failed)));
    return failed == nccl::inProgress ? Status::success()
                                      : library.check("NCCL", failed).withContext(fmt::format("axis {}", axis()));
  }

  std::string_view axis() const override { return host.axis(); }
  int size() const override { return host.size(); }
  int rank() const override { return host.rank(); }
  Status meet(const CollectiveCall &call) override { return host.meet(call); }
  // Of sums and gathers what they are at least, which is NCCL's to choose.
  uint64_t sentBytes() const override { return sent; }

  Status allReduce(const std::byte *send, std::byte *recv, uint64_t bytes, DType type, const char *name) override {
    return run({CollectiveKind::allReduce, name, bytes, type}, [&] {
      return begun("ncclAllReduce",
                   library.allReduce(send, recv, bytes / sizeOf(type), typeOf(type), nccl::sum, comm, at()));
    });
  }

  Status allGather(const std::byte *send, std::byte *recv, uint64_t bytes, const char *name) override {
    return run({CollectiveKind::allGather, name, bytes, DType::u8},
               [&] { return begun("ncclAllGather", library.allGather(send, recv, bytes, nccl::typeU8, comm, at())); });
  }

  Status reduceScatter(const std::byte *send, std::byte *recv, uint64_t bytes, DType type, const char *name) override {
    return run({CollectiveKind::reduceScatter, name, bytes, type}, [&] {
      return begun("ncclReduceScatter",
                   library.reduceScatter(send, recv, bytes / sizeOf(type), typeOf(type), nccl::sum, comm, at()));
    });
  }

  Status shift(const Shift &args, const char *name) override {
    CollectiveCall call{CollectiveKind::shift, name, args.bytes, DType::u8, args.cyclic, args.reverse, args.distance};
    int source = args.source(rank(), size()), target = args.target(rank(), size());
    return run(call, [&]() -> Status {
      if (source < 0 && args.recv)
        BRAID_TRY(
            gpu.driver->check(gpu.driver->cuMemsetD8Async(address(args.recv), 0, args.bytes, at()), "cuMemsetD8Async"));
      return together([&]() -> Status {
        if (target >= 0)
          BRAID_TRY(send(args.send, args.bytes, target, args.recv));
        return source >= 0 ? receive(args.recv, args.bytes, source) : Status::success();
      });
    });
  }

  Status allToAll(const AllToAll &args, const char *name) override {
    CollectiveCall call{CollectiveKind::allToAll, name, args.blockBytes, DType::u8};
    return run(call, [&]() -> Status {
      AllToAll counted = args;
      if (args.sendCounts)
        BRAID_TRY(toHost(args, counted));
      std::vector<uint64_t> sendBytes(members.size()), recvBytes(members.size());
      BRAID_TRY(agree(counted, call, sendBytes, recvBytes));
      sent += runtime::sentBytes(counted, rank(), size());
      return together([&]() -> Status {
        for (size_t peer = 0; peer < members.size(); ++peer) {
          std::byte *block = args.recv + peer * args.blockBytes;
          BRAID_TRY(send(args.send + peer * args.blockBytes, sendBytes[peer], static_cast<int>(peer), block));
          BRAID_TRY(receive(block, recvBytes[peer], static_cast<int>(peer)));
        }
        return Status::success();
      });
    });
  }

private:
  Gpu &gpu;
  const nccl::Library &library;
  Communicator &host;
  CommunicatorGroup &hosts;
  std::vector<uint32_t> members; // ranks of the world by coordinate
  nccl::Comm comm = nullptr;
  cuda::Stream stream = nullptr; // of calls that block
  cuda::Stream queue = nullptr;  // of those that do not
  uint64_t sent = 0;
  struct Free {
    void operator()(int32_t *memory) const { std::free(memory); }
  };
  std::unique_ptr<int32_t[], Free> counts; // of an all_to_all: sent, received; pinned pages
  size_t countsKept = 0;

  cuda::Stream at() const { return queue ? queue : stream; }

  // NCCL's kernels hold processors of the GPU while they wait for their peers', so collectives of two axes that are begun
  // in one order here and in another there may wait for each other for ever. One at a time has a GPU, and of a collective
  // the ranks take theirs one after the other, by rank, when all of them have come: whoever waits holds GPUs of lower
  // ranks only, and what two collectives share both use in the same order.
  Status takeTurn(std::unique_lock<std::timed_mutex> &turn, const CollectiveCall &call) {
    std::vector<uint32_t> order = members; // a pair may begin with the higher one
    std::ranges::sort(order);
    for (int next = 0; gpu.hasSeveralAxes && next < size(); ++next) {
      if (next > 0)
        BRAID_TRY(host.meet(call));
      if (order[static_cast<size_t>(next)] != members[static_cast<size_t>(rank())])
        continue;
      do { // who had the GPU may have failed
        BRAID_TRY(hosts.health().withContext(call.on(axis())));
      } while (!turn.try_lock_for(std::chrono::milliseconds(20)));
    }
    return Status::success();
  }

  template <class Begin> Status putOnStream(const CollectiveCall &call, Begin begin) {
    if (!comm)
      return hosts.health().withContext(call.on(axis()));
    BRAID_TRY(gpu.use());
    BRAID_TRY(begin().withContext(call.on(axis())));
    if (call.kind != CollectiveKind::allToAll)
      sent += runtime::sentBytes(call, rank(), size());
    return Status::success();
  }

  // All ranks are known to come; then the transfer is begun and waited for.
  template <class Begin> Status run(const CollectiveCall &call, Begin begin) {
    if (queue)
      return putOnStream(call, begin);
    std::unique_lock turn(gpu.turn, std::defer_lock);
    Status status = host.meet(call);
    if (status.ok())
      status = takeTurn(turn, call);
    if (!status.ok()) {
      gpu.dead = true;
      return status;
    }
    status = gpu.use();
    if (status.ok())
      status = begin();
    if (status.ok())
      status = wait();
    if (status.ok()) {
      if (call.kind != CollectiveKind::allToAll) // whose rows are counted where they are known
        sent += runtime::sentBytes(call, rank(), size());
      return status;
    }
    gpu.dead = true;
    std::string place = call.on(axis());
    if (status.code() == ErrorCode::aborted) // another rank has told everybody
      return status.message().starts_with(place) ? status : status.withContext(place);
    if (!status.message().starts_with(place))
      status = status.withContext(fmt::format("{}: rank {}", place, members[static_cast<size_t>(rank())]));
    hosts.abort(status);
    return status;
  }

  // A call that NCCL goes on with by itself.
  Status begun(const char *call, nccl::Result code) {
    auto deadline = Clock::now() + gpu.options.timeout;
    int polls = 0;
    while (code == nccl::inProgress) {
      BRAID_TRY(library.check("ncclCommGetAsyncError", library.commGetAsyncError(comm, &code)));
      if (code == nccl::inProgress && Clock::now() > deadline)
        return Status::error(ErrorCode::deadlineExceeded, "{} was not done after {} ms", call,
                             gpu.options.timeout.count());
      BRAID_TRY(pause(polls++));
    }
    return library.check(call, code);
  }

  // Until the stream is empty.
  Status wait() {
    auto alive = [&]() -> Status {
      nccl::Result failed = nccl::success;
      BRAID_TRY(library.check("ncclCommGetAsyncError", library.commGetAsyncError(comm, &failed)));
      if (failed != nccl::inProgress)
        BRAID_TRY(library.check("NCCL", failed));
      return hosts.health();
    };
    BRAID_ASSIGN(bool done, gpu.driver->waitFor(at(), gpu.options.timeout, alive));
    return done ? Status::success()
                : Status::error(ErrorCode::deadlineExceeded, "waited {} ms for ranks {}{}", gpu.options.timeout.count(),
                                fmt::join(members, ", "), queue ? "" : ", all of which had come");
  }

  // Between two looks at what is under way: a rank that failed after the meeting ends it for all.
  Status pause(int polls) {
    if (polls < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    return polls % 16 == 15 ? hosts.health() : Status::success();
  }

  template <class Begin> Status together(Begin begin) {
    BRAID_TRY(library.check("ncclGroupStart", library.groupStart()));
    Status status = begin();
    Status ended = begun("ncclGroupEnd", library.groupEnd());
    return status.ok() ? ended : status;
  }

  // Within a group, whose end begins it. `own`: where this rank's bytes go when it is the peer; it receives nothing then.
  Status send(const std::byte *from, uint64_t bytes, int peer, std::byte *own) {
    if (!bytes)
      return Status::success();
    if (peer == rank())
      return gpu.driver->check(gpu.driver->cuMemcpyDtoDAsync_v2(address(own), address(from), bytes, at()),
                               "cuMemcpyDtoDAsync");
    return queued("ncclSend", library.send(from, bytes, nccl::typeU8, peer, comm, at()));
  }
  Status receive(std::byte *to, uint64_t bytes, int peer) {
    if (!bytes || peer == rank())
      return Status::success();
    return queued("ncclRecv", library.recv(to, bytes, nccl::typeU8, peer, comm, at()));
  }
  Status queued(const char *call, nccl::Result code) const {
    return code == nccl::inProgress ? Status::success() : library.check(call, code);
  }

  // Memory of the host for the counts of the call; the first time that so many come it is made.
  Status keepCounts(size_t wanted) {
    constexpr size_t page = 4096;
    if (wanted <= countsKept)
      return Status::success();
    if (counts)
      BRAID_TRY(gpu.driver->check(gpu.driver->cuMemHostUnregister(counts.get()), "cuMemHostUnregister"));
    size_t bytes = (wanted * sizeof(int32_t) + page - 1) / page * page;
    counts.reset(static_cast<int32_t *>(std::aligned_alloc(page, bytes)));
    countsKept = counts ? bytes / sizeof(int32_t) : 0;
    if (!counts)
      return Status::error("no memory for {} bytes of counts of an all_to_all", bytes);
    return gpu.driver->check(gpu.driver->cuMemHostRegister_v2(counts.get(), bytes, 0), "cuMemHostRegister");
  }

  Status toHost(const AllToAll &args, AllToAll &counted) {
    size_t each = members.size() * args.countsPerPeer;
    BRAID_TRY(keepCounts(2 * each));
    counted.sendCounts = counts.get();
    counted.recvCounts = counts.get() + each;
    for (auto [from, to] : {std::pair(args.sendCounts, counts.get()), {args.recvCounts, counts.get() + each}})
      BRAID_TRY(gpu.driver->check(gpu.driver->cuMemcpyDtoHAsync_v2(to, address(from), each * sizeof(int32_t), at()),
                                  "cuMemcpyDtoHAsync"));
    return wait();
  }

  // Bytes for and from every peer, when what each expects is what the other sends.
  Status agree(const AllToAll &args, const CollectiveCall &call, std::vector<uint64_t> &sendBytes,
               std::vector<uint64_t> &recvBytes) {
    std::vector<BlockRows> sent(members.size()), come(members.size());
    for (size_t peer = 0; peer < members.size(); ++peer) {
      sent[peer] = rowsToSend(args, static_cast<int>(peer));
      come[peer] = rowsToReceive(args, static_cast<int>(peer)); // on a stream: as the program has told the peer
    }
    AllToAll rows;
    rows.send = reinterpret_cast<const std::byte *>(sent.data());
    rows.recv = reinterpret_cast<std::byte *>(come.data());
    rows.blockBytes = sizeof(BlockRows);
    if (!queue)
      BRAID_TRY(host.allToAll(rows, call.name));
    for (size_t peer = 0; peer < members.size(); ++peer) {
      auto expected = bytesToReceive(rowsToReceive(args, static_cast<int>(peer)), come[peer], args.blockBytes);
      if (!expected)
        return expected.status().withContext(fmt::format("{}: rank {} from peer rank {}", call.on(axis()),
                                                         members[static_cast<size_t>(rank())], members[peer]));
      recvBytes[peer] = *expected;
      auto own = bytesToReceive(sent[peer], sent[peer], args.blockBytes);
      if (!own && queue)
        return own.status().withContext(call.on(axis()));
      sendBytes[peer] = own ? *own : 0; // the peer says what is wrong
    }
    // What another rank found wrong ends the call here, too.
    return queue ? Status::success() : host.meet(call);
  }
};

class NcclGroup : public CommunicatorGroup {
public:
  NcclGroup(const MeshInfo &mesh, CommunicatorGroup &host) : mesh(mesh), host(host) {
    int axes = 0;
    for (const std::vector<AxisInfo> &view : {mesh.dense, mesh.expert})
      axes += static_cast<int>(std::ranges::count_if(view, [](const AxisInfo &axis) { return axis.size > 1; }));
    gpu.hasSeveralAxes = axes > 1 || mesh.size(stageAxis).value_or(1) > 1; // which has pairs
  }

  Gpu gpu;

  int rank() const override { return host.rank(); }
  int worldSize() const override { return host.worldSize(); }
  Status health() override {
    BRAID_TRY(host.health());
    for (const auto &[name, communicator] : axes)
      BRAID_TRY(communicator->asyncError());
    return Status::success();
  }
  Communicator &world() override { return host.world(); }

  void abort(const Status &reason) override {
    gpu.dead = true;
    host.abort(reason);
    for (auto &[name, communicator] : axes)
      communicator->giveUpQueued();
  }

  Expected<Communicator *> axis(std::string_view name) override {
    if (auto found = axes.find(name); found != axes.end())
      return static_cast<Communicator *>(found->second.get());
    BRAID_ASSIGN(Communicator * hosts, host.axis(name));
    BRAID_ASSIGN(std::optional<AxisMembers> members, membersOf(mesh, host.rank(), name));
    if (!members)
      return static_cast<Communicator *>(nullptr);
    auto communicator = std::make_unique<NcclCommunicator>(gpu, *hosts, host, std::move(members->ranks));
    Status status = communicator->open().withContext(fmt::format("axis {}", name));
    if (!status.ok()) {
      abort(status); // the others wait for this rank
      return status;
    }
    return static_cast<Communicator *>(axes.emplace(std::string(name), std::move(communicator)).first->second.get());
  }

private:
  MeshInfo mesh;
  CommunicatorGroup &host;
  std::map<std::string, std::unique_ptr<NcclCommunicator>, std::less<>> axes;
};

} // namespace

Expected<std::unique_ptr<CommunicatorGroup>> connectNccl(const MeshInfo &mesh, CommunicatorGroup &host,
                                                         const NcclOptions &options) {
  auto group = std::make_unique<NcclGroup>(mesh, host);
  BRAID_TRY(group->gpu.open(options, host.rank()));
  return std::unique_ptr<CommunicatorGroup>(std::move(group));
}

} // namespace braid::runtime
