// What sums send stays where it is until somebody reads them, as far as `in-flight` bytes go: launches in between find room elsewhere.
// RUN: braid-opt %s --braid-plan-memory --braid-prove-memory-plan | FileCheck %s --check-prefixes=CHECK,LAYER
// RUN: braid-opt %s --braid-plan-memory=in-flight=256 --braid-prove-memory-plan | FileCheck %s --check-prefixes=CHECK,ONE
// RUN: braid-opt %s --braid-plan-memory=in-flight=0 --braid-prove-memory-plan | FileCheck %s --check-prefixes=CHECK,NONE

!t = tensor<4x16xf32>
!h = tensor<2x16xf32>

// LAYER: cmd.arena @workspace bytes 1280
// ONE: cmd.arena @workspace bytes 1024
// NONE: cmd.arena @workspace bytes 768
// CHECK-LABEL: func.func @sums
// CHECK: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@workspace, [[FIRST:[0-9]+]], 256>]
// LAYER-NOT: cmd.results = [#cmd.buffer<@workspace, [[FIRST]], 256>]
// LAYER: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@workspace, [[SECOND:[0-9]+]], 256>]
// LAYER-NOT: cmd.results = [#cmd.buffer<@workspace, [[SECOND]], 256>]
// LAYER: return
// ONE-NOT: cmd.results = [#cmd.buffer<@workspace, [[FIRST]], 256>]
// ONE: braid.comm.start
// ONE: braid.comm.start
// ONE: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@workspace, [[FIRST]], 256>]
// NONE: tile.launch @k {{.*}}cmd.results = [#cmd.buffer<@workspace, [[FIRST]], 256>]
// NONE: braid.comm.start
func.func private @k(%x: memref<?x16xf32> {tile.name = "x"}, %o: memref<?x16xf32> {tile.name = "o"}) attributes {tile.kernel, tile.grid = ["row"]} {
  return
}
func.func @sums(%x: !t {braid.name = "x"}) -> (!h {braid.name = "y"}, !h {braid.name = "z"}, !t {braid.name = "w"}) attributes {braid.entry} {
  %0 = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %f = braid.comm.start reduce_scatter %0 {axis = "dp"} : (!t) -> !braid.future<!h>
  %a = braid.comm.await %f : (!braid.future<!h>) -> !h
  %1 = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %g = braid.comm.start reduce_scatter %1 {axis = "dp"} : (!t) -> !braid.future<!h>
  %b = braid.comm.await %g : (!braid.future<!h>) -> !h
  %2 = tile.launch @k grid [4] (%x) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %3 = tile.launch @k grid [4] (%2) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %w = tile.launch @k grid [4] (%3) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!t) -> !t
  %y = tile.launch @k grid [2] (%a) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!h) -> !h
  %z = tile.launch @k grid [2] (%b) {arg_names = ["x"], result_names = ["o"], inplace = array<i64: -1>, scalars = {}} : (!h) -> !h
  return %y, %z, %w : !h, !h, !t
}
