// RUN: braid-opt %s --braid-decide-schedule="pipeline=1A1M overlap-degree=2" --split-input-file --verify-diagnostics

// Two layouts of the tokens that ranks share.
!x = tensor<1x8x2x4xf32>
!half = tensor<1x4x2x4xf32>
module attributes {braid.mesh = {dense = [{axis = "sp", size = 2 : i64}], expert = [{axis = "ep", size = 2 : i64}]}} {
  // expected-note @+1 {{the other layer}}
  func.func private @long(%documents: tensor<1x8xi32>, %q: !x, %place: tensor<1xi32>) -> !x {
    %o, %lse = braid.attn.causal %q, %q, %q, %documents {braid.sequence = {axis = "sp", coordinate = 2 : i64}, scale = 1.0 : f64} : (!x, !x, !x, tensor<1x8xi32>) -> (!x, tensor<1x2x8xf32>)
    return %o : !x
  }
  // expected-error @+1 {{has 4 tokens in a row but another layer 8: ranks that share the tokens of a row (sp, --mesh) cut all mixers alike}}
  func.func private @short(%documents: tensor<1x4xi32>, %q: !half, %place: tensor<1xi32>) -> !half {
    %o, %lse = braid.attn.causal %q, %q, %q, %documents {braid.sequence = {axis = "sp", coordinate = 2 : i64}, scale = 1.0 : f64} : (!half, !half, !half, tensor<1x4xi32>) -> (!half, tensor<1x2x4xf32>)
    return %o : !half
  }
}
