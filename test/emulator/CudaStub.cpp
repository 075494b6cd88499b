//===- CudaStub.cpp - a libcuda.so.1 without a GPU, for tests -----------------------------------------------------===//
//
// The functions of NVIDIA's driver that braid-run calls. Kernels are those of programs compiled with --arch=..,emulated: the same
// threads of the same blocks, run by the ThreadEmulator that is linked in. Work that is put on a stream waits there until
// the host synchronises: then the streams of its device take turns, the last one first, held together by events alone. So what an asynchronous device might
// do late is done late: a result that is read too early is not there, an input that is changed too early is changed, and a wait that
// is missing between two streams changes results. A graph has streams of its own for its branches, and new events in each launch.
// Device memory begins as NaN, unless all of an allocation is cleared before anything else runs, and the host cannot touch it: it is mapped while the device works, no longer.
// Each device has its memory, streams and context; one thread of the process at a time is inside.
//
// Environment: BRAID_STUB_LOG=FILE gets a line for each call; BRAID_STUB_MEMORY, BRAID_STUB_DEVICES (and of the machine's which is the first: BRAID_STUB_FIRST), BRAID_STUB_CAPABILITY (90)
// and BRAID_STUB_DRIVER (13000) say what the device and its driver are; BRAID_STUB_ORDER=first lets the first stream go first;
// BRAID_STUB_DEAF=N: waits of streams with number N are not done (a stream's number is its place among its device's); BRAID_STUB_FAIL=cuMemAlloc or =cuMemcpyDtoHAsync makes that call fail,
// in the latter case what is recorded too.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "test/emulator/CudaStubDevice.h"
#include "test/emulator/StubHooks.h"
#include "test/emulator/ThreadEmulator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace stub;

namespace {

int deviceCount() { return static_cast<int>(number("BRAID_STUB_DEVICES", 1)); }

CUctx_st &deviceOf(int ordinal) {
  static std::map<int, CUctx_st> made;
  return made[ordinal];
}

thread_local CUctx_st *current = nullptr;
CUctx_st &device() { return current ? *current : deviceOf(0); }

CUstream_st &streamOf(cuda::Stream stream);

/// Onto the stream, or into the graph that is recorded.
void put(cuda::Stream stream, CUstream_st::Work work) {
  CUstream_st &to = streamOf(stream);
  to.launched &= !work.run && !work.until && !work.ready;
  if (to.capturing) {
    ++to.before[&to];
    to.capturing->works.emplace_back(&to, std::move(work));
  } else {
    to.queue.push_back(std::move(work));
  }
}
void put(cuda::Stream stream, std::function<void()> run) { put(stream, {nullptr, nullptr, std::move(run), nullptr}); }

void merge(Before &into, const Before &from) {
  for (auto [stream, count] : from)
    into[stream] = std::max(into[stream], count);
}

CUstream_st *newStream(CUctx_st &of) {
  of.streams.push_back(new CUstream_st{of.nextStream++, &of});
  return of.streams.back();
}

CUstream_st &streamOf(cuda::Stream stream) { return stream ? *stream : device().legacy; }
/// Pages that nobody may touch, `guard` more behind them; null where there are none. They begin where a huge page may: each time that a device runs
/// all of its memory is mapped and unmapped, page by page.
char *reserve(size_t bytes, size_t guard) {
  constexpr size_t huge = 2 << 20;
  size_t align = bytes < huge ? 0 : huge;
  void *found = mmap(nullptr, bytes + guard + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED)
    return nullptr;
  auto *pages = static_cast<char *>(found);
  if (!align)
    return pages;
  size_t before = -reinterpret_cast<uintptr_t>(pages) % align;
  if (before)
    munmap(pages, before);
  munmap(pages + before + bytes + guard, align - before);
  madvise(pages + before, bytes, MADV_HUGEPAGE); // as it comes where there are none
  return pages + before;
}

char *pointer(cuda::Address address) { return reinterpret_cast<char *>(address); }

/// How many of a launch's words are slots. The rest are tensor maps, before which zeros fill the last 128 bytes; the last
/// slot is an address.
size_t slotsOf(const std::vector<int64_t> &words) {
  constexpr size_t line = 128 / sizeof(int64_t), map = sizeof(cuda::TensorMap) / sizeof(int64_t);
  size_t end = words.size();
  while (end > map && words[end - map] == static_cast<int64_t>(StubTensorMap::theMark))
    end -= map;
  if (end == words.size())
    return end;
  if (end % line)
    fail("cuLaunchKernel: tensor maps begin at " + std::to_string(end * sizeof(int64_t)) + ", no multiple of 128");
  for (size_t zeros = 0; zeros + 1 < line && words[end - 1] == 0; ++zeros)
    --end;
  return end;
}

void checkDevice(cuda::Address address, size_t bytes, const char *call, cuda::Stream stream) {
  if (!(stream ? *stream->device : device()).owns(address, bytes))
    fail(std::string(call) + ": " + std::to_string(bytes) + " bytes that are not of one allocation");
}

} // namespace

extern "C" {

int cuInit(unsigned) {
  if (number("BRAID_STUB_DEVICES", 1) == 0)
    return noDevice;
  // Kernels find the emulator's functions, however this library was opened.
  Dl_info self;
  if (!dladdr(reinterpret_cast<void *>(&cuInit), &self) ||
      !dlopen(self.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD))
    fail("cannot find itself");
  log("cuInit");
  return success;
}

int cuDriverGetVersion(int *version) {
  *version = static_cast<int>(number("BRAID_STUB_DRIVER", 13000));
  return success;
}

int cuGetErrorName(int error, const char **text) {
  static const std::map<int, const char *> names{{invalidValue, "CUDA_ERROR_INVALID_VALUE"},
                                                 {outOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                 {noDevice, "CUDA_ERROR_NO_DEVICE"},
                                                 {invalidImage, "CUDA_ERROR_INVALID_IMAGE"},
                                                 {notFound, "CUDA_ERROR_NOT_FOUND"},
                                                 {captureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
                                                 {illegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                 {captureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
                                                 {captureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
                                                 {capturedEvent, "CUDA_ERROR_CAPTURED_EVENT"},
                                                 {captureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}};
  auto found = names.find(error);
  *text = found == names.end() ? nullptr : found->second;
  return found == names.end() ? invalidValue : success;
}

int cuGetErrorString(int, const char **text) {
  *text = "as the stub says";
  return success;
}

int cuDeviceGetCount(int *count) {
  *count = deviceCount();
  return success;
}

int cuDeviceGet(cuda::Device *found, int ordinal) {
  if (ordinal < 0 || ordinal >= deviceCount())
    return invalidDevice;
  *found = ordinal;
  return success;
}

int cuDeviceGetName(char *name, int length, cuda::Device) {
  std::snprintf(name, static_cast<size_t>(length), "stub");
  return success;
}

int cuDeviceGetUuid_v2(cuda::Uuid *uuid, cuda::Device ordinal) {
  *uuid = {};
  uuid->bytes[0] = static_cast<char>(number("BRAID_STUB_FIRST", 0) + ordinal);
  return success;
}

int cuDeviceGetAttribute(int *value, cuda::DeviceAttribute attribute, cuda::Device) {
  int capability = static_cast<int>(number("BRAID_STUB_CAPABILITY", 90));
  switch (attribute) {
  case cuda::DeviceAttribute::multiprocessors: *value = 3; return success;
  case cuda::DeviceAttribute::capabilityMajor: *value = capability / 10; return success;
  case cuda::DeviceAttribute::capabilityMinor: *value = capability % 10; return success;
  case cuda::DeviceAttribute::sharedBytesOptIn: *value = 227 << 10; return success;
  }
  return invalidValue;
}

int cuDevicePrimaryCtxRetain(cuda::Context *context, cuda::Device ordinal) {
  std::lock_guard lock(mutex);
  *context = &deviceOf(ordinal);
  return success;
}

int cuDevicePrimaryCtxRelease_v2(cuda::Device) {
  log("cuDevicePrimaryCtxRelease");
  return success;
}

int cuCtxSetCurrent(cuda::Context context) {
  current = context;
  return success;
}

int cuModuleLoadData(cuda::Module *module, const void *image) {
  const auto &header = *static_cast<const Elf64_Ehdr *>(image);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_X86_64)
    return invalidImage;
  size_t bytes = header.e_shoff + size_t(header.e_shnum) * header.e_shentsize;
  int descriptor = memfd_create("kernels", 0);
  if (descriptor < 0 || write(descriptor, image, bytes) != static_cast<ssize_t>(bytes))
    fail("cannot write the kernels to memory");
  std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(dlerror());
  *module = new CUmod_st{library, descriptor};
  log("cuModuleLoadData %zu", bytes);
  return success;
}

int cuModuleUnload(cuda::Module module) {
  dlclose(module->library);
  close(module->descriptor);
  delete module;
  log("cuModuleUnload");
  return success;
}

int cuModuleGetFunction(cuda::Function *function, cuda::Module module, const char *name) {
  auto run = reinterpret_cast<decltype(CUfunc_st::run)>(dlsym(module->library, name));
  if (!run)
    return notFound;
  std::lock_guard lock(mutex);
  static std::deque<CUfunc_st> functions; // as long as the process
  *function = &functions.emplace_back(CUfunc_st{run, name});
  return success;
}

int cuFuncSetAttribute(cuda::Function function, cuda::FunctionAttribute attribute, int value) {
  if (attribute != cuda::FunctionAttribute::dynamicSharedBytes || value > 227 << 10)
    return invalidValue;
  function->sharedBytes = value;
  return success;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, cuda::Function, int, size_t) {
  *blocks = 1;
  return success;
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
  std::lock_guard lock(mutex);
  *total = device().total();
  *available = *total - device().used;
  return success;
}

int cuMemAlloc_v2(cuda::Address *address, size_t bytes) {
  std::lock_guard lock(mutex);
  if (bytes == 0)
    return invalidValue;
  if (failing("cuMemAlloc"))
    return illegalAddress;
  if (bytes > device().total() - device().used)
    return outOfMemory;
  constexpr size_t page = 4096, align = 256;
  size_t mapped = (bytes + page - 1) / page * page;
  char *pages = reserve(mapped, page);
  if (!pages)
    return outOfMemory;
  auto *start = pages + (mapped - bytes) / align * align;
  *address = reinterpret_cast<cuda::Address>(start);
  device().memory[*address] = {pages, mapped, bytes};
  device().used += bytes;
  log("cuMemAlloc %zu", bytes);
  return success;
}

int cuMemFree_v2(cuda::Address address) {
  std::lock_guard lock(mutex);
  auto found = device().memory.find(address);
  if (found == device().memory.end())
    return invalidValue;
  munmap(found->second.pages, found->second.mapped + 4096);
  device().used -= found->second.bytes;
  device().memory.erase(found);
  log("cuMemFree");
  return success;
}

int cuMemHostRegister_v2(void *address, size_t bytes, unsigned) {
  std::lock_guard lock(mutex);
  device().pinned[reinterpret_cast<uintptr_t>(address)] = bytes;
  log("cuMemHostRegister %zu", bytes);
  return success;
}

int cuMemHostUnregister(void *address) {
  std::lock_guard lock(mutex);
  log("cuMemHostUnregister");
  return device().pinned.erase(reinterpret_cast<uintptr_t>(address)) ? success : invalidValue;
}

int cuMemcpyHtoDAsync_v2(cuda::Address target, const void *source, size_t bytes, cuda::Stream stream) {
  std::lock_guard lock(mutex);
  checkDevice(target, bytes, "cuMemcpyHtoDAsync", stream);
  bool pinned = device().isPinned(source, bytes);
  log("cuMemcpyHtoDAsync %zu stream %d%s", bytes, streamOf(stream).number, pinned ? " pinned" : "");
  if (pinned) {
    put(stream, [=] { std::memcpy(pointer(target), source, bytes); });
    return success;
  }
  // Other memory is read before the call returns.
  auto *from = static_cast<const char *>(source);
  put(stream, [target, held = std::vector<char>(from, from + bytes)] {
    std::memcpy(pointer(target), held.data(), held.size());
  });
  return success;
}

int cuMemcpyDtoHAsync_v2(void *target, cuda::Address source, size_t bytes, cuda::Stream stream) {
  std::lock_guard lock(mutex);
  checkDevice(source, bytes, "cuMemcpyDtoHAsync", stream);
  if (failing("cuMemcpyDtoHAsync")) {
    if (CUgraph_st *graph = streamOf(stream).capturing)
      graph->invalid = true;
    return illegalAddress;
  }
  log("cuMemcpyDtoHAsync %zu stream %d%s", bytes, streamOf(stream).number,
      device().isPinned(target, bytes) ? " pinned" : "");
  put(stream, [=] { std::memcpy(target, pointer(source), bytes); });
  return success;
}

int cuMemcpyDtoDAsync_v2(cuda::Address target, cuda::Address source, size_t bytes, cuda::Stream stream) {
  std::lock_guard lock(mutex);
  checkDevice(target, bytes, "cuMemcpyDtoDAsync", stream);
  checkDevice(source, bytes, "cuMemcpyDtoDAsync", stream);
  if (target < source + bytes && source < target + bytes && target != source)
    fail("cuMemcpyDtoDAsync: the bytes overlap");
  log("cuMemcpyDtoDAsync %zu stream %d", bytes, streamOf(stream).number);
  put(stream, [=] { std::memmove(pointer(target), pointer(source), bytes); });
  return success;
}

int cuMemsetD8Async(cuda::Address target, unsigned char value, size_t bytes, cuda::Stream stream) {
  std::lock_guard lock(mutex);
  checkDevice(target, bytes, "cuMemsetD8Async", stream);
  log("cuMemsetD8Async %zu stream %d", bytes, streamOf(stream).number);
  CUstream_st::Work work;
  work.run = [=] { std::memset(pointer(target), value, bytes); };
  auto whole = device().memory.find(target);
  if (value == 0 && whole != device().memory.end() && whole->second.bytes == bytes)
    work.cleared = target;
  put(stream, std::move(work));
  return success;
}

int cuStreamCreate(cuda::Stream *stream, unsigned) {
  std::lock_guard lock(mutex);
  *stream = newStream(device());
  log("cuStreamCreate %d", (*stream)->number);
  return success;
}

static constexpr int leastPriority = 0, greatestPriority = -5; // of an H100

int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = leastPriority;
  *greatest = greatestPriority;
  return success;
}

int cuStreamCreateWithPriority(cuda::Stream *stream, unsigned, int priority) {
  if (priority > leastPriority || priority < greatestPriority)
    fail("cuStreamCreateWithPriority: " + std::to_string(priority)); // a driver takes the nearest there is
  std::lock_guard lock(mutex);
  *stream = newStream(device());
  log("cuStreamCreateWithPriority %d priority %d", (*stream)->number, priority);
  return success;
}

int cuStreamDestroy_v2(cuda::Stream stream) {
  std::unique_lock lock(mutex);
  log("cuStreamDestroy %d", stream->number);
  stream->device->run(*stream, lock);
  std::erase(stream->device->streams, stream);
  delete stream;
  return success;
}

int cuStreamSynchronize(cuda::Stream stream) {
  std::unique_lock lock(mutex);
  CUstream_st &of = streamOf(stream);
  if (of.capturing)
    return captureUnsupported;
  log("cuStreamSynchronize %d", of.number);
  of.device->run(of, lock);
  return success;
}

/// Whoever asks waits, so the device works.
int cuStreamQuery(cuda::Stream stream) {
  std::lock_guard lock(mutex);
  CUstream_st &of = streamOf(stream);
  if (of.capturing)
    return captureUnsupported;
  of.device->advance(of);
  return of.queue.empty() ? success : cuda::notReady;
}

int cuStreamBeginCapture_v2(cuda::Stream stream, int) {
  std::lock_guard lock(mutex);
  if (!stream || stream->capturing)
    return invalidValue;
  static uint64_t captures = 0;
  stream->capturing = new CUgraph_st{++captures, stream, {}, {stream}};
  stream->before.clear();
  stream->launched = false;
  log("cuStreamBeginCapture %d", stream->number);
  return success;
}

int cuStreamEndCapture(cuda::Stream stream, cuda::Graph *graph) {
  std::lock_guard lock(mutex);
  *graph = nullptr;
  CUgraph_st *ended = streamOf(stream).capturing;
  log("cuStreamEndCapture %d", streamOf(stream).number);
  if (!ended || ended->origin != stream)
    return invalidValue;
  bool joined =
      std::ranges::all_of(ended->streams, [&](CUstream_st *one) { return stream->before[one] >= one->before[one]; });
  for (CUstream_st *one : ended->streams)
    one->capturing = nullptr;
  if (joined && !ended->invalid) {
    *graph = ended;
    return success;
  }
  int code = ended->invalid ? captureInvalidated : captureUnjoined;
  delete ended;
  return code;
}

int cuGraphInstantiateWithFlags(cuda::GraphExec *executable, cuda::Graph graph, unsigned long long) {
  std::lock_guard lock(mutex);
  log("cuGraphInstantiate %zu", graph->works.size());
  auto *made = new CUgraphExec_st{*graph, {}};
  for (CUstream_st *stream : graph->streams)
    if (stream != graph->origin)
      made->branches[stream] = newStream(*stream->device);
  *executable = made;
  return success;
}

int cuGraphLaunch(cuda::GraphExec executable, cuda::Stream stream) {
  std::lock_guard lock(mutex);
  log("cuGraphLaunch stream %d", streamOf(stream).number);
  std::map<std::shared_ptr<bool>, std::shared_ptr<bool>> events; // of the recording, of this launch
  auto now = [&](const std::shared_ptr<bool> &event) -> std::shared_ptr<bool> {
    if (!event)
      return nullptr;
    std::shared_ptr<bool> &made = events[event];
    if (!made)
      made = std::make_shared<bool>(false);
    return made;
  };
  for (const auto &[captured, work] : executable->graph.works) {
    CUstream_st *to = captured == executable->graph.origin ? stream : executable->branches.at(captured);
    put(to, {now(work.until), work.ready, work.run, now(work.happens)});
  }
  return success;
}

int cuGraphExecDestroy(cuda::GraphExec executable) {
  std::unique_lock lock(mutex);
  for (auto [captured, stream] : executable->branches) {
    CUctx_st &of = *stream->device;
    of.run(*stream, lock);
    std::erase(of.streams, stream);
    delete stream;
  }
  delete executable;
  return success;
}

int cuGraphDestroy(cuda::Graph graph) {
  delete graph;
  return success;
}

int cuStreamWaitEvent(cuda::Stream stream, cuda::Event event, unsigned) {
  std::lock_guard lock(mutex);
  log("cuStreamWaitEvent stream %d", streamOf(stream).number);
  if (!event->happened)
    return success;
  CUstream_st &to = streamOf(stream);
  if (event->capture) {
    auto with = std::ranges::find_if(to.device->streams, [&](CUstream_st *one) {
      return one->capturing && one->capturing->number == event->capture;
    });
    if (with == to.device->streams.end())
      return capturedEvent;
    if (!to.capturing) { // it joins
      to.capturing = (*with)->capturing;
      to.before.clear();
      to.capturing->streams.push_back(&to);
    }
  }
  if ((to.capturing ? to.capturing->number : 0) != event->capture)
    return captureIsolation;
  if (to.capturing)
    merge(to.before, event->before);
  bool isDeaf = number("BRAID_STUB_DEAF", -1) == to.number;
  put(stream, {isDeaf ? nullptr : event->happened, nullptr, nullptr, nullptr});
  return success;
}

int cuEventCreate(cuda::Event *event, unsigned) {
  *event = new CUevent_st;
  log("cuEventCreate");
  return success;
}

int cuEventDestroy_v2(cuda::Event event) {
  delete event;
  return success;
}

int cuEventRecord(cuda::Event event, cuda::Stream stream) {
  std::lock_guard lock(mutex);
  log("cuEventRecord stream %d", streamOf(stream).number);
  event->happened = std::make_shared<bool>(false);
  put(stream, {nullptr, nullptr, nullptr, event->happened});
  event->capture = streamOf(stream).capturing ? streamOf(stream).capturing->number : 0;
  event->before = streamOf(stream).before;
  return success;
}

int cuFuncGetParamInfo(cuda::Function function, size_t number, size_t *offset, size_t *bytes) {
  constexpr size_t begin = 0x210, alignment = 128; // of the memory of parameters, and of one with tensor maps
  if (number != 0)
    return invalidValue;
  std::lock_guard lock(mutex);
  *offset = function->offset = (begin + alignment - 1) / alignment * alignment - begin;
  *bytes = 0; // not known here
  return success;
}

int cuTensorMapEncodeTiled(cuda::TensorMap *map, cuda::TensorMapType type, unsigned rank, void *address,
                           const uint64_t *sizes, const uint64_t *strides, const unsigned *box, const unsigned *steps,
                           int interleave, int swizzle, int promotion, int fill) {
  constexpr uint64_t mostSize = uint64_t(1) << 32, endOfStrides = uint64_t(1) << 40;
  bool isF32 = type == cuda::TensorMapType::f32;
  if (reinterpret_cast<uintptr_t>(map) % 64 || (!isF32 && type != cuda::TensorMapType::bf16) || rank < 1 || rank > 5 ||
      !address || reinterpret_cast<uintptr_t>(address) % 16 || interleave != cuda::interleaveNone ||
      swizzle < cuda::swizzle32Bytes || swizzle > cuda::swizzle128Bytes || promotion < 0 || promotion > 3 || fill < 0 ||
      fill > 1)
    return invalidValue;
  StubTensorMap made;
  made.address = reinterpret_cast<uintptr_t>(address);
  made.type = static_cast<uint32_t>(type);
  made.rank = rank;
  std::string text;
  for (unsigned d = 0; d < rank; ++d) {
    if (sizes[d] < 1 || sizes[d] > mostSize || box[d] < 1 || box[d] > 256 || steps[d] < 1 || steps[d] > 8)
      return invalidValue;
    // That stride 0 is refused the header does not say.
    if (d > 0 && (strides[d - 1] == 0 || strides[d - 1] % 16 || strides[d - 1] >= endOfStrides))
      return invalidValue;
    made.sizes[d] = sizes[d];
    made.box[d] = box[d];
    text += " " + std::to_string(sizes[d]);
    if (d > 0) {
      made.strides[d - 1] = strides[d - 1];
      text += "@" + std::to_string(strides[d - 1]);
    }
    text += "/" + std::to_string(box[d]);
  }
  if (unsigned row = box[0] * (isF32 ? 4 : 2); row % 16 || row > 16u << swizzle)
    return invalidValue;
  std::memcpy(map->words, &made, sizeof(made));
  log("cuTensorMapEncodeTiled %s%s", isF32 ? "f32" : "bf16", text.c_str());
  return success;
}

} // extern "C"

namespace {

int launch(cuda::Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,
           unsigned blockZ, unsigned sharedBytes, cuda::Stream stream, void **parameters, void **extra,
           const char *how) {
  if (gridX == 0 || gridY != 1 || gridZ != 1 || blockX == 0 || blockX > 1024 || blockY != 1 || blockZ != 1 ||
      static_cast<int>(sharedBytes) > function->sharedBytes || parameters)
    return invalidValue;
  if (extra[0] != cuda::launchParamBuffer || extra[2] != cuda::launchParamBufferSize ||
      extra[4] != cuda::launchParamEnd)
    return invalidValue;
  std::lock_guard lock(mutex);
  size_t bytes = *static_cast<size_t *>(extra[3]) - function->offset;
  auto *first = reinterpret_cast<const int64_t *>(static_cast<const char *>(extra[1]) + function->offset);
  std::vector<int64_t> slots(first, first + bytes / sizeof(int64_t));
  log("cuLaunchKernel %s blocks %u threads %u shared %u%s stream %d", function->name.c_str(), gridX, blockX,
      sharedBytes, how, streamOf(stream).number);
  char *scratch = reinterpret_cast<char *>(slots[slotsOf(slots) - 1]);
  put(stream, [=] {
    braid_emulate_launch(gridX, blockX, sharedBytes, scratch);
    function->run(slots.data(), 0, gridX);
    braid_emulate_launch(0, 0, 0, nullptr);
  });
  streamOf(stream).launched = true;
  return success;
}

} // namespace

extern "C" {

int cuLaunchKernel(cuda::Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                   unsigned blockY, unsigned blockZ, unsigned sharedBytes, cuda::Stream stream, void **parameters,
                   void **extra) {
  return launch(function, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream, parameters, extra, "");
}

/// Before the launch before it has ended: here it is behind it all the same.
int cuLaunchKernelEx(const cuda::LaunchConfig *config, cuda::Function function, void **parameters, void **extra) {
  const cuda::LaunchConfig &c = *config;
  if (c.attributeCount != 1 || c.attributes[0].id != cuda::LaunchAttributeId::programmaticStreamSerialization ||
      c.attributes[0].value.allowed != 1)
    return invalidValue;
  if (std::lock_guard lock(mutex); !streamOf(c.stream).launched)
    fail("a launch of @" + function->name + " that may be early is behind something else than a launch on stream " +
         std::to_string(streamOf(c.stream).number));
  return launch(function, c.gridX, c.gridY, c.gridZ, c.blockX, c.blockY, c.blockZ, c.dynamicSharedBytes, c.stream,
                parameters, extra, " early");
}

void braidStubPut(cuda::Stream stream, std::function<void()> run, const char *line, std::function<bool()> ready) {
  std::lock_guard lock(mutex);
  if (line)
    log("%s stream %d", line, streamOf(stream).number);
  put(stream, {nullptr, std::move(ready), std::move(run), nullptr});
}

void braidStubCheck(const void *bytes, size_t size, const char *call, cuda::Stream stream) {
  std::lock_guard lock(mutex);
  checkDevice(reinterpret_cast<cuda::Address>(bytes), size, call, stream);
}

} // extern "C"

// The functions above are what the runtime asks for.
#define BRAID_CUDA_SAME(name, parameters)                                                                              \
  static_assert(std::is_same_v<decltype(&name), decltype(cuda::Driver::name)>, #name);
BRAID_CUDA_FUNCTIONS(BRAID_CUDA_SAME)
BRAID_CUDA_NEWER_FUNCTIONS(BRAID_CUDA_SAME)
