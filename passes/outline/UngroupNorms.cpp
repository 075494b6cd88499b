//===- UngroupNorms.cpp - norms in groups become norms of heads -----------------------------------------------------===//
// A group of the last dimension is normalised apart, as a head is. As a head it needs no other shape inside its kernel, whose elements then stay with
// their threads, and what is [B, T, heads, K] beside it (sums, gates) shares that kernel: their reshapes to [B, T, heads K] are gone.
#include "dialects/braid/BraidDialect.h"
#include "passes/Passes.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_UNGROUPNORMSPASS
#include "passes/Passes.h.inc"

namespace {

constexpr StringLiteral kGroups = "groups";

/// Of a norm or of its gradient; 1 for all other ops.
int64_t groupsOf(Operation *op) {
  IntegerAttr groups;
  if (isa<RmsNormOp, GatedNormOp>(op))
    groups = op->getAttrOfType<IntegerAttr>(kGroups);
  else if (auto grad = dyn_cast<RowsGradOp>(op))
    groups = grad.getOpAttributes().getAs<IntegerAttr>(kGroups);
  return groups ? groups.getInt() : 1;
}

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// [.., F] as [.., groups, F / groups]
RankedTensorType grouped(RankedTensorType type, int64_t groups) {
  SmallVector<int64_t> shape(type.getShape());
  int64_t each = shape.back() / groups;
  shape.back() = groups;
  shape.push_back(each);
  return type.clone(shape);
}

Value reshaped(OpBuilder &b, Location loc, Value value, Type type) {
  auto reshape = value.getDefiningOp<ReshapeOp>();
  if (reshape && reshape.getSource().getType() == type)
    return reshape.getSource();
  return ReshapeOp::create(b, loc, type, value);
}

void ungroup(Operation *op, int64_t groups) {
  OpBuilder b(op);
  for (OpOperand &operand : op->getOpOperands())
    operand.set(reshaped(b, op->getLoc(), operand.get(), grouped(typeOf(operand.get()), groups)));
  IntegerAttr one = b.getI64IntegerAttr(1);
  if (auto grad = dyn_cast<RowsGradOp>(op)) {
    NamedAttrList attributes(grad.getOpAttributes());
    attributes.set(kGroups, one);
    grad.setOpAttributesAttr(attributes.getDictionary(op->getContext()));
  } else {
    op->setAttr(kGroups, one);
  }
  for (OpResult result : op->getResults()) {
    RankedTensorType type = typeOf(result), own = grouped(type, groups);
    SmallVector<OpOperand *> uses = llvm::map_to_vector(result.getUses(), [](OpOperand &use) { return &use; });
    result.setType(own);
    Value flat;
    for (OpOperand *use : uses) {
      if (auto back = dyn_cast<ReshapeOp>(use->getOwner()); back && back.getType() == own) {
        back.getResult().replaceAllUsesWith(result);
        back.erase();
        continue;
      }
      if (!flat) {
        b.setInsertionPointAfter(op);
        flat = ReshapeOp::create(b, op->getLoc(), type, result);
      }
      use->set(flat);
    }
  }
}

struct UngroupNormsPass : impl::UngroupNormsPassBase<UngroupNormsPass> {
  void runOnOperation() override {
    SmallVector<std::pair<Operation *, int64_t>> norms;
    getOperation().walk([&](Operation *op) {
      if (int64_t groups = groupsOf(op); groups > 1)
        norms.emplace_back(op, groups);
    });
    for (auto [op, groups] : norms) {
      llvm::SetVector<Value> before(op->operand_begin(), op->operand_end());
      ungroup(op, groups);
      for (Value value : before)
        if (auto reshape = value.getDefiningOp<ReshapeOp>(); reshape && reshape.use_empty())
          reshape.erase();
    }
  }
};

} // namespace
} // namespace braid
