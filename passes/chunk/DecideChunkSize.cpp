//===- DecideChunkSize.cpp - writes chunk_size on scans ----------------------------------------------------------===//
// Decide, record, rewrite: this pass records, ChunkTiling rewrites. A scan that already carries chunk_size keeps it.
#include "dialects/braid/PassAttributes.h"
#include "dialects/braid/ScanTraits.h"
#include "dialects/tile/TileDialect.h"
#include "passes/Passes.h"
#include "passes/analysis/DecayRange.h"
#include "passes/chunk/ChunkCosts.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_DECIDECHUNKSIZEPASS
#include "passes/Passes.h.inc"
} // namespace braid

using namespace braid;

namespace {

/// A scan, its gradient, or what a span of tokens does to a state.
struct Chunked {
  Operation *op;
  Value k, v, state; ///< `state`: any value that holds states
  LsmClass classId;
  StringRef alone = ""; ///< what distinguishes it from scans whose function has their gradient

  int64_t tokens() const { return cast<RankedTensorType>(k.getType()).getDimSize(1); }
  /// Equal for what is cut alike: the class, widths, element types and what is known of the decays.
  std::string kernels() const {
    auto last = [](Value value) { return cast<RankedTensorType>(value.getType()).getShape().back(); };
    std::string key;
    llvm::raw_string_ostream os(key);
    os << stringifyLsmClass(classId) << ' ' << last(k) << ' ' << last(v) << ' ' << getElementTypeOrSelf(k.getType())
       << ' ' << getElementTypeOrSelf(state.getType());
    if (Attribute least = op->getAttr(attrs::leastLogDecay))
      os << ' ' << least;
    return (key + alone).str();
  }
  /// Whether a chunk of `size` tokens may have to make its scores in tiles.
  bool tilesScores(int64_t size) const {
    ScanTraits traits(classId);
    return traits.vectorDecay && !traits.elementDecay && !provesMildDecay(op, size);
  }
};

std::optional<Chunked> chunkedOp(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<Chunked>>(op)
      .Case<LsmScanOp, LsmScanGradOp>(
          [&](auto scan) { return Chunked{op, scan.getK(), scan.getV(), scan.getInitialState(), scan.getClassId()}; })
      .Case([&](LsmSegmentOp segment) {
        return Chunked{op, segment.getK(), segment.getV(), segment.getX(), segment.getClassId()};
      })
      .Case([&](LsmSegmentGradOp segment) {
        return Chunked{op, segment.getK(), segment.getV(), segment.getDx(), segment.getClassId()};
      })
      .Default([](Operation *) { return std::nullopt; });
}

bool hasGradient(func::FuncOp function) {
  return function && function
                         .walk([](Operation *op) {
                           return isa<LsmScanGradOp, LsmSegmentGradOp>(op) ? WalkResult::interrupt()
                                                                           : WalkResult::advance();
                         })
                         .wasInterrupted();
}

struct DecideChunkSizePass : public braid::impl::DecideChunkSizePassBase<DecideChunkSizePass> {
  using DecideChunkSizePassBase::DecideChunkSizePassBase;

  void runOnOperation() override {
    if (chunkSize < 0 || chunkSize > ChunkCosts::most || chunkSize % ChunkCosts::least != 0) {
      getOperation().emitError("chunk-size = ")
          << chunkSize.getValue() << " is not a multiple of " << ChunkCosts::least << " from " << ChunkCosts::least
          << " to " << ChunkCosts::most << " (0 chooses by what the kernels cost)";
      return signalPassFailure();
    }
    SmallVector<Chunked> undecided;
    std::map<std::string, SmallVector<Operation *>> alike; // one op of each kind
    getOperation().walk([&](Operation *op) {
      std::optional<Chunked> scan = chunkedOp(op);
      if (!scan || op->hasAttr("chunk_size"))
        return;
      // Shared memory ends the chunks of a gradient first. A function without it shares nothing with one, so its chunks are its own.
      if (sharedBytes && !hasGradient(op->getParentOfType<func::FuncOp>()))
        scan->alone = " alone";
      undecided.push_back(*scan);
      SmallVector<Operation *> &same = alike[scan->kernels()];
      if (llvm::none_of(same, [&](Operation *other) { return other->getName() == op->getName(); }))
        same.push_back(op);
    });
    KernelTarget target{vectorBytes, bf16Dots, sharedBytes};
    std::map<std::string, ChunkCosts> costs;
    std::map<std::pair<std::string, int64_t>, ChunkCosts::Choice> chosen;
    // All choices before the first attribute: what is weighed is a scan without one.
    for (const Chunked &scan : undecided) {
      ChunkCosts::Choice &choice = chosen[{scan.kernels(), scan.tokens()}];
      if (choice.size)
        continue;
      ChunkCosts &cost = costs.try_emplace(scan.kernels(), alike[scan.kernels()], target).first->second;
      if (chunkSize) {
        choice.size = std::min<int64_t>(chunkSize, llvm::alignTo(scan.tokens(), ChunkCosts::least));
      } else {
        choice = cost.choose(scan.tokens());
        auto failed = [&](auto &size) { return !cost.failure(size.first).empty(); };
        if (!choice.perToken.empty() && llvm::all_of(choice.perToken, failed)) {
          scan.op->emitOpError("has no kernels in chunks of any size: ")
              << cost.failure(choice.perToken.begin()->first);
          return signalPassFailure();
        }
      }
      bool compared = !choice.perToken.empty() && std::isfinite(choice.perToken.at(choice.size));
      if ((chunkSize || compared) && scan.tilesScores(choice.size))
        cost.chooseScoreRows(choice);
    }
    Builder builder(&getContext());
    if (llvm::any_of(chosen, [](auto &each) { return !each.second.perToken.empty(); }))
      getOperation()->setAttr(attrs::chunkTarget, builder.getStringAttr(target.describe()));
    for (const Chunked &scan : undecided) {
      const ChunkCosts::Choice &choice = chosen[{scan.kernels(), scan.tokens()}];
      scan.op->setAttr("chunk_size", builder.getI64IntegerAttr(choice.size));
      if (choice.scoreRows)
        scan.op->setAttr(attrs::scoreRows, builder.getI64IntegerAttr(choice.scoreRows));
      auto explain = [&](StringRef attribute, const std::map<int64_t, double> &compared) {
        std::string words;
        for (auto [size, cycles] : compared)
          words += llvm::formatv("{0}{1}: {2}", words.empty() ? "" : ", ", size,
                                 !std::isinf(cycles) ? llvm::formatv("{0:f0}", cycles).str()
                                 : costs.at(scan.kernels()).failure(size).empty() ? "does not fit"
                                                                                  : "has no kernels");
        if (!words.empty())
          scan.op->setAttr(attribute, builder.getStringAttr(words));
      };
      explain(attrs::chunkCosts, choice.perToken);
      explain(attrs::scoreCosts, choice.strongPerToken);
    }
  }
};

} // namespace
