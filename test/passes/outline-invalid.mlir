// What has no kernel is an error that names the op.
// RUN: braid-opt %s --split-input-file --verify-diagnostics --braid-outline

func.func @scalar(%x: f32) -> f32 {
  // expected-error @+1 {{'arith.addf' op has no kernel}}
  %0 = arith.addf %x, %x : f32
  return %0 : f32
}

// -----

func.func @table() -> tensor<2xf32> {
  // expected-error @+1 {{'arith.constant' op of different values has no kernel}}
  %0 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func @scan(%q: tensor<1x4x1x8xf32>, %s: tensor<1x1x8x8xf32>, %d: tensor<1x4xi32>) -> tensor<1x4x1x8xf32> {
  // expected-error @+1 {{'braid.lsm.scan' op has no kernel: braid-chunk-tiling must run first}}
  %o, %f = braid.lsm.scan I %q, %q, %q initial_state(%s) documents(%d) {scale = 1.0} : (tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>, tensor<1x1x8x8xf32>, tensor<1x4xi32>) -> (tensor<1x4x1x8xf32>, tensor<1x1x8x8xf32>)
  return %o : tensor<1x4x1x8xf32>
}
