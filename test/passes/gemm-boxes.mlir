// RUN: braid-opt %s --braid-gemm-kernels | FileCheck %s
// Which kernels copy their operands in boxes, and that none of those has the name of one that does not.

cmd.program {
  cmd.arena @io bytes 1048576
  cmd.arena @wide bytes 268435456
  cmd.stream @compute
  cmd.entry @main inputs [] outputs [] {
    // Rows of 128 and 2048 bytes, in tiles of 128 x 256.
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_f32_nn_128x256x64 grid
    cmd.grouped_gemm rows groups 4 rows 16384 m 0 n 1024 k 64 a <@wide, 0, 2097152> ld 64 : bf16 b <@wide, 4194304, 524288> ld 1024 : bf16 c <@wide, 8388608, 67108864> ld 1024 : f32 offsets <@io, 0, 20> {name = "boxes"}
    // A beginning that is no multiple of 16 bytes.
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_f32_nn_128x256x64_by_rows grid
    cmd.grouped_gemm rows groups 4 rows 16384 m 0 n 1024 k 64 a <@wide, 8, 2097152> ld 64 : bf16 b <@wide, 4194304, 524288> ld 1024 : bf16 c <@wide, 8388608, 67108864> ld 1024 : f32 offsets <@io, 0, 20> {name = "by rows"}
    // The same of C alone: operands come in boxes, results do not leave so.
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_f32_nn_128x256x64_results_by_rows grid
    cmd.grouped_gemm rows groups 4 rows 16384 m 0 n 1024 k 64 a <@wide, 0, 2097152> ld 64 : bf16 b <@wide, 4194304, 524288> ld 1024 : bf16 c <@wide, 8388608, 67239936> ld 1026 : f32 offsets <@io, 0, 20> {name = "results by rows"}
    // Sums that are added to C, and those over the rows of groups, too.
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_f32_nn_add_128x256x64 grid
    cmd.grouped_gemm rows groups 4 rows 16384 m 0 n 1024 k 64 a <@wide, 0, 2097152> ld 64 : bf16 b <@wide, 4194304, 524288> ld 1024 : bf16 c <@wide, 8388608, 67108864> ld 1024 : f32 offsets <@io, 0, 20> {accumulate, name = "add"}
    // CHECK: cmd.launch @gemm_weights_bf16_bf16_f32_tn_128x256x64 grid
    cmd.grouped_gemm weight groups 8 rows 16384 m 1024 n 1024 k 0 a <@wide, 0, 33554432> ld 1024 : bf16 b <@wide, 33554432, 33554432> ld 1024 : bf16 c <@wide, 67108864, 33554432> ld 1024 : f32 offsets <@io, 0, 36> {name = "weights"}
  }
}

// CHECK:      func.func @gemm_groups_bf16_bf16_f32_nn_128x256x64(
// CHECK-SAME: tile.boxes
// CHECK:      func.func @gemm_groups_bf16_bf16_f32_nn_128x256x64_by_rows(
// CHECK-NOT:  tile.boxes
// CHECK:      func.func @gemm_groups_bf16_bf16_f32_nn_128x256x64_results_by_rows(
// CHECK-SAME: tile.boxes
// CHECK-SAME: tile.results_by_rows
// CHECK:      func.func @gemm_groups_bf16_bf16_f32_nn_add_128x256x64(
// CHECK-SAME: tile.boxes
// CHECK:      func.func @gemm_weights_bf16_bf16_f32_tn_128x256x64(
// CHECK-SAME: tile.boxes
