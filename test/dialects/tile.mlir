// RUN: braid-opt %s | braid-opt | FileCheck %s

// CHECK-LABEL: func.func @every_op
// CHECK-SAME: tile.grid = ["chunk", "head"], tile.kernel
func.func @every_op(%x: memref<?x?x2x32xf32> {tile.name = "x"}, %rows: memref<?xi32> {tile.name = "rows"},
                    %y: memref<?x32xf32, strided<[?, 1]>> {tile.name = "y"}, %hi: index {tile.name = "hi"}, %scale: f32 {tile.name = "scale"})
    attributes {tile.kernel, tile.grid = ["chunk", "head"]} {
  // CHECK: tile.program : index, index
  %n, %h = tile.program : index, index
  %c0 = arith.constant 0 : index
  // CHECK: tile.load %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] limit %{{.*}} {dims = array<i64: 1, 3>} : memref<?x?x2x32xf32>, vector<16x32xf32>
  %q = tile.load %x[%c0, %n, %h, %c0] limit %hi {dims = array<i64: 1, 3>} : memref<?x?x2x32xf32>, vector<16x32xf32>
  %i = tile.load %rows[%n] {dims = array<i64: 0>} : memref<?xi32>, vector<16xi32>
  // CHECK: tile.load %{{.*}} rows %{{.*}} : vector<16xi32> {dims = array<i64: 1, 3>}
  %g = tile.load %x[%c0, %c0, %h, %c0] rows %i : vector<16xi32> {dims = array<i64: 1, 3>} : memref<?x?x2x32xf32>, vector<16x32xf32>
  %zero = arith.constant dense<0.0> : vector<16x16xf32>
  // CHECK: tile.dot %{{.*}}, %{{.*}}, %{{.*}} {transpose_b} : vector<16x32xf32>, vector<16x32xf32>, vector<16x16xf32>
  %s = tile.dot %q, %g, %zero {transpose_b} : vector<16x32xf32>, vector<16x32xf32>, vector<16x16xf32>
  // CHECK: tile.mask strict_lower
  %m = tile.mask strict_lower %s : vector<16x16xf32>
  // CHECK: tile.solve %{{.*}}, %{{.*}} {transpose} : vector<16x16xf32>, vector<16x32xf32>
  %u = tile.solve %m, %q {transpose} : vector<16x16xf32>, vector<16x32xf32>
  // CHECK: tile.cumsum %{{.*}} {axis = 0 : i64, reverse}
  %c = tile.cumsum %u {axis = 0 : i64, reverse} : vector<16x32xf32>
  // CHECK: tile.reduce max %{{.*}} {axis = 1 : i64} : vector<16x32xf32>, vector<16xf32>
  %r = tile.reduce max %c {axis = 1 : i64} : vector<16x32xf32>, vector<16xf32>
  // CHECK: tile.reduce add %{{.*}} {axis = 0 : i64} : vector<16xf32>, f32
  %t = tile.reduce add %r {axis = 0 : i64} : vector<16xf32>, f32
  // CHECK: tile.expand %{{.*}} {axis = 1 : i64} : vector<16xf32>, vector<16x32xf32>
  %e = tile.expand %r {axis = 1 : i64} : vector<16xf32>, vector<16x32xf32>
  // CHECK: tile.rows %{{.*}}[%{{.*}}] : vector<16x32xf32>, vector<4x32xf32>
  %p = tile.rows %e[%c0] : vector<16x32xf32>, vector<4x32xf32>
  // CHECK: tile.rows %{{.*}}[%{{.*}}] : vector<16x32xf32>, vector<32xf32>
  %o = tile.rows %e[%c0] : vector<16x32xf32>, vector<32xf32>
  // CHECK: tile.insert_rows %{{.*}}, %{{.*}}[%{{.*}}] : vector<4x32xf32>, vector<16x32xf32>
  %w = tile.insert_rows %p, %c[%c0] : vector<4x32xf32>, vector<16x32xf32>
  // CHECK: tile.slice %{{.*}} {offset = 8 : i64} : vector<16x32xf32>, vector<16x24xf32>
  %a = tile.slice %w {offset = 8 : i64} : vector<16x32xf32>, vector<16x24xf32>
  %b = tile.slice %w {offset = 0 : i64} : vector<16x32xf32>, vector<16x8xf32>
  // CHECK: tile.concat %{{.*}}, %{{.*}} : vector<16x24xf32>, vector<16x8xf32> -> vector<16x32xf32>
  %d = tile.concat %a, %b : vector<16x24xf32>, vector<16x8xf32> -> vector<16x32xf32>
  // CHECK: tile.transpose %{{.*}} : vector<16x32xf32>, vector<32x16xf32>
  %f = tile.transpose %d : vector<16x32xf32>, vector<32x16xf32>
  // CHECK: tile.iota {axis = 1 : i64} : vector<32x16xi32>
  %k = tile.iota {axis = 1 : i64} : vector<32x16xi32>
  // CHECK: tile.diagonal %{{.*}} : vector<16x16xf32>, vector<16xf32>
  %own = tile.diagonal %m : vector<16x16xf32>, vector<16xf32>
  // CHECK: tile.pick %{{.*}}[%{{.*}}] : vector<16x32xf32>, vector<16xi32>, vector<16xf32>
  %picked = tile.pick %d[%i] : vector<16x32xf32>, vector<16xi32>, vector<16xf32>
  // CHECK: tile.store %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}] limit %{{.*}} {dims = array<i64: 0, 1>}
  tile.store %d, %y[%n, %c0] limit %hi {dims = array<i64: 0, 1>} : vector<16x32xf32>, memref<?x32xf32, strided<[?, 1]>>
  // CHECK: tile.store %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}] limit %{{.*}} rows %{{.*}} : vector<16xi32> {dims = array<i64: 0, 1>} : vector<16x32xf32>
  tile.store %d, %y[%c0, %c0] limit %hi rows %i : vector<16xi32> {dims = array<i64: 0, 1>} : vector<16x32xf32>, memref<?x32xf32, strided<[?, 1]>>
  // CHECK: tile.cumsum %{{.*}} {axis = 0 : i64} : vector<16xi32>
  %j = tile.cumsum %i {axis = 0 : i64} : vector<16xi32>
  // CHECK: tile.store %{{.*}}, %{{.*}}[%{{.*}}] rows %{{.*}} : vector<16xi32> {dims = array<i64: 0>} : vector<16xi32>, memref<?xi32>
  tile.store %i, %rows[%c0] rows %j : vector<16xi32> {dims = array<i64: 0>} : vector<16xi32>, memref<?xi32>
  return
}

// CHECK-LABEL: func.func @launches
func.func @launches(%q: tensor<2x256x2x32xf32>, %w: tensor<64x320xf32>, %c: tensor<2x256x320xf32>) -> tensor<2x256x320xf32> {
  // CHECK: tile.launch @every_op grid [8, 2](%{{.*}})
  %o = tile.launch @every_op grid [8, 2](%q) {arg_names = ["x"], result_names = ["y"], inplace = array<i64: 0>, scalars = {scale = 0.125 : f32}} : (tensor<2x256x2x32xf32>) -> tensor<2x256x2x32xf32>
  // CHECK: tile.gemm %{{.*}}, %{{.*}}, %{{.*}} {a_columns = 64 : i64, b_columns = 320 : i64, c_columns = 320 : i64}
  %r = tile.gemm %o, %w, %c {a_columns = 64 : i64, b_columns = 320 : i64, c_columns = 320 : i64} : (tensor<2x256x2x32xf32>, tensor<64x320xf32>, tensor<2x256x320xf32>) -> tensor<2x256x320xf32>
  return %r : tensor<2x256x320xf32>
}
