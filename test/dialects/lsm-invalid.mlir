// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of the scan, its adjoint and its step say. B = 2, T = 40, H = 3, K = 8, V = 4.

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x24xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{k has rank 3 but must have 4}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x24xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xi32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{k must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x24xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{q has rank 3 but must have 4}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x24xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xi32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{q must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xi32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<3x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{batch mismatch: q has 3 but k has 2}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<3x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x39x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{token mismatch: q has 39 but k has 40}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x39x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x6x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{head mismatch: q has 6 but k has 3}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x6x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x3x16xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{key dimension mismatch: q has 16 but k has 8}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x16xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x24xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{v has rank 3 but must have 4}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x24xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xi32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{v must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xi32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x39x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{token mismatch: k has 40 but v has 39}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x39x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x6x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{head mismatch: k has 3 but v has 6}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x6x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{class I takes no log_decay}}
  %0:2 = braid.lsm.scan I %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{class S needs log_decay}}
  %0:2 = braid.lsm.scan S %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{class H takes no log_decay}}
  %0:2 = braid.lsm.scan H %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{class GH needs beta}}
  %0:2 = braid.lsm.scan GH %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{class V takes no beta}}
  %0:2 = braid.lsm.scan V %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{log_decay has rank 3 but must have 1}}
  %0:2 = braid.lsm.scan S0 %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<3xi32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{log_decay must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.scan S0 %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xi32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{log_decay defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{head mismatch: k has 3 but log_decay has 4}}
  %0:2 = braid.lsm.scan S0 %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{log_decay has rank 4 but must have 3}}
  %0:2 = braid.lsm.scan S %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xi32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{log_decay must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.scan S %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xi32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{log_decay defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x41x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{token mismatch: k has 40 but log_decay has 41}}
  %0:2 = braid.lsm.scan S %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x41x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{log_decay defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{key dimension mismatch: k has 8 but log_decay has 4}}
  %0:2 = braid.lsm.scan V %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{beta defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %beta: tensor<2x40x1xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{head mismatch: k has 3 but beta has 1}}
  %0:2 = braid.lsm.scan H %q, %k, %v beta(%beta) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x1xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<40xi32>) {
  // expected-error @+1 {{documents has rank 1 but must have 2}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xf32>) {
  // expected-error @+1 {{documents must hold i32 but holds 'f32'}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xf32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x41xi32>) {
  // expected-error @+1 {{token mismatch: k has 40 but documents has 41}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x41xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{initial_state has rank 3 but must have 4}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xi32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{initial_state must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xi32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<1x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{batch mismatch: k has 2 but initial_state has 1}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<1x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x1x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{head mismatch: k has 3 but initial_state has 1}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x1x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x4x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{key dimension mismatch: k has 8 but initial_state has 4}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x4x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<3xf32>, %initial_state: tensor<2x3x8x8xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{value dimension mismatch: v has 4 but initial_state has 8}}
  %0:2 = braid.lsm.scan S0 %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x3x8x8xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{chunk_size is 0 but must be at least 1}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {chunk_size = 0 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{o must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xi32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{shape mismatch: o is 2x40x3x8 but v is 2x40x3x4}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{shape mismatch: final_state is 2x3x4x8 but initial_state is 2x3x8x4}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{element type mismatch: final_state holds 'bf16' but initial_state holds 'f32'}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xbf16>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %s: tensor<2x3x8x4xf32>, %d: tensor<2x40xi32>) {
  // expected-error @+1 {{takes one token but k has 40}}
  %0:2 = braid.lsm.step I %q, %k, %v initial_state(%s) documents(%d) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x1x3x8xf32>, %k: tensor<2x1x3x8xf32>, %v: tensor<2x1x3x4xf32>, %s: tensor<2x3x8x4xf32>, %d: tensor<2x1xi32>) {
  // expected-error @+1 {{shape mismatch: o is 2x1x3x8 but v is 2x1x3x4}}
  %0:2 = braid.lsm.step I %q, %k, %v initial_state(%s) documents(%d) {scale = 1.0 : f64} : (tensor<2x1x3x8xf32>, tensor<2x1x3x8xf32>, tensor<2x1x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x1xi32>) -> (tensor<2x1x3x8xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x8xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xf32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{value dimension mismatch: v has 4 but initial_state has 8}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x8xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xf32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{chunk_size is -16 but must be at least 1}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {chunk_size = -16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x8xf32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{shape mismatch: d_o is 2x40x3x8 but v is 2x40x3x4}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xi32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{d_o must hold floating-point numbers but holds 'i32'}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xi32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xf32>, %dfinal_state: tensor<2x3x4x8xf32>) {
  // expected-error @+1 {{shape mismatch: dfinal_state is 2x3x4x8 but initial_state is 2x3x8x4}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x4x8xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{q defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xf32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{shape mismatch: dq is 2x40x3x4 but q is 2x40x3x8}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xf32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{shape mismatch: dk is 2x40x3x4 but k is 2x40x3x8}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xf32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{shape mismatch: dv is 2x40x3x8 but v is 2x40x3x4}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xf32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{class GH has 2 gate cotangents but there are 1}}
  %0:5 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xf32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{gate cotangent must hold floating-point numbers but holds 'i32'}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xi32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{beta defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xf32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{shape mismatch: gate cotangent is 2x40x1 but beta is 2x40x3}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x1xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>, %d_o: tensor<2x40x3x4xf32>, %dfinal_state: tensor<2x3x8x4xf32>) {
  // expected-error @+1 {{shape mismatch: dinitial_state is 2x3x4x8 but initial_state is 2x3x8x4}}
  %0:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%initial_state) documents(%documents) cotangents(%d_o, %dfinal_state) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %a: tensor<2x40x3x8xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{class D needs b}}
  %0:2 = braid.lsm.scan D %q, %k, %v log_decay(%log_decay) a(%a) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %a: tensor<2x40x3x8xf32>, %b: tensor<2x40x3x8xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{class V takes no a}}
  %0:2 = braid.lsm.scan V %q, %k, %v log_decay(%log_decay) a(%a) b(%b) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{b defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %a: tensor<2x40x3x8xf32>, %b: tensor<2x40x3x7xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{key dimension mismatch: k has 8 but b has 7}}
  %0:2 = braid.lsm.scan D %q, %k, %v log_decay(%log_decay) a(%a) b(%b) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x7xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %a: tensor<2x40x24xf32>, %b: tensor<2x40x3x8xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{a has rank 3 but must have 4}}
  %0:2 = braid.lsm.scan D %q, %k, %v log_decay(%log_decay) a(%a) b(%b) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x24xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{a defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %a: tensor<2x40x3x8xbf16>, %b: tensor<2x40x3x8xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{element type mismatch: k holds}}
  %0:2 = braid.lsm.scan D %q, %k, %v log_decay(%log_decay) a(%a) b(%b) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xbf16>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{class R needs value_decay}}
  %0:2 = braid.lsm.scan R %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{value_decay defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %value_decay: tensor<2x40x3x8xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{value dimension mismatch: v has 4 but value_decay has 8}}
  %0:2 = braid.lsm.scan R %q, %k, %v log_decay(%log_decay) value_decay(%value_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{log_decay has rank 4 but must have 5}}
  %0:2 = braid.lsm.scan E %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{log_decay defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8x5xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{value dimension mismatch: v has 4 but log_decay has 5}}
  %0:2 = braid.lsm.scan E %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8x5xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{class VH needs beta}}
  %0:2 = braid.lsm.scan VH %q, %k, %v log_decay(%log_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8x4xf32>, %value_decay: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{log_decay has rank 5 but must have 3}}
  %0:2 = braid.lsm.scan E %q, %k, %v log_decay(%log_decay) value_decay(%value_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{log_decay defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<3x8x5xf32>, %value_decay: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{value dimension mismatch: v has 4 but log_decay has 5}}
  %0:2 = braid.lsm.scan E %q, %k, %v log_decay(%log_decay) value_decay(%value_decay) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3x8x5xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @updates_of_keys_alone(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x2x3x8xf32>, %v: tensor<2x40x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{v has rank 4 but must have 5}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x2x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @updates_mismatch(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x2x3x8xf32>, %v: tensor<2x40x5x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{update mismatch: k has 2 but v has 5}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x2x3x8xf32>, tensor<2x40x5x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{beta defined here}}
func.func @updates_of_beta(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x2x3x8xf32>, %v: tensor<2x40x2x3x4xf32>, %beta: tensor<2x40x4x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{update mismatch: k has 2 but beta has 4}}
  %0:2 = braid.lsm.scan H %q, %k, %v beta(%beta) initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x2x3x8xf32>, tensor<2x40x2x3x4xf32>, tensor<2x40x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @output_of_updates(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x2x3x8xf32>, %v: tensor<2x40x2x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x40xi32>) {
  // expected-error @+1 {{value dimension mismatch: o has 5 but v has 4}}
  %0:2 = braid.lsm.scan I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x2x3x8xf32>, tensor<2x40x2x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x5xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @step_of_updates(%q: tensor<2x1x3x8xf32>, %k: tensor<2x1x2x3x8xf32>, %v: tensor<2x1x2x3x4xf32>, %initial_state: tensor<2x3x8x4xf32>, %documents: tensor<2x1xi32>) {
  // expected-error @+1 {{k has rank 5 but must have 4}}
  %0:2 = braid.lsm.step I %q, %k, %v initial_state(%initial_state) documents(%documents) {scale = 1.0 : f64} : (tensor<2x1x3x8xf32>, tensor<2x1x2x3x8xf32>, tensor<2x1x2x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x1xi32>) -> (tensor<2x1x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}
