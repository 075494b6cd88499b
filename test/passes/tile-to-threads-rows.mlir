// RUN: braid-opt %s --split-input-file --braid-tile-to-threads --canonicalize --cse | FileCheck %s

// A product that one formula reads is made where that is written, here to the operand of the next product, which the store takes from
// registers: no f32 lies in shared memory.
// CHECK-LABEL: func.func @held
// CHECK-NOT:   xf32, #gpu.address_space<workgroup>>
// CHECK:       nvvm.mma.sync
// CHECK:       arith.truncf {{.*}} : vector<2xf32> to vector<2xbf16>
// CHECK:       vector.store {{.*}} : memref<{{[0-9]+}}xbf16, #gpu.address_space<workgroup>>, vector<2xbf16>
// CHECK:       gpu.barrier
// CHECK:       nvvm.mma.sync
// CHECK:       vector.store {{.*}} : memref<?xf32>, vector<2xf32>
// CHECK:       return
func.func @held(%a: memref<64x64xbf16> {tile.name = "a"}, %b: memref<64x64xbf16> {tile.name = "b"}, %y: memref<64x64xf32> {tile.name = "y"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %av = tile.load %a[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xbf16>, vector<64x64xbf16>
  %bv = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xbf16>, vector<64x64xbf16>
  %d = tile.dot %av, %bv, %zero : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
  %m = tile.mask lower %d : vector<64x64xf32>
  %t = arith.truncf %m : vector<64x64xf32> to vector<64x64xbf16>
  %e = tile.dot %t, %bv, %zero : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
  tile.store %e, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}

// -----

// Two formulas read it: it is kept.
// CHECK-LABEL: func.func @kept
// CHECK:       vector.store {{.*}} : memref<{{[0-9]+}}xf32, #gpu.address_space<workgroup>>, vector<2xf32>
func.func @kept(%a: memref<64x64xbf16> {tile.name = "a"}, %y: memref<64x64xf32> {tile.name = "y"}, %s: memref<64xf32> {tile.name = "s"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %av = tile.load %a[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xbf16>, vector<64x64xbf16>
  %d = tile.dot %av, %av, %zero : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
  %r = tile.reduce add %d {axis = 1 : i64} : vector<64x64xf32>, vector<64xf32>
  tile.store %r, %s[%c0] {dims = array<i64: 0>} : vector<64xf32>, memref<64xf32>
  tile.store %d, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}

// -----

// A loop that carries a sum of products of what it computes: two warps own 16 of its 32 rows each. Scores have their rows along their
// second dimension, and are reduced and multiplied again in registers: 8 elements of a lane of the sum of 16 columns, and 2 of the maximum.
// Keys of the first iteration are copied before the loop, those of the next while this one is computed, to the other of two places; only the end
// of an iteration waits for them.
// CHECK-LABEL: func.func @rows
// CHECK-SAME:  threads.block = 64 : i64
// CHECK-NOT:   xf32, #gpu.address_space<workgroup>>
// CHECK:       nvvm.cp.async.shared.global
// CHECK:       nvvm.cp.async.wait.group 0
// CHECK-NEXT:  gpu.barrier
// CHECK:       scf.for {{.*}} iter_args({{.*}}) -> (f32, f32, f32, f32, f32, f32, f32, f32, f32, f32)
// CHECK:         scf.if
// CHECK:           memref.view %{{.*}}[%{{.*}}][] : {{.*}}xbf16, #gpu.address_space<workgroup>>
// CHECK:           nvvm.cp.async.shared.global
// CHECK-NOT:     nvvm.cp.async.wait.group
// CHECK:         nvvm.mma.sync
// CHECK:         gpu.shuffle  xor
// CHECK:         vector.bitcast {{.*}} : vector<2xbf16> to vector<1xi32>
// CHECK-NOT:     nvvm.cp.async.wait.group
// CHECK:         nvvm.mma.sync
// CHECK:         nvvm.cp.async.wait.group 0
// CHECK-NEXT:    gpu.barrier
// CHECK-NEXT:    scf.yield
// CHECK:       return
func.func @rows(%q: memref<32x16xbf16> {tile.name = "q"}, %k: memref<?x16xbf16> {tile.name = "k"}, %y: memref<32x16xf32> {tile.name = "y"}, %h: memref<32xf32> {tile.name = "h"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %low = arith.constant dense<-1.0e30> : vector<32xf32>
  %none = arith.constant dense<0.0> : vector<32x32xf32>
  %zero = arith.constant dense<0.0> : vector<32x16xf32>
  %qv = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x16xbf16>, vector<32x16xbf16>
  %r:2 = scf.for %j = %c0 to %n step %c32 iter_args(%most = %low, %sum = %zero) -> (vector<32xf32>, vector<32x16xf32>) {
    %kv = tile.load %k[%j, %c0] {dims = array<i64: 0, 1>} : memref<?x16xbf16>, vector<32x16xbf16>
    %s = tile.dot %kv, %qv, %none {transpose_b} : vector<32x16xbf16>, vector<32x16xbf16>, vector<32x32xf32>
    %m = tile.reduce max %s {axis = 0 : i64} : vector<32x32xf32>, vector<32xf32>
    %more = arith.maximumf %most, %m : vector<32xf32>
    %t = arith.truncf %s : vector<32x32xf32> to vector<32x32xbf16>
    %next = tile.dot %t, %kv, %sum {transpose_a} : vector<32x32xbf16>, vector<32x16xbf16>, vector<32x16xf32>
    scf.yield %more, %next : vector<32xf32>, vector<32x16xf32>
  }
  tile.store %r#1, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<32x16xf32>, memref<32x16xf32>
  tile.store %r#0, %h[%c0] {dims = array<i64: 0>} : vector<32xf32>, memref<32xf32>
  return
}

// -----

// A branch between formulas gives registers too: 16 elements of a lane of the 32 x 32 scores, of which one way changes none.
// CHECK-LABEL: func.func @branch
// CHECK-NOT:   xf32, #gpu.address_space<workgroup>>
// CHECK:       nvvm.mma.sync
// CHECK:       scf.if %{{.*}} -> (f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32) {
// CHECK-NEXT:    scf.yield
// CHECK-NEXT:  } else {
// CHECK-COUNT-16: arith.select
// CHECK-NOT:   arith.select
// CHECK:         scf.yield
// CHECK:       nvvm.mma.sync
// CHECK:       return
func.func @branch(%q: memref<32x16xbf16> {tile.name = "q"}, %k: memref<?x16xbf16> {tile.name = "k"}, %y: memref<32x16xf32> {tile.name = "y"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %none = arith.constant dense<0.0> : vector<32x32xf32>
  %zero = arith.constant dense<0.0> : vector<32x16xf32>
  %qv = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x16xbf16>, vector<32x16xbf16>
  %r = scf.for %j = %c0 to %n step %c32 iter_args(%sum = %zero) -> (vector<32x16xf32>) {
    %kv = tile.load %k[%j, %c0] {dims = array<i64: 0, 1>} : memref<?x16xbf16>, vector<32x16xbf16>
    %s = tile.dot %kv, %qv, %none {transpose_b} : vector<32x16xbf16>, vector<32x16xbf16>, vector<32x32xf32>
    %end = arith.addi %j, %c32 : index
    %all = arith.cmpi sle, %end, %n : index
    %masked = scf.if %all -> (vector<32x32xf32>) {
      scf.yield %s : vector<32x32xf32>
    } else {
      %rows = arith.subi %n, %j : index
      %left = arith.index_cast %rows : index to i32
      %place = tile.iota {axis = 0 : i64} : vector<32x32xi32>
      %limit = vector.broadcast %left : i32 to vector<32x32xi32>
      %live = arith.cmpi slt, %place, %limit : vector<32x32xi32>
      %kept = arith.select %live, %s, %none : vector<32x32xi1>, vector<32x32xf32>
      scf.yield %kept : vector<32x32xf32>
    }
    %t = arith.truncf %masked : vector<32x32xf32> to vector<32x32xbf16>
    %next = tile.dot %t, %kv, %sum {transpose_a} : vector<32x32xbf16>, vector<32x16xbf16>, vector<32x16xf32>
    scf.yield %next : vector<32x16xf32>
  }
  tile.store %r, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<32x16xf32>, memref<32x16xf32>
  return
}

// -----

// What a loop says of its trips is said of the loop that it becomes.
// CHECK-LABEL: func.func @mean_walk
// CHECK:         } {tile.mean_walk = 2 : i64}
func.func @mean_walk(%x: memref<?x64xf32> {tile.name = "x"}, %y: memref<?x64xf32> {tile.name = "y"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %i to %n step %c4 {
      %v = tile.load %x[%j, %c0] {dims = array<i64: 1>} : memref<?x64xf32>, vector<64xf32>
      tile.store %v, %y[%j, %c0] {dims = array<i64: 1>} : vector<64xf32>, memref<?x64xf32>
    } {tile.mean_walk = 2 : i64}
  }
  return
}

// -----

// A scan: columns of the state do not meet, so each warp carries 16 of them in registers. The state is the right operand of the first product and what
// that gives of the second; both are computed the other way round. Its in-states are stored as rows of memory by lanes that have transposed 8 x 8
// elements. What an iteration reads has been on its way for three: one group of copies for each.
// CHECK-LABEL: func.func @scan
// CHECK-SAME: threads.block = 64 : i64
// CHECK-COUNT-3: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.wait.group 2
// CHECK-NEXT: gpu.barrier
// CHECK: scf.for {{.*}} iter_args
// CHECK: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.commit.group
// CHECK-NOT: nvvm.cp.async.wait.group
// CHECK: movmatrix.sync.aligned.m8n8.trans.b16
// CHECK: vector.store {{.*}} vector<2xbf16>
// CHECK: nvvm.mma.sync
// CHECK-NOT: gpu.barrier
// CHECK: nvvm.cp.async.wait.group 2
// CHECK-NEXT: gpu.barrier
func.func @scan(%r: memref<?x16x64xbf16> {tile.name = "r"}, %w: memref<?x16x64xbf16> {tile.name = "w"}, %u: memref<?x16x32xbf16> {tile.name = "u"},
                %m: memref<?x64x32xbf16> {tile.name = "m"}, %s: memref<64x32xf32> {tile.name = "s"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %first = tile.load %s[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x32xf32>, vector<64x32xf32>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%state = %first) -> vector<64x32xf32> {
    %t = arith.truncf %state : vector<64x32xf32> to vector<64x32xbf16>
    tile.store %t, %m[%i, %c0, %c0] {dims = array<i64: 1, 2>} : vector<64x32xbf16>, memref<?x64x32xbf16>
    %read = tile.load %r[%i, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x16x64xbf16>, vector<16x64xbf16>
    %write = tile.load %w[%i, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x16x64xbf16>, vector<16x64xbf16>
    %given = tile.load %u[%i, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x16x32xbf16>, vector<16x32xbf16>
    %wide = arith.extf %given : vector<16x32xbf16> to vector<16x32xf32>
    %rows = tile.dot %read, %t, %wide : vector<16x64xbf16>, vector<64x32xbf16>, vector<16x32xf32>
    %z = arith.truncf %rows : vector<16x32xf32> to vector<16x32xbf16>
    %next = tile.dot %write, %z, %state {transpose_a} : vector<16x64xbf16>, vector<16x32xbf16>, vector<64x32xf32>
    scf.yield %next : vector<64x32xf32>
  }
  tile.store %last, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x32xf32>, memref<64x32xf32>
  return
}
