// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// Capacity of experts: dropping, and plans whose experts all have the same number of rows.

!ids = tensor<2x8x2xi32>
!d = tensor<2x8xi32>
!taken = tensor<2x4xi32>
!e = tensor<4xi32>

// CHECK-LABEL: func.func @drop(
func.func @drop(%ids: !ids, %weights: tensor<2x8x2xf32>, %documents: !d, %taken: !taken) {
  // CHECK: braid.moe.drop %arg0 documents(%arg2) taken(%arg3) {capacity = 3 : i64, policy = "token"} : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  %r:4 = braid.moe.drop %ids documents(%documents) taken(%taken) {capacity = 3 : i64, policy = "token"} : (!ids, !d, !taken) -> (!ids, !e, !e, !taken)
  // CHECK: braid.moe.drop %arg0 weights(%arg1) documents(%arg2) taken(%arg3) {capacity = 3 : i64, policy = "bpr"}
  %s:4 = braid.moe.drop %ids weights(%weights) documents(%documents) taken(%taken) {capacity = 3 : i64, policy = "bpr"} : (!ids, tensor<2x8x2xf32>, !d, !taken) -> (!ids, !e, !e, !taken)
  // Four experts of six rows each; with two peers two experts each.
  // CHECK: braid.moe.plan {{.*}} {expert_rows = 6 : i64, num_experts = 4 : i64}
  %p:6 = "braid.moe.plan"(%r#0, %documents) <{expert_rows = 6 : i64, num_experts = 4 : i64}> : (!ids, !d) -> (tensor<24xi32>, !ids, !e, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  // CHECK: braid.moe.plan {{.*}} {expert_rows = 6 : i64, num_experts = 4 : i64, peer_rows = 12 : i64, peers = 2 : i64}
  %q:6 = "braid.moe.plan"(%r#0, %documents) <{expert_rows = 6 : i64, num_experts = 4 : i64, peers = 2 : i64, peer_rows = 12 : i64}> : (!ids, !d) -> (tensor<24xi32>, !ids, !e, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}
