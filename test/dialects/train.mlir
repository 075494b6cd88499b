// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// Initial values and the optimizer. The printed form and the generic form parse back to the same.

!p = tensor<6x8xbf16>
!m = tensor<6x8xf32>
!one = tensor<1xf32>
!i = tensor<1xi32>

// CHECK-LABEL: func.func @init(
func.func @init(%seed: tensor<1xi64>, %coordinate: !i) {
  // CHECK: braid.init %arg0 {distribution = "normal", keys = array<i64: 7>, scale = 2.000000e-02 : f64} : (tensor<1xi64>) -> tensor<6x8xf32>
  %0 = braid.init %seed {distribution = "normal", keys = array<i64: 7>, scale = 0.02 : f64} : (tensor<1xi64>) -> !m
  // CHECK: braid.init %arg0 {distribution = "uniform", high = 1.000000e+00 : f64, keys = array<i64: 7>, low = -1.000000e+00 : f64} : (tensor<1xi64>) -> tensor<6x8xf32>
  %1 = braid.init %seed {distribution = "uniform", high = 1.0 : f64, keys = array<i64: 7>, low = -1.0 : f64} : (tensor<1xi64>) -> !m
  // CHECK: braid.init %arg0 {distribution = "log_uniform", high = 1.600000e+01 : f64, keys = array<i64: 7>, low = 1.000000e+00 : f64} : (tensor<1xi64>) -> tensor<6x8xf32>
  %2 = braid.init %seed {distribution = "log_uniform", high = 16.0 : f64, keys = array<i64: 7>, low = 1.0 : f64} : (tensor<1xi64>) -> !m
  // CHECK: braid.init %arg0 {distribution = "softplus_inverse", high = 1.000000e-01 : f64, keys = array<i64: 7>, low = 1.000000e-03 : f64} : (tensor<1xi64>) -> tensor<6x8xf32>
  %3 = braid.init %seed {distribution = "softplus_inverse", high = 0.1 : f64, keys = array<i64: 7>, low = 0.001 : f64} : (tensor<1xi64>) -> !m
  // CHECK: braid.init %arg0 {distribution = "constant", keys = array<i64: 7>, low = 1.000000e+00 : f64} : (tensor<1xi64>) -> tensor<6x8xf32>
  %4 = braid.init %seed {distribution = "constant", keys = array<i64: 7>, low = 1.0 : f64} : (tensor<1xi64>) -> !m
  // CHECK: braid.init %arg0 {distribution = "values", keys = array<i64: 7, 8, 9>, stacked, values = array<f64: 1.000000e+00, 2.000000e+00>} : (tensor<1xi64>) -> tensor<3x2xf32>
  %5 = braid.init %seed {distribution = "values", keys = array<i64: 7, 8, 9>, stacked, values = array<f64: 1.0, 2.0>} : (tensor<1xi64>) -> tensor<3x2xf32>
  // Rows 2c and 2c + 1 of the second and third logical dimension, for three layers.
  // CHECK: braid.init %arg0, %arg1 {distribution = "normal", keys = array<i64: 7, 8, 9>, scale = 2.000000e-02 : f64, shard_counts = array<i64: 4>, shard_dims = array<i64: 1>, stacked} : (tensor<1xi64>, tensor<1xi32>) -> tensor<3x4x2x8xbf16>
  %6 = braid.init %seed, %coordinate {distribution = "normal", keys = array<i64: 7, 8, 9>, scale = 0.02 : f64, shard_counts = array<i64: 4>, shard_dims = array<i64: 1>, stacked} : (tensor<1xi64>, !i) -> tensor<3x4x2x8xbf16>
  // CHECK: braid.init %arg0 {distribution = "normal", keys = array<i64: 7>, part = "low", scale = 2.000000e-02 : f64} : (tensor<1xi64>) -> tensor<6x8xi16>
  %7 = braid.init %seed {distribution = "normal", keys = array<i64: 7>, part = "low", scale = 0.02 : f64} : (tensor<1xi64>) -> tensor<6x8xi16>
  // CHECK: part = "half"
  %8 = braid.init %seed {distribution = "normal", keys = array<i64: 7>, part = "half", scale = 0.02 : f64} : (tensor<1xi64>) -> !m
  return
}

// CHECK-LABEL: func.func @optimizer(
func.func @optimizer(%p: !p, %g: !m, %m: !m, %v: !m, %rate: !one, %step: !i, %low: tensor<6x8xi16>) {
  // CHECK: braid.sum_squares %arg1, %arg2 : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<1xf32>
  %squares = braid.sum_squares %g, %m : (!m, !m) -> !one
  // CHECK: braid.clip_scale %{{.*}} {max_norm = 1.000000e+00 : f64} : (tensor<1xf32>) -> (tensor<1xf32>, tensor<1xf32>)
  %norm, %scale = braid.clip_scale %squares {max_norm = 1.0 : f64} : (!one) -> (!one, !one)
  // CHECK: braid.adamw %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %scale {beta1 = 9.000000e-01 : f64, beta2 = 0.94999999999999996 : f64, eps = 1.000000e-08 : f64, weight_decay = 1.000000e-01 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  %r:3 = braid.adamw %p, %g, %m, %v, %rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64}
      : (!p, !m, !m, !m, !one, !i, !one) -> (!p, !m, !m)
  // CHECK: braid.adamw %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %scale, %arg6 {{.*}}tensor<6x8xi16>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xi16>)
  %master:4 = braid.adamw %p, %g, %m, %v, %rate, %step, %scale, %low {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64}
      : (!p, !m, !m, !m, !one, !i, !one, tensor<6x8xi16>) -> (!p, !m, !m, tensor<6x8xi16>)
  return
}
