"""A kernel whose formula has 2^48 ways from its result to what it loads: y = x |x|, 48 times. Whoever walks down each way does not end."""

lines = ["%c0 = arith.constant 0 : index", "%i = tile.program : index"]
memory, tile = "memref<?x32x32xf32>", "vector<32x32xf32>"
lines.append(f"%v0 = tile.load %x[%i, %c0, %c0] {{dims = array<i64: 1, 2>}} : {memory}, {tile}")
for n in range(48):
    lines += [f"%t{n} = math.absf %v{n} : {tile}", f"%v{n + 1} = arith.mulf %v{n}, %t{n} : {tile}"]
lines.append(f"%zero = arith.constant dense<0.0> : {tile}")
lines.append(f"%p = tile.dot %v48, %v48, %zero : {tile}, {tile}, {tile}")
lines.append(f"tile.store %p, %y[%i, %c0, %c0] {{dims = array<i64: 1, 2>}} : {tile}, {memory}")
print(f'func.func @deep(%x: {memory} {{tile.name = "x"}}, %y: {memory} {{tile.name = "y"}}) attributes {{tile.kernel, tile.grid = ["part"]}} {{')
print("\n".join("  " + line for line in lines))
print("  return\n}")
