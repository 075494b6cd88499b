//===- braid-compile.cpp - MODEL.json | FILE.mlir -> P.braid -----------------------------------------------------------===//
#include "compiler/Compiler.h"
#include <CLI/CLI.hpp>
#include <iostream>

int main(int argc, char **argv) {
  CLI::App app("Compiles a model description (or MLIR) to one executable program file.");
  app.get_formatter()->column_width(36);
  std::string input, output;
  braid::CompileOptions options;
  app.add_option("input", input, "model description (*.json) or MLIR in any phase (*.mlir)")->required()->type_name("MODEL.json|FILE.mlir");
  app.add_option("-o,--output", output, "program file; with --to-phase the MLIR, - for standard output")->required()->type_name("P.braid");
  app.add_option("--cpu", options.cpu, "native, x86-64-v3 or x86-64-v4: what the kernels may use (default native)")->type_name("CPU");
  app.add_option("--batch", options.batch, "rows per training step, instead of train.batch")->check(CLI::Range(1, 1 << 20))->type_name("N");
  app.add_option("--seq-len", options.seqLen, "tokens per row, instead of train.seq_len")->check(CLI::Range(1, 1 << 24))->type_name("N");
  app.add_option("--mesh", options.mesh, "ranks by axis, e.g. dp=2,ep=2 (experts over the same ranks)")->type_name("AXIS=N,..");
  app.add_option("--pipeline", options.pipeline, "order of mixer and expert slices: none, aAaM or 1A1M (default none)")->type_name("NAME");
  app.add_option("--overlap-degree", options.overlapDegree, "token slices per layer, 1 to 16 (default 1)")->type_name("N");
  app.add_option("--chunk-size", options.chunkSize, "tokens per chunk of every scan (default: by transition class)")->type_name("N");
  app.add_option("--from-phase", options.fromPhase, "the phase FILE.mlir is in, if it does not say so itself")->type_name("PHASE");
  app.add_option("--to-phase", options.toPhase, "stop after model, train, sharded, scheduled, chunked, kernels or commands")->type_name("PHASE");
  app.add_option("--dump-phases-to", options.dumpPhasesTo, "write every phase to DIR/NN-phase.mlir")->type_name("DIR");
  app.add_flag("--explain", options.explain, "say what was chosen and why: memory, commands, kernels, times");
  CLI11_PARSE(app, argc, argv);
  return llvm::succeeded(braid::compileFile(input, output, options, llvm::errs())) ? 0 : 1;
}
