#include "runtime/ThreadPool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <pthread.h>
#include <vector>

namespace braid::runtime {
namespace {

inline void pauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Long enough to catch the next launch of a busy step, short enough not to steal a core from another rank.
constexpr int spins = 2000;

// A thread with a stack of `stackBytes`; std::thread cannot choose.
Status startThread(pthread_t &thread, size_t stackBytes, void *(*main)(void *), void *argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  int error = pthread_attr_setstacksize(&attributes, stackBytes);
  if (!error)
    error = pthread_create(&thread, &attributes, main, argument);
  pthread_attr_destroy(&attributes);
  if (error)
    return Status::error(ErrorCode::ioError, "cannot start a thread with a stack of {} bytes: {}", stackBytes,
                         std::strerror(error));
  return Status::success();
}

} // namespace

// The library behind Gemm parallelises with OpenMP; here a rank's threads are the parallelism, so every thread that may
// call it is told to use one. Looked up at run time: the build does not choose the OpenMP library, oneDNN's package
// does.
void useOneOpenMpThread() {
  using SetThreads = void (*)(int);
  static const SetThreads setThreads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (setThreads)
    setThreads(1);
}

struct ThreadPool::Impl {
  struct Worker {
    Impl *pool = nullptr;
    int index = 0;
    pthread_t thread{};
  };

  int threads = 1;
  std::vector<Worker> workers;

  // One piece of work at a time: written before `ticket` changes, read by whoever has claimed a part of it.
  Body body = nullptr;
  void *context = nullptr;
  int64_t begin = 0, end = 0, grain = 1, units = 0;

  // A number of the work above its number of parts, so that both are read at once: a thread that wakes up late then
  // asks for parts that its ticket had, all of them claimed, and never for one of later work.
  static constexpr int partBits = 16;
  std::atomic<uint64_t> ticket{0};
  std::unique_ptr<std::atomic<uint64_t>[]> claimed; // by part: the number of the last work of which it was taken
  std::atomic<int> pending{0}; // parts not done
  std::atomic<bool> stop{false};
  size_t ready = 0; // workers that have begun
  std::mutex mutex;
  std::condition_variable wake, done;

  // Of the work, and the parts that it is cut into, which depend on the sizes alone: who runs a part is another matter.
  void runPart(int part, int parts) {
    int64_t first = begin + units * part / parts * grain;
    int64_t last = std::min(end, begin + units * (part + 1) / parts * grain);
    if (first < last)
      body(context, first, last, part);
  }

  // Takes the part of its own, whose data its core saw last, then those whose threads have not come: a thread that the
  // system has put aside delays nobody unless it holds a part.
  void takeParts(uint64_t seen, int index) {
    uint64_t number = seen >> partBits;
    int parts = static_cast<int>(seen & ((uint64_t(1) << partBits) - 1));
    for (int i = 0; i < parts; ++i) {
      int part = (index + i) % parts;
      uint64_t last = claimed[part].load(std::memory_order_relaxed);
      if (last >= number || !claimed[part].compare_exchange_strong(last, number, std::memory_order_acq_rel))
        continue;
      runPart(part, parts);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1 && index != 0) {
        std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }

  void work(int index) {
    useOneOpenMpThread();
    {
      std::lock_guard lock(mutex);
      ++ready;
    }
    done.notify_one();
    uint64_t seen = 0;
    while (true) {
      for (int i = 0; i < spins && ticket.load(std::memory_order_acquire) == seen; ++i)
        pauseCpu();
      if (ticket.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return ticket.load(std::memory_order_acquire) != seen; });
      }
      seen = ticket.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed))
        return;
      takeParts(seen, index);
    }
  }

  uint64_t publish(int parts) {
    uint64_t next = ((ticket.load(std::memory_order_relaxed) >> partBits) + 1) << partBits | uint64_t(parts);
    {
      std::lock_guard lock(mutex);
      ticket.store(next, std::memory_order_release);
    }
    wake.notify_all();
    return next;
  }
};

ThreadPool::ThreadPool(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}

Expected<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads, size_t stackBytes) {
  if (threads < 1 || threads > maxThreads)
    return Status::error("{} threads per rank; valid: 1 to {}", threads, maxThreads);
  auto impl = std::make_unique<Impl>();
  impl->threads = threads;
  impl->workers.reserve(threads - 1);
  impl->claimed = std::make_unique<std::atomic<uint64_t>[]>(threads);
  std::unique_ptr<ThreadPool> pool(new ThreadPool(std::move(impl)));
  for (int i = 1; i < threads; ++i) {
    Impl::Worker &worker = pool->impl->workers.emplace_back();
    worker.pool = pool->impl.get();
    worker.index = i;
    auto main = [](void *argument) -> void * {
      auto *self = static_cast<Impl::Worker *>(argument);
      self->pool->work(self->index);
      return nullptr;
    };
    if (Status status = startThread(worker.thread, stackBytes, main, &worker); !status.ok()) {
      pool->impl->workers.pop_back();
      return status;
    }
  }
  // What a thread allocates once, as its OpenMP library does, is no part of a step then, however late the system lets it begin.
  std::unique_lock lock(pool->impl->mutex);
  pool->impl->done.wait(lock, [&] { return pool->impl->ready == pool->impl->workers.size(); });
  lock.unlock();
  return pool;
}

ThreadPool::~ThreadPool() {
  impl->stop.store(true, std::memory_order_relaxed);
  impl->publish(0);
  for (Impl::Worker &worker : impl->workers)
    pthread_join(worker.thread, nullptr);
}

int ThreadPool::size() const { return impl->threads; }

void ThreadPool::parallelFor(int64_t begin, int64_t end, int64_t grain, Body body, void *context) {
  useOneOpenMpThread();
  if (begin >= end)
    return;
  int64_t units = (end - begin - 1) / grain + 1;
  int parts = static_cast<int>(std::min<int64_t>(units, impl->threads));
  if (parts == 1) {
    body(context, begin, end, 0);
    return;
  }
  Impl &pool = *impl;
  pool.body = body;
  pool.context = context;
  pool.begin = begin;
  pool.end = end;
  pool.grain = grain;
  pool.units = units;
  pool.pending.store(parts, std::memory_order_relaxed);
  pool.takeParts(pool.publish(parts), 0);
  for (int i = 0; i < spins && pool.pending.load(std::memory_order_acquire) != 0; ++i)
    pauseCpu();
  if (pool.pending.load(std::memory_order_acquire) == 0)
    return;
  std::unique_lock lock(pool.mutex);
  pool.done.wait(lock, [&] { return pool.pending.load(std::memory_order_acquire) == 0; });
}

Status runOnRanks(int ranks, const std::function<Status(int rank)> &body, size_t stackBytes) {
  struct Rank {
    const std::function<Status(int)> *body = nullptr;
    int rank = 0;
    Status status = Status::success();
    pthread_t thread{};
  };
  if (ranks < 1 || ranks > maxThreadRanks)
    return Status::error("{} ranks as threads; valid: 1 to {}", ranks, maxThreadRanks);
  std::vector<Rank> all(ranks);
  int started = 0;
  Status result = Status::success();
  for (; started < ranks; ++started) {
    all[started].body = &body;
    all[started].rank = started;
    auto main = [](void *argument) -> void * {
      auto *self = static_cast<Rank *>(argument);
      self->status = (*self->body)(self->rank);
      return nullptr;
    };
    result = startThread(all[started].thread, stackBytes, main, &all[started]);
    if (!result.ok())
      break;
  }
  for (int i = 0; i < started; ++i)
    pthread_join(all[i].thread, nullptr);
  // A rank that stopped because of another one says less than that other one.
  for (int i = 0; i < started; ++i) {
    const Status &status = all[i].status;
    if (!status.ok() && (result.ok() || (result.code() == ErrorCode::aborted && status.code() != ErrorCode::aborted)))
      result = status;
  }
  return result;
}

} // namespace braid::runtime
