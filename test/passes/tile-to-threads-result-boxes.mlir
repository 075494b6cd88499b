// Results of products, by shared memory and in boxes to the buffer that they are for: of kernels with `tile.boxes`.
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=wgmma=true --braid-emulate-threads | FileCheck %s --check-prefix=EMULATED

// A warp's 16 rows of 224 columns are three boxes of 64 and one of 32. Of shared memory it has three pieces of 2048 bytes: a ring of four stages of 44 KB leaves no more.
// Rows end with their group, which no box knows: a warp of which some rows are behind the end stores those that are not from its pieces, 16 bytes a lane.
// CHECK-LABEL: func.func @of_a_group(
// CHECK-SAME:  array<i64: -13, 1>, array<i64: 16, 64>], [9, array<i64: -11, -12>, array<i64: -13, 1>, array<i64: 16, 32>]]
// CHECK-SAME:  threads.shared_bytes = 230400 : i64
// CHECK:       wgmma.wait_group.sync.aligned 0;
// CHECK:       arith.addi %{{.*}}, %c16
// CHECK-NEXT:  %[[WHOLE:.*]] = arith.cmpi sle, %{{.*}}, %[[END:.*]] : index
// CHECK-NEXT:  %[[SOME:.*]] = arith.cmpi slt, %{{.*}}, %[[END]] : index
// CHECK-NEXT:  scf.if %[[SOME]] {
// Whoever starts copies waits for those of the tile before.
// CHECK:         scf.if %[[ONE:.*]] {
// CHECK-NEXT:      threads.bulk = "read"} "cp.async.bulk.wait_group.read 0;"{{.*}}
// CHECK-NEXT:    }
// CHECK-NEXT:    nvvm.bar.warp.sync
// CHECK-COUNT-4: nvvm.stmatrix {{.*}} : !llvm.ptr<3>, i32, i32, i32, i32
// CHECK-NEXT:    nvvm.fence.proxy
// CHECK-NEXT:    nvvm.bar.warp.sync
// CHECK-NEXT:    scf.if %[[WHOLE]] {
// CHECK-NEXT:      scf.if %[[ONE]] {
// CHECK:             threads.bulk = "store_bf16"} "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$1, {$2, $3}], [$0];", "l,l,r,r,~{memory}"
// CHECK-NEXT:        threads.bulk = "commit"} "cp.async.bulk.commit_group;"
// CHECK:           } else {
// CHECK:             "mov.b32 $0, $1;"
// CHECK:             arith.cmpi ult, %{{.*}} : index
// CHECK-NEXT:        scf.if
// CHECK:               vector.load {{.*}} : memref<24576xbf16, #gpu.address_space<workgroup>>, vector<8xbf16>
// CHECK:               vector.store {{.*}} : memref<?xbf16{{.*}}>, vector<8xbf16>
// CHECK-COUNT-3:       vector.store {{.*}} : memref<?xbf16{{.*}}>, vector<8xbf16>
// CHECK-NOT:     threads.bulk = "read"
// CHECK-COUNT-4: nvvm.stmatrix
// CHECK:         threads.bulk = "store_bf16"
// CHECK-NOT:     threads.bulk = "read"
// CHECK-COUNT-4: nvvm.stmatrix
// CHECK:         threads.bulk = "store_bf16"
// The fourth takes the piece of the first, whose copy and those before must have been read.
// CHECK:         threads.bulk = "read"} "cp.async.bulk.wait_group.read 2;"
// CHECK-COUNT-2: nvvm.stmatrix
// CHECK-NOT:     nvvm.stmatrix
// CHECK:         threads.bulk = "store_bf16"
// CHECK-NOT:     memref.store {{.*}} : memref<?xbf16
// CHECK-NOT:   nvvm.stmatrix
// Before the end shared memory has been read.
// CHECK:       threads.bulk = "read"} "cp.async.bulk.wait_group.read 0;"
// CHECK:       return
// EMULATED-LABEL: func.func private @of_a_group__thread(
// EMULATED:       call @braid_emulate_bulk_read(
// EMULATED:       call @braid_emulate_meet()
// EMULATED-COUNT-4: call @braid_emulate_stmatrix(
// EMULATED:       call @braid_emulate_fence_async()
// EMULATED:       call @braid_emulate_bulk_store_bf16(
// EMULATED:       call @braid_emulate_bulk_commit()
// EMULATED:       call @braid_emulate_bulk_read(
#rows = strided<[?, 1]>
func.func @of_a_group(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %end: index {tile.name = "end"},
    %c: memref<?x?xbf16, #rows> {tile.name = "c"}, %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c224 = arith.constant 224 : index
  %zero = arith.constant dense<0.0> : vector<128x224xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %c224 : index
  scf.for %tile = %c0 to %tiles step %c1 {
    %further = arith.muli %tile, %parts : index
    %number = arith.addi %p#0, %further : index
    %row = arith.muli %number, %c128 : index
    %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x224xf32>) {
      %x = tile.load %a[%row, %at] limit %end {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
      %y = tile.load %b[%column, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<224x64xbf16>
      %next = tile.dot %x, %y, %now {transpose_b} : vector<128x64xbf16>, vector<224x64xbf16>, vector<128x224xf32>
      scf.yield %next : vector<128x224xf32>
    }
    %rounded = arith.truncf %sum : vector<128x224xf32> to vector<128x224xbf16>
    tile.store %rounded, %c[%row, %column] limit %end {dims = array<i64: 0, 1>} : vector<128x224xbf16>, memref<?x?xbf16, #rows>
  }
  return
}

// -----

// Sums that are added to what is there begin with 0 and read nothing of it: boxes of 32 columns add them. Rows end where the buffer does, behind which nothing is written.
// Odd rows write the third and fourth eight columns first, which have other banks.
// CHECK-LABEL: func.func @added(
// CHECK-NOT:   vector.load
// CHECK:       wgmma.wait_group.sync.aligned 0;
// CHECK-NOT:   arith.cmpi sle
// CHECK:       threads.bulk = "read"} "cp.async.bulk.wait_group.read 0;"{{.*}}
// CHECK:       nvvm.bar.warp.sync
// CHECK:       %[[ODD:.*]] = arith.cmpi ne, %{{.*}}, %c0 : index
// CHECK:       %[[FIRST:.*]] = arith.select %[[ODD]], %[[FURTHER:.*]], %[[HERE:.*]] : vector<2xf32>
// CHECK:       vector.store %[[FIRST]], %{{.*}} {alignment = 8 : i64} : memref<16384xf32, #gpu.address_space<workgroup>>, vector<2xf32>
// CHECK:       %[[SECOND:.*]] = arith.select %[[ODD]], %[[HERE]], %[[FURTHER]] : vector<2xf32>
// CHECK-NOT:   vector.store {{.*}}memref<?xf32>
// CHECK:       nvvm.fence.proxy
// CHECK:       threads.bulk = "add_f32"} "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [$1, {$2, $3}], [$0];"
// CHECK-COUNT-3: threads.bulk = "add_f32"
// CHECK-NOT:   threads.bulk = "add_f32"
// CHECK:       return
// EMULATED-LABEL: func.func private @added__thread(
// EMULATED:       call @braid_emulate_bulk_add_f32(
func.func @added(%a: memref<?x?xbf16> {tile.name = "a"}, %b: memref<?x?xbf16> {tile.name = "b"}, %c: memref<?x?xf32> {tile.name = "c"},
    %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %c128 : index
  %m = memref.dim %c, %c0 : memref<?x?xf32>
  scf.for %tile = %c0 to %tiles step %c1 {
    %further = arith.muli %tile, %parts : index
    %number = arith.addi %p#0, %further : index
    %row = arith.muli %number, %c128 : index
    %before = tile.load %c[%row, %column] limit %m {dims = array<i64: 0, 1>} : memref<?x?xf32>, vector<128x128xf32>
    %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %before) -> (vector<128x128xf32>) {
      %x = tile.load %a[%row, %at] limit %m {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<128x64xbf16>
      %y = tile.load %b[%column, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16>, vector<128x64xbf16>
      %next = tile.dot %x, %y, %now {transpose_b} : vector<128x64xbf16>, vector<128x64xbf16>, vector<128x128xf32>
      scf.yield %next : vector<128x128xf32>
    }
    tile.store %sum, %c[%row, %column] limit %m {dims = array<i64: 0, 1>} : vector<128x128xf32>, memref<?x?xf32>
  }
  return
}

// -----

// Rows of results that do not begin on 16 bytes threads write.
// CHECK-LABEL: func.func @by_rows(
// CHECK-SAME:  threads.block = 288 : i64
// CHECK-SAME:  array<i64: -8, 1>, array<i64: 128, 64>]]
// CHECK:       threads.bulk = "copy"
// CHECK-NOT:   threads.bulk = "store
// CHECK:       vector.store {{.*}}vector<8xbf16>
// CHECK-NOT:   threads.bulk = "store
// CHECK:       return
#rows = strided<[?, 1]>
func.func @by_rows(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %c: memref<?x?xbf16, #rows> {tile.name = "c"},
    %k: index {tile.name = "k"}, %parts: index {tile.name = "parts"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.results_by_rows, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant dense<0.0> : vector<128x128xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %c128 : index
  scf.for %tile = %c0 to %tiles step %c1 {
    %further = arith.muli %tile, %parts : index
    %number = arith.addi %p#0, %further : index
    %row = arith.muli %number, %c128 : index
    %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x128xf32>) {
      %x = tile.load %a[%row, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
      %y = tile.load %b[%column, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
      %next = tile.dot %x, %y, %now {transpose_b} : vector<128x64xbf16>, vector<128x64xbf16>, vector<128x128xf32>
      scf.yield %next : vector<128x128xf32>
    }
    %rounded = arith.truncf %sum : vector<128x128xf32> to vector<128x128xbf16>
    tile.store %rounded, %c[%row, %column] {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
  }
  return
}
