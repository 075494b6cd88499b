// One case per sentence of the command verifiers.
// RUN: braid-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{buffer of @a: offset -8 and bytes 4 must not be negative}}
module attributes {braid.buffer = #cmd.buffer<@a, -8, 4>} {}

// -----

cmd.program {
  // expected-error @+1 {{'cmd.arena' op align 48 is not a power of two}}
  cmd.arena @a bytes 64 {align = 48 : i64}
}

// -----

cmd.program {
  // expected-error @+1 {{'cmd.arena' op lower_bound 65 exceeds bytes 64}}
  cmd.arena @a bytes 64 lower_bound 65
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  // expected-error @+1 {{'cmd.tensor' op 'x' needs 32 bytes but its buffer has 16}}
  cmd.tensor "x" input tensor<2x4xf32> at <@a, 0, 16>
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  // expected-error @+1 {{'cmd.tensor' op 'layers.{}.x' has 0 layers, so its name must not hold {}}}
  cmd.tensor "layers.{}.x" input tensor<2x4xf32> at <@a, 0, 32>
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  // expected-error @+1 {{'cmd.tensor' op moment 'x' needs slot "first", "second" or "low", has "third"}}
  cmd.tensor "x" moment tensor<2x4xf32> at <@a, 0, 32> {of = "w", slot = "third"}
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  // expected-error @+1 {{'cmd.tensor' op moment 'x' does not say of which parameter}}
  cmd.tensor "x" moment tensor<2x4xf32> at <@a, 0, 32> {slot = "first"}
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  // expected-error @+1 {{'cmd.tensor' op 'x' has the dynamic shape 'tensor<?x4xf32>'}}
  cmd.tensor "x" input tensor<?x4xf32> at <@a, 0, 32>
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  // expected-error @+1 {{'cmd.tensor' op 'x': a shard is [dimension, axis], not [0]}}
  cmd.tensor "x" input tensor<2x4xf32> at <@a, 0, 32> {shards = [[0]]}
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  // expected-error @+1 {{'cmd.tensor' op 'x': shard of dimension 2 of 2}}
  cmd.tensor "x" input tensor<2x4xf32> at <@a, 0, 32> {shards = [[2, "ep"]]}
}

// -----

cmd.program {
  // expected-note @+1 {{declared here}}
  cmd.arena @a bytes 64
  // expected-error @+1 {{'cmd.tensor' op 'buffer' reaches byte 72 of arena @a, which has 64}}
  cmd.tensor "x" input tensor<2x4xf32> at <@a, 40, 32>
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  // expected-note @+1 {{declared here}}
  cmd.tensor "x" input tensor<2x4xf32> at <@a, 0, 32>
  // expected-error @+1 {{'cmd.tensor' op 'x' is declared twice}}
  cmd.tensor "x" output tensor<2x4xf32> at <@a, 32, 32>
}

// -----

cmd.program {
  // expected-error @+1 {{'cmd.stream' op is the first stream, so it computes and has no axis}}
  cmd.stream @ep axis "ep"
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.stream @compute
  cmd.stream @beside
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.collective' op communicates, so it cannot be on stream @beside, which has no axis}}
    cmd.collective all_reduce "dp" send <@a, 0, 64> recv <@a, 0, 64> : f32 on @beside
  }
}

// -----

cmd.program {
  // expected-error @+1 {{'cmd.entry' op output 'y' is no tensor of the program}}
  cmd.entry @f inputs [] outputs ["y"] {
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.copy' op 'source': @b is no arena of the program}}
    cmd.copy <@b, 0, 4> to <@a, 0, 4>
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.copy' op of 4 bytes to 8 bytes}}
    cmd.copy <@a, 0, 4> to <@a, 8, 8>
  }
}

// -----

cmd.program {
  // expected-note @+1 {{declared here}}
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    cmd.repeat 3 {
      // expected-error @+1 {{'cmd.fill' op 'target' reaches byte 96 of arena @a, which has 64}}
      cmd.fill <@a, 0, 32, strides = [32]>
    }
  }
}

// -----

cmd.program {
  // expected-note @+1 {{declared here}}
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    cmd.repeat 3 {
      // expected-error @+1 {{'cmd.fill' op 'target' reaches 32 bytes before arena @a}}
      cmd.fill <@a, 32, 32, strides = [-32]>
    }
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.fill' op 'target' has 1 strides but stands in 0 repeats}}
    cmd.fill <@a, 0, 32, strides = [32]>
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.fill' op value 256 is no byte}}
    cmd.fill <@a, 0, 32> value 256
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.launch' op a grid has 3 extents, not 1}}
    cmd.launch @k grid [2] args {}
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.launch' op argument 'x' must be a buffer, an integer or a float, is "a"}}
    cmd.launch @k grid [2, 1, 1] args {x = "a"}
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.stream @compute
  cmd.stream @ep axis "ep"
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.launch' op computes, so it cannot be on stream @ep}}
    cmd.launch @k grid [2, 1, 1] args {} on @ep
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.fill' op stream @ep is no stream of the program}}
    cmd.fill <@a, 0, 32> on @ep
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.gemm' op 'a' (2 x 4, ld 4, batch 1) needs 32 bytes but its buffer has 16}}
    cmd.gemm 2 x 2 x 4 a <@a, 0, 16> ld 4 : f32 b <@a, 0, 32> ld 2 : f32 c <@a, 0, 16> ld 2 : f32
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.gemm' op ldb is 1 but a row of 'b' has 2 elements}}
    cmd.gemm 2 x 2 x 4 a <@a, 0, 32> ld 4 : f32 b <@a, 0, 32> ld 1 : f32 c <@a, 0, 16> ld 2 : f32
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 128
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.gemm' op batch_stride_c is 1, so the 2 results of 2 columns overlap}}
    cmd.gemm 2 x 2 x 4 a <@a, 0, 64> ld 4 : f32 b <@a, 0, 32> ld 2 : f32 c <@a, 64, 32> ld 2 : f32 {batch = 2 : i64, batch_stride_a = 8 : i64, batch_stride_c = 1 : i64}
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 256
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.gemm' op adds an addend and accumulates; valid: one of them}}
    cmd.gemm 2 x 2 x 4 a <@a, 0, 32> ld 4 : f32 b <@a, 32, 32> ld 2 : f32 c <@a, 64, 16> ld 2 : f32 add <@a, 128, 16> : f32 {accumulate}
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 256
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.gemm' op 'addend' is 'bf16' but C is 'f32'; valid: that type or f32}}
    cmd.gemm 2 x 2 x 4 a <@a, 0, 32> ld 4 : f32 b <@a, 32, 32> ld 2 : f32 c <@a, 64, 16> ld 2 : f32 add <@a, 128, 16> : bf16
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 256
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.gemm' op 'addend' (2 x 2, ld 2, batch 1) needs 16 bytes but its buffer has 8}}
    cmd.gemm 2 x 2 x 4 a <@a, 0, 32> ld 4 : f32 b <@a, 32, 32> ld 2 : f32 c <@a, 64, 16> ld 2 : bf16 add <@a, 128, 8> : f32
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 256
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.gemm' op k is 0 but a product with an addend needs at least 1}}
    cmd.gemm 2 x 2 x 0 a <@a, 0, 32> ld 4 : f32 b <@a, 32, 32> ld 2 : f32 c <@a, 64, 16> ld 2 : f32 add <@a, 128, 16> : f32
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 256
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.gemm' op has only one of addend and type_addend}}
    cmd.gemm 2 x 2 x 4 a <@a, 0, 32> ld 4 : f32 b <@a, 32, 32> ld 2 : f32 c <@a, 64, 16> ld 2 : f32 {type_addend = f32}
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 256
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.grouped_gemm' op 'addend' (4 x 2, ld 2, batch 1) needs 32 bytes but its buffer has 16}}
    cmd.grouped_gemm rows groups 2 rows 4 m 2 n 2 k 2 a <@a, 0, 32> ld 2 : f32 b <@a, 0, 32> ld 2 : f32 c <@a, 32, 32> ld 2 : f32 add <@a, 64, 16> : f32 offsets <@a, 0, 12>
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 256
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.grouped_gemm' op an addend has no meaning for kind weight}}
    cmd.grouped_gemm weight groups 2 rows 4 m 2 n 2 k 2 a <@a, 0, 32> ld 2 : f32 b <@a, 0, 32> ld 2 : f32 c <@a, 32, 32> ld 2 : f32 add <@a, 64, 16> : f32 offsets <@a, 0, 12>
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.grouped_gemm' op 'offsets' of 2 groups needs 12 bytes but its buffer has 8}}
    cmd.grouped_gemm rows groups 2 rows 4 m 0 n 2 k 2 a <@a, 0, 32> ld 2 : f32 b <@a, 0, 32> ld 2 : f32 c <@a, 0, 32> ld 2 : f32 offsets <@a, 0, 8>
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.grouped_gemm' op groups is 0, needs at least 1}}
    cmd.grouped_gemm rows groups 0 rows 4 m 0 n 2 k 2 a <@a, 0, 32> ld 2 : f32 b <@a, 0, 32> ld 2 : f32 c <@a, 0, 32> ld 2 : f32 offsets <@a, 0, 8>
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.grouped_gemm' op transpose_b has no meaning for kind weight}}
    cmd.grouped_gemm weight groups 2 rows 4 m 2 n 2 k 0 a <@a, 0, 32> ld 2 : f32 b <@a, 0, 32> ld 2 : f32 c <@a, 0, 32> ld 2 : f32 offsets <@a, 0, 12> {transpose_b}
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.collective' op all_to_all with counts needs row_bytes (0) and counts_per_peer (0)}}
    cmd.collective all_to_all "ep" send <@a, 0, 32> recv <@a, 32, 32> : f32 send_counts <@a, 0, 8> recv_counts <@a, 0, 8> {block_bytes = 16 : i64}
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.collective' op has only one of send_counts and recv_counts}}
    cmd.collective all_to_all "ep" send <@a, 0, 32> recv <@a, 32, 32> : f32 send_counts <@a, 0, 8> {block_bytes = 16 : i64}
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.collective' op all_reduce of 32 bytes into 16}}
    cmd.collective all_reduce "dp" send <@a, 0, 32> recv <@a, 32, 16> : f32
  }
}

// -----

cmd.program {
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.record' op event 0 of 0}}
    cmd.record 0
  }
}

// -----

cmd.program {
  cmd.entry @f inputs [] outputs [] attributes {events = 1 : i64} {
    // expected-error @+1 {{'cmd.wait' op event 0 is never recorded}}
    cmd.wait 0
  }
}

// -----

// expected-error @+1 {{work needs the name of an op}}
module attributes {cmd.work = #cmd.work<"", flops = 1, bytes = 1, "generated">} {}

// -----

// expected-error @+1 {{work of add: -1 FLOPs, 4 bytes and 0 rows must not be negative}}
module attributes {cmd.work = #cmd.work<"add", flops = -1, bytes = 4, "generated">} {}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.collective' op counts belong to all_to_all, not to all_reduce}}
    cmd.collective all_reduce "ep" send <@a, 0, 32> recv <@a, 32, 32> : f32 send_counts <@a, 0, 8> recv_counts <@a, 0, 8>
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.collective' op all_to_all needs block_bytes}}
    cmd.collective all_to_all "ep" send <@a, 0, 32> recv <@a, 32, 32> : f32
  }
}

// -----

cmd.program {
  // expected-error @+1 {{'arith.constant' op cannot stand in a cmd.program}}
  %0 = arith.constant 1 : i64
}

// -----

cmd.program {
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'arith.constant' op is no command}}
    %0 = arith.constant 1 : i64
  }
}

// -----

cmd.program {
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.repeat' op count -1 is negative}}
    cmd.repeat -1 {
    }
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.collective' op all_gather of 24 bytes into 32}}
    cmd.collective all_gather "dp" send <@a, 0, 24> recv <@a, 32, 32> : f32
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.collective' op reduce_scatter of 32 bytes into 24}}
    cmd.collective reduce_scatter "dp" send <@a, 0, 32> recv <@a, 32, 24> : f32
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.collective' op shift of 32 bytes into 16}}
    cmd.collective shift "sp" send <@a, 0, 32> recv <@a, 32, 16> : f32
  }
}

// -----

cmd.program {
  cmd.arena @a bytes 64
  cmd.entry @f inputs [] outputs [] {
    // expected-error @+1 {{'cmd.collective' op cyclic, reverse and distance belong to shift, not to all_gather}}
    cmd.collective all_gather "dp" send <@a, 0, 16> recv <@a, 32, 32> : f32 {cyclic}
  }
}
