// All who read a sum read one formula of it (bounded logits, outline/ProductSums.cpp): that takes the place of the sum in its registers, and is computed once. What is
// stored of it and of exponentials is made beside the last reduction, whose exponentials it shares.
// RUN: braid-opt %s --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,GROUPS
// RUN: braid-opt %s --braid-tile-to-threads --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,WARPS

// CHECK-LABEL: func.func @bounded(
// GROUPS-SAME:  threads.block = 288 : i64
// Nothing but the ring, its barriers and what leaves in boxes lies in shared memory.
// GROUPS-SAME:  threads.shared_bytes = 230400 : i64
// GROUPS:       threads.bulk = "copy"
// GROUPS:       nvvm.wgmma.mma_async
// GROUPS-NOT:   gpu.barrier
// WARPS:        nvvm.mma.sync
// CHECK-COUNT-128: arith.divf
// CHECK-NOT:    arith.divf
// CHECK:        arith.maximumf
// CHECK:        gpu.shuffle xor
// CHECK:        %[[E0:.*]] = math.exp
// CHECK:        %[[SLOPE:.*]] = arith.subf %{{.*}}, %{{.*}} : f32
// CHECK:        arith.mulf %[[E0]], %[[SLOPE]] : f32
// CHECK-COUNT-127: math.exp
// CHECK-NOT:    {{math.exp|arith.divf}}
// CHECK:        gpu.shuffle xor
// GROUPS:       nvvm.stmatrix
// WARPS:        vector.store {{.*}}vector<8xbf16>
// CHECK-NOT:    {{math.exp|arith.divf}}
// CHECK-LABEL: func.func @both(
// The sum itself is read beside the formula, so it stays what it is, and the formula lies in shared memory.
// CHECK:        gpu.barrier
func.func @bounded(%a: memref<?x?xbf16> {tile.name = "a"}, %b: memref<?x?xbf16> {tile.name = "b"}, %e: memref<?x?xbf16> {tile.name = "e"},
    %greatest: memref<?x?xf32> {tile.name = "greatest"}, %sums: memref<?x?xf32> {tile.name = "sums"}, %cap: f32 {tile.name = "cap"},
    %inverse: f32 {tile.name = "inverse"}, %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %side = arith.constant 128 : index
  %wide = arith.constant 256 : index
  %zero = arith.constant dense<0.0> : vector<128x256xf32>
  %one = arith.constant dense<1.0> : vector<128x256xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %wide : index
  %rows = memref.dim %a, %c0 : memref<?x?xbf16>
  scf.for %t = %c0 to %tiles step %c1 {
    %before = arith.muli %t, %parts : index
    %tile = arith.addi %p#0, %before : index
    %row = arith.muli %tile, %side : index
    %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x256xf32>) {
      %x = tile.load %a[%row, %at] limit %rows {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<128x64xbf16>
      %y = tile.load %b[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<64x256xbf16>
      %next = tile.dot %x, %y, %now : vector<128x64xbf16>, vector<64x256xbf16>, vector<128x256xf32>
      scf.yield %next : vector<128x256xf32>
    }
    %small = vector.broadcast %inverse : f32 to vector<128x256xf32>
    %large = vector.broadcast %cap : f32 to vector<128x256xf32>
    %scaled = arith.mulf %sum, %small : vector<128x256xf32>
    %size = math.absf %scaled : vector<128x256xf32>
    %more = arith.addf %size, %one : vector<128x256xf32>
    %share = arith.divf %scaled, %more : vector<128x256xf32>
    %logits = arith.mulf %share, %large : vector<128x256xf32>
    %top = tile.reduce max %logits {axis = 1 : i64} : vector<128x256xf32>, vector<128xf32>
    %all = tile.expand %top {axis = 1 : i64} : vector<128xf32>, vector<128x256xf32>
    %below = arith.subf %logits, %all : vector<128x256xf32>
    %exp = math.exp %below : vector<128x256xf32>
    %total = tile.reduce add %exp {axis = 1 : i64} : vector<128x256xf32>, vector<128xf32>
    %again = arith.mulf %logits, %small : vector<128x256xf32>
    %slope = arith.subf %one, %again : vector<128x256xf32>
    %made = arith.mulf %exp, %slope : vector<128x256xf32>
    %rounded = arith.truncf %made : vector<128x256xf32> to vector<128x256xbf16>
    tile.store %rounded, %e[%row, %column] limit %rows {dims = array<i64: 0, 1>} : vector<128x256xbf16>, memref<?x?xbf16>
    tile.store %top, %greatest[%p#1, %row] {dims = array<i64: 1>} : vector<128xf32>, memref<?x?xf32>
    tile.store %total, %sums[%p#1, %row] {dims = array<i64: 1>} : vector<128xf32>, memref<?x?xf32>
  }
  return
}

func.func @both(%a: memref<?x?xbf16> {tile.name = "a"}, %b: memref<?x?xbf16> {tile.name = "b"}, %greatest: memref<?x?xf32> {tile.name = "greatest"},
    %sums: memref<?x?xf32> {tile.name = "sums"}, %inverse: f32 {tile.name = "inverse"}, %k: index {tile.name = "k"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %step = arith.constant 64 : index
  %side = arith.constant 128 : index
  %wide = arith.constant 256 : index
  %zero = arith.constant dense<0.0> : vector<128x256xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %wide : index
  %row = arith.muli %p#0, %side : index
  %rows = memref.dim %a, %c0 : memref<?x?xbf16>
  %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x256xf32>) {
    %x = tile.load %a[%row, %at] limit %rows {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<128x64xbf16>
    %y = tile.load %b[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<64x256xbf16>
    %next = tile.dot %x, %y, %now : vector<128x64xbf16>, vector<64x256xbf16>, vector<128x256xf32>
    scf.yield %next : vector<128x256xf32>
  }
  %small = vector.broadcast %inverse : f32 to vector<128x256xf32>
  %scaled = arith.mulf %sum, %small : vector<128x256xf32>
  %top = tile.reduce max %scaled {axis = 1 : i64} : vector<128x256xf32>, vector<128xf32>
  %all = tile.expand %top {axis = 1 : i64} : vector<128xf32>, vector<128x256xf32>
  %below = arith.subf %scaled, %all : vector<128x256xf32>
  %with = arith.addf %below, %sum : vector<128x256xf32>
  %total = tile.reduce add %with {axis = 1 : i64} : vector<128x256xf32>, vector<128xf32>
  tile.store %top, %greatest[%p#1, %row] {dims = array<i64: 1>} : vector<128xf32>, memref<?x?xf32>
  tile.store %total, %sums[%p#1, %row] {dims = array<i64: 1>} : vector<128xf32>, memref<?x?xf32>
  return
}
