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
  // CHECK: braid.lsm.scan I %arg0, %arg1, %arg2 initial_state(%arg3) documents(%arg4) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan I %q, %k, %v initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad I %arg0, %arg1, %arg2 initial_state(%arg3) documents(%arg4) cotangents(%o, %final_state) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %r:4 = braid.lsm.scan_grad I %q, %k, %v initial_state(%state) documents(%documents) cotangents(%o, %final) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !s, !d, !v, !s) -> (!k, !k, !v, !s)
  return
}

// CHECK-LABEL: func.func @chunks_I(
func.func @chunks_I(%q: !k, %k: !k, %v: !v, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg4 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state I %arg1, %arg2 chunks(%{{.*}}) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %x = braid.lsm.chunk_state I %k, %v chunks(%c) {chunk_size = 16 : i64}
      : (!k, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan I %x initial_state(%arg3) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan I %x initial_state(%state) chunks(%c) : (!m, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output I %arg0, %arg1, %arg2 in_state(%m) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output I %q, %k, %v in_state(%m) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state I %arg0, %arg1, %arg2 cotangents(%{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state I %q, %k, %v cotangents(%o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad I cotangents(%{{.*}}, %final_state) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad I cotangents(%dm, %final) chunks(%c) : (!m, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad I %arg0, %arg1, %arg2 in_state(%m) cotangents(%dx, %{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>)
  %r:3 = braid.lsm.chunk_grad I %q, %k, %v in_state(%m) cotangents(%dx, %o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !m, !m, !v, !c) -> (!k, !k, !v)
  return
}

// CHECK-LABEL: func.func @class_S0(
func.func @class_S0(%q: !k, %k: !k, %v: !v, %g: tensor<3xf32>, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan S0 %arg0, %arg1, %arg2 log_decay(%arg3) initial_state(%arg4) documents(%arg5) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan S0 %q, %k, %v log_decay(%g) initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3xf32>, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad S0 %arg0, %arg1, %arg2 log_decay(%arg3) initial_state(%arg4) documents(%arg5) cotangents(%o, %final_state) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %r:4 = braid.lsm.scan_grad S0 %q, %k, %v log_decay(%g) initial_state(%state) documents(%documents) cotangents(%o, %final) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3xf32>, !s, !d, !v, !s) -> (!k, !k, !v, !s)
  return
}

// CHECK-LABEL: func.func @chunks_S0(
func.func @chunks_S0(%q: !k, %k: !k, %v: !v, %g: tensor<3xf32>, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg5 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state S0 %arg1, %arg2 log_decay(%arg3) chunks(%{{.*}}) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>)
  %x, %p = braid.lsm.chunk_state S0 %k, %v log_decay(%g) chunks(%c) {chunk_size = 16 : i64}
      : (!k, !v, tensor<3xf32>, !c) -> (!m, tensor<2x4x3xf32>)
  // CHECK: braid.lsm.state_scan S0 %x transition(%p) initial_state(%arg4) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan S0 %x transition(%p) initial_state(%state) chunks(%c) : (!m, tensor<2x4x3xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output S0 %arg0, %arg1, %arg2 log_decay(%arg3) in_state(%m) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output S0 %q, %k, %v log_decay(%g) in_state(%m) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3xf32>, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state S0 %arg0, %arg1, %arg2 log_decay(%arg3) cotangents(%{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state S0 %q, %k, %v log_decay(%g) cotangents(%o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3xf32>, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad S0 transition(%p) cotangents(%{{.*}}, %final_state) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad S0 transition(%p) cotangents(%dm, %final) chunks(%c) : (!m, tensor<2x4x3xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad S0 %arg0, %arg1, %arg2 log_decay(%arg3) in_state(%m) cotangents(%dx, %{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>)
  %r:3 = braid.lsm.chunk_grad S0 %q, %k, %v log_decay(%g) in_state(%m) cotangents(%dx, %o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3xf32>, !m, !m, !v, !c) -> (!k, !k, !v)
  return
}

// CHECK-LABEL: func.func @class_S(
func.func @class_S(%q: !k, %k: !k, %v: !v, %g: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan S %arg0, %arg1, %arg2 log_decay(%arg3) initial_state(%arg4) documents(%arg5) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan S %q, %k, %v log_decay(%g) initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, !g, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad S %arg0, %arg1, %arg2 log_decay(%arg3) initial_state(%arg4) documents(%arg5) cotangents(%o, %final_state) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  %r:5 = braid.lsm.scan_grad S %q, %k, %v log_decay(%g) initial_state(%state) documents(%documents) cotangents(%o, %final) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !s, !d, !v, !s) -> (!k, !k, !v, !g, !s)
  return
}

// CHECK-LABEL: func.func @chunks_S(
func.func @chunks_S(%q: !k, %k: !k, %v: !v, %g: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg5 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state S %arg1, %arg2 log_decay(%arg3) chunks(%{{.*}}) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>)
  %x, %p = braid.lsm.chunk_state S %k, %v log_decay(%g) chunks(%c) {chunk_size = 16 : i64}
      : (!k, !v, !g, !c) -> (!m, tensor<2x4x3xf32>)
  // CHECK: braid.lsm.state_scan S %x transition(%p) initial_state(%arg4) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan S %x transition(%p) initial_state(%state) chunks(%c) : (!m, tensor<2x4x3xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output S %arg0, %arg1, %arg2 log_decay(%arg3) in_state(%m) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output S %q, %k, %v log_decay(%g) in_state(%m) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state S %arg0, %arg1, %arg2 log_decay(%arg3) cotangents(%{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state S %q, %k, %v log_decay(%g) cotangents(%o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad S transition(%p) cotangents(%{{.*}}, %final_state) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad S transition(%p) cotangents(%dm, %final) chunks(%c) : (!m, tensor<2x4x3xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad S %arg0, %arg1, %arg2 log_decay(%arg3) in_state(%m) cotangents(%dx, %{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>)
  %r:4 = braid.lsm.chunk_grad S %q, %k, %v log_decay(%g) in_state(%m) cotangents(%dx, %o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !m, !m, !v, !c) -> (!k, !k, !v, !g)
  return
}

// CHECK-LABEL: func.func @class_V(
func.func @class_V(%q: !k, %k: !k, %v: !v, %g: !k, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan V %arg0, %arg1, %arg2 log_decay(%arg3) initial_state(%arg4) documents(%arg5) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan V %q, %k, %v log_decay(%g) initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, !k, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad V %arg0, %arg1, %arg2 log_decay(%arg3) initial_state(%arg4) documents(%arg5) cotangents(%o, %final_state) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>)
  %r:5 = braid.lsm.scan_grad V %q, %k, %v log_decay(%g) initial_state(%state) documents(%documents) cotangents(%o, %final) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !s, !d, !v, !s) -> (!k, !k, !v, !k, !s)
  return
}

// CHECK-LABEL: func.func @chunks_V(
func.func @chunks_V(%q: !k, %k: !k, %v: !v, %g: !k, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg5 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state V %arg1, %arg2 log_decay(%arg3) chunks(%{{.*}}) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>)
  %x, %p = braid.lsm.chunk_state V %k, %v log_decay(%g) chunks(%c) {chunk_size = 16 : i64}
      : (!k, !v, !k, !c) -> (!m, tensor<2x4x3x8xf32>)
  // CHECK: braid.lsm.state_scan V %x transition(%p) initial_state(%arg4) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan V %x transition(%p) initial_state(%state) chunks(%c) : (!m, tensor<2x4x3x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output V %arg0, %arg1, %arg2 log_decay(%arg3) in_state(%m) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output V %q, %k, %v log_decay(%g) in_state(%m) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state V %arg0, %arg1, %arg2 log_decay(%arg3) cotangents(%{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state V %q, %k, %v log_decay(%g) cotangents(%o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad V transition(%p) cotangents(%{{.*}}, %final_state) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad V transition(%p) cotangents(%dm, %final) chunks(%c) : (!m, tensor<2x4x3x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad V %arg0, %arg1, %arg2 log_decay(%arg3) in_state(%m) cotangents(%dx, %{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>)
  %r:4 = braid.lsm.chunk_grad V %q, %k, %v log_decay(%g) in_state(%m) cotangents(%dx, %o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !m, !m, !v, !c) -> (!k, !k, !v, !k)
  return
}

// CHECK-LABEL: func.func @class_H(
func.func @class_H(%q: !k, %k: !k, %v: !v, %b: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan H %arg0, %arg1, %arg2 beta(%arg3) initial_state(%arg4) documents(%arg5) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan H %q, %k, %v beta(%b) initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, !g, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad H %arg0, %arg1, %arg2 beta(%arg3) initial_state(%arg4) documents(%arg5) cotangents(%o, %final_state) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  %r:5 = braid.lsm.scan_grad H %q, %k, %v beta(%b) initial_state(%state) documents(%documents) cotangents(%o, %final) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !s, !d, !v, !s) -> (!k, !k, !v, !g, !s)
  return
}

// CHECK-LABEL: func.func @chunks_H(
func.func @chunks_H(%q: !k, %k: !k, %v: !v, %b: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg5 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state H %arg1, %arg2 beta(%arg3) chunks(%{{.*}}) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>)
  %x, %p = braid.lsm.chunk_state H %k, %v beta(%b) chunks(%c) {chunk_size = 16 : i64}
      : (!k, !v, !g, !c) -> (!m, tensor<2x4x3x8x8xf32>)
  // CHECK: braid.lsm.state_scan H %x transition(%p) initial_state(%arg4) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan H %x transition(%p) initial_state(%state) chunks(%c) : (!m, tensor<2x4x3x8x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output H %arg0, %arg1, %arg2 beta(%arg3) in_state(%m) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output H %q, %k, %v beta(%b) in_state(%m) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state H %arg0, %arg1, %arg2 beta(%arg3) cotangents(%{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state H %q, %k, %v beta(%b) cotangents(%o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad H transition(%p) cotangents(%{{.*}}, %final_state) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad H transition(%p) cotangents(%dm, %final) chunks(%c) : (!m, tensor<2x4x3x8x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad H %arg0, %arg1, %arg2 beta(%arg3) in_state(%m) cotangents(%dx, %{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>)
  %r:4 = braid.lsm.chunk_grad H %q, %k, %v beta(%b) in_state(%m) cotangents(%dx, %o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !m, !m, !v, !c) -> (!k, !k, !v, !g)
  return
}

// CHECK-LABEL: func.func @class_GH(
func.func @class_GH(%q: !k, %k: !k, %v: !v, %g: !g, %b: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan GH %arg0, %arg1, %arg2 log_decay(%arg3) beta(%arg4) initial_state(%arg5) documents(%arg6) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan GH %q, %k, %v log_decay(%g) beta(%b) initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, !g, !g, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad GH %arg0, %arg1, %arg2 log_decay(%arg3) beta(%arg4) initial_state(%arg5) documents(%arg6) cotangents(%o, %final_state) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  %r:6 = braid.lsm.scan_grad GH %q, %k, %v log_decay(%g) beta(%b) initial_state(%state) documents(%documents) cotangents(%o, %final) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !g, !s, !d, !v, !s) -> (!k, !k, !v, !g, !g, !s)
  return
}

// CHECK-LABEL: func.func @chunks_GH(
func.func @chunks_GH(%q: !k, %k: !k, %v: !v, %g: !g, %b: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.chunk_table %arg6 {chunk_size = 16 : i64} : (tensor<2x40xi32>) -> tensor<2x4x4xi32>
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state GH %arg1, %arg2 log_decay(%arg3) beta(%arg4) chunks(%{{.*}}) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>)
  %x, %p = braid.lsm.chunk_state GH %k, %v log_decay(%g) beta(%b) chunks(%c) {chunk_size = 16 : i64}
      : (!k, !v, !g, !g, !c) -> (!m, tensor<2x4x3x8x8xf32>)
  // CHECK: braid.lsm.state_scan GH %x transition(%p) initial_state(%arg5) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_scan GH %x transition(%p) initial_state(%state) chunks(%c) : (!m, tensor<2x4x3x8x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output GH %arg0, %arg1, %arg2 log_decay(%arg3) beta(%arg4) in_state(%m) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x4xi32>) -> tensor<2x40x3x4xf32>
  %o = braid.lsm.chunk_output GH %q, %k, %v log_decay(%g) beta(%b) in_state(%m) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !g, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state GH %arg0, %arg1, %arg2 log_decay(%arg3) beta(%arg4) cotangents(%{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> tensor<2x4x3x8x4xf32>
  %dm = braid.lsm.chunk_output_grad_state GH %q, %k, %v log_decay(%g) beta(%b) cotangents(%o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !g, !v, !c) -> !m
  // CHECK: braid.lsm.state_scan_grad GH transition(%p) cotangents(%{{.*}}, %final_state) chunks(%{{.*}}) : (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %dx, %dstate = braid.lsm.state_scan_grad GH transition(%p) cotangents(%dm, %final) chunks(%c) : (!m, tensor<2x4x3x8x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_grad GH %arg0, %arg1, %arg2 log_decay(%arg3) beta(%arg4) in_state(%m) cotangents(%dx, %{{.*}}) chunks(%{{.*}}) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>, tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x40x3xf32>)
  %r:5 = braid.lsm.chunk_grad GH %q, %k, %v log_decay(%g) beta(%b) in_state(%m) cotangents(%dx, %o) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !g, !g, !m, !m, !v, !c) -> (!k, !k, !v, !g, !g)
  return
}

// States that are added up where they are multiplied, both ways.
// CHECK-LABEL: func.func @walk_V(
func.func @walk_V(%q: !k, %k: !k, %v: !v, %g: !k, %d: !v, %state: !s, %c: !c) {
  // CHECK: %m, %last = braid.lsm.state_walk V %arg1, %arg2 log_decay(%arg3) state(%arg5) chunks(%arg6) {chunk_size = 16 : i64, scale = 1.000000e+00 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %m, %final = braid.lsm.state_walk V %k, %v log_decay(%g) state(%state) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64} : (!k, !v, !k, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.state_walk V %arg0, %arg4 log_decay(%arg3) state(%last) chunks(%arg6) {adjoint, chunk_size = 16 : i64, scale = 5.000000e-01 : f64} :
  %dx, %ds = braid.lsm.state_walk V %q, %d log_decay(%g) state(%final) chunks(%c) {adjoint, chunk_size = 16 : i64, scale = 0.5 : f64} : (!k, !v, !k, !s, !c) -> (!m, !s)
  return
}

// Outputs made where the state is; a decay for each token, one for all, none.
// CHECK-LABEL: func.func @output_walks(
func.func @output_walks(%q: !k, %k: !k, %v: !v, %g: !g, %h: tensor<3xf32>, %state: !s, %c: !c) {
  // CHECK: %o, %final_state = braid.lsm.output_walk S %arg0, %arg1, %arg2 log_decay(%arg3) initial_state(%arg5) chunks(%arg6) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %f = braid.lsm.output_walk S %q, %k, %v log_decay(%g) initial_state(%state) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64} : (!k, !k, !v, !g, !s, !c) -> (!v, !s)
  // CHECK: braid.lsm.output_walk S0 %arg0, %arg1, %arg2 log_decay(%arg4) initial_state(%final_state) chunks(%arg6)
  %o0, %f0 = braid.lsm.output_walk S0 %q, %k, %v log_decay(%h) initial_state(%f) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64} : (!k, !k, !v, tensor<3xf32>, !s, !c) -> (!v, !s)
  // CHECK: braid.lsm.output_walk I %arg0, %arg1, %arg2 initial_state(%{{.*}}) chunks(%arg6)
  %oi, %fi = braid.lsm.output_walk I %q, %k, %v initial_state(%f0) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64} : (!k, !k, !v, !s, !c) -> (!v, !s)
  // CHECK: %inverse, %sums = braid.lsm.chunk_inverse GH %arg1 log_decay(%arg3) beta(%arg3) chunks(%arg6) {chunk_size = 16 : i64} : {{.*}} -> (tensor<2x4x3x16x16xbf16>, tensor<2x4x3x48xf32>)
  %t, %sums = braid.lsm.chunk_inverse GH %k log_decay(%g) beta(%g) chunks(%c) {chunk_size = 16 : i64} : (!k, !g, !g, !c) -> (tensor<2x4x3x16x16xbf16>, tensor<2x4x3x48xf32>)
  // CHECK: braid.lsm.output_walk GH %arg0, %arg1, %arg2 inverse(%inverse, %sums) initial_state(%{{.*}}) chunks(%arg6)
  %ogh, %fgh = braid.lsm.output_walk GH %q, %k, %v inverse(%t, %sums) initial_state(%fi) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<2x4x3x16x16xbf16>, tensor<2x4x3x48xf32>, !s, !c) -> (!v, !s)
  // CHECK: %[[T:.*]] = braid.lsm.chunk_inverse H %arg1 beta(%arg3) chunks(%arg6) {chunk_size = 16 : i64} : {{.*}} -> tensor<2x4x3x16x16xbf16>
  %th = braid.lsm.chunk_inverse H %k beta(%g) chunks(%c) {chunk_size = 16 : i64} : (!k, !g, !c) -> tensor<2x4x3x16x16xbf16>
  // CHECK: braid.lsm.output_walk H %arg0, %arg1, %arg2 inverse(%[[T]]) initial_state(%{{.*}}) chunks(%arg6)
  %oh, %fh = braid.lsm.output_walk H %q, %k, %v inverse(%th) initial_state(%fgh) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<2x4x3x16x16xbf16>, !s, !c) -> (!v, !s)
  return
}

// By factors, which are made for all chunks before.
!walked = tensor<2x4x3x16x8xbf16>
!square = tensor<2x4x3x16x16xbf16>
!across = tensor<2x4x3x1x8xf32>
// CHECK-LABEL: func.func @factor_walk(
func.func @factor_walk(%q: !k, %k: !k, %v: !v, %g: !k, %b: !g, %state: !s, %c: !c) {
  // CHECK: %queries, %keys, %write, %scores, %decay = braid.lsm.chunk_walk_factors VH %arg0, %arg1 log_decay(%arg3) beta(%arg4) chunks(%arg6) {chunk_size = 16 : i64, scale = 5.000000e-01 : f64} : {{.*}} -> (tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x16xbf16>, tensor<2x4x3x1x8xf32>)
  %queries, %keys, %write, %scores, %decay = braid.lsm.chunk_walk_factors VH %q, %k log_decay(%g) beta(%b) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !k, !g, !c) -> (!walked, !walked, !walked, !square, !across)
  // CHECK: %o, %final_state = braid.lsm.factor_walk VH factors(%queries, %keys, %write, %scores, %decay) %arg2 initial_state(%arg5) chunks(%arg6) : {{.*}} -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %f = braid.lsm.factor_walk VH factors(%queries, %keys, %write, %scores, %decay) %v initial_state(%state) chunks(%c)
      : (!walked, !walked, !walked, !square, !across, !v, !s, !c) -> (!v, !s)
  return
}

!rows = tensor<2x4x3x16x8xbf16>
!wide = tensor<2x4x3x16x4xbf16>
!p = tensor<2x4x3xf32>
!bm = tensor<2x4x3x8x4xbf16>

// Dense transitions as products of few rows.
// CHECK-LABEL: func.func @factors_GH(
func.func @factors_GH(%q: !k, %k: !k, %v: !v, %g: !g, %b: !g, %state: !s, %c: !c) {
  // CHECK: %u, %write, %read, %decay = braid.lsm.chunk_factors GH %arg1, %arg2 log_decay(%arg3) beta(%arg4) chunks(%arg6) {chunk_size = 16 : i64} : {{.*}} -> (tensor<2x4x3x16x4xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3x16x8xbf16>, tensor<2x4x3xf32>)
  %u, %w, %r, %p = braid.lsm.chunk_factors GH %k, %v log_decay(%g) beta(%b) chunks(%c) {chunk_size = 16 : i64} : (!k, !v, !g, !g, !c) -> (!wide, !rows, !rows, !p)
  // CHECK: %m, %written, %final_state = braid.lsm.factor_scan GH %u factors(%write, %read, %decay) initial_state(%arg5) chunks(%arg6) :
  %m, %z, %final = braid.lsm.factor_scan GH %u factors(%w, %r, %p) initial_state(%state) chunks(%c) : (!wide, !rows, !rows, !p, !s, !c) -> (!bm, !wide, !s)
  // CHECK: braid.lsm.chunk_output GH %arg0, %arg1, %arg2 log_decay(%arg3) beta(%arg4) in_state(%m) written(%written) chunks(%arg6) {chunk_size = 16 : i64, scale = 1.000000e+00 : f64} :
  %o = braid.lsm.chunk_output GH %q, %k, %v log_decay(%g) beta(%b) in_state(%m) written(%z) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64}
      : (!k, !k, !v, !g, !g, !bm, !wide, !c) -> !v
  // CHECK: %g, %d = braid.lsm.chunk_output_factors GH %arg0, %arg1, %arg2 log_decay(%arg3) beta(%arg4) factors(%read) cotangents(%arg2) chunks(%arg6) {chunk_size = 16 : i64, scale = 1.000000e+00 : f64} :
  %dg, %d = braid.lsm.chunk_output_factors GH %q, %k, %v log_decay(%g) beta(%b) factors(%r) cotangents(%v) chunks(%c) {chunk_size = 16 : i64, scale = 1.0 : f64}
      : (!k, !k, !v, !g, !g, !rows, !v, !c) -> (!rows, !wide)
  // CHECK: %dx, %dinitial_state = braid.lsm.factor_scan_grad GH factors(%write, %read, %decay) cotangents(%g, %d, %final_state) chunks(%arg6) :
  %dx, %ds = braid.lsm.factor_scan_grad GH factors(%w, %r, %p) cotangents(%dg, %d, %final) chunks(%c) : (!rows, !wide, !rows, !rows, !p, !s, !c) -> (!bm, !s)
  return
}

// CHECK-LABEL: func.func @class_VH(
func.func @class_VH(%q: !k, %k: !k, %v: !v, %log_decay: !k, %beta: !g, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan VH %arg0, %arg1, %arg2 log_decay(%arg3) beta(%arg4) initial_state(%arg5) documents(%arg6) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan VH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, !k, !g, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad VH %arg0, %arg1, %arg2 log_decay(%arg3) beta(%arg4) initial_state(%arg5) documents(%arg6) cotangents(%o, %final_state) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3xf32>, tensor<2x3x8x4xf32>)
  %r:6 = braid.lsm.scan_grad VH %q, %k, %v log_decay(%log_decay) beta(%beta) initial_state(%state) documents(%documents) cotangents(%o, %final) {scale = 0.5 : f64}
      : (!k, !k, !v, !k, !g, !s, !d, !v, !s) -> (!k, !k, !v, !k, !g, !s)
  return
}

// CHECK-LABEL: func.func @class_D(
func.func @class_D(%q: !k, %k: !k, %v: !v, %log_decay: !k, %a: !k, %b: !k, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan D %arg0, %arg1, %arg2 log_decay(%arg3) a(%arg4) b(%arg5) initial_state(%arg6) documents(%arg7) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan D %q, %k, %v log_decay(%log_decay) a(%a) b(%b) initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, !k, !k, !k, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad D %arg0, %arg1, %arg2 log_decay(%arg3) a(%arg4) b(%arg5) initial_state(%arg6) documents(%arg7) cotangents(%o, %final_state) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x3x8x4xf32>)
  %r:7 = braid.lsm.scan_grad D %q, %k, %v log_decay(%log_decay) a(%a) b(%b) initial_state(%state) documents(%documents) cotangents(%o, %final) {scale = 0.5 : f64}
      : (!k, !k, !v, !k, !k, !k, !s, !d, !v, !s) -> (!k, !k, !v, !k, !k, !k, !s)
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state D %arg1, %arg2 log_decay(%arg3) a(%arg4) b(%arg5) chunks(%{{.*}}) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x8xf32>)
  %x, %p = braid.lsm.chunk_state D %k, %v log_decay(%log_decay) a(%a) b(%b) chunks(%c) {chunk_size = 16 : i64}
      : (!k, !v, !k, !k, !k, !c) -> (!m, tensor<2x4x3x8x8xf32>)
  // CHECK: braid.lsm.state_scan D %x transition(%p) initial_state
  %m, %end = braid.lsm.state_scan D %x transition(%p) initial_state(%state) chunks(%c) : (!m, tensor<2x4x3x8x8xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output D %arg0, %arg1, %arg2 log_decay(%arg3) a(%arg4) b(%arg5) in_state(%m) chunks
  %co = braid.lsm.chunk_output D %q, %k, %v log_decay(%log_decay) a(%a) b(%b) in_state(%m) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !k, !k, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state D %arg0, %arg1, %arg2 log_decay(%arg3) a(%arg4) b(%arg5) cotangents
  %dm = braid.lsm.chunk_output_grad_state D %q, %k, %v log_decay(%log_decay) a(%a) b(%b) cotangents(%co) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !k, !k, !v, !c) -> !m
  // CHECK: braid.lsm.chunk_grad D %arg0, %arg1, %arg2 log_decay(%arg3) a(%arg4) b(%arg5) in_state(%m) cotangents
  %g:6 = braid.lsm.chunk_grad D %q, %k, %v log_decay(%log_decay) a(%a) b(%b) in_state(%m) cotangents(%dm, %co) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !k, !k, !m, !m, !v, !c) -> (!k, !k, !v, !k, !k, !k)
  return
}

// CHECK-LABEL: func.func @class_R(
func.func @class_R(%q: !k, %k: !k, %v: !v, %log_decay: !k, %value_decay: !v, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan R %arg0, %arg1, %arg2 log_decay(%arg3) value_decay(%arg4) initial_state(%arg5) documents(%arg6) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan R %q, %k, %v log_decay(%log_decay) value_decay(%value_decay) initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, !k, !v, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad R %arg0, %arg1, %arg2 log_decay(%arg3) value_decay(%arg4) initial_state(%arg5) documents(%arg6) cotangents(%o, %final_state) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %r:6 = braid.lsm.scan_grad R %q, %k, %v log_decay(%log_decay) value_decay(%value_decay) initial_state(%state) documents(%documents) cotangents(%o, %final) {scale = 0.5 : f64}
      : (!k, !k, !v, !k, !v, !s, !d, !v, !s) -> (!k, !k, !v, !k, !v, !s)
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state R %arg1, %arg2 log_decay(%arg3) value_decay(%arg4) chunks(%{{.*}}) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x12xf32>)
  %x, %p = braid.lsm.chunk_state R %k, %v log_decay(%log_decay) value_decay(%value_decay) chunks(%c) {chunk_size = 16 : i64}
      : (!k, !v, !k, !v, !c) -> (!m, tensor<2x4x3x12xf32>)
  // CHECK: braid.lsm.state_scan R %x transition(%p) initial_state
  %m, %end = braid.lsm.state_scan R %x transition(%p) initial_state(%state) chunks(%c) : (!m, tensor<2x4x3x12xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output R %arg0, %arg1, %arg2 log_decay(%arg3) value_decay(%arg4) in_state(%m) chunks
  %co = braid.lsm.chunk_output R %q, %k, %v log_decay(%log_decay) value_decay(%value_decay) in_state(%m) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !v, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state R %arg0, %arg1, %arg2 log_decay(%arg3) value_decay(%arg4) cotangents
  %dm = braid.lsm.chunk_output_grad_state R %q, %k, %v log_decay(%log_decay) value_decay(%value_decay) cotangents(%co) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !v, !v, !c) -> !m
  // CHECK: braid.lsm.chunk_grad R %arg0, %arg1, %arg2 log_decay(%arg3) value_decay(%arg4) in_state(%m) cotangents
  %g:5 = braid.lsm.chunk_grad R %q, %k, %v log_decay(%log_decay) value_decay(%value_decay) in_state(%m) cotangents(%dm, %co) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, !k, !v, !m, !m, !v, !c) -> (!k, !k, !v, !k, !v)
  return
}

// CHECK-LABEL: func.func @class_E_product(
func.func @class_E_product(%q: !k, %k: !k, %v: !v, %log_decay: tensor<3x8x4xf32>, %value_decay: !v, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan E %arg0, %arg1, %arg2 log_decay(%arg3) value_decay(%arg4) initial_state(%arg5) documents(%arg6) {{.*}} tensor<3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>
  %o, %final = braid.lsm.scan E %q, %k, %v log_decay(%log_decay) value_decay(%value_decay) initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3x8x4xf32>, !v, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad E {{.*}} -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<3x8x4xf32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %r:6 = braid.lsm.scan_grad E %q, %k, %v log_decay(%log_decay) value_decay(%value_decay) initial_state(%state) documents(%documents) cotangents(%o, %final) {scale = 0.5 : f64}
      : (!k, !k, !v, tensor<3x8x4xf32>, !v, !s, !d, !v, !s) -> (!k, !k, !v, tensor<3x8x4xf32>, !v, !s)
  return
}

// CHECK-LABEL: func.func @class_E(
func.func @class_E(%q: !k, %k: !k, %v: !v, %log_decay: tensor<2x40x3x8x4xf32>, %state: !s, %documents: !d) {
  // CHECK: braid.lsm.scan E %arg0, %arg1, %arg2 log_decay(%arg3) initial_state(%arg4) documents(%arg5) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.scan E %q, %k, %v log_decay(%log_decay) initial_state(%state) documents(%documents) {scale = 0.5 : f64}
      : (!k, !k, !v, tensor<2x40x3x8x4xf32>, !s, !d) -> (!v, !s)
  // CHECK: braid.lsm.scan_grad E %arg0, %arg1, %arg2 log_decay(%arg3) initial_state(%arg4) documents(%arg5) cotangents(%o, %final_state) {scale = 5.000000e-01 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8x4xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>, tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x40x3x8xf32>, tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8x4xf32>, tensor<2x3x8x4xf32>)
  %r:5 = braid.lsm.scan_grad E %q, %k, %v log_decay(%log_decay) initial_state(%state) documents(%documents) cotangents(%o, %final) {scale = 0.5 : f64}
      : (!k, !k, !v, tensor<2x40x3x8x4xf32>, !s, !d, !v, !s) -> (!k, !k, !v, tensor<2x40x3x8x4xf32>, !s)
  %c = braid.lsm.chunk_table %documents {chunk_size = 16 : i64} : (!d) -> !c
  // CHECK: braid.lsm.chunk_state E %arg1, %arg2 log_decay(%arg3) chunks(%{{.*}}) {chunk_size = 16 : i64} : (tensor<2x40x3x8xf32>, tensor<2x40x3x4xf32>, tensor<2x40x3x8x4xf32>, tensor<2x4x4xi32>) -> (tensor<2x4x3x8x4xf32>, tensor<2x4x3x8x4xf32>)
  %x, %p = braid.lsm.chunk_state E %k, %v log_decay(%log_decay) chunks(%c) {chunk_size = 16 : i64}
      : (!k, !v, tensor<2x40x3x8x4xf32>, !c) -> (!m, tensor<2x4x3x8x4xf32>)
  // CHECK: braid.lsm.state_scan E %x transition(%p) initial_state
  %m, %end = braid.lsm.state_scan E %x transition(%p) initial_state(%state) chunks(%c) : (!m, tensor<2x4x3x8x4xf32>, !s, !c) -> (!m, !s)
  // CHECK: braid.lsm.chunk_output E %arg0, %arg1, %arg2 log_decay(%arg3) in_state(%m) chunks
  %co = braid.lsm.chunk_output E %q, %k, %v log_decay(%log_decay) in_state(%m) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<2x40x3x8x4xf32>, !m, !c) -> !v
  // CHECK: braid.lsm.chunk_output_grad_state E %arg0, %arg1, %arg2 log_decay(%arg3) cotangents
  %dm = braid.lsm.chunk_output_grad_state E %q, %k, %v log_decay(%log_decay) cotangents(%co) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<2x40x3x8x4xf32>, !v, !c) -> !m
  // CHECK: braid.lsm.chunk_grad E %arg0, %arg1, %arg2 log_decay(%arg3) in_state(%m) cotangents
  %g:4 = braid.lsm.chunk_grad E %q, %k, %v log_decay(%log_decay) in_state(%m) cotangents(%dm, %co) chunks(%c) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!k, !k, !v, tensor<2x40x3x8x4xf32>, !m, !m, !v, !c) -> (!k, !k, !v, tensor<2x40x3x8x4xf32>)
  return
}

// One token.
// CHECK-LABEL: func.func @step(
func.func @step(%q: tensor<2x1x3x8xf32>, %v: tensor<2x1x3x4xf32>, %g: tensor<2x1x3x8xf32>, %state: !s, %documents: tensor<2x1xi32>) {
  // CHECK: braid.lsm.step V %arg0, %arg0, %arg1 log_decay(%arg2) initial_state(%arg3) documents(%arg4) {scale = 1.000000e+00 : f64} : (tensor<2x1x3x8xf32>, tensor<2x1x3x8xf32>, tensor<2x1x3x4xf32>, tensor<2x1x3x8xf32>, tensor<2x3x8x4xf32>, tensor<2x1xi32>) -> (tensor<2x1x3x4xf32>, tensor<2x3x8x4xf32>)
  %o, %final = braid.lsm.step V %q, %q, %v log_decay(%g) initial_state(%state) documents(%documents) {scale = 1.0 : f64}
      : (tensor<2x1x3x8xf32>, tensor<2x1x3x8xf32>, tensor<2x1x3x4xf32>, tensor<2x1x3x8xf32>, !s, tensor<2x1xi32>) -> (tensor<2x1x3x4xf32>, !s)
  return
}

// Several updates of a token: a dimension behind the tokens, in keys, values and gates.
// CHECK-LABEL: func.func @updates
func.func @updates(%q: tensor<2x40x3x8xf32>, %k: tensor<2x40x2x3x8xf32>, %v: tensor<2x40x2x3x4xf32>, %g: tensor<2x40x2x3xf32>, %m: tensor<2x3x8x4xf32>, %d: tensor<2x40xi32>) -> tensor<2x40x3x4xf32> {
  // CHECK: braid.lsm.scan GH %arg0, %arg1, %arg2 log_decay(%arg3) beta(%arg3) initial_state(%arg4) documents(%arg5)
  %o, %n = braid.lsm.scan GH %q, %k, %v log_decay(%g) beta(%g) initial_state(%m) documents(%d) {scale = 1.0 : f64} : (tensor<2x40x3x8xf32>, tensor<2x40x2x3x8xf32>, tensor<2x40x2x3x4xf32>, tensor<2x40x2x3xf32>, tensor<2x40x2x3xf32>, tensor<2x3x8x4xf32>, tensor<2x40xi32>) -> (tensor<2x40x3x4xf32>, tensor<2x3x8x4xf32>)
  // CHECK: braid.lsm.segment GH %arg1, %arg2 log_decay(%arg3) beta(%arg3) documents(%arg5)
  %p, %x = braid.lsm.segment GH %k, %v log_decay(%g) beta(%g) documents(%d) : (tensor<2x40x2x3x8xf32>, tensor<2x40x2x3x4xf32>, tensor<2x40x2x3xf32>, tensor<2x40x2x3xf32>, tensor<2x40xi32>) -> (tensor<1x2x3x8x8xf32>, tensor<1x2x3x8x4xf32>)
  return %o : tensor<2x40x3x4xf32>
}
