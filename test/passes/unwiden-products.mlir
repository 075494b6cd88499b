// RUN: braid-opt %s --braid-unwiden-products | FileCheck %s

// Large products read what was widened, forward and for the weight; nothing else reads the wide tensor.
// CHECK-LABEL: func.func @router(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<1x16384x1024xbf16>
// CHECK-NOT: braid.cast
// CHECK: braid.linear %[[X]], %{{.*}} : (tensor<1x16384x1024xbf16>, tensor<1024x64xf32>) -> tensor<1x16384x64xf32>
// CHECK: braid.linear_grad_weight %[[X]] cotangents
func.func @router(%x: tensor<1x16384x1024xbf16>, %w: tensor<1024x64xf32>, %dy: tensor<1x16384x64xf32>) -> (tensor<1x16384x64xf32>, tensor<1024x64xf32>) {
  %wide = braid.cast %x : (tensor<1x16384x1024xbf16>) -> tensor<1x16384x1024xf32>
  %y = braid.linear %wide, %w : (tensor<1x16384x1024xf32>, tensor<1024x64xf32>) -> tensor<1x16384x64xf32>
  %dw = braid.linear_grad_weight %wide cotangents(%dy) : (tensor<1x16384x1024xf32>, tensor<1x16384x64xf32>) -> tensor<1024x64xf32>
  return %y, %dw : tensor<1x16384x64xf32>, tensor<1024x64xf32>
}

// Small products, sums of more than 1024 terms, and what was f32 stay.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-2: braid.cast
// CHECK-NOT: braid.linear %{{.*}}bf16
// CHECK: return
func.func @others(%x: tensor<1x64x1024xbf16>, %long: tensor<1x16384x2048xbf16>, %f: tensor<1x16384x1024xf32>, %w: tensor<1024x64xf32>, %v: tensor<2048x64xf32>)
    -> (tensor<1x64x64xf32>, tensor<1x16384x64xf32>, tensor<1x16384x64xf32>) {
  %wide = braid.cast %x : (tensor<1x64x1024xbf16>) -> tensor<1x64x1024xf32>
  %y = braid.linear %wide, %w : (tensor<1x64x1024xf32>, tensor<1024x64xf32>) -> tensor<1x64x64xf32>
  %wider = braid.cast %long : (tensor<1x16384x2048xbf16>) -> tensor<1x16384x2048xf32>
  %z = braid.linear %wider, %v : (tensor<1x16384x2048xf32>, tensor<2048x64xf32>) -> tensor<1x16384x64xf32>
  %u = braid.linear %f, %w : (tensor<1x16384x1024xf32>, tensor<1024x64xf32>) -> tensor<1x16384x64xf32>
  return %y, %z, %u : tensor<1x64x64xf32>, tensor<1x16384x64xf32>, tensor<1x16384x64xf32>
}
