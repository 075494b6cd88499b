// RUN: braid-opt %s --braid-apply-sharding="mesh=sp=4" | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: braid-opt %s --braid-apply-sharding="mesh=sp=16" | FileCheck %s --check-prefixes=CHECK,SIXTEEN
// Without a word the costs choose. Small states: what counts is how many messages wait for each other, so all ranks send at once. Large ones with
// dense transitions: bytes count; a ring sends no transitions, and among many ranks a scan of log2 steps sends least.

!k = tensor<1x64x2x16xf32>
!s = tensor<1x2x16x16xf32>
!wide = tensor<1x64x32x256xf32>
!states = tensor<1x32x256x256xf32>
!b = tensor<1x64x2xf32>
!bw = tensor<1x64x32xf32>
!d = tensor<1x64xi32>

// CHECK-LABEL: func.func @small(
// CHECK-NOT: braid.comm.shift
// CHECK: braid.comm.all_gather
// CHECK-NOT: braid.comm.shift
// CHECK-LABEL: func.func @large(
// CHECK-NOT: braid.comm.all_gather
// FOUR-COUNT-3: braid.comm.shift %{{.*}} {axis = "sp", label = "lsm.state"}
// FOUR-NOT: braid.comm
// SIXTEEN: label = "lsm.transition"
// SIXTEEN: braid.comm.shift %{{.*}} {axis = "sp", distance = 8 : i64, label = "lsm.state"}
// SIXTEEN-NOT: braid.comm
// CHECK: braid.lsm.scan H
func.func @small(%q: !k {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %b: !b {braid.name = "b", braid.role = "input", braid.dims = ["batch", "sequence"]},
                 %cu: tensor<1x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!k {braid.name = "o"}) attributes {braid.entry} {
  %d = braid.documents %cu : (tensor<1x4xi32>) -> !d
  %zero = arith.constant dense<0.0> : !s
  %o, %final = braid.lsm.scan H %q, %q, %q beta(%b) initial_state(%zero) documents(%d) {scale = 1.0 : f64} : (!k, !k, !k, !b, !s, !d) -> (!k, !s)
  return %o : !k
}
func.func @large(%q: !wide {braid.name = "q", braid.role = "input", braid.dims = ["batch", "sequence"]}, %b: !bw {braid.name = "b", braid.role = "input", braid.dims = ["batch", "sequence"]},
                 %cu: tensor<1x4xi32> {braid.name = "cu_seqlens", braid.role = "input", braid.dims = ["batch"]}) -> (!wide {braid.name = "o"}) attributes {braid.entry} {
  %d = braid.documents %cu : (tensor<1x4xi32>) -> !d
  %zero = arith.constant dense<0.0> : !states
  %o, %final = braid.lsm.scan H %q, %q, %q beta(%b) initial_state(%zero) documents(%d) {scale = 1.0 : f64} : (!wide, !wide, !wide, !bw, !states, !d) -> (!wide, !states)
  return %o : !wide
}
