// RUN: braid-opt %s --braid-drop-idle-collectives --verify-diagnostics
// An axis that is not there has one rank as little as it has two.
module attributes {braid.mesh = {dense = [{axis = "dp", size = 2 : i64}], expert = [{axis = "edp", size = 2 : i64}]}} {
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{'braid.comm.all_reduce' op axis "dq" is no axis or product of axes of the mesh}}
    %0 = braid.comm.all_reduce %x {axis = "dq"} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
