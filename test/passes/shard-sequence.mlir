// RUN: braid-opt %s --braid-apply-sharding="mesh=sp=4" --split-input-file --verify-diagnostics | FileCheck %s
// Tokens of a row on four ranks: 16 of 64 each. What a scan needs from the tokens before travels by the algorithm that the module names.

!k = tensor<2x64x2x16xf32>
!v = tensor<2x64x2x8xf32>
!s = tensor<2x2x16x8xf32>
// CHECK-LABEL: func.func @ring(
// CHECK: %[[D:.*]] = braid.documents %{{.*}}, %{{.*}} : (tensor<2x4xi32>, tensor<1xi32>) -> tensor<2x16xi32>
// CHECK: %[[P:.*]], %[[X:.*]] = braid.lsm.segment V {{.*}} documents(%[[D]]) {{.*}} -> (tensor<1x2x2x16xf32>, tensor<1x2x2x16x8xf32>)
// CHECK: %[[M1:.*]] = braid.comm.shift %[[X]] {axis = "sp", label = "lsm.state"}
// CHECK: %[[B1:.*]] = braid.lsm.compose %[[P]], %[[X]] other(%[[M1]])
// CHECK: %[[M2:.*]] = braid.comm.shift %[[B1]]
// CHECK: %[[B2:.*]] = braid.lsm.compose %[[P]], %[[X]] other(%[[M2]])
// CHECK: %[[M3:.*]] = braid.comm.shift %[[B2]]
// CHECK-NOT: braid.comm
// CHECK: %[[M:.*]] = braid.reshape %[[M3]] : (tensor<1x2x2x16x8xf32>) -> tensor<2x2x16x8xf32>
// CHECK: braid.lsm.scan V {{.*}} initial_state(%[[M]]) documents(%[[D]])
module attributes {braid.sp_algorithm = "ring"} {
  func.func @ring(%q: !k {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %v: !v {braid.name = "v", braid.role = "input", braid.dims = ["batch", "sequence"]},
                  %cu: tensor<2x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!v {braid.name = "o"}) attributes {braid.entry} {
    %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x64xi32>
    %zero = arith.constant dense<0.0> : !s
    %o, %final = braid.lsm.scan V %q, %q, %v log_decay(%q) initial_state(%zero) documents(%d) {scale = 1.0 : f64} : (!k, !k, !v, !k, !s, tensor<2x64xi32>) -> (!v, !s)
    return %o : !v
  }
}

// -----

!k = tensor<2x64x2x16xf32>
!v = tensor<2x64x2x8xf32>
!s = tensor<2x2x16x8xf32>
// The gradient has an exchange of its own: states forwards and cotangents backwards, both at once.
// CHECK-LABEL: func.func @all_gather(
// CHECK: %[[P:.*]], %[[X:.*]] = braid.lsm.segment H
// CHECK: %[[DX:.*]] = braid.lsm.segment_grad H
// CHECK: %[[PS:.*]] = braid.comm.all_gather %[[P]] {axis = "sp", dim = 0 : i64, label = "lsm.transition"} : (tensor<1x2x2x16x16xf32>) -> tensor<4x2x2x16x16xf32>
// CHECK: %[[XS:.*]] = braid.comm.all_gather %[[X]] {axis = "sp", dim = 0 : i64, label = "lsm.state"}
// CHECK: %[[DXS:.*]] = braid.comm.all_gather %[[DX]] {axis = "sp", dim = 0 : i64, label = "lsm.cotangent"}
// CHECK: %[[M:.*]], %{{.*}} = braid.lsm.fold %[[PS]], %[[XS]]
// CHECK: %[[DM:.*]], %{{.*}} = braid.lsm.fold_grad %[[PS]], %[[DXS]]
// CHECK: braid.lsm.scan_grad H {{.*}} initial_state(%[[M]]) {{.*}} cotangents(%{{.*}}, %[[DM]])
module attributes {braid.sp_algorithm = "all_gather"} {
  func.func @all_gather(%q: !k {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %v: !v {braid.name = "v", braid.role = "input", braid.dims = ["batch", "sequence"]},
                        %b: tensor<2x64x2xf32> {braid.name = "beta", braid.role = "input", braid.dims = ["batch", "sequence"]},
                        %cu: tensor<2x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!k {braid.name = "dq"}) attributes {braid.entry} {
    %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x64xi32>
    %zero = arith.constant dense<0.0> : !s
    %r:5 = braid.lsm.scan_grad H %q, %q, %v beta(%b) initial_state(%zero) documents(%d) cotangents(%v, %zero) {scale = 1.0 : f64}
        : (!k, !k, !v, tensor<2x64x2xf32>, !s, tensor<2x64xi32>, !v, !s) -> (!k, !k, !v, tensor<2x64x2xf32>, !s)
    return %r#0 : !k
  }
}

// -----

!k = tensor<2x64x2x16xf32>
!v = tensor<2x64x2x8xf32>
!s = tensor<2x2x16x8xf32>
// Neighbours at distance 1, then 1 and 2: the last composition needs no transition.
// CHECK-LABEL: func.func @scan(
// CHECK: %[[P:.*]], %[[X:.*]] = braid.lsm.segment I
// CHECK: %[[X1:.*]] = braid.comm.shift %[[X]] {axis = "sp", label = "lsm.state"}
// CHECK: %[[P1:.*]] = braid.comm.shift %[[P]] {axis = "sp", label = "lsm.transition"}
// CHECK: %[[XO:.*]] = braid.comm.shift %[[X1]] {axis = "sp", label = "lsm.state"}
// CHECK: %[[PO:.*]] = braid.comm.shift %[[P1]] {axis = "sp", label = "lsm.transition"}
// CHECK: %[[X2:.*]], %[[P2:.*]] = braid.lsm.compose %[[P1]], %[[X1]] other(%[[XO]], %[[PO]])
// CHECK: %[[XO2:.*]] = braid.comm.shift %[[X2]] {axis = "sp", distance = 2 : i64, label = "lsm.state"}
// CHECK: %[[X3:.*]] = braid.lsm.compose %[[P2]], %[[X2]] other(%[[XO2]])
// CHECK-NOT: braid.comm
// CHECK: %[[M:.*]] = braid.reshape %[[X3]]
// CHECK: braid.lsm.scan I {{.*}} initial_state(%[[M]])
// Somebody reads what is behind the last token: every rank folds all segments.
// CHECK-LABEL: func.func @continued(
// CHECK: braid.comm.all_gather
// CHECK: braid.comm.all_gather
// CHECK: %[[INITIAL:.*]], %[[NEXT:.*]] = braid.lsm.fold {{.*}} carry(%arg2)
// CHECK: %[[O:.*]], %{{.*}} = braid.lsm.scan I {{.*}} initial_state(%[[INITIAL]])
// CHECK: return %[[O]], %[[NEXT]]
module attributes {braid.sp_algorithm = "scan"} {
  func.func @scan(%q: !k {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %v: !v {braid.name = "v", braid.role = "input", braid.dims = ["batch", "sequence"]},
                  %cu: tensor<2x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!v {braid.name = "o"}) attributes {braid.entry} {
    %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x64xi32>
    %zero = arith.constant dense<0.0> : !s
    %o, %final = braid.lsm.scan I %q, %q, %v initial_state(%zero) documents(%d) {scale = 1.0 : f64} : (!k, !k, !v, !s, tensor<2x64xi32>) -> (!v, !s)
    return %o : !v
  }
  func.func @continued(%q: !k {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %v: !v {braid.name = "v", braid.role = "input", braid.dims = ["batch", "sequence"]},
                       %state: !s {braid.name = "state", braid.role = "input", braid.dims = ["batch"]},
                       %cu: tensor<2x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!v {braid.name = "o"}, !s {braid.name = "final"}) attributes {braid.entry} {
    %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x64xi32>
    %o, %final = braid.lsm.scan I %q, %q, %v initial_state(%state) documents(%d) {scale = 1.0 : f64} : (!k, !k, !v, !s, tensor<2x64xi32>) -> (!v, !s)
    return %o, %final : !v, !s
  }
}

// -----

!q = tensor<2x64x4x8xf32>
!k = tensor<2x64x2x8xf32>
!l = tensor<2x4x64xf32>
// Without an algorithm: keys and values of all ranks; of a window only the ranks that it reaches.
// CHECK-LABEL: func.func @attention(
// CHECK: %[[K:.*]] = braid.comm.all_gather %arg1 {axis = "sp", dim = 1 : i64, label = "attn.k"} : (tensor<2x16x2x8xf32>) -> tensor<2x64x2x8xf32>
// CHECK: %[[V:.*]] = braid.comm.all_gather %arg1 {axis = "sp", dim = 1 : i64, label = "attn.v"}
// CHECK: braid.attn.causal %arg0, %[[K]], %[[V]], %{{.*}}, %[[PLACE:.*]] {scale = 1.000000e+00 : f64}
// CHECK: %[[NEAR:.*]] = braid.comm.shift %arg1 {axis = "sp", label = "attn.k"}
// CHECK: %[[NEARBY:.*]] = braid.concat %[[NEAR]], %arg1 {dim = 1 : i64} : {{.*}} -> tensor<2x32x2x8xf32>
// CHECK: braid.attn.causal %{{.*}}, %[[NEARBY]], %{{.*}}, %{{.*}} {prefix = 16 : i64, scale = 1.000000e+00 : f64, window = 9 : i64}
// CHECK: %{{.*}}, %[[DK:.*]], %[[DV:.*]] = braid.attn.causal_grad %arg0, %{{.*}}, %[[PLACE]]
// CHECK: %[[OWN:.*]] = braid.comm.reduce_scatter %[[DK]] {axis = "sp", dim = 1 : i64, label = "attn.dk"} : (tensor<2x64x2x8xf32>) -> tensor<2x16x2x8xf32>
// CHECK: return %{{.*}}, %[[OWN]]
func.func @attention(%q: !q {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %k: !k {braid.name = "k", braid.role = "input", braid.dims = ["batch", "sequence"]},
                     %cu: tensor<2x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!q {braid.name = "o"}, !k {braid.name = "dk"}) attributes {braid.entry} {
  %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x64xi32>
  %o, %lse = braid.attn.causal %q, %k, %k, %d {scale = 1.0 : f64} : (!q, !k, !k, tensor<2x64xi32>) -> (!q, !l)
  %o2, %lse2 = braid.attn.causal %o, %k, %k, %d {scale = 1.0 : f64, window = 9 : i64} : (!q, !k, !k, tensor<2x64xi32>) -> (!q, !l)
  %r:3 = braid.attn.causal_grad %q, %k, %k, %d, %o, %lse, %o2 {scale = 1.0 : f64} : (!q, !k, !k, tensor<2x64xi32>, !q, !l, !q) -> (!q, !k, !k)
  return %o2, %r#1 : !q, !k
}

// -----

// Gradient steps through a norm: all ranks walk, hand on what they have, and walk again from what they got.
!k = tensor<2x64x2x16xf32>
!g = tensor<2x64x2xf32>
!n = tensor<2x16xf32>
!s = tensor<2x2x32x16xf32>
// CHECK-LABEL: func.func @inner(
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<2x2x32x16xf32>
// CHECK: %{{.*}}, %[[F1:.*]] = braid.lsm.inner_step {{.*}} initial_state(%[[ZERO]]) {{.*}} (tensor<2x16x2x16xf32>
// CHECK: %[[M1:.*]] = braid.comm.shift %[[F1]] {axis = "sp", label = "lsm.state"}
// CHECK: %{{.*}}, %[[F2:.*]] = braid.lsm.inner_step {{.*}} initial_state(%[[M1]])
// CHECK: %[[M2:.*]] = braid.comm.shift %[[F2]]
// CHECK: %{{.*}}, %[[F3:.*]] = braid.lsm.inner_step {{.*}} initial_state(%[[M2]])
// CHECK: %[[M3:.*]] = braid.comm.shift %[[F3]]
// CHECK-NOT: braid.comm
// CHECK: braid.lsm.inner_step {{.*}} initial_state(%[[M3]])
// What comes from outside enters the first rank; what is read behind the row is the last rank's. Adjoint: the other way round.
// CHECK: %[[ALL:.*]] = braid.concat %[[IN:.*]], %{{.*}} {dim = 0 : i64} : {{.*}} -> tensor<8x2x32x16xf32>
// CHECK: %[[EDGE:.*]] = braid.shard %[[ALL]], %{{.*}} {count = 4 : i64, dim = 0 : i64}
// CHECK: braid.lsm.inner_step {{.*}} initial_state(%[[EDGE]])
// CHECK: %[[GOT:.*]] = braid.comm.shift
// CHECK: braid.add %[[GOT]], %[[EDGE]]
// CHECK: %[[LAST:.*]] = braid.comm.all_gather {{.*}} {axis = "sp", dim = 0 : i64, label = "lsm.state"}
// CHECK: braid.slice %[[LAST]] {begin = 6 : i64, dim = 0 : i64}
func.func @inner(%q: !k {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %r: !g {braid.name = "r", braid.role = "input", braid.dims = ["batch", "sequence"]},
                 %w: !n {braid.name = "w", braid.role = "input"}, %m: !s {braid.name = "m", braid.role = "input", braid.dims = ["batch"]}, %cu: tensor<2x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!k {braid.name = "o"}, !s {braid.name = "final"}) attributes {braid.entry} {
  %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x64xi32>
  %zero = arith.constant dense<0.0> : !s
  %o, %final = braid.lsm.inner_step %q, %q, %q rate(%r) norm(%w, %w) initial_state(%zero) documents(%d) {mini_batch = 16 : i64} : (!k, !k, !k, !g, !n, !n, !s, tensor<2x64xi32>) -> (!k, !s)
  %o2, %final2 = braid.lsm.inner_step %o, %q, %q rate(%r) norm(%w, %w) initial_state(%m) documents(%d) {mini_batch = 16 : i64} : (!k, !k, !k, !g, !n, !n, !s, tensor<2x64xi32>) -> (!k, !s)
  return %o2, %final2 : !k, !s
}

// -----

// Without a norm they compose: P from the columns of I, with nothing to learn.
!k = tensor<2x64x2x16xf32>
!g = tensor<2x64x2xf32>
!s = tensor<2x2x48x16xf32>
// CHECK-LABEL: func.func @composed(
// CHECK: %[[I:.*]], %{{.*}} = braid.lsm.segment H {{.*}} beta({{.*}} -> (tensor<1x2x2x48x48xf32>
// CHECK: %[[ONE:.*]] = braid.reshape %[[I]] : (tensor<1x2x2x48x48xf32>) -> tensor<2x2x48x48xf32>
// CHECK: %{{.*}}, %[[P:.*]] = braid.lsm.inner_step {{.*}} initial_state(%[[ONE]]) {{.*}} -> (tensor<2x16x2x48xf32>, tensor<2x2x48x48xf32>)
// CHECK: %{{.*}}, %[[X:.*]] = braid.lsm.inner_step {{.*}} -> (tensor<2x16x2x16xf32>, tensor<2x2x48x16xf32>)
// CHECK: braid.comm.all_gather {{.*}} label = "lsm.transition"} {{.*}} -> tensor<4x2x2x48x48xf32>
// CHECK: braid.comm.all_gather {{.*}} label = "lsm.state"}
// CHECK: %[[M:.*]], %{{.*}} = braid.lsm.fold
// CHECK: braid.lsm.inner_step {{.*}} initial_state(%[[M]])
module attributes {braid.sp_algorithm = "all_gather"} {
  func.func @composed(%q: !k {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %r: !g {braid.name = "r", braid.role = "input", braid.dims = ["batch", "sequence"]},
                      %cu: tensor<2x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!k {braid.name = "o"}) attributes {braid.entry} {
    %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x64xi32>
    %zero = arith.constant dense<0.0> : !s
    %o, %final = braid.lsm.inner_step %q, %q, %q rate(%r) log_momentum(%r) initial_state(%zero) documents(%d) {mini_batch = 16 : i64} : (!k, !k, !k, !g, !g, !s, tensor<2x64xi32>) -> (!k, !s)
    return %o : !k
  }
}

// -----

!k = tensor<2x64x2x16xf32>
!g = tensor<2x64x2xf32>
!n = tensor<2x16xf32>
!s = tensor<2x2x32x16xf32>
module attributes {braid.sp_algorithm = "scan"} {
  func.func @norm(%q: !k {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %r: !g {braid.name = "r", braid.role = "input", braid.dims = ["batch", "sequence"]},
                  %w: !n {braid.name = "w", braid.role = "input"}, %cu: tensor<2x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!k {braid.name = "o"}) attributes {braid.entry} {
    %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x64xi32>
    %zero = arith.constant dense<0.0> : !s
    // expected-error @+1 {{is of class N, whose spans of tokens do not compose (through the norm a step is not affine in the state), but --sp-algorithm is scan; valid: --sp-algorithm=ring, or auto}}
    %o, %final = braid.lsm.inner_step %q, %q, %q rate(%r) norm(%w, %w) initial_state(%zero) documents(%d) {mini_batch = 16 : i64} : (!k, !k, !k, !g, !n, !n, !s, tensor<2x64xi32>) -> (!k, !s)
    return %o : !k
  }
}

// -----

!k = tensor<2x64x2x16xf32>
!v = tensor<2x64x2x8xf32>
!s = tensor<2x2x16x8xf32>
// A scan that is computed again in front of its gradient: the states of its forward travel once. Another scan's travel, too.
// CHECK-LABEL: func.func @again(
// CHECK: %[[M1:.*]] = braid.comm.shift {{.*}}label = "lsm.state"
// CHECK: %[[M2:.*]] = braid.comm.shift {{.*}}label = "lsm.state"
// CHECK: %[[M3:.*]] = braid.comm.shift {{.*}}label = "lsm.state"
// CHECK: %[[M:.*]] = braid.reshape %[[M3]]
// CHECK: braid.lsm.scan V %arg0, %arg0, %arg1 {{.*}} initial_state(%[[M]])
// CHECK-NOT: braid.comm
// CHECK: %[[AGAIN:.*]] = braid.reshape %[[M3]]
// CHECK-NOT: label = "lsm.state"
// CHECK-COUNT-3: label = "lsm.cotangent"
// CHECK-NOT: braid.comm
// CHECK: braid.lsm.scan_grad V %arg0, %arg0, %arg1 {{.*}} initial_state(%[[AGAIN]])
// CHECK-COUNT-3: label = "lsm.state"
// CHECK: braid.lsm.scan V %arg0, %arg0, %arg0
module attributes {braid.sp_algorithm = "ring"} {
  func.func @again(%q: !k {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %v: !v {braid.name = "v", braid.role = "input", braid.dims = ["batch", "sequence"]},
                   %cu: tensor<2x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!v {braid.name = "o"}, !k {braid.name = "dq"}, !k {braid.name = "p"}) attributes {braid.entry} {
    %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x64xi32>
    %zero = arith.constant dense<0.0> : !s
    %o, %final = braid.lsm.scan V %q, %q, %v log_decay(%q) initial_state(%zero) documents(%d) {scale = 1.0 : f64} : (!k, !k, !v, !k, !s, tensor<2x64xi32>) -> (!v, !s)
    %r:5 = braid.lsm.scan_grad V %q, %q, %v log_decay(%q) initial_state(%zero) documents(%d) cotangents(%v, %zero) {scale = 1.0 : f64}
        : (!k, !k, !v, !k, !s, tensor<2x64xi32>, !v, !s) -> (!k, !k, !v, !k, !s)
    %wide = arith.constant dense<0.0> : tensor<2x2x16x16xf32>
    %p, %last = braid.lsm.scan V %q, %q, %q log_decay(%q) initial_state(%wide) documents(%d) {scale = 1.0 : f64} : (!k, !k, !k, !k, tensor<2x2x16x16xf32>, tensor<2x64xi32>) -> (!k, tensor<2x2x16x16xf32>)
    return %o, %r#0, %p : !v, !k, !k
  }
}

// -----

!k = tensor<2x64x2x16xf32>
!v = tensor<2x64x2x8xf32>
!s = tensor<2x2x16x8xf32>
// What gates prove of the decays of a row holds for the tokens of a rank: segments, their gradients and scans carry it.
// CHECK-LABEL: func.func @bounded(
// CHECK: braid.lsm.segment V {{.*}}braid.least_log_decay = -5.000000e-01
// CHECK: braid.lsm.segment_grad V {{.*}}braid.least_log_decay = -5.000000e-01
// CHECK: braid.lsm.scan_grad V {{.*}}braid.least_log_decay = -5.000000e-01
// What R makes of ones and of zeros, too.
// CHECK: braid.lsm.scan R {{.*}}braid.least_log_decay = -2.500000e-01
// CHECK: braid.lsm.scan R {{.*}}braid.least_log_decay = -2.500000e-01
// CHECK: braid.lsm.scan R {{.*}}braid.least_log_decay = -2.500000e-01
module attributes {braid.sp_algorithm = "all_gather"} {
  func.func @bounded(%q: !k {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %v: !v {braid.name = "v", braid.role = "input", braid.dims = ["batch", "sequence"]},
                     %cu: tensor<2x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!k {braid.name = "dq"}, !v {braid.name = "o"}) attributes {braid.entry} {
    %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x64xi32>
    %zero = arith.constant dense<0.0> : !s
    %r:5 = braid.lsm.scan_grad V %q, %q, %v log_decay(%q) initial_state(%zero) documents(%d) cotangents(%v, %zero) {braid.least_log_decay = -5.0e-01 : f64, scale = 1.0 : f64}
        : (!k, !k, !v, !k, !s, tensor<2x64xi32>, !v, !s) -> (!k, !k, !v, !k, !s)
    %o, %final = braid.lsm.scan R %q, %q, %v log_decay(%q) value_decay(%v) initial_state(%zero) documents(%d) {braid.least_log_decay = -2.5e-01 : f64, scale = 1.0 : f64}
        : (!k, !k, !v, !k, !v, !s, tensor<2x64xi32>) -> (!v, !s)
    return %r#0, %o : !k, !v
  }
}
