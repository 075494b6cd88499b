// RUN: braid-opt %s --braid-ungroup-norms | FileCheck %s
// RUN: braid-opt %s --braid-ungroup-norms --braid-fuse-rows | FileCheck %s --check-prefix=FUSED

// Groups are heads: what had them before needs no other shape, and shares a kernel with the norm.
// CHECK-LABEL: func.func @gated(
// CHECK: %[[Y:.*]] = braid.add %{{.*}} : (tensor<2x8x4x8xbf16>, tensor<2x8x4x8xbf16>) -> tensor<2x8x4x8xbf16>
// CHECK: %[[G:.*]] = braid.reshape %{{.*}} : (tensor<2x8x32xbf16>) -> tensor<2x8x4x8xbf16>
// CHECK: %[[W:.*]] = braid.reshape %{{.*}} : (tensor<32xf32>) -> tensor<4x8xf32>
// CHECK: %[[N:.*]] = braid.gated_norm %[[Y]], %[[G]], %[[W]] {activation = "silu", eps = 1.000000e-05 : f64, norm_first = false}
// CHECK: %[[M:.*]] = braid.reshape %[[N]] : (tensor<2x8x4x8xbf16>) -> tensor<2x8x32xbf16>
// CHECK: return %[[M]], %[[Y]]
// FUSED-LABEL: func.func @gated(
// FUSED: braid.add {{.*}}{braid.cluster = [[C:[0-9]+]] : i64}
// FUSED-NEXT: braid.gated_norm {{.*}}braid.cluster = [[C]]
func.func @gated(%o: tensor<2x8x4x8xbf16>, %skip: tensor<2x8x4x8xbf16>, %g: tensor<2x8x32xbf16>, %w: tensor<32xf32>)
    -> (tensor<2x8x32xbf16>, tensor<2x8x4x8xbf16>) {
  %y = braid.add %o, %skip : (tensor<2x8x4x8xbf16>, tensor<2x8x4x8xbf16>) -> tensor<2x8x4x8xbf16>
  %flat = braid.reshape %y : (tensor<2x8x4x8xbf16>) -> tensor<2x8x32xbf16>
  %n = braid.gated_norm %flat, %g, %w {activation = "silu", eps = 1.0e-5, groups = 4 : i64, norm_first = false} : (tensor<2x8x32xbf16>, tensor<2x8x32xbf16>, tensor<32xf32>) -> tensor<2x8x32xbf16>
  return %n, %y : tensor<2x8x32xbf16>, tensor<2x8x4x8xbf16>
}

// So do gradients; the one of the weight is put together again, and nothing that has heads behind it goes another way.
// CHECK-LABEL: func.func @gradient(
// CHECK: %[[D:.*]]:2 = braid.rows_grad "braid.rms_norm"(%{{.*}}, %{{.*}}) cotangents(%{{.*}}) {op_attributes = {eps = 9.9999999999999995E-7 : f64, groups = 1 : i64}, wanted = array<i64: 0, 1>} : (tensor<2x8x4x8xf32>, tensor<4x8xf32>, tensor<2x8x4x8xf32>) -> (tensor<2x8x4x8xf32>, tensor<4x8xf32>)
// CHECK-NEXT: %[[DW:.*]] = braid.reshape %[[D]]#1 : (tensor<4x8xf32>) -> tensor<32xf32>
// CHECK-NEXT: return %[[D]]#0, %[[DW]]
func.func @gradient(%x: tensor<2x8x32xf32>, %w: tensor<32xf32>, %dy: tensor<2x8x32xf32>) -> (tensor<2x8x4x8xf32>, tensor<32xf32>) {
  %d:2 = braid.rows_grad "braid.rms_norm"(%x, %w) cotangents(%dy) {op_attributes = {eps = 1.0e-6 : f64, groups = 4 : i64}, wanted = array<i64: 0, 1>} : (tensor<2x8x32xf32>, tensor<32xf32>, tensor<2x8x32xf32>) -> (tensor<2x8x32xf32>, tensor<32xf32>)
  %heads = braid.reshape %d#0 : (tensor<2x8x32xf32>) -> tensor<2x8x4x8xf32>
  return %heads, %d#1 : tensor<2x8x4x8xf32>, tensor<32xf32>
}

// One group stays as it is.
// CHECK-LABEL: func.func @one(
// CHECK-NEXT: braid.rms_norm %{{.*}} : (tensor<2x8x32xf32>, tensor<32xf32>) -> tensor<2x8x32xf32>
func.func @one(%x: tensor<2x8x32xf32>, %w: tensor<32xf32>) -> tensor<2x8x32xf32> {
  %y = braid.rms_norm %x, %w {eps = 1.0e-6} : (tensor<2x8x32xf32>, tensor<32xf32>) -> tensor<2x8x32xf32>
  return %y : tensor<2x8x32xf32>
}
