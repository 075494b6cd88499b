// Ranks as threads. Every operation is: publish the arguments, wait for the peers, read from their memory, wait until
// they have read from ours. Only the first wait can fail. Once all ranks passed it, each of them finishes its copying,
// which is bounded work, so no rank returns (and perhaps frees its arenas) while another still reads from it.
#include "runtime/comm/ThreadWorld.h"

#include "runtime/Bf16.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

namespace braid::runtime {
namespace {

enum class Kind { allReduce, allGather, reduceScatter, allToAll };

const char *toString(Kind kind) {
  switch (kind) {
  case Kind::allReduce: return "all_reduce";
  case Kind::allGather: return "all_gather";
  case Kind::reduceScatter: return "reduce_scatter";
  case Kind::allToAll: return "all_to_all";
  }
  return "unknown";
}

// What a rank brings to one operation.
struct Operation {
  Kind kind;
  const char *name;
  const std::byte *send;
  std::byte *recv;
  uint64_t bytes; // all_to_all: of a block
  DType dtype;
  const Communicator::AllToAll *blocks; // all_to_all
};

struct Group;

// Shared by all ranks. `dead` is set once and read under a group's mutex.
struct World {
  MeshInfo mesh;
  int size = 1;
  ThreadWorldOptions options;
  std::atomic<bool> dead{false};
  std::mutex mutex; // guards `reason` and `groups`
  std::string reason;
  std::map<std::vector<uint32_t>, std::map<std::string, std::unique_ptr<Group>, std::less<>>> groups;

  Group &group(const std::string &axis, const std::vector<uint32_t> &members);
  void abort(const std::string &why);
  std::string whyDead() {
    std::lock_guard lock(mutex);
    return reason;
  }
};

// The ranks that share one axis.
struct Group {
  World &world;
  std::string axis;
  std::vector<uint32_t> members; // world ranks by coordinate
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Operation> operations;
  std::vector<char> present;
  size_t arrived = 0;
  uint64_t generation = 0;
  std::string disagreement; // of the operations of the last start, empty when they fit

  Group(World &world, std::string axis, std::vector<uint32_t> members)
      : world(world), axis(std::move(axis)), members(std::move(members)), operations(this->members.size()),
        present(this->members.size()) {}

  Status start(size_t self, const Operation &operation);
  // Waits for all members, who are known to come.
  void meet(size_t self);

private:
  void arrive(size_t self) {
    present[self] = 1;
    if (++arrived == members.size()) {
      std::fill(present.begin(), present.end(), 0);
      arrived = 0;
      ++generation;
      changed.notify_all();
    }
  }

  std::string compare() const {
    for (size_t i = 1; i < members.size(); ++i) {
      const Operation &a = operations[0], &b = operations[i];
      if (a.kind != b.kind || a.bytes != b.bytes || a.dtype != b.dtype)
        return fmt::format("ranks disagree on axis {}: rank {} calls {} '{}' of {} bytes {}, rank {} calls {} '{}' of "
                           "{} bytes {}",
                           axis, members[0], toString(a.kind), a.name, a.bytes, runtime::toString(a.dtype), members[i],
                           toString(b.kind), b.name, b.bytes, runtime::toString(b.dtype));
    }
    return {};
  }
};

Group &World::group(const std::string &axis, const std::vector<uint32_t> &members) {
  std::lock_guard lock(mutex);
  auto &slot = groups[members][axis];
  if (!slot)
    slot = std::make_unique<Group>(*this, axis, members);
  return *slot;
}

void World::abort(const std::string &why) {
  std::vector<Group *> all;
  {
    std::lock_guard lock(mutex);
    if (dead.load())
      return;
    reason = why;
    dead.store(true);
    for (auto &[members, axes] : groups)
      for (auto &[axis, group] : axes)
        all.push_back(group.get());
  }
  for (Group *group : all) {
    {
      std::lock_guard lock(group->mutex);
    } // a rank between its test of `dead` and its sleep holds the mutex
    group->changed.notify_all();
  }
}

Status Group::start(size_t self, const Operation &operation) {
  auto echo = [&] {
    return Status::error(ErrorCode::aborted, "{} '{}' on axis {}: rank {} stopped because {}", toString(operation.kind),
                         operation.name, axis, members[self], world.whyDead());
  };
  std::unique_lock lock(mutex);
  if (world.dead.load()) {
    lock.unlock();
    return echo();
  }
  operations[self] = operation;
  uint64_t mine = generation;
  if (arrived + 1 == members.size())
    disagreement = compare();
  arrive(self);
  auto deadline = std::chrono::steady_clock::now() + world.options.timeout;
  bool inTime = changed.wait_until(lock, deadline, [&] { return generation != mine || world.dead.load(); });
  if (generation != mine) {
    // Everybody came, so everybody reads the same verdict before anyone can start the next operation.
    std::string verdict = disagreement;
    lock.unlock();
    if (verdict.empty())
      return Status::success();
    world.abort(verdict);
    return Status::error(ErrorCode::invalidArgument, "{}", verdict);
  }
  // Withdraw: the operation will not happen.
  present[self] = 0;
  --arrived;
  std::string missing;
  for (size_t i = 0; i < members.size(); ++i)
    if (i != self && !present[i])
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", members[i]);
  lock.unlock();
  if (inTime)
    return echo();
  Status status = Status::error(
      ErrorCode::deadlineExceeded, "{} '{}' on axis {}: rank {} waited {} ms for peer rank {}, which did not come",
      toString(operation.kind), operation.name, axis, members[self], world.options.timeout.count(), missing);
  world.abort(status.message());
  return status;
}

void Group::meet(size_t self) {
  std::unique_lock lock(mutex);
  uint64_t mine = generation;
  arrive(self);
  changed.wait(lock, [&] { return generation != mine; });
}

// ---- Sums in rank order ---------------------------------------------------------------------------------------------

template <class T> T load(const std::byte *from, uint64_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

// recv[i] = sum over ranks of send_r[begin + i], i < count. A block is read from everybody before it is written, so
// recv may be a rank's own send at the same place.
template <class Stored, class Sum, class Widen, class Narrow>
void sumTyped(const std::vector<Operation> &operations, uint64_t begin, uint64_t count, std::byte *recv, Widen widen,
              Narrow narrow) {
  constexpr uint64_t blockLength = 512;
  Sum block[blockLength];
  for (uint64_t first = 0; first < count; first += blockLength) {
    uint64_t length = std::min(blockLength, count - first);
    for (size_t rank = 0; rank < operations.size(); ++rank) {
      const std::byte *from = operations[rank].send + (begin + first) * sizeof(Stored);
      if (rank == 0)
        for (uint64_t i = 0; i < length; ++i)
          block[i] = widen(load<Stored>(from, i));
      else
        for (uint64_t i = 0; i < length; ++i)
          block[i] += widen(load<Stored>(from, i));
    }
    for (uint64_t i = 0; i < length; ++i) {
      Stored value = narrow(block[i]);
      std::memcpy(recv + (first + i) * sizeof(Stored), &value, sizeof(Stored));
    }
  }
}

void sum(const std::vector<Operation> &operations, DType type, uint64_t begin, uint64_t count, std::byte *recv) {
  auto same = [](auto value) { return value; };
  switch (type) {
  case DType::f32: return sumTyped<float, float>(operations, begin, count, recv, same, same);
  case DType::bf16: return sumTyped<uint16_t, float>(operations, begin, count, recv, fromBf16, toBf16);
  case DType::f64: return sumTyped<double, double>(operations, begin, count, recv, same, same);
  // Unsigned: a sum that does not fit wraps, which signed integers may not.
  case DType::i32: return sumTyped<uint32_t, uint32_t>(operations, begin, count, recv, same, same);
  case DType::i64: return sumTyped<uint64_t, uint64_t>(operations, begin, count, recv, same, same);
  case DType::u8: return;
  }
}

void copyBytes(std::byte *to, const std::byte *from, uint64_t bytes) {
  if (to != from && bytes)
    std::memcpy(to, from, bytes);
}

class ThreadCommunicator : public Communicator {
public:
  ThreadCommunicator(Group &group, size_t self) : group(group), self(self) {}

  std::string_view axis() const override { return group.axis; }
  int size() const override { return static_cast<int>(group.members.size()); }
  int rank() const override { return static_cast<int>(self); }

  Status allReduce(const std::byte *send, std::byte *recv, uint64_t bytes, DType type, const char *name) override {
    BRAID_TRY(group.start(self, {Kind::allReduce, name, send, recv, bytes, type, nullptr}));
    // Each rank sums one stripe, then takes the others' stripes from them.
    uint64_t count = bytes / sizeOf(type), peers = group.members.size();
    auto stripe = [&](uint64_t rank) { return count * rank / peers; };
    auto offset = [&](uint64_t rank) { return stripe(rank) * sizeOf(type); };
    sum(group.operations, type, stripe(self), stripe(self + 1) - stripe(self), recv + offset(self));
    group.meet(self);
    for (uint64_t peer = 0; peer < peers; ++peer)
      if (peer != self)
        copyBytes(recv + offset(peer), group.operations[peer].recv + offset(peer), offset(peer + 1) - offset(peer));
    group.meet(self);
    return Status::success();
  }

  Status allGather(const std::byte *send, std::byte *recv, uint64_t bytes, const char *name) override {
    BRAID_TRY(group.start(self, {Kind::allGather, name, send, recv, bytes, DType::u8, nullptr}));
    for (size_t peer = 0; peer < group.members.size(); ++peer)
      copyBytes(recv + peer * bytes, group.operations[peer].send, bytes);
    group.meet(self);
    return Status::success();
  }

  Status reduceScatter(const std::byte *send, std::byte *recv, uint64_t bytes, DType type, const char *name) override {
    BRAID_TRY(group.start(self, {Kind::reduceScatter, name, send, recv, bytes, type, nullptr}));
    uint64_t count = bytes / sizeOf(type);
    sum(group.operations, type, self * count, count, recv);
    group.meet(self);
    return Status::success();
  }

  Status allToAll(const AllToAll &args, const char *name) override {
    BRAID_TRY(group.start(self, {Kind::allToAll, name, args.send, args.recv, args.blockBytes, DType::u8, &args}));
    Status status = Status::success();
    for (size_t peer = 0; peer < group.members.size() && status.ok(); ++peer)
      status = takeBlock(args, peer, name);
    group.meet(self);
    return status;
  }

private:
  Group &group;
  size_t self;

  static int64_t rows(const int32_t *counts, size_t peer, uint32_t countsPerPeer) {
    int64_t total = 0;
    for (uint32_t i = 0; i < countsPerPeer; ++i) {
      int32_t count = counts[peer * countsPerPeer + i];
      if (count < 0)
        return count;
      total += count;
    }
    return total;
  }

  Status takeBlock(const AllToAll &args, size_t peer, const char *name) {
    const AllToAll &theirs = *group.operations[peer].blocks;
    uint64_t bytes = args.blockBytes;
    auto fail = [&](ErrorCode code, const std::string &what) {
      return Status::error(code, "all_to_all '{}' on axis {}: rank {} from peer rank {}: {}", name, group.axis,
                           group.members[self], group.members[peer], what);
    };
    if (!args.recvCounts != !theirs.sendCounts)
      return fail(ErrorCode::invalidArgument, "only one of them has counts");
    if (args.recvCounts) {
      int64_t wanted = rows(args.recvCounts, peer, args.countsPerPeer);
      int64_t sent = rows(theirs.sendCounts, self, theirs.countsPerPeer);
      if (wanted != sent || wanted < 0 || args.rowBytes != theirs.rowBytes)
        return fail(ErrorCode::invalidArgument, fmt::format("expects {} rows of {} bytes but {} rows of {} bytes come",
                                                            wanted, args.rowBytes, sent, theirs.rowBytes));
      bytes = static_cast<uint64_t>(wanted) * args.rowBytes;
      if (args.rowBytes && bytes / args.rowBytes != static_cast<uint64_t>(wanted))
        return fail(ErrorCode::overflow, "the number of bytes overflows");
      if (bytes > args.blockBytes)
        return fail(ErrorCode::overflow, fmt::format("{} rows of {} bytes exceed the block of {} bytes", wanted,
                                                     args.rowBytes, args.blockBytes));
    }
    copyBytes(args.recv + peer * args.blockBytes, theirs.send + self * args.blockBytes, bytes);
    return Status::success();
  }
};

class RankGroup : public CommunicatorGroup {
public:
  RankGroup(World &world, int self) : worldState(world), self(self) {
    std::vector<uint32_t> all(world.size);
    for (int i = 0; i < world.size; ++i)
      all[i] = static_cast<uint32_t>(i);
    everyone = std::make_unique<ThreadCommunicator>(world.group("world", all), self);
  }

  int rank() const override { return self; }
  int worldSize() const override { return worldState.size; }
  Communicator &world() override { return *everyone; }

  Expected<Communicator *> axis(std::string_view name) override {
    if (auto found = axes.find(name); found != axes.end())
      return static_cast<Communicator *>(found->second.get());
    auto members = worldState.mesh.members(static_cast<uint32_t>(self), name);
    if (!members)
      return Status::error(ErrorCode::notFound, "the mesh has no axis '{}'", name);
    uint32_t coordinate = *worldState.mesh.coordinate(static_cast<uint32_t>(self), name);
    auto communicator = std::make_unique<ThreadCommunicator>(worldState.group(std::string(name), *members), coordinate);
    return static_cast<Communicator *>(axes.emplace(std::string(name), std::move(communicator)).first->second.get());
  }

  void abort(const Status &reason) override {
    worldState.abort(fmt::format("rank {} failed: {}", self, reason.message()));
  }

private:
  World &worldState;
  int self;
  std::unique_ptr<ThreadCommunicator> everyone;
  std::map<std::string, std::unique_ptr<ThreadCommunicator>, std::less<>> axes;
};

} // namespace

struct ThreadWorld::Impl {
  World world;
  std::deque<RankGroup> ranks;
};

ThreadWorld::ThreadWorld(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
ThreadWorld::~ThreadWorld() = default;

Expected<std::unique_ptr<ThreadWorld>> ThreadWorld::create(const MeshInfo &mesh, ThreadWorldOptions options) {
  uint32_t size = mesh.worldSize();
  if (size < 1 || size > 4096)
    return Status::error("{} ranks as threads of one process; allowed are 1 to 4096", size);
  auto impl = std::make_unique<Impl>();
  impl->world.mesh = mesh;
  impl->world.size = static_cast<int>(size);
  impl->world.options = options;
  for (uint32_t rank = 0; rank < size; ++rank)
    impl->ranks.emplace_back(impl->world, static_cast<int>(rank));
  return std::unique_ptr<ThreadWorld>(new ThreadWorld(std::move(impl)));
}

int ThreadWorld::size() const { return impl->world.size; }
CommunicatorGroup &ThreadWorld::group(int rank) { return impl->ranks[rank]; }

} // namespace braid::runtime
