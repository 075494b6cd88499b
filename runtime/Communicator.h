// Communicator: the collectives of one rank on one mesh axis or product of axes. Calls block until this rank's part is
// done (a session runs them on the axis's progress thread, see Stream.h) and come in the same order on every rank of
// the axis. A peer that does not arrive, or failed, ends the call with a Status that names the operation, this rank and
// the peer; after that the whole group is dead and every later call returns at once.
#pragma once

#include "runtime/Program.h"

struct CUstream_st;

namespace braid::runtime {

enum class CollectiveKind : uint8_t { allReduce, allGather, reduceScatter, allToAll, shift };
struct CollectiveCall; // runtime/comm/Collectives.h

class Communicator {
public:
  virtual ~Communicator() = default;

  virtual std::string_view axis() const = 0;
  virtual int size() const = 0; // ranks on this axis
  virtual int rank() const = 0; // this rank's coordinate on it
  // Bytes of data that this rank has handed to others so far, without what a backend adds to them (headers, packets).
  // For the thread that calls collectives.
  virtual uint64_t sentBytes() const = 0;

  // `name` is what a person reads in errors; it must live as long as the call. Sizes are bytes. Buffers do not overlap
  // except where said. Sums are taken in rank order, f32 and bf16 in f32, integers exactly; NCCL's have an order of its
  // own, the same every time, and round bf16 after each addition.
  //
  // recv = sum over ranks of send. recv may be send.
  virtual Status allReduce(const std::byte *send, std::byte *recv, uint64_t bytes, DType type, const char *name) = 0;
  // recv = blocks of all ranks, `bytes` each. send may be this rank's block of recv.
  virtual Status allGather(const std::byte *send, std::byte *recv, uint64_t bytes, const char *name) = 0;
  // recv = this rank's block (`bytes`) of the sum over ranks of send (size() blocks). recv may be this rank's block of
  // send.
  virtual Status reduceScatter(const std::byte *send, std::byte *recv, uint64_t bytes, DType type,
                               const char *name) = 0;

  // What the rank `distance` before this one on the axis sends (`reverse`: behind it) goes to recv; this rank's goes as
  // far the other way. At the end of the axis nothing is sent and zeros are received, unless `cyclic`. A rank that sends nothing
  // may leave `send` null, one that would get zeros `recv`.
  struct Shift {
    const std::byte *send = nullptr;
    std::byte *recv = nullptr;
    uint64_t bytes = 0;
    bool cyclic = false, reverse = false;
    int distance = 1;
    // The coordinates of the ranks that send to and receive from the one with coordinate `rank`; -1: none.
    int source(int rank, int size) const { return neighbour(rank, size, !reverse); }
    int target(int rank, int size) const { return neighbour(rank, size, reverse); }

  private:
    int neighbour(int rank, int size, bool before) const {
      int64_t at = before ? int64_t(rank) - distance : int64_t(rank) + distance;
      if (at >= 0 && at < size)
        return static_cast<int>(at);
      return cyclic ? static_cast<int>((at % size + size) % size) : -1;
    }
  };
  virtual Status shift(const Shift &args, const char *name) = 0;

  // One block per peer. Without counts whole blocks travel. With counts (i32 [size(), countsPerPeer], device data read
  // when the call starts) the first sum(counts of the peer) * rowBytes bytes of each block do.
  struct AllToAll {
    const std::byte *send = nullptr;
    std::byte *recv = nullptr;
    uint64_t blockBytes = 0;
    uint64_t rowBytes = 0;
    const int32_t *sendCounts = nullptr; // null: whole blocks
    const int32_t *recvCounts = nullptr;
    uint32_t countsPerPeer = 1;
  };
  virtual Status allToAll(const AllToAll &args, const char *name) = 0;

  // What every collective begins with: waits until all ranks of the axis have come, and compares what they call. For
  // communicators whose data travel another way.
  virtual Status meet(const CollectiveCall &call) = 0;

  // From now on calls are put on this stream of a GPU and return when they are there: nobody meets, and what fails later
  // says CommunicatorGroup::health(). The host waits for counts of an all_to_all only. For communicators of GPUs.
  virtual Status queueOn(CUstream_st *) {
    return Status::error(ErrorCode::unsupported, "axis {}: its communicator moves the memory of hosts, not of GPUs",
                         axis());
  }
};

// The communicators of one rank, one per mesh axis (both views) and per product of axes ("dp*sp") or pair ("pp[0,1]") a
// program uses.
class CommunicatorGroup {
public:
  virtual ~CommunicatorGroup() = default;

  virtual int rank() const = 0;
  virtual int worldSize() const = 0;
  // Creates the communicator at the first call for an axis (collective: every rank asks for the same axes in the same
  // order, which sessions of one program do), then returns the same one. Null: an axis that this rank is not on, a pair of
  // others. Owned by the group.
  virtual Expected<Communicator *> axis(std::string_view name) = 0;
  // All ranks, for hosts: loss means, checkpoint barriers.
  virtual Communicator &world() = 0;
  // Ends the work of all ranks: every pending and later call, here and on the peers, returns an error that quotes
  // `reason`. Called when this rank cannot go on.
  virtual void abort(const Status &reason) = 0;
  // Whether the work goes on; else "rank .. stopped because ..", as the next collective would say. Any thread may ask.
  virtual Status health() = 0;
};

} // namespace braid::runtime
