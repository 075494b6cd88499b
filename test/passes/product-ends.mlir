// Row-wise ops at the ends of the products that they read (outline/ProductEnds.cpp), where warpgroups multiply what boxes bring.
// RUN: braid-opt %s --braid-fuse-rows --braid-outline="gpu warpgroups" | FileCheck %s
// RUN: braid-opt %s --braid-fuse-rows --braid-outline=gpu | FileCheck %s --check-prefix=APART
// RUN: braid-opt %s --braid-fuse-rows --braid-outline="gpu warpgroups cublaslt" | FileCheck %s --check-prefix=APART
// RUN: braid-opt %s --braid-fuse-rows --braid-outline | FileCheck %s --check-prefix=APART

!x = tensor<1x8192x512xbf16>
!w = tensor<32x512x384xbf16>
!h = tensor<1x8192x384xbf16>
!o = tensor<33xi32>

// Both products are in one kernel, which stores what others read of them, too: gate, not up.
// CHECK-LABEL: func.func @experts(
// CHECK: %[[Y:.*]]:2 = tile.launch @gemm_end_groups_bf16_nn_128x2x128_1x64_activation_mul_[[HASH:[0-9a-f]+]] grid [3, 3, 32](%{{.*}}, %arg1, %arg2, %arg3) {
// CHECK-SAME: ["a0", "b0", "b1", "ends"]
// CHECK-SAME: ["y0", "y1"]
// CHECK-NOT: tile.launch
// CHECK: return
// APART-LABEL: func.func @experts(
// APART-COUNT-2: tile.grouped_gemm
// APART: tile.launch @rows_activation_mul_
func.func @experts(%x: !x, %w1: !w, %w3: !w, %offsets: !o) -> (!h, !h) {
  %gate_up:2 = braid.moe.grouped_linear %x offsets(%offsets) weights(%w1, %w3) : (!x, !o, !w, !w) -> (!h, !h)
  %silu = braid.activation %gate_up#0 {kind = "silu"} : (!h) -> !h
  %hidden = braid.mul %silu, %gate_up#1 : (!h, !h) -> !h
  return %gate_up#0, %hidden : !h, !h
}

// Experts of 40 rows each have tiles of 128, not of twice 40, which no warpgroup takes.
// CHECK-LABEL: func.func @many_experts(
// CHECK: tile.launch @gemm_end_groups_bf16_nn_128x2x128_1x64_activation_mul_{{[0-9a-f]+}} grid [
func.func @many_experts(%x: !x, %w1: tensor<208x512x384xbf16>, %w3: tensor<208x512x384xbf16>, %offsets: tensor<209xi32>) -> !h {
  %gate_up:2 = braid.moe.grouped_linear %x offsets(%offsets) weights(%w1, %w3) : (!x, tensor<209xi32>, tensor<208x512x384xbf16>, tensor<208x512x384xbf16>) -> (!h, !h)
  %silu = braid.activation %gate_up#0 {kind = "silu"} : (!h) -> !h
  %hidden = braid.mul %silu, %gate_up#1 : (!h, !h) -> !h
  return %hidden : !h
}

// What is there before the product may be read beside it.
// CHECK-LABEL: func.func @dense(
// CHECK: tile.launch @gemm_end_bf16_nn_128x256_1x64_activation_add_{{[0-9a-f]+}} grid [
// CHECK-SAME: ["a0", "b0", "x0"]
// CHECK-SAME: ["y0"]
// CHECK-NOT: tile.
// CHECK: return
// APART-LABEL: func.func @dense(
func.func @dense(%x: tensor<2x4096x512xbf16>, %w: tensor<512x1024xbf16>, %z: tensor<2x4096x1024xbf16>) -> tensor<2x4096x1024xbf16> {
  %y = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> tensor<2x4096x1024xbf16>
  %gate = braid.activation %y {kind = "sigmoid"} : (tensor<2x4096x1024xbf16>) -> tensor<2x4096x1024xbf16>
  %sum = braid.add %gate, %z : (tensor<2x4096x1024xbf16>, tensor<2x4096x1024xbf16>) -> tensor<2x4096x1024xbf16>
  return %sum : tensor<2x4096x1024xbf16>
}

// What a GPU has instructions for may be an end: approximate exponentials and quotients, roots.
// CHECK-LABEL: func.func @in_place(
// CHECK-COUNT-5: tile.launch @gemm_end_bf16_nn_128x256_1x64_activation_{{[0-9a-f]+}} grid [
// CHECK-NOT: tile.launch
// CHECK: return
!t = tensor<2x4096x1024xbf16>
func.func @in_place(%x: tensor<2x4096x512xbf16>, %w: tensor<512x1024xbf16>) -> (!t, !t, !t, !t, !t) {
  %y0 = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> !t
  %elu1 = braid.activation %y0 {kind = "elu1"} : (!t) -> !t
  %y1 = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> !t
  %exp = braid.activation %y1 {kind = "exp"} : (!t) -> !t
  %y2 = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> !t
  %reciprocal = braid.activation %y2 {kind = "reciprocal"} : (!t) -> !t
  %y3 = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> !t
  %sqrt = braid.activation %y3 {kind = "sqrt"} : (!t) -> !t
  %y4 = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> !t
  %silu = braid.activation %y4 {kind = "silu"} : (!t) -> !t
  return %elu1, %exp, %reciprocal, %sqrt, %silu : !t, !t, !t, !t, !t
}

// Not where a function is called for each element (the assembler's of an exact quotient): products would be multiplied one after the other. A
// polynomial (log) would want registers that the sums have.
// CHECK-LABEL: func.func @called(
// CHECK-NOT: @gemm_end
// CHECK: return
func.func @called(%x: tensor<2x4096x512xbf16>, %w: tensor<512x1024xbf16>) -> (!t, !t, !t, !t, !t) {
  %y0 = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> !t
  %gelu = braid.activation %y0 {kind = "gelu"} : (!t) -> !t
  %y1 = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> !t
  %tanh = braid.activation %y1 {kind = "tanh"} : (!t) -> !t
  %y2 = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> !t
  %softplus = braid.activation %y2 {kind = "softplus"} : (!t) -> !t
  %y3 = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> !t
  %log = braid.log_sigmoid %y3 {divide = 1.0 : f64} : (!t) -> !t
  %y4 = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> !t
  %ln = braid.activation %y4 {kind = "log"} : (!t) -> !t
  return %gelu, %tanh, %softplus, %log, %ln : !t, !t, !t, !t, !t
}

// So is the gradient of hidden, and what gate and up get of it: both are read there, it is in no memory.
// CHECK-LABEL: func.func @backward(
// CHECK: tile.launch @gemm_end_groups_bf16_nt_128x192_1x64_activation_mul_grad_activation_grad_{{[0-9a-f]+}} grid [
// CHECK-SAME: ["a0", "b0", "ends", "x0", "x1"]
// CHECK-SAME: ["y0", "y1"]
// CHECK-NOT: tile.
// CHECK: return
// APART-LABEL: func.func @backward(
// APART: tile.grouped_gemm
// APART: tile.launch @rows_activation_mul_grad_activation_grad_
func.func @backward(%dy: !x, %w2: tensor<32x384x512xbf16>, %gate: !h, %up: !h, %offsets: !o) -> (!h, !h) {
  %dhidden = braid.moe.grouped_linear_grad_data cotangents(%dy) offsets(%offsets) weights(%w2) : (!x, !o, tensor<32x384x512xbf16>) -> !h
  %silu = braid.activation %gate {kind = "silu"} : (!h) -> !h
  %both:2 = braid.rows_grad "braid.mul"(%silu, %up) cotangents(%dhidden) {op_attributes = {}, wanted = array<i64: 0, 1>} : (!h, !h, !h) -> (!h, !h)
  %dgate = braid.rows_grad "braid.activation"(%gate) cotangents(%both#0) {op_attributes = {kind = "silu"}, wanted = array<i64: 0>} : (!h, !h) -> !h
  return %dgate, %both#1 : !h, !h
}

// A row may be weighted: its number is read with the operands. The gradient of the number is a sum along the row, of each tile of columns, that a kernel adds up.
// CHECK-LABEL: func.func @weighted(
// CHECK: tile.launch @gemm_end_groups_bf16_nn_128x2x128_1x64_activation_mul_mul_{{[0-9a-f]+}} grid [
// CHECK-SAME: ["a0", "b0", "b1", "ends", "n0"]
// CHECK-SAME: ["y0", "y1", "y2"]
// CHECK-NOT: tile.
// CHECK: return
// APART-LABEL: func.func @weighted(
// APART-COUNT-2: tile.grouped_gemm
// APART: tile.launch @rows_activation_mul_mul_
!n = tensor<1x8192xf32>
func.func @weighted(%x: !x, %w1: !w, %w3: !w, %offsets: !o, %weights: !n) -> (!h, !h, !h) {
  %gate_up:2 = braid.moe.grouped_linear %x offsets(%offsets) weights(%w1, %w3) : (!x, !o, !w, !w) -> (!h, !h)
  %silu = braid.activation %gate_up#0 {kind = "silu"} : (!h) -> !h
  %hidden = braid.mul %silu, %gate_up#1 : (!h, !h) -> !h
  %weighted = braid.mul %hidden, %weights : (!h, !n) -> !h
  return %gate_up#0, %gate_up#1, %weighted : !h, !h, !h
}

// CHECK-LABEL: func.func @weighted_backward(
// CHECK: %[[ENDS:.*]]:3 = tile.launch @gemm_end_groups_bf16_nt_128x192_1x64_activation_mul_mul_grad_mul_grad_and_1_{{[0-9a-f]+}} grid [
// CHECK-SAME: ["a0", "b0", "ends", "x0", "x1", "n0"]
// CHECK-SAME: ["y0", "y1", "s0"]
// CHECK-SAME: -> (tensor<8192x384xbf16>, tensor<8192x384xbf16>, tensor<2x8192xf32>)
// CHECK: tile.launch @sum_rows_f32 grid [{{.*}}](%[[ENDS]]#2)
// CHECK-NOT: tile.
// CHECK: return
// APART-LABEL: func.func @weighted_backward(
// APART: tile.grouped_gemm
// APART: tile.launch @rows_activation_mul_mul_grad_mul_grad_and_1_
func.func @weighted_backward(%dy: !x, %w2: tensor<32x384x512xbf16>, %gate: !h, %up: !h, %offsets: !o, %weights: !n) -> (!h, !h, !n) {
  %d = braid.moe.grouped_linear_grad_data cotangents(%dy) offsets(%offsets) weights(%w2) : (!x, !o, tensor<32x384x512xbf16>) -> !h
  %silu = braid.activation %gate {kind = "silu"} : (!h) -> !h
  %hidden = braid.mul %silu, %up : (!h, !h) -> !h
  %dhidden:2 = braid.rows_grad "braid.mul"(%hidden, %weights) cotangents(%d) {op_attributes = {}, wanted = array<i64: 0, 1>} : (!h, !n, !h) -> (!h, !n)
  %both:2 = braid.rows_grad "braid.mul"(%silu, %up) cotangents(%dhidden#0) {op_attributes = {}, wanted = array<i64: 0, 1>} : (!h, !h, !h) -> (!h, !h)
  %dgate = braid.rows_grad "braid.activation"(%gate) cotangents(%both#0) {op_attributes = {kind = "silu"}, wanted = array<i64: 0>} : (!h, !h) -> !h
  return %dgate, %both#1, %dhidden#1 : !h, !h, !n
}

// Not where a formula reads such a sum, which is whole behind the kernel only.
// CHECK-LABEL: func.func @sum_again(
// CHECK-NOT: gemm_end
// CHECK: return
func.func @sum_again(%dy: !x, %w2: tensor<32x384x512xbf16>, %gate: !h, %up: !h, %offsets: !o, %weights: !n) -> !h {
  %d = braid.moe.grouped_linear_grad_data cotangents(%dy) offsets(%offsets) weights(%w2) : (!x, !o, tensor<32x384x512xbf16>) -> !h
  %dweights = braid.rows_grad "braid.mul"(%gate, %weights) cotangents(%d) {op_attributes = {}, wanted = array<i64: 1>} : (!h, !n, !h) -> !n
  %again = braid.mul %d, %dweights : (!h, !n) -> !h
  return %again : !h
}

// A third result has no room beside what is read.
// CHECK-LABEL: func.func @backward_again(
// CHECK-NOT: gemm_end
// CHECK: tile.launch @rows_activation_mul_mul_grad_activation_grad_
// CHECK: return
func.func @backward_again(%dy: !x, %w2: tensor<32x384x512xbf16>, %gate: !h, %up: !h, %offsets: !o) -> (!h, !h, !h) {
  %dhidden = braid.moe.grouped_linear_grad_data cotangents(%dy) offsets(%offsets) weights(%w2) : (!x, !o, tensor<32x384x512xbf16>) -> !h
  %silu = braid.activation %gate {kind = "silu"} : (!h) -> !h
  %hidden = braid.mul %silu, %up : (!h, !h) -> !h
  %both:2 = braid.rows_grad "braid.mul"(%silu, %up) cotangents(%dhidden) {op_attributes = {}, wanted = array<i64: 0, 1>} : (!h, !h, !h) -> (!h, !h)
  %dgate = braid.rows_grad "braid.activation"(%gate) cotangents(%both#0) {op_attributes = {kind = "silu"}, wanted = array<i64: 0>} : (!h, !h) -> !h
  return %dgate, %both#1, %hidden : !h, !h, !h
}

// Few rows; columns that 128 does not divide; a sum over features; what is made behind the product.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: gemm_end
// CHECK: return
func.func @others(%x: tensor<1x256x512xbf16>, %w: tensor<512x1024xbf16>, %v: tensor<1x8192x512xbf16>, %n: tensor<512x1440xbf16>, %e: tensor<1024xf32>, %z: tensor<1x8192x1024xbf16>)
    -> (tensor<1x256x1024xbf16>, tensor<1x8192x1440xbf16>, tensor<1x8192x1024xbf16>, tensor<1x8192x1024xbf16>) {
  %few = braid.linear %x, %w : (tensor<1x256x512xbf16>, tensor<512x1024xbf16>) -> tensor<1x256x1024xbf16>
  %few.silu = braid.activation %few {kind = "silu"} : (tensor<1x256x1024xbf16>) -> tensor<1x256x1024xbf16>
  %narrow:2 = braid.linear %v, %n, %n : (tensor<1x8192x512xbf16>, tensor<512x1440xbf16>, tensor<512x1440xbf16>) -> (tensor<1x8192x1440xbf16>, tensor<1x8192x1440xbf16>)
  %narrow.mul = braid.mul %narrow#0, %narrow#1 : (tensor<1x8192x1440xbf16>, tensor<1x8192x1440xbf16>) -> tensor<1x8192x1440xbf16>
  %normed = braid.linear %v, %w : (tensor<1x8192x512xbf16>, tensor<512x1024xbf16>) -> tensor<1x8192x1024xbf16>
  %norm = braid.rms_norm %normed, %e {eps = 1.0e-6 : f64} : (tensor<1x8192x1024xbf16>, tensor<1024xf32>) -> tensor<1x8192x1024xbf16>
  %first = braid.linear %v, %w : (tensor<1x8192x512xbf16>, tensor<512x1024xbf16>) -> tensor<1x8192x1024xbf16>
  %second = braid.linear_add %v, %w, %z : (tensor<1x8192x512xbf16>, tensor<512x1024xbf16>, tensor<1x8192x1024xbf16>) -> tensor<1x8192x1024xbf16>
  %late = braid.mul %first, %second : (tensor<1x8192x1024xbf16>, tensor<1x8192x1024xbf16>) -> tensor<1x8192x1024xbf16>
  return %few.silu, %narrow.mul, %norm, %late : tensor<1x256x1024xbf16>, tensor<1x8192x1440xbf16>, tensor<1x8192x1024xbf16>, tensor<1x8192x1024xbf16>
}

// The formulas follow the sum of both, each in columns of its own, and round as they do in a kernel of their own.
// CHECK-LABEL: func.func @gemm_end_groups_bf16_nn_128x2x128_1x64_activation_mul_
// CHECK-SAME: tile.boxes
// CHECK-SAME: tile.rounds_each
// CHECK: %[[SUM:.*]] = scf.for {{.*}} -> (vector<128x256xf32>)
// CHECK: %[[BOTH:.*]] = tile.concat %{{.*}}, %{{.*}} : vector<64x128xbf16>, vector<64x128xbf16>
// CHECK: tile.dot %{{.*}}, %[[BOTH]], %
// CHECK: tile.slice %[[SUM]] {offset = 0
// CHECK: tile.slice %[[SUM]] {offset = 128
// CHECK: math.exp
// CHECK: tile.store {{.*}} limit %
// CHECK-NEXT: tile.store {{.*}} limit %
