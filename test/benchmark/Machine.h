// What the benchmark knows about the machine and about itself: CPU, load, memory, CPU time, child processes.
#pragma once

#include "runtime/Expected.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace braid::benchmark {

using Json = nlohmann::ordered_json;
using runtime::Expected;
using runtime::Status;

// Processor, cores, vector extensions, memory, system, date.
Json describeMachine();
// To stdout, with the machine and the threads that were measured.
void printReport(Json report, int threads);
// 0: not known.
uint64_t lastLevelCacheBytes();
// Bytes of a line of /proc/self/status: VmRSS (resident now), VmHWM (most resident so far).
uint64_t memoryStatus(const std::string &key);
void resetPeakMemory();

// CPU time of this process and of all processes, to tell how much of the machine the others had.
struct CpuClock {
  double wall = 0, own = 0, busy = 0, stolen = 0, cores = 0; // seconds; `busy` includes `own`

  static CpuClock now();
};
// Over an interval: load average at its end, own CPU seconds, share of the cores that others used or the host stole.
Json interference(const CpuClock &begin, const CpuClock &end);

struct ChildResult {
  double wall = 0, cpu = 0; // seconds
  uint64_t peakBytes = 0;   // resident
  std::string output;       // stdout
};
// Runs a program to its end; its stdout goes to `outputFile` first. An error tells the exit status.
Expected<ChildResult> runChild(const std::vector<std::string> &command, const std::string &outputFile);

// Median, fastest and the tenth and ninetieth percentile of times in seconds, as milliseconds.
Json milliseconds(std::vector<double> seconds);
double median(std::vector<double> values);

} // namespace braid::benchmark
