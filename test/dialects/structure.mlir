// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// Structure: equal layers, views, documents. The printed form and the generic form parse back to the same.

!x = tensor<2x8x16xf32>
!w = tensor<16x16xf32>

// One carried value, one stacked weight, one stacked result; an outer value is read by every layer.
// CHECK-LABEL: func.func @repeat(
func.func @repeat(%x: !x, %ws: tensor<3x16x16xf32>, %scale: tensor<16xf32>) -> (!x, tensor<3x2x8x16xf32>) {
  // CHECK: braid.repeat %arg0, %arg1 {carried = 1 : i64, count = 3 : i64} : (tensor<2x8x16xf32>, tensor<3x16x16xf32>) -> (tensor<2x8x16xf32>, tensor<3x2x8x16xf32>) {
  %y, %all = braid.repeat %x, %ws {count = 3 : i64, carried = 1 : i64} : (!x, tensor<3x16x16xf32>) -> (!x, tensor<3x2x8x16xf32>) {
  ^bb0(%in: !x, %w: !w):
    // CHECK: braid.linear %arg3, %arg4 : (tensor<2x8x16xf32>, tensor<16x16xf32>) -> tensor<2x8x16xf32>
    %0 = braid.linear %in, %w : (!x, !w) -> !x
    // CHECK: braid.weighted %{{.*}}, %arg2 : (tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
    %1 = braid.weighted %0, %scale : (!x, tensor<16xf32>) -> !x
    // CHECK: braid.yield %{{.*}}, %{{.*}} : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> ()
    braid.yield %1, %0 : (!x, !x) -> ()
  }
  return %y, %all : !x, tensor<3x2x8x16xf32>
}

// Nothing carried, last layer first.
// CHECK-LABEL: func.func @reverse(
func.func @reverse(%xs: tensor<3x8xf32>) -> tensor<3x8xf32> {
  // CHECK: braid.repeat %arg0 {carried = 0 : i64, count = 3 : i64, reverse} : (tensor<3x8xf32>) -> tensor<3x8xf32> {
  %y = braid.repeat %xs {count = 3 : i64, carried = 0 : i64, reverse} : (tensor<3x8xf32>) -> tensor<3x8xf32> {
  ^bb0(%x: tensor<8xf32>):
    // CHECK: braid.yield %arg1 : (tensor<8xf32>) -> ()
    braid.yield %x : (tensor<8xf32>) -> ()
  }
  return %y : tensor<3x8xf32>
}

// Two walks over six layers: what is stacked twice loses one dimension per repeat.
// CHECK-LABEL: func.func @nested(
func.func @nested(%x: !x, %ws: tensor<2x3x16x16xf32>) -> !x {
  // CHECK: braid.repeat %arg0, %arg1 {carried = 1 : i64, count = 2 : i64} : (tensor<2x8x16xf32>, tensor<2x3x16x16xf32>) -> tensor<2x8x16xf32> {
  %y = braid.repeat %x, %ws {count = 2 : i64, carried = 1 : i64} : (!x, tensor<2x3x16x16xf32>) -> !x {
  ^bb0(%in: !x, %inner: tensor<3x16x16xf32>):
    // CHECK: braid.repeat %arg2, %arg3 {carried = 1 : i64, count = 3 : i64} : (tensor<2x8x16xf32>, tensor<3x16x16xf32>) -> tensor<2x8x16xf32> {
    %z = braid.repeat %in, %inner {count = 3 : i64, carried = 1 : i64} : (!x, tensor<3x16x16xf32>) -> !x {
    ^bb0(%in2: !x, %w: !w):
      // CHECK: braid.linear %arg4, %arg5 : (tensor<2x8x16xf32>, tensor<16x16xf32>) -> tensor<2x8x16xf32>
      %0 = braid.linear %in2, %w : (!x, !w) -> !x
      // CHECK: braid.yield %{{.*}} : (tensor<2x8x16xf32>) -> ()
      braid.yield %0 : (!x) -> ()
    }
    // CHECK: braid.yield %{{.*}} : (tensor<2x8x16xf32>) -> ()
    braid.yield %z : (!x) -> ()
  }
  return %y : !x
}

// CHECK-LABEL: func.func @views(
func.func @views(%x: !x, %cu: tensor<2x4xi32>) -> (tensor<2x8x4x4xf32>, tensor<2x3x16xf32>, tensor<2x16x16xf32>, tensor<2x8xi32>, tensor<2x4xi32>) {
  // CHECK: braid.reshape %arg0 : (tensor<2x8x16xf32>) -> tensor<2x8x4x4xf32>
  %0 = braid.reshape %x : (!x) -> tensor<2x8x4x4xf32>
  // CHECK: braid.slice %arg0 {begin = 5 : i64, dim = 1 : i64} : (tensor<2x8x16xf32>) -> tensor<2x3x16xf32>
  %1 = braid.slice %x {begin = 5 : i64, dim = 1 : i64} : (!x) -> tensor<2x3x16xf32>
  // CHECK: braid.concat %arg0, %arg0 {dim = 1 : i64} : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x16x16xf32>
  %2 = braid.concat %x, %x {dim = 1 : i64} : (!x, !x) -> tensor<2x16x16xf32>
  // CHECK: braid.documents %arg1 : (tensor<2x4xi32>) -> tensor<2x8xi32>
  %3 = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x8xi32>
  // CHECK: braid.documents %arg1 {begin = 4 : i64} : (tensor<2x4xi32>) -> tensor<2x4xi32>
  %4 = braid.documents %cu {begin = 4 : i64} : (tensor<2x4xi32>) -> tensor<2x4xi32>
  return %0, %1, %2, %3, %4 : tensor<2x8x4x4xf32>, tensor<2x3x16xf32>, tensor<2x16x16xf32>, tensor<2x8xi32>, tensor<2x4xi32>
}

// CHECK-LABEL: func.func @last_token(
func.func @last_token(%x: !x, %documents: tensor<2x8xi32>) -> tensor<2x1x16xf32> {
  // CHECK: braid.last_token %arg0, %arg1 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x1x16xf32>
  %0 = braid.last_token %x, %documents : (!x, tensor<2x8xi32>) -> tensor<2x1x16xf32>
  return %0 : tensor<2x1x16xf32>
}

// A buffer that is filled part by part.
// CHECK-LABEL: func.func @filled(
func.func @filled(%a: tensor<2x4xf32>, %b: tensor<2x3xf32>) -> tensor<2x7xf32> {
  // CHECK: %[[FIRST:.*]] = braid.insert %arg0 {begin = 0 : i64, dim = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x7xf32>
  %0 = braid.insert %a {begin = 0 : i64, dim = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x7xf32>
  // CHECK: braid.insert %arg1, %[[FIRST]] {begin = 4 : i64, dim = 1 : i64} : (tensor<2x3xf32>, tensor<2x7xf32>) -> tensor<2x7xf32>
  %1 = braid.insert %b, %0 {begin = 4 : i64, dim = 1 : i64} : (tensor<2x3xf32>, tensor<2x7xf32>) -> tensor<2x7xf32>
  return %1 : tensor<2x7xf32>
}

// What a rank has of a tensor, and of a list of ids.
// CHECK-LABEL: func.func @parts(
func.func @parts(%x: tensor<8x4xf32>, %ids: tensor<2x8xi32>, %c: tensor<1xi32>) -> (tensor<4x4xf32>, tensor<8x1xf32>, tensor<2x8xi32>) {
  // CHECK: braid.shard %arg0, %arg2 {count = 2 : i64, dim = 0 : i64} : (tensor<8x4xf32>, tensor<1xi32>) -> tensor<4x4xf32>
  %0 = braid.shard %x, %c {count = 2 : i64, dim = 0 : i64} : (tensor<8x4xf32>, tensor<1xi32>) -> tensor<4x4xf32>
  // CHECK: braid.shard %arg0, %arg2 {count = 4 : i64, dim = 1 : i64} : (tensor<8x4xf32>, tensor<1xi32>) -> tensor<8x1xf32>
  %1 = braid.shard %x, %c {count = 4 : i64, dim = 1 : i64} : (tensor<8x4xf32>, tensor<1xi32>) -> tensor<8x1xf32>
  // CHECK: braid.local_ids %arg1, %arg2 {size = 16 : i64} : (tensor<2x8xi32>, tensor<1xi32>) -> tensor<2x8xi32>
  %2 = braid.local_ids %ids, %c {size = 16 : i64} : (tensor<2x8xi32>, tensor<1xi32>) -> tensor<2x8xi32>
  return %0, %1, %2 : tensor<4x4xf32>, tensor<8x1xf32>, tensor<2x8xi32>
}

// CHECK-LABEL: func.func @several_of_a_token
func.func @several_of_a_token(%x: tensor<2x8x4xf32>, %documents: tensor<2x8xi32>) -> (tensor<2x8x4xf32>, tensor<2x8xi32>) {
  // CHECK: %[[S:.*]] = braid.stack %arg0, %arg0 : (tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x2x4xf32>
  %0 = braid.stack %x, %x : (tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x2x4xf32>
  // CHECK: braid.pick %[[S]] {index = 1 : i64} : (tensor<2x8x2x4xf32>) -> tensor<2x8x4xf32>
  %1 = braid.pick %0 {index = 1 : i64} : (tensor<2x8x2x4xf32>) -> tensor<2x8x4xf32>
  // CHECK: braid.scale_documents %arg1 {begin = 1 : i64, count = 2 : i64} : (tensor<2x8xi32>) -> tensor<2x8xi32>
  %2 = braid.scale_documents %documents {begin = 1 : i64, count = 2 : i64} : (tensor<2x8xi32>) -> tensor<2x8xi32>
  return %1, %2 : tensor<2x8x4xf32>, tensor<2x8xi32>
}
