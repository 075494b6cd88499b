// RUN: braid-opt %s --braid-differentiate --split-input-file --verify-diagnostics | FileCheck %s

// A stack of two equal layers with a scan: the layer function splits in a forward that returns what the backward reads and a
// backward; the repeat is walked the other way; data and weight gradients are different ops.
!x = tensor<2x8x16xf32>
!h = tensor<2x8x2x8xf32>
!hf = tensor<2x8x2x8xf32>
!s = tensor<2x2x8x8xf32>
!d = tensor<2x8xi32>
!w = tensor<16x16xf32>
!d2 = tensor<2x8xf32>
func.func private @layer(%x: !x, %documents: !d, %state: !s, %norm: tensor<16xf32>, %wq: !w, %wf: !w) -> (!x, !s) {
  %n = braid.rms_norm %x, %norm {eps = 1.0e-6 : f64} : (!x, tensor<16xf32>) -> !x
  %q, %f = braid.linear %n, %wq, %wf : (!x, !w, !w) -> (!h, !h)
  %g = braid.log_sigmoid %f {divide = 16.0 : f64} : (!h) -> !hf
  %o, %final = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%state) documents(%documents) {scale = 1.0 : f64} : (!h, !h, !h, !hf, !s, !d) -> (!h, !s)
  %a = braid.reshape %o : (!h) -> !x
  %y = braid.add %x, %a : (!x, !x) -> !x
  return %y, %final : !x, !s
}
// CHECK-LABEL: func.func private @layer(
// CHECK: func.func private @layer_train(
// What the backward reads: norm's result, q, f, the decay.
// CHECK: return %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} :
// CHECK: func.func private @layer_grad(
// CHECK: braid.lsm.scan_grad V
// CHECK: braid.rows_grad "braid.log_sigmoid"
// q is used three times: one sum of three.
// CHECK: braid.add %{{.*}}, %{{.*}}, %{{.*}} :
// CHECK: braid.linear_grad_data
// CHECK: braid.linear_grad_weight
// CHECK: braid.rows_grad "braid.rms_norm"
// CHECK-SAME: wanted = array<i64: 0, 1>

// CHECK-LABEL: func.func @train_step(
// CHECK-SAME: braid.name = "layers.{}.norm.first", braid.of = "layers.{}.norm", braid.role = "moment", braid.slot = "first"
// CHECK-SAME: braid.name = "learning_rate"
func.func @train_step(%norms: tensor<2x16xf32> {braid.name = "layers.{}.norm", braid.role = "parameter", braid.layers = array<i32: 0, 1>, braid.decay = false},
                      %wqs: tensor<2x16x16xf32> {braid.name = "layers.{}.wq", braid.role = "parameter", braid.layers = array<i32: 0, 1>, braid.decay = true},
                      %wfs: tensor<2x16x16xf32> {braid.name = "layers.{}.wf", braid.role = "parameter", braid.layers = array<i32: 0, 1>, braid.decay = true},
                      %table: tensor<32x16xf32> {braid.name = "embed.weight", braid.role = "parameter", braid.decay = true},
                      %tokens: !d {braid.name = "tokens", braid.role = "input"}, %labels: !d {braid.name = "labels", braid.role = "input"},
                      %cu: tensor<2x2xi32> {braid.name = "cu_seqlens", braid.role = "input"})
    -> (tensor<1xf32> {braid.name = "loss_sum", braid.role = "output"}, tensor<1xf32> {braid.name = "loss_count", braid.role = "output"})
    attributes {braid.entry, braid.train = {clip_norm = 1.0 : f64, weight_decay = 0.1 : f64}} {
  %documents = braid.documents %cu : (tensor<2x2xi32>) -> !d
  %x0 = braid.embed %tokens, %table : (!d, tensor<32x16xf32>) -> !x
  %zero = arith.constant dense<0.0> : !s
  // CHECK: braid.repeat {{.*}}carried = 1 : i64, count = 2 : i64
  // CHECK: call @layer_train
  %x2 = braid.repeat %x0, %norms, %wqs, %wfs {count = 2 : i64, carried = 1 : i64} : (!x, tensor<2x16xf32>, tensor<2x16x16xf32>, tensor<2x16x16xf32>) -> !x {
  ^bb0(%x: !x, %norm: tensor<16xf32>, %wq: !w, %wf: !w):
    %y, %final = func.call @layer(%x, %documents, %zero, %norm, %wq, %wf) : (!x, !d, !s, tensor<16xf32>, !w, !w) -> (!x, !s)
    braid.yield %y : (!x) -> ()
  }
  // Tied head: the table's gradient has two parts.
  %sum, %count = braid.linear_cross_entropy %x2, %table, %labels {transposed} : (!x, tensor<32x16xf32>, !d) -> (tensor<1xf32>, tensor<1xf32>)
  return %sum, %count : tensor<1xf32>, tensor<1xf32>
}
// CHECK: %[[SUM:.*]], %[[COUNT:.*]] = braid.linear_cross_entropy
// CHECK: %[[SEED:.*]] = braid.activation %[[COUNT]] {kind = "reciprocal"}
// The reported loss comes from the gradient: the forward's sum has no reader.
// CHECK-NOT: %[[SUM]],
// CHECK: %{{.*}}, %{{.*}}, %[[AGAIN:.*]] = braid.linear_cross_entropy_grad %{{.*}}, %{{.*}}, %{{.*}}, %[[SEED]]
// CHECK: braid.repeat {{.*}}reverse
// CHECK: call @layer_grad
// CHECK: braid.embed_grad
// CHECK: braid.add %{{.*}}, %{{.*}} : (tensor<32x16xf32>, tensor<32x16xf32>)
// CHECK: braid.sum_squares
// CHECK: braid.clip_scale %{{.*}} {max_norm = 1.000000e+00 : f64}
// Norm weights do not decay, matrices do.
// CHECK: braid.adamw {{.*}}weight_decay = 0.000000e+00
// CHECK: braid.adamw {{.*}}weight_decay = 1.000000e-01

// -----

// expected-error @+1 {{parameter head.weight has no gradient: the loss does not depend on it}}
func.func @unused(%table: tensor<32x16xf32> {braid.name = "embed.weight", braid.role = "parameter"},
                  %head: tensor<16x32xf32> {braid.name = "head.weight", braid.role = "parameter"},
                  %tokens: tensor<2x8xi32> {braid.name = "tokens", braid.role = "input"})
    -> (tensor<1xf32> {braid.name = "loss_sum"}, tensor<1xf32> {braid.name = "loss_count"}) attributes {braid.entry, braid.train = {}} {
  %x0 = braid.embed %tokens, %table : (tensor<2x8xi32>, tensor<32x16xf32>) -> tensor<2x8x16xf32>
  %logits = braid.linear %x0, %table {transposed} : (tensor<2x8x16xf32>, tensor<32x16xf32>) -> tensor<2x8x32xf32>
  %sum, %count, %lse = braid.cross_entropy %logits, %tokens : (tensor<2x8x32xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return %sum, %count : tensor<1xf32>, tensor<1xf32>
}
