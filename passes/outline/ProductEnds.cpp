//===- ProductEnds.cpp - row-wise ops at the ends of the products that they read ----------------------------------===//
//
//   gate = x w1,  up = x w3,  hidden = silu(gate) * up          one kernel: hidden is made where both sums are, in the registers of a thread
//
// A kernel of row-wise ops reads from memory what products have just written there: in a step of a mixture of experts as many bytes as the products themselves. Where the
// ops of a cluster (FuseRows) are elementwise, the products of one matrix are what they read, and nothing between needs to be done before, the cluster is the end of
// these products: it gets their tiles rounded as memory would have them, so that its numbers are the same, bit by bit. Products that nothing else reads are in no memory then.
//
// Formulas that a GPU has no instructions for (exact quotients, which are in tanh and gelu; polynomials) stay in kernels of their own. Only where warpgroups multiply what boxes bring are sums in registers, which nobody waits for: elsewhere, and where products are so small or so narrow that no such kernel takes them, everything
// stays as it is.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/cmd/CmdDialect.h"
#include "passes/lower/LowerKernels.h"
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/RowsCluster.h"

#include "dialects/braid/TileEmitter.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace braid {
namespace {

/// Products of one matrix; with `offsets` of rows of experts.
struct Products {
  Operation *op;
  Value a;
  SmallVector<Value> bs;
  Value offsets;
  bool transposeB;
};

/// A gradient that is no sum of several.
template <typename Grad> std::optional<Products> oneProduct(Grad grad, Value offsets, bool transposeB) {
  if (grad.getDys().size() != 1)
    return std::nullopt;
  return Products{grad, grad.getDys().front(), SmallVector<Value>(grad.getWeights()), offsets, transposeB};
}

std::optional<Products> productsOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<Products>>(op)
      .Case([](LinearOp linear) -> std::optional<Products> {
        return Products{linear, linear.getX(), SmallVector<Value>(linear.getWeights()), {}, linear.getTransposed()};
      })
      .Case([](MoeGroupedLinearOp linear) -> std::optional<Products> {
        return Products{linear, linear.getX(), SmallVector<Value>(linear.getWeights()), linear.getOffsets(), false};
      })
      .Case([](LinearGradDataOp grad) { return oneProduct(grad, {}, !grad.getTransposed()); })
      .Case([](MoeGroupedLinearGradDataOp grad) { return oneProduct(grad, grad.getOffsets(), /*transposeB=*/true); })
      .Default([](Operation *) { return std::nullopt; });
}

class Ender {
public:
  Ender(Block &block, DenseSet<Operation *> &ended, OutlineContext &context)
      : block(block), ended(ended), context(context) {}

  /// Whether it was.
  FailureOr<bool> end(const Products &products) {
    Operation *op = products.op;
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    SmallVector<Operation *> cluster = clusterOf(op);
    bool alike = llvm::all_of(op->getResultTypes(), [&](Type other) { return other == type; });
    if (cluster.empty() || !alike || !type.getElementType().isBF16() || !isElementwiseOver(type, cluster))
      return false;
    // Whether this value is needed as a tensor.
    auto isStored = [&](Value v) {
      return llvm::any_of(v.getUsers(), [&](Operation *user) { return !llvm::is_contained(cluster, user); });
    };
    SmallVector<Value> stored, made;
    llvm::SetVector<Value> read;
    for (Operation *member : cluster) {
      for (Value operand : member->getOperands())
        if (Operation *maker = operand.getDefiningOp(); maker != op && !llvm::is_contained(cluster, maker))
          read.insert(operand);
      for (Value result : member->getResults())
        if (isStored(result))
          made.push_back(result);
    }
    for (OpResult product : op->getResults()) {
      if (llvm::none_of(product.getUsers(), [&](Operation *user) { return llvm::is_contained(cluster, user); }))
        return false;
      if (isStored(product))
        stored.push_back(product);
    }
    auto isThere = [&](Value v) {
      Operation *maker = v.getDefiningOp();
      return v.getParentBlock() != &block || !maker || maker->isBeforeInBlock(op);
    };
    if (!llvm::all_of(made, [&](Value v) { return v.getType() == type; }) || !llvm::all_of(read, isThere))
      return false;
    llvm::append_range(stored, made);
    FailureOr<bool> calls = callFunctions(products, cluster, read.getArrayRef(), stored);
    if (failed(calls) || *calls)
      return failed(calls) ? calls : false;
    return replace(products, cluster, read.getArrayRef(), stored);
  }

private:
  /// The row-wise ops that become one kernel with the first that reads a product.
  SmallVector<Operation *> clusterOf(Operation *op) {
    for (OpResult product : op->getResults())
      for (Operation *user : product.getUsers())
        if (isRowsOp(user) && user->getBlock() == &block) {
          Attribute cluster = user->getAttr(kClusterAttr);
          SmallVector<Operation *> members;
          for (Operation &other : block)
            if (&other == user || (cluster && isRowsOp(&other) && other.getAttr(kClusterAttr) == cluster))
              members.push_back(&other);
          return members;
        }
    return {};
  }

  /// Whether all are elementwise over matrices like this one, and what they store is bf16.
  bool isElementwiseOver(RankedTensorType type, ArrayRef<Operation *> cluster) {
    return llvm::all_of(
        cluster, [&](Operation *op) { return isElementwise(op) && shapeOf(op->getOperand(0)) == type.getShape(); });
  }

  /// Whether the formulas, as they are emitted, call functions: beside a call every wgmma of a kernel waits for the one before it (C7509),
  /// and a polynomial wants registers that are not left beside the sums (log: 16 bytes spilled).
  FailureOr<bool> callFunctions(const Products &products, ArrayRef<Operation *> cluster, ArrayRef<Value> read,
                                ArrayRef<Value> stored) {
    OwningOpRef<ModuleOp> module = ModuleOp::create(products.op->getLoc());
    KernelBuilder k(*module, "formulas", {});
    Var tile = k.tile({1, 1}, k.builder.getBF16Type());
    Vars tiles(products.op->getNumResults(), tile), operands(read.size(), tile);
    if (failed(emit(k, products, cluster, read, stored, tiles, operands)))
      return failure();
    k.approximate(); // as the kernel will: all that it stores is bf16
    return callsFunctions(k.finish());
  }

  FailureOr<bool> replace(const Products &products, ArrayRef<Operation *> cluster, ArrayRef<Value> read,
                          ArrayRef<Value> stored) {
    Operation *op = products.op;
    auto ofProducts = op->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr),
         ofRows = cluster.front()->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr);
    cluster.front()->removeAttr(cmd::kWorkAttr); // attributes are part of the name
    LogicalResult status = success();
    auto write = [&](KernelBuilder &k, ArrayRef<Var> tiles, ArrayRef<Var> operands) {
      FailureOr<Vars> made = emit(k, products, cluster, read, stored, tiles, operands);
      status = failure(failed(made));
      return succeeded(made) ? *made : Vars(stored.size(), tiles.front());
    };
    ProductEnd end{nameOf(products, cluster, read, stored), SmallVector<Value>(read),
                   static_cast<int64_t>(stored.size()), write};
    SmallVector<Value> results =
        productWithEnd(op, products.a, products.bs, products.offsets, products.transposeB, end, context);
    if (failed(status))
      return failure();
    if (results.empty()) {
      if (ofRows)
        cluster.front()->setAttr(cmd::kWorkAttr, ofRows);
      return false;
    }
    Operation *launch = results.front().getDefiningOp();
    launch->removeAttr(kProductsAttr);
    if (ofProducts && ofRows)
      launch->setAttr(cmd::kWorkAttr, joined(ofProducts, ofRows, op, stored));
    for (auto [value, result] : llvm::zip_equal(stored, results))
      context.rewriter.replaceAllUsesWith(value, context.view(op, result, shapeOf(value)));
    ended.insert(cluster.begin(), cluster.end());
    for (Operation *member : llvm::reverse(cluster))
      context.rewriter.eraseOp(member);
    context.rewriter.eraseOp(op);
    return true;
  }

  /// The products, operands and results by their places, and what is computed of them.
  std::string nameOf(const Products &products, ArrayRef<Operation *> cluster, ArrayRef<Value> read,
                     ArrayRef<Value> stored) {
    llvm::DenseMap<Value, int64_t> number;
    SmallVector<Value> places(products.op->getResults());
    llvm::append_range(places, read);
    std::string text;
    for (Value place : places)
      number.try_emplace(place, number.size());
    SmallVector<Value> made;
    for (Value v : stored)
      if (auto it = number.find(v); it != number.end())
        text += "y" + std::to_string(it->second);
      else
        made.push_back(v);
    text += rowsText(cluster, made, [&](Value v) {
      auto it = number.find(v);
      return it == number.end() ? SmallVector<int64_t>() : SmallVector<int64_t>{it->second};
    });
    return rowsName(cluster, text);
  }

  FailureOr<Vars> emit(KernelBuilder &k, const Products &products, ArrayRef<Operation *> cluster, ArrayRef<Value> read,
                       ArrayRef<Value> stored, ArrayRef<Var> tiles, ArrayRef<Var> operands) {
    llvm::DenseMap<Value, Value> known;
    for (auto [product, tile] : llvm::zip_equal(products.op->getResults(), tiles))
      known[product] = tile;
    for (auto [operand, tile] : llvm::zip_equal(read, operands))
      known[operand] = tile;
    TileEmitter e(k.builder, k.builder.getLoc(), cast<VectorType>(Value(tiles.front()).getType()).getDimSize(0), {});
    if (failed(emitRowsOps(cluster, e, known)))
      return failure();
    return llvm::map_to_vector(stored, [&](Value v) { return k.wrap(known.lookup(v)); });
  }

  /// What both do; products are read nowhere, and written where they are `stored`.
  cmd::WorkAttr joined(cmd::WorkAttr products, cmd::WorkAttr rows, Operation *op, ArrayRef<Value> stored) {
    int64_t bytes = products.getBytes() + rows.getBytes();
    for (Value product : op->getResults())
      bytes -= cmd::tensorBytes(tensorType(product)) * (llvm::is_contained(stored, product) ? 1 : 2);
    std::string choice = products.getChoice().str() + "; in registers of its threads: " + rows.getOp().str();
    return cmd::WorkAttr::get(op->getContext(), products.getOp().str() + " + " + rows.getOp().str(),
                              products.getFlops() + rows.getFlops(), bytes, choice, rows.getRows());
  }

  Block &block;
  DenseSet<Operation *> &ended;
  OutlineContext &context;
};

} // namespace

FailureOr<bool> endProducts(Operation *op, DenseSet<Operation *> &ended, OutlineContext &context) {
  std::optional<Products> products = productsOf(op);
  if (!products || !context.warpgroups || !context.ownProducts())
    return false;
  return Ender(*op->getBlock(), ended, context).end(*products);
}

} // namespace braid
