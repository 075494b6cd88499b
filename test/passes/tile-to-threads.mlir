// RUN: braid-opt %s --split-input-file --braid-tile-to-threads --canonicalize --cse | FileCheck %s --implicit-check-not=memref.prefetch
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=shared-bytes=1024 --canonicalize --cse | FileCheck %s --check-prefix=SMALL
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=shared-bytes=16384 --canonicalize --cse | FileCheck %s --check-prefix=AGAIN

// Elements are dealt out to the threads; nothing is kept, so there is no shared memory and no barrier.
// CHECK-LABEL: func.func @chain(%{{.*}}: !llvm.ptr)
// CHECK-SAME:  threads.block = 128 : i64, threads.scratch_bytes = 0 : i64, threads.shared_bytes = 0 : i64
// CHECK-NOT:   gpu.dynamic_shared_memory
// CHECK:       %[[THREAD:.*]] = gpu.thread_id x
// CHECK-NOT:   gpu.barrier
// CHECK:       scf.for %{{.*}} = %[[THREAD]] to %c1024 step %c128
// CHECK:         scf.if
// CHECK:           memref.load
// CHECK:           memref.load
// CHECK:           arith.mulf
// CHECK-NEXT:      math.exp
// CHECK-NEXT:      memref.store
// CHECK-NOT:   gpu.barrier
func.func @chain(%x: memref<?x64xf32> {tile.name = "x"}, %y: memref<?x64xf32> {tile.name = "y"}, %w: memref<64xf32> {tile.name = "w"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %i = tile.program : index
  %r = arith.muli %i, %c16 : index
  %a = tile.load %x[%r, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<16x64xf32>
  %b = tile.load %w[%c0] {dims = array<i64: 0>} : memref<64xf32>, vector<64xf32>
  %be = tile.expand %b {axis = 0 : i64} : vector<64xf32>, vector<16x64xf32>
  %s = arith.mulf %a, %be : vector<16x64xf32>
  %e = math.exp %s : vector<16x64xf32>
  tile.store %e, %y[%r, %c0] limit %n {dims = array<i64: 0, 1>} : vector<16x64xf32>, memref<?x64xf32>
  return
}

// -----

// Rows that are no whole vectors of threads (tile-to-threads-row-walks.mlir): a row is a warp, five shuffles, and one lane writes. What all threads read next stands behind one barrier; rows of 60
// f32 are 68 apart.
// CHECK-LABEL: func.func @softmax
// CHECK:       memref.view {{.*}} to memref<272xf32, #gpu.address_space<workgroup>>
// CHECK:       gpu.shuffle xor
// CHECK-COUNT-4: gpu.shuffle xor
// CHECK-NOT:   gpu.shuffle
// CHECK:       gpu.barrier
// CHECK:       math.exp
// CHECK:       gpu.barrier
// CHECK:       gpu.shuffle xor
// CHECK:       gpu.barrier
// CHECK:       arith.divf
// CHECK-NOT:   gpu.barrier
func.func @softmax(%x: memref<?x60xf32> {tile.name = "x"}, %y: memref<?x60xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %i = tile.program : index
  %v = tile.load %x[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x60xf32>, vector<4x60xf32>
  %m = tile.reduce max %v {axis = 1 : i64} : vector<4x60xf32>, vector<4xf32>
  %me = tile.expand %m {axis = 1 : i64} : vector<4xf32>, vector<4x60xf32>
  %d = arith.subf %v, %me : vector<4x60xf32>
  %e = math.exp %d : vector<4x60xf32>
  %s = tile.reduce add %e {axis = 1 : i64} : vector<4x60xf32>, vector<4xf32>
  %se = tile.expand %s {axis = 1 : i64} : vector<4xf32>, vector<4x60xf32>
  %o = arith.divf %e, %se : vector<4x60xf32>
  tile.store %o, %y[%i, %c0] {dims = array<i64: 0, 1>} : vector<4x60xf32>, memref<?x60xf32>
  return
}

// -----

// bf16 operands are copied into shared memory as they are, waited for once, and multiplied by the tensor cores.
// CHECK-LABEL: func.func @product
// CHECK:       scf.if
// CHECK:         nvvm.cp.async.shared.global
// CHECK:         nvvm.cp.async.commit.group
// CHECK:       scf.if
// CHECK:         nvvm.cp.async.shared.global
// CHECK:       nvvm.cp.async.wait.group 0
// CHECK-NEXT:  gpu.barrier
// CHECK:       scf.for
// CHECK:         nvvm.ldmatrix {{.*}}layout = #nvvm.mma_layout<row>, num = 4
// CHECK:         nvvm.ldmatrix {{.*}}layout = #nvvm.mma_layout<col>
// CHECK:         nvvm.mma.sync {{.*}}multiplicandAPtxType = #nvvm.mma_type<bf16>
// CHECK-NOT:   gpu.barrier
// CHECK:       memref.store
func.func @product(%a: memref<?x64xbf16> {tile.name = "a"}, %b: memref<64x128xbf16> {tile.name = "b"}, %c: memref<?x128xf32> {tile.name = "c"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<64x128xf32>
  %i = tile.program : index
  %x = tile.load %a[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
  %y = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x128xbf16>, vector<64x128xbf16>
  %z = tile.dot %x, %y, %zero : vector<64x64xbf16>, vector<64x128xbf16>, vector<64x128xf32>
  tile.store %z, %c[%i, %c0] {dims = array<i64: 0, 1>} : vector<64x128xf32>, memref<?x128xf32>
  return
}

// -----

// Two blocks of 16 x 8 for four warps: the other two leave the product out. What they would read of the sum is written at the same time.
// CHECK-LABEL: func.func @few_blocks
// CHECK:         gpu.barrier
// CHECK:         %[[BUSY:.*]] = arith.cmpi ult, %{{.*}}, %c2 : index
// CHECK-NEXT:    scf.if %[[BUSY]] {
// CHECK-NOT:       {{^ *[}]$}}
// CHECK:           vector.load %[[SUM:view.*]][%[[AT:.*]]] {{.*}}#gpu.address_space<workgroup>>, vector<2xf32>
// CHECK-NOT:       {{^ *[}]$}}
// CHECK:           nvvm.ldmatrix
// CHECK-NOT:       {{^ *[}]$}}
// CHECK:           nvvm.mma.sync
// CHECK:           vector.store %{{.*}}, %[[SUM]][%[[AT]]]
// CHECK:         gpu.barrier
func.func @few_blocks(%a: memref<?x16xbf16> {tile.name = "a"}, %c: memref<16x16xf32> {tile.name = "c"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %one = tile.program : index
  %begin = tile.load %c[%c0, %c0] {dims = array<i64: 0, 1>} : memref<16x16xf32>, vector<16x16xf32>
  %sum = scf.for %i = %c0 to %n step %c16 iter_args(%s = %begin) -> vector<16x16xf32> {
    %x = tile.load %a[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x16xbf16>, vector<16x16xbf16>
    %y = arith.mulf %x, %x : vector<16x16xbf16>
    %next = tile.dot %y, %y, %s {transpose_a} : vector<16x16xbf16>, vector<16x16xbf16>, vector<16x16xf32>
    scf.yield %next : vector<16x16xf32>
  }
  tile.store %sum, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<16x16xf32>, memref<16x16xf32>
  return
}

// -----

// f32 stays f32: no tensor cores, which would round.
// CHECK-LABEL: func.func @full_product
// CHECK-NOT:   nvvm.mma.sync
// CHECK:       math.fma {{.*}} : f32
// CHECK-NOT:   nvvm.mma.sync
// Operands that do not fit lie in scratch, a piece for each block that runs: a block goes on with further programs.
// SMALL-LABEL: func.func @full_product
// SMALL-SAME:  threads.scratch_bytes = {{[1-9][0-9]*}} : i64
// SMALL:       call @braid_threads_scratch()
// SMALL:       %[[BLOCKS:.*]] = gpu.grid_dim x
// SMALL:       scf.for {{.*}} step %[[BLOCKS]]
// SMALL:         memref.store {{.*}} : memref<1088xf32>
// SMALL:         math.fma {{.*}} : f32
// SMALL:         gpu.barrier
func.func @full_product(%a: memref<?x64xf32> {tile.name = "a"}, %c: memref<?x64xf32> {tile.name = "c"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<16x16xf32>
  %i = tile.program : index
  %x = tile.load %a[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<16x64xf32>
  %z = tile.dot %x, %x, %zero {transpose_b} : vector<16x64xf32>, vector<16x64xf32>, vector<16x16xf32>
  tile.store %z, %c[%i, %c0] {dims = array<i64: 0, 1>} : vector<16x16xf32>, memref<?x64xf32>
  return
}

// -----

// The table of a constant lies in no shared memory, which is all that ldmatrix reads. A kernel that is lowered again has its tables once.
// CHECK-LABEL: memref.global "private" constant @table_product__table0
// CHECK-LABEL: func.func @table_product
// CHECK-NOT:   nvvm.ldmatrix
// CHECK:       math.fma
// SMALL-LABEL: memref.global "private" constant @table_product__table0
// SMALL-NOT:   memref.global
// SMALL:       func.func @table_product
// SMALL-SAME:  threads.scratch_bytes = {{[1-9][0-9]*}} : i64
func.func @table_product(%b: memref<16x64xbf16> {tile.name = "b"}, %c: memref<16x64xf32> {tile.name = "c"}) attributes {tile.kernel, tile.grid = ["all"]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<16x64xf32>
  %i = tile.program : index
  %a = arith.constant dense<"0x803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1803F004040408040A040C040E040004180BF00C040C080C0A0C0C0C0E0C000C1"> : vector<16x16xbf16>
  %x = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<16x64xbf16>, vector<16x64xbf16>
  %z = tile.dot %a, %x, %zero : vector<16x16xbf16>, vector<16x64xbf16>, vector<16x64xf32>
  tile.store %z, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<16x64xf32>, memref<16x64xf32>
  return
}

// -----

// What is read twice is kept; where that does not fit it is loaded again in the place of lying in scratch.
// CHECK-LABEL: func.func @loads
// CHECK-SAME:  threads.scratch_bytes = 0 : i64, threads.shared_bytes = {{[0-9]+}} : i64
// AGAIN-LABEL: func.func @loads
// AGAIN-SAME:  threads.scratch_bytes = 0 : i64, threads.shared_bytes = {{[0-9]+}} : i64
func.func @loads(%x: memref<?x64xf32> {tile.name = "x"}, %b: memref<64x16xf32> {tile.name = "b"}, %y: memref<?x64xf32> {tile.name = "y"}, %c: memref<?x16xf32> {tile.name = "c"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant dense<0.0> : vector<16x16xf32>
  %i = tile.program : index
  %x1 = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<16x64xf32>
  %x2 = tile.load %x[%c16, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<16x64xf32>
  %x3 = tile.load %x[%c32, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<16x64xf32>
  %w = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x16xf32>, vector<64x16xf32>
  %z1 = tile.dot %x1, %w, %zero : vector<16x64xf32>, vector<64x16xf32>, vector<16x16xf32>
  %z2 = tile.dot %x2, %w, %zero : vector<16x64xf32>, vector<64x16xf32>, vector<16x16xf32>
  %z3 = tile.dot %x3, %w, %zero : vector<16x64xf32>, vector<64x16xf32>, vector<16x16xf32>
  %z12 = arith.mulf %z1, %z2 : vector<16x16xf32>
  %z123 = arith.mulf %z12, %z3 : vector<16x16xf32>
  %x12 = arith.mulf %x1, %x2 : vector<16x64xf32>
  %x123 = arith.mulf %x12, %x3 : vector<16x64xf32>
  tile.store %x123, %y[%i, %c0] {dims = array<i64: 0, 1>} : vector<16x64xf32>, memref<?x64xf32>
  tile.store %z123, %c[%i, %c0] {dims = array<i64: 0, 1>} : vector<16x16xf32>, memref<?x16xf32>
  return
}

// -----

// What is read lies elsewhere than what is written, so the row is kept; what one iteration writes is read by the next,
// whichever thread that is: a barrier between the two, and one at the end.
// CHECK-LABEL: func.func @carried
// CHECK:       scf.for %{{.*}} = %c0 to %c8 step %c1 {
// CHECK:         memref.store {{.*}} : memref<64xf32, #gpu.address_space<workgroup>>
// CHECK-NEXT:    }
// CHECK:         gpu.barrier
// CHECK:         memref.store {{.*}} : memref<?xf32>
// CHECK-NEXT:    }
// CHECK:         gpu.barrier
// CHECK-NEXT:  }
func.func @carried(%x: memref<?x64xf32> {tile.name = "x"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %i = tile.program : index
  scf.for %j = %c0 to %c8 step %c1 {
    %next = arith.addi %j, %c1 : index
    %v = tile.load %x[%j, %c0] {dims = array<i64: 1>} : memref<?x64xf32>, vector<64xf32>
    tile.store %v, %x[%next, %c0] {dims = array<i64: 1>} : vector<64xf32>, memref<?x64xf32>
  }
  return
}

// -----

// Without tiles there is nothing to deal out: one thread, and no barrier.
// CHECK-LABEL: func.func @scalars
// CHECK-SAME:  threads.block = 1 : i64
// CHECK-NOT:   gpu.barrier
func.func @scalars(%x: memref<?xi32> {tile.name = "x"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?xi32>
  scf.for %j = %c1 to %n step %c1 {
    %before = arith.subi %j, %c1 : index
    %a = memref.load %x[%before] : memref<?xi32>
    memref.store %a, %x[%j] : memref<?xi32>
  }
  return
}
