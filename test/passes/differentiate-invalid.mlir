// What has no gradient is named: the function, the op, or the value.
// RUN: braid-opt %s --split-input-file --braid-differentiate --verify-diagnostics

!x = tensor<2x8x16xf32>
!s = tensor<1xf32>
// expected-error @+1 {{'func.func' op has braid.train but no results named loss_sum and loss_count}}
func.func @unnamed(%x: !x {braid.name = "x", braid.role = "input"}) -> (!s {braid.name = "loss", braid.role = "output"})
    attributes {braid.entry, braid.train = {}} {
  %sum = braid.sum %x : (!x) -> !s
  return %sum : !s
}

// -----

!x = tensor<2x8x16xf32>
!s = tensor<1xf32>
// expected-error @+1 {{'func.func' op loss_sum depends on no trained parameter}}
func.func @untrained(%x: !x {braid.name = "x", braid.role = "input"},
                     %w: tensor<16xf32> {braid.name = "w", braid.role = "parameter", braid.trained = false})
    -> (!s {braid.name = "loss_sum"}, !s {braid.name = "loss_count"}) attributes {braid.entry, braid.train = {}} {
  %y = braid.weighted %x, %w : (!x, tensor<16xf32>) -> !x
  %sum = braid.sum %y : (!x) -> !s
  return %sum, %sum : !s, !s
}

// -----

!s = tensor<1xf32>
func.func @no_rule(%w: tensor<16xf32> {braid.name = "w", braid.role = "parameter"})
    -> (!s {braid.name = "loss_sum"}, !s {braid.name = "loss_count"}) attributes {braid.entry, braid.train = {}} {
  // expected-error @+1 {{'braid.sum_squares' op is needed by the loss but has no gradient}}
  %sum = braid.sum_squares %w : (tensor<16xf32>) -> !s
  return %sum, %sum : !s, !s
}

// -----

!x = tensor<2x8x16xf32>
!s = tensor<1xf32>
func.func @captured(%x: !x {braid.name = "x", braid.role = "input"},
                    // expected-note @+1 {{pass it as a stacked input}}
                    %w: tensor<16xf32> {braid.name = "w", braid.role = "parameter"})
    -> (!s {braid.name = "loss_sum"}, !s {braid.name = "loss_count"}) attributes {braid.entry, braid.train = {}} {
  %y = braid.repeat %x {count = 2 : i64, carried = 1 : i64} : (!x) -> !x {
  ^bb0(%c: !x):
    // expected-error @+1 {{'braid.weighted' op uses a trained value from outside of its repeat}}
    %n = braid.weighted %c, %w : (!x, tensor<16xf32>) -> !x
    braid.yield %n : (!x) -> ()
  }
  %sum = braid.sum %y : (!x) -> !s
  return %sum, %sum : !s, !s
}

// -----

!s = tensor<1xf32>
!h = tensor<1x1x2x8xf32>
!c = tensor<1x64x2x8xf32>
func.func @cached(%w: tensor<8xf32> {braid.name = "w", braid.role = "parameter"}, %x: !h {braid.name = "x", braid.role = "input"},
                  %k: !c {braid.name = "k", braid.role = "input"}, %d: tensor<1x1xi32> {braid.name = "d", braid.role = "input"})
    -> (!s {braid.name = "loss_sum"}, !s {braid.name = "loss_count"}) attributes {braid.entry, braid.train = {}} {
  %q = braid.weighted %x, %w : (!h, tensor<8xf32>) -> !h
  // expected-error @+1 {{'braid.attn.causal' op reads a cache and has no gradient}}
  %o, %lse = braid.attn.causal %q, %k, %k, %d {scale = 1.0, cache} : (!h, !c, !c, tensor<1x1xi32>) -> (!h, tensor<1x2x1xf32>)
  %sum = braid.sum %o : (!h) -> !s
  return %sum, %sum : !s, !s
}

// -----

!x = tensor<2x8x16xf32>
!r = tensor<1x32x16xf32>
!s = tensor<1xf32>
func.func @unweighted(%w: tensor<16xf32> {braid.name = "w", braid.role = "parameter"}, %x: !r {braid.name = "x", braid.role = "input"},
                      %perm: tensor<32xi32> {braid.name = "perm", braid.role = "input"}, %inverse: tensor<2x8x2xi32> {braid.name = "inverse", braid.role = "input"},
                      %exchange: tensor<1xi32> {braid.name = "exchange", braid.role = "input"})
    -> (!s {braid.name = "loss_sum"}, !s {braid.name = "loss_count"}) attributes {braid.entry, braid.train = {}} {
  %rows = braid.weighted %x, %w : (!r, tensor<16xf32>) -> !r
  // expected-error @+1 {{'braid.moe.combine' op without weights adds rows of 'f32' up to 'f64' and has no gradient; valid: one element type}}
  %y, %returned = braid.moe.combine %rows plan(%perm, %inverse, %exchange) : (!r, tensor<32xi32>, tensor<2x8x2xi32>, tensor<1xi32>) -> (tensor<2x8x16xf64>, !r)
  %narrow = braid.cast %y : (tensor<2x8x16xf64>) -> !x
  %sum = braid.sum %narrow : (!x) -> !s
  return %sum, %sum : !s, !s
}

// -----

!x = tensor<2x8x16xf32>
!s = tensor<1xf32>
func.func @through_squares(%w: tensor<16xf32> {braid.name = "w", braid.role = "parameter"}, %x: !x {braid.name = "x", braid.role = "input"})
    -> (!s {braid.name = "loss_sum"}, !s {braid.name = "loss_count"}) attributes {braid.entry, braid.train = {}} {
  %y = braid.weighted %x, %w : (!x, tensor<16xf32>) -> !x
  // expected-error @+1 {{'braid.sum_squares' op is needed by the loss but has no gradient}}
  %sum = braid.sum_squares %y : (!x) -> !s
  return %sum, %sum : !s, !s
}

// -----

!s = tensor<1xf32>
// expected-error @+1 {{parameter layers.0.moe.correction has braid.correction_rate but no result is its gradient}}
func.func @corrected_by_nothing(%w: tensor<1xf32> {braid.name = "w", braid.role = "parameter"},
                                %correction: tensor<4xf32> {braid.name = "layers.0.moe.correction", braid.role = "parameter", braid.trained = false,
                                                            braid.correction_rate = 0.1 : f64})
    -> (!s {braid.name = "loss_sum"}, !s {braid.name = "loss_count"}) attributes {braid.entry, braid.train = {}} {
  %sum = braid.scale %w {value = 2.0 : f64} : (!s) -> !s
  return %sum, %sum : !s, !s
}
