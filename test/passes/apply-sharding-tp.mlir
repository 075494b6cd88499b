// RUN: braid-opt %s --braid-apply-sharding="mesh=tp=2" --split-input-file --verify-diagnostics | FileCheck %s

!x = tensor<2x8x16xf32>
!d = tensor<2x8xi32>
// Attention on two ranks: each has two of four query heads and one of two key heads; the output projection of its heads is a
// pending sum, which the residual stream completes. The norm over a head is within a rank, its weight is on both.
// CHECK-LABEL: func.func private @attention(
// CHECK: %[[Q:.*]]:3 = braid.linear %{{.*}} : (tensor<2x8x16xf32>, tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x8xf32>) -> (tensor<2x8x2x8xf32>, tensor<2x8x1x8xf32>, tensor<2x8x1x8xf32>)
// CHECK: braid.rms_norm %[[Q]]#0, %{{.*}} : (tensor<2x8x2x8xf32>, tensor<8xf32>)
// CHECK: braid.attn.causal {{.*}} -> (tensor<2x8x2x8xf32>, tensor<2x2x8xf32>)
// CHECK: %[[OUT:.*]] = braid.linear %{{.*}} : (tensor<2x8x2x8xf32>, tensor<16x16xf32>) -> tensor<2x8x16xf32>
// CHECK: %[[SUM:.*]] = braid.comm.all_reduce %[[OUT]] {axis = "tp"}
// CHECK: braid.add %{{.*}}, %[[SUM]]
func.func private @attention(%x: !x, %documents: !d, %wq: tensor<16x32xf32>, %wk: tensor<16x16xf32>, %wv: tensor<16x16xf32>, %norm: tensor<8xf32>, %wo: tensor<32x16xf32>) -> !x {
  %q0, %k, %v = braid.linear %x, %wq, %wk, %wv : (!x, tensor<16x32xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> (tensor<2x8x4x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>)
  %q = braid.rms_norm %q0, %norm {eps = 1.0e-6 : f64} : (tensor<2x8x4x8xf32>, tensor<8xf32>) -> tensor<2x8x4x8xf32>
  %o, %lse = braid.attn.causal %q, %k, %v, %documents {scale = 1.0 : f64} : (tensor<2x8x4x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, !d) -> (tensor<2x8x4x8xf32>, tensor<2x4x8xf32>)
  %a = braid.linear %o, %wo : (tensor<2x8x4x8xf32>, tensor<32x16xf32>) -> !x
  %y = braid.add %x, %a : (!x, !x) -> !x
  return %y : !x
}
// Parameters say what a rank has of them; the words of the loss are on both ranks: the lse of each part is gathered, the label's
// logit is a sum, the cotangent of its input is completed. The norm counts every element of what is cut once.
// CHECK-LABEL: func.func @step(
// CHECK-SAME: tensor<16x16xf32> {braid.dims = ["embed", "heads*8"], braid.name = "wq", braid.role = "parameter", braid.shards = {{\[}}[1, "tp"]]}
// CHECK-SAME: %[[C:[^:]*]]: tensor<1xi32> {braid.name = "coordinate.tp", braid.role = "input"})
// CHECK: %[[IDS:.*]] = braid.local_ids %{{.*}}, %[[C]] {size = 16 : i64}
// CHECK: %[[ROWS:.*]] = braid.embed %[[IDS]], %{{.*}} : (tensor<2x8xi32>, tensor<16x16xf32>)
// CHECK: braid.comm.all_reduce %[[ROWS]] {axis = "tp"}
// CHECK: %[[LSE:.*]], %[[TARGET:.*]] = braid.linear_loss_part
// CHECK: %[[ALL:.*]] = braid.comm.all_gather %{{.*}} {axis = "tp", dim = 2 : i64} : (tensor<2x8x1xf32>) -> tensor<2x8x2xf32>
// CHECK: braid.log_sum_exp %[[ALL]]
// CHECK: braid.comm.all_reduce %[[TARGET]] {axis = "tp"}
// CHECK: %[[DX:.*]], %[[DW:.*]] = braid.linear_loss_part_grad {{.*}} -> (tensor<2x8x16xf32>, tensor<16x16xf32>)
// CHECK: %[[DTABLE:.*]] = braid.embed_grad %{{.*}} -> tensor<16x16xf32>
// CHECK: %[[PART:.*]] = braid.sum_squares %[[DW]], %[[DTABLE]]
// CHECK: braid.comm.all_reduce %[[PART]] {axis = "tp"}
func.func @step(%tokens: !d {braid.dims = ["batch", "sequence"], braid.name = "tokens", braid.role = "input"},
                %documents: !d {braid.dims = ["batch", "sequence"], braid.name = "documents", braid.role = "input"},
                %table: tensor<32x16xf32> {braid.dims = ["vocab", "embed"], braid.name = "table", braid.role = "parameter"},
                %wq: tensor<16x32xf32> {braid.dims = ["embed", "heads*8"], braid.name = "wq", braid.role = "parameter"},
                %wk: tensor<16x16xf32> {braid.dims = ["embed", "kv_heads*8"], braid.name = "wk", braid.role = "parameter"},
                %wv: tensor<16x16xf32> {braid.dims = ["embed", "kv_heads*8"], braid.name = "wv", braid.role = "parameter"},
                %norm: tensor<8xf32> {braid.dims = [""], braid.name = "norm", braid.role = "parameter"},
                %wo: tensor<32x16xf32> {braid.dims = ["heads*8", "embed"], braid.name = "wo", braid.role = "parameter"},
                %head: tensor<16x32xf32> {braid.dims = ["embed", "vocab"], braid.name = "head", braid.role = "parameter"})
    -> (tensor<1xf32> {braid.name = "norm2"}, tensor<1xf32> {braid.name = "loss"},
        tensor<32x16xf32> {braid.name = "gradient.table", braid.role = "gradient", braid.of = "table"},
        tensor<16x32xf32> {braid.name = "gradient.head", braid.role = "gradient", braid.of = "head"}) attributes {braid.entry} {
  %one = arith.constant dense<1.0> : tensor<1xf32>
  %x = braid.embed %tokens, %table : (!d, tensor<32x16xf32>) -> !x
  %y = call @attention(%x, %documents, %wq, %wk, %wv, %norm, %wo) : (!x, !d, tensor<16x32xf32>, tensor<16x16xf32>, tensor<16x16xf32>, tensor<8xf32>, tensor<32x16xf32>) -> !x
  %dx, %dhead, %sum = braid.linear_cross_entropy_grad %y, %head, %tokens, %one : (!x, tensor<16x32xf32>, !d, tensor<1xf32>) -> (!x, tensor<16x32xf32>, tensor<1xf32>)
  %dtable = braid.embed_grad %tokens, %dx : (!d, !x) -> tensor<32x16xf32>
  %n = braid.sum_squares %dhead, %dtable : (tensor<16x32xf32>, tensor<32x16xf32>) -> tensor<1xf32>
  return %n, %sum, %dtable, %dhead : tensor<1xf32>, tensor<1xf32>, tensor<32x16xf32>, tensor<16x32xf32>
}

// -----

// A norm over all heads needs all of them: they are gathered, and every rank takes its part again.
// CHECK-LABEL: func.func @all_heads(
// CHECK: %[[O:.*]] = braid.linear %{{.*}} -> tensor<2x8x16xf32>
// CHECK: %[[ALL:.*]] = braid.comm.all_gather %[[O]] {axis = "tp", dim = 2 : i64}
// CHECK: %[[N:.*]] = braid.rms_norm %[[ALL]]
// CHECK: %[[PART:.*]] = braid.shard %[[N]], %{{.*}} {count = 2 : i64, dim = 2 : i64}
// CHECK: braid.linear %[[PART]]
// Groups of heads are apart: half of them on each rank.
// CHECK: braid.rms_norm %[[O]], %{{.*}} {eps = {{.*}} : f64, groups = 2 : i64} : (tensor<2x8x16xf32>, tensor<16xf32>)
func.func @all_heads(%x: tensor<2x8x16xf32> {braid.dims = ["batch", "sequence"], braid.name = "x", braid.role = "input"},
                     %w: tensor<16x32xf32> {braid.dims = ["embed", "heads*8"], braid.name = "w", braid.role = "parameter"},
                     %norm: tensor<32xf32> {braid.dims = [""], braid.name = "norm", braid.role = "parameter"},
                     %wo: tensor<32x16xf32> {braid.dims = ["heads*8", "embed"], braid.name = "wo", braid.role = "parameter"})
    -> (tensor<2x8x16xf32> {braid.name = "y"}, tensor<2x8x32xf32> {braid.name = "z"}) attributes {braid.entry} {
  %o = braid.linear %x, %w : (tensor<2x8x16xf32>, tensor<16x32xf32>) -> tensor<2x8x32xf32>
  %n = braid.rms_norm %o, %norm {eps = 1.0e-6 : f64} : (tensor<2x8x32xf32>, tensor<32xf32>) -> tensor<2x8x32xf32>
  %y = braid.linear %n, %wo : (tensor<2x8x32xf32>, tensor<32x16xf32>) -> tensor<2x8x16xf32>
  %z = braid.rms_norm %o, %norm {eps = 1.0e-6 : f64, groups = 4 : i64} : (tensor<2x8x32xf32>, tensor<32xf32>) -> tensor<2x8x32xf32>
  return %y, %z : tensor<2x8x16xf32>, tensor<2x8x32xf32>
}

// -----

// expected-error @+1 {{argument "layers.0.attn.wq" has 3 heads (mixers: heads), which tp = 2 ranks (--mesh) do not divide; valid: a divisor of 3}}
func.func @odd(%w: tensor<16x24xf32> {braid.dims = ["embed", "heads*8"], braid.name = "layers.0.attn.wq", braid.role = "parameter"}) -> tensor<16x24xf32> attributes {braid.entry} {
  return %w : tensor<16x24xf32>
}

// -----

// A value that two results share is computed once for each part that is wanted.
// CHECK-LABEL: func.func @init(
// CHECK: %[[A:.*]] = braid.init {{.*}}shard_counts = array<i64: 2>{{.*}} -> tensor<2x8xf32>
// CHECK: %[[B:.*]] = braid.init {{.*}}shard_counts = array<i64: 2>{{.*}} -> tensor<2x8xf32>
// CHECK: return %[[B]], %[[A]]
func.func @init(%seed: tensor<1xi64> {braid.name = "seed", braid.role = "input"})
    -> (tensor<4x8xf32> {braid.dims = ["heads", "embed"], braid.name = "w", braid.role = "parameter"}, tensor<4x8xf32> {braid.dims = ["heads", "embed"], braid.name = "w2", braid.role = "parameter"}) attributes {braid.entry} {
  %w = braid.init %seed {distribution = "constant", keys = array<i64: 1>} : (tensor<1xi64>) -> tensor<4x8xf32>
  return %w, %w : tensor<4x8xf32>, tensor<4x8xf32>
}
