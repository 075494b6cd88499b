// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s
// The affine scan of every class, its adjoint, its step, and the chunk forms. The printed form and the generic form parse back
// to the same. B = 2, T = 40, H = 3, K = 8, V = 4; chunks of 16: 3 and one more for documents.

!k = tensor<2x40x3x8xf32>
!v = tensor<2x40x3x4xf32>
!g = tensor<2x40x3xf32>
!s = tensor<2x3x8x4xf32>
!d = tensor<2x40xi32>
!c = tensor<2x4x4xi32>
!m = tensor<2x4x3x8x4xf32>

// CHECK-LABEL: func.func @class_I(
func.func @class_I(%q: !k, %k: !k, %v: !v, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan %arg0, %arg1, %arg2, %arg3, %arg4 {class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan %q, %k, %v, %state, %documents {class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad %arg0, %arg1, %arg2, %arg3, %arg4, %o, %final_state {chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %r:4 = braid.lsm.scan_grad %q, %k, %v, %state, %documents, %o, %final {chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !s, !d, !v, !s) -> (!k, !k, !v, !s)
  return
}

// CHECK-LABEL: func.func @chunks_I(
func.func @chunks_I(%q: !k, %k: !k, %v: !v, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg4 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state %arg1, %arg2, %{{.*}} {chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 0, 0, 1>} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %x = braid.lsm.chunk_state %k, %v, %c {chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 0, 0, 1>}
      : (!k, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan %x, %arg3, %{{.*}} {class_id = 0 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan %x, %state, %c {class_id = 0 : i32} : (!m, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output %arg0, %arg1, %arg2, %m, %{{.*}} {chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output %q, %k, %v, %m, %c {chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state %arg0, %arg1, %arg2, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state %q, %k, %v, %o, %c {chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad %{{.*}}, %final_state, %{{.*}} {class_id = 0 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad %dm, %final, %c {class_id = 0 : i32} : (!m, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad %arg0, %arg1, %arg2, %m, %dx, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>)
  %r:3 = braid.lsm.chunk_grad %q, %k, %v, %m, %dx, %o, %c {chunk_size = 16 : i64, class_id = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !m, !m, !v, !c) -> (!k, !k, !v)
  return
}

// CHECK-LABEL: func.func @class_S0(
func.func @class_S0(%q: !k, %k: !k, %v: !v, %g: tensor<3xf32>, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan %arg0, %arg1, %arg2, %arg3, %arg4, %arg5 {class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan %q, %k, %v, %g, %state, %documents {class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3xf32>, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %o, %final_state {chunk_size = 16 : i64, class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %r:4 = braid.lsm.scan_grad %q, %k, %v, %g, %state, %documents, %o, %final {chunk_size = 16 : i64, class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3xf32>, !s, !d, !v, !s) -> (!k, !k, !v, !s)
  return
}

// CHECK-LABEL: func.func @chunks_S0(
func.func @chunks_S0(%q: !k, %k: !k, %v: !v, %g: tensor<3xf32>, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg5 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state %arg1, %arg2, %arg3, %{{.*}} {chunk_size = 16 : i64, class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>)
  %x, %p = braid.lsm.chunk_state %k, %v, %g, %c {chunk_size = 16 : i64, class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>}
      : (!k, !v, tensor<3xf32>, !c) -> (!m, tensor<2x4x3xf32>)
  // CHECK: braid.lsm.state_scan %x, %p, %arg4, %{{.*}} {class_id = 1 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan %x, %p, %state, %c {class_id = 1 : i32} : (!m, tensor<2x4x3xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output %arg0, %arg1, %arg2, %arg3, %m, %{{.*}} {chunk_size = 16 : i64, class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output %q, %k, %v, %g, %m, %c {chunk_size = 16 : i64, class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3xf32>, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state %arg0, %arg1, %arg2, %arg3, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state %q, %k, %v, %g, %o, %c {chunk_size = 16 : i64, class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3xf32>, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad %{{.*}}, %p, %final_state, %{{.*}} {class_id = 1 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad %dm, %p, %final, %c {class_id = 1 : i32} : (!m, tensor<2x4x3xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad %arg0, %arg1, %arg2, %arg3, %m, %dx, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>)
  %r:3 = braid.lsm.chunk_grad %q, %k, %v, %g, %m, %dx, %o, %c {chunk_size = 16 : i64, class_id = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3xf32>, !m, !m, !v, !c) -> (!k, !k, !v)
  return
}

// CHECK-LABEL: func.func @class_S(
func.func @class_S(%q: !k, %k: !k, %v: !v, %g: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan %arg0, %arg1, %arg2, %arg3, %arg4, %arg5 {class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan %q, %k, %v, %g, %state, %documents {class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %o, %final_state {chunk_size = 16 : i64, class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  %r:5 = braid.lsm.scan_grad %q, %k, %v, %g, %state, %documents, %o, %final {chunk_size = 16 : i64, class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !s, !d, !v, !s) -> (!k, !k, !v, !g, !s)
  return
}

// CHECK-LABEL: func.func @chunks_S(
func.func @chunks_S(%q: !k, %k: !k, %v: !v, %g: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg5 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state %arg1, %arg2, %arg3, %{{.*}} {chunk_size = 16 : i64, class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>)
  %x, %p = braid.lsm.chunk_state %k, %v, %g, %c {chunk_size = 16 : i64, class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>}
      : (!k, !v, !g, !c) -> (!m, tensor<2x4x3xf32>)
  // CHECK: braid.lsm.state_scan %x, %p, %arg4, %{{.*}} {class_id = 2 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan %x, %p, %state, %c {class_id = 2 : i32} : (!m, tensor<2x4x3xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output %arg0, %arg1, %arg2, %arg3, %m, %{{.*}} {chunk_size = 16 : i64, class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output %q, %k, %v, %g, %m, %c {chunk_size = 16 : i64, class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state %arg0, %arg1, %arg2, %arg3, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state %q, %k, %v, %g, %o, %c {chunk_size = 16 : i64, class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad %{{.*}}, %p, %final_state, %{{.*}} {class_id = 2 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad %dm, %p, %final, %c {class_id = 2 : i32} : (!m, tensor<2x4x3xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad %arg0, %arg1, %arg2, %arg3, %m, %dx, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>)
  %r:4 = braid.lsm.chunk_grad %q, %k, %v, %g, %m, %dx, %o, %c {chunk_size = 16 : i64, class_id = 2 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !m, !m, !v, !c) -> (!k, !k, !v, !g)
  return
}

// CHECK-LABEL: func.func @class_V(
func.func @class_V(%q: !k, %k: !k, %v: !v, %g: !k, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan %arg0, %arg1, %arg2, %arg3, %arg4, %arg5 {class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan %q, %k, %v, %g, %state, %documents {class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %o, %final_state {chunk_size = 16 : i64, class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>)
  %r:5 = braid.lsm.scan_grad %q, %k, %v, %g, %state, %documents, %o, %final {chunk_size = 16 : i64, class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !s, !d, !v, !s) -> (!k, !k, !v, !k, !s)
  return
}

// CHECK-LABEL: func.func @chunks_V(
func.func @chunks_V(%q: !k, %k: !k, %v: !v, %g: !k, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg5 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state %arg1, %arg2, %arg3, %{{.*}} {chunk_size = 16 : i64, class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>)
  %x, %p = braid.lsm.chunk_state %k, %v, %g, %c {chunk_size = 16 : i64, class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>}
      : (!k, !v, !k, !c) -> (!m, tensor<2x4x3x8xf32>)
  // CHECK: braid.lsm.state_scan %x, %p, %arg4, %{{.*}} {class_id = 3 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan %x, %p, %state, %c {class_id = 3 : i32} : (!m, tensor<2x4x3x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output %arg0, %arg1, %arg2, %arg3, %m, %{{.*}} {chunk_size = 16 : i64, class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output %q, %k, %v, %g, %m, %c {chunk_size = 16 : i64, class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state %arg0, %arg1, %arg2, %arg3, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state %q, %k, %v, %g, %o, %c {chunk_size = 16 : i64, class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad %{{.*}}, %p, %final_state, %{{.*}} {class_id = 3 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad %dm, %p, %final, %c {class_id = 3 : i32} : (!m, tensor<2x4x3x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad %arg0, %arg1, %arg2, %arg3, %m, %dx, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>)
  %r:4 = braid.lsm.chunk_grad %q, %k, %v, %g, %m, %dx, %o, %c {chunk_size = 16 : i64, class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !m, !m, !v, !c) -> (!k, !k, !v, !k)
  return
}

// CHECK-LABEL: func.func @class_H(
func.func @class_H(%q: !k, %k: !k, %v: !v, %b: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan %arg0, %arg1, %arg2, %arg3, %arg4, %arg5 {class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan %q, %k, %v, %b, %state, %documents {class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %o, %final_state {chunk_size = 16 : i64, class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  %r:5 = braid.lsm.scan_grad %q, %k, %v, %b, %state, %documents, %o, %final {chunk_size = 16 : i64, class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !s, !d, !v, !s) -> (!k, !k, !v, !g, !s)
  return
}

// CHECK-LABEL: func.func @chunks_H(
func.func @chunks_H(%q: !k, %k: !k, %v: !v, %b: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg5 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state %arg1, %arg2, %arg3, %{{.*}} {chunk_size = 16 : i64, class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1>} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>)
  %x, %p = braid.lsm.chunk_state %k, %v, %b, %c {chunk_size = 16 : i64, class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1>}
      : (!k, !v, !g, !c) -> (!m, tensor<2x4x3x8x8xf32>)
  // CHECK: braid.lsm.state_scan %x, %p, %arg4, %{{.*}} {class_id = 4 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan %x, %p, %state, %c {class_id = 4 : i32} : (!m, tensor<2x4x3x8x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output %arg0, %arg1, %arg2, %arg3, %m, %{{.*}} {chunk_size = 16 : i64, class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output %q, %k, %v, %b, %m, %c {chunk_size = 16 : i64, class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state %arg0, %arg1, %arg2, %arg3, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state %q, %k, %v, %b, %o, %c {chunk_size = 16 : i64, class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad %{{.*}}, %p, %final_state, %{{.*}} {class_id = 4 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad %dm, %p, %final, %c {class_id = 4 : i32} : (!m, tensor<2x4x3x8x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad %arg0, %arg1, %arg2, %arg3, %m, %dx, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>)
  %r:4 = braid.lsm.chunk_grad %q, %k, %v, %b, %m, %dx, %o, %c {chunk_size = 16 : i64, class_id = 4 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !m, !m, !v, !c) -> (!k, !k, !v, !g)
  return
}

// CHECK-LABEL: func.func @class_GH(
func.func @class_GH(%q: !k, %k: !k, %v: !v, %g: !g, %b: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6 {class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan %q, %k, %v, %g, %b, %state, %documents {class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !g, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %o, %final_state {chunk_size = 16 : i64, class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  %r:6 = braid.lsm.scan_grad %q, %k, %v, %g, %b, %state, %documents, %o, %final {chunk_size = 16 : i64, class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !g, !s, !d, !v, !s) -> (!k, !k, !v, !g, !g, !s)
  return
}

// CHECK-LABEL: func.func @chunks_GH(
func.func @chunks_GH(%q: !k, %k: !k, %v: !v, %g: !g, %b: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg6 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state %arg1, %arg2, %arg3, %arg4, %{{.*}} {chunk_size = 16 : i64, class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>)
  %x, %p = braid.lsm.chunk_state %k, %v, %g, %b, %c {chunk_size = 16 : i64, class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>}
      : (!k, !v, !g, !g, !c) -> (!m, tensor<2x4x3x8x8xf32>)
  // CHECK: braid.lsm.state_scan %x, %p, %arg5, %{{.*}} {class_id = 5 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan %x, %p, %state, %c {class_id = 5 : i32} : (!m, tensor<2x4x3x8x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output %arg0, %arg1, %arg2, %arg3, %arg4, %m, %{{.*}} {chunk_size = 16 : i64, class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output %q, %k, %v, %g, %b, %m, %c {chunk_size = 16 : i64, class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !g, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state %arg0, %arg1, %arg2, %arg3, %arg4, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state %q, %k, %v, %g, %b, %o, %c {chunk_size = 16 : i64, class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !g, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad %{{.*}}, %p, %final_state, %{{.*}} {class_id = 5 : i32} : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad %dm, %p, %final, %c {class_id = 5 : i32} : (!m, tensor<2x4x3x8x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad %arg0, %arg1, %arg2, %arg3, %arg4, %m, %dx, %{{.*}}, %{{.*}} {chunk_size = 16 : i64, class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 1, 1>, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>)
  %r:5 = braid.lsm.chunk_grad %q, %k, %v, %g, %b, %m, %dx, %o, %c {chunk_size = 16 : i64, class_id = 5 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 1, 1>, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !g, !m, !m, !v, !c) -> (!k, !k, !v, !g, !g)
  return
}

// One token.
// CHECK-LABEL: func.func @step(
func.func @step(%q: tensor<2x1x3x8xf32>, %v: tensor<2x1x3x4xf32>, %g: tensor<2x1x3x8xf32>, %state: !s, %documents: tensor<2x1xi32>) {
  // CHECK: braid.lsm.step %arg0, %arg0, %arg1, %arg2, %arg3, %arg4 {class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 1.000000e+00 : f64} : (tensor<2x1x3x8xf32>, tensor<2x1x3x8xf32>, tensor<2x1x3x4xf32>, tensor<2x1x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x1xi32>) -> (tensor<2x1x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.step %q, %q, %v, %g, %state, %documents {class_id = 3 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1>, scale = 1.0 : f64}
      : (tensor<2x1x3x8xf32>, tensor<2x1x3x8xf32>, tensor<2x1x3x4xf32>, tensor<2x1x3x8xf32>, !s, tensor<2x1xi32>) -> (tensor<2x1x3x4xf32>, !s)
  return
}
