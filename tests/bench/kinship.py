"""What the prefix tree of many long conversations costs."""

import os
import random
import subprocess
import sys
from array import array
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.core.tokens import TokenList, encode
from kvtool.store.kinship import prefix_tree
from tests import processes
from tests.bench.results import Plan, Results
from tests.stores import layout_in, open_store, opened, save
from tests.timing import MIB, timed

CONVERSATIONS, TOKENS = 1000, 30_000
CASE = "Prefix tree of 1,000 conversations of 30,000 tokens"
MEMORY = "Memory of the prefix tree"
_FAMILY = 10  # conversations that begin alike


def tree(results: Results, folder: Path, plan: Plan) -> None:
    """From the store to the tree, each time in a fresh process; chunks of the usual size."""
    fill(folder, CONVERSATIONS, TOKENS)
    for _ in range(plan.runs):
        command = [sys.executable, "-m", "tests.bench.kinship", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        seconds, peak, nodes = done.stdout.split()
        results.add(CASE, f"{nodes} nodes", float(seconds))
        results.add(MEMORY, "peak", float(peak), "MiB")
    results.hold("prefix tree of 1,000 conversations", results.median(CASE, f"{nodes} nodes"), 2, "s")
    results.hold("memory of the prefix tree", results.median(MEMORY, "peak"), 500, "MiB")


def fill(folder: Path, conversations: int, tokens: int) -> None:
    """Ten of them begin alike each time, for a while: token lists, and a little that stands for the state."""
    chance = random.Random(1)
    with open_store(folder, ChunkSizes()) as store:
        for number in range(conversations):
            if number % _FAMILY == 0:
                common = [chance.randrange(150_000) for _ in range(tokens)]
            alike = chance.randrange(tokens) if number % _FAMILY else tokens
            its = common[:alike] + [chance.randrange(150_000) for _ in range(tokens - alike)]
            data = encode(TokenList(4, array("i", its))) + chance.randbytes(100_000)
            save(store, data, f"conversation-{number}")


def main() -> None:
    """Makes the tree of one store: prints seconds, the peak of memory in MiB, and its nodes."""
    with opened(layout_in(Path(sys.argv[1])), writable=False) as store:
        seconds, found = timed(lambda: prefix_tree(store))
    # What getrusage(2) tells is no less than what the benchmark's own process had.
    print(seconds, processes.peak_memory([os.getpid()]) / MIB, len(found.nodes))


if __name__ == "__main__":
    main()
