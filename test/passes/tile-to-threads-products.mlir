// A loop that adds up products of bf16 tiles from memory: copies to a ring of stages run ahead, the sum stays in registers.
// RUN: braid-opt %s --braid-tile-to-threads=wgmma=true --canonicalize | FileCheck %s --check-prefixes=CHECK,GROUPS
// RUN: braid-opt %s --braid-tile-to-threads --canonicalize | FileCheck %s --check-prefixes=CHECK,WARPS
// RUN: braid-opt %s "--braid-tile-to-threads=wgmma=true shared-bytes=140288" --canonicalize | FileCheck %s --check-prefix=SMALL
// RUN: braid-opt %s --braid-tile-to-threads=wgmma=true --braid-emulate-threads | FileCheck %s --check-prefix=EMULATED

// Four stages of (128 + 256) x 128 bytes; warpgroups of 64 x 256, each thread with 128 sums.
// CHECK-LABEL: func.func @whole({{.*}}threads.block = 256 : i64, threads.scratch_bytes = 0 : i64, threads.shared_bytes = 196608 : i64
// Two iterations are copied before the first product by wgmma, three before one by mma.sync.
// CHECK:         nvvm.cp.async.shared.global
// CHECK:         nvvm.cp.async.commit.group
// CHECK:         nvvm.cp.async.commit.group
// WARPS:         nvvm.cp.async.commit.group
// CHECK:         scf.for
// GROUPS:          nvvm.cp.async.wait.group 1
// GROUPS-NEXT:     nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// GROUPS-NEXT:     gpu.barrier
// GROUPS:          nvvm.wgmma.fence.aligned
// GROUPS-COUNT-4:  nvvm.wgmma.mma_async {{.*}}<m = 64, n = 256, k = 16>, D[<f32>, <one>], A[<bf16>, <one>, <row>], B[<bf16>, <one>, <row>]
// GROUPS-NOT:      nvvm.wgmma.mma_async
// GROUPS:          nvvm.wgmma.commit.group.sync.aligned
// GROUPS:          nvvm.cp.async.shared.global
// GROUPS:          nvvm.cp.async.commit.group
// GROUPS:          nvvm.wgmma.wait.group.sync.aligned 1
// WARPS:           nvvm.cp.async.wait.group 2
// WARPS-NEXT:      gpu.barrier
// WARPS:           nvvm.cp.async.commit.group
// 4 x 8 blocks of a warp, four steps along k: 16 matrices of a, 16 of b, each loaded once.
// WARPS-COUNT-128: nvvm.mma.sync
// WARPS-NOT:       nvvm.mma.sync
// CHECK:           scf.yield
// Whoever reads the sums comes behind the last product.
// GROUPS:        llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,
// CHECK:         nvvm.cp.async.wait.group 0
// They go to memory from registers, two neighbours at a time where their addresses allow it.
// CHECK-NOT:     gpu.barrier
// CHECK:         vector.store {{.*}}vector<2xf32>
// CHECK-NOT:     gpu.barrier
// CHECK:         memref.store

// Where four stages do not fit, fewer; wgmma needs three, and warps multiply with two.
// SMALL-LABEL: func.func @whole(
// SMALL:         scf.for
// SMALL:           nvvm.cp.async.wait.group 0
// SMALL-NOT:       wgmma
// SMALL:           nvvm.mma.sync

// EMULATED-LABEL: func.func private @whole__thread(
// EMULATED:        call @braid_emulate_copies_commit()
// EMULATED:        call @braid_emulate_copies_wait(
// EMULATED:        call @braid_emulate_fence_async()
// EMULATED:        call @braid_emulate_wgmma(%{{.*}}, %{{.*}}, %c256_i32{{.*}}, %c0_i32{{.*}}, %c1_i32{{.*}}, %{{.*}})
// EMULATED:        call @braid_emulate_wgmma_commit()
// EMULATED:        call @braid_emulate_wgmma_wait(%c1_i32
// EMULATED:        call @braid_emulate_wgmma_wait(%c0_i32
func.func @whole(%a: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "a"}, %b: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "b"},
                 %c: memref<?x?xf32, strided<[?, 1]>> {tile.name = "c"}, %k: index {tile.name = "k"}) attributes {tile.kernel, tile.grid = ["column", "row"]} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %zero = arith.constant dense<0.0> : vector<128x256xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#0, %c256 : index
  %row = arith.muli %p#1, %c128 : index
  %rows = memref.dim %a, %c0 : memref<?x?xbf16, strided<[?, 1]>>
  %sum = scf.for %at = %c0 to %k step %c64 iter_args(%now = %zero) -> (vector<128x256xf32>) {
    %x = tile.load %a[%row, %at] limit %rows {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<128x64xbf16>
    %y = tile.load %b[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<64x256xbf16>
    %next = tile.dot %x, %y, %now : vector<128x64xbf16>, vector<64x256xbf16>, vector<128x256xf32>
    scf.yield %next : vector<128x256xf32>
  }
  tile.store %sum, %c[%row, %column] limit %rows {dims = array<i64: 0, 1>} : vector<128x256xf32>, memref<?x?xf32, strided<[?, 1]>>
  return
}

// Operands that turn, and fewer rows than two warpgroups have: the groups stand side by side. 64 x 64 each.
// CHECK-LABEL: func.func @turned(
// GROUPS-COUNT-2: nvvm.wgmma.mma_async {{.*}}<m = 64, n = 64, k = 16>, D[<f32>, <one>], A[<bf16>, <one>, <col>], B[<bf16>, <one>, <col>]
// GROUPS-NOT:     nvvm.wgmma.mma_async
func.func @turned(%a: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "a"}, %b: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "b"},
                  %c: memref<?x?xf32, strided<[?, 1]>> {tile.name = "c"}, %k: index {tile.name = "k"}) attributes {tile.kernel, tile.grid = ["all"]} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %start = tile.load %c[%c0, %c0] {dims = array<i64: 0, 1>} : memref<?x?xf32, strided<[?, 1]>>, vector<64x128xf32>
  %sum = scf.for %at = %c0 to %k step %c32 iter_args(%now = %start) -> (vector<64x128xf32>) {
    %x = tile.load %a[%at, %c0] {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<32x64xbf16>
    %y = tile.load %b[%c0, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<128x32xbf16>
    %next = tile.dot %x, %y, %now {transpose_a, transpose_b} : vector<32x64xbf16>, vector<128x32xbf16>, vector<64x128xf32>
    scf.yield %next : vector<64x128xf32>
  }
  tile.store %sum, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x128xf32>, memref<?x?xf32, strided<[?, 1]>>
  return
}

// What else a loop computes keeps the sum in shared memory: here the product of what was loaded, doubled.
// CHECK-LABEL: func.func @more(
// CHECK-NOT:     wgmma
// CHECK:         return
func.func @more(%a: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "a"}, %b: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "b"},
                %c: memref<?x?xf32, strided<[?, 1]>> {tile.name = "c"}, %k: index {tile.name = "k"}) attributes {tile.kernel, tile.grid = ["all"]} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant dense<0.0> : vector<64x128xf32>
  %sum = scf.for %at = %c0 to %k step %c32 iter_args(%now = %zero) -> (vector<64x128xf32>) {
    %x = tile.load %a[%c0, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<64x32xbf16>
    %y = tile.load %b[%at, %c0] {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<32x128xbf16>
    %twice = arith.addf %x, %x : vector<64x32xbf16>
    %next = tile.dot %twice, %y, %now : vector<64x32xbf16>, vector<32x128xbf16>, vector<64x128xf32>
    scf.yield %next : vector<64x128xf32>
  }
  tile.store %sum, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x128xf32>, memref<?x?xf32, strided<[?, 1]>>
  return
}

// A program of several tiles: the first two steps are copied before all of them, the last two of each tile copy the first of the next one, which are under
// way while the sums are stored.
// GROUPS-LABEL: func.func @tiles(
// GROUPS-COUNT-2: nvvm.cp.async.commit.group
// GROUPS:         scf.for
// GROUPS-NOT:       nvvm.cp.async
// GROUPS:           scf.for
// GROUPS:             nvvm.cp.async.wait.group 1
// GROUPS:             nvvm.wgmma.commit.group.sync.aligned
// GROUPS:             nvvm.cp.async.commit.group
// GROUPS:             scf.yield
// GROUPS:           llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;"
// GROUPS-NOT:       nvvm.cp.async.wait.group
// GROUPS:           vector.store {{.*}}vector<8xbf16>
// GROUPS:           gpu.barrier
// GROUPS:         nvvm.cp.async.wait.group 0
func.func @tiles(%a: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "a"}, %b: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "b"},
                 %c: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "c"}, %k: index {tile.name = "k"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.kernel, tile.grid = ["column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %zero = arith.constant dense<0.0> : vector<128x256xf32>
  %p = tile.program : index
  %column = arith.muli %p, %c256 : index
  %rows = memref.dim %a, %c0 : memref<?x?xbf16, strided<[?, 1]>>
  scf.for %t = %c0 to %tiles step %c1 {
    %row = arith.muli %t, %c128 : index
    %sum = scf.for %at = %c0 to %k step %c64 iter_args(%now = %zero) -> (vector<128x256xf32>) {
      %x = tile.load %a[%row, %at] limit %rows {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<128x64xbf16>
      %y = tile.load %b[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<64x256xbf16>
      %next = tile.dot %x, %y, %now : vector<128x64xbf16>, vector<64x256xbf16>, vector<128x256xf32>
      scf.yield %next : vector<128x256xf32>
    }
    %rounded = arith.truncf %sum : vector<128x256xf32> to vector<128x256xbf16>
    tile.store %rounded, %c[%row, %column] limit %rows {dims = array<i64: 0, 1>} : vector<128x256xbf16>, memref<?x?xbf16, strided<[?, 1]>>
  }
  return
}

// Where C may be what A or B of the next tile is read from, each tile waits for its own copies.
// GROUPS-LABEL: func.func @may_share(
// GROUPS-NOT:   nvvm.cp.async
// GROUPS:       scf.for
// GROUPS:         nvvm.cp.async.commit.group
// GROUPS:         scf.for
func.func @may_share(%a: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "a"}, %b: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "b"},
                 %c: memref<?x?xbf16, strided<[?, 1]>> {tile.name = "c"}, %k: index {tile.name = "k"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.kernel, tile.grid = ["column"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %zero = arith.constant dense<0.0> : vector<128x256xf32>
  %p = tile.program : index
  %column = arith.muli %p, %c256 : index
  %rows = memref.dim %a, %c0 : memref<?x?xbf16, strided<[?, 1]>>
  scf.for %t = %c0 to %tiles step %c1 {
    %row = arith.muli %t, %c128 : index
    %sum = scf.for %at = %c0 to %k step %c64 iter_args(%now = %zero) -> (vector<128x256xf32>) {
      %x = tile.load %a[%row, %at] limit %rows {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<128x64xbf16>
      %y = tile.load %b[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xbf16, strided<[?, 1]>>, vector<64x256xbf16>
      %next = tile.dot %x, %y, %now : vector<128x64xbf16>, vector<64x256xbf16>, vector<128x256xf32>
      scf.yield %next : vector<128x256xf32>
    }
    %rounded = arith.truncf %sum : vector<128x256xf32> to vector<128x256xbf16>
    tile.store %rounded, %c[%row, %column] limit %rows {dims = array<i64: 0, 1>} : vector<128x256xbf16>, memref<?x?xbf16, strided<[?, 1]>>
  }
  return
}
