// CudaDevice: what a rank owns on a GPU to execute a program: one allocation for all arenas, kernels, streams, events. Commands are put
// on streams in the order of the list and nobody waits for them; events hold the streams together as the list says. The
// host waits where an entry ends. Everything is made by create() and capture(): a run allocates nothing.
//
// What an entry puts on its streams is the same in every run, so it is recorded once: a CUDA graph, or two where an update begins, between
// which the host may look at outputs. The other streams branch off the first where an entry begins, and join it where it ends, and
// launches that do not depend on each other (schema: Command.joined) lie on streams of their own beside it. An
// entry whose collectives need numbers of the host (counts of an all_to_all) is not recorded: its list is walked in every run.
//
// The host has arenas of the same layout, of which only what it looks at takes memory: inputs go from there to the device when an
// entry begins, outputs come back when it ends, both from pinned pages; other tensors travel when they are asked for. Inputs of the
// next run may travel beside this one, to memory of their own (stage).
#pragma once

#include "runtime/Arenas.h"
#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/TensorMaps.h"

#include <chrono>
#include <functional>
#include <memory>

namespace braid::runtime {

class CudaDevice {
public:
  struct Options {
    int ordinal = 0; // of those that the driver shows (CUDA_VISIBLE_DEVICES chooses)
    // Of several ranks: whether the others still work, asked while the host waits for what may never come, and how long.
    std::function<Status()> alive = nullptr;
    std::chrono::milliseconds timeout{0};
  };
  // An error says what the device or its driver lacks, or which arenas are too large for its memory. Arenas start zeroed.
  static Expected<std::unique_ptr<CudaDevice>> create(const Program &program, const Arenas &host,
                                                      const Options &options);
  ~CudaDevice();
  CudaDevice(const CudaDevice &) = delete;
  CudaDevice &operator=(const CudaDevice &) = delete;

  // Addresses of the device: of an arena; of the scratch that is the last slot of every launch.
  std::byte *base(uint32_t arena) const { return reinterpret_cast<std::byte *>(memory + offsets[arena]); }
  int64_t scratch() const { return static_cast<int64_t>(memory + scratchOffset); }

  // Records an entry: `walk` puts all of it on the stream and calls part() where an update begins. Nothing is executed.
  Status capture(uint32_t entry, const std::function<Status()> &walk);
  Status part(uint32_t entry);
  bool captured(uint32_t entry) const { return entry < graphs.size() && !graphs[entry].empty(); }
  size_t parts(uint32_t entry) const { return graphs[entry].size(); }
  // A recorded part; inputs come before the first one, outputs are at the end of each.
  Status replay(uint32_t entry, size_t part);

  // Inputs of the next run of an entry, beside what the streams do. Before the host writes them: inputsTaken(), until this run
  // has its own. They have left the host when the call returns, and are what the next run takes unless they are dropped before.
  Status inputsTaken();
  Status stage(uint32_t entry, std::span<const TensorInfo *const> tensors);
  void dropStaged(uint32_t entry) {
    if (stagedEntry == entry)
      std::fill(staged.begin(), staged.end(), false);
  }

  // Copies the entry's inputs to the device; behind what the streams were given before.
  Status begin(uint32_t entry);
  // One block for each program, or as many as run at a time where the kernel has scratch or any number of them does all of the work.
  Status launch(uint32_t stream, uint32_t kernel, std::span<const int64_t> slots, int64_t programs);
  // Launch number `place` of those that may run beside each other on the first stream, between beginJoined() and
  // endJoined() of as many.
  Status beginJoined(uint32_t count);
  Status launchJoined(uint32_t place, uint32_t kernel, std::span<const int64_t> slots, int64_t programs);
  Status endJoined(uint32_t count);
  // A product of the program's library commands: prepared before the first run, its number is what gemm() takes.
  Expected<uint32_t> prepareGemm(const GemmDesc &desc, uint32_t alignment) {
    return products->prepare(desc, alignment);
  }
  Status gemm(uint32_t stream, uint32_t product, const std::byte *a, const std::byte *b, std::byte *c,
              const std::byte *addend);
  Status copy(uint32_t stream, std::byte *target, const std::byte *source, uint64_t bytes);
  Status fill(uint32_t stream, std::byte *target, int value, uint64_t bytes);
  Status record(uint32_t stream, uint32_t event);
  Status wait(uint32_t stream, uint32_t event);
  // Around a collective of `stream` that is executed on `queue`, where its axis has one of its own. `inTurn`: behind all collectives
  // before it: kernels of two that wait for their peers hold a GPU's processors, and on another rank they could
  // come the other way round.
  Status beginCollective(uint32_t stream, uint32_t queue, bool inTurn);
  Status endCollective(uint32_t stream, uint32_t queue, bool inTurn);
  // For work that others put on it.
  cuda::Stream stream(uint32_t index) { return given(index); }
  // Copies the entry's outputs to the host.
  Status end(uint32_t entry);
  // Waits for all streams.
  Status synchronize();

  // Bytes of an arena, between the host's side and the device's; they have arrived when the call returns.
  Status toHost(uint32_t arena, uint64_t offset, uint64_t bytes);
  Status toDevice(uint32_t arena, uint64_t offset, uint64_t bytes);
  Status clear(uint32_t arena, uint64_t offset, uint64_t bytes);

private:
  struct Kernel {
    cuda::Function function;
    unsigned threads, sharedBytes;
    uint64_t scratchBytes; // of a block
    int64_t resident; // blocks that run at a time, where no others are started: 0: any number
    int64_t cluster; // blocks of a cluster
    int64_t workers; // the slot that says how many blocks there are; -1: none does
    bool waits; // its code begins by waiting for what its stream was given before
    cuda::TensorMaps maps;
  };
  struct Range {
    uint32_t arena;
    uint64_t offset, bytes;
    uint64_t staging; // of an input: where among those that are staged
  };

  CudaDevice(const cuda::Driver &driver, const Program &program, const Arenas &host, const Options &options)
      : driver(driver), program(program), host(host), options(options) {}
  Status open();
  Status checkArchitecture();
  Status loadKernels();
  Status allocate();
  Status makeStreams();
  std::vector<std::vector<Range>> boundTensors(bool inputs) const;
  enum class Between : uint8_t { streams, axes, collectives, joined, count }; // events beside the program's
  static constexpr uint32_t mostSides = 4; // streams beside the first
  uint32_t firstSide() const { return static_cast<uint32_t>(streams.size()) - sides; }
  uint32_t eventOf(Between use) const { return programEvents + static_cast<uint32_t>(use); }
  // The stream, which is given something else than a launch.
  cuda::Stream given(uint32_t stream) {
    launched[stream] = false;
    return streams[stream];
  }
  Status takeInputs(uint32_t entry);
  Status branch();
  // The stream goes on behind all that the other was given so far.
  Status follow(uint32_t stream, uint32_t other);
  Status beginPart();
  Status endPart(uint32_t entry);
  Status outOfMemory(uint64_t needed, size_t available, size_t total) const;

  const cuda::Driver &driver;
  const Program &program;
  const Arenas &host;
  Options options;
  cuda::Device device = 0;
  bool retained = false;
  cuda::Context context = nullptr;
  std::string deviceName;
  std::vector<cuda::Module> modules;
  std::vector<Kernel> kernels;
  std::vector<std::byte> parameters; // room for those of any kernel that has maps; the driver copies them
  cuda::Address memory = 0;
  std::vector<uint64_t> offsets; // of the arenas
  uint64_t scratchOffset = 0;
  std::unique_ptr<cuda::CublasLt> products; // null: the program calls no library
  uint64_t workspaceOffset = 0; // of the products on the first stream
  std::vector<void *> pinned;
  std::vector<cuda::Stream> streams; // by the program's, then those of joined launches
  uint32_t sides = 0; // how many of these
  std::vector<bool> launched; // by stream: whether what it was given last is a launch
  std::vector<cuda::Event> events; // the most that an entry has, and those between its streams
  uint32_t programEvents = 0;
  // Which part of a run an event was last recorded in: where a part ends all streams have met, so later ones need not wait for it.
  std::vector<uint64_t> recordedIn;
  uint64_t currentPart = 0;
  std::vector<std::vector<Range>> inputs, outputs; // by entry
  cuda::Stream copies = nullptr; // of staged inputs
  cuda::Event stagedThere = nullptr, taken = nullptr; // on the device; into the arena
  uint64_t stagingOffset = 0;
  uint32_t stagedEntry = 0;
  std::vector<bool> staged; // by its inputs
  std::vector<std::vector<cuda::GraphExec>> graphs; // by entry, its parts
};

} // namespace braid::runtime
