"""Inputs of layers.mlir's @step, or the comparison of its outputs with the same in NumPy."""
import sys

import numpy as np

folder = sys.argv[1]
rng = np.random.default_rng(0)
x, w = rng.standard_normal((2, 4)).astype("f"), rng.standard_normal((3, 2, 4)).astype("f")
if "--check" not in sys.argv:
    np.save(folder + "/x.npy", x)
    np.save(folder + "/w.npy", w)
    sys.exit()
y, kept = x, []
for layer in range(3):
    kept.append(y + w[layer])
    y = kept[-1] + np.float32(0.5) * y


def equal(name, wanted):
    return "equal" if np.allclose(np.load(f"{folder}/{name}.npy"), wanted, rtol=1e-6, atol=1e-6) else "WRONG"


print(f"y {equal('y', y)}, product {equal('product', y @ x.T)}, new weights {equal('new', w + np.float32(0.5) * np.array(kept))}")
