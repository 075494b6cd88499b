// What makes a gradient of a weight, all kernels of it, is marked: only the optimizer needs it.
// RUN: braid-opt %s --braid-outline='gpu beside' | FileCheck %s --check-prefix=MARK
// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s --check-prefix=PLAIN

!x = tensor<1x4096x512xbf16>
!dy = tensor<1x4096x256xbf16>

// MARK-LABEL: func.func private @layer(
// MARK: tile.launch @gemm_parts_{{.*}}cmd.beside
// MARK: tile.launch @sum_rows_{{.*}}cmd.beside
// MARK-NOT: cmd.beside
// MARK: return
// PLAIN-LABEL: func.func private @layer(
// PLAIN-NOT: cmd.beside
func.func private @layer(%x: !x, %dy: !dy, %w: tensor<512x256xbf16>) -> (!x, tensor<512x256xf32>) {
  %dw = braid.linear_grad_weight %x cotangents(%dy) : (!x, !dy) -> tensor<512x256xf32>
  %dx = braid.linear_grad_data cotangents(%dy) weights(%w) : (!dy, tensor<512x256xbf16>) -> !x
  return %dx, %dw : !x, tensor<512x256xf32>
}
