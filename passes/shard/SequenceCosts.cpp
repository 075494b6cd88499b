//===- SequenceCosts.cpp - what slices pay ranks that share them --------------------------------------------------===//
//
// States and halos are as large for a slice as for a row, so every slice costs their exchange again; keys and values
// travel once, whoever cuts them. Sizes are read from the op before it is cut (SequenceScan.cpp and its neighbours build
// what is counted here).
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/braid/ScanTraits.h"
#include "passes/analysis/Mesh.h"
#include "passes/shard/Sequence.h"
#include "passes/shard/SequenceParts.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace braid;

namespace {

class SliceCosts {
public:
  SliceCosts(int64_t ranks, const Machine &machine) : ranks(ranks), machine(machine) {}

  SliceExchange of(Operation *op) const {
    return llvm::TypeSwitch<Operation *, SliceExchange>(op)
        .Case<LsmScanOp, LsmScanGradOp>([&](auto scan) { return states(scan); })
        .Case<LsmInnerStepOp, LsmInnerStepGradOp>([&](auto step) { return walks(step); })
        .Case<AttnCausalOp, AttnCausalGradOp>([&](auto attention) {
          // Keys and values there, their cotangents back.
          double both = keys(attention.getK(), attention.getV());
          if (!attention.getShared().empty())
            both += gathered(attention.getShared()[1]);
          return SliceExchange{directions(op) * machine.linkLatency, directions(op) * both};
        })
        .Case<ShortConvOp, ShortConvGradOp>([&](auto convolution) {
          return SliceExchange{directions(op) * (machine.linkLatency + gathered(convolution.getTail())), 0};
        })
        .Case([&](MoeDropOp drop) {
          return SliceExchange{machine.linkLatency,
                               gathered(drop.getIds()) + gathered(drop.getWeights()) + gathered(drop.getDocuments())};
        })
        .Default(SliceExchange{});
  }

private:
  /// There, and for a gradient back.
  static double directions(Operation *op) { return isa<AttnCausalGradOp, ShortConvGradOp>(op) ? 2 : 1; }
  /// Seconds until every rank has what the others hold of a value, if there is one, apart from the message's latency.
  double gathered(Value local) const {
    if (!local)
      return 0;
    RankedTensorType type = typeOf(local);
    auto bytes = static_cast<double>(type.getNumElements()) * llvm::divideCeil(type.getElementTypeBitWidth(), 8);
    return static_cast<double>(ranks - 1) * bytes / machine.linkBandwidth;
  }
  /// Or the latents that both are made of (GatherLatents).
  double keys(Value k, Value v) const {
    auto made = k.getDefiningOp<LinearOp>();
    if (made && made == v.getDefiningOp<LinearOp>() && latentsTravel(made.getX(), {k, v}, 1, ranks, machine))
      return gathered(made.getX());
    return gathered(k) + gathered(v);
  }
  /// Segments of all ranks, folded by each; a gradient's cotangents travel with them.
  SliceExchange folds(RankedTensorType p, RankedTensorType x, Value cotangent) const {
    double seconds = spCost(SpAlgorithm::allGather, ranks, p, x, machine).seconds;
    return {seconds + (cotangent ? gathered(cotangent) : 0), 0};
  }
  template <typename Scan> SliceExchange states(Scan op) const {
    RankedTensorType x = withFront(typeOf(op.getInitialState()));
    // The element-wise classes send a factor for every element of a state (asRows).
    ScanTraits traits(op.getClassId());
    SmallVector<int64_t> p{1, x.getNumElements()};
    if (!traits.valueDecay && !traits.elementDecay) {
      p.assign(x.getShape().begin(), x.getShape().begin() + 3);
      p.append(traits.transition(x.getDimSize(3), x.getDimSize(4)));
    }
    return folds(x.clone(p), x, cotangent(op));
  }
  /// Through a norm nothing composes.
  template <typename Step> SliceExchange walks(Step op) const {
    SpAlgorithm algorithm = InnerTraits(op).norm ? SpAlgorithm::ring : SpAlgorithm::allGather;
    return innerExchange(op, algorithm, ranks, op.getK(), typeOf(op.getInitialState()), machine);
  }
  template <typename Op> static Value cotangent(Op op) {
    if constexpr (std::is_same_v<Op, LsmScanGradOp>)
      return op.getInitialState(); // as large
    return Value();
  }

  int64_t ranks;
  const Machine &machine;
};

} // namespace

SliceExchange braid::sliceExchange(Operation *op, const Machine &machine) {
  auto marker = op->getAttrOfType<DictionaryAttr>(kSequenceAttr);
  if (!marker)
    return {};
  Mesh mesh = Mesh::of(op->getParentOfType<ModuleOp>());
  int64_t ranks = mesh.size(marker.getAs<StringAttr>("axis").getValue());
  return ranks > 1 ? SliceCosts(ranks, machine).of(op) : SliceExchange{};
}
