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

// Of a norm over the heads what it reads is made again, too.
// CHECK-LABEL: func.func private @heads(
// CHECK:         braid.short_conv %{{.*}} {braid.recompute}
// CHECK-NEXT:    braid.activation %{{.*}} {braid.recompute, kind = "silu"}
// CHECK-NEXT:    braid.l2_norm %{{[0-9]+}} {eps
// Of heads of 256 channels, those of two warps, it is kept.
// CHECK:         braid.short_conv %{{.*}} {braid.recompute}
// CHECK-NEXT:    braid.activation %{{[^{]*}} {kind = "silu"}
// CHECK-NEXT:    braid.l2_norm %{{[0-9]+}} {eps

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
!h = tensor<2x16x4x128xf32>
!g = tensor<2x16x2x256xf32>
!u = tensor<512x4xf32>
!s = tensor<2x3x512xf32>
func.func private @heads(%x: !x, %u: !u, %m: tensor<32x512xf32>, %o: tensor<512x32xf32>, %documents: !d, %tail: !s) -> !x {
  %p = braid.linear %x, %m : (!x, tensor<32x512xf32>) -> !h
  %y, %new = braid.short_conv %p, %u, %documents, %tail : (!h, !u, !d, !s) -> (!h, !s)
  %a = braid.activation %y {kind = "silu"} : (!h) -> !h
  %q = braid.l2_norm %a {eps = 1.0e-6 : f64} : (!h) -> !h
  %w = braid.reshape %q : (!h) -> !g
  %z, %old = braid.short_conv %w, %u, %documents, %tail : (!g, !u, !d, !s) -> (!g, !s)
  %b = braid.activation %z {kind = "silu"} : (!g) -> !g
  %k = braid.l2_norm %b {eps = 1.0e-6 : f64} : (!g) -> !g
  %f = braid.reshape %k : (!g) -> tensor<2x16x512xf32>
  %r = braid.linear %f, %o : (tensor<2x16x512xf32>, tensor<512x32xf32>) -> !x
  return %r : !x
}
func.func @train_step(%w: !w {braid.name = "w", braid.role = "parameter"}, %b: tensor<32xf32> {braid.name = "b", braid.role = "parameter"},
                      %u: !u {braid.name = "u", braid.role = "parameter"}, %i: tensor<32x512xf32> {braid.name = "i", braid.role = "parameter"},
                      %n: tensor<512x32xf32> {braid.name = "n", braid.role = "parameter"},
                      %m: tensor<32x32xf32> {braid.name = "m", braid.role = "parameter"}, %table: tensor<64x32xf32> {braid.name = "embed.weight", braid.role = "parameter"},
                      %tokens: !d {braid.name = "tokens", braid.role = "input"}, %documents: !d {braid.name = "documents", braid.role = "input"})
    -> (tensor<1xf32> {braid.name = "loss_sum", braid.role = "output"}, tensor<1xf32> {braid.name = "loss_count", braid.role = "output"})
    attributes {braid.entry, braid.train = {clip_norm = 0.0 : f64}} {
  %tail = arith.constant dense<0.0> : !t
  %tails = arith.constant dense<0.0> : !s
  %x = braid.embed %tokens, %table : (!d, tensor<64x32xf32>) -> !x
  %v = func.call @layer(%x, %w, %b, %m, %documents, %tail) : (!x, !w, tensor<32xf32>, tensor<32x32xf32>, !d, !t) -> !x
  %y = func.call @heads(%v, %u, %i, %n, %documents, %tails) : (!x, !u, tensor<32x512xf32>, tensor<512x32xf32>, !d, !s) -> !x
  %logits = "braid.linear"(%y, %table) <{transposed}> : (!x, tensor<64x32xf32>) -> tensor<2x16x64xf32>
  %sum, %count, %lse = braid.cross_entropy %logits, %tokens : (tensor<2x16x64xf32>, !d) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x16xf32>)
  return %sum, %count : tensor<1xf32>, tensor<1xf32>
}
