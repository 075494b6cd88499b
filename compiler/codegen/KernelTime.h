//===- KernelTime.h - where the time of compiling one kernel went -------------------------------------------------===//
#ifndef COMPILER_CODEGEN_KERNELTIME_H
#define COMPILER_CODEGEN_KERNELTIME_H

#include <ctime>
#include <string>
#include <utility>

namespace braid {

/// Milliseconds of CPU that this thread has taken since the last lap: others that run beside it do not count.
class ThreadClock {
public:
  double lap() {
    double now = read();
    return now - std::exchange(before, now);
  }

private:
  static double read() {
    timespec time = {};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
  }
  double before = read();
};

/// In milliseconds.
struct KernelTime {
  std::string name;
  double lowering = 0, optimizing = 0, emitting = 0; ///< milliseconds of CPU
  bool kept = false; ///< its code came from a cache
};

} // namespace braid

#endif // COMPILER_CODEGEN_KERNELTIME_H
