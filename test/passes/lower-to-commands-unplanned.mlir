// What PlanMemory must have said, and what it lets through nobody can lower.
// RUN: braid-opt %s --split-input-file --braid-lower-to-commands --verify-diagnostics

// expected-error @+1 {{has 0 cmd.program, needs one; run braid-plan-memory first}}
module {
  func.func @f() attributes {braid.entry} {
    return
  }
}

// -----

cmd.program {
}
// expected-error @+1 {{'func.func' op has no planned buffers; run braid-plan-memory first}}
func.func @f(%x: tensor<4xf32> {braid.name = "x"}) attributes {braid.entry} {
  return
}

// -----

cmd.program {
  cmd.arena @io bytes 16
  cmd.tensor "x" input tensor<4xf32> at <@io, 0, 16>
}
func.func @f(%x: tensor<4xf32> {braid.name = "x", cmd.buffer = #cmd.buffer<@io, 0, 16>, cmd.tensors = ["x"]}) attributes {braid.entry} {
  // expected-error @+1 {{'braid.activation' op has no command}}
  %y = braid.activation %x {kind = "silu"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
