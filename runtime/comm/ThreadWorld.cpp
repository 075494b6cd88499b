// Ranks as threads. Every operation is: publish the arguments, wait for the peers, read from their memory, wait until
// they have read from ours. Only the first wait can fail. Once all ranks passed it, each of them finishes its copying,
// which is bounded work, so no rank returns (and perhaps frees its arenas) while another still reads from it.
#include "runtime/comm/ThreadWorld.h"

#include "runtime/comm/Collectives.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

namespace braid::runtime {
namespace {

// What a rank brings to one operation.
struct Operation {
  CollectiveCall call;
  const std::byte *send = nullptr;
  std::byte *recv = nullptr;
  const Communicator::AllToAll *blocks = nullptr; // all_to_all
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
    std::string verdict;
    for (size_t i = 1; i < members.size() && verdict.empty(); ++i)
      verdict = runtime::disagreement(axis, members[0], operations[0].call, members[i], operations[i].call);
    return verdict;
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
    return Status::error(ErrorCode::aborted, "{}: rank {} stopped because {}", operation.call.on(axis), members[self],
                         world.whyDead());
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
  // Withdraw: the operation will not happen. Those whose time ends in the same moment still see that this rank had
  // come.
  --arrived;
  std::string missing;
  for (size_t i = 0; i < members.size(); ++i)
    if (i != self && !present[i])
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", members[i]);
  lock.unlock();
  if (inTime)
    return echo();
  Status status =
      Status::error(ErrorCode::deadlineExceeded, "{}: rank {} waited {} ms for peer rank {}, which did not come",
                    operation.call.on(axis), members[self], world.options.timeout.count(), missing);
  world.abort(status.message());
  return status;
}

void Group::meet(size_t self) {
  std::unique_lock lock(mutex);
  uint64_t mine = generation;
  arrive(self);
  changed.wait(lock, [&] { return generation != mine; });
}

void copyBytes(std::byte *to, const std::byte *from, uint64_t bytes) {
  if (to != from && bytes)
    std::memcpy(to, from, bytes);
}

class ThreadCommunicator : public Communicator {
public:
  ThreadCommunicator(Group &group, size_t self) : group(group), self(self), parts(group.members.size()) {}

  std::string_view axis() const override { return group.axis; }
  int size() const override { return static_cast<int>(group.members.size()); }
  int rank() const override { return static_cast<int>(self); }
  // What others copy from this rank, as if each copied what it were sent.
  uint64_t sentBytes() const override { return sent; }

  Status allReduce(const std::byte *send, std::byte *recv, uint64_t bytes, DType type, const char *name) override {
    BRAID_TRY(start({{CollectiveKind::allReduce, name, bytes, type}, send, recv}));
    // Each rank sums one stripe, then takes the others' stripes from them.
    Stripe own = stripeOf(bytes, type, rank(), size());
    sum(type, own.offset, own.bytes / sizeOf(type), recv + own.offset);
    group.meet(self);
    for (int peer = 0; peer < size(); ++peer)
      if (Stripe theirs = stripeOf(bytes, type, peer, size()); peer != rank())
        copyBytes(recv + theirs.offset, group.operations[static_cast<size_t>(peer)].recv + theirs.offset, theirs.bytes);
    group.meet(self);
    return Status::success();
  }

  Status allGather(const std::byte *send, std::byte *recv, uint64_t bytes, const char *name) override {
    BRAID_TRY(start({{CollectiveKind::allGather, name, bytes, DType::u8}, send, recv}));
    for (size_t peer = 0; peer < group.members.size(); ++peer)
      copyBytes(recv + peer * bytes, group.operations[peer].send, bytes);
    group.meet(self);
    return Status::success();
  }

  Status reduceScatter(const std::byte *send, std::byte *recv, uint64_t bytes, DType type, const char *name) override {
    BRAID_TRY(start({{CollectiveKind::reduceScatter, name, bytes, type}, send, recv}));
    sum(type, self * bytes, bytes / sizeOf(type), recv);
    group.meet(self);
    return Status::success();
  }

  Status shift(const Shift &args, const char *name) override {
    CollectiveCall call{CollectiveKind::shift, name, args.bytes, DType::u8, args.cyclic, args.reverse, args.distance};
    BRAID_TRY(start({call, args.send, args.recv}));
    int source = args.source(rank(), size());
    if (source >= 0)
      copyBytes(args.recv, group.operations[static_cast<size_t>(source)].send, args.bytes);
    else if (args.recv)
      std::memset(args.recv, 0, args.bytes);
    group.meet(self);
    return Status::success();
  }

  Status allToAll(const AllToAll &args, const char *name) override {
    CollectiveCall call{CollectiveKind::allToAll, name, args.blockBytes, DType::u8};
    BRAID_TRY(start({call, args.send, args.recv, &args}));
    Status status = Status::success();
    for (size_t peer = 0; peer < group.members.size() && status.ok(); ++peer)
      status = takeBlock(args, peer, call);
    group.meet(self);
    return status;
  }

  Status meet(const CollectiveCall &call) override { return group.start(self, {call}); }

private:
  Group &group;
  size_t self;

  std::vector<const std::byte *> parts; // of the sum under way
  uint64_t sent = 0;

  Status start(const Operation &operation) {
    BRAID_TRY(group.start(self, operation));
    sent += operation.blocks ? runtime::sentBytes(*operation.blocks, rank(), size())
                             : runtime::sentBytes(operation.call, rank(), size());
    return Status::success();
  }

  // recv = sum over the ranks of what they send from `offset` on.
  void sum(DType type, uint64_t offset, uint64_t count, std::byte *recv) {
    for (size_t rank = 0; rank < parts.size(); ++rank)
      parts[rank] = group.operations[rank].send + offset;
    sumInOrder(parts, type, count, recv);
  }

  Status takeBlock(const AllToAll &args, size_t peer, const CollectiveCall &call) {
    const AllToAll &theirs = *group.operations[peer].blocks;
    auto bytes =
        bytesToReceive(rowsToReceive(args, static_cast<int>(peer)), rowsToSend(theirs, rank()), args.blockBytes);
    if (!bytes)
      return bytes.status().withContext(
          fmt::format("{}: rank {} from peer rank {}", call.on(group.axis), group.members[self], group.members[peer]));
    copyBytes(args.recv + peer * args.blockBytes, theirs.send + self * args.blockBytes, *bytes);
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
    BRAID_ASSIGN(std::optional<AxisMembers> members, membersOf(worldState.mesh, self, name));
    if (!members)
      return static_cast<Communicator *>(nullptr);
    auto communicator =
        std::make_unique<ThreadCommunicator>(worldState.group(std::string(name), members->ranks), members->self);
    return static_cast<Communicator *>(axes.emplace(std::string(name), std::move(communicator)).first->second.get());
  }

  Status health() override {
    if (!worldState.dead.load())
      return Status::success();
    return Status::error(ErrorCode::aborted, "rank {} stopped because {}", self, worldState.whyDead());
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
