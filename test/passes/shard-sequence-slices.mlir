// RUN: braid-opt %s --braid-apply-sharding="mesh=sp=2 sliced=true" | FileCheck %s --check-prefix=MARKED
// RUN: braid-opt %s --braid-apply-sharding="mesh=sp=2 sliced=true" --braid-decide-schedule="pipeline=1A1M overlap-degree=2" --braid-expand-slices | FileCheck %s
// RUN: braid-opt %s --braid-apply-sharding="mesh=sp=2 sliced=true" --braid-decide-schedule="pipeline=moe overlap-degree=2" --braid-expand-slices | FileCheck %s --check-prefix=WHOLE
// RUN: not braid-opt %s --braid-apply-sharding="mesh=sp=2 sliced=true" --braid-verify-phase="phase=scheduled" 2>&1 | FileCheck %s --check-prefix=LEFT

// One slice is the row: what it sends is what a row without slices sends (shard-sequence.mlir).
// WHOLE: braid.comm.shift {{.*}}label = "conv.halo"
// WHOLE: braid.comm.shift {{.*}}label = "lsm.state"
// WHOLE: braid.attn.causal {{.*}}window = 20
// WHOLE-NOT: braid.sequence =
// LEFT: still has braid.sequence in phase scheduled; it must be dissolved by phase scheduled

!x = tensor<2x32x2x8xf32>
!l = tensor<2x2x32xf32>
!s = tensor<2x2x8x8xf32>
!t = tensor<2x3x16xf32>
// Every slice is divided. Sharding leaves ops that cross tokens as they are, local and marked with the argument that holds the rank's place.
// MARKED-LABEL: func.func private @layer(
// MARKED-SAME: tensor<2x16x2x8xf32>, %{{.*}}: tensor<2x16xi32>, %{{.*}}: tensor<16x4xf32>, %{{.*}}: tensor<1xi32>
// MARKED-NOT: braid.comm
// MARKED: braid.short_conv {{.*}}braid.sequence = {axis = "sp", coordinate = 3 : i64}
// MARKED: braid.lsm.scan I {{.*}}braid.sequence = {axis = "sp", coordinate = 3 : i64}
// MARKED: braid.attn.causal {{.*}}braid.sequence = {axis = "sp", coordinate = 3 : i64}
// MARKED: braid.documents %{{.*}}, %[[PLACE:.*]] : (tensor<2x4xi32>, tensor<1xi32>) -> tensor<2x16xi32>
// MARKED: call @layer({{.*}}, %[[PLACE]])

// Slices of 8 tokens a rank, 16 of the row. The file says where they end.
// CHECK: braid.metadata = {overlap_degree = "2", pipeline = "1A1M", sequence_slices = "16"}
// CHECK-LABEL: func.func private @layer(
// CHECK-SAME: %{{.*}}: tensor<2x16x2x8xf32>, %{{.*}}: tensor<2x16xi32>, %{{.*}}: tensor<16x4xf32>, %[[HERE:[^:]*]]: tensor<1xi32>
// The convolution: last rows of all ranks, the first slice's from nowhere, the second's from the last rank of the first.
// CHECK: %[[TAIL0:.*]] = braid.comm.all_gather %{{.*}}label = "conv.halo"{{.*}} -> tensor<2x6x16xf32>
// CHECK: braid.concat %{{.*}}, %{{.*}} {{.*}} -> tensor<2x6x16xf32>
// CHECK: braid.shard %{{.*}}, %[[HERE]] {{.*}}count = 2 : i64, dim = 1 : i64
// CHECK: %[[NEXT:.*]] = braid.slice %[[TAIL0]] {begin = 3 : i64
// CHECK: braid.short_conv {{.*}} : (tensor<2x8x2x8xf32>
// CHECK: braid.comm.all_gather {{.*}}label = "conv.halo"
// CHECK: braid.concat %[[NEXT]], %{{.*}} -> tensor<2x6x16xf32>
// The scan: both ends of every slice are known to all ranks.
// CHECK: braid.lsm.segment I
// CHECK: %{{.*}}, %[[BEHIND:.*]] = braid.lsm.fold %{{.*}}, %{{.*}} carry(%{{.*}}) {{.*}}
// CHECK: braid.lsm.scan I
// CHECK: braid.lsm.segment I
// CHECK: braid.lsm.fold %{{.*}}, %{{.*}} carry(%[[BEHIND]])
// Attention: the keys of a slice are gathered once; the second slice reads both.
// CHECK: %[[K0:.*]] = braid.comm.all_gather {{.*}}label = "attn.k"{{.*}} -> tensor<2x16x2x8xf32>
// CHECK: %[[K1:.*]] = braid.comm.all_gather {{.*}}label = "attn.k"
// CHECK: %[[FIRST:.*]] = braid.insert %[[K0]] {{.*}} -> tensor<2x32x2x8xf32>
// CHECK: %[[KEYS:.*]] = braid.insert %[[K1]], %[[FIRST]] {begin = 16 : i64
// CHECK: braid.attn.causal %{{.*}}, %[[FIRST]], {{.*}}, %[[HERE]] {braid.slice = 0 : i64, keys = 16 : i64
// CHECK: braid.attn.causal %{{.*}}, %[[KEYS]], %{{.*}}, %{{.*}}, %[[HERE]] {{.*}}prefix = 16 : i64
// CHECK-NOT: braid.sequence =
// Document starts are relative to what a rank has of a slice.
// CHECK: braid.documents %{{.*}}, %[[RANK:.*]] : (tensor<2x4xi32>, tensor<1xi32>) -> tensor<2x8xi32>
// CHECK: braid.documents %{{.*}}, %[[RANK]] {begin = 16 : i64} : (tensor<2x4xi32>, tensor<1xi32>) -> tensor<2x8xi32>
func.func private @layer(%x: !x, %documents: tensor<2x32xi32>, %w: tensor<16x4xf32>) -> !x {
  %state = arith.constant dense<0.0> : !s
  %tail = arith.constant dense<0.0> : !t
  %q, %new_tail = braid.short_conv %x, %w, %documents, %tail : (!x, tensor<16x4xf32>, tensor<2x32xi32>, !t) -> (!x, !t)
  %o, %final = braid.lsm.scan I %q, %x, %x initial_state(%state) documents(%documents) {scale = 1.0 : f64} : (!x, !x, !x, !s, tensor<2x32xi32>) -> (!x, !s)
  %a, %lse = braid.attn.causal %o, %x, %x, %documents {scale = 1.0 : f64, window = 20 : i64} : (!x, !x, !x, tensor<2x32xi32>) -> (!x, !l)
  return %a : !x
}
func.func @step(%x: !x {braid.dims = ["batch", "sequence"], braid.name = "x", braid.role = "input"}, %cu: tensor<2x4xi32> {braid.dims = ["batch"], braid.name = "cu_seqlens", braid.role = "input"},
                %w: tensor<16x4xf32> {braid.dims = ["", ""], braid.name = "w", braid.role = "parameter"}) -> (!x {braid.name = "y"}) attributes {braid.entry} {
  %d = braid.documents %cu : (tensor<2x4xi32>) -> tensor<2x32xi32>
  %y = call @layer(%x, %d, %w) : (!x, tensor<2x32xi32>, tensor<16x4xf32>) -> !x
  return %y : !x
}
