// RUN: braid-opt %s --braid-join-layers --split-input-file | FileCheck %s
// RUN: braid-opt %s --braid-join-layers="most=2" --split-input-file | FileCheck %s --check-prefix=TWO
// RUN: braid-opt %s --braid-join-layers --split-input-file | FileCheck %s --check-prefixes=TEN,BACK,ALONE
// RUN: not braid-opt %s --braid-join-layers="most=1" --split-input-file 2>&1 | FileCheck %s --check-prefix=ONE

// ONE: error: layers in one function: 1; valid: 2 or more

!x = tensor<1x8x4xf32>
!c = tensor<2x1xi32>
!w = tensor<4xf32>
func.func private @layer(%x: !x, %w: !w, %s: !c) -> (!x, !w) {
  %n = braid.rms_norm %x, %w {eps = 1.0e-6 : f64} : (!x, !w) -> !x
  %y = braid.comm.all_to_all %n send_counts(%s) recv_counts(%s) {axis = "ep", peers = 2 : i64} : (!x, !c, !c) -> !x
  return %y, %w : !x, !w
}
// Nothing travels here: not joined with its neighbours.
func.func private @dense(%x: !x) -> !x {
  %y = braid.activation %x {kind = "silu"} : (!x) -> !x
  return %y : !x
}

// Four layers of a repeat and the one behind it. Four at most: the repeat is written out, and five calls make groups of three and two.
// CHECK-LABEL: func.func private @joined_layer_x3(
// CHECK-COUNT-3: braid.comm.all_to_all
// CHECK-NOT: braid.comm.all_to_all
// CHECK-LABEL: func.func private @joined_layer_x2(
// CHECK-COUNT-2: braid.comm.all_to_all
// CHECK-NOT: braid.comm.all_to_all
// CHECK-NOT: func.func private @layer(
// CHECK-LABEL: func.func @step(
// CHECK-NOT: braid.repeat
// CHECK: %[[A:.*]]:4 = call @joined_layer_x3(%arg0
// CHECK: %[[B:.*]]:3 = call @joined_layer_x2(%[[A]]#2
// CHECK: call @dense(%[[B]]#1)

// Two at most: the repeat walks pairs of layers, whose weights are parts of its stacks.
// TWO-LABEL: func.func @step(
// TWO: %[[W:.*]] = braid.reshape %arg1 : (tensor<4x4xf32>) -> tensor<2x2x4xf32>
// TWO: %[[R:.*]]:2 = braid.repeat %arg0, %[[W]] {carried = 1 : i64, count = 2 : i64}
// TWO: braid.slice %{{.*}} {begin = 0 : i64, dim = 0 : i64} : (tensor<2x4xf32>) -> tensor<1x4xf32>
// TWO: braid.slice %{{.*}} {begin = 1 : i64, dim = 0 : i64} : (tensor<2x4xf32>) -> tensor<1x4xf32>
// TWO: call @joined_layer_x2(
// TWO: braid.concat {{.*}} -> tensor<2x4xf32>
// TWO: braid.reshape %[[R]]#1 : (tensor<2x2x4xf32>) -> tensor<4x4xf32>
// TWO: call @layer(%[[R]]#0
func.func @step(%x: !x, %ws: tensor<4x4xf32>, %w: !w, %s: !c) -> (!x, tensor<4x4xf32>, !w) attributes {braid.entry} {
  %r:2 = braid.repeat %x, %ws {carried = 1 : i64, count = 4 : i64} : (!x, tensor<4x4xf32>) -> (!x, tensor<4x4xf32>) {
  ^bb0(%h: !x, %wl: !w):
    %y:2 = func.call @layer(%h, %wl, %s) : (!x, !w, !c) -> (!x, !w)
    "braid.yield"(%y#0, %y#1) : (!x, !w) -> ()
  }
  %last:2 = call @layer(%r#0, %w, %s) : (!x, !w, !c) -> (!x, !w)
  %z = call @dense(%last#0) : (!x) -> !x
  return %z, %r#1, %last#1 : !x, tensor<4x4xf32>, !w
}

// -----

// Ten layers: two groups of four in a repeat, and the two that are left behind it.
// TEN-LABEL: func.func @ten(
// TEN: %[[FIRST:.*]] = braid.slice %arg1 {begin = 0 : i64, dim = 0 : i64} : (tensor<10x4xf32>) -> tensor<8x4xf32>
// TEN: %[[LAST:.*]] = braid.slice %arg1 {begin = 8 : i64, dim = 0 : i64} : (tensor<10x4xf32>) -> tensor<2x4xf32>
// TEN: %[[R:.*]]:2 = braid.repeat %arg0, {{.*}}count = 2 : i64
// TEN: func.call @joined_layer_x4(
// TEN: braid.slice %[[LAST]] {begin = 0
// TEN: %[[L:.*]]:3 = call @joined_layer_x2(%[[R]]#0
// TEN: %[[S:.*]] = braid.concat {{.*}} : (tensor<8x4xf32>, tensor<2x4xf32>) -> tensor<10x4xf32>
// TEN: return %[[L]]#1, %[[S]]
!x = tensor<1x8x4xf32>
!c = tensor<2x1xi32>
!w = tensor<4xf32>
func.func private @layer(%x: !x, %w: !w, %s: !c) -> (!x, !w) {
  %n = braid.rms_norm %x, %w {eps = 1.0e-6 : f64} : (!x, !w) -> !x
  %y = braid.comm.all_to_all %n send_counts(%s) recv_counts(%s) {axis = "ep", peers = 2 : i64} : (!x, !c, !c) -> !x
  return %y, %w : !x, !w
}
func.func @ten(%x: !x, %ws: tensor<10x4xf32>, %s: !c) -> (!x, tensor<10x4xf32>) attributes {braid.entry} {
  %r:2 = braid.repeat %x, %ws {carried = 1 : i64, count = 10 : i64} : (!x, tensor<10x4xf32>) -> (!x, tensor<10x4xf32>) {
  ^bb0(%h: !x, %wl: !w):
    %y:2 = func.call @layer(%h, %wl, %s) : (!x, !w, !c) -> (!x, !w)
    "braid.yield"(%y#0, %y#1) : (!x, !w) -> ()
  }
  return %r#0, %r#1 : !x, tensor<10x4xf32>
}

// -----

// Backwards the two last layers come first.
// BACK-LABEL: func.func @back(
// BACK: %[[LAST:.*]] = braid.slice %arg1 {begin = 8
// BACK: %[[FIRST:.*]] = braid.slice %[[LAST]] {begin = 1
// BACK: %[[A:.*]] = braid.reshape %[[FIRST]]
// BACK: %[[L:.*]]:3 = call @joined_layer_x2(%arg0, %[[A]]
// BACK: braid.repeat %[[L]]#1, {{.*}}count = 2 : i64, reverse
// BACK: braid.concat {{.*}} : (tensor<8x4xf32>, tensor<2x4xf32>) -> tensor<10x4xf32>
!x = tensor<1x8x4xf32>
!c = tensor<2x1xi32>
!w = tensor<4xf32>
func.func private @layer(%x: !x, %w: !w, %s: !c) -> (!x, !w) {
  %n = braid.rms_norm %x, %w {eps = 1.0e-6 : f64} : (!x, !w) -> !x
  %y = braid.comm.all_to_all %n send_counts(%s) recv_counts(%s) {axis = "ep", peers = 2 : i64} : (!x, !c, !c) -> !x
  return %y, %w : !x, !w
}
func.func @back(%x: !x, %ws: tensor<10x4xf32>, %s: !c) -> (!x, tensor<10x4xf32>) attributes {braid.entry} {
  %r:2 = braid.repeat %x, %ws {carried = 1 : i64, count = 10 : i64, reverse} : (!x, tensor<10x4xf32>) -> (!x, tensor<10x4xf32>) {
  ^bb0(%h: !x, %wl: !w):
    %y:2 = func.call @layer(%h, %wl, %s) : (!x, !w, !c) -> (!x, !w)
    "braid.yield"(%y#0, %y#1) : (!x, !w) -> ()
  }
  return %r#0, %r#1 : !x, tensor<10x4xf32>
}

// -----

// What stands between two iterations is a repeat that cannot be joined: nothing is written out.
// ALONE-LABEL: func.func @alone(
// ALONE: braid.repeat {{.*}}count = 4
// ALONE: braid.repeat {{.*}}count = 3
// ALONE: call @layer(
!x = tensor<1x8x4xf32>
!c = tensor<2x1xi32>
!w = tensor<4xf32>
func.func private @layer(%x: !x, %w: !w, %s: !c) -> (!x, !w) {
  %n = braid.rms_norm %x, %w {eps = 1.0e-6 : f64} : (!x, !w) -> !x
  %y = braid.comm.all_to_all %n send_counts(%s) recv_counts(%s) {axis = "ep", peers = 2 : i64} : (!x, !c, !c) -> !x
  return %y, %w : !x, !w
}
func.func private @dense(%x: !x) -> !x {
  %y = braid.activation %x {kind = "silu"} : (!x) -> !x
  return %y : !x
}
func.func @alone(%x: !x, %ws: tensor<4x4xf32>, %s: !c) -> (!x, tensor<4x4xf32>) attributes {braid.entry} {
  %r:2 = braid.repeat %x, %ws {carried = 1 : i64, count = 4 : i64} : (!x, tensor<4x4xf32>) -> (!x, tensor<4x4xf32>) {
  ^bb0(%h: !x, %wl: !w):
    %d = braid.repeat %h {carried = 1 : i64, count = 3 : i64} : (!x) -> !x {
    ^bb0(%g: !x):
      %z = func.call @dense(%g) : (!x) -> !x
      "braid.yield"(%z) : (!x) -> ()
    }
    %y:2 = func.call @layer(%d, %wl, %s) : (!x, !w, !c) -> (!x, !w)
    "braid.yield"(%y#0, %y#1) : (!x, !w) -> ()
  }
  return %r#0, %r#1 : !x, tensor<4x4xf32>
}

// -----

// An exchange between two layers that no layer waits for goes behind the last, with what reads it; one that the next layer reads separates them.
!x = tensor<1x8x4xf32>
!c = tensor<2x1xi32>
func.func private @layer(%x: !x, %s: !c) -> !x {
  %y = braid.comm.all_to_all %x send_counts(%s) recv_counts(%s) {axis = "ep", peers = 2 : i64} : (!x, !c, !c) -> !x
  return %y : !x
}
// CHECK-LABEL: func.func @sums(
// CHECK-NEXT: %[[J:.*]]:2 = call @joined_layer_x2(
// CHECK-NEXT: %[[G:.*]] = braid.comm.all_reduce %[[J]]#0
// CHECK-NEXT: %[[H:.*]] = braid.activation %[[G]]
// CHECK-NEXT: return %[[J]]#1, %[[H]]
func.func @sums(%x: !x, %s: !c) -> (!x, !x) attributes {braid.entry} {
  %0 = call @layer(%x, %s) : (!x, !c) -> !x
  %g = braid.comm.all_reduce %0 {axis = "dp"} : (!x) -> !x
  %h = braid.activation %g {kind = "silu"} : (!x) -> !x
  %1 = call @layer(%0, %s) : (!x, !c) -> !x
  return %1, %h : !x, !x
}
// CHECK-LABEL: func.func @reads(
// CHECK-NEXT: call @layer(
// CHECK-NEXT: braid.comm.all_reduce
// CHECK-NEXT: call @layer(
func.func @reads(%x: !x, %s: !c) -> !x attributes {braid.entry} {
  %0 = call @layer(%x, %s) : (!x, !c) -> !x
  %g = braid.comm.all_reduce %0 {axis = "dp"} : (!x) -> !x
  %1 = call @layer(%g, %s) : (!x, !c) -> !x
  return %1 : !x
}
