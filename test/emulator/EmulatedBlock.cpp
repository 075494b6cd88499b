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

void Block::run(void (*body)(void *), void *args, int64_t program, int64_t count, int64_t sharedBytes,
                int64_t cluster) {
  if (cluster > 1 && count % kWarp != 0)
    fail("blocks of a cluster that are not whole warps", count);
  entry = body;
  arguments = args;
  number = program;
  threads = count * cluster;
  blockThreads = count;
  if (static_cast<int64_t>(fibers.size()) < threads)
    fibers.resize(threads);
  sharedSize = sharedBytes;
  if (static_cast<int64_t>(memories.size()) < cluster)
    memories.resize(cluster);
  for (int64_t i = 0; i < cluster; ++i) {
    SharedMemory &memory = memories[i];
    // The end of shared memory lies at the end of a page: what is read behind it is an error at once.
    memory.begin = take(memory.pages, sharedBytes);
    memory.units.resize(std::max(memory.units.size(), static_cast<size_t>(ceilDiv(sharedBytes, unitBytes))));
    memory.beginBlock();
  }
  global = nullptr;
  inFlight.assign(static_cast<size_t>(cluster * ceilDiv(count, kGroup)), {});
  phaseBarriers.clear();
  boxes.clear();
  for (int64_t i = 0; i < threads; ++i)
    begin(i);
  while (step()) {
  }
}

void Block::touchSingleBytes() {
  if (unitBytes == 1)
    return;
  for (SharedMemory &memory : memories) {
    std::vector<Touched> bytes(2 * memory.units.size());
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = memory.units[i / 2];
    memory.units = std::move(bytes);
  }
  unitBytes = 1;
}

void SharedMemory::beginBlock() {
  constexpr uint32_t most = uint32_t(1) << 30; // far from where numbers end, however long a block
  first += 2 * static_cast<uint32_t>(touches.size());
  if (first > most) {
    std::fill(units.begin(), units.end(), Touched());
    first = 2;
  }
  touches.clear();
  beginStep();
}

void Block::checkTouch(const SharedMemory &memory, Touched unit, bool writes, int64_t thread, uint32_t since) const {
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
  if (!isApart(unit.written) || (writes && !isApart(unit.read)))
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
  // What braidSwitch takes from a stack: the rounding mode, six registers, where to go on.
  auto *words = reinterpret_cast<uint64_t *>(fiber.stack->end()) - 11; // a function begins 8 bytes off 16
  std::fill_n(words, 11, 0);
  asm volatile("stmxcsr %0" : "=m"(*reinterpret_cast<uint32_t *>(words)));
  words[7] = reinterpret_cast<uint64_t>(&Block::start);
  fiber.context = words;
  fiber.state = State::ready;
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
  Fiber &fiber = fibers[current];
  fiber.state = state;
  braidSwitch(&fiber.context, scheduler);
}

static bool isShuffled() {
  static const bool shuffled = isSet("BRAID_EMULATE_ORDER", "shuffled");
  return shuffled;
}

bool Block::step() {
  order.resize(threads);
  std::iota(order.begin(), order.end(), 0);
  static const bool reverse = isSet("BRAID_EMULATE_ORDER", "reverse");
  if (reverse)
    std::reverse(order.begin(), order.end());
  else if (isShuffled())
    std::shuffle(order.begin(), order.end(), random);
  for (int64_t i : order) {
    if (fibers[i].state != State::ready)
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
  auto areAll = [&](State state, int64_t first, int64_t end) {
    return std::all_of(fibers.begin() + first, fibers.begin() + end,
                       [&](const Fiber &fiber) { return fiber.state == state; });
  };
  if (areAll(State::done, 0, threads))
    return false;
  bool together = areAll(State::atCluster, 0, threads), released = false;
  for (int64_t first = 0; first < threads; first += blockThreads) {
    if (!together && !areAll(State::atBarrier, first, first + blockThreads))
      continue;
    memories[first / blockThreads].beginStep();
    for (int64_t i = first; i < first + blockThreads; ++i)
      fibers[i].state = State::ready;
    released = true;
  }
  if (released)
    return true;
  for (int64_t i = 0; i < threads; ++i)
    if (State state = fibers[i].state; state != State::atBarrier && state != State::atCluster)
      fail(state == State::done      ? "a barrier that not all threads of the block reach; one is at its end"
           : state == State::atPhase ? "a phase of a barrier in shared memory that never ends"
                                     : "a barrier that not all threads of the block reach; one waits for its warp or "
                                       "warpgroup",
           i);
  fail("threads of a cluster that wait at different barriers", 0);
}

bool Block::releaseWarp(int64_t first, int64_t end) {
  State state = fibers[first].state;
  // Lanes that wait for a phase come later: it may have ended between one lane and the next.
  for (int64_t i = first; i < end; ++i)
    if (fibers[i].state == State::atPhase)
      return false;
  for (int64_t i = first; i < end; ++i) {
    bool waits = waitsForWarp(fibers[i].state);
    if (waits && fibers[i].state != state)
      fail("lanes of a warp wait in different places", i);
    if (!waits && state != fibers[i].state && waitsForWarp(state))
      fail("a shuffle that not all lanes of the warp reach", i);
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
  for (int64_t i = first; i < end; ++i)
    fibers[i].state = State::ready;
  return true;
}

bool Block::releaseMeeting(int64_t first, int64_t end) {
  for (int64_t i = first; i < end; ++i)
    if (fibers[i].state != State::atMeeting)
      return false;
  for (int64_t i = first; i < end; ++i) {
    fibers[i].state = State::ready;
    ++fibers[i].meetings;
    fibers[i].touch = 0;
  }
  return true;
}

bool Block::releaseGroup(int64_t first, int64_t end) {
  auto waits = [&](int64_t i) { return fibers[i].state == State::atGroupMultiply; };
  for (int64_t i = first; i < end; ++i)
    if (!waits(i))
      return false;
  if (end - first != kGroup)
    fail("a warpgroup of fewer than 128 threads", first);
  for (int64_t i = first; i < end; ++i)
    if (!(*fibers[i].product == *fibers[first].product))
      fail("threads of a warpgroup multiply different matrices", i);
  turnTo(first);
  multiplyGroup(first);
  for (int64_t i = first; i < end; ++i)
    fibers[i].state = State::ready;
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
  auto first = fibers.begin() + rank * blockThreads;
  if (std::all_of(first, first + blockThreads, [](const Fiber &fiber) { return fiber.state == State::done; }))
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
  for (const Touched &unit : unitsOf(memory, store.begin, bytes)) {
    if (unit.written < memory.first)
      fail("a box is stored of which a byte was not written", current);
    const Touch &write = memory.at(unit.written);
    const Fiber &writer = fibers[write.thread];
    if (writer.fences == write.fences)
      fail("a box is stored that a thread wrote without a fence of the async proxy", write.thread);
    bool met = write.thread / kWarp == current / kWarp && writer.meetings != write.meetings;
    if (write.thread != current && unit.written >= memory.step && !met)
      fail("a box is stored that a thread wrote which did not meet this one since", write.thread);
  }
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
    for (Touched &unit : unitsOf(own(), store.begin, static_cast<int64_t>(store.found.size())))
      unit = {};
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
      for (Touched &unit : unitsOf(memory, target, kChunkBytes))
        unit.written &= ~kByCopy;
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
      if (Fiber &fiber = fibers[i];
          fiber.state == State::atPhase && phasesOf(fiber.barrier).phases % 2 != fiber.value) {
        fiber.state = State::ready;
        released = true;
      }
  } while (!released && !boxes.empty());
  return released;
}

//===- Products of a warpgroup -----------------------------------------------------------------------------------===//

float Block::promiseAnother(Fiber &fiber, PendingSum sum) {
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
  for (float *sum = sums; sum != sums + count; ++sum)
    if (const PendingSum *pending = pendingOf(self(), *sum)) {
      if (pending->group >= self().finished)
        fail("sums of a wgmma are read that was not waited for", current);
      self().freeSums.push_back(std::bit_cast<uint32_t>(*sum) ^ kPendingNaN);
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
  // The last one is not committed yet.
  while (static_cast<int64_t>(groups.size()) - 1 > most) {
    for (const InFlight &one : groups.front())
      if ((!one.product.inRegisters && one.a != operand(one.product.a, one.product.turnedA, 64)) ||
          one.b != operand(one.product.b, one.product.turnedB, one.product.n))
        fail("operands of a wgmma were overwritten before it was waited for", current);
    groups.pop_front();
  }
}

std::vector<uint16_t> Block::operand(uint64_t descriptor, int32_t turned, int32_t count) {
  constexpr uint64_t space = uint64_t(1) << 18;
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
    fail("a matrix of wgmma whose swizzle is not of 128 bytes, or has an offset", current);
  auto field = [&](int bit) { return (descriptor >> bit & 0x3fff) * 16; };
  uint64_t begin = field(0), leading = field(16), stride = field(32);
  SharedMemory &memory = own();
  auto base = reinterpret_cast<uint64_t>(memory.begin);
  std::vector<uint16_t> values(static_cast<size_t>(count) * 16);
  // Eight neighbours along k, or of a turned one along i, are 16 bytes that the swizzle leaves together.
  for (uint64_t i = 0; i < static_cast<uint64_t>(count); i += turned ? 8 : 1)
    for (uint64_t k = 0; k < 16; k += turned ? 1 : 8) {
      uint64_t at = begin + (turned ? i / 64 * leading + i % 64 * 2 + k / 8 * stride + k % 8 * 128
                                    : i / 8 * stride + i % 8 * 128 + k * 2);
      at ^= (at >> 7 & 7) << 4;
      uint64_t offset = (at - base % space) % space; // from where shared memory begins
      if (offset + kChunkBytes > static_cast<uint64_t>(sharedSize))
        fail("a wgmma reads behind the end of shared memory", current);
      const char *chunk = memory.begin + offset;
      for (const Touched &unit : unitsOf(memory, chunk, kChunkBytes))
        if (unit.written & kByCopy && unit.written >= memory.first)
          if (const Touch &write = memory.at(unit.written); fibers[write.thread].fences == write.fences)
            fail("a wgmma reads what a copy of a thread wrote without a fence of the async proxy", write.thread);
      touch(chunk, kChunkBytes, /*writes=*/false, kSeveral, memory.step);
      uint16_t eight[8];
      std::memcpy(eight, chunk, sizeof(eight));
      for (uint64_t e = 0; e < 8; ++e)
        values[turned ? (i + e) * 16 + k : i * 16 + k + e] = eight[e];
    }
  return values;
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

/// sums[c] += a[0..16) * b[0..16)[c] for `columns` of a row. Products are exact in f32. Tensor cores add sixteen at a time and cut what does not fit the digits of the sum: here all of it, which is the
/// worst they may do. What is beyond the largest number is infinite.
#if defined(__x86_64__) && defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static void addProducts(float *sums, const float *a, const float *b, int32_t columns) {
  double exact[kMostColumns];
  for (int32_t c = 0; c < columns; ++c)
    exact[c] = sums[c];
  for (int k = 0; k < 16; ++k)
    for (int32_t c = 0; c < columns; ++c)
      exact[c] += static_cast<double>(a[k]) * static_cast<double>(b[k * columns + c]);
  for (int32_t c = 0; c < columns; ++c) {
    auto rounded = static_cast<float>(exact[c]);
    // The next one towards 0 has the next smaller bits.
    bool cut = std::fabs(static_cast<double>(rounded)) > std::fabs(exact[c]) &&
               std::fabs(rounded) <= std::numeric_limits<float>::max();
    sums[c] = std::bit_cast<float>(std::bit_cast<uint32_t>(rounded) - (cut ? 1 : 0));
  }
}

void Block::multiplyGroup(int64_t first) {
  const GroupProduct product = *fibers[first].product;
  if (product.n > kMostColumns)
    fail("a wgmma of more columns than there are", first);
  InFlight one{product, product.inRegisters ? held(first) : operand(product.a, product.turnedA, 64),
               operand(product.b, product.turnedB, product.n)};
  auto columns = static_cast<size_t>(product.n);
  std::vector<float> b(16 * columns);
  for (size_t column = 0; column < columns; ++column)
    for (size_t k = 0; k < 16; ++k)
      b[k * columns + column] = fromBf16(one.b[column * 16 + k]);
  for (int row = 0; row < 64; ++row) {
    // Four lanes have a row: two neighbours of each eight columns.
    auto eachSum = [&](auto body) {
      for (int lane = row % 8 * 4; lane < row % 8 * 4 + 4; ++lane) {
        Fiber &fiber = fibers[first + row / 16 * kWarp + lane];
        float *sum = fiber.sums + row % 16 / 8 * 2;
        for (int column = lane % 4 * 2; column < product.n; column += 8, sum += 4)
          for (int i = 0; i < 2; ++i)
            body(fiber, sum[i], column + i);
      }
    };
    float a[16], sums[kMostColumns];
    std::transform(one.a.begin() + row * 16, one.a.begin() + row * 16 + 16, a, fromBf16);
    eachSum([&](Fiber &fiber, float sum, int column) {
      const PendingSum *pending = pendingOf(fiber, sum);
      sums[column] = pending ? pending->value : sum;
    });
    addProducts(sums, a, b.data(), product.n);
    eachSum([&](Fiber &fiber, float &sum, int column) {
      sum = promise(fiber, sum, {sums[column], static_cast<int32_t>(fiber.committed)});
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
  for (int lane = 0; lane < kWarp; ++lane) {
    Fiber &fiber = fibers[first + lane];
    if (lane < 8 * fiber.value)
      touch(fiber.row, 16, /*writes=*/false, kSeveral, now());
    for (int matrix = 0; matrix < fiber.value; ++matrix) {
      int major = lane / 4, minor = lane % 4 * 2;
      auto element = [&](int row, int column) -> uint32_t { return fibers[first + 8 * matrix + row].row[column]; };
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
  for (int row = 0; row < 16; ++row) {
    float sums[8];
    auto sumAt = [&](int column) -> float & {
      return fibers[first + row % 8 * 4 + column / 2].fragments->c[row / 8 * 2 + column % 2];
    };
    for (int column = 0; column < 8; ++column)
      sums[column] = sumAt(column);
    addProducts(sums, a[row], &b[0][0], 8);
    for (int column = 0; column < 8; ++column)
      sumAt(column) = sums[column];
  }
}

} // namespace braid::emulator
