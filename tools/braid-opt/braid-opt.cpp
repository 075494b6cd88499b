//===- braid-opt.cpp - run passes on a file: braid-opt IN.mlir --braid-... ----------------------------------------===//
#include "dialects/braid/BraidDialect.h"
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/Passes.h"
#include "tools/common/Version.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

int main(int argc, char **argv) {
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) { os << braid::versionText("braid-opt") << '\n'; });
  DialectRegistry registry;
  // Ours: one line per dialect.
  registry.insert<braid::BraidDialect>();
  registry.insert<braid::cmd::CmdDialect>();
  registry.insert<braid::tile::TileDialect>();
  // Upstream, those in use only: registering all costs more than the rest of the program.
  registry.insert<affine::AffineDialect, arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                  gpu::GPUDialect, LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
                  tensor::TensorDialect, vector::VectorDialect>();
  braid::registerBraidPasses();
  registerCanonicalizerPass();
  registerCSEPass();
  return failed(MlirOptMain(argc, argv, "The braid pass driver\n", registry));
}
