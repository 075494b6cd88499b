// RUN: braid-opt %s --split-input-file --braid-tile-to-threads --canonicalize --cse | FileCheck %s

// The gradient of a norm: each element of a row has one thread, 8 neighbours each. Both sums along a row are known at one barrier, and what the next rows
// are is asked for before it; the sums over rows stay in registers. No tile lies in shared memory but the parts of sums, twice, and the result.
// CHECK-LABEL: func.func @gradient
// CHECK-SAME:  threads.block = 128
// CHECK-DAG:   memref.view {{.*}} to memref<32xf32, #gpu.address_space<workgroup>>
// CHECK-DAG:   memref.view {{.*}} to memref<1024xf32, #gpu.address_space<workgroup>>
// CHECK-NOT:   memref.view
// CHECK:       scf.if
// CHECK-COUNT-4: vector.load {{.*}} vector<8xbf16>
// CHECK:         scf.for {{.*}} iter_args({{.*}}) -> (vector<8xf32>, vector<4xi32>, vector<4xi32>, vector<4xi32>, vector<4xi32>)
// CHECK-NOT:       vector.load
// CHECK-COUNT-20:  gpu.shuffle xor
// CHECK-NOT:       gpu.shuffle
// CHECK:           scf.if
// CHECK-COUNT-4:     memref.store
// CHECK:           arith.minsi
// CHECK-COUNT-4:   vector.load {{.*}} vector<8xbf16>
// CHECK:           gpu.barrier
// CHECK-COUNT-4:   vector.load {{.*}} vector<4xf32>
// CHECK-NOT:       gpu.barrier
// CHECK:           vector.store
// CHECK:           vector.store
// CHECK:           scf.yield
// What is not there, or not on 16 bytes, row by row.
// CHECK:       gpu.barrier
// CHECK:       scf.for
// CHECK:         scf.for
// CHECK-COUNT-10:  gpu.shuffle xor
// CHECK-NOT:       gpu.shuffle
// CHECK:           gpu.barrier
func.func @gradient(%x: memref<?x1024xbf16> {tile.name = "x"}, %g: memref<?x1024xbf16> {tile.name = "g"}, %y: memref<?x1024xbf16> {tile.name = "y"},
                    %dw: memref<?x1024xf32> {tile.name = "dw"}, %n: index {tile.name = "n"}, %span: index {tile.name = "span"})
    attributes {tile.kernel, tile.grid = ["rows"]} {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant dense<0.0> : vector<1024xf32>
  %i = tile.program : index
  %lo = arith.muli %i, %span : index
  %hi = arith.addi %lo, %span : index
  %sum = scf.for %j = %lo to %hi step %c2 iter_args(%before = %zero) -> (vector<1024xf32>) {
    %a = tile.load %x[%j, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x1024xbf16>, vector<2x1024xbf16>
    %b = tile.load %g[%j, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x1024xbf16>, vector<2x1024xbf16>
    %v = arith.extf %a : vector<2x1024xbf16> to vector<2x1024xf32>
    %u = arith.extf %b : vector<2x1024xbf16> to vector<2x1024xf32>
    %q = arith.mulf %v, %v : vector<2x1024xf32>
    %s = tile.reduce add %q {axis = 1 : i64} : vector<2x1024xf32>, vector<2xf32>
    %r = math.rsqrt %s : vector<2xf32>
    %re = tile.expand %r {axis = 1 : i64} : vector<2xf32>, vector<2x1024xf32>
    %p = arith.mulf %v, %u : vector<2x1024xf32>
    %m = tile.reduce add %p {axis = 1 : i64} : vector<2x1024xf32>, vector<2xf32>
    %me = tile.expand %m {axis = 1 : i64} : vector<2xf32>, vector<2x1024xf32>
    %k = arith.mulf %u, %re : vector<2x1024xf32>
    %l = arith.mulf %v, %me : vector<2x1024xf32>
    %o = arith.subf %k, %l : vector<2x1024xf32>
    %d = arith.mulf %k, %v : vector<2x1024xf32>
    %d1 = tile.reduce add %d {axis = 0 : i64} : vector<2x1024xf32>, vector<1024xf32>
    %after = arith.addf %before, %d1 : vector<1024xf32>
    %t = arith.truncf %o : vector<2x1024xf32> to vector<2x1024xbf16>
    tile.store %t, %y[%j, %c0] limit %n {dims = array<i64: 0, 1>} : vector<2x1024xbf16>, memref<?x1024xbf16>
    scf.yield %after : vector<1024xf32>
  }
  tile.store %sum, %dw[%i, %c0] {dims = array<i64: 1>} : vector<1024xf32>, memref<?x1024xf32>
  return
}

// -----

// Runs of half a warp need no barrier; a row of 256 has 32 threads, so a block has four rows side by side.
// CHECK-LABEL: func.func @heads
// CHECK-SAME:  threads.block = 128 : i64, {{.*}}threads.shared_bytes = 0
// CHECK-COUNT-4: gpu.shuffle xor
// CHECK:       } else {
// CHECK-COUNT-4: gpu.shuffle xor
// CHECK-NOT:   gpu.shuffle
// CHECK-NOT:   gpu.barrier
func.func @heads(%x: memref<?x2x128xbf16> {tile.name = "x"}, %s: memref<?x2xf32> {tile.name = "s"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["rows"]} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %i = tile.program : index
  %r = arith.muli %i, %c4 : index
  %a = tile.load %x[%r, %c0, %c0] limit %n {dims = array<i64: 0, 1, 2>} : memref<?x2x128xbf16>, vector<4x2x128xbf16>
  %v = arith.extf %a : vector<4x2x128xbf16> to vector<4x2x128xf32>
  %m = tile.reduce max %v {axis = 2 : i64} : vector<4x2x128xf32>, vector<4x2xf32>
  tile.store %m, %s[%r, %c0] limit %n {dims = array<i64: 0, 1>} : vector<4x2xf32>, memref<?x2xf32>
  return
}

// -----

// What is written may be what other rows read: as before, tile by tile in shared memory.
// CHECK-LABEL: func.func @backwards
// CHECK:       gpu.barrier
func.func @backwards(%x: memref<?x256xf32> {tile.name = "x"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["rows"]} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %i = tile.program : index
  %a = tile.load %x[%c4, %c0] {dims = array<i64: 0, 1>} : memref<?x256xf32>, vector<4x256xf32>
  %m = tile.reduce add %a {axis = 1 : i64} : vector<4x256xf32>, vector<4xf32>
  %me = tile.expand %m {axis = 1 : i64} : vector<4xf32>, vector<4x256xf32>
  tile.store %me, %x[%i, %c0] {dims = array<i64: 0, 1>} : vector<4x256xf32>, memref<?x256xf32>
  return
}

// -----

// Rows that go where numbers say: a row is read once, 16 bytes at a time, and each of its numbers is looked at by the threads themselves.
// CHECK-LABEL: func.func @scattered
// CHECK-SAME:  threads.block = 128 : i64, {{.*}}threads.shared_bytes = 0
// CHECK:       scf.if
// CHECK-COUNT-2: vector.load {{.*}} vector<8xbf16>
// CHECK-NOT:     vector.load
// CHECK-COUNT-4: vector.store {{.*}} vector<8xbf16>
// CHECK:       } else {
// CHECK-NOT:   gpu.barrier
func.func @scattered(%x: memref<?x1024xbf16> {tile.name = "x"}, %to: memref<?x2xi32> {tile.name = "to"}, %y: memref<?x1024xbf16> {tile.name = "y"}, %ends: memref<?xi32> {tile.name = "ends"})
    attributes {tile.kernel, tile.in_place = [], tile.grid = ["rows"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %i = tile.program : index
  %r = arith.muli %i, %c2 : index
  %end = memref.load %ends[%c0] : memref<?xi32>
  %n = arith.index_cast %end : i32 to index
  %none = arith.constant dense<-1> : vector<2xi32>
  %a = tile.load %x[%r, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x1024xbf16>, vector<2x1024xbf16>
  %iota = tile.iota {axis = 0 : i64} : vector<2xi32>
  %first = arith.index_cast %r : index to i32
  %firsts = vector.broadcast %first : i32 to vector<2xi32>
  %number = arith.addi %iota, %firsts : vector<2xi32>
  %limits = vector.broadcast %end : i32 to vector<2xi32>
  %is = arith.cmpi slt, %number, %limits : vector<2xi32>
  %p = tile.load %to[%r, %c0] limit %n {dims = array<i64: 0>} : memref<?x2xi32>, vector<2xi32>
  %ps = arith.select %is, %p, %none : vector<2xi1>, vector<2xi32>
  tile.store %a, %y[%c0, %c0] rows %ps : vector<2xi32> {dims = array<i64: 0, 1>} : vector<2x1024xbf16>, memref<?x1024xbf16>
  %q = tile.load %to[%r, %c1] limit %n {dims = array<i64: 0>} : memref<?x2xi32>, vector<2xi32>
  %qs = arith.select %is, %q, %none : vector<2xi1>, vector<2xi32>
  tile.store %a, %y[%c0, %c0] rows %qs : vector<2xi32> {dims = array<i64: 0, 1>} : vector<2x1024xbf16>, memref<?x1024xbf16>
  return
}

// -----

// What needs no sum is stored before rows meet for one, behind all numbers of rows.
// CHECK-LABEL: func.func @first
// CHECK:       scf.if
// CHECK-COUNT-2: vector.load {{.*}} vector<8xbf16>
// CHECK:         memref.load {{.*}} : memref<?xf32
// CHECK-NOT:     memref.load
// CHECK:         vector.store {{.*}} vector<8xbf16>
// CHECK:         gpu.shuffle
// CHECK-NOT:     vector.store
// CHECK:         memref.store {{.*}} : memref<?xf32
// CHECK:       } else {
func.func @first(%x: memref<?x256xbf16> {tile.name = "x"}, %y: memref<?x256xbf16> {tile.name = "y"}, %w: memref<?xf32> {tile.name = "w"}, %z: memref<?x256xbf16> {tile.name = "z"},
    %s: memref<?xf32> {tile.name = "s"}) attributes {tile.kernel, tile.in_place = [], tile.grid = ["rows"]} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %i = tile.program : index
  %r = arith.muli %i, %c4 : index
  %a = tile.load %x[%r, %c0] {dims = array<i64: 0, 1>} : memref<?x256xbf16>, vector<4x256xbf16>
  %b = tile.load %y[%r, %c0] {dims = array<i64: 0, 1>} : memref<?x256xbf16>, vector<4x256xbf16>
  %af = arith.extf %a : vector<4x256xbf16> to vector<4x256xf32>
  %bf = arith.extf %b : vector<4x256xbf16> to vector<4x256xf32>
  %p = arith.mulf %af, %bf : vector<4x256xf32>
  %m = tile.reduce add %p {axis = 1 : i64} : vector<4x256xf32>, vector<4xf32>
  tile.store %m, %s[%r] {dims = array<i64: 0>} : vector<4xf32>, memref<?xf32>
  %wr = tile.load %w[%r] {dims = array<i64: 0>} : memref<?xf32>, vector<4xf32>
  %we = tile.expand %wr {axis = 1 : i64} : vector<4xf32>, vector<4x256xf32>
  %q = arith.mulf %af, %we : vector<4x256xf32>
  %qb = arith.truncf %q : vector<4x256xf32> to vector<4x256xbf16>
  tile.store %qb, %z[%r, %c0] {dims = array<i64: 0, 1>} : vector<4x256xbf16>, memref<?x256xbf16>
  return
}

// -----

// Rows behind the limit are left out of a sum; where a block of rows is all there nothing asks. Three blocks share the registers of a multiprocessor.
// CHECK-LABEL: func.func @padded
// CHECK-SAME:  threads.block = 128 : i64, threads.blocks_together = 3 : i64
// CHECK:       scf.for
// CHECK-NOT:     arith.select
// CHECK:         math.rsqrt
// CHECK-NOT:     arith.select
// CHECK:         scf.yield
// CHECK:       scf.for
// CHECK:         arith.select {{.*}} vector<8xf32>
func.func @padded(%x: memref<?x8x128xbf16> {tile.name = "x"}, %dw: memref<?x8x128xf32> {tile.name = "dw"}, %n: index {tile.name = "n"}, %span: index {tile.name = "span"})
    attributes {tile.kernel, tile.grid = ["rows"]} {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %none = arith.constant dense<0.0> : vector<8x128xf32>
  %zero = arith.constant dense<0.0> : vector<2x8x128xf32>
  %i = tile.program : index
  %lo = arith.muli %i, %span : index
  %end = arith.addi %lo, %span : index
  %hi = arith.minsi %end, %n : index
  %sum = scf.for %r = %lo to %hi step %c2 iter_args(%before = %none) -> (vector<8x128xf32>) {
    %a = tile.load %x[%r, %c0, %c0] limit %n {dims = array<i64: 0, 1, 2>} : memref<?x8x128xbf16>, vector<2x8x128xbf16>
    %v = arith.extf %a : vector<2x8x128xbf16> to vector<2x8x128xf32>
    %square = arith.mulf %v, %v : vector<2x8x128xf32>
    %total = tile.reduce add %square {axis = 2 : i64} : vector<2x8x128xf32>, vector<2x8xf32>
    %inverse = math.rsqrt %total : vector<2x8xf32>
    %each = tile.expand %inverse {axis = 2 : i64} : vector<2x8xf32>, vector<2x8x128xf32>
    %y = arith.mulf %v, %each : vector<2x8x128xf32>
    %rows = tile.iota {axis = 0 : i64} : vector<2x8x128xi32>
    %left = arith.subi %n, %r : index
    %number = arith.index_cast %left : index to i32
    %numbers = vector.broadcast %number : i32 to vector<2x8x128xi32>
    %counts = arith.cmpi slt, %rows, %numbers : vector<2x8x128xi32>
    %counted = arith.select %counts, %y, %zero : vector<2x8x128xi1>, vector<2x8x128xf32>
    %part = tile.reduce add %counted {axis = 0 : i64} : vector<2x8x128xf32>, vector<8x128xf32>
    %after = arith.addf %before, %part : vector<8x128xf32>
    scf.yield %after : vector<8x128xf32>
  }
  tile.store %sum, %dw[%i, %c0, %c0] {dims = array<i64: 1, 2>} : vector<8x128xf32>, memref<?x8x128xf32>
  return
}
