// RUN: braid-opt %s '--braid-chunk-tiling=gpu wgmma' | FileCheck %s
// RUN: braid-opt %s --braid-chunk-tiling | FileCheck %s --check-prefix=CPU
// RUN: braid-opt %s --braid-chunk-tiling=gpu | FileCheck %s --check-prefix=FRAGMENTS

// What products alone read of chunks is bf16 where tokens are: in-states m, their cotangents dx, and dense transitions, whose decays are
// three rows behind them. What is added up (x, dM) stays f32, and so does everything on a CPU.
!tok = tensor<2x100x2x16xbf16>
!gate = tensor<2x100x2xf32>
!channels = tensor<2x100x2x16xf32>
!state = tensor<2x2x16x16xf32>
!doc = tensor<2x100xi32>

// CHECK-LABEL: func.func @dense
// CHECK: braid.lsm.chunk_state GH {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x19x16xbf16>)
// CHECK: braid.lsm.state_scan GH {{.*}} -> (tensor<2x5x2x16x16xbf16>, tensor<2x2x16x16xf32>)
// CHECK: braid.lsm.chunk_output_grad_state GH {{.*}} -> tensor<2x5x2x16x16xf32>
// CHECK: braid.lsm.state_scan_grad GH {{.*}} -> (tensor<2x5x2x16x16xbf16>, tensor<2x2x16x16xf32>)
// CPU-LABEL: func.func @dense
// CPU: braid.lsm.chunk_state GH {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x16x16xf32>)
// CPU: braid.lsm.state_scan GH {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x2x16x16xf32>)
func.func @dense(%q: !tok, %g: !gate, %b: !gate, %m: !state, %d: !doc) -> (!tok, !state) {
  %r:6 = braid.lsm.scan_grad GH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) cotangents(%q, %m) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!tok, !tok, !tok, !gate, !gate, !state, !doc, !tok, !state) -> (!tok, !tok, !tok, !gate, !gate, !state)
  return %r#0, %r#5 : !tok, !state
}

// Chunks no longer than keys are wide: transitions stay products of as few rows, and the output reads what the scan wrote. Class D has twice the rows
// that write, and its decays are of channels. A CPU has matrices.
// CHECK-LABEL: func.func @factors
// CHECK: %[[U:.*]], %[[W:.*]], %[[R:.*]], %[[P:.*]] = braid.lsm.chunk_factors D {{.*}} -> (tensor<2x8x2x32x16xbf16>, tensor<2x8x2x32x16xbf16>, tensor<2x8x2x16x16xbf16>, tensor<2x8x2x1x16xf32>)
// CHECK: %[[M:.*]], %[[Z:.*]], %{{.*}} = braid.lsm.factor_scan D %[[U]] factors(%[[W]], %[[R]], %[[P]]) {{.*}} -> (tensor<2x8x2x16x16xbf16>, tensor<2x8x2x16x16xbf16>, tensor<2x2x16x16xf32>)
// CHECK: braid.lsm.chunk_output D {{.*}} in_state(%[[M]]) written(%[[Z]])
// CPU-LABEL: func.func @factors
// CPU: braid.lsm.chunk_state D
// CPU: braid.lsm.state_scan D
func.func @factors(%q: !tok, %g: !channels, %m: !state, %d: !doc) -> (!tok, !state) {
  %o, %f = braid.lsm.scan D %q, %q, %q log_decay(%g) a(%q) b(%q) initial_state(%m) documents(%d) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!tok, !tok, !tok, !channels, !tok, !tok, !state, !doc) -> (!tok, !state)
  return %o, %f : !tok, !state
}

// CHECK-LABEL: func.func @factors_grad
// CHECK: %[[F:.*]], %[[W:.*]], %[[R:.*]], %[[P:.*]] = braid.lsm.chunk_factors GH {{.*}} -> (tensor<2x8x2x16x16xbf16>, tensor<2x8x2x16x16xbf16>, tensor<2x8x2x16x16xbf16>, tensor<2x8x2xf32>)
// CHECK: %[[M:.*]], %[[Z:.*]], %{{.*}} = braid.lsm.factor_scan GH
// CHECK: %[[G:.*]], %[[D:.*]] = braid.lsm.chunk_output_factors GH {{.*}} factors(%[[R]]) {{.*}} -> (tensor<2x8x2x16x16xbf16>, tensor<2x8x2x16x16xbf16>)
// CHECK: braid.lsm.factor_scan_grad GH factors(%[[W]], %[[R]], %[[P]]) cotangents(%[[G]], %[[D]], {{.*}} -> (tensor<2x8x2x16x16xbf16>, tensor<2x2x16x16xf32>)
// CHECK: braid.lsm.chunk_grad GH {{.*}} in_state(%[[M]]) written(%[[Z]]) cotangents
func.func @factors_grad(%q: !tok, %g: !gate, %b: !gate, %m: !state, %d: !doc) -> (!tok, !state) {
  %r:6 = braid.lsm.scan_grad GH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) cotangents(%q, %m) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!tok, !tok, !tok, !gate, !gate, !state, !doc, !tok, !state) -> (!tok, !tok, !tok, !gate, !gate, !state)
  return %r#0, %r#5 : !tok, !state
}

// Under decays of channels alike.
// CHECK-LABEL: func.func @vector_delta_grad
// CHECK: braid.lsm.chunk_factors VH {{.*}} -> (tensor<2x8x2x16x16xbf16>, tensor<2x8x2x16x16xbf16>, tensor<2x8x2x16x16xbf16>, tensor<2x8x2x1x16xf32>)
// CHECK: %[[M:.*]], %[[Z:.*]], %{{.*}} = braid.lsm.factor_scan VH
// CHECK: braid.lsm.chunk_grad VH {{.*}} in_state(%[[M]]) written(%[[Z]]) cotangents
// CPU-LABEL: func.func @vector_delta_grad
// CPU: braid.lsm.chunk_state VH {{.*}} -> (tensor<2x8x2x16x16xf32>, tensor<2x8x2x16x16xf32>)
// CPU: braid.lsm.chunk_grad VH {{.*}} in_state(%{{[^)]*}}) cotangents
func.func @vector_delta_grad(%q: !tok, %g: !channels, %b: !gate, %m: !state, %d: !doc) -> (!tok, !state) {
  %r:6 = braid.lsm.scan_grad VH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) cotangents(%q, %m) {chunk_size = 16 : i64, scale = 0.5 : f64}
      : (!tok, !tok, !tok, !channels, !gate, !state, !doc, !tok, !state) -> (!tok, !tok, !tok, !channels, !gate, !state)
  return %r#0, %r#5 : !tok, !state
}

// Decays of channels are logarithms, which are not rounded.
// CHECK-LABEL: func.func @channels
// CHECK: braid.lsm.chunk_state V {{.*}} -> (tensor<2x5x2x16x16xf32>, tensor<2x5x2x16xf32>)
// CHECK: braid.lsm.state_scan V {{.*}} -> (tensor<2x5x2x16x16xbf16>, tensor<2x2x16x16xf32>)
// CHECK: braid.lsm.chunk_output V
func.func @channels(%q: !tok, %g: !channels, %m: !state, %d: !doc) -> (!tok, !state) {
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!tok, !tok, !tok, !channels, !state, !doc) -> (!tok, !state)
  return %o, %f : !tok, !state
}

// Decays of numbers or of channels, keys and values that warps can share: states of chunks are added up where they are multiplied, and so are their
// cotangents. Sums of chunks, and what decays, are in no memory.
!wide = tensor<2x100x16x64xbf16>
!widechannels = tensor<2x100x16x64xf32>
!widegate = tensor<2x100x16xf32>
!widestate = tensor<2x16x64x64xf32>
// CHECK-LABEL: func.func @walk
// CHECK-NOT: braid.lsm.chunk_state
// CHECK: %[[M:.*]], %{{.*}} = braid.lsm.state_walk V %arg0, %arg0 log_decay(%arg1) state(%arg2) {{.*}} {chunk_size = 32 : i64, scale = 1.000000e+00 : f64} : {{.*}} -> (tensor<2x5x16x64x64xbf16>, tensor<2x16x64x64xf32>)
// CHECK: %[[D:.*]], %[[DS:.*]] = braid.lsm.state_walk V %arg0, %arg0 log_decay(%arg1) state(%arg2) {{.*}} {adjoint, chunk_size = 32 : i64, scale = 5.000000e-01 : f64}
// CHECK: braid.lsm.chunk_grad V {{.*}} in_state(%[[M]]) cotangents(%[[D]],
// CPU-LABEL: func.func @walk
// CPU: braid.lsm.chunk_state V
// CPU: braid.lsm.state_scan V
// CPU: braid.lsm.state_scan_grad V
func.func @walk(%q: !wide, %g: !widechannels, %m: !widestate, %d: !doc) -> (!wide, !widestate) {
  %r:5 = braid.lsm.scan_grad V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) cotangents(%q, %m) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!wide, !wide, !wide, !widechannels, !widestate, !doc, !wide, !widestate) -> (!wide, !wide, !wide, !widechannels, !widestate)
  return %r#0, %r#4 : !wide, !widestate
}

// Outputs of decays that are numbers are made by a walk, and no state of a chunk is. A gradient of its own makes states itself; one in the same function shares
// them with the outputs. Chunks are as long as a program has values: 32 of 64, though 128 were chosen.
// CHECK-LABEL: func.func @walk_numbers
// CHECK-NOT: braid.lsm.state_walk
// CHECK: braid.lsm.output_walk S %arg0, %arg0, %arg0 log_decay(%arg1) initial_state(%arg2) {{.*}} {chunk_size = 32 : i64, scale = 5.000000e-01 : f64}
// CHECK-NOT: braid.lsm.chunk_output
// CPU-LABEL: func.func @walk_numbers
// CPU: braid.lsm.state_scan S
// CPU: braid.lsm.chunk_output S
func.func @walk_numbers(%q: !wide, %g: !widegate, %m: !widestate, %d: !doc) -> (!wide, !widestate) {
  %o, %f = braid.lsm.scan S %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!wide, !wide, !wide, !widegate, !widestate, !doc) -> (!wide, !widestate)
  return %o, %f : !wide, !widestate
}

// CHECK-LABEL: func.func @walk_shared
// CHECK: braid.lsm.state_walk S
// CHECK: braid.lsm.chunk_output S
// CHECK-NOT: braid.lsm.output_walk
// CHECK: braid.lsm.chunk_grad S
func.func @walk_shared(%q: !wide, %g: !widegate, %m: !widestate, %d: !doc) -> (!wide, !wide) {
  %o, %f = braid.lsm.scan S %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!wide, !wide, !wide, !widegate, !widestate, !doc) -> (!wide, !widestate)
  %r:5 = braid.lsm.scan_grad S %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) cotangents(%o, %f) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!wide, !wide, !wide, !widegate, !widestate, !doc, !wide, !widestate) -> (!wide, !wide, !wide, !widegate, !widestate)
  return %o, %r#0 : !wide, !wide
}

// CHECK-LABEL: func.func @walk_shorter
// CHECK: braid.lsm.chunk_table {{.*}} {chunk_size = 64 : i64}
// CHECK: braid.lsm.output_walk S0 {{.*}} {chunk_size = 64 : i64
func.func @walk_shorter(%q: tensor<1x8192x32x128xbf16>, %g: tensor<32xf32>, %m: tensor<1x32x128x128xf32>, %d: tensor<1x8192xi32>) -> tensor<1x8192x32x128xbf16> {
  %o, %f = braid.lsm.scan S0 %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 128 : i64, scale = 0.5 : f64}
      : (tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<32xf32>, tensor<1x32x128x128xf32>, tensor<1x8192xi32>) -> (tensor<1x8192x32x128xbf16>, tensor<1x32x128x128xf32>)
  return %o : tensor<1x8192x32x128xbf16>
}

// Values that are no multiple of a chunk have no walk.
// CHECK-LABEL: func.func @walk_none
// CHECK-NOT: braid.lsm.output_walk
// CHECK: braid.lsm.chunk_output I
func.func @walk_none(%q: tensor<2x100x2x32xbf16>, %v: tensor<2x100x2x48xbf16>, %m: tensor<2x2x32x48xf32>, %d: !doc) -> tensor<2x100x2x48xbf16> {
  %o, %f = braid.lsm.scan I %q, %q, %v initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 0.5 : f64, braid.walk_segments = 1 : i64}
      : (tensor<2x100x2x32xbf16>, tensor<2x100x2x32xbf16>, tensor<2x100x2x48xbf16>, tensor<2x2x32x48xf32>, !doc) -> (tensor<2x100x2x48xbf16>, tensor<2x2x32x48xf32>)
  return %o : tensor<2x100x2x48xbf16>
}

// One head of a long row leaves a walk too few programs for so many chunks, one behind the other: sums of all chunks at once, then a scan over them.
// CHECK-LABEL: func.func @long
// CHECK: braid.lsm.chunk_state V
// CHECK: braid.lsm.state_scan V
func.func @long(%q: tensor<1x4096x1x128xbf16>, %g: tensor<1x4096x1x128xf32>, %m: tensor<1x1x128x128xf32>, %d: tensor<1x4096xi32>) -> tensor<1x4096x1x128xbf16> {
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 64 : i64, scale = 0.5 : f64}
      : (tensor<1x4096x1x128xbf16>, tensor<1x4096x1x128xbf16>, tensor<1x4096x1x128xbf16>, tensor<1x4096x1x128xf32>, tensor<1x1x128x128xf32>, tensor<1x4096xi32>) -> (tensor<1x4096x1x128xbf16>, tensor<1x1x128x128xf32>)
  return %o : tensor<1x4096x1x128xbf16>
}

// Eight heads of eight rows have a program for each multiprocessor: of outputs, too, where decays are of channels.
// CHECK-LABEL: func.func @rows
// CHECK-NOT: braid.lsm.chunk_output
// CHECK: braid.lsm.output_walk V {{.*}} {chunk_size = 64 : i64
// Where products read fragments from registers, none are left for decays of channels: two kernels.
// FRAGMENTS-LABEL: func.func @rows
// FRAGMENTS: braid.lsm.state_walk V
// FRAGMENTS: braid.lsm.chunk_output V
func.func @rows(%q: tensor<8x2048x8x128xbf16>, %g: tensor<8x2048x8x128xf32>, %m: tensor<8x8x128x128xf32>, %d: tensor<8x2048xi32>) -> tensor<8x2048x8x128xbf16> {
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 64 : i64, scale = 0.5 : f64}
      : (tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xbf16>, tensor<8x2048x8x128xf32>, tensor<8x8x128x128xf32>, tensor<8x2048xi32>) -> (tensor<8x2048x8x128xbf16>, tensor<8x8x128x128xf32>)
  return %o : tensor<8x2048x8x128xbf16>
}

// Wider keys than the registers of a walk that makes outputs hold are walked for states.
// CHECK-LABEL: func.func @keys
// CHECK-NOT: braid.lsm.output_walk
// CHECK: braid.lsm.state_walk V {{.*}}braid.walk_segments = 2 : i64
// CHECK: braid.lsm.chunk_output V
func.func @keys(%q: tensor<1x4096x1x192xbf16>, %v: tensor<1x4096x1x64xbf16>, %g: tensor<1x4096x1x192xf32>, %m: tensor<1x1x192x64xf32>, %d: tensor<1x4096xi32>) -> tensor<1x4096x1x64xbf16> {
  %o, %f = braid.lsm.scan V %q, %q, %v log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 64 : i64, scale = 0.5 : f64, braid.walk_segments = 2 : i64}
      : (tensor<1x4096x1x192xbf16>, tensor<1x4096x1x192xbf16>, tensor<1x4096x1x64xbf16>, tensor<1x4096x1x192xf32>, tensor<1x1x192x64xf32>, tensor<1x4096xi32>) -> (tensor<1x4096x1x64xbf16>, tensor<1x1x192x64xf32>)
  return %o : tensor<1x4096x1x64xbf16>
}

// Where a number of segments is given, nothing is counted.
// CHECK-LABEL: func.func @given
// CHECK: braid.lsm.output_walk V {{.*}}braid.walk_segments = 4 : i64
func.func @given(%q: tensor<1x4096x1x128xbf16>, %g: tensor<1x4096x1x128xf32>, %m: tensor<1x1x128x128xf32>, %d: tensor<1x4096xi32>) -> tensor<1x4096x1x128xbf16> {
  %o, %f = braid.lsm.scan V %q, %q, %q log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 64 : i64, scale = 0.5 : f64, braid.walk_segments = 4 : i64}
      : (tensor<1x4096x1x128xbf16>, tensor<1x4096x1x128xbf16>, tensor<1x4096x1x128xbf16>, tensor<1x4096x1x128xf32>, tensor<1x1x128x128xf32>, tensor<1x4096xi32>) -> (tensor<1x4096x1x128xbf16>, tensor<1x1x128x128xf32>)
  return %o : tensor<1x4096x1x128xbf16>
}

// Delta rules: of what chunks need only a triangle's inverse, and sums of decays, are made before. Programs are half as many as those of a scan by factors, and
// an iteration is shorter.
// CHECK-LABEL: func.func @walk_delta
// CHECK-NOT: braid.lsm.chunk_factors
// CHECK: %[[T:.*]], %[[C:.*]] = braid.lsm.chunk_inverse GH %arg0 log_decay(%arg1) beta(%arg1) {{.*}} {chunk_size = 64 : i64} {{.*}} -> (tensor<1x129x32x64x64xbf16>, tensor<1x129x32x192xf32>)
// CHECK: braid.lsm.output_walk GH %arg0, %arg0, %arg0 inverse(%[[T]], %[[C]]) initial_state(%arg2)
// CHECK: braid.lsm.chunk_inverse H
// CHECK: braid.lsm.output_walk H
// CHECK-NOT: braid.lsm.factor_scan
// CPU-LABEL: func.func @walk_delta
// CPU: braid.lsm.state_scan GH
// CPU: braid.lsm.state_scan H
func.func @walk_delta(%q: tensor<1x8192x32x128xbf16>, %g: tensor<1x8192x32xf32>, %m: tensor<1x32x128x128xf32>, %d: tensor<1x8192xi32>) -> (tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>) {
  %o, %f = braid.lsm.scan GH %q, %q, %q log_decay(%g) beta(%g) initial_state(%m) documents(%d) {chunk_size = 64 : i64, scale = 0.5 : f64}
      : (tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<1x8192x32xf32>, tensor<1x8192x32xf32>, tensor<1x32x128x128xf32>, tensor<1x8192xi32>) -> (tensor<1x8192x32x128xbf16>, tensor<1x32x128x128xf32>)
  %p, %e = braid.lsm.scan H %q, %q, %o beta(%g) initial_state(%m) documents(%d) {chunk_size = 64 : i64, scale = 0.5 : f64}
      : (tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>, tensor<1x8192x32xf32>, tensor<1x32x128x128xf32>, tensor<1x8192xi32>) -> (tensor<1x8192x32x128xbf16>, tensor<1x32x128x128xf32>)
  return %o, %p : tensor<1x8192x32x128xbf16>, tensor<1x8192x32x128xbf16>
}

// A gradient in the same function shares the states.
// CHECK-LABEL: func.func @walk_delta_shared
// CHECK-NOT: braid.lsm.output_walk
// CHECK: braid.lsm.factor_scan GH
// CHECK: braid.lsm.chunk_output GH
func.func @walk_delta_shared(%q: !wide, %g: !widegate, %m: !widestate, %d: !doc) -> (!wide, !wide) {
  %o, %f = braid.lsm.scan GH %q, %q, %q log_decay(%g) beta(%g) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!wide, !wide, !wide, !widegate, !widegate, !widestate, !doc) -> (!wide, !widestate)
  %r:6 = braid.lsm.scan_grad GH %q, %q, %q log_decay(%g) beta(%g) initial_state(%m) documents(%d) cotangents(%o, %f) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!wide, !wide, !wide, !widegate, !widegate, !widestate, !doc, !wide, !widestate) -> (!wide, !wide, !wide, !widegate, !widegate, !widestate)
  return %o, %r#0 : !wide, !wide
}

// Under decays of channels (VH) all that a walk multiplies by is made before, for chunks of 64 where all are known to be mild: that factors of other kernels are made for 32 is
// no bound where it was chosen (braid.chunk_costs), but is where it was given. A chunk of 64 tokens that decays by more than exp(-144) takes seven times as long.
!longchannels = tensor<1x8192x32x128xf32>
!longnumbers = tensor<1x8192x32xf32>
!long = tensor<1x8192x32x128xbf16>
!longstate = tensor<1x32x128x128xf32>
!longdoc = tensor<1x8192xi32>
// CHECK-LABEL: func.func @walk_vector_delta
// CHECK-NOT: braid.lsm.chunk_factors
// CHECK: %[[Q:.*]], %[[K:.*]], %[[W:.*]], %[[S:.*]], %[[D:.*]] = braid.lsm.chunk_walk_factors VH %arg0, %arg0 log_decay(%arg1) beta(%arg2) {{.*}} {braid.chunk_costs = "32: 827", {{.*}}braid.score_rows = 32 : i64, chunk_size = 64 : i64, scale = 5.000000e-01 : f64}
// CHECK-SAME: -> (tensor<1x129x32x64x128xbf16>, tensor<1x129x32x64x128xbf16>, tensor<1x129x32x64x128xbf16>, tensor<1x129x32x64x64xbf16>, tensor<1x129x32x1x128xf32>)
// CHECK: braid.lsm.factor_walk VH factors(%[[Q]], %[[K]], %[[W]], %[[S]], %[[D]]) %arg0 initial_state(%arg3)
// CHECK: braid.lsm.chunk_walk_factors VH {{.*}}chunk_size = 32
// CHECK: braid.lsm.factor_walk VH
// CHECK: braid.lsm.chunk_walk_factors VH {{.*}}braid.chunk_costs = "32: 827"{{.*}}chunk_size = 32
// CHECK: braid.lsm.factor_walk VH
// CHECK: braid.lsm.chunk_walk_factors VH {{.*}}braid.chunk_costs = "32: 827"{{.*}}chunk_size = 32
// CHECK: braid.lsm.factor_walk VH
// CHECK-NOT: braid.lsm.factor_scan
// CPU-LABEL: func.func @walk_vector_delta
// CPU: braid.lsm.state_scan VH
// CPU-NOT: braid.lsm.factor_walk
func.func @walk_vector_delta(%q: !long, %g: !longchannels, %b: !longnumbers, %m: !longstate, %d: !longdoc) -> (!long, !long, !long, !long) {
  %o, %f = braid.lsm.scan VH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) {braid.chunk_costs = "32: 827", braid.least_log_decay = -2.2 : f64, braid.score_rows = 32 : i64, chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!long, !long, !long, !longchannels, !longnumbers, !longstate, !longdoc) -> (!long, !longstate)
  %p, %h = braid.lsm.scan VH %q, %q, %o log_decay(%g) beta(%b) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!long, !long, !long, !longchannels, !longnumbers, !longstate, !longdoc) -> (!long, !longstate)
  %r, %i = braid.lsm.scan VH %q, %q, %p log_decay(%g) beta(%b) initial_state(%m) documents(%d) {braid.chunk_costs = "32: 827", braid.score_rows = 32 : i64, chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!long, !long, !long, !longchannels, !longnumbers, !longstate, !longdoc) -> (!long, !longstate)
  %s, %j = braid.lsm.scan VH %q, %q, %r log_decay(%g) beta(%b) initial_state(%m) documents(%d) {braid.chunk_costs = "32: 827", braid.least_log_decay = -2.3 : f64, braid.score_rows = 32 : i64, chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!long, !long, !long, !longchannels, !longnumbers, !longstate, !longdoc) -> (!long, !longstate)
  return %o, %p, %r, %s : !long, !long, !long, !long
}

// A gradient in the same function shares the states, and a row of 64 tokens is one chunk.
// CHECK-LABEL: func.func @walk_vector_delta_not
// CHECK-NOT: braid.lsm.factor_walk
// CHECK: braid.lsm.factor_scan VH
// CHECK: braid.lsm.chunk_output VH
// CHECK: braid.lsm.chunk_grad VH
!few = tensor<1x64x32x128xbf16>
!fewchannels = tensor<1x64x32x128xf32>
!fewnumbers = tensor<1x64x32xf32>
// CHECK-LABEL: func.func @walk_vector_delta_few
// CHECK-NOT: chunk_size = 64
// CHECK: return
func.func @walk_vector_delta_not(%q: !long, %g: !longchannels, %b: !longnumbers, %m: !longstate, %d: !longdoc) -> (!long, !long) {
  %o, %f = braid.lsm.scan VH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!long, !long, !long, !longchannels, !longnumbers, !longstate, !longdoc) -> (!long, !longstate)
  %r:6 = braid.lsm.scan_grad VH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) cotangents(%o, %f) {chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!long, !long, !long, !longchannels, !longnumbers, !longstate, !longdoc, !long, !longstate) -> (!long, !long, !long, !longchannels, !longnumbers, !longstate)
  return %o, %r#0 : !long, !long
}
func.func @walk_vector_delta_few(%q: !few, %g: !fewchannels, %b: !fewnumbers, %m: !longstate, %d: tensor<1x64xi32>) -> !few {
  %o, %f = braid.lsm.scan VH %q, %q, %q log_decay(%g) beta(%b) initial_state(%m) documents(%d) {braid.chunk_costs = "32: 827", chunk_size = 32 : i64, scale = 0.5 : f64}
      : (!few, !few, !few, !fewchannels, !fewnumbers, !longstate, tensor<1x64xi32>) -> (!few, !longstate)
  return %o : !few
}

// Decays of 128 tokens and scores of as many do not fit the registers of a thread together: chunks are half as long. Without decays of their own (I) they stay.
!values = tensor<1x8192x16x128xbf16>
!half = tensor<1x8192x16x64xbf16>
!halfstate = tensor<1x16x64x128xf32>
// CHECK-LABEL: func.func @registers
// CHECK: braid.lsm.output_walk S {{.*}}chunk_size = 64
// CHECK: braid.lsm.output_walk I {{.*}}chunk_size = 128
func.func @registers(%q: !half, %v: !values, %g: tensor<1x8192x16xf32>, %m: !halfstate, %d: tensor<1x8192xi32>) -> (!values, !values, !halfstate, !halfstate) {
  %o, %f = braid.lsm.scan S %q, %q, %v log_decay(%g) initial_state(%m) documents(%d) {chunk_size = 128 : i64, scale = 0.5 : f64}
      : (!half, !half, !values, tensor<1x8192x16xf32>, !halfstate, tensor<1x8192xi32>) -> (!values, !halfstate)
  %p, %h = braid.lsm.scan I %q, %q, %v initial_state(%m) documents(%d) {chunk_size = 128 : i64, scale = 0.5 : f64}
      : (!half, !half, !values, !halfstate, tensor<1x8192xi32>) -> (!values, !halfstate)
  return %o, %p, %f, %h : !values, !values, !halfstate, !halfstate
}
