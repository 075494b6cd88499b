// MpiArrivals: sleeping until a message may have come. MPI can only be asked (MPI_Test), and asking costs a core that
// computes at the same time more than the messages do. Between two questions this sleeps until one of the sockets that
// the process holds can be read: those of the library are among them, and others. Sockets are a hint and nothing more: of
// a library that moves messages otherwise (shared memory, InfiniBand) the times of the pauses are the rhythm of the
// questions, short ones as soon as messages have come that no socket announced.
#pragma once

#include <chrono>
#include <cstdint>

namespace braid::runtime {

class MpiArrivals {
public:
  MpiArrivals() = default;
  ~MpiArrivals();
  MpiArrivals(const MpiArrivals &) = delete;
  MpiArrivals &operator=(const MpiArrivals &) = delete;

  // Before the first question about something new.
  void begin();
  // After every question; `progress`: something had come. Sleeps, or lets others run.
  void pause(bool progress);
  // How often in this process something had come in a pause that no socket ended; for tests.
  static uint64_t unannounced();
  // How many of them had been waited for at sockets to the end, in the belief that these announce messages; for tests.
  static uint64_t misled();

private:
  using Clock = std::chrono::steady_clock;

  // Something has come: whether a socket had announced it.
  void note();
  // All connected stream sockets of the process: the library opens them when ranks first meet. Those that are new may
  // be the library's.
  void findSockets();
  // Until a socket can be read, or the time is over; whether one can.
  bool sleep(std::chrono::microseconds most) const;

  int epoll = -1;
  bool announced = false; // messages come through sockets, as far as is known
  bool paused = false; // since begin()
  // In the last pause: believed so; listened to sockets; one of them could be read.
  bool waited = false, listened = false, woken = false;
  int misses = 0; // messages in a row that no socket had announced
  int questions = 0, idleWakes = 0; // in vain, since something came
  std::chrono::microseconds nap{0};
  Clock::time_point nextSearch{};
  std::chrono::milliseconds betweenSearches{0};
};

} // namespace braid::runtime
