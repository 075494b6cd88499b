// Phase `kernels`, written by hand: a block that has a multiprocessor of any GPU for itself asks for the lines of what its branch reads.
module @asked {
  func.func private @alone(%g: memref<32x128xf32> {tile.name = "g"}, %k: memref<32x128xbf16> {tile.name = "k"}, %m: memref<384x128xbf16> {tile.name = "m"}, %y: memref<32x128xf32> {tile.name = "y"})
      attributes {tile.kernel, tile.grid = ["one"]} {
    %c0 = arith.constant 0 : index
    %c128 = arith.constant 128 : index
    %c256 = arith.constant 256 : index
    %least = arith.constant -32.0 : f32
    %zero = arith.constant dense<0.0> : vector<32x128xf32>
    %gv = tile.load %g[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x128xf32>, vector<32x128xf32>
    %c = tile.cumsum %gv {axis = 0 : i64} : vector<32x128xf32>
    %sums = tile.reduce min %c {axis = 0 : i64} : vector<32x128xf32>, vector<128xf32>
    %sum = tile.reduce min %sums {axis = 0 : i64} : vector<128xf32>, f32
    %mild = arith.cmpf olt, %least, %sum : f32
    scf.if %mild {
      %e = math.exp %c : vector<32x128xf32>
      %kb = tile.load %k[%c0, %c0] {dims = array<i64: 0, 1>} : memref<32x128xbf16>, vector<32x128xbf16>
      %m0 = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<384x128xbf16>, vector<128x128xbf16>
      %m1 = tile.load %m[%c128, %c0] {dims = array<i64: 0, 1>} : memref<384x128xbf16>, vector<128x128xbf16>
      %m2 = tile.load %m[%c256, %c0] {dims = array<i64: 0, 1>} : memref<384x128xbf16>, vector<128x128xbf16>
      %p = tile.dot %kb, %m0, %zero : vector<32x128xbf16>, vector<128x128xbf16>, vector<32x128xf32>
      %q = arith.mulf %p, %e : vector<32x128xf32>
      %t = arith.truncf %q : vector<32x128xf32> to vector<32x128xbf16>
      %n = tile.dot %t, %m1, %q : vector<32x128xbf16>, vector<128x128xbf16>, vector<32x128xf32>
      %o = tile.dot %t, %m2, %n : vector<32x128xbf16>, vector<128x128xbf16>, vector<32x128xf32>
      %w = tile.dot %kb, %m2, %o : vector<32x128xbf16>, vector<128x128xbf16>, vector<32x128xf32>
      %u = arith.truncf %w : vector<32x128xf32> to vector<32x128xbf16>
      %x = tile.dot %u, %m1, %w : vector<32x128xbf16>, vector<128x128xbf16>, vector<32x128xf32>
      %z = arith.truncf %x : vector<32x128xf32> to vector<32x128xbf16>
      %v = tile.dot %z, %m0, %x : vector<32x128xbf16>, vector<128x128xbf16>, vector<32x128xf32>
      %b = tile.cumsum %v {axis = 0 : i64, reverse} : vector<32x128xf32>
      tile.store %b, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<32x128xf32>, memref<32x128xf32>
    }
    return
  }
  func.func @step(%g: tensor<32x128xf32> {braid.name = "g"}, %k: tensor<32x128xbf16> {braid.name = "k"}, %m: tensor<384x128xbf16> {braid.name = "m"})
      -> (tensor<32x128xf32> {braid.name = "y"}) attributes {braid.entry} {
    %y = tile.launch @alone grid [1] (%g, %k, %m) {arg_names = ["g", "k", "m"], result_names = ["y"], inplace = array<i64: -1>, scalars = {}} : (tensor<32x128xf32>, tensor<32x128xbf16>, tensor<384x128xbf16>) -> tensor<32x128xf32>
    return %y : tensor<32x128xf32>
  }
}
