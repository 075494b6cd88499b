// Phase `kernels`, written by hand: three layers of y = x + w, kept, and an update of the weights from what was kept.
module @layers {
  func.func private @add(%x: memref<?x4xf32> {tile.name = "x"}, %y: memref<?x4xf32> {tile.name = "y"}, %o: memref<?x4xf32> {tile.name = "o"},
                         %s: f32 {tile.name = "s"}) attributes {tile.kernel, tile.grid = ["row"]} {
    %i = tile.program : index
    %c0 = arith.constant 0 : index
    %a = tile.load %x[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x4xf32>, vector<1x4xf32>
    %b = tile.load %y[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x4xf32>, vector<1x4xf32>
    %scale = vector.broadcast %s : f32 to vector<1x4xf32>
    %m = arith.mulf %b, %scale : vector<1x4xf32>
    %c = arith.addf %a, %m : vector<1x4xf32>
    tile.store %c, %o[%i, %c0] {dims = array<i64: 0, 1>} : vector<1x4xf32>, memref<?x4xf32>
    return
  }
  func.func private @layer(%x: tensor<2x4xf32>, %w: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
    %a = tile.launch @add grid [2] (%x, %w) {arg_names = ["x", "y"], result_names = ["o"], inplace = array<i64: -1>, scalars = {s = 1.0 : f32}} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %b = tile.launch @add grid [2] (%a, %x) {arg_names = ["x", "y"], result_names = ["o"], inplace = array<i64: 0>, scalars = {s = 0.5 : f32}} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    return %b, %a : tensor<2x4xf32>, tensor<2x4xf32>
  }
  func.func @step(%x: tensor<2x4xf32> {braid.name = "x"}, %w: tensor<3x2x4xf32> {braid.name = "layers.{}.w", braid.role = "parameter", braid.layers = array<i32: 0, 1, 2>})
      -> (tensor<2x4xf32> {braid.name = "y"}, tensor<2x2xf32> {braid.name = "product"},
          tensor<3x2x4xf32> {braid.name = "layers.{}.w", braid.role = "parameter", braid.layers = array<i32: 0, 1, 2>}) attributes {braid.entry} {
    %y, %all = braid.repeat %x, %w {count = 3 : i64, carried = 1 : i64} : (tensor<2x4xf32>, tensor<3x2x4xf32>) -> (tensor<2x4xf32>, tensor<3x2x4xf32>) {
    ^bb0(%c: tensor<2x4xf32>, %wl: tensor<2x4xf32>):
      %r:2 = func.call @layer(%c, %wl) : (tensor<2x4xf32>, tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>)
      braid.yield %r#0, %r#1 : (tensor<2x4xf32>, tensor<2x4xf32>) -> ()
    }
    %new = braid.repeat %w, %all {count = 3 : i64, carried = 0 : i64, reverse} : (tensor<3x2x4xf32>, tensor<3x2x4xf32>) -> (tensor<3x2x4xf32>) {
    ^bb0(%wl: tensor<2x4xf32>, %s: tensor<2x4xf32>):
      %n = tile.launch @add grid [2] (%wl, %s) {arg_names = ["x", "y"], result_names = ["o"], inplace = array<i64: 0>, scalars = {s = 0.5 : f32}} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      braid.yield %n : (tensor<2x4xf32>) -> ()
    }
    %product = tile.gemm %y, %x {a_columns = 4 : i64, b_columns = 4 : i64, c_columns = 2 : i64, transpose_b} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x2xf32>
    return %y, %product, %new : tensor<2x4xf32>, tensor<2x2xf32>, tensor<3x2x4xf32>
  }
}
