// RUN: braid-opt %s --braid-apply-sharding="mesh=dp=2,ep=2" --split-input-file --verify-diagnostics | FileCheck %s
// RUN: braid-opt %s --braid-apply-sharding="mesh=dp=2,ep=2 sliced=true" --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=SLICED

!x = tensor<2x8x16xf32>
!rows = tensor<1x32x16xf32>
// A layer with experts on two ranks: the batch is halved, each rank keeps two of four experts; rows travel to the experts and back,
// counts before them. In the worst case all 16 assignments of a rank go to one peer: 16 rows a peer.
// CHECK-LABEL: func.func private @layer(
// CHECK-SAME: tensor<1x8x16xf32>, %[[DOCUMENTS:[^:]*]]: tensor<1x8xi32>, %{{.*}}: tensor<2x16x16xf32>
// CHECK: %[[IDS:.*]] = braid.moe.route %{{.*}} -> tensor<1x8x2xi32>
// CHECK: %[[PERM:.*]], %[[INVERSE:.*]], %[[COUNTS:.*]], %{{.*}}, %{{.*}}, %{{.*}} = braid.moe.plan %[[IDS]], %[[DOCUMENTS]] {num_experts = 4 : i64, peer_rows = 16 : i64, peers = 2 : i64} : (tensor<1x8x2xi32>, tensor<1x8xi32>) -> (tensor<32xi32>, tensor<1x8x2xi32>, tensor<4xi32>
// CHECK: %[[SEND:.*]] = braid.reshape %[[COUNTS]] : (tensor<4xi32>) -> tensor<2x2xi32>
// CHECK: %[[RECEIVE:.*]] = braid.comm.all_to_all %[[SEND]] {axis = "ep", label = "moe.counts"
// CHECK: braid.moe.plan_received %[[RECEIVE]] {peer_rows = 16 : i64} : (tensor<2x2xi32>) -> (tensor<32xi32>, tensor<32xi32>, tensor<3xi32>)
// CHECK: %[[PACKED:.*]] = braid.moe.dispatch %{{.*}} plan(%[[PERM]], %[[INVERSE]],
// CHECK: braid.comm.all_to_all %[[PACKED]] send_counts(%{{.*}}) recv_counts(%{{.*}}) {axis = "ep", label = "moe.dispatch"
// CHECK: braid.moe.permute
// CHECK: braid.moe.grouped_linear {{.*}} : (tensor<1x32x16xf32>, tensor<3xi32>, tensor<2x16x16xf32>)
// CHECK: braid.moe.permute
// CHECK: %[[BACK:.*]] = braid.comm.all_to_all {{.*}}label = "moe.combine"
// CHECK: braid.moe.combine %[[BACK]]
func.func private @layer(%x: !x, %documents: tensor<2x8xi32>, %w: tensor<4x16x16xf32>, %router: tensor<16x4xf32>) -> !x {
  %logits = braid.linear %x, %router : (!x, tensor<16x4xf32>) -> tensor<2x8x4xf32>
  %ids = braid.moe.route %logits {top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  %weights = braid.moe.route_weights %logits, %ids {normalize = true} : (tensor<2x8x4xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2xf32>
  %perm, %inverse, %counts, %offsets, %overflow, %exchange = braid.moe.plan %ids, %documents {num_experts = 4 : i64}
      : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  %rows = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (!x, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> !rows
  %out = braid.moe.grouped_linear %rows offsets(%offsets) weights(%w) : (!rows, tensor<5xi32>, tensor<4x16x16xf32>) -> !rows
  %y, %returned = braid.moe.combine %out weights(%weights) plan(%perm, %inverse, %exchange)
      : (!rows, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (!x, !rows)
  return %y : !x
}
// Parameters say which rank holds what; the head's gradient is a sum over dp, the experts' over edp (size 1: nothing).
// CHECK-LABEL: func.func @step(
// CHECK-SAME: tensor<1x8x16xf32> {braid.name = "x"
// CHECK-SAME: tensor<2x16x16xf32> {braid.dims = ["experts", "", ""], braid.name = "moe.w1", braid.role = "parameter", braid.shards = {{\[}}[0, "ep"]]}
// CHECK: call @layer
// CHECK: %[[GRAD:.*]] = braid.linear_grad_weight
// CHECK: %[[TOTAL:.*]] = braid.comm.all_reduce %[[GRAD]] {axis = "dp"}
// CHECK: %[[SQUARES:.*]] = braid.sum_squares %[[TOTAL]]
// CHECK: return %{{.*}}, %[[TOTAL]], %[[SQUARES]]
func.func @step(%x: !x {braid.name = "x", braid.role = "input"}, %documents: tensor<2x8xi32> {braid.name = "documents", braid.role = "input"},
                %w: tensor<4x16x16xf32> {braid.dims = ["experts", "", ""], braid.name = "moe.w1", braid.role = "parameter"},
                %router: tensor<16x4xf32> {braid.name = "moe.router", braid.role = "parameter"})
    -> (!x {braid.name = "y"}, tensor<16x16xf32> {braid.name = "g"}, tensor<1xf32> {braid.name = "n"}) attributes {braid.entry} {
  %y = call @layer(%x, %documents, %w, %router) : (!x, tensor<2x8xi32>, tensor<4x16x16xf32>, tensor<16x4xf32>) -> !x
  %g = braid.linear_grad_weight %x cotangents(%y) : (!x, !x) -> tensor<16x16xf32>
  %n = braid.sum_squares %g : (tensor<16x16xf32>) -> tensor<1xf32>
  return %y, %g, %n : !x, tensor<16x16xf32>, tensor<1xf32>
}

// -----

// A zero that stands for states or sums of tokens gets the local rows, also when a repeat carries it.
// CHECK-LABEL: func.func @carried(
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<2x8xf32>
// CHECK: braid.repeat %[[ZERO]], %{{.*}} : (tensor<2x8xf32>, tensor<3x2x8xf32>) -> tensor<2x8xf32>
func.func @carried(%a: tensor<4x8xf32> {braid.name = "a", braid.role = "input"}, %w: tensor<3x2x8xf32> {braid.name = "w", braid.role = "parameter"})
    -> (tensor<4x8xf32> {braid.name = "y"}) attributes {braid.entry} {
  %zero = arith.constant dense<0.0> : tensor<4x8xf32>
  %y = braid.repeat %zero, %w {count = 3 : i64, carried = 1 : i64} : (tensor<4x8xf32>, tensor<3x2x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%sum: tensor<4x8xf32>, %l: tensor<2x8xf32>):
    %next = braid.add %sum, %a : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    braid.yield %next : (tensor<4x8xf32>) -> ()
  }
  return %y : tensor<4x8xf32>
}

// -----

// A capacity of 3 bounds what a rank's one row gives the two experts of a peer: 6 rows. Slices cannot share that bound: all 16
// assignments of 8 tokens may go to one peer.
// CHECK-LABEL: func.func private @capacity(
// CHECK: braid.moe.plan {{.*}}peer_rows = 6 : i64, peers = 2 : i64} : {{.*}} -> (tensor<12xi32>
// SLICED-LABEL: func.func private @capacity(
// SLICED: braid.moe.plan {{.*}}peer_rows = 16 : i64, peers = 2 : i64} : {{.*}} -> (tensor<32xi32>
func.func private @capacity(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>, %taken: tensor<2x4xi32>) -> tensor<2x8x2xi32> {
  %kept, %load, %dropped, %new = braid.moe.drop %ids documents(%documents) taken(%taken) {capacity = 3 : i64, policy = "token"}
      : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  %perm, %inverse, %counts, %offsets, %overflow, %exchange = braid.moe.plan %kept, %documents {num_experts = 4 : i64}
      : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return %inverse : tensor<2x8x2xi32>
}
func.func @routes(%ids: tensor<2x8x2xi32> {braid.name = "ids", braid.role = "input"}, %documents: tensor<2x8xi32> {braid.name = "documents", braid.role = "input"},
                  %taken: tensor<2x4xi32> {braid.name = "taken", braid.role = "input"}) -> (tensor<2x8x2xi32> {braid.name = "y"}) attributes {braid.entry} {
  %y = call @capacity(%ids, %documents, %taken) : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> tensor<2x8x2xi32>
  return %y : tensor<2x8x2xi32>
}

// -----

// What goes in whole and comes out cut goes in cut: every rank takes its part.
// CHECK-LABEL: func.func @replicated(
// CHECK-SAME: %[[C:[^:]*]]: tensor<1xi32> {braid.name = "coordinate.dp", braid.role = "input"})
// CHECK: %[[PART:.*]] = braid.shard %{{.*}}, %[[C]] {count = 2 : i64, dim = 0 : i64} : (tensor<4x8xf32>, tensor<1xi32>) -> tensor<2x8xf32>
// CHECK: braid.repeat %[[PART]] {{.*}} : (tensor<2x8xf32>) -> tensor<2x8xf32>
func.func @replicated(%a: tensor<4x8xf32> {braid.name = "a", braid.role = "input"}, %w: tensor<4x8xf32> {braid.name = "w", braid.role = "parameter"})
    -> (tensor<4x8xf32> {braid.name = "y"}) attributes {braid.entry} {
  %y = braid.repeat %w {count = 3 : i64, carried = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%c: tensor<4x8xf32>):
    %next = braid.activation %a {kind = "silu"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    braid.yield %next : (tensor<4x8xf32>) -> ()
  }
  return %y : tensor<4x8xf32>
}

// -----

// expected-error @+1 {{argument "x" has 3 rows (train.batch, --batch), which dp = 2 ranks (--mesh) do not divide; valid: a divisor of 3, or a multiple of 2 rows}}
func.func @odd(%x: tensor<3x8xf32> {braid.name = "x", braid.role = "input"}) -> tensor<3x8xf32> attributes {braid.entry} {
  return %x : tensor<3x8xf32>
}
