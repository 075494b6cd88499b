//===- ThreadEmulator.cpp - the threads of a GPU's blocks, on one thread of a CPU --------------------------------===//
//
// Preloaded into a program that executes kernels compiled with --cpu=native,threads (braid-emulate-threads), which call what is
// here. Every thread of a block is a fiber (EmulatedBlock.h); it runs until it waits for its warp (a shuffle, a matrix
// instruction), for its block (a barrier) or for a phase of a barrier in shared
// memory. Between two barriers threads run one after the other, in the order that BRAID_EMULATE_ORDER says: `forward`,
// `reverse` or `shuffled`. A kernel that lacks a barrier gives other results in another order; BRAID_EMULATE_BARRIERS=off
// leaves them all out. What a thread writes to shared memory no other one may touch before the next barrier, or another one of its warp before they meet
// (syncwarp), in no order and even if it makes no difference. Shared memory begins as NaN. Such a touch ends the process with a message, as does what
// a GPU would hang on: a barrier that some threads of the block, or a shuffle that some lanes of the warp, never reach.
//
// A barrier in shared memory (mbarrier) counts the arrivals and the bytes of a phase. A box (cp.async.bulk.tensor) is read when
// its copy begins and written as late as possible, when no thread goes on without it; in the order `reverse`, at once. A
// thread that waits for a phase that never ends, arrivals or bytes that nobody expects, and a box that is larger than
// what it is cut from end the process. That a phase ends counts as a barrier of all threads, whoever waits for it, and what
// boxes write is not checked byte by byte: a stage that is filled too early shows in the operands of a wgmma, or in the results.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "test/emulator/ThreadEmulator.h"

#include "test/emulator/EmulatedBlock.h"

#include <cstring>
#include <utility>

using namespace braid::emulator;

namespace {

struct Launch {
  int64_t blocks = 0, threads = 0, sharedBytes = 0;
  char *scratch = nullptr;
};

Launch &theLaunch() {
  thread_local Launch launch;
  return launch;
}

void execute(const Copy &copy) {
  if (copy.live == kChunkBytes) { // most are
    std::memcpy(copy.target, copy.source, kChunkBytes);
    return;
  }
  std::memcpy(copy.target, copy.source, copy.live);
  std::memset(copy.target + copy.live, 0, copy.size - copy.live);
}

/// body(shared, global, bytes) for each chunk of 16 bytes of a box; of those there are so many in the buffer, which come first. A row of a box has 128, 64
/// or 32 bytes; as many of bits 4 to 6 of a place as it has chunks for are combined with those of bits 7 to 9.
template <typename Body>
void eachChunk(int64_t place, int64_t index, const int64_t *slots, const int64_t *told, int64_t elementBytes,
               Body body) {
  constexpr int64_t most = 5, perMap = 2 + 3 * most;
  const int64_t chunk = kChunkBytes / elementBytes;
  const int64_t *parameters = slots + 3; // behind the grid
  int64_t thread = theBlock().thread();
  if (index < 0 || index >= told[0])
    fail("a bulk copy by a map that the kernel has not", thread);
  const int64_t *map = told + 1 + index * perMap, *coordinates = told + 1 + told[0] * perMap;
  int64_t rank = map[1], at[most], size[most], stride[most], box[most];
  auto *buffer = reinterpret_cast<char *>(parameters[map[0]]);
  auto value = [&](int64_t number) { return number < 0 ? parameters[-1 - number] : number; };
  bool rowMajor = map[2 + most + rank - 1] == 0;
  for (int64_t d = rank - 1; d >= 0; --d) {
    at[d] = coordinates[rank - 1 - d];
    size[d] = value(map[2 + d]);
    box[d] = map[2 + 2 * most + d];
    if (box[d] > size[d])
      fail("a box that is larger than what it is cut from: a GPU would wait for it for ever", thread);
    stride[d] = !rowMajor ? value(map[2 + most + d]) : d == rank - 1 ? 1 : stride[d + 1] * size[d + 1];
    if (d < rank - 1 && size[d] > 1 && stride[d] * elementBytes % kChunkBytes != 0)
      fail("a bulk copy of rows that do not begin on 16 bytes", thread);
  }
  int64_t rowBytes = box[rank - 1] * elementBytes, chunks = rowBytes / kChunkBytes;
  if (reinterpret_cast<uint64_t>(buffer) % kChunkBytes != 0 || stride[rank - 1] != 1 ||
      (rowBytes != 128 && rowBytes != 64 && rowBytes != 32))
    fail("a bulk copy of a buffer that does not begin on 16 bytes, or whose rows are not what the swizzle takes",
         thread);
  if (place % (8 * rowBytes) != 0)
    fail("a bulk copy to or from where no pattern begins", thread);
  int64_t rows = 1;
  for (int64_t d = 0; d < rank - 1; ++d)
    rows *= box[d];
  for (int64_t row = 0; row < rows; ++row) {
    char *global = buffer;
    bool inside = true;
    for (int64_t d = rank - 2, rest = row; d >= 0; rest /= box[d--]) {
      int64_t number = at[d] + rest % box[d];
      inside &= number >= 0 && number < size[d];
      global += number * stride[d] * elementBytes;
    }
    for (int64_t first = 0; first < box[rank - 1]; first += chunk) {
      int64_t column = at[rank - 1] + first, rest = size[rank - 1] - column;
      if (column < 0)
        fail("a bulk copy from in front of a row", thread);
      int64_t there = !inside || rest <= 0 ? 0 : rest < chunk ? rest : chunk;
      int64_t offset = row * rowBytes + first * elementBytes;
      offset ^= (offset >> 7 & (chunks - 1)) << 4;
      body(reinterpret_cast<char *>(place) + offset, global + column * elementBytes, there * elementBytes);
    }
  }
}

BoxCopy readBox(int64_t target, int64_t barrier, int64_t index, const int64_t *slots, const int64_t *told) {
  BoxCopy copy{reinterpret_cast<char *>(barrier), {}};
  eachChunk(target, index, slots, told, /*elementBytes=*/2, [&](char *shared, const char *global, int64_t bytes) {
    std::array<char, kChunkBytes> found = {};
    if (bytes)
      std::memcpy(found.data(), global, static_cast<size_t>(bytes));
    copy.chunks.emplace_back(shared, found);
  });
  return copy;
}

void storeBox(int64_t source, int64_t index, const int64_t *slots, const int64_t *told, int64_t elementBytes,
              bool adds) {
  BoxStore store;
  store.begin = reinterpret_cast<const char *>(source);
  store.adds = adds;
  int64_t bytes = 0;
  eachChunk(source, index, slots, told, elementBytes, [&](char *shared, char *global, int64_t count) {
    bytes += kChunkBytes;
    if (count)
      store.pieces.push_back({shared, global, static_cast<size_t>(count)});
  });
  theBlock().store(std::move(store), bytes);
}

} // namespace

extern "C" {
void braid_emulate_launch(int64_t blocks, int64_t threads, int64_t sharedBytes, char *scratch) {
  theLaunch() = {blocks, threads, sharedBytes, scratch};
}

/// Of a cluster that has its first block among them all blocks run, of others none.
void braid_emulate_blocks(void (*body)(void *), void *args, int64_t begin, int64_t end, int64_t threads,
                          int64_t sharedBytes, int64_t cluster) {
  const Launch &launch = theLaunch();
  if (launch.blocks && (launch.threads != threads || launch.sharedBytes != sharedBytes))
    fail("a launch with other threads or shared memory than the kernel was compiled for", threads);
  if (launch.blocks % cluster != 0)
    fail("a launch of blocks that are not whole clusters", threads);
  theBlock().beginLaunch(threads, sharedBytes, cluster);
  for (int64_t program = (begin + cluster - 1) / cluster * cluster; program < end; program += cluster)
    theBlock().run(body, args, program);
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

void braid_emulate_meet() { theBlock().wait(State::atMeeting); }

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
  Copy copy{reinterpret_cast<char *>(target), reinterpret_cast<const char *>(source), size, live, theBlock().now()};
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
    theBlock().touch(copy.target, copy.size, /*writes=*/true, copy.begun);
    if (!atOnce)
      execute(copy);
    theBlock().wroteByCopy(copy.target, copy.size);
  }
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
/// At the barrier that lies there in another block of the cluster.
void braid_emulate_bulk_arrive_in(int64_t barrier, int32_t rank) {
  theBlock().arrive(theBlock().inBlock(reinterpret_cast<char *>(barrier), rank), 0);
}
void braid_emulate_bulk_cluster() { theBlock().wait(State::atCluster); }
/// An arrival when all copies of the thread are done: here, at the last.
void braid_emulate_bulk_copied(int64_t barrier) {
  braid_emulate_copies_commit();
  braid_emulate_copies_wait(0);
  theBlock().arrive(reinterpret_cast<char *>(barrier), 0);
}
void braid_emulate_bulk_expect(int64_t barrier, int32_t bytes) {
  theBlock().arrive(reinterpret_cast<char *>(barrier), bytes);
}
void braid_emulate_bulk_await(int64_t barrier, int32_t parity) {
  theBlock().await(reinterpret_cast<char *>(barrier), parity);
}
/// cp.async.bulk.tensor of bf16 to `target` by map number `index`, which the driver makes of `slots` and what is `told`: the number of maps; for each a parameter,
/// dimensions, and five sizes, strides (all 0: row-major) and sides of the box; then the coordinates of this copy, innermost first.
void braid_emulate_bulk_copy(int64_t target, int64_t barrier, int64_t index, const int64_t *slots,
                             const int64_t *told) {
  theBlock().send(readBox(target, barrier, index, slots, told));
}
void braid_emulate_bulk_multicast(int64_t target, int64_t barrier, int64_t index, const int64_t *slots,
                                  const int64_t *told) {
  theBlock().sendToAll(readBox(target, barrier, index, slots, told));
}

/// The same from `source` to global memory, of which nothing is written past the end of the buffer.
void braid_emulate_bulk_store_bf16(int64_t source, int64_t index, const int64_t *slots, const int64_t *told) {
  storeBox(source, index, slots, told, /*elementBytes=*/2, /*adds=*/false);
}
void braid_emulate_bulk_store_f32(int64_t source, int64_t index, const int64_t *slots, const int64_t *told) {
  storeBox(source, index, slots, told, /*elementBytes=*/4, /*adds=*/false);
}
void braid_emulate_bulk_add_f32(int64_t source, int64_t index, const int64_t *slots, const int64_t *told) {
  storeBox(source, index, slots, told, /*elementBytes=*/4, /*adds=*/true);
}
void braid_emulate_bulk_commit() { theBlock().commitStores(); }
void braid_emulate_bulk_read(int32_t most) { theBlock().awaitRead(most); }

void braid_emulate_fence_async() { theBlock().fence(); }

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
/// `count` sums that the program reads from here on.
void braid_emulate_wgmma_sums(int32_t count, float *sums) { theBlock().settleSums(sums, count); }

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

/// `row`: where 8 elements of matrix number lane / 8 go; `registers`: this lane's `count`.
void braid_emulate_stmatrix(int64_t row, int32_t count, void *registers) {
  Fiber &self = theBlock().self();
  if (row % 16 != 0)
    fail("a row of a matrix that is not aligned to 16 bytes", theBlock().thread());
  self.row = reinterpret_cast<const uint16_t *>(row);
  self.value = count;
  self.registers = static_cast<uint32_t *>(registers);
  theBlock().wait(State::atStore);
}

/// `fragments`: 4 registers of a, 2 of b, 4 of c, which receive the result.
void braid_emulate_mma(void *fragments) {
  theBlock().self().fragments = static_cast<Fragments *>(fragments);
  theBlock().wait(State::atMultiply);
}
}
