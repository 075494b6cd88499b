// FLOPs of scans in chunks. B = H = 1, T = 32 in two chunks of C = 16, K = 8, V = 16. In a chunk j <= i holds for 136 pairs of tokens and j < i for
// 120; a product over pairs costs 2 K = 16 or 2 V = 32 a pair, one with a state 2 K V = 256 a token.
// RUN: braid-opt %s --split-input-file --braid-chunk-tiling --braid-count-work | FileCheck %s

!k = tensor<1x32x1x8xf32>
!v = tensor<1x32x1x16xf32>
!g = tensor<1x32x1xf32>
!s = tensor<1x1x8x16xf32>
!d = tensor<1x32xi32>
// Scalar decay, forward: K^T V (2 * 16 * 256); in order 2 K V a chunk (2 * 256); Q K^T, S V and Q M (2 * (136 * (16 + 32) + 16 * 256)). Chunk forms
// together: 32 * ((C + 1) (K + V) + 4 K V), the published count with the upper triangle skipped.
// CHECK-LABEL: func.func @scalar
// CHECK: braid.lsm.chunk_state S {{.*}}#cmd.work<"lsm.chunk_state", flops = 8192,
// CHECK: braid.lsm.state_scan S {{.*}}#cmd.work<"lsm.state_scan", flops = 512,
// CHECK: braid.lsm.chunk_output S {{.*}}#cmd.work<"lsm.chunk_output", flops = 21248,
// Backward: states once more; Q^T dO (2 * 16 * 256); in order; Q K^T, dS K, dS^T Q over K and dO V^T, S^T dO over V, K dX, dO M^T, V dX^T with states
// (2 * (136 * (3 * 16 + 2 * 32) + 3 * 16 * 256)): without the states made again 32 * ((C + 1) (3 K + 2 V) + 8 K V).
// CHECK: braid.lsm.chunk_state S {{.*}}#cmd.work<"lsm.chunk_state", flops = 8192,
// CHECK: braid.lsm.state_scan S {{.*}}#cmd.work<"lsm.state_scan", flops = 512,
// CHECK: braid.lsm.chunk_output_grad_state S {{.*}}#cmd.work<"lsm.chunk_output_grad_state", flops = 8192,
// CHECK: braid.lsm.state_scan_grad S {{.*}}#cmd.work<"lsm.state_scan_grad", flops = 512,
// CHECK: braid.lsm.chunk_grad S {{.*}}#cmd.work<"lsm.chunk_grad", flops = 55040,
func.func @scalar(%q: !k, %v: !v, %g: !g, %m: !s, %d: !d) -> (!k, !k, !v, !g, !s) {
  %o, %f = braid.lsm.scan S %q, %q, %v log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 16 : i64, scale = 1.0 : f64}
      : (!k, !k, !v, !g, !s, !d) -> (!v, !s)
  %r:5 = braid.lsm.scan_grad S %q, %q, %v log_decay(%g) initial_state(%m) documents(%d) cotangents(%o, %f) {chunk_size = 16 : i64, scale = 1.0 : f64}
      : (!k, !k, !v, !g, !s, !d, !v, !s) -> (!k, !k, !v, !g, !s)
  return %r#0, %r#1, %r#2, %r#3, %r#4 : !k, !k, !v, !g, !s
}

// -----

!k = tensor<1x32x1x8xf32>
!v = tensor<1x32x1x16xf32>
!g = tensor<1x32x1xf32>
!s = tensor<1x1x8x16xf32>
!d = tensor<1x32xi32>
// The delta rule has A = K K^T and substitutions over j < i (120 pairs), in every kernel that needs them again.
// States: K^T V, A, V and K substituted, K^T W with K x K (2 * (16 * 256 + 120 * (16 + 32 + 16) + 16 * 2 * 64)).
// In order: P M + X, (2 K + 1) K V a chunk (2 * 17 * 128). Output: as scalar decay, and A, K M, V substituted (2 * (120 * (16 + 32) + 16 * 256) more).
// CHECK-LABEL: func.func @delta
// CHECK: braid.lsm.chunk_state GH {{.*}}#cmd.work<"lsm.chunk_state", flops = 27648,
// CHECK: braid.lsm.state_scan GH {{.*}}#cmd.work<"lsm.state_scan", flops = 4352,
// CHECK: braid.lsm.chunk_output GH {{.*}}#cmd.work<"lsm.chunk_output", flops = 40960,
// Backward. Q^T dO, and Q K^T, S^T dO, A, a substitution, K^T dR (2 * (2 * 16 * 256 + 136 * (16 + 32) + 120 * (16 + 32))).
// dS, dQ, dK, dV as scalar decay, and over j < i three products with K and three with V, two more with states
// (55040 + 2 * (120 * 3 * (16 + 32) + 2 * 16 * 256)).
// CHECK: braid.lsm.chunk_state GH {{.*}}#cmd.work<"lsm.chunk_state", flops = 27648,
// CHECK: braid.lsm.state_scan GH {{.*}}#cmd.work<"lsm.state_scan", flops = 4352,
// CHECK: braid.lsm.chunk_output_grad_state GH {{.*}}#cmd.work<"lsm.chunk_output_grad_state", flops = 40960,
// CHECK: braid.lsm.state_scan_grad GH {{.*}}#cmd.work<"lsm.state_scan_grad", flops = 4352,
// CHECK: braid.lsm.chunk_grad GH {{.*}}#cmd.work<"lsm.chunk_grad", flops = 105984,
func.func @delta(%q: !k, %v: !v, %g: !g, %b: !g, %m: !s, %d: !d) -> (!k, !k, !v, !g, !g, !s) {
  %o, %f = braid.lsm.scan GH %q, %q, %v log_decay(%g) beta(%b) initial_state(%m) documents(%d) {chunk_size = 16 : i64, scale = 1.0 : f64}
      : (!k, !k, !v, !g, !g, !s, !d) -> (!v, !s)
  %r:6 = braid.lsm.scan_grad GH %q, %q, %v log_decay(%g) beta(%b) initial_state(%m) documents(%d) cotangents(%o, %f) {chunk_size = 16 : i64, scale = 1.0 : f64}
      : (!k, !k, !v, !g, !g, !s, !d, !v, !s) -> (!k, !k, !v, !g, !g, !s)
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 : !k, !k, !v, !g, !g, !s
}

// -----

// A walk over two chunks of 64 tokens, K = V = 64: K^T V (128 * 2 K V) and 2 K V a chunk; k, v, both states, and the in-states of both chunks, are 16384 bytes each, log decays 512, the
// table 48. In segments k, v and log decays are read, and multiplied, twice.
// CHECK-LABEL: func.func @walk
// CHECK: braid.lsm.state_walk S {{.*}}#cmd.work<"lsm.state_walk", flops = 1064960, bytes = 82480,
// CHECK: braid.lsm.state_walk S {{.*}}#cmd.work<"lsm.state_walk", flops = 2113536, bytes = 115760,
func.func @walk(%k: tensor<1x128x1x64xbf16>, %v: tensor<1x128x1x64xbf16>, %g: tensor<1x128x1xf32>, %s: tensor<1x1x64x64xf32>, %c: tensor<1x3x4xi32>) -> (tensor<1x3x1x64x64xbf16>, tensor<1x3x1x64x64xbf16>) {
  %m, %f = braid.lsm.state_walk S %k, %v log_decay(%g) state(%s) chunks(%c) {chunk_size = 64 : i64, scale = 1.0 : f64}
      : (tensor<1x128x1x64xbf16>, tensor<1x128x1x64xbf16>, tensor<1x128x1xf32>, tensor<1x1x64x64xf32>, tensor<1x3x4xi32>) -> (tensor<1x3x1x64x64xbf16>, tensor<1x1x64x64xf32>)
  %n, %h = braid.lsm.state_walk S %k, %v log_decay(%g) state(%s) chunks(%c) {chunk_size = 64 : i64, scale = 1.0 : f64, braid.walk_segments = 2 : i64}
      : (tensor<1x128x1x64xbf16>, tensor<1x128x1x64xbf16>, tensor<1x128x1xf32>, tensor<1x1x64x64xf32>, tensor<1x3x4xi32>) -> (tensor<1x3x1x64x64xbf16>, tensor<1x1x64x64xf32>)
  return %m, %n : tensor<1x3x1x64x64xbf16>, tensor<1x3x1x64x64xbf16>
}
