// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// Capacity of experts: dropping, and plans whose experts all have the same number of rows.

!ids = tensor<2x8x2xi32>
!d = tensor<2x8xi32>
!taken = tensor<2x4xi32>
!e = tensor<4xi32>
!keys = tensor<2x3xi64>

// CHECK-LABEL: func.func @drop(
func.func @drop(%ids: !ids, %weights: tensor<2x8x2xf32>, %documents: !d, %taken: !taken, %keys: !keys, %devices: tensor<2x2xi32>) {
  // CHECK: braid.moe.drop %arg0 documents(%arg2) taken(%arg3) {capacity = 3 : i64, policy = "token"} : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  %r:4 = braid.moe.drop %ids documents(%documents) taken(%taken) {capacity = 3 : i64, policy = "token"} : (!ids, !d, !taken) -> (!ids, !e, !e, !taken)
  // CHECK: braid.moe.drop %arg0 weights(%arg1) documents(%arg2) taken(%arg3) {capacity = 3 : i64, policy = "bpr"}
  %s:4 = braid.moe.drop %ids weights(%weights) documents(%documents) taken(%taken) {capacity = 3 : i64, policy = "bpr"} : (!ids, tensor<2x8x2xf32>, !d, !taken) -> (!ids, !e, !e, !taken)
  // CHECK: braid.moe.drop %arg0 documents(%arg2) taken(%arg3) draw_keys(%arg4) {capacity = 3 : i64, policy = "random"} : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>, tensor<2x3xi64>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>, tensor<2x3xi64>)
  %t:5 = braid.moe.drop %ids documents(%documents) taken(%taken) draw_keys(%keys) {capacity = 3 : i64, policy = "random"} : (!ids, !d, !taken, !keys) -> (!ids, !e, !e, !taken, !keys)
  // Two devices of two experts each; the next op draws by its own keys.
  // CHECK: braid.moe.drop %arg0 weights(%arg1) documents(%arg2) taken(%{{.*}}) draw_keys(%new_draw_keys) {bucket = 2 : i64, capacity = 6 : i64, policy = "device", protect = 1.000000e-01 : f64}
  %u:5 = braid.moe.drop %ids weights(%weights) documents(%documents) taken(%devices) draw_keys(%t#4) {capacity = 6 : i64, policy = "device", bucket = 2 : i64, protect = 0.1 : f64} : (!ids, tensor<2x8x2xf32>, !d, tensor<2x2xi32>, !keys) -> (!ids, !e, !e, tensor<2x2xi32>, !keys)
  // CHECK: braid.moe.renormalize %arg1, %kept_8 : (tensor<2x8x2xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2xf32>
  %w = braid.moe.renormalize %weights, %u#0 : (tensor<2x8x2xf32>, !ids) -> tensor<2x8x2xf32>
  // Four experts of six rows each; with two peers two experts each.
  // CHECK: braid.moe.plan {{.*}} {expert_rows = 6 : i64, num_experts = 4 : i64}
  %p:6 = "braid.moe.plan"(%r#0, %documents) <{expert_rows = 6 : i64, num_experts = 4 : i64}> : (!ids, !d) -> (tensor<24xi32>, !ids, !e, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  // CHECK: braid.moe.plan {{.*}} {expert_rows = 6 : i64, num_experts = 4 : i64, peer_rows = 12 : i64, peers = 2 : i64}
  %q:6 = "braid.moe.plan"(%r#0, %documents) <{expert_rows = 6 : i64, num_experts = 4 : i64, peers = 2 : i64, peer_rows = 12 : i64}> : (!ids, !d) -> (tensor<24xi32>, !ids, !e, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}
