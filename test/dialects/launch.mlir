// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// What an entry function consists of in phase `kernels`. The printed form and the generic form parse back to the same.

!x = tensor<2x16x2x8xf32>
!rows = tensor<1x32x16xbf16>
!off = tensor<5xi32>

// CHECK-LABEL: func.func @kernels(
func.func @kernels(%q: !x, %m: tensor<2x4xf32>) {
  // Everything by name; the second result shares the buffer of the first operand.
  // CHECK: tile.launch @kernel grid [8, 2, 2](%arg0, %arg1) {arg_names = ["q", "m"], inplace = array<i64: -1, 0>, result_names = ["o", "q"], scalars = {count = 16 : index, scale = 1.250000e-01 : f32}} : (tensor<2x16x2x8xf32>, tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x16x2x8xf32>)
  %o:2 = tile.launch @kernel grid [8, 2, 2](%q, %m) {arg_names = ["q", "m"], inplace = array<i64: -1, 0>, result_names = ["o", "q"], scalars = {count = 16 : index, scale = 0.125 : f32}} : (!x, tensor<2x4xf32>) -> (tensor<2x4xf32>, !x)
  // CHECK: tile.launch @fill grid [1]() {arg_names = [], inplace = array<i64: -1>, result_names = ["y"], scalars = {}} : () -> tensor<4xf32>
  %f = tile.launch @fill grid [1]() {arg_names = [], inplace = array<i64: -1>, result_names = ["y"], scalars = {}} : () -> tensor<4xf32>
  return
}

// Leading dimensions are rows, trailing ones columns.
// CHECK-LABEL: func.func @gemm(
func.func @gemm(%a: !x, %b: tensor<16x24xf32>, %c: tensor<2x16x24xf32>, %t: tensor<24x16xf32>) {
  // CHECK: tile.gemm %arg0, %arg1 {a_columns = 16 : i64, b_columns = 24 : i64, c_columns = 24 : i64} : (tensor<2x16x2x8xf32>, tensor<16x24xf32>) -> tensor<2x16x24xf32>
  %0 = tile.gemm %a, %b {a_columns = 16 : i64, b_columns = 24 : i64, c_columns = 24 : i64} : (!x, tensor<16x24xf32>) -> tensor<2x16x24xf32>
  // CHECK: tile.gemm %arg0, %arg1, %arg2 {a_columns = 16 : i64, b_columns = 24 : i64, c_columns = 24 : i64} : (tensor<2x16x2x8xf32>, tensor<16x24xf32>, tensor<2x16x24xf32>) -> tensor<2x16x24xf32>
  %1 = tile.gemm %a, %b, %c {a_columns = 16 : i64, b_columns = 24 : i64, c_columns = 24 : i64} : (!x, tensor<16x24xf32>, tensor<2x16x24xf32>) -> tensor<2x16x24xf32>
  // CHECK: tile.gemm %arg0, %arg3 {a_columns = 16 : i64, b_columns = 16 : i64, c_columns = 24 : i64, transpose_b} : (tensor<2x16x2x8xf32>, tensor<24x16xf32>) -> tensor<2x16x24xf32>
  %2 = tile.gemm %a, %t {a_columns = 16 : i64, b_columns = 16 : i64, c_columns = 24 : i64, transpose_b} : (!x, tensor<24x16xf32>) -> tensor<2x16x24xf32>
  // CHECK: tile.gemm %arg0, %arg1, %arg2 {a_columns = 16 : i64, apart, b_columns = 24 : i64, c_columns = 24 : i64} : (tensor<2x16x2x8xf32>, tensor<16x24xf32>, tensor<2x16x24xf32>) -> tensor<2x16x24xbf16>
  %4 = tile.gemm %a, %b, %c {apart, a_columns = 16 : i64, b_columns = 24 : i64, c_columns = 24 : i64} : (!x, tensor<16x24xf32>, tensor<2x16x24xf32>) -> tensor<2x16x24xbf16>
  // CHECK: tile.gemm %arg0, %arg2 {a_columns = 16 : i64, b_columns = 24 : i64, c_columns = 24 : i64, transpose_a} : (tensor<2x16x2x8xf32>, tensor<2x16x24xf32>) -> tensor<16x24xf32>
  %3 = tile.gemm %a, %c {a_columns = 16 : i64, b_columns = 24 : i64, c_columns = 24 : i64, transpose_a} : (!x, tensor<2x16x24xf32>) -> tensor<16x24xf32>
  return
}

// CHECK-LABEL: func.func @grouped(
func.func @grouped(%x: !rows, %w: tensor<4x16x24xbf16>, %t: tensor<4x24x16xbf16>, %dy: tensor<1x32x24xbf16>, %dw: tensor<4x16x24xf32>, %offsets: !off) {
  // CHECK: tile.grouped_gemm %arg0, %arg1, %arg5 : (tensor<1x32x16xbf16>, tensor<4x16x24xbf16>, tensor<5xi32>) -> tensor<1x32x24xbf16>
  %0 = tile.grouped_gemm %x, %w, %offsets : (!rows, tensor<4x16x24xbf16>, !off) -> tensor<1x32x24xbf16>
  // CHECK: tile.grouped_gemm %arg0, %arg2, %arg5, %arg3 {transpose_b} : (tensor<1x32x16xbf16>, tensor<4x24x16xbf16>, tensor<5xi32>, tensor<1x32x24xbf16>) -> tensor<1x32x24xbf16>
  %1 = tile.grouped_gemm %x, %t, %offsets, %dy {transpose_b} : (!rows, tensor<4x24x16xbf16>, !off, tensor<1x32x24xbf16>) -> tensor<1x32x24xbf16>
  // CHECK: tile.grouped_gemm %arg0, %arg3, %arg5, %arg4 {weight} : (tensor<1x32x16xbf16>, tensor<1x32x24xbf16>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<4x16x24xf32>
  %2 = tile.grouped_gemm %x, %dy, %offsets, %dw {weight} : (!rows, tensor<1x32x24xbf16>, !off, tensor<4x16x24xf32>) -> tensor<4x16x24xf32>
  return
}
