// RUN: braid-opt %s --braid-lower-to-commands --verify-diagnostics

// expected-error @+1 {{has 0 cmd.program, needs one; run braid-plan-memory first}}
module {
  func.func @f() attributes {braid.entry} {
    return
  }
}
