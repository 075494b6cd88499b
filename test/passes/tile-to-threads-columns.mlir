// Tiles of tokens by channels whose columns are a warp's.
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads --canonicalize --cse | FileCheck %s

// Eight warps have eight columns each of the 32 x 64 tiles. Decays are added up by shuffles, from row to row of a warp and from eight rows to
// the next eight; the product goes on in registers, is added up backwards, moved down by a row and stored. In shared memory lie bf16 operands, no
// tile of f32, and the block is small enough for a second one beside it.
// CHECK-LABEL: func.func @decayed
// CHECK-SAME:  threads.blocks_together = 2
// CHECK-NOT:   memref<2176xf32, #gpu.address_space<workgroup>>
// CHECK:       vector.load {{.*}} : memref<?xf32>, vector<2xf32>
// CHECK:       gpu.shuffle up
// CHECK:       gpu.shuffle idx
// CHECK:       arith.truncf {{.*}} : vector<2xf32> to vector<2xbf16>
// CHECK:       vector.store {{.*}} : memref<2304xbf16, #gpu.address_space<workgroup>>, vector<2xbf16>
// CHECK:       gpu.barrier
// CHECK:       nvvm.mma.sync
// CHECK-NOT:   gpu.barrier
// CHECK:       gpu.shuffle down
// CHECK-NOT:   gpu.barrier
// CHECK:       gpu.shuffle idx
// CHECK-NOT:   gpu.barrier
// CHECK:       vector.store {{.*}} : memref<?xf32>, vector<2xf32>
// CHECK:       return
func.func @decayed(%g: memref<32x64xf32> {tile.name = "g"}, %k: memref<32x64xbf16> {tile.name = "k"}, %m: memref<64x64xbf16> {tile.name = "m"},
                   %y: memref<32x64xf32> {tile.name = "y"}, %s: memref<64x64xf32> {tile.name = "s"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<32x64xf32>
  %square = arith.constant dense<0.0> : vector<64x64xf32>
  %gv = tile.load %g[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x64xf32>, vector<32x64xf32>
  %c = tile.cumsum %gv {axis = 0 : i64} : vector<32x64xf32>
  %e = math.exp %c : vector<32x64xf32>
  %kb = tile.load %k[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x64xbf16>, vector<32x64xbf16>
  %kv = arith.extf %kb : vector<32x64xbf16> to vector<32x64xf32>
  %d = arith.mulf %kv, %e : vector<32x64xf32>
  %t = arith.truncf %d : vector<32x64xf32> to vector<32x64xbf16>
  %mv = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xbf16>, vector<64x64xbf16>
  %p = tile.dot %t, %mv, %zero : vector<32x64xbf16>, vector<64x64xbf16>, vector<32x64xf32>
  %q = arith.mulf %p, %e : vector<32x64xf32>
  %b = tile.cumsum %q {axis = 0 : i64, reverse} : vector<32x64xf32>
  %r = tile.rows %b[%c0] : vector<32x64xf32>, vector<31x64xf32>
  %i = tile.insert_rows %r, %zero[%c1] : vector<31x64xf32>, vector<32x64xf32>
  tile.store %i, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<32x64xf32>, memref<32x64xf32>
  %o = tile.dot %t, %t, %square {transpose_a} : vector<32x64xbf16>, vector<32x64xbf16>, vector<64x64xf32>
  tile.store %o, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}

// -----

// A row of a tile, and the sums of its rows and of its columns, are vectors in shared memory, written by the lanes that have them: each warp
// has summed up its own columns of a row, and a thread adds those of eight warps. The tile itself is in registers alone.
// CHECK-LABEL: func.func @vectors
// CHECK-NOT:   memref<2176xf32, #gpu.address_space<workgroup>>
// CHECK-DAG:   gpu.shuffle xor
// CHECK-DAG:   memref.store {{.*}} : memref<64xf32, #gpu.address_space<workgroup>>
// CHECK:       nvvm.mma.sync
// CHECK-COUNT-2: gpu.shuffle xor
// CHECK:       memref.store {{.*}} : memref<288xf32, #gpu.address_space<workgroup>>
// CHECK:       gpu.barrier
// CHECK-COUNT-8: memref.load {{.*}} : memref<288xf32, #gpu.address_space<workgroup>>
// CHECK-NOT:   memref<2176xf32, #gpu.address_space<workgroup>>
// CHECK:       return
func.func @vectors(%g: memref<32x64xf32> {tile.name = "g"}, %m: memref<64x64xbf16> {tile.name = "m"}, %y: memref<32xf32> {tile.name = "y"},
                   %s: memref<64xf32> {tile.name = "s"}, %z: memref<64x64xf32> {tile.name = "z"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c31 = arith.constant 31 : index
  %zero = arith.constant dense<0.0> : vector<32x64xf32>
  %square = arith.constant dense<0.0> : vector<64x64xf32>
  %gv = tile.load %g[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x64xf32>, vector<32x64xf32>
  %c = tile.cumsum %gv {axis = 0 : i64} : vector<32x64xf32>
  %last = tile.rows %c[%c31] : vector<32x64xf32>, vector<64xf32>
  %all = tile.reduce max %gv {axis = 0 : i64} : vector<32x64xf32>, vector<64xf32>
  %v = arith.mulf %last, %all : vector<64xf32>
  tile.store %v, %s[%c0] {dims = array<i64: 0>} : vector<64xf32>, memref<64xf32>
  %t = arith.truncf %c : vector<32x64xf32> to vector<32x64xbf16>
  %mv = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xbf16>, vector<64x64xbf16>
  %p = tile.dot %t, %mv, %zero : vector<32x64xbf16>, vector<64x64xbf16>, vector<32x64xf32>
  %r = tile.reduce add %p {axis = 1 : i64} : vector<32x64xf32>, vector<32xf32>
  tile.store %r, %y[%c0] {dims = array<i64: 0>} : vector<32xf32>, memref<32xf32>
  %o = tile.dot %t, %t, %square {transpose_a} : vector<32x64xbf16>, vector<32x64xbf16>, vector<64x64xf32>
  tile.store %o, %z[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}

// -----

// Without a sum along rows: a product along tokens of what a product has made, as a delta rule multiplies by the inverse of a triangle. The first
// product is rounded in registers, where the second begins with it too; in shared memory it lies in bf16 alone.
// CHECK-LABEL: func.func @mixed
// CHECK-NOT:   memref<2176xf32, #gpu.address_space<workgroup>>
// CHECK:       nvvm.mma.sync
// CHECK:       arith.truncf {{.*}} : vector<2xf32> to vector<2xbf16>
// CHECK:       vector.store {{.*}} : memref<2304xbf16, #gpu.address_space<workgroup>>, vector<2xbf16>
// CHECK:       gpu.barrier
// CHECK:       nvvm.mma.sync
// CHECK-NOT:   gpu.barrier
// CHECK:       vector.store {{.*}} : memref<?xf32>, vector<2xf32>
// CHECK-NOT:   memref<2176xf32, #gpu.address_space<workgroup>>
// CHECK:       return
func.func @mixed(%k: memref<32x64xbf16> {tile.name = "k"}, %m: memref<64x64xbf16> {tile.name = "m"}, %x: memref<32x32xbf16> {tile.name = "x"},
                 %y: memref<32x64xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<32x64xf32>
  %kv = tile.load %k[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x64xbf16>, vector<32x64xbf16>
  %mv = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xbf16>, vector<64x64xbf16>
  %xv = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x32xbf16>, vector<32x32xbf16>
  %p = tile.dot %kv, %mv, %zero : vector<32x64xbf16>, vector<64x64xbf16>, vector<32x64xf32>
  %t = arith.truncf %p : vector<32x64xf32> to vector<32x64xbf16>
  %q = tile.dot %xv, %t, %p : vector<32x32xbf16>, vector<32x64xbf16>, vector<32x64xf32>
  tile.store %q, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<32x64xf32>, memref<32x64xf32>
  return
}

// -----

// A product begins with another one, of which sums are stored too: it is in registers for both, and no tile of f32 in shared memory.
// CHECK-LABEL: func.func @begun
// CHECK-NOT:   memref<2176xf32, #gpu.address_space<workgroup>>
// CHECK:       nvvm.mma.sync
// CHECK:       gpu.shuffle xor
// CHECK:       nvvm.mma.sync
// CHECK:       vector.store {{.*}} : memref<?xf32>, vector<2xf32>
// CHECK-NOT:   memref<2176xf32, #gpu.address_space<workgroup>>
// CHECK:       return
func.func @begun(%k: memref<32x64xbf16> {tile.name = "k"}, %m: memref<64x64xbf16> {tile.name = "m"}, %x: memref<32x32xbf16> {tile.name = "x"},
                 %y: memref<32x64xf32> {tile.name = "y"}, %s: memref<32xf32> {tile.name = "s"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<32x64xf32>
  %kv = tile.load %k[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x64xbf16>, vector<32x64xbf16>
  %mv = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xbf16>, vector<64x64xbf16>
  %xv = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x32xbf16>, vector<32x32xbf16>
  %p = tile.dot %kv, %mv, %zero : vector<32x64xbf16>, vector<64x64xbf16>, vector<32x64xf32>
  %sums = tile.reduce add %p {axis = 1 : i64} : vector<32x64xf32>, vector<32xf32>
  tile.store %sums, %s[%c0] {dims = array<i64: 0>} : vector<32xf32>, memref<32xf32>
  %q = tile.dot %xv, %kv, %p : vector<32x32xbf16>, vector<32x64xbf16>, vector<32x64xf32>
  tile.store %q, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<32x64xf32>, memref<32x64xf32>
  return
}
