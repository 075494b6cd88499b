// RUN: braid-opt %s --braid-chunk-tiling=gpu | FileCheck %s
// RUN: braid-opt %s --braid-chunk-tiling | FileCheck %s --check-prefix=CPU

// What products alone read of chunks is bf16 where tokens are: in-states m, their cotangents dx, and dense transitions, whose decays are
// three rows behind them. What is added up (x, dM) stays f32, and so does everything on a CPU.
!tok = tensor<2x100x2x16xbf16>
!gate = tensor<2x100x2xf32>
!channels = tensor<2x100x2x16xf32>
!state = tensor<2x2x16x16xf32>
!doc = tensor<2x100xi32>

// CHECK-LABEL: func.func @dense
// CHECK: braid.lsm.chunk_state GH {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x19x16xbf16>)
// CHECK: braid.lsm.state_scan GH {{.*}} -> (tensor<2x5x2x16x16xbf16>, tensor<2x2x16x16xf32>)
// CHECK: braid.lsm.chunk_output_grad_state GH {{.*}} -> tensor<2x5x2x16x16xf32>
// CHECK: braid.lsm.state_scan_grad GH {{.*}} -> (tensor<2x5x2x16x16xbf16>, tensor<2x2x16x16xf32>)
// CPU-LABEL: func.func @dense
// CPU: braid.lsm.chunk_state GH {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x16x16xf32>)
// CPU: braid.lsm.state_scan GH {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x2x16x16xf32>)
func.func @dense(%q: !tok, %g: !gate, %b: !gate, %m: !state, %d: !doc) -> (!tok, !state) {
  %r:6 = braid.lsm.scan_grad GH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) cotangents(%q, %m) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!tok, !tok, !tok, !gate, !gate, !state, !doc, !tok, !state) -> (!tok, !tok, !tok, !gate, !gate, !state)
  return %r#0, %r#5 : !tok, !state
}

// Decays of channels are logarithms, which are not rounded.
// CHECK-LABEL: func.func @channels
// CHECK: braid.lsm.chunk_state V {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x16xf32>)
// CHECK: braid.lsm.state_scan V {{.*}} -> (tensor<2x5x2x16x16xbf16>, tensor<2x2x16x16xf32>)
// CHECK: braid.lsm.chunk_output V
func.func @channels(%q: !tok, %g: !channels, %m: !state, %d: !doc) -> (!tok, !state) {
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!tok, !tok, !tok, !channels, !state, !doc) -> (!tok, !state)
  return %o, %f : !tok, !state
}
