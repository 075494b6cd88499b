// Sums of gradients that a repeat of layers adds to, part by part, and those that wait for its end.
// RUN: braid-opt %s --braid-add-into-repeats=min-elements=64 | FileCheck %s
// RUN: braid-opt %s --braid-add-into-repeats | FileCheck %s --check-prefix=LARGE

!y = tensor<2x8xf32>
!w = tensor<8x8xf32>
!ws = tensor<3x8x8xf32>
!n = tensor<8xf32>
!ns = tensor<3x8xf32>

// The sum of matrices is taken along, that of vectors stays: one kernel for all layers. What was returned for the sum is the repeat's result.
// CHECK-LABEL: func @layers
// CHECK-SAME: %[[SUM:arg3]]: tensor<3x8x8xf32>, %[[SMALL:arg4]]
// CHECK: %[[R:.*]]:3 = braid.repeat %arg0, %arg1, %arg2, %[[SUM]] {carried = 1 : i64, count = 3 : i64, reverse}
// CHECK-NEXT: ^bb0(%[[DY:.*]]: tensor<2x8xf32>, %[[W:.*]]: tensor<8x8xf32>, %{{.*}}: tensor<8xf32>, %[[PART:.*]]: tensor<8x8xf32>):
// CHECK-NEXT: %[[D:.*]]:3 = func.call @layer_grad
// CHECK-NEXT: %[[A:.*]] = braid.add %[[PART]], %[[D]]#1 {braid.in_place}
// CHECK-NEXT: braid.yield %[[D]]#0, %[[A]], %[[D]]#2
// CHECK: %[[S:.*]] = braid.add %[[SMALL]], %[[R]]#2 {braid.in_place}
// CHECK-NEXT: return %[[R]]#0, %[[R]]#1, %[[S]]
// LARGE-LABEL: func @layers
// LARGE-COUNT-2: braid.add {{.*}} {braid.in_place} : (tensor<3x8
func.func @layers(%dy: !y, %w: !ws, %n: !ns, %sum: !ws, %small: !ns) -> (!y, !ws, !ns) {
  %d:3 = braid.repeat %dy, %w, %n {carried = 1 : i64, count = 3 : i64, reverse} : (!y, !ws, !ns) -> (!y, !ws, !ns) {
  ^bb0(%dy_i: !y, %w_i: !w, %n_i: !n):
    %g:3 = func.call @layer_grad(%dy_i, %w_i, %n_i) : (!y, !w, !n) -> (!y, !w, !n)
    braid.yield %g#0, %g#1, %g#2 : (!y, !w, !n) -> ()
  }
  %s = braid.add %sum, %d#1 {braid.in_place} : (!ws, !ws) -> !ws
  %t = braid.add %small, %d#2 {braid.in_place} : (!ns, !ns) -> !ns
  return %d#0, %s, %t : !y, !ws, !ns
}
func.func private @layer_grad(!y, !w, !n) -> (!y, !w, !n)

// Into a repeat of repeats.
// CHECK-LABEL: func @nested
// CHECK: braid.repeat %arg0, %arg1 {carried = 1 : i64, count = 2 : i64}
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<2x8xf32>, %[[OUTER:.*]]: tensor<3x8x8xf32>):
// CHECK-NEXT: %[[R:.*]]:2 = braid.repeat %{{.*}}, %[[OUTER]] {carried = 1 : i64, count = 3 : i64}
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<2x8xf32>, %[[INNER:.*]]: tensor<8x8xf32>):
// CHECK-NEXT: call
// CHECK-NEXT: braid.add %[[INNER]], %{{.*}} {braid.in_place} : (tensor<8x8xf32>, tensor<8x8xf32>)
// CHECK: braid.yield %[[R]]#0, %[[R]]#1
// CHECK-NOT: braid.add
func.func @nested(%dy: !y, %sum: tensor<2x3x8x8xf32>) -> (!y, tensor<2x3x8x8xf32>) {
  %d:2 = braid.repeat %dy {carried = 1 : i64, count = 2 : i64} : (!y) -> (!y, tensor<2x3x8x8xf32>) {
  ^bb0(%dy_i: !y):
    %e:2 = braid.repeat %dy_i {carried = 1 : i64, count = 3 : i64} : (!y) -> (!y, !ws) {
    ^bb0(%dy_j: !y):
      %g:2 = func.call @grad(%dy_j) : (!y) -> (!y, !w)
      braid.yield %g#0, %g#1 : (!y, !w) -> ()
    }
    braid.yield %e#0, %e#1 : (!y, !ws) -> ()
  }
  %s = braid.add %sum, %d#1 {braid.in_place} : (tensor<2x3x8x8xf32>, tensor<2x3x8x8xf32>) -> tensor<2x3x8x8xf32>
  return %d#0, %s : !y, tensor<2x3x8x8xf32>
}
func.func private @grad(!y) -> (!y, !w)

// What others read, a sum of two such results, one that another one is added to while it is made, and what is no sum in place: they stay.
// CHECK-LABEL: func @stays
// CHECK: braid.repeat %arg0 {carried
// CHECK: braid.yield %{{.*}}#0, %{{.*}}#1, %{{.*}}#2, %{{.*}}#2, %{{.*}}#3
// CHECK-COUNT-4: braid.add
func.func @stays(%dy: !y, %a: !ws, %b: !ws, %c: !ws) -> (!ws, !ws, !ws, !ws, !ws) {
  %d:5 = braid.repeat %dy {carried = 1 : i64, count = 3 : i64} : (!y) -> (!y, !ws, !ws, !ws, !ws) {
  ^bb0(%dy_i: !y):
    %g:4 = func.call @four(%dy_i) : (!y) -> (!y, !w, !w, !w)
    braid.yield %g#0, %g#1, %g#2, %g#2, %g#3 : (!y, !w, !w, !w, !w) -> ()
  }
  %s = braid.add %a, %d#1 {braid.in_place} : (!ws, !ws) -> !ws
  %t = braid.add %b, %d#2 {braid.in_place} : (!ws, !ws) -> !ws
  %u = braid.add %c, %d#3 : (!ws, !ws) -> !ws
  %v = braid.add %u, %d#4 {braid.in_place} : (!ws, !ws) -> !ws
  return %s, %t, %u, %v, %d#1 : !ws, !ws, !ws, !ws, !ws
}
func.func private @four(!y) -> (!y, !w, !w, !w)

// Layers that are written out: the sum is taken apart where it begins, each part is added behind the one that makes it.
// CHECK-LABEL: func @written_out
// CHECK-NEXT: %[[P0:.*]] = braid.slice %arg1 {begin = 0 : i64, dim = 0 : i64} : (tensor<2x8x8xf32>) -> tensor<1x8x8xf32>
// CHECK-NEXT: %[[P1:.*]] = braid.slice %arg1 {begin = 1 : i64, dim = 0 : i64}
// CHECK-NEXT: %[[G1:.*]]:2 = call @grad
// CHECK-NEXT: %[[R1:.*]] = braid.reshape %[[G1]]#1
// CHECK-NEXT: %[[A1:.*]] = braid.add %[[P1]], %[[R1]] {braid.in_place}
// CHECK-NEXT: call @grad
// CHECK-NEXT: braid.reshape
// CHECK-NEXT: %[[A0:.*]] = braid.add %[[P0]], %{{.*}} {braid.in_place}
// CHECK-NEXT: %[[S:.*]] = braid.concat %[[A0]], %[[A1]] {dim = 0 : i64}
// CHECK-NEXT: return %[[S]]
func.func @written_out(%dy: !y, %sum: tensor<2x8x8xf32>) -> tensor<2x8x8xf32> {
  %g1:2 = call @grad(%dy) : (!y) -> (!y, !w)
  %r1 = braid.reshape %g1#1 : (!w) -> tensor<1x8x8xf32>
  %g0:2 = call @grad(%g1#0) : (!y) -> (!y, !w)
  %r0 = braid.reshape %g0#1 : (!w) -> tensor<1x8x8xf32>
  %d = braid.concat %r0, %r1 {dim = 0 : i64} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<2x8x8xf32>
  %s = braid.add %sum, %d {braid.in_place} : (tensor<2x8x8xf32>, tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  return %s : tensor<2x8x8xf32>
}
