//===- MergeExchanges.cpp - what a function has received once it does not ask for again ---------------------------===//
//
// A gradient function that computes its layer again has every exchange of the forward twice: where it repeats the
// forward, and where an op's gradient asks for the same states and rows. Both send what the same ops make of the same
// values, so one of them is enough. The ops that made what is sent are compared, too, as far as they are pure; they are
// left alone otherwise.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/shard/Sequence.h"
#include <unordered_map>

using namespace mlir;
using namespace braid;

static void mergeIn(Block &block) {
  llvm::DenseMap<Value, Value> first; // of values that an earlier op makes, too: its result
  auto firstOf = [&](Value value) {
    auto found = first.find(value);
    return found == first.end() ? value : found->second;
  };
  std::unordered_map<size_t, SmallVector<Operation *>> known; // by hash
  SmallVector<Operation *> doubled;
  constexpr auto ignored = OperationEquivalence::IgnoreLocations;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    bool travels = isa<CommAllGatherOp, CommShiftOp>(op);
    if (op.getNumRegions() > 0 || (!travels && !isPure(&op)))
      continue;
    llvm::hash_code hash = OperationEquivalence::computeHash(
        &op, [&](Value operand) { return hash_value(firstOf(operand)); }, OperationEquivalence::ignoreHashValue,
        ignored);
    auto same = [&](Operation *other) {
      return OperationEquivalence::isEquivalentTo(
          other, &op, [&](Value a, Value b) { return success(firstOf(a) == firstOf(b)); }, nullptr, ignored);
    };
    SmallVector<Operation *> &alike = known[hash];
    auto found = llvm::find_if(alike, same);
    if (found == alike.end()) {
      alike.push_back(&op);
    } else if (travels) {
      op.replaceAllUsesWith(*found);
      op.erase();
    } else {
      for (auto [result, earlier] : llvm::zip_equal(op.getResults(), (*found)->getResults()))
        first[result] = earlier;
      doubled.push_back(&op);
    }
  }
  for (Operation *op : llvm::reverse(doubled))
    if (op->use_empty()) // only what is no longer sent was made of it
      op->erase();
}

void braid::mergeExchanges(ModuleOp module) {
  module.walk([](func::FuncOp function) {
    for (Block &block : function.getBody())
      mergeIn(block);
  });
}
