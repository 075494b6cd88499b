//===- Recompute.h - which forward ops the backward may execute again ---------------------------------------------===//
// The mark `braid.recompute` on an op of a layer function says that the backward makes its results again instead of
// keeping them; DecideRecompute writes it, Differentiate consumes it. On a whole layer function it stands for all ops
// that can be executed again, and DecideRecompute spells it out.
#ifndef PASSES_AUTODIFF_RECOMPUTE_H
#define PASSES_AUTODIFF_RECOMPUTE_H

#include "dialects/braid/BraidDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace braid {

class Activity;

/// On @f_train and @f_grad: which pair they are ("f", "f_0", ..). What one saves in slices the other reads so; names of
/// functions do not tell, because they are made unique. DecideSchedule consumes it.
inline constexpr llvm::StringLiteral kLayerAttr = "braid.layer";

inline constexpr llvm::StringLiteral kRecomputeAttr = "braid.recompute";

/// Of keys of braid.metadata: bytes per rank that layers keep for their backward, and those without recomputation.
/// DecideRecompute counts tensors, PlanMemory what it has planned.
inline constexpr llvm::StringLiteral kActivations = "activations", kKeptBytes = "kept_bytes", kAllBytes = "all_bytes";
/// "activations.kept_bytes", of a stage of a pipeline "activations.stage1.kept_bytes".
inline std::string activationsKey(llvm::StringRef what, std::optional<int64_t> stage) {
  return stagedName(kActivations, stage) + "." + what.str();
}

/// On @f_train and @f_grad: "forward", "backward". PlanMemory finds by it what lives from one to the other.
inline constexpr llvm::StringLiteral kDirectionAttr = "braid.direction";

/// Routes are chosen once (two tilings of one product may break a tie differently), and what crosses ranks crosses them
/// once, where that is more than a few numbers: rows of experts, and keys and values of whole rows. States of scans and
/// the last rows of convolutions cost less to send again than to keep what was made of them. Everything else is a
/// function of its operands.
struct Travels {
  bool rows = false, keys = false;
};
bool canRecompute(mlir::Operation *op, Travels travels);

/// The values of a layer function that its backward reads, as the call that stands in a training step asks for it:
/// arguments and results of ops, each once. None where the function has calls or repeats of its own.
llvm::FailureOr<llvm::SmallVector<mlir::Value>> readByGradient(mlir::func::CallOp call, Activity &activity,
                                                               mlir::SymbolTable &symbols);

} // namespace braid

#endif // PASSES_AUTODIFF_RECOMPUTE_H
