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

// Chunks no longer than keys are wide: transitions stay products of as few rows, and the output reads what the scan wrote. Class D has twice the rows
// that write, and its decays are of channels. A CPU has matrices.
// CHECK-LABEL: func.func @factors
// CHECK: %[[U:.*]], %[[W:.*]], %[[R:.*]], %[[P:.*]] = braid.lsm.chunk_factors D {{.*}} -> (tensor<2x8x2x32x16xbf16>, tensor<2x8x2x32x16xbf16>, tensor<2x8x2x16x16xbf16>, tensor<2x8x2x1x16xf32>)
// CHECK: %[[M:.*]], %[[Z:.*]], %{{.*}} = braid.lsm.factor_scan D %[[U]] factors(%[[W]], %[[R]], %[[P]]) {{.*}} -> (tensor<2x8x2x16x16xbf16>, tensor<2x8x2x16x16xbf16>, tensor<2x2x16x16xf32>)
// CHECK: braid.lsm.chunk_output D {{.*}} in_state(%[[M]]) written(%[[Z]])
// CPU-LABEL: func.func @factors
// CPU: braid.lsm.chunk_state D
// CPU: braid.lsm.state_scan D
func.func @factors(%q: !tok, %g: !channels, %m: !state, %d: !doc) -> (!tok, !state) {
  %o, %f = braid.lsm.scan D %q, %q, %q log_decay(%g) a(%q) b(%q) initial_state(%m) documents(%d) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!tok, !tok, !tok, !channels, !tok, !tok, !state, !doc) -> (!tok, !state)
  return %o, %f : !tok, !state
}

// CHECK-LABEL: func.func @factors_grad
// CHECK: %[[F:.*]], %[[W:.*]], %[[R:.*]], %[[P:.*]] = braid.lsm.chunk_factors GH {{.*}} -> (tensor<2x8x2x16x16xbf16>, tensor<2x8x2x16x16xbf16>, tensor<2x8x2x16x16xbf16>, tensor<2x8x2xf32>)
// CHECK: braid.lsm.factor_scan GH
// CHECK: %[[G:.*]], %[[D:.*]] = braid.lsm.chunk_output_factors GH {{.*}} factors(%[[R]]) {{.*}} -> (tensor<2x8x2x16x16xbf16>, tensor<2x8x2x16x16xbf16>)
// CHECK: braid.lsm.factor_scan_grad GH factors(%[[W]], %[[R]], %[[P]]) cotangents(%[[G]], %[[D]], {{.*}} -> (tensor<2x8x2x16x16xbf16>, tensor<2x2x16x16xf32>)
// CHECK: braid.lsm.chunk_grad GH
func.func @factors_grad(%q: !tok, %g: !gate, %b: !gate, %m: !state, %d: !doc) -> (!tok, !state) {
  %r:6 = braid.lsm.scan_grad GH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) cotangents(%q, %m) {chunk_size = 16 : i64, scale = 0.5 : f64}
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
