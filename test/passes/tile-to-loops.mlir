// RUN: braid-opt %s --split-input-file --braid-tile-to-loops --canonicalize --cse | FileCheck %s
// RUN: braid-opt %s --split-input-file --braid-tile-to-loops=vector-bytes=32 --canonicalize --cse | FileCheck %s --check-prefix=AVX2
// RUN: braid-opt %s --split-input-file --braid-tile-to-loops=bf16-dots=true --canonicalize --cse | FileCheck %s --check-prefix=PAIRS

// An elementwise chain is one loop over strips; the limit is asked once per row; w is read where it is used.
// CHECK-LABEL: func.func @chain(%{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64)
// CHECK-NOT:   memref.alloca
// CHECK:       scf.for
// CHECK:         scf.for
// CHECK:           arith.cmpi ult
// CHECK:           scf.if
// CHECK:             scf.for {{.*}} to %c64 step %c16
// CHECK:               vector.load {{.*}} vector<16xf32>
// CHECK:               vector.load {{.*}} vector<16xf32>
// CHECK-NEXT:          arith.mulf
// CHECK-NEXT:          math.exp
// CHECK-NEXT:          vector.store
// CHECK-NOT:   vector.store
// AVX2-LABEL:  func.func @chain
// AVX2:        scf.for {{.*}} to %c64 step %c8
// AVX2:          vector.load {{.*}} vector<8xf32>
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

// exp has two readers (the sum and the quotient): it is kept, once; the buffer stands before the loop over programs.
// CHECK-LABEL: func.func @softmax
// CHECK:       memref.alloca() {alignment = 64 : i64}
// CHECK:       scf.for
// CHECK-NOT:   memref.alloca
// CHECK:         math.exp
// CHECK-NOT:     math.exp
// CHECK:         arith.divf
// CHECK:       return
func.func @softmax(%x: memref<?x64xf32> {tile.name = "x"}, %y: memref<?x64xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %i = tile.program : index
  %v = tile.load %x[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<4x64xf32>
  %m = tile.reduce max %v {axis = 1 : i64} : vector<4x64xf32>, vector<4xf32>
  %me = tile.expand %m {axis = 1 : i64} : vector<4xf32>, vector<4x64xf32>
  %d = arith.subf %v, %me : vector<4x64xf32>
  %e = math.exp %d : vector<4x64xf32>
  %s = tile.reduce add %e {axis = 1 : i64} : vector<4x64xf32>, vector<4xf32>
  %se = tile.expand %s {axis = 1 : i64} : vector<4xf32>, vector<4x64xf32>
  %o = arith.divf %e, %se : vector<4x64xf32>
  tile.store %o, %y[%i, %c0] {dims = array<i64: 0, 1>} : vector<4x64xf32>, memref<?x64xf32>
  return
}

// -----

// The micro-kernel: 4 x 4 accumulators live in the k loop; the state of the outer loop is updated in its own buffer, keys and values are read
// where they stand.
// CHECK-LABEL: func.func @state
// CHECK:         memref.alloca
// CHECK-NOT:     memref.alloca
// CHECK:         scf.for {{.*}} iter_args({{((%[a-z0-9_]+ = %[a-z0-9_]+(, )?){16})}}) ->
// CHECK:           vector.load
// CHECK:           vector.broadcast {{.*}} : f32 to vector<16xf32>
// CHECK-COUNT-16:  vector.fma
// CHECK:           scf.yield
// CHECK-COUNT-16: vector.store {{.*}} memref<4112xf32>
// CHECK-NOT:      vector.fma
func.func @state(%k: memref<?x64xf32> {tile.name = "k"}, %v: memref<?x64xf32> {tile.name = "v"}, %s: memref<64x64xf32> {tile.name = "s"}, %n: index {tile.name = "n"}, %decay: f32 {tile.name = "decay"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %s0 = tile.load %s[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xf32>, vector<64x64xf32>
  %d = vector.broadcast %decay : f32 to vector<64x64xf32>
  %r = scf.for %t = %c0 to %n step %c32 iter_args(%state = %s0) -> (vector<64x64xf32>) {
    %kt = tile.load %k[%t, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<32x64xf32>
    %vt = tile.load %v[%t, %c0] {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<32x64xf32>
    %faded = arith.mulf %state, %d : vector<64x64xf32>
    %next = tile.dot %kt, %vt, %faded {transpose_a} : vector<32x64xf32>, vector<32x64xf32>, vector<64x64xf32>
    scf.yield %next : vector<64x64xf32>
  }
  tile.store %r, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}

// -----

// Scores below the diagonal: the rows of a band reach as far as its last one, and the product with them ends there.
// CHECK-LABEL: func.func @causal
// CHECK:       scf.for %{{.*}} = %c0 to %c20 {{.*}} iter_args({{((%[a-z0-9_]+ = %[a-z0-9_]+(, )?){16})}}) ->
// CHECK-COUNT-16: vector.fma
// CHECK-NOT:   vector.fma
// CHECK:       scf.for %{{.*}} = %c0 to %c20
// CHECK-COUNT-16: vector.fma
// CHECK-NOT:   vector.fma
// CHECK:       scf.for %{{.*}} = %c0 to %{{[0-9]+}} step %c1
func.func @causal(%q: memref<32x20xf32> {tile.name = "q"}, %v: memref<32x16xf32> {tile.name = "v"}, %o: memref<32x16xf32> {tile.name = "o"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %x = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x20xf32>, vector<32x20xf32>
  %values = tile.load %v[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x16xf32>, vector<32x16xf32>
  %zero = arith.constant dense<0.0> : vector<32x32xf32>
  %none = arith.constant dense<0.0> : vector<32x16xf32>
  %all = tile.dot %x, %x, %zero {transpose_b} : vector<32x20xf32>, vector<32x20xf32>, vector<32x32xf32>
  %scores = tile.mask lower %all : vector<32x32xf32>
  %out = tile.dot %scores, %values, %none : vector<32x32xf32>, vector<32x16xf32>, vector<32x16xf32>
  tile.store %out, %o[%c0, %c0] {dims = array<i64: 0, 1>} : vector<32x16xf32>, memref<32x16xf32>
  return
}

// -----

// Of what nothing writes before the product no copy is made; rows that end in the middle of a vector are copied, and so is what a store in
// between may write.
// CHECK-LABEL: func.func @in_place
// CHECK:         memref.alloca() {{.*}} : memref<272xf32>
// CHECK-NOT:     memref.alloca
// CHECK-LABEL: func.func @short_rows
// CHECK-COUNT-2: memref.alloca
// CHECK-LABEL: func.func @written
// CHECK-COUNT-2: memref.alloca
// CHECK:         return
func.func @in_place(%q: memref<16x32xf32> {tile.name = "q"}, %m: memref<?x32x16xf32> {tile.name = "m"}, %y: memref<16x16xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["chunk"]} {
  %c0 = arith.constant 0 : index
  %n = tile.program : index
  %zero = arith.constant dense<0.0> : vector<16x16xf32>
  %x = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<16x32xf32>, vector<16x32xf32>
  %s = tile.load %m[%n, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x32x16xf32>, vector<32x16xf32>
  %d = tile.dot %x, %s, %zero : vector<16x32xf32>, vector<32x16xf32>, vector<16x16xf32>
  tile.store %d, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<16x16xf32>, memref<16x16xf32>
  return
}
func.func @short_rows(%q: memref<16x32xf32> {tile.name = "q"}, %m: memref<?x32x12xf32> {tile.name = "m"}, %y: memref<16x12xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["chunk"]} {
  %c0 = arith.constant 0 : index
  %n = tile.program : index
  %zero = arith.constant dense<0.0> : vector<16x12xf32>
  %x = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<16x32xf32>, vector<16x32xf32>
  %s = tile.load %m[%n, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x32x12xf32>, vector<32x12xf32>
  %d = tile.dot %x, %s, %zero : vector<16x32xf32>, vector<32x12xf32>, vector<16x12xf32>
  tile.store %d, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<16x12xf32>, memref<16x12xf32>
  return
}
func.func @written(%q: memref<16x32xf32> {tile.name = "q"}, %m: memref<?x32x16xf32> {tile.name = "m"}, %y: memref<16x16xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["chunk"]} {
  %c0 = arith.constant 0 : index
  %n = tile.program : index
  %zero = arith.constant dense<0.0> : vector<16x16xf32>
  %x = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<16x32xf32>, vector<16x32xf32>
  %s = tile.load %m[%n, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x32x16xf32>, vector<32x16xf32>
  tile.store %s, %m[%c0, %c0, %c0] {dims = array<i64: 1, 2>} : vector<32x16xf32>, memref<?x32x16xf32>
  %d = tile.dot %x, %s, %zero : vector<16x32xf32>, vector<32x16xf32>, vector<16x16xf32>
  tile.store %d, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<16x16xf32>, memref<16x16xf32>
  return
}

// -----

// bf16: f32 copies, without rounding what was computed; or half as many steps over pairs of elements.
// CHECK-LABEL: func.func @narrow
// CHECK-NOT:   arith.truncf
// CHECK:       scf.for %{{.*}} = %c0 to %c32
// CHECK-COUNT-8: vector.fma
// CHECK-NOT:   vector.fma
// PAIRS-LABEL: func.func @narrow
// PAIRS:       arith.truncf %{{.*}} : vector<16xf32> to vector<16xbf16>
// PAIRS:       scf.for %{{.*}} = %c0 to %c16
// PAIRS-COUNT-8: llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"
// PAIRS-NOT:   dpbf16ps
// PAIRS-NOT:   vector.fma
func.func @narrow(%a: memref<8x32xbf16> {tile.name = "a"}, %b: memref<32x16xf32> {tile.name = "b"}, %c: memref<8x16xf32> {tile.name = "c"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %x = tile.load %a[%c0, %c0] {dims = array<i64: 0, 1>} : memref<8x32xbf16>, vector<8x32xbf16>
  %y = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x16xf32>, vector<32x16xf32>
  %e = math.exp %y : vector<32x16xf32>
  %narrow = arith.truncf %e : vector<32x16xf32> to vector<32x16xbf16>
  %none = arith.constant dense<0.0> : vector<8x16xf32>
  %out = tile.dot %x, %narrow, %none : vector<8x32xbf16>, vector<32x16xbf16>, vector<8x16xf32>
  tile.store %out, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<8x16xf32>, memref<8x16xf32>
  return
}

// -----

// Two sums along the same rows are one loop with two parts of each.
// CHECK-LABEL: func.func @sums
// CHECK:       scf.for %{{.*}} = %c0 to %c32 step %c2 iter_args({{((%[a-z0-9_]+ = %[a-z0-9_]+(, )?){4})}})
// CHECK-COUNT-4: arith.addf
// CHECK-NOT:   scf.for
func.func @sums(%x: memref<32x16xf32> {tile.name = "x"}, %s: memref<16xf32> {tile.name = "s"}, %t: memref<16xf32> {tile.name = "t"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x16xf32>, vector<32x16xf32>
  %one = tile.reduce add %v {axis = 0 : i64} : vector<32x16xf32>, vector<16xf32>
  %square = arith.mulf %v, %v : vector<32x16xf32>
  %two = tile.reduce add %square {axis = 0 : i64} : vector<32x16xf32>, vector<16xf32>
  tile.store %one, %s[%c0] {dims = array<i64: 0>} : vector<16xf32>, memref<16xf32>
  tile.store %two, %t[%c0] {dims = array<i64: 0>} : vector<16xf32>, memref<16xf32>
  return
}

// -----

// What is repeated over rows and read twice is kept once, as what it repeats.
// CHECK-LABEL: func.func @repeated
// CHECK:       scf.for
// CHECK-NEXT:    scf.for %[[J:.*]] = %c0 to %c64 step %c16 {
// CHECK:         math.exp
// CHECK:         vector.store %{{.*}}, %{{.*}}[%[[J]]] : memref<{{.*}}>, vector<16xf32>
// CHECK-NOT:   math.exp
// CHECK:       return
func.func @repeated(%x: memref<16x64xf32> {tile.name = "x"}, %w: memref<64xf32> {tile.name = "w"}, %y: memref<16x64xf32> {tile.name = "y"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<16x64xf32>, vector<16x64xf32>
  %b = tile.load %w[%c0] {dims = array<i64: 0>} : memref<64xf32>, vector<64xf32>
  %e = math.exp %b : vector<64xf32>
  %ee = tile.expand %e {axis = 0 : i64} : vector<64xf32>, vector<16x64xf32>
  %p = arith.mulf %a, %ee : vector<16x64xf32>
  %s = tile.reduce add %p {axis = 1 : i64} : vector<16x64xf32>, vector<16xf32>
  %se = tile.expand %s {axis = 1 : i64} : vector<16xf32>, vector<16x64xf32>
  %d = arith.subf %ee, %se : vector<16x64xf32>
  tile.store %d, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<16x64xf32>, memref<16x64xf32>
  return
}

// -----

// While a program multiplies it asks for the tile that the next one loads, a row of it for each row of the product; the last
// program asks for its own. Where a tile begins is read from the table in the place of the next program. What every
// program loads, and what is gathered, is not asked for.
// PAIRS-LABEL: func.func @next_program(
// CHECK-LABEL: func.func @next_program(
// CHECK-SAME:    %{{.*}}: !llvm.ptr, %{{.*}}: i64, %[[END:.*]]: i64)
// CHECK:         %[[TO:.*]] = arith.index_cast %[[END]]
// CHECK:         scf.for %[[P:.*]] = %{{.*}} to %[[TO]]
// CHECK-DAG:       %[[LAST:.*]] = arith.subi %[[TO]], %c1
// CHECK-DAG:       %[[BEHIND:.*]] = arith.addi %[[P]], %c1
// CHECK:           %[[NEXT:.*]] = arith.minui %[[BEHIND]], %[[LAST]]
// CHECK:           %[[ROW:.*]] = memref.load %{{.*}}[%[[NEXT]]]
// CHECK:           %[[BASE:.*]] = arith.muli %[[ROW]], %c32
// CHECK:           scf.for %[[R:.*]] = %c0 to %c24 step %c12 {
// CHECK-NEXT:        %[[UP:.*]] = arith.addi %[[R]], %c12
// CHECK-NEXT:        scf.for %[[I:.*]] = %[[R]] to %[[UP]] step %c1 {
// CHECK-NEXT:          %[[SHIFT:.*]] = arith.muli %[[I]], %c32
// CHECK-NEXT:          %[[AT:.*]] = arith.addi %[[BASE]], %[[SHIFT]]
// CHECK-NEXT:          memref.prefetch %[[X:.*]][%[[AT]]], read, locality<2>, data
// CHECK-NEXT:          %[[LINE:.*]] = arith.addi %[[AT]], %c16
// CHECK-NEXT:          memref.prefetch %[[X]][%[[LINE]]], read, locality<2>, data
// CHECK-NEXT:        } {loop_annotation
// CHECK-NOT:         memref.prefetch
// CHECK:             return
func.func @next_program(%x: memref<?x32xf32> {tile.name = "x"}, %first: memref<?xindex> {tile.name = "first"}, %w: memref<32x32xf32> {tile.name = "w"},
    %order: memref<32xi32> {tile.name = "order"}, %y: memref<?x24x32xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["n"]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<24x32xf32>
  %n = tile.program : index
  %row = memref.load %first[%n] : memref<?xindex>
  %a = tile.load %x[%row, %c0] {dims = array<i64: 0, 1>} : memref<?x32xf32>, vector<24x32xf32>
  %b = tile.load %w[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x32xf32>, vector<32x32xf32>
  %rows = tile.load %order[%c0] {dims = array<i64: 0>} : memref<32xi32>, vector<32xi32>
  %g = tile.load %x[%row, %c0] rows %rows : vector<32xi32> {dims = array<i64: 0, 1>} : memref<?x32xf32>, vector<32x32xf32>
  %bg = arith.addf %b, %g : vector<32x32xf32>
  %d = tile.dot %a, %bg, %zero : vector<24x32xf32>, vector<32x32xf32>, vector<24x32xf32>
  tile.store %d, %y[%n, %c0, %c0] {dims = array<i64: 1, 2>} : vector<24x32xf32>, memref<?x24x32xf32>
  return
}

// -----

// An iteration asks for the block of the next one, the last for the first block of the next program. Where the loop's end
// is not known the last asks for its own.
// CHECK-LABEL: func.func @next_iteration(
// CHECK:         arith.minui
// CHECK:         scf.for %[[J:.*]] = %c0 to %c64 step %c32
// CHECK:           arith.addi %[[J]], %c32
// CHECK:           %[[LAST:.*]] = arith.cmpi sge, %{{.*}}, %c64
// CHECK:           arith.select %[[LAST]], %{{.*}}, %{{.*}} : index
// CHECK-COUNT-2:     memref.prefetch
// CHECK-NEXT:      } {loop_annotation
// CHECK:         scf.for %[[K:.*]] = %c0 to %[[END:[0-9]+]] step %c16
// CHECK:           %[[BEHIND:.*]] = arith.addi %[[K]], %c16
// CHECK-NEXT:      %[[LAST:.*]] = arith.cmpi sge, %[[BEHIND]], %[[END]]
// CHECK-NEXT:      arith.select %[[LAST]], %[[K]], %[[BEHIND]] : index
// CHECK-COUNT-2:     memref.prefetch
// CHECK-NEXT:      } {loop_annotation
// CHECK:         return
func.func @next_iteration(%x: memref<?x16x64xf32> {tile.name = "x"}, %z: memref<?x32xf32> {tile.name = "z"}, %y: memref<?x16x64xf32> {tile.name = "y"}, %end: index {tile.name = "end"})
    attributes {tile.kernel, tile.grid = ["n"]} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %n = tile.program : index
  %square = arith.constant dense<0.0> : vector<16x16xf32>
  %sum = scf.for %j = %c0 to %c64 step %c32 iter_args(%s = %square) -> (vector<16x16xf32>) {
    %a = tile.load %x[%n, %c0, %j] {dims = array<i64: 1, 2>} : memref<?x16x64xf32>, vector<16x32xf32>
    %d = tile.dot %a, %a, %s {transpose_b} : vector<16x32xf32>, vector<16x32xf32>, vector<16x16xf32>
    scf.yield %d : vector<16x16xf32>
  }
  %zero = arith.constant dense<0.0> : vector<16x32xf32>
  %far = scf.for %k = %c0 to %end step %c16 iter_args(%s = %zero) -> (vector<16x32xf32>) {
    %b = tile.load %z[%k, %c0] {dims = array<i64: 0, 1>} : memref<?x32xf32>, vector<16x32xf32>
    %d = tile.dot %sum, %b, %s : vector<16x16xf32>, vector<16x32xf32>, vector<16x32xf32>
    scf.yield %d : vector<16x32xf32>
  }
  tile.store %far, %y[%n, %c0, %c0] {dims = array<i64: 1, 2>} : vector<16x32xf32>, memref<?x16x64xf32>
  return
}

// -----

// What one side of a choice loads and both multiply behind is asked for in both; a table that is read in a branch only is not
// read for the next program.
// CHECK-LABEL: func.func @branches(
// CHECK:         scf.if
// CHECK-COUNT-4:   memref.prefetch %[[X:[a-z0-9_]+]]
// CHECK-NOT:       memref.prefetch
// CHECK:         } else {
// CHECK-COUNT-4:   memref.prefetch %[[X]]
// CHECK-NOT:     memref.prefetch
// CHECK:         return
func.func @branches(%x: memref<?x16x32xf32> {tile.name = "x"}, %z: memref<?x32xf32> {tile.name = "z"}, %first: memref<?xindex> {tile.name = "first"}, %y: memref<?x16x32xf32> {tile.name = "y"})
    attributes {tile.kernel, tile.grid = ["n"]} {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %n = tile.program : index
  %zero = arith.constant dense<0.0> : vector<16x16xf32>
  %none = arith.constant dense<0.0> : vector<16x32xf32>
  %small = arith.cmpi ult, %n, %c3 : index
  %a = tile.load %x[%n, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x16x32xf32>, vector<16x32xf32>
  %r = scf.if %small -> (vector<16x32xf32>) {
    %row = memref.load %first[%n] : memref<?xindex>
    %b = tile.load %z[%row, %c0] {dims = array<i64: 0, 1>} : memref<?x32xf32>, vector<16x32xf32>
    %d = tile.dot %a, %b, %zero {transpose_b} : vector<16x32xf32>, vector<16x32xf32>, vector<16x16xf32>
    %e = tile.dot %d, %b, %none : vector<16x16xf32>, vector<16x32xf32>, vector<16x32xf32>
    scf.yield %e : vector<16x32xf32>
  } else {
    %d = tile.dot %a, %a, %zero {transpose_b} : vector<16x32xf32>, vector<16x32xf32>, vector<16x16xf32>
    %e = tile.dot %d, %a, %none : vector<16x16xf32>, vector<16x32xf32>, vector<16x32xf32>
    scf.yield %e : vector<16x32xf32>
  }
  tile.store %r, %y[%n, %c0, %c0] {dims = array<i64: 1, 2>} : vector<16x32xf32>, memref<?x16x32xf32>
  return
}

// -----

// What the program loads before a loop that holds all of its products is asked for in the last iteration.
// CHECK-LABEL: func.func @last_iteration(
// CHECK:         scf.for %[[J:.*]] = %c0 to %c64 step %c32
// CHECK:           %[[LAST:.*]] = arith.cmpi sge, %{{.*}}, %c64
// CHECK-NOT:       memref.prefetch
// CHECK:           scf.if %[[LAST]] {
// CHECK-COUNT-2:       memref.prefetch
// CHECK-NEXT:        } {loop_annotation
// CHECK:           }
// CHECK-NOT:       memref.prefetch
// CHECK:         return
func.func @last_iteration(%x: memref<?x16x32xf32> {tile.name = "x"}, %w: memref<32x64xf32> {tile.name = "w"}, %y: memref<?x16x64xf32> {tile.name = "y"})
    attributes {tile.kernel, tile.grid = ["n"]} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %n = tile.program : index
  %zero = arith.constant dense<0.0> : vector<16x32xf32>
  %a = tile.load %x[%n, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x16x32xf32>, vector<16x32xf32>
  scf.for %j = %c0 to %c64 step %c32 {
    %b = tile.load %w[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x64xf32>, vector<32x32xf32>
    %d = tile.dot %a, %b, %zero : vector<16x32xf32>, vector<32x32xf32>, vector<16x32xf32>
    tile.store %d, %y[%n, %c0, %j] {dims = array<i64: 1, 2>} : vector<16x32xf32>, memref<?x16x64xf32>
  }
  return
}

// -----

// A walk from the last row of a table to its first, whose number a loop before has counted: the next iteration reads the row
// before this one. Two parts of it are two tiles; what is read again, and the same a row further, is at hand.
// CHECK-LABEL: func.func @backwards(
// CHECK:         %[[USED:.*]] = scf.for
// CHECK:         %[[TOP:.*]] = arith.subi %[[USED]], %c1
// CHECK:         scf.for %[[I:.*]] = %c0 to %[[USED]] step %c1
// CHECK:           %[[BEHIND:.*]] = arith.addi %[[I]], %c1
// CHECK-NEXT:      %[[LAST:.*]] = arith.cmpi sge, %[[BEHIND]], %[[USED]]
// CHECK-NEXT:      %[[NEXT:.*]] = arith.select %[[LAST]], %[[I]], %[[BEHIND]] : index
// CHECK-NEXT:      arith.subi %[[TOP]], %[[NEXT]]
// CHECK-COUNT-2:     memref.prefetch
// CHECK-NEXT:      } {loop_annotation
// CHECK-COUNT-2:     memref.prefetch
// CHECK-NEXT:      } {loop_annotation
// CHECK-NOT:     memref.prefetch
// CHECK:         return
func.func @backwards(%x: memref<?x32x32xf32> {tile.name = "x"}, %full: memref<8xi1> {tile.name = "full"}, %y: memref<16x16xf32> {tile.name = "y"}, %z: memref<?x16x32xf32> {tile.name = "z"})
    attributes {tile.kernel, tile.grid = ["n"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %used = scf.for %n = %c0 to %c8 step %c1 iter_args(%now = %c0) -> (index) {
    %has = memref.load %full[%n] : memref<8xi1>
    %more = arith.addi %now, %c1 : index
    %next = arith.select %has, %more, %now : index
    scf.yield %next : index
  }
  %top = arith.subi %used, %c1 : index
  %square = arith.constant dense<0.0> : vector<16x16xf32>
  %sum = scf.for %i = %c0 to %used step %c1 iter_args(%s = %square) -> (vector<16x16xf32>) {
    %n = arith.subi %top, %i : index
    %a = tile.load %x[%n, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x32x32xf32>, vector<16x32xf32>
    %b = tile.load %x[%n, %c16, %c0] {dims = array<i64: 1, 2>} : memref<?x32x32xf32>, vector<16x32xf32>
    %d = tile.dot %a, %b, %s {transpose_b} : vector<16x32xf32>, vector<16x32xf32>, vector<16x16xf32>
    tile.store %a, %z[%n, %c0, %c0] {dims = array<i64: 1, 2>} : vector<16x32xf32>, memref<?x16x32xf32>
    %m = arith.addi %n, %c1 : index
    %e = tile.load %x[%m, %c0, %c0] {dims = array<i64: 1, 2>} : memref<?x32x32xf32>, vector<16x32xf32>
    tile.store %e, %z[%n, %c0, %c0] {dims = array<i64: 1, 2>} : vector<16x32xf32>, memref<?x16x32xf32>
    scf.yield %d : vector<16x16xf32>
  }
  tile.store %sum, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<16x16xf32>, memref<16x16xf32>
  return
}

// -----

// What a loop says of its trips is said of the loop that it becomes.
// CHECK-LABEL: func.func @mean_walk
// CHECK:         } {tile.mean_walk = 2 : i64}
func.func @mean_walk(%x: memref<?x64xf32> {tile.name = "x"}, %y: memref<?x64xf32> {tile.name = "y"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %i to %n step %c4 {
      %v = tile.load %x[%j, %c0] {dims = array<i64: 1>} : memref<?x64xf32>, vector<64xf32>
      tile.store %v, %y[%j, %c0] {dims = array<i64: 1>} : vector<64xf32>, memref<?x64xf32>
    } {tile.mean_walk = 2 : i64}
  }
  return
}

// -----

// Rows are asked for the limit alone where their number counts up from the grid; what the host gives may be negative.
// CHECK-LABEL: func.func @counts_up(
// CHECK-NOT:     arith.cmpi sle
// CHECK:         arith.cmpi sgt, %{{.*}} : vector<16xi32>
// CHECK-NOT:     arith.cmpi sle
// CHECK:         vector.maskedload
// CHECK:         vector.maskedstore
// CHECK-LABEL: func.func @from_the_host(
// CHECK:         arith.cmpi sgt, %{{.*}} : vector<16xi32>
// CHECK:         arith.cmpi sle, %{{.*}} : vector<16xi32>
// CHECK:         vector.maskedload
func.func @counts_up(%x: memref<?xf32> {tile.name = "x"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["block"]} {
  %c1024 = arith.constant 1024 : index
  %i = tile.program : index
  %begin = arith.muli %i, %c1024 : index
  %end = arith.addi %begin, %c1024 : index
  %c32 = arith.constant 32 : index
  scf.for %j = %begin to %end step %c32 {
    %a = tile.load %x[%j] limit %n {dims = array<i64: 0>} : memref<?xf32>, vector<32xf32>
    %b = arith.addf %a, %a : vector<32xf32>
    tile.store %b, %x[%j] limit %n {dims = array<i64: 0>} : vector<32xf32>, memref<?xf32>
  }
  return
}
func.func @from_the_host(%x: memref<?xf32> {tile.name = "x"}, %y: memref<?xf32> {tile.name = "y"}, %first: index {tile.name = "first"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["block"]} {
  %a = tile.load %x[%first] limit %n {dims = array<i64: 0>} : memref<?xf32>, vector<32xf32>
  tile.store %a, %y[%first] limit %n {dims = array<i64: 0>} : vector<32xf32>, memref<?xf32>
  return
}

// -----

// A long row of elements has a limit: strips before it have no masks, what is left of it is one masked strip.
// CHECK-LABEL: func.func @to_the_limit(
// CHECK-DAG:     %[[C16:.*]] = arith.constant 16 : index
// CHECK:         %[[LEFT:.*]] = arith.minsi
// CHECK:         %[[STRIPS:.*]] = arith.divui %[[LEFT]], %[[C16]]
// CHECK:         %[[FULL:.*]] = arith.muli %[[STRIPS]], %[[C16]]
// CHECK-NOT:     arith.select
// CHECK:         scf.for %{{.*}} = %{{.*}} to %[[FULL]] step %[[C16]]
// CHECK:           vector.load
// CHECK:           vector.store
// CHECK:         scf.for %{{.*}} = %[[FULL]] to %[[LEFT]] step %[[C16]]
// CHECK:           vector.maskedload
// CHECK:           vector.maskedstore
// What is added up has all of its elements behind the limit too; rows that the host numbers may be negative.
// CHECK-LABEL: func.func @added_to_the_limit(
// CHECK-DAG:     %[[C512:.*]] = arith.constant 512 : index
// CHECK:         arith.cmpi sge
// CHECK:         %[[FULL:.*]] = arith.select
// CHECK:         scf.for %{{.*}} = %{{.*}} to %[[FULL]] step
// CHECK-NOT:       vector.maskedload
// CHECK:           arith.addf
// CHECK:         scf.for %{{.*}} = %[[FULL]] to %[[C512]] step
// CHECK:           vector.maskedload
// CHECK:           arith.addf
// Another limit is none of this walk: it is asked for in every strip.
// CHECK-LABEL: func.func @another_limit(
// CHECK:         vector.maskedload
// CHECK:         vector.store
// CHECK:         vector.maskedload
// CHECK:         vector.maskedstore
// Rows of fewer than 32 strips are unrolled with their masks.
// CHECK-LABEL: func.func @short_row(
// CHECK-NOT:     vector.load
// CHECK:         vector.maskedload
// CHECK-NOT:     vector.load
// AVX2-LABEL: func.func @short_row(
// AVX2:         vector.load %{{.*}} : memref<?xf32>, vector<8xf32>
// AVX2:         vector.maskedload
func.func @to_the_limit(%x: memref<?xf32> {tile.name = "x"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["block"]} {
  %c512 = arith.constant 512 : index
  %i = tile.program : index
  %r = arith.muli %i, %c512 : index
  %a = tile.load %x[%r] limit %n {dims = array<i64: 0>} : memref<?xf32>, vector<512xf32>
  %b = arith.addf %a, %a : vector<512xf32>
  tile.store %b, %x[%r] limit %n {dims = array<i64: 0>} : vector<512xf32>, memref<?xf32>
  return
}
func.func @added_to_the_limit(%x: memref<?xf32> {tile.name = "x"}, %y: memref<512xf32> {tile.name = "y"}, %first: index {tile.name = "first"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["block"]} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%first] limit %n {dims = array<i64: 0>} : memref<?xf32>, vector<512xf32>
  %one = arith.constant dense<1.0> : vector<512xf32>
  %b = arith.addf %a, %one : vector<512xf32>
  tile.store %b, %y[%c0] {dims = array<i64: 0>} : vector<512xf32>, memref<512xf32>
  return
}
func.func @another_limit(%x: memref<?xf32> {tile.name = "x"}, %y: memref<?xf32> {tile.name = "y"}, %n: index {tile.name = "n"}, %m: index {tile.name = "m"}) attributes {tile.kernel, tile.grid = ["block"]} {
  %c512 = arith.constant 512 : index
  %i = tile.program : index
  %r = arith.muli %i, %c512 : index
  %a = tile.load %x[%r] limit %m {dims = array<i64: 0>} : memref<?xf32>, vector<512xf32>
  tile.store %a, %y[%r] limit %n {dims = array<i64: 0>} : vector<512xf32>, memref<?xf32>
  return
}
func.func @short_row(%x: memref<?xf32> {tile.name = "x"}, %y: memref<?xf32> {tile.name = "y"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["block"]} {
  %c256 = arith.constant 256 : index
  %i = tile.program : index
  %r = arith.muli %i, %c256 : index
  %a = tile.load %x[%r] limit %n {dims = array<i64: 0>} : memref<?xf32>, vector<256xf32>
  tile.store %a, %y[%r] limit %n {dims = array<i64: 0>} : vector<256xf32>, memref<?xf32>
  return
}
