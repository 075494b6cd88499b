// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of losses and sums say.

func.func @f(%logits: tensor<8x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{logits has rank 2 but must have 3}}
  %0:3 = braid.cross_entropy %logits, %labels : (tensor<8x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return
}

// -----

func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<8xi32>) {
  // expected-error @+1 {{labels has rank 1 but must have 2}}
  %0:3 = braid.cross_entropy %logits, %labels : (tensor<2x8x50xf32>, tensor<8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return
}

// -----

func.func @f(%logits: tensor<2x8x50xi32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{logits must hold floating-point numbers but holds 'i32'}}
  %0:3 = braid.cross_entropy %logits, %labels : (tensor<2x8x50xi32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return
}

// -----

func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<2x8xi64>) {
  // expected-error @+1 {{labels must hold i32 but holds 'i64'}}
  %0:3 = braid.cross_entropy %logits, %labels : (tensor<2x8x50xf32>, tensor<2x8xi64>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return
}

// -----

func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{lse must hold floating-point numbers but holds 'i32'}}
  %0:3 = braid.cross_entropy %logits, %labels : (tensor<2x8x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xi32>)
  return
}

// -----

// expected-note @+1 {{labels defined here}}
func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<3x8xi32>) {
  // expected-error @+1 {{batch mismatch: logits has 2 but labels has 3}}
  %0:3 = braid.cross_entropy %logits, %labels : (tensor<2x8x50xf32>, tensor<3x8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return
}

// -----

// expected-note @+1 {{labels defined here}}
func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<2x9xi32>) {
  // expected-error @+1 {{token mismatch: logits has 8 but labels has 9}}
  %0:3 = braid.cross_entropy %logits, %labels : (tensor<2x8x50xf32>, tensor<2x9xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return
}

// -----

// expected-note @+1 {{labels defined here}}
func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{shape mismatch: lse is 2x7 but labels is 2x8}}
  %0:3 = braid.cross_entropy %logits, %labels : (tensor<2x8x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x7xf32>)
  return
}

// -----

func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{sum must have one element but is 2}}
  %0:3 = braid.cross_entropy %logits, %labels : (tensor<2x8x50xf32>, tensor<2x8xi32>) -> (tensor<2xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return
}

// -----

func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{count must hold floating-point numbers but holds 'i32'}}
  %0:3 = braid.cross_entropy %logits, %labels : (tensor<2x8x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xi32>, tensor<2x8xf32>)
  return
}

// -----

// expected-note @+1 {{labels defined here}}
func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<2x8xi32>, %lse: tensor<2x7xf32>, %dsum: tensor<1xf32>) {
  // expected-error @+1 {{shape mismatch: lse is 2x7 but labels is 2x8}}
  %0 = braid.cross_entropy_grad %logits, %labels, %lse, %dsum : (tensor<2x8x50xf32>, tensor<2x8xi32>, tensor<2x7xf32>, tensor<1xf32>) -> tensor<2x8x50xf32>
  return
}

// -----

func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<2x8xi32>, %lse: tensor<2x8xf32>, %dsum: tensor<2x8xf32>) {
  // expected-error @+1 {{dsum must have one element but is 2x8}}
  %0 = braid.cross_entropy_grad %logits, %labels, %lse, %dsum : (tensor<2x8x50xf32>, tensor<2x8xi32>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8x50xf32>
  return
}

// -----

// expected-note @+1 {{logits defined here}}
func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<2x8xi32>, %lse: tensor<2x8xf32>, %dsum: tensor<1xf32>) {
  // expected-error @+1 {{shape mismatch: dlogits is 2x8x49 but logits is 2x8x50}}
  %0 = braid.cross_entropy_grad %logits, %labels, %lse, %dsum : (tensor<2x8x50xf32>, tensor<2x8xi32>, tensor<2x8xf32>, tensor<1xf32>) -> tensor<2x8x49xf32>
  return
}

// -----

// expected-note @+1 {{logits defined here}}
func.func @f(%logits: tensor<2x8x50xf32>, %labels: tensor<2x8xi32>, %lse: tensor<2x8xf32>, %dsum: tensor<1xf32>) {
  // expected-error @+1 {{element type mismatch: dlogits holds 'bf16' but logits holds 'f32'}}
  %0 = braid.cross_entropy_grad %logits, %labels, %lse, %dsum : (tensor<2x8x50xf32>, tensor<2x8xi32>, tensor<2x8xf32>, tensor<1xf32>) -> tensor<2x8x50xbf16>
  return
}

// -----

func.func @f(%x: tensor<2x8xi32>) {
  // expected-error @+1 {{x must hold floating-point numbers but holds 'i32'}}
  %0 = braid.sum %x : (tensor<2x8xi32>) -> tensor<1xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{result must have one element but is 2}}
  %0 = braid.sum %x : (tensor<2x8xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @f(%dsum: tensor<1xf32>) {
  // expected-error @+1 {{dx must hold floating-point numbers but holds 'i32'}}
  %0 = braid.sum_grad %dsum : (tensor<1xf32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%dsum: tensor<2xf32>) {
  // expected-error @+1 {{dsum must have one element but is 2}}
  %0 = braid.sum_grad %dsum : (tensor<2xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%x: tensor<16x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{x has rank 2 but must have 3}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<16x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xi32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{x must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x8x16xi32>, tensor<16x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{weight has rank 1 but must have 2}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x8x16xf32>, tensor<16xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xi32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{weight must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x8x16xf32>, tensor<16x50xi32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<16xi32>) {
  // expected-error @+1 {{labels has rank 1 but must have 2}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<16xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi64>) {
  // expected-error @+1 {{labels must hold i32 but holds 'i64'}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi64>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

// expected-note @+1 {{labels defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<3x8xi32>) {
  // expected-error @+1 {{batch mismatch: x has 2 but labels has 3}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<3x8xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

// expected-note @+1 {{labels defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x9xi32>) {
  // expected-error @+1 {{token mismatch: x has 8 but labels has 9}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x9xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<17x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{width mismatch: x has 16 but weight has 17}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x8x16xf32>, tensor<17x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{width mismatch: x has 16 but weight has 50}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels {transposed} : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{sum must have one element but is 2}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>) -> (tensor<2xf32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{count must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xi32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>, %dsum: tensor<2xf32>) {
  // expected-error @+1 {{dsum must have one element but is 2}}
  %0:3 = braid.linear_cross_entropy_grad %x, %w, %labels, %dsum : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<2xf32>) -> (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<1xf32>)
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>, %dsum: tensor<1xf32>) {
  // expected-error @+1 {{shape mismatch: dx is 2x8x17 but x is 2x8x16}}
  %0:3 = braid.linear_cross_entropy_grad %x, %w, %labels, %dsum : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<1xf32>) -> (tensor<2x8x17xf32>, tensor<16x50xf32>, tensor<1xf32>)
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>, %dsum: tensor<1xf32>) {
  // expected-error @+1 {{element type mismatch: dx holds 'bf16' but x holds 'f32'}}
  %0:3 = braid.linear_cross_entropy_grad %x, %w, %labels, %dsum : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<1xf32>) -> (tensor<2x8x16xbf16>, tensor<16x50xf32>, tensor<1xf32>)
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>, %dsum: tensor<1xf32>) {
  // expected-error @+1 {{shape mismatch: dweight is 50x16 but weight is 16x50}}
  %0:3 = braid.linear_cross_entropy_grad %x, %w, %labels, %dsum : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<1xf32>) -> (tensor<2x8x16xf32>, tensor<50x16xf32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>, %dsum: tensor<1xf32>) {
  // expected-error @+1 {{dweight must hold floating-point numbers but holds 'i32'}}
  %0:3 = braid.linear_cross_entropy_grad %x, %w, %labels, %dsum : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<1xf32>) -> (tensor<2x8x16xf32>, tensor<16x50xi32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>, %dsum: tensor<1xf32>) {
  // expected-error @+1 {{sum must have one element but is 2}}
  %0:3 = braid.linear_cross_entropy_grad %x, %w, %labels, %dsum : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<1xf32>) -> (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>) {
  // expected-error @+1 {{softcap 0.000000e+00 is not above 0}}
  %0:2 = braid.linear_cross_entropy %x, %w, %labels {softcap = 0.0 : f64} : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return
}
