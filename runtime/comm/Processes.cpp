#include "runtime/comm/Processes.h"

#include "runtime/comm/MpiWorld.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace braid::runtime {

namespace {

struct Started {
  const char *by = nullptr; // the launcher
  const char *variable = nullptr; // of the environment, which says so
  int size = 0;
};

// What launchers tell the processes they start. Not SLURM_NTASKS: a batch script has it too, and starts braid-run
// alone.
constexpr Started launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE"},
    {"mpiexec", "PMI_SIZE"},
    {"srun", "SLURM_STEP_NUM_TASKS"},
};

// Absent, or no number of processes: 0.
int sizeIn(const char *variable) {
  const char *text = std::getenv(variable);
  if (!text)
    return 0;
  int size = 0;
  const char *end = text + std::strlen(text);
  auto [stop, error] = std::from_chars(text, end, size);
  return error == std::errc() && stop == end && size > 0 ? size : 0;
}

// The first that has started processes. srun --mpi=pmi2 says PMI_SIZE too, for all tasks of its step; an mpiexec that srun
// started once on every machine says it for more.
Started findLauncher() {
  Started found;
  for (Started started : launchers) {
    started.size = sizeIn(started.variable);
    if (started.size > 0 &&
        (found.size == 0 || (found.by == std::string_view("mpiexec") && found.size == started.size)))
      found = started;
  }
  return found;
}

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

Expected<std::unique_ptr<Processes>> joinProcesses(Launcher launcher) {
  Started started = findLauncher();
  if (launcher == Launcher::threads || (launcher == Launcher::automatic && started.size <= 1))
    return std::unique_ptr<Processes>();
#if BRAID_HAVE_MPI
  BRAID_ASSIGN(std::unique_ptr<Processes> processes, startMpi(started.by ? started.by : "the launcher"));
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
