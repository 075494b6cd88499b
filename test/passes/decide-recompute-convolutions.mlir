// RUN: braid-opt %s --braid-decide-recompute="convolutions=true explain=true" 2>&1 | FileCheck %s
// RUN: braid-opt %s --braid-decide-recompute | FileCheck %s --check-prefix=KEPT

// The gradient of a convolution makes it again, and what alone reads it up to the last, which the backward keeps where others read it. It counts as no work.
// CHECK: remark: activations of @train_step: [[#]] of [[#]] bytes kept for the backward, 0%
// CHECK-LABEL: func.func private @layer(
// CHECK:         braid.short_conv %{{.*}} {braid.recompute}
// CHECK-NEXT:    braid.bias %{{.*}} {braid.recompute}
// CHECK-NEXT:    braid.activation %{{[0-9]+}} {kind = "silu"}
// With nothing behind it a convolution stays.
// CHECK:         braid.short_conv
// CHECK-NOT:     braid.recompute
// CHECK:         return
// KEPT-LABEL: func.func private @layer(
// KEPT:          braid.short_conv
// KEPT-NOT:      braid.recompute
// KEPT:          braid.bias

!x = tensor<2x16x32xf32>
!w = tensor<32x4xf32>
!d = tensor<2x16xi32>
!t = tensor<2x3x32xf32>
func.func private @layer(%x: !x, %w: !w, %b: tensor<32xf32>, %m: tensor<32x32xf32>, %documents: !d, %tail: !t) -> !x {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (!x, !w, !d, !t) -> (!x, !t)
  %z = braid.bias %y, %b : (!x, tensor<32xf32>) -> !x
  %q = braid.activation %z {kind = "silu"} : (!x) -> !x
  %p = braid.linear %q, %m : (!x, tensor<32x32xf32>) -> !x
  %o, %old = braid.short_conv %p, %w, %documents, %tail : (!x, !w, !d, !t) -> (!x, !t)
  %r = braid.linear %o, %m : (!x, tensor<32x32xf32>) -> !x
  return %r : !x
}
func.func @train_step(%w: !w {braid.name = "w", braid.role = "parameter"}, %b: tensor<32xf32> {braid.name = "b", braid.role = "parameter"},
                      %m: tensor<32x32xf32> {braid.name = "m", braid.role = "parameter"}, %table: tensor<64x32xf32> {braid.name = "embed.weight", braid.role = "parameter"},
                      %tokens: !d {braid.name = "tokens", braid.role = "input"}, %documents: !d {braid.name = "documents", braid.role = "input"})
    -> (tensor<1xf32> {braid.name = "loss_sum", braid.role = "output"}, tensor<1xf32> {braid.name = "loss_count", braid.role = "output"})
    attributes {braid.entry, braid.train = {clip_norm = 0.0 : f64}} {
  %tail = arith.constant dense<0.0> : !t
  %x = braid.embed %tokens, %table : (!d, tensor<64x32xf32>) -> !x
  %y = func.call @layer(%x, %w, %b, %m, %documents, %tail) : (!x, !w, tensor<32xf32>, tensor<32x32xf32>, !d, !t) -> !x
  %logits = "braid.linear"(%y, %table) <{transposed}> : (!x, tensor<64x32xf32>) -> tensor<2x16x64xf32>
  %sum, %count, %lse = braid.cross_entropy %logits, %tokens : (tensor<2x16x64xf32>, !d) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x16xf32>)
  return %sum, %count : tensor<1xf32>, tensor<1xf32>
}
