// RUN: braid-opt %s --split-input-file --braid-verify-phase=phase=model --verify-diagnostics
// Functions that call each other, and values that are no tensors.

func.func private @g(tensor<4xf32>) -> tensor<4xf32>
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'func.call' op @g has no body in this module}}
  %0 = func.call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'func.call' op @f calls itself}}
  %0 = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f() {
  // expected-error @+1 {{'arith.constant' op is a 'f32'; values of model functions are tensors}}
  %0 = arith.constant 1.0 : f32
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %c: tensor<1xi32>) -> tensor<2x8xf32> {
  // expected-error @+1 {{'braid.shard' op is in phase model too early; the first phase that may hold it is sharded}}
  %0 = braid.shard %x, %c {dim = 0 : i64, count = 2 : i64} : (tensor<4x8xf32>, tensor<1xi32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}
