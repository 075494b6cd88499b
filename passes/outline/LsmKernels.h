//===- LsmKernels.h - the kernel writers behind outlineLsm --------------------------------------------------------===//
// Each writes the body of one kernel for one LsmShape; parameters carry the operand names of the op.
#ifndef PASSES_OUTLINE_LSMKERNELS_H
#define PASSES_OUTLINE_LSMKERNELS_H

#include "passes/outline/LsmChunk.h"

namespace braid {

// LsmScanKernels.cpp
void writeChunkTable(KernelBuilder &k, int64_t chunkSize);
void writeStateScan(KernelBuilder &k, const LsmShape &shape);
void writeStateScanGrad(KernelBuilder &k, const LsmShape &shape);
void writeStep(KernelBuilder &k, const LsmShape &shape);
// LsmChunkKernels.cpp
void writeChunkState(KernelBuilder &k, const LsmShape &shape);
void writeChunkOutput(KernelBuilder &k, const LsmShape &shape);
void writeChunkOutputGradState(KernelBuilder &k, const LsmShape &shape);
// LsmGradKernels.cpp
void writeChunkGrad(KernelBuilder &k, const LsmShape &shape);

/// Parameters by operand name; absent ones stay empty.
struct LsmBuffers {
  LsmBuffers(KernelBuilder &k, const LsmShape &shape) : k(k), shape(shape) {}
  Var keys(llvm::StringRef name) { return k.buffer(name, shape.token, {kDynamic, kDynamic, shape.heads, shape.keys}); }
  Var values(llvm::StringRef name) {
    return k.buffer(name, shape.token, {kDynamic, kDynamic, shape.heads, shape.values});
  }
  Var logDecay(llvm::StringRef name = "log_decay") {
    if (!shape.decays())
      return {};
    if (shape.constantDecay())
      return k.buffer(name, shape.gate, {shape.heads});
    if (shape.vectorDecay())
      return k.buffer(name, shape.gate, {kDynamic, kDynamic, shape.heads, shape.keys});
    return k.buffer(name, shape.gate, {kDynamic, kDynamic, shape.heads});
  }
  Var beta(llvm::StringRef name = "beta") {
    return shape.delta() ? k.buffer(name, shape.beta, {kDynamic, kDynamic, shape.heads}) : Var();
  }
  Var chunks() { return k.buffer("chunks", k.i32(), {kDynamic, kDynamic, 4}); }
  Var states(llvm::StringRef name) {
    return k.buffer(name, shape.state, {kDynamic, kDynamic, shape.heads, shape.keys, shape.values});
  }
  Var rowState(llvm::StringRef name) {
    return k.buffer(name, shape.state, {kDynamic, shape.heads, shape.keys, shape.values});
  }
  /// P of every chunk; empty for class I.
  Var transition() {
    if (shape.classId == LsmClass::I)
      return {};
    llvm::SmallVector<int64_t> dims{kDynamic, kDynamic, shape.heads};
    if (shape.vectorDecay() || shape.delta())
      dims.push_back(shape.keys);
    if (shape.delta())
      dims.push_back(shape.keys);
    return k.buffer("p", shape.state, dims);
  }

  KernelBuilder &k;
  const LsmShape &shape;
};

} // namespace braid

#endif // PASSES_OUTLINE_LSMKERNELS_H
