// FLOPs and bytes of ops from their shapes; then Outline shares them among what an op becomes. Every number stands beside its formula.
// RUN: braid-opt %s --split-input-file --braid-count-work | FileCheck %s
// RUN: braid-opt %s --split-input-file --braid-count-work --braid-outline | FileCheck %s --check-prefix=SHARED

// x [1, 8, 16] times [16, 32] and [16, 8]: 2 * 8 * 16 * 40 FLOPs; x once, both weights, both results: 4 * (128 + 640 + 320).
// A weight gradient reads what the forward read and wrote, and writes both weights.
// CHECK-LABEL: func.func @linear
// CHECK: braid.linear %arg0, %arg1, %arg2 {cmd.work = #cmd.work<"linear", flops = 10240, bytes = 4352, "library: a dense matrix product">}
// CHECK: braid.linear_grad_weight {{.*}} #cmd.work<"linear_grad_weight", flops = 10240, bytes = 4352,
// The parts add up to the op; FLOPs go by the products' sizes: 2 * 8 * 16 * 32 and 2 * 8 * 16 * 8.
// SHARED-LABEL: func.func @linear
// SHARED: tile.gemm %arg0, %arg1 {{.*}}#cmd.work<"linear", flops = 8192, bytes = [[B0:[0-9]+]], "library
// SHARED: tile.gemm %arg0, %arg2 {{.*}}#cmd.work<"linear", flops = 2048, bytes = [[B1:[0-9]+]], "library
// SHARED: tile.gemm {{.*}}#cmd.work<"linear_grad_weight", flops = 8192,
// SHARED: tile.gemm {{.*}}#cmd.work<"linear_grad_weight", flops = 2048,
func.func @linear(%x: tensor<1x8x16xf32>, %a: tensor<16x32xf32>, %b: tensor<16x8xf32>) -> (tensor<16x32xf32>, tensor<16x8xf32>) {
  %y:2 = braid.linear %x, %a, %b : (tensor<1x8x16xf32>, tensor<16x32xf32>, tensor<16x8xf32>) -> (tensor<1x8x32xf32>, tensor<1x8x8xf32>)
  %dw:2 = braid.linear_grad_weight %x cotangents(%y#0, %y#1) : (tensor<1x8x16xf32>, tensor<1x8x32xf32>, tensor<1x8x8xf32>) -> (tensor<16x32xf32>, tensor<16x8xf32>)
  return %dw#0, %dw#1 : tensor<16x32xf32>, tensor<16x8xf32>
}

// -----

// A cluster counts what enters and leaves it: x, h, w and the norm, 4 * (3 * 128 + 16); the sum stays inside. Alone, an op
// counts all it reads and writes: 4 * (128 + 128). An add is 1 FLOP an element, a norm 4: 128 * (1 + 4). The kernel is the same with and
// without the numbers.
// CHECK-LABEL: func.func @rows
// CHECK: braid.add {{.*}}cmd.work = #cmd.work<"add + rms_norm", flops = 640, bytes = 1600, "2 row-wise ops fused (braid-fuse-rows): one pass over the rows">
// CHECK: braid.rms_norm
// CHECK-NOT: cmd.work
// CHECK: braid.scale {{.*}}#cmd.work<"scale", flops = 128, bytes = 1024, "row-wise, alone
// SHARED-LABEL: func.func @rows
// SHARED: tile.launch @rows_add_rms_norm_{{.*}}#cmd.work<"add + rms_norm", flops = 640, bytes = 1600,
// SHARED: tile.launch @rows_scale_{{.*}}#cmd.work<"scale", flops = 128, bytes = 1024,
func.func @rows(%x: tensor<1x8x16xf32>, %h: tensor<1x8x16xf32>, %w: tensor<16xf32>) -> tensor<1x8x16xf32> {
  %s = braid.add %x, %h {braid.cluster = 0} : (tensor<1x8x16xf32>, tensor<1x8x16xf32>) -> tensor<1x8x16xf32>
  %n = braid.rms_norm %s, %w {braid.cluster = 0, eps = 1.0e-6} : (tensor<1x8x16xf32>, tensor<16xf32>) -> tensor<1x8x16xf32>
  %y = braid.scale %n {value = 2.0} : (tensor<1x8x16xf32>) -> tensor<1x8x16xf32>
  return %y : tensor<1x8x16xf32>
}

// -----

// Experts that get no row are not read: 2 rows, 8 experts of 16 x 4: 2 * 2 * 16 * 4 FLOPs; 4 * (2 * 16 + 9 offsets + 2 experts * 64 + 2 * 4).
// Rows of an embedding, not its table: 4 * (2 tokens + 2 * 16 read + 2 * 16 written).
// CHECK-LABEL: func.func @sparse
// CHECK: braid.embed {{.*}}#cmd.work<"embed", flops = 0, bytes = 264,
// CHECK: braid.moe.grouped_linear {{.*}}#cmd.work<"moe.grouped_linear", flops = 256, bytes = 708, "generated: so few rows that the weights of their experts stream by once", rows = 2, fixed = 548>
func.func @sparse(%tokens: tensor<1x2xi32>, %table: tensor<1000x16xf32>, %offsets: tensor<9xi32>, %w: tensor<8x16x4xf32>) -> tensor<1x2x4xf32> {
  %x = braid.embed %tokens, %table : (tensor<1x2xi32>, tensor<1000x16xf32>) -> tensor<1x2x16xf32>
  %y = braid.moe.grouped_linear %x offsets(%offsets) weights(%w) : (tensor<1x2x16xf32>, tensor<9xi32>, tensor<8x16x4xf32>) -> tensor<1x2x4xf32>
  return %y : tensor<1x2x4xf32>
}

// -----

// The loss of 300 rows of 8 over 4100 words: 2 M + 4 FLOPs a logit, 6 M + 8 with the gradient; logits are no bytes: 4 * (2 * 2400
// + 2 * 32800 + 300 + 1 + 1); the forward without gradients half of the tensors: 4 * (2400 + 32800 + 300 + 1 + 1). 300 rows are two blocks of
// 112 and one of 76, each a product of 20 * 4100 FLOPs a row; a gradient has three, so a block of 112 rows is 56 * 4100 * 112 / 3 each.
// CHECK-LABEL: func.func @loss
// CHECK: braid.linear_cross_entropy {{.*}}#cmd.work<"linear_cross_entropy", flops = 24600000, bytes = 142008,
// CHECK: braid.linear_cross_entropy_grad {{.*}}#cmd.work<"linear_cross_entropy_grad", flops = 68880000, bytes = 282808, "blocks of rows: the logits of one block exist at a time">
// SHARED-LABEL: func.func @loss
// SHARED: braid.repeat
// SHARED: tile.gemm {{.*}}#cmd.work<"linear_cross_entropy", flops = 9184000,
// SHARED: tile.gemm {{.*}}#cmd.work<"linear_cross_entropy", flops = 6232000,
// SHARED: braid.repeat
// SHARED: tile.gemm {{.*}}#cmd.work<"linear_cross_entropy_grad", flops = 8571733,
func.func @loss(%x: tensor<2x150x8xf32>, %w: tensor<8x4100xf32>, %labels: tensor<2x150xi32>) -> (tensor<1xf32>, tensor<2x150x8xf32>, tensor<8x4100xf32>, tensor<1xf32>) {
  %sum, %count = braid.linear_cross_entropy %x, %w, %labels : (tensor<2x150x8xf32>, tensor<8x4100xf32>, tensor<2x150xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  %dx, %dw, %again = braid.linear_cross_entropy_grad %x, %w, %labels, %count : (tensor<2x150x8xf32>, tensor<8x4100xf32>, tensor<2x150xi32>, tensor<1xf32>) -> (tensor<2x150x8xf32>, tensor<8x4100xf32>, tensor<1xf32>)
  return %sum, %dx, %dw, %again : tensor<1xf32>, tensor<2x150x8xf32>, tensor<8x4100xf32>, tensor<1xf32>
}

// -----

// A scan of class V in one chunk of 16: K^T V is 2 K V a token; chunk_output has Q K^T and S V over (C + 1) / 2 pairs a token and
// Q M, for 2 heads: 2 * 8 * 16 * 16 * 2; (17 * (8 + 16) + 2 * 8 * 16) * 16 * 2. A table row without tokens costs nothing: one of two. In order is
// only 2 K V per chunk and head, 2 * 8 * 16 * 2; it reads and writes the states of one chunk, 4 * 2 * (8 * 16 + 8 + 8 * 16), the state before and
// after, 4 * 2 * 2 * 8 * 16, and the table, 4 * 2 * 4.
// CHECK-LABEL: func.func @scan
// CHECK: braid.lsm.chunk_state {{.*}}#cmd.work<"lsm.chunk_state", flops = 8192, {{.*}}"chunks of 16 tokens (braid-decide-chunk-size), class V: matrix products inside a chunk">
// CHECK: braid.lsm.state_scan {{.*}}#cmd.work<"lsm.state_scan", flops = 512, bytes = 4192,
// What makes scores says how: of classes V and R outputs and gradients.
// CHECK: braid.lsm.chunk_output {{.*}}#cmd.work<"lsm.chunk_output", flops = 21248, {{.*}}class V: matrix products inside a chunk; its gates prove no bound of the log decays: each chunk chooses by its own between one product of all pairs and tiles of 16 rows">
func.func @scan(%q: tensor<1x16x2x8xf32>, %v: tensor<1x16x2x16xf32>, %g: tensor<1x16x2x8xf32>, %m0: tensor<1x2x8x16xf32>, %c: tensor<1x2x4xi32>)
    -> (tensor<1x16x2x16xf32>, tensor<1x2x8x16xf32>) {
  %x, %p = braid.lsm.chunk_state V %q, %v log_decay(%g) chunks(%c) {chunk_size = 16 : i64} : (tensor<1x16x2x8xf32>, tensor<1x16x2x16xf32>, tensor<1x16x2x8xf32>, tensor<1x2x4xi32>) -> (tensor<1x2x2x8x16xf32>, tensor<1x2x2x8xf32>)
  %m, %final = braid.lsm.state_scan V %x transition(%p) initial_state(%m0) chunks(%c) : (tensor<1x2x2x8x16xf32>, tensor<1x2x2x8xf32>, tensor<1x2x8x16xf32>, tensor<1x2x4xi32>) -> (tensor<1x2x2x8x16xf32>, tensor<1x2x8x16xf32>)
  %o = braid.lsm.chunk_output V %q, %q, %v log_decay(%g) in_state(%m) chunks(%c) {chunk_size = 16 : i64, scale = 1.0} : (tensor<1x16x2x8xf32>, tensor<1x16x2x8xf32>, tensor<1x16x2x16xf32>, tensor<1x16x2x8xf32>, tensor<1x2x2x8x16xf32>, tensor<1x2x4xi32>) -> tensor<1x16x2x16xf32>
  return %o, %final : tensor<1x16x2x16xf32>, tensor<1x2x8x16xf32>
}

// -----

// Causal attention: 8 * 9 / 2 pairs a head, 4 D FLOPs each: 2 * 36 * 4 * 8; a window of 2 leaves 15: 2 * 15 * 4 * 8. Of a cache only the rows that
// came with the call are counted, how full it is shows while running: 2 * 1 * 4 * 8 FLOPs, 4 * (q 16 + k, v 2 * 8 + o 16 + lse 2) + 4 bytes. To
// append is to read and to write a row of 8 and one document start: 4 * (8 + 8 + 1).
// CHECK-LABEL: func.func @attention
// CHECK: braid.attn.causal {{.*}}#cmd.work<"attn.causal", flops = 2304,
// CHECK: braid.attn.causal {{.*}}#cmd.work<"attn.causal", flops = 960,
// CHECK: braid.attn.causal {{.*}}#cmd.work<"attn.causal", flops = 64, bytes = 204, "online softmax over tiles of keys: no scores in memory">
// CHECK: braid.attn.append {{.*}}#cmd.work<"attn.append", flops = 0, bytes = 68,
func.func @attention(%q: tensor<1x8x2x8xf32>, %k: tensor<1x8x1x8xf32>, %d: tensor<1x8xi32>, %q1: tensor<1x1x2x8xf32>, %x1: tensor<1x1x1x8xf32>, %cache: tensor<1x64x1x8xf32>,
                     %d1: tensor<1x1xi32>) -> (tensor<1x8x2x8xf32>, tensor<1x8x2x8xf32>, tensor<1x1x2x8xf32>, tensor<1x64x1x8xf32>) {
  %o, %lse = braid.attn.causal %q, %k, %k, %d {scale = 1.0} : (tensor<1x8x2x8xf32>, tensor<1x8x1x8xf32>, tensor<1x8x1x8xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x8xf32>, tensor<1x2x8xf32>)
  %w, %lse1 = braid.attn.causal %q, %k, %k, %d {scale = 1.0, window = 2 : i64} : (tensor<1x8x2x8xf32>, tensor<1x8x1x8xf32>, tensor<1x8x1x8xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x8xf32>, tensor<1x2x8xf32>)
  %values = braid.scale %cache {value = 1.0} : (tensor<1x64x1x8xf32>) -> tensor<1x64x1x8xf32>
  %c, %lse2 = braid.attn.causal %q1, %cache, %values, %d1 {scale = 1.0, cache} : (tensor<1x1x2x8xf32>, tensor<1x64x1x8xf32>, tensor<1x64x1x8xf32>, tensor<1x1xi32>) -> (tensor<1x1x2x8xf32>, tensor<1x2x1xf32>)
  %a = braid.attn.append %cache, %x1, %d1 : (tensor<1x64x1x8xf32>, tensor<1x1x1x8xf32>, tensor<1x1xi32>) -> tensor<1x64x1x8xf32>
  return %o, %w, %c, %a : tensor<1x8x2x8xf32>, tensor<1x8x2x8xf32>, tensor<1x1x2x8xf32>, tensor<1x64x1x8xf32>
}

// -----

// 300 rows of 16 features, 5000 words: 300 * 5000 logits, 6 * 16 + 8 FLOPs each (the product, and two with its gradient); bytes
// 4 * (2 * 4800 + 2 * 80000 + 300 + 1 + 1). Blocks of rows are a repeat: its commands get the part of one iteration. The forward's sum is not
// read: it only counts labels, 4 * (300 + 1).
// CHECK-LABEL: func.func @loss
// CHECK: braid.linear_cross_entropy {{.*}}#cmd.work<"linear_cross_entropy", flops = 300, bytes = 1204,
// CHECK: braid.linear_cross_entropy_grad {{.*}}#cmd.work<"linear_cross_entropy_grad", flops = 156000000, bytes = 679608, "blocks of rows
// SHARED-LABEL: func.func @loss
// SHARED: braid.repeat {{.*}}count = [[N:[0-9]+]]
// SHARED: tile.gemm {{.*}}#cmd.work<"linear_cross_entropy_grad", flops = {{[1-9][0-9]*}}, bytes = {{[1-9][0-9]*}},
// SHARED: tile.launch {{.*}}#cmd.work<"linear_cross_entropy_grad", flops = 0, bytes = {{[1-9][0-9]*}},
func.func @loss(%x: tensor<1x300x16xf32>, %w: tensor<16x5000xf32>, %l: tensor<1x300xi32>, %d: tensor<1xf32>) -> (tensor<1xf32>, tensor<1x300x16xf32>, tensor<16x5000xf32>, tensor<1xf32>) {
  %sum, %count = braid.linear_cross_entropy %x, %w, %l : (tensor<1x300x16xf32>, tensor<16x5000xf32>, tensor<1x300xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  %dx, %dw, %s = braid.linear_cross_entropy_grad %x, %w, %l, %d : (tensor<1x300x16xf32>, tensor<16x5000xf32>, tensor<1x300xi32>, tensor<1xf32>) -> (tensor<1x300x16xf32>, tensor<16x5000xf32>, tensor<1xf32>)
  return %count, %dx, %dw, %s : tensor<1xf32>, tensor<1x300x16xf32>, tensor<16x5000xf32>, tensor<1xf32>
}

// -----

// Of experts' rows all are counted that the buffer has room for, and it is said how many those are.
// CHECK-LABEL: func.func @experts(
// CHECK: braid.activation {{.*}}#cmd.work<"activation", {{.*}}, rows = 32>
// CHECK: braid.scale {{.*}}#cmd.work<"scale", {{.*}}, rows = 32>
// CHECK: braid.scale {{.*}}"row-wise, alone: no neighbour over the same rows could join">
// SHARED-LABEL: func.func @experts(
// SHARED: tile.launch @rows_activation_{{.*}}#cmd.work<"activation", {{.*}}, rows = 32>
func.func @experts(%x: tensor<1x32x16xf32>, %offsets: tensor<3xi32>, %w: tensor<2x16x24xf32>) -> (tensor<1x32x24xf32>, tensor<1x32x16xf32>) {
  %y = braid.moe.grouped_linear %x offsets(%offsets) weights(%w) : (tensor<1x32x16xf32>, tensor<3xi32>, tensor<2x16x24xf32>) -> tensor<1x32x24xf32>
  %a = braid.activation %y {kind = "silu"} : (tensor<1x32x24xf32>) -> tensor<1x32x24xf32>
  %s = braid.scale %a {value = 2.0 : f64} : (tensor<1x32x24xf32>) -> tensor<1x32x24xf32>
  %all = braid.scale %x {value = 2.0 : f64} : (tensor<1x32x16xf32>) -> tensor<1x32x16xf32>
  return %s, %all : tensor<1x32x24xf32>, tensor<1x32x16xf32>
}

// -----

// Of what a buffer has room for only the rows that came are read, multiplied and written: 32 here at most; weights, their gradients, sums and offsets are there whatever comes,
// 4 * (2 * 16 * 24 + 3), with sums twice the gradients.
// CHECK-LABEL: func.func @experts
// CHECK: braid.moe.grouped_linear {{.*}}#cmd.work<"moe.grouped_linear", {{.*}}, rows = 32, fixed = 3084>
// CHECK: braid.moe.grouped_linear_grad_data {{.*}}, rows = 32, fixed = 3084>
// CHECK: braid.moe.grouped_linear_grad_weight {{.*}}, rows = 32, fixed = 6156>
// SHARED-LABEL: func.func @experts
// SHARED: tile.grouped_gemm {{.*}}#cmd.work<"moe.grouped_linear", {{.*}}, rows = 32, fixed = 3084>
func.func @experts(%x: tensor<1x32x16xf32>, %offsets: tensor<3xi32>, %w: tensor<2x16x24xf32>) -> (tensor<1x32x16xf32>, tensor<2x16x24xf32>) {
  %y = braid.moe.grouped_linear %x offsets(%offsets) weights(%w) : (tensor<1x32x16xf32>, tensor<3xi32>, tensor<2x16x24xf32>) -> tensor<1x32x24xf32>
  %dx = braid.moe.grouped_linear_grad_data cotangents(%y) offsets(%offsets) weights(%w) : (tensor<1x32x24xf32>, tensor<3xi32>, tensor<2x16x24xf32>) -> tensor<1x32x16xf32>
  %dw = braid.moe.grouped_linear_grad_weight %x offsets(%offsets) cotangents(%y) sums(%w) : (tensor<1x32x16xf32>, tensor<3xi32>, tensor<1x32x24xf32>, tensor<2x16x24xf32>) -> tensor<2x16x24xf32>
  return %dx, %dw : tensor<1x32x16xf32>, tensor<2x16x24xf32>
}

// -----

// A sum of the words' gradients and another table: rows of that table that words name, read and written: 4 * (2 * 8 * 16 * 2), beside dy and 4 bytes a token; alone the whole table.
// CHECK-LABEL: func.func @words
// CHECK: braid.embed_grad {{.*}}#cmd.work<"embed_grad", flops = 256, bytes = 3136,
// CHECK: braid.embed_grad {{.*}}#cmd.work<"embed_grad", flops = 256, bytes = 33856,
func.func @words(%tokens: tensor<2x8xi32>, %dy: tensor<2x8x16xf32>, %sum: tensor<512x16xf32>) -> (tensor<512x16xf32>, tensor<512x16xf32>) {
  %a = braid.embed_grad %tokens, %dy, %sum : (tensor<2x8xi32>, tensor<2x8x16xf32>, tensor<512x16xf32>) -> tensor<512x16xf32>
  %b = braid.embed_grad %tokens, %dy : (tensor<2x8xi32>, tensor<2x8x16xf32>) -> tensor<512x16xf32>
  return %a, %b : tensor<512x16xf32>, tensor<512x16xf32>
}
