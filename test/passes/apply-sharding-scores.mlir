// RUN: braid-opt %s --braid-apply-sharding="mesh=sp=2,tp=2" | FileCheck %s

// Scores of a prompt whose tokens two ranks share and whose words two others do: labels are cut as the tokens are; of each part of the words lse, the greatest
// logit and its word are gathered, the label's logit is a sum; the host has the numbers of all tokens.
// CHECK-LABEL: func.func @score_8(
// CHECK: %[[LABELS:.*]] = braid.shard %arg2, %{{.*}} {count = 2 : i64, dim = 1 : i64}
// CHECK: %[[LSE0:.*]], %[[TARGET0:.*]], %[[G0:.*]], %[[W0:.*]] = braid.linear_scores %{{.*}}, %{{.*}}, %[[LABELS]], %{{.*}} {softcap = 5.000000e+00 : f64} : (tensor<2x4x16xf32>, tensor<16x16xf32>, tensor<2x4xi32>, tensor<1xi32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xi32>)
// CHECK: %[[G:.*]] = braid.reshape %[[G0]]
// CHECK: %[[TOPS:.*]] = braid.comm.all_gather %[[G]] {axis = "tp", dim = 2 : i64} : (tensor<2x4x1xf32>) -> tensor<2x4x2xf32>
// CHECK: %[[W:.*]] = braid.reshape %[[W0]]
// CHECK: %[[WORDS:.*]] = braid.comm.all_gather %[[W]] {axis = "tp", dim = 2 : i64} : (tensor<2x4x1xi32>) -> tensor<2x4x2xi32>
// CHECK: %[[TARGET:.*]] = braid.comm.all_reduce %[[TARGET0]] {axis = "tp"}
// CHECK: %[[L:.*]] = braid.reshape %[[LSE0]]
// CHECK: %[[LSES:.*]] = braid.comm.all_gather %[[L]] {axis = "tp", dim = 2 : i64}
// CHECK: %[[LSE:.*]] = braid.log_sum_exp %[[LSES]]
// CHECK: %[[TOP:.*]] = braid.greatest %[[TOPS]]
// CHECK: %[[WORD:.*]] = braid.greatest_word %[[TOPS]], %[[WORDS]]
// CHECK: braid.token_loss %[[LSE]], %[[TARGET]], %[[LABELS]]
// CHECK: braid.token_loss %[[LSE]], %[[TOP]], %[[LABELS]]
// CHECK: braid.comm.all_gather %{{.*}} {axis = "sp", dim = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x8xf32>
// CHECK: braid.comm.all_gather %[[WORD]] {axis = "sp", dim = 1 : i64} : (tensor<2x4xi32>) -> tensor<2x8xi32>
// CHECK: return
func.func @score_8(%table: tensor<32x16xf32> {braid.dims = ["vocab", "embed"], braid.name = "table", braid.role = "parameter"},
                   %head: tensor<16x32xf32> {braid.dims = ["embed", "vocab"], braid.name = "head", braid.role = "parameter"},
                   %labels: tensor<2x8xi32> {braid.name = "labels", braid.role = "input"},
                   %tokens: tensor<2x8xi32> {braid.name = "tokens", braid.role = "input"},
                   %cu_seqlens: tensor<2x2xi32> {braid.name = "cu_seqlens", braid.role = "input"},
                   %cache: tensor<2x3xf32> {braid.name = "cache.state", braid.role = "cache"})
    -> (tensor<2x3xf32> {braid.name = "cache.state", braid.role = "cache", braid.alias = 5 : i64}, tensor<2x8xf32> {braid.name = "losses"},
        tensor<2x8xi32> {braid.name = "likeliest"}) attributes {braid.entry} {
  %documents = braid.documents %cu_seqlens {begin = 0 : i64} : (tensor<2x2xi32>) -> tensor<2x8xi32>
  %x = braid.embed %tokens, %table : (tensor<2x8xi32>, tensor<32x16xf32>) -> tensor<2x8x16xf32>
  %c = arith.constant dense<0> : tensor<1xi32>
  %said:4 = braid.linear_scores %x, %head, %labels, %c {softcap = 5.0 : f64} : (tensor<2x8x16xf32>, tensor<16x32xf32>, tensor<2x8xi32>, tensor<1xi32>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xi32>)
  %losses = braid.token_loss %said#0, %said#1, %labels : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  %best = braid.token_loss %said#0, %said#2, %labels : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  %both = braid.add %losses, %best : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %cache, %both, %said#3 : tensor<2x3xf32>, tensor<2x8xf32>, tensor<2x8xi32>
}
