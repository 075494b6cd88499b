// Ops on planned values become commands, one for one.
// RUN: braid-opt %s --split-input-file --braid-plan-memory --braid-prove-memory-plan --braid-lower-to-commands | FileCheck %s

// Arguments by name: a pointer, the sizes and strides that the parameter's type leaves open, the scalars.
// CHECK: cmd.stream @compute
// CHECK: cmd.entry @launch inputs ["x"] outputs ["y"] {
// CHECK-NEXT: cmd.launch @scale grid [4, 1, 1] args {n = 16 : i64, o = #cmd.buffer<@io, 256, 256>, o.dim0 = 4 : i64, s = 5.000000e-01 : f32, x = #cmd.buffer<@io, 32, 216>, x.dim0 = 4 : i64, x.stride0 = 16 : i64} {name = "scale"}
// CHECK-NEXT: }
// CHECK: func.func private @scale
// CHECK-NOT: @unused
// CHECK-NOT: braid.entry
func.func private @scale(%x: memref<?x6xf32, strided<[?, 1]>> {tile.name = "x"}, %o: memref<?x16xf32> {tile.name = "o"}, %n: index {tile.name = "n"},
                         %s: f32 {tile.name = "s"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func private @unused(%x: memref<?x16xf32> {tile.name = "x"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @launch(%x: tensor<4x16xf32> {braid.name = "x"}) -> (tensor<4x16xf32> {braid.name = "y"}) attributes {braid.entry} {
  %c = braid.slice %x {dim = 1 : i64, begin = 8 : i64} : (tensor<4x16xf32>) -> tensor<4x6xf32>
  %y = tile.launch @scale grid [4] (%c) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {s = 0.5 : f32, n = 16 : index}} : (tensor<4x6xf32>) -> tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}

// -----

// Leading dimensions are rows. Columns of a wider matrix keep its distance; accumulating starts from a copy or a fill.
// CHECK-LABEL: cmd.entry @gemms
// CHECK: cmd.gemm 8 x 16 x 4 a <@io, 0, 128> ld 4 : f32 b <@parameters, 0, 256> ld 16 : f32 c <@[[C:.*]], {{[0-9]+}}, 512> ld 16 : f32 {name = "gemm"}
// CHECK: cmd.gemm 8 x 4 x 8 a <@[[C]], {{[0-9]+}}, 480> ld 16 : f32 b <@parameters, 32, 224> ld 16 : f32 c <@io, {{[0-9]+}}, 128> ld 4 : f32 {name = "gemm", transpose_b}
// CHECK: cmd.fill <@io, [[D:[0-9]+]], 256>
// CHECK: cmd.gemm 4 x 16 x 8 a <@io, 0, 128> ld 4 : f32 b <@[[C]], {{[0-9]+}}, 512> ld 16 : f32 c <@io, [[D]], 256> ld 16 : f32 {accumulate, name = "gemm", transpose_a}
func.func @gemms(%x: tensor<2x4x4xf32> {braid.name = "x"}, %w: tensor<4x16xf32> {braid.name = "w", braid.role = "parameter"})
    -> (tensor<2x4x4xf32> {braid.name = "y"}, tensor<4x16xf32> {braid.name = "d"}) attributes {braid.entry} {
  %h = tile.gemm %x, %w {a_columns = 4 : i64, b_columns = 16 : i64, c_columns = 16 : i64} : (tensor<2x4x4xf32>, tensor<4x16xf32>) -> tensor<2x4x16xf32>
  %right = braid.slice %h {dim = 2 : i64, begin = 8 : i64} : (tensor<2x4x16xf32>) -> tensor<2x4x8xf32>
  %columns = braid.slice %w {dim = 1 : i64, begin = 8 : i64} : (tensor<4x16xf32>) -> tensor<4x8xf32>
  %y = tile.gemm %right, %columns {a_columns = 8 : i64, b_columns = 8 : i64, c_columns = 4 : i64, transpose_b} : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x4xf32>
  %zero = arith.constant dense<0.0> : tensor<4x16xf32>
  %d = tile.gemm %x, %h, %zero {a_columns = 4 : i64, b_columns = 16 : i64, c_columns = 16 : i64, transpose_a} : (tensor<2x4x4xf32>, tensor<2x4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  return %y, %d : tensor<2x4x4xf32>, tensor<4x16xf32>
}

// -----

// c of another place or type is an addend: it stays as it is, and the result lies on neither. A slice of it has a batch stride of its own.
// CHECK-LABEL: cmd.entry @apart
// CHECK: cmd.gemm 4 x 8 x 4 a <@io, 0, 32> ld 4 : bf16 b <@io, {{[0-9]+}}, 64> ld 8 : bf16 c <@[[S:.*]], [[C:[0-9]+]], 128> ld 8 : f32 {name = "gemm"}
// CHECK: cmd.gemm 4 x 8 x 4 a <@io, 0, 32> ld 4 : bf16 b <@io, {{[0-9]+}}, 64> ld 8 : bf16 c <@io, [[Y:[0-9]+]], 64> ld 8 : bf16 add <@[[S]], [[C]], 128> : f32 {name = "gemm"}
// CHECK: cmd.gemm 2 x 8 x 4 a <@io, 0, 32> ld 4 : bf16 b <@io, {{[0-9]+}}, 64> ld 8 : bf16 c <@io, {{[0-9]+}}, 64> ld 8 : bf16 add <@io, {{[0-9]+}}, 112> : bf16 {batch = 2 : i64, batch_stride_a = 8 : i64, batch_stride_addend = 40 : i64, batch_stride_c = 16 : i64, name = "gemm"}
// CHECK: cmd.grouped_gemm rows groups 4 rows 32 m 0 n 8 k 16 {{.*}} : bf16 add <{{.*}}> : f32 offsets
func.func @apart(%x: tensor<2x2x4xbf16> {braid.name = "x"}, %w: tensor<4x8xbf16> {braid.name = "w"}, %z: tensor<2x5x8xbf16> {braid.name = "z"},
    %r: tensor<1x32x16xbf16> {braid.name = "r"}, %e: tensor<4x16x8xbf16> {braid.name = "e"}, %o: tensor<5xi32> {braid.name = "o"}, %s: tensor<1x32x8xf32> {braid.name = "s"})
    -> (tensor<2x2x8xbf16> {braid.name = "y"}, tensor<2x2x8xbf16> {braid.name = "v"}, tensor<1x32x8xbf16> {braid.name = "g"}) attributes {braid.entry} {
  %c = tile.gemm %x, %w {a_columns = 4 : i64, b_columns = 8 : i64, c_columns = 8 : i64} : (tensor<2x2x4xbf16>, tensor<4x8xbf16>) -> tensor<2x2x8xf32>
  %y = tile.gemm %x, %w, %c {apart, a_columns = 4 : i64, b_columns = 8 : i64, c_columns = 8 : i64} : (tensor<2x2x4xbf16>, tensor<4x8xbf16>, tensor<2x2x8xf32>) -> tensor<2x2x8xbf16>
  %part = braid.slice %z {dim = 1 : i64, begin = 3 : i64} : (tensor<2x5x8xbf16>) -> tensor<2x2x8xbf16>
  %v = tile.gemm %x, %w, %part {apart, a_columns = 4 : i64, b_columns = 8 : i64, c_columns = 8 : i64} : (tensor<2x2x4xbf16>, tensor<4x8xbf16>, tensor<2x2x8xbf16>) -> tensor<2x2x8xbf16>
  %g = tile.grouped_gemm %r, %e, %o, %s {apart} : (tensor<1x32x16xbf16>, tensor<4x16x8xbf16>, tensor<5xi32>, tensor<1x32x8xf32>) -> tensor<1x32x8xbf16>
  return %y, %v, %g : tensor<2x2x8xbf16>, tensor<2x2x8xbf16>, tensor<1x32x8xbf16>
}

// -----

// Tokens [2, 4) of both rows of the batch: a batch of two products. Summed over, they are two products that accumulate.
// CHECK-LABEL: cmd.entry @token_slice
// CHECK: cmd.gemm 2 x 8 x 4 a <@io, 32, 96> ld 4 : f32 b <@io, {{[0-9]+}}, 128> ld 8 : f32 c <@io, {{[0-9]+}}, 128> ld 8 : f32 {batch = 2 : i64, batch_stride_a = 16 : i64, batch_stride_c = 16 : i64, name = "gemm"}
// CHECK: cmd.gemm 4 x 8 x 2 a <@io, 32, 96> ld 4 : f32 b <@io, [[Y:[0-9]+]], 128> ld 8 : f32 c <@io, [[D:[0-9]+]], 128> ld 8 : f32 {name = "gemm", transpose_a}
// CHECK: cmd.gemm 4 x 8 x 2 a <@io, 96, 32> ld 4 : f32 b <@io, {{[0-9]+}}, 64> ld 8 : f32 c <@io, [[D]], 128> ld 8 : f32 {accumulate, name = "gemm", transpose_a}
func.func @token_slice(%x: tensor<2x4x4xf32> {braid.name = "x"}, %w: tensor<4x8xf32> {braid.name = "w"})
    -> (tensor<2x2x8xf32> {braid.name = "y"}, tensor<4x8xf32> {braid.name = "d"}) attributes {braid.entry} {
  %s = braid.slice %x {dim = 1 : i64, begin = 2 : i64} : (tensor<2x4x4xf32>) -> tensor<2x2x4xf32>
  %y = tile.gemm %s, %w {a_columns = 4 : i64, b_columns = 8 : i64, c_columns = 8 : i64} : (tensor<2x2x4xf32>, tensor<4x8xf32>) -> tensor<2x2x8xf32>
  %d = tile.gemm %s, %y {a_columns = 4 : i64, b_columns = 8 : i64, c_columns = 8 : i64, transpose_a} : (tensor<2x2x4xf32>, tensor<2x2x8xf32>) -> tensor<4x8xf32>
  return %y, %d : tensor<2x2x8xf32>, tensor<4x8xf32>
}

// -----

// CHECK-LABEL: cmd.entry @experts
// CHECK: cmd.grouped_gemm rows groups 4 rows 32 m 0 n 16 k 8 a <@io, {{[0-9]+}}, 1024> ld 8 : f32 b <@io, {{[0-9]+}}, 2048> ld 16 : f32 c <@io, [[Y:[0-9]+]], 2048> ld 16 : f32 offsets <@io, {{[0-9]+}}, 20> {name = "grouped_gemm"}
// CHECK: cmd.grouped_gemm rows groups 4 rows 32 m 0 n 8 k 16 a <@io, [[Y]], 2048> ld 16 : f32 b <@io, {{[0-9]+}}, 2048> ld 16 : f32 c <@io, {{[0-9]+}}, 1024> ld 8 : f32 offsets <@io, {{[0-9]+}}, 20> {name = "grouped_gemm", transpose_b}
// CHECK: cmd.grouped_gemm weight groups 4 rows 32 m 8 n 16 k 0 a <@io, {{[0-9]+}}, 1024> ld 8 : f32 b <@io, [[Y]], 2048> ld 16 : f32 c <@io, {{[0-9]+}}, 2048> ld 16 : f32 offsets <@io, {{[0-9]+}}, 20> {name = "grouped_gemm"}
func.func @experts(%x: tensor<1x32x8xf32> {braid.name = "x"}, %w: tensor<4x8x16xf32> {braid.name = "w"}, %offsets: tensor<5xi32> {braid.name = "offsets"})
    -> (tensor<1x32x16xf32> {braid.name = "y"}, tensor<1x32x8xf32> {braid.name = "dx"}, tensor<4x8x16xf32> {braid.name = "dw"}) attributes {braid.entry} {
  %y = tile.grouped_gemm %x, %w, %offsets : (tensor<1x32x8xf32>, tensor<4x8x16xf32>, tensor<5xi32>) -> tensor<1x32x16xf32>
  %dx = tile.grouped_gemm %y, %w, %offsets {transpose_b} : (tensor<1x32x16xf32>, tensor<4x8x16xf32>, tensor<5xi32>) -> tensor<1x32x8xf32>
  %dw = tile.grouped_gemm %x, %y, %offsets {weight} : (tensor<1x32x8xf32>, tensor<1x32x16xf32>, tensor<5xi32>) -> tensor<4x8x16xf32>
  return %y, %dx, %dw : tensor<1x32x16xf32>, tensor<1x32x8xf32>, tensor<4x8x16xf32>
}

// -----

!t = tensor<4x16xf32>
!c = tensor<2x3xi32>

// A collective waits for what compute was given before it; compute waits for it only at the await. A synchronous one is
// awaited at once. Every axis has a stream.
// CHECK: cmd.stream @compute
// CHECK-NEXT: cmd.stream @ep axis "ep"
// CHECK-NEXT: cmd.stream @dp axis "dp"
// CHECK-LABEL: cmd.entry @collectives
// CHECK-SAME: events = 4
// CHECK-NEXT: cmd.record 0{{$}}
// CHECK-NEXT: cmd.wait 0 on @ep
// CHECK-NEXT: cmd.collective all_to_all "ep" send <@io, 0, 256> recv <@workspace, {{[0-9]+}}, 256> : f32 send_counts <@io, 256, 24> recv_counts <@io, 320, 24> on @ep {block_bytes = 128 : i64, counts_per_peer = 3 : i64, name = "moe.dispatch.0", row_bytes = 64 : i64}
// CHECK-NEXT: cmd.record 1 on @ep
// CHECK-NEXT: cmd.launch @k
// CHECK-NEXT: cmd.wait 1{{$}}
// CHECK-NEXT: cmd.record 2{{$}}
// CHECK-NEXT: cmd.wait 2 on @dp
// CHECK-NEXT: cmd.collective all_reduce "dp" {{.*}} : f32 on @dp
// CHECK-NEXT: cmd.record 3 on @dp
// CHECK-NEXT: cmd.wait 3{{$}}
func.func private @k(%x: memref<?x16xf32> {tile.name = "x"}, %o: memref<?x16xf32> {tile.name = "o"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @collectives(%x: !t {braid.name = "x"}, %sc: !c {braid.name = "send_counts"}, %rc: !c {braid.name = "recv_counts"})
    -> (!t {braid.name = "y"}, !t {braid.name = "z"}) attributes {braid.entry} {
  %f = braid.comm.start all_to_all %x, %sc, %rc {axis = "ep", peers = 2 : i64, label = "moe.dispatch.0"} : (!t, !c, !c) -> !braid.future<!t>
  %z = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %0 = braid.comm.await %f : (!braid.future<!t>) -> !t
  %y = braid.comm.all_reduce %0 {axis = "dp"} : (!t) -> !t
  return %y, %z : !t, !t
}

// -----

!t = tensor<4x16xf32>

// A product of axes is a stream of its own. Rows of 4 ranks are gathered, summed up and divided among them, and passed on.
// CHECK: cmd.stream @"dp*sp" axis "dp*sp"
// CHECK-NEXT: cmd.stream @sp axis "sp"
// CHECK-LABEL: cmd.entry @parts
// CHECK: cmd.collective all_gather "dp*sp" send <@io, 0, 256> recv <@workspace, [[G:[0-9]+]], 1024> : f32 on @"dp*sp" {name = "all_gather"}
// CHECK: cmd.collective reduce_scatter "dp*sp" send <@workspace, [[G]], 1024> recv <@workspace, [[S:[0-9]+]], 256> : f32 on @"dp*sp" {name = "gradient"}
// CHECK: cmd.collective shift "sp" send <@workspace, [[S]], 256> recv <@workspace, [[P:[0-9]+]], 256> : f32 on @sp {distance = 2 : i64, name = "state", reverse}
// CHECK: cmd.collective shift "sp" send <@workspace, [[P]], 256> recv <@io, 256, 256> : f32 on @sp {cyclic, name = "shift"}
func.func @parts(%x: !t {braid.name = "x"}) -> (!t {braid.name = "y"}) attributes {braid.entry} {
  %0 = braid.comm.all_gather %x {axis = "dp*sp", dim = 0 : i64} : (!t) -> tensor<16x16xf32>
  %f = braid.comm.start reduce_scatter %0 {axis = "dp*sp", label = "gradient"} : (tensor<16x16xf32>) -> !braid.future<!t>
  %1 = braid.comm.await %f : (!braid.future<!t>) -> !t
  %g = braid.comm.start shift %1 {axis = "sp", distance = 2 : i64, label = "state", reverse} : (!t) -> !braid.future<!t>
  %2 = braid.comm.await %g : (!braid.future<!t>) -> !t
  %3 = braid.comm.shift %2 {axis = "sp", cyclic} : (!t) -> !t
  return %3 : !t
}

// -----

!t = tensor<4x16xf32>
!s = tensor<3x4x16xf32>

// CHECK-LABEL: cmd.entry @layers
// CHECK-NEXT: cmd.copy <@io, 0, 256> to <@io, [[Y:[0-9]+]], 256>
// CHECK-NEXT: cmd.repeat 3 {
// CHECK-NEXT: cmd.launch @k2 {{.*}}o = #cmd.buffer<@[[T:.*]], {{[0-9]+}}, 256>, x = #cmd.buffer<@io, [[Y]], 256>, y = #cmd.buffer<@parameters, 512, 256, strides = [-256]>
// CHECK-NEXT: cmd.copy <@[[T]], {{[0-9]+}}, 256> to <@io, [[Y]], 256>
// CHECK-NEXT: }
func.func private @k2(%x: memref<4x16xf32> {tile.name = "x"}, %y: memref<4x16xf32> {tile.name = "y"}, %o: memref<4x16xf32> {tile.name = "o"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func private @layer(%x: !t, %w: !t) -> !t {
  %0 = tile.launch @k2 grid [4] (%x, %w) {arg_names = ["x", "y"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t, !t) -> !t
  return %0 : !t
}
func.func @layers(%x: !t {braid.name = "x"}, %w: !s {braid.name = "layers.{}.w", braid.role = "parameter", braid.layers = array<i32: 0, 1, 2>})
    -> (!t {braid.name = "y"}) attributes {braid.entry} {
  %y = braid.repeat %x, %w {count = 3 : i64, carried = 1 : i64, reverse} : (!t, !s) -> !t {
  ^bb0(%c: !t, %wl: !t):
    %r = func.call @layer(%c, %wl) : (!t, !t) -> !t
    braid.yield %r : (!t) -> ()
  }
  return %y : !t
}

// -----

// What an op must do and the layer it belongs to go to its commands. Weights say which layers a call computes, in the order
// of execution; two products of a call that became two commands share its work.
// CHECK-LABEL: cmd.entry @numbered
// CHECK: cmd.repeat 2
// CHECK: cmd.gemm {{.*}}cmd.layers = array<i32: 3, 5>, cmd.work = #cmd.work<"linear", flops = 64, bytes = 32, "library">, name = "forward gemm"
// CHECK: cmd.repeat 2
// CHECK: cmd.gemm {{.*}}cmd.layers = array<i32: 5, 3>
// CHECK: cmd.gemm {{.*}}cmd.layers = array<i32: 7>, name = "last gemm"
func.func private @layer(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>) -> tensor<2x4xf32> {
  %y = tile.gemm %x, %w {a_columns = 4 : i64, b_columns = 4 : i64, c_columns = 4 : i64, cmd.work = #cmd.work<"linear", flops = 64, bytes = 32, "library">} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}
func.func private @other(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>) -> tensor<2x4xf32> {
  %y = tile.gemm %x, %w {a_columns = 4 : i64, b_columns = 4 : i64, c_columns = 4 : i64} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}
func.func @numbered(%x: tensor<2x4xf32> {braid.name = "x"}, %w: tensor<2x4x4xf32> {braid.layers = array<i32: 3, 5>, braid.name = "layers.{}.w", braid.role = "parameter"},
                  %last: tensor<4x4xf32> {braid.name = "layers.7.v", braid.role = "parameter"}) -> (tensor<2x4xf32> {braid.name = "y"}) attributes {braid.entry} {
  %a = braid.repeat %x, %w {count = 2 : i64, carried = 1 : i64} : (tensor<2x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4xf32> {
  ^bb0(%h: tensor<2x4xf32>, %u: tensor<4x4xf32>):
    %n = func.call @layer(%h, %u) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> loc("forward")
    braid.yield %n : (tensor<2x4xf32>) -> ()
  }
  %b = braid.repeat %a, %w {count = 2 : i64, carried = 1 : i64, reverse} : (tensor<2x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4xf32> {
  ^bb0(%h: tensor<2x4xf32>, %u: tensor<4x4xf32>):
    %n = func.call @layer(%h, %u) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    braid.yield %n : (tensor<2x4xf32>) -> ()
  }
  %y = call @other(%b, %last) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> loc("last")
  return %y : tensor<2x4xf32>
}

// -----

// The micro-batch stands beside locations, of a call as of an op; what is of two is of none.
// CHECK-LABEL: cmd.entry @parts
// CHECK: cmd.gemm {{.*}}cmd.micro_batch = 2 : i32
// CHECK: cmd.gemm {{.*}}cmd.micro_batch = 0 : i32
// CHECK: cmd.gemm
// CHECK-NOT: cmd.micro_batch
// CHECK: }
func.func private @layer(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>) -> tensor<2x4xf32> {
  %y = tile.gemm %x, %w {a_columns = 4 : i64, b_columns = 4 : i64, c_columns = 4 : i64} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> loc("product")
  return %y : tensor<2x4xf32>
}
func.func @parts(%x: tensor<2x4xf32> {braid.name = "x"}, %w: tensor<4x4xf32> {braid.name = "layers.7.v", braid.role = "parameter"}) -> (tensor<2x4xf32> {braid.name = "y"}) attributes {braid.entry} {
  %a = func.call @layer(%x, %w) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> loc(fused<2 : i32>["forward"])
  %b = tile.gemm %a, %w {a_columns = 4 : i64, b_columns = 4 : i64, c_columns = 4 : i64} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> loc(fused<0 : i32>["last"])
  %y = tile.gemm %b, %w {a_columns = 4 : i64, b_columns = 4 : i64, c_columns = 4 : i64} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> loc(fused[fused<0 : i32>["one"], fused<1 : i32>["two"]])
  return %y : tensor<2x4xf32>
}

// -----

// What is marked goes beside compute, and what it reads keeps its bytes until its layer ends: %b could lie where %a did. Without a layer it stays in its place.
// CHECK: cmd.stream @compute
// CHECK-NEXT: cmd.stream @beside{{$}}
// CHECK-LABEL: cmd.entry @marked
// CHECK-NEXT: cmd.launch @scale {{.*}}o = #cmd.buffer<@workspace, [[A:[0-9]+]], 256>{{.*}}name = "a"
// CHECK-NEXT: cmd.record 0{{$}}
// CHECK-NEXT: cmd.wait 0 on @beside
// CHECK-NEXT: cmd.launch @scale {{.*}}x = #cmd.buffer<@workspace, [[A]], 256>{{.*}} on @beside {{.*}}name = "dw"
// CHECK-NEXT: cmd.record 1 on @beside
// CHECK-NEXT: cmd.wait 1{{$}}
// CHECK-NEXT: cmd.launch @scale {{.*}}o = #cmd.buffer<@workspace, [[B:[0-9]+]], 256>{{.*}}name = "b"
// CHECK-NEXT: cmd.launch @scale {{.*}}name = "c"
// CHECK-NEXT: cmd.launch @scale {{.*}}o = #cmd.buffer<@workspace, [[A]], 256>{{.*}}name = "d"
// CHECK-NEXT: cmd.launch @scale grid [4, 1, 1] args {{{[^}]*}}} {{.*}}name = "e"
func.func private @scale(%x: memref<?x16xf32> {tile.name = "x"}, %o: memref<?x16xf32> {tile.name = "o"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @marked(%x: tensor<4x16xf32> {braid.name = "x"}) -> (tensor<4x16xf32> {braid.name = "dw"}, tensor<4x16xf32> {braid.name = "c"}, tensor<4x16xf32> {braid.name = "e"}) attributes {braid.entry} {
  %a = tile.launch @scale grid [4] (%x) {label = "a", cmd.layers = array<i32: 1>, arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %dw = tile.launch @scale grid [4] (%a) {label = "dw", cmd.beside, cmd.layers = array<i32: 1>, arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %b = tile.launch @scale grid [4] (%x) {label = "b", cmd.layers = array<i32: 1>, arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %c = tile.launch @scale grid [4] (%b) {label = "c", cmd.layers = array<i32: 1>, arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %d = tile.launch @scale grid [4] (%x) {label = "d", cmd.layers = array<i32: 0>, arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %e = tile.launch @scale grid [4] (%d) {label = "e", cmd.beside, arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  return %dw, %c, %e : tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>
}
