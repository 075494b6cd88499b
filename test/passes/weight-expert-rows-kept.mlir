// RUN: braid-opt %s --braid-weight-expert-rows 2>&1 | FileCheck %s --check-prefixes=WARN,CHECK
// WARN: warning: no training step combines rows of experts that can be weighted before their last product: --expert-weights=rows changes nothing
!x = tensor<2x16x32xf32>
!rows = tensor<1x64x32xf32>
!wide = tensor<1x64x48xf32>
!ids = tensor<2x16x2xi32>
!k = tensor<2x16x2xf32>
!perm = tensor<64xi32>
!i = tensor<1xi32>
!w2 = tensor<4x48x32xf32>

// In a training step, too, not where others read what the last product reads, or its rows; or no row-wise op makes it.
// CHECK-LABEL: func.func @kept(
// CHECK-NOT:     row_weights
// CHECK:         return
func.func @kept(%x: !wide, %weights: !k, %perm: !perm, %inverse: !ids, %exchange: !i, %offsets: tensor<5xi32>, %w2: !w2) -> (!x, !x, !x, !wide, !rows)
    attributes {braid.train = {}} {
  %hidden = braid.activation %x {kind = "silu"} : (!wide) -> !wide
  %out = braid.moe.grouped_linear %hidden offsets(%offsets) weights(%w2) : (!wide, tensor<5xi32>, !w2) -> !rows
  %y, %returned = braid.moe.combine %out weights(%weights) plan(%perm, %inverse, %exchange) : (!rows, !k, !perm, !ids, !i) -> (!x, !rows)
  %seen = braid.activation %x {kind = "tanh"} : (!wide) -> !wide
  %rows = braid.moe.grouped_linear %seen offsets(%offsets) weights(%w2) : (!wide, tensor<5xi32>, !w2) -> !rows
  %z, %again = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (!rows, !k, !perm, !ids, !i) -> (!x, !rows)
  %given = braid.moe.grouped_linear %x offsets(%offsets) weights(%w2) : (!wide, tensor<5xi32>, !w2) -> !rows
  %u, %third = braid.moe.combine %given weights(%weights) plan(%perm, %inverse, %exchange) : (!rows, !k, !perm, !ids, !i) -> (!x, !rows)
  return %y, %z, %u, %hidden, %rows : !x, !x, !x, !wide, !rows
}
