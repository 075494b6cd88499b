// Views that say nothing disappear.
// RUN: braid-opt %s --canonicalize | FileCheck %s

!x = tensor<2x6x4xf32>

// CHECK-LABEL: func.func @same_shape
// CHECK-NEXT: return %arg0
func.func @same_shape(%x: !x) -> !x {
  %0 = braid.reshape %x : (!x) -> !x
  return %0 : !x
}

// CHECK-LABEL: func.func @there_and_back
// CHECK-NEXT: return %arg0
func.func @there_and_back(%x: !x) -> !x {
  %0 = braid.reshape %x : (!x) -> tensor<48xf32>
  %1 = braid.reshape %0 : (tensor<48xf32>) -> !x
  return %1 : !x
}

// Three reshapes are one.
// CHECK-LABEL: func.func @reshape_of_reshape
// CHECK-NEXT: %[[Y:.*]] = braid.reshape %arg0 : (tensor<2x6x4xf32>) -> tensor<4x12xf32>
// CHECK-NEXT: return %[[Y]]
func.func @reshape_of_reshape(%x: !x) -> tensor<4x12xf32> {
  %0 = braid.reshape %x : (!x) -> tensor<48xf32>
  %1 = braid.reshape %0 : (tensor<48xf32>) -> tensor<6x8xf32>
  %2 = braid.reshape %1 : (tensor<6x8xf32>) -> tensor<4x12xf32>
  return %2 : tensor<4x12xf32>
}

// CHECK-LABEL: func.func @whole_slice
// CHECK-NEXT: return %arg0
func.func @whole_slice(%x: !x) -> !x {
  %0 = braid.slice %x {begin = 0 : i64, dim = 1 : i64} : (!x) -> !x
  return %0 : !x
}

// A slice that is exactly one part of a concat is that part; one that is not stays.
// CHECK-LABEL: func.func @slice_of_concat
// CHECK-NEXT: %[[C:.*]] = braid.concat %arg0, %arg1
// CHECK-NEXT: %[[S:.*]] = braid.slice %[[C]] {begin = 2 : i64, dim = 1 : i64}
// CHECK-NEXT: %[[T:.*]] = braid.slice %[[C]] {begin = 0 : i64, dim = 2 : i64}
// CHECK-NEXT: return %arg1, %[[S]], %[[T]]
func.func @slice_of_concat(%x: !x, %y: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x6x4xf32>, tensor<2x9x1xf32>) {
  %0 = braid.concat %x, %y {dim = 1 : i64} : (!x, tensor<2x3x4xf32>) -> tensor<2x9x4xf32>
  %1 = braid.slice %0 {begin = 6 : i64, dim = 1 : i64} : (tensor<2x9x4xf32>) -> tensor<2x3x4xf32>
  %2 = braid.slice %0 {begin = 2 : i64, dim = 1 : i64} : (tensor<2x9x4xf32>) -> tensor<2x6x4xf32>
  %3 = braid.slice %0 {begin = 0 : i64, dim = 2 : i64} : (tensor<2x9x4xf32>) -> tensor<2x9x1xf32>
  return %1, %2, %3 : tensor<2x3x4xf32>, tensor<2x6x4xf32>, tensor<2x9x1xf32>
}

// CHECK-LABEL: func.func @concat_of_one
// CHECK-NEXT: return %arg0
func.func @concat_of_one(%x: !x) -> !x {
  %0 = braid.concat %x {dim = 1 : i64} : (!x) -> !x
  return %0 : !x
}

// CHECK-LABEL: func.func @concat_of_slices
// CHECK-NEXT: return %arg0
func.func @concat_of_slices(%x: !x) -> !x {
  %0 = braid.slice %x {begin = 0 : i64, dim = 1 : i64} : (!x) -> tensor<2x2x4xf32>
  %1 = braid.slice %x {begin = 2 : i64, dim = 1 : i64} : (!x) -> tensor<2x4x4xf32>
  %2 = braid.concat %0, %1 {dim = 1 : i64} : (tensor<2x2x4xf32>, tensor<2x4x4xf32>) -> !x
  return %2 : !x
}

// In another order, from another dimension, of another value, or only a part: nothing folds.
// CHECK-LABEL: func.func @other_slices
// CHECK-COUNT-4: braid.concat
func.func @other_slices(%x: !x, %y: !x) -> (!x, tensor<2x3x8xf32>, !x, tensor<2x4x4xf32>) {
  %a = braid.slice %x {begin = 0 : i64, dim = 1 : i64} : (!x) -> tensor<2x3x4xf32>
  %b = braid.slice %x {begin = 3 : i64, dim = 1 : i64} : (!x) -> tensor<2x3x4xf32>
  %c = braid.slice %y {begin = 3 : i64, dim = 1 : i64} : (!x) -> tensor<2x3x4xf32>
  %d = braid.slice %x {begin = 3 : i64, dim = 1 : i64} : (!x) -> tensor<2x1x4xf32>
  %0 = braid.concat %b, %a {dim = 1 : i64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> !x
  %1 = braid.concat %a, %b {dim = 2 : i64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x8xf32>
  %2 = braid.concat %a, %c {dim = 1 : i64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> !x
  %3 = braid.concat %a, %d {dim = 1 : i64} : (tensor<2x3x4xf32>, tensor<2x1x4xf32>) -> tensor<2x4x4xf32>
  return %0, %1, %2, %3 : !x, tensor<2x3x8xf32>, !x, tensor<2x4x4xf32>
}

// Collectives are never merged, hoisted or dropped; what is pure and unread goes.
// CHECK-LABEL: func.func @collectives
// CHECK-NEXT: braid.comm.all_reduce
// CHECK-NEXT: braid.comm.all_reduce
// CHECK-NEXT: return
func.func @collectives(%x: !x) {
  %0 = braid.comm.all_reduce %x {axis = "dp"} : (!x) -> !x
  %1 = braid.comm.all_reduce %x {axis = "dp"} : (!x) -> !x
  %2 = braid.scale %1 {value = 2.0 : f64} : (!x) -> !x
  return
}
