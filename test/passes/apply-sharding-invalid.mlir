// RUN: braid-opt %s --braid-apply-sharding="mesh=sp=2,tp=2" --split-input-file --verify-diagnostics

!x = tensor<2x32x2x8xf32>
!k = tensor<2x40x2x8xf32>
!l = tensor<2x2x32xf32>
func.func @prefix(%x: !x {braid.dims = ["batch", "sequence"], braid.name = "x", braid.role = "input"}, %k: !k {braid.dims = ["batch"], braid.name = "k", braid.role = "input"},
                  %cu: tensor<2x4xi32> {braid.dims = ["batch"], braid.name = "cu_seqlens", braid.role = "input"}) -> (!x {braid.name = "y"}) attributes {braid.entry} {
  %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x32xi32>
  // expected-error @below {{'braid.attn.causal' op has a prefix of 8, but its tokens are not divided along sp = 2 (--mesh) yet; valid: rows are divided before they are cut into slices}}
  %o, %lse = braid.attn.causal %x, %k, %k, %d {prefix = 8 : i64, scale = 1.0 : f64} : (!x, !k, !k, tensor<2x32xi32>) -> (!x, !l)
  return %o : !x
}

// -----

func.func @coordinate(%cu: tensor<2x4xi32> {braid.dims = ["batch"], braid.name = "cu_seqlens", braid.role = "input"}, %c: tensor<1xi32> {braid.name = "c", braid.role = "input"})
    -> (tensor<2x32xi32> {braid.name = "d"}) attributes {braid.entry} {
  // expected-error @below {{'braid.documents' op has a coordinate already, but its tokens are not divided along sp = 2 yet}}
  %d = braid.documents %cu, %c : (tensor<2x4xi32>, tensor<1xi32>) -> tensor<2x32xi32>
  return %d : tensor<2x32xi32>
}

// -----

// expected-error @below {{'func.func' op result "w" is cut over ranks (--mesh), but its value is no braid.init, whose parts a rank can compute by itself}}
func.func @init(%seed: tensor<1xi64> {braid.name = "seed", braid.role = "input"}) -> (tensor<4x8xbf16> {braid.dims = ["heads", "embed"], braid.name = "w", braid.role = "parameter"}) attributes {braid.entry} {
  %w = braid.init %seed {distribution = "constant", keys = array<i64: 1>} : (tensor<1xi64>) -> tensor<4x8xf32>
  %cast = braid.cast %w : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  return %cast : tensor<4x8xbf16>
}
