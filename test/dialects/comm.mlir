// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// Collectives, whole and as start and await. The printed form and the generic form parse back to the same.

!x = tensor<4x8xf32>
!rows = tensor<1x32x16xbf16>
!c = tensor<2x3xi32>

// CHECK-LABEL: func.func @whole(
func.func @whole(%x: !x, %rows: !rows, %send: !c, %recv: !c) {
  // CHECK: braid.comm.all_reduce %arg0 {axis = "dp"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %0 = braid.comm.all_reduce %x {axis = "dp"} : (!x) -> !x
  // CHECK: braid.comm.all_to_all %arg0 {axis = "ep", peers = 4 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = braid.comm.all_to_all %x {axis = "ep", peers = 4 : i64} : (!x) -> !x
  // CHECK: braid.comm.all_to_all %arg1 send_counts(%arg2) recv_counts(%arg3) {axis = "ep", peers = 2 : i64} : (tensor<1x32x16xbf16>, tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<1x32x16xbf16>
  %2 = braid.comm.all_to_all %rows send_counts(%send) recv_counts(%recv) {axis = "ep", peers = 2 : i64} : (!rows, !c, !c) -> !rows
  // CHECK: braid.comm.all_gather %arg0 {axis = "dp*sp", dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x24xf32>
  %3 = braid.comm.all_gather %x {axis = "dp*sp", dim = 1 : i64} : (!x) -> tensor<4x24xf32>
  // CHECK: braid.comm.reduce_scatter %arg0 {axis = "tp", dim = 0 : i64} : (tensor<4x8xf32>) -> tensor<2x8xf32>
  %4 = braid.comm.reduce_scatter %x {axis = "tp", dim = 0 : i64} : (!x) -> tensor<2x8xf32>
  // CHECK: braid.comm.shift %arg0 {axis = "sp"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %5 = braid.comm.shift %x {axis = "sp"} : (!x) -> !x
  // CHECK: braid.comm.shift %arg0 {axis = "sp", cyclic, distance = 2 : i64, reverse} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %6 = braid.comm.shift %x {axis = "sp", cyclic, distance = 2 : i64, reverse} : (!x) -> !x
  return
}

// CHECK-LABEL: func.func @halves(
func.func @halves(%x: !x, %rows: !rows, %send: !c, %recv: !c) {
  // CHECK: braid.comm.start all_reduce %arg0 {axis = "dp", label = "gradient"} : (tensor<4x8xf32>) -> !braid.future<tensor<4x8xf32>>
  %f = braid.comm.start all_reduce %x {axis = "dp", label = "gradient"} : (!x) -> !braid.future<tensor<4x8xf32>>
  // CHECK: braid.comm.start all_to_all %arg1, %arg2, %arg3 {axis = "ep", peers = 2 : i64} : (tensor<1x32x16xbf16>, tensor<2x3xi32>, tensor<2x3xi32>) -> !braid.future<tensor<1x32x16xbf16>>
  %g = braid.comm.start all_to_all %rows, %send, %recv {axis = "ep", peers = 2 : i64} : (!rows, !c, !c) -> !braid.future<tensor<1x32x16xbf16>>
  // CHECK: braid.comm.await %{{.*}} : (!braid.future<tensor<4x8xf32>>) -> tensor<4x8xf32>
  %0 = braid.comm.await %f : (!braid.future<tensor<4x8xf32>>) -> !x
  // CHECK: braid.comm.await %{{.*}} : (!braid.future<tensor<1x32x16xbf16>>) -> tensor<1x32x16xbf16>
  %1 = braid.comm.await %g : (!braid.future<tensor<1x32x16xbf16>>) -> !rows
  // CHECK: braid.comm.start all_gather %arg0 {axis = "tp", dim = 1 : i64} : (tensor<4x8xf32>) -> !braid.future<tensor<4x16xf32>>
  %h = braid.comm.start all_gather %x {axis = "tp", dim = 1 : i64} : (!x) -> !braid.future<tensor<4x16xf32>>
  // CHECK: braid.comm.start reduce_scatter %arg0 {axis = "tp"} : (tensor<4x8xf32>) -> !braid.future<tensor<1x8xf32>>
  %i = braid.comm.start reduce_scatter %x {axis = "tp"} : (!x) -> !braid.future<tensor<1x8xf32>>
  // CHECK: braid.comm.start shift %arg0 {axis = "sp", reverse} : (tensor<4x8xf32>) -> !braid.future<tensor<4x8xf32>>
  %j = braid.comm.start shift %x {axis = "sp", reverse} : (!x) -> !braid.future<tensor<4x8xf32>>
  return
}
