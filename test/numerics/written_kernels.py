"""Functions that launch kernels of the `tile` dialect which a test writes itself."""

from harness import Program


class Kernels(Program):
    """Functions that launch kernels written here."""

    def __init__(self, name):
        super().__init__(name, options=["--from-phase=kernels"])
        self.kernels = []

    def mlir(self):
        return super().mlir().replace("{\n", "{\n" + "\n".join(self.kernels) + "\n", 1)

    def kernel(self, name, buffers, body, scalars=("n",), grid=("i",)):
        """`buffers`: {name: memref}."""
        arguments = [f'%{n}: memref<{t}> {{tile.name = "{n}"}}' for n, t in buffers.items()]
        arguments += [f'%{n}: index {{tile.name = "{n}"}}' for n in scalars]
        names = ", ".join(f'"{g}"' for g in grid)
        constants = "\n".join(f"    %c{i} = arith.constant {i} : index" for i in (0, 1, 4, 1024))
        text = f"  func.func private @{name}({', '.join(arguments)}) attributes {{tile.kernel, tile.grid = [{names}]}} {{\n{constants}\n{body}\n    return\n  }}"
        self.kernels.append(text)


def launch(f, kernel, grid, inputs, outputs, inplace=None, **scalars):
    """inputs {name: Operand}, outputs {name: Type}."""
    strings = lambda names: "[" + ", ".join(f'"{n}"' for n in names) + "]"
    numbers = lambda values: ", ".join(str(v) for v in values)
    values = f.op(
        "tile.launch",
        list(inputs.values()),
        list(outputs.values()),
        kernel=f"@{kernel}",
        grid=f"array<i64: {numbers(grid)}>",
        arg_names=strings(inputs),
        result_names=strings(outputs),
        inplace=f"array<i64: {numbers(inplace or [-1] * len(outputs))}>",
        scalars="{" + ", ".join(f"{n} = {v} : index" for n, v in scalars.items()) + "}",
    )
    return dict(zip(outputs, values))
