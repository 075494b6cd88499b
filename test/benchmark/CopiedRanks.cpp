#include "test/benchmark/CopiedRanks.h"

#include "runtime/comm/Collectives.h"

#include <cstring>
#include <map>
#include <thread>

namespace braid::benchmark {
namespace {

using namespace braid::runtime;

class CopiedAxis : public Communicator {
public:
  CopiedAxis(std::string name, int ranks) : name(std::move(name)), ranks(ranks) {}

  std::string_view axis() const override { return name; }
  int size() const override { return ranks; }
  int rank() const override { return 0; }
  uint64_t sentBytes() const override { return 0; }

  Status allReduce(const std::byte *send, std::byte *recv, uint64_t bytes, DType, const char *) override {
    return copy(send, recv, bytes);
  }
  Status allGather(const std::byte *send, std::byte *recv, uint64_t bytes, const char *) override {
    for (int peer = 0; peer < ranks; ++peer)
      copy(send, recv + static_cast<uint64_t>(peer) * bytes, bytes);
    return Status::success();
  }
  Status reduceScatter(const std::byte *send, std::byte *recv, uint64_t bytes, DType, const char *) override {
    return copy(send, recv, bytes);
  }
  Status shift(const Shift &args, const char *) override {
    if (args.source(0, ranks) >= 0)
      return copy(args.send, args.recv, args.bytes);
    std::memset(args.recv, 0, args.bytes);
    return Status::success();
  }
  Status allToAll(const AllToAll &args, const char *what) override {
    for (int peer = 0; peer < ranks; ++peer) {
      Expected<uint64_t> bytes = bytesToReceive(rowsToReceive(args, peer), rowsToSend(args, peer), args.blockBytes);
      if (!bytes)
        return bytes.status().withContext(what);
      uint64_t block = static_cast<uint64_t>(peer) * args.blockBytes;
      copy(args.send + block, args.recv + block, *bytes);
    }
    return Status::success();
  }
  Status meet(const CollectiveCall &) override { return Status::success(); }

private:
  // Either may be a part of the other's buffer: a rank's own block lies where it came from.
  static Status copy(const std::byte *from, std::byte *to, uint64_t bytes) {
    if (from != to)
      std::memmove(to, from, bytes);
    return Status::success();
  }

  std::string name;
  int ranks;
};

class CopiedGroup : public CommunicatorGroup {
public:
  explicit CopiedGroup(const MeshInfo &mesh) : mesh(mesh), all("world", static_cast<int>(mesh.worldSize())) {}

  int rank() const override { return 0; }
  int worldSize() const override { return all.size(); }
  Expected<Communicator *> axis(std::string_view name) override {
    std::optional<uint32_t> size = mesh.size(name);
    if (!size)
      return Status::error("the mesh has no axis '{}'", name);
    auto &axis = axes[std::string(name)];
    if (!axis)
      axis = std::make_unique<CopiedAxis>(std::string(name), static_cast<int>(*size));
    return axis.get();
  }
  Communicator &world() override { return all; }
  void abort(const Status &) override {}
  Status health() override { return Status::success(); }

private:
  MeshInfo mesh;
  CopiedAxis all;
  std::map<std::string, std::unique_ptr<CopiedAxis>, std::less<>> axes;
};

class CopiedProcesses : public Processes {
public:
  explicit CopiedProcesses(int ranks) : ranks(ranks) {}

  int rank() const override { return 0; }
  int size() const override { return ranks; }
  int onThisMachine() const override { return 1; }
  int rankOnThisMachine() const override { return 0; }
  int cores() const override { return static_cast<int>(std::thread::hardware_concurrency()); }
  std::string_view startedBy() const override { return "nobody: peers are copies"; }
  Expected<std::unique_ptr<CommunicatorGroup>> connect(const MeshInfo &mesh, std::chrono::milliseconds) override {
    return std::unique_ptr<CommunicatorGroup>(std::make_unique<CopiedGroup>(mesh));
  }
  void finish() override {}
  void abortAll(int code) override { std::_Exit(code); }

private:
  int ranks;
};

} // namespace

std::unique_ptr<Processes> copiedRanks(int size) { return std::make_unique<CopiedProcesses>(size); }

} // namespace braid::benchmark
