// Clusters: neighbours over the same rows, kept apart by dependences, sums over rows and limits.
// RUN: braid-opt %s --braid-fuse-rows | FileCheck %s
// RUN: braid-opt %s --braid-fuse-rows=max-ops=2 | FileCheck %s --check-prefix=TWO
// RUN: braid-opt %s --braid-fuse-rows=max-values=4 | FileCheck %s --check-prefix=VALUES

!x = tensor<2x8x16xf32>
!w = tensor<16xf32>

// A chain becomes one cluster; the linear between it and the last activation ends it.
// CHECK-LABEL: func @chain
// CHECK: braid.add {{.*}}{braid.cluster = [[A:[0-9]+]] : i64}
// CHECK-NEXT: braid.rms_norm {{.*}}braid.cluster = [[A]]
// CHECK-NEXT: braid.activation {{.*}}braid.cluster = [[A]]
// CHECK-NEXT: braid.linear
// CHECK-NEXT: braid.activation %{{[0-9#]+}} {kind = "silu"}
// TWO-LABEL: func @chain
// TWO: braid.add {{.*}}{braid.cluster = [[A:[0-9]+]] : i64}
// TWO-NEXT: braid.rms_norm {{.*}}braid.cluster = [[A]]
// TWO-NEXT: braid.activation %{{[0-9]+}} {kind = "tanh"}
// a, b, the sum, the weight and the norm are five values: a cluster of four takes no third op.
// VALUES-LABEL: func @chain
// VALUES: braid.add {{.*}}{braid.cluster = [[A:[0-9]+]] : i64}
// VALUES-NEXT: braid.rms_norm {{.*}}braid.cluster = [[A]]
// VALUES-NEXT: braid.activation %{{[0-9]+}} {kind = "tanh"}
func.func @chain(%a: !x, %b: !x, %w: !w, %m: tensor<16x16xf32>) -> !x {
  %0 = braid.add %a, %b : (!x, !x) -> !x
  %1 = braid.rms_norm %0, %w {eps = 1.0e-6} : (!x, !w) -> !x
  %2 = braid.activation %1 {kind = "tanh"} : (!x) -> !x
  %3 = braid.linear %2, %m : (!x, tensor<16x16xf32>) -> !x
  %4 = braid.activation %3 {kind = "silu"} : (!x) -> !x
  return %4 : !x
}

// An op that needs nothing from in between moves up to the cluster.
// CHECK-LABEL: func @rises
// CHECK: braid.scale {{.*}}braid.cluster = [[B:[0-9]+]]
// CHECK-NEXT: braid.activation {{.*}}braid.cluster = [[B]]
// CHECK-NEXT: braid.linear
func.func @rises(%a: !x, %m: tensor<16x16xf32>) -> (!x, !x) {
  %0 = braid.scale %a {value = 2.0} : (!x) -> !x
  %1 = braid.linear %0, %m : (!x, tensor<16x16xf32>) -> !x
  %2 = braid.activation %0 {kind = "silu"} : (!x) -> !x
  return %1, %2 : !x, !x
}

// A gradient of a weight exists only after all rows: the op that reads it stays outside.
// CHECK-LABEL: func @sums
// CHECK: braid.rows_grad {{.*}}braid.cluster = [[C:[0-9]+]]
// CHECK-NEXT: braid.scale {{.*}}braid.cluster = [[C]]
// CHECK-NEXT: braid.weighted {{.*}} : (tensor<2x8x16xf32>, tensor<16xf32>)
func.func @sums(%a: !x, %w: !w, %dy: !x) -> (!x, !x) {
  %0:2 = braid.rows_grad "braid.weighted"(%a, %w) cotangents(%dy) {op_attributes = {}, wanted = array<i64: 0, 1>} : (!x, !w, !x) -> (!x, !w)
  %1 = braid.scale %0#0 {value = 2.0} : (!x) -> !x
  %2 = braid.weighted %0#0, %0#1 : (!x, !w) -> !x
  return %1, %2 : !x, !x
}

// Other rows, other kernel.
// CHECK-LABEL: func @rows
// CHECK-NOT: braid.cluster
func.func @rows(%a: !x, %b: tensor<2x4x16xf32>) -> (!x, tensor<2x4x16xf32>) {
  %0 = braid.scale %a {value = 2.0} : (!x) -> !x
  %1 = braid.scale %b {value = 2.0} : (tensor<2x4x16xf32>) -> tensor<2x4x16xf32>
  return %0, %1 : !x, tensor<2x4x16xf32>
}

// A weight in common is no reason, and what is a part of a longer sum stands alone.
// CHECK-LABEL: func @alone
// CHECK-NOT: braid.cluster
// CHECK: return
func.func @alone(%a: !x, %b: !x, %w: !w) -> (!x, !x, !x) {
  %0 = braid.rms_norm %a, %w {eps = 1.0e-6 : f64} : (!x, !w) -> !x
  %1 = braid.rms_norm %b, %w {eps = 1.0e-6 : f64} : (!x, !w) -> !x
  %2 = braid.add %0, %1, %b, %a {braid.partial_sum} : (!x, !x, !x, !x) -> !x
  return %0, %1, %2 : !x, !x, !x
}
