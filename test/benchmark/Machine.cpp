#include "test/benchmark/Machine.h"

#include "runtime/cpu/CpuFeatures.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ;

namespace braid::benchmark {
namespace {

std::string firstLineAfter(const std::string &file, const std::string &key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key))
      if (size_t begin = line.find_first_not_of(" \t:", key.size()); begin != std::string::npos)
        return line.substr(begin);
  return "";
}

double seconds(const timeval &time) { return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec; }

Json loadAverage() {
  double loads[3] = {};
  if (getloadavg(loads, 3) != 3)
    return nullptr;
  return {loads[0], loads[1], loads[2]};
}

} // namespace

Json describeMachine() {
  Json features = Json::array();
  for (const char *feature : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni",
                              "avx512bf16", "amx-tile", "amx-bf16", "amx-int8"})
    if (runtime::hasCpuFeature(feature))
      features.push_back(feature);
  utsname system{};
  uname(&system);
  std::time_t now = std::time(nullptr);
  char date[32] = "";
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {{"cpu", firstLineAfter("/proc/cpuinfo", "model name")},
          {"cores", std::thread::hardware_concurrency()},
          {"cpu_features", features},
          {"caches",
           {{"l1d_bytes", sysconf(_SC_LEVEL1_DCACHE_SIZE)},
            {"l2_bytes", sysconf(_SC_LEVEL2_CACHE_SIZE)},
            {"l3_bytes", sysconf(_SC_LEVEL3_CACHE_SIZE)}}},
          {"memory_bytes", memory},
          {"system", std::string(system.sysname) + " " + system.release},
          {"date", date},
          {"load_average", loadAverage()}};
}

void printReport(Json report, int threads) {
  report["threads"] = threads;
  report["machine"] = describeMachine();
  fmt::print("{}\n", report.dump(1));
}

// Of the caches that the kernel lists for the first core. sysconf() counts all of a socket's, of which a virtual
// machine has a part.
uint64_t lastLevelCacheBytes() {
  uint64_t level = 0, kilobytes = 0;
  for (int index = 0; index < 8; ++index) {
    std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    std::ifstream levelFile(folder + "level"), sizeFile(folder + "size"); // "3", "32768K"
    uint64_t thisLevel = 0, size = 0;
    if (levelFile >> thisLevel && sizeFile >> size && thisLevel >= level) {
      level = thisLevel;
      kilobytes = size;
    }
  }
  return kilobytes * 1024;
}

uint64_t memoryStatus(const std::string &key) {
  std::string text = firstLineAfter("/proc/self/status", key);
  return text.empty() ? 0 : std::stoull(text) * 1024; // kB
}

void resetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

CpuClock CpuClock::now() {
  CpuClock clock;
  clock.wall = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  clock.own = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  // cpu user nice system idle iowait irq softirq steal
  std::istringstream in(firstLineAfter("/proc/stat", "cpu "));
  double user = 0, nice = 0, kernel = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  in >> user >> nice >> kernel >> idle >> iowait >> irq >> softirq >> steal;
  double tick = static_cast<double>(sysconf(_SC_CLK_TCK));
  clock.busy = (user + nice + kernel + irq + softirq) / tick;
  clock.stolen = steal / tick;
  clock.cores = std::thread::hardware_concurrency();
  return clock;
}

Json interference(const CpuClock &begin, const CpuClock &end) {
  double wall = std::max(1e-9, end.wall - begin.wall), own = end.own - begin.own;
  double others = std::max(0.0, end.busy - begin.busy - own) / (wall * end.cores);
  return {{"load_average", loadAverage()},
          {"own_cpu_seconds", own},
          {"own_share_of_cores", own / (wall * end.cores)},
          {"others_share_of_cores", others},
          {"stolen_share_of_cores", (end.stolen - begin.stolen) / (wall * end.cores)}};
}

Expected<ChildResult> runChild(const std::vector<std::string> &command, const std::string &outputFile) {
  std::vector<char *> arguments;
  for (const std::string &word : command)
    arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, outputFile.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  auto start = std::chrono::steady_clock::now();
  pid_t child = 0;
  int failure = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure)
    return Status::error(runtime::ErrorCode::ioError, "cannot start {}: error {}", command[0], failure);
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, 0, &usage) < 0)
    if (errno != EINTR)
      return Status::error(runtime::ErrorCode::ioError, "cannot wait for {}: error {}", command[0], errno);
  ChildResult result;
  result.wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  result.peakBytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  std::ostringstream text;
  text << std::ifstream(outputFile).rdbuf();
  result.output = text.str();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return WIFEXITED(status) ? Status::error("{} ended with exit status {}", command[0], WEXITSTATUS(status))
                             : Status::error("{} ended by signal {}", command[0], WTERMSIG(status));
  return result;
}

double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Json milliseconds(std::vector<double> seconds) {
  if (seconds.empty())
    return nullptr;
  std::sort(seconds.begin(), seconds.end());
  auto at = [&](double share) {
    return 1e3 * seconds[static_cast<size_t>(share * static_cast<double>(seconds.size() - 1) + 0.5)];
  };
  return {{"median", 1e3 * median(seconds)},
          {"fastest", at(0)},
          {"p10", at(0.1)},
          {"p90", at(0.9)},
          {"runs", seconds.size()}};
}

} // namespace braid::benchmark
