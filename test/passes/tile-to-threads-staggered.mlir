// Of two warpgroups the second one begins a tile some steps behind the first (tile.staggered, --products=staggered): the first stores its sums while the second still multiplies.
// RUN: braid-opt %s --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s

// A barrier more for each of the four stages, at which the four warps of the first group arrive.
// CHECK-LABEL: func.func @tiles(
// CHECK:         %[[LANE:.*]] = arith.remui %{{.*}}, %c32
// CHECK-COUNT-4: mbarrier.init.shared::cta.b64 [$0], $1;", "l,r,~{memory}" %{{.*}}, %c4_i32
// CHECK-COUNT-4: mbarrier.init.shared::cta.b64 [$0], $1;", "l,r,~{memory}" %{{.*}}, %c1_i32
// CHECK-COUNT-4: mbarrier.init.shared::cta.b64 [$0], $1;", "l,r,~{memory}" %{{.*}}, %c8_i32
// CHECK:         gpu.shuffle
// CHECK-NEXT:    %[[WARP:.*]] = arith.index_cast
// CHECK-NEXT:    arith.cmpi uge, %[[WARP]], %c8
// CHECK:       } else {
// Before the first step of a tile the second group waits until the first one has issued two, if there are two: the stage behind that of the first step.
// CHECK:         scf.for
// CHECK:           %[[FOLLOWS:.*]] = arith.cmpi sge, %[[WARP]], %c4
// CHECK-NEXT:      %[[ENOUGH:.*]] = arith.cmpi sge, %{{.*}}, %c2
// CHECK-NEXT:      %[[BOTH:.*]] = arith.andi %[[FOLLOWS]], %[[ENOUGH]]
// CHECK-NEXT:      scf.if %[[BOTH]] {
// CHECK-NEXT:        %[[NEXT:.*]] = arith.addi %[[STAGE:.*]], %c1
// CHECK-NEXT:        %[[WRAPS:.*]] = arith.cmpi eq, %[[NEXT]], %c4
// CHECK:             threads.bulk = "await"{{.*}}
// CHECK-NEXT:      {{^ *}}}
// CHECK:           threads.bulk = "await"
// CHECK-COUNT-4:   nvvm.wgmma.mma_async
// CHECK:           nvvm.wgmma.commit.group.sync.aligned
// Its own stage is the one that each step of the first group says it has passed.
// CHECK:           %[[LEADS:.*]] = arith.cmpi ult, %[[WARP]], %c4
// CHECK:           %[[SAYS:.*]] = arith.andi %[[LEADS]]
// CHECK-NEXT:      scf.if %[[SAYS]] {
// CHECK:             threads.bulk = "arrive"
// CHECK:           nvvm.wgmma.wait.group.sync.aligned 1
// CHECK:           scf.for
// CHECK-NOT:         arith.cmpi sge, %[[WARP]], %c4
// CHECK:             nvvm.wgmma.commit.group.sync.aligned
// CHECK:             scf.if %[[SAYS]] {
// CHECK:               threads.bulk = "arrive"
// CHECK:             nvvm.wgmma.wait.group.sync.aligned 1
// CHECK:             threads.bulk = "arrive"
// CHECK:             scf.yield
// CHECK:         return

#rows = strided<[?, 1]>

func.func @tiles(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %c: memref<?x?xbf16, #rows> {tile.name = "c"},
    %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.staggered, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant dense<0.0> : vector<128x128xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %c128 : index
  %m = memref.dim %c, %c0 : memref<?x?xbf16, #rows>
  scf.for %tile = %c0 to %tiles step %c1 {
    %further = arith.muli %tile, %parts : index
    %number = arith.addi %p#0, %further : index
    %row = arith.muli %number, %c128 : index
    %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x128xf32>) {
      %x = tile.load %a[%row, %at] limit %m {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
      %y = tile.load %b[%column, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
      %next = tile.dot %x, %y, %now {transpose_b} : vector<128x64xbf16>, vector<128x64xbf16>, vector<128x128xf32>
      scf.yield %next : vector<128x128xf32>
    }
    %rounded = arith.truncf %sum : vector<128x128xf32> to vector<128x128xbf16>
    tile.store %rounded, %c[%row, %column] limit %m {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
  }
  return
}
