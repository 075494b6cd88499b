// RUN: braid-opt %s --split-input-file --braid-plan-memory --verify-diagnostics

// expected-error @+1 {{no entry function: a public func.func with the attribute braid.entry}}
module {
}

// -----

// expected-error @+1 {{'func.func' op argument 0 has no braid.name}}
func.func @f(%x: tensor<4xf32>) attributes {braid.entry} {
  return
}

// -----

// expected-error @+1 {{'func.func' op argument 0 'x' is stacked over 2 layers but is 'tensor<3x4xf32>'}}
func.func @f(%x: tensor<3x4xf32> {braid.name = "x", braid.layers = array<i32: 0, 1>}) attributes {braid.entry} {
  return
}

// -----

// expected-error @+1 {{'func.func' op names two arguments 'x'}}
func.func @f(%x: tensor<4xf32> {braid.name = "x"}, %y: tensor<4xf32> {braid.name = "x"}) attributes {braid.entry} {
  return
}

// -----

// expected-error @+1 {{'func.func' op argument 0 and result 0 are both called 'x' but are input tensor<4xf32> in 1 layer(s) and output tensor<4xf32> in 1 layer(s)}}
func.func @f(%x: tensor<4xf32> {braid.name = "x"}) -> (tensor<4xf32> {braid.name = "x"}) attributes {braid.entry} {
  return %x : tensor<4xf32>
}

// -----

// Parameters are shared by name: both entries must mean the same tensor.
// expected-note @+1 {{named here}}
func.func @first(%w: tensor<4xf32> {braid.name = "w", braid.role = "parameter"}) attributes {braid.entry} {
  return
}
// expected-error @+1 {{'func.func' op 'w' is parameter tensor<5xf32> in 1 layer(s) but in @first it is parameter tensor<4xf32> in 1 layer(s)}}
func.func @second(%w: tensor<5xf32> {braid.name = "w", braid.role = "parameter"}) attributes {braid.entry} {
  return
}

// -----

// expected-note @+1 {{here in one of 2 layers}}
func.func @first(%w: tensor<2x4xf32> {braid.name = "layers.{}.w", braid.role = "parameter", braid.layers = array<i32: 0, 1>}) attributes {braid.entry} {
  return
}
// expected-error @+1 {{'func.func' op layer 1 of 'layers.{}.w' is in two stacks}}
func.func @second(%w: tensor<2x4xf32> {braid.name = "layers.{}.w", braid.role = "parameter", braid.layers = array<i32: 1, 2>}) attributes {braid.entry} {
  return
}

// -----

func.func @f(%x: tensor<4xf32> {braid.name = "x"}) -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'braid.activation' op is not allowed in phase kernels}}
  %y = braid.activation %x {kind = "silu"} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @f() -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'arith.constant' op is not a tensor of zeros; other values must come from a kernel}}
  %y = arith.constant dense<1.0> : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4x2xf32> {braid.name = "x"}) -> (tensor<4x4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'braid.concat' op along dimension 1 of 'tensor<4x4xf32>' does not put its sources one after the other; it must be a kernel}}
  %y = braid.concat %x, %x {dim = 1 : i64} : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// -----

func.func @f(%x: tensor<4x4xf32> {braid.name = "x"}) -> (tensor<4x2xf32> {braid.name = "y"}) attributes {braid.entry} {
  %y = braid.slice %x {dim = 1 : i64, begin = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x2xf32>
  // expected-error @+1 {{'cmd.materialize' op a slice of 'tensor<4x4xf32>' that is not contiguous would have to be copied}}
  return %y : tensor<4x2xf32>
}

// -----

func.func @f(%x: tensor<4x4xf32> {braid.name = "x"}) -> (tensor<8xf32> {braid.name = "y"}) attributes {braid.entry} {
  %s = braid.slice %x {dim = 1 : i64, begin = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x2xf32>
  // expected-error @+1 {{'braid.reshape' op of a slice that is not contiguous}}
  %y = braid.reshape %s : (tensor<4x2xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32>
func.func @f(%x: tensor<4xf32> {braid.name = "x"}) -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'func.call' op @g has no body in this module}}
  %y = func.call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'func.call' op @g calls itself}}
  %y = func.call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @f(%x: tensor<4xf32> {braid.name = "x"}) -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  %y = func.call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32> {braid.name = "x"}) attributes {braid.entry} {
  // expected-error @+1 {{'braid.comm.start' op its future must be awaited exactly once, by a braid.comm.await}}
  %f = braid.comm.start all_reduce %x {axis = "dp"} : (tensor<4xf32>) -> !braid.future<tensor<4xf32>>
  return
}

// -----

func.func @f(%x: tensor<4xf32> {braid.name = "x"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op needs a static shape and integers or floats to have a buffer, is 'tensor<?xf32>'}}
  %y = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32> {braid.name = "x"}) -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'braid.comm.start' op is awaited in another block}}
  %f = braid.comm.start all_reduce %x {axis = "dp"} : (tensor<4xf32>) -> !braid.future<tensor<4xf32>>
  %y = braid.repeat %x {count = 2 : i64, carried = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%c: tensor<4xf32>):
    // expected-note @+1 {{awaited here}}
    %r = braid.comm.await %f : (!braid.future<tensor<4xf32>>) -> tensor<4xf32>
    braid.yield %r : (tensor<4xf32>) -> ()
  }
  return %y : tensor<4xf32>
}
