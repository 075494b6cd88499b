// A kernel's tiles lie on the stack of the thread that runs it.
// RUN: braid-opt %s --braid-tile-to-loops --verify-diagnostics

// exp has two readers, so it is kept: 4096 x 2100 f32, and 16 more so that the last vector may be whole.
// expected-error-re @+1 {{the tiles of @softmax need {{3[0-9]+}} bytes of stack at a time; valid: at most 33554432, with smaller chunks (--chunk-size) or heads (head_dim, value_dim)}}
func.func @softmax(%x: memref<?x2100xf32> {tile.name = "x"}, %y: memref<?x2100xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %i = tile.program : index
  %v = tile.load %x[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x2100xf32>, vector<4096x2100xf32>
  %e = math.exp %v : vector<4096x2100xf32>
  %s = tile.reduce add %e {axis = 1 : i64} : vector<4096x2100xf32>, vector<4096xf32>
  %se = tile.expand %s {axis = 1 : i64} : vector<4096xf32>, vector<4096x2100xf32>
  %o = arith.divf %e, %se : vector<4096x2100xf32>
  tile.store %o, %y[%i, %c0] {dims = array<i64: 0, 1>} : vector<4096x2100xf32>, memref<?x2100xf32>
  return
}
