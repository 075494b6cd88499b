// Streams and events of command lists: what is right passes, every missing or misplaced event is said.
// RUN: braid-opt %s --split-input-file --braid-prove-schedule --verify-diagnostics | FileCheck %s

// The collective waits for what it sends, its reader waits for it; a buffer of the next iteration is written after it.
// CHECK-LABEL: cmd.entry @right
cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @ep axis "ep"
  cmd.entry @right inputs [] outputs [] attributes {events = 2 : i64} {
    cmd.repeat 8 {
      cmd.fill <@workspace, 0, 64> {name = "rows"}
      cmd.record 0
      cmd.wait 0 on @ep
      cmd.collective all_to_all "ep" send <@workspace, 0, 64> recv <@workspace, 64, 64> : f32 on @ep {block_bytes = 32 : i64, name = "dispatch"}
      cmd.record 1 on @ep
      cmd.copy <@workspace, 256, 64> to <@workspace, 320, 64> {name = "mixer of the next slice"}
      cmd.wait 1
      cmd.copy <@workspace, 64, 64> to <@workspace, 512, 64> {name = "experts"}
    }
  }
}

// -----

cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @ep axis "ep"
  // expected-error @+1 {{has streams that are not held together: 'experts' needs 'dispatch', but nothing makes it wait: 'dispatch' is number 1 of stream ep, of which 0 are sure to have ended}}
  cmd.entry @read inputs [] outputs [] attributes {events = 1 : i64} {
    cmd.fill <@workspace, 0, 64> {name = "rows"}
    cmd.record 0
    cmd.wait 0 on @ep
    cmd.collective all_to_all "ep" send <@workspace, 0, 64> recv <@workspace, 64, 64> : f32 on @ep {block_bytes = 32 : i64, name = "dispatch"}
    cmd.copy <@workspace, 64, 64> to <@workspace, 512, 64> {name = "experts"}
  }
}

// -----

cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @ep axis "ep"
  // expected-error @+1 {{'dispatch' needs 'rows', but nothing makes it wait: 'rows' is number 2 of stream compute, of which 1 are sure to have ended}}
  cmd.entry @send inputs [] outputs [] attributes {events = 1 : i64} {
    cmd.fill <@workspace, 128, 64> {name = "other"}
    cmd.record 0
    cmd.fill <@workspace, 0, 64> {name = "rows"}
    cmd.wait 0 on @ep
    cmd.collective all_to_all "ep" send <@workspace, 0, 64> recv <@workspace, 64, 64> : f32 on @ep {block_bytes = 32 : i64, name = "dispatch"}
  }
}

// -----

// What is still being sent may not be written: here by the next iteration, whose buffer is 32 bytes further on.
cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @ep axis "ep"
  // expected-error @+1 {{'rows' of iteration 1 needs 'dispatch' of iteration 0, but nothing makes it wait}}
  cmd.entry @overwritten inputs [] outputs [] attributes {events = 1 : i64} {
    cmd.repeat 8 {
      cmd.fill <@workspace, 0, 64, strides = [32]> {name = "rows"}
      cmd.record 0
      cmd.wait 0 on @ep
      cmd.collective all_to_all "ep" send <@workspace, 0, 64, strides = [32]> recv <@workspace, 1024, 64, strides = [64]> : f32 on @ep {block_bytes = 32 : i64, name = "dispatch"}
    }
  }
}

// -----

// The last iteration of many: what stands behind the repeat reads what it received.
cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @ep axis "ep"
  // expected-error @+1 {{'experts' needs 'dispatch' of iteration 7, but nothing makes it wait}}
  cmd.entry @last inputs [] outputs [] attributes {events = 1 : i64} {
    cmd.repeat 8 {
      cmd.collective all_to_all "ep" send <@workspace, 0, 64> recv <@workspace, 1024, 64, strides = [64]> : f32 on @ep {block_bytes = 32 : i64, name = "dispatch"}
    }
    cmd.copy <@workspace, 1472, 64> to <@workspace, 512, 64> {name = "experts"}
  }
}

// -----

// Two communicators are two streams: what one receives the other may send only after an event.
cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @ep axis "ep"
  cmd.stream @etp axis "etp"
  // expected-error @+1 {{'gather' needs 'dispatch', but nothing makes it wait}}
  cmd.entry @streams inputs [] outputs [] attributes {events = 0 : i64} {
    cmd.collective all_to_all "ep" send <@workspace, 0, 64> recv <@workspace, 64, 64> : f32 on @ep {block_bytes = 32 : i64, name = "dispatch"}
    cmd.collective all_to_all "etp" send <@workspace, 64, 64> recv <@workspace, 128, 64> : f32 on @etp {block_bytes = 32 : i64, name = "gather"}
  }
}

// -----

cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @ep axis "ep"
  cmd.entry @event inputs [] outputs [] attributes {events = 4 : i64} {
    // expected-error @+1 {{waits for event 3, which nothing in front of it records}}
    cmd.wait 3 on @ep
    cmd.record 3
  }
}

// -----

// An event of a repeat may be waited for in the next iteration; what stands behind the repeat must wait for the last one itself.
cmd.program {
  cmd.arena @workspace bytes 4096
  cmd.stream @compute
  cmd.stream @ep axis "ep"
  cmd.entry @next inputs [] outputs [] attributes {events = 2 : i64} {
    cmd.repeat 8 {
      cmd.wait 1
      cmd.fill <@workspace, 0, 64> {name = "rows"}
      cmd.record 0
      cmd.wait 0 on @ep
      cmd.collective all_to_all "ep" send <@workspace, 0, 64> recv <@workspace, 1024, 64, strides = [64]> : f32 on @ep {block_bytes = 32 : i64, name = "dispatch"}
      cmd.record 1 on @ep
    }
    cmd.wait 1
    cmd.copy <@workspace, 1472, 64> to <@workspace, 512, 64> {name = "experts"}
  }
  // expected-error @+1 {{'rows' of iteration 1 needs 'dispatch' of iteration 0, but nothing makes it wait}}
  cmd.entry @late inputs [] outputs [] attributes {events = 2 : i64} {
    cmd.repeat 8 {
      cmd.fill <@workspace, 0, 64> {name = "rows"}
      cmd.wait 1
      cmd.record 0
      cmd.wait 0 on @ep
      cmd.collective all_to_all "ep" send <@workspace, 0, 64> recv <@workspace, 1024, 64, strides = [64]> : f32 on @ep {block_bytes = 32 : i64, name = "dispatch"}
      cmd.record 1 on @ep
    }
  }
}
