// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of collectives say.

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 4x9 but x is 4x8}}
  %0 = braid.comm.all_reduce %x {axis = "dp"} : (tensor<4x8xf32>) -> tensor<4x9xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{element type mismatch: result holds 'bf16' but x holds 'f32'}}
  %0 = braid.comm.all_reduce %x {axis = "dp"} : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 8x4 but x is 4x8}}
  %0 = braid.comm.all_to_all %x {axis = "ep", peers = 4 : i64} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{peers is 0 but must be at least 1}}
  %0 = braid.comm.all_to_all %x {axis = "ep", peers = 0 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<f32>) {
  // expected-error @+1 {{x has rank 0 but must have 1 to 8}}
  %0 = braid.comm.all_to_all %x {axis = "ep", peers = 4 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<5x8xf32>) {
  // expected-error @+1 {{4 peers do not divide the 5 rows of x}}
  %0 = braid.comm.all_to_all %x {axis = "ep", peers = 4 : i64} : (tensor<5x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x30x8xf32>) {
  // expected-error @+1 {{4 peers do not divide the 30 rows of x}}
  %0 = braid.comm.all_to_all %x {axis = "ep", peers = 4 : i64} : (tensor<1x30x8xf32>) -> tensor<1x30x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %s: tensor<4x2xi32>) {
  // expected-error @+1 {{needs both send_counts and recv_counts, or neither}}
  %0 = braid.comm.all_to_all %x send_counts(%s) {axis = "ep", peers = 4 : i64} : (tensor<4x8xf32>, tensor<4x2xi32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %s: tensor<4xi32>, %r: tensor<4x2xi32>) {
  // expected-error @+1 {{send_counts has rank 1 but must have 2}}
  %0 = braid.comm.all_to_all %x send_counts(%s) recv_counts(%r) {axis = "ep", peers = 4 : i64} : (tensor<4x8xf32>, tensor<4xi32>, tensor<4x2xi32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %s: tensor<4x2xi64>, %r: tensor<4x2xi32>) {
  // expected-error @+1 {{send_counts must hold i32 but holds 'i64'}}
  %0 = braid.comm.all_to_all %x send_counts(%s) recv_counts(%r) {axis = "ep", peers = 4 : i64} : (tensor<4x8xf32>, tensor<4x2xi64>, tensor<4x2xi32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %s: tensor<4x2xi32>, %r: tensor<2x2xi32>) {
  // expected-error @+1 {{recv_counts has 2 rows for 4 peers}}
  %0 = braid.comm.all_to_all %x send_counts(%s) recv_counts(%r) {axis = "ep", peers = 4 : i64} : (tensor<4x8xf32>, tensor<4x2xi32>, tensor<2x2xi32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{has no inputs}}
  %0 = "braid.comm.start"() {axis = "dp", kind = 0 : i32} : () -> !braid.future<tensor<4xf32>>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{starts with 'tensor<4x8xf32>' but its future is '!braid.future<tensor<4xf32>>'}}
  %0 = braid.comm.start all_reduce %x {axis = "ep"} : (tensor<4x8xf32>) -> !braid.future<tensor<4xf32>>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) {
  // expected-error @+1 {{all_reduce takes 1 inputs but there are 2}}
  %0 = braid.comm.start all_reduce %x, %y {axis = "ep"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> !braid.future<tensor<4x8xf32>>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %y: tensor<4x2xi32>) {
  // expected-error @+1 {{all_to_all takes 1 or 3 inputs but there are 2}}
  %0 = braid.comm.start all_to_all %x, %y {axis = "ep", peers = 4 : i64} : (tensor<4x8xf32>, tensor<4x2xi32>) -> !braid.future<tensor<4x8xf32>>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{3 peers do not divide the 4 rows of x}}
  %0 = braid.comm.start all_to_all %x {axis = "ep", peers = 3 : i64} : (tensor<4x8xf32>) -> !braid.future<tensor<4x8xf32>>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %s: tensor<4x2xi32>, %r: tensor<3x2xi32>) {
  // expected-error @+1 {{recv_counts has 3 rows for 4 peers}}
  %0 = braid.comm.start all_to_all %x, %s, %r {axis = "ep", peers = 4 : i64} : (tensor<4x8xf32>, tensor<4x2xi32>, tensor<3x2xi32>) -> !braid.future<tensor<4x8xf32>>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %s: tensor<4x2xf32>, %r: tensor<4x2xi32>) {
  // expected-error @+1 {{send_counts must hold i32 but holds 'f32'}}
  %0 = braid.comm.start all_to_all %x, %s, %r {axis = "ep", peers = 4 : i64} : (tensor<4x8xf32>, tensor<4x2xf32>, tensor<4x2xi32>) -> !braid.future<tensor<4x8xf32>>
  return
}

// -----

// expected-note @+1 {{future defined here}}
func.func @f(%future: !braid.future<tensor<4x8xf32>>) {
  // expected-error @+1 {{awaits '!braid.future<tensor<4x8xf32>>' but returns 'tensor<4xf32>'}}
  %0 = braid.comm.await %future : (!braid.future<tensor<4x8xf32>>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{dim is -1 but must be at least 0}}
  %0 = braid.comm.all_gather %x {axis = "tp", dim = -1 : i64} : (tensor<4x8xf32>) -> tensor<4x16xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{dim is 2 but result has rank 2}}
  %0 = braid.comm.all_gather %x {axis = "tp", dim = 2 : i64} : (tensor<4x8xf32>) -> tensor<4x16xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{result holds 'bf16' but x holds 'f32'}}
  %0 = braid.comm.all_gather %x {axis = "tp", dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x16xbf16>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{x is 4x8, which is no part along dimension 1 of result, which is 4x12}}
  %0 = braid.comm.all_gather %x {axis = "tp", dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x12xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{x is 4x8, which is no part along dimension 1 of result, which is 8x16}}
  %0 = braid.comm.all_gather %x {axis = "tp", dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{x is 4x8, which is no part along dimension 1 of result, which is 1x4x16}}
  %0 = braid.comm.all_gather %x {axis = "tp", dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<1x4x16xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{result is 3x8, which is no part along dimension 0 of x, which is 4x8}}
  %0 = braid.comm.reduce_scatter %x {axis = "tp", dim = 0 : i64} : (tensor<4x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 4x9 but x is 4x8}}
  %0 = braid.comm.shift %x {axis = "sp"} : (tensor<4x8xf32>) -> tensor<4x9xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{x is 4x8, which is no part along dimension 0 of its future's tensor, which is 4x16}}
  %0 = braid.comm.start all_gather %x {axis = "tp"} : (tensor<4x8xf32>) -> !braid.future<tensor<4x16xf32>>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{its future's tensor is 8x8, which is no part along dimension 0 of x, which is 4x8}}
  %0 = braid.comm.start reduce_scatter %x {axis = "tp"} : (tensor<4x8xf32>) -> !braid.future<tensor<8x8xf32>>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{distance is 0 but must be at least 1}}
  %0 = braid.comm.shift %x {axis = "sp", distance = 0 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{dim belongs to all_gather and reduce_scatter, not to shift}}
  %0 = braid.comm.start shift %x {axis = "tp", dim = 1 : i64} : (tensor<4x8xf32>) -> !braid.future<tensor<4x8xf32>>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{cyclic, reverse and distance belong to shift, not to all_reduce}}
  %0 = braid.comm.start all_reduce %x {axis = "tp", reverse} : (tensor<4x8xf32>) -> !braid.future<tensor<4x8xf32>>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{starts with 'tensor<4x8xf32>' but its future is '!braid.future<tensor<8xf32>>'}}
  %0 = braid.comm.start shift %x {axis = "sp"} : (tensor<4x8xf32>) -> !braid.future<tensor<8xf32>>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{starts with 'tensor<4x8xf32>' but its future is '!braid.future<tensor<?x8xf32>>'}}
  %0 = braid.comm.start all_gather %x {axis = "tp"} : (tensor<4x8xf32>) -> !braid.future<tensor<?x8xf32>>
  return
}
