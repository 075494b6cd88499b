// The kept tiles of a block lie in its shared memory.
// RUN: braid-opt %s --braid-tile-to-threads=shared-bytes=8192 --verify-diagnostics

// exp has two readers, so it is kept: 32 rows of 64 f32, 68 apart.
// expected-error @+1 {{the tiles of @softmax need 8832 bytes of shared memory at a time; valid: at most 8192, with smaller chunks (--chunk-size) or heads (head_dim, value_dim)}}
func.func @softmax(%x: memref<?x64xf32> {tile.name = "x"}, %y: memref<?x64xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %i = tile.program : index
  %v = tile.load %x[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<32x64xf32>
  %e = math.exp %v : vector<32x64xf32>
  %s = tile.reduce add %e {axis = 1 : i64} : vector<32x64xf32>, vector<32xf32>
  %se = tile.expand %s {axis = 1 : i64} : vector<32xf32>, vector<32x64xf32>
  %o = arith.divf %e, %se : vector<32x64xf32>
  tile.store %o, %y[%i, %c0] {dims = array<i64: 0, 1>} : vector<32x64xf32>, memref<?x64xf32>
  return
}
