//===- CompileOptions.h - every choice a user can make, one field per flag ------------------------------------------===//
#ifndef COMPILER_COMPILEOPTIONS_H
#define COMPILER_COMPILEOPTIONS_H

#include <cstdint>
#include <string>

namespace braid {

struct CompileOptions {
  std::string cpu = "native";      ///< --cpu: native, x86-64-v3, x86-64-v4
  int64_t batch = 0, seqLen = 0;   ///< --batch, --seq-len: instead of the model's train.batch, train.seq_len; 0: the model's
  std::string mesh;                ///< --mesh: dp=2,ep=2; empty: one rank
  std::string pipeline = "none";   ///< --pipeline: none, aAaM, 1A1M
  int64_t overlapDegree = 1;       ///< --overlap-degree: token slices of a layer
  int64_t chunkSize = 0;           ///< --chunk-size: tokens per chunk of every scan; 0: chosen per class
  std::string fromPhase, toPhase;  ///< --from-phase, --to-phase: see Pipeline.h
  std::string dumpPhasesTo;        ///< --dump-phases-to: folder for NN-phase.mlir
  bool explain = false;            ///< --explain: remarks of the passes, kernels, memory, times
};

} // namespace braid

#endif // COMPILER_COMPILEOPTIONS_H
