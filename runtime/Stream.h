// Stream: a FIFO of prepared commands and the progress thread that executes them, beside the thread that walks the
// entry. Every stream but compute is one, for the communicator of a mesh axis. Pushing allocates nothing.
#pragma once

#include "runtime/Commands.h"

#include <condition_variable>
#include <mutex>
#include <pthread.h>

namespace braid::runtime {

// A command with what it depends on: the iteration it belongs to, and for record and wait which recording is meant.
struct StreamItem {
  const Command *command = nullptr;
  uint64_t ticket = 0;
  uint32_t depth = 0; // of the enclosing repeats
  Iterations iterations{};
};

// Of the calling thread, which works for microseconds, then sleeps, often on a core that computes. Linux gives it the
// core when a message comes, not at the end of the other thread's turn, if the turns it asks for are short (6.12 and
// later; nothing happens elsewhere). Its share of the core stays what it is.
void askForShortTurns();

class Stream {
public:
  // Called on the progress thread, one item after the other.
  using Execute = void (*)(void *context, const StreamItem &item);

  static Expected<std::unique_ptr<Stream>> create(Execute execute, void *context);
  ~Stream();
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;

  // Waits while the FIFO is full.
  void push(const StreamItem &item);
  // Waits until everything pushed so far has been executed.
  void drain();

private:
  Stream() = default;
  void progress();

  static constexpr uint64_t capacity = 256;
  std::array<StreamItem, capacity> items;
  uint64_t pushed = 0, executed = 0; // both guarded by `mutex`
  bool stop = false;
  std::mutex mutex;
  std::condition_variable changed;
  Execute execute = nullptr;
  void *context = nullptr;
  pthread_t thread{};
  bool started = false;
};

} // namespace braid::runtime
