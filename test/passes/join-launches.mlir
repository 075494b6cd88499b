// Launches that came from one kind of op and do not depend on each other start together.
// RUN: braid-opt %s --split-input-file --braid-join-launches | FileCheck %s

func.func private @copy(%x: memref<?xf32> {tile.name = "x"}, %y: memref<?xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["i"]} {
  %i = tile.program : index
  %v = memref.load %x[%i] : memref<?xf32>
  memref.store %v, %y[%i] : memref<?xf32>
  return
}

cmd.program {
  cmd.arena @io bytes 4096
  cmd.stream @compute
  // The second reads what the first reads; the third reads what the second wrote; the fourth writes where the third did. The
  // last came from another kind of op.
  // CHECK-LABEL: cmd.entry @straight
  // CHECK: cmd.launch @copy {{.*}}@io, 0, 64>{{.*}}@io, 64, 64>
  // CHECK-NOT: cmd.joined
  // CHECK: cmd.launch @copy {{.*}}@io, 0, 64>{{.*}}@io, 128, 64>{{.*}}cmd.joined
  // CHECK: cmd.launch @copy {{.*}}@io, 128, 64>{{.*}}@io, 192, 64>
  // CHECK-NOT: cmd.joined
  // CHECK: cmd.launch @copy {{.*}}@io, 256, 64>{{.*}}@io, 188, 64>
  // CHECK-NOT: cmd.joined
  // CHECK: cmd.launch @copy {{.*}}@io, 512, 64>{{.*}}@io, 576, 64>
  // CHECK-NOT: cmd.joined
  cmd.entry @straight inputs [] outputs [] {
    cmd.launch @copy grid [16, 1, 1] args {x = #cmd.buffer<@io, 0, 64>, x.dim0 = 16 : i64, y = #cmd.buffer<@io, 64, 64>, y.dim0 = 16 : i64} {cmd.work = #cmd.work<"a", flops = 0, bytes = 128, "">}
    cmd.launch @copy grid [16, 1, 1] args {x = #cmd.buffer<@io, 0, 64>, x.dim0 = 16 : i64, y = #cmd.buffer<@io, 128, 64>, y.dim0 = 16 : i64} {cmd.work = #cmd.work<"a", flops = 0, bytes = 128, "">}
    cmd.launch @copy grid [16, 1, 1] args {x = #cmd.buffer<@io, 128, 64>, x.dim0 = 16 : i64, y = #cmd.buffer<@io, 192, 64>, y.dim0 = 16 : i64} {cmd.work = #cmd.work<"a", flops = 0, bytes = 128, "">}
    cmd.launch @copy grid [16, 1, 1] args {x = #cmd.buffer<@io, 256, 64>, x.dim0 = 16 : i64, y = #cmd.buffer<@io, 188, 64>, y.dim0 = 16 : i64} {cmd.work = #cmd.work<"a", flops = 0, bytes = 128, "">}
    cmd.launch @copy grid [16, 1, 1] args {x = #cmd.buffer<@io, 512, 64>, x.dim0 = 16 : i64, y = #cmd.buffer<@io, 576, 64>, y.dim0 = 16 : i64} {cmd.work = #cmd.work<"b", flops = 0, bytes = 128, "">}
  }
  // In a repeat: buffers that move alike are compared in one iteration, others in all. A copy between two launches keeps them
  // apart.
  // CHECK-LABEL: cmd.entry @repeated
  // CHECK: cmd.repeat
  // CHECK: cmd.launch @copy {{.*}}@io, 1024, 64
  // CHECK-NOT: cmd.joined
  // CHECK: cmd.launch @copy {{.*}}@io, 1088, 64{{.*}}cmd.joined
  // CHECK: cmd.launch @copy {{.*}}@io, 1152, 64
  // CHECK-NOT: cmd.joined
  // CHECK: cmd.copy
  // CHECK: cmd.launch @copy {{.*}}@io, 3072, 64
  // CHECK-NOT: cmd.joined
  cmd.entry @repeated inputs [] outputs [] {
    cmd.repeat 4 {
      cmd.launch @copy grid [16, 1, 1] args {x = #cmd.buffer<@io, 0, 64>, x.dim0 = 16 : i64, y = #cmd.buffer<@io, 1024, 64, strides = [256]>, y.dim0 = 16 : i64} {cmd.work = #cmd.work<"a", flops = 0, bytes = 128, "">}
      cmd.launch @copy grid [16, 1, 1] args {x = #cmd.buffer<@io, 0, 64>, x.dim0 = 16 : i64, y = #cmd.buffer<@io, 1088, 64, strides = [256]>, y.dim0 = 16 : i64} {cmd.work = #cmd.work<"a", flops = 0, bytes = 128, "">}
      cmd.launch @copy grid [16, 1, 1] args {x = #cmd.buffer<@io, 1600, 64>, x.dim0 = 16 : i64, y = #cmd.buffer<@io, 1152, 64, strides = [256]>, y.dim0 = 16 : i64} {cmd.work = #cmd.work<"a", flops = 0, bytes = 128, "">}
      cmd.copy <@io, 0, 64> to <@io, 64, 64>
      cmd.launch @copy grid [16, 1, 1] args {x = #cmd.buffer<@io, 128, 64>, x.dim0 = 16 : i64, y = #cmd.buffer<@io, 3072, 64>, y.dim0 = 16 : i64} {cmd.work = #cmd.work<"a", flops = 0, bytes = 128, "">}
    }
  }
}
