// What a phase must not hold any more.
// RUN: split-file %s %t
// RUN: not braid-opt %t/schedule.mlir --braid-verify-phase=phase=scheduled 2>&1 | FileCheck %s --check-prefix=SCHEDULE
// RUN: not braid-opt %t/degree.mlir --braid-verify-phase=phase=scheduled 2>&1 | FileCheck %s --check-prefix=DEGREE
// RUN: not braid-opt %t/train.mlir --braid-verify-phase=phase=train 2>&1 | FileCheck %s --check-prefix=TRAIN
// RUN: not braid-opt %t/scan.mlir --braid-verify-phase=phase=chunked 2>&1 | FileCheck %s --check-prefix=SCAN
// RUN: not braid-opt %t/entry.mlir --braid-verify-phase=phase=commands 2>&1 | FileCheck %s --check-prefix=ENTRY
// RUN: not braid-opt %t/empty.mlir --braid-verify-phase=phase=commands 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not braid-opt %t/recompute.mlir --braid-verify-phase=phase=train 2>&1 | FileCheck %s --check-prefix=RECOMPUTE
// RUN: not braid-opt %t/foreign.mlir --braid-verify-phase=phase=model 2>&1 | FileCheck %s --check-prefix=FOREIGN

// SCHEDULE: error: 'func.func' op still has braid.schedule in phase scheduled; it must be dissolved by phase scheduled
//--- schedule.mlir
func.func private @f() attributes {braid.schedule = {pipeline = "1A1M"}} {
  return
}
// DEGREE: error: 'func.func' op still has braid.overlap_degree in phase scheduled; it must be dissolved by phase scheduled
//--- degree.mlir
func.func private @f() attributes {braid.overlap_degree = 2 : i64} {
  return
}
// TRAIN: error: 'func.func' op still has braid.train in phase train; it must be dissolved by phase train
//--- train.mlir
func.func @f() attributes {braid.entry, braid.train = {}} {
  return
}
// SCAN: error: 'braid.lsm.scan' op is left in phase chunked; the last phase that may hold it is scheduled
//--- scan.mlir
func.func @f(%q: tensor<1x4x1x8xf32>, %s: tensor<1x1x8x8xf32>, %d: tensor<1x4xi32>) -> tensor<1x4x1x8xf32> {
  %o, %f = braid.lsm.scan I %q, %q, %q initial_state(%s) documents(%d) {scale = 1.0} : (tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>, tensor<1x1x8x8xf32>, tensor<1x4xi32>) -> (tensor<1x4x1x8xf32>, tensor<1x1x8x8xf32>)
  return %o : tensor<1x4x1x8xf32>
}
// ENTRY: error: 'func.func' op '@f' is left in phase commands; the last phase that may hold it is kernels
//--- entry.mlir
func.func @f() attributes {braid.entry} {
  return
}
// EMPTY: error: phase commands needs one cmd.program, there are 0
//--- empty.mlir
module {
}
// RECOMPUTE: error: 'braid.activation' op still has braid.recompute in phase train; it must be dissolved by phase train
//--- recompute.mlir
func.func private @f(%x: tensor<1x4x8xf32>) -> tensor<1x4x8xf32> {
  %y = braid.activation %x {braid.recompute, kind = "silu"} : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}
// FOREIGN: error: 'math.exp' op belongs to no phase: an entry or layer function holds model ops, not 'math' ops
//--- foreign.mlir
func.func private @f(%x: f32) -> f32 {
  %y = math.exp %x : f32
  return %y : f32
}
