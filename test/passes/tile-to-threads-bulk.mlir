// The operands of products by a warp of their own: a kernel with `tile.boxes` that is one loop over tiles of one sum.
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads --canonicalize --cse | FileCheck %s --check-prefix=WARPS
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=wgmma=true --braid-emulate-threads | FileCheck %s --check-prefix=EMULATED

// Four stages of (128 + 128) x 128 bytes, two pieces of 2048 for each of eight warps (tile-to-threads-result-boxes.mlir) and eight barriers; 256 threads multiply, 32 more
// copy. Behind 18 slots: a map of a, one of b, whose sizes and strides are slots, with boxes of 128 rows of 64 columns.
// CHECK-LABEL: func.func @tiles(
// CHECK-SAME:  threads.block = 288 : i64
// CHECK-SAME:  threads.maps = [256, [0, array<i64: -2, -3>, array<i64: -4, 1>, array<i64: 128, 64>], [4, array<i64: -6, -7>, array<i64: -8, 1>, array<i64: 128, 64>],
// CHECK-SAME:  threads.shared_bytes = 164864 : i64
// CHECK:       %[[LANE:.*]] = arith.remui %[[THREAD:.*]], %c32
// CHECK:       %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// Thread 0 begins the barriers: one copies to a stage, eight warps leave it.
// CHECK:       %[[FIRST:.*]] = arith.cmpi ult, %[[THREAD]], %c1 : index
// CHECK-NEXT:  scf.if %[[FIRST]] {
// CHECK-COUNT-4: mbarrier.init.shared::cta.b64 [$0], $1;", "l,r,~{memory}" %{{.*}}, %c1_i32
// CHECK-COUNT-4: mbarrier.init.shared::cta.b64 [$0], $1;", "l,r,~{memory}" %{{.*}}, %c8_i32
// CHECK-NEXT:    {{.*}}"fence.mbarrier_init.release.cluster;"{{.*}}
// CHECK-NEXT:  }
// CHECK-NEXT:  gpu.barrier
// From here on, roles wait for barriers in shared memory only.
// CHECK-NOT:   gpu.barrier
// CHECK-NOT:   nvvm.barrier
// CHECK-NOT:   nvvm.cp.async
// The number of its warp is known to be the same in all of its lanes, and so is how often the loops of those who multiply turn.
// CHECK:       %[[NARROW:.*]] = arith.index_cast %[[WARP]] : index to i32
// CHECK-NEXT:  %[[SAME:.*]], %{{.*}} = gpu.shuffle idx %[[NARROW]], %c0_i32, %c32_i32
// CHECK-NEXT:  %[[ALIKE:.*]] = arith.index_cast %[[SAME]] : i32 to index
// CHECK-NEXT:  %[[COPIES:.*]] = arith.cmpi uge, %[[ALIKE]], %c8 : index
// CHECK-NEXT:  scf.if %[[COPIES]] {
// CHECK-NEXT:    %[[ONE:.*]] = arith.cmpi ult, %[[LANE]], %c1 : index
// CHECK-NEXT:    scf.if %[[ONE]] {
// The ring goes on from tile to tile: the stage, and the parity of how often it was filled.
// CHECK:           scf.for %{{.*}} iter_args(%{{.*}} = %c0, %{{.*}} = %c0) -> (index, index) {
// CHECK-NEXT:        scf.for %{{.*}} iter_args(%[[STAGE:.*]] = %{{.*}}, %[[PARITY:.*]] = %{{.*}}) -> (index, index) {
// CHECK:               %[[TURNED:.*]] = arith.subi %c1, %[[PARITY]]
// CHECK:               %[[OTHER:.*]] = arith.index_cast %[[TURNED]] : index to i32
// CHECK-NEXT:          llvm.inline_asm has_side_effects {threads.bulk = "await"} "{{.*}}mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;{{.*}}" %{{.*}}, %[[OTHER]]
// CHECK-NEXT:          llvm.inline_asm has_side_effects {threads.bulk = "expect"} "{{.*}}mbarrier.arrive.expect_tx.shared::cta.b64 t, [$0], $1; }", {{.*}} %[[FULL:.*]], %c32768_i32
// CHECK:               llvm.getelementptr %arg0[256]
// CHECK:               llvm.inline_asm has_side_effects {threads.bulk = "copy"} "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$3, $4}], [$2];", {{.*}} %{{.*}}, %{{.*}}, %[[FULL]], %[[AT:.*]], %{{.*}} :
// CHECK:               llvm.getelementptr %arg0[384]
// CHECK:               llvm.inline_asm has_side_effects {threads.bulk = "copy"} "cp.async.bulk.tensor.2d.{{.*}} %{{.*}}, %{{.*}}, %[[FULL]], %[[AT]], %{{.*}} :
// CHECK-NOT:           threads.bulk = "copy"
// CHECK:       } else {
// The others wait for the stage, multiply, and leave the stage before when its products are done.
// CHECK:         gpu.shuffle idx %{{.*}}, %c0_i32, %c32_i32
// CHECK:         %[[LAST:.*]], %{{.*}} = gpu.shuffle idx %{{.*}}, %c0_i32, %c32_i32
// CHECK:         %[[END:.*]] = arith.index_cast %[[LAST]] : i32 to index
// CHECK-NEXT:    scf.for %{{.*}} = %c0 to %[[END]]
// CHECK:           arith.remui %{{.*}}, %c4
// CHECK:           arith.remui %{{.*}}, %c2
// The first step's first products write the sums, which nobody clears. Operands are described in 32 bits, in units of 16 bytes (blocks of 64 columns here 16 KB apart); the others
// are the same of all: rows of eight are 1 KB apart, their swizzle is of 128 bytes.
// CHECK:           %[[UNITS:.*]] = arith.shrui %{{.*}}, %c4_i32
// CHECK:           threads.bulk = "await"
// CHECK:           %[[PLACE:.*]] = arith.addi %{{.*}}, %c67108864_i32
// CHECK-NEXT:      %[[LOW:.*]] = arith.extui %[[PLACE]] : i32 to i64
// CHECK-NEXT:      %[[LEFT:.*]] = arith.ori %[[LOW]], %c4611686293305294848_i64
// CHECK:           nvvm.wgmma.mma_async %[[LEFT]], {{.*}} D[<f32>, <zero>]
// CHECK-COUNT-3:   nvvm.wgmma.mma_async {{.*}} D[<f32>, <one>]
// CHECK:           nvvm.wgmma.wait.group.sync.aligned 1
// CHECK-NOT:       threads.bulk = "arrive"
// CHECK:           scf.for %{{.*}} = %c1 to
// CHECK:             threads.bulk = "await"
// CHECK-NEXT:        nvvm.bar.warp.sync %c-1_i32
// CHECK:             nvvm.wgmma.fence.aligned
// CHECK-COUNT-4:     nvvm.wgmma.mma_async {{.*}} D[<f32>, <one>]
// CHECK:             nvvm.wgmma.commit.group.sync.aligned
// CHECK:             nvvm.wgmma.wait.group.sync.aligned 1
// CHECK:             %[[LEADS:.*]] = arith.cmpi ult, %[[LANE]], %c1
// CHECK-NEXT:        scf.if %[[LEADS]] {
// CHECK:               threads.bulk = "arrive"
// CHECK:             scf.yield
// The last one of a tile, when all products are.
// CHECK:           wgmma.wait_group.sync.aligned 0;
// CHECK:           threads.bulk = "arrive"
// CHECK-NOT:     vector.store {{.*}}vector<8xbf16>
// CHECK:         threads.bulk = "store_bf16"
// CHECK:         return

// Warps that multiply by mma.sync copy themselves.
// WARPS-LABEL: func.func @tiles(
// WARPS-SAME:  threads.block = 256 : i64
// WARPS-NOT:   threads.maps
// WARPS-NOT:   threads.bulk
// WARPS:       nvvm.cp.async.shared.global
// WARPS:       nvvm.mma.sync

// EMULATED-LABEL: func.func private @tiles__thread(
// EMULATED-COUNT-8: call @braid_emulate_bulk_begin(
// EMULATED:        call @braid_emulate_bulk_begun()
// EMULATED:        call @braid_emulate_barrier()
// EMULATED:        call @braid_emulate_bulk_await(
// EMULATED:        call @braid_emulate_bulk_expect(
// EMULATED-COUNT-2: call @braid_emulate_bulk_copy(
// EMULATED:        call @braid_emulate_bulk_await(
// EMULATED:        call @braid_emulate_wgmma(
// EMULATED:        call @braid_emulate_bulk_arrive(
#rows = strided<[?, 1]>
func.func @tiles(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %c: memref<?x?xbf16, #rows> {tile.name = "c"},
    %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
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

// -----

// Nobody says that rows begin on 16 bytes and that boxes are not too large.
// CHECK-LABEL: func.func @unaligned(
// CHECK-SAME:  threads.block = 256 : i64
// CHECK-NOT:   threads.maps
// CHECK-NOT:   threads.bulk
// CHECK:       nvvm.cp.async.shared.global
// CHECK:       nvvm.wgmma.mma_async
// CHECK-NOT:   threads.bulk
// CHECK:       return
#rows = strided<[?, 1]>
func.func @unaligned(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %c: memref<?x?xbf16, #rows> {tile.name = "c"},
    %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
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

// -----

// Rows of 16 columns are no boxes of 64.
// CHECK-LABEL: func.func @narrow(
// CHECK-SAME:  threads.block = 256 : i64
// CHECK-NOT:   threads.maps
// CHECK-NOT:   threads.bulk
// CHECK:       nvvm.cp.async.shared.global
// CHECK:       nvvm.wgmma.mma_async
// CHECK-NOT:   threads.bulk
// CHECK:       return
#rows = strided<[?, 1]>
func.func @narrow(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %c: memref<?x?xbf16, #rows> {tile.name = "c"},
    %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 16 : index
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
      %x = tile.load %a[%row, %at] limit %m {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x16xbf16>
      %y = tile.load %b[%column, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x16xbf16>
      %next = tile.dot %x, %y, %now {transpose_b} : vector<128x16xbf16>, vector<128x16xbf16>, vector<128x128xf32>
      scf.yield %next : vector<128x128xf32>
    }
    %rounded = arith.truncf %sum : vector<128x128xf32> to vector<128x128xbf16>
    tile.store %rounded, %c[%row, %column] limit %m {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
  }
  return
}

// -----

// One tile has nothing that is copied meanwhile.
// CHECK-LABEL: func.func @alone(
// CHECK-SAME:  threads.block = 256 : i64
// CHECK-NOT:   threads.maps
// CHECK-NOT:   threads.bulk
// CHECK:       nvvm.cp.async.shared.global
// CHECK:       nvvm.wgmma.mma_async
// CHECK-NOT:   threads.bulk
// CHECK:       return
#rows = strided<[?, 1]>
func.func @alone(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %c: memref<?x?xbf16, #rows> {tile.name = "c"},
    %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant dense<0.0> : vector<128x128xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %c128 : index
  %m = memref.dim %c, %c0 : memref<?x?xbf16, #rows>
  %row = arith.muli %p#0, %c128 : index
  %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x128xf32>) {
    %x = tile.load %a[%row, %at] limit %m {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
    %y = tile.load %b[%column, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
    %next = tile.dot %x, %y, %now {transpose_b} : vector<128x64xbf16>, vector<128x64xbf16>, vector<128x128xf32>
    scf.yield %next : vector<128x128xf32>
  }
  %rounded = arith.truncf %sum : vector<128x128xf32> to vector<128x128xbf16>
  tile.store %rounded, %c[%row, %column] limit %m {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
  return
}

// -----

// Rows along k that end where the buffer does: boxes are zero behind it. A panel of 128 columns is two boxes, of 64 rows.
// CHECK-LABEL: func.func @to_the_end(
// CHECK-SAME:  threads.block = 288 : i64
// CHECK-SAME:  array<i64: 128, 64>], [4, array<i64: -6, -7>, array<i64: -8, 1>, array<i64: 64, 64>],
// CHECK:       gpu.barrier
// CHECK-NOT:   nvvm.fence.proxy
// CHECK-NOT:   nvvm.barrier
// CHECK-COUNT-3: threads.bulk = "copy"
// CHECK-NOT:   threads.bulk = "copy"
// CHECK:       } else {
// CHECK-NOT:   nvvm.fence.proxy
// CHECK-NOT:   nvvm.barrier
// CHECK:       nvvm.wgmma.mma_async
// CHECK:       return
#rows = strided<[?, 1]>
func.func @to_the_end(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %c: memref<?x?xbf16, #rows> {tile.name = "c"},
    %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
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
      %size_b = memref.dim %b, %c0 : memref<?x?xbf16, #rows>
      %y = tile.load %b[%at, %column] limit %size_b {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<64x128xbf16>
      %next = tile.dot %x, %y, %now : vector<128x64xbf16>, vector<64x128xbf16>, vector<128x128xf32>
      scf.yield %next : vector<128x128xf32>
    }
    %rounded = arith.truncf %sum : vector<128x128xf32> to vector<128x128xbf16>
    tile.store %rounded, %c[%row, %column] limit %m {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
  }
  return
}

// -----

// Those of a group end before the next one's begin, whose rows boxes bring: of such a step they end a phase of a barrier of its own, and the warp that
// copies clears both panels before it says that the stage is full. The warps that multiply know nothing of it.
// CHECK-LABEL: func.func @of_a_group(
// CHECK-SAME:  threads.block = 288 : i64
// CHECK-SAME:  array<i64: 64, 64>], [4, array<i64: -6, -7>, array<i64: -8, 1>, array<i64: 64, 64>],
// CHECK-COUNT-5: mbarrier.init.shared::cta.b64 [$0], $1;", "l,r,~{memory}" %{{.*}}, %c1_i32
// CHECK-COUNT-4: mbarrier.init.shared::cta.b64 [$0], $1;", "l,r,~{memory}" %{{.*}}, %c8_i32
// CHECK:       scf.for %{{.*}} iter_args(%{{.*}} = %c0, %{{.*}} = %c0, %{{.*}} = %c0) -> (index, index, index) {
// CHECK-NEXT:    scf.for %{{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[CUTS:.*]] = %{{.*}}) -> (index, index, index) {
// CHECK:           arith.cmpi slt, %{{.*}}, %c64 : index
// CHECK:           %[[BARRIER:.*]] = arith.select %[[CUT:.*]], %[[OWN:.*]], %[[FULL:.*]] : i64
// CHECK:           %[[ONE:.*]] = arith.cmpi ult, %[[LANE:.*]], %c1 : index
// CHECK-NEXT:      scf.if %[[ONE]] {
// CHECK:             threads.bulk = "await"
// CHECK:             threads.bulk = "expect"{{.*}} %[[BARRIER]], %c32768_i32
// CHECK-COUNT-4:     threads.bulk = "copy"
// CHECK:           scf.if %[[CUT]] {
// CHECK:             threads.bulk = "await"{{.*}} %[[OWN]],
// CHECK-COUNT-4:     vector.store %{{.*}} : memref<65536xbf16, #gpu.address_space<workgroup>>, vector<8xbf16>
// CHECK:             nvvm.fence.proxy
// CHECK-NEXT:        nvvm.bar.warp.sync %c-1_i32
// CHECK-NEXT:        scf.if %[[ONE]] {
// CHECK-NEXT:          threads.bulk = "arrive"{{.*}} %[[FULL]]
// CHECK:           arith.select %[[CUT]]
// CHECK:       } else {
// CHECK-NOT:     nvvm.fence.proxy
// CHECK-NOT:     nvvm.barrier
// CHECK:         nvvm.wgmma.mma_async
// EMULATED-LABEL: func.func private @of_a_group__thread(
// EMULATED:        call @braid_emulate_fence_async()
// EMULATED:        call @braid_emulate_meet()
// EMULATED:        call @braid_emulate_bulk_arrive(
#rows = strided<[?, 1]>
func.func @of_a_group(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %c: memref<?x?xbf16, #rows> {tile.name = "c"},
    %offsets: memref<?xi32> {tile.name = "offsets"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant dense<0.0> : vector<128x128xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %c128 : index
  %lo = memref.load %offsets[%c0] : memref<?xi32>
  %hi = memref.load %offsets[%c1] : memref<?xi32>
  %begin = arith.index_cast %lo : i32 to index
  %end = arith.index_cast %hi : i32 to index
  %m = memref.dim %c, %c0 : memref<?x?xbf16, #rows>
  scf.for %tile = %c0 to %tiles step %c1 {
    %further = arith.muli %tile, %parts : index
    %number = arith.addi %p#0, %further : index
    %row = arith.muli %number, %c128 : index
    %sum = scf.for %at = %begin to %end step %step iter_args(%now = %zero) -> (vector<128x128xf32>) {
      %x = tile.load %a[%at, %row] limit %end {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<64x128xbf16>
      %y = tile.load %b[%at, %column] limit %end {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<64x128xbf16>
      %next = tile.dot %x, %y, %now {transpose_a} : vector<64x128xbf16>, vector<64x128xbf16>, vector<128x128xf32>
      scf.yield %next : vector<128x128xf32>
    }
    %rounded = arith.truncf %sum : vector<128x128xf32> to vector<128x128xbf16>
    tile.store %rounded, %c[%row, %column] limit %m {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
  }
  return
}
