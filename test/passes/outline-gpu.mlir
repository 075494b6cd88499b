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
