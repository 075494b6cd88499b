// A collective over one rank is its operand; a shift that is not cyclic gives the first rank zeros. Others stay.
// RUN: braid-opt %s --braid-drop-idle-collectives | FileCheck %s

!x = tensor<4x8xf32>
!c = tensor<1x2xi32>

module attributes {braid.mesh = {dense = [{axis = "pp", size = 1 : i64}, {axis = "dp", size = 2 : i64}, {axis = "sp", size = 1 : i64}, {axis = "tp", size = 1 : i64}],
                                 expert = [{axis = "pp", size = 1 : i64}, {axis = "edp", size = 2 : i64}, {axis = "ep", size = 1 : i64}, {axis = "etp", size = 1 : i64}]}} {
  // CHECK-LABEL: func.func @idle(
  // CHECK-NOT: braid.comm
  // CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<4x8xf32>
  // CHECK-NOT: braid.comm
  // CHECK: return %arg0, %arg0, %arg0, %arg0, %arg0, %[[ZERO]]
  func.func @idle(%x: !x, %s: !c) -> (!x, !x, !x, !x, !x, !x) {
    %0 = braid.comm.all_reduce %x {axis = "sp*tp"} : (!x) -> !x
    %1 = braid.comm.all_gather %x {axis = "tp", dim = 1 : i64} : (!x) -> !x
    %2 = braid.comm.reduce_scatter %x {axis = "etp", dim = 0 : i64} : (!x) -> !x
    %3 = braid.comm.all_to_all %x send_counts(%s) recv_counts(%s) {axis = "ep", peers = 1 : i64} : (!x, !c, !c) -> !x
    %4 = braid.comm.shift %x {axis = "sp", cyclic} : (!x) -> !x
    %5 = braid.comm.shift %x {axis = "sp", reverse} : (!x) -> !x
    return %0, %1, %2, %3, %4, %5 : !x, !x, !x, !x, !x, !x
  }

  // CHECK-LABEL: func.func @busy(
  // CHECK: braid.comm.all_reduce %arg0 {axis = "dp*sp"}
  // CHECK: braid.comm.shift %{{.*}} {axis = "edp"}
  func.func @busy(%x: !x) -> !x {
    %0 = braid.comm.all_reduce %x {axis = "dp*sp"} : (!x) -> !x
    %1 = braid.comm.shift %0 {axis = "edp"} : (!x) -> !x
    return %1 : !x
  }
}
