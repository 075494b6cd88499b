// RUN: braid-opt %s --braid-decide-recompute="explain=true" 2>&1 | FileCheck %s
// RUN: braid-opt %s --braid-decide-recompute --braid-differentiate --canonicalize --cse | FileCheck %s --check-prefix=GRAD
// What costs nothing to make again is not kept, though nobody has asked for less: a pointwise result that only row-wise ops read, of operands that
// are kept anyway. It counts as no work.

// CHECK: remark: activations of @train_step: [[#]] of [[#]] bytes kept for the backward, 0%
// CHECK-LABEL: func.func private @layer(
// CHECK:         %[[GATE:.*]] = braid.linear %{{.*}}, %{{.*}} :
// CHECK:         %[[UP:.*]] = braid.linear %{{.*}}, %{{.*}} :
// One behind the other.
// CHECK:         %[[BIASED:.*]] = braid.bias %[[GATE]], %{{.*}} {braid.recompute}
// CHECK:         %[[ACTIVE:.*]] = braid.activation %[[BIASED]] {braid.recompute, kind = "silu"}
// A product reads it, so the forward writes it anyway.
// CHECK:         %[[HIDDEN:.*]] = braid.mul %[[ACTIVE]], %[[UP]] :
// CHECK:         %[[DOWN:.*]] = braid.linear %[[HIDDEN]], %{{.*}} :
// What the sum is of is not kept.
// CHECK:         %[[SUM:.*]] = braid.add %{{.*}}, %[[DOWN]] :
// CHECK:         %[[ROOT:.*]] = braid.activation %[[SUM]] {braid.recompute, kind = "tanh"}
// CHECK:         braid.rms_norm %[[ROOT]]
// Whoever calls the layer reads it.
// CHECK:         %[[OUT:.*]] = braid.activation %{{.*}} {kind = "sigmoid"} :
// CHECK:         return %[[OUT]]

// GRAD-LABEL: func.func private @layer_train(
// GRAD-NOT:     braid.recompute
// GRAD:         %[[GATE:.*]] = braid.linear %{{.*}}, %{{.*}} :
// GRAD:         %[[UP:.*]] = braid.linear %{{.*}}, %{{.*}} :
// GRAD:         %[[HIDDEN:.*]] = braid.mul
// GRAD:         %[[SUM:.*]] = braid.add
// GRAD:         %[[NORM:.*]] = braid.rms_norm
// GRAD:         %[[OUT:.*]] = braid.activation
// GRAD:         return %[[OUT]], %[[NORM]], %[[SUM]], %[[HIDDEN]], %[[UP]], %[[GATE]] :
// GRAD-LABEL: func.func private @layer_grad(
// GRAD:         braid.activation %{{.*}} {kind = "tanh"}
// GRAD-NEXT:    braid.rows_grad "braid.rms_norm"
// GRAD:         %[[AGAIN:.*]] = braid.bias
// GRAD-NEXT:    %[[MADE:.*]] = braid.activation %[[AGAIN]] {kind = "silu"}
// GRAD-NEXT:    braid.rows_grad "braid.mul"(%[[MADE]], %{{.*}})

!x = tensor<2x16x32xf32>
!w = tensor<32x32xf32>
func.func private @layer(%x: !x, %b: tensor<32xf32>, %norm: tensor<32xf32>, %w1: !w, %w2: !w, %w3: !w) -> !x {
  %gate = "braid.linear"(%x, %w1) : (!x, !w) -> !x
  %up = "braid.linear"(%x, %w2) : (!x, !w) -> !x
  %biased = braid.bias %gate, %b : (!x, tensor<32xf32>) -> !x
  %active = braid.activation %biased {kind = "silu"} : (!x) -> !x
  %hidden = braid.mul %active, %up : (!x, !x) -> !x
  %down = "braid.linear"(%hidden, %w3) : (!x, !w) -> !x
  %sum = braid.add %x, %down : (!x, !x) -> !x
  %root = braid.activation %sum {kind = "tanh"} : (!x) -> !x
  %n = braid.rms_norm %root, %norm {eps = 1.0e-6 : f64} : (!x, tensor<32xf32>) -> !x
  %y = braid.activation %n {kind = "sigmoid"} : (!x) -> !x
  return %y : !x
}
func.func @train_step(%b: tensor<32xf32> {braid.name = "b", braid.role = "parameter"}, %norm: tensor<32xf32> {braid.name = "norm", braid.role = "parameter"},
                      %w1: !w {braid.name = "w1", braid.role = "parameter"}, %w2: !w {braid.name = "w2", braid.role = "parameter"},
                      %w3: !w {braid.name = "w3", braid.role = "parameter"}, %table: tensor<64x32xf32> {braid.name = "embed.weight", braid.role = "parameter"},
                      %tokens: tensor<2x16xi32> {braid.name = "tokens", braid.role = "input"})
    -> (tensor<1xf32> {braid.name = "loss_sum", braid.role = "output"}, tensor<1xf32> {braid.name = "loss_count", braid.role = "output"})
    attributes {braid.entry, braid.train = {clip_norm = 0.0 : f64}} {
  %x = braid.embed %tokens, %table : (tensor<2x16xi32>, tensor<64x32xf32>) -> !x
  %y = func.call @layer(%x, %b, %norm, %w1, %w2, %w3) : (!x, tensor<32xf32>, tensor<32xf32>, !w, !w, !w) -> !x
  %logits = "braid.linear"(%y, %table) <{transposed}> : (!x, tensor<64x32xf32>) -> tensor<2x16x64xf32>
  %sum, %count, %lse = braid.cross_entropy %logits, %tokens : (tensor<2x16x64xf32>, tensor<2x16xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x16xf32>)
  return %sum, %count : tensor<1xf32>, tensor<1xf32>
}
