// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of products of few rows say, in the place of dense transitions: factors of chunks, their scans and walks, inverses. B = 2, T = 40, H = 3, K = 8, V = 4; chunks of 16: 4 rows.

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %g: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class S has no factors: its transitions are not dense}}
  %0:4 = braid.lsm.chunk_factors S %k, %v log_decay(%g) chunks(%c) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x16x4xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{read has 8 rows per chunk but must have 16}}
  %0:3 = braid.lsm.chunk_factors H %k, %v beta(%b) chunks(%c) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x16x4xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x8x8xbf16>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{write has 8 rows per chunk but must have 16}}
  %0:3 = braid.lsm.chunk_factors H %k, %v beta(%b) chunks(%c) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x16x4xbf16>, tensor<2x4x3x8x8xbf16>, tensor<2x4x3x16x8xbf16>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-note @+2 {{write defined here}}
  // expected-error @+1 {{head mismatch: read has 3 but write has 1}}
  %0:3 = braid.lsm.chunk_factors H %k, %v beta(%b) chunks(%c) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x16x4xbf16>, tensor<2x4x1x16x8xbf16>, tensor<2x4x3x16x8xbf16>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-note @+2 {{u defined here}}
  // expected-error @+1 {{chunk mismatch: read has 4 but u has 5}}
  %0:3 = braid.lsm.chunk_factors H %k, %v beta(%b) chunks(%c) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x5x3x16x4xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x8xbf16>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-note @+2 {{write defined here}}
  // expected-error @+1 {{key dimension mismatch: k has 8 but write has 4}}
  %0:3 = braid.lsm.chunk_factors H %k, %v beta(%b) chunks(%c) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x16x4xbf16>, tensor<2x4x3x16x4xbf16>, tensor<2x4x3x16x8xbf16>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class GH needs decay}}
  %0:3 = braid.lsm.chunk_factors GH %k, %v log_decay(%b) beta(%b) chunks(%c) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x16x4xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x8xbf16>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-note @+2 {{decay defined here}}
  // expected-error @+1 {{chunk mismatch: read has 4 but decay has 5}}
  %0:4 = braid.lsm.chunk_factors GH %k, %v log_decay(%b) beta(%b) chunks(%c) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x16x4xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x5x3xf32>)
  return
}

// -----

func.func @f(%u: tensor<2x4x3x16x4xbf16>, %w: tensor<2x4x3x16x8xbf16>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class GH needs decay}}
  %0:3 = braid.lsm.factor_scan GH %u factors(%w, %w) initial_state(%s) chunks(%c) : (tensor<2x4x3x16x4xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x8x4xbf16>, tensor<2x4x3x16x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%d: tensor<2x4x3x16x4xbf16>, %w: tensor<2x4x3x16x8xbf16>, %p: tensor<2x4x3x1x8xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{write has 16 rows per chunk but must have 32}}
  %0:2 = braid.lsm.factor_scan_grad D factors(%w, %w, %p) cotangents(%w, %d, %s) chunks(%c) : (tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x4xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x1x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x8x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class S has no triangle: H and GH have}}
  %0 = braid.lsm.chunk_inverse S %k beta(%b) chunks(%c) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x16x16xf32>
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class GH needs log_decay}}
  %0:2 = braid.lsm.chunk_inverse GH %k beta(%b) chunks(%c) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x16x16xf32>, tensor<2x4x3x48xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %g: tensor<2x40x3x8xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class GH has no factors of a walk: VH has}}
  %0:5 = braid.lsm.chunk_walk_factors GH %q, %q log_decay(%g) beta(%b) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x16xf32>, tensor<2x4x3x1x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %g: tensor<2x40x3x8xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{keys has 8 rows per chunk but must have 16}}
  %0:5 = braid.lsm.chunk_walk_factors VH %q, %q log_decay(%g) beta(%b) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x16x8xf32>, tensor<2x4x3x8x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x16xf32>, tensor<2x4x3x1x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %g: tensor<2x40x3x8xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{queries has 16 rows per chunk but must have 32}}
  %0:5 = braid.lsm.chunk_walk_factors VH %q, %q log_decay(%g) beta(%b) chunks(%c) {chunk_size = 32 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x16xf32>, tensor<2x4x3x1x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %g: tensor<2x40x3x8xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{decay has 16 rows per chunk but must have 1}}
  %0:5 = braid.lsm.chunk_walk_factors VH %q, %q log_decay(%g) beta(%b) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x16xf32>, tensor<2x4x3x16x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %g: tensor<2x40x3xf32>, %b: tensor<2x40x3xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{log_decay}}
  %0:5 = braid.lsm.chunk_walk_factors VH %q, %q log_decay(%g) beta(%b) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x16xf32>, tensor<2x4x3x1x8xf32>)
  return
}

// -----

func.func @f(%r: tensor<2x4x3x16x8xf32>, %w: tensor<2x4x3x16x8xf32>, %s: tensor<2x4x3x16x16xf32>, %d: tensor<2x4x3x1x8xf32>, %v: tensor<2x40x3x4xf32>, %m: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class D has no factors of a walk: VH has}}
  %0:2 = braid.lsm.factor_walk D factors(%r, %r, %w, %s, %d) %v initial_state(%m) chunks(%c) : (tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x16xf32>, tensor<2x4x3x1x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{scores defined here}}
func.func @f(%r: tensor<2x4x3x16x8xf32>, %w: tensor<2x4x3x16x8xf32>, %s: tensor<2x4x3x16x8xf32>, %d: tensor<2x4x3x1x8xf32>, %v: tensor<2x40x3x4xf32>, %m: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{token of the chunk}}
  %0:2 = braid.lsm.factor_walk VH factors(%r, %r, %w, %s, %d) %v initial_state(%m) chunks(%c) : (tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x1x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%r: tensor<2x4x3x16x8xf32>, %w: tensor<2x4x3x16x8xf32>, %s: tensor<2x4x3x16x16xf32>, %d: tensor<2x4x3x1x8xf32>, %v: tensor<2x40x3x4xf32>, %m: tensor<2x3x4x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{key dimension}}
  %0:2 = braid.lsm.factor_walk VH factors(%r, %r, %w, %s, %d) %v initial_state(%m) chunks(%c) : (tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x8xf32>, tensor<2x4x3x16x16xf32>, tensor<2x4x3x1x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x4x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x4x4xf32>)
  return
}
