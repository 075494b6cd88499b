#include "runtime/comm/Processes.h"

#include "runtime/comm/MpiWorld.h"

#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

namespace braid::runtime {

namespace {

struct Started {
  const char *by = nullptr; // the launcher
  const char *variable = nullptr; // of the environment, which says so
  const char *rankVariable = nullptr; // which of them this is
  int size = 0;
};

// What launchers tell the processes they start. Not SLURM_NTASKS: a batch script has it too, and starts braid-run
// alone.
constexpr Started launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"mpiexec", "PMI_SIZE", "PMI_RANK"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
};

// Absent, or no number: 0.
int numberIn(const char *variable) {
  const char *text = std::getenv(variable);
  if (!text)
    return 0;
  int number = 0;
  const char *end = text + std::strlen(text);
  auto [stop, error] = std::from_chars(text, end, number);
  return error == std::errc() && stop == end && number > 0 ? number : 0;
}

// The first that has started processes. srun --mpi=pmi2 says PMI_SIZE too, for all tasks of its step; an mpiexec that srun
// started once on every machine says it for more.
Started findLauncher() {
  Started found;
  for (Started started : launchers) {
    started.size = numberIn(started.variable);
    if (started.size > 0 &&
        (found.size == 0 || (found.by == std::string_view("mpiexec") && found.size == started.size)))
      found = started;
  }
  return found;
}

#if BRAID_HAVE_MPI
// Calls `stuck` of the watch if it lives longer than the watch's timeout.
class Waiting {
public:
  Waiting(const Started &started, const StartWatch &watch) : started(started), watch(watch) {
    if (watch.stuck && started.size > 1)
      watcher = std::thread([this] { wait(); });
  }
  ~Waiting() {
    {
      std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_all();
    if (watcher.joinable())
      watcher.join();
  }

private:
  void wait() {
    // The first one speaks, whose end is that of all; or, when that is the one that is missing, another.
    constexpr std::chrono::seconds forTheFirst{5};
    int rank = numberIn(started.rankVariable);
    std::unique_lock lock(mutex);
    auto isOver = [&] { return over; };
    if (changed.wait_for(lock, watch.timeout, isOver) || (rank > 0 && changed.wait_for(lock, forTheFirst, isOver)))
      return;
    watch.stuck(Status::error(ErrorCode::deadlineExceeded,
                              "rank {} waited {} ms for the other {} that {} started; not all of them came", rank,
                              watch.timeout.count(), started.size - 1, started.by));
  }

  const Started &started;
  const StartWatch &watch;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread watcher; // last: it uses the others
};
#endif

} // namespace

std::optional<Launcher> parseLauncher(std::string_view name) {
  if (name == "auto")
    return Launcher::automatic;
  if (name == "threads")
    return Launcher::threads;
  if (name == "mpi")
    return Launcher::mpi;
  return std::nullopt;
}

Expected<std::unique_ptr<Processes>> joinProcesses(Launcher launcher, const StartWatch &watch) {
  Started started = findLauncher();
  if (launcher == Launcher::threads || (launcher == Launcher::automatic && started.size <= 1))
    return std::unique_ptr<Processes>();
#if BRAID_HAVE_MPI
  auto start = [&] {
    Waiting waiting(started, watch);
    return startMpi(started.by ? started.by : "the launcher");
  };
  BRAID_ASSIGN(std::unique_ptr<Processes> processes, start());
  if (started.size && processes->size() != started.size)
    return Status::error(
        ErrorCode::unsupported,
        "{} started {} processes ({}), but MPI sees {}: this braid-run was built with {}, which must be "
        "the MPI of the launcher",
        started.by, started.size, started.variable, processes->size(), mpiLibrary());
  return processes;
#else
  return Status::error(ErrorCode::unsupported,
                       "{}, but this braid-run was built without MPI: build it where MPI is installed, or let ranks be "
                       "threads of one process (--launcher=threads)",
                       started.by
                           ? fmt::format("{} started {} processes ({})", started.by, started.size, started.variable)
                           : "--launcher=mpi was given");
#endif
}

} // namespace braid::runtime
