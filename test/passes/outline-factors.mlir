// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s

// Factors of a chunk: the inverse of its triangle, once, and products; outputs read what the scan wrote, and the adjoint what reads a state: no triangle.
// CHECK-LABEL: func.func @factors
// CHECK: tile.launch @lsm_chunk_factors_gh_h2_k64_v64_c32_whole_bf16_pbf16 grid [2, 3, 1]
// CHECK: tile.launch @lsm_factor_scan_gh_h2_k64_v64_c32_w32_f32_pbf16 grid [2, 2, 1]
// CHECK: tile.launch @lsm_chunk_output_gh_h2_k64_v64_c32_whole_factored_bf16_mbf16 grid [2, 3, 1]
// CHECK: tile.launch @lsm_chunk_output_factors_gh_h2_k64_v64_c32_bf16_pbf16 grid [2, 3, 1]
// CHECK: tile.launch @lsm_factor_scan_grad_gh_h2_k64_v64_c32_w32_f32_pbf16 grid [2, 2, 1]
// Of what the scan wrote a gradient is two kernels: dV and dbeta by one that solves, once, all else from dV by one that does not. Without it, one.
// CHECK-LABEL: func.func @grad(
// CHECK: %[[V:.*]]:2 = tile.launch @lsm_chunk_grad_values_gh_h2_k64_v64_c32_split_bf16_mbf16 grid [2, 3, 1]
// CHECK: %[[R:.*]]:3 = tile.launch @lsm_chunk_grad_gh_h2_k64_v64_c32_split_bf16_mbf16 grid [2, 3, 1]{{.*}}%[[V]]#0
// CHECK: return %[[R]]#0, %[[R]]#1, %[[V]]#0, %[[R]]#2, %[[V]]#1
// CHECK-LABEL: func.func @grad_of_matrices(
// CHECK: tile.launch @lsm_chunk_grad_gh_h2_k64_v64_c32_whole_bf16_mbf16
// Beta is of the keys that write: the triangle's columns, and the scores', are times beta, what it is solved for is not.
// CHECK-LABEL: func.func @lsm_chunk_factors_gh_h2_k64_v64_c32_whole_bf16_pbf16(
// CHECK: %[[COLUMNS:.*]] = tile.expand {{.*}} {axis = 0 : i64} : vector<32xf32>, vector<32x32xf32>
// CHECK: %[[A:.*]] = arith.mulf {{.*}}, %[[COLUMNS]]
// CHECK: %[[T:.*]] = tile.solve %[[A]],
// CHECK: %[[B:.*]] = arith.truncf %[[T]] : vector<32x32xf32> to vector<32x32xbf16>
// CHECK-COUNT-2: tile.dot %[[B]]
// CHECK-LABEL: func.func @lsm_factor_scan_gh_h2_k64_v64_c32_w32_f32_pbf16(
// CHECK-NOT: tile.solve
// CHECK: tile.dot {{.*}} : vector<32x64xbf16>, vector<64x32xbf16>, vector<32x32xf32>
// CHECK: tile.dot {{.*}} {transpose_a} : vector<32x64xbf16>, vector<32x32xbf16>, vector<64x32xf32>
// CHECK-LABEL: func.func @lsm_chunk_output_gh_h2_k64_v64_c32_whole_factored_bf16_mbf16(
// CHECK-NOT: tile.solve
// CHECK: tile.expand {{.*}} {axis = 0 : i64} : vector<32xf32>, vector<32x32xf32>
// CHECK-LABEL: func.func @lsm_chunk_output_factors_gh_h2_k64_v64_c32_bf16_pbf16(
// CHECK-NOT: tile.solve
// CHECK-LABEL: func.func @lsm_factor_scan_grad_gh_h2_k64_v64_c32_w32_f32_pbf16(
// CHECK-LABEL: func.func @lsm_chunk_grad_values_gh_h2_k64_v64_c32_split_bf16_mbf16(
// CHECK: tile.solve
// CHECK-NOT: tile.solve
// CHECK-LABEL: func.func @lsm_chunk_grad_gh_h2_k64_v64_c32_split_bf16_mbf16(
// CHECK-NOT: tile.solve
// CHECK-LABEL: func.func @lsm_chunk_grad_gh_h2_k64_v64_c32_whole_bf16_mbf16(
// CHECK: tile.solve
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
func.func @grad(%q: !tok, %g: !gate, %b: !gate, %m: !states, %z: !rows, %c: tensor<1x3x4xi32>) -> (!tok, !tok, !tok, !gate, !gate) {
  %r:5 = braid.lsm.chunk_grad GH %q, %q, %q log_decay(%g) beta(%b) in_state(%m) written(%z) cotangents(%m, %q) chunks(%c) {chunk_size = 32 : i64, scale = 0.5 : f64}
    : (!tok, !tok, !tok, !gate, !gate, !states, !rows, !states, !tok, tensor<1x3x4xi32>) -> (!tok, !tok, !tok, !gate, !gate)
  return %r#0, %r#1, %r#2, %r#3, %r#4 : !tok, !tok, !tok, !gate, !gate
}
func.func @grad_of_matrices(%q: !tok, %g: !gate, %b: !gate, %m: !states, %c: tensor<1x3x4xi32>) -> (!tok, !gate) {
  %r:5 = braid.lsm.chunk_grad GH %q, %q, %q log_decay(%g) beta(%b) in_state(%m) cotangents(%m, %q) chunks(%c) {chunk_size = 32 : i64, scale = 0.5 : f64}
    : (!tok, !tok, !tok, !gate, !gate, !states, !states, !tok, tensor<1x3x4xi32>) -> (!tok, !tok, !tok, !gate, !gate)
  return %r#0, %r#4 : !tok, !gate
}
