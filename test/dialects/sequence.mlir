// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// What ranks along sp exchange and compute: segments, their folds and compositions, attention over the keys of several ranks.
// B = 2, T = 40, H = 3, K = 8, V = 4; 4 ranks.

!k = tensor<2x40x3x8xf32>
!v = tensor<2x40x3x4xf32>
!g = tensor<2x40x3xf32>
!d = tensor<2x40xi32>
!x = tensor<1x2x3x8x4xf32>
!xs = tensor<4x2x3x8x4xf32>
!s = tensor<2x3x8x4xf32>
!one = tensor<1xi32>

// CHECK-LABEL: func.func @scalar(
func.func @scalar(%q: !k, %k: !k, %v: !v, %g: !g, %d: !d, %c: !one, %s: !s, %ps: tensor<4x2x3xf32>, %xs: !xs) {
  // CHECK: braid.lsm.segment I %arg1, %arg2 documents(%arg4) : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40xi32>) -> (tensor<1x2x3xf32>, tensor<1x2x3x8x4xf32>)
  %p0, %x0 = braid.lsm.segment I %k, %v documents(%d) : (!k, !v, !d) -> (tensor<1x2x3xf32>, !x)
  // CHECK: braid.lsm.segment S %arg1, %arg2 log_decay(%arg3) documents(%arg4) {chunk_size = 16 : i64}
  %p, %x = braid.lsm.segment S %k, %v log_decay(%g) documents(%d) {chunk_size = 16 : i64} : (!k, !v, !g, !d) -> (tensor<1x2x3xf32>, !x)
  // CHECK: braid.lsm.segment_grad S %arg0, %arg1, %arg2 log_decay(%arg3) documents(%arg4) cotangents(%arg2) {scale = 5.000000e-01 : f64}
  %dx = braid.lsm.segment_grad S %q, %k, %v log_decay(%g) documents(%d) cotangents(%v) {scale = 0.5 : f64} : (!k, !k, !v, !g, !d, !v) -> !x
  // CHECK: braid.lsm.fold %arg7, %arg8 carry(%arg6) coordinate(%arg5) : (tensor<4x2x3xf32>, tensor<4x2x3x8x4xf32>, tensor<2x3x8x4xf32>, tensor<1xi32>) -> (tensor<2x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %next = braid.lsm.fold %ps, %xs carry(%s) coordinate(%c) : (tensor<4x2x3xf32>, !xs, !s, !one) -> (!s, !s)
  // CHECK: braid.lsm.fold_grad %arg7, %arg8 carry(%arg6) coordinate(%arg5)
  %dm, %dc = braid.lsm.fold_grad %ps, %xs carry(%s) coordinate(%c) : (tensor<4x2x3xf32>, !xs, !s, !one) -> (!s, !s)
  return
}

// CHECK-LABEL: func.func @dense(
func.func @dense(%k: !k, %v: !v, %b: !g, %d: !d) {
  // CHECK: %[[P:.*]], %[[X:.*]] = braid.lsm.segment H %arg0, %arg1 beta(%arg2) documents(%arg3) {{.*}} -> (tensor<1x2x3x8x8xf32>, tensor<1x2x3x8x4xf32>)
  %p, %x = braid.lsm.segment H %k, %v beta(%b) documents(%d) : (!k, !v, !g, !d) -> (tensor<1x2x3x8x8xf32>, !x)
  // CHECK: braid.lsm.compose %[[P]], %[[X]] other(%[[X]]) : (tensor<1x2x3x8x8xf32>, tensor<1x2x3x8x4xf32>, tensor<1x2x3x8x4xf32>) -> tensor<1x2x3x8x4xf32>
  %m = braid.lsm.compose %p, %x other(%x) : (tensor<1x2x3x8x8xf32>, !x, !x) -> !x
  // CHECK: braid.lsm.compose %[[P]], %[[X]] other(%[[X]], %[[P]]) {adjoint} : {{.*}} -> (tensor<1x2x3x8x4xf32>, tensor<1x2x3x8x8xf32>)
  %y, %py = braid.lsm.compose %p, %x other(%x, %p) {adjoint} : (tensor<1x2x3x8x8xf32>, !x, !x, tensor<1x2x3x8x8xf32>) -> (!x, tensor<1x2x3x8x8xf32>)
  return
}

// CHECK-LABEL: func.func @attention(
func.func @attention(%q: !k, %ks: tensor<2x160x3x8xf32>, %cu: tensor<2x3xi32>, %c: !one) -> !k {
  // CHECK: %[[D:.*]] = braid.documents %arg2, %arg3 : (tensor<2x3xi32>, tensor<1xi32>) -> tensor<2x40xi32>
  %d = braid.documents %cu, %c : (tensor<2x3xi32>, !one) -> !d
  // Keys of 4 ranks: the place of the tokens among them is the coordinate's.
  // CHECK: braid.attn.causal %arg0, %arg1, %arg1, %[[D]], %arg3 {scale = 1.000000e+00 : f64}
  %o, %lse = braid.attn.causal %q, %ks, %ks, %d, %c {scale = 1.0 : f64} : (!k, tensor<2x160x3x8xf32>, tensor<2x160x3x8xf32>, !d, !one) -> (!k, tensor<2x3x40xf32>)
  // Keys of the second rank before this one.
  // CHECK: braid.attn.causal %arg0, %arg0, %arg0, %[[D]], %arg3 {prefix = 80 : i64, scale = 1.000000e+00 : f64}
  %ob, %lb = braid.attn.causal %q, %q, %q, %d, %c {scale = 1.0 : f64, prefix = 80 : i64} : (!k, !k, !k, !d, !one) -> (!k, tensor<2x3x40xf32>)
  // CHECK: braid.attn.merge %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : (tensor<2x40x3x8xf32>, tensor<2x3x40xf32>, tensor<2x40x3x8xf32>, tensor<2x3x40xf32>)
  %both, %lseBoth = braid.attn.merge %o, %lse, %ob, %lb : (!k, tensor<2x3x40xf32>, !k, tensor<2x3x40xf32>) -> (!k, tensor<2x3x40xf32>)
  return %both : !k
}

// Chunks of a row become its segment; the adjoint has no transition.
// CHECK-LABEL: func.func @of_chunks(
func.func @of_chunks(%x: tensor<2x4x3x8x4xf32>, %p: tensor<2x4x3x8xf32>, %c: tensor<2x4x4xi32>) -> (tensor<1x2x3x8xf32>, tensor<1x2x3x8x4xf32>, tensor<1x2x3x8x4xf32>) {
  // CHECK: braid.lsm.segment_scan V %arg0 transition(%arg1) chunks(%arg2) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<1x2x3x8xf32>, tensor<1x2x3x8x4xf32>)
  %0:2 = braid.lsm.segment_scan V %x transition(%p) chunks(%c) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<1x2x3x8xf32>, tensor<1x2x3x8x4xf32>)
  // CHECK: braid.lsm.segment_scan V %arg0 transition(%arg1) chunks(%arg2) {adjoint} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>, tensor<2x4x4xi32>) -> tensor<1x2x3x8x4xf32>
  %1 = braid.lsm.segment_scan V %x transition(%p) chunks(%c) {adjoint} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>, tensor<2x4x4xi32>) -> tensor<1x2x3x8x4xf32>
  return %0#0, %0#1, %1 : tensor<1x2x3x8xf32>, tensor<1x2x3x8x4xf32>, tensor<1x2x3x8x4xf32>
}
