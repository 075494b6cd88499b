// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of routing, plans and experts say.

func.func @f(%logits: tensor<16x4xf32>) {
  // expected-error @+1 {{logits has rank 2 but must have 3}}
  %0 = braid.moe.route %logits {top_k = 2 : i64} : (tensor<16x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>) {
  // expected-error @+1 {{result has rank 2 but must have 3}}
  %0 = braid.moe.route %logits {top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<16x2xi32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xi32>) {
  // expected-error @+1 {{logits must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.route %logits {top_k = 2 : i64} : (tensor<2x8x4xi32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>) {
  // expected-error @+1 {{result must hold i32 but holds 'f32'}}
  %0 = braid.moe.route %logits {top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xf32>
  return
}

// -----

// expected-note @+1 {{logits defined here}}
func.func @f(%logits: tensor<2x8x4xf32>) {
  // expected-error @+1 {{batch mismatch: result has 3 but logits has 2}}
  %0 = braid.moe.route %logits {top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<3x8x2xi32>
  return
}

// -----

// expected-note @+1 {{logits defined here}}
func.func @f(%logits: tensor<2x8x4xf32>) {
  // expected-error @+1 {{token mismatch: result has 9 but logits has 8}}
  %0 = braid.moe.route %logits {top_k = 2 : i64} : (tensor<2x8x4xf32>) -> tensor<2x9x2xi32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>) {
  // expected-error @+1 {{top_k is 5 but there are 4 experts}}
  %0 = braid.moe.route %logits {top_k = 5 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>) {
  // expected-error @+1 {{top_k is 0 but there are 4 experts}}
  %0 = braid.moe.route %logits {top_k = 0 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x4xf32>) {
  // expected-error @+1 {{result has 2 slots but top_k is 3}}
  %0 = braid.moe.route %logits {top_k = 3 : i64} : (tensor<2x8x4xf32>) -> tensor<2x8x2xi32>
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
  // expected-error @+1 {{offsets has 5 entries but local experts + 1 needs 3}}
  %0:3 = braid.moe.plan_received %counts {peer_rows = 24 : i64} : (tensor<2x2xi32>) -> (tensor<48xi32>, tensor<48xi32>, tensor<5xi32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{rows has rank 2 but must have 3}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{rows must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xi32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{rows has 2 in front but expert rows have 1}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<2x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<1x32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{perm has rank 2 but must have 1}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<1x32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xf32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{perm must hold i32 but holds 'f32'}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<32xf32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{perm defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<31xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{row mismatch: rows has 32 but perm has 31}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<31xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<16x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{x has rank 2 but must have 3}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<16x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xi32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{x must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xi32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<16x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{inverse has rank 2 but must have 3}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<16x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xf32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{inverse must hold i32 but holds 'f32'}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xf32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x9x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{token mismatch: x has 8 but inverse has 9}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x9x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xf32>) {
  // expected-error @+1 {{exchange must hold i32 but holds 'f32'}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xf32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{element type mismatch: rows holds 'bf16' but x holds 'f32'}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xbf16>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{width mismatch: rows has 15 but x has 16}}
  %0 = braid.moe.dispatch %x, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x15xf32>
  return
}

// -----

// expected-note @+1 {{perm defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<32xi32>) {
  // expected-error @+1 {{row mismatch: rows has 31 but perm has 32}}
  %0 = braid.moe.permute %x, %perm, %inverse : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<32xi32>) -> tensor<1x31x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<32xi32>) {
  // expected-error @+1 {{x has 2 in front but expert rows have 1}}
  %0 = braid.moe.permute %x, %perm, %inverse : (tensor<2x32x16xf32>, tensor<32xi32>, tensor<32xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>) {
  // expected-error @+1 {{inverse has rank 3 but must have 1}}
  %0 = braid.moe.permute %x, %perm, %inverse : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<30xi32>) {
  // expected-error @+1 {{row mismatch: x has 32 but inverse has 30}}
  %0 = braid.moe.permute %x, %perm, %inverse : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<30xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<32xi32>) {
  // expected-error @+1 {{element type mismatch: rows holds 'bf16' but x holds 'f32'}}
  %0 = braid.moe.permute %x, %perm, %inverse : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<32xi32>) -> tensor<1x32x16xbf16>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<32xi32>) {
  // expected-error @+1 {{width mismatch: rows has 8 but x has 16}}
  %0 = braid.moe.permute %x, %perm, %inverse : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<32xi32>) -> tensor<1x32x8xf32>
  return
}

// -----

// expected-note @+1 {{perm defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<31xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{row mismatch: rows has 32 but perm has 31}}
  %0:2 = braid.moe.combine %rows, %weights, %perm, %inverse, %exchange : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<31xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{y has rank 2 but must have 3}}
  %0:2 = braid.moe.combine %rows, %weights, %perm, %inverse, %exchange : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<16x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<16x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{inverse has rank 2 but must have 3}}
  %0:2 = braid.moe.combine %rows, %weights, %perm, %inverse, %exchange : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<16x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{batch mismatch: y has 3 but inverse has 2}}
  %0:2 = braid.moe.combine %rows, %weights, %perm, %inverse, %exchange : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<3x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xf32>) {
  // expected-error @+1 {{exchange must hold i32 but holds 'f32'}}
  %0:2 = braid.moe.combine %rows, %weights, %perm, %inverse, %exchange : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xf32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xi32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{weights must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.moe.combine %rows, %weights, %perm, %inverse, %exchange : (tensor<1x32x16xf32>, tensor<2x8x2xi32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x3xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{shape mismatch: weights is 2x8x3 but inverse is 2x8x2}}
  %0:2 = braid.moe.combine %rows, %weights, %perm, %inverse, %exchange : (tensor<1x32x16xf32>, tensor<2x8x3xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

// expected-note @+1 {{rows defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{shape mismatch: returned is 1x31x16 but rows is 1x32x16}}
  %0:2 = braid.moe.combine %rows, %weights, %perm, %inverse, %exchange : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x31x16xf32>)
  return
}

// -----

// expected-note @+1 {{rows defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{element type mismatch: returned holds 'bf16' but rows holds 'f32'}}
  %0:2 = braid.moe.combine %rows, %weights, %perm, %inverse, %exchange : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xbf16>)
  return
}

// -----

// expected-note @+1 {{rows defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{width mismatch: y has 15 but rows has 16}}
  %0:2 = braid.moe.combine %rows, %weights, %perm, %inverse, %exchange : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x15xf32>, tensor<1x32x16xf32>)
  return
}

// -----

// expected-note @+1 {{perm defined here}}
func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<31xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{row mismatch: returned has 32 but perm has 31}}
  %0:2 = braid.moe.combine_grad %dy, %returned, %weights, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<31xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%dy: tensor<2x9x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{token mismatch: dy has 9 but inverse has 8}}
  %0:2 = braid.moe.combine_grad %dy, %returned, %weights, %perm, %inverse, %exchange : (tensor<2x9x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xf32>) {
  // expected-error @+1 {{exchange must hold i32 but holds 'f32'}}
  %0:2 = braid.moe.combine_grad %dy, %returned, %weights, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xf32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xi32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{weights must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.moe.combine_grad %dy, %returned, %weights, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xi32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x3xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{shape mismatch: weights is 2x8x3 but inverse is 2x8x2}}
  %0:2 = braid.moe.combine_grad %dy, %returned, %weights, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x3xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

// expected-note @+1 {{returned defined here}}
func.func @f(%dy: tensor<2x8x15xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{width mismatch: dy has 15 but returned has 16}}
  %0:2 = braid.moe.combine_grad %dy, %returned, %weights, %perm, %inverse, %exchange : (tensor<2x8x15xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

// expected-note @+1 {{returned defined here}}
func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{shape mismatch: drows is 1x31x16 but returned is 1x32x16}}
  %0:2 = braid.moe.combine_grad %dy, %returned, %weights, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x31x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

// expected-note @+1 {{weights defined here}}
func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{shape mismatch: dweights is 2x8x3 but weights is 2x8x2}}
  %0:2 = braid.moe.combine_grad %dy, %returned, %weights, %perm, %inverse, %exchange : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x3xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{has 1 weights but 2 results}}
  %0:2 = braid.moe.grouped_linear %x, %offsets, %w : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> (tensor<1x32x24xf32>, tensor<1x32x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{has 0 weights but 0 results}}
  braid.moe.grouped_linear %x, %offsets : (tensor<1x32x16xf32>, tensor<5xi32>) -> ()
  return
}

// -----

func.func @f(%x: tensor<32x16xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{x has rank 2 but must have 3}}
  %0 = braid.moe.grouped_linear %x, %offsets, %w : (tensor<32x16xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{result has 2 in front but expert rows have 1}}
  %0 = braid.moe.grouped_linear %x, %offsets, %w : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<2x16x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %weight: tensor<16x24xf32>) {
  // expected-error @+1 {{weight has rank 2 but must have 3}}
  %0 = braid.moe.grouped_linear %x, %offsets, %weight : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<16x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %weight: tensor<4x16x24xi32>) {
  // expected-error @+1 {{weight must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.grouped_linear %x, %offsets, %weight : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x24xi32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<1x5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{offsets has rank 2 but must have 1}}
  %0 = braid.moe.grouped_linear %x, %offsets, %w : (tensor<1x32x16xf32>, tensor<1x5xi32>, tensor<4x16x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi64>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{offsets must hold i32 but holds 'i64'}}
  %0 = braid.moe.grouped_linear %x, %offsets, %w : (tensor<1x32x16xf32>, tensor<5xi64>, tensor<4x16x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<4xi32>, %weight: tensor<4x16x24xf32>) {
  // expected-error @+1 {{offsets has 4 entries but weight has 4 groups}}
  %0 = braid.moe.grouped_linear %x, %offsets, %weight : (tensor<1x32x16xf32>, tensor<4xi32>, tensor<4x16x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-note @+2 {{result defined here}}
  // expected-error @+1 {{row mismatch: x has 32 but result has 31}}
  %0 = braid.moe.grouped_linear %x, %offsets, %w : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<1x31x24xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %weight: tensor<4x15x24xf32>) {
  // expected-error @+1 {{input dimension mismatch: x has 16 but weight has 15}}
  %0 = braid.moe.grouped_linear %x, %offsets, %weight : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x15x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %weight: tensor<4x16x25xf32>) {
  // expected-error @+1 {{output dimension mismatch: result has 24 but weight has 25}}
  %0 = braid.moe.grouped_linear %x, %offsets, %weight : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x25xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%dy: tensor<1x32x24xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{has 2 weights but 1 cotangents}}
  %0 = braid.moe.grouped_linear_grad_data %dy, %offsets, %w, %w {operandSegmentSizes = array<i32: 1, 1, 2>} : (tensor<1x32x24xf32>, tensor<5xi32>, tensor<4x16x24xf32>, tensor<4x16x24xf32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{dy defined here}}
func.func @f(%dy: tensor<1x32x24xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{row mismatch: dx has 31 but dy has 32}}
  %0 = braid.moe.grouped_linear_grad_data %dy, %offsets, %w {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<1x32x24xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<1x31x16xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%dy: tensor<1x32x24xf32>, %offsets: tensor<5xi32>, %weight: tensor<4x16x24xf32>) {
  // expected-error @+1 {{input dimension mismatch: dx has 15 but weight has 16}}
  %0 = braid.moe.grouped_linear_grad_data %dy, %offsets, %weight {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<1x32x24xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<1x32x15xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %dy: tensor<1x32x24xf32>) {
  // expected-error @+1 {{has 2 results but 1 cotangents}}
  %0:2 = braid.moe.grouped_linear_grad_weight %x, %offsets, %dy : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<1x32x24xf32>) -> (tensor<4x16x24xf32>, tensor<4x16x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %dy: tensor<1x32x24xf32>) {
  // expected-note @+2 {{dw defined here}}
  // expected-error @+1 {{offsets has 5 entries but dw has 3 groups}}
  %0 = braid.moe.grouped_linear_grad_weight %x, %offsets, %dy : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<1x32x24xf32>) -> tensor<3x16x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %dy: tensor<1x32x24xf32>) {
  // expected-note @+2 {{dw defined here}}
  // expected-error @+1 {{output dimension mismatch: dy has 24 but dw has 23}}
  %0 = braid.moe.grouped_linear_grad_weight %x, %offsets, %dy : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<1x32x24xf32>) -> tensor<4x16x23xf32>
  return
}
