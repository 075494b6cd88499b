// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s

// A walk over chunks: a program has 64 keys, and as many values as leave one for each multiprocessor. What it multiplies is made of running sums.
// CHECK-LABEL: func.func @walk(
// CHECK: tile.launch @lsm_state_walk_v_h8_k128_v128_c64_w128_r64_bf16_pbf16 grid [2, 8, 8]
// CHECK: tile.launch @lsm_state_walk_grad_v_h8_k128_v128_c64_w128_r64_bf16_pbf16 grid [2, 8, 8]
// CHECK: tile.launch @lsm_state_walk_s_h32_k128_v128_c128_r64_bf16_pbf16 grid [4, 32, 1]
func.func @walk(%k: tensor<8x2048x8x128xbf16>, %g: tensor<8x2048x8x128xf32>, %s: tensor<8x8x128x128xf32>, %c: tensor<8x33x4xi32>,
                %k1: tensor<1x8192x32x128xbf16>, %g1: tensor<1x8192x32xf32>, %s1: tensor<1x32x128x128xf32>, %c1: tensor<1x65x4xi32>)
    -> (tensor<8x33x8x128x128xbf16>, tensor<8x33x8x128x128xbf16>, tensor<1x65x32x128x128xbf16>) {
  %m, %f = braid.lsm.state_walk V %k, %k log_decay(%g) state(%s) chunks(%c) {chunk_size = 64 : i64, scale = 1.0 : f64}
    : (tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xf32>, tensor<8x8x128x128xf32>, tensor<8x33x4xi32>) -> (tensor<8x33x8x128x128xbf16>, tensor<8x8x128x128xf32>)
  %d, %e = braid.lsm.state_walk V %k, %k log_decay(%g) state(%f) chunks(%c) {adjoint, chunk_size = 64 : i64, scale = 0.5 : f64}
    : (tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xf32>, tensor<8x8x128x128xf32>, tensor<8x33x4xi32>) -> (tensor<8x33x8x128x128xbf16>, tensor<8x8x128x128xf32>)
  %n, %h = braid.lsm.state_walk S %k1, %k1 log_decay(%g1) state(%s1) chunks(%c1) {chunk_size = 128 : i64, scale = 1.0 : f64}
    : (tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<1x8192x32xf32>, tensor<1x32x128x128xf32>, tensor<1x65x4xi32>) -> (tensor<1x65x32x128x128xbf16>, tensor<1x32x128x128xf32>)
  return %m, %d, %n : tensor<8x33x8x128x128xbf16>, tensor<8x33x8x128x128xbf16>, tensor<1x65x32x128x128xbf16>
}

// Eight heads of one long row: its chunks are walked in eight segments, for what each of them leaves (the last one's nobody needs), then for states.
// CHECK-LABEL: func.func @segments(
// CHECK: %[[ENDS:.*]]:2 = tile.launch @lsm_state_walk_ends_v_h8_k128_v128_c64_w128_r64_p8_bf16_pbf16 grid [14, 8, 1]{{.*}} -> (tensor<7x1x8x128x128xf32>, tensor<7x1x8x128xf32>)
// CHECK: tile.launch @lsm_state_walk_v_h8_k128_v128_c64_w128_r64_p8_bf16_pbf16 grid [16, 8, 1]({{.*}}%[[ENDS]]#0, %[[ENDS]]#1)
// CHECK-LABEL: func.func @lsm_state_walk_v_h8_k128_v128_c64_w128_r64_bf16_pbf16(
// CHECK: scf.for
// CHECK: tile.store {{.*}} : vector<64x128xbf16>, memref<?x?x8x128x128xbf16>
// CHECK: %[[C:.*]] = tile.cumsum {{.*}} {axis = 0 : i64, reverse} : vector<64x64xf32>
// CHECK: tile.rows %[[C]]
// CHECK: tile.dot {{.*}} {transpose_a} : vector<64x64xbf16>, vector<64x128xbf16>, vector<64x128xf32>
// CHECK-LABEL: func.func @lsm_state_walk_v_h8_k128_v128_c64_w128_r64_p8_bf16_pbf16(
// CHECK: tile.store {{.*}} limit %{{.*}} : vector<64x128xf32>, memref<?x8x128x128xf32>
func.func @segments(%k: tensor<1x16384x8x128xbf16>, %g: tensor<1x16384x8x128xf32>, %s: tensor<1x8x128x128xf32>, %c: tensor<1x257x4xi32>) -> tensor<1x257x8x128x128xbf16> {
  %m, %f = braid.lsm.state_walk V %k, %k log_decay(%g) state(%s) chunks(%c) {chunk_size = 64 : i64, scale = 1.0 : f64}
    : (tensor<1x16384x8x128xbf16>, tensor<1x16384x8x128xbf16>, tensor<1x16384x8x128xf32>, tensor<1x8x128x128xf32>, tensor<1x257x4xi32>) -> (tensor<1x257x8x128x128xbf16>, tensor<1x8x128x128xf32>)
  return %m : tensor<1x257x8x128x128xbf16>
}
