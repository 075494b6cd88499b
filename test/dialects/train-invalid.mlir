// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of initialisation and the optimizer say.

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{unknown distribution "poisson"; valid: normal, uniform, log_uniform, softplus_inverse, constant, values}}
  %0 = braid.init %seed {distribution = "poisson", keys = array<i64: 7>} : (tensor<1xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{result must hold floating-point numbers but holds 'i32'}}
  %0 = braid.init %seed {distribution = "normal", keys = array<i64: 7>} : (tensor<1xi64>) -> tensor<6x8xi32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{unknown part "high"; valid: low, half}}
  %0 = braid.init %seed {distribution = "normal", keys = array<i64: 7>, part = "high"} : (tensor<1xi64>) -> tensor<6x8xi16>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{part "low" must hold i16 but holds 'f32'}}
  %0 = braid.init %seed {distribution = "normal", keys = array<i64: 7>, part = "low"} : (tensor<1xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{part "half" must hold f32 or bf16 but holds 'f64'}}
  %0 = braid.init %seed {distribution = "normal", keys = array<i64: 7>, part = "half"} : (tensor<1xi64>) -> tensor<6x8xf64>
  return
}

// -----

func.func @f(%seed: tensor<2xi64>) {
  // expected-error @+1 {{seed must have one element but is 2}}
  %0 = braid.init %seed {distribution = "normal", keys = array<i64: 7>} : (tensor<2xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xf32>) {
  // expected-error @+1 {{seed must hold integers but holds 'f32'}}
  %0 = braid.init %seed {distribution = "normal", keys = array<i64: 7>} : (tensor<1xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{5 keys do not divide 48 elements}}
  %0 = braid.init %seed {distribution = "normal", keys = array<i64: 1, 2, 3, 4, 5>, stacked} : (tensor<1xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{0 keys do not divide 48 elements}}
  %0 = braid.init %seed {distribution = "normal", keys = array<i64>} : (tensor<1xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{has 2 keys but is not stacked}}
  %0 = braid.init %seed {distribution = "normal", keys = array<i64: 1, 2>} : (tensor<1xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{needs a table of values whose length divides 48}}
  %0 = braid.init %seed {distribution = "values", keys = array<i64: 7>} : (tensor<1xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{needs a table of values whose length divides 48}}
  %0 = braid.init %seed {distribution = "values", keys = array<i64: 7>, values = array<f64: 1.0, 2.0, 3.0, 4.0, 5.0>} : (tensor<1xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{low is 1.000000e+00 but high is -1.000000e+00}}
  %0 = braid.init %seed {distribution = "uniform", keys = array<i64: 7>, low = 1.0 : f64, high = -1.0 : f64} : (tensor<1xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>) {
  // expected-error @+1 {{low is 0.000000e+00 but its logarithm is taken}}
  %0 = braid.init %seed {distribution = "log_uniform", keys = array<i64: 7>, low = 0.0 : f64, high = 1.0 : f64} : (tensor<1xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>, %c: tensor<2xi32>) {
  // expected-error @+1 {{coordinate must have one element but is 2}}
  %0 = braid.init %seed, %c {distribution = "normal", keys = array<i64: 7>, shard_counts = array<i64: 2>, shard_dims = array<i64: 0>} : (tensor<1xi64>, tensor<2xi32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>, %c: tensor<1xi64>) {
  // expected-error @+1 {{coordinate must hold i32 but holds 'i64'}}
  %0 = braid.init %seed, %c {distribution = "normal", keys = array<i64: 7>, shard_counts = array<i64: 2>, shard_dims = array<i64: 0>} : (tensor<1xi64>, tensor<1xi64>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>, %c: tensor<1xi32>) {
  // expected-error @+1 {{shard_counts is 0 but must be at least 1}}
  %0 = braid.init %seed, %c {distribution = "normal", keys = array<i64: 7>, shard_counts = array<i64: 0>, shard_dims = array<i64: 0>} : (tensor<1xi64>, tensor<1xi32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>, %c: tensor<1xi32>) {
  // expected-error @+1 {{shard_dims holds 2, which is outside rank 2}}
  %0 = braid.init %seed, %c {distribution = "normal", keys = array<i64: 7>, shard_counts = array<i64: 2>, shard_dims = array<i64: 2>} : (tensor<1xi64>, tensor<1xi32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>, %c: tensor<1xi32>) {
  // expected-error @+1 {{shard_dims holds 0 behind 1; they must ascend}}
  %0 = braid.init %seed, %c, %c {distribution = "normal", keys = array<i64: 7>, shard_counts = array<i64: 2, 2>, shard_dims = array<i64: 1, 0>} : (tensor<1xi64>, tensor<1xi32>, tensor<1xi32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%seed: tensor<1xi64>, %c: tensor<1xi32>) {
  // expected-error @+1 {{has 1 coordinates but 0 shard_dims and 0 shard_counts}}
  %0 = braid.init %seed, %c {distribution = "normal", keys = array<i64: 7>} : (tensor<1xi64>, tensor<1xi32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{has no operands}}
  %0 = "braid.sum_squares"() : () -> tensor<1xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xi32>) {
  // expected-error @+1 {{x must hold floating-point numbers but holds 'i32'}}
  %0 = braid.sum_squares %x : (tensor<2x8xi32>) -> tensor<1xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{result must hold floating-point numbers but holds 'i32'}}
  %0 = braid.sum_squares %x : (tensor<2x8xf32>) -> tensor<1xi32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{result must have one element but is 2}}
  %0 = braid.sum_squares %x : (tensor<2x8xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @f(%s: tensor<2xf32>) {
  // expected-error @+1 {{sum_squares must have one element but is 2}}
  %0:2 = braid.clip_scale %s {max_norm = 1.0 : f64} : (tensor<2xf32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%s: tensor<1xf32>) {
  // expected-error @+1 {{norm must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.clip_scale %s {max_norm = 1.0 : f64} : (tensor<1xf32>) -> (tensor<1xi32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%s: tensor<1xf32>) {
  // expected-error @+1 {{scale must have one element but is 1x2}}
  %0:2 = braid.clip_scale %s {max_norm = 1.0 : f64} : (tensor<1xf32>) -> (tensor<1xf32>, tensor<1x2xf32>)
  return
}

// -----

func.func @f(%s: tensor<1xf32>) {
  // expected-error @+1 {{max_norm is -1.000000e+00 but must not be negative}}
  %0:2 = braid.clip_scale %s {max_norm = -1.0 : f64} : (tensor<1xf32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

// expected-note @+1 {{gradient defined here}}
func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x7xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{shape mismatch: parameter is 6x8 but gradient is 6x7}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x7xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

// expected-note @+1 {{first defined here}}
func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<8x6xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{shape mismatch: parameter is 6x8 but first is 8x6}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<8x6xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

// expected-note @+1 {{second defined here}}
func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<48xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{shape mismatch: parameter is 6x8 but second is 48}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<48xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xi32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{gradient must hold floating-point numbers but holds 'i32'}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xi32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

func.func @f(%parameter: tensor<6x8xi32>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{parameter must hold floating-point numbers but holds 'i32'}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xi32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

// expected-note @+1 {{second defined here}}
func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xbf16>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{element type mismatch: first holds 'f32' but second holds 'bf16'}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xbf16>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<2xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{learning_rate must have one element but is 2}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<2xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<2xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{step must have one element but is 2}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<2xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<2xf32>) {
  // expected-error @+1 {{scale must have one element but is 2}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<2xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xi32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{learning_rate must hold floating-point numbers but holds 'i32'}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xf32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{step must hold i32 but holds 'f32'}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xi32>) {
  // expected-error @+1 {{scale must hold floating-point numbers but holds 'i32'}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xi32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

// expected-note @+1 {{parameter defined here}}
func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{element type mismatch: new_parameter holds 'f32' but parameter holds 'bf16'}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

// expected-note @+1 {{first defined here}}
func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{shape mismatch: new_first is 8x6 but first is 6x8}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<8x6xf32>, tensor<6x8xf32>)
  return
}

// -----

// expected-note @+1 {{second defined here}}
func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>) {
  // expected-error @+1 {{element type mismatch: new_second holds 'bf16' but second holds 'f32'}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xbf16>)
  return
}

// -----

func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>, %low: tensor<6x8xi16>) {
  // expected-error @+1 {{needs both low and new_low, or neither}}
  %0:3 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale, %low {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>, tensor<6x8xi16>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}

// -----

// expected-note @+1 {{low defined here}}
func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>, %low: tensor<8x6xi16>) {
  // expected-error @+1 {{shape mismatch: parameter is 6x8 but low is 8x6}}
  %0:4 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale, %low {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>, tensor<8x6xi16>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<8x6xi16>)
  return
}

// -----

// expected-note @+1 {{low defined here}}
func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>, %low: tensor<6x8xi16>) {
  // expected-error @+1 {{element type mismatch: new_low holds 'bf16' but low holds 'i16'}}
  %0:4 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale, %low {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>, tensor<6x8xi16>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xbf16>)
  return
}

// -----

func.func @f(%parameter: tensor<6x8xbf16>, %gradient: tensor<6x8xf32>, %first: tensor<6x8xf32>, %second: tensor<6x8xf32>, %learning_rate: tensor<1xf32>, %step: tensor<1xi32>, %scale: tensor<1xf32>, %low: tensor<6x8xf32>) {
  // expected-error @+1 {{a master is bf16, i16 and the sign of f32 or bf16, but parameter holds 'bf16', low 'f32' and second 'f32'}}
  %0:4 = braid.adamw %parameter, %gradient, %first, %second, %learning_rate, %step, %scale, %low {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64} : (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>, tensor<6x8xf32>) -> (tensor<6x8xbf16>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>)
  return
}
