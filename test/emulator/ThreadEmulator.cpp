//===- ThreadEmulator.cpp - the threads of a GPU's blocks, on one thread of a CPU ---------------------------------===//
//
// Preloaded into a program that executes kernels compiled with --cpu=native,threads (braid-emulate-threads). Every thread
// of a block is a fiber; it runs until it waits for its warp (a shuffle, a matrix instruction) or for its block (a
// barrier). Between two barriers threads run one after the other, in the order that BRAID_EMULATE_ORDER says: `forward`,
// `reverse` or `shuffled`. A kernel that lacks a barrier gives other results in another order; BRAID_EMULATE_BARRIERS=off
// leaves them all out. What a thread writes to shared memory no other one may touch before the next barrier, in no order
// and even if it makes no difference. Shared memory begins as NaN. Such a touch ends the process with a message, as does what
// a GPU would hang on: a barrier that some threads of the block, or a shuffle that some lanes of the warp, never reach.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "test/emulator/ThreadEmulator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

/// Puts the registers that a function keeps, and the rounding mode, on the stack, goes on where `other` says, and leaves in
/// `self` where it was. As swapcontext, without its two system calls.
extern "C" void braidSwitch(void **self, void *other);
asm(R"(
.text
.globl braidSwitch
.hidden braidSwitch
.type braidSwitch, @function
braidSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 256 << 10, kGuardBytes = 4096;

constexpr int kGroup = 4 * kWarp; // a warpgroup

enum class State : uint8_t {
  ready,
  atShuffle,
  atLoad,
  atMultiply,
  atGroupMultiply,
  atPhase,
  atNamedBarrier,
  atBarrier,
  done
};

constexpr bool waitsForWarp(State state) {
  return state == State::atShuffle || state == State::atLoad || state == State::atMultiply;
}

[[noreturn]] void fail(const char *message, long thread) {
  std::fprintf(stderr, "thread emulator: %s (thread %ld)\n", message, thread);
  std::abort();
}

bool isSet(const char *variable, const char *value) {
  const char *text = std::getenv(variable);
  return text && std::strcmp(text, value) == 0;
}

/// Whole pages, with one in front and one behind that nobody may touch.
class Pages {
public:
  explicit Pages(size_t bytes) : bytes((bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes) {
    base = static_cast<char *>(mmap(nullptr, this->bytes + 2 * kGuardBytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base == MAP_FAILED)
      fail("no memory for a stack or a block", 0);
    mprotect(base, kGuardBytes, PROT_NONE);
    mprotect(end(), kGuardBytes, PROT_NONE);
  }
  Pages(const Pages &) = delete;
  ~Pages() { munmap(base, bytes + 2 * kGuardBytes); }
  size_t size() const { return bytes; }
  char *end() const { return base + kGuardBytes + bytes; }
  /// `count` bytes that end where the pages do, each of them NaN.
  char *last(size_t count) const {
    std::memset(end() - count, 0xff, count);
    return end() - count;
  }

private:
  size_t bytes;
  char *base;
};

/// mma.sync m16n8k16, bf16 in, f32 accumulated: registers of one lane.
struct Fragments {
  uint32_t a[4], b[2];
  float c[4];
};

/// A barrier in shared memory (mbarrier) that some arrivals and some bytes complete a phase of.
struct PhaseBarrier {
  int64_t arrivals, missing; ///< of every phase, of this one
  int64_t bytes = 0; ///< to come
  int64_t phases = 0; ///< that are over
};

/// A box on its way to shared memory, in whole chunks of 16 bytes.
struct BoxCopy {
  char *barrier;
  std::vector<std::pair<char *, std::vector<char>>> chunks;
};

struct Copy {
  char *target;
  const char *source;
  int32_t size, live;
  uint64_t begun; ///< behind so many barriers
};

/// Which threads wrote and read a byte of shared memory last, and behind how many barriers.
struct Touched {
  uint64_t written = 0, read = 0;
  int32_t writer = 0, reader = 0;
};
constexpr int32_t kSeveral = -1; ///< threads

/// wgmma m64nNk16, bf16 in, operands described as the PTX ISA has it, the left one perhaps in registers.
struct GroupProduct {
  uint64_t a, b;
  int32_t n, turnedA, turnedB; ///< turned: MN-major
  bool inRegisters = false; ///< a: each thread's `registers`
  bool operator==(const GroupProduct &) const = default;
};

/// One that is under way, and what it read.
struct InFlight {
  GroupProduct product;
  std::vector<uint16_t> a, b;
};

struct Fiber {
  void *context = nullptr; ///< its stack, where it waits
  std::unique_ptr<Pages> stack;
  State state = State::ready;
  int32_t value = 0, offset = 0, mode = 0, result = 0; ///< of a shuffle
  char *barrier = nullptr; ///< whose phases of parity `value` it waits for
  Fragments *fragments = nullptr;
  std::vector<Copy> copies; ///< under way
  std::vector<size_t> copyGroups; ///< where each group of them that was committed ends
  bool unfenced = false; ///< what copies wrote is not ordered before wgmma yet
  const GroupProduct *product = nullptr;
  float *sums = nullptr; ///< of this thread
  const uint16_t *row = nullptr; ///< of a matrix: 8 elements
  uint32_t *registers = nullptr; ///< what ldmatrix gives this lane: `value` of them, turned if `mode` is not 0
};

void execute(const Copy &copy) {
  std::memcpy(copy.target, copy.source, copy.live);
  std::memset(copy.target + copy.live, 0, copy.size - copy.live);
}

float fromBf16(uint32_t bits) {
  bits <<= 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

class Block {
public:
  void run(void (*body)(void *), void *args, int64_t program, int64_t count, int64_t sharedBytes) {
    entry = body;
    arguments = args;
    number = program;
    if (static_cast<int64_t>(fibers.size()) < count)
      fibers.resize(count);
    threads = count;
    // The end of shared memory lies at the end of a page: what is read behind it is an error at once.
    shared = take(sharedPages, sharedBytes);
    sharedSize = sharedBytes;
    touches.resize(std::max(touches.size(), static_cast<size_t>(sharedBytes)));
    ++barriers;
    global = nullptr;
    inFlight.assign(static_cast<size_t>((count + kGroup - 1) / kGroup), {});
    phaseBarriers.clear();
    boxes.clear();
    for (int64_t i = 0; i < count; ++i)
      begin(i);
    while (step()) {
    }
  }

  int64_t thread() const { return current; }
  int64_t block() const { return number; }
  char *memory() const { return shared; }

  /// The same for all threads of the block; NaN before the first of them writes it.
  void *scratch(int64_t bytes) {
    if (!global)
      global = take(globalPages, bytes);
    return global;
  }

  void wait(State state) {
    Fiber &fiber = fibers[current];
    fiber.state = state;
    braidSwitch(&fiber.context, scheduler);
  }
  Fiber &self() { return fibers[current]; }

  uint64_t barriersSoFar() const { return barriers; }
  /// This thread, or `several` of its warp or warpgroup, read or write shared memory, at any time since there were `since`
  /// barriers: no other thread may have touched the same bytes since then if one of the two writes.
  void touch(const void *address, int64_t bytes, bool writes, bool several, uint64_t since) {
    static const bool off = isSet("BRAID_EMULATE_BARRIERS", "off");
    int64_t first = static_cast<const char *>(address) - shared;
    if (off || first < 0 || first + bytes > sharedSize)
      return;
    auto thread = several ? kSeveral : static_cast<int32_t>(current);
    for (int64_t i = first; i < first + bytes; ++i) {
      Touched &byte = touches[i];
      if ((byte.written >= since && byte.writer != thread) || (writes && byte.read >= since && byte.reader != thread))
        fail("no barrier between two threads that touch the same byte of shared memory, one of which writes", current);
      if (writes) {
        byte.written = barriers;
        byte.writer = thread;
      } else {
        byte.reader = byte.read == barriers && byte.reader != thread ? kSeveral : thread;
        byte.read = barriers;
      }
    }
  }
  void touch(const void *address, int64_t bytes, bool writes) {
    touch(address, bytes, writes, /*several=*/false, barriers);
  }

  //===- Barriers in shared memory, and boxes that are copied -------------------------------------------------------===//

  void beginPhases(char *barrier, int64_t arrivals) { phaseBarriers[barrier] = {arrivals, arrivals}; }
  void arrive(char *barrier, int64_t bytes) {
    PhaseBarrier &found = phasesOf(barrier);
    if (found.missing == 0)
      fail("more arrivals at a barrier than it waits for", current);
    --found.missing;
    found.bytes += bytes;
    endPhase(found);
  }
  void await(char *barrier, int32_t parity) {
    while (phasesOf(barrier).phases % 2 == parity) {
      self().barrier = barrier;
      self().value = parity;
      wait(State::atPhase);
    }
  }
  /// It may be there at once, or not before everybody waits for it.
  void send(BoxCopy copy) {
    static const bool atOnce = isSet("BRAID_EMULATE_ORDER", "reverse");
    boxes.push_back(std::move(copy));
    if (atOnce)
      deliver();
  }

  void commitProducts() {
    if (current % kGroup == 0)
      inFlight[current / kGroup].emplace_back();
  }
  /// Nobody may have overwritten, until now, what products read that are done from here on.
  void awaitProducts(int32_t most) {
    if (current % kGroup != 0)
      return;
    auto &groups = inFlight[current / kGroup];
    // The last one is not committed yet.
    while (static_cast<int64_t>(groups.size()) - 1 > most) {
      for (const InFlight &one : groups.front())
        if ((!one.product.inRegisters && one.a != operand(one.product.a, one.product.turnedA, 64)) ||
            one.b != operand(one.product.b, one.product.turnedB, one.product.n))
          fail("operands of a wgmma were overwritten before it was waited for", current);
      groups.pop_front();
    }
  }

private:
  PhaseBarrier &phasesOf(char *barrier) {
    auto found = phaseBarriers.find(barrier);
    if (found == phaseBarriers.end())
      fail("a barrier in shared memory that was not begun", current);
    return found->second;
  }
  void endPhase(PhaseBarrier &barrier) {
    if (barrier.bytes < 0)
      fail("more bytes come to a barrier than it was told to expect", current);
    if (barrier.missing != 0 || barrier.bytes != 0)
      return;
    barrier.missing = barrier.arrivals;
    ++barrier.phases;
    ++barriers; // those behind it have seen what those before it did
  }
  void deliver() {
    for (BoxCopy &copy : std::exchange(boxes, {})) {
      for (auto &[target, bytes] : copy.chunks)
        std::memcpy(target, bytes.data(), bytes.size());
      PhaseBarrier &barrier = phasesOf(copy.barrier);
      for (auto &chunk : copy.chunks)
        barrier.bytes -= static_cast<int64_t>(chunk.second.size());
      endPhase(barrier);
    }
  }
  /// Those whose phases are over, once all copies are there, go on.
  bool releasePhases() {
    deliver();
    bool released = false;
    for (int64_t i = 0; i < threads; ++i)
      if (Fiber &fiber = fibers[i];
          fiber.state == State::atPhase && phasesOf(fiber.barrier).phases % 2 != fiber.value) {
        fiber.state = State::ready;
        released = true;
      }
    return released;
  }
  /// The barrier that so many threads of the block wait at.
  bool releaseNamed() {
    for (int64_t i = 0; i < threads; ++i) {
      if (fibers[i].state != State::atNamedBarrier)
        continue;
      auto same = [&](const Fiber &fiber) {
        return fiber.state == State::atNamedBarrier && fiber.value == fibers[i].value;
      };
      auto end = fibers.begin() + threads;
      if (std::count_if(fibers.begin(), end, same) != fibers[i].offset)
        continue;
      int32_t name = fibers[i].value;
      for (auto fiber = fibers.begin(); fiber != end; ++fiber)
        if (fiber->state == State::atNamedBarrier && fiber->value == name)
          fiber->state = State::ready;
      ++barriers;
      return true;
    }
    return false;
  }

  static char *take(std::unique_ptr<Pages> &pages, int64_t count) {
    auto bytes = static_cast<size_t>((count + 15) / 16 * 16);
    if (!pages || pages->size() < bytes)
      pages = std::make_unique<Pages>(bytes);
    return pages->last(bytes);
  }

  void begin(int64_t i) {
    Fiber &fiber = fibers[i];
    if (!fiber.stack)
      fiber.stack = std::make_unique<Pages>(kStackBytes);
    // What braidSwitch takes from a stack: the rounding mode, six registers, where to go on.
    auto *words = reinterpret_cast<uint64_t *>(fiber.stack->end()) - 11; // a function begins 8 bytes off 16
    std::fill_n(words, 11, 0);
    asm volatile("stmxcsr %0" : "=m"(*reinterpret_cast<uint32_t *>(words)));
    words[7] = reinterpret_cast<uint64_t>(&Block::start);
    fiber.context = words;
    fiber.state = State::ready;
    fiber.copies.clear();
    fiber.copyGroups.clear();
    fiber.unfenced = false;
    if (i % kGroup == 0)
      inFlight[i / kGroup].assign(1, {});
  }
  static void start();

  /// Lets every thread run to where it waits, then releases those whose warp or block is complete. False: all are done.
  bool step() {
    order.resize(threads);
    std::iota(order.begin(), order.end(), 0);
    static const bool reverse = isSet("BRAID_EMULATE_ORDER", "reverse"),
                      shuffled = isSet("BRAID_EMULATE_ORDER", "shuffled");
    if (reverse)
      std::reverse(order.begin(), order.end());
    else if (shuffled)
      std::shuffle(order.begin(), order.end(), random);
    for (int64_t i : order) {
      if (fibers[i].state != State::ready)
        continue;
      current = i;
      braidSwitch(&scheduler, fibers[i].context);
    }
    bool warpReleased = false;
    for (int64_t first = 0; first < threads; first += kWarp)
      warpReleased |= releaseWarp(first, std::min<int64_t>(first + kWarp, threads));
    for (int64_t first = 0; first < threads; first += kGroup)
      warpReleased |= releaseGroup(first, std::min<int64_t>(first + kGroup, threads));
    if (warpReleased || releaseNamed() || releasePhases())
      return true;
    int64_t atBarrier = 0, done = 0;
    for (int64_t i = 0; i < threads; ++i) {
      atBarrier += fibers[i].state == State::atBarrier;
      done += fibers[i].state == State::done;
    }
    if (done == threads)
      return false;
    if (atBarrier != threads)
      for (int64_t i = 0; i < threads; ++i)
        if (fibers[i].state != State::atBarrier)
          fail(fibers[i].state == State::done ? "a barrier that not all threads of the block reach; one is at its end"
               : fibers[i].state == State::atPhase
                   ? "a phase of a barrier in shared memory that never ends"
                   : "a barrier that not all threads of the block reach; one waits for its warp or warpgroup",
               i);
    ++barriers;
    for (int64_t i = 0; i < threads; ++i)
      fibers[i].state = State::ready;
    return true;
  }

  bool releaseWarp(int64_t first, int64_t end) {
    State state = fibers[first].state;
    for (int64_t i = first; i < end; ++i) {
      bool waits = waitsForWarp(fibers[i].state);
      if (waits && fibers[i].state != state)
        fail("lanes of a warp wait in different places", i);
      if (!waits && state != fibers[i].state && waitsForWarp(state))
        fail("a shuffle that not all lanes of the warp reach", i);
    }
    if (!waitsForWarp(state))
      return false;
    if (end - first != kWarp)
      fail("a warp of fewer than 32 threads", first);
    if (state == State::atShuffle)
      exchange(first);
    else if (state == State::atLoad)
      loadMatrices(first);
    else
      multiply(first);
    for (int64_t i = first; i < end; ++i)
      fibers[i].state = State::ready;
    return true;
  }

  /// A warpgroup multiplies when all of its warps are there.
  bool releaseGroup(int64_t first, int64_t end) {
    auto waits = [&](int64_t i) { return fibers[i].state == State::atGroupMultiply; };
    for (int64_t i = first; i < end; ++i)
      if (!waits(i))
        return false;
    if (end - first != kGroup)
      fail("a warpgroup of fewer than 128 threads", first);
    for (int64_t i = first; i < end; ++i)
      if (!(*fibers[i].product == *fibers[first].product))
        fail("threads of a warpgroup multiply different matrices", i);
    for (int64_t i = 0; i < threads; ++i)
      if (fibers[i].unfenced)
        fail("a wgmma behind copies of a thread without a fence of the async proxy", i);
    multiplyGroup(first);
    for (int64_t i = first; i < end; ++i)
      fibers[i].state = State::ready;
    return true;
  }

  /// Element [i of m or n, k] for all of `count` x 16. Addresses: bits 0-13 of the descriptor, 16-29 (LBO) and 32-45 (SBO), in units of 16 bytes; with a
  /// swizzle of 128 bytes, bits 4-6 of an address are combined with bits 7-9. A K-major matrix has eight rows of 128 bytes, SBO from those to the next;
  /// an MN-major one eight k of 64 elements, SBO to the next eight, LBO to the next 64.
  std::vector<uint16_t> operand(uint64_t descriptor, int32_t turned, int32_t count) {
    constexpr uint64_t space = uint64_t(1) << 18;
    if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
      fail("a matrix of wgmma whose swizzle is not of 128 bytes, or has an offset", current);
    auto field = [&](int bit) { return (descriptor >> bit & 0x3fff) * 16; };
    uint64_t begin = field(0), leading = field(16), stride = field(32);
    auto base = reinterpret_cast<uint64_t>(shared);
    std::vector<uint16_t> values(static_cast<size_t>(count) * 16);
    for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i)
      for (uint64_t k = 0; k < 16; ++k) {
        uint64_t at = begin + (turned ? i / 64 * leading + i % 64 * 2 + k / 8 * stride + k % 8 * 128
                                      : i / 8 * stride + i % 8 * 128 + k * 2);
        at ^= (at >> 7 & 7) << 4;
        uint64_t offset = (at - base % space) % space; // from where shared memory begins
        if (offset + 2 > static_cast<uint64_t>(sharedSize))
          fail("a wgmma reads behind the end of shared memory", current);
        touch(shared + offset, 2, /*writes=*/false, /*several=*/true, barriers);
        std::memcpy(&values[i * 16 + k], shared + offset, 2);
      }
    return values;
  }

  /// 64 x 16 of the registers of a warpgroup: of 16 rows of each warp, a lane has those numbered lane / 4 and eight below, two neighbours at a time, and those eight further.
  std::vector<uint16_t> held(int64_t first) {
    std::vector<uint16_t> values(64 * 16);
    for (int thread = 0; thread < kGroup; ++thread)
      for (int i = 0; i < 4; ++i) {
        int lane = thread % kWarp, row = thread / kWarp * 16 + lane / 4 + i % 2 * 8, k = lane % 4 * 2 + i / 2 * 8;
        std::memcpy(&values[static_cast<size_t>(row * 16 + k)], &fibers[first + thread].registers[i], 4);
      }
    return values;
  }

  void multiplyGroup(int64_t first) {
    const GroupProduct product = *fibers[first].product;
    InFlight one{product, product.inRegisters ? held(first) : operand(product.a, product.turnedA, 64),
                 operand(product.b, product.turnedB, product.n)};
    auto floats = [](const std::vector<uint16_t> &bits) {
      std::vector<float> values(bits.size());
      std::transform(bits.begin(), bits.end(), values.begin(), fromBf16);
      return values;
    };
    std::vector<float> a = floats(one.a), b = floats(one.b);
    for (int thread = 0; thread < kGroup; ++thread)
      for (int i = 0; i < product.n / 2; ++i) {
        int lane = thread % kWarp, row = thread / kWarp * 16 + lane / 4 + i / 2 % 2 * 8;
        int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float sum = fibers[first + thread].sums[i];
        for (int k = 0; k < 16; ++k)
          sum += a[row * 16 + k] * b[column * 16 + k];
        fibers[first + thread].sums[i] = sum;
      }
    inFlight[first / kGroup].back().push_back(std::move(one));
  }

  /// gpu.shuffle: XOR, DOWN, UP, IDX in the order of its enumeration. A lane outside of the warp gives its own value.
  void exchange(int64_t first) {
    for (int lane = 0; lane < kWarp; ++lane) {
      Fiber &fiber = fibers[first + lane];
      int from = lane;
      switch (fiber.mode) {
      case 0: from = lane ^ fiber.offset; break;
      case 1: from = lane + fiber.offset; break;
      case 2: from = lane - fiber.offset; break;
      case 3: from = fiber.offset; break;
      default: fail("a shuffle of unknown mode", first + lane);
      }
      if (from < 0 || from >= kWarp)
        from = lane;
      fiber.result = fibers[first + from].value;
    }
  }

  /// Lane 8 i + r gave row r of matrix i; a lane gets elements 2 (lane % 4), + 1 of row lane / 4, or of that column.
  void loadMatrices(int64_t first) {
    for (int lane = 0; lane < kWarp; ++lane) {
      Fiber &fiber = fibers[first + lane];
      if (lane < 8 * fiber.value)
        touch(fiber.row, 16, /*writes=*/false, /*several=*/true, barriers);
      for (int matrix = 0; matrix < fiber.value; ++matrix) {
        int major = lane / 4, minor = lane % 4 * 2;
        auto element = [&](int row, int column) -> uint32_t { return fibers[first + 8 * matrix + row].row[column]; };
        fiber.registers[matrix] = fiber.mode ? element(minor, major) | element(minor + 1, major) << 16
                                             : element(major, minor) | element(major, minor + 1) << 16;
      }
    }
  }

  /// Products are exact in f32; the hardware's order of summation is not known, here it is that of k.
  void multiply(int64_t first) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < kWarp; ++lane) {
      const Fragments &f = *fibers[first + lane].fragments;
      int row = lane / 4, pair = lane % 4 * 2;
      for (int half = 0; half < 2; ++half) {
        auto part = [&](uint32_t bits) { return fromBf16(half ? bits >> 16 : bits & 0xffff); };
        a[row][pair + half] = part(f.a[0]);
        a[row + 8][pair + half] = part(f.a[1]);
        a[row][pair + 8 + half] = part(f.a[2]);
        a[row + 8][pair + 8 + half] = part(f.a[3]);
        b[pair + half][row] = part(f.b[0]);
        b[pair + 8 + half][row] = part(f.b[1]);
      }
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      Fragments &f = *fibers[first + lane].fragments;
      for (int i = 0; i < 4; ++i) {
        int row = lane / 4 + (i / 2) * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k)
          f.c[i] += a[row][k] * b[k][column];
      }
    }
  }

  std::vector<Fiber> fibers;
  std::vector<std::deque<std::vector<InFlight>>> inFlight; ///< of each warpgroup, by groups that were committed
  std::map<char *, PhaseBarrier> phaseBarriers;
  std::vector<BoxCopy> boxes; ///< that are under way
  int64_t sharedSize = 0;
  std::vector<Touched> touches; ///< of each byte of shared memory
  uint64_t barriers = 0; ///< so far, with one in front of each block
  std::vector<int64_t> order;
  std::unique_ptr<Pages> sharedPages, globalPages;
  char *shared = nullptr, *global = nullptr; ///< of the block that runs
  std::mt19937 random{1};
  void *scheduler = nullptr;
  void (*entry)(void *) = nullptr;
  void *arguments = nullptr;
  int64_t number = 0, threads = 0, current = 0;
};

Block &theBlock() {
  thread_local Block block;
  return block;
}

struct Launch {
  int64_t blocks = 0, threads = 0, sharedBytes = 0;
  char *scratch = nullptr;
};

Launch &theLaunch() {
  thread_local Launch launch;
  return launch;
}

void Block::start() {
  Block &block = theBlock();
  block.entry(block.arguments);
  block.wait(State::done);
}

} // namespace

extern "C" {
void braid_emulate_launch(int64_t blocks, int64_t threads, int64_t sharedBytes, char *scratch) {
  theLaunch() = {blocks, threads, sharedBytes, scratch};
}

void braid_emulate_blocks(void (*body)(void *), void *args, int64_t begin, int64_t end, int64_t threads,
                          int64_t sharedBytes) {
  const Launch &launch = theLaunch();
  if (launch.blocks && (launch.threads != threads || launch.sharedBytes != sharedBytes))
    fail("a launch with other threads or shared memory than the kernel was compiled for", threads);
  for (int64_t program = begin; program < end; ++program)
    theBlock().run(body, args, program, threads, sharedBytes);
}

int64_t braid_emulate_thread() { return theBlock().thread(); }
int64_t braid_emulate_block() { return theBlock().block(); }
void *braid_emulate_shared() { return theBlock().memory(); }
/// A block with scratch goes on with the program as many further on as there are blocks.
int64_t braid_emulate_grid() { return theLaunch().blocks ? theLaunch().blocks : int64_t(1) << 40; }
void *braid_emulate_scratch(int64_t bytes) {
  const Launch &launch = theLaunch();
  return launch.blocks ? launch.scratch + theBlock().block() * bytes : theBlock().scratch(bytes);
}
void braid_emulate_barrier() {
  static const bool off = isSet("BRAID_EMULATE_BARRIERS", "off");
  if (!off)
    theBlock().wait(State::atBarrier);
}

int32_t braid_emulate_shuffle(int32_t value, int32_t offset, int32_t mode) {
  Fiber &self = theBlock().self();
  self.value = value;
  self.offset = offset;
  self.mode = mode;
  theBlock().wait(State::atShuffle);
  return theBlock().self().result;
}

/// cp.async: `live` of `size` bytes, zeros behind them; both addresses are multiples of the size even if nothing is read; done when the thread has waited, not before.
void braid_emulate_copy(int64_t target, int64_t source, int32_t size, int32_t live) {
  if (target % size != 0 || source % size != 0)
    fail("an asynchronous copy that is not aligned", theBlock().thread());
  Copy copy{reinterpret_cast<char *>(target), reinterpret_cast<const char *>(source), size, live,
            theBlock().barriersSoFar()};
  theBlock().touch(copy.target, size, /*writes=*/true);
  // A copy may be done at any time until it is waited for: at the first, in this order of threads, else at the last.
  static const bool atOnce = isSet("BRAID_EMULATE_ORDER", "reverse");
  if (atOnce)
    execute(copy);
  theBlock().self().copies.push_back(copy);
}

void braid_emulate_copies_commit() {
  Fiber &self = theBlock().self();
  self.copyGroups.push_back(self.copies.size());
}

/// All groups but the last `most` are done.
void braid_emulate_copies_wait(int32_t most) {
  Fiber &self = theBlock().self();
  if (static_cast<int64_t>(self.copyGroups.size()) <= most)
    return;
  auto end = self.copyGroups.end() - most;
  size_t done = *(end - 1);
  static const bool atOnce = isSet("BRAID_EMULATE_ORDER", "reverse");
  for (size_t i = 0; i < done; ++i) {
    const Copy &copy = self.copies[i];
    theBlock().touch(copy.target, copy.size, /*writes=*/true, /*several=*/false, copy.begun);
    if (!atOnce)
      execute(copy);
  }
  self.unfenced |= done > 0;
  self.copies.erase(self.copies.begin(), self.copies.begin() + static_cast<int64_t>(done));
  self.copyGroups.erase(self.copyGroups.begin(), end);
  for (size_t &group : self.copyGroups)
    group -= done;
}

/// A load or a store of shared memory comes next.
void braid_emulate_touch(int64_t address, int32_t bytes, int32_t writes) {
  theBlock().touch(reinterpret_cast<const void *>(address), bytes, writes != 0);
}

/// Barriers in shared memory, by their addresses.
void braid_emulate_bulk_begin(int64_t barrier, int32_t arrivals) {
  theBlock().beginPhases(reinterpret_cast<char *>(barrier), arrivals);
}
void braid_emulate_bulk_begun() {}
void braid_emulate_bulk_arrive(int64_t barrier) { theBlock().arrive(reinterpret_cast<char *>(barrier), 0); }
void braid_emulate_bulk_expect(int64_t barrier, int32_t bytes) {
  theBlock().arrive(reinterpret_cast<char *>(barrier), bytes);
}
void braid_emulate_bulk_await(int64_t barrier, int32_t parity) {
  theBlock().await(reinterpret_cast<char *>(barrier), parity);
}
/// `count` threads of the block meet.
void braid_emulate_named_barrier(int32_t name, int32_t count) {
  theBlock().self().value = name;
  theBlock().self().offset = count;
  theBlock().wait(State::atNamedBarrier);
}

/// cp.async.bulk.tensor of bf16 by map number `index`, which the driver makes of `slots` and what is `told`: the number of maps; for each a parameter,
/// dimensions, and five sizes, strides (all 0: row-major) and sides of the box; then the coordinates of this copy, innermost first.
void braid_emulate_bulk_copy(int64_t target, int64_t barrier, int64_t index, const int64_t *slots,
                             const int64_t *told) {
  constexpr int64_t most = 5, perMap = 2 + 3 * most, elementBytes = 2, chunkBytes = 16, rowBytes = 128;
  constexpr int64_t chunk = chunkBytes / elementBytes, patternBytes = 1024;
  const int64_t *parameters = slots + 3; // behind the grid
  int64_t thread = theBlock().thread();
  if (index < 0 || index >= told[0] || target % patternBytes != 0)
    fail("a bulk copy by a map that the kernel has not, or to where no pattern begins", thread);
  const int64_t *map = told + 1 + index * perMap, *coordinates = told + 1 + told[0] * perMap;
  int64_t rank = map[1], at[most], size[most], stride[most], box[most];
  const auto *source = reinterpret_cast<const char *>(parameters[map[0]]);
  auto value = [&](int64_t number) { return number < 0 ? parameters[-1 - number] : number; };
  bool rowMajor = map[2 + most + rank - 1] == 0;
  for (int64_t d = rank - 1; d >= 0; --d) {
    at[d] = coordinates[rank - 1 - d];
    size[d] = value(map[2 + d]);
    box[d] = map[2 + 2 * most + d];
    if (box[d] > size[d])
      fail("a box that is larger than what it is cut from: a GPU would wait for it for ever", thread);
    stride[d] = !rowMajor ? value(map[2 + most + d]) : d == rank - 1 ? 1 : stride[d + 1] * size[d + 1];
    if (d < rank - 1 && size[d] > 1 && stride[d] * elementBytes % chunkBytes != 0)
      fail("a bulk copy of rows that do not begin on 16 bytes", thread);
  }
  if (reinterpret_cast<uint64_t>(source) % chunkBytes != 0 || stride[rank - 1] != 1 ||
      box[rank - 1] * elementBytes != rowBytes)
    fail("a bulk copy of a buffer that does not begin on 16 bytes, or whose rows are not what the swizzle takes",
         thread);
  int64_t rows = 1;
  for (int64_t d = 0; d < rank - 1; ++d)
    rows *= box[d];
  BoxCopy copy{reinterpret_cast<char *>(barrier), {}};
  for (int64_t row = 0; row < rows; ++row) {
    const char *from = source;
    bool inside = true;
    for (int64_t d = rank - 2, rest = row; d >= 0; rest /= box[d--]) {
      int64_t place = at[d] + rest % box[d];
      inside &= place >= 0 && place < size[d];
      from += place * stride[d] * elementBytes;
    }
    for (int64_t first = 0; first < box[rank - 1]; first += chunk) {
      std::vector<char> bytes(chunkBytes, 0);
      for (int64_t i = 0; i < chunk; ++i)
        if (int64_t column = at[rank - 1] + first + i; inside && column >= 0 && column < size[rank - 1])
          std::memcpy(&bytes[i * elementBytes], from + column * elementBytes, elementBytes);
      int64_t turned = first / chunk ^ row % 8;
      copy.chunks.emplace_back(reinterpret_cast<char *>(target) + row * rowBytes + turned * chunkBytes,
                               std::move(bytes));
    }
  }
  theBlock().send(std::move(copy));
}

void braid_emulate_fence_async() { theBlock().self().unfenced = false; }

/// `sums`: n / 2 numbers of this thread of the warpgroup.
void braid_emulate_wgmma(int64_t a, int64_t b, int32_t n, int32_t turnedA, int32_t turnedB, void *sums) {
  GroupProduct product{static_cast<uint64_t>(a), static_cast<uint64_t>(b), n, turnedA, turnedB};
  Fiber &self = theBlock().self();
  self.product = &product;
  self.sums = static_cast<float *>(sums);
  theBlock().wait(State::atGroupMultiply);
}
/// `fields`: 4 registers of a, then the sums.
void braid_emulate_wgmma_rows(int64_t b, int32_t n, int32_t turnedB, void *fields) {
  GroupProduct product{0, static_cast<uint64_t>(b), n, 0, turnedB, /*inRegisters=*/true};
  Fiber &self = theBlock().self();
  self.product = &product;
  self.registers = static_cast<uint32_t *>(fields);
  self.sums = static_cast<float *>(fields) + 4;
  theBlock().wait(State::atGroupMultiply);
}
void braid_emulate_wgmma_commit() { theBlock().commitProducts(); }
void braid_emulate_wgmma_wait(int32_t most) { theBlock().awaitProducts(most); }

/// `row`: the address of 8 elements, a multiple of 16; `registers` receives `count`.
void braid_emulate_ldmatrix(int64_t row, int32_t count, int32_t turned, void *registers) {
  Fiber &self = theBlock().self();
  if (row % 16 != 0)
    fail("a row of a matrix that is not aligned to 16 bytes", theBlock().thread());
  self.row = reinterpret_cast<const uint16_t *>(row);
  self.value = count;
  self.mode = turned;
  self.registers = static_cast<uint32_t *>(registers);
  theBlock().wait(State::atLoad);
}

/// `fragments`: 4 registers of a, 2 of b, 4 of c, which receive the result.
void braid_emulate_mma(void *fragments) {
  theBlock().self().fragments = static_cast<Fragments *>(fragments);
  theBlock().wait(State::atMultiply);
}
}
