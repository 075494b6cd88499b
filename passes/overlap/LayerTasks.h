//===- LayerTasks.h - which task of a pipeline an op belongs to ---------------------------------------------------===//
// The level of an op is the number of expert exchanges on the longest way to it. Forward, of block b: 2 b is its mixer
// and gate (and the combine of the block before), then comes D; 2 b + 1 are its experts, then comes C. Backward, blocks
// last to first, each C, M, D, A. Sliced or not, one block or several in one function.
#ifndef PASSES_OVERLAP_LAYERTASKS_H
#define PASSES_OVERLAP_LAYERTASKS_H

#include "dialects/braid/BraidDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/analysis/Machine.h"
#include "schedule/Slicing.h"
#include "schedule/Stages.h"

namespace braid {

/// A, M: mixers and experts. D, C: exchanges. G, R: rows that the ranks of etp gather behind D and scatter in front of C.
/// WA, WM: weight gradients. rest: what comes before the first and behind the last exchange of the function.
enum class TaskKind { A, D, G, M, R, C, WA, WM, rest };

struct TaskPlace {
  TaskKind kind = TaskKind::rest;
  int64_t block = 0, level = 0;
  bool independent = false; ///< no exchange of its own level waits for it: a shared expert
};

/// Whether `test` holds for an op of the function.
template <typename Test> bool hasOp(mlir::func::FuncOp function, Test &&test) {
  return function
      .walk([&](mlir::Operation *op) { return test(op) ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance(); })
      .wasInterrupted();
}
/// The exchange of expert rows; that of their counts is none.
bool isDataExchange(mlir::Operation *op);
/// Of how many rows everyone will get.
bool isCountExchange(mlir::Operation *op);
/// What ranks of etp make of it: expert rows gathered behind a data exchange, or summed and scattered in front of one.
bool isRowSharing(mlir::Operation *op);
/// The counts of all ranks of etp.
bool isCountGather(mlir::Operation *op);
bool isBackwardLayer(mlir::func::FuncOp layer);
/// A sum over tokens that is only handed out: nothing in the layer waits for it.
bool isWeightGradient(mlir::Operation *op);

class LayerTasks {
public:
  LayerTasks(mlir::func::FuncOp layer, bool backward);
  int64_t blocks() const { return count; }
  const TaskPlace &of(mlir::Operation *op) const { return places.at(op); }

private:
  int64_t count = 1;
  llvm::DenseMap<mlir::Operation *, TaskPlace> places;
};

/// Tokens of softmax attention over all keys cost more and more; nothing where every token costs the same.
std::optional<schedule::AttentionCost> attentionCostOf(mlir::func::FuncOp layer);

/// Seconds of an unsliced task, from its ops: `fixed` is what every slice of it costs again (commands, latency).
struct TaskSeconds {
  double tokens = 0, fixed = 0;
  double of(double share) const { return tokens * share + fixed; }
};
/// Of A, `attention` is the part whose tokens follow the attention cost.
struct BlockSeconds {
  TaskSeconds A, attention, D, G, M, R, C, WA, WM; ///< G, R: none where experts are whole
};
std::vector<BlockSeconds> secondsOf(mlir::func::FuncOp layer, bool backward, const Machine &machine);

/// These times in slices of `mixers` and `experts` tokens.
schedule::Stages stagesOf(llvm::ArrayRef<BlockSeconds> blocks, bool backward,
                          const std::optional<schedule::AttentionCost> &cost, llvm::ArrayRef<int64_t> mixers,
                          llvm::ArrayRef<int64_t> experts);

} // namespace braid

#endif // PASSES_OVERLAP_LAYERTASKS_H
