//===- EmulatedBlock.h - a block of a GPU: its threads, and what they wait for -----------------------------------===//
//
// Or the blocks of a cluster, which run at a time: their threads are numbered one block behind the other, each block has its shared memory.
// Every thread is a fiber, which waits where the functions of ThreadEmulator.cpp say. Nothing of this is seen outside of the
// library that it is linked into: a process may have two, one that is preloaded and one inside of the driver's stub.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef TEST_EMULATOR_EMULATEDBLOCK_H
#define TEST_EMULATOR_EMULATEDBLOCK_H

#include "test/emulator/EmulatedShared.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace braid {
namespace [[gnu::visibility("hidden")]] emulator {

inline constexpr int kWarp = 32;
inline constexpr int kGroup = 4 * kWarp; // a warpgroup

enum class State : uint8_t {
  ready,
  atShuffle,
  atLoad,
  atStore,
  atMultiply,
  atGroupMultiply,
  atMeeting,
  atPhase,
  atBarrier,
  atCluster, ///< the barrier of all threads of a cluster
  done
};

/// mma.sync m16n8k16, bf16 in, f32 accumulated: registers of one lane.
struct Fragments {
  uint32_t a[4], b[2];
  float c[4];
};

/// A barrier in shared memory (mbarrier) that some arrivals and some bytes complete a phase of.
struct PhaseBarrier {
  int64_t arrivals, missing; ///< of every phase, of this one
  int64_t rank; ///< of its block
  int64_t bytes = 0; ///< to come
  int64_t phases = 0; ///< that are over
};

/// A box on its way to shared memory, in whole chunks of 16 bytes.
inline constexpr int64_t kChunkBytes = 16;
struct BoxCopy {
  char *barrier;
  std::vector<std::pair<char *, std::array<char, kChunkBytes>>> chunks;
};

/// A box on its way to global memory, or to be added to what is there.
struct BoxStore {
  struct Piece {
    const char *from;
    char *to;
    size_t bytes;
  };
  std::vector<Piece> pieces; ///< what lies in the buffer
  const char *begin = nullptr; ///< of shared memory
  std::vector<char> found; ///< there, when the copy began
  bool adds = false; ///< f32
  bool read = false; ///< somebody has waited for that
};

struct Copy {
  char *target;
  const char *source;
  int32_t size, live;
  uint32_t begun; ///< when the step began in which it began
};

/// wgmma m64nNk16, bf16 in, operands described as the PTX ISA has it, the left one perhaps in registers.
struct GroupProduct {
  uint64_t a, b;
  int32_t n, turnedA, turnedB; ///< turned: MN-major
  bool inRegisters = false; ///< a: each thread's `registers`
  bool operator==(const GroupProduct &) const = default;
};

/// One that is under way, and what it read, in the order in which it reads (Block::readOperand()).
struct InFlight {
  GroupProduct product;
  std::vector<uint16_t> a, b;
};

/// A sum that a product of a thread's group number `group` is to write.
struct PendingSum {
  float value;
  int32_t group;
};

struct alignas(64) Fiber {
  void *context = nullptr; ///< its stack, where it waits
  uint32_t fences = 0, meetings = 0; ///< of the async proxy, of its warp, in all blocks
  uint32_t touch = 0; ///< the number of what it touches, if that is of this step
  int32_t value = 0, offset = 0, mode = 0, result = 0; ///< of a shuffle
  char *barrier = nullptr; ///< whose phases of parity `value` it waits for
  Fragments *fragments = nullptr;
  std::unique_ptr<Pages> stack;
  std::vector<Copy> copies; ///< under way
  std::vector<size_t> copyGroups; ///< where each group of them that was committed ends
  std::vector<BoxStore> stores; ///< that this thread has begun
  std::vector<size_t> storeGroups; ///< where each group of them that was committed ends
  const GroupProduct *product = nullptr;
  float *sums = nullptr; ///< of this thread
  int64_t committed = 0, finished = 0; ///< groups of products
  std::vector<PendingSum> pendingSums; ///< by the numbers of the NaNs that stand for them
  std::vector<uint32_t> freeSums; ///< of these numbers
  const uint16_t *row = nullptr; ///< of a matrix: 8 elements
  uint32_t *registers = nullptr; ///< what ldmatrix gives this lane: `value` of them, turned if `mode` is not 0
};

class Block {
public:
  /// Of blocks of `count` threads, so many of which are a cluster.
  void beginLaunch(int64_t count, int64_t sharedBytes, int64_t cluster);
  /// The blocks of a cluster, the first of which is this program.
  void run(void (*body)(void *), void *args, int64_t program);

  int64_t thread() const { return current - rank() * blockThreads; }
  int64_t block() const { return number + rank(); }
  char *memory() const { return own().begin; }

  /// The same for all threads of the block; NaN before the first of them writes it.
  void *scratch(int64_t bytes);

  void wait(State state);
  Fiber &self() { return fibers[current]; }

  /// The step that runs, for what is touched at once.
  uint32_t now() const { return own().step; }
  /// This thread reads or writes shared memory, at any time since a step began: no other thread may have touched the same bytes meanwhile if one of the two writes.
  void touch(const void *address, int64_t bytes, bool writes, uint32_t since) {
    touch(address, bytes, writes, current, since);
  }
  /// Mostly a unit that nobody, or only this thread, has touched since the last barrier.
  [[gnu::always_inline]] void touch(const void *address, int64_t bytes, bool writes) {
    SharedMemory &memory = own();
    const auto first = static_cast<uint64_t>(static_cast<const char *>(address) - memory.begin);
    if (first >= knownBytes)
      return;
    SharedPart &part = memory.parts[first / SharedPart::kBytes];
    const uint32_t mine = fibers[current].touch, step = memory.step;
    if (mine >= step && part.isUnit(first, bytes)) [[likely]] {
      Units unit = part.unitAt(first % SharedPart::kBytes);
      auto isFree = [&](uint32_t number) { return number < step || number == mine; };
      if (isFree(*unit.written)) [[likely]] {
        if (isFree(*unit.read)) [[likely]] {
          *(writes ? unit.written : unit.read) = mine;
          return;
        }
        if (!writes && *unit.read == step)
          return;
      }
    }
    touch(address, bytes, writes, current, step);
  }
  /// Of the async proxy.
  void fence() {
    ++self().fences;
    self().touch = 0;
  }

  //===- Barriers in shared memory, and boxes that are copied -------------------------------------------------------===//

  void beginPhases(char *barrier, int64_t arrivals) { phaseBarriers[barrier] = {arrivals, arrivals, rank()}; }
  void arrive(char *barrier, int64_t bytes);
  /// What lies in the block of the cluster with this rank where `place` is in this one.
  char *inBlock(char *place, int64_t rank) const;
  void await(char *barrier, int32_t parity);
  /// It may be there at once, or not before everybody waits for it, and then behind later ones.
  void send(BoxCopy copy);
  /// The same to all blocks of the cluster, and to the barrier of each.
  void sendToAll(const BoxCopy &copy);
  /// `bytes` of shared memory from `begin` on, which every thread that wrote there has fenced before it met this one. It may be read and stored at once, or
  /// read when the thread waits for that and stored when it has ended.
  void store(BoxStore store, int64_t bytes);
  void commitStores() { self().storeGroups.push_back(self().stores.size()); }
  /// All groups but the last `most` are read: nobody may have written there meanwhile, anybody may now.
  void awaitRead(int32_t most);

  void commitProducts();
  /// Nobody may have overwritten, until now, what products read that are done from here on.
  void awaitProducts(int32_t most);
  /// Of this thread; those that are not done yet end the process.
  void settleSums(float *sums, int32_t count);

  /// What a copy of this thread has written: not ordered before wgmma until its next fence of the async proxy.
  void wroteByCopy(const void *address, int64_t bytes) {
    eachUnits(own(), address, bytes, [](Units units) {
      for (int64_t i = 0; i < units.count; ++i)
        units.written[i] |= kByCopy;
    });
  }

private:
  /// body(Units) for what is known of some bytes of shared memory; not outside of it, and not where barriers are ignored.
  template <typename Body>
  [[gnu::always_inline]] void eachUnits(SharedMemory &memory, const void *address, int64_t bytes, Body body) {
    int64_t first = static_cast<const char *>(address) - memory.begin;
    if (first < 0 || first + bytes > static_cast<int64_t>(knownBytes))
      return;
    while (bytes > 0) {
      int64_t place = first % SharedPart::kBytes, here = std::min(bytes, SharedPart::kBytes - place);
      body(memory.parts[first / SharedPart::kBytes].at(place, here));
      first += here;
      bytes -= here;
    }
  }

  /// `thread` may be kSeveral, of a warp or warpgroup.
  [[gnu::noinline]] void touch(const void *address, int64_t bytes, bool writes, int64_t thread, uint32_t since) {
    SharedMemory &memory = own();
    const auto first = static_cast<uint64_t>(static_cast<const char *>(address) - memory.begin);
    if (first >= knownBytes)
      return;
    SharedPart &part = memory.parts[first / SharedPart::kBytes];
    const uint32_t mine = thread == kSeveral ? memory.step : touchOf(memory, thread);
    if (part.isUnit(first, bytes)) [[likely]] {
      Units unit = part.unitAt(first % SharedPart::kBytes);
      touchUnit(memory, *unit.written, *unit.read, writes, thread, since, mine);
      return;
    }
    eachUnits(memory, address, bytes, [&](Units units) { touchUnits(memory, units, writes, thread, since, mine); });
  }
  void touchUnit(SharedMemory &memory, uint32_t &written, uint32_t &read, bool writes, int64_t thread, uint32_t since,
                 uint32_t mine) {
    if ((written >= since && written != mine) || (writes && read >= since && read != mine))
      checkTouch(memory, written, read, writes, thread, since);
    if (writes)
      written = mine;
    else if (read < memory.step)
      read = mine;
    else if (read != mine && read != memory.step)
      read = memory.at(read).thread == thread ? mine : memory.step;
  }
  /// The same of each.
  void touchUnits(SharedMemory &memory, Units units, bool writes, int64_t thread, uint32_t since, uint32_t mine);
  /// The number of what this thread touches now.
  uint32_t touchOf(SharedMemory &memory, int64_t thread) {
    Fiber &fiber = fibers[thread];
    if (fiber.touch < memory.step)
      fiber.touch = memory.add({static_cast<int32_t>(thread), fiber.fences, fiber.meetings});
    return fiber.touch;
  }
  /// Ends the process unless what others touched since then was this thread, or one of its warp that has met it.
  void checkTouch(const SharedMemory &memory, uint32_t written, uint32_t read, bool writes, int64_t thread,
                  uint32_t since) const;

  /// At the end of a thread, when all are read.
  void finishStores();
  static void execute(const BoxStore &store);

  /// Until products are waited for, their sums are NaNs to the program, each with a number: whoever reads or moves them by more than a copy has a NaN.
  static PendingSum *pendingOf(Fiber &fiber, float sum) {
    uint32_t number = std::bit_cast<uint32_t>(sum) ^ kPendingNaN;
    return number != 0 && number < fiber.pendingSums.size() ? &fiber.pendingSums[number] : nullptr;
  }
  static constexpr uint32_t kPendingNaN = 0x7fc00000;
  /// What stands for a sum that nothing stood for.
  static float promise(Fiber &fiber, PendingSum sum);

  PhaseBarrier &phasesOf(char *barrier);
  void endPhase(PhaseBarrier &barrier);
  void deliver();
  /// Those whose phases are over, once all copies are there, go on.
  bool releasePhases();

  static char *take(std::unique_ptr<Pages> &pages, int64_t count);

  int64_t rank() const { return currentRank; }
  void turnTo(int64_t i) {
    current = i;
    currentRank = threads == blockThreads ? 0 : i / blockThreads;
    ownMemory = memories.data() + currentRank;
  }
  SharedMemory &own() { return *ownMemory; }
  const SharedMemory &own() const { return *ownMemory; }
  /// The warpgroup of a thread, of all blocks.
  int64_t groupOf(int64_t i) const {
    return i / blockThreads * ceilDiv(blockThreads, kGroup) + i % blockThreads / kGroup;
  }
  bool beginsGroup(int64_t i) const { return i % blockThreads % kGroup == 0; }
  static int64_t ceilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

  void begin(int64_t i);
  static void start();

  /// Whether all threads of these wait, or do not, as the first of them does.
  bool areAlike(int64_t first, int64_t end) const {
    return std::equal(states.begin() + first + 1, states.begin() + end, states.begin() + first);
  }
  void orderThreads();
  /// Lets every thread run to where it waits, then releases those whose warp or block is complete. False: all are done.
  bool step();
  /// Where no thread goes on by itself: of barriers of blocks and of the cluster.
  bool releaseBarriers();

  bool releaseWarp(int64_t first, int64_t end);

  /// Lanes that wait for the others of their warp (bar.warp.sync), while those may wait for anything else.
  bool releaseMeeting(int64_t first, int64_t end);

  /// A warpgroup multiplies when all of its warps are there.
  bool releaseGroup(int64_t first, int64_t end);

  /// All of `count` of m or n, which i counts, x 16. Addresses: bits 0-13 of the descriptor, 16-29 (LBO) and 32-45 (SBO), in units of 16 bytes; with a
  /// swizzle of 128 bytes, bits 4-6 of an address are combined with bits 7-9. A K-major matrix has eight rows of 128 bytes, SBO from those to the next;
  /// an MN-major one eight k of 64 elements, SBO to the next eight, LBO to the next 64.
  /// They are put one behind the other as they lie there, 16 bytes at a time: eight k of an i, 16 k before the next i; of a turned one eight i of a k, 16 k before the next
  /// eight i.
  void readOperand(uint64_t descriptor, int32_t turned, int32_t count, std::vector<uint16_t> &values);

  /// 64 x 16 of the registers of a warpgroup: of 16 rows of each warp, a lane has those numbered lane / 4 and eight below, two neighbours at a time, and those eight further.
  std::vector<uint16_t> held(int64_t first);

  void multiplyGroup(int64_t first);

  /// gpu.shuffle: XOR, DOWN, UP, IDX in the order of its enumeration. A lane outside of the warp gives its own value.
  void exchange(int64_t first);

  /// Lane 8 i + r gave row r of matrix i; a lane gets elements 2 (lane % 4), + 1 of row lane / 4, or of that column.
  void loadMatrices(int64_t first);
  /// The other way.
  void storeMatrices(int64_t first);

  /// As multiplyGroup() does.
  void multiply(int64_t first);

  std::vector<Fiber> fibers;
  std::vector<State> states; ///< of each of them
  std::vector<std::deque<std::vector<InFlight>>> inFlight; ///< of each warpgroup, by groups that were committed
  std::map<char *, PhaseBarrier> phaseBarriers;
  std::vector<BoxCopy> boxes; ///< that are under way
  int64_t sharedSize = 0;
  uint64_t knownBytes = 0; ///< of it, of which it is known who touched them: none where barriers are ignored
  const bool ignoresBarriers = isSet("BRAID_EMULATE_BARRIERS", "off");
  std::vector<int64_t> order;
  std::vector<SharedMemory> memories; ///< by rank
  SharedMemory *ownMemory = nullptr; ///< of the thread that runs
  std::unique_ptr<Pages> globalPages;
  char *global = nullptr; ///< of the block that runs
  std::mt19937 random{1};
  void *scheduler = nullptr;
  void (*entry)(void *) = nullptr;
  void *arguments = nullptr;
  int64_t number = 0, threads = 0, blockThreads = 1, current = 0, currentRank = 0; ///< threads: of all blocks
  std::vector<float> right; ///< of a product of a warpgroup: its b, by rows
};

/// The one that this thread of the CPU runs. Kernels ask with each access, so it is found in a place that is known when the library is loaded. Of those there
/// are few bytes for libraries that are opened later: the block itself lies elsewhere.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit Block *knownBlock;
Block &makeBlock();
inline Block &theBlock() {
  Block *known = knownBlock;
  return known ? *known : makeBlock();
}

} // namespace emulator
} // namespace braid

#endif // TEST_EMULATOR_EMULATEDBLOCK_H
