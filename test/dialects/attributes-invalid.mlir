// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What attributes of modules, entries and their values must be: passes read them without looking again.

// expected-error @+1 {{braid.mesh needs {axis = "name", size = N : i64} with N of 1 to 1048576 in dense, but has {}}}
module attributes {braid.mesh = {dense = [{}], expert = []}} {}

// -----

// expected-error @+1 {{braid.mesh needs {axis = "name", size = N : i64} with N of 1 to 1048576 in expert, but has {axis = "ep", size = 0 : i64}}}
module attributes {braid.mesh = {dense = [], expert = [{axis = "ep", size = 0 : i64}]}} {}

// -----

// expected-error @+1 {{braid.mesh has axis "dp" twice in dense}}
module attributes {braid.mesh = {dense = [{axis = "dp", size = 2 : i64}, {axis = "dp", size = 2 : i64}]}} {}

// -----

// expected-error @+1 {{braid.mesh has the view "dence"; there are dense and expert}}
module attributes {braid.mesh = {dence = []}} {}

// -----

// expected-error @+1 {{braid.mesh has 3 ranks in dense but 2 in expert; valid: the same ranks in both views}}
module attributes {braid.mesh = {dense = [{axis = "dp", size = 3 : i64}], expert = [{axis = "ep", size = 2 : i64}]}} {}

// -----

// expected-error @+1 {{braid.stage must be the number of a stage, at least 0, but is -1 : i64}}
func.func @f() attributes {braid.stage = -1 : i64} {
  return
}

// -----

// expected-error @+1 {{braid.micro_batches must be a number of at least 1, but is 0 : i64}}
func.func @f() attributes {braid.micro_batches = 0 : i64} {
  return
}

// -----

// expected-error @+1 {{braid.mesh must be {dense = [..], expert = [..]}, but is "dp=2"}}
module attributes {braid.mesh = "dp=2"} {}

// -----

// expected-error @+1 {{braid.max_documents must be a number of at least 1, but is 0}}
module attributes {braid.max_documents = 0 : i64} {}

// -----

// expected-error @+1 {{braid.sp_algorithm must be auto, ring, all_gather or scan, but is 3}}
module attributes {braid.sp_algorithm = 3 : i64} {}

// -----

// expected-error @+1 {{braid.metadata must be a dictionary of texts, but is {batch = 3 : i64}}}
module attributes {braid.metadata = {batch = 3 : i64}} {}

// -----

// expected-error @+1 {{argument 1 must be a tensor of static shape and of integers or floats, as all values of an entry, but is 'f32'}}
func.func @f(%x: tensor<4xf32>, %y: f32) attributes {braid.entry} {
  return
}

// -----

// expected-error @+1 {{result 0 must be a tensor of static shape and of integers or floats, as all values of an entry, but is 'tensor<?x8xf32>'}}
func.func @f(%x: tensor<4xf32>) -> tensor<?x8xf32> attributes {braid.entry} {
  %c = func.call @g() : () -> tensor<?x8xf32>
  return %c : tensor<?x8xf32>
}
func.func private @g() -> tensor<?x8xf32>

// -----

// expected-error @+1 {{braid.entry marks what the host calls; valid: on a public function with a body}}
func.func private @f(tensor<4xf32>) attributes {braid.entry}

// -----

// expected-error @+1 {{argument 0 braid.dims holds 1 : i64; valid: "name", or "name*N" for groups of N elements, N at least 1}}
func.func @f(%x: tensor<4x8xf32> {braid.dims = [1, 2]}) {
  return
}

// -----

// expected-error @+1 {{argument 0 braid.dims holds "heads*0"; valid: "name", or "name*N" for groups of N elements, N at least 1}}
func.func @f(%x: tensor<4x8xf32> {braid.dims = ["heads*0", "batch"]}) {
  return
}

// -----

// expected-error @+1 {{argument 0 braid.dims names 2 dimensions, but there are 1 (that of the layers not counted)}}
func.func @f(%x: tensor<4x8xf32> {braid.dims = ["embed", "vocab"], braid.layers = array<i32: 0, 1, 2, 3>}) {
  return
}

// -----

// expected-error @+1 {{result 0 braid.shards cuts dimension 2 of 2 (that of the layers not counted)}}
func.func @f(%x: tensor<4x8xf32>) -> (tensor<4x8xf32> {braid.shards = [[2, "tp"]]}) {
  return %x : tensor<4x8xf32>
}

// -----

// expected-error @+1 {{result 0 braid.alias must be the index of one of 1 arguments, but is 1 : i64}}
func.func @f(%x: tensor<4x8xf32>) -> (tensor<4x8xf32> {braid.alias = 1 : i64}) {
  return %x : tensor<4x8xf32>
}

// -----

// expected-error @+1 {{argument 0 braid.role must be parameter, moment, gradient, input, output, cache, or (of a stage) stage_input, stage_output, stage_cotangent or stage_broadcast, but is "weight"}}
func.func @f(%x: tensor<4x8xf32> {braid.role = "weight"}) {
  return
}

// -----

// expected-error @+1 {{argument 0 braid.layers must be array<i32: ..> of layer indices from 0 on, but is array<i32: -1>}}
func.func @f(%x: tensor<1x8xf32> {braid.layers = array<i32: -1>}) {
  return
}

// -----

// expected-error @+1 {{braid.machine must be a dictionary of rates and times, but is "fast"}}
module attributes {braid.machine = "fast"} {}

// -----

// expected-error @+1 {{braid.machine holds link_bandwidth = 0.000000e+00 : f64; valid: an f64 above 0}}
module attributes {braid.machine = {link_bandwidth = 0.0 : f64}} {}

// -----

// expected-error @+1 {{braid.machine holds flops = 1 : i64; valid: an f64 above 0}}
module attributes {braid.machine = {flops = 1 : i64}} {}

// -----

// expected-error @+1 {{braid.machine holds overhead = -1.000000e+00 : f64; valid: an f64 of at least 0}}
module attributes {braid.machine = {overhead = -1.0 : f64}} {}

// -----

// expected-error @+1 {{braid.machine holds latency; valid: flops, bandwidth, overhead, link_bandwidth and link_latency}}
module attributes {braid.machine = {latency = 1.0 : f64}} {}

// -----

func.func @no_place(%x: tensor<1x4x8xf32>, %documents: tensor<1x4xi32>) {
  // expected-error @+1 {{braid.sequence must be {axis = "name", coordinate = N : i64} with the number N of an argument, but is "sp"}}
  %0 = braid.add %x, %x {braid.sequence = "sp"} : (tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  return
}

// -----

func.func @negative(%x: tensor<1x4x8xf32>) {
  // expected-error @+1 {{braid.sequence must be {axis = "name", coordinate = N : i64} with the number N of an argument, but is {axis = "sp", coordinate = -1 : i64}}}
  %0 = braid.add %x, %x {braid.sequence = {axis = "sp", coordinate = -1 : i64}} : (tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  return
}

// -----

func.func @unknown_algorithm(%x: tensor<1x4x8xf32>) {
  // expected-error @+1 {{braid.sequence holds algorithm = "tree"; valid: auto, ring, all_gather or scan}}
  %0 = braid.add %x, %x {braid.sequence = {algorithm = "tree", axis = "sp", coordinate = 0 : i64}} : (tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  return
}

// -----

// expected-error @+1 {{argument 0 braid.correction_rate must be a floating-point number, but is 1 : i64}}
func.func @f(%x: tensor<4xf32> {braid.correction_rate = 1 : i64}) {
  return
}
