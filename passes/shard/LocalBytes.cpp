//===- LocalBytes.cpp - what the values of layers will take on a rank ----------------------------------------------===//
#include "passes/shard/LocalBytes.h"

#include "dialects/cmd/CmdDialect.h"
#include "passes/analysis/Calls.h"
#include "passes/analysis/Tensors.h"
#include "passes/shard/Sharder.h"

using namespace mlir;
using namespace braid;

namespace {
/// Notes what becomes of the values of every layer.
class Observer : public Sharder {
public:
  using Sharder::Sharder;
  llvm::DenseMap<Value, int64_t> bytes;

private:
  LogicalResult rewriteLayer(func::FuncOp from, Block &to, IRMapping &map) override {
    if (failed(Sharder::rewriteLayer(from, to, map)))
      return failure();
    auto note = [&](Value logical) {
      if (Value local = map.lookupOrNull(logical)) {
        int64_t &most = bytes[logical];
        most = std::max(most, cmd::tensorBytes(typeOf(local)));
      }
    };
    for (BlockArgument argument : from.getArguments())
      note(argument);
    for (Operation &op : from.getBody().front())
      llvm::for_each(op.getResults(), note);
    return success();
  }
};
} // namespace

llvm::DenseMap<Value, int64_t> braid::localBytes(func::FuncOp entry, const Mesh &mesh, bool sliced) {
  auto module = entry->getParentOfType<ModuleOp>();
  IRMapping copies;
  OwningOpRef<ModuleOp> copy(cast<ModuleOp>(module->clone(copies)));
  (*copy)->setAttr(attrs::mesh, mesh.toAttr(module.getContext()));
  ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &) { return success(); });
  Observer observer(*copy, mesh, sliced, SpAlgorithm::automatic);
  llvm::DenseMap<Value, int64_t> result;
  if (failed(checkCalls(*copy)) || failed(observer.shardEntry((*copy).lookupSymbol<func::FuncOp>(entry.getName()))))
    return result;
  for (auto layer : module.getOps<func::FuncOp>())
    layer.walk([&](Block *block) {
      auto note = [&](Value value) {
        if (auto known = observer.bytes.find(copies.lookupOrDefault(value)); known != observer.bytes.end())
          result[value] = known->second;
      };
      llvm::for_each(block->getArguments(), note);
      for (Operation &op : *block)
        llvm::for_each(op.getResults(), note);
    });
  return result;
}
