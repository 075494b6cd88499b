// RUN: braid-opt %s --braid-weight-expert-rows | FileCheck %s
// RUN: braid-opt %s --braid-weight-expert-rows --braid-decide-recompute --braid-differentiate --canonicalize --cse | FileCheck %s --check-prefix=GRAD
// What experts put out is weighted before their last product, so the backward reads nothing of it.

!x = tensor<2x16x32xf32>
!rows = tensor<1x64x32xf32>
!wide = tensor<1x64x48xf32>
!ids = tensor<2x16x2xi32>
!k = tensor<2x16x2xf32>
!perm = tensor<64xi32>
!i = tensor<1xi32>
!w1 = tensor<4x32x48xf32>
!w2 = tensor<4x48x32xf32>

// Numbers of rows are there before the product whose end reads them.
// CHECK-LABEL: func.func private @layer(
// CHECK:         %[[PERM:.*]], %[[INVERSE:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} = braid.moe.plan
// CHECK-NEXT:    %[[NUMBERS:.*]] = braid.moe.row_weights %[[WEIGHTS:.*]] plan(%[[PERM]], %[[INVERSE]]) : (tensor<2x16x2xf32>, tensor<64xi32>, tensor<2x16x2xi32>) -> tensor<1x64xf32>
// CHECK:         %[[HIDDEN:.*]] = braid.activation
// CHECK-NEXT:    %[[WEIGHTED:.*]] = braid.mul %[[HIDDEN]], %[[NUMBERS]] : (tensor<1x64x48xf32>, tensor<1x64xf32>) -> tensor<1x64x48xf32>
// CHECK-NEXT:    %[[OUT:.*]] = braid.moe.grouped_linear %[[WEIGHTED]] offsets
// CHECK-NEXT:    braid.moe.combine %[[OUT]] plan(%[[PERM]], %[[INVERSE]], %{{.*}})

// GRAD-LABEL: func.func private @layer_train(
// GRAD:         %[[WEIGHTED:.*]] = braid.mul
// GRAD-NEXT:    %[[OUT:.*]] = braid.moe.grouped_linear %[[WEIGHTED]] offsets
// GRAD-NEXT:    braid.moe.combine %[[OUT]]
// GRAD-NOT:     %[[OUT]]{{[,: ]}}
// GRAD-LABEL: func.func private @layer_grad(
// GRAD:         %[[DROWS:.*]] = braid.moe.dispatch %{{.*}} plan(
// GRAD-NOT:     braid.moe.combine_grad
// GRAD:         %[[DWEIGHTED:.*]] = braid.moe.grouped_linear_grad_data cotangents(%[[DROWS]])
// GRAD:         braid.rows_grad "braid.mul"(%{{.*}}, %{{.*}}) cotangents(%[[DWEIGHTED]]) {{.*}} : (tensor<1x64x48xf32>, tensor<1x64xf32>, tensor<1x64x48xf32>) -> (tensor<1x64x48xf32>, tensor<1x64xf32>)
// GRAD:         braid.moe.row_weights_grad cotangents(%{{.*}}) plan(%{{.*}}) : (tensor<1x64xf32>, tensor<2x16x2xi32>) -> tensor<2x16x2xf32>
func.func private @layer(%x: !x, %documents: tensor<2x16xi32>, %r: tensor<32x4xf32>, %w1: !w1, %w2: !w2) -> !x {
  %logits = braid.linear %x, %r : (!x, tensor<32x4xf32>) -> tensor<2x16x4xf32>
  %ids = braid.moe.route %logits {top_k = 2 : i64} : (tensor<2x16x4xf32>) -> !ids
  %weights = braid.moe.route_weights %logits, %ids {normalize = true} : (tensor<2x16x4xf32>, !ids) -> !k
  %perm, %inverse, %counts, %offsets, %overflow, %exchange = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (!ids, tensor<2x16xi32>) -> (!perm, !ids, tensor<4xi32>, tensor<5xi32>, !i, !i)
  %rows = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (!x, !perm, !ids, !i) -> !rows
  %gate = braid.moe.grouped_linear %rows offsets(%offsets) weights(%w1) : (!rows, tensor<5xi32>, !w1) -> !wide
  %hidden = braid.activation %gate {kind = "silu"} : (!wide) -> !wide
  %out = braid.moe.grouped_linear %hidden offsets(%offsets) weights(%w2) : (!wide, tensor<5xi32>, !w2) -> !rows
  %y, %returned = braid.moe.combine %out weights(%weights) plan(%perm, %inverse, %exchange) : (!rows, !k, !perm, !ids, !i) -> (!x, !rows)
  return %y : !x
}

func.func @train_step(%r: tensor<32x4xf32> {braid.name = "r", braid.role = "parameter"}, %w1: !w1 {braid.name = "w1", braid.role = "parameter"},
                      %w2: !w2 {braid.name = "w2", braid.role = "parameter"}, %table: tensor<64x32xf32> {braid.name = "embed.weight", braid.role = "parameter"},
                      %tokens: tensor<2x16xi32> {braid.name = "tokens", braid.role = "input"}, %documents: tensor<2x16xi32> {braid.name = "documents", braid.role = "input"})
    -> (tensor<1xf32> {braid.name = "loss_sum", braid.role = "output"}, tensor<1xf32> {braid.name = "loss_count", braid.role = "output"})
    attributes {braid.entry, braid.train = {clip_norm = 0.0 : f64}} {
  %x = braid.embed %tokens, %table : (tensor<2x16xi32>, tensor<64x32xf32>) -> !x
  %y = func.call @layer(%x, %documents, %r, %w1, %w2) : (!x, tensor<2x16xi32>, tensor<32x4xf32>, !w1, !w2) -> !x
  %logits = "braid.linear"(%y, %table) <{transposed}> : (!x, tensor<64x32xf32>) -> tensor<2x16x64xf32>
  %sum, %count, %lse = braid.cross_entropy %logits, %tokens : (tensor<2x16x64xf32>, tensor<2x16xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x16xf32>)
  return %sum, %count : tensor<1xf32>, tensor<1xf32>
}

// A forward without a gradient keeps the shorter way: its combination weights.
// CHECK-LABEL: func.func private @forward(
// CHECK-NOT:     row_weights
// CHECK:         return
func.func private @forward(%x: !wide, %weights: !k, %perm: !perm, %inverse: !ids, %exchange: !i, %offsets: tensor<5xi32>, %w2: !w2) -> !x {
  %hidden = braid.activation %x {kind = "silu"} : (!wide) -> !wide
  %out = braid.moe.grouped_linear %hidden offsets(%offsets) weights(%w2) : (!wide, tensor<5xi32>, !w2) -> !rows
  %y, %returned = braid.moe.combine %out weights(%weights) plan(%perm, %inverse, %exchange) : (!rows, !k, !perm, !ids, !i) -> (!x, !rows)
  return %y : !x
}
