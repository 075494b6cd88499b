// Several stores of formulas of one sum, whose columns are those of two matrices beside each other: of kernels with `tile.boxes`.
// RUN: braid-opt %s --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s
// RUN: braid-opt %s --braid-tile-to-threads=wgmma=true --braid-emulate-threads | FileCheck %s --check-prefix=EMULATED
// RUN: braid-opt %s --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s --check-prefix=BEFORE

// The panel of the right operand is four boxes, two of each matrix: one instruction multiplies all of its 256 columns.
// CHECK-LABEL: func.func @both(
// CHECK-SAME:  threads.shared_bytes = 230400 : i64
// CHECK-COUNT-5: threads.bulk = "copy"
// CHECK-NOT:   threads.bulk = "copy"
// CHECK:       nvvm.wgmma.mma_async {{.*}} <m = 64, n = 256, k = 16>
// A warp with rows rounds its 64 + 64 sums two to a register, and only then waits for a piece of shared memory and computes.
// CHECK:       arith.cmpi sle
// CHECK-NEXT:  arith.cmpi slt
// CHECK-NEXT:  scf.if
// CHECK-COUNT-64: "cvt.rn.bf16x2.f32 $0, $2, $1;"
// CHECK-NOT:   cvt.rn.bf16x2
// CHECK:       threads.bulk = "read"} "cp.async.bulk.wait_group.read 0;"
// Of 64 columns each store has a box, in turn.
// CHECK-COUNT-16: arith.maximumf {{.*}} : vector<2xf32>
// CHECK-COUNT-3: threads.bulk = "store_bf16"
// CHECK-COUNT-16: arith.maximumf {{.*}} : vector<2xf32>
// CHECK-COUNT-3: threads.bulk = "store_bf16"
// CHECK-NOT:   threads.bulk = "store_bf16"
// CHECK:       } else {
// CHECK:         vector.store {{.*}} {alignment = 16 : i64} : memref<?xbf16{{.*}}>, vector<8xbf16>
// CHECK-NOT:     memref.store {{.*}} : memref<?xbf16
// EMULATED-LABEL: func.func private @both__thread(
// EMULATED:       arith.truncf {{.*}} : vector<2xf32> to vector<2xbf16>
// EMULATED-COUNT-6: call @braid_emulate_bulk_store_bf16(
// EMULATED-NOT:   llvm.inline_asm
#rows = strided<[?, 1]>
func.func @both(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %d: memref<?x?xbf16, #rows> {tile.name = "d"},
    %end: index {tile.name = "end"}, %x: memref<?x?xbf16, #rows> {tile.name = "x"}, %y: memref<?x?xbf16, #rows> {tile.name = "y"},
    %z: memref<?x?xbf16, #rows> {tile.name = "z"}, %k: index {tile.name = "k"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant dense<0.0> : vector<128x256xf32>
  %none = arith.constant dense<0.0> : vector<128x128xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %c128 : index
  scf.for %tile = %c0 to %tiles step %c1 {
    %row = arith.muli %tile, %c128 : index
    %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x256xf32>) {
      %left = tile.load %a[%row, %at] limit %end {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
      %first = tile.load %b[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<64x128xbf16>
      %second = tile.load %d[%at, %column] {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<64x128xbf16>
      %right = tile.concat %first, %second : vector<64x128xbf16>, vector<64x128xbf16> -> vector<64x256xbf16>
      %next = tile.dot %left, %right, %now : vector<128x64xbf16>, vector<64x256xbf16>, vector<128x256xf32>
      scf.yield %next : vector<128x256xf32>
    }
    %s0 = tile.slice %sum {offset = 0 : i64} : vector<128x256xf32>, vector<128x128xf32>
    %s1 = tile.slice %sum {offset = 128 : i64} : vector<128x256xf32>, vector<128x128xf32>
    %r0 = arith.truncf %s0 : vector<128x128xf32> to vector<128x128xbf16>
    %r1 = arith.truncf %s1 : vector<128x128xf32> to vector<128x128xbf16>
    %w0 = arith.extf %r0 : vector<128x128xbf16> to vector<128x128xf32>
    %w1 = arith.extf %r1 : vector<128x128xbf16> to vector<128x128xf32>
    %relu = arith.maximumf %w0, %none : vector<128x128xf32>
    %made = arith.mulf %relu, %w1 : vector<128x128xf32>
    %hidden = arith.truncf %made : vector<128x128xf32> to vector<128x128xbf16>
    tile.store %r0, %x[%row, %column] limit %end {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
    tile.store %r1, %y[%row, %column] limit %end {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
    tile.store %hidden, %z[%row, %column] limit %end {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
  }
  return
}

// What formulas read at the places of the sum comes by the ring, too, behind the steps of the sum: 64 columns of both tiles in a stage. In the first two steps the
// cache is asked for a half each.
// CHECK-LABEL: func.func @reads(
// CHECK-SAME:  threads.block = 288 : i64
// CHECK-COUNT-2: threads.bulk = "copy"
// CHECK:         arith.cmpi eq, %{{.*}}, %c0 : index
// CHECK-NEXT:    scf.if
// CHECK-COUNT-2:   threads.bulk = "prefetch"} "cp.async.bulk.prefetch.tensor.2d.L2.global [$0, {$1, $2}];", "l,r,r,~{memory}"
// CHECK:         arith.cmpi eq, %{{.*}}, %c1 : index
// CHECK-NEXT:    scf.if
// CHECK-COUNT-2:   threads.bulk = "prefetch"}
// CHECK-NOT:     threads.bulk = "prefetch"
// CHECK:         scf.yield
// CHECK:         threads.bulk = "expect"
// CHECK-COUNT-2: threads.bulk = "copy"
// CHECK:         threads.bulk = "expect"
// CHECK-COUNT-2: threads.bulk = "copy"
// CHECK-NOT:     threads.bulk = "copy"
// CHECK:       nvvm.wgmma.mma_async {{.*}} <m = 64, n = 128, k = 16>
// A warp with rows waits for each, reads 16 columns of it at a time as they are multiplied by tensor cores, and writes what it makes of them.
// CHECK:       arith.cmpi slt
// CHECK-NEXT:  scf.if
// CHECK:         threads.bulk = "await"
// CHECK-COUNT-2: nvvm.ldmatrix {{.*}} num = 4
// CHECK-COUNT-2: nvvm.stmatrix
// CHECK-COUNT-2: nvvm.ldmatrix {{.*}} num = 4
// CHECK:         threads.bulk = "arrive"
// CHECK-COUNT-2: threads.bulk = "store_bf16"
// CHECK:         threads.bulk = "await"
// CHECK:         threads.bulk = "arrive"
// CHECK-COUNT-2: threads.bulk = "store_bf16"
// One without any lets both pass.
// CHECK:       } else {
// CHECK-NOT:     nvvm.ldmatrix
// CHECK:         threads.bulk = "await"
// CHECK:         threads.bulk = "arrive"
// CHECK:         threads.bulk = "await"
// CHECK:         threads.bulk = "arrive"
// CHECK-NOT:     memref.load {{.*}} : memref<?xbf16
// EMULATED-LABEL: func.func private @reads__thread(
// EMULATED-COUNT-6: call @braid_emulate_bulk_copy(
// EMULATED:       call @braid_emulate_ldmatrix(
func.func @reads(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %x: memref<?x?xbf16, #rows> {tile.name = "x"},
    %y: memref<?x?xbf16, #rows> {tile.name = "y"}, %u: memref<?x?xbf16, #rows> {tile.name = "u"}, %v: memref<?x?xbf16, #rows> {tile.name = "v"},
    %end: index {tile.name = "end"}, %k: index {tile.name = "k"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant dense<0.0> : vector<128x128xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %c128 : index
  scf.for %tile = %c0 to %tiles step %c1 {
    %row = arith.muli %tile, %c128 : index
    %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x128xf32>) {
      %left = tile.load %a[%row, %at] limit %end {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
      %right = tile.load %b[%column, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
      %next = tile.dot %left, %right, %now {transpose_b} : vector<128x64xbf16>, vector<128x64xbf16>, vector<128x128xf32>
      scf.yield %next : vector<128x128xf32>
    }
    %r = arith.truncf %sum : vector<128x128xf32> to vector<128x128xbf16>
    %d = arith.extf %r : vector<128x128xbf16> to vector<128x128xf32>
    %gate = tile.load %x[%row, %column] limit %end {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x128xbf16>
    %up = tile.load %y[%row, %column] limit %end {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x128xbf16>
    %g = arith.extf %gate : vector<128x128xbf16> to vector<128x128xf32>
    %w = arith.extf %up : vector<128x128xbf16> to vector<128x128xf32>
    %du = arith.mulf %d, %g : vector<128x128xf32>
    %dg = arith.mulf %d, %w : vector<128x128xf32>
    %dgate = arith.truncf %dg : vector<128x128xf32> to vector<128x128xbf16>
    %dup = arith.truncf %du : vector<128x128xf32> to vector<128x128xbf16>
    tile.store %dgate, %u[%row, %column] limit %end {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
    tile.store %dup, %v[%row, %column] limit %end {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
  }
  return
}

// Programs that stay walk the groups: the turn of the ring goes on from tile to tile.
// CHECK-LABEL: func.func @stays(
// CHECK-SAME:  threads.block = 288 : i64
// CHECK:       scf.for %{{.*}} -> (index, index, i32, i32) : i32 {
// CHECK-COUNT-5: threads.bulk = "copy"
// CHECK:       scf.for %{{.*}} -> (i32, i32, i32) : i32 {
// CHECK:         scf.for %{{.*}} iter_args(%{{.*}}, %[[TURN:.*]] = %{{.*}}) -> (i32, i32) : i32 {
// CHECK:           arith.index_castui %[[TURN]] : i32 to index
// CHECK:           nvvm.wgmma.mma_async {{.*}} <m = 64, n = 256, k = 16>
// CHECK-COUNT-2:   threads.bulk = "store_bf16"
// CHECK-NOT:       threads.bulk = "store_bf16"
// EMULATED-LABEL: func.func private @stays__thread(
// EMULATED-COUNT-2: call @braid_emulate_bulk_store_bf16(
func.func @stays(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?x?xbf16, strided<[?, ?, 1]>> {tile.name = "b"},
    %d: memref<?x?x?xbf16, strided<[?, ?, 1]>> {tile.name = "d"}, %offsets: memref<?xi32> {tile.name = "offsets"}, %z: memref<?x?xbf16, #rows> {tile.name = "z"},
    %k: index {tile.name = "k"}, %programs: index {tile.name = "workers"}, %columns: index {tile.name = "across"}, %experts: index {tile.name = "groups"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["worker"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %none = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %side = arith.constant 128 : i32
  %zero = arith.constant dense<0.0> : vector<128x256xf32>
  %p = tile.program : index
  %program = arith.index_cast %p : index to i32
  %workers = arith.index_cast %programs : index to i32
  %across = arith.index_cast %columns : index to i32
  %groups = arith.index_cast %experts : index to i32
  %start = memref.load %offsets[%c0] : memref<?xi32>
  %all:2 = scf.for %group = %none to %groups step %one iter_args(%first = %program, %begin = %start) -> (i32, i32) : i32 {
    %g = arith.index_cast %group : i32 to index
    %g1 = arith.addi %g, %c1 : index
    %end = memref.load %offsets[%g1] : memref<?xi32>
    %limit = arith.index_cast %end : i32 to index
    %count = arith.subi %end, %begin : i32
    %down = arith.ceildivsi %count, %side : i32
    %tiles = arith.muli %down, %across : i32
    %next = scf.for %tile = %first to %tiles step %workers iter_args(%now = %first) -> (i32) : i32 {
      %r = arith.divsi %tile, %across : i32
      %c = arith.remsi %tile, %across : i32
      %below = arith.muli %r, %side : i32
      %at_row = arith.addi %begin, %below : i32
      %row = arith.index_cast %at_row : i32 to index
      %beside = arith.muli %c, %side : i32
      %column = arith.index_cast %beside : i32 to index
      %sum = scf.for %at = %c0 to %k step %step iter_args(%sum = %zero) -> (vector<128x256xf32>) {
        %left = tile.load %a[%row, %at] limit %limit {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
        %w = tile.load %b[%g, %at, %column] {dims = array<i64: 1, 2>} : memref<?x?x?xbf16, strided<[?, ?, 1]>>, vector<64x128xbf16>
        %v = tile.load %d[%g, %at, %column] {dims = array<i64: 1, 2>} : memref<?x?x?xbf16, strided<[?, ?, 1]>>, vector<64x128xbf16>
        %right = tile.concat %w, %v : vector<64x128xbf16>, vector<64x128xbf16> -> vector<64x256xbf16>
        %more = tile.dot %left, %right, %sum : vector<128x64xbf16>, vector<64x256xbf16>, vector<128x256xf32>
        scf.yield %more : vector<128x256xf32>
      }
      %s0 = tile.slice %sum {offset = 0 : i64} : vector<128x256xf32>, vector<128x128xf32>
      %s1 = tile.slice %sum {offset = 128 : i64} : vector<128x256xf32>, vector<128x128xf32>
      %made = arith.mulf %s0, %s1 : vector<128x128xf32>
      %hidden = arith.truncf %made : vector<128x128xf32> to vector<128x128xbf16>
      tile.store %hidden, %z[%row, %column] limit %limit {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
      %further = arith.addi %tile, %workers : i32
      scf.yield %further : i32
    }
    %left = arith.subi %next, %tiles : i32
    scf.yield %left, %end : i32, i32
  }
  return
}

// Numbers of rows are asked for before the products, two of a thread; what is added up along rows of a formula a thread adds up where it stores that, pair by
// pair (16 blocks of eight columns, two rows), the four lanes of a row behind them, of which one stores it.
// CHECK-LABEL: func.func @weighted(
// CHECK:         nvvm.wgmma.mma_async
// CHECK-COUNT-32: "mov.b32 $0, $1;", "=f,f"
// CHECK-NOT:     "=f,f"
// CHECK-COUNT-4: gpu.shuffle
// CHECK-NOT:     gpu.shuffle
// CHECK-COUNT-2: memref.store {{.*}} : memref<?xf32
// CHECK-NOT:     memref.store {{.*}} : memref<?xf32
// CHECK:       return
// BEFORE-LABEL: func.func @weighted(
// BEFORE:         threads.bulk = "copy"
// BEFORE-COUNT-2: memref.load {{.*}} : memref<?xf32
// BEFORE-NOT:     memref.load {{.*}} : memref<?xf32
// BEFORE:         nvvm.wgmma.mma_async
// EMULATED-LABEL: func.func private @weighted__thread(
func.func @weighted(%a: memref<?x?xbf16, #rows> {tile.name = "a"}, %b: memref<?x?xbf16, #rows> {tile.name = "b"}, %x: memref<?x?xbf16, #rows> {tile.name = "x"},
    %n: memref<?xf32> {tile.name = "n"}, %u: memref<?x?xbf16, #rows> {tile.name = "u"}, %v: memref<?x?xbf16, #rows> {tile.name = "v"}, %s: memref<?x?xf32, #rows> {tile.name = "s"},
    %end: index {tile.name = "end"}, %k: index {tile.name = "k"}, %tiles: index {tile.name = "tiles"})
    attributes {tile.boxes, tile.kernel, tile.grid = ["row", "column"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant dense<0.0> : vector<128x128xf32>
  %p:2 = tile.program : index, index
  %column = arith.muli %p#1, %c128 : index
  scf.for %tile = %c0 to %tiles step %c1 {
    %row = arith.muli %tile, %c128 : index
    %weights = tile.load %n[%row] limit %end {dims = array<i64: 0>} : memref<?xf32>, vector<128xf32>
    %sum = scf.for %at = %c0 to %k step %step iter_args(%now = %zero) -> (vector<128x128xf32>) {
      %left = tile.load %a[%row, %at] limit %end {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
      %right = tile.load %b[%column, %at] {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x64xbf16>
      %next = tile.dot %left, %right, %now {transpose_b} : vector<128x64xbf16>, vector<128x64xbf16>, vector<128x128xf32>
      scf.yield %next : vector<128x128xf32>
    }
    %r = arith.truncf %sum : vector<128x128xf32> to vector<128x128xbf16>
    %d = arith.extf %r : vector<128x128xbf16> to vector<128x128xf32>
    %hidden = tile.load %x[%row, %column] limit %end {dims = array<i64: 0, 1>} : memref<?x?xbf16, #rows>, vector<128x128xbf16>
    %h = arith.extf %hidden : vector<128x128xbf16> to vector<128x128xf32>
    %w = tile.expand %weights {axis = 1 : i64} : vector<128xf32>, vector<128x128xf32>
    %dh = arith.mulf %d, %w : vector<128x128xf32>
    %dw = arith.mulf %d, %h : vector<128x128xf32>
    %total = tile.reduce add %dw {axis = 1 : i64} : vector<128x128xf32>, vector<128xf32>
    %hw = arith.mulf %dh, %h : vector<128x128xf32>
    %dhidden = arith.truncf %dh : vector<128x128xf32> to vector<128x128xbf16>
    %weighted = arith.truncf %hw : vector<128x128xf32> to vector<128x128xbf16>
    tile.store %dhidden, %u[%row, %column] limit %end {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
    tile.store %weighted, %v[%row, %column] limit %end {dims = array<i64: 0, 1>} : vector<128x128xbf16>, memref<?x?xbf16, #rows>
    tile.store %total, %s[%p#1, %row] limit %end {dims = array<i64: 1>} : vector<128xf32>, memref<?x?xf32, #rows>
  }
  return
}
