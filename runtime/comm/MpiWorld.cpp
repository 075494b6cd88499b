// Ranks as MPI processes. Every pair of ranks that exchanges something in a collective first tells each other what it
// calls (a header), so that ranks that disagree are named and do not wait. Messages of an axis have a tag of their own;
// MPI keeps the order of messages with one tag between two ranks, and the order of collectives of an axis is the same
// on all of them, so nothing can be mistaken for something else.
#include "runtime/comm/MpiWorld.h"

#include "runtime/comm/Collectives.h"
#include "runtime/comm/MpiArrivals.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sched.h>
#include <thread>

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

namespace braid::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Status mpiError(const char *call, int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Status::error(ErrorCode::ioError, "{}: {}", call, text);
}

#define BRAID_MPI(call, ...)                                                                                           \
  do {                                                                                                                 \
    if (int code = call(__VA_ARGS__); code != MPI_SUCCESS)                                                             \
      return mpiError(#call, code);                                                                                    \
  } while (false)

// What a rank tells a peer before anything else of a collective; all ranks run the same program.
struct Header {
  CollectiveCall call;
  BlockRows rows;
  char name[CollectiveCall::comparedName + 1]; // where call.name points, once it has come
};
static_assert(std::is_trivially_copyable_v<Header>);

// The last word of a rank that cannot go on.
struct Farewell {
  char text[1016];
};

constexpr int farewellTag = 1;

// Calls of the MPI library of one group: one at a time, whichever thread makes them.
struct Engine {
  MPI_Comm data = MPI_COMM_NULL, control = MPI_COMM_NULL;
  MpiOptions options;
  int rank = 0, size = 1;
  std::mutex mutex; // of everything below, and around every call of MPI
  bool dead = false;
  std::string reason;
  Farewell heard{}, said{};
  MPI_Request hearing = MPI_REQUEST_NULL;
  std::vector<MPI_Request> saying;

  Status open(const MpiOptions &with) {
    options = with;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (MPI_Comm *comm : {&data, &control}) {
      MPI_Request request;
      BRAID_MPI(MPI_Comm_idup, MPI_COMM_WORLD, comm, &request);
      auto deadline = Clock::now() + options.timeout;
      for (int done = 0; !done; std::this_thread::sleep_for(milliseconds(1))) {
        BRAID_MPI(MPI_Test, &request, &done, MPI_STATUS_IGNORE);
        if (!done && Clock::now() > deadline)
          return Status::error(ErrorCode::deadlineExceeded,
                               "rank {} waited {} ms for the other {} to begin; not all of them came", rank,
                               options.timeout.count(), size - 1);
      }
      MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    }
    BRAID_MPI(MPI_Irecv, &heard, sizeof(heard), MPI_BYTE, MPI_ANY_SOURCE, farewellTag, control, &hearing);
    return Status::success();
  }

  // With the mutex: whether a peer has said farewell, or this rank has.
  bool listen() {
    if (dead || hearing == MPI_REQUEST_NULL)
      return dead;
    int done = 0;
    MPI_Test(&hearing, &done, MPI_STATUS_IGNORE);
    if (done) {
      dead = true;
      heard.text[sizeof(heard.text) - 1] = '\0';
      reason = heard.text;
    }
    return dead;
  }

  void abort(const std::string &why) {
    std::lock_guard lock(mutex);
    if (listen())
      return;
    dead = true;
    reason = why;
    why.copy(said.text, sizeof(said.text) - 1);
    for (int peer = 0; peer < size; ++peer)
      if (peer != rank)
        MPI_Isend(&said, sizeof(said), MPI_BYTE, peer, farewellTag, control, &saying.emplace_back());
    // Short messages leave at once, if there is somebody to take them.
    auto deadline = Clock::now() + milliseconds(500);
    for (int done = 0; !done && Clock::now() < deadline; std::this_thread::sleep_for(milliseconds(1)))
      if (MPI_Testall(static_cast<int>(saying.size()), saying.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
        break;
  }

  ~Engine() {
    std::lock_guard lock(mutex);
    if (hearing != MPI_REQUEST_NULL) {
      MPI_Cancel(&hearing);
      MPI_Request_free(&hearing);
    }
    // A group that died may have messages under way, which its communicators must outlive.
    if (!dead)
      for (MPI_Comm *comm : {&data, &control})
        if (*comm != MPI_COMM_NULL)
          MPI_Comm_free(comm);
  }
};

class MpiCommunicator : public Communicator {
public:
  // `number` is the same on all ranks of the axis, and another for every axis of a rank.
  MpiCommunicator(Engine &engine, std::string axis, std::vector<uint32_t> members, int self, int number)
      : engine(engine), axisName(std::move(axis)), members(std::move(members)), self(self), headerTag(2 * number),
        dataTag(2 * number + 1), outgoing(this->members.size()), incoming(this->members.size()),
        queues(3 * this->members.size()), parts(this->members.size()) {}

  std::string_view axis() const override { return axisName; }
  int size() const override { return static_cast<int>(members.size()); }
  int rank() const override { return self; }
  uint64_t sentBytes() const override { return sent; }

  Status allReduce(const std::byte *send, std::byte *recv, uint64_t bytes, DType type, const char *name) override {
    return run({CollectiveKind::allReduce, name, bytes, type}, [&] { return reduceToAll(send, recv, bytes, type); });
  }

  Status allGather(const std::byte *send, std::byte *recv, uint64_t bytes, const char *name) override {
    return run({CollectiveKind::allGather, name, bytes, DType::u8}, [&]() -> Status {
      if (recv + self * bytes != send && bytes)
        std::memcpy(recv + self * bytes, send, bytes);
      for (int peer = 0; peer < size(); ++peer)
        if (peer != self)
          BRAID_TRY(exchange(peer, send, bytes, recv + peer * bytes, bytes));
      return wait();
    });
  }

  Status reduceScatter(const std::byte *send, std::byte *recv, uint64_t bytes, DType type, const char *name) override {
    return run({CollectiveKind::reduceScatter, name, bytes, type}, [&]() -> Status {
      return sumStripes(send, recv, type, [=](int rank) { return Stripe{rank * bytes, bytes}; });
    });
  }

  Status shift(const Shift &args, const char *name) override {
    call = {CollectiveKind::shift, name, args.bytes, DType::u8, args.cyclic, args.reverse, args.distance};
    int source = args.source(self, size()), target = args.target(self, size());
    BRAID_TRY(begin());
    if (source == self && args.bytes)
      std::memcpy(args.recv, args.send, args.bytes);
    else if (source < 0 && args.recv)
      std::memset(args.recv, 0, args.bytes);
    auto work = [&]() -> Status {
      std::unique_lock lock(engine.mutex);
      if (source >= 0 && source != self) {
        BRAID_TRY(receiveHeader(source));
        BRAID_TRY(receive(source, args.recv, args.bytes));
      }
      if (target >= 0 && target != self) {
        BRAID_TRY(sendHeader(target, {}));
        BRAID_TRY(send(target, args.send, args.bytes));
      }
      lock.unlock();
      return wait();
    };
    return end(work());
  }

  Status allToAll(const AllToAll &args, const char *name) override {
    blocks = &args;
    Status status = run({CollectiveKind::allToAll, name, args.blockBytes, DType::u8}, [&]() -> Status {
      // A peer may send other rows than are expected here; its header says so, and nothing else is received then.
      for (int peer = 0; peer < size(); ++peer) {
        BlockRows sent = rowsToSend(args, peer), expected = rowsToReceive(args, peer);
        auto sendBytes = bytesToReceive(sent, sent, args.blockBytes),
             recvBytes = bytesToReceive(expected, expected, args.blockBytes);
        if (peer == self) {
          auto bytes = bytesToReceive(expected, sent, args.blockBytes);
          if (!bytes)
            return fromPeer(peer, bytes.status());
          if (*bytes)
            std::memcpy(args.recv + peer * args.blockBytes, args.send + peer * args.blockBytes, *bytes);
        } else if (sendBytes && recvBytes) {
          BRAID_TRY(exchange(peer, args.send + peer * args.blockBytes, *sendBytes, args.recv + peer * args.blockBytes,
                             *recvBytes));
        }
      }
      BRAID_TRY(wait());
      // Every peer has said what it sends; counts that no block can hold were not exchanged at all.
      for (int peer = 0; peer < size(); ++peer)
        for (const BlockRows &rows : {rowsToSend(args, peer), rowsToReceive(args, peer)})
          if (auto bytes = bytesToReceive(rows, rows, args.blockBytes); !bytes)
            return fromPeer(peer, bytes.status());
      return Status::success();
    });
    blocks = nullptr;
    return status;
  }

  Status meet(const CollectiveCall &with) override {
    return run(with, [&] { return wait(); });
  }

private:
  // Messages with one peer; one kind of them comes or leaves in order.
  enum class Kind : uint8_t { header, incoming, outgoing };
  struct Queue {
    std::vector<MPI_Request> requests;
    size_t done = 0, goal = 0; // of them; how many are waited for
  };

  Engine &engine;
  std::string axisName;
  std::vector<uint32_t> members; // ranks of the world by coordinate
  int self, headerTag, dataTag;

  // Of the collective under way.
  CollectiveCall call{};
  const AllToAll *blocks = nullptr;
  std::vector<Header> outgoing, incoming;
  std::vector<Queue> queues; // by peer (coordinate) and kind
  std::vector<MPI_Request> heads; // of the queues that are waited for
  std::vector<size_t> headOf; // which queue
  std::vector<int> arrived; // places in `heads`
  std::vector<MPI_Status> statuses;
  std::vector<std::byte> scratch; // what is summed here; as large as the largest sum so far needed
  std::vector<const std::byte *> parts;
  uint64_t sent = 0; // bytes of data, in all
  MpiArrivals arrivals;

  // ---- Frame of a collective ----------------------------------------------------------------------------------------

  Status echo() const {
    return Status::error(ErrorCode::aborted, "{}: rank {} stopped because {}", call.on(axisName), members[self],
                         engine.reason);
  }

  Status fromPeer(int peer, const Status &status) const {
    return status.withContext(
        fmt::format("{}: rank {} from peer rank {}", call.on(axisName), members[self], members[peer]));
  }

  Status begin() {
    std::lock_guard lock(engine.mutex);
    return engine.listen() ? echo() : Status::success();
  }

  // Opens with a header to and from every peer.
  template <class Work> Status run(const CollectiveCall &with, Work work) {
    call = with;
    BRAID_TRY(begin());
    Status opened = open();
    return end(opened.ok() ? work() : opened);
  }

  Status open() {
    std::lock_guard lock(engine.mutex);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != self) {
        BRAID_TRY(receiveHeader(peer));
        BRAID_TRY(sendHeader(peer, blocks ? rowsToSend(*blocks, peer) : BlockRows()));
      }
    return Status::success();
  }

  // After an error the group is dead, and what is under way is given up.
  Status end(Status status) {
    if (status.ok())
      return status;
    if (status.code() != ErrorCode::aborted)
      engine.abort(status.message());
    std::lock_guard lock(engine.mutex);
    for (size_t i = 0; i < queues.size(); ++i) {
      Queue &queue = queues[i];
      for (size_t at = queue.done; at < queue.requests.size(); ++at) {
        if (kindOf(i) != Kind::outgoing)
          MPI_Cancel(&queue.requests[at]);
        MPI_Request_free(&queue.requests[at]);
      }
      queue = Queue();
    }
    return status;
  }

  // ---- Messages; with the engine's mutex ----------------------------------------------------------------------------

  Queue &queueOf(int peer, Kind kind) { return queues[3 * static_cast<size_t>(peer) + static_cast<size_t>(kind)]; }
  static int peerOf(size_t queue) { return static_cast<int>(queue / 3); }
  static Kind kindOf(size_t queue) { return static_cast<Kind>(queue % 3); }

  Status receiveHeader(int peer) {
    MPI_Request request;
    BRAID_MPI(MPI_Irecv, &incoming[peer], sizeof(Header), MPI_BYTE, static_cast<int>(members[peer]), headerTag,
              engine.data, &request);
    queueOf(peer, Kind::header).requests.push_back(request);
    return Status::success();
  }

  Status sendHeader(int peer, const BlockRows &rows) {
    Header &header = outgoing[peer];
    header = {call, rows, {}};
    std::string_view(call.name).copy(header.name, sizeof(header.name) - 1);
    MPI_Request request;
    BRAID_MPI(MPI_Isend, &header, sizeof(Header), MPI_BYTE, static_cast<int>(members[peer]), headerTag, engine.data,
              &request);
    queueOf(peer, Kind::outgoing).requests.push_back(request);
    return Status::success();
  }

  // Both sides of a message know its length, so they cut it alike.
  uint64_t partOf(uint64_t bytes) const {
    constexpr uint64_t mostParts = 256;
    return std::max(engine.options.messageBytes, (bytes + mostParts - 1) / mostParts);
  }

  Status send(int peer, const std::byte *from, uint64_t bytes) {
    sent += bytes;
    for (uint64_t at = 0, part = partOf(bytes); at < bytes; at += part) {
      MPI_Request request;
      BRAID_MPI(MPI_Isend, from + at, static_cast<int>(std::min(bytes - at, part)), MPI_BYTE,
                static_cast<int>(members[peer]), dataTag, engine.data, &request);
      queueOf(peer, Kind::outgoing).requests.push_back(request);
    }
    return Status::success();
  }

  Status receive(int peer, std::byte *to, uint64_t bytes) {
    for (uint64_t at = 0, part = partOf(bytes); at < bytes; at += part) {
      MPI_Request request;
      BRAID_MPI(MPI_Irecv, to + at, static_cast<int>(std::min(bytes - at, part)), MPI_BYTE,
                static_cast<int>(members[peer]), dataTag, engine.data, &request);
      queueOf(peer, Kind::incoming).requests.push_back(request);
    }
    return Status::success();
  }

  Status exchange(int peer, const std::byte *from, uint64_t sendBytes, std::byte *to, uint64_t recvBytes) {
    std::lock_guard lock(engine.mutex);
    BRAID_TRY(receive(peer, to, recvBytes));
    return send(peer, from, sendBytes);
  }

  // A header has come: whether the peer calls the same.
  Status checkHeader(int peer) {
    Header &header = incoming[peer];
    header.name[sizeof(header.name) - 1] = '\0';
    header.call.name = header.name;
    uint32_t me = members[self], they = members[peer];
    const CollectiveCall &theirs = header.call;
    std::string verdict =
        me < they ? disagreement(axisName, me, call, they, theirs) : disagreement(axisName, they, theirs, me, call);
    if (!verdict.empty())
      return Status::error("{}", verdict);
    if (!blocks)
      return Status::success();
    return fromPeer(peer, bytesToReceive(rowsToReceive(*blocks, peer), header.rows, blocks->blockBytes).status());
  }

  // ---- Progress -----------------------------------------------------------------------------------------------------

  // What has been begun so far is what waitForGoal() waits for.
  void setGoal() {
    for (Queue &queue : queues)
      queue.goal = queue.requests.size();
  }

  Status wait() {
    setGoal();
    return waitForGoal();
  }

  // The time runs anew with everything that is done.
  Status waitForGoal() {
    constexpr int mostQuestions = 2; // in a row without an answer
    auto last = Clock::now();
    for (arrivals.begin();;) {
      size_t open = 0;
      bool progress = false;
      {
        std::lock_guard lock(engine.mutex);
        bool dead = engine.listen();
        // MPI_Testsome looks, goes on, and does not look again: what it has just taken from a socket, which will not
        // announce it any more, is known to the next question only.
        for (int asked = 0; asked < mostQuestions; ++asked) {
          BRAID_ASSIGN(open, askForHeads());
          if (open == 0)
            return Status::success();
          if (!arrived.empty()) {
            progress = true;
            asked = -1;
          }
        }
        if (dead)
          return echo();
      }
      auto now = Clock::now();
      if (progress)
        last = now;
      else if (now - last > engine.options.timeout)
        return lost();
      arrivals.pause(progress);
    }
  }

  // With the mutex. How many queues are not at their goal; `arrived`: whose first message was done.
  Expected<size_t> askForHeads() {
    heads.clear();
    headOf.clear();
    arrived.clear();
    for (size_t i = 0; i < queues.size(); ++i) {
      Queue &queue = queues[i];
      if (queue.done < queue.goal) {
        heads.push_back(queue.requests[queue.done]);
        headOf.push_back(i);
      } else if (queue.done == queue.requests.size()) {
        queue.requests.clear();
        queue.done = queue.goal = 0;
      }
    }
    if (heads.empty())
      return 0;
    int count = 0;
    arrived.resize(heads.size());
    statuses.resize(heads.size());
    // Asks the library to go on only once for all of them.
    int code = MPI_Testsome(static_cast<int>(heads.size()), heads.data(), &count, arrived.data(), statuses.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
      return mpiError("MPI_Testsome", code);
    arrived.resize(static_cast<size_t>(count));
    for (int head : arrived)
      ++queues[headOf[static_cast<size_t>(head)]].done;
    for (size_t i = 0; i < arrived.size(); ++i) {
      size_t which = headOf[static_cast<size_t>(arrived[i])];
      if (code == MPI_ERR_IN_STATUS && statuses[i].MPI_ERROR != MPI_SUCCESS)
        return failedTransfer(peerOf(which), statuses[i].MPI_ERROR);
      if (kindOf(which) == Kind::header)
        BRAID_TRY(checkHeader(peerOf(which)));
    }
    return heads.size();
  }

  // With the mutex. What came does not fit what was expected: the peer's header, which was sent before, says why.
  Status failedTransfer(int peer, int code) {
    Status status = fromPeer(peer, mpiError("MPI_Testsome", code));
    Queue &headers = queueOf(peer, Kind::header);
    for (int polls = 0, done = 0; polls < 1000 && headers.done < headers.requests.size(); ++polls) {
      if (MPI_Test(&headers.requests[headers.done], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done) {
        ++headers.done;
        Status disagreed = done ? checkHeader(peer) : Status::success();
        return disagreed.ok() ? status : disagreed;
      }
      sched_yield();
    }
    return status;
  }

  Status lost() const {
    std::string silent, slow;
    auto add = [&](std::string &list, int peer) { list += (list.empty() ? "" : ", ") + std::to_string(members[peer]); };
    for (int peer = 0; peer < size(); ++peer) {
      auto isOpen = [&](Kind kind) {
        const Queue &queue = queues[3 * static_cast<size_t>(peer) + static_cast<size_t>(kind)];
        return queue.done < queue.goal;
      };
      if (isOpen(Kind::header))
        add(silent, peer);
      else if (isOpen(Kind::incoming) || isOpen(Kind::outgoing))
        add(slow, peer);
    }
    return Status::error(ErrorCode::deadlineExceeded, "{}: rank {} waited {} ms for peer rank {}, which did not {}",
                         call.on(axisName), members[self], engine.options.timeout.count(),
                         silent.empty() ? slow : silent, silent.empty() ? "go on" : "come");
  }

  // ---- Sums ---------------------------------------------------------------------------------------------------------

  static constexpr uint64_t mostChunks = uint64_t(16) << 20; // bytes that come at once, from all peers

  Status reduceToAll(const std::byte *send, std::byte *recv, uint64_t bytes, DType type) {
    uint64_t count = bytes / sizeOf(type), ranks = members.size();
    if (bytes <= smallSumBytes) { // everybody sums everything
      scratch.resize(std::max<size_t>(scratch.size(), bytes * ranks));
      for (int peer = 0; peer < size(); ++peer) {
        parts[peer] = peer == self ? send : scratch.data() + peer * bytes;
        if (peer != self)
          BRAID_TRY(exchange(peer, send, bytes, scratch.data() + peer * bytes, bytes));
      }
      BRAID_TRY(wait());
      sumInOrder(parts, type, count, recv);
      return Status::success();
    }
    // Each rank sums one stripe and gives it to the others.
    auto stripe = [&](int rank) { return stripeOf(bytes, type, rank, size()); };
    Stripe own = stripe(self);
    BRAID_TRY(sumStripes(send, recv + own.offset, type, stripe));
    for (int peer = 0; peer < size(); ++peer)
      if (peer != self) {
        Stripe theirs = stripe(peer);
        BRAID_TRY(exchange(peer, recv + own.offset, own.bytes, recv + theirs.offset, theirs.bytes));
      }
    return wait();
  }

  // recv = this rank's stripe of the sum; every rank gets from `send` what stripe(rank) says. While one chunk is summed
  // the next one travels.
  template <class StripeOf> Status sumStripes(const std::byte *send, std::byte *recv, DType type, StripeOf stripe) {
    uint64_t longest = 0, ranks = members.size();
    // Smaller where many ranks send one each.
    uint64_t chunk = std::min(engine.options.chunkBytes, std::max<uint64_t>(mostChunks / ranks, 1 << 16));
    chunk = chunk / sizeOf(type) * sizeOf(type);
    for (int peer = 0; peer < size(); ++peer)
      longest = std::max(longest, stripe(peer).bytes);
    scratch.resize(std::max<size_t>(scratch.size(), 2 * ranks * std::min(chunk, longest)));
    auto part = [](Stripe whole, uint64_t at, uint64_t length) {
      return at < whole.bytes ? std::min(length, whole.bytes - at) : 0;
    };
    auto place = [&](uint64_t at, int peer) {
      return scratch.data() + (at / chunk % 2 * ranks + static_cast<uint64_t>(peer)) * std::min(chunk, longest);
    };
    Stripe own = stripe(self);
    auto start = [&](uint64_t at) -> Status {
      for (int peer = 0; peer < size(); ++peer)
        if (peer != self) {
          Stripe theirs = stripe(peer);
          BRAID_TRY(exchange(peer, send + theirs.offset + at, part(theirs, at, chunk), place(at, peer),
                             part(own, at, chunk)));
        }
      return Status::success();
    };
    if (longest)
      BRAID_TRY(start(0));
    else
      BRAID_TRY(wait());
    for (uint64_t at = 0; at < longest; at += chunk) {
      setGoal();
      if (at + chunk < longest)
        BRAID_TRY(start(at + chunk));
      BRAID_TRY(waitForGoal());
      for (int peer = 0; peer < size(); ++peer)
        parts[peer] = peer == self ? send + own.offset + at : place(at, peer);
      sumInOrder(parts, type, part(own, at, chunk) / sizeOf(type), recv + at);
    }
    return Status::success();
  }
};

class MpiGroup : public CommunicatorGroup {
public:
  static Expected<std::unique_ptr<CommunicatorGroup>> open(const MeshInfo &mesh, const MpiOptions &options) {
    auto group = std::make_unique<MpiGroup>();
    group->mesh = mesh;
    BRAID_TRY(group->engine.open(options));
    if (static_cast<uint32_t>(group->engine.size) != mesh.worldSize())
      return Status::error("a mesh of {} ranks, but {} processes", mesh.worldSize(), group->engine.size);
    std::vector<uint32_t> all(static_cast<size_t>(group->engine.size));
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<uint32_t>(i);
    group->everyone = std::make_unique<MpiCommunicator>(group->engine, "world", std::move(all), group->engine.rank, 0);
    return std::unique_ptr<CommunicatorGroup>(std::move(group));
  }

  int rank() const override { return engine.rank; }
  int worldSize() const override { return engine.size; }
  Communicator &world() override { return *everyone; }

  Expected<Communicator *> axis(std::string_view name) override {
    if (auto found = axes.find(name); found != axes.end())
      return static_cast<Communicator *>(found->second.get());
    BRAID_ASSIGN(std::optional<AxisMembers> members, membersOf(mesh, engine.rank, name));
    // Those that this rank is not on count, too: the others of an axis were asked for them.
    int number = static_cast<int>(axes.size()) + 1;
    std::unique_ptr<MpiCommunicator> communicator;
    if (members)
      communicator = std::make_unique<MpiCommunicator>(engine, std::string(name), std::move(members->ranks),
                                                       static_cast<int>(members->self), number);
    return static_cast<Communicator *>(axes.emplace(std::string(name), std::move(communicator)).first->second.get());
  }

  Status health() override {
    std::lock_guard lock(engine.mutex);
    if (!engine.listen())
      return Status::success();
    return Status::error(ErrorCode::aborted, "rank {} stopped because {}", engine.rank, engine.reason);
  }

  void abort(const Status &reason) override {
    engine.abort(fmt::format("rank {} failed: {}", engine.rank, reason.message()));
  }

private:
  MeshInfo mesh;
  Engine engine;
  std::unique_ptr<MpiCommunicator> everyone;
  std::map<std::string, std::unique_ptr<MpiCommunicator>, std::less<>> axes;
};

class MpiProcesses : public Processes {
public:
  explicit MpiProcesses(std::string startedBy) : launcher(std::move(startedBy)) {}

  Status start() {
    int provided = MPI_THREAD_SINGLE;
    BRAID_MPI(MPI_Init_thread, nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    if (provided < MPI_THREAD_SERIALIZED)
      return Status::error(ErrorCode::unsupported, "{} has no support of threads (MPI_THREAD_SERIALIZED)",
                           mpiLibrary());
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    BRAID_MPI(MPI_Comm_rank, MPI_COMM_WORLD, &self);
    BRAID_MPI(MPI_Comm_size, MPI_COMM_WORLD, &all);
    // Launchers bind processes to cores, to some of them or to all: those with the same cores share them.
    MPI_Comm machine;
    BRAID_MPI(MPI_Comm_split_type, MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, self, MPI_INFO_NULL, &machine);
    BRAID_MPI(MPI_Comm_size, machine, &here);
    BRAID_MPI(MPI_Comm_rank, machine, &selfHere);
    cpu_set_t own;
    CPU_ZERO(&own);
    sched_getaffinity(0, sizeof(own), &own);
    std::vector<cpu_set_t> sets(static_cast<size_t>(here));
    BRAID_MPI(MPI_Allgather, &own, sizeof(own), MPI_BYTE, sets.data(), sizeof(own), MPI_BYTE, machine);
    MPI_Comm_free(&machine);
    auto sharing = std::count_if(sets.begin(), sets.end(), [&](const cpu_set_t &set) { return CPU_EQUAL(&set, &own); });
    ownCores = std::max(CPU_COUNT(&own) / static_cast<int>(sharing), 1);
    return Status::success();
  }

  int rank() const override { return self; }
  int size() const override { return all; }
  int onThisMachine() const override { return here; }
  int rankOnThisMachine() const override { return selfHere; }
  int cores() const override { return ownCores; }
  std::string_view startedBy() const override { return launcher; }

  Expected<std::unique_ptr<CommunicatorGroup>> connect(const MeshInfo &mesh, milliseconds timeout) override {
    MpiOptions options;
    options.timeout = timeout;
    return connectMpi(mesh, options);
  }

  void finish() override { MPI_Finalize(); }

  [[noreturn]] void abortAll(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

private:
  std::string launcher;
  int self = 0, all = 1, here = 1, selfHere = 0, ownCores = 1;
};

} // namespace

Expected<std::unique_ptr<Processes>> startMpi(std::string startedBy) {
#ifdef OPEN_MPI
  // MPI_Init would end this process, in words of its own, where srun has not said how tasks find each other.
  if (startedBy == "srun" && !std::getenv("PMIX_NAMESPACE"))
    return Status::error(ErrorCode::unsupported,
                         "srun started this process without PMIx (PMIX_NAMESPACE is not set), by which {} finds its "
                         "peers; valid: srun --mpi=pmix, or MpiDefault=pmix in slurm.conf",
                         mpiLibrary());
#endif
  auto processes = std::make_unique<MpiProcesses>(std::move(startedBy));
  BRAID_TRY(processes->start());
  return std::unique_ptr<Processes>(std::move(processes));
}

Expected<std::unique_ptr<CommunicatorGroup>> connectMpi(const MeshInfo &mesh, const MpiOptions &options) {
  return MpiGroup::open(mesh, options);
}

std::string mpiLibrary() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  return std::string(text).substr(0, std::string_view(text).find_first_of(",\n"));
}

} // namespace braid::runtime
