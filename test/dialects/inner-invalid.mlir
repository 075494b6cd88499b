// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of the inner step and its chunk forms say. B = 2, T = 40, H = 3, K = 8, V = 4.

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x24xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{k has rank 3 but must have 4}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x24xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xi32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{v must hold floating-point numbers but holds}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xi32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xi32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x39x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{token mismatch: k has 40 but v has 39}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x39x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x39x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x2x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{head mismatch: k has 3 but v has 2}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x2x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x2x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x3x7xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{shape mismatch: q is 2x40x3x7 but k is 2x40x3x8}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x7xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3x1xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{rate has rank 4 but must have 3}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x1xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{rate defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x2xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{head mismatch: k has 3 but rate has 2}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x2xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{log_decay defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %log_decay: tensor<2x40x3xf64>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{element type mismatch: rate holds}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) log_decay(%log_decay) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf64>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %log_decay: tensor<2x40x3xf32>, %read_rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{has a read_rate and a log_decay; steps are weighted where they are read or decay, not both}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) log_decay(%log_decay) read_rate(%read_rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %log_momentum: tensor<2x40x3xf32>, %read_rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{has a read_rate and a log_momentum}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) log_momentum(%log_momentum) read_rate(%read_rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{norm weight defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %norm_weight: tensor<4x4xf32>, %norm_bias: tensor<3x4xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{head mismatch: k has 3 but norm weight has 4}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) norm(%norm_weight, %norm_bias) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<4x4xf32>, tensor<3x4xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{norm bias defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %norm_weight: tensor<3x4xf32>, %norm_bias: tensor<3x5xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{value dimension mismatch: v has 4 but norm bias has 5}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) norm(%norm_weight, %norm_bias) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<3x4xf32>, tensor<3x5xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{weights defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %weights: tensor<3x9x4xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{key dimension mismatch: k has 8 but weights has 9}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) weights(%weights) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<3x9x4xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{weights defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %weights: tensor<3x8x5xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{value dimension mismatch: v has 4 but weights has 5}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) weights(%weights) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<3x8x5xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{mini_batch is 0 but must be at least 1}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 0 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{mini_batch is 129 but must be at most 128: a mini-batch is computed at a time}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 129 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %log_momentum: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{initial_state has 16 rows but class GM of these operands keeps 3 planes of 8}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) log_momentum(%log_momentum) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %read_rate: tensor<2x40x3xf32>, %state: tensor<2x3x24x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{initial_state has 24 rows but class GM of these operands keeps 2 planes of 8}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) read_rate(%read_rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x24x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x24x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %norm_weight: tensor<3x4xf32>, %norm_bias: tensor<3x4xf32>, %state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{initial_state has 8 rows but class N of these operands keeps 2 planes of 8}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) norm(%norm_weight, %norm_bias) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x5xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{value dimension mismatch: v has 4 but initial_state has 5}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x5xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x5xf32>)
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x39xi32>) {
  // expected-error @+1 {{token mismatch: k has 40 but documents has 39}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x39xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{shape mismatch: o is 2x40x3x5 but v is 2x40x3x4}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x5xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{final_state}}
  %0:2 = braid.lsm.inner_step %q, %k, %v rate(%rate) initial_state(%state) documents(%documents) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %w: tensor<3x4xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{has a norm of a weight alone}}
  %0:2 = "braid.lsm.inner_step"(%q, %q, %v, %rate, %w, %state, %documents) <{mini_batch = 16 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1>}> : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<3x4xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{has 1 gates and weights but 0 cotangents of them}}
  %0:4 = braid.lsm.inner_step_grad %q, %q, %v rate(%rate) initial_state(%state) documents(%documents) cotangents(%v, %state) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{its value defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{shape mismatch: dk is 2x40x3x4 but its value is 2x40x3x8}}
  %0:5 = braid.lsm.inner_step_grad %q, %q, %v rate(%rate) initial_state(%state) documents(%documents) cotangents(%v, %state) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>)
  return
}

// -----

// expected-note @+1 {{chunks defined here}}
func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{chunk mismatch: states has 5 but chunks has 4}}
  %0:3 = braid.lsm.inner_states %k, %v rate(%rate) initial_state(%state) chunks(%chunks) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x5x3x8x4xf32>, tensor<2x3x16x4xf32>, tensor<2x40x3x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %chunks: tensor<2x5x4xi32>) {
  // expected-error @+1 {{states has 16 rows but class G1 of these operands keeps 1 planes of 8 for a chunk}}
  %0:3 = braid.lsm.inner_states %k, %v rate(%rate) initial_state(%state) chunks(%chunks) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x5x4xi32>) -> (tensor<2x5x3x16x4xf32>, tensor<2x3x16x4xf32>, tensor<2x40x3x4xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %chunks: tensor<2x5x4xi32>) {
  // expected-error @+1 {{has predictions but no norm}}
  %0:4 = braid.lsm.inner_states %k, %v rate(%rate) initial_state(%state) chunks(%chunks) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x16x4xf32>, tensor<2x5x4xi32>) -> (tensor<2x5x3x8x4xf32>, tensor<2x3x16x4xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %u: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %states: tensor<2x5x3x8x4xf32>, %chunks: tensor<2x5x4xi32>) {
  // expected-error @+1 {{has no initial_state: a row may begin inside a mini-batch}}
  %0 = braid.lsm.inner_output %q, %q rate(%rate) read_rate(%rate) residuals(%u) in_state(%states) chunks(%chunks) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x40x3x4xf32>, tensor<2x5x3x8x4xf32>, tensor<2x5x4xi32>) -> tensor<2x40x3x4xf32>
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %u: tensor<2x40x3x4xf32>, %rate: tensor<2x40x3xf32>, %state: tensor<2x3x16x4xf32>, %states: tensor<2x5x3x8x4xf32>, %chunks: tensor<2x5x4xi32>) {
  // expected-error @+1 {{has an initial_state: states of chunks say all}}
  %0 = braid.lsm.inner_output %q, %q rate(%rate) residuals(%u) initial_state(%state) in_state(%states) chunks(%chunks) {mini_batch = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x40x3x4xf32>, tensor<2x3x16x4xf32>, tensor<2x5x3x8x4xf32>, tensor<2x5x4xi32>) -> tensor<2x40x3x4xf32>
  return
}
