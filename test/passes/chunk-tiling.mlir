// RUN: braid-opt %s --braid-chunk-tiling --split-input-file --verify-diagnostics | FileCheck %s
// RUN: braid-opt %s --braid-chunk-tiling --cse --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=CSE

!tok = tensor<2x100x2x16xf32>
!gate = tensor<2x100x2xf32>
!state = tensor<2x2x16x16xf32>
!doc = tensor<2x100xi32>

// ceil(100 / 32) + 1 rows: the module says nothing about documents. Forward and gradient cut the row once (CSE).
// CHECK-LABEL: func.func @gated_householder
// CHECK-SAME: (%[[Q:.*]]: tensor<2x100x2x16xf32>, %[[G:.*]]: tensor<2x100x2xf32>, %[[B:.*]]: tensor<2x100x2xf32>, %[[M0:.*]]: tensor<2x2x16x16xf32>, %[[D:.*]]: tensor<2x100xi32>)
// CHECK: %[[C:.*]] = braid.lsm.chunk_table %[[D]] {chunk_size = 32 : i64} : (tensor<2x100xi32>) -> tensor<2x5x4xi32>
// CHECK: %[[X:.*]], %[[P:.*]] = braid.lsm.chunk_state GH %[[Q]], %[[Q]] log_decay(%[[G]]) beta(%[[B]]) chunks(%[[C]]) {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x16x16xf32>)
// CHECK: %[[M:.*]], %[[FINAL:.*]] = braid.lsm.state_scan GH %[[X]] transition(%[[P]]) initial_state(%[[M0]]) chunks(%[[C]])
// CHECK: %[[O:.*]] = braid.lsm.chunk_output GH %[[Q]], %[[Q]], %[[Q]] log_decay(%[[G]]) beta(%[[B]]) in_state(%[[M]]) chunks(%[[C]]) {{.*}}scale = 5.000000e-01
// CHECK: braid.lsm.chunk_table
// CHECK: %[[X2:.*]], %[[P2:.*]] = braid.lsm.chunk_state
// CHECK: %[[M2:.*]], %{{.*}} = braid.lsm.state_scan
// CHECK: %[[DM:.*]] = braid.lsm.chunk_output_grad_state GH %[[Q]], %[[Q]], %[[Q]] log_decay(%[[G]]) beta(%[[B]]) cotangents(%[[O]])
// CHECK: %[[DX:.*]], %[[DM0:.*]] = braid.lsm.state_scan_grad GH transition(%[[P2]]) cotangents(%[[DM]], %[[FINAL]]) chunks
// CHECK: %[[DQ:.*]], %{{.*}}, %{{.*}}, %[[GATES:.*]]:2 = braid.lsm.chunk_grad GH %[[Q]], %[[Q]], %[[Q]] log_decay(%[[G]]) beta(%[[B]]) in_state(%[[M2]]) cotangents(%[[DX]], %[[O]])
// CHECK: return %[[DQ]], %[[GATES]]#0, %[[GATES]]#1, %[[DM0]]
// CHECK-NOT: braid.lsm.scan
// CSE-LABEL: func.func @gated_householder
// CSE-COUNT-1: braid.lsm.chunk_table
// CSE-NOT: braid.lsm.chunk_table
// CSE-COUNT-1: braid.lsm.chunk_state
// CSE-NOT: braid.lsm.chunk_state
// CSE: return
func.func @gated_householder(%q: !tok, %g: !gate, %b: !gate, %m: !state, %d: !doc) -> (!tok, !gate, !gate, !state) {
  %o, %f = braid.lsm.scan GH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!tok, !tok, !tok, !gate, !gate, !state, !doc) -> (!tok, !state)
  %r:6 = braid.lsm.scan_grad GH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) cotangents(%o, %f) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!tok, !tok, !tok, !gate, !gate, !state, !doc, !tok, !state) -> (!tok, !tok, !tok, !gate, !gate, !state)
  return %r#0, %r#3, %r#4, %r#5 : !tok, !gate, !gate, !state
}

// -----

!tok = tensor<2x100x2x16xf32>
!vec = tensor<2x100x2x16xf32>
!state = tensor<2x2x16x16xf32>
!doc = tensor<2x100xi32>

// More documents, more rows; a vector decay keeps one log decay per key channel.
module attributes {braid.max_documents = 3 : i64} {
  // CHECK-LABEL: func.func @documents
  // CHECK: braid.lsm.chunk_table {{.*}} -> tensor<2x5x4xi32>
  // CHECK: braid.lsm.chunk_state {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x16xf32>)
  func.func @documents(%q: !tok, %g: !vec, %m: !state, %d: !doc) -> !tok {
    %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 64 : i64, scale = 1.0 : f64}
        : (!tok, !tok, !tok, !vec, !state, !doc) -> (!tok, !state)
    return %o : !tok
  }
}

// -----

// Class I has no transition; a scalar per head has one number per chunk and head.
// CHECK-LABEL: func.func @no_decay
// CHECK: %[[X:.*]] = braid.lsm.chunk_state {{.*}} -> tensor<1x2x1x8x8xf32>
// CHECK: braid.lsm.state_scan I %[[X]] initial_state(%{{.*}}) chunks(%{{.*}}) : (tensor
// CHECK: braid.lsm.chunk_state {{.*}} -> (tensor<1x2x1x8x8xf32>, tensor<1x2x1xf32>)
func.func @no_decay(%q: tensor<1x16x1x8xf32>, %g: tensor<1xf32>, %m: tensor<1x1x8x8xf32>, %d: tensor<1x16xi32>) -> tensor<1x16x1x8xf32> {
  %o, %f = braid.lsm.scan I %q, %q, %q initial_state(%m) documents(%d) {chunk_size = 16 : i64, scale = 1.0 : f64}
      : (tensor<1x16x1x8xf32>, tensor<1x16x1x8xf32>, tensor<1x16x1x8xf32>, tensor<1x1x8x8xf32>, tensor<1x16xi32>) -> (tensor<1x16x1x8xf32>, tensor<1x1x8x8xf32>)
  %p, %r = braid.lsm.scan S0 %q, %q, %o log_decay(%g) initial_state(%f) documents(%d) {chunk_size = 16 : i64, scale = 1.0 : f64}
      : (tensor<1x16x1x8xf32>, tensor<1x16x1x8xf32>, tensor<1x16x1x8xf32>, tensor<1xf32>, tensor<1x1x8x8xf32>, tensor<1x16xi32>) -> (tensor<1x16x1x8xf32>, tensor<1x1x8x8xf32>)
  return %p : tensor<1x16x1x8xf32>
}

// -----

// One token: the decode step, with or without a chunk size.
// CHECK-LABEL: func.func @decode
// CHECK-NEXT: %[[O:.*]], %[[M:.*]] = braid.lsm.step
// CHECK-NEXT: return %[[O]], %[[M]]
func.func @decode(%q: tensor<2x1x1x8xf32>, %b: tensor<2x1x1xf32>, %m: tensor<2x1x8x8xf32>, %d: tensor<2x1xi32>) -> (tensor<2x1x1x8xf32>, tensor<2x1x8x8xf32>) {
  %o, %f = braid.lsm.scan H %q, %q, %q beta(%b) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<2x1x1x8xf32>, tensor<2x1x1x8xf32>, tensor<2x1x1x8xf32>, tensor<2x1x1xf32>, tensor<2x1x8x8xf32>, tensor<2x1xi32>) -> (tensor<2x1x1x8xf32>, tensor<2x1x8x8xf32>)
  return %o, %f : tensor<2x1x1x8xf32>, tensor<2x1x8x8xf32>
}

// -----

func.func @undecided(%q: tensor<1x16x1x8xf32>, %m: tensor<1x1x8x8xf32>, %d: tensor<1x16xi32>) -> tensor<1x16x1x8xf32> {
  // expected-error @below {{'braid.lsm.scan' op has no chunk_size; braid-decide-chunk-size writes it}}
  %o, %f = braid.lsm.scan I %q, %q, %q initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x16x1x8xf32>, tensor<1x16x1x8xf32>, tensor<1x16x1x8xf32>, tensor<1x1x8x8xf32>, tensor<1x16xi32>) -> (tensor<1x16x1x8xf32>, tensor<1x1x8x8xf32>)
  return %o : tensor<1x16x1x8xf32>
}

// -----

func.func @uneven(%q: tensor<1x16x1x8xf32>, %m: tensor<1x1x8x8xf32>, %d: tensor<1x16xi32>) -> tensor<1x16x1x8xf32> {
  // expected-error @below {{'braid.lsm.scan' op chunk_size must be a positive multiple of 16, is 24}}
  %o, %f = braid.lsm.scan I %q, %q, %q initial_state(%m) documents(%d) {chunk_size = 24 : i64, scale = 1.0 : f64}
      : (tensor<1x16x1x8xf32>, tensor<1x16x1x8xf32>, tensor<1x16x1x8xf32>, tensor<1x1x8x8xf32>, tensor<1x16xi32>) -> (tensor<1x16x1x8xf32>, tensor<1x1x8x8xf32>)
  return %o : tensor<1x16x1x8xf32>
}

// -----

!tok = tensor<2x100x2x16xf32>
!state = tensor<2x2x16x16xf32>
!doc = tensor<2x100xi32>

// Classes in matrix form keep one state and one transition per chunk of tokens, O(T / C) of them: a matrix (D), or one log decay
// per key and value channel (R). Class E keeps as many, with a decay for every element.
// CHECK-LABEL: func.func @transitions
// CHECK: braid.lsm.chunk_state D {{.*}} a(%arg2) b(%arg3) {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x16x16xf32>)
// CHECK: braid.lsm.chunk_state R {{.*}} value_decay(%arg2) {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x32xf32>)
// CHECK: braid.lsm.chunk_state E {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x16x16xf32>)
func.func @transitions(%q: !tok, %g: !tok, %a: !tok, %b: !tok, %m: !state, %d: !doc, %e: tensor<2x100x2x16x16xf32>) -> (!tok, !tok, !tok) {
  %o, %f = braid.lsm.scan D %q, %q, %q log_decay(%g) a(%a) b(%b) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 1.0 : f64}
      : (!tok, !tok, !tok, !tok, !tok, !tok, !state, !doc) -> (!tok, !state)
  %o1, %f1 = braid.lsm.scan R %q, %q, %q log_decay(%g) value_decay(%a) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 1.0 : f64}
      : (!tok, !tok, !tok, !tok, !tok, !state, !doc) -> (!tok, !state)
  %o2, %f2 = braid.lsm.scan E %q, %q, %q log_decay(%e) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 1.0 : f64}
      : (!tok, !tok, !tok, tensor<2x100x2x16x16xf32>, !state, !doc) -> (!tok, !state)
  return %o, %o1, %o2 : !tok, !tok, !tok
}

// -----

!tok = tensor<2x100x2x16xf32>
!gate = tensor<2x100x2xf32>
!state = tensor<2x2x48x16xf32>
!doc = tensor<2x100xi32>

// A chunk is a mini-batch: ceil(100 / 16) rows, one for documents, one because the first may begin inside a mini-batch. No op is
// left for every token, and states are kept for every mini-batch only. The gradient reads the forward's states (CSE).
// CHECK-LABEL: func.func @mini_batches
// CHECK-SAME: (%[[Q:.*]]: tensor<2x100x2x16xf32>, %[[R:.*]]: tensor<2x100x2xf32>, %[[M0:.*]]: tensor<2x2x48x16xf32>, %[[D:.*]]: tensor<2x100xi32>)
// CHECK: %[[C:.*]] = braid.lsm.chunk_table %[[D]] {aligned, chunk_size = 16 : i64} : (tensor<2x100xi32>) -> tensor<2x9x4xi32>
// CHECK: %[[S:.*]], %[[FINAL:.*]], %[[U:.*]] = braid.lsm.inner_states %[[Q]], %[[Q]] rate(%[[R]]) log_momentum(%[[R]]) initial_state(%[[M0]]) chunks(%[[C]]) {{.*}} -> (tensor<2x9x2x32x16xf32>, tensor<2x2x48x16xf32>, tensor<2x100x2x16xf32>)
// CHECK: %[[O:.*]] = braid.lsm.inner_output %[[Q]], %[[Q]] rate(%[[R]]) log_momentum(%[[R]]) residuals(%[[U]]) in_state(%[[S]]) chunks(%[[C]])
// CHECK: %[[C2:.*]] = braid.lsm.chunk_table
// CHECK: %[[S2:.*]], %{{.*}}, %[[U2:.*]] = braid.lsm.inner_states
// CHECK: braid.lsm.inner_grad {{.*}} residuals(%[[U2]]) initial_state(%[[M0]]) in_state(%[[S2]]) chunks(%[[C2]]) cotangents(%[[O]], %[[FINAL]])
// CHECK-NOT: braid.lsm.inner_step
// CSE-LABEL: func.func @mini_batches
// CSE-COUNT-1: braid.lsm.inner_states
// CSE-NOT: braid.lsm.inner_states
// CSE: return
func.func @mini_batches(%q: !tok, %r: !gate, %m: !state, %d: !doc) -> (!tok, !gate, !gate, !state) {
  %o, %f = braid.lsm.inner_step %q, %q, %q rate(%r) log_momentum(%r) initial_state(%m) documents(%d) {mini_batch = 16 : i64}
      : (!tok, !tok, !tok, !gate, !gate, !state, !doc) -> (!tok, !state)
  %g:6 = braid.lsm.inner_step_grad %q, %q, %q rate(%r) log_momentum(%r) initial_state(%m) documents(%d) cotangents(%o, %f) {mini_batch = 16 : i64}
      : (!tok, !tok, !tok, !gate, !gate, !state, !doc, !tok, !state) -> (!tok, !tok, !tok, !gate, !gate, !state)
  return %g#0, %g#3, %g#4, %g#5 : !tok, !gate, !gate, !state
}

// -----

// One token is the step of decoding: it stays.
// CHECK-LABEL: func.func @one_token
// CHECK: braid.lsm.inner_step
// CHECK-NOT: braid.lsm.chunk_table
func.func @one_token(%q: tensor<1x1x1x8xf32>, %r: tensor<1x1x1xf32>, %m: tensor<1x1x16x8xf32>, %d: tensor<1x1xi32>) -> tensor<1x1x1x8xf32> {
  %o, %f = braid.lsm.inner_step %q, %q, %q rate(%r) initial_state(%m) documents(%d) {mini_batch = 16 : i64}
      : (tensor<1x1x1x8xf32>, tensor<1x1x1x8xf32>, tensor<1x1x1x8xf32>, tensor<1x1x1xf32>, tensor<1x1x16x8xf32>, tensor<1x1xi32>) -> (tensor<1x1x1x8xf32>, tensor<1x1x16x8xf32>)
  return %o : tensor<1x1x1x8xf32>
}
