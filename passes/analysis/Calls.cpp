//===- Calls.cpp - functions and who calls them -------------------------------------------------------------------===//
#include "passes/analysis/Calls.h"

#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using namespace braid;

namespace {
class CallChecker {
public:
  explicit CallChecker(ModuleOp module) : symbols(module) {}

  LogicalResult check(func::FuncOp function) {
    if (!done.insert(function).second)
      return success();
    open.push_back(function);
    WalkResult walked = function.walk([&](func::CallOp call) -> WalkResult {
      auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
      if (!callee || callee.isExternal())
        return call.emitOpError("@") << call.getCallee() << " has no body in this module";
      if (llvm::is_contained(open, callee))
        return call.emitOpError("@") << call.getCallee() << " calls itself";
      return check(callee);
    });
    open.pop_back();
    return failure(walked.wasInterrupted());
  }

private:
  SymbolTable symbols;
  llvm::DenseSet<Operation *> done;
  SmallVector<func::FuncOp> open; ///< whose bodies the walk is in
};
} // namespace

LogicalResult braid::checkCalls(ModuleOp module) {
  CallChecker checker(module);
  for (auto function : module.getOps<func::FuncOp>())
    if (failed(checker.check(function)))
      return failure();
  return success();
}
