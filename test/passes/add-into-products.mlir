// Sums that become part of a product, and those that stay.
// RUN: braid-opt %s --braid-add-into-products | FileCheck %s
// RUN: braid-opt %s --braid-add-into-products --braid-fuse-rows --braid-outline | FileCheck %s --check-prefix=OUTLINED

!x = tensor<2x8x16xbf16>
!w = tensor<16x16xbf16>
!n = tensor<16xbf16>

// The residual stream behind a mixer: the sum is read twice, so it is stored anyway. On either side of the add.
// CHECK-LABEL: func @residual
// CHECK-NEXT: %[[R:.*]] = braid.linear_add %arg1, %arg2, %arg0 : ({{.*}}) -> tensor<2x8x16xbf16>
// CHECK-NEXT: braid.rms_norm %[[R]], %arg3
// CHECK-NEXT: %[[S:.*]] = braid.linear_add %{{.*}}, %arg2, %[[R]] {transposed}
// CHECK-NEXT: return %[[S]]
// OUTLINED-LABEL: func @residual
// OUTLINED: tile.gemm %arg1, %arg2, %arg0 {a_columns = 16 : i64, apart, b_columns = 16 : i64, c_columns = 16 : i64} : ({{.*}}) -> tensor<2x8x16xbf16>
func.func @residual(%x: !x, %o: !x, %w: !w, %n: !n) -> !x {
  %0 = braid.linear %o, %w : (!x, !w) -> !x
  %1 = braid.add %x, %0 : (!x, !x) -> !x
  %2 = braid.rms_norm %1, %n {eps = 1.0e-6} : (!x, !n) -> !x
  %3 = braid.linear %2, %w {transposed} : (!x, !w) -> !x
  %4 = braid.add %3, %1 : (!x, !x) -> !x
  return %4 : !x
}

// Where one kernel makes the sum and uses it, nothing of it is stored: a product would have to.
// CHECK-LABEL: func @in_a_kernel
// CHECK: braid.linear
// CHECK: braid.add
func.func @in_a_kernel(%x: !x, %o: !x, %w: !w, %n: !n) -> !x {
  %0 = braid.linear %o, %w : (!x, !w) -> !x
  %1 = braid.add %x, %0 : (!x, !x) -> !x
  %2 = braid.rms_norm %1, %n {eps = 1.0e-6} : (!x, !n) -> !x
  return %2 : !x
}

// A product that others read, one of two weights, a sum of three, and what a kernel for few rows computes.
// CHECK-LABEL: func @stays
// CHECK-NOT: braid.linear_add
func.func @stays(%x: !x, %o: !x, %w: !w, %token: tensor<1x1x16xbf16>) -> (!x, !x, !x, !x, !x, tensor<1x1x16xbf16>) {
  %0 = braid.linear %o, %w : (!x, !w) -> !x
  %1 = braid.add %x, %0 : (!x, !x) -> !x
  %2:2 = braid.linear %o, %w, %w : (!x, !w, !w) -> (!x, !x)
  %3 = braid.add %x, %2#0 : (!x, !x) -> !x
  %4 = braid.linear %1, %w : (!x, !w) -> !x
  %5 = braid.add %x, %4, %3 : (!x, !x, !x) -> !x
  %6 = braid.linear %token, %w : (tensor<1x1x16xbf16>, !w) -> tensor<1x1x16xbf16>
  %7 = braid.add %token, %6 : (tensor<1x1x16xbf16>, tensor<1x1x16xbf16>) -> tensor<1x1x16xbf16>
  return %0, %1, %2#1, %3, %5, %7 : !x, !x, !x, !x, !x, tensor<1x1x16xbf16>
}
