//===- CudaStubDevice.h - devices, streams and graphs of the driver's stub ----------------------------------------===//
// What CudaStub.cpp, whose functions tests call by the driver's names, keeps of each; it says how they behave.
#ifndef TEST_EMULATOR_CUDASTUBDEVICE_H
#define TEST_EMULATOR_CUDASTUBDEVICE_H

#include "runtime/cuda/CudaDriver.h"

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace cuda = braid::runtime::cuda;

struct CUmod_st {
  void *library;
  int descriptor;
};
struct CUfunc_st {
  void (*run)(const int64_t *slots, int64_t begin, int64_t end);
  std::string name;
  int sharedBytes = 48 << 10;
  size_t offset =
      0; ///< of its parameter, once somebody has asked: it is 0 unless the parameter is aligned to more than 16 bytes
};
struct CUgraph_st;
/// Of a stream that is captured: how much of every stream comes before.
using Before = std::map<CUstream_st *, size_t>;
struct CUevent_st {
  std::shared_ptr<bool> happened; ///< the last recording
  uint64_t capture = 0; ///< which was captured; 0: in none
  Before before;
};
struct CUstream_st {
  int number;
  CUctx_st *device;
  struct Work {
    std::shared_ptr<bool> until; ///< it waits for this recording; null: for none
    std::function<bool()> ready; ///< or for another device; null: for none
    std::function<void()> run;
    std::shared_ptr<bool> happens; ///< a recording
    uintptr_t cleared = 0; ///< where an allocation begins all of which it sets to 0
  };
  std::deque<Work> queue = {};
  CUgraph_st *capturing = nullptr;
  Before before = {}; ///< while it is captured
  bool launched = false; ///< whether a launch is the last that it was given; that events are recorded changes nothing
};
struct CUgraph_st {
  uint64_t number; ///< of the capture
  CUstream_st *origin;
  std::vector<std::pair<CUstream_st *, CUstream_st::Work>> works; ///< in the order of the calls, by stream
  std::vector<CUstream_st *> streams; ///< that were captured
  bool invalid = false; ///< a call failed while it was recorded
};
struct CUgraphExec_st {
  CUgraph_st graph;
  std::map<CUstream_st *, CUstream_st *>
      branches; ///< the streams it has for those that were captured, but for the first
};

namespace stub {

// NVIDIA's numbers.
inline constexpr int success = 0, invalidValue = 1, outOfMemory = 2, noDevice = 100, invalidDevice = 101,
                     invalidImage = 200, notFound = 500, illegalAddress = 700, captureUnsupported = 900,
                     captureInvalidated = 901, captureUnjoined = 904, captureIsolation = 905, capturedEvent = 907;

inline std::recursive_mutex mutex; // of everything here

inline long number(const char *variable, long otherwise) {
  const char *text = std::getenv(variable);
  return text ? std::atol(text) : otherwise;
}

inline bool failing(std::string_view call) {
  const char *text = std::getenv("BRAID_STUB_FAIL");
  return text && text == call;
}

[[noreturn]] inline void fail(const std::string &message) {
  std::fprintf(stderr, "CUDA stub: %s\n", message.c_str());
  std::abort();
}

[[gnu::format(printf, 1, 2)]] inline void log(const char *format, ...) {
  static FILE *file = [] {
    const char *path = std::getenv("BRAID_STUB_LOG");
    return path ? std::fopen(path, "a") : nullptr;
  }();
  if (!file)
    return;
  std::lock_guard lock(mutex);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(file, format, arguments);
  va_end(arguments);
  std::fputc('\n', file);
  std::fflush(file);
}

/// An allocation of the device: it ends where a page ends that nobody may touch.
struct Allocation {
  char *pages;
  size_t mapped;
  size_t bytes;
  bool isNew = true; ///< its pages were not touched yet: they are to be NaN when something runs
};

} // namespace stub

/// A device is its context.
struct CUctx_st {
  CUstream_st legacy{0, this};
  std::vector<CUstream_st *> streams{&legacy};
  int nextStream = 1;
  std::map<uintptr_t, stub::Allocation> memory;
  std::map<uintptr_t, size_t> pinned;
  size_t used = 0;

  CUctx_st() = default;
  CUctx_st(const CUctx_st &) = delete;

  size_t total() const { return static_cast<size_t>(stub::number("BRAID_STUB_MEMORY", 8L << 30)); }

  void protect(int how) {
    for (auto &[at, allocation] : memory)
      if (mprotect(allocation.pages, allocation.mapped, how) != 0)
        stub::fail("mprotect");
  }

  bool owns(uintptr_t address, size_t bytes) const {
    auto next = memory.upper_bound(address);
    if (next == memory.begin())
      return false;
    auto &[at, allocation] = *std::prev(next);
    return address + bytes <= at + allocation.bytes;
  }

  bool isPinned(const void *address, size_t bytes) const {
    auto at = reinterpret_cast<uintptr_t>(address);
    auto next = pinned.upper_bound(at);
    return next != pinned.begin() && at + bytes <= std::prev(next)->first + std::prev(next)->second;
  }

  /// Until `stream` has nothing left, or waits for another device.
  void advance(CUstream_st &stream) {
    bool mapped = false;
    while (!stream.queue.empty()) {
      CUstream_st *next = runnable();
      if (!next && !waitsForOthers())
        stub::fail("stream " + std::to_string(stream.number) + " waits for what no stream does");
      if (!next)
        break;
      if (!std::exchange(mapped, true))
        protect(PROT_READ | PROT_WRITE);
      CUstream_st::Work work = std::move(next->queue.front());
      next->queue.pop_front();
      if (work.run && !isCleared(work.cleared)) {
        fillNew();
        work.run();
      }
      if (work.happens)
        *work.happens = true;
    }
    if (mapped)
      protect(PROT_NONE);
  }

  /// Until `stream` has nothing left; other threads go on meanwhile.
  void run(CUstream_st &stream, std::unique_lock<std::recursive_mutex> &lock) {
    for (advance(stream); !stream.queue.empty(); advance(stream)) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      lock.lock();
    }
  }

private:
  void fillNew() {
    for (auto &[at, allocation] : memory)
      if (std::exchange(allocation.isNew, false))
        std::memset(allocation.pages, 0xff, allocation.mapped);
  }

  /// Whether there is nothing to do: pages that nobody has touched are 0, and cost nothing until somebody does. What the runtime has of a device it clears first.
  bool isCleared(uintptr_t address) {
    auto found = memory.find(address);
    if (found == memory.end() || !std::exchange(found->second.isNew, false))
      return false;
    const stub::Allocation &of = found->second;
    auto *begin = reinterpret_cast<char *>(address), *end = begin + of.bytes;
    std::memset(of.pages, 0xff, static_cast<size_t>(begin - of.pages)); // what is beside it
    std::memset(end, 0xff, static_cast<size_t>(of.pages + of.mapped - end));
    return true;
  }

  CUstream_st *runnable() const {
    static const bool firstFirst =
        std::getenv("BRAID_STUB_ORDER") && getenv("BRAID_STUB_ORDER") == std::string("first");
    auto mayRun = [](CUstream_st *stream) {
      auto &queue = stream->queue;
      return !queue.empty() && (!queue.front().until || *queue.front().until) &&
             (!queue.front().ready || queue.front().ready());
    };
    if (firstFirst) {
      auto found = std::ranges::find_if(streams, mayRun);
      return found == streams.end() ? nullptr : *found;
    }
    auto found = std::find_if(streams.rbegin(), streams.rend(), mayRun);
    return found == streams.rend() ? nullptr : *found;
  }

  bool waitsForOthers() const {
    return std::ranges::any_of(
        streams, [](CUstream_st *stream) { return !stream->queue.empty() && stream->queue.front().ready; });
  }
};

#endif // TEST_EMULATOR_CUDASTUBDEVICE_H
