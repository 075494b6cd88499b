//===- GatherLatents.cpp - keys and values made of latents travel as these ----------------------------------------===//
//
// Multi-head latent attention makes the keys and values of all heads of a few features (frontend/layers/Mla.cpp). Along
// `sp` every rank needs those of all tokens; where multiplying is faster than sending, ranks gather the latents and make
// all keys and values themselves, and the cotangents of latents, not of keys and values, go back:
//
//   gather(c wk), gather(c wv)           =  gather(c) wk, gather(c) wv
//   scatter(dk) wk^T + scatter(dv) wv^T  =  scatter(dk wk^T + dv wv^T)
//   c^T scatter(dk), summed over ranks   =  gather(c)^T dk, summed over ranks
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/analysis/Tensors.h"
#include "passes/overlap/SliceLayer.h"
#include "passes/shard/Sequence.h"

using namespace mlir;
using namespace braid;

/// The features of a token that these values have together.
static int64_t featuresOf(ValueRange values) {
  int64_t features = 0;
  for (Value value : values)
    features += typeOf(value).getNumElements() / (typeOf(value).getDimSize(0) * typeOf(value).getDimSize(1));
  return features;
}

/// A step sends three such values (keys and values for the forward and the gradient, cotangents back) and multiplies four
/// times for each token of other ranks: forward, again for the gradient, and its two products; once more for its own.
bool braid::latentsTravel(Value latent, ValueRange made, int64_t parts, int64_t ranks, const Machine &machine) {
  int64_t few = featuresOf(latent), many = featuresOf(made) / parts;
  int64_t bytes = llvm::divideCeil(typeOf(made[0]).getElementTypeBitWidth(), 8);
  double sent = 3.0 * static_cast<double>((many - few) * bytes) / machine.linkBandwidth;
  double products = 4 + 1.0 / static_cast<double>(ranks - 1);
  return sent > products * 2 * static_cast<double>(few * many) / machine.flops;
}

static RankedTensorType withTokens(Type type, int64_t tokens) {
  return withDim(cast<RankedTensorType>(type), 1, tokens);
}

namespace {

class LatentGatherer {
public:
  explicit LatentGatherer(ModuleOp module) : module(module), machine(Machine::of(module)) {}

  void run() {
    SmallVector<LinearOp> products;
    SmallVector<LinearGradDataOp> gradients;
    module.walk([&](LinearOp op) { products.push_back(op); });
    module.walk([&](LinearGradDataOp op) { gradients.push_back(op); });
    llvm::for_each(products, [&](LinearOp op) { forward(op); });
    llvm::for_each(gradients, [&](LinearGradDataOp op) { backward(op); });
  }

private:
  /// How many ranks an exchange of tokens is among; 0: it is of something else.
  static int64_t ranksOf(Type one, Type all, int64_t dim) {
    return dim == 1 ? cast<RankedTensorType>(all).getDimSize(1) / cast<RankedTensorType>(one).getDimSize(1) : 0;
  }
  Value gather(OpBuilder &builder, CommAllGatherOp like, Value latent) {
    auto op = CommAllGatherOp::create(builder, like.getLoc(),
                                      withTokens(latent.getType(), typeOf(like.getResult()).getDimSize(1)), latent,
                                      like.getAxis(), like.getDim());
    name(op, like, "attn.latent");
    return op;
  }
  /// An exchange in the place of another.
  static void name(Operation *op, Operation *like, StringRef label) {
    if (Attribute slice = like->getAttr(kSliceAttr))
      op->setAttr(kSliceAttr, slice);
    op->setAttr("label", StringAttr::get(op->getContext(), label));
  }
  static bool isOf(Operation *exchange, std::initializer_list<StringRef> labels) {
    auto label = exchange->getAttrOfType<StringAttr>("label");
    return label && llvm::is_contained(labels, label.getValue());
  }

  void forward(LinearOp op) {
    // Of each result one gather, and nothing else that reads it.
    SmallVector<CommAllGatherOp> gathers;
    for (Value result : op.getResults()) {
      auto user = result.hasOneUse() ? dyn_cast<CommAllGatherOp>(*result.user_begin()) : CommAllGatherOp();
      if (!user || !isOf(user, {"attn.k", "attn.v"}) || (!gathers.empty() && user.getAxis() != gathers[0].getAxis()))
        return;
      gathers.push_back(user);
    }
    int64_t ranks = ranksOf(gathers[0].getX().getType(), gathers[0].getResult().getType(), gathers[0].getDim());
    if (ranks < 2 || !latentsTravel(op.getX(), op.getResults(), 1, ranks, machine))
      return;
    OpBuilder builder(op);
    SmallVector<Type> types;
    for (CommAllGatherOp each : gathers)
      types.push_back(each.getResult().getType());
    auto all = LinearOp::create(builder, op.getLoc(), types, gather(builder, gathers[0], op.getX()), op.getWeights(),
                                op.getTransposedAttr());
    all->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    for (auto [each, made] : llvm::zip_equal(gathers, all.getResults())) {
      each.getResult().replaceAllUsesWith(made);
      each.erase();
    }
    op.erase();
  }

  void backward(LinearGradDataOp op) {
    // Cotangents that came from all ranks, which only the gradients of one product read.
    SmallVector<CommReduceScatterOp> scatters;
    LinearGradWeightOp weights;
    for (Value cotangent : op.getDys()) {
      auto scatter = cotangent.getDefiningOp<CommReduceScatterOp>();
      if (!scatter || !isOf(scatter, {"attn.dk", "attn.dv"}) ||
          (!scatters.empty() && scatter.getAxis() != scatters[0].getAxis()))
        return;
      for (Operation *user : cotangent.getUsers()) {
        auto weight = dyn_cast<LinearGradWeightOp>(user);
        if (user == op)
          continue;
        if (!weight || (weights && weights != weight))
          return;
        weights = weight;
      }
      scatters.push_back(scatter);
    }
    if (weights && !llvm::equal(weights.getDys(), op.getDys()))
      return;
    auto first = scatters[0];
    int64_t ranks = ranksOf(first.getResult().getType(), first.getX().getType(), first.getDim());
    if (ranks < 2 || !latentsTravel(op.getDx(), op.getDys(), 1, ranks, machine))
      return;
    OpBuilder builder(op);
    SmallVector<Value> all;
    for (CommReduceScatterOp each : scatters)
      all.push_back(each.getX());
    int64_t tokens = typeOf(all[0]).getDimSize(1);
    Value dx = LinearGradDataOp::create(builder, op.getLoc(), withTokens(op.getDx().getType(), tokens), all,
                                        op.getWeights(), op.getTransposedAttr());
    auto mine =
        CommReduceScatterOp::create(builder, first.getLoc(), op.getDx().getType(), dx, first.getAxis(), first.getDim());
    name(mine, first, "attn.dlatent");
    op.getDx().replaceAllUsesWith(mine);
    if (weights) {
      builder.setInsertionPoint(weights);
      auto latents = CommAllGatherOp::create(builder, weights.getLoc(), withTokens(weights.getX().getType(), tokens),
                                             weights.getX(), first.getAxis(), first.getDim());
      name(latents, first, "attn.latent");
      weights.getXMutable().assign(latents);
      weights.getDysMutable().assign(all);
    }
    op.erase();
    for (CommReduceScatterOp each : scatters)
      each.erase();
  }

  ModuleOp module;
  Machine machine;
};

} // namespace

void braid::gatherLatents(ModuleOp module) { LatentGatherer(module).run(); }
