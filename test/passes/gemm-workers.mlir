// RUN: braid-opt %s --braid-gemm-kernels=warpgroups=true | FileCheck %s
// RUN: braid-opt %s --braid-gemm-kernels | FileCheck %s --check-prefix=WARPS
// RUN: braid-opt %s --braid-gemm-kernels --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s --check-prefix=THREADS
// Programs that stay: as many as multiprocessors, each takes its turn of the tiles of all groups.

module attributes {braid.workers = 132 : i64} {
cmd.program {
  cmd.arena @io bytes 1048576
  cmd.arena @wide bytes 268435456
  cmd.stream @compute
  cmd.entry @main inputs [] outputs [] {
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_bf16_nn_128x256x64 grid [132, 1, 1] {{.*}}across = 4 : i64{{.*}}workers = 132 : i64
    cmd.grouped_gemm rows groups 4 rows 16384 m 0 n 1024 k 64 a <@wide, 0, 2097152> ld 64 : bf16 b <@wide, 4194304, 524288> ld 1024 : bf16 c <@wide, 8388608, 33554432> ld 1024 : bf16 offsets <@io, 0, 20> {name = "staying"}
    // What threads copy.
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_bf16_nn_128x256x64_by_rows grid [4,
    cmd.grouped_gemm rows groups 4 rows 16384 m 0 n 1024 k 64 a <@wide, 8, 2097152> ld 64 : bf16 b <@wide, 4194304, 524288> ld 1024 : bf16 c <@wide, 8388608, 33554432> ld 1024 : bf16 offsets <@io, 0, 20> {name = "by rows"}
    // 40 rows each: tiles for twice as many, of whole warpgroups where there are such; not of more rows than there are in all.
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_bf16_nn_128x256x64 grid [132,
    // WARPS: cmd.launch @gemm_groups_bf16_bf16_bf16_nn_80x256x64 grid [132,
    cmd.grouped_gemm rows groups 64 rows 2560 m 0 n 1024 k 64 a <@wide, 0, 327680> ld 64 : bf16 b <@wide, 4194304, 8388608> ld 1024 : bf16 c <@wide, 16777216, 5242880> ld 1024 : bf16 offsets <@io, 0, 260> {name = "few rows"}
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_bf16_nn_80x256x64 grid [132,
    // WARPS: cmd.launch @gemm_groups_bf16_bf16_bf16_nn_80x256x64 grid [132,
    cmd.grouped_gemm rows groups 2 rows 80 m 0 n 32768 k 64 a <@wide, 0, 10240> ld 64 : bf16 b <@wide, 4194304, 8388608> ld 32768 : bf16 c <@wide, 16777216, 5242880> ld 32768 : bf16 offsets <@io, 0, 12> {name = "fewer than a tile"}
    // Sums over rows: a group's tiles are as long as it has rows, so who is done first takes the next.
    // CHECK: cmd.launch @gemm_weights_bf16_bf16_f32_tn_128x256x64 grid [4,
    cmd.grouped_gemm weight groups 8 rows 16384 m 1024 n 1024 k 0 a <@wide, 0, 33554432> ld 1024 : bf16 b <@wide, 33554432, 33554432> ld 1024 : bf16 c <@wide, 67108864, 33554432> ld 1024 : f32 offsets <@io, 0, 36> {name = "weights"}
  }
}
}

// The first tile of a group follows from the last of the group before, and its row and column from those of the tile before, without a division.
// CHECK-LABEL: func.func @gemm_groups_bf16_bf16_bf16_nn_128x256x64(
// CHECK:       %[[DOWN:.*]] = arith.divsi %[[WORKERS:.*]], %[[ACROSS:.*]] : i32
// CHECK:       %[[WHOLE:.*]] = arith.muli %[[DOWN]], %[[ACROSS]] : i32
// CHECK:       %[[ASIDE:.*]] = arith.subi %[[WORKERS]], %[[WHOLE]] : i32
// CHECK:       scf.for %{{.*}} iter_args(%[[ROW:.*]] = %{{.*}}, %[[COLUMN:.*]] = %{{.*}}, %[[BEGIN:.*]] = %{{.*}}) -> (i32, i32, i32) : i32 {
// CHECK:         %[[LAST:.*]] = memref.load
// CHECK:         %[[END:.*]] = arith.maxsi %[[LAST]], %{{.*}} : i32
// CHECK:         %[[ROWS:.*]] = arith.divsi %{{.*}}, %c128_i32{{.*}} : i32
// CHECK:         %[[NEXT:.*]]:2 = scf.for %{{.*}} = %{{.*}} to %{{.*}} step %[[WORKERS]] iter_args(%[[R:.*]] = %[[ROW]], %[[C:.*]] = %[[COLUMN]]) -> (i32, i32) : i32 {
// CHECK-NOT:       arith.divsi
// CHECK:           tile.dot
// CHECK:           tile.store
// CHECK:           %[[FURTHER:.*]] = arith.addi %[[C]], %[[ASIDE]] : i32
// CHECK:           arith.cmpi sle, %[[ACROSS]], %[[FURTHER]] : i32
// CHECK:           arith.addi %[[R]], %[[DOWN]] : i32
// CHECK:         %[[LEFT:.*]] = arith.subi %[[NEXT]]#0, %[[ROWS]] : i32
// CHECK:         scf.yield %[[LEFT]], %[[NEXT]]#1, %[[END]] : i32, i32, i32

// The warp that copies walks groups and tiles as the others do, and its ring goes on from each to the next.
// THREADS-LABEL: func.func @gemm_groups_bf16_bf16_bf16_nn_128x256x64(
// THREADS-SAME:  threads.block = 288 : i64
// THREADS:       scf.for %{{.*}} iter_args(%{{.*}} = %c0, %{{.*}} = %c0, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) -> (index, index, i32, i32, i32) : i32 {
// THREADS:         memref.load
// THREADS:         scf.for %{{.*}} -> (index, index, i32, i32) : i32 {
// THREADS:           scf.for %{{.*}} -> (index, index) {
// THREADS-COUNT-5:     threads.bulk = "copy"
// THREADS:       } else {
// So do those that multiply: their turn of the ring is the last that they carry.
// THREADS:         scf.for %{{.*}} -> (i32, i32, i32, i32) : i32 {
// THREADS:           scf.for %{{.*}} iter_args(%{{.*}}, %{{.*}}, %[[TURN:.*]] = %{{.*}}) -> (i32, i32, i32) : i32 {
// THREADS:             arith.index_castui %[[TURN]] : i32 to index
// THREADS:             nvvm.wgmma.mma_async
// THREADS:             threads.bulk = "store_bf16"
// THREADS-LABEL: func.func @gemm_groups_bf16_bf16_bf16_nn_128x256x64_by_rows(
