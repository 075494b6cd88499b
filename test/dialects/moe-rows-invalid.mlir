// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of the ops on experts' rows say: dispatch, permute, combine, grouped_linear and their gradients.

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{rows has rank 2 but must have 3}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{rows must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xi32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{rows has 2 in front but expert rows have 1}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<2x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<1x32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{perm has rank 2 but must have 1}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<1x32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xf32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{perm must hold i32 but holds 'f32'}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<32xf32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{perm defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<31xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{row mismatch: rows has 32 but perm has 31}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<31xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<16x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{x has rank 2 but must have 3}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<16x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xi32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{x must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xi32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<16x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{inverse has rank 2 but must have 3}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<16x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xf32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{inverse must hold i32 but holds 'f32'}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xf32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x9x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{token mismatch: x has 8 but inverse has 9}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x9x2xi32>, tensor<1xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xf32>) {
  // expected-error @+1 {{exchange must hold i32 but holds 'f32'}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xf32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{element type mismatch: rows holds 'bf16' but x holds 'f32'}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x16xbf16>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{width mismatch: rows has 15 but x has 16}}
  %0 = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> tensor<1x32x15xf32>
  return
}

// -----

// expected-note @+1 {{perm defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<32xi32>) {
  // expected-error @+1 {{row mismatch: rows has 31 but perm has 32}}
  %0 = braid.moe.permute %x plan(%perm, %inverse) : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<32xi32>) -> tensor<1x31x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<32xi32>) {
  // expected-error @+1 {{x has 2 in front but expert rows have 1}}
  %0 = braid.moe.permute %x plan(%perm, %inverse) : (tensor<2x32x16xf32>, tensor<32xi32>, tensor<32xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>) {
  // expected-error @+1 {{inverse has rank 3 but must have 1}}
  %0 = braid.moe.permute %x plan(%perm, %inverse) : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<2x8x2xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<30xi32>) {
  // expected-error @+1 {{row mismatch: x has 32 but inverse has 30}}
  %0 = braid.moe.permute %x plan(%perm, %inverse) : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<30xi32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<32xi32>) {
  // expected-error @+1 {{element type mismatch: rows holds 'bf16' but x holds 'f32'}}
  %0 = braid.moe.permute %x plan(%perm, %inverse) : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<32xi32>) -> tensor<1x32x16xbf16>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %perm: tensor<32xi32>, %inverse: tensor<32xi32>) {
  // expected-error @+1 {{width mismatch: rows has 8 but x has 16}}
  %0 = braid.moe.permute %x plan(%perm, %inverse) : (tensor<1x32x16xf32>, tensor<32xi32>, tensor<32xi32>) -> tensor<1x32x8xf32>
  return
}

// -----

// expected-note @+1 {{perm defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<31xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{row mismatch: rows has 32 but perm has 31}}
  %0:2 = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<31xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{y has rank 2 but must have 3}}
  %0:2 = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<16x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<16x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{inverse has rank 2 but must have 3}}
  %0:2 = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<16x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{batch mismatch: y has 3 but inverse has 2}}
  %0:2 = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<3x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xf32>) {
  // expected-error @+1 {{exchange must hold i32 but holds 'f32'}}
  %0:2 = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xf32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xi32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{weights must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<1x32x16xf32>, tensor<2x8x2xi32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x3xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{shape mismatch: weights is 2x8x3 but inverse is 2x8x2}}
  %0:2 = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<1x32x16xf32>, tensor<2x8x3xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xf32>)
  return
}

// -----

// expected-note @+1 {{rows defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{shape mismatch: returned is 1x31x16 but rows is 1x32x16}}
  %0:2 = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x31x16xf32>)
  return
}

// -----

// expected-note @+1 {{rows defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{element type mismatch: returned holds 'bf16' but rows holds 'f32'}}
  %0:2 = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf32>, tensor<1x32x16xbf16>)
  return
}

// -----

// expected-note @+1 {{rows defined here}}
func.func @f(%rows: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{width mismatch: y has 15 but rows has 16}}
  %0:2 = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x15xf32>, tensor<1x32x16xf32>)
  return
}

// -----

// expected-note @+1 {{perm defined here}}
func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<31xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{row mismatch: returned has 32 but perm has 31}}
  %0:2 = braid.moe.combine_grad cotangents(%dy) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<31xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%dy: tensor<2x9x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{token mismatch: dy has 9 but inverse has 8}}
  %0:2 = braid.moe.combine_grad cotangents(%dy) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<2x9x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xf32>) {
  // expected-error @+1 {{exchange must hold i32 but holds 'f32'}}
  %0:2 = braid.moe.combine_grad cotangents(%dy) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xf32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xi32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{weights must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.moe.combine_grad cotangents(%dy) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xi32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

// expected-note @+1 {{inverse defined here}}
func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x3xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{shape mismatch: weights is 2x8x3 but inverse is 2x8x2}}
  %0:2 = braid.moe.combine_grad cotangents(%dy) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x3xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

// expected-note @+1 {{returned defined here}}
func.func @f(%dy: tensor<2x8x15xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{width mismatch: dy has 15 but returned has 16}}
  %0:2 = braid.moe.combine_grad cotangents(%dy) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<2x8x15xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

// expected-note @+1 {{returned defined here}}
func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{shape mismatch: drows is 1x31x16 but returned is 1x32x16}}
  %0:2 = braid.moe.combine_grad cotangents(%dy) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x31x16xf32>, tensor<2x8x2xf32>)
  return
}

// -----

// expected-note @+1 {{weights defined here}}
func.func @f(%dy: tensor<2x8x16xf32>, %returned: tensor<1x32x16xf32>, %weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>, %exchange: tensor<1xi32>) {
  // expected-error @+1 {{shape mismatch: dweights is 2x8x3 but weights is 2x8x2}}
  %0:2 = braid.moe.combine_grad cotangents(%dy) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange) : (tensor<2x8x16xf32>, tensor<1x32x16xf32>, tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<1x32x16xf32>, tensor<2x8x3xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{has 1 weights but 2 results}}
  %0:2 = braid.moe.grouped_linear %x offsets(%offsets) weights(%w) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> (tensor<1x32x24xf32>, tensor<1x32x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{has 0 weights but 0 results}}
  braid.moe.grouped_linear %x offsets(%offsets) weights() : (tensor<1x32x16xf32>, tensor<5xi32>) -> ()
  return
}

// -----

func.func @f(%x: tensor<32x16xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{x has rank 2 but must have 3}}
  %0 = braid.moe.grouped_linear %x offsets(%offsets) weights(%w) : (tensor<32x16xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{result has 2 in front but expert rows have 1}}
  %0 = braid.moe.grouped_linear %x offsets(%offsets) weights(%w) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<2x16x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %weight: tensor<16x24xf32>) {
  // expected-error @+1 {{weight has rank 2 but must have 3}}
  %0 = braid.moe.grouped_linear %x offsets(%offsets) weights(%weight) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<16x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %weight: tensor<4x16x24xi32>) {
  // expected-error @+1 {{weight must hold floating-point numbers but holds 'i32'}}
  %0 = braid.moe.grouped_linear %x offsets(%offsets) weights(%weight) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x24xi32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<1x5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{offsets has rank 2 but must have 1}}
  %0 = braid.moe.grouped_linear %x offsets(%offsets) weights(%w) : (tensor<1x32x16xf32>, tensor<1x5xi32>, tensor<4x16x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi64>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{offsets must hold i32 but holds 'i64'}}
  %0 = braid.moe.grouped_linear %x offsets(%offsets) weights(%w) : (tensor<1x32x16xf32>, tensor<5xi64>, tensor<4x16x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<4xi32>, %weight: tensor<4x16x24xf32>) {
  // expected-error @+1 {{offsets has 4 entries but weight has 4 groups}}
  %0 = braid.moe.grouped_linear %x offsets(%offsets) weights(%weight) : (tensor<1x32x16xf32>, tensor<4xi32>, tensor<4x16x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-note @+2 {{result defined here}}
  // expected-error @+1 {{row mismatch: x has 32 but result has 31}}
  %0 = braid.moe.grouped_linear %x offsets(%offsets) weights(%w) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<1x31x24xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %weight: tensor<4x15x24xf32>) {
  // expected-error @+1 {{input dimension mismatch: x has 16 but weight has 15}}
  %0 = braid.moe.grouped_linear %x offsets(%offsets) weights(%weight) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x15x24xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %weight: tensor<4x16x25xf32>) {
  // expected-error @+1 {{output dimension mismatch: result has 24 but weight has 25}}
  %0 = braid.moe.grouped_linear %x offsets(%offsets) weights(%weight) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<4x16x25xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%dy: tensor<1x32x24xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{has 2 weights but 1 cotangents}}
  %0 = braid.moe.grouped_linear_grad_data cotangents(%dy) offsets(%offsets) weights(%w, %w) : (tensor<1x32x24xf32>, tensor<5xi32>, tensor<4x16x24xf32>, tensor<4x16x24xf32>) -> tensor<1x32x16xf32>
  return
}

// -----

// expected-note @+1 {{dy defined here}}
func.func @f(%dy: tensor<1x32x24xf32>, %offsets: tensor<5xi32>, %w: tensor<4x16x24xf32>) {
  // expected-error @+1 {{row mismatch: dx has 31 but dy has 32}}
  %0 = braid.moe.grouped_linear_grad_data cotangents(%dy) offsets(%offsets) weights(%w) : (tensor<1x32x24xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<1x31x16xf32>
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%dy: tensor<1x32x24xf32>, %offsets: tensor<5xi32>, %weight: tensor<4x16x24xf32>) {
  // expected-error @+1 {{input dimension mismatch: dx has 15 but weight has 16}}
  %0 = braid.moe.grouped_linear_grad_data cotangents(%dy) offsets(%offsets) weights(%weight) : (tensor<1x32x24xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<1x32x15xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %dy: tensor<1x32x24xf32>) {
  // expected-error @+1 {{has 2 results but 1 cotangents}}
  %0:2 = braid.moe.grouped_linear_grad_weight %x offsets(%offsets) cotangents(%dy) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<1x32x24xf32>) -> (tensor<4x16x24xf32>, tensor<4x16x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %dy: tensor<1x32x24xf32>, %w: tensor<4x16x24xi32>) {
  // expected-error @+1 {{adds to a sum of type 'tensor<4x16x24xi32>' but its result is 'tensor<4x16x24xf32>'; valid: a sum of 'f32'}}
  %0 = braid.moe.grouped_linear_grad_weight %x offsets(%offsets) cotangents(%dy) sums(%w) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<1x32x24xf32>, tensor<4x16x24xi32>) -> tensor<4x16x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %dy: tensor<1x32x24xf32>) {
  // expected-note @+2 {{dw defined here}}
  // expected-error @+1 {{offsets has 5 entries but dw has 3 groups}}
  %0 = braid.moe.grouped_linear_grad_weight %x offsets(%offsets) cotangents(%dy) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<1x32x24xf32>) -> tensor<3x16x24xf32>
  return
}

// -----

func.func @f(%x: tensor<1x32x16xf32>, %offsets: tensor<5xi32>, %dy: tensor<1x32x24xf32>) {
  // expected-note @+2 {{dw defined here}}
  // expected-error @+1 {{output dimension mismatch: dy has 24 but dw has 23}}
  %0 = braid.moe.grouped_linear_grad_weight %x offsets(%offsets) cotangents(%dy) : (tensor<1x32x16xf32>, tensor<5xi32>, tensor<1x32x24xf32>) -> tensor<4x16x23xf32>
  return
}

// -----

// expected-note @+1 {{perm defined here}}
func.func @f(%weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>) {
  // expected-error @+1 {{row mismatch: rows has 31 but perm has 32}}
  %0 = braid.moe.row_weights %weights plan(%perm, %inverse) : (tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>) -> tensor<1x31xf32>
  return
}

// -----

func.func @f(%weights: tensor<2x8x2xf32>, %perm: tensor<32xi32>, %inverse: tensor<2x8x2xi32>) {
  // expected-error @+1 {{rows has 2 in front but expert rows have 1}}
  %0 = braid.moe.row_weights %weights plan(%perm, %inverse) : (tensor<2x8x2xf32>, tensor<32xi32>, tensor<2x8x2xi32>) -> tensor<2x32xf32>
  return
}
