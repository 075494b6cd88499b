// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s

// Factors of a chunk: the inverse of its triangle, once, and products; outputs read what the scan wrote, and the adjoint what reads a state: no triangle.
// CHECK-LABEL: func.func @factors
// CHECK: tile.launch @lsm_chunk_factors_gh_h2_k64_v64_c32_whole_bf16_pbf16 grid [2, 3, 1]
// CHECK: tile.launch @lsm_factor_scan_gh_h2_k64_v64_c32_w32_f32_pbf16 grid [2, 2, 1]
// CHECK: tile.launch @lsm_chunk_output_gh_h2_k64_v64_c32_whole_factored_bf16_mbf16 grid [2, 3, 1]
// CHECK: tile.launch @lsm_chunk_output_factors_gh_h2_k64_v64_c32_bf16_pbf16 grid [2, 3, 1]
// CHECK: tile.launch @lsm_factor_scan_grad_gh_h2_k64_v64_c32_w32_f32_pbf16 grid [2, 2, 1]
// CHECK-LABEL: func.func @lsm_chunk_factors_gh_h2_k64_v64_c32_whole_bf16_pbf16(
// CHECK: %[[T:.*]] = tile.solve
// CHECK: %[[B:.*]] = arith.truncf %[[T]] : vector<32x32xf32> to vector<32x32xbf16>
// CHECK-COUNT-2: tile.dot %[[B]]
// CHECK-LABEL: func.func @lsm_factor_scan_gh_h2_k64_v64_c32_w32_f32_pbf16(
// CHECK-NOT: tile.solve
// CHECK: tile.dot {{.*}} : vector<32x64xbf16>, vector<64x32xbf16>, vector<32x32xf32>
// CHECK: tile.dot {{.*}} {transpose_a} : vector<32x64xbf16>, vector<32x32xbf16>, vector<64x32xf32>
// CHECK-LABEL: func.func @lsm_chunk_output_gh_h2_k64_v64_c32_whole_factored_bf16_mbf16(
// CHECK-NOT: tile.solve
// CHECK-LABEL: func.func @lsm_chunk_output_factors_gh_h2_k64_v64_c32_bf16_pbf16(
// CHECK-NOT: tile.solve
// CHECK-LABEL: func.func @lsm_factor_scan_grad_gh_h2_k64_v64_c32_w32_f32_pbf16(
!tok = tensor<1x64x2x64xbf16>
!gate = tensor<1x64x2xf32>
!rows = tensor<1x3x2x32x64xbf16>
!state = tensor<1x2x64x64xf32>
!states = tensor<1x3x2x64x64xbf16>
func.func @factors(%q: !tok, %g: !gate, %b: !gate, %s: !state, %c: tensor<1x3x4xi32>) -> (!tok, !states) {
  %u, %w, %r, %p = braid.lsm.chunk_factors GH %q, %q log_decay(%g) beta(%b) chunks(%c) {chunk_size = 32 : i64}
    : (!tok, !tok, !gate, !gate, tensor<1x3x4xi32>) -> (!rows, !rows, !rows, tensor<1x3x2xf32>)
  %m, %z, %f = braid.lsm.factor_scan GH %u factors(%w, %r, %p) initial_state(%s) chunks(%c)
    : (!rows, !rows, !rows, tensor<1x3x2xf32>, !state, tensor<1x3x4xi32>) -> (!states, !rows, !state)
  %o = braid.lsm.chunk_output GH %q, %q, %q log_decay(%g) beta(%b) in_state(%m) written(%z) chunks(%c) {chunk_size = 32 : i64, scale = 0.5 : f64}
    : (!tok, !tok, !tok, !gate, !gate, !states, !rows, tensor<1x3x4xi32>) -> !tok
  %dg, %d = braid.lsm.chunk_output_factors GH %q, %q, %q log_decay(%g) beta(%b) factors(%r) cotangents(%q) chunks(%c) {chunk_size = 32 : i64, scale = 0.5 : f64}
    : (!tok, !tok, !tok, !gate, !gate, !rows, !tok, tensor<1x3x4xi32>) -> (!rows, !rows)
  %dx, %ds = braid.lsm.factor_scan_grad GH factors(%w, %r, %p) cotangents(%dg, %d, %f) chunks(%c)
    : (!rows, !rows, !rows, !rows, tensor<1x3x2xf32>, !state, tensor<1x3x4xi32>) -> (!states, !state)
  return %o, %dx : !tok, !states
}
