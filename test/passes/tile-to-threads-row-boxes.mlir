// Rows in registers by which tiles pass in boxes (`tile.boxes`): each warpgroup goes through a ring of stages at its own pace.
// RUN: braid-opt %s --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s
// RUN: braid-opt %s --braid-tile-to-threads --canonicalize --cse | FileCheck %s --check-prefix=WARPS
// RUN: braid-opt %s --braid-tile-to-threads=wgmma=true --braid-emulate-threads | FileCheck %s --check-prefix=EMULATED

// Nobody copies but the threads that multiply. Boxes of 64 rows of k; a stage has 64 numbers of w beside.
// CHECK-LABEL: func.func @passing(
// CHECK-SAME:  threads.block = 256 : i64
// CHECK-SAME:  [2, array<i64: {{.*}}, 64>, array<i64>, array<i64: 64, 64>]
// What is read before the loop is asked for before anybody waits.
// CHECK-COUNT-8: nvvm.cp.async.shared.global {{.*}} 16, cache =  cg
// CHECK:       nvvm.cp.async.wait.group 0
// CHECK:       gpu.barrier
// A stage is full when the box has come and each lane of the first warp has what it copied; empty when eight warps have left it.
// CHECK-COUNT-4: threads.bulk = "begin"{{.*}}, %c33_i32
// CHECK-COUNT-4: threads.bulk = "begin"{{.*}}, %c8_i32
// CHECK:       threads.bulk = "begun"
// CHECK:       gpu.barrier
// CHECK-NOT:   gpu.barrier
// Two iterations are asked for.
// CHECK-COUNT-2: threads.bulk = "copy"
// CHECK-NOT:   threads.bulk = "copy"
// CHECK-NOT:   nvvm.ldmatrix
// CHECK:       scf.for %[[AT:.*]] = %c0 to %{{.*}} step %c64 iter_args
// Rows that all tiles meet are read again for each, where the iteration begins: what wgmma reads of registers may not be held by a loop.
// CHECK-COUNT-4: nvvm.ldmatrix
// CHECK-NOT:     gpu.barrier
// The one behind the next, by the warp whose turn it is.
// CHECK:         scf.if
// CHECK:           threads.bulk = "await"
// CHECK:           threads.bulk = "expect"{{.*}}, %c8192_i32
// CHECK:           threads.bulk = "copy"
// CHECK-COUNT-2:   nvvm.cp.async.shared.global {{.*}} 4, cache =  ca
// CHECK-NEXT:      threads.bulk = "copied"{{.*}}cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];
// CHECK:         nvvm.bar.warp.sync
// CHECK:         threads.bulk = "await"
// CHECK-NEXT:    nvvm.bar.warp.sync
// The second product goes on while the first one is rounded and multiplied again; then all are waited for, and the stage is left.
// CHECK:         nvvm.wgmma.commit.group.sync.aligned
// CHECK-NOT:     wgmma.wait_group
// CHECK:         nvvm.wgmma.commit.group.sync.aligned
// CHECK:         "wgmma.wait_group.sync.aligned 1;"
// CHECK:         nvvm.wgmma.commit.group.sync.aligned
// CHECK:         "wgmma.wait_group.sync.aligned 0;"
// CHECK:         nvvm.wgmma.commit.group.sync.aligned
// CHECK:         "wgmma.wait_group.sync.aligned 0;"
// CHECK:         threads.bulk = "arrive"
// CHECK:         scf.yield
// CHECK-NOT:   gpu.barrier
// CHECK:       return
// WARPS-LABEL: func.func @passing(
// WARPS-NOT:   threads.bulk
// WARPS-NOT:   wgmma
// WARPS:       nvvm.mma.sync
// EMULATED-LABEL: func.func private @passing__thread
// EMULATED:      call @braid_emulate_bulk_begin
// EMULATED:      call @braid_emulate_bulk_copied
// EMULATED:      call @braid_emulate_wgmma_wait(%c1_i32
func.func @passing(%q: memref<128x64xbf16> {tile.name = "q"}, %o: memref<128x64xbf16> {tile.name = "o"}, %k: memref<?x64xbf16> {tile.name = "k"}, %w: memref<?xf32> {tile.name = "w"}, %y: memref<128x64xf32> {tile.name = "y"},
                   %s: f32 {tile.name = "s"}) attributes {tile.kernel, tile.boxes, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<64x128xf32>
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  %n = memref.dim %k, %c0 : memref<?x64xbf16>
  %m = memref.dim %w, %c0 : memref<?xf32>
  %raw = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<128x64xbf16>, vector<128x64xbf16>
  %ov = tile.load %o[%c0, %c0] {dims = array<i64: 0, 1>} : memref<128x64xbf16>, vector<128x64xbf16>
  %wide = arith.extf %raw : vector<128x64xbf16> to vector<128x64xf32>
  %factor = vector.broadcast %s : f32 to vector<128x64xf32>
  %scaled = arith.mulf %wide, %factor : vector<128x64xf32>
  %qv = arith.truncf %scaled : vector<128x64xf32> to vector<128x64xbf16>
  %r = scf.for %j = %c0 to %n step %c64 iter_args(%sum = %zero) -> (vector<128x64xf32>) {
    %kv = tile.load %k[%j, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %wv = tile.load %w[%j] limit %m {dims = array<i64: 0>} : memref<?xf32>, vector<64xf32>
    %d = tile.dot %kv, %qv, %none {transpose_b} : vector<64x64xbf16>, vector<128x64xbf16>, vector<64x128xf32>
    %e = tile.dot %kv, %ov, %none {transpose_b} : vector<64x64xbf16>, vector<128x64xbf16>, vector<64x128xf32>
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

// Rows that stay as they lie in memory are read by wgmma from shared memory; what formulas read of them (here a sum of each) is a load of its own. Sums that
// begin with zeros are not read. The second product goes on beside the formulas of the first: before it is awaited, threads wait for boxes that have come,
// so that the assembler leaves the formulas where they are. Bounds and warps are said to be the same in all lanes.
// CHECK-LABEL: func.func @staying(
// CHECK-COUNT-2: gpu.shuffle idx
// CHECK:       scf.for %{{.*}} = %c0 to %{{.*}} step %c64 iter_args
// CHECK-NOT:     nvvm.ldmatrix
// CHECK-NOT:     threads.wgmma_rows
// CHECK:         llvm.inline_asm has_side_effects "mov.b32 $0, 0;mov.b32 $1, 0;
// CHECK:         nvvm.wgmma.mma_async {{.*}}<zero>
// CHECK:         nvvm.wgmma.mma_async {{.*}}<one>
// CHECK:         nvvm.wgmma.commit.group.sync.aligned
// CHECK-NOT:     wgmma.wait_group
// CHECK:         nvvm.wgmma.mma_async {{.*}}<zero>
// CHECK:         nvvm.wgmma.commit.group.sync.aligned
// CHECK-NOT:     threads.bulk = "await"
// CHECK:         "wgmma.wait_group.sync.aligned 1;"
// CHECK:         math.exp2
// CHECK:         threads.bulk = "await"
// CHECK-NEXT:    "wgmma.wait_group.sync.aligned 0;"
// CHECK:         threads.wgmma_rows
// CHECK:       return
func.func @staying(%q: memref<128x64xbf16> {tile.name = "q"}, %k: memref<?x64xbf16> {tile.name = "k"}, %v: memref<?x64xbf16> {tile.name = "v"}, %y: memref<128x64xf32> {tile.name = "y"},
                   %z: memref<128xf32> {tile.name = "z"}) attributes {tile.kernel, tile.boxes, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<64x128xf32>
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  %n = memref.dim %k, %c0 : memref<?x64xbf16>
  %l = memref.dim %v, %c0 : memref<?x64xbf16>
  %qv = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<128x64xbf16>, vector<128x64xbf16>
  %wide = arith.extf %qv : vector<128x64xbf16> to vector<128x64xf32>
  %sums = tile.reduce add %wide {axis = 1 : i64} : vector<128x64xf32>, vector<128xf32>
  tile.store %sums, %z[%c0] {dims = array<i64: 0>} : vector<128xf32>, memref<128xf32>
  %r = scf.for %j = %c0 to %n step %c64 iter_args(%sum = %zero) -> (vector<128x64xf32>) {
    %kv = tile.load %k[%j, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %vv = tile.load %v[%j, %c0] limit %l {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %d = tile.dot %kv, %qv, %none {transpose_b} : vector<64x64xbf16>, vector<128x64xbf16>, vector<64x128xf32>
    %e = tile.dot %vv, %qv, %none {transpose_b} : vector<64x64xbf16>, vector<128x64xbf16>, vector<64x128xf32>
    %p = math.exp2 %d : vector<64x128xf32>
    %m = arith.mulf %p, %e : vector<64x128xf32>
    %t = arith.truncf %m : vector<64x128xf32> to vector<64x128xbf16>
    %next = tile.dot %t, %kv, %sum {transpose_a} : vector<64x128xbf16>, vector<64x64xbf16>, vector<128x64xf32>
    scf.yield %next : vector<128x64xf32>
  }
  tile.store %r, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<128x64xf32>, memref<128x64xf32>
  return
}
