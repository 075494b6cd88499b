// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// Routing, plans, rows of experts. The printed form and the generic form parse back to the same.
// B T = 16 tokens, 2 slots, 4 experts: 32 rows.

!x = tensor<2x8x16xf32>
!logits = tensor<2x8x4xf32>
!ids = tensor<2x8x2xi32>
!docs = tensor<2x8xi32>
!k = tensor<2x8x2xf32>
!rows = tensor<1x32x16xf32>
!wide = tensor<1x32x24xf32>
!perm = tensor<32xi32>
!off = tensor<5xi32>
!w = tensor<4x16x24xf32>
!i = tensor<1xi32>

// CHECK-LABEL: func.func @route(
func.func @route(%logits: !logits, %counts: tensor<4xi32>, %documents: !docs) {
  // CHECK: braid.moe.route %arg0 {top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  %ids = braid.moe.route %logits {top_k = 2 : i64} : (!logits) -> !ids
  // CHECK: braid.moe.route_weights %arg0, %{{.*}} {normalize = true} : (tensor<2x8x4xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2xf32>
  %weights = braid.moe.route_weights %logits, %ids {normalize = true} : (!logits, !ids) -> !k
  // CHECK: braid.moe.router_loss %arg0, %arg1, %arg2 {balance = 1.000000e-02 : f64, top_k = 2 : i64, z = 1.000000e-03 : f64} : (tensor<2x8x4xf32>, tensor<4xi32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  %loss = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (!logits, tensor<4xi32>, !docs) -> tensor<2x8xf32>
  // CHECK: braid.moe.route %arg0 {group_top = 2 : i64, groups = 2 : i64, top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  %limited = braid.moe.route %logits {top_k = 2 : i64, groups = 2 : i64, group_top = 2 : i64} : (!logits) -> !ids
  // CHECK: braid.moe.route_weights %arg0, %{{.*}} {normalize = true, score = "sigmoid"} : (tensor<2x8x4xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2xf32>
  %shares = braid.moe.route_weights %logits, %limited {normalize = true, score = "sigmoid"} : (!logits, !ids) -> !k
  return
}

// CHECK-LABEL: func.func @correct(
func.func @correct(%correction: tensor<1x3x4xf32>, %load: tensor<1x3x4xf32>) {
  // CHECK: braid.moe.correct %arg0, %arg1 {rate = 1.250000e-01 : f64} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
  %after = braid.moe.correct %correction, %load {rate = 0.125 : f64} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
  return
}

// CHECK-LABEL: func.func @plan(
func.func @plan(%ids: !ids, %documents: !docs) {
  // CHECK: braid.moe.plan %arg0, %arg1 {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  %r:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (!ids, !docs) -> (!perm, !ids, tensor<4xi32>, !off, !i, !i)
  // Two peers, a block of 24 rows each.
  // CHECK: braid.moe.plan %arg0, %arg1 {num_experts = 4 : i64, peer_rows = 24 : i64, peers = 2 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<48xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  %s:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64, peer_rows = 24 : i64, peers = 2 : i64} : (!ids, !docs) -> (tensor<48xi32>, !ids, tensor<4xi32>, !off, !i, !i)
  // CHECK: braid.reshape %counts_2 : (tensor<4xi32>) -> tensor<2x2xi32>
  %counts = braid.reshape %s#2 : (tensor<4xi32>) -> tensor<2x2xi32>
  // CHECK: braid.moe.plan_received %{{.*}} {peer_rows = 24 : i64} : (tensor<2x2xi32>) -> (tensor<48xi32>, tensor<48xi32>, tensor<3xi32>)
  %t:3 = braid.moe.plan_received %counts {peer_rows = 24 : i64} : (tensor<2x2xi32>) -> (tensor<48xi32>, tensor<48xi32>, tensor<3xi32>)
  return
}

// CHECK-LABEL: func.func @rows(
func.func @rows(%x: !x, %weights: !k, %perm: !perm, %inverse: !ids, %back: !perm, %exchange: !i) {
  // CHECK: braid.moe.dispatch %arg0 plan(%arg2, %arg3, %arg5) : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  %rows = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (!x, !perm, !ids, !i) -> !rows
  // CHECK: braid.moe.permute %{{.*}} plan(%arg2, %arg4) : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<32xi32>) -> tensor<1x32x16xf32>
  %p = braid.moe.permute %rows plan(%perm, %back) : (!rows, !perm, !perm) -> !rows
  // CHECK: braid.moe.combine %{{.*}} weights(%arg1) plan(%arg2, %arg3, %arg5) : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  %y, %returned = braid.moe.combine %p weights(%weights) plan(%perm, %inverse, %exchange) : (!rows, !k, !perm, !ids, !i) -> (!x, !rows)
  // CHECK: braid.moe.combine %{{.*}} plan(%arg2, %arg3, %arg5) : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  %dx, %unused = braid.moe.combine %p plan(%perm, %inverse, %exchange) : (!rows, !perm, !ids, !i) -> (!x, !rows)
  // CHECK: braid.moe.row_weights %arg1 plan(%arg2, %arg3) : (tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>) -> tensor<1x32xf32>
  %numbers = braid.moe.row_weights %weights plan(%perm, %inverse) : (!k, !perm, !ids) -> tensor<1x32xf32>
  // CHECK: braid.moe.row_weights_grad cotangents(%{{.*}}) plan(%arg3) : (tensor<1x32xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2xf32>
  %dnumbers = braid.moe.row_weights_grad cotangents(%numbers) plan(%inverse) : (tensor<1x32xf32>, !ids) -> !k
  // CHECK: braid.moe.combine_grad cotangents(%y) returned(%returned) weights(%arg1) plan(%arg2, %arg3, %arg5) : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  %drows, %dweights = braid.moe.combine_grad cotangents(%y) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange) : (!x, !rows, !k, !perm, !ids, !i) -> (!rows, !k)
  return
}

// CHECK-LABEL: func.func @experts(
func.func @experts(%x: !rows, %offsets: !off, %up: !w, %gate: !w) {
  // CHECK: braid.moe.grouped_linear %arg0 offsets(%arg1) weights(%arg2, %arg3) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x24xf32>, tensor<4x16x24xf32>) -> (tensor<1x32x24xf32>, tensor<1x32x24xf32>)
  %y:2 = braid.moe.grouped_linear %x offsets(%offsets) weights(%up, %gate) : (!rows, !off, !w, !w) -> (!wide, !wide)
  // CHECK: braid.moe.grouped_linear_grad_data cotangents(%{{.*}}#0, %{{.*}}#1) offsets(%arg1) weights(%arg2, %arg3) : (tensor<1x32x24xf32>, tensor<1x32x24xf32>, tensor<5xi32>, tensor<4x16x24xf32>, tensor<4x16x24xf32>) -> tensor<1x32x16xf32>
  %dx = braid.moe.grouped_linear_grad_data cotangents(%y#0, %y#1) offsets(%offsets) weights(%up, %gate) : (!wide, !wide, !off, !w, !w) -> !rows
  // CHECK: braid.moe.grouped_linear_grad_weight %arg0 offsets(%arg1) cotangents(%{{.*}}#0, %{{.*}}#1) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<1x32x24xf32>, tensor<1x32x24xf32>) -> (tensor<4x16x24xf32>, tensor<4x16x24xf32>)
  %dw:2 = braid.moe.grouped_linear_grad_weight %x offsets(%offsets) cotangents(%y#0, %y#1) : (!rows, !off, !wide, !wide) -> (!w, !w)
  return
}

// A bias of every expert for its rows; of rows that are sums one rank adds it.
// CHECK-LABEL: func.func @group_bias(
func.func @group_bias(%x: !rows, %offsets: !off, %bias: tensor<4x16xf32>, %place: tensor<1xi32>) {
  // CHECK: braid.moe.group_bias %arg0 offsets(%arg1) bias(%arg2) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16xf32>) -> tensor<1x32x16xf32>
  %y = braid.moe.group_bias %x offsets(%offsets) bias(%bias) : (!rows, !off, tensor<4x16xf32>) -> !rows
  // CHECK: braid.moe.group_bias %arg0 offsets(%arg1) bias(%arg2), %arg3 : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16xf32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  %z = braid.moe.group_bias %x offsets(%offsets) bias(%bias), %place : (!rows, !off, tensor<4x16xf32>, tensor<1xi32>) -> !rows
  // CHECK: braid.moe.group_bias_grad cotangents(%{{.*}}) offsets(%arg1) : (tensor<1x32x16xf32>, tensor<5xi32>) -> tensor<4x16xf32>
  %d = braid.moe.group_bias_grad cotangents(%y) offsets(%offsets) : (!rows, !off) -> tensor<4x16xf32>
  return
}
