// RUN: braid-opt %s --braid-fuse-rows=gpu | FileCheck %s --check-prefix=FUSE
// RUN: braid-opt %s --braid-fuse-rows=gpu --braid-outline=gpu | FileCheck %s
// RUN: braid-opt %s --braid-fuse-rows --braid-outline | FileCheck %s --check-prefix=CPU

!x = tensor<2x1024x4x32xbf16>
!w = tensor<128x4xf32>
!b = tensor<4x32xf32>
!d = tensor<2x1024xi32>
!t = tensor<2x3x128xbf16>

// What alone reads a convolution stands beside it, and has its number; a product between them ends that.
// FUSE-LABEL: func.func @forward(
// FUSE: braid.short_conv {{.*}}{braid.cluster = [[C:[0-9]+]] : i64}
// FUSE-NEXT: braid.bias {{.*}}{braid.cluster = [[C]] : i64}
// FUSE-NEXT: braid.activation {{.*}}{braid.cluster = [[C]] : i64, kind = "silu"}
// FUSE-NOT: braid.cluster = [[C]] :
// FUSE: braid.mul
// It is made of the sum before that is stored: of few tokens too.
// CHECK-LABEL: func.func @forward(
// CHECK: %[[Y:.*]]:2 = tile.launch @short_conv_walk_d128_k4_bf16_wf32_bias_activation_{{[0-9a-f]+}} grid
// CHECK-NEXT: %[[Q:.*]] = braid.reshape %[[Y]]#0
// CHECK-NOT: tile.launch @rows_bias
// CHECK: tile.launch @rows_mul
// CPU-LABEL: func.func @forward(
// CPU: tile.launch @short_conv_d128_k4_bf16_wf32 grid
// CPU: tile.launch @rows_bias_activation_mul
func.func @forward(%x: !x, %w: !w, %b: !b, %documents: !d, %tail: !t, %gate: !x) -> (!x, !t) {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (!x, !w, !d, !t) -> (!x, !t)
  %z = braid.bias %y, %b : (!x, !b) -> !x
  %q = braid.activation %z {kind = "silu"} : (!x) -> !x
  %p = braid.mul %q, %gate : (!x, !x) -> !x
  %r = braid.mul %p, %q : (!x, !x) -> !x
  return %r, %new : !x, !t
}

// What is read elsewhere, too, is stored, so the kernel has no end.
// FUSE-LABEL: func.func @kept(
// FUSE: braid.short_conv %{{[^{]*}} :
// CHECK-LABEL: func.func @kept(
// CHECK: tile.launch @short_conv_walk_d128_k4_bf16_wf32 grid
// CHECK: tile.launch @rows_activation
func.func @kept(%x: !x, %w: !w, %documents: !d, %tail: !t) -> (!x, !x) {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (!x, !w, !d, !t) -> (!x, !t)
  %q = braid.activation %y {kind = "silu"} : (!x) -> !x
  return %y, %q : !x, !x
}

// A gradient makes the convolution again, what alone reads it, and their gradients: all of them are beside it. That of the bias is a sum of the same kernel.
// FUSE-LABEL: func.func @backward(
// FUSE: braid.bias {{.*}}{braid.cluster = [[C:[0-9]+]] : i64}
// FUSE-NEXT: braid.rows_grad "braid.activation"{{.*}}{braid.cluster = [[C]] : i64
// FUSE-NEXT: braid.rows_grad "braid.bias"{{.*}}{braid.cluster = [[C]] : i64
// FUSE-NEXT: braid.short_conv_grad {{.*}}{braid.cluster = [[C]] : i64}
// CHECK-LABEL: func.func @backward(
// CHECK-NOT: tile.launch @short_conv_walk
// CHECK-NOT: tile.launch @rows_
// CHECK: tile.launch @short_conv_grad_d128_k4_bf16_wf32_bias_activation_grad_{{[0-9a-f]+}}_sum grid [1, 2, 65]{{.*}} -> (tensor<2x1024x128xbf16>, tensor<2x3x128xbf16>, tensor<65x2x128x4xf32>, tensor<65x2x128xf32>)
// CHECK: tile.launch @sum_rows_f32_32x32
// CHECK: tile.launch @sum_rows_f32_32x32
// CHECK-NOT: tile.launch
// CHECK: return
// CPU-LABEL: func.func @backward(
// CPU: tile.launch @short_conv_d128_k4_bf16_wf32 grid
// CPU: tile.launch @rows_bias_activation_grad_bias_grad
// CPU: tile.launch @short_conv_grad_d128_k4_bf16_wf32 grid
func.func @backward(%x: !x, %w: !w, %b: !b, %documents: !d, %tail: !t, %dq: !x, %dtail: !t) -> (!x, !w, !t, !b) {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (!x, !w, !d, !t) -> (!x, !t)
  %z = braid.bias %y, %b : (!x, !b) -> !x
  %dz = braid.rows_grad "braid.activation"(%z) cotangents(%dq) {op_attributes = {kind = "silu"}, wanted = array<i64: 0>} : (!x, !x) -> !x
  %db = braid.rows_grad "braid.bias"(%y, %b) cotangents(%dz) {op_attributes = {}, wanted = array<i64: 1>} : (!x, !b, !x) -> !b
  %dx, %dw, %dt = braid.short_conv_grad %x, %w, %documents, %tail, %dz, %dtail : (!x, !w, !d, !t, !x, !t) -> (!x, !w, !t)
  return %dx, %dw, %dt, %db : !x, !w, !t, !b
}

// A cotangent that others read stays in memory.
// FUSE-LABEL: func.func @read(
// FUSE: braid.short_conv_grad %{{[^{]*}} :
// CHECK-LABEL: func.func @read(
// CHECK: tile.launch @short_conv_walk_d128_k4_bf16_wf32
// CHECK: tile.launch @short_conv_grad_d128_k4_bf16_wf32 grid
func.func @read(%x: !x, %w: !w, %documents: !d, %tail: !t, %dq: !x, %dtail: !t) -> (!x, !w, !t, !x) {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (!x, !w, !d, !t) -> (!x, !t)
  %dz = braid.rows_grad "braid.activation"(%y) cotangents(%dq) {op_attributes = {kind = "silu"}, wanted = array<i64: 0>} : (!x, !x) -> !x
  %dx, %dw, %dt = braid.short_conv_grad %x, %w, %documents, %tail, %dz, %dtail : (!x, !w, !d, !t, !x, !t) -> (!x, !w, !t)
  return %dx, %dw, %dt, %dz : !x, !w, !t, !x
}

// So does a norm over the channels of a head, where these are the lanes of a warp, and its gradient: of 512 channels a lane has 4.
!y = tensor<2x1024x4x128xbf16>
!u = tensor<512x4xf32>
!s = tensor<2x3x512xbf16>
// FUSE-LABEL: func.func @normed(
// FUSE: braid.short_conv {{.*}}{braid.cluster = [[C:[0-9]+]] : i64}
// FUSE-NEXT: braid.activation {{.*}}{braid.cluster = [[C]] : i64
// FUSE-NEXT: braid.l2_norm {{.*}}{braid.cluster = [[C]] : i64
// CHECK-LABEL: func.func @normed(
// CHECK: tile.launch @short_conv_walk_d512_k4_bf16_wf32_activation_l2_norm_{{[0-9a-f]+}} grid
// CHECK-NOT: tile.launch
// CHECK: return
// CPU-LABEL: func.func @normed(
// CPU: tile.launch @short_conv_d512_k4_bf16_wf32 grid
// CPU: tile.launch @rows_activation_l2_norm
func.func @normed(%x: !y, %w: !u, %documents: !d, %tail: !s) -> (!y, !s) {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (!y, !u, !d, !s) -> (!y, !s)
  %q = braid.activation %y {kind = "silu"} : (!y) -> !y
  %n = braid.l2_norm %q {eps = 1.0e-6 : f64} : (!y) -> !y
  return %n, %new : !y, !s
}
// FUSE-LABEL: func.func @normed_backward(
// FUSE: braid.activation {{.*}}{braid.cluster = [[C:[0-9]+]] : i64
// FUSE-NEXT: braid.rows_grad "braid.l2_norm"{{.*}}{braid.cluster = [[C]] : i64
// FUSE-NEXT: braid.rows_grad "braid.activation"{{.*}}{braid.cluster = [[C]] : i64
// FUSE-NEXT: braid.short_conv_grad {{.*}}{braid.cluster = [[C]] : i64}
// CHECK-LABEL: func.func @normed_backward(
// CHECK-NOT: tile.launch @rows_
// CHECK: tile.launch @short_conv_grad_d512_k4_bf16_wf32_activation_l2_norm_grad_activation_grad_{{[0-9a-f]+}} grid
// CHECK-NOT: tile.launch @rows_
// CHECK: return
func.func @normed_backward(%x: !y, %w: !u, %documents: !d, %tail: !s, %dn: !y, %dtail: !s) -> (!y, !u, !s) {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (!y, !u, !d, !s) -> (!y, !s)
  %q = braid.activation %y {kind = "silu"} : (!y) -> !y
  %dq = braid.rows_grad "braid.l2_norm"(%q) cotangents(%dn) {op_attributes = {eps = 1.0e-6 : f64}, wanted = array<i64: 0>} : (!y, !y) -> !y
  %dy = braid.rows_grad "braid.activation"(%y) cotangents(%dq) {op_attributes = {kind = "silu"}, wanted = array<i64: 0>} : (!y, !y) -> !y
  %dx, %dw, %dt = braid.short_conv_grad %x, %w, %documents, %tail, %dy, %dtail : (!y, !u, !d, !s, !y, !s) -> (!y, !u, !s)
  return %dx, %dw, %dt : !y, !u, !s
}
// Of 256 channels a lane has 2: 128 are those of two warps. The norm stands alone, the activation does not.
!z = tensor<2x1024x2x128xbf16>
!o = tensor<256x4xf32>
!e = tensor<2x3x256xbf16>
// CHECK-LABEL: func.func @two_warps(
// CHECK: tile.launch @short_conv_walk_d256_k4_bf16_wf32_activation_{{[0-9a-f]+}} grid
// CHECK: tile.launch @rows_l2_norm_l2_norm_grad
// CHECK: tile.launch @short_conv_grad_d256_k4_bf16_wf32_activation_grad_{{[0-9a-f]+}} grid
func.func @two_warps(%x: !z, %w: !o, %documents: !d, %tail: !e, %dn: !z, %dtail: !e) -> (!z, !z, !o, !e) {
  %y, %new = braid.short_conv %x, %w, %documents, %tail : (!z, !o, !d, !e) -> (!z, !e)
  %q = braid.activation %y {kind = "silu"} : (!z) -> !z
  %n = braid.l2_norm %q {eps = 1.0e-6 : f64} : (!z) -> !z
  %dq = braid.rows_grad "braid.l2_norm"(%q) cotangents(%dn) {op_attributes = {eps = 1.0e-6 : f64}, wanted = array<i64: 0>} : (!z, !z) -> !z
  %dy = braid.rows_grad "braid.activation"(%y) cotangents(%dq) {op_attributes = {kind = "silu"}, wanted = array<i64: 0>} : (!z, !z) -> !z
  %dx, %dw, %dt = braid.short_conv_grad %x, %w, %documents, %tail, %dy, %dtail : (!z, !o, !d, !e, !z, !e) -> (!z, !o, !e)
  return %n, %dx, %dw, %dt : !z, !z, !o, !e
}

// Two wide sums over rows would be too many registers of a GPU's threads.
!r = tensor<2x8x1024xbf16>
!v = tensor<1024xf32>
// FUSE-LABEL: func.func @sums(
// FUSE-NOT: braid.cluster
// FUSE: return
// CHECK-LABEL: func.func @sums(
// In the walk: inputs of the tokens before, cotangents, sums of taps and of the bias.
// CHECK-LABEL: func.func @short_conv_grad_d128_k4_bf16_wf32_bias_activation_grad_
// CHECK: scf.for {{.*}} -> (vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>)
// CHECK: scf.for {{.*}} -> (vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>, vector<1x128xf32>)
// Where heads are added up the tile of a token is seen as heads.
// CHECK-LABEL: func.func @short_conv_walk_d512_k4_bf16_wf32_activation_l2_norm_
// CHECK: scf.for {{.*}} -> (vector<1x512xf32>, vector<1x512xf32>, vector<1x512xf32>)
// CHECK: vector.shape_cast {{.*}} : vector<1x512xbf16> to vector<1x4x128xbf16>
// CHECK: tile.reduce {{.*}}vector<1x4x128xf32>
// The tail is walked along as tokens are: each of its rows meets one cotangent more than the one before. No tile has several of its rows.
// CHECK-LABEL: func.func @short_conv_grad_d512_k4_bf16_wf32_activation_l2_norm_grad_activation_grad_
// CHECK-NOT: vector<3x512x
// CHECK: scf.if
// CHECK: scf.for {{.*}} = %c0 to %c3 step %c1 iter_args({{.*}} -> ({{(vector<1x512xf32>, ){9} *}}vector<1x512xf32>) {
// CHECK: tile.store {{.*}} : vector<1x512xbf16>, memref<?x3x512xbf16>
// CHECK: } {tile.mean_walk = 3 : i64}
// CHECK-NOT: vector<3x512x
// CHECK: func.func
func.func @sums(%x: !r, %y: !r, %w: !v, %v: !v, %d: !r) -> (!r, !v, !r, !v) {
  %a:2 = braid.rows_grad "braid.rms_norm"(%x, %w) cotangents(%d) {op_attributes = {eps = 1.0e-6 : f64, groups = 1 : i64}, wanted = array<i64: 0, 1>} : (!r, !v, !r) -> (!r, !v)
  %b:2 = braid.rows_grad "braid.weighted"(%y, %v) cotangents(%a#0) {op_attributes = {}, wanted = array<i64: 0, 1>} : (!r, !v, !r) -> (!r, !v)
  return %a#0, %a#1, %b#0, %b#1 : !r, !v, !r, !v
}
