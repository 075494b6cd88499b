// The kept tiles of a block lie in its shared memory; what a product reads and gives is kept, however thrifty the plan.
// RUN: braid-opt %s --braid-tile-to-threads=shared-bytes=4096 --verify-diagnostics

// A row of 64 f32 is 68 apart: 16 of them twice, and 16 rows of 16 results, 20 apart.
// expected-error @+1 {{the tiles of @product need 9984 bytes of shared memory at a time; valid: at most 4096, with smaller chunks (--chunk-size) or heads (head_dim, value_dim)}}
func.func @product(%a: memref<?x64xf32> {tile.name = "a"}, %b: memref<?x64xf32> {tile.name = "b"}, %c: memref<?x64xf32> {tile.name = "c"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<16x16xf32>
  %i = tile.program : index
  %x = tile.load %a[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<16x64xf32>
  %y = tile.load %b[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<16x64xf32>
  %z = tile.dot %x, %y, %zero {transpose_b} : vector<16x64xf32>, vector<16x64xf32>, vector<16x16xf32>
  tile.store %z, %c[%i, %c0] {dims = array<i64: 0, 1>} : vector<16x16xf32>, memref<?x64xf32>
  return
}
