// RUN: braid-opt %s --split-input-file --braid-plan-memory --braid-lower-to-commands --verify-diagnostics

func.func @f(%x: tensor<4xf32> {braid.name = "x"}) -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op @k is no kernel of this module}}
  %y = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(%x: memref<?xf32> {tile.name = "x"}, %o: memref<?xf32> {tile.name = "o"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @f(%x: tensor<4xf32> {braid.name = "x"}) -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op gives no tensor to parameter 'x' of @k}}
  %y = tile.launch @k grid [4] (%x) {arg_names = ["q"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(%o: memref<?xf32> {tile.name = "o"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @f(%x: tensor<4xf32> {braid.name = "x"}) -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op @k has no parameter 'q'}}
  %y = tile.launch @k grid [4] (%x) {arg_names = ["q"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(%o: memref<?xf32> {tile.name = "o"}, %s: f32 {tile.name = "s"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @f() -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op gives no value to parameter 's' of @k}}
  %y = tile.launch @k grid [4] () {arg_names = [], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : () -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(%o: memref<?xf32> {tile.name = "o"}, %s: f32 {tile.name = "s"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @f() -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op parameter 's' of @k is a float but gets 3 : i64}}
  %y = tile.launch @k grid [4] () {arg_names = [], result_names = ["o"], inplace = array<i64: -1>, scalars = {s = 3 : i64}} : () -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(%o: memref<?xf32> {tile.name = "o"}, %s: f32 {tile.name = "s"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @f() -> (tensor<4xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op parameter 's' of @k is 'f32' but gets 2.500000e+00 : bf16}}
  %y = tile.launch @k grid [4] () {arg_names = [], result_names = ["o"], inplace = array<i64: -1>, scalars = {s = 2.5 : bf16}} : () -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @k(%x: memref<?x8xf32> {tile.name = "x"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @f(%x: tensor<4xf32> {braid.name = "x"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op 'x': the kernel's parameter has rank 2 but the tensor is 'tensor<4xf32>'}}
  tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = [], inplace = array<i64>, scalars = {}} : (tensor<4xf32>) -> ()
  return
}

// -----

func.func private @k(%x: memref<?x8xf32> {tile.name = "x"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @f(%x: tensor<4x9xf32> {braid.name = "x"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op 'x': dimension 1 of the kernel's parameter is 8 but the tensor is 'tensor<4x9xf32>'}}
  tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = [], inplace = array<i64>, scalars = {}} : (tensor<4x9xf32>) -> ()
  return
}

// -----

func.func private @k(%x: memref<?x8xf32> {tile.name = "x"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @f(%x: tensor<4x8xi32> {braid.name = "x"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op 'x': the kernel's parameter holds 'f32' but the tensor is 'tensor<4x8xi32>'}}
  tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = [], inplace = array<i64>, scalars = {}} : (tensor<4x8xi32>) -> ()
  return
}

// -----

func.func private @k(%x: memref<?x8xf32> {tile.name = "x"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @f(%x: tensor<4x16xf32> {braid.name = "x"}) attributes {braid.entry} {
  %s = braid.slice %x {dim = 1 : i64, begin = 0 : i64} : (tensor<4x16xf32>) -> tensor<4x8xf32>
  // expected-error @+1 {{'tile.launch' op 'x': the kernel wants rows one after the other, but the tensor is a slice with gaps}}
  tile.launch @k grid [4] (%s) {arg_names = ["x"], result_names = [], inplace = array<i64>, scalars = {}} : (tensor<4x8xf32>) -> ()
  return
}

// -----

func.func @f(%x: tensor<4x16xf32> {braid.name = "x"}) -> (tensor<4x8xf32> {braid.name = "y"}) attributes {braid.entry} {
  %s = braid.slice %x {dim = 1 : i64, begin = 0 : i64} : (tensor<4x16xf32>) -> tensor<4x8xf32>
  // expected-error @+1 {{'braid.comm.all_reduce' op cannot send a slice with gaps: 'tensor<4x8xf32>'}}
  %y = braid.comm.all_reduce %s {axis = "dp"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @f(%x: tensor<4x16xf32> {braid.name = "x"}) -> (tensor<4x32xf32> {braid.name = "y"}) attributes {braid.entry} {
  // expected-error @+1 {{'braid.comm.all_gather' op along dimension 1 of 'tensor<4x16xf32>': its parts do not lie one after the other}}
  %y = braid.comm.all_gather %x {axis = "dp", dim = 1 : i64} : (tensor<4x16xf32>) -> tensor<4x32xf32>
  return %y : tensor<4x32xf32>
}

// -----

func.func private @k(%x: memref<?xf32> {tile.name = "x"}, %o: memref<?xf32> {tile.name = "o"}, %p: memref<?xf32> {tile.name = "p"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @f(%x: tensor<4xf32> {braid.name = "x"}) -> (tensor<4xf32> {braid.name = "y"}, tensor<4xf32> {braid.name = "z"}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op two results share the buffer of operand 0}}
  %y:2 = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o", "p"], inplace = array<i64: 0, 0>, scalars = {}} : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %y#0, %y#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// A library product reads rows at one distance, or a batch of such rows: tokens [2, 4) of two sequences are a batch as `a`, not as `b`.
func.func @f(%x: tensor<2x2xf32> {braid.name = "x"}, %w: tensor<2x4x8xf32> {braid.name = "w"}) -> (tensor<2x4xf32> {braid.name = "y"}) attributes {braid.entry} {
  %s = braid.slice %w {dim = 1 : i64, begin = 2 : i64} : (tensor<2x4x8xf32>) -> tensor<2x2x8xf32>
  %a = braid.reshape %x : (tensor<2x2xf32>) -> tensor<1x4xf32>
  // expected-error @+1 {{'tile.gemm' op a slice with gaps cannot be multiplied: b has rows at two distances}}
  %y = tile.gemm %a, %s {a_columns = 4 : i64, b_columns = 8 : i64, c_columns = 8 : i64} : (tensor<1x4xf32>, tensor<2x2x8xf32>) -> tensor<1x8xf32>
  %z = braid.reshape %y : (tensor<1x8xf32>) -> tensor<2x4xf32>
  return %z : tensor<2x4xf32>
}

// -----

func.func @f(%w: tensor<2x4x8xf32> {braid.name = "w"}) -> (tensor<8x16xf32> {braid.name = "y"}) attributes {braid.entry} {
  %s = braid.slice %w {dim = 1 : i64, begin = 2 : i64} : (tensor<2x4x8xf32>) -> tensor<2x2x8xf32>
  %t = braid.reshape %w : (tensor<2x4x8xf32>) -> tensor<16x4xf32>
  // expected-error @+1 {{'tile.gemm' op a slice with gaps cannot be multiplied: both operands are transposed}}
  %y = tile.gemm %s, %t {a_columns = 8 : i64, b_columns = 4 : i64, c_columns = 16 : i64, transpose_a, transpose_b} : (tensor<2x2x8xf32>, tensor<16x4xf32>) -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}

// -----

func.func @f(%x: tensor<3x4x4xf32> {braid.name = "x"}, %w: tensor<2x4x8xf32> {braid.name = "w"}) -> (tensor<4x8xf32> {braid.name = "y"}) attributes {braid.entry} {
  %a = braid.slice %x {dim = 1 : i64, begin = 0 : i64} : (tensor<3x4x4xf32>) -> tensor<3x2x4xf32>
  %b = braid.slice %w {dim = 1 : i64, begin = 1 : i64} : (tensor<2x4x8xf32>) -> tensor<2x3x8xf32>
  // expected-error @+1 {{'tile.gemm' op a slice with gaps cannot be multiplied: a and b are cut differently}}
  %y = tile.gemm %a, %b {a_columns = 4 : i64, b_columns = 8 : i64, c_columns = 8 : i64, transpose_a} : (tensor<3x2x4xf32>, tensor<2x3x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @f(%x: tensor<1x32x16xf32> {braid.name = "x"}, %w: tensor<4x8x24xf32> {braid.name = "w"}, %offsets: tensor<5xi32> {braid.name = "offsets"})
    -> (tensor<1x32x24xf32> {braid.name = "y"}) attributes {braid.entry} {
  %a = braid.slice %x {dim = 2 : i64, begin = 0 : i64} : (tensor<1x32x16xf32>) -> tensor<1x32x8xf32>
  // expected-error @+1 {{'tile.grouped_gemm' op a slice with gaps cannot be multiplied by groups: 'tensor<1x32x8xf32>'}}
  %y = tile.grouped_gemm %a, %w, %offsets : (tensor<1x32x8xf32>, tensor<4x8x24xf32>, tensor<5xi32>) -> tensor<1x32x24xf32>
  return %y : tensor<1x32x24xf32>
}
