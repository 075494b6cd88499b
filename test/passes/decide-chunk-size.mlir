// RUN: braid-opt %s --braid-decide-chunk-size --split-input-file | FileCheck %s
// RUN: braid-opt %s --braid-decide-chunk-size=chunk-size=32 --split-input-file | FileCheck %s --check-prefix=OVERRIDE
// RUN: not braid-opt %s --braid-decide-chunk-size=chunk-size=24 --split-input-file 2>&1 | FileCheck %s --check-prefix=WRONG
// RUN: braid-opt %s --braid-decide-chunk-size=vector-bytes=32 --split-input-file | FileCheck %s --check-prefix=NARROW
// RUN: braid-opt %s --braid-decide-chunk-size=shared-bytes=80000 --split-input-file | FileCheck %s --check-prefix=GPU

// WRONG: error: chunk-size = 24 is not a multiple of 16 from 16 to 128 (0 chooses by what the kernels cost)


// The size that was cheapest, and what each was expected to cost. Narrower vectors compute slower and move the same
// bytes: shorter chunks. What does not fit a block of a GPU is out. The tiles of scores are chosen by what chunks of strong
// decays cost, which is more.
// CHECK-LABEL: func.func @vector_decay
// CHECK: braid.lsm.scan {{.*}}braid.chunk_costs = "16: {{[0-9]+}}, 32: {{[0-9]+}}, 64: {{[0-9]+}}, 128: {{[0-9]+}}", braid.score_costs = "8: {{[0-9]+}}, 16: {{[0-9]+}}, 32: {{[0-9]+}}", braid.score_rows = {{8|16|32}} : i64, chunk_size = 64
// NARROW-LABEL: func.func @vector_decay
// NARROW: braid.lsm.scan {{.*}}64: {{[0-9]+}}", braid.score_costs = {{.*}}, chunk_size = 32
// GPU-LABEL: func.func @vector_decay
// GPU: braid.lsm.scan {{.*}}braid.chunk_costs = "16: {{[0-9]+}}, 32: {{[0-9]+}}, 64: does not fit", braid.score_costs = {{.*}}, chunk_size = 32
// OVERRIDE-LABEL: func.func @vector_decay
// OVERRIDE: braid.lsm.scan {{.*}}braid.score_costs = "8: {{[0-9]+}}, 16: {{[0-9]+}}, 32: {{[0-9]+}}", braid.score_rows = {{8|16|32}} : i64, chunk_size = 32
func.func @vector_decay(%q: tensor<2x256x2x48xf32>, %g: tensor<2x256x2x48xf32>, %m: tensor<2x2x48x48xf32>, %d: tensor<2x256xi32>) -> tensor<2x256x2x48xf32> {
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<2x256x2x48xf32>, tensor<2x256x2x48xf32>, tensor<2x256x2x48xf32>, tensor<2x256x2x48xf32>, tensor<2x2x48x48xf32>, tensor<2x256xi32>)
      -> (tensor<2x256x2x48xf32>, tensor<2x2x48x48xf32>)
  return %o : tensor<2x256x2x48xf32>
}

// -----

// Never more than the tokens, in whole score tiles, which is a size by itself; the gradient is cut like the scan.
// CHECK-LABEL: func.func @short
// CHECK: braid.lsm.scan {{.*}}braid.chunk_costs = "16: {{[0-9]+}}, 32: {{[0-9]+}}, 48: {{[0-9]+}}", chunk_size = [[SIZE:16|48]]
// CHECK: braid.lsm.scan_grad {{.*}}chunk_size = [[SIZE]] :
// OVERRIDE-LABEL: func.func @short
// OVERRIDE: braid.lsm.scan {{.*}}chunk_size = 32
// OVERRIDE: braid.lsm.scan_grad {{.*}}chunk_size = 32
func.func @short(%q: tensor<1x33x2x8xf32>, %b: tensor<1x33x2xf32>, %m: tensor<1x2x8x8xf32>, %d: tensor<1x33xi32>) -> tensor<1x33x2x8xf32> {
  %o, %f = braid.lsm.scan H %q, %q, %q beta(%b) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x33x2x8xf32>, tensor<1x33x2x8xf32>, tensor<1x33x2x8xf32>, tensor<1x33x2xf32>, tensor<1x2x8x8xf32>, tensor<1x33xi32>)
      -> (tensor<1x33x2x8xf32>, tensor<1x2x8x8xf32>)
  %g:5 = braid.lsm.scan_grad H %q, %q, %q beta(%b) initial_state(%m) documents(%d) cotangents(%o, %f) {scale = 1.0 : f64}
      : (tensor<1x33x2x8xf32>, tensor<1x33x2x8xf32>, tensor<1x33x2x8xf32>, tensor<1x33x2xf32>, tensor<1x2x8x8xf32>, tensor<1x33xi32>, tensor<1x33x2x8xf32>, tensor<1x2x8x8xf32>)
      -> (tensor<1x33x2x8xf32>, tensor<1x33x2x8xf32>, tensor<1x33x2x8xf32>, tensor<1x33x2xf32>, tensor<1x2x8x8xf32>)
  return %g#0 : tensor<1x33x2x8xf32>
}

// -----

// A size that is there stays.
// CHECK-LABEL: func.func @wide
// CHECK: braid.lsm.scan {{.*}}chunk_size = 64
// CHECK: braid.lsm.scan {{.*}}chunk_size = 16
// OVERRIDE-LABEL: func.func @wide
// OVERRIDE: braid.lsm.scan {{.*}}chunk_size = 32
// OVERRIDE: braid.lsm.scan {{.*}}chunk_size = 16
func.func @wide(%q: tensor<1x256x1x128xf32>, %v: tensor<1x256x1x64xf32>, %g: tensor<1x256x1xf32>, %m: tensor<1x1x128x64xf32>, %d: tensor<1x256xi32>) -> tensor<1x256x1x64xf32> {
  %o, %f = braid.lsm.scan S %q, %q, %v log_decay(%g) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x256x1x128xf32>, tensor<1x256x1x128xf32>, tensor<1x256x1x64xf32>, tensor<1x256x1xf32>, tensor<1x1x128x64xf32>, tensor<1x256xi32>)
      -> (tensor<1x256x1x64xf32>, tensor<1x1x128x64xf32>)
  %p, %r = braid.lsm.scan S %q, %q, %o log_decay(%g) initial_state(%f) documents(%d) {chunk_size = 16 : i64, scale = 1.0 : f64}
      : (tensor<1x256x1x128xf32>, tensor<1x256x1x128xf32>, tensor<1x256x1x64xf32>, tensor<1x256x1xf32>, tensor<1x1x128x64xf32>, tensor<1x256xi32>)
      -> (tensor<1x256x1x64xf32>, tensor<1x1x128x64xf32>)
  return %p : tensor<1x256x1x64xf32>
}

// -----

// Chunks of the widest keys have fewer tokens: the tiles of their kernels must fit a stack. Where none fits, the
// smallest is chosen, and the code generator says what is too large.
// CHECK-LABEL: func.func @widest
// CHECK: braid.lsm.scan {{.*}}64: {{[0-9]+}}, 128: does not fit", {{.*}}chunk_size = 64
// GPU-LABEL: func.func @widest
// GPU: braid.lsm.scan {{.*}}braid.chunk_costs = "16: does not fit", chunk_size = 16
// OVERRIDE-LABEL: func.func @widest
func.func @widest(%q: tensor<1x256x1x4096xf64>, %g: tensor<1x256x1x4096xf64>, %m: tensor<1x1x4096x4096xf64>, %d: tensor<1x256xi32>) -> tensor<1x256x1x4096xf64> {
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x256x1x4096xf64>, tensor<1x256x1x4096xf64>, tensor<1x256x1x4096xf64>, tensor<1x256x1x4096xf64>, tensor<1x1x4096x4096xf64>, tensor<1x256xi32>)
      -> (tensor<1x256x1x4096xf64>, tensor<1x1x4096x4096xf64>)
  return %o : tensor<1x256x1x4096xf64>
}

// -----

// Diagonal plus low rank has two queries and two keys: of keys as wide as this, half as many tokens fit as of class V.
// CHECK-LABEL: func.func @wide_keys
// CHECK: braid.lsm.scan V {{.*}}128: {{[0-9]+}}", {{.*}}chunk_size = 64
// CHECK: braid.lsm.scan D {{.*}}128: does not fit", {{.*}}chunk_size = 64
// OVERRIDE-LABEL: func.func @wide_keys
// OVERRIDE-COUNT-2: chunk_size = 32
func.func @wide_keys(%q: tensor<1x256x1x4096xf32>, %v: tensor<1x256x1x32xf32>, %m: tensor<1x1x4096x32xf32>, %d: tensor<1x256xi32>) -> (tensor<1x256x1x32xf32>, tensor<1x256x1x32xf32>) {
  %o, %f = braid.lsm.scan V %q, %q, %v log_decay(%q) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x256x1x4096xf32>, tensor<1x256x1x4096xf32>, tensor<1x256x1x32xf32>, tensor<1x256x1x4096xf32>, tensor<1x1x4096x32xf32>, tensor<1x256xi32>) -> (tensor<1x256x1x32xf32>, tensor<1x1x4096x32xf32>)
  %o1, %f1 = braid.lsm.scan D %q, %q, %v log_decay(%q) a(%q) b(%q) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x256x1x4096xf32>, tensor<1x256x1x4096xf32>, tensor<1x256x1x32xf32>, tensor<1x256x1x4096xf32>, tensor<1x256x1x4096xf32>, tensor<1x256x1x4096xf32>, tensor<1x1x4096x32xf32>, tensor<1x256xi32>) -> (tensor<1x256x1x32xf32>, tensor<1x1x4096x32xf32>)
  return %o, %o1 : tensor<1x256x1x32xf32>, tensor<1x256x1x32xf32>
}

// -----

// No tiles where gates prove that decays are mild in every chunk, or where rows have no choice of sizes, or in the classes without decays per
// channel.
// CHECK-LABEL: func.func @no_tiles
// CHECK-NOT: score_rows
// CHECK: return
func.func @no_tiles(%q: tensor<1x64x1x16xf32>, %x: tensor<1x16x1x16xf32>, %g: tensor<1x64x1xf32>, %m: tensor<1x1x16x16xf32>, %d: tensor<1x64xi32>, %d1: tensor<1x16xi32>)
    -> (tensor<1x64x1x16xf32>, tensor<1x64x1x16xf32>, tensor<1x16x1x16xf32>) {
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%q) initial_state(%m) documents(%d) {braid.least_log_decay = -1.0e-01 : f64, scale = 1.0 : f64}
      : (tensor<1x64x1x16xf32>, tensor<1x64x1x16xf32>, tensor<1x64x1x16xf32>, tensor<1x64x1x16xf32>, tensor<1x1x16x16xf32>, tensor<1x64xi32>) -> (tensor<1x64x1x16xf32>, tensor<1x1x16x16xf32>)
  %o1, %f1 = braid.lsm.scan S %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x64x1x16xf32>, tensor<1x64x1x16xf32>, tensor<1x64x1x16xf32>, tensor<1x64x1xf32>, tensor<1x1x16x16xf32>, tensor<1x64xi32>) -> (tensor<1x64x1x16xf32>, tensor<1x1x16x16xf32>)
  %o2, %f2 = braid.lsm.scan V %x, %x, %x log_decay(%x) initial_state(%m) documents(%d1) {scale = 1.0 : f64}
      : (tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>, tensor<1x1x16x16xf32>, tensor<1x16xi32>) -> (tensor<1x16x1x16xf32>, tensor<1x1x16x16xf32>)
  return %o, %o1, %o2 : tensor<1x64x1x16xf32>, tensor<1x64x1x16xf32>, tensor<1x16x1x16xf32>
}
