// A schedule written by hand must say what the order of slices follows from.
// RUN: braid-opt %s --split-input-file --braid-weave --verify-diagnostics

// expected-error @+1 {{'func.func' op has the schedule {direction = "sideways", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}; valid: direction "forward" or "backward", pipeline "moe", "aAaM", "1A1M", "cross-block", "best", token_slices ascending from 0 (and moe_slices, as many tokens)}}
func.func private @direction() attributes {braid.schedule = {direction = "sideways", pipeline = "1A1M", token_slices = array<i64: 0, 4, 8>}} {
  return
}

// -----

// expected-error @+1 {{'func.func' op has the schedule {direction = "forward", pipeline = "2A2M", token_slices = array<i64: 0, 4, 8>}; valid: direction "forward" or "backward", pipeline "moe", "aAaM", "1A1M", "cross-block", "best", token_slices ascending from 0 (and moe_slices, as many tokens)}}
func.func private @pipeline() attributes {braid.schedule = {direction = "forward", pipeline = "2A2M", token_slices = array<i64: 0, 4, 8>}} {
  return
}

// -----

// expected-error @+1 {{'func.func' op has the schedule "1A1M"; valid: direction "forward" or "backward", pipeline "moe", "aAaM", "1A1M", "cross-block", "best", token_slices ascending from 0 (and moe_slices, as many tokens)}}
func.func private @word() attributes {braid.schedule = "1A1M"} {
  return
}
