//===- CommandAccesses.cpp - the bytes that a command reads and writes --------------------------------------------===//
#include "passes/lower/CommandAccesses.h"

#include "dialects/tile/TileDialect.h"
#include "passes/lower/KernelSignature.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace braid;

CommandAccesses::CommandAccesses(ModuleOp module) {
  for (auto kernel : module.getOps<func::FuncOp>())
    if (kernel->hasAttr(tile::kKernelAttr))
      for (const KernelSlot &slot : KernelSignature::of(kernel).slots)
        if (slot.kind == SlotKind::pointer && isWrittenByKernel(kernel.getArgument(slot.argument)))
          written[kernel.getSymName()].insert(slot.name);
}

SmallVector<Access> CommandAccesses::of(Operation *command) const {
  SmallVector<Access> accesses;
  auto add = [&](cmd::BufferAttr buffer, bool isWritten) {
    if (buffer)
      accesses.push_back({buffer, isWritten});
  };
  llvm::TypeSwitch<Operation *>(command)
      .Case([&](cmd::LaunchOp launch) {
        auto names = written.find(launch.getKernel());
        for (NamedAttribute arg : launch.getArgs())
          if (auto buffer = dyn_cast<cmd::BufferAttr>(arg.getValue()))
            add(buffer, names != written.end() && names->second.contains(arg.getName().getValue()));
      })
      .Case([&](cmd::GemmOp gemm) {
        add(gemm.getA(), false);
        add(gemm.getB(), false);
        add(gemm.getAddendAttr(), false);
        add(gemm.getC(), true);
      })
      .Case([&](cmd::GroupedGemmOp gemm) {
        add(gemm.getA(), false);
        add(gemm.getB(), false);
        add(gemm.getOffsets(), false);
        add(gemm.getAddendAttr(), false);
        add(gemm.getC(), true);
      })
      .Case([&](cmd::CollectiveOp collective) {
        add(collective.getSend(), false);
        add(collective.getRecv(), true);
        add(collective.getSendCountsAttr(), false);
        add(collective.getRecvCountsAttr(), false);
      })
      .Case([&](cmd::CopyOp copy) {
        add(copy.getSource(), false);
        add(copy.getTarget(), true);
      })
      .Case([&](cmd::FillOp fill) { add(fill.getTarget(), true); });
  return accesses;
}
