// RUN: braid-opt %s --braid-expand-slices --split-input-file --verify-diagnostics | FileCheck %s

!x = tensor<2x8x16xf32>
!h = tensor<2x8x2x8xf32>
!s = tensor<2x2x8x8xf32>
!d = tensor<2x8xi32>
!w = tensor<16x16xf32>
// Two slices of four tokens: row-wise ops once per slice, the state chains, attention reads the keys before it, which
// every slice puts into one buffer of the row.
// CHECK-LABEL: func.func private @mixer(
// CHECK: braid.rms_norm {{.*}}braid.slice = 0{{.*}} -> tensor<2x4x16xf32>
// CHECK: braid.rms_norm {{.*}}braid.slice = 1{{.*}} -> tensor<2x4x16xf32>
// CHECK: %[[O0:[a-z0-9_]+]], %[[S0:[a-z0-9_]+]] = braid.lsm.scan {{.*}}braid.slice = 0
// CHECK: %[[O1:[a-z0-9_]+]], %[[S1:[a-z0-9_]+]] = braid.lsm.scan {{.*}}initial_state(%[[S0]]) {{.*}}braid.slice = 1
// CHECK: %[[K0:[0-9]+]] = braid.insert %{{.*}} {begin = 0 : i64, braid.slice = 0 : i64, dim = 1 : i64} : (tensor<2x4x2x8xf32>) -> tensor<2x8x2x8xf32>
// CHECK: %[[K1:[0-9]+]] = braid.insert %{{.*}}, %[[K0]] {begin = 4 : i64, braid.slice = 1 : i64, dim = 1 : i64}
// CHECK: braid.attn.causal %{{.*}}, %[[K0]], {{.*}}braid.slice = 0{{.*}}keys = 4{{.*}}(tensor<2x4x2x8xf32>, tensor<2x8x2x8xf32>
// CHECK: braid.attn.causal %{{.*}}, %[[K1]], {{.*}}braid.slice = 1 : i64, prefix = 4 : i64, scale{{.*}}(tensor<2x4x2x8xf32>, tensor<2x8x2x8xf32>
// CHECK: return %{{.*}}, %[[S1]]
func.func private @mixer(%x: !x, %documents: !d, %state: !s, %norm: tensor<16xf32>, %wq: !w) -> (!x, !s)
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %n = braid.rms_norm %x, %norm {eps = 1.0e-6 : f64} : (!x, tensor<16xf32>) -> !x
  %q = braid.linear %n, %wq : (!x, !w) -> !h
  %o, %final = braid.lsm.scan I %q, %q, %q initial_state(%state) documents(%documents) {scale = 1.0 : f64} : (!h, !h, !h, !s, !d) -> (!h, !s)
  %a, %lse = braid.attn.causal %o, %q, %q, %documents {scale = 1.0 : f64} : (!h, !h, !h, !d) -> (!h, tensor<2x2x8xf32>)
  %y = braid.reshape %a : (!h) -> !x
  return %y, %final : !x, !s
}
// Document starts are computed relative to each slice, where the row's are.
// CHECK-LABEL: func.func @step(
// CHECK: %[[A:.*]] = braid.documents %{{.*}} -> tensor<2x4xi32>
// CHECK: %[[B:.*]] = braid.documents %{{.*}} {begin = 4 : i64} : {{.*}} -> tensor<2x4xi32>
// CHECK: %[[SLICED:.*]] = braid.concat %[[A]], %[[B]] {dim = 1 : i64}
// CHECK: call @mixer(%{{.*}}, %[[SLICED]],
func.func @step(%x: !x, %cu: tensor<2x2xi32>, %state: !s, %norm: tensor<16xf32>, %wq: !w) -> (!x, !s) attributes {braid.entry} {
  %documents = braid.documents %cu : (tensor<2x2xi32>) -> !d
  %y:2 = call @mixer(%x, %documents, %state, %norm, %wq) : (!x, !d, !s, tensor<16xf32>, !w) -> (!x, !s)
  return %y#0, %y#1 : !x, !s
}

// -----

!x = tensor<2x8x16xf32>
!h = tensor<2x8x2x8xf32>
!s = tensor<2x2x8x8xf32>
!d = tensor<2x8xi32>
!w = tensor<16x16xf32>
// Backward: the last slice first, each hands the cotangent of its initial state to the one before; the states that entered the
// slices are rebuilt; weight gradients go on with the sum of the slices behind, one buffer for all.
// CHECK-LABEL: func.func private @mixer_grad(
// CHECK: %{{.*}}, %[[M1:[a-z0-9_]+]] = braid.lsm.scan
// CHECK: braid.lsm.scan_grad {{.*}}initial_state(%[[M1]]){{.*}}braid.slice = 1
// CHECK: braid.lsm.scan_grad {{.*}}braid.slice = 0
// CHECK: %[[W1:.*]] = braid.linear_grad_weight %{{[^ ]*}} cotangents(%{{[^ ]*}}) {braid.filler, braid.slice = 1 : i64}
// CHECK: %[[W0:.*]] = braid.linear_grad_weight %{{[^ ]*}} cotangents(%{{[^ ]*}}) sums(%[[W1]]) {braid.filler, braid.slice = 0 : i64}
// CHECK: return %{{.*}}, %[[W0]]
func.func private @mixer_grad(%x: !x, %q: !h, %documents: !d, %state: !s, %d_o: !h, %dfinal: !s) -> (!s, !w)
    attributes {braid.schedule = {direction = "backward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %dq, %dk, %dv, %dinitial = braid.lsm.scan_grad I %q, %q, %q initial_state(%state) documents(%documents) cotangents(%d_o, %dfinal) {scale = 1.0 : f64} : (!h, !h, !h, !s, !d, !h, !s) -> (!h, !h, !h, !s)
  %dw = braid.linear_grad_weight %x cotangents(%dq) : (!x, !h) -> !w
  return %dinitial, %dw : !s, !w
}
func.func @step(%x: !x, %q: !h, %cu: tensor<2x2xi32>, %state: !s, %d_o: !h) -> (!s, !w) attributes {braid.entry} {
  %documents = braid.documents %cu : (tensor<2x2xi32>) -> !d
  %y:2 = call @mixer_grad(%x, %q, %documents, %state, %d_o, %state) : (!x, !h, !d, !s, !h, !s) -> (!s, !w)
  return %y#0, %y#1 : !s, !w
}

// -----

// A rank's part of features or heads is taken slice by slice: no slice waits for another.
!x = tensor<2x8x16xf32>
!d = tensor<2x8xi32>
// CHECK-LABEL: func.func private @part(
// CHECK: braid.shard %{{.*}} {braid.slice = 0 : i64, count = 2 : i64, dim = 2 : i64} : (tensor<2x4x16xf32>, tensor<1xi32>) -> tensor<2x4x8xf32>
// CHECK: braid.shard %{{.*}} {braid.slice = 1 : i64, count = 2 : i64, dim = 2 : i64} : (tensor<2x4x16xf32>, tensor<1xi32>) -> tensor<2x4x8xf32>
func.func private @part(%x: !x, %documents: !d, %norm: tensor<16xf32>, %coordinate: tensor<1xi32>) -> tensor<2x8x8xf32>
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %n = braid.rms_norm %x, %norm {eps = 1.0e-6 : f64} : (!x, tensor<16xf32>) -> !x
  %p = braid.shard %n, %coordinate {count = 2 : i64, dim = 2 : i64} : (!x, tensor<1xi32>) -> tensor<2x8x8xf32>
  %y = braid.activation %p {kind = "silu"} : (tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  return %y : tensor<2x8x8xf32>
}
func.func @step(%x: !x, %cu: tensor<2x2xi32>, %norm: tensor<16xf32>, %coordinate: tensor<1xi32>) -> tensor<2x8x8xf32> attributes {braid.entry} {
  %documents = braid.documents %cu : (tensor<2x2xi32>) -> !d
  %y = call @part(%x, %documents, %norm, %coordinate) : (!x, !d, tensor<16xf32>, tensor<1xi32>) -> tensor<2x8x8xf32>
  return %y : tensor<2x8x8xf32>
}

// -----

// Experts may have slices of their own (a token buffer): the second reads a token of the first mixer slice. One mixer slice stays whole.
!x = tensor<1x8x16xf32>
!ids = tensor<1x8x2xi32>
!d = tensor<1x8xi32>
// CHECK-LABEL: func.func private @buffer(
// CHECK: %[[N0:.*]] = braid.rms_norm {{.*}}braid.slice = 0{{.*}} -> tensor<1x5x16xf32>
// CHECK: %[[N1:.*]] = braid.rms_norm {{.*}}braid.slice = 1{{.*}} -> tensor<1x3x16xf32>
// CHECK: %[[A:.*]] = braid.slice %[[N0]] {begin = 0 : i64, dim = 1 : i64} : (tensor<1x5x16xf32>) -> tensor<1x4x16xf32>
// CHECK: braid.moe.dispatch %[[A]] {{.*}}braid.rows, braid.slice = 0
// CHECK: %[[B:.*]] = braid.slice %[[N0]] {begin = 4 : i64, dim = 1 : i64} : (tensor<1x5x16xf32>) -> tensor<1x1x16xf32>
// CHECK: %[[C:.*]] = braid.concat %[[B]], %[[N1]] {dim = 1 : i64}
// CHECK: braid.moe.dispatch %[[C]] {{.*}}braid.rows, braid.slice = 1
func.func private @buffer(%x: !x, %ids: !ids, %documents: !d, %norm: tensor<16xf32>) -> tensor<1x16x16xf32>
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 5, 8>, moe_slices = array<i64: 0, 4, 8>}} {
  %n = braid.rms_norm %x, %norm {eps = 1.0e-6 : f64} : (!x, tensor<16xf32>) -> !x
  %perm, %inverse, %counts, %offsets, %overflow, %exchange = braid.moe.plan %ids, %documents {num_experts = 4 : i64}
      : (!ids, !d) -> (tensor<16xi32>, !ids, tensor<4xi32>, tensor<5xi32>, tensor<1xi32>, tensor<1xi32>)
  %rows = braid.moe.dispatch %n plan(%perm, %inverse, %exchange) : (!x, tensor<16xi32>, !ids, tensor<1xi32>) -> tensor<1x16x16xf32>
  return %rows : tensor<1x16x16xf32>
}
func.func @step(%x: !x, %ids: !ids, %cu: tensor<1x2xi32>, %norm: tensor<16xf32>) -> tensor<1x16x16xf32> attributes {braid.entry} {
  %documents = braid.documents %cu : (tensor<1x2xi32>) -> !d
  %y = call @buffer(%x, %ids, %documents, %norm) : (!x, !ids, !d, tensor<16xf32>) -> tensor<1x16x16xf32>
  return %y : tensor<1x16x16xf32>
}

// -----

// What is computed from weights alone, as values of one row, is computed once; an inner step hands its state from slice to slice, and
// its gradient begins with what the forward's slices left.
!x = tensor<2x8x2x8xf32>
!g = tensor<2x8x2xf32>
!s = tensor<2x2x16x8xf32>
!d = tensor<2x8xi32>
// CHECK-LABEL: func.func private @inner(
// CHECK: %[[ROW:.*]] = braid.reshape %{{.*}} : (tensor<2xf32>) -> tensor<1x1x2xf32>
// CHECK: %[[RATE:.*]] = braid.activation %[[ROW]] {kind = "exp"}
// CHECK-NOT: braid.activation
// CHECK: %[[O0:[a-z0-9_]+]], %[[S0:[a-z0-9_]+]] = braid.lsm.inner_step {{.*}}braid.slice = 0
// CHECK: %[[O1:[a-z0-9_]+]], %[[S1:[a-z0-9_]+]] = braid.lsm.inner_step {{.*}}initial_state(%[[S0]]) {{.*}}braid.slice = 1
// CHECK: return %{{.*}}, %[[S1]]
func.func private @inner(%x: !x, %documents: !d, %state: !s, %g: !g, %w: tensor<2xf32>) -> (!x, !s)
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %row = braid.reshape %w : (tensor<2xf32>) -> tensor<1x1x2xf32>
  %e = braid.activation %row {kind = "exp"} : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %v = braid.reshape %e : (tensor<1x1x2xf32>) -> tensor<2xf32>
  %r = braid.weighted %g, %v : (!g, tensor<2xf32>) -> !g
  %o, %final = braid.lsm.inner_step %x, %x, %x rate(%r) initial_state(%state) documents(%documents) {mini_batch = 3 : i64} : (!x, !x, !x, !g, !s, !d) -> (!x, !s)
  return %o, %final : !x, !s
}
func.func @step(%x: !x, %cu: tensor<2x2xi32>, %state: !s, %g: !g, %w: tensor<2xf32>) -> (!x, !s) attributes {braid.entry} {
  %documents = braid.documents %cu : (tensor<2x2xi32>) -> !d
  %y:2 = call @inner(%x, %documents, %state, %g, %w) : (!x, !d, !s, !g, tensor<2xf32>) -> (!x, !s)
  return %y#0, %y#1 : !x, !s
}
// CHECK-LABEL: func.func private @inner_backward(
// CHECK: %{{.*}}, %[[M1:[a-z_0-9]+]] = braid.lsm.inner_step {{.*}}braid.slice = 1
// CHECK: , %[[LAST:[a-z_0-9]+]] = braid.lsm.inner_step_grad {{.*}}initial_state(%[[M1]]) {{.*}}braid.slice = 1
// CHECK: braid.lsm.inner_step_grad {{.*}}cotangents(%{{.*}}, %[[LAST]]) {{.*}}braid.slice = 0
func.func private @inner_backward(%x: !x, %documents: !d, %state: !s, %g: !g, %do: !x, %dfinal: !s) -> (!x, !s)
    attributes {braid.schedule = {direction = "backward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %r:5 = braid.lsm.inner_step_grad %x, %x, %x rate(%g) initial_state(%state) documents(%documents) cotangents(%do, %dfinal) {mini_batch = 3 : i64} : (!x, !x, !x, !g, !s, !d, !x, !s) -> (!x, !x, !x, !g, !s)
  return %r#0, %r#4 : !x, !s
}
func.func @back(%x: !x, %cu: tensor<2x2xi32>, %state: !s, %g: !g, %do: !x, %dfinal: !s) -> (!x, !s) attributes {braid.entry} {
  %documents = braid.documents %cu : (tensor<2x2xi32>) -> !d
  %y:2 = call @inner_backward(%x, %documents, %state, %g, %do, %dfinal) : (!x, !d, !s, !g, !x, !s) -> (!x, !s)
  return %y#0, %y#1 : !x, !s
}

// -----

!x = tensor<1x12x16xbf16>
// Gradients in bf16 are rounded when their sum is complete. Sums over tokens of six slices are made in groups
// of four, so that no kernel has more operands where there are more slices; what is not complete stays f32.
// CHECK-LABEL: func.func private @bf16_grad(
// CHECK-COUNT-5: braid.linear_grad_weight {{.*}} -> tensor<16x16xf32>
// CHECK: braid.linear_grad_weight {{.*}} sums({{.*}}braid.slice = 0 : i64} : (tensor<1x2x16xbf16>, tensor<1x2x16xbf16>, tensor<16x16xf32>) -> tensor<16x16xbf16>
// CHECK: %[[S:.*]] = braid.add %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}} {braid.partial_sum} : ({{.*}}) -> tensor<16xf32>
// CHECK: braid.add %[[S]], %{{[^ ]*}}, %{{[^ ]*}} : ({{.*}}) -> tensor<16xbf16>
func.func private @bf16_grad(%x: !x, %dy: !x, %documents: tensor<1x12xi32>, %norm: tensor<16xbf16>) -> (tensor<16x16xbf16>, tensor<16xbf16>)
    attributes {braid.schedule = {direction = "backward", pipeline = "1A1M", token_slices = array<i64: 0, 2, 4, 6, 8, 10, 12>}} {
  %dw = braid.linear_grad_weight %x cotangents(%dy) : (!x, !x) -> tensor<16x16xbf16>
  %dn = braid.rows_grad "braid.rms_norm"(%x, %norm) cotangents(%dy) {op_attributes = {eps = 1.0e-6 : f64, groups = 1 : i64}, wanted = array<i64: 1>} : (!x, tensor<16xbf16>, !x) -> tensor<16xbf16>
  return %dw, %dn : tensor<16x16xbf16>, tensor<16xbf16>
}
func.func @step(%x: !x, %dy: !x, %cu: tensor<1x2xi32>, %norm: tensor<16xbf16>) -> (tensor<16x16xbf16>, tensor<16xbf16>) attributes {braid.entry} {
  %documents = braid.documents %cu : (tensor<1x2xi32>) -> tensor<1x12xi32>
  %y:2 = call @bf16_grad(%x, %dy, %documents, %norm) : (!x, !x, tensor<1x12xi32>, tensor<16xbf16>) -> (tensor<16x16xbf16>, tensor<16xbf16>)
  return %y#0, %y#1 : tensor<16x16xbf16>, tensor<16xbf16>
}

// -----

!x = tensor<2x8x16xf32>
// What only layers in the same slices read stands slice after slice: each slice is a range of the flat buffer, on both sides. What
// the entry reads, too, or a layer in other slices, stands row after row.
// CHECK-LABEL: func.func private @first(
// CHECK: %[[FLAT:.*]] = braid.concat %{{.*}}, %{{.*}} {dim = 0 : i64} : (tensor<128xf32>, tensor<128xf32>) -> tensor<256xf32>
// CHECK: %[[OWN:.*]] = braid.reshape %[[FLAT]] : (tensor<256xf32>) -> tensor<2x8x16xf32>
// CHECK: %[[SEEN:.*]] = braid.concat %{{.*}}, %{{.*}} {dim = 1 : i64} : (tensor<2x4x16xf32>, tensor<2x4x16xf32>) -> tensor<2x8x16xf32>
// CHECK: %[[OTHER:.*]] = braid.concat %{{.*}}, %{{.*}} {dim = 1 : i64}
// CHECK: return %[[OWN]], %[[SEEN]], %[[OTHER]]
// CHECK-LABEL: func.func private @second(
// CHECK-SAME: %[[PACKED:[a-z0-9]+]]: tensor<2x8x16xf32>, %[[ROWS:[a-z0-9]+]]: tensor<2x8x16xf32>
// CHECK: %[[FLAT:.*]] = braid.reshape %[[PACKED]] : (tensor<2x8x16xf32>) -> tensor<256xf32>
// CHECK: braid.slice %[[FLAT]] {begin = 0 : i64, dim = 0 : i64} : (tensor<256xf32>) -> tensor<128xf32>
// CHECK: braid.slice %[[FLAT]] {begin = 128 : i64, dim = 0 : i64} : (tensor<256xf32>) -> tensor<128xf32>
// CHECK: braid.slice %[[ROWS]] {begin = 0 : i64, dim = 1 : i64} : (tensor<2x8x16xf32>) -> tensor<2x4x16xf32>
// CHECK-LABEL: func.func private @thirds(
// CHECK: braid.slice %arg0 {begin = 0 : i64, dim = 1 : i64} : (tensor<2x8x16xf32>) -> tensor<2x2x16xf32>
func.func private @first(%x: !x) -> (!x, !x, !x)
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %a = braid.activation %x {kind = "silu"} : (!x) -> !x
  %b = braid.activation %x {kind = "tanh"} : (!x) -> !x
  %c = braid.activation %x {kind = "relu"} : (!x) -> !x
  return %a, %b, %c : !x, !x, !x
}
func.func private @second(%a: !x, %b: !x) -> !x
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %y = braid.add %a, %b : (!x, !x) -> !x
  return %y : !x
}
func.func private @thirds(%c: !x) -> !x
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 2, 8>}} {
  %y = braid.activation %c {kind = "tanh"} : (!x) -> !x
  return %y : !x
}
func.func @step(%x: !x) -> (!x, !x, !x) attributes {braid.entry} {
  %v:3 = call @first(%x) : (!x) -> (!x, !x, !x)
  %y = call @second(%v#0, %v#1) : (!x, !x) -> !x
  %z = call @thirds(%v#2) : (!x) -> !x
  return %y, %z, %v#1 : !x, !x, !x
}

// -----

!x = tensor<2x8x16xf32>
// What a repeat stacks of layers and another takes apart, in groups or one by one, is packed as well: views move whole
// layers. Where one layer of a stack is read by somebody else, all stand row after row.
// CHECK-LABEL: func.func private @saves(
// CHECK: %[[FLAT:.*]] = braid.concat %{{.*}}, %{{.*}} {dim = 0 : i64} : (tensor<128xf32>, tensor<128xf32>) -> tensor<256xf32>
// CHECK: %[[OWN:.*]] = braid.reshape %[[FLAT]] : (tensor<256xf32>) -> tensor<2x8x16xf32>
// CHECK: %[[SEEN:.*]] = braid.concat %{{.*}}, %{{.*}} {dim = 1 : i64} : (tensor<2x4x16xf32>, tensor<2x4x16xf32>) -> tensor<2x8x16xf32>
// CHECK: return %{{.*}}, %[[OWN]], %[[SEEN]]
// CHECK-LABEL: func.func private @reads(
// CHECK-SAME: %{{[a-z0-9]+}}: tensor<2x8x16xf32>, %[[PACKED:[a-z0-9]+]]: tensor<2x8x16xf32>, %[[ROWS:[a-z0-9]+]]: tensor<2x8x16xf32>
// CHECK: %[[FLAT:.*]] = braid.reshape %[[PACKED]] : (tensor<2x8x16xf32>) -> tensor<256xf32>
// CHECK: braid.slice %[[FLAT]] {begin = 0 : i64, dim = 0 : i64} : (tensor<256xf32>) -> tensor<128xf32>
// CHECK: braid.slice %[[ROWS]] {begin = 0 : i64, dim = 1 : i64} : (tensor<2x8x16xf32>) -> tensor<2x4x16xf32>
func.func private @saves(%x: !x) -> (!x, !x, !x)
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %a = braid.activation %x {kind = "silu"} : (!x) -> !x
  %b = braid.activation %x {kind = "tanh"} : (!x) -> !x
  %c = braid.activation %x {kind = "relu"} : (!x) -> !x
  return %a, %b, %c : !x, !x, !x
}
func.func private @reads(%x: !x, %a: !x, %b: !x) -> !x
    attributes {braid.schedule = {direction = "backward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %y = braid.add %x, %a, %b : (!x, !x, !x) -> !x
  return %y : !x
}
func.func @step(%x: !x) -> (!x, !x) attributes {braid.entry} {
  %y, %b, %c = braid.repeat %x {count = 2 : i64, carried = 1 : i64} : (!x) -> (!x, tensor<2x2x2x8x16xf32>, tensor<2x2x2x8x16xf32>) {
  ^bb0(%in: !x):
    %first:3 = func.call @saves(%in) : (!x) -> (!x, !x, !x)
    %second:3 = func.call @saves(%first#0) : (!x) -> (!x, !x, !x)
    %b0 = braid.reshape %first#1 : (!x) -> tensor<1x2x8x16xf32>
    %b1 = braid.reshape %second#1 : (!x) -> tensor<1x2x8x16xf32>
    %bs = braid.concat %b0, %b1 {dim = 0 : i64} : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<2x2x8x16xf32>
    %c0 = braid.reshape %first#2 : (!x) -> tensor<1x2x8x16xf32>
    %c1 = braid.reshape %second#2 : (!x) -> tensor<1x2x8x16xf32>
    %cs = braid.concat %c0, %c1 {dim = 0 : i64} : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<2x2x8x16xf32>
    braid.yield %second#0, %bs, %cs : (!x, tensor<2x2x8x16xf32>, tensor<2x2x8x16xf32>) -> ()
  }
  %ball = braid.reshape %b : (tensor<2x2x2x8x16xf32>) -> tensor<4x2x8x16xf32>
  %call = braid.reshape %c : (tensor<2x2x2x8x16xf32>) -> tensor<4x2x8x16xf32>
  %b3 = braid.slice %ball {dim = 0 : i64, begin = 3 : i64} : (tensor<4x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  %c3 = braid.slice %call {dim = 0 : i64, begin = 3 : i64} : (tensor<4x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  %blast = braid.reshape %b3 : (tensor<1x2x8x16xf32>) -> !x
  %clast = braid.reshape %c3 : (tensor<1x2x8x16xf32>) -> !x
  %d = call @reads(%y, %blast, %clast) : (!x, !x, !x) -> !x
  %bs = braid.slice %ball {dim = 0 : i64, begin = 0 : i64} : (tensor<4x2x8x16xf32>) -> tensor<3x2x8x16xf32>
  %cs = braid.slice %call {dim = 0 : i64, begin = 0 : i64} : (tensor<4x2x8x16xf32>) -> tensor<3x2x8x16xf32>
  %dx = braid.repeat %d, %bs, %cs {count = 3 : i64, carried = 1 : i64, reverse} : (!x, tensor<3x2x8x16xf32>, tensor<3x2x8x16xf32>) -> !x {
  ^bb0(%dy: !x, %bl: !x, %cl: !x):
    %next = func.call @reads(%dy, %bl, %cl) : (!x, !x, !x) -> !x
    braid.yield %next : (!x) -> ()
  }
  return %dx, %clast : !x, !x
}

// -----

// Of one row parts are one after the other: what grows are views. The gradient's sums, the last slice first: each writes over the part of them that
// it sees, and its own end of it is complete.
!x = tensor<1x8x2x8xf32>
!l = tensor<1x2x8xf32>
!d = tensor<1x8xi32>
// CHECK-LABEL: func.func private @row(
// CHECK: %[[KEYS:.*]] = braid.concat {{.*}} -> tensor<1x8x2x8xf32>
// CHECK: %{{.*}}, %[[DK:.*]], %[[DV:.*]] = braid.attn.causal_grad %{{.*}}, %[[KEYS]], {{.*}}braid.slice = 1 : i64, prefix = 4 : i64
// CHECK-DAG: braid.slice %[[DK]] {begin = 4 : i64, dim = 1 : i64} : (tensor<1x8x2x8xf32>) -> tensor<1x4x2x8xf32>
// CHECK-DAG: %[[K0:.*]] = braid.slice %[[DK]] {begin = 0 : i64, dim = 1 : i64} : (tensor<1x8x2x8xf32>) -> tensor<1x4x2x8xf32>
// CHECK-DAG: %[[V0:.*]] = braid.slice %[[DV]] {begin = 0 : i64, dim = 1 : i64} : (tensor<1x8x2x8xf32>) -> tensor<1x4x2x8xf32>
// CHECK: braid.attn.causal_grad {{.*}} sums(%[[K0]], %[[V0]]) {braid.slice = 0 : i64
// CHECK-NOT: braid.add
func.func private @row(%q: !x, %k: !x, %v: !x, %documents: !d, %o: !x, %lse: !l, %do: !x) -> (!x, !x, !x)
    attributes {braid.schedule = {direction = "backward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %dq, %dk, %dv = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %do {scale = 1.0 : f64} : (!x, !x, !x, !d, !x, !l, !x) -> (!x, !x, !x)
  return %dq, %dk, %dv : !x, !x, !x
}
func.func @one(%q: !x, %k: !x, %v: !x, %cu: tensor<1x3xi32>, %o: !x, %lse: !l, %do: !x) -> (!x, !x, !x) attributes {braid.entry} {
  %d = braid.documents %cu : (tensor<1x3xi32>) -> !d
  %0:3 = call @row(%q, %k, %v, %d, %o, %lse, %do) : (!x, !x, !x, !d, !x, !l, !x) -> (!x, !x, !x)
  return %0#0, %0#1, %0#2 : !x, !x, !x
}

// -----

// Of two rows the last slice has all keys before it; others read as far as they see. In bf16 the sums are f32.
!x = tensor<2x8x2x8xbf16>
!l = tensor<2x2x8xf32>
!d = tensor<2x8xi32>
// CHECK-LABEL: func.func private @rows(
// CHECK: %[[K1:.*]] = braid.insert %{{.*}}, %{{.*}} {begin = 4 : i64
// CHECK: %{{.*}}, %[[DK:.*]], %[[DV:.*]] = braid.attn.causal_grad %{{.*}}, %[[K1]], {{.*}}braid.slice = 1 : i64, prefix = 4 : i64, {{.*}} -> (tensor<2x4x2x8xbf16>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>)
// CHECK: %[[OWN:.*]] = braid.slice %[[DK]] {begin = 4 : i64
// CHECK: braid.cast %[[OWN]] : (tensor<2x4x2x8xf32>) -> tensor<2x4x2x8xbf16>
// CHECK: braid.attn.causal_grad %{{.*}}, %[[K1]], {{.*}} sums(%[[DK]], %[[DV]]) {braid.slice = 0 : i64, keys = 4 : i64
func.func private @rows(%q: !x, %k: !x, %v: !x, %documents: !d, %o: !x, %lse: !l, %do: !x) -> (!x, !x, !x)
    attributes {braid.schedule = {direction = "backward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %dq, %dk, %dv = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %do {scale = 1.0 : f64} : (!x, !x, !x, !d, !x, !l, !x) -> (!x, !x, !x)
  return %dq, %dk, %dv : !x, !x, !x
}
func.func @two(%q: !x, %k: !x, %v: !x, %cu: tensor<2x3xi32>, %o: !x, %lse: !l, %do: !x) -> (!x, !x, !x) attributes {braid.entry} {
  %d = braid.documents %cu : (tensor<2x3xi32>) -> !d
  %0:3 = call @rows(%q, %k, %v, %d, %o, %lse, %do) : (!x, !x, !x, !d, !x, !l, !x) -> (!x, !x, !x)
  return %0#0, %0#1, %0#2 : !x, !x, !x
}
