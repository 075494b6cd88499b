"""The layer functions of models of phase `model`, one after the other, with their tables of initial values.

family.py FOLDER     (FOLDER: models/)
"""

import pathlib
import re
import subprocess
import sys

NAMES = ("lightning", "based", "hgrn2", "rwkv6", "rwkv7", "kda", "fast-weights", "mamba", "xlstm", "griffin", "s4d", "ttt", "titans", "titans-ln")


def main(folder):
    for name in NAMES:
        path = pathlib.Path(folder) / f"tiny-{name}.json"
        command = ["braid-compile", str(path), "--to-phase=model", "-o", "-"]
        text = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
        tables = re.findall(r'braid\.init .*"values".*?values = array<f64: ([^>]*)>', text)
        for letter, body in re.findall(r"func\.func private @layer_(\w)_D_8x128\((.*?)\n  }", text, re.DOTALL):
            print(f"tiny-{name} {letter}")
            print(body)
        for values in tables:
            if len(values.split(",")) > 2:
                print(f"init lsm.log_decay {values}")
    print(f"{len(NAMES)} models")


if __name__ == "__main__":
    main(*sys.argv[1:])
