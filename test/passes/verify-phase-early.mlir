// What a phase must not hold yet.
// RUN: braid-opt %s --split-input-file --braid-verify-phase=phase=model --verify-diagnostics

func.func @grad(%x: tensor<1x4x8xf32>, %w: tensor<8x8xf32>) -> tensor<1x4x8xf32> {
  // expected-error @+1 {{'braid.linear_grad_data' op is in phase model too early; the first phase that may hold it is train}}
  %y = braid.linear_grad_data cotangents(%x) weights(%w) : (tensor<1x4x8xf32>, tensor<8x8xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}

// -----

func.func @reduce(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'braid.comm.all_reduce' op is in phase model too early; the first phase that may hold it is sharded}}
  %y = braid.comm.all_reduce %x {axis = "dp"} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @chunks(%d: tensor<1x64xi32>) -> tensor<1x3x4xi32> {
  // expected-error @+1 {{'braid.lsm.chunk_table' op is in phase model too early; the first phase that may hold it is chunked}}
  %y = braid.lsm.chunk_table %d {chunk_size = 32 : i64} : (tensor<1x64xi32>) -> tensor<1x3x4xi32>
  return %y : tensor<1x3x4xi32>
}

// -----

func.func @launch(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'tile.launch' op is in phase model too early; the first phase that may hold it is kernels}}
  %y = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// expected-error @+1 {{'func.func' op '@k' is in phase model too early; the first phase that may hold it is kernels}}
func.func private @k(%x: memref<?xf32> {tile.name = "x"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}

// -----

// expected-error @+1 {{'cmd.program' op is in phase model too early; the first phase that may hold it is commands}}
cmd.program {
}

// -----

func.func @foreign(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'math.exp' op belongs to no phase: an entry or layer function holds model ops, not 'math' ops}}
  %y = math.exp %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
