// MemoryCheck: what stands in for a sanitizer inside of compiled kernels and libraries, which nobody instruments. After
// every command all arenas are compared with what they held before: only what the program says the command writes may
// differ, and nothing in the slack behind an arena's end. Scratch arenas are full of NaNs when a run begins, so that a
// value that nobody wrote shows in the results. Costs a copy of all arenas and a pass over them for every command.
//
// On in builds under the address sanitizer (BRAID_CHECK_MEMORY), or where SessionOptions::checkMemory asks for it; for
// programs of one rank, whose commands run one after the other.
#pragma once

#include "runtime/Arenas.h"
#include "runtime/RunWatcher.h"

#include <memory>

namespace braid::runtime {

class MemoryCheck {
public:
  MemoryCheck(const Program &program, const Arenas &arenas);

  // Before a run of an entry. False: this one is not checked (the first runs of an entry are, later ones now and then).
  bool begin(uint32_t entry);
  // An error names the first byte that the command may not have written.
  Status after(const WatchedCommand &command);

private:
  struct Range {
    uint64_t begin, end; // bytes in the arena
  };
  std::string describe(const WatchedCommand &command, uint32_t arena, uint64_t at) const;

  const Program &program;
  const Arenas &arenas;
  std::vector<std::unique_ptr<std::byte[]>> held; // of every arena and its slack, before the command
  std::vector<uint64_t> runs; // of every entry
  std::vector<std::vector<Range>> written; // by the command, per arena
};

} // namespace braid::runtime
