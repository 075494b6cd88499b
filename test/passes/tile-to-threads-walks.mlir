// A walk over chunks with a state in the rows of warps: what it multiplies is made of running sums, in the registers of the same warps.
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads --canonicalize --cse | FileCheck %s
// RUN: braid-opt %s --split-input-file --braid-tile-to-threads=wgmma --canonicalize --cse | FileCheck %s --check-prefix=GROUPS

// Four warps own 16 of 64 keys each, 8 elements of a lane. Copies of three iterations are under way, where their tokens lie says the table, which is
// read as early. Of eight tokens a lane has two: a sum takes two exchanges, and nothing of it lies in shared memory. Two lanes exchange pairs of what
// is stored, so that each writes four.
// CHECK-LABEL: func.func @walk
// CHECK-SAME:  threads.block = 128 : i64
// CHECK:       scf.if
// CHECK:         memref.load %{{.*}} : memref<?xi32>
// CHECK:         nvvm.cp.async.shared.global
// CHECK:       nvvm.cp.async.commit.group
// CHECK:       nvvm.cp.async.wait.group 2
// CHECK-NEXT:  gpu.barrier
// CHECK:       scf.for {{.*}} -> (f32, f32, f32, f32, f32, f32, f32, f32)
// CHECK:         scf.if
// CHECK:           memref.load %{{.*}} : memref<?xi32>
// CHECK:           nvvm.cp.async.shared.global
// CHECK:         nvvm.cp.async.commit.group
// CHECK-NOT:     gpu.barrier
// CHECK:         gpu.shuffle xor
// CHECK:         vector.store {{.*}} : memref<?xbf16>, vector<4xbf16>
// CHECK:         gpu.shuffle xor %[[PAIR:.*]], %c1_i32
// CHECK:         gpu.shuffle xor %{{.*}}, %c2_i32
// CHECK:         gpu.shuffle idx
// CHECK-NOT:     gpu.barrier
// CHECK:         nvvm.mma.sync
// CHECK:         nvvm.cp.async.wait.group 2
// CHECK-NEXT:    gpu.barrier
// CHECK:       return
// GROUPS-LABEL: func.func @walk
// GROUPS:       scf.for
// GROUPS:         nvvm.wgmma.fence.aligned
// GROUPS-NOT:     nvvm.mma.sync
// GROUPS:       return
func.func @walk(%k: memref<?x64xbf16> {tile.name = "k"}, %v: memref<?x16xbf16> {tile.name = "v"}, %g: memref<?x64xf32> {tile.name = "g"},
                %c: memref<?xi32> {tile.name = "chunks"}, %m: memref<?x64x16xbf16> {tile.name = "m"}, %s: memref<64x16xf32> {tile.name = "s"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %begin = tile.load %s[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x16xf32>, vector<64x16xf32>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%state = %begin) -> vector<64x16xf32> {
    %rounded = arith.truncf %state : vector<64x16xf32> to vector<64x16xbf16>
    tile.store %rounded, %m[%i, %c0, %c0] {dims = array<i64: 1, 2>} : vector<64x16xbf16>, memref<?x64x16xbf16>
    %number = memref.load %c[%i] : memref<?xi32>
    %lo = arith.index_cast %number : i32 to index
    %kv = tile.load %k[%lo, %c0] {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<32x64xbf16>
    %gv = tile.load %g[%lo, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<32x64xf32>
    %vv = tile.load %v[%lo, %c0] {dims = array<i64: 0, 1>} : memref<?x16xbf16>, vector<32x16xbf16>
    %sums = tile.cumsum %gv {axis = 0 : i64, reverse} : vector<32x64xf32>
    %decay = math.exp %sums : vector<32x64xf32>
    %wide = arith.extf %kv : vector<32x64xbf16> to vector<32x64xf32>
    %decayed = arith.mulf %wide, %decay : vector<32x64xf32>
    %left = arith.truncf %decayed : vector<32x64xf32> to vector<32x64xbf16>
    %total = tile.rows %sums[%c0] : vector<32x64xf32>, vector<64xf32>
    %across = math.exp %total : vector<64xf32>
    %all = tile.expand %across {axis = 1 : i64} : vector<64xf32>, vector<64x16xf32>
    %kept = arith.mulf %state, %all : vector<64x16xf32>
    %next = tile.dot %left, %vv, %kept {transpose_a} : vector<32x64xbf16>, vector<32x16xbf16>, vector<64x16xf32>
    scf.yield %next : vector<64x16xf32>
  }
  tile.store %last, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x16xf32>, memref<64x16xf32>
  return
}

// -----

// Numbers of tokens are copied one by one, and all keys have the same sums.
// CHECK-LABEL: func.func @numbers
// CHECK:       scf.for
// CHECK:         nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 4, cache =  ca
// CHECK:         nvvm.mma.sync
func.func @numbers(%k: memref<?x32xbf16> {tile.name = "k"}, %g: memref<?xf32> {tile.name = "g"}, %s: memref<32x16xf32> {tile.name = "s"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %begin = tile.load %s[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x16xf32>, vector<32x16xf32>
  %last = scf.for %i = %c0 to %n step %c32 iter_args(%state = %begin) -> vector<32x16xf32> {
    %kv = tile.load %k[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x32xbf16>, vector<32x32xbf16>
    %vv = tile.load %k[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x32xbf16>, vector<32x16xbf16>
    %gv = tile.load %g[%i] {dims = array<i64: 0>} : memref<?xf32>, vector<32xf32>
    %rows = tile.expand %gv {axis = 1 : i64} : vector<32xf32>, vector<32x32xf32>
    %sums = tile.cumsum %rows {axis = 0 : i64} : vector<32x32xf32>
    %wide = arith.extf %kv : vector<32x32xbf16> to vector<32x32xf32>
    %decayed = arith.mulf %wide, %sums : vector<32x32xf32>
    %left = arith.truncf %decayed : vector<32x32xf32> to vector<32x32xbf16>
    %next = tile.dot %left, %vv, %state {transpose_a} : vector<32x32xbf16>, vector<32x16xbf16>, vector<32x16xf32>
    scf.yield %next : vector<32x16xf32>
  }
  tile.store %last, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<32x16xf32>, memref<32x16xf32>
  return
}

// -----

// Scores, which no state waits for, are multiplied by all warps: each hands its rows on in shared memory, rounded, as soon as it has them; the barrier stands behind the
// product between. The diagonal of a tile is taken from the lanes that have it, a sum of one vector for all rows takes five exchanges, and a turned copy none. Values that are
// multiplied from the left, and read by a formula, come by ldmatrix once.
// CHECK-LABEL: func.func @handed
// CHECK-SAME:  threads.block = 128 : i64
// CHECK:       scf.for {{.*}} -> (f32
// CHECK:         nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK-COUNT-6: gpu.shuffle up
// CHECK:         gpu.shuffle idx
// CHECK:         nvvm.mma.sync
// CHECK-COUNT-16: vector.store {{.*}} : memref<{{[0-9]+}}xbf16, #gpu.address_space<workgroup>>, vector<2xbf16>
// CHECK-NOT:     gpu.barrier
// CHECK:         nvvm.mma.sync
// CHECK:         gpu.barrier
// CHECK:         nvvm.mma.sync
// CHECK:         nvvm.cp.async.wait.group
// CHECK:       return
// GROUPS-LABEL: func.func @handed
// GROUPS:       scf.for
// GROUPS:         nvvm.wgmma.mma_async
// GROUPS:         vector.store {{.*}} : memref<4096xbf16, #gpu.address_space<workgroup>>, vector<2xbf16>
// GROUPS:         nvvm.fence.proxy {{.*}}async.shared
// GROUPS-NOT:     gpu.barrier
// GROUPS:         wgmma.mma_async.sync.aligned.m64n64k16
// GROUPS:         gpu.barrier
// GROUPS:         wgmma.mma_async.sync.aligned.m64n64k16
// GROUPS-NOT:     nvvm.mma.sync
// GROUPS:       return
func.func @handed(%q: memref<?x64xbf16> {tile.name = "q"}, %k: memref<?x64xbf16> {tile.name = "k"}, %v: memref<?x64xbf16> {tile.name = "v"}, %g: memref<?xf32> {tile.name = "g"},
                  %o: memref<?x64xbf16> {tile.name = "o"}, %s: memref<64x64xf32> {tile.name = "s"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %begin = tile.load %s[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xf32>, vector<64x64xf32>
  %last = scf.for %i = %c0 to %n step %c64 iter_args(%state = %begin) -> vector<64x64xf32> {
    %rounded = arith.truncf %state : vector<64x64xf32> to vector<64x64xbf16>
    %qv = tile.load %q[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %kv = tile.load %k[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %vv = tile.load %v[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %gv = tile.load %g[%i] {dims = array<i64: 0>} : memref<?xf32>, vector<64xf32>
    %all = tile.expand %gv {axis = 1 : i64} : vector<64xf32>, vector<64x64xf32>
    %sums = tile.cumsum %all {axis = 0 : i64} : vector<64x64xf32>
    %columns = tile.transpose %sums : vector<64x64xf32>, vector<64x64xf32>
    %diagonal = tile.diagonal %columns : vector<64x64xf32>, vector<64xf32>
    %rows = tile.expand %diagonal {axis = 1 : i64} : vector<64xf32>, vector<64x64xf32>
    %scores = tile.dot %qv, %kv, %zero {transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %difference = arith.subf %rows, %columns : vector<64x64xf32>
    %decayed = arith.mulf %scores, %difference : vector<64x64xf32>
    %handed = arith.truncf %decayed : vector<64x64xf32> to vector<64x64xbf16>
    %of = tile.dot %rounded, %qv, %zero {transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %out = tile.dot %vv, %handed, %of {transpose_a, transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %turned = tile.transpose %out : vector<64x64xf32>, vector<64x64xf32>
    %stored = arith.truncf %turned : vector<64x64xf32> to vector<64x64xbf16>
    tile.store %stored, %o[%i, %c0] {dims = array<i64: 0, 1>} : vector<64x64xbf16>, memref<?x64xbf16>
    %wide = arith.extf %vv : vector<64x64xbf16> to vector<64x64xf32>
    %less = arith.mulf %wide, %sums : vector<64x64xf32>
    %left = arith.truncf %less : vector<64x64xf32> to vector<64x64xbf16>
    %next = tile.dot %left, %kv, %state {transpose_a} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    scf.yield %next : vector<64x64xf32>
  }
  tile.store %last, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}

// -----

// What is made of memory alone, in turned rows, is handed on transposed, in the registers where it is: to be a left operand of one product and a right one of others. A vector of rows
// that is one of columns to the state lies in shared memory, written by one lane of four, and so does one of which a number is made behind the loop. What is handed on waits for one
// barrier together. Columns of a tile come by ldmatrix, as whole tiles do.
// CHECK-LABEL: func.func @channels
// CHECK-SAME:  threads.block = 128 : i64
// CHECK:       scf.for {{.*}} -> (f32
// CHECK:         gpu.shuffle xor
// CHECK:         nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK:         vector.store {{.*}} : memref<{{[0-9]+}}xbf16, #gpu.address_space<workgroup>>, vector<2xbf16>
// CHECK:         nvvm.bar.warp.sync
// CHECK:         nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK:         vector.store {{.*}} : memref<{{[0-9]+}}xbf16, #gpu.address_space<workgroup>>, vector<2xbf16>
// CHECK:         memref.store {{.*}} : memref<64xf32, #gpu.address_space<workgroup>>
// CHECK-NOT:     nvvm.mma.sync
// CHECK:         gpu.barrier
// CHECK:         nvvm.mma.sync
// CHECK:         memref.load {{.*}} : memref<64xf32, #gpu.address_space<workgroup>>
// CHECK:         nvvm.cp.async.wait.group
// CHECK:       memref.store {{.*}} : memref<64xf32, #gpu.address_space<workgroup>>
// CHECK:       return
// GROUPS-LABEL: func.func @channels
// GROUPS:       scf.for
// GROUPS:         nvvm.fence.proxy {{.*}}async.shared
// GROUPS:         gpu.barrier
// GROUPS:         nvvm.wgmma.mma_async {{.*}} A[<bf16>, <one>, <col>], B[<bf16>, <one>, <row>
// GROUPS-NOT:     nvvm.mma.sync
// GROUPS:       return
func.func @channels(%q: memref<?x128xbf16> {tile.name = "q"}, %v: memref<?x64xbf16> {tile.name = "v"}, %g: memref<?x64xf32> {tile.name = "g"}, %o: memref<?x64xbf16> {tile.name = "o"},
                    %s: memref<64x64xf32> {tile.name = "s"}, %least: memref<1xf32> {tile.name = "least"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c63 = arith.constant 63 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %none = arith.constant dense<0.0> : vector<64xf32>
  %begin = tile.load %s[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xf32>, vector<64x64xf32>
  %last:2 = scf.for %i = %c0 to %n step %c64 iter_args(%state = %begin, %lowest = %none) -> (vector<64x64xf32>, vector<64xf32>) {
    %qk = tile.load %q[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x128xbf16>, vector<64x128xbf16>
    %vv = tile.load %v[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %gv = tile.load %g[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<64x64xf32>
    %sums = tile.cumsum %gv {axis = 0 : i64} : vector<64x64xf32>
    %total = tile.rows %sums[%c63] : vector<64x64xf32>, vector<64xf32>
    %qv = tile.slice %qk {offset = 0 : i64} : vector<64x128xbf16>, vector<64x64xbf16>
    %qw = arith.extf %qv : vector<64x64xbf16> to vector<64x64xf32>
    %qd = arith.mulf %qw, %sums : vector<64x64xf32>
    %qt = tile.transpose %qd : vector<64x64xf32>, vector<64x64xf32>
    %qh = arith.truncf %qt : vector<64x64xf32> to vector<64x64xbf16>
    %kv = tile.slice %qk {offset = 64 : i64} : vector<64x128xbf16>, vector<64x64xbf16>
    %kw = arith.extf %kv : vector<64x64xbf16> to vector<64x64xf32>
    %kd = arith.subf %kw, %sums : vector<64x64xf32>
    %kt = tile.transpose %kd : vector<64x64xf32>, vector<64x64xf32>
    %kh = arith.truncf %kt : vector<64x64xf32> to vector<64x64xbf16>
    %factor = math.exp %total : vector<64xf32>
    %low = arith.minimumf %lowest, %total : vector<64xf32>
    %scores = tile.dot %qh, %kh, %zero {transpose_a} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %columns = tile.expand %factor {axis = 0 : i64} : vector<64xf32>, vector<64x64xf32>
    %kept = arith.mulf %state, %columns : vector<64x64xf32>
    %rounded = arith.truncf %kept : vector<64x64xf32> to vector<64x64xbf16>
    %masked = tile.mask lower %scores : vector<64x64xf32>
    %handed = arith.truncf %masked : vector<64x64xf32> to vector<64x64xbf16>
    %of = tile.dot %rounded, %qh, %zero : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %out = tile.dot %vv, %handed, %of {transpose_a, transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %next = tile.dot %vv, %kh, %kept {transpose_a, transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %turned = tile.transpose %out : vector<64x64xf32>, vector<64x64xf32>
    %stored = arith.truncf %turned : vector<64x64xf32> to vector<64x64xbf16>
    tile.store %stored, %o[%i, %c0] {dims = array<i64: 0, 1>} : vector<64x64xbf16>, memref<?x64xbf16>
    scf.yield %next, %low : vector<64x64xf32>, vector<64xf32>
  }
  %number = tile.reduce min %last#1 {axis = 0 : i64} : vector<64xf32>, f32
  memref.store %number, %least[%c0] : memref<1xf32>
  tile.store %last#0, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}

// -----

// Where tiles may come in boxes, one thread starts those of the next iteration, behind the first products of this one; what formulas read of them comes by ldmatrix from the panel. Numbers
// are copied by threads, which no wgmma reads. The end waits for the boxes, clears rows behind the end of a chunk, and only then is there a fence.
// GROUPS-LABEL: func.func @boxes
// GROUPS:       scf.if
// GROUPS-COUNT-4: threads.bulk = "begin"{{.*}}, %c1_i32
// GROUPS:       gpu.barrier
// GROUPS:       scf.if
// GROUPS:         threads.bulk = "expect"{{.*}}, %c24576_i32
// GROUPS-COUNT-3: threads.bulk = "copy"
// GROUPS:       threads.bulk = "await"
// GROUPS:       gpu.barrier
// GROUPS:       scf.for {{.*}} -> (f32
// GROUPS-NOT:     threads.bulk
// GROUPS:         nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// GROUPS:         nvvm.wgmma.commit.group.sync.aligned
// GROUPS:         scf.if
// GROUPS:           nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 4, cache =  ca
// GROUPS:           scf.if
// GROUPS:             threads.bulk = "expect"
// GROUPS-COUNT-3:     threads.bulk = "copy"
// GROUPS:         wgmma.wait_group
// The product of rows in registers begins without sums.
// GROUPS:         setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16
// GROUPS:         nvvm.cp.async.wait.group 2
// GROUPS-NOT:     nvvm.fence.proxy
// GROUPS:         scf.if
// GROUPS:           threads.bulk = "await"
// GROUPS-NEXT:      nvvm.bar.warp.sync
// GROUPS-NEXT:      scf.if
// GROUPS-COUNT-3:     vector.store {{.*}} : memref<4096xbf16, #gpu.address_space<workgroup>>, vector<8xbf16>
// GROUPS:             nvvm.fence.proxy {{.*}}async.shared
// GROUPS:         gpu.barrier
// GROUPS:       return
// CHECK-LABEL: func.func @boxes
// CHECK-NOT:   threads.bulk
// CHECK:       return
func.func @boxes(%q: memref<?x64xbf16> {tile.name = "q"}, %k: memref<?x64xbf16> {tile.name = "k"}, %v: memref<?x64xbf16> {tile.name = "v"}, %g: memref<?xf32> {tile.name = "g"},
                 %c: memref<?xi32> {tile.name = "chunks"}, %o: memref<?x64xbf16> {tile.name = "o"}, %s: memref<64x64xf32> {tile.name = "s"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.boxes, tile.grid = ["one"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %begin = tile.load %s[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xf32>, vector<64x64xf32>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%state = %begin) -> vector<64x64xf32> {
    %rounded = arith.truncf %state : vector<64x64xf32> to vector<64x64xbf16>
    %first = memref.load %c[%i] : memref<?xi32>
    %lo = arith.index_cast %first : i32 to index
    %behind = arith.addi %i, %c1 : index
    %end = memref.load %c[%behind] : memref<?xi32>
    %hi = arith.index_cast %end : i32 to index
    %qv = tile.load %q[%lo, %c0] limit %hi {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %kv = tile.load %k[%lo, %c0] limit %hi {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %vv = tile.load %v[%lo, %c0] limit %hi {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %gv = tile.load %g[%lo] limit %hi {dims = array<i64: 0>} : memref<?xf32>, vector<64xf32>
    %scores = tile.dot %qv, %kv, %zero {transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %rows = tile.expand %gv {axis = 0 : i64} : vector<64xf32>, vector<64x64xf32>
    %decayed = arith.mulf %scores, %rows : vector<64x64xf32>
    %handed = arith.truncf %decayed : vector<64x64xf32> to vector<64x64xbf16>
    %of = tile.dot %rounded, %qv, %zero {transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %out = tile.dot %vv, %handed, %of {transpose_a, transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %turned = tile.transpose %out : vector<64x64xf32>, vector<64x64xf32>
    %stored = arith.truncf %turned : vector<64x64xf32> to vector<64x64xbf16>
    tile.store %stored, %o[%lo, %c0] limit %hi {dims = array<i64: 0, 1>} : vector<64x64xbf16>, memref<?x64xbf16>
    %next = tile.dot %vv, %kv, %state {transpose_a} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    scf.yield %next : vector<64x64xf32>
  }
  tile.store %last, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}

// -----

// What a walk multiplies its state by, and adds to it, may be memory alone: nothing is handed on, and products are awaited where their sums are read all the same, for what they multiply stays
// where it is until the iteration ends. K M and Q M are multiplied together, the next boxes are started behind them; outputs are multiplied beside the next state, which is begun first. A vector for the
// columns of the state is copied by threads.
// GROUPS-LABEL: func.func @factors
// GROUPS:       scf.if
// GROUPS:         threads.bulk = "expect"{{.*}}, %c40960_i32
// GROUPS-COUNT-5: threads.bulk = "copy"
// GROUPS:       gpu.barrier
// GROUPS:       scf.for {{.*}} -> (f32
// GROUPS:         nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// GROUPS-NOT:     gpu.barrier
// GROUPS-NOT:     wgmma.wait_group
// GROUPS-COUNT-2: nvvm.wgmma.commit.group.sync.aligned
// GROUPS-NOT:     wgmma.wait_group
// GROUPS:         nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 4, cache =  ca
// GROUPS-COUNT-5:     threads.bulk = "copy"
// GROUPS:         wgmma.wait_group.sync.aligned 1;
// GROUPS:         nvvm.wgmma.commit.group.sync.aligned
// GROUPS:         wgmma.wait_group.sync.aligned 1;
// GROUPS:         nvvm.wgmma.commit.group.sync.aligned
// GROUPS:         wgmma.wait_group.sync.aligned 0;
// GROUPS-NOT:     gpu.barrier
// GROUPS:         threads.bulk = "await"
// GROUPS:         gpu.barrier
// GROUPS-NOT:     gpu.barrier
// GROUPS:       return
// CHECK-LABEL: func.func @factors
// CHECK-NOT:   threads.bulk
// CHECK:       scf.for {{.*}} -> (f32
// CHECK:         nvvm.mma.sync
// CHECK:         nvvm.cp.async.wait.group
// CHECK-NEXT:    gpu.barrier
// CHECK:       return
func.func @factors(%q: memref<?x64x64xbf16> {tile.name = "q"}, %k: memref<?x64x64xbf16> {tile.name = "k"}, %w: memref<?x64x64xbf16> {tile.name = "w"}, %p: memref<?x64x64xbf16> {tile.name = "p"},
                   %d: memref<?x64xf32> {tile.name = "d"}, %v: memref<?x64xbf16> {tile.name = "v"}, %c: memref<?xi32> {tile.name = "chunks"}, %o: memref<?x64xbf16> {tile.name = "o"},
                   %s: memref<64x64xf32> {tile.name = "s"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.boxes, tile.grid = ["one"], tile.in_place = []} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %begin = tile.load %s[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xf32>, vector<64x64xf32>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%state = %begin) -> vector<64x64xf32> {
    %rounded = arith.truncf %state : vector<64x64xf32> to vector<64x64xbf16>
    %first = memref.load %c[%i] : memref<?xi32>
    %lo = arith.index_cast %first : i32 to index
    %behind = arith.addi %i, %c1 : index
    %end = memref.load %c[%behind] : memref<?xi32>
    %hi = arith.index_cast %end : i32 to index
    %kv = tile.load %k[%i, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x64x64xbf16>, vector<64x64xbf16>
    %qv = tile.load %q[%i, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x64x64xbf16>, vector<64x64xbf16>
    %wv = tile.load %w[%i, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x64x64xbf16>, vector<64x64xbf16>
    %pv = tile.load %p[%i, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x64x64xbf16>, vector<64x64xbf16>
    %dv = tile.load %d[%i, %c0] {dims = array<i64: 1>} : memref<?x64xf32>, vector<64xf32>
    %vv = tile.load %v[%lo, %c0] limit %hi {dims = array<i64: 0, 1>} : memref<?x64xbf16>, vector<64x64xbf16>
    %held = tile.dot %rounded, %kv, %zero {transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %of = tile.dot %rounded, %qv, %zero {transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %all = tile.expand %dv {axis = 0 : i64} : vector<64xf32>, vector<64x64xf32>
    %kept = arith.mulf %state, %all : vector<64x64xf32>
    %wide = arith.extf %vv : vector<64x64xbf16> to vector<64x64xf32>
    %known = tile.transpose %held : vector<64x64xf32>, vector<64x64xf32>
    %less = arith.subf %wide, %known : vector<64x64xf32>
    %left = arith.truncf %less : vector<64x64xf32> to vector<64x64xbf16>
    %next = tile.dot %left, %wv, %kept {transpose_a} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %out = tile.dot %left, %pv, %of {transpose_a, transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
    %turned = tile.transpose %out : vector<64x64xf32>, vector<64x64xf32>
    %stored = arith.truncf %turned : vector<64x64xf32> to vector<64x64xbf16>
    tile.store %stored, %o[%lo, %c0] limit %hi {dims = array<i64: 0, 1>} : vector<64x64xbf16>, memref<?x64xbf16>
    scf.yield %next : vector<64x64xf32>
  }
  tile.store %last, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}
