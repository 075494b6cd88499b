// Gradients of weights that are made on top of the sums of earlier batches, and those that stay beside them.
// RUN: braid-opt %s --braid-add-into-gradients | FileCheck %s

!x = tensor<2x4x8xf32>
!w = tensor<8x8xf32>
!v = tensor<8xf32>
!table = tensor<32x8xf32>
!i = tensor<2x4xi32>
!n = tensor<1xf32>

// Each result of a product has its sum; what none is added to is a product of its own. A vector's gradient is no product.
// CHECK-LABEL: func @in_block
// CHECK-SAME: (%[[X:.*]]: tensor<2x4x8xf32>, %[[A:arg1]]: {{.*}}, %[[B:arg2]]: {{.*}}, %[[C:arg3]]:
// CHECK-NEXT: %[[G:.*]]:2 = braid.linear_grad_weight %[[X]] cotangents(%[[X]], %[[X]]) sums(%[[A]], %[[B]]) {transposed}
// CHECK-NEXT: %[[H:.*]] = braid.linear_grad_weight %[[X]] cotangents(%[[X]]) {transposed} :
// CHECK-NEXT: %[[D:.*]] = braid.rows_grad
// CHECK-NEXT: %[[S:.*]] = braid.add %[[C]], %[[D]] {braid.in_place}
// CHECK-NEXT: return %[[G]]#0, %[[G]]#1, %[[H]], %[[S]]
func.func @in_block(%x: !x, %a: !w, %b: !w, %c: !v, %scale: !v) -> (!w, !w, !w, !v) {
  %g:3 = braid.linear_grad_weight %x cotangents(%x, %x, %x) {transposed} : (!x, !x, !x, !x) -> (!w, !w, !w)
  %d = braid.rows_grad "braid.rms_norm"(%x, %scale) cotangents(%x) {op_attributes = {eps = 1.0e-6 : f64, groups = 1 : i64}, wanted = array<i64: 1>} : (!x, !v, !x) -> !v
  %s = braid.add %a, %g#0 {braid.in_place} : (!w, !w) -> !w
  %t = braid.add %b, %g#2 {braid.in_place} : (!w, !w) -> !w
  %u = braid.add %c, %d {braid.in_place} : (!v, !v) -> !v
  return %s, %t, %g#1, %u : !w, !w, !w, !v
}

// Of a layer's function, in a repeat: the sums are its last arguments. The call that adds nothing has the function as it was.
// CHECK-LABEL: func @layers
// CHECK: braid.repeat
// CHECK-NEXT: ^bb0(%[[DY:.*]]: tensor<2x4x8xf32>, %[[P:.*]]: tensor<8x8xf32>, %[[Q:.*]]: tensor<8x8xf32>):
// CHECK-NEXT: %[[R:.*]]:3 = func.call @layer_grad_sums(%[[DY]], %[[P]], %[[Q]])
// CHECK-NEXT: braid.yield %[[R]]#0, %[[R]]#1, %[[R]]#2
// CHECK: call @layer_grad(
func.func @layers(%dy: !x, %p: tensor<3x8x8xf32>, %q: tensor<3x8x8xf32>) -> (!x, tensor<3x8x8xf32>, tensor<3x8x8xf32>, !w) {
  %r:3 = braid.repeat %dy, %p, %q {carried = 1 : i64, count = 3 : i64} : (!x, tensor<3x8x8xf32>, tensor<3x8x8xf32>) -> (!x, tensor<3x8x8xf32>, tensor<3x8x8xf32>) {
  ^bb0(%dy_i: !x, %p_i: !w, %q_i: !w):
    %g:3 = func.call @layer_grad(%dy_i) : (!x) -> (!x, !w, !w)
    %s = braid.add %p_i, %g#1 {braid.in_place} : (!w, !w) -> !w
    %t = braid.add %q_i, %g#2 {braid.in_place} : (!w, !w) -> !w
    braid.yield %g#0, %s, %t : (!x, !w, !w) -> ()
  }
  %last:3 = func.call @layer_grad(%r#0) : (!x) -> (!x, !w, !w)
  return %last#0, %r#1, %r#2, %last#1 : !x, tensor<3x8x8xf32>, tensor<3x8x8xf32>, !w
}

// Of slices the first product takes the sum; the others go on from it.
// CHECK-LABEL: func private @layer_grad(
// CHECK-LABEL: func private @layer_grad_sums(
// CHECK-SAME: %[[X:.*]]: tensor<2x4x8xf32>, %[[P:.*]]: tensor<8x8xf32>, %[[Q:.*]]: tensor<8x8xf32>)
// CHECK-NEXT: %[[G:.*]] = braid.linear_grad_weight %[[X]] cotangents(%[[X]]) sums(%[[P]])
// CHECK-NEXT: %[[FIRST:.*]] = braid.linear_grad_weight %[[X]] cotangents(%[[X]]) sums(%[[Q]])
// CHECK-NEXT: %[[LAST:.*]] = braid.linear_grad_weight %[[X]] cotangents(%[[X]]) sums(%[[FIRST]])
// CHECK-NEXT: return %[[X]], %[[G]], %[[LAST]]
func.func private @layer_grad(%x: !x) -> (!x, !w, !w) {
  %g = braid.linear_grad_weight %x cotangents(%x) : (!x, !x) -> !w
  %first = braid.linear_grad_weight %x cotangents(%x) : (!x, !x) -> !w
  %last = braid.linear_grad_weight %x cotangents(%x) sums(%first) : (!x, !x, !w) -> !w
  return %x, %g, %last : !x, !w, !w
}

// The head and the words, and a view between the two; a layer of one expert.
// CHECK-LABEL: func @ends
// CHECK-SAME: %[[X:arg0]]: {{.*}}, %[[T:arg1]]: {{.*}}, %[[N:arg2]]: {{.*}}, %[[W:arg3]]: {{.*}}, %[[A:arg4]]: {{.*}}, %[[B:arg5]]: {{.*}}, %[[C:arg6]]:
// CHECK-NEXT: %{{.*}}, %[[H:.*]], %{{.*}} = braid.linear_cross_entropy_grad %[[X]], %[[W]], %[[T]], %[[N]], %[[A]] {transposed}
// CHECK-NEXT: %[[E:.*]] = braid.embed_grad %[[T]], %{{.*}}, %[[B]] :
// CHECK-NEXT: %[[V:.*]] = braid.reshape %[[C]]
// CHECK-NEXT: %[[G:.*]] = braid.linear_grad_weight %[[X]] cotangents(%[[X]]) sums(%[[V]])
// CHECK-NEXT: %[[S:.*]] = braid.reshape %[[G]]
// CHECK-NEXT: return %[[H]], %[[E]], %[[S]]
func.func @ends(%x: !x, %tokens: !i, %dsum: !n, %w: !table, %a: !table, %b: !table, %c: tensor<1x8x8xf32>) -> (!table, !table, tensor<1x8x8xf32>) {
  %dx, %dw, %sum = braid.linear_cross_entropy_grad %x, %w, %tokens, %dsum {transposed} : (!x, !table, !i, !n) -> (!x, !table, !n)
  %words = braid.embed_grad %tokens, %dx : (!i, !x) -> !table
  %g = braid.linear_grad_weight %x cotangents(%x) : (!x, !x) -> !w
  %view = braid.reshape %g : (!w) -> tensor<1x8x8xf32>
  %s = braid.add %a, %dw {braid.in_place} : (!table, !table) -> !table
  %t = braid.add %b, %words {braid.in_place} : (!table, !table) -> !table
  %u = braid.add %c, %view {braid.in_place} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  return %s, %t, %u : !table, !table, tensor<1x8x8xf32>
}

// A table that is both: the words' gradient on top of the head's, that on top of the sum.
// CHECK-LABEL: func @tied
// CHECK-NEXT: %{{.*}}, %[[H:.*]], %{{.*}} = braid.linear_cross_entropy_grad %arg0, %arg3, %arg1, %arg2, %arg4 {transposed}
// CHECK-NEXT: %[[E:.*]] = braid.embed_grad %arg1, %{{.*}}, %[[H]] :
// CHECK-NEXT: return %[[E]]
func.func @tied(%x: !x, %tokens: !i, %dsum: !n, %w: !table, %a: !table) -> !table {
  %dx, %dw, %sum = braid.linear_cross_entropy_grad %x, %w, %tokens, %dsum {transposed} : (!x, !table, !i, !n) -> (!x, !table, !n)
  %words = braid.embed_grad %tokens, %dx : (!i, !x) -> !table
  %both = braid.add %dw, %words : (!table, !table) -> !table
  %s = braid.add %a, %both {braid.in_place} : (!table, !table) -> !table
  return %s : !table
}

// What others read, sums that are read or come later, what is rounded, and additions that are not in place: they stay.
// CHECK-LABEL: func @stay
// CHECK-NOT: sums(
// CHECK-COUNT-4: braid.add
// CHECK-NOT: sums(
func.func @stay(%x: !x, %a: !w, %b: !w, %h: tensor<8x8xbf16>, %y: tensor<2x4x8xbf16>) -> (!w, !w, !w, tensor<8x8xbf16>, !w) {
  %g = braid.linear_grad_weight %x cotangents(%x) : (!x, !x) -> !w
  %s = braid.add %a, %g {braid.in_place} : (!w, !w) -> !w
  %f = braid.linear_grad_weight %x cotangents(%x) : (!x, !x) -> !w
  %t = braid.add %b, %f : (!w, !w) -> !w
  %e = braid.linear_grad_weight %y cotangents(%y) : (tensor<2x4x8xbf16>, tensor<2x4x8xbf16>) -> tensor<8x8xbf16>
  %u = braid.add %h, %e {braid.in_place} : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
  %d = braid.linear_grad_weight %x cotangents(%x) : (!x, !x) -> !w
  %v = braid.add %s, %d {braid.in_place} : (!w, !w) -> !w
  return %g, %s, %t, %u, %v : !w, !w, !w, tensor<8x8xbf16>, !w
}

// A function without a body: nobody knows how it makes its gradient.
// CHECK-LABEL: func @outside
// CHECK: call @other
// CHECK-NEXT: braid.add
func.func @outside(%x: !x, %a: !w) -> !w {
  %g = func.call @other(%x) : (!x) -> !w
  %s = braid.add %a, %g {braid.in_place} : (!w, !w) -> !w
  return %s : !w
}
func.func private @other(!x) -> !w
