// Ranks exchange memory in one piece: parts along an inner dimension are packed in rank order before a reduce_scatter and unpacked
// behind an all_gather; parts along the leading dimension need nothing.
// RUN: braid-opt %s --split-input-file --braid-outline | FileCheck %s

!x = tensor<2x3x8xf32>

// CHECK-LABEL: func.func @leading(
// CHECK-NOT: tile.launch
// CHECK: braid.comm.all_gather %arg0 {axis = "tp", dim = 0 : i64} : (tensor<2x3x8xf32>) -> tensor<8x3x8xf32>
// CHECK: braid.comm.reduce_scatter %arg1 {axis = "tp", dim = 1 : i64} : (tensor<1x12x8xf32>) -> tensor<1x3x8xf32>
func.func @leading(%x: !x, %y: tensor<1x12x8xf32>) -> (tensor<8x3x8xf32>, tensor<1x3x8xf32>) {
  %0 = braid.comm.all_gather %x {axis = "tp", dim = 0 : i64} : (!x) -> tensor<8x3x8xf32>
  %1 = braid.comm.reduce_scatter %y {axis = "tp", dim = 1 : i64} : (tensor<1x12x8xf32>) -> tensor<1x3x8xf32>
  return %0, %1 : tensor<8x3x8xf32>, tensor<1x3x8xf32>
}

// -----

!x = tensor<2x3x8xf32>

// CHECK-LABEL: func.func @inner(
// CHECK: %[[X:.*]] = braid.reshape %arg0 : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
// CHECK: %[[G:.*]] = braid.comm.all_gather %[[X]] {axis = "tp", dim = 0 : i64, label = "heads"} : (tensor<6x8xf32>) -> tensor<24x8xf32>
// CHECK: %[[R:.*]] = braid.reshape %[[G]] : (tensor<24x8xf32>) -> tensor<4x6x8xf32>
// CHECK: %[[Y:.*]] = tile.launch @[[SWAP:swap_leading_f32]] grid [6, 4](%[[R]]) {{.*}}scalars = {size = 8 : index}} : (tensor<4x6x8xf32>) -> tensor<6x4x8xf32>
// CHECK: braid.reshape %[[Y]] : (tensor<6x4x8xf32>) -> tensor<2x3x32xf32>
// CHECK: %[[P:.*]] = braid.reshape %arg0 : (tensor<2x3x8xf32>) -> tensor<6x4x2xf32>
// CHECK: %[[Q:.*]] = tile.launch @[[SWAP]] grid [4, 6](%[[P]]) {{.*}}scalars = {size = 2 : index}} : (tensor<6x4x2xf32>) -> tensor<4x6x2xf32>
// CHECK: %[[V:.*]] = braid.reshape %[[Q]] : (tensor<4x6x2xf32>) -> tensor<24x2xf32>
// CHECK: %[[S:.*]] = braid.comm.reduce_scatter %[[V]] {axis = "tp", dim = 0 : i64} : (tensor<24x2xf32>) -> tensor<6x2xf32>
// CHECK: braid.reshape %[[S]] : (tensor<6x2xf32>) -> tensor<2x3x2xf32>
// CHECK: func.func @swap_leading_f32
// CHECK-NOT: func.func @swap_leading
func.func @inner(%x: !x) -> (tensor<2x3x32xf32>, tensor<2x3x2xf32>) {
  %0 = braid.comm.all_gather %x {axis = "tp", dim = 2 : i64, label = "heads"} : (!x) -> tensor<2x3x32xf32>
  %1 = braid.comm.reduce_scatter %x {axis = "tp", dim = 2 : i64} : (!x) -> tensor<2x3x2xf32>
  return %0, %1 : tensor<2x3x32xf32>, tensor<2x3x2xf32>
}

// -----

!x = tensor<2x4xbf16>

// Packed before the start, unpacked behind the await: what stands between them still overlaps.
// CHECK-LABEL: func.func @futures(
// CHECK: %[[F:.*]] = braid.comm.start all_gather %arg0 {axis = "tp", label = "q"} : (tensor<2x4xbf16>) -> !braid.future<tensor<4x4xbf16>>
// CHECK: %[[P:.*]] = tile.launch @swap_leading_bf16 grid [2, 2](
// CHECK: %[[G:.*]] = braid.comm.start reduce_scatter %{{.*}} {axis = "tp"} : (tensor<4x2xbf16>) -> !braid.future<tensor<2x2xbf16>>
// CHECK: tile.launch @fill_f32
// CHECK: %[[A:.*]] = braid.comm.await %[[F]] : (!braid.future<tensor<4x4xbf16>>) -> tensor<4x4xbf16>
// CHECK: tile.launch @swap_leading_bf16 grid [2, 2](
// CHECK: braid.comm.await %[[G]] : (!braid.future<tensor<2x2xbf16>>) -> tensor<2x2xbf16>
func.func @futures(%x: !x) -> (tensor<2x8xbf16>, tensor<2x2xbf16>, tensor<4xf32>) {
  %f = braid.comm.start all_gather %x {axis = "tp", dim = 1 : i64, label = "q"} : (!x) -> !braid.future<tensor<2x8xbf16>>
  %g = braid.comm.start reduce_scatter %x {axis = "tp", dim = 1 : i64} : (!x) -> !braid.future<tensor<2x2xbf16>>
  %work = arith.constant dense<1.0> : tensor<4xf32>
  %0 = braid.comm.await %f : (!braid.future<tensor<2x8xbf16>>) -> tensor<2x8xbf16>
  %1 = braid.comm.await %g : (!braid.future<tensor<2x2xbf16>>) -> tensor<2x2xbf16>
  return %0, %1, %work : tensor<2x8xbf16>, tensor<2x2xbf16>, tensor<4xf32>
}
