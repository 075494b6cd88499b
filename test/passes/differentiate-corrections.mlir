// RUN: braid-opt %s --braid-differentiate --split-input-file | FileCheck %s
// RUN: braid-opt %s --braid-differentiate --canonicalize --cse --split-input-file | FileCheck %s --check-prefix=NORM

// Loads that the entry returns as a correction's gradient change it behind the optimizer; no norm, no moments, no result of their own.
// CHECK-LABEL: func.func @train_step(
// CHECK-SAME:    %arg1: tensor<2x3x4xf32> {braid.correction_rate = 1.250000e-01 : f64, {{.*}}braid.name = "layers.{}.moe.correction"
// CHECK-NOT:     "layers.{}.moe.correction.first"
// CHECK-NOT:     "gradient.layers.{}.moe.correction"
// CHECK:         %[[LOAD:.*]] = braid.cast %{{.*}} : (tensor<2x3x4xi32>) -> tensor<2x3x4xf32>
// CHECK:         braid.sum_squares %{{[^,]*}} : (tensor<32x16xf32>)
// CHECK:         braid.adamw
// CHECK:         %[[BEFORE:.*]] = braid.reshape %arg1 : (tensor<2x3x4xf32>) -> tensor<1x6x4xf32>
// CHECK:         %[[OF:.*]] = braid.reshape %[[LOAD]] : (tensor<2x3x4xf32>) -> tensor<1x6x4xf32>
// CHECK:         %[[AFTER:.*]] = braid.moe.correct %[[BEFORE]], %[[OF]] {rate = 1.250000e-01 : f64}
// CHECK:         %[[BACK:.*]] = braid.reshape %[[AFTER]] : (tensor<1x6x4xf32>) -> tensor<2x3x4xf32>
// CHECK:         return {{.*}}%[[BACK]] :
// NORM-LABEL:  func.func @train_step(
// NORM-COUNT-1: braid.adamw

func.func @train_step(%table: tensor<32x16xf32> {braid.name = "embed.weight", braid.role = "parameter"},
                      %correction: tensor<2x3x4xf32> {braid.name = "layers.{}.moe.correction", braid.role = "parameter", braid.trained = false,
                                                      braid.layers = array<i32: 0, 1, 2, 3, 4, 5>, braid.correction_rate = 0.125 : f64},
                      %tokens: tensor<2x8xi32> {braid.name = "tokens", braid.role = "input"}, %counts: tensor<2x3x4xi32>)
    -> (tensor<1xf32> {braid.name = "loss_sum"}, tensor<1xf32> {braid.name = "loss_count"},
        tensor<2x3x4xf32> {braid.name = "gradient.layers.{}.moe.correction", braid.role = "gradient", braid.of = "layers.{}.moe.correction", braid.layers = array<i32: 0, 1, 2, 3, 4, 5>})
    attributes {braid.entry, braid.train = {clip_norm = 1.0 : f64}} {
  %x = "braid.embed"(%tokens, %table) : (tensor<2x8xi32>, tensor<32x16xf32>) -> tensor<2x8x16xf32>
  %logits = "braid.linear"(%x, %table) <{transposed}> : (tensor<2x8x16xf32>, tensor<32x16xf32>) -> tensor<2x8x32xf32>
  %sum, %count, %lse = "braid.cross_entropy"(%logits, %tokens) : (tensor<2x8x32xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  %load = "braid.cast"(%counts) : (tensor<2x3x4xi32>) -> tensor<2x3x4xf32>
  return %sum, %count, %load : tensor<1xf32>, tensor<1xf32>, tensor<2x3x4xf32>
}

// -----

// Several batches: loads are added up as gradients are, the update reads their sum.
// CHECK-LABEL: func.func @accumulate_step(
// CHECK-SAME:    %[[SO_FAR:arg[0-9]+]]: tensor<4xf32> {braid.correction_rate = 1.250000e-01 : f64, braid.name = "gradient.layers.0.moe.correction"
// CHECK-NOT:     braid.moe.correct
// CHECK:         braid.add %[[SO_FAR]], %{{.*}} {braid.in_place}
// CHECK-LABEL: func.func @update_step(
// CHECK-SAME:    %[[SUM:arg[0-9]+]]: tensor<4xf32> {braid.correction_rate = 1.250000e-01 : f64, braid.name = "gradient.layers.0.moe.correction"
// CHECK:         %[[LOAD:.*]] = braid.reshape %[[SUM]] : (tensor<4xf32>) -> tensor<1x1x4xf32>
// CHECK:         braid.moe.correct %{{.*}}, %[[LOAD]]
func.func @accumulate_step(%table: tensor<32x16xf32> {braid.name = "embed.weight", braid.role = "parameter"},
                           %correction: tensor<4xf32> {braid.name = "layers.0.moe.correction", braid.role = "parameter", braid.trained = false,
                                                       braid.correction_rate = 0.125 : f64},
                           %tokens: tensor<2x8xi32> {braid.name = "tokens", braid.role = "input"}, %counts: tensor<4xi32>)
    -> (tensor<1xf32> {braid.name = "loss_sum"}, tensor<1xf32> {braid.name = "loss_count"},
        tensor<4xf32> {braid.correction_rate = 1.250000e-01 : f64, braid.name = "gradient.layers.0.moe.correction", braid.role = "gradient", braid.of = "layers.0.moe.correction"})
    attributes {braid.entry, braid.train = {accumulate, clip_norm = 1.0 : f64}} {
  %x = "braid.embed"(%tokens, %table) : (tensor<2x8xi32>, tensor<32x16xf32>) -> tensor<2x8x16xf32>
  %logits = "braid.linear"(%x, %table) <{transposed}> : (tensor<2x8x16xf32>, tensor<32x16xf32>) -> tensor<2x8x32xf32>
  %sum, %count, %lse = "braid.cross_entropy"(%logits, %tokens) : (tensor<2x8x32xf32>, tensor<2x8xi32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<2x8xf32>)
  %load = "braid.cast"(%counts) : (tensor<4xi32>) -> tensor<4xf32>
  return %sum, %count, %load : tensor<1xf32>, tensor<1xf32>, tensor<4xf32>
}
