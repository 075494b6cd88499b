// Collectives must fit the mesh that a module was sharded for.
// RUN: braid-opt %s --split-input-file --braid-verify-phase=phase=scheduled --verify-diagnostics

!x = tensor<4x8xf32>
module attributes {braid.mesh = {dense = [{axis = "dp", size = 2 : i64}, {axis = "sp", size = 2 : i64}], expert = [{axis = "edp", size = 1 : i64}, {axis = "ep", size = 4 : i64}]}} {
  func.func @fits(%x: !x) -> (tensor<16x8xf32>, tensor<1x8xf32>) {
    %0 = braid.comm.all_gather %x {axis = "dp*sp", dim = 0 : i64} : (!x) -> tensor<16x8xf32>
    %f = braid.comm.start reduce_scatter %x {axis = "ep"} : (!x) -> !braid.future<tensor<1x8xf32>>
    %1 = braid.comm.await %f : (!braid.future<tensor<1x8xf32>>) -> tensor<1x8xf32>
    return %0, %1 : tensor<16x8xf32>, tensor<1x8xf32>
  }
  func.func @axis(%x: !x) -> !x {
    // expected-error @+1 {{'braid.comm.all_reduce' op axis "dp*ep" is no axis or product of axes of the mesh}}
    %0 = braid.comm.all_reduce %x {axis = "dp*ep"} : (!x) -> !x
    return %0 : !x
  }
  func.func @twice(%x: !x) -> !x {
    // expected-error @+1 {{'braid.comm.shift' op axis "sp*sp" is no axis or product of axes of the mesh}}
    %0 = braid.comm.shift %x {axis = "sp*sp"} : (!x) -> !x
    return %0 : !x
  }
  func.func @gather(%x: !x) -> tensor<8x8xf32> {
    // expected-error @+1 {{'braid.comm.all_gather' op all_gather of 32 elements to 64 does not fit axis "ep" of 4 ranks}}
    %0 = braid.comm.all_gather %x {axis = "ep", dim = 0 : i64} : (!x) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
  func.func @scatter(%x: !x) -> tensor<1x8xf32> {
    // expected-error @+1 {{'braid.comm.start' op reduce_scatter of 32 elements to 8 does not fit axis "dp" of 2 ranks}}
    %f = braid.comm.start reduce_scatter %x {axis = "dp"} : (!x) -> !braid.future<tensor<1x8xf32>>
    %0 = braid.comm.await %f : (!braid.future<tensor<1x8xf32>>) -> tensor<1x8xf32>
    return %0 : tensor<1x8xf32>
  }
  func.func @exchange(%x: !x) -> !x {
    // expected-error @+1 {{'braid.comm.all_to_all' op has 2 peers but axis "ep" has 4 ranks}}
    %0 = braid.comm.all_to_all %x {axis = "ep", peers = 2 : i64} : (!x) -> !x
    return %0 : !x
  }
}
