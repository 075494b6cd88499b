//===- DropIdleCollectives.cpp - an axis of one rank exchanges nothing --------------------------------------------===//
#include "passes/Passes.h"
#include "passes/analysis/Mesh.h"
#include "passes/analysis/Tensors.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_DROPIDLECOLLECTIVESPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {
class DropIdleCollectives : public braid::impl::DropIdleCollectivesPassBase<DropIdleCollectives> {
public:
  using DropIdleCollectivesPassBase::DropIdleCollectivesPassBase;

  void runOnOperation() override {
    if (!getOperation()->hasAttr(attrs::mesh))
      return;
    Mesh mesh = Mesh::of(getOperation());
    WalkResult walked = getOperation().walk([&](CollectiveOpInterface op) {
      StringRef axis = op.getAxisAttr().getValue();
      if (!mesh.has(axis)) {
        op.emitOpError("axis \"") << axis << "\" is no axis or product of axes of the mesh";
        return WalkResult::interrupt();
      }
      Value x = op->getOperand(0), result = op->getResult(0);
      if (mesh.size(axis) != 1 || x.getType() != result.getType())
        return WalkResult::advance();
      auto shift = dyn_cast<CommShiftOp>(op.getOperation());
      if (shift && !shift.getCyclic()) {
        OpBuilder builder(op);
        x = arith::ConstantOp::create(builder, op.getLoc(), builder.getZeroAttr(typeOf(result)));
      }
      result.replaceAllUsesWith(x);
      op.erase();
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
