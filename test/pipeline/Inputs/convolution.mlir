// The gradient of a convolution that ends with the norm of its heads (q and k of deltanet, gated_deltanet and kda).
!y = tensor<8x2048x8x128xbf16>
!u = tensor<1024x4xf32>
!s = tensor<8x3x1024xbf16>
!d = tensor<8x2048xi32>
func.func @normed_backward(%x: !y {braid.name = "x", braid.role = "input"}, %w: !u {braid.name = "w", braid.role = "input"}, %documents: !d {braid.name = "documents", braid.role = "input"}, %tail: !s {braid.name = "tail", braid.role = "input"}, %dn: !y {braid.name = "dn", braid.role = "input"}, %dtail: !s {braid.name = "dtail", braid.role = "input"}) -> (!y {braid.name = "dx"}, !u {braid.name = "dw"}, !s {braid.name = "dt"}) attributes {braid.entry} {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (!y, !u, !d, !s) -> (!y, !s)
  %q = braid.activation %y {kind = "silu"} : (!y) -> !y
  %dq = braid.rows_grad "braid.l2_norm"(%q) cotangents(%dn) {op_attributes = {eps = 1.0e-6 : f64}, wanted = array<i64: 0>} : (!y, !y) -> !y
  %dy = braid.rows_grad "braid.activation"(%y) cotangents(%dq) {op_attributes = {kind = "silu"}, wanted = array<i64: 0>} : (!y, !y) -> !y
  %dx, %dw, %dt = braid.short_conv_grad %x, %w, %documents, %tail, %dy, %dtail : (!y, !u, !d, !s, !y, !s) -> (!y, !u, !s)
  return %dx, %dw, %dt : !y, !u, !s
}
