// RUN: split-file %s %t
// RUN: braid-opt %t/head.mlir --braid-pipeline-stages | FileCheck %s
// RUN: not braid-opt %t/sent.mlir --braid-pipeline-stages 2>&1 | FileCheck %s --check-prefix=SENT
// RUN: not braid-opt %t/got.mlir --braid-pipeline-stages 2>&1 | FileCheck %s --check-prefix=GOT

//--- head.mlir
// Two stages that both have words of the head, two micro-batches. The last goes forward (silu) at ticks 1 and 3; behind 2 and 4 each stage makes its part
// of the logits, behind 4 and 6 their gradients, and what all have of the cotangent of the head's input is added up before the last stage goes back at 6
// and 8, not at 2 and 4.
!x = tensor<1x4x8xf32>
!w = tensor<8x16xf32>
!l = tensor<1x4x1xf32>
!t = tensor<1x4xf32>
!i = tensor<1x4xi32>
module attributes {braid.mesh = {dense = [{axis = "pp", size = 2 : i64}], expert = [{axis = "pp", size = 2 : i64}]}} {
// CHECK-LABEL: func.func @accumulate_step.stage0(
// CHECK-SAME: %[[LABELS:[^:]*]]: tensor<2x4xi32>
// CHECK: silu
// CHECK: %[[SENT0:.*]] = braid.comm.start shift {{.*}}axis = "pp[0,1]", label = "stage.x"
// CHECK: braid.comm.await %[[SENT0]]
// Behind tick 1 the head's input begins to come, and is awaited behind the next, in which this stage goes forward.
// CHECK-NEXT: %[[H0:.*]] = braid.comm.start shift  {axis = "pp[0,1]", label = "stage.head_input", reverse} : () -> !braid.future<tensor<1x4x8xf32>>
// CHECK: silu
// CHECK: label = "stage.x"
// CHECK-NEXT: %[[X0:.*]] = braid.comm.await %[[H0]]
// CHECK: %[[LSE0:.*]], %{{.*}} = braid.linear_loss_part %[[X0]]
// CHECK: %[[ALL0:.*]] = braid.comm.start all_gather
// CHECK: %[[H1:.*]] = braid.comm.start shift  {axis = "pp[0,1]", label = "stage.head_input"
// Behind tick 4 the gradients of the first, which the last stage waits for, then the logits of the second.
// CHECK: %[[X1:.*]] = braid.comm.await %[[H1]]
// CHECK-NEXT: %[[GOT0:.*]] = braid.comm.await %[[ALL0]]
// CHECK: %[[DX0:.*]], %[[DW0:.*]] = braid.linear_loss_part_grad %[[X0]]
// CHECK-NEXT: %[[SUM0:.*]] = braid.comm.start all_reduce %[[DX0]]
// CHECK-NEXT: braid.linear_loss_part %[[X1]]
// CHECK: braid.comm.await %[[SUM0]]
// The cotangent of x comes behind it.
// CHECK: braid.comm.start shift  {axis = "pp[0,1]", label = "stage.x", reverse}
// CHECK: %{{.*}}, %[[DW1:.*]] = braid.linear_loss_part_grad %[[X1]]
// CHECK: %[[SUM1:.*]] = braid.comm.start all_reduce
// CHECK: l2_norm
// CHECK: braid.comm.await %[[SUM1]]
func.func @accumulate_step.stage0(
    %labels: !i {braid.name = "labels", braid.role = "input", braid.dims = ["batch", "sequence"]},
    %x: !x {braid.name = "rows", braid.role = "input", braid.dims = ["batch", "sequence", ""]},
    %w: !w {braid.name = "head.weight", braid.role = "parameter", braid.dims = ["embed", "stage_vocab"], braid.shards = [[1, "pp"]]},
    %h: !x {braid.name = "stage.head_input", braid.role = "stage_broadcast"},
    %scale: tensor<1xf32> {braid.name = "loss_scale", braid.role = "input"},
    %cotangent: !x {braid.name = "stage.x.cotangent", braid.role = "stage_cotangent"},
    %at: tensor<1xi32> {braid.name = "coordinate.pp", braid.role = "input"},
    %g: !x {braid.name = "gradient.w", braid.role = "gradient", braid.of = "w"})
    -> (!x {braid.name = "stage.x", braid.role = "stage_output"},
        !w {braid.name = "head", braid.role = "output"},
        !x {braid.name = "gradient.w", braid.role = "gradient", braid.of = "w", braid.alias = 7 : i64})
    attributes {braid.entry, braid.stage = 0 : i64, braid.micro_batches = 2 : i64} {
  %y = braid.activation %x {kind = "silu"} : (!x) -> !x
  %lse, %target = braid.linear_loss_part %h, %w, %labels, %at : (!x, !w, !i, tensor<1xi32>) -> (!t, !t)
  %column = braid.reshape %lse : (!t) -> !l
  %gather = braid.comm.start all_gather %column {axis = "pp", dim = 2 : i64} : (!l) -> !braid.future<tensor<1x4x2xf32>>
  %parts = braid.comm.await %gather : (!braid.future<tensor<1x4x2xf32>>) -> tensor<1x4x2xf32>
  %whole = braid.log_sum_exp %parts : (tensor<1x4x2xf32>) -> !t
  %dx, %dw = braid.linear_loss_part_grad %h, %w, %labels, %at, %whole, %scale : (!x, !w, !i, tensor<1xi32>, !t, tensor<1xf32>) -> (!x, !w)
  %reduce = braid.comm.start all_reduce %dx {axis = "pp"} : (!x) -> !braid.future<!x>
  %sum = braid.comm.await %reduce : (!braid.future<!x>) -> !x
  %back = braid.l2_norm %cotangent {eps = 1.0e-6 : f64} : (!x) -> !x
  %added = braid.add %g, %back {braid.in_place} : (!x, !x) -> !x
  return %y, %dw, %added : !x, !w, !x
}

// CHECK-LABEL: func.func @accumulate_step.stage1(
// CHECK: %[[Y0:.*]] = braid.activation {{.*}}silu
// CHECK-NEXT: braid.comm.start shift %[[Y0]] {axis = "pp[0,1]", label = "stage.head_input", reverse}
// CHECK: braid.linear_loss_part %[[Y0]]
// CHECK: %[[Y1:.*]] = braid.activation {{.*}}silu
// CHECK: %[[DX:.*]], %{{.*}} = braid.linear_loss_part_grad %[[Y0]]
// CHECK-NEXT: %[[ALL:.*]] = braid.comm.start all_reduce %[[DX]]
// CHECK-NEXT: braid.linear_loss_part %[[Y1]]
// CHECK: %[[WHOLE:.*]] = braid.comm.await %[[ALL]]
// CHECK-NEXT: %[[BACK:.*]] = braid.l2_norm %[[WHOLE]]
// CHECK-NEXT: braid.comm.start shift %[[BACK]] {axis = "pp[0,1]", label = "stage.x", reverse}
// CHECK: braid.linear_loss_part_grad %[[Y1]]
func.func @accumulate_step.stage1(
    %labels: !i {braid.name = "labels", braid.role = "input", braid.dims = ["batch", "sequence"]},
    %x: !x {braid.name = "stage.x", braid.role = "stage_input"},
    %w: !w {braid.name = "head.weight", braid.role = "parameter", braid.dims = ["embed", "stage_vocab"], braid.shards = [[1, "pp"]]},
    %scale: tensor<1xf32> {braid.name = "loss_scale", braid.role = "input"},
    %at: tensor<1xi32> {braid.name = "coordinate.pp", braid.role = "input"})
    -> (!x {braid.name = "stage.head_input", braid.role = "stage_broadcast"},
        !w {braid.name = "head", braid.role = "output"},
        !x {braid.name = "stage.x.cotangent", braid.role = "stage_cotangent"})
    attributes {braid.entry, braid.stage = 1 : i64, braid.micro_batches = 2 : i64} {
  %y = braid.activation %x {kind = "silu"} : (!x) -> !x
  %lse, %target = braid.linear_loss_part %y, %w, %labels, %at : (!x, !w, !i, tensor<1xi32>) -> (!t, !t)
  %column = braid.reshape %lse : (!t) -> !l
  %gather = braid.comm.start all_gather %column {axis = "pp", dim = 2 : i64} : (!l) -> !braid.future<tensor<1x4x2xf32>>
  %parts = braid.comm.await %gather : (!braid.future<tensor<1x4x2xf32>>) -> tensor<1x4x2xf32>
  %whole = braid.log_sum_exp %parts : (tensor<1x4x2xf32>) -> !t
  %dx, %dw = braid.linear_loss_part_grad %y, %w, %labels, %at, %whole, %scale : (!x, !w, !i, tensor<1xi32>, !t, tensor<1xf32>) -> (!x, !w)
  %reduce = braid.comm.start all_reduce %dx {axis = "pp"} : (!x) -> !braid.future<!x>
  %sum = braid.comm.await %reduce : (!braid.future<!x>) -> !x
  %back = braid.l2_norm %sum {eps = 1.0e-6 : f64} : (!x) -> !x
  return %y, %dw, %back : !x, !w, !x
}
}

//--- sent.mlir
// SENT: is stage 0 of 2 (axis pp) and sends what the last one sends to all others
module attributes {braid.mesh = {dense = [{axis = "pp", size = 2 : i64}], expert = [{axis = "pp", size = 2 : i64}]}} {
func.func @step.stage0(%x: tensor<1x8xf32>) -> (tensor<1x8xf32> {braid.name = "stage.head_input", braid.role = "stage_broadcast"})
    attributes {braid.entry, braid.stage = 0 : i64, braid.micro_batches = 2 : i64} {
  return %x : tensor<1x8xf32>
}
}

//--- got.mlir
// GOT: is stage 1 of 2 (axis pp) and gets what the last one sends to all others
module attributes {braid.mesh = {dense = [{axis = "pp", size = 2 : i64}], expert = [{axis = "pp", size = 2 : i64}]}} {
func.func @step.stage1(%x: tensor<1x8xf32> {braid.name = "stage.head_input", braid.role = "stage_broadcast"})
    attributes {braid.entry, braid.stage = 1 : i64, braid.micro_batches = 2 : i64} {
  return
}
}
