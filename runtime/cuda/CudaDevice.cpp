#include "runtime/cuda/CudaDevice.h"

#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <limits>

namespace braid::runtime {

using namespace cuda;

// A call of the driver by its name, and its error.
#define BRAID_CUDA(call, ...) BRAID_TRY(driver.check(driver.call(__VA_ARGS__), #call))

namespace {

constexpr uint64_t arenaAlignment = 256; // what cuMemAlloc gives, and arenas ask for
constexpr uint64_t alignedUp(uint64_t bytes) { return (bytes + arenaAlignment - 1) / arenaAlignment * arenaAlignment; }

bool hasProducts(const flatbuffers::Vector<flatbuffers::Offset<schema::Command>> &list) {
  return std::any_of(list.begin(), list.end(), [](const schema::Command *command) {
    const auto *repeat = command->body_as_Repeat();
    return command->body_as_Gemm() || (repeat && hasProducts(*repeat->commands()));
  });
}

// The most launches of a list that may run beside each other.
uint32_t mostJoined(const flatbuffers::Vector<flatbuffers::Offset<schema::Command>> &list) {
  uint32_t most = 0, now = 0;
  for (const auto *command : list) {
    now = command->joined() ? now + 1 : 1;
    most = std::max(most, now);
    if (const auto *repeat = command->body_as_Repeat())
      most = std::max(most, mostJoined(*repeat->commands()));
  }
  return most;
}

// The largest number of programs of each kernel's launches, in all entries.
void countPrograms(const flatbuffers::Vector<flatbuffers::Offset<schema::Command>> &list, std::vector<uint64_t> &most) {
  for (const auto *command : list) {
    if (const auto *repeat = command->body_as_Repeat())
      countPrograms(*repeat->commands(), most);
    const auto *launch = command->body_as_Launch();
    if (!launch)
      continue;
    uint64_t programs = 1;
    for (uint64_t extent : *launch->grid())
      programs *= extent;
    most[launch->kernel()] = std::max(most[launch->kernel()], programs);
  }
}

std::vector<const schema::Entry *> keptEntries(const Program &program) {
  std::vector<const schema::Entry *> entries;
  for (const EntryInfo &entry : program.entries())
    if (entry.kept)
      entries.push_back(program.file().entries()->Get(entry.index));
  return entries;
}

} // namespace

Expected<std::unique_ptr<CudaDevice>> CudaDevice::create(const Program &program, const Arenas &host,
                                                         const Options &options) {
  BRAID_ASSIGN(const Driver *driver, Driver::open());
  std::unique_ptr<CudaDevice> result(new CudaDevice(*driver, program, host, options));
  BRAID_TRY(result->open());
  BRAID_TRY(result->checkArchitecture());
  BRAID_TRY(result->loadKernels());
  for (const schema::Entry *entry : keptEntries(program))
    if (!result->products && hasProducts(*entry->commands())) {
      BRAID_ASSIGN(result->products, CublasLt::create());
    }
  BRAID_TRY(result->allocate());
  BRAID_TRY(result->makeStreams());
  return result;
}

CudaDevice::~CudaDevice() {
  if (!retained)
    return;
  // Errors of these say what was an error of the run, or come too late for anyone.
  if (context)
    driver.cuCtxSetCurrent(context);
  for (Stream stream : streams)
    driver.cuStreamSynchronize(stream);
  products.reset();
  for (const auto &entry : graphs)
    for (GraphExec part : entry)
      driver.cuGraphExecDestroy(part);
  for (Event event : {stagedThere, taken})
    if (event)
      driver.cuEventDestroy_v2(event);
  for (Event event : events)
    driver.cuEventDestroy_v2(event);
  if (copies)
    driver.cuStreamDestroy_v2(copies);
  for (Stream stream : streams)
    driver.cuStreamDestroy_v2(stream);
  for (void *pages : pinned)
    driver.cuMemHostUnregister(pages);
  if (memory)
    driver.cuMemFree_v2(memory);
  for (Module module : modules)
    driver.cuModuleUnload(module);
  driver.cuDevicePrimaryCtxRelease_v2(device);
}

Status CudaDevice::open() {
  int version = 0, needed = static_cast<int>(program.file().cuda_driver());
  BRAID_CUDA(cuDriverGetVersion, &version);
  if (version < needed)
    return Status::error(ErrorCode::unsupported,
                         "the driver is too old: it is for CUDA {}, but the program's kernels were assembled for {}; "
                         "valid: a driver for CUDA {} or later",
                         versionText(version), versionText(needed), versionText(needed));
  BRAID_CUDA(cuDeviceGet, &device, options.ordinal);
  char name[256] = {};
  BRAID_CUDA(cuDeviceGetName, name, static_cast<int>(sizeof(name)) - 1, device);
  deviceName = options.alive ? fmt::format("{}, number {}", name, options.ordinal) : name;
  BRAID_CUDA(cuDevicePrimaryCtxRetain, &context, device);
  retained = true;
  BRAID_CUDA(cuCtxSetCurrent, context);
  return Status::success();
}

// "sm_90a" runs on 9.0 alone, "sm_80" on 8.0 and later ones of the same generation.
Status CudaDevice::checkArchitecture() {
  std::string_view arch = program.arch();
  arch = arch.substr(0, arch.find(','));
  int major = 0, minor = 0, wanted = 0;
  BRAID_CUDA(cuDeviceGetAttribute, &major, DeviceAttribute::capabilityMajor, device);
  BRAID_CUDA(cuDeviceGetAttribute, &minor, DeviceAttribute::capabilityMinor, device);
  for (char c : arch.substr(std::min(arch.size(), std::string_view("sm_").size())))
    if (c >= '0' && c <= '9')
      wanted = wanted * 10 + (c - '0');
  bool exactly = arch.ends_with('a');
  if (exactly ? wanted == major * 10 + minor : wanted / 10 == major && wanted % 10 <= minor)
    return Status::success();
  return Status::error(ErrorCode::unsupported,
                       "the program's kernels are for {}, but the device ({}) has compute capability {}.{}; valid: a "
                       "program compiled with --arch for it",
                       arch, deviceName, major, minor);
}

Status CudaDevice::loadKernels() {
  const auto &table = *program.file().kernels();
  if (table.size() == 0)
    return Status::success();
  int multiprocessors = 0, mostShared = 0;
  BRAID_CUDA(cuDeviceGetAttribute, &multiprocessors, DeviceAttribute::multiprocessors, device);
  BRAID_CUDA(cuDeviceGetAttribute, &mostShared, DeviceAttribute::sharedBytesOptIn, device);
  uint64_t loaded = UINT64_MAX; // the image of the last module
  for (const auto *kernel : table) {
    const char *name = kernel->name()->c_str();
    auto failed = [&](Status status) { return status.withContext(fmt::format("kernel @{}", name)); };
    if (loaded != kernel->image_offset() || modules.empty()) {
      Module module = nullptr;
      BRAID_TRY(failed(driver.check(driver.cuModuleLoadData(&module, program.code().data() + kernel->image_offset()),
                                    "cuModuleLoadData")));
      modules.push_back(module);
      loaded = kernel->image_offset();
    }
    Kernel made{nullptr,
                kernel->threads(),
                static_cast<unsigned>(kernel->shared_bytes()),
                kernel->scratch_bytes(),
                0,
                kernel->cluster(),
                -1,
                kernel->waits(),
                {}};
    for (uint32_t i = 0; kernel->params() && i < kernel->params()->size(); ++i)
      if (kernel->params()->Get(i)->name()->string_view() == "workers") // passes/outline/ProductTiles.h
        made.workers = int64_t(cuda::gridSlots) + i;
    BRAID_TRY(
        failed(driver.check(driver.cuModuleGetFunction(&made.function, modules.back(), name), "cuModuleGetFunction")));
    BRAID_ASSIGN(made.maps, TensorMaps::create(driver, *kernel, made.function));
    if (!made.maps.empty())
      parameters.resize(std::max(parameters.size(), made.maps.blockBytes()));
    if (kernel->shared_bytes() > static_cast<uint64_t>(mostShared))
      return Status::error(ErrorCode::unsupported,
                           "kernel @{} needs {} bytes of shared memory in a block, but the device ({}) has {}", name,
                           kernel->shared_bytes(), deviceName, mostShared);
    BRAID_TRY(failed(driver.check(driver.cuFuncSetAttribute(made.function, FunctionAttribute::dynamicSharedBytes,
                                                            static_cast<int>(made.sharedBytes)),
                                  "cuFuncSetAttribute")));
    if (made.scratchBytes || made.workers >= 0) {
      int blocks = 0;
      BRAID_TRY(failed(driver.check(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                                        &blocks, made.function, static_cast<int>(made.threads), made.sharedBytes),
                                    "cuOccupancyMaxActiveBlocksPerMultiprocessor")));
      made.resident = std::max(int64_t(blocks) * multiprocessors / made.cluster, int64_t(1)) * made.cluster;
    }
    kernels.push_back(std::move(made));
  }
  return Status::success();
}

Status CudaDevice::allocate() {
  uint64_t needed = 0;
  for (const ArenaInfo &arena : program.arenas()) {
    offsets.push_back(needed);
    needed += alignedUp(arena.bytes);
  }
  scratchOffset = needed;
  std::vector<uint64_t> programs(kernels.size());
  for (const schema::Entry *entry : keptEntries(program))
    countPrograms(*entry->commands(), programs);
  uint64_t scratch = 0; // launches follow each other on one stream
  for (size_t i = 0; i < kernels.size(); ++i)
    scratch = std::max(scratch, kernels[i].scratchBytes * std::min(programs[i], uint64_t(kernels[i].resident)));
  needed += alignedUp(scratch);
  if (products) {
    workspaceOffset = needed;
    needed += CublasLt::workspaceBytes; // products stand on the first stream (CommandChecks)
  }
  stagingOffset = needed;
  inputs = boundTensors(/*inputs=*/true);
  outputs = boundTensors(/*inputs=*/false);
  uint64_t staging = 0, most = 0;
  for (const std::vector<Range> &list : inputs) {
    if (!list.empty())
      staging = std::max(staging, list.back().staging + alignedUp(list.back().bytes));
    most = std::max<uint64_t>(most, list.size());
  }
  staged.resize(most);
  needed += staging;
  if (needed == 0)
    return Status::success();
  size_t available = 0, total = 0;
  BRAID_CUDA(cuMemGetInfo_v2, &available, &total);
  if (needed > available)
    return outOfMemory(needed, available, total);
  if (int code = driver.cuMemAlloc_v2(&memory, needed); code != success) {
    memory = 0;
    if (code == cuda::outOfMemory)
      return outOfMemory(needed, available, total);
    return driver.check(code, "cuMemAlloc_v2").withContext(fmt::format("{} bytes for the program", needed));
  }
  for (uint32_t arena = 0; arena < program.arenas().size(); ++arena) {
    bool bound = std::any_of(program.tensors().begin(), program.tensors().end(), [&](const TensorInfo &tensor) {
      return tensor.arena == arena && (tensor.role == Role::input || tensor.role == Role::output);
    });
    if (!bound)
      continue;
    BRAID_CUDA(cuMemHostRegister_v2, host.base(arena), host.usable(arena), 0);
    pinned.push_back(host.base(arena));
  }
  // Behind everything that follows: streams begin later.
  BRAID_CUDA(cuMemsetD8Async, memory, 0, needed, nullptr);
  BRAID_CUDA(cuStreamSynchronize, nullptr);
  return Status::success();
}

// The largest arenas, and in each the largest tensor that has a name.
Status CudaDevice::outOfMemory(uint64_t needed, size_t available, size_t total) const {
  std::vector<uint32_t> order(program.arenas().size());
  for (uint32_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return program.arenas()[a].bytes > program.arenas()[b].bytes; });
  order.resize(std::min<size_t>(order.size(), 3));
  std::string list;
  for (uint32_t i : order) {
    const TensorInfo *largest = nullptr;
    for (const TensorInfo &tensor : program.tensors())
      if (tensor.arena == i && (!largest || tensor.bytes > largest->bytes))
        largest = &tensor;
    list +=
        fmt::format("{}'{}' {} bytes", list.empty() ? "" : ", ", program.arenas()[i].name, program.arenas()[i].bytes);
    if (largest)
      list += fmt::format(" (of which '{}' {})", largest->name, largest->bytes);
  }
  return Status::error(
      ErrorCode::ioError,
      "out of memory: the program needs {} bytes (the largest arenas are {}), but the device ({}) has {} "
      "of its {} bytes free; {}",
      needed, list, deviceName, available, total, waysToNeedLess);
}

Status CudaDevice::makeStreams() {
  for (const EntryInfo &entry : program.entries())
    programEvents = std::max(programEvents, entry.events);
  // Where blocks of several kernels wait for a processor, those of exchanges go first: other ranks wait for them, and
  // they leave most of the chip to the computation that is laid over them.
  int least = 0, greatest = 0;
  BRAID_CUDA(cuCtxGetStreamPriorityRange, &least, &greatest);
  // What computes beside the first stream takes what that leaves.
  auto computes = [](const StreamInfo &info) { return info.axis.empty(); };
  int first = std::ranges::count_if(program.streams(), computes) > 1 ? std::max(least - 1, greatest) : least;
  for (const StreamInfo &info : program.streams()) {
    Stream stream = nullptr;
    int priority = !computes(info) ? greatest : streams.empty() ? first : least;
    BRAID_CUDA(cuStreamCreateWithPriority, &stream, streamNonBlocking, priority);
    streams.push_back(stream);
  }
  uint32_t most = 0;
  for (const schema::Entry *entry : keptEntries(program))
    most = std::max(most, mostJoined(*entry->commands()));
  sides = std::min(most > 0 ? most - 1 : 0, mostSides);
  for (uint32_t i = 0; i < sides; ++i) {
    Stream stream = nullptr;
    BRAID_CUDA(cuStreamCreateWithPriority, &stream, streamNonBlocking, first);
    streams.push_back(stream);
  }
  for (uint32_t i = 0; i < eventOf(Between::count); ++i) {
    Event event = nullptr;
    BRAID_CUDA(cuEventCreate, &event, eventDisableTiming);
    events.push_back(event);
  }
  recordedIn.resize(events.size());
  launched.resize(streams.size());
  BRAID_CUDA(cuStreamCreate, &copies, streamNonBlocking);
  BRAID_CUDA(cuEventCreate, &stagedThere, eventDisableTiming);
  BRAID_CUDA(cuEventCreate, &taken, eventDisableTiming);
  return Status::success();
}

std::vector<std::vector<CudaDevice::Range>> CudaDevice::boundTensors(bool inputs) const {
  std::vector<std::vector<Range>> table;
  for (const EntryInfo &entry : program.entries()) {
    auto &list = table.emplace_back();
    uint64_t staging = 0;
    if (!entry.kept)
      continue;
    for (uint32_t index : inputs ? entry.inputs : entry.outputs) {
      const TensorInfo &tensor = program.tensors()[index];
      if (tensor.role != (inputs ? Role::input : Role::output) || tensor.bytes == 0)
        continue;
      list.push_back({tensor.arena, tensor.offset, tensor.bytes, staging});
      staging += alignedUp(tensor.bytes);
    }
  }
  return table;
}

// From where the last stage() has brought them, or from the host.
Status CudaDevice::takeInputs(uint32_t entry) {
  BRAID_CUDA(cuCtxSetCurrent, context); // of the calling thread
  bool any = stagedEntry == entry && std::find(staged.begin(), staged.end(), true) != staged.end();
  if (any)
    BRAID_CUDA(cuStreamWaitEvent, given(0), stagedThere, 0);
  for (size_t i = 0; i < inputs[entry].size(); ++i) {
    const Range &range = inputs[entry][i];
    Address target = memory + offsets[range.arena] + range.offset;
    if (any && staged[i])
      BRAID_CUDA(cuMemcpyDtoDAsync_v2, target, memory + stagingOffset + range.staging, range.bytes, given(0));
    else
      BRAID_CUDA(cuMemcpyHtoDAsync_v2, target, host.base(range.arena) + range.offset, range.bytes, given(0));
  }
  dropStaged(entry);
  BRAID_CUDA(cuEventRecord, taken, streams[0]);
  return Status::success();
}

Status CudaDevice::inputsTaken() {
  BRAID_CUDA(cuStreamWaitEvent, copies, taken, 0);
  BRAID_CUDA(cuStreamSynchronize, copies);
  return Status::success();
}

Status CudaDevice::stage(uint32_t entry, std::span<const TensorInfo *const> tensors) {
  stagedEntry = entry;
  for (size_t i = 0; i < inputs[entry].size(); ++i) {
    const Range &range = inputs[entry][i];
    staged[i] = std::any_of(tensors.begin(), tensors.end(), [&](const TensorInfo *tensor) {
      return tensor->arena == range.arena && tensor->offset == range.offset;
    });
    if (staged[i])
      BRAID_CUDA(cuMemcpyHtoDAsync_v2, memory + stagingOffset + range.staging, host.base(range.arena) + range.offset,
                 range.bytes, copies);
  }
  BRAID_CUDA(cuEventRecord, stagedThere, copies);
  BRAID_CUDA(cuStreamSynchronize, copies); // so that the host may write what it likes
  return Status::success();
}

Status CudaDevice::begin(uint32_t entry) {
  BRAID_TRY(takeInputs(entry));
  return branch();
}

// The other streams go on from where the first is.
Status CudaDevice::branch() {
  ++currentPart;
  std::fill(launched.begin(), launched.end(), false);
  if (firstSide() > 1)
    BRAID_TRY(record(0, eventOf(Between::streams)));
  for (uint32_t i = 1; i < firstSide(); ++i)
    BRAID_TRY(wait(i, eventOf(Between::streams)));
  return Status::success();
}

Status CudaDevice::launch(uint32_t stream, uint32_t kernel, std::span<const int64_t> slots, int64_t programs) {
  const Kernel &found = kernels[kernel];
  if (programs == 0)
    return Status::success();
  if (stream != 0 && stream < firstSide() && found.scratchBytes) { // all kernels have one scratch: in turn
    BRAID_TRY(follow(0, stream));
    BRAID_TRY(launch(0, kernel, slots, programs));
    return follow(stream, 0);
  }
  if (programs % found.cluster != 0)
    return Status::error(ErrorCode::corruptFile, "{} programs of @{}, whose blocks run in clusters of {}", programs,
                         program.kernels()[kernel], found.cluster);
  int64_t blocks = found.resident ? std::min(programs, found.resident) : programs;
  if (blocks > std::numeric_limits<int32_t>::max())
    return Status::error(ErrorCode::unsupported, "{} programs of @{}; a device takes at most {}", blocks,
                         program.kernels()[kernel], std::numeric_limits<int32_t>::max());
  std::vector<int64_t> fewer; // of a device that is smaller than what the program was compiled for
  if (found.workers >= 0 && blocks < programs) {
    fewer.assign(slots.begin(), slots.end());
    fewer[0] = fewer[static_cast<size_t>(found.workers)] = blocks; // its grid has one extent
    slots = fewer;
  }
  size_t bytes = slots.size_bytes();
  void *block = const_cast<int64_t *>(slots.data());
  if (!found.maps.empty()) {
    BRAID_TRY(found.maps.write(driver, slots, parameters.data()));
    bytes = found.maps.blockBytes();
    block = parameters.data();
  }
  void *extra[] = {launchParamBuffer, block, launchParamBufferSize, &bytes, launchParamEnd};
  auto count = static_cast<unsigned>(blocks);
  bool early = found.waits && launched[stream] && driver.cuLaunchKernelEx;
  launched[stream] = true;
  if (early) { // it waits by itself
    LaunchAttribute attribute = {LaunchAttributeId::programmaticStreamSerialization, {}, {}};
    attribute.value.allowed = 1;
    LaunchConfig config = {count, 1, 1, found.threads, 1, 1, found.sharedBytes, streams[stream], &attribute, 1};
    BRAID_CUDA(cuLaunchKernelEx, &config, found.function, nullptr, extra);
  } else {
    BRAID_CUDA(cuLaunchKernel, found.function, count, 1, 1, found.threads, 1, 1, found.sharedBytes, streams[stream],
               nullptr, extra);
  }
  return Status::success();
}

Status CudaDevice::follow(uint32_t stream, uint32_t other) {
  BRAID_TRY(record(other, eventOf(Between::joined)));
  return wait(stream, eventOf(Between::joined));
}

Status CudaDevice::beginJoined(uint32_t count) {
  BRAID_TRY(record(0, eventOf(Between::joined)));
  for (uint32_t i = 0; i < std::min(count - 1, sides); ++i)
    BRAID_TRY(wait(firstSide() + i, eventOf(Between::joined)));
  return Status::success();
}

Status CudaDevice::launchJoined(uint32_t place, uint32_t kernel, std::span<const int64_t> slots, int64_t programs) {
  uint32_t side = place % (sides + 1);
  // All kernels have one scratch, so those that use it follow each other.
  return launch(side == 0 || kernels[kernel].scratchBytes ? 0 : firstSide() + side - 1, kernel, slots, programs);
}

Status CudaDevice::endJoined(uint32_t count) {
  for (uint32_t i = 0; i < std::min(count - 1, sides); ++i) {
    BRAID_TRY(record(firstSide() + i, eventOf(Between::joined)));
    BRAID_TRY(wait(0, eventOf(Between::joined)));
  }
  return Status::success();
}

static Address address(const std::byte *pointer) { return reinterpret_cast<Address>(pointer); }

Status CudaDevice::gemm(uint32_t stream, uint32_t product, const std::byte *a, const std::byte *b, std::byte *c,
                        const std::byte *addend) {
  return products->run(product, given(stream), a, b, c, addend, memory + workspaceOffset);
}

Status CudaDevice::copy(uint32_t stream, std::byte *target, const std::byte *source, uint64_t bytes) {
  if (bytes == 0)
    return Status::success();
  BRAID_CUDA(cuMemcpyDtoDAsync_v2, address(target), address(source), bytes, given(stream));
  return Status::success();
}

Status CudaDevice::fill(uint32_t stream, std::byte *target, int value, uint64_t bytes) {
  if (bytes == 0)
    return Status::success();
  BRAID_CUDA(cuMemsetD8Async, address(target), static_cast<unsigned char>(value), bytes, given(stream));
  return Status::success();
}

Status CudaDevice::record(uint32_t stream, uint32_t event) {
  BRAID_CUDA(cuEventRecord, events[event], streams[stream]);
  recordedIn[event] = currentPart;
  return Status::success();
}

Status CudaDevice::wait(uint32_t stream, uint32_t event) {
  if (recordedIn[event] != currentPart)
    return Status::success();
  BRAID_CUDA(cuStreamWaitEvent, given(stream), events[event], 0);
  return Status::success();
}

Status CudaDevice::beginCollective(uint32_t stream, uint32_t queue, bool inTurn) {
  if (stream != queue) {
    BRAID_TRY(record(stream, eventOf(Between::axes)));
    BRAID_TRY(wait(queue, eventOf(Between::axes)));
  }
  return inTurn ? wait(queue, eventOf(Between::collectives)) : Status::success();
}

Status CudaDevice::endCollective(uint32_t stream, uint32_t queue, bool inTurn) {
  if (stream != queue) {
    BRAID_TRY(record(queue, eventOf(Between::axes)));
    BRAID_TRY(wait(stream, eventOf(Between::axes)));
  }
  return inTurn ? record(queue, eventOf(Between::collectives)) : Status::success();
}

Status CudaDevice::end(uint32_t entry) {
  for (uint32_t i = 1; i < firstSide(); ++i) {
    BRAID_TRY(record(i, eventOf(Between::streams)));
    BRAID_TRY(wait(0, eventOf(Between::streams)));
  }
  for (const Range &range : outputs[entry])
    BRAID_CUDA(cuMemcpyDtoHAsync_v2, host.base(range.arena) + range.offset,
               memory + offsets[range.arena] + range.offset, range.bytes, given(0));
  return Status::success();
}

Status CudaDevice::beginPart() {
  BRAID_CUDA(cuStreamBeginCapture_v2, streams[0], captureThreadLocal);
  return Status::success();
}

Status CudaDevice::part(uint32_t entry) {
  BRAID_TRY(endPart(entry));
  BRAID_TRY(beginPart());
  return branch();
}

Status CudaDevice::endPart(uint32_t entry) {
  Status status = end(entry);
  Graph graph = nullptr;
  // A capture that failed ends too, without a graph, and says no more than that: the cause is what failed before.
  int ended = driver.cuStreamEndCapture(streams[0], &graph);
  if (status.ok())
    status = driver.check(ended, "cuStreamEndCapture");
  GraphExec made = nullptr;
  if (status.ok())
    status = driver.check(
        driver.cuGraphInstantiateWithFlags(&made, graph, program.streams().size() > 1 ? graphNodePriorities : 0),
        "cuGraphInstantiateWithFlags");
  if (graph)
    driver.cuGraphDestroy(graph);
  BRAID_TRY(status);
  graphs[entry].push_back(made);
  return Status::success();
}

Status CudaDevice::capture(uint32_t entry, const std::function<Status()> &walk) {
  graphs.resize(program.entries().size());
  BRAID_TRY(beginPart());
  Status status = branch();
  if (status.ok())
    status = walk();
  if (status.ok())
    return endPart(entry);
  // What was begun ends, too.
  Graph rest = nullptr;
  if (driver.cuStreamEndCapture(streams[0], &rest) == success && rest)
    driver.cuGraphDestroy(rest);
  return status;
}

Status CudaDevice::replay(uint32_t entry, size_t part) {
  if (part == 0)
    BRAID_TRY(takeInputs(entry));
  BRAID_CUDA(cuGraphLaunch, graphs[entry][part], given(0));
  return Status::success();
}

Status CudaDevice::synchronize() {
  // Joined launches have met the first stream again.
  for (Stream stream : std::span(streams).first(firstSide())) {
    if (!options.alive) {
      BRAID_CUDA(cuStreamSynchronize, stream);
      continue;
    }
    BRAID_ASSIGN(bool done, driver.waitFor(stream, options.timeout, options.alive));
    if (!done)
      return Status::error(ErrorCode::deadlineExceeded,
                           "the device ({}) has not finished after {} ms: it waits for ranks that are lost or hang",
                           deviceName, options.timeout.count());
  }
  return Status::success();
}

Status CudaDevice::toHost(uint32_t arena, uint64_t offset, uint64_t bytes) {
  if (bytes == 0)
    return Status::success();
  BRAID_CUDA(cuCtxSetCurrent, context);
  BRAID_CUDA(cuMemcpyDtoHAsync_v2, host.base(arena) + offset, memory + offsets[arena] + offset, bytes, given(0));
  return synchronize();
}

Status CudaDevice::toDevice(uint32_t arena, uint64_t offset, uint64_t bytes) {
  if (bytes == 0)
    return Status::success();
  BRAID_CUDA(cuCtxSetCurrent, context);
  BRAID_CUDA(cuMemcpyHtoDAsync_v2, memory + offsets[arena] + offset, host.base(arena) + offset, bytes, given(0));
  return synchronize();
}

Status CudaDevice::clear(uint32_t arena, uint64_t offset, uint64_t bytes) {
  if (bytes == 0)
    return Status::success();
  BRAID_CUDA(cuCtxSetCurrent, context);
  return fill(0, base(arena) + offset, 0, bytes);
}

} // namespace braid::runtime
