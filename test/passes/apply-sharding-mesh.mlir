// RUN: not braid-opt %s --braid-apply-sharding="mesh=dp=3,ep=2" 2>&1 | FileCheck %s --check-prefix=EP
// RUN: not braid-opt %s --braid-apply-sharding="mesh=cp=2" 2>&1 | FileCheck %s --check-prefix=AXIS
// RUN: not braid-opt %s --braid-apply-sharding="mesh=dp=0" 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not braid-opt %s --braid-apply-sharding="mesh=dp=4,ep=2,edp=4" 2>&1 | FileCheck %s --check-prefix=EDP
// RUN: braid-opt %s --braid-apply-sharding="mesh=dp=2,pp=2" | FileCheck %s --check-prefix=PP
// RUN: braid-opt %s --braid-apply-sharding="mesh=pp=1,dp=2,tp=2,edp=1,ep=2,etp=2" | FileCheck %s --check-prefix=VIEWS
// RUN: not braid-opt %s --braid-apply-sharding="mesh=dp=2,dp=2" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not braid-opt %s --braid-apply-sharding="mesh=dp=2," 2>&1 | FileCheck %s --check-prefix=COMMA
// RUN: not braid-opt %s --braid-apply-sharding="mesh=dp" 2>&1 | FileCheck %s --check-prefix=NOSIZE
// RUN: not braid-opt %s --braid-apply-sharding="mesh=dp=02" 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not braid-opt %s --braid-apply-sharding="mesh=ep=2" 2>&1 | FileCheck %s --check-prefix=ALONE
// RUN: braid-opt %s --braid-apply-sharding="mesh=dp=2,tp=2,ep=2" | FileCheck %s --check-prefix=VIEWS
// RUN: braid-opt %s --braid-apply-sharding="mesh=tp=2,ep=2" | FileCheck %s --check-prefix=ROOM
// RUN: braid-opt %s --braid-apply-sharding | FileCheck %s --check-prefix=ONE

// EP: error: mesh: ep etp = 2 does not divide dp sp tp = 3; valid: a divisor, so that both views have the same ranks (dp sp tp = edp ep etp): experts lie on the ranks of dp, sp and tp, as in dp=2,ep=2
// EDP: error: mesh: axis edp has size "4", but dp sp tp / (ep etp) is 2; valid: 2, or nothing: it follows
// Stages are the outermost axis of both views.
// PP: dense = [{axis = "pp", size = 2 : i64}, {axis = "dp", size = 2 : i64}, {{.*}}expert = [{axis = "pp", size = 2 : i64}, {axis = "edp", size = 2 : i64}
// AXIS: error: mesh: there is no axis "cp"; valid: dp=N, sp=N, tp=N, pp=N, ep=N, etp=N (edp follows)
// SIZE: error: mesh: axis dp has size "0"; valid: 1 to 4096
// TWICE: error: mesh: axis dp is given twice; valid: once
// COMMA: error: mesh: a comma stands before, behind or between no axes; valid: dp=2,ep=2
// NOSIZE: error: mesh: axis dp has no size; valid: dp=N with N of 1 to 4096
// ZERO: error: mesh: axis dp has size "02"; valid: 1 to 4096
// ALONE: error: mesh: ep etp = 2 does not divide dp sp tp = 1; valid: 1, so that both views have the same ranks (dp sp tp = edp ep etp): experts lie on the ranks of dp, sp and tp, as in dp=2,ep=2
// Experts are split on the ranks of tp where ep leaves room for it, and nowhere else.
// VIEWS: expert = [{axis = "pp", size = 1 : i64}, {axis = "edp", size = 1 : i64}, {axis = "ep", size = 2 : i64}, {axis = "etp", size = 2 : i64}]
// ROOM: expert = [{axis = "pp", size = 1 : i64}, {axis = "edp", size = 1 : i64}, {axis = "ep", size = 2 : i64}, {axis = "etp", size = 1 : i64}]
// One rank: nothing but the mesh is written.
// ONE: module attributes {braid.mesh = {dense = [{axis = "pp", size = 1 : i64}, {axis = "dp", size = 1 : i64}
// ONE: return %arg0 : tensor<4x8xf32>
func.func @f(%x: tensor<4x8xf32> {braid.name = "x", braid.role = "input"}) -> (tensor<4x8xf32> {braid.name = "y"}) attributes {braid.entry} {
  return %x : tensor<4x8xf32>
}
