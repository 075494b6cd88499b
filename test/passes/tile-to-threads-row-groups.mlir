// Rows in registers where warpgroups multiply (Hopper): right operands lie in shared memory as wgmma reads them, the left one comes from registers, or, where
// the rows stay the same over a loop, from shared memory too.
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=wgmma=true --braid-emulate-threads | FileCheck %s --check-prefix=EMULATED
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads --canonicalize --cse | FileCheck %s --check-prefix=WARPS

// One panel of keys, of which scores read rows (K-major) and the sum columns (MN-major). Before anybody multiplies, all have waited for their copies and
// ordered them before what wgmma reads; sums pass through the instruction that waits.
// CHECK-LABEL: func.func @rows
// CHECK-SAME:  threads.block = 128 : i64
// CHECK:       nvvm.cp.async.wait.group 0
// CHECK-NEXT:  nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>
// CHECK-NEXT:  gpu.barrier
// CHECK:       scf.for
// CHECK-NOT:     nvvm.mma.sync
// CHECK:         nvvm.ldmatrix
// CHECK:         nvvm.wgmma.fence.aligned
// CHECK-NOT:     nvvm.ldmatrix
// CHECK:         llvm.inline_asm has_side_effects {threads.wgmma_rows = 0 : i32} "{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, p, 1, 1, 0; }"
// CHECK:         llvm.inline_asm has_side_effects {threads.wgmma_rows = 0 : i32} "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, p, 1, 1, 0; }"
// CHECK-NOT:     wgmma.mma_async
// CHECK:         nvvm.wgmma.commit.group.sync.aligned
// CHECK:         llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;"
// CHECK:         nvvm.wgmma.fence.aligned
// CHECK-COUNT-4: wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{.*}}, p, 1, 1, 1; }"
// CHECK-NOT:     wgmma.mma_async
// CHECK:         nvvm.cp.async.wait.group 0
// CHECK-NEXT:    nvvm.fence.proxy
// CHECK-NEXT:    gpu.barrier
// EMULATED-LABEL: func.func private @rows__thread
// EMULATED:      call @braid_emulate_fence_async()
// EMULATED-COUNT-2: call @braid_emulate_wgmma_rows(%{{.*}}, %c64_i32{{.*}}, %c0_i32{{.*}}, %{{.*}})
// EMULATED:      call @braid_emulate_wgmma_wait(%c0_i32
// EMULATED-COUNT-4: call @braid_emulate_wgmma_rows(%{{.*}}, %c32_i32{{.*}}, %c1_i32{{.*}}, %{{.*}})
// WARPS-LABEL: func.func @rows
// WARPS-NOT:   wgmma
// WARPS:       nvvm.mma.sync
func.func @rows(%q: memref<64x32xbf16> {tile.name = "q"}, %k: memref<?x32xbf16> {tile.name = "k"}, %y: memref<64x32xf32> {tile.name = "y"}, %n: index {tile.name = "n"},
                %s: f32 {tile.name = "s"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %zero = arith.constant dense<0.0> : vector<64x32xf32>
  %raw = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x32xbf16>, vector<64x32xbf16>
  %wide = arith.extf %raw : vector<64x32xbf16> to vector<64x32xf32>
  %factor = vector.broadcast %s : f32 to vector<64x32xf32>
  %scaled = arith.mulf %wide, %factor : vector<64x32xf32>
  %qv = arith.truncf %scaled : vector<64x32xf32> to vector<64x32xbf16>
  %r = scf.for %j = %c0 to %n step %c64 iter_args(%sum = %zero) -> (vector<64x32xf32>) {
    %kv = tile.load %k[%j, %c0] {dims = array<i64: 0, 1>} : memref<?x32xbf16>, vector<64x32xbf16>
    %d = tile.dot %kv, %qv, %none {transpose_b} : vector<64x32xbf16>, vector<64x32xbf16>, vector<64x64xf32>
    %t = arith.truncf %d : vector<64x64xf32> to vector<64x64xbf16>
    %next = tile.dot %t, %kv, %sum {transpose_a} : vector<64x64xbf16>, vector<64x32xbf16>, vector<64x32xf32>
    scf.yield %next : vector<64x32xf32>
  }
  tile.store %r, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x32xf32>, memref<64x32xf32>
  return
}

// -----

// Rows that lie in memory as they are multiplied: both operands by descriptors.
// CHECK-LABEL: func.func @stays
// CHECK:       nvvm.cp.async.shared.global
// CHECK:       scf.for
// CHECK-NOT:     nvvm.ldmatrix
// CHECK-COUNT-2: nvvm.wgmma.mma_async {{.*}}<m = 64, n = 64, k = 16>, D[<f32>, <one>], A[<bf16>, <one>, <row>], B[<bf16>, <one>, <col>]
// CHECK-COUNT-4: wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{.*}}, p, 1, 1, 1; }"
func.func @stays(%q: memref<64x32xbf16> {tile.name = "q"}, %k: memref<?x32xbf16> {tile.name = "k"}, %y: memref<64x32xf32> {tile.name = "y"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %zero = arith.constant dense<0.0> : vector<64x32xf32>
  %qv = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x32xbf16>, vector<64x32xbf16>
  %r = scf.for %j = %c0 to %n step %c64 iter_args(%sum = %zero) -> (vector<64x32xf32>) {
    %kv = tile.load %k[%j, %c0] {dims = array<i64: 0, 1>} : memref<?x32xbf16>, vector<64x32xbf16>
    %d = tile.dot %kv, %qv, %none {transpose_b} : vector<64x32xbf16>, vector<64x32xbf16>, vector<64x64xf32>
    %t = arith.truncf %d : vector<64x64xf32> to vector<64x64xbf16>
    %next = tile.dot %t, %kv, %sum {transpose_a} : vector<64x64xbf16>, vector<64x32xbf16>, vector<64x32xf32>
    scf.yield %next : vector<64x32xf32>
  }
  tile.store %r, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x32xf32>, memref<64x32xf32>
  return
}

// -----

// What is computed lies in rows, and so does what stays beside it: by ldmatrix and mma.sync. The sum's right operand is the panel.
// CHECK-LABEL: func.func @mixed
// CHECK:       scf.for
// CHECK:         nvvm.ldmatrix
// CHECK:         nvvm.mma.sync
// CHECK-COUNT-4: wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{.*}}, p, 1, 1, 1; }"
func.func @mixed(%q: memref<64x32xbf16> {tile.name = "q"}, %k: memref<?x32xbf16> {tile.name = "k"}, %v: memref<?x32xbf16> {tile.name = "v"}, %y: memref<64x32xf32> {tile.name = "y"},
                 %n: index {tile.name = "n"}, %s: f32 {tile.name = "s"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %zero = arith.constant dense<0.0> : vector<64x32xf32>
  %factor = vector.broadcast %s : f32 to vector<64x32xf32>
  %qv = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x32xbf16>, vector<64x32xbf16>
  %r = scf.for %j = %c0 to %n step %c64 iter_args(%sum = %zero) -> (vector<64x32xf32>) {
    %raw = tile.load %k[%j, %c0] {dims = array<i64: 0, 1>} : memref<?x32xbf16>, vector<64x32xbf16>
    %wide = arith.extf %raw : vector<64x32xbf16> to vector<64x32xf32>
    %scaled = arith.mulf %wide, %factor : vector<64x32xf32>
    %kv = arith.truncf %scaled : vector<64x32xf32> to vector<64x32xbf16>
    %vv = tile.load %v[%j, %c0] {dims = array<i64: 0, 1>} : memref<?x32xbf16>, vector<64x32xbf16>
    %d = tile.dot %kv, %qv, %none {transpose_b} : vector<64x32xbf16>, vector<64x32xbf16>, vector<64x64xf32>
    %t = arith.truncf %d : vector<64x64xf32> to vector<64x64xbf16>
    %next = tile.dot %t, %vv, %sum {transpose_a} : vector<64x64xbf16>, vector<64x32xbf16>, vector<64x32xf32>
    scf.yield %next : vector<64x32xf32>
  }
  tile.store %r, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x32xf32>, memref<64x32xf32>
  return
}
