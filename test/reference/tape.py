"""Reverse mode over reference functions: enough to write a layer as its forward and to have its gradients.

    tape = Tape();  y = tape.call(rows.rms_norm, x, w, eps=1e-6);  gradients = tape.pull({y: dy}, [x, w])

A Value wraps an array. `call` runs a function of arrays that returns (value, pull); a tuple of values becomes a tuple of
Values. Arguments that are not Values are constants.
"""

import numpy as np


class Value:
    def __init__(self, array):
        self.array = np.asarray(array)

    @property
    def shape(self):
        return self.array.shape


class Tape:
    def __init__(self):
        self.calls = []

    def call(self, function, *arguments, **attributes):
        arrays = [a.array if isinstance(a, Value) else a for a in arguments]
        value, pull = function(*arrays, **attributes)
        results = tuple(Value(v) for v in value) if isinstance(value, tuple) else (Value(value),)
        self.calls.append((arguments, results, pull))
        return results if isinstance(value, tuple) else results[0]

    def linear(self, x, weight, features=None):
        """x [B, T, ..] (trailing dimensions flattened) times weight [in, out], shaped [B, T, features..]."""

        def run(x, weight):
            B, T = x.shape[:2]
            flat = x.reshape(B, T, -1)
            shape = (B, T) + (tuple(features) if features else (weight.shape[1],))

            def pull(dy):
                dy = dy.reshape(B, T, -1)
                return (dy @ weight.T).reshape(x.shape), np.einsum("bti,bto->io", flat, dy)

            return (flat @ weight).reshape(shape), pull

        return self.call(run, x, weight)

    def reshape(self, x, shape):
        return self.call(lambda a: (a.reshape(shape), lambda dy: (dy.reshape(a.shape),)), x)

    def transpose(self, x):
        return self.call(lambda a: (a.T, lambda dy: (dy.T,)), x)

    def sum(self, x):
        return self.call(lambda a: (a.sum(), lambda dy: (np.full(a.shape, dy),)), x)

    def pull(self, cotangents, wanted):
        """cotangents {Value: array}; -> gradients of sum <value, cotangent> with respect to each of `wanted`."""
        total = {id(v): np.asarray(c, np.float64) for v, c in cotangents.items()}
        for arguments, results, pull in reversed(self.calls):
            if not any(id(r) in total for r in results):
                continue
            parts = pull(*[total.get(id(r), np.zeros(r.shape)) for r in results])
            for argument, part in zip(arguments, parts if isinstance(parts, tuple) else (parts,)):
                if isinstance(argument, Value) and part is not None:
                    total[id(argument)] = total.get(id(argument), 0) + part
        return [np.asarray(total.get(id(w), np.zeros(w.shape))) for w in wanted]
