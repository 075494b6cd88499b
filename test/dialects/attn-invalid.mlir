// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of attention ops say.

func.func @f(%q: tensor<2x8x64xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{q has rank 3 but must have 4}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x64xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x32xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{k has rank 3 but must have 4}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x32xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{v must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xi32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<8xi32>) {
  // expected-error @+1 {{documents has rank 1 but must have 2}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xf32>) {
  // expected-error @+1 {{documents must hold i32 but holds 'f32'}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<3x8xi32>) {
  // expected-error @+1 {{batch mismatch: q has 2 but documents has 3}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<3x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x9xi32>) {
  // expected-error @+1 {{token mismatch: q has 8 but documents has 9}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x9xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x8xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{value dimension mismatch: o has 16 but v has 8}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x8xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<3x8x2x16xf32>, %v: tensor<3x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{batch mismatch: q has 2 but k has 3}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<3x8x2x16xf32>, tensor<3x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x8xf32>, %v: tensor<2x8x2x8xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{head dimension mismatch: q has 16 but k has 8}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x3x16xf32>, %v: tensor<2x8x3x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{q has 4 heads, no multiple of the 3 key/value heads}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x3x16xf32>, tensor<2x8x3x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x0x16xf32>, %v: tensor<2x8x0x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{q has 4 heads, no multiple of the 0 key/value heads}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x0x16xf32>, tensor<2x8x0x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{prefix is -1 but must be at least 0}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {prefix = -1 : i64, scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{window is -1 but must be at least 0}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64, window = -1 : i64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{k has 8 tokens but a prefix of 4 and q's 8 are needed}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {prefix = 4 : i64, scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{o must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xi32>, tensor<2x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{value dimension mismatch: o has 8 but v has 16}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x8xf32>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{lse has rank 2 but must have 3}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{lse must hold floating-point numbers but holds 'i32'}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xi32>)
  return
}

// -----

// expected-note @+1 {{q defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{batch mismatch: lse has 3 but q has 2}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<3x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{q defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{head mismatch: lse has 8 but q has 4}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x4xf32>)
  return
}

// -----

// expected-note @+1 {{q defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{token mismatch: lse has 9 but q has 8}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x9xf32>)
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<3x8xi32>, %o: tensor<2x8x4x16xf32>, %lse: tensor<2x4x8xf32>, %d_o: tensor<2x8x4x16xf32>) {
  // expected-error @+1 {{batch mismatch: q has 2 but documents has 3}}
  %0:3 = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %d_o {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<3x8xi32>, tensor<2x8x4x16xf32>, tensor<2x4x8xf32>, tensor<2x8x4x16xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>)
  return
}

// -----

// expected-note @+1 {{o defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>, %o: tensor<2x8x4x16xf32>, %lse: tensor<2x4x8xf32>, %d_o: tensor<2x8x4x8xf32>) {
  // expected-error @+1 {{shape mismatch: d_o is 2x8x4x8 but o is 2x8x4x16}}
  %0:3 = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %d_o {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>, tensor<2x8x4x16xf32>, tensor<2x4x8xf32>, tensor<2x8x4x8xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>, %o: tensor<2x8x4x16xf32>, %lse: tensor<2x4x8xf32>, %d_o: tensor<2x8x4x16xi32>) {
  // expected-error @+1 {{d_o must hold floating-point numbers but holds 'i32'}}
  %0:3 = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %d_o {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>, tensor<2x8x4x16xf32>, tensor<2x4x8xf32>, tensor<2x8x4x16xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>)
  return
}

// -----

// expected-note @+1 {{q defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>, %o: tensor<2x8x4x16xf32>, %lse: tensor<2x4x8xf32>, %d_o: tensor<2x8x4x16xf32>) {
  // expected-error @+1 {{shape mismatch: dq is 2x8x4x8 but q is 2x8x4x16}}
  %0:3 = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %d_o {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>, tensor<2x8x4x16xf32>, tensor<2x4x8xf32>, tensor<2x8x4x16xf32>) -> (tensor<2x8x4x8xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>, %o: tensor<2x8x4x16xf32>, %lse: tensor<2x4x8xf32>, %d_o: tensor<2x8x4x16xf32>) {
  // expected-error @+1 {{shape mismatch: dk is 2x8x4x16 but k is 2x8x2x16}}
  %0:3 = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %d_o {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>, tensor<2x8x4x16xf32>, tensor<2x4x8xf32>, tensor<2x8x4x16xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>)
  return
}

// -----

// expected-note @+1 {{v defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>, %o: tensor<2x8x4x16xf32>, %lse: tensor<2x4x8xf32>, %d_o: tensor<2x8x4x16xf32>) {
  // expected-error @+1 {{shape mismatch: dv is 2x8x4x16 but v is 2x8x2x16}}
  %0:3 = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %d_o {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>, tensor<2x8x4x16xf32>, tensor<2x4x8xf32>, tensor<2x8x4x16xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x4x16xf32>)
  return
}

// -----

func.func @f(%cache: tensor<2x64x32xf32>, %x: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{cache has rank 3 but must have 4}}
  %0 = braid.attn.append %cache, %x, %documents : (tensor<2x64x32xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> tensor<2x64x2x16xf32>
  return
}

// -----

func.func @f(%cache: tensor<2x64x2x16xf32>, %x: tensor<2x8x32xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{x has rank 3 but must have 4}}
  %0 = braid.attn.append %cache, %x, %documents : (tensor<2x64x2x16xf32>, tensor<2x8x32xf32>, tensor<2x8xi32>) -> tensor<2x64x2x16xf32>
  return
}

// -----

func.func @f(%cache: tensor<2x64x2x16xi32>, %x: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{cache must hold floating-point numbers but holds 'i32'}}
  %0 = braid.attn.append %cache, %x, %documents : (tensor<2x64x2x16xi32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> tensor<2x64x2x16xf32>
  return
}

// -----

func.func @f(%cache: tensor<2x64x2x16xf32>, %x: tensor<2x8x2x16xi32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{x must hold floating-point numbers but holds 'i32'}}
  %0 = braid.attn.append %cache, %x, %documents : (tensor<2x64x2x16xf32>, tensor<2x8x2x16xi32>, tensor<2x8xi32>) -> tensor<2x64x2x16xf32>
  return
}

// -----

// expected-note @+1 {{cache defined here}}
func.func @f(%cache: tensor<2x64x2x16xf32>, %x: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{shape mismatch: result is 2x65x2x16 but cache is 2x64x2x16}}
  %0 = braid.attn.append %cache, %x, %documents : (tensor<2x64x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> tensor<2x65x2x16xf32>
  return
}

// -----

// expected-note @+1 {{cache defined here}}
func.func @f(%cache: tensor<2x64x2x16xf32>, %x: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{element type mismatch: result holds 'bf16' but cache holds 'f32'}}
  %0 = braid.attn.append %cache, %x, %documents : (tensor<2x64x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> tensor<2x64x2x16xbf16>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%cache: tensor<2x64x2x16xf32>, %x: tensor<3x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{batch mismatch: cache has 2 but x has 3}}
  %0 = braid.attn.append %cache, %x, %documents : (tensor<2x64x2x16xf32>, tensor<3x8x2x16xf32>, tensor<2x8xi32>) -> tensor<2x64x2x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%cache: tensor<2x64x2x16xf32>, %x: tensor<2x8x4x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{head mismatch: cache has 2 but x has 4}}
  %0 = braid.attn.append %cache, %x, %documents : (tensor<2x64x2x16xf32>, tensor<2x8x4x16xf32>, tensor<2x8xi32>) -> tensor<2x64x2x16xf32>
  return
}

// -----

// expected-note @+1 {{x defined here}}
func.func @f(%cache: tensor<2x64x2x16xf32>, %x: tensor<2x8x2x8xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{head dimension mismatch: cache has 16 but x has 8}}
  %0 = braid.attn.append %cache, %x, %documents : (tensor<2x64x2x16xf32>, tensor<2x8x2x8xf32>, tensor<2x8xi32>) -> tensor<2x64x2x16xf32>
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%cache: tensor<2x64x2x16xf32>, %x: tensor<2x8x2x16xf32>, %documents: tensor<2x9xi32>) {
  // expected-error @+1 {{token mismatch: x has 8 but documents has 9}}
  %0 = braid.attn.append %cache, %x, %documents : (tensor<2x64x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x9xi32>) -> tensor<2x64x2x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x4x16xf32>, %k: tensor<2x10x2x16xf32>, %documents: tensor<2x4xi32>) {
  // expected-error @+1 {{ring of 10 rows is too small: a window of 8 and 4 tokens need 11}}
  %0:2 = "braid.attn.causal"(%q, %k, %k, %documents) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>, cache, ring, scale = 0.25 : f64, window = 8 : i64}> : (tensor<2x4x4x16xf32>, tensor<2x10x2x16xf32>, tensor<2x10x2x16xf32>, tensor<2x4xi32>) -> (tensor<2x4x4x16xf32>, tensor<2x4x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x4x4x16xf32>, %k: tensor<2x64x2x16xf32>, %documents: tensor<2x4xi32>) {
  // expected-error @+1 {{has a ring but no window; a ring forgets what is behind the window}}
  %0:2 = "braid.attn.causal"(%q, %k, %k, %documents) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>, cache, ring, scale = 0.25 : f64}> : (tensor<2x4x4x16xf32>, tensor<2x64x2x16xf32>, tensor<2x64x2x16xf32>, tensor<2x4xi32>) -> (tensor<2x4x4x16xf32>, tensor<2x4x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{has a ring but reads no cache}}
  %0:2 = "braid.attn.causal"(%q, %k, %k, %documents) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>, ring, scale = 0.25 : f64, window = 1 : i64}> : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

// expected-note @+1 {{cache defined here}}
func.func @f(%cache: tensor<2x6x2x16xf32>, %x: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{x has 8 tokens for a ring of 6 rows}}
  %0 = "braid.attn.append"(%cache, %x, %documents) <{ring}> : (tensor<2x6x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> tensor<2x6x2x16xf32>
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<1x0x1x4xf32>, %k: tensor<1x8x1x4xf32>, %d: tensor<1x0xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{k has 8 tokens but a prefix of 0 and a multiple of q's 0 are needed}}
  %o, %l = braid.attn.causal %q, %k, %k, %d, %c {scale = 1.0 : f64} : (tensor<1x0x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x0xi32>, tensor<1xi32>) -> (tensor<1x0x1x4xf32>, tensor<1x1x0xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<1x32x1x16xf32>, %k: tensor<1x32x1x16xf32>, %d: tensor<1x32xi32>) {
  // expected-error @+1 {{k has 32 tokens but a prefix of 64 and q's 32 are needed}}
  %o, %l = braid.attn.causal %q, %k, %k, %d {prefix = 64 : i64, scale = 1.0 : f64} : (tensor<1x32x1x16xf32>, tensor<1x32x1x16xf32>, tensor<1x32x1x16xf32>, tensor<1x32xi32>) -> (tensor<1x32x1x16xf32>, tensor<1x1x32xf32>)
  return
}

// -----

func.func @f(%ids: tensor<2x8xi32>, %c: tensor<1x1xi32>) {
  // expected-error @+1 {{coordinate has rank 2 but must have 1}}
  %r = braid.local_ids %ids, %c {size = 4 : i64} : (tensor<2x8xi32>, tensor<1x1xi32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%q: tensor<1x8x1x4xf32>, %k: tensor<1x20x1x4xf32>, %d: tensor<1x8xi32>) {
  // expected-error @+1 {{has 21 keys in room for 20; valid: 0 to all for which there is room, and no cache}}
  %o, %l = braid.attn.causal %q, %k, %k, %d {keys = 21 : i64, scale = 1.0 : f64} : (tensor<1x8x1x4xf32>, tensor<1x20x1x4xf32>, tensor<1x20x1x4xf32>, tensor<1x8xi32>) -> (tensor<1x8x1x4xf32>, tensor<1x1x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x8x1x4xf32>, %k: tensor<1x20x1x4xf32>, %d: tensor<1x8xi32>) {
  // expected-error @+1 {{has 8 keys in a cache; valid: 0 to all for which there is room, and no cache}}
  %o, %l = braid.attn.causal %q, %k, %k, %d {cache, keys = 8 : i64, scale = 1.0 : f64} : (tensor<1x8x1x4xf32>, tensor<1x20x1x4xf32>, tensor<1x20x1x4xf32>, tensor<1x8xi32>) -> (tensor<1x8x1x4xf32>, tensor<1x1x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x8x1x4xf32>, %d: tensor<1x8xi32>, %l: tensor<1x1x8xf32>) {
  // expected-error @+1 {{has 1 sums; valid: none, or the 2 of dk and dv}}
  %0:3 = braid.attn.causal_grad %q, %q, %q, %d, %q, %l, %q sums(%q) {scale = 1.0 : f64} : (tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8xi32>, tensor<1x8x1x4xf32>, tensor<1x1x8xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>) -> (tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>)
  return
}

// -----

// expected-note @+1 {{k defined here}}
func.func @f(%q: tensor<1x8x2x4xf32>, %k: tensor<1x8x1x4xf32>, %v: tensor<1x8x2x4xf32>, %d: tensor<1x8xi32>) {
  // expected-error @+1 {{head mismatch: v has 2 but k has 1}}
  %o, %l = braid.attn.causal %q, %k, %v, %d {scale = 1.0 : f64} : (tensor<1x8x2x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x4xf32>, tensor<1x2x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x8x2x4xf32>, %d: tensor<1x8xi32>, %s: tensor<1x8x2x6xf32>) {
  // expected-error @+1 {{has 1 shared features; valid: none, or those of q and k}}
  %o, %l = braid.attn.causal %q, %q, %q, %d shared(%s) {scale = 1.0 : f64} : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8xi32>, tensor<1x8x2x6xf32>) -> (tensor<1x8x2x4xf32>, tensor<1x2x8xf32>)
  return
}

// -----

// expected-note @+1 {{k_shared defined here}}
func.func @f(%q: tensor<1x8x2x4xf32>, %d: tensor<1x8xi32>, %s: tensor<1x8x2x6xf32>) {
  // expected-error @+1 {{k_shared has 2 heads; valid: 1, which all heads of q share}}
  %o, %l = braid.attn.causal %q, %q, %q, %d shared(%s, %s) {scale = 1.0 : f64} : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8xi32>, tensor<1x8x2x6xf32>, tensor<1x8x2x6xf32>) -> (tensor<1x8x2x4xf32>, tensor<1x2x8xf32>)
  return
}

// -----

// expected-note @+1 {{k_shared defined here}}
func.func @f(%q: tensor<1x8x2x4xf32>, %d: tensor<1x8xi32>, %s: tensor<1x8x2x6xf32>, %t: tensor<1x8x1x5xf32>) {
  // expected-error @+1 {{head dimension mismatch: q_shared has 6 but k_shared has 5}}
  %o, %l = braid.attn.causal %q, %q, %q, %d shared(%s, %t) {scale = 1.0 : f64} : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8xi32>, tensor<1x8x2x6xf32>, tensor<1x8x1x5xf32>) -> (tensor<1x8x2x4xf32>, tensor<1x2x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x8x1x4xf32>, %d: tensor<1x8xi32>, %l: tensor<1x1x8xf32>) {
  // expected-error @+1 {{has 2 shared features but 0 cotangents of such}}
  %0:3 = braid.attn.causal_grad %q, %q, %q, %d, %q, %l, %q shared(%q, %q) {scale = 1.0 : f64} : (tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8xi32>, tensor<1x8x1x4xf32>, tensor<1x1x8xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>) -> (tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x8x1x4xf32>, %d: tensor<1x8xi32>, %l: tensor<1x1x8xf32>) {
  // expected-error @+1 {{has 2 sums; valid: none, or the 3 of dk, dv and dk_shared}}
  %0:5 = braid.attn.causal_grad %q, %q, %q, %d, %q, %l, %q shared(%q, %q) sums(%q, %q) {scale = 1.0 : f64} : (tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8xi32>, tensor<1x8x1x4xf32>, tensor<1x1x8xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>) -> (tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x8x2x4xf32>, %d: tensor<1x8xi32>) {
  // expected-error @+1 {{attends to the past of no cache; valid: of a cache}}
  %o, %l = braid.attn.causal %q, %q, %q, %d {past, scale = 1.0 : f64} : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x4xf32>, tensor<1x2x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x8x2x4xf32>, %k: tensor<1x16x2x4xf32>, %d: tensor<1x8xi32>) {
  // expected-error @+1 {{attends to the past of a ring; valid: of a cache}}
  %o, %l = braid.attn.causal %q, %k, %k, %d {cache, past, ring, scale = 1.0 : f64, window = 4 : i64} : (tensor<1x8x2x4xf32>, tensor<1x16x2x4xf32>, tensor<1x16x2x4xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x4xf32>, tensor<1x2x8xf32>)
  return
}

// -----

// expected-note @+1 {{lse defined here}}
func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %d: tensor<2x8xi32>, %s: tensor<2xf32>, %l: tensor<2x4x8xf32>) {
  // expected-error @+1 {{head mismatch: sinks has 2 but lse has 4}}
  %0 = braid.attn.sink_grad %s, %q, %l, %q : (tensor<2xf32>, tensor<2x8x4x16xf32>, tensor<2x4x8xf32>, tensor<2x8x4x16xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %d: tensor<2x8xi32>, %s: tensor<4x1xf32>) {
  // expected-error @+1 {{sinks has rank 2 but must have 1}}
  %o, %l = braid.attn.causal %q, %k, %k, %d sinks(%s) {scale = 1.0 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>, tensor<4x1xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xbf16>, %k: tensor<2x8x2x16xbf16>, %d: tensor<2x8xi32>, %s: tensor<4xbf16>) {
  // expected-error @+2 {{element type mismatch: sinks holds 'bf16' but lse holds 'f32'}}
  // expected-note @+1 {{lse defined here}}
  %o, %l = braid.attn.causal %q, %k, %k, %d sinks(%s) {scale = 1.0 : f64} : (tensor<2x8x4x16xbf16>, tensor<2x8x2x16xbf16>, tensor<2x8x2x16xbf16>, tensor<2x8xi32>, tensor<4xbf16>) -> (tensor<2x8x4x16xbf16>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x9x2x16xf32>, %d: tensor<2x8xi32>, %s: tensor<4xf32>) {
  // expected-error @+1 {{has sinks but attends to a past only; valid: sinks where the own tokens are keys, too}}
  %o, %l = braid.attn.causal %q, %k, %k, %d sinks(%s) {scale = 1.0 : f64, cache, past} : (tensor<2x8x4x16xf32>, tensor<2x9x2x16xf32>, tensor<2x9x2x16xf32>, tensor<2x8xi32>, tensor<4xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x2x16xf32>, %v: tensor<2x8x2x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{softcap -1.000000e+00 is not above 0}}
  %0:2 = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64, softcap = -1.0 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  return
}
