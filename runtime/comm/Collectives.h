// Collectives: what every communicator has in common, so that all of them give the same bits and say the same words:
// sums in rank order, the comparison of what the ranks of an axis call, and of the rows that two of them exchange.
#pragma once

#include "runtime/Communicator.h"

namespace braid::schema {
struct Collective;
}

namespace braid::runtime {

const char *toString(CollectiveKind kind);

// The ranks of an axis, by coordinate, and which of them is this one; nothing: this one is none of them.
struct AxisMembers {
  std::vector<uint32_t> ranks;
  uint32_t self;
};
Expected<std::optional<AxisMembers>> membersOf(const MeshInfo &mesh, int rank, std::string_view axis);

// A collective as a rank's peers see it.
struct CollectiveCall {
  CollectiveKind kind;
  const char *name;
  uint64_t bytes; // all_reduce, shift: of send; all_gather, reduce_scatter, all_to_all: of a rank's block
  DType dtype;    // of sums, else u8
  bool cyclic = false, reverse = false; // shift
  int distance = 1;
  static constexpr size_t comparedName = 63; // characters of the name by which ranks tell calls apart

  // "all_reduce 'gradients' on axis dp"
  std::string on(std::string_view axis) const;
};

// A sum of up to so many bytes is sent to every rank whole, and each adds up all of it: a message costs more than what is
// in it. Of a larger one every rank adds up a stripe and sends it to the others.
constexpr uint64_t smallSumBytes = 8192;
struct Stripe {
  uint64_t offset, bytes;
};
Stripe stripeOf(uint64_t bytes, DType type, int rank, int ranks);

// Bytes of data that the rank with coordinate `rank` sends; of an all_to_all whole blocks.
uint64_t sentBytes(const CollectiveCall &call, int rank, int ranks);
// The same of an all_to_all's true rows.
uint64_t sentBytes(const Communicator::AllToAll &args, int rank, int ranks);

// What ranks call when they execute a program's collective; its name is the program's.
CollectiveCall callOf(const schema::Collective &collective);

// Empty when both ranks call the same; else the sentence that says what each of them (numbers in the world) calls.
std::string disagreement(std::string_view axis, uint32_t rankA, const CollectiveCall &a, uint32_t rankB,
                         const CollectiveCall &b);

// The rows of a block that an all_to_all exchanges with one peer; `counted` false: whole blocks travel.
struct BlockRows {
  bool counted = false;
  int64_t rows = 0; // negative: a count was
  uint64_t rowBytes = 0;
};
BlockRows rowsToSend(const Communicator::AllToAll &args, int peer);
BlockRows rowsToReceive(const Communicator::AllToAll &args, int peer);

// Bytes of the block that comes, or why what this rank expects and what the peer sends do not fit.
Expected<uint64_t> bytesToReceive(const BlockRows &expected, const BlockRows &sent, uint64_t blockBytes);

// recv[i] = sum over `parts`, in their order, of part[i], for `count` elements: f32 and bf16 in f32, integers wrap.
// recv may be one of the parts. Not for u8.
void sumInOrder(std::span<const std::byte *const> parts, DType type, uint64_t count, std::byte *recv);

} // namespace braid::runtime
