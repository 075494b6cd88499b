// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s
// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s --check-prefix=SUMS
// RUN: braid-opt %s --braid-outline | FileCheck %s --check-prefix=CPU

!m = tensor<1x72x8x128x128xf32>
!p = tensor<1x72x8x128xf32>
!s = tensor<1x8x128x128xf32>
!c = tensor<1x72x4xi32>

// A scan over the states of one row with 8 heads has 128 programs on a GPU, of 8 value columns each.
// CHECK: tile.launch @lsm_state_scan_v_h8_k128_v128_w8_f32 grid [16, 8, 1]
// CPU: tile.launch @lsm_state_scan_v_h8_k128_v128_f32 grid [2, 8, 1]
func.func @scan(%x: !m, %p: !p, %s: !s, %c: !c) -> (!m, !s) {
  %m, %f = braid.lsm.state_scan V %x transition(%p) initial_state(%s) chunks(%c) : (!m, !p, !s, !c) -> (!m, !s)
  return %m, %f : !m, !s
}

// A token that attends to a cache: 4 rows and 2 groups are 8 programs, so 4 for each share a cache of 1100 rows. A short cache has one.
// CHECK-LABEL: func.func @decode(
func.func @decode(%q: tensor<4x1x4x16xf32>, %k: tensor<4x1100x2x16xf32>, %v: tensor<4x1100x2x16xf32>, %short: tensor<4x400x2x16xf32>, %short_v: tensor<4x400x2x16xf32>, %documents: tensor<4x1xi32>)
    -> (tensor<4x1x4x16xf32>, tensor<4x1x4x16xf32>) {
  // CHECK: %[[PARTS:.*]]:2 = tile.launch @attn_decode_h4_g2_d16_f32_cache_parts4 grid [2, 4, 4]{{.*}} -> (tensor<4x4x4x16xf32>, tensor<4x2x4x4xf32>)
  // CHECK: tile.launch @attn_decode_merge_h4_g2_d16_f32_parts4 grid [4, 4](%[[PARTS]]#0, %[[PARTS]]#1)
  %o, %lse = braid.attn.causal %q, %k, %v, %documents {cache, prefix = 0 : i64, scale = 0.25 : f64, window = 0 : i64}
    : (tensor<4x1x4x16xf32>, tensor<4x1100x2x16xf32>, tensor<4x1100x2x16xf32>, tensor<4x1xi32>) -> (tensor<4x1x4x16xf32>, tensor<4x4x1xf32>)
  // CHECK: tile.launch @attn_decode_h4_g2_d16_f32_cache grid [2, 4]
  %p, %lse2 = braid.attn.causal %q, %short, %short_v, %documents {cache, prefix = 0 : i64, scale = 0.25 : f64, window = 0 : i64}
    : (tensor<4x1x4x16xf32>, tensor<4x400x2x16xf32>, tensor<4x400x2x16xf32>, tensor<4x1xi32>) -> (tensor<4x1x4x16xf32>, tensor<4x4x1xf32>)
  return %o, %p : tensor<4x1x4x16xf32>, tensor<4x1x4x16xf32>
}

// Latent keys, which are values too, are read once for 16 heads at a time.
// CHECK-LABEL: func.func @latent(
func.func @latent(%q: tensor<4x1x48x512xbf16>, %c: tensor<4x1100x1x512xbf16>, %qs: tensor<4x1x48x64xbf16>, %ks: tensor<4x1100x1x64xbf16>, %documents: tensor<4x1xi32>)
    -> tensor<4x1x48x512xbf16> {
  // CHECK: tile.launch @attn_decode_h48_g1_d512_latent_s64_bf16_cache_parts4 grid [3, 4, 4](%arg0, %arg1, %arg4, %arg2, %arg3) {arg_names = ["q", "k", "documents", "q_shared", "k_shared"]
  // CHECK: tile.launch @attn_decode_merge_h48_g1_d512_bf16_parts4 grid [48, 4]
  %o, %lse = braid.attn.causal %q, %c, %c, %documents shared(%qs, %ks) {cache, scale = 0.25 : f64}
    : (tensor<4x1x48x512xbf16>, tensor<4x1100x1x512xbf16>, tensor<4x1100x1x512xbf16>, tensor<4x1xi32>, tensor<4x1x48x64xbf16>, tensor<4x1100x1x64xbf16>) -> (tensor<4x1x48x512xbf16>, tensor<4x48x1xf32>)
  return %o : tensor<4x1x48x512xbf16>
}

// A triangle of a bf16 chunk is inverted once and multiplied; a CPU solves for every block of values, and for the transition. The GPU's
// transition has its decays, in three parts, behind it.
// CHECK-LABEL: func.func @triangles
// CHECK: tile.launch @lsm_chunk_state_gh_h2_k16_v128_c32_bf16_pbf16
// CHECK-LABEL: func.func @lsm_chunk_state_gh_h2_k16_v128_c32_bf16_pbf16(
// CHECK: %[[L:.*]] = tile.mask strict_lower
// CHECK: %[[M:.*]] = arith.negf %[[L]]
// CHECK: %[[T:.*]] = tile.solve %{{.*}}, %[[M]]
// CHECK: %[[B:.*]] = arith.truncf %[[T]] : vector<32x32xf32> to vector<32x32xbf16>
// CHECK: scf.for
// CHECK: tile.dot %[[B]]
// CHECK-COUNT-3: tile.store {{.*}} : vector<16xbf16>, memref<?x?x2x19x16xbf16>
// CHECK-NOT: tile.solve
// CPU-LABEL: func.func @lsm_chunk_state_gh_h2_k16_v128_c32_bf16_pbf16(
// CPU-COUNT-2: tile.solve
func.func @triangles(%k: tensor<1x64x2x16xbf16>, %v: tensor<1x64x2x128xbf16>, %g: tensor<1x64x2xf32>, %beta: tensor<1x64x2xf32>, %c: tensor<1x3x4xi32>)
    -> (tensor<1x3x2x16x128xf32>, tensor<1x3x2x19x16xbf16>) {
  %x, %p = braid.lsm.chunk_state GH %k, %v log_decay(%g) beta(%beta) chunks(%c) {chunk_size = 32 : i64}
    : (tensor<1x64x2x16xbf16>, tensor<1x64x2x128xbf16>, tensor<1x64x2xf32>, tensor<1x64x2xf32>, tensor<1x3x4xi32>) -> (tensor<1x3x2x16x128xf32>, tensor<1x3x2x19x16xbf16>)
  return %x, %p : tensor<1x3x2x16x128xf32>, tensor<1x3x2x19x16xbf16>
}

// Heads are added up behind the loop over rows, so that each element of a row adds to its own until then. Beside bf16 only that sum is stored, so
// exponentials and quotients may be approximate. The parts of 250 programs are added up 32 at a time, for in so few columns each would wait for the one before it.
// SUMS-LABEL: func.func @gated(
// SUMS: tile.launch @sum_rows_f32_32x32 grid [4]({{.*}}count = 250 : index, size = 128 : index
// CHECK-LABEL: func.func @rows_gated_norm_grad_
// CHECK: %[[SUM:.*]] = scf.for {{.*}} -> (vector<2x128xf32>)
// CHECK: math.exp {{.*}} fastmath<afn>
// CHECK: arith.divf {{.*}} fastmath<afn>
// CHECK: %[[ROWS:.*]] = tile.reduce add {{.*}} {axis = 0 : i64} : vector<{{[0-9]+}}x2x128xf32>, vector<2x128xf32>
// CHECK: arith.addf %{{.*}}, %[[ROWS]] : vector<2x128xf32>
// CHECK: %[[W:.*]] = tile.reduce add %[[SUM]] {axis = 0 : i64} : vector<2x128xf32>, vector<128xf32>
// CHECK: tile.store %[[W]]
// CPU-LABEL: func.func @rows_gated_norm_grad_
// CPU: scf.for {{.*}} -> (vector<128xf32>)
// CPU-NOT: afn
func.func @gated(%x: tensor<2x1000x2x128xbf16>, %g: tensor<2x1000x2x128xbf16>, %w: tensor<128xf32>, %dy: tensor<2x1000x2x128xbf16>)
    -> (tensor<2x1000x2x128xbf16>, tensor<2x1000x2x128xbf16>, tensor<128xf32>) {
  %d:3 = braid.rows_grad "braid.gated_norm"(%x, %g, %w) cotangents(%dy) {op_attributes = {activation = "silu", eps = 1.0e-05 : f64}, wanted = array<i64: 0, 1, 2>}
    : (tensor<2x1000x2x128xbf16>, tensor<2x1000x2x128xbf16>, tensor<128xf32>, tensor<2x1000x2x128xbf16>) -> (tensor<2x1000x2x128xbf16>, tensor<2x1000x2x128xbf16>, tensor<128xf32>)
  return %d#0, %d#1, %d#2 : tensor<2x1000x2x128xbf16>, tensor<2x1000x2x128xbf16>, tensor<128xf32>
}

// A state that a scan carries is no such sum: what it forgets in each chunk is exact, though the states in front of chunks are stored as bf16.
// CHECK-LABEL: func.func @lsm_state_scan_v_h8_k128_v128_w8_f32_pbf16
// CHECK: math.exp %{{[0-9]+}} : vector<128xf32>
func.func @rounded_states(%x: !m, %p: !p, %s: !s, %c: !c) -> (tensor<1x72x8x128x128xbf16>, !s) {
  %m, %f = braid.lsm.state_scan V %x transition(%p) initial_state(%s) chunks(%c) : (!m, !p, !s, !c) -> (tensor<1x72x8x128x128xbf16>, !s)
  return %m, %f : tensor<1x72x8x128x128xbf16>, !s
}

// A GPU reads a token once and writes its rows, and the gradient of a combination is one kernel: the rows of experts and the weights of tokens. Rows without a
// token are 0, here those in front of the offsets' end.
// SUMS-LABEL: func.func @experts(
// SUMS: tile.launch @moe_dispatch_sent_k2_d1024_bf16 grid [16](%{{.*}}) {arg_names = ["perm", "inverse", "x", "ends"], {{.*}}rows = 64 : index, tokens = 32 : index
// SUMS: tile.launch @moe_combine_grad_k2_d1024_bf16 grid [32]
// SUMS-NOT: tile.launch @moe_combine_grad
!tokens = tensor<1x32x1024xbf16>
!rows = tensor<1x64x1024xbf16>
func.func @experts(%x: !tokens, %perm: tensor<64xi32>, %inverse: tensor<1x32x2xi32>, %exchange: tensor<1xi32>, %offsets: tensor<5xi32>, %w: tensor<4x1024x64xbf16>,
                   %dy: !tokens, %returned: !rows, %weights: tensor<1x32x2xf32>) -> (tensor<1x64x64xbf16>, !rows, tensor<1x32x2xf32>) {
  %rows = braid.moe.dispatch %x plan(%perm, %inverse, %exchange) : (!tokens, tensor<64xi32>, tensor<1x32x2xi32>, tensor<1xi32>) -> !rows
  %y = braid.moe.grouped_linear %rows offsets(%offsets) weights(%w) : (!rows, tensor<5xi32>, tensor<4x1024x64xbf16>) -> tensor<1x64x64xbf16>
  %drows, %dweights = braid.moe.combine_grad cotangents(%dy) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange)
    : (!tokens, !rows, tensor<1x32x2xf32>, tensor<64xi32>, tensor<1x32x2xi32>, tensor<1xi32>) -> (!rows, tensor<1x32x2xf32>)
  return %y, %drows, %dweights : tensor<1x64x64xbf16>, !rows, tensor<1x32x2xf32>
}

// Rows of one number, too, of which a thread asks for as many as of short ones.
// SUMS-LABEL: func.func @narrow(
// SUMS: tile.launch @moe_combine_grad_rows_k3_d1_f32 grid [6]
func.func @narrow(%dy: tensor<1x32x1xf32>, %returned: tensor<1x96x1xf32>, %weights: tensor<1x32x3xf32>, %perm: tensor<96xi32>, %inverse: tensor<1x32x3xi32>,
                  %exchange: tensor<1xi32>) -> (tensor<1x96x1xf32>, tensor<1x32x3xf32>) {
  %drows, %dweights = braid.moe.combine_grad cotangents(%dy) returned(%returned) weights(%weights) plan(%perm, %inverse, %exchange)
    : (tensor<1x32x1xf32>, tensor<1x96x1xf32>, tensor<1x32x3xf32>, tensor<96xi32>, tensor<1x32x3xi32>, tensor<1xi32>) -> (tensor<1x96x1xf32>, tensor<1x32x3xf32>)
  return %drows, %dweights : tensor<1x96x1xf32>, tensor<1x32x3xf32>
}

// What alone is added to a combination, as a layer's residual, its kernel adds: not what others read too, or what is there only later.
// SUMS-LABEL: func.func @residual(
// SUMS: %[[SUM:.*]] = tile.launch @moe_combine_add_k2_d1024_bf16 grid [16](%{{.*}}) {arg_names = ["rows", "inverse", "weights", "addend"]
// SUMS: %[[TOKENS:.*]] = braid.reshape %[[SUM]]
// SUMS: tile.launch @moe_combine_k2_d1024_bf16
// SUMS: %[[BOTH:.*]] = tile.launch @rows_add_
// SUMS: return %[[TOKENS]],
func.func @residual(%x: !tokens, %perm: tensor<64xi32>, %inverse: tensor<1x32x2xi32>, %exchange: tensor<1xi32>, %rows: !rows, %weights: tensor<1x32x2xf32>) -> (!tokens, !tokens, !tokens) {
  %y, %returned = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (!rows, tensor<1x32x2xf32>, tensor<64xi32>, tensor<1x32x2xi32>, tensor<1xi32>) -> (!tokens, !rows)
  %sum = braid.add %x, %y : (!tokens, !tokens) -> !tokens
  %z, %again = braid.moe.combine %rows weights(%weights) plan(%perm, %inverse, %exchange) : (!rows, tensor<1x32x2xf32>, tensor<64xi32>, tensor<1x32x2xi32>, tensor<1xi32>) -> (!tokens, !rows)
  %both = braid.add %x, %z : (!tokens, !tokens) -> !tokens
  return %sum, %both, %z : !tokens, !tokens, !tokens
}

// The first of few blocks of a loss writes the gradient of W, to which the others add.
// SUMS-LABEL: func.func @blocks(
// SUMS-NOT: arith.constant
// SUMS: %[[FIRST:.*]] = tile.gemm {{.*}}transpose_a} : (tensor<128x16xf32>, tensor<128x5000xf32>) -> tensor<16x5000xf32>
// SUMS: %[[DX:.*]] = tile.gemm {{.*}} -> tensor<128x16xf32>
// SUMS: %[[REST:.*]]:3 = braid.repeat %[[FIRST]], {{.*}}count = 2 : i64
// SUMS: tile.gemm {{.*}}transpose_a} : (tensor<128x16xf32>, tensor<128x5000xf32>, tensor<16x5000xf32>)
// SUMS: braid.concat %[[DX]], %{{.*}} : (tensor<128x16xf32>, tensor<256x16xf32>) -> tensor<384x16xf32>
func.func @blocks(%x: tensor<1x384x16xf32>, %w: tensor<16x5000xf32>, %l: tensor<1x384xi32>, %d: tensor<1xf32>) -> (tensor<1x384x16xf32>, tensor<16x5000xf32>, tensor<1xf32>) {
  %dx, %dw, %s = braid.linear_cross_entropy_grad %x, %w, %l, %d : (tensor<1x384x16xf32>, tensor<16x5000xf32>, tensor<1x384xi32>, tensor<1xf32>) -> (tensor<1x384x16xf32>, tensor<16x5000xf32>, tensor<1xf32>)
  return %dx, %dw, %s : tensor<1x384x16xf32>, tensor<16x5000xf32>, tensor<1xf32>
}

// The kernel of @experts: a token's tile is loaded once, and stored for each of two slots; so are zeros.
// SUMS-LABEL: func.func @moe_dispatch_sent_k2_d1024_bf16(
// SUMS-COUNT-1: tile.load {{.*}} vector<2x1024xbf16>
// SUMS-COUNT-4: tile.store {{.*}} rows %{{.*}} : vector<2xi32>
// SUMS-NOT: tile.store
// SUMS: return
