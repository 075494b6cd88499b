// RUN: not braid-opt %s --braid-decide-chunk-size 2>&1 | FileCheck %s

// A size that does not fit is passed over; where no size has kernels, the reason of the first is the error.
// CHECK: error: 'braid.lsm.scan' op has no kernels in chunks of any size: 'braid.lsm.scan' op class VH has no chunk form; braid-classify-scans makes it D
func.func @no_chunk_form(%q: tensor<1x64x2x8xf32>, %b: tensor<1x64x2xf32>, %m: tensor<1x2x8x8xf32>, %d: tensor<1x64xi32>) -> tensor<1x64x2x8xf32> {
  %o, %f = braid.lsm.scan VH %q, %q, %q log_decay(%q) beta(%b) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x64x2x8xf32>, tensor<1x64x2x8xf32>, tensor<1x64x2x8xf32>, tensor<1x64x2x8xf32>, tensor<1x64x2xf32>, tensor<1x2x8x8xf32>, tensor<1x64xi32>)
      -> (tensor<1x64x2x8xf32>, tensor<1x2x8x8xf32>)
  return %o : tensor<1x64x2x8xf32>
}
