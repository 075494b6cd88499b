// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of projections, embedding and convolution say.

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{has 1 weights but 2 results}}
  %0:2 = braid.linear %x, %w : (tensor<2x8x16xf32>, tensor<16x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x8x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>) {
  // expected-error @+1 {{has 0 weights but 0 results}}
  braid.linear %x : (tensor<2x8x16xf32>) -> ()
  return
}

// -----

func.func @f(%x: tensor<8x16xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{x has rank 2 but must have 3 to 4}}
  %0 = braid.linear %x, %w : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<2x8x24xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xi32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{x must hold floating-point numbers but holds 'i32'}}
  %0 = braid.linear %x, %w : (tensor<2x8x16xi32>, tensor<16x24xf32>) -> tensor<2x8x24xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{result has rank 2 but must have 3 to 4}}
  %0 = braid.linear %x, %w : (tensor<2x8x16xf32>, tensor<16x24xf32>) -> tensor<16x24xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<24xf32>) {
  // expected-error @+1 {{weight has rank 1 but must have 2}}
  %0 = braid.linear %x, %w : (tensor<2x8x16xf32>, tensor<24xf32>) -> tensor<2x8x24xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x24xi32>) {
  // expected-error @+1 {{weight must hold floating-point numbers but holds 'i32'}}
  %0 = braid.linear %x, %w : (tensor<2x8x16xf32>, tensor<16x24xi32>) -> tensor<2x8x24xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{batch mismatch: result has 3 but x has 2}}
  %0 = braid.linear %x, %w : (tensor<2x8x16xf32>, tensor<16x24xf32>) -> tensor<3x8x24xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{token mismatch: result has 9 but x has 8}}
  %0 = braid.linear %x, %w : (tensor<2x8x16xf32>, tensor<16x24xf32>) -> tensor<2x9x24xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<15x24xf32>) {
  // expected-error @+1 {{input dimension mismatch: weight has 15 but x has 16}}
  %0 = braid.linear %x, %w : (tensor<2x8x16xf32>, tensor<15x24xf32>) -> tensor<2x8x24xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{input dimension mismatch: weight has 24 but x has 16}}
  %0 = braid.linear %x, %w {transposed} : (tensor<2x8x16xf32>, tensor<16x24xf32>) -> tensor<2x8x24xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x24xf32>) {
  // expected-note @+2 {{result defined here}}
  // expected-error @+1 {{output dimension mismatch: weight has 24 but result has 25}}
  %0 = braid.linear %x, %w : (tensor<2x8x16xf32>, tensor<16x24xf32>) -> tensor<2x8x5x5xf32>
  return
}

// -----

func.func @f(%dy: tensor<2x8x24xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{has 2 weights but 1 cotangents}}
  %0 = braid.linear_grad_data cotangents(%dy) weights(%w, %w) : (tensor<2x8x24xf32>, tensor<16x24xf32>, tensor<16x24xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%dy: tensor<2x8x24xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{dx has rank 1 but must have 3 to 4}}
  %0 = braid.linear_grad_data cotangents(%dy) weights(%w) : (tensor<2x8x24xf32>, tensor<16x24xf32>) -> tensor<16xf32>
  return
}

// -----

func.func @f(%dy: tensor<24xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{dy has rank 1 but must have 3 to 4}}
  %0 = braid.linear_grad_data cotangents(%dy) weights(%w) : (tensor<24xf32>, tensor<16x24xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%dy: tensor<2x9x24xf32>, %w: tensor<16x24xf32>) {
  // expected-note @+2 {{dx defined here}}
  // expected-error @+1 {{token mismatch: dy has 9 but dx has 8}}
  %0 = braid.linear_grad_data cotangents(%dy) weights(%w) : (tensor<2x9x24xf32>, tensor<16x24xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%dy: tensor<2x8x24xf32>, %w: tensor<15x24xf32>) {
  // expected-note @+2 {{dx defined here}}
  // expected-error @+1 {{input dimension mismatch: weight has 15 but dx has 16}}
  %0 = braid.linear_grad_data cotangents(%dy) weights(%w) : (tensor<2x8x24xf32>, tensor<15x24xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{dy defined here}}
func.func @f(%dy: tensor<2x8x25xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{output dimension mismatch: weight has 24 but dy has 25}}
  %0 = braid.linear_grad_data cotangents(%dy) weights(%w) : (tensor<2x8x25xf32>, tensor<16x24xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %dy: tensor<2x8x24xf32>) {
  // expected-error @+1 {{has 1 cotangents but 2 results}}
  %0:2 = braid.linear_grad_weight %x cotangents(%dy) : (tensor<2x8x16xf32>, tensor<2x8x24xf32>) -> (tensor<16x24xf32>, tensor<16x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %dy: tensor<2x8x24xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{has 2 sums but 1 results}}
  %0 = braid.linear_grad_weight %x cotangents(%dy) sums(%w, %w) : (tensor<2x8x16xf32>, tensor<2x8x24xf32>, tensor<16x24xf32>, tensor<16x24xf32>) -> tensor<16x24xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %dy: tensor<2x8x24xf32>, %w: tensor<24x16xf32>) {
  // expected-note @+2 {{result defined here}}
  // expected-error @+1 {{shape mismatch: sum is 24x16 but result is 16x24}}
  %0 = braid.linear_grad_weight %x cotangents(%dy) sums(%w) : (tensor<2x8x16xf32>, tensor<2x8x24xf32>, tensor<24x16xf32>) -> tensor<16x24xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xbf16>, %dy: tensor<2x8x24xbf16>, %w: tensor<16x24xbf16>) {
  // expected-error @+1 {{adds to a sum of type 'tensor<16x24xbf16>' but its result is 'tensor<16x24xbf16>'; valid: a sum of 'f32'}}
  %0 = braid.linear_grad_weight %x cotangents(%dy) sums(%w) : (tensor<2x8x16xbf16>, tensor<2x8x24xbf16>, tensor<16x24xbf16>) -> tensor<16x24xbf16>
  return
}

// -----

func.func @f(%x: tensor<16xf32>, %dy: tensor<2x8x24xf32>) {
  // expected-error @+1 {{x has rank 1 but must have 3 to 4}}
  %0 = braid.linear_grad_weight %x cotangents(%dy) : (tensor<16xf32>, tensor<2x8x24xf32>) -> tensor<16x24xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %dy: tensor<24xf32>) {
  // expected-error @+1 {{dy has rank 1 but must have 3 to 4}}
  %0 = braid.linear_grad_weight %x cotangents(%dy) : (tensor<2x8x16xf32>, tensor<24xf32>) -> tensor<16x24xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %dy: tensor<3x8x24xf32>) {
  // expected-error @+1 {{batch mismatch: dy has 3 but x has 2}}
  %0 = braid.linear_grad_weight %x cotangents(%dy) : (tensor<2x8x16xf32>, tensor<3x8x24xf32>) -> tensor<16x24xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %dy: tensor<2x8x24xf32>) {
  // expected-error @+1 {{input dimension mismatch: dw has 24 but x has 16}}
  %0 = braid.linear_grad_weight %x cotangents(%dy) : (tensor<2x8x16xf32>, tensor<2x8x24xf32>) -> tensor<24x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %dy: tensor<2x8x24xf32>) {
  // expected-error @+1 {{input dimension mismatch: dw has 24 but x has 16}}
  %0 = braid.linear_grad_weight %x cotangents(%dy) {transposed} : (tensor<2x8x16xf32>, tensor<2x8x24xf32>) -> tensor<16x24xf32>
  return
}

// -----

func.func @f(%t: tensor<8xi32>, %table: tensor<50x16xf32>) {
  // expected-error @+1 {{tokens has rank 1 but must have 2}}
  %0 = braid.embed %t, %table : (tensor<8xi32>, tensor<50x16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%t: tensor<2x8xf32>, %table: tensor<50x16xf32>) {
  // expected-error @+1 {{tokens must hold i32 but holds 'f32'}}
  %0 = braid.embed %t, %table : (tensor<2x8xf32>, tensor<50x16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%t: tensor<2x8xi32>, %table: tensor<50xf32>) {
  // expected-error @+1 {{table has rank 1 but must have 2}}
  %0 = braid.embed %t, %table : (tensor<2x8xi32>, tensor<50xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

func.func @f(%t: tensor<2x8xi32>, %table: tensor<50x16xi32>) {
  // expected-error @+1 {{table must hold floating-point numbers but holds 'i32'}}
  %0 = braid.embed %t, %table : (tensor<2x8xi32>, tensor<50x16xi32>) -> tensor<2x8x16xi32>
  return
}

// -----

func.func @f(%t: tensor<2x8xi32>, %table: tensor<50x16xf32>) {
  // expected-error @+1 {{result has rank 2 but must have 3}}
  %0 = braid.embed %t, %table : (tensor<2x8xi32>, tensor<50x16xf32>) -> tensor<16x16xf32>
  return
}

// -----

func.func @f(%t: tensor<2x8xi32>, %table: tensor<50x16xf32>) {
  // expected-error @+1 {{result must hold floating-point numbers but holds 'i32'}}
  %0 = braid.embed %t, %table : (tensor<2x8xi32>, tensor<50x16xf32>) -> tensor<2x8x16xi32>
  return
}

// -----

// expected-note @+1 {{tokens defined here}}
func.func @f(%tokens: tensor<3x8xi32>, %table: tensor<50x16xf32>) {
  // expected-error @+1 {{batch mismatch: result has 2 but tokens has 3}}
  %0 = braid.embed %tokens, %table : (tensor<3x8xi32>, tensor<50x16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{tokens defined here}}
func.func @f(%tokens: tensor<2x9xi32>, %table: tensor<50x16xf32>) {
  // expected-error @+1 {{token mismatch: result has 8 but tokens has 9}}
  %0 = braid.embed %tokens, %table : (tensor<2x9xi32>, tensor<50x16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{table defined here}}
func.func @f(%t: tensor<2x8xi32>, %table: tensor<50x15xf32>) {
  // expected-error @+1 {{width mismatch: result has 16 but table has 15}}
  %0 = braid.embed %t, %table : (tensor<2x8xi32>, tensor<50x15xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// expected-note @+1 {{table defined here}}
func.func @f(%t: tensor<2x8xi32>, %table: tensor<50x16xf32>) {
  // expected-error @+1 {{element type mismatch: result holds 'bf16' but table holds 'f32'}}
  %0 = braid.embed %t, %table : (tensor<2x8xi32>, tensor<50x16xf32>) -> tensor<2x8x16xbf16>
  return
}

// -----

func.func @f(%t: tensor<2x8xi32>, %dy: tensor<2x8x16xf32>) {
  // expected-error @+1 {{dtable has rank 1 but must have 2}}
  %0 = braid.embed_grad %t, %dy : (tensor<2x8xi32>, tensor<2x8x16xf32>) -> tensor<50xf32>
  return
}

// -----

// expected-note @+1 {{tokens defined here}}
func.func @f(%tokens: tensor<2x9xi32>, %dy: tensor<2x8x16xf32>) {
  // expected-error @+1 {{token mismatch: dy has 8 but tokens has 9}}
  %0 = braid.embed_grad %tokens, %dy : (tensor<2x9xi32>, tensor<2x8x16xf32>) -> tensor<50x16xf32>
  return
}

// -----

func.func @f(%t: tensor<2x8xi32>, %dy: tensor<2x8x16xf32>) {
  // expected-note @+2 {{dtable defined here}}
  // expected-error @+1 {{width mismatch: dy has 16 but dtable has 15}}
  %0 = braid.embed_grad %t, %dy : (tensor<2x8xi32>, tensor<2x8x16xf32>) -> tensor<50x15xf32>
  return
}

// -----

func.func @f(%t: tensor<2x8xi32>, %dy: tensor<2x8x16xf32>, %sum: tensor<50x15xf32>) {
  // expected-note @+2 {{dtable defined here}}
  // expected-error @+1 {{table_sum is}}
  %0 = braid.embed_grad %t, %dy, %sum : (tensor<2x8xi32>, tensor<2x8x16xf32>, tensor<50x15xf32>) -> tensor<50x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>, %dsum: tensor<1xf32>, %sum: tensor<50x16xf32>) {
  // expected-note @+2 {{dweight defined here}}
  // expected-error @+1 {{weight_sum is}}
  %0:3 = braid.linear_cross_entropy_grad %x, %w, %labels, %dsum, %sum : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<1xf32>, tensor<50x16xf32>) -> (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>, %c: tensor<1xi32>, %lse: tensor<2x8xf32>, %dsum: tensor<1xf32>, %sum: tensor<50x16xf32>) {
  // expected-note @+2 {{dweight defined here}}
  // expected-error @+1 {{weight_sum is}}
  %0:2 = braid.linear_loss_part_grad %x, %w, %labels, %c, %lse, %dsum, %sum : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<1xi32>, tensor<2x8xf32>, tensor<1xf32>, tensor<50x16xf32>) -> (tensor<2x8x16xf32>, tensor<16x50xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>, %c: tensor<2xi32>) {
  // expected-error @+1 {{coordinate}}
  %0:4 = braid.linear_scores %x, %w, %labels, %c : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<2xi32>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xi32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x50xf32>, %labels: tensor<2x8xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{word must hold i32 but holds 'f32'}}
  %0:4 = braid.linear_scores %x, %w, %labels, %c : (tensor<2x8x16xf32>, tensor<16x50xf32>, tensor<2x8xi32>, tensor<1xi32>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>)
  return
}

// -----

func.func @f(%x: tensor<8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{x has rank 2 but must have 3 to 4}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{weight has rank 1 but must have 2}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<3x24xf32>) {
  // expected-error @+1 {{tail has rank 2 but must have 3}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x24xi32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{x must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xi32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xi32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{weight must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xi32>, tensor<2x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xi32>) {
  // expected-error @+1 {{tail must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xi32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{documents has rank 1 but must have 2}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xf32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{documents must hold i32 but holds 'f32'}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xf32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<3x8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{batch mismatch: x has 2 but documents has 3}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<3x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x9xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{token mismatch: x has 8 but documents has 9}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x9xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<23x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{channel mismatch: x has 24 but weight has 23}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<23x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{tail defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x23xf32>) {
  // expected-error @+1 {{channel mismatch: x has 24 but tail has 23}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x23xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x4x24xf32>) {
  // expected-error @+1 {{tail has 4 rows but weight has 4 taps}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x4x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{tail defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<3x3x24xf32>) {
  // expected-error @+1 {{batch mismatch: x has 2 but tail has 3}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<3x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{shape mismatch: y is 2x8x25 but x is 2x8x24}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x25xf32>, tensor<2x3x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{y must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xi32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{tail defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{shape mismatch: new_tail is 2x2x24 but tail is 2x3x24}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x2x24xf32>)
  return
}

// -----

// expected-note @+1 {{tail defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{element type mismatch: new_tail holds 'bf16' but tail holds 'f32'}}
  %0:2 = braid.short_conv %x, %weight, %documents, %tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<2x3x24xbf16>)
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x9xi32>, %tail: tensor<2x3x24xf32>, %dy: tensor<2x8x24xf32>, %dnew_tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{token mismatch: x has 8 but documents has 9}}
  %0:3 = braid.short_conv_grad %x, %weight, %documents, %tail, %dy, %dnew_tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x9xi32>, tensor<2x3x24xf32>, tensor<2x8x24xf32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>, %dy: tensor<2x7x24xf32>, %dnew_tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{shape mismatch: dy is 2x7x24 but x is 2x8x24}}
  %0:3 = braid.short_conv_grad %x, %weight, %documents, %tail, %dy, %dnew_tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>, tensor<2x7x24xf32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x3x24xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>, %dy: tensor<2x8x24xi32>, %dnew_tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{dy must hold floating-point numbers but holds 'i32'}}
  %0:3 = braid.short_conv_grad %x, %weight, %documents, %tail, %dy, %dnew_tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>, tensor<2x8x24xi32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{tail defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>, %dy: tensor<2x8x24xf32>, %dnew_tail: tensor<2x4x24xf32>) {
  // expected-error @+1 {{shape mismatch: dnew_tail is 2x4x24 but tail is 2x3x24}}
  %0:3 = braid.short_conv_grad %x, %weight, %documents, %tail, %dy, %dnew_tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>, tensor<2x8x24xf32>, tensor<2x4x24xf32>) -> (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>, %dy: tensor<2x8x24xf32>, %dnew_tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{shape mismatch: dx is 2x8x25 but x is 2x8x24}}
  %0:3 = braid.short_conv_grad %x, %weight, %documents, %tail, %dy, %dnew_tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>, tensor<2x8x24xf32>, tensor<2x3x24xf32>) -> (tensor<2x8x25xf32>, tensor<24x4xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{weight defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>, %dy: tensor<2x8x24xf32>, %dnew_tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{shape mismatch: dweight is 24x3 but weight is 24x4}}
  %0:3 = braid.short_conv_grad %x, %weight, %documents, %tail, %dy, %dnew_tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>, tensor<2x8x24xf32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<24x3xf32>, tensor<2x3x24xf32>)
  return
}

// -----

// expected-note @+1 {{tail defined here}}
func.func @f(%x: tensor<2x8x24xf32>, %weight: tensor<24x4xf32>, %documents: tensor<2x8xi32>, %tail: tensor<2x3x24xf32>, %dy: tensor<2x8x24xf32>, %dnew_tail: tensor<2x3x24xf32>) {
  // expected-error @+1 {{shape mismatch: dtail is 2x3x23 but tail is 2x3x24}}
  %0:3 = braid.short_conv_grad %x, %weight, %documents, %tail, %dy, %dnew_tail : (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x8xi32>, tensor<2x3x24xf32>, tensor<2x8x24xf32>, tensor<2x3x24xf32>) -> (tensor<2x8x24xf32>, tensor<24x4xf32>, tensor<2x3x23xf32>)
  return
}

// -----

// expected-note @+1 {{addend defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<16x24xf32>, %z: tensor<2x8x23xf32>) {
  // expected-error @+1 {{'braid.linear_add' op adds 'tensor<2x8x23xf32>' to a product of type 'tensor<2x8x24xf32>'}}
  %0 = braid.linear_add %x, %w, %z : (tensor<2x8x16xf32>, tensor<16x24xf32>, tensor<2x8x23xf32>) -> tensor<2x8x24xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %w: tensor<17x24xf32>, %z: tensor<2x8x24xf32>) {
  // expected-error @+1 {{'braid.linear_add' op input dimension mismatch: weight has 17 but x has 16}}
  %0 = braid.linear_add %x, %w, %z : (tensor<2x8x16xf32>, tensor<17x24xf32>, tensor<2x8x24xf32>) -> tensor<2x8x24xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x64xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{x has rank 3 but must have 4}}
  %0 = braid.head_linear %x, %w : (tensor<2x8x64xf32>, tensor<16x24xf32>) -> tensor<2x8x4x6xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x4x16xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{head mismatch: y has 3 but x has 4}}
  %0 = braid.head_linear %x, %w : (tensor<2x8x4x16xf32>, tensor<16x24xf32>) -> tensor<2x8x3x8xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x4x16xf32>, %w: tensor<15x24xf32>) {
  // expected-error @+1 {{input dimension mismatch: weight has 15 but x has 16}}
  %0 = braid.head_linear %x, %w : (tensor<2x8x4x16xf32>, tensor<15x24xf32>) -> tensor<2x8x4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x4x6xf32>, %w: tensor<16x24xf32>) {
  // expected-note @+2 {{y defined here}}
  // expected-error @+1 {{output dimension mismatch: weight has 16 but y has 15}}
  %0 = braid.head_linear %x, %w {transposed} : (tensor<2x8x4x6xf32>, tensor<16x24xf32>) -> tensor<2x8x4x15xf32>
  return
}

// -----

func.func @f(%x: tensor<2x8x4x16xf32>, %w: tensor<16x25xf32>) {
  // expected-note @+2 {{y defined here}}
  // expected-error @+1 {{weight has 25 columns but y has 4 heads of 6}}
  %0 = braid.head_linear %x, %w : (tensor<2x8x4x16xf32>, tensor<16x25xf32>) -> tensor<2x8x4x6xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x4x5xf32>, %w: tensor<16x24xf32>) {
  // expected-error @+1 {{weight has 24 columns but x has 4 heads of 5}}
  %0 = braid.head_linear %x, %w {transposed} : (tensor<2x8x4x5xf32>, tensor<16x24xf32>) -> tensor<2x8x4x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%x: tensor<2x8x4x16xf32>, %w: tensor<3x16x24xf32>) {
  // expected-error @+1 {{head mismatch: weight has 3 but x has 4}}
  %0 = braid.head_linear %x, %w : (tensor<2x8x4x16xf32>, tensor<3x16x24xf32>) -> tensor<2x8x4x24xf32>
  return
}

// -----

// expected-note @+1 {{dy defined here}}
func.func @f(%x: tensor<2x8x4x16xf32>, %dy: tensor<2x8x4x24xf32>) {
  // expected-error @+1 {{output dimension mismatch: dweight has 23 but dy has 24}}
  %0 = braid.head_linear_grad_weight %x, %dy : (tensor<2x8x4x16xf32>, tensor<2x8x4x24xf32>) -> tensor<4x16x23xf32>
  return
}
