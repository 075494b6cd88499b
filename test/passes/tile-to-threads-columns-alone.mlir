// Tiles in the columns of warps, where half of the shared memory is not enough: a block has a multiprocessor for itself.
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=shared-bytes=80000 --canonicalize --cse | FileCheck %s
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=shared-bytes=160000 --canonicalize --cse | FileCheck %s --check-prefix=SHARED

// Sixteen warps have eight columns each of the 32 x 128 tiles: as many as two blocks would have. What the branch multiplies is asked for, 128 bytes at a
// time, before the first wait, for its condition is a sum of what is loaded: rows of tokens (64 lines, those that are there) and of a state (256 lines).
// CHECK-LABEL: func.func @alone
// CHECK-SAME:  threads.block = 512 : i64, threads.scratch_bytes
// CHECK:       nvvm.prefetch level ={{ *}}L2
// CHECK:       nvvm.prefetch level ={{ *}}L2
// CHECK-NOT:   nvvm.prefetch
// CHECK:       vector.load {{.*}} : memref<?xf32>, vector<2xf32>
// CHECK:       gpu.shuffle up
// CHECK:       scf.if
// CHECK:       nvvm.cp.async.shared.global
// CHECK:       nvvm.mma.sync
// CHECK-NOT:   nvvm.prefetch
// CHECK:       return
// Where two blocks fit they compute while the other waits.
// SHARED-LABEL: func.func @alone
// SHARED-SAME:  threads.block = 256 : i64, threads.blocks_together = 2
// SHARED-NOT:   nvvm.prefetch
// SHARED:       return
func.func @alone(%g: memref<?x128xf32> {tile.name = "g"}, %k: memref<?x128xbf16> {tile.name = "k"}, %m: memref<128x128xbf16> {tile.name = "m"},
                 %y: memref<?x128xf32> {tile.name = "y"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %least = arith.constant -32.0 : f32
  %zero = arith.constant dense<0.0> : vector<32x128xf32>
  %gv = tile.load %g[%c0, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x128xf32>, vector<32x128xf32>
  %c = tile.cumsum %gv {axis = 0 : i64} : vector<32x128xf32>
  %sums = tile.reduce min %c {axis = 0 : i64} : vector<32x128xf32>, vector<128xf32>
  %sum = tile.reduce min %sums {axis = 0 : i64} : vector<128xf32>, f32
  %mild = arith.cmpf olt, %least, %sum : f32
  scf.if %mild {
    %e = math.exp %c : vector<32x128xf32>
    %kb = tile.load %k[%c0, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x128xbf16>, vector<32x128xbf16>
    %mv = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<128x128xbf16>, vector<128x128xbf16>
    %p = tile.dot %kb, %mv, %zero : vector<32x128xbf16>, vector<128x128xbf16>, vector<32x128xf32>
    %q = arith.mulf %p, %e : vector<32x128xf32>
    %t = arith.truncf %q : vector<32x128xf32> to vector<32x128xbf16>
    %o = tile.dot %t, %mv, %q : vector<32x128xbf16>, vector<128x128xbf16>, vector<32x128xf32>
    %b = tile.cumsum %o {axis = 0 : i64, reverse} : vector<32x128xf32>
    tile.store %b, %y[%c0, %c0] limit %n {dims = array<i64: 0, 1>} : vector<32x128xf32>, memref<?x128xf32>
  }
  return
}
