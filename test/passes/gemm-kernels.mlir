// Matrix products become launches: one kernel for every tile, element types and orientation; sizes are arguments.
// RUN: braid-opt %s --braid-gemm-kernels | FileCheck %s
// RUN: braid-opt %s --braid-gemm-kernels --braid-tile-to-threads | FileCheck %s --check-prefix=THREADS
// RUN: braid-opt %s --braid-gemm-kernels=library=true | FileCheck %s --check-prefix=LIBRARY

// A library takes what is not grouped, of one type of operands, and adds what is of the result's type.
// LIBRARY: cmd.gemm 10 x 96 x 64
// LIBRARY-NEXT: cmd.gemm 10 x 48 x 64 {{.*}}batch = 3
// LIBRARY-NEXT: cmd.gemm 128 x 8 x 50 {{.*}}transpose_a
// LIBRARY-NEXT: cmd.gemm 4 x 7 x 13 {{.*}}transpose_b
// LIBRARY-NEXT: cmd.gemm 8200 x 147 x 82
// LIBRARY-NEXT: cmd.gemm 67 x 34 x 40
// LIBRARY-NEXT: cmd.gemm 10 x 48 x 64 {{.*}}add
// LIBRARY-NEXT: cmd.launch @gemm_bf16_bf16_bf16_nn_16x16x64_plus_f32
// LIBRARY-NEXT: cmd.launch @gemm_groups_
// LIBRARY-NEXT: cmd.gemm 4000 x 1024 x 64
// LIBRARY-NEXT: cmd.gemm 2100 x 1024 x 64
// LIBRARY-NEXT: cmd.gemm 4096 x 1024 x 82
// LIBRARY-NEXT: cmd.gemm 1000 x 1024 x 64
// LIBRARY-NEXT: cmd.gemm 16 x 1024 x 64
// LIBRARY-NEXT: cmd.launch @gemm_groups_
// LIBRARY-NEXT: cmd.launch @gemm_groups_
// LIBRARY-NEXT: cmd.launch @gemm_groups_by_row_
// LIBRARY-NEXT: cmd.launch @gemm_weights_
// LIBRARY-NEXT: {{^  *}$}}
// CHECK-NOT: cmd.gemm
// CHECK-NOT: cmd.grouped_gemm
cmd.program {
  cmd.arena @io bytes 1048576
  cmd.arena @wide bytes 16777216
  cmd.stream @compute
  cmd.entry @main inputs [] outputs [] {
    // Both are launches of one kernel: 10 rows are one tile with a limit; so few read long steps of k, in as many programs as there can be.
    // CHECK: cmd.launch @gemm_f32_f32_f32_nn_16x16x64 grid [1, 6, 1] args {a = #cmd.buffer<@io, 0, 2560>, a.dim0 = 1 : i64, a.dim1 = 10 : i64, a.dim2 = 64 : i64, a.stride0 = 0 : i64, a.stride1 = 64 : i64, {{.*}}band = 1 : i64, batches = 0 : i64, {{.*}}c.stride1 = 128 : i64, k = 64 : i64} {{.*}}name = "gemm"
    // CHECK: cmd.launch @gemm_f32_f32_f32_nn_16x16x64 grid [1, 3, 3] args {{.*}}a.dim0 = 3 : i64, {{.*}}a.stride0 = 640 : i64
    cmd.gemm 10 x 96 x 64 a <@io, 0, 2560> ld 64 : f32 b <@io, 4096, 24576> ld 96 : f32 c <@io, 65536, 5120> ld 128 : f32 {name = "gemm"}
    cmd.gemm 10 x 48 x 64 a <@io, 0, 7680> ld 64 : f32 b <@io, 8192, 12288> ld 48 : f32 c <@io, 65536, 5760> ld 48 : f32 {batch = 3 : i64, batch_stride_a = 640 : i64, batch_stride_c = 480 : i64, name = "gemm"}
    // A gradient of weights sums over rows: their number needs no divisor, the columns of both operands do.
    // CHECK: cmd.launch @gemm_bf16_bf16_f32_tn_add_64x8x64 grid [1, 1, 2]
    cmd.gemm 128 x 8 x 50 a <@io, 0, 12800> ld 128 : bf16 b <@io, 16384, 800> ld 8 : bf16 c <@io, 65536, 4096> ld 8 : f32 {accumulate, transpose_a, name = "gemm"}
    // CHECK: cmd.launch @gemm_f32_f32_f32_nt_16x7x13 grid [1, 1, 1]
    cmd.gemm 4 x 7 x 13 a <@io, 0, 208> ld 13 : f32 b <@io, 4096, 364> ld 13 : f32 c <@io, 65536, 112> ld 7 : f32 {transpose_b, name = "gemm"}
    // Rows of 164 and 294 bytes are no rows of boxes, which begin on 16. Widths that no tile divides: 147 columns are a tile of 128, one of 16, one of 3, and 82 along k a step of 64, one of 16, one of 2.
    // CHECK: cmd.launch @gemm_bf16_bf16_f32_nn_128x128x64_16_2_by_rows grid [1, 1, 65] args {a = #cmd.buffer<@wide, 0, 1344800>, {{.*}}b = #cmd.buffer<@wide, 2097152, 24108>, {{.*}}c = #cmd.buffer<@wide, 4194304, 4821600>, {{.*}}k = 64 : i64, parts = 65 : i64, tiles = 1 : i64} {cmd.work = #cmd.work<"linear", flops = 172134400,
    // CHECK: cmd.launch @gemm_bf16_bf16_f32_nn_128x16x64_16_2 grid [1, 1, 65] args {a = #cmd.buffer<@wide, 0, 1344800>, {{.*}}b = #cmd.buffer<@wide, 2097408, 23852>, {{.*}}c = #cmd.buffer<@wide, 4194816, 4821088>
    // CHECK: cmd.launch @gemm_bf16_bf16_f32_nn_128x3x64_16_2 grid [1, 1, 65] args {{.*}}b = #cmd.buffer<@wide, 2097440, 23820>, {{.*}}c = #cmd.buffer<@wide, 4194880, 4821024>
    cmd.gemm 8200 x 147 x 82 a <@wide, 0, 1344800> ld 82 : bf16 b <@wide, 2097152, 24108> ld 147 : bf16 c <@wide, 4194304, 4821600> ld 147 : f32 {cmd.work = #cmd.work<"linear", flops = 197685600, bytes = 76748, "">, name = "gemm"}
    // So are the rows of a gradient of weights; in f32 a divisor of 16 and more does: 34 = 2 x 17.
    // CHECK: cmd.launch @gemm_f32_f32_f32_tn_64x34x32 grid [1, 1, 1]
    // CHECK: cmd.launch @gemm_f32_f32_f32_tn_3x34x32 grid [1, 1, 1] args {a = #cmd.buffer<@io, 256, 10464>, {{.*}}c = #cmd.buffer<@io, 74240, 408>
    cmd.gemm 67 x 34 x 40 a <@io, 0, 10720> ld 67 : f32 b <@io, 16384, 5440> ld 34 : f32 c <@io, 65536, 9112> ld 34 : f32 {transpose_a, name = "gemm"}
    // What is added from elsewhere is a buffer of its own, at the same rows and columns.
    // CHECK: cmd.launch @gemm_bf16_bf16_bf16_nn_16x16x64_plus_bf16 grid [1, 3, 3] args {{.*}}addend = #cmd.buffer<@io, 131072, 3000>, addend.dim0 = 3 : i64, addend.dim1 = 10 : i64, addend.dim2 = 48 : i64, addend.stride0 = 500 : i64, addend.stride1 = 48 : i64
    cmd.gemm 10 x 48 x 64 a <@io, 0, 3840> ld 64 : bf16 b <@io, 8192, 6144> ld 48 : bf16 c <@io, 65536, 2880> ld 48 : bf16 add <@io, 131072, 3000> : bf16 {batch = 3 : i64, batch_stride_a = 640 : i64, batch_stride_addend = 500 : i64, batch_stride_c = 480 : i64, name = "gemm"}
    // CHECK: cmd.launch @gemm_bf16_bf16_bf16_nn_16x16x64_plus_f32 grid [1, 3, 1] args {{.*}}addend = #cmd.buffer<@io, 131072, 1920>
    cmd.gemm 10 x 48 x 64 a <@io, 0, 1280> ld 64 : bf16 b <@io, 8192, 6144> ld 48 : bf16 c <@io, 65536, 960> ld 48 : bf16 add <@io, 131072, 1920> : f32 {name = "gemm"}
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_bf16_nt_64x16x16_plus_f32 grid [1, 1, 4] args {{.*}}addend = #cmd.buffer<@io, 131072, 8192>
    cmd.grouped_gemm rows groups 4 rows 128 m 0 n 16 k 16 a <@io, 0, 4096> ld 16 : bf16 b <@io, 8192, 2048> ld 16 : bf16 c <@io, 65536, 4096> ld 16 : bf16 add <@io, 131072, 8192> : f32 offsets <@io, 524288, 20> {name = "grouped_gemm", transpose_b}
    // Tiles are as large as leaves the multiprocessors of a large GPU one each.
    // CHECK: cmd.launch @gemm_bf16_bf16_bf16_nn_128x256x64 grid [1, 4, 32]
    cmd.gemm 4000 x 1024 x 64 a <@wide, 0, 512000> ld 64 : bf16 b <@wide, 1048576, 131072> ld 1024 : bf16 c <@wide, 2097152, 8192000> ld 1024 : bf16 {name = "gemm"}
    // CHECK: cmd.launch @gemm_bf16_bf16_bf16_nn_128x128x64 grid [1, 8, 17]
    cmd.gemm 2100 x 1024 x 64 a <@wide, 0, 268800> ld 64 : bf16 b <@wide, 1048576, 131072> ld 1024 : bf16 c <@wide, 2097152, 4300800> ld 1024 : bf16 {name = "gemm"}
    // With steps behind the loop its sums lie in shared memory twice: half as wide. 256 tiles for 132 multiprocessors: two for each program.
    // CHECK: cmd.launch @gemm_bf16_bf16_bf16_nt_128x128x64_16_2_by_rows grid [1, 8, 16] args {{.*}}parts = 16 : i64, tiles = 2 : i64}
    cmd.gemm 4096 x 1024 x 82 a <@wide, 0, 671744> ld 82 : bf16 b <@wide, 1048576, 167936> ld 82 : bf16 c <@wide, 2097152, 8388608> ld 1024 : bf16 {transpose_b, name = "gemm"}
    // CHECK: cmd.launch @gemm_bf16_bf16_bf16_nn_64x128x64 grid [1, 8, 16]
    cmd.gemm 1000 x 1024 x 64 a <@wide, 0, 128000> ld 64 : bf16 b <@wide, 1048576, 131072> ld 1024 : bf16 c <@wide, 2097152, 2048000> ld 1024 : bf16 {name = "gemm"}
    // CHECK: cmd.launch @gemm_bf16_bf16_bf16_nn_16x16x64 grid [1, 64, 1]
    cmd.gemm 16 x 1024 x 64 a <@wide, 0, 2048> ld 64 : bf16 b <@wide, 1048576, 131072> ld 1024 : bf16 c <@wide, 2097152, 32768> ld 1024 : bf16 {name = "gemm"}
    // The rows of a group are found on the device.
    // CHECK: cmd.launch @gemm_groups_f32_f32_f32_nt_64x16x8 grid [1, 1, 4] args {{.*}}offsets = #cmd.buffer<@io, 524288, 20>, offsets.dim0 = 5 : i64, parts = 1 : i64}
    cmd.grouped_gemm rows groups 4 rows 128 m 0 n 16 k 8 a <@io, 0, 4096> ld 8 : f32 b <@io, 8192, 2048> ld 8 : f32 c <@io, 65536, 8192> ld 16 : f32 offsets <@io, 524288, 20> {name = "grouped_gemm", transpose_b}
    // Experts with two rows each: tiles of 16 rows, one program for all of them, and columns by how many programs 64 experts make.
    // CHECK: cmd.launch @gemm_groups_bf16_bf16_bf16_nn_16x64x64 grid [2, 1, 64]
    cmd.grouped_gemm rows groups 64 rows 128 m 0 n 128 k 64 a <@wide, 0, 16384> ld 64 : bf16 b <@wide, 1048576, 1048576> ld 128 : bf16 c <@wide, 4194304, 32768> ld 128 : bf16 offsets <@io, 524288, 260> {name = "decode"}
    // Fewer rows than experts: a program for each row, which takes the expert that begins there.
    // CHECK: cmd.launch @gemm_groups_by_row_bf16_bf16_bf16_nn_16x16x64 grid [8, 1, 8] args
    // CHECK-NOT: parts
    // CHECK-SAME: {name = "few"}
    cmd.grouped_gemm rows groups 64 rows 8 m 0 n 128 k 64 a <@wide, 0, 1024> ld 64 : bf16 b <@wide, 1048576, 1048576> ld 128 : bf16 c <@wide, 4194304, 2048> ld 128 : bf16 offsets <@io, 524288, 260> {name = "few"}
    // CHECK: cmd.launch @gemm_weights_f32_f32_f32_tn_8x16x128 grid [1, 1, 4]
    cmd.grouped_gemm weight groups 4 rows 128 m 8 n 16 k 0 a <@io, 0, 4096> ld 8 : f32 b <@io, 8192, 8192> ld 16 : f32 c <@io, 65536, 2048> ld 16 : f32 offsets <@io, 524288, 20> {name = "grouped_gemm"}
  }
}

// The sum over k stands in the tile's loop; rows past the end read 0 and are not written.
// CHECK-LABEL: func.func @gemm_f32_f32_f32_nn_16x16x64(
// CHECK-SAME:    tile.grid = ["row", "column", "outer"], tile.in_place = [], tile.kernel
// CHECK:         scf.for %{{.*}} = %c0{{.*}} step %c64
// CHECK:           tile.load %{{.*}} limit %{{.*}} : memref<?x?x?xf32, strided<[?, ?, 1]>>, vector<16x64xf32>
// CHECK:           tile.dot %{{.*}} : vector<16x64xf32>, vector<64x16xf32>, vector<16x16xf32>
// CHECK:         tile.store %{{.*}} limit %{{.*}} : vector<16x16xf32>, memref<?x?x?xf32, strided<[?, ?, 1]>>
// CHECK-LABEL: func.func @gemm_bf16_bf16_f32_tn_add_64x8x64(
// CHECK:         tile.load %{{.*}} : memref<?x?x?xf32, strided<[?, ?, 1]>>, vector<64x8xf32>
// CHECK:         tile.dot %{{.*}} {transpose_a} : vector<64x64xbf16>, vector<64x8xbf16>, vector<64x8xf32>
// CHECK-LABEL: func.func @gemm_bf16_bf16_bf16_nn_16x16x64_plus_f32(
// CHECK:         tile.load %[[ADDEND:.*]][{{.*}} : memref<?x?x?xf32, strided<[?, ?, 1]>>, vector<16x16xf32>
// CHECK:         tile.store {{.*}} : vector<16x16xbf16>, memref<?x?x?xbf16, strided<[?, ?, 1]>>
// CHECK-LABEL: func.func @gemm_groups_f32_f32_f32_nt_64x16x8(
// CHECK:         memref.load %{{.*}} : memref<?xi32>
// CHECK:         scf.for
// CHECK:           scf.for
// CHECK-LABEL: func.func @gemm_weights_f32_f32_f32_tn_8x16x128(
// The rest along k is behind the loop, what the tensor cores take of it on them.
// THREADS-LABEL: func.func @gemm_bf16_bf16_f32_nn_128x128x64_16_2_by_rows(
// THREADS:         scf.for
// THREADS:           nvvm.mma.sync
// THREADS:         nvvm.mma.sync
// THREADS:         math.fma
