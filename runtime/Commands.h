// Prepared commands: what Session::create makes of an entry's command list. Everything is resolved: functions,
// primitives, communicators, addresses. What is left for run() is adding strides of enclosing repeats.
#pragma once

#include "runtime/Arenas.h"
#include "runtime/Communicator.h"
#include "runtime/ProgramChecks.h"
#include "runtime/cpu/Gemm.h"
#include "runtime/cpu/GroupedGemm.h"
#include "runtime/cpu/KernelLibrary.h"

#include <array>
#include <deque>
#include <span>

namespace braid::schema {
struct Command;
}

namespace braid::runtime {

class CudaDevice;

using Iterations = std::array<int64_t, maxRepeatDepth>;

struct BufferRef {
  std::byte *base = nullptr;
  const int64_t *strides = nullptr; // bytes per iteration, outermost repeat first
  uint32_t strideCount = 0;
  uint64_t bytes = 0;

  std::byte *at(const Iterations &iterations) const {
    std::byte *address = base;
    for (uint32_t i = 0; i < strideCount; ++i)
      address += iterations[i] * strides[i];
    return address;
  }
};

struct LaunchCommand {
  // An argument slot whose address moves with the repeats.
  struct MovingSlot {
    uint32_t slot;
    BufferRef buffer;
  };
  KernelFunction function; // null: a GPU's
  uint32_t kernel; // in the program
  int64_t programs;
  uint64_t touched = 0; // bytes of its buffers
  std::vector<int64_t> slots; // rewritten in place: launches of a session never run at the same time
  std::vector<MovingSlot> moving;
};

// Launches that may run at the same time (schema: Command.joined), started once. Who executes what is decided when they
// are prepared: a launch of many programs is cut like any, so a thread meets the rows it worked on before; programs of
// small ones go to the thread that has least to do.
struct JoinedLaunches {
  struct Piece {
    uint32_t launch; // in Commands::launches
    int64_t begin, end; // programs
  };
  uint32_t first, count; // in Commands::launches
  std::vector<std::vector<Piece>> pieces; // per thread; of one thread only: the caller
};

struct GemmCommand {
  Gemm gemm; // a CPU's
  uint32_t product; // a GPU's: the number that the device gave it
  BufferRef a, b, c;
  std::optional<BufferRef> addend;
};

struct GroupedGemmCommand {
  GroupedGemm gemm;
  BufferRef a, b, c, offsets;
  std::optional<BufferRef> addend;
};

struct CollectiveCommand {
  CollectiveKind kind;
  Communicator *communicator;
  uint32_t fifo; // the stream that owns the communicator's FIFO; 0: none, the calling thread executes it
  DType dtype;
  BufferRef send, recv, sendCounts, recvCounts;
  uint64_t blockBytes, rowBytes;
  uint32_t countsPerPeer;
  bool cyclic, reverse;
  int distance;
  const char *name;
};

struct CopyCommand {
  BufferRef source, target;
};

struct FillCommand {
  BufferRef target;
  int value;
};

struct Command {
  enum class Kind : uint8_t { launch, gemm, groupedGemm, collective, copy, fill, record, wait, repeat };
  Kind kind;
  uint32_t stream;
  uint32_t index; // into the vector of its kind; record, wait: the event
  uint32_t end; // repeat: one past its body, which starts at the next command
  int64_t count; // repeat
  const char *name; // for traces
  const char *where; // for errors: "entry 'train_step' command 3.1 'layers.*.lsm.scan'"
  const schema::Command *source; // in the file
  bool updates; // touches optimizer state: a command of the update, not of the gradient
  uint32_t joined; // launch: so many commands from here on are one start of the threads, all of them if > 1
  uint32_t start; // joined > 1: into Commands::joined
  const char *op; // for traces: the model's op, or ""
  std::span<const int32_t> layers; // for traces: of every iteration of the enclosing repeats, whose counts are:
  const int64_t *counts;
  int32_t microBatch; // for traces: of a pipeline; -1: of none

  // The absolute layer that one execution belongs to, or -1.
  int32_t layerAt(const Iterations &iterations, uint32_t depth) const {
    uint64_t index = 0;
    for (uint32_t i = 0; i < depth; ++i)
      index = index * static_cast<uint64_t>(counts[i]) + static_cast<uint64_t>(iterations[i]);
    return index < layers.size() ? layers[index] : -1;
  }
};

struct PreparedEntry {
  uint32_t begin, end; // in Commands::list
  uint32_t events;
};

// All entries of a session.
struct Commands {
  std::vector<Command> list;
  std::vector<PreparedEntry> entries;
  std::vector<LaunchCommand> launches;
  std::vector<JoinedLaunches> joined;
  std::vector<GemmCommand> gemms;
  std::vector<GroupedGemmCommand> groupedGemms;
  std::vector<CollectiveCommand> collectives;
  std::vector<CopyCommand> copies;
  std::vector<FillCommand> fills;
  std::deque<std::string> texts; // what `name` and `where` point at
  std::deque<std::vector<int64_t>> strideLists; // what BufferRef::strides and Command::counts point at
};

// What commands of a session are prepared for: its own memory and a library of kernels, or a GPU.
struct CommandTarget {
  std::span<std::byte *const> arenas; // where each begins
  const KernelLibrary *kernels = nullptr; // null: launches are a GPU's
  MatmulCache *matmuls = nullptr; // with `kernels`
  CudaDevice *gpu = nullptr; // else
};

// Creates every primitive and communicator the program needs.
Status prepareCommands(const Program &program, const CommandTarget &target, CommunicatorGroup &group,
                       Commands &commands);

} // namespace braid::runtime
