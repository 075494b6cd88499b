//===- VerifyPhase.cpp - what may stand in a module when a phase ends ---------------------------------------------===//
// One table: the first and the last phase in which an op may stand. Everything else that a phase promises (shapes,
// operands) is said by the ops' own verifiers.
#include "dialects/braid/BraidDialect.h"
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/Passes.h"
#include "passes/Phases.h"
#include "passes/analysis/Calls.h"
#include "passes/analysis/Mesh.h"
#include "passes/autodiff/Recompute.h"
#include "passes/shard/Sequence.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_VERIFYPHASEPASS
#include "passes/Passes.h.inc"
} // namespace braid

std::optional<Phase> braid::parsePhase(StringRef name) {
  for (Phase phase : allPhases())
    if (phaseName(phase) == name)
      return phase;
  return std::nullopt;
}

StringRef braid::phaseName(Phase phase) {
  switch (phase) {
  case Phase::model: return "model";
  case Phase::train: return "train";
  case Phase::sharded: return "sharded";
  case Phase::scheduled: return "scheduled";
  case Phase::chunked: return "chunked";
  case Phase::kernels: return "kernels";
  case Phase::commands: return "commands";
  }
  llvm_unreachable("phase");
}

ArrayRef<Phase> braid::allPhases() {
  static constexpr Phase phases[] = {Phase::model,   Phase::train,   Phase::sharded, Phase::scheduled,
                                     Phase::chunked, Phase::kernels, Phase::commands};
  return phases;
}

std::string braid::phaseNames() {
  return llvm::join(llvm::map_range(allPhases(), [](Phase phase) { return phaseName(phase).str(); }), ", ");
}

namespace {
struct Span {
  Phase first, last;
};
} // namespace

/// Where an op may stand, or nothing for an op of a foreign dialect.
static std::optional<Span> spanOf(Operation *op) {
  if (isa<ModuleOp>(op))
    return Span{Phase::model, Phase::commands};
  if (isa<cmd::ProgramOp>(op) || isa<cmd::ProgramOp>(op->getParentOp()))
    return Span{Phase::commands, Phase::commands};
  if (auto func = dyn_cast<func::FuncOp>(op))
    return func->hasAttr(tile::kKernelAttr) ? Span{Phase::kernels, Phase::commands}
                                            : Span{Phase::model, Phase::kernels};
  if (isa<func::CallOp, func::ReturnOp, arith::ConstantOp, RepeatOp, YieldOp, ReshapeOp, SliceOp, ConcatOp>(op))
    return Span{Phase::model, Phase::kernels};
  if (isa<tile::LaunchOp, tile::GemmOp, tile::GroupedGemmOp>(op))
    return Span{Phase::kernels, Phase::kernels};
  if (isa<CollectiveOpInterface>(op))
    return Span{Phase::sharded, Phase::kernels};
  if (isa<InsertOp>(op))
    return Span{Phase::scheduled, Phase::chunked};
  if (isa<CommStartOp, CommAwaitOp>(op))
    return Span{Phase::scheduled, Phase::kernels};
  if (!isa_and_nonnull<BraidDialect>(op->getDialect()))
    return std::nullopt;
  StringRef name = op->getName().stripDialect();
  if (isa<LsmScanOp, LsmScanGradOp>(op))
    return Span{isa<LsmScanOp>(op) ? Phase::model : Phase::train, Phase::scheduled};
  if (isa<ShardOp, LocalIdsOp>(op))
    return Span{Phase::sharded, Phase::chunked};
  if (isa<LsmSegmentOp, LsmSegmentGradOp>(op))
    return Span{Phase::sharded, Phase::scheduled};
  if (isa<LsmFoldOp, LsmFoldGradOp, LsmComposeOp>(op))
    return Span{Phase::sharded, Phase::chunked};
  if (name.starts_with("lsm.chunk_") || isa<LsmSegmentScanOp>(op) || name.starts_with("lsm.state_scan"))
    return Span{Phase::chunked, Phase::chunked};
  if (isa<LsmInnerStatesOp, LsmInnerOutputOp, LsmInnerGradOp>(op))
    return Span{Phase::chunked, Phase::chunked};
  if (isa<LsmInnerStepGradOp>(op))
    return Span{Phase::train, Phase::scheduled};
  if (isa<MoePermuteOp, MoePlanReceivedOp>(op))
    return Span{Phase::sharded, Phase::chunked};
  if (name.contains("_grad") || isa<AdamwOp, ClipScaleOp, SumSquaresOp>(op))
    return Span{Phase::train, Phase::chunked};
  return Span{Phase::model, Phase::chunked};
}

namespace {
class VerifyPhase : public braid::impl::VerifyPhasePassBase<VerifyPhase> {
public:
  using VerifyPhasePassBase::VerifyPhasePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::optional<Phase> phase = parsePhase(phaseText);
    if (!phase) {
      module.emitError("braid-verify-phase: no phase '") << phaseText << "'; there are " << phaseNames();
      return signalPassFailure();
    }
    bool ok = *phase == Phase::commands || succeeded(checkCalls(module));
    module->walk<WalkOrder::PreOrder>([&](Operation *op) {
      bool here = succeeded(checkOp(op, *phase));
      ok &= here;
      auto func = dyn_cast<func::FuncOp>(op);
      // Kernels have verifiers of their own, and so has a program; one error is enough for a function and its body.
      bool inside = here && !isa<cmd::ProgramOp>(op) && !(func && func->hasAttr(tile::kKernelAttr));
      return inside ? WalkResult::advance() : WalkResult::skip();
    });
    if (*phase == Phase::commands && llvm::range_size(module.getOps<cmd::ProgramOp>()) != 1) {
      module.emitError("phase commands needs one cmd.program, there are ")
          << llvm::range_size(module.getOps<cmd::ProgramOp>());
      ok = false;
    }
    if (!ok)
      return signalPassFailure();
    module->setAttr(attrs::phase, StringAttr::get(module.getContext(), phaseName(*phase)));
  }

private:
  static LogicalResult checkOp(Operation *op, Phase phase) {
    std::optional<Span> span = spanOf(op);
    if (!span)
      return op->emitOpError("belongs to no phase: an entry or layer function holds model ops, not '")
             << op->getName().getDialectNamespace() << "' ops";
    if (op->hasAttr("braid.recompute") && phase >= Phase::train)
      return op->emitOpError("still has braid.recompute in phase ")
             << phaseName(phase) << "; it must be dissolved by phase train";
    if (op->hasAttr(kSequenceAttr) && phase >= Phase::scheduled)
      return op->emitOpError("still has ")
             << kSequenceAttr << " in phase " << phaseName(phase) << "; it must be dissolved by phase scheduled";
    if (auto func = dyn_cast<func::FuncOp>(op)) {
      if (func->hasAttr(attrs::schedule) && phase >= Phase::scheduled)
        return func.emitOpError("still has ")
               << attrs::schedule << " in phase " << phaseName(phase) << "; it must be dissolved by phase scheduled";
      if (func->hasAttr(kLayerAttr) && phase >= Phase::scheduled)
        return func.emitOpError("still has ")
               << kLayerAttr << " in phase " << phaseName(phase) << "; it must be dissolved by phase scheduled";
      if (func->hasAttr(attrs::overlapDegree) && phase >= Phase::scheduled)
        return func.emitOpError("still has ") << attrs::overlapDegree << " in phase " << phaseName(phase)
                                              << "; it must be dissolved by phase scheduled";
      if (func->hasAttr("braid.train") && phase >= Phase::train)
        return func.emitOpError("still has braid.train in phase ")
               << phaseName(phase) << "; it must be dissolved by phase train";
    }
    if (auto constant = dyn_cast<arith::ConstantOp>(op); constant && !isa<RankedTensorType>(constant.getType()))
      return op->emitOpError("is a ") << constant.getType() << "; values of model functions are tensors";
    std::string what = isa<func::FuncOp>(op) ? "'@" + cast<func::FuncOp>(op).getSymName().str() + "' " : "";
    if (phase > span->last)
      return op->emitOpError() << what << "is left in phase " << phaseName(phase)
                               << "; the last phase that may hold it is " << phaseName(span->last);
    if (phase < span->first)
      return op->emitOpError() << what << "is in phase " << phaseName(phase)
                               << " too early; the first phase that may hold it is " << phaseName(span->first);
    if (auto collective = dyn_cast<CollectiveOpInterface>(op))
      return checkRanks(op, collective.getKind(), collective.getAxisAttr().getValue());
    if (auto start = dyn_cast<CommStartOp>(op))
      return checkRanks(op, start.getKind(), start.getAxis());
    return success();
  }

  /// A collective fits the mesh that the module was sharded for.
  static LogicalResult checkRanks(Operation *op, CollectiveKind kind, StringRef axis) {
    auto module = op->getParentOfType<ModuleOp>();
    if (!module->hasAttr(attrs::mesh))
      return success();
    Mesh mesh = Mesh::of(module);
    if (!mesh.has(axis))
      return op->emitOpError("axis \"") << axis << "\" is no axis or product of axes of the mesh";
    auto elements = [](Type type) { return cast<RankedTensorType>(type).getNumElements(); };
    auto future = dyn_cast<FutureType>(op->getResult(0).getType());
    if (op->getNumOperands() == 0 || (future && future.getResults().empty())) // between two stages, one way
      return success();
    int64_t sent = elements(op->getOperand(0).getType()),
            received = elements(future ? future.getResults()[0] : op->getResult(0).getType()), ranks = mesh.size(axis);
    bool fits = true;
    switch (kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::shift: break;
    case CollectiveKind::all_gather: fits = received == sent * ranks; break;
    case CollectiveKind::reduce_scatter: fits = sent == received * ranks; break;
    case CollectiveKind::all_to_all: {
      auto attribute = op->getAttrOfType<IntegerAttr>("peers");
      int64_t peers = attribute ? attribute.getInt() : 1;
      if (peers != ranks)
        return op->emitOpError("has ") << peers << " peers but axis \"" << axis << "\" has " << ranks << " ranks";
      break;
    }
    }
    if (!fits)
      return op->emitOpError() << stringifyCollectiveKind(kind) << " of " << sent << " elements to " << received
                               << " does not fit axis \"" << axis << "\" of " << ranks << " ranks";
    return success();
  }
};
} // namespace
