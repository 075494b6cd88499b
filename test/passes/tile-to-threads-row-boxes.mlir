// Rows in registers by which tiles pass in boxes (`tile.boxes`): each warpgroup goes at its own pace through a ring of stages.
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads --canonicalize --cse | FileCheck %s --check-prefix=WARPS
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=wgmma=true --braid-emulate-threads | FileCheck %s --check-prefix=EMULATED

func.func @passing(%q: memref<128x64xbf16> {tile.name = "q"}, %k: memref<?x64xbf16> {tile.name = "k"}, %w: memref<?xf32> {tile.name = "w"}, %y: memref<128x64xf32> {tile.name = "y"},
                   %s: f32 {tile.name = "s"}) attributes {tile.kernel, tile.boxes, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<64x128xf32>
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  %n = memref.dim %k, %c0 : memref<?x64xbf16>
  %m = memref.dim %w, %c0 : memref<?xf32>
  %raw = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<128x64xbf16>, vector<128x64xbf16>
  %wide = arith.extf %raw : vector<128x64xbf16> to vector<128x64xf32>
  %factor = vector.broadcast %s : f32 to vector<128x64xf32>
  %scaled = arith.mulf %wide, %factor : vector<128x64xf32>
  %qv = arith.truncf %scaled : vector<128x64xf32> to vector<128x64xbf16>
  %r = scf.for %j = %c0 to %n step %c64 iter_args(%sum = %zero) -> (vector<128x64xf32>) {
    %kv = tile.load %k[%j, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %wv = tile.load %w[%j] limit %m {dims = array<i64: 0>} : memref<?xf32>, vector<64xf32>
    %d = tile.dot %kv, %qv, %none {transpose_b} : vector<64x64xbf16>, vector<128x64xbf16>, vector<64x128xf32>
    %e = tile.dot %kv, %qv, %d {transpose_b} : vector<64x64xbf16>, vector<128x64xbf16>, vector<64x128xf32>
    %each = tile.expand %wv {axis = 1 : i64} : vector<64xf32>, vector<64x128xf32>
    %p = arith.mulf %d, %each : vector<64x128xf32>
    %t = arith.truncf %p : vector<64x128xf32> to vector<64x128xbf16>
    %u = arith.truncf %e : vector<64x128xf32> to vector<64x128xbf16>
    %first = tile.dot %t, %kv, %sum {transpose_a} : vector<64x128xbf16>, vector<64x64xbf16>, vector<128x64xf32>
    %next = tile.dot %u, %kv, %first {transpose_a} : vector<64x128xbf16>, vector<64x64xbf16>, vector<128x64xf32>
    scf.yield %next : vector<128x64xf32>
  }
  tile.store %r, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<128x64xf32>, memref<128x64xf32>
  return
}
