// RUN: not braid-opt %s --braid-apply-sharding="mesh=dp=3,ep=2" 2>&1 | FileCheck %s --check-prefix=EP
// RUN: not braid-opt %s --braid-apply-sharding="mesh=tp=2" 2>&1 | FileCheck %s --check-prefix=AXIS
// RUN: not braid-opt %s --braid-apply-sharding="mesh=dp=0" 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not braid-opt %s --braid-apply-sharding="mesh=dp=2,dp=2" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: braid-opt %s --braid-apply-sharding | FileCheck %s --check-prefix=ONE

// EP: error: mesh: ep = 2 does not divide dp = 3; valid: a divisor of dp, so that both views have the same ranks (dp = edp ep)
// AXIS: error: mesh: there is no axis "tp"; valid: dp=N, ep=N (edp follows)
// SIZE: error: mesh: axis dp has size "0"; valid: 1 to 4096
// TWICE: error: mesh: axis dp is given twice; valid: once
// One rank: nothing but the mesh is written.
// ONE: module attributes {braid.mesh = {dense = [{axis = "pp", size = 1 : i64}, {axis = "dp", size = 1 : i64}
// ONE: return %arg0 : tensor<4x8xf32>
func.func @f(%x: tensor<4x8xf32> {braid.name = "x", braid.role = "input"}) -> (tensor<4x8xf32> {braid.name = "y"}) attributes {braid.entry} {
  return %x : tensor<4x8xf32>
}
