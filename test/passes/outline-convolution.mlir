// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s
// RUN: braid-opt %s --braid-outline | FileCheck %s --check-prefix=CPU

// A token has more programs in blocks of few columns.
// CHECK-LABEL: func.func @token(
// CHECK: tile.launch @short_conv_d128_k4_bf16_wf32 grid [1, 2, 2]
func.func @token(%x: tensor<2x1x128xbf16>, %w: tensor<128x4xf32>, %documents: tensor<2x1xi32>, %tail: tensor<2x3x128xbf16>) -> (tensor<2x1x128xbf16>, tensor<2x3x128xbf16>) {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (tensor<2x1x128xbf16>, tensor<128x4xf32>, tensor<2x1xi32>, tensor<2x3x128xbf16>) -> (tensor<2x1x128xbf16>, tensor<2x3x128xbf16>)
  return %y, %new : tensor<2x1x128xbf16>, tensor<2x3x128xbf16>
}

// The gradient of a convolution is one kernel, with sums of parts of the tokens, and the tail's. A GPU's threads walk along the tokens with columns of their own:
// what they have read of dy serves all taps, and sums stay in their registers. So does the convolution, but of few tokens.
// CHECK-LABEL: func.func @convolution(
// CHECK: tile.launch @short_conv_walk_d128_k4_bf16_wf32 grid [1, 2, 65]{{.*}}{span = 16 : index}
// CHECK: %[[GRAD:.*]]:3 = tile.launch @short_conv_grad_d128_k4_bf16_wf32 grid [1, 2, 65]{{.*}}{span = 16 : index}{{.*}} -> (tensor<2x1024x128xbf16>, tensor<2x3x128xbf16>, tensor<65x2x128x4xf32>)
// CHECK: %[[EACH:.*]] = braid.reshape %[[GRAD]]#2 : (tensor<65x2x128x4xf32>)
// CHECK: tile.launch @sum_rows_f32_32x32 grid [16]{{.*}}count = 130 : index
// CHECK-LABEL: func.func @short_conv_walk_d128_k4_bf16_wf32(
// CHECK: scf.for {{.*}} -> (vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>)
// CHECK: tile.load %arg2[{{.*}}] {dims = {{.*}}} : memref<?x?xi32>, vector<1xi32>
// CHECK-LABEL: func.func @short_conv_grad_d128_k4_bf16_wf32(
// CHECK: scf.for {{.*}} -> (vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>)
// A token that exists is in its document: three taps ask, of tokens that exist, too.
// CHECK: scf.for {{.*}} -> (vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>)
// CHECK-COUNT-3: tile.load %arg2[{{.*}}] {dims = {{.*}}} : memref<?x?xi32>, vector<1xi32>
// CHECK-NOT: tile.load %arg2
// CHECK: scf.yield
// CHECK: scf.for {{.*}} -> (vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>)
// CHECK-COUNT-3: tile.load %arg2[{{.*}}] {dims = {{.*}}} : memref<?x?xi32>, vector<1xi32>
// CHECK-NOT: tile.load %arg2
// CHECK: scf.yield
// CPU-LABEL: func.func @convolution(
// CPU: tile.launch @short_conv_d128_k4_bf16_wf32 grid [32, 2, 2]
// CPU: tile.launch @short_conv_grad_d128_k4_bf16_wf32 grid [2, 2, 17]{{.*}}{span = 64 : index
// CPU-LABEL: func.func @short_conv_grad_d128_k4_bf16_wf32(
// CPU: scf.for {{.*}} -> (vector<64xf32>, vector<64xf32>, vector<64xf32>, vector<64xf32>)
func.func @convolution(%x: tensor<2x1024x128xbf16>, %w: tensor<128x4xf32>, %documents: tensor<2x1024xi32>, %tail: tensor<2x3x128xbf16>) -> (tensor<2x1024x128xbf16>, tensor<128x4xf32>, tensor<2x3x128xbf16>) {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (tensor<2x1024x128xbf16>, tensor<128x4xf32>, tensor<2x1024xi32>, tensor<2x3x128xbf16>) -> (tensor<2x1024x128xbf16>, tensor<2x3x128xbf16>)
  %dx, %dw, %dt = braid.short_conv_grad %x, %w, %documents, %tail, %y, %new : (tensor<2x1024x128xbf16>, tensor<128x4xf32>, tensor<2x1024xi32>, tensor<2x3x128xbf16>, tensor<2x1024x128xbf16>, tensor<2x3x128xbf16>) -> (tensor<2x1024x128xbf16>, tensor<128x4xf32>, tensor<2x3x128xbf16>)
  return %dx, %dw, %dt : tensor<2x1024x128xbf16>, tensor<128x4xf32>, tensor<2x3x128xbf16>
}
