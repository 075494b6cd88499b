// RUN: braid-opt %s --braid-differentiate --split-input-file | FileCheck %s

// Gradients of bf16 weights are f32 and so are the moments but what rounding takes from the weights (i16). The cotangent of an f32 result of bf16
// products is rounded once, before both products behind it. A widening cast is made again in the backward, never saved.
!x = tensor<2x8x16xbf16>
!g = tensor<2x8x4xf32>
!d = tensor<2x8xi32>
func.func private @layer(%x: !x, %wq: tensor<16x16xbf16>, %wg: tensor<16x4xbf16>, %router: tensor<16x4xf32>) -> !x {
  %q, %g = braid.linear %x, %wq, %wg : (!x, tensor<16x16xbf16>, tensor<16x4xbf16>) -> (!x, !g)
  %wide = braid.cast %q : (!x) -> tensor<2x8x16xf32>
  %r = braid.linear %wide, %router : (tensor<2x8x16xf32>, tensor<16x4xf32>) -> !g
  %s = braid.mul %g, %r : (!g, !g) -> !g
  %back = braid.linear %s, %router {transposed} : (!g, tensor<16x4xf32>) -> tensor<2x8x16xf32>
  %y = braid.add %q, %back : (!x, tensor<2x8x16xf32>) -> !x
  return %y : !x
}
// CHECK-LABEL: func.func private @layer_train(
// CHECK:         return %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<2x8x16xbf16>, {{.*}}
// CHECK-NOT:     tensor<2x8x16xf32>
// CHECK-LABEL: func.func private @layer_grad(
// CHECK:         braid.rows_grad "braid.mul"
// CHECK:         %[[WIDE:.*]] = braid.cast %[[Q:.*]] : (tensor<2x8x16xbf16>) -> tensor<2x8x16xf32>
// CHECK-NEXT:    braid.linear_grad_weight %[[WIDE]] cotangents({{.*}} -> tensor<16x4xf32>
// CHECK:         braid.rows_grad "braid.cast"(%[[Q]])
// CHECK:         %[[DG:.*]] = braid.cast %{{.*}} : (tensor<2x8x4xf32>) -> tensor<2x8x4xbf16>
// CHECK:         braid.linear_grad_data cotangents(%[[DQ:.*]], %[[DG]]) weights({{.*}} -> tensor<2x8x16xbf16>
// CHECK:         braid.linear_grad_weight %{{.*}} cotangents(%[[DQ]], %[[DG]]) : {{.*}} -> (tensor<16x16xf32>, tensor<16x4xf32>)

// CHECK-LABEL: func.func @train_step(
// CHECK-SAME:    tensor<16x16xf32> {braid.name = "wq.first", {{[^}]*}}braid.slot = "first"}
// CHECK-SAME:    tensor<16x16xf32> {braid.name = "wq.second", {{[^}]*}}braid.slot = "second"}
// CHECK-SAME:    tensor<16x16xi16> {braid.name = "wq.low", braid.of = "wq", braid.role = "moment", braid.slot = "low"}
// A parameter that is f32 is its own master.
// CHECK-NOT:     "router.low"
// CHECK-SAME:    tensor<1xf32> {braid.name = "learning_rate"
// CHECK:         braid.embed_grad {{.*}} -> tensor<32x16xf32>
// CHECK:         %{{.*}}, %{{.*}}, %{{.*}}, %[[LOW:.*]] = braid.adamw %arg0, {{.*}} : (tensor<16x16xbf16>, tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>, tensor<16x16xi16>) -> (tensor<16x16xbf16>, tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xi16>)
// CHECK:         %{{.*}}, %{{.*}}, %{{.*}} = braid.adamw %arg2, {{.*}} : (tensor<16x4xf32>, tensor<16x4xf32>, tensor<16x4xf32>, tensor<16x4xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<16x4xf32>, tensor<16x4xf32>, tensor<16x4xf32>)
func.func @train_step(%wq: tensor<16x16xbf16> {braid.name = "wq", braid.role = "parameter", braid.decay = true},
                      %wg: tensor<16x4xbf16> {braid.name = "wg", braid.role = "parameter", braid.decay = true},
                      %router: tensor<16x4xf32> {braid.name = "router", braid.role = "parameter", braid.decay = true},
                      %table: tensor<32x16xbf16> {braid.name = "embed.weight", braid.role = "parameter", braid.decay = true},
                      %tokens: !d {braid.name = "tokens", braid.role = "input"}, %labels: !d {braid.name = "labels", braid.role = "input"})
    -> (tensor<1xf32> {braid.name = "loss_sum", braid.role = "output"}, tensor<1xf32> {braid.name = "loss_count", braid.role = "output"})
    attributes {braid.entry, braid.train = {clip_norm = 1.0 : f64, weight_decay = 0.1 : f64}} {
  %x = braid.embed %tokens, %table : (!d, tensor<32x16xbf16>) -> !x
  %y = func.call @layer(%x, %wq, %wg, %router) : (!x, tensor<16x16xbf16>, tensor<16x4xbf16>, tensor<16x4xf32>) -> !x
  %logits = braid.linear %y, %table {transposed} : (!x, tensor<32x16xbf16>) -> tensor<2x8x32xbf16>
  %sum, %count, %lse = braid.cross_entropy %logits, %labels : (tensor<2x8x32xbf16>, !d) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return %sum, %count : tensor<1xf32>, tensor<1xf32>
}

// -----

// By option the gradients of bf16 weights are bf16; moments stay f32. Rows of the embedding are summed in f32 first.
!x = tensor<2x8x16xbf16>
!d = tensor<2x8xi32>
// CHECK-LABEL: func.func @half(
// CHECK-SAME:    tensor<32x16xf32> {braid.name = "embed.weight.first"
// CHECK:         %[[ROWS:.*]] = braid.embed_grad {{.*}} -> tensor<32x16xf32>
// CHECK:         %[[ROUNDED:.*]] = braid.cast %[[ROWS]] : (tensor<32x16xf32>) -> tensor<32x16xbf16>
// CHECK:         %[[SUM:.*]] = braid.add %[[ROUNDED]], %{{.*}} : (tensor<32x16xbf16>, tensor<32x16xbf16>) -> tensor<32x16xbf16>
// CHECK:         braid.sum_squares %[[SUM]] : (tensor<32x16xbf16>) -> tensor<1xf32>
// CHECK:         braid.adamw %{{[^,]*}}, %[[SUM]],
func.func @half(%table: tensor<32x16xbf16> {braid.name = "embed.weight", braid.role = "parameter", braid.decay = true},
                %tokens: !d {braid.name = "tokens", braid.role = "input"}, %labels: !d {braid.name = "labels", braid.role = "input"})
    -> (tensor<1xf32> {braid.name = "loss_sum", braid.role = "output"}, tensor<1xf32> {braid.name = "loss_count", braid.role = "output"})
    attributes {braid.entry, braid.train = {clip_norm = 1.0 : f64, gradient_dtype = "bf16"}} {
  %x = braid.embed %tokens, %table : (!d, tensor<32x16xbf16>) -> !x
  %logits = braid.linear %x, %table {transposed} : (!x, tensor<32x16xbf16>) -> tensor<2x8x32xbf16>
  %sum, %count, %lse = braid.cross_entropy %logits, %labels : (tensor<2x8x32xbf16>, !d) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return %sum, %count : tensor<1xf32>, tensor<1xf32>
}

// -----

// Moments in bf16: of what is bf16 itself; of all else they are as ever.
!d = tensor<2x8xi32>
!x = tensor<2x8x16xbf16>
// CHECK-LABEL: func.func @moments(
// CHECK-SAME:    tensor<32x16xbf16> {braid.name = "embed.weight.first"
// CHECK-SAME:    tensor<32x16xbf16> {braid.name = "embed.weight.second"
// CHECK-SAME:    tensor<32x16xi16> {braid.name = "embed.weight.low"
// CHECK-SAME:    tensor<16xf32> {braid.name = "scale.first"
// CHECK-SAME:    tensor<16xf32> {braid.name = "scale.second"
// CHECK:         braid.adamw {{.*}} : (tensor<32x16xbf16>, tensor<32x16xf32>, tensor<32x16xbf16>, tensor<32x16xbf16>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>, tensor<32x16xi16>)
// CHECK:         braid.adamw {{.*}} : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>)
func.func @moments(%table: tensor<32x16xbf16> {braid.name = "embed.weight", braid.role = "parameter", braid.decay = true},
                   %scale: tensor<16xf32> {braid.name = "scale", braid.role = "parameter"},
                   %tokens: !d {braid.name = "tokens", braid.role = "input"}, %labels: !d {braid.name = "labels", braid.role = "input"})
    -> (tensor<1xf32> {braid.name = "loss_sum", braid.role = "output"}, tensor<1xf32> {braid.name = "loss_count", braid.role = "output"})
    attributes {braid.entry, braid.train = {clip_norm = 1.0 : f64, moment_dtype = "bf16"}} {
  %x = braid.embed %tokens, %table : (!d, tensor<32x16xbf16>) -> !x
  %y = braid.rms_norm %x, %scale {eps = 1.0e-5 : f64} : (!x, tensor<16xf32>) -> !x
  %logits = braid.linear %y, %table {transposed} : (!x, tensor<32x16xbf16>) -> tensor<2x8x32xbf16>
  %sum, %count, %lse = braid.cross_entropy %logits, %labels : (tensor<2x8x32xbf16>, !d) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return %sum, %count : tensor<1xf32>, tensor<1xf32>
}
