"""damage.py FOLDER: of the compiled kernels in it, turns a bit in every fourth file, cuts every fourth one off, empties every fourth one, and
gives the others what the file behind them held."""
import pathlib
import sys

files = sorted(pathlib.Path(sys.argv[1]).glob("llvmcache-*"))
held = [file.read_bytes() for file in files]
for index, file in enumerate(files):
    turned = bytearray(held[index])
    turned[len(turned) // 2] ^= 1
    file.write_bytes((bytes(turned), held[index][:40], b"", held[(index + 1) % len(files)])[index % 4])
sys.exit(len(files) < 5)
