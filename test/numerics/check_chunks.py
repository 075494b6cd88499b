"""Tables of chunks, on whatever this compiles for, against a walk from document to document: every number of them.

    check_chunks.py          (BRAID_BIN: the CPU's braid-compile and braid-run, or those of test/emulator/cuda, whose kernels walk in another order)

Packings are drawn: rows without padding and rows of nothing else, documents of one token, documents that go on from before the row (chunks that are aligned
begin inside them), as many documents as there may be.
"""

import itertools
import sys

import numpy as np

from harness import Program, Type
from common import PADDING

MAX_DOCUMENTS = 9
PACKINGS = 40  # of a shape
SHAPES = [(1, 1, 16), (3, 37, 16), (2, 64, 16), (2, 200, 64), (1, 96, 128)]  # rows, tokens, chunk size
LONG = [(2, 2100, 16), (1, 4097, 64)]  # more than a thread block looks at, or writes, at a time


def table(documents, chunk, rows, aligned):
    """Of one row of tokens: lo, hi, restart, phase of every chunk; what is left of the rows is empty."""
    tokens, found, lo = len(documents), [], 0
    for number, run in itertools.groupby(documents.tolist()):
        end, padding = lo + len(list(run)), number == PADDING
        phase = (lo - number) % chunk if aligned and not padding else 0
        restart = int(number == lo)
        while lo < end:
            hi = min(lo + chunk - phase, end)
            found.append((lo, lo if padding else hi, restart, phase))
            lo, restart, phase = hi, 0, 0
    if len(found) > rows:
        raise ValueError(f"{len(found)} chunks in a table of {rows} rows")
    return found + [(tokens, tokens, 0, 0)] * (rows - len(found))


def packing(rng, tokens):
    """The first token of its document, for each token: negative before the row."""
    count = int(rng.integers(0, MAX_DOCUMENTS + 1))
    used = tokens if rng.random() < 0.4 else int(rng.integers(0, tokens + 1))
    lengths = np.ones(count, int) if rng.random() < 0.2 else rng.integers(1, max(2, 2 * tokens // max(count, 1)), count)
    if count and rng.random() < 0.4:
        lengths[rng.integers(0, count)] = 1
    if count and rng.random() < 0.5:
        lengths[-1] = tokens  # up to what is used
    documents, at = np.full(tokens, PADDING), 0
    for i, length in enumerate(lengths):
        before = int(rng.integers(0, 300)) if i == 0 and rng.random() < 0.5 else 0
        end = min(at + int(length), used)
        documents[at:end] = at - before
        at = end
    return documents


def add(program, rng, rows, tokens, chunk, aligned):
    name = f"chunks_b{rows}_t{tokens}_c{chunk}{'_aligned' if aligned else ''}"
    f = program.function(name)
    # What is padding is a document here, and so is what an aligned one begins with.
    count = -(-tokens // chunk) + MAX_DOCUMENTS + 1
    attributes = {"chunk_size": chunk} | ({"aligned": "unit"} if aligned else {})
    f.output("chunks", f.op("braid.lsm.chunk_table", [f.input("documents", (rows, tokens), "i32")], [Type((rows, count, 4), "i32")], **attributes)[0])
    one = np.zeros((rows, tokens), int)
    given = [one, np.full_like(one, PADDING), one - 5] + [np.stack([packing(rng, tokens) for _ in range(rows)]) for _ in range(PACKINGS)]
    wanted = [np.array([table(row, chunk, count, aligned) for row in documents]) for documents in given]

    def compare(program):
        found = [program.call(f, {"documents": documents})["chunks"].astype(int) for documents in given]
        wrong = [i for i, (a, b) in enumerate(zip(found, wanted)) if not np.array_equal(a, b)]
        words = f"{len(given)} packings, {sum(w.size for w in wanted)} numbers"
        if wrong:
            row, place = np.argwhere((found[wrong[0]] != wanted[wrong[0]]).any(-1))[0]
            words = f"{len(wrong)} of {words}: row {place} is {found[wrong[0]][row, place]}, expected {wanted[wrong[0]][row, place]}, documents {given[wrong[0]][row].tolist()}"
        program.line(not wrong, name, words)

    program.then(compare)


def main():
    program, rng = Program("chunks", max_documents=MAX_DOCUMENTS, options=["--from-phase=chunked"]), np.random.default_rng(8)
    for (rows, tokens, chunk), aligned in itertools.product(SHAPES + LONG, (False, True)):
        add(program, rng, rows, tokens, chunk, aligned)
    return program.finish()


if __name__ == "__main__":
    sys.exit(main())
