//===- ActivationBudget.h - what is kept for the backward, by what is planned -------------------------------------===//
#ifndef COMPILER_ACTIVATIONBUDGET_H
#define COMPILER_ACTIVATIONBUDGET_H

#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace braid {

/// Which ops are executed again is decided on tensors, before chunk states, slices and the places of buffers exist: the
/// bytes that a plan then keeps can be others. So a compilation that is given a budget is done again, with that much less
/// to decide by, until what is planned is within it or nothing more can be executed again; then a warning has both
/// numbers.
class ActivationBudget {
public:
  /// Of the training entry of a module in phase `model` (braid.train, activation_budget); none is asked for: none.
  static std::optional<ActivationBudget> of(mlir::ModuleOp module);

  /// What a compilation found to be kept, in bytes per rank: by DecideRecompute, and by the plan (absent: it stopped before).
  struct Kept {
    std::optional<int64_t> counted, planned;
  };
  /// `compile` is called with the module as it is now, as often as that takes, and says what is kept. `why` completes "..
  /// are kept although all is computed again that can be": what cannot.
  mlir::LogicalResult meet(mlir::ModuleOp module, llvm::function_ref<llvm::FailureOr<Kept>()> compile,
                           const llvm::Twine &why) const;

  /// What the module says that its layers keep.
  static std::optional<int64_t> keptIn(mlir::ModuleOp module);

private:
  ActivationBudget(mlir::Location entry, int64_t bytes) : entry(entry), bytes(bytes) {}
  mlir::Location entry;
  int64_t bytes; ///< per rank
};

} // namespace braid

#endif // COMPILER_ACTIVATIONBUDGET_H
