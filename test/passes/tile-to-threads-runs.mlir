// RUN: braid-opt %s --braid-tile-to-threads --canonicalize --cse | FileCheck %s

// A norm over the heads of a token, beside what the loop carries: of 512 columns a thread has 4 neighbours, so a head of 128 is the lanes of a warp: five
// shuffles an iteration, four iterations that ask for what they read together, and no barrier. Where places are not trusted an iteration goes alone.
// CHECK-LABEL: func.func @heads
// CHECK:       scf.if
// CHECK:         scf.for
// CHECK-COUNT-20: gpu.shuffle xor
// CHECK-NOT:     gpu.shuffle
// CHECK:         scf.for
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK-NOT:     gpu.shuffle
// CHECK:       else
// CHECK:         scf.for
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK-NOT:   gpu.shuffle
// CHECK-NOT:   gpu.barrier
// CHECK:       return
// Heads of two warps lie in shared memory.
// CHECK-LABEL: func.func @wide
// CHECK:       gpu.barrier
// Formulas of the other iterations hold as much again as is carried and asked for, so where ten tiles are carried three ask together.
// CHECK-LABEL: func.func @carries
// CHECK:       scf.if
// CHECK:         scf.for
// CHECK-COUNT-15: gpu.shuffle xor
// CHECK-NOT:     gpu.shuffle
// CHECK:         scf.for
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK-NOT:     gpu.shuffle
// CHECK:       else
// What says how short it is goes one by one.
// CHECK-LABEL: func.func @short
// CHECK:       scf.if
// CHECK:         scf.for
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK-NOT:     gpu.shuffle
// CHECK:       else
func.func @heads(%x: memref<?x512xbf16> {tile.name = "x"}, %y: memref<?x512xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?x512xbf16>
  %begin = arith.constant dense<0.0> : vector<1x512xf32>
  %last = scf.for %t = %c0 to %n step %c1 iter_args(%before = %begin) -> vector<1x512xf32> {
    %v = tile.load %x[%t, %c0] {dims = array<i64: 0, 1>} : memref<?x512xbf16>, vector<1x512xbf16>
    %w = arith.extf %v : vector<1x512xbf16> to vector<1x512xf32>
    %a = arith.addf %w, %before : vector<1x512xf32>
    %h = vector.shape_cast %a : vector<1x512xf32> to vector<1x4x128xf32>
    %q = arith.mulf %h, %h : vector<1x4x128xf32>
    %s = tile.reduce add %q {axis = 2 : i64} : vector<1x4x128xf32>, vector<1x4xf32>
    %r = math.rsqrt %s : vector<1x4xf32>
    %e = tile.expand %r {axis = 2 : i64} : vector<1x4xf32>, vector<1x4x128xf32>
    %m = arith.mulf %h, %e : vector<1x4x128xf32>
    %o = vector.shape_cast %m : vector<1x4x128xf32> to vector<1x512xf32>
    tile.store %o, %y[%t, %c0] {dims = array<i64: 0, 1>} : vector<1x512xf32>, memref<?x512xf32>
    scf.yield %w : vector<1x512xf32>
  }
  return
}
func.func @wide(%x: memref<?x512xbf16> {tile.name = "x"}, %y: memref<?x512xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?x512xbf16>
  %begin = arith.constant dense<0.0> : vector<1x512xf32>
  %last = scf.for %t = %c0 to %n step %c1 iter_args(%before = %begin) -> vector<1x512xf32> {
    %v = tile.load %x[%t, %c0] {dims = array<i64: 0, 1>} : memref<?x512xbf16>, vector<1x512xbf16>
    %w = arith.extf %v : vector<1x512xbf16> to vector<1x512xf32>
    %a = arith.addf %w, %before : vector<1x512xf32>
    %h = vector.shape_cast %a : vector<1x512xf32> to vector<1x2x256xf32>
    %s = tile.reduce add %h {axis = 2 : i64} : vector<1x2x256xf32>, vector<1x2xf32>
    %e = tile.expand %s {axis = 2 : i64} : vector<1x2xf32>, vector<1x2x256xf32>
    %m = arith.mulf %h, %e : vector<1x2x256xf32>
    %o = vector.shape_cast %m : vector<1x2x256xf32> to vector<1x512xf32>
    tile.store %o, %y[%t, %c0] {dims = array<i64: 0, 1>} : vector<1x512xf32>, memref<?x512xf32>
    scf.yield %w : vector<1x512xf32>
  }
  return
}
func.func @carries(%x: memref<?x512xbf16> {tile.name = "x"}, %z: memref<?x512xbf16> {tile.name = "z"}, %y: memref<?x512xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?x512xbf16>
  %begin = arith.constant dense<0.0> : vector<1x512xf32>
  %last:10 = scf.for %t = %c0 to %n step %c1 iter_args(%b0 = %begin, %b1 = %begin, %b2 = %begin, %b3 = %begin, %b4 = %begin, %b5 = %begin, %b6 = %begin, %b7 = %begin, %b8 = %begin, %b9 = %begin) -> (vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>) {
    %v0 = tile.load %x[%t, %c0] {dims = array<i64: 0, 1>} : memref<?x512xbf16>, vector<1x512xbf16>
    %w0 = arith.extf %v0 : vector<1x512xbf16> to vector<1x512xf32>
    %v1 = tile.load %z[%t, %c0] {dims = array<i64: 0, 1>} : memref<?x512xbf16>, vector<1x512xbf16>
    %w1 = arith.extf %v1 : vector<1x512xbf16> to vector<1x512xf32>
    %a = arith.addf %w0, %b9 : vector<1x512xf32>
    %h = vector.shape_cast %a : vector<1x512xf32> to vector<1x4x128xf32>
    %s = tile.reduce add %h {axis = 2 : i64} : vector<1x4x128xf32>, vector<1x4xf32>
    %e = tile.expand %s {axis = 2 : i64} : vector<1x4xf32>, vector<1x4x128xf32>
    %m = arith.mulf %h, %e : vector<1x4x128xf32>
    %p = vector.shape_cast %m : vector<1x4x128xf32> to vector<1x512xf32>
    %o = arith.mulf %p, %w1 : vector<1x512xf32>
    tile.store %o, %y[%t, %c0] {dims = array<i64: 0, 1>} : vector<1x512xf32>, memref<?x512xf32>
    scf.yield %w0, %b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7, %b8 : vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>
  }
  return
}
func.func @short(%x: memref<?x512xbf16> {tile.name = "x"}, %z: memref<?x512xbf16> {tile.name = "z"}, %y: memref<?x512xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?x512xbf16>
  %begin = arith.constant dense<0.0> : vector<1x512xf32>
  %last = scf.for %t = %c0 to %n step %c1 iter_args(%b0 = %begin) -> (vector<1x512xf32>) {
    %v0 = tile.load %x[%t, %c0] {dims = array<i64: 0, 1>} : memref<?x512xbf16>, vector<1x512xbf16>
    %w0 = arith.extf %v0 : vector<1x512xbf16> to vector<1x512xf32>
    %v1 = tile.load %z[%t, %c0] {dims = array<i64: 0, 1>} : memref<?x512xbf16>, vector<1x512xbf16>
    %w1 = arith.extf %v1 : vector<1x512xbf16> to vector<1x512xf32>
    %a = arith.addf %w0, %b0 : vector<1x512xf32>
    %h = vector.shape_cast %a : vector<1x512xf32> to vector<1x4x128xf32>
    %s = tile.reduce add %h {axis = 2 : i64} : vector<1x4x128xf32>, vector<1x4xf32>
    %e = tile.expand %s {axis = 2 : i64} : vector<1x4xf32>, vector<1x4x128xf32>
    %m = arith.mulf %h, %e : vector<1x4x128xf32>
    %p = vector.shape_cast %m : vector<1x4x128xf32> to vector<1x512xf32>
    %o = arith.mulf %p, %w1 : vector<1x512xf32>
    tile.store %o, %y[%t, %c0] {dims = array<i64: 0, 1>} : vector<1x512xf32>, memref<?x512xf32>
    scf.yield %w0 : vector<1x512xf32>
  } {tile.mean_walk = 3 : i64}
  return
}
