// RUN: braid-opt %s --split-input-file --braid-tile-to-threads --canonicalize --cse | FileCheck %s

// A thread takes 16 bytes of a row at a time, where all rows are there and begin on 16 bytes, which is asked once.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME:  threads.block = 128
// CHECK:       %[[PLACE:.*]] = arith.remui %{{.*}}, %c16
// CHECK:       %[[ALL:.*]] = arith.cmpi sle
// CHECK:       %[[BEGINS:.*]] = arith.cmpi eq, %{{.*}}, %c0
// CHECK:       %[[TRUSTED:.*]] = arith.andi %{{.*}}, %[[BEGINS]]
// CHECK:       scf.if %[[TRUSTED]] {
// CHECK:         scf.for %{{.*}} = %{{.*}} to %c256
// CHECK-NOT:       scf.if
// CHECK:           vector.load %{{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
// CHECK:           math.exp %{{.*}} : vector<8xf32>
// CHECK:           vector.store %{{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
// CHECK:       } else {
// CHECK:         scf.for %{{.*}} = %{{.*}} to %c2048
// CHECK:           scf.if
// CHECK:             memref.load
// CHECK:             memref.store
// CHECK:       } {braid.likely}
// CHECK-NOT:   gpu.barrier
func.func @rows(%x: memref<?x512xbf16> {tile.name = "x"}, %y: memref<?x512xbf16> {tile.name = "y"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %i = tile.program : index
  %r = arith.muli %i, %c4 : index
  %a = tile.load %x[%r, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x512xbf16>, vector<4x512xbf16>
  %b = arith.extf %a : vector<4x512xbf16> to vector<4x512xf32>
  %e = math.exp %b : vector<4x512xf32>
  %o = arith.truncf %e : vector<4x512xf32> to vector<4x512xbf16>
  tile.store %o, %y[%r, %c0] limit %n {dims = array<i64: 0, 1>} : vector<4x512xbf16>, memref<?x512xbf16>
  return
}

// -----

// Fewer elements than threads for whole vectors: shorter ones. Columns 3, 4, .. of the source do not begin where vectors do.
// CHECK-LABEL: func.func @short(
// CHECK:       vector.load %{{.*}} {alignment = 4 : i64} : memref<?xbf16>, vector<2xbf16>
// CHECK-LABEL: func.func @odd(
// CHECK-NOT:   vector.load
// CHECK:       return
func.func @short(%x: memref<256xbf16> {tile.name = "x"}, %y: memref<256xbf16> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0] {dims = array<i64: 0>} : memref<256xbf16>, vector<256xbf16>
  tile.store %a, %y[%c0] {dims = array<i64: 0>} : vector<256xbf16>, memref<256xbf16>
  return
}
func.func @odd(%x: memref<?x1030xf32> {tile.name = "x"}, %y: memref<?x1024xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0, %c0] {dims = array<i64: 1>} : memref<?x1030xf32>, vector<1030xf32>
  %b = tile.slice %a {offset = 3 : i64} : vector<1030xf32>, vector<1024xf32>
  tile.store %b, %y[%c0, %c0] {dims = array<i64: 1>} : vector<1024xf32>, memref<?x1024xf32>
  return
}

// -----

// A sum has the same order wherever its row lies: vectors in both branches, of single elements in the second.
// CHECK-LABEL: func.func @sum(
// CHECK:       scf.if
// CHECK:         vector.load %{{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
// CHECK:         vector.shuffle
// CHECK:       } else {
// CHECK:         vector.load %{{[^{]*}} : memref<?xf32>, vector<4xf32>
// CHECK:         vector.shuffle
// CHECK:       gpu.shuffle xor
func.func @sum(%x: memref<?x256xf32> {tile.name = "x"}, %y: memref<?xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %i = tile.program : index
  %a = tile.load %x[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x256xf32>, vector<8x256xf32>
  %s = tile.reduce add %a {axis = 1 : i64} : vector<8x256xf32>, vector<8xf32>
  tile.store %s, %y[%i] {dims = array<i64: 0>} : vector<8xf32>, memref<?xf32>
  return
}

// -----

// What a loop carries stays in the registers of the thread that has the elements: eight strips of each of 256 threads; all reads of
// an iteration come before its writes, and there is no barrier in it. Whether rows begin on 16 bytes is asked once, for all iterations.
// CHECK-LABEL: func.func @scan(
// CHECK-SAME:  threads.block = 256
// CHECK:       %{{.*}}:8 = scf.if {{.*}} -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
// CHECK:         scf.for
// CHECK-NOT:       scf.if
// CHECK-COUNT-8:   vector.load %{{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
// CHECK-COUNT-8:   vector.store %{{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
// CHECK-NOT:     gpu.barrier
// CHECK:           scf.yield
// CHECK:       } else {
// CHECK:         scf.for
// CHECK:       } {braid.likely}
// CHECK:       vector.store %{{.*}} : memref<8704xf32, #gpu.address_space<workgroup>>, vector<4xf32>
// CHECK:       gpu.barrier
func.func @scan(%x: memref<?x128x64xf32> {tile.name = "x"}, %p: memref<?x128xf32> {tile.name = "p"}, %m: memref<?x128x64xf32> {tile.name = "m"},
                %end: memref<128x64xf32> {tile.name = "end"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  %last = scf.for %j = %c0 to %n step %c1 iter_args(%s = %zero) -> (vector<128x64xf32>) {
    tile.store %s, %m[%j, %c0, %c0] {dims = array<i64: 1, 2>} : vector<128x64xf32>, memref<?x128x64xf32>
    %d = tile.load %p[%j, %c0] {dims = array<i64: 1>} : memref<?x128xf32>, vector<128xf32>
    %e = math.exp %d : vector<128xf32>
    %de = tile.expand %e {axis = 1 : i64} : vector<128xf32>, vector<128x64xf32>
    %v = tile.load %x[%j, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x128x64xf32>, vector<128x64xf32>
    %k = arith.mulf %s, %de : vector<128x64xf32>
    %t = arith.addf %k, %v : vector<128x64xf32>
    scf.yield %t : vector<128x64xf32>
  }
  tile.store %last, %end[%c0, %c0] {dims = array<i64: 0, 1>} : vector<128x64xf32>, memref<128x64xf32>
  return
}

// -----

// With few elements for each thread four iterations go together: all that they read is asked for before the first one writes, since nothing
// that is read may be what is written.
// CHECK-LABEL: func.func @ahead(
// CHECK:       scf.if
// CHECK:         scf.for
// CHECK-COUNT-4:   math.exp
// CHECK-NOT:       vector.load
// CHECK-COUNT-4:   vector.store %{{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
// CHECK:         } else {
// CHECK-LABEL: func.func @turns(
// CHECK:       scf.if
// CHECK:         scf.for
// CHECK-COUNT-1:   vector.load
// CHECK-COUNT-1:   vector.store
// CHECK:         } else {
func.func @ahead(%x: memref<?x512xf32> {tile.name = "x"}, %m: memref<?x512xf32> {tile.name = "m"}, %end: memref<512xf32> {tile.name = "end"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<512xf32>
  %last = scf.for %j = %c0 to %n step %c1 iter_args(%s = %zero) -> (vector<512xf32>) {
    tile.store %s, %m[%j, %c0] {dims = array<i64: 1>} : vector<512xf32>, memref<?x512xf32>
    %v = tile.load %x[%j, %c0] {dims = array<i64: 1>} : memref<?x512xf32>, vector<512xf32>
    %e = math.exp %v : vector<512xf32>
    %t = arith.addf %s, %e : vector<512xf32>
    scf.yield %t : vector<512xf32>
  }
  tile.store %last, %end[%c0] {dims = array<i64: 0>} : vector<512xf32>, memref<512xf32>
  return
}
func.func @turns(%x: memref<?x512xf32> {tile.name = "x"}, %y: memref<?x512xf32> {tile.name = "y"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"], tile.in_place = [["y", "x"]]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %j = %c0 to %n step %c1 {
    %v = tile.load %x[%j, %c0] {dims = array<i64: 1>} : memref<?x512xf32>, vector<512xf32>
    %e = math.exp %v : vector<512xf32>
    tile.store %e, %y[%j, %c0] {dims = array<i64: 1>} : vector<512xf32>, memref<?x512xf32>
  }
  return
}

// -----

// Which parameters are one buffer is not known: p may be what is written to m, whose other elements other threads have.
// CHECK-LABEL: func.func @unknown(
// CHECK:       scf.for
// CHECK:         gpu.barrier
// CHECK-LABEL: func.func @shared(
// CHECK:       scf.for
// CHECK:         gpu.barrier
// An element that is read and then written in its place is the thread's own; one that is written and then read would be another.
// CHECK-LABEL: func.func @updated(
// CHECK-NOT:   gpu.barrier
// CHECK-LABEL: func.func @reread(
// CHECK:       gpu.barrier
// Half of what an iteration writes is written again by the next one, by other threads.
// CHECK-LABEL: func.func @sliding(
// CHECK:       gpu.barrier
func.func @unknown(%p: memref<?x128xf32> {tile.name = "p"}, %m: memref<?x128x64xf32> {tile.name = "m"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %j = %c0 to %n step %c1 {
    %d = tile.load %p[%j, %c0] {dims = array<i64: 1>} : memref<?x128xf32>, vector<128xf32>
    %de = tile.expand %d {axis = 1 : i64} : vector<128xf32>, vector<128x64xf32>
    tile.store %de, %m[%j, %c0, %c0] {dims = array<i64: 1, 2>} : vector<128x64xf32>, memref<?x128x64xf32>
  }
  return
}
func.func @shared(%p: memref<?x128xf32> {tile.name = "p"}, %m: memref<?x128x64xf32> {tile.name = "m"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"], tile.in_place = [["m", "p"]]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %j = %c0 to %n step %c1 {
    %d = tile.load %p[%j, %c0] {dims = array<i64: 1>} : memref<?x128xf32>, vector<128xf32>
    %de = tile.expand %d {axis = 1 : i64} : vector<128xf32>, vector<128x64xf32>
    tile.store %de, %m[%j, %c0, %c0] {dims = array<i64: 1, 2>} : vector<128x64xf32>, memref<?x128x64xf32>
  }
  return
}
func.func @updated(%p: memref<?xf32> {tile.name = "p"}, %m: memref<?xf32> {tile.name = "m"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"], tile.in_place = [["m", "p"]]} {
  %c0 = arith.constant 0 : index
  %c1024 = arith.constant 1024 : index
  scf.for %j = %c0 to %n step %c1024 {
    %d = tile.load %p[%j] limit %n {dims = array<i64: 0>} : memref<?xf32>, vector<1024xf32>
    %e = arith.addf %d, %d : vector<1024xf32>
    tile.store %e, %m[%j] limit %n {dims = array<i64: 0>} : vector<1024xf32>, memref<?xf32>
  }
  return
}
func.func @reread(%p: memref<?xf32> {tile.name = "p"}, %m: memref<?xf32> {tile.name = "m"}, %q: memref<?xf32> {tile.name = "q"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"], tile.in_place = [["m", "p"]]} {
  %c0 = arith.constant 0 : index
  %c1024 = arith.constant 1024 : index
  %one = arith.constant dense<1.0> : vector<1024xf32>
  scf.for %j = %c0 to %n step %c1024 {
    tile.store %one, %m[%j] limit %n {dims = array<i64: 0>} : vector<1024xf32>, memref<?xf32>
    %d = tile.load %p[%j] limit %n {dims = array<i64: 0>} : memref<?xf32>, vector<1024xf32>
    tile.store %d, %q[%j] limit %n {dims = array<i64: 0>} : vector<1024xf32>, memref<?xf32>
  }
  return
}

func.func @sliding(%x: memref<?xf32> {tile.name = "x"}, %y: memref<?xf32> {tile.name = "y"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c512 = arith.constant 512 : index
  scf.for %j = %c0 to %n step %c512 {
    %d = tile.load %x[%j] limit %n {dims = array<i64: 0>} : memref<?xf32>, vector<1024xf32>
    tile.store %d, %y[%j] limit %n {dims = array<i64: 0>} : vector<1024xf32>, memref<?xf32>
  }
  return
}

// -----

// Where nothing is written several iterations read together: four loads before their sums; what is left goes one by one.
// CHECK-LABEL: func.func @total(
// CHECK:       scf.for {{.*}} -> (vector<4xf32>, vector<4xf32>) {
// CHECK:         scf.if
// CHECK-COUNT-8:   vector.load %{{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
// CHECK:       scf.for {{.*}} -> (vector<4xf32>, vector<4xf32>) {
// CHECK:         scf.if
// CHECK-COUNT-2:   vector.load %{{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
// CHECK:       gpu.shuffle xor
func.func @total(%x: memref<?xf32> {tile.name = "x"}, %y: memref<1xf32> {tile.name = "y"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant dense<0.0> : vector<1024xf32>
  %sum = scf.for %j = %c0 to %n step %c1024 iter_args(%s = %zero) -> (vector<1024xf32>) {
    %v = tile.load %x[%j] limit %n {dims = array<i64: 0>} : memref<?xf32>, vector<1024xf32>
    %t = arith.addf %s, %v : vector<1024xf32>
    scf.yield %t : vector<1024xf32>
  }
  %all = tile.reduce add %sum {axis = 0 : i64} : vector<1024xf32>, f32
  memref.store %all, %y[%c0] : memref<1xf32>
  return
}
