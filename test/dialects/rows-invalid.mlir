// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of row-wise ops say.

func.func @f() {
  // expected-error @+1 {{has no sources}}
  %0 = "braid.add"() : () -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%a: tensor<f32>) {
  // expected-error @+1 {{result has rank 0 but must have 1 to 8}}
  %0 = braid.add %a : (tensor<f32>) -> tensor<f32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%a: tensor<2x8x16xf32>, %source: tensor<2x8x15xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x8x16 but source is 2x8x15}}
  %0 = braid.add %a, %source : (tensor<2x8x16xf32>, tensor<2x8x15xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%a: tensor<2x8x16xf32>, %b: tensor<2x8x16xi32>) {
  // expected-error @+1 {{source must hold floating-point numbers but holds 'i32'}}
  %0 = braid.add %a, %b : (tensor<2x8x16xf32>, tensor<2x8x16xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%source: tensor<4xi64>) {
  // expected-error @+1 {{element type mismatch: result holds 'i32' but source holds 'i64'}}
  %0 = braid.add %source : (tensor<4xi64>) -> tensor<4xi32>
  return
}

// -----

func.func @f(%a: tensor<f32>, %b: tensor<f32>) {
  // expected-error @+1 {{a has rank 0 but must have 1 to 8}}
  %0 = braid.mul %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @f(%a: tensor<2x8xi32>, %b: tensor<2x8xf32>) {
  // expected-error @+1 {{a must hold floating-point numbers but holds 'i32'}}
  %0 = braid.mul %a, %b : (tensor<2x8xi32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%a: tensor<2x8xf32>, %b: tensor<2x8xf32>) {
  // expected-error @+1 {{result must hold floating-point numbers but holds 'i32'}}
  %0 = braid.mul %a, %b : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%a: tensor<2x8xf32>, %b: tensor<2x8xi32>) {
  // expected-error @+1 {{b must hold floating-point numbers but holds 'i32'}}
  %0 = braid.mul %a, %b : (tensor<2x8xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{a defined here}}
func.func @f(%a: tensor<2x8xf32>, %b: tensor<2x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x9 but a is 2x8}}
  %0 = braid.mul %a, %b : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x9xf32>
  return
}

// -----

func.func @f(%a: tensor<2x8xf32>, %b: tensor<2x8x3xf32>) {
  // expected-error @+1 {{b has rank 3 but must have 1 to 2}}
  %0 = braid.mul %a, %b : (tensor<2x8xf32>, tensor<2x8x3xf32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{b defined here}}
func.func @f(%a: tensor<2x8x16xf32>, %b: tensor<2x9xf32>) {
  // expected-error @+1 {{dimension mismatch: a has 8 but b has 9}}
  %0 = braid.mul %a, %b : (tensor<2x8x16xf32>, tensor<2x9xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 8x2 but x is 2x8}}
  %0 = braid.scale %x {value = 1.0 : f64} : (tensor<2x8xf32>) -> tensor<8x2xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 8x2 but x is 2x8}}
  %0 = braid.offset %x {value = 1.0 : f64} : (tensor<2x8xf32>) -> tensor<8x2xf32>
  return
}

// -----

func.func @clamp_of_nothing(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{keeps x between nothing finite; valid: low, high or both}}
  %0 = braid.clamp %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @clamp_upside_down(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{low 2.000000e+00 is not below high 1.000000e+00}}
  %0 = braid.clamp %x {low = 2.0 : f64, high = 1.0 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{bias defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %bias: tensor<8xf32>) {
  // expected-error @+1 {{trailing dimension mismatch: x has 16 but bias has 8}}
  %0 = braid.bias %x, %bias : (tensor<2x8x16xf32>, tensor<8xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %bias: tensor<16xi32>) {
  // expected-error @+1 {{bias must hold floating-point numbers but holds 'i32'}}
  %0 = braid.bias %x, %bias : (tensor<2x8x16xf32>, tensor<16xi32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %bias: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{bias has rank 4 but must have 1 to 3}}
  %0 = braid.bias %x, %bias : (tensor<2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %bias: tensor<16xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x8x15 but x is 2x8x16}}
  %0 = braid.bias %x, %bias : (tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x15xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x4x16xf32>, %weight: tensor<4x15xf32>) {
  // expected-error @+1 {{trailing dimension mismatch: x has 16 but weight has 15}}
  %0 = braid.weighted %x, %weight : (tensor<2x8x4x16xf32>, tensor<4x15xf32>) -> tensor<2x8x4x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x4x16xf32>, %weight: tensor<4xi32>) {
  // expected-error @+1 {{weight must hold floating-point numbers but holds 'i32'}}
  %0 = braid.weighted %x, %weight : (tensor<2x8x4x16xf32>, tensor<4xi32>) -> tensor<2x8x4x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8xf32>, %weight: tensor<8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x9 but x is 2x8}}
  %0 = braid.weighted %x, %weight : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x9xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{unknown kind "swish"; valid: silu, sigmoid, tanh, relu, relu2, gelu, gelu_tanh, softplus, elu1, exp, bounded_exp, reciprocal, log, sqrt, cos, sin, fraction}}
  %0 = braid.activation %x {kind = "swish"} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x9 but x is 2x8}}
  %0 = braid.activation %x {kind = "silu"} : (tensor<2x8xf32>) -> tensor<2x9xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x9 but x is 2x8}}
  %0 = braid.softmax %x : (tensor<2x8xf32>) -> tensor<2x9xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{divide is 0}}
  %0 = braid.log_sigmoid %x {divide = 0.0 : f64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x9 but x is 2x8}}
  %0 = braid.log_sigmoid %x {divide = 1.0 : f64} : (tensor<2x8xf32>) -> tensor<2x9xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x4xf32>, %a_log: tensor<4xf32>, %dt_bias: tensor<4xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x8x5 but x is 2x8x4}}
  %0 = braid.log_decay %x, %a_log, %dt_bias : (tensor<2x8x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x8x5xf32>
  return
}

// -----

// expected-note @+1 {{a_log defined here}}
func.func @f(%x: tensor<2x8x4xf32>, %a_log: tensor<5xf32>, %dt_bias: tensor<4xf32>) {
  // expected-error @+1 {{trailing dimension mismatch: x has 4 but a_log has 5}}
  %0 = braid.log_decay %x, %a_log, %dt_bias : (tensor<2x8x4xf32>, tensor<5xf32>, tensor<4xf32>) -> tensor<2x8x4xf32>
  return
}

// -----

// expected-note @+1 {{dt_bias defined here}}
func.func @f(%x: tensor<2x8x4xf32>, %a_log: tensor<4xf32>, %dt_bias: tensor<3xf32>) {
  // expected-error @+1 {{trailing dimension mismatch: x has 4 but dt_bias has 3}}
  %0 = braid.log_decay %x, %a_log, %dt_bias : (tensor<2x8x4xf32>, tensor<4xf32>, tensor<3xf32>) -> tensor<2x8x4xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x8x15 but x is 2x8x16}}
  %0 = braid.rms_norm %x, %w {eps = 1.0e-6 : f64} : (tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x15xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{groups 3 does not divide the last dimension 16}}
  %0 = braid.rms_norm %x, %w {eps = 1.0e-6 : f64, groups = 3 : i64} : (tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{groups 0 does not divide the last dimension 16}}
  %0 = braid.rms_norm %x, %w {eps = 1.0e-6 : f64, groups = 0 : i64} : (tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %weight: tensor<15xf32>) {
  // expected-error @+1 {{trailing dimension mismatch: x has 16 but weight has 15}}
  %0 = braid.rms_norm %x, %weight {eps = 1.0e-6 : f64} : (tensor<2x8x16xf32>, tensor<15xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16xf32>, %b: tensor<16xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x8x15 but x is 2x8x16}}
  %0 = braid.layer_norm %x, %w, %b {eps = 1.0e-6 : f64} : (tensor<2x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<2x8x15xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %weight: tensor<15xf32>, %b: tensor<16xf32>) {
  // expected-error @+1 {{trailing dimension mismatch: x has 16 but weight has 15}}
  %0 = braid.layer_norm %x, %weight, %b {eps = 1.0e-6 : f64} : (tensor<2x8x16xf32>, tensor<15xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{bias defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16xf32>, %bias: tensor<8xf32>) {
  // expected-error @+1 {{trailing dimension mismatch: x has 16 but bias has 8}}
  %0 = braid.layer_norm %x, %w, %bias {eps = 1.0e-6 : f64} : (tensor<2x8x16xf32>, tensor<16xf32>, tensor<8xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x9 but x is 2x8}}
  %0 = braid.l2_norm %x {eps = 1.0e-6 : f64} : (tensor<2x8xf32>) -> tensor<2x9xf32>
  return
}

// -----

func.func @f(%o: tensor<2x8x16xf32>, %gate: tensor<2x8x16xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{unknown activation "swish"; valid: silu, sigmoid}}
  %0 = braid.gated_norm %o, %gate, %w {activation = "swish", eps = 1.0e-6 : f64} : (tensor<2x8x16xf32>, tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{o defined here}}
func.func @f(%o: tensor<2x8x16xf32>, %gate: tensor<2x8x16xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x8x8 but o is 2x8x16}}
  %0 = braid.gated_norm %o, %gate, %w {activation = "silu", eps = 1.0e-6 : f64} : (tensor<2x8x16xf32>, tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x8xf32>
  return
}

// -----

func.func @f(%o: tensor<2x8x16xf32>, %gate: tensor<2x8x16xi32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{gate must hold floating-point numbers but holds 'i32'}}
  %0 = braid.gated_norm %o, %gate, %w {activation = "silu", eps = 1.0e-6 : f64} : (tensor<2x8x16xf32>, tensor<2x8x16xi32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{gate defined here}}
func.func @f(%o: tensor<2x8x16xf32>, %gate: tensor<2x8x8xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{shape mismatch: o is 2x8x16 but gate is 2x8x8}}
  %0 = braid.gated_norm %o, %gate, %w {activation = "silu", eps = 1.0e-6 : f64} : (tensor<2x8x16xf32>, tensor<2x8x8xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%o: tensor<2x8x16xf32>, %gate: tensor<2x8x16xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{groups 5 does not divide the last dimension 16}}
  %0 = braid.gated_norm %o, %gate, %w {activation = "silu", eps = 1.0e-6 : f64, groups = 5 : i64} : (tensor<2x8x16xf32>, tensor<2x8x16xf32>, tensor<16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%o: tensor<2x8x16xf32>, %gate: tensor<2x8x16xf32>, %weight: tensor<8xf32>) {
  // expected-error @+1 {{trailing dimension mismatch: o has 16 but weight has 8}}
  %0 = braid.gated_norm %o, %gate, %weight {activation = "silu", eps = 1.0e-6 : f64} : (tensor<2x8x16xf32>, tensor<2x8x16xf32>, tensor<8xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{x has rank 2 but must have 3 to 4}}
  %0 = braid.repeat_heads %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{result has rank 3 but must have 4}}
  %0 = braid.repeat_heads %x : (tensor<2x8x2x4xf32>) -> tensor<2x8x4xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{element type mismatch: result holds 'f64' but x holds 'f32'}}
  %0 = braid.repeat_heads %x : (tensor<2x8x2x4xf32>) -> tensor<2x8x4x4xf64>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{dimension mismatch: result has 5 but x has 4}}
  %0 = braid.repeat_heads %x : (tensor<2x8x2x4xf32>) -> tensor<2x8x4x5xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{result has 5 heads, no multiple of x's 2}}
  %0 = braid.repeat_heads %x : (tensor<2x8x2x4xf32>) -> tensor<2x8x5x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x0x4xf32>) {
  // expected-error @+1 {{result has 4 heads, no multiple of x's 0}}
  %0 = braid.repeat_heads %x : (tensor<2x8x0x4xf32>) -> tensor<2x8x4x4xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x9 but x is 2x8}}
  %0 = braid.cast %x : (tensor<2x8xf32>) -> tensor<2x9xbf16>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{result must hold floating-point numbers but holds 'i32'}}
  %0 = braid.cast %x : (tensor<2x8xf32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>, %dy: tensor<2x8xf32>) {
  // expected-error @+1 {{"braid.linear" is not a row-wise op}}
  %0 = braid.rows_grad "braid.linear"(%x) cotangents(%dy) {op_attributes = {value = 2.0 : f64}, operandSegmentSizes = array<i32: 1, 1>, wanted = array<i64: 0>} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>, %dy: tensor<2x8xf32>) {
  // expected-error @+1 {{"nothing" is not a row-wise op}}
  %0 = braid.rows_grad "nothing"(%x) cotangents(%dy) {op_attributes = {value = 2.0 : f64}, operandSegmentSizes = array<i32: 1, 1>, wanted = array<i64: 0>} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>, %dy: tensor<2x8xf32>) {
  // expected-error @+2 {{'braid.scale' op requires attribute 'value'}}
  // expected-error @+1 {{has inputs, cotangents and attributes that braid.scale does not take}}
  %0 = braid.rows_grad "braid.scale"(%x) cotangents(%dy) {op_attributes = {}, operandSegmentSizes = array<i32: 1, 1>, wanted = array<i64: 0>} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8xf32>, %dy: tensor<2x9xf32>) {
  // The result of the op, had it this cotangent.
  // expected-error @+2 {{'braid.scale' op shape mismatch: result is 2x9 but x is 2x8}}
  // expected-error @+1 {{'braid.rows_grad' op has inputs, cotangents and attributes that braid.scale does not take}}
  %0 = braid.rows_grad "braid.scale"(%x) cotangents(%dy) {op_attributes = {value = 2.0 : f64}, operandSegmentSizes = array<i32: 1, 1>, wanted = array<i64: 0>} : (tensor<2x8xf32>, tensor<2x9xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>, %dy: tensor<2x8xf32>) {
  // expected-error @+1 {{wants 2 cotangents but has 1 results}}
  %0 = braid.rows_grad "braid.scale"(%x) cotangents(%dy) {op_attributes = {value = 2.0 : f64}, operandSegmentSizes = array<i32: 1, 1>, wanted = array<i64: 0, 0>} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>, %dy: tensor<2x8xf32>) {
  // expected-error @+1 {{wants the cotangent of operand 1 of 1}}
  %0 = braid.rows_grad "braid.scale"(%x) cotangents(%dy) {op_attributes = {value = 2.0 : f64}, operandSegmentSizes = array<i32: 1, 1>, wanted = array<i64: 1>} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>, %dy: tensor<2x8xf32>) {
  // expected-error @+1 {{wants the cotangent of operand -1 of 1}}
  %0 = braid.rows_grad "braid.scale"(%x) cotangents(%dy) {op_attributes = {value = 2.0 : f64}, operandSegmentSizes = array<i32: 1, 1>, wanted = array<i64: -1>} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>, %dy: tensor<2x8xf32>) {
  // expected-error @+1 {{result must hold floating-point numbers but holds 'i32'}}
  %0 = braid.rows_grad "braid.scale"(%x) cotangents(%dy) {op_attributes = {value = 2.0 : f64}, operandSegmentSizes = array<i32: 1, 1>, wanted = array<i64: 0>} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xi32>
  return
}

// -----

// expected-note @+1 {{input defined here}}
func.func @f(%input: tensor<2x8xf32>, %dy: tensor<2x8xf32>) {
  // expected-error @+1 {{shape mismatch: result is 2x9 but input is 2x8}}
  %0 = braid.rows_grad "braid.scale"(%input) cotangents(%dy) {op_attributes = {value = 2.0 : f64}, operandSegmentSizes = array<i32: 1, 1>, wanted = array<i64: 0>} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x9xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x4x6xf32>) {
  // expected-error @+1 {{unknown kind "cube"; valid: taylor, square}}
  %0 = braid.feature_map %x {kind = "cube"} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x28xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x4x6xf32>) {
  // expected-error @+1 {{result has 27 features but 6 of x give 28}}
  %0 = braid.feature_map %x {kind = "taylor"} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x27xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x4x6xf32>) {
  // expected-error @+1 {{result has 6 features but 6 of x give 7}}
  %0 = braid.append_one %x : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x4x1xf32>) {
  // expected-error @+1 {{x has 1 features but needs at least 2: what is divided and the divisor}}
  %0 = braid.divide_by_last %x {eps = 1.0 : f64} : (tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x4x6xf32>) {
  // expected-error @+1 {{result has 6 features but 6 of x give 5}}
  %0 = braid.divide_by_last %x {eps = 1.0 : f64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  return
}

// -----

func.func @take_last_of_one(%x: tensor<2x8x4x1xf32>) {
  // expected-error @+1 {{x has 1 features but needs at least 2: one before the last}}
  %0 = braid.take_last %x : (tensor<2x8x4x1xf32>) -> tensor<2x8x4xf32>
  return
}

// -----

func.func @take_last_keeps_rank(%x: tensor<2x8x4x6xf32>) {
  // expected-error @+1 {{result has rank 4 but must have 3}}
  %0 = braid.take_last %x : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x1xf32>
  return
}

// -----

// expected-note @+1 {{a defined here}}
func.func @f(%x: tensor<2x8x4x6xf32>, %y: tensor<2x8x4x5xf32>) {
  // expected-error @+1 {{shape mismatch: b is 2x8x4x5 but a is 2x8x4x6}}
  %0 = braid.inner %x, %y : (tensor<2x8x4x6xf32>, tensor<2x8x4x5xf32>) -> tensor<2x8x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x4x6xf32>) {
  // expected-error @+1 {{result has rank 4 but must have 3}}
  %0 = braid.inner %x, %x : (tensor<2x8x4x6xf32>, tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x6xf32>, %w: tensor<5xf32>) {
  // expected-error @+1 {{trailing dimension mismatch: x has 6 but weight has 5}}
  %0 = braid.dot %x, %w : (tensor<2x8x6xf32>, tensor<5xf32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{lower_bound defined here}}
func.func @f(%x: tensor<2x8x4x6xf32>, %l: tensor<5xf32>) {
  // expected-error @+1 {{head mismatch: x has 4 but lower_bound has 5}}
  %0 = braid.bounded_gate %x, %l : (tensor<2x8x4x6xf32>, tensor<5xf32>) -> tensor<2x8x4x6xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x4x6xf32>, %r: tensor<4x3x5xf32>) {
  // expected-error @+1 {{value dimension mismatch: a_log has 5 but x has 6}}
  %0 = braid.element_decay %x, %r : (tensor<2x8x4x6xf32>, tensor<4x3x5xf32>) -> tensor<2x8x4x3x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{x has rank 2 but must have 3}}
  %0 = braid.log_sum_exp %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x3xf32>) {
  // expected-error @+1 {{result has rank 3 but must have 2}}
  %0 = braid.greatest %x : (tensor<2x8x3xf32>) -> tensor<2x8x3xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x3xf32>, %words: tensor<2x8x4xi32>) {
  // expected-error @+1 {{shape mismatch: words is 2x8x4 but x is 2x8x3}}
  %0 = braid.greatest_word %x, %words : (tensor<2x8x3xf32>, tensor<2x8x4xi32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%x: tensor<2x8x3xf32>, %words: tensor<2x8x3xi32>) {
  // expected-error @+1 {{result must hold i32 but holds 'f32'}}
  %0 = braid.greatest_word %x, %words : (tensor<2x8x3xf32>, tensor<2x8x3xi32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{target defined here}}
func.func @f(%lse: tensor<2x8xf32>, %target: tensor<2x7xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{shape mismatch: lse is 2x8 but target is 2x7}}
  %0 = braid.token_loss %lse, %target, %labels : (tensor<2x8xf32>, tensor<2x7xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x4x6xf32>, %weight: tensor<6xf32>) {
  // expected-error @+1 {{head mismatch: x has 4 but weight has 6}}
  %0 = braid.weighted %x, %weight {per_head} : (tensor<2x8x4x6xf32>, tensor<6xf32>) -> tensor<2x8x4x6xf32>
  return
}

// -----

func.func @f(%d: tensor<2x8xi32>, %w: tensor<4x2xf32>) {
  // expected-error @+1 {{weight has rank 2 but must have 1}}
  %0 = braid.position_rate %d, %w : (tensor<2x8xi32>, tensor<4x2xf32>) -> tensor<2x8x3xf32>
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%d: tensor<2x9xi32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{token mismatch: result has 8 but documents has 9}}
  %0 = braid.position_rate %d, %w : (tensor<2x9xi32>, tensor<4xf32>) -> tensor<2x8x3xf32>
  return
}

// -----

// expected-note @+1 {{phase defined here}}
func.func @f(%d: tensor<2x8xi32>, %phase: tensor<4x6xf32>) {
  // expected-error @+1 {{key dimension mismatch: result has 5 but phase has 6}}
  %0 = braid.position_angle %d, %phase : (tensor<2x8xi32>, tensor<4x6xf32>) -> tensor<2x8x4x5xf32>
  return
}

// -----

// expected-note @+1 {{value defined here}}
func.func @f(%d: tensor<2x8xi32>, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{dimension mismatch: result has 5 but value has 4}}
  %0 = braid.every_token %d, %w : (tensor<2x8xi32>, tensor<4x6xf32>) -> tensor<2x8x5x6xf32>
  return
}

// -----

func.func @f(%d: tensor<2x8xi32>, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{result has rank 3 but must have 4}}
  %0 = braid.every_token %d, %w : (tensor<2x8xi32>, tensor<4x6xf32>) -> tensor<2x8x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x4x6xf32>) {
  // expected-error @+1 {{least 0.000000e+00 is not above 0}}
  %0 = braid.divide_by_last %x {eps = 0.0 : f64, least = 0.0 : f64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x5xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x4x6xf32>) {
  // expected-error @+1 {{zeros -1 is out of range; valid: 0 to 131072}}
  %0 = braid.append_one %x {zeros = -1 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x4x6xf32>) {
  // expected-error @+1 {{x has 6 features but needs at least 7: what is divided and the divisor}}
  %0 = braid.divide_by_last %x {eps = 1.0 : f64, zeros = 5 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x1xf32>
  return
}
