// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of capacity say.

func.func @f(%ids: tensor<16x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{ids has rank 2 but must have 3}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "token", operandSegmentSizes = array<i32: 1, 0, 1, 1, 0>}> : (tensor<16x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{capacity is 0 but must be at least 1}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 0 : i64, policy = "token", operandSegmentSizes = array<i32: 1, 0, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{unknown policy "first"; valid: token, slot, score, bpr, random, device}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "first", operandSegmentSizes = array<i32: 1, 0, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{policy "score" needs weights}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "score", operandSegmentSizes = array<i32: 1, 0, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %w: tensor<2x8x2xf32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{policy "slot" reads no weights}}
  %0:4 = "braid.moe.drop"(%ids, %w, %d, %t) <{capacity = 3 : i64, policy = "slot", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8x2xf32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

// expected-note @+1 {{taken defined here}}
func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{load has 5 entries but taken needs 4}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "token", operandSegmentSizes = array<i32: 1, 0, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<5xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

// expected-note @+1 {{taken defined here}}
func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{dropped has 3 entries but taken needs 4}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "token", operandSegmentSizes = array<i32: 1, 0, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<3xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{policy "random" needs draw_keys and new_draw_keys}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "random", operandSegmentSizes = array<i32: 1, 0, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>, %k: tensor<2x3xi64>) {
  // expected-error @+1 {{policy "random" needs draw_keys and new_draw_keys}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t, %k) <{capacity = 3 : i64, policy = "random", operandSegmentSizes = array<i32: 1, 0, 1, 1, 1>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>, tensor<2x3xi64>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>, %k: tensor<2x3xi64>) {
  // expected-error @+1 {{policy "slot" draws nothing but has draw_keys}}
  %0:5 = "braid.moe.drop"(%ids, %d, %t, %k) <{capacity = 3 : i64, policy = "slot", operandSegmentSizes = array<i32: 1, 0, 1, 1, 1>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>, tensor<2x3xi64>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>, tensor<2x3xi64>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>, %k: tensor<2x2xi64>) {
  // expected-error @+1 {{draw_keys is 'tensor<2x2xi64>' but must hold sample, seed and layer of each row: 2 x 3 x i64}}
  %0:5 = "braid.moe.drop"(%ids, %d, %t, %k) <{capacity = 3 : i64, policy = "random", operandSegmentSizes = array<i32: 1, 0, 1, 1, 1>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>, tensor<2x2xi64>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>, tensor<2x2xi64>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>, %k: tensor<2x3xi32>) {
  // expected-error @+1 {{draw_keys is 'tensor<2x3xi32>' but must hold sample, seed and layer of each row: 2 x 3 x i64}}
  %0:5 = "braid.moe.drop"(%ids, %d, %t, %k) <{capacity = 3 : i64, policy = "random", operandSegmentSizes = array<i32: 1, 0, 1, 1, 1>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>, tensor<2x3xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>, tensor<2x3xi32>)
  return
}

// -----

// expected-note @+1 {{ids defined here}}
func.func @f(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>, %k: tensor<3x3xi64>) {
  // expected-error @+1 {{batch mismatch: draw_keys has 3 but ids has 2}}
  %0:5 = "braid.moe.drop"(%ids, %d, %t, %k) <{capacity = 3 : i64, policy = "random", operandSegmentSizes = array<i32: 1, 0, 1, 1, 1>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>, tensor<3x3xi64>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>, tensor<3x3xi64>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %w: tensor<2x8x2xf32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{policy "score" reads no bucket; only "device" does}}
  %0:4 = "braid.moe.drop"(%ids, %w, %d, %t) <{capacity = 3 : i64, policy = "score", bucket = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8x2xf32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %w: tensor<2x8x2xf32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{policy "score" reads no protect; only "device" does}}
  %0:4 = "braid.moe.drop"(%ids, %w, %d, %t) <{capacity = 3 : i64, policy = "score", protect = 0.5 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8x2xf32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %w: tensor<2x8x2xf32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{protect is 1.500000e+00 but must be 0 to 1}}
  %0:4 = "braid.moe.drop"(%ids, %w, %d, %t) <{capacity = 3 : i64, policy = "device", protect = 1.5 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8x2xf32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8x2xi32>, %w: tensor<2x8x2xf32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{bucket is 0 but must be at least 1}}
  %0:4 = "braid.moe.drop"(%ids, %w, %d, %t) <{capacity = 3 : i64, policy = "device", bucket = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8x2xf32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

// expected-note @+1 {{taken defined here}}
func.func @f(%ids: tensor<2x8x2xi32>, %w: tensor<2x8x2xf32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{load has 4 entries but taken * bucket needs 8}}
  %0:4 = "braid.moe.drop"(%ids, %w, %d, %t) <{capacity = 3 : i64, policy = "device", bucket = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8x2xf32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}

// -----

// expected-note @+1 {{weights defined here}}
func.func @f(%w: tensor<2x8x2xf32>, %k: tensor<2x8x3xi32>) {
  // expected-error @+1 {{shape mismatch: kept is 2x8x3 but weights is 2x8x2}}
  %0 = "braid.moe.renormalize"(%w, %k) : (tensor<2x8x2xf32>, tensor<2x8x3xi32>) -> tensor<2x8x2xf32>
  return
}

// -----

func.func @f(%w: tensor<2x8x2xf32>, %k: tensor<2x8x2xf32>) {
  // expected-error @+1 {{kept must hold i32 but holds 'f32'}}
  %0 = "braid.moe.renormalize"(%w, %k) : (tensor<2x8x2xf32>, tensor<2x8x2xf32>) -> tensor<2x8x2xf32>
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

// -----

// expected-note @+1 {{ids defined here}}
func.func @stripe(%ids: tensor<2x8x2xi32>, %d: tensor<2x8xi32>, %t: tensor<2x4xi32>) {
  // expected-error @+1 {{stripe is 3 tokens, of which no number makes the 8 of a row}}
  %0:4 = "braid.moe.drop"(%ids, %d, %t) <{capacity = 3 : i64, policy = "token", stripe = 3 : i64, operandSegmentSizes = array<i32: 1, 0, 1, 1, 0>}> : (tensor<2x8x2xi32>, tensor<2x8xi32>, tensor<2x4xi32>) -> (tensor<2x8x2xi32>, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return
}
