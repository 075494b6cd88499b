// What slices cannot keep apart is refused, with what would be valid.
// RUN: braid-opt %s --split-input-file --braid-expand-slices --verify-diagnostics

// expected-error @+1 {{'func.func' op has the schedule {direction = "forward", pipeline = "1A1M"}; valid: direction "forward" or "backward", pipeline "moe", "aAaM", "1A1M", "cross-block", "best", token_slices ascending from 0 (and moe_slices, as many tokens)}}
func.func private @unsliced() attributes {braid.schedule = {direction = "forward", pipeline = "1A1M"}} {
  return
}

// -----

// expected-error @+1 {{'func.func' op has the schedule {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 8, 8>}; valid:}}
func.func private @empty_slice() attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 8, 8>}} {
  return
}

// -----

!ids = tensor<2x8x2xi32>
func.func private @slots(%ids: !ids, %documents: tensor<2x8xi32>, %taken: tensor<2x4xi32>) -> !ids
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  // expected-error @+1 {{'braid.moe.drop' op drop policy "slot" orders all tokens of a row before the first is sent, which token slices (--pipeline, --overlap-degree) do not wait for; valid with slices: "token"}}
  %kept, %load, %dropped, %new = braid.moe.drop %ids documents(%documents) taken(%taken) {capacity = 3 : i64, policy = "slot"} : (!ids, tensor<2x8xi32>, tensor<2x4xi32>) -> (!ids, tensor<4xi32>, tensor<4xi32>, tensor<2x4xi32>)
  return %kept : !ids
}
func.func @step(%ids: !ids, %documents: tensor<2x8xi32>, %taken: tensor<2x4xi32>) -> !ids attributes {braid.entry} {
  %y = call @slots(%ids, %documents, %taken) : (!ids, tensor<2x8xi32>, tensor<2x4xi32>) -> !ids
  return %y : !ids
}

// -----

!ids = tensor<2x8x2xi32>
func.func private @padded(%ids: !ids, %documents: tensor<2x8xi32>) -> !ids
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  // expected-error @+1 {{'braid.moe.plan' op pads every expert to 6 rows for all tokens, which token slices (--pipeline, --overlap-degree) cannot share; valid with slices: padded_slots false}}
  %perm, %inverse, %counts, %offsets, %overflow, %exchange = braid.moe.plan %ids, %documents {num_experts = 4 : i64, expert_rows = 6 : i64}
      : (!ids, tensor<2x8xi32>) -> (tensor<24xi32>, !ids, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return %inverse : !ids
}
func.func @step(%ids: !ids, %documents: tensor<2x8xi32>) -> !ids attributes {braid.entry} {
  %y = call @padded(%ids, %documents) : (!ids, tensor<2x8xi32>) -> !ids
  return %y : !ids
}

// -----

// 2 rows of 8 tokens may send 2 assignments each to one peer: 32.
!ids = tensor<2x8x2xi32>
func.func private @bounded(%ids: !ids, %documents: tensor<2x8xi32>) -> !ids
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  // expected-error @+1 {{'braid.moe.plan' op has 16 rows for a peer but slices may fill 32; shard with the pipeline and overlap degree that cut the tokens}}
  %perm, %inverse, %counts, %offsets, %overflow, %exchange = braid.moe.plan %ids, %documents {num_experts = 4 : i64, peers = 2 : i64, peer_rows = 16 : i64}
      : (!ids, tensor<2x8xi32>) -> (tensor<32xi32>, !ids, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  return %inverse : !ids
}
func.func @step(%ids: !ids, %documents: tensor<2x8xi32>) -> !ids attributes {braid.entry} {
  %y = call @bounded(%ids, %documents) : (!ids, tensor<2x8xi32>) -> !ids
  return %y : !ids
}

// -----

// A tail of 5 tokens would lie in two slices of 4.
!x = tensor<2x8x2x8xf32>
!t = tensor<2x5x16xf32>
!w = tensor<16x6xf32>
func.func private @short(%x: !x, %w: !w, %tail: !t, %documents: tensor<2x8xi32>, %dy: !x) -> !x
    attributes {braid.schedule = {direction = "backward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  // expected-error @+1 {{'braid.short_conv_grad' op has a tail of 5 tokens but a slice of 4; valid: overlap degree 1 or less}}
  %dx, %dw, %dtail = braid.short_conv_grad %x, %w, %documents, %tail, %dy, %tail : (!x, !w, tensor<2x8xi32>, !t, !x, !t) -> (!x, !w, !t)
  return %dx : !x
}
func.func @step(%x: !x, %w: !w, %tail: !t, %documents: tensor<2x8xi32>, %dy: !x) -> !x attributes {braid.entry} {
  %y = call @short(%x, %w, %tail, %documents, %dy) : (!x, !w, !t, tensor<2x8xi32>, !x) -> !x
  return %y : !x
}

// -----

// 8 tokens before the cut are 4 and 4; 7 rows are no such sum.
!x = tensor<1x7x16xf32>
// expected-error @+1 {{'func.func' op argument 0 has 7 rows for 8 tokens in 2 slices}}
func.func private @odd(%x: !x, %w: tensor<16xf32>) -> !x
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %y = braid.weighted %x, %w : (!x, tensor<16xf32>) -> !x
  return %y : !x
}
func.func @step(%x: !x, %w: tensor<16xf32>) -> !x attributes {braid.entry} {
  %y = call @odd(%x, %w) : (!x, tensor<16xf32>) -> !x
  return %y : !x
}

// -----

module attributes {braid.mesh = {dense = [{axis = "sp", size = 2 : i64}], expert = []}} {
  func.func private @layer(%x: tensor<1x4x8xf32>) -> tensor<1x4x8xf32> {
    // expected-error @+1 {{has its place along sp from argument 99, but there are 1}}
    %0 = braid.add %x, %x {braid.sequence = {axis = "sp", coordinate = 99 : i64}} : (tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
    return %0 : tensor<1x4x8xf32>
  }
}

// -----

module attributes {braid.mesh = {dense = [{axis = "sp", size = 2 : i64}], expert = []}} {
  func.func private @layer(%x: tensor<1x4x8xf32>) -> tensor<1x4x8xf32> {
    // expected-error @+1 {{has its place along sp from argument 0, a 'tensor<1x4x8xf32>'; valid: tensor<1xi32>}}
    %0 = braid.add %x, %x {braid.sequence = {axis = "sp", coordinate = 0 : i64}} : (tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
    return %0 : tensor<1x4x8xf32>
  }
}

// -----

module attributes {braid.mesh = {dense = [{axis = "dp", size = 2 : i64}], expert = []}} {
  func.func private @layer(%x: tensor<1x4x8xf32>, %place: tensor<1xi32>) -> tensor<1x4x8xf32> {
    // expected-error @+1 {{is divided along "sp", which the mesh does not have}}
    %0 = braid.add %x, %x {braid.sequence = {axis = "sp", coordinate = 1 : i64}} : (tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
    return %0 : tensor<1x4x8xf32>
  }
}

// -----

module attributes {braid.mesh = {dense = [{axis = "sp", size = 2 : i64}], expert = []}} {
  func.func private @layer(%x: tensor<1x4x8xf32>, %place: tensor<1xi32>) -> tensor<1x4x8xf32> {
    // expected-error @+1 {{does not cross tokens; there is nothing that sp could divide}}
    %0 = braid.add %x, %x {braid.sequence = {axis = "sp", coordinate = 1 : i64}} : (tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
    return %0 : tensor<1x4x8xf32>
  }
}
