//===- Buffers.cpp - which values share a buffer ------------------------------------------------------------------===//
#include "passes/analysis/Buffers.h"

#include "dialects/cmd/CmdDialect.h"
#include "passes/analysis/Views.h"

using namespace mlir;
using namespace braid;

void BufferPlace::move(int64_t by, ArrayRef<int64_t> byStrides) {
  offset += by;
  if (strides.size() < byStrides.size())
    strides.resize(byStrides.size(), 0);
  for (auto [i, stride] : llvm::enumerate(byStrides))
    strides[i] += stride;
}

static bool sameStrides(const BufferPlace &a, const BufferPlace &b) {
  for (unsigned i = 0, e = std::max(a.strides.size(), b.strides.size()); i < e; ++i)
    if (a.stride(i) != b.stride(i))
      return false;
  return true;
}

//===- Values get locations ---------------------------------------------------------------------------------------===//

Buffers::Member Buffers::describe(Value value) const {
  Member member;
  member.value = value;
  member.scope = timeline.scopeOf(value);
  member.live = timeline.live(value);
  member.bytes = extentBytes(value);
  member.root = value;
  member.zero = isZero(value);
  return member;
}

unsigned Buffers::add(Member member) {
  unsigned id = members.size();
  Buffer &buffer = buffers[member.at.buffer];
  Segment bytes = range(member, 0);
  if (buffer.members.empty() && !buffer.named()) {
    buffer.low = bytes.begin;
    buffer.high = bytes.end;
  } else {
    buffer.low = std::min(buffer.low, bytes.begin);
    buffer.high = std::max(buffer.high, bytes.end);
  }
  buffer.members.push_back(id);
  if (member.value)
    index[member.value] = id;
  members.push_back(std::move(member));
  return id;
}

unsigned Buffers::addNamed(StringRef name, int64_t bytes) {
  Buffer buffer;
  buffer.name = name.str();
  buffer.high = bytes;
  buffers.push_back(buffer);
  return buffers.size() - 1;
}

void Buffers::add(Value value) {
  buffers.emplace_back();
  Member member = describe(value);
  member.at.buffer = buffers.size() - 1;
  add(member);
}

void Buffers::addCopy(Value value, Value source) {
  buffers.emplace_back();
  Member member = describe(value);
  member.at.buffer = buffers.size() - 1;
  if (has(source)) {
    const Member &from = members[index.lookup(source)];
    member.root = from.root;
    member.inRoot = from.inRoot;
    member.zero = from.zero;
  } else {
    member.zero = isZero(source);
  }
  add(member);
}

void Buffers::addView(Value value, Value base, int64_t offset) {
  Member member = describe(value);
  const Member &source = members[index.lookup(base)];
  member.at = source.at;
  member.at.offset += offset;
  member.root = source.root;
  member.inRoot = source.inRoot;
  member.inRoot.offset += offset;
  member.zero = source.zero;
  add(member);
}

void Buffers::addAlias(Value value, Value base) {
  Member member = describe(value);
  member.at = location(base);
  add(member);
}

void Buffers::addArgument(Value value, unsigned named, bool kept) {
  Member member = describe(value);
  member.at.buffer = named;
  if (kept)
    member.live.end = timeline.end();
  add(member);
}

void Buffers::addSlot(Value value, Value stacked, const RepeatScope &scope) {
  Member member = describe(value);
  const Member whole = members[index.lookup(stacked)];
  SmallVector<int64_t> strides(scope.depth + 1, 0);
  strides[scope.depth] = scope.slotStride(member.bytes);
  member.at = whole.at;
  member.at.move(scope.slotStart(member.bytes), strides);
  member.root = whole.root;
  member.inRoot = whole.inRoot;
  member.inRoot.move(scope.slotStart(member.bytes), strides);
  member.zero = whole.zero;
  // While the repeat reads it, a slot is in use as long as the body's argument says.
  Member reading = whole;
  reading.value = {};
  reading.live = {scope.first, scope.end};
  reading.slots = {&scope, member.bytes};
  add(member);
  add(reading);
}

void Buffers::addStacked(Value value, Value part, const RepeatScope &scope) {
  buffers.emplace_back();
  buffers.back().stacked = true;
  Member whole = describe(value);
  whole.at.buffer = buffers.size() - 1;
  int64_t slotBytes = extentBytes(part);
  Member writing = whole;
  writing.value = {};
  writing.live = {scope.first, scope.end};
  writing.slots = {&scope, slotBytes};
  unsigned to = whole.at.buffer;
  add(whole);
  add(writing);
  SmallVector<int64_t> strides(scope.depth + 1, 0);
  strides[scope.depth] = scope.slotStride(slotBytes);
  relocate(location(part).buffer, to, scope.slotStart(slotBytes), strides);
}

void Buffers::reserve(Value value, int64_t begin) {
  Member reservation = members[index.lookup(value)];
  reservation.value = {};
  reservation.live = {begin, reservation.live.begin};
  add(reservation);
}

void Buffers::keep(Value value, Segment moments) {
  Member kept = members[index.lookup(value)];
  kept.value = {};
  kept.live = moments;
  add(kept);
}

//===- Buffers become one -----------------------------------------------------------------------------------------===//

void Buffers::relocate(unsigned from, unsigned to, int64_t offset, ArrayRef<int64_t> strides) {
  Buffer &source = buffers[from], &target = buffers[to];
  target.stacked |= source.stacked;
  for (unsigned id : source.members) {
    members[id].at.buffer = to;
    members[id].at.move(offset, strides);
    Segment bytes = range(members[id], 0);
    target.low = std::min(target.low, bytes.begin);
    target.high = std::max(target.high, bytes.end);
    target.members.push_back(id);
  }
  source.members.clear();
  source.low = source.high = 0;
}

void Buffers::placeInto(Value part, Value value, int64_t offset) {
  const BufferPlace target = location(value), here = location(part);
  relocate(here.buffer, target.buffer, target.offset + offset - here.offset, target.strides);
}

void Buffers::placeInto(Value part, unsigned named) {
  const BufferPlace here = location(part);
  relocate(here.buffer, named, -here.offset, {});
}

bool Buffers::canRelocate(unsigned from, unsigned to, int64_t offset, ArrayRef<int64_t> strides,
                          const RepeatScope *scope) const {
  const Buffer &source = buffers[from], &target = buffers[to];
  if (source.named())
    return false;
  for (unsigned id : source.members) {
    Member moved = members[id];
    for (auto [depth, stride] : llvm::enumerate(strides))
      if (stride != 0 && RepeatScope::at(moved.scope, depth) != RepeatScope::at(scope, depth))
        return false; // a value outside the repeat cannot move with its iterations
    moved.at.buffer = to;
    moved.at.move(offset, strides);
    Segment bytes = range(moved, 0);
    if ((target.named() || target.stacked) && (bytes.begin < target.low || bytes.end > target.high))
      return false;
    for (unsigned other : target.members)
      if (conflict(moved, members[other]))
        return false;
  }
  return true;
}

bool Buffers::tryMerge(Value source, Value result) {
  const BufferPlace a = location(source), b = location(result);
  if (a.buffer == b.buffer)
    return a.offset == b.offset && sameStrides(a, b);
  if (!isContiguous(source))
    return false;
  auto difference = [](const BufferPlace &to, const BufferPlace &from) {
    SmallVector<int64_t> strides(std::max(to.strides.size(), from.strides.size()), 0);
    for (unsigned i = 0; i < strides.size(); ++i)
      strides[i] = to.stride(i) - from.stride(i);
    return strides;
  };
  const RepeatScope *scope = timeline.scopeOf(result);
  SmallVector<int64_t> forward = difference(b, a), backward = difference(a, b);
  if (canRelocate(a.buffer, b.buffer, b.offset - a.offset, forward, scope)) {
    relocate(a.buffer, b.buffer, b.offset - a.offset, forward);
    return true;
  }
  if (canRelocate(b.buffer, a.buffer, a.offset - b.offset, backward, scope)) {
    relocate(b.buffer, a.buffer, a.offset - b.offset, backward);
    return true;
  }
  return false;
}

//===- Who notices ------------------------------------------------------------------------------------------------===//

Segment Buffers::range(const Member &member, unsigned depth) {
  Segment bytes{member.at.offset, member.at.offset + member.bytes};
  for (unsigned i = depth; i < member.at.strides.size(); ++i)
    if (const RepeatScope *scope = RepeatScope::at(member.scope, i)) {
      int64_t reach = member.at.strides[i] * std::max<int64_t>(scope->count() - 1, 0);
      (reach < 0 ? bytes.begin : bytes.end) += reach;
    }
  return bytes;
}

bool Buffers::overlap(const Member &a, const Member &b) const {
  // Repeats around both in which both move alike say nothing; from the first other one on, all iterations count.
  unsigned depth = 0;
  while (RepeatScope::at(a.scope, depth) && RepeatScope::at(a.scope, depth) == RepeatScope::at(b.scope, depth) &&
         a.at.stride(depth) == b.at.stride(depth))
    ++depth;
  Segment x = range(a, depth), y = range(b, depth);
  return x.begin < y.end && y.begin < x.end;
}

bool Buffers::sameContent(const Member &a, const Member &b) {
  if (a.zero && b.zero)
    return true;
  if (a.root != b.root || a.at.offset - a.inRoot.offset != b.at.offset - b.inRoot.offset)
    return false;
  for (unsigned i = 0, e = std::max({a.at.strides.size(), b.at.strides.size(), a.inRoot.strides.size(),
                                     b.inRoot.strides.size()});
       i < e; ++i)
    if (a.at.stride(i) - a.inRoot.stride(i) != b.at.stride(i) - b.inRoot.stride(i))
      return false;
  return true;
}

/// `slots` stands for all slots of a stacked value during a repeat. A value of the body that stays within the current
/// slot meets only what other values of the body say about this slot.
bool Buffers::walksAlike(const Member &slots, const Member &other) {
  const RepeatScope &scope = *slots.slots.scope;
  int64_t stride = scope.slotStride(slots.slots.bytes), start = slots.at.offset + scope.slotStart(slots.slots.bytes);
  for (unsigned depth = 0; depth < scope.depth; ++depth)
    if (slots.at.stride(depth) != other.at.stride(depth))
      return false;
  if (other.slots.scope == &scope)
    return other.slots.bytes == slots.slots.bytes && other.at.offset == slots.at.offset;
  if (RepeatScope::at(other.scope, scope.depth) != &scope || other.at.stride(scope.depth) != stride)
    return false;
  Segment bytes = range(other, scope.depth + 1);
  return bytes.begin >= start && bytes.end <= start + slots.slots.bytes;
}

bool Buffers::conflict(const Member &a, const Member &b) const {
  if (!a.live.meets(b.live) || !overlap(a, b) || sameContent(a, b))
    return false;
  if (a.slots.scope && walksAlike(a, b))
    return false;
  if (b.slots.scope && walksAlike(b, a))
    return false;
  return true;
}

SmallVector<Segment> Buffers::life(const Buffer &buffer) const {
  SmallVector<Segment> all, merged;
  for (unsigned id : buffer.members)
    all.push_back(members[id].live);
  llvm::sort(all, [](Segment a, Segment b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  for (Segment segment : all)
    if (!merged.empty() && segment.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, segment.end);
    else
      merged.push_back(segment);
  return merged;
}
