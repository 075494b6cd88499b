// Sums of products that a GPU computes in one kernel (outline/ProductSums.cpp), and what stays a chain of products.
// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s
// RUN: braid-opt %s --braid-outline | FileCheck %s --check-prefix=CHAIN
// RUN: braid-opt %s --braid-outline="gpu cublaslt" | FileCheck %s --check-prefix=LIBRARY

// One launch, without a sum in memory. Steps of 64 do not divide the narrow projection: it comes first, in a loop of its own.
// CHECK-LABEL: func.func @projections(
// CHECK: tile.launch @[[SUM:gemm_sum_bf16_nt_128x128_1x16_2x64]] grid [1, 8, 16](
// CHECK-SAME: arg_names = ["a0", "b0", "a1", "b1", "a2", "b2"]
// CHECK-SAME: result_names = ["y"], scalars = {band = 1 : index, begin2 = 64 : index, k0 = 16 : index, k1 = 256 : index, rows = 2048 : index}
// CHECK-SAME: -> tensor<2048x1024xbf16>
// CHECK-NOT: tile.gemm
// CHECK: return
// CHAIN-LABEL: func.func @projections(
// CHAIN-COUNT-2: tile.gemm {{.*}} -> tensor<1x2048x1024xf32>
// CHAIN: tile.gemm {{.*}}apart{{.*}} -> tensor<1x2048x1024xbf16>
// LIBRARY-LABEL: func.func @projections(
// LIBRARY-COUNT-3: tile.gemm {{.*}} -> tensor<1x2048x1024xf32>
// LIBRARY: tile.launch @round_f32_bf16
func.func @projections(%a: tensor<1x2048x64xbf16>, %b: tensor<1x2048x16xbf16>, %c: tensor<1x2048x192xbf16>, %wa: tensor<1024x64xbf16>,
                       %wb: tensor<1024x16xbf16>, %wc: tensor<1024x192xbf16>) -> tensor<1x2048x1024xbf16> {
  %dx = "braid.linear_grad_data"(%a, %b, %c, %wa, %wb, %wc) {operandSegmentSizes = array<i32: 3, 3>}
    : (tensor<1x2048x64xbf16>, tensor<1x2048x16xbf16>, tensor<1x2048x192xbf16>, tensor<1024x64xbf16>, tensor<1024x16xbf16>, tensor<1024x192xbf16>) -> tensor<1x2048x1024xbf16>
  return %dx : tensor<1x2048x1024xbf16>
}

// Experts have one with a library too.
// CHECK-LABEL: func.func @experts(
// CHECK: tile.launch @gemm_sum_groups_bf16_nt_64x16_2x32 grid [8, 4, 4]({{.*}}arg_names = ["a0", "b0", "a1", "b1", "offsets"]
// LIBRARY-LABEL: func.func @experts(
// LIBRARY: tile.launch @gemm_sum_groups_bf16_nt_
// CHAIN-LABEL: func.func @experts(
// CHAIN-COUNT-2: tile.grouped_gemm
func.func @experts(%a: tensor<1x256x96xbf16>, %b: tensor<1x256x32xbf16>, %offsets: tensor<5xi32>, %wa: tensor<4x128x96xbf16>, %wb: tensor<4x128x32xbf16>)
    -> tensor<1x256x128xbf16> {
  %dx = "braid.moe.grouped_linear_grad_data"(%a, %b, %offsets, %wa, %wb) {operandSegmentSizes = array<i32: 2, 1, 2>}
    : (tensor<1x256x96xbf16>, tensor<1x256x32xbf16>, tensor<5xi32>, tensor<4x128x96xbf16>, tensor<4x128x32xbf16>) -> tensor<1x256x128xbf16>
  return %dx : tensor<1x256x128xbf16>
}

// Beside much wider ones a narrow projection takes a step as long as theirs, of zeros behind its columns: one loop, which boxes feed.
// CHECK-LABEL: func.func @beside(
// CHECK-DAG: %[[A:.*]] = tile.launch @widen_bf16_16_64 grid [32](%{{.*}}-> tensor<2048x64xbf16>
// CHECK-DAG: %[[B:.*]] = tile.launch @widen_bf16_16_64 grid [16](%{{.*}}-> tensor<1024x64xbf16>
// CHECK: tile.launch @gemm_sum_bf16_nt_128x128_2x64 {{.*}}%[[A]], %[[B]]){{.*}}begin1 = 512 : index, k0 = 576 : index
// LIBRARY-LABEL: func.func @beside(
// LIBRARY-NOT: @widen
// LIBRARY: return
func.func @beside(%a: tensor<1x2048x512xbf16>, %b: tensor<1x2048x16xbf16>, %wa: tensor<1024x512xbf16>, %wb: tensor<1024x16xbf16>) -> tensor<1x2048x1024xbf16> {
  %dx = "braid.linear_grad_data"(%a, %b, %wa, %wb) {operandSegmentSizes = array<i32: 2, 2>}
    : (tensor<1x2048x512xbf16>, tensor<1x2048x16xbf16>, tensor<1024x512xbf16>, tensor<1024x16xbf16>) -> tensor<1x2048x1024xbf16>
  return %dx : tensor<1x2048x1024xbf16>
}

// A width of 24 is none of the tensor cores': one product after the other.
// CHECK-LABEL: func.func @chain(
// CHECK-COUNT-2: tile.gemm
func.func @chain(%a: tensor<1x512x64xbf16>, %b: tensor<1x512x24xbf16>, %wa: tensor<512x64xbf16>, %wb: tensor<512x24xbf16>) -> tensor<1x512x512xbf16> {
  %dx = "braid.linear_grad_data"(%a, %b, %wa, %wb) {operandSegmentSizes = array<i32: 2, 2>}
    : (tensor<1x512x64xbf16>, tensor<1x512x24xbf16>, tensor<512x64xbf16>, tensor<512x24xbf16>) -> tensor<1x512x512xbf16>
  return %dx : tensor<1x512x512xbf16>
}

// 32 tiles for 128 multiprocessors: the tokens in four parts. Behind what others gave, in its place.
// CHECK-LABEL: func.func @weights(
// CHECK: %[[PARTS:.*]] = tile.launch @gemm_parts_bf16_128x256x64 grid [4, 8, 4]({{.*}}scalars = {k = 16384 : index, length = 4096 : index, parts = 8 : index, tiles = 1 : index}{{.*}} -> tensor<4x1024x1024xf32>
// CHECK: tile.launch @sum_rows_f32_add
// CHECK-SAME: inplace = array<i64: 1>
// CHECK: tile.gemm {{.*}}transpose_a
// CHAIN-LABEL: func.func @weights(
// CHAIN-COUNT-2: tile.gemm {{.*}}transpose_a
// LIBRARY-LABEL: func.func @weights(
// LIBRARY-COUNT-2: tile.gemm {{.*}}transpose_a
func.func @weights(%x: tensor<1x16384x1024xbf16>, %dy: tensor<1x16384x1024xbf16>, %s: tensor<1024x1024xf32>, %few: tensor<1x1024x1024xbf16>)
    -> (tensor<1024x1024xf32>, tensor<1024x1024xf32>) {
  %dw = "braid.linear_grad_weight"(%x, %dy, %s) {operandSegmentSizes = array<i32: 1, 1, 1>}
    : (tensor<1x16384x1024xbf16>, tensor<1x16384x1024xbf16>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %short = "braid.linear_grad_weight"(%few, %few) {operandSegmentSizes = array<i32: 1, 1, 0>}
    : (tensor<1x1024x1024xbf16>, tensor<1x1024x1024xbf16>) -> tensor<1024x1024xf32>
  return %dw, %short : tensor<1024x1024xf32>, tensor<1024x1024xf32>
}

// A number a head, 8 columns, which no step of a loop of its own divides: with zeros it is one term of the sum, and its weight's gradient in parts, too.
// CHECK-LABEL: func.func @heads(
// CHECK-DAG: tile.launch @widen_bf16_8_64 grid [256](%{{.*}}-> tensor<16384x64xbf16>
// CHECK-DAG: tile.launch @widen_bf16_8_64 grid [16](%{{.*}}-> tensor<1024x64xbf16>
// CHECK: tile.launch @gemm_sum_bf16_nt_128x256_2x64 grid
// CHECK: tile.launch @gemm_parts_bf16_64x8x64 grid [1, 16, 8]({{.*}} -> tensor<8x1024x8xf32>
// LIBRARY-LABEL: func.func @heads(
// LIBRARY-NOT: @widen
// LIBRARY-NOT: @gemm_sum
func.func @heads(%x: tensor<1x16384x1024xbf16>, %dy: tensor<1x16384x1024xbf16>, %w: tensor<1024x1024xbf16>, %da: tensor<1x16384x8xbf16>, %wa: tensor<1024x8xbf16>)
    -> (tensor<1x16384x1024xbf16>, tensor<1024x8xf32>) {
  %dx = "braid.linear_grad_data"(%dy, %da, %w, %wa) {operandSegmentSizes = array<i32: 2, 2>}
    : (tensor<1x16384x1024xbf16>, tensor<1x16384x8xbf16>, tensor<1024x1024xbf16>, tensor<1024x8xbf16>) -> tensor<1x16384x1024xbf16>
  %dw = "braid.linear_grad_weight"(%x, %da) {operandSegmentSizes = array<i32: 1, 1, 0>}
    : (tensor<1x16384x1024xbf16>, tensor<1x16384x8xbf16>) -> tensor<1024x8xf32>
  return %dx, %dw : tensor<1x16384x1024xbf16>, tensor<1024x8xf32>
}

// A narrow weight has fewer tiles still: 16 of them, in eight parts each.
// CHECK-LABEL: func.func @narrow(
// CHECK: tile.launch @gemm_parts_bf16_64x16x64 grid [1, 16, 8]({{.*}}scalars = {k = 16384 : index, length = 2048 : index}{{.*}} -> tensor<8x1024x16xf32>
// CHECK: tile.launch @sum_rows_f32 grid
func.func @narrow(%x: tensor<1x16384x1024xbf16>, %dy: tensor<1x16384x16xbf16>) -> tensor<1024x16xf32> {
  %dw = "braid.linear_grad_weight"(%x, %dy) {operandSegmentSizes = array<i32: 1, 1, 0>}
    : (tensor<1x16384x1024xbf16>, tensor<1x16384x16xbf16>) -> tensor<1024x16xf32>
  return %dw : tensor<1024x16xf32>
}

// Logits are in no memory: of each row the greatest of every tile, the sum of its exponentials and the label's logit come with the product, in whole tiles and one of
// 128 columns behind them, of all rows at once. With a library, for f32, and on a CPU the loss reads logits.
// CHECK-LABEL: func.func @loss(
// CHECK: %[[FIRST:.*]]:3 = tile.launch @gemm_sum_loss_f32_nn_128x256_1x64 grid [2, 65, 1]({{.*}}arg_names = ["a0", "b0", "labels"]
// CHECK-SAME: scalars = {band = 2 : index, first_column = 0 : index, first_tile = 0 : index,
// CHECK-SAME: -> (tensor<66x1024xf32>, tensor<66x1024xf32>, tensor<1024xf32>)
// CHECK: %[[ALL:.*]]:3 = tile.launch @gemm_sum_loss_behind_f32_nn_128x128_1x64 grid [1, 1, 8]({{.*}}, %[[FIRST]]#0, %[[FIRST]]#1, %[[FIRST]]#2)
// CHECK-SAME: first_column = 16640 : index, first_tile = 65 : index
// CHECK: tile.launch @cross_entropy_f32_of_tiles grid [256](%[[ALL]]#2, %[[ALL]]#0, %[[ALL]]#1, %{{.*}})
// CHAIN-LABEL: func.func @loss(
// CHAIN: tile.launch @cross_entropy_f32 grid
// LIBRARY-LABEL: func.func @loss(
// LIBRARY: tile.gemm
// LIBRARY: tile.launch @cross_entropy_f32_rounded grid
func.func @loss(%x: tensor<1x1024x256xbf16>, %w: tensor<256x16768xbf16>, %labels: tensor<1x1024xi32>) -> tensor<1xf32> {
  %sum, %count = braid.linear_cross_entropy %x, %w, %labels : (tensor<1x1024x256xbf16>, tensor<256x16768xbf16>, tensor<1x1024xi32>) -> (tensor<1xf32>, tensor<1xf32>)
  return %sum : tensor<1xf32>
}

// Its gradient: exponentials in bf16, of which one element a row changes; the factor of a row scales x before one product and the sum of the other, which is f32 till then; eight times as many rows as features are a block.
// CHECK-LABEL: func.func @loss_grad(
// CHECK: %[[TILES:.*]]:4 = tile.launch @gemm_sum_softmax_f32_nn_128x256_1x64
// CHECK-SAME: -> (tensor<65x1024xf32>, tensor<65x1024xf32>, tensor<1024xf32>, tensor<1024x16640xbf16>)
// CHECK: %[[LSE:.*]]:3 = tile.launch @cross_entropy_f32_of_tiles
// CHECK: %[[ROWS:.*]]:2 = tile.launch @cross_entropy_scales_of_tiles_256 grid [256](%[[TILES]]#3, %[[TILES]]#0, %[[TILES]]#2, %{{.*}}, %[[LSE]]#0, %{{[a-z0-9]*}}) {{.*}}inplace = array<i64: 0, -1>
// CHECK: %[[X:.*]] = tile.launch @scale_rows_bf16_bf16_128 grid [1, 128](%{{.*}}, %[[ROWS]]#1)
// CHECK: tile.gemm %[[X]], %[[ROWS]]#0
// CHECK: %[[DX:.*]] = tile.gemm %[[ROWS]]#0, %{{.*}}tensor<1024x128xf32>
// CHECK: tile.launch @scale_rows_f32_bf16_128 grid [1, 128](%[[DX]], %[[ROWS]]#1)
// CHECK-NOT: tensor<1024x16640xf32>
// LIBRARY-LABEL: func.func @loss_grad(
// LIBRARY: tile.launch @cross_entropy_grad_f32_bf16
func.func @loss_grad(%x: tensor<1x2048x128xbf16>, %w: tensor<128x16640xbf16>, %labels: tensor<1x2048xi32>, %dsum: tensor<1xf32>)
    -> (tensor<1x2048x128xbf16>, tensor<128x16640xf32>, tensor<1xf32>) {
  %dx, %dw, %sum = braid.linear_cross_entropy_grad %x, %w, %labels, %dsum
    : (tensor<1x2048x128xbf16>, tensor<128x16640xbf16>, tensor<1x2048xi32>, tensor<1xf32>) -> (tensor<1x2048x128xbf16>, tensor<128x16640xf32>, tensor<1xf32>)
  return %dx, %dw, %sum : tensor<1x2048x128xbf16>, tensor<128x16640xf32>, tensor<1xf32>
}

// Of a part of the words: labels count from its first.
// CHECK-LABEL: func.func @part(
// CHECK: tile.launch @gemm_sum_loss_part_f32_nn_{{.*}}"labels", "coordinate"]
// CHECK: tile.launch @cross_entropy_part_f32_of_tiles
func.func @part(%x: tensor<1x1024x256xbf16>, %w: tensor<256x8192xbf16>, %labels: tensor<1x1024xi32>, %c: tensor<1xi32>) -> (tensor<1x1024xf32>, tensor<1x1024xf32>) {
  %lse, %target = braid.linear_loss_part %x, %w, %labels, %c
    : (tensor<1x1024x256xbf16>, tensor<256x8192xbf16>, tensor<1x1024xi32>, tensor<1xi32>) -> (tensor<1x1024xf32>, tensor<1x1024xf32>)
  return %lse, %target : tensor<1x1024xf32>, tensor<1x1024xf32>
}

// And its gradient: lse is that of all words, so rows of a part are scaled as those of the whole are.
// CHECK-LABEL: func.func @part_grad(
// CHECK: %[[TILES:.*]]:4 = tile.launch @gemm_sum_softmax_part_f32_nn_128x256_1x64
// CHECK: tile.launch @cross_entropy_scales_part_of_tiles_256 grid [256](%[[TILES]]#3, %[[TILES]]#0, %[[TILES]]#2, {{.*}}"lse", "dsum", "coordinate"]{{.*}}inplace = array<i64: 0, -1>
// CHECK-NOT: tensor<1024x8192xf32>
// LIBRARY-LABEL: func.func @part_grad(
// LIBRARY: tile.launch @cross_entropy_grad_part_f32_bf16
func.func @part_grad(%x: tensor<1x1024x256xbf16>, %w: tensor<256x8192xbf16>, %labels: tensor<1x1024xi32>, %c: tensor<1xi32>, %lse: tensor<1x1024xf32>, %dsum: tensor<1xf32>)
    -> (tensor<1x1024x256xbf16>, tensor<256x8192xf32>) {
  %dx, %dw = braid.linear_loss_part_grad %x, %w, %labels, %c, %lse, %dsum
    : (tensor<1x1024x256xbf16>, tensor<256x8192xbf16>, tensor<1x1024xi32>, tensor<1xi32>, tensor<1x1024xf32>, tensor<1xf32>) -> (tensor<1x1024x256xbf16>, tensor<256x8192xf32>)
  return %dx, %dw : tensor<1x1024x256xbf16>, tensor<256x8192xf32>
}

// No tile divides 202: as other products, in whole tiles and a rest. 7 columns are one tile.
// CHECK-LABEL: func.func @odd(
// CHECK: tile.gemm {{.*}}transpose_a
// CHECK: tile.launch @gemm_parts_f32_16x7x256
func.func @odd(%x: tensor<1x4096x202xf32>, %y: tensor<1x4096x48xf32>, %dy: tensor<1x4096x7xf32>) -> (tensor<202x7xf32>, tensor<48x7xf32>) {
  %dw = "braid.linear_grad_weight"(%x, %dy) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x4096x202xf32>, tensor<1x4096x7xf32>) -> tensor<202x7xf32>
  %dv = "braid.linear_grad_weight"(%y, %dy) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x4096x48xf32>, tensor<1x4096x7xf32>) -> tensor<48x7xf32>
  return %dw, %dv : tensor<202x7xf32>, tensor<48x7xf32>
}

// The kernel that was launched above: which projection a step is of is chosen between the buffers.
// CHECK: func.func @[[SUM]](
// CHECK: %[[NARROW:.*]] = scf.for
// CHECK-NOT: arith.select
// CHECK: scf.yield
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[NARROW]])
// CHECK: arith.select {{.*}} : memref<?x?xbf16>
// CHECK: tile.dot
