// Products of experts, of a GPU, in tiles of 128 x 256: their rows, and the gradient of their weights.
module {
  func.func @step(%x: tensor<1x8192x512xbf16> {braid.name = "x", braid.role = "input"}, %w: tensor<8x512x1024xbf16> {braid.name = "w", braid.role = "input"}, %dy: tensor<1x8192x1024xbf16> {braid.name = "dy", braid.role = "input"}, %offsets: tensor<9xi32> {braid.name = "offsets", braid.role = "input"}) -> (tensor<1x8192x1024xbf16> {braid.name = "y", braid.role = "output"}, tensor<8x512x1024xf32> {braid.name = "dw", braid.role = "output"}) attributes {braid.entry} {
    %y = braid.moe.grouped_linear %x offsets(%offsets) weights(%w) : (tensor<1x8192x512xbf16>, tensor<9xi32>, tensor<8x512x1024xbf16>) -> tensor<1x8192x1024xbf16>
    %dw = braid.moe.grouped_linear_grad_weight %x offsets(%offsets) cotangents(%dy) : (tensor<1x8192x512xbf16>, tensor<9xi32>, tensor<1x8192x1024xbf16>) -> tensor<8x512x1024xf32>
    return %y, %dw : tensor<1x8192x1024xbf16>, tensor<8x512x1024xf32>
  }
}
