// RUN: braid-opt %s --braid-pipeline-stages --split-input-file --verify-diagnostics

module attributes {braid.mesh = {dense = [{axis = "pp", size = 2 : i64}], expert = [{axis = "pp", size = 2 : i64}]}} {
// expected-error @+1 {{is stage 0 of 2 (axis pp), but its 'stage.x' comes from a stage before it and goes to one behind it}}
func.func @accumulate_step.stage0(%x: tensor<1x8xf32> {braid.name = "stage.x", braid.role = "stage_input"}) -> (tensor<1x8xf32> {braid.name = "stage.x", braid.role = "stage_output"})
    attributes {braid.entry, braid.stage = 0 : i64, braid.micro_batches = 2 : i64} {
  return %x : tensor<1x8xf32>
}
}

// -----

module attributes {braid.mesh = {dense = [{axis = "pp", size = 2 : i64}], expert = [{axis = "pp", size = 2 : i64}]}} {
// expected-error @+1 {{has a result 'w' of role "parameter", which micro-batches cannot share; valid: outputs, which are added up, and gradients in the place of those that it is given}}
func.func @step.stage1(%x: tensor<1x8xf32> {braid.name = "stage.x", braid.role = "stage_input"}) -> (tensor<1x8xf32> {braid.name = "w", braid.role = "parameter"})
    attributes {braid.entry, braid.stage = 1 : i64, braid.micro_batches = 2 : i64} {
  return %x : tensor<1x8xf32>
}
}

// -----

module attributes {braid.mesh = {dense = [{axis = "pp", size = 2 : i64}], expert = [{axis = "pp", size = 2 : i64}]}} {
// expected-error @+1 {{has a 'stage.x' whose cotangent is of another type}}
func.func @step.stage1(%x: tensor<1x8xbf16> {braid.name = "stage.x", braid.role = "stage_input"}) -> (tensor<1x8xf32> {braid.name = "stage.x.cotangent", braid.role = "stage_cotangent"})
    attributes {braid.entry, braid.stage = 1 : i64, braid.micro_batches = 2 : i64} {
  %wide = braid.cast %x : (tensor<1x8xbf16>) -> tensor<1x8xf32>
  return %wide : tensor<1x8xf32>
}
}

// -----

module attributes {braid.mesh = {dense = [{axis = "pp", size = 2 : i64}], expert = [{axis = "pp", size = 2 : i64}]}} {
// expected-error @+1 {{is of stage 2, but pp is 2 in the mesh (--mesh); valid: stages 0 to pp - 1 where pp is 2 or more}}
func.func @init.stage2(%x: tensor<1x8xf32> {braid.name = "x", braid.role = "input"}) attributes {braid.entry, braid.stage = 2 : i64} {
  return
}
}

// -----

module attributes {braid.mesh = {dense = [{axis = "pp", size = 2 : i64}], expert = [{axis = "pp", size = 2 : i64}]}} {
// expected-error @+1 {{trains, is of no stage, but pp is 2 in the mesh (--mesh); valid: stages 0 to pp - 1 where pp is 2 or more}}
func.func @update_step(%w: tensor<8xf32>, %one: tensor<1xf32>, %step: tensor<1xi32>) attributes {braid.entry} {
  %new, %first, %second = braid.adamw %w, %w, %w, %w, %one, %step, %one {beta1 = 0.9 : f64, beta2 = 0.95 : f64, eps = 1.0e-8 : f64, weight_decay = 0.1 : f64}
      : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
  return
}
}
