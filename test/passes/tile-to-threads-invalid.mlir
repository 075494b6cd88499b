// RUN: braid-opt %s --braid-tile-to-threads --split-input-file --verify-diagnostics
// Parameters of a launch: each buffer has an address, 31 sizes and 30 strides.

!buffer = memref<?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?x?xf32, strided<[?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1]>>
// expected-error @+1 {{@wide: 569 slots and 0 tensor maps take 4552 bytes of parameters; a launch has at most 4096}}
func.func @wide(%a: !buffer {tile.name = "a"}, %b: !buffer {tile.name = "b"}, %c: !buffer {tile.name = "c"}, %d: !buffer {tile.name = "d"}, %e: !buffer {tile.name = "e"},
    %f: !buffer {tile.name = "f"}, %g: !buffer {tile.name = "g"}, %h: !buffer {tile.name = "h"}, %y: !buffer {tile.name = "y"}, %i: index {tile.name = "i"},
    %j: index {tile.name = "j"}, %k: index {tile.name = "k"}, %l: index {tile.name = "l"}, %m: index {tile.name = "m"}, %n: index {tile.name = "n"}, %o: index {tile.name = "o"})
    attributes {tile.kernel, tile.grid = ["row"], tile.in_place = []} {
  return
}
