// RUN: braid-opt %s --braid-classify-scans=explain=true -verify-diagnostics | FileCheck %s

// The delta rule with a vector gate stays what it is.
// CHECK-LABEL: func.func @vector_delta
// CHECK-SAME:    %[[Q:.*]]: tensor<1x8x2x4xf32>, %[[K:.*]]: tensor<1x8x2x4xf32>, %[[V:.*]]: tensor<1x8x2x3xf32>, %[[G:.*]]: tensor<1x8x2x4xf32>, %[[BETA:.*]]: tensor<1x8x2xf32>,
// CHECK:         braid.lsm.scan VH %[[Q]], %[[K]], %[[V]] log_decay(%[[G]]) beta(%[[BETA]]) initial_state
func.func @vector_delta(%q: tensor<1x8x2x4xf32>, %k: tensor<1x8x2x4xf32>, %v: tensor<1x8x2x3xf32>, %g: tensor<1x8x2x4xf32>,
                        %beta: tensor<1x8x2xf32>, %m: tensor<1x2x4x3xf32>, %d: tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>) {
  // expected-remark @+1 {{class VH: the delta rule with one decay per key channel; the next smaller class, GH, needs one repeated over the channels}}
  %o, %f = braid.lsm.scan VH %q, %k, %v log_decay(%g) beta(%beta) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  return %o, %f : tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>
}

// The same with a gate that is one per head, repeated: the scalar class, which is cheaper.
// CHECK-LABEL: func.func @repeated_delta
// CHECK:         %[[G:.*]] = braid.scale %{{.*}} {value = 5.000000e-01 : f64} : (tensor<1x8x2xf32>)
// CHECK:         braid.lsm.scan GH %{{.*}} log_decay(%[[G]]) beta(%{{.*}}) initial_state
func.func @repeated_delta(%q: tensor<1x8x2x4xf32>, %k: tensor<1x8x2x4xf32>, %v: tensor<1x8x2x3xf32>, %s: tensor<1x8x2xf32>,
                          %beta: tensor<1x8x2xf32>, %m: tensor<1x2x4x3xf32>, %d: tensor<1x8xi32>) -> tensor<1x8x2x3xf32> {
  %half = arith.constant dense<0.5> : tensor<1x8x2x4xf32>
  %g = braid.mul %half, %s : (tensor<1x8x2x4xf32>, tensor<1x8x2xf32>) -> tensor<1x8x2x4xf32>
  // expected-remark @+1 {{class GH (VH is GH: log_decay is repeated over the key channels): the delta rule with one decay per head; the next smaller class, H, needs a log_decay of 0}}
  %o, %f = braid.lsm.scan VH %q, %k, %v log_decay(%g) beta(%beta) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  return %o : tensor<1x8x2x3xf32>
}

// Rules follow each other: without a low-rank part, and with one decay for all channels.
// CHECK-LABEL: func.func @chain
// CHECK:         braid.lsm.scan S %{{.*}} log_decay(%arg3) initial_state
// CHECK:         braid.lsm.scan I %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}} initial_state
// CHECK:         braid.lsm.scan H %{{.*}} beta(%{{.*}}) initial_state
// CHECK:         braid.lsm.scan V %{{.*}} log_decay(%arg7) initial_state
func.func @chain(%q: tensor<1x8x2x4xf32>, %k: tensor<1x8x2x4xf32>, %v: tensor<1x8x2x3xf32>, %s: tensor<1x8x2xf32>,
                 %beta: tensor<1x8x2xf32>, %m: tensor<1x2x4x3xf32>, %d: tensor<1x8xi32>, %g: tensor<1x8x2x4xf32>) -> (tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>) {
  %one = arith.constant dense<1.0> : tensor<1x8x2x4xf32>
  %zero = arith.constant dense<0.0> : tensor<1x8x2x4xf32>
  %none = arith.constant dense<0.0> : tensor<1x8x2xf32>
  %still = arith.constant dense<0.0> : tensor<1x8x2x3xf32>
  %wide = braid.mul %one, %s : (tensor<1x8x2x4xf32>, tensor<1x8x2xf32>) -> tensor<1x8x2x4xf32>
  // expected-remark @+1 {{class S (D is V: b^T a is 0; V is S: log_decay is repeated over the key channels): one decay per head and token; the next smaller class, I, needs a log_decay of 0}}
  %o, %f = braid.lsm.scan D %q, %k, %v log_decay(%wide) a(%k) b(%zero) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  // expected-remark @+1 {{class I (S is I: log_decay is 0): the state never decays}}
  %o1, %f1 = braid.lsm.scan S %q, %k, %v log_decay(%none) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  // expected-remark @+1 {{class H (GH is H: log_decay is 0): the delta rule without decay}}
  %o2, %f2 = braid.lsm.scan GH %q, %k, %v log_decay(%none) beta(%beta) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2xf32>, tensor<1x8x2xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  // expected-remark @+1 {{class V (R is V: value_decay is 0): one decay per key channel; the next smaller class, S, needs one repeated over the channels}}
  %o3, %f3 = braid.lsm.scan R %q, %k, %v log_decay(%g) value_decay(%still) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  return %o, %o1, %o2, %o3 : tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>
}

// Classes that are as small as they can be shown to be stay.
// CHECK-LABEL: func.func @stays
// CHECK:         braid.lsm.scan E
func.func @stays(%q: tensor<1x8x2x4xf32>, %k: tensor<1x8x2x4xf32>, %v: tensor<1x8x2x3xf32>, %g: tensor<1x8x2x4x3xf32>,
                 %m: tensor<1x2x4x3xf32>, %d: tensor<1x8xi32>) -> tensor<1x8x2x3xf32> {
  // expected-remark @+1 {{class E: one decay per element of the state: no matrix form, tokens of a chunk are walked one by one}}
  %o, %f = braid.lsm.scan E %q, %k, %v log_decay(%g) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  return %o : tensor<1x8x2x3xf32>
}

// A step after every token is the delta rule with beta = rate; where it forgets, what it removes is not decayed: D. Its state is as large.
// CHECK-LABEL: func.func @steps
// CHECK-SAME:    %[[Q:.*]]: tensor<1x8x2x4xf32>, %[[K:.*]]: tensor<1x8x2x4xf32>, %[[V:.*]]: tensor<1x8x2x3xf32>, %[[R:.*]]: tensor<1x8x2xf32>, %[[G:.*]]: tensor<1x8x2xf32>, %[[M:.*]]: tensor<1x2x4x3xf32>,
// CHECK:         braid.lsm.scan H %[[Q]], %[[K]], %[[V]] beta(%[[R]]) initial_state(%[[M]])
// CHECK-DAG:     %[[DECAY:.*]] = braid.mul %{{.*}}, %[[G]] : (tensor<1x8x2x4xf32>, tensor<1x8x2xf32>) -> tensor<1x8x2x4xf32>
// CHECK-DAG:     %[[KEY:.*]] = braid.mul %[[K]], %[[R]]
// CHECK:         %[[B:.*]] = braid.scale %[[KEY]] {value = -1.000000e+00 : f64}
// CHECK:         braid.lsm.scan D %[[Q]], %[[KEY]], %[[V]] log_decay(%[[DECAY]]) a(%[[K]]) b(%[[B]]) initial_state(%[[M]]) {{.*}} {scale = 1.000000e+00 : f64}
func.func @steps(%q: tensor<1x8x2x4xf32>, %k: tensor<1x8x2x4xf32>, %v: tensor<1x8x2x3xf32>, %r: tensor<1x8x2xf32>, %g: tensor<1x8x2xf32>,
                 %m: tensor<1x2x4x3xf32>, %d: tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>) {
  // expected-remark @+1 {{class H (G1 of mini-batch 1 is H: beta = rate): the delta rule without decay}}
  %o, %f = braid.lsm.inner_step %q, %k, %v rate(%r) initial_state(%m) documents(%d) {mini_batch = 1 : i64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  // expected-remark @+1 {{class D (G1 of mini-batch 1 is D: a = k, b = -rate k, key = rate k): diagonal plus low rank; the next smaller class, V, needs an a or b of 0}}
  %o1, %f1 = braid.lsm.inner_step %q, %k, %v rate(%r) log_decay(%g) initial_state(%m) documents(%d) {mini_batch = 1 : i64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2xf32>, tensor<1x8x2xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  return %o, %o1 : tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>
}

// Longer mini-batches, momentum, a norm and documents that begin with weights stay gradient steps.
// CHECK-LABEL: func.func @inner
// CHECK-COUNT-4: braid.lsm.inner_step
// CHECK-NOT:     braid.lsm.scan
func.func @inner(%q: tensor<1x8x2x4xf32>, %r: tensor<1x8x2xf32>, %w: tensor<2x4xf32>, %first: tensor<2x4x4xf32>, %m: tensor<1x2x4x4xf32>, %m2: tensor<1x2x8x4xf32>,
                 %d: tensor<1x8xi32>) -> (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>) {
  // expected-remark @+1 {{class G1: gradient steps, affine in the weights; a scan, H or D, needs a mini-batch of 1 and documents that begin with 0}}
  %o, %f = braid.lsm.inner_step %q, %q, %q rate(%r) initial_state(%m2) documents(%d) {mini_batch = 2 : i64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2xf32>, tensor<1x2x8x4xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x4xf32>, tensor<1x2x8x4xf32>)
  // expected-remark @+1 {{class GM: gradient steps, affine in the weights and what their steps add up to; a scan, H or D, needs a mini-batch of 1 without momentum and read_rate}}
  %o1, %f1 = braid.lsm.inner_step %q, %q, %q rate(%r) log_momentum(%r) initial_state(%m2) documents(%d) {mini_batch = 1 : i64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2xf32>, tensor<1x8x2xf32>, tensor<1x2x8x4xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x4xf32>, tensor<1x2x8x4xf32>)
  // expected-remark @+1 {{class N: gradient steps through a norm, not affine in the state: ranks along sp walk in a ring}}
  %o2, %f2 = braid.lsm.inner_step %q, %q, %q rate(%r) norm(%w, %w) initial_state(%m) documents(%d) {mini_batch = 1 : i64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<1x2x4x4xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x4xf32>, tensor<1x2x4x4xf32>)
  // expected-remark @+1 {{class G1: gradient steps, affine in the weights; a scan, H or D, needs a mini-batch of 1 and documents that begin with 0}}
  %o3, %f3 = braid.lsm.inner_step %q, %q, %q rate(%r) weights(%first) initial_state(%m) documents(%d) {mini_batch = 1 : i64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2xf32>, tensor<2x4x4xf32>, tensor<1x2x4x4xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x4xf32>, tensor<1x2x4x4xf32>)
  return %o, %o1, %o2, %o3 : tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>
}

// What gates prove of log decays goes with the scan: here 0 >= log_decay >= -0.5 (a bound that scales, casts and repeats heads); a log_sigmoid
// has none, and what may grow proves nothing.
// CHECK-LABEL: func.func @bounded
// CHECK:         braid.lsm.scan V {{.*}}braid.least_log_decay = -5.000000e-01 : f64
// CHECK:         braid.lsm.scan V
// CHECK-NOT:     least_log_decay
// CHECK:       return
func.func @bounded(%q: tensor<1x8x2x4xf32>, %v: tensor<1x8x2x3xf32>, %x: tensor<1x8x1x4xf32>, %m: tensor<1x2x4x3xf32>, %d: tensor<1x8xi32>)
    -> (tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>) {
  %s = braid.activation %x {kind = "sigmoid"} : (tensor<1x8x1x4xf32>) -> tensor<1x8x1x4xf32>
  %g = braid.scale %s {value = -5.0e-01 : f64} : (tensor<1x8x1x4xf32>) -> tensor<1x8x1x4xf32>
  %all = braid.repeat_heads %g : (tensor<1x8x1x4xf32>) -> tensor<1x8x2x4xf32>
  // expected-remark @+1 {{class V: one decay per key channel}}
  %o, %f = braid.lsm.scan V %q, %q, %v log_decay(%all) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x4xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  %l = braid.log_sigmoid %q {divide = 1.0 : f64} : (tensor<1x8x2x4xf32>) -> tensor<1x8x2x4xf32>
  // expected-remark @+1 {{class V: one decay per key channel}}
  %o1, %f1 = braid.lsm.scan V %q, %q, %v log_decay(%l) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x4xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  %t = braid.activation %q {kind = "tanh"} : (tensor<1x8x2x4xf32>) -> tensor<1x8x2x4xf32>
  // expected-remark @+1 {{class V: one decay per key channel}}
  %o2, %f2 = braid.lsm.scan V %q, %q, %v log_decay(%t) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x4xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  return %o, %o1, %o2 : tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x3xf32>
}

// A decay for every element that is one per key channel, repeated, is class V.
// CHECK-LABEL: func.func @repeated_elements
// CHECK:         braid.lsm.scan V %{{.*}} log_decay(%arg3)
func.func @repeated_elements(%q: tensor<1x8x2x4xf32>, %k: tensor<1x8x2x4xf32>, %v: tensor<1x8x2x3xf32>, %g: tensor<1x8x2x4xf32>,
                             %m: tensor<1x2x4x3xf32>, %d: tensor<1x8xi32>) -> tensor<1x8x2x3xf32> {
  %one = arith.constant dense<1.0> : tensor<1x8x2x4x3xf32>
  %wide = braid.mul %one, %g : (tensor<1x8x2x4x3xf32>, tensor<1x8x2x4xf32>) -> tensor<1x8x2x4x3xf32>
  // expected-remark @+1 {{class V (E is V: log_decay is repeated over the value channels): one decay per key channel}}
  %o, %f = braid.lsm.scan E %q, %k, %v log_decay(%wide) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  return %o : tensor<1x8x2x3xf32>
}

// The logarithm of a gate that is from 0.5 to 1 has a bound, which rounding at 1 does not take away.
// CHECK-LABEL: func.func @logged
// CHECK:         braid.lsm.scan V {{.*}}braid.least_log_decay = -0.69314718
func.func @logged(%q: tensor<1x8x1x2xf32>, %m: tensor<1x1x2x2xf32>, %d: tensor<1x8xi32>) -> tensor<1x8x1x2xf32> {
  %s = braid.activation %q {kind = "sigmoid"} : (tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %half = braid.scale %s {value = 5.000000e-01 : f64} : (tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %gate = braid.offset %half {value = 5.000000e-01 : f64} : (tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %g = braid.activation %gate {kind = "log"} : (tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  // expected-remark @+1 {{class V: one decay per key channel}}
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x1x2x2xf32>, tensor<1x8xi32>)
      -> (tensor<1x8x1x2xf32>, tensor<1x1x2x2xf32>)
  return %o : tensor<1x8x1x2xf32>
}

// A value that is used twice is looked at once: forty squares of each other are no forty powers of two.
// CHECK-LABEL: func.func @shared
// CHECK:         braid.lsm.scan V {{.*}}braid.least_log_decay = -1.000000e+00 : f64
func.func @shared(%q: tensor<1x8x1x2xf32>, %m: tensor<1x1x2x2xf32>, %d: tensor<1x8xi32>) -> tensor<1x8x1x2xf32> {
  %p0 = braid.activation %q {kind = "sigmoid"} : (tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p1 = braid.mul %p0, %p0 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p2 = braid.mul %p1, %p1 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p3 = braid.mul %p2, %p2 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p4 = braid.mul %p3, %p3 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p5 = braid.mul %p4, %p4 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p6 = braid.mul %p5, %p5 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p7 = braid.mul %p6, %p6 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p8 = braid.mul %p7, %p7 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p9 = braid.mul %p8, %p8 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p10 = braid.mul %p9, %p9 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p11 = braid.mul %p10, %p10 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p12 = braid.mul %p11, %p11 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p13 = braid.mul %p12, %p12 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p14 = braid.mul %p13, %p13 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p15 = braid.mul %p14, %p14 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p16 = braid.mul %p15, %p15 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p17 = braid.mul %p16, %p16 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p18 = braid.mul %p17, %p17 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p19 = braid.mul %p18, %p18 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p20 = braid.mul %p19, %p19 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p21 = braid.mul %p20, %p20 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p22 = braid.mul %p21, %p21 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p23 = braid.mul %p22, %p22 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p24 = braid.mul %p23, %p23 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p25 = braid.mul %p24, %p24 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p26 = braid.mul %p25, %p25 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p27 = braid.mul %p26, %p26 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p28 = braid.mul %p27, %p27 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p29 = braid.mul %p28, %p28 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p30 = braid.mul %p29, %p29 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p31 = braid.mul %p30, %p30 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p32 = braid.mul %p31, %p31 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p33 = braid.mul %p32, %p32 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p34 = braid.mul %p33, %p33 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p35 = braid.mul %p34, %p34 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p36 = braid.mul %p35, %p35 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p37 = braid.mul %p36, %p36 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p38 = braid.mul %p37, %p37 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p39 = braid.mul %p38, %p38 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %p40 = braid.mul %p39, %p39 : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  %g = braid.scale %p40 {value = -1.0 : f64} : (tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  // expected-remark @+1 {{class V: one decay per key channel}}
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x8x1x2xf32>, tensor<1x1x2x2xf32>, tensor<1x8xi32>) -> (tensor<1x8x1x2xf32>, tensor<1x1x2x2xf32>)
  return %o : tensor<1x8x1x2xf32>
}

// -exp(a_log) x becomes its factors: no tensor has an element for every token and element of the state.
// CHECK-LABEL: func.func @product_of_elements
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<1x8x2x3xf32>, %[[ALOG:[a-z0-9]+]]: tensor<2x4x3xf32>
// CHECK:         %[[ROW:.*]] = braid.reshape %[[ALOG]] : (tensor<2x4x3xf32>) -> tensor<1x1x2x12xf32>
// CHECK:         %[[EXP:.*]] = braid.activation %[[ROW]] {kind = "exp"}
// CHECK:         %[[MINUS:.*]] = braid.scale %[[EXP]] {value = -1.000000e+00 : f64}
// CHECK:         %[[RATE:.*]] = braid.reshape %[[MINUS]] : (tensor<1x1x2x12xf32>) -> tensor<2x4x3xf32>
// CHECK-NOT:     element_decay
// CHECK:         braid.lsm.scan E %{{.*}} log_decay(%[[RATE]]) value_decay(%[[X]])
func.func @product_of_elements(%q: tensor<1x8x2x4xf32>, %v: tensor<1x8x2x3xf32>, %x: tensor<1x8x2x3xf32>, %a_log: tensor<2x4x3xf32>,
                               %m: tensor<1x2x4x3xf32>, %d: tensor<1x8xi32>) -> tensor<1x8x2x3xf32> {
  %g = braid.element_decay %x, %a_log : (tensor<1x8x2x3xf32>, tensor<2x4x3xf32>) -> tensor<1x8x2x4x3xf32>
  // expected-remark @+1 {{class E (log_decay is a product of one per token and value and one per element, which is in no memory): one decay per element of the state}}
  %o, %f = braid.lsm.scan E %q, %q, %v log_decay(%g) initial_state(%m) documents(%d) {scale = 1.0 : f64}
      : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>, tensor<1x8x2x3xf32>, tensor<1x8x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x8xi32>) -> (tensor<1x8x2x3xf32>, tensor<1x2x4x3xf32>)
  return %o : tensor<1x8x2x3xf32>
}
