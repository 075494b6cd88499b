// RUN: braid-opt %s --braid-differentiate | FileCheck %s
// RUN: braid-opt %s --braid-differentiate --canonicalize --cse --braid-fuse-rows --braid-outline | FileCheck %s --check-prefix=KERNEL

// A step that is one of several before an update: the host says by what the loss is divided, and gradients are added in place
// to those of the steps before.
// CHECK-LABEL: func.func @accumulate_step(
// CHECK-SAME:    %arg0: tensor<32x16xf32> {braid.name = "embed.weight"
// CHECK-SAME:    %[[SCALE:arg[0-9]+]]: tensor<1xf32> {braid.name = "loss_scale", braid.role = "input"}
// CHECK-SAME:    %[[BEFORE:arg[0-9]+]]: tensor<32x16xf32> {braid.name = "gradient.embed.weight", braid.of = "embed.weight", braid.role = "gradient"}
// CHECK-SAME:    {braid.alias = 3 : i64, braid.name = "gradient.embed.weight"
// CHECK-NOT:     reciprocal
// CHECK:         braid.cross_entropy_grad {{.*}}%[[SCALE]]
// CHECK:         braid.mul %{{.*}}, %[[SCALE]]
// CHECK:         %[[SUM:.*]] = braid.add %[[BEFORE]], %{{.*}} {braid.in_place}
// CHECK-NOT:     braid.adamw
// CHECK:         return %{{.*}}, %[[SUM]] :

// The update reads gradients, not batches.
// CHECK-LABEL: func.func @update_step(
// CHECK-SAME:    %arg0: tensor<32x16xf32> {braid.name = "embed.weight"
// CHECK-SAME:    %[[GRADIENT:arg[0-9]+]]: tensor<32x16xf32> {braid.name = "gradient.embed.weight"
// CHECK-SAME:    braid.slot = "first"
// CHECK-SAME:    braid.name = "learning_rate"
// CHECK:         braid.sum_squares %[[GRADIENT]]
// CHECK:         braid.adamw %arg0, %[[GRADIENT]]

// One kernel adds in place; nothing is copied.
// KERNEL-LABEL: func.func @accumulate_step(
// KERNEL:         tile.launch @accumulate_f32 {{.*}}inplace = array<i64: 0>

func.func @accumulate_step(%table: tensor<32x16xf32> {braid.name = "embed.weight", braid.role = "parameter"},
                           %tokens: tensor<2x8xi32> {braid.name = "tokens", braid.role = "input"})
    -> (tensor<1xf32> {braid.name = "loss_sum"}, tensor<1xf32> {braid.name = "loss_count"})
    attributes {braid.entry, braid.train = {accumulate, clip_norm = 1.0 : f64}} {
  %x = "braid.embed"(%tokens, %table) : (tensor<2x8xi32>, tensor<32x16xf32>) -> tensor<2x8x16xf32>
  %logits = "braid.linear"(%x, %table) <{transposed}> : (tensor<2x8x16xf32>, tensor<32x16xf32>) -> tensor<2x8x32xf32>
  %sum, %count, %lse = "braid.cross_entropy"(%logits, %tokens) : (tensor<2x8x32xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  return %sum, %count : tensor<1xf32>, tensor<1xf32>
}
