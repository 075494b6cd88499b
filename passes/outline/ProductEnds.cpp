//===- ProductEnds.cpp - row-wise ops at the ends of the products that they read ----------------------------------===//
//
//   gate = x w1,  up = x w3,  hidden = silu(gate) * up          one kernel: hidden is made where both sums are, in the registers of a thread
//
// A kernel of row-wise ops reads from memory what products have just written there: in a step of a mixture of experts as many bytes as the products themselves. Where the
// ops of a cluster (FuseRows) are elementwise, the products of one matrix are what they read, and nothing between needs to be done before, the cluster is the end of
// these products: it gets their tiles rounded as memory would have them, so that its numbers are the same, bit by bit. Products that nothing else reads are in no memory then.
//
// A row may have a number of its own, by which a formula multiplies it (braid.mul, `b` without the columns), as experts' rows have weights: a thread asks for those of its two rows before
// it multiplies. The gradient of such a number is a sum along the row: each tile stores its part, and a second kernel adds up those of a row.
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
    if (cluster.empty() || !alike || !type.getElementType().isBF16() || !isMadeByElement(type, cluster))
      return false;
    // Whether this value is needed as a tensor.
    auto isStored = [&](Value v) {
      return llvm::any_of(v.getUsers(), [&](Operation *user) { return !llvm::is_contained(cluster, user); });
    };
    SmallVector<Value> stored, made, sums;
    llvm::SetVector<Value> read, numbers;
    for (Operation *member : cluster) {
      for (Value operand : member->getOperands())
        if (Operation *maker = operand.getDefiningOp(); maker != op && !llvm::is_contained(cluster, maker))
          (isOfRows(operand, type) ? numbers : read).insert(operand);
      for (Value result : member->getResults())
        if (isStored(result))
          (isOfRows(result, type) ? sums : made).push_back(result);
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
    auto isF32 = [](Value v) { return tensorType(v).getElementType().isF32(); };
    if (!llvm::all_of(made, [&](Value v) { return v.getType() == type; }) || !llvm::all_of(read, isThere) ||
        !llvm::all_of(numbers, isThere) || !llvm::all_of(llvm::concat<const Value>(numbers, sums), isF32))
      return false;
    llvm::append_range(stored, made);
    Ends ends{products, cluster, read.getArrayRef(), numbers.getArrayRef(), stored, sums};
    FailureOr<bool> calls = callFunctions(ends);
    if (failed(calls) || *calls)
      return failed(calls) ? calls : false;
    return replace(ends);
  }

private:
  /// What is computed: of matrices and numbers of rows, which are read, matrices and sums of rows, which are stored.
  struct Ends {
    const Products &products;
    ArrayRef<Operation *> cluster;
    ArrayRef<Value> read, numbers, stored, sums;
  };

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

  /// A number for each row of such a matrix.
  static bool isOfRows(Value v, RankedTensorType type) { return shapeOf(v) == type.getShape().drop_back(); }

  /// Whether every element follows from those at its place in matrices like this one, and from a number of its row; sums along rows are of what follows so.
  bool isMadeByElement(RankedTensorType type, ArrayRef<Operation *> cluster) {
    auto isMember = [&](Operation *op) { return op && llvm::is_contained(cluster, op); };
    return llvm::all_of(cluster, [&](Operation *op) {
      if (shapeOf(op->getOperand(0)) != type.getShape())
        return false;
      if (isElementwise(op))
        return true;
      // Those of a row are whole only behind this kernel.
      auto fits = [&](Value v) { return shapeOf(v) == type.getShape() || isOfRows(v, type); };
      auto isReady = [&](Value v) { return !isOfRows(v, type) || !isMember(v.getDefiningOp()); };
      return scalesRows(op) && llvm::all_of(op->getOperands(), fits) && llvm::all_of(op->getResults(), fits) &&
             llvm::all_of(op->getOperands(), isReady);
    });
  }

  /// A product of each row and a number of it, or what such a product's gradient is.
  static bool scalesRows(Operation *op) {
    auto grad = dyn_cast<RowsGradOp>(op);
    return isa<MulOp>(op) || (grad && grad.getOp() == MulOp::getOperationName());
  }

  /// Whether the formulas, as they are emitted, call functions: beside a call every wgmma of a kernel waits for the one before it (C7509),
  /// and a polynomial wants registers that are not left beside the sums (log: 16 bytes spilled).
  FailureOr<bool> callFunctions(const Ends &ends) {
    OwningOpRef<ModuleOp> module = ModuleOp::create(ends.products.op->getLoc());
    KernelBuilder k(*module, "formulas", {});
    Var tile = k.tile({1, 1}, k.builder.getBF16Type());
    Vars tiles(ends.products.op->getNumResults(), tile), operands(ends.read.size(), tile);
    operands.append(ends.numbers.size(), k.tile({1}, k.f32()));
    if (failed(emit(k, ends, tiles, operands)))
      return failure();
    k.approximate(); // as the kernel will: of products of bf16
    return callsFunctions(k.finish());
  }

  FailureOr<bool> replace(const Ends &ends) {
    const Products &products = ends.products;
    Operation *op = products.op;
    ArrayRef<Operation *> cluster = ends.cluster;
    auto ofProducts = op->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr),
         ofRows = cluster.front()->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr);
    cluster.front()->removeAttr(cmd::kWorkAttr); // attributes are part of the name
    LogicalResult status = success();
    auto write = [&](KernelBuilder &k, ArrayRef<Var> tiles, ArrayRef<Var> operands) {
      FailureOr<Vars> made = emit(k, ends, tiles, operands);
      status = failure(failed(made));
      return succeeded(made) ? *made : Vars(ends.stored.size() + ends.sums.size(), tiles.front());
    };
    ProductEnd end{nameOf(ends),
                   SmallVector<Value>(ends.read),
                   SmallVector<Value>(ends.numbers),
                   static_cast<int64_t>(ends.stored.size()),
                   static_cast<int64_t>(ends.sums.size()),
                   write};
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
      launch->setAttr(cmd::kWorkAttr, joined(ofProducts, ofRows, op, ends.stored));
    for (Value &partials : MutableArrayRef(results).drop_front(ends.stored.size()))
      partials = sumOverRows(op, partials, context);
    for (auto [value, result] : llvm::zip_equal(llvm::concat<const Value>(ends.stored, ends.sums), results))
      context.rewriter.replaceAllUsesWith(value, context.view(op, result, shapeOf(value)));
    ended.insert(cluster.begin(), cluster.end());
    for (Operation *member : llvm::reverse(cluster))
      context.rewriter.eraseOp(member);
    context.rewriter.eraseOp(op);
    return true;
  }

  /// The products, operands and results by their places, and what is computed of them.
  std::string nameOf(const Ends &ends) {
    llvm::DenseMap<Value, int64_t> number;
    SmallVector<Value> places(ends.products.op->getResults());
    llvm::append_range(places, ends.read);
    llvm::append_range(places, ends.numbers);
    std::string text;
    for (Value place : places)
      number.try_emplace(place, number.size());
    SmallVector<Value> made;
    for (Value v : ends.stored)
      if (auto it = number.find(v); it != number.end())
        text += "y" + std::to_string(it->second);
      else
        made.push_back(v);
    llvm::append_range(made, ends.sums);
    text += rowsText(ends.cluster, made, [&](Value v) {
      auto it = number.find(v);
      return it == number.end() ? SmallVector<int64_t>() : SmallVector<int64_t>{it->second};
    });
    return rowsName(ends.cluster, text);
  }

  /// `operands`: tiles of the matrices, then numbers of their rows.
  FailureOr<Vars> emit(KernelBuilder &k, const Ends &ends, ArrayRef<Var> tiles, ArrayRef<Var> operands) {
    llvm::DenseMap<Value, Value> known;
    for (auto [product, tile] : llvm::zip_equal(ends.products.op->getResults(), tiles))
      known[product] = tile;
    for (auto [operand, tile] : llvm::zip_equal(llvm::concat<const Value>(ends.read, ends.numbers), operands))
      known[operand] = tile;
    TileEmitter e(k.builder, k.builder.getLoc(), cast<VectorType>(Value(tiles.front()).getType()).getDimSize(0), {});
    if (failed(emitRowsOps(ends.cluster, e, known)))
      return failure();
    return llvm::map_to_vector(llvm::concat<const Value>(ends.stored, ends.sums),
                               [&](Value v) { return k.wrap(known.lookup(v)); });
  }

  /// What both do; products are read nowhere, and written where they are `stored`.
  cmd::WorkAttr joined(cmd::WorkAttr products, cmd::WorkAttr rows, Operation *op, ArrayRef<Value> stored) {
    int64_t bytes = products.getBytes() + rows.getBytes();
    for (Value product : op->getResults())
      bytes -= cmd::tensorBytes(tensorType(product)) * (llvm::is_contained(stored, product) ? 1 : 2);
    std::string choice = products.getChoice().str() + "; in registers of its threads: " + rows.getOp().str();
    return cmd::WorkAttr::get(op->getContext(), products.getOp().str() + " + " + rows.getOp().str(),
                              products.getFlops() + rows.getFlops(), bytes, choice,
                              std::max(products.getRows(), rows.getRows()),
                              std::min(products.getFixed() + rows.getFixed(), bytes));
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
