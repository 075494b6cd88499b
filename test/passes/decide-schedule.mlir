// RUN: braid-opt %s --braid-decide-schedule="pipeline=1A1M overlap-degree=4" --split-input-file --verify-diagnostics | FileCheck %s
// RUN: braid-opt %s --braid-decide-schedule="pipeline=aAaM overlap-degree=2" --split-input-file | FileCheck %s --check-prefix=AAAM
// RUN: braid-opt %s --braid-decide-schedule --split-input-file | FileCheck %s --check-prefix=NONE
// RUN: not braid-opt %s --braid-decide-schedule="pipeline=zigzag" --split-input-file 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not braid-opt %s --braid-decide-schedule="pipeline=1A1M overlap-degree=17" --split-input-file 2>&1 | FileCheck %s --check-prefix=DEGREE

// RUN: braid-opt %s --braid-decide-schedule="pipeline=1A1M overlap-degree=4 slicing=balanced" --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=BALANCED
// RUN: braid-opt %s --braid-decide-schedule="pipeline=1A1M overlap-degree=4 slicing=time_uniform" --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=TIME
// RUN: not braid-opt %s --braid-decide-schedule="pipeline=1A1M slicing=equal" --split-input-file 2>&1 | FileCheck %s --check-prefix=SLICING

// SLICING: error: slicing "equal" is not known; valid: uniform, time_uniform, balanced, simulated
// NAME: error: pipeline "zigzag" is not known; valid: none, moe, aAaM, 1A1M, cross-block, best
// DEGREE: error: overlap degree is 17; valid: 1 to 16
// NONE-NOT: braid.schedule

!rows = tensor<1x16x8xf32>
!counts = tensor<2x2xi32>
// A layer whose rows travel: sliced. The decision is an attribute, no op moves.
// CHECK: func.func private @experts({{.*}}attributes {braid.schedule = {direction = "forward",
// CHECK-SAME: order = ["A0.0", "D0.0", "A0.1", "D0.1", "M0.0", "C0.0", "A0.2", "D0.2", "M0.1", "C0.1", "A0.3", "D0.3", "M0.2", "C0.2", "M0.3", "C0.3"],
// CHECK-SAME: pipeline = "1A1M", token_slices = array<i64: 0, 2, 4, 6, 8>}}
// AAAM: func.func private @experts({{.*}}order = ["A0.0", "D0.0", "A0.1", "D0.1", "M0.0", "C0.0", "M0.1", "C0.1"], pipeline = "aAaM", token_slices = array<i64: 0, 4, 8>}}
func.func private @experts(%documents: tensor<1x8xi32>, %rows: !rows, %send: !counts, %receive: !counts) -> !rows {
  %0 = braid.comm.all_to_all %rows send_counts(%send) recv_counts(%receive) {axis = "ep", peers = 2 : i64} : (!rows, !counts, !counts) -> !rows
  return %0 : !rows
}
// Nothing in it costs more for later tokens: every slicing is the uniform one.
// BALANCED: func.func private @experts({{.*}}token_slices = array<i64: 0, 2, 4, 6, 8>
// A layer without exchanges is left alone: slicing would only cost.
// CHECK: func.func private @dense(%arg0: tensor<1x8xi32>) -> tensor<1x8xi32> {
func.func private @dense(%documents: tensor<1x8xi32>) -> tensor<1x8xi32> {
  return %documents : tensor<1x8xi32>
}
// The exchange of counts alone is not one of rows.
// CHECK: func.func private @counts(%arg0: tensor<1x8xi32>, %arg1: tensor<2x2xi32>) -> tensor<2x2xi32> {
func.func private @counts(%documents: tensor<1x8xi32>, %send: !counts) -> !counts {
  %0 = braid.comm.all_to_all %send {axis = "ep", peers = 2 : i64} : (!counts) -> !counts
  return %0 : !counts
}

// -----

// A schedule without anything to overlap is said, not ignored.
// expected-warning @below {{no layer exchanges expert rows between ranks: pipeline 1A1M has nothing to overlap}}
module {
  func.func private @alone(%documents: tensor<1x8xi32>) -> tensor<1x8xi32> {
    return %documents : tensor<1x8xi32>
  }
}

// -----

// expected-error @+1 {{has 3 tokens in a row, too few for overlap degree 4 (--overlap-degree); valid: 1 to 3}}
func.func private @short(%documents: tensor<1x3xi32>, %rows: tensor<1x16x8xf32>, %send: tensor<2x2xi32>) -> tensor<1x16x8xf32> {
  %0 = braid.comm.all_to_all %rows send_counts(%send) recv_counts(%send) {axis = "ep", peers = 2 : i64} : (tensor<1x16x8xf32>, tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<1x16x8xf32>
  return %0 : tensor<1x16x8xf32>
}

// -----

// Softmax attention over all keys: later slices are shorter. A window's cost does not grow.
!x = tensor<1x1024x2x4xf32>
!lse = tensor<1x2x1024xf32>
!more = tensor<1x16x8xf32>
!two = tensor<2x2xi32>
// CHECK: func.func private @attention({{.*}}token_slices = array<i64: 0, 256, 512, 768, 1024>
// The experts' slices stay equal: a token buffer.
// BALANCED: func.func private @attention({{.*}}moe_slices = array<i64: 0, 256, 512, 768, 1024>{{.*}}token_slices = array<i64: 0, 512, 704, 896, 1024>
// TIME: func.func private @attention({{.*}}token_slices = array<i64: 0, 256, 512, 768, 1024>
func.func private @attention(%documents: tensor<1x1024xi32>, %q: !x, %rows: !more, %counts: !two) -> (!x, !more) {
  %o, %lse = braid.attn.causal %q, %q, %q, %documents {scale = 1.0 : f64} : (!x, !x, !x, tensor<1x1024xi32>) -> (!x, !lse)
  %0 = braid.comm.all_to_all %rows send_counts(%counts) recv_counts(%counts) {axis = "ep", peers = 2 : i64} : (!more, !two, !two) -> !more
  return %o, %0 : !x, !more
}
// BALANCED: func.func private @window({{.*}}token_slices = array<i64: 0, 256, 512, 768, 1024>
func.func private @window(%documents: tensor<1x1024xi32>, %q: !x, %rows: !more, %counts: !two) -> (!x, !more) {
  %o, %lse = braid.attn.causal %q, %q, %q, %documents {scale = 1.0 : f64, window = 16 : i64} : (!x, !x, !x, tensor<1x1024xi32>) -> (!x, !lse)
  %0 = braid.comm.all_to_all %rows send_counts(%counts) recv_counts(%counts) {axis = "ep", peers = 2 : i64} : (!more, !two, !two) -> !more
  return %o, %0 : !x, !more
}
