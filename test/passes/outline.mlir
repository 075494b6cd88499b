// Model ops become launches of named kernels, library calls and views.
// RUN: braid-opt %s --split-input-file --braid-fuse-rows --braid-outline | FileCheck %s
// RUN: braid-opt %s --split-input-file --braid-fuse-rows --braid-outline=cublaslt=true | FileCheck %s --check-prefix=APART
// RUN: braid-opt %s --split-input-file --braid-fuse-rows --braid-outline | braid-opt --split-input-file | FileCheck %s

!x = tensor<2x40x64xf32>
!w = tensor<64xf32>

// Two layers of the same structure share a kernel; what is used only inside never becomes a tensor.
// CHECK-LABEL: func.func @layers
// CHECK: %[[A:.*]] = tile.launch @[[NORM:rows_add_rms_norm_[0-9a-f]+]] grid [10]({{.*}}) {arg_names = ["x0", "x1", "w0"]
// CHECK-SAME: result_names = ["y0"], scalars = {rows = 80 : index}} : (tensor<80x64xf32>, tensor<80x64xf32>, tensor<64xf32>) -> tensor<80x64xf32>
// CHECK: tile.gemm %{{.*}}, %arg3 {a_columns = 64 : i64, b_columns = 64 : i64, c_columns = 64 : i64}
// CHECK: tile.launch @[[NORM]]
// CHECK-NOT: braid.rms_norm
func.func @layers(%x: !x, %h: !x, %w: !w, %m: tensor<64x64xf32>) -> !x {
  %0 = braid.add %x, %h : (!x, !x) -> !x
  %1 = braid.rms_norm %0, %w {eps = 1.0e-6} : (!x, !w) -> !x
  %2 = braid.linear %1, %m : (!x, tensor<64x64xf32>) -> !x
  %3 = braid.add %2, %h : (!x, !x) -> !x
  %4 = braid.rms_norm %3, %w {eps = 1.0e-6} : (!x, !w) -> !x
  return %4 : !x
}

// The same features over other rows: the same kernel.
// CHECK-LABEL: func.func @other_rows
// CHECK: tile.launch @[[NORM]] {{.*}}scalars = {rows = 7 : index}
func.func @other_rows(%x: tensor<1x7x64xf32>, %h: tensor<1x7x64xf32>, %w: !w) -> tensor<1x7x64xf32> {
  %0 = braid.add %x, %h : (tensor<1x7x64xf32>, tensor<1x7x64xf32>) -> tensor<1x7x64xf32>
  %1 = braid.rms_norm %0, %w {eps = 1.0e-6} : (tensor<1x7x64xf32>, !w) -> tensor<1x7x64xf32>
  return %1 : tensor<1x7x64xf32>
}

// Elementwise on one shape: elements are rows, whatever the shape.
// CHECK-LABEL: func.func @flat
// CHECK: tile.launch @rows_scale_{{.*}} grid [3](%{{.*}}) {{.*}}rows = 2070 : index}} : (tensor<2070xf32>) -> tensor<2070xf32>
func.func @flat(%x: tensor<45x46xf32>) -> tensor<45x46xf32> {
  %0 = braid.scale %x {value = 3.0} : (tensor<45x46xf32>) -> tensor<45x46xf32>
  return %0 : tensor<45x46xf32>
}

// The rope knows its tokens: rows modulo 40.
// CHECK-LABEL: func.func @rope
// CHECK: tile.launch @rows_rope_{{.*}}scalars = {rows = 80 : index, tokens = 40 : index}
func.func @rope(%x: tensor<2x40x2x8xf32>, %d: tensor<2x40xi32>) -> tensor<2x40x2x8xf32> {
  %0 = braid.rope %x, %d {theta = 1.0e4, dim = 8 : i64, layout = "half"} : (tensor<2x40x2x8xf32>, tensor<2x40xi32>) -> tensor<2x40x2x8xf32>
  return %0 : tensor<2x40x2x8xf32>
}

// The kernel: load, arithmetic, store; nothing of the model is left in it.
// CHECK: func.func @[[NORM]](%{{.*}}: memref<?x64xf32> {tile.name = "x0"}, %{{.*}}: memref<?x64xf32> {tile.name = "x1"},
// CHECK-SAME: memref<64xf32> {tile.name = "w0"}, %{{.*}}: memref<?x64xf32> {tile.name = "y0"}, %[[ROWS:.*]]: index {tile.name = "rows"}) attributes {tile.grid = ["rows"], tile.kernel, tile.rounds_each}
// CHECK: tile.load {{.*}} limit %[[ROWS]] {{.*}}vector<8x64xf32>
// CHECK: tile.reduce add
// CHECK: math.rsqrt
// CHECK: tile.store {{.*}} limit %[[ROWS]]
// CHECK-NOT: func.func @[[NORM]]

// -----

// Gradient of a weight: every program sums its rows, a second launch sums the programs.
// CHECK-LABEL: func.func @weight_gradient
// CHECK: %[[P:.*]]:2 = tile.launch @[[K:rows_weighted_grad_[0-9a-f]+]] grid [63]
// CHECK-SAME: result_names = ["y0", "sum1"], scalars = {rows = 2000 : index, span = 32 : index}
// CHECK-SAME: -> (tensor<2000x16xf32>, tensor<63x16xf32>)
// CHECK: tile.launch @sum_rows_f32 grid [1](%{{.*}}) {{.*}}count = 63 : index, size = 16 : index
// CHECK: func.func @[[K]]
// CHECK: scf.for {{.*}} iter_args
func.func @weight_gradient(%x: tensor<2x1000x16xf32>, %w: tensor<16xf32>, %dy: tensor<2x1000x16xf32>) -> (tensor<2x1000x16xf32>, tensor<16xf32>) {
  %0:2 = braid.rows_grad "braid.weighted"(%x, %w) cotangents(%dy) {op_attributes = {}, wanted = array<i64: 0, 1>}
      : (tensor<2x1000x16xf32>, tensor<16xf32>, tensor<2x1000x16xf32>) -> (tensor<2x1000x16xf32>, tensor<16xf32>)
  return %0#0, %0#1 : tensor<2x1000x16xf32>, tensor<16xf32>
}

// -----

// Linears: one call per weight, sums of data gradients accumulate in place; weight gradients run over all tokens.
// CHECK-LABEL: func.func @linears
// CHECK: tile.gemm %arg0, %arg1 {a_columns = 16 : i64, b_columns = 32 : i64, c_columns = 32 : i64}
// CHECK: tile.gemm %arg0, %arg2 {a_columns = 16 : i64, b_columns = 8 : i64, c_columns = 8 : i64}
// CHECK: %[[DX:.*]] = tile.gemm %{{.*}}, %arg1 {a_columns = 32 : i64, b_columns = 32 : i64, c_columns = 16 : i64, transpose_b}
// CHECK: tile.gemm %{{.*}}, %arg2, %[[DX]] {a_columns = 8 : i64, b_columns = 8 : i64, c_columns = 16 : i64, transpose_b}
// CHECK: tile.gemm %arg0, %{{.*}} {a_columns = 16 : i64, b_columns = 32 : i64, c_columns = 32 : i64, transpose_a}
func.func @linears(%x: tensor<2x8x16xf32>, %a: tensor<16x32xf32>, %b: tensor<16x8xf32>) -> (tensor<2x8x16xf32>, tensor<16x32xf32>) {
  %0:2 = braid.linear %x, %a, %b : (tensor<2x8x16xf32>, tensor<16x32xf32>, tensor<16x8xf32>) -> (tensor<2x8x4x8xf32>, tensor<2x8x8xf32>)
  %1 = braid.linear_grad_data cotangents(%0#0, %0#1) weights(%a, %b) : (tensor<2x8x4x8xf32>, tensor<2x8x8xf32>, tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<2x8x16xf32>
  %2 = braid.linear_grad_weight %x cotangents(%0#0) : (tensor<2x8x16xf32>, tensor<2x8x4x8xf32>) -> tensor<16x32xf32>
  return %1, %2 : tensor<2x8x16xf32>, tensor<16x32xf32>
}

// -----

// One token: weights stream through a kernel; five rows are the library's.
// CHECK-LABEL: func.func @one_token
// CHECK: tile.launch @few_rows_k16_n70_f32 grid [1, 2]
// CHECK: tile.launch @few_rows_t_k16_n70_f32 grid [1, 9]
// CHECK: tile.launch @few_rows_experts_k16_n70_f32 grid [2, 2]
// CHECK: tile.gemm
func.func @one_token(%x: tensor<1x1x16xf32>, %w: tensor<16x70xf32>, %t: tensor<70x16xf32>, %rows: tensor<1x2x16xf32>, %offsets: tensor<5xi32>, %e: tensor<4x16x70xf32>, %y: tensor<1x5x16xf32>)
    -> (tensor<1x1x70xf32>, tensor<1x1x70xf32>, tensor<1x2x70xf32>, tensor<1x5x70xf32>) {
  %0 = braid.linear %x, %w : (tensor<1x1x16xf32>, tensor<16x70xf32>) -> tensor<1x1x70xf32>
  %1 = braid.linear %x, %t {transposed} : (tensor<1x1x16xf32>, tensor<70x16xf32>) -> tensor<1x1x70xf32>
  %2 = braid.moe.grouped_linear %rows offsets(%offsets) weights(%e) : (tensor<1x2x16xf32>, tensor<5xi32>, tensor<4x16x70xf32>) -> tensor<1x2x70xf32>
  %3 = braid.linear %y, %w : (tensor<1x5x16xf32>, tensor<16x70xf32>) -> tensor<1x5x70xf32>
  return %0, %1, %2, %3 : tensor<1x1x70xf32>, tensor<1x1x70xf32>, tensor<1x2x70xf32>, tensor<1x5x70xf32>
}

// -----

// f64 has no library: a tile kernel.
// CHECK-LABEL: func.func @exact
// CHECK: tile.launch @gemm_f64_n32_k16 grid [1, 1]
// CHECK-NOT: tile.gemm
func.func @exact(%x: tensor<2x8x16xf64>, %a: tensor<16x32xf64>) -> tensor<2x8x32xf64> {
  %0 = braid.linear %x, %a : (tensor<2x8x16xf64>, tensor<16x32xf64>) -> tensor<2x8x32xf64>
  return %0 : tensor<2x8x32xf64>
}

// -----

// A slice or concat of leading dimensions is a view; of others a copy, part after part. Zeros stay constants, other constants are filled.
// CHECK-LABEL: func.func @views
// CHECK: braid.slice %arg0 {begin = 1 : i64, dim = 0 : i64}
// CHECK: tile.launch @slice_f32 grid [1, 4]
// CHECK: %[[PART:.*]] = tile.launch @insert_first_f32 grid [1, 4]
// CHECK: tile.launch @insert_f32 grid [1, 4]({{.*}}%[[PART]])
// CHECK: arith.constant dense<0.000000e+00>
// CHECK: tile.launch @fill_f32 {{.*}}value = 2.500000e+00 : f64
func.func @views(%x: tensor<4x6xf32>) -> (tensor<1x6xf32>, tensor<4x8xf32>, tensor<3xf32>, tensor<3xf32>) {
  %0 = braid.slice %x {dim = 0 : i64, begin = 1 : i64} : (tensor<4x6xf32>) -> tensor<1x6xf32>
  %1 = braid.slice %x {dim = 1 : i64, begin = 4 : i64} : (tensor<4x6xf32>) -> tensor<4x2xf32>
  %2 = braid.concat %1, %x {dim = 1 : i64} : (tensor<4x2xf32>, tensor<4x6xf32>) -> tensor<4x8xf32>
  %3 = arith.constant dense<0.0> : tensor<3xf32>
  %4 = arith.constant dense<2.5> : tensor<3xf32>
  return %0, %2, %3, %4 : tensor<1x6xf32>, tensor<4x8xf32>, tensor<3xf32>, tensor<3xf32>
}

// -----

// 300 rows of 4100 words are cut at 112 rows; the repeat walks over views of x and labels, and the weight gradient adds up
// in one buffer. No tensor holds all logits.
// CHECK-LABEL: func.func @blocked_loss
// CHECK-NOT: 300x4100
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<8x4100xf32>
// CHECK: braid.slice %{{.*}} {begin = 0 : i64, dim = 0 : i64} : (tensor<300x8xf32>) -> tensor<224x8xf32>
// CHECK: %[[R:.*]]:3 = braid.repeat %[[ZERO]], %{{.*}}, %{{.*}} {carried = 1 : i64, count = 2 : i64} : (tensor<8x4100xf32>, tensor<2x112x8xf32>, tensor<2x112xi32>) -> (tensor<8x4100xf32>, tensor<2x112x8xf32>, tensor<2x112xf32>)
// CHECK: ^bb0(%[[DW:.*]]: tensor<8x4100xf32>, %[[X:.*]]: tensor<112x8xf32>, %[[LABELS:.*]]: tensor<112xi32>):
// CHECK:   %[[L:.*]] = tile.gemm %[[X]], %arg1 {{.*}} -> tensor<112x4100xf32>
// CHECK:   %[[ROWS:.*]]:3 = tile.launch @cross_entropy_f32 {{.*}}(%[[L]], %[[LABELS]])
// CHECK:   %[[D:.*]] = tile.launch @cross_entropy_grad_f32 {{.*}}(%[[L]], %[[LABELS]], %[[ROWS]]#0, %arg3) {{.*}}inplace = array<i64: 0>
// CHECK:   tile.gemm %[[X]], %[[D]], %[[DW]] {{.*}}transpose_a} {{.*}} -> tensor<8x4100xf32>
// CHECK:   tile.gemm %[[D]], %arg1 {{.*}}transpose_b} {{.*}} -> tensor<112x8xf32>
// CHECK: tile.gemm {{.*}} -> tensor<76x4100xf32>
// CHECK: tile.gemm %{{.*}}, %{{.*}}, %[[R]]#0
// CHECK: braid.concat %{{.*}}, %{{.*}} {dim = 0 : i64} : (tensor<224x8xf32>, tensor<76x8xf32>) -> tensor<300x8xf32>
func.func @blocked_loss(%x: tensor<2x150x8xf32>, %w: tensor<8x4100xf32>, %labels: tensor<2x150xi32>, %dsum: tensor<1xf32>)
    -> (tensor<2x150x8xf32>, tensor<8x4100xf32>, tensor<1xf32>) {
  %dx, %dw, %sum = braid.linear_cross_entropy_grad %x, %w, %labels, %dsum : (tensor<2x150x8xf32>, tensor<8x4100xf32>, tensor<2x150xi32>, tensor<1xf32>) -> (tensor<2x150x8xf32>, tensor<8x4100xf32>, tensor<1xf32>)
  return %dx, %dw, %sum : tensor<2x150x8xf32>, tensor<8x4100xf32>, tensor<1xf32>
}

// -----

// The optimizer works in place: new values share the buffers of the old ones.
// CHECK-LABEL: func.func @optimizer
// CHECK: tile.launch @adamw_f32 grid [1]
// CHECK-SAME: inplace = array<i64: 0, 2, 3>, result_names = ["new_parameter", "new_first", "new_second"]
func.func @optimizer(%w: tensor<8x9xf32>, %g: tensor<8x9xf32>, %m: tensor<8x9xf32>, %v: tensor<8x9xf32>, %lr: tensor<1xf32>, %step: tensor<1xi32>) -> (tensor<8x9xf32>, tensor<8x9xf32>, tensor<8x9xf32>) {
  %0:3 = braid.adamw %w, %g, %m, %v, %lr, %step, %lr {beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.1} : (tensor<8x9xf32>, tensor<8x9xf32>, tensor<8x9xf32>, tensor<8x9xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<8x9xf32>, tensor<8x9xf32>, tensor<8x9xf32>)
  return %0#0, %0#1, %0#2 : tensor<8x9xf32>, tensor<8x9xf32>, tensor<8x9xf32>
}

// -----

// A bf16 parameter is its master, rounded: an f32 in parts (MasterParts.h). Several bf16 products are added up in f32 and rounded once.
// CHECK-LABEL: func.func @rounded
// CHECK: tile.launch @adamw_bf16_f32_master grid [1]
// CHECK-SAME: inplace = array<i64: 0, 2, 3, 7>, result_names = ["new_parameter", "new_first", "new_second", "new_low"]
// CHECK: %[[FIRST:.*]] = tile.gemm %{{.*}}, %{{.*}} -> tensor<1x8x9xf32>
// CHECK: %[[SUM:.*]] = tile.gemm %{{.*}}, %{{.*}}, %[[FIRST]] {{.*}}apart{{.*}} -> tensor<1x8x9xbf16>
// CHECK-NOT: tile.launch @round_f32_bf16
// CHECK: tile.gemm {{.*}} -> tensor<1x8x9xbf16>
// CHECK: return {{.*}}%[[SUM]]
// APART-LABEL: func.func @rounded
// APART: %[[FIRST:.*]] = tile.gemm %{{.*}}, %{{.*}} -> tensor<1x8x9xf32>
// APART: %[[SUM:.*]] = tile.gemm %{{.*}}, %{{.*}}, %[[FIRST]] {{.*}} -> tensor<1x8x9xf32>
// APART: tile.launch @round_f32_bf16
!half = tensor<1x8x9xbf16>
func.func @rounded(%w: tensor<8x9xbf16>, %g: tensor<8x9xf32>, %m: tensor<8x9xf32>, %v: tensor<8x9xf32>, %lr: tensor<1xf32>, %step: tensor<1xi32>, %low: tensor<8x9xi16>, %dy: tensor<1x8x8xbf16>, %u: tensor<9x8xbf16>) -> (tensor<8x9xbf16>, tensor<8x9xf32>, tensor<8x9xf32>, tensor<8x9xi16>, !half, !half) {
  %0:4 = braid.adamw %w, %g, %m, %v, %lr, %step, %lr, %low {beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.1} : (tensor<8x9xbf16>, tensor<8x9xf32>, tensor<8x9xf32>, tensor<8x9xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>, tensor<8x9xi16>) -> (tensor<8x9xbf16>, tensor<8x9xf32>, tensor<8x9xf32>, tensor<8x9xi16>)
  %1 = braid.linear_grad_data cotangents(%dy, %dy) weights(%u, %u) : (tensor<1x8x8xbf16>, tensor<1x8x8xbf16>, tensor<9x8xbf16>, tensor<9x8xbf16>) -> !half
  %2 = braid.linear_grad_data cotangents(%dy) weights(%u) : (tensor<1x8x8xbf16>, tensor<9x8xbf16>) -> !half
  return %0#0, %0#1, %0#2, %0#3, %1, %2 : tensor<8x9xbf16>, tensor<8x9xf32>, tensor<8x9xf32>, tensor<8x9xi16>, !half, !half
}

// -----

// Layers of one stack: one kernel, a launch per layer with the layer's key.
// CHECK-LABEL: func.func @init
// CHECK: tile.launch @init_normal_f32 {{.*}}key = 11 : index
// CHECK: tile.launch @init_normal_f32 {{.*}}key = 12 : index
// CHECK: braid.concat
func.func @init(%seed: tensor<1xi64>) -> tensor<2x4x4xf32> {
  %0 = braid.init %seed {distribution = "normal", keys = array<i64: 11, 12>, scale = 0.02, stacked} : (tensor<1xi64>) -> tensor<2x4x4xf32>
  return %0 : tensor<2x4x4xf32>
}

// -----

!rows = tensor<1x32x16xf32>
!hidden = tensor<1x32x24xf32>
// A buffer has room for all rows that could come; what is done row by row ends where the offsets of the experts say. Rows that
// no product of experts makes or reads are all there.
// CHECK-LABEL: func.func @experts(
// CHECK-SAME: %[[OFFSETS:[a-z0-9]+]]: tensor<3xi32>
// CHECK: tile.launch @moe_gather_sent_d16_f32 grid [2](%{{.*}}, %{{.*}}, %[[OFFSETS]]) {arg_names = ["x", "perm", "ends"], {{.*}}programs = 2 : index, rows = 32 : index
// CHECK: tile.grouped_gemm
// CHECK: tile.launch @rows_activation_mul_{{.*}}(%{{.*}}, %{{.*}}, %[[OFFSETS]]) {arg_names = ["x0", "x1", "ends"]
// CHECK: tile.launch @rows_scale_{{.*}}, %[[OFFSETS]]) {arg_names = ["x0", "ends"]
// CHECK: tile.launch @moe_gather_d16_f32 {{.*}}arg_names = ["x", "perm"]
// CHECK: tile.launch @rows_activation_{{.*}} {arg_names = ["x0"]
// CHECK: func.func @moe_gather_sent_d16_f32({{.*}}%[[ENDS:[a-z0-9]+]]: memref<?xi32> {tile.name = "ends"}
// CHECK: memref.dim %[[ENDS]]
// CHECK: scf.for
func.func @experts(%x: !rows, %perm: tensor<32xi32>, %offsets: tensor<3xi32>, %w: tensor<2x16x24xf32>, %u: tensor<2x16x24xf32>, %saved: !hidden) -> (!hidden, !rows, !hidden, tensor<2x16x24xf32>) {
  %sorted = braid.moe.permute %x plan(%perm, %perm) : (!rows, tensor<32xi32>, tensor<32xi32>) -> !rows
  %gate, %up = braid.moe.grouped_linear %sorted offsets(%offsets) weights(%w, %u) : (!rows, tensor<3xi32>, tensor<2x16x24xf32>, tensor<2x16x24xf32>) -> (!hidden, !hidden)
  %a = braid.activation %gate {kind = "silu"} : (!hidden) -> !hidden
  %h = braid.mul %a, %up : (!hidden, !hidden) -> !hidden
  %w2 = braid.comm.all_reduce %w {axis = "ep"} : (tensor<2x16x24xf32>) -> tensor<2x16x24xf32>
  %s = braid.scale %h {value = 2.0 : f64} : (!hidden) -> !hidden
  %back = braid.moe.permute %x plan(%perm, %perm) : (!rows, tensor<32xi32>, tensor<32xi32>) -> !rows
  %b = braid.activation %saved {kind = "silu"} : (!hidden) -> !hidden
  return %s, %back, %b, %w2 : !hidden, !rows, !hidden, tensor<2x16x24xf32>
}

// -----

// One program plans few assignments; else each step is a launch of many programs. What is written before all of it is known
// is written over in its place. Other sizes: the same kernels.
// CHECK-LABEL: func.func @plans(
// CHECK: %[[FEW:.*]]:9 = tile.launch @moe_plan_k2 grid [1]({{.*}}scalars = {assignments = 24 : index, columns = 6 : index, expert_rows = 0 : index, experts = 6 : index, peer_rows = 24 : index, span = 256 : index}
// CHECK: %[[COUNT:.*]]:3 = tile.launch @moe_plan_count_k2 grid [4]({{.*}}result_names = ["ranks", "table", "perm"], scalars = {assignments = 1000 : index, columns = 96 : index, experts = 80 : index, share = 250 : index, span = 256 : index}
// CHECK: %[[TABLE:.*]] = braid.reshape %[[COUNT]]#1 : (tensor<384xi32>) -> tensor<4x96xi32>
// CHECK: %[[ADD:.*]]:2 = tile.launch @moe_plan_add grid [3](%[[TABLE]])
// CHECK: %[[DIVIDE:.*]]:5 = tile.launch @moe_plan_divide grid [1](%[[ADD]]#1)
// CHECK: %[[STARTS:.*]] = braid.reshape %[[ADD]]#0 : (tensor<4x96xi32>) -> tensor<384xi32>
// CHECK: tile.launch @moe_plan_place grid [4](%{{.*}}, %[[COUNT]]#0, %[[STARTS]], %[[DIVIDE]]#0, %[[DIVIDE]]#1, %[[COUNT]]#2) {arg_names = ["ids", "ranks", "starts", "first", "room", "empty_perm"], inplace = array<i64: 1, 5>
// CHECK: tile.launch @moe_plan_count_k2 grid [256]({{.*}}span = 544 : index
// Of 64 experts or fewer one program adds up all, and divides.
// CHECK: %[[BOTH:.*]]:7 = tile.launch @moe_plan_add_divide_e32_peers grid [1]({{.*}}result_names = ["starts", "counts", "first", "room", "offsets", "overflow", "exchange"], scalars = {expert_rows = 0 : index, experts = 6 : index, local_experts = 3 : index, peer_rows = 4000 : index}
// CHECK: tile.launch @moe_plan_place grid [256](%{{.*}}, %{{.*}}, %{{.*}}, %[[BOTH]]#2, %[[BOTH]]#3, %{{.*}})
// What is sent to other ranks is never planned so, for slices of it may be short.
// CHECK: tile.launch @moe_plan_count_k2 grid [1]({{.*}}assignments = 24 : index
// CHECK-NOT: braid.moe.plan
func.func @plans(%few: tensor<2x6x2xi32>, %fewd: tensor<2x6xi32>, %ids: tensor<1x500x2xi32>, %d: tensor<1x500xi32>, %many: tensor<2x34816x2xi32>, %manyd: tensor<2x34816xi32>) -> (tensor<24xi32>, tensor<1000xi32>, tensor<1x500x2xi32>, tensor<8000xi32>, tensor<40xi32>) {
  %0:6 = "braid.moe.plan"(%few, %fewd) <{num_experts = 6 : i64}> : (tensor<2x6x2xi32>, tensor<2x6xi32>) -> (tensor<24xi32>, tensor<2x6x2xi32>, tensor<6xi32>, tensor<7xi32>, tensor<1xi32>, tensor<1xi32>)
  %1:6 = "braid.moe.plan"(%ids, %d) <{num_experts = 80 : i64}> : (tensor<1x500x2xi32>, tensor<1x500xi32>) -> (tensor<1000xi32>, tensor<1x500x2xi32>, tensor<80xi32>, tensor<81xi32>, tensor<1xi32>, tensor<1xi32>)
  %2:6 = "braid.moe.plan"(%many, %manyd) <{num_experts = 6 : i64, peers = 2 : i64, peer_rows = 4000 : i64}> : (tensor<2x34816x2xi32>, tensor<2x34816xi32>) -> (tensor<8000xi32>, tensor<2x34816x2xi32>, tensor<6xi32>, tensor<7xi32>, tensor<1xi32>, tensor<1xi32>)
  %3:6 = "braid.moe.plan"(%few, %fewd) <{num_experts = 6 : i64, peers = 2 : i64, peer_rows = 20 : i64}> : (tensor<2x6x2xi32>, tensor<2x6xi32>) -> (tensor<40xi32>, tensor<2x6x2xi32>, tensor<6xi32>, tensor<7xi32>, tensor<1xi32>, tensor<1xi32>)
  return %0#0, %1#0, %1#1, %2#0, %3#0 : tensor<24xi32>, tensor<1000xi32>, tensor<1x500x2xi32>, tensor<8000xi32>, tensor<40xi32>
}

// -----

// Every peer's rows of every expert have a program.
// CHECK-LABEL: func.func @received(
// CHECK: %[[ENDS:.*]]:3 = tile.launch @moe_plan_received_ends grid [3](%{{.*}}) {{.*}}result_names = ["ends", "perm", "inverse"], scalars = {peer_rows = 1000 : index, share = 1000 : index}
// CHECK: tile.launch @moe_plan_received_place grid [3, 4](%[[ENDS]]#0, %[[ENDS]]#1, %[[ENDS]]#2) {{.*}}inplace = array<i64: 1, 2, -1>, {{.*}}result_names = ["perm", "inverse", "offsets"]
func.func @received(%counts: tensor<3x4xi32>) -> (tensor<3000xi32>, tensor<3000xi32>, tensor<5xi32>) {
  %0:3 = "braid.moe.plan_received"(%counts) <{peer_rows = 1000 : i64}> : (tensor<3x4xi32>) -> (tensor<3000xi32>, tensor<3000xi32>, tensor<5xi32>)
  return %0#0, %0#1, %0#2 : tensor<3000xi32>, tensor<3000xi32>, tensor<5xi32>
}
