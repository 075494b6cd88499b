// Row-wise ops at the ends of products (product-ends.mlir) whose programs stay and share out the tiles of all experts (gemm-workers.mlir); tile-to-threads-ends.mlir has their threads.
// RUN: braid-opt %s --braid-fuse-rows --braid-outline="gpu warpgroups" | FileCheck %s

!x = tensor<1x8192x512xbf16>
!w = tensor<32x512x384xbf16>
!h = tensor<1x8192x384xbf16>
!o = tensor<33xi32>

module attributes {braid.workers = 132 : i64} {

// CHECK-LABEL: func.func @experts(
// CHECK: tile.launch @gemm_end_groups_bf16_nn_128x2x128_1x64_activation_mul_{{[0-9a-f]+}} grid [132](
// CHECK-SAME: ["a0", "b0", "b1", "ends"]
// CHECK-SAME: ["y0", "y1"], scalars = {across = 3 : index, k0 = 512 : index, workers = 132 : index}
// CHECK-NOT: tile.launch
func.func @experts(%x: !x, %w1: !w, %w3: !w, %offsets: !o) -> (!h, !h) {
  %gate_up:2 = braid.moe.grouped_linear %x offsets(%offsets) weights(%w1, %w3) : (!x, !o, !w, !w) -> (!h, !h)
  %silu = braid.activation %gate_up#0 {kind = "silu"} : (!h) -> !h
  %hidden = braid.mul %silu, %gate_up#1 : (!h, !h) -> !h
  return %gate_up#0, %hidden : !h, !h
}

// Products of rows alone begin anew in each program.
// CHECK-LABEL: func.func @dense(
// CHECK: tile.launch @gemm_end_bf16_nn_128x256_1x64_activation_{{[0-9a-f]+}} grid [{{[0-9]+}}, {{[0-9]+}}, {{[0-9]+}}](
func.func @dense(%x: tensor<2x4096x512xbf16>, %w: tensor<512x1024xbf16>) -> tensor<2x4096x1024xbf16> {
  %y = braid.linear %x, %w : (tensor<2x4096x512xbf16>, tensor<512x1024xbf16>) -> tensor<2x4096x1024xbf16>
  %gate = braid.activation %y {kind = "sigmoid"} : (tensor<2x4096x1024xbf16>) -> tensor<2x4096x1024xbf16>
  return %gate : tensor<2x4096x1024xbf16>
}

}

// Tile by tile of all groups, with columns of both matrices and what is made of them.
// CHECK-LABEL: func.func @gemm_end_groups_bf16_nn_128x2x128_1x64_activation_mul_
// CHECK-SAME: tile.grid = ["worker"]
// CHECK: scf.for %{{.*}} -> (i32, i32, i32) : i32 {
// CHECK:   scf.for %{{.*}} -> (i32, i32) : i32 {
// CHECK:     %[[SUM:.*]] = scf.for {{.*}} -> (vector<128x256xf32>)
// CHECK:     tile.slice %[[SUM]] {offset = 0
// CHECK:     tile.slice %[[SUM]] {offset = 128
// CHECK:     tile.store {{.*}} limit %
// CHECK-NEXT: tile.store {{.*}} limit %
