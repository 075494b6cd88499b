// What is reduced along the rows of sums in registers: the greatest of a row of a tile, and the sum of its exponentials, which may be what is stored; one element
// that is picked (a product of logits, outline/ProductSums.cpp).
// RUN: braid-opt %s --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,GROUPS
// RUN: braid-opt %s --braid-tile-to-threads --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,WARPS

// Four lanes share a row, of which each thread has two halves of 64 elements; nothing but the ring, its barriers and what leaves in boxes lies in shared memory, and behind the
// beginning of roles nobody waits for the block.
// CHECK-LABEL: func.func @rows(
// GROUPS-SAME:  threads.block = 288 : i64
// GROUPS-SAME:  threads.shared_bytes = 230400 : i64
// Where warps stand side by side, each leaves its part of 128 rows behind the ring, in place of the part before.
// WARPS-SAME:   threads.block = 256 : i64
// WARPS-SAME:   threads.shared_bytes = 198720 : i64
// GROUPS:       threads.bulk = "copy"
// GROUPS:       nvvm.wgmma.mma_async
// GROUPS-NOT:   gpu.barrier
// WARPS:        nvvm.mma.sync
// CHECK:        vector.store {{.*}}vector<2xf32>
// CHECK:        arith.maximumf
// CHECK:        gpu.shuffle xor
// WARPS:        memref.store {{.*}}#gpu.address_space<workgroup>>
// WARPS:        gpu.barrier
// WARPS-COUNT-4: memref.load {{.*}}#gpu.address_space<workgroup>>
// Each exponential is added when it is there: 128 of them have no registers.
// CHECK:        %[[E0:.*]] = math.exp
// CHECK:        math.exp
// CHECK-NOT:    gpu.shuffle
// CHECK:        arith.addf %[[E0]], %{{.*}} : f32
// CHECK:        gpu.shuffle xor
// By one lane of the four, at the tile's number.
// CHECK:        scf.if
// CHECK-COUNT-2: memref.store
// CHECK:        scf.if
// CHECK-COUNT-2: memref.store
func.func @rows(%a: memref<?x?xbf16> {tile.name = "a"}, %b: memref<?x?xbf16> {tile.name = "b"}, %c: memref<?x?xf32> {tile.name = "c"},
    %greatest: memref<?x?xf32> {tile.name = "greatest"}, %sums: memref<?x?xf32> {tile.name = "sums"}, %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %side = arith.constant 128 : index
  %wide = arith.constant 256 : index
  %zero = arith.constant dense<0.0> : vector<128x256xf32>
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
    tile.store %sum, %c[%row, %column] limit %rows {dims = array<i64: 0, 1>} : vector<128x256xf32>, memref<?x?xf32>
    %top = tile.reduce max %sum {axis = 1 : i64} : vector<128x256xf32>, vector<128xf32>
    %all = tile.expand %top {axis = 1 : i64} : vector<128xf32>, vector<128x256xf32>
    %below = arith.subf %sum, %all : vector<128x256xf32>
    %e = math.exp %below : vector<128x256xf32>
    %total = tile.reduce add %e {axis = 1 : i64} : vector<128x256xf32>, vector<128xf32>
    tile.store %top, %greatest[%p#1, %row] {dims = array<i64: 1>} : vector<128xf32>, memref<?x?xf32>
    tile.store %total, %sums[%p#1, %row] {dims = array<i64: 1>} : vector<128xf32>, memref<?x?xf32>
  }
  return
}

// In the place of the sum the exponentials are stored: each is computed once, added up and rounded. The label's logit is picked by the thread that has it, among 64;
// labels are asked for before sums are compared. What is made of the greatest of a row is made once, by each of its lanes.
// CHECK-LABEL: func.func @exponentials(
// GROUPS-SAME:  threads.shared_bytes = 230400 : i64
// GROUPS:       nvvm.wgmma.mma_async
// WARPS:        nvvm.mma.sync
// CHECK:        memref.load {{.*}}memref<?xi32>
// CHECK:        memref.load {{.*}}memref<?xi32>
// CHECK:        arith.maximumf
// CHECK:        gpu.shuffle xor
// GROUPS-COUNT-2: arith.minimumf
// GROUPS-NOT:   arith.minimumf
// CHECK:        scf.if {{.*}} -> (f32)
// CHECK-COUNT-60: arith.select {{.*}} : f32
// CHECK:        gpu.shuffle xor
// GROUPS-NOT:   arith.minimumf
// GROUPS-COUNT-128: math.exp
// WARPS-COUNT-128: math.exp
// CHECK-NOT:    math.exp
// CHECK:        arith.truncf {{.*}} : vector<2xf32> to vector<2xbf16>
// GROUPS:       nvvm.stmatrix
// WARPS:        vector.store {{.*}}vector<8xbf16>
// CHECK-NOT:    math.exp
// CHECK-LABEL: func.func @alone(
// Nothing but rows is stored.
// GROUPS-SAME:  threads.shared_bytes = 197632 : i64
// GROUPS:       nvvm.wgmma.mma_async
// GROUPS-NOT:   gpu.barrier
// CHECK:        math.exp
// CHECK-NOT:    vector.store
func.func @exponentials(%a: memref<?x?xbf16> {tile.name = "a"}, %b: memref<?x?xbf16> {tile.name = "b"}, %e: memref<?x?xbf16> {tile.name = "e"},
    %greatest: memref<?x?xf32> {tile.name = "greatest"}, %sums: memref<?x?xf32> {tile.name = "sums"}, %chosen: memref<?xf32> {tile.name = "chosen"},
    %labels: memref<?xi32> {tile.name = "labels"}, %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %side = arith.constant 128 : index
  %wide = arith.constant 256 : index
  %zero = arith.constant dense<0.0> : vector<128x256xf32>
  %none = arith.constant dense<0> : vector<128xi32>
  %end = arith.constant dense<256> : vector<128xi32>
  %nowhere = arith.constant dense<-1> : vector<128xi32>
  %least = arith.constant dense<-4.0e+01> : vector<128xf32>
  %most = arith.constant dense<4.0e+01> : vector<128xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %wide : index
  %word = arith.index_cast %column : index to i32
  %rows = memref.dim %a, %c0 : memref<?x?xbf16>
  scf.for %t = %c0 to %tiles step %c1 {
    %before = arith.muli %t, %parts : index
    %tile = arith.addi %p#0, %before : index
    %row = arith.muli %tile, %side : index
    %label = tile.load %labels[%row] limit %rows {dims = array<i64: 0>} : memref<?xi32>, vector<128xi32>
    %first = vector.broadcast %word : i32 to vector<128xi32>
    %inside = arith.subi %label, %first : vector<128xi32>
    %above = arith.cmpi sge, %inside, %none : vector<128xi32>
    %below = arith.cmpi slt, %inside, %end : vector<128xi32>
    %here = arith.andi %above, %below : vector<128xi1>
    %line = tile.iota {axis = 0 : i64} : vector<128xi32>
    %place = arith.select %here, %line, %nowhere : vector<128xi1>, vector<128xi32>
    %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x256xf32>) {
      %x = tile.load %a[%row, %at] limit %rows {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<128x64xbf16>
      %y = tile.load %b[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<64x256xbf16>
      %next = tile.dot %x, %y, %now : vector<128x64xbf16>, vector<64x256xbf16>, vector<128x256xf32>
      scf.yield %next : vector<128x256xf32>
    }
    %top = tile.reduce max %sum {axis = 1 : i64} : vector<128x256xf32>, vector<128xf32>
    %one = tile.pick %sum[%inside] : vector<128x256xf32>, vector<128xi32>, vector<128xf32>
    tile.store %one, %chosen[%row] rows %place : vector<128xi32> {dims = array<i64: 0>} : vector<128xf32>, memref<?xf32>
    %raised = arith.maximumf %top, %least : vector<128xf32>
    %near = arith.minimumf %raised, %most : vector<128xf32>
    %reference = arith.subf %top, %near : vector<128xf32>
    %all = tile.expand %reference {axis = 1 : i64} : vector<128xf32>, vector<128x256xf32>
    %under = arith.subf %sum, %all : vector<128x256xf32>
    %exponential = math.exp %under : vector<128x256xf32>
    %total = tile.reduce add %exponential {axis = 1 : i64} : vector<128x256xf32>, vector<128xf32>
    %rounded = arith.truncf %exponential : vector<128x256xf32> to vector<128x256xbf16>
    tile.store %rounded, %e[%row, %column] limit %rows {dims = array<i64: 0, 1>} : vector<128x256xbf16>, memref<?x?xbf16>
    tile.store %reference, %greatest[%p#1, %row] {dims = array<i64: 1>} : vector<128xf32>, memref<?x?xf32>
    tile.store %total, %sums[%p#1, %row] {dims = array<i64: 1>} : vector<128xf32>, memref<?x?xf32>
  }
  return
}

func.func @alone(%a: memref<?x?xbf16> {tile.name = "a"}, %b: memref<?x?xbf16> {tile.name = "b"}, %sums: memref<?x?xf32> {tile.name = "sums"},
    %k: index {tile.name = "k"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %side = arith.constant 128 : index
  %wide = arith.constant 256 : index
  %zero = arith.constant dense<0.0> : vector<128x256xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %wide : index
  %rows = memref.dim %a, %c0 : memref<?x?xbf16>
  scf.for %t = %c0 to %tiles step %c1 {
    %row = arith.muli %t, %side : index
    %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x256xf32>) {
      %x = tile.load %a[%row, %at] limit %rows {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<128x64xbf16>
      %y = tile.load %b[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<64x256xbf16>
      %next = tile.dot %x, %y, %now : vector<128x64xbf16>, vector<64x256xbf16>, vector<128x256xf32>
      scf.yield %next : vector<128x256xf32>
    }
    %e = math.exp %sum : vector<128x256xf32>
    %total = tile.reduce add %e {axis = 1 : i64} : vector<128x256xf32>, vector<128xf32>
    tile.store %total, %sums[%p#1, %row] {dims = array<i64: 1>} : vector<128xf32>, memref<?x?xf32>
  }
  return
}

// Sums of 48 rows lie in shared memory: what is made of the greatest of a row is stored beside the other number of rows, and made again where exponentials read it.
// CHECK-LABEL: func.func @elsewhere(
// CHECK:       arith.truncf {{.*}} to bf16
// CHECK:       gpu.barrier
// CHECK:       %[[REFERENCE:.*]] = arith.subf
// CHECK:       memref.store %[[REFERENCE]], %{{.*}} : memref<?xf32>
// CHECK:       memref.store {{.*}} : memref<?xf32>
func.func @elsewhere(%a: memref<?x?xbf16> {tile.name = "a"}, %b: memref<?x?xbf16> {tile.name = "b"}, %e: memref<?x?xbf16> {tile.name = "e"},
    %references: memref<?x?xf32> {tile.name = "references"}, %sums: memref<?x?xf32> {tile.name = "sums"}, %k: index {tile.name = "k"})
    attributes {tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %step = arith.constant 16 : index
  %side = arith.constant 48 : index
  %zero = arith.constant dense<0.0> : vector<48x16xf32>
  %least = arith.constant dense<-4.0e+01> : vector<48xf32>
  %most = arith.constant dense<4.0e+01> : vector<48xf32>
  %p:2 = tile.program : index, index
  %row = arith.muli %p#0, %side : index
  %column = arith.muli %p#1, %step : index
  %rows = memref.dim %a, %c0 : memref<?x?xbf16>
  %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<48x16xf32>) {
    %x = tile.load %a[%row, %at] limit %rows {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<48x16xbf16>
    %y = tile.load %b[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<16x16xbf16>
    %next = tile.dot %x, %y, %now : vector<48x16xbf16>, vector<16x16xbf16>, vector<48x16xf32>
    scf.yield %next : vector<48x16xf32>
  }
  %top = tile.reduce max %sum {axis = 1 : i64} : vector<48x16xf32>, vector<48xf32>
  %raised = arith.maximumf %top, %least : vector<48xf32>
  %near = arith.minimumf %raised, %most : vector<48xf32>
  %reference = arith.subf %top, %near : vector<48xf32>
  %all = tile.expand %reference {axis = 1 : i64} : vector<48xf32>, vector<48x16xf32>
  %under = arith.subf %sum, %all : vector<48x16xf32>
  %exponential = math.exp %under : vector<48x16xf32>
  %total = tile.reduce add %exponential {axis = 1 : i64} : vector<48x16xf32>, vector<48xf32>
  %rounded = arith.truncf %exponential : vector<48x16xf32> to vector<48x16xbf16>
  tile.store %rounded, %e[%row, %column] limit %rows {dims = array<i64: 0, 1>} : vector<48x16xbf16>, memref<?x?xbf16>
  tile.store %reference, %references[%p#1, %row] {dims = array<i64: 1>} : vector<48xf32>, memref<?x?xf32>
  tile.store %total, %sums[%p#1, %row] {dims = array<i64: 1>} : vector<48xf32>, memref<?x?xf32>
  return
}
