// A loop that adds up products of f32 tiles from memory: copies to a ring of stages run ahead; a thread has 8 x 4 sums in registers, for which it reads
// 16 bytes at a time.
// RUN: braid-opt %s --braid-tile-to-threads --canonicalize | FileCheck %s
// RUN: braid-opt %s "--braid-tile-to-threads=shared-bytes=40000" --canonicalize | FileCheck %s --check-prefix=SMALL
// RUN: braid-opt %s --braid-tile-to-threads --braid-emulate-threads | FileCheck %s --check-prefix=EMULATED

// Three stages of 2 x 64 x 128 bytes; 8 x 16 parts of the sum.
// CHECK-LABEL: func.func @whole({{.*}}threads.block = 128 : i64, threads.scratch_bytes = 0 : i64, threads.shared_bytes = 49152 : i64
// Two iterations are copied before the first product.
// CHECK-COUNT-2: nvvm.cp.async.commit.group
// CHECK:         scf.for
// CHECK:           nvvm.cp.async.wait.group 1
// CHECK-NEXT:      gpu.barrier
// For four steps along k, 8 rows of a, four steps each, and four rows of b; the copies for a later iteration need not wait for them.
// CHECK-COUNT-12:  vector.load {{.*}} {alignment = 16 : i64} : {{.*}}#gpu.address_space<workgroup>>, vector<4xf32>
// CHECK-NOT:       vector.load
// CHECK:           nvvm.cp.async.shared.global
// CHECK:           nvvm.cp.async.commit.group
// CHECK-COUNT-128: math.fma
// CHECK-NOT:       math.fma
// CHECK-COUNT-12:  vector.load {{.*}} vector<4xf32>
// CHECK-NOT:       gpu.barrier
// CHECK:           scf.yield
// CHECK:         nvvm.cp.async.wait.group 0
// The sums go to memory from registers, four neighbours at a time where their addresses allow it; what is read may be what is written.
// CHECK:         gpu.barrier
// CHECK-COUNT-8: vector.store {{.*}}vector<4xf32>
// CHECK-NOT:     gpu.barrier
// CHECK:         memref.store

// Two stages where three do not fit.
// SMALL-LABEL: func.func @whole({{.*}}threads.shared_bytes = 32768 : i64
// SMALL:         scf.for
// SMALL:           nvvm.cp.async.wait.group 0
// SMALL:           gpu.barrier

// EMULATED-LABEL: func.func private @whole__thread(
// EMULATED:        call @braid_emulate_copies_commit()
// EMULATED:        call @braid_emulate_copies_wait(
func.func @whole(%a: memref<?x?xf32, strided<[?, 1]>> {tile.name = "a"}, %b: memref<?x?xf32, strided<[?, 1]>> {tile.name = "b"},
                 %c: memref<?x?xf32, strided<[?, 1]>> {tile.name = "c"}, %k: index {tile.name = "k"}) attributes {tile.kernel, tile.grid = ["column", "row"]} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#0, %c64 : index
  %row = arith.muli %p#1, %c64 : index
  %rows = memref.dim %a, %c0 : memref<?x?xf32, strided<[?, 1]>>
  %sum = scf.for %at = %c0 to %k step %c32 iter_args(%now = %zero) -> (vector<64x64xf32>) {
    %x = tile.load %a[%row, %at] limit %rows {dims = array<i64: 0, 1>} : memref<?x?xf32, strided<[?, 1]>>, vector<64x32xf32>
    %y = tile.load %b[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xf32, strided<[?, 1]>>, vector<32x64xf32>
    %next = tile.dot %x, %y, %now : vector<64x32xf32>, vector<32x64xf32>, vector<64x64xf32>
    scf.yield %next : vector<64x64xf32>
  }
  tile.store %sum, %c[%row, %column] limit %rows {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
  return
}

// Operands that turn: of a 8 neighbours of a row, of b four steps along k of 4 rows. One of them is bf16 in memory, and widened as it is read; 16 x 4
// parts of the sum.
// CHECK-LABEL: func.func @turned({{.*}}threads.block = 64 : i64
// CHECK:         scf.for
// CHECK:           nvvm.cp.async.wait.group 1
// CHECK-COUNT-8:   vector.load {{.*}} {alignment = 16 : i64} : {{.*}} vector<4xf32>
// CHECK-COUNT-4:   vector.load {{.*}} {alignment = 8 : i64} : {{.*}} vector<4xbf16>
// CHECK-NOT:       vector.load
// CHECK:           math.fma
func.func @turned(%a: memref<?x?xf32, strided<[?, 1]>> {tile.name = "a"}, %b: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "b"},
                  %c: memref<?x?xf32, strided<[?, 1]>> {tile.name = "c"}, %k: index {tile.name = "k"}) attributes {tile.kernel, tile.grid = ["all"]} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %start = tile.load %c[%c0, %c0] {dims = array<i64: 0, 1>} : memref<?x?xf32, strided<[?, 1]>>, vector<128x16xf32>
  %sum = scf.for %at = %c0 to %k step %c32 iter_args(%now = %start) -> (vector<128x16xf32>) {
    %x = tile.load %a[%at, %c0] {dims = array<i64: 0, 1>} : memref<?x?xf32, strided<[?, 1]>>, vector<32x128xf32>
    %y = tile.load %b[%c0, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<16x32xbf16>
    %wide = arith.extf %y : vector<16x32xbf16> to vector<16x32xf32>
    %next = tile.dot %x, %wide, %now {transpose_a, transpose_b} : vector<32x128xf32>, vector<16x32xf32>, vector<128x16xf32>
    scf.yield %next : vector<128x16xf32>
  }
  tile.store %sum, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<128x16xf32>, memref<?x?xf32, strided<[?, 1]>>
  return
}

// Of f64, two at a time. Sums that something else reads than one store lie in shared memory.
// CHECK-LABEL: func.func @sums({{.*}}threads.block = 64 : i64
// CHECK:         scf.for
// CHECK:           nvvm.cp.async.wait.group 1
// CHECK-COUNT-24:  vector.load {{.*}} {alignment = 16 : i64} : {{.*}} vector<2xf64>
// CHECK-NOT:       vector.load
// CHECK:           math.fma
// CHECK:           scf.yield
// CHECK:         nvvm.cp.async.wait.group 0
// CHECK:         gpu.barrier
// CHECK:         vector.store {{.*}}#gpu.address_space<workgroup>>, vector<2xf64>
// CHECK:         gpu.barrier
func.func @sums(%a: memref<?x?xf64, strided<[?, 1]>> {tile.name = "a"}, %b: memref<?x?xf64, strided<[?, 1]>> {tile.name = "b"},
                %c: memref<?x?xf64, strided<[?, 1]>> {tile.name = "c"}, %y: memref<?xf64, strided<[1]>> {tile.name = "y"},
                %k: index {tile.name = "k"}) attributes {tile.kernel, tile.grid = ["all"]} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %zero = arith.constant dense<0.0> : vector<32x64xf64>
  %sum = scf.for %at = %c0 to %k step %c16 iter_args(%now = %zero) -> (vector<32x64xf64>) {
    %x = tile.load %a[%c0, %at] {dims = array<i64: 0, 1>} : memref<?x?xf64, strided<[?, 1]>>, vector<32x16xf64>
    %z = tile.load %b[%at, %c0] {dims = array<i64: 0, 1>} : memref<?x?xf64, strided<[?, 1]>>, vector<16x64xf64>
    %next = tile.dot %x, %z, %now : vector<32x16xf64>, vector<16x64xf64>, vector<32x64xf64>
    scf.yield %next : vector<32x64xf64>
  }
  %each = tile.reduce add %sum {axis = 1 : i64} : vector<32x64xf64>, vector<32xf64>
  tile.store %each, %y[%c0] {dims = array<i64: 0>} : vector<32xf64>, memref<?xf64, strided<[1]>>
  tile.store %sum, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<32x64xf64>, memref<?x?xf64, strided<[?, 1]>>
  return
}

// Beside another product: a block has as many threads as any kernel, here more than there are parts. Those behind the last one read what others do.
// CHECK-LABEL: func.func @fewer({{.*}}threads.block = 256 : i64
// CHECK:         arith.cmpi ult, %{{.*}}, %c192
// CHECK:         arith.minui %{{.*}}, %c5
// CHECK:         scf.for
// CHECK:           nvvm.cp.async.wait.group 1
func.func @fewer(%a: memref<?x?xf32, strided<[?, 1]>> {tile.name = "a"}, %b: memref<?x?xf32, strided<[?, 1]>> {tile.name = "b"},
                 %c: memref<?x?xf32, strided<[?, 1]>> {tile.name = "c"}, %k: index {tile.name = "k"}) attributes {tile.kernel, tile.grid = ["all"]} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant dense<0.0> : vector<96x64xf32>
  %sum = scf.for %at = %c0 to %k step %c32 iter_args(%now = %zero) -> (vector<96x64xf32>) {
    %x = tile.load %a[%c0, %at] {dims = array<i64: 0, 1>} : memref<?x?xf32, strided<[?, 1]>>, vector<96x32xf32>
    %y = tile.load %b[%at, %c0] {dims = array<i64: 0, 1>} : memref<?x?xf32, strided<[?, 1]>>, vector<32x64xf32>
    %next = tile.dot %x, %y, %now : vector<96x32xf32>, vector<32x64xf32>, vector<96x64xf32>
    scf.yield %next : vector<96x64xf32>
  }
  %x = tile.load %a[%c0, %k] {dims = array<i64: 0, 1>} : memref<?x?xf32, strided<[?, 1]>>, vector<96x4xf32>
  %y = tile.load %b[%k, %c0] {dims = array<i64: 0, 1>} : memref<?x?xf32, strided<[?, 1]>>, vector<4x64xf32>
  %all = tile.dot %x, %y, %sum : vector<96x4xf32>, vector<4x64xf32>, vector<96x64xf32>
  tile.store %all, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<96x64xf32>, memref<?x?xf32, strided<[?, 1]>>
  return
}
