// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// Projections, embedding, convolution, loss. The printed form and the generic form parse back to the same.

!x = tensor<2x8x16xf32>
!h = tensor<2x8x4x6xf32>
!d = tensor<2x8xi32>
!one = tensor<1xf32>

// Trailing dimensions are features: 4 x 6 = 24.
// CHECK-LABEL: func.func @linear(
func.func @linear(%x: !x, %h: !h, %w: tensor<16x24xf32>, %v: tensor<16x10xf32>, %t: tensor<32x16xf32>, %dl: tensor<2x8x32xf32>) {
  // CHECK: braid.linear %arg0, %arg2, %arg3 : (tensor<2x8x16xf32>, tensor<16x24xf32>, tensor<16x10xf32>) -> (tensor<2x8x4x6xf32>, tensor<2x8x10xf32>)
  %0:2 = braid.linear %x, %w, %v : (!x, tensor<16x24xf32>, tensor<16x10xf32>) -> (!h, tensor<2x8x10xf32>)
  // CHECK: braid.linear %arg0, %arg4 {transposed} : (tensor<2x8x16xf32>, tensor<32x16xf32>) -> tensor<2x8x32xf32>
  %1 = braid.linear %x, %t {transposed} : (!x, tensor<32x16xf32>) -> tensor<2x8x32xf32>
  // CHECK: braid.linear_add %arg0, %arg4, %arg5 {transposed} : (tensor<2x8x16xf32>, tensor<32x16xf32>, tensor<2x8x32xf32>) -> tensor<2x8x32xf32>
  %7 = braid.linear_add %x, %t, %dl {transposed} : (!x, tensor<32x16xf32>, tensor<2x8x32xf32>) -> tensor<2x8x32xf32>
  // CHECK: braid.linear_grad_data cotangents(%arg1) weights(%arg2) : (tensor<2x8x4x6xf32>, tensor<16x24xf32>) -> tensor<2x8x16xf32>
  %2 = braid.linear_grad_data cotangents(%h) weights(%w) : (!h, tensor<16x24xf32>) -> !x
  // CHECK: braid.linear_grad_data cotangents(%arg5) weights(%arg4) {transposed} : (tensor<2x8x32xf32>, tensor<32x16xf32>) -> tensor<2x8x16xf32>
  %3 = braid.linear_grad_data cotangents(%dl) weights(%t) {transposed} : (tensor<2x8x32xf32>, tensor<32x16xf32>) -> !x
  // CHECK: braid.linear_grad_weight %arg0 cotangents(%arg1, %{{.*}}#1) : (tensor<2x8x16xf32>, tensor<2x8x4x6xf32>, tensor<2x8x10xf32>) -> (tensor<16x24xf32>, tensor<16x10xf32>)
  %4:2 = braid.linear_grad_weight %x cotangents(%h, %0#1) : (!x, !h, tensor<2x8x10xf32>) -> (tensor<16x24xf32>, tensor<16x10xf32>)
  // CHECK: braid.linear_grad_weight %arg0 cotangents(%arg5) {transposed} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<32x16xf32>
  %5 = braid.linear_grad_weight %x cotangents(%dl) {transposed} : (!x, tensor<2x8x32xf32>) -> tensor<32x16xf32>
  // CHECK: braid.linear_grad_weight %arg0 cotangents(%arg5) sums(%{{.*}}) {transposed} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>, tensor<32x16xf32>) -> tensor<32x16xbf16>
  %6 = braid.linear_grad_weight %x cotangents(%dl) sums(%5) {transposed} : (!x, tensor<2x8x32xf32>, tensor<32x16xf32>) -> tensor<32x16xbf16>
  return
}

// CHECK-LABEL: func.func @embed(
func.func @embed(%tokens: !d, %table: tensor<50x16xbf16>) {
  // CHECK: braid.embed %arg0, %arg1 : (tensor<2x8xi32>, tensor<50x16xbf16>) -> tensor<2x8x16xbf16>
  %y = braid.embed %tokens, %table : (!d, tensor<50x16xbf16>) -> tensor<2x8x16xbf16>
  // CHECK: braid.embed_grad %arg0, %{{.*}} : (tensor<2x8xi32>, tensor<2x8x16xbf16>) -> tensor<50x16xf32>
  %dtable = braid.embed_grad %tokens, %y : (!d, tensor<2x8x16xbf16>) -> tensor<50x16xf32>
  // CHECK: braid.embed_grad %arg0, %{{.*}}, %{{.*}} : (tensor<2x8xi32>, tensor<2x8x16xbf16>, tensor<50x16xf32>) -> tensor<50x16xf32>
  %dsum = braid.embed_grad %tokens, %y, %dtable : (!d, tensor<2x8x16xbf16>, tensor<50x16xf32>) -> tensor<50x16xf32>
  return
}

// CHECK-LABEL: func.func @conv(
func.func @conv(%x: !h, %w: tensor<24x4xf32>, %documents: !d, %tail: tensor<2x3x24xf32>) {
  // CHECK: braid.short_conv %arg0, %arg1, %arg2, %arg3 : (tensor<2x8x4x6xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x4x6xf32>, tensor<2x3x24xf32>)
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (!h, tensor<24x4xf32>, !d, tensor<2x3x24xf32>) -> (!h, tensor<2x3x24xf32>)
  // CHECK: braid.short_conv_grad %arg0, %arg1, %arg2, %arg3, %y, %new_tail : (tensor<2x8x4x6xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>, tensor<2x8x4x6xf32>, tensor<2x3x24xf32>) -> (tensor<2x8x4x6xf32>, tensor<24x4xf32>, tensor<2x3x24xf32>)
  %dx, %dw, %dtail = braid.short_conv_grad %x, %w, %documents, %tail, %y, %new
      : (!h, tensor<24x4xf32>, !d, tensor<2x3x24xf32>, !h, tensor<2x3x24xf32>) -> (!h, tensor<24x4xf32>, tensor<2x3x24xf32>)
  return
}

// CHECK-LABEL: func.func @loss(
func.func @loss(%logits: tensor<2x8x50xbf16>, %labels: !d, %x: !x, %head: tensor<50x16xf32>, %c: tensor<1xi32>) {
  // CHECK: braid.cross_entropy %arg0, %arg1 : (tensor<2x8x50xbf16>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  %sum, %count, %lse = braid.cross_entropy %logits, %labels : (tensor<2x8x50xbf16>, !d) -> (!one, !one, tensor<2x8xf32>)
  // CHECK: braid.cross_entropy_grad %arg0, %arg1, %lse, %sum : (tensor<2x8x50xbf16>, tensor<2x8xi32>, tensor<2x8xf32>, tensor<1xf32>) -> tensor<2x8x50xbf16>
  %dlogits = braid.cross_entropy_grad %logits, %labels, %lse, %sum : (tensor<2x8x50xbf16>, !d, tensor<2x8xf32>, !one) -> tensor<2x8x50xbf16>
  // CHECK: braid.linear_cross_entropy %arg2, %arg3, %arg1 {transposed} : (tensor<2x8x16xf32>, tensor<50x16xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  %sum2, %count2 = braid.linear_cross_entropy %x, %head, %labels {transposed} : (!x, tensor<50x16xf32>, !d) -> (!one, !one)
  // CHECK: braid.linear_cross_entropy_grad %arg2, %arg3, %arg1, %sum{{.*}} {transposed} : (tensor<2x8x16xf32>, tensor<50x16xf32>, tensor<2x8xi32>, tensor<1xf32>) -> (tensor<2x8x16xf32>, tensor<50x16xf32>, tensor<1xf32>)
  %dx2, %dhead, %sum3 = braid.linear_cross_entropy_grad %x, %head, %labels, %sum2 {transposed} : (!x, tensor<50x16xf32>, !d, !one) -> (!x, tensor<50x16xf32>, !one)
  // CHECK: braid.linear_loss_part %arg2, %arg3, %arg1, %arg4 {transposed} : (tensor<2x8x16xf32>, tensor<50x16xf32>, tensor<2x8xi32>, tensor<1xi32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
  %lse3, %target = braid.linear_loss_part %x, %head, %labels, %c {transposed} : (!x, tensor<50x16xf32>, !d, tensor<1xi32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
  // CHECK: braid.linear_loss_part_grad %arg2, %arg3, %arg1, %arg4, %{{.*}}, %{{.*}} {transposed} : (tensor<2x8x16xf32>, tensor<50x16xf32>, tensor<2x8xi32>, tensor<1xi32>, tensor<2x8xf32>, tensor<1xf32>) -> (tensor<2x8x16xf32>, tensor<50x16xf32>)
  %dx3, %dhead3 = braid.linear_loss_part_grad %x, %head, %labels, %c, %lse3, %sum2 {transposed} : (!x, tensor<50x16xf32>, !d, tensor<1xi32>, tensor<2x8xf32>, !one) -> (!x, tensor<50x16xf32>)
  // CHECK: braid.linear_scores %arg2, %arg3, %arg1, %arg4 {softcap = 3.000000e+01 : f64, transposed} : (tensor<2x8x16xf32>, tensor<50x16xf32>, tensor<2x8xi32>, tensor<1xi32>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xi32>)
  %score:4 = braid.linear_scores %x, %head, %labels, %c {transposed, softcap = 30.0 : f64} : (!x, tensor<50x16xf32>, !d, tensor<1xi32>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, !d)
  // CHECK: braid.sum %arg2 : (tensor<2x8x16xf32>) -> tensor<1xf32>
  %s = braid.sum %x : (!x) -> !one
  // CHECK: braid.sum_grad %{{.*}} : (tensor<1xf32>) -> tensor<2x8x16xf32>
  %dx = braid.sum_grad %s : (!one) -> !x
  return
}

// A matrix for each head, of columns or of rows of one weight.
// CHECK-LABEL: func.func @heads(
func.func @heads(%x: tensor<2x8x4x16xf32>, %w: tensor<16x24xf32>) -> tensor<2x8x4x16xf32> {
  // CHECK: %[[Y:.*]] = braid.head_linear %arg0, %arg1 : (tensor<2x8x4x16xf32>, tensor<16x24xf32>) -> tensor<2x8x4x6xf32>
  %y = braid.head_linear %x, %w : (tensor<2x8x4x16xf32>, tensor<16x24xf32>) -> tensor<2x8x4x6xf32>
  // CHECK: braid.head_linear %[[Y]], %arg1 {transposed} : (tensor<2x8x4x6xf32>, tensor<16x24xf32>) -> tensor<2x8x4x16xf32>
  %z = braid.head_linear %y, %w {transposed} : (tensor<2x8x4x6xf32>, tensor<16x24xf32>) -> tensor<2x8x4x16xf32>
  return %z : tensor<2x8x4x16xf32>
}

// Matrices of heads one behind the other, which have a gradient.
// CHECK-LABEL: func.func @blocks(
func.func @blocks(%x: tensor<2x8x4x16xf32>, %w: tensor<4x16x6xf32>) -> tensor<4x16x6xf32> {
  // CHECK: %[[Y:.*]] = braid.head_linear %arg0, %arg1 : (tensor<2x8x4x16xf32>, tensor<4x16x6xf32>) -> tensor<2x8x4x6xf32>
  %y = braid.head_linear %x, %w : (tensor<2x8x4x16xf32>, tensor<4x16x6xf32>) -> tensor<2x8x4x6xf32>
  // CHECK: %[[Z:.*]] = braid.head_linear %[[Y]], %arg1 {transposed} : (tensor<2x8x4x6xf32>, tensor<4x16x6xf32>) -> tensor<2x8x4x16xf32>
  %z = braid.head_linear %y, %w {transposed} : (tensor<2x8x4x6xf32>, tensor<4x16x6xf32>) -> tensor<2x8x4x16xf32>
  // CHECK: braid.head_linear_grad_weight %[[Z]], %[[Y]] : (tensor<2x8x4x16xf32>, tensor<2x8x4x6xf32>) -> tensor<4x16x6xf32>
  %dw = braid.head_linear_grad_weight %z, %y : (tensor<2x8x4x16xf32>, tensor<2x8x4x6xf32>) -> tensor<4x16x6xf32>
  return %dw : tensor<4x16x6xf32>
}

// Logits that tanh bounds.
// CHECK-LABEL: func.func @capped(
func.func @capped(%x: tensor<2x8x16xf32>, %head: tensor<16x50xf32>, %labels: tensor<2x8xi32>) -> tensor<16x50xf32> {
  // CHECK: %[[SUM:.*]], %{{.*}} = braid.linear_cross_entropy %arg0, %arg1, %arg2 {softcap = 3.000000e+01 : f64} :
  %sum, %count = braid.linear_cross_entropy %x, %head, %labels {softcap = 30.0 : f64} : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  // CHECK: braid.linear_cross_entropy_grad %arg0, %arg1, %arg2, %[[SUM]] {softcap = 3.000000e+01 : f64} :
  %dx, %dhead, %again = braid.linear_cross_entropy_grad %x, %head, %labels, %sum {softcap = 30.0 : f64} : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<1xf32>) -> (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<1xf32>)
  return %dhead : tensor<16x50xf32>
}
