// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// Causal attention: grouped heads, a window, a prefix of earlier keys, a cache. The printed form and the generic form parse
// back to the same.

!q = tensor<2x8x4x16xf32>
!kv = tensor<2x8x2x16xf32>
!long = tensor<2x12x2x16xf32>
!lse = tensor<2x4x8xf32>
!d = tensor<2x8xi32>

// CHECK-LABEL: func.func @causal(
func.func @causal(%q: !q, %k: !kv, %v: !kv, %documents: !d) {
  // CHECK: braid.attn.causal %arg0, %arg1, %arg2, %arg3 {scale = 2.500000e-01 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  %o, %lse = braid.attn.causal %q, %k, %v, %documents {scale = 0.25 : f64} : (!q, !kv, !kv, !d) -> (!q, !lse)
  // CHECK: braid.attn.causal_grad %arg0, %arg1, %arg2, %arg3, %o, %lse, %o {scale = 2.500000e-01 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8xi32>, tensor<2x8x4x16xf32>, tensor<2x4x8xf32>, tensor<2x8x4x16xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x2x16xf32>, tensor<2x8x2x16xf32>)
  %dq, %dk, %dv = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %o {scale = 0.25 : f64}
      : (!q, !kv, !kv, !d, !q, !lse, !q) -> (!q, !kv, !kv)
  return
}

// CHECK-LABEL: func.func @prefix(
func.func @prefix(%q: !q, %k: !long, %v: !long, %documents: !d) {
  // CHECK: braid.attn.causal %arg0, %arg1, %arg2, %arg3 {prefix = 4 : i64, scale = 2.500000e-01 : f64, window = 5 : i64} : (tensor<2x8x4x16xf32>, tensor<2x12x2x16xf32>, tensor<2x12x2x16xf32>, tensor<2x8xi32>) -> (tensor<2x8x4x16xf32>, tensor<2x4x8xf32>)
  %o, %lse = braid.attn.causal %q, %k, %v, %documents {prefix = 4 : i64, scale = 0.25 : f64, window = 5 : i64} : (!q, !long, !long, !d) -> (!q, !lse)
  // CHECK: braid.attn.causal_grad %arg0, %arg1, %arg2, %arg3, %o, %lse, %o {prefix = 4 : i64, scale = 2.500000e-01 : f64, window = 5 : i64} : (tensor<2x8x4x16xf32>, tensor<2x12x2x16xf32>, tensor<2x12x2x16xf32>, tensor<2x8xi32>, tensor<2x8x4x16xf32>, tensor<2x4x8xf32>, tensor<2x8x4x16xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x12x2x16xf32>, tensor<2x12x2x16xf32>)
  %dq, %dk, %dv = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %o {prefix = 4 : i64, scale = 0.25 : f64, window = 5 : i64}
      : (!q, !long, !long, !d, !q, !lse, !q) -> (!q, !long, !long)
  return
}

// Room for the whole row, of which a slice in the middle reads 12 tokens; cotangents of later ones are added to.
// CHECK-LABEL: func.func @room(
func.func @room(%q: !q, %k: tensor<2x20x2x16xf32>, %documents: !d, %place: tensor<1xi32>) {
  // CHECK: braid.attn.causal {{.*}}{keys = 12 : i64, prefix = 4 : i64, scale = 2.500000e-01 : f64} : (tensor<2x8x4x16xf32>, tensor<2x20x2x16xf32>
  %o, %lse = braid.attn.causal %q, %k, %k, %documents {keys = 12 : i64, prefix = 4 : i64, scale = 0.25 : f64}
      : (!q, tensor<2x20x2x16xf32>, tensor<2x20x2x16xf32>, !d) -> (!q, !lse)
  // CHECK: braid.attn.causal_grad %arg0, %arg1, %arg1, %arg2, %o, %lse, %o, %arg3 sums(%arg1, %arg1) {keys = 12 : i64, prefix = 4 : i64
  %dq, %dk, %dv = braid.attn.causal_grad %q, %k, %k, %documents, %o, %lse, %o, %place sums(%k, %k) {keys = 12 : i64, prefix = 4 : i64, scale = 0.25 : f64}
      : (!q, tensor<2x20x2x16xf32>, tensor<2x20x2x16xf32>, !d, !q, !lse, !q, tensor<1xi32>, tensor<2x20x2x16xf32>, tensor<2x20x2x16xf32>) -> (!q, tensor<2x20x2x16xf32>, tensor<2x20x2x16xf32>)
  return
}

// A cache holds as many rows as it likes.
// CHECK-LABEL: func.func @cache(
func.func @cache(%q: tensor<2x1x4x16xbf16>, %x: tensor<2x1x2x16xbf16>, %cache: tensor<2x64x2x16xbf16>, %documents: tensor<2x1xi32>) {
  // CHECK: braid.attn.append %arg2, %arg1, %arg3 : (tensor<2x64x2x16xbf16>, tensor<2x1x2x16xbf16>, tensor<2x1xi32>) -> tensor<2x64x2x16xbf16>
  %k = braid.attn.append %cache, %x, %documents : (tensor<2x64x2x16xbf16>, tensor<2x1x2x16xbf16>, tensor<2x1xi32>) -> tensor<2x64x2x16xbf16>
  // CHECK: braid.attn.causal %arg0, %{{.*}}, %{{.*}}, %arg3 {cache, scale = 2.500000e-01 : f64} : (tensor<2x1x4x16xbf16>, tensor<2x64x2x16xbf16>, tensor<2x64x2x16xbf16>, tensor<2x1xi32>) -> (tensor<2x1x4x16xbf16>, tensor<2x4x1xf32>)
  %o, %lse = braid.attn.causal %q, %k, %k, %documents {cache, scale = 0.25 : f64}
      : (tensor<2x1x4x16xbf16>, tensor<2x64x2x16xbf16>, tensor<2x64x2x16xbf16>, tensor<2x1xi32>) -> (tensor<2x1x4x16xbf16>, tensor<2x4x1xf32>)
  return
}

// A ring of 8 + 4 - 1 rows for a window of 8 and 4 tokens at once.
// CHECK-LABEL: func.func @ring(
func.func @ring(%q: tensor<2x4x4x16xf32>, %x: tensor<2x4x2x16xf32>, %cache: tensor<2x11x2x16xf32>, %documents: tensor<2x4xi32>) {
  // CHECK: braid.attn.append {{.*}}ring
  %k = "braid.attn.append"(%cache, %x, %documents) <{ring}> : (tensor<2x11x2x16xf32>, tensor<2x4x2x16xf32>, tensor<2x4xi32>) -> tensor<2x11x2x16xf32>
  // CHECK: braid.attn.causal {{.*}}ring
  %o, %lse = "braid.attn.causal"(%q, %k, %k, %documents) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>, cache, ring, scale = 0.25 : f64, window = 8 : i64}>
      : (tensor<2x4x4x16xf32>, tensor<2x11x2x16xf32>, tensor<2x11x2x16xf32>, tensor<2x4xi32>) -> (tensor<2x4x4x16xf32>, tensor<2x4x4xf32>)
  return
}

// Values of their own size, and features of keys that all heads share: their cotangents, and sums for those of keys.
// CHECK-LABEL: func.func @shared(
func.func @shared(%q: !q, %k: !kv, %v: tensor<2x8x2x24xf32>, %documents: !d, %place: tensor<1xi32>, %qs: tensor<2x8x4x8xf32>, %ks: tensor<2x8x1x8xf32>) {
  // CHECK: braid.attn.causal %arg0, %arg1, %arg2, %arg3, %arg4 shared(%arg5, %arg6) {scale = 2.500000e-01 : f64}
  %o, %lse = braid.attn.causal %q, %k, %v, %documents, %place shared(%qs, %ks) {scale = 0.25 : f64}
      : (!q, !kv, tensor<2x8x2x24xf32>, !d, tensor<1xi32>, tensor<2x8x4x8xf32>, tensor<2x8x1x8xf32>) -> (tensor<2x8x4x24xf32>, !lse)
  // CHECK: braid.attn.causal_grad %arg0, %arg1, %arg2, %arg3, %o, %lse, %o shared(%arg5, %arg6) sums(%arg1, %arg2, %arg6) {scale
  %d:5 = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %o shared(%qs, %ks) sums(%k, %v, %ks) {scale = 0.25 : f64}
      : (!q, !kv, tensor<2x8x2x24xf32>, !d, tensor<2x8x4x24xf32>, !lse, tensor<2x8x4x24xf32>, tensor<2x8x4x8xf32>, tensor<2x8x1x8xf32>, !kv, tensor<2x8x2x24xf32>, tensor<2x8x1x8xf32>)
      -> (!q, !kv, tensor<2x8x2x24xf32>, tensor<2x8x4x8xf32>, tensor<2x8x1x8xf32>)
  return
}

// A score more of every head, in a token's own words or generic ones, and its cotangent.
// CHECK-LABEL: func.func @sinks(
func.func @sinks(%q: !q, %k: !kv, %documents: !d, %place: tensor<1xi32>, %sinks: tensor<4xf32>) {
  // CHECK: braid.attn.causal %arg0, %arg1, %arg1, %arg2, %arg3 sinks(%arg4) {scale = 2.500000e-01 : f64}
  %o, %lse = braid.attn.causal %q, %k, %k, %documents, %place sinks(%sinks) {scale = 0.25 : f64} : (!q, !kv, !kv, !d, tensor<1xi32>, tensor<4xf32>) -> (!q, !lse)
  // CHECK: braid.attn.sink_grad %arg4, %o, %lse, %o : (tensor<4xf32>, tensor<2x8x4x16xf32>, tensor<2x4x8xf32>, tensor<2x8x4x16xf32>) -> tensor<4xbf16>
  %d = braid.attn.sink_grad %sinks, %o, %lse, %o : (tensor<4xf32>, !q, !lse, !q) -> tensor<4xbf16>
  return
}
