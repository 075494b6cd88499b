// Buffers of values: in-place updates, carried and stacked values, views, named tensors. The kernel is never looked at.
// RUN: braid-opt %s --split-input-file --braid-plan-memory --braid-prove-memory-plan | FileCheck %s
// RUN: braid-opt %s --split-input-file --braid-plan-memory=naive=1 --braid-prove-memory-plan | FileCheck %s --check-prefix=NAIVE
// RUN: braid-opt %s --split-input-file --braid-plan-memory=explain=1 -o %t 2>&1 | FileCheck %s --check-prefix=EXPLAIN

!t = tensor<4x16xf32>

// A chain of values needs two buffers; the last is computed where the output lies.
// CHECK: cmd.arena @workspace bytes 512 lower_bound 512
// CHECK: cmd.arena @io bytes 512
// CHECK: cmd.tensor "x" input tensor<4x16xf32> at <@io, 0, 256>
// CHECK: cmd.tensor "y" output tensor<4x16xf32> at <@io, 256, 256>
// CHECK-LABEL: func.func @chain
// CHECK-SAME: cmd.buffer = #cmd.buffer<@io, 0, 256>, cmd.tensors = ["x"]
// CHECK: tile.launch @k grid [4](%arg0) {{.*}}cmd.results = [#cmd.buffer<@workspace, [[A:[0-9]+]], 256>]
// CHECK: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@workspace, [[B:[0-9]+]], 256>]
// CHECK: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@workspace, [[A]], 256>]
// CHECK: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@io, 256, 256>]
// NAIVE: cmd.arena @workspace bytes 1024 lower_bound 1024
// EXPLAIN: remark: memory of @chain: workspace 512 bytes in 3 buffers, lower bound 512
// EXPLAIN: remark: memory of @chain: 1 values share a buffer, 0 copies or fills of 0 bytes remain
func.func private @k(%x: memref<?x16xf32> {tile.name = "x"}, %o: memref<?x16xf32> {tile.name = "o"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @chain(%x: !t {braid.name = "x"}) -> (!t {braid.name = "y"}) attributes {braid.entry} {
  %0 = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %1 = tile.launch @k grid [4] (%0) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %2 = tile.launch @k grid [4] (%1) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %3 = tile.launch @k grid [4] (%2) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  return %3 : !t
}

// -----

!t = tensor<4x16xf32>

// The input is read again after the update in place: the update works on a copy, and the input keeps its value.
// CHECK-LABEL: func.func @kept
// CHECK: %[[C:.*]] = cmd.materialize %arg0 {cmd.results = [#cmd.buffer<@[[ARENA:.*]], [[AT:[0-9]+]], 256>]}
// CHECK: tile.launch @k grid [4](%[[C]]) {{.*}}cmd.results = [#cmd.buffer<@[[ARENA]], [[AT]], 256>]
// EXPLAIN: remark: memory of @kept: 1 values share a buffer, 1 copies or fills of 256 bytes remain
func.func @kept(%x: !t {braid.name = "x"}) -> (!t {braid.name = "y"}) attributes {braid.entry} {
  %0 = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: 0>, scalars = {}} : (!t) -> !t
  return %0 : !t
}

// -----

!t = tensor<4x16xf32>

// A result with the argument's buffer is computed in it when nobody reads the old value any more.
// CHECK-LABEL: func.func @updated
// CHECK: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@parameters, 0, 256>]
// EXPLAIN: remark: memory of @updated: 2 values share a buffer, 0 copies or fills
func.func @updated(%w: !t {braid.name = "w", braid.role = "parameter"}) -> (!t {braid.name = "w", braid.role = "parameter"}) attributes {braid.entry} {
  %0 = tile.launch @k grid [4] (%w) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: 0>, scalars = {}} : (!t) -> !t
  return %0 : !t
}

// -----

!t = tensor<4x16xf32>

// Exchanged caches: one old value is saved before it is overwritten, the other is read in time.
// CHECK-LABEL: func.func @exchanged
// CHECK: %[[A:.*]] = cmd.materialize %arg1 {cmd.results = [#cmd.buffer<@cache, 256, 256>]}
// CHECK: %[[B:.*]] = cmd.materialize %arg0 {cmd.results = [#cmd.buffer<@workspace, 0, 256>]}
// CHECK: cmd.materialize %[[A]] {cmd.results = [#cmd.buffer<@cache, 0, 256>]}
// CHECK: cmd.materialize %[[B]] {cmd.results = [#cmd.buffer<@cache, 256, 256>]}
func.func @exchanged(%a: !t {braid.name = "a", braid.role = "cache"}, %b: !t {braid.name = "b", braid.role = "cache"})
    -> (!t {braid.name = "a", braid.role = "cache", braid.alias = 0 : i64}, !t {braid.name = "b", braid.role = "cache", braid.alias = 1 : i64}) attributes {braid.entry} {
  return %b, %a : !t, !t
}

// -----

!t = tensor<4x16xf32>
!s = tensor<3x4x16xf32>

// Layers: the carried value has one buffer, what is saved goes straight to its slot, weights are read by stride. The
// backward walks the other way: the first iteration lies at the last slot.
// CHECK: cmd.arena @saved bytes 768
// CHECK: cmd.tensor "layers.{}.w" parameter tensor<4x16xf32> at <@parameters, 0, 768> {layers = array<i32: 1, 4, 7>}
// CHECK-LABEL: func.func @layers
// CHECK: braid.repeat {{.*}}cmd.arguments = [#cmd.buffer<@io, 256, 256>, #cmd.buffer<@parameters, 0, 256, strides = [256]>], cmd.results = [#cmd.buffer<@io, 256, 256>, #cmd.buffer<@saved, 0, 768>]
// CHECK: tile.launch @k2 {{.*}}cmd.results = [#cmd.buffer<@saved, 0, 256, strides = [256]>]
// CHECK: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@io, 256, 256>]
// CHECK: braid.repeat {{.*}}cmd.arguments = [#cmd.buffer<@saved, 512, 256, strides = [-256]>], cmd.results = [#cmd.buffer<@gradients, 0, 768>]
// CHECK: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@gradients, 512, 256, strides = [-256]>]
func.func private @layer(%x: !t, %w: !t) -> (!t, !t) {
  %0 = tile.launch @k2 grid [4] (%x, %w) {arg_names = ["x", "y"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t, !t) -> !t
  %1 = tile.launch @k grid [4] (%0) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  return %1, %0 : !t, !t
}
func.func @layers(%x: !t {braid.name = "x"}, %w: !s {braid.name = "layers.{}.w", braid.role = "parameter", braid.layers = array<i32: 1, 4, 7>})
    -> (!t {braid.name = "y"}, !s {braid.name = "gradient.layers.{}.w", braid.role = "gradient", braid.of = "layers.{}.w", braid.layers = array<i32: 1, 4, 7>}) attributes {braid.entry} {
  %y, %saved = braid.repeat %x, %w {count = 3 : i64, carried = 1 : i64} : (!t, !s) -> (!t, !s) {
  ^bb0(%c: !t, %wl: !t):
    %r:2 = func.call @layer(%c, %wl) : (!t, !t) -> (!t, !t)
    braid.yield %r#0, %r#1 : (!t, !t) -> ()
  }
  %d = braid.repeat %saved {count = 3 : i64, carried = 0 : i64, reverse} : (!s) -> !s {
  ^bb0(%s: !t):
    %0 = tile.launch @k grid [4] (%s) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
    braid.yield %0 : (!t) -> ()
  }
  return %y, %d : !t, !s
}

// -----

!t = tensor<4x16xf32>
!in = tensor<2x4x16xf32>
!s = tensor<3x2x4x16xf32>

// A repeat in a repeat has one stride for each; the optimizer updates every slot in place.
// CHECK-LABEL: func.func @nested
// CHECK: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@parameters, 256, 256, strides = [512, -256]>]
// EXPLAIN: remark: memory of @nested: 4 values share a buffer, 0 copies or fills
func.func @nested(%w: !s {braid.name = "layers.{}.w", braid.role = "parameter", braid.layers = array<i32: 0, 1, 3, 4, 6, 7>})
    -> (!s {braid.name = "layers.{}.w", braid.role = "parameter", braid.layers = array<i32: 0, 1, 3, 4, 6, 7>}) attributes {braid.entry} {
  %n = braid.repeat %w {count = 3 : i64, carried = 0 : i64} : (!s) -> !s {
  ^bb0(%outer: !in):
    %m = braid.repeat %outer {count = 2 : i64, carried = 0 : i64, reverse} : (!in) -> !in {
    ^bb0(%wl: !t):
      %0 = tile.launch @k grid [4] (%wl) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: 0>, scalars = {}} : (!t) -> !t
      braid.yield %0 : (!t) -> ()
    }
    braid.yield %m : (!in) -> ()
  }
  return %n : !s
}

// -----

!t = tensor<4x16xf32>
!h = tensor<2x16xf32>

// Slices along the first dimension are views, the parts of a concat are computed in place.
// CHECK-LABEL: func.func @halves
// CHECK: braid.slice %arg0 {{.*}}cmd.results = [#cmd.buffer<@io, 128, 128>]
// CHECK: tile.launch @k grid [2](%{{.*}}) {{.*}}cmd.results = [#cmd.buffer<@io, 384, 128>]
// CHECK: tile.launch @k grid [2](%{{.*}}) {{.*}}cmd.results = [#cmd.buffer<@io, 256, 128>]
// CHECK: braid.concat {{.*}}cmd.results = [#cmd.buffer<@io, 256, 256>]
func.func @halves(%x: !t {braid.name = "x"}) -> (!t {braid.name = "y"}) attributes {braid.entry} {
  %low = braid.slice %x {dim = 0 : i64, begin = 0 : i64} : (!t) -> !h
  %high = braid.slice %x {dim = 0 : i64, begin = 2 : i64} : (!t) -> !h
  %b = tile.launch @k grid [2] (%high) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!h) -> !h
  %a = tile.launch @k grid [2] (%low) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!h) -> !h
  %y = braid.concat %a, %b {dim = 0 : i64} : (!h, !h) -> !t
  return %y : !t
}

// -----

!t = tensor<4x16xf32>
!h = tensor<2x16xf32>

// Zeros that are only read share one buffer; a zero that is updated is filled where the update happens.
// CHECK-LABEL: func.func @zeros
// CHECK: arith.constant {cmd.results = [#cmd.buffer<@workspace, [[AT:[0-9]+]], 256>]} dense<0.000000e+00> : tensor<4x16xf32>
// CHECK: arith.constant {cmd.results = [#cmd.buffer<@workspace, [[AT]], 128>]} dense<0.000000e+00> : tensor<2x16xf32>
// CHECK: cmd.materialize {{.*}} {cmd.results = [#cmd.buffer<@io, 0, 256>]}
func.func @zeros() -> (!t {braid.name = "y"}, !t {braid.name = "z"}, !h {braid.name = "h"}) attributes {braid.entry} {
  %zero = arith.constant dense<0.0> : !t
  %small = arith.constant dense<0.0> : !h
  %y = tile.launch @k grid [4] (%zero) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: 0>, scalars = {}} : (!t) -> !t
  %z = tile.launch @k grid [4] (%zero) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %h = tile.launch @k grid [2] (%small) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!h) -> !h
  return %y, %z, %h : !t, !t, !h
}

// -----

!t = tensor<4x16xf32>

// What is sent and what is received must not be used for anything else until the await: the launch between start and
// await finds no room in either.
// CHECK-LABEL: func.func @exchange
// CHECK: tile.launch @k grid [4](%arg0) {{.*}}cmd.results = [#cmd.buffer<@workspace, [[SEND:[0-9]+]], 256>]
// CHECK-NOT: tile.launch {{.*}}#cmd.buffer<@workspace, [[SEND]], 256>
// CHECK: braid.comm.await {{.*}}cmd.results
func.func @exchange(%x: !t {braid.name = "x"}) -> (!t {braid.name = "y"}, !t {braid.name = "z"}) attributes {braid.entry} {
  %0 = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %f = braid.comm.start all_to_all %0 {axis = "ep", peers = 2 : i64} : (!t) -> !braid.future<!t>
  %1 = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %2 = tile.launch @k grid [4] (%1) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %3 = braid.comm.await %f : (!braid.future<!t>) -> !t
  %y = tile.launch @k grid [4] (%3) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %z = tile.launch @k grid [4] (%2) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  return %y, %z : !t, !t
}

// -----

!t = tensor<4x16xf32>
!u = tensor<2x16xf32>
!s = tensor<2x4x16xf32>
!o = tensor<1x4x16xf32>

// Entry points share parameters by name. Inputs of different shapes carry the entry's name. Two stacks of one name are one
// tensor; where their layers differ in shape each layer is a tensor of its own.
// CHECK: cmd.arena @parameters bytes 1280
// CHECK-DAG: cmd.tensor "w" parameter tensor<4x16xf32> at <@parameters, 0, 256>
// CHECK-DAG: cmd.tensor "layers.{}.n" parameter tensor<4x16xf32> at <@parameters, 256, 768> {layers = array<i32: 0, 2, 1>}
// CHECK-DAG: cmd.tensor "layers.0.v" parameter tensor<16xf32> at <@parameters, 1024, 64>
// CHECK-DAG: cmd.tensor "layers.1.v" parameter tensor<16xf32> at <@parameters, 1088, 64>
// CHECK-DAG: cmd.tensor "layers.2.v" parameter tensor<2x16xf32> at <@parameters, 1152, 128>
// CHECK-DAG: cmd.tensor "first/x" input tensor<4x16xf32>
// CHECK-DAG: cmd.tensor "second/x" input tensor<2x16xf32>
// CHECK-LABEL: func.func @first
// CHECK-SAME: cmd.tensors = ["first/x"]
// CHECK-SAME: cmd.tensors = ["layers.0.v", "layers.1.v"]
func.func @first(%x: !t {braid.name = "x"}, %w: !t {braid.name = "w", braid.role = "parameter"},
                 %n: !s {braid.name = "layers.{}.n", braid.role = "parameter", braid.layers = array<i32: 0, 2>},
                 %m: !o {braid.name = "layers.{}.n", braid.role = "parameter", braid.layers = array<i32: 1>},
                 %v: !u {braid.name = "layers.{}.v", braid.role = "parameter", braid.layers = array<i32: 0, 1>},
                 %v2: tensor<1x2x16xf32> {braid.name = "layers.{}.v", braid.role = "parameter", braid.layers = array<i32: 2>})
    -> (!t {braid.name = "y"}) attributes {braid.entry} {
  return %w : !t
}
// CHECK-LABEL: func.func @second
// CHECK-SAME: cmd.buffer = #cmd.buffer<@parameters, 0, 256>, cmd.tensors = ["w"]
func.func @second(%x: !u {braid.name = "x"}, %w: !t {braid.name = "w", braid.role = "parameter"}) -> (!t {braid.name = "y"}) attributes {braid.entry} {
  return %w : !t
}

// -----

!t = tensor<4x16xf32>
!s = tensor<3x4x16xf32>

// The input of a layer is kept for the backward: it goes to its slot first and is read there, so that the next layer's
// input is computed where this one's was. Two stacks of one value are one; a stack that nobody reads is none.
// CHECK: cmd.arena @saved bytes 768
// CHECK-LABEL: func.func @kept_inputs
// CHECK: braid.repeat {{.*}} -> (tensor<4x16xf32>, tensor<3x4x16xf32>)
// CHECK-NEXT: ^bb0(%[[C:.*]]: tensor<4x16xf32>)
// CHECK-NEXT: %[[X:.*]] = cmd.materialize %[[C]] {cmd.results = [#cmd.buffer<@saved, 0, 256, strides = [256]>]}
// CHECK-NEXT: %[[Y:.*]] = tile.launch @k grid [4](%[[X]]) {{.*}}cmd.results = [#cmd.buffer<@io, 256, 256>]
// CHECK-NEXT: %[[T:.*]] = cmd.materialize %[[Y]] {cmd.results = [#cmd.buffer<@io, 256, 256>]}
// CHECK-NEXT: braid.yield %[[T]], %[[X]] :
// EXPLAIN: remark: memory of @kept_inputs: {{.*}} 2 copies or fills of 1024 bytes remain
func.func @kept_inputs(%x: !t {braid.name = "x"}) -> (!t {braid.name = "y"}, !t {braid.name = "z"}) attributes {braid.entry} {
  %y, %a, %b, %unread = braid.repeat %x {count = 3 : i64, carried = 1 : i64} : (!t) -> (!t, !s, !s, !s) {
  ^bb0(%c: !t):
    %0 = tile.launch @k grid [4] (%c) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
    %1 = tile.launch @k grid [4] (%c) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
    braid.yield %0, %c, %c, %1 : (!t, !t, !t, !t) -> ()
  }
  %z = tile.launch @reduce grid [1] (%a, %b) {arg_names = ["a", "b"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!s, !s) -> !t
  return %y, %z : !t, !t
}
