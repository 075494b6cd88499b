// RUN: braid-opt %s --braid-pipeline-stages | FileCheck %s
// RUN: braid-opt %s --braid-pipeline-stages | FileCheck %s --check-prefix=UPDATE
// RUN: braid-opt %s --braid-pipeline-stages --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s --check-prefix=PARTS
// RUN: braid-opt %s --braid-pipeline-stages | FileCheck %s --check-prefix=EVAL

// The middle one of three stages, three micro-batches: it goes forward (silu) at ticks 1, 3, 5 and back (l2_norm stands for it) at 4, 6, 8. What it
// sends forward travels with what comes back, where both are there.
!x = tensor<1x4x8xf32>
!n = tensor<1xf32>
module attributes {braid.mesh = {dense = [{axis = "pp", size = 3 : i64}, {axis = "dp", size = 2 : i64}],
                                 expert = [{axis = "pp", size = 3 : i64}, {axis = "edp", size = 2 : i64}]}} {
// Whose an op is stands beside its location.
// PARTS-LABEL: func.func @accumulate_step.stage1(
// PARTS: braid.activation {{.*}} loc(fused<0 : i32>[
// PARTS: braid.activation {{.*}} loc(fused<1 : i32>[
// PARTS: braid.l2_norm {{.*}} loc(fused<0 : i32>[
// PARTS: braid.activation {{.*}} loc(fused<2 : i32>[
// CHECK-LABEL: func.func @accumulate_step.stage1(
// CHECK-SAME: %[[TOKENS:[^:]*]]: tensor<3x4xi32>
// CHECK-SAME: %[[SCALE:[^:]*]]: tensor<3xf32>
// CHECK-SAME: %[[G:[^:]*]]: tensor<8xf32>
// CHECK-SAME: -> (tensor<1xf32> {braid.name = "loss", braid.role = "output"}, tensor<8xf32> {braid.alias = 2 : i64
// CHECK-NOT: braid.micro_batches
// CHECK-DAG: braid.slice %[[TOKENS]] {{.*}}begin = 2
// CHECK-DAG: %[[S0:.*]] = braid.slice %[[SCALE]] {begin = 0
// CHECK: %[[F0:.*]] = braid.comm.start shift  {axis = "pp[0,1]", label = "stage.x"} : () -> !braid.future<tensor<1x4x8xf32>>
// CHECK-NEXT: %[[X0:.*]] = braid.comm.await %[[F0]]
// CHECK-NEXT: %[[Y0:.*]] = braid.activation %[[X0]] {{.*}}silu
// CHECK-NEXT: %[[SENT0:.*]] = braid.comm.start shift %[[Y0]] {axis = "pp[1,2]", label = "stage.x"} : (tensor<1x4x8xf32>) -> !braid.future
// Sent while the next comes; what nobody waits for is awaited behind the next tick.
// CHECK-NEXT: braid.comm.await %[[SENT0]]
// CHECK-NEXT: %[[F1:.*]] = braid.comm.start shift  {axis = "pp[0,1]"
// CHECK-NEXT: %[[X1:.*]] = braid.comm.await %[[F1]]
// CHECK-NEXT: %[[Y1:.*]] = braid.activation %[[X1]] {{.*}}silu
// CHECK-NEXT: %[[SWAP0:.*]] = braid.comm.start shift %[[Y1]] {axis = "pp[1,2]", cyclic
// CHECK-NEXT: %[[D0:.*]] = braid.comm.await %[[SWAP0]]
// CHECK-NEXT: %[[BACK0:.*]] = braid.l2_norm %[[D0]]
// CHECK-NEXT: %[[G0:.*]] = braid.add %[[G]], %{{.*}} {braid.in_place}
// CHECK-NEXT: %[[PART0:.*]] = braid.mul %{{.*}}, %[[S0]]
// CHECK-NEXT: %[[SWAP1:.*]] = braid.comm.start shift %[[BACK0]] {axis = "pp[0,1]", cyclic
// CHECK-NEXT: %[[X2:.*]] = braid.comm.await %[[SWAP1]]
// CHECK-NEXT: %[[Y2:.*]] = braid.activation %[[X2]] {{.*}}silu
// CHECK-NEXT: %[[SWAP2:.*]] = braid.comm.start shift %[[Y2]] {axis = "pp[1,2]", cyclic
// CHECK-NEXT: %[[D1:.*]] = braid.comm.await %[[SWAP2]]
// CHECK-NEXT: %[[BACK1:.*]] = braid.l2_norm %[[D1]]
// CHECK-NEXT: %[[G1:.*]] = braid.add %[[G0]], %{{.*}} {braid.in_place}
// CHECK-NEXT: %[[PART1:.*]] = braid.mul
// CHECK-NEXT: %[[SUM1:.*]] = braid.add %[[PART0]], %[[PART1]] : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
// CHECK: %[[SENT1:.*]] = braid.comm.start shift %[[BACK1]] {axis = "pp[0,1]", label = "stage.x", reverse} : (tensor<1x4x8xf32>) -> !braid.future
// CHECK-NEXT: braid.comm.await %[[SENT1]]
// CHECK-NEXT: %[[LAST:.*]] = braid.comm.start shift  {axis = "pp[1,2]", label = "stage.x", reverse} : () -> !braid.future<tensor<1x4x8xf32>>
// CHECK-NEXT: %[[D2:.*]] = braid.comm.await %[[LAST]]
// CHECK-NEXT: braid.l2_norm %[[D2]]
// CHECK-NEXT: %[[G2:.*]] = braid.add %[[G1]], %{{.*}} {braid.in_place}
// Losses are added up one by one, however many there are; those of ranks along dp are summed once for all micro-batches, then over stages.
// CHECK-NEXT: %[[PART2:.*]] = braid.mul
// CHECK-NEXT: %[[SUM:.*]] = braid.add %[[SUM1]], %[[PART2]]
// CHECK: %[[DP:.*]] = braid.comm.start all_reduce %[[SUM]] {axis = "dp"}
// CHECK-NEXT: %[[DPS:.*]] = braid.comm.await %[[DP]]
// CHECK-NEXT: %[[PP:.*]] = braid.comm.start all_reduce %[[DPS]] {axis = "pp"}
// CHECK-NEXT: %[[LOSS:.*]] = braid.comm.await %[[PP]]
// CHECK-NEXT: return %[[LOSS]], %[[G2]]
// CHECK-NOT: braid.comm
// CHECK-LABEL: func.func @eval_step.stage0(
func.func @accumulate_step.stage1(
    %tokens: tensor<1x4xi32> {braid.dims = ["batch", "sequence"], braid.name = "tokens", braid.role = "input"},
    %x: !x {braid.name = "stage.x", braid.role = "stage_input"},
    %scale: !n {braid.name = "aux_scale", braid.role = "input"},
    %cotangent: !x {braid.name = "stage.x.cotangent", braid.role = "stage_cotangent"},
    %g: tensor<8xf32> {braid.name = "gradient.w", braid.role = "gradient", braid.of = "w"})
    -> (!x {braid.name = "stage.x.cotangent", braid.role = "stage_cotangent"}, !n {braid.name = "loss", braid.role = "output"},
        !x {braid.name = "stage.x", braid.role = "stage_output"},
        tensor<8xf32> {braid.name = "gradient.w", braid.role = "gradient", braid.of = "w", braid.alias = 4 : i64})
    attributes {braid.entry, braid.stage = 1 : i64, braid.micro_batches = 3 : i64} {
  %y = braid.activation %x {kind = "silu"} : (!x) -> !x
  %back = braid.l2_norm %cotangent {eps = 1.0e-6 : f64} : (!x) -> !x
  %sum = braid.add %g, %g {braid.in_place} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %part = braid.mul %scale, %scale : (!n, !n) -> !n
  %f = braid.comm.start all_reduce %part {axis = "dp"} : (!n) -> !braid.future<!n>
  %loss = braid.comm.await %f : (!braid.future<!n>) -> !n
  return %back, %loss, %y, %sum : !x, !n, !x, tensor<8xf32>
}

// Without a backward a stage hands on what it has, forward only; the first of the stages gets nothing.
// EVAL-LABEL: func.func @eval_step.stage0(%{{.*}}: tensor<2x4xi32>
// EVAL: %[[Y0:.*]] = braid.cast
// EVAL: braid.comm.start shift %[[Y0]] {axis = "pp[0,1]", label = "stage.x"} : (tensor<1x4xf32>) -> !braid.future
// EVAL: braid.comm.await
// EVAL: %[[Y1:.*]] = braid.cast
// EVAL: braid.comm.start shift %[[Y1]] {axis = "pp[0,1]", label = "stage.x"} : (tensor<1x4xf32>) -> !braid.future
// EVAL: braid.comm.await
// EVAL-NEXT: return
func.func @eval_step.stage0(%tokens: tensor<1x4xi32> {braid.dims = ["batch", "sequence"], braid.name = "tokens", braid.role = "input"})
    -> (tensor<1x4xf32> {braid.name = "stage.x", braid.role = "stage_output"})
    attributes {braid.entry, braid.stage = 0 : i64, braid.micro_batches = 2 : i64} {
  %x = braid.cast %tokens : (tensor<1x4xi32>) -> tensor<1x4xf32>
  return %x : tensor<1x4xf32>
}

// A table that the first and the last stage have: one gradient, added up in the order of stages on both; the norm counts it on the first.
// UPDATE-LABEL: func.func @update_step.stage0(
// UPDATE-SAME: %[[W:[^:]*]]: tensor<8xf32>{{.*}}, %[[G:[^:]*]]: tensor<8xf32> {braid.name = "gradient.w"
// UPDATE: %[[F:.*]] = braid.comm.start shift %[[G]] {axis = "pp[0,2]", cyclic
// UPDATE-NEXT: %[[OTHER:.*]] = braid.comm.await %[[F]]
// UPDATE-NEXT: %[[ALL:.*]] = braid.add %[[G]], %[[OTHER]]
// UPDATE: braid.sum_squares %[[ALL]] :
// UPDATE: braid.comm.start all_reduce {{.*}}axis = "pp"
// UPDATE: braid.adamw %[[W]], %[[ALL]]
// UPDATE-LABEL: func.func @update_step.stage2(
// UPDATE-SAME: %[[W:[^:]*]]: tensor<8xf32>{{.*}}, %[[G:[^:]*]]: tensor<8xf32> {braid.name = "gradient.w"
// UPDATE: %[[F:.*]] = braid.comm.start shift %[[G]] {axis = "pp[0,2]", cyclic
// UPDATE-NEXT: %[[OTHER:.*]] = braid.comm.await %[[F]]
// UPDATE-NEXT: %[[ALL:.*]] = braid.add %[[OTHER]], %[[G]]
// UPDATE-NOT: braid.sum_squares
// UPDATE: braid.comm.start all_reduce %{{.*}} {axis = "pp"
// UPDATE: braid.adamw %[[W]], %[[ALL]]
func.func @update_step.stage0(%w: tensor<8xf32> {braid.name = "w", braid.role = "parameter"}, %g: tensor<8xf32> {braid.name = "gradient.w", braid.role = "gradient", braid.of = "w"},
    %m: tensor<8xf32> {braid.name = "w.first", braid.role = "moment", braid.of = "w", braid.slot = "first"}, %v: tensor<8xf32> {braid.name = "w.second", braid.role = "moment", braid.of = "w", braid.slot = "second"},
    %rate: !n {braid.name = "learning_rate", braid.role = "input"}, %step: tensor<1xi32> {braid.name = "step", braid.role = "input"})
    -> (tensor<8xf32> {braid.name = "w", braid.role = "parameter", braid.alias = 0 : i64}) attributes {braid.entry, braid.stage = 0 : i64} {
  %squares = braid.sum_squares %g : (tensor<8xf32>) -> !n
  %norm, %clip = braid.clip_scale %squares {max_norm = 1.0 : f64} : (!n) -> (!n, !n)
  %new, %first, %second = braid.adamw %w, %g, %m, %v, %rate, %step, %clip {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64}
      : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, !n, tensor<1xi32>, !n) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
  return %new : tensor<8xf32>
}
func.func @update_step.stage2(%w: tensor<8xf32> {braid.name = "w", braid.role = "parameter"}, %g: tensor<8xf32> {braid.name = "gradient.w", braid.role = "gradient", braid.of = "w"},
    %m: tensor<8xf32> {braid.name = "w.first", braid.role = "moment", braid.of = "w", braid.slot = "first"}, %v: tensor<8xf32> {braid.name = "w.second", braid.role = "moment", braid.of = "w", braid.slot = "second"},
    %rate: !n {braid.name = "learning_rate", braid.role = "input"}, %step: tensor<1xi32> {braid.name = "step", braid.role = "input"})
    -> (tensor<8xf32> {braid.name = "w", braid.role = "parameter", braid.alias = 0 : i64}) attributes {braid.entry, braid.stage = 2 : i64} {
  %squares = braid.sum_squares %g : (tensor<8xf32>) -> !n
  %norm, %clip = braid.clip_scale %squares {max_norm = 1.0 : f64} : (!n) -> (!n, !n)
  %new, %first, %second = braid.adamw %w, %g, %m, %v, %rate, %step, %clip {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64}
      : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, !n, tensor<1xi32>, !n) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
  return %new : tensor<8xf32>
}
}
