// RUN: braid-opt %s --split-input-file --verify-diagnostics

// expected-note @+1 {{buffer defined here}}
func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{has 1 indices but the buffer has rank 2}}
  %0 = tile.load %m[%c0] {dims = array<i64: 0, 1>} : memref<?x8xf32>, vector<4x8xf32>
  return
}

// -----

func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{dims names 1 dimensions but the tile has rank 2}}
  %0 = tile.load %m[%c0, %c0] {dims = array<i64: 0>} : memref<?x8xf32>, vector<4x8xf32>
  return
}

// -----

// expected-note @+1 {{buffer defined here}}
func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{dims[1] = 2 is out of range for a buffer of rank 2}}
  %0 = tile.load %m[%c0, %c0] {dims = array<i64: 0, 2>} : memref<?x8xf32>, vector<4x8xf32>
  return
}

// -----

func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{dims must ascend: dims[1] = 0 follows 1}}
  %0 = tile.load %m[%c0, %c0] {dims = array<i64: 1, 0>} : memref<?x8xf32>, vector<4x8xf32>
  return
}

// -----

// expected-note @+1 {{buffer defined here}}
func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{tile dimension 1 has 9 elements but buffer dimension 1 has 8}}
  %0 = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<?x8xf32>, vector<4x9xf32>
  return
}

// -----

// expected-note @+1 {{buffer defined here}}
func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{element type mismatch: the buffer has 'f32' but the tile has 'f64'}}
  %0 = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<?x8xf32>, vector<4x8xf64>
  return
}

// -----

func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {
  %c0 = arith.constant 0 : index
  // expected-note @+1 {{rows defined here}}
  %r = arith.constant dense<0> : vector<3xi32>
  // expected-error @+1 {{rows has shape [3] but the tile has 4 rows}}
  %0 = tile.load %m[%c0, %c0] rows %r : vector<3xi32> {dims = array<i64: 0, 1>} : memref<?x8xf32>, vector<4x8xf32>
  return
}

// -----

func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {
  %c0 = arith.constant 0 : index
  %z = arith.constant dense<0.0> : vector<4x8xf32>
  // expected-note @+1 {{rows defined here}}
  %r = arith.constant dense<0> : vector<4x1xi32>
  // expected-error @+1 {{rows has shape [4, 1] but the tile has 4 rows}}
  tile.store %z, %m[%c0, %c0] rows %r : vector<4x1xi32> {dims = array<i64: 0, 1>} : vector<4x8xf32>, memref<?x8xf32>
  return
}

// -----

func.func @k() attributes {tile.kernel, tile.grid = ["i"]} {
  %v = arith.constant dense<1> : vector<4x8xi64>
  // expected-error @+1 {{operand #0 must be vector of 32-bit float or 64-bit float or bfloat16 type or 32-bit signless integer values, but got 'vector<4x8xi64>'}}
  %0 = tile.cumsum %v {axis = 0 : i64} : vector<4x8xi64>
  return
}

// -----

func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {
  %c0 = arith.constant 0 : index
  %z = arith.constant dense<0.0> : vector<4x8xf32>
  // expected-error @+1 {{dims names 1 dimensions but the tile has rank 2}}
  tile.store %z, %m[%c0, %c0] {dims = array<i64: 0>} : vector<4x8xf32>, memref<?x8xf32>
  return
}

// -----

func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {
  // expected-error @+1 {{has 2 results but tile.grid has 1 names}}
  %a, %b = tile.program : index, index
  return
}

// -----

func.func @k()  {
  // expected-error @+1 {{is outside of a kernel (a func.func with tile.grid)}}
  %a = tile.program : index
  return
}

// -----

// expected-note @+1 {{b defined here}}
func.func @k(%a: vector<4x8xf32>, %b: vector<8x16xf32>, %c: vector<4x16xf32>, %d: vector<4x16xf64>, %e: vector<8xf32>, %f: vector<8x8xf64>, %h: vector<5x16xf32>)  {
  // expected-error @+1 {{inner dimension mismatch: op(a) is [4, 8] but op(b) is [16, 8]}}
  %0 = tile.dot %a, %b, %c {transpose_b} : vector<4x8xf32>, vector<8x16xf32>, vector<4x16xf32>
  return
}

// -----

// expected-note @+1 {{acc defined here}}
func.func @k(%a: vector<4x8xf32>, %b: vector<8x16xf32>, %c: vector<4x16xf32>, %d: vector<4x16xf64>, %e: vector<8xf32>, %f: vector<8x8xf64>, %h: vector<5x16xf32>)  {
  // expected-error @+1 {{row mismatch: op(a) has 4 rows but acc has 5}}
  %0 = tile.dot %a, %b, %h : vector<4x8xf32>, vector<8x16xf32>, vector<5x16xf32>
  return
}

// -----

// expected-note @+1 {{acc defined here}}
func.func @k(%a: vector<4x8xf32>, %b: vector<8x16xf32>, %c: vector<4x16xf32>, %d: vector<4x16xf64>, %e: vector<8xf32>, %f: vector<8x8xf64>, %h: vector<5x16xf32>, %g: vector<8x8xf32>)  {
  // expected-error @+1 {{column mismatch: op(b) has 8 columns but acc has 16}}
  %0 = tile.dot %a, %g, %c : vector<4x8xf32>, vector<8x8xf32>, vector<4x16xf32>
  return
}

// -----

func.func @k(%a: vector<4x8xf32>, %b: vector<8x16xf32>, %c: vector<4x16xf32>, %d: vector<4x16xf64>, %e: vector<8xf32>, %f: vector<8x8xf64>, %h: vector<5x16xf32>)  {
  // expected-error @+1 {{a must have rank 2, has rank 1}}
  %0 = tile.dot %e, %b, %c : vector<8xf32>, vector<8x16xf32>, vector<4x16xf32>
  return
}

// -----

// expected-note @+1 {{acc defined here}}
func.func @k(%a: vector<4x8xf32>, %b: vector<8x16xf32>, %c: vector<4x16xf32>, %d: vector<4x16xf64>, %e: vector<8xf32>, %f: vector<8x8xf64>, %h: vector<5x16xf32>)  {
  // expected-error @+1 {{accumulates 'f32' in 'f32' but acc has 'f64'}}
  %0 = tile.dot %a, %b, %d : vector<4x8xf32>, vector<8x16xf32>, vector<4x16xf64>
  return
}

// -----

// expected-note @+1 {{a defined here}}
func.func @k(%a: vector<4x8xf32>, %b: vector<8x16xf32>, %c: vector<4x16xf32>, %d: vector<4x16xf64>, %e: vector<8xf32>, %f: vector<8x8xf64>, %h: vector<5x16xf32>)  {
  // expected-error @+1 {{element type mismatch: a has 'f32' but b has 'f64'}}
  %0 = tile.dot %a, %f, %a : vector<4x8xf32>, vector<8x8xf64>, vector<4x8xf32>
  return
}

// -----

func.func @k(%a: vector<4x8xf32>, %b: vector<8x16xf32>, %c: vector<4x16xf32>, %d: vector<4x16xf64>, %e: vector<8xf32>, %f: vector<8x8xf64>, %h: vector<5x16xf32>)  {
  // expected-error @+1 {{a must be square, is [4, 8]}}
  %0 = tile.solve %a, %c : vector<4x8xf32>, vector<4x16xf32>
  return
}

// -----

// expected-note @+1 {{b defined here}}
func.func @k(%a: vector<8x8xf32>, %b: vector<4x8xf32>)  {
  // expected-error @+1 {{row mismatch: a has 8 rows but b has 4}}
  %0 = tile.solve %a, %b : vector<8x8xf32>, vector<4x8xf32>
  return
}

// -----

func.func @k(%a: vector<8x8xf32>, %b: vector<8xf32>)  {
  // expected-error @+1 {{b must have rank 2, has rank 1}}
  %0 = tile.solve %a, %b : vector<8x8xf32>, vector<8xf32>
  return
}

// -----

// expected-note @+1 {{a defined here}}
func.func @k(%a: vector<8x8xf64>, %b: vector<8x4xf32>)  {
  // expected-error @+1 {{element type mismatch: a has 'f64' but b has 'f32'}}
  %0 = tile.solve %a, %b : vector<8x8xf64>, vector<8x4xf32>
  return
}

// -----

func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{axis 2 is out of range for rank 2}}
  %0 = tile.cumsum %v {axis = 2 : i64} : vector<4x8xf32>
  return
}

// -----

func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{axis -1 is out of range for rank 2}}
  %0 = tile.reduce add %v {axis = -1 : i64} : vector<4x8xf32>, vector<4xf32>
  return
}

// -----

func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{reducing axis 0 of 'vector<4x8xf32>' gives 'vector<8xf32>', not 'vector<4xf32>'}}
  %0 = tile.reduce add %v {axis = 0 : i64} : vector<4x8xf32>, vector<4xf32>
  return
}

// -----

func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{result must have rank 3, has rank 2}}
  %0 = tile.expand %v {axis = 0 : i64} : vector<4x8xf32>, vector<4x8xf32>
  return
}

// -----

func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{result without axis 1 is [4, 9] but the source is [4, 8]}}
  %0 = tile.expand %v {axis = 1 : i64} : vector<4x8xf32>, vector<4x3x9xf32>
  return
}

// -----

// expected-note @+1 {{tile defined here}}
func.func @k(%v: vector<4x8xf32>, %i: index)  {
  // expected-error @+1 {{the result has 5 rows but the tile has 4}}
  %0 = tile.rows %v[%i] : vector<4x8xf32>, vector<5x8xf32>
  return
}

// -----

// expected-note @+1 {{tile defined here}}
func.func @k(%v: vector<4x8xf32>, %i: index)  {
  // expected-error @+1 {{row mismatch: a row of the tile is [8] but of the result [7]}}
  %0 = tile.rows %v[%i] : vector<4x8xf32>, vector<7xf32>
  return
}

// -----

// expected-note @+1 {{tile defined here}}
func.func @k(%v: vector<4x8xf32>, %w: vector<2x7xf32>, %i: index)  {
  // expected-error @+1 {{row mismatch: a row of the tile is [8] but of the value [7]}}
  %0 = tile.insert_rows %w, %v[%i] : vector<2x7xf32>, vector<4x8xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{columns [6, 10) are outside of a tile with 8 columns}}
  %0 = tile.slice %v {offset = 6 : i64} : vector<4x8xf32>, vector<4x4xf32>
  return
}

// -----

func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{only the last dimension may differ: source [4, 8], result [3, 8]}}
  %0 = tile.slice %v {offset = 0 : i64} : vector<4x8xf32>, vector<3x8xf32>
  return
}

// -----

func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{the sources have 16 columns but the result has 15}}
  %0 = tile.concat %v, %v : vector<4x8xf32>, vector<4x8xf32> -> vector<4x15xf32>
  return
}

// -----

// expected-note @+1 {{source 1 defined here}}
func.func @k(%v: vector<4x8xf32>, %h: vector<5x16xf32>)  {
  // expected-error @+1 {{source 1 is [5, 16] but the result is [4, 24]}}
  %0 = tile.concat %v, %h : vector<4x8xf32>, vector<5x16xf32> -> vector<4x24xf32>
  return
}

// -----

func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{transposing 'vector<4x8xf32>' gives 'vector<8x4xf32>', not 'vector<4x8xf32>'}}
  %0 = tile.transpose %v : vector<4x8xf32>, vector<4x8xf32>
  return
}

// -----

func.func @k()  {
  // expected-error @+1 {{axis 1 is out of range for rank 1}}
  %0 = tile.iota {axis = 1 : i64} : vector<4xi32>
  return
}

// -----

func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{needs a square tile of rank 2, is [4, 8]}}
  %0 = tile.mask lower %v : vector<4x8xf32>
  return
}

// -----

func.func @k(%v: vector<4x8xf32>)  {
  // expected-error @+1 {{needs a square tile of rank 2, is [4, 8]}}
  %0 = tile.diagonal %v : vector<4x8xf32>, vector<4xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @k(%v: vector<8x8xf32>)  {
  // expected-error @+1 {{needs a number for each of 8 rows, the result is [4]}}
  %0 = tile.diagonal %v : vector<8x8xf32>, vector<4xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @k(%v: vector<8x8xf32>)  {
  // expected-error @+1 {{element type mismatch: the source has 'f32' but the result has 'f64'}}
  %0 = tile.diagonal %v : vector<8x8xf32>, vector<8xf64>
  return
}

// -----

func.func @k(%v: vector<2x4x8xf32>, %c: vector<2xi32>)  {
  // expected-error @+1 {{source must have rank 2, has rank 3}}
  %0 = tile.pick %v[%c] : vector<2x4x8xf32>, vector<2xi32>, vector<2xf32>
  return
}

// -----

// expected-note @+1 {{columns defined here}}
func.func @k(%v: vector<4x8xf32>, %c: vector<8xi32>)  {
  // expected-error @+1 {{needs a column for each of 4 rows, has [8]}}
  %0 = tile.pick %v[%c] : vector<4x8xf32>, vector<8xi32>, vector<4xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @k(%v: vector<4x8xf32>, %c: vector<4xi32>)  {
  // expected-error @+1 {{needs a number for each of 4 rows, the result is [8]}}
  %0 = tile.pick %v[%c] : vector<4x8xf32>, vector<4xi32>, vector<8xf32>
  return
}

// -----

// expected-error @+1 {{is a tile.kernel without tile.grid}}
func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel} {

  return
}

// -----

// expected-error @+1 {{is a tile.kernel without a body}}
func.func private @k(memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]}

// -----

// expected-error @+1 {{tile.grid must have 1 to 3 names, has 4}}
func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["a", "b", "c", "d"]} {

  return
}

// -----

// expected-error @+1 {{argument 0 has no tile.name}}
func.func @k(%m: index) attributes {tile.kernel, tile.grid = ["i"]} {

  return
}

// -----

// expected-error @+1 {{argument name 'm' is used twice}}
func.func @k(%m: memref<?x8xf32> {tile.name = "m"}, %n: index {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {

  return
}

// -----

// expected-error @+1 {{argument 'm' must be a memref, index, f32 or f64, is 'i32'}}
func.func @k(%m: i32 {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {

  return
}

// -----

// expected-error @+1 {{argument 'm' has 1 axes but 2 dimensions}}
func.func @k(%m: memref<4x8xf32> {tile.name = "m", tile.axes = ["row"]}) attributes {tile.kernel, tile.grid = ["i"]} {

  return
}

// -----

// expected-error @+1 {{tile.in_place must hold pairs of names of the kernel's buffers, is [1]}}
func.func @k(%m: memref<4xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"], tile.in_place = [1]} {
  return
}

// -----

// expected-error @+1 {{tile.in_place must hold pairs of names of the kernel's buffers, is [["m", "n"]]}}
func.func @k(%m: memref<4xf32> {tile.name = "m"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["i"], tile.in_place = [["m", "n"]]} {
  return
}

// -----

// expected-error @+1 {{tile.in_place belongs on a tile.kernel}}
func.func @k(%m: memref<4xf32>) attributes {tile.in_place = []} {
  return
}

// -----

func.func @k(%n: index, %one: index) {
  // expected-error @+1 {{tile.mean_walk belongs on an scf.for}}
  %m = arith.addi %n, %one {tile.mean_walk = 4 : i64} : index
  return
}

// -----

func.func @k(%n: index, %one: index) {
  scf.for %i = %one to %n step %one {
    // expected-error @+1 {{tile.mean_walk must be an i64 of at least 1, is 0 : i64}}
    scf.for %j = %i to %n step %one {
    } {tile.mean_walk = 0 : i64}
  }
  return
}

// -----

// expected-error @+1 {{argument 'm': tile.axes must hold strings, is [1, "token"]}}
func.func @k(%m: memref<4x8xf32> {tile.name = "m", tile.axes = [1, "token"]}) attributes {tile.kernel, tile.grid = ["i"]} {

  return
}

// -----

// expected-error @+1 {{argument 'n' has 1 axes but 0 dimensions}}
func.func @k(%n: index {tile.name = "n", tile.axes = ["row"]}) attributes {tile.kernel, tile.grid = ["i"]} {

  return
}

// -----

// expected-error @+1 {{argument 'm' needs a contiguous innermost dimension}}
func.func @k(%m: memref<4x8xf32, strided<[8, 2]>> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {

  return
}

// -----

// expected-error @+1 {{tile.grid must hold strings, has 1 : i64}}
func.func @k(%m: memref<?x8xf32> {tile.name = "m"}) attributes {tile.kernel, tile.grid = [1]} {

  return
}

// -----

// expected-error @+1 {{a kernel has no results, has 1}}
func.func @k(%m: index {tile.name = "m"}) -> index attributes {tile.kernel, tile.grid = ["i"]} {

  return %m : index
}

// -----

// expected-error @+1 {{tile.kernel belongs on a func.func}}
module attributes {tile.kernel} {
}

// -----

// expected-error @+1 {{argument 'm' needs a strided layout of offset 0: 'memref<4x8xf32, strided<[8, 1], offset: 4>>'}}
func.func @k(%m: memref<4x8xf32, strided<[8, 1], offset: 4>> {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["i"]} {

  return
}

// -----

func.func @k()  {
  // expected-error @+1 {{needs at least one tile}}
  %0 = "tile.concat"() : () -> vector<4x8xf32>
  return
}

// -----

// expected-note @+1 {{source 1 defined here}}
func.func @k(%v: vector<4x8xf32>, %d: vector<4x8xf64>)  {
  // expected-error @+1 {{element type mismatch: source 1 has 'f64' but the result has 'f32'}}
  %0 = tile.concat %v, %d : vector<4x8xf32>, vector<4x8xf64> -> vector<4x16xf32>
  return
}

// -----

func.func @k(%v: vector<8xf32>)  {
  // expected-error @+1 {{source must have rank 2, has rank 1}}
  %0 = tile.transpose %v : vector<8xf32>, vector<8xf32>
  return
}
