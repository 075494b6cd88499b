// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s

// Decays of channels: beta is of the keys that write, which outputs read too. dV has a kernel of its own, which solves; what reads it and U does not.
// CHECK-LABEL: func.func @vector_delta(
// CHECK: tile.launch @lsm_chunk_output_vh_h2_k64_v64_c32_whole_factored_bf16_mbf16 {{.*}}
// CHECK: %[[DV:.*]] = tile.launch @lsm_chunk_grad_values_vh_h2_k64_v64_c32_split_bf16_mbf16
// CHECK: tile.launch @lsm_chunk_grad_vh_h2_k64_v64_c32_split_bf16_mbf16 {{.*}}%[[DV]]
// CHECK-LABEL: func.func @lsm_chunk_grad_values_vh_h2_k64_v64_c32_split_bf16_mbf16(
// CHECK: tile.solve
// CHECK-LABEL: func.func @lsm_chunk_grad_vh_h2_k64_v64_c32_split_bf16_mbf16(
// CHECK-NOT: tile.solve
// Where decays are mild queries are loaded once, and widened by each formula that reads them.
// CHECK: scf.if
// CHECK: scf.if
// CHECK: %[[Q:.*]] = tile.load %arg0[
// CHECK-NOT: tile.load %arg0[
// CHECK: arith.extf %[[Q]] {tile.anew = 1 : i64}
// CHECK-NOT: tile.load %arg0[
// CHECK: arith.extf %[[Q]] {tile.anew = 2 : i64}
// CHECK-NOT: {{tile.load %arg0\[|tile.solve}}
// CHECK: } else {
// CHECK-NOT: tile.solve
!tok = tensor<1x64x2x64xbf16>
!gate = tensor<1x64x2xf32>
!rows = tensor<1x3x2x32x64xbf16>
!states = tensor<1x3x2x64x64xbf16>
!channels = tensor<1x64x2x64xf32>
func.func @vector_delta(%q: !tok, %g: !channels, %b: !gate, %m: !states, %z: !rows, %c: tensor<1x3x4xi32>) -> (!tok, !tok, !tok) {
  %o = braid.lsm.chunk_output VH %q, %q, %q log_decay(%g) beta(%b) in_state(%m) written(%z) chunks(%c) {chunk_size = 32 : i64, scale = 0.5 : f64}
    : (!tok, !tok, !tok, !channels, !gate, !states, !rows, tensor<1x3x4xi32>) -> !tok
  %r:5 = braid.lsm.chunk_grad VH %q, %q, %q log_decay(%g) beta(%b) in_state(%m) written(%z) cotangents(%m, %o) chunks(%c) {chunk_size = 32 : i64, scale = 0.5 : f64}
    : (!tok, !tok, !tok, !channels, !gate, !states, !rows, !states, !tok, tensor<1x3x4xi32>) -> (!tok, !tok, !tok, !channels, !gate)
  return %o, %r#0, %r#2 : !tok, !tok, !tok
}
