// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// Row-wise ops and their gradient. The printed form and the generic form parse back to the same.

!x = tensor<2x8x16xf32>
!h = tensor<2x8x4x6xf32>
!w = tensor<16xf32>

// CHECK-LABEL: func.func @elementwise(
func.func @elementwise(%x: !x, %w: !w, %h: !h, %heads: tensor<2x8x4xf32>, %perHead: tensor<4xf32>, %counts: tensor<4xi32>) {
  // CHECK: braid.add %arg0, %arg0, %arg0 : (tensor<2x8x16xf32>, tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %0 = braid.add %x, %x, %x : (!x, !x, !x) -> !x
  // CHECK: braid.add %arg5, %arg5 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  %1 = braid.add %counts, %counts : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  // CHECK: braid.mul %arg0, %arg0 : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %2 = braid.mul %x, %x : (!x, !x) -> !x
  // CHECK: braid.mul %arg2, %arg3 : (tensor<2x8x4x6xf32>, tensor<2x8x4xf32>) -> tensor<2x8x4x6xf32>
  %3 = braid.mul %h, %heads : (!h, tensor<2x8x4xf32>) -> !h
  // CHECK: braid.scale %arg0 {value = 5.000000e-01 : f64} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %4 = braid.scale %x {value = 0.5 : f64} : (!x) -> !x
  // CHECK: braid.offset %arg0 {value = -1.000000e+00 : f64} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %offset = braid.offset %x {value = -1.0 : f64} : (!x) -> !x
  // CHECK: braid.clamp %arg0 {high = 1.000000e+00 : f64, low = 0.000000e+00 : f64} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %clamp = braid.clamp %x {low = 0.0 : f64, high = 1.0 : f64} : (!x) -> !x
  // CHECK: braid.bias %arg0, %arg1 : (tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  %5 = braid.bias %x, %w : (!x, !w) -> !x
  // CHECK: braid.weighted %arg0, %arg1 : (tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  %6 = braid.weighted %x, %w : (!x, !w) -> !x
  // CHECK: braid.weighted %arg2, %arg4 {per_head} : (tensor<2x8x4x6xf32>, tensor<4xf32>) -> tensor<2x8x4x6xf32>
  %7 = braid.weighted %h, %perHead {per_head} : (!h, tensor<4xf32>) -> !h
  // CHECK: braid.cast %arg0 : (tensor<2x8x16xf32>) -> tensor<2x8x16xbf16>
  %8 = braid.cast %x : (!x) -> tensor<2x8x16xbf16>
  return
}

// CHECK-LABEL: func.func @functions(
func.func @functions(%x: !x, %heads: tensor<2x8x4xf32>, %perHead: tensor<4xf32>) {
  // CHECK: braid.activation %arg0 {kind = "silu"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %0 = braid.activation %x {kind = "silu"} : (!x) -> !x
  // CHECK: braid.activation %arg0 {kind = "sigmoid"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %1 = braid.activation %x {kind = "sigmoid"} : (!x) -> !x
  // CHECK: braid.activation %arg0 {kind = "tanh"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %2 = braid.activation %x {kind = "tanh"} : (!x) -> !x
  // CHECK: braid.activation %arg0 {kind = "relu"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %3 = braid.activation %x {kind = "relu"} : (!x) -> !x
  // CHECK: braid.activation %arg0 {kind = "relu2"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %4 = braid.activation %x {kind = "relu2"} : (!x) -> !x
  // CHECK: braid.activation %arg0 {kind = "gelu"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %5 = braid.activation %x {kind = "gelu"} : (!x) -> !x
  // CHECK: braid.activation %arg0 {kind = "gelu_tanh"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %6 = braid.activation %x {kind = "gelu_tanh"} : (!x) -> !x
  // CHECK: braid.activation %arg0 {kind = "softplus"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %7 = braid.activation %x {kind = "softplus"} : (!x) -> !x
  // CHECK: braid.activation %arg0 {kind = "elu1"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %8 = braid.activation %x {kind = "elu1"} : (!x) -> !x
  // CHECK: braid.activation %arg0 {kind = "exp"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %9 = braid.activation %x {kind = "exp"} : (!x) -> !x
  // CHECK: braid.activation %arg0 {kind = "reciprocal"} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %10 = braid.activation %x {kind = "reciprocal"} : (!x) -> !x
  // CHECK: braid.softmax %arg0 : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %11 = braid.softmax %x : (!x) -> !x
  // CHECK: braid.log_sigmoid %arg0 {divide = 1.600000e+01 : f64} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %12 = braid.log_sigmoid %x {divide = 16.0 : f64} : (!x) -> !x
  // CHECK: braid.log_decay %arg1, %arg2, %arg2 : (tensor<2x8x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x8x4xf32>
  %13 = braid.log_decay %heads, %perHead, %perHead : (tensor<2x8x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x8x4xf32>
  return
}

// CHECK-LABEL: func.func @norms(
func.func @norms(%x: !x, %w: !w, %half: tensor<2x8x16xbf16>) {
  // CHECK: braid.rms_norm %arg0, %arg1 {eps = 9.9999999999999995E-7 : f64} : (tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  %0 = braid.rms_norm %x, %w {eps = 1.0e-6 : f64} : (!x, !w) -> !x
  // CHECK: braid.rms_norm %arg0, %arg1 {eps = 9.9999999999999995E-7 : f64, groups = 4 : i64} : (tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  %1 = braid.rms_norm %x, %w {eps = 1.0e-6 : f64, groups = 4 : i64} : (!x, !w) -> !x
  // CHECK: braid.rms_norm %arg2, %arg1 {eps = 9.9999999999999995E-7 : f64} : (tensor<2x8x16xbf16>, tensor<16xf32>) -> tensor<2x8x16xbf16>
  %2 = braid.rms_norm %half, %w {eps = 1.0e-6 : f64} : (tensor<2x8x16xbf16>, !w) -> tensor<2x8x16xbf16>
  // CHECK: braid.layer_norm %arg0, %arg1, %arg1 {eps = 1.000000e-05 : f64} : (tensor<2x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  %3 = braid.layer_norm %x, %w, %w {eps = 1.0e-5 : f64} : (!x, !w, !w) -> !x
  // CHECK: braid.layer_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : (tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  %no_bias = braid.layer_norm %x, %w {eps = 1.0e-5 : f64} : (!x, !w) -> !x
  // CHECK: braid.l2_norm %arg0 {eps = 9.9999999999999995E-7 : f64} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %4 = braid.l2_norm %x {eps = 1.0e-6 : f64} : (!x) -> !x
  // CHECK: braid.gated_norm %arg0, %arg0, %arg1 {activation = "silu", eps = 1.000000e-05 : f64} : (tensor<2x8x16xf32>, tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  %5 = braid.gated_norm %x, %x, %w {activation = "silu", eps = 1.0e-5 : f64} : (!x, !x, !w) -> !x
  // CHECK: braid.gated_norm %arg0, %arg0, %arg1 {activation = "sigmoid", eps = 1.000000e-05 : f64, groups = 2 : i64, norm_first = false} : (tensor<2x8x16xf32>, tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  %6 = braid.gated_norm %x, %x, %w {activation = "sigmoid", eps = 1.0e-5 : f64, groups = 2 : i64, norm_first = false} : (!x, !x, !w) -> !x
  return
}

// The loss of tokens whose words are in several places.
// CHECK-LABEL: func.func @loss(
func.func @loss(%parts: tensor<2x8x3xf32>, %target: tensor<2x8xf32>, %labels: tensor<2x8xi32>, %words: tensor<2x8x3xi32>) {
  // CHECK: braid.log_sum_exp %arg0 : (tensor<2x8x3xf32>) -> tensor<2x8xf32>
  %0 = braid.log_sum_exp %parts : (tensor<2x8x3xf32>) -> tensor<2x8xf32>
  // CHECK: braid.token_loss %{{.*}}, %arg1, %arg2 : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  %1 = braid.token_loss %0, %target, %labels : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  // CHECK: braid.greatest %arg0 : (tensor<2x8x3xf32>) -> tensor<2x8xf32>
  %2 = braid.greatest %parts : (tensor<2x8x3xf32>) -> tensor<2x8xf32>
  // CHECK: braid.greatest_word %arg0, %arg3 : (tensor<2x8x3xf32>, tensor<2x8x3xi32>) -> tensor<2x8xi32>
  %3 = braid.greatest_word %parts, %words : (tensor<2x8x3xf32>, tensor<2x8x3xi32>) -> tensor<2x8xi32>
  return
}

// CHECK-LABEL: func.func @heads(
func.func @heads(%q: !h, %documents: tensor<2x8xi32>) {
  // CHECK: braid.rope %arg0, %arg1 {dim = 6 : i64, layout = "half", theta = 1.000000e+04 : f64} : (tensor<2x8x4x6xf32>, tensor<2x8xi32>) -> tensor<2x8x4x6xf32>
  %0 = braid.rope %q, %documents {dim = 6 : i64, layout = "half", theta = 1.0e+4 : f64} : (!h, tensor<2x8xi32>) -> !h
  // CHECK: braid.rope %arg0, %arg1 {dim = 4 : i64, layout = "interleaved", theta = 5.000000e+05 : f64} : (tensor<2x8x4x6xf32>, tensor<2x8xi32>) -> tensor<2x8x4x6xf32>
  %1 = braid.rope %q, %documents {dim = 4 : i64, layout = "interleaved", theta = 5.0e+5 : f64} : (!h, tensor<2x8xi32>) -> !h
  // CHECK: braid.rope %arg0, %arg1 {dim = 4 : i64, factors = array<f64: 1.000000e+00, 2.500000e-01>, layout = "half", scale = 1.250000e+00 : f64, theta = 1.000000e+04 : f64} : (tensor<2x8x4x6xf32>, tensor<2x8xi32>) -> tensor<2x8x4x6xf32>
  %scaled = braid.rope %q, %documents {dim = 4 : i64, factors = array<f64: 1.0, 0.25>, layout = "half", scale = 1.25 : f64, theta = 1.0e+4 : f64} : (!h, tensor<2x8xi32>) -> !h
  // CHECK: braid.repeat_heads %arg0 : (tensor<2x8x4x6xf32>) -> tensor<2x8x12x6xf32>
  %2 = braid.repeat_heads %q : (!h) -> tensor<2x8x12x6xf32>
  return
}

// Whole operands (the weight) get sums over all rows, in f32.
// CHECK-LABEL: func.func @gradient(
func.func @gradient(%x: tensor<2x8x16xbf16>, %w: tensor<16xbf16>, %dy: tensor<2x8x16xbf16>) {
  // CHECK: braid.rows_grad "braid.rms_norm"(%arg0, %arg1) cotangents(%arg2) {op_attributes = {eps = 9.9999999999999995E-7 : f64, groups = 1 : i64}, wanted = array<i64: 0, 1>} : (tensor<2x8x16xbf16>, tensor<16xbf16>, tensor<2x8x16xbf16>) -> (tensor<2x8x16xbf16>, tensor<16xf32>)
  %dx, %dw = braid.rows_grad "braid.rms_norm"(%x, %w) cotangents(%dy) {op_attributes = {eps = 1.0e-6 : f64, groups = 1 : i64}, operandSegmentSizes = array<i32: 2, 1>, wanted = array<i64: 0, 1>}
      : (tensor<2x8x16xbf16>, tensor<16xbf16>, tensor<2x8x16xbf16>) -> (tensor<2x8x16xbf16>, tensor<16xf32>)
  // CHECK: braid.rows_grad "braid.activation"(%arg0) cotangents(%arg2) {op_attributes = {kind = "silu"}, wanted = array<i64: 0>} : (tensor<2x8x16xbf16>, tensor<2x8x16xbf16>) -> tensor<2x8x16xbf16>
  %da = braid.rows_grad "braid.activation"(%x) cotangents(%dy) {op_attributes = {kind = "silu"}, operandSegmentSizes = array<i32: 1, 1>, wanted = array<i64: 0>}
      : (tensor<2x8x16xbf16>, tensor<2x8x16xbf16>) -> tensor<2x8x16xbf16>
  return
}

// CHECK-LABEL: func.func @sequences(
func.func @sequences(%x: !h, %heads: tensor<4xf32>, %keys: tensor<4x6xf32>, %rate: tensor<4x3x6xf32>, %weight: tensor<6xf32>) {
  // CHECK: braid.feature_map %arg0 {kind = "taylor"} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x28xf32>
  %0 = braid.feature_map %x {kind = "taylor"} : (!h) -> tensor<2x8x4x28xf32>
  // CHECK: braid.feature_map %arg0 {kind = "square"} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x21xf32>
  %1 = braid.feature_map %x {kind = "square"} : (!h) -> tensor<2x8x4x21xf32>
  // CHECK: braid.append_one %arg0 : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x7xf32>
  %2 = braid.append_one %x : (!h) -> tensor<2x8x4x7xf32>
  // CHECK: braid.divide_by_last %arg0 {eps = 9.9999999999999995E-7 : f64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x5xf32>
  %3 = braid.divide_by_last %x {eps = 1.0e-6 : f64} : (!h) -> tensor<2x8x4x5xf32>
  // CHECK: braid.append_one %arg0 {zeros = 57 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x64xf32>
  %wide = braid.append_one %x {zeros = 57 : i64} : (!h) -> tensor<2x8x4x64xf32>
  // CHECK: braid.divide_by_last {{.*}} {eps = 1.000000e+00 : f64, zeros = 57 : i64} : (tensor<2x8x4x64xf32>) -> tensor<2x8x4x6xf32>
  %narrow = braid.divide_by_last %wide {eps = 1.0 : f64, zeros = 57 : i64} : (tensor<2x8x4x64xf32>) -> !h
  // CHECK: braid.drop_last {{.*}} {zeros = 57 : i64} : (tensor<2x8x4x64xf32>) -> tensor<2x8x4x6xf32>
  %dropped_wide = braid.drop_last %wide {zeros = 57 : i64} : (tensor<2x8x4x64xf32>) -> !h
  // CHECK: braid.divide_by_last %arg0 {eps = 0.000000e+00 : f64, least = 1.000000e+00 : f64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x5xf32>
  %bounded = braid.divide_by_last %x {eps = 0.0 : f64, least = 1.0 : f64} : (!h) -> tensor<2x8x4x5xf32>
  // CHECK: braid.drop_last %arg0 : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x5xf32>
  %dropped = braid.drop_last %x : (!h) -> tensor<2x8x4x5xf32>
  // CHECK: braid.take_last %arg0 : (tensor<2x8x4x6xf32>) -> tensor<2x8x4xf32>
  %taken = braid.take_last %x : (!h) -> tensor<2x8x4xf32>
  // CHECK: braid.inner %arg0, %arg0 : (tensor<2x8x4x6xf32>, tensor<2x8x4x6xf32>) -> tensor<2x8x4xf32>
  %4 = braid.inner %x, %x : (!h, !h) -> tensor<2x8x4xf32>
  // CHECK: braid.dot %arg0, %arg4 : (tensor<2x8x4x6xf32>, tensor<6xf32>) -> tensor<2x8x4xf32>
  %dot = braid.dot %x, %weight : (!h, tensor<6xf32>) -> tensor<2x8x4xf32>
  // CHECK: braid.bounded_gate %arg0, %arg1 : (tensor<2x8x4x6xf32>, tensor<4xf32>) -> tensor<2x8x4x6xf32>
  %5 = braid.bounded_gate %x, %heads : (!h, tensor<4xf32>) -> !h
  // CHECK: braid.element_decay %arg0, %arg3 : (tensor<2x8x4x6xf32>, tensor<4x3x6xf32>) -> tensor<2x8x4x3x6xf32>
  %6 = braid.element_decay %x, %rate : (!h, tensor<4x3x6xf32>) -> tensor<2x8x4x3x6xf32>
  // CHECK: braid.log_decay %arg0, %arg1, %arg2 : (tensor<2x8x4x6xf32>, tensor<4xf32>, tensor<4x6xf32>) -> tensor<2x8x4x6xf32>
  %7 = braid.log_decay %x, %heads, %keys : (!h, tensor<4xf32>, tensor<4x6xf32>) -> !h
  return
}

// CHECK-LABEL: func.func @positions(
func.func @positions(%x: tensor<2x5x4x6xf32>, %documents: tensor<2x5xi32>, %w: tensor<3xf32>, %phase: tensor<4x6xf32>) {
  // CHECK: braid.rope %arg0, %arg1 {dim = 4 : i64, layout = "half", period = 16 : i64, theta = 1.000000e+04 : f64} : (tensor<2x5x4x6xf32>, tensor<2x5xi32>) -> tensor<2x5x4x6xf32>
  %0 = braid.rope %x, %documents {dim = 4 : i64, layout = "half", period = 16 : i64, theta = 1.0e+4 : f64} : (tensor<2x5x4x6xf32>, tensor<2x5xi32>) -> tensor<2x5x4x6xf32>
  // CHECK: braid.position_rate %arg1, %arg2 : (tensor<2x5xi32>, tensor<3xf32>) -> tensor<2x5x4xf32>
  %1 = braid.position_rate %documents, %w : (tensor<2x5xi32>, tensor<3xf32>) -> tensor<2x5x4xf32>
  // CHECK: braid.position_angle %arg1, %arg3 : (tensor<2x5xi32>, tensor<4x6xf32>) -> tensor<2x5x4x6xf32>
  %2 = braid.position_angle %documents, %phase : (tensor<2x5xi32>, tensor<4x6xf32>) -> tensor<2x5x4x6xf32>
  // CHECK: braid.every_token %arg1, %arg3 : (tensor<2x5xi32>, tensor<4x6xf32>) -> tensor<2x5x4x6xf32>
  %3 = braid.every_token %documents, %phase : (tensor<2x5xi32>, tensor<4x6xf32>) -> tensor<2x5x4x6xf32>
  return
}
