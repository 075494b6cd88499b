// RUN: braid-opt %s --braid-apply-sharding="mesh=dp=2,sp=2" | FileCheck %s

!x = tensor<4x8x64xf32>
!w = tensor<64x64xf32>
!b = tensor<64xf32>
!e = tensor<4x64x64xf32>
!one = tensor<1xf32>
// Optimizer states are cut by dp sp, which the gradient is summed over (ZeRO-1): the sum comes in parts, each rank squares and updates its own, and the
// parameter is put together again, while those that need not be are updated. What is small is whole on every rank.
// CHECK-LABEL: func.func @train_step(
// CHECK-SAME: tensor<64x64xf32> {braid.dims = ["", ""], braid.name = "w", braid.role = "parameter"}
// CHECK-SAME: tensor<16x64xf32> {braid.name = "w.first", braid.of = "w", braid.role = "moment", braid.shards = {{\[}}[0, "dp*sp"]]}
// CHECK-SAME: tensor<64xf32> {braid.name = "b.first", braid.of = "b", braid.role = "moment"}
// CHECK: %[[GRAD:.*]] = braid.linear_grad_weight
// CHECK: %[[PART:.*]] = braid.comm.reduce_scatter %[[GRAD]] {axis = "dp*sp", dim = 0 : i64} : (tensor<64x64xf32>) -> tensor<16x64xf32>
// CHECK-DAG: %[[SQUARES:.*]] = braid.sum_squares %[[PART]]
// CHECK-DAG: braid.comm.all_reduce %[[SQUARES]] {axis = "dp*sp"}
// CHECK-NOT: braid.adamw %arg5
// CHECK: %[[OWN:.*]] = braid.shard %arg2, %[[PLACE:.*]] {count = 4 : i64, dim = 0 : i64}
// CHECK: %[[NEW:.*]], %[[FIRST:.*]], %[[SECOND:.*]] = braid.adamw %[[OWN]], %[[PART]], %arg3, %arg4
// CHECK: %[[WHOLE:.*]] = braid.comm.all_gather %[[NEW]] {axis = "dp*sp", dim = 0 : i64} : (tensor<16x64xf32>) -> tensor<64x64xf32>
// CHECK-NEXT: braid.adamw %arg5
// CHECK: return %[[WHOLE]], %[[FIRST]], %[[SECOND]]
func.func @train_step(
    %x: !x {braid.dims = ["batch", "sequence"], braid.name = "x", braid.role = "input"}, %dy: !x {braid.dims = ["batch", "sequence"], braid.name = "dy", braid.role = "input"},
    %w: !w {braid.dims = ["", ""], braid.name = "w", braid.role = "parameter"}, %first: !w {braid.name = "w.first", braid.of = "w", braid.role = "moment"},
    %second: !w {braid.name = "w.second", braid.of = "w", braid.role = "moment"},
    %b: !b {braid.dims = [""], braid.name = "b", braid.role = "parameter"}, %bfirst: !b {braid.name = "b.first", braid.of = "b", braid.role = "moment"},
    %bsecond: !b {braid.name = "b.second", braid.of = "b", braid.role = "moment"}, %rate: !one {braid.name = "rate", braid.role = "input"},
    %step: tensor<1xi32> {braid.name = "step", braid.role = "input"})
    -> (!w {braid.alias = 2 : i64, braid.name = "w", braid.role = "parameter"}, !w {braid.alias = 3 : i64, braid.name = "w.first", braid.of = "w", braid.role = "moment"},
        !w {braid.alias = 4 : i64, braid.name = "w.second", braid.of = "w", braid.role = "moment"}, !b {braid.alias = 5 : i64, braid.name = "b", braid.role = "parameter"},
        !b {braid.alias = 6 : i64, braid.name = "b.first", braid.of = "b", braid.role = "moment"}, !b {braid.alias = 7 : i64, braid.name = "b.second", braid.of = "b", braid.role = "moment"})
    attributes {braid.entry} {
  %dw = braid.linear_grad_weight %x cotangents(%dy) : (!x, !x) -> !w
  %db = braid.rows_grad "braid.bias"(%x, %b) cotangents(%dy) {op_attributes = {}, wanted = array<i64: 1>} : (!x, !b, !x) -> !b
  %norm = braid.sum_squares %dw, %db : (!w, !b) -> !one
  %1:3 = braid.adamw %b, %db, %bfirst, %bsecond, %rate, %step, %norm {beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.0} : (!b, !b, !b, !b, !one, tensor<1xi32>, !one) -> (!b, !b, !b)
  %0:3 = braid.adamw %w, %dw, %first, %second, %rate, %step, %norm {beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.1} : (!w, !w, !w, !w, !one, tensor<1xi32>, !one) -> (!w, !w, !w)
  return %0#0, %0#1, %0#2, %1#0, %1#1, %1#2 : !w, !w, !w, !b, !b, !b
}

// What is small is summed over the ranks all together: one message for the gradients of one type.
// CHECK-LABEL: func.func @small(
// CHECK: %[[DB:.*]] = braid.rows_grad
// CHECK: %[[DC:.*]] = braid.rows_grad
// CHECK-NOT: braid.comm
// CHECK-DAG: %[[FLATB:.*]] = braid.reshape %[[DB]]
// CHECK-DAG: %[[FLATC:.*]] = braid.reshape %[[DC]]
// CHECK: %[[BUCKET:.*]] = braid.concat %[[FLATB]], %[[FLATC]] {dim = 0 : i64} : (tensor<64xf32>, tensor<64xf32>) -> tensor<128xf32>
// CHECK-NEXT: %[[SUM:.*]] = braid.comm.all_reduce %[[BUCKET]] {axis = "dp*sp"{{.*}}} : (tensor<128xf32>) -> tensor<128xf32>
// CHECK-DAG: braid.slice %[[SUM]] {begin = 0 : i64
// CHECK-DAG: braid.slice %[[SUM]] {begin = 64 : i64
// CHECK-NOT: braid.comm
func.func @small(
    %dy: !x {braid.dims = ["batch", "sequence"], braid.name = "dy", braid.role = "input"},
    %b: !b {braid.dims = [""], braid.name = "b", braid.role = "parameter"}, %bfirst: !b {braid.name = "b.first", braid.of = "b", braid.role = "moment"},
    %bsecond: !b {braid.name = "b.second", braid.of = "b", braid.role = "moment"},
    %c: !b {braid.dims = [""], braid.name = "c", braid.role = "parameter"}, %cfirst: !b {braid.name = "c.first", braid.of = "c", braid.role = "moment"},
    %csecond: !b {braid.name = "c.second", braid.of = "c", braid.role = "moment"}, %rate: !one {braid.name = "rate", braid.role = "input"},
    %step: tensor<1xi32> {braid.name = "step", braid.role = "input"})
    -> (!b {braid.alias = 1 : i64, braid.name = "b", braid.role = "parameter"}, !b {braid.alias = 2 : i64, braid.name = "b.first", braid.of = "b", braid.role = "moment"},
        !b {braid.alias = 3 : i64, braid.name = "b.second", braid.of = "b", braid.role = "moment"}, !b {braid.alias = 4 : i64, braid.name = "c", braid.role = "parameter"},
        !b {braid.alias = 5 : i64, braid.name = "c.first", braid.of = "c", braid.role = "moment"}, !b {braid.alias = 6 : i64, braid.name = "c.second", braid.of = "c", braid.role = "moment"})
    attributes {braid.entry} {
  %db = braid.rows_grad "braid.bias"(%dy, %b) cotangents(%dy) {op_attributes = {}, wanted = array<i64: 1>} : (!x, !b, !x) -> !b
  %dc = braid.rows_grad "braid.bias"(%dy, %c) cotangents(%dy) {op_attributes = {}, wanted = array<i64: 1>} : (!x, !b, !x) -> !b
  %norm = braid.sum_squares %db, %dc : (!b, !b) -> !one
  %0:3 = braid.adamw %b, %db, %bfirst, %bsecond, %rate, %step, %norm {beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.0} : (!b, !b, !b, !b, !one, tensor<1xi32>, !one) -> (!b, !b, !b)
  %1:3 = braid.adamw %c, %dc, %cfirst, %csecond, %rate, %step, %norm {beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.0} : (!b, !b, !b, !b, !one, tensor<1xi32>, !one) -> (!b, !b, !b)
  return %0#0, %0#1, %0#2, %1#0, %1#1, %1#2 : !b, !b, !b, !b, !b, !b
}
