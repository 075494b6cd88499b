// Gradients of weights that the stage before does not wait for, in functions and repeats of their own (ZB-H1).
// RUN: braid-opt %s --braid-split-backward | FileCheck %s

!x = tensor<2x8x16xbf16>
!w = tensor<16x16xbf16>
!g = tensor<16x16xf32>
!xs = tensor<3x2x8x16xbf16>
!ws = tensor<3x16x16xbf16>
!gs = tensor<3x16x16xf32>
module attributes {braid.mesh = {dense = [{axis = "pp", size = 2 : i64}], expert = [{axis = "pp", size = 2 : i64}]}} {

// The cotangent %d is a result for its half; the activation is made again where it is read, for it needs no more than the product does. A gradient that is
// made on the way stays. The second half takes what it reads, no weights.
// CHECK: func.func private @layer_grad_data(%[[DY:.*]]: tensor<2x8x16xbf16>, %[[X:.*]]: tensor<2x8x16xbf16>, %[[W:.*]]: tensor<16x16xbf16>, %[[N:.*]]: tensor<16xbf16>)
// CHECK-SAME: attributes {braid.direction = "backward"}
// CHECK-NEXT: %[[D:.*]]:2 = braid.rows_grad "braid.rms_norm"
// CHECK-NEXT: %[[DX:.*]] = braid.linear_grad_data cotangents(%[[D]]#0) weights(%[[W]])
// CHECK-NEXT: return %[[DX]], %[[D]]#1, %[[D]]#0
// CHECK: func.func private @layer_grad_weight(%[[X:.*]]: tensor<2x8x16xbf16>, %[[D:.*]]: tensor<2x8x16xbf16>) -> tensor<16x16xf32>
// CHECK-SAME: attributes {braid.direction = "backward"}
// CHECK-NEXT: %[[A:.*]] = braid.activation %[[X]]
// CHECK-NEXT: %[[DW:.*]] = braid.linear_grad_weight %[[A]] cotangents(%[[D]])
// CHECK-NEXT: return %[[DW]]
// CHECK-NOT: @layer_grad(
func.func private @layer_grad(%dy: !x, %x: !x, %w: !w, %n: tensor<16xbf16>) -> (!x, !g, tensor<16xbf16>) attributes {braid.direction = "backward"} {
  %a = braid.activation %x {kind = "silu"} : (!x) -> !x
  %d:2 = braid.rows_grad "braid.rms_norm"(%x, %n) cotangents(%dy) {op_attributes = {eps = 1.0e-6 : f64, groups = 1 : i64}, wanted = array<i64: 0, 1>} : (!x, tensor<16xbf16>, !x) -> (!x, tensor<16xbf16>)
  %dw = braid.linear_grad_weight %a cotangents(%d#0) : (!x, !x) -> !g
  %dx = braid.linear_grad_data cotangents(%d#0) weights(%w) : (!x, !w) -> !x
  return %dx, %dw, %d#1 : !x, !g, tensor<16xbf16>
}

// A gradient that a carried value waits for, and one without a weight: nothing can wait.
// CHECK: func.func private @whole_grad(
// CHECK-NOT: @whole_grad_
func.func private @whole_grad(%dy: !x, %x: !x, %w: !g) -> (!x, !g) {
  %dw = braid.linear_grad_weight %x cotangents(%dy) : (!x, !x) -> !g
  %sum = braid.add %w, %dw : (!g, !g) -> !g
  return %dy, %sum : !x, !g
}

// The first repeat hands each layer's cotangent on, carried or made; the second carries nothing, and its sum waits with it.
// CHECK-LABEL: func.func @accumulate_step.stage1(
// CHECK: %[[B:.*]]:5 = braid.repeat %arg0, %arg4, %arg1, %arg2, %arg3 {carried = 2 : i64, count = 3 : i64, reverse}
// CHECK-NEXT: ^bb0(%[[DY:.*]]: tensor<2x8x16xbf16>, %{{.*}}: tensor<16x16xf32>, %[[X:.*]]: tensor<2x8x16xbf16>, %[[W:.*]]: tensor<16x16xbf16>, %[[N:.*]]: tensor<16xbf16>):
// CHECK-NEXT: %[[D:.*]]:3 = func.call @layer_grad_data(%[[DY]], %[[X]], %[[W]], %[[N]])
// CHECK-NEXT: %[[H:.*]]:2 = func.call @whole_grad
// CHECK-NEXT: braid.yield %[[H]]#0, %[[H]]#1, %[[D]]#1, %[[D]]#2, %[[DY]] :
// CHECK: %[[G:.*]]:2 = braid.repeat %arg1, %[[B]]#3, %[[B]]#4 {carried = 0 : i64, count = 3 : i64, reverse}
// CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<2x8x16xbf16>, %[[D:.*]]: tensor<2x8x16xbf16>, %[[DY:.*]]: tensor<2x8x16xbf16>):
// CHECK-DAG: %[[DW:.*]] = func.call @layer_grad_weight(%[[X]], %[[D]])
// CHECK-DAG: %[[DV:.*]] = braid.linear_grad_weight %[[X]] cotangents(%[[DY]])
// CHECK: braid.yield %[[DW]], %[[DV]] :
// CHECK: %[[S:.*]] = braid.add %arg5, %[[G]]#0 {braid.in_place}
// CHECK-NEXT: return %[[B]]#0, %[[B]]#1, %[[S]], %[[G]]#1, %[[B]]#2
func.func @accumulate_step.stage1(%dy: !x {braid.name = "stage.x.cotangent", braid.role = "input"}, %xs: !xs, %ws: !ws, %ns: tensor<3x16xbf16>, %c: !g, %sum: !gs)
    -> (!x {braid.name = "stage.x.cotangent", braid.role = "stage_cotangent"}, !g {braid.role = "output", braid.name = "c"}, !gs {braid.role = "output", braid.name = "g"}, !gs {braid.role = "output", braid.name = "h"}, tensor<3x16xbf16> {braid.role = "output", braid.name = "n"})
    attributes {braid.entry, braid.stage = 1 : i64, braid.micro_batches = 2 : i64, braid.stage_order = "ZB-H1"} {
  %r:5 = braid.repeat %dy, %c, %xs, %ws, %ns {carried = 2 : i64, count = 3 : i64, reverse} : (!x, !g, !xs, !ws, tensor<3x16xbf16>) -> (!x, !g, !gs, !gs, tensor<3x16xbf16>) {
  ^bb0(%dy_i: !x, %c_i: !g, %x_i: !x, %w_i: !w, %n_i: tensor<16xbf16>):
    %d:3 = func.call @layer_grad(%dy_i, %x_i, %w_i, %n_i) : (!x, !x, !w, tensor<16xbf16>) -> (!x, !g, tensor<16xbf16>)
    %e = braid.linear_grad_weight %x_i cotangents(%dy_i) : (!x, !x) -> !g
    %h:2 = func.call @whole_grad(%d#0, %x_i, %c_i) : (!x, !x, !g) -> (!x, !g)
    braid.yield %h#0, %h#1, %d#1, %e, %d#2 : (!x, !g, !g, !g, tensor<16xbf16>) -> ()
  }
  %s = braid.add %sum, %r#2 {braid.in_place} : (!gs, !gs) -> !gs
  return %r#0, %r#1, %s, %r#3, %r#4 : !x, !g, !gs, !gs, tensor<3x16xbf16>
}

// The first stage sends no cotangent, another order keeps a backward whole.
// CHECK-LABEL: func.func @accumulate_step.stage0(
// CHECK: call @kept_grad(
// CHECK-LABEL: func.func @other.stage1(
// CHECK: call @kept_grad(
func.func private @kept_grad(%dy: !x, %x: !x) -> (!x, !g) {
  %dw = braid.linear_grad_weight %x cotangents(%dy) : (!x, !x) -> !g
  return %dy, %dw : !x, !g
}
func.func @accumulate_step.stage0(%dy: !x, %x: !x) -> (!x {braid.role = "output", braid.name = "x"}, !g {braid.role = "output", braid.name = "g"})
    attributes {braid.entry, braid.stage = 0 : i64, braid.micro_batches = 2 : i64, braid.stage_order = "ZB-H1"} {
  %d:2 = call @kept_grad(%dy, %x) : (!x, !x) -> (!x, !g)
  return %d#0, %d#1 : !x, !g
}
func.func @other.stage1(%dy: !x, %x: !x) -> (!x {braid.role = "stage_cotangent", braid.name = "stage.x.cotangent"}, !g {braid.role = "output", braid.name = "g"})
    attributes {braid.entry, braid.stage = 1 : i64, braid.micro_batches = 2 : i64} {
  %d:2 = call @kept_grad(%dy, %x) : (!x, !x) -> (!x, !g)
  return %d#0, %d#1 : !x, !g
}
}
