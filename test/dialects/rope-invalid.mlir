// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifier of rotations says.

func.func @f(%x: tensor<8x16xf32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{x has rank 2 but must have 3 to 4}}
  %0 = braid.rope %x, %d {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64} : (tensor<8x16xf32>, tensor<2x8xi32>) -> tensor<8x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{shape mismatch: result is 2x8x15 but x is 2x8x16}}
  %0 = braid.rope %x, %d {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64} : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8x15xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<8xi32>) {
  // expected-error @+1 {{documents has rank 1 but must have 2}}
  %0 = braid.rope %x, %d {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64} : (tensor<2x8x16xf32>, tensor<8xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xf32>) {
  // expected-error @+1 {{documents must hold i32 but holds 'f32'}}
  %0 = braid.rope %x, %d {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64} : (tensor<2x8x16xf32>, tensor<2x8xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %documents: tensor<3x8xi32>) {
  // expected-error @+1 {{batch mismatch: x has 2 but documents has 3}}
  %0 = braid.rope %x, %documents {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64} : (tensor<2x8x16xf32>, tensor<3x8xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %documents: tensor<2x9xi32>) {
  // expected-error @+1 {{token mismatch: x has 8 but documents has 9}}
  %0 = braid.rope %x, %documents {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64} : (tensor<2x8x16xf32>, tensor<2x9xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{dim is 5 but must be even, positive and at most the head dimension 16}}
  %0 = braid.rope %x, %d {dim = 5 : i64, layout = "half", theta = 1.0e+4 : f64} : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{dim is 18 but must be even, positive and at most the head dimension 16}}
  %0 = braid.rope %x, %d {dim = 18 : i64, layout = "half", theta = 1.0e+4 : f64} : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{dim is 0 but must be even, positive and at most the head dimension 16}}
  %0 = braid.rope %x, %d {dim = 0 : i64, layout = "half", theta = 1.0e+4 : f64} : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{unknown layout "pairs"; valid: half, interleaved}}
  %0 = braid.rope %x, %d {dim = 4 : i64, layout = "pairs", theta = 1.0e+4 : f64} : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xi32>, %dy: tensor<2x8x16xf32>) {
  // expected-error @+1 {{input must hold floating-point numbers but holds 'i32'}}
  %0 = braid.rows_grad "braid.rope"(%x, %d) cotangents(%dy) {op_attributes = {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64}, operandSegmentSizes = array<i32: 2, 1>, wanted = array<i64: 1>} : (tensor<2x8x16xf32>, tensor<2x8xi32>, tensor<2x8x16xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{period is 0 but must be at least 1}}
  %0 = braid.rope %x, %d {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64, period = 0 : i64} : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{3 factors for 2 pairs}}
  %0 = braid.rope %x, %d {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64, factors = array<f64: 1.0, 1.0, 1.0>} : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{factor -1.000000e+00 is not finite and at least 0}}
  %0 = braid.rope %x, %d {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64, factors = array<f64: 0.0, -1.0>} : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %d: tensor<2x8xi32>) {
  // expected-error @+1 {{scale -1.000000e+00 is not finite and above 0}}
  %0 = braid.rope %x, %d {dim = 4 : i64, layout = "half", theta = 1.0e+4 : f64, scale = -1.0 : f64} : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8x16xf32>
  return
}
