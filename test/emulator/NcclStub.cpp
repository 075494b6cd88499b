//===- NcclStub.cpp - a libnccl.so.2 without a GPU, for tests -----------------------------------------------------===//
//
// The functions of NCCL that braid-run calls, over CudaStub's streams and memory: a collective is work on a stream that waits until every rank's
// stream has come to it, and what is recorded in a graph is done again in every launch. Ranks are threads or processes of one machine, each
// with a device: what they send lies in files of a folder that the communicator's id names. Sums run from the last rank to the
// first (test/runtime/fixture/NcclSums.h). Arguments are checked as NCCL's documentation states them.
//
// Environment: BRAID_STUB_FAIL=ncclAllReduce makes that call fail on rank 1 while the others wait; BRAID_STUB_LOST=N: from the Nth collective
// on that rank 1 executes on a communicator, nothing comes from it any more.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "runtime/comm/NcclApi.h"
#include "test/emulator/StubHooks.h"
#include "test/runtime/fixture/NcclSums.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <tuple>

#include <unistd.h>

using namespace braid::runtime::nccl;
namespace fs = std::filesystem;

namespace {

constexpr Result systemError = 2;

/// What is on streams lives longer than the communicator.
struct State {
  fs::path folder;
  int rank, ranks;
  uint64_t round = 0; // collectives executed
  std::vector<uint64_t> sent, received; // messages, by peer
  std::atomic<bool> aborted{false};

  fs::path file(const char *what, uint64_t number, int from, int to = 0) const {
    return folder /
           (std::string(what) + std::to_string(number) + "." + std::to_string(from) + "." + std::to_string(to));
  }
  /// A file is there when all of it is.
  void post(const fs::path &path, const void *bytes, size_t size) const {
    fs::path hidden = path;
    hidden += ".part";
    std::ofstream(hidden, std::ios::binary).write(static_cast<const char *>(bytes), static_cast<std::streamsize>(size));
    fs::rename(hidden, path);
  }
  static std::vector<char> read(const fs::path &path) {
    std::vector<char> bytes(fs::file_size(path));
    std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return bytes;
  }
  bool allPosted(const char *what, uint64_t number) const {
    for (int rank = 0; rank < ranks; ++rank)
      if (!fs::exists(file(what, number, rank)))
        return false;
    return true;
  }
  bool lost() const {
    const char *after = std::getenv("BRAID_STUB_LOST");
    return after && rank == 1 && round >= std::strtoull(after, nullptr, 10);
  }
};

} // namespace

struct braid::runtime::nccl::CommTag {
  std::shared_ptr<State> state;
};

namespace {

struct Message {
  std::shared_ptr<State> state;
  Stream stream;
  int peer;
  void *bytes;
  size_t size;
};
thread_local int depth = 0;
thread_local std::vector<Message> sends, receives; // of the group

std::string line(const char *call, size_t count, Type type, const State &state) {
  return std::string(call) + " " + std::to_string(count) + " type " + std::to_string(type) + " rank " +
         std::to_string(state.rank);
}

/// `combine` makes what is received of what all ranks send.
Result collective(const char *call, Comm comm, Stream stream, const void *send, size_t sendCount, void *recv,
                  size_t recvCount, Type type,
                  std::function<std::vector<char>(const std::vector<const void *> &)> combine) {
  std::shared_ptr<State> state = comm->state;
  const char *failing = std::getenv("BRAID_STUB_FAIL");
  if (failing && failing == std::string_view(call) && state->rank == 1)
    return systemError;
  size_t sendBytes = sendCount * widthOf(type), recvBytes = recvCount * widthOf(type);
  if (sendBytes == 0)
    misused("an empty collective"); // which NCCL takes, but programs have none
  braidStubCheck(send, sendBytes, call, stream);
  braidStubCheck(recv, recvBytes, call, stream);
  braidStubPut(
      stream,
      [=] {
        if (!state->lost() && !state->aborted)
          state->post(state->file("round", state->round, state->rank), send, sendBytes);
      },
      line(call, sendCount, type, *state).c_str(), nullptr);
  auto come = [=] { return state->aborted || state->allPosted("round", state->round); };
  auto take = [=] {
    if (state->aborted)
      return;
    std::vector<std::vector<char>> parts;
    for (int rank = 0; rank < state->ranks; ++rank)
      parts.push_back(State::read(state->file("round", state->round, rank)));
    std::vector<const void *> all;
    for (const std::vector<char> &part : parts) {
      if (part.size() != sendBytes)
        misused("ranks send different numbers of bytes");
      all.push_back(part.data());
    }
    std::memcpy(recv, combine(all).data(), recvBytes);
    if (state->round > 0) // which all ranks have read, for they have come to the next
      fs::remove(state->file("round", state->round - 1, state->rank));
    ++state->round;
  };
  braidStubPut(stream, take, nullptr, come);
  return success;
}

Result queue(const char *call, std::vector<Message> &to, const void *bytes, size_t count, Type type, int peer,
             Comm comm, Stream stream) {
  if (depth == 0 || peer < 0 || peer >= comm->state->ranks || type != typeU8)
    return invalidArgument;
  braidStubCheck(bytes, count, call, stream);
  to.push_back({comm->state, stream, peer, const_cast<void *>(bytes), count});
  return success;
}

/// The last rank to leave takes the folder away.
void leave(const State &state) {
  state.post(state.file("left", 0, state.rank), "", 0);
  std::error_code ignored;
  if (state.allPosted("left", 0))
    fs::remove_all(state.folder, ignored);
}

} // namespace

extern "C" {

Result ncclGetUniqueId(UniqueId *id) {
  std::string path = (fs::temp_directory_path() / "braid-nccl-XXXXXX").string();
  if (!mkdtemp(path.data()) || path.size() >= sizeof(id->bytes))
    return systemError;
  *id = {};
  std::memcpy(id->bytes, path.data(), path.size());
  return success;
}

Result ncclCommInitRankConfig(Comm *comm, int ranks, UniqueId id, int rank, Config *config) {
  if (rank < 0 || rank >= ranks || config->magic != 0xcafebeef || config->size < 20 || config->blocking != 0)
    return invalidArgument;
  auto state = std::make_shared<State>();
  state->folder = id.bytes;
  state->rank = rank;
  state->ranks = ranks;
  state->sent.resize(static_cast<size_t>(ranks));
  state->received = state->sent;
  state->post(state->file("joined", 0, rank), "", 0);
  *comm = new CommTag{state};
  return inProgress;
}

Result ncclCommGetAsyncError(Comm comm, Result *error) {
  *error = comm->state->allPosted("joined", 0) ? success : inProgress;
  return success;
}

Result ncclCommDestroy(Comm comm) {
  leave(*comm->state);
  delete comm;
  return success;
}

Result ncclCommAbort(Comm comm) {
  comm->state->aborted = true;
  leave(*comm->state);
  delete comm;
  return success;
}

const char *ncclGetErrorString(Result code) {
  return code == systemError ? "unhandled system error" : "invalid argument";
}

Result ncclAllReduce(const void *send, void *recv, size_t count, Type type, Reduction op, Comm comm, Stream stream) {
  if (op != sum)
    return invalidArgument;
  return collective("ncclAllReduce", comm, stream, send, count, recv, count, type,
                    [=](auto &parts) { return sumOf(type, parts, 0, count); });
}

Result ncclAllGather(const void *send, void *recv, size_t count, Type type, Comm comm, Stream stream) {
  size_t bytes = count * widthOf(type);
  return collective("ncclAllGather", comm, stream, send, count, recv, count * static_cast<size_t>(comm->state->ranks),
                    type, [=](auto &parts) {
                      std::vector<char> all;
                      for (const void *part : parts)
                        all.insert(all.end(), static_cast<const char *>(part), static_cast<const char *>(part) + bytes);
                      return all;
                    });
}

Result ncclReduceScatter(const void *send, void *recv, size_t count, Type type, Reduction op, Comm comm,
                         Stream stream) {
  if (op != sum)
    return invalidArgument;
  size_t own = static_cast<size_t>(comm->state->rank) * count;
  return collective("ncclReduceScatter", comm, stream, send, count * static_cast<size_t>(comm->state->ranks), recv,
                    count, type, [=](auto &parts) { return sumOf(type, parts, own, count); });
}

Result ncclGroupStart() {
  ++depth;
  return success;
}

Result ncclSend(const void *send, size_t count, Type type, int peer, Comm comm, Stream stream) {
  return queue("ncclSend", sends, send, count, type, peer, comm, stream);
}

Result ncclRecv(void *recv, size_t count, Type type, int peer, Comm comm, Stream stream) {
  return queue("ncclRecv", receives, recv, count, type, peer, comm, stream);
}

Result ncclGroupEnd() {
  if (--depth > 0)
    return success;
  for (Message &one : sends)
    braidStubPut(
        one.stream,
        [one] {
          if (one.state->aborted)
            return;
          uint64_t &number = one.state->sent[static_cast<size_t>(one.peer)];
          one.state->post(one.state->file("message", number++, one.state->rank, one.peer), one.bytes, one.size);
        },
        (line("ncclSend", one.size, typeU8, *one.state) + " to " + std::to_string(one.peer)).c_str(), nullptr);
  for (Message &one : receives) {
    auto path = [one] {
      return one.state->file("message", one.state->received[static_cast<size_t>(one.peer)], one.peer, one.state->rank);
    };
    braidStubPut(
        one.stream,
        [one, path] {
          if (one.state->aborted)
            return;
          std::vector<char> bytes = State::read(path());
          if (bytes.size() != one.size)
            misused("a peer sends another number of bytes than is received");
          std::memcpy(one.bytes, bytes.data(), bytes.size());
          fs::remove(path());
          ++one.state->received[static_cast<size_t>(one.peer)];
        },
        (line("ncclRecv", one.size, typeU8, *one.state) + " from " + std::to_string(one.peer)).c_str(),
        [one, path] { return one.state->aborted || fs::exists(path()); });
  }
  sends.clear();
  receives.clear();
  return success;
}

} // extern "C"

// The functions above are what the runtime asks for.
template <class... Functions> constexpr bool areThose(Functions...) {
  return std::is_same_v<
      std::tuple<Functions...>,
      std::tuple<decltype(Library::getUniqueId), decltype(Library::commInitRank), decltype(Library::commDestroy),
                 decltype(Library::commAbort), decltype(Library::commGetAsyncError), decltype(Library::errorText),
                 decltype(Library::allReduce), decltype(Library::allGather), decltype(Library::reduceScatter),
                 decltype(Library::send), decltype(Library::recv), decltype(Library::groupStart),
                 decltype(Library::groupEnd)>>;
}
static_assert(areThose(&ncclGetUniqueId, &ncclCommInitRankConfig, &ncclCommDestroy, &ncclCommAbort,
                       &ncclCommGetAsyncError, &ncclGetErrorString, &ncclAllReduce, &ncclAllGather, &ncclReduceScatter,
                       &ncclSend, &ncclRecv, &ncclGroupStart, &ncclGroupEnd));
