// Squares of gradients of experts' weights, added up by their products where the norm reads them as they were made (outline/GradientSquares.cpp).
// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s
// RUN: braid-opt %s --braid-outline | FileCheck %s --check-prefix=CPU

!x = tensor<1x4096x512xbf16>
!dy = tensor<1x4096x256xbf16>
!o = tensor<33xi32>
!w = tensor<32x512x256xf32>

// The layer's function returns them, its calls and the repeat around them hand them on, stacked as the gradients are.
// CHECK-LABEL: func.func private @layer(
// CHECK-SAME: -> (tensor<32x512x256xf32>, tensor<1x32x512xf32>)
// CHECK: %[[W:.*]]:2 = tile.launch @gemm_weights_squares_f32_128x256x64 grid [1, 4, 32]({{.*}}products = 536870912 : i64
// CHECK: return %[[W]]#0, %[[W]]#1
// CPU-LABEL: func.func private @layer(
// CPU-SAME: -> tensor<32x512x256xf32>
// CPU: tile.grouped_gemm
func.func private @layer(%x: !x, %dy: !dy, %o: !o) -> !w {
  %dw = braid.moe.grouped_linear_grad_weight %x offsets(%o) cotangents(%dy) : (!x, !o, !dy) -> !w
  return %dw : !w
}

// CHECK-LABEL: func.func @norm(
// CHECK: %[[G:.*]]:2 = braid.repeat
// CHECK: %[[L:.*]]:2 = func.call @layer
// CHECK: braid.yield %[[L]]#0, %[[L]]#1
// What is added to, and what is no gradient of experts, is read once more.
// CHECK: %[[FLAT:.*]] = braid.reshape %[[G]]#1 : (tensor<3x1x32x512xf32>) -> tensor<49152xf32>
// CHECK: tile.launch @sum_f32_f32 grid [48](%[[FLAT]])
// CHECK: tile.launch @sum_squares_f32_f32
// CHECK: tile.launch @sum_squares_f32_f32
// CHECK: %[[OWN:.*]] = braid.reshape {{.*}} : (tensor<1x32x512xf32>) -> tensor<16384xf32>
// CHECK: tile.launch @sum_f32_f32 grid [16](%[[OWN]])
// CHECK: return
// CPU-LABEL: func.func @norm(
// CPU-COUNT-4: tile.launch @sum_squares_f32_f32
func.func @norm(%xs: tensor<3x1x4096x512xbf16>, %dys: tensor<3x1x4096x256xbf16>, %x: !x, %dy: !dy, %o: !o, %before: !w, %other: tensor<64xf32>) -> (tensor<1xf32>, tensor<3x32x512x256xf32>) {
  %g = braid.repeat %xs, %dys {carried = 0 : i64, count = 3 : i64} : (tensor<3x1x4096x512xbf16>, tensor<3x1x4096x256xbf16>) -> tensor<3x32x512x256xf32> {
  ^bb0(%each: !x, %cotangent: !dy):
    %dw = func.call @layer(%each, %cotangent, %o) : (!x, !dy, !o) -> !w
    braid.yield %dw : (!w) -> ()
  }
  %sum = braid.moe.grouped_linear_grad_weight %x offsets(%o) cotangents(%dy) sums(%before) : (!x, !o, !dy, !w) -> !w
  %own = braid.moe.grouped_linear_grad_weight %x offsets(%o) cotangents(%dy) : (!x, !o, !dy) -> !w
  %norm = braid.sum_squares %g, %sum, %other, %own : (tensor<3x32x512x256xf32>, !w, tensor<64xf32>, !w) -> tensor<1xf32>
  return %norm, %g : tensor<1xf32>, tensor<3x32x512x256xf32>
}

// Of gradients in bf16 the squares are those of what is stored, and no second kernel rounds them.
// CHECK-LABEL: func.func @narrow(
// CHECK-NOT: @round_
// CHECK: %[[N:.*]]:2 = tile.launch @gemm_weights_squares_bf16_128x256x64
// CHECK-NOT: @round_
// CHECK: tile.launch @sum_f32_f32 grid [16]
// CHECK: return %{{.*}}, %[[N]]#0
// CPU-LABEL: func.func @narrow(
// CPU: tile.launch @round_f32_bf16
// CPU: tile.launch @sum_squares_bf16_f32
func.func @narrow(%x: !x, %dy: !dy, %o: !o) -> (tensor<1xf32>, tensor<32x512x256xbf16>) {
  %dw = braid.moe.grouped_linear_grad_weight %x offsets(%o) cotangents(%dy) : (!x, !o, !dy) -> tensor<32x512x256xbf16>
  %norm = braid.sum_squares %dw : (tensor<32x512x256xbf16>) -> tensor<1xf32>
  return %norm, %dw : tensor<1xf32>, tensor<32x512x256xbf16>
}

// Nor of one whose norm nobody asks for.
// CHECK-LABEL: func.func @kept(
// CHECK: tile.grouped_gemm
// CHECK-NOT: @round_
// CHECK: return
// CPU-LABEL: func.func @kept(
// CPU: tile.launch @round_f32_bf16
func.func @kept(%x: !x, %dy: !dy, %o: !o) -> tensor<32x512x256xbf16> {
  %dw = braid.moe.grouped_linear_grad_weight %x offsets(%o) cotangents(%dy) : (!x, !o, !dy) -> tensor<32x512x256xbf16>
  return %dw : tensor<32x512x256xbf16>
}

// CHECK: func.func @gemm_weights_squares_f32_128x256x64(
// CHECK-SAME: tile.boxes
// CHECK: tile.store %[[SUM:[0-9]+]], %{{.*}} : vector<128x256xf32>
// CHECK: %[[SQUARES:.*]] = arith.mulf %[[SUM]], %[[SUM]]
// CHECK: tile.reduce add %[[SQUARES]] {axis = 1 : i64}
