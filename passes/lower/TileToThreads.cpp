//===- TileToThreads.cpp - a kernel becomes the program of one thread of a block ----------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/LowerKernels.h"
#include "passes/lower/ThreadLowering.h"
#include "runtime/schema/Limits.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

namespace braid {
#define GEN_PASS_DEF_TILETOTHREADSPASS
#include "passes/Passes.h.inc"
} // namespace braid

void braid::setTensorMaps(Operation *function, ArrayRef<TensorMap> maps, int64_t slots) {
  Builder b(function->getContext());
  SmallVector<Attribute> list = {b.getI64IntegerAttr(mapsOffset(slots))};
  for (const TensorMap &map : maps)
    list.push_back(b.getArrayAttr({b.getI64IntegerAttr(map.param), b.getDenseI64ArrayAttr(map.sizes),
                                   b.getDenseI64ArrayAttr(map.strides), b.getDenseI64ArrayAttr(map.box)}));
  function->setAttr(kMapsAttr, b.getArrayAttr(list));
}

SmallVector<TensorMap> braid::tensorMapsOf(Operation *function) {
  SmallVector<TensorMap> maps;
  if (auto list = function->getAttrOfType<ArrayAttr>(kMapsAttr))
    for (Attribute one : list.getValue().drop_front()) {
      auto map = cast<ArrayAttr>(one);
      auto numbers = [&](size_t i) { return SmallVector<int64_t>(cast<DenseI64ArrayAttr>(map[i]).asArrayRef()); };
      maps.push_back({cast<IntegerAttr>(map[0]).getInt(), numbers(1), numbers(2), numbers(3)});
    }
  return maps;
}

int64_t braid::clusterOf(Operation *function) {
  auto cluster = function->getAttrOfType<IntegerAttr>(kBlockClusterAttr);
  return cluster ? cluster.getInt() : 1;
}

int64_t braid::mapsOffsetOf(Operation *function) {
  return cast<IntegerAttr>(function->getAttrOfType<ArrayAttr>(kMapsAttr)[0]).getInt();
}

/// Shared memory that the system takes of each block.
static constexpr int64_t kBlockOverhead = 1024;

/// Where the tiles do not fit, they are packed by what the walk took; nothing is copied ahead; loads are made again, those of formulas
/// first; where they then still do not fit, some lie in scratch.
static LogicalResult lowerKernel(func::FuncOp kernel, const BlockLimits &limits, int64_t threads, bool mayScratch,
                                 bool &done) {
  struct Try {
    Thrift thrift;
    bool ahead, scratched;
  };
  bool ahead = true;
  for (auto [thrift, mayCopyAhead, scratched] : {Try{Thrift::none, true, false},
                                                 {Thrift::none, false, false},
                                                 {Thrift::formulas, false, false},
                                                 {Thrift::loads, false, false},
                                                 {Thrift::loads, false, true}}) {
    if (thrift == Thrift::none && !mayCopyAhead && !ahead)
      continue; // as it was before
    if (!mayScratch && thrift == Thrift::loads)
      break;
    ThreadLowering lowering(kernel, limits, threads, thrift, mayCopyAhead, scratched);
    if ((done = succeeded(lowering.run())))
      return success();
    if (!lowering.doesNotFit())
      return failure();
    ahead = lowering.copiesAhead();
    SmallVector<int64_t> offsets = pack(lowering.taken());
    bool fits = llvm::all_of(llvm::zip(offsets, lowering.taken()), [&](auto piece) {
      return std::get<0>(piece) + std::get<1>(piece).bytes <= limits.sharedBytes;
    });
    if (scratched || !fits)
      continue;
    ThreadLowering again(kernel, limits, threads, thrift, mayCopyAhead, scratched, offsets);
    if ((done = succeeded(again.run())))
      return success();
    if (!again.doesNotFit())
      return failure();
  }
  return success();
}

/// What no runtime would load is not written.
static LogicalResult checkParameters(func::FuncOp function, int64_t slots) {
  auto maps = static_cast<int64_t>(tensorMapsOf(function).size());
  if (int64_t bytes = parameterBytes(slots, maps); bytes > maxParameterBytes)
    return function.emitError("@") << function.getName() << ": " << slots << " slots and " << maps
                                   << " tensor maps take " << bytes << " bytes of parameters; a launch has at most "
                                   << maxParameterBytes;
  return success();
}

LogicalResult braid::lowerTilesToThreads(ModuleOp module, const BlockLimits &limits) {
  IRRewriter rewriter(module.getContext());
  module.walk(expandElements);
  DominanceInfo dominance(module);
  eliminateCommonSubExpressions(rewriter, dominance, module);
  SmallVector<func::FuncOp> kernels;
  for (auto kernel : module.getOps<func::FuncOp>())
    if (kernel->hasAttr(tile::kKernelAttr) && !kernel.isExternal())
      kernels.push_back(kernel);
  for (func::FuncOp kernel : kernels) {
    prepareTiles(kernel, /*bf16Dots=*/true, /*turn=*/false);
    // What two blocks of a multiprocessor have room for waits less, so kernels that are small but for ways they seldom take have those
    // make again what they can.
    bool done = false;
    std::string name = kernel.getName().str();
    int64_t slots = KernelSignature::of(kernel).slotsOnDevice();
    int64_t threads = chooseThreads(kernel);
    auto liesInColumns = [&](int64_t dealtTo) {
      return ThreadLowering(kernel, limits, dealtTo, Thrift::none, true, false).liesInColumns();
    };
    if (limits.sharedBytes > 2 * kBlockOverhead && liesInColumns(threads)) {
      BlockLimits half = limits;
      half.sharedBytes = (limits.sharedBytes + kBlockOverhead) / 2 - kBlockOverhead;
      if (failed(lowerKernel(kernel, half, threads, /*mayScratch=*/false, done)))
        return failure();
      if (done)
        module.lookupSymbol(name)->setAttr(kTogetherAttr, Builder(module.getContext()).getI64IntegerAttr(2));
      // One that has a multiprocessor for itself waits less with twice the warps, and each of them has half of a tile's elements in registers.
      if (!done && liesInColumns(2 * threads))
        threads *= 2;
    }
    if (!done && failed(lowerKernel(kernel, limits, threads, /*mayScratch=*/true, done)))
      return failure();
    if (!done || failed(checkParameters(module.lookupSymbol<func::FuncOp>(name), slots)))
      return failure();
  }
  return success();
}

namespace {
struct TileToThreads : braid::impl::TileToThreadsPassBase<TileToThreads> {
  using TileToThreadsPassBase::TileToThreadsPassBase;
  void runOnOperation() override {
    if (failed(lowerTilesToThreads(getOperation(), {sharedBytes, wgmma})))
      signalPassFailure();
  }
};
} // namespace
