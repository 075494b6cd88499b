//===- Buffers.h - which values share a buffer --------------------------------------------------------------------===//
// Every value lies at a location: (buffer, offset, one stride per repeat around it). Some values must share: views,
// what an op updates in place, what a repeat carries, slots of stacked values, results named outside. Between all
// others that could share stands a cmd.materialize; `tryMerge` makes its source and its result one where nobody
// notices, and what remains becomes a copy.
//
// Nobody notices when no two values that hold different contents are alive at the same moment on the same bytes. Two
// values have the same content when both are views or copies of the same part of the same root.
#ifndef PASSES_ANALYSIS_BUFFERS_H
#define PASSES_ANALYSIS_BUFFERS_H

#include "passes/analysis/Timeline.h"

namespace braid {

struct BufferPlace {
  unsigned buffer = 0;
  int64_t offset = 0;
  llvm::SmallVector<int64_t> strides; ///< per repeat, outermost first; missing ones are 0

  int64_t stride(unsigned depth) const { return depth < strides.size() ? strides[depth] : 0; }
  void move(int64_t by, llvm::ArrayRef<int64_t> byStrides);
};

class Buffers {
public:
  explicit Buffers(const Timeline &timeline) : timeline(timeline) {}

  /// A buffer that the outside knows: its size is fixed and it never moves into another. `name` is its tensor.
  unsigned addNamed(llvm::StringRef name, int64_t bytes);
  /// A value with a buffer of its own.
  void add(mlir::Value value);
  /// The same, with the content of another (of zero when the source has no buffer).
  void addCopy(mlir::Value value, mlir::Value source);
  /// A value at the location of `base`, `offset` bytes further.
  void addView(mlir::Value value, mlir::Value base, int64_t offset);
  /// A value whose content is new, at the location of `base`: in-place results, what a repeat carries.
  void addAlias(mlir::Value value, mlir::Value base);
  /// An argument of the entry in a named buffer; `kept`: its content must still be there at the end.
  void addArgument(mlir::Value value, unsigned named, bool kept);
  /// One slot of `stacked` per iteration, `value` being that of the current iteration.
  void addSlot(mlir::Value value, mlir::Value stacked, const RepeatScope &scope);
  /// A result of a repeat, filled slot by slot with `part`.
  void addStacked(mlir::Value value, mlir::Value part, const RepeatScope &scope);
  /// Written by somebody else from `begin` until the value exists (a collective under way).
  void reserve(mlir::Value value, int64_t begin);
  /// Read by somebody else at these moments, too: its bytes stay as they are.
  void keep(mlir::Value value, Segment moments);

  /// `part` is `value`'s content; nothing is asked, because part has been made for this.
  void placeInto(mlir::Value part, mlir::Value value, int64_t offset);
  void placeInto(mlir::Value part, unsigned named);
  /// Source and result of a materialize become one, if nobody notices.
  bool tryMerge(mlir::Value source, mlir::Value result);

  bool has(mlir::Value value) const { return index.contains(value); }
  const BufferPlace &location(mlir::Value value) const { return members[index.lookup(value)].at; }

  /// What must be placed in an arena.
  struct Buffer {
    std::string name; ///< of a named buffer
    bool stacked = false;
    int64_t low = 0, high = 0; ///< bytes used, relative to offset 0 of its locations
    llvm::SmallVector<unsigned> members;
    bool named() const { return !name.empty(); }
    int64_t bytes() const { return high - low; }
  };
  llvm::ArrayRef<Buffer> all() const { return buffers; }
  /// When the bytes of a buffer are in use: disjoint, ascending.
  llvm::SmallVector<Segment> life(const Buffer &buffer) const;

private:
  struct Slots { ///< a member that stands for all slots of a stacked value while a repeat walks over them
    const RepeatScope *scope = nullptr;
    int64_t bytes = 0; ///< of one slot
  };
  struct Member {
    mlir::Value value; ///< null: a reservation
    const RepeatScope *scope;
    Segment live;
    int64_t bytes;
    BufferPlace at;
    mlir::Value root; ///< of its content, and where in it
    BufferPlace inRoot;
    bool zero = false; ///< content is zero everywhere
    Slots slots;
  };

  unsigned add(Member member);
  Member describe(mlir::Value value) const;
  void relocate(unsigned from, unsigned to, int64_t offset, llvm::ArrayRef<int64_t> strides);
  bool canRelocate(unsigned from, unsigned to, int64_t offset, llvm::ArrayRef<int64_t> strides,
                   const RepeatScope *scope) const;
  bool conflict(const Member &a, const Member &b) const;
  bool overlap(const Member &a, const Member &b) const;
  static bool sameContent(const Member &a, const Member &b);
  static bool walksAlike(const Member &slots, const Member &other);
  /// Bytes a member can touch, over the iterations of the repeats from `depth` on.
  static Segment range(const Member &member, unsigned depth);

  const Timeline &timeline;
  std::vector<Member> members;
  std::vector<Buffer> buffers;
  llvm::DenseMap<mlir::Value, unsigned> index;
};

} // namespace braid

#endif // PASSES_ANALYSIS_BUFFERS_H
