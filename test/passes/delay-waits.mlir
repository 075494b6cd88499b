// A collective is waited for where somebody touches its bytes: the command, of this iteration or the next, or what stands behind the repeat.
// RUN: braid-opt %s --split-input-file --braid-delay-waits --braid-prove-schedule | FileCheck %s

// A layer's gradient is made, summed over the ranks, and nobody needs the sum: the next iteration waits where it makes its own again, and
// what reads the sums behind the repeat waits for the last one.
// CHECK-LABEL: cmd.entry @repeat
// CHECK: cmd.repeat 4
// CHECK-NEXT: cmd.copy {{.*}}"data gradient"
// CHECK-NEXT: cmd.wait 1
// CHECK-NEXT: cmd.fill {{.*}}"weight gradient"
// CHECK-NEXT: cmd.record 0
// CHECK-NEXT: cmd.wait 0 on @dp
// CHECK-NEXT: cmd.collective reduce_scatter
// CHECK-NEXT: cmd.record 1 on @dp
// CHECK-NEXT: cmd.copy {{.*}}"norm"}
// CHECK-NEXT: }
// CHECK-NEXT: cmd.copy {{.*}}"embedding"
// CHECK-NEXT: cmd.wait 1
// CHECK-NEXT: cmd.copy {{.*}}"optimizer"
cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @dp axis "dp"
  cmd.entry @repeat inputs [] outputs [] attributes {events = 2 : i64} {
    cmd.repeat 4 {
      cmd.copy <@workspace, 0, 64> to <@workspace, 64, 64> {name = "data gradient"}
      cmd.fill <@workspace, 128, 64> {name = "weight gradient"}
      cmd.record 0
      cmd.wait 0 on @dp
      cmd.collective reduce_scatter "dp" send <@workspace, 128, 64> recv <@workspace, 1120, 32, strides = [-32]> : f32 on @dp {name = "sum"}
      cmd.record 1 on @dp
      cmd.copy <@workspace, 64, 64> to <@workspace, 0, 64> {name = "norm"}
      cmd.wait 1
    }
    cmd.copy <@workspace, 0, 64> to <@workspace, 192, 64> {name = "embedding"}
    cmd.copy <@workspace, 1024, 128> to <@workspace, 2048, 128> {name = "optimizer"}
  }
}

// -----

// Bytes that another command of the body uses, too, are waited for there; a result that moves with the iterations only behind the repeat.
// CHECK-LABEL: cmd.entry @shared
// CHECK: cmd.repeat 4
// CHECK: cmd.record 1 on @dp
// CHECK-NEXT: cmd.copy {{.*}}"free"
// CHECK-NEXT: cmd.wait 1
// CHECK-NEXT: cmd.copy {{.*}}"reuse"}
// CHECK-NEXT: }
// CHECK-NEXT: cmd.copy {{.*}}"optimizer"
cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @dp axis "dp"
  cmd.entry @shared inputs [] outputs [] attributes {events = 2 : i64} {
    cmd.repeat 4 {
      cmd.fill <@workspace, 128, 64> {name = "weight gradient"}
      cmd.record 0
      cmd.wait 0 on @dp
      cmd.collective reduce_scatter "dp" send <@workspace, 128, 64> recv <@workspace, 1024, 32, strides = [32]> : f32 on @dp {name = "sum"}
      cmd.record 1 on @dp
      cmd.wait 1
      cmd.copy <@workspace, 0, 64> to <@workspace, 64, 64> {name = "free"}
      cmd.copy <@workspace, 64, 64> to <@workspace, 160, 64> {name = "reuse"}
    }
    cmd.copy <@workspace, 1024, 128> to <@workspace, 2048, 128> {name = "optimizer"}
  }
}

// -----

// A reader of the next iteration: what one layer receives another one reads one slot further.
// CHECK-LABEL: cmd.entry @slots
// CHECK: cmd.repeat 4
// CHECK-NEXT: cmd.copy {{.*}}"other slots"
// CHECK-NEXT: cmd.wait 1
// CHECK-NEXT: cmd.copy {{.*}}"the slot before"
// CHECK-NEXT: cmd.fill {{.*}}"rows"
// CHECK: cmd.record 1 on @dp
// CHECK-NEXT: }
// CHECK-NEXT: cmd.wait 1
// CHECK-NEXT: cmd.copy {{.*}}"last"
cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @dp axis "dp"
  cmd.entry @slots inputs [] outputs [] attributes {events = 2 : i64} {
    cmd.repeat 4 {
      cmd.copy <@workspace, 1280, 64, strides = [64]> to <@workspace, 0, 64> {name = "other slots"}
      cmd.copy <@workspace, 960, 64, strides = [64]> to <@workspace, 64, 64> {name = "the slot before"}
      cmd.fill <@workspace, 128, 64> {name = "rows"}
      cmd.record 0
      cmd.wait 0 on @dp
      cmd.collective all_reduce "dp" send <@workspace, 128, 64> recv <@workspace, 1024, 64, strides = [64]> : f32 on @dp {name = "sum"}
      cmd.record 1 on @dp
      cmd.wait 1
    }
    cmd.copy <@workspace, 1216, 64> to <@workspace, 2048, 64> {name = "last"}
  }
}

// -----

// Another stream that needs the bytes waits by itself, and compute goes on. The collective's own stream needs no word.
// CHECK-LABEL: cmd.entry @streams
// CHECK: cmd.record 1 on @dp
// CHECK-NEXT: cmd.copy {{.*}}"meanwhile"
// CHECK-NEXT: cmd.record 2
// CHECK-NEXT: cmd.wait 2 on @dp
// CHECK-NEXT: cmd.collective all_gather "dp"
// CHECK-NEXT: cmd.record 3 on @dp
// CHECK-NEXT: cmd.record 4
// CHECK-NEXT: cmd.wait 4 on @tp
// CHECK-NEXT: cmd.wait 1 on @tp
// CHECK-NEXT: cmd.collective all_reduce "tp"
// CHECK-NEXT: cmd.record 5 on @tp
// CHECK-NEXT: cmd.wait 1
// CHECK-NEXT: cmd.wait 3
// CHECK-NEXT: cmd.wait 5
// CHECK-NEXT: }
cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @dp axis "dp"
  cmd.stream @tp axis "tp"
  cmd.entry @streams inputs [] outputs [] attributes {events = 6 : i64} {
    cmd.record 0
    cmd.wait 0 on @dp
    cmd.collective reduce_scatter "dp" send <@workspace, 128, 64> recv <@workspace, 256, 32> : f32 on @dp {name = "sum"}
    cmd.record 1 on @dp
    cmd.wait 1
    cmd.copy <@workspace, 0, 64> to <@workspace, 64, 64> {name = "meanwhile"}
    cmd.record 2
    cmd.wait 2 on @dp
    cmd.collective all_gather "dp" send <@workspace, 256, 32> recv <@workspace, 512, 64> : f32 on @dp {name = "parts"}
    cmd.record 3 on @dp
    cmd.wait 3
    cmd.record 4
    cmd.wait 4 on @tp
    cmd.collective all_reduce "tp" send <@workspace, 256, 32> recv <@workspace, 768, 32> : f32 on @tp {name = "both axes"}
    cmd.record 5 on @tp
    cmd.wait 5
  }
}

// -----

// What computes beside compute is waited for as collectives are: where its operand is written again, in the next iteration. A sum of what it makes is told so
// by itself, and it waits for what has not arrived yet; compute goes on.
// CHECK-LABEL: cmd.entry @weights
// CHECK: cmd.repeat 4
// CHECK-NEXT: cmd.wait 1{{$}}
// CHECK-NEXT: cmd.copy {{.*}}"rows"
// CHECK-NEXT: cmd.wait 3{{$}}
// CHECK-NEXT: cmd.record 0
// CHECK-NEXT: cmd.wait 0 on @beside
// CHECK-NEXT: cmd.copy {{.*}} on @beside {name = "part"}
// CHECK-NEXT: cmd.copy {{.*}} on @beside {name = "weight gradient"}
// CHECK-NEXT: cmd.record 1 on @beside
// CHECK-NEXT: cmd.copy {{.*}}"data gradient"
// CHECK-NEXT: cmd.record 2
// CHECK-NEXT: cmd.wait 2 on @dp
// CHECK-NEXT: cmd.wait 1 on @dp
// CHECK-NEXT: cmd.collective reduce_scatter
// CHECK-NEXT: cmd.record 3 on @dp
// CHECK-NEXT: cmd.copy {{.*}}"norm"}
// CHECK-NEXT: }
// CHECK-NEXT: cmd.wait 1{{$}}
// CHECK-NEXT: cmd.copy {{.*}}"embedding"
// CHECK-NEXT: cmd.wait 3{{$}}
// CHECK-NEXT: cmd.copy {{.*}}"optimizer"
cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @dp axis "dp"
  cmd.stream @beside
  cmd.entry @weights inputs [] outputs [] attributes {events = 4 : i64} {
    cmd.repeat 4 {
      cmd.copy <@workspace, 0, 64> to <@workspace, 64, 64> {name = "rows"}
      cmd.record 0
      cmd.wait 0 on @beside
      cmd.copy <@workspace, 64, 64> to <@workspace, 256, 64> on @beside {name = "part"}
      cmd.copy <@workspace, 256, 64> to <@workspace, 128, 64> on @beside {name = "weight gradient"}
      cmd.record 1 on @beside
      cmd.wait 1
      cmd.copy <@workspace, 0, 64> to <@workspace, 320, 64> {name = "data gradient"}
      cmd.record 2
      cmd.wait 2 on @dp
      cmd.collective reduce_scatter "dp" send <@workspace, 128, 64> recv <@workspace, 1120, 32, strides = [-32]> : f32 on @dp {name = "sum"}
      cmd.record 3 on @dp
      cmd.wait 3
      cmd.copy <@workspace, 320, 64> to <@workspace, 0, 64> {name = "norm"}
    }
    cmd.copy <@workspace, 0, 64> to <@workspace, 64, 64> {name = "embedding"}
    cmd.copy <@workspace, 1024, 128> to <@workspace, 2048, 128> {name = "optimizer"}
  }
}
