// Where the time of one entry goes: every executed command is matched with the command of the program file it came
// from, which tells kernel, FLOPs and bytes.
#pragma once

#include "runtime/Session.h"
#include "runtime/Trace.h"
#include "test/benchmark/Probes.h"

#include <algorithm>
#include <functional>

namespace braid::benchmark {

// A command in the order of execution, repeats unrolled.
struct ExecutedCommand {
  std::string kind; // as traces call it
  std::string work; // kernel, "oneDNN gemm", "oneDNN grouped_gemm", copy, ...
  Product product;  // library calls
  double touched = 0; // bytes of all its buffers: at most what it reads and writes
  // What the model asks for, counted by the compiler from the op's shapes; a copy or a fill is asked for by nobody.
  std::string op;
  double flops = 0, bytes = 0;
};

// The commands of an entry that traces report, for programs of one rank.
struct EntryCommands {
  std::vector<ExecutedCommand> list;
  double footprint = 0; // bytes of the arenas that some command of the entry may touch, each counted once
};
Expected<EntryCommands> executedCommands(const runtime::Program &program, const std::string &entry);

// What floors are made of: nothing of `flops` and `bytes` takes less than max(flops / flopRate, bytes / byteRate).
struct Rates {
  double flopRate = 0, byteRate = 0; // per second

  double floor(const ExecutedCommand &command) const {
    return std::max(command.flops / flopRate, command.bytes / byteRate);
  }
};

struct EntryProfile {
  std::vector<ExecutedCommand> commands;
  double footprint = 0;
  std::vector<std::vector<double>> seconds; // per command, of every traced run

  double medianSeconds(size_t command) const { return median(seconds[command]); }
  double fastestSeconds(size_t command) const;
  // FLOPs of the library calls of one run.
  double productFlops() const;
  // The sum of the commands' floors.
  double floorSeconds(const Rates &rates) const;
  // Commands of equal work, by time: [{"work", "calls", "ms", "fastest_ms", "share", "flops", "bytes", "floor_ms",
  // "of_floor", "bound"}, ..]; of_floor is floor / time, bound what makes the floor.
  Json byWork(const Rates &rates) const;
  // The same by family (library calls, and kernels by the beginning of their names), and by op of the model.
  Json byFamily(const Rates &rates) const;
  Json byOp(const Rates &rates) const;
  // Library calls of equal shape, with what each reaches alone.
  Json products(const std::vector<Product> &distinct, const std::vector<Rate> &alone) const;
  std::vector<Product> distinctProducts() const;

private:
  Json grouped(const std::function<std::string(const ExecutedCommand &)> &key, const Rates &rates) const;
};

// Executes `run` (one execution of the entry) `runs` times with the trace on.
Expected<EntryProfile> profileEntry(runtime::Session &session, const std::string &entry, int runs,
                                    const std::function<Status()> &run);

} // namespace braid::benchmark
