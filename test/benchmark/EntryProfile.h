// Where the time of one entry goes: every executed command is matched with the command of the program file it came
// from, which tells kernel, FLOPs and bytes.
#pragma once

#include "runtime/Session.h"
#include "runtime/Trace.h"
#include "test/benchmark/Probes.h"

#include <functional>

namespace braid::benchmark {

// A command in the order of execution, repeats unrolled.
struct ExecutedCommand {
  std::string kind; // as traces call it
  std::string work; // kernel, "oneDNN gemm", "oneDNN grouped_gemm", copy, ...
  Product product;  // library calls
  double bytes = 0; // of all its buffers: at most what it reads and writes
};

// The commands of an entry that traces report, for programs of one rank.
Expected<std::vector<ExecutedCommand>> executedCommands(const runtime::Program &program, const std::string &entry);

struct EntryProfile {
  std::vector<ExecutedCommand> commands;
  std::vector<std::vector<double>> seconds; // per command, of every traced run

  double medianSeconds(size_t command) const { return median(seconds[command]); }
  double fastestSeconds(size_t command) const;
  // FLOPs of the library calls of one run.
  double productFlops() const;
  // Commands of equal work, by time: [{"work", "calls", "ms", "fastest_ms", "share", "gbytes_per_s"}, ..].
  Json byWork() const;
  // The same by family: library calls, and kernels by the beginning of their names.
  Json byFamily() const;
  // Library calls of equal shape, with what each reaches alone.
  Json products(const std::vector<Product> &distinct, const std::vector<Rate> &alone) const;
  std::vector<Product> distinctProducts() const;

private:
  Json grouped(const std::function<std::string(const ExecutedCommand &)> &key) const;
};

// Executes `run` (one execution of the entry) `runs` times with the trace on.
Expected<EntryProfile> profileEntry(runtime::Session &session, const std::string &entry, int runs,
                                    const std::function<Status()> &run);

} // namespace braid::benchmark
