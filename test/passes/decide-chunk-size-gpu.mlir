// RUN: braid-opt %s --braid-decide-chunk-size=shared-bytes=232448 | FileCheck %s

// Outputs of 128 tokens of 128 channels would have a multiprocessor for themselves and wait with nothing beside them. Their states are added up in one walk, so the f32
// sums of the kernels that are weighed count as what the walk writes: else longer chunks would seem to save most of their bytes.
// CHECK-LABEL: func.func @channels
// CHECK: braid.lsm.scan {{.*}}braid.chunk_costs = "16: {{[0-9]+}}, 32: {{[0-9]+}}, 64: {{[0-9]+}}, 128: {{[0-9]+}}"{{.*}}chunk_size = 64
func.func @channels(%q: tensor<8x2048x8x128xbf16>, %g: tensor<8x2048x8x128xf32>, %m: tensor<8x8x128x128xf32>, %d: tensor<8x2048xi32>) -> tensor<8x2048x8x128xbf16> {
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xf32>, tensor<8x8x128x128xf32>, tensor<8x2048xi32>)
      -> (tensor<8x2048x8x128xbf16>, tensor<8x8x128x128xf32>)
  return %o : tensor<8x2048x8x128xbf16>
}
