// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of the scan's chunk forms say. B = 2, T = 40, H = 3, K = 8, V = 4; chunks of 16: 4 rows.

func.func @f(%documents: tensor<40xi32>) {
  // expected-error @+1 {{documents has rank 1 but must have 2}}
  %0 = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (tensor<40xi32>) -> tensor<2x4x4xi32>
  return
}

// -----

func.func @f(%documents: tensor<2x40xf32>) {
  // expected-error @+1 {{documents must hold i32 but holds 'f32'}}
  %0 = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (tensor<2x40xf32>) -> tensor<2x4x4xi32>
  return
}

// -----

func.func @f(%documents: tensor<2x40xi32>) {
  // expected-error @+1 {{chunk_size is 0 but must be at least 1}}
  %0 = braid.lsm.chunk_table %documents {chunk_size = 0 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  return
}

// -----

func.func @f(%documents: tensor<2x40xi32>) {
  // expected-error @+1 {{chunks has rank 2 but must have 3}}
  %0 = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<4x4xi32>
  return
}

// -----

func.func @f(%documents: tensor<2x40xi32>) {
  // expected-error @+1 {{chunks must hold i32 but holds 'i64'}}
  %0 = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi64>
  return
}

// -----

func.func @f(%documents: tensor<2x40xi32>) {
  // expected-error @+1 {{chunks has 3 entries per chunk but must have 4}}
  %0 = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x3xi32>
  return
}

// -----

func.func @f(%d: tensor<2x40xi32>) {
  // expected-note @+2 {{chunks defined here}}
  // expected-error @+1 {{batch mismatch: documents has 2 but chunks has 3}}
  %0 = braid.lsm.chunk_table %d {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<3x4x4xi32>
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%documents: tensor<2x40xi32>) {
  // expected-error @+1 {{chunks has 2 rows but 40 tokens in chunks of 16 need 3}}
  %0 = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x2x4xi32>
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x41x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{token mismatch: k has 40 but v has 41}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x41x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{chunk_size is 0 but must be at least 1}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 0 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

// expected-note @+1 {{chunks defined here}}
func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<1x4x4xi32>) {
  // expected-error @+1 {{batch mismatch: k has 2 but chunks has 1}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<1x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{x has rank 4 but must have 5}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x3x8x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{x must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xi32>, tensor<2x4x3x8xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{batch mismatch: x has 1 but k has 2}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<1x4x3x8x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

// expected-note @+1 {{chunks defined here}}
func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{chunk mismatch: x has 5 but chunks has 4}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x5x3x8x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{head mismatch: x has 6 but k has 3}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x6x8x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{key dimension mismatch: x has 4 but k has 8}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x4x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{value dimension mismatch: x has 8 but v has 4}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x8xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class V needs p}}
  %0 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class I takes no p}}
  %0:2 = braid.lsm.chunk_state I %k, %v chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{p has rank 4 but must have 3}}
  %0:2 = braid.lsm.chunk_state S %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{p has rank 3 but must have 4}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %beta: tensor<2x40x3xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{p has rank 4 but must have 5}}
  %0:2 = braid.lsm.chunk_state GH %k, %v log_decay(%log_decay) beta(%beta) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{p must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xi32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-note @+2 {{x defined here}}
  // expected-error @+1 {{key dimension mismatch: p has 4 but x has 8}}
  %0:2 = braid.lsm.chunk_state V %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x4xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %beta: tensor<2x40x3xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-note @+2 {{x defined here}}
  // expected-error @+1 {{key dimension mismatch: p has 4 but x has 8}}
  %0:2 = braid.lsm.chunk_state H %k, %v beta(%beta) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<3xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-note @+2 {{x defined here}}
  // expected-error @+1 {{chunk mismatch: p has 5 but x has 4}}
  %0:2 = braid.lsm.chunk_state S0 %k, %v log_decay(%log_decay) chunks(%chunks) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x5x3xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{x has rank 4 but must have 5}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x4x3x8x4xi32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{x must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xi32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x4x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{initial_state has rank 5 but must have 4}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x8x4xi32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{initial_state must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xi32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xf32>) {
  // expected-error @+1 {{chunks must hold i32 but holds 'f32'}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xf32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{chunks defined here}}
func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x5x4xi32>) {
  // expected-error @+1 {{chunk mismatch: x has 4 but chunks has 5}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x5x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<1x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{batch mismatch: x has 2 but initial_state has 1}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<1x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x1x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{head mismatch: x has 3 but initial_state has 1}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x1x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x4x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{key dimension mismatch: x has 8 but initial_state has 4}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x4x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x8x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{value dimension mismatch: x has 4 but initial_state has 8}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class I takes no p}}
  %0:2 = braid.lsm.state_scan I %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x1xf32>, %initial_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{head mismatch: p has 1 but x has 3}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x1xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: m is 2x3x8x4 but x is 2x4x3x8x4}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{m must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xi32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %initial_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: final_state is 2x4x3x8x4 but initial_state is 2x3x8x4}}
  %0:2 = braid.lsm.state_scan S %x transition(%p) initial_state(%initial_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{dfinal_state defined here}}
func.func @f(%dm: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %dfinal_state: tensor<2x3x8x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{value dimension mismatch: dm has 4 but dfinal_state has 8}}
  %0:2 = braid.lsm.state_scan_grad S transition(%p) cotangents(%dm, %dfinal_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%dm: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %dfinal_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{p has rank 3 but must have 5}}
  %0:2 = braid.lsm.state_scan_grad H transition(%p) cotangents(%dm, %dfinal_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{dm defined here}}
func.func @f(%dm: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %dfinal_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: dx is 2x3x8x4 but dm is 2x4x3x8x4}}
  %0:2 = braid.lsm.state_scan_grad S transition(%p) cotangents(%dm, %dfinal_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x3x8x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{dfinal_state defined here}}
func.func @f(%dm: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3xf32>, %dfinal_state: tensor<2x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: dinitial_state is 2x3x4x8 but dfinal_state is 2x3x8x4}}
  %0:2 = braid.lsm.state_scan_grad S transition(%p) cotangents(%dm, %dfinal_state) chunks(%chunks) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x3x4xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{key dimension mismatch: q has 4 but k has 8}}
  %0 = braid.lsm.chunk_output S %q, %k, %v log_decay(%log_decay) in_state(%m) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{chunk_size is 0 but must be at least 1}}
  %0 = braid.lsm.chunk_output S %q, %k, %v log_decay(%log_decay) in_state(%m) chunks(%chunks) {chunk_size = 0 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %chunks: tensor<2x4x3xi32>) {
  // expected-error @+1 {{chunks has 3 entries per chunk but must have 4}}
  %0 = braid.lsm.chunk_output S %q, %k, %v log_decay(%log_decay) in_state(%m) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3xi32>) -> tensor<2x40x3x4xf32>
  return
}

// -----

// expected-note @+1 {{chunks defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x5x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{chunk mismatch: m has 5 but chunks has 4}}
  %0 = braid.lsm.chunk_output S %q, %k, %v log_decay(%log_decay) in_state(%m) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x5x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: o is 2x40x3x8 but v is 2x40x3x4}}
  %0 = braid.lsm.chunk_output S %q, %k, %v log_decay(%log_decay) in_state(%m) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{o must hold floating-point numbers but holds 'i32'}}
  %0 = braid.lsm.chunk_output S %q, %k, %v log_decay(%log_decay) in_state(%m) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xi32>
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %d_o: tensor<2x40x3x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{value dimension mismatch: dm has 8 but v has 4}}
  %0 = braid.lsm.chunk_output_grad_state S %q, %k, %v log_decay(%log_decay) cotangents(%d_o) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x8xf32>
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %d_o: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: d_o is 2x40x3x8 but v is 2x40x3x4}}
  %0 = braid.lsm.chunk_output_grad_state S %q, %k, %v log_decay(%log_decay) cotangents(%d_o) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x3x8x4xf32>, %dx: tensor<2x4x3x8x4xf32>, %d_o: tensor<2x40x3x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{m has rank 4 but must have 5}}
  %0:4 = braid.lsm.chunk_grad S %q, %k, %v log_decay(%log_decay) in_state(%m) cotangents(%dx, %d_o) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %dx: tensor<2x4x3x4x4xf32>, %d_o: tensor<2x40x3x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{key dimension mismatch: dx has 4 but k has 8}}
  %0:4 = braid.lsm.chunk_grad S %q, %k, %v log_decay(%log_decay) in_state(%m) cotangents(%dx, %d_o) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x4x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %dx: tensor<2x4x3x8x4xf32>, %d_o: tensor<2x40x3x8xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: d_o is 2x40x3x8 but v is 2x40x3x4}}
  %0:4 = braid.lsm.chunk_grad S %q, %k, %v log_decay(%log_decay) in_state(%m) cotangents(%dx, %d_o) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>)
  return
}

// -----

// expected-note @+1 {{q defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %dx: tensor<2x4x3x8x4xf32>, %d_o: tensor<2x40x3x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: dq is 2x40x3x4 but q is 2x40x3x8}}
  %0:4 = braid.lsm.chunk_grad S %q, %k, %v log_decay(%log_decay) in_state(%m) cotangents(%dx, %d_o) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %dx: tensor<2x4x3x8x4xf32>, %d_o: tensor<2x40x3x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: dk is 2x40x3x4 but k is 2x40x3x8}}
  %0:4 = braid.lsm.chunk_grad S %q, %k, %v log_decay(%log_decay) in_state(%m) cotangents(%dx, %d_o) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %dx: tensor<2x4x3x8x4xf32>, %d_o: tensor<2x40x3x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: dv is 2x40x3x8 but v is 2x40x3x4}}
  %0:4 = braid.lsm.chunk_grad S %q, %k, %v log_decay(%log_decay) in_state(%m) cotangents(%dx, %d_o) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %dx: tensor<2x4x3x8x4xf32>, %d_o: tensor<2x40x3x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class S has 1 gate cotangents but there are 0}}
  %0:3 = braid.lsm.chunk_grad S %q, %k, %v log_decay(%log_decay) in_state(%m) cotangents(%dx, %d_o) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>)
  return
}

// -----

// expected-note @+1 {{log_decay defined here}}
func.func @f(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %log_decay: tensor<2x40x3xf32>, %m: tensor<2x4x3x8x4xf32>, %dx: tensor<2x4x3x8x4xf32>, %d_o: tensor<2x40x3x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{shape mismatch: gate cotangent is 2x40x3x8 but log_decay is 2x40x3}}
  %0:4 = braid.lsm.chunk_grad S %q, %k, %v log_decay(%log_decay) in_state(%m) cotangents(%dx, %d_o) chunks(%chunks) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xbf16>, %v: tensor<2x40x3x4xbf16>, %g: tensor<2x40x3xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class GH has no walk: S and V have}}
  %0:2 = braid.lsm.state_walk GH %k, %v log_decay(%g) state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xbf16>, tensor<2x40x3x4xbf16>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x8x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%k: tensor<2x40x3x8xbf16>, %v: tensor<2x40x3x4xbf16>, %g: tensor<2x40x3xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{log_decay has rank 3 but must have 4}}
  %0:2 = braid.lsm.state_walk V %k, %v log_decay(%g) state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xbf16>, tensor<2x40x3x4xbf16>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x8x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%k: tensor<2x40x3x8xbf16>, %v: tensor<2x40x3x4xbf16>, %g: tensor<2x40x3xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{key dimension mismatch}}
  %0:2 = braid.lsm.state_walk S %k, %v log_decay(%g) state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xbf16>, tensor<2x40x3x4xbf16>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>)
      -> (tensor<2x4x3x4x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xbf16>, %v: tensor<2x40x3x4xbf16>, %g: tensor<2x40x3xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class E has no walk that stores outputs: I, S0, S, V, H and GH have}}
  %0:2 = braid.lsm.output_walk E %q, %q, %v log_decay(%g) initial_state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xbf16>, tensor<2x40x3x8xbf16>, tensor<2x40x3x4xbf16>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{log_decay defined here}}
func.func @f(%q: tensor<2x40x3x8xbf16>, %v: tensor<2x40x3x4xbf16>, %g: tensor<2x40x3x4xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{key dimension mismatch: k has 8 but log_decay has 4}}
  %0:2 = braid.lsm.output_walk V %q, %q, %v log_decay(%g) initial_state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xbf16>, tensor<2x40x3x8xbf16>, tensor<2x40x3x4xbf16>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xbf16>, %v: tensor<2x40x3x4xbf16>, %g: tensor<2x40x3xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class S needs log_decay}}
  %0:2 = braid.lsm.output_walk S %q, %q, %v initial_state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xbf16>, tensor<2x40x3x8xbf16>, tensor<2x40x3x4xbf16>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xbf16>, %v: tensor<2x40x3x4xbf16>, %g: tensor<2x40x3xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class I takes no log_decay}}
  %0:2 = braid.lsm.output_walk I %q, %q, %v log_decay(%g) initial_state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xbf16>, tensor<2x40x3x8xbf16>, tensor<2x40x3x4xbf16>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xbf16>, %v: tensor<2x40x3x4xbf16>, %g: tensor<2x40x3xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{log_decay has rank 3 but must have 1}}
  %0:2 = braid.lsm.output_walk S0 %q, %q, %v log_decay(%g) initial_state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xbf16>, tensor<2x40x3x8xbf16>, tensor<2x40x3x4xbf16>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{initial_state defined here}}
func.func @f(%q: tensor<2x40x3x8xbf16>, %v: tensor<2x40x3x4xbf16>, %g: tensor<2x40x3xf32>, %s: tensor<2x3x8x5xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{value dimension mismatch: v has 4 but initial_state has 5}}
  %0:2 = braid.lsm.output_walk S %q, %q, %v log_decay(%g) initial_state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xbf16>, tensor<2x40x3x8xbf16>, tensor<2x40x3x4xbf16>, tensor<2x40x3xf32>, tensor<2x3x8x5xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xbf16>, tensor<2x3x8x5xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xbf16>, %v: tensor<2x40x3x4xbf16>, %g: tensor<2x40x3xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x3xi32>) {
  // expected-error @+1 {{chunks has 3 entries per chunk but must have 4}}
  %0:2 = braid.lsm.output_walk S %q, %q, %v log_decay(%g) initial_state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xbf16>, tensor<2x40x3x8xbf16>, tensor<2x40x3x4xbf16>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x3xi32>) -> (tensor<2x40x3x4xbf16>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class H needs inverse}}
  %0:2 = braid.lsm.output_walk H %q, %q, %v initial_state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %t: tensor<2x4x3x16x16xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{class GH needs sums}}
  %0:2 = braid.lsm.output_walk GH %q, %q, %v inverse(%t) initial_state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x3x16x16xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %t: tensor<2x4x3x16x8xf32>, %s: tensor<2x3x8x4xf32>, %c: tensor<2x4x4xi32>) {
  // expected-error @+1 {{inverse has 8 numbers per chunk but must have 16}}
  %0:2 = braid.lsm.output_walk H %q, %q, %v inverse(%t) initial_state(%s) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x3x16x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x40x3x8xf32>, %v: tensor<2x40x3x4xf32>, %m: tensor<2x4x3x8x4xf32>, %chunks: tensor<2x4x4xi32>) {
  // expected-error @+1 {{has 2 operands where one is; valid: an operandSegmentSizes of 0 or 1}}
  %0:3 = "braid.lsm.chunk_grad"(%q, %chunks, %q, %q, %v, %m, %m, %v, %chunks) <{chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 2, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1>, scale = 5.0e-01 : f64}> : (tensor<2x40x3x8xf32>, tensor<2x4x4xi32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>)
  return
}
