// The gradient of a gated norm: its sums along rows are shuffles in a loop.
module attributes {braid.max_documents = 1 : i64} {
  func.func @norms(%x: tensor<8x2048x8x128xbf16> {braid.name = "x", braid.role = "input"}, %g: tensor<8x2048x8x128xbf16> {braid.name = "g", braid.role = "input"}, %w: tensor<128xf32> {braid.name = "w", braid.role = "input"}, %dy: tensor<8x2048x8x128xbf16> {braid.name = "dy", braid.role = "input"}) -> (tensor<8x2048x8x128xbf16> {braid.name = "dx", braid.role = "output"}, tensor<8x2048x8x128xbf16> {braid.name = "dg", braid.role = "output"}, tensor<128xf32> {braid.name = "dw", braid.role = "output"}) attributes {braid.entry} {
    %d:3 = braid.rows_grad "braid.gated_norm"(%x, %g, %w) cotangents(%dy) {op_attributes = {activation = "silu", eps = 1.0e-05 : f64}, wanted = array<i64: 0, 1, 2>} : (tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<128xf32>, tensor<8x2048x8x128xbf16>) -> (tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<128xf32>)
    return %d#0, %d#1, %d#2 : tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<128xf32>
  }
}
