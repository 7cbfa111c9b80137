"""How fast what is stored is hashed again, beside what the machine's cores give for bytes in memory."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.store.store import Store
from kvtool.store.verify import Verification
from tests.bench.results import Plan, Results
from tests.stores import open_store, save
from tests.synth import random_bytes
from tests.timing import MIB, drop_caches, timed

CASE = "SHA-256, everything in the page cache"
MEMORY, EVERYTHING, NAMED = "64 KiB pieces of memory, on all cores", "kvtool verify", "kvtool verify NAME..."
SIZES = ChunkSizes(16 << 10, 64 << 10, 256 << 10)
SNAPSHOTS = 4

# Prints the seconds that it took.
_HASH = """
import hashlib, sys, time
buffer = memoryview(bytearray(4 << 20))
pieces = [buffer[at : at + (64 << 10)] for at in range(0, len(buffer), 64 << 10)]
start = time.perf_counter()
for _ in range(int(sys.argv[1]) // len(buffer)):
    for piece in pieces:
        hashlib.sha256(piece).digest()
print(time.perf_counter() - start)
"""


def verify(results: Results, folder: Path, plan: Plan) -> None:
    """Whole verifications, from the look-ups to the last process's end, beside the bare hash."""
    with open_store(folder, SIZES) as store:
        for seed in range(SNAPSHOTS):
            save(store, random_bytes(plan.size, seed), f"snapshot-{seed}")
        names = [os.fsencode(store.layout.stubs / f"snapshot-{seed}") for seed in range(SNAPSHOTS)]
        # What was read lies in larger pieces of memory than what was written, and is mapped in less time.
        if not drop_caches():
            results.note("Not root, so the packs stayed in the page cache as they were written.")
        for path in store.layout.packs.rglob("*.pack"):
            subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
        steps = [
            (MEMORY, partial(_from_memory, SNAPSHOTS * plan.size)),
            (EVERYTHING, partial(_verified, store)),
            (NAMED, partial(_verified, store, names)),
        ]
        for run in range(plan.runs):
            first = run % len(steps)
            for name, action in steps[first:] + steps[:first]:
                results.add(CASE, name, action(), "MiB/s")
    results.ratio("verify beside the bare hash", (CASE, EVERYTHING), (CASE, MEMORY), 0.8, at_least=True)
    results.ratio("verify NAME... beside the bare hash", (CASE, NAMED), (CASE, MEMORY), 0.8, at_least=True)


def _verified(store: Store, names: list[bytes] | None = None) -> float:
    seconds, found = timed(lambda: Verification(store, names).run())
    if found.bad or found.damaged:
        raise AssertionError("a store just made is damaged")
    return float(found.bytes / seconds / MIB)


def _from_memory(size: int) -> float:
    cores = len(os.sched_getaffinity(0))
    command = [sys.executable, "-c", _HASH, str(size // cores)]
    at_work = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(cores)]
    seconds = [float(process.communicate()[0]) for process in at_work]
    return size / max(seconds) / MIB
