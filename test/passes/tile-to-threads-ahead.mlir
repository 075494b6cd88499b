// A loop whose products read what the iteration before has computed asks for what the next one reads of memory while this one computes.
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads --canonicalize --cse | FileCheck %s

// Two places in turn: the first matrix before the loop, if there is one, the next one at the beginning of each iteration; its end waits.
// CHECK-LABEL: func.func @chain
// CHECK:         gpu.barrier
// CHECK:         scf.if
// CHECK:           nvvm.cp.async.shared.global
// CHECK:         nvvm.cp.async.wait.group 0
// CHECK-NEXT:    gpu.barrier
// CHECK:         scf.for %[[I:.*]] = %c0 to %[[N:.*]] step %c1 {
// CHECK:           arith.remui %[[I]], %c2 : index
// CHECK:           %[[NEXT:.*]] = arith.addi %[[I]], %c1 : index
// CHECK:           %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %[[N]] : index
// CHECK:           scf.if %[[MORE]] {
// CHECK:             nvvm.cp.async.shared.global
// CHECK-NOT:       nvvm.cp.async.wait.group
// CHECK:           nvvm.mma.sync
// CHECK:           nvvm.cp.async.wait.group 0
// CHECK-NEXT:      gpu.barrier
// CHECK:         return
func.func @chain(%p: memref<?x64x64xbf16> {tile.name = "p"}, %m: memref<64x16xf32> {tile.name = "m"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<64x16xf32>
  %first = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x16xf32>, vector<64x16xf32>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%state = %first) -> vector<64x16xf32> {
    %pv = tile.load %p[%i, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x64x64xbf16>, vector<64x64xbf16>
    %t = arith.truncf %state : vector<64x16xf32> to vector<64x16xbf16>
    %next = tile.dot %pv, %t, %zero : vector<64x64xbf16>, vector<64x16xbf16>, vector<64x16xf32>
    scf.yield %next : vector<64x16xf32>
  }
  tile.store %last, %m[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x16xf32>, memref<64x16xf32>
  return
}

// -----

// What an iteration stores may be what the next one reads: it is read when its turn comes.
// CHECK-LABEL: func.func @written
// CHECK:         scf.for %[[I:.*]] = %c0 to %{{.*}} step %c1 {
// CHECK-NOT:       arith.remui %[[I]], %c2
// CHECK:           nvvm.cp.async.shared.global
// CHECK:           nvvm.cp.async.wait.group 0
// CHECK:           nvvm.mma.sync
func.func @written(%p: memref<?x64x64xbf16> {tile.name = "p"}, %m: memref<64x16xf32> {tile.name = "m"},
                   %o: memref<?x64x16xbf16> {tile.name = "o"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<64x16xf32>
  %first = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x16xf32>, vector<64x16xf32>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%state = %first) -> vector<64x16xf32> {
    %pv = tile.load %p[%i, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x64x64xbf16>, vector<64x64xbf16>
    %t = arith.truncf %state : vector<64x16xf32> to vector<64x16xbf16>
    tile.store %t, %o[%i, %c0, %c0] {dims = array<i64: 1, 2>} : vector<64x16xbf16>, memref<?x64x16xbf16>
    %next = tile.dot %pv, %t, %zero : vector<64x64xbf16>, vector<64x16xbf16>, vector<64x16xf32>
    scf.yield %next : vector<64x16xf32>
  }
  tile.store %last, %m[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x16xf32>, memref<64x16xf32>
  return
}
