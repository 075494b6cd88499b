// Products of f32 in parts of bf16 (outline/SplitProducts.cpp): of GPUs whose products are kernels.
// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s
// RUN: braid-opt %s --braid-outline="gpu cublaslt" | FileCheck %s --check-prefix=LIBRARY
// RUN: braid-opt %s --braid-outline="gpu f32-parts=false" | FileCheck %s --check-prefix=LIBRARY
// RUN: braid-opt %s --braid-count-work="gpu library=false f32-parts=false" | FileCheck %s --check-prefix=COUNT

// Three products where one operand is bf16, small parts first.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<1x16384x1024xbf16>
// CHECK: %[[W:.*]]:3 = tile.launch @split_f32_bf16
// CHECK: tile.launch @gemm_sum_f32_nn_64x64_3x64
// CHECK-SAME: arg_names = ["a0", "b0", "a1", "b1", "a2", "b2"]
// COUNT-LABEL: func.func @forward(
// COUNT: generated: a dense matrix product
// LIBRARY-LABEL: func.func @forward(
// LIBRARY-NOT: split_f32
// LIBRARY: tile.gemm
func.func @forward(%x: tensor<1x16384x1024xbf16>, %w: tensor<1024x64xf32>) -> tensor<1x16384x64xf32> {
  %y = braid.linear %x, %w : (tensor<1x16384x1024xbf16>, tensor<1024x64xf32>) -> tensor<1x16384x64xf32>
  return %y : tensor<1x16384x64xf32>
}

// Six where none is; a matrix is cut in parts once. Sums over tokens have at most 1024 terms, and their parts are added up in f32.
// CHECK-LABEL: func.func @backward(
// CHECK: tile.launch @split_f32_bf16
// CHECK: tile.launch @split_f32_bf16
// CHECK: tile.launch @gemm_sum_f32_nt_128x256_6x64
// CHECK-NOT: tile.launch @split_f32_bf16
// CHECK: tile.launch @gemm_parts_bf16_64x64x64_sum3 grid [1, 16, 16]
// CHECK-SAME: arg_names = ["a0", "b0", "a1", "b1", "a2", "b2"]
// CHECK-SAME: -> tensor<16x1024x64xf32>
// CHECK: tile.launch @sum_rows_f32
func.func @backward(%x: tensor<1x16384x1024xbf16>, %w: tensor<1024x64xf32>, %dy: tensor<1x16384x64xf32>) -> (tensor<1x16384x1024xf32>, tensor<1024x64xf32>) {
  %dx = braid.linear_grad_data cotangents(%dy) weights(%w) : (tensor<1x16384x64xf32>, tensor<1024x64xf32>) -> tensor<1x16384x1024xf32>
  %dw = braid.linear_grad_weight %x cotangents(%dy) : (tensor<1x16384x1024xbf16>, tensor<1x16384x64xf32>) -> tensor<1024x64xf32>
  return %dx, %dw : tensor<1x16384x1024xf32>, tensor<1024x64xf32>
}

// Parts of x would take longer than the product on FMA units; sums are longer than 1024; too small.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: split_f32
// CHECK-COUNT-3: tile.gemm
func.func @others(%x: tensor<1x16384x1024xf32>, %w: tensor<1024x64xf32>, %long: tensor<1x16384x2048xbf16>, %v: tensor<2048x64xf32>, %few: tensor<1x128x1024xbf16>)
    -> (tensor<1x16384x64xf32>, tensor<1x16384x64xf32>, tensor<1x128x64xf32>) {
  %y = braid.linear %x, %w : (tensor<1x16384x1024xf32>, tensor<1024x64xf32>) -> tensor<1x16384x64xf32>
  %z = braid.linear %long, %v : (tensor<1x16384x2048xbf16>, tensor<2048x64xf32>) -> tensor<1x16384x64xf32>
  %u = braid.linear %few, %w : (tensor<1x128x1024xbf16>, tensor<1024x64xf32>) -> tensor<1x128x64xf32>
  return %y, %z, %u : tensor<1x16384x64xf32>, tensor<1x16384x64xf32>, tensor<1x128x64xf32>
}
