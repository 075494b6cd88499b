// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of segments and of attention along sp say. B = 2, T = 40, H = 3, K = 8, V = 4.

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %d: tensor<2x40xi32>) {
  // expected-error @+1 {{x holds 2 segments but must hold 1}}
  %0:2 = braid.lsm.segment I %k, %v documents(%d) : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40xi32>) -> (tensor<2x2x3xf32>, tensor<2x2x3x8x4xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %d: tensor<2x40xi32>) {
  // expected-error @+1 {{class S needs log_decay}}
  %0:2 = braid.lsm.segment S %k, %v documents(%d) : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40xi32>) -> (tensor<1x2x3xf32>, tensor<1x2x3x8x4xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %b: tensor<2x40x3xf32>, %d: tensor<2x40xi32>) {
  // expected-error @+1 {{p has rank 3 but must have 5}}
  %0:2 = braid.lsm.segment H %k, %v beta(%b) documents(%d) : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40xi32>) -> (tensor<1x2x3xf32>, tensor<1x2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %d: tensor<2x40xi32>) {
  // expected-error @+1 {{value dimension mismatch: dx has 5 but v has 4}}
  %0 = braid.lsm.segment_grad I %k, %k, %v documents(%d) cotangents(%v) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>) -> tensor<1x2x3x8x5xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%p: tensor<3x2x3xf32>, %x: tensor<4x2x3x8x4xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{segment mismatch: p has 3 but x has 4}}
  %0:2 = braid.lsm.fold %p, %x carry(%s) coordinate(%c) : (tensor<3x2x3xf32>, tensor<4x2x3x8x4xf32>, tensor<2x3x8x4xf32>, tensor<1xi32>) -> (tensor<2x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%p: tensor<4x2x3xf32>, %x: tensor<4x2x3x8x4xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2xi32>) {
  // expected-error @+1 {{coordinate must have one element but is 2}}
  %0:2 = braid.lsm.fold_grad %p, %x carry(%s) coordinate(%c) : (tensor<4x2x3xf32>, tensor<4x2x3x8x4xf32>, tensor<2x3x8x4xf32>, tensor<2xi32>) -> (tensor<2x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%p: tensor<4x2x3xf32>, %x: tensor<4x2x3x8x4xf32>, %s: tensor<2x3x6x4xf32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{key dimension mismatch: carry has 6 but x has 8}}
  %0:2 = braid.lsm.fold %p, %x carry(%s) coordinate(%c) : (tensor<4x2x3xf32>, tensor<4x2x3x8x4xf32>, tensor<2x3x6x4xf32>, tensor<1xi32>) -> (tensor<2x3x6x4xf32>, tensor<2x3x6x4xf32>)
  return
}

// -----

func.func @f(%p: tensor<4x2x3xf32>, %x: tensor<4x2x3x8x4xf32>) {
  // expected-error @+1 {{x holds 4 segments but must hold 1}}
  %0 = braid.lsm.compose %p, %x other(%x) : (tensor<4x2x3xf32>, tensor<4x2x3x8x4xf32>, tensor<4x2x3x8x4xf32>) -> tensor<4x2x3x8x4xf32>
  return
}

// -----

func.func @f(%p: tensor<1x2x3xf32>, %x: tensor<1x2x3x8x4xf32>) {
  // expected-error @+1 {{gives a transition where p_other is given and only there}}
  %0 = braid.lsm.compose %p, %x other(%x, %p) : (tensor<1x2x3xf32>, tensor<1x2x3x8x4xf32>, tensor<1x2x3x8x4xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3x8x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{must give a transition}}
  %0 = braid.lsm.segment_scan I %x chunks(%c) : (tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<1x2x3x8x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{is an adjoint and gives no transition}}
  %0:2 = braid.lsm.segment_scan I %x chunks(%c) {adjoint} : (tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<1x2x3xf32>, tensor<1x2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x90x3x8xf32>, %d: tensor<2x40xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{k has 90 tokens but a prefix of 0 and a multiple of q's 40 are needed}}
  %0:2 = "braid.attn.causal"(%q, %k, %k, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, scale = 1.0 : f64}> : (tensor<2x40x3x8xf32>, tensor<2x90x3x8xf32>, tensor<2x90x3x8xf32>, tensor<2x40xi32>, tensor<1xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x3x40xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x80x3x8xf32>, %d: tensor<2x40xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{reads a cache and takes no coordinate}}
  %0:2 = "braid.attn.causal"(%q, %k, %k, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, scale = 1.0 : f64, cache}> : (tensor<2x40x3x8xf32>, tensor<2x80x3x8xf32>, tensor<2x80x3x8xf32>, tensor<2x40xi32>, tensor<1xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x3x40xf32>)
  return
}

// -----

// expected-note @+1 {{o defined here}}
func.func @f(%o: tensor<2x40x3x8xf32>, %l: tensor<2x3x41xf32>) {
  // expected-error @+1 {{token mismatch: lse has 41 but o has 40}}
  %0:2 = braid.attn.merge %o, %l, %o, %l : (tensor<2x40x3x8xf32>, tensor<2x3x41xf32>, tensor<2x40x3x8xf32>, tensor<2x3x41xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x3x41xf32>)
  return
}

// -----

func.func @f(%cu: tensor<2x3xi32>, %c: tensor<1xf32>) {
  // expected-error @+1 {{coordinate must hold i32 but holds 'f32'}}
  %0 = braid.documents %cu, %c : (tensor<2x3xi32>, tensor<1xf32>) -> tensor<2x40xi32>
  return
}
