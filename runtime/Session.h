// Session: what one rank owns to execute a program: arenas, loaded kernels, library primitives, threads, streams.
// create() pays for everything; run() allocates nothing, looks nothing up by name and compiles nothing. A session is
// used by one thread at a time. Arenas start zeroed. Inputs "coordinate.<axis>" are set before every run (Program.h).
//
// A program for GPUs has its arenas in the memory of a device (cuda/CudaDevice.h). Its inputs and outputs are what the host
// sees of them, before and after a run; every other tensor is when toHost() was called, and counts when toDevice() was.
#pragma once

#include "runtime/Program.h"

#include <cassert>
#include <chrono>
#include <cstring>
#include <functional>

namespace braid::runtime {

#ifdef BRAID_CHECK_MEMORY
constexpr bool checksMemory = true;
#else
constexpr bool checksMemory = false;
#endif

class CommunicatorGroup;
class RunWatcher;
class TraceSink;
class ThreadPool;

struct SessionOptions {
  int threads = 0; // worker threads of this rank, the calling thread included; 0: all cores / worldSize
  int onThisMachine = 0; // ranks that share its memory; 0: all
  int device = 0; // of programs for GPUs: which of this machine's
  std::chrono::milliseconds timeout = std::chrono::minutes(10); // of waiting for a GPU of several ranks
  int rank = 0;
  int worldSize = 1; // must equal the program's mesh
  CommunicatorGroup *comm = nullptr; // this rank's communicators; not owned; may be null when worldSize is 1
  bool checkMemory = checksMemory; // MemoryCheck.h; programs of one rank only
};

struct EntryId {
  uint32_t index = UINT32_MAX;
};

// A tensor's bytes in this session's arenas; valid as long as the session lives.
struct TensorView {
  const TensorInfo *info = nullptr;
  std::byte *data = nullptr;
  size_t bytes = 0;

  // All elements (all layers) as T, whose size must be the dtype's.
  template <class T> std::span<T> as() const {
    assert(sizeof(T) == sizeOf(info->dtype) && "element type does not fit the tensor's dtype");
    return {reinterpret_cast<T *>(data), bytes / sizeof(T)};
  }
  // Layer i of a stacked tensor (i counts from 0, not the absolute layer index).
  TensorView layer(size_t i) const {
    assert(i < info->layerCount());
    return {info, data + i * info->layerBytes(), info->layerBytes()};
  }
};

class Session {
public:
  // Executes the stage of the rank, whichever stage's view is given.
  static Expected<std::unique_ptr<Session>> create(std::shared_ptr<const Program> program, SessionOptions options);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  const Program &program() const; // the view of its stage
  int rank() const;
  int worldSize() const;
  int threads() const;
  // Bytes of all arenas of this rank.
  uint64_t arenaBytes() const;
  // Whether a GPU executes the program.
  bool onGpu() const;

  Expected<EntryId> entry(std::string_view name) const;
  // Executes the entry to its end, all streams included. After an error the contents of the arenas are undefined.
  Status run(EntryId entry);
  // The same. While a GPU works on the entry, `fill` is called, which may write these inputs for the entry's next run and says whether
  // it did: they travel beside the step. `filled`: this run takes those that the last call wrote. On a CPU it is not called.
  struct NextInputs {
    std::span<const TensorInfo *const> tensors;
    std::function<bool()> fill;
    bool filled = false;
  };
  Status run(EntryId entry, const NextInputs &next);

  // Around what the host reads and writes of tensors that are no inputs or outputs; on a CPU nothing has to be done.
  Status toHost(const TensorView &view);
  Status toDevice(const TensorView &view);

  Expected<TensorView> tensor(std::string_view name);
  TensorView tensor(const TensorInfo &info); // of this program
  // Zeroes every tensor of a role, e.g. Role::cache before a new sequence.
  void clear(Role role);
  // Zeroes a whole arena.
  void clearArena(uint32_t index);

  // Calls `sink` for every executed command from now on; nullptr (the default) costs nothing. Not during run().
  void setTrace(TraceSink *sink);

  // Asks `watcher` from now on; nullptr (the default) costs nothing. Not during run().
  void setWatcher(RunWatcher *watcher);
  std::byte *arena(uint32_t index);

  ThreadPool &pool();

private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace braid::runtime
