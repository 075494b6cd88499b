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
