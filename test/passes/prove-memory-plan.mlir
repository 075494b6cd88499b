// Plans written by hand, most of them wrong: the proof must find what the planner would have had to get right.
// RUN: braid-opt %s --split-input-file --braid-prove-memory-plan --verify-diagnostics

!t = tensor<4xf32>

// Right: two values that are not alive together share a buffer.
func.func @right(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 16, 16>}) attributes {braid.entry} {
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@w, 0, 16>]} : (!t) -> !t
  %1 = tile.launch @k grid [1] (%0) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@w, 16, 16>]} : (!t) -> !t
  %2 = tile.launch @k grid [1] (%1) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@w, 0, 16>]} : (!t) -> !t
  %3 = cmd.materialize %2 {cmd.results = [#cmd.buffer<@io, 16, 16>]} : !t
  return %3 : !t
}

// -----

!t = tensor<4xf32>

func.func @overwritten(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 16, 16>}) attributes {braid.entry} {
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@w, 0, 16>]} : (!t) -> !t
  // expected-note @+1 {{overwritten by 'tensor<4xf32>' from here}}
  %1 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@w, 8, 16>]} : (!t) -> !t
  // expected-error @+1 {{'tile.launch' op memory plan: 'tensor<4xf32>' at #cmd.buffer<@w, 0, 16> is read but was overwritten}}
  %2 = tile.launch @k grid [1] (%0) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@io, 16, 16>]} : (!t) -> !t
  return %2 : !t
}

// -----

!t = tensor<4xf32>

func.func @on_operand(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 8, 16>}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op memory plan: result 0 lies on operand 0}}
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@io, 8, 16>]} : (!t) -> !t
  return %0 : !t
}

// -----

!t = tensor<4xf32>

func.func @elsewhere(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 16, 16>}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op memory plan: result 0 is not in the buffer of operand 0, which it updates}}
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: 0>, scalars = {}, cmd.results = [#cmd.buffer<@io, 16, 16>]} : (!t) -> !t
  return %0 : !t
}

// -----

!t = tensor<4xf32>

func.func @argument(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 16, 16>}) attributes {braid.entry} {
  %0 = cmd.materialize %x {cmd.results = [#cmd.buffer<@io, 16, 16>]} : !t
  // expected-note @+1 {{overwritten by}}
  %1 = tile.launch @k grid [1] (%0) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@io, 0, 16>]} : (!t) -> !t
  // expected-error @+1 {{'func.return' op memory plan: 'tensor<4xf32>' at #cmd.buffer<@io, 0, 16> is not kept}}
  return %0 : !t
}

// -----

!t = tensor<4xf32>
!s = tensor<3x4xf32>

// The second iteration writes the slot that the first should have left alone.
func.func @slots(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!s {cmd.buffer = #cmd.buffer<@io, 16, 48>}) attributes {braid.entry} {
  // expected-error @+2 {{'braid.repeat' op memory plan: 'tensor<3x4xf32>' at #cmd.buffer<@io, 16, 48> leaves the repeat incomplete}}
  // expected-note @+1 {{it was never written}}
  %all:2 = braid.repeat %x {count = 3 : i64, carried = 1 : i64, cmd.arguments = [#cmd.buffer<@io, 0, 16>], cmd.results = [#cmd.buffer<@io, 0, 16>, #cmd.buffer<@io, 16, 48>]} : (!t) -> (!t, !s) {
  ^bb0(%c: !t):
    %0 = tile.launch @k grid [1] (%c) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@io, 16, 16>]} : (!t) -> !t
    braid.yield %c, %0 : (!t, !t) -> ()
  }
  return %all#1 : !s
}

// -----

!t = tensor<4xf32>

func.func @sent(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 16, 16>}) attributes {braid.entry} {
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@w, 0, 16>]} : (!t) -> !t
  %f = braid.comm.start all_reduce %0 {axis = "dp"} : (!t) -> !braid.future<!t>
  // expected-note @+1 {{overwritten by}}
  %1 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@w, 0, 16>]} : (!t) -> !t
  // expected-error @+1 {{'braid.comm.await' op memory plan: 'tensor<4xf32>' at #cmd.buffer<@w, 0, 16> was overwritten while it was sent}}
  %2 = braid.comm.await %f {cmd.results = [#cmd.buffer<@io, 16, 16>]} : (!braid.future<!t>) -> !t
  return %2 : !t
}

// -----

!t = tensor<4xf32>

func.func @received(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 16, 16>}) attributes {braid.entry} {
  %f = braid.comm.start all_reduce %x {axis = "dp"} : (!t) -> !braid.future<!t>
  // expected-note @+1 {{overwritten by}}
  %1 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@io, 16, 16>]} : (!t) -> !t
  // expected-error @+1 {{'braid.comm.await' op memory plan: 'tensor<4xf32>' at #cmd.buffer<@io, 16, 16> was overwritten while it was received}}
  %2 = braid.comm.await %f {cmd.results = [#cmd.buffer<@io, 16, 16>]} : (!braid.future<!t>) -> !t
  return %2 : !t
}

// -----

!t = tensor<4xf32>

func.func @too_small(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 16, 12>}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op memory plan: 'tensor<4xf32>' at #cmd.buffer<@io, 16, 12> needs 16 bytes}}
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@io, 16, 12>]} : (!t) -> !t
  return %0 : !t
}

// -----

!t = tensor<4xf32>

func.func @misaligned(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 18, 16>}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op memory plan: 'tensor<4xf32>' at #cmd.buffer<@io, 18, 16> begins at byte 18, no multiple of its elements' 4}}
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@io, 18, 16>]} : (!t) -> !t
  return %0 : !t
}

// -----

!t = tensor<4xf32>

// expected-error @+1 {{'func.func' op memory plan: result 0 is said to be at #cmd.buffer<@io, 32, 16> but lies at #cmd.buffer<@io, 16, 16>}}
func.func @said_elsewhere(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 32, 16>}) attributes {braid.entry} {
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@io, 16, 16>]} : (!t) -> !t
  return %0 : !t
}

// -----

!t = tensor<4xf32>

cmd.program {
  cmd.arena @io bytes 24
  cmd.tensor "x" input tensor<4xf32> at <@io, 0, 16>
}
func.func @outside(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>}) -> (!t {cmd.buffer = #cmd.buffer<@io, 16, 16>}) attributes {braid.entry} {
  // expected-error @+1 {{'tile.launch' op memory plan: 'tensor<4xf32>' at #cmd.buffer<@io, 16, 16> holds bytes 16 to 32 of an arena of 24}}
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@io, 16, 16>]} : (!t) -> !t
  return %0 : !t
}

// -----

!t = tensor<4xf32>

cmd.program {
  cmd.arena @io bytes 24
  cmd.tensor "x" input tensor<4xf32> at <@io, 0, 16>
}
// expected-error @+1 {{'func.func' op memory plan: argument 0 is at #cmd.buffer<@io, 8, 16> but "x" is at bytes 0 to 16}}
func.func @beside_its_tensor(%x: !t {cmd.buffer = #cmd.buffer<@io, 8, 16>, cmd.tensors = ["x"]}) -> (!t {cmd.buffer = #cmd.buffer<@w, 16, 16>}) attributes {braid.entry} {
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@w, 16, 16>]} : (!t) -> !t
  return %0 : !t
}

// -----

!t = tensor<4xf32>

cmd.program {
  cmd.arena @io bytes 24
  cmd.tensor "x" input tensor<4xf32> at <@io, 0, 16>
}
// expected-error @+1 {{'func.func' op memory plan: argument 0 is at #cmd.buffer<@io, 0, 16> but there is no tensor "y" in that arena}}
func.func @no_tensor(%x: !t {cmd.buffer = #cmd.buffer<@io, 0, 16>, cmd.tensors = ["y"]}) -> (!t {cmd.buffer = #cmd.buffer<@w, 16, 16>}) attributes {braid.entry} {
  %0 = tile.launch @k grid [1] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}, cmd.results = [#cmd.buffer<@w, 16, 16>]} : (!t) -> !t
  return %0 : !t
}
