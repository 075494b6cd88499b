// RUN: braid-opt %s --braid-pipeline-stages | FileCheck %s
// RUN: sed 's/"ZB-H1"/"ZB-V"/' %s | not braid-opt 2>&1 | FileCheck %s --check-prefix=NAME

// The second one of three stages, three micro-batches of ZB-H1: forward (silu) at ticks 1, 3, 5, back (l2_norm) at 4, 6, 8. It sends the cotangent on before it
// computes gradients of weights (tanh), and does so for micro-batch m behind the cotangent of m + 1; in the end for what is left. The sum is
// added to in the order of micro-batches.
!x = tensor<1x4x8xf32>
module attributes {braid.mesh = {dense = [{axis = "pp", size = 3 : i64}], expert = [{axis = "pp", size = 3 : i64}]}} {
// CHECK-LABEL: func.func @accumulate_step.stage1(
// CHECK-SAME: %[[G:[^:]*]]: tensor<1x4x8xf32>
// CHECK-NOT: braid.stage_order
// CHECK: silu
// CHECK: silu
// CHECK: %[[D0:.*]] = braid.comm.await %{{.*}} : (!braid.future<tensor<1x4x8xf32>>) -> tensor<1x4x8xf32>
// CHECK-NEXT: %[[B0:.*]] = braid.l2_norm %[[D0]]
// CHECK-NEXT: braid.comm.start shift %[[B0]] {axis = "pp[0,1]"
// CHECK-NEXT: braid.comm.await
// CHECK-NEXT: braid.activation {{.*}}silu
// CHECK: %[[B1:.*]] = braid.l2_norm
// CHECK-NEXT: %[[SENT:.*]] = braid.comm.start shift %[[B1]] {axis = "pp[0,1]"
// CHECK-NEXT: %[[W0:.*]] = braid.activation %[[B0]] {{.*}}tanh
// CHECK-NEXT: %[[G0:.*]] = braid.add %[[G]], %[[W0]] {braid.in_place}
// CHECK-NEXT: braid.comm.await %[[SENT]]
// CHECK-NEXT: braid.comm.start shift {{.*}}axis = "pp[1,2]"
// CHECK: %[[B2:.*]] = braid.l2_norm
// CHECK: braid.comm.start shift %[[B2]] {axis = "pp[0,1]"
// CHECK-NEXT: %[[W1:.*]] = braid.activation %[[B1]] {{.*}}tanh
// CHECK-NEXT: %[[G1:.*]] = braid.add %[[G0]], %[[W1]] {braid.in_place}
// CHECK: %[[W2:.*]] = braid.activation %[[B2]] {{.*}}tanh
// CHECK-NEXT: %[[G2:.*]] = braid.add %[[G1]], %[[W2]] {braid.in_place}
// CHECK-NEXT: return %[[G2]]
func.func @accumulate_step.stage1(
    %x: !x {braid.name = "stage.x", braid.role = "stage_input"},
    %cotangent: !x {braid.name = "stage.x.cotangent", braid.role = "stage_cotangent"},
    %g: !x {braid.name = "gradient.w", braid.role = "gradient", braid.of = "w"})
    -> (!x {braid.name = "stage.x.cotangent", braid.role = "stage_cotangent"}, !x {braid.name = "stage.x", braid.role = "stage_output"},
        !x {braid.name = "gradient.w", braid.role = "gradient", braid.of = "w", braid.alias = 2 : i64})
    attributes {braid.entry, braid.stage = 1 : i64, braid.micro_batches = 3 : i64, braid.stage_order = "ZB-H1"} {
  %y = braid.activation %x {kind = "silu"} : (!x) -> !x
  %back = braid.l2_norm %cotangent {eps = 1.0e-6 : f64} : (!x) -> !x
  %w = braid.activation %back {kind = "tanh"} : (!x) -> !x
  %sum = braid.add %g, %w {braid.in_place} : (!x, !x) -> !x
  return %back, %y, %sum : !x, !x, !x
}
}
// NAME: braid.stage_order{{.*}}must be 1F1B or ZB-H1
