// Processes: ranks that are processes, one each, which mpirun, srun or another launcher has started. Everything that
// knows a launcher or a library (MPI) is behind this; a build without MPI knows none.
#pragma once

#include "runtime/Communicator.h"

#include <chrono>
#include <functional>

namespace braid::runtime {

class Processes {
public:
  virtual ~Processes() = default;

  virtual int rank() const = 0; // of this process
  virtual int size() const = 0;
  virtual int onThisMachine() const = 0; // how many of them
  virtual int rankOnThisMachine() const = 0; // of this one among those
  virtual int cores() const = 0;         // for this process, when those on this machine share its cores evenly
  virtual std::string_view startedBy() const = 0; // "mpirun"

  // Collective. The communicators of this rank; valid as long as this object. `timeout`: how long a rank waits in one
  // collective while nothing comes.
  virtual Expected<std::unique_ptr<CommunicatorGroup>> connect(const MeshInfo &mesh,
                                                               std::chrono::milliseconds timeout) = 0;
  // The last call of a process whose work is done and whose peers' is.
  virtual void finish() = 0;
  // Ends every process of the job at once, this one with `code`.
  [[noreturn]] virtual void abortAll(int code) = 0;
};

enum class Launcher : uint8_t { automatic, threads, mpi };
std::optional<Launcher> parseLauncher(std::string_view name); // auto, threads, mpi

// What ends this process where peers do not come to the start: a library waits for them there and does not return.
struct StartWatch {
  std::chrono::milliseconds timeout{0};
  std::function<void(const Status &)> stuck = nullptr; // from another thread; null: nobody watches
};

// The processes that this one is one of; null: it was started alone, or its ranks are to be threads (`launcher`). Once
// per process.
Expected<std::unique_ptr<Processes>> joinProcesses(Launcher launcher, const StartWatch &watch = {});

} // namespace braid::runtime
