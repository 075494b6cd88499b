//===- Timeline.h - an entry function as one line of moments ------------------------------------------------------===//
// Every op gets a moment, in program order. A repeat has four: it is read at `begin`, its body runs from `first` to
// `end` (again and again, so what lives across the body lives for all of it), its results exist from `results` on.
// An op reads and writes at the same moment: an operand and a result of one op never share bytes by accident.
#ifndef PASSES_ANALYSIS_TIMELINE_H
#define PASSES_ANALYSIS_TIMELINE_H

#include "dialects/braid/BraidDialect.h"

#include <deque>

namespace braid {

struct Segment {
  int64_t begin, end; ///< both inclusive
  bool meets(const Segment &other) const { return begin <= other.end && other.begin <= end; }
};

/// A repeat body. Depth 0: the outermost repeat.
struct RepeatScope {
  RepeatOp op;
  const RepeatScope *parent;
  unsigned depth;
  int64_t begin, first, end, results;

  int64_t count() const { return RepeatOp(op).getCount(); }
  /// Bytes from one iteration's part of a stacked value to the next one's, and where the first iteration's part lies.
  int64_t slotStride(int64_t slotBytes) const { return RepeatOp(op).getReverse() ? -slotBytes : slotBytes; }
  int64_t slotStart(int64_t slotBytes) const {
    return RepeatOp(op).getReverse() ? (static_cast<int64_t>(RepeatOp(op).getCount()) - 1) * slotBytes : 0;
  }
  /// The scope at `depth` on the way from the function to this body, or null.
  static const RepeatScope *at(const RepeatScope *scope, unsigned depth);
};

class Timeline {
public:
  explicit Timeline(mlir::func::FuncOp entry);

  int64_t at(mlir::Operation *op) const { return moments.lookup(op); }
  int64_t end() const { return last; } ///< after everything
  const RepeatScope *scopeOf(mlir::Value value) const { return scopes.lookup(value.getParentBlock()); }
  const RepeatScope *scopeOf(mlir::Operation *op) const { return scopes.lookup(op->getBlock()); }
  const RepeatScope *bodyOf(RepeatOp repeat) const { return scopes.lookup(&repeat.getBody().front()); }

  /// From the moment a value exists to its last use. Operands of a collective under way are in use until its await, and
  /// until that of a collective of another axis that sends on what it receives: compute waits for the last of them. What is
  /// read beside (cmd.beside) is in use until the layer ends that reads it. A
  /// stacked input is in use at the repeat's `begin` (its slots are a matter of their own).
  Segment live(mlir::Value value) const;
  int64_t defined(mlir::Value value) const;

private:
  void number(mlir::Block &block, const RepeatScope *scope);
  int64_t underWay(CommStartOp start) const;
  int64_t layerEnd(mlir::Operation *op) const;
  int64_t lastUse(mlir::OpOperand &use) const;

  int64_t last = 0;
  llvm::DenseMap<mlir::Operation *, int64_t> moments;
  llvm::DenseMap<mlir::Block *, const RepeatScope *> scopes;
  std::deque<RepeatScope> storage;
};

/// Whether its commands run on a stream beside compute: it is one of a layer's and marked so.
bool runsBeside(mlir::Operation *op);

/// The await of a future, or null when there is not exactly one.
CommAwaitOp awaitOf(CommStartOp start);

} // namespace braid

#endif // PASSES_ANALYSIS_TIMELINE_H
