#include "test/emulator/EmulatedBlock.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>

#include <cmath>
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

namespace braid::emulator {

static constexpr size_t kStackBytes = 256 << 10, kGuardBytes = 4096;

static constexpr bool waitsForWarp(State state) {
  return state == State::atShuffle || state == State::atLoad || state == State::atStore || state == State::atMultiply;
}

void fail(const char *message, long thread) {
  std::fprintf(stderr, "thread emulator: %s (thread %ld)\n", message, thread);
  std::abort();
}

bool isSet(const char *variable, const char *value) {
  const char *text = std::getenv(variable);
  return text && std::strcmp(text, value) == 0;
}

Pages::Pages(size_t bytes) : bytes((bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes) {
  base = static_cast<char *>(mmap(nullptr, this->bytes + 2 * kGuardBytes, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (base == MAP_FAILED)
    fail("no memory for a stack or a block", 0);
  mprotect(base, kGuardBytes, PROT_NONE);
  mprotect(end(), kGuardBytes, PROT_NONE);
}

Pages::~Pages() { munmap(base, bytes + 2 * kGuardBytes); }

char *Pages::end() const { return base + kGuardBytes + bytes; }

char *Pages::last(size_t count) const {
  std::memset(end() - count, 0xff, count);
  return end() - count;
}

static float fromBf16(uint32_t bits) {
  bits <<= 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

thread_local constinit Block *knownBlock = nullptr;

Block &makeBlock() {
  [[gnu::tls_model("initial-exec")]] thread_local std::unique_ptr<Block> block = std::make_unique<Block>();
  return *(knownBlock = block.get());
}

//===- Threads ---------------------------------------------------------------------------------------------------===//

void Block::beginLaunch(int64_t count, int64_t sharedBytes, int64_t cluster) {
  if (cluster > 1 && count % kWarp != 0)
    fail("blocks of a cluster that are not whole warps", count);
  threads = count * cluster;
  blockThreads = count;
  if (static_cast<int64_t>(fibers.size()) < threads) {
    fibers.resize(threads);
    states.resize(threads);
  }
  sharedSize = sharedBytes;
  knownBytes = ignoresBarriers ? 0 : static_cast<uint64_t>(sharedBytes);
  if (static_cast<int64_t>(memories.size()) < cluster)
    memories.resize(cluster);
  for (int64_t i = 0; i < cluster; ++i)
    memories[i].beginLaunch(sharedBytes);
  order.clear();
}

void Block::run(void (*body)(void *), void *args, int64_t program) {
  entry = body;
  arguments = args;
  number = program;
  const int64_t cluster = threads / blockThreads;
  for (int64_t i = 0; i < cluster; ++i) {
    SharedMemory &memory = memories[i];
    // The end of shared memory lies at the end of a page: what is read behind it is an error at once.
    memory.begin = take(memory.pages, sharedSize);
    memory.beginBlock();
  }
  global = nullptr;
  inFlight.assign(static_cast<size_t>(cluster * ceilDiv(blockThreads, kGroup)), {});
  phaseBarriers.clear();
  boxes.clear();
  for (int64_t i = 0; i < threads; ++i)
    begin(i);
  while (step()) {
  }
}

void Block::touchUnits(SharedMemory &memory, Units units, bool writes, int64_t thread, uint32_t since, uint32_t mine) {
  // Four at a time, as whole chunks of what is touched in words: most are nobody's since the last barrier.
  using Four = uint32_t __attribute__((vector_size(16)));
  auto isAny = [](auto fours) {
    auto pair = std::bit_cast<std::array<uint64_t, 2>>(fours);
    return (pair[0] | pair[1]) != 0;
  };
  int64_t i = 0;
  for (; i + 4 <= units.count; i += 4) {
    Four written, read;
    std::memcpy(&written, units.written + i, sizeof(written));
    std::memcpy(&read, units.read + i, sizeof(read));
    auto old = read < memory.step;
    auto others = (written >= since) & (written != mine);
    if (writes)
      others |= (read >= since) & (read != mine);
    else
      others |= ~old & (read != mine) & (read != memory.step);
    if (isAny(others)) [[unlikely]] {
      for (int64_t k = i; k < i + 4; ++k)
        touchUnit(memory, units.written[k], units.read[k], writes, thread, since, mine);
      continue;
    }
    const Four all = {mine, mine, mine, mine};
    if (writes) {
      std::memcpy(units.written + i, &all, sizeof(all));
    } else {
      const Four now = old ? all : read;
      std::memcpy(units.read + i, &now, sizeof(now));
    }
  }
  for (; i < units.count; ++i)
    touchUnit(memory, units.written[i], units.read[i], writes, thread, since, mine);
}

void Block::checkTouch(const SharedMemory &memory, uint32_t written, uint32_t read, bool writes, int64_t thread,
                       uint32_t since) const {
  // Threads of a warp that have met since then have done so as at a barrier.
  auto isApart = [&](uint32_t number) {
    if (number < since)
      return true;
    const Touch &other = memory.at(number);
    if (other.thread == thread)
      return true;
    return since == memory.step && thread >= 0 && other.thread >= 0 && other.thread / kWarp == thread / kWarp &&
           fibers[other.thread].meetings != other.meetings;
  };
  if (!isApart(written) || (writes && !isApart(read)))
    fail("no barrier between two threads that touch the same byte of shared memory, one of which writes", current);
}

char *Block::take(std::unique_ptr<Pages> &pages, int64_t count) {
  auto bytes = static_cast<size_t>((count + 15) / 16 * 16);
  if (!pages || pages->size() < bytes)
    pages = std::make_unique<Pages>(bytes);
  return pages->last(bytes);
}

void *Block::scratch(int64_t bytes) {
  if (threads != blockThreads)
    fail("scratch of blocks of a cluster", current);
  if (!global)
    global = take(globalPages, bytes);
  return global;
}

void Block::begin(int64_t i) {
  Fiber &fiber = fibers[i];
  if (!fiber.stack)
    fiber.stack = std::make_unique<Pages>(kStackBytes);
  // What braidSwitch takes from a stack: the rounding mode, six registers, where to go on. Stacks end at different places of a page, or the same lines of the
  // CPU's caches would hold what all threads use of theirs.
  constexpr int64_t line = 64, lines = 4096 / line;
  auto *words =
      reinterpret_cast<uint64_t *>(fiber.stack->end() - i % lines * line) - 11; // a function begins 8 bytes off 16
  std::fill_n(words, 11, 0);
  asm volatile("stmxcsr %0" : "=m"(*reinterpret_cast<uint32_t *>(words)));
  words[7] = reinterpret_cast<uint64_t>(&Block::start);
  fiber.context = words;
  states[i] = State::ready;
  fiber.copies.clear();
  fiber.copyGroups.clear();
  fiber.touch = 0;
  fiber.stores.clear();
  fiber.storeGroups.clear();
  fiber.committed = fiber.finished = 0;
  fiber.pendingSums.assign(1, {}); // a NaN without a number is one
  fiber.freeSums.clear();
  if (beginsGroup(i))
    inFlight[groupOf(i)].assign(1, {});
}

void Block::start() {
  Block &block = theBlock();
  block.entry(block.arguments);
  block.finishStores();
  block.wait(State::done);
}

void Block::wait(State state) {
  states[current] = state;
  braidSwitch(&fibers[current].context, scheduler);
}

static bool isShuffled() {
  static const bool shuffled = isSet("BRAID_EMULATE_ORDER", "shuffled");
  return shuffled;
}

void Block::orderThreads() {
  if (static_cast<int64_t>(order.size()) != threads) {
    order.resize(threads);
    std::iota(order.begin(), order.end(), 0);
    static const bool reverse = isSet("BRAID_EMULATE_ORDER", "reverse");
    if (reverse)
      std::reverse(order.begin(), order.end());
  }
  if (isShuffled())
    std::shuffle(order.begin(), order.end(), random);
}

bool Block::step() {
  orderThreads();
  for (int64_t k = 0; k < threads; ++k) {
    // What the next ones left on their stacks is on its way meanwhile: all of them do not fit in the first of the CPU's caches.
    if (k + 4 < threads)
      __builtin_prefetch(&fibers[order[k + 4]]);
    if (k + 2 < threads)
      for (int line = 0; line < 4; ++line)
        __builtin_prefetch(static_cast<const char *>(fibers[order[k + 2]].context) + line * 64);
    int64_t i = order[k];
    if (states[i] != State::ready)
      continue;
    turnTo(i);
    braidSwitch(&scheduler, fibers[i].context);
  }
  bool warpReleased = false;
  for (int64_t first = 0; first < threads; first += kWarp) {
    int64_t end = std::min<int64_t>(first + kWarp, threads);
    warpReleased |= releaseMeeting(first, end) || releaseWarp(first, end);
  }
  for (int64_t block = 0; block < threads; block += blockThreads)
    for (int64_t first = block; first < block + blockThreads; first += kGroup)
      warpReleased |= releaseGroup(first, std::min<int64_t>(first + kGroup, block + blockThreads));
  return warpReleased || releasePhases() || releaseBarriers();
}

bool Block::releaseBarriers() {
  auto areAll = [&](State state, int64_t first, int64_t end) { return states[first] == state && areAlike(first, end); };
  if (areAll(State::done, 0, threads))
    return false;
  bool together = areAll(State::atCluster, 0, threads), released = false;
  for (int64_t first = 0; first < threads; first += blockThreads) {
    if (!together && !areAll(State::atBarrier, first, first + blockThreads))
      continue;
    memories[first / blockThreads].beginStep();
    std::fill_n(states.begin() + first, blockThreads, State::ready);
    released = true;
  }
  if (released)
    return true;
  for (int64_t i = 0; i < threads; ++i)
    if (State state = states[i]; state != State::atBarrier && state != State::atCluster)
      fail(state == State::done      ? "a barrier that not all threads of the block reach; one is at its end"
           : state == State::atPhase ? "a phase of a barrier in shared memory that never ends"
                                     : "a barrier that not all threads of the block reach; one waits for its warp or "
                                       "warpgroup",
           i);
  fail("threads of a cluster that wait at different barriers", 0);
}

bool Block::releaseWarp(int64_t first, int64_t end) {
  State state = states[first];
  if (!areAlike(first, end)) {
    // Lanes that wait for a phase come later: it may have ended between one lane and the next.
    if (std::find(states.begin() + first, states.begin() + end, State::atPhase) != states.begin() + end)
      return false;
    for (int64_t i = first; i < end; ++i) {
      bool waits = waitsForWarp(states[i]);
      if (waits && states[i] != state)
        fail("lanes of a warp wait in different places", i);
      if (!waits && state != states[i] && waitsForWarp(state))
        fail("a shuffle that not all lanes of the warp reach", i);
    }
  }
  if (!waitsForWarp(state))
    return false;
  turnTo(first);
  if (end - first != kWarp)
    fail("a warp of fewer than 32 threads", first);
  if (state == State::atShuffle)
    exchange(first);
  else if (state == State::atLoad)
    loadMatrices(first);
  else if (state == State::atStore)
    storeMatrices(first);
  else
    multiply(first);
  std::fill(states.begin() + first, states.begin() + end, State::ready);
  return true;
}

bool Block::releaseMeeting(int64_t first, int64_t end) {
  if (states[first] != State::atMeeting || !areAlike(first, end))
    return false;
  for (int64_t i = first; i < end; ++i) {
    states[i] = State::ready;
    ++fibers[i].meetings;
    fibers[i].touch = 0;
  }
  return true;
}

bool Block::releaseGroup(int64_t first, int64_t end) {
  if (states[first] != State::atGroupMultiply || !areAlike(first, end))
    return false;
  if (end - first != kGroup)
    fail("a warpgroup of fewer than 128 threads", first);
  for (int64_t i = first; i < end; ++i)
    if (!(*fibers[i].product == *fibers[first].product))
      fail("threads of a warpgroup multiply different matrices", i);
  turnTo(first);
  multiplyGroup(first);
  std::fill(states.begin() + first, states.begin() + end, State::ready);
  return true;
}

//===- Barriers in shared memory, and boxes that are copied ------------------------------------------------------===//

void Block::arrive(char *barrier, int64_t bytes) {
  PhaseBarrier &found = phasesOf(barrier);
  if (found.missing == 0)
    fail("more arrivals at a barrier than it waits for", current);
  --found.missing;
  found.bytes += bytes;
  endPhase(found);
}

char *Block::inBlock(char *place, int64_t rank) const {
  if (rank < 0 || (rank + 1) * blockThreads > threads)
    fail("a block that the cluster has not", current);
  if (int64_t first = rank * blockThreads; states[first] == State::done && areAlike(first, first + blockThreads))
    fail("shared memory of a block of the cluster that has ended", current);
  return memories[rank].begin + (place - own().begin);
}

void Block::await(char *barrier, int32_t parity) {
  while (phasesOf(barrier).phases % 2 == parity) {
    self().barrier = barrier;
    self().value = parity;
    wait(State::atPhase);
  }
}

void Block::send(BoxCopy copy) {
  static const bool atOnce = isSet("BRAID_EMULATE_ORDER", "reverse");
  boxes.push_back(std::move(copy));
  if (atOnce)
    deliver();
}

void Block::sendToAll(const BoxCopy &copy) {
  for (int64_t rank = 0; rank * blockThreads < threads; ++rank) {
    BoxCopy there{inBlock(copy.barrier, rank), copy.chunks};
    for (auto &chunk : there.chunks)
      chunk.first = inBlock(chunk.first, rank);
    send(std::move(there));
  }
}

void Block::execute(const BoxStore &store) {
  for (const BoxStore::Piece &piece : store.pieces) {
    const char *from = store.found.data() + (piece.from - store.begin);
    if (!store.adds) {
      std::memcpy(piece.to, from, piece.bytes);
      continue;
    }
    for (size_t i = 0; i < piece.bytes; i += sizeof(float)) {
      float there, more;
      std::memcpy(&there, piece.to + i, sizeof(float));
      std::memcpy(&more, from + i, sizeof(float));
      there += more;
      std::memcpy(piece.to + i, &there, sizeof(float));
    }
  }
}

static bool storesAtOnce() {
  static const bool atOnce = isSet("BRAID_EMULATE_ORDER", "reverse");
  return atOnce;
}

void Block::store(BoxStore store, int64_t bytes) {
  SharedMemory &memory = own();
  int64_t first = store.begin - memory.begin;
  if (first < 0 || first + bytes > sharedSize)
    fail("a box is stored that is not in shared memory", current);
  eachUnits(memory, store.begin, bytes, [&](Units units) {
    for (int64_t i = 0; i < units.count; ++i) {
      if (units.written[i] < memory.first)
        fail("a box is stored of which a byte was not written", current);
      const Touch &write = memory.at(units.written[i]);
      const Fiber &writer = fibers[write.thread];
      if (writer.fences == write.fences)
        fail("a box is stored that a thread wrote without a fence of the async proxy", write.thread);
      bool met = write.thread / kWarp == current / kWarp && writer.meetings != write.meetings;
      if (write.thread != current && units.written[i] >= memory.step && !met)
        fail("a box is stored that a thread wrote which did not meet this one since", write.thread);
    }
  });
  store.found.assign(store.begin, store.begin + bytes);
  if (storesAtOnce())
    execute(store);
  self().stores.push_back(std::move(store));
}

void Block::awaitRead(int32_t most) {
  std::vector<size_t> &groups = self().storeGroups;
  if (static_cast<int64_t>(groups.size()) <= most)
    return;
  for (size_t i = 0; i < groups[groups.size() - 1 - static_cast<size_t>(most)]; ++i) {
    BoxStore &store = self().stores[i];
    if (std::exchange(store.read, true))
      continue;
    if (!std::equal(store.found.begin(), store.found.end(), store.begin))
      fail("shared memory was overwritten before the box was read that is stored from there", current);
    eachUnits(own(), store.begin, static_cast<int64_t>(store.found.size()), [](Units units) {
      std::fill_n(units.written, units.count, 0);
      std::fill_n(units.read, units.count, 0);
    });
  }
}

void Block::finishStores() {
  for (const BoxStore &store : self().stores) {
    if (!store.read)
      fail("boxes that are stored are not waited for before a thread ends", current);
    if (!storesAtOnce())
      execute(store);
  }
}

PhaseBarrier &Block::phasesOf(char *barrier) {
  auto found = phaseBarriers.find(barrier);
  if (found == phaseBarriers.end())
    fail("a barrier in shared memory that was not begun", current);
  return found->second;
}

void Block::endPhase(PhaseBarrier &barrier) {
  if (barrier.bytes < 0 && barrier.missing == 0) // those that another block sends may come first
    fail("more bytes come to a barrier than it was told to expect", current);
  if (barrier.missing != 0 || barrier.bytes != 0)
    return;
  barrier.missing = barrier.arrivals;
  ++barrier.phases;
  memories[barrier.rank].beginStep(); // those behind it have seen what those before it did
}

void Block::deliver() {
  std::vector<BoxCopy> now = std::exchange(boxes, {});
  if (isShuffled() && now.size() > 1) { // some of them, in any order
    std::shuffle(now.begin(), now.end(), random);
    auto rest = now.begin() + 1 + static_cast<int64_t>(random() % now.size());
    boxes.assign(std::make_move_iterator(rest), std::make_move_iterator(now.end()));
    now.erase(rest, now.end());
  }
  for (BoxCopy &copy : now) {
    PhaseBarrier &barrier = phasesOf(copy.barrier);
    SharedMemory &memory = memories[barrier.rank];
    for (auto &[target, bytes] : copy.chunks) {
      std::memcpy(target, bytes.data(), bytes.size());
      eachUnits(memory, target, kChunkBytes, [](Units units) {
        for (int64_t i = 0; i < units.count; ++i)
          units.written[i] &= ~kByCopy;
      });
    }
    for (auto &chunk : copy.chunks)
      barrier.bytes -= static_cast<int64_t>(chunk.second.size());
    endPhase(barrier);
  }
}

bool Block::releasePhases() {
  bool released = false;
  do {
    deliver();
    for (int64_t i = 0; i < threads; ++i)
      if (states[i] == State::atPhase && phasesOf(fibers[i].barrier).phases % 2 != fibers[i].value) {
        states[i] = State::ready;
        released = true;
      }
  } while (!released && !boxes.empty());
  return released;
}

//===- Products of a warpgroup -----------------------------------------------------------------------------------===//

float Block::promise(Fiber &fiber, PendingSum sum) {
  if (fiber.freeSums.empty()) {
    fiber.freeSums.push_back(static_cast<uint32_t>(fiber.pendingSums.size()));
    fiber.pendingSums.emplace_back();
  }
  uint32_t number = fiber.freeSums.back();
  fiber.freeSums.pop_back();
  fiber.pendingSums[number] = sum;
  return std::bit_cast<float>(kPendingNaN | number);
}

void Block::settleSums(float *sums, int32_t count) {
  Fiber &fiber = self();
  for (float *sum = sums; sum != sums + count; ++sum)
    if (const PendingSum *pending = pendingOf(fiber, *sum)) {
      if (pending->group >= fiber.finished)
        fail("sums of a wgmma are read that was not waited for", current);
      fiber.freeSums.push_back(std::bit_cast<uint32_t>(*sum) ^ kPendingNaN);
      *sum = pending->value;
    }
}

void Block::commitProducts() {
  ++self().committed;
  if (beginsGroup(current))
    inFlight[groupOf(current)].emplace_back();
}

void Block::awaitProducts(int32_t most) {
  self().finished = std::max(self().finished, self().committed - most);
  if (!beginsGroup(current))
    return;
  auto &groups = inFlight[groupOf(current)];
  std::vector<uint16_t> now;
  auto isThere = [&](uint64_t descriptor, int32_t turned, int32_t count, const std::vector<uint16_t> &before) {
    readOperand(descriptor, turned, count, now);
    return now == before;
  };
  // The last one is not committed yet.
  while (static_cast<int64_t>(groups.size()) - 1 > most) {
    for (const InFlight &one : groups.front())
      if ((!one.product.inRegisters && !isThere(one.product.a, one.product.turnedA, 64, one.a)) ||
          !isThere(one.product.b, one.product.turnedB, one.product.n, one.b))
        fail("operands of a wgmma were overwritten before it was waited for", current);
    groups.pop_front();
  }
}

void Block::readOperand(uint64_t descriptor, int32_t turned, int32_t count, std::vector<uint16_t> &values) {
  constexpr uint64_t space = uint64_t(1) << 18;
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
    fail("a matrix of wgmma whose swizzle is not of 128 bytes, or has an offset", current);
  auto field = [&](int bit) { return (descriptor >> bit & 0x3fff) * 16; };
  uint64_t begin = field(0), leading = field(16), stride = field(32);
  SharedMemory &memory = own();
  auto base = reinterpret_cast<uint64_t>(memory.begin);
  values.resize(static_cast<size_t>(count) * 16);
  auto *to = reinterpret_cast<char *>(values.data());
  // Eight neighbours along k, or of a turned one along i, are 16 bytes that the swizzle leaves together.
  for (uint64_t i = 0; i < static_cast<uint64_t>(count); i += turned ? 8 : 1)
    for (uint64_t k = 0; k < 16; k += turned ? 1 : 8, to += kChunkBytes) {
      uint64_t at = begin + (turned ? i / 64 * leading + i % 64 * 2 + k / 8 * stride + k % 8 * 128
                                    : i / 8 * stride + i % 8 * 128 + k * 2);
      at ^= (at >> 7 & 7) << 4;
      uint64_t offset = (at - base % space) % space; // from where shared memory begins
      if (offset + kChunkBytes > static_cast<uint64_t>(sharedSize))
        fail("a wgmma reads behind the end of shared memory", current);
      const char *chunk = memory.begin + offset;
      eachUnits(memory, chunk, kChunkBytes, [&](Units units) {
        for (int64_t unit = 0; unit < units.count; ++unit)
          if (uint32_t written = units.written[unit]; written & kByCopy && written >= memory.first)
            if (const Touch &write = memory.at(written); fibers[write.thread].fences == write.fences)
              fail("a wgmma reads what a copy of a thread wrote without a fence of the async proxy", write.thread);
        if (units.count == 1)
          touchUnit(memory, *units.written, *units.read, /*writes=*/false, kSeveral, memory.step, memory.step);
        else
          touchUnits(memory, units, /*writes=*/false, kSeveral, memory.step, memory.step);
      });
      std::memcpy(to, chunk, kChunkBytes);
    }
}

std::vector<uint16_t> Block::held(int64_t first) {
  std::vector<uint16_t> values(64 * 16);
  for (int thread = 0; thread < kGroup; ++thread)
    for (int i = 0; i < 4; ++i) {
      int lane = thread % kWarp, row = thread / kWarp * 16 + lane / 4 + i % 2 * 8, k = lane % 4 * 2 + i / 2 * 8;
      std::memcpy(&values[static_cast<size_t>(row * 16 + k)], &fibers[first + thread].registers[i], 4);
    }
  return values;
}

/// The largest n of wgmma.
static constexpr int32_t kMostColumns = 256;

/// Rows and columns that addProducts() computes at a time.
static constexpr int kRows = 4, kColumns = 8;

/// sums[r][c] += a[r][0..16) * b[0..16)[c] for `columns` of kRows rows. Products are exact in f32. Tensor cores add sixteen at a time and cut what does not fit the digits of the sum: here all of it,
/// which is the worst they may do. What is beyond the largest number is infinite.
#if defined(__x86_64__) && defined(__clang__)
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
static void addProducts(float (*sums)[kMostColumns], const float *a, const float *b, int32_t columns) {
  using Floats = float __attribute__((vector_size(4 * kColumns)));
  using Bits = uint32_t __attribute__((vector_size(4 * kColumns)));
  using Doubles = double __attribute__((vector_size(8 * kColumns)));
  using LongBits = int64_t __attribute__((vector_size(8 * kColumns)));
  constexpr int64_t magnitude = std::numeric_limits<int64_t>::max();
  for (int32_t first = 0; first < columns; first += kColumns) {
    Doubles exact[kRows];
    for (int row = 0; row < kRows; ++row) {
      Floats sum;
      std::memcpy(&sum, sums[row] + first, sizeof(sum));
      exact[row] = __builtin_convertvector(sum, Doubles);
    }
    for (int k = 0; k < 16; ++k) {
      Floats found;
      std::memcpy(&found, b + k * columns + first, sizeof(found));
      Doubles right = __builtin_convertvector(found, Doubles);
      for (int row = 0; row < kRows; ++row)
        exact[row] += static_cast<double>(a[row * 16 + k]) * right;
    }
    for (int row = 0; row < kRows; ++row) {
      Floats rounded = __builtin_convertvector(exact[row], Floats);
      Doubles again = __builtin_convertvector(rounded, Doubles);
      auto larger = reinterpret_cast<Doubles>(reinterpret_cast<LongBits>(again) & magnitude);
      auto size = reinterpret_cast<Doubles>(reinterpret_cast<LongBits>(exact[row]) & magnitude);
      LongBits cut = (larger > size) & (larger <= static_cast<double>(std::numeric_limits<float>::max()));
      // The next one towards 0 has the next smaller bits.
      Bits bits = reinterpret_cast<Bits>(rounded) - (__builtin_convertvector(cut, Bits) & 1);
      std::memcpy(sums[row] + first, &bits, sizeof(bits));
    }
  }
}

void Block::multiplyGroup(int64_t first) {
  const GroupProduct product = *fibers[first].product;
  if (product.n > kMostColumns || product.n % kColumns != 0)
    fail("a wgmma of columns that there are not", first);
  InFlight one{product, {}, {}};
  if (product.inRegisters)
    one.a = held(first);
  else
    readOperand(product.a, product.turnedA, 64, one.a);
  readOperand(product.b, product.turnedB, product.n, one.b);
  // Where readOperand() has put element [i, k].
  auto placeOf = [](int32_t turned, int i, int k) { return turned ? (i / 8 * 16 + k) * 8 + i % 8 : i * 16 + k; };
  right.resize(size_t(16) * kMostColumns);
  for (int32_t column = 0; column < product.n; ++column)
    for (int k = 0; k < 16; ++k)
      right[static_cast<size_t>(k * product.n + column)] = fromBf16(one.b[placeOf(product.turnedB, column, k)]);
  for (int64_t i = first; i < first + kGroup; ++i) // so that they stay where they are below
    fibers[i].pendingSums.reserve(fibers[i].pendingSums.size() + static_cast<size_t>(product.n / 2));
  // Four lanes have a row, and the one eight below it: two neighbours of each eight columns.
  static_assert(kRows == 4);
  for (int row = 0; row < 64; row += row % 16 == 6 ? 10 : 2) {
    float a[kRows * 16], sums[kRows][kMostColumns];
    PendingSum *pending[kRows][kMostColumns]; // null where nothing stands for a sum
    for (int i = 0; i < kRows; ++i)
      for (int k = 0; k < 16; ++k)
        a[i * 16 + k] = fromBf16(one.a[placeOf(product.turnedA, row + i % 2 + i / 2 * 8, k)]);
    auto eachSum = [&](auto body) {
      for (int lane = 0; lane < 8; ++lane) {
        Fiber &fiber = fibers[first + row / 16 * kWarp + row % 8 * 4 + lane];
        float *sum = fiber.sums;
        for (int column = lane % 4 * 2; column < product.n; column += 8, sum += 4)
          for (int k = 0; k < 4; ++k) {
            int i = lane / 4 + k / 2 * 2;
            body(fiber, sum[k], sums[i][column + k % 2], pending[i][column + k % 2]);
          }
      }
    };
    eachSum([](Fiber &fiber, float before, float &sum, PendingSum *&found) {
      found = pendingOf(fiber, before);
      sum = found ? found->value : before;
    });
    addProducts(sums, a, right.data(), product.n);
    eachSum([](Fiber &fiber, float &stands, float sum, PendingSum *found) {
      PendingSum now{sum, static_cast<int32_t>(fiber.committed)};
      if (found)
        *found = now;
      else
        stands = promise(fiber, now);
    });
  }
  inFlight[groupOf(first)].back().push_back(std::move(one));
}

//===- What the lanes of a warp do together ----------------------------------------------------------------------===//

void Block::exchange(int64_t first) {
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

void Block::loadMatrices(int64_t first) {
  const uint16_t *rows[kWarp];
  for (int lane = 0; lane < kWarp; ++lane) {
    rows[lane] = fibers[first + lane].row;
    if (lane < 8 * fibers[first + lane].value)
      touch(rows[lane], 16, /*writes=*/false, kSeveral, now());
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    Fiber &fiber = fibers[first + lane];
    for (int matrix = 0; matrix < fiber.value; ++matrix) {
      int major = lane / 4, minor = lane % 4 * 2;
      auto element = [&](int row, int column) -> uint32_t { return rows[8 * matrix + row][column]; };
      fiber.registers[matrix] = fiber.mode ? element(minor, major) | element(minor + 1, major) << 16
                                           : element(major, minor) | element(major, minor + 1) << 16;
    }
  }
}

void Block::storeMatrices(int64_t first) {
  for (int matrix = 0; matrix < fibers[first].value; ++matrix)
    for (int lane = 0; lane < kWarp; ++lane) {
      const uint16_t *row = fibers[first + 8 * matrix + lane / 4].row;
      auto *to = reinterpret_cast<char *>(const_cast<uint16_t *>(row)) + lane % 4 * 4;
      touch(to, 4, /*writes=*/true, first + lane, now());
      std::memcpy(to, &fibers[first + lane].registers[matrix], 4);
    }
}

void Block::multiply(int64_t first) {
  float a[16][16], b[16][kColumns], sums[16][kMostColumns];
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
      sums[row][pair + half] = f.c[half];
      sums[row + 8][pair + half] = f.c[2 + half];
    }
  }
  for (int row = 0; row < 16; row += kRows)
    addProducts(sums + row, a[row], &b[0][0], kColumns);
  for (int lane = 0; lane < kWarp; ++lane)
    for (int i = 0; i < 4; ++i)
      fibers[first + lane].fragments->c[i] = sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

} // namespace braid::emulator
