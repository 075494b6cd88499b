// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of capacity say.

func.func @f(%ids: tensor<16x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{ids has rank 2 but must have 3}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "token"}> : (tensor<16x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{capacity is 0 but must be at least 1}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 0 : i64, policy = "token"}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{unknown policy "first"; valid: token, slot, score, bpr}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "first"}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{policy "score" needs weights}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "score"}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %w: tensor<2x8x2xf32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{policy "slot" reads no weights}}
  %0:4 = "braid.moe.drop"(%ids, %w, %d, %t) <{capacity = 3 : i64, policy = "slot"}> : (tensor<2x8x2xi32>, tensor<2x8x2xf32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{load has 5 entries but taken needs 4}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "token"}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<5xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{dropped has 3 entries but taken needs 4}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "token"}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<3xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{expert_rows is 0 but must be at least 1}}
  %0:6 = "braid.moe.plan"(%ids, %d) <{expert_rows = 0 : i64, num_experts = 4 : i64}> : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<24xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{perm has 32 entries but experts * expert_rows needs 24}}
  %0:6 = "braid.moe.plan"(%ids, %d) <{expert_rows = 6 : i64, num_experts = 4 : i64}> : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<32xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{peer_rows is 16 but 2 experts of 6 rows need 12}}
  %0:6 = "braid.moe.plan"(%ids, %d) <{expert_rows = 6 : i64, num_experts = 4 : i64, peers = 2 : i64, peer_rows = 16 : i64}> : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<24xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{2000000000 rows of each of 4 experts exceed 2147483647 rows}}
  %0:6 = "braid.moe.plan"(%ids, %d) <{expert_rows = 2000000000 : i64, num_experts = 4 : i64}> : (tensor<2x8x2xi32>, tensor<2x8xi32>) -> (tensor<24xi32>, tensor<2x8x2xi32>, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return
}
