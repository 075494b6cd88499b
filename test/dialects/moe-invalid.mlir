// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of routing and plans say.

func.func @f(%keys: tensor<16x4xf32>) {
  // expected-error @+1 {{keys has rank 2 but must have 3}}
  %0 = braid.moe.route %keys {top_k = 2 : i64} : (tensor<16x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{result has rank 2 but must have 3}}
  %0 = braid.moe.route %keys {top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<16x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xi32>) {
  // expected-error @+1 {{keys must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.route %keys {top_k = 2 : i64} : (tensor<2x8x4xi32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{result must hold i32 but holds 'f32'}}
  %0 = braid.moe.route %keys {top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xf32>
  return
}

// -----

// expected-note @+1 {{keys defined here}}
func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{batch mismatch: result has 3 but keys has 2}}
  %0 = braid.moe.route %keys {top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<3x8x2xi32>
  return
}

// -----

// expected-note @+1 {{keys defined here}}
func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{token mismatch: result has 9 but keys has 8}}
  %0 = braid.moe.route %keys {top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<2x9x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{top_k is 5 but there are 4 experts}}
  %0 = braid.moe.route %keys {top_k = 5 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{top_k is 0 but there are 4 experts}}
  %0 = braid.moe.route %keys {top_k = 0 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{result has 2 slots but top_k is 3}}
  %0 = braid.moe.route %keys {top_k = 3 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%logits: tensor<16x4xf32>, %expert_ids: tensor<2x8x2xi32>) {
  // expected-error @+1 {{logits has rank 2 but must have 3}}
  %0 = braid.moe.route_weights %logits, %expert_ids {normalize = true} : (tensor<16x4xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %expert_ids: tensor<16x2xi32>) {
  // expected-error @+1 {{expert_ids has rank 2 but must have 3}}
  %0 = braid.moe.route_weights %logits, %expert_ids {normalize = true} : (tensor<2x8x4xf32>, tensor<16x2xi32>) -> tensor<2x8x2xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xi32>, %expert_ids: tensor<2x8x2xi32>) {
  // expected-error @+1 {{logits must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.route_weights %logits, %expert_ids {normalize = true} : (tensor<2x8x4xi32>, tensor<2x8x2xi32>) -> tensor<2x8x2xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %expert_ids: tensor<2x8x2xf32>) {
  // expected-error @+1 {{expert_ids must hold i32 but holds 'f32'}}
  %0 = braid.moe.route_weights %logits, %expert_ids {normalize = true} : (tensor<2x8x4xf32>, tensor<2x8x2xf32>) -> tensor<2x8x2xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %expert_ids: tensor<2x8x2xi32>) {
  // expected-error @+1 {{result must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.route_weights %logits, %expert_ids {normalize = true} : (tensor<2x8x4xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2xi32>
  return
}

// -----

// expected-note @+1 {{expert_ids defined here}}
func.func @f(%logits: tensor<2x8x4xf32>, %expert_ids: tensor<2x9x2xi32>) {
  // expected-error @+1 {{token mismatch: logits has 8 but expert_ids has 9}}
  %0 = braid.moe.route_weights %logits, %expert_ids {normalize = true} : (tensor<2x8x4xf32>, tensor<2x9x2xi32>) -> tensor<2x9x2xf32>
  return
}

// -----

// expected-note @+1 {{expert_ids defined here}}
func.func @f(%logits: tensor<2x8x4xf32>, %expert_ids: tensor<2x8x2xi32>) {
  // expected-error @+1 {{shape mismatch: result is 2x8x3 but expert_ids is 2x8x2}}
  %0 = braid.moe.route_weights %logits, %expert_ids {normalize = true} : (tensor<2x8x4xf32>, tensor<2x8x2xi32>) -> tensor<2x8x3xf32>
  return
}

// -----

func.func @f(%logits: tensor<16x4xf32>, %counts: tensor<4xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{logits has rank 2 but must have 3}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (tensor<16x4xf32>, tensor<4xi32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %counts: tensor<4x1xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{counts has rank 2 but must have 1}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (tensor<2x8x4xf32>, tensor<4x1xi32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %counts: tensor<4xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{result has rank 1 but must have 2}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (tensor<2x8x4xf32>, tensor<4xi32>, tensor<2x8xi32>) -> tensor<16xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xi32>, %counts: tensor<4xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{logits must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (tensor<2x8x4xi32>, tensor<4xi32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %counts: tensor<4xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{counts must hold i32 but holds 'f32'}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (tensor<2x8x4xf32>, tensor<4xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %counts: tensor<4xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{result must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (tensor<2x8x4xf32>, tensor<4xi32>, tensor<2x8xi32>) -> tensor<2x8xi32>
  return
}

// -----

// expected-note @+1 {{logits defined here}}
func.func @f(%logits: tensor<2x8x4xf32>, %counts: tensor<4xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{token mismatch: result has 9 but logits has 8}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (tensor<2x8x4xf32>, tensor<4xi32>, tensor<2x8xi32>) -> tensor<2x9xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %counts: tensor<4xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{top_k is 0 but must be at least 1}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 0 : i64, z = 0.001 : f64} : (tensor<2x8x4xf32>, tensor<4xi32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{counts defined here}}
func.func @f(%logits: tensor<2x8x4xf32>, %counts: tensor<5xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{expert mismatch: logits has 4 but counts has 5}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (tensor<2x8x4xf32>, tensor<5xi32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%logits: tensor<2x8x4xf32>, %counts: tensor<4xi32>, %documents: tensor<2x9xi32>) {
  // expected-error @+1 {{token mismatch: logits has 8 but documents has 9}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (tensor<2x8x4xf32>, tensor<4xi32>, tensor<2x9xi32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %counts: tensor<4xi32>, %documents: tensor<2x8xf32>) {
  // expected-error @+1 {{documents must hold i32 but holds 'f32'}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64} : (tensor<2x8x4xf32>, tensor<4xi32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<16xi32>) {
  // expected-error @+1 {{documents has rank 1 but must have 2}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<16xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<16x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{ids has rank 2 but must have 3}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<16x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi64>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{ids must hold i32 but holds 'i64'}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi64>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

// expected-note @+1 {{ids defined here}}
func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{shape mismatch: inverse is 2x8x3 but ids is 2x8x2}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x3xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

// expected-note @+1 {{ids defined here}}
func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{element type mismatch: inverse holds 'i64' but ids holds 'i32'}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi64>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{num_experts is 0 but must be at least 1}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 0 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{peers is 0 but must be at least 1}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64, peers = 0 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{peer_rows is 0 but must be at least 1}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64, peers = 2 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{peer_rows is -1 but must be at least 0}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64, peer_rows = -1 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{3 peers do not divide 4 experts}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64, peers = 3 : i64, peer_rows = 16 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

// expected-note @+1 {{ids defined here}}
func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{perm has 31 entries but every assignment needs 32}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<31xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{perm has 32 entries but peers * peer_rows needs 48}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64, peers = 2 : i64, peer_rows = 24 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{perm has rank 2 but must have 1}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<1x32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{perm must hold i32 but holds 'i64'}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi64>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{counts has 5 entries but num_experts needs 4}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<5xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{offsets has 4 entries but num_experts + 1 needs 5}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{overflow has 2 entries but the plan needs 1}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<2xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{exchange must hold i32 but holds 'f32'}}
  %0:6 = braid.moe.plan %ids, %documents {num_experts = 4 : i64} : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%counts: tensor<4xi32>) {
  // expected-error @+1 {{counts has rank 1 but must have 2}}
  %0:3 = braid.moe.plan_received %counts {peer_rows = 24 : i64} : (tensor<4xi32>) -> (tensor<48xi32>, tensor<48xi32>, tensor<3xi32>)
  return
}

// -----

func.func @f(%counts: tensor<2x2xf32>) {
  // expected-error @+1 {{counts must hold i32 but holds 'f32'}}
  %0:3 = braid.moe.plan_received %counts {peer_rows = 24 : i64} : (tensor<2x2xf32>) -> (tensor<48xi32>, tensor<48xi32>, tensor<3xi32>)
  return
}

// -----

func.func @f(%counts: tensor<2x2xi32>) {
  // expected-error @+1 {{peer_rows is 0 but must be at least 1}}
  %0:3 = braid.moe.plan_received %counts {peer_rows = 0 : i64} : (tensor<2x2xi32>) -> (tensor<48xi32>, tensor<48xi32>, tensor<3xi32>)
  return
}

// -----

func.func @f(%counts: tensor<2x2xi32>) {
  // expected-error @+1 {{perm has 47 entries but peers * peer_rows needs 48}}
  %0:3 = braid.moe.plan_received %counts {peer_rows = 24 : i64} : (tensor<2x2xi32>) -> (tensor<47xi32>, tensor<48xi32>, tensor<3xi32>)
  return
}

// -----

func.func @f(%counts: tensor<2x2xi32>) {
  // expected-error @+1 {{inverse has 32 entries but peers * peer_rows needs 48}}
  %0:3 = braid.moe.plan_received %counts {peer_rows = 24 : i64} : (tensor<2x2xi32>) -> (tensor<48xi32>, tensor<32xi32>, tensor<3xi32>)
  return
}

// -----

func.func @f(%counts: tensor<2x2xi32>) {
  // expected-error @+1 {{perm has 48 entries but peers * peer_rows needs 9223372036854775807}}
  %0:3 = braid.moe.plan_received %counts {peer_rows = 9223372036854775807 : i64} : (tensor<2x2xi32>) -> (tensor<48xi32>, tensor<48xi32>, tensor<3xi32>)
  return
}

// -----

func.func @f(%counts: tensor<2x2xi32>) {
  // expected-error @+1 {{offsets has 5 entries but local experts + 1 needs 3}}
  %0:3 = braid.moe.plan_received %counts {peer_rows = 24 : i64} : (tensor<2x2xi32>) -> (tensor<48xi32>, tensor<48xi32>, tensor<5xi32>)
  return
}

// -----

func.func @two_offsets(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %dy: tensor<1x32x24xf32>) {
  // expected-error @+1 {{has 4 operands, but x, offsets, its cotangents and sums are 3; valid: an operandSegmentSizes of 1 for what is single}}
  %0 = "braid.moe.grouped_linear_grad_weight"(%x, %offsets, %offsets, %dy) <{operandSegmentSizes = array<i32: 1, 2, 1, 0>}> : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<5xi32>, tensor<1x32x24xf32>) -> tensor<4x16x24xf32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{has 3 groups, which 4 experts cannot be divided into}}
  %0 = braid.moe.route %keys {top_k = 2 : i64, groups = 3 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{has 0 groups, which 4 experts cannot be divided into}}
  %0 = braid.moe.route %keys {top_k = 2 : i64, groups = 0 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{keeps 3 of 2 groups}}
  %0 = braid.moe.route %keys {top_k = 2 : i64, groups = 2 : i64, kept_groups = 3 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{keeps 0 of 2 groups}}
  %0 = braid.moe.route %keys {top_k = 2 : i64, groups = 2 : i64, kept_groups = 0 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{top_k is 2 but 1 groups have 1 experts}}
  %0 = braid.moe.route %keys {top_k = 2 : i64, groups = 4 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%keys: tensor<2x8x4xf32>) {
  // expected-error @+1 {{adds up the 3 largest keys of groups of 2 experts}}
  %0 = braid.moe.route %keys {top_k = 2 : i64, groups = 2 : i64, group_top = 3 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %expert_ids: tensor<2x8x2xi32>) {
  // expected-error @+1 {{score is "tanh"; valid: "softmax", "sigmoid"}}
  %0 = braid.moe.route_weights %logits, %expert_ids {normalize = true, score = "tanh"} : (tensor<2x8x4xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>, %counts: tensor<4xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{score is ""; valid: "softmax", "sigmoid"}}
  %0 = braid.moe.router_loss %logits, %counts, %documents {balance = 0.01 : f64, top_k = 2 : i64, z = 0.001 : f64, score = ""} : (tensor<2x8x4xf32>, tensor<4xi32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%correction: tensor<3x4xf32>, %load: tensor<3x4xf32>) {
  // expected-error @+1 {{correction has rank 2 but must have 3}}
  %0 = braid.moe.correct %correction, %load {rate = 0.1 : f64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @f(%correction: tensor<1x3x4xi32>, %load: tensor<1x3x4xf32>) {
  // expected-error @+1 {{correction must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.correct %correction, %load {rate = 0.1 : f64} : (tensor<1x3x4xi32>, tensor<1x3x4xf32>) -> tensor<1x3x4xi32>
  return
}

// -----

func.func @f(%correction: tensor<1x3x4xf32>, %load: tensor<1x3x4xi32>) {
  // expected-error @+1 {{load must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.correct %correction, %load {rate = 0.1 : f64} : (tensor<1x3x4xf32>, tensor<1x3x4xi32>) -> tensor<1x3x4xf32>
  return
}

// -----

// expected-note @+1 {{correction defined here}}
func.func @f(%correction: tensor<1x3x4xf32>, %load: tensor<1x3x5xf32>) {
  // expected-error @+1 {{shape mismatch: load is 1x3x5 but correction is 1x3x4}}
  %0 = braid.moe.correct %correction, %load {rate = 0.1 : f64} : (tensor<1x3x4xf32>, tensor<1x3x5xf32>) -> tensor<1x3x4xf32>
  return
}

// -----

// expected-note @+1 {{correction defined here}}
func.func @f(%correction: tensor<1x3x4xf32>, %load: tensor<1x3x4xf32>) {
  // expected-error @+1 {{element type mismatch: result holds 'f64' but correction holds 'f32'}}
  %0 = braid.moe.correct %correction, %load {rate = 0.1 : f64} : (tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x3x4xf64>
  return
}

// -----

// expected-note @+1 {{bias defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %bias: tensor<5x16xf32>) {
  // expected-error @+1 {{offsets has 5 entries but bias has 5 groups}}
  %0 = braid.moe.group_bias %x offsets(%offsets) bias(%bias) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<5x16xf32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{bias defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %bias: tensor<4x8xf32>) {
  // expected-error @+1 {{width mismatch: x has 16 but bias has 8}}
  %0 = braid.moe.group_bias %x offsets(%offsets) bias(%bias) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x8xf32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%dy: tensor<2x32x16xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{dy has 2 in front but expert rows have 1}}
  %0 = braid.moe.group_bias_grad cotangents(%dy) offsets(%offsets) : (tensor<2x32x16xf32>, tensor<5xi32>) -> tensor<4x16xf32>
  return
}
