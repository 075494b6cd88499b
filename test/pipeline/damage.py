"""damage.py FOLDER: of the compiled kernels in it, turns a bit in every third file, cuts every third one off, and empties the others."""
import pathlib
import sys

files = sorted(pathlib.Path(sys.argv[1]).glob("llvmcache-*"))
for index, file in enumerate(files):
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 1
    file.write_bytes(contents if index % 3 == 0 else contents[:40] if index % 3 == 1 else b"")
sys.exit(not files)
