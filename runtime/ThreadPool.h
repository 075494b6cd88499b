// ThreadPool: the worker threads of one rank. parallelFor partitions a range statically, so the same range on the same
// number of threads is always cut at the same places; a thread that is late (its core has other work) leaves its part
// to the others. Workers have large stacks because kernels keep tiles there; rank
// threads that execute kernels themselves are started by runOnRanks with the same stacks.
#pragma once

#include "runtime/Expected.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace braid::runtime {

inline constexpr size_t kernelStackBytes = size_t(64) << 20;

class ThreadPool {
public:
  static constexpr int maxThreads = 256; // a stack each; more than the cores of one socket

  // `threads` counts the thread that calls parallelFor, which works too; threads - 1 are started.
  static Expected<std::unique_ptr<ThreadPool>> create(int threads, size_t stackBytes = kernelStackBytes);
  ~ThreadPool();

  int size() const;

  // body(context, begin, end, part) with part in [0, size()), which no other call has at the same time: scratch memory
  // may be chosen by it. Must not throw and must not call parallelFor.
  using Body = void (*)(void *context, int64_t begin, int64_t end, int part);
  // Cuts [begin, end) in contiguous parts of whole multiples of `grain`, one per thread at most, and returns when all
  // are done. Allocates nothing.
  void parallelFor(int64_t begin, int64_t end, int64_t grain, Body body, void *context);

  // The same with a callable that lives on the caller's stack: f(begin, end, part).
  template <class F> void parallelFor(int64_t begin, int64_t end, int64_t grain, F &&f) {
    parallelFor(
        begin, end, grain,
        [](void *context, int64_t b, int64_t e, int part) {
          (*static_cast<std::remove_reference_t<F> *>(context))(b, e, part);
        },
        &f);
  }

private:
  struct Impl;
  explicit ThreadPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

// Tells the OpenMP library behind oneDNN, if there is one, to stay on the calling thread. Pool threads do so
// themselves.
void useOneOpenMpThread();

constexpr int maxThreadRanks = 4096;
// Runs body(rank) for ranks [0, ranks) on one thread each (with kernel stacks) and waits for all. Returns the error of
// the lowest rank that did not merely stop because another one failed.
Status runOnRanks(int ranks, const std::function<Status(int rank)> &body, size_t stackBytes = kernelStackBytes);

} // namespace braid::runtime
