// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s
// RUN: braid-opt %s --braid-outline | FileCheck %s --check-prefix=CPU

!m = tensor<1x72x8x128x128xf32>
!p = tensor<1x72x8x128xf32>
!s = tensor<1x8x128x128xf32>
!c = tensor<1x72x4xi32>

// A scan over the states of one row with 8 heads has 128 programs on a GPU, of 8 value columns each.
// CHECK: tile.launch @lsm_state_scan_v_h8_k128_v128_w8_f32 grid [16, 8, 1]
// CPU: tile.launch @lsm_state_scan_v_h8_k128_v128_f32 grid [2, 8, 1]
func.func @scan(%x: !m, %p: !p, %s: !s, %c: !c) -> (!m, !s) {
  %m, %f = braid.lsm.state_scan V %x transition(%p) initial_state(%s) chunks(%c) : (!m, !p, !s, !c) -> (!m, !s)
  return %m, %f : !m, !s
}

// A token that attends to a cache: 4 rows and 2 groups are 8 programs, so 4 for each share a cache of 1100 rows. A short cache has one.
// CHECK-LABEL: func.func @decode(
func.func @decode(%q: tensor<4x1x4x16xf32>, %k: tensor<4x1100x2x16xf32>, %v: tensor<4x1100x2x16xf32>, %short: tensor<4x400x2x16xf32>, %documents: tensor<4x1xi32>)
    -> (tensor<4x1x4x16xf32>, tensor<4x1x4x16xf32>) {
  // CHECK: %[[PARTS:.*]]:2 = tile.launch @attn_decode_h4_g2_d16_f32_cache_parts4 grid [2, 4, 4]{{.*}} -> (tensor<4x4x4x16xf32>, tensor<4x2x4x4xf32>)
  // CHECK: tile.launch @attn_decode_merge_h4_g2_d16_f32_parts4 grid [4, 4](%[[PARTS]]#0, %[[PARTS]]#1)
  %o, %lse = braid.attn.causal %q, %k, %v, %documents {cache, prefix = 0 : i64, scale = 0.25 : f64, window = 0 : i64}
    : (tensor<4x1x4x16xf32>, tensor<4x1100x2x16xf32>, tensor<4x1100x2x16xf32>, tensor<4x1xi32>) -> (tensor<4x1x4x16xf32>, tensor<4x4x1xf32>)
  // CHECK: tile.launch @attn_decode_h4_g2_d16_f32_cache grid [2, 4]
  %p, %lse2 = braid.attn.causal %q, %short, %short, %documents {cache, prefix = 0 : i64, scale = 0.25 : f64, window = 0 : i64}
    : (tensor<4x1x4x16xf32>, tensor<4x400x2x16xf32>, tensor<4x400x2x16xf32>, tensor<4x1xi32>) -> (tensor<4x1x4x16xf32>, tensor<4x4x1xf32>)
  return %o, %p : tensor<4x1x4x16xf32>, tensor<4x1x4x16xf32>
}
