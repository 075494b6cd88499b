// RUN: braid-opt %s --braid-expand-updates --canonicalize | FileCheck %s

!q = tensor<2x10x3x4xf32>
!k = tensor<2x10x2x3x4xf32>
!v = tensor<2x10x2x3x5xf32>
!o = tensor<2x10x3x5xf32>
!g = tensor<2x10x2x3xf32>
!m = tensor<2x3x4x5xf32>
!d = tensor<2x10xi32>

// Keys, values and gates are places under another shape; every place has the query, the last of a token gives o.
// CHECK-LABEL: func.func @scan
// CHECK-SAME: (%[[Q:[^:]*]]: tensor<2x10x3x4xf32>, %[[K:[^:]*]]: tensor<2x10x2x3x4xf32>, %[[V:[^:]*]]: tensor<2x10x2x3x5xf32>, %[[G:[^:]*]]: tensor<2x10x2x3xf32>, %[[M:[^:]*]]: tensor<2x3x4x5xf32>, %[[D:[^:]*]]: tensor<2x10xi32>)
// CHECK: %[[Q1:.*]] = braid.reshape %[[Q]] : (tensor<2x10x3x4xf32>) -> tensor<2x10x1x3x4xf32>
// CHECK: %[[QQ:.*]] = braid.concat %[[Q1]], {{.*}} {dim = 2 : i64}
// CHECK: %[[Q2:.*]] = braid.reshape %[[QQ]] : (tensor<2x10x2x3x4xf32>) -> tensor<2x20x3x4xf32>
// CHECK-DAG: %[[K2:.*]] = braid.reshape %[[K]] : (tensor<2x10x2x3x4xf32>) -> tensor<2x20x3x4xf32>
// CHECK-DAG: %[[V2:.*]] = braid.reshape %[[V]] : (tensor<2x10x2x3x5xf32>) -> tensor<2x20x3x5xf32>
// CHECK-DAG: %[[G2:.*]] = braid.reshape %[[G]] : (tensor<2x10x2x3xf32>) -> tensor<2x20x3xf32>
// CHECK: %[[D1:.*]] = braid.scale_documents %[[D]] {count = 2 : i64}
// CHECK: %[[D2:.*]] = braid.reshape {{.*}} -> tensor<2x20xi32>
// CHECK: %[[O2:.*]], %[[N:.*]] = braid.lsm.scan S %[[Q2]], %[[K2]], %[[V2]] log_decay(%[[G2]]) initial_state(%[[M]]) documents(%[[D2]])
// CHECK: %[[O3:.*]] = braid.reshape %[[O2]] : (tensor<2x20x3x5xf32>) -> tensor<2x10x2x3x5xf32>
// CHECK: %[[O4:.*]] = braid.slice %[[O3]] {begin = 1 : i64, dim = 2 : i64}
// CHECK: %[[O:.*]] = braid.reshape %[[O4]] : (tensor<2x10x1x3x5xf32>) -> tensor<2x10x3x5xf32>
// CHECK: return %[[O]], %[[N]]
func.func @scan(%q: !q, %k: !k, %v: !v, %g: !g, %m: !m, %d: !d) -> (!o, !m) {
  %o, %n = braid.lsm.scan S %q, %k, %v log_decay(%g) initial_state(%m) documents(%d) {scale = 0.5 : f64} : (!q, !k, !v, !g, !m, !d) -> (!o, !m)
  return %o, %n : !o, !m
}

// Cotangents of all places but the last of a token are 0.
// CHECK-LABEL: func.func @gradient
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<2x10x3x5xf32>
// CHECK: braid.concat {{.*}} : (tensor<2x10x1x3x5xf32>, tensor<2x10x1x3x5xf32>) -> tensor<2x10x2x3x5xf32>
// CHECK: braid.lsm.scan_grad S {{.*}} -> (tensor<2x20x3x4xf32>, tensor<2x20x3x4xf32>, tensor<2x20x3x5xf32>, tensor<2x20x3xf32>, tensor<2x3x4x5xf32>)
func.func @gradient(%q: !q, %k: !k, %v: !v, %g: !g, %m: !m, %d: !d, %do: !o) -> (!q, !k, !v, !g, !m) {
  %dq, %dk, %dv, %dg, %dm = braid.lsm.scan_grad S %q, %k, %v log_decay(%g) initial_state(%m) documents(%d) cotangents(%do, %m) {scale = 0.5 : f64} : (!q, !k, !v, !g, !m, !d, !o, !m) -> (!q, !k, !v, !g, !m)
  return %dq, %dk, %dv, %dg, %dm : !q, !k, !v, !g, !m
}

// Of one token one scan after the other; only the first can begin a document.
// CHECK-LABEL: func.func @token
// CHECK: %[[D0:.*]] = braid.scale_documents %{{.*}} {count = 2 : i64}
// CHECK: %{{.*}}, %[[M1:.*]] = braid.lsm.scan I {{.*}} documents(%[[D0]])
// CHECK: %[[D1:.*]] = braid.scale_documents %{{.*}} {begin = 1 : i64, count = 2 : i64}
// CHECK: braid.lsm.scan I {{.*}} initial_state(%[[M1]]) documents(%[[D1]])
func.func @token(%q: tensor<2x1x3x4xf32>, %k: tensor<2x1x2x3x4xf32>, %v: tensor<2x1x2x3x5xf32>, %m: !m, %d: tensor<2x1xi32>) -> (tensor<2x1x3x5xf32>, !m) {
  %o, %n = braid.lsm.scan I %q, %k, %v initial_state(%m) documents(%d) {scale = 0.5 : f64} : (tensor<2x1x3x4xf32>, tensor<2x1x2x3x4xf32>, tensor<2x1x2x3x5xf32>, !m, tensor<2x1xi32>) -> (tensor<2x1x3x5xf32>, !m)
  return %o, %n : tensor<2x1x3x5xf32>, !m
}

// CHECK-LABEL: func.func @stack
// CHECK: braid.concat {{.*}} {dim = 2 : i64} : (tensor<2x10x1x3x4xf32>, tensor<2x10x1x3x4xf32>) -> tensor<2x10x2x3x4xf32>
// CHECK-NOT: braid.stack
// CHECK: braid.slice {{.*}} {begin = 1 : i64, dim = 2 : i64}
// CHECK-NOT: braid.pick
// CHECK: return
func.func @stack(%q: !q, %r: !q, %k: !k) -> (!k, !q) {
  %s = braid.stack %q, %r : (!q, !q) -> !k
  %p = braid.pick %k {index = 1 : i64} : (!k) -> !q
  return %s, %p : !k, !q
}
