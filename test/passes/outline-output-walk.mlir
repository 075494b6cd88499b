// RUN: braid-opt %s --split-input-file --verify-diagnostics --braid-outline=gpu | FileCheck %s

// A program has all keys and as many values of a head's state as a chunk has tokens; two of them make a head of 128 values, in two segments of the row. What the first one
// leaves is walked before. The state is carried turned, scores are rounded before all programs of a block multiply by them.
// CHECK-LABEL: func.func @numbers(
// CHECK: %[[ENDS:.*]]:2 = tile.launch @lsm_state_walk_ends_s_h32_k128_v128_c64_{{.*}}_p2_bf16_pbf16 grid [{{[24]}}, 32, 1]{{.*}} -> (tensor<1x1x32x128x128xf32>, tensor<1x1x32x128xf32>)
// CHECK: tile.launch @lsm_output_walk_s_h32_k128_v128_c64_p2_bf16 grid [4, 32, 1]({{.*}}%[[ENDS]]#0, %[[ENDS]]#1)
// CHECK-LABEL: func.func @lsm_output_walk_s_h32_k128_v128_c64_p2_bf16(
// CHECK: tile.transpose {{.*}} : vector<128x64xf32>, vector<64x128xf32>
// CHECK: scf.for {{.*}} -> (vector<64x128xf32>, i32)
// CHECK: %[[C:.*]] = tile.cumsum {{.*}} {axis = 0 : i64} : vector<64x64xf32>
// CHECK: tile.dot {{.*}} {transpose_b} : vector<64x128xbf16>, vector<64x128xbf16>, vector<64x64xf32>
// CHECK: %[[S:.*]] = arith.truncf {{.*}} : vector<64x64xf32> to vector<64x64xbf16>
// CHECK: tile.dot {{.*}} {transpose_b} : vector<64x128xbf16>, vector<64x128xbf16>, vector<64x64xf32>
// CHECK: tile.dot {{.*}}, %[[S]], {{.*}} {transpose_a, transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
// CHECK: tile.dot {{.*}} {transpose_a} : vector<64x64xbf16>, vector<64x128xbf16>, vector<64x128xf32>
// CHECK: tile.store {{.*}} : vector<64x64xbf16>, memref<?x?x32x128xbf16>
func.func @numbers(%q: tensor<1x8192x32x128xbf16>, %g: tensor<1x8192x32xf32>, %s: tensor<1x32x128x128xf32>, %c: tensor<1x129x4xi32>) -> tensor<1x8192x32x128xbf16> {
  %o, %f = braid.lsm.output_walk S %q, %q, %q log_decay(%g) initial_state(%s) chunks(%c) {chunk_size = 64 : i64, scale = 0.5 : f64, braid.walk_segments = 2 : i64}
    : (tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<1x8192x32xf32>, tensor<1x32x128x128xf32>, tensor<1x129x4xi32>) -> (tensor<1x8192x32x128xbf16>, tensor<1x32x128x128xf32>)
  return %o : tensor<1x8192x32x128xbf16>
}

// -----

// Enough heads of enough rows are walked whole. Without decays nothing is added up.
// CHECK-LABEL: func.func @none(
// CHECK-NOT: lsm_state_walk_ends
// CHECK: tile.launch @lsm_output_walk_i_h8_k64_v64_c64_bf16 grid [1, 8, 32]
// CHECK-LABEL: func.func @lsm_output_walk_i_h8_k64_v64_c64_bf16(
// CHECK-NOT: tile.cumsum
// CHECK-NOT: math.exp
func.func @none(%q: tensor<32x2048x8x64xbf16>, %s: tensor<32x8x64x64xf32>, %c: tensor<32x33x4xi32>) -> tensor<32x2048x8x64xbf16> {
  %o, %f = braid.lsm.output_walk I %q, %q, %q initial_state(%s) chunks(%c) {chunk_size = 64 : i64, scale = 0.5 : f64}
    : (tensor<32x2048x8x64xbf16>, tensor<32x2048x8x64xbf16>, tensor<32x2048x8x64xbf16>, tensor<32x8x64x64xf32>, tensor<32x33x4xi32>) -> (tensor<32x2048x8x64xbf16>, tensor<32x8x64x64xf32>)
  return %o : tensor<32x2048x8x64xbf16>
}

// -----

// Decays of channels: of each 64 of them, as many as values, sums that lie along tokens make queries and keys decayed from and to the middle of the chunk's decays. Both are
// handed on turned, to scores, outputs and states; the state decays by a vector of columns. What the first walk finds too strong the second one walks again, in parts of 16 tokens.
// CHECK-LABEL: func.func @channels(
// CHECK-NOT: lsm_state_walk_ends
// CHECK: tile.launch @lsm_output_walk_v_h8_k128_v128_c64_bf16 grid [2, 8, 8]
// CHECK-LABEL: func.func @lsm_output_walk_v_h8_k128_v128_c64_bf16(
// CHECK: %[[END:.*]]:6 = scf.for {{.*}} -> (vector<64x64xf32>, vector<64x64xf32>, vector<64xf32>, vector<64xf32>, vector<64xf32>, i32)
// CHECK: %[[C:.*]] = tile.cumsum {{.*}} : vector<64x64xf32>
// CHECK: tile.rows %[[C]][%c63] : vector<64x64xf32>, vector<64xf32>
// CHECK: %[[Q:.*]] = arith.truncf {{.*}} : vector<64x64xf32> to vector<64x64xbf16>
// CHECK: %[[K:.*]] = arith.truncf {{.*}} : vector<64x64xf32> to vector<64x64xbf16>
// CHECK: tile.dot %[[Q]], %[[K]], {{.*}} {transpose_a} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
// CHECK: tile.dot %{{.*}}, %[[Q]], {{.*}} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
// CHECK: tile.dot %[[V:.*]], %{{.*}}, {{.*}} {transpose_a, transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
// CHECK: tile.dot %[[V]], %[[K]], {{.*}} {transpose_a, transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
// CHECK: %[[LEAST:.*]] = tile.reduce min %[[END]]#4
// CHECK: %[[STRONG:.*]] = arith.cmpf olt, %[[LEAST]]
// CHECK: arith.select %[[STRONG]], {{.*}} : vector<64x64xf32>
// CHECK: scf.for {{.*}} -> (vector<64x64xf32>, vector<64x64xf32>, vector<64xf32>, vector<64xf32>, vector<64xf32>, i32)
// CHECK: %[[FROM:.*]] = arith.muli %{{.*}}, %c16
// CHECK: return
func.func @channels(%q: tensor<8x2048x8x128xbf16>, %k: tensor<8x2048x8x128xbf16>, %v: tensor<8x2048x8x128xbf16>, %g: tensor<8x2048x8x128xf32>, %s: tensor<8x8x128x128xf32>, %c: tensor<8x33x4xi32>) -> tensor<8x2048x8x128xbf16> {
  %o, %f = braid.lsm.output_walk V %q, %k, %v log_decay(%g) initial_state(%s) chunks(%c) {chunk_size = 64 : i64, scale = 0.5 : f64}
    : (tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xf32>, tensor<8x8x128x128xf32>, tensor<8x33x4xi32>) -> (tensor<8x2048x8x128xbf16>, tensor<8x8x128x128xf32>)
  return %o : tensor<8x2048x8x128xbf16>
}

// -----

// A delta rule: scores, Q M, K M, T times what is left of values, outputs, the state. Sums of decays, and their exponentials, are at hand.
// CHECK-LABEL: func.func @delta(
// CHECK: %[[MADE:.*]]:2 = tile.launch @lsm_chunk_inverse_gh_h32_k128_v64_c64_bf16_pbf16 grid [32, 129, 1]{{.*}} -> (tensor<1x129x32x64x64xbf16>, tensor<1x129x32x192xf32>)
// CHECK: tile.launch @lsm_output_walk_gh_h32_k128_v128_c64_bf16_pbf16 grid [2, 32, 1]({{.*}}%[[MADE]]#0, %[[MADE]]#1
// The triangle is inverted, and nothing is multiplied by the inverse.
// CHECK-LABEL: func.func @lsm_chunk_inverse_gh_h32_k128_v64_c64_bf16_pbf16(
// CHECK: tile.dot {{.*}} {transpose_b} : vector<64x128xbf16>, vector<64x128xbf16>, vector<64x64xf32>
// CHECK: tile.solve
// CHECK-NOT: tile.dot
// CHECK: tile.cumsum {{.*}} : vector<64xf32>
// CHECK-LABEL: func.func @lsm_output_walk_gh_h32_k128_v128_c64_bf16_pbf16(
// CHECK: scf.for {{.*}} -> (vector<64x128xf32>, i32)
// CHECK-NOT: tile.cumsum
// CHECK: tile.dot {{.*}} {transpose_b} : vector<64x128xbf16>, vector<64x128xbf16>, vector<64x64xf32>
// CHECK: %[[S:.*]] = arith.truncf {{.*}} : vector<64x64xf32> to vector<64x64xbf16>
// CHECK: tile.dot {{.*}} {transpose_b} : vector<64x128xbf16>, vector<64x128xbf16>, vector<64x64xf32>
// CHECK: tile.dot {{.*}} {transpose_b} : vector<64x128xbf16>, vector<64x128xbf16>, vector<64x64xf32>
// CHECK: tile.dot {{.*}} {transpose_a, transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
// CHECK: tile.dot {{.*}}, %[[S]], {{.*}} {transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
// CHECK: tile.dot {{.*}} : vector<64x64xbf16>, vector<64x128xbf16>, vector<64x128xf32>
// CHECK: tile.store {{.*}} : vector<64x64xbf16>, memref<?x?x32x128xbf16>
func.func @delta(%q: tensor<1x8192x32x128xbf16>, %g: tensor<1x8192x32xf32>, %s: tensor<1x32x128x128xf32>, %c: tensor<1x129x4xi32>) -> tensor<1x8192x32x128xbf16> {
  %t, %sums = braid.lsm.chunk_inverse GH %q log_decay(%g) beta(%g) chunks(%c) {chunk_size = 64 : i64}
    : (tensor<1x8192x32x128xbf16>, tensor<1x8192x32xf32>, tensor<1x8192x32xf32>, tensor<1x129x4xi32>) -> (tensor<1x129x32x64x64xbf16>, tensor<1x129x32x192xf32>)
  %o, %f = braid.lsm.output_walk GH %q, %q, %q inverse(%t, %sums) initial_state(%s) chunks(%c) {chunk_size = 64 : i64, scale = 0.5 : f64}
    : (tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<1x129x32x64x64xbf16>, tensor<1x129x32x192xf32>, tensor<1x32x128x128xf32>, tensor<1x129x4xi32>) -> (tensor<1x8192x32x128xbf16>, tensor<1x32x128x128xf32>)
  return %o : tensor<1x8192x32x128xbf16>
}

// -----

// The same under decays of channels: the triangle is inverted, and its inverse multiplied by, where all chunks are side by side, once for each way of decays. The walk multiplies K M, Q M,
// what is left of values by what writes, and by scores.
// CHECK-LABEL: func.func @vector_delta(
// CHECK: %[[MADE:.*]]:5 = tile.launch @lsm_chunk_walk_factors_vh_h32_k128_v128_c64_bf16_pbf16 grid [32, 129, 1]
// CHECK: tile.launch @lsm_factor_walk_vh_h32_k128_v128_c64_bf16_pbf16 grid [2, 32, 1](%[[MADE]]#0, %[[MADE]]#1, %[[MADE]]#2, %[[MADE]]#3, %[[MADE]]#4
// CHECK-LABEL: func.func @lsm_chunk_walk_factors_vh_h32_k128_v128_c64_bf16_pbf16(
// CHECK-COUNT-2: tile.solve
// CHECK-NOT: tile.solve
// CHECK-LABEL: func.func @lsm_factor_walk_vh_h32_k128_v128_c64_bf16_pbf16(
// CHECK: scf.for {{.*}} -> (vector<64x128xf32>, i32)
// CHECK-NOT: tile.cumsum
// CHECK-NOT: math.exp
// CHECK-COUNT-2: tile.dot {{.*}} {transpose_b} : vector<64x128xbf16>, vector<64x128xbf16>, vector<64x64xf32>
// CHECK: tile.dot {{.*}} {transpose_a} : vector<64x64xbf16>, vector<64x128xbf16>, vector<64x128xf32>
// CHECK: tile.dot {{.*}} {transpose_a, transpose_b} : vector<64x64xbf16>, vector<64x64xbf16>, vector<64x64xf32>
// CHECK: tile.store {{.*}} : vector<64x64xbf16>, memref<?x?x32x128xbf16>
!rows = tensor<1x129x32x64x128xbf16>
!scores = tensor<1x129x32x64x64xbf16>
!decay = tensor<1x129x32x1x128xf32>
!tokens = tensor<1x8192x32x128xbf16>
!gates = tensor<1x8192x32x128xf32>
func.func @vector_delta(%q: !tokens, %g: !gates, %b: tensor<1x8192x32xf32>, %s: tensor<1x32x128x128xf32>, %c: tensor<1x129x4xi32>) -> !tokens {
  %queries, %keys, %write, %scores, %decay = braid.lsm.chunk_walk_factors VH %q, %q log_decay(%g) beta(%b) chunks(%c) {chunk_size = 64 : i64, scale = 0.5 : f64}
    : (!tokens, !tokens, !gates, tensor<1x8192x32xf32>, tensor<1x129x4xi32>) -> (!rows, !rows, !rows, !scores, !decay)
  %o, %f = braid.lsm.factor_walk VH factors(%queries, %keys, %write, %scores, %decay) %q initial_state(%s) chunks(%c)
    : (!rows, !rows, !rows, !scores, !decay, !tokens, tensor<1x32x128x128xf32>, tensor<1x129x4xi32>) -> (!tokens, tensor<1x32x128x128xf32>)
  return %o : !tokens
}

// -----

func.func @no_factor_walk(%r: tensor<1x3x2x32x24xbf16>, %t: tensor<1x3x2x32x32xbf16>, %d: tensor<1x3x2x1x24xf32>, %v: tensor<1x64x2x32xbf16>, %s: tensor<1x2x24x32xf32>, %c: tensor<1x3x4xi32>) -> tensor<1x64x2x32xbf16> {
  // expected-error @+1 {{has no kernel: chunks must be of 32 or 64 tokens, values a multiple of them, keys one of 16 and at most 128}}
  %o, %f = braid.lsm.factor_walk VH factors(%r, %r, %r, %t, %d) %v initial_state(%s) chunks(%c)
    : (tensor<1x3x2x32x24xbf16>, tensor<1x3x2x32x24xbf16>, tensor<1x3x2x32x24xbf16>, tensor<1x3x2x32x32xbf16>, tensor<1x3x2x1x24xf32>, tensor<1x64x2x32xbf16>, tensor<1x2x24x32xf32>, tensor<1x3x4xi32>) -> (tensor<1x64x2x32xbf16>, tensor<1x2x24x32xf32>)
  return %o : tensor<1x64x2x32xbf16>
}

// -----

func.func @no_kernel(%q: tensor<1x64x2x32xbf16>, %v: tensor<1x64x2x48xbf16>, %s: tensor<1x2x32x48xf32>, %c: tensor<1x3x4xi32>) -> tensor<1x64x2x48xbf16> {
  // expected-error @+1 {{has no kernel: chunks must be of 32, 64 or 128 tokens, values a multiple of them, keys one of 16 (of class V of them) and at most 128}}
  %o, %f = braid.lsm.output_walk I %q, %q, %v initial_state(%s) chunks(%c) {chunk_size = 32 : i64, scale = 0.5 : f64}
    : (tensor<1x64x2x32xbf16>, tensor<1x64x2x32xbf16>, tensor<1x64x2x48xbf16>, tensor<1x2x32x48xf32>, tensor<1x3x4xi32>) -> (tensor<1x64x2x48xbf16>, tensor<1x2x32x48xf32>)
  return %o : tensor<1x64x2x48xbf16>
}
