// RUN: braid-opt %s --braid-describe-schedule="remarks=true" 2> %t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: braid-opt %s --braid-describe-schedule 2>&1 | FileCheck %s --check-prefix=QUIET
// What was decided stands in the metadata, order and all; nothing else changes.

// CHECK-DAG: model_name = "m"
// CHECK-DAG: schedule.layer_L = "3 slices of 4, 4, 4 tokens; 1A1M: A0.0 D0.0 A0.1 M0.0 C0.0"
// CHECK-DAG: schedule.layer_N = "1 slice of 12 tokens, experts in 2 slices of 6, 6 tokens; best takes moe: A0.0 D0.0"
// CHECK: func.func private @layer_L({{.*}}braid.schedule
// REMARK: remark: @layer_L (layers 0, 1): 3 slices of 4, 4, 4 tokens; 1A1M
// REMARK: remark: @layer_N: 1 slice of 12 tokens, experts in 2 slices of 6, 6 tokens; best takes moe
// QUIET-NOT: remark
module attributes {braid.metadata = {model_name = "m"}} {
  func.func private @layer_L(%x: tensor<2x12x8xf32>, %w: tensor<8xf32>) -> tensor<2x12x8xf32> attributes {braid.schedule = {direction = "forward", pipeline = "1A1M",
      token_slices = array<i64: 0, 4, 8, 12>, order = ["A0.0", "D0.0", "A0.1", "M0.0", "C0.0"]}} {
    return %x : tensor<2x12x8xf32>
  }
  func.func private @layer_N(%x: tensor<2x12x8xf32>) -> tensor<2x12x8xf32> attributes {braid.schedule = {direction = "forward", pipeline = "best", how = "moe",
      token_slices = array<i64: 0, 12>, moe_slices = array<i64: 0, 6, 12>, order = ["A0.0", "D0.0"]}} {
    return %x : tensor<2x12x8xf32>
  }
  func.func @eval_step(%x: tensor<2x12x8xf32> {braid.name = "x", braid.role = "input"},
                       %w: tensor<2x8xf32> {braid.name = "layers.{}.w", braid.role = "parameter", braid.layers = array<i32: 0, 1>})
      -> (tensor<2x12x8xf32> {braid.name = "y", braid.role = "output"}) attributes {braid.entry} {
    %y = braid.repeat %x, %w {count = 2 : i64, carried = 1 : i64} : (tensor<2x12x8xf32>, tensor<2x8xf32>) -> tensor<2x12x8xf32> {
    ^bb0(%a: tensor<2x12x8xf32>, %b: tensor<8xf32>):
      %r = func.call @layer_L(%a, %b) : (tensor<2x12x8xf32>, tensor<8xf32>) -> tensor<2x12x8xf32>
      braid.yield %r : (tensor<2x12x8xf32>) -> ()
    }
    %z = func.call @layer_N(%y) : (tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
    return %z : tensor<2x12x8xf32>
  }
}
