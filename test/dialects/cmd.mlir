// Every op of the command dialect, printed and parsed again.
// RUN: braid-opt %s | braid-opt | FileCheck %s
// RUN: braid-opt %s --mlir-print-op-generic | braid-opt | FileCheck %s

// CHECK-LABEL: cmd.program {
cmd.program {
  // CHECK-NEXT: cmd.arena @parameters bytes 64
  cmd.arena @parameters bytes 64
  // CHECK-NEXT: cmd.arena @workspace bytes 4096 lower_bound 4000 {align = 64 : i64}
  cmd.arena @workspace bytes 4096 lower_bound 4000 {align = 64 : i64}
  cmd.arena @io bytes 256
  // CHECK: cmd.stream @compute
  cmd.stream @compute
  // CHECK-NEXT: cmd.stream @ep axis "ep"
  cmd.stream @ep axis "ep"
  // CHECK: cmd.tensor "layers.{}.w" parameter tensor<2x4xf32> at <@parameters, 0, 64> {layers = array<i32: 0, 2>, shards = {{\[\[}}0, "ep"]]}
  cmd.tensor "layers.{}.w" parameter tensor<2x4xf32> at <@parameters, 0, 64> {layers = array<i32: 0, 2>, shards = [[0, "ep"]]}
  // CHECK: cmd.tensor "layers.{}.w.first" moment tensor<2x4xf32> at <@workspace, 0, 64> {layers = array<i32: 0, 2>, of = "layers.{}.w", slot = "first"}
  cmd.tensor "layers.{}.w.first" moment tensor<2x4xf32> at <@workspace, 0, 64> {layers = array<i32: 0, 2>, of = "layers.{}.w", slot = "first"}
  cmd.tensor "x" input tensor<2x4xf32> at <@io, 0, 32>
  cmd.tensor "y" output tensor<2x4xf32> at <@io, 64, 32>
  // CHECK: cmd.entry @step inputs ["x", "layers.{}.w"] outputs ["y"] attributes {events = 2 : i64} {
  cmd.entry @step inputs ["x", "layers.{}.w"] outputs ["y"] attributes {events = 2 : i64} {
    // CHECK-NEXT: cmd.fill <@workspace, 0, 32>{{$}}
    cmd.fill <@workspace, 0, 32>
    // CHECK-NEXT: cmd.fill <@workspace, 64, 32> value 255
    cmd.fill <@workspace, 64, 32> value 255
    // CHECK-NEXT: cmd.repeat 2 attributes {name = "layers"} {
    cmd.repeat 2 attributes {name = "layers"} {
      // CHECK-NEXT: cmd.launch @add grid [2, 1, 1] args {s = 5.000000e-01 : f32, x = #cmd.buffer<@io, 0, 32>, x.dim0 = 2 : i64, y = #cmd.buffer<@parameters, 32, 32, strides = [-32]>} {name = "layers.* add"}
      cmd.launch @add grid [2, 1, 1] args {x = #cmd.buffer<@io, 0, 32>, "x.dim0" = 2 : i64, y = #cmd.buffer<@parameters, 32, 32, strides = [-32]>, s = 0.5 : f32} {name = "layers.* add"}
      // CHECK-NEXT: cmd.gemm 2 x 2 x 4 a <@io, 0, 32> ld 4 : f32 b <@parameters, 0, 32, strides = [32]> ld 4 : f32 c <@workspace, 0, 16> ld 2 : f32 {accumulate, transpose_b}
      cmd.gemm 2 x 2 x 4 a <@io, 0, 32> ld 4 : f32 b <@parameters, 0, 32, strides = [32]> ld 4 : f32 c <@workspace, 0, 16> ld 2 : f32 {accumulate, transpose_b}
    }
    // CHECK-NEXT: }
    // CHECK-NEXT: cmd.gemm 2 x 2 x 4 a <@io, 0, 16> ld 4 : bf16 b <@parameters, 0, 16> ld 2 : bf16 c <@workspace, 0, 8> ld 2 : bf16 add <@workspace, 64, 16> : f32
    cmd.gemm 2 x 2 x 4 a <@io, 0, 16> ld 4 : bf16 b <@parameters, 0, 16> ld 2 : bf16 c <@workspace, 0, 8> ld 2 : bf16 add <@workspace, 64, 16> : f32
    // CHECK: cmd.grouped_gemm rows groups 2 rows 4 m 0 n 2 k 2 a <@workspace, 0, 32> ld 2 : f32 b <@workspace, 64, 32> ld 2 : f32 c <@workspace, 128, 32> ld 2 : f32 offsets <@workspace, 256, 12>
    cmd.grouped_gemm rows groups 2 rows 4 m 0 n 2 k 2 a <@workspace, 0, 32> ld 2 : f32 b <@workspace, 64, 32> ld 2 : f32 c <@workspace, 128, 32> ld 2 : f32 offsets <@workspace, 256, 12>
    // CHECK-NEXT: cmd.record 0{{$}}
    cmd.record 0
    // CHECK-NEXT: cmd.wait 0 on @ep
    cmd.wait 0 on @ep
    // CHECK-NEXT: cmd.collective all_to_all "ep" send <@workspace, 0, 64> recv <@workspace, 64, 64> : f32 send_counts <@workspace, 512, 8> recv_counts <@workspace, 520, 8> on @ep {block_bytes = 32 : i64, counts_per_peer = 1 : i64, name = "dispatch", row_bytes = 8 : i64}
    cmd.collective all_to_all "ep" send <@workspace, 0, 64> recv <@workspace, 64, 64> : f32 send_counts <@workspace, 512, 8> recv_counts <@workspace, 520, 8> on @ep {block_bytes = 32 : i64, row_bytes = 8 : i64, counts_per_peer = 1 : i64, name = "dispatch"}
    // CHECK-NEXT: cmd.collective all_gather "dp*ep" send <@workspace, 0, 32> recv <@workspace, 64, 128> : f32 on @ep
    cmd.collective all_gather "dp*ep" send <@workspace, 0, 32> recv <@workspace, 64, 128> : f32 on @ep
    // CHECK-NEXT: cmd.collective reduce_scatter "ep" send <@workspace, 64, 128> recv <@workspace, 0, 64> : f32 on @ep
    cmd.collective reduce_scatter "ep" send <@workspace, 64, 128> recv <@workspace, 0, 64> : f32 on @ep
    // CHECK-NEXT: cmd.collective shift "ep" send <@workspace, 0, 64> recv <@workspace, 64, 64> : bf16 on @ep {cyclic, distance = 3 : i64, reverse}
    cmd.collective shift "ep" send <@workspace, 0, 64> recv <@workspace, 64, 64> : bf16 on @ep {cyclic, distance = 3 : i64, reverse}
    cmd.record 1 on @ep
    cmd.wait 1
    // CHECK: cmd.copy <@workspace, 0, 32> to <@io, 64, 32>
    cmd.copy <@workspace, 0, 32> to <@io, 64, 32>
  }
}
