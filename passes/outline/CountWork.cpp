//===- CountWork.cpp - braid-count-work: FLOPs, bytes and the reasons for a kernel, written on the op -------------===//
#include "dialects/braid/InnerTraits.h"
#include "dialects/braid/PassAttributes.h"
#include "dialects/braid/ScanTraits.h"
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/Passes.h"
#include "passes/analysis/DecayRange.h"
#include "passes/analysis/ExpertRows.h"
#include "passes/analysis/StateWalk.h"
#include "passes/analysis/Work.h"
#include "passes/outline/LsmChunk.h"
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/Units.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {

#define GEN_PASS_DEF_COUNTWORKPASS
#include "passes/Passes.h.inc"

namespace {

bool isF64(Operation *op) {
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return type && type.getElementType().isF64();
}

/// Which factors of decays per channel are safe, and what proves it.
std::string factorsOf(Operation *op, int64_t size) {
  if (!makesDecayedScores(op))
    return "";
  auto least = op->getAttrOfType<FloatAttr>(attrs::leastLogDecay);
  auto rows = op->getAttrOfType<IntegerAttr>(attrs::scoreRows);
  auto costs = op->getAttrOfType<StringAttr>(attrs::scoreCosts);
  std::string chooses = llvm::formatv(
      "each chunk chooses by its own between one product of all pairs and tiles of {0} rows{1}",
      rows ? rows.getInt() : kScoreRows,
      costs ? llvm::formatv(" (cycles of a token and head in such a chunk, {0})", costs.getValue()).str() : "");
  if (!least)
    return "; its gates prove no bound of the log decays: " + chooses;
  double bound = least.getValueAsDouble();
  std::string words = llvm::formatv("; its gates prove log decays of at least {0:f4}, {1:f1} over a chunk: ", bound,
                                    bound * static_cast<double>(size));
  return words + (provesMildDecay(op, size) ? "one product of all pairs is safe in every chunk" : chooses);
}

/// Of a product of two matrices.
std::string splitChoiceOf(Operation *op) {
  auto of = [](Value x, Value y, Value weight, bool ofWeight) {
    int64_t rows = shapeOf(x)[0] * shapeOf(x)[1], in = product(shapeOf(x)) / rows, out = product(shapeOf(y)) / rows;
    Type left = tensorType(x).getElementType(), right = tensorType(ofWeight ? y : weight).getElementType();
    return ofWeight ? splitChoice(in, out, rows, left, right, true) : splitChoice(rows, out, in, left, right, false);
  };
  if (auto linear = dyn_cast<LinearOp>(op))
    return of(linear.getX(), linear.getResults().front(), linear.getWeights().front(), false);
  if (auto grad = dyn_cast<LinearGradDataOp>(op); grad && grad.getDys().size() == 1)
    return of(grad.getDys().front(), grad.getDx(), grad.getWeights().front(), false);
  if (auto grad = dyn_cast<LinearGradWeightOp>(op))
    return of(grad.getX(), grad.getDys().front(), {}, true);
  return {};
}

std::string walkChoice(int64_t chunk) {
  return llvm::formatv("outputs where the state is: one walk over the row, chunk after chunk of {0} tokens; no state "
                       "of a chunk in memory",
                       chunk)
      .str();
}

/// How it was decided to do the op, in the words of the pass that decided.
std::string choiceOf(ArrayRef<Operation *> unit, bool gpu, bool library, bool f32Parts) {
  Operation *op = unit.front();
  auto chunked = [](auto op) {
    auto costs = op->template getAttrOfType<StringAttr>(attrs::chunkCosts);
    std::string compared = costs ? "; cycles of a token and head: " + costs.getValue().str() : "";
    bool walks = ScanTraits(op.getClassId()).elementDecay;
    return llvm::formatv("chunks of {0} tokens (braid-decide-chunk-size{1}), class {2}: {3} inside a chunk{4}",
                         op.getChunkSize(), compared, stringifyLsmClass(op.getClassId()),
                         walks ? "a walk over the tokens" : "matrix products", factorsOf(op, op.getChunkSize()))
        .str();
  };
  if (isRowsOp(op)) {
    if (unit.size() > 1)
      return llvm::formatv("{0} row-wise ops fused (braid-fuse-rows): one pass over the rows", unit.size());
    return "row-wise, alone: no neighbour over the same rows could join";
  }
  auto rowsOf = [](Value x) { return shapeOf(x)[0] * shapeOf(x)[1]; };
  if (auto linear = dyn_cast<LinearOp>(op);
      linear && isOfFewRows(linear.getX(), linear.getWeights().front(), rowsOf(linear.getX()), kFewRows, gpu))
    return "generated: so few rows that the weights stream by once";
  if (auto linear = dyn_cast<MoeGroupedLinearOp>(op);
      linear && isOfFewRows(linear.getX(), linear.getWeights().front(), rowsOf(linear.getX()), kFewExpertRows, gpu))
    return "generated: so few rows that the weights of their experts stream by once";
  if (std::string parts = gpu && !library && f32Parts ? splitChoiceOf(op) : std::string(); !parts.empty())
    return parts;
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case<LinearOp, LinearAddOp, LinearGradDataOp, LinearGradWeightOp>([&](auto) -> std::string {
        return isF64(op) ? "generated: the library has no f64"
               : library ? "library: a dense matrix product"
                         : "generated: a dense matrix product (braid-gemm-kernels)";
      })
      .Case<MoeGroupedLinearOp, MoeGroupedLinearGradDataOp, MoeGroupedLinearGradWeightOp>([&](auto) -> std::string {
        return isF64(op)         ? "generated: the library has no f64"
               : library && !gpu ? "library: one product per expert, rows known on the device"
                                 : "generated: one product per expert, rows known on the device (braid-gemm-kernels)";
      })
      .Case<LsmChunkStateOp, LsmChunkFactorsOp, LsmChunkInverseOp, LsmChunkWalkFactorsOp, LsmChunkOutputOp,
            LsmChunkOutputGradStateOp, LsmChunkOutputFactorsOp, LsmChunkGradOp>(chunked)
      .Case<LsmStateScanOp, LsmFactorScanOp, LsmStateWalkOp>([](auto scan) {
        auto states = cast<RankedTensorType>(scan.getM().getType());
        return llvm::formatv("the only part in order: one step per chunk; a state for each of {0} chunks, {1} bytes "
                             "(longer chunks, --chunk-size, keep fewer)",
                             states.getDimSize(0) * states.getDimSize(1),
                             states.getNumElements() * states.getElementTypeBitWidth() / 8)
            .str();
      })
      .Case([](LsmOutputWalkOp walk) { return walkChoice(static_cast<int64_t>(walk.getChunkSize())); })
      .Case([](LsmFactorWalkOp walk) { return walkChoice(ScanSizes::of(walk).chunk); })
      .Case<LsmStateScanGradOp, LsmFactorScanGradOp>([](auto) { return "the only part in order: one step per chunk"; })
      .Case<LsmInnerStatesOp, LsmInnerOutputOp, LsmInnerGradOp>([](auto inner) {
        return llvm::formatv("mini-batches of {0} tokens, class {1}: matrix products inside a mini-batch",
                             inner.getMiniBatch(), InnerTraits(inner).className())
            .str();
      })
      .Case([](LinearScoresOp) { return "blocks of rows: the logits of one block exist at a time"; })
      .Case<LinearCrossEntropyOp, LinearCrossEntropyGradOp, LinearLossPartOp, LinearLossPartGradOp>(
          [&](auto loss) -> std::string {
            std::string why = whyNoLossTiles(op, loss.getX(), loss.getWeight(), loss.getTransposed(), gpu && !library);
            if (gpu && !why.empty())
              return "blocks of rows: the logits of one block exist at a time, in f32: " + why;
            if (!why.empty())
              return "blocks of rows: the logits of one block exist at a time";
            return isa<LinearCrossEntropyGradOp, LinearLossPartGradOp>(op)
                       ? "blocks of rows: exponentials of the logits of one block exist at a time, in bf16, which "
                         "its products scale"
                       : "blocks of rows: the product says what the loss needs, logits are in no memory";
          })
      .Case<LsmStepOp, LsmInnerStepOp>([](auto) { return "one token: the recurrence itself, no chunks"; })
      .Case<AttnCausalOp, AttnCausalGradOp>(
          [](auto) { return "online softmax over tiles of keys: no scores in memory"; })
      .Default([](Operation *) { return "generated"; });
}

struct CountWorkPass : impl::CountWorkPassBase<CountWorkPass> {
  using CountWorkPassBase::CountWorkPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    int64_t maxDocuments = 1;
    if (auto attr = module->getAttrOfType<IntegerAttr>(attrs::maxDocuments))
      maxDocuments = attr.getInt();
    for (auto func : module.getOps<func::FuncOp>())
      if (!func->hasAttr(tile::kKernelAttr))
        func.walk([&](Block *block) {
          ExpertRows experts(*block);
          for (const OutlineUnit &unit : outlineUnits(*block)) {
            Work work = workOf(unit, maxDocuments);
            // Row-wise ops have as many as their results.
            bool some = isRowsOp(unit.front()) && llvm::any_of(unit, [&](Operation *op) { return experts.reads(op); });
            int64_t rows = some ? product(rowDims(unit.front())) : work.rows;
            unit.front()->setAttr(cmd::kWorkAttr,
                                  cmd::WorkAttr::get(module.getContext(), workName(unit), work.flops, work.bytes,
                                                     choiceOf(unit, gpu, library, f32Parts), rows, work.fixed));
          }
        });
  }
};

} // namespace
} // namespace braid
