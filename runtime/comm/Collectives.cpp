#include "runtime/comm/Collectives.h"

#include "runtime/Bf16.h"
#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

namespace braid::runtime {

const char *toString(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::allReduce: return "all_reduce";
  case CollectiveKind::allGather: return "all_gather";
  case CollectiveKind::reduceScatter: return "reduce_scatter";
  case CollectiveKind::allToAll: return "all_to_all";
  case CollectiveKind::shift: return "shift";
  }
  return "unknown";
}

Expected<std::optional<AxisMembers>> membersOf(const MeshInfo &mesh, int rank, std::string_view axis) {
  if (!mesh.size(axis))
    return Status::error(ErrorCode::notFound, "the mesh has no axis '{}'", axis);
  auto self = static_cast<uint32_t>(rank);
  auto ranks = mesh.members(self, axis);
  return ranks ? std::optional(AxisMembers{*std::move(ranks), *mesh.coordinate(self, axis)}) : std::nullopt;
}

std::string CollectiveCall::on(std::string_view axis) const {
  return fmt::format("{} '{}' on axis {}", toString(kind), name, axis);
}

std::string disagreement(std::string_view axis, uint32_t rankA, const CollectiveCall &a, uint32_t rankB,
                         const CollectiveCall &b) {
  auto describe = [](const CollectiveCall &call) {
    return fmt::format("{}{}{}{} '{}' of {} bytes {}", call.cyclic ? "cyclic " : "", call.reverse ? "reverse " : "",
                       toString(call.kind), call.distance == 1 ? "" : fmt::format(" by {}", call.distance), call.name,
                       call.bytes, toString(call.dtype));
  };
  // Two collectives of one size are not one: the values of one would become those of the other.
  auto key = [](const CollectiveCall &call) {
    return std::tuple(call.kind, call.bytes, call.dtype, call.cyclic, call.reverse, call.distance);
  };
  // Ranks of one process have the same names in the same place: nothing of the program is read.
  if (key(a) == key(b) && (a.name == b.name || std::strncmp(a.name, b.name, CollectiveCall::comparedName) == 0))
    return {};
  return fmt::format("ranks disagree on axis {}: rank {} calls {}, rank {} calls {}", axis, rankA, describe(a), rankB,
                     describe(b));
}

static CollectiveKind kindOf(schema::CollectiveKind kind) {
  switch (kind) {
  case schema::CollectiveKind::all_reduce: return CollectiveKind::allReduce;
  case schema::CollectiveKind::all_gather: return CollectiveKind::allGather;
  case schema::CollectiveKind::reduce_scatter: return CollectiveKind::reduceScatter;
  case schema::CollectiveKind::all_to_all: return CollectiveKind::allToAll;
  case schema::CollectiveKind::shift: return CollectiveKind::shift;
  }
  return CollectiveKind::allReduce;
}

CollectiveCall callOf(const schema::Collective &collective) {
  CollectiveKind kind = kindOf(collective.kind());
  uint64_t bytes = kind == CollectiveKind::allToAll        ? collective.block_bytes()
                   : kind == CollectiveKind::reduceScatter ? collective.recv()->bytes()
                   : kind == CollectiveKind::shift // one of the two may be empty
                       ? std::max(collective.send()->bytes(), collective.recv()->bytes())
                       : collective.send()->bytes();
  return {kind,
          collective.name() ? collective.name()->c_str() : "",
          bytes,
          static_cast<DType>(collective.dtype()),
          collective.cyclic(),
          collective.reverse(),
          static_cast<int>(collective.distance())};
}

Stripe stripeOf(uint64_t bytes, DType type, int rank, int ranks) {
  uint64_t count = bytes / sizeOf(type), parts = static_cast<uint64_t>(ranks), at = static_cast<uint64_t>(rank);
  uint64_t begin = count * at / parts, end = count * (at + 1) / parts;
  return {begin * sizeOf(type), (end - begin) * sizeOf(type)};
}

uint64_t sentBytes(const CollectiveCall &call, int rank, int ranks) {
  auto peers = static_cast<uint64_t>(ranks - 1);
  switch (call.kind) {
  case CollectiveKind::allReduce: {
    if (call.bytes <= smallSumBytes)
      return peers * call.bytes;
    uint64_t own = stripeOf(call.bytes, call.dtype, rank, ranks).bytes;
    return call.bytes - own + peers * own;
  }
  case CollectiveKind::allGather:
  case CollectiveKind::reduceScatter:
  case CollectiveKind::allToAll: return peers * call.bytes;
  case CollectiveKind::shift: {
    Communicator::Shift shift;
    shift.cyclic = call.cyclic;
    shift.reverse = call.reverse;
    shift.distance = call.distance;
    int target = shift.target(rank, ranks);
    return target >= 0 && target != rank ? call.bytes : 0;
  }
  }
  return 0;
}

uint64_t sentBytes(const Communicator::AllToAll &args, int rank, int ranks) {
  uint64_t total = 0;
  for (int peer = 0; peer < ranks; ++peer)
    if (BlockRows rows = rowsToSend(args, peer); peer != rank)
      total += rows.counted ? static_cast<uint64_t>(std::max<int64_t>(rows.rows, 0)) * rows.rowBytes : args.blockBytes;
  return total;
}

// ---- Rows -----------------------------------------------------------------------------------------------------------

static BlockRows rowsOf(const int32_t *counts, const Communicator::AllToAll &args, int peer) {
  if (!counts)
    return {};
  BlockRows result{true, 0, args.rowBytes};
  for (uint32_t i = 0; i < args.countsPerPeer; ++i) {
    int32_t count = counts[static_cast<uint32_t>(peer) * args.countsPerPeer + i];
    if (count < 0) {
      result.rows = count;
      break;
    }
    result.rows += count;
  }
  return result;
}

BlockRows rowsToSend(const Communicator::AllToAll &args, int peer) { return rowsOf(args.sendCounts, args, peer); }
BlockRows rowsToReceive(const Communicator::AllToAll &args, int peer) { return rowsOf(args.recvCounts, args, peer); }

Expected<uint64_t> bytesToReceive(const BlockRows &expected, const BlockRows &sent, uint64_t blockBytes) {
  if (expected.counted != sent.counted)
    return Status::error("only one of them has counts");
  if (!expected.counted)
    return blockBytes;
  if (expected.rows != sent.rows || expected.rows < 0 || expected.rowBytes != sent.rowBytes)
    return Status::error("expects {} rows of {} bytes but {} rows of {} bytes come", expected.rows, expected.rowBytes,
                         sent.rows, sent.rowBytes);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(expected.rows), expected.rowBytes, &bytes))
    return Status::error(ErrorCode::overflow, "the number of bytes overflows");
  if (bytes <= blockBytes)
    return bytes;
  uint64_t room = blockBytes / expected.rowBytes;
  // By hundredths, upwards.
  double times =
      std::ceil(100.0 * static_cast<double>(expected.rows) / static_cast<double>(std::max<uint64_t>(room, 1))) / 100;
  return Status::error(ErrorCode::overflow,
                       "{} rows of {} bytes exceed the block of {} bytes, which has room for {}; valid: a program with "
                       "more room for rows of experts (an --expert-room {:.2f} times as large, or more, or none)",
                       expected.rows, expected.rowBytes, blockBytes, room, times);
}

// ---- Sums in rank order ---------------------------------------------------------------------------------------------

namespace {

template <class T> T load(const std::byte *from, uint64_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

// A block is read from every part before it is written.
template <class Stored, class Sum, class Widen, class Narrow>
void sumTyped(std::span<const std::byte *const> parts, uint64_t count, std::byte *recv, Widen widen, Narrow narrow) {
  constexpr uint64_t blockLength = 512;
  Sum block[blockLength];
  for (uint64_t first = 0; first < count; first += blockLength) {
    uint64_t length = std::min(blockLength, count - first);
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const std::byte *from = parts[rank] + first * sizeof(Stored);
      if (rank == 0)
        for (uint64_t i = 0; i < length; ++i)
          block[i] = widen(load<Stored>(from, i));
      else
        for (uint64_t i = 0; i < length; ++i)
          block[i] += widen(load<Stored>(from, i));
    }
    for (uint64_t i = 0; i < length; ++i) {
      Stored value = narrow(block[i]);
      std::memcpy(recv + (first + i) * sizeof(Stored), &value, sizeof(Stored));
    }
  }
}

} // namespace

void sumInOrder(std::span<const std::byte *const> parts, DType type, uint64_t count, std::byte *recv) {
  auto same = [](auto value) { return value; };
  switch (type) {
  case DType::f32: return sumTyped<float, float>(parts, count, recv, same, same);
  case DType::bf16: return sumTyped<uint16_t, float>(parts, count, recv, fromBf16, toBf16);
  case DType::f64: return sumTyped<double, double>(parts, count, recv, same, same);
  // Unsigned: a sum that does not fit wraps, which signed integers may not.
  case DType::i32: return sumTyped<uint32_t, uint32_t>(parts, count, recv, same, same);
  case DType::i64: return sumTyped<uint64_t, uint64_t>(parts, count, recv, same, same);
  case DType::u8:
  case DType::i16: return;
  }
}

} // namespace braid::runtime
