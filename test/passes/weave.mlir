// RUN: braid-opt %s --braid-weave --split-input-file | FileCheck %s
// RUN: braid-opt %s --braid-weave --split-input-file | FileCheck %s --check-prefix=ORDER

// Degree 3, 1A1M: mixer slices A (rms_norm), experts M (silu), combine (tanh); D and C are the exchanges.
// Compute A0 A1 M0 A2 M1 M2, exchange D0 D1 C0 D2 C1 C2; the op that no exchange needs fills the last combine exchange.
!x = tensor<1x4x8xf32>
!c = tensor<2x1xi32>
// ORDER-LABEL: func.func private @forward(
// ORDER: braid.rms_norm %[[X0:.*]], %
// ORDER-NEXT: %[[D0:.*]] = braid.comm.start {{.*}}label = "D0"
// ORDER-NEXT: braid.rms_norm
// ORDER-NEXT: %[[D1:.*]] = braid.comm.start {{.*}}label = "D1"
// ORDER-NEXT: braid.comm.await %[[D0]]
// ORDER-NEXT: braid.activation {{.*}}silu
// ORDER-NEXT: %[[C0:.*]] = braid.comm.start {{.*}}label = "C0"
// ORDER-NEXT: braid.rms_norm
// ORDER-NEXT: %[[D2:.*]] = braid.comm.start {{.*}}label = "D2"
// ORDER-NEXT: braid.comm.await %[[D1]]
// ORDER-NEXT: braid.activation {{.*}}silu
// ORDER-NEXT: %[[C1:.*]] = braid.comm.start {{.*}}label = "C1"
// ORDER-NEXT: braid.comm.await %[[D2]]
// ORDER-NEXT: braid.activation {{.*}}silu
// ORDER-NEXT: %[[C2:.*]] = braid.comm.start {{.*}}label = "C2"
// ORDER-NEXT: braid.l2_norm
// ORDER-NEXT: braid.comm.await %[[C0]]
// ORDER-NEXT: braid.activation {{.*}}tanh
// ORDER-NEXT: braid.comm.await %[[C1]]
// ORDER-NEXT: braid.activation {{.*}}tanh
// ORDER-NEXT: braid.comm.await %[[C2]]
// ORDER-NEXT: braid.activation {{.*}}tanh
// No schedule, no slice numbers, no synchronous collective is left.
// CHECK-NOT: braid.schedule
// CHECK-NOT: braid.slice =
// CHECK-NOT: comm.all_to_all
func.func private @forward(%x0: !x, %x1: !x, %x2: !x, %w: tensor<8xf32>, %s: !c, %r: !c) -> (!x, !x, !x, !x)
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8, 12>}} {
  %a0 = braid.rms_norm %x0, %w {eps = 1.0e-6 : f64, braid.slice = 0 : i64} : (!x, tensor<8xf32>) -> !x
  %a1 = braid.rms_norm %x1, %w {eps = 1.0e-6 : f64, braid.slice = 1 : i64} : (!x, tensor<8xf32>) -> !x
  %a2 = braid.rms_norm %x2, %w {eps = 1.0e-6 : f64, braid.slice = 2 : i64} : (!x, tensor<8xf32>) -> !x
  %free = braid.l2_norm %a0 {eps = 1.0e-6 : f64, braid.slice = 0 : i64} : (!x) -> !x
  %d0 = braid.comm.all_to_all %a0 send_counts(%s) recv_counts(%r) {axis = "ep", label = "D0", peers = 2 : i64, braid.slice = 0 : i64} : (!x, !c, !c) -> !x
  %d1 = braid.comm.all_to_all %a1 send_counts(%s) recv_counts(%r) {axis = "ep", label = "D1", peers = 2 : i64, braid.slice = 1 : i64} : (!x, !c, !c) -> !x
  %d2 = braid.comm.all_to_all %a2 send_counts(%s) recv_counts(%r) {axis = "ep", label = "D2", peers = 2 : i64, braid.slice = 2 : i64} : (!x, !c, !c) -> !x
  %m0 = braid.activation %d0 {kind = "silu", braid.slice = 0 : i64} : (!x) -> !x
  %m1 = braid.activation %d1 {kind = "silu", braid.slice = 1 : i64} : (!x) -> !x
  %m2 = braid.activation %d2 {kind = "silu", braid.slice = 2 : i64} : (!x) -> !x
  %c0 = braid.comm.all_to_all %m0 send_counts(%s) recv_counts(%r) {axis = "ep", label = "C0", peers = 2 : i64, braid.slice = 0 : i64} : (!x, !c, !c) -> !x
  %c1 = braid.comm.all_to_all %m1 send_counts(%s) recv_counts(%r) {axis = "ep", label = "C1", peers = 2 : i64, braid.slice = 1 : i64} : (!x, !c, !c) -> !x
  %c2 = braid.comm.all_to_all %m2 send_counts(%s) recv_counts(%r) {axis = "ep", label = "C2", peers = 2 : i64, braid.slice = 2 : i64} : (!x, !c, !c) -> !x
  %y0 = braid.activation %c0 {kind = "tanh", braid.slice = 0 : i64} : (!x) -> !x
  %y1 = braid.activation %c1 {kind = "tanh", braid.slice = 1 : i64} : (!x) -> !x
  %y2 = braid.activation %c2 {kind = "tanh", braid.slice = 2 : i64} : (!x) -> !x
  return %y0, %y1, %y2, %free : !x, !x, !x, !x
}

// -----

// Backward, degree 2: compute M1 M0 A1 A0, exchange C1 C0 D1 D0 (both combine gradients start at once); the weight gradient whose
// operands exist stands in front of the last mixer slice, under its exchange.
!x = tensor<1x4x8xf32>
!c = tensor<2x1xi32>
// ORDER-LABEL: func.func private @backward(
// ORDER: braid.scale %arg1
// ORDER-NEXT: %[[C1:.*]] = braid.comm.start {{.*}}label = "C1"
// ORDER-NEXT: braid.scale %arg0
// ORDER-NEXT: %[[C0:.*]] = braid.comm.start {{.*}}label = "C0"
// ORDER-NEXT: braid.comm.await %[[C1]]
// ORDER-NEXT: braid.activation {{.*}}silu
// ORDER-NEXT: %[[D1:.*]] = braid.comm.start {{.*}}label = "D1"
// ORDER-NEXT: braid.comm.await %[[C0]]
// ORDER-NEXT: braid.activation {{.*}}silu
// ORDER-NEXT: %[[D0:.*]] = braid.comm.start {{.*}}label = "D0"
// ORDER-NEXT: braid.comm.await %[[D1]]
// ORDER-NEXT: braid.activation {{.*}}tanh
// ORDER-NEXT: braid.linear_grad_weight
// ORDER-NEXT: braid.comm.await %[[D0]]
// ORDER-NEXT: braid.activation {{.*}}tanh
func.func private @backward(%dy0: !x, %dy1: !x, %s: !c, %r: !c) -> (!x, !x, tensor<8x8xf32>)
    attributes {braid.schedule = {direction = "backward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %g0 = braid.scale %dy0 {value = 2.0 : f64, braid.slice = 0 : i64} : (!x) -> !x
  %g1 = braid.scale %dy1 {value = 2.0 : f64, braid.slice = 1 : i64} : (!x) -> !x
  %c0 = braid.comm.all_to_all %g0 send_counts(%s) recv_counts(%r) {axis = "ep", label = "C0", peers = 2 : i64, braid.slice = 0 : i64} : (!x, !c, !c) -> !x
  %c1 = braid.comm.all_to_all %g1 send_counts(%s) recv_counts(%r) {axis = "ep", label = "C1", peers = 2 : i64, braid.slice = 1 : i64} : (!x, !c, !c) -> !x
  %m0 = braid.activation %c0 {kind = "silu", braid.slice = 0 : i64} : (!x) -> !x
  %m1 = braid.activation %c1 {kind = "silu", braid.slice = 1 : i64} : (!x) -> !x
  %w = braid.linear_grad_weight %c1 cotangents(%m1) {braid.filler, braid.slice = 1 : i64} : (!x, !x) -> tensor<8x8xf32>
  %d0 = braid.comm.all_to_all %m0 send_counts(%s) recv_counts(%r) {axis = "ep", label = "D0", peers = 2 : i64, braid.slice = 0 : i64} : (!x, !c, !c) -> !x
  %d1 = braid.comm.all_to_all %m1 send_counts(%s) recv_counts(%r) {axis = "ep", label = "D1", peers = 2 : i64, braid.slice = 1 : i64} : (!x, !c, !c) -> !x
  %a0 = braid.activation %d0 {kind = "tanh", braid.slice = 0 : i64} : (!x) -> !x
  %a1 = braid.activation %d1 {kind = "tanh", braid.slice = 1 : i64} : (!x) -> !x
  return %a0, %a1, %w : !x, !x, tensor<8x8xf32>
}

// -----

// An all-reduce outside of any schedule: started where it stands, awaited in front of its reader.
// CHECK-LABEL: func.func @reduce(
// CHECK: %[[F:.*]] = braid.comm.start all_reduce %arg0 {axis = "dp"} : (tensor<8xf32>) -> !braid.future<tensor<8xf32>>
// CHECK-NEXT: braid.activation %arg1
// CHECK-NEXT: braid.comm.await %[[F]]
// CHECK-NEXT: braid.activation
func.func @reduce(%g: tensor<8xf32>, %h: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) attributes {braid.entry} {
  %r = braid.comm.all_reduce %g {axis = "dp"} : (tensor<8xf32>) -> tensor<8xf32>
  %a = braid.activation %h {kind = "silu"} : (tensor<8xf32>) -> tensor<8xf32>
  %b = braid.activation %r {kind = "silu"} : (tensor<8xf32>) -> tensor<8xf32>
  return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// -----

// Rows are packed while the counts travel; what reads the counts waits, and so does what comes after the next start.
!x = tensor<1x4x8xf32>
!c = tensor<2x1xi32>
// ORDER-LABEL: func.func private @counts(
// ORDER: %[[COUNTS:.*]] = braid.comm.start all_to_all {{.*}}label = "moe.counts"
// ORDER-NEXT: %[[PACKED:.*]] = braid.rms_norm
// ORDER-NEXT: %[[RECEIVED:.*]] = braid.comm.await %[[COUNTS]]
// ORDER-NEXT: %[[SUM:.*]] = braid.add %[[RECEIVED]], %
// ORDER-NEXT: %[[ROWS:.*]] = braid.comm.start all_to_all %[[PACKED]], %{{.*}}, %[[SUM]] {{.*}}label = "moe.dispatch"
// ORDER-NEXT: braid.l2_norm
// ORDER-NEXT: braid.comm.await %[[ROWS]]
func.func private @counts(%x: !x, %w: tensor<8xf32>, %s: !c) -> (!x, !x) {
  %received = braid.comm.all_to_all %s {axis = "ep", label = "moe.counts", peers = 2 : i64} : (!c) -> !c
  %sum = braid.add %received, %s : (!c, !c) -> !c
  %packed = braid.rms_norm %x, %w {eps = 1.0e-6 : f64} : (!x, tensor<8xf32>) -> !x
  %rows = braid.comm.all_to_all %packed send_counts(%s) recv_counts(%sum) {axis = "ep", label = "moe.dispatch", peers = 2 : i64} : (!x, !c, !c) -> !x
  %other = braid.l2_norm %x {eps = 1.0e-6 : f64} : (!x) -> !x
  %y = braid.activation %rows {kind = "silu"} : (!x) -> !x
  return %y, %other : !x, !x
}

// -----

// In a schedule an exchange of counts stands in line behind exchanges of rows. The rows of its slice follow it on the stream with
// the counts from where they arrived; what compute makes of the counts comes with the experts, not with the mixer.
!x = tensor<1x4x8xf32>
!c = tensor<2x1xi32>
!p = tensor<4x1xi32>
// ORDER-LABEL: func.func private @counts_in_line(
// ORDER: braid.rms_norm
// ORDER-NEXT: %[[COUNTS0:.*]] = braid.comm.start {{.*}}label = "moe.counts"
// ORDER-NEXT: %[[R0:.*]] = braid.comm.await %[[COUNTS0]]
// ORDER-NEXT: %[[D0:.*]] = braid.comm.start all_to_all %{{.*}}, %arg3, %[[R0]] {{.*}}label = "D0"
// ORDER-NEXT: braid.rms_norm
// ORDER-NEXT: %[[COUNTS1:.*]] = braid.comm.start {{.*}}label = "moe.counts"
// ORDER-NEXT: %[[R1:.*]] = braid.comm.await %[[COUNTS1]]
// ORDER-NEXT: %[[D1:.*]] = braid.comm.start all_to_all %{{.*}}, %arg3, %[[R1]] {{.*}}label = "D1"
// ORDER-NEXT: braid.concat %arg3, %[[R0]]
// ORDER-NEXT: braid.reshape
// ORDER-NEXT: braid.comm.await %[[D0]]
// ORDER-NEXT: braid.moe.permute
// ORDER-NEXT: braid.comm.start {{.*}}label = "C0"
// ORDER-NEXT: braid.concat %arg3, %[[R1]]
// ORDER: braid.comm.await %[[D1]]
// ORDER-NEXT: braid.moe.permute
func.func private @counts_in_line(%x0: !x, %x1: !x, %w: tensor<8xf32>, %s: !c) -> (!x, !x)
    attributes {braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  %a0 = braid.rms_norm %x0, %w {eps = 1.0e-6 : f64, braid.slice = 0 : i64} : (!x, tensor<8xf32>) -> !x
  %a1 = braid.rms_norm %x1, %w {eps = 1.0e-6 : f64, braid.slice = 1 : i64} : (!x, tensor<8xf32>) -> !x
  %r0 = braid.comm.all_to_all %s {axis = "ep", label = "moe.counts", peers = 2 : i64, braid.slice = 0 : i64} : (!c) -> !c
  %r1 = braid.comm.all_to_all %s {axis = "ep", label = "moe.counts", peers = 2 : i64, braid.slice = 1 : i64} : (!c) -> !c
  %p0 = braid.concat %s, %r0 {dim = 0 : i64, braid.slice = 0 : i64} : (!c, !c) -> !p
  %p1 = braid.concat %s, %r1 {dim = 0 : i64, braid.slice = 1 : i64} : (!c, !c) -> !p
  %v0 = braid.slice %p0 {begin = 2 : i64, dim = 0 : i64, braid.slice = 0 : i64} : (!p) -> !c
  %v1 = braid.slice %p1 {begin = 2 : i64, dim = 0 : i64, braid.slice = 1 : i64} : (!p) -> !c
  %f0 = braid.reshape %p0 {braid.slice = 0 : i64} : (!p) -> tensor<4xi32>
  %f1 = braid.reshape %p1 {braid.slice = 1 : i64} : (!p) -> tensor<4xi32>
  %d0 = braid.comm.all_to_all %a0 send_counts(%s) recv_counts(%v0) {axis = "ep", label = "D0", peers = 2 : i64, braid.slice = 0 : i64} : (!x, !c, !c) -> !x
  %d1 = braid.comm.all_to_all %a1 send_counts(%s) recv_counts(%v1) {axis = "ep", label = "D1", peers = 2 : i64, braid.slice = 1 : i64} : (!x, !c, !c) -> !x
  %m0 = braid.moe.permute %d0 plan(%f0, %f0) {braid.slice = 0 : i64} : (!x, tensor<4xi32>, tensor<4xi32>) -> !x
  %m1 = braid.moe.permute %d1 plan(%f1, %f1) {braid.slice = 1 : i64} : (!x, tensor<4xi32>, tensor<4xi32>) -> !x
  %c0 = braid.comm.all_to_all %m0 send_counts(%v0) recv_counts(%s) {axis = "ep", label = "C0", peers = 2 : i64, braid.slice = 0 : i64} : (!x, !c, !c) -> !x
  %c1 = braid.comm.all_to_all %m1 send_counts(%v1) recv_counts(%s) {axis = "ep", label = "C1", peers = 2 : i64, braid.slice = 1 : i64} : (!x, !c, !c) -> !x
  %y0 = braid.activation %c0 {kind = "tanh", braid.slice = 0 : i64} : (!x) -> !x
  %y1 = braid.activation %c1 {kind = "tanh", braid.slice = 1 : i64} : (!x) -> !x
  return %y0, %y1 : !x, !x
}

// -----

// Every kind of collective keeps its attributes, and is awaited in front of its first reader.
// CHECK-LABEL: func.func @kinds(
// CHECK: %[[G:.*]] = braid.comm.start all_gather %arg0 {axis = "tp", dim = 1 : i64} : (tensor<4x8xf32>) -> !braid.future<tensor<4x16xf32>>
// CHECK-NEXT: %[[S:.*]] = braid.comm.start reduce_scatter %arg0 {axis = "dp*sp", label = "gradient"} : (tensor<4x8xf32>) -> !braid.future<tensor<1x8xf32>>
// CHECK-NEXT: %[[H:.*]] = braid.comm.start shift %arg0 {axis = "sp", distance = 2 : i64, reverse} : (tensor<4x8xf32>) -> !braid.future<tensor<4x8xf32>>
// CHECK-NEXT: braid.comm.await %[[H]]
// CHECK-NEXT: braid.reshape
// CHECK-NEXT: braid.comm.await %[[G]]
// CHECK-NEXT: braid.comm.await %[[S]]
// CHECK-NEXT: return
func.func @kinds(%x: tensor<4x8xf32>) -> (tensor<4x16xf32>, tensor<1x8xf32>, tensor<32xf32>) {
  %0 = braid.comm.all_gather %x {axis = "tp", dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x16xf32>
  %1 = braid.comm.reduce_scatter %x {axis = "dp*sp", dim = 0 : i64, label = "gradient"} : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %2 = braid.comm.shift %x {axis = "sp", distance = 2 : i64, reverse} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = braid.reshape %2 : (tensor<4x8xf32>) -> tensor<32xf32>
  return %0, %1, %3 : tensor<4x16xf32>, tensor<1x8xf32>, tensor<32xf32>
}

// -----

// Weight gradients in front of an exchange of states along sp are computed while it is under way, but for one that it sends.
!x = tensor<2x4x8xf32>
!s = tensor<1x8x8xf32>
// CHECK-LABEL: func.func private @fill(
// CHECK: %[[OWN:.*]] = braid.linear_grad_weight
// CHECK-NEXT: %[[SENT:.*]] = braid.reshape %[[OWN]]
// CHECK-NEXT: %[[G:.*]] = braid.comm.start shift %[[SENT]]
// CHECK-NEXT: %[[DW:.*]] = braid.linear_grad_weight %arg0 cotangents(%arg0)
// CHECK-NEXT: braid.comm.await %[[G]]
// CHECK-NEXT: braid.activation
// CHECK-NEXT: return %{{.*}}, %[[DW]]
func.func private @fill(%x: !x, %y: !x) -> (!s, tensor<8x8xf32>) {
  %dw = braid.linear_grad_weight %x cotangents(%x) : (!x, !x) -> tensor<8x8xf32>
  %own = braid.linear_grad_weight %x cotangents(%y) : (!x, !x) -> tensor<8x8xf32>
  %sent = braid.reshape %own : (tensor<8x8xf32>) -> !s
  %state = braid.comm.shift %sent {axis = "sp"} : (!s) -> !s
  %z = braid.activation %state {kind = "silu"} : (!s) -> !s
  return %z, %dw : !s, tensor<8x8xf32>
}

// -----

// What an exchange along sp does not send is computed while it is under way; what a step of it hides stays there. Not what stands in front of
// an exchange along another axis: that is another task.
!x = tensor<1x4x8xf32>
// CHECK-LABEL: func.func private @sink(
// CHECK: %[[BEFORE:.*]] = braid.activation
// CHECK-NEXT: %[[ROWS:.*]] = braid.comm.start all_reduce
// CHECK-NEXT: braid.comm.await %[[ROWS]]
// CHECK-NEXT: %[[K:.*]] = braid.rms_norm
// CHECK-NEXT: %[[FIRST:.*]] = braid.comm.start shift %[[K]]
// CHECK-NEXT: %[[Q:.*]] = braid.l2_norm
// CHECK-NEXT: %[[SCALED:.*]] = braid.mul %[[Q]]
// CHECK-NEXT: %[[STATE:.*]] = braid.comm.await %[[FIRST]]
// CHECK-NEXT: %[[NEXT:.*]] = braid.add %[[STATE]], %[[K]]
// CHECK-NEXT: %[[SECOND:.*]] = braid.comm.start shift %[[NEXT]]
// CHECK-NEXT: %[[LAST:.*]] = braid.comm.await %[[SECOND]]
// CHECK-NEXT: braid.add %[[LAST]], %[[SCALED]]
func.func private @sink(%x: !x, %y: !x, %w: tensor<8xf32>) -> (!x, !x, !x) {
  %before = braid.activation %y {kind = "silu"} : (!x) -> !x
  %rows = braid.comm.all_reduce %x {axis = "tp"} : (!x) -> !x
  %q = braid.l2_norm %rows {eps = 1.0e-6 : f64} : (!x) -> !x
  %k = braid.rms_norm %y, %w {eps = 1.0e-6 : f64} : (!x, tensor<8xf32>) -> !x
  %scaled = braid.mul %q, %x : (!x, !x) -> !x
  %state = braid.comm.shift %k {axis = "sp", label = "lsm.state"} : (!x) -> !x
  %next = braid.add %state, %k : (!x, !x) -> !x
  %last = braid.comm.shift %next {axis = "sp", label = "lsm.state"} : (!x) -> !x
  %o = braid.add %last, %scaled : (!x, !x) -> !x
  return %o, %rows, %before : !x, !x, !x
}

// What stands under an exchange stays there when one of the same label follows: a block of a ring that is read at the end, though keys
// and values travel in turn. A weight gradient is left where it is by all.
// CHECK-LABEL: func.func private @stays(
// CHECK-NEXT: %[[K1:.*]] = braid.comm.start shift %{{.*}} {axis = "sp", label = "attn.k"}
// CHECK-NEXT: %[[V1:.*]] = braid.comm.start shift %{{.*}} {axis = "sp", label = "attn.v"}
// CHECK-NEXT: %[[BLOCK:.*]] = braid.rms_norm
// CHECK-NEXT: %[[DW:.*]] = braid.linear_grad_weight
// CHECK-NEXT: %[[K:.*]] = braid.comm.await %[[K1]]
// CHECK-NEXT: %[[K2:.*]] = braid.comm.start shift %[[K]]
// CHECK-NEXT: %[[V:.*]] = braid.comm.await %[[V1]]
// CHECK-NEXT: %[[V2:.*]] = braid.comm.start shift %[[V]]
// CHECK-NEXT: braid.comm.await %[[K2]]
// CHECK-NEXT: braid.comm.await %[[V2]]
// CHECK-NEXT: braid.add %{{.*}}, %{{.*}}, %[[BLOCK]]
func.func private @stays(%x: !x, %y: !x, %w: tensor<8xf32>) -> (!x, tensor<8x8xf32>) {
  %dw = braid.linear_grad_weight %x cotangents(%y) : (!x, !x) -> tensor<8x8xf32>
  %k1 = braid.comm.shift %x {axis = "sp", label = "attn.k"} : (!x) -> !x
  %v1 = braid.comm.shift %y {axis = "sp", label = "attn.v"} : (!x) -> !x
  %block = braid.rms_norm %y, %w {eps = 1.0e-6 : f64} : (!x, tensor<8xf32>) -> !x
  %k2 = braid.comm.shift %k1 {axis = "sp", label = "attn.k"} : (!x) -> !x
  %v2 = braid.comm.shift %v1 {axis = "sp", label = "attn.v"} : (!x) -> !x
  %o = braid.add %k2, %v2, %block : (!x, !x, !x) -> !x
  return %o, %dw : !x, tensor<8x8xf32>
}
