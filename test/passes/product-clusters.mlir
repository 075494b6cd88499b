// RUN: braid-opt %s --braid-gemm-kernels | FileCheck %s
// RUN: braid-opt %s --braid-gemm-kernels --braid-tile-to-threads=wgmma=true --canonicalize --cse | FileCheck %s --check-prefix=THREADS
// RUN: braid-opt %s --braid-gemm-kernels --braid-tile-to-threads --canonicalize --cse | FileCheck %s --check-prefix=ALONE --implicit-check-not=threads.cluster
// Neighbouring programs share an operand (--products=clusters).

module attributes {braid.workers = 132 : i64, braid.product_team = "clusters"} {
cmd.program {
  cmd.arena @io bytes 1048576
  cmd.arena @wide bytes 268435456
  cmd.stream @compute
  cmd.entry @main inputs [] outputs [] {
    // Four columns of tiles: two beside each other multiply the same rows.
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_bf16_nn_128x256x64_shared_left grid [132, 1, 1] {{.*}}across = 4 : i64{{.*}}workers = 132 : i64
    cmd.grouped_gemm rows groups 4 rows 16384 m 0 n 1024 k 64 a <@wide, 0, 2097152> ld 64 : bf16 b <@wide, 4194304, 524288> ld 1024 : bf16 c <@wide, 8388608, 33554432> ld 1024 : bf16 offsets <@io, 0, 20> {name = "four"}
    // Three of them: two below each other multiply the same weights.
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_bf16_nn_128x256x64_shared_right grid [132, 1, 1] {{.*}}across = 3 : i64{{.*}}workers = 132 : i64
    cmd.grouped_gemm rows groups 4 rows 16384 m 0 n 768 k 64 a <@wide, 0, 2097152> ld 64 : bf16 b <@wide, 4194304, 393216> ld 768 : bf16 c <@wide, 8388608, 25165824> ld 768 : bf16 offsets <@io, 0, 20> {name = "three"}
    // Fewer tiles than multiprocessors (43 x 3), still in pairs.
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_bf16_nn_128x256x64_shared_right grid [128, 1, 1] {{.*}}across = 3 : i64{{.*}}workers = 128 : i64
    cmd.grouped_gemm rows groups 1 rows 5461 m 0 n 768 k 64 a <@wide, 0, 699008> ld 64 : bf16 b <@wide, 4194304, 98304> ld 768 : bf16 c <@wide, 8388608, 8388096> ld 768 : bf16 offsets <@io, 0, 8> {name = "few"}
    // CHECK: cmd.launch @gemm_weights_bf16_bf16_f32_tn_128x256x64_shared_left grid [4,
    cmd.grouped_gemm weight groups 8 rows 16384 m 1024 n 1024 k 0 a <@wide, 0, 33554432> ld 1024 : bf16 b <@wide, 33554432, 33554432> ld 1024 : bf16 c <@wide, 67108864, 33554432> ld 1024 : f32 offsets <@io, 0, 36> {name = "weights"}
    // Three columns, each program by itself.
    // CHECK: cmd.launch @gemm_weights_bf16_bf16_f32_tn_128x256x64 grid [3,
    cmd.grouped_gemm weight groups 8 rows 16384 m 1024 n 768 k 0 a <@wide, 0, 33554432> ld 1024 : bf16 b <@wide, 33554432, 25165824> ld 768 : bf16 c <@wide, 67108864, 25165824> ld 768 : f32 offsets <@io, 0, 36> {name = "weights of three"}
    // Of what threads copy neighbours bring their own.
    // CHECK: cmd.launch @gemm_weights_bf16_bf16_f32_tn_128x256x64_by_rows grid [4,
    cmd.grouped_gemm weight groups 8 rows 16384 m 1024 n 1024 k 0 a <@wide, 8, 33554432> ld 1024 : bf16 b <@wide, 33554448, 33554432> ld 1024 : bf16 c <@wide, 67108864, 33554432> ld 1024 : f32 offsets <@io, 0, 36> {name = "weights by rows"}
  }
}
}

// CHECK-LABEL: func.func @gemm_groups_bf16_bf16_bf16_nn_128x256x64_shared_left(
// CHECK-SAME:  tile.boxes
// CHECK-SAME:  tile.shared_operand = "left"
// Both of a pair walk as many tiles; the second has the column behind that of the first.
// CHECK:       arith.divsi %{{.*}}, %c2_i32
// CHECK:       %[[FIRST:.*]] = arith.divsi %[[PROGRAM:.*]], %c2_i32
// CHECK:       %[[TWICE:.*]] = arith.muli %[[FIRST]], %c2_i32
// CHECK-NEXT:  %[[SECOND:.*]] = arith.subi %[[PROGRAM]], %[[TWICE]] : i32
// CHECK:       scf.for
// CHECK:         scf.for
// CHECK:           %[[PAIR:.*]] = arith.muli %{{.*}}, %c512_i32{{.*}} : i32
// CHECK:           %[[FURTHER:.*]] = arith.muli %[[SECOND]], %c256_i32{{.*}} : i32
// CHECK:           arith.addi %[[PAIR]], %[[FURTHER]] : i32
// CHECK-LABEL: func.func @gemm_groups_bf16_bf16_bf16_nn_128x256x64_shared_right(
// CHECK-SAME:  tile.shared_operand = "right"
// CHECK:         arith.divsi %{{.*}}, %c256_i32{{.*}} : i32
// CHECK:           %[[PAIR:.*]] = arith.muli %{{.*}}, %c256_i32{{.*}} : i32
// CHECK:           %[[ROW:.*]] = arith.addi %{{.*}}, %[[PAIR]] : i32
// CHECK:           %[[BELOW:.*]] = arith.muli %{{.*}}, %c128_i32{{.*}} : i32
// CHECK:           arith.addi %[[ROW]], %[[BELOW]] : i32

// A stage is empty when the warps of both blocks have left it. Of the left tile, 128 rows of 64 along k, each block brings half to both (the mask: 3), of
// the right one, 64 rows along k of 256 columns, what it multiplies itself: four boxes.
// THREADS-LABEL: func.func @gemm_groups_bf16_bf16_bf16_nn_128x256x64_shared_left(
// THREADS-SAME:  threads.block = 288 : i64, threads.cluster = 2 : i64
// THREADS-DAG:   %[[BOTH:.*]] = arith.constant 16 : i32
// THREADS-DAG:   %[[ALL:.*]] = arith.constant 3 : i16
// THREADS:       threads.bulk = "begin"{{.*}}, %[[BOTH]]
// THREADS:       threads.bulk = "begun"
// THREADS:       threads.bulk = "cluster"} "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
// THREADS-NOT:   gpu.barrier
// THREADS:       %[[RANK:.*]] = arith.remui %block_id_x, %c2
// THREADS:       %[[BELOW:.*]] = arith.muli %[[RANK]], %c64
// THREADS:       threads.bulk = "multicast"} "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [$0], [$1, {$3, $4}], [$2], $5;", "l,l,l,r,r,h,~{memory}" {{.*}}, %[[ALL]] :
// THREADS-COUNT-4: threads.bulk = "copy"
// THREADS-NOT:   threads.bulk = "copy"
// THREADS:       } else {
// THREADS:       arith.cmpi ult, %{{.*}}, %c2 : index
// THREADS:       threads.bulk = "arrive_in"} "{ .reg .b64 there; mapa.shared::cluster.u64 there, $0, $1; mbarrier.arrive.shared::cluster.b64 _, [there]; }"
// THREADS-NOT:   threads.bulk = "arrive"}
// Neither ends before the other.
// THREADS:       threads.bulk = "cluster"
// THREADS-NEXT:  return

// The right one is shared: halves of four boxes.
// THREADS-LABEL: func.func @gemm_groups_bf16_bf16_bf16_nn_128x256x64_shared_right(
// THREADS:       threads.bulk = "copy"
// THREADS:       %[[RANK:.*]] = arith.remui %block_id_x, %c2
// THREADS:       arith.muli %[[RANK]], %c32
// THREADS-COUNT-4: threads.bulk = "multicast"
// THREADS-NOT:   threads.bulk = "multicast"
// THREADS:       } else {

// Where rows of a group end inside of a step both blocks bring all of it themselves, or a neighbour's bytes would end the wait for those of the step before.
// THREADS-LABEL: func.func @gemm_weights_bf16_bf16_f32_tn_128x256x64_shared_left(
// THREADS:       %[[WHOLE:.*]] = arith.xori %[[CUT:.*]], %true
// THREADS:       %[[FIRST:.*]] = arith.andi %{{.*}}, %[[WHOLE]] : i1
// THREADS:       scf.if %[[FIRST]]
// THREADS-COUNT-2: threads.bulk = "multicast"
// THREADS-COUNT-4: threads.bulk = "copy"
// THREADS:       %[[OTHER:.*]] = arith.andi %{{.*}}, %[[CUT]] : i1
// THREADS:       scf.if %[[OTHER]]
// THREADS-COUNT-6: threads.bulk = "copy"
// THREADS:       scf.if %[[CUT]]
// THREADS:         threads.bulk = "await"
// THREADS:         threads.bulk = "arrive"}
// THREADS-LABEL: func.func @gemm_weights_bf16_bf16_f32_tn_128x256x64(
// THREADS-NOT:   threads.cluster
// THREADS-LABEL: func.func @gemm_weights_bf16_bf16_f32_tn_128x256x64_by_rows(
// THREADS-NOT:   threads.cluster
// THREADS-NOT:   threads.bulk = "multicast"

// Where no warp copies for others, nothing is shared, and pairs are right all the same.
// ALONE-LABEL: func.func @gemm_groups_bf16_bf16_bf16_nn_128x256x64_shared_left(
