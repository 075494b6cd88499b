// One module, right in several phases.
// RUN: braid-opt %s --braid-verify-phase=phase=model | FileCheck %s --check-prefix=MODEL
// RUN: braid-opt %s --braid-verify-phase=phase=train | FileCheck %s --check-prefix=TRAIN
// RUN: braid-opt %s --braid-verify-phase=phase=sharded | FileCheck %s --check-prefix=SHARDED
// RUN: braid-opt %s --braid-verify-phase=phase=scheduled | FileCheck %s --check-prefix=SCHEDULED
// RUN: braid-opt %s --braid-verify-phase=phase=chunked | FileCheck %s --check-prefix=CHUNKED
// RUN: not braid-opt %s --braid-verify-phase=phase=kernels 2>&1 | FileCheck %s --check-prefix=KERNELS
// RUN: not braid-opt %s --braid-verify-phase=phase=tiled 2>&1 | FileCheck %s --check-prefix=NONE

// MODEL: module attributes {braid.phase = "model"}
// TRAIN: module attributes {braid.phase = "train"}
// SHARDED: module attributes {braid.phase = "sharded"}
// SCHEDULED: module attributes {braid.phase = "scheduled"}
// CHUNKED: module attributes {braid.phase = "chunked"}
// KERNELS: error: 'braid.activation' op is left in phase kernels; the last phase that may hold it is chunked
// NONE: error: braid-verify-phase: no phase 'tiled'; there are model, train, sharded, scheduled, chunked, kernels, commands
func.func @f(%x: tensor<1x4x8xf32> {braid.name = "x"}) -> (tensor<1x4x8xf32> {braid.name = "y"}) attributes {braid.entry} {
  %y = braid.activation %x {kind = "silu"} : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}
